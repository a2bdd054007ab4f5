/* vgpu_growth.c -- memory that grows from step to step, read from the tape.
 *
 * What is live at the ends of optimizer steps is compared, line by line.  The first two
 * steps do not count: gradients, optimizer state and caches appear there. */
#include "vgpu/vgpu_priv.h"

#include <stdlib.h>

enum {
    WARM_UP = 2,     /* steps */
    PERIODS = 3,     /* of growth at least */
    SAME_STEPS = 4,  /* by which a single tensor has grown by the same number of bytes */
    MOST_ENDS = 256, /* of steps, the last ones */
    BLOCK = 512,     /* the allocator's rounding */
};

/* Live at the ends of steps, of one line. */
typedef struct line_ends {
    uint64_t *count, *bytes;
    uint64_t old; /* live at the last end, allocated in the older two thirds of the steps */
} line_ends;

/* More of them at each end than `period` ends before. */
static bool counts_grow(const uint64_t *count, uint32_t n, uint32_t period)
{
    for (uint32_t i = period; i < n; i++)
        if (count[i] <= count[i - period])
            return false;
    return true;
}

/* As many, larger by the same number of bytes each time: x = torch.cat([x, y]). */
static bool bytes_grow(const uint64_t *count, const uint64_t *bytes, uint32_t n)
{
    for (uint32_t i = 1; i < n; i++)
        if (count[i] != count[0] || bytes[i] <= bytes[i - 1] ||
            bytes[i] - bytes[i - 1] != bytes[1] - bytes[0])
            return false;
    return n > SAME_STEPS;
}

/* What is allocated and freed again, later, is no growth: longer sequences may leave more
 * tensors in each step, so some of them have to be old. */
static bool ends_grow(const line_ends *e, uint32_t first, uint32_t n, vgpu_growth *out)
{
    const uint64_t *count = e->count + first, *bytes = e->bytes + first;
    uint32_t ends = n - first, steps = ends - 1;
    for (uint32_t period = 1; period * PERIODS <= steps; period++) {
        if (!counts_grow(count, ends, period))
            continue;
        uint32_t periods = steps / period, from = steps - periods * period;
        uint64_t more = count[steps] - count[from];
        if (bytes[steps] <= bytes[from] || e->old * PERIODS < more)
            return false;
        *out = (vgpu_growth){.every = period,
                             .bytes = (bytes[steps] - bytes[from]) / periods,
                             .tensors = (more + periods / 2) / periods};
        return true;
    }
    if (!bytes_grow(count, bytes, ends))
        return false;
    *out = (vgpu_growth){.every = 1, .bytes = bytes[1] - bytes[0]};
    return true;
}

/* The whole run, or else its second half, grows. */
static bool line_grows(const line_ends *e, uint32_t n, vgpu_growth *out)
{
    if (n < PERIODS + 1)
        return false;
    return ends_grow(e, 0, n, out) || (n / 2 > PERIODS && ends_grow(e, n / 2, n, out));
}

/* ---- from the tape ------------------------------------------------------------ */

typedef struct tape_ends {
    line_ends *lines;
    uint64_t *count, *bytes; /* live now, by line */
    int32_t *birth;          /* of storages, the step; INT32_MAX: not live */
    int32_t first, end;      /* steps whose ends count: first <= step < end */
    int32_t step;            /* under way */
} tape_ends;

static bool open_ends(const plim_vgpu *d, plim_arena *a, tape_ends *t)
{
    uint64_t n = (uint64_t)(t->end - t->first);
    t->lines = PLIM_NEW_N(a, line_ends, (uint64_t)d->n_lines + 1);
    t->count = PLIM_NEW_N(a, uint64_t, (uint64_t)d->n_lines + 1);
    t->bytes = PLIM_NEW_N(a, uint64_t, (uint64_t)d->n_lines + 1);
    t->birth = PLIM_NEW_N(a, int32_t, (uint64_t)d->tape.n_storages + 1);
    if (!t->lines || !t->count || !t->bytes || !t->birth)
        return false;
    for (uint32_t i = 0; i < d->n_lines; i++) {
        t->lines[i].count = PLIM_NEW_N(a, uint64_t, n);
        t->lines[i].bytes = PLIM_NEW_N(a, uint64_t, n);
        if (!t->lines[i].count || !t->lines[i].bytes)
            return false;
    }
    return true;
}

/* All steps before this one have ended. */
static void end_steps(const plim_vgpu *d, tape_ends *t, int32_t step)
{
    for (; t->step < step; t->step++)
        for (uint32_t i = 0; t->step >= t->first && t->step < t->end && i < d->n_lines; i++) {
            t->lines[i].count[t->step - t->first] = t->count[i];
            t->lines[i].bytes[t->step - t->first] = t->bytes[i];
        }
}

