/* top_history.c -- plimsoll top --history: what a log says.  See top_log.h. */
#ifdef PLIM_SQLITE

#include "top_db.h"
#include "top_log.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct reader {
    const plim_args *args;
    plim_memory *memory; /* of the history */
    sqlite3 *db;
    plim_history history;
    plim_history_device *devices;
    plim_history_process *processes;
    int64_t *ids; /* of the devices in the log */
    uint32_t n_devices, n_processes;
    size_t cap_devices, cap_ids, cap_processes;
    uint64_t steps; /* that the queries may still take */
    int rc;
} reader;

/* ---- what a query answers ------------------------------------------------------------------------ */

static const char *take_column(reader *r, sqlite3_stmt *q, int column)
{
    const char *z = (const char *)sqlite3_column_text(q, column);
    char *copy = z && *z ? plim_memory_text(r->memory, z) : NULL;
    if (z && *z && !copy)
        r->rc = SQLITE_NOMEM;
    return copy;
}

/* Foreign files may hold what no logger writes. */
static uint64_t column_number(sqlite3_stmt *q, int column)
{
    int64_t v = sqlite3_column_int64(q, column);
    return sqlite3_column_type(q, column) != SQLITE_INTEGER || v < 0 ? PLIM_LIVE_UNKNOWN
                                                                     : (uint64_t)v;
}

/* A time; any that a logger writes is within, and their differences are numbers. */
static int64_t column_time(sqlite3_stmt *q, int column)
{
    const int64_t most = INT64_C(253402300799999); /* the end of the year 9999 */
    int64_t v = sqlite3_column_int64(q, column);
    return v < 0 ? 0 : v > most ? most : v;
}

static sqlite3_stmt *ask_log(reader *r, const char *sql)
{
    sqlite3_stmt *q = NULL;
    if (!r->rc)
        r->rc = sqlite3_prepare_v2(r->db, sql, -1, &q, NULL);
    return q;
}

static bool next_row(reader *r, sqlite3_stmt *q)
{
    int rc = r->rc ? SQLITE_DONE : sqlite3_step(q);
    if (rc != SQLITE_ROW && rc != SQLITE_DONE)
        r->rc = rc;
    return rc == SQLITE_ROW;
}

/* Room for one more item after `n`; false: no memory. */
static bool grow_list(reader *r, void **list, size_t *cap, uint32_t n, size_t size)
{
    enum { LEAST = 8 };
    bool grown =
        plim_memory_grow(r->memory, list, cap, n < LEAST ? LEAST : (size_t)n + 1, size);
    if (!grown)
        r->rc = SQLITE_NOMEM;
    return grown;
}

/* ---- devices ------------------------------------------------------------------------------------ */

static void read_devices(reader *r)
{
    sqlite3_stmt *q =
        ask_log(r, "SELECT id, host, gpu, name, uuid, total FROM devices WHERE ?1 IS NULL OR"
                   " gpu = ?1 OR uuid = ?1 ORDER BY host, source DESC, id");
    if (q && r->args->device)
        sqlite3_bind_text(q, 1, r->args->device, -1, SQLITE_STATIC);
    while (q && next_row(r, q)) {
        uint32_t n = r->n_devices;
        if (!grow_list(r, (void **)&r->devices, &r->cap_devices, n, sizeof *r->devices) ||
            !grow_list(r, (void **)&r->ids, &r->cap_ids, n, sizeof *r->ids))
            break;
        plim_history_device *d = &r->devices[n];
        memset(d, 0, sizeof *d);
        r->ids[n] = sqlite3_column_int64(q, 0);
        d->host = take_column(r, q, 1);
        d->gpu = take_column(r, q, 2);
        d->name = take_column(r, q, 3);
        d->uuid = take_column(r, q, 4);
        d->total = column_number(q, 5);
        d->peak = d->free_at_peak = PLIM_LIVE_UNKNOWN;
        d->growth_per_s = d->full_in_s = (double)NAN;
        for (int i = 0; i < PLIM_HISTORY_POINTS; i++)
            d->used[i] = PLIM_LIVE_UNKNOWN;
        r->n_devices++;
    }
    sqlite3_finalize(q);
}

static int point_at(const reader *r, int64_t time_ms)
{
    double whole = (double)(r->history.last_ms - r->history.first_ms) + 1;
    double at = (double)(time_ms - r->history.first_ms) / whole * PLIM_HISTORY_POINTS;
    return at < 0 ? 0 : at >= PLIM_HISTORY_POINTS ? PLIM_HISTORY_POINTS - 1 : (int)at;
}

