/* hooks.c -- the functions that take the place of the driver's, and how programs come to call
 * them: by the dynamic linker, by dlsym, or by cuGetProcAddress.
 *
 * A function here does not know which types its arguments have.  It passes on eight words,
 * as many as any of these functions takes; where the function takes fewer, what is passed on
 * beyond them is not looked at. */
#include "record.h"

#include <dlfcn.h>
#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, OUT_OF_MEMORY = 2, NO_DRIVER = 100, ARGS = 8 };

typedef uint64_t word;
typedef int (*driver_call)(word, word, word, word, word, word, word, word);

/* ---- the table -------------------------------------------------------------- */

/* Where a figure of an event comes from: see hooks.def. */
enum source {
    NONE,
    PITCH,
    ARRAY2,
    ARRAY3,
    MIPMAPS,
    RANGE,      /* the bytes of the allocation at OUT(0) */
    ALLOC_NODE, /* both, from the parameters of a node: of one that allocates, */
    ANY_NODE,   /* of any, */
    EDGE_NODE,  /* or with data of edges before */
    FIRST_ARG = 16,
    FIRST_OUT = 32
};
#define ARG(i) (FIRST_ARG + (i))
#define OUT(i) (FIRST_OUT + (i))

typedef struct hook {
    const char *name, *base;
    int since;
    bool ptsz;
    plim_driver_kind kind;
    int address, bytes, other; /* sources */
    void *wrapper;
    _Atomic(driver_call) real; /* as the program got it last */
} hook;

/* A handle between processes. */
typedef struct ipc_handle {
    word words[8];
} ipc_handle;
typedef int (*ipc_call)(word, ipc_handle, unsigned);

#define HOOK(name, base, since, ptsz, kind, address, bytes, other)                            \
    EXPORT int name(word a, word b, word c, word d, word e, word f, word g, word h);
#define IPC_HOOK(name, base, since, ptsz, kind, address, bytes, other)                        \
    EXPORT int name(word out, ipc_handle handle, unsigned flags);
#include "hooks.def"
#undef HOOK

EXPORT int cuGetProcAddress(const char *name, void **f, int version, word flags);
EXPORT int cuGetProcAddress_v2(const char *name, void **f, int version, word flags,
                               int *status);
EXPORT int cuGetProcAddress_v2_ptsz(const char *name, void **f, int version, word flags,
                                    int *status);
#define FINDER(name_, since_, ptsz_)                                                          \
    {.name = #name_,                                                                          \
     .base = "cuGetProcAddress",                                                              \
     .since = since_,                                                                         \
     .ptsz = ptsz_,                                                                           \
     .wrapper = (void *)name_},

#define HOOK(name_, base_, since_, ptsz_, kind_, address_, bytes_, other_)                    \
    {.name = #name_,                                                                          \
     .base = base_,                                                                           \
     .since = since_,                                                                         \
     .ptsz = ptsz_,                                                                           \
     .kind = PLIM_DRIVER_##kind_,                                                             \
     .address = address_,                                                                     \
     .bytes = bytes_,                                                                         \
     .other = other_,                                                                         \
     .wrapper = (void *)name_},
static hook hooks[] = {
#include "hooks.def"
    FINDER(cuGetProcAddress, 11030, false) FINDER(cuGetProcAddress_v2, 12000, false)
        FINDER(cuGetProcAddress_v2_ptsz, 12000, true)};
#undef HOOK

enum hook_number {
#define HOOK(name, ...) HOOK_##name,
#include "hooks.def"
#undef HOOK
    FIND,
    FIND_V2,
    FIND_V2_PTSZ,
    HOOKS
};

/* ---- the real functions ----------------------------------------------------- */

/* Set while the driver is called, whose own look-ups must find its own functions. */
static _Thread_local bool inside;

plim_record_find plim_record_dlsym(void)
{
    static _Atomic(plim_record_find) real;
    plim_record_find f = atomic_load_explicit(&real, memory_order_relaxed);
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17"};
    for (size_t i = 0; !f && i < sizeof versions / sizeof *versions; i++)
        f = (plim_record_find)dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    if (!f)
        abort(); /* a libc that is not glibc does not get here: it has no dlvsym */
    atomic_store_explicit(&real, f, memory_order_relaxed);
    return f;
}

/* A function of the driver, if it is loaded.  It is not kept from being unloaded. */
static void *find_driver(const char *name)
{
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *f = lib ? plim_record_dlsym()(lib, name) : NULL;
    if (lib)
        dlclose(lib);
    return f;
}

