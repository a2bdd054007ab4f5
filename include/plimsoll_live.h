/* plimsoll_live.h -- the GPUs of this machine and the processes on them, as they are now.
 *
 * EXPERIMENTAL.  Nothing in this header is stable: names, structs and numbers change
 * with any version, without a change of the soname.  It is for `plimsoll top` and
 * `plimsoll record`.
 *
 *     plim_live_monitor *live = NULL;
 *     const plim_live_view *view = NULL;
 *     plim_live_open(NULL, &live, &err);
 *     plim_live_tick(live, now_ms, &view, &err);
 *     plim_live_print(view, PLIM_TEXT, NULL, put, ud, &err);
 *     plim_live_close(live);
 *
 * Each tick reads all devices again.  Peaks and growth are over the ticks since
 * plim_live_open.  Nothing here needs a library at link time: NVML is loaded if it is there,
 * and other drivers are read through /sys and /proc.
 *
 * Conventions, besides those of plimsoll.h.
 *  - Sizes are bytes.  A number that is not known is PLIM_LIVE_UNKNOWN, and NAN if it is a
 *    double; a text that is not known is NULL.
 *  - A view, with all that it points to, lives until the next tick or plim_live_close.
 *  - Threads: one at a time for each plim_live_monitor.
 */
#ifndef PLIMSOLL_LIVE_H
#define PLIMSOLL_LIVE_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_LIVE_UNKNOWN UINT64_MAX

typedef struct plim_live_monitor plim_live_monitor;

/* Zero means "the default" in every field. */
typedef struct plim_live_options {
    const char *nvml; /* the library to load; default libnvidia-ml.so.1 */
    const char *root; /* a folder that stands for /: its proc, sys and etc are read */
} plim_live_options;

/* figures: live_process live_device live_look live_view */
/* clang-format off */
/* A process on a device. */
typedef struct plim_live_process {
    uint32_t device; /* which it uses (index in devices) */
    uint64_t pid; /* its own */
    const char *kind; /* "compute", "graphics", "mps", "drm" */
    const char *user; /* whose it is */
    const char *command; /* its name */
    const char *command_line; /* its words */
    uint64_t memory; /* on the device */
    uint64_t peak; /* the greatest memory since the monitor was started */
    uint64_t predicted; /* PLIMSOLL_PREDICTED in its environment */
    double growth_per_s; /* of memory, over at most 16 readings, in bytes */
    /* until it has taken what is free on the device; unknown if it does not grow */
    double full_in_s;
    uint64_t busy_percent; /* of the time in which it ran on the device */
    double cpu_percent; /* of a core */
    uint64_t host_memory; /* resident in the memory of the machine */
    const char *container; /* the first 12 digits of its id */
    const char *job; /* of Slurm */
    bool elsewhere; /* pid is that of another namespace: who it is cannot be known */
    uint64_t started; /* which tells processes of one pid apart (clock ticks after boot) */
    const char *const *argv; /* the words of command_line, then NULL */
} plim_live_process;

/* A GPU, or a MIG instance of one. */
typedef struct plim_live_device {
    /* -- memory: what the driver says of the memory of a device -- */
    uint64_t total; /* used + free, and reserved unless used_includes_reserved */
    uint64_t used; /* by everybody */
    uint64_t free; /* that can still be taken */
    uint64_t reserved; /* by the driver */
    bool used_includes_reserved; /* reserved is a part of used */
    bool unified; /* the memory is that of the machine */
    double growth_per_s; /* of used, over at most 16 readings, in bytes */
    double full_in_s; /* until free is used up at this growth; unknown if it does not grow */

    /* -- the rest, in no group -- */
    uint32_t index; /* in the order of its source; an instance has that of its GPU */
    const char *mig; /* "1/0": GPU and compute instance; unknown: a whole GPU */
    /* where it was found: "nvml", or "drm" for what the kernel publishes */
    const char *source;
    const char *driver; /* "nvidia", "amdgpu", "i915" */
    const char *name; /* "NVIDIA T4" */
    const char *uuid; /* as the driver says it */
    const char *pci; /* its address */
    uint64_t busy_percent; /* of the time in which a kernel ran */
    uint64_t memory_busy_percent; /* of the time in which memory was read or written */
    uint64_t temperature_c; /* of the GPU */
    uint64_t power_mw; /* what it draws */
    uint64_t power_limit_mw; /* what it may draw */
    uint64_t fan_percent; /* of the fan's speed; some run above 100 */
    uint64_t clock_mhz; /* of the processors (MHz) */
    uint64_t memory_clock_mhz; /* of the memory (MHz) */
    const char *trouble; /* why figures are missing, a sentence */
    const plim_live_process *processes; /* those with the most memory first */
    uint32_t n_processes;
} plim_live_device;

