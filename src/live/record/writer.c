/* writer.c -- the file of the recorder: chunks of it, mapped, one for each thread. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { CHUNK = PLIM_DRIVER_CHUNK, SLOT = PLIM_DRIVER_SLOT, SPARE = 256 };

static struct {
    pthread_once_t once;
    char path[4096];  /* "": nothing is recorded */
    struct stat file; /* which one it is */
    plim_driver_head *head;
    pthread_key_t key; /* gives a thread's chunk back */
    unsigned forks;
    _Atomic uint64_t process;
    _Atomic(plim_driver_chunk *) spare[SPARE]; /* of threads that have ended */
} writer = {.once = PTHREAD_ONCE_INIT};

static _Thread_local plim_driver_chunk *chunk; /* this thread's */
static _Thread_local uint32_t thread;

uint64_t plim_record_now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

unsigned plim_record_forks(void) { return writer.forks; }

/* ---- chunks ----------------------------------------------------------------- */

/* Chunks that are not full are for threads to come. */
static void keep_chunk(void *c)
{
    chunk = NULL;
    for (int i = 0; i < SPARE; i++) {
        plim_driver_chunk *none = NULL;
        if (atomic_compare_exchange_strong(&writer.spare[i], &none, c))
            return;
    }
    munmap(c, CHUNK);
}

static plim_driver_chunk *spare_chunk(void)
{
    for (int i = 0; i < SPARE; i++) {
        plim_driver_chunk *c = atomic_load_explicit(&writer.spare[i], memory_order_relaxed);
        if (c && (c = atomic_exchange(&writer.spare[i], NULL)))
            return c;
    }
    return NULL;
}

/* Whether the file may grow to so many bytes; the signal for one that may not ends programs. */
static bool may_grow(uint64_t bytes)
{
    struct rlimit most;
    return !getrlimit(RLIMIT_FSIZE, &most) &&
           (most.rlim_cur == RLIM_INFINITY || bytes <= most.rlim_cur);
}

/* Opens the file each time: a program may close descriptors that it does not know.  One that
 * has replaced it is another recording. */
static int open_file(void)
{
    struct stat file;
    int fd = open(writer.path, O_RDWR | O_CLOEXEC);
    if (fd < 0 || (!fstat(fd, &file) && file.st_dev == writer.file.st_dev &&
                   file.st_ino == writer.file.st_ino))
        return fd;
    close(fd);
    return -1;
}

static plim_driver_chunk *new_chunk(void)
{
    uint64_t at = __atomic_fetch_add(&writer.head->end, CHUNK, __ATOMIC_RELAXED);
    int fd = may_grow(at + CHUNK) ? open_file() : -1;
    if (fd < 0)
        return NULL;
    void *c = MAP_FAILED;
    if (!posix_fallocate(fd, (off_t)at, CHUNK)) /* or a write to the mapping could fail */
        c = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)at);
    close(fd);
    if (c == MAP_FAILED)
        return NULL;
    plim_driver_chunk *head = c;
    head->process = atomic_load(&writer.process);
    head->pid = (uint32_t)getpid();
    __atomic_store_n(&head->magic, PLIM_DRIVER_CHUNK_MAGIC, __ATOMIC_RELEASE);
    return head;
}

/* Room for n bytes in this thread's chunk; NULL: there is none. */
static char *room_for(uint32_t n)
{
    if (chunk && chunk->used + n > CHUNK - sizeof *chunk) {
        munmap(chunk, CHUNK);
        chunk = NULL;
    }
    while (!chunk) {
        bool spare = (chunk = spare_chunk()) != NULL;
        if (!spare)
            chunk = new_chunk();
        pthread_setspecific(writer.key, chunk);
        if (!chunk)
            return NULL;
        if (spare && chunk->used + n > CHUNK - sizeof *chunk) {
            munmap(chunk, CHUNK);
            chunk = NULL;
        }
    }
    return (char *)(chunk + 1) + chunk->used;
}

static void add_lost(uint64_t n)
{
    __atomic_fetch_add(&writer.head->lost, n, __ATOMIC_RELAXED);
}

static void complete_bytes(uint32_t n)
{
    __atomic_store_n(&chunk->used, chunk->used + n, __ATOMIC_RELEASE);
}

static void name_thread(plim_driver_event *e)
{
    if (!thread)
        thread = (uint32_t)syscall(SYS_gettid);
    e->thread = thread;
}

/* ---- texts: each once for a process ----------------------------------------- */

enum { POOL = 1 << 19 };

static struct {
    atomic_flag lock; /* held while a text is added, which calls nothing that waits */
    _Atomic uint32_t at[PLIM_DRIVER_TEXTS];      /* where its text lies in `pool`, + 1 */
    char pool[POOL + PLIM_DRIVER_TEXT_MOST + 1]; /* compared as if all were long */
    uint32_t used;
} texts = {.lock = ATOMIC_FLAG_INIT};

static uint32_t hash_text(const char *p, size_t n)
{
    uint64_t h = n, word;
    for (; n >= sizeof word; p += sizeof word, n -= sizeof word) {
        memcpy(&word, p, sizeof word);
        h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
        h ^= h >> 32;
    }
    word = 0;
    memcpy(&word, p, n);
    h = (h ^ word) * UINT64_C(0x9e3779b97f4a7c15);
    return (uint32_t)(h >> 32);
}

