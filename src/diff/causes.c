/* causes.c -- why two tapes differ: one function for each cause that is known, and the list of
 * them at the end.
 *
 * A function looks at what `x` has and `y` lacks, and is called for both orders of the two
 * sides.  It writes a sentence if the cause is likely, or nothing. */
#include <stdlib.h>

#include "diff/diff.h"

typedef struct view {
    const plim_tape_diff *d;
    const plim_diff_tape *x, *y;
    plim_buf *text;
    uint64_t bytes; /* of the storages that the cause explains */
    uint32_t end;   /* requests of x from here on are of steps that y does not have */
} view;

static uint64_t storage_bytes(const plim_diff_tape *s, uint32_t id)
{
    return s->tape->storages[id].bytes;
}

/* Storages of x that y does not have, although it goes as far. */
static bool is_lone(const view *v, uint32_t id)
{
    return v->x->allocs[id] < v->end && v->x->storage[id] == PLIM_NONE;
}

static bool is_kind(const plim_diff_tape *s, uint32_t id, plim_category c)
{
    return s->told && s->tape->storages[id].category == c;
}

/* The number of steps that a side has; 0: it does not say. */
static int64_t count_steps(const plim_diff_tape *s)
{
    return s->tape->n_marks ? (int64_t)s->tape->marks[s->tape->n_marks - 1].step + 1 : 0;
}

/* Where x goes on after y has ended; the number of its requests: it does not. */
static uint32_t find_end(const plim_diff_tape *x, const plim_diff_tape *y)
{
    enum { A_STEP = 4 }; /* more than this part of y may be another step */
    uint32_t i = x->requests.n;
    int64_t steps = count_steps(x), other = count_steps(y);
    while (i && x->partner[i - 1] == PLIM_NONE)
        i--;
    bool more = !i               ? false
                : steps && other ? steps > other
                                 : x->requests.n - i > y->requests.n / A_STEP;
    return more ? i : x->requests.n;
}

static view view_side(const plim_tape_diff *d, bool a)
{
    view v = {.d = d, .x = a ? &d->a : &d->b, .y = a ? &d->b : &d->a};
    v.end = find_end(v.x, v.y);
    return v;
}

static view swap_view(const view *v) { return view_side(v->d, v->y == &v->d->a); }

/* Number and bytes of some storages, and the largest of them. */
typedef struct tally {
    uint32_t n, largest;
    uint64_t bytes;
} tally;

static void tally_add(tally *t, const plim_diff_tape *s, uint32_t id)
{
    if (!t->n || storage_bytes(s, id) > storage_bytes(s, t->largest))
        t->largest = id;
    t->n++;
    t->bytes = plim_sat_add(t->bytes, storage_bytes(s, id));
}

/* Those of x with a category. */
static tally tally_kind(const view *v, plim_category c, bool lone)
{
    tally t = {0};
    for (uint32_t i = 0; i < v->x->tape->n_storages; i++)
        if (is_kind(v->x, i, c) && v->x->allocs[i] != PLIM_NONE && (!lone || is_lone(v, i)))
            tally_add(&t, v->x, i);
    return t;
}

/* "3 tensors (1.20 GiB)". */
static void say_tally(plim_buf *b, const tally *t)
{
    plim_buf_printf(b, "%s %s (%s)", plim_fmt_count(t->n).s, t->n == 1 ? "tensor" : "tensors",
                    plim_fmt_bytes(t->bytes, false).s);
}

static void say_name(view *v, uint32_t id) /* a storage of x */
{
    plim_str name = plim_diff_label_of(v->d, v->x, id).name;
    v->text->bad |= !name.p;
    if (name.n)
        plim_buf_printf(v->text, "'" PLIM_STR_FMT "'", PLIM_STR_ARG(name));
    else
        plim_buf_puts(v->text, "one without a name");
}

/* ---- sizes ----------------------------------------------------------------------- */

