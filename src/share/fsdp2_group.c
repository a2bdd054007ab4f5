/* fsdp2_group.c -- the groups of parameters of FSDP2, and what their hooks do: see fsdp2.h.
 *
 * Each parameter lies on the card as a shard.  Before a unit runs, the shards of all ranks are
 * gathered into one flat buffer and copied out of it into a tensor for each parameter, whose
 * storage is emptied again when the unit has run.  Its gradients go into a flat buffer, and
 * each rank receives its part of it.  A rank that has the only part copies it, without a buffer.
 *
 * Collectives run on streams of their own, so buffers live longer than their use: in forward a
 * gathered buffer until the next unit's copy-out is done, in backward the input of a
 * reduce-scatter until the next unit's, and the next unit is gathered before this one's
 * backward.
 * src: torch 2.13 torch/distributed/fsdp/_fully_shard/_fsdp_param_group.py,
 * _fsdp_collectives.py, _fsdp_param.py, _fsdp_state.py */
#include <stdio.h>

#include "op/rules.h"
#include "share/fsdp2.h"

enum { DEFAULT_STREAM, COPY_IN_STREAM, REDUCE_STREAM, ALL_REDUCE_STREAM };

typedef struct sharded {
    uint32_t value; /* the parameter */
    plim_t shard;   /* padded, flat; what is trained is a view of its first rows */
    plim_t full;    /* all ranks' shards, flat; its storage comes and goes */
    plim_t sum; /* what the passes of a pipeline added up, if it is reduced in another type */
    uint64_t numel; /* of the padded shard */
} sharded;

typedef enum phase { IDLE, PRE_BACKWARD, POST_BACKWARD } phase;

typedef struct unit {
    sharded *p;
    uint32_t n;
    plim_fsdp2_mesh mesh;
    plim_t gathered;    /* the flat buffer, not copied out yet */
    plim_t all_reduced; /* an all-reduce reads it, until the end of backward */
    bool unsharded;
    phase phase;
    uint32_t turn; /* its place in the order of this forward pass */
} unit;

typedef struct fsdp2 {
    const char *call; /* PyTorch's, which made the units */
    unit *units;      /* the last is the rest of the model */
    uint32_t n;
    uint32_t *order, n_order; /* units, as they ran forward */
    uint32_t *tied, n_tied;   /* values that are another name of a parameter */
    plim_t copied;            /* the last gathered buffer in forward */
    plim_t reduced;           /* the last input of a reduce-scatter */
    bool reduces;             /* what was deferred */
    plim_dtype param, reduce; /* of the mixed precision policy; PLIM_DTYPE_COUNT: none */
} fsdp2;

/* ---- shards ---------------------------------------------------------------------------- */

int64_t plim_fsdp2_rows(int64_t rows, int64_t parts, int64_t part)
{
    plim_assert(rows >= 0 && part >= 0 && part < parts);
    int64_t each = rows / parts + (rows % parts != 0), left = rows - each * part;
    return left < 0 ? 0 : PLIM_MIN(left, each);
}

static void shard_parameter(plim_shared *x, const unit *u, sharded *p, plim_t whole)
{
    const fsdp2 *f = x->own;
    const plim_value *v = &x->g->values[p->value];
    plim_meta meta = *plim_m_meta(x->m, whole);
    if (!meta.rank) {
        plim_m_fail(x->m, PLIM_EUSAGE,
                    "%s does not take scalars, and '" PLIM_STR_FMT "' is one", f->call,
                    PLIM_STR_ARG(v->name));
        return;
    }
    int64_t rows = meta.dim[0];
    meta.dim[0] = plim_fsdp2_rows(rows, u->mesh.parts, 0);
    plim_meta_contiguous(&meta);
    plim_m_place(x->m, PLIM_NONE, v->name, "shard", PLIM_CAT_PARAMETER);
    p->shard = plim_m_empty(x->m, &meta);
    p->numel = plim_share_numel(x, p->shard);
    meta.dim[0] = plim_fsdp2_rows(rows, u->mesh.parts, u->mesh.part);
    x->leaf[p->value] =
        plim_m_as_leaf(x->m, plim_m_alias(x->m, p->shard, &meta), v->requires_grad);
}

