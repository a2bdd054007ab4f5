/* vgpu_kernel.c -- what kernels take, by the rules that predictions use: an op's arguments
 * go to a machine, and the requests that it writes are served as the program's are. */
#include "vgpu/vgpu_priv.h"

#include <stdio.h>

#include "op/cudnn.h"
#include "op/kernel.h"
#include "op/rules.h"

/* ---- arguments ---------------------------------------------------------------- */

/* One call: arguments as the machine wants them, then what it made. */
typedef struct kernel_call {
    plim_machine *m;
    plim_named_arg *args;
    plim_t *value, *out;
    uint32_t n_values, n_out;
    uint32_t *block; /* of each storage on d->inside */
} kernel_call;

static bool read_tensor(const plim_vgpu_tensor *t, plim_meta *out)
{
    if (t->rank < 0 || t->rank > PLIM_MAX_RANK || (unsigned)t->dtype >= PLIM_DTYPE_COUNT)
        return false;
    *out = plim_meta_make((plim_dtype)t->dtype, t->rank, t->dim);
    for (int i = 0; i < t->rank; i++)
        out->stride[i] = t->stride[i];
    return true;
}

/* ids[i]: the value that stands for tensor i; PLIM_NONE: None */
static plim_status read_tensors(kernel_call *k, const plim_vgpu_arg *a, uint32_t *ids,
                                plim_err *err)
{
    for (uint32_t i = 0; i < a->n; i++) {
        plim_meta meta;
        ids[i] = PLIM_NONE;
        k->value[k->n_values] = 0;
        if (a->tensors[i].dtype < 0) {
            k->n_values++; /* so that the caller's count and ours agree */
            continue;
        }
        if (!read_tensor(&a->tensors[i], &meta))
            return plim_fail(
                err, PLIM_ERANGE, 0,
                "argument '%s': rank %d is not in 0..%d, or %d is not a data type", a->name,
                a->tensors[i].rank, PLIM_MAX_RANK, a->tensors[i].dtype);
        ids[i] = k->n_values;
        k->value[k->n_values++] = plim_m_outside(k->m, &meta);
    }
    return PLIM_OK;
}

/* Whether what its kind says is there. */
static bool arg_has_value(const plim_vgpu_arg *a)
{
    switch (a->kind) {
    case PLIM_VGPU_TENSOR: return a->tensors && a->n;
    case PLIM_VGPU_TENSORS: return a->tensors || !a->n;
    case PLIM_VGPU_INT: return a->ints;
    case PLIM_VGPU_INTS: return a->ints || !a->n;
    case PLIM_VGPU_NOTHING:
    case PLIM_VGPU_FLOAT: break;
    }
    return true;
}

static plim_status read_args(plim_vgpu *d, kernel_call *k, const plim_vgpu_arg *args,
                             uint32_t n, plim_err *err)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += args[i].kind == PLIM_VGPU_TENSOR || args[i].kind == PLIM_VGPU_TENSORS
                     ? args[i].n
                     : 0;
    uint32_t room = (uint32_t)PLIM_MIN(total + PLIM_KERNEL_OUTS, 1u << 24);
    k->args = PLIM_NEW_N(&d->scratch, plim_named_arg, (uint64_t)n + 1);
    k->value = PLIM_NEW_N(&d->scratch, plim_t, total + 1);
    k->out = PLIM_NEW_N(&d->scratch, plim_t, room);
    uint32_t *ids = PLIM_NEW_N(&d->scratch, uint32_t, total + 1);
    if (!k->args || !k->value || !k->out || !ids)
        return plim_oom(err);
    k->n_out = room;
    for (uint32_t i = 0; i < n; i++) {
        const plim_vgpu_arg *from = &args[i];
        plim_arg a = {.kind = PLIM_ARG_NONE, .n = from->n};
        uint32_t *first = ids + k->n_values;
        plim_status st = PLIM_OK;
        if (!from->name || !arg_has_value(from))
            return plim_fail(err, PLIM_EUSAGE, i, "argument '%s' of the kernel has no value",
                             from->name ? from->name : "");
        switch (from->kind) {
        case PLIM_VGPU_NOTHING: break;
        case PLIM_VGPU_TENSOR:
        case PLIM_VGPU_TENSORS:
            st = read_tensors(k, from, first, err);
            a.kind = PLIM_ARG_VALUES;
            a.ids = first;
            if (!st && from->kind == PLIM_VGPU_TENSOR) {
                a.kind = *first == PLIM_NONE ? PLIM_ARG_NONE : PLIM_ARG_VALUE;
                a.id = *first;
            }
            break;
        case PLIM_VGPU_INT:
            a.kind = PLIM_ARG_INT;
            a.i = from->ints[0];
            break;
        case PLIM_VGPU_INTS:
            a.kind = PLIM_ARG_INTS;
            a.ints = from->ints;
            break;
        case PLIM_VGPU_FLOAT:
            a.kind = PLIM_ARG_FLOAT;
            a.f = from->number;
            break;
        }
        if (st)
            return st;
        k->args[i] = (plim_named_arg){plim_str_of(from->name), a};
    }
    return PLIM_OK;
}

