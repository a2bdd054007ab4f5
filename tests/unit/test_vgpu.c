/* test_vgpu.c -- the pretend GPU: its memory and its history. */
#include "unit.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <plimsoll_vgpu.h>

#define MIB (1ull << 20)

static plim_vgpu *open_card(const char *gpu, uint64_t vram, const char *torch,
                            const char *workspace)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
    plim_vgpu *d = NULL;
    o.gpu = gpu;
    o.vram = vram;
    o.torch = torch;
    o.workspace = workspace;
    if (plim_vgpu_open(&o, &d, &err))
        fail_msg("open: %s", err.msg);
    return d;
}

static uint32_t take_block(plim_vgpu *d, uint64_t bytes, const char *line)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_tag tag = {.line = line, .op = "empty", .dtype = -1};
    uint32_t block;
    uint64_t addr;
    tag.category = PLIM_CAT_COUNT;
    if (plim_vgpu_malloc(d, bytes, 0, &tag, &block, &addr, &err))
        fail_msg("malloc: %s", err.msg);
    CHECK("an address comes with a block", (addr != 0) == (block != PLIM_VGPU_NONE));
    return block;
}

/* Cards of one machine: addresses tell them apart, messages name them. */
static void test_machine(void **state)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
    uint32_t index[] = {0, 1, PLIM_VGPU_CARDS - 1}, block;
    (void)state;
    o.vram = 4096 * MIB;
    for (size_t i = 0; i < sizeof index / sizeof *index; i++) {
        plim_vgpu *d = NULL;
        plim_vgpu_card card;
        char text[1024], words[32];
        uint64_t addr;
        o.index = index[i];
        assert_int_equal(plim_vgpu_open(&o, &d, &err), PLIM_OK);
        plim_vgpu_card_get(d, &card);
        CHECK("its number", card.index == index[i] && !card.peers);
        plim_vgpu_malloc(d, 100 * MIB, 0, NULL, &block, &addr, &err);
        CHECK("its addresses", plim_vgpu_card_at(addr) == index[i] &&
                                   plim_vgpu_card_at(addr + 100 * MIB - 1) == index[i]);
        plim_vgpu_malloc(d, 4096 * MIB, 0, NULL, &block, &addr, &err);
        plim_vgpu_oom_text(d, text, sizeof text);
        snprintf(words, sizeof words, "GPU %u has a total", (unsigned)index[i]);
        CHECK("its name", strstr(text, words) != NULL);
        plim_vgpu_close(d);
    }
    o.index = PLIM_VGPU_CARDS;
    assert_int_equal(plim_vgpu_open(&o, &(plim_vgpu *){NULL}, &err), PLIM_EUSAGE);
    CHECK("addresses of no card", plim_vgpu_card_at(0) == PLIM_VGPU_NONE &&
                                      plim_vgpu_card_at(UINT64_MAX) == PLIM_VGPU_NONE &&
                                      plim_vgpu_card_at(1 << 20) == PLIM_VGPU_NONE);
}

/* A ledger of its own and the simulated allocator place the same memory at the same distances,
 * some of it below what came before. */
static void test_places(void **state)
{
    static const uint64_t mib[] = {20, 300, 70, 2, 500, 40};
    plim_vgpu *d = open_card(NULL, 4096 * MIB, "2.11", NULL);
    plim_vgpu_places *p = NULL;
    uint64_t theirs[6], ours[6];
    uint32_t block;
    (void)state;
    assert_int_equal(plim_vgpu_places_open(1ull << 40, &p, NULL), PLIM_OK);
    for (size_t i = 0; i < 6; i++) {
        uint64_t bytes = mib[i] * MIB;
        assert_int_equal(plim_vgpu_malloc(d, bytes, 0, NULL, &block, &theirs[i], NULL),
                         PLIM_OK);
        assert_int_equal(
            plim_vgpu_places_take(p, bytes == 2 * MIB ? 20 * MIB : bytes, &ours[i], NULL),
            PLIM_OK);
        CHECK("in its range",
              ours[i] >= 1ull << 40 && ours[i] < (1ull << 40) + PLIM_VGPU_PLACES);
        CHECK("the same place", ours[i] - ours[0] == theirs[i] - theirs[0]);
    }
    CHECK("not only upward", ours[4] < ours[0]);
    plim_vgpu_places_give(p, ours[5]);
    assert_int_equal(plim_vgpu_places_take(p, 40 * MIB, &theirs[5], NULL), PLIM_OK);
    CHECK("as if it was never taken", theirs[5] == ours[5]);
    assert_int_equal(plim_vgpu_places_open(0, NULL, NULL), PLIM_EUSAGE);
    assert_int_equal(plim_vgpu_places_take(NULL, MIB, ours, NULL), PLIM_EUSAGE);
    assert_int_equal(plim_vgpu_places_take(p, MIB, NULL, NULL), PLIM_EUSAGE);
    plim_vgpu_places_close(p);
    plim_vgpu_places_close(NULL);
    plim_vgpu_close(d);
}

