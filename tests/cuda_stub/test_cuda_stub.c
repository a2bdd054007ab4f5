/* test_cuda_stub.c -- the stub libraries, as a program finds them: by dlopen.
 *
 *     test_cuda_stub FOLDER NAMES    where they and the lists of names lie */
#include <dlfcn.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>

#include <plimsoll_vgpu.h>

#define MIB (1ull << 20)
#define PAGE (2 * MIB)
#define TOTAL (4ull << 30)

static const char *folder, *names;

static void *open_library(const char *soname)
{
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, soname);
    void *handle = dlopen(path, RTLD_NOW);
    if (!handle)
        fail_msg("%s", dlerror());
    return handle;
}

/* A function of a library, to be called as its interface says. */
static void *find_function(const char *soname, const char *name)
{
    void *f = dlsym(open_library(soname), name);
    if (!f)
        fail_msg("%s has no %s", soname, name);
    return f;
}

#define RT "libcudart.so.13"
#define CALL(soname, name, types, ...)                                                        \
    (((int(*) types)find_function(soname, name))(__VA_ARGS__))
#define CUDA(name, types, ...) CALL(RT, name, types, __VA_ARGS__)
#define DRIVER(name, types, ...) CALL("libcuda.so.1", name, types, __VA_ARGS__)

static size_t free_bytes(void)
{
    size_t f = 0, total = 0;
    assert_int_equal(CUDA("cudaMemGetInfo", (size_t *, size_t *), &f, &total), 0);
    assert_int_equal(total, TOTAL);
    return f;
}

static uint64_t take_memory(size_t bytes)
{
    uint64_t addr = 0;
    assert_int_equal(CUDA("cudaMalloc", (uint64_t *, size_t), &addr, bytes), 0);
    return addr;
}

static int give_back(uint64_t addr) { return CUDA("cudaFree", (uint64_t), addr); }

/* ---- names -------------------------------------------------------------------- */

static void exports_of(const char *list, const char *soname, const char *version)
{
    char path[4096], line[256];
    void *handle = open_library(soname);
    int n = 0;
    snprintf(path, sizeof path, "%s/%s.txt", names, list);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, " \n")] = '\0';
        if (!(version ? dlvsym(handle, line, version) : dlsym(handle, line)))
            fail_msg("%s has no %s of version %s", soname, line, version ? version : "none");
        n++;
    }
    fclose(f);
    assert_true(n > 50);
}

static void test_names(void **state)
{
    (void)state;
    exports_of("cuda", "libcuda.so.1", NULL);
    exports_of("nvml", "libnvidia-ml.so.1", NULL);
    exports_of("cudart", "libcudart.so.12", "libcudart.so.12");
    exports_of("cudart", "libcudart.so.13", "libcudart.so.13");
    exports_of("cublas", "libcublas.so.12", "libcublas.so.12");
    exports_of("cublas", "libcublas.so.13", "libcublas.so.13");
    exports_of("cublasLt", "libcublasLt.so.13", "libcublasLt.so.13");
    exports_of("cudnn", "libcudnn.so.9", "libcudnn.so.9");
    assert_null(dlsym(open_library(RT), "plim_vgpu_open")); /* nothing of ours shows */
}

/* What is only a name says so, once, and only if asked to. */
static void test_missing(void **state)
{
    char said[256] = "";
    int pipes[2], before = dup(STDERR_FILENO);
    (void)state;
    assert_int_equal(pipe(pipes), 0);
    dup2(pipes[1], STDERR_FILENO);
    int code = CUDA("cudaArrayGetInfo", (void));
    setenv("PLIMSOLL_STUB_LOG", "1", 1);
    code += CUDA("cudaCreateTextureObject", (void));
    code += CUDA("cudaCreateTextureObject", (void));
    setenv("PLIMSOLL_STUB_LOG", "", 1); /* as if it were not set */
    code += CUDA("cudaCreateSurfaceObject", (void));
    unsetenv("PLIMSOLL_STUB_LOG");
    dup2(before, STDERR_FILENO);
    close(before);
    close(pipes[1]);
    assert_true(read(pipes[0], said, sizeof said - 1) > 0);
    close(pipes[0]);
    assert_int_equal(code, 4 * 801);
    assert_string_equal(said,
                        "plimsoll: stub: 'cudaCreateTextureObject' is not implemented\n");
}

/* ---- the card -------------------------------------------------------------------- */

static int read_attribute(int number)
{
    int value = -1;
    assert_int_equal(CUDA("cudaDeviceGetAttribute", (int *, int, int), &value, number, 0), 0);
    return value;
}

static int int_at(const char *p, size_t at)
{
    int value;
    memcpy(&value, p + at, sizeof value);
    return value;
}

