/* wrapper.c -- what wrappers of a model need of the machine: see machine.h. */
#include "machine/machine_priv.h"

/* ---- storages that are resized ----------------------------------------------------- */

void plim_m_storage_free(plim_machine *m, plim_t t)
{
    uint32_t s = t ? m_t(m, t)->storage : PLIM_NONE;
    if (s == PLIM_NONE || m->st || m_s(m, s)->tape == PLIM_NONE)
        return;
    plim_assert(m_s(m, s)->refs > 0);
    if (!plim_tape_free_storage(m->tape, m_s(m, s)->tape))
        plim_m_oom(m);
    m_s(m, s)->tape = PLIM_NONE;
}

void plim_m_storage_alloc(plim_machine *m, plim_t t)
{
    uint32_t s = t ? m_t(m, t)->storage : PLIM_NONE;
    plim_storage row = {.category = m->category};
    if (s == PLIM_NONE || m->st || !m->tape || m_s(m, s)->tape != PLIM_NONE)
        return;
    plim_meta_bytes(plim_m_meta(m, t), &row.bytes);
    plim__storage_alloc(m, s, plim_m_meta(m, t), row);
}

void plim_m_set_stream(plim_machine *m, uint16_t stream)
{
    plim_assert(stream != PLIM_ALL_STREAMS);
    m->stream = stream;
}

void plim_m_record_stream(plim_machine *m, plim_t t, uint16_t stream)
{
    plim_assert(stream != PLIM_ALL_STREAMS);
    uint32_t s = t ? m_t(m, t)->storage : PLIM_NONE;
    if (!m->st && s != PLIM_NONE && m_s(m, s)->tape != PLIM_NONE)
        plim__tell_tape(m, (plim_event){.id = m_s(m, s)->tape,
                                        .stream = stream,
                                        .kind = PLIM_EVENT_RECORD_STREAM});
}

void plim_m_synchronize(plim_machine *m, uint16_t stream)
{
    plim__tell_tape(m, (plim_event){.stream = stream, .kind = PLIM_EVENT_STREAM_DONE});
}

/* ---- the backward pass --------------------------------------------------------------- */

void plim_m_set_watch(plim_machine *m, const plim_m_watch *watch) { m->watch = watch; }

enum { MARK, MAX_MARKED = 32 };

static void mark_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_assert(n->n_in == n->n_out);
    if (m->watch && m->watch->passed)
        m->watch->passed(m->watch->ud, (uint32_t)n->i[MARK]);
    for (uint32_t i = 0; i < n->n_in; i++)
        dx[i] = plim_m_ref(m, g[i]);
}
static const plim_grad_fn mark_fn = {"WrapperBackward", mark_backward};

void plim_m_mark(plim_machine *m, uint32_t mark, plim_t *t, uint32_t n)
{
    plim_t in[MAX_MARKED] = {0};
    uint32_t at[MAX_MARKED] = {0}, n_in = 0;
    for (uint32_t i = 0; i < n && n_in < MAX_MARKED; i++)
        if (t[i] && plim_m_requires_grad(m, t[i])) {
            at[n_in] = i;
            in[n_in++] = t[i];
        }
    plim_gnode *node = plim_m_node(m, &mark_fn, n_in, in);
    if (!node)
        return;
    node->i[MARK] = mark;
    node->n_out = n_in;
    for (uint32_t i = 0; i < n_in; i++) {
        plim_t out = plim_m_alias(m, in[i], plim_m_meta(m, in[i]));
        plim_m_output(m, node, i, out);
        plim_m_drop(m, in[i]);
        t[at[i]] = out;
    }
}
