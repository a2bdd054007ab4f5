/* door_posix.c -- see door.h */
#include "door.h"
#include "memory.h"
#include "places.h"
#include "sandbox.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum {
    DOOR_GRAPHS = 64, /* models of one command line */
    DOOR_WORDS = 96,  /* of the command of a Python */
    DOOR_OPTIONS = 3, /* of them come before the options */
    DOOR_SECONDS = 600,
    DOOR_PIECE = 64 << 10, /* bytes that are read at once */
    DOOR_MOST = 1 << 30,   /* of a graph */
    DOOR_RAISED = 5,       /* exit status: its library raised an error */
    DOOR_NOT_RUN = 127,    /* as of a shell */
};

/* A graph that was made: of which model, and how it is called. */
typedef struct door_graph {
    const char *model;
    char name[PATH_MAX];
    char *bytes;
    size_t n, cap;
} door_graph;

static door_graph door_graphs[DOOR_GRAPHS];
static int door_made;
static plim_memory door_memory; /* as long as the program runs */

/* ---- what needs it -------------------------------------------------------------- */

static bool ends_with(const char *text, const char *end)
{
    size_t n = strlen(text), m = strlen(end);
    return n >= m && !strcmp(text + n - m, end);
}

static bool is_builtin(const char *name)
{
    plim_entry e = PLIM_ENTRY_INIT;
    for (uint32_t i = 0; plim_registry_at(PLIM_REG_MODELS, i, &e); i++)
        if (!strcmp(e.name, name))
            return true;
    return false;
}

/* A name of a model in a library of Python, and neither a built-in one nor the path of a file. */
static bool is_named(const char *name)
{
    return (!strncmp(name, "timm:", 5) || !strncmp(name, "torchvision:", 12)) &&
           !is_builtin(name) && access(name, F_OK) != 0;
}

static bool is_regular(const char *path)
{
    struct stat st;
    return !stat(path, &st) && S_ISREG(st.st_mode);
}

/* A plim_put: keeps in `place` the configuration in the first folder that has one. */
static int find_in_folder(void *place, const char *path, size_t n)
{
    static const char *const files[] = {"config.json", "model_index.json"};
    char *out = place;
    while (n > 1 && path[n - 1] == '/')
        n--;
    for (size_t i = 0; !*out && i < sizeof files / sizeof *files; i++) {
        int used = snprintf(out, PATH_MAX, "%.*s/%s", (int)n, path, files[i]);
        if (used < 0 || used >= PATH_MAX || !is_regular(out))
            *out = '\0';
    }
    return 0;
}

/* The file that may be a configuration, of a model that is a path or in the hub's cache; "": none. */
static void find_config(const char *model, char place[PATH_MAX])
{
    plim_err err = PLIM_ERR_INIT;
    *place = '\0';
    if (is_regular(model))
        snprintf(place, PATH_MAX, "%s", ends_with(model, ".json") ? model : "");
    else if (plim_model_paths(model, NULL, find_in_folder, place, &err))
        *place = '\0';
}

/* How the answers are in the sandbox: "auto", "always" or "never". */
static bool is_boxed(const plim_args *a, const char *how)
{
    return !strcmp(a->sandbox ? a->sandbox : "auto", how);
}

/* Whether the library builds models of such files. */
static bool is_built(const plim_model *m)
{
    static const char *const formats[] = {"hf", "diffusers", "pipeline"};
    bool is = false;
    for (size_t i = 0; i < sizeof formats / sizeof *formats; i++)
        is |= !strcmp(plim_model_format(m), formats[i]);
    return is;
}

/* In a process of its own, which has given up all else: does the library build the model?  Writes
 * what it says to the pipe.  What else is wrong with it, the answer will say. */
static void judge_model(const plim_args *a, const char *model, const char *place, int pipe)
{
    plim_sandbox box;
    plim_model *m = NULL;
    plim_err err = PLIM_ERR_INIT;
    plim_sandbox_begin(&box);
    plim_model_paths(model, NULL, plim_sandbox_allow, &box, &err);
    if (!is_boxed(a, "never"))
        plim_sandbox_enter(&box);
    if (box.lacks && is_boxed(a, "always"))
        _exit(0);
    bool opens = !plim_model_open(model, &m, &err);
    const bool pipeline = ends_with(place, "model_index.json");
    bool needed = opens ? is_built(m) && plim_model_check(m, &err) == PLIM_EUNSUPPORTED
                        : err.code == PLIM_EUNSUPPORTED && pipeline;
    if (!needed && pipeline && a->component) { /* the library counts all of them */
        needed = true;
        snprintf(err.msg, sizeof err.msg, "component '%s' of a pipeline", a->component);
    }
    ssize_t wrote = needed ? write(pipe, err.msg, strlen(err.msg)) : 0;
    _exit(wrote > 0);
}

