/* onnx_shape.c -- see onnx_priv.h. */
#include "import/onnx/onnx_priv.h"

bool plim_onnx_axis(int64_t axis, int32_t rank, int32_t *out)
{
    if (axis < 0)
        axis += rank;
    *out = (int32_t)axis;
    return axis >= 0 && axis < rank;
}

bool plim_onnx_axes(const onnx_call *c, uint32_t i, int32_t rank, int32_t *axes, uint32_t *n)
{
    plim_ints list = plim_onnx_attr_ints(c, "axes");
    uint32_t seen = 0;
    *n = 0;
    if (!list.p && plim_onnx_in(c, i) && !plim_onnx_in_ints(c, i, &list))
        return false;
    for (uint32_t k = 0; list.p && k < list.n; k++) {
        int32_t axis;
        if (!plim_onnx_axis(list.p[k], rank, &axis) || seen >> axis & 1)
            return false;
        seen |= 1u << axis;
        axes[(*n)++] = axis;
    }
    return true;
}

/* ---- the same elements in other dims -------------------------------------------------- */

static bool reshape_dims(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    plim_ints shape = plim_onnx_attr_ints(c, "shape"); /* operator sets up to 4 */
    bool zero = plim_onnx_attr_int(c, "allowzero", 0) != 0;
    if ((!shape.p && !plim_onnx_in_ints(c, 1, &shape)) || shape.n > PLIM_MAX_RANK)
        return false;
    out->rank = (int32_t)shape.n;
    for (uint32_t i = 0; i < shape.n; i++) {
        out->dim[i] = shape.p[i];
        if (!shape.p[i] && !zero) {
            if ((int32_t)i >= x->rank)
                return false;
            out->dim[i] = x->dim[i];
        }
    }
    return true;
}

static bool flatten_dims(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    int64_t axis = plim_onnx_attr_int(c, "axis", 1);
    uint64_t n[2] = {1, 1};
    axis += axis < 0 ? x->rank : 0;
    if (axis < 0 || axis > x->rank)
        return false;
    for (int32_t i = 0; i < x->rank; i++)
        n[i >= axis] = plim_sat_mul(n[i >= axis], (uint64_t)x->dim[i]);
    out->rank = 2;
    out->dim[0] = (int64_t)PLIM_MIN(n[0], INT64_MAX);
    out->dim[1] = (int64_t)PLIM_MIN(n[1], INT64_MAX);
    return true;
}

