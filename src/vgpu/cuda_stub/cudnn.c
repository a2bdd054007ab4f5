/* cudnn.c -- libcudnn.so: descriptors remember what they are told, and plans are always
 * found.  How much memory one takes cuDNN does not document: of convolutions and attention it
 * is what the rules of a CPU build's kernels say, of others a setting. */
#include "stub.h"

#include <stdlib.h>
#include <string.h>

enum { OK = 0, BAD_PARAM = 2000, ALLOC_FAILED = 1003 };

#define CUDNN(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

static size_t workspace_bytes(void)
{
    int64_t n = plim_stub_setting("PLIMSOLL_STUB_CUDNN_WORKSPACE", 0);
    return n > 0 ? (size_t)n : 0;
}

/* ---- the library ------------------------------------------------------------- */

PLIM_STUB(size_t, cudnnGetVersion, void)
{
    return (size_t)plim_stub_setting("PLIMSOLL_STUB_CUDNN_VERSION", 91000);
}

PLIM_STUB(size_t, cudnnGetCudartVersion, void)
{
    return (size_t)plim_stub_setting("PLIMSOLL_STUB_CUDA_VERSION", 13020);
}

CUDNN(cudnnGetProperty, int what, int *value)
{
    int version = (int)cudnnGetVersion();
    const int part[] = {version / 10000, version / 100 % 100, version % 100};
    if (what < 0 || what > 2)
        return BAD_PARAM;
    *value = part[what];
    return OK;
}

PLIM_STUB(const char *, cudnnGetErrorString, int code)
{
    return code ? "error of a pretend GPU" : "CUDNN_STATUS_SUCCESS";
}

PLIM_STUB(void, cudnnGetLastErrorString, char *text, size_t n)
{
    if (n)
        text[0] = '\0';
}

CUDNN(cudnnGetStream, void *handle, void **stream)
{
    (void)handle;
    *stream = NULL;
    return OK;
}

/* ---- backend descriptors: a list of attributes ----------------------------------- */

typedef struct attribute {
    struct attribute *next;
    int name, type;
    int64_t n;
    unsigned char bytes[];
} attribute;

typedef struct descriptor {
    int type;
    atomic_int refs; /* owners: its creator and each attribute that it is */
    attribute *first;
} descriptor;

/* src: cudnn_graph.h of cuDNN 9: cudnnBackendAttributeName_t, -DescriptorType_t, -AttributeType_t */
enum {
    TYPE_DESCRIPTOR = 15,
    OP_FORWARD = 10,
    OP_GRAD_WEIGHT = 11,
    OP_GRAD_INPUT = 12,
    OP_MATMUL = 19,
    OP_REDUCTION = 22,
    OP_ATTENTION = 41,
    OP_GRAD_ATTENTION = 43,
    HEURISTIC_GRAPH = 201,
    HEURISTIC_RESULTS = 202,
    CONFIG_ENGINE = 300,
    CONFIG_WORKSPACE = 303,
    CONFIG_SHARED_MEMORY = 304,
    PLAN_CONFIG = 401,
    PLAN_WORKSPACE = 402,
    FORWARD_W = 703, /* then x, y */
    GRAD_INPUT_W = 709,
    GRAD_WEIGHT_W = 715,
    GRAPH_OPS = 801,
    GRAPH_ENGINES = 802,
    TENSOR_TYPE = 901,
    TENSOR_DIMS = 902,
    TENSOR_STRIDES = 903,
    REDUCTION_X = 1610,
    REDUCTION_Y = 1611,
    ENGINE_GRAPH = 1300,
    ENGINE_INDEX = 1301
};

static size_t size_of(int type)
{
    enum { BOOLEAN = 2, CHAR = 24, FRACTION = 26 };
    static const unsigned wide = 1u << 0 | 1u << 3 | 1u << 5 | 1u << 6 | 1u << TYPE_DESCRIPTOR;
    if (type == BOOLEAN || type == CHAR)
        return 1;
    if (type == FRACTION)
        return 16;
    return type >= 0 && type < 32 && (wide >> type & 1) ? 8 : 4;
}