/* One reduce-scatter serves a unit, so what is trained there has one dtype. */
static void check_dtypes(plim_shared *x, const unit *u)
{
    const fsdp2 *f = x->own;
    const sharded *first = NULL;
    char what[64];
    snprintf(what, sizeof what, "%s needs parameters of one type in a unit", f->call);
    for (uint32_t i = 0; i < u->n; i++) {
        const plim_value *v = &x->g->values[u->p[i].value];
        if (!v->requires_grad)
            continue;
        first = first ? first : &u->p[i];
        plim_share_check_type(x, what, first->value, plim_m_meta(x->m, first->shard)->dtype,
                              u->p[i].value, plim_m_meta(x->m, u->p[i].shard)->dtype);
    }
}

static void shard_unit(plim_shared *x, unit *u, uint32_t *ids, uint32_t n)
{
    plim_t *whole = PLIM_NEW_N(x->a, plim_t, (uint64_t)n + 1);
    if (!whole || !(u->p = PLIM_NEW_N(x->a, sharded, (uint64_t)n + 1))) {
        plim_m_oom(x->m);
        return;
    }
    u->n = plim_share_move(x, ids, n, whole);
    plim_assert(u->n <= n);
    for (uint32_t i = 0; i < u->n; i++) {
        u->p[i].value = ids[i];
        shard_parameter(x, u, &u->p[i], whole[i]);
    }
    check_dtypes(x, u);
    for (uint32_t i = 0; i < u->n; i++)
        plim_m_drop(x->m, whole[i]);
}

void plim_fsdp2_wrap(plim_shared *x, const char *call,
                     plim_fsdp2_mesh (*mesh)(const plim_shared *x, uint32_t unit))
{
    const plim_graph *g = x->g;
    const plim_strategy_spec *s = &x->share->strategy;
    fsdp2 *f = x->own = PLIM_NEW(x->a, fsdp2);
    uint32_t n = x->units.n + 1;
    uint32_t *of = plim_share_units(x),
             *ids = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->n_order + 1);
    x->leaf = PLIM_NEW_N(x->a, plim_t, g->n_values);
    if (!f || !of || !ids || !x->leaf || !(f->units = PLIM_NEW_N(x->a, unit, n)) ||
        !(f->order = PLIM_NEW_N(x->a, uint32_t, n)) ||
        !(f->tied = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->n_order + 1))) {
        plim_m_oom(x->m);
        return;
    }
    f->call = call;
    f->n = n;
    f->param = plim_strategy_dtype(s, "param");
    f->reduce = plim_strategy_dtype(s, "reduce");
    for (uint32_t i = 0; i < x->n_order; i++)
        if (g->values[x->order[i]].tied_to != PLIM_NONE)
            f->tied[f->n_tied++] = x->order[i];
    for (uint32_t k = 0; k < n && !plim_m_bad(x->m); k++) {
        uint32_t n_ids = plim_share_list(x, of, k, ids);
        f->units[k].mesh = mesh(x, k);
        plim_assert(f->units[k].mesh.part < f->units[k].mesh.parts);
        shard_unit(x, &f->units[k], ids, n_ids);
    }
    for (uint32_t i = 0; i < f->n_tied; i++)
        x->leaf[f->tied[i]] = x->leaf[g->values[f->tied[i]].tied_to];
}

/* ---- gathering ------------------------------------------------------------------------------ */

/* The dtype in which a parameter is gathered and used. */
static plim_dtype used_dtype(const plim_shared *x, const sharded *p)
{
    return plim_strategy_computes(&x->share->strategy, plim_m_meta(x->m, p->shard)->dtype);
}

/* Adds up the shards, in elements of *t: bytes if they differ in type.  Those that are cast are
 * copied first, all at once. */
static uint64_t count_shards(const plim_shared *x, const unit *u, plim_dtype *t,
                             uint64_t *cast)
{
    uint64_t numel = 0, bytes = 0;
    *cast = 0;
    *t = u->n ? used_dtype(x, &u->p[0]) : PLIM_U8;
    bool mixed = false;
    for (uint32_t i = 0; i < u->n; i++) {
        plim_dtype own = used_dtype(x, &u->p[i]);
        mixed |= own != *t;
        numel += u->p[i].numel;
        bytes += u->p[i].numel * plim_dtype_bytes(own);
        if (own != plim_m_meta(x->m, u->p[i].shard)->dtype)
            *cast += u->p[i].numel;
    }
    *t = mixed ? PLIM_U8 : *t;
    return mixed ? bytes : numel;
}