/* A value holds from its reading to the next of its session, or to the end of the session. */
static void read_device(reader *r, uint32_t i)
{
    plim_history_device *d = &r->devices[i];
    int64_t first_ms = 0, last_ms = 0;
    uint64_t first = PLIM_LIVE_UNKNOWN, last = first, last_free = first;
    sqlite3_stmt *q = ask_log(
        r, "SELECT max(time_ms, ?2), used, free,"
           " min(lead(time_ms, 1, s.last_ms) OVER (PARTITION BY session ORDER BY time_ms),"
           "     s.last_ms) AS until"
           " FROM device_memory m JOIN sessions s ON s.id = m.session"
           " WHERE device = ?1 AND s.last_ms >= ?2 AND time_ms >= coalesce((SELECT"
           " max(time_ms) FROM device_memory b WHERE b.device = ?1 AND"
           " b.session = m.session AND b.time_ms <= ?2), ?2) ORDER BY time_ms");
    if (q) {
        sqlite3_bind_int64(q, 1, r->ids[i]);
        sqlite3_bind_int64(q, 2, r->history.first_ms);
    }
    while (q && next_row(r, q)) {
        int64_t from = column_time(q, 0), until = column_time(q, 3);
        uint64_t used = column_number(q, 1);
        if (used == PLIM_LIVE_UNKNOWN)
            continue;
        for (int k = point_at(r, from); k <= point_at(r, until); k++)
            if (d->used[k] == PLIM_LIVE_UNKNOWN || d->used[k] < used)
                d->used[k] = used;
        if (d->peak == PLIM_LIVE_UNKNOWN || used > d->peak) {
            d->peak = used;
            d->peak_ms = from;
            d->free_at_peak = column_number(q, 2);
        }
        if (first == PLIM_LIVE_UNKNOWN) {
            first = used;
            first_ms = from;
        }
        last = used;
        last_ms = until;
        last_free = column_number(q, 2);
    }
    sqlite3_finalize(q);
    if (last_ms > first_ms)
        d->growth_per_s =
            ((double)last - (double)first) * 1000 / ((double)last_ms - (double)first_ms);
    if (d->growth_per_s > 0 && last_free != PLIM_LIVE_UNKNOWN)
        d->full_in_s = (double)last_free / d->growth_per_s;
}

/* ---- processes ----------------------------------------------------------------------------------- */

static void take_process(reader *r, sqlite3_stmt *q, uint32_t device)
{
    if (!grow_list(r, (void **)&r->processes, &r->cap_processes, r->n_processes,
                   sizeof *r->processes))
        return;
    uint64_t first = column_number(q, 9), last = column_number(q, 10);
    const plim_history_device *on = &r->devices[device];
    plim_history_process p = {.device = device,
                              .host = on->host,
                              .gpu = on->gpu,
                              .uuid = on->uuid,
                              .pid = column_number(q, 0),
                              .peak = column_number(q, 1),
                              .peak_ms = column_time(q, 2),
                              .first_ms = column_time(q, 3),
                              .last_ms = column_time(q, 4),
                              .predicted = column_number(q, 5),
                              .user = take_column(r, q, 6),
                              .command = take_column(r, q, 7),
                              .held = column_number(q, 8),
                              .job = take_column(r, q, 11),
                              .container = take_column(r, q, 12),
                              .growth_per_s = (double)NAN};
    if (p.last_ms > p.first_ms && first != PLIM_LIVE_UNKNOWN && last != PLIM_LIVE_UNKNOWN)
        p.growth_per_s =
            ((double)last - (double)first) * 1000 / (double)(p.last_ms - p.first_ms);
    r->processes[r->n_processes++] = p;
}

/* The time of max() is that of its row, as it is the only aggregate: src: "bare columns in an
 * aggregate query" of SQLite's documentation.  What
 * a process has last is what it had before it ended, which is the reading of 0. */
