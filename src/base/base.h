/* base.h -- the base of all rooms: slices, checked sizes, the error helper, the arena. Nothing
 * here knows what a tensor is.
 *
 * Modelled quantities (bytes of a tensor, elements) are uint64_t or int64_t, never size_t: in
 * the browser size_t has 32 bits, and most interesting sizes are above 4 GB. */
#ifndef PLIM_BASE_H
#define PLIM_BASE_H

#include <inttypes.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "plimsoll.h"

#define PLIM_COUNT(a) (sizeof(a) / sizeof((a)[0]))
#define PLIM_MIN(a, b) ((a) < (b) ? (a) : (b))
#define PLIM_MAX(a, b) ((a) > (b) ? (a) : (b))

#if defined(__GNUC__)
#define PLIM_PRINTF(f, a) __attribute__((format(printf, f, a)))
#define PLIM_COLD __attribute__((cold, noinline)) /* kept out of hot code */
#else
#define PLIM_PRINTF(f, a)
#define PLIM_COLD
#endif

#ifdef PLIM_DEBUG
#include <assert.h>
#define plim_assert(x) assert(x) /* for our own mistakes, never for bad input */
#else
#define plim_assert(x) ((void)0)
#endif

/* ---- slices: borrowed bytes, not terminated ---------------------------- */

typedef struct plim_str {
    const char *p;
    size_t n;
} plim_str;

#define PLIM_STR(lit) ((plim_str){(lit), sizeof(lit) - 1})
#define PLIM_STR_FMT "%.*s"
#define PLIM_STR_ARG(s) (int)(s).n, (s).p
#define PLIM_STR_CUT(s) (int)PLIM_MIN((s).n, (size_t)80), (s).p /* for names in errors */

/* Of a letter of ASCII, whatever the locale. */
static inline char plim_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}
static inline plim_str plim_str_of(const char *z) { return (plim_str){z, z ? strlen(z) : 0}; }
static inline bool plim_str_eq(plim_str a, plim_str b)
{
    return a.n == b.n && (a.n == 0 || memcmp(a.p, b.p, a.n) == 0);
}
static inline bool plim_str_is(plim_str a, const char *z)
{
    return plim_str_eq(a, plim_str_of(z));
}
static inline bool plim_str_has(plim_str a, const char *part)
{
    size_t n = strlen(part);
    for (size_t i = 0; i + n <= a.n; i++)
        if (!memcmp(a.p + i, part, n))
            return true;
    return false;
}
static inline bool plim_str_starts(plim_str a, const char *z)
{
    size_t n = strlen(z);
    return a.n >= n && memcmp(a.p, z, n) == 0;
}
static inline bool plim_str_ends(plim_str a, plim_str end)
{
    return a.n >= end.n && plim_str_eq((plim_str){a.p + (a.n - end.n), end.n}, end);
}

int plim_str_compare(plim_str a, plim_str b); /* by bytes, with the result that qsort needs */

/* Sorts the list and returns the first text that occurs twice, or {NULL, 0}.  Unlike with a
 * map, names crafted to collide do not make it slower. */
plim_str plim_str_twice(plim_str *list, uint64_t n);

/* ---- checked 64-bit sizes ---------------------------------------------- */

/* *out = a op b; false (and *out untouched) if the result does not fit. */
static inline bool plim_mul(uint64_t a, uint64_t b, uint64_t *out)
{
#if defined(__GNUC__) /* a division takes longer than the rest of an allocation */
    uint64_t r;
    if (__builtin_mul_overflow(a, b, &r))
        return false;
    *out = r;
#else
    if (b && a > UINT64_MAX / b)
        return false;
    *out = a * b;
#endif
    return true;
}
static inline bool plim_add(uint64_t a, uint64_t b, uint64_t *out)
{
    if (a > UINT64_MAX - b)
        return false;
    *out = a + b;
    return true;
}

