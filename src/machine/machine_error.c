/* machine_error.c -- the first error of a machine, after which it makes nothing more: see machine.h. */
#include "machine/machine_priv.h"

#include <stdio.h>

void plim_m_fail(plim_machine *m, plim_status code, const char *fmt, ...)
{
    if (m->st)
        return;
    char buf[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    m->st = plim_fail(m->err, code, m->where, "%s", buf);
}

void plim_m_oom(plim_machine *m)
{
    if (!m->st)
        m->st = plim_oom(m->err);
}

bool plim_m_bad(const plim_machine *m) { return m->st != PLIM_OK; }
bool plim_m_shapes_only(const plim_machine *m) { return !m->tape; }
plim_status plim_m_status(const plim_machine *m) { return m->st; }
void plim_m_clear_error(plim_machine *m) { m->st = PLIM_OK; }
