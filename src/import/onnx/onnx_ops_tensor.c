/* onnx_ops_tensor.c -- ONNX ops that move elements: views, joins, indexing, factories. */
#include "import/onnx/onnx_ops.h"

/* ---- views ---------------------------------------------------------------------------- */

void plim_onnx_reshape(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_meta m;
    uint32_t id;
    if (!x || !plim_onnx_other_dims(c, x, &m) || !plim_onnx_need(c, 1, &id))
        return;
    plim_ints shape = {m.dim, (uint32_t)m.rank};
    plim_onnx_out(c, 0, plim_nn_reshape(NN, id, shape));
    if (c->out[0] != PLIM_NONE)
        c->f->vals[c->out[0]].viewed = c->in[0];
}

void plim_onnx_transpose(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    int64_t perm[PLIM_MAX_RANK];
    uint32_t id;
    if (!x || !plim_onnx_perm(c, x, perm))
        return;
    plim_ints dims = {perm, (uint32_t)x->rank};
    bool turned = x->rank == 2 && perm[0] == 1;
    if (!plim_onnx_need(c, 1, &id))
        return;
    plim_onnx_out(c, 0, plim_nn_permute(NN, id, dims));
    if (c->out[0] == PLIM_NONE)
        return;
    c->f->vals[c->out[0]].permuted = c->in[0];
    if (turned)
        c->f->vals[c->out[0]].turned = c->in[0];
}

void plim_onnx_expand_op(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_meta m;
    uint32_t id;
    if (!x || !plim_onnx_expand(c, x, &m) || !plim_onnx_need(c, 1, &id))
        return;
    plim_ints size = {m.dim, (uint32_t)m.rank};
    plim_onnx_out(c, 0,
                  NN_OP(NN, "aten.expand.default", ARG_T("self", id), ARG_IS("size", size)));
}

void plim_onnx_slice_op(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    onnx_slice list[PLIM_MAX_RANK];
    uint32_t n, id;
    if (!x || !plim_onnx_slices(c, x, list, &n))
        return;
    plim_meta m = *x;
    bool back = false;
    for (uint32_t i = 0; i < n; i++) {
        m.dim[list[i].axis] = list[i].count;
        back |= list[i].step < 0;
    }
    if (back) {
        plim_onnx_out_opaque(c, 0, &m);
        return;
    }
    if (!plim_onnx_need(c, 1, &id))
        return;
    bool cut = false;
    for (uint32_t i = 0; i < n; i++) {
        const onnx_slice *s = &list[i];
        if (s->count == plim_nn_dim(NN, id, s->axis))
            continue;
        int64_t end = s->count ? s->start + (s->count - 1) * s->step + 1 : s->start;
        id = plim_nn_slice(NN, id, s->axis, s->start, end, s->step);
        cut = true;
    }
    if (cut)
        plim_onnx_out(c, 0, id);
    else
        plim_onnx_out_val(c, 0, c->in[0]);
}

void plim_onnx_split_op(onnx_call *c)
{
    enum { MAX_PARTS = 64 };
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    int32_t axis;
    int64_t sizes[MAX_PARTS];
    uint32_t id, out[MAX_PARTS];
    if (!x || !plim_onnx_split(c, x, &axis, sizes, MAX_PARTS) || !plim_onnx_need(c, 1, &id))
        return;
    plim_assert(c->node->n_out <= MAX_PARTS);
    plim_named_arg a[3] = {ARG_T("self", id),
                           ARG_IS("split_sizes", ((plim_ints){sizes, c->node->n_out})),
                           ARG_I("dim", axis)};
    plim_nn_node(NN, "aten.split_with_sizes.default", a, 3, out, c->node->n_out);
    for (uint32_t k = 0; k < c->node->n_out; k++)
        plim_onnx_out(c, k, out[k]);
}

/* ---- joins, copies ----------------------------------------------------------------------- */

void plim_onnx_concat(onnx_call *c)
{
    uint32_t *id = PLIM_NEW_N(c->f->a, uint32_t, c->node->n_in + 1);
    if (!id) {
        c->st = plim_oom(c->f->err);
        return;
    }
    if (c->node->n_in && plim_onnx_need(c, c->node->n_in, id))
        plim_onnx_out(c, 0,
                      plim_nn_cat(NN, id, c->node->n_in, plim_onnx_attr_int(c, "axis", 1)));
}