static void test_card(void **state)
{
    char p[2048];
    uint64_t total;
    int n = 0;
    (void)state;
    assert_int_equal(CUDA("cudaGetDeviceCount", (int *), &n), 0);
    assert_int_equal(n, 1);
    assert_int_equal(CUDA("cudaSetDevice", (int), 1), 101);
    assert_int_equal(CUDA("cudaGetLastError", (void)), 101);
    assert_int_equal(read_attribute(75) * 10 + read_attribute(76),
                     80); /* what --vram alone is */
    assert_int_equal(read_attribute(16), 108);
    assert_int_equal(read_attribute(39), 2048);
    for (int major = 12; major <= 13; major++) { /* a field that moved between the two */
        memset(p, 0x55, sizeof p);
        const char *soname = major == 12 ? "libcudart.so.12" : "libcudart.so.13";
        assert_int_equal(CALL(soname, "cudaGetDeviceProperties", (void *, int), p, 0), 0);
        memcpy(&total, p + 288, sizeof total);
        assert_int_equal(total, TOTAL);
        assert_int_equal(int_at(p, 360), 8);
        assert_int_equal(int_at(p, major == 12 ? 388 : 384), 108);
        assert_int_equal(int_at(p, major == 12 ? 624 : 604), 2048);
        assert_int_equal((unsigned char)p[major == 12 ? 1032 : 1008],
                         0x55); /* and no further */
    }
    assert_int_equal(CALL("libnvidia-ml.so.1", "nvmlDeviceGetName", (void *, char *, unsigned),
                          NULL, p, sizeof p),
                     0);
    assert_true(strlen(p) > 0);
}

#define NVML(name, types, ...) CALL("libnvidia-ml.so.1", name, types, __VA_ARGS__)

/* One process, which is this one, with what it holds; what nobody knows is not supported. */
static void test_nvml(void **state)
{
    (void)state;
    void *card = NULL, *other = NULL;
    unsigned n = 0, rates[2] = {9, 9}, watts = 0;
    char uuid[64];
    struct {
        unsigned pid;
        uint64_t used;
        unsigned gpu, compute;
    } process;
    uint64_t memory[3];
    assert_int_equal(NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **), 0, &card), 0);
    assert_int_equal(NVML("nvmlDeviceGetHandleByIndex_v2", (unsigned, void **), 1, &other), 2);
    assert_int_equal(NVML("nvmlDeviceGetUUID", (void *, char *, unsigned), card, uuid, 4), 7);
    assert_int_equal(
        NVML("nvmlDeviceGetUUID", (void *, char *, unsigned), card, uuid, sizeof uuid), 0);
    assert_int_equal(NVML("nvmlDeviceGetHandleByUUID", (char *, void **), uuid, &other), 0);
    assert_ptr_equal(card, other);
    /* PyTorch asks for the card by the bus that CUDA says */
    char bus[32];
    other = NULL;
    assert_int_equal(CALL(RT, "cudaDeviceGetPCIBusId", (char *, int, int), bus, 32, 0), 0);
    assert_int_equal(NVML("nvmlDeviceGetHandleByPciBusId_v2", (char *, void **), bus, &other),
                     0);
    assert_ptr_equal(other, card);
    assert_int_equal(
        NVML("nvmlDeviceGetHandleByPciBusId_v2", (char *, void **), "0000:00:00.0", &other),
        2);
    assert_int_equal(NVML("nvmlDeviceGetComputeRunningProcesses_v3",
                          (void *, unsigned *, void *), card, &n, NULL),
                     7);
    assert_int_equal(n, 1);
    assert_int_equal(NVML("nvmlDeviceGetComputeRunningProcesses_v3",
                          (void *, unsigned *, void *), card, &n, &process),
                     0);
    assert_int_equal(NVML("nvmlDeviceGetMemoryInfo", (void *, uint64_t *), card, memory), 0);
    assert_int_equal(process.pid, getpid());
    assert_int_equal(process.used, memory[2]);
    assert_int_equal(memory[0], TOTAL);
    assert_int_equal(NVML("nvmlDeviceGetUtilizationRates", (void *, unsigned *), card, rates),
                     0);
    assert_int_equal(rates[0] + rates[1], 0);
    assert_int_equal(NVML("nvmlDeviceGetPowerUsage", (void *, unsigned *), card, &watts), 3);
}

static void test_no_card(void **state)
{
    (void)state;
    pid_t pid = fork(); /* before this process opened any */
    if (!pid) {
        int n = -1;
        unsetenv("PLIMSOLL_RUN_VRAM");
        bool ok = CUDA("cudaGetDeviceCount", (int *), &n) == 100 && !n &&
                  DRIVER("cuInit", (unsigned), 0) == 100;
        _exit(ok ? 0 : 1);
    }
    int status = 1;
    waitpid(pid, &status, 0);
    assert_int_equal(status, 0);
}

/* ---- the ledger -------------------------------------------------------------------- */

static void test_pages(void **state)
{
    size_t all = free_bytes();
    (void)state;
    uint64_t a = take_memory(1), b = take_memory(MIB);
    assert_int_equal(free_bytes(), all - PAGE); /* small ones share a page */
    uint64_t c = take_memory(MIB);
    assert_int_equal(free_bytes(), all - 2 * PAGE);
    uint64_t d = take_memory(PAGE), e = take_memory(PAGE + 1);
    assert_int_equal(free_bytes(), all - 5 * PAGE);
    assert_true(b >= a + 512 && b % 512 == 0);
    assert_int_equal(give_back(a), 0);
    assert_int_equal(free_bytes(), all - 5 * PAGE);
    assert_int_equal(give_back(b), 0);
    assert_int_equal(free_bytes(), all - 4 * PAGE);
    assert_int_equal(give_back(a), 1); /* not there any more */
    CUDA("cudaGetLastError", (void));
    assert_int_equal(give_back(c) + give_back(d) + give_back(e), 0);
    assert_int_equal(free_bytes(), all);
    assert_int_equal(take_memory(0), 0);
    assert_int_equal(give_back(0), 0);
}