/* ---- a call ------------------------------------------------------------------- */

/* Serves the first n events that a kernel has written. */
static plim_status serve_events(plim_vgpu *d, kernel_call *k, uint32_t n, uint16_t stream,
                                const plim_vgpu_tag *tag, bool *oom, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < d->inside.n_storages; i++)
        k->block[i] = PLIM_VGPU_NONE;
    for (uint32_t i = 0; i < n && !st && !*oom; i++) {
        plim_event e = d->inside.events[i];
        if (e.kind == PLIM_EVENT_FREE) {
            if (k->block[e.id] != PLIM_VGPU_NONE)
                st = plim__vgpu_take_back(d, k->block[e.id], err);
            k->block[e.id] = PLIM_VGPU_NONE;
        } else if (e.kind == PLIM_EVENT_ALLOC) {
            plim_storage s = d->inside.storages[e.id];
            if (!plim_storage_bytes(&s, d->bound))
                continue;
            if (s.category != PLIM_CAT_WORKSPACE)
                s.category = (uint8_t)plim__vgpu_category(d, tag);
            st = plim__vgpu_serve(d, &s, stream, tag, &k->block[e.id], err);
            *oom = !st && k->block[e.id] == PLIM_VGPU_NONE;
        } else if (e.kind == PLIM_EVENT_EMPTY_CACHE) {
            st = plim__vgpu_empty_cache(d, err);
        }
    }
    /* what was served before the card was full goes back */
    for (uint32_t i = 0; *oom && i < d->inside.n_storages; i++)
        if (k->block[i] != PLIM_VGPU_NONE)
            plim__vgpu_take_back(d, k->block[i], NULL);
    return st;
}

static void read_result(plim_vgpu *d, const kernel_call *k, uint32_t i, plim_vgpu_result *r)
{
    const plim_t t = k->out[i];
    const plim_meta *x = plim_m_meta(k->m, t);
    uint32_t s = plim_m_tape_storage(k->m, t);
    *r = (plim_vgpu_result){.tensor = {.dtype = -1},
                            .block = PLIM_VGPU_NONE,
                            .shares = PLIM_VGPU_NONE,
                            .argument = PLIM_VGPU_NONE};
    if (!t)
        return;
    r->tensor.dtype = (int)x->dtype;
    r->tensor.rank = x->rank;
    for (int32_t j = 0; j < x->rank; j++) {
        r->tensor.dim[j] = x->dim[j];
        r->tensor.stride[j] = x->stride[j];
    }
    for (uint32_t j = 0; j < k->n_values; j++)
        if (k->value[j] == t)
            r->argument = j;
    for (uint32_t j = i; s != PLIM_NONE && j-- > 0;)
        if (k->out[j] && plim_m_tape_storage(k->m, k->out[j]) == s)
            r->shares = j;
    if (s == PLIM_NONE || r->shares != PLIM_VGPU_NONE || k->block[s] == PLIM_VGPU_NONE)
        return;
    r->block = k->block[s];
    r->bytes = d->slots[r->block].bytes;
    r->addr = plim_alloc_address(d->h, d->slots[r->block].block);
}

/* The machine forgets the results: their blocks are the caller's.  What it keeps
 * for itself (workspaces) is never freed, so old numbers are not met again. */
