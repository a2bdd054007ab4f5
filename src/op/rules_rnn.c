/* rules_rnn.c -- recurrent networks, as cuDNN runs them.
 * src: aten/src/ATen/native/cudnn/RNN.cpp, aten/src/ATen/native/RNN.cpp. */
#include "op/rules.h"

enum { RNN_RELU, RNN_TANH, RNN_LSTM, RNN_GRU }; /* cuDNN's modes */
enum { RNN_MAX_WEIGHTS = 128 };

typedef struct rnn_shape {
    int64_t mode, hidden, out, layers, dirs, steps; /* steps: of all sequences together */
    bool biases, batch_first, train;
} rnn_shape;

static int64_t rnn_steps(const plim_meta *x)
{
    int64_t steps = 1;
    for (int32_t i = 0; i + 1 < x->rank; i++)
        steps = plim_dim_mul(steps, x->dim[i]);
    return steps;
}

static int64_t rnn_gates(int64_t mode)
{
    return mode == RNN_LSTM ? 4 : mode == RNN_GRU ? 3 : 1;
}

/* What backward needs of every step and layer.  cuDNN documents no size; its algorithm has to
 * keep the gates, cell and output of each direction. */
static plim_t rnn_reserve(plim_machine *m, const rnn_shape *r, plim_dtype t)
{
    int64_t kept = rnn_gates(r->mode) + (r->mode == RNN_LSTM ? 2 : 1);
    int64_t n = plim_dim_mul(plim_dim_mul(r->steps, r->hidden),
                             plim_dim_mul(r->layers, r->dirs * kept));
    return plim_m_scratch_about(m, (uint64_t)plim_dim_mul(n, (int64_t)plim_dtype_bytes(t)));
}

/* All weights in one buffer; cuDNN counts two biases, as it is never told that there are
 * none. */
static plim_t rnn_buffer(plim_machine *m, const rnn_shape *r, const plim_meta *w, uint32_t n,
                         plim_dtype t)
{
    int64_t biases = r->biases ? 0 : plim_dim_mul(r->layers, 2 * rnn_gates(r->mode) * r->dirs);
    uint64_t total = (uint64_t)plim_dim_mul(biases, r->hidden);
    for (uint32_t i = 0; i < n; i++) {
        uint64_t numel = 0;
        if (plim_meta_numel(&w[i], &numel))
            total = plim_sat_add(total, numel);
    }
    return plim_m_empty_contig(m, t, 1, (int64_t[]){(int64_t)PLIM_MIN(total, INT64_MAX)});
}

/* Sequence first, as the kernels require: x itself or its transpose, a view invisible to
 * autograd. */
static plim_t rnn_sequence_first(plim_machine *m, plim_t x, bool batch_first)
{
    plim_meta t = *plim_m_meta(m, x);
    if (!batch_first || t.rank < 2)
        return plim_m_ref(m, x);
    int64_t dim = t.dim[0], stride = t.stride[0];
    t.dim[0] = t.dim[1], t.stride[0] = t.stride[1];
    t.dim[1] = dim, t.stride[1] = stride;
    return plim_m_alias(m, x, &t);
}

static plim_t rnn_empty_like(plim_machine *m, plim_t t)
{
    const plim_meta *x = plim_m_meta(m, t);
    return t ? plim_m_empty_contig(m, x->dtype, x->rank, x->dim) : 0;
}

/* ---- the kernels ---------------------------------------------------------------------- */

enum { RNN_OUTPUT, RNN_HY, RNN_CY, RNN_RESERVE, RNN_BUFFER, RNN_OUTS };

