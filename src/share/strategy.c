/* strategy.c -- the strategies, their options, and how the step's events reach them: see share.h. */
#include "share/strategy.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"

/* ---- the setting ------------------------------------------------------------------------- */

static const plim_strategy_row rows[] = {
#define PLIM_STRATEGY(name, flags, options, doc, src)                                         \
    {#name, options, doc, src, &plim_strategy_##name, flags},
#include "share/strategies.def"
#undef PLIM_STRATEGY
};

uint32_t plim_strategy_count(void) { return PLIM_COUNT(rows); }

const plim_strategy_row *plim_strategy_at(uint32_t i)
{
    return i < PLIM_COUNT(rows) ? &rows[i] : NULL;
}

/* `preset`, the option's default, says what a value is. */
static bool read_option(plim_strategy_spec *s, uint32_t i, plim_str preset, plim_str value)
{
    double *number = &s->option[i].number;
    s->option[i].dtype = PLIM_DTYPE_COUNT;
    if (plim_str_is(preset, "none"))
        return plim_str_is(value, "none") || (plim_dtype_find(value, &s->option[i].dtype) &&
                                              plim_is_float(s->option[i].dtype));
    *number = -1;
    return (plim_str_is(preset, "auto") && plim_str_is(value, "auto")) ||
           (plim_item_number(value, number) && *number >= 0 && *number < 1e12);
}

/* The default of an option of the row. */
static plim_str preset_of(const plim_strategy_row *row, plim_str name)
{
    return plim_item_find(plim_str_of(row->options), name);
}

plim_status plim_strategy_parse(plim_str text, plim_strategy_spec *out, plim_err *err)
{
    plim_strategy_spec s = {.text = text};
    plim_str rest = text, name = {"", 0}, key, value;
    char word[64];
    plim_item_next(&rest, &name, &value);
    snprintf(word, sizeof word, PLIM_STR_FMT, PLIM_STR_ARG(name));
    const plim_strategy_row *row =
        plim_row_find("strategy", word, rows, PLIM_COUNT(rows), sizeof *rows, err);
    if (!row)
        return PLIM_EUSAGE;
    s.name = row->name;
    s.strategy = row->strategy;
    s.flags = row->flags;
    plim_str presets = plim_str_of(row->options);
    while (plim_item_next(&presets, &key, &value)) {
        plim_assert(s.n_options < PLIM_STRATEGY_OPTIONS);
        s.option[s.n_options].name = key;
        read_option(&s, s.n_options++, value, value);
    }
    while (plim_item_next(&rest, &key, &value)) {
        uint32_t i = plim_share_option(&s, key);
        if (i == s.n_options)
            return plim_item_unknown("strategy", row->name, key, row->options, err);
        plim_str preset = preset_of(row, key);
        if (!read_option(&s, i, preset, value.n ? value : PLIM_STR("1")))
            return plim_fail(
                err, PLIM_EUSAGE, 0,
                "strategy option '" PLIM_STR_FMT "' is %s, not '" PLIM_STR_FMT "'",
                PLIM_STR_ARG(key),
                plim_str_is(preset, "none") ? "a data type such as bf16, or none" : "a number",
                PLIM_STR_CUT(value));
    }
    *out = s;
    return PLIM_OK;
}

/* ---- the graph --------------------------------------------------------------------------------- */

plim_status plim_share_prepare(plim_graph *g, const plim_share *s, plim_err *err)
{
    const plim_strategy *by = s->strategy.strategy;
    (void)err;
    if (by && by->setup.prepare)
        by->setup.prepare(g);
    return PLIM_OK;
}

/* ---- events -------------------------------------------------------------------------------------- */

/* Of each unit two marks: at its inputs, which backward passes last, and at its outputs. */
enum { AT_INPUTS, AT_OUTPUTS, MARKS };

static void hear_gradient(void *ud, plim_t leaf)
{
    plim_shared *x = ud;
    if (plim_m_values(x->m, plim_m_grad(x->m, leaf)))
        plim_m_fail(x->m, PLIM_EUNSUPPORTED, "strategy '%s' has no rule for sparse gradients",
                    x->share->strategy.name);
    if (x->strategy->backward.gradient)
        x->strategy->backward.gradient(x, leaf);
}

static void hear_mark(void *ud, uint32_t mark)
{
    plim_shared *x = ud;
    plim_assert(mark / MARKS <= x->units.n);
    if (mark % MARKS == AT_OUTPUTS)
        x->strategy->backward.begin(x, mark / MARKS);
    else
        x->strategy->backward.end(x, mark / MARKS);
}

static void hear_end(void *ud)
{
    plim_shared *x = ud;
    x->strategy->backward.finish(x);
}

static bool of_modules(const plim_shared *x)
{
    return x->share->strategy.flags & PLIM_OF_MODULES;
}

/* Experts that are shared out are units of their own, within blocks: those begin before. */
static plim_status add_experts(plim_shared *x, plim_err *err)
{
    plim_regions in, *out = &x->units;
    PLIM_TRY(plim_regions_find(x->a, x->g, PLIM_STR("**.experts"), &in, err));
    plim_region *all = PLIM_NEW_N(x->a, plim_region, (uint64_t)out->n + in.n + 1);
    if (!all)
        return plim_oom(err);
    for (uint32_t i = 0, k = 0, n = 0; n < out->n + in.n; n++) {
        bool block = k == in.n || (i < out->n && out->r[i].first <= in.r[k].first);
        all[n] = block ? out->r[i++] : in.r[k++];
    }
    out->r = all;
    out->n += in.n;
    return PLIM_OK;
}

/* Without repeated blocks the model is one unit.  Experts are units where a strategy shares them out, and not the
 * model itself. */
static plim_status find_units(plim_shared *x, plim_err *err)
{
    plim_status st = of_modules(x)
                         ? plim_regions_modules(x->a, x->g, &x->units, err)
                         : plim_regions_find(x->a, x->g, PLIM_STR("blocks"), &x->units, err);
    if (!st && x->share->experts > 1 && !(x->share->strategy.flags & PLIM_ALONE))
        st = add_experts(x, err);
    if (!st && !(x->open = PLIM_NEW_N(x->a, uint32_t, (uint64_t)x->units.n + 1)))
        return plim_oom(err);
    if (st != PLIM_EUSAGE)
        return st;
    x->units = (plim_regions){0};
    plim_err_clear(err);
    return PLIM_OK;
}

plim_status plim_shared_start(plim_shared *x, plim_err *err)
{
    const plim_strategy *by = x->strategy = x->share->strategy.strategy;
    x->leaf = x->value;
    if (!by)
        return PLIM_OK;
    PLIM_TRY(by->forward.end ? find_units(x, err) : PLIM_OK);
    x->watch = (plim_m_watch){.gradient = hear_gradient,
                              .passed = by->backward.begin ? hear_mark : NULL,
                              .finished = by->backward.finish ? hear_end : NULL,
                              .ud = x};
    plim_m_set_watch(x->m, &x->watch);
    by->setup.wrap(x);
    return plim_m_status(x->m);
}

static void mark_values(plim_shared *x, uint32_t mark, const uint32_t *ids, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (x->g->values[ids[i]].kind == PLIM_VALUE_NODE)
            plim_m_mark(x->m, mark, &x->value[ids[i]], 1);
}

/* ---- units that run forward ------------------------------------------------------------------------ */

/* The inputs of a module within another are others within it only: its caller has what it had. */
static void keep_inputs(plim_shared *x, uint32_t unit)
{
    const plim_region *r = &x->units.r[unit];
    for (uint32_t i = 0; i < r->n_inputs; i++) {
        uint32_t v = r->input[i];
        if (x->g->values[v].kind != PLIM_VALUE_NODE)
            continue;
        if (!PLIM_PUSH_ROOM(x->a, x->kept, x->n_kept, x->cap_kept)) {
            plim_m_oom(x->m);
            return;
        }
        x->kept[x->n_kept++] = (plim_shared_kept){unit, v, plim_m_ref(x->m, x->value[v])};
    }
}

static void restore_inputs(plim_shared *x, uint32_t unit)
{
    for (; x->n_kept && x->kept[x->n_kept - 1].unit == unit; x->n_kept--) {
        const plim_shared_kept *k = &x->kept[x->n_kept - 1];
        bool gone = !x->value[k->value]; /* within the module */
        plim_m_drop(x->m, gone ? k->was : x->value[k->value]);
        x->value[k->value] = gone ? 0 : k->was;
    }
}

/* DeepSpeed marks each input by itself; with the others, the unit's end waits for all gradients. */
static void mark_inputs(plim_shared *x, uint32_t unit, const plim_region *r)
{
    enum { MOST = 32 };
    uint32_t mark = unit * MARKS + AT_INPUTS, id[MOST], n = 0;
    plim_t t[MOST];
    if (of_modules(x)) {
        mark_values(x, mark, r->input, r->n_inputs);
        return;
    }
    for (uint32_t i = 0; i < r->n_inputs && n < MOST; i++)
        if (x->g->values[r->input[i]].kind == PLIM_VALUE_NODE) {
            t[n] = x->value[r->input[i]];
            id[n++] = r->input[i];
        }
    plim_m_mark(x->m, mark, t, n);
    for (uint32_t i = 0; i < n; i++)
        x->value[id[i]] = t[i];
}

/* What runs again leaves tensors, and is not gone back through. */
static bool leaves_marks(const plim_shared *x) { return !x->again || of_modules(x); }

static void begin_unit(plim_shared *x, uint32_t unit)
{
    plim_assert(unit <= x->units.n);
    const plim_region *r = unit < x->units.n ? &x->units.r[unit] : NULL;
    bool ends =
        r && x->strategy->backward.end && !(x->ends && !x->ends[unit]) && leaves_marks(x);
    if (ends && (of_modules(x) || x->n_open))
        keep_inputs(x, unit);
    x->strategy->forward.begin(x, unit);
    if (ends)
        mark_inputs(x, unit, r);
}

static void end_unit(plim_shared *x, uint32_t unit)
{
    plim_assert(unit <= x->units.n);
    const plim_region *r = unit < x->units.n ? &x->units.r[unit] : NULL;
    restore_inputs(x, unit);
    x->strategy->forward.end(x, unit);
    if (x->strategy->backward.begin && leaves_marks(x))
        mark_values(x, unit * MARKS + AT_OUTPUTS, r ? r->output : x->g->outputs,
                    r ? r->n_outputs : x->g->n_outputs);
}

static bool hears_forward(const plim_shared *x)
{
    return x->strategy && x->strategy->forward.end &&
           (!x->again || of_modules(x) || x->strategy->forward.again);
}

void plim_shared_forward(plim_shared *x)
{
    x->next = x->n_open = 0;
    if (x->strategy && x->strategy->forward.begin)
        begin_unit(x, x->units.n);
}

void plim_shared_before(plim_shared *x, uint32_t node)
{
    for (; hears_forward(x) && x->next < x->units.n && x->units.r[x->next].first == node;
         x->next++) {
        if (x->again && x->strategy->forward.again && !x->strategy->forward.again(x, x->next))
            continue;
        begin_unit(x, x->next);
        plim_assert(x->n_open <= x->units.n);
        x->open[x->n_open++] = x->next;
    }
}

void plim_shared_after(plim_shared *x, uint32_t node)
{
    while (hears_forward(x) && x->n_open &&
           x->units.r[x->open[x->n_open - 1]].last == node + 1)
        end_unit(x, x->open[--x->n_open]);
}

void plim_shared_forward_end(plim_shared *x)
{
    if (hears_forward(x))
        end_unit(x, x->units.n);
}

uint32_t plim_shared_again(plim_shared *x, uint32_t first)
{
    plim_assert(!x->again);
    x->again = true;
    for (x->next = 0; x->next < x->units.n && x->units.r[x->next].first < first;)
        x->next++;
    return x->n_open;
}

void plim_shared_again_end(plim_shared *x, uint32_t depth)
{
    plim_assert(x->again);
    while (x->n_open > depth) /* an exception has left them */
        restore_inputs(x, x->open[--x->n_open]);
    x->again = false;
}

plim_t plim_shared_loss(plim_shared *x, plim_t loss)
{
    return x->strategy && x->strategy->backward.loss ? x->strategy->backward.loss(x, loss)
                                                     : plim_m_ref(x->m, loss);
}

void plim_shared_returned(plim_shared *x)
{
    if (x->strategy && x->strategy->backward.returned)
        x->strategy->backward.returned(x);
}

void plim_shared_reduce(plim_shared *x)
{
    if (x->strategy && x->strategy->backward.reduce)
        x->strategy->backward.reduce(x);
}

bool plim_shared_in_parts(const plim_shared *x)
{
    return x->strategy && x->strategy->step.part && x->n_masters;
}
void plim_shared_part(plim_shared *x, uint32_t i)
{
    plim_assert(i < x->n_masters);
    x->strategy->step.part(x, i);
}
void plim_shared_part_end(plim_shared *x, uint32_t i)
{
    plim_assert(i < x->n_masters);
    x->strategy->step.part_end(x, i);
}

bool plim_shared_step(plim_shared *x)
{
    if (!x->strategy || !x->strategy->step.begin)
        return false;
    x->strategy->step.begin(x);
    return true;
}

void plim_shared_step_end(plim_shared *x)
{
    if (x->strategy && x->strategy->step.end)
        x->strategy->step.end(x);
}
