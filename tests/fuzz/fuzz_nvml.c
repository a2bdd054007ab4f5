/* fuzz_nvml.c -- an NVML that lies: each answer, its code, sizes and counts come from the
 * input.  Whatever it says, the reading can be printed in every form, and an impossible number
 * is not in it. */
#include "live/nvml.h"
#include "live_forms.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static struct {
    const uint8_t *p;
    size_t n, at;
    uint32_t lacking; /* a bit for each few functions that are not there */
} said;

static uint8_t next_byte(void) { return said.at < said.n ? said.p[said.at++] : 0; }

static void fill_out(void *out, size_t n)
{
    for (size_t i = 0; i < n; i++)
        ((uint8_t *)out)[i] = next_byte();
}

/* Mostly success: else little would be read. */
static int next_code(void)
{
    static const int codes[] = {1, 2, 3, 4, 7, 7, 9, 13, 15, 16, 17, 18, 25, 999, -1, 123456};
    uint8_t b = next_byte();
    return b < 240 ? 0 : codes[b - 240];
}

static int answer_bytes(void *out, size_t n)
{
    fill_out(out, n);
    return next_code();
}

/* clang-format off */
static int say_init(void) { return next_code(); }
static int say_count(unsigned *n) { *n = next_byte() < 250 ? next_byte() % 8 : UINT32_MAX; return next_code(); }
static int say_handle(unsigned i, void **out) { *out = next_byte() < 250 ? (void *)(uintptr_t)(i + 1) : NULL; return next_code(); }
static int say_text(char *out, unsigned n) { return answer_bytes(out, n); }
static int say_int(int *out) { return answer_bytes(out, sizeof *out); }
static int say_device_text(void *d, char *out, unsigned n) { (void)d; return answer_bytes(out, n); }
static int say_pci(void *d, void *out) { (void)d; return answer_bytes(out, 68); }
static int say_memory_v2(void *d, void *out) { (void)d; return answer_bytes(out, 40); }
static int say_memory(void *d, void *out) { (void)d; return answer_bytes(out, 24); }
static int say_rates(void *d, unsigned *out) { (void)d; return answer_bytes(out, 8); }
static int say_temperature_v(void *d, void *out) { (void)d; return answer_bytes(out, 12); }
static int say_chosen(void *d, int which, unsigned *out) { (void)d; (void)which; return answer_bytes(out, 4); }
static int say_number(void *d, unsigned *out) { (void)d; return answer_bytes(out, 4); }
static int say_two(void *d, unsigned *a, unsigned *b) { (void)d; *b = 0; *a = next_byte() & 1; return next_code(); }
static int say_mig(void *d, unsigned i, void **out) { (void)d; return say_handle(i, out); }
/* clang-format on */

static int answer_list(unsigned *n, void *out, size_t size)
{
    unsigned room = *n, have = next_byte();
    if (out)
        fill_out(out, PLIM_MIN(room, have) * size);
    *n = have < 250 ? have : have == 255 ? UINT32_MAX : have * 1000;
    return !out && have ? 7 : next_code();
}

static int say_list(void *d, unsigned *n, void *out)
{
    (void)d;
    return answer_list(n, out, 24);
}

static int say_samples(void *d, void *out, unsigned *n, unsigned long long since)
{
    (void)d;
    (void)since;
    return answer_list(n, out, 32);
}

#define ROW(name, fn)                                                                         \
    {                                                                                         \
        name, (void (*)(void))(fn)                                                            \
    }
static const struct {
    const char *begins;
    void (*fn)(void);
} rows[] = {
    ROW("nvmlInit", say_init),
    ROW("nvmlShutdown", say_init),
    ROW("nvmlDeviceGetCount", say_count),
    ROW("nvmlDeviceGetHandleByIndex", say_handle),
    ROW("nvmlSystemGetDriverVersion", say_text),
    ROW("nvmlSystemGetCuda", say_int),
    ROW("nvmlDeviceGetName", say_device_text),
    ROW("nvmlDeviceGetUUID", say_device_text),
    ROW("nvmlDeviceGetPciInfo", say_pci),
    ROW("nvmlDeviceGetMemoryInfo_v2", say_memory_v2),
    ROW("nvmlDeviceGetMemoryInfo", say_memory),
    ROW("nvmlDeviceGetUtilizationRates", say_rates),
    ROW("nvmlDeviceGetTemperatureV", say_temperature_v),
    ROW("nvmlDeviceGetTemperature", say_chosen),
    ROW("nvmlDeviceGetClockInfo", say_chosen),
    ROW("nvmlDeviceGetMigMode", say_two),
    ROW("nvmlDeviceGetMigDeviceHandle", say_mig),
    ROW("nvmlDeviceGetComputeRunning", say_list),
    ROW("nvmlDeviceGetGraphicsRunning", say_list),
    ROW("nvmlDeviceGetMPSComputeRunning", say_list),
    ROW("nvmlDeviceGetProcessUtilization", say_samples),
    ROW("nvmlDeviceGetConfCompute", say_init),
    ROW("nvmlDeviceGetRunningProcessDetailList", say_init),
    ROW("nvmlDevice", say_number), /* the others: a number of a device */
};

static void *find_row(void *ud, const char *name)
{
    (void)ud;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (!strncmp(name, rows[i].begins, strlen(rows[i].begins))) {
            void *out = NULL;
            if (i > 3 && said.lacking >> i & 1)
                return NULL;
            memcpy(&out, &rows[i].fn, sizeof out);
            return out;
        }
    return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = PLIM_ARENA_INIT, past_arena = PLIM_ARENA_INIT;
    plim_nvml nvml;
    plim_reading r = {.arena = &a, .root = "/nonexistent"};
    said.p = p;
    said.n = n;
    said.at = 0;
    fill_out(&said.lacking, sizeof said.lacking);
    if (!plim_nvml_bind(&nvml, find_row, NULL))
        plim_nvml_read(&nvml, &r);
    for (uint32_t i = 0; i < r.n_devices; i++) {
        const plim_live_device *d = &r.devices[i];
        plim_assert(d->total == PLIM_LIVE_UNKNOWN || d->used <= d->total);
        (void)d;
        plim_assert(d->busy_percent == PLIM_LIVE_UNKNOWN || d->busy_percent <= 100);
    }
    for (uint32_t i = 0; i < r.n_processes; i++) {
        plim_assert(r.processes[i].device < r.n_devices);
        plim_assert(r.processes[i].pid && r.processes[i].pid <= PLIM_LIVE_PID_MOST);
    }
    uint64_t *ticks = PLIM_NEW_N(&a, uint64_t, r.n_processes + 1u);
    plim_past *past = plim_past_new(&past_arena);
    for (int i = 0; past && ticks && i < 2; i++)
        plim_past_add(past, &r, ticks, i * 1000);
    plim_reading_assign(&r);
    plim_live_look look = {.source = "nvml", .where = "here"};
    plim_live_view v = {.devices = r.devices,
                        .n_devices = r.n_devices,
                        .processes = r.processes,
                        .n_processes = r.n_processes,
                        .looked = &look,
                        .n_looked = 1,
                        .notes = r.notes,
                        .n_notes = r.n_notes,
                        .nvidia_driver = r.driver,
                        .cuda = r.cuda};
    print_forms(&v);
    plim_arena_free(&a);
    plim_arena_free(&past_arena);
    return 0;
}
