/* program.c -- a program that uses CUDA's driver in one of several ways, for the recorder.
 *
 *     program WAY [ARGUMENT...]
 *
 * It prints what it knows of its memory: "held N" bytes that it asked for and still has, and
 * "used N" bytes of the device that the driver says are in use. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#define MIB (1ull << 20)

/* ---- the driver: as the program got it -------------------------------------- */

struct ipc_handle {
    char bytes[64];
};

static struct {
    int (*init)(unsigned);
    int (*retain)(void **, int);
    int (*release)(int);
    int (*reset)(int);
    int (*push)(void *);
    int (*info)(size_t *, size_t *);
    int (*alloc)(uint64_t *, size_t);
    int (*pitch)(uint64_t *, size_t *, size_t, size_t, unsigned);
    int (*drop)(uint64_t);
    int (*alloc_async)(uint64_t *, size_t, void *);
    int (*alloc_pool)(uint64_t *, size_t, void *, void *);
    int (*drop_async)(uint64_t, void *);
    int (*reserve)(uint64_t *, size_t, size_t, uint64_t, uint64_t);
    int (*create)(uint64_t *, size_t, const void *, uint64_t);
    int (*map)(uint64_t, size_t, size_t, uint64_t, uint64_t);
    int (*unmap)(uint64_t, size_t);
    int (*release_handle)(uint64_t);
    int (*array)(uint64_t *, const void *);
    int (*drop_array)(uint64_t);
    int (*host)(void **, size_t, unsigned);
    int (*drop_host)(void *);
    int (*module)(void **, const void *);
    int (*graph)(void **, unsigned);
    int (*alloc_node)(void **, void *, const void *, size_t, void *);
    int (*node)(void **, void *, const void *, const void *, size_t, void *);
    int (*instantiate)(void **, void *, uint64_t);
    int (*launch)(void *, void *);
    int (*trim)(int);
    int (*share)(void *, uint64_t);
    int (*open)(uint64_t *, struct ipc_handle, unsigned);
    int (*close)(uint64_t);
    int (*export_handle)(uint64_t *, uint64_t, int, uint64_t);
    int (*import_handle)(uint64_t *, uint64_t, int);
} cu;

static const struct {
    const char *name; /* for cuGetProcAddress */
    const char *export;
    void **to;
} functions[] = {
    {"cuInit", "cuInit", (void **)&cu.init},
    {"cuDevicePrimaryCtxRetain", "cuDevicePrimaryCtxRetain", (void **)&cu.retain},
    {"cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxRelease_v2", (void **)&cu.release},
    {"cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxReset_v2", (void **)&cu.reset},
    {"cuCtxPushCurrent", "cuCtxPushCurrent_v2", (void **)&cu.push},
    {"cuMemGetInfo", "cuMemGetInfo_v2", (void **)&cu.info},
    {"cuMemAlloc", "cuMemAlloc_v2", (void **)&cu.alloc},
    {"cuMemAllocPitch", "cuMemAllocPitch_v2", (void **)&cu.pitch},
    {"cuMemFree", "cuMemFree_v2", (void **)&cu.drop},
    {"cuMemAllocAsync", "cuMemAllocAsync", (void **)&cu.alloc_async},
    {"cuMemAllocFromPoolAsync", "cuMemAllocFromPoolAsync", (void **)&cu.alloc_pool},
    {"cuMemFreeAsync", "cuMemFreeAsync", (void **)&cu.drop_async},
    {"cuMemAddressReserve", "cuMemAddressReserve", (void **)&cu.reserve},
    {"cuMemCreate", "cuMemCreate", (void **)&cu.create},
    {"cuMemMap", "cuMemMap", (void **)&cu.map},
    {"cuMemUnmap", "cuMemUnmap", (void **)&cu.unmap},
    {"cuMemRelease", "cuMemRelease", (void **)&cu.release_handle},
    {"cuArrayCreate", "cuArrayCreate_v2", (void **)&cu.array},
    {"cuArrayDestroy", "cuArrayDestroy", (void **)&cu.drop_array},
    {"cuMemHostAlloc", "cuMemHostAlloc", (void **)&cu.host},
    {"cuMemFreeHost", "cuMemFreeHost", (void **)&cu.drop_host},
    {"cuModuleLoadData", "cuModuleLoadData", (void **)&cu.module},
    {"cuGraphCreate", "cuGraphCreate", (void **)&cu.graph},
    {"cuGraphAddMemAllocNode", "cuGraphAddMemAllocNode", (void **)&cu.alloc_node},
    {"cuGraphAddNode", "cuGraphAddNode_v2", (void **)&cu.node},
    {"cuGraphInstantiate", "cuGraphInstantiateWithFlags", (void **)&cu.instantiate},
    {"cuGraphLaunch", "cuGraphLaunch", (void **)&cu.launch},
    {"cuDeviceGraphMemTrim", "cuDeviceGraphMemTrim", (void **)&cu.trim},
    {"cuIpcGetMemHandle", "cuIpcGetMemHandle", (void **)&cu.share},
    {"cuIpcOpenMemHandle", "cuIpcOpenMemHandle_v2", (void **)&cu.open},
    {"cuIpcCloseMemHandle", "cuIpcCloseMemHandle", (void **)&cu.close},
    {"cuMemExportToShareableHandle", "cuMemExportToShareableHandle",
     (void **)&cu.export_handle},
    {"cuMemImportFromShareableHandle", "cuMemImportFromShareableHandle",
     (void **)&cu.import_handle},
};
enum { FUNCTIONS = sizeof functions / sizeof *functions };

