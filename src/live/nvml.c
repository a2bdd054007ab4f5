/* nvml.c -- NVIDIA's GPUs, through the library that comes with its driver: see nvml.h */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "live/nvml.h"

#define LIBRARY "libnvidia-ml.so.1"
#define LIBRARY_WSL "/usr/lib/wsl/lib/libnvidia-ml.so.1"

enum {
    OK = 0,
    NOT_SUPPORTED = 3,
    TOO_SMALL = 7,
};

/* The layouts of the library on machines of 64 bits, which are all that NVIDIA's drivers are still made for,
 * each tested in tests/live.  i386 would lay out a struct of uint64_t with less room. */
#define ALIGNED _Alignas(8)
typedef struct nvml_memory {
    ALIGNED uint64_t total, free, used;
} nvml_memory;

typedef struct nvml_memory_v2 {
    uint32_t version; /* size of the struct and, from bit 24 on, its number */
    ALIGNED uint64_t total, reserved, free, used;
} nvml_memory_v2;

typedef struct nvml_pci {
    char legacy[16];
    uint32_t domain, bus, device, id, subsystem;
    char bus_id[32];
} nvml_pci;

typedef struct nvml_temperature {
    uint32_t version;
    int32_t sensor, degrees;
} nvml_temperature;

typedef struct nvml_sample {
    uint32_t pid;
    ALIGNED uint64_t time_us;
    uint32_t sm, memory, encoder, decoder;
} nvml_sample;

_Static_assert(sizeof(nvml_memory) == 24, "");
_Static_assert(sizeof(nvml_memory_v2) == 40, "");
_Static_assert(sizeof(nvml_pci) == 68, "");
_Static_assert(sizeof(nvml_temperature) == 12, "");
_Static_assert(sizeof(nvml_sample) == 32, "");

/* 16 TiB: no GPU has as much. */
#define MEMORY_MOST (UINT64_C(1) << 44)

#define VERSION(type, n) ((uint32_t)sizeof(type) | (uint32_t)(n) << 24)

enum {
    NARROW = 16, /* pid, memory */
    NORMAL = 24, /* and two numbers of a MIG instance */
    WIDE = 32,   /* and protected memory */
    TEXT_MOST = 96,
    MIG_MOST = 64,
    TRIES = 4, /* lists grow between the two calls */
};

/* ---- functions ---------------------------------------------------------------------------- */

typedef void *nvml_find(void *ud, const char *name);

/* Writes to `field`, a pointer to a function, the first name that is found; returns which. */
static int bind_one(nvml_find *find, void *ud, void *field, const char *const names[3])
{
    for (int i = 0; i < 3 && names[i]; i++) {
        void *found = find(ud, names[i]);
        memcpy(field, &found, sizeof found);
        if (found)
            return i + 1;
    }
    return 0;
}

const char *plim_nvml_bind(plim_nvml *nvml, nvml_find *find, void *ud)
{
#define X(field, args, newest, older, oldest)                                                 \
    nvml->found.field##_name =                                                                \
        bind_one(find, ud, &nvml->field, (const char *const[]){newest, older, oldest});
    PLIM_NVML_MAP(X)
#undef X
    /* src: libnvml.py of nvitop 1.5, _v3 functions: which drivers have the wide entries */
    nvml->wide = find(ud, "nvmlDeviceGetConfComputeMemSizeInfo") &&
                 !find(ud, "nvmlDeviceGetRunningProcessDetailList");
    return !nvml->init     ? "nvmlInit"
           : !nvml->count  ? "nvmlDeviceGetCount"
           : !nvml->handle ? "nvmlDeviceGetHandleByIndex"
                           : NULL;
}

