/* diffing.c -- plim_diff_run: two runs side by side, each of them predicted or recorded. */
#include <stdlib.h>

#include "alloc/sim.h"
#include "api/api.h"
#include "diff/diff.h"
#include "fit/verdict.h"
#include "trace/log.h"
#include "trace/recording.h"

typedef struct diff_result {
    plim_diff pub;
    plim_arena arena;
} diff_result;

/* One side while it is worked on. */
typedef struct side_run {
    const char *name;
    const plim_model *model; /* NULL: a recording */
    plim_model *opened;      /* to be closed; or NULL */
    plim_bytes file;
    plim_job job;
    plim_graph graph;
    plim_recording recording;
    plim_log log; /* source NULL: the side is none */
    plim_tape tape;
    plim_sim sim;
    plim_diff_side *pub;
    plim_budget budget; /* what is made of the file */
    uint64_t reserved, device;
    bool told, later, reserved_known, device_known;
} side_run;

static bool is_log(const side_run *r) { return r->log.source != NULL; }

typedef struct work {
    plim_arena *a;
    const plim_settings *s;
    plim_diff *out;
    plim_err *err;
    side_run side[2];
    plim_tape_diff diff;
} work;

/* ---- the sides ------------------------------------------------------------------- */

static plim_status predict_side(work *w, side_run *r)
{
    plim_verdict v;
    plim_step_info info;
    PLIM_TRY(plim_job_open(&r->job, w->a, r->model, w->s, w->err));
    PLIM_TRY(plim_job_card(&r->job, w->err));
    PLIM_TRY(plim_job_graph(&r->job, 0, w->a, &r->graph, w->err));
    PLIM_TRY(plim_job_note(&r->job, &r->graph, w->err));
    PLIM_TRY(plim_job_tape(&r->job, &r->graph, w->a, &r->tape, &info, w->err));
    PLIM_TRY(plim_verdict_of(&r->job, &r->tape, PLIM_SIM_LIVE, false, w->a, &v, w->err));
    PLIM_TRY(plim__model_info(w->a, &r->graph, &r->pub->model, w->err));
    PLIM_TRY(plim_job_resolve(&r->job, &r->graph, &info, w->err));
    r->sim = v.sim;
    r->told = true;
    r->reserved = v.reserved;
    r->reserved_known = true;
    r->device = plim_sat_add(v.reserved, v.context.usual);
    r->device_known = r->job.gpu && v.context.usual;
    r->pub->format = "prediction";
    r->pub->settings = r->job.settings;
    r->pub->gpu = r->job.gpu ? plim__cstr(w->a, plim_str_of(r->job.gpu->name)) : NULL;
    return PLIM_OK;
}

static plim_status read_side(work *w, side_run *r)
{
    plim_recording *rec = &r->recording;
    const plim_torch *torch = plim_torch_newest();
    plim_alloc_options o = {.torch = torch->version};
    uint32_t *stacks;
    plim_status st = plim_recording_read(rec, w->a, r->file, w->err);
    if (st) {
        plim_err_prefix(w->err, "'%s': ", r->name);
        return st;
    }
    r->tape = rec->tape;
    if (!rec->given) {
        st = plim_recording_tape(rec, true, &r->tape, &stacks, w->err);
        if (plim_recording_conf_known(rec, o.torch, NULL))
            o.conf = rec->conf;
    }
    if (!st)
        st = plim_sim_run(w->a, &r->tape, &o, PLIM_SIM_LIVE, &r->sim, w->err);
    r->told = rec->given;
    r->reserved = r->sim.peak_reserved;
    r->reserved_known = rec->given || plim_recording_from_start(rec);
    r->later = !rec->given && rec->n_before;
    r->pub->format = rec->format;
    return st;
}

/* A log gives peaks, but not what they consist of. */
static void take_log(side_run *r)
{
    const plim_log_figure *f = r->log.figure;
    r->sim.peak_requested = f[PLIM_LOG_REQUESTED].bytes;
    r->sim.peak_allocated = f[PLIM_LOG_ALLOCATED].bytes;
    r->sim.peak_allocated_event = PLIM_NONE;
    r->reserved = f[PLIM_LOG_RESERVED].bytes;
    r->reserved_known = f[PLIM_LOG_RESERVED].known;
    r->device = f[PLIM_LOG_DEVICE].bytes;
    r->device_known = f[PLIM_LOG_DEVICE].known;
    r->pub->format = "log";
    r->pub->source = r->log.source;
}

