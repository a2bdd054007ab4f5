/* vgpu_report.c -- what was live at the peak and whose it was, read from the tape. */
#include "base/fmt.h"
#include "vgpu/vgpu_priv.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- what is live at the peak ------------------------------------------------- */

typedef struct live_row {
    const plim_storage *s;
    uint32_t line;
    uint64_t bytes;
} live_row;

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_dims(const plim_meta *a, const plim_meta *b)
{
    if (!a || !b)
        return (a != NULL) - (b != NULL);
    int c = (int)a->dtype - (int)b->dtype;
    c = c ? c : a->rank - b->rank;
    for (int32_t i = 0; !c && i < a->rank; i++)
        c = compare_u64((uint64_t)a->dim[i], (uint64_t)b->dim[i]);
    return c;
}

/* Of one line, of one kind, of one shape: one group. */
static int compare_group(const void *x, const void *y)
{
    const live_row *a = x, *b = y;
    int c = compare_u64(a->line, b->line);
    c = c ? c : (int)a->s->category - (int)b->s->category;
    c = c ? c : (int)a->s->certainty - (int)b->s->certainty;
    c = c ? c : compare_dims(a->s->meta, b->s->meta);
    return c || a->s->meta ? c : compare_u64(a->bytes, b->bytes);
}

static int compare_live(const void *x, const void *y)
{
    const plim_vgpu_line *a = x, *b = y;
    int c = compare_u64(b->live_at_peak, a->live_at_peak);
    return c ? c : strcmp(a->line, b->line);
}

static int compare_tensors(const void *x, const void *y)
{
    const plim_vgpu_tensors *a = x, *b = y;
    return compare_u64(b->bytes, a->bytes);
}

/* What a storage is grouped by: lines by number, modules and ops by their words. */
typedef struct grouping {
    plim_map by_word;
    uint32_t *group; /* of each storage */
    plim_vgpu_line *lines;
    uint32_t n, cap;
} grouping;

static bool group_lines(const plim_vgpu *d, plim_arena *a, grouping *g)
{
    bool ok = true;
    g->lines = PLIM_NEW_N(a, plim_vgpu_line, (uint64_t)d->n_lines + 1);
    if (!g->lines)
        return false;
    for (uint32_t i = 0; i < d->n_lines; i++)
        g->lines[i] = (plim_vgpu_line){.line = plim__vgpu_copy(a, d->lines[i].text, &ok),
                                       .source = plim__vgpu_copy(a, d->lines[i].source, &ok),
                                       .allocations = d->lines[i].allocations,
                                       .requested = d->lines[i].requested};
    for (uint32_t i = 0; i < d->n_origins; i++)
        g->group[i] = d->origin[i].line;
    g->n = d->n_lines;
    return ok;
}

/* NULL: no memory. */
static plim_vgpu_line *group_of_word(plim_arena *a, grouping *g, const char *word)
{
    uint32_t at;
    bool ok = true;
    if (plim_map_get(&g->by_word, plim_str_of(word), &at))
        return &g->lines[at];
    const char *own = plim__vgpu_copy(a, word, &ok);
    if (!ok || !PLIM_PUSH_ROOM(a, g->lines, g->n, g->cap) ||
        !plim_map_put(a, &g->by_word, plim_str_of(own), g->n))
        return NULL;
    g->lines[g->n] = (plim_vgpu_line){.line = own, .source = ""};
    return &g->lines[g->n++];
}

static bool group_words(const plim_vgpu *d, plim_arena *a, grouping *g)
{
    for (uint32_t i = 0; i < d->n_origins; i++) {
        const vgpu_origin *from = &d->origin[i];
        plim_vgpu_line *line =
            group_of_word(a, g, d->by == PLIM_VGPU_BY_MODULE ? from->module : from->op);
        if (!line)
            return false;
        g->group[i] = (uint32_t)(line - g->lines);
        line->allocations++;
        line->requested += plim_storage_bytes(&d->tape.storages[i], d->bound);
    }
    if (!g->lines) /* nothing was allocated */
        g->lines = PLIM_NEW(a, plim_vgpu_line);
    return g->lines != NULL;
}

static bool group_storages(const plim_vgpu *d, plim_arena *a, grouping *g)
{
    g->group = PLIM_NEW_N(a, uint32_t, (uint64_t)d->n_origins + 1);
    return g->group &&
           (d->by == PLIM_VGPU_BY_LINE ? group_lines(d, a, g) : group_words(d, a, g));
}

