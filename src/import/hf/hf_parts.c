/* hf_parts.c -- see hf_parts.h. */
#include "import/hf/hf_parts.h"

#include <math.h>

static const plim_ints no_dims = {NULL, 0};

bool plim_hf_follows(const plim_hf *h, plim_hf_change rule)
{
    return plim_hf_release_follows(h->version, rule, plim_str_of(h->family->model_type));
}

/* ---- tokens and where they stand -------------------------------------------------- */

const struct plim_input_shape *plim_hf_bound_shape(const plim_hf *h, const char *name,
                                                   bool first)
{
    for (uint32_t i = 0; i < h->bind->n_inputs; i++) {
        plim_str s = h->bind->inputs[i].name;
        if (plim_str_is(s, name) || (first && !s.n))
            return &h->bind->inputs[i];
    }
    return NULL;
}

void plim_hf_check_shape(plim_hf *h, const char *name, bool first, plim_ints dim)
{
    plim_nn *n = &h->n;
    const struct plim_input_shape *in = plim_hf_bound_shape(h, name, first);
    if (in && in->rank != (int32_t)dim.n)
        plim_nn_fail(n, PLIM_EUSAGE, "input '%s' has %u dimensions, the given shape has %d",
                     name, (unsigned)dim.n, (int)in->rank);
    for (uint32_t i = 0; in && i < dim.n && !n->st; i++)
        if (in->dim[i] != dim.p[i])
            plim_nn_fail(n, PLIM_EUSAGE,
                         "input '%s' has %" PRId64
                         " in dimension %u, the given shape has %" PRId64,
                         name, dim.p[i], (unsigned)i, in->dim[i]);
}

uint32_t plim_hf_input(plim_hf *h, const char *name, plim_dtype t, plim_ints dim)
{
    plim_hf_check_shape(h, name, h->n.g->n_inputs == 0, dim);
    return plim_nn_input(&h->n, name, t, dim);
}

/* [batch, seq], of which the storage of the whole is left where it was divided in place. */
static uint32_t token_input(plim_hf *h, const char *name)
{
    plim_nn *n = &h->n;
    uint32_t x = plim_hf_input(h, name, PLIM_I64, INTS(h->batch, h->seq * h->contexts));
    return h->contexts == 1 ? x
                            : NN_OP(n, "plimsoll.cp_part.default", ARG_T("self", x),
                                    ARG_I("parts", h->contexts));
}

uint32_t plim_hf_ids(plim_hf *h) { return h->ids = token_input(h, "input_ids"); }

double plim_hf_head_root(int64_t hidden, int64_t heads)
{
    int64_t dim = hidden / heads;
    return sqrt((double)dim);
}

uint32_t plim_hf_positions(plim_hf *h)
{
    h->n.g->sizes.uneven |= h->bind->packed;
    if (h->bind->packed || h->contexts > 1)
        return h->positions = token_input(h, "position_ids");
    if (h->bind->positions_are_inputs)
        return h->positions = plim_nn_input(&h->n, "position_ids", PLIM_I64, INTS(1, h->seq));
    if (h->bind->prompts) { /* src: generation/utils.py prepare_inputs_for_generation */
        plim_nn_input(&h->n, "attention_mask", PLIM_I64, INTS(h->batch, h->seq));
        if (h->version < PLIM_HF_SINCE_NO_CACHE_POSITION)
            plim_nn_input(&h->n, "cache_position", PLIM_I64, INTS(h->seq));
        return h->positions =
                   plim_nn_input(&h->n, "position_ids", PLIM_I64, INTS(h->batch, h->seq));
    }
    uint32_t p = plim_nn_arange(&h->n, h->seq);
    if (h->version >= PLIM_HF_SINCE_MASK_FUNCTIONS)
        p = plim_nn_scalar(&h->n, "aten.add.Tensor", p, 0); /* the cache is empty */
    return h->positions = plim_nn_unsqueeze(&h->n, p, 0);
}

void plim_hf_layer(plim_hf *h, const char *name, const char *type, uint32_t x)
{
    plim_nn_enter(&h->n, name, type);
    plim_nn_called(&h->n, (uint32_t[]){x, h->positions, h->unused}, 3);
}

/* ---- masks --------------------------------------------------------------------------- */

/* Whether the numbers of positions leave some out: only the two parts of the last rank adjoin. */
static bool have_gaps(const plim_hf *h)
{
    return h->bind->packed || h->bind->part.context + 1 < h->contexts;
}

/* find_packed_sequence_indices: the number of the sequence to which each token belongs.  PLIM_NONE:
 * there is one. */
static uint32_t look_for_packing(plim_hf *h, uint32_t positions)
{
    plim_nn *n = &h->n;
    uint32_t p = plim_nn_expand(n, positions, INTS(h->batch, -1));
    uint32_t first = plim_nn_slice(n, p, 1, 0, 1, 1);
    first = plim_nn_scalar(n, "aten.sub.Tensor", first, 1);
    uint32_t steps = NN_OP(n, "aten.diff.default", ARG_T("self", p), ARG_I("n", 1),
                           ARG_I("dim", -1), ARG_T("prepend", first));
    p = NN_OP(n, "aten.ne.Scalar", ARG_T("self", steps), ARG_I("other", 1));
    p = NN_OP(n, "aten.cumsum.default", ARG_T("self", p), ARG_I("dim", -1));
    uint32_t last = plim_nn_select(n, p, 1, -1);
    last = NN_OP(n, "aten.eq.Scalar", ARG_T("self", last), ARG_I("other", 0));
    plim_nn_unary(n, "aten.all.default", last); /* is there one? */
    plim_hf_end_variables(n, (uint32_t[]){first, steps, p}, 3);
    return have_gaps(h) ? p : PLIM_NONE;
}

/* arange(size) with three extra dimensions of one; its own is the i-th. */
static uint32_t spread_dim(plim_nn *n, uint32_t x, int64_t place)
{
    for (int64_t d = 0; d < 4; d++)
        x = d == place ? x : plim_nn_unsqueeze(n, x, d);
    return x;
}

static uint32_t range_of(plim_nn *n, int64_t size)
{
    return plim_nn_scalar(n, "aten.add.Tensor", plim_nn_arange(n, size), 0);
}

static uint32_t logical_and(plim_nn *n, uint32_t a, uint32_t b)
{
    return plim_nn_binary(n, "aten.__and__.Tensor", a, b);
}

static uint32_t true_scalar(plim_nn *n, uint32_t like)
{
    const plim_named_arg a[] = {ARG_T("self", like), ARG_IS("size", no_dims),
                                ARG_I("dtype", PLIM_BOOL)};
    return plim_nn_op(n, "aten.new_ones.default", a, PLIM_COUNT(a));
}

/* What a row of the batch has at each of those places. */
static uint32_t at_places(plim_nn *n, uint32_t x, uint32_t row, uint32_t place)
{
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", x),
                 ARG_TS("indices", ((uint32_t[]){row, place}), 2));
}

/* Whether a token at place q may attend to one at k. */
static uint32_t places_mask(plim_nn *n, plim_hf_mask m, uint32_t q, uint32_t k)
{
    if (m.full)
        return NN_OP(n, "aten.ge.Scalar", ARG_T("self", q), ARG_I("other", 0));
    if (!m.sliding)
        return plim_nn_binary(n, "aten.le.Tensor", k, q);
    uint32_t mask = true_scalar(n, q);
    uint32_t first = plim_nn_scalar(n, "aten.sub.Tensor", q, (double)m.window);
    mask = logical_and(n, mask, plim_nn_binary(n, "aten.gt.Tensor", k, first));
    return logical_and(n, mask, plim_nn_binary(n, "aten.le.Tensor", k, q));
}