static driver_call real_of(hook *h)
{
    driver_call f = atomic_load_explicit(&h->real, memory_order_relaxed);
    if (!f && (f = (driver_call)find_driver(h->name)))
        atomic_store_explicit(&h->real, f, memory_order_relaxed);
    return f;
}

/* Functions that are called here and not recorded. */
enum {
    GET_DEVICE,
    GET_CONTEXT,
    PUSH,
    POP,
    MEM_INFO,
    CAPTURE,
    CAPTURING,
    ADDRESS_RANGE,
    GRAPH_POOL,
    AIDS
};
static _Atomic(driver_call) aids[AIDS];

static word call_aid(int aid, word a, word b, word c)
{
    static const char *const names[AIDS] = {
        "cuCtxGetDevice",      "cuCtxGetCurrent",         "cuCtxPushCurrent_v2",
        "cuCtxPopCurrent_v2",  "cuMemGetInfo_v2",         "cuThreadExchangeStreamCaptureMode",
        "cuStreamIsCapturing", "cuMemGetAddressRange_v2", "cuDeviceGetGraphMemAttribute"};
    driver_call f = atomic_load_explicit(&aids[aid], memory_order_relaxed);
    if (!f && (f = (driver_call)find_driver(names[aid])))
        atomic_store_explicit(&aids[aid], f, memory_order_relaxed);
    return f ? (word)f(a, b, c, 0, 0, 0, 0, 0) : (word)NO_DRIVER;
}
#define AID_OK(aid, a, b)                                                                     \
    ((int)call_aid(aid, (word)(uintptr_t)(a), (word)(uintptr_t)(b), 0) == OK)

/* The driver may have been unloaded, and may be loaded elsewhere. */
static void forget_driver(void)
{
    for (int i = 0; i < AIDS; i++)
        atomic_store(&aids[i], NULL);
    for (int i = 0; i < HOOKS; i++)
        atomic_store(&hooks[i].real, NULL);
}

/* A program has got this function from the driver that is loaded now. */
static void keep_function(_Atomic(driver_call) *kept, void *f)
{
    static _Atomic(void *) base;
    Dl_info of;
    void *now = dladdr(f, &of) ? of.dli_fbase : NULL;
    if (atomic_exchange(&base, now) != now)
        forget_driver();
    atomic_store(kept, (driver_call)f);
}

static hook *hook_of(const char *name)
{
    for (int i = 0; i < HOOKS; i++)
        if (!strcmp(hooks[i].name, name))
            return &hooks[i];
    return NULL;
}

static int16_t current_device(void)
{
    int device = -1;
    return AID_OK(GET_DEVICE, &device, 0) ? (int16_t)device : -1;
}

/* Free and total bytes of the current device.  It must not end a capture of a CUDA graph. */
static bool read_memory(size_t *free_bytes, size_t *total)
{
    enum { RELAXED = 2 };
    int mode = RELAXED;
    bool changed = AID_OK(CAPTURE, &mode, 0);
    bool good = AID_OK(MEM_INFO, free_bytes, total);
    if (changed)
        call_aid(CAPTURE, (word)(uintptr_t)&mode, 0, 0);
    return good;
}

/* ---- what an event says ----------------------------------------------------- */

/* Bytes of an array, as its descriptor says.  src: the driver's documentation,
 * CUDA_ARRAY_DESCRIPTOR and CUDA_ARRAY3D_DESCRIPTOR, CUarray_format */
static uint64_t array_bytes(const uint64_t *describes, bool deep, uint64_t levels)
{
    uint64_t w = describes[0], h = describes[1], d = deep ? describes[2] : 0, sum = 0;
    uint32_t format[2]; /* and channels */
    memcpy(format, describes + (deep ? 3 : 2), sizeof format);
    uint64_t each = format[0] == 0x02 || format[0] == 0x09 || format[0] == 0x10   ? 2
                    : format[0] == 0x03 || format[0] == 0x0a || format[0] == 0x20 ? 4
                                                                                  : 1;
    each *= format[1];
    for (uint64_t i = 0; i < levels && i < 32; i++) {
        sum += (w ? w : 1) * (h ? h : 1) * (d ? d : 1) * each;
        w /= 2, h /= 2, d /= 2;
    }
    return sum;
}

static uint64_t range_bytes(uint64_t address)
{
    uint64_t begin = 0, bytes = 0;
    return call_aid(ADDRESS_RANGE, (word)(uintptr_t)&begin, (word)(uintptr_t)&bytes,
                    address) == OK
               ? bytes
               : 0;
}

