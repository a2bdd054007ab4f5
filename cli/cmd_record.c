/* cmd_record.c -- plimsoll record -- COMMAND: runs a command and records what it and the
 * processes that it starts ask of CUDA's driver.
 *
 * The recording is made inside those processes, by a library that LD_PRELOAD names; all of
 * them write to one file, which PLIMSOLL_RECORD names.  Here it is created, and read when the
 * command has ended.  Nothing else of the command is changed, so the report goes to stderr. */
#include "cmds.h"
#include "folder.h"
#include "places.h"
#include "processes.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <plimsoll_live.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

typedef struct record_files {
    char file[PATH_MAX]; /* absolute: the command may change its folder */
    int lock;            /* of a file that was asked for, as long as it is written */
    plim_folder folder;  /* of one that was not */
} record_files;

/* Has the linker load the recorder into what is started from here on. */
static int record_preload(void)
{
    plim_err err = {.code = PLIM_EIO};
    char library[PATH_MAX];
    if (plim_place_find(library, sizeof library,
                        "../" PLIM_LIBDIR "/plimsoll/libplimsoll_record.so",
                        "libplimsoll_record.so"))
        return plim_place_prepend("LD_PRELOAD", ": ", library);
    snprintf(err.msg, sizeof err.msg, "cannot find 'libplimsoll_record.so': %s",
#ifdef __linux__
             "the installation is incomplete");
#else
             "recording needs Linux and its dynamic linker");
#endif
    return plim_console_error(&err);
}

/* ---- the file ---------------------------------------------------------------- */

static int record_refuse(const char *file, const char *why)
{
    plim_err err = {.code = PLIM_EIO};
    snprintf(err.msg, sizeof err.msg, "will not replace '%.120s': %s", file, why);
    return plim_console_error(&err);
}

/* A file that is there is only replaced by a recording if it is one, and nobody writes to it.
 * It is removed, not emptied: what a `record` has left behind may still have it mapped, and a
 * mapped file that is cut short ends a process. */
