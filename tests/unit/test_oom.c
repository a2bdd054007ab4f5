/* test_oom.c -- out-of-memory messages read and explained: src/oom. */
#include "alloc/alloc.h"
#include "base/fmt.h"
#include "oom/oom.h"
#include "torch/torch.h"

#include "texts.h"
#include "unit.h"

#include <stdio.h>
#include <stdlib.h>

/* The layouts of the message.  src: docs/sources/caching-allocator.md 13 */
typedef enum oom_layout {
    CACHED,     /* 1.0 to 1.3 */
    RESERVED,   /* 1.4 to 1.9 */
    SPLIT_HINT, /* 1.10 to 2.0 */
    CAPACTY,    /* 2.1 */
    CAPACITY,   /* 2.2 to 2.8 */
    HIP,        /* the same on ROCm */
    ASYNC,      /* backend:cudaMallocAsync */
    MPS,        /* free: other allocations */
} oom_layout;

/* What people reported: the numbers and the layout of their message. */
typedef struct oom_report {
    const char *src;
    oom_layout layout;
    int gpu;
    const char *tried, *total, *allocated, *free;
    const char *second; /* cached, reserved or unallocated, as the layout has it */
    const char *process, *other, *allowed, *private; /* NULL: not printed */
    const char *cause;                               /* how the first cause begins */
} oom_report;

#define SPLIT_WORDS                                                                           \
    " If reserved memory is >> allocated memory try setting max_split_size_mb to avoid "      \
    "fragmentation.  See documentation for Memory Management and PYTORCH_CUDA_ALLOC_CONF"

static void write_text(const oom_report *r, plim_buf *b)
{
    if (r->layout == ASYNC) {
        plim_buf_printf(
            b,
            "Allocation on device %d would exceed allowed memory. (out of memory)\n"
            "Currently allocated     : %s\nRequested               : %s\n"
            "Device limit            : %s\nFree (according to CUDA): %s\n"
            "PyTorch limit (set by user-supplied memory fraction)\n"
            "                        : 17179869184.00 GiB\n",
            r->gpu, r->allocated, r->tried, r->total, r->free);
        return;
    }
    if (r->layout == MPS) {
        plim_buf_printf(b,
                        "MPS backend out of memory (MPS allocated: %s, other allocations: %s, "
                        "max allowed: %s). Tried to allocate %s on private pool.",
                        r->allocated, r->free, r->allowed, r->tried);
        return;
    }
    plim_buf_printf(b, "%s out of memory. Tried to allocate %s",
                    r->layout == HIP ? "HIP" : "CUDA", r->tried);
    if (r->layout <= SPLIT_HINT) {
        plim_buf_printf(b, " (GPU %d; %s total capacity; %s already allocated; %s free; ",
                        r->gpu, r->total, r->allocated, r->free);
        if (r->allowed)
            plim_buf_printf(b, "%s allowed; ", r->allowed);
        plim_buf_printf(b, "%s %s)%s", r->second,
                        r->layout == CACHED ? "cached" : "reserved in total by PyTorch",
                        r->layout == SPLIT_HINT ? SPLIT_WORDS : "");
        return;
    }
    plim_buf_printf(b, ". GPU %d has a total %s of %s of which %s is free. ", r->gpu,
                    r->layout == CAPACTY ? "capacty" : "capacity", r->total, r->free);
    if (r->other)
        plim_buf_printf(b, "Process 77 has %s memory in use. ", r->other);
    if (r->process)
        plim_buf_printf(b, "Including non-PyTorch memory, this process has %s memory in use. ",
                        r->process);
    if (r->allowed)
        plim_buf_printf(b, "%s allowed; ", r->allowed);
    plim_buf_printf(b, "Of the allocated memory %s is allocated by PyTorch, ", r->allocated);
    if (r->private)
        plim_buf_printf(b, "with %s allocated in private pools (e.g., CUDA Graphs), ",
                        r->private);
    plim_buf_printf(b,
                    "and %s is reserved by PyTorch but unallocated. If reserved but "
                    "unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF="
                    "expandable_segments:True to avoid fragmentation.  See documentation "
                    "for Memory Management  (https://pytorch.org/docs/stable/notes/"
                    "cuda.html#environment-variables)",
                    r->second);
}