static uint64_t value_from(int source, const word *a)
{
    bool out = source >= FIRST_OUT;
    int describes = out ? source - FIRST_OUT : source == RANGE ? 0 : 1;
    const uint64_t *p = (const uint64_t *)(uintptr_t)a[describes];
    if (source == NONE || (source >= FIRST_ARG && !out))
        return source == NONE ? 0 : a[source - FIRST_ARG];
    return !p                  ? 0
           : source == PITCH   ? *p * a[3]
           : source == ARRAY2  ? array_bytes(p, false, 1)
           : source == ARRAY3  ? array_bytes(p, true, 1)
           : source == MIPMAPS ? array_bytes(p, true, (uint32_t)a[2])
           : source == RANGE   ? range_bytes(*p)
                               : *p;
}

/* Where cuMemCreate takes memory: its device, or -1 for the host's.
 * src: the driver's documentation, CUmemAllocationProp: type, handle types, location */
static int16_t device_of_create(const word *a)
{
    enum { ON_DEVICE = 1 };
    const int32_t *p = (const int32_t *)(uintptr_t)a[2];
    return p && p[2] == ON_DEVICE ? (int16_t)p[3] : -1;
}

static bool is_allocation(plim_driver_kind k)
{
    return k == PLIM_DRIVER_ALLOC || k == PLIM_DRIVER_MANAGED || k == PLIM_DRIVER_POOL ||
           k == PLIM_DRIVER_HOST || k == PLIM_DRIVER_ARRAY || k == PLIM_DRIVER_CREATE ||
           k == PLIM_DRIVER_SHARED || k == PLIM_DRIVER_IMPORT || k == PLIM_DRIVER_GRAPH_NODE;
}

/* What gives memory back is dated before it does: another thread may get it at once. */
static bool is_release(plim_driver_kind k)
{
    return k == PLIM_DRIVER_FREE || k == PLIM_DRIVER_HOST_FREE ||
           k == PLIM_DRIVER_ARRAY_FREE || k == PLIM_DRIVER_RELEASE || k == PLIM_DRIVER_UNMAP ||
           k == PLIM_DRIVER_CONTEXT_END || k == PLIM_DRIVER_PRIMARY_LEFT ||
           k == PLIM_DRIVER_PRIMARY_RESET;
}

static void write_reading(int16_t device)
{
    size_t free_bytes, total;
    plim_driver_event e = {.kind = PLIM_DRIVER_READING, .device = device};
    if (!read_memory(&free_bytes, &total))
        return;
    e.time = plim_record_now();
    e.bytes = free_bytes;
    e.other = total;
    plim_record_event(&e);
}

/* ---- CUDA graphs ------------------------------------------------------------- */

/* Nodes that allocate hold nothing until their graph is launched, and then what the driver
 * says that the graphs of the device hold together: they may use the same memory, and keep it
 * until it is trimmed.  Who has no such node is not asked. */
static atomic_bool has_nodes;

/* src: cuda.h, CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphNodeParams, CUgraphNodeType */
static bool read_node(const hook *h, const word *a, plim_driver_event *e)
{
    enum { MEM_ALLOC = 10, PARAMS = 2, BYTES = 13, ADDRESS = 14 };
    const uint64_t *p = (const uint64_t *)(uintptr_t)a[h->address == EDGE_NODE ? 5 : 4];
    int32_t type = MEM_ALLOC;
    if (p && h->address != ALLOC_NODE) {
        memcpy(&type, p, sizeof type);
        p += PARAMS;
    }
    if (!p || type != MEM_ALLOC)
        return false;
    e->bytes = p[BYTES];
    e->address = p[ADDRESS];
    return true;
}

/* What is asked of a pool in a stream that is being captured becomes a node, too. */
static bool is_captured(uint64_t stream)
{
    enum { LEGACY = 1, ACTIVE = 1 };
    int status = 0;
    return stream > LEGACY && AID_OK(CAPTURING, stream, &status) && status == ACTIVE;
}

/* false: as before. */
static bool read_graphs(plim_driver_event *e)
{
    enum { RESERVED = 2, DEVICES = 64 };
    static _Atomic(uint64_t) last[DEVICES];
    return e->device >= 0 && e->device < DEVICES &&
           call_aid(GRAPH_POOL, (word)e->device, RESERVED, (word)(uintptr_t)&e->bytes) == OK &&
           atomic_exchange(&last[e->device], e->bytes) != e->bytes;
}

/* ---- contexts --------------------------------------------------------------- */

enum { CONTEXTS = 64 };
static _Atomic(word) contexts[CONTEXTS]; /* whose memory is read once more at the end */
static atomic_bool at_exit;
static _Atomic(unsigned) contexts_forks; /* to which fork they belong */