/* NULL: no memory. */
static live_row *find_live(const plim_vgpu *d, const grouping *g, plim_arena *a, uint32_t *n)
{
    uint32_t *live;
    if (plim_sim_live_after(a, &d->tape, plim__vgpu_attempt(d)->peak_event, &live, n, NULL))
        return NULL;
    live_row *rows = PLIM_NEW_N(a, live_row, *n);
    for (uint32_t i = 0; rows && i < *n; i++) {
        const plim_storage *s = &d->tape.storages[live[i]];
        rows[i] = (live_row){
            .s = s, .line = g->group[live[i]], .bytes = plim_storage_bytes(s, d->bound)};
    }
    if (rows)
        qsort(rows, *n, sizeof *rows, compare_group);
    return rows;
}

static plim_vgpu_tensors group_from(const plim_storage *s)
{
    const plim_meta *m = s->meta;
    plim_vgpu_tensors t = {.category = (plim_category)s->category,
                           .certainty = (plim_certainty)s->certainty,
                           .shape_known = m != NULL};
    if (m) {
        t.dtype = m->dtype;
        t.rank = m->rank;
        memcpy(t.dim, m->dim, sizeof m->dim);
    }
    return t;
}

/* The rows are in the order of lines, and of groups in each: to these `t` gives the room. */
static void group_live(const live_row *rows, uint32_t n, plim_vgpu_tensors *t,
                       plim_vgpu_line *lines, uint64_t *category)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_vgpu_line *line = &lines[rows[i].line];
        if (!line->n_tensors)
            line->tensors = t;
        if (!line->n_tensors || compare_group(&rows[i - 1], &rows[i]))
            t[line->n_tensors++] = group_from(rows[i].s);
        t[line->n_tensors - 1].count++;
        t[line->n_tensors - 1].bytes += rows[i].bytes;
        line->live_at_peak += rows[i].bytes;
        category[rows[i].s->category] += rows[i].bytes;
        if (i + 1 < n && rows[i + 1].line == rows[i].line)
            continue;
        qsort(t, line->n_tensors, sizeof *t, compare_tensors);
        t += line->n_tensors;
    }
}

/* ---- the report --------------------------------------------------------------- */

typedef struct report_result {
    plim_vgpu_report pub;
    plim_arena arena;
} report_result;

/* Gradients and optimizer state come late: a run that stops before has a lower peak. */
static bool misses_step(const plim_vgpu *d)
{
    bool backward = false;
    for (uint32_t i = 0; i < d->n_rows; i++)
        backward |= d->rows[i].phase == PLIM_PHASE_BACKWARD;
    return backward && d->at.step < 1 && d->end != PLIM_VGPU_END_MEMORY;
}

/* Behind the last phase of the attempt to report. */
static uint32_t attempt_end(const plim_vgpu *d)
{
    return plim__vgpu_attempt(d) == &d->now ? d->n_rows : d->now.first_row;
}

static bool fill_attempts(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r)
{
    const vgpu_attempt *told = plim__vgpu_attempt(d);
    bool ok = true, died = told != &d->now;
    uint32_t n = d->n_failed - (died && d->n_failed);
    plim_vgpu_attempt *rows = PLIM_NEW_N(a, plim_vgpu_attempt, (uint64_t)n + 1);
    for (uint32_t i = 0; rows && i < n; i++) {
        const vgpu_attempt *from = &d->failed[i];
        rows[i] = (plim_vgpu_attempt){.oom_line = plim__vgpu_copy(a, from->oom_line, &ok),
                                      .oom_bytes = from->oom_bytes,
                                      .peak_requested = from->peak_requested,
                                      .peak_allocated = from->peak_allocated,
                                      .peak_reserved = from->peak_reserved};
    }
    r->attempts = rows;
    r->n_attempts = n;
    r->failed = died && d->n_failed;
    if (d->n_failed) {
        const vgpu_attempt *failed = died ? told : &d->failed[0];
        r->oom_text = plim__vgpu_copy(a, failed->oom_text, &ok);
        r->oom_line = plim__vgpu_copy(a, failed->oom_line, &ok);
    }
    return rows && ok;
}