static attribute *find_attribute(const descriptor *d, int name)
{
    attribute *a = d->first;
    while (a && a->name != name)
        a = a->next;
    return a;
}

static descriptor *descriptor_at(const attribute *a, int64_t i)
{
    descriptor *d;
    memcpy(&d, a->bytes + (size_t)i * sizeof d, sizeof d);
    return d;
}

static void release_descriptor(descriptor *d);

static void free_attribute(attribute *a)
{
    for (int64_t i = 0; a && a->type == TYPE_DESCRIPTOR && i < a->n; i++)
        release_descriptor(descriptor_at(a, i));
    free(a);
}

static void clear_attributes(descriptor *d)
{
    for (attribute *a = d->first, *next; a; a = next) {
        next = a->next;
        free_attribute(a);
    }
    d->first = NULL;
}

/* What a program has destroyed lives on in what it has made of it, as with cuDNN. */
static void release_descriptor(descriptor *d)
{
    if (!d || atomic_fetch_sub(&d->refs, 1) > 1)
        return;
    clear_attributes(d);
    free(d);
}

static int put_attribute(descriptor *d, int name, int type, int64_t n, const void *bytes)
{
    size_t size = (size_t)n * size_of(type);
    attribute *a = malloc(sizeof *a + size), **at = &d->first;
    if (!a)
        return ALLOC_FAILED;
    while (*at && (*at)->name != name)
        at = &(*at)->next;
    attribute *old = *at;
    *a = (attribute){.next = old ? old->next : NULL, .name = name, .type = type, .n = n};
    if (size)
        memcpy(a->bytes, bytes, size);
    for (int64_t i = 0; type == TYPE_DESCRIPTOR && i < n; i++)
        if (descriptor_at(a, i))
            atomic_fetch_add(&descriptor_at(a, i)->refs, 1);
    *at = a;
    free_attribute(old);
    return OK;
}

static int copy_attributes(descriptor *to, const descriptor *from)
{
    int code = OK;
    clear_attributes(to);
    for (const attribute *a = from->first; a && !code; a = a->next)
        code = put_attribute(to, a->name, a->type, a->n, a->bytes);
    return code;
}

CUDNN(cudnnBackendCreateDescriptor, int type, descriptor **out)
{
    *out = calloc(1, sizeof **out);
    if (*out) {
        (*out)->type = type;
        atomic_init(&(*out)->refs, 1);
    }
    return *out ? OK : ALLOC_FAILED;
}

CUDNN(cudnnBackendDestroyDescriptor, descriptor *d)
{
    release_descriptor(d);
    return OK;
}

CUDNN(cudnnBackendSetAttribute, descriptor *d, int name, int type, int64_t n,
      const void *bytes)
{
    return d && n >= 0 ? put_attribute(d, name, type, n, bytes) : BAD_PARAM;
}

/* The one descriptor that is this attribute; NULL: nobody set it. */
static descriptor *find_descriptor(const descriptor *d, int name)
{
    const attribute *a = d ? find_attribute(d, name) : NULL;
    return a && a->type == TYPE_DESCRIPTOR && a->n ? descriptor_at(a, 0) : NULL;
}

static bool read_tensor(const descriptor *d, plim_vgpu_tensor *out)
{
    enum { HALF = 2, BFLOAT16 = 9 };
    static const int dtypes[] = {
        [0] = PLIM_F32, [1] = PLIM_F64, [HALF] = PLIM_F16, [BFLOAT16] = PLIM_BF16};
    const attribute *type = d ? find_attribute(d, TENSOR_TYPE) : NULL;
    const attribute *dims = d ? find_attribute(d, TENSOR_DIMS) : NULL;
    const attribute *strides = d ? find_attribute(d, TENSOR_STRIDES) : NULL;
    int number;
    if (!type || !dims || !strides || dims->n > 8 || strides->n != dims->n)
        return false;
    memcpy(&number, type->bytes, sizeof number);
    if (number < 0 || number > BFLOAT16 || (number > HALF && number < BFLOAT16))
        return false;
    out->dtype = dtypes[number];
    out->rank = (int)dims->n;
    memcpy(out->dim, dims->bytes, (size_t)dims->n * sizeof *out->dim);
    memcpy(out->stride, strides->bytes, (size_t)dims->n * sizeof *out->stride);
    return true;
}