static int record_replace(const char *asked, record_files *f)
{
    if (!plim_driver_is(asked))
        return record_refuse(asked, "it is not a recording");
    int fd = realpath(asked, f->file) ? open(f->file, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return plim_console_failed("cannot write", asked, errno);
    bool busy = flock(fd, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK;
    int error = busy || !unlink(f->file) ? 0 : errno;
    close(fd);
    if (busy)
        return record_refuse(asked, "another 'plimsoll record' is writing it");
    return error ? plim_console_failed("cannot write", asked, error) : PLIM_EXIT_DONE;
}

static int record_name_file(const char *asked, record_files *f)
{
    char here[PATH_MAX / 2] = "";
    if (!access(asked, F_OK))
        return record_replace(asked, f);
    if (*asked != '/' && !getcwd(here, sizeof here))
        return plim_console_failed("cannot find the folder of", asked, errno);
    int n = snprintf(f->file, sizeof f->file, "%s%s%s", here, *here ? "/" : "", asked);
    return n > 0 && (size_t)n < sizeof f->file
               ? PLIM_EXIT_DONE
               : plim_console_failed("cannot create", asked, ENAMETOOLONG);
}

static int record_name_temporary(record_files *f)
{
    int code = plim_folder_make(&f->folder);
    int n = code ? 0 : snprintf(f->file, sizeof f->file, "%s/recording", f->folder.path);
    if (n >= 0 && (size_t)n < sizeof f->file)
        return code;
    plim_folder_remove(&f->folder);
    return plim_console_failed("cannot create a file in", f->folder.path, ENAMETOOLONG);
}

/* Creates the file, with its head. */
static int record_begin(const plim_args *a, const char *command, record_files *f)
{
    plim_err err = PLIM_ERR_INIT;
    f->lock = -1;
    int code = a->output ? record_name_file(a->output, f) : record_name_temporary(f);
    if (code)
        return code;
    if (plim_driver_create(f->file, command, &err))
        code = plim_console_error(&err);
    else if (a->output && ((f->lock = open(f->file, O_RDWR | O_CLOEXEC)) < 0 ||
                           (flock(f->lock, LOCK_EX | LOCK_NB) && errno == EWOULDBLOCK)))
        code = record_refuse(a->output, "another 'plimsoll record' is writing it");
    if (code && !a->output)
        plim_folder_remove(&f->folder);
    return code;
}

/* `kept`: if it was asked for, it is of use. */
static void record_end(const plim_args *a, bool kept, record_files *f)
{
    if (!a->output)
        plim_folder_remove(&f->folder);
    else if (!kept)
        unlink(f->file);
    if (f->lock >= 0)
        close(f->lock);
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

typedef struct record_job {
    const plim_args *args;
    const record_files *files;
} record_job;

/* In the process that becomes the command. */
static bool record_prepare(const void *ud, int i)
{
    const record_job *job = ud;
    (void)i;
    if (setenv("PLIMSOLL_RECORD", job->files->file, 1))
        return false;
    /* with --json and the like stdout is reserved for the report */
    return job->args->render == PLIM_TEXT || dup2(STDERR_FILENO, STDOUT_FILENO) >= 0;
}

/* The command's exit status; -1: it could not be started, which was said. */
static int record_command(const plim_args *a, const record_files *f)
{
    const record_job job = {.args = a, .files = f};
    return plim_processes_run(
        &(plim_processes){.command = a->command,
                          .n = 1,
                          .lifeline = a->output ? -1 : f->folder.lifeline,
                          .name = "record",
                          .prepare = record_prepare,
                          .ud = &job});
}

/* ---- the report ------------------------------------------------------------- */

/* Next to the command's own output: on stderr, but on stdout with --json and the like. */
static int record_report(plim_args *a, const record_files *f)
{
    plim_err err = PLIM_ERR_INIT;
    plim_driver_report *r = NULL;
    plim_style style = a->style;
    bool text = a->render == PLIM_TEXT;
    plim_console errors = {.file = stderr}, *to = text ? &errors : &a->console;
    if (plim_driver_open(f->file, &r, &err))
        return plim_console_error(&err);
    style.color =
        style.color && (!text || a->color == PLIM_COLOR_ALWAYS || isatty(STDERR_FILENO));
    plim_status st = PLIM_OK;
    if (r->n_processes || !text)
        st = plim_driver_print(r, a->render, &style, plim_console_put, to, &err);
    else
        fprintf(stderr,
                "plimsoll: '%s' asked nothing of CUDA's driver, or is linked statically: "
                "nothing was recorded\n",
                a->command[0]);
    if (a->output && text && !st && !style.quiet)
        fprintf(stderr, "\nRecording: %s (plimsoll replay prints this again)\n", a->output);
    plim_driver_free(r);
    return plim_console_code(&errors, plim_console_result(to, st, &err));
}

static int record_run(plim_args *a)
{
    static record_files files;
    static char command[1 << 14];
    plim_err err = PLIM_ERR_INIT;
    int code = record_preload();
    if (code)
        return code;
    record_join(a->command, command, sizeof command);
    plim_processes_keep_signals(); /* before there is a file to remove */
    if ((code = record_begin(a, command, &files)))
        return code;
    int status = record_command(a, &files);
    if (status < 0)
        code = PLIM_EXIT_HOST;
    else if (plim_driver_end(files.file, status, &err))
        code = plim_console_error(&err);
    else
        code = record_report(a, &files);
    record_end(a, status >= 0, &files);
    return status > 0 ? status : code;
}

const plim_cmd plim_cmd_record = {
    .name = "record",
    .usage = "COMMAND",
    .doc = "run a command and record the GPU memory it asks for",
    .about = "Any framework will do: the recording is made at CUDA's driver, in every process "
             "of the command. The report, on stderr, says which library held how much. The "
             "exit status is that of the command. Options come before the command.",
    .examples = {"plimsoll record -- python train.py",
                 "plimsoll record -o train.plrec -- python train.py"},
    .options = PLIM_USE_COMMAND | PLIM_USE_RECORD | PLIM_USE_JSON | PLIM_USE_TEXT,
    .run = record_run,
};
