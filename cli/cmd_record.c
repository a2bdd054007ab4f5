/* cmd_record.c -- plimsoll record -- COMMAND: runs a command and records what it and the
 * processes that it starts ask of CUDA's driver.
 *
 * The recording is made inside those processes, by a library that LD_PRELOAD names; all of
 * them write to one file, which PLIMSOLL_RECORD names.  Here it is created, and read when the
 * command has ended.  Nothing else of the command is changed, so the report goes to stderr. */
#include "cmds.h"
#include "places.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <plimsoll_live.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

typedef struct record_files {
    char library[PATH_MAX];
    char file[PATH_MAX]; /* absolute: the command may change its folder */
    bool temporary;      /* it is removed when the report is printed */
} record_files;

static int record_fail(plim_status code, const char *what, const char *subject,
                       const char *why)
{
    plim_err err = {.code = code};
    snprintf(err.msg, sizeof err.msg, "%s '%.120s'%s%s", what, subject, why ? ": " : "",
             why ? why : "");
    return plim_console_error(&err);
}

/* A file that is there is only replaced by a recording if it is one. */
static int record_name_file(const char *asked, record_files *f)
{
    char folder[PATH_MAX / 2] = "";
    if (!asked) {
        const char *tmp = getenv("TMPDIR");
        snprintf(f->file, sizeof f->file, "%s/plimsoll-XXXXXX", tmp && *tmp ? tmp : "/tmp");
        int fd = mkstemp(f->file);
        if (fd < 0)
            return record_fail(PLIM_EIO, "cannot create", f->file, strerror(errno));
        close(fd);
        f->temporary = true;
        return PLIM_EXIT_DONE;
    }
    if (!access(asked, F_OK) && !plim_driver_is(asked))
        return record_fail(PLIM_EIO, "will not replace", asked, "it is not a recording");
    if (*asked != '/' && !getcwd(folder, sizeof folder))
        return record_fail(PLIM_EIO, "cannot find the folder of", asked, strerror(errno));
    int n = snprintf(f->file, sizeof f->file, "%s%s%s", folder, *folder ? "/" : "", asked);
    return n > 0 && (size_t)n < sizeof f->file
               ? PLIM_EXIT_DONE
               : record_fail(PLIM_EIO, "cannot create", asked, strerror(ENAMETOOLONG));
}

static int record_locate(const plim_args *a, record_files *f)
{
    if (!plim_place_find(f->library, sizeof f->library,
                         "../" PLIM_LIBDIR "/plimsoll/libplimsoll_record.so",
                         "libplimsoll_record.so"))
        return record_fail(PLIM_EIO, "cannot find", "libplimsoll_record.so",
#ifdef __linux__
                           "the installation is incomplete");
#else
                           "recording needs Linux and its dynamic linker");
#endif
    int code =
        plim_place_prepend("LD_PRELOAD", ": ", f->library); /* this program runs already */
    return code ? code : record_name_file(a->output, f);
}

/* The words of the command, separated by spaces. */
static void record_join(char *const *command, char *out, size_t room)
{
    size_t used = 0;
    for (int i = 0; command[i] && used < room; i++) {
        int n = snprintf(out + used, room - used, "%s%s", i ? " " : "", command[i]);
        used += n > 0 ? (size_t)n : 0;
    }
}

/* ---- the command ------------------------------------------------------------ */

static volatile sig_atomic_t record_child;

static void record_pass_on(int number)
{
    if (record_child > 0)
        kill((pid_t)record_child, number);
}

/* What a terminal sends goes to both; the report is printed all the same. */
static void record_signals(void)
{
    static const struct {
        int number;
        void (*handler)(int);
    } signals[] = {{SIGINT, SIG_IGN},
                   {SIGQUIT, SIG_IGN},
                   {SIGTERM, record_pass_on},
                   {SIGHUP, record_pass_on}};
    for (size_t i = 0; i < sizeof signals / sizeof *signals; i++) {
        struct sigaction action = {.sa_handler = signals[i].handler, .sa_flags = SA_RESTART};
        sigemptyset(&action.sa_mask);
        sigaction(signals[i].number, &action, NULL);
    }
}