/* Everything except the weight buffer, which is in `out` already or is made of w here. */
static void rnn_forward(plim_machine *m, const rnn_shape *r, plim_t x, plim_t hx, plim_t cx,
                        const plim_meta *w, uint32_t n_w, plim_t *out)
{
    plim_dtype t = plim_m_meta(m, x)->dtype;
    plim_t first = rnn_sequence_first(m, x, r->batch_first),
           xc = plim_contiguous_tmp(m, first);
    plim_meta y = *plim_m_meta(m, first);
    if (y.rank < 2) {
        plim_m_fail(m, PLIM_ESHAPE, "a recurrent layer has an input of rank %d", (int)y.rank);
        return;
    }
    plim_set_dim(&y, -1, plim_dim_mul(r->out, r->dirs));
    plim_meta_contiguous(&y);
    plim_t result = plim_m_empty(m, &y);
    plim_m_calls(m, PLIM_CUDNN);
    out[RNN_HY] = rnn_empty_like(m, hx);
    out[RNN_CY] = cx ? rnn_empty_like(m, cx) : plim_m_empty_contig(m, t, 1, (int64_t[]){0});
    if (!out[RNN_BUFFER])
        out[RNN_BUFFER] = rnn_buffer(m, r, w, n_w, t);
    out[RNN_RESERVE] = r->train ? rnn_reserve(m, r, t) : 0;
    if (!out[RNN_RESERVE])
        out[RNN_RESERVE] = plim_m_empty_contig(m, PLIM_U8, 1, (int64_t[]){0});
    out[RNN_OUTPUT] = rnn_sequence_first(m, result, r->batch_first); /* transposed back */
    plim_m_drop(m, result);
    plim_m_drop(m, xc);
    plim_m_drop(m, first);
}

/* A missing gradient is replaced by zeros. */
static plim_t rnn_grad(plim_machine *m, plim_t g, plim_t like)
{
    return g ? plim_m_ref(m, g) : rnn_empty_like(m, like);
}

/* The gradients of the input and the states: one kernel. */
static void rnn_backward_input(plim_machine *m, bool batch_first, plim_t x, plim_t hx,
                               plim_t cx, plim_t g, plim_t *dx)
{
    plim_t xs = rnn_sequence_first(m, x, batch_first),
           gs = rnn_sequence_first(m, g, batch_first);
    plim_t xc = plim_contiguous_tmp(m, xs), gc = plim_contiguous_tmp(m, gs);
    plim_t d = rnn_empty_like(m, xs);
    plim_m_calls(m, PLIM_CUDNN);
    dx[1] = rnn_empty_like(m, hx);
    dx[2] = rnn_empty_like(m, cx);
    dx[0] = rnn_sequence_first(m, d, batch_first);
    plim_t all[] = {d, gc, xc, gs, xs};
    for (size_t i = 0; i < PLIM_COUNT(all); i++)
        plim_m_drop(m, all[i]);
}

/* The gradients of the weights: parts of one buffer, or copies from it if the buffer has
 * biases that the network lacks. */
static void rnn_backward_weight(plim_machine *m, const rnn_shape *r, plim_t x,
                                const plim_meta *w, uint32_t n_w, plim_t *dw)
{
    plim_t xs = rnn_sequence_first(m, x, r->batch_first), xc = plim_contiguous_tmp(m, xs);
    plim_t all = rnn_buffer(m, r, w, n_w, plim_m_meta(m, x)->dtype);
    for (uint32_t i = 0; i < n_w; i++) {
        plim_meta part = w[i];
        plim_meta_contiguous(&part);
        dw[i] = r->biases ? plim_m_alias(m, all, &part) : plim_m_empty(m, &part);
    }
    plim_m_drop(m, all);
    plim_m_drop(m, xc);
    plim_m_drop(m, xs);
}

/* g: of output, hy and cy; dx: of x, hx, cx and, if wanted, each weight. */
static void rnn_backward(plim_machine *m, const rnn_shape *r, plim_t x, plim_t hx, plim_t cx,
                         plim_t y, const plim_t *g, const plim_meta *w, uint32_t n_w,
                         bool want_w, plim_t *dx)
{
    plim_t gy = rnn_grad(m, g[0], y), ghy = rnn_grad(m, g[1], hx), gcy = rnn_grad(m, g[2], cx);
    rnn_backward_input(m, r->batch_first, x, hx, cx, gy, dx);
    if (want_w)
        rnn_backward_weight(m, r, x, w, n_w, &dx[3]);
    plim_m_drop(m, gcy);
    plim_m_drop(m, ghy);
    plim_m_drop(m, gy);
}

