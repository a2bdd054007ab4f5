/* plimsoll_live.h -- the GPUs of this machine and the processes on them, as they are now.
 *
 * EXPERIMENTAL.  Nothing in this header is stable: names, structs and numbers change
 * with any version, without a change of the soname.  `plimsoll top` and `plimsoll record` are what it
 * is for.
 *
 *     plim_live_monitor *live = NULL;
 *     const plim_live_view *view = NULL;
 *     plim_live_open(NULL, &live, &err);
 *     plim_live_tick(live, now_ms, &view, &err);
 *     plim_live_print(view, PLIM_LIVE_TEXT, NULL, put, ud, &err);
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

/* A GPU, or a MIG instance of one. */
typedef struct plim_live_device {
    const char *source; /* "nvml", "drm" */
    const char *driver; /* "nvidia", "amdgpu", "i915" */
    uint32_t index;     /* in the order of its source; an instance has that of its GPU */
    const char *mig;    /* "1/0": GPU and compute instance; NULL: a whole GPU */
    const char *name, *uuid, *pci;
    uint64_t total, used, free;
    uint64_t reserved;            /* by the driver */
    bool used_includes_reserved;  /* otherwise total is used + reserved + free */
    bool unified;                 /* the memory is the machine's own */
    uint64_t busy, memory_busy;   /* percent of the time */
    uint64_t temperature;         /* degrees Celsius */
    uint64_t power, power_limit;  /* milliwatts */
    uint64_t fan;                 /* percent */
    uint64_t clock, memory_clock; /* MHz */
    double growth;                /* of used, bytes a second */
    double full_in;               /* seconds until free is used up at this growth */
    const char *trouble;          /* why figures are missing, a sentence; NULL: nothing */
} plim_live_device;

/* A process on a device. */
typedef struct plim_live_process {
    uint32_t device; /* index in devices */
    uint64_t pid;
    uint64_t started;     /* clock ticks after boot: tells processes of one pid apart */
    const char *kind;     /* "compute", "graphics", "mps" */
    uint64_t memory;      /* on the device */
    uint64_t peak;        /* the greatest since plim_live_open */
    uint64_t predicted;   /* of its environment: PLIMSOLL_PREDICTED */
    double growth;        /* of memory, bytes a second */
    double full_in;       /* seconds until it has taken what is free on the device */
    uint64_t busy;        /* percent of the time */
    double cpu;           /* percent of a core */
    uint64_t host_memory; /* resident */
    const char *user, *command, *command_line;
    const char *const *argv; /* the words of command_line, then NULL */
    const char *container;   /* the first 12 digits of its id */
    const char *job;         /* of Slurm */
    bool elsewhere; /* pid belongs to another namespace: who it is cannot be known from here */
} plim_live_process;

/* Where a source looked for devices, and what it found: sentences. */
typedef struct plim_live_look {
    const char *source, *where, *found;
    uint32_t devices;
} plim_live_look;

typedef struct plim_live_view {
    int64_t time_ms; /* as passed to plim_live_tick: since 1970 */
    const char *host;
    const char *driver; /* version of NVIDIA's */
    const char *cuda;   /* newest version that it supports */
    const plim_live_device *devices;
    uint32_t n_devices;
    const plim_live_process *processes; /* by device, then memory, the greatest first */
    uint32_t n_processes;
    const plim_live_look *looks;
    uint32_t n_looks;
    const char *const *notes; /* sentences about all of it */
    uint32_t n_notes;
} plim_live_view;

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

typedef enum plim_live_form {
    PLIM_LIVE_TEXT = 0,
    PLIM_LIVE_JSON = 1,       /* plimsoll/top/1: docs/json.md */
    PLIM_LIVE_CSV = 2,        /* one line for each process, and for each device without one */
    PLIM_LIVE_GPUSTAT = 3,    /* the JSON of `gpustat --json` */
    PLIM_LIVE_PROMETHEUS = 4, /* valid for Prometheus and OpenMetrics */
    PLIM_LIVE_FORM_COUNT = 5
} plim_live_form;

/* Renders a view, as plim_estimate_print does. */
PLIM_API plim_status plim_live_print(const plim_live_view *v, plim_live_form form,
                                     const plim_style *st, plim_put put, void *ud,
                                     plim_err *err);

/* ======================================================================== */
/* What happened: a report on readings that were kept                        */
/* ======================================================================== */

/* Who kept them, and where, is the caller's: `plimsoll top --log` has a database. */

enum { PLIM_HISTORY_POINTS = 240 }; /* of a plot: equal parts of the time from first to last */

