/* cuda.c -- libcuda.so.1: the driver interface, as far as programs that link the
 * runtime ask for it.  Its private tables (cuGetExportTable) are not there. */
#include "stub.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    OK = 0,
    INVALID = 1,
    OUT_OF_MEMORY = 2,
    NO_DEVICE = 100,
    BAD_DEVICE = 101,
    NOT_FOUND = 500
};

#define CUDA(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

/* src: cuda.h of CUDA 13.0: CUipcMemHandle, CUDA_MEM_ALLOC_NODE_PARAMS, CUgraphNodeParams */
typedef struct plim_stub_ipc {
    uint64_t bytes, rest[7];
} plim_stub_ipc;
typedef struct plim_stub_alloc_node {
    uint64_t pool[11], access[2], bytes, addr;
} plim_stub_alloc_node;
typedef struct plim_stub_node {
    int type, none[3];
    plim_stub_alloc_node alloc; /* and others */
} plim_stub_node;

/* ---- the device -------------------------------------------------------------- */

CUDA(cuInit, unsigned flags)
{
    (void)flags;
    return plim_stub_card_get() ? OK : NO_DEVICE;
}

CUDA(cuDriverGetVersion, int *version)
{
    *version = (int)plim_stub_setting("PLIMSOLL_STUB_CUDA_VERSION", 13020);
    return OK;
}

CUDA(cuDeviceGetCount, int *n)
{
    *n = plim_stub_card_get() != NULL;
    return OK;
}

CUDA(cuDeviceGet, int *device, int index)
{
    *device = 0;
    return index || !plim_stub_card_get() ? BAD_DEVICE : OK;
}

CUDA(cuDeviceGetName, char *name, int n, int device)
{
    if (device || !plim_stub_card_get() || n < 1)
        return BAD_DEVICE;
    snprintf(name, (size_t)n, "%s", plim_stub_card_get()->name);
    return OK;
}

CUDA(cuDeviceTotalMem_v2, size_t *bytes, int device)
{
    if (device || !plim_stub_card_get())
        return BAD_DEVICE;
    *bytes = plim_stub_card_get()->total;
    return OK;
}

CUDA(cuDeviceGetAttribute, int *value, int number, int device)
{
    if (device || !plim_stub_card_get())
        return BAD_DEVICE;
    *value = plim_stub_attribute(plim_stub_card_get(), number);
    return OK;
}

CUDA(cuDeviceComputeCapability, int *major, int *minor, int device)
{
    if (device || !plim_stub_card_get())
        return BAD_DEVICE;
    *major = plim_stub_card_get()->major;
    *minor = plim_stub_card_get()->minor;
    return OK;
}

CUDA(cuDeviceGetUuid_v2, unsigned char *uuid, int device)
{
    memset(uuid, 0, 16);
    return device ? BAD_DEVICE : OK;
}

CUDA(cuDeviceGetPCIBusId, char *id, int n, int device)
{
    snprintf(id, (size_t)n, "00000000:01:00.0");
    return device ? BAD_DEVICE : OK;
}

CUDA(cuGetErrorString, int code, const char **text)
{
    *text = code == OUT_OF_MEMORY ? "out of memory"
            : code                ? "error of a pretend GPU"
                                  : "no error";
    return OK;
}

CUDA(cuGetErrorName, int code, const char **text)
{
    *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY"
            : code                ? "CUDA_ERROR_UNKNOWN"
                                  : "CUDA_SUCCESS";
    return OK;
}

CUDA(cuGetProcAddress_v2, const char *name, void **f, int version, uint64_t flags, int *found)
{
    (void)version, (void)flags;
    *f = plim_stub_driver(name);
    if (found)
        *found = *f ? 0 : 1;
    return *f ? OK : NOT_FOUND;
}

CUDA(cuGetExportTable, const void **table, const void *id)
{
    (void)id;
    *table = NULL;
    return NOT_FOUND;
}

/* ---- contexts: one, always current --------------------------------------------- */

static void *const context = (void *)0x100;

CUDA(cuCtxGetCurrent, void **out)
{
    *out = context;
    return OK;
}

CUDA(cuDevicePrimaryCtxRetain, void **out, int device)
{
    *out = context;
    return device ? BAD_DEVICE : OK;
}

CUDA(cuCtxPopCurrent_v2, void **out)
{
    if (out)
        *out = context;
    return OK;
}

CUDA(cuDevicePrimaryCtxGetState, int device, unsigned *flags, int *active)
{
    *flags = 0;
    *active = 1;
    return device ? BAD_DEVICE : OK;
}

CUDA(cuCtxGetDevice, int *device)
{
    *device = 0;
    return OK;
}

/* ---- memory ------------------------------------------------------------------- */

