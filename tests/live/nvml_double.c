/* nvml_double.c -- a libnvidia-ml that says what a scenario file says (PLIMSOLL_SCENARIO).
 *
 * It is compiled once for each generation of drivers, DRIVER being 470, 535, 550 or 580: that
 * decides which names it exports, and how wide an entry of a list of processes is.
 *
 * A scenario has a line for each fact; '#' begins a comment.  Lines before the first `device`
 * are about the machine:
 *
 *     driver 550.54.15
 *     cuda 12040
 *     init 18                      the call fails with this code: also `count`
 *     device NAME                  the next lines are about it
 *       uuid, pci, total, used, free, reserved, busy, memory_busy, temperature, power, limit,
 *       fan, clock, memory_clock   values
 *       lost 15                    getting a handle fails with this code
 *       fail memory 3              a call fails: memory, name, uuid, pci, rates, temperature,
 *                                  power, limit, fan, clock, processes
 *       process PID BYTES [busy [more]]   BYTES may be N/A, and grow by `more` each time it is asked
 *                                  for; `graphics` for the other list
 *       grow BYTES                 by which `used` grows each time it is asked for
 *     mig GPU COMPUTE              an instance of the last device that is not one
 */
#include <inttypes.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

enum { OK = 0, INVALID = 2, UNSUPPORTED = 3, NOT_FOUND = 6, TOO_SMALL = 7, BAD_VERSION = 25 };
enum { DEVICES = 32, PROCESSES = 64, FACTS = 32, NAME = 96 };

typedef struct fact {
    char name[24];
    uint64_t value;
} fact;

typedef struct process {
    uint32_t pid;
    uint64_t bytes;
    uint32_t busy;
    uint64_t more;
    bool graphics;
} process;

typedef struct device {
    char name[NAME], uuid[NAME], pci[NAME];
    fact facts[FACTS], fails[FACTS];
    int n_facts, n_fails, n_processes;
    process processes[PROCESSES];
    int mig_of; /* -1: a whole GPU */
    uint32_t gpu, compute;
} device;

static device devices[DEVICES];
static int n_devices;
static device machine; /* facts before the first device */
static char driver[NAME];

static device *last_gpu(void)
{
    int i = n_devices - 1;
    while (i > 0 && devices[i].mig_of >= 0)
        i--;
    return &devices[i];
}

static void read_line(char *line)
{
    char word[NAME] = "", rest[2 * NAME] = "", more[NAME] = "";
    device *d = n_devices ? &devices[n_devices - 1] : &machine;
    line[strcspn(line, "#\n")] = '\0';
    int n = sscanf(line, "%95s %191[^\n]", word, rest);
    if (n < 1)
        return;
    if (!strcmp(word, "device") || !strcmp(word, "mig")) {
        bool mig = *word == 'm';
        long of = mig ? last_gpu() - devices : -1;
        d = &devices[n_devices++];
        d->mig_of = (int)of;
        if (mig)
            sscanf(rest, "%u %u", &d->gpu, &d->compute);
        else
            snprintf(d->name, sizeof d->name, "%.95s", rest);
    } else if (!strcmp(word, "driver"))
        snprintf(driver, sizeof driver, "%.95s", rest);
    else if (!strcmp(word, "uuid"))
        snprintf(d->uuid, sizeof d->uuid, "%.95s", rest);
    else if (!strcmp(word, "pci"))
        snprintf(d->pci, sizeof d->pci, "%.95s", rest);
    else if (!strcmp(word, "name"))
        snprintf(d->name, sizeof d->name, "%.95s", rest);
    else if (!strcmp(word, "process") || !strcmp(word, "graphics")) {
        process *p = &d->processes[d->n_processes++];
        *p = (process){.bytes = UINT64_MAX, .busy = UINT32_MAX, .graphics = *word == 'g'};
        sscanf(rest, "%u %95s %u %" SCNu64, &p->pid, more, &p->busy, &p->more);
        if (strcmp(more, "N/A") != 0)
            p->bytes = strtoull(more, NULL, 10);
    } else {
        bool fail = !strcmp(word, "fail");
        fact *f = fail ? &d->fails[d->n_fails++] : &d->facts[d->n_facts++];
        if (fail)
            sscanf(rest, "%23s %95s", f->name, more);
        else
            snprintf(f->name, sizeof f->name, "%.23s", word);
        f->value = strtoull(fail ? more : rest, NULL, 10);
    }
}

static void read_scenario(void)
{
    char line[512];
    const char *path = getenv("PLIMSOLL_SCENARIO");
    FILE *f = path ? fopen(path, "r") : NULL;
    memset(devices, 0, sizeof devices);
    memset(&machine, 0, sizeof machine);
    n_devices = 0;
    while (f && n_devices < DEVICES && fgets(line, sizeof line, f))
        read_line(line);
    if (f)
        fclose(f);
}