/* src: the return codes of the library's documentation */
static const struct {
    int code;
    const char *text;
} errors[] = {
    {1, "NVML was not initialized"},
    {2, "NVML calls an argument invalid"},
    {3, "the driver does not support this"},
    {4, "no permission to ask the driver"},
    {6, "NVML does not find it"},
    {8, "the GPU's power cables are not attached"},
    {9, "the NVIDIA driver is not loaded"},
    {10, "the GPU has a problem with its interrupts"},
    {12, "NVML did not find a library of the driver"},
    {13, "NVML lacks a function: the driver is too old"},
    {15,
     "the GPU is lost: it fell off the bus or cannot be reached; see 'dmesg' for Xid errors"},
    {16, "the GPU needs a reset"},
    {17, "the operating system denies access to the GPU, perhaps by a cgroup"},
    {18,
     "the driver was updated since it was loaded: reboot, or load its kernel module again"},
    {25, "NVML does not know this version of a struct"},
    {26, "the driver has withdrawn this function"},
    {999, "the driver met an internal error"},
};

/* What a return code means, a static sentence. */
static const char *explain_code(int code)
{
    for (size_t i = 0; i < PLIM_COUNT(errors); i++)
        if (errors[i].code == code)
            return errors[i].text;
    return "NVML returned an error that is not documented";
}

/* ---- numbers and texts --------------------------------------------------------------------- */

/* NVML_VALUE_NOT_AVAILABLE, -1 in the width of the field, and what exceeds `most`. */
static uint64_t number_up_to(unsigned v, unsigned most)
{
    return v > most ? PLIM_LIVE_UNKNOWN : v;
}

static uint64_t ask_number(int (*ask)(void *, unsigned *), void *d, unsigned most)
{
    unsigned v = UINT32_MAX;
    return ask && ask(d, &v) == OK ? number_up_to(v, most) : PLIM_LIVE_UNKNOWN;
}

static const char *keep_text(plim_reading *r, char *text)
{
    text[TEXT_MOST - 1] = '\0';
    return *text ? plim_arena_str(r->arena, plim_str_of(text)).p : NULL;
}

static const char *ask_text(plim_reading *r, int (*ask)(void *, char *, unsigned), void *d)
{
    char text[TEXT_MOST] = "";
    return ask && ask(d, text, TEXT_MOST) == OK ? keep_text(r, text) : NULL;
}

/* ---- memory --------------------------------------------------------------------------------- */

static void read_unified(plim_reading *r, plim_live_device *d)
{
    uint64_t total, available;
    d->unified = true;
    if (plim_host_memory(r->root, &total, &available))
        plim_reading_memory(r, d, total, total - PLIM_MIN(available, total), available);
    else
        d->trouble = "it shares the machine's memory, and /proc/meminfo cannot be read";
}

static void read_memory(const plim_nvml *n, plim_reading *r, plim_live_device *d, void *h)
{
    nvml_memory_v2 two = {.version = VERSION(nvml_memory_v2, 2)};
    nvml_memory one = {0};
    if (n->memory_v2 && n->memory_v2(h, &two) == OK) {
        plim_reading_memory(r, d, two.total, two.used, two.free);
        /* Drivers differ in whether they count reserved memory as used: their sums say. */
        if (d->used != PLIM_LIVE_UNKNOWN && two.reserved <= two.total) {
            d->reserved = two.reserved;
            d->used_includes_reserved = two.used + two.free == two.total;
        }
        return;
    }
    int code = n->memory ? n->memory(h, &one) : NOT_SUPPORTED;
    if (code == OK) {
        plim_reading_memory(r, d, one.total, one.used, one.free);
        d->used_includes_reserved = true;
    } else if (code == NOT_SUPPORTED && !d->mig)
        read_unified(r, d);
    else
        d->trouble = explain_code(code);
}

/* ---- processes ------------------------------------------------------------------------------ */

typedef struct entry {
    uint64_t pid, memory;
} entry;

static entry entry_at(const uint8_t *list, unsigned i, size_t stride)
{
    uint32_t pid;
    entry e;
    memcpy(&pid, list + i * stride, sizeof pid);
    memcpy(&e.memory, list + i * stride + 8, sizeof e.memory);
    e.pid = pid;
    return e;
}

static bool entry_can_be(entry e, uint64_t total)
{
    if (total == PLIM_LIVE_UNKNOWN)
        total = MEMORY_MOST;
    return e.pid && e.pid <= PLIM_LIVE_PID_MOST &&
           (e.memory == PLIM_LIVE_UNKNOWN || e.memory <= total);
}

