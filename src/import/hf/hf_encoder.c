/* hf_encoder.c -- see hf_encoder.h. */
#include "import/hf/hf_encoder.h"

#include <math.h>

#include "base/json.h"

/* ---- classes ---------------------------------------------------------------------------- */

plim_str plim_hf_class_head(const plim_hf *h, const char *prefix)
{
    plim_str class = h->architecture;
    size_t n = strlen(prefix);
    if (!class.n)
        class = (plim_str){h->family->classes, strcspn(h->family->classes, " ")};
    return class.n < n ? PLIM_STR("") : (plim_str){class.p + n, class.n - n};
}

void plim_hf_root(plim_hf *h, const char *prefix)
{
    char head[64];
    plim_str s = plim_hf_class_head(h, prefix);
    size_t n = PLIM_MIN(s.n, sizeof head - 1);
    memcpy(head, s.p, n);
    head[n] = '\0';
    plim_nn_root(&h->n, plim_nn_join(&h->n, prefix, head));
}

double plim_hf_share_or(plim_hf *h, const char *key, plim_str raw, double other)
{
    plim_json j;
    plim_json_init(&j, raw, NULL); /* it was read before, so there are no errors */
    j.lax = true;
    if (!raw.n)
        return other;
    double v = plim_json_peek(&j) == PLIM_JSON_NUMBER ? plim_json_f64(&j) : -1;
    if (!(v >= 0 && v <= 1))
        plim_hf_not(h, key, raw, "a number in 0..1");
    return v;
}

/* ---- inputs -------------------------------------------------------------------------------- */

void plim_hf_batch(plim_hf *h, const char *first_input)
{
    const struct plim_input_shape *in = plim_hf_bound_shape(h, first_input, true);
    h->batch = in && in->rank ? in->dim[0] : h->bind->batch ? h->bind->batch : 1;
    if (h->batch < 1 || h->batch > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "batch %" PRId64 " is not in 1..%d", h->batch,
                     (int)INT32_MAX);
}

uint32_t plim_hf_pixels(plim_hf *h, plim_dtype t, int64_t channels, const int64_t size[2])
{
    return plim_hf_input(h, "pixel_values", t, INTS(h->batch, channels, size[0], size[1]));
}

uint32_t plim_hf_to_parameters(plim_nn *n, uint32_t x)
{
    return n->st ? PLIM_NONE : plim_nn_to_like(n, x, n->leaves[0].value);
}

/* A builder goes on after an error: what is not a size is 1 for it. */
static int64_t check_size(plim_hf *h, const char *key, int64_t v)
{
    if (v >= 1 && v <= INT32_MAX)
        return v;
    plim_nn_fail(&h->n, PLIM_ERANGE, "'%s' is %" PRId64 ", not in 1..%d", key, v,
                 (int)INT32_MAX);
    return 1;
}

uint32_t plim_hf_list(plim_hf *h, const char *key, plim_str raw, int64_t *out, uint32_t room)
{
    static const char expected[] = "a list of whole numbers";
    plim_json j;
    uint32_t count = 0;
    int64_t v;
    plim_json_init(&j, raw, NULL); /* it was read before, so there are no errors */
    j.lax = true;
    if (!raw.n)
        return 0;
    if (plim_json_peek(&j) != PLIM_JSON_ARRAY) {
        plim_hf_not(h, key, raw, expected);
        return 0;
    }
    plim_json_array(&j);
    for (; plim_json_item(&j) && !h->n.st; count++) {
        if (count == room)
            plim_nn_fail(&h->n, PLIM_ERANGE, "'%s' has more than %u items", key,
                         (unsigned)room);
        else if (!plim_hf_whole(&j, &v))
            plim_hf_not(h, key, raw, expected);
        else
            out[count] = check_size(h, key, v);
    }
    if (!count)
        plim_hf_not(h, key, raw, expected);
    return h->n.st ? 0 : count;
}

void plim_hf_pair(plim_hf *h, const char *key, plim_str raw, int64_t other, int64_t size[2])
{
    plim_json j;
    plim_json_init(&j, raw, NULL);
    j.lax = true;
    size[0] = size[1] = other;
    if (raw.n && plim_json_peek(&j) != PLIM_JSON_ARRAY) {
        if (!plim_hf_whole(&j, &size[0]))
            plim_hf_not(h, key, raw, "a whole number, or a list of two");
        size[1] = size[0];
    } else if (plim_hf_list(h, key, raw, size, 2) == 1) {
        size[1] = size[0];
    }
    for (int i = 0; i < 2; i++)
        size[i] = check_size(h, key, size[i]);
}