/* "2 times", "1/2 of". */
static void say_ratio(plim_buf *b, uint64_t times, uint64_t per)
{
    if (per == 1)
        plim_buf_printf(b, "%" PRIu64 " times", times);
    else
        plim_buf_printf(b, "%" PRIu64 "/%" PRIu64 " of", times, per);
}

/* The batch that the other side seems to have, if it is known of one. */
static void say_batch(view *v)
{
    const plim_tape_diff *d = v->d;
    bool of_a = d->a.batch > 0;
    uint64_t known = (uint64_t)(of_a ? d->a.batch : d->b.batch), other;
    uint64_t times = of_a ? d->times : d->per, per = of_a ? d->per : d->times;
    if (known && plim_mul(known, times, &other) && other % per == 0)
        plim_buf_printf(v->text, " (%s has %" PRIu64 ", so %s looks like %" PRIu64 ")",
                        of_a ? "A" : "B", known, of_a ? "B" : "A", other / per);
}

/* Storages of both have other sizes: the batch, the data type, or the inputs. */
static void cause_sizes(view *v)
{
    const plim_tape_diff *d = v->d;
    tally all = {0};
    uint32_t of[PLIM_CATEGORY_UNKNOWN + 1] = {0};
    if (v->x != &d->b)
        return;
    for (uint32_t i = 0; i < d->a.tape->n_storages; i++) {
        if (!plim_diff_resized(d, i))
            continue;
        tally_add(&all, &d->b, d->a.storage[i]);
        of[plim_diff_category_of(d, &d->a, i)]++;
    }
    if (!all.n)
        return;
    bool told = d->a.told || d->b.told;
    v->bytes = all.bytes;
    if (d->times) {
        plim_buf_puts(v->text, "Most sizes that differ are in B ");
        say_ratio(v->text, d->times, d->per);
        plim_buf_puts(v->text, " those in A");
    } else {
        plim_buf_puts(v->text, "In B, ");
        say_tally(v->text, &all);
        plim_buf_puts(v->text, all.n == 1 ? " has another size" : " have other sizes");
    }
    if (of[PLIM_CAT_PARAMETER]) {
        plim_buf_puts(v->text, ", the parameters too: another data type, or another model.");
    } else if (d->times && (of[PLIM_CAT_INPUT] || !told)) {
        plim_buf_puts(v->text, ": another batch");
        say_batch(v);
        plim_buf_puts(v->text, ", or inputs of another length.");
    } else {
        plim_buf_puts(v->text, ", such as ");
        say_name(v, all.largest);
        plim_buf_puts(v->text,
                      of[PLIM_CAT_INPUT] || !told
                          ? ": inputs of another shape."
                          : "; the inputs are equal: another data type of activations "
                            "(autocast), or another model.");
    }
}

/* ---- the optimizer --------------------------------------------------------------- */

static int compare_bytes(const void *x, const void *y)
{
    const uint64_t *p = x, *q = y;
    return *p < *q ? -1 : *p > *q;
}

/* The sizes of the parameters of s, ascending; NULL: it has none, or no memory. */
static uint64_t *list_parameters(const plim_diff_tape *s, plim_arena *a, uint32_t *n)
{
    uint64_t *list = PLIM_NEW_N(a, uint64_t, s->tape->n_storages + UINT64_C(1));
    *n = 0;
    for (uint32_t i = 0; list && i < s->tape->n_storages; i++)
        if (is_kind(s, i, PLIM_CAT_PARAMETER))
            list[(*n)++] = storage_bytes(s, i);
    if (list && *n)
        qsort(list, *n, sizeof *list, compare_bytes);
    return *n ? list : NULL;
}