static void end_call(plim_vgpu *d, kernel_call *k)
{
    for (uint32_t i = 0; i < k->n_out; i++)
        plim_m_drop(k->m, k->out[i]);
    for (uint32_t i = 0; i < k->n_values; i++)
        plim_m_drop(k->m, k->value[i]);
    plim_m_clear_error(k->m);
    d->inside.n_events = d->inside.n_storages = d->inside.n_marks = 0;
}

/* Where cuDNN works otherwise on another card, the tape says nothing about it. */
static void compare_convolution(plim_vgpu *d, const plim_asked *asked)
{
    for (uint32_t i = 0; i < d->n_cards; i++) {
        const int cc = plim_world_on(d->torch, d->cards[i], d->world.lib).cc;
        d->other_way[i] = d->other_way[i] || cc < asked->since || cc >= asked->before;
    }
}

static plim_status run_kernel(plim_vgpu *d, kernel_call *k, const plim_kernel *kernel,
                              const plim_vgpu_kernel_call *call, plim_vgpu_result *out,
                              uint32_t max, uint32_t *n_out, bool *oom, plim_err *err)
{
    plim_m_set_libraries(k->m, (plim_libraries){.torch = d->world.lib.torch,
                                                .workspace = d->world.lib.workspace,
                                                .no_tf32 = call->cudnn_no_tf32,
                                                .benchmark = call->cudnn_benchmark});
    plim_m_ask_anew(k->m);
    plim_status st = read_args(d, k, call->args, call->n_args, err);
    if (!st) {
        d->kernel_err = (plim_err)PLIM_ERR_INIT;
        st = plim_kernel_call(k->m, &d->scratch, kernel, k->args, call->n_args, k->value,
                              k->out, &k->n_out, &d->kernel_err);
        if (st && err)
            *err = d->kernel_err;
    }
    if (!st && d->n_cards > 1 && strstr(kernel->name, "conv")) {
        const plim_asked asked = plim_m_asked(k->m);
        compare_convolution(d, &asked);
    }
    if (!st && k->n_out > max)
        st = plim_fail(err, PLIM_ERANGE, 0, "'%s' has %u results, there is room for %u",
                       kernel->name, (unsigned)k->n_out, (unsigned)max);
    if (!st &&
        !(k->block = PLIM_NEW_N(&d->scratch, uint32_t, (uint64_t)d->inside.n_storages + 1)))
        st = plim_oom(err);
    if (!st)
        st = serve_events(d, k, d->inside.n_events, call->stream, call->tag, oom, err);
    *n_out = st || *oom ? 0 : k->n_out;
    for (uint32_t i = 0; i < *n_out; i++)
        read_result(d, k, i, &out[i]);
    return st;
}

/* Which thread called which library; a machine does not know that it is the autograd thread's. */
static void note_callers(plim_vgpu *d, bool autograd_thread)
{
    for (int i = 0; i < PLIM_CUDA_LIBRARIES; i++) {
        d->tape.callers[i] |= (uint8_t)(d->inside.callers[i] << autograd_thread);
        d->inside.callers[i] = 0;
    }
}

plim_status plim_vgpu_kernel(plim_vgpu *d, const char *name, const plim_vgpu_kernel_call *call,
                             plim_vgpu_result *out, uint32_t max, uint32_t *n_out, bool *oom,
                             plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(name, err);
    PLIM_REQUIRE(call, err);
    if (max)
        PLIM_REQUIRE(out, err);
    PLIM_REQUIRE(n_out, err);
    PLIM_REQUIRE(oom, err);
    if (call->n_args)
        PLIM_REQUIRE(call->args, err);
    const plim_kernel *kernel = plim_kernel_find(plim_str_of(name));
    *n_out = 0;
    *oom = false;
    if (!kernel)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown kernel '%s'", name);
    pthread_mutex_lock(&d->lock);
    plim_arena_reset(&d->scratch);
    kernel_call k = {.m = d->kernel[call->autograd_thread]};
    plim_status st = run_kernel(d, &k, kernel, call, out, max, n_out, oom, err);
    end_call(d, &k);
    note_callers(d, call->autograd_thread);
    pthread_mutex_unlock(&d->lock);
    return st;
}

const char *plim_vgpu_kernel_name(uint32_t i, bool *makes)
{
    const plim_kernel *k = plim_kernel_at(i);
    *makes = k && k->outputs;
    return k ? k->name : NULL;
}