/* For counts that are only shown: saturates instead of overflowing. */
static inline uint64_t plim_sat_add(uint64_t a, uint64_t b)
{
    return a > UINT64_MAX - b ? UINT64_MAX : a + b;
}
static inline uint64_t plim_sat_sub(uint64_t a, uint64_t b) { return a > b ? a - b : 0; }
static inline uint64_t plim_sat_mul(uint64_t a, uint64_t b)
{
    uint64_t r;
    return plim_mul(a, b, &r) ? r : UINT64_MAX;
}
static inline uint64_t plim_ceil_div(uint64_t n, uint64_t of)
{
    plim_assert(of > 0);
    return n / of + (n % of != 0);
}
static inline uint64_t plim_round_up(uint64_t n, uint64_t of)
{
    plim_assert(of > 0);
    return plim_sat_add(n, (of - n % of) % of);
}

/* ---- errors ------------------------------------------------------------ */

/* Records the first error and returns `code`, so a call site stays one line.
 * Grammar: lower case, problem first, subject in single quotes, both numbers
 * of a violated bound, no full stop.  `at` is a byte offset or an index. */
plim_status plim_fail(plim_err *err, plim_status code, uint64_t at, const char *fmt, ...)
    PLIM_PRINTF(4, 5);
#ifdef __clang_analyzer__ /* does not see that a failure is never PLIM_OK */
#define plim_fail(err, code, ...) (plim_fail((err), (code), __VA_ARGS__), (code))
#endif

/* Forgets an error that turned out to be none, or not the one to report. */
void plim_err_clear(plim_err *err);
/* Puts context before an error already recorded: "cannot load 'm.pt2': ..." */
void plim_err_prefix(plim_err *err, const char *fmt, ...) PLIM_PRINTF(2, 3);

plim_status plim_oom(plim_err *err); /* our own memory, not the modelled GPU */
#ifdef __clang_analyzer__
#define plim_oom(err) (plim_oom(err), PLIM_ENOMEM)
#endif