static bool squeeze_dims(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    int32_t axes[PLIM_MAX_RANK];
    uint32_t n, drop = 0;
    if (!plim_onnx_axes(c, 1, x->rank, axes, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        drop |= 1u << axes[i];
    for (int32_t i = 0; i < x->rank; i++)
        if (!n && x->dim[i] == 1)
            drop |= 1u << i;
    out->rank = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        if (!(drop >> i & 1))
            out->dim[out->rank++] = x->dim[i];
        else if (x->dim[i] != 1)
            return false;
    }
    return true;
}

static bool unsqueeze_dims(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    int32_t axes[PLIM_MAX_RANK], rank;
    plim_ints list = plim_onnx_attr_ints(c, "axes");
    uint32_t n, add = 0;
    if (!list.p && !plim_onnx_in_ints(c, 1, &list))
        return false;
    rank = x->rank + (int32_t)PLIM_MIN(list.n, PLIM_MAX_RANK + 1);
    if (rank > PLIM_MAX_RANK || !plim_onnx_axes(c, 1, rank, axes, &n))
        return false;
    for (uint32_t i = 0; i < n; i++)
        add |= 1u << axes[i];
    out->rank = rank;
    for (int32_t i = 0, k = 0; i < rank; i++)
        out->dim[i] = add >> i & 1 ? 1 : x->dim[k++];
    return true;
}

bool plim_onnx_other_dims(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    static const struct {
        const char *op;
        bool (*dims)(const onnx_call *c, const plim_meta *x, plim_meta *out);
    } kinds[] = {{"Reshape", reshape_dims},
                 {"Flatten", flatten_dims},
                 {"Squeeze", squeeze_dims},
                 {"Unsqueeze", unsqueeze_dims}};
    uint64_t a, b;
    out->dtype = x->dtype;
    for (size_t i = 0; i < PLIM_COUNT(kinds); i++)
        if (plim_str_is(c->node->op, kinds[i].op)) {
            if (!kinds[i].dims(c, x, out) || !plim_infer_size(x, out->rank, out->dim))
                return false;
            plim_meta_contiguous(out);
            return plim_meta_numel(x, &a) && plim_meta_numel(out, &b) && a == b;
        }
    return false;
}

/* ---- other views ------------------------------------------------------------------------ */

bool plim_onnx_perm(const onnx_call *c, const plim_meta *x, int64_t *perm)
{
    plim_ints p = plim_onnx_attr_ints(c, "perm");
    uint32_t seen = 0;
    if (p.p && p.n != (uint32_t)x->rank)
        return false;
    for (int32_t i = 0; i < x->rank; i++) {
        int32_t axis;
        if (!plim_onnx_axis(p.p ? p.p[i] : x->rank - 1 - i, x->rank, &axis))
            return false;
        perm[i] = axis;
        seen |= 1u << axis;
    }
    return seen == (1u << x->rank) - 1;
}

/* src: onnx/defs/tensor/utils.cc processSliceInputs: bounds are clamped, not rejected */
static bool slice_one(int64_t dim, int64_t start, int64_t end, int64_t step, onnx_slice *out)
{
    if (!step || step == INT64_MIN)
        return false;
    start = start < 0 ? (start < -dim ? -1 - dim : start) + dim : start;
    end = end < 0 ? (end < -dim ? -1 - dim : end) + dim : end;
    int64_t low = step > 0 ? 0 : -1, top = step > 0 ? dim : dim - 1;
    start = PLIM_MAX(PLIM_MIN(start, top), step > 0 ? 0 : PLIM_MIN(0, top));
    end = PLIM_MAX(PLIM_MIN(end, step > 0 ? dim : top), low);
    int64_t span = step > 0 ? end - start : start - end, by = step > 0 ? step : -step;
    out->start = start;
    out->step = step;
    out->count = span > 0 ? (span - 1) / by + 1 : 0;
    plim_assert(!out->count || (start >= 0 && start < dim));
    return true;
}

bool plim_onnx_slices(const onnx_call *c, const plim_meta *x, onnx_slice *list, uint32_t *n)
{
    plim_ints start = plim_onnx_attr_ints(c, "starts"), end = plim_onnx_attr_ints(c, "ends"),
              axes = plim_onnx_attr_ints(c, "axes"), step = {NULL, 0};
    uint32_t seen = 0;
    bool inputs = c->node->n_in > 1;
    if (inputs && (!plim_onnx_in_ints(c, 1, &start) || !plim_onnx_in_ints(c, 2, &end) ||
                   (plim_onnx_in(c, 3) && !plim_onnx_in_ints(c, 3, &axes)) ||
                   (plim_onnx_in(c, 4) && !plim_onnx_in_ints(c, 4, &step))))
        return false;
    *n = start.n;
    if (start.n != end.n || start.n > PLIM_MAX_RANK || (axes.p && axes.n != start.n) ||
        (step.p && step.n != start.n))
        return false;
    for (uint32_t i = 0; i < start.n; i++) {
        onnx_slice *s = &list[i];
        if (!plim_onnx_axis(axes.p ? axes.p[i] : i, x->rank, &s->axis) ||
            seen >> s->axis & 1 ||
            !slice_one(x->dim[s->axis], start.p[i], end.p[i], step.p ? step.p[i] : 1, s))
            return false;
        seen |= 1u << s->axis;
    }
    return true;
}

bool plim_onnx_split(const onnx_call *c, const plim_meta *x, int32_t *axis, int64_t *sizes,
                     uint32_t max)
{
    plim_ints given = plim_onnx_attr_ints(c, "split");
    uint32_t n = c->node->n_out;
    if (!plim_onnx_axis(plim_onnx_attr_int(c, "axis", 0), x->rank, axis) || !n || n > max ||
        (!given.p && plim_onnx_in(c, 1) && !plim_onnx_in_ints(c, 1, &given)))
        return false;
    int64_t dim = x->dim[*axis], each = (dim + n - 1) / n, left = dim;
    if (given.p && given.n != n)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        sizes[i] = given.p ? given.p[i] : PLIM_MIN(each, left);
        if (sizes[i] < 0 || sizes[i] > left)
            return false;
        left -= sizes[i];
    }
    return left == 0;
}

bool plim_onnx_dims(const onnx_call *c, uint32_t i, plim_meta *out)
{
    plim_ints size;
    uint64_t bytes;
    if (!plim_onnx_in_ints(c, i, &size) || size.n > PLIM_MAX_RANK)
        return false;
    out->rank = (int32_t)size.n;
    if (size.n)
        memcpy(out->dim, size.p, size.n * sizeof *size.p);
    plim_meta_contiguous(out);
    return plim_meta_bytes(out, &bytes);
}

bool plim_onnx_expand(const onnx_call *c, const plim_meta *x, plim_meta *out)
{
    plim_meta want = {.dtype = x->dtype};
    return plim_onnx_dims(c, 1, &want) && plim_broadcast(x, &want, out);
}
