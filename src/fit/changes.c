/* changes.c -- see changes.h.
 *
 * A change is simulated as plim_estimate_run would with the settings that the caller gave, as
 * many steps, and the change on top, so that its figures are those of that run. */
#include "fit/changes.h"

#include <stdlib.h>

#include "base/fmt.h"
#include "optim/optim.h"

/* ---- the changes, one row each --------------------------------------------------------- */

typedef struct search {
    const plim_job *job;
    const plim_graph *g;
    const plim_estimate *e;
    plim_arena *a;
    plim_arena scratch;
    struct trial *found; /* that lower the peak */
    uint32_t n_found;
    plim_buf tried;
    plim_err *err;
} search;

/* The text of a setting as the run used it; "": it has none. */
static const char *used_text(const search *s, plim_setting_id id)
{
    const char *text = s->job->settings->text[id].p;
    return text ? text : "";
}

/* Did the caller give the setting? */
static bool was_given(const search *s, plim_setting_id id)
{
    return s->job->given && s->job->given->text[id].p;
}

/* The values that a row may give its setting; NULL: the row does not apply. */

static const char *value_blocks(const search *s)
{
    return strcmp(used_text(s, PLIM_SET_checkpoint), "none") != 0 ? NULL : "blocks";
}

/* Where the loss is a cross entropy that the model computes itself: another one is another training. */
static const char *value_liger(const search *s)
{
    const plim_graph *g = s->g;
    uint32_t node = g->n_outputs ? g->values[g->outputs[0]].node : PLIM_NONE;
    bool own = !strcmp(used_text(s, PLIM_SET_loss), "model") && node != PLIM_NONE &&
               plim_node_calls(&g->nodes[node], "cross_entropy_loss");
    return own && s->job->step.autocast == PLIM_F32 ? "liger" : NULL;
}

static const char *value_keep(const search *s)
{
    return strcmp(used_text(s, PLIM_SET_keep), "none") != 0 ? "none" : NULL;
}

static const char *value_autocast(const search *s)
{
    bool fp32 = !strcmp(used_text(s, PLIM_SET_dtype), "fp32");
    return fp32 && s->job->step.autocast == PLIM_F32 ? "bf16" : NULL;
}

static const char *value_dtype(const search *s)
{
    const char *dtype = used_text(s, PLIM_SET_dtype);
    return strcmp(dtype, "fp32") != 0 && strcmp(dtype, "fp64") != 0 ? NULL : "bf16";
}

/* A given shape determines the batch, too. */
static const char *value_half(const search *s)
{
    if (s->g->sizes.batch < 2 || s->g->sizes.batch_fixed || was_given(s, PLIM_SET_input) ||
        was_given(s, PLIM_SET_dim))
        return NULL;
    return plim_arena_printf(s->a, "%" PRId64, s->g->sizes.batch / 2).p;
}

/* With half the batch: the same number of samples for each optimizer step. */
static const char *value_accumulate(const search *s)
{
    if (s->job->step.infer || s->g->sizes.batch % 2 || !value_half(s))
        return NULL;
    return plim_arena_printf(s->a, "%d", 2 * s->job->step.accumulate).p;
}

static bool is_foreach(const plim_optim_spec *o)
{
    return o->impl == PLIM_IMPL_FOREACH ||
           (o->impl == PLIM_IMPL_DEFAULT && !strncmp(o->optim->impls, "foreach", 7));
}

/* The optimizer with its options and another implementation. */
static const char *optimizer_with(const search *s, const char *impl)
{
    plim_buf b;
    plim_buf_init(&b, s->a);
    for (const char *p = used_text(s, PLIM_SET_optimizer); *p;) {
        size_t n = strcspn(p, ",");
        if (strncmp(p, "impl=", 5) != 0)
            plim_buf_printf(&b, "%.*s,", (int)n, p);
        p += n + (p[n] == ',');
    }
    plim_buf_printf(&b, "impl=%s", impl);
    return b.bad ? NULL : plim_buf_str(&b).p;
}

static const char *value_fused(const search *s)
{
    const plim_optim_spec *o = &s->job->step.optim;
    bool has = o->impl != PLIM_IMPL_FUSED && strstr(o->optim->impls, ", fused");
    return has ? optimizer_with(s, "fused") : NULL;
}

static const char *value_forloop(const search *s)
{
    const plim_optim_spec *o = &s->job->step.optim;
    bool has = is_foreach(o) && strstr(o->optim->impls, "forloop");
    return has ? optimizer_with(s, "forloop") : NULL;
}