/* Tokens for which a static cache has room in a layer with such a window (0: none); 0: it grows. */
static int64_t cache_room(const plim_hf *h, int64_t window)
{
    int64_t all = h->caching ? h->bind->cache_room : 0;
    return all && window > 0 ? PLIM_MIN(all, window) : all;
}

/* Keys to which the tokens attend: of a static cache all, unless there are more tokens. */
static int64_t count_keys(const plim_hf *h, plim_hf_mask m)
{
    return PLIM_MAX(cache_room(h, m.sliding ? m.window : 0), h->seq);
}

/* sdpa_mask: true where a token may attend.  padding: of each token, whether it is one; packing: the
 * number of its sequence; or PLIM_NONE */
static uint32_t bool_mask(plim_hf *h, plim_hf_mask m, uint32_t padding, uint32_t packing)
{
    plim_nn *n = &h->n;
    uint32_t batch = plim_nn_arange(n, h->batch), head = plim_nn_arange(n, 1);
    int64_t keys = count_keys(h, m);
    uint32_t q = range_of(n, h->seq), k = range_of(n, keys);
    batch = spread_dim(n, batch, 0);
    spread_dim(n, head, 1);
    q = spread_dim(n, q, 2);
    k = spread_dim(n, k, 3);
    bool uneven = padding != PLIM_NONE || packing != PLIM_NONE;
    uint32_t mask = uneven ? true_scalar(n, q) : PLIM_NONE;
    if (packing != PLIM_NONE) {
        uint32_t own = at_places(n, packing, batch, q);
        own = plim_nn_binary(n, "aten.eq.Tensor", own, at_places(n, packing, batch, k));
        mask = logical_and(n, mask, own);
        q = at_places(n, m.positions, batch, q);
        k = at_places(n, m.positions, batch, k);
    }
    uint32_t causal = places_mask(n, m, q, k);
    mask = uneven ? logical_and(n, mask, causal) : causal;
    if (padding != PLIM_NONE)
        mask = logical_and(n, mask, at_places(n, padding, batch, k));
    return plim_nn_expand(n, mask, INTS(h->batch, -1, h->seq, keys));
}

/* fast_all: whether no token is padding; here some are. */
static void look_for_padding(plim_hf *h, uint32_t padding)
{
    plim_nn *n = &h->n;
    uint32_t sum = plim_nn_unary(n, "aten.sum.default", padding);
    NN_OP(n, "aten.eq.Scalar", ARG_T("self", sum), ARG_I("other", h->batch * h->seq));
}

uint32_t plim_hf_padding(plim_hf *h)
{
    if (h->bind->padded && h->padding == PLIM_NONE)
        h->padding = plim_nn_input(&h->n, "attention_mask", PLIM_I64, INTS(h->batch, h->seq));
    h->n.g->sizes.uneven |= h->bind->padded;
    return h->padding;
}

/* As bools. */
static uint32_t padding_mask(plim_hf *h, plim_hf_mask m)
{
    uint32_t mask = m.unpadded ? PLIM_NONE : plim_hf_padding(h);
    return mask == PLIM_NONE ? mask : plim_nn_to(&h->n, mask, PLIM_BOOL);
}

/* src: masking_utils.py _ignore_causal_mask_sdpa: is_causal does without a mask */
static bool needs_mask(plim_hf *h, plim_hf_mask m, uint32_t padding, uint32_t packing)
{
    int64_t keys = count_keys(h, m);
    if (h->eager || m.always || packing != PLIM_NONE || (m.sliding && keys >= m.window))
        return true;
    if (h->bind->prompts) /* a pass over one token is compiled, if the cache can be */
        return h->seq == 1 && cache_room(h, 0);
    for (int i = 0; i < 2 && padding != PLIM_NONE;
         i++) /* of all tokens, of those of the queries */
        look_for_padding(h, padding);
    return padding != PLIM_NONE;
}

/* _prepare_4d_causal_attention_mask_with_cache_position, of which there was one in each class: large negative numbers
 * for what comes later, in the type of the parameters, with a column more than there are tokens. */
static uint32_t number_mask(plim_hf *h, uint32_t positions, int64_t keys)
{
    plim_nn *n = &h->n;
    uint32_t mask = NN_OP(n, "aten.new_full.default",
                          ARG_T("self", n->st ? PLIM_NONE : n->leaves[0].value),
                          ARG_IS("size", INTS(h->seq, keys)), ARG_F("fill_value", -1e30));
    if (h->seq != 1)
        mask = NN_OP(n, "aten.triu.default", ARG_T("self", mask), ARG_I("diagonal", 1));
    uint32_t queries = plim_nn_reshape(n, positions, INTS(-1, 1));
    uint32_t later = plim_nn_binary(n, "aten.gt.Tensor", plim_nn_arange(n, keys), queries);
    mask = plim_nn_binary(n, "aten.mul_.Tensor", mask, later);
    return plim_nn_expand(n, plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, mask, 0), 0),
                          INTS(h->batch, 1, -1, -1));
}

static uint32_t causal_numbers(plim_hf *h)
{
    plim_nn *n = &h->n;
    uint32_t mask = number_mask(h, plim_nn_select(n, h->positions, 0, 0), h->seq + 1);
    plim_nn_holds(n, mask); /* a variable of the model's forward */
    return plim_nn_slice(n, mask, 3, 0, h->seq, 1);
}

uint32_t plim_hf_ones(plim_hf *h, plim_dtype t, int64_t tokens)
{
    plim_nn *n = &h->n;
    const plim_named_arg a[] = {ARG_T("self", n->st ? PLIM_NONE : n->leaves[0].value),
                                ARG_IS("size", INTS(h->batch, tokens)), ARG_I("dtype", t)};
    uint32_t x = plim_nn_op(n, "aten.new_ones.default", a, PLIM_COUNT(a));
    plim_nn_holds(n, x);
    return x;
}

static uint32_t as_numbers(plim_nn *n, uint32_t x)
{
    x = plim_nn_to(n, x, n->dtype);
    x = NN_OP(n, "aten.rsub.Scalar", ARG_T("self", x), ARG_F("other", 1));
    return plim_nn_scalar(n, "aten.mul.Tensor", x, -1e30);
}

static uint32_t spread_keys(plim_nn *n, uint32_t ones)
{
    return plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, ones, 1), 1);
}

uint32_t plim_hf_numbers(plim_hf *h, uint32_t ones)
{
    uint32_t x = as_numbers(&h->n, spread_keys(&h->n, ones));
    plim_nn_holds(&h->n, x);
    return x;
}

/* create_extended_attention_mask_for_decoder */
static uint32_t extended_mask(plim_hf *h, uint32_t ones)
{
    plim_nn *n = &h->n;
    uint32_t ids = plim_nn_arange(n, h->seq);
    uint32_t all = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, ids, 0), 0);
    all = NN_OP(n, "aten.repeat.default", ARG_T("self", all),
                ARG_IS("repeats", INTS(h->batch, h->seq, 1)));
    ids = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, ids, 0), 2);
    uint32_t x = plim_nn_binary(n, "aten.le.Tensor", all, ids);
    x = plim_nn_unsqueeze(n, plim_nn_to(n, x, PLIM_F32), 1);
    x = plim_nn_binary(n, "aten.mul.Tensor", x, spread_keys(n, ones));
    return as_numbers(n, x);
}