CUDA(cuMemGetInfo_v2, size_t *free_bytes, size_t *total)
{
    uint64_t f, t;
    plim_stub_mem_info(&f, &t);
    *free_bytes = f;
    *total = t;
    return OK;
}

CUDA(cuMemAlloc_v2, uint64_t *addr, size_t bytes)
{
    if (!bytes)
        return INVALID;
    *addr = plim_stub_malloc(bytes);
    return *addr ? OK : OUT_OF_MEMORY;
}

CUDA(cuMemFree_v2, uint64_t addr) { return !addr || plim_stub_free(addr) ? OK : INVALID; }

CUDA(cuMemAllocPitch_v2, uint64_t *addr, size_t *pitch, size_t width, size_t height,
     unsigned element)
{
    enum { ALIGN = 512 };
    (void)element;
    *pitch = (width + ALIGN - 1) / ALIGN * ALIGN;
    return cuMemAlloc_v2(addr, *pitch * height);
}

/* Stream-ordered memory: a pool holds exactly what was asked of it. */
CUDA(cuMemAllocAsync, uint64_t *addr, size_t bytes, void *stream)
{
    (void)stream;
    return cuMemAlloc_v2(addr, bytes);
}

CUDA(cuMemAllocFromPoolAsync, uint64_t *addr, size_t bytes, void *pool, void *stream)
{
    (void)pool, (void)stream;
    return cuMemAlloc_v2(addr, bytes);
}

CUDA(cuMemFreeAsync, uint64_t addr, void *stream)
{
    (void)stream;
    return cuMemFree_v2(addr);
}

/* An array is a handle, here the address of its memory. */
static int create_array(uint64_t *array, const size_t *sides, int n, const void *format)
{
    enum { FORMATS = 0x21 };
    static const unsigned char of_format[FORMATS] = {
        [0x01] = 1, [0x02] = 2, [0x03] = 4, [0x08] = 1,
        [0x09] = 2, [0x0a] = 4, [0x10] = 2, [0x20] = 4};
    unsigned what[2]; /* format, channels */
    memcpy(what, format, sizeof what);
    size_t bytes = what[0] < FORMATS ? (size_t)of_format[what[0]] * what[1] : 0;
    for (int i = 0; i < n; i++)
        bytes *= sides[i] ? sides[i] : 1;
    return cuMemAlloc_v2(array, bytes);
}

CUDA(cuArrayCreate_v2, uint64_t *array, const size_t *what)
{
    return create_array(array, what, 2, what + 2);
}

CUDA(cuArray3DCreate_v2, uint64_t *array, const size_t *what)
{
    return create_array(array, what, 3, what + 3);
}

CUDA(cuArrayDestroy, uint64_t array) { return plim_stub_free(array) ? OK : INVALID; }

/* ---- managed memory: it takes nothing of the card, where its pages would go on use */

CUDA(cuMemAllocManaged, uint64_t *addr, size_t bytes, unsigned flags)
{
    (void)flags;
    *addr = bytes ? plim_stub_managed_malloc(bytes) : 0;
    return *addr ? OK : bytes ? OUT_OF_MEMORY : INVALID;
}

/* ---- memory of the host, pinned */

CUDA(cuMemHostAlloc, uint64_t *addr, size_t bytes, unsigned flags)
{
    (void)flags;
    *addr = plim_stub_host_malloc(bytes);
    return *addr ? OK : OUT_OF_MEMORY;
}

CUDA(cuMemAllocHost_v2, uint64_t *addr, size_t bytes)
{
    return cuMemHostAlloc(addr, bytes, 0);
}

CUDA(cuMemFreeHost, void *p)
{
    if (!plim_stub_free((uintptr_t)p))
        return INVALID;
    free(p);
    return OK;
}

CUDA(cuMemHostRegister_v2, void *p, size_t bytes, unsigned flags)
{
    (void)flags;
    return plim_stub_host_register((uintptr_t)p, bytes) ? OK : OUT_OF_MEMORY;
}

CUDA(cuMemHostUnregister, void *p) { return plim_stub_free((uintptr_t)p) ? OK : INVALID; }

/* ---- virtual memory */

CUDA(cuMemGetAddressRange_v2, uint64_t *begin, size_t *bytes, uint64_t addr)
{
    plim_stub_range r = plim_stub_find(addr);
    if (begin)
        *begin = r.begin;
    if (bytes)
        *bytes = r.bytes;
    return r.kind ? OK : INVALID;
}

CUDA(cuMemGetAllocationGranularity, size_t *bytes, const void *what, int option)
{
    (void)what, (void)option;
    *bytes = PLIM_STUB_PAGE;
    return OK;
}