/* Where devices were looked for. */
typedef struct plim_live_look {
    const char *source; /* as in a device */
    const char *where; /* "libnvidia-ml.so.1" */
    const char *found; /* why there is no device, a sentence */
    uint32_t devices; /* that were found */
} plim_live_look;

/* The GPUs of a machine and the processes on them. */
typedef struct plim_live_view {
    int64_t time_ms; /* of the reading, since 1970 */
    const char *host; /* the machine */
    const char *nvidia_driver; /* its version */
    const char *cuda; /* the newest version that it supports */
    const plim_live_device *devices; /* in the order of their sources */
    uint32_t n_devices;
    const plim_live_process *processes; /* of all devices, by device */
    uint32_t n_processes;
    const plim_live_look *looked; /* where devices were looked for */
    uint32_t n_looked;
    const char *const *notes; /* sentences about all of it */
    uint32_t n_notes;
} plim_live_view;
/* clang-format on */
/* end of figures */

/* Looks for devices; that there are none is not an error.  `o` NULL: this machine. */
PLIM_API plim_status plim_live_open(const plim_live_options *o, plim_live_monitor **out,
                                    plim_err *err);
/* Reads everything again.  now_ms: milliseconds since 1970. */
PLIM_API plim_status plim_live_tick(plim_live_monitor *l, int64_t now_ms,
                                    const plim_live_view **out, plim_err *err);
/* Takes NULL. */
PLIM_API void plim_live_close(plim_live_monitor *l);

/* The memory of a device, and how busy it was, at earlier ticks: out[0] is the newest.
 * Returns how many were written. */
PLIM_API uint32_t plim_live_past(const plim_live_monitor *l, uint32_t device, uint64_t *used,
                                 uint64_t *busy, uint32_t max);

/* The bytes that plim_live_monitor itself holds, for tests that it does not grow. */
PLIM_API uint64_t plim_live_footprint(const plim_live_monitor *l);

/* Renders a view, as plim_estimate_print does; CSV has a line for each process, and for each
 * device without one. */
PLIM_API plim_status plim_live_print(const plim_live_view *v, plim_render how,
                                     const plim_style *st, plim_put put, void *ud,
                                     plim_err *err);

/* What other programs read. */
typedef enum plim_live_form {
    PLIM_LIVE_GPUSTAT = 0,    /* the JSON of `gpustat --json` */
    PLIM_LIVE_PROMETHEUS = 1, /* valid for Prometheus and OpenMetrics */
    PLIM_LIVE_FORM_COUNT = 2
} plim_live_form;
PLIM_API plim_status plim_live_export(const plim_live_view *v, plim_live_form form,
                                      plim_put put, void *ud, plim_err *err);

/* ======================================================================== */
/* What happened: a report on readings that were kept                        */
/* ======================================================================== */

/* Keeping them is left to the caller: `plimsoll top --log` has a database. */

enum { PLIM_HISTORY_POINTS = 240 }; /* of a plot: equal parts of the time from first to last */

/* figures: history_device history_process history */
/* clang-format off */
/* A GPU of the log. */
typedef struct plim_history_device {
    const char *host; /* the machine */
    const char *gpu; /* "0", and of an instance "0:1/0" */
    const char *uuid; /* as the driver says it */
    const char *name; /* "NVIDIA T4" */
    uint64_t total; /* its memory */
    uint64_t peak; /* in use, at its highest */
    uint64_t free_at_peak; /* what was left then */
    int64_t peak_ms; /* when the peak was first reached; 0: there is no peak */
    /* of the memory in use, from the first reading to the last, in bytes */
    double growth_per_s;
    /* from the last reading until it is full, at this growth; unknown if it does not grow */
    double full_in_s;

    /* -- history_plot: memory of a GPU over time -- */
    /* the most in each of 240 equal parts of the time; unknown: nothing was logged */
    uint64_t used[PLIM_HISTORY_POINTS];
} plim_history_device;

/* A process of the log. */
typedef struct plim_history_process {
    uint32_t device; /* on which it ran (index in devices) */
    const char *host; /* as in the device */
    const char *gpu; /* as in the device */
    const char *uuid; /* as in the device */
    uint64_t pid; /* its own; 0: not known */
    const char *user; /* whose it is */
    uint64_t peak; /* on the device, at its highest */
    uint64_t held; /* what it had at the peak of the device; unknown: it was not seen then */
    uint64_t predicted; /* PLIMSOLL_PREDICTED in its environment */
    double growth_per_s; /* from its first reading to its last, in bytes */
    const char *command; /* its words */
    const char *job; /* of Slurm */
    const char *container; /* the first 12 digits of its id */
    int64_t peak_ms; /* when the peak was first reached; 0: there is no peak */
    int64_t first_ms; /* when it was first seen, within the report */
    int64_t last_ms; /* when it was last seen */
} plim_history_process;

