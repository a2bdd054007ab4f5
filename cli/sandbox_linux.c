/* sandbox_linux.c -- Landlock for files, seccomp for whatever else a process can reach: see
 * sandbox.h.
 *
 * Landlock does not know modes and owners of files, nor, in older kernels, the network; seccomp
 * does not know paths.  The filter lists what must not be called, not what may be: what a C library
 * calls differs from one to the next. */
#define _GNU_SOURCE /* O_PATH, CLONE_THREAD */
#include "sandbox.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- Landlock: files -------------------------------------------------------- */

/* src: linux/landlock.h of Linux 6.12; the headers of a build may be older.  From 424 on a call has
 * the same number on every processor that is of interest below. */
enum { LANDLOCK_CREATE = 444, LANDLOCK_ADD = 445, LANDLOCK_RESTRICT = 446 };
enum { ASK_VERSION = 1, BENEATH_PATH = 1 };
enum { READ_FILE = 1 << 2, READ_FOLDER = 1 << 3 };

typedef struct landlock_rights {
    uint64_t files, network, others; /* others: abstract sockets, signals */
} landlock_rights;

typedef struct landlock_beneath {
    uint64_t rights;
    int32_t fd;
} __attribute__((packed)) landlock_beneath;

/* All that a version can forbid, from the first on. */
static const landlock_rights landlock_all[] = {
    {0x1fff, 0, 0}, {0x3fff, 0, 0}, {0x7fff, 0, 0},
    {0x7fff, 3, 0}, {0xffff, 3, 0}, {0xffff, 3, 3},
};
enum { VERSIONS = sizeof landlock_all / sizeof *landlock_all };

/* The library asks for the memory of its container, C libraries for processors. */
static const char *const of_system[] = {"/proc/self/cgroup", "/sys/fs/cgroup",
                                        "/sys/devices/system/cpu/online"};

static void forget_rules(plim_sandbox *s, const char *lacks)
{
    if (s->rules >= 0)
        close(s->rules);
    s->rules = -1;
    s->lacks = lacks;
}

/* A pipe is in no folder, and needs no rule: EBADFD. */
static void allow_beneath(plim_sandbox *s, int fd, uint64_t rights)
{
    landlock_beneath rule = {.rights = rights, .fd = fd};
    if (s->rules >= 0 && syscall(LANDLOCK_ADD, s->rules, BENEATH_PATH, &rule, 0) &&
        errno != EBADFD)
        forget_rules(s, "the kernel takes no more Landlock rules");
}

static void allow_at(plim_sandbox *s, int folder, const char *name, uint64_t rights)
{
    int fd = openat(folder, name, O_PATH | O_CLOEXEC);
    if (fd < 0)
        return;
    allow_beneath(s, fd, rights);
    close(fd);
}

/* Each by itself, as a rule for the folder would be one for its folders, too; a link stands for the
 * file that it leads to, wherever that is. */
static void allow_files(plim_sandbox *s, int folder)
{
    DIR *d = fdopendir(folder);
    struct stat sb;
    for (struct dirent *e; d && (e = readdir(d));) {
        bool may = e->d_type == DT_REG || e->d_type == DT_LNK || e->d_type == DT_UNKNOWN;
        if (may && e->d_name[0] != '.' &&
            (e->d_type == DT_REG ||
             (!fstatat(folder, e->d_name, &sb, 0) && S_ISREG(sb.st_mode))))
            allow_at(s, folder, e->d_name, READ_FILE);
    }
    if (d)
        closedir(d);
    else
        close(folder);
}

void plim_sandbox_begin(plim_sandbox *s)
{
    long version = syscall(LANDLOCK_CREATE, NULL, 0, ASK_VERSION);
    landlock_rights all = landlock_all[version < 1          ? 0
                                       : version < VERSIONS ? version - 1
                                                            : VERSIONS - 1];
    *s = (plim_sandbox){.rules = -1, .lacks = "this kernel has no Landlock (Linux 5.13)"};
    if (version > 0)
        s->rules = (int)syscall(LANDLOCK_CREATE, &all, sizeof all, 0);
    if (s->rules < 0)
        return;
    s->lacks = NULL;
    for (size_t i = 0; i < sizeof of_system / sizeof *of_system; i++)
        allow_at(s, AT_FDCWD, of_system[i], READ_FILE);
}

static void allow_folder(plim_sandbox *s, const char *path, const struct stat *sb)
{
    if (s->last[0] == sb->st_dev && s->last[1] == sb->st_ino)
        return;
    s->last[0] = sb->st_dev;
    s->last[1] = sb->st_ino;
    allow_at(s, AT_FDCWD, path, READ_FOLDER);
    int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (folder >= 0)
        allow_files(s, folder);
}

int plim_sandbox_allow(void *sandbox, const char *path, size_t n)
{
    plim_sandbox *s = sandbox;
    char text[4096]; /* src: PATH_MAX; a longer one cannot be opened either */
    struct stat sb;
    if (s->rules < 0 || n >= sizeof text)
        return 0;
    memcpy(text, path, n);
    text[n] = 0;
    if (stat(text, &sb))
        return 0;
    if (S_ISDIR(sb.st_mode))
        allow_folder(s, text, &sb);
    else
        allow_at(s, AT_FDCWD, text, READ_FILE);
    return 0;
}