void plim_onnx_tile(onnx_call *c)
{
    uint32_t x;
    plim_ints repeats;
    if (plim_onnx_in_ints(c, 1, &repeats) && plim_onnx_need(c, 1, &x))
        plim_onnx_out(
            c, 0,
            NN_OP(NN, "aten.repeat.default", ARG_T("self", x), ARG_IS("repeats", repeats)));
}

static plim_str pad_mode(plim_str mode)
{
    static const struct {
        const char *onnx, *torch;
    } modes[] = {{"reflect", "reflect"}, {"edge", "replicate"}, {"wrap", "circular"}};
    for (size_t i = 0; i < PLIM_COUNT(modes); i++)
        if (plim_str_is(mode, modes[i].onnx))
            return plim_str_of(modes[i].torch);
    return PLIM_STR("constant");
}

/* src: F.pad starts from the last dim; trailing dims without padding are left out */
uint32_t plim_onnx_pad_dims(onnx_call *c, uint32_t x, const int64_t *before,
                            const int64_t *after, plim_str mode)
{
    int64_t pad[2 * PLIM_MAX_RANK];
    int32_t rank = NN->st ? 0 : c->f->g->values[x].meta.rank, n = 0;
    for (int32_t i = 0; i < rank; i++) {
        pad[2 * i] = before[rank - 1 - i];
        pad[2 * i + 1] = after[rank - 1 - i];
        n = pad[2 * i] || pad[2 * i + 1] ? i + 1 : n;
    }
    plim_arg how = {.kind = PLIM_ARG_STR, .str = mode};
    if (!n)
        return x;
    return NN_OP(NN, "aten.pad.default", ARG_T("self", x),
                 ARG_IS("pad", ((plim_ints){pad, (uint32_t)(2 * n)})),
                 {PLIM_STR("mode"), how});
}

void plim_onnx_pad(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_ints pads = plim_onnx_attr_ints(c, "pads"), axes = {NULL, 0};
    int64_t before[PLIM_MAX_RANK] = {0}, after[PLIM_MAX_RANK] = {0};
    int32_t axis;
    uint32_t id;
    if (!x || (!pads.p && !plim_onnx_in_ints(c, 1, &pads)) ||
        (plim_onnx_in(c, 3) && !plim_onnx_in_ints(c, 3, &axes)))
        return;
    uint32_t n = axes.p ? axes.n : (uint32_t)x->rank;
    plim_meta m = *x;
    if (n > PLIM_MAX_RANK || pads.n != 2 * n)
        return;
    for (uint32_t i = 0; i < n; i++) {
        if (!plim_onnx_axis(axes.p ? axes.p[i] : i, x->rank, &axis) || pads.p[i] > INT32_MAX ||
            pads.p[i + n] > INT32_MAX || pads.p[i] < INT32_MIN || pads.p[i + n] < INT32_MIN)
            return;
        before[axis] = pads.p[i];
        after[axis] = pads.p[i + n];
        m.dim[axis] += pads.p[i] + pads.p[i + n];
    }
    plim_str mode = pad_mode(plim_onnx_attr_str(c, "mode", "constant"));
    if (plim_str_is(mode, "circular"))
        plim_onnx_out_opaque(c, 0, &m);
    else if (plim_onnx_need(c, 1, &id))
        plim_onnx_out(c, 0, plim_onnx_pad_dims(c, id, before, after, mode));
}

void plim_onnx_depth_space(onnx_call *c)
{
    uint32_t x;
    bool down = plim_str_is(c->node->op, "SpaceToDepth");
    if (!plim_onnx_need(c, 1, &x))
        return;
    plim_named_arg a[2] = {ARG_T("self", x),
                           ARG_I("upscale_factor", plim_onnx_attr_int(c, "blocksize", 1))};
    if (down)
        a[1].name = PLIM_STR("downscale_factor");
    plim_onnx_out(c, 0, plim_nn_op(NN, c->op->target, a, 2));
}

void plim_onnx_trilu(onnx_call *c)
{
    uint32_t x;
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0,
                      plim_nn_unary(NN,
                                    plim_onnx_attr_int(c, "upper", 1) ? "aten.triu.default"
                                                                      : "aten.tril.default",
                                    x));
}

/* ---- indexing ---------------------------------------------------------------------------- */