/* The mask of _prepare_4d_causal_attention_mask_with_cache_position if there are no gaps in `ones`. */
static uint32_t padded_numbers(plim_hf *h, uint32_t ones, uint32_t positions)
{
    plim_nn *n = &h->n;
    uint32_t x = plim_nn_unary(n, "aten.clone.default", number_mask(h, positions, h->seq));
    uint32_t none = plim_nn_binary(n, "aten.add.Tensor", x, spread_keys(n, ones));
    none = NN_OP(n, "aten.eq.Scalar", ARG_T("self", none), ARG_I("other", 0));
    uint32_t filled = NN_OP(n, "aten.masked_fill.Scalar", ARG_T("self", x),
                            ARG_T("mask", none), ARG_F("value", -1e30));
    NN_OP(n, "aten.copy_.default", ARG_T("self", x), ARG_T("src", filled));
    return x;
}

uint32_t plim_hf_causal_numbers(plim_hf *h, uint32_t ones, uint32_t positions)
{
    uint32_t x =
        positions == PLIM_NONE ? extended_mask(h, ones) : padded_numbers(h, ones, positions);
    plim_nn_holds(&h->n, x);
    return x;
}

/* Before masking_utils.py; sdpa does without a mask. */
static uint32_t earlier_mask(plim_hf *h, plim_hf_mask m)
{
    if (h->bind->padded || h->bind->packed || h->contexts > 1 ||
        (m.sliding && m.window && h->seq >= m.window))
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "masks of padded or packed sequences, and of windows, are not known as "
                     "transformers %d.%d makes them",
                     h->version / 100, h->version % 100);
    return h->mask = h->eager ? causal_numbers(h) : PLIM_NONE;
}

/* src: accelerate 1.11 big_modeling.py _attach_context_parallel_hooks */
static void refuse_windows(plim_hf *h, plim_hf_mask m)
{
    if (h->contexts > 1 && (h->eager || (m.sliding && m.window)))
        plim_nn_fail(
            &h->n, PLIM_EUSAGE,
            "cp: ring attention is causal attention to all tokens, and this model has "
            "layers of another kind");
}

/* Zeros and large negative numbers, in the type of the parameters. */
static uint32_t eager_mask(plim_nn *n, uint32_t mask)
{
    uint32_t zero =
        NN_OP(n, "aten.new_zeros.default",
              ARG_T("self", n->st ? PLIM_NONE : n->leaves[0].value), ARG_IS("size", no_dims));
    return NN_OP(n, "aten.where.ScalarOther", ARG_T("condition", mask), ARG_T("self", zero),
                 ARG_F("other", -1e30));
}

/* flash_attention_mask: which tokens there are, if not all. */
static uint32_t flash_mask(plim_hf *h, uint32_t padding)
{
    if (padding == PLIM_NONE)
        return padding;
    plim_nn_unary(&h->n, "aten.all.default", padding);
    plim_nn_holds(&h->n, padding); /* a variable of the model's forward */
    return padding;
}

uint32_t plim_hf_causal_mask(plim_hf *h, plim_hf_mask m)
{
    plim_nn *n = &h->n;
    if (h->version < PLIM_HF_SINCE_MASK_FUNCTIONS)
        return earlier_mask(h, m);
    uint32_t padding = padding_mask(h, m), packing = PLIM_NONE;
    refuse_windows(h, m);
    if (m.positions != PLIM_NONE && !h->caching && padding == PLIM_NONE)
        packing = look_for_packing(h, m.positions);
    h->mask = PLIM_NONE;
    if (h->flash && !h->eager)
        return h->mask = flash_mask(h, padding);
    if (!needs_mask(h, m, padding, packing))
        return PLIM_NONE;
    uint32_t mask = h->mask = bool_mask(h, m, padding, packing);
    if (h->contexts > 1) { /* accelerate's hooks take it from the model's attention */
        plim_nn_holds(n, h->unused = mask);
        return h->mask = PLIM_NONE;
    }
    if (h->eager)
        mask = h->mask = eager_mask(n, mask);
    else if (
        cache_room(
            h,
            0)) /* generate() makes it before the model runs, so that this can be compiled */
        mask = h->mask = plim_nn_contiguous(n, mask);
    if (!cache_room(h, 0))
        plim_nn_holds(n, mask); /* a variable of the model's forward */
    return mask;
}

/* Of ones; sdpa does without it. */
static uint32_t earlier_full_mask(plim_hf *h)
{
    plim_nn *n = &h->n;
    if (h->bind->padded)
        plim_nn_fail(
            n, PLIM_EUNSUPPORTED,
            "masks of padded sequences are not known as transformers %d.%d makes them",
            h->version / 100, h->version % 100);
    uint32_t ones = plim_hf_ones(h, PLIM_F32, h->seq);
    if (h->eager)
        return h->mask = plim_hf_numbers(h, ones);
    ones = NN_OP(n, "aten.eq.Scalar", ARG_T("self", ones), ARG_I("other", 1));
    plim_nn_unary(n, "aten.all.default", ones);
    return PLIM_NONE;
}

uint32_t plim_hf_full_mask(plim_hf *h)
{
    const plim_hf_mask full = {.full = true};
    if (h->version < PLIM_HF_SINCE_MASK_FUNCTIONS)
        return earlier_full_mask(h);
    uint32_t padding = padding_mask(h, full);
    if (padding == PLIM_NONE)
        return PLIM_NONE;
    if (h->flash && !h->eager)
        return h->mask = flash_mask(h, padding);
    plim_nn_unary(&h->n, "aten.all.default", padding); /* is there any? */
    uint32_t mask = bool_mask(h, full, padding, PLIM_NONE);
    return h->mask = h->eager ? eager_mask(&h->n, mask) : mask;
}

/* ---- modules ----------------------------------------------------------------------------- */

static uint32_t normalize_rows(plim_nn *n, uint32_t x, double eps, uint32_t *variance)
{
    uint32_t v = NN_OP(n, "aten.pow.Tensor_Scalar", ARG_T("self", x), ARG_I("exponent", 2));
    v = *variance = NN_OP(n, "aten.mean.dim", ARG_T("self", v), ARG_IS("dim", INTS(-1)),
                          ARG_I("keepdim", 1));
    v = plim_nn_scalar(n, "aten.add.Tensor", v, eps);
    v = plim_nn_unary(n, "aten.rsqrt.default", v);
    return plim_nn_binary(n, "aten.mul.Tensor", x, v);
}

uint32_t plim_hf_normalized(plim_nn *n, uint32_t x, double eps)
{
    uint32_t variance, y = normalize_rows(n, x, eps, &variance);
    plim_nn_called(n, (uint32_t[]){variance, y}, 2); /* variables, until it returns */
    return y;
}

uint32_t plim_hf_rms_norm(plim_nn *n, const char *name, const char *type, uint32_t x,
                          double eps)
{
    plim_nn_enter(n, name, type);
    uint32_t w = plim_nn_param(n, "weight", INTS(plim_nn_dim(n, x, -1)));
    uint32_t y = plim_hf_normalized(n, plim_nn_to(n, x, PLIM_F32), eps);
    y = plim_nn_to_like(n, y, x);
    y = plim_nn_binary(n, "aten.mul.Tensor", w, y);
    plim_nn_leave(n);
    return y;
}

