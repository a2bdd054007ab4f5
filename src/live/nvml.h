/* nvml.h -- the functions of NVIDIA's management library that the source uses, with
 * prototypes of our own: each is found by its newest name.
 *
 * src: NVIDIA's NVML API Reference Guide, and nvml.h 13.3.29 for sizes and codes: read, nothing
 * is copied.  */
#ifndef PLIM_NVML_H
#define PLIM_NVML_H

#include "live/live.h"

/* field, arguments, names from the newest to the oldest */
#define PLIM_NVML_MAP(X)                                                                      \
    X(init, (void), "nvmlInit_v2", "nvmlInit", NULL)                                          \
    X(shutdown, (void), "nvmlShutdown", NULL, NULL)                                           \
    X(count, (unsigned *n), "nvmlDeviceGetCount_v2", "nvmlDeviceGetCount", NULL)              \
    X(handle, (unsigned i, void **out), "nvmlDeviceGetHandleByIndex_v2",                      \
      "nvmlDeviceGetHandleByIndex", NULL)                                                     \
    X(driver, (char *out, unsigned n), "nvmlSystemGetDriverVersion", NULL, NULL)              \
    X(cuda, (int *out), "nvmlSystemGetCudaDriverVersion_v2",                                  \
      "nvmlSystemGetCudaDriverVersion", NULL)                                                 \
    X(name, (void *d, char *out, unsigned n), "nvmlDeviceGetName", NULL, NULL)                \
    X(uuid, (void *d, char *out, unsigned n), "nvmlDeviceGetUUID", NULL, NULL)                \
    X(pci, (void *d, void *out), "nvmlDeviceGetPciInfo_v3", "nvmlDeviceGetPciInfo_v2", NULL)  \
    X(memory_v2, (void *d, void *out), "nvmlDeviceGetMemoryInfo_v2", NULL, NULL)              \
    X(memory, (void *d, void *out), "nvmlDeviceGetMemoryInfo", NULL, NULL)                    \
    X(rates, (void *d, unsigned *out), "nvmlDeviceGetUtilizationRates", NULL, NULL)           \
    X(temperature_v, (void *d, void *out), "nvmlDeviceGetTemperatureV", NULL, NULL)           \
    X(temperature, (void *d, int sensor, unsigned *out), "nvmlDeviceGetTemperature", NULL,    \
      NULL)                                                                                   \
    X(power, (void *d, unsigned *out), "nvmlDeviceGetPowerUsage", NULL, NULL)                 \
    X(power_limit, (void *d, unsigned *out), "nvmlDeviceGetEnforcedPowerLimit", NULL, NULL)   \
    X(fan, (void *d, unsigned *out), "nvmlDeviceGetFanSpeed", NULL, NULL)                     \
    X(clock, (void *d, int which, unsigned *out), "nvmlDeviceGetClockInfo", NULL, NULL)       \
    X(mig_mode, (void *d, unsigned *now, unsigned *later), "nvmlDeviceGetMigMode", NULL,      \
      NULL)                                                                                   \
    X(mig_count, (void *d, unsigned *n), "nvmlDeviceGetMaxMigDeviceCount", NULL, NULL)        \
    X(mig, (void *d, unsigned i, void **out), "nvmlDeviceGetMigDeviceHandleByIndex", NULL,    \
      NULL)                                                                                   \
    X(gpu_instance, (void *d, unsigned *out), "nvmlDeviceGetGpuInstanceId", NULL, NULL)       \
    X(compute_instance, (void *d, unsigned *out), "nvmlDeviceGetComputeInstanceId", NULL,     \
      NULL)                                                                                   \
    X(compute, (void *d, unsigned *n, void *out), "nvmlDeviceGetComputeRunningProcesses_v3",  \
      "nvmlDeviceGetComputeRunningProcesses_v2", "nvmlDeviceGetComputeRunningProcesses")      \
    X(graphics, (void *d, unsigned *n, void *out),                                            \
      "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2", \
      "nvmlDeviceGetGraphicsRunningProcesses")                                                \
    X(mps, (void *d, unsigned *n, void *out), "nvmlDeviceGetMPSComputeRunningProcesses_v3",   \
      "nvmlDeviceGetMPSComputeRunningProcesses_v2",                                           \
      "nvmlDeviceGetMPSComputeRunningProcesses")                                              \
    X(samples, (void *d, void *out, unsigned *n, unsigned long long since),                   \
      "nvmlDeviceGetProcessUtilization", NULL, NULL)

typedef struct plim_nvml {
#define X(field, args, newest, older, oldest) int(*field) args;
    PLIM_NVML_MAP(X)
#undef X
#define X(field, args, newest, older, oldest) int field##_name;
    struct {
        PLIM_NVML_MAP(X)
    } found; /* by which name: 1 the newest, 0: by none */
#undef X
    bool wide; /* an entry of a list of processes is 32 bytes, as some drivers R535 have it */
} plim_nvml;

/* Looks the functions up.  NULL, or the name of one without which nothing can be read. */
const char *plim_nvml_bind(plim_nvml *nvml, void *(*find)(void *ud, const char *name),
                           void *ud);
/* Reads all devices.  Nothing that the library answers is trusted. */
void plim_nvml_read(const plim_nvml *nvml, plim_reading *r);

#endif
