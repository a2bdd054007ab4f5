/* test_rules.c -- every rule and every kernel, called with what no model should have: tensors of rank 0,
 * sizes near 2^63, of 0 and of 1, numbers without sense, the wrong kinds of arguments.  Any answer will
 * do, but for a size that is none; what it looks for is what the sanitizers find (make asan). */
#include "machine/machine_run.h"
#include "op/kernel.h"
#include "op/op.h"

#include <stdlib.h>

#include "unit.h"

struct sound;

enum { VALUES = 160, OUTS = 8, SLOTS = 32, LIST = 3, RANKS = 6 };

/* ---- dice: the same in every run ---------------------------------------------- */

static uint64_t dice_state;

static uint32_t throw_dice(uint32_t n)
{
    dice_state = dice_state * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(dice_state >> 33) % n;
}

static int64_t pick_size(bool hostile)
{
    static const int64_t wild[] = {0,         0,         1,
                                   1,         2,         3,
                                   64,        1ll << 31, (1ll << 31) + 1,
                                   1ll << 32, 1ll << 61, (1ll << 62) - 1,
                                   1ll << 62, INT64_MAX};
    static const int64_t tame[] = {1, 2, 2, 4, 4, 8};
    return hostile ? wild[throw_dice(PLIM_COUNT(wild))] : tame[throw_dice(PLIM_COUNT(tame))];
}

static int64_t pick_int(void)
{
    static const int64_t all[] = {INT64_MIN,
                                  -(1ll << 62),
                                  -(1ll << 31),
                                  -2,
                                  -1,
                                  0,
                                  0,
                                  1,
                                  1,
                                  1,
                                  2,
                                  2,
                                  3,
                                  4,
                                  8,
                                  64,
                                  1ll << 31,
                                  1ll << 32,
                                  1ll << 62,
                                  INT64_MAX - 1,
                                  INT64_MAX};
    return all[throw_dice(PLIM_COUNT(all))];
}

/* ---- one call ------------------------------------------------------------------ */

typedef struct call {
    plim_arena a;
    plim_graph g;
    plim_named_arg args[SLOTS];
    uint32_t n_args;
    int32_t rank; /* most tensors have this size */
    int64_t dim[PLIM_MAX_RANK];
    int64_t last; /* most matrices have this one, too */
} call;

static void change_strides(plim_meta *m)
{
    if (m->rank < 2 || throw_dice(4))
        return;
    int32_t i = (int32_t)throw_dice((uint32_t)m->rank),
            k = (int32_t)throw_dice((uint32_t)m->rank);
    int64_t stride = m->stride[i];
    switch (throw_dice(4)) {
    case 0: m->stride[i] = 0; break; /* expanded */
    case 1: m->stride[i] = pick_int(); break;
    case 2: plim_meta_channels_last(m); break;
    default: /* transposed */ m->stride[i] = m->stride[k]; m->stride[k] = stride;
    }
}

static uint32_t add_tensor(call *c, int32_t rank, const int64_t *dim)
{
    static const plim_dtype types[] = {PLIM_F32,  PLIM_F32, PLIM_F32,  PLIM_F16,
                                       PLIM_BF16, PLIM_I64, PLIM_BOOL, PLIM_C128};
    plim_dtype t = types[throw_dice(PLIM_COUNT(types))];
    plim_value v = {.name = PLIM_STR("x"),
                    .meta = plim_meta_make(t, rank, dim),
                    .kind = throw_dice(3) ? PLIM_VALUE_PARAMETER : PLIM_VALUE_INPUT,
                    .requires_grad = true,
                    .tied_to = PLIM_NONE,
                    .node = PLIM_NONE};
    change_strides(&v.meta);
    return plim_graph_add_value(&c->g, &v);
}

static uint32_t pick_tensor(call *c)
{
    int64_t dim[PLIM_MAX_RANK] = {0};
    int32_t rank = (int32_t)throw_dice(RANKS);
    switch (throw_dice(8)) {
    case 0: /* alone */
    case 1:
        for (int32_t i = 0; i < rank; i++)
            dim[i] = pick_size(throw_dice(2));
        return add_tensor(c, rank, dim);
    case 2: return add_tensor(c, 0, dim);
    case 3:
        return add_tensor(c, 1, (int64_t[]){throw_dice(2) || !c->rank ? c->last : c->dim[0]});
    case 4: return add_tensor(c, 2, (int64_t[]){c->last, c->rank ? c->dim[c->rank - 1] : 1});
    default: return add_tensor(c, c->rank, c->dim);
    }
}