static void gather_unit(plim_shared *x, unit *u)
{
    const fsdp2 *f = x->own;
    plim_dtype t;
    uint64_t cast, numel = count_shards(x, u, &t, &cast);
    if (u->gathered || u->unsharded || !u->n || u->mesh.parts == 1)
        return;
    plim_m_set_stream(x->m, COPY_IN_STREAM);
    plim_t copy =
        cast ? plim_share_flat(x, "all-gather input", PLIM_CAT_TEMPORARY, f->param, cast) : 0;
    u->gathered = plim_share_flat(x, "all-gather output", PLIM_CAT_TEMPORARY, t,
                                  plim_sat_mul(numel, (uint64_t)u->mesh.parts));
    plim_m_drop(x->m, copy);
    plim_m_set_stream(x->m, DEFAULT_STREAM);
}

/* The tensor that the model's ops read: a view of `full` without the padding. */
static void make_parameter(plim_shared *x, const unit *u, sharded *p)
{
    const fsdp2 *f = x->own;
    const plim_value *v = &x->g->values[p->value];
    plim_meta meta = plim_meta_like(plim_m_meta(x->m, x->value[p->value]), used_dtype(x, p));
    int64_t numel = (int64_t)plim_sat_mul(p->numel, (uint64_t)u->mesh.parts);
    p->full = plim_m_empty_contig(x->m, meta.dtype, 1, &numel);
    plim_m_drop(x->m, x->value[p->value]);
    x->value[p->value] =
        plim_m_as_leaf(x->m, plim_m_alias(x->m, p->full, &meta), v->requires_grad);
    for (uint32_t i = 0; i < f->n_tied; i++)
        if (x->g->values[f->tied[i]].tied_to == p->value)
            x->value[f->tied[i]] = x->value[p->value];
}

static plim_t cast_shard(plim_shared *x, const sharded *p)
{
    plim_dtype used = used_dtype(x, p);
    return used == plim_m_meta(x->m, p->shard)->dtype
               ? 0
               : plim_share_flat(x, "all-gather input", PLIM_CAT_TEMPORARY, used, p->numel);
}

/* From what was gathered, or of one part from the shards themselves, which may be cast first. */
static void copy_out(plim_shared *x, unit *u, bool forward)
{
    fsdp2 *f = x->own;
    if (!u->gathered && (u->mesh.parts > 1 || u->unsharded))
        return;
    plim_t cast = 0; /* a variable of a loop holds it, until there is the next one */
    for (uint32_t i = 0; i < u->n; i++) {
        sharded *p = &u->p[i];
        plim_t next = u->mesh.parts == 1 ? cast_shard(x, p) : 0;
        plim_m_drop(x->m, cast);
        cast = next;
        plim_m_place(x->m, PLIM_NONE, x->g->values[p->value].name, "unsharded",
                     PLIM_CAT_PARAMETER);
        if (p->full)
            plim_m_storage_alloc(x->m, p->full);
        else
            make_parameter(x, u, p);
    }
    plim_m_drop(x->m, cast);
    u->unsharded = true;
    /* a local of wait_for_unshard holds the buffer before to the end of the function */
    plim_m_drop(x->m, forward ? f->copied : u->gathered);
    if (forward)
        f->copied = u->gathered;
    u->gathered = 0;
}

static void reshard_unit(plim_shared *x, unit *u)
{
    for (uint32_t i = 0; i < u->n && u->unsharded; i++)
        plim_m_storage_free(x->m, u->p[i].full);
    u->unsharded = false;
}

/* ---- forward ------------------------------------------------------------------------------------ */