static bool read_convolution(const descriptor *op, plim_vgpu_conv *out)
{
    static const struct {
        int type, w;
        plim_vgpu_conv_pass pass;
    } passes[] = {{OP_FORWARD, FORWARD_W, PLIM_VGPU_CONV_FORWARD},
                  {OP_GRAD_INPUT, GRAD_INPUT_W, PLIM_VGPU_CONV_GRAD_INPUT},
                  {OP_GRAD_WEIGHT, GRAD_WEIGHT_W, PLIM_VGPU_CONV_GRAD_WEIGHT}};
    for (size_t i = 0; op && i < sizeof passes / sizeof passes[0]; i++)
        if (passes[i].type == op->type) {
            out->pass = passes[i].pass;
            return read_tensor(find_descriptor(op, passes[i].w), &out->w) &&
                   read_tensor(find_descriptor(op, passes[i].w + 1), &out->x) &&
                   read_tensor(find_descriptor(op, passes[i].w + 2), &out->y);
        }
    return false;
}

/* Of a graph, the i-th op; NULL: it has no more. */
static const descriptor *find_op(const descriptor *graph, int64_t i)
{
    const attribute *ops = graph ? find_attribute(graph, GRAPH_OPS) : NULL;
    return ops && ops->type == TYPE_DESCRIPTOR && i < ops->n ? descriptor_at(ops, i) : NULL;
}

/* One op, or the products and all that is between them. */
static bool is_attention(const descriptor *graph)
{
    const descriptor *op;
    for (int64_t i = 0; (op = find_op(graph, i)); i++)
        if (op->type == OP_MATMUL || op->type == OP_ATTENTION || op->type == OP_GRAD_ATTENTION)
            return true;
    return false;
}

/* Where heads share keys, the gradients of each head are there before they are added up. */
static uint64_t attention_workspace(const descriptor *graph)
{
    uint64_t bytes = plim_stub_attention();
    const descriptor *op;
    for (int64_t i = 0; bytes && (op = find_op(graph, i)); i++) {
        plim_vgpu_tensor x, y;
        if (op->type == OP_REDUCTION && read_tensor(find_descriptor(op, REDUCTION_X), &x) &&
            read_tensor(find_descriptor(op, REDUCTION_Y), &y) && x.rank == 4 && y.rank == 4 &&
            x.dim[1] != y.dim[1])
            bytes += (uint64_t)x.dim[0] * (uint64_t)x.dim[1] * (uint64_t)x.dim[2] *
                     (uint64_t)x.dim[3] * (x.dtype == PLIM_F32 ? 4 : 2);
    }
    return bytes;
}

/* A plan's configuration is a heuristic's, which has its graph, or of an engine of one. */
static size_t plan_workspace(const descriptor *plan)
{
    const descriptor *config = find_descriptor(plan, PLAN_CONFIG);
    const descriptor *graph = find_descriptor(config, HEURISTIC_GRAPH);
    plim_vgpu_conv conv = {.pass = PLIM_VGPU_CONV_FORWARD};
    if (!graph)
        graph = find_descriptor(find_descriptor(config, CONFIG_ENGINE), ENGINE_GRAPH);
    if (getenv("PLIMSOLL_STUB_CUDNN_WORKSPACE"))
        return workspace_bytes();
    if (is_attention(graph))
        return (size_t)attention_workspace(graph);
    return read_convolution(find_descriptor(graph, GRAPH_OPS), &conv)
               ? (size_t)plim_stub_convolution(&conv)
               : 0;
}

/* What nobody set and is asked for: each heuristic finds one engine, the first of
 * one.  Everything else is an empty list. */
