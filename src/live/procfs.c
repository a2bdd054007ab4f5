/* procfs.c -- what /proc says of the machine and its processes: see live.h */
#include <ctype.h>
#include <errno.h>
#include <pwd.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "live/live.h"

enum { PATH_MOST = 1024 };

/* ---- small files ------------------------------------------------------------------------- */

static void join_path(char *out, size_t n, const char *root, const char *fmt, va_list args)
{
    int used = snprintf(out, n, "%s", root ? root : "");
    if (used >= 0 && (size_t)used < n)
        vsnprintf(out + used, n - (size_t)used, fmt, args);
}

void plim_probe_path(char *out, size_t n, const char *root, const char *fmt, ...)
{
    va_list args;
    va_start(args, fmt);
    join_path(out, n, root, fmt, args);
    va_end(args);
}

static int read_path(const char *path, char *out, size_t n)
{
    FILE *f = fopen(path, "rb");
    *out = '\0';
    if (!f)
        return -1;
    size_t got = fread(out, 1, n - 1, f);
    bool bad = ferror(f) != 0;
    fclose(f);
    out[got] = '\0';
    return bad && !got ? -1 : (int)got;
}

int plim_probe_text(const char *root, char *out, size_t n, const char *fmt, ...)
{
    char path[PATH_MOST];
    va_list args;
    va_start(args, fmt);
    join_path(path, sizeof path, root, fmt, args);
    va_end(args);
    return read_path(path, out, n);
}

uint64_t plim_probe_number(const char *text)
{
    char *end = NULL;
    text += strspn(text, " \t");
    if (!isdigit((unsigned char)*text))
        return PLIM_LIVE_UNKNOWN;
    errno = 0;
    unsigned long long v = strtoull(text, &end, 10);
    return errno || v > INT64_MAX ? PLIM_LIVE_UNKNOWN : v;
}

uint64_t plim_probe_u64(const char *root, const char *fmt, ...)
{
    char path[PATH_MOST], text[64];
    va_list args;
    va_start(args, fmt);
    join_path(path, sizeof path, root, fmt, args);
    va_end(args);
    return read_path(path, text, sizeof text) > 0 ? plim_probe_number(text)
                                                  : PLIM_LIVE_UNKNOWN;
}

/* What follows `key` at the start of a line; NULL: no line begins so. */
static const char *find_line(const char *text, const char *key)
{
    for (const char *at = text; at && *at;) {
        if (!strncmp(at, key, strlen(key)))
            return at + strlen(key);
        at = strchr(at, '\n');
        at = at ? at + 1 : NULL;
    }
    return NULL;
}

static plim_str first_line(const char *text) { return (plim_str){text, strcspn(text, "\n")}; }

/* ---- the machine ------------------------------------------------------------------------- */

static bool read_kib(const char *text, const char *key, uint64_t *bytes)
{
    const char *at = find_line(text, key);
    uint64_t kib = at ? plim_probe_number(at) : PLIM_LIVE_UNKNOWN;
    return kib != PLIM_LIVE_UNKNOWN && plim_mul(kib, 1024, bytes);
}

bool plim_host_memory(const char *root, uint64_t *total, uint64_t *available)
{
    char text[4096];
    return plim_probe_text(root, text, sizeof text, "/proc/meminfo") > 0 &&
           read_kib(text, "MemTotal:", total) && read_kib(text, "MemAvailable:", available);
}

const char *plim_host_name(plim_reading *r)
{
    char text[256];
    if (plim_probe_text(r->root, text, sizeof text, "/proc/sys/kernel/hostname") <= 0)
        return NULL;
    return plim_arena_str(r->arena, first_line(text)).p;
}

bool plim_host_is_wsl(const char *root)
{
    char text[512];
    return plim_probe_text(root, text, sizeof text, "/proc/sys/kernel/osrelease") > 0 &&
           (strstr(text, "microsoft") || strstr(text, "Microsoft"));
}

/* In the first pid namespace, and only there, process 2 is the kernel's.  src:
 * init/main.c of Linux, rest_init: kthreadd. */
