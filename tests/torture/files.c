/* files.c -- mutants of all files that the tree has, read through plimsoll.h, which keeps its
 * promises: contract.h.
 *
 *     torture_files [-n COUNT] [-s NUMBER] [-j JOBS] [-o FOLDER] [FILE...]
 *
 * Mutants have numbers, NUMBER (0) and up.  A number and a file are one mutant, always the same;
 * without files the number also picks the file.  -n 0 reads the files as they are.
 *
 * What breaks a promise is left in FOLDER (torture-findings), with a line on how to do it again;
 * exit status 1 then.  Mutants are read in processes of their own, so that one that crashes is
 * a finding, too. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "mutate.h"
#include "plimsoll.h"
#include "ways.h"

#ifdef __GLIBC__
#if __GLIBC_PREREQ(2, 33)
#define HAS_MALLINFO 1
#include <malloc.h>
#endif
#endif

#if defined(__SANITIZE_ADDRESS__)
#define SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define SANITIZED 1
#endif
#endif
#ifdef SANITIZED
size_t __sanitizer_get_current_allocated_bytes(void);
void __sanitizer_print_stack_trace(void);
enum { SLOWER = 15 };
#else
enum { SLOWER = 1 };
#endif

enum {
    MOST_SEEDS = 4096,
    MOST_LABELS = 48,
    MOST_JOBS = 16,
    CALL_MS = 2000 * SLOWER, /* of processor time, for one call */
    OP_MS = SLOWER,          /* and for each op of a graph */
    LONGER = 10,             /* times as long */
    WAIT_S = 120 * SLOWER,   /* for anything: a call that waits for ever */
    GROWTH = 4 << 20,        /* of the heap, while a process reads all its mutants */
    SHOWN = 3                /* findings of one kind that are written down */
};

typedef struct seed {
    torture_seed file;
    torture_way way;
    uint32_t label;
    bool neighbours; /* files next to it are read, too */
    bool large;      /* a model for which a call takes long */
} seed;

static seed seeds[MOST_SEEDS];
static torture_seed donors[MOST_SEEDS];
static uint32_t n_seeds, n_donors;
static char labels[MOST_LABELS][32];
static uint32_t n_labels;

/* ---- what processes share --------------------------------------------------------------- */

typedef struct label_count {
    uint64_t mutants, read, slowest_number;
    double slowest_ms, ms; /* ms: of all calls */
} label_count;

typedef struct job {
    uint64_t number; /* of the mutant that is read now */
    uint32_t seed;
    bool slow;
    char what[64]; /* the call */
    label_count count[MOST_LABELS];
} job;

typedef struct shared {
    job job[MOST_JOBS];
    uint64_t kinds[1024]; /* hashes of findings: how often, and what */
    uint32_t times[1024];
    uint32_t findings;
    uint64_t first; /* number */
} shared;

static shared *all;
static job *mine;

static const char *folder = "torture-findings";
static const char making[] = "making it"; /* a mistake in here: there is no mutant then */
static bool whole;                        /* -n 0: no mutants */

/* ---- seeds --------------------------------------------------------------------------------- */

static void *get_memory(size_t n)
{
    void *p = calloc(1, n ? n : 1);
    if (!p)
        abort();
    return p;
}

enum { PATH_BYTES = 4096 };

static void join_path(char *out, const char *in, const char *name)
{
    int n = snprintf(out, PATH_BYTES, "%s/%s", in, name);
    if (n < 0 || n >= PATH_BYTES)
        abort();
}

/* What a job has of its own in the folder: "1.log". */
static void name_job(char *out, const char *in, uint32_t i, const char *end)
{
    char name[32];
    snprintf(name, sizeof name, "%u%s", (unsigned)i, end);
    join_path(out, in, name);
}

static bool read_bytes(const char *path, torture_bytes *out)
{
    struct stat sb;
    FILE *f = fopen(path, "rb");
    if (!f || fstat(fileno(f), &sb) != 0 || !S_ISREG(sb.st_mode)) {
        if (f)
            fclose(f);
        return false;
    }
    out->p = get_memory((size_t)sb.st_size);
    out->n = fread(out->p, 1, (size_t)sb.st_size, f);
    fclose(f);
    return true;
}