static int64_t default_attribute(const descriptor *d, int name, int64_t *value)
{
    const struct {
        int name;
        int64_t value;
    } answers[] = {{HEURISTIC_RESULTS, 0},    {CONFIG_ENGINE, 0},
                   {CONFIG_SHARED_MEMORY, 0}, {CONFIG_WORKSPACE, (int64_t)workspace_bytes()},
                   {GRAPH_ENGINES, 1},        {PLAN_WORKSPACE, 0},
                   {ENGINE_INDEX, 0}};
    for (size_t i = 0; i < sizeof answers / sizeof answers[0]; i++)
        if (answers[i].name == name) {
            *value = name == PLAN_WORKSPACE ? (int64_t)plan_workspace(d) : answers[i].value;
            if (name == PLAN_WORKSPACE)
                plim_stub_tell_workspace((uint64_t)*value);
            return 1;
        }
    return 0;
}

CUDNN(cudnnBackendGetAttribute, const descriptor *d, int name, int type, int64_t asked,
      int64_t *n, void *out)
{
    int64_t value, there;
    const attribute *a = find_attribute(d, name);
    there = a ? a->n : default_attribute(d, name, &value);
    if (n)
        *n = there;
    if (!out || asked < 1 || there < 1)
        return OK;
    if (type == TYPE_DESCRIPTOR && name == HEURISTIC_RESULTS && !a)
        return copy_attributes(*(descriptor **)out, d); /* found for its graph */
    if (type == TYPE_DESCRIPTOR) { /* the caller's own descriptors are filled */
        int code = OK;
        for (int64_t i = 0; a && i < there && i < asked && !code; i++)
            code = copy_attributes(((descriptor **)out)[i],
                                   ((descriptor *const *)(const void *)a->bytes)[i]);
        return code;
    }
    size_t size = size_of(type);
    if (a)
        memcpy(out, a->bytes, size * (size_t)(there < asked ? there : asked));
    else
        memcpy(out, &value, size < sizeof value ? size : sizeof value);
    return OK;
}

CUDNN(cudnnBackendFinalize, descriptor *d) { return d ? OK : BAD_PARAM; }

/* ---- tensors ------------------------------------------------------------------------ */

typedef struct tensor {
    int type, format, rank, dim[8], stride[8];
} tensor;

static int new_zeroed(void **out, size_t bytes)
{
    *out = calloc(1, bytes);
    return *out ? OK : ALLOC_FAILED;
}

static int delete (void *p)
{
    free(p);
    return OK;
}

CUDNN(cudnnCreateTensorDescriptor, void **out) { return new_zeroed(out, sizeof(tensor)); }
CUDNN(cudnnCreateFilterDescriptor, void **out) { return new_zeroed(out, sizeof(tensor)); }
CUDNN(cudnnDestroyTensorDescriptor, void *t) { return delete (t); }
CUDNN(cudnnDestroyFilterDescriptor, void *t) { return delete (t); }

static int fill_tensor(tensor *t, int type, int rank, const int *dim, const int *stride)
{
    if (!t)
        return OK;
    if (rank < 0 || rank > 8)
        return BAD_PARAM;
    t->type = type;
    t->rank = rank;
    for (int i = 0; i < rank; i++) {
        t->dim[i] = dim[i];
        t->stride[i] = stride ? stride[i] : 0;
    }
    return OK;
}

CUDNN(cudnnSetTensorNdDescriptor, tensor *t, int type, int rank, const int *dim,
      const int *stride)
{
    return fill_tensor(t, type, rank, dim, stride);
}

CUDNN(cudnnSetFilterNdDescriptor, tensor *t, int type, int format, int rank, const int *dim)
{
    t->format = format;
    return fill_tensor(t, type, rank, dim, NULL);
}

CUDNN(cudnnGetTensorNdDescriptor, const tensor *t, int asked, int *type, int *rank, int *dim,
      int *stride)
{
    *type = t->type;
    *rank = t->rank;
    for (int i = 0; i < asked && i < t->rank; i++) {
        dim[i] = t->dim[i];
        stride[i] = t->stride[i];
    }
    return OK;
}