/* ---- as the dispatcher calls them ------------------------------------------------------- */

static rnn_shape rnn_shape_of(plim_call *c, uint32_t first, uint32_t each_slot)
{
    int64_t proj = plim_arg_int(c, first + 2, 0);
    bool packed = plim_arg_count(c, first + 7) > 0;
    rnn_shape r = {.mode = plim_arg_int(c, first, RNN_LSTM),
                   .hidden = plim_arg_int(c, first + 1, 0),
                   .layers = plim_arg_int(c, first + 3, 1),
                   .batch_first = plim_arg_int(c, first + 4, 0) && !packed,
                   .train = plim_arg_int(c, first + 5, 0),
                   .dirs = plim_arg_int(c, first + 6, 0) ? 2 : 1,
                   .steps = rnn_steps(plim_m_meta(c->m, plim_arg_tensor(c, 0)))};
    r.out = proj ? proj : r.hidden;
    r.biases = plim_arg_int(c, each_slot, 4) >= 4; /* weights per layer: 2 without */
    return r;
}

/* Sizes of the weights at `slot`. */
static uint32_t rnn_weights(plim_call *c, uint32_t slot, plim_meta *w)
{
    uint32_t n = plim_arg_count(c, slot);
    if (n > RNN_MAX_WEIGHTS) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED,
                    "a recurrent layer has %u weights, the limit is %d", (unsigned)n,
                    RNN_MAX_WEIGHTS);
        return 0;
    }
    for (uint32_t i = 0; i < n; i++)
        w[i] = *plim_m_meta(c->m, plim_arg_nth(c, slot, i));
    return n;
}

void plim_kernel_rnn(plim_call *c)
{
    enum { INPUT, WEIGHT, EACH, WEIGHT_BUF, HX, CX, SHAPE };
    plim_meta w[RNN_MAX_WEIGHTS];
    uint32_t n = rnn_weights(c, WEIGHT, w);
    rnn_shape r = rnn_shape_of(c, SHAPE, EACH);
    c->out[RNN_BUFFER] = plim_m_ref(c->m, plim_arg_tensor(c, WEIGHT_BUF));
    rnn_forward(c->m, &r, plim_arg_tensor(c, INPUT), plim_arg_tensor(c, HX),
                plim_arg_tensor(c, CX), w, n, c->out);
    c->n_out = RNN_OUTS;
}

void plim_kernel_rnn_backward(plim_call *c)
{
    enum { INPUT, WEIGHT, EACH, HX, CX, OUTPUT, GRAD_OUTPUT, GRAD_HY, GRAD_CY, MASK, SHAPE };
    plim_meta w[RNN_MAX_WEIGHTS];
    uint32_t n = rnn_weights(c, WEIGHT, w);
    rnn_shape r = rnn_shape_of(c, SHAPE, EACH);
    plim_t g[3] = {plim_arg_tensor(c, GRAD_OUTPUT), plim_arg_tensor(c, GRAD_HY),
                   plim_arg_tensor(c, GRAD_CY)};
    bool want[4];
    plim_arg_mask(c, MASK, want, 4);
    rnn_backward(c->m, &r, plim_arg_tensor(c, INPUT), plim_arg_tensor(c, HX),
                 plim_arg_tensor(c, CX), plim_arg_tensor(c, OUTPUT), g, w, n, want[3], c->out);
    c->n_out = want[3] ? 3 + n : 3;
}

/* ---- lstm, gru, rnn: the weights are parts of one buffer already --------------------------- */

/* Saved tensors, in the order of their names; weights as far as there is room: parameters stay
 * alive anyway. */
