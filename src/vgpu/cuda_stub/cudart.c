/* cudart.c -- libcudart.so.12 and .13: the runtime, over libcuda and the ledger of core.c. */
#include "stub.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    BAD_HANDLE = 400,
    NOT_READY = 600,
    NOT_SUPPORTED = 801,
    CAPTURING = 900,
    NOT_CAPTURING = 901
};

typedef struct dim3 {
    unsigned x, y, z;
} dim3;

#define CUDART(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

/* ---- errors ------------------------------------------------------------------- */

static _Thread_local int last_error;

static int keep_error(int code)
{
    if (code)
        last_error = code;
    return code;
}

CUDART(cudaPeekAtLastError, void) { return last_error; }

CUDART(cudaGetLastError, void)
{
    int code = last_error;
    last_error = OK;
    return code;
}

static const struct {
    int code;
    const char *name, *text;
} errors[] = {
    {OK, "cudaSuccess", "no error"},
    {INVALID, "cudaErrorInvalidValue", "invalid argument"},
    {OUT_OF_MEMORY, "cudaErrorMemoryAllocation", "out of memory"},
    {NO_DEVICE, "cudaErrorNoDevice", "no CUDA-capable device is detected"},
    {BAD_DEVICE, "cudaErrorInvalidDevice", "invalid device ordinal"},
    {BAD_HANDLE, "cudaErrorInvalidResourceHandle", "invalid resource handle"},
    {NOT_READY, "cudaErrorNotReady", "device not ready"},
    {NOT_SUPPORTED, "cudaErrorNotSupported", "operation not supported"},
    {CAPTURING, "cudaErrorStreamCaptureUnsupported",
     "operation not permitted when stream is capturing"},
    {NOT_CAPTURING, "cudaErrorStreamCaptureInvalidated",
     "operation failed due to a previous error during capture"},
};

PLIM_STUB(const char *, cudaGetErrorName, int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].name;
    return "cudaErrorUnknown";
}