static void read_processes(reader *r, uint32_t device)
{
    sqlite3_stmt *q = ask_log(
        r,
        "WITH p AS (SELECT p.*, coalesce(ended_ms, s.last_ms) AS last_ms,"
        "  coalesce((SELECT max(time_ms) FROM process_memory b WHERE b.process = p.id"
        "  AND b.time_ms <= ?2), ?2) AS from_ms"
        "  FROM processes p JOIN sessions s ON s.id = p.session WHERE device = ?1"
        "  AND coalesce(ended_ms, s.last_ms) >= ?2 AND (?4 IS NULL OR pid = ?4)"
        "  AND (?5 IS NULL OR user = ?5))"
        "SELECT pid, max(memory), max(time_ms, ?2),"
        " max((SELECT min(time_ms) FROM process_memory f WHERE f.process = p.id), ?2), p.last_ms,"
        " predicted, user, command,"
        " (SELECT memory FROM process_memory h WHERE h.process = p.id AND h.time_ms <= ?3"
        "  AND p.last_ms >= ?3 ORDER BY h.time_ms DESC LIMIT 1),"
        " (SELECT memory FROM process_memory h WHERE h.process = p.id AND"
        "  h.time_ms >= p.from_ms ORDER BY h.time_ms LIMIT 1),"
        " (SELECT memory FROM process_memory h WHERE h.process = p.id AND"
        "  (p.ended_ms IS NULL OR h.time_ms < p.ended_ms) ORDER BY h.time_ms DESC LIMIT 1),"
        " job, container"
        " FROM p JOIN process_memory m ON m.process = p.id AND m.time_ms >= p.from_ms"
        " GROUP BY p.id ORDER BY 2 DESC, pid");
    if (q) {
        sqlite3_bind_int64(q, 1, r->ids[device]);
        sqlite3_bind_int64(q, 2, r->history.first_ms);
        if (r->devices[device].peak != PLIM_LIVE_UNKNOWN)
            sqlite3_bind_int64(q, 3, r->devices[device].peak_ms);
        if (r->args->pid)
            sqlite3_bind_int(q, 4, r->args->pid);
        if (r->args->user)
            sqlite3_bind_text(q, 5, r->args->user, -1, SQLITE_STATIC);
    }
    while (q && next_row(r, q))
        take_process(r, q, device);
    sqlite3_finalize(q);
}

/* ---- the command --------------------------------------------------------------------------------- */

static void read_times(reader *r)
{
    sqlite3_stmt *q = ask_log(r, "SELECT min(first_ms), max(last_ms) FROM sessions");
    if (q && next_row(r, q)) {
        plim_history *h = &r->history;
        h->first_ms = column_time(q, 0);
        h->last_ms = column_time(q, 1);
        double since = (double)h->last_ms - r->args->since * 1000;
        if (r->args->since > 0 && since > (double)h->first_ms)
            h->first_ms = (int64_t)since;
    }
    sqlite3_finalize(q);
}

static void read_log(reader *r)
{
    read_times(r);
    read_devices(r);
    for (uint32_t i = 0; i < r->n_devices && !r->rc; i++) {
        read_device(r, i);
        read_processes(r, i);
    }
    r->history.devices = r->devices;
    r->history.n_devices = r->n_devices;
    r->history.processes = r->processes;
    r->history.n_processes = r->n_processes;
}

plim_status plim_top_history_read(const plim_args *a, plim_memory *m, plim_history *out,
                                  plim_err *err)
{
    reader r = {.args = a, .memory = m};
    plim_status st = plim_top_db_open(a->history, false, &r.db, err);
    if (st)
        return st;
    /* One state of the file, whatever a logger adds meanwhile. */
    m->most = plim_top_db_memory();
    r.rc = sqlite3_exec(r.db, "BEGIN", NULL, NULL, NULL);
    r.rc = r.rc ? r.rc : plim_top_db_bound(r.db, &r.steps);
    read_log(&r);
    if (r.rc)
        st = plim_top_db_fail(r.rc == SQLITE_NOMEM ? NULL : r.db, r.rc, a->history, err);
    sqlite3_close(r.db);
    *out = r.history;
    return st;
}

int plim_top_history(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_memory memory = {.blocks = NULL};
    plim_history history;
    plim_status st = plim_top_history_read(a, &memory, &history, &err);
    int code = PLIM_EXIT_DONE;
    if (st)
        code = plim_console_error(&err);
    else {
        st = plim_history_print(&history, a->render, &a->style, plim_console_put, &a->console,
                                &err);
        code = plim_console_result(&a->console, st, &err);
        code = code ? code : history.n_devices ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
    }
    plim_memory_free(&memory);
    return code;
}

#else
typedef int plim_top_history_unused; /* a file must declare something */
#endif