/* A log that is not all in memory is read again, in parts. */
static plim_status read_log(side_run *r, const char *path, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_status st = PLIM_OK;
    plim_log_reader *reader = plim_log_reader_new(&a, &r->log);
    if (!reader)
        st = plim_oom(err);
    else if (r->file.file)
        st = plim_file_each(path, plim_log_take, reader, err);
    else
        plim_log_take(reader, (plim_str){(const char *)r->file.p, (size_t)r->file.n}, true);
    plim_arena_free(&a);
    return st;
}

/* Opens a file, and reads it if it is a log. */
static plim_status open_file(side_run *r, const char *path, plim_err *err)
{
    plim_status st = plim_file_open(&r->file, path, false, err);
    if (!st && plim_log_detect(r->file))
        st = read_log(r, path, err);
    return st;
}

/* Opens what the name of a side stands for: a recording or a log, if the file is one; else a
 * model. */
static plim_status open_side(side_run *r, plim_err *err)
{
    bool from_pipe = strcmp(r->name, "-") == 0;
    if (r->model)
        return PLIM_OK;
    if (from_pipe || (plim_file_exists(r->name) && !plim_file_is_folder(r->name))) {
        plim_status st = open_file(r, from_pipe ? "/dev/stdin" : r->name, err);
        if (st || is_log(r) || plim_recording_what(r->file))
            return st;
        if (from_pipe)
            return plim_fail(
                err, PLIM_EFORMAT, 0,
                "'-' is neither a recording nor a log with figures of GPU memory");
        plim_file_close(&r->file);
    }
    plim_status st = plim_model_open(r->name, &r->opened, err);
    r->model = r->opened;
    return st;
}

static const char *category_name(uint32_t c)
{
    return c == PLIM_CATEGORY_UNKNOWN ? "unknown" : plim_category_name((plim_category)c);
}

/* Where the peak is, and what is live there. */
static plim_status describe_peak(work *w, side_run *r, plim_diff_tape *t)
{
    plim_diff_side *pub = r->pub;
    const plim_mark *m = NULL;
    uint32_t event = r->sim.peak_allocated_event;
    plim_str op = {0};
    for (uint32_t i = 0; i < r->sim.n_live; i++)
        pub->live = plim_sat_add(pub->live, r->tape.storages[r->sim.live[i]].bytes);
    if (event != PLIM_NONE) {
        m = plim_diff_mark(t, t->allocs[r->tape.events[event].id]);
        op = m && m->op.n ? m->op
             : r->told    ? op
                          : r->tape.storages[r->tape.events[event].id].name;
    }
    pub->phases_known = m != NULL;
    pub->peak_step = m ? m->step : -1;
    pub->peak_phase = m ? (plim_phase)m->phase : PLIM_PHASE_LOAD;
    pub->peak_op = op.n ? plim__cstr(w->a, op) : "";
    pub->events = t->requests.n;
    return pub->peak_op ? PLIM_OK : plim_oom(w->err);
}

static plim_status make_side(work *w, side_run *r)
{
    plim_budget_begin(&r->budget, r->model ? PLIM_BUDGET_FREE : r->file.n);
    plim_status st = r->model ? predict_side(w, r) : read_side(w, r);
    st = plim_budget_end(&r->budget, st, w->err);
    if (r->budget.over)
        plim_err_prefix(w->err, "'%s': ", r->name);
    return st;
}

static plim_status run_side(work *w, int i)
{
    side_run *r = &w->side[i];
    plim_diff_tape *t = i ? &w->diff.b : &w->diff.a;
    if (!(r->pub = PLIM_NEW(w->a, plim_diff_side)))
        return plim_oom(w->err);
    r->pub->size = sizeof *r->pub;
    plim_tape_init(&r->tape, w->a);
    plim_status st = open_side(r, w->err);
    if (!st && is_log(r))
        take_log(r);
    else if (!st)
        st = make_side(w, r);
    if (st)
        return st;
    r->pub->name = plim__cstr(w->a, plim_str_of(r->name));
    *t = (plim_diff_tape){.tape = &r->tape,
                          .letter = i ? "B" : "A",
                          .told = r->told,
                          .later = r->later,
                          .batch = r->pub->model ? r->pub->model->batch : 0,
                          .live = r->sim.live,
                          .n_live = r->sim.n_live};
    return r->pub->name ? PLIM_OK : plim_oom(w->err);
}