/* ---- convolution ------------------------------------------------------------- */

_Static_assert((int)PLIM_VGPU_CONV_FORWARD == (int)PLIM_CUDNN_FORWARD &&
                   (int)PLIM_VGPU_CONV_GRAD_INPUT == (int)PLIM_CUDNN_GRAD_INPUT &&
                   (int)PLIM_VGPU_CONV_GRAD_WEIGHT == (int)PLIM_CUDNN_GRAD_WEIGHT,
               "the public numbers are the rules' own");

uint64_t plim_vgpu_conv_workspace(const plim_vgpu *d, const plim_vgpu_conv *conv)
{
    plim_cudnn_conv c = {.pass = (plim_cudnn_pass)conv->pass};
    plim_world world = d->world;
    world.lib.benchmark = conv->benchmark;
    world.lib.no_tf32 = conv->no_tf32;
    if (!world.lib.workspace || !read_tensor(&conv->x, &c.x) || !read_tensor(&conv->w, &c.w) ||
        !read_tensor(&conv->y, &c.y) || c.x.rank < 3)
        return 0;
    c.channels_last = plim_suggests_channels_last(&c.x);
    const plim_cudnn_bytes n = plim_cudnn_workspace(&world, &c);
    return d->bound == PLIM_BOUND_LOW ? n.low : d->bound == PLIM_BOUND_HIGH ? n.high : n.usual;
}

/* ---- attention ---------------------------------------------------------------- */

/* Where another card would decide otherwise, the tape says nothing about it. */
static void compare_attention(plim_vgpu *d, const plim_meta *q, const plim_meta *k,
                              const plim_meta *v, const plim_sdpa_call *call, plim_sdpa here)
{
    for (uint32_t i = 0; i < d->n_cards; i++) {
        const plim_world w = plim_world_on(d->torch, d->cards[i], d->world.lib);
        d->other_way[i] = d->other_way[i] || plim_sdpa_choice(&w, q, k, v, call) != here;
    }
}

uint64_t plim_vgpu_attention_workspace(const plim_vgpu *d)
{
    return d->world.lib.workspace ? PLIM_CUDNN_GRAPH_BYTES : 0;
}

_Static_assert((int)PLIM_VGPU_SDPA_MATH == (int)PLIM_SDPA_MATH &&
                   (int)PLIM_VGPU_SDPA_FLASH == (int)PLIM_SDPA_FLASH &&
                   (int)PLIM_VGPU_SDPA_EFFICIENT == (int)PLIM_SDPA_EFFICIENT &&
                   (int)PLIM_VGPU_SDPA_CUDNN == (int)PLIM_SDPA_CUDNN,
               "the public numbers are the rules' own");

plim_vgpu_sdpa plim_vgpu_attention(plim_vgpu *d, const plim_vgpu_tensor *q,
                                   const plim_vgpu_tensor *k, const plim_vgpu_tensor *v,
                                   const plim_vgpu_attention_call *call)
{
    plim_meta qm, km, vm;
    if (!read_tensor(q, &qm) || !read_tensor(k, &km) || !read_tensor(v, &vm))
        return PLIM_VGPU_SDPA_MATH;
    const plim_sdpa_call c = {.mask = call->mask,
                              .mask_grad = call->mask_grad,
                              .mask_strided = call->mask_strided,
                              .causal = call->causal,
                              .gqa = call->gqa,
                              .dropout = call->dropout,
                              .without = call->without};
    plim_sdpa choice = plim_sdpa_choice(&d->world, &qm, &km, &vm, &c);
    if (d->n_cards > 1) {
        pthread_mutex_lock(&d->lock);
        compare_attention(d, &qm, &km, &vm, &c, choice);
        pthread_mutex_unlock(&d->lock);
    }
    return (plim_vgpu_sdpa)choice;
}

/* The worlds of the two threads are one; their workspaces are not. */
plim_status plim__vgpu_open_kernels(plim_vgpu *d, plim_err *err)
{
    plim_tape_init(&d->inside, &d->kernels);
    for (int i = 0; i < 2; i++)
        if (!(d->kernel[i] = plim_m_new(&d->kernels, &d->inside, &d->world, &d->kernel_err)))
            return plim_oom(err);
    return PLIM_OK;
}