/* The cards where the tape says nothing, and whether the script ran there by itself. */
static bool add_other_cards(const plim_vgpu *d, plim_arena *a, plim_vgpu_caveat *rows,
                            uint32_t *n)
{
    bool ok = true;
    for (uint32_t i = 0; i < d->n_cards; i++) {
        char what[192];
        if (!d->other_way[i])
            continue;
        snprintf(what, sizeof what,
                 "attention or a convolution takes another kernel on '%s': %s",
                 d->cards[i]->name,
                 d->alone[i] ? "the script ran again on that card"
                             : "run the script on that card alone");
        rows[(*n)++] =
            (plim_vgpu_caveat){.line = "", .what = plim__vgpu_copy(a, what, &ok), .count = 1};
    }
    return ok;
}

/* Whether a line that runs several modules has nearly everything, as Trainer.train() has: which,
 * and how much. */
static bool find_one_line(const plim_vgpu *d, const live_row *live, uint32_t n,
                          const plim_vgpu_line *lines, uint32_t *line, uint64_t *all)
{
    enum { NEARLY_ALL = 10 }; /* but for one part of so many */
    const char *module = NULL;
    bool several = false;
    *all = 0;
    for (uint32_t i = 0; i < n; i++) {
        *all += live[i].bytes;
        if (!i || lines[live[i].line].live_at_peak > lines[*line].live_at_peak)
            *line = live[i].line;
    }
    for (uint32_t i = 0; i < n; i++) {
        const char *own = d->origin[live[i].s - d->tape.storages].module;
        if (live[i].line != *line || !*own)
            continue;
        several |= module && strcmp(module, own) != 0;
        module = own;
    }
    return several && lines[*line].live_at_peak >= *all - *all / NEARLY_ALL;
}

static bool add_one_line(const plim_vgpu *d, plim_arena *a, const live_row *live, uint32_t n,
                         const plim_vgpu_line *lines, plim_vgpu_caveat *rows, uint32_t *n_rows)
{
    uint32_t line = 0;
    uint64_t all;
    char what[96];
    bool ok = true;
    if (d->by != PLIM_VGPU_BY_LINE || !find_one_line(d, live, n, lines, &line, &all))
        return true;
    snprintf(what, sizeof what, "holds %s of the peak: --by module shows its parts",
             plim_fmt_percent(lines[line].live_at_peak, all).s);
    rows[(*n_rows)++] = (plim_vgpu_caveat){
        .line = lines[line].line, .what = plim__vgpu_copy(a, what, &ok), .count = 1};
    return ok;
}

static bool fill_lists(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r)
{
    uint32_t n = 0;
    bool ok = true;
    grouping by = {0};
    live_row *live = group_storages(d, a, &by) ? find_live(d, &by, a, &n) : NULL;
    plim_vgpu_tensors *t = PLIM_NEW_N(a, plim_vgpu_tensors, (uint64_t)n + 1);
    uint64_t *category = PLIM_NEW_N(a, uint64_t, PLIM_CAT_COUNT);
    plim_phase_row *rows = PLIM_NEW_N(a, plim_phase_row, (uint64_t)d->n_rows + 1);
    plim_vgpu_caveat *caveats =
        PLIM_NEW_N(a, plim_vgpu_caveat, (uint64_t)d->n_caveats + d->n_cards + 2);
    if (!live || !t || !category || !rows || !caveats)
        return false;
    for (uint32_t i = 0; i < d->n_caveats; i++)
        caveats[i] = (plim_vgpu_caveat){.line = plim__vgpu_copy(a, d->caveats[i].line, &ok),
                                        .what = plim__vgpu_copy(a, d->caveats[i].what, &ok),
                                        .count = d->caveats[i].count};
    uint32_t n_caveats = d->n_caveats;
    ok &= add_other_cards(d, a, caveats, &n_caveats);
    if (misses_step(d))
        caveats[n_caveats++] =
            (plim_vgpu_caveat){.line = "",
                               .what = "no optimizer step was reached: optimizer state is not "
                                       "part of the peak",
                               .count = 1};
    const uint32_t first = plim__vgpu_attempt(d)->first_row, n_rows = attempt_end(d) - first;
    if (n_rows)
        memcpy(rows, d->rows + first, n_rows * sizeof *rows);
    r->by = d->by;
    r->n_lines = by.n;
    group_live(live, n, t, by.lines, category);
    ok &= add_one_line(d, a, live, n, by.lines, caveats, &n_caveats);
    if (by.n)
        qsort(by.lines, by.n, sizeof *by.lines, compare_live);
    r->lines = by.lines;
    r->category = category;
    r->phases = rows;
    r->n_phases = n_rows;
    r->caveats = caveats;
    r->n_caveats = n_caveats;
    return ok;
}