CUDA(cuMemAddressReserve, uint64_t *addr, size_t bytes, size_t align, uint64_t at,
     uint64_t flags)
{
    (void)at, (void)flags;
    *addr = plim_stub_reserve(bytes, align);
    return *addr ? OK : OUT_OF_MEMORY;
}

CUDA(cuMemCreate, uint64_t *handle, size_t bytes, const void *what, uint64_t flags)
{
    (void)what, (void)flags;
    if (!bytes || bytes % PLIM_STUB_PAGE)
        return INVALID;
    *handle = plim_stub_physical(bytes);
    return *handle ? OK : OUT_OF_MEMORY;
}

CUDA(cuMemRelease, uint64_t handle) { return plim_stub_free(handle) ? OK : INVALID; }

CUDA(cuMemMap, uint64_t addr, size_t bytes, size_t offset, uint64_t handle, uint64_t flags)
{
    (void)flags;
    return !offset && plim_stub_map(addr, bytes, handle) ? OK : INVALID;
}

CUDA(cuMemUnmap, uint64_t addr, size_t bytes)
{
    return plim_stub_unmap(addr, bytes) ? OK : INVALID;
}

/* ---- memory of another process: a handle is its bytes, an address of ours stands for it */

CUDA(cuIpcGetMemHandle, plim_stub_ipc *handle, uint64_t addr)
{
    plim_stub_range r = plim_stub_find(addr);
    *handle = (plim_stub_ipc){.bytes = r.bytes};
    return r.kind == PLIM_STUB_DEVICE ? OK : INVALID;
}

CUDA(cuIpcOpenMemHandle_v2, uint64_t *addr, plim_stub_ipc handle, unsigned flags)
{
    (void)flags;
    *addr = handle.bytes ? plim_stub_share(handle.bytes) : 0;
    return *addr ? OK : INVALID;
}

CUDA(cuIpcCloseMemHandle, uint64_t addr) { return plim_stub_free(addr) ? OK : INVALID; }

CUDA(cuMemExportToShareableHandle, uint64_t *out, uint64_t handle, int type, uint64_t flags)
{
    plim_stub_range r = plim_stub_find(handle);
    (void)type, (void)flags;
    *out = r.bytes;
    return r.kind == PLIM_STUB_PHYSICAL ? OK : INVALID;
}

CUDA(cuMemImportFromShareableHandle, uint64_t *handle, uint64_t exported, int type)
{
    (void)type;
    *handle = exported ? plim_stub_share(exported) : 0;
    return *handle ? OK : INVALID;
}

/* ---- CUDA graphs: nodes that allocate, no others ------------------------------------ */

/* The graphs of a device share one pool: it grows to what the largest needs when that is
 * launched, and is given back by cuDeviceGraphMemTrim. */
static struct {
    pthread_mutex_t lock;
    uint64_t addr, bytes, high;
} graph_pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

typedef struct stub_graph {
    uint64_t bytes; /* of its nodes */
} stub_graph;

CUDA(cuGraphCreate, stub_graph **graph, unsigned flags)
{
    (void)flags;
    *graph = calloc(1, sizeof **graph);
    return *graph ? OK : OUT_OF_MEMORY;
}

CUDA(cuGraphDestroy, stub_graph *graph)
{
    free(graph);
    return OK;
}

static int add_alloc_node(void **node, stub_graph *graph, plim_stub_alloc_node *params)
{
    uint64_t whole = (params->bytes + PLIM_STUB_PAGE - 1) / PLIM_STUB_PAGE * PLIM_STUB_PAGE;
    params->addr = plim_stub_reserve(whole, PLIM_STUB_PAGE);
    graph->bytes += whole;
    *node = plim_stub_handle();
    return OK;
}

static int add_node(void **node, stub_graph *graph, plim_stub_node *params)
{
    enum { MEM_ALLOC = 10 };
    if (params->type == MEM_ALLOC)
        return add_alloc_node(node, graph, &params->alloc);
    *node = plim_stub_handle();
    return OK;
}

CUDA(cuGraphAddMemAllocNode, void **node, stub_graph *graph, const void *after, size_t n,
     plim_stub_alloc_node *params)
{
    (void)after, (void)n;
    return add_alloc_node(node, graph, params);
}

CUDA(cuGraphAddNode, void **node, stub_graph *graph, const void *after, size_t n,
     plim_stub_node *params)
{
    (void)after, (void)n;
    return add_node(node, graph, params);
}

CUDA(cuGraphAddNode_v2, void **node, stub_graph *graph, const void *after, const void *edges,
     size_t n, plim_stub_node *params)
{
    (void)after, (void)edges, (void)n;
    return add_node(node, graph, params);
}

