/* torchfile_object.c -- objects of a pickle as the walk and the optimizers see them: their
 * class names, dicts in all their forms, single values as text. */
#include "import/weights/torchfile_priv.h"

#include <stdio.h>

#include "base/json.h"

enum { KEY_MAX = 255 };

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
plim_pickle_value plim_torch_pair_list(plim_pickle_value v)
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
    plim_pickle_value list = plim_torch_pair_list(v);
    if (list.kind == PLIM_PICKLE_LIST)
        return plim_pickle_count(list);
    return plim_pickle_has_node(v) && v.node->pairs ? v.node->n / 2 : 0;
}

plim_pickle_value plim_torch_pair(plim_pickle_value v, uint32_t i, plim_pickle_value *key)
{
    plim_pickle_value list = plim_torch_pair_list(v), pair = plim_pickle_at(list, i);
    if (list.kind == PLIM_PICKLE_LIST) {
        *key = plim_pickle_at(pair, 0);
        return plim_pickle_at(pair, 1);
    }
    *key = plim_pickle_at(v, 2 * i);
    return plim_pickle_at(v, 2 * i + 1);
}

/* ---- single values ------------------------------------------------------------------ */

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