static const oom_report reports[] = {
    /* 1.0 to 1.3 */
    {"shllln/GenerativeGraph 5", CACHED, 0, "1024.00 KiB", "11.17 GiB", "10.90 GiB",
     "576.00 KiB", "30.96 MiB", 0, 0, 0, 0, "Fragmentation: PyTorch holds 30.96 MiB"},
    {"pytorch 13751", CACHED, 0, "16.00 GiB", "11.93 GiB", "4.00 GiB", "7.33 GiB",
     "179.00 KiB", 0, 0, 0, 0, "The request alone, 16.00 GiB, is larger than the card"},
    {"ryujaehun/pytorch-gpu-benchmark 1", CACHED, 0, "32.00 MiB", "7.79 GiB", "6.64 GiB",
     "21.00 MiB", "150.86 MiB", 0, 0, 0, 0, "Fragmentation"},
    {"pytorch 31252", CACHED, 0, "1.72 GiB", "10.76 GiB", "4.01 GiB", "356.00 MiB", "5.54 GiB",
     0, 0, 0, 0, "Fragmentation: PyTorch holds 5.54 GiB"},
    {"RenYurui/StructureFlow 35", CACHED, 0, "8.13 GiB", "10.76 GiB", "643.57 MiB", "8.20 GiB",
     "32.43 MiB", 0, 0, 0, 0, "The driver refused 8.13 GiB although 8.20 GiB is free"},
    {"cherubicXN/afm_cvpr2019 8", CACHED, 0, "25.00 MiB", "3.94 GiB", "3.14 GiB", "21.56 MiB",
     "634.00 KiB", 0, 0, 0, 0, "The card is full: about 3.44 MiB more"},
    /* 1.4 to 1.9 */
    {"OPIXray-author/OPIXray 5", RESERVED, 0, "264.00 MiB", "2.00 GiB", "788.51 MiB",
     "145.93 MiB", "1.02 GiB", 0, 0, 0, 0, "Fragmentation: 145.93 MiB free on the card"},
    {"pytorch 59778", RESERVED, 0, "2.26 GiB", "6.00 GiB", "781.59 MiB", "3.03 GiB",
     "1.24 GiB", 0, 0, 0, 0, "The driver refused 2.26 GiB although 3.03 GiB is free"},
    {"pytorch 35901", RESERVED, 0, "10.84 GiB", "23.65 GiB", "1.06 GiB", "10.26 GiB",
     "12.53 GiB", 0, 0, 0, 0, "Fragmentation: PyTorch holds about 11.47 GiB"},
    {"Morizeyao/GPT2-Chinese 215", RESERVED, 0, "384.00 MiB", "14.76 GiB", "11.04 GiB",
     "259.75 MiB", "11.10 GiB", 0, 0, 0, 0, "The card is full: about 124.25 MiB more"},
    /* 1.10 to 2.0 */
    {"CompVis/taming-transformers 194", SPLIT_HINT, 0, "1.39 GiB", "6.00 GiB", "4.04 GiB",
     "478.00 MiB", "4.15 GiB", 0, 0, 0, 0, "The card is full: about 945.36 MiB more"},
    {"mlverse/torch 1222", SPLIT_HINT, 0, "2.93 GiB", "23.80 GiB", "12.04 GiB", "2.82 GiB",
     "19.69 GiB", 0, 0, 0, 0, "Fragmentation: PyTorch holds about 7.65 GiB"},
    {"YingqianWang/iPASSR 9", SPLIT_HINT, 0, "10.73 GiB", "8.00 GiB", "17.20 GiB", "0 bytes",
     "19.15 GiB", 0, 0, 0, 0, "The request alone, 10.73 GiB, is larger than the card"},
    {"HKUDS/RecDiff 4", SPLIT_HINT, 0, "1.78 GiB", "4.00 GiB", "7.42 GiB", "0 bytes",
     "9.23 GiB", 0, 0, 0, 0, "PyTorch holds 9.23 GiB on a card of 4.00 GiB"},
    {"Kunhao-Liu/StyleGaussian 11", SPLIT_HINT, 0, "130674.91 GiB", "79.15 GiB", "27.53 GiB",
     "37.61 GiB", "28.21 GiB", 0, 0, 0, 0, "The request alone, 127.61 TiB, is larger"},
    {"pp00704831/Stripformer-ECCV-2022- 21", SPLIT_HINT, 1, "1.65 GiB", "7.79 GiB", "3.53 GiB",
     "1.40 GiB", "5.28 GiB", 0, 0, 0, 0, "Fragmentation"},
    {"vllm 783", SPLIT_HINT, 0, "1.63 GiB", "44.56 GiB", "27.91 GiB", "565.31 MiB",
     "27.93 GiB", 0, 0, 0, 0, "The card is full"},
    /* 2.1 */
    {"kerrj/lerf 73", CAPACTY, 0, "3.00 GiB", "23.65 GiB", "12.09 GiB", "1.66 GiB", "4.84 GiB",
     "20.81 GiB", 0, 0, 0, "Fragmentation: PyTorch holds 4.84 GiB"},
    {"Synthintel0/MyGirlGPT 11", CAPACTY, 0, "32.00 MiB", "4.00 GiB", "2.58 GiB", "41.56 MiB",
     "1.90 MiB", "3.44 GiB", 0, 0, 0,
     "The driver refused 32.00 MiB although 41.56 MiB is free"},
    {"levihsu/OOTDiffusion 167", CAPACTY, 0, "2.00 GiB", "4.00 GiB", "0 bytes", "2.80 GiB",
     "0 bytes", 0, 0, 0, 0, "The driver refused"},
    {"vllm 2140", CAPACTY, 0, "3.50 GiB", "23.69 GiB", "20.13 GiB", "3.09 GiB", "755.50 KiB",
     "20.57 GiB", 0, 0, 0, "The card is full: about 419.84 MiB more"},
    /* 2.2 and later */
    {"pytorch 16417", CAPACITY, 0, "22.00 MiB", "23.65 GiB", "22.90 GiB", "11.06 MiB",
     "194.87 MiB", "23.60 GiB", 0, 0, 0, "Fragmentation"},
    {"DINGYANB/MTVCrafter 21", CAPACITY, 0, "26.00 MiB", "44.43 GiB", "43.94 GiB", "19.00 MiB",
     "41.95 MiB", "44.40 GiB", 0, 0, 0, "Fragmentation"},
    {"vllm 7721", CAPACITY, 0, "16.00 GiB", "44.53 GiB", "43.67 GiB", "187.94 MiB",
     "335.07 MiB", 0, "44.34 GiB", 0, 0, "The card is full: about 15.82 GiB more"},
    {"kaito 976, 2.6", CAPACITY, 0, "546.00 MiB", "15.77 GiB", "13.73 GiB", "514.19 MiB",
     "736.86 MiB", 0, "15.25 GiB", 0, "46.00 MiB", "Fragmentation: PyTorch holds 736.86 MiB"},
    {"huggingface/meshgen 7", CAPACITY, 0, "1002.00 MiB", "8.00 GiB", "13.98 GiB", "0 bytes",
     "129.48 MiB", 0, 0, 0, 0, "PyTorch holds about 14.11 GiB on a card of 8.00 GiB"},
    {"ROCm/TheRock 2118, 2.9", HIP, 0, "2.00 MiB", "255.98 GiB", "1017.01 MiB", "244.65 GiB",
     "54.99 MiB", 0, 0, "1.05 GiB", "17.00 MiB",
     "The request of 2.00 MiB exceeds the limit of this process"},
    {"ROCm/TheRock 1054", HIP, 0, "16.00 GiB", "15.24 GiB", "0 bytes", "15.09 GiB", "0 bytes",
     0, 0, 0, 0, "The request alone, 16.00 GiB, is larger than the card"},
    /* other backends of PyTorch */
    {"ComfyUI 3278", ASYNC, 0, "952.00 MiB", "24.00 GiB", "21.55 GiB", "0 bytes", NULL, 0, 0,
     0, 0, "The card is full: about 952.00 MiB more"},
    {"ComfyUI 5886", ASYNC, 0, "12.50 MiB", "12.00 GiB", "5.96 GiB", "5.00 GiB", NULL, 0, 0, 0,
     0, "The driver refused 12.50 MiB although 5.00 GiB is free"},
    {"ComfyUI 7440", MPS, -1, "292.50 MiB", NULL, "9.57 GiB", "17.35 GiB", NULL, 0, 0,
     "27.20 GiB", 0, "The request of 292.50 MiB exceeds the limit of the process, 27.20 GiB"},
};

