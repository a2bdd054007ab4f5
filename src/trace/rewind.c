/* rewind.c -- what a program had when its recording began: the blocks at the end, and the actions
 * undone from the last to the first.
 *
 * A block that is undone leaves a free one, which is one with its neighbours that are free, as the
 * allocator never keeps two free ones side by side.  A free that is undone cuts the block out again,
 * with the bytes that the allocator gives to such a request. */
#include <stdlib.h>

#include "alloc/free_set.h"
#include "trace/recording.h"

typedef struct piece { /* its address: that of the node of the same number */
    uint64_t bytes, requested;
    uint16_t stream;
    bool live, small, expandable;
    bool first; /* of a segment that is not expandable */
} piece;

typedef struct rewinder {
    const plim_recording *r;
    plim_alloc *const *pools;
    plim_arena *a;
    piece *pieces;
    plim_fs_node *nodes;
    plim_fs *set; /* by address */
    uint32_t n, cap, cap_nodes, spare;
    bool full;
    bool lost; /* an action contradicts what later ones say */
} rewinder;

/* ---- pieces -------------------------------------------------------------------- */

static uint64_t end_of(const rewinder *w, uint32_t p)
{
    return w->nodes[p].addr + w->pieces[p].bytes;
}

/* The last piece that begins at the address or below. */
static uint32_t piece_from(const rewinder *w, uint64_t addr)
{
    return plim_fs_before(w->nodes, w->set, &(plim_fs_at){.addr = addr, .id = UINT32_MAX});
}

static uint32_t piece_at(const rewinder *w, uint64_t addr)
{
    uint32_t p = piece_from(w, addr);
    return p != PLIM_NONE && w->nodes[p].addr == addr ? p : PLIM_NONE;
}

/* The free piece in which these bytes lie. */
static uint32_t room_at(const rewinder *w, uint64_t addr, uint64_t bytes)
{
    uint32_t p = piece_from(w, addr);
    bool in = bytes && p != PLIM_NONE && !w->pieces[p].live && addr < end_of(w, p) &&
              bytes <= end_of(w, p) - addr;
    return in ? p : PLIM_NONE;
}

static bool is_empty(const rewinder *w, uint64_t addr, uint64_t bytes)
{
    if (!bytes || bytes > UINT64_MAX - addr)
        return false;
    uint32_t p = piece_from(w, addr + bytes - 1);
    return p == PLIM_NONE || end_of(w, p) <= addr;
}

static uint32_t add_piece(rewinder *w, uint64_t addr, const piece *like)
{
    piece copy = *like; /* `like` may be in the array that grows */
    uint32_t p = w->spare;
    if (p != PLIM_NONE) {
        w->spare = w->nodes[p].left;
    } else {
        if (!PLIM_PUSH_ROOM(w->a, w->pieces, w->n, w->cap) ||
            !PLIM_PUSH_ROOM(w->a, w->nodes, w->n, w->cap_nodes)) {
            w->full = true;
            return PLIM_NONE;
        }
        p = w->n++;
    }
    w->pieces[p] = copy;
    w->nodes[p] = (plim_fs_node){.addr = addr, .left = PLIM_NONE, .right = PLIM_NONE};
    plim_fs_insert(w->nodes, w->set, p);
    return p;
}

static void drop_piece(rewinder *w, uint32_t p)
{
    plim_fs_erase(w->nodes, w->set, p);
    w->nodes[p].left = w->spare;
    w->spare = p;
}

/* Whether `b` continues the segment of `a`. */
static bool continues_segment(const rewinder *w, uint32_t a, uint32_t b)
{
    if (a == PLIM_NONE || b == PLIM_NONE || end_of(w, a) != w->nodes[b].addr)
        return false;
    const piece *x = &w->pieces[a], *y = &w->pieces[b];
    return !y->first && x->stream == y->stream && x->expandable == y->expandable;
}

/* Two free pieces of a segment become one. */
static void join_free(rewinder *w, uint32_t a, uint32_t b)
{
    if (!continues_segment(w, a, b) || w->pieces[a].live || w->pieces[b].live)
        return;
    w->pieces[a].bytes += w->pieces[b].bytes;
    drop_piece(w, b);
}

static void make_free(rewinder *w, uint32_t p)
{
    w->pieces[p].live = false;
    w->pieces[p].requested = 0;
    uint32_t before = plim_fs_prev(w->nodes, w->set, p);
    join_free(w, p, plim_fs_next(w->nodes, w->set, p));
    join_free(w, before, p);
}

/* Cuts a free piece after `bytes`; the rest is a piece like it. */
static uint32_t cut_piece(rewinder *w, uint32_t p, uint64_t bytes)
{
    plim_assert(bytes && bytes < w->pieces[p].bytes);
    piece rest = w->pieces[p];
    rest.bytes -= bytes;
    rest.first = false;
    w->pieces[p].bytes = bytes;
    return add_piece(w, w->nodes[p].addr + bytes, &rest);
}