/* ---- seccomp: calls --------------------------------------------------------- */

/* The processor, and its other one, which the same kernel may serve with other numbers of calls. */
#if defined(__x86_64__) && !defined(__ILP32__)
#define MACHINE AUDIT_ARCH_X86_64
#define OTHER_MACHINE AUDIT_ARCH_I386
#elif defined(__aarch64__)
#define MACHINE AUDIT_ARCH_AARCH64
#define OTHER_MACHINE AUDIT_ARCH_ARM
#elif defined(__riscv) && __riscv_xlen == 64
#define MACHINE AUDIT_ARCH_RISCV64
#define OTHER_MACHINE AUDIT_ARCH_RISCV32
#endif

#ifdef MACHINE
enum { X32 = 0x40000000 }; /* src: asm/unistd.h of x86, __X32_SYSCALL_BIT: a third one */
enum { CLONE3 = 435, OPENAT2 = 437 };

/* Never called by what reads a file.  Some of them Landlock forbids as well, where it is there. */
/* clang-format off */
static unsigned denied[] = {
    /* programs and processes are started */
    SYS_execve, SYS_execveat, SYS_unshare, SYS_setns,
    /* the network, and other programs through it */
    SYS_socket, SYS_socketpair, SYS_bind, SYS_listen, SYS_accept, SYS_accept4, SYS_connect,
    SYS_sendto, SYS_sendmsg, SYS_sendmmsg,
    /* other processes: memory, files, signals and limits (of some more calls: below) */
    SYS_ptrace, SYS_process_vm_readv, SYS_process_vm_writev, SYS_kcmp, SYS_tkill,
    SYS_rt_sigqueueinfo, SYS_rt_tgsigqueueinfo, 424 /* pidfd_send_signal */, 434 /* pidfd_open */,
    438 /* pidfd_getfd */, SYS_setpriority,
    SYS_shmget, SYS_shmat, SYS_msgget, SYS_semget, SYS_mq_open, SYS_mq_unlink,
    /* what is on a disk is changed (to open a file for that: below) */
    SYS_mkdirat, SYS_mknodat, SYS_unlinkat, SYS_linkat, SYS_symlinkat, SYS_renameat2, SYS_truncate,
    SYS_fchmod, SYS_fchmodat, 452 /* fchmodat2 */, SYS_fchown, SYS_fchownat, SYS_utimensat,
    SYS_setxattr, SYS_lsetxattr, SYS_fsetxattr, 463 /* setxattrat */,
    SYS_removexattr, SYS_lremovexattr, SYS_fremovexattr, 466 /* removexattrat */,
    469 /* file_setattr */, SYS_open_by_handle_at,
    /* a way around this filter, and parts of the kernel that have been ways into it */
    425 /* io_uring_setup */, 426 /* _enter */, 427 /* _register */, SYS_bpf, SYS_perf_event_open,
    SYS_userfaultfd, SYS_keyctl, SYS_add_key, SYS_request_key,
    /* what only root may do, as whom people run this, too */
    SYS_mount, SYS_umount2, SYS_pivot_root, SYS_chroot, 428 /* open_tree */, 429 /* move_mount */,
    430 /* fsopen */, 432 /* fsmount */, 442 /* mount_setattr */, SYS_swapon, SYS_swapoff, SYS_reboot,
    SYS_init_module, SYS_finit_module, SYS_delete_module, SYS_kexec_load, SYS_acct, SYS_quotactl,
    SYS_sethostname, SYS_setdomainname, SYS_settimeofday, SYS_clock_settime, SYS_adjtimex,
    SYS_clock_adjtime, SYS_syslog, SYS_vhangup,
#ifdef SYS_renameat
    SYS_renameat,
#endif
#ifdef SYS_open /* x86-64 has calls from before those with "at", and ports */
    SYS_creat, SYS_fork, SYS_vfork, SYS_chmod, SYS_chown, SYS_lchown, SYS_mkdir, SYS_rmdir, SYS_mknod,
    SYS_unlink, SYS_link, SYS_symlink, SYS_rename, SYS_utime, SYS_utimes, SYS_futimesat,
    SYS_iopl, SYS_ioperm, SYS_modify_ldt,
#endif
};
/* clang-format on */
enum { DENIED = sizeof denied / sizeof *denied };

typedef struct filter {
    struct sock_filter at[2 * DENIED + 64];
    unsigned short n;
} filter;

static void put_code(filter *f, int code, unsigned k, int yes, int no)
{
    f->at[f->n++] = (struct sock_filter){(uint16_t)code, (uint8_t)yes, (uint8_t)no, k};
}

static void put_load(filter *f, size_t at)
{
    put_code(f, BPF_LD | BPF_W | BPF_ABS, (unsigned)at, 0, 0);
}

static void put_refusal(filter *f, int error)
{
    put_code(f, BPF_RET | BPF_K, SECCOMP_RET_ERRNO | (unsigned)error, 0, 0);
}