static void read_context(word context)
{
    word out = 0;
    if (!AID_OK(PUSH, context, 0))
        return;
    write_reading(current_device());
    call_aid(POP, (word)(uintptr_t)&out, 0, 0);
}

static void read_at_end(void)
{
    plim_driver_event e = {.kind = PLIM_DRIVER_EXIT, .device = -1};
    if (atomic_load(&contexts_forks) != plim_record_forks())
        return; /* a child has no context */
    inside = true;
    forget_driver(); /* it may be gone */
    for (int i = 0; i < CONTEXTS; i++) {
        word context = atomic_load(&contexts[i]);
        if (context)
            read_context(context);
    }
    e.time = plim_record_now();
    plim_record_event(&e);
    inside = false;
}

static void new_context(word context)
{
    unsigned forks = plim_record_forks();
    if (atomic_exchange(&contexts_forks, forks) != forks)
        for (int i = 0; i < CONTEXTS; i++)
            atomic_store(&contexts[i], 0);
    if (!atomic_exchange(&at_exit, true))
        atexit(read_at_end); /* before what the CUDA runtime does then */
    for (int i = 0; i < CONTEXTS; i++) {
        word none = 0;
        if (atomic_load(&contexts[i]) == context ||
            atomic_compare_exchange_strong(&contexts[i], &none, context))
            break;
    }
    read_context(context);
}

static void end_context(word context)
{
    for (int i = 0; i < CONTEXTS; i++) {
        word is = context;
        atomic_compare_exchange_strong(&contexts[i], &is, 0);
    }
}

/* ---- a call ----------------------------------------------------------------- */

static void write_call(const hook *h, const word *a, int result, uint64_t time, void *caller)
{
    plim_driver_event e = {.kind = (uint16_t)h->kind,
                           .device = -1,
                           .result = result,
                           .time = time,
                           .owner = plim_record_owner(caller),
                           .free = UINT64_MAX};
    size_t free_bytes, total;
    word context = 0;
    if (h->kind == PLIM_DRIVER_GRAPH_NODE) {
        if (result || !read_node(h, a, &e))
            return; /* another kind of node */
    } else {
        if (h->address < FIRST_OUT || !result) /* what failed leaves nothing there */
            e.address = value_from(h->address, a);
        if ((h->bytes != PITCH && h->bytes != RANGE) || !result)
            e.bytes = value_from(h->bytes, a);
    }
    e.other = value_from(h->other, a);
    if (h->kind == PLIM_DRIVER_POOL && !result && is_captured(e.other))
        e.kind = PLIM_DRIVER_GRAPH_NODE;
    if (e.kind == PLIM_DRIVER_GRAPH_NODE)
        atomic_store(&has_nodes, true);
    if (h->kind == PLIM_DRIVER_PRIMARY_LEFT || h->kind == PLIM_DRIVER_PRIMARY_RESET)
        e.device = (int16_t)a[0];
    else if (h == &hooks[HOOK_cuDevicePrimaryCtxRetain])
        e.device = (int16_t)a[1];
    else if (h->kind == PLIM_DRIVER_CREATE)
        e.device = device_of_create(a);
    else if (h == &hooks[HOOK_cuDeviceGraphMemTrim])
        e.device = (int16_t)a[0];
    else if (is_allocation(h->kind) || h->kind == PLIM_DRIVER_READING ||
             h->kind == PLIM_DRIVER_GRAPH_MEMORY)
        e.device = current_device();
    if (h->kind == PLIM_DRIVER_GRAPH_MEMORY && !read_graphs(&e))
        return;
    if ((h->kind == PLIM_DRIVER_ALLOC || h->kind == PLIM_DRIVER_MANAGED ||
         h->kind == PLIM_DRIVER_ARRAY || h->kind == PLIM_DRIVER_GRAPH_MEMORY ||
         h->kind == PLIM_DRIVER_SHARED) &&
        AID_OK(GET_CONTEXT, &context, 0))
        e.other = context;
    if (result && read_memory(&free_bytes, &total))
        e.free = free_bytes;
    if (is_allocation(h->kind))
        plim_record_python(&e);
    if (h->kind == PLIM_DRIVER_CONTEXT) {
        plim_record_event(&e); /* before the reading */
        new_context(e.address);
        return;
    }
    if (h->kind == PLIM_DRIVER_CONTEXT_END)
        end_context(a[0]);
    plim_record_event(&e);
    if (h->kind == PLIM_DRIVER_MODULE || h->kind == PLIM_DRIVER_GRAPH)
        write_reading(current_device());
}

