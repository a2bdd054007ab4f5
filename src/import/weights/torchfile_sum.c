/* torchfile_sum.c -- conclusions once all tensors of a file are known: which are buffers,
 * which are copies of others, which share bytes, and how much memory a training needs that
 * resumes from the file. */
#include <stdlib.h>

#include "import/weights/torchfile_priv.h"

/* ---- kinds ------------------------------------------------------------------------------ */

static plim_item *item_of(const torchfile *f, const torch_entry *e)
{
    return &f->v->items[e->item];
}

static bool is_weight(const torchfile *f, const torch_entry *e)
{
    plim_item_kind kind = item_of(f, e)->kind;
    return kind == PLIM_ITEM_PARAMETER || kind == PLIM_ITEM_BUFFER;
}

static bool ends_with(plim_str s, plim_str ending)
{
    return plim_str_ends(s, ending) && (s.n == ending.n || s.p[s.n - ending.n - 1] == '.');
}

/* A state dict does not distinguish buffers from parameters.  These names are always buffers,
 * and a trainable parameter never has an integer type; int32 and narrower are still counted as
 * weights, since quantized ones use them.
 * src: torch/nn/modules/batchnorm.py, _NormBase; torch/nn/parameter.py */
static bool is_buffer(const plim_item *it)
{
    static const char *const names[] = {"running_mean", "running_var"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++)
        if (ends_with(it->name, plim_str_of(names[i])))
            return true;
    return plim_str_is(it->type, "int64") || plim_str_is(it->type, "bool");
}

static void find_buffers(torchfile *f)
{
    for (uint32_t i = 0; i < f->n_entries; i++) {
        plim_item *it = item_of(f, &f->entries[i]);
        if (it->kind == PLIM_ITEM_PARAMETER && !f->entries[i].at.in_module && is_buffer(it))
            it->kind = PLIM_ITEM_BUFFER;
    }
}

/* Weights under one key of the top dict: "model", "ema". */
typedef struct group {
    plim_str name;
    uint32_t id, first, n; /* entries from first on; n of them are weights */
    uint32_t skip;         /* length of their common prefix, the group's own included */
    uint64_t bytes;
} group;

static uint32_t common_start(plim_str a, plim_str b, uint32_t n)
{
    uint32_t i = 0;
    while (i < n && i < a.n && i < b.n && a.p[i] == b.p[i])
        i++;
    while (i && a.p[i - 1] != '.')
        i--;
    return i;
}

static plim_status find_groups(torchfile *f, group **groups, uint32_t *n)
{
    uint32_t cap = 0;
    *n = 0;
    *groups = NULL;
    for (uint32_t i = 0; i < f->n_entries; i++) {
        const torch_entry *e = &f->entries[i];
        plim_str name = item_of(f, e)->name;
        if (!is_weight(f, e) || e->at.depth < 2 || e->at.group == PLIM_NONE)
            continue;
        if (!*n || (*groups)[*n - 1].id != e->at.group) {
            if (!PLIM_PUSH_ROOM(f->a, *groups, *n, cap))
                return plim_oom(f->err);
            (*groups)[(*n)++] = (group){.name = {name.p, e->top},
                                        .id = e->at.group,
                                        .first = i,
                                        .skip = (uint32_t)name.n};
        }
        group *g = &(*groups)[*n - 1];
        g->skip = common_start(name, item_of(f, &f->entries[g->first])->name, g->skip);
        g->bytes = plim_sat_add(g->bytes, e->bytes);
        g->n++;
    }
    return PLIM_OK;
}

/* As a separate word of the name: "model_ema", "ema.module", but not "schema". */
static bool has_word(plim_str s, const char *word)
{
    size_t n = strlen(word);
    for (size_t i = 0; i + n <= s.n; i++) {
        bool left = i && s.p[i - 1] >= 'a' && s.p[i - 1] <= 'z';
        bool right = i + n < s.n && s.p[i + n] >= 'a' && s.p[i + n] <= 'z';
        if (!left && !right && memcmp(s.p + i, word, n) == 0)
            return true;
    }
    return false;
}