PLIM_STUB(const char *, cudaGetErrorString, int code)
{
    for (size_t i = 0; i < sizeof errors / sizeof errors[0]; i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "unknown error";
}

/* ---- the device ---------------------------------------------------------------- */

CUDART(cudaGetDeviceCount, int *n)
{
    *n = plim_stub_card_get() != NULL;
    return keep_error(*n ? OK : NO_DEVICE);
}

CUDART(cudaGetDevice, int *device)
{
    *device = 0;
    return keep_error(plim_stub_card_get() ? OK : NO_DEVICE);
}

CUDART(cudaSetDevice, int device)
{
    return keep_error(device || !plim_stub_card_get() ? BAD_DEVICE : OK);
}

CUDART(cudaDeviceGetAttribute, int *value, int number, int device)
{
    if (device || !plim_stub_card_get())
        return keep_error(BAD_DEVICE);
    *value = plim_stub_attribute(plim_stub_card_get(), number);
    return OK;
}

CUDART(cudaDriverGetVersion, int *version)
{
    *version =
        (int)plim_stub_setting("PLIMSOLL_STUB_CUDA_VERSION", PLIM_STUB_MAJOR * 1000 + 20);
    return OK;
}

CUDART(cudaRuntimeGetVersion, int *version)
{
    *version =
        (int)plim_stub_setting("PLIMSOLL_STUB_CUDA_VERSION", PLIM_STUB_MAJOR * 1000 + 20);
    return OK;
}

CUDART(cudaDeviceGetPCIBusId, char *id, int n, int device)
{
    snprintf(id, (size_t)n, "00000000:01:00.0");
    return keep_error(device ? BAD_DEVICE : OK);
}

CUDART(cudaDeviceGetStreamPriorityRange, int *least, int *greatest)
{
    *least = 0;
    *greatest = -5;
    return OK;
}

CUDART(cudaDeviceCanAccessPeer, int *can, int device, int peer)
{
    (void)device, (void)peer;
    *can = 0;
    return OK;
}

/* Where the fields of cudaDeviceProp lie, which differs from one major version of
 * the runtime to the next.  Each is an attribute of the device, so one table fills
 * the struct; wide fields are size_t.
 * src: offsets in the documented struct, CUDA 12.8 and 13.2. */
typedef struct prop {
    int attribute;
    uint16_t at12, at13;
    bool wide;
} prop;

enum { PROP_BYTES_12 = 1032, PROP_BYTES_13 = 1008, PROP_TOTAL = 288 };

static const prop props[] = {
    {8, 296, 296, true},    /* sharedMemPerBlock */
    {12, 304, 304, false},  /* regsPerBlock */
    {10, 308, 308, false},  /* warpSize */
    {11, 312, 312, true},   /* memPitch */
    {1, 320, 320, false},   /* maxThreadsPerBlock */
    {2, 324, 324, false},   /* maxThreadsDim[0] */
    {3, 328, 328, false},   /* maxThreadsDim[1] */
    {4, 332, 332, false},   /* maxThreadsDim[2] */
    {5, 336, 336, false},   /* maxGridSize[0] */
    {6, 340, 340, false},   /* maxGridSize[1] */
    {7, 344, 344, false},   /* maxGridSize[2] */
    {9, 352, 352, true},    /* totalConstMem */
    {75, 360, 360, false},  /* major */
    {76, 364, 364, false},  /* minor */
    {14, 368, 368, true},   /* textureAlignment */
    {51, 376, 376, true},   /* texturePitchAlignment */
    {16, 388, 384, false},  /* multiProcessorCount */
    {19, 400, 392, false},  /* canMapHostMemory */
    {31, 576, 560, false},  /* concurrentKernels */
    {33, 584, 568, false},  /* pciBusID */
    {40, 600, 584, false},  /* asyncEngineCount */
    {41, 604, 588, false},  /* unifiedAddressing */
    {37, 612, 592, false},  /* memoryBusWidth */
    {38, 616, 596, false},  /* l2CacheSize */
    {39, 624, 604, false},  /* maxThreadsPerMultiProcessor */
    {78, 628, 608, false},  /* streamPrioritiesSupported */
    {79, 632, 612, false},  /* globalL1CacheSupported */
    {80, 636, 616, false},  /* localL1CacheSupported */
    {81, 640, 624, true},   /* sharedMemPerMultiprocessor */
    {82, 648, 632, false},  /* regsPerMultiprocessor */
    {83, 652, 636, false},  /* managedMemory */
    {89, 676, 656, false},  /* concurrentManagedAccess */
    {90, 680, 660, false},  /* computePreemptionSupported */
    {95, 688, 668, false},  /* cooperativeLaunch */
    {97, 696, 672, true},   /* sharedMemPerBlockOptin */
    {106, 712, 688, false}, /* maxBlocksPerMultiProcessor */
    {111, 720, 696, true},  /* reservedSharedMemPerBlock */
    {99, 728, 704, false},  /* hostRegisterSupported */
    {120, 772, 748, false}, /* clusterLaunch */
};

#if PLIM_STUB_MAJOR < 13
#define PROP_BYTES PROP_BYTES_12
#define PROP_AT at12
#else
#define PROP_BYTES PROP_BYTES_13
#define PROP_AT at13
#endif

CUDART(cudaGetDeviceProperties, char *out, int device)
{
    const plim_stub_card *c = plim_stub_card_get();
    if (device || !c)
        return keep_error(BAD_DEVICE);
    memset(out, 0, PROP_BYTES);
    snprintf(out, 256, "%s", c->name);
    memcpy(out + PROP_TOTAL, &c->total, sizeof c->total);
    for (size_t i = 0; i < sizeof props / sizeof props[0]; i++) {
        int value = plim_stub_attribute(c, props[i].attribute);
        size_t wide = (size_t)value;
        if (props[i].wide)
            memcpy(out + props[i].PROP_AT, &wide, sizeof wide);
        else
            memcpy(out + props[i].PROP_AT, &value, sizeof value);
    }
    return OK;
}

CUDART(cudaGetDeviceProperties_v2, char *out, int device)
{
    return cudaGetDeviceProperties(out, device);
}

/* ---- memory --------------------------------------------------------------------- */

/* The runtime asks the driver for memory, and finds it as every runtime does, so that what
 * stands between a program and its driver stands there too. */
enum {
    ALLOC,
    FREE,
    ALLOC_ASYNC,
    ALLOC_FROM_POOL,
    FREE_ASYNC,
    MEM_INFO,
    HOST_ALLOC,
    HOST_FREE,
    HOST_REGISTER,
    HOST_UNREGISTER,
    ALLOC_MANAGED,
    DRIVER_FUNCTIONS
};

static struct {
    pthread_once_t once;
    void *f[DRIVER_FUNCTIONS];
} driver = {.once = PTHREAD_ONCE_INIT};

static void open_driver(void)
{
    typedef int find_driver(const char *, void **, int, uint64_t, int *);
    static const char *const names[DRIVER_FUNCTIONS] = {
        "cuMemAlloc",        "cuMemFree",
        "cuMemAllocAsync",   "cuMemAllocFromPoolAsync",
        "cuMemFreeAsync",    "cuMemGetInfo",
        "cuMemHostAlloc",    "cuMemFreeHost",
        "cuMemHostRegister", "cuMemHostUnregister",
        "cuMemAllocManaged"};
    enum { VERSION = PLIM_STUB_MAJOR * 1000 };
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY), *init, *retain, *context;
    find_driver *find = lib ? (find_driver *)dlsym(lib, "cuGetProcAddress_v2") : NULL;
    if (!find || find("cuInit", &init, VERSION, 0, NULL) ||
        find("cuDevicePrimaryCtxRetain", &retain, VERSION, 0, NULL) ||
        ((int (*)(unsigned))init)(0) || ((int (*)(void **, int))retain)(&context, 0))
        return;
    for (int i = 0; i < DRIVER_FUNCTIONS; i++)
        if (find(names[i], &driver.f[i], VERSION, 0, NULL))
            driver.f[i] = NULL;
}