/* Storages of x, which does not say what they are: as large as parameters, never freed. */
static tally tally_like_parameters(view *v)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    tally t = {0};
    uint32_t n = 0;
    uint64_t *sizes = list_parameters(v->y, &scratch, &n);
    for (uint32_t i = 0; sizes && i < v->x->tape->n_storages; i++) {
        uint64_t bytes = storage_bytes(v->x, i);
        if (is_lone(v, i) && v->x->frees[i] == PLIM_NONE &&
            bsearch(&bytes, sizes, n, sizeof *sizes, compare_bytes))
            tally_add(&t, v->x, i);
    }
    if (t.n < (n + 1) / 2)
        t = (tally){0};
    plim_arena_free(&scratch);
    return t;
}

static void cause_optimizer(view *v)
{
    if (v->x->told) {
        const view back = swap_view(v);
        tally all = tally_kind(v, PLIM_CAT_OPTIMIZER_STATE, false);
        tally lone = tally_kind(v, PLIM_CAT_OPTIMIZER_STATE, true);
        tally other = tally_kind(&back, PLIM_CAT_OPTIMIZER_STATE, true);
        if (lone.bytes <= other.bytes || lone.bytes < all.bytes / 2)
            return;
        v->bytes = lone.bytes;
        plim_buf_printf(v->text, "%s has optimizer state, ", v->x->letter);
        say_tally(v->text, &lone);
        plim_buf_puts(v->text, " such as ");
        say_name(v, lone.largest);
        plim_buf_printf(v->text, ", which %s lacks: another optimizer.", v->y->letter);
        return;
    }
    tally like = tally_like_parameters(v);
    if (!like.n)
        return;
    v->bytes = like.bytes;
    plim_buf_printf(v->text, "%s keeps ", v->x->letter);
    say_tally(v->text, &like);
    plim_buf_printf(v->text,
                    " as large as parameters, which %s lacks: another optimizer, or a copy of "
                    "the model.",
                    v->y->letter);
}

/* ---- lifetimes ------------------------------------------------------------------- */

/* Whether two requests of a side are in the same phase of the same step; a side that does not
 * tell: in no phase. */
static bool same_phase(const plim_diff_tape *s, uint32_t one, uint32_t other)
{
    const plim_mark *m = plim_diff_mark(s, one);
    const plim_mark *n = other == PLIM_NONE ? NULL : plim_diff_mark(s, other);
    return m && n && m->step == n->step && m->phase == n->phase;
}

/* Whether x keeps a storage, which both have, beyond the phase in which y frees it. */
static bool keeps_longer(const view *v, uint32_t id)
{
    uint32_t other = v->x->storage[id];
    uint32_t freed = other == PLIM_NONE ? PLIM_NONE : v->y->frees[other];
    if (freed == PLIM_NONE || v->y->partner[freed] != PLIM_NONE)
        return false;
    uint32_t kept = v->x->frees[id];
    if (kept == PLIM_NONE)
        return v->y->seen[freed] < v->x->n_seen;
    return v->y->seen[freed] < v->x->seen[kept] &&
           !same_phase(v->y, freed, v->x->last[kept]) &&
           !same_phase(v->x, kept, v->y->last[freed]);
}

static void say_where(view *v, const plim_diff_tape *s, uint32_t request)
{
    const plim_mark *m = plim_diff_mark(s, request);
    if (!m)
        plim_buf_printf(v->text, "at event %s",
                        plim_fmt_count(s->requests.at[request].event).s);
    else if (m->step < 0)
        plim_buf_puts(v->text, "before the first step");
    else
        plim_buf_printf(v->text, "in step %" PRId32 ", %s", m->step,
                        plim_phase_name((plim_phase)m->phase));
}

/* The gradients that x keeps and y frees, if they are those of half of the parameters. */
static tally tally_gradients(const view *v)
{
    tally t = {0};
    uint32_t parameters = 0;
    for (uint32_t i = 0; i < v->x->tape->n_storages; i++) {
        uint32_t category = plim_diff_category_of(v->d, v->x, i);
        parameters += category == PLIM_CAT_PARAMETER;
        if (category == PLIM_CAT_GRADIENT && keeps_longer(v, i))
            tally_add(&t, v->x, i);
    }
    return t.n > parameters / 2 ? t : (tally){0};
}