/* The number of a text that is there, else of the free place for it; 0: full. */
static uint32_t place_of(const char *text, size_t n, bool *found)
{
    uint32_t hash = hash_text(text, n);
    for (uint32_t i = 0; i < PLIM_DRIVER_TEXTS; i++) {
        uint32_t id = (hash + i) % PLIM_DRIVER_TEXTS;
        uint32_t at = id ? atomic_load_explicit(&texts.at[id], memory_order_acquire) : 0;
        *found = at && !memcmp(texts.pool + at - 1, text, n) && !texts.pool[at - 1 + n];
        if (id && (!at || *found))
            return id;
    }
    return 0;
}

static bool write_text(uint32_t id, const char *text, size_t n)
{
    uint32_t slots = (uint32_t)((n + SLOT - 1) / SLOT + 1);
    char *to = room_for(slots * SLOT);
    plim_driver_event e = {.kind = PLIM_DRIVER_TEXT, .bytes = n, .owner = id, .device = -1};
    if (!to)
        return false;
    name_thread(&e);
    e.time = plim_record_now();
    memcpy(to, &e, sizeof e);
    memcpy(to + sizeof e, text, n);
    complete_bytes(slots * SLOT);
    return true;
}

static uint32_t add_text(const char *text, size_t n)
{
    bool found;
    while (atomic_flag_test_and_set_explicit(&texts.lock, memory_order_acquire))
        ;
    uint32_t id = place_of(text, n, &found);
    if (id && !found) {
        if (texts.used + n + 1 > POOL || !write_text(id, text, n)) {
            id = 0;
        } else {
            memcpy(texts.pool + texts.used, text, n);
            texts.pool[texts.used + n] = '\0';
            atomic_store_explicit(&texts.at[id], texts.used + 1, memory_order_release);
            texts.used += (uint32_t)n + 1;
        }
    }
    atomic_flag_clear_explicit(&texts.lock, memory_order_release);
    return id;
}

static void begin_process(void);

uint32_t plim_record_text(const char *text)
{
    bool found;
    size_t n = strlen(text);
    begin_process();
    if (!n)
        return 0;
    if (n > PLIM_DRIVER_TEXT_MOST) {
        text += n - PLIM_DRIVER_TEXT_MOST;
        n = PLIM_DRIVER_TEXT_MOST;
    }
    uint32_t id = place_of(text, n, &found);
    return found || !id ? id : add_text(text, n);
}

/* ---- the process ------------------------------------------------------------ */

/* A child has its parent's mappings, and may not write to them. */
static void leave_parent(void)
{
    writer.forks++;
    thread = 0;
    chunk = NULL;
    pthread_setspecific(writer.key, NULL);
    for (int i = 0; i < SPARE; i++)
        atomic_store(&writer.spare[i], NULL);
    atomic_store(&writer.process, 0);
    memset((void *)texts.at, 0, sizeof texts.at);
    texts.used = 0;
    atomic_flag_clear(&texts.lock);
}

static void open_writer(void)
{
    const char *path = getenv("PLIMSOLL_RECORD");
    if (!path || !*path || strlen(path) >= sizeof writer.path)
        return;
    int fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *head = MAP_FAILED;
    if (!fstat(fd, &writer.file) && writer.file.st_size >= CHUNK)
        head = mmap(NULL, CHUNK, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (head == MAP_FAILED)
        return;
    writer.head = head;
    if (memcmp(writer.head->magic, PLIM_DRIVER_MAGIC, sizeof writer.head->magic) != 0 ||
        writer.head->version != PLIM_DRIVER_VERSION ||
        pthread_key_create(&writer.key, keep_chunk) ||
        pthread_atfork(NULL, NULL, leave_parent))
        return;
    memcpy(writer.path, path, strlen(path) + 1);
}

bool plim_record_wanted(void)
{
    pthread_once(&writer.once, open_writer);
    return writer.path[0] != '\0';
}

/* The command of this process, its words separated by spaces. */
static void read_command(char *out, size_t room)
{
    ssize_t n = -1;
    int fd = open("/proc/self/cmdline", O_RDONLY | O_CLOEXEC);
    if (fd >= 0) {
        n = read(fd, out, room - 1);
        close(fd);
    }
    n = n > 0 ? n : 0;
    while (n && !out[n - 1])
        n--;
    for (ssize_t i = 0; i < n; i++)
        out[i] = out[i] ? out[i] : ' ';
    out[n] = '\0';
}

/* Before the first event of a process: who it is. */
static void begin_process(void)
{
    char command[PLIM_DRIVER_TEXT_MOST];
    uint64_t none = 0, mine;
    if (atomic_load_explicit(&writer.process, memory_order_relaxed))
        return;
    mine = plim_record_now() << 20 ^ (uint64_t)getpid();
    if (!atomic_compare_exchange_strong(&writer.process, &none, mine))
        return;
    read_command(command, sizeof command);
    plim_driver_event e = {.kind = PLIM_DRIVER_PROCESS,
                           .address = (uint64_t)getppid(),
                           .owner = plim_record_text(command),
                           .device = -1,
                           .time = plim_record_now()};
    plim_record_event(&e);
}

void plim_record_event(plim_driver_event *e)
{
    int was = errno;
    begin_process();
    char *to = room_for(SLOT);
    name_thread(e);
    if (to) {
        memcpy(to, e, sizeof *e);
        complete_bytes(SLOT);
    } else {
        add_lost(1);
    }
    errno = was;
}