static bool has_text(const char *path, const char *part) { return strstr(path, part) != NULL; }

static torture_way way_of(const char *path, const torture_bytes *b)
{
    if (has_text(path, "corpus/settings/") || has_text(path, "corpus/json/"))
        return WAY_SETTINGS;
    if (has_text(path, "corpus/oom/") || has_text(path, "oom_"))
        return WAY_OOM;
    if (has_text(path, "corpus/log/") || has_text(path, ".log"))
        return WAY_LOG;
    if (has_text(path, "tape") || has_text(path, "snapshot") || has_text(path, "trace") ||
        has_text(path, "corpus/driver/") || has_text(path, ".pickle") ||
        (b->n > 5 && memcmp(b->p, "PLREC", 5) == 0))
        return WAY_REPLAY;
    return WAY_MODEL;
}

/* "onnx", as the library calls it, or what the file is read as. */
static uint32_t label_of(const seed *s)
{
    char label[32];
    plim_model *m = NULL;
    const char *what = torture_way_name(s->way);
    const char *path = s->file.path;
    if (s->way == WAY_REPLAY)
        what = has_text(path, "trace")    ? "trace"
               : has_text(path, "driver") ? "recording"
               : has_text(path, "tape")   ? "tape"
                                          : "snapshot";
    else if (s->way == WAY_MODEL && !plim_model_open(path, &m, NULL))
        what = plim_model_format(m);
    else if (s->way == WAY_MODEL)
        what = "no model";
    snprintf(label, sizeof label, "%s", what);
    plim_model_free(m);
    for (uint32_t i = 0; i < n_labels; i++)
        if (strcmp(labels[i], label) == 0)
            return i;
    if (n_labels == MOST_LABELS)
        return 0;
    strcpy(labels[n_labels], label);
    return n_labels++;
}

static bool is_seed(const char *path)
{
    static const char *const not [] = {
        ".py",          ".md",         ".txt", ".png",
        "corpus/text/", "corpus/drm/", ".ppm", "corpus/history/",
        "corpus/nvml/", "/pictures/",  ".jpg"};
    for (size_t i = 0; i < sizeof not / sizeof *not ; i++)
        if (has_text(path, not [i]))
            return false;
    return true;
}

static void add_seed(const char *path)
{
    torture_bytes b;
    if (n_seeds == MOST_SEEDS || strlen(path) >= PATH_BYTES || !read_bytes(path, &b))
        return;
    seed *s = &seeds[n_seeds++];
    s->file.path = strcpy(get_memory(strlen(path) + 1), path);
    s->file.bytes = b;
    s->file.format = torture_format_of(b.p, b.n);
    if (has_text(path, "corpus/pickle/") || has_text(path, ".pkl"))
        s->file.format = TORTURE_PICKLE;
    if (has_text(path, "corpus/driver/")) {
        s->file.format = TORTURE_RECORDING;
        s->file.bytes = torture_complete(TORTURE_RECORDING, b);
        free(b.p);
    }
    s->way = way_of(path, &s->file.bytes);
    s->neighbours = has_text(path, "config.json") || has_text(path, ".index.json") ||
                    has_text(path, "-of-") || has_text(path, "/lora/") ||
                    (has_text(path, "llama-") && has_text(path, ".safetensors"));
    s->large = has_text(path, "pretrain_gpt") || has_text(path, "llama-7");
    s->label = label_of(s);
}

static void add_folder(const char *path)
{
    struct dirent **entries;
    struct stat sb;
    if (stat(path, &sb) != 0 || !S_ISDIR(sb.st_mode)) {
        add_seed(path);
        return;
    }
    int n = scandir(path, &entries, NULL, alphasort);
    for (int i = 0; i < n; i++) {
        char inner[PATH_BYTES];
        join_path(inner, path, entries[i]->d_name);
        if (entries[i]->d_name[0] != '.' && is_seed(inner))
            add_folder(inner);
        free(entries[i]);
    }
    if (n >= 0)
        free(entries);
}