int64_t plim_hf_patch(plim_hf *h, plim_str raw, int64_t other, const int64_t image[2])
{
    int64_t side[2];
    plim_hf_pair(h, "patch_size", raw, other, side);
    if (side[0] != side[1])
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                     "patches of %" PRId64 " x %" PRId64 " are not square", side[0], side[1]);
    if (side[0] > PLIM_MIN(image[0], image[1]))
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "a patch of %" PRId64 " does not fit an image of %" PRId64 " x %" PRId64,
                     side[0], image[0], image[1]);
    return PLIM_MAX(side[0], 1);
}

/* ---- attention ---------------------------------------------------------------------------- */

void plim_hf_check_head_width(plim_hf *h, int64_t width, int64_t heads)
{
    if (width % heads)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " heads do not divide a hidden size of %" PRId64, heads,
                     width);
}

uint32_t plim_hf_split_heads(plim_nn *n, uint32_t x, int64_t dim)
{
    x = plim_nn_view(n, x, INTS(plim_nn_dim(n, x, 0), plim_nn_dim(n, x, 1), -1, dim));
    return plim_nn_transpose(n, x, 1, 2);
}

uint32_t plim_hf_join_heads(plim_nn *n, uint32_t x)
{
    return plim_nn_reshape(n, x, INTS(plim_nn_dim(n, x, 0), plim_nn_dim(n, x, 1), -1));
}

uint32_t plim_hf_full_attention(plim_hf *h, plim_hf_attention a)
{
    a.sinks = PLIM_NONE;
    a.scale = 1 / sqrt((double)plim_nn_dim(&h->n, a.q, -1));
    return plim_hf_join_heads(&h->n, plim_hf_attend(h, a));
}

/* ---- heads --------------------------------------------------------------------------------- */

uint32_t plim_hf_tied_linear(plim_nn *n, const char *name, uint32_t x, int64_t out,
                             uint32_t weight, uint32_t bias)
{
    plim_nn_enter(n, name, "Linear");
    weight = weight == PLIM_NONE ? plim_nn_param(n, "weight", INTS(out, plim_nn_dim(n, x, -1)))
                                 : plim_nn_tie(n, "weight", weight);
    bias =
        bias == PLIM_NONE ? plim_nn_param(n, "bias", INTS(out)) : plim_nn_tie(n, "bias", bias);
    x = plim_nn_linear_op(n, x, weight, bias);
    plim_nn_leave(n);
    return x;
}

int64_t plim_hf_n_labels(plim_hf *h, const plim_hf_labels *l)
{
    plim_json j;
    plim_str key;
    int64_t count = 0;
    plim_json_init(&j, l->names, NULL); /* it was read before, so there are no errors */
    j.lax = true;
    if (l->names.n && plim_json_peek(&j) != PLIM_JSON_OBJECT) {
        plim_hf_not(h, "id2label", l->names, "an object");
    } else if (l->names.n) {
        plim_json_object(&j);
        for (; plim_json_member(&j, &key); count++)
            plim_json_skip(&j);
    } else {
        count = l->count;
    }
    if (count < 1)
        plim_nn_fail(&h->n, PLIM_ERANGE, "'%s' has no label",
                     l->names.n ? "id2label" : "num_labels");
    return count;
}

static uint32_t cross_entropy(plim_nn *n, uint32_t logits, uint32_t labels, int64_t ignore)
{
    return NN_OP(n, "aten.cross_entropy_loss.default", ARG_T("self", logits),
                 ARG_T("target", labels), ARG_I("reduction", 1),
                 ARG_I("ignore_index", ignore));
}

void plim_hf_class_outputs(plim_hf *h, uint32_t logits, uint32_t labels)
{
    plim_nn *n = &h->n;
    if (n->infer) {
        plim_nn_output(n, logits);
        return;
    }
    bool each_token = !n->st && n->g->values[logits].meta.rank == 3;
    if (labels == PLIM_NONE)
        labels = plim_nn_input(n, "labels", PLIM_I64,
                               each_token ? INTS(h->batch, h->seq) : INTS(h->batch));
    uint32_t x = plim_nn_view(n, logits, INTS(-1, plim_nn_dim(n, logits, -1)));
    labels = plim_nn_view(n, labels, INTS(-1));
    plim_nn_output(n, cross_entropy(n, x, labels, -100));
    plim_nn_output(n, logits);
}

uint32_t plim_hf_target(plim_hf *h, const char *name)
{
    const struct plim_input_shape *in = plim_hf_bound_shape(h, name, false);
    int64_t tokens = in && in->rank == 2 ? in->dim[1] : h->seq;
    if (tokens < 1 || tokens > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "input '%s' has %" PRId64 " tokens, not 1..%d", name,
                     tokens, (int)INT32_MAX);
    return plim_hf_input(h, name, PLIM_I64, INTS(h->batch, tokens));
}

