/* bench_text.c -- how fast texts are read: logs as `oom` and `diff` read them, and scripts of Megatron-LM.
 *
 *     bench_text [FILE]        default: texts of 64 MB, of lines as programs print them, and of what takes
 *                              longest: words that nearly are, or are, those that are looked for
 *
 * The text is in memory, and handed over in parts of 256 KiB as files are.  The best of five. */
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "import/megatron/mg.h"
#include "oom/oom.h"
#include "trace/log.h"

enum { RUNS = 5, SIZE = 64 << 20, PART = 256 << 10 };

/* Of the processor: other jobs hardly change it. */
static double now_ms(void) { return (double)clock() * 1e3 / CLOCKS_PER_SEC; }

static void read_parts(plim_take *take, void *ud, plim_str text)
{
    for (size_t from = 0, end = 0; end < text.n;) {
        end += PLIM_MIN((size_t)PART, text.n - end);
        from += take(ud, (plim_str){text.p + from, end - from}, end == text.n);
    }
}

static void read_oom(plim_str text)
{
    plim_arena a = PLIM_ARENA_INIT;
    read_parts(plim_oom_take, plim_oom_reader_new(&a), text);
    plim_arena_free(&a);
}

static void read_log(plim_str text)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_log log;
    read_parts(plim_log_take, plim_log_reader_new(&a, &log), text);
    plim_arena_free(&a);
}

static void read_megatron(plim_str text)
{
    plim_mg_args c;
    (void)plim_mg_read((plim_bytes){.p = (const uint8_t *)text.p, .n = text.n}, &c, NULL);
}

static void bench_text(const char *what, void (*read)(plim_str), plim_str text)
{
    double best = 1e9;
    for (int i = 0; i < RUNS; i++) {
        double from = now_ms();
        read(text);
        best = PLIM_MIN(best, now_ms() - from);
    }
    printf("%-40s %5.0f MB: %8.1f ms CPU, %6.0f MB/s\n", what, (double)text.n / 1e6, best,
           (double)text.n / 1e3 / best);
}

#define TRAINING                                                                               \
    "\r 37%|###7      | 3741/10000 [12:31<20:57,  4.98it/s, loss=2.3150]"                      \
    "{'loss': 2.3150, 'grad_norm': 0.71532, 'learning_rate': 3.000e-05, 'epoch': 0.37}\n"      \
    "\x1b[32mINFO\x1b[0m 2026-01-02 10:11:12 iteration     3741/ 500000 | consumed samples: "  \
    "     1915392 | elapsed time per iteration (ms): 200.7 | lm loss: 2.315012E+00 |\n"        \
    "[rank3]:   File \"/opt/conda/lib/python3.11/site-packages/torch/nn/modules/module.py\", " \
    "line 1553, in _wrapped_call_impl\n[rank3]:     return self._call_impl(*args, **kwargs)\n"
#define MESSAGE                                                                               \
    "CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 11.76 GiB total capacity; "      \
    "10.00 GiB already allocated; 5.00 MiB free; 10.20 GiB reserved in total by PyTorch)\n"

static const struct {
    const char *what;
    void (*read)(plim_str);
    const char *piece;
} rows[] = {
    {"oom: a training log", read_oom, TRAINING},
    {"oom: nothing but messages", read_oom, MESSAGE},
    {"oom: nothing but their first words", read_oom, "CUDA out of memory"},
    {"oom: nearly words", read_oom, "cuda out of memor triedtoallocat "},
    {"oom: lines of one letter", read_oom, "a\n"},
    {"oom: empty lines", read_oom, "\n"},
    {"oom: one line", read_oom, "step 1 loss 2.0 "},
    {"diff: a training log", read_log, TRAINING},
    {"diff: nothing but figures", read_log, "| max allocated: 57438.81 | max_ca 4.5 GB\n"},
    {"diff: nothing but words", read_log, "w | "},
    {"diff: nearly words", read_log, "max_memory_allocate gpu reserved memor "},
    {"diff: lines of one letter", read_log, "a\n"},
    {"diff: one line", read_log, "step 1 loss 2.0 "},
    {"Megatron-LM: arguments", read_megatron, "--num-layers 24 --hidden-size 2048 \\\n"},
    {"Megatron-LM: variables", read_megatron, "export A=64\n--hidden-size $A\n"},
    {"Megatron-LM: arguments of one letter", read_megatron, "--a "},
    {"Megatron-LM: comments", read_megatron, "# what is meant by the arguments below\n"},
    {"Megatron-LM: empty lines", read_megatron, "\n"},
    {"Megatron-LM: brackets", read_megatron, "(["},
};

static int bench_file(const char *path)
{
    plim_bytes file = {0};
    plim_err err = PLIM_ERR_INIT;
    if (plim_file_read(&file, path, &err)) {
        fprintf(stderr, "%s\n", err.msg);
        return 1;
    }
    plim_str text = {(const char *)file.p, (size_t)file.n};
    bench_text("as oom", read_oom, text);
    bench_text("as diff", read_log, text);
    bench_text("as Megatron-LM's", read_megatron, text);
    plim_file_close(&file);
    return 0;
}

int main(int argc, char **argv)
{
    if (argc > 1)
        return bench_file(argv[1]);
    char *text = malloc(SIZE);
    if (!text)
        return 1;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        size_t n = strlen(rows[i].piece);
        for (size_t at = 0; at < SIZE; at += n)
            memcpy(text + at, rows[i].piece, PLIM_MIN(n, SIZE - at));
        bench_text(rows[i].what, rows[i].read, (plim_str){text, SIZE});
    }
    free(text);
    return 0;
}