static unsigned count_possible(const uint8_t *list, unsigned n, size_t stride, uint64_t total)
{
    unsigned good = 0;
    for (unsigned i = 0; i < n; i++)
        good += entry_can_be(entry_at(list, i, stride), total);
    return good;
}

/* The list of a function, in the arena, with room for the widest entries; *n: how many. */
static const uint8_t *ask_list(plim_reading *r, int (*ask)(void *, unsigned *, void *),
                               void *h, unsigned *n)
{
    *n = 0;
    int code = ask(h, n, NULL);
    if (code == OK && !*n)
        return NULL;
    for (int i = 0; i < TRIES; i++) {
        unsigned room = PLIM_MIN(*n, PLIM_LIVE_PROCESSES_MOST / 2) * 2 + 8;
        uint8_t *list = plim_arena_new(r->arena, room, WIDE);
        *n = room;
        code = list ? ask(h, n, list) : OK;
        if (!list || code == OK) {
            *n = list ? PLIM_MIN(*n, room) : 0;
            return list;
        }
        if (code != TOO_SMALL)
            break;
    }
    *n = 0;
    return NULL;
}

static void read_list(const plim_nvml *nvml, plim_reading *r, void *h,
                      int (*ask)(void *, unsigned *, void *), int name, const char *kind)
{
    const plim_live_device *d = &r->devices[r->n_devices - 1];
    uint64_t total = d->total;
    unsigned n;
    const uint8_t *list = ask ? ask_list(r, ask, h, &n) : NULL;
    if (!list)
        return;
    size_t stride = name == 3 ? NARROW : name == 1 && nvml->wide ? WIDE : NORMAL;
    size_t other = stride == WIDE ? NORMAL : WIDE;
    /* A driver that the rule above does not know: all entries are possible in the other way. */
    if (name == 1 && count_possible(list, n, stride, total) < n &&
        count_possible(list, n, other, total) == n)
        stride = other;
    for (unsigned i = 0; i < n; i++) {
        entry e = entry_at(list, i, stride);
        if (!e.pid || e.pid > PLIM_LIVE_PID_MOST) {
            plim_reading_note(r,
                              "NVML listed processes with numbers that no process can have; "
                              "they are left out");
            continue;
        }
        plim_live_process *p = plim_reading_process(r, e.pid, kind);
        if (p && entry_can_be(e, total))
            p->memory = e.memory;
    }
}

/* How busy each process kept the GPU: the newest sample counts. */
static void read_samples(const plim_nvml *nvml, plim_reading *r, void *h, uint32_t first)
{
    unsigned n = 0;
    if (!nvml->samples || first == r->n_processes || nvml->samples(h, NULL, &n, 0) == OK || !n)
        return;
    unsigned room = PLIM_MIN(n, PLIM_LIVE_PROCESSES_MOST);
    nvml_sample *list = PLIM_NEW_N(r->arena, nvml_sample, room);
    n = room;
    if (!list || nvml->samples(h, list, &n, 0) != OK)
        return;
    for (uint32_t i = first; i < r->n_processes; i++) {
        uint64_t newest = 0;
        for (unsigned k = 0; k < PLIM_MIN(n, room); k++)
            if (list[k].pid == r->processes[i].pid && list[k].time_us >= newest) {
                newest = list[k].time_us;
                r->processes[i].busy_percent = number_up_to(list[k].sm, 100);
            }
    }
}

static void read_processes(const plim_nvml *n, plim_reading *r, void *h)
{
    uint32_t first = r->n_processes;
    read_list(n, r, h, n->compute, n->found.compute_name, "compute");
    read_list(n, r, h, n->mps, n->found.mps_name, "mps");
    read_list(n, r, h, n->graphics, n->found.graphics_name, "graphics");
    read_samples(n, r, h, first);
}

/* ---- devices ----------------------------------------------------------------------------------- */