/* The bytes as a piece of their own, out of a free one. */
static uint32_t cut_out(rewinder *w, uint32_t p, uint64_t addr, uint64_t bytes)
{
    if (addr > w->nodes[p].addr)
        p = cut_piece(w, p, addr - w->nodes[p].addr);
    if (p != PLIM_NONE && bytes < w->pieces[p].bytes && cut_piece(w, p, bytes) == PLIM_NONE)
        return PLIM_NONE;
    return p;
}

/* ---- actions ------------------------------------------------------------------- */

static void undo_alloc(rewinder *w, const plim_action *a)
{
    uint32_t p = piece_at(w, a->addr);
    if (p == PLIM_NONE || !w->pieces[p].live || a->bytes > w->pieces[p].bytes)
        w->lost = true;
    else
        make_free(w, p);
}

/* Whether a block of the pool may lie in the free piece.  To which pool memory belongs that was given
 * back is not recorded, but by what lies in it. */
static bool takes_pool(rewinder *w, uint32_t p, bool small)
{
    bool alone = !continues_segment(w, plim_fs_prev(w->nodes, w->set, p), p) &&
                 !continues_segment(w, p, plim_fs_next(w->nodes, w->set, p));
    if (alone)
        w->pieces[p].small = small;
    return w->pieces[p].small == small;
}

static void undo_completed(rewinder *w, const plim_action *a)
{
    const plim_alloc *h = w->pools[w->r->streams[a->stream].pool];
    uint32_t p = room_at(w, a->addr, a->bytes);
    if (p == PLIM_NONE || w->pieces[p].stream != a->stream ||
        !takes_pool(w, p, a->bytes <= PLIM_SMALL_MAX)) {
        w->lost = true;
        return;
    }
    const uint64_t room = end_of(w, p) - a->addr;
    const uint64_t bytes = plim_alloc_block_bytes(h, a->bytes, room);
    if (bytes > room) {
        w->lost = true;
    } else if ((p = cut_out(w, p, a->addr, bytes)) != PLIM_NONE) {
        w->pieces[p].live = true;
        w->pieces[p].requested = a->bytes;
    }
}

/* What was taken from the device is all free. */
static void undo_taken(rewinder *w, const plim_action *a)
{
    bool maps = a->kind == PLIM_TRACE_SEGMENT_MAP;
    uint32_t p = maps ? room_at(w, a->addr, a->bytes) : piece_at(w, a->addr);
    bool whole = p != PLIM_NONE && w->pieces[p].expandable == maps && !w->pieces[p].live &&
                 (maps || (w->pieces[p].first && w->pieces[p].bytes == a->bytes));
    if (!whole)
        w->lost = true;
    else if ((p = cut_out(w, p, a->addr, a->bytes)) != PLIM_NONE)
        drop_piece(w, p);
}

static void undo_given_back(rewinder *w, const plim_action *a)
{
    enum { LARGE_PAGE = 20 << 20 };
    bool maps = a->kind == PLIM_TRACE_SEGMENT_UNMAP;
    piece fresh = {.bytes = a->bytes,
                   .stream = a->stream,
                   .small = maps ? a->bytes % LARGE_PAGE != 0 : a->bytes == PLIM_SMALL_SEGMENT,
                   .expandable = maps,
                   .first = !maps};
    if (!is_empty(w, a->addr, a->bytes)) {
        w->lost = true;
        return;
    }
    uint32_t p = add_piece(w, a->addr, &fresh);
    if (p == PLIM_NONE)
        return;
    uint32_t before = plim_fs_prev(w->nodes, w->set, p),
             after = plim_fs_next(w->nodes, w->set, p);
    if (continues_segment(w, p, after))
        w->pieces[p].small = w->pieces[after].small;
    if (continues_segment(w, before, p))
        w->pieces[p].small = w->pieces[before].small;
    make_free(w, p);
}

static void undo_action(rewinder *w, const plim_action *a)
{
    switch ((plim_trace_action)a->kind) {
    case PLIM_TRACE_ALLOC: undo_alloc(w, a); break;
    case PLIM_TRACE_FREE_COMPLETED: undo_completed(w, a); break;
    case PLIM_TRACE_SEGMENT_ALLOC:
    case PLIM_TRACE_SEGMENT_MAP: undo_taken(w, a); break;
    case PLIM_TRACE_SEGMENT_FREE:
    case PLIM_TRACE_SEGMENT_UNMAP: undo_given_back(w, a); break;
    case PLIM_TRACE_FREE_REQUESTED: /* in use until it is completed */
    case PLIM_TRACE_OOM: break;
    }
}

/* ---- the end, and the beginning -------------------------------------------------- */