static const char *value_8bit(const search *s)
{
    const char *name = s->job->step.optim.optim->name;
    return !strcmp(name, "adamw")  ? "bnb_adamw8bit"
           : !strcmp(name, "adam") ? "bnb_adam8bit"
                                   : NULL;
}

/* Plain SGD, which keeps no state. */
static const char *value_sgd(const search *s)
{
    const plim_optim_spec *o = &s->job->step.optim;
    bool plain = !strcmp(o->optim->name, "sgd") && plim_optim_option(o, "momentum") == 0;
    return plain ? NULL : "sgd";
}

/* Changes of one group exclude each other. */
typedef enum change_group {
    GROUP_CHECKPOINT,
    GROUP_LOSS,
    GROUP_KEEP,
    GROUP_PRECISION,
    GROUP_BATCH,
    GROUP_OPTIMIZER
} change_group;

/* A setting and the value that a row gives it. */
typedef struct change_row {
    change_group group;
    unsigned parts; /* of the peak that it may reduce: bits 1 << PLIM_PART_... */
    bool training;  /* only training uses the setting */
    struct {
        plim_setting_id id;
        const char *(*value)(const search *s);
    } set[2];
} change_row;

#define SAMPLES (1u << PLIM_PART_SAMPLES)
#define WEIGHTS (1u << PLIM_PART_WEIGHTS)
#define OPTIMIZER (1u << PLIM_PART_OPTIMIZER)
#define WORKSPACE (1u << PLIM_PART_WORKSPACE)

enum { ROW_FUSED = 2, ROW_FORLOOP };

/* In the order in which they are simulated. */
static const change_row rows[] = {
    {GROUP_CHECKPOINT, SAMPLES, true, {{PLIM_SET_checkpoint, value_blocks}}},
    {GROUP_LOSS, SAMPLES, true, {{PLIM_SET_loss, value_liger}}},
    [ROW_FUSED] = {GROUP_OPTIMIZER, OPTIMIZER, true, {{PLIM_SET_optimizer, value_fused}}},
    /* where fused does not work */
    [ROW_FORLOOP] = {GROUP_OPTIMIZER, OPTIMIZER, true, {{PLIM_SET_optimizer, value_forloop}}},
    {GROUP_OPTIMIZER, OPTIMIZER, true, {{PLIM_SET_optimizer, value_8bit}}},
    {GROUP_PRECISION, SAMPLES, false, {{PLIM_SET_autocast, value_autocast}}},
    {GROUP_BATCH, SAMPLES | WORKSPACE, false, {{PLIM_SET_batch, value_half}}},
    {GROUP_PRECISION, WEIGHTS | SAMPLES | OPTIMIZER, false, {{PLIM_SET_dtype, value_dtype}}},
    {GROUP_OPTIMIZER, OPTIMIZER, true, {{PLIM_SET_optimizer, value_sgd}}},
    {GROUP_BATCH,
     SAMPLES,
     true,
     {{PLIM_SET_batch, value_half}, {PLIM_SET_accumulate, value_accumulate}}},
    {GROUP_KEEP, SAMPLES, false, {{PLIM_SET_keep, value_keep}}},
};

/* ---- one simulation ---------------------------------------------------------------------- */

/* A set of rows, by their bits, and its figures. */
typedef struct trial {
    unsigned rows;
    bool works; /* it lowers the peak */
    plim_change change;
} trial;

/* The share of the peak that a change must save to be worth a word: one of 100. */
enum { WORTH = 100 };

/* Puts the rows' values into `to`, and gives them as options. */
static plim_status apply_rows(search *s, unsigned chosen, plim_settings *to, const char **text)
{
    plim_buf b;
    plim_buf_init(&b, s->a);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        for (size_t k = 0; k < PLIM_COUNT(rows[i].set) && (chosen >> i & 1); k++) {
            if (!rows[i].set[k].value)
                continue;
            plim_setting_id id = rows[i].set[k].id;
            const char *value = rows[i].set[k].value(s);
            if (!value)
                return PLIM_EUSAGE;
            plim_buf_printf(&b, "%s--%s %s", b.n ? " " : "", plim_setting_rows[id].key, value);
            if (plim_settings_put(to, id, value, s->err))
                return PLIM_ENOMEM;
        }
    *text = plim_buf_str(&b).p;
    return b.bad ? PLIM_ENOMEM : PLIM_OK;
}