static void check_number(const char *why, const plim_oom_number *n, const char *text)
{
    uint64_t want = UINT64_MAX;
    if (text && strstr(text, " bytes"))
        want = strtoull(text, NULL, 10);
    else if (text && plim_size_parse(text, &want, NULL))
        fail_msg("%s: '%s'", why, text);
    if (!text)
        CHECK(why, !n || n->derived);
    else
        CHECK(why, n && n->bytes - want <= 1 && !n->derived &&
                       (strstr(text, "bytes") ? n->within == 0 : n->within > 0));
}

static void check_report(const oom_report *r, const plim_oom_message *m)
{
    static const plim_oom_quantity second[] = {PLIM_OOM_UNALLOCATED, PLIM_OOM_RESERVED,
                                               PLIM_OOM_RESERVED,    PLIM_OOM_UNALLOCATED,
                                               PLIM_OOM_UNALLOCATED, PLIM_OOM_UNALLOCATED,
                                               PLIM_OOM_UNALLOCATED, PLIM_OOM_UNALLOCATED};
    const plim_oom_number *const *n = m->numbers;
    CHECK(r->src, m->size == sizeof *m && m->n_numbers == PLIM_OOM_QUANTITY_COUNT);
    CHECK(r->src, m->messages == 1 && m->gpu == r->gpu);
    CHECK(r->src, m->source == (r->layout == ASYNC ? PLIM_OOM_BY_ASYNC
                                : r->layout == MPS ? PLIM_OOM_BY_MPS
                                                   : PLIM_OOM_BY_TORCH));
    check_number(r->src, n[PLIM_OOM_TRIED], r->tried);
    check_number(r->src, n[PLIM_OOM_TOTAL], r->total);
    check_number(r->src, n[PLIM_OOM_ALLOCATED], r->allocated);
    check_number(r->src, n[r->layout == MPS ? PLIM_OOM_ELSEWHERE : PLIM_OOM_FREE], r->free);
    check_number(r->src, n[second[r->layout]], r->second);
    check_number(r->src, n[PLIM_OOM_PROCESS], r->process);
    check_number(r->src, n[PLIM_OOM_ALLOWED], r->allowed);
    check_number(r->src, n[PLIM_OOM_PRIVATE], r->private);
    CHECK(r->src, m->n_processes == (r->other ? 1 : 0));
    if (r->other)
        check_number(r->src, m->processes[0]->memory, r->other);
    CHECK(r->src, m->n_causes && m->n_remedies);
    if (strncmp(m->causes[0], r->cause, strlen(r->cause)) != 0)
        fail_msg("%s: %s", r->src, m->causes[0]);
}