/* What happened on the GPUs of a log. */
typedef struct plim_history {
    int64_t first_ms; /* of the first reading that it is about, since 1970, as are all times */
    int64_t last_ms; /* of the last one */
    const plim_history_device *devices; /* by host and source */
    uint32_t n_devices;
    const plim_history_process *processes; /* by device, then peak, the greatest first */
    uint32_t n_processes;
} plim_history;
/* clang-format on */
/* end of figures */

/* Renders a history; `form` is TEXT, JSON (plimsoll/top-history/1: docs/json.md) or CSV. */
PLIM_API plim_status plim_history_print(const plim_history *h, plim_render how,
                                        const plim_style *st, plim_put put, void *ud,
                                        plim_err *err);

/* ======================================================================== */
/* The screen of a terminal, as cells                                        */
/* ======================================================================== */

/* What is shown, in which order, and what is selected.  It does not touch the terminal: the
 * caller passes keys in and paints cells. */
typedef struct plim_screen plim_screen;

typedef enum plim_screen_paint {
    PLIM_SCREEN_PLAIN = 0,
    PLIM_SCREEN_DIM = 1,
    PLIM_SCREEN_BOLD = 2,
    PLIM_SCREEN_HEAD = 3,     /* of the table */
    PLIM_SCREEN_SELECTED = 4, /* the row of a process */
    PLIM_SCREEN_LOW = 5,      /* of a bar: much is free */
    PLIM_SCREEN_HIGH = 6,     /* above 75 % */
    PLIM_SCREEN_FULL = 7,     /* above 92 % */
    PLIM_SCREEN_BUSY = 8,     /* the plot of use */
    PLIM_SCREEN_ALERT = 9,    /* a question, or trouble */
    PLIM_SCREEN_PAINT_COUNT = 10
} plim_screen_paint;

typedef struct plim_screen_cell {
    uint32_t code; /* Unicode; 0: the right half of a wide character */
    uint32_t paint;
} plim_screen_cell;

/* Keys that are not characters. */
enum {
    PLIM_KEY_UP = 0x110000,
    PLIM_KEY_DOWN = 0x110001,
    PLIM_KEY_PAGE_UP = 0x110002,
    PLIM_KEY_PAGE_DOWN = 0x110003,
    PLIM_KEY_HOME = 0x110004,
    PLIM_KEY_END = 0x110005,
    PLIM_KEY_ENTER = 0x110006,
    PLIM_KEY_ESCAPE = 0x110007,
    PLIM_KEY_BACKSPACE = 0x110008
};

typedef enum plim_screen_wish {
    PLIM_SCREEN_STAY = 0,
    PLIM_SCREEN_QUIT = 1,
    PLIM_SCREEN_KILL = 2 /* confirmed by the user */
} plim_screen_wish;

typedef struct plim_screen_action {
    plim_screen_wish wish;
    uint64_t pid, started; /* KILL: of the process, as in its plim_live_process */
    bool force;            /* SIGKILL, else SIGTERM */
} plim_screen_action;

PLIM_API plim_status plim_screen_new(bool ascii, plim_screen **out, plim_err *err);
/* Takes NULL. */
PLIM_API void plim_screen_free(plim_screen *s);
/* Fills cells[rows * columns].  A screen below ten rows or forty columns only says that it is
 * too small. */
PLIM_API plim_status plim_screen_draw(plim_screen *s, const plim_live_monitor *l,
                                      const plim_live_view *v, int columns, int rows,
                                      plim_screen_cell *cells, plim_err *err);
/* A key, or a click at a cell, after a draw. */
PLIM_API plim_screen_action plim_screen_key(plim_screen *s, uint32_t key);
PLIM_API void plim_screen_click(plim_screen *s, int column, int row);
/* A line about what was done, until the next key. */
PLIM_API void plim_screen_say(plim_screen *s, const char *text);

/* ======================================================================== */
/* Recordings of CUDA's driver: what `plimsoll record` writes                */
/* ======================================================================== */

enum { PLIM_DRIVER_TIMES = 16 }; /* parts of the time from the first event to the last */

/* figures: driver_process_info driver_device driver_part driver_line driver_report */
/* clang-format off */
/* A process that was recorded. */
typedef struct plim_driver_process_info {
    uint32_t pid; /* its own */
    uint32_t parent; /* that of its parent (pid) */
    const char *command; /* its words */
    bool exited; /* by exit(): what it held at the end was read then */
    uint64_t events; /* of it */
} plim_driver_process_info;