void plim_onnx_gather(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *index = plim_onnx_in_meta(c, 1);
    int32_t axis;
    plim_ints at;
    uint32_t id[2], list[PLIM_MAX_RANK], r;
    if (!x || !index || !plim_onnx_axis(plim_onnx_attr_int(c, "axis", 0), x->rank, &axis))
        return;
    int32_t rank = index->rank;
    if (!rank && plim_onnx_in_ints(c, 1, &at) && plim_onnx_in_id(c, 0) != PLIM_NONE) {
        plim_onnx_out(c, 0, plim_nn_select(NN, plim_onnx_in_id(c, 0), axis, at.p[0]));
        return;
    }
    bool table = x->rank == 2 && !axis;
    if (!plim_onnx_need(c, 2, id))
        return;
    if (table) {
        r = NN_OP(NN, "aten.embedding.default", ARG_T("weight", id[0]),
                  ARG_T("indices", id[1]));
    } else if (rank == 1) {
        r = NN_OP(NN, "aten.index_select.default", ARG_T("self", id[0]), ARG_I("dim", axis),
                  ARG_T("index", id[1]));
    } else {
        for (int32_t i = 0; i < axis; i++)
            list[i] = PLIM_NONE;
        list[axis] = id[1];
        r = NN_OP(NN, "aten.index.Tensor", ARG_T("self", id[0]),
                  ARG_TS("indices", list, (uint32_t)axis + 1));
    }
    plim_onnx_out(c, 0, r);
}

void plim_onnx_gather_elements(onnx_call *c)
{
    uint32_t id[2];
    if (plim_onnx_need(c, 2, id))
        plim_onnx_out(c, 0,
                      NN_OP(NN, "aten.gather.default", ARG_T("self", id[0]),
                            ARG_I("dim", plim_onnx_attr_int(c, "axis", 0)),
                            ARG_T("index", id[1])));
}

