/* torchfile_walk.c -- from objects that hold tensors to items with names.
 *
 * A state dict, a checkpoint with several, a list of tensors, a pickled nn.Module, the objects
 * of TorchScript: all are walked in the same way, by the keys of dicts and the attributes of
 * objects.  A value that is used twice is visited twice (tied modules have two names), so
 * steps are counted. */
#include "import/weights/torchfile_priv.h"

enum { STEPS_PER_BYTE = 8 };

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
    PLIM_TRY(plim_inventory_add(f->v, &it, f->err));
    if (!PLIM_PUSH_ROOM(f->a, f->entries, f->n_entries, f->cap_entries))
        return plim_oom(f->err);
    f->entries[f->n_entries++] = e;
    return PLIM_OK;
}

static plim_status walk_value(torchfile *f, plim_pickle_value v, torch_place at);

static plim_status walk_named(torchfile *f, plim_pickle_value v, plim_pickle_value key,
                              uint32_t place, torch_place at)
{
    uint32_t before = plim_torch_enter(f, key, place);
    if (!at.depth && f->grouped) {
        f->n_top = f->n_name;
        at.group = place;
    }
    at.depth++;
    plim_status st = walk_value(f, v, at);
    plim_torch_leave(f, before);
    return st;
}

/* The component tensors of a tensor, by their index among the call's arguments. */
static plim_status walk_parts(torchfile *f, plim_pickle_value from, uint32_t first,
                              const char *const *names, torch_place at)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; names[i] && !st; i++) {
        uint32_t before = plim_torch_enter(f, plim_torch_key(names[i]), i);
        st = walk_value(f, plim_pickle_at(from, first + i), at);
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

/* (scheme, scales, zero points, axis), or numbers instead of tensors. */
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

/* "_parameters", "_buffers", "_modules" and other attributes of an nn.Module. */
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
    bool other = at.kind == PLIM_ITEM_OTHER; /* in a copy, or in some object's attribute */
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

/* The result of a call that is not a tensor: what it was filled with, its state, and its
 * arguments. */
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
        st = walk_value(f, call.state, at);
    return st || plim_torch_pair_list(v).kind ? st : walk_value(f, call.args, at);
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

/* ---- optimizers -------------------------------------------------------------------- */

static plim_status walk_state(torchfile *f, plim_pickle_value state, bool host_step,
                              torch_place at)
{
    plim_status st = PLIM_OK;
    plim_pickle_value key, name;
    at.kind = PLIM_ITEM_OPTIMIZER_STATE;
    at.depth += 2;
    for (uint32_t i = 0; i < plim_torch_pairs(state) && !st; i++) {
        plim_pickle_value of = plim_torch_pair(state, i, &key);
        uint32_t before = plim_torch_enter(f, key, i);
        for (uint32_t k = 0; k < plim_torch_pairs(of) && !st; k++) {
            torch_place in = at;
            plim_pickle_value v = plim_torch_pair(of, k, &name);
            in.state = plim_pickle_text(name);
            in.on_host = host_step && plim_str_is(in.state, "step");
            uint32_t inner = plim_torch_enter(f, name, k);
            st = walk_value(f, v, in);
            plim_torch_leave(f, inner);
        }
        if (!st && !plim_torch_is_dict(of))
            st = walk_value(f, of, at);
        plim_torch_leave(f, before);
    }
    return st;
}

static plim_status walk_optimizer(torchfile *f, plim_pickle_value v, torch_place at)
{
    plim_pickle_value groups = plim_pickle_get(v, "param_groups"),
                      state = plim_pickle_get(v, "state"), key;
    plim_status st = f->part ? PLIM_OK : plim_torch_say_optimizer(f, groups, state);
    f->n_optimizers++;
    at.depth++;
    for (uint32_t i = 0; i < plim_torch_pairs(v) && !st; i++) {
        torch_place in = at;
        plim_pickle_value one = plim_torch_pair(v, i, &key);
        bool is_state = plim_str_is(plim_pickle_text(key), "state");
        uint32_t before = plim_torch_enter(f, key, i);
        in.kind = PLIM_ITEM_OTHER; /* parameters, learning rates */
        st = is_state ? walk_state(f, one, !plim_torch_step_on_card(groups), in)
                      : walk_value(f, one, in);
        plim_torch_leave(f, before);
    }
    return st;
}

/* ---- anything ----------------------------------------------------------------------- */

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
        return walk_optimizer(f, v, at);
    switch (v.kind) {
    case PLIM_PICKLE_DICT: return walk_dict(f, v, at);
    case PLIM_PICKLE_CALL: return walk_call(f, v, at);
    case PLIM_PICKLE_LIST:
    case PLIM_PICKLE_TUPLE:
    case PLIM_PICKLE_SET: return walk_list(f, v, at);
    default: return PLIM_OK;
    }
}

static plim_status walk_value(torchfile *f, plim_pickle_value v, torch_place at)
{
    if (f->steps++ >= f->most)
        return plim_fail(
            f->err, PLIM_EUNSUPPORTED, f->n_entries,
            "the file refers to its objects too often: more than %" PRIu64 " steps", f->most);
    if (!plim_pickle_has_node(v) || v.node->open)
        return PLIM_OK;
    if (f->level == TORCH_DEPTH_MAX) {
        f->too_deep = true;
        return PLIM_OK;
    }
    f->steps += plim_pickle_count(v); /* its keys are visited */
    f->level++;
    v.node->open = true;
    plim_status st = walk_open(f, v, at);
    v.node->open = false;
    f->level--;
    return st;
}

/* ---- the top --------------------------------------------------------------------------- */

/* "epoch", "best_acc": the scalars at the top, among the tensors. */
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
    plim_status st = walk_value(f, p->root, at);
    for (uint32_t i = 0; i < p->n_persistents && !st; i++) { /* even those not reached */
        torch_tensor t;
        bool is;
        st = plim_torch_storage(f, p->persistents[i], &t, &is);
    }
    return st || f->part || !f->grouped ? st : say_scalars(f, p->root);
}
