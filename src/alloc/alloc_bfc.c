/* alloc_bfc.c -- the BFC allocator ("best fit with coalescing") of TensorFlow and JAX.
 *
 * With a card it takes its whole limit at the first request, as JAX does; without one, or if
 * told to, it grows region by region, each at least twice as large as the one before.
 *
 * BFC keeps its free chunks in 21 bins by size, each in order of size and address, and searches
 * them upwards: that is the order of one set.  It has one pool: what is freed can be used again
 * at once, on any stream.  It waits up to ten seconds for other threads to free memory before
 * it gives up; a tape has no other threads.  Regions stay until the process ends.
 *
 * src: xla/tsl/framework/bfc_allocator.cc (openxla/xla 00df9ee); docs/sources/bfc.md */
#include <stdio.h>

#include "alloc/chunks.h"

#define MIN_CHUNK 256u                     /* kMinAllocationSize: sizes are multiples of it */
#define FIRST_REGION (2ull << 20)          /* when it grows */
#define MOST_INTERNAL_WASTE (128ull << 20) /* a chunk with more than that to spare is cut */
#define LARGEST_REGION (1ull << 62)        /* doubling ends here: beyond any device */

typedef struct bfc {
    plim_chunks chunks; /* first: a bfc is a plim_alloc */
    uint64_t limit;     /* it never has more than that */
    uint64_t region;    /* the size of the next one */
    bool collects;      /* garbage_collection: frees unused regions before it gives up */
} bfc;

/* ---- settings ------------------------------------------------------------- */

typedef struct bfc_conf {
    bool preallocate, preallocate_given, garbage_collection;
    double fraction; /* of the card's memory; 0: not given */
    uint64_t limit;  /* 0: not given */
} bfc_conf;

static plim_status read_pair(bfc_conf *c, plim_str key, plim_str value, plim_err *err)
{
    if (plim_str_is(key, "preallocate")) {
        c->preallocate_given = true;
        return plim_alloc_conf_bool(key, value, &c->preallocate, err);
    }
    if (plim_str_is(key, "garbage_collection"))
        return plim_alloc_conf_bool(key, value, &c->garbage_collection, err);
    if (plim_str_is(key, "mem_fraction"))
        return plim_alloc_conf_share(key, value, &c->fraction, err);
    if (plim_str_is(key, "memory_limit_mb"))
        return plim_alloc_conf_mib(key, value, 1, &c->limit, err);
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "unknown setting '%.*s' of the BFC allocator: known are preallocate, "
                     "mem_fraction, memory_limit_mb and garbage_collection",
                     (int)PLIM_MIN(key.n, 40), key.p);
}

static plim_status read_conf(bfc_conf *c, plim_str text, plim_err *err)
{
    plim_status st = PLIM_OK;
    plim_str key, value;
    while (!st && text.n) {
        st = plim_alloc_conf_pair(&text, &key, &value, err);
        if (!st)
            st = read_pair(c, key, value, err);
    }
    return st;
}

static uint64_t round_bytes(uint64_t n) { return (n + MIN_CHUNK - 1) / MIN_CHUNK * MIN_CHUNK; }

/* src: CreateBFCAllocator in xla/pjrt/gpu/gpu_helpers.cc: the fraction is one of all memory of
 * the card, whatever is free, and is cut off to a byte */
static plim_status use_conf(bfc *b, const bfc_conf *c, const plim_alloc_options *o,
                            plim_err *err)
{
    static const double usual = 0.75; /* JAX since 0.4.1 */
    double fraction = o->fraction > 0 ? o->fraction : c->fraction > 0 ? c->fraction : usual;
    bool known = o->capacity || c->limit;
    bool preallocate = c->preallocate_given ? c->preallocate : known;
    if ((preallocate || c->fraction > 0) && !known)
        return plim_fail(err, PLIM_EUSAGE, 0, "%s needs the capacity of a device",
                         preallocate ? "preallocate:True" : "a memory fraction");
    b->limit = c->limit      ? c->limit
               : o->capacity ? (uint64_t)(fraction * (double)b->chunks.base.device.total)
                             : PLIM_DEVICE_UNLIMITED;
    b->region = round_bytes(preallocate ? b->limit : PLIM_MIN(b->limit, FIRST_REGION));
    plim_assert(b->limit > 0);
    b->collects = c->garbage_collection;
    b->chunks.base.device.asked |= !c->limit;
    return PLIM_OK;
}

/* ---- requests -------------------------------------------------------------- */

/* Takes a region; if the device has less, the largest one that tenths smaller and smaller
 * find.  The product is one of floats in BFC too. */
static bool take_region(bfc *b, uint64_t bytes, uint64_t least)
{
    static const float backpedal = 0.9f;
    while (!plim__chunks_grow(&b->chunks, bytes)) {
        uint64_t less = round_bytes((uint64_t)((float)bytes * backpedal));
        bytes = less < bytes ? less : bytes - MIN_CHUNK;
        if (b->chunks.base.full || bytes < least)
            return false;
    }
    return true;
}

