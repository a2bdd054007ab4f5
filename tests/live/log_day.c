/* log_day.c FILE -- a fifth of a day of readings into a log: as it grows, memory does not. */
#include "../../cli/top_log.h"

#include <malloc.h>
#include <stdio.h>

enum { GPUS = 2, EACH = 4, BEFORE = 2000, READINGS = 17280, MORE_BYTES = 4096 };

static plim_status add_reading(plim_top_log *l, int i, plim_err *err)
{
    plim_live_device devices[GPUS] = {{0}};
    plim_live_process processes[GPUS * EACH] = {{0}};
    for (uint32_t d = 0; d < GPUS; d++) {
        devices[d] = (plim_live_device){.index = d,
                                        .source = "nvml",
                                        .name = "NVIDIA T4",
                                        .uuid = d ? "GPU-1" : "GPU-0",
                                        .total = (uint64_t)16 << 30,
                                        .used = (uint64_t)i << 20,
                                        .free = (uint64_t)(16384 - i % 16384) << 20};
        for (uint32_t p = 0; p < EACH; p++)
            processes[d * EACH + p] =
                (plim_live_process){.device = d,
                                    .pid = 100 + d * EACH + p + (uint64_t)i / 500,
                                    .started = 7,
                                    .kind = "compute",
                                    .memory = (uint64_t)(i + (int)p) << 16,
                                    .user = "alice",
                                    .command = "python"};
    }
    plim_live_view v = {.time_ms = INT64_C(1795387136000) + i * INT64_C(1000),
                        .host = "node7",
                        .devices = devices,
                        .n_devices = GPUS,
                        .processes = processes,
                        .n_processes = GPUS * EACH};
    return plim_top_log_add(l, &v, err);
}

static size_t bytes_in_use(void) { return mallinfo2().uordblks + mallinfo2().hblkhd; }

int main(int argc, char **argv)
{
    plim_err err = PLIM_ERR_INIT;
    plim_top_log *l = NULL;
    size_t before = 0;
    if (argc != 2 || plim_top_log_open(argv[1], 0, &l, &err))
        return printf("%s\n", err.msg), 2;
    for (int i = 0; i < READINGS; i++) {
        if (add_reading(l, i, &err))
            return printf("reading %d: %s\n", i, err.msg), 2;
        if (i == BEFORE)
            before = bytes_in_use();
    }
    size_t after = bytes_in_use();
    plim_top_log_close(l);
    printf("%zu bytes after %d readings, %zu after %d\n", before, BEFORE, after, READINGS);
    return after > before + MORE_BYTES;
}
