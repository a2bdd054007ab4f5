/* test_gpu.c -- the cards: names, consistency of their data, contexts. */
#include "gpu/gpu.h"

#include <stdio.h>

#include "unit.h"

static const plim_gpu *card(const char *name)
{
    const plim_gpu *g = NULL;
    plim_err err = PLIM_ERR_INIT;
    plim_gpu_find(plim_str_of(name), &g, &err);
    CHECK(err.msg[0] ? err.msg : name, g != NULL);
    return g;
}

static void test_names(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *name;
    } rows[] = {
        {"rtx4090", "NVIDIA GeForce RTX 4090"},
        {"RTX 4090", "NVIDIA GeForce RTX 4090"},
        {"GeForce-RTX-4090", "NVIDIA GeForce RTX 4090"},
        {"NVIDIA GeForce RTX 4090", "NVIDIA GeForce RTX 4090"},
        {"4090", "NVIDIA GeForce RTX 4090"},
        {"3090", "NVIDIA GeForce RTX 3090"},
        {"rtx3060", "NVIDIA GeForce RTX 3060 12GB"},
        {"rtx3060-8g", "NVIDIA GeForce RTX 3060 8GB"},
        {"rtx4070 ti super", "NVIDIA GeForce RTX 4070 Ti Super"},
        {"gtx1080ti", "NVIDIA GeForce GTX 1080 Ti"},
        {"a100", "NVIDIA A100 SXM4 80GB"},
        {"a100-80g", "NVIDIA A100 SXM4 80GB"},
        {"a100-40g", "NVIDIA A100 SXM4 40GB"},
        {"h100", "NVIDIA H100 SXM5 80GB"},
        {"NVIDIA H100 80GB HBM3", "NVIDIA H100 SXM5 80GB"}, /* its name in the driver */
        {"NVIDIA GH200 480GB", "NVIDIA GH200 96GB"},        /* it names the CPU's memory */
        {"Tesla V100-SXM3-32GB", "NVIDIA V100 SXM2 32GB"},
        {"A100-SXM-80GB", "NVIDIA A100 SXM4 80GB"},
        {"NVIDIA B300 SXM6 AC", "NVIDIA B300 SXM"},
        {"AMD Instinct MI250X/MI250", "AMD Instinct MI250X (per GCD of 2)"},
        {"AMD Instinct MI250", "AMD Instinct MI250 (per GCD of 2)"},
        {"h100-pcie", "NVIDIA H100 PCIe 80GB"},
        {"h200", "NVIDIA H200 SXM 141GB"},
        {"b200", "NVIDIA B200 SXM"},
        {"v100", "NVIDIA V100 SXM2 16GB"},
        {"v100-32g", "NVIDIA V100 SXM2 32GB"},
        {"t4", "NVIDIA T4"},
        {"Tesla T4", "NVIDIA T4"},
        {"l4", "NVIDIA L4"},
        {"l40s", "NVIDIA L40S"},
        {"rtx a6000", "NVIDIA RTX A6000"},
        {"mi300x", "AMD Instinct MI300X"},
        {"7900xtx", "AMD Radeon RX 7900 XTX"},
        {"a770", "Intel Arc A770 16GB"},
        {"m4-max-128g", "Apple M4 Max 128GB"},
        /* in other words than the list's */
        {"a100-80gb", "NVIDIA A100 SXM4 80GB"},
        {"A100 80GB", "NVIDIA A100 SXM4 80GB"},
        {"A100_80G", "NVIDIA A100 SXM4 80GB"},
        {"A100 80 GB", "NVIDIA A100 SXM4 80GB"},
        {"a100 40", "NVIDIA A100 SXM4 40GB"},
        {"a100 80gb pcie", "NVIDIA A100 PCIe 80GB"},
        {"v100 32", "NVIDIA V100 SXM2 32GB"},
        {"V100-32GiB", "NVIDIA V100 SXM2 32GB"},
        {"Tesla V100-SXM2-16GB", "NVIDIA V100 SXM2 16GB"},
        {"h100 80g pcie", "NVIDIA H100 PCIe 80GB"},
        {"T4 16GB", "NVIDIA T4"},
        {"RTX 4090 24GB", "NVIDIA GeForce RTX 4090"},
        {"Jetson Orin NX", "NVIDIA Jetson Orin NX 16GB"},
        {"a100-40g:3g.20gb", "NVIDIA A100 SXM4 40GB MIG 3g.20gb"},
        {"a100:3g.40gb", "NVIDIA A100 SXM4 80GB MIG 3g.40gb"},
        {"A100 80GB:3g.40gb",
         "NVIDIA A100 SXM4 80GB MIG 3g.40gb"}, /* another name of the card */
        {"h100-sxm5:1G.10GB", "NVIDIA H100 SXM5 80GB MIG 1g.10gb"},
        {"a30:1g.6gb+me", "NVIDIA A30 MIG 1g.6gb"},
        {"NVIDIA A100-SXM4-40GB MIG 3g.20gb",
         "NVIDIA A100 SXM4 40GB MIG 3g.20gb"}, /* its name in the driver */
        {"strix-halo", "AMD Ryzen AI Max+ 395 128GB"},
        {"NVIDIA GeForce RTX 5090 Laptop GPU", "NVIDIA GeForce RTX 5090 Laptop GPU"},
        {"m1 16gb", "Apple M1 16GB"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        CHECK_STR(rows[i].asked, card(rows[i].asked)->name, rows[i].name);
}

static void test_unknown(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *msg;
    } rows[] = {
        {"rtx4091", "unknown gpu 'rtx4091': nearest are 'rtx4090', 'rtx4090d', 'rtx4060'"},
        {"a1000", "unknown gpu 'a1000': nearest are"},
        {"xyzzy-plugh-gnu", "unknown gpu 'xyzzy-plugh-gnu'"},
        {"", "unknown gpu ''"},
        {"nvidia", "unknown gpu 'nvidia'"},
        {"24gb", "unknown gpu '24gb'"},
        {"4090 48gb", "unknown gpu '4090 48gb': nearest are"},
        {"V100 SXM2",
         "gpu 'V100 SXM2' is ambiguous: it may be one of 'NVIDIA V100 SXM2 16GB', "
         "'NVIDIA V100 SXM2 32GB'"},
        {"a100-40g:3g.40gb",
         "gpu 'NVIDIA A100 SXM4 40GB' has no MIG profile '3g.40gb': it has 1g.5gb, 1g.10gb, "
         "2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb"},
        {"a100:", "gpu 'NVIDIA A100 SXM4 80GB' has no MIG profile '': it has 1g.10gb,"},
        {"rtx4090:1g.6gb", "gpu 'NVIDIA GeForce RTX 4090' has no MIG profiles"},
        {"a100:3g.40gb:3g.40gb",
         "gpu 'NVIDIA A100 SXM4 80GB' has no MIG profile '3g.40gb:3g.40gb'"},
        {":3g.40gb", "unknown gpu ''"},
        {"m1", "gpu 'm1' is ambiguous: it may be one of 'Apple M1 8GB', 'Apple M1 16GB'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_gpu *g = NULL;
        plim_err err = PLIM_ERR_INIT;
        CHECK(rows[i].asked,
              plim_gpu_find(plim_str_of(rows[i].asked), &g, &err) == PLIM_EUSAGE);
        CHECK("out is untouched", g == NULL);
        if (strncmp(err.msg, rows[i].msg, strlen(rows[i].msg)) != 0)
            CHECK_STR(rows[i].asked, err.msg, rows[i].msg);
    }
    char longest[500];
    memset(longest, 'r', sizeof longest);
    const plim_gpu *g;
    CHECK("a very long name",
          plim_gpu_find((plim_str){longest, sizeof longest}, &g, NULL) == PLIM_EUSAGE);
}

/* Every name and alias leads to its own row, so none occurs twice. */
static void test_aliases(void **state)
{
    (void)state;
    const plim_gpu *g;
    for (uint32_t i = 0; (g = plim_gpu_at(i)) != NULL; i++) {
        CHECK(g->name, card(g->name) == g);
        char list[256];
        CHECK(g->name, strlen(g->aliases) < sizeof list && g->aliases[0]);
        strcpy(list, g->aliases);
        for (char *alias = strtok(list, ", "); alias; alias = strtok(NULL, ", "))
            CHECK(alias, card(alias) == g);
    }
    CHECK("beyond the whole ones", *plim_gpu_at(plim_gpu_count())->mig_of);
}

static void test_rows(void **state)
{
    (void)state;
    const uint64_t gib = 1ull << 30;
    CHECK("every card of the table", plim_gpu_count() >= 195);
    const plim_gpu *g;
    for (uint32_t i = 0; (g = plim_gpu_at(i)) != NULL; i++) {
        double gb = (double)g->memory_bytes / (double)gib;
        CHECK(g->name, g->src[0] && g->vendor[0] && g->klass[0]);
        CHECK(g->name, g->year >= 2012 && g->year <= 2026);
        /* Less than the size sold (in GiB), but not by much. */
        CHECK(g->name, gb <= g->marketed_gb && gb > 0.87 * g->marketed_gb);
        CHECK(g->name, g->bandwidth_gbs >= 0 && g->bandwidth_gbs <= 8000);
        bool nvidia = strcmp(g->vendor, "NVIDIA") == 0;
        CHECK(g->name, nvidia ? g->cc >= 35 && g->cc <= 121 : g->cc == 0);
        /* A faster type is not slower. */
        CHECK(g->name, g->tf32 <= 0 || (g->tf32 >= g->fp32 && g->fp16 > 1.95 * g->tf32));
        CHECK(g->name, g->bf16 <= 0 ||
                           (g->bf16 > 0.99 * g->fp16 && g->bf16 < 1.01 * g->fp16) ||
                           g->fp16 <= 0);
        CHECK(g->name, g->fp8 <= 0 || g->fp16 <= 0 || g->fp8 >= 1.9 * g->fp16);
    }
}

/* Totals reported by drivers, if possible from another source than gpus.def's table:
 * nvidia-smi's MiB are an upper bound (they include what the driver reserves).
 * src: github modal-labs/modal-client#2797 (nvidia-smi totals). */
static void test_totals(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        uint64_t exact, at_most_mib;
    } rows[] = {
        {"rtx3060", 12622168064ull, 12288},
        {"a100-40g", 42474471424ull, 40960},
        {"v100", 16160ull << 20, 16384},
        {"orin-nx", 15189422080ull, 16384},
        {"a100-80g", 0, 81920},
        {"h100", 0, 81559},
        {"a10", 0, 23028},
        {"l40s", 0, 46068},
        {"l4", 0, 23034},
        {"t4", 0, 15360},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_gpu *g = card(rows[i].name);
        uint64_t most = rows[i].at_most_mib << 20;
        CHECK(rows[i].name, !rows[i].exact || g->memory_bytes == rows[i].exact);
        CHECK(rows[i].name, g->memory_bytes <= most && g->memory_bytes > most / 100 * 88);
        CHECK(rows[i].name, !rows[i].exact || g->memory_kind == PLIM_GPU_DRIVER);
    }
    CHECK("B200", card("b200")->memory_kind == PLIM_GPU_PRINTED);
    CHECK("nobody's driver", card("rtx4060")->memory_kind == PLIM_GPU_MARKETED);
}

