/* hf_weights.c -- the weights next to a config.json: compared with the model that is built,
 * tensor by tensor; if none is built, all that is known. */
#include "import/hf/hf.h"
#include "import/hf/hf_names.h"

#include <stdio.h>
#include <stdlib.h>

/* What is compared, the first that is there.  Of weights that were not fetched from the hub their index is
 * here, or the header. */
static const struct {
    const char *name, *file; /* as it is called; where it is */
    bool cut;                /* the file is the beginning of it */
} usual[] = {
    {"model.safetensors.index.json", "model.safetensors.index.json", false},
    {"model.safetensors", "model.safetensors", false},
    {"model.safetensors", "model.safetensors.header", true},
    {"pytorch_model.bin.index.json", "pytorch_model.bin.index.json", false},
    {"pytorch_model.bin", "pytorch_model.bin", false},
};

/* How many of a kind there are, and the first one. */
typedef struct tally {
    uint64_t n;
    plim_str first;
} tally;

/* A stored tensor that is a part of a tensor of the class. */
typedef struct part {
    uint32_t item, stored;
    uint64_t at; /* index among the parts of all numbers */
    plim_hf_place place;
} part;

typedef struct comparison {
    plim_inventory *v;
    const plim_inventory *w;
    plim_hf_names names;
    plim_map model;  /* the names of v */
    uint32_t *whole; /* by item of v: the stored tensor, or PLIM_NONE */
    part *parts;     /* sorted by item and index within it */
    uint32_t n_parts;
    tally missing, more, shape, type;
} comparison;

static void count_name(tally *t, plim_str name) { t->first = t->n++ ? t->first : name; }

static void count_more(comparison *c, uint32_t stored)
{
    plim_str name = c->w->items[stored].name;
    if (!plim_hf_ignores(&c->names, name))
        count_name(&c->more, name);
}

/* ---- which is which -------------------------------------------------------------------- */

static int compare_parts(const void *a, const void *b)
{
    const part *x = a, *y = b;
    return x->item != y->item ? (x->item > y->item) - (x->item < y->item)
           : x->at != y->at   ? (x->at > y->at) - (x->at < y->at)
                              : (x->stored > y->stored) - (x->stored < y->stored);
}

static void place_stored(comparison *c, uint32_t stored)
{
    plim_hf_place at;
    if (!plim_hf_place_of(&c->names, &c->model, c->w->items[stored].name, &at)) {
        count_more(c, stored);
    } else if (at.rule) {
        c->parts[c->n_parts++] = (part){.item = at.tensor,
                                        .stored = stored,
                                        .at = (uint64_t)at.number * at.parts + at.part,
                                        .place = at};
    } else if (c->whole[at.tensor] == PLIM_NONE) {
        c->whole[at.tensor] = stored;
    } else {
        count_more(c, stored);
    }
}

/* A tied tensor may be stored under any of its names. */
static void give_to_owners(comparison *c)
{
    for (uint32_t i = 0; i < c->v->n_items; i++) {
        uint32_t owner = c->v->items[i].same_as;
        if (owner != PLIM_NONE && c->whole[owner] == PLIM_NONE) {
            c->whole[owner] = c->whole[i];
            c->whole[i] = PLIM_NONE;
        }
    }
}

/* Places those with names of the class first, then all others. */
static plim_status place_all(comparison *c, plim_err *err)
{
    uint32_t n = c->w->n_items, k;
    bool *done = PLIM_NEW_N(c->v->arena, bool, n);
    c->parts = PLIM_NEW_N(c->v->arena, part, n);
    c->whole = PLIM_NEW_N(c->v->arena, uint32_t, c->v->n_items);
    if (!done || !c->parts || !c->whole)
        return plim_oom(err);
    for (uint32_t i = 0; i < c->v->n_items; i++) {
        c->whole[i] = PLIM_NONE;
        if (!plim_map_put(c->v->arena, &c->model, c->v->items[i].name, i))
            return plim_oom(err);
    }
    for (uint32_t i = 0; i < n; i++) {
        done[i] = plim_map_get(&c->model, c->w->items[i].name, &k) && c->whole[k] == PLIM_NONE;
        if (done[i])
            c->whole[k] = i;
    }
    for (uint32_t i = 0; i < n; i++)
        if (!done[i])
            place_stored(c, i);
    give_to_owners(c);
    qsort(c->parts, c->n_parts, sizeof *c->parts, compare_parts);
    return PLIM_OK;
}