/* Runs the command; its exit status as a shell has it, or -1: it could not be started. */
static int record_command(const plim_args *a, const record_files *f)
{
    enum { SIGNAL_STATUS = 128 };
    int status = 0, refused[2];
    if (pipe(refused))
        return record_fail(PLIM_EIO, "cannot start", a->command[0], strerror(errno)), -1;
    pid_t pid = fork();
    if (!pid) {
        close(refused[0]);
        fcntl(refused[1], F_SETFD, FD_CLOEXEC);
        setenv("PLIMSOLL_RECORD", f->file, 1);
        if (a->render == PLIM_JSON) /* stdout is reserved for the report */
            dup2(STDERR_FILENO, STDOUT_FILENO);
        execvp(a->command[0], a->command);
        int why = errno;
        _exit(write(refused[1], &why, sizeof why) > 0 ? PLIM_EXIT_HOST : PLIM_EXIT_NO);
    }
    int why = pid < 0 ? errno : 0;
    close(refused[1]);
    record_child = (sig_atomic_t)pid;
    if (pid > 0) {
        record_signals();
        while (read(refused[0], &why, sizeof why) < 0 && errno == EINTR)
            ;
        while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
            ;
        record_child = 0;
    }
    close(refused[0]);
    if (why)
        return record_fail(PLIM_EIO, "cannot run", a->command[0], strerror(why)), -1;
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    if (WTERMSIG(status) != SIGINT)
        fprintf(stderr, "plimsoll: '%s' was ended by signal %d\n", a->command[0],
                WTERMSIG(status));
    return SIGNAL_STATUS + WTERMSIG(status);
}

/* ---- the report ------------------------------------------------------------- */

static int record_put_error(void *unused, const char *text, size_t n)
{
    (void)unused;
    return fwrite(text, 1, n, stderr) < n ? errno ? errno : EIO : 0;
}

static int record_report(plim_args *a, const record_files *f)
{
    plim_err err = PLIM_ERR_INIT;
    plim_driver_report *r = NULL;
    plim_style style = a->style;
    bool json = a->render == PLIM_JSON;
    if (plim_driver_open(f->file, &r, &err))
        return plim_console_error(&err);
    style.color =
        style.color && (json || a->color == PLIM_COLOR_ALWAYS || isatty(STDERR_FILENO));
    plim_status st = PLIM_OK;
    if (r->n_processes || json)
        st = plim_driver_print(r, a->render, &style,
                               json ? plim_console_put : record_put_error, &a->console, &err);
    else
        fprintf(stderr,
                "plimsoll: '%s' asked nothing of CUDA's driver, or is linked statically: "
                "nothing was recorded\n",
                a->command[0]);
    if (!f->temporary && !json && !st && !style.quiet)
        fprintf(stderr, "\nRecording: %s (plimsoll replay prints this again)\n", a->output);
    plim_driver_free(r);
    return plim_console_result(&a->console, st, &err);
}

static int record_run(plim_args *a)
{
    static record_files files;
    static char command[1 << 14];
    plim_err err = PLIM_ERR_INIT;
    int code = record_locate(a, &files);
    if (code)
        return code;
    record_join(a->command, command, sizeof command);
    if (plim_driver_create(files.file, command, &err))
        return plim_console_error(&err);
    int status = record_command(a, &files);
    if (status >= 0)
        code = plim_driver_end(files.file, status, &err) ? plim_console_error(&err)
                                                         : record_report(a, &files);
    if (files.temporary || status < 0)
        unlink(files.file);
    return status < 0 ? PLIM_EXIT_HOST : status ? status : code;
}

const plim_cmd plim_cmd_record = {
    .name = "record",
    .usage = "COMMAND",
    .doc = "run a command and record the GPU memory it asks for",
    .about =
        "Whatever its framework: the recording is made at CUDA's driver, in every process "
        "of the command. The report, on stderr, says which library held how much. The "
        "exit status is that of the command. Options come before the command: plimsoll "
        "record -o train.plrec -- python train.py",
    .options = PLIM_USE_COMMAND | PLIM_USE_RECORD | PLIM_USE_JSON | PLIM_USE_TEXT,
    .run = record_run,
};