static void *driver_function(int which)
{
    pthread_once(&driver.once, open_driver);
    return driver.f[which];
}

#define DRIVER(which, types, ...)                                                             \
    keep_error(driver_function(which) ? ((int(*) types)driver_function(which))(__VA_ARGS__)   \
                                      : NO_DEVICE)

CUDART(cudaMalloc, uint64_t *addr, size_t bytes)
{
    *addr = 0;
    return bytes ? DRIVER(ALLOC, (uint64_t *, size_t), addr, bytes) : OK;
}

CUDART(cudaMallocAsync, uint64_t *addr, size_t bytes, void *stream)
{
    *addr = 0;
    return bytes ? DRIVER(ALLOC_ASYNC, (uint64_t *, size_t, void *), addr, bytes, stream) : OK;
}

CUDART(cudaMallocFromPoolAsync, uint64_t *addr, size_t bytes, void *pool, void *stream)
{
    *addr = 0;
    return bytes ? DRIVER(ALLOC_FROM_POOL, (uint64_t *, size_t, void *, void *), addr, bytes,
                          pool, stream)
                 : OK;
}

CUDART(cudaMallocManaged, uint64_t *addr, size_t bytes, unsigned flags)
{
    *addr = 0;
    return DRIVER(ALLOC_MANAGED, (uint64_t *, size_t, unsigned), addr, bytes, flags);
}

CUDART(cudaFree, uint64_t addr) { return addr ? DRIVER(FREE, (uint64_t), addr) : OK; }

CUDART(cudaFreeAsync, uint64_t addr, void *stream)
{
    return addr ? DRIVER(FREE_ASYNC, (uint64_t, void *), addr, stream) : OK;
}

CUDART(cudaMemGetInfo, size_t *free_bytes, size_t *total)
{
    *free_bytes = *total = 0;
    return DRIVER(MEM_INFO, (size_t *, size_t *), free_bytes, total);
}