static void close_both(const int ends[2])
{
    close(ends[0]);
    close(ends[1]);
}

/* Whether the library does not build the model: `said` is why. */
static bool is_needed(const plim_args *a, const char *model, const char *place, char *said,
                      size_t room)
{
    int ends[2], status = 0;
    size_t n = 0;
    ssize_t got = 1;
    if (pipe(ends))
        return false;
    pid_t pid = fork();
    if (pid == 0)
        judge_model(a, model, place, ends[1]);
    close(ends[1]);
    while (pid > 0 && got > 0 && n < room - 1) {
        got = read(ends[0], said + n, room - 1 - n);
        got = got < 0 && errno == EINTR ? 1 : got;
        n += got > 0 && errno != EINTR ? (size_t)got : 0;
    }
    close(ends[0]);
    said[n] = '\0';
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return pid > 0 && WIFEXITED(status) && WEXITSTATUS(status) == 1;
}

/* ---- the command ------------------------------------------------------------------- */

typedef struct door_call {
    char *words[DOOR_WORDS + 1];
    int n;
    char script[PATH_MAX], python[PATH_MAX];
    const plim_args *args;
    const char *model; /* as it is given to the script */
    bool found;        /* the Python is one that PATH has, if any */
} door_call;

/* The Python that is asked; false: none is. */
static bool find_python(door_call *c)
{
    const char *chosen = c->args->python ? c->args->python : getenv("PLIMSOLL_PYTHON");
    const char *env = getenv("VIRTUAL_ENV");
    if (chosen && *chosen)
        snprintf(c->python, sizeof c->python, "%s", chosen);
    else if (env && *env == '/')
        snprintf(c->python, sizeof c->python, "%s/bin/python", env);
    else
        snprintf(c->python, sizeof c->python, "python3");
    c->found = !(chosen && *chosen) && !(env && *env == '/');
    return strcmp(c->python, "none") != 0 && !is_boxed(c->args, "always") &&
           plim_place_find(c->script, sizeof c->script,
                           "../share/plimsoll/door/plimsoll/_door.py",
                           "share/plimsoll/door/plimsoll/_door.py");
}

static void add_word(door_call *c, const char *word)
{
    if (c->n < DOOR_WORDS)
        c->words[c->n++] = (char *)(uintptr_t)word;
}

static void add_option(door_call *c, const char *option, const char *value)
{
    if (value)
        add_word(c, option);
    if (value)
        add_word(c, value);
}

/* The items of --input, which C separates by ';'. */
static void add_inputs(door_call *c, const char *items)
{
    char *copy = items ? plim_memory_text(&door_memory, items) : NULL;
    for (char *item = copy ? strtok(copy, ";") : NULL; item; item = strtok(NULL, ";"))
        add_option(c, "--input", item);
}

/* As the library decides for a model of its own (src/job/job.c, read_call). */
static bool has_no_cache(const plim_args *a)
{
    const char *cache = plim_args_get(a, "cache"),
               *checkpoint = plim_args_get(a, "checkpoint");
    const char *loop = plim_args_get(a, "loop");
    return (cache && !strcmp(cache, "off")) ||
           (checkpoint && strcmp(checkpoint, "none") != 0) ||
           (!cache && loop && !strcmp(loop, "trainer"));
}

static void make_call(door_call *c)
{
    const plim_args *a = c->args;
    const char *mode = plim_args_get(a, "mode");
    add_word(c, c->python);
    add_word(c, "-B");
    add_word(c, c->script);
    if (mode && !strcmp(mode, "infer"))
        add_word(c, "--infer");
    add_option(c, "--batch", plim_args_get(a, "batch"));
    add_option(c, "--seq", plim_args_get(a, "seq"));
    add_option(c, "--attention", plim_args_get(a, "attention"));
    add_inputs(c, plim_args_get(a, "input"));
    if (has_no_cache(a))
        add_word(c, "--no-cache");
    add_option(c, "--component", a->component);
    if (a->trust)
        add_word(c, "--trust-remote-code");
    add_word(c, "--");
    add_word(c, c->model);
    c->words[c->n] = NULL;
}

/* ---- its process --------------------------------------------------------------------- */