CUDNN(cudnnGetFilterNdDescriptor, const tensor *t, int asked, int *type, int *format,
      int *rank, int *dim)
{
    *type = t->type;
    *format = t->format;
    *rank = t->rank;
    for (int i = 0; i < asked && i < t->rank; i++)
        dim[i] = t->dim[i];
    return OK;
}

static size_t bytes_of(int type)
{
    enum { DOUBLE = 1, HALF = 2, BFLOAT16 = 9 };
    return type == DOUBLE ? 8 : type == HALF || type == BFLOAT16 ? 2 : 4;
}

/* ---- normalization, dropout: estimated --------------------------------------------- */

CUDNN(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize, void *handle, int mode,
      int ops, void *x, void *z, void *y, void *scale, void *activation, size_t *bytes)
{
    (void)handle, (void)mode, (void)ops, (void)x, (void)z, (void)y, (void)scale;
    (void)activation;
    *bytes = workspace_bytes();
    return OK;
}

CUDNN(cudnnGetBatchNormalizationBackwardExWorkspaceSize, void *handle, int mode, int ops,
      void *x, void *y, void *dy, void *dz, void *dx, void *dscale, void *activation,
      size_t *bytes)
{
    (void)handle, (void)mode, (void)ops, (void)x, (void)y, (void)dy, (void)dz, (void)dx;
    (void)dscale, (void)activation;
    *bytes = workspace_bytes();
    return OK;
}

CUDNN(cudnnGetBatchNormalizationTrainingExReserveSpaceSize, void *handle, int mode, int ops,
      void *activation, void *x, size_t *bytes)
{
    (void)handle, (void)mode, (void)ops, (void)activation, (void)x;
    *bytes = 0;
    return OK;
}

/* The states of a generator for each thread that a card can run. */
CUDNN(cudnnDropoutGetStatesSize, void *handle, size_t *bytes)
{
    enum { STATE = 24 };
    const plim_stub_card *c = plim_stub_card_get();
    (void)handle;
    *bytes = c ? (size_t)c->sms * (size_t)c->threads_per_sm * STATE : 0;
    return OK;
}

CUDNN(cudnnGetCTCLossWorkspaceSize_v8, void *handle, int algorithm, void *loss, void *probs,
      void *gradients, size_t *bytes)
{
    (void)handle, (void)algorithm, (void)loss, (void)probs, (void)gradients;
    *bytes = workspace_bytes();
    return OK;
}

/* ---- recurrent nets ------------------------------------------------------------------- */

typedef struct rnn {
    int cell, bias, directions, type, input, hidden, projection, layers;
} rnn;

typedef struct rnn_data {
    int steps, batch;
} rnn_data;

CUDNN(cudnnCreateRNNDescriptor, void **out) { return new_zeroed(out, sizeof(rnn)); }
CUDNN(cudnnCreateRNNDataDescriptor, void **out) { return new_zeroed(out, sizeof(rnn_data)); }
CUDNN(cudnnDestroyRNNDescriptor, void *r) { return delete (r); }
CUDNN(cudnnDestroyRNNDataDescriptor, void *d) { return delete (d); }

CUDNN(cudnnSetRNNDescriptor_v8, rnn *r, int algorithm, int cell, int bias, int direction,
      int input_mode, int type, int precision, int math, int input, int hidden, int projection,
      int layers, void *dropout, unsigned flags)
{
    (void)algorithm, (void)input_mode, (void)precision, (void)math, (void)dropout, (void)flags;
    *r = (rnn){.cell = cell,
               .bias = bias,
               .directions = direction ? 2 : 1,
               .type = type,
               .input = input,
               .hidden = hidden,
               .projection = projection && projection != hidden ? projection : 0,
               .layers = layers};
    return OK;
}

CUDNN(cudnnSetRNNDataDescriptor, rnn_data *d, int type, int layout, int steps, int batch,
      int vector, const int *lengths, void *padding)
{
    (void)type, (void)layout, (void)vector, (void)lengths, (void)padding;
    d->steps = steps;
    d->batch = batch;
    return OK;
}