/* ---- rows ------------------------------------------------------------------------- */

/* Rows under construction: one for each name, of a category if the set is by those, too. */
typedef struct row_set {
    plim_map map[PLIM_CATEGORY_UNKNOWN + 1];
    plim_diff_row *rows;
    uint32_t n, cap;
} row_set;

PLIM__LIST(row_list, plim_diff_row)
PLIM__LIST(figure_list, plim_diff_figure)
PLIM__LIST(cause_list, plim_diff_cause)

/* The row for a key, of those in one map, with this name and category; NULL: out of memory. */
static plim_diff_row *find_row(plim_arena *a, row_set *set, plim_map *map, plim_str key,
                               plim_str name, const char *category)
{
    uint32_t *at = plim_map_at(a, map, key);
    if (!at)
        return NULL;
    if (!*at) {
        if (!PLIM_GROW_ROOM(a, set->rows, set->n, set->cap))
            return NULL;
        set->rows[set->n] = (plim_diff_row){.size = sizeof *set->rows,
                                            .name = name.p ? plim__cstr(a, name) : NULL,
                                            .category = category};
        *at = ++set->n;
    }
    return &set->rows[*at - 1];
}

static bool count_row(plim_diff_row *row, bool b, uint64_t bytes)
{
    if (!row)
        return false;
    uint64_t *sum = b ? &row->b : &row->a;
    *sum = plim_sat_add(*sum, bytes);
    *(b ? &row->b_tensors : &row->a_tensors) += 1;
    return true;
}

enum { CATEGORIES, MODULES, TENSORS, SETS };

/* Counts what is live at the peak of a side. */
static bool count_live(work *w, row_set set[SETS], const plim_diff_tape *side)
{
    bool b = side == &w->diff.b, good = true;
    row_set *sums = &set[CATEGORIES], *modules = &set[MODULES], *tensors = &set[TENSORS];
    for (uint32_t i = 0; i < side->n_live && good; i++) {
        uint64_t bytes = side->tape->storages[side->live[i]].bytes;
        plim_diff_label l = plim_diff_label_of(&w->diff, side, side->live[i]);
        const char *category = category_name(l.category);
        plim_str none = {0}, of = plim_str_of(category);
        bool known = l.name.n || l.category != PLIM_CATEGORY_UNKNOWN;
        good =
            l.name.p &&
            count_row(find_row(w->a, sums, sums->map, of, of, category), b, bytes) &&
            count_row(find_row(w->a, modules, modules->map, known ? l.module : PLIM_STR("?"),
                               known ? l.module : none, NULL),
                      b, bytes) &&
            count_row(find_row(w->a, tensors, &tensors->map[l.category], l.name,
                               known ? l.name : none, category),
                      b, bytes);
    }
    return good;
}

static uint64_t row_delta(const plim_diff_row *r)
{
    return r->a < r->b ? r->b - r->a : r->a - r->b;
}

/* The greatest difference first, then the most bytes, then by name. */
static int compare_rows(const void *x, const void *y)
{
    const plim_diff_row *p = x, *q = y;
    uint64_t d = row_delta(p), e = row_delta(q);
    if (d != e)
        return d < e ? 1 : -1;
    if (p->a != q->a)
        return p->a < q->a ? 1 : -1;
    int names = strcmp(p->name ? p->name : "", q->name ? q->name : "");
    return names ? names
                 : strcmp(p->category ? p->category : "", q->category ? q->category : "");
}

static const plim_diff_row *const *sort_rows(work *w, row_set *set, uint32_t *n)
{
    if (set->n)
        qsort(set->rows, set->n, sizeof *set->rows, compare_rows);
    *n = set->n;
    return row_list(w->a, set->rows, set->n);
}

static plim_status fill_rows(work *w)
{
    row_set set[SETS] = {{.n = 0}};
    plim_diff *o = w->out;
    if (!count_live(w, set, &w->diff.a) || !count_live(w, set, &w->diff.b))
        return plim_oom(w->err);
    o->categories = sort_rows(w, &set[CATEGORIES], &o->n_categories);
    o->modules = sort_rows(w, &set[MODULES], &o->n_modules);
    o->tensors = sort_rows(w, &set[TENSORS], &o->n_tensors);
    return o->categories && o->modules && o->tensors ? PLIM_OK : plim_oom(w->err);
}