static void cause_gradients(view *v)
{
    tally t = tally_gradients(v);
    if (!t.n)
        return;
    v->bytes = t.bytes;
    plim_buf_printf(v->text, "%s keeps its gradients, ", v->x->letter);
    say_tally(v->text, &t);
    plim_buf_printf(
        v->text,
        ", from one step to the next, %s frees them: zero_grad(set_to_none=False), "
        "as before PyTorch 2.0, or gradients that are accumulated.",
        v->y->letter);
}

/* What holds a tensor of this category. */
static const char *say_holder(uint32_t category)
{
    return category == PLIM_CAT_ACTIVATION || category == PLIM_CAT_TEMPORARY
               ? "autograd saves more there, in another version or for another op, or a name or "
                 "a hook still refers to"
               : "a name, a list or a hook still refers to";
}

/* Something refers to what the other side has dropped. */
static void cause_kept(view *v)
{
    const view back = swap_view(v);
    tally t = {0}, outputs = {0}, gradients = tally_gradients(&back);
    for (uint32_t i = 0; i < v->x->tape->n_storages; i++) {
        if (!keeps_longer(v, i))
            continue;
        uint32_t category = plim_diff_category_of(v->d, v->x, i);
        if (category == PLIM_CAT_GRADIENT || category == PLIM_CAT_WORKSPACE ||
            (category == PLIM_CAT_TEMPORARY && gradients.n)) /* summed there, then dropped */
            continue;
        tally_add(&t, v->x, i);
        if (category == PLIM_CAT_OUTPUT)
            tally_add(&outputs, v->x, i);
    }
    if (!t.n)
        return;
    v->bytes = t.bytes;
    plim_diff_label label = plim_diff_label_of(v->d, v->x, t.largest);
    plim_str line = v->x->tape->storages[t.largest].name;
    plim_buf_printf(v->text, "%s keeps ", v->x->letter);
    say_tally(v->text, &t);
    plim_buf_printf(v->text, " longer than %s, ", v->y->letter);
    if (t.n > 1)
        plim_buf_puts(v->text, "the largest of them ");
    if (label.category != PLIM_CATEGORY_UNKNOWN)
        say_name(v, t.largest);
    if (!v->x->told && line.n)
        plim_buf_printf(v->text, "%sof " PLIM_STR_FMT,
                        label.category == PLIM_CATEGORY_UNKNOWN ? "" : " ",
                        PLIM_STR_ARG(line));
    plim_buf_printf(v->text, ", which %s frees ", v->y->letter);
    say_where(v, v->y, v->y->frees[v->x->storage[t.largest]]);
    plim_buf_printf(v->text, ": in %s, %s %s.", v->x->letter, say_holder(label.category),
                    t.n > 1 ? "them" : "it");
    if (outputs.n)
        plim_buf_puts(v->text, " Outputs of the model (logits, the loss) are among them.");
}

/* ---- what only one side has ------------------------------------------------------- */

static void cause_workspace(view *v)
{
    const view back = swap_view(v);
    tally lone = tally_kind(v, PLIM_CAT_WORKSPACE, true);
    tally other = tally_kind(&back, PLIM_CAT_WORKSPACE, true);
    if (!lone.n || lone.bytes <= other.bytes || v->d->n_resized) /* they follow from sizes */
        return;
    v->bytes = lone.bytes;
    plim_buf_printf(v->text, "%s counts ", v->x->letter);
    say_tally(v->text, &lone);
    plim_buf_puts(v->text, " of workspaces, such as ");
    say_name(v, lone.largest);
    plim_buf_printf(v->text,
                    " of %s, which %s lacks or has in other sizes: another card, "
                    "another PyTorch version, or CUBLAS_WORKSPACE_CONFIG.",
                    plim_fmt_bytes(storage_bytes(v->x, lone.largest), false).s, v->y->letter);
}