static void test_machine_names(void **state)
{
    static const struct {
        const char *why, *gpu;
        uint32_t n; /* 0: refused */
        const char *card;
    } cases[] = {
        {"two", "2xt4", 2, "t4"},
        {"a name with a space", "8xA100 40GB", 8, "A100 40GB"},
        {"one", "t4", 1, "t4"},
        {"a list is one card", "t4,a100", 1, "t4,a100"},
        {"a card's own name", "7900xtx", 1, "7900xtx"},
        {"and in a list", "7900xtx,t4", 1, "7900xtx,t4"},
        {"the most", "64xt4", 64, "t4"},
        {"too many", "65xt4", 0, NULL},
        {"a machine in a list", "2xt4,a100", 0, NULL},
        {"at its end", "a100,2xt4", 0, NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_err err = PLIM_ERR_INIT;
        uint32_t n = 0;
        const char *card = NULL;
        plim_status st = plim_vgpu_machine(cases[i].gpu, &n, &card, &err);
        CHECK(cases[i].why, (st == PLIM_OK) == (cases[i].n > 0) && n == cases[i].n);
        CHECK(cases[i].why, st ? err.msg[0] != 0 : strcmp(card, cases[i].card) == 0);
    }
}

static plim_stat stat_of(plim_vgpu *d, const char *name)
{
    plim_vgpu_stat s[32];
    uint32_t n = plim_vgpu_stats(d, s, 32);
    for (uint32_t i = 0; i < n; i++)
        if (!strcmp(s[i].name, name))
            return s[i].all;
    fail_msg("no counter %s", name);
    return (plim_stat){0};
}

/* x = randn(1024*1024*5) of 4 bytes: one block of 20 MiB in its own segment; del x: it is
 * cached; empty_cache: it is released.  src: issue's own figures. */
static void test_three_lines(void **state)
{
    plim_vgpu *d = open_card("rtx4090", 0, "2.13", NULL);
    uint32_t x = take_block(d, 20971520, "a.py:1"), y = take_block(d, 512, "a.py:2");
    (void)state;
    CHECK("20 MiB", stat_of(d, "allocated_bytes").current == 20971520 + 512);
    assert_int_equal(plim_vgpu_free(d, y, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_free(d, x, NULL), PLIM_OK);
    CHECK("nothing is allocated", stat_of(d, "allocated_bytes").current == 0);
    CHECK("both segments are cached",
          stat_of(d, "reserved_bytes").current == 20971520 + 2 * MIB);
    plim_vgpu_empty_cache(d, NULL);
    CHECK("nothing is reserved", stat_of(d, "reserved_bytes").current == 0);
    CHECK("a peak stays", stat_of(d, "allocated_bytes").peak == 20971520 + 512);
    plim_vgpu_reset_peak(d, NULL);
    CHECK("until it is reset", stat_of(d, "allocated_bytes").peak == 0);
    plim_vgpu_close(d);
}

/* A private pool, here stream 3: held, it keeps its free segments, also when memory runs out;
 * then they go as any others. */
static void test_hold(void **state)
{
    plim_vgpu *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    uint32_t in_pool = 0, other = take_block(d, 100 * MIB, "a.py:1"), block = 0;
    uint64_t addr, left, total;
    (void)state;
    assert_int_equal(plim_vgpu_hold(d, 3, true, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_malloc(d, 300 * MIB, 3, NULL, &in_pool, &addr, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_free(d, in_pool, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_free(d, other, NULL), PLIM_OK);
    plim_vgpu_empty_cache(d, NULL);
    CHECK("the pool stays", stat_of(d, "reserved_bytes").current == 300 * MIB);
    plim_vgpu_mem_info(d, &left, &total);
    assert_int_equal(
        plim_vgpu_malloc(d, left / MIB * MIB + 200 * MIB, 0, NULL, &block, &addr, NULL),
        PLIM_OK);
    CHECK("not for a request that fails", block == PLIM_VGPU_NONE);
    CHECK("it stays then, too", stat_of(d, "reserved_bytes").current == 300 * MIB);
    assert_int_equal(plim_vgpu_hold(d, 3, false, NULL), PLIM_OK);
    assert_int_equal(
        plim_vgpu_malloc(d, left / MIB * MIB + 200 * MIB, 0, NULL, &block, &addr, NULL),
        PLIM_OK);
    CHECK("now it is served", block != PLIM_VGPU_NONE);
    assert_int_equal(plim_vgpu_free(d, block, NULL), PLIM_OK);
    plim_vgpu_empty_cache(d, NULL);
    CHECK("nothing is reserved", stat_of(d, "reserved_bytes").current == 0);
    CHECK("all streams", plim_vgpu_hold(d, PLIM_VGPU_ALL_STREAMS, true, NULL) == PLIM_EUSAGE);
    plim_vgpu_close(d);
}

static void test_oom(void **state)
{
    (void)state;
    plim_vgpu *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    uint32_t a = take_block(d, 512 * MIB, "a.py:1"), b = take_block(d, 4096 * MIB, "a.py:2");
    plim_vgpu_report *r = NULL;
    CHECK("512 MiB fit", a != PLIM_VGPU_NONE);
    CHECK("4 GiB do not", b == PLIM_VGPU_NONE);
    char text[1024], part[12];
    size_t length = plim_vgpu_oom_text(d, text, sizeof text);
    CHECK("whole", length == strlen(text));
    CHECK("PyTorch's words", strstr(text, "Tried to allocate 4.00 GiB."));
    CHECK("and the card's size", strstr(text, "total capacity of 2.00 GiB"));
    CHECK("cut", plim_vgpu_oom_text(d, part, sizeof part) == length);
    CHECK_STR("its beginning", part, "CUDA out of");
    CHECK("asked for its length", plim_vgpu_oom_text(d, NULL, 0) == length);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK_STR("the line", r->oom_line, "a.py:2");
    CHECK("one", r->num_ooms == 1);
    CHECK("the peak is what was served", r->peak_allocated == 512 * MIB);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* Saved, and replayed on `capacity` bytes; 0: unlimited. */
static plim_replay *replay_of(plim_vgpu *d, uint64_t capacity)
{
    char path[] = "/tmp/plimsoll-pretend-XXXXXX";
    int fd = mkstemp(path);
    plim_settings *s = NULL;
    plim_replay *r = NULL;
    char vram[32];
    plim_err err = PLIM_ERR_INIT;
    CHECK("a file", fd >= 0);
    close(fd);
    if (plim_vgpu_save(d, path, &err))
        fail_msg("save: %s", err.msg);
    snprintf(vram, sizeof vram, "%llu", (unsigned long long)capacity);
    if (plim_settings_new(&s, &err) || plim_settings_set(s, "torch", "2.13", &err) ||
        plim_settings_set(s, "vram", capacity ? vram : NULL, &err) ||
        plim_replay_run(path, s, &r, &err))
        fail_msg("replay: %s", err.msg);
    plim_settings_free(s);
    unlink(path);
    return r;
}

static void test_fraction(void **state)
{
    (void)state;
    plim_vgpu *d = open_card(NULL, 8192 * MIB, "2.13", NULL);
    CHECK("1.5 is refused", plim_vgpu_fraction(d, 1.5, NULL) == PLIM_EUSAGE);
    assert_int_equal(plim_vgpu_fraction(d, 0.125, NULL), PLIM_OK); /* 1 GiB */
    CHECK("900 MiB fit", take_block(d, 900 * MIB, "a") != PLIM_VGPU_NONE);
    CHECK("200 more do not", take_block(d, 200 * MIB, "b") == PLIM_VGPU_NONE);
    plim_replay *r = replay_of(d, 8192 * MIB);
    CHECK("nor on the tape", r->oom && strstr(r->oom_text, "1024.00 MiB allowed"));
    CHECK("the same one", r->num_ooms == 1 && r->reserved_bytes.peak == 900 * MIB);
    plim_replay_free(r);
    r = replay_of(d, 16384 * MIB);
    CHECK("an eighth of 16 GiB is enough", !r->oom);
    plim_replay_free(r);
    plim_vgpu_close(d);
}

/* PyTorch's two pools: they add up to the totals, in both kinds of segments. */
static void test_pools(void **state)
{
    static const char *const confs[] = {"", "expandable_segments:True"};
    (void)state;
    for (int k = 0; k < 2; k++) {
        plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
        plim_vgpu *d = NULL;
        uint32_t held[64], n = 0;
        o.gpu = "t4";
        o.alloc_conf = confs[k];
        assert_int_equal(plim_vgpu_open(&o, &d, NULL), PLIM_OK);
        for (uint64_t i = 0; i < 200; i++) {
            if (n == 64 || i % 3 == 2)
                plim_vgpu_free(d, held[--n], NULL);
            else
                held[n++] = take_block(d, 1 + i * i * i * 37 % (8 * MIB), "a");
        }
        plim_vgpu_stat s[32];
        uint32_t rows = plim_vgpu_stats(d, s, 32);
        uint64_t large = 0;
        for (uint32_t i = 0; i < rows; i++) {
            if (s[i].kind != PLIM_STAT_POOLS)
                continue;
            large += s[i].large.allocated;
            CHECK(s[i].name, s[i].all.current == s[i].small.current + s[i].large.current);
            CHECK(s[i].name,
                  s[i].all.allocated == s[i].small.allocated + s[i].large.allocated);
            CHECK(s[i].name, s[i].all.peak >= s[i].small.peak &&
                                 s[i].all.peak <= s[i].small.peak + s[i].large.peak);
        }
        CHECK("there are large ones", large > 0);
        plim_vgpu_reset_accumulated(d);
        plim_stat now = stat_of(d, "allocation");
        CHECK("counting begins anew", now.allocated == 0 && now.freed == 0);
        CHECK("what there is stays", now.current == n);
        CHECK("so does the peak", now.peak >= n);
        plim_vgpu_close(d);
    }
}

/* The last three of: alloc (in a new segment), free, alloc, free. */
static void test_history(void **state)
{
    static const char *const want[] = {"free_completed", "segment_free", "oom"};
    (void)state;
    plim_vgpu *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    plim_vgpu_trace t[8];
    take_block(d, 100, "before");
    plim_vgpu_history(d, 3, false);
    CHECK("nothing yet", plim_vgpu_traces(d, t, 8) == 0);
    uint32_t block = take_block(d, 20 * MIB, "a.py:1");
    CHECK("a segment and a block", plim_vgpu_traces(d, t, 8) == 2);
    CHECK_STR("first", t[0].action, "segment_alloc");
    CHECK("the block begins it", t[1].addr == t[0].addr && t[1].bytes == 20 * MIB);
    CHECK_STR("whose", t[0].line, "a.py:1");
    plim_vgpu_free(d, block, NULL);
    take_block(d, 4096 * MIB, "a.py:2");
    CHECK("three are kept", plim_vgpu_traces(d, t, 8) == 3);
    for (uint32_t i = 0; i < 3; i++) {
        CHECK_STR("the last ones", t[i].action, want[i]);
        CHECK("numbered", t[i].number == 3 + i);
    }
    CHECK("what was asked for", t[2].bytes == 4096 * MIB);
    plim_vgpu_history(d, 0, false);
    take_block(d, 30 * MIB, "a.py:3");
    CHECK("no more", plim_vgpu_traces(d, t, 8) == 3 && t[2].number == 5);
    plim_vgpu_history(d, 5, true);
    CHECK("cleared", plim_vgpu_traces(d, t, 8) == 0);
    plim_vgpu_close(d);
}

static const plim_vgpu_verdict *verdict_of(const plim_vgpu_report *r, const char *gpu)
{
    for (uint32_t i = 0; i < r->n_cards; i++)
        if (strstr(r->cards[i].gpu, gpu))
            return &r->cards[i];
    fail_msg("no card %s", gpu);
    return NULL;
}

/* A product of two 4x4 matrices; lt: with a bias, through cuBLASLt. */
static plim_status run_gemm(plim_vgpu *d, bool autograd_thread, bool lt, bool *oom)
{
    const plim_vgpu_tensor x = {PLIM_F32, 2, {4, 4}, {4, 1}}, bias = {PLIM_F32, 1, {4}, {1}};
    const plim_vgpu_arg args[] = {
        {.name = "self", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = lt ? &bias : &x},
        {.name = "mat1", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = &x},
        {.name = "mat2", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = &x}};
    const plim_vgpu_kernel_call call = {
        .args = args, .n_args = 3, .autograd_thread = autograd_thread};
    uint32_t n;
    return plim_vgpu_kernel(d, lt ? "addmm" : "mm", &call, NULL, 0, &n, oom, NULL);
}

/* src: docs/sources/workspaces.md 1: 8519680 kept per thread on sm_89, 32 MiB
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
        plim_vgpu *d = open_card(cases[i].gpu, 0, cases[i].torch, cases[i].workspace);
        bool oom = true;
        for (int k = 0; k < 3; k++)
            assert_int_equal(run_gemm(d, false, false, &oom), PLIM_OK);
        CHECK(cases[i].why, !oom);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").current == cases[i].kept);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").peak == cases[i].peak);
        assert_int_equal(run_gemm(d, true, false, &oom), PLIM_OK);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").current == 2 * cases[i].kept);
        plim_vgpu_close(d);
    }
}

/* What a script called is in its context, with a handle of cuBLAS for each thread. */
static void test_context(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        bool main, autograd, eager;
        double low; /* MiB */
        uint64_t nccl;
    } cases[] = {
        {"the first kernel", false, false, false, 610, 0},
        {"a product", true, false, false, 674.13, 0},
        {"and its gradient", true, true, false, 738.26, 0},
        {"a gradient alone", false, true, false, 674.13, 0},
        {"loaded eagerly", true, true, true, 1252 + 128.26 + 415.87, 0},
        {"NCCL", true, false, false, 674.13 + 270 + 225, 24 * MIB},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
        plim_vgpu *d = NULL;
        plim_vgpu_report *r = NULL;
        bool oom = false;
        o.gpu = "h100";
        o.module_loading = cases[i].eager ? "EAGER" : "LAZY";
        assert_int_equal(plim_vgpu_open(&o, &d, NULL), PLIM_OK);
        if (cases[i].main)
            assert_int_equal(run_gemm(d, false, false, &oom), PLIM_OK);
        if (cases[i].autograd)
            assert_int_equal(run_gemm(d, true, false, &oom), PLIM_OK);
        assert_int_equal(plim_vgpu_nccl(d, cases[i].nccl, cases[i].nccl, NULL), PLIM_OK);
        assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
        const double off = (double)r->context_low / MIB - cases[i].low;
        CHECK(cases[i].why, off > -0.01 && off < 0.01);
        CHECK(cases[i].why, r->context_high > r->context_low);
        CHECK("needed has the handles, too",
              r->needed_low >= r->context_low - (cases[i].nccl ? 500 * MIB : 0));
        plim_vgpu_report_free(r);
        plim_vgpu_close(d);
    }
}

/* What a Fourier transform takes besides its result: the copy of an input that does not lie as
 * cuFFT reads it, the second buffer of more than one call, cuFFT's work area (as large as the
 * complex numbers; not known: from nothing to twice, or eight times that).
 * src: native/cuda/SpectralOps.cpp; docs/sources/workspaces.md 7 */
static void test_fourier(void **state)
{
    enum { HALF = 1024 * 513 * 8, FULL = 1024 * 1024 * 8, CUBE = 8 * 512 * 64 * 8 };
    static const char *const c2c = "_fft_c2c", *const r2c = "_fft_r2c",
                             *const c2r = "_fft_c2r";
    static const plim_vgpu_tensor square = {PLIM_C64, 2, {1024, 1024}, {1024, 1}},
                                  real = {PLIM_F32, 2, {1024, 1024}, {1024, 1}},
                                  half = {PLIM_C64, 2, {1024, 513}, {513, 1}},
                                  prime = {PLIM_C64, 1, {1013}, {1}},
                                  line = {PLIM_C64, 1, {8192}, {1}},
                                  cube = {PLIM_C64, 3, {8, 512, 64}, {32768, 64, 1}},
                                  rows = {PLIM_C64, 2, {4096, 64}, {0, 1}},
                                  four = {PLIM_C64, 4, {8, 8, 64, 64}, {32768, 4096, 64, 1}};
    static const struct {
        const char *why, *kernel, *workspace;
        const plim_vgpu_tensor *x;
        int64_t dim[4];
        uint32_t n_dims;
        int64_t last; /* of r2c: onesided; of c2r: last_dim_size */
        uint64_t peak;
    } cases[] = {
        {"two dims", c2c, "auto", &square, {0, 1}, 2, 0, FULL},
        {"at least", c2c, "low", &square, {0, 1}, 2, 0, 0},
        {"at most", c2c, "high", &square, {0, 1}, 2, 0, 2 * FULL},
        {"a prime", c2c, "high", &prime, {0}, 1, 0, 127 * 512},
        {"not counted", c2c, "off", &square, {0, 1}, 2, 0, 0},
        {"the last", c2c, "off", &cube, {-1}, 1, 0, 0},
        {"the first", c2c, "off", &cube, {0}, 1, 0, 0},
        {"between", c2c, "off", &cube, {1}, 1, 0, CUBE},
        {"expanded", c2c, "off", &rows, {1}, 1, 0, 4096 * 64 * 8},
        {"twice the same", c2c, "off", &cube, {2, -1, 2, 2}, 4, 0, 0},
        {"a huge last", c2r, "low", &half, {1}, 1, INT64_MAX, HALF},
        {"four", c2c, "off", &four, {0, 1, 2, 3}, 4, 0, 8 * 8 * 64 * 64 * 8},
        {"short", c2c, "auto", &square, {1}, 1, 0, 0},
        {"long", c2c, "auto", &line, {0}, 1, 0, 8192 * 8},
        {"half of it", r2c, "high", &real, {1}, 1, 1, 2 * HALF},
        {"all of it", r2c, "high", &real, {1}, 1, 0, 2 * FULL},
        {"by turns", r2c, "high", &real, {0, 1}, 2, 1, 3 * HALF},
        {"no area", r2c, "auto", &real, {0, 1}, 2, 1, HALF},
        {"back", c2r, "high", &half, {1}, 1, 1024, 3 * HALF},
        {"a copy", c2r, "auto", &half, {1}, 1, 1024, HALF},
        {"back by turns", c2r, "high", &half, {0, 1}, 2, 1024, 3 * HALF},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_vgpu *d = open_card("rtx4090", 0, "2.13", cases[i].workspace);
        const plim_vgpu_arg args[] = {
            {.name = "self", .kind = PLIM_VGPU_TENSOR, .n = 1, .tensors = cases[i].x},
            {.name = "dim",
             .kind = PLIM_VGPU_INTS,
             .n = cases[i].n_dims,
             .ints = cases[i].dim},
            {.name = cases[i].kernel == r2c ? "onesided" : "last_dim_size",
             .kind = PLIM_VGPU_INT,
             .n = 1,
             .ints = &cases[i].last}};
        const plim_vgpu_kernel_call call = {.args = args, .n_args = 3};
        uint32_t n;
        bool oom = true;
        CHECK(cases[i].why,
              plim_vgpu_kernel(d, cases[i].kernel, &call, NULL, 0, &n, &oom, NULL) == PLIM_OK);
        CHECK(cases[i].why, !oom && !stat_of(d, "allocated_bytes").current);
        CHECK(cases[i].why, stat_of(d, "allocated_bytes").peak == cases[i].peak);
        plim_vgpu_close(d);
    }
}

static void test_full_workspace(void **state)
{
    (void)state;
    plim_vgpu *d = open_card(NULL, 1, "2.13", NULL);
    bool oom = false;
    assert_int_equal(run_gemm(d, false, false, &oom), PLIM_OK);
    CHECK("no room for a workspace", oom);
    plim_vgpu_close(d);
}

/* Seven tensors of one shape and a smaller one on a line; one freed before the
 * peak on another. */
static void test_report(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("rtx4090", 0, "2.13", NULL);
    const int64_t dim[4] = {512, 512, 3, 3};
    plim_vgpu_tag tag = {.line = "net.py:7",
                         .op = "empty",
                         .dtype = PLIM_F32,
                         .rank = 4,
                         .dim = dim,
                         .category = PLIM_CAT_COUNT};
    uint32_t block[7];
    uint64_t addr, last = 0;
    plim_vgpu_report *r = NULL;
    assert_int_equal(plim_vgpu_free(d, take_block(d, 1000, "net.py:1"), NULL), PLIM_OK);
    for (int i = 0; i < 7; i++) {
        assert_int_equal(plim_vgpu_malloc(d, 9437184, 0, &tag, &block[i], &addr, NULL),
                         PLIM_OK);
        CHECK("addresses differ", addr != last);
        last = addr;
        assert_int_equal(plim_vgpu_label(d, block[i], PLIM_CAT_PARAMETER, "weight", NULL),
                         PLIM_OK);
    }
    plim_vgpu_mark(d, 0, PLIM_PHASE_FORWARD, "fc", NULL);
    take_block(d, 100, "net.py:9");
    assert_int_equal(plim_vgpu_free(d, block[6], NULL), PLIM_OK);
    CHECK("twice", plim_vgpu_free(d, block[6], NULL) == PLIM_EUSAGE);
    plim_vgpu_note(d, "net.py:20", "item() read 0", NULL);
    plim_vgpu_note(d, "net.py:20", "item() read 0", NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("requested", r->peak_requested == 7ull * 9437184 + 100);
    CHECK("the peak is in the forward",
          r->peak_step == 0 && r->peak_phase == PLIM_PHASE_FORWARD);
    CHECK_STR("its op", r->peak_op, "fc");
    CHECK_STR("its line", r->peak_line, "net.py:9");
    CHECK_STR("who holds most", r->lines[0].line, "net.py:7");
    CHECK("how much", r->lines[0].live_at_peak == 7ull * 9437184);
    CHECK("as one group", r->lines[0].n_tensors == 1 && r->lines[0].tensors[0].count == 7 &&
                              r->lines[0].tensors[0].rank == 4 &&
                              r->lines[0].tensors[0].bytes == 66060288);
    CHECK("of parameters", r->category[PLIM_CAT_PARAMETER] == 66060288);
    CHECK("what phases suggest", r->category[PLIM_CAT_ACTIVATION] == 100);
    CHECK("one caveat, twice", r->n_caveats == 1 && r->caveats[0].count == 2);
    CHECK("load and forward", r->n_phases == 2 && r->phases[0].step == -1);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* One run, three cards: each as if the program had run on it. */
static void test_cards(void **state)
{
    static const char *const names[] = {"t4", "h100", "rtx4090"};
    (void)state;
    plim_vgpu *d = open_card("t4,h100,rtx4090", 0, "2.13", NULL);
    plim_vgpu_report *r = NULL, *alone = NULL;
    plim_vgpu_card card;
    bool oom;
    plim_vgpu_card_get(d, &card);
    CHECK("it is the largest", strstr(card.name, "H100"));
    run_gemm(d, false, false, &oom);
    take_block(d, 10000 * MIB, "a.py:1");
    take_block(d, 9000 * MIB, "a.py:2");
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("in their order", r->n_cards == 3 && strstr(r->cards[0].gpu, "T4"));
    CHECK("the last two take it",
          r->cards[1].fits == PLIM_VGPU_FITS_YES && r->cards[2].fits == PLIM_VGPU_FITS_YES);
    CHECK("the first does not", r->cards[0].fits == PLIM_VGPU_FITS_NO);
    CHECK_STR("from this line on", r->cards[0].oom_line, "a.py:2");
    CHECK("the run itself went well", !r->oom_text && !r->num_ooms);
    for (int i = 0; i < 3; i++) {
        plim_vgpu *one = open_card(names[i], 0, "2.13", NULL);
        run_gemm(one, false, false, &oom);
        take_block(one, 10000 * MIB, "a.py:1");
        take_block(one, 9000 * MIB, "a.py:2");
        assert_int_equal(plim_vgpu_report_make(one, &alone, NULL), PLIM_OK);
        CHECK(names[i], alone->peak_reserved == r->cards[i].peak_reserved);
        CHECK(names[i], alone->peak_allocated == r->cards[i].peak_allocated);
        CHECK(names[i], !alone->oom_text == !r->cards[i].oom_text);
        if (alone->oom_text)
            CHECK_STR(names[i], r->cards[i].oom_text, alone->oom_text);
        plim_vgpu_report_free(alone);
        plim_vgpu_close(one);
    }
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

static int add_text(void *ud, const char *text, size_t n)
{
    char *all = ud;
    size_t used = strlen(all);
    CHECK("room for the report", used + n < 16384);
    memcpy(all + used, text, n);
    all[used + n] = '\0';
    return 0;
}

/* Output for people and for programs; the third line is issue's own. */
static void test_print(void **state)
{
    static const char *const said[] = {
        "It fits\n",
        "  T4              14.56 GiB  no         63.00 MiB",
        "net.py:9\n",
        "    + | 7 * Size:(512, 512, 3, 3) | 63.00 MiB | Parameter | fp32\n",
        "  net.py:7  63.00 MiB\n    self.conv = nn.Conv2d(512, 512, 3)\n",
        "\n        load     63.00 MiB",
    };
    static const char *const told[] = {
        "\"phases\":[{\"step\":0,\"phase\":\"load\"",
        "\"cards\":[{\"gpu\":\"NVIDIA T4\",\"gpu_bytes\":15633219584,\"fits\":\"no\"",
        "\"fits\":\"yes\"",
        "\"oom_line\":\"net.py:9\"",
        "\"end\":\"done\",\"oom_line\":null",
        "\"source\":\"self.conv = nn.Conv2d(512, 512, 3)\""};
    static char out[16384];
    (void)state;
    plim_vgpu *d = open_card("t4,h100", 0, "2.13", NULL);
    plim_vgpu_report *r = NULL;
    const int64_t dim[4] = {512, 512, 3, 3};
    plim_vgpu_tag tag = {.line = "net.py:7", .dtype = PLIM_F32, .rank = 4, .dim = dim};
    uint32_t block;
    uint64_t addr;
    tag.category = PLIM_CAT_PARAMETER;
    for (int i = 0; i < 7; i++)
        plim_vgpu_malloc(d, 9437184, 0, &tag, &block, &addr, NULL);
    plim_vgpu_source(d, 0, "self.conv = nn.Conv2d(512, 512, 3)", NULL);
    plim_vgpu_mark(d, 0, PLIM_PHASE_FORWARD, "", NULL);
    plim_vgpu_free(d, take_block(d, 20000 * MIB, "net.py:9"), NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_report_print(r, PLIM_TEXT, NULL, add_text, out, NULL), PLIM_OK);
    for (size_t i = 0; i < sizeof said / sizeof *said; i++)
        CHECK(said[i], strstr(out, said[i]));
    out[0] = '\0';
    assert_int_equal(plim_vgpu_report_print(r, PLIM_JSON, NULL, add_text, out, NULL), PLIM_OK);
    for (size_t i = 0; i < sizeof told / sizeof *told; i++)
        CHECK(told[i], strstr(out, told[i]));
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* Flash attention needs sm_80: what a T4 would do differently is not on the tape. */
static void test_other_way(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("t4,a100,rtx4090", 0, "2.13", NULL);
    const plim_vgpu_tensor q = {PLIM_F16, 4, {2, 4, 128, 64}, {32768, 8192, 64, 1}};
    const plim_vgpu_attention_call call = {.causal = true};
    plim_vgpu_report *r = NULL;
    plim_vgpu_attention(d, &q, &q, &q, &call);
    plim_vgpu_attention(d, &q, &q, &q, &call);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("not known", verdict_of(r, "T4")->fits == PLIM_VGPU_FITS_UNKNOWN &&
                           !verdict_of(r, "T4")->peaks_known &&
                           !verdict_of(r, "T4")->peak_reserved);
    CHECK("as here", verdict_of(r, "4090")->fits == PLIM_VGPU_FITS_YES &&
                         verdict_of(r, "A100")->fits == PLIM_VGPU_FITS_YES);
    CHECK("and said, once", r->n_caveats == 1 && r->caveats[0].count == 1 &&
                                strstr(r->caveats[0].what, "NVIDIA T4"));
    char text[16384] = "";
    assert_int_equal(plim_vgpu_report_print(r, PLIM_JSON, NULL, add_text, text, NULL),
                     PLIM_OK);
    CHECK("in JSON", strstr(text, "\"peak_allocated\":null,\"peak_reserved\":null"));
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* What a run by itself has shown there takes the place of the tape. */
static void test_alone(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("t4,a100,rtx4090", 0, "2.13", NULL);
    const plim_vgpu_tensor q = {PLIM_F16, 4, {2, 4, 128, 64}, {32768, 8192, 64, 1}};
    const plim_vgpu_attention_call call = {.causal = true};
    plim_vgpu_report *r = NULL;
    const char *other[2];
    plim_err err = PLIM_ERR_INIT;
    CHECK("none yet", plim_vgpu_other_cards(d, other, 2) == 0);
    plim_vgpu_attention(d, &q, &q, &q, &call);
    CHECK("the T4", plim_vgpu_other_cards(d, other, 2) == 1 && strstr(other[0], "T4"));
    plim_vgpu_verdict v = {.gpu = "NVIDIA A100 SXM4 80GB"};
    CHECK("not a card that the tape is about",
          plim_vgpu_alone(d, &v, &err) == PLIM_EUSAGE && strstr(err.msg, "A100"));
    char line[] = "a.py:3";
    v = (plim_vgpu_verdict){.gpu = other[0],
                            .fits = PLIM_VGPU_FITS_NO,
                            .peaks_known = true,
                            .peak_reserved = 20 * MIB,
                            .oom_line = line};
    assert_int_equal(plim_vgpu_alone(d, &v, NULL), PLIM_OK);
    line[0] = 'b'; /* it was copied */
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("its verdict", verdict_of(r, "T4")->fits == PLIM_VGPU_FITS_NO &&
                             verdict_of(r, "T4")->peak_reserved == 20 * MIB &&
                             !strcmp(verdict_of(r, "T4")->oom_line, "a.py:3"));
    CHECK("and said", r->n_caveats == 1 && strstr(r->caveats[0].what, "ran again"));
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* A card without CUDA runs nothing, however large it is. */
static void test_other_vendors(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("mi300x,t4", 0, "2.13", NULL);
    plim_vgpu_card card;
    plim_vgpu_report *r = NULL;
    plim_vgpu_card_get(d, &card);
    CHECK("the T4", strstr(card.name, "T4"));
    take_block(d, 100 * MIB, "a.py:1");
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("fits the T4", r->cards[1].fits == PLIM_VGPU_FITS_YES);
    CHECK("as in estimate, a context of unknown size leaves a doubt",
          r->cards[0].fits == PLIM_VGPU_FITS_MAYBE);
    CHECK("no CUDA context", !r->cards[0].device_high && r->cards[1].device_high);
    plim_vgpu_report_free(r);
    take_block(d, 20000 * MIB, "a.py:2");
    plim_vgpu_ended(d, PLIM_VGPU_END_MEMORY, NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("what would come there is not known",
          r->cards[0].fits == PLIM_VGPU_FITS_UNKNOWN && r->cards[1].fits == PLIM_VGPU_FITS_NO);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

static void test_end(void **state)
{
    (void)state;
    plim_vgpu *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    plim_vgpu_report *r = NULL;
    const char *lines[4];
    CHECK("no such end", plim_vgpu_ended(d, PLIM_VGPU_END_COUNT, NULL) == PLIM_EUSAGE);
    assert_int_equal(plim_vgpu_ended(d, PLIM_VGPU_END_MEMORY, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("memory did not run out",
          r->end == PLIM_VGPU_END_EARLY && r->cards[0].fits == PLIM_VGPU_FITS_YES);
    plim_vgpu_report_free(r);
    plim_vgpu_ended(d, PLIM_VGPU_END_DONE, NULL);
    take_block(d, 4096 * MIB, "a.py:2");
    take_block(d, MIB, "a.py:3");
    CHECK("two lines", plim_vgpu_lines(d, lines, 4) == 2);
    CHECK_STR("as named", lines[1], "a.py:3");
    assert_int_equal(plim_vgpu_source(d, 1, "x = y", NULL), PLIM_OK);
    CHECK("no third", plim_vgpu_source(d, 2, "", NULL) == PLIM_EUSAGE);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("it went on", r->end == PLIM_VGPU_END_DONE && r->oom_text &&
                            r->cards[0].fits == PLIM_VGPU_FITS_YES);
    CHECK_STR("what stands there", r->lines[0].source, "x = y");
    plim_vgpu_report_free(r);
    plim_vgpu_ended(d, PLIM_VGPU_END_MEMORY, NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("it did not",
          r->end == PLIM_VGPU_END_MEMORY && r->cards[0].fits == PLIM_VGPU_FITS_NO);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* A batch that is too large, then a smaller one: the report is about the smaller one. */
static void test_attempts(void **state)
{
    (void)state;
    plim_vgpu *d = open_card(NULL, 2048 * MIB, "2.13", NULL);
    plim_vgpu_report *r = NULL;
    plim_vgpu_mark(d, 0, PLIM_PHASE_FORWARD, "", NULL);
    uint32_t large = take_block(d, 1000 * MIB, "a.py:1");
    take_block(d, 4096 * MIB, "a.py:2");
    take_block(d, 4096 * MIB, "a.py:2");
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("nothing came after it", r->failed && !r->n_attempts && r->num_ooms == 2);
    CHECK("which does not fit", r->cards[0].fits == PLIM_VGPU_FITS_NO);
    CHECK("its peak", r->peak_allocated == 1000 * MIB);
    plim_vgpu_report_free(r);
    assert_int_equal(plim_vgpu_free(d, large, NULL), PLIM_OK);
    plim_vgpu_mark(d, 1, PLIM_PHASE_FORWARD, "", NULL);
    take_block(d, 300 * MIB, "a.py:1");
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("one failed", !r->failed && r->n_attempts == 1);
    CHECK("its peak", r->attempts[0].peak_allocated == 1000 * MIB &&
                          r->attempts[0].oom_bytes == 4096 * MIB);
    CHECK_STR("its line", r->attempts[0].oom_line, "a.py:2");
    CHECK("the peak of the other", r->peak_allocated == 300 * MIB && r->peak_step == 1);
    CHECK("and its phases", r->phases[r->n_phases - 1].peak_allocated >= 300 * MIB &&
                                r->phases[r->n_phases - 1].step == 1);
    CHECK("live then", r->lines[0].live_at_peak == 300 * MIB);
    plim_vgpu_report_free(r);
    plim_vgpu_ended(d, PLIM_VGPU_END_ERROR, NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("no verdict after an error", r->cards[0].fits == PLIM_VGPU_FITS_UNKNOWN);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

static void check_groups(plim_vgpu *d, plim_vgpu_by by, const char *want)
{
    plim_vgpu_report *r = NULL;
    char have[256] = "";
    assert_int_equal(plim_vgpu_group(d, by, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    for (uint32_t i = 0; i < r->n_lines; i++)
        snprintf(have + strlen(have), sizeof have - strlen(have), "%s %llu/%llu; ",
                 r->lines[i].line, r->lines[i].live_at_peak / MIB,
                 r->lines[i].requested / MIB);
    CHECK_STR("groups", have, want);
    CHECK("as asked for", r->by == by);
    plim_vgpu_report_free(r);
}

/* By line, by the module that ran or owns a parameter, by op. */
static void test_groups(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("t4", 0, "2.13", NULL);
    uint32_t block;
    uint64_t addr;
    plim_vgpu_tag tag = {
        .line = "a.py:1", .op = "empty", .dtype = -1, .rank = -1, .category = PLIM_CAT_COUNT};
    plim_vgpu_malloc(d, 8 * MIB, 0, &tag, &block, &addr, NULL);
    plim_vgpu_label(d, block, PLIM_CAT_PARAMETER, "net.fc.weight", NULL);
    plim_vgpu_malloc(d, 16 * MIB, 0, &tag, &block, &addr, NULL);
    plim_vgpu_label(d, block, PLIM_CAT_OPTIMIZER_STATE, "net.fc.weight.exp_avg", NULL);
    plim_vgpu_malloc(d, 1 * MIB, 0, &tag, &block, &addr, NULL);
    plim_vgpu_label(d, block, PLIM_CAT_PARAMETER, "scale", NULL);
    plim_vgpu_mark(d, 0, PLIM_PHASE_FORWARD, "net.fc", NULL);
    tag.op = "addmm";
    plim_vgpu_malloc(d, 2 * MIB, 0, &tag, &block, &addr, NULL);
    plim_vgpu_free(d, block, NULL);
    plim_vgpu_mark(d, 0, PLIM_PHASE_BACKWARD, "", NULL);
    tag.line = "a.py:2";
    tag.op = "mm";
    tag.module = "net";
    plim_vgpu_malloc(d, 4 * MIB, 0, &tag, &block, &addr, NULL);
    check_groups(d, PLIM_VGPU_BY_LINE, "a.py:1 25/27; a.py:2 4/4; ");
    check_groups(d, PLIM_VGPU_BY_MODULE, "net.fc 24/26; net 4/4;  1/1; ");
    check_groups(d, PLIM_VGPU_BY_OP, "empty 25/25; mm 4/4; addmm 0/2; ");
    CHECK("no such grouping", plim_vgpu_group(d, PLIM_VGPU_BY_COUNT, NULL) == PLIM_EUSAGE);
    plim_vgpu_close(d);
}

/* ---- NULL -------------------------------------------------------------------- */

/* One argument is NULL and all others are valid: PLIM_EUSAGE, and nothing has changed. */
static void test_null(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("t4", 0, "2.13", NULL), *other = NULL;
    const plim_vgpu_options o = {.gpu = "t4"};
    const plim_vgpu_kernel_call call = {0}, lost = {.n_args = 1};
    const plim_vgpu_arg no_tensors = {.name = "self", .kind = PLIM_VGPU_TENSORS, .n = 2};
    const plim_vgpu_arg no_name = {.kind = PLIM_VGPU_FLOAT};
    const plim_vgpu_kernel_call empty = {.args = &no_tensors, .n_args = 1},
                                unnamed = {.args = &no_name, .n_args = 1};
    plim_vgpu_report *r = NULL;
    plim_vgpu_result out;
    uint32_t block = take_block(d, 100, "a.py:1"), n;
    uint64_t addr;
    bool oom;
    plim_err err = PLIM_ERR_INIT;
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    const struct {
        const char *why;
        plim_status got;
    } cases[] = {
        {"open: o", plim_vgpu_open(NULL, &other, NULL)},
        {"open: out", plim_vgpu_open(&o, NULL, NULL)},
        {"malloc: d", plim_vgpu_malloc(NULL, 1, 0, NULL, &n, &addr, NULL)},
        {"malloc: block", plim_vgpu_malloc(d, 1, 0, NULL, NULL, &addr, NULL)},
        {"malloc: addr", plim_vgpu_malloc(d, 1, 0, NULL, &n, NULL, NULL)},
        {"free: d", plim_vgpu_free(NULL, block, NULL)},
        {"record_stream: d", plim_vgpu_record_stream(NULL, block, 1, NULL)},
        {"sync: d", plim_vgpu_sync(NULL, 0, NULL)},
        {"empty_cache: d", plim_vgpu_empty_cache(NULL, NULL)},
        {"hold: d", plim_vgpu_hold(NULL, 0, true, NULL)},
        {"reset_peak: d", plim_vgpu_reset_peak(NULL, NULL)},
        {"config: d", plim_vgpu_config(NULL, "", NULL)},
        {"config: alloc_conf", plim_vgpu_config(d, NULL, NULL)},
        {"fraction: d", plim_vgpu_fraction(NULL, 0.5, NULL)},
        {"kernel: d", plim_vgpu_kernel(NULL, "mm", &call, &out, 1, &n, &oom, NULL)},
        {"kernel: name", plim_vgpu_kernel(d, NULL, &call, &out, 1, &n, &oom, NULL)},
        {"kernel: call", plim_vgpu_kernel(d, "mm", NULL, &out, 1, &n, &oom, NULL)},
        {"kernel: args", plim_vgpu_kernel(d, "mm", &lost, &out, 1, &n, &oom, NULL)},
        {"kernel: tensors", plim_vgpu_kernel(d, "mm", &empty, &out, 1, &n, &oom, NULL)},
        {"kernel: arg name", plim_vgpu_kernel(d, "mm", &unnamed, &out, 1, &n, &oom, NULL)},
        {"kernel: out", plim_vgpu_kernel(d, "mm", &call, NULL, 1, &n, &oom, NULL)},
        {"kernel: n_out", plim_vgpu_kernel(d, "mm", &call, &out, 1, NULL, &oom, NULL)},
        {"kernel: oom", plim_vgpu_kernel(d, "mm", &call, &out, 1, &n, NULL, NULL)},
        {"mark: d", plim_vgpu_mark(NULL, 0, PLIM_PHASE_LOSS, "", NULL)},
        {"label: d", plim_vgpu_label(NULL, block, PLIM_CAT_INPUT, "x", NULL)},
        {"place: d", plim_vgpu_place(NULL, 0, 1, NULL)},
        {"nccl: d", plim_vgpu_nccl(NULL, 0, 1, NULL)},
        {"note: d", plim_vgpu_note(NULL, "a.py:1", "x", NULL)},
        {"note: what", plim_vgpu_note(d, "a.py:1", NULL, NULL)},
        {"source: d", plim_vgpu_source(NULL, 0, "x", NULL)},
        {"first_step: d", plim_vgpu_first_step(NULL, NULL)},
        {"bounded: d", plim_vgpu_bounded(NULL, 0, NULL)},
        {"ended: d", plim_vgpu_ended(NULL, PLIM_VGPU_END_DONE, NULL)},
        {"save: d", plim_vgpu_save(NULL, "/dev/null", NULL)},
        {"save: path", plim_vgpu_save(d, NULL, NULL)},
        {"group: d", plim_vgpu_group(NULL, PLIM_VGPU_BY_LINE, NULL)},
        {"report_make: d", plim_vgpu_report_make(NULL, &r, NULL)},
        {"report_make: out", plim_vgpu_report_make(d, NULL, NULL)},
        {"report_print: r", plim_vgpu_report_print(NULL, PLIM_TEXT, NULL, add_text, "", NULL)},
        {"report_print: put", plim_vgpu_report_print(r, PLIM_TEXT, NULL, NULL, NULL, NULL)},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        CHECK(cases[i].why, cases[i].got == PLIM_EUSAGE);
    plim_vgpu_config(d, NULL, &err);
    CHECK_STR("it is named", err.msg, "argument 'alloc_conf' is NULL");
    CHECK("the block lives", plim_vgpu_free(d, block, NULL) == PLIM_OK);
    CHECK("a note on no line", plim_vgpu_note(d, NULL, "x", NULL) == PLIM_OK);
    CHECK("a mark of no layer", plim_vgpu_mark(d, 0, PLIM_PHASE_LOSS, NULL, NULL) == PLIM_OK);
    plim_vgpu_close(NULL);
    plim_vgpu_report_free(NULL);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* ---- threads ----------------------------------------------------------------- */

enum { THREADS = 8, ROUNDS = 40 };

/* Everything that a program does with the device, some of it without success. */
static void *use_device(void *ud)
{
    plim_vgpu *d = ud;
    const plim_vgpu_tensor q = {PLIM_F16, 4, {2, 4, 128, 64}, {32768, 8192, 64, 1}};
    const plim_vgpu_attention_call call = {.causal = true};
    plim_vgpu_tag tag = {
        .line = "a.py:1", .op = "empty", .dtype = -1, .category = PLIM_CAT_COUNT};
    plim_vgpu_stat s[32];
    plim_vgpu_block b[16];
    plim_vgpu_trace t[16];
    const char *lines[4];
    char text[1024];
    uint32_t block;
    uint64_t addr, room, total, wrong = 0;
    bool oom;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        wrong += plim_vgpu_mark(d, (int)i, PLIM_PHASE_FORWARD, "fc", NULL) != PLIM_OK;
        wrong += plim_vgpu_malloc(d, 4096 * (i + 1), 0, &tag, &block, &addr, NULL) != PLIM_OK;
        wrong += plim_vgpu_label(d, block, PLIM_CAT_ACTIVATION, "x", NULL) != PLIM_OK;
        wrong += plim_vgpu_record_stream(d, block, 1, NULL) != PLIM_OK;
        wrong += plim_vgpu_free(d, block, NULL) != PLIM_OK;
        wrong += plim_vgpu_sync(d, PLIM_VGPU_ALL_STREAMS, NULL) != PLIM_OK;
        wrong += plim_vgpu_malloc(d, 1ull << 50, 0, &tag, &block, &addr, NULL) != PLIM_OK;
        wrong += block != PLIM_VGPU_NONE;
        plim_vgpu_oom_text(d, text, sizeof text);
        wrong += !strstr(text, "Tried to allocate 1048576.00 GiB.");
        wrong += plim_vgpu_attention(d, &q, &q, &q, &call) != PLIM_VGPU_SDPA_FLASH;
        wrong += run_gemm(d, i % 2, i % 3 == 0, &oom) != PLIM_OK || oom;
        wrong += plim_vgpu_note(d, "a.py:1", "x", NULL) != PLIM_OK;
        plim_vgpu_history(d, 16, i % 8 == 7);
        plim_vgpu_stats(d, s, 32);
        plim_vgpu_blocks(d, b, 16);
        plim_vgpu_traces(d, t, 16);
        plim_vgpu_lines(d, lines, 4);
        plim_vgpu_mem_info(d, &room, &total);
    }
    plim_vgpu_report *r = NULL;
    wrong += plim_vgpu_report_make(d, &r, NULL) != PLIM_OK;
    plim_vgpu_report_free(r);
    return wrong ? ud : NULL;
}

/* Each thread gets what it would get alone; a thread sanitizer sees races. */
static void test_threads(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("a100,t4,rtx4090", 0, "2.13", NULL);
    pthread_t thread[THREADS];
    void *wrong = NULL;
    plim_vgpu_report *r = NULL;
    for (int i = 0; i < THREADS; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, use_device, d), 0);
    for (int i = 0; i < THREADS; i++) {
        assert_int_equal(pthread_join(thread[i], &wrong), 0);
        CHECK("as alone", !wrong);
    }
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("what failed", r->num_ooms == THREADS * ROUNDS);
    CHECK("one remark of each thread, and one on the T4", r->n_caveats == 2);
    CHECK("counted", r->caveats[0].count + r->caveats[1].count == THREADS * ROUNDS + 1);
    CHECK("the T4 takes another kernel", verdict_of(r, "T4")->fits == PLIM_VGPU_FITS_UNKNOWN);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

/* Replay reads what a device saves: the same peaks computed the other way. */
static void test_tape(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("rtx4090", 0, "2.13", NULL);
    bool oom;
    for (int i = 0; i < 40; i++) {
        uint32_t b = take_block(d, 1000003ull * (uint64_t)(i + 1), "x y.py:1");
        if (i % 3)
            plim_vgpu_free(d, b, NULL);
        else if (i % 2)
            run_gemm(d, i % 4 == 1, i % 5 == 0, &oom);
    }
    plim_replay *r = replay_of(d, 0);
    CHECK("reserved", r->reserved_bytes.peak == stat_of(d, "reserved_bytes").peak);
    CHECK("allocated", r->allocated_bytes.peak == stat_of(d, "allocated_bytes").peak);
    CHECK("requested", r->requested_bytes.current == stat_of(d, "requested_bytes").current);
    plim_replay_free(r);
    plim_vgpu_close(d);
}

static void test_blocks(void **state)
{
    (void)state;
    plim_vgpu *d = open_card("rtx4090", 0, "2.13", NULL);
    plim_vgpu_block b[8];
    take_block(d, 1000, "s.py:3");
    uint32_t n = plim_vgpu_blocks(d, b, 8);
    assert_int_equal(n, 2); /* 1024 bytes used of a segment of 2 MiB, and the rest */
    CHECK_STR("whose", b[0].line, "s.py:3");
    CHECK("how much", b[0].bytes == 1024 && b[0].requested == 1000 && b[0].state == 1);
    CHECK("the rest is free", b[1].state == 0 && b[1].bytes == 2 * MIB - 1024);
    plim_vgpu_close(d);
}

static void test_refused(void **state)
{
    plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
    plim_vgpu *d = NULL;
    plim_err err = PLIM_ERR_INIT;
    uint32_t block;
    uint64_t addr;
    (void)state;
    CHECK("no card", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    o.gpu = "rtx9999";
    CHECK("no such card", plim_vgpu_open(&o, &d, &err) == PLIM_EUSAGE);
    o.gpu = "t4,,h100";
    CHECK("an empty name", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_vgpu_options){.gpu = "t4,h100", .vram = MIB};
    CHECK("one size", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_vgpu_options){.gpu = "t4", .workspace = "huge"};
    CHECK("no such workspace", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_vgpu_options){.gpu = "t4", .alloc_conf = "nonsense:1"};
    CHECK("no such setting", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    o = (plim_vgpu_options){.gpu = "t4", .torch = "0.4"};
    CHECK("no such PyTorch", plim_vgpu_open(&o, &d, NULL) == PLIM_EUSAGE);
    d = open_card("t4", 0, NULL, NULL);
    CHECK("0 bytes", plim_vgpu_malloc(d, 0, 0, NULL, &block, &addr, NULL) == PLIM_EUSAGE);
    CHECK("no such block", plim_vgpu_free(d, 7, NULL) == PLIM_EUSAGE);
    CHECK("no such phase", plim_vgpu_mark(d, 0, PLIM_PHASE_COUNT, "", NULL) == PLIM_EUSAGE);
    plim_vgpu_close(d);
}

/* Makes a run in which a line has so many blocks, of so many bytes each, at the ends of
 * steps.  `keeps`: what is there stays; else each step has blocks of its own. */
static plim_vgpu *run_steps(const char *counts, const char *sizes, bool keeps)
{
    plim_vgpu *d = open_card(NULL, 1024 * MIB, "2.13", "off");
    uint32_t held[64], n = 0, steps = (uint32_t)strlen(counts);
    for (uint32_t s = 0; s < steps; s++) {
        uint32_t wanted = (uint32_t)(counts[s] - '0');
        uint64_t bytes = sizes ? (uint64_t)(sizes[s] - '0') * MIB : MIB;
        plim_vgpu_mark(d, (int)s, PLIM_PHASE_FORWARD, NULL, NULL);
        while (n && (!keeps || n > wanted))
            plim_vgpu_free(d, held[--n], NULL);
        while (n < wanted)
            held[n++] = take_block(d, bytes, "a.py:1");
        plim_vgpu_free(d, take_block(d, 4 * MIB, "a.py:2"), NULL);
    }
    plim_vgpu_mark(d, (int)steps, PLIM_PHASE_INPUTS, NULL, NULL);
    return d;
}

/* One of several: the report says which, and what NCCL may have taken. */
static void test_place(void **state)
{
    (void)state;
    static char out[1 << 16];
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_options o = {.gpu = "a100"};
    plim_vgpu *d = NULL;
    plim_vgpu_report *r = NULL;
    assert_int_equal(plim_vgpu_open(&o, &d, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_place(d, 8, 8, &err), PLIM_EUSAGE);
    assert_string_equal(err.msg, "rank 8 is not in 0..7");
    assert_int_equal(plim_vgpu_nccl(d, 2, 1, &err), PLIM_EUSAGE);
    take_block(d, MIB, "net.py:9");
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    const uint64_t low = r->cards[0].device_low, high = r->cards[0].device_high;
    assert_int_equal(r->world, 1);
    out[0] = '\0';
    assert_int_equal(plim_vgpu_report_print(r, PLIM_JSON, NULL, add_text, out, NULL), PLIM_OK);
    assert_null(strstr(out, "\"world\""));
    plim_vgpu_report_free(r);

    assert_int_equal(plim_vgpu_place(d, 3, 8, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_nccl(d, 24 * MIB, 384 * MIB, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    assert_int_equal(r->cards[0].device_low, low + 24 * MIB);
    assert_int_equal(r->cards[0].device_high, high + 384 * MIB);
    out[0] = '\0';
    assert_int_equal(plim_vgpu_report_print(r, PLIM_TEXT, NULL, add_text, out, NULL), PLIM_OK);
    assert_non_null(strstr(out, " rank 3 of 8\n"));
    assert_non_null(
        strstr(out, " MiB\n             with the CUDA context and NCCL's buffers (24"));
    out[0] = '\0';
    assert_int_equal(plim_vgpu_report_print(r, PLIM_JSON, NULL, add_text, out, NULL), PLIM_OK);
    assert_non_null(strstr(out, "\"rank\":3,\"world\":8,\"nccl_low\":25165824"));
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
}

static void test_growth(void **state)
{
    static const struct {
        const char *why, *counts, *sizes;
        bool other; /* blocks in each step */
        uint64_t mib, tensors;
        uint32_t every; /* 0: does not grow */
    } cases[] = {
        {"one a step", "0123456789", NULL, false, 1, 1, 1},
        {"as soon as five have run", "01234", NULL, false, 1, 1, 1},
        {"four show what may be", "0123", NULL, false, 1, 1, 1},
        {"so do three", "012", NULL, false, 1, 1, 1},
        {"two do not", "01", NULL, false, 0, 0, 0},
        {"several of the same size", "147", NULL, false, 3, 3, 1},
        {"fewer in the last step", "146", NULL, false, 2, 2, 1},
        {"a plateau of three steps", "122", NULL, false, 0, 0, 0},
        {"the keys of a cache have sizes of their own", "123", "123", false, 0, 0, 0},
        {"three longer sequences", "123", NULL, true, 0, 0, 0},
        {"a tensor that has been larger twice", "111", "123", true, 0, 0, 0},
        {"five longer sequences", "12345", NULL, true, 0, 0, 0},
        {"two a step", "02468", NULL, false, 2, 2, 1},
        {"after a plateau", "111111112345678", NULL, false, 1, 1, 1},
        {"every second step", "0011223344", NULL, false, 1, 1, 2},
        {"not often enough yet", "0011223", NULL, false, 0, 0, 0},
        {"the same", "3333333333", NULL, false, 0, 0, 0},
        {"it appears in the first steps", "0499999999", NULL, false, 0, 0, 0},
        {"a cache that becomes full", "0123456666", NULL, false, 0, 0, 0},
        {"a copy that is made once", "1111122222", NULL, false, 0, 0, 0},
        {"it comes and goes", "1212121212", NULL, false, 0, 0, 0},
        {"it was given back", "0123456701", NULL, false, 0, 0, 0},
        {"it becomes less", "9876543210", NULL, false, 0, 0, 0},
        {"longer and longer sequences", "0123456789", NULL, true, 0, 0, 0},
        {"a tensor that becomes larger", "111111111", "123456789", true, 1, 0, 1},
        {"of changing size", "111111111", "123546789", true, 0, 0, 0},
        {"of any size", "111111111", "124567899", true, 0, 0, 0},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_vgpu *d = run_steps(cases[i].counts, cases[i].sizes, !cases[i].other);
        plim_vgpu_growing rows[64];
        uint32_t n = plim_vgpu_growing_blocks(d, rows, 64);
        plim_vgpu_report *r = NULL;
        uint64_t free_bytes, total, held = stat_of(d, "reserved_bytes").current;
        plim_vgpu_mem_info(d, &free_bytes, &total);
        if (n)
            assert_int_equal(plim_vgpu_holder(d, rows[0].line, "`a` in `main`", NULL),
                             PLIM_OK);
        assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
        CHECK(cases[i].why, r->n_growth == (cases[i].every > 0) && (n > 0) == r->n_growth);
        uint64_t ran = strlen(cases[i].counts);
        CHECK("five steps tell", r->growth_sure == (ran > 4));
        CHECK("over how many", r->growth_steps == (ran > 4 ? ran - 2 : ran > 2 ? ran - 1 : 0));
        if (r->n_growth) {
            CHECK_STR(cases[i].why, r->growth[0].line, "a.py:1");
            CHECK_STR(cases[i].why, r->growth[0].holder, "`a` in `main`");
            CHECK(cases[i].why, r->growth[0].bytes == cases[i].mib * MIB &&
                                    r->growth[0].tensors == cases[i].tensors &&
                                    r->growth[0].every == cases[i].every);
            uint64_t rate = cases[i].mib * MIB / cases[i].every;
            uint64_t peak = stat_of(d, "allocated_bytes").current + 4 * MIB;
            CHECK(cases[i].why, (uint64_t)r->cards[0].growth_step ==
                                    ran + (free_bytes + held - peak) / rate);
        }
        CHECK(cases[i].why, r->n_growth || !r->cards[0].growth_step);
        plim_vgpu_report_free(r);
        plim_vgpu_close(d);
    }
    plim_vgpu *d = run_steps("0123456", NULL, true);
    plim_vgpu_report *r = NULL;
    plim_vgpu_mark(d, 4, PLIM_PHASE_OPTIMIZER, NULL, NULL);
    assert_int_equal(plim_vgpu_first_step(d, NULL), PLIM_OK);
    plim_vgpu_mark(d, 7, PLIM_PHASE_INPUTS, NULL, NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("steps before the last optimizer's first one do not count",
          !r->growth_sure && r->growth_steps == 2 && r->n_growth == 1);
    plim_vgpu_report_free(r);
    assert_int_equal(plim_vgpu_bounded(d, 1, NULL), PLIM_OK);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("what holds it stops to grow", !r->n_growth);
    plim_vgpu_report_free(r);
    plim_vgpu_mark(d, 8, PLIM_PHASE_OPTIMIZER, NULL, NULL);
    assert_int_equal(plim_vgpu_first_step(d, NULL), PLIM_OK);
    plim_vgpu_mark(d, 9, PLIM_PHASE_INPUTS, NULL, NULL);
    assert_int_equal(plim_vgpu_report_make(d, &r, NULL), PLIM_OK);
    CHECK("an optimizer that comes late is part of the loop", r->growth_sure);
    plim_vgpu_report_free(r);
    plim_vgpu_close(d);
    d = open_card("t4", 0, "2.13", NULL);
    CHECK("no line to bound", plim_vgpu_bounded(d, 7, NULL) == PLIM_EUSAGE);
    CHECK("no such line", plim_vgpu_holder(d, 7, "x", NULL) == PLIM_EUSAGE);
    plim_vgpu_close(d);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_three_lines), cmocka_unit_test(test_hold),
        cmocka_unit_test(test_oom),         cmocka_unit_test(test_fraction),
        cmocka_unit_test(test_pools),       cmocka_unit_test(test_history),
        cmocka_unit_test(test_workspace),   cmocka_unit_test(test_context),
        cmocka_unit_test(test_fourier),     cmocka_unit_test(test_full_workspace),
        cmocka_unit_test(test_report),      cmocka_unit_test(test_cards),
        cmocka_unit_test(test_print),       cmocka_unit_test(test_growth),
        cmocka_unit_test(test_other_way),   cmocka_unit_test(test_other_vendors),
        cmocka_unit_test(test_end),         cmocka_unit_test(test_attempts),
        cmocka_unit_test(test_groups),      cmocka_unit_test(test_null),
        cmocka_unit_test(test_threads),     cmocka_unit_test(test_tape),
        cmocka_unit_test(test_blocks),      cmocka_unit_test(test_refused),
        cmocka_unit_test(test_machine),     cmocka_unit_test(test_machine_names),
        cmocka_unit_test(test_places),      cmocka_unit_test(test_place),
        cmocka_unit_test(test_alone),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
