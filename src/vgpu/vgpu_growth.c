/* vgpu_growth.c -- memory that grows from step to step, read from the tape.
 *
 * What is live at the ends of optimizer steps is compared, line by line.  Steps up to the
 * first one of each optimizer do not count: gradients, optimizer state and caches appear
 * there.  Over few steps growth cannot be told from what fills up and stays: it is only
 * what may be, and the rule is strict. */
#include "vgpu/vgpu_priv.h"

#include <stdlib.h>

enum {
    PERIODS = 3,     /* of growth at least */
    FEW_STEPS = 2,   /* that show what may be growth */
    SAME_STEPS = 4,  /* by which a single tensor has grown by the same number of bytes */
    MOST_ENDS = 256, /* of steps, the last ones */
    BLOCK = 512,     /* the allocator's rounding */
};

typedef struct line_live { /* tensors of a line */
    uint64_t count, bytes;
} line_live;

typedef struct line_ends {
    line_live now, *at; /* at the ends of steps */
    line_live kept;     /* what each step leaves: tensors of the same sizes, which stay */
    uint64_t old; /* live at the last end, allocated in the older two thirds of the steps */
} line_ends;

/* More of them at each end than `period` ends before. */
static bool counts_grow(const line_live *at, uint32_t n, uint32_t period)
{
    for (uint32_t i = period; i < n; i++)
        if (at[i].count <= at[i - period].count)
            return false;
    return true;
}

/* As many, larger by the same number of bytes each time: x = torch.cat([x, y]). */
static bool bytes_grow(const line_live *at, uint32_t n)
{
    plim_assert(n > 1);
    for (uint32_t i = 1; i < n; i++)
        if (at[i].count != at[0].count || at[i].bytes <= at[i - 1].bytes ||
            at[i].bytes - at[i - 1].bytes != at[1].bytes - at[0].bytes)
            return false;
    return n > SAME_STEPS;
}

/* What is allocated and freed again, later, is not growth: longer sequences may leave more
 * tensors in each step, so some of them have to be old. */
static bool ends_grow(const line_ends *e, uint32_t first, uint32_t n, vgpu_growth *out)
{
    plim_assert(n > first);
    const line_live *at = e->at + first;
    uint32_t ends = n - first, steps = ends - 1;
    for (uint32_t period = 1; period * PERIODS <= steps; period++) {
        if (!counts_grow(at, ends, period))
            continue;
        uint32_t periods = steps / period, from = steps - periods * period;
        uint64_t more = at[steps].count - at[from].count;
        if (at[steps].bytes <= at[from].bytes || e->old * PERIODS < more)
            return false;
        *out = (vgpu_growth){.every = period,
                             .bytes = (at[steps].bytes - at[from].bytes) / periods,
                             .tensors = (more + periods / 2) / periods};
        return true;
    }
    if (!bytes_grow(at, ends))
        return false;
    *out = (vgpu_growth){.every = 1, .bytes = at[1].bytes - at[0].bytes};
    return true;
}

/* The whole run, or else its second half, grows. */
static bool line_grows(const line_ends *e, uint32_t n, vgpu_growth *out)
{
    return ends_grow(e, 0, n, out) || (n / 2 > PERIODS && ends_grow(e, n / 2, n, out));
}

/* More of them at each end, and each step leaves some of the same size.  Caches by key, which
 * are filled when a key comes first, hold tensors of different sizes. */
static bool line_may_grow(const line_ends *e, uint32_t n, vgpu_growth *out)
{
    *out = (vgpu_growth){.every = 1, .bytes = e->kept.bytes, .tensors = e->kept.count};
    return e->kept.count && counts_grow(e->at, n, 1);
}

/* ---- from the tape ------------------------------------------------------------ */

typedef struct tape_ends {
    line_ends *lines;
    int32_t *birth;     /* of storages, the step; INT32_MAX: not live */
    int32_t first, end; /* steps whose ends count: first <= step < end */
    int32_t step;       /* under way */
} tape_ends;

static bool open_ends(const plim_vgpu *d, plim_arena *a, tape_ends *t)
{
    uint64_t n = (uint64_t)(t->end - t->first);
    t->lines = PLIM_NEW_N(a, line_ends, (uint64_t)d->n_lines + 1);
    t->birth = PLIM_NEW_N(a, int32_t, (uint64_t)d->tape.n_storages + 1);
    if (!t->lines || !t->birth)
        return false;
    for (uint32_t i = 0; i < d->n_lines; i++)
        if (!(t->lines[i].at = PLIM_NEW_N(a, line_live, n)))
            return false;
    return true;
}

/* All steps before this one have ended. */
static void end_steps(const plim_vgpu *d, tape_ends *t, int32_t step)
{
    plim_assert(t->first <= t->end);
    for (; t->step < step; t->step++)
        for (uint32_t i = 0; t->step >= t->first && t->step < t->end && i < d->n_lines; i++)
            t->lines[i].at[t->step - t->first] = t->lines[i].now;
}

static uint64_t round_up(uint64_t bytes) { return (bytes + BLOCK - 1) / BLOCK * BLOCK; }

