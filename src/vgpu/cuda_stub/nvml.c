/* nvml.c -- libnvidia-ml.so.1: one device, its name and memory. */
#include "stub.h"

#include <stdio.h>
#include <unistd.h>

enum { OK = 0, INVALID = 2, NOT_SUPPORTED = 3 };

#define NVML(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

typedef struct process {
    unsigned pid;
    uint64_t used;
} process;

static void *const only = (void *)0x100;

PLIM_STUB(const char *, nvmlErrorString, int code)
{
    return code ? "error of a pretend GPU" : "success";
}

NVML(nvmlDeviceGetCount_v2, unsigned *n)
{
    *n = plim_stub_card_get() != NULL;
    return OK;
}

NVML(nvmlDeviceGetHandleByIndex_v2, unsigned index, void **device)
{
    *device = only;
    return index || !plim_stub_card_get() ? INVALID : OK;
}

NVML(nvmlDeviceGetHandleByPciBusId_v2, const char *id, void **device)
{
    (void)id;
    return nvmlDeviceGetHandleByIndex_v2(0, device);
}

NVML(nvmlDeviceGetHandleByUUID, const char *id, void **device)
{
    (void)id;
    return nvmlDeviceGetHandleByIndex_v2(0, device);
}

NVML(nvmlDeviceGetName, void *device, char *name, unsigned n)
{
    (void)device;
    snprintf(name, n, "%s", plim_stub_card_get()->name);
    return OK;
}

NVML(nvmlDeviceGetMemoryInfo, void *device, uint64_t out[3])
{
    (void)device;
    plim_stub_mem_info(&out[1], &out[0]);
    out[2] = out[0] - out[1];
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
    (void)device;
    if (!out || *n < 1)
        return INVALID;
    plim_stub_mem_info(&free_bytes, &total);
    out[0] = (process){.pid = (unsigned)getpid(), .used = total - free_bytes};
    *n = 1;
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
