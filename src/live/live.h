/* live.h -- what the files of this room share: a reading, the sources that fill it, and what
 * /proc says of processes.
 *
 * A source finds the devices of one interface (NVML, DRM).  It is one file that ends with its
 * descriptor, and one line in sources.c.  It trusts nothing that it reads: a number that is
 * impossible becomes unknown, with a sentence that says why. */
#ifndef PLIM_LIVE_PRIVATE_H
#define PLIM_LIVE_PRIVATE_H

#include <math.h>

#include "base/fmt.h"
#include "plimsoll_live.h"

/* ---- a reading: what one tick found, in an arena that the next tick resets ------------- */

typedef struct plim_reading {
    plim_arena *arena;
    const char *root;
    plim_live_device *devices;
    uint32_t n_devices, cap_devices;
    plim_live_process *processes;
    uint32_t n_processes, cap_processes;
    const char **notes;
    uint32_t n_notes, cap_notes;
    const char *driver, *cuda;
    bool full; /* out of memory: what came later is dropped */
} plim_reading;

enum {
    PLIM_LIVE_DEVICES_MOST = 1024,
    PLIM_LIVE_PROCESSES_MOST = 65536,
};
/* A pid that Linux can give: PID_MAX_LIMIT of include/linux/threads.h. */
#define PLIM_LIVE_PID_MOST (UINT64_C(1) << 22)

/* A device, or a process of the device added last; nothing is known of it yet;
 * NULL: no more fit. */
plim_live_device *plim_reading_device(plim_reading *r, const char *source);
plim_live_process *plim_reading_process(plim_reading *r, uint64_t pid, const char *kind);
/* Gives each device its processes, once these are in the order of the devices. */
void plim_reading_assign(plim_reading *r);
/* A process of which nothing is known. */
#define PLIM_LIVE_NOBODY                                                                      \
    (plim_live_process)                                                                       \
    {                                                                                         \
        .pid = PLIM_LIVE_UNKNOWN, .memory = PLIM_LIVE_UNKNOWN, .peak = PLIM_LIVE_UNKNOWN,     \
        .predicted = PLIM_LIVE_UNKNOWN, .growth_per_s = (double)NAN,                          \
        .full_in_s = (double)NAN, .busy_percent = PLIM_LIVE_UNKNOWN,                          \
        .cpu_percent = (double)NAN, .host_memory = PLIM_LIVE_UNKNOWN                          \
    }
/* Text in the arena; NULL: no memory. */
const char *plim_reading_text(plim_reading *r, const char *fmt, ...) PLIM_PRINTF(2, 3);
void plim_reading_note(plim_reading *r, const char *note); /* each once */
/* Sets total, used and free if they can be true, otherwise the device's trouble. */
void plim_reading_memory(plim_reading *r, plim_live_device *d, uint64_t total, uint64_t used,
                         uint64_t free_bytes);

/* ---- sources --------------------------------------------------------------------------- */

typedef struct plim_live_source {
    const char *name;
    size_t state_size; /* of zeroed memory, which open, read and close receive */
    /* Looks for devices.  Says in `look` where it looked and what it found. */
    void (*open)(void *state, const plim_live_options *o, plim_arena *a, plim_live_look *look);
    void (*read)(void *state, plim_reading *r); /* called even if open found nothing */
    void (*close)(void *state);
} plim_live_source;

const plim_live_source *plim_live_source_at(uint32_t i); /* NULL past the end */

/* ---- files below the root ---------------------------------------------------------------- */

/* Reads the beginning of a small file, at most n - 1 bytes, and ends it with NUL.  Returns
 * the bytes read; -1: it cannot be read. */
int plim_probe_text(const char *root, char *out, size_t n, const char *fmt, ...)
    PLIM_PRINTF(4, 5);
/* A file that is a number; PLIM_LIVE_UNKNOWN: it is not. */
uint64_t plim_probe_u64(const char *root, const char *fmt, ...) PLIM_PRINTF(2, 3);
/* The number at the start of text: decimal, not above 2^63; PLIM_LIVE_UNKNOWN: none. */
uint64_t plim_probe_number(const char *text);
/* The folder root + path, for opendir. */
void plim_probe_path(char *out, size_t n, const char *root, const char *fmt, ...)
    PLIM_PRINTF(4, 5);

/* ---- the machine and its processes ------------------------------------------------------- */

/* Total and available bytes of the machine's own memory; false: not known. */
bool plim_host_memory(const char *root, uint64_t *total, uint64_t *available);
const char *plim_host_name(plim_reading *r);
bool plim_host_is_wsl(const char *root);
/* Do pids mean here what they mean to the driver, which knows those of the host only? */
bool plim_host_pids(const char *root);

/* Is there a process of this pid that can use CUDA?  Where its libraries may not be read, that
 * there is one is enough. */
bool plim_process_plausible(const char *root, uint64_t pid);
/* Fills in what /proc says of p->pid: who, what, since when, in which job. */
void plim_process_facts(plim_reading *r, plim_live_process *p, uint64_t *cpu_ticks);

/* ---- what is remembered from tick to tick --------------------------------------------------- */

enum { PLIM_PAST_MOST = 512 }; /* samples of a device */

typedef struct plim_past plim_past;
plim_past *plim_past_new(plim_arena *a);
/* Fills in peaks, growth, times to full and CPU use of what was read. */
void plim_past_add(plim_past *p, plim_reading *r, const uint64_t *cpu_ticks, int64_t now_ms);
uint32_t plim_past_of(const plim_past *p, uint32_t device, uint64_t *used, uint64_t *busy,
                      uint32_t max);

/* ---- what reports of now and of a history share ------------------------------------------------ */

/* "job 8812, 3f9a1c20b7d4"; NULL: neither is known. */
const char *plim_live_where(plim_arena *a, const char *job, const char *container);
/* "0", and of an instance "0:1/0". */
const char *plim_live_device_id(plim_arena *a, const plim_live_view *v, uint32_t i);

#endif