/* src: onnx/defs/tensor/defs.cc GatherND */
void plim_onnx_gather_nd(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *index = plim_onnx_in_meta(c, 1);
    int64_t batch = plim_onnx_attr_int(c, "batch_dims", 0);
    if (!x || !index || !index->rank || batch < 0 || batch >= index->rank)
        return;
    int64_t from = batch + index->dim[index->rank - 1];
    plim_meta m = {.dtype = x->dtype};
    if (from < 0 || from > x->rank || index->rank - 1 + x->rank - from > PLIM_MAX_RANK)
        return;
    for (int32_t i = 0; i < index->rank - 1; i++)
        m.dim[m.rank++] = index->dim[i];
    for (int64_t i = from; i < x->rank; i++)
        m.dim[m.rank++] = x->dim[i];
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_scatter(onnx_call *c)
{
    uint32_t id[3];
    plim_str how = plim_onnx_attr_str(c, "reduction", "none");
    bool add = plim_str_is(how, "add");
    if (!add && !plim_str_is(how, "none"))
        plim_onnx_like(c);
    else if (plim_onnx_need(c, 3, id))
        plim_onnx_out(c, 0,
                      NN_OP(NN, add ? "aten.scatter_add.default" : "aten.scatter.src",
                            ARG_T("self", id[0]),
                            ARG_I("dim", plim_onnx_attr_int(c, "axis", 0)),
                            ARG_T("index", id[1]), ARG_T("src", id[2])));
}

void plim_onnx_topk(onnx_call *c)
{
    uint32_t x, out[2];
    plim_ints k = plim_onnx_attr_ints(c, "k");
    int64_t one = plim_onnx_attr_int(c, "k", -1);
    if (one >= 0)
        k = (plim_ints){&one, 1};
    else if (!plim_onnx_in_ints(c, 1, &k))
        return;
    if (k.n != 1 || !plim_onnx_need(c, 1, &x))
        return;
    plim_named_arg a[3] = {ARG_T("self", x), ARG_I("k", k.p[0]),
                           ARG_I("dim", plim_onnx_attr_int(c, "axis", -1))};
    plim_nn_node(NN, "aten.topk.default", a, 3, out, 2);
    plim_onnx_out(c, 0, out[0]);
    plim_onnx_out(c, 1, out[1]);
}

void plim_onnx_one_hot(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *values = plim_onnx_in_meta(c, 2);
    const onnx_data *depth = plim_onnx_in_data(c, 1);
    int32_t axis;
    if (!x || !values || !depth || depth->n != 1 || x->rank >= PLIM_MAX_RANK ||
        !plim_onnx_axis(plim_onnx_attr_int(c, "axis", -1), x->rank + 1, &axis))
        return;
    plim_meta m = {.dtype = values->dtype};
    double classes = plim_onnx_number(depth, 0);
    if (!(classes >= 0 && classes < 1e15))
        return;
    for (int32_t i = 0; i <= x->rank; i++)
        m.dim[m.rank++] = i == axis ? (int64_t)classes : i < axis ? x->dim[i] : x->dim[i - 1];
    plim_onnx_out_opaque(c, 0, &m);
}

/* ---- factories ---------------------------------------------------------------------------- */

void plim_onnx_filled(onnx_call *c)
{
    plim_meta m = {.dtype = PLIM_F32};
    onnx_tensor t;
    const onnx_attr *a = plim_onnx_attr(c, "value");
    if (a && a->tensor.file.p) {
        c->st = plim_onnx_parse_tensor(&c->f->m, a->tensor, &t);
        if (c->st || !plim_onnx_type(t.type)->known)
            return;
        m.dtype = plim_onnx_type(t.type)->dtype;
    }
    if (!plim_onnx_dims(c, 0, &m))
        return;
    plim_onnx_out(c, 0,
                  NN_OP(NN, "aten.full.default",
                        ARG_IS("size", ((plim_ints){m.dim, (uint32_t)m.rank})),
                        ARG_F("fill_value", 0), ARG_I("dtype", m.dtype)));
}

void plim_onnx_range(onnx_call *c)
{
    const plim_meta *m = plim_onnx_in_meta(c, 0);
    double v[3];
    for (uint32_t i = 0; i < 3; i++)
        if (!plim_onnx_scalar(c, i, &v[i]))
            return;
    double n = (v[1] - v[0]) / v[2]; /* by 0: not a number, or none below the bound */
    if (!m || !(n < 1e15))
        return;
    int64_t whole = n > 0 ? (int64_t)n : 0;
    whole += n > 0 && (double)whole < n;
    plim_onnx_out(
        c, 0, NN_OP(NN, "aten.arange.default", ARG_I("end", whole), ARG_I("dtype", m->dtype)));
}

void plim_onnx_eye_like(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "dtype", 0));
    if (x && x->rank == 2)
        plim_onnx_out(c, 0,
                      NN_OP(NN, "aten.eye.m", ARG_I("n", x->dim[0]), ARG_I("m", x->dim[1]),
                            ARG_I("dtype", t && t->known ? t->dtype : x->dtype)));
}

/* HannWindow and the like: that many numbers. */
void plim_onnx_window(onnx_call *c)
{
    plim_ints n;
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "output_datatype", 1));
    if (!plim_onnx_in_ints(c, 0, &n) || n.n != 1 || !t || !t->known)
        return;
    plim_meta m = plim_meta_make(t->dtype, 1, n.p);
    plim_onnx_out_opaque(c, 0, &m);
}

/* Operand 1 gives the size of the result: MaxUnpool, CenterCropPad, AffineGrid. */
void plim_onnx_crop(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_ints size, axes = plim_onnx_attr_ints(c, "axes");
    int32_t axis;
    if (!x || !plim_onnx_in_ints(c, 1, &size) ||
        (axes.p ? axes.n : (uint32_t)x->rank) != size.n)
        return;
    plim_meta m = *x;
    for (uint32_t i = 0; i < size.n; i++) {
        if (!plim_onnx_axis(axes.p ? axes.p[i] : i, x->rank, &axis))
            return;
        m.dim[axis] = size.p[i];
    }
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_affine_grid(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    plim_ints size;
    if (!x || !plim_onnx_in_ints(c, 1, &size) || size.n < 4 || size.n > 5)
        return;
    plim_meta m = {.dtype = x->dtype};
    for (uint32_t i = 0; i < size.n; i++)
        if (i != 1)
            m.dim[m.rank++] = size.p[i];
    m.dim[m.rank++] = size.n - 2;
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_det(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    if (!x || x->rank < 2)
        return;
    plim_meta m = *x;
    m.rank -= 2;
    plim_onnx_out_opaque(c, 0, &m);
}