static size_t gate_count(const rnn *r)
{
    enum { LSTM = 2, GRU = 3 };
    return r->cell == LSTM ? 4 : r->cell == GRU ? 3 : 1;
}

static size_t output_width(const rnn *r)
{
    return (size_t)(r->projection ? r->projection : r->hidden);
}

/* Matrix `id` of a layer in one direction: first those for the input, then those for
 * the state, then the projection. */
static void matrix_shape(const rnn *r, int pseudo, size_t id, size_t *rows, size_t *columns)
{
    size_t layer = (size_t)pseudo / (size_t)r->directions;
    *rows = (size_t)r->hidden;
    *columns = id >= gate_count(r) ? output_width(r)
               : layer             ? output_width(r) * (size_t)r->directions
                                   : (size_t)r->input;
    if (id == 2 * gate_count(r)) {
        *rows = (size_t)r->projection;
        *columns = (size_t)r->hidden;
    }
}

static size_t matrix_count(const rnn *r) { return 2 * gate_count(r) + (r->projection != 0); }

/* Elements before matrix `id` of this layer: all matrices, then all biases. */
static size_t before_matrix(const rnn *r, int pseudo, size_t id)
{
    size_t n = 0, rows, columns;
    for (int p = 0; p <= pseudo; p++)
        for (size_t i = 0; i < (p < pseudo ? matrix_count(r) : id); i++) {
            matrix_shape(r, p, i, &rows, &columns);
            n += rows * columns;
        }
    return n;
}

static size_t bias_count(const rnn *r)
{
    return r->bias == 2 ? 2 * gate_count(r) : r->bias ? gate_count(r) : 0;
}

static size_t weight_count(const rnn *r)
{
    int all = r->layers * r->directions;
    return before_matrix(r, all, 0) + (size_t)all * bias_count(r) * (size_t)r->hidden;
}

CUDNN(cudnnGetRNNWeightSpaceSize, void *handle, const rnn *r, size_t *bytes)
{
    (void)handle;
    *bytes = weight_count(r) * bytes_of(r->type);
    return OK;
}

CUDNN(cudnnGetRNNWeightParams, void *handle, const rnn *r, int pseudo, size_t bytes,
      uint64_t space, int id, tensor *m, uint64_t *matrix_at, tensor *b, uint64_t *bias_at)
{
    size_t rows, columns, item = bytes_of(r->type);
    size_t bias = before_matrix(r, r->layers * r->directions, 0) +
                  ((size_t)pseudo * bias_count(r) + (size_t)id) * (size_t)r->hidden;
    bool has_bias = (size_t)id < bias_count(r), has_matrix = (size_t)id < matrix_count(r);
    (void)handle, (void)bytes;
    if (matrix_at)
        *matrix_at = has_matrix ? space + before_matrix(r, pseudo, (size_t)id) * item : 0;
    if (bias_at)
        *bias_at = has_bias ? space + bias * item : 0;
    matrix_shape(r, pseudo, (size_t)id, &rows, &columns);
    const int dim[] = {1, (int)rows, (int)columns}, stride[] = {1, (int)columns, 1};
    const int bdim[] = {1, r->hidden, 1}, bstride[] = {1, 1, 1};
    fill_tensor(m, r->type, has_matrix ? 3 : 0, dim, stride);
    return fill_tensor(b, r->type, has_bias ? 3 : 0, bdim, bstride);
}

/* What backward needs of every step, layer and direction: gates, output and, of an
 * LSTM, the cell.  An estimate, the same as that of the shim for CPU builds. */
CUDNN(cudnnGetRNNTempSpaceSizes, void *handle, const rnn *r, int training, const rnn_data *x,
      size_t *work, size_t *reserve)
{
    size_t each = gate_count(r) + (gate_count(r) == 4 ? 2 : 1);
    (void)handle;
    *work = workspace_bytes();
    if (reserve)
        *reserve = training
                       ? (size_t)x->steps * (size_t)x->batch * (size_t)r->hidden *
                             (size_t)(r->layers * r->directions) * each * bytes_of(r->type)
                       : 0;
    return OK;
}