static plim_status run_trial(search *s, plim_settings *with, bool same_graph, plim_verdict *v)
{
    plim_err why = PLIM_ERR_INIT;
    plim_job job;
    plim_graph g;
    plim_tape t;
    plim_step_info info;
    plim_status st = plim_job_open(&job, &s->scratch, s->job->model, with, &why);
    if (!st)
        st = plim_job_card(&job, &why);
    if (!st && !same_graph)
        st = plim_job_graph(&job, 0, &s->scratch, &g, &why);
    if (!st)
        st = plim_job_tape(&job, same_graph ? s->g : &g, &s->scratch, &t, &info, &why);
    if (!st)
        st = plim_verdict_of(&job, &t, 0, false, &s->scratch, v, &why);
    return st;
}

/* Simulates the trial; one that the run refuses, or to which a row does not apply, does not
 * work and is not an error. */
static plim_status simulate_trial(search *s, trial *t)
{
    plim_verdict v;
    bool same_graph = true;
    t->works = false;
    plim_arena_reset(&s->scratch);
    plim_settings *with = plim_settings_in(&s->scratch, s->job->given);
    plim_status st = with ? apply_rows(s, t->rows, with, &t->change.settings) : PLIM_ENOMEM;
    const char *steps = s->job->settings->text[PLIM_SET_steps].p; /* as many, to compare */
    if (!st && steps)
        st = plim_settings_put(with, PLIM_SET_steps, steps, s->err);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        same_graph &= !(t->rows >> i & 1) ||
                      (rows[i].group != GROUP_BATCH && rows[i].group != GROUP_LOSS);
    if (!st)
        st = run_trial(s, with, same_graph, &v);
    if (st)
        return st == PLIM_ENOMEM ? plim_oom(s->err) : PLIM_OK;
    plim_buf_printf(&s->tried, "%s%s", s->tried.n ? ", " : "", t->change.settings);
    const plim_estimate *e = s->e;
    t->works = v.sim.peak_allocated < e->peak_allocated - e->peak_allocated / WORTH &&
               v.reserved <= e->peak_reserved;
    if (!t->works)
        return PLIM_OK;
    t->change.saved_allocated = e->peak_allocated - v.sim.peak_allocated;
    t->change.saved_reserved = e->peak_reserved - v.reserved;
    t->change.fits = v.fits;
    s->found[s->n_found++] = *t;
    return PLIM_OK;
}

static bool row_applies(const search *s, size_t row)
{
    bool applies = !rows[row].training || !s->job->step.infer;
    for (size_t k = 0; k < PLIM_COUNT(rows[row].set) && applies; k++)
        applies = !rows[row].set[k].value || rows[row].set[k].value(s);
    return applies;
}

/* ---- which of them ---------------------------------------------------------------------- */

enum {
    FEW = 3,         /* changes, where the run fits or no card was chosen */
    FEW_OF_LONG = 2, /* of a run with a long tape */
    MANY = 6,
    COMBINED = 4,       /* combinations of two; one more is of all */
    LONG_TAPE = 1 << 17 /* events */
};

/* The rows that apply, in the order of the parts that they reduce. */
static uint32_t order_rows(const search *s, const uint64_t part[PLIM_PART_COUNT],
                           size_t order[PLIM_COUNT(rows)])
{
    uint32_t n = 0;
    unsigned seen_rows = 0, seen_parts = 0;
    for (int k = 0; k < PLIM_PART_COUNT; k++) {
        int top = -1;
        for (int p = 0; p < PLIM_PART_COUNT; p++)
            if (!(seen_parts >> p & 1) && (top < 0 || part[p] > part[top]))
                top = p;
        plim_assert(top >= 0);
        seen_parts |= 1u << top;
        for (size_t i = 0; i < PLIM_COUNT(rows) && part[top]; i++) {
            if (seen_rows >> i & 1 || !(rows[i].parts >> top & 1))
                continue;
            seen_rows |= 1u << i;
            if (row_applies(s, i))
                order[n++] = i;
        }
    }
    return n;
}

static bool exclude_each_other(unsigned chosen)
{
    unsigned groups = 0;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        unsigned group = 1u << rows[i].group;
        if (chosen >> i & 1 && groups & group)
            return true;
        groups |= chosen >> i & 1 ? group : 0;
    }
    return false;
}