static const fact *find(const fact *list, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (!strcmp(list[i].name, name))
            return &list[i];
    return NULL;
}

/* The code of a call about a device: what `fail` says, else whether the fact is there. */
static int answer(const device *d, const char *call, const char *name, uint64_t *value)
{
    const fact *fail = find(d->fails, d->n_fails, call);
    const fact *f = find(d->facts, d->n_facts, name);
    if (fail)
        return (int)fail->value;
    if (!f)
        return UNSUPPORTED;
    *value = f->value;
    return OK;
}

static int answer_number(void *h, const char *call, const char *name, unsigned *out)
{
    uint64_t v = 0;
    int code = answer(h, call, name, &v);
    if (!code)
        *out = (unsigned)v;
    return code;
}

static int machine_code(const char *name)
{
    const fact *f = find(machine.facts, machine.n_facts, name);
    return f ? (int)f->value : OK;
}

/* ---- the machine -------------------------------------------------------------- */

EXPORT int nvmlInit_v2(void)
{
    read_scenario();
    return machine_code("init");
}

EXPORT int nvmlShutdown(void) { return OK; }

EXPORT int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 0;
    for (int i = 0; i < n_devices; i++)
        *n += devices[i].mig_of < 0;
    return machine_code("count");
}

EXPORT int nvmlSystemGetDriverVersion(char *out, unsigned n)
{
    snprintf(out, n, "%s", driver);
    return *driver ? OK : UNSUPPORTED;
}

EXPORT int nvmlSystemGetCudaDriverVersion_v2(int *out)
{
    const fact *f = find(machine.facts, machine.n_facts, "cuda");
    *out = f ? (int)f->value : 0;
    return f ? OK : UNSUPPORTED;
}

EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **out)
{
    for (int i = 0; i < n_devices; i++) {
        const fact *lost = find(devices[i].facts, devices[i].n_facts, "lost");
        if (devices[i].mig_of >= 0 || index--)
            continue;
        *out = &devices[i];
        return lost ? (int)lost->value : OK;
    }
    return INVALID;
}

/* ---- a device ------------------------------------------------------------------ */

static int answer_text(void *h, const char *call, const char *text, char *out, unsigned n)
{
    const device *d = h;
    const fact *fail = find(d->fails, d->n_fails, call);
    if (fail || !*text)
        return fail ? (int)fail->value : UNSUPPORTED;
    if (strlen(text) >= n)
        return TOO_SMALL;
    snprintf(out, n, "%s", text);
    return OK;
}

EXPORT int nvmlDeviceGetName(void *h, char *out, unsigned n)
{
    return answer_text(h, "name", ((device *)h)->name, out, n);
}

EXPORT int nvmlDeviceGetUUID(void *h, char *out, unsigned n)
{
    return answer_text(h, "uuid", ((device *)h)->uuid, out, n);
}

EXPORT int nvmlDeviceGetPciInfo_v3(void *h, void *out)
{
    char *info = out; /* 68 bytes; the address of new form is at 36 */
    memset(info, 0, 68);
    return answer_text(h, "pci", ((device *)h)->pci, info + 36, 32);
}

EXPORT int nvmlDeviceGetMemoryInfo(void *h, uint64_t *out)
{
    uint64_t reserved = 0;
    int code = answer(h, "memory", "total", &out[0]);
    if (code || (code = answer(h, "memory", "used", &out[2])))
        return code;
    answer(h, "memory", "reserved", &reserved);
    fact *now = (fact *)find(((device *)h)->facts, ((device *)h)->n_facts, "used");
    const fact *grow = find(((device *)h)->facts, ((device *)h)->n_facts, "grow");
    if (grow)
        now->value += grow->value;
    out[2] += reserved; /* the first version counts it as used */
    if (answer(h, "memory", "free", &out[1]))
        out[1] = out[0] - out[2];
    return OK;
}

#if DRIVER >= 510
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *h, uint64_t *out)
{
    uint64_t first[3];
    uint32_t version;
    memcpy(&version, out, sizeof version);
    if (version != 0x02000028)
        return BAD_VERSION;
    int code = nvmlDeviceGetMemoryInfo(h, first);
    if (code)
        return code;
    out[1] = first[0];
    out[2] = 0;
    answer(h, "memory", "reserved", &out[2]);
    out[3] = first[1];
    return answer(h, "memory", "used", &out[4]);
}
#endif

EXPORT int nvmlDeviceGetUtilizationRates(void *h, unsigned *out)
{
    int code = answer_number(h, "rates", "busy", &out[0]);
    out[1] = UINT32_MAX;
    if (!code)
        answer_number(h, "rates", "memory_busy", &out[1]);
    return code;
}

