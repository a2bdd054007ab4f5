/* machine_run.c -- runs the nodes of a graph: see machine_run.h. */
#include "machine/machine_run.h"

#include <limits.h>

#include "machine/machine_args.h"
#include "machine/machine_priv.h"

/* ---- running a graph node ----------------------------------------------- */

static void unknown_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty(m, &n->in_meta[i]);
}
static const plim_grad_fn unknown_fn = {"UnknownBackward", unknown_backward};

/* An op without a rule: it allocates new outputs and saves its inputs and outputs, and its
 * backward allocates a gradient for each input.  An upper bound for most ops. */
static void run_unknown(plim_machine *m, const plim_graph *g, const plim_node *n,
                        plim_t *value)
{
    plim_t in[PLIM_MAX_GRADS];
    uint32_t n_in = 0;
    m->n_unknown++;
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *a = &n->args[i];
        for (uint32_t k = 0; k < plim_arg_values(a) && n_in < PLIM_MAX_GRADS; k++) {
            uint32_t id = plim_arg_value(a, k);
            if (id != PLIM_NONE && value[id])
                in[n_in++] = value[id];
        }
    }
    plim_t out[4];
    bool wanted = false;
    uint32_t n_out = PLIM_MIN(n->n_outs, PLIM_COUNT(out));
    for (uint32_t i = 0; i < n->n_outs; i++) {
        plim_t t = plim__tensor_fresh(
            m, &g->values[n->outs[i]].meta,
            (plim_storage){.category = m->category, .certainty = PLIM_UNKNOWN_BYTES});
        value[n->outs[i]] = t;
        if (i < n_out)
            out[i] = t;
        wanted |= i < n_out && plim_is_float(g->values[n->outs[i]].meta.dtype);
    }
    /* a node from which no gradient is needed never runs, so nothing would release what it
     * saved */
    plim_gnode *node = wanted ? plim_m_node(m, &unknown_fn, n_in, in) : NULL;
    for (uint32_t i = 0; node && i < n_in && i < 6; i++)
        plim_m_save(m, node, i, in[i]);
    for (uint32_t i = 0; node && i < n_out; i++) {
        plim_m_save(m, node, 6 + i, out[i]);
        if (plim_is_float(plim_m_meta(m, out[i])->dtype))
            plim_m_output(m, node, i, out[i]);
    }
}

/* ---- work --------------------------------------------------------------------- */

/* The casts that autocast made for this op: each reads its argument. */
static void record_casts(plim_machine *m, const plim_t *value, const m_cast *undo, uint32_t n)
{
    uint64_t bytes = 0;
    if (!m->ledger)
        return;
    if (m->work.written) { /* else they were made for an earlier op */
        for (uint32_t i = 0; i < n; i++)
            bytes = plim_sat_add(bytes, plim_sat_add(plim__work_bytes(m, undo[i].was),
                                                     plim__work_bytes(m, value[undo[i].id])));
        plim_m_work_bytes(m, PLIM_WORK_copy, m->work.kernels, bytes);
    }
    m->work = (m_work){0};
}

static uint64_t operand_bytes(const plim_machine *m, const plim_node *n, const plim_t *value)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            uint32_t id = plim_arg_value(&n->args[i], k);
            if (id != PLIM_NONE)
                bytes = plim_sat_add(bytes, plim__work_bytes(m, value[id]));
        }
    return bytes;
}

static void record_node(plim_machine *m, const plim_node *n, uint64_t read,
                        const plim_t *value)
{
    uint64_t out = 0;
    if (!m->ledger)
        return;
    for (uint32_t i = 0; i < n->n_outs; i++)
        out = plim_sat_add(out, plim__work_bytes(m, value[n->outs[i]]));
    plim__work_end(m, n->op, read, out, n->inplace, false);
}

