/* test_pretend.c -- a card that does not exist: its memory, its story. */
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <plimsoll.h>

#define MIB (1ull << 20)

static plim_pretend *open_card(const char *gpu, uint64_t vram, const char *torch,
                               const char *workspace)
{
    plim_err err = PLIM_ERR_INIT;
    plim_pretend_options o = PLIM_PRETEND_OPTIONS_INIT;
    plim_pretend *d = NULL;
    o.gpu = gpu;
    o.vram = vram;
    o.torch = torch;
    o.workspace = workspace;
    if (plim_pretend_open(&o, &d, &err))
        fail_msg("open: %s", err.msg);
    return d;
}

static uint32_t take(plim_pretend *d, uint64_t bytes, const char *line)
{
    plim_err err = PLIM_ERR_INIT;
    plim_pretend_tag tag = {.line = line, .op = "empty", .dtype = -1};
    uint32_t block;
    uint64_t addr;
    tag.category = PLIM_CAT_COUNT;
    if (plim_pretend_malloc(d, bytes, 0, &tag, &block, &addr, &err))
        fail_msg("malloc: %s", err.msg);
    CHECK("an address comes with a block", (addr != 0) == (block != PLIM_PRETEND_NONE));
    return block;
}

static plim_stat stat_of(plim_pretend *d, const char *name)
{
    plim_pretend_stat s[32];
    uint32_t n = plim_pretend_stats(d, s, 32);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(s[i].name, name))
            return s[i].value;
    fail_msg("no counter %s", name);
    return (plim_stat){0};
}

/* x = randn(1024*1024*5) of 4 bytes: one block of 20 MiB in its own segment;
 * del x: it is cached; empty_cache: it goes back.  src: issue's own figures. */
static void test_three_lines(void **state)
{
    plim_pretend *d = open_card("rtx4090", 0, "2.13", NULL);
    uint32_t x = take(d, 20971520, "a.py:1"), y = take(d, 512, "a.py:2");
    (void)state;
    CHECK("20 MiB", stat_of(d, "allocated_bytes").current == 20971520 + 512);
    assert_int_equal(plim_pretend_free(d, y, NULL), PLIM_OK);
    assert_int_equal(plim_pretend_free(d, x, NULL), PLIM_OK);
    CHECK("nothing is allocated", stat_of(d, "allocated_bytes").current == 0);
    CHECK("both segments are cached",
          stat_of(d, "reserved_bytes").current == 20971520 + 2 * MIB);
    plim_pretend_empty_cache(d, NULL);
    CHECK("nothing is reserved", stat_of(d, "reserved_bytes").current == 0);
    CHECK("a peak stays", stat_of(d, "allocated_bytes").peak == 20971520 + 512);
    plim_pretend_reset_peak(d, NULL);
    CHECK("until it is reset", stat_of(d, "allocated_bytes").peak == 0);
    plim_pretend_close(d);
}

static void test_oom(void **state)
{
    (void)state;
    plim_pretend *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    uint32_t a = take(d, 512 * MIB, "a.py:1"), b = take(d, 4096 * MIB, "a.py:2");
    plim_pretend_report *r = NULL;
    CHECK("512 MiB fit", a != PLIM_PRETEND_NONE);
    CHECK("4 GiB do not", b == PLIM_PRETEND_NONE);
    CHECK("PyTorch's words", strstr(plim_pretend_oom_text(d), "Tried to allocate 4.00 GiB."));
    CHECK("and the card's size",
          strstr(plim_pretend_oom_text(d), "total capacity of 2.00 GiB"));
    assert_int_equal(plim_pretend_report_make(d, &r, NULL), PLIM_OK);
    CHECK_STR("the line", r->oom_line, "a.py:2");
    CHECK("one", r->num_ooms == 1);
    CHECK("the peak is what was served", r->peak_allocated == 512 * MIB);
    plim_pretend_report_free(r);
    plim_pretend_close(d);
}

static void test_fraction(void **state)
{
    (void)state;
    plim_pretend *d = open_card(NULL, 8192 * MIB, "2.13", NULL);
    CHECK("1.5 is refused", plim_pretend_fraction(d, 1.5, NULL) == PLIM_EUSAGE);
    assert_int_equal(plim_pretend_fraction(d, 0.125, NULL), PLIM_OK); /* 1 GiB */
    CHECK("900 MiB fit", take(d, 900 * MIB, "a") != PLIM_PRETEND_NONE);
    CHECK("200 more do not", take(d, 200 * MIB, "b") == PLIM_PRETEND_NONE);
    plim_pretend_close(d);
}

