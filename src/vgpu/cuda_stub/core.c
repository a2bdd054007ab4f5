/* core.c -- the card and the ledger of its memory: libplimsoll_stub.so. */
#include "stub.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* As in vgpu.c: above what user space gets, below the byte that arm64 ignores. */
#define ADDR_FIRST (1ull << 53)
#define ADDR_END (1ull << 55)
#define SMALL_ALIGN 512

static struct {
    pthread_mutex_t lock;
    pthread_once_t once;
    bool present;
    plim_stub_card card;
    plim_vgpu *rules; /* what it knows of the card; nothing is allocated on it */

    plim_stub_range *ranges; /* by begin */
    size_t n, cap;
    uint64_t used;            /* bytes of the card, whole pages */
    plim_vgpu_places *places; /* of memory */
    uint64_t next; /* the address space that is reserved without memory; it only grows */
    uint64_t small, small_end;

    atomic_uintptr_t handle;
    _Atomic(void (*)(uint64_t)) read;
    _Atomic(unsigned (*)(void)) flags;
    _Atomic(void (*)(uint64_t)) workspace;
    _Atomic(plim_stub_memory) memory;
    unsigned cards; /* that it knows */
} device = {.lock = PTHREAD_MUTEX_INITIALIZER,
            .once = PTHREAD_ONCE_INIT,
            .next = ADDR_FIRST + PLIM_VGPU_PLACES,
            .handle = 0x1000};

/* ---- the card --------------------------------------------------------------- */

/* The newest architecture in "75,80,86,90" that runs on cc: of the same
 * generation, not newer; 0: none. */
static int best_binary(const char *list, int cc)
{
    int best = 0;
    for (char *end; list && *list; list = *end ? end + 1 : end) {
        int arch = (int)strtol(list, &end, 10);
        if (arch / 10 == cc / 10 && arch <= cc && arch > best)
            best = arch;
        end += strcspn(end, ",");
    }
    return best;
}

static void card_open(void)
{
    const char *gpu = getenv("PLIMSOLL_RUN_GPU");
    uint64_t vram = (uint64_t)plim_stub_setting("PLIMSOLL_RUN_VRAM", 0);
    plim_vgpu_options o = {.gpu = gpu && *gpu ? gpu : NULL,
                           .vram = vram,
                           .torch = getenv("PLIMSOLL_STUB_TORCH"),
                           .workspace = getenv("PLIMSOLL_RUN_WORKSPACE")};
    plim_vgpu *d = NULL;
    plim_err err = PLIM_ERR_INIT;
    plim_vgpu_card told;
    uint32_t n = 1;
    if (!o.gpu && !o.vram)
        return;
    if ((o.gpu && plim_vgpu_machine(o.gpu, &n, &o.gpu, &err)) ||
        plim_vgpu_open(&o, &d, &err) ||
        plim_vgpu_places_open(ADDR_FIRST, &device.places, &err)) {
        fprintf(stderr, "plimsoll: %s\n", err.msg);
        return;
    }
    plim_vgpu_card_get(d, &told);
    plim_stub_card *c = &device.card;
    *c = (plim_stub_card){.cc = told.cc,
                          .major = told.cc / 10,
                          .minor = told.cc % 10,
                          .clusters = told.cc >= 90,
                          .sms = told.sms,
                          .threads_per_sm = told.threads_per_sm,
                          .total = told.total,
                          .context = told.context,
                          .blocks_per_sm = told.blocks_per_sm,
                          .shared_per_sm = told.shared_per_sm,
                          .shared_per_block = told.shared_per_block,
                          .l2 = told.l2};
    snprintf(c->name, sizeof c->name, "%s", told.name);
    device.rules = d;
    device.present = true;
}

int plim_stub_binary(const plim_stub_card *c)
{
    int arch = best_binary(getenv("PLIMSOLL_STUB_ARCHS"), c->cc);
    return arch ? arch : c->cc;
}

const plim_stub_card *plim_stub_card_get(void)
{
    pthread_once(&device.once, card_open);
    return device.present ? &device.card : NULL;
}

void plim_stub_on_convolution(unsigned (*flags)(void)) { atomic_store(&device.flags, flags); }

