/* fuzz_history.c -- `plimsoll top --history` and `--log` on a database that is not what it should
 * be.  What can be read can be printed; a reading is added as a whole or not at all; and neither
 * goes on for ever. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../cli/top_log.h"
#include "base/base.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { SECONDS_MOST = 20 }; /* with sanitizers, on a busy machine */

static void check_that(bool holds)
{
    if (!holds)
        abort();
}

static char folder[64], path[96];

static void remove_files(void)
{
    static const char *const ends[] = {"", "-wal", "-shm", "-journal"};
    char file[128];
    for (size_t i = 0; i < PLIM_COUNT(ends); i++) {
        snprintf(file, sizeof file, "%s%s", path, ends[i]);
        unlink(file);
    }
}

static void remove_folder(void)
{
    remove_files();
    rmdir(folder);
}

static void make_folder(void)
{
    const char *tmp = access("/dev/shm", W_OK) ? "/tmp" : "/dev/shm"; /* not a disk */
    snprintf(folder, sizeof folder, "%.40s/plimsoll-log-XXXXXX", tmp);
    if (!mkdtemp(folder))
        abort();
    snprintf(path, sizeof path, "%s/log", folder);
    atexit(remove_folder);
}

static void write_file(const uint8_t *p, size_t n)
{
    FILE *f = fopen(path, "wb");
    if (!f || (n && fwrite(p, 1, n, f) < n) || fclose(f))
        abort();
}

static int count_text(void *ud, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ud += n;
    return 0;
}

/* Devices that were read; -1: an error, which says something. */
static int read_history(void)
{
    plim_err err = PLIM_ERR_INIT;
    plim_memory memory = {.blocks = NULL};
    plim_history h;
    plim_args a = {.history = path};
    plim_status st = plim_top_history_read(&a, &memory, &h, &err);
    check_that(!st == !err.msg[0] && st == err.code);
    for (int form = 0; !st && form <= PLIM_CSV; form++) {
        size_t printed = 0;
        check_that(
            !plim_history_print(&h, (plim_render)form, NULL, count_text, &printed, NULL));
        check_that(printed || (form == PLIM_TEXT && !h.n_devices));
    }
    int devices = st ? -1 : (int)h.n_devices;
    plim_memory_free(&memory);
    return devices;
}

static bool add_reading(void)
{
    const plim_live_device device = {.source = "nvml", .name = "NVIDIA T4", .uuid = "GPU-new"};
    const plim_live_process process = {
        .pid = 42, .started = 7, .kind = "compute", .memory = 1};
    const plim_live_view v = {.time_ms = INT64_C(1795387136000),
                              .host = "node7",
                              .devices = &device,
                              .n_devices = 1,
                              .processes = &process,
                              .n_processes = 1};
    plim_err err = PLIM_ERR_INIT;
    plim_top_log *l = NULL;
    plim_status st = plim_top_log_open(path, 3600, &l, &err);
    if (!st)
        st = plim_top_log_add(l, &v, &err);
    check_that(!st == !err.msg[0] && st == err.code);
    plim_top_log_close(l);
    return !st;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    time_t began = time(NULL);
    if (!folder[0])
        make_folder();
    write_file(p, n);
    read_history();
    if (add_reading())
        read_history();
    remove_files();
    check_that(time(NULL) - began < SECONDS_MOST);
    return 0;
}