CUDART(cudaHostAlloc, uint64_t *addr, size_t bytes, unsigned flags)
{
    *addr = 0;
    return DRIVER(HOST_ALLOC, (uint64_t *, size_t, unsigned), addr, bytes, flags);
}

CUDART(cudaMallocHost, uint64_t *addr, size_t bytes) { return cudaHostAlloc(addr, bytes, 0); }

CUDART(cudaFreeHost, void *p) { return p ? DRIVER(HOST_FREE, (void *), p) : OK; }

CUDART(cudaHostRegister, void *p, size_t bytes, unsigned flags)
{
    return DRIVER(HOST_REGISTER, (void *, size_t, unsigned), p, bytes, flags);
}

CUDART(cudaHostUnregister, void *p) { return DRIVER(HOST_UNREGISTER, (void *), p); }

CUDART(cudaHostGetDevicePointer, void **addr, void *p, unsigned flags)
{
    (void)flags;
    *addr = p;
    return OK;
}

CUDART(cudaPointerGetAttributes, unsigned char *out, uint64_t addr)
{
    enum { HOST = 1, DEVICE = 2, MANAGED = 3, BYTES_12 = 24, BYTES_13 = 88 };
    plim_stub_range r = plim_stub_find(addr);
    int what[2] = {r.kind == PLIM_STUB_HOST      ? HOST
                   : r.kind == PLIM_STUB_MANAGED ? MANAGED
                   : r.kind                      ? DEVICE
                                                 : 0,
                   0};
    uint64_t pointers[2] = {r.kind ? addr : 0, what[0] != DEVICE ? addr : 0};
    memset(out, 0, PLIM_STUB_MAJOR < 13 ? BYTES_12 : BYTES_13);
    memcpy(out, what, sizeof what);
    memcpy(out + sizeof what, pointers, sizeof pointers);
    return OK;
}

static int copy_bytes(void *to, const void *from, size_t bytes)
{
    plim_stub_copy(to, from, bytes);
    return OK;
}

CUDART(cudaMemcpy, void *to, const void *from, size_t n) { return copy_bytes(to, from, n); }
CUDART(cudaMemcpyAsync, void *to, const void *from, size_t n)
{
    return copy_bytes(to, from, n);
}

CUDART(cudaMemcpy2DAsync, char *to, size_t to_pitch, const char *from, size_t from_pitch,
       size_t width, size_t height)
{
    for (size_t row = 0; row < height; row++)
        plim_stub_copy(to + row * to_pitch, from + row * from_pitch, width);
    return OK;
}

CUDART(cudaMemcpy2D, char *to, size_t to_pitch, const char *from, size_t from_pitch,
       size_t width, size_t height)
{
    return cudaMemcpy2DAsync(to, to_pitch, from, from_pitch, width, height);
}

/* ---- captures: work for a graph, which keeps nothing of it --------------------------- */

/* A stream that takes part in a capture: because the capture began on it, or because it waited
 * for an event of one that takes part. */
typedef struct capture {
    struct capture *next;
    void *stream, *graph;
    unsigned long long id; /* of the capture; 0: of none */
} capture;

static struct {
    pthread_mutex_t lock;
    capture *first;
    unsigned long long last_id;
} captures = {.lock = PTHREAD_MUTEX_INITIALIZER};

static capture find_capture(void *stream)
{
    capture found = {0};
    pthread_mutex_lock(&captures.lock);
    for (const capture *c = captures.first; c && !found.id; c = c->next)
        if (c->stream == stream)
            found = *c;
    pthread_mutex_unlock(&captures.lock);
    return found;
}

/* id 0: a new capture. */
static int begin_capture(void *stream, unsigned long long id, void *graph)
{
    if (find_capture(stream).id)
        return keep_error(CAPTURING);
    capture *c = calloc(1, sizeof *c);
    if (!c)
        return keep_error(OUT_OF_MEMORY);
    pthread_mutex_lock(&captures.lock);
    *c = (capture){captures.first, stream, graph, id ? id : ++captures.last_id};
    captures.first = c;
    pthread_mutex_unlock(&captures.lock);
    return OK;
}