static void test_full(void **state)
{
    uint64_t addr = 1;
    size_t all = free_bytes();
    (void)state;
    assert_true(all < TOTAL); /* the context has its part */
    assert_int_equal(CUDA("cudaMalloc", (uint64_t *, size_t), &addr, all + PAGE), 2);
    assert_int_equal(addr, 0);
    assert_int_equal(CUDA("cudaPeekAtLastError", (void)), 2);
    assert_int_equal(CUDA("cudaGetLastError", (void)), 2);
    assert_int_equal(CUDA("cudaGetLastError", (void)), 0);
    assert_int_equal(CUDA("cudaMalloc", (uint64_t *, size_t), &addr, SIZE_MAX), 2);
    CUDA("cudaGetLastError", (void));
    addr = take_memory(all / PAGE * PAGE);
    assert_true(free_bytes() < PAGE);
    assert_int_equal(give_back(addr), 0);
    assert_int_equal(free_bytes(), all);
    assert_string_equal(((const char *(*)(int))find_function(RT, "cudaGetErrorName"))(2),
                        "cudaErrorMemoryAllocation");
}

/* Addresses are those of NVIDIA's driver: what a context left first, then reservations of at
 * least 32 MiB, each below the last, and their rest before anything else. */
static void test_places(void **state)
{
    (void)state;
    uint64_t first = take_memory(PAGE), large = take_memory(300 * PAGE);
    uint64_t rest = take_memory(2 * PAGE), lower = take_memory(250 * PAGE);
    uint64_t page = take_memory(PAGE);
    assert_true(large < first && lower + 250 * PAGE < large);
    assert_true(large % (16 * PAGE) == 0 && lower % (16 * PAGE) == 0);
    assert_int_equal(rest, large + 300 * PAGE);
    assert_int_equal(page, lower + 250 * PAGE);
    assert_int_equal(give_back(rest), 0);
    assert_int_equal(take_memory(2 * PAGE), page + PAGE);
    assert_int_equal(give_back(page + PAGE) + give_back(page) + give_back(lower), 0);
    assert_int_equal(take_memory(250 * PAGE), lower);
    assert_int_equal(give_back(lower) + give_back(large) + give_back(first), 0);
}

/* Nothing lies behind an address. */
static void test_unbacked(void **state)
{
    uint64_t addr = take_memory(4096);
    int status = 0;
    (void)state;
    pid_t pid = fork();
    if (!pid) {
        signal(SIGSEGV, SIG_DFL);
        signal(SIGBUS, SIG_DFL); /* which of the two depends on the register it is read by */
        _exit(*(volatile char *)(uintptr_t)addr);
    }
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status));
    assert_int_equal(give_back(addr), 0);
}

static void test_copies(void **state)
{
    char host[8] = "1234567", other[8] = "";
    uint64_t addr = take_memory(8);
    (void)state;
#define COPY(to, from)                                                                        \
    CUDA("cudaMemcpy", (const void *, const void *, size_t, int), (const void *)(to),         \
         (const void *)(from), (size_t)8, 4)
    assert_int_equal(COPY(other, host), 0);
    assert_string_equal(other, "1234567");
    assert_int_equal(COPY(addr, host), 0);
    assert_int_equal(COPY(addr, addr), 0);
    assert_int_equal(COPY(other, addr), 0);
    assert_memory_equal(other, "\0\0\0\0\0\0\0\0", 8);
    /* what was uploaded last, and numbers in place of zeros */
    const char *core = "libplimsoll_stub.so";
    const uint64_t number = 7;
    uint64_t read = 1;
    assert_int_equal(COPY(addr, host), 0);
#define UPLOADED(to, n)                                                                       \
    ((bool (*)(uint64_t, void *, uint64_t))find_function(core, "plim_stub_uploaded"))(        \
        to, other, (uint64_t)(n))
    assert_true(UPLOADED(addr, 8) && !strcmp(other, "1234567"));
    assert_false(UPLOADED(addr, 4) || UPLOADED(addr + 4, 8));
    CALL(core, "plim_stub_answer", (const uint64_t *, unsigned), &number, 1u);
    assert_true(!COPY(&read, addr) && read == 7);
    assert_true(!COPY(&read, addr) && read == 0);
    assert_int_equal(give_back(addr), 0);
}

static int type_of(const void *p)
{
    char out[88];
    assert_int_equal(CUDA("cudaPointerGetAttributes", (void *, const void *), out, p), 0);
    return int_at(out, 0);
}

