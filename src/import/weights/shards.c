/* shards.c -- weights in several files, and the index that maps tensors to files:
 * model.safetensors.index.json, pytorch_model.bin.index.json and their equivalents in
 * diffusers.  Each shard is read by the importer of its format and must hold what the index
 * says.
 * src: transformers modeling_utils.py, huggingface_hub serialization/_base.py */
#include <stdlib.h>

#include "base/json.h"
#include "import/import.h"

extern const plim_importer plim_importer_index;

typedef struct shard_entry {
    plim_str file, name;
} shard_entry;

typedef struct shard_index {
    plim_inventory *v;
    plim_err *err;
    const plim_source *s;
    shard_entry *entries; /* sorted by file, then by name */
    uint32_t n_entries, cap_entries;
    bool has_total;
    uint64_t total; /* in bytes, according to the index */
} shard_index;

/* ---- the index --------------------------------------------------------------------- */

static int compare_entries(const void *a, const void *b)
{
    const shard_entry *x = a, *y = b;
    int by_file = plim_str_compare(x->file, y->file);
    return by_file ? by_file : plim_str_compare(x->name, y->name);
}

static plim_status read_map(shard_index *f, plim_json *j)
{
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        plim_str file = plim_json_str(j);
        if (j->bad)
            break;
        shard_entry e = {plim_json_unescape(f->v->arena, file),
                         plim_json_unescape(f->v->arena, key)};
        if (!e.file.p || !e.name.p ||
            !PLIM_PUSH_ROOM(f->v->arena, f->entries, f->n_entries, f->cap_entries))
            return plim_oom(f->err);
        f->entries[f->n_entries++] = e;
    }
    return j->bad;
}

/* {"total_size": 123, ...}: bytes. */
static void read_metadata(shard_index *f, plim_json *j)
{
    plim_str key;
    plim_json_object(j);
    while (plim_json_member(j, &key))
        if (plim_str_is(key, "total_size") && plim_json_peek(j) == PLIM_JSON_NUMBER) {
            f->total = plim_json_u64(j);
            f->has_total = true;
        } else {
            plim_json_skip(j);
        }
}

static plim_status check_names(shard_index *f)
{
    plim_str *names = PLIM_NEW_N(f->v->arena, plim_str, (uint64_t)f->n_entries + 1);
    if (!names)
        return plim_oom(f->err);
    for (uint32_t i = 0; i < f->n_entries; i++)
        names[i] = f->entries[i].name;
    plim_str twice = plim_str_twice(names, f->n_entries);
    return twice.p ? plim_fail(f->err, PLIM_EFORMAT, 0,
                               "tensor '" PLIM_STR_FMT "' appears twice", PLIM_STR_CUT(twice))
                   : PLIM_OK;
}

static plim_status read_index(shard_index *f)
{
    plim_json j;
    plim_str key;
    plim_status st = PLIM_OK;
    bool map = false;
    plim_json_init(&j, (plim_str){(const char *)f->s->bytes.p, (size_t)f->s->bytes.n}, f->err);
    plim_json_object(&j);
    while (!st && plim_json_member(&j, &key))
        if (plim_str_is(key, "weight_map") && !map) {
            map = true;
            st = read_map(f, &j);
        } else if (plim_str_is(key, "metadata") && plim_json_peek(&j) == PLIM_JSON_OBJECT) {
            read_metadata(f, &j);
        } else {
            plim_json_skip(&j);
        }
    if (!st && !plim_json_end(&j) && !f->n_entries)
        plim_json_fail(&j, PLIM_EFORMAT, "an index without a 'weight_map' that names a file");
    if (!st && !j.bad)
        st = check_names(f);
    if (f->n_entries)
        qsort(f->entries, f->n_entries, sizeof *f->entries, compare_entries);
    return st ? st : j.bad;
}

/* ---- a shard ------------------------------------------------------------------------ */

/* Compares what the index says about this file with its contents. */
static plim_status compare_shard(shard_index *f, const shard_entry *e, uint32_t n,
                                 uint32_t first)
{
    plim_inventory *v = f->v;
    uint32_t n_held = v->n_items - first, absent = 0, extra = 0, i = 0, k = 0;
    const shard_entry *one_absent = NULL, *one_extra = NULL;
    shard_entry *held = PLIM_NEW_N(v->arena, shard_entry, (uint64_t)n_held + 1);
    plim_status st = PLIM_OK;
    if (!held)
        return plim_oom(f->err);
    for (uint32_t h = 0; h < n_held; h++)
        held[h] = (shard_entry){e->file, v->items[first + h].name};
    qsort(held, n_held, sizeof *held, compare_entries);
    while (i < n || k < n_held) {
        int order = i == n ? 1 : k == n_held ? -1 : plim_str_compare(e[i].name, held[k].name);
        if (order < 0 && !absent++)
            one_absent = &e[i];
        if (order > 0 && !extra++)
            one_extra = &held[k];
        i += order <= 0;
        k += order >= 0;
    }
    if (absent)
        return plim_fail(f->err, PLIM_EFORMAT, 0,
                         "'" PLIM_STR_FMT "' lacks %u tensor%s that the index places there: "
                         "'" PLIM_STR_FMT "'%s",
                         PLIM_STR_CUT(e->file), (unsigned)absent, absent == 1 ? "" : "s",
                         PLIM_STR_CUT(one_absent->name), absent == 1 ? "" : ", ...");
    if (extra)
        st = plim_inventory_note(
            v, f->err,
            "'" PLIM_STR_FMT "' holds %u tensor%s that the index does not name: '" PLIM_STR_FMT
            "'%s; they are counted",
            PLIM_STR_CUT(e->file), (unsigned)extra, extra == 1 ? "" : "s",
            PLIM_STR_CUT(one_extra->name), extra == 1 ? "" : ", ...");
    return st;
}