/* Memory that the CPU has, too: the total and what the system keeps, by users of such machines.
 * src: docs/sources/cards.md 4 */
static void test_unified(void **state)
{
    (void)state;
    const uint64_t gib = 1ull << 30;
    static const struct {
        const char *name;
        double total, low, high;
    } rows[] = {{"gb10", 121.63, 3.3, 20.4},  {"thor", 122.82, 3.3, 15.7},
                {"orin", 61.4, 0.5, 9.8},     {"orin-nano", 7.44, 0.5, 1.5},
                {"m1-max-32g", 32, 4, 10.67}, {"m4-max-128g", 128, 16, 32},
                {"strix-halo", 128, 8, 65.5}, {"h100", 79.18, 0, 0}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_gpu *g = card(rows[i].name);
        const double total = (double)g->memory_bytes / (double)gib,
                     low = (double)g->kept_low / (double)gib,
                     high = (double)g->kept_high / (double)gib;
        CHECK(rows[i].name, total < rows[i].total + .01 && total > rows[i].total - .01);
        CHECK(rows[i].name, low < rows[i].low + .01 && low > rows[i].low - .01);
        CHECK(rows[i].name, high < rows[i].high + .01 && high > rows[i].high - .01);
        CHECK(rows[i].name, g->unified == (rows[i].high > 0));
    }
    for (uint32_t i = 0; i < plim_gpu_count(); i++) {
        const plim_gpu *g = plim_gpu_at(i);
        CHECK(g->name, g->kept_low <= g->kept_high && g->kept_high < g->memory_bytes);
        CHECK(g->name, g->unified || !g->kept_high);
        CHECK(g->name, !g->unified || g->kept_high); /* a process never has all of it */
    }
}