static void require(bool good, const char *what)
{
    if (!good) {
        fprintf(stderr, "program: %s failed\n", what);
        exit(99);
    }
}

/* By dlsym, each function; or by cuGetProcAddress_v2, as a CUDA runtime does; or by its
 * older form, which dlsym finds among all that is loaded. */
static void *find_driver(const char *how)
{
    void *lib = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    require(lib, "dlopen");
    int (*find)(const char *, void **, int, uint64_t, int *) = NULL;
    if (strcmp(how, "dlsym") != 0)
        *(void **)&find = dlsym(RTLD_DEFAULT, "cuGetProcAddress_v2");
    for (int i = 0; i < FUNCTIONS; i++) {
        if (find)
            require(!find(functions[i].name, functions[i].to, 13000, 0, NULL),
                    functions[i].name);
        else
            require((*functions[i].to = dlsym(lib, functions[i].export)), functions[i].export);
    }
    return lib;
}

static void begin_cuda(const char *how)
{
    void *context;
    find_driver(how);
    require(!cu.init(0), "cuInit");
    require(!cu.retain(&context, 0), "cuDevicePrimaryCtxRetain");
    require(!cu.push(context), "cuCtxPushCurrent");
}

static uint64_t held;

static uint64_t take(size_t bytes)
{
    uint64_t at = 0;
    require(!cu.alloc(&at, bytes), "cuMemAlloc");
    held += bytes;
    return at;
}

static void give(uint64_t at, size_t bytes)
{
    require(!cu.drop(at), "cuMemFree");
    held -= bytes;
}

static void print_memory(void)
{
    size_t free_bytes = 0, total = 0;
    require(!cu.info(&free_bytes, &total), "cuMemGetInfo");
    printf("held %llu\nused %llu\n", (unsigned long long)held,
           (unsigned long long)(total - free_bytes));
    fflush(stdout);
}

/* ---- ways ------------------------------------------------------------------- */

static int use_plain(char **a)
{
    begin_cuda(a[0] ? a[0] : "dlsym");
    uint64_t one = take(64 * MIB), two = take(6 * MIB);
    (void)take(10 * MIB);
    give(one, 64 * MIB);
    (void)two;
    print_memory();
    return 7; /* which the recorder passes on */
}

enum { MOST_THREADS = 64 };
static size_t pairs;

static void *use_thread(void *number)
{
    size_t bytes = 2 * MIB + 2 * MIB * (size_t)(uintptr_t)number;
    for (size_t i = 0; i < pairs; i++) {
        uint64_t at = 0;
        if (cu.alloc(&at, bytes) || cu.drop(at))
            return (void *)1;
    }
    return NULL;
}

/* THREADS PAIRS: so many allocations and releases of each. */
static int use_threads(char **a)
{
    int n = atoi(a[0]);
    pthread_t threads[MOST_THREADS];
    void *bad = NULL;
    struct timespec t[2];
    pairs = (size_t)atoll(a[1]);
    begin_cuda("dlsym");
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[0]);
    for (int i = 0; i < n; i++)
        require(!pthread_create(&threads[i], NULL, use_thread, (void *)(uintptr_t)i),
                "thread");
    for (int i = 0; i < n; i++) {
        void *out;
        pthread_join(threads[i], &out);
        bad = out ? out : bad;
    }
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t[1]);
    require(!bad, "a thread");
    print_memory();
    printf("ns %.1f\n", ((double)(t[1].tv_sec - t[0].tv_sec) * 1e9 +
                         (double)(t[1].tv_nsec - t[0].tv_nsec)) /
                            ((double)pairs * 2 * n));
    return 0;
}