static void find_seeds(void)
{
    add_folder(PLIM_SOURCE_DIR "/tests/fuzz/corpus");
    add_folder(PLIM_SOURCE_DIR "/tests/data");
    add_folder(PLIM_SOURCE_DIR "/tests/golden/snapshots");
    add_folder(PLIM_SOURCE_DIR "/tests/golden/traces");
    add_folder(PLIM_SOURCE_DIR "/tests/torture/seeds");
    for (; n_donors < n_seeds; n_donors++)
        donors[n_donors] = seeds[n_donors].file;
}

/* Small files more often, as they take less time. */
static uint64_t weigh_seed(const seed *s)
{
    return (1u << 30) / (4096 + s->file.bytes.n) / (s->large ? 200 : 1);
}

/* A label, and then one of its files. */
static uint32_t pick_seed(uint64_t number)
{
    torture_random r = {number * 0x9e3779b97f4a7c15u + 77};
    uint32_t label = torture_below(&r, n_labels);
    uint64_t sum = 0;
    for (uint32_t i = 0; i < n_seeds; i++)
        sum += seeds[i].label == label ? weigh_seed(&seeds[i]) : 0;
    uint64_t at = sum ? torture_next(&r) % sum : 0;
    for (uint32_t i = 0; i < n_seeds; i++) {
        uint64_t share = seeds[i].label == label ? weigh_seed(&seeds[i]) : 0;
        if (at < share)
            return i;
        at -= share;
    }
    return torture_below(&r, n_seeds);
}

/* ---- one mutant ------------------------------------------------------------------------------- */

enum { PADDED = 70000 };

static bool lies_on_disk(const seed *s, uint64_t number)
{
    return s->way == WAY_REPLAY || s->way == WAY_LOG || s->neighbours || number % 4 == 1;
}

static torture_bytes make_mutant(const seed *s, uint64_t number)
{
    torture_bytes b = {get_memory(s->file.bytes.n), s->file.bytes.n};
    if (b.n)
        memcpy(b.p, s->file.bytes.p, b.n);
    if (whole)
        return b;
    free(b.p);
    b = torture_mutate(&s->file, number, donors, n_donors);
    if (lies_on_disk(s, number) && number % 3 == 0) { /* more than is read at once */
        torture_bytes padded = torture_pad(&s->file, b, PADDED + number % 50000);
        if (padded.p) {
            free(b.p);
            b = padded;
        }
    }
    return b;
}

/* A new file: in its place may be a link, to a seed, that a process left which crashed. */
static void write_file(const char *path, const void *p, size_t n)
{
    unlink(path);
    FILE *f = fopen(path, "wbx");
    if (!f || (n && fwrite(p, 1, n, f) != n) || fclose(f)) {
        fprintf(stderr, "torture_files: cannot write '%s': %s\n", path, strerror(errno));
        exit(2);
    }
}

/* ---- findings --------------------------------------------------------------------------------- */

static bool is_news(const char *text)
{
    uint64_t h = torture_hash((const uint8_t *)text, strlen(text)) | 1;
    size_t i = h % 1024;
    while (all->kinds[i] && all->kinds[i] != h)
        i = (i + 1) % 1024;
    all->kinds[i] = h;
    __sync_fetch_and_add(&all->findings, 1);
    return __sync_fetch_and_add(&all->times[i], 1) < SHOWN;
}

/* `log`: what the process said, or NULL. */
static void tell_finding(const job *j, const char *how, const char *message, const char *log)
{
    char kind[256], path[512], name[128];
    const seed *s = &seeds[j->seed];
    snprintf(kind, sizeof kind, "%s: %s: %s", labels[s->label], j->what, how);
    if (!is_news(kind))
        return;
    mkdir(folder, 0777);
    snprintf(name, sizeof name, "%s-%" PRIu64, labels[s->label], j->number);
    for (char *p = name; *p; p++)
        if (*p == ' ' || *p == '/')
            *p = '_';
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (strcmp(j->what, making) != 0) {
        torture_bytes b = make_mutant(s, j->number);
        write_file(path, b.p, b.n);
        free(b.p);
    }
    if (log) {
        torture_bytes said;
        snprintf(path, sizeof path, "%s/%s.log", folder, name);
        if (read_bytes(log, &said)) {
            write_file(path, said.p, said.n);
            free(said.p);
        }
    }
    printf("finding: %s%s%s\n    torture_files %s-s %" PRIu64 " '%s'\n", kind,
           message[0] ? ": " : "", message, whole ? "-n 0 " : "-n 1 ", j->number,
           s->file.path);
    fflush(stdout);
}

