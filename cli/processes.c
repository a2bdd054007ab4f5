/* processes.c -- see processes.h */
#include "processes.h"
#include "console.h"
#include "lifeline.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/select.h>
#include <sys/types.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/prctl.h>
#endif

enum { SIGNAL_STATUS = 128 }; /* a shell adds the signal number to it */

/* ---- signals ------------------------------------------------------------------- */

static const int signals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGCHLD};
enum { SIGNALS = sizeof signals / sizeof *signals };

static bool signal_caught[SIGNALS]; /* false: it was ignored when this program began */
static sigset_t signals_before;     /* the mask of this program when it began */
static volatile sig_atomic_t signal_got;

/* Ctrl-C at a terminal is the command's own affair, which has got it, too: an interactive
 * Python goes on.  What another process sends is meant for this one. */
static void note_signal(int number, siginfo_t *info, void *unused)
{
    (void)unused;
    bool key = number == SIGINT && info->si_code > 0; /* the kernel's, not a process's */
    if (number != SIGCHLD && !key)
        signal_got = number;
}

void plim_processes_keep_signals(void)
{
    sigset_t ours;
    sigemptyset(&ours);
    for (int i = 0; i < SIGNALS; i++)
        sigaddset(&ours, signals[i]);
    sigprocmask(SIG_BLOCK, &ours, &signals_before);
    for (int i = 0; i < SIGNALS; i++) {
        struct sigaction old,
            new = {.sa_sigaction = note_signal, .sa_flags = SA_SIGINFO | SA_RESTART};
        sigemptyset(&new.sa_mask);
        signal_caught[i] = !sigaction(signals[i], NULL, &old) &&
                           (signals[i] == SIGCHLD || old.sa_handler != SIG_IGN) &&
                           !sigaction(signals[i], &new, NULL);
    }
}

/* As they were; what came in between takes effect. */
static void release_signals(void)
{
    for (int i = 0; i < SIGNALS; i++)
        if (signal_caught[i])
            signal(signals[i], SIG_DFL);
    sigprocmask(SIG_SETMASK, &signals_before, NULL);
}

/* ---- the steps by which they are ended -------------------------------------------- */

typedef enum end_step { END_NOT, END_SOON, END_ASKED, END_CUT, END_KILLED } end_step;

/* How long a step lasts.  `docker stop` kills after 10 s: by then the report is to be out. */
static const int end_seconds[] = {
    [END_SOON] = 20, /* once a rank has failed, the others may end by themselves */
    [END_ASKED] = 5,
    [END_CUT] = 3, /* in which reports are written */
    [END_KILLED] = 3,
};

typedef struct process_set {
    const plim_processes *p;
    int refused[2]; /* a pipe: it gets a byte of each process whose command cannot be run */
    pid_t pid[PLIM_PROCESSES_MOST]; /* 0: it has ended */
    int left;
    int code;
    end_step step;
    int number;   /* of the signal that they are ended for */
    double until; /* when the next step is due */
} process_set;

static double clock_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + (double)t.tv_nsec / 1e9;
}

static void send_all(const process_set *s, int number)
{
    for (int i = 0; i < s->p->n; i++)
        if (s->pid[i] > 0)
            kill(s->pid[i], number);
}

static void begin_step(process_set *s, end_step step)
{
    s->step = step;
    s->until = clock_now() + end_seconds[step];
    if (step == END_ASKED)
        send_all(s, s->number);
    else if (step == END_CUT)
        plim_lifeline_cut(s->p->lifeline, s->number);
    else if (step == END_KILLED)
        send_all(s, SIGKILL);
}

static void end_for_signal(process_set *s, int number)
{
    if (s->step >= END_ASKED) {
        send_all(s, number);
        return;
    }
    s->number = number;
    begin_step(s, END_ASKED);
}

/* ---- their beginning and their end ------------------------------------------------- */

/* In the process that was to become the command. */
static void say_why_not(const process_set *s, const char *command)
{
    int error = errno;
    const char *suffix = strrchr(command, '.');
    fprintf(stderr, "plimsoll: cannot run '%s': %s", command, strerror(error));
    if (suffix && !strcmp(suffix, ".py"))
        fprintf(stderr, "; write 'plimsoll %s ... -- python %s'", s->p->name, command);
    fputs("\n", stderr);
    ssize_t wrote = write(s->refused[1], "", 1);
    (void)wrote; /* it has room for all of them */
}

/* Starts process i; -1: fork failed. */
static pid_t start_process(const process_set *s, int i)
{
    const plim_processes *p = s->p;
    pid_t parent = getpid(), pid = fork();
    if (pid)
        return pid;
    release_signals();
#ifdef __linux__
    /* elsewhere the lifeline alone does it, for those that have imported PyTorch */
    prctl(PR_SET_PDEATHSIG, SIGKILL);
#endif
    if (getppid() != parent) /* it was killed before the line above */
        _exit(SIGNAL_STATUS + SIGKILL);
    if (p->prepare(p->ud, i))
        execvp(p->command[0], p->command);
    say_why_not(s, p->command[0]);
    _exit(PLIM_EXIT_HOST);
}