static bool is_one_of(plim_str name, const char *const *list)
{
    for (; *list; list++)
        if (plim_str_is(name, *list))
            return true;
    return false;
}

static plim_arg pick_ints(call *c)
{
    uint32_t n = throw_dice(RANKS);
    int64_t *v = PLIM_NEW_N(&c->a, int64_t, PLIM_MAX_RANK);
    for (uint32_t i = 0; i < n; i++)
        v[i] = throw_dice(3) ? (int64_t)throw_dice(4) : pick_int();
    if (c->rank && !throw_dice(4)) { /* the end of what the tensors have */
        n = 1 + throw_dice((uint32_t)c->rank);
        memcpy(v, &c->dim[(uint32_t)c->rank - n], n * sizeof *v);
    }
    return (plim_arg){.kind = PLIM_ARG_INTS, .n = n, .ints = v};
}

static plim_arg pick_list(call *c)
{
    uint32_t n = throw_dice(LIST + 1) + !throw_dice(2),
             *ids = PLIM_NEW_N(&c->a, uint32_t, LIST + 2);
    for (uint32_t i = 0; i < n; i++)
        ids[i] = throw_dice(8) ? pick_tensor(c) : PLIM_NONE;
    return (plim_arg){.kind = PLIM_ARG_VALUES, .n = n, .ids = ids};
}

static plim_arg pick_text(void)
{
    static const char *const texts[] = {"",      "ij,jk->ik", "...ij,...jk->...ik",
                                        "i,i->", "ij->ji",    "bij->",
                                        "tanh",  "reflect",   "floor",
                                        "mean"};
    return (plim_arg){.kind = PLIM_ARG_STR,
                      .str = plim_str_of(texts[throw_dice(PLIM_COUNT(texts))])};
}

/* An argument of a kind that the name suggests; now and then of any. */
static plim_arg pick_arg(call *c, plim_str name, bool optional)
{
    static const char *const lists[] = {"tensors", "indices", "hx", "params",
                                        "weight",  "index",   NULL};
    static const char *const ints[] = {
        "size",          "shape",          "dims",        "stride",      "padding",
        "dilation",      "output_padding", "kernel_size", "output_size", "normalized_shape",
        "pad",           "sizes",          "split_sizes", "repeats",     "shifts",
        "scale_factors", "output_mask",    "batch_sizes", "dim",         "source",
        "destination",   "path",           NULL};
    static const char *const texts[] = {"equation", "mode", "approximate", "rounding_mode",
                                        NULL};
    static const char *const tensors[] = {
        "self",        "input",      "other",        "mat1",        "mat2",
        "batch1",      "batch2",     "query",        "key",         "value",
        "bias",        "target",     "grad",         "values",      "grid",
        "weights",     "out",        "tensor1",      "tensor2",     "mask",
        "hx",          "cx",         "src",          "offs",        "offsets",
        "vec2",        "vec",        "running_mean", "running_var", "attn_mask",
        "grad_output", "condition",  "index",        "indices",     "weight",
        "pos_weight",  "scale",      "state",        "boundaries",  "v",
        "g",           "weight_buf", "output",       "grad_out",    "grad_hy",
        "grad_cy",     "workspace",  "input_gates",  "end",         "freqs",
        "residual",    NULL};
    uint32_t kind = throw_dice(16);
    if (optional && kind < 6)
        return (plim_arg){.kind = PLIM_ARG_NONE};
    if (kind == 15)
        kind = throw_dice(6);
    else if (is_one_of(name, texts))
        kind = 4;
    else if (is_one_of(name, lists) && throw_dice(3))
        kind = plim_str_is(name, "weight") && throw_dice(3) ? 0 : 1;
    else if (is_one_of(name, tensors))
        kind = 0;
    else
        kind = is_one_of(name, ints) && throw_dice(4) ? 2 : 3;
    switch (kind) {
    case 0: return (plim_arg){.kind = PLIM_ARG_VALUE, .id = pick_tensor(c)};
    case 1: return pick_list(c);
    case 2: return pick_ints(c);
    case 3:
        return (plim_arg){.kind = PLIM_ARG_INT,
                          .i = throw_dice(3) ? throw_dice(4) : pick_int()};
    case 4: return pick_text();
    default: return (plim_arg){.kind = PLIM_ARG_FLOAT, .f = (double)pick_int() * 0.5};
    }
}

