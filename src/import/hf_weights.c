/* hf_weights.c -- the weights beside a config.json: compared with the model that is
 * built, name by name; where none is built, what there is to know. */
#include "import/hf.h"

static const char *const usual[] = {"model.safetensors.index.json", "model.safetensors",
                                    "pytorch_model.bin.index.json", "pytorch_model.bin"};

/* How many of a kind there are, and the first of them. */
typedef struct tally {
    uint32_t n;
    plim_str first;
} tally;

static void count(tally *t, plim_str name) { t->first = t->n++ ? t->first : name; }

static bool same_shape(const plim_item *a, const plim_item *b)
{
    return a->rank == b->rank && !memcmp(a->dim, b->dim, (size_t)a->rank * sizeof a->dim[0]);
}

static plim_status note(plim_inventory *v, const tally *t, const char *what, const char *file,
                        plim_err *err)
{
    if (!t->n)
        return PLIM_OK;
    return plim_inventory_note(v, err, "%s '%s': %u, the first is '" PLIM_STR_FMT "'", what,
                               file, (unsigned)t->n, PLIM_STR_ARG(t->first));
}

/* A second name of a tied parameter need not be stored, nor a buffer. */
static bool may_lack(const plim_item *it)
{
    return it->same_as != PLIM_NONE || it->kind != PLIM_ITEM_PARAMETER;
}

static plim_status compare(plim_inventory *v, const plim_inventory *w, const char *file,
                           plim_err *err)
{
    tally missing = {0}, more = {0}, shape = {0}, type = {0};
    plim_map model = {0}, stored = {0};
    uint32_t k;
    for (uint32_t i = 0; i < w->n_items; i++)
        if (!plim_map_put(v->arena, &stored, w->items[i].name, i))
            return plim_oom(err);
    for (uint32_t i = 0; i < v->n_items; i++) {
        const plim_item *it = &v->items[i];
        if (!plim_map_put(v->arena, &model, it->name, i))
            return plim_oom(err);
        if (!plim_map_get(&stored, it->name, &k)) {
            if (!may_lack(it))
                count(&missing, it->name);
        } else if (!same_shape(it, &w->items[k])) {
            count(&shape, it->name);
        } else if (!plim_str_eq(it->type, w->items[k].type)) {
            count(&type, it->name);
        }
    }
    for (uint32_t i = 0; i < w->n_items; i++)
        if (!plim_map_get(&model, w->items[i].name, &k))
            count(&more, w->items[i].name);
    plim_status st = note(v, &missing, "parameters of the class that are not in", file, err);
    if (!st)
        st = note(v, &more, "tensors that the class does not have, in", file, err);
    if (!st)
        st = note(v, &shape, "parameters of another shape in", file, err);
    return st ? st : note(v, &type, "parameters of another type in", file, err);
}

/* No model: its weights are all that is known. */
static plim_status adopt(plim_inventory *v, const plim_inventory *w, const char *file,
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
                                    "what is listed is what '%s' holds: the weights are known "
                                    "to the byte, what runs over them is not",
                                    file);
}

static plim_status take(plim_inventory *v, const plim_source *file, const char *name,
                        plim_err *err)
{
    const plim_importer *reader = plim_importer_probe(file->bytes);
    plim_inventory w = {.arena = v->arena};
    plim_err why = PLIM_ERR_INIT;
    if (!reader || !reader->list)
        return PLIM_OK;
    plim_status st = reader->list(&w, file, &why);
    if (st == PLIM_ENOMEM)
        return plim_oom(err);
    if (st)
        return plim_inventory_note(v, err, "'%s' beside it: %s", name, why.msg);
    return (v->n_items ? compare : adopt)(v, &w, name, err);
}

plim_status plim_hf_weights(plim_inventory *v, const plim_source *s, plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT(usual); i++) {
        plim_err none = PLIM_ERR_INIT;
        plim_source file;
        plim_status st = plim_source_beside(s, plim_str_of(usual[i]), v->arena, &file, &none);
        if (st == PLIM_ENOMEM)
            return plim_oom(err);
        if (st)
            continue;
        st = take(v, &file, usual[i], err);
        plim_source_close(&file);
        return st;
    }
    return PLIM_OK;
}