typedef struct door_run {
    pid_t pid;
    int out, err;
    char last[1024]; /* the end of what it said */
    size_t n_last;
    int error; /* errno, of what could not be done here */
    bool late;
} door_run;

static void start_python(const door_call *c, const int out[2], const int err[2])
{
    int null = open("/dev/null", O_RDONLY);
#ifdef __linux__
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    dup2(null, STDIN_FILENO);
    dup2(out[1], STDOUT_FILENO);
    dup2(err[1], STDERR_FILENO);
    close_both(out);
    close_both(err);
    execvp(c->python, c->words);
    dprintf(STDERR_FILENO, "\n%s\n", strerror(errno));
    _exit(DOOR_NOT_RUN);
}

static bool start_run(door_run *r, const door_call *c)
{
    int out[2], err[2];
    if (pipe(out))
        return false;
    if (pipe(err)) {
        close_both(out);
        return false;
    }
    r->pid = fork();
    if (r->pid == 0)
        start_python(c, out, err);
    close(out[1]);
    close(err[1]);
    r->out = out[0];
    r->err = err[0];
    return r->pid > 0;
}

/* Reads what there is of the graph; false: that was all. */
static bool take_graph(door_run *r, door_graph *g)
{
    void *list = g->bytes;
    if (g->n > DOOR_MOST)
        r->error = EFBIG;
    else if (!plim_memory_grow(&door_memory, &list, &g->cap, g->n + DOOR_PIECE, 1))
        r->error = ENOMEM;
    if (r->error)
        return false;
    g->bytes = list;
    ssize_t got = read(r->out, g->bytes + g->n, DOOR_PIECE);
    g->n += got > 0 ? (size_t)got : 0;
    return got > 0 || (got < 0 && errno == EINTR);
}

/* Keeps the end of what is said. */
static bool take_words(door_run *r)
{
    char piece[sizeof r->last];
    ssize_t got = read(r->err, piece, sizeof piece);
    if (got <= 0)
        return got < 0 && errno == EINTR;
    size_t n = (size_t)got, keep = sizeof r->last - n;
    keep = keep < r->n_last ? keep : r->n_last;
    memmove(r->last, r->last + r->n_last - keep, keep);
    memcpy(r->last + keep, piece, n);
    r->n_last = keep + n;
    return true;
}

static long door_limit(void)
{
    const char *text = getenv("PLIMSOLL_PYTHON_LIMIT");
    long n = text ? strtol(text, NULL, 10) : 0;
    return n > 0 && n < INT_MAX ? n : DOOR_SECONDS;
}

static long clock_seconds(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (long)t.tv_sec;
}

/* Its exit status, as wait has it. */
static int follow_run(door_run *r, const door_call *c, door_graph *g)
{
    char what[PATH_MAX + 32];
    const long began = clock_seconds(), limit = door_limit();
    struct pollfd ends[] = {{.fd = r->out, .events = POLLIN},
                            {.fd = r->err, .events = POLLIN}};
    snprintf(what, sizeof what, "exporting with %s, seconds", c->python);
    while ((ends[0].fd >= 0 || ends[1].fd >= 0) && !r->error && !r->late) {
        int ready = poll(ends, 2, 200);
        if (ready > 0 && ends[0].revents && !take_graph(r, g))
            ends[0].fd = -1;
        if (ready > 0 && ends[1].revents && !take_words(r))
            ends[1].fd = -1;
        long passed = clock_seconds() - began;
        plim_console_progress(NULL, (uint32_t)passed, 0, what);
        r->late = passed >= limit;
    }
    int status = 0;
    if (r->error || r->late)
        kill(r->pid, SIGKILL);
    while (waitpid(r->pid, &status, 0) < 0 && errno == EINTR) {}
    close(r->out);
    close(r->err);
    return status;
}

/* ---- what went wrong ------------------------------------------------------------------ */

/* The last line that is not empty. */
static const char *last_line(door_run *r)
{
    size_t n = r->n_last < sizeof r->last ? r->n_last : sizeof r->last - 1;
    r->last[n] = '\0';
    while (n && (r->last[n - 1] == '\n' || r->last[n - 1] == '\r' || r->last[n - 1] == ' '))
        r->last[--n] = '\0';
    const char *line = strrchr(r->last, '\n');
    return line ? line + 1 : r->last;
}

/* As a shell reads it again. */
static void print_word(const char *word)
{
    fputs(" '", stderr);
    for (; *word; word++)
        if (*word == '\'')
            fputs("'\\''", stderr);
        else
            fputc(*word, stderr);
    fputc('\'', stderr);
}