/* A graph whose values are the tensors of one call of something with this schema. */
static void begin_call(call *c, const char *schema)
{
    plim_err err = PLIM_ERR_INIT;
    bool hostile = !throw_dice(3);
    *c = (call){.rank = (int32_t)throw_dice(RANKS), .last = pick_size(hostile)};
    for (int32_t i = 0; i < c->rank; i++)
        c->dim[i] = pick_size(hostile && !throw_dice(2));
    assert_int_equal(plim_graph_init(&c->g, &c->a, &err), PLIM_OK);
    for (const char *z = schema; *z && c->n_args < SLOTS;) {
        size_t n = strcspn(z, ","), skip = strspn(z, " *");
        plim_str name = {z + skip, strcspn(z + skip, ",= ")};
        bool optional = memchr(z, '=', n) != NULL;
        plim_arg arg = pick_arg(c, name, optional);
        if (arg.kind != PLIM_ARG_NONE)
            c->args[c->n_args++] = (plim_named_arg){name, arg};
        z += n + (z[n] == ',');
    }
}

static bool is_sane(const plim_meta *m)
{
    uint64_t n;
    return m->rank >= 0 && m->rank <= PLIM_MAX_RANK && (unsigned)m->dtype < PLIM_DTYPE_COUNT &&
           plim_meta_numel(m, &n);
}

/* A graph that was read has no sizes that overflow. */
static bool are_sound(const call *c)
{
    for (uint32_t i = 0; i < c->g.n_values; i++)
        if (c->g.values[i].kind != PLIM_VALUE_NODE && !is_sane(&c->g.values[i].meta))
            return false;
    return true;
}

static plim_world pick_world(void)
{
    static const int torches[] = {204, 209, 212, 1000}, cards[] = {70, 80, 90, 100};
    return (plim_world){.torch = torches[throw_dice(PLIM_COUNT(torches))],
                        .cc = cards[throw_dice(PLIM_COUNT(cards))],
                        .eval = !throw_dice(4),
                        .lib = {.workspace = throw_dice(4) != 0},
                        .cublas_ws = 1 << 20};
}

static plim_machine *make_machine(call *c, plim_tape *t, plim_t *value, plim_err *err)
{
    plim_world world = pick_world();
    plim_tape_init(t, &c->a);
    plim_machine *m = plim_m_new(&c->a, t, &world, err);
    assert_non_null(m);
    for (uint32_t i = 0; i < c->g.n_values; i++) {
        const plim_value *v = &c->g.values[i];
        bool grad = v->kind == PLIM_VALUE_PARAMETER && plim_is_float(v->meta.dtype);
        value[i] = v->kind == PLIM_VALUE_NODE ? 0 : plim_m_leaf(m, &v->meta, grad);
    }
    return m;
}

/* Forward, and back from each result. */
static void run_node(call *c, const char *name)
{
    plim_err err = PLIM_ERR_INIT;
    plim_tape t;
    plim_t value[VALUES];
    plim_machine *m = make_machine(c, &t, value, &err);
    const plim_node *n = &c->g.nodes[0];
    if (!throw_dice(6))
        plim_m_autocast(m, PLIM_BF16);
    plim_m_run(m, &c->g, 0, value);
    for (uint32_t i = 0; i < n->n_outs && !plim_m_bad(m); i++) {
        plim_t y = value[n->outs[i]];
        CHECK(name, is_sane(plim_m_meta(m, y)));
        if (y && plim_m_requires_grad(m, y))
            plim_m_backward(m, y, 0, NULL, NULL);
    }
    CHECK(name, plim_m_bad(m) == (err.code != PLIM_OK));
    CHECK(name, plim_m_bad(m) || !plim_tape_check(&t));
}

static void begin_sound(call *c, const struct sound *s, const char *schema, bool change);

