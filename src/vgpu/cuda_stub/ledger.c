/* ledger.c -- what each process uses of the pretend cards, for those that only look.
 *
 * A process that uses a card has a small file in PLIMSOLL_STUB_LEDGER, a folder that
 * `plimsoll run` sets, and writes to a mapping of it.  Who reads it, in another process, sees
 * the present numbers without asking.  The file goes when the process ends; one of a process
 * that was killed is passed over.  Where there is no room for it, there is none. */
#include "stub.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#define MAGIC 0x31726567646c7070ull /* "ppldger1" */

typedef struct ledger_file {
    uint64_t magic;
    plim_stub_user user;
} ledger_file;

static struct {
    pthread_mutex_t lock;
    bool tried;
    ledger_file *file;
    char path[4096];
} ledger = {.lock = PTHREAD_MUTEX_INITIALIZER};

static const char *ledger_folder(void)
{
    const char *folder = getenv("PLIMSOLL_STUB_LEDGER");
    return folder && *folder ? folder : NULL;
}

/* A child has the parent's mapping, but not its memory on the card: what it writes there stays
 * its own. */
static void leave_parent(void)
{
    if (ledger.file && mmap(ledger.file, sizeof *ledger.file, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == MAP_FAILED)
        _exit(1); /* the parent's figures would be wrong from here on */
    ledger.path[0] = '\0';
}

static void remove_file(void)
{
    if (ledger.path[0])
        unlink(ledger.path);
}

/* Whether a file may have so many bytes; the signal for one that may not ends programs. */
static bool may_grow(size_t bytes)
{
    struct rlimit most;
    return !getrlimit(RLIMIT_FSIZE, &most) &&
           (most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur);
}

/* A new file in place of what has its name: that of a killed process with the same number, or
 * a link, through which nothing is written. */
static int create_file(const char *path)
{
    unlink(path);
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0644);
}

/* The file has its blocks before it is mapped: on a full disk a write to the mapping would end
 * the process by SIGBUS.  NULL: there is no room. */
static ledger_file *map_file(int fd)
{
    void *at = MAP_FAILED;
    if (may_grow(sizeof(ledger_file)) && !posix_fallocate(fd, 0, sizeof(ledger_file)))
        at = mmap(NULL, sizeof(ledger_file), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    return at == MAP_FAILED ? NULL : at;
}

static void open_file(void)
{
    const plim_stub_card *card = plim_stub_card_get();
    const char *folder = ledger_folder();
    if (!folder || !card)
        return;
    int n = snprintf(ledger.path, sizeof ledger.path, "%s/%ld.ledger", folder, (long)getpid());
    int fd = n > 0 && (size_t)n < sizeof ledger.path ? create_file(ledger.path) : -1;
    if (fd < 0) {
        ledger.path[0] = '\0';
        return;
    }
    ledger.file = map_file(fd);
    close(fd);
    if (!ledger.file) {
        remove_file();
        ledger.path[0] = '\0';
        return;
    }
    ledger.file->user =
        (plim_stub_user){.pid = (uint32_t)getpid(), .cards = plim_stub_cards(), .card = *card};
    ledger.file->magic = MAGIC;
    pthread_atfork(NULL, NULL, leave_parent);
    atexit(remove_file);
}

uint64_t *plim_stub_ledger(unsigned card)
{
    pthread_mutex_lock(&ledger.lock);
    if (!ledger.tried) {
        ledger.tried = true;
        open_file();
    }
    pthread_mutex_unlock(&ledger.lock);
    return ledger.file && card < PLIM_STUB_CARDS ? &ledger.file->user.used[card] : NULL;
}

static bool read_file(const char *folder, const char *name, plim_stub_user *out)
{
    char path[4096];
    ledger_file file;
    int n = snprintf(path, sizeof path, "%s/%s", folder, name);
    int fd = n > 0 && (size_t)n < sizeof path
                 ? open(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC)
                 : -1;
    if (fd < 0)
        return false;
    bool whole = read(fd, &file, sizeof file) == (ssize_t)sizeof file && file.magic == MAGIC;
    close(fd);
    if (!whole || file.user.cards > PLIM_STUB_CARDS ||
        (kill((pid_t)file.user.pid, 0) && errno == ESRCH))
        return false;
    file.user.card.name[sizeof file.user.card.name - 1] = '\0';
    *out = file.user;
    return true;
}

unsigned plim_stub_users(plim_stub_user *out, unsigned max)
{
    const char *folder = ledger_folder();
    DIR *d = folder ? opendir(folder) : NULL;
    unsigned n = 0;
    for (struct dirent *e; d && n < max && (e = readdir(d));)
        if (strstr(e->d_name, ".ledger") && read_file(folder, e->d_name, &out[n]))
            n++;
    if (d)
        closedir(d);
    return n;
}