/* The stream joins this capture, if it still runs. */
static int join_capture(void *stream, unsigned long long id)
{
    void *graph = NULL;
    pthread_mutex_lock(&captures.lock);
    for (const capture *c = captures.first; c && !graph; c = c->next)
        graph = c->id == id ? c->graph : NULL;
    pthread_mutex_unlock(&captures.lock);
    return graph && find_capture(stream).id != id ? begin_capture(stream, id, graph) : OK;
}

CUDART(cudaStreamBeginCapture, void *stream, int mode)
{
    (void)mode;
    return begin_capture(stream, 0, plim_stub_handle());
}

CUDART(cudaStreamBeginCaptureToGraph, void *stream, void *graph, const void *after,
       const void *edges, size_t n, int mode)
{
    (void)after, (void)edges, (void)n, (void)mode;
    return begin_capture(stream, 0, graph);
}

CUDART(cudaStreamEndCapture, void *stream, void **graph)
{
    capture ends = find_capture(stream);
    *graph = ends.graph;
    if (!ends.id)
        return keep_error(NOT_CAPTURING);
    pthread_mutex_lock(&captures.lock);
    for (capture **at = &captures.first; *at;) {
        capture *c = *at;
        if (c->id != ends.id) {
            at = &c->next;
            continue;
        }
        *at = c->next;
        free(c);
    }
    pthread_mutex_unlock(&captures.lock);
    return OK;
}

CUDART(cudaStreamIsCapturing, void *stream, int *status)
{
    *status = find_capture(stream).id != 0;
    return OK;
}

CUDART(cudaStreamGetCaptureInfo_v3, void *stream, int *status, unsigned long long *id,
       void **graph, const void **after, const void **edges, size_t *n)
{
    capture c = find_capture(stream);
    *status = c.id != 0;
    if (id)
        *id = c.id;
    if (graph)
        *graph = c.graph;
    if (after)
        *after = NULL;
    if (edges)
        *edges = NULL;
    if (n)
        *n = 0;
    return OK;
}

CUDART(cudaStreamGetCaptureInfo_v2, void *stream, int *status, unsigned long long *id,
       void **graph, const void **after, size_t *n)
{
    return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, after, NULL, n);
}

#if PLIM_STUB_MAJOR < 13 /* the name has the oldest interface, from 13 on the newest */
CUDART(cudaStreamGetCaptureInfo, void *stream, int *status, unsigned long long *id)
{
    return cudaStreamGetCaptureInfo_v3(stream, status, id, NULL, NULL, NULL, NULL);
}
#else
CUDART(cudaStreamGetCaptureInfo, void *stream, int *status, unsigned long long *id,
       void **graph, const void **after, const void **edges, size_t *n)
{
    return cudaStreamGetCaptureInfo_v3(stream, status, id, graph, after, edges, n);
}
#endif

/* One node, so that nobody takes the graph for an empty one. */
CUDART(cudaGraphGetNodes, void *graph, void **nodes, size_t *n)
{
    if (nodes && *n)
        nodes[0] = graph;
    *n = 1;
    return OK;
}

/* ---- streams and events: all work is done at once ----------------------------------- */

typedef struct event {
    double ms;
    unsigned long long capture; /* that it was recorded in */
} event;

CUDART(cudaStreamSynchronize, void *stream)
{
    return keep_error(find_capture(stream).id ? CAPTURING : OK);
}

CUDART(cudaStreamWaitEvent, void *stream, const event *e, unsigned flags)
{
    (void)flags;
    return e && e->capture ? join_capture(stream, e->capture) : OK;
}

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

CUDART(cudaEventCreateWithFlags, event **e, unsigned flags)
{
    (void)flags;
    *e = calloc(1, sizeof **e);
    return keep_error(*e ? OK : OUT_OF_MEMORY);
}

CUDART(cudaEventCreate, event **e) { return cudaEventCreateWithFlags(e, 0); }

