/* test_diff.c -- the alignment of two tapes against a slow one, and what is made of it. */
#include <stdio.h>
#include <stdlib.h>

#include "diff/diff.h"
#include "unit.h"

enum { LONGEST = 40 };

/* ---- the alignment --------------------------------------------------------------- */

static plim_requests random_requests(plim_request *at, uint32_t n, uint32_t sizes,
                                     uint32_t *seed)
{
    for (uint32_t i = 0; i < n; i++) {
        *seed = *seed * 1664525u + 1013904223u;
        uint64_t bytes = 512 * (1 + (*seed >> 16) % sizes);
        at[i] = (plim_request){
            .bytes = bytes, .low = bytes, .high = bytes, .frees = (*seed >> 30) & 1};
    }
    return (plim_requests){at, n};
}

/* The most partners that two sequences can have: the table of the textbook. */
static uint32_t longest_common(const plim_requests *a, const plim_requests *b,
                               const plim_likeness *how)
{
    uint32_t best[LONGEST + 1][LONGEST + 1] = {{0}};
    for (uint32_t i = 1; i <= a->n; i++)
        for (uint32_t k = 1; k <= b->n; k++)
            best[i][k] = plim_request_alike(&a->at[i - 1], &b->at[k - 1], how)
                             ? best[i - 1][k - 1] + 1
                             : PLIM_MAX(best[i - 1][k], best[i][k - 1]);
    return best[a->n][b->n];
}

static void test_alignment(void **state)
{
    (void)state;
    static const plim_likeness how[] = {{.size = true}, {.size = true, .times = 2, .per = 1}};
    uint32_t seed = 7;
    for (uint32_t round = 0; round < 4000; round++) {
        plim_request x[LONGEST], y[LONGEST];
        uint32_t partner[LONGEST + 1], found = 0, last = 0;
        plim_requests a = random_requests(x, round % (LONGEST + 1), 1 + round % 5, &seed);
        plim_requests b =
            random_requests(y, (round / 41) % (LONGEST + 1), 1 + round % 5, &seed);
        const plim_likeness *likeness = &how[round & 1];
        for (uint32_t i = 0; i < a.n; i++)
            partner[i] = PLIM_NONE;
        CHECK("is aligned", plim_align(&a, &b, likeness, partner, NULL) == PLIM_OK);
        for (uint32_t i = 0; i < a.n; i++) {
            if (partner[i] == PLIM_NONE)
                continue;
            CHECK("partners ascend", partner[i] >= last && partner[i] < b.n);
            CHECK("and are alike", plim_request_alike(&x[i], &y[partner[i]], likeness));
            last = partner[i] + 1;
            found++;
        }
        CHECK("as many as can be", found == longest_common(&a, &b, likeness));
    }
}

/* Partners that are given stay, and divide the rest. */
static void test_gaps(void **state)
{
    (void)state;
    plim_request x[3], y[3];
    uint32_t partner[3] = {PLIM_NONE, 0, PLIM_NONE}, seed = 1;
    plim_requests a = random_requests(x, 3, 1, &seed), b = random_requests(y, 3, 1, &seed);
    const plim_likeness any = {.size = false};
    for (int i = 0; i < 3; i++)
        x[i].frees = y[i].frees = false;
    CHECK("is aligned", plim_align(&a, &b, &any, partner, NULL) == PLIM_OK);
    CHECK("nothing is left before it", partner[0] == PLIM_NONE);
    CHECK("it stays", partner[1] == 0);
    CHECK("the next ones follow", partner[2] == 1 || partner[2] == 2);
}

/* Long sequences with nothing in common end, and in time. */
static void test_bounds(void **state)
{
    (void)state;
    enum { MANY = 30000 };
    plim_arena arena = PLIM_ARENA_INIT;
    plim_request *x = PLIM_NEW_N(&arena, plim_request, MANY),
                 *y = PLIM_NEW_N(&arena, plim_request, MANY);
    uint32_t *partner = PLIM_NEW_N(&arena, uint32_t, MANY), seed = 3, last = 0;
    plim_requests a = random_requests(x, MANY, 1000, &seed),
                  b = random_requests(y, MANY, 1000, &seed);
    const plim_likeness size = {.size = true};
    for (uint32_t i = 0; i < MANY; i++)
        partner[i] = PLIM_NONE;
    CHECK("is aligned", plim_align(&a, &b, &size, partner, NULL) == PLIM_OK);
    for (uint32_t i = 0; i < MANY; i++)
        if (partner[i] != PLIM_NONE) {
            CHECK("partners ascend", partner[i] >= last && partner[i] < MANY);
            last = partner[i] + 1;
        }
    CHECK("some are found", last > 0);
    plim_arena_free(&arena);
}

/* ---- tapes ----------------------------------------------------------------------- */

/* The names of the causes, in their order, for two tapes given as text. */
static plim_str diff_texts(plim_arena *a, const char *one, const char *other, bool told,
                           plim_tape_diff *d)
{
    plim_tape *tapes = PLIM_NEW_N(a, plim_tape, 2);
    const char *texts[] = {one, other};
    plim_cause causes[PLIM_CAUSES_MOST];
    plim_buf names;
    uint32_t n;
    for (int i = 0; i < 2; i++) {
        plim_tape_init(&tapes[i], a);
        plim_bytes text = {.p = (const uint8_t *)texts[i], .n = strlen(texts[i])};
        CHECK(texts[i], plim_tape_parse(&tapes[i], text, NULL) == PLIM_OK);
    }
    *d = (plim_tape_diff){.arena = a,
                          .a = {.tape = &tapes[0], .letter = "A", .told = true, .batch = 4},
                          .b = {.tape = &tapes[1], .letter = "B", .told = told}};
    CHECK("differ", plim_diff_tapes(d, NULL) == PLIM_OK);
    CHECK("causes", plim_diff_causes(d, causes, &n, NULL) == PLIM_OK);
    plim_buf_init(&names, a);
    for (uint32_t i = 0; i < n; i++)
        plim_buf_printf(&names, "%s%s", i ? " " : "", causes[i].name);
    return plim_buf_str(&names);
}