/* Whether its name says that it is a copy of the same weights: two networks of one
 * architecture (twin critics) are not copies. */
static bool is_copy_name(plim_str s)
{
    static const char *const words[] = {"ema",    "avg",  "average", "averaged", "swa",
                                        "shadow", "best", "teacher", "target"};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (has_word(s, words[i]))
            return true;
    return false;
}

/* The largest; among equals one that is not named as a copy, else the first. */
static const group *main_group(const group *groups, uint32_t n)
{
    const group *best = n ? groups : NULL;
    for (uint32_t i = 1; i < n; i++)
        if (groups[i].bytes > best->bytes ||
            (groups[i].bytes == best->bytes && is_copy_name(best->name) &&
             !is_copy_name(groups[i].name)))
            best = &groups[i];
    return best;
}

static plim_str rest_of(const torchfile *f, const torch_entry *e, const group *g)
{
    plim_str s = item_of(f, e)->name;
    return (plim_str){s.p + g->skip, s.n - g->skip};
}

static bool same_shape(const plim_item *a, const plim_item *b)
{
    return a->rank == b->rank && memcmp(a->dim, b->dim, (size_t)a->rank * sizeof *a->dim) == 0;
}

/* Whether it is named as a copy, all its tensors are in `main`, by name and shape, and they
 * are at least half of those. */
static bool is_repeated(const torchfile *f, const group *g, const group *main,
                        const plim_map *names)
{
    uint32_t at;
    if (g == main || !is_copy_name(g->name) || g->n < main->n - main->n / 2)
        return false;
    for (uint32_t i = g->first; i < f->n_entries && f->entries[i].at.group == g->id; i++)
        if (is_weight(f, &f->entries[i]) &&
            (!plim_map_get(names, rest_of(f, &f->entries[i], g), &at) ||
             !same_shape(item_of(f, &f->entries[i]), &f->v->items[at])))
            return false;
    return true;
}

static plim_status find_copies(torchfile *f, const group *groups, uint32_t n,
                               const group *main)
{
    plim_map names = {0};
    plim_status st = PLIM_OK;
    for (uint32_t i = main->first; i < f->n_entries && f->entries[i].at.group == main->id; i++)
        if (is_weight(f, &f->entries[i]) &&
            !plim_map_put(f->a, &names, rest_of(f, &f->entries[i], main), f->entries[i].item))
            return plim_oom(f->err);
    for (uint32_t i = 0; i < n && !st; i++) {
        const group *g = &groups[i];
        if (!is_repeated(f, g, main, &names))
            continue;
        for (uint32_t k = g->first; k < f->n_entries && f->entries[k].at.group == g->id; k++)
            if (is_weight(f, &f->entries[k]))
                item_of(f, &f->entries[k])->kind = PLIM_ITEM_OTHER;
        st =
            plim_inventory_note(f->v, f->err,
                                "'" PLIM_STR_FMT "' is a copy of the weights in '" PLIM_STR_FMT
                                "' (%" PRIu64 " bytes) and not counted among the parameters",
                                PLIM_STR_ARG(g->name), PLIM_STR_ARG(main->name), g->bytes);
    }
    return st;
}

/* Prefixes that training wrappers put before every name.
 * src: torch/nn/parallel/distributed.py, torch/_dynamo/eval_frame.py */
static plim_status say_prefix(torchfile *f, plim_str name, uint32_t top, uint32_t skip)
{
    static const struct {
        const char *prefix, *by;
    } T[] = {{"module.", "DataParallel or DistributedDataParallel"},
             {"_orig_mod.", "torch.compile"}};
    plim_status st = PLIM_OK;
    if (skip <= top)
        return PLIM_OK;
    plim_str common = {name.p + top, skip - top};
    for (size_t i = 0; i < PLIM_COUNT(T) && !st; i++)
        if (plim_str_starts(common, T[i].prefix))
            st = plim_inventory_note(f->v, f->err,
                                     "all names begin with '%s': the model was wrapped in %s",
                                     T[i].prefix, T[i].by);
    return st;
}