static plim_oom_message *read_text(const char *why, plim_str text)
{
    plim_err err = PLIM_ERR_INIT;
    plim_oom_message *m = NULL;
    if (plim_oom_read(text.p, text.n, &m, &err))
        fail_msg("%s: %s", why, err.msg);
    return m;
}

static void test_reports(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(reports); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        plim_buf_init(&b, &a);
        write_text(&reports[i], &b);
        plim_oom_message *m = read_text(reports[i].src, plim_buf_str(&b));
        check_report(&reports[i], m);
        plim_oom_free(m);
        plim_arena_free(&a);
    }
}

/* Each report again, wrapped at every width, as a terminal and a logger write it. */
static void test_wrapped(void **state)
{
    (void)state;
    static const char *const prefixes[] = {"",
                                           "[rank0]: ",
                                           "# ",
                                           "> ",
                                           "\x1b[36m(Worker pid=12)\x1b[0m ",
                                           "ERROR 04-01 23:46:56 [engine.py:160] ",
                                           "2025-11-12T11:25:13.4961658Z "};
    for (size_t i = 0; i < PLIM_COUNT(reports); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b, wrapped;
        plim_buf_init(&b, &a);
        write_text(&reports[i], &b);
        plim_str text = plim_buf_str(&b);
        for (size_t k = 0; k < PLIM_COUNT(prefixes); k++) {
            size_t width = 17 + 7 * k + i;
            plim_buf_init(&wrapped, &a);
            plim_buf_puts(&wrapped, "Traceback (most recent call last):\r\n");
            /* The layout in lines of its own has prefixes at those. */
            for (size_t at = 0; at < text.n;) {
                size_t n = strcspn(text.p + at, "\n");
                n = PLIM_MIN(PLIM_MIN(n, width), text.n - at);
                plim_buf_puts(&wrapped, prefixes[k]);
                plim_buf_add(&wrapped, (plim_str){text.p + at, n});
                plim_buf_puts(&wrapped, "\r\n");
                at += n + (at + n < text.n && text.p[at + n] == '\n');
            }
            plim_oom_message *m = read_text(reports[i].src, plim_buf_str(&wrapped));
            check_report(&reports[i], m);
            plim_oom_free(m);
        }
        plim_arena_free(&a);
    }
}

/* Cut off anywhere, a message says less, never something else. */
static void test_cut(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(reports); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        plim_buf_init(&b, &a);
        write_text(&reports[i], &b);
        plim_str text = plim_buf_str(&b);
        plim_oom_message *whole = read_text(reports[i].src, text);
        for (size_t n = 0; n < text.n; n++) {
            plim_oom_message *m = NULL;
            plim_status st = plim_oom_read(text.p, n, &m, NULL);
            CHECK(reports[i].src, st == PLIM_OK || st == PLIM_EFORMAT);
            for (uint32_t q = 0; m && q < m->n_numbers; q++)
                CHECK(reports[i].src, !m->numbers[q] || m->numbers[q]->derived ||
                                          (whole->numbers[q] &&
                                           m->numbers[q]->bytes == whole->numbers[q]->bytes));
            plim_oom_free(m);
        }
        plim_oom_free(whole);
        plim_arena_free(&a);
    }
}