/* ---- what does not agree ----------------------------------------------------------------- */

static bool same_shape(const plim_item *a, const plim_item *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

/* Whether [numbers, parts * rows, ...] consists of parts [rows, ...]. */
static bool same_part_shape(const plim_item *it, const plim_item *w, uint32_t parts)
{
    return w->rank > 0 && it->rank == w->rank + 1 && it->dim[1] % parts == 0 &&
           w->dim[0] == it->dim[1] / parts &&
           !memcmp(it->dim + 2, w->dim + 1, (size_t)(w->rank - 1) * sizeof w->dim[0]);
}

/* A second name of a tied parameter need not be stored, nor a buffer. */
static bool may_lack(const plim_item *it)
{
    return it->same_as != PLIM_NONE || it->kind != PLIM_ITEM_PARAMETER;
}

/* Buffers that old versions stored and new ones compute may differ. */
static void check_whole(comparison *c, const plim_item *it, const plim_item *w)
{
    if (c->w->names_only)
        return;
    if (it->kind != PLIM_ITEM_PARAMETER && plim_hf_ignores(&c->names, it->name))
        return;
    if (!same_shape(it, w))
        count_name(&c->shape, it->name);
    else if (!plim_str_eq(it->type, w->type))
        count_name(&c->type, it->name);
}

/* Parts from..to-1 are not stored, but `p` of the same tensor is. */
static bool count_gap(comparison *c, const part *p, uint64_t from, uint64_t to)
{
    plim_str stored = c->w->items[p->stored].name;
    uint64_t n = p->place.parts;
    if (from < to && !c->missing.n)
        c->missing.first =
            plim_hf_name_beside(c->v->arena, stored, &p->place, from / n, from % n);
    c->missing.n += to - from;
    return c->missing.first.p || !c->missing.n;
}

static bool check_parts(comparison *c, const plim_item *it, const part *p, uint32_t n)
{
    uint64_t next = 0, all = it->rank ? (uint64_t)it->dim[0] * p->place.parts : 0;
    for (uint32_t i = 0; i < n; i++) {
        const plim_item *w = &c->w->items[p[i].stored];
        if (p[i].at < next || p[i].at >= all) {
            count_more(c, p[i].stored);
            continue;
        }
        if (!count_gap(c, p, next, p[i].at))
            return false;
        next = p[i].at + 1;
        if (c->w->names_only)
            continue;
        if (!same_part_shape(it, w, p->place.parts))
            count_name(&c->shape, w->name);
        else if (!plim_str_eq(it->type, w->type))
            count_name(&c->type, w->name);
    }
    return count_gap(c, p, next, all);
}

static plim_status check_all(comparison *c, plim_err *err)
{
    const part *p = c->parts, *end = c->parts + c->n_parts;
    for (uint32_t i = 0; i < c->v->n_items; i++) {
        const plim_item *it = &c->v->items[i];
        const part *first = p;
        while (p < end && p->item == i)
            p++;
        if (c->whole[i] == PLIM_NONE) {
            if (p > first && !check_parts(c, it, first, (uint32_t)(p - first)))
                return plim_oom(err);
            if (p == first && !may_lack(it))
                count_name(&c->missing, it->name);
            continue;
        }
        check_whole(c, it, &c->w->items[c->whole[i]]);
        for (; first < p; first++)
            count_more(c, first->stored);
    }
    return PLIM_OK;
}

static plim_status note_tally(plim_inventory *v, const tally *t, const char *what,
                              const char *file, plim_err *err)
{
    if (!t->n)
        return PLIM_OK;
    return plim_inventory_note(v, err, "%s '%s': %" PRIu64 ", the first is '" PLIM_STR_FMT "'",
                               what, file, t->n, PLIM_STR_ARG(t->first));
}

/* Bytes that the model has for what is stored. */
static uint64_t stored_bytes(const comparison *c)
{
    uint64_t bytes = 0;
    const part *p = c->parts, *end = c->parts + c->n_parts;
    for (uint32_t i = 0; i < c->v->n_items; i++) {
        bool stored = c->whole[i] != PLIM_NONE;
        for (; p < end && p->item == i; p++)
            stored = true;
        bytes = plim_sat_add(bytes, stored ? c->v->items[i].bytes : 0);
    }
    return bytes;
}

/* An index alone: where the names agree, so should the bytes of all together. */
static plim_status note_told(const comparison *c, const char *file, plim_err *err)
{
    if (!c->w->names_only || !c->w->told || c->missing.n || c->more.n ||
        stored_bytes(c) == c->w->told)
        return PLIM_OK;
    return plim_inventory_note(c->v, err,
                               "'%s' says %" PRIu64 " bytes, the model has %" PRIu64
                               " for the same tensors",
                               file, c->w->told, stored_bytes(c));
}

static plim_status compare_items(plim_inventory *v, plim_str model_type,
                                 const plim_inventory *w, const char *file, plim_err *err)
{
    comparison c = {.v = v, .w = w};
    PLIM_TRY(plim_hf_names_of(&c.names, model_type, v->arena, err));
    PLIM_TRY(place_all(&c, err));
    PLIM_TRY(check_all(&c, err));
    PLIM_TRY(note_tally(v, &c.missing, "parameters missing from", file, err));
    PLIM_TRY(note_tally(v, &c.more, "unexpected tensors in", file, err));
    PLIM_TRY(note_tally(v, &c.shape, "parameters with a different shape in", file, err));
    PLIM_TRY(note_tally(v, &c.type, "parameters with a different type in", file, err));
    return note_told(&c, file, err);
}

/* There is neither a model nor its weights. */
static plim_status note_names(plim_inventory *v, const plim_inventory *w, const char *file,
                              plim_err *err)
{
    char bytes[40] = "";
    if (w->told)
        snprintf(bytes, sizeof bytes, " of %" PRIu64 " bytes", w->told);
    return plim_inventory_note(
        v, err,
        "'%s' names %u tensors%s, which are not here; the model that uses "
        "them is not supported",
        file, (unsigned)w->n_items, bytes);
}

/* There is no model: its weights are all that is known. */
static plim_status adopt_items(plim_inventory *v, const plim_inventory *w, const char *file,
                               plim_err *err)
{
    v->items = w->items;
    v->n_items = w->n_items;
    v->cap_items = w->cap_items;
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < w->n_notes && !st; i++)
        st = plim_inventory_note(v, err, PLIM_STR_FMT, PLIM_STR_ARG(w->notes[i]));
    return st ? st
              : plim_inventory_note(v, err,
                                    "the list shows what '%s' holds: the weights are exact, "
                                    "the model that uses them is not supported",
                                    file);
}

