/* test_nomem.c -- each allocation of each scenario fails once: the answer is PLIM_ENOMEM, never
 * another error, another result or a crash, and nothing is left behind.
 *
 * PLIMSOLL_EVERY=1: every allocation; N: every N-th, from a place that differs from one scenario
 * to the next (default: such that a scenario takes some 200 runs), and of large models ten times as
 * many as the 20 that are usual. */
#include <stdio.h>
#include <stdlib.h>

#include <plimsoll_vgpu.h>

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
    uint64_t step = every ? strtoull(every, NULL, 10) : 1;
    if (!every || usual < 100) /* a large one has too many for all */
        step = calls / (usual * (every ? 10 : 1));
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

/* ---- the pretend GPU: a script must be able to go on ---------------------------------- */

static int drop_text(void *ud, const char *text, size_t n)
{
    (void)ud, (void)text, (void)n;
    return 0;
}

/* Counts what was refused for want of memory; no other error may come. */
static void note_status(plim_status st, const plim_err *err, int *refused)
{
    if (st && (st != PLIM_ENOMEM || err->code != PLIM_ENOMEM))
        fail_msg("status %d, '%s'", st, err->msg);
    *refused += st != PLIM_OK;
}

#define TRY(call)                                                                             \
    do {                                                                                      \
        plim_err err = PLIM_ERR_INIT;                                                         \
        note_status((call), &err, refused);                                                   \
    } while (0)

static void train_on(plim_vgpu *d, int *refused)
{
    enum { BLOCKS = 24 };
    const int64_t dim[] = {1024, 256};
    const plim_vgpu_tensor x = {
        .dtype = PLIM_F32, .rank = 2, .dim = {64, 64}, .stride = {64, 1}};
    const plim_vgpu_arg args[] = {
        {.name = "self", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = &x},
        {.name = "mat2", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = &x}};
    for (int step = 0; step < 4; step++) {
        uint32_t block[BLOCKS];
        TRY(plim_vgpu_mark(d, step, PLIM_PHASE_FORWARD, "aten::addmm", &err));
        for (int i = 0; i < BLOCKS; i++) {
            char line[32];
            uint64_t addr;
            snprintf(line, sizeof line, "train.py:%d", i);
            plim_vgpu_tag tag = {.line = line,
                                 .op = "aten::empty",
                                 .dtype = PLIM_F32,
                                 .rank = 2,
                                 .dim = dim,
                                 .category = PLIM_CAT_COUNT};
            block[i] = PLIM_VGPU_NONE;
            TRY(plim_vgpu_malloc(d, (uint64_t)(i + 1) << 20, 0, &tag, &block[i], &addr, &err));
            if (block[i] != PLIM_VGPU_NONE)
                TRY(plim_vgpu_label(d, block[i], PLIM_CAT_ACTIVATION, "x", &err));
            TRY(plim_vgpu_note(d, line, "loss.item() read 0", &err));
        }
        const plim_vgpu_kernel_call call = {.args = args, .n_args = 2};
        plim_vgpu_result out = {.block = PLIM_VGPU_NONE};
        uint32_t n = 0;
        bool oom;
        TRY(plim_vgpu_kernel(d, "mm", &call, &out, 1, &n, &oom, &err));
        if (n)
            TRY(plim_vgpu_free(d, out.block, &err));
        for (int i = 0; i < BLOCKS; i++)
            if (block[i] != PLIM_VGPU_NONE)
                TRY(plim_vgpu_free(d, block[i], &err));
    }
}

static void run_script(uint64_t fail, int *refused)
{
    plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
    plim_vgpu *d = NULL;
    plim_vgpu_report *r = NULL;
    o.gpu = "t4";
    plim_memory_fail_in = fail;
    TRY(plim_vgpu_open(&o, &d, &err));
    if (!d)
        return;
    plim_vgpu_history(d, 64, true);
    train_on(d, refused);
    TRY(plim_vgpu_report_make(d, &r, &err));
    if (r) {
        TRY(plim_vgpu_report_print(r, PLIM_TEXT, NULL, drop_text, NULL, &err));
        TRY(plim_vgpu_report_print(r, PLIM_JSON, NULL, drop_text, NULL, &err));
    }
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

static void test_pretend_gpu(void **state)
{
    enum { MOST = 1 << 30 };
    (void)state;
    const char *every = getenv("PLIMSOLL_EVERY");
    uint64_t before = plim_memory_held();
    int refused = 0, runs = 0;
    run_script(MOST, &refused);
    uint64_t calls = MOST - plim_memory_fail_in;
    CHECK("nothing is refused", !refused && calls > 300);
    uint64_t step = every ? PLIM_MAX(strtoull(every, NULL, 10), 1) : calls / 200;
    for (uint64_t n = 1; n <= calls; n += step, runs++)
        run_script(n, &refused);
    plim_memory_fail_in = 0;
    CHECK("it was noticed", refused > 0);
    CHECK("nothing is left behind", plim_memory_held() == before);
    print_message("%d runs on a pretend GPU, %d calls refused\n", runs, refused);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_scenarios),
                                       cmocka_unit_test(test_pretend_gpu),
                                       cmocka_unit_test(test_families)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