static void test_host(void **state)
{
    char *p = NULL, own[64];
    uint64_t addr = take_memory(100);
    (void)state;
    assert_int_equal(CUDA("cudaHostAlloc", (char **, size_t, unsigned), &p, 100, 0), 0);
    memset(p, 1, 100);
    assert_int_equal(type_of(p + 99), 1);
    assert_int_equal(type_of((void *)(uintptr_t)(addr + 99)), 2);
    assert_int_equal(type_of(own), 0);
    assert_int_equal(CUDA("cudaHostRegister", (void *, size_t, unsigned), own, 64, 0), 0);
    assert_int_equal(type_of(own), 1);
    assert_int_equal(CUDA("cudaHostUnregister", (void *), own), 0);
    assert_int_equal(type_of(own), 0);
    assert_int_equal(CUDA("cudaFreeHost", (void *), p), 0);
    assert_int_equal(give_back(addr), 0);
}

/* Both sides may use it, and the card has as much as before. */
static void test_managed(void **state)
{
    char *p = NULL;
    size_t before = free_bytes();
    (void)state;
    assert_int_equal(CUDA("cudaMallocManaged", (char **, size_t, unsigned), &p, 5 << 20, 1),
                     0);
    memset(p, 1, 5 << 20);
    assert_int_equal(type_of(p + 99), 3);
    assert_int_equal(
        CUDA("cudaMemPrefetchAsync", (void *, size_t, int, void *), p, 5 << 20, 0, NULL), 0);
    assert_int_equal(free_bytes(), before);
    assert_int_equal(give_back((uint64_t)(uintptr_t)p), 0);
    assert_int_equal(type_of(p + 99), 0);
}

static void test_virtual(void **state)
{
    uint64_t at = 0, handle[2] = {0};
    size_t all = free_bytes(), page = 0;
    (void)state;
    assert_int_equal(
        DRIVER("cuMemGetAllocationGranularity", (size_t *, const void *, int), &page, NULL, 0),
        0);
    assert_int_equal(page, PAGE);
    assert_int_equal(DRIVER("cuMemAddressReserve",
                            (uint64_t *, size_t, size_t, uint64_t, uint64_t), &at, 64 * PAGE,
                            0, 0, 0),
                     0);
    assert_int_equal(free_bytes(), all); /* addresses cost nothing */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(DRIVER("cuMemCreate", (uint64_t *, size_t, const void *, uint64_t),
                                &handle[i], PAGE, NULL, 0),
                         0);
        assert_int_equal(DRIVER("cuMemMap", (uint64_t, size_t, size_t, uint64_t, uint64_t),
                                at + (uint64_t)i * PAGE, PAGE, 0, handle[i], 0),
                         0);
    }
    assert_int_equal(DRIVER("cuMemCreate", (uint64_t *, size_t, const void *, uint64_t), &at,
                            PAGE + 1, NULL, 0),
                     1);
    assert_int_equal(free_bytes(), all - 2 * PAGE);
    at = handle[0];
    assert_int_equal(DRIVER("cuMemRelease", (uint64_t), handle[0]), 0);
    assert_int_equal(free_bytes(), all - 2 * PAGE); /* it is still mapped */
    assert_int_equal(DRIVER("cuMemRelease", (uint64_t), handle[1]), 0);
}

static void test_virtual_unmap(void **state)
{
    uint64_t at = 0, handle = 0;
    size_t all = free_bytes();
    (void)state;
    DRIVER("cuMemAddressReserve", (uint64_t *, size_t, size_t, uint64_t, uint64_t), &at,
           4 * PAGE, 0, 0, 0);
    DRIVER("cuMemCreate", (uint64_t *, size_t, const void *, uint64_t), &handle, 2 * PAGE,
           NULL, 0);
    DRIVER("cuMemMap", (uint64_t, size_t, size_t, uint64_t, uint64_t), at, 2 * PAGE, 0, handle,
           0);
    DRIVER("cuMemRelease", (uint64_t), handle);
    assert_int_equal(free_bytes(), all - 2 * PAGE);
    assert_int_equal(DRIVER("cuMemUnmap", (uint64_t, size_t), at, 2 * PAGE), 0);
    assert_int_equal(free_bytes(), all);
    assert_int_equal(DRIVER("cuMemUnmap", (uint64_t, size_t), at, 2 * PAGE), 1);
}

static void *churn_memory(void *seed)
{
    uint64_t held[32] = {0};
    uint32_t x = (uint32_t)(uintptr_t)seed;
    for (int i = 0; i < 2000; i++) {
        uint64_t *h = &held[(x = x * 1664525 + 1013904223) >> 27];
        if (*h && CUDA("cudaFree", (uint64_t), *h))
            return (void *)1;
        *h = 0;
        if (CUDA("cudaMalloc", (uint64_t *, size_t), h, 1 + (x >> 12) % (3 * MIB)))
            return (void *)1;
    }
    for (int i = 0; i < 32; i++)
        CUDA("cudaFree", (uint64_t), held[i]);
    return NULL;
}

static void test_threads(void **state)
{
    pthread_t thread[4];
    void *failed = NULL;
    size_t all = free_bytes();
    (void)state;
    for (uintptr_t i = 0; i < 4; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, churn_memory, (void *)(i + 1)), 0);
    for (int i = 0; i < 4; i++) {
        pthread_join(thread[i], &failed);
        assert_null(failed);
    }
    assert_int_equal(free_bytes(), all);
}

