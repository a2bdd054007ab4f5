/* cmd_top.c -- plimsoll top: the GPUs of this machine and who has their memory. */
#include "cmds.h"
#include "top_log.h"
#include "top_view.h"
#include "whole.h"

#include <errno.h>
#include <plimsoll_live.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

static int64_t top_now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_REALTIME, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void top_sleep(double seconds)
{
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    nanosleep(&t, NULL);
}

/* ---- a file of metrics ------------------------------------------------------------------------ */

static int top_write_file(void *file, const char *text, size_t n)
{
    return fwrite(text, 1, n, file) < n ? errno ? errno : EIO : 0;
}

static plim_status top_write_metrics(const char *path, const plim_live_view *v, plim_err *err)
{
    plim_whole w;
    plim_status st = PLIM_EIO;
    if (plim_whole_open(&w, path)) {
        st = plim_live_export(v, PLIM_LIVE_PROMETHEUS, top_write_file, w.file, err);
        if (!plim_whole_close(&w, !st) && !st)
            st = PLIM_EIO;
    }
    if (st == PLIM_EIO) /* the library does not know the file */
        snprintf(err->msg, sizeof err->msg, "cannot write '%.120s': %s", path,
                 strerror(errno));
    return err->code = st;
}

/* ---- readings that go to files ------------------------------------------------------------------ */

static volatile sig_atomic_t top_stopped;

static void top_stop(int signal_number)
{
    (void)signal_number;
    top_stopped = 1;
}

/* From here on these signals end the readings, after the one that is being written. */
static void top_catch_signals(void)
{
    static const int numbers[] = {SIGINT, SIGTERM, SIGHUP};
    struct sigaction act = {.sa_handler = top_stop}, old;
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        if (!sigaction(numbers[i], NULL, &old) && old.sa_handler != SIG_IGN) /* nohup */
            sigaction(numbers[i], &act, NULL);
}

static plim_status top_export_tick(plim_args *a, plim_live_monitor *live, plim_top_log *log,
                                   bool *found, plim_err *err)
{
    const plim_live_view *v = NULL;
    plim_status st = plim_live_tick(live, top_now_ms(), &v, err);
    if (!st && a->prometheus)
        st = top_write_metrics(a->prometheus, v, err);
    if (!st && log)
        st = plim_top_log_add(log, v, err);
    *found = !st && v->n_devices;
    return st;
}

/* Until --ticks, or a signal. */
static int top_export(plim_args *a, plim_live_monitor *live)
{
    enum { METRICS_INTERVAL = 15 }; /* seconds: that of most who collect metrics */
    plim_err err = PLIM_ERR_INIT;
    plim_top_log *log = NULL;
    plim_status st = PLIM_OK;
    bool found = false;
    int ticks = a->once ? 1 : a->ticks;
    double interval = a->interval > 0 ? a->interval : a->log ? 1 : METRICS_INTERVAL;
    if (a->log)
        st = plim_top_log_open(a->log, a->keep, &log, &err);
    if (a->prometheus)
        plim_whole_sweep(a->prometheus);
    top_catch_signals();
    for (int left = ticks; !st && !top_stopped;) {
        st = top_export_tick(a, live, log, &found, &err);
        if (st || (ticks && !--left))
            break;
        top_sleep(interval);
    }
    plim_top_log_close(log);
    if (st)
        return plim_console_error(&err);
    return found ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

/* ---- once ----------------------------------------------------------------------------------------- */

static int top_print(plim_args *a, plim_live_monitor *live)
{
    plim_err err = PLIM_ERR_INIT;
    const plim_live_view *v = NULL;
    for (int i = 0; i < (a->ticks ? a->ticks : 1); i++) {
        if (i)
            top_sleep(a->interval > 0 ? a->interval : 1);
        if (plim_live_tick(live, top_now_ms(), &v, &err))
            return plim_console_error(&err);
    }
    plim_status st =
        a->json_form
            ? plim_live_export(v, PLIM_LIVE_GPUSTAT, plim_console_put, &a->console, &err)
            : plim_live_print(v, a->render, &a->style, plim_console_put, &a->console, &err);
    int code = plim_console_result(&a->console, st, &err);
    return code ? code : v && v->n_devices ? PLIM_EXIT_DONE : PLIM_EXIT_NO;
}

/* Options that do not go together. */
static int top_check(const plim_args *a)
{
    bool export = a->prometheus || a->log;
    if ((a->log || a->history) && plim_top_log_missing())
        return plim_console_usage("%s", plim_top_log_missing());
    if (a->history && (export || a->once || a->ticks || a->json_form))
        return plim_console_usage("'--history' shows what was logged: leave out --log, "
                                  "--prometheus, --once, --ticks, --json=gpustat");
    if (export && a->render != PLIM_TEXT)
        return plim_console_usage("'--%s' writes a file: leave out --json, --csv",
                                  a->log ? "log" : "prometheus");
    if (a->prometheus && !a->log && a->ticks)
        return plim_console_usage("'--prometheus' writes metrics: leave out --ticks");
    if (a->keep > 0 && !a->log)
        return plim_console_usage("'--keep' needs --log");
    if (!a->history && (a->since > 0 || a->device || a->pid || a->user))
        return plim_console_usage("'--since', '--device', '--pid', '--user' need --history");
    return PLIM_EXIT_DONE;
}

static int top_run(plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_live_monitor *live = NULL;
    plim_live_options o = {.nvml = getenv("PLIMSOLL_NVML"), .root = getenv("PLIMSOLL_ROOT")};
    int wrong = top_check(a);
    if (wrong)
        return wrong;
    if (a->history)
        return plim_top_history(a);
    if (plim_live_open(&o, &live, &err))
        return plim_console_error(&err);
    bool watch = !a->once && !a->ticks && a->render == PLIM_TEXT && isatty(STDOUT_FILENO) &&
                 isatty(STDIN_FILENO);
    int code = a->prometheus || a->log    ? top_export(a, live)
               : !watch                   ? top_print(a, live)
               : !plim_top_view_missing() ? plim_top_view(a, live, top_now_ms)
                                          : plim_console_usage("%s", plim_top_view_missing());
    plim_live_close(live);
    return code;
}

const plim_cmd plim_cmd_top = {
    .name = "top",
    .usage = "",
    .doc = "show the GPUs of this machine and who has their memory",
    .about = "On a terminal it is redrawn every second, and 'h' lists the keys. Exit status "
             "1 means that no GPU was found; the report says what was looked for.",
    .examples = {"plimsoll top", "plimsoll top --once --json"},
    .options = PLIM_USE_TOP | PLIM_USE_CSV | PLIM_USE_TEXT,
    .run = top_run,
};