bool plim_host_pids(const char *root)
{
    char text[64];
    return plim_probe_text(root, text, sizeof text, "/proc/2/comm") > 0 &&
           plim_str_is(first_line(text), "kthreadd");
}

/* ---- a process --------------------------------------------------------------------------- */

bool plim_process_plausible(const char *root, uint64_t pid)
{
    static const char *const libraries[] = {"libcuda", "libnvidia-ml", "libplimsoll"};
    char path[PATH_MOST], line[1024];
    plim_probe_path(path, sizeof path, root, "/proc/%" PRIu64 "/stat", pid);
    if (access(path, F_OK) != 0)
        return false;
    plim_probe_path(path, sizeof path, root, "/proc/%" PRIu64 "/maps", pid);
    FILE *f = fopen(path, "rb");
    bool any = false, found = false;
    while (f && !found && fgets(line, sizeof line, f)) {
        any = true;
        for (size_t i = 0; i < PLIM_COUNT(libraries); i++)
            found = found || strstr(line, libraries[i]);
    }
    if (f)
        fclose(f);
    return found || !any;
}

/* The name that etc/passwd below the root gives a user.  That of this machine knows less than
 * the C library does (LDAP and others), which therefore answers for it. */
static const char *user_name(plim_reading *r, uint64_t uid)
{
    char line[512];
    char path[PATH_MOST];
    if (!r->root || !*r->root) {
        const struct passwd *pw = getpwuid((uid_t)uid);
        if (pw)
            return plim_arena_str(r->arena, plim_str_of(pw->pw_name)).p;
        return plim_reading_text(r, "%" PRIu64, uid);
    }
    plim_probe_path(path, sizeof path, r->root, "/etc/passwd");
    FILE *f = fopen(path, "rb");
    const char *name = NULL;
    while (f && !name && fgets(line, sizeof line, f)) {
        size_t n = strcspn(line, ":");
        const char *at = line[n] ? strchr(line + n + 1, ':') : NULL;
        if (at && plim_probe_number(at + 1) == uid)
            name = plim_arena_str(r->arena, (plim_str){line, n}).p;
    }
    if (f)
        fclose(f);
    return name ? name : plim_reading_text(r, "%" PRIu64, uid);
}

/* Of proc(5)'s stat, after the command in parentheses, which may hold anything: field `n`
 * counted as there. */
static uint64_t stat_field(const char *after, int n)
{
    enum { STATE = 3 }; /* the field after the command */
    for (int i = STATE; after && i < n; i++) {
        after = strchr(after, ' ');
        after = after ? after + 1 : NULL;
    }
    return after ? plim_probe_number(after) : PLIM_LIVE_UNKNOWN;
}

static void read_stat(plim_reading *r, plim_live_process *p, uint64_t *cpu_ticks)
{
    enum { UTIME = 14, STIME = 15, START = 22, RSS = 24, PAGE = 4096 };
    char text[2048];
    *cpu_ticks = PLIM_LIVE_UNKNOWN;
    if (plim_probe_text(r->root, text, sizeof text, "/proc/%" PRIu64 "/stat", p->pid) <= 0)
        return;
    const char *open = strchr(text, '('), *close = strrchr(text, ')');
    if (!open || !close || close < open || close[1] != ' ')
        return;
    p->command = plim_arena_str(r->arena, (plim_str){open + 1, (size_t)(close - open - 1)}).p;
    const char *after = close + 2;
    uint64_t start = stat_field(after, START), user = stat_field(after, UTIME),
             system = stat_field(after, STIME), rss = stat_field(after, RSS);
    p->started = start == PLIM_LIVE_UNKNOWN ? 0 : start;
    long page = r->root && *r->root ? PAGE : sysconf(_SC_PAGESIZE);
    if (rss != PLIM_LIVE_UNKNOWN && !plim_mul(rss, (uint64_t)page, &p->host_memory))
        p->host_memory = PLIM_LIVE_UNKNOWN;
    if (user != PLIM_LIVE_UNKNOWN && system != PLIM_LIVE_UNKNOWN)
        *cpu_ticks = user + system;
}