/* A child of fork() and, in it, another program. */
static int use_fork(char **a)
{
    begin_cuda("dlsym");
    (void)take(8 * MIB);
    fflush(stdout);
    for (int exec = 0; exec < 2; exec++) {
        pid_t pid = fork();
        if (!pid && exec)
            execl("/proc/self/exe", "program", "plain", "proc", (char *)NULL);
        if (!pid) {
            (void)take(32 * MIB);
            _exit(3);
        }
        int status = 0;
        require(waitpid(pid, &status, 0) == pid && WEXITSTATUS(status) == (exec ? 7 : 3),
                "a child");
    }
    (void)a;
    print_memory();
    return 0;
}

/* Physical memory and what it is mapped to: two mappings of one handle, which is released
 * first; one that is never mapped. */
static int use_virtual(char **a)
{
    struct {
        int32_t type, handles, location, device;
        uint64_t rest[2];
    } what = {.type = 1, .location = 1};
    uint64_t at, one, two;
    (void)a;
    begin_cuda("proc");
    require(!cu.reserve(&at, 64 * MIB, 0, 0, 0), "cuMemAddressReserve");
    require(!cu.create(&one, 20 * MIB, &what, 0) && !cu.create(&two, 4 * MIB, &what, 0),
            "cuMemCreate");
    require(!cu.map(at, 20 * MIB, 0, one, 0) && !cu.map(at + 20 * MIB, 20 * MIB, 0, one, 0),
            "cuMemMap");
    require(!cu.release_handle(one), "cuMemRelease");
    require(!cu.unmap(at, 20 * MIB), "cuMemUnmap");
    held = 24 * MIB; /* one mapping is left */
    print_memory();
    require(!cu.unmap(at + 20 * MIB, 20 * MIB), "cuMemUnmap");
    held = 4 * MIB;
    print_memory();
    return 0;
}

static int use_others(char **a)
{
    struct {
        size_t width, height;
        uint32_t format, channels;
    } what = {.width = 1024, .height = 1024, .format = 0x20, .channels = 4};
    uint64_t one, two, array, pitched;
    size_t pitch;
    void *host, *module;
    (void)a;
    begin_cuda("proc");
    require(!cu.alloc_async(&one, 12 * MIB, NULL), "cuMemAllocAsync");
    require(!cu.alloc_pool(&two, 14 * MIB, NULL, NULL), "cuMemAllocFromPoolAsync");
    require(!cu.drop_async(one, NULL), "cuMemFreeAsync");
    require(!cu.array(&array, &what), "cuArrayCreate");
    require(!cu.pitch(&pitched, &pitch, 1000, 4096, 4), "cuMemAllocPitch");
    require(!cu.host(&host, 3 * MIB, 0), "cuMemHostAlloc");
    require(!cu.module(&module, "code"), "cuModuleLoadData");
    held = 14 * MIB + 16 * MIB + pitch * 4096;
    print_memory();
    return 0;
}

/* Nodes that allocate: nothing is held until a launch; two graphs share what they hold, and
 * keep it until it is trimmed.  An address of a node is given back after each launch. */
static int use_graphs(char **a)
{
    struct {
        uint64_t pool[11], access[2], bytes, at;
    } small = {.bytes = 6 * MIB};
    struct {
        int32_t type, none[3];
        uint64_t pool[11], access[2], bytes, at;
    } large = {.type = 10, .bytes = 20 * MIB}, other = {.type = 0};
    void *one = NULL, *two = NULL, *run_one = NULL, *run_two = NULL, *node;
    begin_cuda(a[0] ? a[0] : "proc");
    (void)take(2 * MIB);
    require(!cu.graph(&one, 0) && !cu.graph(&two, 0), "cuGraphCreate");
    require(!cu.alloc_node(&node, one, NULL, 0, &small), "cuGraphAddMemAllocNode");
    require(!cu.node(&node, two, NULL, NULL, 0, &large), "cuGraphAddNode");
    require(!cu.node(&node, two, NULL, NULL, 0, &other), "cuGraphAddNode");
    require(!cu.instantiate(&run_one, one, 0) && !cu.instantiate(&run_two, two, 0),
            "cuGraphInstantiate");
    print_memory(); /* not launched */
    for (int i = 0; i < 3; i++) {
        require(!cu.launch(run_one, NULL) && !cu.launch(run_two, NULL), "cuGraphLaunch");
        (void)cu.drop_async(small.at, NULL);
    }
    held += 20 * MIB;
    print_memory();
    require(!cu.trim(0), "cuDeviceGraphMemTrim");
    require(!cu.launch(run_one, NULL), "cuGraphLaunch");
    held -= 14 * MIB;
    print_memory();
    return 0;
}

