/* bench_parse.c -- how long a model file takes to become a graph.
 *
 *     bench_parse [FILE]        default: tests/data/vit_b_16.pt2, 1 MB
 *
 * The file stays mapped, as for a second question to the same file; each run
 * has a fresh arena. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "import/import.h"

enum { RUNS = 101 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv)
{
    const char *path = argc > 1 ? argv[1] : PLIM_SOURCE_DIR "/tests/data/vit_b_16.pt2";
    static double ms[RUNS];
    plim_bytes file = {0};
    plim_err err = PLIM_ERR_INIT;
    uint32_t nodes = 0;
    if (plim_file_read(&file, path, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    for (int i = 0; i < RUNS && !err.code; i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g;
        double from = now_ms();
        const plim_importer *im = plim_importer_probe(file);
        if (!im)
            plim_fail(&err, PLIM_EFORMAT, 0, "no known format");
        else if (plim_graph_init(&g, &a, &err) == PLIM_OK &&
                 !im->read(&g, &(plim_source){.bytes = file}, NULL, &err))
            nodes = g.n_nodes;
        ms[i] = now_ms() - from;
        plim_arena_free(&a);
    }
    if (err.code) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    qsort(ms, RUNS, sizeof ms[0], by_value);
    printf("parse: %llu bytes, %u nodes: %.2f ms (best %.2f), %.0f MB/s\n",
           (unsigned long long)file.n, (unsigned)nodes, ms[RUNS / 2], ms[0],
           (double)file.n / 1e3 / ms[RUNS / 2]);
    plim_file_close(&file);
    return 0;
}