uint32_t plim_hf_rms_norm_wide(plim_nn *n, const char *name, const char *type, uint32_t x,
                               double eps)
{
    plim_nn_enter(n, name, type);
    uint32_t w = plim_nn_param(n, "weight", INTS(plim_nn_dim(n, x, -1)));
    uint32_t y = plim_hf_normalized(n, plim_nn_to(n, x, PLIM_F32), eps);
    y = plim_nn_to_like(n, plim_nn_binary(n, "aten.mul.Tensor", w, y), x);
    plim_nn_leave(n);
    return y;
}

uint32_t plim_hf_rms_norm_1p_narrow(plim_nn *n, const char *name, const char *type, uint32_t x,
                                    double eps)
{
    plim_nn_enter(n, name, type);
    uint32_t w = plim_nn_param(n, "weight", INTS(plim_nn_dim(n, x, -1)));
    uint32_t variance, y = normalize_rows(n, plim_nn_to(n, x, PLIM_F32), eps, &variance);
    y = plim_nn_to_like(n, y, x);
    y = plim_nn_binary(n, "aten.mul.Tensor", y, plim_nn_scalar(n, "aten.add.Tensor", w, 1));
    plim_nn_leave(n);
    return y;
}

uint32_t plim_hf_rms_norm_1p(plim_nn *n, const char *name, const char *type, uint32_t x,
                             double eps)
{
    plim_nn_enter(n, name, type);
    uint32_t w = plim_nn_param(n, "weight", INTS(plim_nn_dim(n, x, -1)));
    uint32_t variance, y = normalize_rows(n, plim_nn_to(n, x, PLIM_F32), eps, &variance);
    w = plim_nn_scalar(n, "aten.add.Tensor", plim_nn_to_like(n, w, y), 1);
    y = plim_nn_binary(n, "aten.mul.Tensor", y, w);
    y = plim_nn_to_like(n, y, x);
    plim_nn_leave(n);
    return y;
}

/* 0.5 x (1 + tanh(sqrt(2 / pi) (x + 0.044715 x^3))), op by op */
static uint32_t new_gelu(plim_nn *n, uint32_t x)
{
    uint32_t half = plim_nn_scalar(n, "aten.mul.Tensor", x, 0.5);
    uint32_t y = NN_OP(n, "aten.pow.Tensor_Scalar", ARG_T("self", x), ARG_F("exponent", 3));
    y = plim_nn_scalar(n, "aten.mul.Tensor", y, 0.044715);
    y = plim_nn_binary(n, "aten.add.Tensor", x, y);
    y = plim_nn_scalar(n, "aten.mul.Tensor", y, 0.7978845608028654);
    y = plim_nn_unary(n, "aten.tanh.default", y);
    y = plim_nn_scalar(n, "aten.add.Tensor", y, 1);
    return plim_nn_binary(n, "aten.mul.Tensor", half, y);
}

static uint32_t gelu_tanh(plim_nn *n, uint32_t x)
{
    const plim_named_arg a[] = {
        ARG_T("self", x),
        {PLIM_STR("approximate"), {.kind = PLIM_ARG_STR, .str = PLIM_STR("tanh")}}};
    return plim_nn_op(n, "aten.gelu.default", a, PLIM_COUNT(a));
}

/* 0.5 x (1 + tanh(0.7978845608 x (1 + 0.044715 x x))), op by op */
static uint32_t fast_gelu(plim_nn *n, uint32_t x)
{
    uint32_t half = plim_nn_scalar(n, "aten.mul.Tensor", x, 0.5);
    uint32_t scaled = plim_nn_scalar(n, "aten.mul.Tensor", x, 0.7978845608);
    uint32_t y = plim_nn_scalar(n, "aten.mul.Tensor", x, 0.044715);
    y = plim_nn_binary(n, "aten.mul.Tensor", y, x);
    y = plim_nn_scalar(n, "aten.add.Tensor", y, 1);
    y = plim_nn_binary(n, "aten.mul.Tensor", scaled, y);
    y = plim_nn_unary(n, "aten.tanh.default", y);
    y = plim_nn_scalar(n, "aten.add.Tensor", y, 1);
    return plim_nn_binary(n, "aten.mul.Tensor", half, y);
}

static uint32_t quick_gelu(plim_nn *n, uint32_t x)
{
    uint32_t y = plim_nn_scalar(n, "aten.mul.Tensor", x, 1.702);
    return plim_nn_binary(n, "aten.mul.Tensor", x,
                          plim_nn_unary(n, "aten.sigmoid.default", y));
}

static const struct {
    const char *name, *type, *target;
    uint32_t (*run)(plim_nn *n, uint32_t x); /* if it is not a single op */
} acts[] = {
    {"silu", "SiLUActivation", "aten.silu.default", NULL},
    {"swish", "SiLUActivation", "aten.silu.default", NULL},
    {"gelu", "GELUActivation", "aten.gelu.default", NULL},
    {"gelu_pytorch_tanh", "GELUTanh", NULL, gelu_tanh},
    {"gelu_new", "NewGELUActivation", NULL, new_gelu},
    {"gelu_fast", "FastGELUActivation", NULL, fast_gelu},
    {"quick_gelu", "QuickGELUActivation", NULL, quick_gelu},
    {"relu", "ReLU", "aten.relu.default", NULL},
    {"tanh", "Tanh", "aten.tanh.default", NULL},
};

uint32_t plim_hf_act(plim_hf *h, const char *name, plim_str act, uint32_t x)
{
    plim_nn *n = &h->n;
    for (size_t i = 0; i < PLIM_COUNT(acts); i++) {
        if (!plim_str_is(act, acts[i].name))
            continue;
        plim_nn_enter(n, name, acts[i].type);
        x = acts[i].run ? acts[i].run(n, x) : plim_nn_unary(n, acts[i].target, x);
        plim_nn_leave(n);
        return x;
    }
    plim_nn_fail(n, PLIM_EUNSUPPORTED, "activation '" PLIM_STR_FMT "' is not supported",
                 (int)PLIM_MIN(act.n, (size_t)40), act.p);
    return PLIM_NONE;
}

uint32_t plim_hf_mlp(plim_hf *h, plim_hf_ffn names, plim_str act, uint32_t x, int64_t ffn,
                     bool bias)
{
    int64_t width = plim_nn_dim(&h->n, x, -1);
    x = plim_nn_linear(&h->n, names.in, x, ffn, bias);
    x = plim_hf_act(h, names.act, act, x);
    return plim_nn_linear(&h->n, names.out, x, width, bias);
}