#if DRIVER >= 580
EXPORT int nvmlDeviceGetTemperatureV(void *h, void *inout)
{
    uint32_t t[3];
    memcpy(t, inout, sizeof t);
    if (t[0] != 0x0100000c)
        return BAD_VERSION;
    int code = answer_number(h, "temperature", "temperature", &t[2]);
    memcpy(inout, t, sizeof t);
    return code;
}
#else
EXPORT int nvmlDeviceGetTemperature(void *h, int sensor, unsigned *out)
{
    return sensor ? INVALID : answer_number(h, "temperature", "temperature", out);
}
#endif

#define NUMBER(function, name)                                                                \
    EXPORT int function(void *h, unsigned *out) { return answer_number(h, name, name, out); }
NUMBER(nvmlDeviceGetPowerUsage, "power")
NUMBER(nvmlDeviceGetEnforcedPowerLimit, "limit")
NUMBER(nvmlDeviceGetFanSpeed, "fan")

EXPORT int nvmlDeviceGetClockInfo(void *h, int which, unsigned *out)
{
    return answer_number(h, "clock",
                         which == 0   ? "clock"
                         : which == 2 ? "memory_clock"
                                      : "-",
                         out);
}

/* ---- instances ------------------------------------------------------------------- */

static device *instance(void *h, unsigned index)
{
    long of = (device *)h - devices;
    for (int i = 0; i < n_devices; i++)
        if (devices[i].mig_of == of && !index--)
            return &devices[i];
    return NULL;
}

EXPORT int nvmlDeviceGetMigMode(void *h, unsigned *now, unsigned *later)
{
    *now = *later = instance(h, 0) != NULL;
    return OK;
}

EXPORT int nvmlDeviceGetMaxMigDeviceCount(void *h, unsigned *n)
{
    (void)h;
    *n = 7;
    return OK;
}

EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void *h, unsigned index, void **out)
{
    *out = instance(h, index);
    return *out ? OK : NOT_FOUND;
}

EXPORT int nvmlDeviceGetGpuInstanceId(void *h, unsigned *out)
{
    *out = ((device *)h)->gpu;
    return OK;
}

EXPORT int nvmlDeviceGetComputeInstanceId(void *h, unsigned *out)
{
    *out = ((device *)h)->compute;
    return OK;
}

/* ---- processes ------------------------------------------------------------------- */

/* stride 16: without instances; 24: with; 32: with protected memory */
static int list_processes(void *h, unsigned *n, uint8_t *out, bool graphics, size_t stride)
{
    device *d = h;
    const fact *fail = find(d->fails, d->n_fails, "processes");
    unsigned have = 0, room = *n;
    if (fail)
        return (int)fail->value;
    for (int i = 0; i < d->n_processes; i++) {
        process *p = &d->processes[i];
        if (p->graphics != graphics)
            continue;
        if (out && have < room) {
            uint32_t ids[2] = {UINT32_MAX, UINT32_MAX};
            memset(out + have * stride, 0, stride);
            memcpy(out + have * stride, &p->pid, 4);
            memcpy(out + have * stride + 8, &p->bytes, 8);
            if (stride > 16)
                memcpy(out + have * stride + 16, ids, 8);
            p->bytes += p->more;
        }
        have++;
    }
    *n = have;
    return have > room ? TOO_SMALL : OK;
}

#define LISTS(suffix, stride)                                                                 \
    EXPORT int nvmlDeviceGetComputeRunningProcesses##suffix(void *h, unsigned *n, void *out)  \
    {                                                                                         \
        return list_processes(h, n, out, false, stride);                                      \
    }                                                                                         \
    EXPORT int nvmlDeviceGetGraphicsRunningProcesses##suffix(void *h, unsigned *n, void *out) \
    {                                                                                         \
        return list_processes(h, n, out, true, stride);                                       \
    }
LISTS(, 16)
LISTS(_v2, 24)
#if DRIVER == 535
LISTS(_v3, 32)
#elif DRIVER >= 510
LISTS(_v3, 24)
#endif

#if DRIVER >= 535
EXPORT int nvmlDeviceGetConfComputeMemSizeInfo(void) { return UNSUPPORTED; }
#endif
#if DRIVER >= 550
EXPORT int nvmlDeviceGetRunningProcessDetailList(void) { return UNSUPPORTED; }
#endif

EXPORT int nvmlDeviceGetProcessUtilization(void *h, void *out, unsigned *n,
                                           unsigned long long since)
{
    const device *d = h;
    unsigned have = 0;
    (void)since;
    for (int i = 0; i < d->n_processes; i++)
        have += d->processes[i].busy != UINT32_MAX;
    if (!out || *n < have) {
        *n = have;
        return have ? TOO_SMALL : NOT_FOUND;
    }
    *n = have;
    have = 0;
    for (int i = 0; i < d->n_processes; i++) {
        uint32_t sample[8] = {d->processes[i].pid, 0, 1000, 0, d->processes[i].busy, 0, 0, 0};
        if (d->processes[i].busy != UINT32_MAX)
            memcpy((char *)out + 32 * have++, sample, sizeof sample);
    }
    return OK;
}