static plim_status fill_growth(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r, plim_err *err)
{
    bool ok = true;
    vgpu_growths found;
    plim_status st = plim__vgpu_growth(d, a, &found, err);
    plim_vgpu_growth *rows =
        st ? NULL : PLIM_NEW_N(a, plim_vgpu_growth, (uint64_t)found.n + 1);
    for (uint32_t i = 0; rows && i < found.n; i++) {
        const line_row *line = &d->lines[found.rows[i].line];
        rows[i] = (plim_vgpu_growth){.line = plim__vgpu_copy(a, line->text, &ok),
                                     .source = plim__vgpu_copy(a, line->source, &ok),
                                     .holder = plim__vgpu_copy(a, line->holder, &ok),
                                     .bytes = found.rows[i].bytes,
                                     .tensors = found.rows[i].tensors,
                                     .every = found.rows[i].every};
        r->growth_bytes += rows[i].bytes / rows[i].every;
    }
    r->growth = rows;
    r->n_growth = found.n;
    r->growth_steps = found.steps;
    r->growth_sure = found.sure;
    r->steps = PLIM_MAX(d->at.step, 0);
    return st ? st : rows && ok ? PLIM_OK : plim_oom(err);
}

static bool fill_report(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r)
{
    const plim_gpu_context context = plim__vgpu_context(d, NULL);
    plim_alloc_stats s;
    bool ok = true;
    const vgpu_attempt *told = plim__vgpu_attempt(d);
    plim_alloc_get_stats(d->h, &s);
    *r = (plim_vgpu_report){.card = d->card,
                            .context_low = context.low,
                            .context_high = context.high,
                            .context_known = context.high > 0,
                            .rank = d->rank,
                            .world = d->world_size,
                            .ranked = d->world_size > 1,
                            .nccl_low = d->nccl_low,
                            .nccl_high = d->nccl_high,
                            .cudnn_search = d->inside.searched,
                            .peak_requested = told->peak_requested,
                            .peak_allocated = told->peak_allocated,
                            .peak_reserved = told->peak_reserved,
                            .events = d->tape.n_events,
                            .storages = d->tape.n_storages,
                            .truncated = d->truncated,
                            .peak_step = told->peak_at.step,
                            .peak_phase = (plim_phase)told->peak_at.phase,
                            .num_ooms = s.num_ooms,
                            .num_alloc_retries = s.num_alloc_retries};
    r->card.name = plim__vgpu_copy(a, d->card.name, &ok);
    r->peak_op = plim__vgpu_copy(a, told->peak_at.op.p, &ok);
    r->peak_line = plim__vgpu_copy(a, plim__vgpu_line_text(d, told->peak_line), &ok);
    r->end = d->end;
    return fill_attempts(d, a, r) && fill_lists(d, a, r) && ok;
}

plim_status plim_vgpu_group(plim_vgpu *d, plim_vgpu_by by, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if ((unsigned)by >= PLIM_VGPU_BY_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown grouping %d", (int)by);
    pthread_mutex_lock(&d->lock);
    d->by = by;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_report_make(plim_vgpu *d, plim_vgpu_report **out, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(out, err);
    plim_arena a = PLIM_ARENA_INIT;
    report_result *r = PLIM_NEW(&a, report_result);
    if (!r)
        return plim_oom(err);
    r->arena = a;
    pthread_mutex_lock(&d->lock);
    plim_status st = fill_report(d, &r->arena, &r->pub) ? PLIM_OK : plim_oom(err);
    if (!st)
        st = fill_growth(d, &r->arena, &r->pub, err);
    if (!st)
        st = plim__vgpu_verdicts(d, &r->arena, &r->pub, err);
    pthread_mutex_unlock(&d->lock);
    if (st)
        plim_vgpu_report_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

void plim_vgpu_report_free(plim_vgpu_report *r)
{
    if (!r)
        return;
    plim_arena a = ((report_result *)(void *)r)->arena; /* it frees the struct it stands in */
    plim_arena_free(&a);
}