uint32_t plim_hf_gated_mlp(plim_hf *h, const char *name, const char *type, plim_str act,
                           uint32_t x, int64_t ffn, bool bias)
{
    plim_nn *n = &h->n;
    int64_t width = plim_nn_dim(n, x, -1);
    plim_nn_enter(n, name, type);
    uint32_t gate = plim_nn_linear(n, "gate_proj", x, ffn, bias);
    gate = plim_hf_act(h, "act_fn", act, gate);
    uint32_t up = plim_nn_linear(n, "up_proj", x, ffn, bias);
    x = plim_nn_binary(n, "aten.mul.Tensor", gate, up);
    x = plim_nn_linear(n, "down_proj", x, width, bias);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_hf_softmax32(plim_nn *n, uint32_t x, int64_t dim)
{
    return NN_OP(n, "aten.softmax.int", ARG_T("self", x), ARG_I("dim", dim),
                 ARG_I("dtype", PLIM_F32));
}

/* ---- rotary positions --------------------------------------------------------------------- */

/* positions times frequencies, [1, seq, dim / 2]; in module "rotary_emb" */
uint32_t plim_hf_angles(plim_hf *h, const char *kind, uint32_t positions, int64_t dim)
{
    plim_nn *n = &h->n;
    uint32_t freq =
        plim_nn_fp32_buffer(n, plim_nn_join(n, kind, "inv_freq"), INTS(dim / 2), false);
    if (h->version >= PLIM_HF_SINCE_ORIGINAL_FREQUENCIES)
        plim_nn_fp32_buffer(n, plim_nn_join(n, kind, "original_inv_freq"), INTS(dim / 2),
                            false);
    bool product = h->version < PLIM_HF_SINCE_ROPE_BY_MUL;
    uint32_t p = plim_nn_to(n, plim_nn_unsqueeze(n, positions, product ? 1 : 2), PLIM_F32);
    freq = plim_nn_to(n, freq, PLIM_F32);
    if (!product)
        return plim_nn_binary(n, "aten.mul.Tensor", p, freq);
    plim_nn_holds(n, p); /* variables, until it returns */
    freq = plim_nn_unsqueeze(n, plim_nn_unsqueeze(n, freq, 0), 2);
    freq = plim_nn_expand(n, freq, INTS(plim_nn_dim(n, p, 0), -1, 1));
    p = NN_OP(n, "transformers.rotary_angles.default", ARG_T("frequencies", freq),
              ARG_T("positions", p));
    plim_nn_holds(n, p);
    return plim_nn_transpose(n, p, 1, 2);
}

static plim_hf_rope rope_tables(plim_nn *n, uint32_t angle, uint32_t x, bool scaled)
{
    plim_hf_rope r;
    r.cos = plim_nn_unary(n, "aten.cos.default", angle);
    if (scaled)
        r.cos = plim_nn_scalar(n, "aten.mul.Tensor", r.cos, 1);
    r.sin = plim_nn_unary(n, "aten.sin.default", angle);
    if (scaled)
        r.sin = plim_nn_scalar(n, "aten.mul.Tensor", r.sin, 1);
    r.cos = plim_nn_to_like(n, r.cos, x);
    r.sin = plim_nn_to_like(n, r.sin, x);
    return r;
}

plim_hf_rope plim_hf_rotary(plim_hf *h, const char *type, const char *kind, uint32_t x,
                            uint32_t positions, int64_t dim)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "rotary_emb", type);
    uint32_t p = plim_hf_angles(h, kind, positions, dim);
    plim_hf_rope r = rope_tables(n, plim_nn_cat(n, (uint32_t[]){p, p}, 2, -1), x, true);
    plim_nn_leave(n);
    return r;
}

plim_hf_rope plim_hf_rotary_in_layer(plim_hf *h, uint32_t x, uint32_t positions, int64_t dim)
{
    plim_nn *n = &h->n;
    uint32_t p = plim_hf_angles(h, "", positions, dim);
    return rope_tables(n, plim_nn_cat(n, (uint32_t[]){p, p}, 2, -1), x, false);
}

plim_hf_rope plim_hf_rotary_halves(plim_hf *h, const char *type, uint32_t x,
                                   uint32_t positions, int64_t dim)
{
    plim_nn_enter(&h->n, "rotary_emb", type);
    plim_hf_rope r = rope_tables(&h->n, plim_hf_angles(h, "", positions, dim), x, true);
    plim_nn_leave(&h->n);
    return r;
}

plim_hf_rope plim_hf_rope_heads(plim_nn *n, plim_hf_rope r)
{
    r.cos = plim_nn_unsqueeze(n, r.cos, 1);
    r.sin = plim_nn_unsqueeze(n, r.sin, 1);
    return r;
}

void plim_hf_apply_rope(plim_nn *n, uint32_t a, uint32_t b, plim_hf_rope r, uint32_t out[2])
{
    uint32_t ac = plim_nn_binary(n, "aten.mul.Tensor", a, r.cos);
    uint32_t bs = plim_nn_binary(n, "aten.mul.Tensor", b, r.sin);
    out[0] = plim_nn_binary(n, "aten.sub.Tensor", ac, bs);
    uint32_t bc = plim_nn_binary(n, "aten.mul.Tensor", b, r.cos);
    uint32_t as = plim_nn_binary(n, "aten.mul.Tensor", a, r.sin);
    out[1] = plim_nn_binary(n, "aten.add.Tensor", bc, as);
}

uint32_t plim_hf_rotate(plim_nn *n, uint32_t x, plim_hf_rope r)
{
    int64_t half = plim_nn_dim(n, x, -1) / 2;
    uint32_t y = plim_nn_binary(n, "aten.mul.Tensor", x, r.cos);
    uint32_t a = plim_nn_slice(n, x, 3, 0, half, 1);
    uint32_t b = plim_nn_slice(n, x, 3, half, INT64_MAX, 1);
    b = plim_nn_unary(n, "aten.neg.default", b);
    b = plim_nn_cat(n, (uint32_t[]){b, a}, 2, -1);
    b = plim_nn_binary(n, "aten.mul.Tensor", b, r.sin);
    return plim_nn_binary(n, "aten.add.Tensor", y, b);
}

uint32_t plim_hf_rotated_part(plim_nn *n, uint32_t x, plim_hf_rope r, uint32_t *rest)
{
    int64_t dim = plim_nn_dim(n, r.cos, -1);
    uint32_t part =
        dim == plim_nn_dim(n, x, -1) /* [..., :dim] of all elements is not a slice */
            ? plim_nn_unary(n, "aten.alias.default", x)
            : plim_nn_slice(n, x, 3, 0, dim, 1);
    *rest = plim_nn_slice(n, x, 3, dim, INT64_MAX, 1);
    return part;
}

void plim_hf_rotate_parts(plim_nn *n, uint32_t *q, uint32_t *k, plim_hf_rope r, bool own)
{
    uint32_t rest[2], turned[2];
    const uint32_t was[2] = {*q, *k};
    *q = plim_hf_rotated_part(n, *q, r, &rest[0]);
    *k = plim_hf_rotated_part(n, *k, r, &rest[1]);
    turned[0] = plim_hf_rotate(n, *q, r);
    turned[1] = plim_hf_rotate(n, *k, r);
    *q = plim_nn_cat(n, (uint32_t[]){turned[0], rest[0]}, 2, -1);
    if (own) /* a variable that gets the result */
        plim_hf_end_variable(n, turned[0]);
    *k = plim_nn_cat(n, (uint32_t[]){turned[1], rest[1]}, 2, -1);
    plim_hf_end_variables(n, was, 2);
    for (int i = 0; i < 2 && !own; i++) { /* the caller's variables */
        plim_nn_holds(n, turned[i]);
        plim_nn_holds(n, rest[i]);
    }
}

uint32_t plim_hf_rotate_halves(plim_nn *n, uint32_t x, plim_hf_rope r)
{
    uint32_t half[2], turned[2];
    plim_nn_chunk(n, x, 2, -1, half);
    plim_hf_apply_rope(n, half[0], half[1], r, turned);
    return plim_nn_cat(n, turned, 2, -1);
}

/* ---- attention ---------------------------------------------------------------------------------- */