static void read_sensors(const plim_nvml *n, plim_live_device *d, void *h)
{
    enum { GRAPHICS = 0, MEMORY = 2, MHZ_MOST = 100000, MW_MOST = 100000000, HOT = 1000 };
    unsigned rates[2] = {UINT32_MAX, UINT32_MAX}, v = UINT32_MAX;
    nvml_temperature t = {.version = VERSION(nvml_temperature, 1)};
    if (n->rates && n->rates(h, rates) == OK) {
        d->busy_percent = number_up_to(rates[0], 100);
        d->memory_busy_percent = number_up_to(rates[1], 100);
    }
    if (n->temperature_v && n->temperature_v(h, &t) == OK)
        d->temperature_c = number_up_to((unsigned)t.degrees, HOT);
    else if (n->temperature && n->temperature(h, 0, &v) == OK)
        d->temperature_c = number_up_to(v, HOT);
    d->power_mw = ask_number(n->power, h, MW_MOST);
    d->power_limit_mw = ask_number(n->power_limit, h, MW_MOST);
    d->fan_percent = ask_number(n->fan, h, 200); /* some run above 100 % */
    if (n->clock && n->clock(h, GRAPHICS, &v) == OK)
        d->clock_mhz = number_up_to(v, MHZ_MOST);
    if (n->clock && n->clock(h, MEMORY, &v) == OK)
        d->memory_clock_mhz = number_up_to(v, MHZ_MOST);
}

static void read_names(const plim_nvml *n, plim_reading *r, plim_live_device *d, void *h)
{
    nvml_pci pci;
    memset(&pci, 0, sizeof pci);
    d->driver = "nvidia";
    d->name = ask_text(r, n->name, h);
    d->uuid = ask_text(r, n->uuid, h);
    if (n->pci && n->pci(h, &pci) == OK) {
        pci.bus_id[sizeof pci.bus_id - 1] = '\0';
        d->pci = plim_arena_str(r->arena, plim_str_of(pci.bus_id)).p;
    }
}

/* The instances of a GPU.  Returns whether there are any: then its processes are theirs. */
static bool read_instances(const plim_nvml *n, plim_reading *r, uint32_t index, void *h)
{
    unsigned now = 0, later = 0, most = 0;
    bool any = false;
    if (!n->mig_mode || !n->mig || n->mig_mode(h, &now, &later) != OK || now != 1)
        return false;
    if (!n->mig_count || n->mig_count(h, &most) != OK)
        return false;
    for (unsigned i = 0; i < PLIM_MIN(most, MIG_MOST); i++) {
        void *instance = NULL;
        unsigned gpu = 0, compute = 0;
        if (n->mig(h, i, &instance) != OK || !instance)
            continue;
        plim_live_device *d = plim_reading_device(r, "nvml");
        if (!d)
            break;
        any = true;
        d->index = index;
        if (n->gpu_instance)
            n->gpu_instance(instance, &gpu);
        if (n->compute_instance)
            n->compute_instance(instance, &compute);
        d->mig = plim_reading_text(r, "%u/%u", gpu, compute);
        read_names(n, r, d, instance);
        read_memory(n, r, d, instance);
        read_processes(n, r, instance);
    }
    return any;
}

static void read_device(const plim_nvml *n, plim_reading *r, unsigned index)
{
    void *h = NULL;
    plim_live_device *d = plim_reading_device(r, "nvml");
    if (!d)
        return;
    d->index = index;
    d->driver = "nvidia";
    int code = n->handle(index, &h);
    if (code != OK || !h) {
        d->trouble = explain_code(code ? code : 999);
        return;
    }
    read_names(n, r, d, h);
    read_memory(n, r, d, h);
    read_sensors(n, d, h);
    uint32_t whole = r->n_devices - 1, first = r->n_processes;
    read_processes(n, r, h);
    uint32_t end = r->n_processes;
    if (!read_instances(n, r, index, h))
        return;
    /* The GPU's own list repeats those of its instances. */
    if (first < end)
        memmove(&r->processes[first], &r->processes[end],
                (r->n_processes - end) * sizeof *r->processes);
    r->n_processes -= end - first;
    r->devices[whole].busy_percent = r->devices[whole].memory_busy_percent = PLIM_LIVE_UNKNOWN;
}