/* What has a graph is not a file of weights: another configuration there would look for its
 * weights in turn, and find itself. */
static plim_status read_beside(plim_inventory *v, plim_str model_type, const plim_source *file,
                               const char *name, plim_err *err)
{
    const plim_importer *reader;
    plim_inventory w = {.arena = v->arena};
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_importer_for(file->bytes, &reader, &why);
    if (!st && (!reader || !reader->list || reader->read))
        return PLIM_OK;
    st = st ? st : reader->list(&w, file, &why);
    if (st == PLIM_ENOMEM)
        return plim_oom(err);
    if (st)
        return plim_inventory_note(v, err, "'%s' in the same folder cannot be read: %s", name,
                                   why.msg);
    return v->n_items     ? compare_items(v, model_type, &w, name, err)
           : w.names_only ? note_names(v, &w, name, err)
                          : adopt_items(v, &w, name, err);
}

plim_status plim_hf_weights(plim_inventory *v, plim_str model_type, const plim_source *s,
                            plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT(usual); i++) {
        plim_err none = PLIM_ERR_INIT;
        plim_source file;
        plim_status st =
            plim_source_beside(s, plim_str_of(usual[i].file), v->arena, &file, &none);
        if (st == PLIM_ENOMEM)
            return plim_oom(err);
        if (st)
            continue;
        file.cut = usual[i].cut;
        file.names = true;
        st = read_beside(v, model_type, &file, usual[i].name, err);
        plim_source_close(&file);
        return st;
    }
    return PLIM_OK;
}