/* src: facts caching-allocator.md 19: 8519680 kept per thread on sm_89, 32 MiB
 * on sm_90; 2.15 takes it for the call only. */
static void test_workspace(void **state)
{
    static const struct {
        const char *why, *gpu, *torch, *workspace;
        uint64_t kept, peak;
    } cases[] = {
        {"kept", "rtx4090", "2.13", "auto", 8519680, 8519680},
        {"Hopper", "h100", "2.13", "auto", 33554432, 33554432},
        {"off", "rtx4090", "2.13", "off", 0, 0},
        {"per call", "rtx4090", "2.15", "auto", 0, 8519680},
        {"outside", "rtx4090", "1.13", "auto", 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_pretend *d = open_card(cases[i].gpu, 0, cases[i].torch, cases[i].workspace);
        bool oom = true;
        for (int k = 0; k < 3; k++)
            assert_int_equal(plim_pretend_gemm(d, false, false, NULL, &oom, NULL), PLIM_OK);
        CHECK(cases[i].why, !oom);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").current == cases[i].kept);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").peak == cases[i].peak);
        assert_int_equal(plim_pretend_gemm(d, true, false, NULL, &oom, NULL), PLIM_OK);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").current == 2 * cases[i].kept);
        plim_pretend_close(d);
    }
}

static void test_full_workspace(void **state)
{
    (void)state;
    plim_pretend *d = open_card(NULL, 1, "2.13", NULL);
    bool oom = false;
    assert_int_equal(plim_pretend_gemm(d, false, false, NULL, &oom, NULL), PLIM_OK);
    CHECK("no room for a workspace", oom);
    plim_pretend_close(d);
}

/* Seven tensors of one shape and a smaller one on a line; one freed before the
 * peak on another. */
static void test_report(void **state)
{
    (void)state;
    plim_pretend *d = open_card("rtx4090", 0, "2.13", NULL);
    const int64_t dim[4] = {512, 512, 3, 3};
    plim_pretend_tag tag = {.line = "net.py:7",
                            .op = "empty",
                            .dtype = PLIM_F32,
                            .rank = 4,
                            .dim = dim,
                            .category = PLIM_CAT_COUNT};
    uint32_t block[7];
    uint64_t addr, last = 0;
    plim_pretend_report *r = NULL;
    assert_int_equal(plim_pretend_free(d, take(d, 1000, "net.py:1"), NULL), PLIM_OK);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(plim_pretend_malloc(d, 9437184, 0, &tag, &block[i], &addr, NULL),
                         PLIM_OK);
        CHECK("addresses differ", addr != last);
        last = addr;
        assert_int_equal(plim_pretend_label(d, block[i], PLIM_CAT_PARAMETER, "weight", NULL),
                         PLIM_OK);
    }
    plim_pretend_mark(d, 0, PLIM_PHASE_FORWARD, "fc", NULL);
    take(d, 100, "net.py:9");
    assert_int_equal(plim_pretend_free(d, block[6], NULL), PLIM_OK);
    CHECK("twice", plim_pretend_free(d, block[6], NULL) == PLIM_EUSAGE);
    plim_pretend_note(d, "net.py:20", "item() read 0", NULL);
    plim_pretend_note(d, "net.py:20", "item() read 0", NULL);
    assert_int_equal(plim_pretend_report_make(d, &r, NULL), PLIM_OK);
    CHECK("requested", r->peak_requested == 7ull * 9437184 + 100);
    CHECK("the peak is in the forward",
          r->peak_step == 0 && r->peak_phase == PLIM_PHASE_FORWARD);
    CHECK_STR("its op", r->peak_op, "fc");
    CHECK_STR("its line", r->peak_line, "net.py:9");
    CHECK_STR("who holds most", r->lines[0].line, "net.py:7");
    CHECK("how much", r->lines[0].live == 7ull * 9437184);
    CHECK("as one group", r->tensors[0].count == 7 && r->tensors[0].rank == 4 &&
                              r->tensors[0].bytes == 66060288 && r->tensors[0].line == 0);
    CHECK("of parameters", r->category[PLIM_CAT_PARAMETER] == 66060288);
    CHECK("what phases suggest", r->category[PLIM_CAT_ACTIVATION] == 100);
    CHECK("one caveat, twice", r->n_caveats == 1 && r->caveats[0].count == 2);
    CHECK("load and forward", r->n_phases == 2 && r->phases[0].step == -1);
    plim_pretend_report_free(r);
    plim_pretend_close(d);
}