/* What would show all that happened. */
static void print_call(const door_call *c)
{
    fprintf(stderr, "plimsoll: to see all of it:");
    for (int i = 0; i < c->n; i++) {
        if (i == DOOR_OPTIONS)
            print_word("--verbose");
        print_word(c->words[i]);
    }
    fputc('\n', stderr);
}

/* No Python is asked: which would be? */
static int refuse_alone(const door_call *c, const char *said)
{
    const char *library =
        ends_with(c->model, "model_index.json") ? "diffusers" : "transformers";
    int n = (int)strlen(library);
    if (is_boxed(c->args, "always") && strcmp(c->python, "none") != 0)
        return plim_console_said(PLIM_EXIT_INPUT,
                                 "%s; a Python may build it, which '--sandbox always' does "
                                 "not start",
                                 said);
    if (is_named(c->model)) {
        library = c->model;
        n = (int)strcspn(library, ":");
    }
    return plim_console_said(
        PLIM_EXIT_INPUT,
        "%s; a Python with %.*s may build it: 'pip install torch %.*s', or "
        "--python PYTHON",
        said, n, library, n, library);
}

static int refuse_run(door_run *r, const door_call *c, int status, const char *said)
{
    char why[1200];
    if (r->late)
        snprintf(why, sizeof why, "did not finish its export in %ld s (PLIMSOLL_PYTHON_LIMIT)",
                 door_limit());
    else if (r->error)
        snprintf(why, sizeof why, "wrote a graph that has no room: %s", strerror(r->error));
    else if (WIFSIGNALED(status))
        snprintf(why, sizeof why, "was ended by signal %d", WTERMSIG(status));
    else if (!*last_line(r))
        snprintf(why, sizeof why, "built nothing: exit status %d", WEXITSTATUS(status));
    else
        snprintf(why, sizeof why,
                 WEXITSTATUS(status) == DOOR_NOT_RUN ? "cannot be run: %s"
                                                     : "could not build it: %s",
                 last_line(r));
    bool ended = !r->late && !r->error && WIFEXITED(status);
    if (ended && WEXITSTATUS(status) == DOOR_NOT_RUN && c->found)
        return refuse_alone(c, said);
    int code = plim_console_said(PLIM_EXIT_INPUT, "%s; %s %s", said, c->python, why);
    if (ended && WEXITSTATUS(status) == DOOR_RAISED)
        print_call(c);
    return code;
}

/* ---- all of it --------------------------------------------------------------------------- */

static int make_graph(const plim_args *a, const char *model, const char *place,
                      const char *said)
{
    static door_call call;
    door_run run = {.out = -1};
    call = (door_call){.args = a, .model = place};
    if (door_made == DOOR_GRAPHS || !find_python(&call))
        return refuse_alone(&call, said);
    make_call(&call);
    door_graph *g = &door_graphs[door_made];
    g->model = model;
    snprintf(g->name, sizeof g->name, "%s", place);
    if (!start_run(&run, &call))
        return plim_console_failed("cannot run", call.python, errno);
    int status = follow_run(&run, &call, g);
    if (status || run.error || run.late || !g->n)
        return refuse_run(&run, &call, status, said);
    door_made++;
    return PLIM_EXIT_DONE;
}

static int open_for(const plim_args *a, const char *model)
{
    char place[PATH_MAX], said[512];
    if (is_named(model)) {
        snprintf(said, sizeof said, "'%.200s' names a model of %.*s", model,
                 (int)strcspn(model, ":"), model);
        return make_graph(a, model, model, said);
    }
    find_config(model, place);
    if (!*place)
        return PLIM_EXIT_DONE;
    return is_needed(a, model, place, said, sizeof said) ? make_graph(a, model, place, said)
                                                         : PLIM_EXIT_DONE;
}

int plim_door_open(plim_args *a)
{
    int code = PLIM_EXIT_DONE;
    if (a->serve) /* engines have their own knowledge of a model */
        return code;
    for (int i = 0; i < a->n_operands && !code; i++)
        code = open_for(a, a->operands[i]);
    return code || !a->for_model ? code : open_for(a, a->for_model);
}

plim_status plim_door_model(const plim_args *a, const char *name, plim_model **out,
                            plim_err *err)
{
    (void)a;
    for (int i = 0; i < door_made; i++)
        if (!strcmp(door_graphs[i].model, name))
            return plim_model_open_bytes(door_graphs[i].name, door_graphs[i].bytes,
                                         door_graphs[i].n, out, err);
    return plim_model_open(name, out, err);
}