#define HEAD "plimsoll-tape 1\n@ load load\n"
#define BASE                                                                                  \
    HEAD "+ 1 4096 parameter a.weight\n+ 2 1024 parameter b.weight\n@ 0 inputs\n"             \
         "+ 3 800 input x\n@ 0 forward a\n+ 4 1600 activation a.out\n@ 0 forward b\n"         \
         "+ 5 2400 output b.out\n@ 0 backward b\n+ 6 1024 gradient b.weight.grad\n- 4\n"      \
         "+ 7 4096 gradient a.weight.grad\n@ 1 inputs\n"
#define NEXT "- 6\n- 7\n@ 1 forward a\n+ 8 1600 activation a.out\n"
#define LAST "- 5\n+ 9 2400 output b.out\n"

static void test_causes(void **state)
{
    (void)state;
    static const struct {
        const char *why, *a, *b, *causes;
        bool told;
        uint32_t equal, resized, only_a, only_b;
    } rows[] = {
        {"the same tape", BASE NEXT LAST, BASE NEXT LAST, "", true, 13, 0, 0, 0},
        {"the same, as a snapshot", BASE NEXT LAST, BASE NEXT LAST, "", false, 13, 0, 0, 0},
        {"twice the batch", BASE NEXT LAST,
         HEAD "+ 1 4096 parameter a.weight\n+ 2 1024 parameter b.weight\n@ 0 inputs\n"
              "+ 3 1600 input x\n@ 0 forward a\n+ 4 3200 activation a.out\n@ 0 forward b\n"
              "+ 5 4800 output b.out\n@ 0 backward b\n+ 6 1024 gradient b.weight.grad\n- 4\n"
              "+ 7 4096 gradient a.weight.grad\n@ 1 inputs\n- 6\n- 7\n@ 1 forward a\n"
              "+ 8 3200 activation a.out\n- 5\n+ 9 4800 output b.out\n",
         "sizes", true, 6, 7, 0, 0},
        {"outputs in a list", BASE NEXT LAST, BASE NEXT "+ 9 2400 output b.out\n", "kept",
         true, 12, 0, 1, 0},
        {"the same in a snapshot", BASE NEXT LAST, BASE NEXT "+ 9 2400 output b.out\n", "kept",
         false, 12, 0, 1, 0},
        {"gradients that are zeroed", BASE NEXT LAST,
         BASE "@ 1 forward a\n+ 8 1600 activation a.out\n" LAST, "gradients", true, 11, 0, 2,
         0},
        {"optimizer state", BASE NEXT LAST,
         BASE "+ 10 1024 optimizer_state b.weight.exp_avg\n"
              "+ 11 4096 optimizer_state a.weight.exp_avg\n" NEXT LAST,
         "optimizer", true, 13, 0, 0, 2},
        {"state in a snapshot", BASE NEXT LAST, BASE "+ 10 1024\n+ 11 4096\n" NEXT LAST,
         "optimizer", false, 13, 0, 0, 2},
        {"a workspace", BASE NEXT LAST, BASE "+ 10 77 workspace cublas\n- 10\n" NEXT LAST,
         "workspace", true, 13, 0, 0, 2},
        {"another model", BASE NEXT LAST, HEAD "+ 1 4 parameter z\n@ 0 inputs\n", "model",
         true, 0, 0, 13, 1},
        {"one step more", BASE NEXT LAST, BASE NEXT LAST "@ 2 inputs\n+ 10 800 input x\n",
         "steps", true, 13, 0, 0, 1},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_tape_diff d;
        plim_str causes = diff_texts(&a, rows[i].a, rows[i].b, rows[i].told, &d);
        CHECK_STR(rows[i].why, causes.p ? causes.p : "", rows[i].causes);
        CHECK(rows[i].why, d.n_equal == rows[i].equal && d.n_resized == rows[i].resized);
        CHECK(rows[i].why, d.n_only_a == rows[i].only_a && d.n_only_b == rows[i].only_b);
        CHECK(rows[i].why, d.parts == (rows[i].resized + rows[i].only_a + rows[i].only_b > 0));
        plim_arena_free(&a);
    }
}

/* A size that is estimated equals what was measured within its bounds. */
static void test_estimated(void **state)
{
    (void)state;
    static const struct {
        const char *why, *measured;
        bool parts;
    } rows[] = {{"between the bounds", "+ 1 700\n", false},
                {"below them", "+ 1 99\n", true},
                {"above them", "+ 1 901\n", true}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_tape_diff d;
        char other[64];
        snprintf(other, sizeof other, "plimsoll-tape 1\n%s", rows[i].measured);
        diff_texts(
            &a, "plimsoll-tape 1\n+ 1 500 workspace w certainty=estimated low=100 high=900\n",
            other, false, &d);
        CHECK(rows[i].why, d.parts == rows[i].parts);
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_alignment), cmocka_unit_test(test_gaps),
        cmocka_unit_test(test_bounds),    cmocka_unit_test(test_causes),
        cmocka_unit_test(test_estimated),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