/* Copies of the outputs: logits in another type, or gathered. */
static void cause_outputs(view *v)
{
    uint64_t bytes = 0;
    tally t = {0};
    for (uint32_t i = 0; i < v->y->tape->n_storages; i++)
        if (is_kind(v->y, i, PLIM_CAT_OUTPUT))
            bytes = PLIM_MAX(bytes, storage_bytes(v->y, i));
    for (uint32_t i = 0; bytes && !v->d->n_resized && i < v->x->n_live; i++) {
        uint32_t id = v->x->live[i];
        if (is_lone(v, id) && (storage_bytes(v->x, id) == bytes ||
                               storage_bytes(v->x, id) == plim_sat_mul(bytes, 2)))
            tally_add(&t, v->x, id);
    }
    if (!t.n)
        return;
    v->bytes = t.bytes;
    plim_buf_printf(v->text, "At its peak %s has ", v->x->letter);
    say_tally(v->text, &t);
    plim_buf_printf(v->text,
                    " as large as the outputs of the model, or twice, which %s lacks: "
                    "logits that are copied, cast or kept.",
                    v->y->letter);
}

/* ---- how much was recorded ---------------------------------------------------------- */

static void cause_steps(view *v)
{
    int64_t steps = count_steps(v->x), other = count_steps(v->y);
    if (steps && other) {
        if (steps > other)
            plim_buf_printf(v->text, "%s has %" PRId64 " steps, %s has %" PRId64 ".",
                            v->x->letter, steps, v->y->letter, other);
    } else if (v->end < v->x->requests.n) {
        plim_buf_printf(v->text,
                        "%s goes on for %s events after the last one of %s: it has more "
                        "steps, or was recorded for longer.",
                        v->x->letter, plim_fmt_count(v->x->requests.n - v->end).s,
                        v->y->letter);
    }
}

static void cause_later(view *v)
{
    if (v->x->later)
        plim_buf_printf(v->text,
                        "The recording of %s began in the middle of a run: what was live "
                        "then comes first, in the order of addresses.",
                        v->x->letter);
}

/* Whether so few requests are in both that what differs says nothing. */
static bool is_unrelated(const plim_tape_diff *d)
{
    enum { FEW = 16 }; /* one of so many */
    return d->a.n_seen < PLIM_MIN(d->a.requests.n, d->b.requests.n) / FEW || !d->a.n_seen;
}

static void cause_model(view *v)
{
    if (v->x == &v->d->b && v->d->parts && is_unrelated(v->d))
        plim_buf_puts(v->text,
                      "A and B have little in common: another model, or another script.");
}

/* ---- the list ------------------------------------------------------------------------ */

static const struct {
    const char *name;
    void (*find)(view *v);
    bool unrelated; /* it may hold of tapes with little in common, too */
} causes[] = {
    {"model", cause_model, true},          {"sizes", cause_sizes, false},
    {"optimizer", cause_optimizer, false}, {"gradients", cause_gradients, false},
    {"kept", cause_kept, false},           {"workspace", cause_workspace, false},
    {"outputs", cause_outputs, false},     {"steps", cause_steps, false},
    {"start", cause_later, true},
};

plim_status plim_diff_causes(const plim_tape_diff *d, plim_cause out[PLIM_CAUSES_MOST],
                             uint32_t *n, plim_err *err)
{
    *n = 0;
    for (size_t i = 0; i < 2 * PLIM_COUNT(causes); i++) {
        if (is_unrelated(d) && !causes[i / 2].unrelated)
            continue;
        plim_buf text;
        plim_buf_init(&text, d->arena);
        view v = view_side(d, i % 2 == 1);
        v.text = &text;
        causes[i / 2].find(&v);
        if (text.bad)
            return plim_oom(err);
        if (!text.n)
            continue;
        uint32_t at = (*n)++;
        for (; at && out[at - 1].bytes < v.bytes; at--)
            out[at] = out[at - 1];
        out[at] = (plim_cause){causes[i / 2].name, plim_buf_str(&text), v.bytes};
    }
    return PLIM_OK;
}
