/* nvml.c -- libnvidia-ml.so.1: the devices, their names, memory and process.
 *
 * Nothing runs on it, so its utilization is 0.  What nobody knows (temperature, power, fan,
 * clocks) is "not supported", as on cards that lack the sensor. */
#include "stub.h"

#include <stdio.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, TOO_SMALL = 7 };

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

PLIM_STUB(const char *, nvmlErrorString, int code)
{
    return !code ? "success" : code == 3 ? "Not Supported" : "error of a pretend GPU";
}

NVML(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = plim_stub_cards();
    return OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device)
{
    *device = (void *)((uintptr_t)index + 1);
    return index < plim_stub_cards() ? OK : INVALID;
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
    (void)device;
    snprintf(name, n, "%s", plim_stub_card_get()->name);
    return OK;
}

NVML(nvmlDeviceGetMemoryInfo, void *device, uint64_t out[3])
{
    plim_stub_card_memory(index_of(device), &out[1], &out[0]);
    out[2] = out[0] - out[1];
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
    (void)device;
    *major = plim_stub_card_get()->major;
    *minor = plim_stub_card_get()->minor;
    return OK;
}

/* This process alone: PyTorch puts it into the text of an out-of-memory error. */
NVML(nvmlDeviceGetComputeRunningProcesses, void *device, unsigned *n, process *out)
{
    uint64_t free_bytes, total;
    if (!out || *n < 1)
        return INVALID;
    plim_stub_card_memory(index_of(device), &free_bytes, &total);
    out[0] = (process){.pid = (unsigned)getpid(), .used = total - free_bytes};
    *n = 1;
    return OK;
}

NVML(nvmlDeviceGetComputeRunningProcesses_v3, void *device, unsigned *n, process_v3 *out)
{
    uint64_t memory[3];
    if (!out || *n < 1) {
        *n = 1;
        return TOO_SMALL;
    }
    nvmlDeviceGetMemoryInfo(device, memory);
    out[0] = (process_v3){(unsigned)getpid(), memory[2], UINT32_MAX, UINT32_MAX};
    *n = 1;
    return OK;
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