static void read_versions(const plim_nvml *n, plim_reading *r)
{
    char text[TEXT_MOST] = "";
    int cuda = 0;
    if (n->driver && n->driver(text, TEXT_MOST) == OK)
        r->driver = keep_text(r, text);
    if (n->cuda && n->cuda(&cuda) == OK && cuda > 0)
        r->cuda = plim_reading_text(r, "%d.%d", cuda / 1000, cuda % 1000 / 10);
}

/* A list of the driver holds pids of the host.  In a namespace of its own this machine's /proc
 * has others: none of the list is believed to be ours unless all of it can be. */
static void check_namespace(plim_reading *r, uint32_t first)
{
    bool ours = true;
    if (plim_host_pids(r->root) || first == r->n_processes)
        return;
    for (uint32_t i = first; ours && i < r->n_processes; i++)
        ours = plim_process_plausible(r->root, r->processes[i].pid);
    if (ours)
        return;
    for (uint32_t i = first; i < r->n_processes; i++)
        r->processes[i].elsewhere = true;
    plim_reading_note(
        r, "the driver's process numbers are those of the host, which this container "
           "cannot see: run it with --pid=host (docker) or hostPID (Kubernetes)");
}

void plim_nvml_read(const plim_nvml *n, plim_reading *r)
{
    enum { COUNT_MOST = 256 };
    unsigned count = 0;
    uint32_t first = r->n_processes;
    int code = n->count(&count);
    if (code != OK) {
        plim_reading_note(r, explain_code(code));
        return;
    }
    read_versions(n, r);
    for (unsigned i = 0; i < PLIM_MIN(count, COUNT_MOST); i++)
        read_device(n, r, i);
    check_namespace(r, first);
    if (plim_host_is_wsl(r->root))
        plim_reading_note(r, "WSL: Windows does not say how much memory a process has");
}

/* ---- the source ------------------------------------------------------------------------------ */

typedef struct nvml_state {
    void *library;
    plim_nvml nvml;
    bool ready;
} nvml_state;

static void *find_symbol(void *library, const char *name) { return dlsym(library, name); }

static void *open_library(const plim_live_options *o, plim_live_look *look)
{
    const char *set = o->nvml && *o->nvml ? o->nvml : NULL;
    look->where = set ? set : LIBRARY;
    void *library = dlopen(look->where, RTLD_LAZY | RTLD_LOCAL);
    if (!library && !set)
        library = dlopen(LIBRARY_WSL, RTLD_LAZY | RTLD_LOCAL);
    return library;
}

static void open_nvml(void *state, const plim_live_options *o, plim_arena *a,
                      plim_live_look *look)
{
    nvml_state *s = state;
    unsigned count = 0;
    s->library = open_library(o, look);
    if (!s->library) {
        const char *why = dlerror();
        look->found =
            !why || strstr(why, "No such file")
                ? "no such library: there is no NVIDIA driver here, or the container "
                  "was started without --gpus"
                : plim_arena_str(a, plim_str_of(why)).p;
        return;
    }
    const char *missing = plim_nvml_bind(&s->nvml, find_symbol, s->library);
    if (missing) {
        look->found = plim_arena_printf(a, "the library has no '%s'", missing).p;
        return;
    }
    int code = s->nvml.init();
    if (code != OK) {
        look->found = explain_code(code);
        return;
    }
    s->ready = true;
    code = s->nvml.count(&count);
    look->found = code     ? explain_code(code)
                  : !count ? "the driver is loaded and has no GPU"
                           : NULL;
}

static void read_nvml(void *state, plim_reading *r)
{
    const nvml_state *s = state;
    if (s->ready)
        plim_nvml_read(&s->nvml, r);
}

static void close_nvml(void *state)
{
    nvml_state *s = state;
    if (s->ready && s->nvml.shutdown)
        s->nvml.shutdown();
    if (s->library)
        dlclose(s->library);
    *s = (nvml_state){0};
}

const plim_live_source plim_source_nvml = {
    .name = "nvml",
    .state_size = sizeof(nvml_state),
    .open = open_nvml,
    .read = read_nvml,
    .close = close_nvml,
};