/* What the system keeps is no process's: it stands with what is outside PyTorch's allocator. */
static void test_system(void **state)
{
    (void)state;
    const plim_gpu_use use = plim_gpu_use_of(PLIM_GPU_ANY);
    const plim_gpu *gb10 = card("gb10");
    plim_gpu given = *gb10;
    plim_gpu_give(&given, 100ull << 30);
    const plim_gpu_context all = plim_gpu_context_of(gb10, 215, use),
                           free = plim_gpu_context_of(&given, 215, use);
    assert_int_equal(all.n_parts, free.n_parts + 1);
    CHECK_STR("the part", all.part[all.n_parts - 1].name, "the system");
    assert_int_equal(all.low - free.low, gb10->kept_low);
    assert_int_equal(all.usual - free.usual, gb10->kept_usual);
    assert_int_equal(all.high - free.high, gb10->kept_high);
    CHECK("without a context nothing is known",
          !plim_gpu_context_of(card("m4-max-128g"), 215, use).n_parts);
}

/* Instances are parts of their card, and there are no more of them than it has memory for. */
static void test_instances(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        double
            gib; /* src: nvidia-smi mig -lgip, PyTorch's messages: docs/sources/cards.md 5 */
        int sms;
    } rows[] = {{"a100-40g:1g.5gb", 4.75, 14}, {"a100-40g:3g.20gb", 19.5, 42},
                {"a100:3g.40gb", 39.25, 42},   {"a30:2g.12gb", 11.69, 28},
                {"h100:1g.10gb", 9.75, 16},    {"h100:7g.80gb", 79.12, 132},
                {"h200:1g.18gb", 16, 16},      {"h200:3g.71gb", 69.5, 60},
                {"b200:1g.23gb", 20.5, 18},    {"rtxpro6000:2g.48gb", 47.38, 94}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_gpu *g = card(rows[i].name);
        const double gib = (double)g->memory_bytes / (double)(1u << 30);
        CHECK(rows[i].name, gib < rows[i].gib + .01 && gib > rows[i].gib - .01);
        assert_int_equal(g->sms, rows[i].sms);
    }
    const plim_gpu *g;
    uint32_t n = plim_gpu_count();
    for (; (g = plim_gpu_at(n)) != NULL; n++) {
        const plim_gpu *whole = card(g->mig_of);
        const uint64_t parts = (uint64_t)(whole->marketed_gb / g->marketed_gb + .05);
        CHECK(g->name, *g->mig_of && plim_gpu_is(whole, g->mig_of) && !*whole->mig_of);
        CHECK(g->name, g->memory_bytes <= whole->memory_bytes);
        CHECK(g->name, !whole->sms || g->sms <= whole->sms);
        CHECK(g->name, g->bandwidth_gbs <= whole->bandwidth_gbs && g->fp16 <= whole->fp16);
        CHECK(g->name, g->cc == whole->cc && !g->price_usd);
        CHECK(g->name, parts * g->memory_bytes <= whole->memory_bytes + (1ull << 30));
    }
    CHECK("all tables", n - plim_gpu_count() >= 80);
    plim_arena a = PLIM_ARENA_INIT;
    const plim_gpu **list;
    uint32_t cards;
    assert_int_equal(plim_gpu_list(&a, "all", &list, &cards, NULL), PLIM_OK);
    assert_int_equal(cards, plim_gpu_count());
    plim_arena_free(&a);
}

