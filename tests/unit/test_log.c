/* test_log.c -- figures in logs: lines as the programs print them, each with what they mean; what
 * looks like one and is none. */
#include "trace/log.h"
#include <stdlib.h>

#include "texts.h"
#include "unit.h"

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)
#define NONE UINT64_MAX

typedef struct log_case {
    const char *line, *source;
    uint64_t bytes[PLIM_LOG_QUANTITIES]; /* requested, allocated, reserved, device */
    uint64_t within;                     /* of each that is known */
} log_case;

static const log_case cases[] = {
    {"| Requested memory      |  22304 KiB |  23719 KiB |  26734 KiB |   4430 KiB |",
     "PyTorch",
     {23719 * KIB, NONE, NONE, NONE},
     KIB + 1},
    {"| GPU reserved memory   |    18 GiB |     20 GiB |     20 GiB |      0 B   |",
     "PyTorch",
     {NONE, NONE, 20 * GIB, NONE},
     GIB + 1},
    {" 'allocated_bytes.all.peak': 188059904,", "PyTorch", {NONE, 188059904, NONE, NONE}, 0},
    {"torch.cuda.max_memory_reserved() = 13.50 GB",
     "PyTorch",
     {NONE, NONE, 13 * GIB + GIB / 2, NONE},
     GIB / 100 + 1},
    {"max_memory_allocated: 1,234,567", "PyTorch", {NONE, 1234567, NONE, NONE}, 0},
    {"[Rank 0] (after 2 iterations) memory (MB) | allocated: 26699.47 | max allocated: 57438.81 "
     "| reserved: 60204.0 | max reserved: 60204.0",
     "Megatron-LM",
     {NONE, 57438 * MIB + 849346, 60204 * MIB, NONE},
     NONE},
    {"[2026-01-02 10:11:12,131] [INFO] [utils.py:782:see_memory_usage] MA 0.5 GB         Max_MA "
     "0.75 GB         CA 0.9 GB         Max_CA 2 GB ",
     "DeepSpeed",
     {NONE, GIB / 4 * 3, 2 * GIB, NONE},
     NONE},
    {"step: 10  loss:  4.0120  memory: 39.50GiB(41.57%)  tps: 8,125",
     "torchtitan",
     {NONE, NONE, 39 * GIB + GIB / 2, NONE},
     GIB / 100 + 1},
    {"\tGPU peak memory allocation: 13.25 GiB",
     "torchtune",
     {NONE, 13 * GIB + GIB / 4, NONE, NONE},
     GIB / 100 + 1},
    {"Step 1 | loss:1.2 peak_memory_alloc:13.25 peak_memory_reserved:14",
     "torchtune",
     {NONE, 13 * GIB + GIB / 4, 14 * GIB, NONE},
     NONE},
    {"|  0%   45C    P8              10W / 300W |   1234MiB / 24564MiB |      0%      Default |",
     "nvidia-smi",
     {NONE, NONE, NONE, 1234 * MIB},
     MIB + 1},
    {"| N/A   45C    P0    N/A /  N/A |    512MiB /  8192MiB |      0%      Default |",
     "nvidia-smi",
     {NONE, NONE, NONE, 512 * MIB},
     MIB + 1},
    /* no figures */
    {"the allocated memory is large", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"| Allocated memory      |", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"max_memory_allocated / 2**30 = 13.5", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"max_memory_allocated: 13.5", NULL, {NONE, NONE, NONE, NONE}, 0}, /* of what? */
    {"max_memory_allocated: 99999999999999999999999", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"climax_memory: 5, max_main: 4 GB", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"host memory: 3.5GiB of 8", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"max_ma", NULL, {NONE, NONE, NONE, NONE}, 0},
    {"", NULL, {NONE, NONE, NONE, NONE}, 0},
};

static plim_log read_text(plim_str text)
{
    plim_log log;
    plim_arena a = PLIM_ARENA_INIT;
    plim_log_take(plim_log_reader_new(&a, &log), text, true);
    plim_arena_free(&a);
    return log;
}

static void test_lines(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(cases); i++) {
        const log_case *c = &cases[i];
        plim_log log = read_text(plim_str_of(c->line));
        CHECK(c->line, (log.source == NULL) == (c->source == NULL));
        CHECK(c->line, !c->source || !strcmp(log.source, c->source));
        CHECK(c->line, log.lines == (c->source ? 1u : 0u));
        for (int q = 0; q < PLIM_LOG_QUANTITIES; q++) {
            const plim_log_figure *f = &log.figure[q];
            CHECK(c->line, f->known == (c->bytes[q] != NONE));
            if (!f->known)
                continue;
            CHECK(c->line, f->bytes == c->bytes[q]);
            CHECK(c->line, c->within == NONE || f->within == c->within);
        }
    }
}

