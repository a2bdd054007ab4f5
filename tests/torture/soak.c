/* soak.c -- many questions in one process: the answers stay the same, and memory does not grow.
 *
 *     torture_soak [ROUNDS] [SEED]
 *
 * Each round asks a scenario of scenarios.c, drawn by chance, with handles of its own.  After the first tenth,
 * the resident memory may grow by 8 MiB, whatever the number of rounds.  Exit status 1: it did not hold. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "scenarios.h"

enum { GROWTH = 8 << 20 };

/* xorshift64 */
static uint64_t draw(uint64_t *state)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return *state;
}

static uint64_t resident_bytes(void)
{
    unsigned long all = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%lu %lu", &all, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return (uint64_t)resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

/* Asks and compares with *first, or, the first time, keeps the answer there; false: it is another, or none. */
static bool ask(const scenario *c, plim_arena *kept, plim_str *first)
{
    answer a;
    ask_scenario(c, 0, &a);
    plim_str got = plim_buf_str(&a.text);
    if (!a.st && !first->p)
        *first = plim_arena_str(kept, got);
    bool same = !a.st && first->p && plim_str_eq(*first, got);
    if (!same)
        fprintf(stderr, "torture_soak: %s %s: %s\n", c->model, c->settings,
                a.st ? a.err.msg : "it has another answer");
    plim_arena_free(&a.arena);
    return same;
}

int main(int argc, char **argv)
{
    uint64_t rounds = argc > 1 ? strtoull(argv[1], NULL, 10) : 100000;
    uint64_t state = argc > 2 ? strtoull(argv[2], NULL, 10) : 1, early = 0, most = 0;
    uint64_t held = plim_memory_held();
    plim_arena kept = PLIM_ARENA_INIT;
    plim_str *first = PLIM_NEW_N(&kept, plim_str, n_scenarios);
    int wrong = !first || !state;
    for (uint64_t i = 0; i < rounds && !wrong; i++) {
        size_t at = draw(&state) % n_scenarios;
        wrong = !ask(&scenarios[at], &kept, &first[at]);
        uint64_t now = resident_bytes();
        if (i <= rounds / 10)
            early = PLIM_MAX(early, now);
        most = PLIM_MAX(most, now);
    }
    plim_arena_free(&kept);
    if (most > early + GROWTH || plim_memory_held() != held) {
        fprintf(stderr, "torture_soak: %" PRIu64 " bytes resident early, %" PRIu64 " later\n",
                early, most);
        wrong = 1;
    }
    printf("%" PRIu64 " rounds of %zu scenarios: resident %" PRIu64 " KiB early, %" PRIu64
           " KiB at most; %s\n",
           rounds, n_scenarios, early >> 10, most >> 10, wrong ? "wrong" : "ok");
    return wrong;
}