static void follow_event(const plim_vgpu *d, tape_ends *t, plim_event e)
{
    if (e.kind != PLIM_EVENT_ALLOC && e.kind != PLIM_EVENT_FREE)
        return;
    uint32_t line = d->storage_line[e.id];
    uint64_t bytes = plim_storage_bytes(&d->tape.storages[e.id], d->bound);
    bytes = (bytes + BLOCK - 1) / BLOCK * BLOCK;
    bool fresh = e.kind == PLIM_EVENT_ALLOC;
    t->count[line] += fresh ? 1 : UINT64_MAX; /* less one */
    t->bytes[line] += fresh ? bytes : 0 - bytes;
    t->birth[e.id] = fresh ? t->step : INT32_MAX;
}

static void read_ends(const plim_vgpu *d, tape_ends *t)
{
    const plim_tape *tape = &d->tape;
    uint32_t mark = 0;
    t->step = -1;
    for (uint32_t i = 0; i < d->tape.n_storages; i++)
        t->birth[i] = INT32_MAX;
    for (uint32_t i = 0; i < tape->n_events && t->step < t->end; i++) {
        while (mark < tape->n_marks && tape->marks[mark].first <= i)
            end_steps(d, t, tape->marks[mark++].step);
        if (t->step < t->end)
            follow_event(d, t, tape->events[i]);
    }
    end_steps(d, t, t->end);
    int32_t old = t->end - (t->end - t->first) / PERIODS;
    for (uint32_t i = 0; i < tape->n_storages; i++)
        if (t->birth[i] < old)
            t->lines[d->storage_line[i]].old++;
}

static int compare_growth(const void *x, const void *y)
{
    const vgpu_growth *a = x, *b = y;
    uint64_t p = a->bytes / a->every, q = b->bytes / b->every;
    return p != q ? (p < q) - (p > q) : (a->line > b->line) - (a->line < b->line);
}

plim_status plim__vgpu_growth(plim_vgpu *d, plim_arena *a, vgpu_growth **out, uint32_t *n_out,
                              plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    tape_ends t = {.first = WARM_UP - 1, .end = d->at.step};
    *n_out = 0;
    *out = PLIM_NEW_N(a, vgpu_growth, (uint64_t)d->n_lines + 1);
    if (!*out)
        return plim_oom(err);
    if (d->truncated || t.end - t.first <= PERIODS)
        return PLIM_OK;
    t.first = PLIM_MAX(t.first, t.end - MOST_ENDS);
    bool ok = open_ends(d, &scratch, &t);
    if (ok)
        read_ends(d, &t);
    for (uint32_t i = 0; ok && i < d->n_lines; i++)
        if (line_grows(&t.lines[i], (uint32_t)(t.end - t.first), &(*out)[*n_out]))
            (*out)[(*n_out)++].line = i;
    plim_arena_free(&scratch);
    qsort(*out, *n_out, sizeof **out, compare_growth);
    return ok ? PLIM_OK : plim_oom(err);
}

/* ---- whose it is -------------------------------------------------------------- */

typedef struct growing_row {
    uint32_t storage;
    plim_vgpu_growing row;
} growing_row;

static int compare_age(const void *x, const void *y)
{
    const growing_row *a = x, *b = y;
    return (a->storage > b->storage) - (a->storage < b->storage);
}

static bool is_growing(const vgpu_growth *g, uint32_t n, uint32_t line)
{
    for (uint32_t i = 0; i < n; i++)
        if (g[i].line == line)
            return true;
    return false;
}

uint32_t plim_vgpu_growing_blocks(plim_vgpu *d, plim_vgpu_growing *out, uint32_t max)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    vgpu_growth *g;
    uint32_t n_growth, n = 0;
    pthread_mutex_lock(&d->lock);
    bool ok = !plim__vgpu_growth(d, &scratch, &g, &n_growth, NULL) && n_growth;
    growing_row *rows = ok ? PLIM_NEW_N(&scratch, growing_row, d->n_slots) : NULL;
    for (uint32_t i = 0; rows && i < d->n_slots; i++) {
        const vgpu_slot *s = &d->slots[i];
        if (s->block != PLIM_NONE && is_growing(g, n_growth, s->line))
            rows[n++] = (growing_row){
                .storage = s->storage,
                .row = {.line = s->line, .addr = plim_alloc_address(d->h, s->block)}};
    }
    if (n)
        qsort(rows, n, sizeof *rows, compare_age);
    for (uint32_t i = 0; i < n && i < max; i++)
        out[i] = rows[i].row;
    pthread_mutex_unlock(&d->lock);
    plim_arena_free(&scratch);
    return n;
}

plim_status plim_vgpu_holder(plim_vgpu *d, uint32_t line, const char *text, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    const char *own = NULL;
    plim_status st = plim__vgpu_line_word(d, line, text, &own, err);
    if (!st)
        d->lines[line].holder = own;
    pthread_mutex_unlock(&d->lock);
    return st;
}