static int call_real(driver_call real, const word a[ARGS], const ipc_handle *handle)
{
    return handle ? ((ipc_call)(void (*)(void))real)(a[0], *handle, (unsigned)a[2])
                  : real(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

/* `handle` is the second argument, if it is passed by value; else NULL. */
static int pass_call(enum hook_number number, const word a[ARGS], const ipc_handle *handle,
                     void *caller)
{
    hook *h = &hooks[number];
    driver_call real = real_of(h);
    if (!real)
        return NO_DRIVER;
    if (inside || !plim_record_wanted() ||
        (h->kind == PLIM_DRIVER_GRAPH_MEMORY && !atomic_load(&has_nodes)))
        return call_real(real, a, handle);
    inside = true;
    uint64_t time = is_release(h->kind) ? plim_record_now() : 0;
    int result = call_real(real, a, handle);
    int was = errno;
    if (result == OK || (result == OUT_OF_MEMORY && is_allocation(h->kind)))
        write_call(h, a, result, time ? time : plim_record_now(), caller);
    inside = false;
    errno = was;
    return result;
}

#define HOOK(name, base, since, ptsz, kind, address, bytes, other)                            \
    int name(word a, word b, word c, word d, word e, word f, word g, word h)                  \
    {                                                                                         \
        const word args[ARGS] = {a, b, c, d, e, f, g, h};                                     \
        return pass_call(HOOK_##name, args, NULL, __builtin_return_address(0));               \
    }
#define IPC_HOOK(name, base, since, ptsz, kind, address, bytes, other)                        \
    int name(word out, ipc_handle handle, unsigned flags)                                     \
    {                                                                                         \
        const word args[ARGS] = {out, 0, flags};                                              \
        return pass_call(HOOK_##name, args, &handle, __builtin_return_address(0));            \
    }
#include "hooks.def"
#undef HOOK

/* ---- cuGetProcAddress ------------------------------------------------------- */

enum { PER_THREAD = 2 }; /* a flag: functions for the default stream of each thread */

/* Which function a name means for a version: the newest that is not newer. */
static void *wrap_proc(const char *name, void *f, int version, word flags)
{
    hook *best = NULL;
    for (int i = 0; i < HOOKS; i++) {
        hook *h = &hooks[i];
        if ((!strcmp(h->base, name) || !strcmp(h->name, name)) && h->since <= version &&
            (!h->ptsz || flags & PER_THREAD) &&
            (!best || h->since > best->since || (h->since == best->since && h->ptsz)))
            best = h;
    }
    if (!best || f == best->wrapper)
        return f;
    keep_function(&best->real, f);
    return best->wrapper;
}

static int pass_find(hook *h, const char *name, void **f, int version, word flags, int *status)
{
    driver_call real = real_of(h);
    bool was = inside;
    if (!real)
        return NO_DRIVER;
    inside = true;
    int result = real((word)(uintptr_t)name, (word)(uintptr_t)f, (word)version, flags,
                      (word)(uintptr_t)status, 0, 0, 0);
    inside = was;
    if (!was && result == OK && name && f && *f && plim_record_wanted())
        *f = wrap_proc(name, *f, version, h->ptsz && !flags ? PER_THREAD : flags);
    return result;
}

int cuGetProcAddress(const char *name, void **f, int version, word flags)
{
    return pass_find(&hooks[FIND], name, f, version, flags, NULL);
}

int cuGetProcAddress_v2(const char *name, void **f, int version, word flags, int *status)
{
    return pass_find(&hooks[FIND_V2], name, f, version, flags, status);
}

int cuGetProcAddress_v2_ptsz(const char *name, void **f, int version, word flags, int *status)
{
    return pass_find(&hooks[FIND_V2_PTSZ], name, f, version, flags, status);
}

/* ---- dlsym ------------------------------------------------------------------ */

/* What the driver's function is, our own in its place; where the program looks everywhere, it
 * may have found our own, which is only an answer if there is a driver. */
static void *wrap_symbol(void *handle, hook *h)
{
    void *f = plim_record_dlsym()(handle, h->name);
    if (f == h->wrapper)
        f = find_driver(h->name);
    if (!f)
        return NULL;
    keep_function(&h->real, f);
    return h->wrapper;
}

EXPORT void *dlsym(void *restrict handle, const char *restrict name);

/* The real one must see its caller's address for RTLD_NEXT: a call in tail position, which the
 * build asks for (-foptimize-sibling-calls), leaves it in place. */
void *dlsym(void *restrict handle, const char *restrict name)
{
    hook *h = name[0] == 'c' && name[1] == 'u' && !inside && handle != RTLD_NEXT &&
                      plim_record_wanted()
                  ? hook_of(name)
                  : NULL;
    if (h)
        return wrap_symbol(handle, h);
    return plim_record_dlsym()(handle, name);
}