/* s: a sound call, and whether it is changed; NULL: any. */
static void run_op(const plim_op *op, const struct sound *s, bool change)
{
    call c;
    plim_err err = PLIM_ERR_INIT;
    uint32_t outs[OUTS];
    plim_cost cost;
    if (s)
        begin_sound(&c, s, op->schema, change);
    else
        begin_call(&c, op->schema);
    plim_node n = {
        .op = op, .target = plim_str_of(op->name), .n_outs = 1 + throw_dice(3), .outs = outs};
    n.inplace = !throw_dice(8);
    if (!plim_op_bind(&c.a, op, c.args, c.n_args, &n.args, &n.n_args, &err)) {
        for (uint32_t i = 0; i < n.n_outs; i++)
            outs[i] = plim_graph_add_value(&c.g, &(plim_value){.kind = PLIM_VALUE_NODE,
                                                               .tied_to = PLIM_NONE,
                                                               .node = PLIM_NONE});
        assert_true(c.g.n_values <= VALUES);
        plim_graph_add_node(&c.g, &n);
        plim_status st = plim_op_infer(&c.g, &c.g.nodes[0], &err);
        if (s && !change && st)
            fail_msg("%s: %s", op->name, err.msg);
        if (!st) {
            for (uint32_t i = 0; i < n.n_outs; i++)
                CHECK(op->name, is_sane(&c.g.values[outs[i]].meta));
        }
        if (are_sound(&c))
            run_node(&c, op->name);
        plim_op_cost(&c.g, &c.g.nodes[0], &cost);
    }
    plim_arena_free(&c.a);
}

static void run_kernel(const plim_kernel *k)
{
    call c;
    plim_err err = PLIM_ERR_INIT;
    plim_tape t;
    plim_t value[VALUES], out[VALUES + PLIM_KERNEL_OUTS];
    begin_call(&c, k->schema);
    if (are_sound(&c)) {
        plim_machine *m = make_machine(&c, &t, value, &err);
        uint32_t n_out = c.g.n_values + PLIM_KERNEL_OUTS;
        if (!plim_kernel_call(m, &c.a, k, c.args, c.n_args, value, out, &n_out, &err))
            for (uint32_t i = 0; i < n_out; i++)
                CHECK(k->name, is_sane(plim_m_meta(m, out[i])));
    }
    plim_arena_free(&c.a);
}

/* ---- calls that are right but for one number ------------------------------------- */

/* Tx: a tensor of this size; Lx;x: a list of tensors; Ii: a number; Ji,i: numbers; Stext; -: none */
typedef struct sound {
    const char *op, *args[9];
} sound;