/* For a flat state dict. */
static plim_status say_flat_prefix(torchfile *f)
{
    uint32_t skip = UINT32_MAX, first = PLIM_NONE;
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (is_weight(f, &f->entries[i])) {
            plim_str name = item_of(f, &f->entries[i])->name;
            first = first == PLIM_NONE ? i : first;
            skip = common_start(name, item_of(f, &f->entries[first])->name, skip);
        }
    return first == PLIM_NONE ? PLIM_OK
                              : say_prefix(f, item_of(f, &f->entries[first])->name, 0, skip);
}

static bool is_single(const torchfile *f, const torch_entry *e)
{
    return is_weight(f, e) && e->at.depth == 1 && !e->at.in_module;
}

/* Next to "model" and "optimizer", a single tensor is not a weight; false if there are more of
 * these than of the model. */
static bool find_others(torchfile *f, const group *main)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (is_single(f, &f->entries[i]))
            bytes = plim_sat_add(bytes, f->entries[i].bytes);
    if (bytes > main->bytes)
        return false;
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (is_single(f, &f->entries[i]))
            item_of(f, &f->entries[i])->kind = PLIM_ITEM_OTHER;
    return true;
}

/* "model", or "G, D": the keys that hold the parameters. */
static plim_status say_groups(torchfile *f, const group *groups, uint32_t n)
{
    enum { MOST = 8 };
    plim_buf text;
    uint32_t said = 0;
    plim_buf_init(&text, f->a);
    for (uint32_t i = 0; i < n; i++)
        if (is_weight(f, &f->entries[groups[i].first]) && said++ < MOST)
            plim_buf_printf(&text, "%s" PLIM_STR_FMT, said > 1 ? ", " : "",
                            PLIM_STR_ARG(groups[i].name));
    if (said > MOST)
        plim_buf_printf(&text, " and %" PRIu32 " more", said - MOST);
    return text.bad ? plim_oom(f->err)
                    : plim_inventory_fact(f->v, f->err, "weights in", PLIM_STR_FMT,
                                          PLIM_STR_ARG(plim_buf_str(&text)));
}

static plim_status sort_groups(torchfile *f)
{
    group *groups;
    uint32_t n;
    plim_status st = find_groups(f, &groups, &n);
    const group *main = st ? NULL : main_group(groups, n);
    if (st || !main || !find_others(f, main))
        return st ? st : say_flat_prefix(f);
    st = find_copies(f, groups, n, main);
    if (!st && !f->part)
        st = say_groups(f, groups, n);
    return st ? st
              : say_prefix(f, item_of(f, &f->entries[main->first])->name,
                           (uint32_t)main->name.n + 1, main->skip);
}

/* ---- bytes that are shared --------------------------------------------------------------- */

typedef struct span {
    const torch_entry *e;
    plim_item_kind kind;
} span;

/* By place; at the same place the longest first, and among equals parameters first. */
static int compare_spans(const void *x, const void *y)
{
    const span *a = x, *b = y;
    if (a->e->storage != b->e->storage)
        return a->e->storage < b->e->storage ? -1 : 1;
    if (a->e->begin != b->e->begin)
        return a->e->begin < b->e->begin ? -1 : 1;
    if (a->e->end != b->e->end)
        return a->e->end > b->e->end ? -1 : 1;
    if (a->kind != b->kind)
        return a->kind < b->kind ? -1 : 1;
    return a->e->item < b->e->item ? -1 : a->e->item > b->e->item;
}

/* Each byte of a storage belongs to the first tensor that spans it.  A tensor that adds no
 * bytes is the same as that one; one that adds some is counted with those.  *unused: bytes of
 * the n storages that no tensor spans. */