static bool extend_pool(bfc *b, uint64_t size)
{
    uint64_t held = b->chunks.base.stats.reserved_bytes.current;
    plim_assert(held <= b->limit);
    uint64_t available = (b->limit - held) / MIN_CHUNK * MIN_CHUNK;
    bool doubled = false;
    if (size > available)
        return false;
    while (size > b->region) {
        b->region *= 2;
        doubled = true;
    }
    if (!take_region(b, PLIM_MIN(b->region, available), size))
        return false;
    if (!doubled)
        b->region = PLIM_MIN(b->region * 2, LARGEST_REGION);
    return true;
}

/* Returns the regions that are entirely free, if the request might fit then. */
static bool collect_garbage(bfc *b, uint64_t size)
{
    uint64_t idle = b->collects ? plim__chunks_idle(&b->chunks) : 0;
    if (!idle || size > b->limit - b->chunks.base.stats.reserved_bytes.current + idle)
        return false;
    plim__chunks_shrink(&b->chunks);
    b->chunks.base.stats.num_alloc_retries++;
    return true;
}

static bool should_cut(const bfc *b, uint32_t i, uint64_t size)
{
    plim_assert(b->chunks.nodes[i].key >= size);
    uint64_t has = b->chunks.nodes[i].key;
    return has >= size * 2 || has - size >= MOST_INTERNAL_WASTE;
}

static plim_status bfc_alloc(plim_alloc *h, uint64_t bytes, uint16_t stream, uint32_t *out,
                             plim_err *err)
{
    plim_assert(bytes > 0 && bytes < PLIM_ALLOC_MAX);
    bfc *b = (bfc *)h;
    uint64_t size = round_bytes(bytes);
    uint32_t i = plim__chunks_fit(&b->chunks, size);
    if (i == PLIM_NONE && (extend_pool(b, size) ||
                           (!h->full && collect_garbage(b, size) && extend_pool(b, size))))
        i = plim__chunks_fit(&b->chunks, size);
    if (i != PLIM_NONE)
        plim__chunks_serve(&b->chunks, i, size, should_cut(b, i, size), bytes, stream);
    if (h->full)
        return plim_oom(err);
    if (i == PLIM_NONE)
        plim_alloc_note_oom(h, bytes, size);
    *out = i;
    return PLIM_OK;
}

/* ---- out of memory --------------------------------------------------------- */

/* src: HumanReadableNumBytes in tsl/platform/numbers.cc, which divides whole numbers until one
 * step is left */
static plim_text readable_bytes(uint64_t n)
{
    static const char units[] = "KMGTPE";
    const char *unit = units;
    plim_text t;
    if (n < 1024) {
        snprintf(t.s, sizeof t.s, "%" PRIu64 "B", n);
        return t;
    }
    for (; n >= 1024 * 1024; unit++)
        n /= 1024;
    uint64_t scale = *unit == 'K' ? 10 : 100, part = n % 1024 * scale;
    uint64_t digits = part / 1024, rest = part % 1024; /* ties to even, as printf rounds */
    digits += rest > 512 || (rest == 512 && digits % 2);
    uint64_t whole = n / 1024 + digits / scale;
    snprintf(t.s, sizeof t.s, "%" PRIu64 ".%0*" PRIu64 "%ciB", whole, *unit == 'K' ? 1 : 2,
             digits % scale, *unit);
    return t;
}

/* The line that BFC itself logs; what raises the error, TensorFlow or JAX, says it otherwise. */
static void bfc_oom_text(const plim_alloc *h, plim_buf *out)
{
    plim_buf_printf(out,
                    "Allocator (GPU_%" PRIu32 "_bfc) ran out of memory trying to allocate %s "
                    "(rounded to %" PRIu64 ")",
                    h->number, readable_bytes(h->oom.requested).s, h->oom.tried);
}

static plim_status bfc_create(plim_arena *a, const plim_alloc_options *o, plim_alloc **out,
                              plim_err *err)
{
    bfc *b = PLIM_NEW(a, bfc);
    bfc_conf conf = {0};
    plim_alloc_options own = *o; /* PyTorch's settings do not concern it */
    own.conf = (plim_str){NULL, 0};
    own.fraction = 0;
    if (!b)
        return plim_oom(err);
    if (!(o->fraction >= 0 && o->fraction <= 1))
        return plim_fail(err, PLIM_EUSAGE, 0, "memory fraction is not between 0 and 1");
    plim_status st = plim__chunks_init(&b->chunks, a, &own, &plim_allocator_bfc, err);
    if (!st)
        st = read_conf(&conf, o->conf, err);
    if (!st)
        st = use_conf(b, &conf, o, err);
    if (!st)
        *out = &b->chunks.base;
    return st;
}

const plim_allocator plim_allocator_bfc = {
    .name = "bfc",
    .doc = "TensorFlow's and JAX's allocator (best fit with coalescing), byte for byte",
    .src = "xla/tsl/framework/bfc_allocator.cc; docs/sources/bfc.md",
    .create = bfc_create,
    .alloc = bfc_alloc,
    .release = plim__chunks_release,
    .blocks = plim__chunks_blocks,
    .address = plim__chunks_address,
    .oom_text = bfc_oom_text,
};