/* What a device saves, replay reads: the same peaks from the other side. */
static void test_tape(void **state)
{
    (void)state;
    char path[] = "/tmp/plimsoll-pretend-XXXXXX";
    int fd = mkstemp(path);
    plim_pretend *d = open_card("rtx4090", 0, "2.13", NULL);
    plim_replay_options o = PLIM_REPLAY_OPTIONS_INIT;
    plim_replay *r = NULL;
    plim_err err = PLIM_ERR_INIT;
    bool oom;
    CHECK("a file", fd >= 0);
    close(fd);
    for (int i = 0; i < 40; i++) {
        uint32_t b = take(d, 1000003ull * (uint64_t)(i + 1), "x y.py:1");
        if (i % 3)
            plim_pretend_free(d, b, NULL);
        else if (i % 2)
            plim_pretend_gemm(d, i % 4 == 1, i % 5 == 0, NULL, &oom, NULL);
    }
    if (plim_pretend_save(d, path, &err))
        fail_msg("save: %s", err.msg);
    o.gpu = "rtx4090";
    o.torch = "2.13";
    if (plim_replay_run(path, &o, &r, &err))
        fail_msg("replay: %s", err.msg);
    CHECK("reserved", r->reserved_bytes.peak == stat_of(d, "reserved_bytes").peak);
    CHECK("allocated", r->allocated_bytes.peak == stat_of(d, "allocated_bytes").peak);
    CHECK("requested", r->requested_bytes.current == stat_of(d, "requested_bytes").current);
    plim_replay_free(r);
    plim_pretend_close(d);
    unlink(path);
}

static void test_blocks(void **state)
{
    (void)state;
    plim_pretend *d = open_card("rtx4090", 0, "2.13", NULL);
    plim_pretend_block b[8];
    take(d, 1000, "s.py:3");
    uint32_t n = plim_pretend_blocks(d, b, 8);
    assert_int_equal(n, 2); /* 1024 bytes taken of a segment of 2 MiB, and the rest */
    CHECK_STR("whose", b[0].line, "s.py:3");
    CHECK("how much", b[0].bytes == 1024 && b[0].requested == 1000 && b[0].state == 1);
    CHECK("the rest is free", b[1].state == 0 && b[1].bytes == 2 * MIB - 1024);
    plim_pretend_close(d);
}

static void test_refused(void **state)
{
    plim_pretend_options o = PLIM_PRETEND_OPTIONS_INIT;
    plim_pretend *d = NULL;
    plim_err err = PLIM_ERR_INIT;
    uint32_t block;
    uint64_t addr;
    (void)state;
    CHECK("no card", plim_pretend_open(&o, &d, NULL) == PLIM_EUSAGE);
    o.gpu = "rtx9999";
    CHECK("no such card", plim_pretend_open(&o, &d, &err) == PLIM_EUSAGE);
    o = (plim_pretend_options){.gpu = "t4", .workspace = "huge"};
    CHECK("no such workspace", plim_pretend_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_pretend_options){.gpu = "t4", .alloc_conf = "nonsense:1"};
    CHECK("no such setting", plim_pretend_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_pretend_options){.gpu = "t4", .torch = "9.9"};
    CHECK("no such PyTorch", plim_pretend_open(&o, &d, NULL) == PLIM_EUSAGE);
    d = open_card("t4", 0, NULL, NULL);
    CHECK("0 bytes", plim_pretend_malloc(d, 0, 0, NULL, &block, &addr, NULL) == PLIM_EUSAGE);
    CHECK("no such block", plim_pretend_free(d, 7, NULL) == PLIM_EUSAGE);
    CHECK("no such phase", plim_pretend_mark(d, 0, PLIM_PHASE_COUNT, "", NULL) == PLIM_EUSAGE);
    plim_pretend_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_lines),    cmocka_unit_test(test_oom),
        cmocka_unit_test(test_fraction),       cmocka_unit_test(test_workspace),
        cmocka_unit_test(test_full_workspace), cmocka_unit_test(test_report),
        cmocka_unit_test(test_tape),           cmocka_unit_test(test_blocks),
        cmocka_unit_test(test_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