static plim_status share_bytes(torchfile *f, uint64_t *unused, uint32_t *n)
{
    span *spans = PLIM_NEW_N(f->a, span, f->n_entries + 1);
    uint32_t count = 0;
    if (!spans)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < f->n_entries; i++)
        if (f->entries[i].storage != PLIM_NONE && f->entries[i].begin < f->entries[i].end)
            spans[count++] = (span){&f->entries[i], item_of(f, &f->entries[i])->kind};
    qsort(spans, count, sizeof *spans, compare_spans);
    *unused = 0;
    *n = 0;
    for (uint32_t i = 0; i < count;) {
        const torch_entry *owner = spans[i].e;
        uint32_t id = owner->storage;
        uint64_t to = 0, used = 0;
        for (; i < count && spans[i].e->storage == id; i++) {
            const torch_entry *e = spans[i].e;
            uint64_t from = PLIM_MAX(e->begin, to);
            if (e->end <= to) {
                item_of(f, e)->same_as = owner->item;
                continue;
            }
            item_of(f, e)->bytes = e->end - from;
            used += e->end - from;
            to = e->end;
            owner = e;
        }
        *n += used < f->storages[id].bytes;
        *unused = plim_sat_add(*unused, f->storages[id].bytes - used);
    }
    return PLIM_OK;
}

/* ---- what is said ---------------------------------------------------------------------------- */

/* Sums by name, in order of first appearance. */
typedef struct tally {
    struct {
        plim_str name;
        uint64_t bytes;
    } rows[12];
    uint32_t n;
    uint64_t rest;
} tally;

static void tally_add(tally *t, plim_str name, uint64_t bytes)
{
    uint32_t i = 0;
    while (i < t->n && !plim_str_eq(t->rows[i].name, name))
        i++;
    if (i == PLIM_COUNT(t->rows)) {
        t->rest = plim_sat_add(t->rest, bytes);
        return;
    }
    t->n = PLIM_MAX(t->n, i + 1);
    t->rows[i].name = name;
    t->rows[i].bytes = plim_sat_add(t->rows[i].bytes, bytes);
}

static plim_status tally_say(torchfile *f, const tally *t, const char *key)
{
    plim_buf text;
    plim_buf_init(&text, f->a);
    for (uint32_t i = 0; i < t->n; i++)
        plim_buf_printf(&text, "%s%.*s %s", i ? ", " : "",
                        (int)PLIM_MIN(t->rows[i].name.n, (size_t)40), t->rows[i].name.p,
                        plim_fmt_bytes(t->rows[i].bytes, false).s);
    if (t->rest)
        plim_buf_printf(&text, ", others %s", plim_fmt_bytes(t->rest, false).s);
    if (text.bad)
        return plim_oom(f->err);
    return t->n ? plim_inventory_fact(f->v, f->err, key, PLIM_STR_FMT,
                                      PLIM_STR_ARG(plim_buf_str(&text)))
                : PLIM_OK;
}

/* Memory on the card of a training that resumes from here, before its first step. */
static plim_status say_resume(torchfile *f)
{
    uint64_t card[PLIM_ITEM_KINDS] = {0}, host = 0;
    tally states = {.n = 0};
    for (uint32_t i = 0; i < f->n_entries; i++) {
        const torch_entry *e = &f->entries[i];
        const plim_item *it = item_of(f, e);
        if (it->same_as != PLIM_NONE)
            continue;
        if (it->kind == PLIM_ITEM_OPTIMIZER_STATE)
            tally_add(&states, e->at.state.n ? e->at.state : PLIM_STR("others"), it->bytes);
        uint64_t *sum = e->at.on_host ? &host : &card[it->kind];
        *sum = plim_sat_add(*sum, it->bytes);
    }
    if (!f->n_optimizers || f->part)
        return PLIM_OK;
    PLIM_TRY(tally_say(f, &states, "optimizer state"));
    uint64_t weights = plim_sat_add(card[PLIM_ITEM_PARAMETER], card[PLIM_ITEM_BUFFER]);
    return plim_inventory_fact(f->v, f->err, "resume memory",
                               "%" PRIu64 " bytes on the GPU, %" PRIu64 " in host memory%s",
                               plim_sat_add(weights, card[PLIM_ITEM_OPTIMIZER_STATE]), host,
                               weights ? "" : "; without weights");
}

