/* torchfile_walk.c -- from objects that hold tensors to items with names.
 *
 * A state dict, a checkpoint of several, a list of tensors, a pickled nn.Module, the
 * objects of TorchScript: all are walked alike, by the keys of dicts and the attributes of
 * objects.  A value that is used twice is met twice (tied modules have two names), so
 * steps are counted. */
#include "import/weights/torchfile_priv.h"

#include <stdio.h>

#include "base/json.h"

enum { STEPS_PER_BYTE = 8, KEY_MAX = 255 };

/* ---- names ------------------------------------------------------------------------- */

static void put_name(torchfile *f, plim_str s)
{
    size_t n = PLIM_MIN(PLIM_MIN(s.n, (size_t)KEY_MAX), sizeof f->name - 1 - f->n_name);
    if (n)
        memcpy(f->name + f->n_name, s.p, n);
    f->n_name += (uint32_t)n;
    f->name[f->n_name] = 0;
}

uint32_t plim_torch_enter(torchfile *f, plim_pickle_value key, uint32_t place)
{
    uint32_t before = f->n_name;
    plim_text digits;
    f->steps++;
    plim_str s = plim_pickle_text(key);
    if (!s.p) {
        int64_t i = key.kind == PLIM_PICKLE_INT ? key.i : place;
        s.p = digits.s;
        s.n = (size_t)snprintf(digits.s, sizeof digits.s, "%" PRId64, i);
    }
    if (f->n_name)
        put_name(f, PLIM_STR("."));
    put_name(f, s);
    return before;
}

void plim_torch_leave(torchfile *f, uint32_t before)
{
    f->n_name = before;
    f->name[before] = 0;
}

plim_pickle_value plim_torch_key(const char *z)
{
    return (plim_pickle_value){.kind = PLIM_PICKLE_STR, .n = (uint32_t)strlen(z), .p = z};
}

/* ---- dicts -------------------------------------------------------------------------- */

/* OrderedDict([[key, value], ...]), as Python 2 wrote it. */
static plim_pickle_value list_of_pairs(plim_pickle_value v)
{
    if (v.kind == PLIM_PICKLE_CALL && !v.node->n &&
        plim_pickle_is_global(v.node->call->fn, "collections", "OrderedDict"))
        return plim_pickle_at(v.node->call->args, 0);
    return (plim_pickle_value){0};
}

bool plim_torch_is_dict(plim_pickle_value v)
{
    return v.kind == PLIM_PICKLE_DICT ||
           (v.kind == PLIM_PICKLE_CALL &&
            ((v.node->n && v.node->pairs) ||
             plim_pickle_is_global(v.node->call->fn, "collections", "OrderedDict")));
}

uint32_t plim_torch_pairs(plim_pickle_value v)
{
    plim_pickle_value list = list_of_pairs(v);
    if (list.kind == PLIM_PICKLE_LIST)
        return plim_pickle_count(list);
    return plim_pickle_has_node(v) && v.node->pairs ? v.node->n / 2 : 0;
}

plim_pickle_value plim_torch_pair(plim_pickle_value v, uint32_t i, plim_pickle_value *key)
{
    plim_pickle_value list = list_of_pairs(v), pair = plim_pickle_at(list, i);
    if (list.kind == PLIM_PICKLE_LIST) {
        *key = plim_pickle_at(pair, 0);
        return plim_pickle_at(pair, 1);
    }
    *key = plim_pickle_at(v, 2 * i);
    return plim_pickle_at(v, 2 * i + 1);
}

/* ---- items --------------------------------------------------------------------------- */

static plim_status add_item(torchfile *f, const torch_tensor *t, torch_place at)
{
    plim_item it = {.name = {f->name, f->n_name},
                    .type = t->type,
                    .kind = at.kind,
                    .rank = t->rank,
                    .bytes = t->bytes,
                    .same_as = PLIM_NONE};
    torch_entry e = {.item = f->v->n_items,
                     .storage = t->storage,
                     .begin = t->begin,
                     .end = t->end,
                     .bytes = t->bytes,
                     .at = at,
                     .top = f->n_top};
    if (!it.name.n)
        it.name = PLIM_STR("tensor");
    memcpy(it.dim, t->dim, sizeof it.dim);
    plim_status st = plim_inventory_add(f->v, &it, f->err);
    if (st)
        return st;
    if (!PLIM_PUSH_ROOM(f->a, f->entries, f->n_entries, f->cap_entries))
        return plim_oom(f->err);
    f->entries[f->n_entries++] = e;
    return PLIM_OK;
}

static plim_status walk_named(torchfile *f, plim_pickle_value v, plim_pickle_value key,
                              uint32_t place, torch_place at)
{
    uint32_t before = plim_torch_enter(f, key, place);
    if (!at.depth && f->grouped) {
        f->n_top = f->n_name;
        at.group = place;
    }
    at.depth++;
    plim_status st = plim_torch_walk(f, v, at);
    plim_torch_leave(f, before);
    return st;
}