static void put_denied(filter *f, unsigned call, int error)
{
    put_code(f, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 1);
    put_refusal(f, error);
}

/* Denies a call if the test of an argument with `k` has the result `when`.  (Of its 64 bits these
 * calls read the lower half, which comes first.) */
static void put_denied_if(filter *f, unsigned call, int argument, int test, unsigned k,
                          bool when)
{
    put_code(f, BPF_JMP | BPF_JEQ | BPF_K, call, 0, 4);
    put_load(f, offsetof(struct seccomp_data, args) + (size_t)argument * 8);
    put_code(f, BPF_JMP | test | BPF_K, k, when ? 0 : 1, when ? 1 : 0);
    put_refusal(f, EPERM);
    put_load(f, offsetof(struct seccomp_data, nr));
}

/* Denies the calls of a sorted list, and allows all others: by halves, as a kernel runs a filter
 * once for each number when it takes it. */
static void put_search(filter *f, const unsigned *list, size_t n)
{
    enum { FEW = 6 };
    if (n > FEW) {
        unsigned short at = f->n;
        put_code(f, BPF_JMP | BPF_JGE | BPF_K, list[n / 2], 0, 0);
        put_search(f, list, n / 2);
        f->at[at].jt = (uint8_t)(f->n - at - 1);
        put_search(f, list + n / 2, n - n / 2);
        return;
    }
    for (size_t i = 0; i < n; i++)
        put_code(f, BPF_JMP | BPF_JEQ | BPF_K, list[i], (int)(n - i), 0);
    put_code(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    put_refusal(f, EPERM);
}

static int by_number(const void *a, const void *b)
{
    unsigned x = *(const unsigned *)a, y = *(const unsigned *)b;
    return (x > y) - (x < y);
}

/* Calls that depend on an argument.  Flags of clone3 and openat2 are in memory, where no filter sees
 * them: a C library that does not find these calls takes the older ones. */
static void put_conditions(filter *f)
{
    const unsigned writes = O_ACCMODE | O_CREAT | O_TRUNC, self = (unsigned)getpid();
    put_denied(f, CLONE3, ENOSYS);
    put_denied(f, OPENAT2, ENOSYS);
    put_denied_if(f, SYS_clone, 0, BPF_JSET, CLONE_THREAD, false);
    put_denied_if(f, SYS_openat, 2, BPF_JSET, writes, true);
#ifdef SYS_open
    put_denied_if(f, SYS_open, 1, BPF_JSET, writes, true);
#endif
    put_denied_if(f, SYS_kill, 0, BPF_JEQ, self, false);
    put_denied_if(f, SYS_tgkill, 0, BPF_JEQ, self, false);
    put_denied_if(f, SYS_prlimit64, 0, BPF_JEQ, 0, false);  /* 0: itself */
    put_denied_if(f, SYS_ioctl, 1, BPF_JEQ, TIOCSTI, true); /* types for the user */
    put_denied_if(f, SYS_ioctl, 1, BPF_JEQ, TIOCLINUX, true);
}

static void fill_filter(filter *f)
{
    qsort(denied, DENIED, sizeof *denied, by_number);
    put_load(f, offsetof(struct seccomp_data, arch));
    put_denied(f, OTHER_MACHINE, EPERM);
    /* what translates a program for another processor makes calls of its own: none is denied */
    put_code(f, BPF_JMP | BPF_JEQ | BPF_K, MACHINE, 1, 0);
    put_code(f, BPF_RET | BPF_K, SECCOMP_RET_ALLOW, 0, 0);
    put_load(f, offsetof(struct seccomp_data, nr));
    if (MACHINE == AUDIT_ARCH_X86_64) {
        put_code(f, BPF_JMP | BPF_JGE | BPF_K, X32, 0, 1);
        put_refusal(f, EPERM);
    }
    put_conditions(f);
    put_search(f, denied, DENIED);
}

/* Kernels from before 5.16 slow down a process with a filter, against an attack that it has no
 * use for, unless they are told not to: SPEC_ALLOW, from 4.17 on. */
static bool enter_filter(void)
{
    filter f = {.n = 0};
    fill_filter(&f);
    struct sock_fprog program = {.len = f.n, .filter = f.at};
    return !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_SPEC_ALLOW,
                    &program) ||
           !syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &program);
}

static const char no_filter[] = "this kernel has no seccomp filters (Linux 3.17)";
#else
static bool enter_filter(void) { return false; }
static const char no_filter[] = "plimsoll has no seccomp filter for this processor";
#endif

/* ---- both ------------------------------------------------------------------- */

void plim_sandbox_enter(plim_sandbox *s)
{
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0))
        s->lacks = "this kernel does not support no_new_privs";
    if (s->rules >= 0 && syscall(LANDLOCK_RESTRICT, s->rules, 0))
        s->lacks = "the kernel refuses the Landlock rules";
    if (s->rules >= 0)
        close(s->rules);
    s->rules = -1;
    if (!enter_filter())
        s->lacks = no_filter;
}