static uint32_t repeat_kv(plim_nn *n, uint32_t x, int64_t times)
{
    int64_t b = plim_nn_dim(n, x, 0), s = plim_nn_dim(n, x, 2), d = plim_nn_dim(n, x, 3);
    if (times == 1)
        return x;
    x = plim_nn_unsqueeze(n, x, 2);
    x = plim_nn_expand(n, x, INTS(b, -1, times, s, d)); /* -1: heads may be divided later */
    return plim_nn_reshape(n, x, INTS(b, -1, s, d));
}

void plim_hf_repeat_keys(plim_nn *n, plim_hf_attention *a)
{
    const int64_t groups = plim_nn_dim(n, a->q, 1) / plim_nn_dim(n, a->k, 1);
    a->k = repeat_kv(n, a->k, groups);
    a->v = repeat_kv(n, a->v, groups);
}

/* transpose(1, 2).contiguous() */
static uint32_t tokens_first(plim_nn *n, uint32_t x)
{
    return plim_nn_contiguous(n, plim_nn_transpose(n, x, 1, 2));
}

/* Heads of queries that share keys: as they are, as queries of one head, or with keys for each.
 * src: use_gqa_in_sdpa, pack_gqa */
static bool share_keys(plim_nn *n, int version, plim_hf_attention *a)
{
    int64_t b = plim_nn_dim(n, a->q, 0), heads = plim_nn_dim(n, a->q, 1),
            shared = plim_nn_dim(n, a->k, 1), width = plim_nn_dim(n, a->k, 3);
    if (heads == shared)
        return false;
    if (version >= PLIM_HF_SINCE_SHARED_KEYS && a->mask == PLIM_NONE &&
        width == plim_nn_dim(n, a->v, 3) && width <= 256)
        return true;
    if (version >= PLIM_HF_SINCE_ATTENTION_AS_GIVEN && plim_nn_dim(n, a->q, 2) == 1)
        a->q = plim_nn_reshape(n, a->q, INTS(b, shared, heads / shared, width));
    else {
        a->k = repeat_kv(n, a->k, heads / shared);
        a->v = repeat_kv(n, a->v, heads / shared);
    }
    return false;
}

static void make_contiguous(plim_nn *n, plim_hf_attention *a)
{
    a->q = plim_nn_contiguous(n, a->q);
    a->k = plim_nn_contiguous(n, a->k);
    a->v = plim_nn_contiguous(n, a->v);
}

static uint32_t attend_sdpa(plim_hf *h, plim_hf_attention a)
{
    plim_nn *n = &h->n;
    int64_t b = plim_nn_dim(n, a.q, 0), s = plim_nn_dim(n, a.q, 2);
    bool masked = a.mask != PLIM_NONE, gqa = share_keys(n, h->version, &a);
    const bool copies =
        plim_hf_follows(h, PLIM_HF_FUNCTIONS) && h->version < PLIM_HF_SINCE_ATTENTION_AS_GIVEN;
    if (copies || (masked && !plim_hf_follows(h, PLIM_HF_FUNCTIONS)))
        make_contiguous(n, &a);
    if (!masked && a.causal && s > 1 && plim_nn_dim(n, a.k, 2) > s) { /* of a static cache */
        a.k = plim_nn_slice(n, a.k, 2, 0, s, 1);
        a.v = plim_nn_slice(n, a.v, 2, 0, s, 1);
    }
    const plim_named_arg args[] = {ARG_T("query", a.q),
                                   ARG_T("key", a.k),
                                   ARG_T("value", a.v),
                                   ARG_F("dropout_p", n->infer ? 0 : a.dropout),
                                   ARG_I("is_causal", !masked && a.causal && s > 1),
                                   ARG_F("scale", a.scale),
                                   ARG_I("enable_gqa", gqa),
                                   ARG_T("attn_mask", a.mask)};
    uint32_t x = plim_nn_op(n, "aten.scaled_dot_product_attention.default", args,
                            (uint32_t)PLIM_COUNT(args) - !masked);
    x = plim_nn_reshape(n, x, INTS(b, -1, s, plim_nn_dim(n, x, 3)));
    x = tokens_first(n, x);
    if (copies) /* which are variables of the function */
        plim_hf_end_variables(n, (uint32_t[]){a.q, a.k, a.v}, 3);
    return x;
}

/* _is_packed_sequence: whether positions start again within a row, which each layer looks up. */
static bool looks_packed(plim_hf *h)
{
    plim_nn *n = &h->n;
    if (h->positions == PLIM_NONE || h->batch != 1 || h->seq == 1)
        return false;
    uint32_t x = plim_nn_arange(n, h->seq);
    uint32_t rising = plim_nn_binary(n, "aten.add.Tensor", x,
                                     plim_nn_unary(n, "aten.min.default", h->positions));
    x = plim_nn_binary(n, "aten.sub.Tensor", rising, h->positions);
    x = plim_nn_unary(n, "aten.sum.default", plim_nn_unary(n, "aten.abs.default", x));
    plim_nn_to(n, x, PLIM_BOOL);
    plim_hf_end_variable(n, rising);
    return h->bind->packed;
}

/* prepare_fa_kwargs_from_position_ids: where each of two sequences begins, and where the last ends. */
static uint32_t find_starts(plim_hf *h, uint32_t *longest)
{
    enum { SEQUENCES = 2 };
    plim_nn *n = &h->n;
    uint32_t at = plim_nn_reshape(n, h->positions, INTS(-1));
    uint32_t first =
        plim_nn_binary(n, "aten.eq.Tensor", at, plim_nn_unary(n, "aten.min.default", at));
    first = NN_OP(n, "transformers.true_places.default", ARG_T("self", first),
                  ARG_I("count", SEQUENCES));
    first = plim_nn_view(n, first, INTS(-1));
    const plim_named_arg end[] = {ARG_T("self", first), ARG_IS("size", INTS(1)),
                                  ARG_I("dtype", PLIM_I32)};
    uint32_t part[2];
    part[0] = plim_nn_to(n, first, PLIM_I32);
    part[1] = plim_nn_op(n, "aten.new_zeros.default", end, PLIM_COUNT(end));
    uint32_t starts = plim_nn_cat(n, part, 2, 0);
    uint32_t lengths = NN_OP(n, "aten.diff.default", ARG_T("self", starts), ARG_I("n", 1));
    *longest = plim_nn_unary(n, "aten.max.default", lengths);
    plim_hf_end_variable(n, first);
    return starts;
}

static uint32_t tokens_in_a_row(plim_nn *n, uint32_t x)
{
    x = tokens_first(n, x);
    return plim_nn_view(n, x, INTS(-1, plim_nn_dim(n, x, 2), plim_nn_dim(n, x, 3)));
}

static uint32_t call_flash(plim_hf *h, const plim_hf_attention *a, uint32_t starts,
                           uint32_t longest)
{
    const plim_named_arg args[] = {
        ARG_T("query", a->q),    ARG_T("key", a->k),
        ARG_T("value", a->v),    ARG_F("dropout_p", h->n.infer ? 0 : a->dropout),
        ARG_T("starts", starts), ARG_T("longest", longest)};
    const uint32_t given = starts == PLIM_NONE ? 4 : longest == PLIM_NONE ? 5 : 6;
    return plim_nn_op(&h->n, "transformers.flash_attention.default", args, given);
}