/* The tensors that a tensor is made of, by their place in the call's arguments. */
static plim_status walk_parts(torchfile *f, plim_pickle_value from, uint32_t first,
                              const char *const *names, torch_place at)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; names[i] && !st; i++) {
        uint32_t before = plim_torch_enter(f, plim_torch_key(names[i]), i);
        st = plim_torch_walk(f, plim_pickle_at(from, first + i), at);
        plim_torch_leave(f, before);
    }
    return st;
}

/* (layout, (indices, values, size, ..)) or, of a compressed one,
 * (layout, (compressed indices, indices, values, size)): the values come before the size. */
static plim_status walk_sparse(torchfile *f, plim_pickle_value args, torch_place at)
{
    static const char *const coo[] = {"indices", "values", NULL};
    static const char *const compressed[] = {"compressed_indices", "indices", "values", NULL};
    plim_pickle_value data = plim_pickle_at(args, 1), third = plim_pickle_at(data, 2);
    bool is;
    torch_tensor t;
    plim_status st = plim_torch_tensor(f, third, &t, &is);
    f->n_sparse++;
    return st ? st : walk_parts(f, data, 0, is ? compressed : coo, at);
}

/* (scheme, scales, zero points, axis), or numbers in their place. */
static plim_status walk_quantizer(torchfile *f, plim_pickle_value args, torch_place at)
{
    static const char *const names[] = {"scales", "zero_points", NULL};
    plim_pickle_value q = plim_pickle_at(args, 4);
    return q.kind == PLIM_PICKLE_TUPLE ? walk_parts(f, q, 1, names, at) : PLIM_OK;
}

/* ---- objects -------------------------------------------------------------------------- */

static plim_status walk_dict(torchfile *f, plim_pickle_value v, torch_place at)
{
    plim_status st = PLIM_OK;
    plim_pickle_value key;
    for (uint32_t i = 0; i < plim_torch_pairs(v) && !st; i++) {
        plim_pickle_value one = plim_torch_pair(v, i, &key);
        st = walk_named(f, one, key, i, at);
    }
    return st;
}

static plim_status walk_list(torchfile *f, plim_pickle_value v, torch_place at)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < plim_pickle_count(v) && !st; i++)
        st = walk_named(f, v.node->items[i], (plim_pickle_value){0}, i, at);
    return st;
}

/* "_parameters", "_buffers", "_modules" and whatever else an nn.Module has. */
static plim_status walk_module(torchfile *f, plim_pickle_value state, torch_place at)
{
    static const struct {
        const char *key;
        plim_item_kind kind;
    } parts[] = {{"_parameters", PLIM_ITEM_PARAMETER},
                 {"_buffers", PLIM_ITEM_BUFFER},
                 {"_modules", PLIM_ITEM_PARAMETER}};
    plim_status st = PLIM_OK;
    plim_pickle_value key;
    bool other = at.kind == PLIM_ITEM_OTHER; /* of a copy, or of something's attribute */
    at.in_module = true;
    for (uint32_t i = 0; i < plim_torch_pairs(state) && !st; i++) {
        plim_pickle_value one = plim_torch_pair(state, i, &key);
        size_t k = 0;
        while (k < PLIM_COUNT(parts) && !plim_str_is(plim_pickle_text(key), parts[k].key))
            k++;
        torch_place in = at;
        in.kind = other || k == PLIM_COUNT(parts) ? PLIM_ITEM_OTHER : parts[k].kind;
        st = k < PLIM_COUNT(parts) ? walk_dict(f, one, in) : walk_named(f, one, key, i, in);
    }
    return st;
}

static void see_module(torchfile *f, plim_pickle_value fn)
{
    if (fn.kind == PLIM_PICKLE_PERSISTENT) /* ("module", class, file, source) */
        fn = plim_pickle_at(plim_pickle_at(fn, 0), 1);
    if (!f->n_modules++)
        f->module = plim_pickle_text(plim_pickle_at(fn, 1));
}

/* The result of a call that is no tensor: what it was filled with, its state, and what it
 * was made of. */
static plim_status walk_call(torchfile *f, plim_pickle_value v, torch_place at)
{
    plim_pickle_call call = *v.node->call;
    if (plim_pickle_is_global(call.fn, "torch._tensor", "_rebuild_from_type_v2"))
        call = (plim_pickle_call){
            .fn = plim_pickle_at(call.args, 0), /* (fn, class, args, state) */
            .args = plim_pickle_at(call.args, 2),
            .state = plim_pickle_at(call.args, 3)};
    if (plim_pickle_is_global(call.fn, "torch._utils", "_rebuild_sparse_tensor"))
        return walk_sparse(f, call.args, at);
    f->steps += plim_pickle_count(call.state);
    if (plim_pickle_get(call.state, "_modules").kind &&
        plim_pickle_get(call.state, "_parameters").kind) {
        see_module(f, call.fn);
        return walk_module(f, call.state, at);
    }
    plim_str name = plim_pickle_text(plim_pickle_at(call.fn, 1));
    if (plim_str_is(plim_pickle_text(plim_pickle_at(call.fn, 0)), "torch._utils") &&
        plim_str_starts(name, "_rebuild_") && !f->n_unread++)
        f->unread = name;
    plim_status st = plim_torch_is_dict(v) ? walk_dict(f, v, at) : walk_list(f, v, at);
    if (!st)
        st = plim_torch_walk(f, call.state, at);
    return st || list_of_pairs(v).kind ? st : plim_torch_walk(f, call.args, at);
}