typedef struct plim_history_device {
    const char *host, *gpu, *name, *uuid;
    uint64_t total;
    uint64_t peak, free_at_peak; /* the greatest that was in use, and what was left then */
    int64_t peak_ms;
    double growth;  /* of used, bytes a second, from the first reading to the last */
    double full_in; /* seconds from the last reading until it is full, at this growth */
    uint64_t used[PLIM_HISTORY_POINTS]; /* the greatest of each part */
} plim_history_device;

typedef struct plim_history_process {
    uint32_t device; /* index in devices */
    uint64_t pid;
    uint64_t peak, predicted;
    uint64_t held;             /* when the device was at its peak; unknown: it did not run */
    int64_t peak_ms;           /* when it had its peak first */
    int64_t first_ms, last_ms; /* within the report */
    double growth;
    const char *user, *command, *job, *container;
} plim_history_process;

typedef struct plim_history {
    int64_t first_ms, last_ms; /* of the readings that it is about */
    const plim_history_device *devices;
    uint32_t n_devices;
    const plim_history_process *processes; /* by device, then peak, the greatest first */
    uint32_t n_processes;
} plim_history;

/* Renders a history; `form` is TEXT, JSON (plimsoll/top-history/1: docs/json.md) or CSV. */
PLIM_API plim_status plim_history_print(const plim_history *h, plim_live_form form,
                                        const plim_style *st, plim_put put, void *ud,
                                        plim_err *err);

/* ======================================================================== */
/* The screen of a terminal, as cells                                        */
/* ======================================================================== */

/* What is shown, in which order, and what is selected.  It knows no terminal: who owns one
 * passes keys in and paints cells. */
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
/* Fills cells[rows * columns].  Ten rows of forty columns show something, smaller ones say
 * that they are too small. */
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

/* Memory that one library asked for in one way. */
typedef struct plim_driver_part {
    uint32_t process;    /* index in processes */
    int32_t device;      /* -1: not on a device, or not known */
    const char *library; /* "libcublasLt.so.13", "the program"; NULL: not known */
    const char *path;    /* of the library */
    const char *
        way; /* "allocated", "pool", "mapped", "array", "graph", "managed", "pinned host", "shared" */
    bool on_device; /* counts in what is held on the device */
    uint64_t
        at_peak; /* held when the process held the most on the device; else its own peak */
    uint64_t at_end;
    uint64_t calls, failed;
} plim_driver_part;

/* The same by line of Python, on devices. */
typedef struct plim_driver_line {
    uint32_t process;
    int32_t device;
    const char *where; /* "train.py:12" */
    uint64_t at_peak, at_end, calls;
} plim_driver_line;

enum { PLIM_DRIVER_TIMES = 16 }; /* parts of the time from the first event to the last */

/* A device, as one process used it. */
typedef struct plim_driver_device {
    uint32_t process;
    int32_t device;
    uint64_t peak, at_end; /* held by what was recorded */
    double peak_s;         /* seconds after the recording began */
    uint64_t total;        /* of the device; PLIM_LIVE_UNKNOWN, as are the next two */
    uint64_t context;      /* in use when it was made, by everybody, less what was recorded */
    uint64_t used;         /* in use at the last reading, by everybody: the driver's figure */
    int64_t rest;          /* used, less the context and what was held then */
    uint64_t most[PLIM_DRIVER_TIMES]; /* held in each part of the time */
} plim_driver_device;

typedef struct plim_driver_process_info {
    uint32_t pid, parent;
    const char *command;
    bool exited; /* by exit(): what it held at the end was read then */
    uint64_t events;
} plim_driver_process_info;

typedef struct plim_driver_report {
    size_t size;
    const char *command;     /* that was recorded */
    bool ended;              /* somebody saw it end */
    int32_t status;          /* its exit status, as a shell has it */
    double first_s, seconds; /* until the first and the last event */
    uint64_t events;
    uint64_t lost;      /* events that could not be written */
    uint64_t damaged;   /* chunks of the file that are not what they should be */
    uint64_t strangers; /* releases of memory whose allocation was not recorded */
    const plim_driver_process_info *processes;
    uint32_t n_processes;
    const plim_driver_device *devices;
    uint32_t n_devices;
    const plim_driver_part *parts; /* by process, device, and bytes at the peak */
    uint32_t n_parts;
    const plim_driver_line *lines;
    uint32_t n_lines;
    uint64_t failures; /* allocations for which there was no memory; of the first: */
    uint64_t failed_bytes, failed_free, failed_held; /* free: PLIM_LIVE_UNKNOWN if not known */
    double failed_s;
    int32_t failed_device;
    const char *failed_library, *failed_where; /* NULL: not known */
} plim_driver_report;

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