/* Free blocks side by side, of a file that is not PyTorch's, stay apart. */
static void add_end(rewinder *w)
{
    for (uint32_t i = 0; i < w->r->n_segments && !w->full; i++) {
        const plim_recorded_segment *g = &w->r->segments[i];
        for (uint32_t k = g->first; k < g->first + g->n && !w->full; k++) {
            const plim_recorded_block *b = &w->r->blocks[k];
            if (!is_empty(w, b->addr, b->bytes))
                w->lost = true;
            else
                add_piece(w, b->addr,
                          &(piece){.bytes = b->bytes,
                                   .requested = PLIM_MIN(b->requested, b->bytes),
                                   .stream = g->stream,
                                   .live = b->state != PLIM_BLOCK_FREE,
                                   .small = g->small,
                                   .expandable = g->expandable,
                                   .first = k == g->first && !g->expandable});
        }
    }
}

/* Streams, of each first the segments that do not expand, then pools of those that do. */
static int compare_blocks(const void *a, const void *b)
{
    const plim_alloc_block *x = a, *y = b;
    if (x->stream != y->stream)
        return (x->stream > y->stream) - (x->stream < y->stream);
    if (x->expandable != y->expandable)
        return x->expandable - y->expandable;
    if (x->expandable && x->small != y->small)
        return x->small - y->small;
    return (x->addr > y->addr) - (x->addr < y->addr);
}

static bool is_same_space(const plim_alloc_block *a, const plim_alloc_block *b)
{
    return a->stream == b->stream && a->expandable && b->expandable && a->small == b->small;
}

/* Fills the address space of expandable segments: that of a stream and a pool is one. */
static bool fill_space(plim_arena *a, plim_rewound *out, const plim_alloc_block *b, uint32_t n)
{
    const uint64_t space = 9ull << 43; /* nine eighths of what no device has */
    uint64_t base = 0, at = 0;
    out->blocks = PLIM_NEW_N(a, plim_alloc_block, 2 * (uint64_t)n);
    for (uint32_t i = 0; i < n && out->blocks; i++) {
        plim_alloc_block gap = b[i];
        bool next = i && is_same_space(&b[i - 1], &b[i]);
        gap.state = PLIM_BLOCK_UNMAPPED;
        gap.requested = 0;
        gap.first = false;
        if (next && b[i].addr > at) {
            gap.addr = at;
            gap.bytes = b[i].addr - at;
            out->blocks[out->n++] = gap;
        }
        out->blocks[out->n++] = b[i];
        if (!b[i].expandable)
            continue;
        out->blocks[out->n - 1].first = !next;
        base = next ? base : b[i].addr;
        at = b[i].addr + b[i].bytes;
        gap.addr = at;
        gap.bytes = at - base < space ? space - (at - base) : 0;
        if (gap.bytes && (i + 1 == n || !is_same_space(&b[i], &b[i + 1])))
            out->blocks[out->n++] = gap;
    }
    return out->blocks != NULL;
}

static bool list_pieces(const rewinder *w, plim_rewound *out)
{
    uint32_t n = 0;
    plim_alloc_block *b = PLIM_NEW_N(w->a, plim_alloc_block, w->n);
    for (uint32_t p = plim_fs_first(w->nodes, w->set); b && p != PLIM_NONE;
         p = plim_fs_next(w->nodes, w->set, p), n++) {
        const piece *x = &w->pieces[p];
        b[n] = (plim_alloc_block){.addr = w->nodes[p].addr,
                                  .bytes = x->bytes,
                                  .requested = x->requested,
                                  .stream = x->stream,
                                  .state = x->live ? PLIM_BLOCK_ALLOCATED : PLIM_BLOCK_FREE,
                                  .small = x->small,
                                  .expandable = x->expandable,
                                  .first = x->first};
    }
    if (n)
        qsort(b, n, sizeof *b, compare_blocks);
    return (b || !w->n) && (!n || fill_space(w->r->arena, out, b, n));
}

plim_status plim_recording_rewind(const plim_recording *r, plim_alloc *const *pools,
                                  plim_rewound *out, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    rewinder w = {.r = r, .pools = pools, .a = &scratch, .spare = PLIM_NONE};
    *out = (plim_rewound){0};
    w.set = plim_fs_new(&scratch);
    w.full = !w.set || !PLIM_PUSH_ROOM(w.a, w.pieces, w.n, w.cap) ||
             !PLIM_PUSH_ROOM(w.a, w.nodes, w.n, w.cap_nodes);
    if (!w.full)
        add_end(&w);
    for (uint32_t i = r->n_actions; i-- > 0 && !w.lost && !w.full;)
        undo_action(&w, &r->actions[i]);
    out->lost = w.lost;
    bool good = !w.full && (w.lost || list_pieces(&w, out));
    plim_arena_free(&scratch);
    return good ? PLIM_OK : plim_oom(err);
}
