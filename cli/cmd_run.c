/* cmd_run.c -- plimsoll run -- COMMAND: runs a PyTorch script on a simulated GPU.
 *
 * The simulation runs inside the script's own Python process: PYTHONPATH makes
 * Python import sitecustomize.py, which imports the package plimsoll_front, which reads the
 * PLIMSOLL_RUN_* variables set here.  Each process that used the GPU writes a
 * report into a temporary directory; this file prints the reports when the
 * command has ended.  With --world the command is started once for each rank. */
#include "cmds.h"
#include "folder.h"
#include "places.h"
#include "processes.h"
#include "ranks.h"
#include <plimsoll_vgpu.h>

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RUN_REPORTS_MOST = 1024 }; /* processes whose reports are printed */

typedef struct run_places {
    char data[PATH_MAX]; /* sitecustomize.py, plimsoll_front, shim, the headers */
    char lib[PATH_MAX];
} run_places;

/* ---- finding the installed files -------------------------------------------- */

static int run_locate(run_places *p)
{
    if (!plim_place_find(p->data, sizeof p->data, "../share/plimsoll/sitecustomize.py",
                         "share/plimsoll/sitecustomize.py") ||
        !plim_place_find(p->lib, sizeof p->lib, "../" PLIM_LIBDIR "/libplimsoll.so",
                         "libplimsoll.so")) {
        plim_err err = {.code = PLIM_EIO};
        snprintf(
            err.msg, sizeof err.msg,
            "cannot find 'share/plimsoll' or 'libplimsoll.so': the installation is incomplete");
        return plim_console_error(&err);
    }
    *strrchr(p->data, '/') = '\0';
    int code = plim_place_prepend("PYTHONPATH", ":", p->data);
    if (code)
        return code;
    return PLIM_EXIT_DONE;
}

/* ---- the environment of the script -------------------------------------------- */

static void run_set_text(const char *name, const char *value)
{
    char variable[64];
    snprintf(variable, sizeof variable, "PLIMSOLL_RUN_%s", name);
    if (value)
        setenv(variable, value, 1);
    else
        unsetenv(variable);
}

/* The command may change its folder. */
static void run_set_path(const char *name, const char *path)
{
    char folder[PATH_MAX], whole[2 * PATH_MAX];
    bool relative = path && *path != '/' && getcwd(folder, sizeof folder);
    snprintf(whole, sizeof whole, "%s%s%s", relative ? folder : "", relative ? "/" : "",
             path ? path : "");
    run_set_text(name, path ? whole : NULL);
}

static void run_set_number(const char *name, long long value)
{
    char text[32];
    snprintf(text, sizeof text, "%lld", value);
    run_set_text(name, text);
}

/* Of the file with a report in the rendering that was asked for: "json", "md". */
static const char *run_suffix(const plim_args *a)
{
    plim_rendering_info r = PLIM_RENDERING_INFO_INIT;
    return plim_rendering_at((uint32_t)a->render, &r) ? r.key : "";
}

/* How many cards `--gpu` names, and which; run_check has seen that it is right. */
static uint32_t run_cards(const plim_args *a, const char **card)
{
    uint32_t n = 1;
    *card = plim_args_get(a, "gpu");
    if (*card)
        plim_vgpu_machine(*card, &n, card, NULL);
    return n;
}

static void run_environment(const plim_args *a, const run_places *p, const plim_folder *folder)
{
    const char *card;
    run_set_text("REPORT", folder->path);
    setenv("PLIMSOLL_STUB_LEDGER", folder->path, 0); /* for monitors that the command starts */
    run_set_text("LIFELINE", folder->lifeline_path);
    run_set_text("LIB", p->lib);
    run_set_number("PARENT", getpid()); /* tells the command itself from what it starts */
    run_set_number("CARDS", run_cards(a, &card));
    run_set_text("GPU", card);
    run_set_text("ALLOC_CONF", plim_args_get(a, "alloc_conf") ? plim_args_get(a, "alloc_conf")
                               : getenv("PYTORCH_ALLOC_CONF")
                                   ? getenv("PYTORCH_ALLOC_CONF")
                                   : getenv("PYTORCH_CUDA_ALLOC_CONF"));
    run_set_text("WORKSPACE", plim_args_get(a, "workspace"));
    run_set_text("SCALAR", a->scalar);
    run_set_text("LINES", a->lines);
    run_set_text("BY", a->by);
    run_set_text("ROUTING", a->routing);
    run_set_path("SAVE", a->save);
    run_set_text("VRAM", plim_args_get(a, "vram") ? plim_args_get(a, "vram") : "0");
    run_set_number("STEPS", a->run_steps);
    run_set_number("LIMIT", a->limit);
    run_set_number("SI", a->style.si);
    run_set_number("COLOR", a->style.color);
    run_set_number("ASCII", a->style.ascii);
    run_set_number("WIDTH", a->style.width);
    run_set_number("TOP", a->style.top);
    run_set_number("QUIET", a->style.quiet);
    run_set_text("RENDER", run_suffix(a));
    char fraction[32];
    snprintf(fraction, sizeof fraction, "%.9g", a->mask_fraction > 0 ? a->mask_fraction : 1.0);
    run_set_text("MASK_FRACTION", fraction);
}