/* "24GB" is 22.35 GiB, and is told as what is sold; what no card has is not. */
static void test_sold(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    CHECK_STR("24 GB", plim_gpu_sold(&a, 24000000000),
              "24 GB is 22.35 GiB: a card that is sold with 24 GB has 24 GiB, less what its "
              "driver keeps. Name the card, as in --gpu rtx3090, or write 24GiB.");
    static const uint64_t others[] = {0, 24ull << 30, 23000000000, 24000000001, UINT64_MAX};
    for (size_t i = 0; i < PLIM_COUNT(others); i++)
        CHECK_STR("nobody's", plim_gpu_sold(&a, others[i]), "");
    plim_arena_free(&a);
}

static void test_generic(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_gpu g;
    CHECK("a size", plim_gpu_generic(&a, 24ull << 30, &g, NULL) == PLIM_OK);
    CHECK("its bytes", g.memory_bytes == 24ull << 30 && g.memory_kind == PLIM_GPU_GIVEN);
    CHECK_STR("its name", g.name, "a card of 24.00 GiB");
    CHECK("nothing else is known", g.cc == 0 && g.sms == 0 && g.fp32 <= 0);
    plim_arena_free(&a);
}

static void test_generation(void **state)
{
    (void)state;
    static const struct {
        int cc, threads;
    } rows[] = {
        {0, 0},     {35, 2048}, {61, 2048}, {70, 2048},  {75, 1024},  {80, 2048},  {86, 1536},
        {87, 1536}, {89, 1536}, {90, 2048}, {100, 2048}, {103, 2048}, {120, 1536}, {121, 1536},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        CHECK("threads an SM holds", plim_gpu_threads_per_sm(rows[i].cc) == rows[i].threads);
}

/* A compute capability that is not listed has the limits of the one before it.
 * src: CUDA C++ Programming Guide 12.9, technical specifications per compute capability */
static void test_limits(void **state)
{
    (void)state;
    static const struct {
        int cc, shared_per_sm, shared_per_block;
    } rows[] = {
        {0, 64, 48},   {61, 96, 48},   {75, 64, 64},    {80, 164, 163}, {86, 100, 99},
        {89, 100, 99}, {90, 228, 227}, {100, 228, 227}, {121, 100, 99}, {103, 228, 227},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_gpu_limits l = plim_gpu_limits_of(rows[i].cc);
        CHECK("KiB shared by an SM", l.shared_per_sm == rows[i].shared_per_sm << 10);
        CHECK("KiB that a block may have",
              l.shared_per_block == rows[i].shared_per_block << 10);
        CHECK("a block has no more than its SM", l.shared_per_block <= l.shared_per_sm);
    }
}

/* Every measured context lies in the range given for it. */
static void test_contexts(void **state)
{
    (void)state;
    const plim_gpu_use loop = plim_gpu_use_of(PLIM_GPU_LOOP);
    static const struct {
        const char *card;
        int torch;
        uint64_t bytes;
        const char *src;
    } rows[] = {
        {"titanv", 103, 1006 * 1000000ull, "pytorch issue 28394"},
        {"v100", 101, 300 * 1000000ull, "pytorch issue 20532"},
        {"rtx2080ti", 106, 877ull << 20, "pytorch issue 49877, less 158 MiB"},
        {"rtx3090", 107, 1486ull << 20, "pytorch issue 49877, less 158 MiB"},
        {"gtx1080", 108, 721ull << 20, "pytorch issue 55277"},
        {"rtx3090", 108, 1687ull << 20, "pytorch issue 55277"},
        {NULL, 108, 934ull << 20, "pytorch issue 74536"},
        {NULL, 111, 1106ull << 20, "pytorch issue 74536"},
        {"v100", 110, 1343ull << 20, "HF docs, January 2022"},
        {"a100", 110, 1911260446ull, "ml-engineering: 1.78 GiB"},
        {"a100", 113, 966367641ull, "ml-engineering: 0.90 GiB"},
        {"a100", 201, 504658657ull, "ml-engineering: 0.47 GiB, lazy"},
        {"rtx6000ada", 210, 426ull << 20, "unsloth issue 1053"},
        {"a100", 208, 524ull << 20, "CARMA: resnet18 on 32 x 32"},
        {NULL, 113, 287047680, "pytorch PR 86509"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_gpu_context c =
            plim_gpu_context_of(rows[i].card ? card(rows[i].card) : NULL, rows[i].torch, loop);
        CHECK(rows[i].src, c.low <= rows[i].bytes && rows[i].bytes <= c.high);
        CHECK(rows[i].src, c.low <= c.usual && c.usual <= c.high);
    }
    plim_gpu_context any = plim_gpu_context_of(NULL, 215, loop);
    CHECK("no card chosen has a range", any.low > 0 && any.high > any.low);
    CHECK("nothing was measured on it",
          any.n_parts == 1 && any.part[0].known == PLIM_GPU_ASSUMED);
    any = plim_gpu_context_of(NULL, 112, loop);
    plim_gpu_context c = plim_gpu_context_of(card("a100"), 112, loop);
    CHECK("no card is as wide as every card", any.low <= c.low && any.high >= c.high);
    c = plim_gpu_context_of(card("a100"), 208, loop);
    CHECK("where more is known, the range is narrower", c.high == 580ull << 20);
    CHECK("which was measured", c.n_parts == 1 && c.part[0].known == PLIM_GPU_MEASURED);
    c = plim_gpu_context_of(card("h100"), 211, plim_gpu_use_of(PLIM_GPU_ANY));
    CHECK("of engines nothing was measured",
          c.high == plim_gpu_context_of(card("t4"), 211, loop).high);
    c = plim_gpu_context_of(card("mi300x"), 215, loop);
    CHECK("no CUDA, no number", c.high == 0 && c.n_parts == 0);
}

/* What processes on an H100 and an H200 held outside the allocator, by what they called. */
static void test_context_parts(void **state)
{
    (void)state;
    enum { NO, MAIN, BOTH = 3 };
    static const struct {
        const char *what;
        uint8_t callers[PLIM_CUDA_LIBRARIES]; /* cuBLAS, cuDNN, cuFFT, cuSOLVER */
        bool eager;
        double mib;
    } rows[] = {
        {"training of convolutions only", {NO, BOTH}, false, 630},
        {"the same, cudaMemGetInfo", {NO, BOTH}, false, 640.8},
        {"inference of convolutions only, cudaMemGetInfo", {NO, MAIN}, false, 630.8},
        {"training in fp32 without convolutions", {BOTH, NO}, false, 742},
        {"cudaMemGetInfo of a small network", {BOTH, NO}, false, 748.8},
        {"attention by cuDNN", {BOTH, BOTH}, false, 758},
        {"a network with cuDNN's search", {BOTH, BOTH}, false, 764},
        {"the most by cudaMemGetInfo", {BOTH, BOTH}, false, 770.8},
        {"inference", {MAIN, MAIN}, false, 684},
        {"generate", {MAIN, MAIN}, false, 692},
        {"inference, cudaMemGetInfo", {MAIN, MAIN}, false, 694.8},
        {"stages: the first product", {MAIN, NO}, false, 676},
        {"stages: a convolution and its gradients", {MAIN, BOTH}, false, 692},
        {"stages: svd", {MAIN, BOTH, NO, MAIN}, false, 790},
        {"stages: fft", {MAIN, BOTH, MAIN, MAIN}, false, 798},
        {"eager: the first tensor", {NO}, true, 1252},
        {"eager: the first product", {MAIN, NO}, true, 1732},
        {"eager: a product in bf16", {MAIN, NO}, true, 1770},
        {"eager: a convolution and its gradients", {MAIN, BOTH}, true, 1982},
        {"eager: svd", {MAIN, BOTH, NO, MAIN}, true, 2192},
        {"eager: fft", {MAIN, BOTH, MAIN, MAIN}, true, 2200},
        {"eager: training", {BOTH, BOTH}, true, 2048},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_gpu_use use = plim_gpu_use_of(PLIM_GPU_LOOP);
        use.eager = rows[i].eager;
        plim_gpu_use_callers(&use, rows[i].callers);
        const plim_gpu_context c =
            plim_gpu_context_of(card(i % 2 ? "h200" : "h100"), 211, use);
        const double mib = 1 << 20, off = rows[i].mib - (double)c.usual / mib;
        uint64_t sum = 0;
        CHECK(rows[i].what,
              (double)c.low <= rows[i].mib * mib && rows[i].mib * mib <= (double)c.high);
        CHECK(rows[i].what, rows[i].eager || (off > -24 && off < 24));
        for (uint32_t k = 0; k < c.n_parts; k++)
            sum += c.part[k].usual;
        CHECK(rows[i].what, sum == c.usual && c.n_parts > 1);
        use.program = PLIM_GPU_SCRIPT;
        const plim_gpu_context any = plim_gpu_context_of(card("h100"), 211, use);
        CHECK("a script has no narrower range", any.low <= c.low && any.high >= c.high);
    }
}

static void test_context_uses(void **state)
{
    (void)state;
    plim_gpu_use use = plim_gpu_use_of(PLIM_GPU_LOOP),
                 script = plim_gpu_use_of(PLIM_GPU_SCRIPT);
    const plim_gpu_context alone = plim_gpu_context_of(card("h100"), 211, use);
    use.count[PLIM_GPU_COMMUNICATORS] = (plim_gpu_counted){2, 2, 2};
    const plim_gpu_context two = plim_gpu_context_of(card("h100"), 211, use);
    CHECK("NCCL's code once, each communicator 388 MiB",
          two.usual - alone.usual == (270ull + 2 * 388) << 20);
    CHECK("a compiled step with CUDA graphs, 830 MiB",
          plim_gpu_context_of(card("h100"), 211, script).high >= 830ull << 20);
    use = plim_gpu_use_of(PLIM_GPU_LOOP);
    use.eager = true;
    for (const char *const *name = (const char *const[]){"a100", "t4", "h100", NULL}; *name;
         name++) {
        const plim_gpu_context eager = plim_gpu_context_of(card(*name), 211, use),
                               lazy = plim_gpu_context_of(card(*name), 211,
                                                          plim_gpu_use_of(PLIM_GPU_LOOP));
        CHECK(*name,
              eager.low > lazy.low && eager.usual > lazy.usual && eager.high > lazy.high);
        use.eager = false;
        CHECK("before 1.13 loading is eager without being asked",
              plim_gpu_context_of(card(*name), 112, use).usual ==
                  plim_gpu_context_of(card(*name), 112,
                                      (plim_gpu_use){.program = PLIM_GPU_LOOP, .eager = true})
                      .usual);
        use.eager = true;
    }
    CHECK("H100 and H200 are alike",
          plim_gpu_context_alike(card("h100"), card("h200"), 211, false));
    CHECK("A100 and H100 are not",
          !plim_gpu_context_alike(card("a100"), card("h100"), 211, false));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_names),         cmocka_unit_test(test_unknown),
        cmocka_unit_test(test_aliases),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_totals),        cmocka_unit_test(test_unified),
        cmocka_unit_test(test_system),        cmocka_unit_test(test_instances),
        cmocka_unit_test(test_sold),          cmocka_unit_test(test_generic),
        cmocka_unit_test(test_generation),    cmocka_unit_test(test_contexts),
        cmocka_unit_test(test_context_parts), cmocka_unit_test(test_context_uses),
        cmocka_unit_test(test_limits),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
