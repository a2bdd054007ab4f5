/* bench_estimate.c -- what a user waits for: whole processes of the program,
 * start to answer, and the memory they took.
 *
 *     bench_estimate [RUNS [PROGRAM]]      default: 200, the plimsoll next to it
 *     bench_estimate RUNS PROGRAM WORD...  this one command, whatever it is */
#include <errno.h>
#include <fcntl.h>
#include <spawn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { MAX_RUNS = 1000, LONG_RUNS = 5, MAX_WORDS = 24 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec * 1e-6;
}

static int by_value(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One run with its output thrown away; *rss in KiB; below 0: it failed. */
static double run(char *const *argv, long *rss)
{
    extern char **environ;
    posix_spawn_file_actions_t files;
    struct rusage use;
    pid_t pid;
    int status = 0;
    posix_spawn_file_actions_init(&files);
    posix_spawn_file_actions_addopen(&files, 1, "/dev/null", O_WRONLY, 0);
    double start = now_ms();
    int rc = posix_spawn(&pid, argv[0], &files, NULL, argv, environ);
    posix_spawn_file_actions_destroy(&files);
    if (rc || wait4(pid, &status, 0, &use) != pid || !WIFEXITED(status) || WEXITSTATUS(status))
        return -1;
    *rss = use.ru_maxrss;
    return now_ms() - start;
}

/* argv ends in a NULL. */
static int bench(const char *label, char *const *argv, int runs)
{
    static double took[MAX_RUNS];
    long rss = 0, most = 0;
    for (int i = 0; i < runs; i++) {
        if ((took[i] = run(argv, &rss)) < 0) {
            fprintf(stderr, "bench_estimate: '%s %s' failed\n", argv[0], label);
            return 1;
        }
        most = rss > most ? rss : most;
    }
    qsort(took, (size_t)runs, sizeof took[0], by_value);
    printf("%-58s %8.2f ms median %8.2f ms best %7.2f MiB resident\n", label, took[runs / 2],
           took[0], (double)most / 1024);
    return 0;
}

/* "@x" is tests/data/x. */
static int bench_line(const char *program, const char *line, int runs)
{
    char words[256], path[1024], *argv[MAX_WORDS] = {(char *)(uintptr_t)program};
    int n = 1;
    snprintf(words, sizeof words, "%s", line);
    for (char *w = strtok(words, " "); w && n < MAX_WORDS - 1; w = strtok(NULL, " "), n++) {
        argv[n] = w;
        if (*w != '@')
            continue;
        snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/data/%s", w + 1);
        argv[n] = path;
    }
    return bench(line, argv, runs);
}

int main(int argc, char **argv)
{
    static const char *const lines[] = {
        "--version",
        "estimate resnet50 --batch 32",
        "estimate resnet50 --batch 32 --gpu rtx4090 --json",
        "estimate vit_b_16 --batch 32 --optimizer adamw",
        "estimate @llama-70b --dtype bf16 --seq 2048 --optimizer adamw",
        "estimate mlp:1024,4096,4096,1000:relu --batch 256",
        "layers resnet50",
    };
    static const char *const long_lines[] = {
        "estimate llama-3-70b --dp 8 --strategy fsdp2 --dtype bf16 --seq 8192 --checkpoint blocks "
        "--optimizer adamw",
        "estimate llama-3.1-405b --pp 8 --tp 8 --dp 16 --strategy fsdp2 --rank all --dtype bf16 "
        "--seq 8192 --checkpoint blocks --optimizer adamw",
        "estimate llama-3.1-405b --pp 126 --rank all --batch 1 --seq 128",
        "fit resnet50 --gpu all --optimizer sgd,momentum=0.9",
        "fit llama-2-7b --gpu all --find seq",
        "diff llama-3.1-8b llama-3.1-70b --within 100TiB",
        "diff gemma-3-270m phi-2 --within 100TiB", /* little in common */
    };
    char built[4096];
    const char *slash = strrchr(argv[0], '/'), *program = argc > 2 ? argv[2] : built;
    int runs = argc > 1 ? atoi(argv[1]) : 200, failed = 0;
    snprintf(built, sizeof built, "%.*splimsoll", slash ? (int)(slash - argv[0]) + 1 : 0,
             argv[0]);
    if (runs < 1 || runs > MAX_RUNS) {
        fprintf(stderr, "usage: bench_estimate [RUNS [PROGRAM [WORD...]]]\n");
        return 2;
    }
    if (argc > 3)
        return bench(argv[argc - 1], argv + 2, runs);
    for (size_t i = 0; i < sizeof lines / sizeof lines[0]; i++)
        failed |= bench_line(program, lines[i], runs);
    for (size_t i = 0; i < sizeof long_lines / sizeof long_lines[0]; i++)
        failed |= bench_line(program, long_lines[i], LONG_RUNS);
    return failed;
}
