/* nvml.c -- libnvidia-ml.so.1: the devices, their names, memory and processes.
 *
 * A process that uses a pretend card sees itself alone, as it is simulated.  One that only
 * looks, as gpustat does, sees all that use one: ledger.c.
 *
 * Nothing runs on it, so its utilization is 0.  What nobody knows (temperature, power, fan,
 * clocks) is "not supported", as on cards that lack the sensor. */
#include "stub.h"

#include <stdio.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3, TOO_SMALL = 7, USERS_MOST = 256 };

#define UUID "GPU-00000000-0000-0000-0000-%012u" /* as torch_c.py has it */
#define UUID_READ "GPU-00000000-0000-0000-0000-%u"
#define UUID_BYTES 41

#define NVML(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

typedef struct process {
    unsigned pid;
    uint64_t used;
} process;

typedef struct process_v3 {
    unsigned pid;
    uint64_t used;
    unsigned gpu_instance, compute_instance; /* of a card that is shared out: none */
} process_v3;

typedef struct pci_info {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem;
    char id[32];
} pci_info;

/* A device is its number, and 1, so that none is NULL. */
static unsigned index_of(const void *device) { return (unsigned)((uintptr_t)device - 1); }

/* What there is to see now: of the own card, or of others'. */
typedef struct sight {
    plim_stub_card card;
    unsigned cards, n;
    plim_stub_user users[USERS_MOST];
} sight;

static void look_around(sight *s)
{
    const plim_stub_card *own = plim_stub_card_get();
    s->cards = plim_stub_cards();
    s->n = 0;
    if (!own) {
        s->n = plim_stub_users(s->users, USERS_MOST);
        for (unsigned i = 0; i < s->n; i++)
            if (s->users[i].cards > s->cards)
                s->cards = s->users[i].cards;
        s->card = s->n ? s->users[0].card : (plim_stub_card){.name = ""};
        return;
    }
    s->card = *own;
    s->n = 1;
    s->users[0] = (plim_stub_user){.pid = (unsigned)getpid(), .cards = s->cards};
    for (unsigned i = 0; i < s->cards && i < PLIM_STUB_CARDS; i++) {
        uint64_t free_bytes, total;
        plim_stub_card_memory(i, &free_bytes, &total);
        s->users[0].used[i] = total - free_bytes;
    }
}

/* Those that have something on the card. */
static unsigned list_users(const sight *s, unsigned card, process *out, unsigned max)
{
    unsigned n = 0;
    for (unsigned i = 0; i < s->n; i++)
        if (card < s->users[i].cards && s->users[i].used[card]) {
            if (n < max)
                out[n] = (process){.pid = s->users[i].pid, .used = s->users[i].used[card]};
            n++;
        }
    return n;
}

PLIM_STUB(const char *, nvmlErrorString, int code)
{
    return !code                   ? "success"
           : code == NOT_SUPPORTED ? "Not Supported"
                                   : "error of a pretend GPU";
}

NVML(nvmlDeviceGetCount_v2, unsigned *n)
{
    sight s;
    look_around(&s);
    *n = s.cards;
    return OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device)
{
    unsigned n;
    nvmlDeviceGetCount_v2(&n);
    *device = (void *)((uintptr_t)index + 1);
    return index < n ? OK : INVALID;
}

NVML(nvmlDeviceGetIndex, void *device, unsigned *index)
{
    *index = index_of(device);
    return OK;
}

NVML(nvmlDeviceGetMinorNumber, void *device, unsigned *number)
{
    return nvmlDeviceGetIndex(device, number);
}

NVML(nvmlDeviceGetUUID, void *device, char *uuid, unsigned n)
{
    if (n < UUID_BYTES)
        return TOO_SMALL;
    snprintf(uuid, n, UUID, index_of(device));
    return OK;
}

/* The first card is on bus 1, as CUDA has it: core.c, cudart.c. */
NVML(nvmlDeviceGetPciInfo_v3, void *device, pci_info *out)
{
    *out = (pci_info){.bus = index_of(device) + 1};
    snprintf(out->legacy, sizeof out->legacy, "0000:%02X:00.0", out->bus & 255);
    snprintf(out->id, sizeof out->id, "00000000:%02X:00.0", out->bus & 255);
    return OK;
}