/* ---- figures ------------------------------------------------------------------------ */

/* "5%" is a share of a; else a size. */
static plim_status read_within(const char *text, double *share, uint64_t *bytes, plim_err *err)
{
    plim_str s = plim_str_of(text);
    *share = 0;
    *bytes = 0;
    if (!plim_str_ends(s, PLIM_STR("%")))
        return plim_parse_size(s, bytes, NULL)
                   ? plim_fail(err, PLIM_EUSAGE, 0, "'within': '%s' is not a size", text)
                   : PLIM_OK;
    if (!plim_parse_percent(s, share) || *share > 1e6)
        return plim_fail(err, PLIM_EUSAGE, 0, "'within': '%s' is not a percentage", text);
    *share /= 100;
    return PLIM_OK;
}

/* Whether a side knows its peak of requested or of allocated memory. */
static bool knows_figure(const side_run *r, plim_log_quantity q)
{
    return !is_log(r) || r->log.figure[q].known;
}

static uint64_t lost_digits(const work *w, plim_log_quantity q)
{
    return plim_sat_add(w->side[0].log.figure[q].within, w->side[1].log.figure[q].within);
}

static plim_status fill_figures(work *w)
{
    const side_run *a = &w->side[0], *b = &w->side[1];
    const plim_diff_figure rows[] = {
        {sizeof *rows, "requested", a->sim.peak_requested, b->sim.peak_requested,
         lost_digits(w, PLIM_LOG_REQUESTED), knows_figure(a, PLIM_LOG_REQUESTED),
         knows_figure(b, PLIM_LOG_REQUESTED)},
        {sizeof *rows, "allocated", a->sim.peak_allocated, b->sim.peak_allocated,
         lost_digits(w, PLIM_LOG_ALLOCATED), knows_figure(a, PLIM_LOG_ALLOCATED),
         knows_figure(b, PLIM_LOG_ALLOCATED)},
        {sizeof *rows, "reserved", a->reserved, b->reserved, lost_digits(w, PLIM_LOG_RESERVED),
         a->reserved_known, b->reserved_known},
        {sizeof *rows, "device", a->device, b->device, lost_digits(w, PLIM_LOG_DEVICE),
         a->device_known, b->device_known}};
    plim_diff_figure *kept = PLIM_NEW_N(w->a, plim_diff_figure, PLIM_COUNT(rows));
    plim_diff *o = w->out;
    double share = 0;
    uint64_t bytes = 0;
    plim_status st =
        w->s->within ? read_within(w->s->within, &share, &bytes, w->err) : PLIM_OK;
    if (!kept)
        return plim_oom(w->err);
    o->within = w->s->within ? plim__cstr(w->a, plim_str_of(w->s->within)) : NULL;
    o->differs = !w->s->within && o->events_known && (o->resized || o->only_a || o->only_b);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_diff_figure *f = &rows[i];
        uint64_t delta = f->a < f->b ? f->b - f->a : f->a - f->b;
        if (!f->a_known && !f->b_known)
            continue;
        kept[o->n_figures++] = *f;
        delta -= PLIM_MIN(delta, f->within);
        o->differs |=
            f->a_known && f->b_known && delta > bytes && (double)delta > share * (double)f->a;
    }
    o->figures = figure_list(w->a, kept, o->n_figures);
    return st || o->figures ? st : plim_oom(w->err);
}

/* ---- where they part ---------------------------------------------------------------- */

static const plim_diff_event *describe_event(work *w, const plim_diff_tape *side,
                                             uint32_t request)
{
    const plim_request *q = &side->requests.at[request];
    plim_diff_event *e = PLIM_NEW(w->a, plim_diff_event);
    plim_diff_label l = plim_diff_label_of(&w->diff, side, q->storage);
    const plim_mark *m = plim_diff_mark(side, request);
    if (!e || !l.name.p)
        return NULL;
    *e = (plim_diff_event){
        .size = sizeof *e,
        .index = q->event,
        .frees = q->frees,
        .bytes = q->bytes,
        .name = l.name.p,
        .category = category_name(l.category),
        .where = plim__cstr(w->a, m && m->op.n ? m->op
                                  : side->told ? (plim_str){"", 0}
                                               : side->tape->storages[q->storage].name),
        .phase_known = m != NULL,
        .step = m ? m->step : -1,
        .phase = m ? (plim_phase)m->phase : PLIM_PHASE_LOAD};
    return e->where ? e : NULL;
}

