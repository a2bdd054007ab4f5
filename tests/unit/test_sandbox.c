/* test_sandbox.c -- what a process in the sandbox can still do, and what not: cli/sandbox.h.
 *
 * Each attempt is made by a process of its own, once without a sandbox, where it has to succeed, and
 * once in it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/ptrace.h>
#include <sys/syscall.h>
#endif

#include "../../cli/sandbox.h"
#include "base/base.h"
#include "unit.h"

/* A folder that may be read, and what lies around it. */
static char root[] = "/tmp/plimsoll-sandbox-XXXXXX";

static void make_file(const char *path)
{
    int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    assert_true(fd >= 0 && write(fd, "text", 4) == 4);
    close(fd);
}

/* Before each attempt: one that succeeds takes some away. */
static void make_files(void)
{
    static const char *const files[] = {"model/config.json",
                                        "model/.hidden",
                                        "model/below/file",
                                        "blobs/1234",
                                        "blobs/5678",
                                        "alone",
                                        "other"};
    for (size_t i = 0; i < PLIM_COUNT(files); i++)
        make_file(files[i]);
}

static int make_tree(void **state)
{
    static const char *const folders[] = {"model", "model/below", "blobs"};
    (void)state;
    assert_non_null(mkdtemp(root));
    assert_int_equal(chdir(root), 0);
    for (size_t i = 0; i < PLIM_COUNT(folders); i++)
        assert_int_equal(mkdir(folders[i], 0700), 0);
    return symlink("../blobs/1234", "model/weights");
}

static int remove_tree(void **state)
{
    char line[sizeof root + 16];
    (void)state;
    snprintf(line, sizeof line, "rm -rf '%s'", root);
    return system(line);
}

/* ---- attempts: true if it was possible ------------------------------------------- */

static bool can_open(const char *path, int flags)
{
    int fd = open(path, flags | O_CLOEXEC, 0600);
    char c;
    return fd >= 0 && (flags != O_RDONLY || read(fd, &c, 1) == 1);
}

static bool read_config(void) { return can_open("model/config.json", O_RDONLY); }
static bool read_link(void) { return can_open("model/weights", O_RDONLY); }
static bool read_alone(void) { return can_open("alone", O_RDONLY); }
static bool read_itself(void) { return can_open("/proc/self/cgroup", O_RDONLY); }
static bool list_model(void) { return can_open("model", O_RDONLY | O_DIRECTORY); }
static bool list_around(void) { return can_open(".", O_RDONLY | O_DIRECTORY); }
static bool read_other(void) { return can_open("other", O_RDONLY); }
static bool read_below(void) { return can_open("model/below/file", O_RDONLY); }
static bool read_hidden(void) { return can_open("model/.hidden", O_RDONLY); }
static bool read_blob(void) { return can_open("blobs/5678", O_RDONLY); }
static bool read_system(void) { return can_open("/etc/passwd", O_RDONLY); }

static bool create_file(void) { return can_open("model/new", O_WRONLY | O_CREAT); }
static bool write_file(void) { return can_open("model/config.json", O_WRONLY); }
static bool update_file(void) { return can_open("model/config.json", O_RDWR); }
static bool empty_file(void) { return can_open("model/config.json", O_RDONLY | O_TRUNC); }
static bool cut_file(void) { return truncate("model/config.json", 4) == 0; }
static bool remove_file(void) { return unlink("alone") == 0; }
static bool rename_file(void) { return rename("other", "another") == 0; }
static bool link_file(void) { return !link("other", "more") && !unlink("more"); }
static bool make_folder(void)
{
    return !mkdir("model/new-folder", 0700) && !rmdir("model/new-folder");
}
static bool change_mode(void) { return chmod("model/config.json", 0600) == 0; }
static bool change_own_mode(void)
{
    return fchmod(open("model/config.json", O_RDONLY), 0600) == 0;
}
static bool change_time(void) { return utimensat(AT_FDCWD, "other", NULL, 0) == 0; }

static bool start_program(void)
{
    execl("/bin/true", "true",
          (char *)NULL); /* ends with 0, as an attempt that succeeds does */
    return false;
}
static bool start_process(void)
{
    pid_t pid = fork();
    if (!pid)
        _exit(0);
    return pid > 0 && waitpid(pid, NULL, 0) == pid;
}
static bool run_shell(void) { return system("exit 0") == 0; }
static bool open_socket(void) { return socket(AF_INET, SOCK_STREAM, 0) >= 0; }
static bool open_local_socket(void) { return socket(AF_UNIX, SOCK_STREAM, 0) >= 0; }
static bool open_pair(void)
{
    int pair[2];
    return socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
}
static bool signal_parent(void) { return kill(getppid(), 0) == 0; }

static void *thread_main(void *done)
{
    *(bool *)done = malloc(1 << 20) != NULL;
    return NULL;
}
static bool start_thread(void)
{
    pthread_t thread;
    bool done = false;
    return !pthread_create(&thread, NULL, thread_main, &done) && !pthread_join(thread, NULL) &&
           done;
}
static bool ask_limit(void)
{
    struct rlimit r;
    return getrlimit(RLIMIT_AS, &r) == 0;
}
static bool signal_itself(void) { return raise(0) == 0; }
static int pipe_ends[2];
static bool write_pipe(void) { return write(pipe_ends[1], "x", 1) == 1; }
static bool read_open_pipe(void)
{
    char path[32];
    snprintf(path, sizeof path, "/dev/fd/%d", pipe_ends[0]);
    return write_pipe() && can_open(path, O_RDONLY);
}