/* ---- the process that reads --------------------------------------------------------------------- */

static double begun_ms, slowest_ms, spent_ms;
static int allowed_ms;

static double read_clock(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static void set_timer(int ms)
{
    struct itimerval t = {{0, 0}, {ms / 1000, ms % 1000 * 1000}};
    setitimer(ITIMER_PROF, &t, NULL);
    alarm(ms ? WAIT_S : 0);
}

/* A search runs a step many times, and what is large takes long. */
static bool takes_longer(const char *what)
{
    static const char *const searches[] = {"fit", "serve_fit", "batches", "segments", "cards"};
    bool longer = seeds[mine->seed].large;
    for (size_t i = 0; i < sizeof searches / sizeof *searches; i++)
        longer |= strcmp(what, searches[i]) == 0;
    return longer;
}

static void begin_call(const char *what)
{
    snprintf(mine->what, sizeof mine->what, "%s", what);
    begun_ms = read_clock();
    set_timer(allowed_ms * (takes_longer(what) ? LONGER : 1));
}

static void end_call(const char *what)
{
    double ms = read_clock() - begun_ms;
    (void)what;
    set_timer(0);
    slowest_ms = ms > slowest_ms ? ms : slowest_ms;
    spent_ms += ms;
}

static void allow_time(uint32_t ops)
{
    allowed_ms = CALL_MS + OP_MS * (int)(ops < 50000 ? ops : 50000);
}

static void break_promise(const char *what, const char *how, const char *message)
{
    char shown[160];
    snprintf(mine->what, sizeof mine->what, "%s", what);
    snprintf(shown, sizeof shown, "%s", message);
    for (char *p = shown; *p; p++)
        if (*p < 0x20 || *p > 0x7e)
            *p = '?';
    tell_finding(mine, how, shown, NULL);
}

static void stop_slow(int sig)
{
    (void)sig;
    mine->slow = true;
#ifdef SANITIZED
    __sanitizer_print_stack_trace();
#endif
    _exit(98);
}

static size_t measure_heap(void)
{
#ifdef SANITIZED
    return __sanitizer_get_current_allocated_bytes();
#elif defined(HAS_MALLINFO)
    struct mallinfo2 i = mallinfo2();
    return i.uordblks + i.hblkhd;
#else
    return 0;
#endif
}

static int next_descriptor(void)
{
    int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
    close(fd);
    return fd;
}

/* The files next to the seed, as links; with `made` false they go. */
static void link_neighbours(const seed *s, const char *where, bool made)
{
    char from[PATH_BYTES], to[PATH_BYTES], target[PATH_BYTES];
    char *name = strrchr(strcpy(from, s->file.path), '/');
    if (!s->neighbours || !name)
        return;
    *name++ = 0;
    DIR *d = opendir(from);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        if (e->d_name[0] == '.' || strcmp(e->d_name, name) == 0)
            continue;
        join_path(to, where, e->d_name);
        join_path(target, from, e->d_name);
        if (made ? symlink(target, to) != 0 && errno != EEXIST : unlink(to) != 0)
            perror("torture_files");
    }
    if (d)
        closedir(d);
}

static bool read_mutant(const seed *s, uint64_t number, const char *where)
{
    static const torture_watch watch = {begin_call, end_call, allow_time, break_promise};
    char path[PATH_BYTES];
    const char *name = strrchr(s->file.path, '/');
    name = name ? name + 1 : s->file.path;
    torture_case c = {.way = s->way, .name = name, .large = s->large, .number = number};
    snprintf(mine->what, sizeof mine->what, "%s", making);
    c.bytes = make_mutant(s, number);
    if (!whole && number % 64 == 9) /* as something that it is not */
        c.way = (torture_way)(number / 64 % WAY_COUNT);
    bool disk = lies_on_disk(s, number) || c.way == WAY_REPLAY || c.way == WAY_LOG;
    if (disk) {
        join_path(path, where, name);
        write_file(path, c.bytes.p, c.bytes.n);
        link_neighbours(s, where, true);
        c.path = path;
        c.folder = s->neighbours ? where : NULL;
    }
    bool read = torture_read(&c, &watch);
    if (disk) {
        unlink(path);
        link_neighbours(s, where, false);
    }
    free(c.bytes.p);
    return read;
}