static plim_status fill_parting(work *w)
{
    const plim_tape_diff *d = &w->diff;
    plim_diff *o = w->out;
    o->equal = d->n_equal;
    o->resized = d->n_resized;
    o->only_a = d->n_only_a;
    o->only_b = d->n_only_b;
    o->parts = d->parts;
    if (!d->parts)
        return PLIM_OK;
    uint32_t first = PLIM_MIN(d->first_a, d->first_b);
    o->first_a = d->first_a == PLIM_NONE ? NULL : describe_event(w, &d->a, d->first_a);
    o->first_b = d->first_b == PLIM_NONE ? NULL : describe_event(w, &d->b, d->first_b);
    o->last = first ? describe_event(w, &d->a, first - 1) : NULL;
    bool good = (o->first_a || d->first_a == PLIM_NONE) &&
                (o->first_b || d->first_b == PLIM_NONE) && (o->last || !first);
    return good ? PLIM_OK : plim_oom(w->err);
}

static plim_status fill_causes(work *w)
{
    plim_cause found[PLIM_CAUSES_MOST];
    plim_diff_cause *rows = PLIM_NEW_N(w->a, plim_diff_cause, PLIM_CAUSES_MOST);
    plim_status st = plim_diff_causes(&w->diff, found, &w->out->n_causes, w->err);
    if (!rows)
        return plim_oom(w->err);
    for (uint32_t i = 0; !st && i < w->out->n_causes; i++)
        rows[i] =
            (plim_diff_cause){sizeof *rows, found[i].name, found[i].text.p, found[i].bytes};
    w->out->causes = cause_list(w->a, rows, st ? 0 : w->out->n_causes);
    return st || w->out->causes ? st : plim_oom(w->err);
}

/* ---- the whole ------------------------------------------------------------------------ */

static plim_status compare_sides(work *w)
{
    plim_status st = plim_diff_tapes(&w->diff, w->err);
    if (!st)
        st = describe_peak(w, &w->side[0], &w->diff.a);
    if (!st)
        st = describe_peak(w, &w->side[1], &w->diff.b);
    w->out->events_known = !is_log(&w->side[0]) && !is_log(&w->side[1]);
    if (!st && w->out->events_known)
        st = fill_rows(w);
    if (!st && w->out->events_known)
        st = fill_parting(w);
    if (!st)
        st = fill_figures(w);
    if (!st && w->out->events_known)
        st = fill_causes(w);
    return st;
}

static plim_status diff_fill(work *w)
{
    plim_budget both;
    PLIM_TRY(run_side(w, 0));
    PLIM_TRY(run_side(w, 1));
    plim_budget_join(&both, &w->side[0].budget, &w->side[1].budget);
    plim_status st = plim_budget_end(&both, compare_sides(w), w->err);
    w->out->size = sizeof *w->out;
    w->out->a = w->side[0].pub;
    w->out->b = w->side[1].pub;
    return st;
}

plim_status plim_diff_run(const char *a, const plim_model *model_a, const char *b,
                          const plim_model *model_b, const plim_settings *s, plim_diff **out,
                          plim_err *err)
{
    PLIM_REQUIRE(a, err);
    PLIM_REQUIRE(b, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    diff_result *r = plim__result_new(sizeof *r, offsetof(diff_result, arena));
    if (!r)
        return plim_budget_end(&budget, plim_oom(err), err);
    work w = {.a = &r->arena,
              .s = s ? s : plim_settings_in(&r->arena, NULL),
              .out = &r->pub,
              .err = err,
              .diff = {.arena = &r->arena},
              .side = {{.name = a, .model = model_a}, {.name = b, .model = model_b}}};
    plim_status st = w.s ? diff_fill(&w) : plim_oom(err);
    for (int i = 0; i < 2; i++) {
        plim_file_close(&w.side[i].file);
        plim_model_free(w.side[i].opened);
    }
    st = plim_budget_end(&budget, st, err);
    if (st)
        plim_diff_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

void plim_diff_free(plim_diff *d) { plim__result_free(d, offsetof(diff_result, arena)); }