/* A device, as one process used it. */
typedef struct plim_driver_device {
    uint32_t process; /* whose memory it is (index in processes) */
    int device; /* of the device; -1: not known (index) */
    uint64_t peak; /* held by what was recorded, at its highest */
    double peak_s; /* when that was, after the recording began */
    uint64_t at_end; /* held by what was recorded, at the end */
    uint64_t total; /* memory of the device; only if read */
    /* in use when the context was made, by everybody, less what was recorded; only if read */
    uint64_t context;
    /* in use at the last reading, by everybody: the driver's figure; only if read */
    uint64_t used;
    /* used less the context and what was held then; below 0 where others gave memory back
     * (bytes); only if read */
    int64_t rest;
    uint64_t most[PLIM_DRIVER_TIMES]; /* held at most in each of 16 equal parts of the time */
    bool read; /* the driver said what is in use */
} plim_driver_device;

/* Memory that one library asked for in one way. */
typedef struct plim_driver_part {
    uint32_t process; /* that asked for it (index in processes) */
    int device; /* of the device; in C -1 for null (index); 0: not on a device, or not known */
    const char *library; /* "libcublasLt.so.13", "the program"; NULL: not known */
    const char *path; /* of the library; NULL: not known */
    /* "allocated", "pool", "mapped", "array", "graph", "managed", "pinned host", "shared" */
    const char *way;
    bool on_device; /* it counts in what is held on the device: not the last three ways */
    uint64_t calls; /* so many (allocations) */
    uint64_t failed; /* for which there was no memory (allocations) */
    /* held when the process held the most on the device; else its own peak */
    uint64_t at_peak;
    uint64_t at_end; /* held at the end */
} plim_driver_part;

/* What a line of Python asked for on a device. */
typedef struct plim_driver_line {
    uint32_t process; /* that asked for it (index in processes) */
    int device; /* of the device (index) */
    const char *where; /* "train.py:12" */
    uint64_t calls; /* so many (allocations) */
    uint64_t at_peak; /* held when the process held the most on the device */
    uint64_t at_end; /* held at the end */
} plim_driver_line;

/* A recording of CUDA's driver: who held the memory of each device. */
typedef struct plim_driver_report {
    size_t size; /* of this struct */

    /* -- oom: the first allocation for which there was no memory -- */
    uint64_t failures; /* for which there was no memory (allocations) */
    int oom_device; /* of the device; -1: not known (index) */
    uint64_t oom_requested; /* by it */
    uint64_t oom_free; /* that the device had then */
    uint64_t oom_held; /* by the process */
    double oom_time_s; /* when that was, after the recording began */
    const char *oom_library; /* that asked for it; NULL: not known */
    const char *oom_where; /* the line of Python; NULL: not known */

    /* -- the rest, in no group -- */
    const char *command; /* that was recorded */
    int status; /* of the command, as a shell has it (exit status); only if ended */
    double first_s; /* until the first event */
    double seconds; /* until the last event */
    uint64_t events; /* that were recorded */
    uint64_t lost; /* that could not be written (events) */
    uint64_t damaged; /* of the file that are not what they should be (chunks) */
    uint64_t strangers; /* of memory whose allocation was not recorded (releases) */
    const plim_driver_process_info *processes; /* as they began */
    uint32_t n_processes;
    const plim_driver_device *devices; /* one for each process and device */
    uint32_t n_devices;
    const plim_driver_part *parts; /* by process, device, and bytes at the peak */
    uint32_t n_parts;
    const plim_driver_line *lines; /* by process, device, and bytes at the peak */
    uint32_t n_lines;
    bool ended; /* somebody saw it end */
} plim_driver_report;
/* clang-format on */
/* end of figures */

/* Whether the file is such a recording. */
PLIM_API bool plim_driver_is(const char *path);
PLIM_API plim_status plim_driver_open(const char *path, plim_driver_report **out,
                                      plim_err *err);
/* Takes NULL. */
PLIM_API void plim_driver_free(plim_driver_report *r);
/* PLIM_TEXT or PLIM_JSON: plimsoll/record/1, docs/json.md. */
PLIM_API plim_status plim_driver_print(const plim_driver_report *r, plim_render how,
                                       const plim_style *st, plim_put put, void *ud,
                                       plim_err *err);

/* Writes the head of an empty recording of `command`, for the recorder to fill; and at the end
 * what became of it. */
PLIM_API plim_status plim_driver_create(const char *path, const char *command, plim_err *err);
PLIM_API plim_status plim_driver_end(const char *path, int32_t status, plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