/* ---- the driver's doors -------------------------------------------------------------- */

static void test_entry_points(void **state)
{
    void *f = NULL;
    const void *table = &f;
    int found = -1;
    (void)state;
    assert_int_equal(CUDA("cudaGetDriverEntryPointByVersion",
                          (const char *, void **, unsigned, uint64_t, int *), "cuMemAlloc", &f,
                          13000, 0, &found),
                     0);
    assert_int_equal(found, 0);
    assert_ptr_equal(f, find_function("libcuda.so.1", "cuMemAlloc_v2"));
    CUDA("cudaGetDriverEntryPointByVersion",
         (const char *, void **, unsigned, uint64_t, int *), "cuNoSuchThing", &f, 13000, 0,
         &found);
    assert_int_equal(found, 1);
    assert_null(f);
    assert_int_equal(DRIVER("cuGetExportTable", (const void **, const void *), &table, "any"),
                     500);
    assert_null(table);
}

/* ---- libraries ------------------------------------------------------------------------- */

#define DNN(name, types, ...) CALL("libcudnn.so.9", name, types, __VA_ARGS__)

static void test_cudnn(void **state)
{
    enum {
        TYPE_INT64 = 3,
        TYPE_DESCRIPTOR = 15,
        PLAN = 5,
        WORKSPACE = 402,
        RESULTS = 202,
        DIMENSIONS = 902
    };
    void *a = NULL, *b = NULL;
    int64_t dims[3] = {2, 3, 4}, out[3] = {0}, n = -1;
    (void)state;
#define SET(d, name, type, count, data)                                                       \
    DNN("cudnnBackendSetAttribute", (void *, int, int, int64_t, const void *), d, name, type, \
        (int64_t)(count), data)
#define GET(d, name, type, count, data)                                                       \
    DNN("cudnnBackendGetAttribute", (void *, int, int, int64_t, int64_t *, void *), d, name,  \
        type, (int64_t)(count), &n, data)
    assert_int_equal(DNN("cudnnBackendCreateDescriptor", (int, void **), PLAN, &a), 0);
    assert_int_equal(DNN("cudnnBackendCreateDescriptor", (int, void **), PLAN, &b), 0);
    assert_int_equal(SET(b, DIMENSIONS, TYPE_INT64, 3, dims), 0);
    assert_int_equal(SET(b, DIMENSIONS, TYPE_INT64, 2, dims + 1), 0); /* takes its place */
    assert_int_equal(GET(b, DIMENSIONS, TYPE_INT64, 3, out), 0);
    assert_int_equal(n, 2);
    assert_true(out[0] == 3 && out[1] == 4 && out[2] == 0);
    assert_int_equal(SET(a, RESULTS + 1, TYPE_DESCRIPTOR, 1, &b), 0); /* one in another */
    void *copy = NULL;
    assert_int_equal(DNN("cudnnBackendCreateDescriptor", (int, void **), PLAN, &copy), 0);
    assert_int_equal(GET(a, RESULTS + 1, TYPE_DESCRIPTOR, 1, &copy), 0);
    memset(out, 0, sizeof out);
    assert_int_equal(GET(copy, DIMENSIONS, TYPE_INT64, 3, out), 0);
    assert_int_equal(out[1], 4);
    assert_int_equal(GET(a, RESULTS, TYPE_DESCRIPTOR, 1, &copy), 0);
    assert_int_equal(n, 1); /* a heuristic finds one engine */
    assert_int_equal(GET(a, WORKSPACE, TYPE_INT64, 1, out), 0);
    assert_int_equal(out[0], 0);
    setenv("PLIMSOLL_STUB_CUDNN_WORKSPACE", "4096", 1);
    assert_int_equal(GET(a, WORKSPACE, TYPE_INT64, 1, out), 0);
    unsetenv("PLIMSOLL_STUB_CUDNN_WORKSPACE");
    assert_int_equal(out[0], 4096);
    void *const all[] = {a, b, copy};
    for (int i = 0; i < 3; i++)
        assert_int_equal(DNN("cudnnBackendDestroyDescriptor", (void *), all[i]), 0);
}

static void *make_descriptor(int type)
{
    void *d = NULL;
    assert_int_equal(DNN("cudnnBackendCreateDescriptor", (int, void **), type, &d), 0);
    return d;
}

static void drop_descriptor(void *d)
{
    assert_int_equal(DNN("cudnnBackendDestroyDescriptor", (void *), d), 0);
}

static void set_descriptor(void *d, int name, void *value)
{
    enum { TYPE_DESCRIPTOR = 15 };
    assert_int_equal(SET(d, name, TYPE_DESCRIPTOR, 1, &value), 0);
}