static int rank_fits(plim_fits fits)
{
    return fits == PLIM_FITS_YES ? 2 : fits == PLIM_FITS_MAYBE || fits == PLIM_FITS_INCOMPLETE;
}

static int count_rows(unsigned chosen)
{
    int n = 0;
    for (; chosen; chosen &= chosen - 1)
        n++;
    return n;
}

/* What fits comes first, and of that what changes least; then what saves most. */
static int compare_trials(const void *x, const void *y)
{
    const trial *a = x, *b = y;
    int fits = rank_fits(a->change.fits), more = count_rows(a->rows) - count_rows(b->rows);
    if (fits != rank_fits(b->change.fits))
        return rank_fits(b->change.fits) - fits;
    if (a->change.fits == PLIM_FITS_YES && more)
        return more;
    if (a->change.saved_allocated != b->change.saved_allocated)
        return a->change.saved_allocated < b->change.saved_allocated ? 1 : -1;
    return strcmp(a->change.settings, b->change.settings);
}

static bool any_fits(const search *s)
{
    for (uint32_t i = 0; i < s->n_found; i++)
        if (s->found[i].change.fits == PLIM_FITS_YES)
            return true;
    return false;
}

/* Simulates combinations of the changes that were found: the best pairs and, if none of them
 * fits, all that go together. */
static plim_status combine_found(search *s)
{
    plim_status st = PLIM_OK;
    trial one[PLIM_COUNT(rows)];
    uint32_t n = s->n_found, pairs = 0;
    qsort(s->found, n, sizeof *s->found, compare_trials);
    plim_assert(n <= PLIM_COUNT(one));
    memcpy(one, s->found, n * sizeof *one);
    for (uint32_t sum = 1; sum < 2 * n && !st; sum++) /* the best with the second best first */
        for (uint32_t i = 0; 2 * i < sum && !st && pairs < COMBINED; i++) {
            trial t = {.rows = sum - i < n ? one[i].rows | one[sum - i].rows : 0};
            if (!t.rows || exclude_each_other(t.rows))
                continue;
            st = simulate_trial(s, &t);
            pairs++;
        }
    trial all = {.rows = 0};
    for (uint32_t i = 0; i < n; i++)
        all.rows |= exclude_each_other(all.rows | one[i].rows) ? 0 : one[i].rows;
    return st || any_fits(s) || count_rows(all.rows) < 3 ? st : simulate_trial(s, &all);
}

static plim_status simulate_rows(search *s, const uint64_t part[PLIM_PART_COUNT],
                                 uint32_t most, bool combine)
{
    size_t order[PLIM_COUNT(rows)];
    uint32_t n = order_rows(s, part, order);
    plim_status st = PLIM_OK;
    bool fused = false;
    for (uint32_t i = 0, done = 0; i < n && done < most && !st; i++) {
        trial t = {.rows = 1u << order[i]};
        if (order[i] == ROW_FORLOOP && fused)
            continue;
        uint64_t before = s->tried.n;
        st = simulate_trial(s, &t);
        done += s->tried.n > before;
        fused |= order[i] == ROW_FUSED && s->tried.n > before;
    }
    return st || any_fits(s) || !combine ? st : combine_found(s);
}

plim_status plim_changes_simulate(const plim_job *job, const plim_graph *g, const plim_tape *t,
                                  const plim_estimate *e, const uint64_t part[PLIM_PART_COUNT],
                                  plim_arena *a, plim_changes *out, plim_err *err)
{
    enum { ROOM = PLIM_COUNT(rows) + COMBINED + 1 };
    search s = {.job = job, .g = g, .e = e, .a = a, .err = err};
    bool settled = plim_fit_settled(e->fits);
    uint32_t few = t->n_events < LONG_TAPE ? FEW : FEW_OF_LONG;
    s.found = PLIM_NEW_N(a, trial, ROOM);
    out->rows = PLIM_NEW_N(a, plim_change, ROOM);
    if (!out->rows || !s.found)
        return plim_oom(err);
    plim_buf_init(&s.tried, a);
    plim_status st = simulate_rows(&s, part, settled ? few : MANY, !settled);
    plim_arena_free(&s.scratch);
    qsort(s.found, s.n_found, sizeof *s.found, compare_trials);
    for (out->n = 0; out->n < s.n_found; out->n++)
        out->rows[out->n] = s.found[out->n].change;
    out->tried = plim_buf_str(&s.tried);
    return st ? st : s.tried.bad ? plim_oom(err) : PLIM_OK;
}