/* What another process allocated: this one holds nothing more. */
static int use_shared(char **a)
{
    struct {
        int32_t type, handles, location, device;
        uint64_t rest[2];
    } what = {.type = 1, .handles = 1, .location = 1};
    struct ipc_handle handle;
    uint64_t opened = 0, handle_made, exported = 0, imported = 0, reserved;
    begin_cuda(a[0] ? a[0] : "proc");
    uint64_t own = take(30 * MIB);
    require(!cu.share(&handle, own) && !cu.open(&opened, handle, 1), "cuIpcOpenMemHandle");
    require(!cu.create(&handle_made, 8 * MIB, &what, 0), "cuMemCreate");
    held += 8 * MIB;
    require(!cu.export_handle(&exported, handle_made, 1, 0) &&
                !cu.import_handle(&imported, exported, 1),
            "cuMemImportFromShareableHandle");
    require(!cu.reserve(&reserved, 8 * MIB, 0, 0, 0), "cuMemAddressReserve");
    require(!cu.map(reserved, 8 * MIB, 0, imported, 0), "cuMemMap");
    print_memory();
    if (a[0] && a[1]) { /* and given back */
        require(!cu.close(opened), "cuIpcCloseMemHandle");
        require(!cu.unmap(reserved, 8 * MIB) && !cu.release_handle(imported), "cuMemUnmap");
        print_memory();
    }
    return 0;
}

static int use_oom(char **a)
{
    uint64_t at;
    (void)a;
    begin_cuda("dlsym");
    (void)take(128 * MIB);
    require(cu.alloc(&at, 1ull << 40) == 2, "to fail");
    print_memory();
    return 0;
}

/* With the primary context goes what was allocated in it. */
static int use_reset(char **a)
{
    begin_cuda("dlsym");
    (void)take(40 * MIB);
    require(!(a[0] ? cu.release(0) : cu.reset(0)), "cuDevicePrimaryCtxReset");
    begin_cuda("dlsym");
    held = 0;
    (void)take(2 * MIB);
    printf("held %llu\n", (unsigned long long)held);
    return 0;
}

/* The driver is loaded, closed, and loaded again. */
static int use_dlclose(char **a)
{
    (void)a;
    for (int i = 0; i < 2; i++) {
        void *lib = find_driver("dlsym"), *context;
        require(!cu.init(0) && !cu.retain(&context, 0) && !cu.push(context), "a context");
        held = 0;
        (void)take(6 * MIB + 2 * MIB * (size_t)i);
        dlclose(lib);
    }
    printf("held %llu\n", (unsigned long long)held);
    return 0;
}

static int use_abort(char **a)
{
    begin_cuda("dlsym");
    (void)take(16 * MIB);
    print_memory();
    if (!strcmp(a[0], "abort"))
        abort();
    raise(atoi(a[0]));
    return 1;
}

/* Descriptors that this program does not know are closed, and the folder is left. */
static int use_daemon(char **a)
{
    (void)a;
    begin_cuda("dlsym");
    (void)take(2 * MIB);
    for (int fd = 3; fd < 256; fd++)
        close(fd);
    require(!chdir("/"), "chdir");
    FILE *own = tmpfile();
    require(own, "tmpfile");
    for (int i = 0; i < 3000; i++)
        give(take(2 * MIB), 2 * MIB);
    require(ftell(own) == 0, "an own file");
    print_memory();
    return 0;
}

static int use_nothing(char **a)
{
    /* The recorder's names are not a driver. */
    require(!dlsym(RTLD_DEFAULT, "cuMemAlloc_v2"), "no driver");
    puts(a[0] ? a[0] : "nothing");
    return 5;
}

int main(int argc, char **argv)
{
    static const struct {
        const char *name;
        int (*use)(char **);
    } ways[] = {{"plain", use_plain},     {"threads", use_threads}, {"fork", use_fork},
                {"virtual", use_virtual}, {"others", use_others},   {"oom", use_oom},
                {"reset", use_reset},     {"dlclose", use_dlclose}, {"abort", use_abort},
                {"daemon", use_daemon},   {"nothing", use_nothing}, {"graphs", use_graphs},
                {"shared", use_shared}};
    for (size_t i = 0; argc > 1 && i < sizeof ways / sizeof *ways; i++)
        if (!strcmp(argv[1], ways[i].name))
            return ways[i].use(argv + 2);
    fputs("program: unknown way\n", stderr);
    return 98;
}