/* cast_forward_inputs, of routing weights */
static void cast_inputs(plim_shared *x, const plim_region *r)
{
    const fsdp2 *f = x->own;
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        plim_t *t = &x->value[r->input[i]], was = *t;
        if (x->g->values[r->input[i]].kind != PLIM_VALUE_NODE ||
            !plim_is_float(plim_m_meta(x->m, was)->dtype))
            continue;
        *t = plim_at_to(x->m, was, f->param);
        plim_m_drop(x->m, was);
    }
}

/* A unit whose backward pass has begun is there.  One that has not, as it lies within another, is
 * gathered for the second forward pass, and left so. */
bool plim_fsdp2_again(const plim_shared *x, uint32_t k)
{
    const fsdp2 *f = x->own;
    return f->units[k].phase != PRE_BACKWARD;
}

void plim_fsdp2_forward(plim_shared *x, uint32_t k)
{
    fsdp2 *f = x->own;
    if (k == f->n - 1)
        f->n_order = 0;
    if (f->units[k].mesh.experts && f->param != PLIM_DTYPE_COUNT)
        cast_inputs(x, &x->units.r[k]);
    gather_unit(x, &f->units[k]);
    copy_out(x, &f->units[k], true);
}

void plim_fsdp2_forward_end(plim_shared *x, uint32_t k)
{
    fsdp2 *f = x->own;
    unit *u = &f->units[k];
    if (!x->again) {
        if (u->mesh.reshards)
            reshard_unit(x, u);
        u->turn = f->n_order;
        f->order[f->n_order++] = k;
    }
    if (k != f->n - 1 && !x->again)
        return;
    plim_m_drop(x->m, f->copied);
    f->copied = 0;
}

/* ---- backward ------------------------------------------------------------------------------------- */

void plim_fsdp2_backward(plim_shared *x, uint32_t k)
{
    fsdp2 *f = x->own;
    unit *u = &f->units[k];
    if (u->phase == PRE_BACKWARD)
        return;
    u->phase = PRE_BACKWARD;
    gather_unit(x, u); /* unless it was prefetched */
    copy_out(x, u, false);
    if (u->turn)
        gather_unit(x, &f->units[f->order[u->turn - 1]]);
}

/* Gives the shards their gradients: views of the output of one reduce-scatter. */
static void reduce_gradients(plim_shared *x, unit *u, const plim_t *grad)
{
    fsdp2 *f = x->own;
    uint64_t parts = (uint64_t)u->mesh.parts, numel = 0;
    plim_dtype own = PLIM_F32, t = f->reduce;
    for (uint32_t i = 0; i < u->n; i++)
        if (grad[i]) {
            numel += u->p[i].numel;
            own = plim_m_meta(x->m, u->p[i].shard)->dtype;
            t = f->reduce == PLIM_DTYPE_COUNT ? plim_m_meta(x->m, grad[i])->dtype : t;
        }
    f->reduced = plim_share_flat(x, "reduce-scatter input", PLIM_CAT_GRADIENT, t,
                                 plim_sat_mul(numel, parts));
    plim_t last = 0; /* a variable of a loop holds it, until foreach_reduce returns */
    for (uint32_t i = u->n; i-- > 0;) {
        if (!last && u->mesh.parts > 1)
            last = plim_m_ref(x->m, grad[i]);
        plim_m_drop(x->m, grad[i]);
    }
    plim_m_set_stream(x->m, REDUCE_STREAM);
    plim_t out = plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, t, numel);
    if (u->mesh.divides && parts == 1) /* else NCCL does it */
        plim_m_drop(x->m,
                    plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, t, numel));
    if (!u->mesh.experts && u->mesh.parts < plim_share_parts(x)) {
        u->all_reduced = plim_m_ref(x->m, out);
        plim_m_set_stream(x->m, ALL_REDUCE_STREAM);
    }
    if (t != own) {
        plim_t cast =
            plim_share_flat(x, "reduce-scatter output", PLIM_CAT_GRADIENT, own, numel);
        plim_m_drop(x->m, out);
        out = cast;
    }
    plim_m_set_stream(x->m, DEFAULT_STREAM);
    for (uint32_t i = 0; i < u->n; i++) {
        plim_t leaf = x->leaf[u->p[i].value];
        if (grad[i] && !plim_m_grad(x->m, leaf)) /* else it is added in place */
            plim_m_set_grad(x->m, leaf, plim_m_alias(x->m, out, plim_m_meta(x->m, leaf)));
    }
    plim_m_drop(x->m, out);
    plim_m_drop(x->m, last);
}