uint64_t plim_stub_convolution(const plim_vgpu_conv *conv)
{
    unsigned (*ask)(void) = atomic_load(&device.flags);
    unsigned flags = ask ? ask() : 0;
    plim_vgpu_conv c = *conv;
    c.benchmark = flags & PLIM_STUB_BENCHMARK;
    c.no_tf32 = flags & PLIM_STUB_NO_TF32;
    return plim_stub_card_get() ? plim_vgpu_conv_workspace(device.rules, &c) : 0;
}

uint64_t plim_stub_attention(void)
{
    return plim_stub_card_get() ? plim_vgpu_attention_workspace(device.rules) : 0;
}

void plim_stub_on_workspace(void (*tell)(uint64_t)) { atomic_store(&device.workspace, tell); }

void plim_stub_tell_workspace(uint64_t bytes)
{
    void (*tell)(uint64_t) = atomic_load(&device.workspace);
    if (tell && bytes)
        tell(bytes);
}

/* An attribute is the same everywhere, or lies in the card. */
#define SAME(number, value)                                                                   \
    {                                                                                         \
        number, -1, value                                                                     \
    }
#define CARD(number, field)                                                                   \
    {                                                                                         \
        number, (int)offsetof(plim_stub_card, field), 0                                       \
    }

static const struct attribute {
    int number, offset, value;
} attributes[] = {
    SAME(1, 1024), /* threads of a block, and of it in x, y, z */
    SAME(2, 1024),
    SAME(3, 1024),
    SAME(4, 64),
    SAME(5, INT32_MAX), /* blocks in x, y, z */
    SAME(6, 65535),
    SAME(7, 65535),
    SAME(8, 48 << 10), /* shared memory of a block that does not opt in */
    SAME(9, 64 << 10), /* constant memory */
    SAME(10, 32),      /* threads of a warp */
    SAME(11, INT32_MAX),
    SAME(12, 65536),   /* registers of a block */
    SAME(13, 1500000), /* kHz */
    SAME(14, 512),     /* alignment of textures */
    SAME(15, 1),       /* copies during kernels */
    CARD(16, sms),
    SAME(19, 1), /* maps host memory */
    SAME(30, 512),
    SAME(31, 1), /* kernels side by side */
    SAME(33, 1), /* PCI bus */
    SAME(36, 1000000),
    SAME(37, 256), /* bits of the memory bus */
    CARD(38, l2),
    CARD(39, threads_per_sm),
    SAME(40, 2), /* copy engines */
    SAME(41, 1), /* one address space with the host */
    SAME(51, 32),
    CARD(75, major),
    CARD(76, minor),
    SAME(78, 1), /* stream priorities */
    SAME(79, 1),
    SAME(80, 1),
    CARD(81, shared_per_sm),
    SAME(82, 65536), /* registers of an SM */
    SAME(83, 1),     /* managed memory, from both sides at once */
    SAME(89, 1),
    SAME(87, 32), /* float operations in the time of one double */
    SAME(90, 1),  /* preemption */
    SAME(95, 1),  /* cooperative launch */
    CARD(97, shared_per_block),
    SAME(99, 1),  /* registers host memory */
    SAME(102, 1), /* virtual memory, its handles as file descriptors */
    SAME(103, 1),
    CARD(106, blocks_per_sm),
    SAME(111, 1024), /* shared memory that the system takes of a block */
    CARD(120, clusters),
};

int plim_stub_attribute(const plim_stub_card *c, int number)
{
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        const struct attribute *a = &attributes[i];
        if (a->number == number)
            return a->offset < 0 ? a->value : *(const int *)((const char *)c + a->offset);
    }
    return 0;
}

int plim_stub_occupancy(const plim_stub_card *c, int threads, size_t shared)
{
    int warps = threads > 0 ? (threads + 31) / 32 : 1;
    int n = c->threads_per_sm / 32 / warps;
    size_t by_shared = (size_t)c->shared_per_sm / (shared + 1024);
    if (n > c->blocks_per_sm)
        n = c->blocks_per_sm;
    return (size_t)n < by_shared ? n : (int)by_shared;
}

/* ---- the ledger --------------------------------------------------------------- */

static uint64_t round_up(uint64_t x, uint64_t to) { return (x + to - 1) / to * to; }

static uint64_t page_of(uint64_t addr) { return addr / PLIM_STUB_PAGE; }