/* The largest of a quantity counts, of all lines. */
static void test_largest(void **state)
{
    (void)state;
    static const char text[] = "max_memory_allocated: 100\r\nmax_memory_allocated: 300\n"
                               "max_memory_allocated: 200\nMax_CA 1 GB";
    plim_log log = read_text(PLIM_STR(text));
    CHECK("largest", log.figure[PLIM_LOG_ALLOCATED].bytes == 300);
    CHECK("last line without an end", log.figure[PLIM_LOG_RESERVED].bytes == GIB);
    CHECK("the first source", !strcmp(log.source, "PyTorch"));
    CHECK("lines", log.lines == 4);
}

/* A file of another kind is not taken for a log. */
static void test_detect(void **state)
{
    (void)state;
    static const char binary[] = "max_memory_allocated: 100\0\1";
    CHECK("text", plim_log_detect((plim_bytes){.p = (const uint8_t *)"a", .n = 1}));
    CHECK("binary",
          !plim_log_detect((plim_bytes){.p = (const uint8_t *)binary, .n = sizeof binary}));
    CHECK("JSON", !plim_log_detect((plim_bytes){.p = (const uint8_t *)"{}", .n = 2}));
    CHECK("rank", plim_log_detect((plim_bytes){.p = (const uint8_t *)"[rank0]: x", .n = 10}));
    CHECK("a list",
          !plim_log_detect((plim_bytes){.p = (const uint8_t *)"[\n {\"a\":1}]", .n = 11}));
    CHECK("a tape",
          !plim_log_detect((plim_bytes){.p = (const uint8_t *)"plimsoll-tape 1\n", .n = 16}));
    CHECK("nothing", !plim_log_detect((plim_bytes){.p = NULL}));
}

/* Lines that are read in a time which their length squared is not in. */
static void test_long_lines(void **state)
{
    (void)state;
    static const char *const pieces[] = {" ", "\t ", "requested memory ", "max_ma: ", "w | "};
    const size_t n = 2u << 20;
    char *text = malloc(n);
    for (size_t i = 0; text && i < PLIM_COUNT(pieces); i++) {
        for (size_t k = 0, m = strlen(pieces[i]); k < n; k++)
            text[k] = pieces[i][k % m];
        CHECK(pieces[i], !read_text((plim_str){text, n}).source);
    }
    free(text);
}

static void check_same(plim_str text, const plim_log *got, const plim_log *want)
{
    bool same = got->lines == want->lines && !got->source == !want->source &&
                (!got->source || !strcmp(got->source, want->source));
    for (int q = 0; q < PLIM_LOG_QUANTITIES; q++)
        same &= got->figure[q].known == want->figure[q].known &&
                got->figure[q].bytes == want->figure[q].bytes &&
                got->figure[q].within == want->figure[q].within;
    if (!same)
        fail_msg("of %zu bytes: '" PLIM_STR_FMT "'", text.n, PLIM_STR_CUT(text));
}

/* Of random texts, in random parts, what a comparison with each word at each byte finds. */
static void test_random(void **state)
{
    (void)state;
    static const char *const words[] = {"requested memory",
                                        "allocated",
                                        "memory",
                                        " ",
                                        "\t",
                                        "  ",
                                        "GPU reserved memory",
                                        "| ",
                                        "|",
                                        "max_memory_allocated",
                                        "max_memory_reserved",
                                        "max allocated:",
                                        "| max reserved:",
                                        "Max_MA ",
                                        "max_ca",
                                        " memory:",
                                        " Memory: ",
                                        "GPU peak memory allocation:",
                                        "peak_memory_alloc:",
                                        "W |",
                                        "w",
                                        "N/A |",
                                        "n/a",
                                        "12",
                                        "1,234",
                                        "3.5",
                                        ".",
                                        " GiB",
                                        "MiB",
                                        "gb",
                                        " B",
                                        "b",
                                        "x",
                                        "/",
                                        "(",
                                        ")",
                                        "'",
                                        "\"",
                                        "=",
                                        ":",
                                        "\n",
                                        "\r",
                                        "requested_bytes.all.peak",
                                        "ax_memory_allocated",
                                        "9999999999",
                                        "0",
                                        "_",
                                        "K",
                                        "TiB"};
    uint64_t seed = 3, lines = 0;
    for (int round = 0; round < 400; round++) {
        plim_arena a = PLIM_ARENA_INIT;
        size_t n = round % 20 ? texts_random(&seed, 4000) : 200000;
        plim_str text = texts_make(&a, &seed, n, words, PLIM_COUNT(words));
        plim_log want = texts_slow_log(text), whole = read_text(text), parts;
        texts_parts(plim_log_take, plim_log_reader_new(&a, &parts), text, &seed,
                    round % 2 ? 300 : 100000);
        check_same(text, &whole, &want);
        check_same(text, &parts, &want);
        lines += want.lines;
        plim_arena_free(&a);
    }
    CHECK("with figures", lines > 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_lines), cmocka_unit_test(test_largest),
        cmocka_unit_test(test_detect), cmocka_unit_test(test_long_lines),
        cmocka_unit_test(test_random)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