static uint32_t attend_packed(plim_hf *h, plim_hf_attention a)
{
    plim_nn *n = &h->n;
    const int64_t size = plim_nn_dim(n, a.q, 3), heads = plim_nn_dim(n, a.q, 1);
    a.q = tokens_in_a_row(n, a.q);
    a.k = tokens_in_a_row(n, a.k);
    a.v = tokens_in_a_row(n, a.v);
    uint32_t longest, starts = find_starts(h, &longest);
    uint32_t y = plim_nn_view(n, call_flash(h, &a, starts, longest), INTS(1, -1, heads, size));
    plim_hf_end_variables(n, (uint32_t[]){a.q, a.k, a.v, starts, longest}, 5);
    return y;
}

/* _get_unpad_data: where the sequences begin without their padding; *places: of their tokens. */
static uint32_t find_tokens(plim_hf *h, uint32_t mask, uint32_t *places)
{
    plim_nn *n = &h->n;
    const plim_named_arg sum[] = {ARG_T("self", mask), ARG_IS("dim", INTS(-1)),
                                  ARG_I("dtype", PLIM_I32)};
    uint32_t lengths = plim_nn_op(n, "aten.sum.dim_IntList", sum, PLIM_COUNT(sum));
    *places = NN_OP(
        n, "transformers.true_places.default", ARG_T("self", mask),
        ARG_I("count", PLIM_MAX(h->batch * h->seq - 1, 1))); /* at least one is padding */
    *places = plim_nn_view(n, *places, INTS(-1));
    plim_nn_unary(n, "aten.max.default", lengths);
    uint32_t starts = NN_OP(n, "aten.cumsum.default", ARG_T("self", lengths), ARG_I("dim", 0),
                            ARG_I("dtype", PLIM_I32));
    starts = plim_nn_pad(n, starts, INTS(1, 0));
    plim_hf_end_variable(n, lengths);
    return starts;
}

/* Of [batch, heads, tokens, size], the tokens at those places. */
static uint32_t take_tokens(plim_nn *n, uint32_t x, uint32_t places)
{
    x = plim_nn_transpose(n, x, 1, 2);
    x = plim_nn_reshape(n, x, INTS(-1, plim_nn_dim(n, x, 2), plim_nn_dim(n, x, 3)));
    return NN_OP(n, "aten.index.Tensor", ARG_T("self", x), ARG_TS("indices", &places, 1));
}

/* Attention without padding, which then is there again, as zeros. */
static uint32_t attend_padded(plim_hf *h, plim_hf_attention a)
{
    plim_nn *n = &h->n;
    uint32_t places, starts = find_tokens(h, a.mask, &places);
    const int64_t size = plim_nn_dim(n, a.q, 3), heads = plim_nn_dim(n, a.q, 1);
    a.k = take_tokens(n, a.k, places);
    a.v = take_tokens(n, a.v, places);
    a.q = take_tokens(n, a.q, places);
    uint32_t y = call_flash(h, &a, starts, PLIM_NONE);
    uint32_t all = NN_OP(n, "transformers.put_rows.default", ARG_T("values", y),
                         ARG_T("places", places), ARG_I("rows", h->batch * h->seq));
    plim_hf_end_variables(n, (uint32_t[]){a.q, a.k, a.v, starts, places, y}, 6);
    return plim_nn_view(n, all, INTS(h->batch, h->seq, heads, size));
}

/* flash_attention_forward */
static uint32_t attend_flash(plim_hf *h, plim_hf_attention a)
{
    plim_nn *n = &h->n;
    const int64_t size = plim_nn_dim(n, a.q, 3), of_values = plim_nn_dim(n, a.v, 3);
    if (size != of_values)
        a.v = plim_nn_pad(n, a.v, INTS(0, size - of_values));
    uint32_t y = a.mask != PLIM_NONE ? attend_padded(h, a)
                 : looks_packed(h)   ? attend_packed(h, a)
                                     : call_flash(h, &a, PLIM_NONE, PLIM_NONE);
    plim_hf_end_variable(n, a.v); /* a variable, until it returns */
    return size == of_values ? y : plim_nn_slice(n, y, 3, 0, of_values, 1);
}

static void keep_cached(plim_hf *h, const uint32_t *value, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        if (!PLIM_PUSH_ROOM(h->n.g->arena, h->cached, h->n_cached, h->cap_cached)) {
            plim_hf_oom(&h->n);
            return;
        }
        h->cached[h->n_cached++] = value[i];
    }
}

/* All of the cache is there from the first token on. */
static void update_static_cache(plim_hf *h, uint32_t *k, uint32_t *v, int64_t room)
{
    uint32_t out[3];
    const plim_named_arg a[] = {ARG_T("keys", *k), ARG_T("values", *v), ARG_I("room", room)};
    plim_nn_node(&h->n, "transformers.static_cache_update.default", a, PLIM_COUNT(a), out, 3);
    keep_cached(h, out, 3);
    if (h->seq > room) /* which is a window: the tokens attend to one another */
        return;
    *k = out[0];
    *v = out[1];
}

void plim_hf_update_cache(plim_hf *h, uint32_t *k, uint32_t *v, int64_t window)
{
    if (!h->caching)
        return;
    if (h->version < PLIM_HF_SINCE_CACHE_COPIES) {
        keep_cached(h, (uint32_t[]){*k, *v}, 2);
        return;
    }
    if (cache_room(h, window)) {
        update_static_cache(h, k, v, cache_room(h, window));
        return;
    }
    uint32_t out[3], n = window ? 3 : 2;
    const plim_named_arg a[] = {
        ARG_T("keys", *k), ARG_T("values", *v), ARG_I("window", window > 0),
        ARG_I("own_types", h->version >= PLIM_HF_SINCE_TYPES_OF_VALUES)};
    plim_nn_node(&h->n, "transformers.cache_update.default", a, PLIM_COUNT(a), out, n);
    keep_cached(h, out, n);
    *k = out[0];
    *v = out[1];
}

void plim_hf_end_variables(plim_nn *n, const uint32_t *id, size_t count)
{
    for (size_t i = 0; i < count; i++)
        plim_nn_ends(n, id[i]);
}

void plim_hf_end_variable(plim_nn *n, uint32_t id) { plim_hf_end_variables(n, &id, 1); }

/* gpt-oss: one more column, which only enters the sum; *combined: a variable of the caller */
static uint32_t sink_softmax(plim_nn *n, uint32_t w, uint32_t sinks, uint32_t *combined)
{
    uint32_t top[2];
    int64_t b = plim_nn_dim(n, w, 0), s = plim_nn_dim(n, w, 2);
    sinks = plim_nn_reshape(n, sinks, INTS(1, -1, 1, 1));
    sinks = plim_nn_expand(n, sinks, INTS(b, -1, s, -1));
    w = plim_nn_cat(n, (uint32_t[]){w, sinks}, 2, -1);
    const plim_named_arg a[] = {ARG_T("self", w), ARG_I("dim", -1), ARG_I("keepdim", 1)};
    plim_nn_node(n, "aten.max.dim", a, PLIM_COUNT(a), top, 2);
    *combined = plim_nn_binary(n, "aten.sub.Tensor", w, top[0]);
    w = plim_nn_softmax(n, *combined, -1);
    return plim_nn_slice(n, w, 3, 0, -1, 1);
}