static void follow_event(const plim_vgpu *d, tape_ends *t, plim_event e)
{
    if (e.kind != PLIM_EVENT_ALLOC && e.kind != PLIM_EVENT_FREE)
        return;
    line_live *now = &t->lines[d->origin[e.id].line].now;
    uint64_t bytes = round_up(plim_storage_bytes(&d->tape.storages[e.id], d->bound));
    bool fresh = e.kind == PLIM_EVENT_ALLOC;
    plim_assert(e.kind == PLIM_EVENT_ALLOC || now->count > 0);
    now->count += fresh ? 1 : UINT64_MAX; /* less one */
    now->bytes += fresh ? bytes : 0 - bytes;
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
        t->lines[d->origin[i].line].old += t->birth[i] > t->first && t->birth[i] < old;
}

typedef struct survivor { /* of a step after the first whose end counts */
    uint64_t bytes;
    uint32_t line;
    int32_t birth;
} survivor;

static int compare_survivors(const void *x, const void *y)
{
    const survivor *a = x, *b = y;
    if (a->line != b->line)
        return (a->line > b->line) - (a->line < b->line);
    return (a->bytes > b->bytes) - (a->bytes < b->bytes);
}

/* Survivors of one line and size: as many as each step has left at least are kept. */
static void keep_group(tape_ends *t, const survivor *s, uint32_t n)
{
    plim_assert(n > 0);
    uint32_t least = n;
    for (int32_t step = t->first + 1; step < t->end; step++) {
        uint32_t left = 0;
        for (uint32_t i = 0; i < n; i++)
            left += s[i].birth == step;
        least = PLIM_MIN(least, left);
    }
    t->lines[s->line].kept.count += least;
    t->lines[s->line].kept.bytes += least * round_up(s->bytes);
}

static bool find_kept(const plim_vgpu *d, plim_arena *a, tape_ends *t)
{
    uint32_t n = 0, first = 0;
    survivor *all = PLIM_NEW_N(a, survivor, (uint64_t)d->tape.n_storages + 1);
    if (!all)
        return false;
    for (uint32_t i = 0; i < d->tape.n_storages; i++)
        if (t->birth[i] > t->first && t->birth[i] < t->end)
            all[n++] = (survivor){.bytes = plim_storage_bytes(&d->tape.storages[i], d->bound),
                                  .line = d->origin[i].line,
                                  .birth = t->birth[i]};
    qsort(all, n, sizeof *all, compare_survivors);
    for (uint32_t i = 1; i <= n; i++)
        if (i == n || compare_survivors(&all[i - 1], &all[i]) != 0) {
            keep_group(t, all + first, i - first);
            first = i;
        }
    return true;
}

static int compare_growth(const void *x, const void *y)
{
    const vgpu_growth *a = x, *b = y;
    uint64_t p = a->bytes / a->every, q = b->bytes / b->every;
    return p != q ? (p < q) - (p > q) : (a->line > b->line) - (a->line < b->line);
}

plim_status plim__vgpu_growth(plim_vgpu *d, plim_arena *a, vgpu_growths *out, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    tape_ends t = {.first = d->warm + 1, .end = d->at.step};
    bool sure = t.end - t.first > PERIODS;
    t.first = sure ? PLIM_MAX(t.first, t.end - MOST_ENDS) : d->warm;
    *out = (vgpu_growths){0};
    if (d->truncated || t.end - t.first <= FEW_STEPS)
        return PLIM_OK;
    out->rows = PLIM_NEW_N(a, vgpu_growth, (uint64_t)d->n_lines + 1);
    bool ok = out->rows && open_ends(d, &scratch, &t);
    if (ok)
        read_ends(d, &t);
    ok = ok && (sure || find_kept(d, &scratch, &t));
    uint32_t n = (uint32_t)(t.end - t.first);
    for (uint32_t i = 0; ok && i < d->n_lines; i++) {
        vgpu_growth *row = &out->rows[out->n];
        if (!d->lines[i].bounded && (sure ? line_grows : line_may_grow)(&t.lines[i], n, row)) {
            row->line = i;
            out->n++;
        }
    }
    plim_arena_free(&scratch);
    if (!ok)
        return plim_oom(err);
    qsort(out->rows, out->n, sizeof *out->rows, compare_growth);
    out->steps = n - 1;
    out->sure = sure;
    return PLIM_OK;
}

plim_status plim_vgpu_first_step(plim_vgpu *d, plim_err *err)
{
    enum { MOST_WARM = 8 }; /* steps: later on, new optimizers are part of the loop */
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    if (d->at.step < MOST_WARM)
        d->warm = PLIM_MAX(d->warm, d->at.step);
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
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

static bool is_growing(const vgpu_growths *g, uint32_t line)
{
    for (uint32_t i = 0; i < g->n; i++)
        if (g->rows[i].line == line)
            return true;
    return false;
}

uint32_t plim_vgpu_growing_blocks(plim_vgpu *d, plim_vgpu_growing *out, uint32_t max)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    vgpu_growths g;
    uint32_t n = 0;
    pthread_mutex_lock(&d->lock);
    bool ok = !plim__vgpu_growth(d, &scratch, &g, NULL) && g.n;
    growing_row *rows = ok ? PLIM_NEW_N(&scratch, growing_row, d->n_slots) : NULL;
    for (uint32_t i = 0; rows && i < d->n_slots; i++) {
        const vgpu_slot *s = &d->slots[i];
        if (s->block != PLIM_NONE && is_growing(&g, s->line))
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

plim_status plim_vgpu_bounded(plim_vgpu *d, uint32_t line, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    const char *none;
    plim_status st = plim__vgpu_line_word(d, line, NULL, &none, err);
    if (!st)
        d->lines[line].bounded = true;
    pthread_mutex_unlock(&d->lock);
    return st;
}