static plim_status walk_tensor(torchfile *f, plim_pickle_value v, const torch_tensor *t,
                               torch_place at)
{
    if (t->parameter && at.kind == PLIM_ITEM_BUFFER)
        at.kind = PLIM_ITEM_PARAMETER;
    plim_status st = add_item(f, t, at);
    const plim_pickle_call *call = v.kind == PLIM_PICKLE_CALL ? v.node->call : NULL;
    if (st || !call || !plim_pickle_is_global(call->fn, "torch._utils", "_rebuild_qtensor"))
        return st;
    at.kind = PLIM_ITEM_OTHER;
    return walk_quantizer(f, call->args, at);
}

static plim_status walk_open(torchfile *f, plim_pickle_value v, torch_place at)
{
    torch_tensor t;
    bool is;
    plim_status st = plim_torch_tensor(f, v, &t, &is);
    if (!st && !is)
        st = plim_torch_storage(f, v, &t, &is);
    if (st || is)
        return st ? st : walk_tensor(f, v, &t, at);
    if (plim_torch_is_optimizer(v))
        return plim_torch_walk_optimizer(f, v, at);
    switch (v.kind) {
    case PLIM_PICKLE_DICT: return walk_dict(f, v, at);
    case PLIM_PICKLE_CALL: return walk_call(f, v, at);
    case PLIM_PICKLE_LIST:
    case PLIM_PICKLE_TUPLE:
    case PLIM_PICKLE_SET: return walk_list(f, v, at);
    default: return PLIM_OK;
    }
}

plim_status plim_torch_walk(torchfile *f, plim_pickle_value v, torch_place at)
{
    if (f->steps++ >= f->most)
        return plim_fail(
            f->err, PLIM_EUNSUPPORTED, f->n_entries,
            "the file uses its objects again and again: more than %" PRIu64 " steps", f->most);
    if (!plim_pickle_has_node(v) || v.node->open)
        return PLIM_OK;
    if (f->level == TORCH_DEPTH_MAX) {
        f->too_deep = true;
        return PLIM_OK;
    }
    f->steps += plim_pickle_count(v); /* its keys are looked at */
    f->level++;
    v.node->open = true;
    plim_status st = walk_open(f, v, at);
    v.node->open = false;
    f->level--;
    return st;
}

/* ---- the top --------------------------------------------------------------------------- */

bool plim_torch_put_scalar(plim_buf *out, plim_pickle_value v)
{
    plim_jw w;
    plim_jw_init(&w, out);
    switch (v.kind) {
    case PLIM_PICKLE_BOOL: plim_buf_puts(out, v.i ? "True" : "False"); return true;
    case PLIM_PICKLE_INT: plim_buf_printf(out, "%" PRId64, v.i); return true;
    case PLIM_PICKLE_FLOAT: plim_jw_f64(&w, v.f); return true;
    case PLIM_PICKLE_STR:
        for (uint32_t i = 0; i < v.n; i++)
            if ((uint8_t)v.p[i] < ' ' || v.n > 80)
                return false;
        plim_buf_add(out, plim_pickle_text(v));
        return v.n > 0;
    default: return false;
    }
}

/* "epoch", "best_acc": what stands at the top beside the tensors. */
static plim_status say_scalars(torchfile *f, plim_pickle_value v)
{
    enum { MOST = 24, KEY = 40 };
    plim_status st = PLIM_OK;
    plim_pickle_value key;
    for (uint32_t i = 0, n = 0; i < plim_torch_pairs(v) && n < MOST && !st; i++) {
        plim_buf text, name;
        plim_pickle_value one = plim_torch_pair(v, i, &key);
        plim_buf_init(&text, f->a);
        plim_buf_init(&name, f->a);
        if (key.kind != PLIM_PICKLE_STR || key.n > KEY || !plim_torch_put_scalar(&name, key) ||
            !plim_torch_put_scalar(&text, one))
            continue;
        if (name.bad || text.bad)
            return plim_oom(f->err);
        st = plim_inventory_fact(f->v, f->err, name.p, PLIM_STR_FMT,
                                 PLIM_STR_ARG(plim_buf_str(&text)));
        n++;
    }
    return st;
}

plim_status plim_torch_walk_root(torchfile *f, const plim_pickle *p, plim_item_kind kind)
{
    torch_place at = {.kind = kind, .group = PLIM_NONE};
    f->most = f->steps + STEPS_PER_BYTE * p->end + 4096;
    f->grouped = plim_torch_is_dict(p->root);
    plim_status st = plim_torch_walk(f, p->root, at);
    for (uint32_t i = 0; i < p->n_persistents && !st; i++) { /* also those it did not meet */
        torch_tensor t;
        bool is;
        st = plim_torch_storage(f, p->persistents[i], &t, &is);
    }
    return st || f->part || !f->grouped ? st : say_scalars(f, p->root);
}
