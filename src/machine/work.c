/* work.c -- see work.h. */
#include "machine/work.h"

#include "machine/machine_priv.h"

const char *plim_work_name(plim_work_class c)
{
    static const char *const names[] = {
#define WORK(id, doc) #id,
#include "machine/work.def"
#undef WORK
    };
    return (unsigned)c < PLIM_COUNT(names) ? names[c] : "";
}

/* The class of an op that multiplies nothing. */
static plim_work_class class_of_family(const char *family)
{
    static const struct {
        const char *family;
        plim_work_class klass;
    } rows[] = {{"norm", PLIM_WORK_norm},      {"reduce", PLIM_WORK_reduce},
                {"softmax", PLIM_WORK_reduce}, {"pool", PLIM_WORK_reduce},
                {"loss", PLIM_WORK_reduce},    {"copy", PLIM_WORK_copy},
                {"view", PLIM_WORK_copy},      {"slice", PLIM_WORK_copy},
                {"window", PLIM_WORK_copy},    {"matmul", PLIM_WORK_copy},
                {"rnn", PLIM_WORK_rnn},        {"index", PLIM_WORK_index},
                {"sort", PLIM_WORK_index}};
    for (size_t i = 0; family && i < PLIM_COUNT(rows); i++)
        if (!strcmp(rows[i].family, family))
            return rows[i].klass;
    return PLIM_WORK_pointwise;
}

/* ---- recording -------------------------------------------------------------- */

void plim_m_record(plim_machine *m, plim_ledger *ledger)
{
    m->ledger = ledger;
    m->work = (m_work){0};
}

void plim_m_product(plim_machine *m, plim_work_class klass, uint64_t macs, plim_dtype t)
{
    plim_assert((unsigned)t < PLIM_DTYPE_COUNT);
    if (!m->ledger || m->stopped)
        return;
    m->work.macs = plim_sat_add(m->work.macs, macs);
    m->work.klass = (uint8_t)klass;
    m->work.dtype = (uint8_t)t;
    m->work.product = true;
}

uint64_t plim__work_bytes(const plim_machine *m, plim_t t)
{
    uint64_t bytes = 0;
    if (!t || m_t(m, t)->storage == PLIM_NONE)
        return 0;
    return plim_meta_bytes(&m_t(m, t)->meta, &bytes) ? bytes : 0;
}

/* 0: not on the card */
static void add_row(plim_machine *m, plim_work row)
{
    plim_ledger *l = m->ledger;
    plim_assert(l && l->phase < PLIM_PHASE_COUNT);
    if (!PLIM_PUSH_ROOM(l->arena, l->rows, l->n, l->cap)) {
        plim_m_oom(m);
        return;
    }
    row.where = m->where;
    row.phase = l->phase;
    l->rows[l->n++] = row;
}

/* Work outside of an op, such as a loss: its results are read again by what follows. */
void plim_m_work_rest(plim_machine *m, plim_work_class klass)
{
    if (m->ledger && m->work.written)
        add_row(m, (plim_work){.klass = (uint8_t)klass,
                               .known = true,
                               .kernels = m->work.kernels,
                               .bytes = plim_sat_mul(m->work.written, 2)});
    m->work = (m_work){0};
}

void plim_m_work_bytes(plim_machine *m, plim_work_class klass, uint32_t kernels,
                       uint64_t bytes)
{
    if (m->ledger && bytes)
        add_row(m, (plim_work){.klass = (uint8_t)klass,
                               .known = true,
                               .kernels = kernels,
                               .bytes = bytes});
}

/* Views and bookkeeping start no kernel: they have neither new bytes nor products. */
void plim__work_end(plim_machine *m, const plim_op *op, uint64_t read, uint64_t out,
                    bool inplace)
{
    const m_work *w = &m->work;
    if (w->written || w->product || inplace) {
        plim_work_class klass =
            w->product ? (plim_work_class)w->klass : class_of_family(op ? op->family : NULL);
        uint64_t temporary = w->written > out ? w->written - out : 0;
        if (klass == PLIM_WORK_index) /* only the chosen rows are read */
            read = PLIM_MIN(read, w->written);
        uint64_t bytes =
            plim_sat_add(plim_sat_add(read, inplace ? out : w->written), temporary);
        add_row(m, (plim_work){.klass = (uint8_t)klass,
                               .dtype = w->dtype,
                               .known = op != NULL,
                               .kernels = PLIM_MAX(w->kernels, 1),
                               .macs = w->macs,
                               .bytes = bytes});
    }
    m->work = (m_work){0};
}