/* Reads weights only: a shard that is an index, or a model with a folder of its own, could
 * lead back here. */
static plim_status list_opened(shard_index *f, const plim_source *shard, plim_err *err)
{
    const plim_importer *im;
    PLIM_TRY(plim_importer_for(shard->bytes, &im, err));
    if (!im)
        return plim_fail(err, PLIM_EFORMAT, 0, "its format is not supported");
    if (im == &plim_importer_index || im->read || !im->list)
        return plim_fail(err, PLIM_EFORMAT, 0, "%s is not a format of weights", im->name);
    return im->list(f->v, shard, err);
}

/* All shards have the same facts: keeps those of the first, and drops repeated notes. */
static void drop_repeated(plim_inventory *v, bool first, uint32_t n_facts, uint32_t n_notes)
{
    enum { COMPARED = 64 };
    if (first)
        return;
    v->n_facts = n_facts;
    for (uint32_t i = n_notes, end = v->n_notes; i < end; i++) {
        uint32_t k = 0;
        while (k < PLIM_MIN(n_notes, COMPARED) && !plim_str_eq(v->notes[k], v->notes[i]))
            k++;
        if (k == PLIM_MIN(n_notes, COMPARED))
            v->notes[n_notes++] = v->notes[i];
    }
    v->n_notes = n_notes;
}

/* Lists the shard that holds the entries e[0] to e[n - 1]. */
static plim_status list_shard(shard_index *f, const shard_entry *e, uint32_t n, bool first)
{
    plim_inventory *v = f->v;
    plim_source shard;
    plim_err why = PLIM_ERR_INIT;
    uint32_t n_items = v->n_items, n_facts = v->n_facts, n_notes = v->n_notes;
    plim_status st = plim_source_beside(f->s, e->file, v->arena, &shard, &why);
    shard.part = true;
    if (!st)
        st = list_opened(f, &shard, &why);
    plim_source_close(&shard);
    if (st)
        return plim_fail(f->err, st, why.at,
                         "shard '" PLIM_STR_FMT "' with '" PLIM_STR_FMT "': %s",
                         PLIM_STR_CUT(e->file), PLIM_STR_CUT(e->name), why.msg);
    drop_repeated(v, first, n_facts, n_notes);
    return compare_shard(f, e, n, n_items);
}

/* ---- the importer -------------------------------------------------------------------- */

static plim_status check_total(shard_index *f, uint32_t first)
{
    uint64_t bytes = 0;
    for (uint32_t i = first; i < f->v->n_items; i++)
        if (f->v->items[i].same_as == PLIM_NONE)
            bytes = plim_sat_add(bytes, f->v->items[i].bytes);
    return !f->has_total || bytes == f->total
               ? PLIM_OK
               : plim_inventory_note(f->v, f->err,
                                     "the index says %" PRIu64 " bytes, the shards hold "
                                     "%" PRIu64,
                                     f->total, bytes);
}

/* Whether the first of the files is not there, which nobody asked to be. */
static bool is_bare(const shard_index *f)
{
    plim_source shard;
    if (!f->s->names || !f->n_entries)
        return false;
    plim_status st = plim_source_beside(f->s, f->entries[0].file, f->v->arena, &shard, NULL);
    plim_source_close(&shard);
    return st == PLIM_EIO;
}

/* What the index alone says. */
static plim_status list_names(shard_index *f)
{
    plim_status st = PLIM_OK;
    f->v->names_only = true;
    f->v->told = f->has_total ? f->total : 0;
    f->v->format = PLIM_STR("index");
    for (uint32_t i = 0; i < f->n_entries && !st; i++) {
        const plim_item item = {
            .name = f->entries[i].name, .type = PLIM_STR(""), .same_as = PLIM_NONE};
        st = plim_inventory_add(f->v, &item, f->err);
    }
    return st;
}

static plim_status index_list(plim_inventory *v, const plim_source *s, plim_err *err)
{
    shard_index f = {.v = v, .err = err, .s = s};
    uint32_t first = v->n_items, n_files = 0;
    plim_status st = read_index(&f);
    if (!st && is_bare(&f))
        return list_names(&f);
    for (uint32_t i = 0, end; i < f.n_entries && !st; i = end, n_files++) {
        for (end = i + 1; end < f.n_entries; end++)
            if (!plim_str_eq(f.entries[i].file, f.entries[end].file))
                break;
        st = list_shard(&f, &f.entries[i], end - i, !n_files);
    }
    if (!st)
        st = check_total(&f, first);
    if (st)
        return st;
    v->format =
        plim_arena_printf(v->arena, PLIM_STR_FMT ", %u shard%s", PLIM_STR_ARG(v->format),
                          (unsigned)n_files, n_files == 1 ? "" : "s");
    return v->format.p ? PLIM_OK : plim_oom(err);
}

/* An object whose "weight_map" comes early. */
static int index_probe(plim_bytes b)
{
    plim_json j;
    plim_str key;
    plim_json_init(&j, (plim_str){(const char *)b.p, (size_t)PLIM_MIN(b.n, 1u << 16)}, NULL);
    plim_json_object(&j);
    while (plim_json_member(&j, &key)) {
        if (plim_str_is(key, "weight_map"))
            return 90;
        plim_json_skip(&j);
    }
    return 0;
}

const plim_importer plim_importer_index = {
    .name = "index",
    .doc = "model.safetensors.index.json and the like: weights in several files",
    .src = "https://huggingface.co/docs/transformers/big_models",
    .gives = "parameters",
    .probe = index_probe,
    .without = "it says where the weights are, not what the model is: "
               "give the folder with its config.json",
    .list = index_list,
};