NVML(nvmlDeviceGetMigMode, void *device, unsigned *now, unsigned *pending)
{
    (void)device;
    *now = *pending = 0;
    return OK;
}

/* No fabric joins the cards: what the caller's struct says before the call holds. */
NVML(nvmlDeviceGetGpuFabricInfoV, void *device, void *info)
{
    (void)device;
    (void)info;
    return OK;
}

NVML(nvmlDeviceGetUtilizationRates, void *device, unsigned out[2])
{
    (void)device;
    out[0] = out[1] = 0;
    return OK;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *id, void **device)
{
    unsigned domain, bus;
    return sscanf(id, "%x:%x:", &domain, &bus) == 2 && bus
               ? nvmlDeviceGetHandleByIndex_v2(bus - 1, device)
               : INVALID;
}

NVML(nvmlDeviceGetHandleByUUID, const char *id, void **device)
{
    unsigned index;
    return sscanf(id, UUID_READ, &index) == 1 ? nvmlDeviceGetHandleByIndex_v2(index, device)
                                              : INVALID;
}

NVML(nvmlDeviceGetName, void *device, char *name, unsigned n)
{
    sight s;
    (void)device;
    look_around(&s);
    snprintf(name, n, "%s", s.card.name);
    return OK;
}

/* out: total, free, used */
NVML(nvmlDeviceGetMemoryInfo, void *device, uint64_t out[3])
{
    sight s;
    process list[USERS_MOST];
    look_around(&s);
    unsigned n = list_users(&s, index_of(device), list, USERS_MOST);
    out[0] = s.card.total;
    out[2] = 0;
    for (unsigned i = 0; i < n; i++)
        out[2] += list[i].used;
    if (out[2] > out[0]) /* each is simulated as if alone */
        out[2] = out[0];
    out[1] = out[0] - out[2];
    return OK;
}

/* out: version and size of the struct, then total, reserved, free, used */
NVML(nvmlDeviceGetMemoryInfo_v2, void *device, uint64_t out[5])
{
    uint64_t known[3];
    nvmlDeviceGetMemoryInfo(device, known);
    out[1] = known[0];
    out[2] = 0;
    out[3] = known[1];
    out[4] = known[2];
    return OK;
}

NVML(nvmlDeviceGetCudaComputeCapability, void *device, int *major, int *minor)
{
    sight s;
    (void)device;
    look_around(&s);
    *major = s.card.major;
    *minor = s.card.minor;
    return OK;
}

static int answer_count(unsigned *n, unsigned have)
{
    unsigned room = *n;
    *n = have;
    return have > room ? TOO_SMALL : OK;
}

/* This process alone, if it uses a card: PyTorch puts it into the text of an out-of-memory
 * error. */
NVML(nvmlDeviceGetComputeRunningProcesses, void *device, unsigned *n, process *out)
{
    sight s;
    look_around(&s);
    return answer_count(n, list_users(&s, index_of(device), out, out ? *n : 0));
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3, void *device, unsigned *n, process_v3 *out)
{
    sight s;
    process list[USERS_MOST];
    look_around(&s);
    unsigned have = list_users(&s, index_of(device), list, USERS_MOST);
    for (unsigned i = 0; out && i < have && i < *n; i++)
        out[i] = (process_v3){list[i].pid, list[i].used, UINT32_MAX, UINT32_MAX};
    return answer_count(n, have);
}

NVML(nvmlDeviceGetComputeRunningProcesses_v2, void *device, unsigned *n, process_v3 *out)
{
    return nvmlDeviceGetComputeRunningProcesses_v3(device, n, out);
}

NVML(nvmlDeviceGetGraphicsRunningProcesses_v3, void *device, unsigned *n, process_v3 *out)
{
    (void)device;
    (void)out;
    *n = 0;
    return OK;
}

NVML(nvmlSystemGetDriverVersion, char *version, unsigned n)
{
    snprintf(version, n, "0.0");
    return OK;
}

NVML(nvmlSystemGetCudaDriverVersion_v2, int *version)
{
    *version = (int)plim_stub_setting("PLIMSOLL_STUB_CUDA_VERSION", 13020);
    return OK;
}