CUDART(cudaEventDestroy, event *e)
{
    free(e);
    return OK;
}

CUDART(cudaEventRecordWithFlags, event *e, void *stream, unsigned flags)
{
    (void)flags;
    if (!e)
        return keep_error(BAD_HANDLE);
    e->capture = find_capture(stream).id;
    e->ms = now_ms();
    return OK;
}

CUDART(cudaEventRecord, event *e, void *stream)
{
    return cudaEventRecordWithFlags(e, stream, 0);
}

CUDART(cudaEventElapsedTime, float *ms, const event *from, const event *to)
{
    *ms = (float)(to->ms - from->ms);
    return OK;
}

CUDART(cudaLaunchHostFunc, void *stream, void (*call)(void *), void *data)
{
    (void)stream;
    call(data);
    return OK;
}

CUDART(cudaStreamAddCallback, void *stream, void (*call)(void *, int, void *), void *data)
{
    call(stream, OK, data);
    return OK;
}

/* ---- kernels -------------------------------------------------------------------------- */

/* The compiler's launch in two halves: what the first is given the second takes. */
static _Thread_local struct {
    dim3 grid, block;
    size_t shared;
    void *stream;
} launch;

CUDART(__cudaPushCallConfiguration, dim3 grid, dim3 block, size_t shared, void *stream)
{
    launch.grid = grid;
    launch.block = block;
    launch.shared = shared;
    launch.stream = stream;
    return OK;
}

CUDART(__cudaPopCallConfiguration, dim3 *grid, dim3 *block, size_t *shared, void **stream)
{
    *grid = launch.grid;
    *block = launch.block;
    *shared = launch.shared;
    *stream = launch.stream;
    return OK;
}

PLIM_STUB(void *, __cudaRegisterFatBinary, void *binary)
{
    (void)binary;
    return plim_stub_handle();
}

CUDART(__cudaGetKernel, const void **kernel, const void *f)
{
    *kernel = f;
    return OK;
}

CUDART(cudaFuncGetAttributes, char *out, const void *f)
{
    enum { MAX_THREADS = 24, REGISTERS = 28, PTX = 32, BINARY = 36, BYTES = 144 };
    static const int threads = 1024, registers = 32;
    (void)f;
    if (!plim_stub_card_get())
        return keep_error(NO_DEVICE);
    int binary = plim_stub_binary(plim_stub_card_get());
    memset(out, 0, BYTES);
    memcpy(out + MAX_THREADS, &threads, sizeof threads);
    memcpy(out + REGISTERS, &registers, sizeof registers);
    memcpy(out + PTX, &binary, sizeof binary);
    memcpy(out + BINARY, &binary, sizeof binary);
    return OK;
}

CUDART(cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags, int *n, const void *f,
       int threads, size_t shared, unsigned flags)
{
    (void)f, (void)flags;
    *n = plim_stub_card_get() ? plim_stub_occupancy(plim_stub_card_get(), threads, shared) : 0;
    return OK;
}

CUDART(cudaOccupancyMaxActiveBlocksPerMultiprocessor, int *n, const void *f, int threads,
       size_t shared)
{
    return cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(n, f, threads, shared, 0);
}

/* A variable on the card that a program declares: an address, and no memory. */
CUDART(cudaGetSymbolAddress, uint64_t *addr, const void *symbol)
{
    (void)symbol;
    *addr = plim_stub_reserve(PLIM_STUB_PAGE, 0);
    return keep_error(*addr ? OK : OUT_OF_MEMORY);
}

CUDART(cudaGetDriverEntryPointByVersion, const char *name, void **f, unsigned version,
       uint64_t flags, int *found)
{
    (void)version, (void)flags;
    *f = plim_stub_driver(name);
    if (found)
        *found = *f ? 0 : 1;
    return OK;
}

CUDART(cudaGetDriverEntryPoint, const char *name, void **f, uint64_t flags, int *found)
{
    return cudaGetDriverEntryPointByVersion(name, f, 0, flags, found);
}