uint32_t plim_hf_shift_right(plim_hf *h, uint32_t labels)
{
    plim_nn *n = &h->n;
    if (n->infer)
        return plim_hf_target(h, "decoder_input_ids");
    plim_ints size = INTS(h->batch, plim_nn_dim(n, labels, 1));
    uint32_t x =
        NN_OP(n, "aten.new_zeros.default", ARG_T("self", labels), ARG_IS("size", size));
    uint32_t from = plim_nn_slice(n, labels, 1, 0, -1, 1);
    from = plim_nn_unary(n, "aten.clone.default", from);
    uint32_t to = plim_nn_slice(n, x, 1, 1, INT64_MAX, 1);
    NN_OP(n, "aten.copy_.default", ARG_T("self", to), ARG_T("src", from));
    to = plim_nn_select(n, x, 1, 0);
    NN_OP(n, "aten.fill_.Scalar", ARG_T("self", to), ARG_I("value", 0));
    uint32_t hidden = NN_OP(n, "aten.eq.Scalar", ARG_T("self", x), ARG_I("other", -100));
    return NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", x), ARG_T("mask", hidden),
                 ARG_I("value", 0));
}

static uint32_t squeeze_all(plim_nn *n, uint32_t x)
{
    return plim_nn_unary(n, "aten.squeeze.default", x);
}

/* mean squared error */
static uint32_t regression_loss(plim_hf *h, uint32_t logits, int64_t count)
{
    plim_nn *n = &h->n;
    if (count == 1) {
        uint32_t labels = plim_nn_input(n, "labels", n->dtype, INTS(h->batch));
        logits = squeeze_all(n, logits);
        labels = squeeze_all(n, labels);
        return NN_OP(n, "aten.mse_loss.default", ARG_T("self", logits),
                     ARG_T("target", labels));
    }
    return NN_OP(n, "aten.mse_loss.default", ARG_T("self", logits),
                 ARG_T("target", plim_nn_input(n, "labels", n->dtype, INTS(h->batch, count))));
}

void plim_hf_sequence_outputs(plim_hf *h, uint32_t logits, const plim_hf_labels *l)
{
    plim_nn *n = &h->n;
    int64_t count = plim_nn_dim(n, logits, -1);
    uint32_t loss = PLIM_NONE;
    if (!n->infer && (plim_str_is(l->problem, "regression") || (!l->problem.n && count == 1)))
        loss = regression_loss(h, logits, count);
    else if (!n->infer && plim_str_is(l->problem, "multi_label_classification"))
        loss = NN_OP(
            n, "aten.binary_cross_entropy_with_logits.default", ARG_T("self", logits),
            ARG_T("target", plim_nn_input(n, "labels", n->dtype, INTS(h->batch, count))));
    if (loss == PLIM_NONE) {
        plim_hf_class_outputs(h, logits, PLIM_NONE);
        return;
    }
    plim_nn_output(n, loss);
    plim_nn_output(n, logits);
}

static uint32_t answer_loss(plim_hf *h, const uint32_t logits[2])
{
    plim_nn *n = &h->n;
    static const char *const names[2] = {"start_positions", "end_positions"};
    uint32_t at[2], loss[2];
    for (int i = 0; i < 2; i++)
        at[i] = plim_nn_input(n, names[i], PLIM_I64, INTS(h->batch));
    for (int i = 0; i < 2; i++)
        at[i] = NN_OP(n, "aten.clamp.default", ARG_T("self", at[i]), ARG_I("min", 0),
                      ARG_I("max", h->seq));
    for (int i = 0; i < 2; i++)
        loss[i] = cross_entropy(n, logits[i], at[i], h->seq);
    return plim_nn_scalar(n, "aten.div.Tensor",
                          plim_nn_binary(n, "aten.add.Tensor", loss[0], loss[1]), 2);
}

void plim_hf_answer_outputs(plim_hf *h, uint32_t logits)
{
    plim_nn *n = &h->n;
    uint32_t part[2];
    const plim_named_arg split[] = {ARG_T("self", logits), ARG_I("split_size", 1),
                                    ARG_I("dim", -1)};
    if (!n->st && plim_nn_dim(n, logits, -1) != 2) {
        plim_nn_fail(n, PLIM_ESHAPE, "question answering has 2 labels, not %" PRId64,
                     plim_nn_dim(n, logits, -1));
        return;
    }
    plim_nn_node(n, "aten.split.Tensor", split, PLIM_COUNT(split), part, 2);
    for (int i = 0; i < 2; i++) {
        part[i] = NN_OP(n, "aten.squeeze.dim", ARG_T("self", part[i]), ARG_I("dim", -1));
        part[i] = plim_nn_contiguous(n, part[i]);
    }
    if (!n->infer)
        plim_nn_output(n, answer_loss(h, part));
    plim_nn_output(n, part[0]);
    plim_nn_output(n, part[1]);
}