/* What the simulated allocator prints for each version reads back as its numbers. */
static void test_round_trip(void **state)
{
    (void)state;
    const uint64_t mib = 1ull << 20;
    for (uint32_t i = 0; i < plim_torch_count(); i++) {
        const plim_torch *t = plim_torch_at(i);
        plim_arena a = PLIM_ARENA_INIT;
        plim_alloc *h = NULL;
        uint32_t one, two;
        plim_alloc_options o = {
            .torch = t->version, .capacity = 40 * mib, .total = 48 * mib, .fraction = 0.75};
        CHECK(t->name, !plim_alloc_new(&a, &o, &h, NULL));
        CHECK(t->name, !plim_alloc_malloc(h, 4 * mib, 0, &one, NULL));
        CHECK(t->name, !plim_alloc_malloc(h, 30 * mib, 0, &two, NULL) && two == PLIM_NONE);
        plim_oom_message *m = read_text(t->name, plim_alloc_oom_text(h, &a));
        const plim_oom_number *const *n = m->numbers;
        CHECK(t->name, m->source == PLIM_OOM_BY_TORCH && m->gpu == 0 && m->torch);
        CHECK(t->name, n[PLIM_OOM_TRIED]->bytes == 30 * mib);
        CHECK(t->name, n[PLIM_OOM_TOTAL]->bytes == 48 * mib);
        CHECK(t->name, n[PLIM_OOM_FREE]->bytes == 20 * mib);
        CHECK(t->name, n[PLIM_OOM_ALLOCATED]->bytes == 4 * mib);
        CHECK(t->name, n[PLIM_OOM_UNALLOCATED]->bytes == 16 * mib);
        CHECK(t->name, n[PLIM_OOM_RESERVED]->bytes == 20 * mib);
        CHECK(t->name, n[PLIM_OOM_UNALLOCATED]->derived != n[PLIM_OOM_RESERVED]->derived);
        bool tells = n[PLIM_OOM_ALLOWED];
        CHECK(t->name, tells == (t->version <= 200 || t->version >= 205));
        CHECK(t->name, !tells || n[PLIM_OOM_ALLOWED]->bytes == 36 * mib);
        CHECK(t->name, !n[PLIM_OOM_PROCESS] == (t->version <= 200));
        CHECK(t->name, t->version <= 200 || n[PLIM_OOM_OUTSIDE]->bytes == 8 * mib);
        plim_oom_free(m);
        plim_arena_free(&a);
    }
}