static plim_status say_locations(torchfile *f)
{
    tally t = {.n = 0};
    bool card = false;
    for (uint32_t i = 0; i < f->n_storages; i++) {
        plim_str at = f->storages[i].location;
        tally_add(&t, at, f->storages[i].bytes);
        card |= !plim_str_is(at, "cpu") && !plim_str_is(at, "meta");
    }
    plim_status st = f->part || !card ? PLIM_OK : tally_say(f, &t, "saved from");
    if (st || !card || f->part)
        return st;
    return plim_inventory_note(f->v, f->err,
                               "torch.load restores tensors to the device that they "
                               "were saved from, in addition to the model that they are "
                               "copied into: map_location=\"cpu\" keeps them off the GPU");
}

typedef struct sentence {
    bool when;
    const char *text;
} sentence;

static plim_status say_rest(torchfile *f, uint64_t unused, uint32_t n_unused)
{
    uint64_t meta = 0;
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_entries; i++)
        meta += f->entries[i].storage == PLIM_NONE;
    if (unused)
        st = plim_inventory_note(
            f->v, f->err,
            "used by no tensor: %" PRIu64 " bytes in %" PRIu32
            " storage%s; a view is saved with its whole storage unless it is cloned",
            unused, n_unused, n_unused == 1 ? "" : "s");
    if (!st && meta)
        st = plim_inventory_note(f->v, f->err,
                                 "on the meta device: %" PRIu64
                                 " tensor%s, with a shape but no data in the file",
                                 meta, meta == 1 ? "" : "s");
    if (!st && f->n_sparse)
        st = plim_inventory_note(f->v, f->err,
                                 "sparse: %" PRIu32 " tensor%s, listed as indices and values",
                                 f->n_sparse, f->n_sparse == 1 ? "" : "s");
    if (!st && f->n_unread)
        st = plim_inventory_note(f->v, f->err,
                                 "not decoded: %" PRIu32 " tensor%s rebuilt by '" PLIM_STR_FMT
                                 "' or similar; those parts that are tensors are listed",
                                 f->n_unread, f->n_unread == 1 ? "" : "s",
                                 PLIM_STR_ARG(f->unread));
    if (!st && f->n_modules && !f->part)
        st = plim_inventory_fact(f->v, f->err, "module",
                                 PLIM_STR_FMT ", of %" PRIu32 " modules",
                                 PLIM_STR_ARG(f->module), f->n_modules);
    const sentence sentences[] = {
        {f->n_modules, "the file is a pickled model, not a state dict: loading "
                       "it needs the classes that it was saved with"},
        {f->script, "TorchScript code is not read: export the model with "
                    "torch.export.save for an estimate"},
        {f->too_deep, "objects nested deeper than 64 levels were skipped"},
    };
    for (size_t i = 0; i < PLIM_COUNT(sentences) && !st; i++)
        if (sentences[i].when)
            st = plim_inventory_note(f->v, f->err, "%s", sentences[i].text);
    return st;
}

plim_status plim_torch_sum_up(torchfile *f)
{
    uint64_t unused = 0;
    uint32_t n = 0;
    find_buffers(f);
    PLIM_TRY(sort_groups(f));
    PLIM_TRY(share_bytes(f, &unused, &n));
    PLIM_TRY(say_resume(f));
    PLIM_TRY(say_locations(f));
    return say_rest(f, unused, n);
}