/* At the start of a public function: an argument that must not be NULL. */
#define PLIM_REQUIRE(arg, err)                                                                \
    do {                                                                                      \
        if (!(arg))                                                                           \
            return plim_fail((err), PLIM_EUSAGE, 0, "argument '%s' is NULL", #arg);           \
    } while (0)

/* Returns the status of a call that fails. */
#define PLIM_TRY(call)                                                                        \
    do {                                                                                      \
        plim_status try_status = (call);                                                      \
        if (try_status)                                                                       \
            return try_status;                                                                \
    } while (0)

/* Hands text to the caller; PLIM_EIO if the caller's function reports a failure. */
plim_status plim_put_out(plim_put put, void *ud, plim_str text, plim_err *err);
plim_status plim_unput(plim_err *err); /* says so */

/* Fills a struct of the caller that begins with its size: copies as much of `from` as it has
 * room for, and leaves that size as it is. */
void plim_copy_out(void *to, const void *from, size_t size);

/* ---- memory of the process ------------------------------------------------- */

/* Arenas and files together hold no more than plim_limit_memory allows.  Counts bytes that are about
 * to be allocated; false: they would be too many.  Any thread. */
bool plim_memory_take(uint64_t bytes);
void plim_memory_give(uint64_t bytes);

/* Work on one input.  From _begin to _end, on the thread that does it: all that arenas and files take
 * together may be in proportion to the input's bytes, with a floor (PLIM_BUDGET_FREE: has no such limit,
 * nor has work for which a limit was set); and where memory could not be had, the whole work has failed,
 * whatever became of the function that missed it.  May be nested. */
typedef struct plim_budget {
    struct plim_budget *outer;
    uint64_t input, limit, held;
    bool two;    /* on two inputs */
    bool over;   /* its own limit refused memory */
    bool failed; /* something else did */
} plim_budget;
#define PLIM_BUDGET_FREE UINT64_MAX
void plim_budget_begin(plim_budget *b, uint64_t input);
/* The same for work on two inputs together, after work on each, which has ended: what that still holds
 * counts.  One without a limit is as large as what it holds. */
void plim_budget_join(plim_budget *both, const plim_budget *a, const plim_budget *b);
/* st, or PLIM_ENOMEM and in *err the limit that was met. */
plim_status plim_budget_end(plim_budget *b, plim_status st, plim_err *err);
void plim_budget_failed(void); /* memory could not be had */

/* For tests of one thread: of the next allocations the n-th fails; 0: none, or it has failed. */
extern uint64_t plim_memory_fail_in;
static inline bool plim_memory_fails(void)
{
    return plim_memory_fail_in && !--plim_memory_fail_in;
}
uint64_t plim_memory_held(void); /* bytes taken and not given back */

/* ---- arena: an owner for a result, with a hard cap --------------------- */

typedef struct plim_arena_chunk plim_arena_chunk;
typedef struct plim_arena {
    plim_arena_chunk *head;
    plim_arena_chunk *spare; /* empty chunks left by a reset */
    plim_arena_chunk *large; /* one for each large array that grew by PLIM_GROW_ROOM */
    uint64_t used;           /* bytes handed out */
    uint64_t limit;          /* 0: none but the process's */
    uint64_t fail_after;     /* for tests: the number of the allocation that fails; 0: none */
    uint64_t calls;
    bool lean; /* large pages later: saves memory at the cost of some time */
} plim_arena;

#define PLIM_ARENA_INIT                                                                       \
    {                                                                                         \
        0                                                                                     \
    }

/* Zeroed, 16-aligned memory that lives until the arena is freed; NULL when the limit would be
 * exceeded or malloc fails.  n * size is checked here and nowhere else. */
void *plim_arena_new(plim_arena *a, uint64_t n, uint64_t size);
void plim_arena_free(plim_arena *a); /* harmless on PLIM_ARENA_INIT, and twice */
/* Discards everything handed out but keeps the memory for reuse. */
void plim_arena_reset(plim_arena *a);
/* All that `from` holds becomes a's; `from` is empty then. */
void plim_arena_adopt(plim_arena *a, plim_arena *from);
plim_str plim_arena_str(plim_arena *a,
                        plim_str s); /* a copy, NUL after it; {NULL,0} on failure */
plim_str plim_arena_printf(plim_arena *a, const char *fmt, ...) PLIM_PRINTF(2, 3);
plim_str plim_arena_vprintf(plim_arena *a, const char *fmt, va_list ap) PLIM_PRINTF(2, 0);
/* `before`, `between` if there is something before, and what is formatted; {NULL,0} on failure */
plim_str plim_arena_append(plim_arena *a, plim_str before, const char *between,
                           const char *fmt, ...) PLIM_PRINTF(4, 5);

#define PLIM_NEW_N(a, T, n) ((T *)plim_arena_new((a), (uint64_t)(n), sizeof(T)))
#define PLIM_NEW(a, T) PLIM_NEW_N(a, T, 1)

/* A growing array whose items live in the arena (old copies stay there until
 * it is freed: at most as much again).  Makes room for one more item:
 *     if (!PLIM_PUSH_ROOM(a, v.items, v.n, v.cap)) return plim_oom(err);
 *     v.items[v.n++] = x; */
#define PLIM_PUSH_ROOM(a, items, n, cap)                                                      \
    ((n) < (cap)                                                                              \
         ? true                                                                               \
         : (plim_arena_grow_to((a), (void **)&(items), (n), &(cap), sizeof *(items))))
bool plim_arena_grow_to(plim_arena *a, void **items, uint64_t n, uint32_t *cap, uint64_t size);

/* The same for an array that may have millions of items, which grew by nothing else: its old copy is
 * given back, so that nothing may point into it. */
#define PLIM_GROW_ROOM(a, items, n, cap)                                                      \
    ((n) < (cap)                                                                              \
         ? true                                                                               \
         : (plim_arena_move_to((a), (void **)&(items), (n), &(cap), sizeof *(items))))
bool plim_arena_move_to(plim_arena *a, void **items, uint64_t n, uint32_t *cap, uint64_t size);

/* qsort, of what is not in order already; its own copy of the items counts as memory that is taken until
 * it has sorted them.  false: it may not be taken. */
bool plim_sort_items(void *items, uint64_t n, uint64_t size,
                     int (*compare)(const void *, const void *));

/* For tables; of texts that a file chose, two may have the same. */
static inline uint64_t plim_str_hash(plim_str s)
{
    const uint64_t k = 0x9e3779b97f4a7c15ull;
    uint64_t h = s.n, w = 0;
    for (; s.n > sizeof w; s.p += sizeof w, s.n -= sizeof w) {
        memcpy(&w, s.p, sizeof w);
        h = (h ^ w) * k;
        h ^= h >> 32;
    }
    w = 0;
    if (s.n)
        memcpy(&w, s.p, s.n);
    h = (h ^ w) * k;
    return h ^ h >> 32;
}

/* ---- string -> u32 map (names to ids) ---------------------------------- */

typedef struct plim_map_slot {
    plim_str key; /* borrowed: must outlive the map */
    uint32_t value;
    uint32_t hash; /* 0: the slot is free */
} plim_map_slot;
typedef struct plim_map {
    plim_map_slot *slots;
    uint32_t n, cap;
} plim_map;

/* A pointer to the value of a key, which is 0 for a new key; NULL: no memory.  Valid until the
 * next call. */
uint32_t *plim_map_at(plim_arena *a, plim_map *m, plim_str key);
bool plim_map_put(plim_arena *a, plim_map *m, plim_str key,
                  uint32_t value); /* false: no memory */
bool plim_map_get(const plim_map *m, plim_str key, uint32_t *value);

/* ---- files ------------------------------------------------------------- */

struct plim_file;
typedef struct plim_bytes {
    const uint8_t *p;
    uint64_t n;
    struct plim_file *file; /* NULL: all bytes are there; else plim_bytes_need brings them */
} plim_bytes;

/* Opens a file for reading.  Its bytes have addresses, but are brought into memory as they are asked for:
 * of a file of gigabytes, a reader needs the header.  They are never mapped, so that one that somebody
 * cuts short meanwhile ends in an error and not in a signal.  A pipe is read to its end, up to 256 MiB,
 * and with `regular` refused.  PLIM_EIO names the file and the reason. */
plim_status plim_file_open(plim_bytes *out, const char *path, bool regular, plim_err *err);
/* The same, with all bytes. */
plim_status plim_file_read(plim_bytes *out, const char *path, plim_err *err);
/* Brings b.p[at] to b.p[at + n - 1], which lie in b, into memory; b may be a part of the file's
 * bytes.  Any number of threads.  PLIM_EIO: the file has become shorter, or cannot be read. */
plim_status plim_bytes_need(plim_bytes b, uint64_t at, uint64_t n, plim_err *err);
/* Copies b.p[at] to b.p[at + n - 1], which lie in b, and keeps nothing of the file in memory that is not
 * there already. */
plim_status plim_bytes_copy(plim_bytes b, uint64_t at, uint64_t n, void *to, plim_err *err);
/* For a reader that goes through bytes in order: as plim_bytes_need, unless they end before *there, up to
 * where the reader has asked for all that it came by; asks for more at once. */
plim_status plim_bytes_ahead(plim_bytes b, uint64_t *there, uint64_t at, uint64_t n,
                             plim_err *err);
/* Takes a part of a text and returns how many of its bytes it is done with: the others come again, before
 * those that follow.  `last`: none do.  It is done with some at the latest when it has a part of 64 KiB. */
typedef size_t plim_take(void *ud, plim_str text, bool last);
/* Hands over a file or a pipe from its beginning to its end, in parts: takes the same little memory whatever
 * its size, which for a file that is not regular is at most 16 GiB. */
plim_status plim_file_each(const char *path, plim_take *take, void *ud, plim_err *err);
void plim_file_close(plim_bytes *b);     /* of all of the file; harmless on {0} */
bool plim_file_exists(const char *path); /* or a folder, or not readable */
bool plim_file_is_folder(const char *path);
bool plim_file_is_absolute(const char *path); /* by its spelling */
/* Replaces what else separates folders on this system by '/', which all take. */
void plim_file_slashes(char *path);

#endif