static const sound sounds[] = {
    {"conv1d", {"T2x4x16", "T8x2x3", "T8", "I1", "I1", "I1", "I2"}},
    {"conv2d", {"T2x4x8x8", "T4x4x3x3", "T4", "J1,1", "J1,1", "J1,1", "I1"}},
    {"conv2d", {"T2x64x8x8", "T64x32x3x3", "-", "J1,1", "J1,1", "J1,1", "I2"}},
    {"conv2d", {"T2x4x8x8", "T4x1x3x3", "-", "J2,2", "J1,1", "J2,2", "I4"}},
    {"conv3d", {"T2x4x8x8x8", "T4x4x3x3x3", "T4", "J1", "J1", "J1", "I1"}},
    {"conv_transpose1d", {"T2x4x16", "T4x8x3", "T8", "J2", "J1", "J0", "I1", "J1"}},
    {"conv_transpose2d", {"T2x4x8x8", "T4x2x3x3", "T4", "J2", "J1", "J1", "I2", "J1"}},
    {"conv_transpose3d", {"T2x4x8x8x8", "T4x2x3x3x3", "T2", "J2", "J1", "J1", "I1", "J1"}},
    {"mm", {"T4x8", "T8x2"}},
    {"bmm", {"T3x4x8", "T3x8x2"}},
    {"matmul", {"T3x1x4x8", "T5x8x2"}},
    {"matmul", {"T3x4x8", "T8"}},
    {"matmul", {"T8", "T3x8x2"}},
    {"addmm", {"T2", "T4x8", "T8x2", "I1", "I2"}},
    {"baddbmm", {"T3x4x2", "T3x4x8", "T3x8x2"}},
    {"linear", {"T3x4x8", "T2x8", "T2"}},
    {"einsum", {"Sbij,bjk->bik", "L3x4x8;3x8x2"}},
    {"einsum", {"S...ij,jk->...k", "L3x4x8;8x2"}},
    {"_grouped_mm", {"T16x8", "T4x8x32", "T4"}},
    {"layer_norm", {"T3x4x8", "J4,8", "T4x8", "T4x8"}},
    {"layer_norm", {"T99999x64", "J64", "T64", "T64"}},
    {"rms_norm", {"T3x4x8", "J8", "T8"}},
    {"group_norm", {"T2x8x4x4", "I4", "T8", "T8"}},
    {"batch_norm", {"T2x8x4x4", "T8", "T8", "T8", "T8", "I1"}},
    {"instance_norm", {"T2x8x4x4", "T8", "T8", "-", "-", "I1"}},
    {"scaled_dot_product_attention", {"T2x4x16x64", "T2x4x16x64", "T2x4x16x64"}},
    {"scaled_dot_product_attention",
     {"T2x4x16x64", "T2x2x16x64", "T2x2x16x64", "T16x16", "F0", "I0", "-", "I1"}},
    {"scaled_dot_product_attention", {"T4x16x63", "T4x16x63", "T4x16x63", "T4x16x16", "F0.5"}},
    {"cp_attention", {"T2x4x16x64", "T2x4x16x64", "T2x4x16x64", "I2", "I0"}},
    {"megatron_attention", {"T16x2x4x64", "T16x2x4x64", "T16x2x4x64"}},
    {"megatron_attention",
     {"T16x2x4x64", "T16x2x4x64", "T16x2x4x64", "F0", "I0", "I0", "I2", "I1", "I2"}},
    {"lstm.input",
     {"T7x2x8", "L1x2x4;1x2x4", "L16x8;16x4;16;16", "I1", "I1", "F0", "I1", "I0", "I0"}},
    {"gru.input",
     {"T2x7x8", "T2x2x4", "L12x8;12x4;12x8;12x4", "I0", "I1", "F0", "I1", "I1", "I1"}},
    {"rnn_tanh.input",
     {"T7x2x8", "T1x2x4", "L4x8;4x4;4;4", "I1", "I1", "F0", "I1", "I0", "I0"}},
    {"rnn_relu.input",
     {"T7x2x8", "T1x2x4", "L4x8;4x4;4;4", "I1", "I1", "F0", "I1", "I0", "I0"}},
    {"max_pool2d", {"T2x4x8x8", "J2,2", "J2,2", "J0,0", "J1,1", "I0"}},
    {"max_pool3d", {"T2x4x8x8x8", "J2", "J2", "J0", "J1", "I1"}},
    {"avg_pool2d", {"T2x4x8x8", "J2,2", "J2,2", "J0,0", "I0", "I1"}},
    {"avg_pool3d", {"T2x4x8x8x8", "J2", "J2", "J0"}},
    {"adaptive_avg_pool2d", {"T2x4x8x8", "J2,2"}},
    {"im2col", {"T2x4x8x8", "J2,2", "J1,1", "J0,0", "J2,2"}},
    {"col2im", {"T2x16x16", "J8,8", "J2,2", "J1,1", "J0,0", "J2,2"}},
    {"embedding", {"T100x8", "N2x4"}},
    {"embedding_bag", {"T100x8", "N16", "N4", "I0", "I0"}},
    {"cross_entropy_loss", {"T8x100", "N8"}},
    {"linear_cross_entropy", {"T8x16", "T100x16", "N8"}},
    {"liger_cross_entropy", {"T8x16", "T100x16", "N8"}},
    {"grid_sampler", {"T2x4x8x8", "T2x5x5x2", "I0", "I0", "I0"}},
    {"unfold", {"T4x16", "I1", "I4", "I2"}},
    {"instance_norm", {"T64x8x4x4", "T8", "T8", "-", "-", "I1"}},
    {"tp_embedding", {"T100x8", "N2x4", "I16"}},
    {"pixel_shuffle", {"T2x16x4x4", "I2"}},
    {"cache_update", {"T2x4x3x8", "T2x4x3x8", "I0"}},
    {"flash_attention", {"T2x4x6x8", "T2x2x6x8", "T2x2x6x8"}},
    {"flash_attention", {"T9x4x8", "T9x2x8", "T9x2x8", "-", "N3"}},
    {"put_rows", {"T7x4x8", "N7", "I9"}},
    {"true_places", {"N16", "I5"}},
};

/* One number of a text, which may be made another. */
static int64_t read_number(const char **z, bool other)
{
    char *end;
    int64_t v = strtoll(*z, &end, 10);
    *z = end;
    return other ? (throw_dice(2) ? pick_size(true) : pick_int()) : v;
}

