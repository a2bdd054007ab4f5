/* bench_replay.c -- events a second through the caching allocator.
 *
 * Tapes of a million events, run RUNS times each; the median counts.  "training"
 * repeats a step: long-lived weights, activations freed in reverse, temporaries
 * in between.  "random" draws sizes from 1 byte to 64 MiB and frees at random. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "alloc/sim.h"

enum { EVENTS = 1000000, RUNS = 9 };

static uint64_t draw(uint64_t *x)
{
    *x = *x * 6364136223846793005u + 1442695040888963407u;
    return *x >> 33;
}

static uint32_t add(plim_tape *t, uint64_t bytes)
{
    plim_storage s = {.bytes = bytes, .category = PLIM_CAT_ACTIVATION};
    return plim_tape_alloc(t, &s);
}

/* About as many live storages as `live` says. */
static void make_random(plim_tape *t, uint32_t live, uint64_t most)
{
    static uint32_t held[1 << 16];
    uint32_t n = 0;
    uint64_t x = 1;
    while (t->n_events < EVENTS) {
        bool full = n >= live || (n > live / 2 && draw(&x) % 2);
        if (full) {
            uint32_t k = (uint32_t)(draw(&x) % n);
            plim_tape_free_storage(t, held[k]);
            held[k] = held[--n];
        } else {
            held[n++] = add(t, 1 + (draw(&x) % most >> draw(&x) % 12));
        }
    }
}

static void make_training(plim_tape *t)
{
    enum { LAYERS = 200 };
    static uint32_t kept[LAYERS];
    uint64_t x = 2;
    for (uint32_t i = 0; i < LAYERS; i++)
        add(t, 4 + draw(&x) % (8u << 20)); /* weights stay */
    for (int step = 0; t->n_events < EVENTS; step++) {
        plim_tape_mark(t, step, PLIM_PHASE_FORWARD, PLIM_STR("forward"));
        for (uint32_t i = 0; i < LAYERS; i++) {
            uint64_t bytes = 4096 + (i * 2654435761u) % (24u << 20);
            uint32_t tmp = add(t, bytes / 3 + 1);
            kept[i] = add(t, bytes);
            plim_tape_free_storage(t, tmp);
        }
        plim_tape_mark(t, step, PLIM_PHASE_BACKWARD, PLIM_STR("backward"));
        for (uint32_t i = LAYERS; i-- > 0;) {
            uint32_t grad = add(t, 4096 + (i * 2654435761u) % (24u << 20));
            plim_tape_free_storage(t, kept[i]);
            plim_tape_free_storage(t, grad);
        }
    }
}

static double seconds(void)
{
    struct timespec ts;
    clock_gettime(CLOCK_MONOTONIC, &ts);
    return (double)ts.tv_sec + (double)ts.tv_nsec * 1e-9;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static int report(const char *name, const plim_tape *t, const char *conf, unsigned what)
{
    double took[RUNS];
    plim_alloc_options o = {.conf = plim_str_of(conf)};
    plim_sim sim = {0};
    plim_err err = PLIM_ERR_INIT;
    for (int i = 0; i < RUNS; i++) {
        plim_arena a = PLIM_ARENA_INIT;
        double begin = seconds();
        plim_status st = plim_sim_run(&a, t, &o, what, &sim, &err);
        took[i] = seconds() - begin;
        plim_arena_free(&a);
        if (st) {
            fprintf(stderr, "bench_replay: %s\n", err.msg);
            return 1;
        }
    }
    qsort(took, RUNS, sizeof took[0], by_value);
    printf("replay %-22s %8u events  %6.1f M events/s  (median of %d; peak %" PRIu64
           " reserved)\n",
           name, t->n_events, t->n_events / took[RUNS / 2] * 1e-6, RUNS, sim.peak_reserved);
    return 0;
}

int main(void)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_tape training, small, large;
    int bad = 0;
    plim_tape_init(&training, &a);
    plim_tape_init(&small, &a);
    plim_tape_init(&large, &a);
    make_training(&training);
    make_random(&small, 500, 64u << 20);
    make_random(&large, 50000, 1u << 20);
    bad |= report("training", &training, "", 0);
    bad |= report("training, all results", &training, "", PLIM_SIM_ALL);
    bad |= report("training, expandable", &training, "expandable_segments:True", 0);
    bad |= report("random, 500 live", &small, "", 0);
    bad |= report("random, 50000 live", &large, "", 0);
    plim_arena_free(&a);
    return bad;
}