/* The first range that begins at addr or later. */
static size_t range_at_or_after(uint64_t addr)
{
    size_t low = 0, high = device.n;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (device.ranges[middle].begin < addr)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

static bool insert_range(plim_stub_range r)
{
    if (device.n == device.cap) {
        size_t cap = device.cap ? 2 * device.cap : 256;
        plim_stub_range *more = realloc(device.ranges, cap * sizeof *more);
        if (!more)
            return false;
        device.ranges = more;
        device.cap = cap;
    }
    size_t i = range_at_or_after(r.begin);
    memmove(device.ranges + i + 1, device.ranges + i, (device.n - i) * sizeof r);
    device.ranges[i] = r;
    device.n++;
    return true;
}

static void erase_range(size_t i)
{
    device.n--;
    memmove(device.ranges + i, device.ranges + i + 1, (device.n - i) * sizeof *device.ranges);
}

/* The index of the range that begins at addr; n: none does. */
static size_t range_at(uint64_t addr)
{
    size_t i = range_at_or_after(addr);
    return i < device.n && device.ranges[i].begin == addr ? i : device.n;
}

/* Adds bytes to what is used, and tells others. */
static void count_used(uint64_t taken, uint64_t given)
{
    uint64_t *seen = plim_stub_ledger(0);
    device.used += taken - given;
    if (seen)
        *seen = device.card.context + device.used;
}

static bool take_memory(uint64_t bytes)
{
    const plim_stub_card *c = plim_stub_card_get();
    if (!c || bytes > c->total - c->context || device.used > c->total - c->context - bytes)
        return false;
    count_used(bytes, 0);
    return true;
}

/* New addresses, of no memory; the gap stops what runs past the end. */
static uint64_t reserve_addresses(uint64_t bytes, uint64_t align)
{
    align = align > PLIM_STUB_PAGE ? align : PLIM_STUB_PAGE;
    uint64_t begin = round_up(device.next, align);
    if (bytes > ADDR_END - ADDR_FIRST || begin + bytes + PLIM_STUB_PAGE > ADDR_END)
        return 0;
    device.next = begin + round_up(bytes, PLIM_STUB_PAGE) + PLIM_STUB_PAGE;
    return begin;
}

/* Memory lies where the driver of a card would put it; what cuMemCreate makes has no address. */
static uint64_t place_range(uint64_t bytes, enum plim_stub_kind kind)
{
    uint64_t addr = 0;
    if (kind != PLIM_STUB_DEVICE)
        return reserve_addresses(bytes, 0);
    return plim_vgpu_places_take(device.places, bytes, &addr, NULL) ? 0 : addr;
}

static void unplace_range(uint64_t addr, enum plim_stub_kind kind)
{
    if (addr && kind == PLIM_STUB_DEVICE)
        plim_vgpu_places_give(device.places, addr);
}

static uint64_t new_range(uint64_t bytes, enum plim_stub_kind kind)
{
    uint64_t whole = round_up(bytes, PLIM_STUB_PAGE);
    if (bytes > ADDR_END || !take_memory(whole))
        return 0;
    uint64_t begin = place_range(whole, kind);
    plim_stub_range r = {.begin = begin, .bytes = bytes, .refs = 1, .kind = kind};
    if (begin && insert_range(r))
        return begin;
    unplace_range(begin, kind);
    count_used(0, whole);
    return 0;
}

/* Less than a page: next to the small ones before it, if there is room. */
static uint64_t new_small(uint64_t bytes)
{
    uint64_t begin = device.small, n = round_up(bytes, SMALL_ALIGN);
    plim_stub_range r = {.begin = begin, .bytes = bytes, .kind = PLIM_STUB_DEVICE};
    if (device.small_end - begin < n) {
        begin = new_range(bytes, PLIM_STUB_DEVICE);
        device.small_end = begin ? begin + PLIM_STUB_PAGE : 0;
    } else if (!insert_range(r))
        return 0;
    device.small = begin ? begin + n : 0;
    return begin;
}

/* A small range gives its page back when it was the last one there. */
static bool shares_page(size_t i)
{
    uint64_t page = page_of(device.ranges[i].begin);
    return (i && page_of(device.ranges[i - 1].begin) == page) ||
           (i + 1 < device.n && page_of(device.ranges[i + 1].begin) == page);
}

static void give_back(size_t i)
{
    const plim_stub_range r = device.ranges[i];
    if (!shares_page(i)) {
        count_used(0, round_up(r.bytes, PLIM_STUB_PAGE));
        unplace_range(page_of(r.begin) * PLIM_STUB_PAGE, r.kind);
        if (device.small_end && page_of(r.begin) == page_of(device.small_end - 1))
            device.small = device.small_end = 0;
    }
    erase_range(i);
}

static void release_physical(uint64_t physical)
{
    size_t i = range_at(physical);
    if (i < device.n && device.ranges[i].kind == PLIM_STUB_PHYSICAL &&
        !--device.ranges[i].refs)
        give_back(i);
}

/* ---- the same, for everybody ----------------------------------------------------- */

static void lock_device(void) { pthread_mutex_lock(&device.lock); }
static void unlock_device(void) { pthread_mutex_unlock(&device.lock); }

uint64_t plim_stub_malloc(uint64_t bytes)
{
    lock_device();
    uint64_t begin =
        bytes < PLIM_STUB_PAGE ? new_small(bytes) : new_range(bytes, PLIM_STUB_DEVICE);
    unlock_device();
    return begin;
}

uint64_t plim_stub_physical(uint64_t bytes)
{
    lock_device();
    uint64_t begin = new_range(bytes, PLIM_STUB_PHYSICAL);
    unlock_device();
    return begin;
}

uint64_t plim_stub_reserve(uint64_t bytes, uint64_t align)
{
    lock_device();
    uint64_t begin = reserve_addresses(bytes, align);
    unlock_device();
    return begin;
}

uint64_t plim_stub_share(uint64_t bytes)
{
    lock_device();
    uint64_t begin = reserve_addresses(bytes, PLIM_STUB_PAGE);
    if (begin && !insert_range((plim_stub_range){
                     .begin = begin, .bytes = bytes, .kind = PLIM_STUB_SHARED}))
        begin = 0;
    unlock_device();
    return begin;
}

bool plim_stub_map(uint64_t begin, uint64_t bytes, uint64_t physical)
{
    lock_device();
    size_t i = range_at(physical);
    enum plim_stub_kind kind = i < device.n ? device.ranges[i].kind : PLIM_STUB_NONE;
    bool ok = kind == PLIM_STUB_PHYSICAL || kind == PLIM_STUB_SHARED;
    if (kind == PLIM_STUB_PHYSICAL)
        device.ranges[i].refs++;
    ok = ok && insert_range((plim_stub_range){
                   .begin = begin, .bytes = bytes, .of = physical, .kind = PLIM_STUB_MAPPED});
    unlock_device();
    return ok;
}

bool plim_stub_unmap(uint64_t begin, uint64_t bytes)
{
    bool any = false;
    lock_device();
    for (size_t i; (i = range_at_or_after(begin)) < device.n &&
                   device.ranges[i].begin - begin < bytes;) {
        uint64_t of = device.ranges[i].of;
        if (device.ranges[i].kind != PLIM_STUB_MAPPED)
            break;
        erase_range(i);
        release_physical(of);
        any = true;
    }
    unlock_device();
    return any;
}

static bool register_range(uint64_t begin, uint64_t bytes, enum plim_stub_kind kind)
{
    lock_device();
    bool ok = insert_range((plim_stub_range){.begin = begin, .bytes = bytes, .kind = kind});
    unlock_device();
    return ok;
}

bool plim_stub_host_register(uint64_t begin, uint64_t bytes)
{
    return register_range(begin, bytes, PLIM_STUB_HOST);
}

static uint64_t malloc_range(uint64_t bytes, enum plim_stub_kind kind)
{
    void *p = NULL;
    if (posix_memalign(&p, 4096, bytes ? bytes : 1))
        return 0;
    if (!register_range((uint64_t)(uintptr_t)p, bytes, kind)) {
        free(p);
        return 0;
    }
    return (uint64_t)(uintptr_t)p;
}

uint64_t plim_stub_host_malloc(uint64_t bytes) { return malloc_range(bytes, PLIM_STUB_HOST); }
uint64_t plim_stub_managed_malloc(uint64_t bytes)
{
    return malloc_range(bytes, PLIM_STUB_MANAGED);
}

bool plim_stub_free(uint64_t begin)
{
    lock_device();
    size_t i = range_at(begin);
    bool found = i < device.n;
    enum plim_stub_kind kind = found ? device.ranges[i].kind : PLIM_STUB_NONE;
    if (kind == PLIM_STUB_DEVICE)
        give_back(i);
    else if (kind == PLIM_STUB_PHYSICAL)
        release_physical(begin);
    else if (found)
        erase_range(i);
    unlock_device();
    if (kind == PLIM_STUB_MANAGED)
        free((void *)(uintptr_t)begin);
    return found;
}

void plim_stub_mem_info(uint64_t *free_bytes, uint64_t *total)
{
    const plim_stub_card *c = plim_stub_card_get();
    lock_device();
    *total = c ? c->total : 0;
    *free_bytes = c ? c->total - c->context - device.used : 0;
    unlock_device();
}

plim_stub_range plim_stub_find(uint64_t addr)
{
    plim_stub_range r = {.kind = PLIM_STUB_NONE};
    lock_device();
    size_t i = range_at_or_after(addr);
    if (i == device.n || device.ranges[i].begin > addr)
        i = i ? i - 1 : device.n;
    if (i < device.n && addr - device.ranges[i].begin < device.ranges[i].bytes)
        r = device.ranges[i];
    unlock_device();
    return r;
}

static bool on_card(const void *p)
{
    return (uintptr_t)p >= ADDR_FIRST && (uintptr_t)p < ADDR_END;
}

enum { ANSWERS = 16 };
static _Thread_local struct {
    uint64_t number[ANSWERS];
    unsigned n, next;
} answers;

void plim_stub_answer(const uint64_t *numbers, unsigned n)
{
    answers.n = n < ANSWERS ? n : ANSWERS;
    answers.next = 0;
    if (n)
        memcpy(answers.number, numbers, answers.n * sizeof *numbers);
}

enum { UPLOAD = 16 << 10 };
static _Thread_local struct {
    uint64_t to, n;
    unsigned char bytes[UPLOAD];
} upload;

static void keep_upload(const void *to, const void *from, uint64_t bytes)
{
    upload.to = (uintptr_t)to;
    upload.n = !on_card(from) && bytes <= UPLOAD ? bytes : 0;
    if (upload.n)
        memcpy(upload.bytes, from, upload.n);
}

bool plim_stub_uploaded(uint64_t to, void *out, uint64_t bytes)
{
    if (!bytes || upload.to != to || upload.n != bytes)
        return false;
    memcpy(out, upload.bytes, bytes);
    return true;
}

void plim_stub_copy(void *to, const void *from, uint64_t bytes)
{
    if (bytes && on_card(to))
        keep_upload(to, from, bytes);
    if (on_card(to) || !bytes)
        return;
    if (!on_card(from)) {
        memmove(to, from, bytes);
        return;
    }
    memset(to, 0, bytes);
    if (answers.next < answers.n) {
        const uint64_t *number = &answers.number[answers.next++];
        memcpy(to, number, bytes < sizeof *number ? bytes : sizeof *number);
        return;
    }
    void (*call)(uint64_t) = atomic_load(&device.read);
    if (call)
        call(bytes);
}

void plim_stub_on_read(void (*call)(uint64_t)) { atomic_store(&device.read, call); }

void plim_stub_on_memory(plim_stub_memory call, unsigned cards)
{
    device.cards = cards;
    atomic_store(&device.memory, call);
}

unsigned plim_stub_cards(void)
{
    return !plim_stub_card_get() ? 0 : atomic_load(&device.memory) ? device.cards : 1;
}

void plim_stub_card_memory(unsigned card, uint64_t *free_bytes, uint64_t *total)
{
    plim_stub_memory other = atomic_load(&device.memory);
    if (other)
        other(card, free_bytes, total);
    else
        plim_stub_mem_info(free_bytes, total);
}

/* ---- the rest ----------------------------------------------------------------------- */

void *plim_stub_handle(void) { return (void *)atomic_fetch_add(&device.handle, 0x10); }

int64_t plim_stub_setting(const char *name, int64_t otherwise)
{
    const char *z = getenv(name);
    return z && *z ? strtoll(z, NULL, 10) : otherwise;
}

int plim_stub_missing(const char *name, atomic_bool *said, int code)
{
    if (plim_stub_setting("PLIMSOLL_STUB_LOG", 0) && !atomic_exchange(said, true))
        fprintf(stderr, "plimsoll: stub: '%s' is not implemented\n", name);
    return code;
}

/* Where an interface has two generations, the newer one goes by the plain name. */
void *plim_stub_driver(const char *name)
{
    char newer[128];
    void *lib = dlopen("libcuda.so.1", RTLD_LAZY), *f = NULL;
    if (!lib)
        return NULL;
    if (snprintf(newer, sizeof newer, "%s_v2", name) < (int)sizeof newer)
        f = dlsym(lib, newer);
    return f ? f : dlsym(lib, name);
}