static uint32_t read_tensor(call *c, const char **z, bool *other, plim_dtype t)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = 0;
    while (**z >= '0' && **z <= '9') {
        bool now = *other && !throw_dice(2);
        *other = *other && !now;
        dim[rank++] = read_number(z, now);
        *z += **z == 'x';
    }
    if (*other && !throw_dice(2)) {
        *other = false;
        rank = rank && throw_dice(2) ? rank - 1 : 0;
    }
    plim_value v = {.name = PLIM_STR("x"),
                    .meta = plim_meta_make(t, rank, dim),
                    .kind = PLIM_VALUE_PARAMETER,
                    .requires_grad = true,
                    .tied_to = PLIM_NONE,
                    .node = PLIM_NONE};
    return plim_graph_add_value(&c->g, &v);
}

static plim_arg read_arg(call *c, const char *z, bool other, plim_dtype t)
{
    int64_t *ints = PLIM_NEW_N(&c->a, int64_t, 8);
    uint32_t *ids = PLIM_NEW_N(&c->a, uint32_t, 8), n = 0;
    char kind = *z++;
    switch (kind) {
    case 'T': return (plim_arg){.kind = PLIM_ARG_VALUE, .id = read_tensor(c, &z, &other, t)};
    case 'N':
        return (plim_arg){.kind = PLIM_ARG_VALUE, .id = read_tensor(c, &z, &other, PLIM_I64)};
    case 'L':
        while (*z) {
            ids[n++] = read_tensor(c, &z, &other, t);
            z += *z == ';';
        }
        return (plim_arg){.kind = PLIM_ARG_VALUES, .n = n, .ids = ids};
    case 'J':
        while (*z) {
            ints[n++] = read_number(&z, other && !throw_dice(2));
            z += *z == ',';
        }
        return (plim_arg){.kind = PLIM_ARG_INTS, .n = n, .ints = ints};
    case 'I': return (plim_arg){.kind = PLIM_ARG_INT, .i = read_number(&z, other)};
    case 'F': return (plim_arg){.kind = PLIM_ARG_FLOAT, .f = strtod(z, NULL)};
    case 'S': return (plim_arg){.kind = PLIM_ARG_STR, .str = plim_str_of(z)};
    default: return (plim_arg){.kind = PLIM_ARG_NONE};
    }
}

/* By position: the arguments of the schema are taken in order. */
static void begin_sound(call *c, const sound *s, const char *schema, bool change)
{
    static const plim_dtype types[] = {PLIM_F32, PLIM_F16, PLIM_BF16};
    plim_err err = PLIM_ERR_INIT;
    plim_dtype t = types[throw_dice(PLIM_COUNT(types))];
    uint32_t n = 0;
    while (n < PLIM_COUNT(s->args) && s->args[n])
        n++;
    uint32_t at = throw_dice(n);
    *c = (call){0};
    assert_int_equal(plim_graph_init(&c->g, &c->a, &err), PLIM_OK);
    for (uint32_t i = 0; i < n; i++) {
        plim_str name = {schema + strspn(schema, " *"), 0};
        name.n = strcspn(name.p, ",= ");
        plim_arg arg = read_arg(c, s->args[i], change && i == at, t);
        if (arg.kind != PLIM_ARG_NONE)
            c->args[c->n_args++] = (plim_named_arg){name, arg};
        schema += strcspn(schema, ",");
        schema += *schema == ',';
    }
}

enum { ROUNDS = 300 };

static void test_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(sounds); i++) {
        bool inplace;
        const char *dot = strchr(sounds[i].op, '.');
        plim_str name = plim_str_of(sounds[i].op);
        plim_str overload = dot ? plim_str_of(dot + 1) : PLIM_STR("");
        name.n -= dot ? overload.n + 1 : 0;
        const plim_op *op = plim_op_find(name, overload, &inplace);
        CHECK(sounds[i].op, op);
        dice_state = i;
        for (int k = 0; k < ROUNDS; k++)
            run_op(op, &sounds[i], k > 0);
    }
}

static void test_ops(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < plim_op_count(); i++) {
        dice_state = i;
        for (int k = 0; k < ROUNDS; k++)
            run_op(plim_op_at(i), NULL, false);
    }
}

static void test_kernels(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < plim_kernel_count(); i++) {
        dice_state = i;
        for (int k = 0; k < ROUNDS; k++)
            run_kernel(plim_kernel_at(i));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_ops),
        cmocka_unit_test(test_sound),
        cmocka_unit_test(test_kernels),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
