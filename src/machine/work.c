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

bool plim_work_is_conv(plim_work_class c)
{
    return c == PLIM_WORK_conv || c == PLIM_WORK_conv_thin || c == PLIM_WORK_conv_1x1 ||
           c == PLIM_WORK_conv_grouped;
}

/* The class of an op that multiplies nothing. */
static plim_work_class class_of_family(const char *family)
{
    static const struct {
        const char *family;
        plim_work_class klass;
    } rows[] = {{"norm", PLIM_WORK_norm},      {"reduce", PLIM_WORK_reduce},
                {"softmax", PLIM_WORK_reduce}, {"pool", PLIM_WORK_pool},
                {"loss", PLIM_WORK_loss},      {"copy", PLIM_WORK_copy},
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

void plim_m_blocks(plim_machine *m, plim_work_class klass, uint64_t blocks)
{
    plim_assert((unsigned)klass < PLIM_WORK_CLASSES);
    m->work.klass = (uint8_t)klass;
    m->work.blocks = blocks;
    m->work.blocked = true;
}

void plim_m_form(plim_machine *m, plim_work_form form)
{
    m->work.form = (uint8_t)PLIM_MAX(m->work.form, form);
}
void plim_m_side(plim_machine *m, uint64_t side)
{
    m->work.side = m->work.side ? PLIM_MIN(m->work.side, side) : side;
}
void plim_m_full(plim_machine *m) { m->work.full = true; }
void plim_m_bias(plim_machine *m, uint64_t bytes)
{
    m->work.bias = plim_sat_add(m->work.bias, bytes);
}

void plim__work_wrote(plim_machine *m, const plim_meta *meta, uint64_t bytes)
{
    uint64_t n = 0;
    m->work.written = plim_sat_add(m->work.written, bytes);
    m->work.kernels++;
    if (!m->work.product && plim_meta_numel(meta, &n) && n > m->work.largest) {
        m->work.largest = n;
        m->work.dtype = (uint8_t)meta->dtype;
    }
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
                    bool inplace, bool gradient)
{
    const m_work *w = &m->work;
    *(gradient ? &m->ledger->nodes : &m->ledger->calls) += 1;
    if (w->written || w->product || inplace) {
        plim_work_class klass = w->product || w->blocked
                                    ? (plim_work_class)w->klass
                                    : class_of_family(op ? op->family : NULL);
        uint64_t temporary = w->written > out ? w->written - out : 0;
        if (klass == PLIM_WORK_index) /* only the chosen rows are read */
            read = PLIM_MIN(read, w->written);
        uint64_t bytes =
            plim_sat_add(plim_sat_add(read, inplace ? out : w->written), temporary);
        add_row(m, (plim_work){.klass = (uint8_t)klass,
                               .dtype = w->dtype,
                               .known = op != NULL,
                               .gradient = gradient,
                               .form = w->form,
                               .full = w->full,
                               .blocks = w->blocks,
                               .side = w->side,
                               .bias = w->bias,
                               .kernels = PLIM_MAX(w->kernels, 1),
                               .macs = w->macs,
                               .bytes = bytes});
    }
    m->work = (m_work){0};
}