/* All of them, or those before one that cannot be started: false. */
static bool start_all(process_set *s)
{
    bool good = !pipe(s->refused);
    for (int i = 0; i < 2 && good; i++)
        fcntl(s->refused[i], F_SETFD, FD_CLOEXEC);
    fcntl(s->refused[0], F_SETFL, O_NONBLOCK); /* one may be stuck: it is not waited for */
    fflush(NULL);
    for (int i = 0; i < s->p->n && good; i++) {
        s->pid[i] = start_process(s, i);
        good = s->pid[i] > 0;
        s->left += good;
    }
    if (!good)
        plim_console_failed("cannot start", s->p->command[0], errno);
    return good;
}

/* After they have ended: has one said that its command cannot be run? */
static bool was_refused(process_set *s)
{
    char byte;
    close(s->refused[1]);
    bool refused = read(s->refused[0], &byte, 1) == 1;
    close(s->refused[0]);
    return refused;
}

/* A process's exit status as a shell reports it. */
static int read_status(const process_set *s, int status)
{
    const char *command = s->p->command[0];
    if (!WIFSIGNALED(status))
        return WEXITSTATUS(status);
    int number = WTERMSIG(status);
    const char *fault = number == SIGSEGV ? s->p->fault
                        : number == SIGBUS
                            ? "a file that it has mapped was truncated, or its disk is full"
                            : NULL;
    if (number == SIGKILL && s->step == END_KILLED) {
        fprintf(stderr, "plimsoll: '%s' did not end within %d s of signal %d: it was killed\n",
                command, end_seconds[END_ASKED] + end_seconds[END_CUT], s->number);
        return SIGNAL_STATUS + s->number;
    }
    if (number != SIGINT) /* Python ends itself with it after a KeyboardInterrupt */
        fprintf(stderr, "plimsoll: '%s' was ended by signal %d%s%s\n", command, number,
                fault ? ": " : "", fault ? fault : "");
    return SIGNAL_STATUS + number;
}

/* Takes note of those that have ended. */
static void reap_processes(process_set *s)
{
    int status;
    for (pid_t ended; (ended = waitpid(-1, &status, WNOHANG)) > 0;)
        for (int i = 0; i < s->p->n; i++) {
            if (s->pid[i] != ended)
                continue;
            s->pid[i] = 0;
            s->left--;
            int code = read_status(s, status);
            if (code && !s->code)
                s->code = code;
            if (code && s->p->together && s->step == END_NOT)
                begin_step(s, END_SOON); /* the others may wait for it forever */
        }
}

/* Moves on to the next step when it is due; false: there is nobody left to wait for. */
static bool go_on(process_set *s)
{
    pid_t holder = s->step >= END_ASKED ? plim_lifeline_holder(s->p->lifeline) : 0;
    if (!s->left && !holder)
        return false;
    if (s->step == END_ASKED && !s->left) /* descendants, which got no signal */
        begin_step(s, END_CUT);
    else if (s->step && clock_now() >= s->until) {
        if (s->step == END_KILLED)
            return false;
        begin_step(s, s->step + 1);
    }
    if (s->step == END_KILLED && holder > 0)
        kill(holder, SIGKILL);
    return true;
}

/* Waits for a signal, or until something is due. */
static void wait_signal(const process_set *s)
{
    const double often = 0.05; /* a holder of the lifeline ends without a signal */
    double seconds = s->step ? s->until - clock_now() : 0;
    if (s->step >= END_CUT && seconds > often)
        seconds = often;
    seconds = seconds > 0 ? seconds : 0;
    struct timespec t = {.tv_sec = (time_t)seconds};
    t.tv_nsec = (long)((seconds - (double)t.tv_sec) * 1e9);
    sigset_t open = signals_before;
    for (int i = 0; i < SIGNALS; i++)
        sigdelset(&open, signals[i]);
    pselect(0, NULL, NULL, NULL, s->step ? &t : NULL, &open);
}

int plim_processes_run(const plim_processes *p)
{
    process_set s = {.p = p, .refused = {-1, -1}, .number = SIGTERM};
    bool good = start_all(&s);
    signal(SIGXFSZ, SIG_IGN); /* a write that a limit forbids fails, as on a full disk */
    if (!good)
        begin_step(&s, END_ASKED);
    for (;; wait_signal(&s)) {
        int number = (int)signal_got;
        signal_got = 0;
        if (number) /* first: descendants may be left of a command that has just ended */
            end_for_signal(&s, number);
        reap_processes(&s);
        if (!go_on(&s))
            break;
    }
    plim_lifeline_cut(p->lifeline, 0);
    /* from here on a signal is only noted: the report is printed, as far as it has a reader */
    signal(SIGPIPE, SIG_IGN);
    sigprocmask(SIG_SETMASK, &signals_before, NULL);
    return was_refused(&s) || !good ? -1 : s.code;
}