enum {
    RNN_SAVED_CX,
    RNN_SAVED_HX,
    RNN_SAVED_INPUT,
    RNN_SAVED_OUTPUT,
    RNN_SAVED_RESERVE,
    RNN_SAVED_WEIGHTS
};
enum {
    RNN_MODE,
    RNN_HIDDEN,
    RNN_LAYERS,
    RNN_DIRS,
    RNN_BIASES,
    RNN_BATCH_FIRST
}; /* in gnode.i */

static void rnn_node_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_t given[3] = {0};
    uint32_t n_w = n->n_in - 3;
    bool want_w = false;
    for (uint32_t i = 0; i < PLIM_MIN(n->n_out, 3); i++)
        given[i] = g[i];
    for (uint32_t i = 0; i < n_w; i++)
        want_w |= plim_m_wants(m, n, 3 + i);
    rnn_shape r = {.mode = n->i[RNN_MODE],
                   .hidden = n->i[RNN_HIDDEN],
                   .layers = n->i[RNN_LAYERS],
                   .dirs = n->i[RNN_DIRS],
                   .biases = n->i[RNN_BIASES],
                   .batch_first = n->i[RNN_BATCH_FIRST]};
    rnn_backward(m, &r, plim_m_saved(m, n, RNN_SAVED_INPUT), plim_m_saved(m, n, RNN_SAVED_HX),
                 plim_m_saved(m, n, RNN_SAVED_CX), plim_m_saved(m, n, RNN_SAVED_OUTPUT), given,
                 &n->in_meta[3], n_w, want_w, dx);
    for (uint32_t i = 0; i < 3; i++) /* allocated even if not needed */
        if (!plim_m_wants(m, n, i)) {
            plim_m_drop(m, dx[i]);
            dx[i] = 0;
        }
}
static const plim_grad_fn rnn_fn = {"CudnnRnnBackward0", rnn_node_backward};

/* (input, states, params, has_biases, num_layers, dropout, train, bidirectional,
 * batch_first) */
static void run_rnn(plim_call *c, int64_t mode)
{
    enum { INPUT, STATES, PARAMS, BIASES, LAYERS, DROPOUT, TRAIN, BIDIRECTIONAL, BATCH_FIRST };
    plim_machine *m = c->m;
    plim_t in[3 + RNN_MAX_WEIGHTS] = {plim_arg_tensor(c, INPUT)}, out[RNN_OUTS] = {0};
    plim_meta w[RNN_MAX_WEIGHTS];
    uint32_t n_w = rnn_weights(c, PARAMS, w);
    plim_arg_tensors(c, STATES, &in[1], 2);
    plim_arg_tensors(c, PARAMS, &in[3], RNN_MAX_WEIGHTS);
    const plim_meta *x = plim_m_meta(m, in[0]), *h = plim_m_meta(m, in[1]);
    if (n_w < 2 || h->rank != 3) {
        plim_m_fail(m, PLIM_ESHAPE,
                    "a recurrent layer has a hidden state of rank %d, it must be 3",
                    (int)h->rank);
        return;
    }
    rnn_shape r = {.mode = mode,
                   .hidden = w[1].dim[0] / rnn_gates(mode),
                   .out = h->dim[2],
                   .layers = plim_arg_int(c, LAYERS, 1),
                   .dirs = plim_arg_int(c, BIDIRECTIONAL, 0) ? 2 : 1,
                   .steps = rnn_steps(x),
                   .biases = plim_arg_int(c, BIASES, 1),
                   .batch_first = plim_arg_int(c, BATCH_FIRST, 0),
                   .train = plim_arg_int(c, TRAIN, 0)};
    plim_gnode *n = plim_m_node(m, &rnn_fn, 3 + n_w, in);
    if (n)
        memcpy(n->i,
               (int64_t[]){[RNN_MODE] = mode,
                           [RNN_HIDDEN] = r.hidden,
                           [RNN_LAYERS] = r.layers,
                           [RNN_DIRS] = r.dirs,
                           [RNN_BIASES] = r.biases,
                           [RNN_BATCH_FIRST] = r.batch_first},
               (RNN_BATCH_FIRST + 1) * sizeof n->i[0]);
    plim_m_save(m, n, RNN_SAVED_INPUT, in[0]);
    plim_m_save(m, n, RNN_SAVED_HX, in[1]);
    plim_m_save(m, n, RNN_SAVED_CX, in[2]);
    for (uint32_t i = 0; i < n_w && RNN_SAVED_WEIGHTS + i < PLIM_MAX_SAVED; i++)
        plim_m_save(m, n, RNN_SAVED_WEIGHTS + i, in[3 + i]);
    out[RNN_BUFFER] =
        plim_m_empty_contig(m, x->dtype, 1, (int64_t[]){0}); /* the parameters' */
    rnn_forward(m, &r, in[0], in[1], in[2], w, n_w, out);
    plim_m_save(m, n, RNN_SAVED_OUTPUT, out[RNN_OUTPUT]);
    plim_m_save(m, n, RNN_SAVED_RESERVE, out[RNN_RESERVE]);
    for (uint32_t i = 0; i < RNN_OUTS; i++) {
        if (i <= RNN_CY && i < c->n_out) {
            plim_m_output(m, n, i, out[i]);
            c->out[i] = out[i];
        } else {
            plim_m_drop(m, out[i]);
        }
    }
}
void plim_run_lstm(plim_call *c) { run_rnn(c, RNN_LSTM); }
void plim_run_gru(plim_call *c) { run_rnn(c, RNN_GRU); }
void plim_run_rnn_tanh(plim_call *c) { run_rnn(c, RNN_TANH); }
void plim_run_rnn_relu(plim_call *c) { run_rnn(c, RNN_RELU); }