/* What a mutant leaves behind, once and again: what is set up once is not a leak. */
static void check_rest(const seed *s, uint64_t number, const char *where, size_t heap, int fd)
{
    if (next_descriptor() > fd)
        break_promise("all", "leaves a file open", "");
#ifdef SANITIZED
    if (measure_heap() <= heap)
        return;
    heap = measure_heap();
    (void)read_mutant(s, number, where);
    if (measure_heap() > heap)
        break_promise("all", "leaves memory behind", "");
#else
    (void)s;
    (void)number;
    (void)where;
    (void)heap;
#endif
}

static void read_one(uint64_t number, const char *where)
{
    mine->number = number;
    mine->seed = whole ? (uint32_t)(number - all->first) : pick_seed(number);
    const seed *s = &seeds[mine->seed];
    label_count *count = &mine->count[s->label];
    size_t heap = measure_heap();
    int fd = next_descriptor();
    slowest_ms = spent_ms = 0;
    allow_time(0);
    bool read = read_mutant(s, number, where);
    check_rest(s, number, where, heap, fd);
    count->mutants++;
    count->read += read;
    count->ms += spent_ms;
    if (slowest_ms > count->slowest_ms) {
        count->slowest_ms = slowest_ms;
        count->slowest_number = number;
    }
}

enum { WARM = 500, LEAST_ROUNDS = 2000 };

_Noreturn static void run_job(uint64_t from, uint64_t end, uint32_t step, const char *where)
{
    size_t heap = 0;
    uint64_t rounds = 0;
    signal(SIGINT, SIG_DFL);
    signal(SIGTERM, SIG_DFL);
    signal(SIGPROF, stop_slow);
    signal(SIGALRM, stop_slow);
    for (uint64_t i = from; i < end; i += step) {
        read_one(i, where);
        if (++rounds == WARM)
            heap = measure_heap();
    }
    if (rounds > LEAST_ROUNDS && measure_heap() > heap + GROWTH)
        break_promise("all", "leave memory behind", "");
    fflush(stdout);
    _exit(0);
}

/* ---- the process that watches ---------------------------------------------------------------------- */

static volatile sig_atomic_t stopped;

static void note_stop(int sig)
{
    (void)sig;
    stopped = 1;
}

/* Who is told to end still says what it counted. */
static void watch_stops(void)
{
    struct sigaction a;
    memset(&a, 0, sizeof a);
    a.sa_handler = note_stop;
    sigaction(SIGINT, &a, NULL);
    sigaction(SIGTERM, &a, NULL);
}

/* What is left of processes that crashed. */
static void remove_folder(const char *path)
{
    DIR *d = opendir(path);
    struct dirent *e;
    while (d && (e = readdir(d))) {
        char inner[PATH_BYTES];
        if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0)
            continue;
        join_path(inner, path, e->d_name);
        if (unlink(inner) != 0)
            remove_folder(inner);
    }
    if (d)
        closedir(d);
    rmdir(path);
}

static pid_t start_job(uint32_t i, uint64_t from, uint64_t end, uint32_t step,
                       const char *where)
{
    char log[PATH_BYTES], inner[PATH_BYTES];
    name_job(log, where, i, ".log");
    name_job(inner, where, i, "");
    fflush(stdout);
    pid_t pid = fork();
    if (pid)
        return pid;
    remove_folder(inner);
    mkdir(inner, 0777);
    if (!freopen(log, "w", stderr))
        _exit(97);

    mine = &all->job[i];
    run_job(from, end, step, inner);
}

static void judge_end(job *j, int status, const char *log)
{
    char how[64];
    if (WIFSIGNALED(status))
        snprintf(how, sizeof how, "ends with signal %d", WTERMSIG(status));
    else if (j->slow)
        snprintf(how, sizeof how, "takes more than %d ms and %d for each op", CALL_MS, OP_MS);
    else
        snprintf(how, sizeof how, "ends with status %d", WEXITSTATUS(status));
    j->slow = false;
    j->count[seeds[j->seed].label].mutants++;
    tell_finding(j, how, "", log);
}