#ifdef __linux__
static bool trace_itself(void) { return ptrace(PTRACE_TRACEME, 0, NULL, NULL) == 0; }
static bool read_parent(void)
{
    int fd = (int)syscall(434, getppid(), 0); /* pidfd_open */
    return fd >= 0;
}
/* Refused for its argument, unless the call itself is. */
static bool reach_ring(void) { return syscall(425, 1, NULL) < 0 && errno != EPERM; }
static bool type_for_user(void) { return ioctl(-1, TIOCSTI, "x") < 0 && errno != EPERM; }
#endif

enum { STAYS, NEEDS_RULES, FORBIDDEN }; /* NEEDS_RULES: forbidden by Landlock alone */
typedef struct attempt {
    const char *why;
    bool (*make)(void);
    int verdict;
} attempt;

static const attempt attempts[] = {
    {"a file of a folder that was allowed", read_config, STAYS},
    {"a link in it, to a file that lies elsewhere", read_link, STAYS},
    {"a file that was allowed", read_alone, STAYS},
    {"the group of the process, which has its memory", read_itself, STAYS},
    {"the folder's list", list_model, STAYS},
    {"a thread, with memory", start_thread, STAYS},
    {"its own limits", ask_limit, STAYS},
    {"a signal to itself, for abort()", signal_itself, STAYS},
    {"what is open already", write_pipe, STAYS},
    {"a pipe of a shell, by its path", read_open_pipe, STAYS},
    {"a file next to the folder", read_other, NEEDS_RULES},
    {"a file in a folder of the folder", read_below, NEEDS_RULES},
    {"a hidden file", read_hidden, NEEDS_RULES},
    {"a file next to that of a link", read_blob, NEEDS_RULES},
    {"a file of the system", read_system, NEEDS_RULES},
    {"another folder's list", list_around, NEEDS_RULES},
    {"a new file", create_file, FORBIDDEN},
    {"a file that may be read, to write", write_file, FORBIDDEN},
    {"the same, to read and write", update_file, FORBIDDEN},
    {"the same, to empty it", empty_file, FORBIDDEN},
    {"a file cut short", cut_file, FORBIDDEN},
    {"a file removed", remove_file, FORBIDDEN},
    {"a file renamed", rename_file, FORBIDDEN},
    {"a file linked", link_file, FORBIDDEN},
    {"a folder", make_folder, FORBIDDEN},
    {"a mode", change_mode, FORBIDDEN},
    {"a mode of an open file", change_own_mode, FORBIDDEN},
    {"a time", change_time, FORBIDDEN},
    {"a program", start_program, FORBIDDEN},
    {"a process", start_process, FORBIDDEN},
    {"a shell", run_shell, FORBIDDEN},
    {"the network", open_socket, FORBIDDEN},
    {"a server on this machine", open_local_socket, FORBIDDEN},
    {"a pair of sockets", open_pair, FORBIDDEN},
    {"a signal to another process", signal_parent, FORBIDDEN},
#ifdef __linux__
    {"a debugger", trace_itself, FORBIDDEN},
    {"a handle of another process", read_parent, FORBIDDEN},
    {"io_uring, which goes around the filter", reach_ring, FORBIDDEN},
    {"keys typed for the user", type_for_user, FORBIDDEN},
#endif
};

/* ---- the two ways ------------------------------------------------------------------ */

/* NULL: in the sandbox; else what it lacks. */
static const char *enter(bool rules)
{
    plim_sandbox s;
    plim_sandbox_begin(&s);
    plim_sandbox_allow(&s, PLIM_STR("model").p, 5);
    plim_sandbox_allow(&s, PLIM_STR("alone").p, 5);
    plim_sandbox_allow(&s, PLIM_STR("missing").p, 7);
    if (!rules && s.rules >= 0) { /* a kernel without Landlock */
        close(s.rules);
        s.rules = -1;
    }
    plim_sandbox_enter(&s);
    return s.lacks;
}

enum { OUTSIDE, INSIDE, FILTER_ALONE };

static bool possible(const attempt *a, int where)
{
    int status = 0;
    make_files();
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (!pid) {
        const char *lacks = where == OUTSIDE ? NULL : enter(where == INSIDE);
        _exit(lacks ? 2 : a->make() ? 0 : 1);
    }
    assert_true(waitpid(pid, &status, 0) == pid);
    CHECK(a->why, WIFEXITED(status) && WEXITSTATUS(status) < 2);
    return WEXITSTATUS(status) == 0;
}

/* Does this system have one?  It is asked in a process that ends. */
static const char *ask_lack(void)
{
    static char text[128];
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (!pid) {
        const char *lacks = enter(true);
        _exit(lacks && write(ends[1], lacks, strlen(lacks)) < 0);
    }
    waitpid(pid, NULL, 0);
    close(ends[1]);
    ssize_t n = read(ends[0], text, sizeof text - 1);
    close(ends[0]);
    return n > 0 ? text : NULL;
}

static void test_attempts(void **state)
{
    (void)state;
    const char *lacks = ask_lack();
    if (lacks) {
        print_message("left out: %s\n", lacks);
        skip();
    }
    assert_int_equal(pipe(pipe_ends), 0);
    for (size_t i = 0; i < PLIM_COUNT(attempts); i++) {
        const attempt *a = &attempts[i];
        CHECK(a->why, possible(a, OUTSIDE));
        CHECK(a->why, possible(a, INSIDE) == (a->verdict == STAYS));
        CHECK(a->why, possible(a, FILTER_ALONE) == (a->verdict != FORBIDDEN));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_attempts)};
    return cmocka_run_group_tests(tests, make_tree, remove_tree);
}