static int instantiate_graph(stub_graph **exec, const stub_graph *graph)
{
    *exec = calloc(1, sizeof **exec);
    if (*exec)
        **exec = *graph;
    return *exec ? OK : OUT_OF_MEMORY;
}

CUDA(cuGraphInstantiateWithFlags, stub_graph **exec, const stub_graph *graph, uint64_t flags)
{
    (void)flags;
    return instantiate_graph(exec, graph);
}

/* What cuGetProcAddress gives here for the name without a suffix. */
CUDA(cuGraphInstantiate_v2, stub_graph **exec, const stub_graph *graph, uint64_t flags)
{
    (void)flags;
    return instantiate_graph(exec, graph);
}

CUDA(cuGraphExecDestroy, stub_graph *exec)
{
    free(exec);
    return OK;
}

CUDA(cuGraphLaunch, const stub_graph *exec, void *stream)
{
    (void)stream;
    int code = OK;
    pthread_mutex_lock(&graph_pool.lock);
    if (exec->bytes > graph_pool.bytes) {
        uint64_t addr = plim_stub_malloc(exec->bytes);
        code = addr ? OK : OUT_OF_MEMORY;
        if (addr && graph_pool.addr)
            plim_stub_free(graph_pool.addr);
        if (addr) {
            graph_pool.addr = addr;
            graph_pool.bytes = exec->bytes;
            graph_pool.high = graph_pool.high > exec->bytes ? graph_pool.high : exec->bytes;
        }
    }
    pthread_mutex_unlock(&graph_pool.lock);
    return code;
}

CUDA(cuDeviceGraphMemTrim, int device)
{
    pthread_mutex_lock(&graph_pool.lock);
    if (graph_pool.addr)
        plim_stub_free(graph_pool.addr);
    graph_pool.addr = graph_pool.bytes = 0;
    pthread_mutex_unlock(&graph_pool.lock);
    return device ? BAD_DEVICE : OK;
}

CUDA(cuDeviceGetGraphMemAttribute, int device, int what, uint64_t *value)
{
    enum { USED, USED_HIGH, RESERVED, RESERVED_HIGH };
    pthread_mutex_lock(&graph_pool.lock);
    *value = what == RESERVED                             ? graph_pool.bytes
             : what == USED_HIGH || what == RESERVED_HIGH ? graph_pool.high
                                                          : 0;
    pthread_mutex_unlock(&graph_pool.lock);
    return device ? BAD_DEVICE : OK;
}

static int copy_bytes(const void *to, const void *from, size_t bytes)
{
    plim_stub_copy((void *)(uintptr_t)to, from, bytes);
    return OK;
}

CUDA(cuMemcpyDtoH_v2, void *to, const void *from, size_t n) { return copy_bytes(to, from, n); }
CUDA(cuMemcpyDtoHAsync_v2, void *to, const void *from, size_t n)
{
    return copy_bytes(to, from, n);
}
CUDA(cuMemcpy, void *to, const void *from, size_t n) { return copy_bytes(to, from, n); }
CUDA(cuMemcpyAsync, void *to, const void *from, size_t n) { return copy_bytes(to, from, n); }

CUDA(cuPointerGetAttribute, void *value, int what, uint64_t addr)
{
    enum { CONTEXT = 1, MEMORY_TYPE, DEVICE_POINTER, HOST_POINTER, DEVICE_ORDINAL = 9 };
    plim_stub_range r = plim_stub_find(addr);
    bool host = r.kind == PLIM_STUB_HOST;
    if (!r.kind)
        return INVALID;
    switch (what) {
    case CONTEXT: *(void **)value = context; return OK;
    case MEMORY_TYPE: *(unsigned *)value = host ? 1 : 2; return OK;
    case DEVICE_POINTER: *(uint64_t *)value = addr; return OK;
    case HOST_POINTER: *(uint64_t *)value = host ? addr : 0; return OK;
    case DEVICE_ORDINAL: *(int *)value = 0; return OK;
    default: return INVALID;
    }
}

/* ---- kernels -------------------------------------------------------------------- */

CUDA(cuModuleGetFunction, void **f, void *module, const char *name)
{
    (void)module, (void)name;
    *f = plim_stub_handle();
    return OK;
}

CUDA(cuFuncGetAttribute, int *value, int what, void *f)
{
    enum { MAX_THREADS, PTX = 5, BINARY = 6 };
    (void)f;
    *value = what == MAX_THREADS             ? 1024
             : what == PTX || what == BINARY ? plim_stub_binary(plim_stub_card_get())
                                             : 0;
    return OK;
}

CUDA(cuOccupancyMaxActiveBlocksPerMultiprocessor, int *n, void *f, int threads, size_t shared)
{
    (void)f;
    *n = plim_stub_occupancy(plim_stub_card_get(), threads, shared);
    return OK;
}