static void run_jobs(uint64_t first, uint64_t count, uint32_t jobs, const char *where)
{
    pid_t pid[MOST_JOBS] = {0};
    uint32_t left = 0;
    for (uint32_t i = 0; i < jobs && i < count; i++, left++) {
        all->job[i].number = first + i;
        pid[i] = start_job(i, first + i, first + count, jobs, where);
    }
    while (left) {
        int status;
        pid_t ended = wait(&status);
        uint32_t i = 0;
        while (i < jobs && pid[i] != ended)
            i++;
        for (uint32_t k = 0; stopped && k < jobs; k++)
            if (pid[k] > 0 && pid[k] != ended)
                kill(pid[k], SIGKILL);
        if (ended < 0 && errno != EINTR)
            break;
        if (ended < 0 || i == jobs)
            continue;
        left--;
        pid[i] = 0;
        if (status == 0 || stopped)
            continue;
        char log[PATH_BYTES];
        name_job(log, where, i, ".log");
        judge_end(&all->job[i], status, log);
        uint64_t next = all->job[i].number + jobs;
        if (next < first + count) {
            pid[i] = start_job(i, next, first + count, jobs, where);
            left++;
        }
    }
}

static int print_counts(void)
{
    uint64_t mutants = 0;
    printf("%-14s %10s %10s %10s %10s %10s  %s\n", "", "mutants", "read", "refused",
           "on average", "slowest", "number");
    for (uint32_t l = 0; l < n_labels; l++) {
        label_count sum = {0, 0, 0, 0, 0};
        for (uint32_t i = 0; i < MOST_JOBS; i++) {
            const label_count *c = &all->job[i].count[l];
            sum.mutants += c->mutants;
            sum.read += c->read;
            sum.ms += c->ms;
            if (c->slowest_ms > sum.slowest_ms) {
                sum.slowest_ms = c->slowest_ms;
                sum.slowest_number = c->slowest_number;
            }
        }
        mutants += sum.mutants;
        printf("%-14s %10" PRIu64 " %10" PRIu64 " %10" PRIu64 " %7.2f ms %7.0f ms  %" PRIu64
               "\n",
               labels[l], sum.mutants, sum.read, sum.mutants - sum.read,
               sum.mutants ? sum.ms / (double)sum.mutants : 0, sum.slowest_ms,
               sum.slowest_number);
    }
    printf("%" PRIu64 " mutants of %u files, %u findings\n", mutants, n_seeds, all->findings);
    return all->findings != 0;
}

static int fail_usage(void)
{
    fprintf(stderr, "usage: torture_files [-n COUNT] [-s NUMBER] [-j JOBS] [-o FOLDER] "
                    "[FILE...]\n");
    return 2;
}

int main(int argc, char **argv)
{
    uint64_t count = 10000, first = 0, jobs = 1;
    const char *temporary = getenv("TMPDIR");
    char where[PATH_BYTES];
    int option;
    while ((option = getopt(argc, argv, "n:s:j:o:")) != -1)
        switch (option) {
        case 'n': count = strtoull(optarg, NULL, 10); break;
        case 's': first = strtoull(optarg, NULL, 10); break;
        case 'j': jobs = strtoull(optarg, NULL, 10); break;
        case 'o': folder = optarg; break;
        default: return fail_usage();
        }
    if (!jobs || jobs > MOST_JOBS)
        return fail_usage();
    find_seeds();
    if (optind < argc) { /* the others still lend pieces */
        memset(seeds, 0, sizeof seeds);
        n_seeds = n_labels = 0;
        for (int i = optind; i < argc; i++)
            add_folder(argv[i]);
    }
    if (!n_seeds)
        return fail_usage();
    whole = count == 0;
    join_path(where, temporary ? temporary : "/tmp", "torture-XXXXXX");
    all = mmap(NULL, sizeof *all, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (all == MAP_FAILED || !mkdtemp(where)) {
        perror("torture_files");
        return 2;
    }
    all->first = first;
    watch_stops();
    run_jobs(first, whole ? n_seeds : count, (uint32_t)jobs, where);
    remove_folder(where);
    return print_counts();
}