static void test_texts(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        plim_oom_source source;
        uint32_t messages;
        const char *tried; /* NULL: unknown */
    } rows[] = {
        {"without numbers", "RuntimeError: CUDA out of memory.", PLIM_OOM_BY_TORCH, 1, NULL},
        {"the last of two",
         "CUDA out of memory. Tried to allocate 1.00 GiB (GPU 0; 2.00 GiB total capacity; ...\n"
         "CUDA out of memory. Tried to allocate 3.00 GiB (GPU 0; 2.00 GiB total capacity; ...",
         PLIM_OOM_BY_TORCH, 2, "3.00 GiB"},
        {"one with numbers counts more than one without",
         "CUDA out of memory. Tried to allocate 1.00 GiB. GPU 0 has a total capacity of 2 GiB.\n"
         "terminate called: CUDA error: out of memory",
         PLIM_OOM_BY_TORCH, 2, "1.00 GiB"},
        {"words of the exception left out",
         "Tried to allocate 20.00 MiB (GPU 0; 1.96 GiB "
         "total capacity)",
         PLIM_OOM_BY_TORCH, 1, "20.00 MiB"},
        {"an impossible size", "CUDA out of memory. Tried to allocate more than 1EB memory.",
         PLIM_OOM_BY_TORCH, 1, NULL},
        {"a string as Python prints it",
         "OutOfMemoryError('CUDA out of memory. Tried to allocate 2.00 MiB.\\nGPU 0 has')",
         PLIM_OOM_BY_TORCH, 1, "2.00 MiB"},
        {"cudaMallocAsync, as ComfyUI shortens it",
         "torch.OutOfMemoryError: Allocation on device ", PLIM_OOM_BY_ASYNC, 1, NULL},
        {"CUDA",
         "RuntimeError: CUDA error: out of memory\nCUDA kernel errors might be "
         "asynchronously reported",
         PLIM_OOM_BY_CUDA, 1, NULL},
        {"CUDA before 1.0",
         "RuntimeError: cuda runtime error (2) : out of memory at /pytorch/THCStorage.cu:58",
         PLIM_OOM_BY_CUDA, 1, NULL},
        {"cuBLAS",
         "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
         PLIM_OOM_BY_CUBLAS, 1, NULL},
        {"cuDNN", "RuntimeError: cuDNN error: CUDNN_STATUS_NOT_INITIALIZED", PLIM_OOM_BY_CUDNN,
         1, NULL},
        {"JAX",
         "XlaRuntimeError: RESOURCE_EXHAUSTED: Out of memory while trying to allocate "
         "7406166528 bytes.",
         PLIM_OOM_BY_JAX, 1, "7406166528"},
        {"TensorFlow", "OOM when allocating tensor with shape[3,3,512,1024] and type float",
         PLIM_OOM_BY_TENSORFLOW, 1, NULL},
        {"JAX, of its client",
         "XlaRuntimeError: RESOURCE_EXHAUSTED: Failed to allocate request for 2.50GiB "
         "(2684354560B) on device ordinal 0",
         PLIM_OOM_BY_JAX, 1, "2.50GiB"},
        {"JAX, of its allocator",
         "RESOURCE_EXHAUSTED: Out of memory allocating 8000000000 bytes.", PLIM_OOM_BY_JAX, 1,
         "8000000000"},
        {"JAX on a TPU",
         "RESOURCE_EXHAUSTED: Ran out of memory in memory space hbm. Used 17.03G of 15.48G hbm.",
         PLIM_OOM_BY_JAX, 1, NULL},
        {"CuPy",
         "cupy.cuda.memory.OutOfMemoryError: Out of memory allocating 8,589,934,592 bytes "
         "(allocated so far: 1,024 bytes).",
         PLIM_OOM_BY_CUPY, 1, NULL},
        {"llama.cpp",
         "ggml_backend_cuda_buffer_type_alloc_buffer: allocating 144.00 MiB on device 4: "
         "cudaMalloc failed: out of memory\n"
         "ggml_gallocr_reserve_n: failed to allocate CUDA4 buffer of size 150995968",
         PLIM_OOM_BY_LLAMA_CPP, 1, "144.00 MiB"},
        {"Ollama",
         "Error: llama runner process has terminated: cudaMalloc failed: out of memory",
         PLIM_OOM_BY_LLAMA_CPP, 1, NULL},
        {"llama.cpp with Vulkan",
         "ggml_vulkan: Device memory allocation of size 1073741824 failed.",
         PLIM_OOM_BY_LLAMA_CPP, 1, NULL},
        {"vLLM, no blocks",
         "ValueError: No available memory for the cache blocks. Try increasing "
         "`gpu_memory_utilization` when initializing the engine.",
         PLIM_OOM_BY_VLLM, 1, NULL},
        {"vLLM, not for one request",
         "ValueError: To serve at least one request with the models's max seq len (131072), (16.00 "
         "GiB KV cache is needed, which is larger than the available KV cache memory (9.52 GiB).",
         PLIM_OOM_BY_VLLM, 1, NULL},
        {"vLLM, at its start",
         "ValueError: Free memory on device (11.26/23.64 GiB) on startup is less than desired GPU "
         "memory utilization (0.9, 21.28 GiB).",
         PLIM_OOM_BY_VLLM, 1, NULL},
        {"TensorRT",
         "[E] [TRT] 1: [defaultAllocator.cpp::allocate::20] Error Code 1: Cuda Runtime (out of "
         "memory)",
         PLIM_OOM_BY_CUDA, 1, NULL},
        {"NCCL", "Last error:\nCuda failure 2 'out of memory'", PLIM_OOM_BY_CUDA, 1, NULL},
        {"NCCL before 2.19", "Cuda failure 'out of memory'", PLIM_OOM_BY_CUDA, 1, NULL},
        {"WSL does not tell what processes use",
         "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 "
         "GiB of which 0 bytes is free. Including non-PyTorch memory, this process has "
         "17179869184.00 GiB memory in use.",
         PLIM_OOM_BY_TORCH, 1, "2.00 GiB"},
        {"the CPU's allocator, 1.13 to 2.15",
         "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: "
         "can't allocate memory: you tried to allocate 4194304000 bytes. Error code 12 "
         "(Cannot allocate memory)",
         PLIM_OOM_BY_HOST, 1, "4194304000"},
        {"XPU, with what is free",
         "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 16.00 GiB. GPU 0 has a "
         "total capacity of 15.11 GiB of which 11.00 GiB is free. Of the allocated memory 4.00 "
         "GiB is allocated by PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated.",
         PLIM_OOM_BY_TORCH, 1, "16.00 GiB"},
        {"XPU, without",
         "torch.OutOfMemoryError: XPU out of memory. Tried to allocate 24.00 MiB. GPU 0 has a "
         "total capacity of 15.11 GiB. Of the allocated memory 4.00 GiB is allocated by "
         "PyTorch, and 120.00 MiB is reserved by PyTorch but unallocated.",
         PLIM_OOM_BY_TORCH, 1, "24.00 MiB"},
        {"a number of no size", "CUDA out of memory. Tried to allocate 1.2.3 GiB",
         PLIM_OOM_BY_TORCH, 1, NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_oom_message *m = read_text(rows[i].why, plim_str_of(rows[i].text));
        const plim_oom_number *tried = m->numbers[PLIM_OOM_TRIED];
        uint64_t want = 0;
        if (rows[i].tried)
            plim_size_parse(rows[i].tried, &want, NULL);
        CHECK(rows[i].why, m->source == rows[i].source);
        CHECK(rows[i].why, m->messages == rows[i].messages);
        CHECK(rows[i].why, rows[i].tried ? tried && tried->bytes == want : !tried);
        CHECK(rows[i].why, !m->numbers[PLIM_OOM_PROCESS]);
        CHECK(rows[i].why, m->n_causes > 0);
        plim_oom_free(m);
    }
    static const char *const none[] = {"",
                                       "java.lang.OutOfMemoryError: Java heap space",
                                       "plimsoll-tape 1\n",
                                       "\x1b[",
                                       "\x1b",
                                       "[",
                                       "(",
                                       "\\"};
    for (size_t i = 0; i < PLIM_COUNT(none); i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_oom_message *m = NULL;
        CHECK(none[i], plim_oom_read(none[i], strlen(none[i]), &m, &err) == PLIM_EFORMAT);
        CHECK(none[i], !m);
        CHECK_STR(none[i], err.msg, "no out-of-memory message in the text");
    }
}