/* ---- the command ---------------------------------------------------------------- */

typedef struct run_command {
    const plim_args *args;
    const plim_ranks *ranks;
} run_command;

/* In process i, before the command begins. */
static bool run_prepare(const void *ud, int i)
{
    const run_command *c = ud;
    const char *card;
    if (c->ranks->world)
        plim_ranks_environment(c->ranks, c->ranks->rank[i], (int)run_cards(c->args, &card));
    /* with --json and the like stdout is reserved for the report */
    return c->args->render == PLIM_TEXT || dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

/* The command's exit status, of several ranks the first that is not 0; -1: it could not be
 * started, which was said. */
static int run_command_status(const plim_args *a, const plim_ranks *ranks, int lifeline)
{
    const run_command c = {.args = a, .ranks = ranks};
    return plim_processes_run(&(plim_processes){.command = a->command,
                                                .n = ranks->world ? ranks->n : 1,
                                                .together = ranks->all,
                                                .lifeline = lifeline,
                                                .name = "run",
                                                .fault = "it may have accessed GPU memory, "
                                                         "which is only simulated",
                                                .prepare = run_prepare,
                                                .ud = &c});
}

/* ---- the reports ---------------------------------------------------------------- */

static void run_print_file(plim_console *c, const char *path)
{
    char piece[4096];
    FILE *f = fopen(path, "r");
    if (!f)
        return;
    for (size_t n; (n = fread(piece, 1, sizeof piece, f)) > 0;)
        plim_console_put(c, piece, n);
    fclose(f);
}

/* A report's name is PID+ if the process used the GPU, else PID-; next to it are its JSON, the
 * rendering that was asked for and, of a rank, PID.rank with its figures. */
typedef struct run_report {
    int pid;
    bool ranked;
    plim_rank_row row;
} run_report;

typedef struct run_reports {
    run_report at[RUN_REPORTS_MOST];
    int n, ranked;
} run_reports;

static int run_report_order(const void *pa, const void *pb)
{
    const run_report *a = pa, *b = pb;
    if (a->ranked && b->ranked)
        return plim_ranks_worse(&a->row, &b->row);
    return a->ranked != b->ranked ? (a->ranked ? -1 : 1) : a->pid - b->pid;
}

/* The reports that end in `end`, in the order in which they are printed. */
static void run_find_reports(const char *folder, char end, run_reports *out)
{
    DIR *d = opendir(folder);
    out->n = out->ranked = 0;
    for (struct dirent *e; d && out->n < RUN_REPORTS_MOST && (e = readdir(d));) {
        char path[PATH_MAX + 32];
        run_report *r = &out->at[out->n];
        if (e->d_name[strlen(e->d_name) - 1] != end || atoi(e->d_name) <= 0)
            continue;
        *r = (run_report){.pid = atoi(e->d_name)};
        snprintf(path, sizeof path, "%s/%d.rank", folder, r->pid);
        FILE *f = fopen(path, "r");
        if (f) {
            r->ranked = fscanf(f, "%d %llu %llu %d", &r->row.rank, &r->row.allocated,
                               &r->row.reserved, &r->row.fits) == 4;
            fclose(f);
        }
        out->ranked += r->ranked;
        out->n++;
    }
    if (d)
        closedir(d);
    qsort(out->at, (size_t)out->n, sizeof *out->at, run_report_order);
}

/* What tells reports of several processes apart: not in JSON, which says it itself. */
static void run_print_heading(plim_console *c, plim_render render, const run_report *r)
{
    char text[48];
    snprintf(text, sizeof text, render == PLIM_TEXT ? "Process %d\n" : "## Process %d\n\n",
             r->pid);
    if (!r->ranked)
        plim_console_puts(c, text);
}

static void run_print_reports(plim_console *c, const plim_args *a, plim_render render,
                              const char *folder, char end, const run_reports *all)
{
    plim_rank_row rows[RUN_REPORTS_MOST];
    for (int i = 0; i < all->ranked; i++)
        rows[i] = all->at[i].row;
    if (all->ranked > 1 && render != PLIM_JSON)
        plim_ranks_table(c, &a->style, render, rows, all->ranked);
    for (int i = 0; i < all->n; i++) {
        char path[PATH_MAX + 32];
        if (i && render != PLIM_JSON)
            plim_console_puts(c, "\n");
        if (all->n > 1 && render != PLIM_JSON)
            run_print_heading(c, render, &all->at[i]);
        snprintf(path, sizeof path, "%s/%d%c%s%s", folder, all->at[i].pid, end,
                 render == PLIM_TEXT ? "" : ".", render == PLIM_TEXT ? "" : run_suffix(a));
        run_print_file(c, path);
    }
}

/* Prints the reports that end in `end`, and their text to `copy`. */
static void run_print_all(plim_args *a, plim_console *copy, const char *folder, char end,
                          run_reports *all)
{
    run_find_reports(folder, end, all);
    if (copy->file)
        run_print_reports(copy, a, PLIM_TEXT, folder, end, all);
    run_print_reports(&a->console, a, a->render, folder, end, all);
}

/* The report of a process that imported PyTorch without using the GPU, such as a launcher,
 * is printed only if no process used it. */
static int run_collect(plim_args *a, plim_console *copy, const char *folder)
{
    static run_reports all;
    run_print_all(a, copy, folder, '+', &all);
    if (all.n > 1 && all.ranked < all.n)
        fprintf(stderr,
                "plimsoll: %d processes used the card; each was simulated as if alone\n",
                all.n);
    if (!all.n)
        run_print_all(a, copy, folder, '-', &all);
    return all.n;
}

/* ---- no report -------------------------------------------------------------------- */

/* start.py leaves empty files that say how far it got. */
static bool run_marked(const char *folder, const char *name)
{
    char path[PATH_MAX + 32];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !access(path, F_OK);
}

static bool run_is_python(const char *word)
{
    const char *slash = strrchr(word, '/'), *name = slash ? slash + 1 : word;
    size_t n = strncmp(name, "python", 6) == 0 ? 6 : strncmp(name, "pypy", 4) == 0 ? 4 : 0;
    return n && !name[n + strspn(name + n, "0123456789.td")];
}

/* The option for which a Python of the command does not load sitecustomize.py; 0: none.
 * src: CPython 3.14, Python/initconfig.c, SHORT_OPTS */
static char run_python_option(char **word)
{
    while (*word && !run_is_python(*word))
        word++;
    while (*word && *++word && **word == '-' && word[0][1] && strcmp(*word, "--") != 0) {
        if (word[0][1] == '-') {
            word += !strcmp(*word, "--check-hash-based-pycs") && word[1];
            continue;
        }
        const char *p = *word + 1;
        p += strcspn(p, "cmWXIES");
        if (*p == 'c' || *p == 'm') /* the rest is code, and its own arguments */
            return 0;
        if (*p && *p != 'W' && *p != 'X')
            return *p;
        word += *p && !p[1] && word[1]; /* what it takes is the next word */
    }
    return 0;
}

/* Why there is no report.  Returns the exit status, if that of the command is `code`. */
static int run_explain(const plim_args *a, const char *folder, int code)
{
    plim_err err = {.code = PLIM_EUNSUPPORTED};
    bool python = run_marked(folder, "python"), none = run_marked(folder, "no-torch");
    char option = python ? 0 : run_python_option(a->command);
    if (none)
        snprintf(err.msg, sizeof err.msg,
                 "this Python has no PyTorch: install it, a CPU build is enough ('pip install "
                 "torch')");
    else if (option)
        snprintf(err.msg, sizeof err.msg,
                 "Python's option '-%c' keeps it from loading the pretend GPU, which comes by "
                 "PYTHONPATH and sitecustomize: leave it out",
                 option);
    else if (code)
        return code; /* its own error says it */
    else
        snprintf(err.msg, sizeof err.msg, "'%.100s' used no PyTorch%s: nothing to report",
                 a->command[0],
                 python
                     ? ""
                     : " in a Python that reads PYTHONPATH (with -I, -E or -S it does not)");
    int own = plim_console_error(&err);
    return code ? code : own;
}

/* Reports an unknown card or an invalid setting before the script starts. */
static int run_check(const plim_args *a)
{
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu *d = NULL;
    const char *vram = plim_args_get(a, "vram");
    uint32_t n;
    plim_vgpu_options o = {.gpu = plim_args_get(a, "gpu"),
                           .alloc_conf = plim_args_get(a, "alloc_conf"),
                           .workspace = plim_args_get(a, "workspace")};
    if (vram && plim_size_parse(vram, &o.vram, &err))
        return plim_console_error(&err);
    if (!o.gpu && !vram)
        return plim_console_usage("'run' needs a card: --gpu CARD or --vram SIZE");
    if ((o.gpu && plim_vgpu_machine(o.gpu, &n, &o.gpu, &err)) || plim_vgpu_open(&o, &d, &err))
        return plim_console_error(&err);
    plim_vgpu_close(d);
    return PLIM_EXIT_DONE;
}

/* Reports a file of --save that cannot be written before the script starts.  What is in it
 * stays: the script may not come to its end. */
static int run_check_save(const plim_args *a)
{
    struct stat st;
    char target[PATH_MAX]; /* of a link */
    int fd = -1, error = 0;
    if (!a->save)
        return PLIM_EXIT_DONE;
    if (!stat(a->save, &st)) /* not opened: a reader of a pipe would see the end of the tape */
        error = S_ISDIR(st.st_mode) ? EISDIR : access(a->save, W_OK) ? errno : 0;
    else if ((fd = open(a->save, O_WRONLY | O_CREAT | O_CLOEXEC, 0600)) < 0)
        error = errno;
    if (fd >= 0) {
        close(fd);
        if (realpath(a->save, target))
            unlink(target);
    }
    return error ? plim_console_failed("cannot write", a->save, error) : PLIM_EXIT_DONE;
}

/* Opens the file of --report, before anything runs. */
static int run_open_copy(const plim_args *a, plim_console *copy)
{
    copy->plain = true;
    if (a->report && !(copy->file = fopen(a->report, "we")))
        return plim_console_failed("cannot write", a->report, errno);
    return PLIM_EXIT_DONE;
}

static int run_close_copy(const plim_args *a, plim_console *copy)
{
    if (copy->file && fclose(copy->file) && !copy->error)
        copy->error = errno;
    return copy->error ? plim_console_failed("cannot write", a->report, copy->error)
                       : PLIM_EXIT_DONE;
}

static int run_script(plim_args *a)
{
    static run_places places;
    static plim_folder folder;
    static plim_ranks ranks;
    plim_console copy = {0};
    int code = run_check(a);
    if (!code)
        code = plim_ranks_read(a, &ranks);
    if (!code)
        code = run_locate(&places);
    if (!code)
        code = run_check_save(a);
    if (!code)
        code = run_open_copy(a, &copy);
    if (code)
        return code;
    plim_processes_keep_signals(); /* before there is a folder to remove */
    if ((code = plim_folder_make(&folder)))
        return code;
    run_environment(a, &places, &folder);
    code = run_command_status(a, &ranks, folder.lifeline);
    int reports = run_collect(a, &copy, folder.path);
    int bad = run_close_copy(a, &copy);
    if (run_marked(folder.path, "unwritten")) /* a report, or a tape: which was said */
        bad = PLIM_EXIT_HOST;
    else if (!reports && code >= 0)
        code = run_explain(a, folder.path, code);
    plim_folder_remove(&folder);
    return code < 0 ? PLIM_EXIT_HOST : code ? code : bad;
}

const plim_cmd plim_cmd_run = {
    .name = "run",
    .usage = "COMMAND",
    .doc = "run a PyTorch script on a simulated GPU",
    .about = "The script is not modified. The report has the memory that it needs, by source "
             "line; or the script fails with the out-of-memory error of the real card. The "
             "exit status is that of the command. Options come before the command.",
    .examples = {"plimsoll run --gpu t4 --steps 3 -- python train.py",
                 "plimsoll run --gpu h100 --world 8 --rank 0 -- python train.py"},
    .options = PLIM_USE_COMMAND | PLIM_USE_RUN | PLIM_USE_LIVE | PLIM_USE_JSON | PLIM_USE_TEXT,
    .run = run_script,
};