/* Gradients that stay whole are added up in the type in which they will be reduced. */
static void add_gradient(plim_shared *x, sharded *p)
{
    plim_t leaf = x->value[p->value];
    if (p->sum && plim_m_grad(x->m, leaf)) /* in place */
        plim_m_set_grad(x->m, leaf, 0);
}
static void cast_gradient(plim_shared *x, sharded *p)
{
    const fsdp2 *f = x->own;
    plim_t leaf = x->value[p->value], grad = plim_m_grad(x->m, leaf);
    if (!grad || f->reduce == PLIM_DTYPE_COUNT || plim_m_meta(x->m, grad)->dtype == f->reduce)
        return;
    p->sum = plim_share_flat(x, "gradient", PLIM_CAT_GRADIENT, f->reduce,
                             plim_share_numel(x, leaf));
    plim_m_set_grad(x->m, leaf, 0);
}

/* A gradient of the whole parameter: owned.  A DTensor's is added up first. */
static plim_t take_gradient(plim_shared *x, sharded *p)
{
    plim_t leaf = x->value[p->value],
           grad = p->sum ? p->sum : plim_m_ref(x->m, plim_m_grad(x->m, leaf));
    p->sum = 0;
    plim_m_set_grad(x->m, leaf, 0);
    if (!grad || !x->g->values[p->value].partial)
        return grad;
    plim_t sum = plim_share_flat(x, "gradient", PLIM_CAT_GRADIENT,
                                 plim_m_meta(x->m, grad)->dtype, plim_share_numel(x, leaf));
    plim_m_drop(x->m, grad);
    return sum;
}

/* The passes of a pipeline, and those under no_sync: gradients stay whole. */
static bool keeps_gradients(const plim_shared *x)
{
    const fsdp2 *f = x->own;
    return (x->defers && !f->reduces) || plim_share_skips(x);
}

void plim_fsdp2_backward_end(plim_shared *x, uint32_t k)
{
    fsdp2 *f = x->own;
    unit *u = &f->units[k];
    plim_t *grad = PLIM_NEW_N(x->a, plim_t, (uint64_t)u->n + 1);
    bool any = false;
    if (!grad) {
        plim_m_oom(x->m);
        return;
    }
    u->phase = POST_BACKWARD;
    for (uint32_t i = 0; i < u->n; i++)
        add_gradient(x, &u->p[i]);
    if (plim_share_skips(x))
        reshard_unit(x, u);
    if (keeps_gradients(x)) {
        for (uint32_t i = 0; i < u->n; i++)
            cast_gradient(x, &u->p[i]);
        return;
    }
    for (uint32_t i = 0; i < u->n; i++) {
        grad[i] = take_gradient(x, &u->p[i]);
        any |= grad[i] != 0;
    }
    reshard_unit(x, u);
    plim_m_drop(x->m, f->reduced);
    f->reduced = 0;
    if (any)
        reduce_gradients(x, u, grad);
}

/* Units whose inputs need no gradient, the model itself first. */
void plim_fsdp2_finish(plim_shared *x)
{
    fsdp2 *f = x->own;
    for (uint32_t i = 0; i < f->n; i++) {
        uint32_t k = (f->n - 1 + i) % f->n;
        if (f->units[k].phase != POST_BACKWARD)
            plim_fsdp2_backward_end(x, k);
        f->units[k].phase = IDLE;
    }
    if (x->defers && !f->reduces)
        return;
    for (uint32_t k = 0; k < f->n; k++) {
        plim_m_drop(x->m, f->units[k].gathered); /* prefetched in vain */
        plim_m_drop(x->m, f->units[k].all_reduced);
        f->units[k].gathered = f->units[k].all_reduced = 0;
    }
    plim_m_drop(x->m, f->reduced);
    f->reduced = 0;
}

/* stage.py perform_reduce_grad: what the passes had been told not to do. */
void plim_fsdp2_reduce(plim_shared *x)
{
    fsdp2 *f = x->own;
    f->reduces = true;
    plim_fsdp2_finish(x);
    f->reduces = false;
}