/* What is said of other cards than NVIDIA's is not what holds for these. */
static void test_devices(void **state)
{
    (void)state;
    static const struct {
        const char *name, *command; /* the first remedy */
        bool cuda;
    } rows[] = {
        {"CUDA", "export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128", true},
        {"HIP", "export PYTORCH_HIP_ALLOC_CONF=max_split_size_mb:128", false},
        {"NPU", "export PYTORCH_NPU_ALLOC_CONF=max_split_size_mb:128", false},
        {"MUSA", "export PYTORCH_MUSA_ALLOC_CONF=max_split_size_mb:128", false},
        {"XPU", "plimsoll estimate MODEL --vram 23.64GiB", false},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char text[400];
        snprintf(
            text, sizeof text,
            "RuntimeError: %s out of memory. Tried to allocate 2.00 GiB (GPU 0; 23.64 GiB total "
            "capacity; 12.00 GiB already allocated; 1.00 GiB free; 20.00 GiB reserved in total "
            "by PyTorch)",
            rows[i].name);
        plim_oom_message *m = read_text(rows[i].name, plim_str_of(text));
        CHECK(rows[i].name, m->source == PLIM_OOM_BY_TORCH && m->messages == 1);
        CHECK(rows[i].name,
              rows[i].cuda == (m->torch != NULL) && rows[i].cuda == (m->n_cards > 0));
        CHECK_STR(rows[i].name, m->remedies[0]->command, rows[i].command);
        plim_oom_free(m);
    }
}

/* Names of sources and quantities are different words. */
static void test_names(void **state)
{
    (void)state;
    for (int i = 0; i <= PLIM_OOM_QUANTITY_COUNT; i++)
        for (int k = 0; k < i; k++) {
            const char *name = plim_oom_quantity_name((plim_oom_quantity)i);
            CHECK(name, strcmp(name, plim_oom_quantity_name((plim_oom_quantity)k)) != 0);
        }
    for (int i = 0; i <= PLIM_OOM_SOURCE_COUNT; i++)
        for (int k = 0; k < i; k++) {
            const char *name = plim_oom_source_name((plim_oom_source)i);
            CHECK(name, strcmp(name, plim_oom_source_name((plim_oom_source)k)) != 0);
        }
}

/* What is derived follows from the others. */
static bool is_same(const plim_oom_number *got, const plim_oom_number *want)
{
    if (!got || !want)
        return !got == !want;
    return want->derived || (got->bytes == want->bytes && got->within == want->within);
}

static void check_same(plim_str text, const plim_oom_message *got,
                       const plim_oom_message *want)
{
    bool same = got->source == want->source && got->gpu == want->gpu &&
                got->n_processes == want->n_processes;
    for (uint32_t q = 0; q < want->n_numbers; q++)
        same &= is_same(got->numbers[q], want->numbers[q]);
    if (!same)
        fail_msg("of %zu bytes: '" PLIM_STR_FMT "'", text.n, PLIM_STR_CUT(text));
}