static void *make_tensor(const int64_t dim[4])
{
    enum { TYPE_DATA = 1, TYPE_INT64 = 3, TENSOR = 17, DATA_TYPE = 901, DIMS, STRIDES };
    int type = 0;
    const int64_t stride[4] = {dim[1] * dim[2] * dim[3], dim[2] * dim[3], dim[3], 1};
    void *t = make_descriptor(TENSOR);
    assert_int_equal(SET(t, DATA_TYPE, TYPE_DATA, 1, &type), 0);
    assert_int_equal(SET(t, DIMS, TYPE_INT64, 4, dim), 0);
    assert_int_equal(SET(t, STRIDES, TYPE_INT64, 4, stride), 0);
    return t;
}

/* The plan of a convolution takes what plim_vgpu_conv_workspace says, though all that it was made
 * of is destroyed by then. */
static void test_convolution(void **state)
{
    enum { CONFIG = 3, HEURISTIC, PLAN, FORWARD = 10, GRAPH = 15, TYPE_INT64 = 3 };
    static const int64_t dims[][4] = {{128, 64, 3, 3}, {8, 64, 56, 56}, {8, 128, 56, 56}};
    void *op = make_descriptor(FORWARD), *graph = make_descriptor(GRAPH);
    void *found = make_descriptor(HEURISTIC), *config = make_descriptor(CONFIG);
    void *plan = make_descriptor(PLAN);
    const plim_vgpu_options o = {.vram = TOTAL};
    plim_vgpu_conv conv = {.pass = PLIM_VGPU_CONV_FORWARD};
    plim_vgpu_tensor *const given[] = {&conv.w, &conv.x, &conv.y};
    plim_vgpu *d = NULL;
    int64_t n, bytes = 0;
    (void)state;
    for (int i = 0; i < 3; i++) {
        void *t = make_tensor(dims[i]);
        set_descriptor(op, 703 + i, t);
        drop_descriptor(t);
        given[i]->rank = 4;
        memcpy(given[i]->dim, dims[i], sizeof dims[i]);
        for (int64_t j = 3, step = 1; j >= 0; step *= dims[i][j--])
            given[i]->stride[j] = step;
    }
    set_descriptor(graph, 801, op);
    drop_descriptor(op);
    set_descriptor(found, 201, graph);
    drop_descriptor(graph);
    assert_int_equal(GET(found, 202, 15, 1, &config), 0);
    drop_descriptor(found);
    set_descriptor(plan, 401, config);
    drop_descriptor(config);
    assert_int_equal(plim_vgpu_open(&o, &d, NULL), PLIM_OK);
    assert_int_equal(GET(plan, 402, TYPE_INT64, 1, &bytes), 0);
    assert_true(bytes > 0);
    assert_int_equal(bytes, plim_vgpu_conv_workspace(d, &conv));
    plim_vgpu_close(d);
    drop_descriptor(plan);
}

/* So does that of attention, whether it is one op or begins with another than its products. */
static void test_attention(void **state)
{
    enum { ENGINE_CONFIG = 3, HEURISTIC, PLAN, POINTWISE = 13, GRAPH = 15, MATMUL = 19 };
    static const int ops[][2] = {{MATMUL, POINTWISE},
                                 {POINTWISE, MATMUL},
                                 {41, POINTWISE},
                                 {43, POINTWISE},
                                 {POINTWISE, POINTWISE}};
    const plim_vgpu_options o = {.vram = TOTAL};
    plim_vgpu *d = NULL;
    (void)state;
    assert_int_equal(plim_vgpu_open(&o, &d, NULL), PLIM_OK);
    for (size_t i = 0; i < sizeof ops / sizeof ops[0]; i++) {
        void *two[] = {make_descriptor(ops[i][0]), make_descriptor(ops[i][1])};
        void *graph = make_descriptor(GRAPH), *found = make_descriptor(HEURISTIC);
        void *config = make_descriptor(ENGINE_CONFIG), *plan = make_descriptor(PLAN);
        int64_t n, bytes = -1;
        assert_int_equal(SET(graph, 801, 15, 2, two), 0);
        set_descriptor(found, 201, graph);
        assert_int_equal(GET(found, 202, 15, 1, &config), 0);
        set_descriptor(plan, 401, config);
        assert_int_equal(GET(plan, 402, 3, 1, &bytes), 0);
        assert_int_equal(bytes, i < 4 ? plim_vgpu_attention_workspace(d) : 0);
        void *all[] = {two[0], two[1], graph, found, config, plan};
        for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
            drop_descriptor(all[j]);
    }
    assert_true(plim_vgpu_attention_workspace(d) > 0);
    plim_vgpu_close(d);
}

/* Heads that share keys: what is added up lies in the workspace, in its own type; what a softmax
 * reduces does not. */