/* ---- cells: one step, by PyTorch's own kernels ---------------------------------------------- */

/* hy, cy, and the reserve for backward, which is allocated first.  src: cuda/RNN.cu */
void plim_kernel_lstm_cell(plim_call *c)
{
    c->out[2] = plim_m_empty_like(c->m, plim_arg_tensor(c, 0));
    c->out[0] = plim_m_empty_like(c->m, plim_arg_tensor(c, 1));
    c->out[1] = plim_m_empty_like(c->m, plim_arg_tensor(c, 1));
    c->n_out = 3;
}

enum { GRU_GATES = 3, GRU_KEPT = 5 };

void plim_kernel_gru_cell(plim_call *c)
{
    plim_meta kept = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    if (kept.rank != 2) {
        plim_m_fail(c->m, PLIM_ESHAPE,
                    "a GRU cell has a hidden state of rank %d, it must be 2", (int)kept.rank);
        return;
    }
    kept.dim[1] = plim_dim_mul(kept.dim[1], GRU_KEPT);
    plim_meta_contiguous(&kept);
    c->out[1] = plim_m_empty(c->m, &kept);
    c->out[0] = plim_m_empty_like(c->m, plim_arg_tensor(c, 0));
    c->n_out = 2;
}

/* The gradients of both gates, of hx, and of both biases: sums of the first two. */
void plim_kernel_gru_cell_backward(plim_call *c)
{
    plim_machine *m = c->m;
    plim_meta gates = *plim_m_meta(m, plim_arg_tensor(c, 1));
    if (gates.rank != 2) {
        plim_m_fail(m, PLIM_ESHAPE, "a GRU cell has a workspace of rank %d, it must be 2",
                    (int)gates.rank);
        return;
    }
    gates.dim[1] = gates.dim[1] / GRU_KEPT * GRU_GATES;
    plim_meta_contiguous(&gates);
    for (int i = 0; i < 2; i++)
        c->out[i] = plim_m_empty(m, &gates);
    c->out[2] = plim_m_empty_like(m, plim_arg_tensor(c, 0));
    for (int i = 3; i < 5 && plim_arg_int(c, 2, 0); i++) {
        c->out[i] = plim_m_empty_contig(m, gates.dtype, 1, &gates.dim[1]);
        plim_reduce_scratch(m, &gates, 1);
    }
    c->n_out = 5;
}