void plim_m_run(plim_machine *m, const plim_graph *g, uint32_t node, plim_t *value)
{
    plim_assert(node < g->n_nodes);
    const plim_node *n = &g->nodes[node];
    plim_t out[PLIM_OP_OUTS];
    m_cast undo[16];
    if (m->st)
        return;
    if (!n->op || n->n_outs > PLIM_COUNT(out)) {
        uint64_t read = m->ledger ? operand_bytes(m, n, value) : 0;
        run_unknown(m, g, n, value);
        record_node(m, n, read, value);
        return;
    }
    memset(out, 0, n->n_outs * sizeof out[0]);
    plim_call c = {.m = m,
                   .node = n,
                   .args = n->args,
                   .n_args = n->n_args,
                   .value = value,
                   .out = out,
                   .n_out = n->n_outs,
                   .inplace = n->inplace};
    if (m->ledger)
        m->work = (m_work){0};
    uint32_t casts = plim__autocast_args(m, n, value, undo, PLIM_COUNT(undo));
    record_casts(m, value, undo, casts);
    uint64_t read = m->ledger ? operand_bytes(m, n, value) : 0;
    n->op->run(&c);
    plim__autocast_undo(m, value, undo, casts);
    for (uint32_t i = 0; i < n->n_outs; i++)
        value[n->outs[i]] = out[i];
    record_node(m, n, read, value);
    if (m->st && m->err)
        plim_err_prefix(m->err, "'" PLIM_STR_FMT "' (" PLIM_STR_FMT "): ",
                        PLIM_STR_ARG(g->scopes[n->scope].path), PLIM_STR_ARG(n->target));
}

uint32_t plim_m_unknown_ops(const plim_machine *m) { return m->n_unknown; }

/* ---- shapes alone ------------------------------------------------------ */

/* The tensors of one node, renumbered: a rule looks up handles by value id. */
typedef struct node_operands {
    plim_t *handle;
    uint32_t *ids, n_ids, n_handles;
    plim_arg args[32];
    plim_t some_handles[64];
    uint32_t some_ids[64];
} node_operands;

/* Makes room for all of them: inline, or in the machine's arena. */
static bool operands_init(plim_machine *m, const plim_node *n, node_operands *f)
{
    plim_assert(n->n_args <= PLIM_COUNT(f->args));
    uint64_t total = 0;
    for (uint32_t i = 0; i < n->n_args; i++)
        total += plim_arg_values(&n->args[i]);
    bool fits = total <= PLIM_COUNT(f->some_ids);
    f->ids = fits ? f->some_ids : PLIM_NEW_N(m->arena, uint32_t, total);
    f->handle = fits ? f->some_handles : PLIM_NEW_N(m->arena, plim_t, total);
    f->n_ids = f->n_handles = 0;
    return f->ids && f->handle;
}

static void operands_renumber(plim_machine *m, const plim_graph *g, const plim_node *n,
                              node_operands *f)
{
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *from = &n->args[i];
        bool list = from->kind == PLIM_ARG_VALUES;
        uint32_t k = plim_arg_values(from), first = f->n_ids;
        f->args[i] = *from;
        for (uint32_t j = 0; j < k; j++) {
            uint32_t id = plim_arg_value(from, j);
            f->ids[f->n_ids++] = id == PLIM_NONE ? PLIM_NONE : f->n_handles;
            if (id != PLIM_NONE)
                f->handle[f->n_handles++] = plim_m_empty(m, &g->values[id].meta);
        }
        if (list)
            f->args[i].ids = &f->ids[first];
        else if (k)
            f->args[i].id = f->ids[first];
    }
}

plim_status plim_op_infer(plim_graph *g, const plim_node *n, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT; /* used only if the inline page overflows */
    plim_machine m;
    node_operands f;
    plim_t out[PLIM_OP_OUTS];
    if (n->op && n->n_outs > PLIM_COUNT(out))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "'" PLIM_STR_FMT "' with more than %d results",
                         PLIM_STR_ARG(n->target), PLIM_OP_OUTS);
    if (!n->op || n->n_args > PLIM_COUNT(f.args))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "op '" PLIM_STR_FMT "' has no rule",
                         PLIM_STR_ARG(n->target));
    memset(out, 0, n->n_outs * sizeof out[0]);
    plim__machine_init(&m, &scratch, NULL, &(plim_world){.torch = INT_MAX, .cc = 80}, err);
    if (operands_init(&m, n, &f))
        operands_renumber(&m, g, n, &f);
    else
        plim_m_oom(&m);
    plim_call c = {.m = &m,
                   .node = n,
                   .args = f.args,
                   .n_args = n->n_args,
                   .value = f.handle,
                   .out = out,
                   .n_out = n->n_outs,
                   .inplace = n->inplace};
    if (!m.st)
        n->op->run(&c);
    if (m.st)
        plim_err_prefix(err, "'" PLIM_STR_FMT "' (" PLIM_STR_FMT "): ",
                        PLIM_STR_ARG(g->scopes[n->scope].path), PLIM_STR_ARG(n->target));
    for (uint32_t i = 0; !m.st && i < n->n_outs; i++)
        g->values[n->outs[i]].meta = *plim_m_meta(&m, out[i]);
    plim_arena_free(&scratch);
    return m.st;
}