static void test_shared_heads(void **state)
{
    enum { ENGINE_CONFIG = 3, HEURISTIC, PLAN, GRAPH = 15, MATMUL = 19, REDUCTION = 22 };
    static const int64_t each[] = {4, 16, 1024, 128}, sums[] = {4, 8, 1024, 128};
    static const int64_t rows[] = {4, 16, 1024, 1};
    void *ops[] = {make_descriptor(MATMUL), make_descriptor(REDUCTION),
                   make_descriptor(REDUCTION)};
    void *tensors[] = {make_tensor(each), make_tensor(sums), make_tensor(each),
                       make_tensor(rows)};
    void *graph = make_descriptor(GRAPH), *found = make_descriptor(HEURISTIC);
    void *config = make_descriptor(ENGINE_CONFIG), *plan = make_descriptor(PLAN);
    int64_t n, bytes = 0;
    (void)state;
    for (size_t i = 0; i < 4; i++) {
        set_descriptor(ops[1 + i / 2], 1610 + (int)(i % 2), tensors[i]);
        drop_descriptor(tensors[i]);
    }
    assert_int_equal(SET(graph, 801, 15, 3, ops), 0);
    set_descriptor(found, 201, graph);
    assert_int_equal(GET(found, 202, 15, 1, &config), 0);
    set_descriptor(plan, 401, config);
    assert_int_equal(GET(plan, 402, 3, 1, &bytes), 0);
    assert_int_equal(bytes, 4 * 16 * 1024 * 128 * 4 + 256);
    void *all[] = {ops[0], ops[1], ops[2], graph, found, config, plan};
    for (size_t j = 0; j < sizeof all / sizeof all[0]; j++)
        drop_descriptor(all[j]);
}

/* An LSTM of 2 layers, 5 -> 7: 4 gates of 7 x (in + 7) and two biases of 4 x 7. */
static void test_rnn(void **state)
{
    void *r = NULL, *m = NULL, *b = NULL;
    size_t bytes = 0;
    uint64_t matrix = 0, bias = 0;
    (void)state;
    assert_int_equal(DNN("cudnnCreateRNNDescriptor", (void **), &r), 0);
    assert_int_equal(DNN("cudnnSetRNNDescriptor_v8",
                         (void *, int, int, int, int, int, int, int, int, int, int, int, int,
                          void *, unsigned),
                         r, 0, 2, 2, 0, 0, 0, 0, 0, 5, 7, 7, 2, NULL, 0),
                     0);
    assert_int_equal(
        DNN("cudnnGetRNNWeightSpaceSize", (void *, void *, size_t *), NULL, r, &bytes), 0);
    enum { FIRST = 4 * 7 * (5 + 7), SECOND = 4 * 7 * (7 + 7), BIASES = 2 * 4 * 7 };
    assert_int_equal(bytes, 4 * (FIRST + SECOND + 2 * BIASES));
    DNN("cudnnCreateTensorDescriptor", (void **), &m);
    DNN("cudnnCreateTensorDescriptor", (void **), &b);
    assert_int_equal(DNN("cudnnGetRNNWeightParams",
                         (void *, void *, int, size_t, uint64_t, int, void *, uint64_t *,
                          void *, uint64_t *),
                         NULL, r, 1, bytes, 1000, 4, m, &matrix, b, &bias),
                     0);
    assert_int_equal(matrix, 1000 + 4 * (FIRST + 4 * 7 * 7));
    assert_int_equal(bias, 1000 + 4 * (FIRST + SECOND + BIASES + 4 * 7));
    DNN("cudnnDestroyTensorDescriptor", (void *), m);
    DNN("cudnnDestroyTensorDescriptor", (void *), b);
    DNN("cudnnDestroyRNNDescriptor", (void *), r);
}

static void test_work_is_done(void **state)
{
    void *handle = NULL, *e[2] = {0};
    float ms = -1;
    (void)state;
    assert_int_equal(CALL("libcublas.so.13", "cublasCreate_v2", (void **), &handle), 0);
    assert_non_null(handle);
    assert_int_equal(CALL("libcublas.so.13", "cublasSgemm_v2", (void *), handle), 0);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(CUDA("cudaEventCreate", (void **), &e[i]), 0);
        assert_int_equal(CUDA("cudaEventRecord", (void *, void *), e[i], NULL), 0);
        assert_int_equal(CUDA("cudaEventQuery", (void *), e[i]), 0);
    }
    assert_int_equal(CUDA("cudaEventElapsedTime", (float *, void *, void *), &ms, e[0], e[1]),
                     0);
    assert_true(ms >= 0);
    for (int i = 0; i < 2; i++)
        CUDA("cudaEventDestroy", (void *), e[i]);
}

/* ---- captures ------------------------------------------------------------------------ */

typedef unsigned long long capture_id;

static capture_id id_of(const char *soname, void *stream)
{
    int status = -1;
    capture_id id = 77, same = 77;
    void *graph = NULL;
    const void *after = "";
    size_t n = 9;
    assert_int_equal(CALL(soname, "cudaStreamGetCaptureInfo_v2",
                          (void *, int *, capture_id *, void **, const void **, size_t *),
                          stream, &status, &id, &graph, &after, &n),
                     0);
    assert_int_equal(status, id != 0);
    assert_int_equal(graph != NULL, id != 0);
    assert_int_equal(n, 0);
    /* CUDA 12 has this name with three parameters, 13 with more, which may be NULL */
    assert_int_equal(
        CALL(soname, "cudaStreamGetCaptureInfo",
             (void *, int *, capture_id *, void **, const void **, const void **, size_t *),
             stream, &status, &same, NULL, NULL, NULL, NULL),
        0);
    assert_int_equal(same, id);
    assert_int_equal(CALL(soname, "cudaStreamIsCapturing", (void *, int *), stream, &status),
                     0);
    assert_int_equal(status, id != 0);
    return id;
}

