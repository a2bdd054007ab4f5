/* test_nomem.c -- each allocation of each scenario fails once: the answer is PLIM_ENOMEM, never
 * another error, another result or a crash, and nothing is left behind.
 *
 * PLIMSOLL_EVERY=1: every allocation; N: every N-th, from a place that differs from one scenario
 * to the next (default: such that a scenario takes some 200 runs, and a large one 20). */
#include <stdio.h>
#include <stdlib.h>

#include "scenarios.h"
#include "unit.h"

/* Adds to *runs; `usual`: how many there are, about. */
static void check_scenario(const scenario *c, uint64_t usual, uint64_t shift, uint64_t *runs)
{
    enum { MOST = 1 << 30 };
    const char *every = getenv("PLIMSOLL_EVERY");
    uint64_t before = plim_memory_held();
    answer whole, a;
    ask_scenario(c, MOST, &whole);
    uint64_t calls = MOST - plim_memory_fail_in;
    if (whole.st)
        fail_msg("%s %s: %s", c->model, c->settings, whole.err.msg);
    uint64_t step = every ? strtoull(every, NULL, 10) : calls / usual;
    step = PLIM_MAX(step, (uint64_t)1);
    for (uint64_t n = 1 + shift % step; n <= calls; n += step, ++*runs) {
        ask_scenario(c, n, &a);
        if (plim_memory_fail_in)
            fail_msg("%s %s: %d calls less than before", c->model, c->settings,
                     (int)plim_memory_fail_in);
        if (a.st != PLIM_ENOMEM || a.err.code != PLIM_ENOMEM)
            fail_msg("%s %s: allocation %d of %d failed: status %d, '%s'", c->model,
                     c->settings, (int)n, (int)calls, a.st, a.err.msg);
        plim_arena_free(&a.arena);
    }
    ask_scenario(c, 0, &a);
    CHECK("the same answer afterwards",
          a.st == PLIM_OK && plim_str_eq(plim_buf_str(&a.text), plim_buf_str(&whole.text)));
    plim_arena_free(&a.arena);
    plim_arena_free(&whole.arena);
    if (plim_memory_held() != before)
        fail_msg("%s %s: %d bytes were left behind", c->model, c->settings,
                 (int)(plim_memory_held() - before));
}

static void check_table(const scenario *table, size_t n, uint64_t usual)
{
    uint64_t runs = 0;
    const char *only = getenv("PLIMSOLL_ONLY"); /* scenarios of this model */
    for (size_t i = 0; i < n; i++)
        if (!only || !strcmp(only, table[i].model))
            check_scenario(&table[i], usual, i * 17, &runs);
    print_message("%d scenarios, %d allocations that failed\n", (int)n, (int)runs);
}

static void test_scenarios(void **state)
{
    (void)state;
    check_table(scenarios, n_scenarios, 200);
}

static void test_families(void **state)
{
    (void)state;
    check_table(families, n_families, 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenarios),
                                       cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