static void read_command_line(plim_reading *r, plim_live_process *p)
{
    char text[4096];
    uint32_t words = 0;
    int n = plim_probe_text(r->root, text, sizeof text, "/proc/%" PRIu64 "/cmdline", p->pid);
    while (n > 0 && !text[n - 1])
        n--;
    for (int i = 0; i < n; i++)
        words += !text[i];
    char *copy = n > 0 ? plim_arena_new(r->arena, (uint64_t)n + 1, 1) : NULL;
    const char **argv = n > 0 ? PLIM_NEW_N(r->arena, const char *, words + 2u) : NULL;
    if (!copy || !argv)
        return;
    memcpy(copy, text, (size_t)n);
    words = 0;
    for (int i = 0; i < n; i++)
        if (!i || !copy[i - 1])
            argv[words++] = copy + i;
    for (int i = 0; i < n; i++)
        if (!text[i])
            text[i] = ' ';
    p->argv = argv;
    p->command_line = plim_arena_str(r->arena, (plim_str){text, (size_t)n}).p;
}

/* The container is the last 64 hexadecimal digits in a row, as Docker, containerd, CRI-O and
 * Podman name their groups; the job is Slurm's "job_123". */
static void read_cgroup(plim_reading *r, plim_live_process *p)
{
    enum { ID = 64, SHOWN = 12 };
    char text[4096];
    size_t run = 0;
    if (plim_probe_text(r->root, text, sizeof text, "/proc/%" PRIu64 "/cgroup", p->pid) <= 0)
        return;
    for (const char *at = text; *at; at++) {
        run = isxdigit((unsigned char)*at) ? run + 1 : 0;
        if (run == ID && !isxdigit((unsigned char)at[1]))
            p->container = plim_arena_str(r->arena, (plim_str){at - ID + 1, SHOWN}).p;
    }
    const char *job = strstr(text, "/job_");
    size_t n = job ? strspn(job + 5, "0123456789") : 0;
    if (n)
        p->job = plim_arena_str(r->arena, (plim_str){job + 5, n}).p;
}

/* Only the user's own environment may be read, unless by root. */
static void read_environment(plim_reading *r, plim_live_process *p)
{
    char path[PATH_MOST], entry[128] = ""; /* longer ones are of no interest */
    size_t n = 0;
    uint64_t bytes;
    plim_probe_path(path, sizeof path, r->root, "/proc/%" PRIu64 "/environ", p->pid);
    FILE *f = fopen(path, "rb");
    for (int c; f && (c = getc(f)) != EOF;) {
        if (n < sizeof entry)
            entry[n++] = (char)c;
        if (c)
            continue;
        if (entry[n - 1]) /* cut off */
            entry[0] = '\0';
        n = 0;
        if (!strncmp(entry, "SLURM_JOB_ID=", 13) && !p->job && entry[13])
            p->job = plim_arena_str(r->arena, plim_str_of(entry + 13)).p;
        else if (!strncmp(entry, "PLIMSOLL_PREDICTED=", 19) &&
                 !plim_parse_size(plim_str_of(entry + 19), &bytes, NULL))
            p->predicted = bytes;
    }
    if (f)
        fclose(f);
}

void plim_process_facts(plim_reading *r, plim_live_process *p, uint64_t *cpu_ticks)
{
    char text[4096];
    read_stat(r, p, cpu_ticks);
    read_command_line(r, p);
    read_cgroup(r, p);
    read_environment(r, p);
    if (plim_probe_text(r->root, text, sizeof text, "/proc/%" PRIu64 "/status", p->pid) <= 0)
        return;
    const char *uid = find_line(text, "Uid:");
    uint64_t id = uid ? plim_probe_number(uid) : PLIM_LIVE_UNKNOWN;
    if (id != PLIM_LIVE_UNKNOWN)
        p->user = user_name(r, id);
}