/* A stream is captured from begin to end; one that waits for an event of it, from there on. */
static void capture_with(const char *soname)
{
    enum { CAPTURING = 900, NOT_CAPTURING = 901 };
    void *stream = NULL, *side = NULL, *other = NULL, *e = NULL, *graph = NULL, *exec = NULL;
    size_t n = 0;
    assert_int_equal(CALL(soname, "cudaStreamCreate", (void **), &stream), 0);
    assert_int_equal(CALL(soname, "cudaStreamCreate", (void **), &side), 0);
    assert_int_equal(CALL(soname, "cudaStreamCreate", (void **), &other), 0);
    assert_int_equal(CALL(soname, "cudaEventCreate", (void **), &e), 0);
    assert_int_equal(id_of(soname, stream), 0);
    assert_int_equal(CALL(soname, "cudaStreamBeginCapture", (void *, int), stream, 0), 0);
    capture_id id = id_of(soname, stream);
    assert_true(id != 0);
    assert_int_equal(CALL(soname, "cudaStreamBeginCapture", (void *, int), stream, 0),
                     CAPTURING);
    assert_int_equal(id_of(soname, side), 0);
    CALL(soname, "cudaEventRecord", (void *, void *), e, stream);
    CALL(soname, "cudaStreamWaitEvent", (void *, void *, unsigned), side, e, 0);
    CALL(soname, "cudaStreamWaitEvent", (void *, void *, unsigned), side, e, 0);
    assert_int_equal(id_of(soname, side), id);
    assert_int_equal(id_of(soname, other), 0);
    assert_int_equal(CALL(soname, "cudaStreamSynchronize", (void *), side), CAPTURING);
    assert_int_equal(CALL(soname, "cudaStreamSynchronize", (void *), other), 0);
    assert_int_equal(CALL(soname, "cudaStreamBeginCapture", (void *, int), other, 0), 0);
    assert_true(id_of(soname, other) != 0 && id_of(soname, other) != id);
    assert_int_equal(CALL(soname, "cudaStreamEndCapture", (void *, void **), stream, &graph),
                     0);
    assert_int_equal(id_of(soname, stream) + id_of(soname, side), 0);
    assert_true(id_of(soname, other) != 0);
    CALL(soname, "cudaStreamWaitEvent", (void *, void *, unsigned), side, e, 0);
    assert_int_equal(id_of(soname, side), 0); /* the capture is over */
    assert_int_equal(
        CALL(soname, "cudaGraphGetNodes", (void *, void **, size_t *), graph, NULL, &n), 0);
    assert_true(n > 0);
    assert_int_equal(CALL(soname, "cudaGraphInstantiateWithFlags",
                          (void **, void *, capture_id), &exec, graph, 0),
                     0);
    assert_non_null(exec);
    assert_int_equal(CALL(soname, "cudaGraphLaunch", (void *, void *), exec, stream), 0);
    assert_int_equal(CALL(soname, "cudaGraphExecDestroy", (void *), exec), 0);
    assert_int_equal(CALL(soname, "cudaGraphDestroy", (void *), graph), 0);
    assert_int_equal(CALL(soname, "cudaStreamEndCapture", (void *, void **), stream, &graph),
                     NOT_CAPTURING);
    assert_int_equal(CALL(soname, "cudaStreamEndCapture", (void *, void **), other, &graph),
                     0);
    CALL(soname, "cudaEventDestroy", (void *), e);
    CALL(soname, "cudaGetLastError", (void));
}

static void test_captures(void **state)
{
    (void)state;
    capture_with("libcudart.so.12");
    capture_with("libcudart.so.13");
}

int main(int argc, char **argv)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_no_card), /* first: it needs a process that has none yet */
        cmocka_unit_test(test_nvml),          cmocka_unit_test(test_names),
        cmocka_unit_test(test_missing),       cmocka_unit_test(test_card),
        cmocka_unit_test(test_pages),         cmocka_unit_test(test_full),
        cmocka_unit_test(test_unbacked),      cmocka_unit_test(test_copies),
        cmocka_unit_test(test_host),          cmocka_unit_test(test_managed),
        cmocka_unit_test(test_virtual_unmap), cmocka_unit_test(test_threads),
        cmocka_unit_test(test_entry_points),  cmocka_unit_test(test_cudnn),
        cmocka_unit_test(test_convolution),   cmocka_unit_test(test_attention),
        cmocka_unit_test(test_shared_heads),  cmocka_unit_test(test_rnn),
        cmocka_unit_test(test_work_is_done),  cmocka_unit_test(test_virtual),
        cmocka_unit_test(test_captures),      cmocka_unit_test(test_places),
    };
    if (argc < 3) {
        fprintf(stderr, "usage: %s FOLDER NAMES\n", argv[0]);
        return 2;
    }
    folder = argv[1];
    names = argv[2];
    unsetenv("PLIMSOLL_RUN_GPU");
    setenv("PLIMSOLL_RUN_VRAM", "4294967296", 1);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