/* A random text, in random parts: a message has what is in its reduced text, which was found by a comparison
 * with each word at each byte. */
static void check_random(plim_arena *a, plim_str text, uint64_t *seed, uint32_t most)
{
    texts_oom want = texts_slow_oom(a, text);
    plim_oom_message *whole = NULL, *best = NULL, parts = {0};
    plim_oom_view view = {0};
    plim_oom_reader *r = plim_oom_reader_new(a);
    texts_parts(plim_oom_take, r, text, seed, most);
    plim_status st = plim_oom_parse(a, r, &view, &parts, NULL);
    CHECK("as many", parts.messages == want.messages && !st == (want.messages != 0));
    CHECK("the same", plim_oom_read(text.p, text.n, &whole, NULL) == st);
    if (st)
        return;
    CHECK("is explained", plim_oom_explain(a, &view, &parts, NULL) == PLIM_OK);
    CHECK("as many", whole->messages == want.messages);
    CHECK("the best", plim_oom_read(want.best.p, want.best.n, &best, NULL) == PLIM_OK);
    check_same(text, &parts, best);
    check_same(text, whole, best);
    plim_oom_free(best);
    plim_oom_free(whole);
}

/* Of these, messages become long. */
#define FILL "abcdefghijklmnopqrstuvwxyzabcdefghijklmnopqrstuvwxyzabcdefghijklmnop"

static void test_random(void **state)
{
    (void)state;
    static const char *const words[] = {"CUDA out of memory",
                                        "Tried to allocate ",
                                        "MPS backend out of memory (",
                                        "MPS allocated: ",
                                        "max allowed: ",
                                        "CUDA error: out of memory",
                                        "DefaultCPUAllocator",
                                        "out of memory allocating ",
                                        "GPU 0 has a total capacity of ",
                                        " (GPU 1; ",
                                        " already allocated; ",
                                        " free;",
                                        " is free. ",
                                        " total capacity;",
                                        "1.50 GiB",
                                        "20.00 MiB",
                                        "512 bytes",
                                        "7.",
                                        "Process 12 has ",
                                        " memory in use. ",
                                        "this process has ",
                                        "[rank0]: ",
                                        "[a]",
                                        "(x)",
                                        "\x1b[31m",
                                        "\x1b[0",
                                        "\x1b",
                                        "2024-01-02T",
                                        "10:11:12",
                                        "ERROR ",
                                        "\\n",
                                        "\n",
                                        "\r\n",
                                        " ",
                                        "\t",
                                        "#",
                                        "|",
                                        ">",
                                        "*",
                                        "cudaoutofmem",
                                        "ory",
                                        "triedtoalloc",
                                        "ate",
                                        "a",
                                        "1",
                                        "-",
                                        ":",
                                        "\n[",
                                        "]",
                                        "(",
                                        ";",
                                        ")",
                                        "\v",
                                        "01234567890123456789012345678901234567890",
                                        FILL FILL,
                                        "x" FILL FILL,
                                        FILL "y" FILL,
                                        FILL};
    uint64_t seed = 5, messages = 0;
    for (int round = 0; round < 400; round++) {
        plim_arena a = PLIM_ARENA_INIT;
        size_t n = round % 20 ? texts_random(&seed, 4000) : 200000;
        plim_str text = texts_make(&a, &seed, n, words, PLIM_COUNT(words));
        check_random(&a, text, &seed, round % 2 ? 300 : 100000);
        messages += texts_slow_oom(&a, text).messages;
        plim_arena_free(&a);
    }
    CHECK("with messages", messages > 1000);
}

/* What may be a prefix is read in a time that is in proportion to it; 4 MB would else take an hour. */
static void test_long_prefixes(void **state)
{
    (void)state;
    static const char *const pieces[] = {"[a]", "[",   "\x1b[", "\x1b[;", "1",
                                         "1:",  "(;)", "\\",    "| "};
    const size_t n = 4u << 20;
    char *text = malloc(n);
    assert_non_null(text);
    for (size_t i = 0; i < PLIM_COUNT(pieces); i++) {
        plim_oom_message *m = NULL;
        for (size_t k = 0, length = strlen(pieces[i]); k < n; k++)
            text[k] = pieces[i][k % length];
        CHECK(pieces[i], plim_oom_read(text, n, &m, NULL) == PLIM_EFORMAT);
    }
    free(text);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_reports),       cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_cut),           cmocka_unit_test(test_texts),
        cmocka_unit_test(test_devices),       cmocka_unit_test(test_round_trip),
        cmocka_unit_test(test_names),         cmocka_unit_test(test_random),
        cmocka_unit_test(test_long_prefixes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