/* eager_attention_forward */
static uint32_t run_eager(plim_hf *h, plim_hf_attention a)
{
    plim_nn *n = &h->n;
    const bool own =
        plim_hf_follows(h, PLIM_HF_FUNCTIONS); /* else its variables are the module's */
    int64_t groups = plim_nn_dim(n, a.q, 1) / plim_nn_dim(n, a.k, 1);
    a.k = repeat_kv(n, a.k, groups);
    a.v = repeat_kv(n, a.v, groups);
    uint32_t kt = plim_nn_transpose(n, a.k, 2, 3);
    uint32_t w = plim_nn_binary(n, "aten.matmul.default", a.q, kt);
    w = plim_nn_scalar(n, "aten.mul.Tensor", w, a.scale);
    if (a.softcap > 0) {
        w = plim_nn_scalar(n, "aten.div.Tensor", w, a.softcap);
        w = plim_nn_unary(n, "aten.tanh.default", w);
        w = plim_nn_scalar(n, "aten.mul.Tensor", w, a.softcap);
    }
    if (a.biased)
        w = plim_nn_binary(n, own ? "aten.add.Tensor" : "aten.add_.Tensor", w, a.bias);
    if (a.mask != PLIM_NONE)
        w = plim_nn_binary(n, "aten.add.Tensor", w, a.mask);
    uint32_t combined = PLIM_NONE, scores = w;
    if (a.sinks != PLIM_NONE) {
        w = sink_softmax(n, w, a.sinks, &combined);
        w = plim_nn_dropout_op(n, w, a.dropout);
        w = plim_nn_to_like(n, w, a.v);
        plim_hf_end_variables(n, &scores, 1);
    } else {
        if (!own && a.keeps_scores)
            plim_nn_holds(n, w);
        if (a.softmax == PLIM_HF_SOFTMAX_FLOAT)
            w = plim_nn_to(n, w, PLIM_F32);
        w = a.softmax == PLIM_HF_SOFTMAX_FP32 ? plim_hf_softmax32(n, w, -1)
                                              : plim_nn_softmax(n, w, -1);
        if (a.softmax != PLIM_HF_SOFTMAX_PLAIN)
            w = plim_nn_to_like(n, w, a.v); /* in the dtype of q, which is freed earlier */
        w = plim_nn_dropout_op(n, w, a.dropout);
    }
    if (own)
        plim_nn_returned(n, w, a.through);
    else
        plim_nn_holds(n, w);
    uint32_t y = tokens_first(n, plim_nn_binary(n, "aten.matmul.default", w, a.v));
    if (own)
        plim_hf_end_variables(n, (uint32_t[]){a.k, a.v}, 2);
    plim_hf_end_variables(n, &combined, combined != PLIM_NONE);
    return y;
}

void plim_hf_attends(plim_hf *h)
{
    h->n.g->about.attention = h->eager   ? PLIM_STR("eager")
                              : h->flash ? PLIM_STR("flash")
                                         : PLIM_STR("sdpa");
}

uint32_t plim_hf_attend(plim_hf *h, plim_hf_attention a)
{
    plim_hf_attends(h);
    return h->eager ? run_eager(h, a) : h->flash ? attend_flash(h, a) : attend_sdpa(h, a);
}

/* ---- heads ------------------------------------------------------------------------------------------ */

uint32_t plim_hf_lm_head(plim_hf *h, uint32_t x, int64_t vocab, uint32_t embedding, bool bias)
{
    plim_nn *n = &h->n;
    h->hidden = x;
    if (h->contexts == 1)
        plim_nn_holds(n, x); /* hidden_states */
    /* hidden_states[:, slice_indices, :] */
    x = h->bind->prompts && h->version >= PLIM_HF_SINCE_LAST_LOGITS
            ? plim_nn_slice(n, x, 1, h->seq - 1, INT64_MAX, 1)
            : plim_nn_unary(n, "aten.alias.default", x);
    if (embedding == PLIM_NONE)
        return plim_nn_linear(n, "lm_head", x, vocab, bias);
    plim_nn_enter(n, "lm_head", "Linear");
    uint32_t w = plim_nn_tie(n, "weight", embedding);
    uint32_t b = bias ? plim_nn_param(n, "bias", INTS(vocab)) : PLIM_NONE;
    x = plim_nn_linear_op(n, x, w, b);
    plim_nn_leave(n);
    return x;
}

/* A part of the tokens does not have its neighbours' labels: these are shifted before. */
static uint32_t shift_labels(plim_hf *h, uint32_t labels)
{
    plim_nn *n = &h->n;
    if (h->contexts > 1)
        return token_input(h, "shift_labels");
    labels = NN_OP(n, "aten.pad.default", ARG_T("self", labels), ARG_IS("pad", INTS(0, 1)),
                   ARG_F("value", -100));
    plim_nn_called(n, (uint32_t[]){h->hidden, labels}, 2); /* variables, until it returns */
    labels = plim_nn_slice(n, labels, 1, 1, INT64_MAX, 1);
    return plim_nn_contiguous(n, labels);
}

uint32_t plim_hf_word_labels(plim_hf *h)
{
    plim_graph *g = h->n.g;
    if (h->n.infer)
        return PLIM_NONE;
    g->labels_are_inputs =
        h->bind->labels_are_inputs && !plim_hf_bound_shape(h, "labels", false);
    return g->labels_are_inputs ? h->ids : token_input(h, "labels");
}

/* logits[..., :-1, :].contiguous() and labels[..., 1:].contiguous() */
static uint32_t shifted_loss(plim_hf *h, uint32_t x, uint32_t labels)
{
    plim_nn *n = &h->n;
    plim_nn_called(n, (uint32_t[]){h->hidden, x}, 2); /* variables, until it returns */
    x = plim_nn_contiguous(n, plim_nn_slice(n, x, 1, 0, -1, 1));
    labels = plim_nn_contiguous(n, plim_nn_slice(n, labels, 1, 1, INT64_MAX, 1));
    plim_nn_hold_all(n, (const uint32_t[]){x, labels}, 2);
    x = plim_nn_view(n, x, INTS(-1, plim_nn_dim(n, x, -1)));
    labels = plim_nn_view(n, labels, INTS(-1));
    return NN_OP(n, "aten.cross_entropy_loss.default", ARG_T("self", x),
                 ARG_T("target", labels), ARG_I("reduction", 1), ARG_I("ignore_index", -100));
}

void plim_hf_causal_outputs(plim_hf *h, uint32_t logits)
{
    plim_nn *n = &h->n;
    const bool cast = plim_hf_follows(h, PLIM_HF_CASTS);
    if (cast && (h->version < PLIM_HF_SINCE_LOGITS_AS_COMPUTED ||
                 (!n->infer && !plim_hf_follows(h, PLIM_HF_LOSS))))
        logits = plim_nn_to(n, logits, PLIM_F32);
    if (n->infer) {
        plim_nn_output(n, logits);
        return;
    }
    uint32_t labels = plim_hf_word_labels(h);
    uint32_t x = cast ? plim_nn_to(n, logits, PLIM_F32) : logits;
    if (h->version < PLIM_HF_SINCE_PADDED_LABELS) {
        plim_nn_output(n, shifted_loss(h, x, labels));
        plim_nn_output(n, logits);
        return;
    }
    labels = shift_labels(h, labels);
    x = plim_nn_view(n, x, INTS(-1, plim_nn_dim(n, x, -1)));
    labels = plim_nn_view(n, labels, INTS(-1));
    plim_nn_output(n, NN_OP(n, "aten.cross_entropy_loss.default", ARG_T("self", x),
                            ARG_T("target", labels), ARG_I("reduction", 1),
                            ARG_I("ignore_index", -100)));
    plim_nn_output(n, logits);
}
