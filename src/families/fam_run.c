/* fam_run.c -- runs a family for a configuration: first the modules with their parameters, then the call of the model. */
#include "base/gzip.h"
#include "base/items.h"
#include "families/fam_priv.h"

enum { DEPTH = 8 };                   /* of loops, and of lists */
enum { DEEPEST = PLIM_NN_DEPTH - 2 }; /* of modules */

/* What an item gave: its results, each one or several values. */
typedef struct result {
    const uint32_t *ids;
    uint32_t n;
} result;

typedef struct item {
    result *out;
    const plim_str *names; /* of a call's results */
    uint32_t n;
    result kept; /* of a loop: by all its turns */
} item;

/* A call of a module, or a turn of a loop. */
typedef struct frame {
    item *items;
    uint32_t n_items;
    const plim_str *in_names;
    const uint32_t *ins;
    const result
        *lists; /* of a loop's turns: all values of each of these, where that is a list */
    uint32_t n_ins;
    const uint32_t *caps, *carried;
    uint32_t n_caps, n_carried;
    plim_str path, place; /* of the module; what happens there */
    result *out;          /* that it returns; of a loop's turn, what it keeps */
    plim_str *out_names;
    uint32_t n_out;
    uint32_t *next; /* of a loop's turn */
    uint32_t n_next;
} frame;

typedef struct runner {
    fam_program *p;
    fam_names *x;
    plim_nn *n;
    plim_arena *a;
    plim_map leaves; /* by path: value, plus one */
    uint32_t turn[DEPTH], child[DEPTH];
    uint32_t loops, lists;
    int depth;
    result kept; /* values that the cache keeps, in the order of the layers */
} runner;

static void runner_oom(runner *r) { r->n->st = r->n->st ? r->n->st : plim_oom(r->n->err); }

static bool is_stopped(runner *r)
{
    if (r->x->st && !r->n->st)
        r->n->st = r->x->st;
    return r->n->st != PLIM_OK;
}

static void refuse_place(runner *r, plim_str place, const char *what)
{
    if (!is_stopped(r))
        plim_nn_fail(r->n, PLIM_EUNSUPPORTED,
                     "the family does not know this configuration ('" PLIM_STR_FMT "': %s)",
                     (int)PLIM_MIN(place.n, (size_t)80), place.p, what);
}

/* "i0", "i1": the numbers of turns. */
static void name_turns(runner *r, char letter, uint32_t names[DEPTH])
{
    for (uint32_t i = 0; i < DEPTH; i++) {
        plim_str s = plim_arena_printf(r->a, "%c%u", letter, i);
        if (s.p)
            names[i] = plim_fam_name(r->x, s);
        else
            runner_oom(r);
    }
}

static void set_turn(runner *r, const uint32_t names[DEPTH], uint32_t k, int64_t i)
{
    r->x->values[names[k]] = (fam_value){.kind = FAM_INT, .i = i};
}

/* ---- modules ------------------------------------------------------------------------------------ */

static plim_str join_path(runner *r, plim_str a, plim_str b)
{
    plim_str s = plim_fam_concat(r->a, a, a.n && b.n ? PLIM_STR(".") : PLIM_STR(""), b);
    if (!s.p)
        runner_oom(r);
    return s;
}

static void keep_leaf(runner *r, plim_str path, uint32_t id)
{
    if (id != PLIM_NONE && !plim_map_put(r->a, &r->leaves, path, id + 1))
        runner_oom(r);
}

/* The sizes of a parameter, a buffer or an input; false: there are none. */
static bool sizes_of(runner *r, const fam_stmt *s, plim_str name, int64_t dim[PLIM_MAX_RANK])
{
    if (s->n > PLIM_MAX_RANK)
        plim_nn_fail(r->n, PLIM_EUNSUPPORTED, "'" PLIM_STR_FMT "' has too many dimensions",
                     PLIM_STR_ARG(name));
    for (uint32_t i = 0; i < s->n && !is_stopped(r); i++) {
        dim[i] = plim_fam_int(r->x, s->args[i].expr);
        if (dim[i] < 0)
            plim_nn_fail(r->n, PLIM_EUNSUPPORTED,
                         "'" PLIM_STR_FMT "' would have a size of %" PRId64,
                         PLIM_STR_ARG(name), dim[i]);
    }
    return !is_stopped(r);
}

static plim_dtype type_in(const runner *r, const fam_stmt *s)
{
    const fam_arg *type = &s->args[s->n];
    return type->kind == FAM_A_DTYPE ? type->dtype : r->n->dtype;
}

static uint32_t leaf_of_type(runner *r, const fam_stmt *s, plim_str name, plim_ints shape)
{
    const plim_dtype model = r->n->dtype, t = type_in(r, s);
    if (!s->param && t == PLIM_F32)
        return plim_nn_fp32_buffer(r->n, name.p, shape, s->persistent);
    r->n->dtype = t;
    uint32_t id = s->param        ? plim_nn_param(r->n, name.p, shape)
                  : s->persistent ? plim_nn_buffer(r->n, name.p, t, shape)
                                  : plim_nn_temporary_buffer(r->n, name.p, t, shape);
    r->n->dtype = model;
    if (s->frozen && !r->n->st)
        plim_nn_freeze(r->n, id);
    return id;
}

static void make_leaf(runner *r, const fam_stmt *s, plim_str path)
{
    int64_t dim[PLIM_MAX_RANK];
    plim_str full = join_path(r, path, plim_str_of(s->text));
    if (!is_stopped(r) && sizes_of(r, s, full, dim))
        keep_leaf(r, full, leaf_of_type(r, s, full, (plim_ints){dim, s->n}));
}

static void make_module(runner *r, plim_str place, plim_str path);

static void make_list(runner *r, const fam_stmt *s, plim_str place, plim_str path)
{
    int64_t n = plim_fam_int(r->x, s->expr);
    if (n < 0 || n > FAM_MOST || r->lists == DEPTH) {
        plim_nn_fail(r->n, PLIM_EUNSUPPORTED,
                     "'" PLIM_STR_FMT "' would have %" PRId64 " modules", PLIM_STR_ARG(path),
                     n);
        return;
    }
    uint32_t level = r->lists++;
    for (int64_t i = 0; i < n && !is_stopped(r); i++) {
        plim_str name = plim_arena_printf(r->a, "%" PRId64, i);
        set_turn(r, r->child, level, i);
        make_module(r, join_path(r, place, PLIM_STR("*")), join_path(r, path, name));
    }
    r->lists--;
}

static void make_tie(runner *r, const fam_stmt *s, plim_str path)
{
    uint32_t owner;
    plim_str full = join_path(r, path, plim_str_of(s->text));
    if (!plim_map_get(&r->leaves, s->args->text, &owner))
        plim_nn_fail(r->n, PLIM_EUNSUPPORTED, "'%s' is tied to what is not there", s->text);
    else if (!is_stopped(r))
        keep_leaf(r, full, plim_nn_tie(r->n, full.p, owner - 1));
}

static void make_statements(runner *r, const fam_stmt *s, plim_str place, plim_str path)
{
    for (; s && !is_stopped(r); s = s->next)
        switch (s->what) {
        case FAM_IF:
            if (!s->n && plim_fam_true(r->x, s->expr))
                make_statements(r, s->body, place, path);
            break;
        case FAM_LEAF: make_leaf(r, s, path); break;
        case FAM_TIE: make_tie(r, s, path); break;
        case FAM_CHILD:
            make_module(r, join_path(r, place, plim_str_of(s->text)),
                        join_path(r, path, plim_str_of(s->text)));
            break;
        case FAM_CHILDREN: make_list(r, s, place, path); break;
        default: break;
        }
}

static void make_module(runner *r, plim_str place, plim_str path)
{
    plim_str name = plim_fam_concat(r->a, PLIM_STR("="), place, PLIM_STR(""));
    const fam_block *b = name.p ? plim_fam_block(r->p, name) : NULL;
    if (!name.p)
        runner_oom(r);
    else if (!b || r->depth == DEEPEST)
        refuse_place(r, name, "no modules");
    if (!b || is_stopped(r))
        return;
    r->depth++;
    make_statements(r, b->first, place, path);
    r->depth--;
}

/* ---- references ------------------------------------------------------------------------------------ */

/* With numbers in place of the stars. */
static plim_str put_indices(runner *r, plim_str name, const fam_expr *const *index)
{
    plim_buf out;
    if (!index)
        return name;
    plim_buf_init(&out, r->a);
    for (const char *p = name.p, *end = name.p + name.n; p < end;) {
        const char *star = memchr(p, '*', (size_t)(end - p));
        plim_buf_printf(&out, "%.*s", (int)((star ? star : end) - p), p);
        if (star)
            plim_buf_printf(&out, "%" PRId64, plim_fam_int(r->x, *index++));
        p = star ? star + 1 : end;
    }
    return plim_buf_str(&out);
}

/* PLIM_NONE: there is none. */
static uint32_t leaf_of(runner *r, const frame *f, const fam_ref *ref)
{
    uint32_t id;
    plim_str name = put_indices(r, ref->name, ref->index);
    plim_str full = ref->kind == FAM_TOP ? name : join_path(r, f->path, name);
    return !is_stopped(r) && plim_map_get(&r->leaves, full, &id) ? id - 1 : PLIM_NONE;
}

static result one_value(runner *r, uint32_t id)
{
    uint32_t *one = id == PLIM_NONE ? NULL : PLIM_NEW(r->a, uint32_t);
    if (!one) {
        if (id != PLIM_NONE)
            runner_oom(r);
        return (result){NULL, 0};
    }
    *one = id;
    return (result){one, 1};
}

/* Which of an item's results; its number of them if it has none of that name. */
static uint32_t result_of(const item *i, const fam_ref *ref)
{
    uint32_t k = 0;
    if (!i->names)
        return PLIM_MIN(ref->k, i->n);
    while (k < i->n && !plim_str_eq(i->names[k], ref->result))
        k++;
    return k;
}

static result value_at(runner *r, result list, const fam_expr *index)
{
    int64_t at = plim_fam_int(r->x, index);
    return at >= 0 && at < (int64_t)list.n ? one_value(r, list.ids[at]) : (result){NULL, 0};
}

static result of_item(runner *r, const frame *f, const fam_ref *ref)
{
    const item *i = ref->item < f->n_items ? &f->items[ref->item] : NULL;
    bool kept = i && (ref->all || ref->at) && i->kept.n;
    uint32_t k = i ? result_of(i, ref) : 0;
    if (!i || (!kept && k >= i->n))
        return (result){NULL, 0};
    result all = kept ? i->kept : i->out[k];
    if (!ref->at)
        return ref->all || all.n == 1 ? all : (result){NULL, 0};
    return value_at(r, all, ref->at);
}

static result find_passed(runner *r, const frame *f, const fam_ref *ref)
{
    for (uint32_t i = 0; i < f->n_ins; i++)
        if (plim_str_eq(f->in_names[i], ref->name))
            return ref->at && f->lists ? value_at(r, f->lists[i], ref->at)
                                       : one_value(r, f->ins[i]);
    return (result){NULL, 0};
}

static result of_ref(runner *r, const frame *f, const fam_ref *ref)
{
    switch (ref->kind) {
    case FAM_OWN:
    case FAM_TOP: return one_value(r, leaf_of(r, f, ref));
    case FAM_CAP: return one_value(r, ref->k < f->n_caps ? f->caps[ref->k] : PLIM_NONE);
    case FAM_CARRY:
        return one_value(r, ref->k < f->n_carried ? f->carried[ref->k] : PLIM_NONE);
    case FAM_IN: return find_passed(r, f, ref);
    case FAM_ITEM: break;
    }
    return of_item(r, f, ref);
}

/* All values that a reference names: the first of its alternatives that is there.  None: none is. */
static result found_of(runner *r, const frame *f, const fam_ref *ref)
{
    result v = {NULL, 0};
    for (; ref && !v.n && !is_stopped(r); ref = ref->otherwise) {
        v = of_ref(r, f, ref);
        v.n -= v.n == 1 && v.ids[0] == PLIM_NONE; /* a variable that a loop left without */
    }
    return v;
}

static result values_of(runner *r, const frame *f, const fam_ref *ref)
{
    result v = found_of(r, f, ref);
    if (!v.n)
        refuse_place(r, f->place, "a value is not there");
    return v;
}

static uint32_t value_of(runner *r, const frame *f, const fam_ref *ref)
{
    result v = values_of(r, f, ref);
    return v.n ? v.ids[0] : PLIM_NONE;
}

/* ---- ops ----------------------------------------------------------------------------------------------- */

static plim_arg list_of_values(runner *r, const frame *f, const fam_arg *a)
{
    uint32_t *ids = NULL, n = 0, cap = 0;
    static const uint32_t none = PLIM_NONE; /* x[:, i] has none for what it takes whole */
    for (uint32_t i = 0; i < a->n; i++) {
        result v = a->items[i].kind == FAM_A_REF ? values_of(r, f, &a->items[i].ref)
                                                 : (result){&none, 1};
        for (uint32_t k = 0; k < v.n; k++)
            if (PLIM_PUSH_ROOM(r->a, ids, n, cap))
                ids[n++] = v.ids[k];
            else
                runner_oom(r);
    }
    return (plim_arg){.kind = PLIM_ARG_VALUES, .n = n, .ids = ids};
}

static plim_arg list_of_ints(runner *r, const fam_arg *a)
{
    int64_t *ints = PLIM_NEW_N(r->a, int64_t, (uint64_t)a->n + 1);
    if (!ints)
        runner_oom(r);
    for (uint32_t i = 0; ints && i < a->n; i++)
        ints[i] =
            a->items[i].kind == FAM_A_FAR ? INT64_MAX : plim_fam_int(r->x, a->items[i].expr);
    return (plim_arg){.kind = PLIM_ARG_INTS, .n = a->n, .ints = ints};
}

static plim_arg list_of_floats(runner *r, const fam_arg *a)
{
    double *floats = PLIM_NEW_N(r->a, double, (uint64_t)a->n + 1);
    if (!floats)
        runner_oom(r);
    for (uint32_t i = 0; floats && i < a->n; i++)
        floats[i] = plim_fam_eval(r->x, a->items[i].expr).f;
    return (plim_arg){.kind = PLIM_ARG_FLOATS, .n = a->n, .floats = floats};
}

/* What the first item is, all are; of tensors some may be None. */
static plim_arg list_arg(runner *r, const frame *f, const fam_arg *a)
{
    for (uint32_t i = 0; i < a->n; i++)
        if (a->items[i].kind == FAM_A_REF)
            return list_of_values(r, f, a);
    return a->n && a->items[0].kind == FAM_A_EXPR &&
                   plim_fam_eval(r->x, a->items[0].expr).kind == FAM_FLOAT
               ? list_of_floats(r, a)
               : list_of_ints(r, a);
}

/* Of a list of numbers. */
static plim_arg numbers_arg(runner *r, fam_value v)
{
    int64_t *ints = PLIM_NEW_N(r->a, int64_t, (uint64_t)v.n + 1);
    if (!ints)
        runner_oom(r);
    for (uint32_t i = 0; ints && i < v.n; i++)
        ints[i] = v.items[i].i;
    return (plim_arg){.kind = PLIM_ARG_INTS, .n = ints ? v.n : 0, .ints = ints};
}

static plim_arg value_arg(runner *r, fam_value v)
{
    return v.kind == FAM_LIST    ? numbers_arg(r, v)
           : v.kind == FAM_FLOAT ? (plim_arg){.kind = PLIM_ARG_FLOAT, .f = v.f}
           : v.kind == FAM_NONE  ? (plim_arg){.kind = PLIM_ARG_NONE}
                                 : (plim_arg){.kind = PLIM_ARG_INT, .i = v.i};
}

static plim_arg one_arg(runner *r, const frame *f, const fam_arg *a)
{
    switch (a->kind) {
    case FAM_A_REF: return (plim_arg){.kind = PLIM_ARG_VALUE, .id = value_of(r, f, &a->ref)};
    case FAM_A_LIST: return list_arg(r, f, a);
    case FAM_A_FAR: return (plim_arg){.kind = PLIM_ARG_INT, .i = INT64_MAX};
    case FAM_A_ANY: return (plim_arg){.kind = PLIM_ARG_FLOAT, .f = 1};
    case FAM_A_DTYPE: return (plim_arg){.kind = PLIM_ARG_INT, .i = a->dtype};
    case FAM_A_MODEL_DTYPE: return (plim_arg){.kind = PLIM_ARG_INT, .i = r->n->dtype};
    case FAM_A_TEXT: return (plim_arg){.kind = PLIM_ARG_STR, .str = a->text};
    case FAM_A_EXPR: break;
    }
    return value_arg(r, plim_fam_eval(r->x, a->expr));
}

static void keep_results(runner *r, frame *f, const fam_stmt *s, const uint32_t *ids,
                         uint32_t n)
{
    result *out = PLIM_NEW_N(r->a, result, (uint64_t)n + 1);
    uint32_t *kept = PLIM_NEW_N(r->a, uint32_t, (uint64_t)n + 1);
    if (!out || !kept) {
        runner_oom(r);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        kept[i] = ids[i];
        out[i] = (result){&kept[i], 1};
    }
    f->items[s->at] = (item){.out = out, .n = n};
}

/* Sizes of parts that are alike: the text has one, the op one for each part. */
static void repeat_sizes(runner *r, plim_arg *sizes, int64_t length)
{
    int64_t *all = PLIM_NEW_N(r->a, int64_t, (uint64_t)length);
    for (int64_t i = 0; all && i < length; i++)
        all[i] = sizes->ints[0];
    if (!all)
        runner_oom(r);
    sizes->ints = all;
    sizes->n = all ? (uint32_t)length : 0;
}

/* An op whose results are a list. */
static void run_spread(runner *r, frame *f, const fam_stmt *s, plim_named_arg *args,
                       uint32_t n)
{
    int64_t length = s->expr ? plim_fam_int(r->x, s->expr) : 0;
    for (uint32_t i = 0; !s->expr && i < n; i++)
        length = args[i].arg.kind == PLIM_ARG_INTS ? args[i].arg.n : length;
    if (length < 1 || length > FAM_MOST) {
        if (!is_stopped(r))
            plim_nn_fail(r->n, PLIM_EUNSUPPORTED, "'%s' with %" PRId64 " results", s->text,
                         length);
        return;
    }
    for (uint32_t i = 0; i < n; i++)
        if (s->expr && args[i].arg.kind == PLIM_ARG_INTS && args[i].arg.n == 1)
            repeat_sizes(r, &args[i].arg, length);
    uint32_t *out = PLIM_NEW_N(r->a, uint32_t, (uint64_t)length);
    if (!out) {
        runner_oom(r);
        return;
    }
    plim_nn_node(r->n, s->text, args, n, out, (uint32_t)length);
    if (!r->n->st)
        f->items[s->at].kept = (result){out, (uint32_t)length};
}

static void run_op(runner *r, frame *f, const fam_stmt *s)
{
    enum { MOST = 32 };
    plim_named_arg args[MOST];
    uint32_t out[MOST], n = 0;
    if (s->n > MOST || s->outs > MOST) {
        plim_nn_fail(r->n, PLIM_EUNSUPPORTED, "'%s' has too many arguments", s->text);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        plim_arg a = one_arg(r, f, &s->args[i]);
        if (a.kind == PLIM_ARG_STR && plim_str_is(a.str, "torch.contiguous_format"))
            a = (plim_arg){.kind = PLIM_ARG_INT, .i = PLIM_FORMAT_CONTIGUOUS};
        else if (a.kind == PLIM_ARG_STR && plim_str_is(a.str, "torch.preserve_format"))
            continue; /* as it is */
        args[n++] =
            (plim_named_arg){s->args[i].name.n ? s->args[i].name : PLIM_STR("self"), a};
    }
    if (is_stopped(r))
        return;
    if (!s->outs) {
        run_spread(r, f, s, args, n);
        return;
    }
    plim_nn_node(r->n, s->text, args, n, out, s->outs);
    if (!r->n->st)
        keep_results(r, f, s, out, s->outs);
}

static void run_held(runner *r, const frame *f, const fam_stmt *s)
{
    for (uint32_t i = 0; i < s->n && !is_stopped(r); i++) {
        uint32_t id = value_of(r, f, &s->args[i].ref);
        if (!is_stopped(r))
            plim_nn_ends(r->n, id);
    }
}

/* ---- bodies ---------------------------------------------------------------------------------------------- */

static void run_body(runner *r, frame *f, const fam_block *b, const char *name);
static void run_statements(runner *r, frame *f, const fam_stmt *s);

static const fam_block *block_at(runner *r, plim_str place)
{
    const fam_block *b = place.p ? plim_fam_block(r->p, place) : NULL;
    if (!place.p)
        runner_oom(r);
    else if (!b)
        refuse_place(r, place, "nothing is known about it");
    return b;
}

static bool frame_open(runner *r, frame *f, const fam_block *b)
{
    f->n_items = b ? b->items : 0;
    f->items = b ? PLIM_NEW_N(r->a, item, (uint64_t)b->items + 1) : NULL;
    if (b && !f->items)
        runner_oom(r);
    return f->items != NULL;
}

/* "^2": 2 */
static uint32_t number_of(plim_str name)
{
    uint32_t k = 0;
    for (size_t i = 1; i < name.n && i < 5; i++)
        k = 10 * k + (uint32_t)(name.p[i] - '0');
    return k;
}

/* Gives a call or a loop those of its arguments that are there. */
static bool pass_args(runner *r, const frame *f, const fam_stmt *s, frame *to)
{
    plim_str *names = PLIM_NEW_N(r->a, plim_str, (uint64_t)s->n + 1);
    uint32_t *ids = PLIM_NEW_N(r->a, uint32_t, (uint64_t)s->n + 1),
             *others = PLIM_NEW_N(r->a, uint32_t, (uint64_t)s->n + 1);
    result *lists = PLIM_NEW_N(r->a, result, (uint64_t)s->n + 1);
    uint32_t n_others = 0;
    if (!names || !ids || !lists || !others) {
        runner_oom(r);
        return false;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        result v =
            s->args[i].kind == FAM_A_REF ? found_of(r, f, &s->args[i].ref) : (result){NULL, 0};
        char mark = s->args[i].name.n ? s->args[i].name.p[0] : ' ';
        if (mark == '^' || mark == '~') {
            uint32_t k = number_of(s->args[i].name);
            for (; n_others <= k && k < s->n; n_others++)
                others[n_others] =
                    PLIM_NONE; /* a variable that has no value before the loop */
            if (k < n_others)
                others[k] = v.n ? v.ids[0] : PLIM_NONE;
        } else if (v.n) {
            names[to->n_ins] = s->args[i].name;
            lists[to->n_ins] = v;
            ids[to->n_ins++] = v.ids[0];
        }
    }
    to->in_names = names;
    to->ins = ids;
    to->lists = lists;
    to->caps = to->carried = others; /* a call has the one, a loop the other */
    to->n_caps = to->n_carried = n_others;
    return !is_stopped(r);
}

static plim_str place_in(runner *r, const frame *f, const char *part)
{
    return plim_fam_concat(r->a, f->place, plim_str_of(part), PLIM_STR(""));
}

/* What tests ask of the arguments of a call. */
static void note_passed(runner *r, const frame *f)
{
    for (uint32_t i = 0; i < r->x->n_passed; i++) {
        const fam_passed *p = &r->x->passed[i];
        bool found = false;
        for (uint32_t k = 0; k < f->n_ins && !found; k++)
            found = plim_str_eq(f->in_names[k], p->name);
        r->x->values[p->id] = (fam_value){.kind = FAM_BOOL, .i = found};
    }
}

static void run_call(runner *r, frame *f, const fam_stmt *s)
{
    plim_str rel = put_indices(r, plim_str_of(s->text), s->index);
    frame in = {.path = s->outside ? rel : join_path(r, f->path, rel),
                .place = place_in(r, f, s->part)};
    const fam_block *b = block_at(r, in.place);
    if (!frame_open(r, &in, b) || !pass_args(r, f, s, &in))
        return;
    note_passed(r, &in);
    run_body(r, &in, b, rel.p);
    note_passed(r, f);
    f->items[s->at] = (item){.out = in.out, .names = in.out_names, .n = in.n_out};
}

/* One turn; `all` is given what it kept. */
static void run_turn(runner *r, frame *in, const fam_block *b, uint32_t **all, uint32_t *n,
                     uint32_t *cap)
{
    if (!frame_open(r, in, b))
        return;
    run_statements(r, in, b->first);
    for (uint32_t k = 0; k < in->n_out; k++)
        for (uint32_t v = 0; v < in->out[k].n; v++)
            if (PLIM_PUSH_ROOM(r->a, *all, *n, *cap))
                (*all)[(*n)++] = in->out[k].ids[v];
            else
                runner_oom(r);
}

static void run_loop(runner *r, frame *f, const fam_stmt *s)
{
    int64_t turns = plim_fam_int(r->x, s->expr);
    uint32_t level = r->loops, *kept = NULL, n_kept = 0, cap_kept = 0;
    frame first = {.path = f->path, .place = place_in(r, f, s->part)};
    const fam_block *b = block_at(r, first.place);
    if (level == DEPTH || turns > FAM_MOST)
        refuse_place(r, first.place, "too many turns");
    if (!b || is_stopped(r) || !pass_args(r, f, s, &first))
        return;
    r->loops++;
    for (int64_t i = 0; i < turns && !is_stopped(r); i++) {
        frame in = first;
        set_turn(r, r->turn, level, i);
        run_turn(r, &in, b, &kept, &n_kept, &cap_kept);
        if (in.n_next) {
            first.carried = in.next;
            first.n_carried = in.n_next;
        }
    }
    r->loops--;
    note_passed(r, f);
    if (is_stopped(r))
        return;
    keep_results(r, f, s, first.carried, first.n_carried);
    f->items[s->at].kept = (result){kept, n_kept};
}

static void run_list(runner *r, frame *f, const fam_stmt *s)
{
    if (s->what == FAM_NEXT) {
        uint32_t *ids = PLIM_NEW_N(r->a, uint32_t, (uint64_t)s->n + 1);
        for (uint32_t i = 0; ids && i < s->n;
             i++) { /* what the last turn leaves may be less */
            const result v = found_of(r, f, &s->args[i].ref);
            ids[i] = v.n ? v.ids[0] : PLIM_NONE;
        }
        f->next = ids;
        f->n_next = ids ? s->n : 0;
        return;
    }
    result *out = PLIM_NEW_N(r->a, result, (uint64_t)s->n + 1);
    plim_str *names = PLIM_NEW_N(r->a, plim_str, (uint64_t)s->n + 1);
    if (!out || !names) {
        runner_oom(r);
        return;
    }
    for (uint32_t i = 0; i < s->n; i++) {
        result v = s->what == FAM_RETURN ? found_of(r, f, &s->args[i].ref)
                                         : values_of(r, f, &s->args[i].ref);
        names[f->n_out] = s->args[i].name;
        out[f->n_out] = v;
        f->n_out += v.n > 0;
    }
    f->out = out;
    f->out_names = names;
}

/* Whether what a test is for runs. */
static bool meets_test(runner *r, const frame *f, const fam_stmt *s)
{
    bool there = !s->n || f->items[s->at].n || f->items[s->at].kept.n;
    return there && (!s->expr || plim_fam_true(r->x, s->expr));
}

static void run_statements(runner *r, frame *f, const fam_stmt *s)
{
    for (; s && !is_stopped(r); s = s->next)
        switch (s->what) {
        case FAM_IF:
            if (meets_test(r, f, s))
                run_statements(r, f, s->body);
            break;
        case FAM_OP: run_op(r, f, s); break;
        case FAM_HELD: run_held(r, f, s); break;
        case FAM_CALL: run_call(r, f, s); break;
        case FAM_LOOP: run_loop(r, f, s); break;
        case FAM_RETURN:
        case FAM_NEXT:
        case FAM_KEEP: run_list(r, f, s); break;
        default: break;
        }
}

static const char *type_of(runner *r, const fam_stmt *s)
{
    for (; s; s = s->next) {
        if (s->what == FAM_TYPE)
            return s->text;
        const char *inner = s->what == FAM_IF && !s->n && plim_fam_true(r->x, s->expr)
                                ? type_of(r, s->body)
                                : NULL;
        if (inner)
            return inner;
    }
    return NULL;
}

static void run_body(runner *r, frame *f, const fam_block *b, const char *name)
{
    const char *type = type_of(r, b->first);
    if (!type || r->depth == DEEPEST)
        refuse_place(r, f->place, "no class");
    if (is_stopped(r))
        return;
    r->depth++;
    plim_nn_enter(r->n, name, type);
    plim_nn_called(r->n, f->ins, f->n_ins);
    run_statements(r, f, b->first);
    plim_nn_leave(r->n);
    r->depth--;
}

/* ---- the model -------------------------------------------------------------------------------------------- */

static void set_value(fam_program *p, plim_str name, fam_value v)
{
    uint32_t id = plim_fam_name(&p->names, name);
    if (!p->names.st)
        p->names.values[id] = v;
}

static void set_word(fam_program *p, const char *name, plim_str word)
{
    set_value(p, plim_str_of(name), (fam_value){.kind = FAM_WORD, .s = word});
}

static void set_number(fam_program *p, const char *name, int64_t i)
{
    set_value(p, plim_str_of(name), (fam_value){.kind = FAM_INT, .i = i});
}

/* What the caller asks for, or what the family has. */
static int64_t asked_or(fam_program *p, int64_t asked, const fam_expr *usual)
{
    return asked || !usual ? asked : plim_fam_int(&p->names, usual);
}

/* Height or width of an image, to which the processor of a model resizes it. */
static int64_t rounded_size(fam_program *p, int64_t size)
{
    int64_t multiple = p->multiple ? plim_fam_int(&p->names, p->multiple) : 1;
    if (multiple <= 1 || size % multiple == 0)
        return size;
    if (plim_family_rounds(p))
        return PLIM_MAX(1, (size + multiple / 2) / multiple) * multiple;
    plim_fam_fail(&p->names, 0,
                  "images of %" PRId64 " pixels: height and width are multiples of %" PRId64,
                  size, multiple);
    return size;
}

/* The sizes of images, which the configuration has, too. */
static void set_image(fam_program *p, const plim_family_call *call)
{
    static const char *const names[] = {"$height", "$width"};
    for (int i = 0; i < 2 && p->image[0]; i++) {
        int64_t size = plim_fam_int(&p->names, p->image[i]), other = call->image[i];
        if (p->fixed && plim_family_reads(p))
            other = 0; /* its processor resizes them */
        if (other && other != size && p->fixed)
            plim_fam_fail(&p->names, 0,
                          "images of %" PRId64 " x %" PRId64 ": the class takes those of its "
                          "configuration, %" PRId64 " x %" PRId64,
                          call->image[0], call->image[1], plim_fam_int(&p->names, p->image[0]),
                          plim_fam_int(&p->names, p->image[1]));
        size = rounded_size(p, other ? other : size);
        set_number(p, names[i], size);
    }
}

void plim_family_image(plim_family_model *m, const plim_family_call *call, int64_t *height,
                       int64_t *width)
{
    *height = rounded_size(m, asked_or(m, call->image[0], m->image[0]));
    *width = rounded_size(m, asked_or(m, call->image[1], m->image[1]));
}

static void set_call(fam_program *p, const plim_family_call *call, plim_dtype dtype)
{
    set_image(p, call);
    set_number(p, "B", call->batch);
    set_number(p, "S", asked_or(p, call->seq, p->seq));
    if (p->frames)
        set_number(p, "$frames", asked_or(p, call->frames, p->frames));
    set_number(p, "$images", call->images);
    set_number(p, "$train", call->train);
    set_number(p, "$cache", call->cache);
    set_word(p, "$attention", call->eager ? PLIM_STR("eager") : p->attention);
    set_word(p, "$dtype", plim_str_of(plim_dtype_rows[dtype].torch + strlen("torch.")));
    for (uint32_t i = 0; i < p->n_sizes && !p->names.st; i++)
        set_value(p, p->sizes[i].name, plim_fam_eval(&p->names, p->sizes[i].expr));
}

static uint32_t add_input(runner *r, const fam_stmt *s)
{
    int64_t dim[PLIM_MAX_RANK];
    return sizes_of(r, s, plim_str_of(s->text), dim)
               ? plim_nn_input(r->n, s->text, type_in(r, s), (plim_ints){dim, s->n})
               : PLIM_NONE;
}

/* Whether it has elements; without images a class is not called with them. */
static bool has_elements(runner *r, const fam_stmt *s)
{
    for (uint32_t i = 0; i < s->n; i++)
        if (!plim_fam_int(r->x, s->args[i].expr))
            return false;
    return true;
}

/* Adds the inputs of the model; tokens that are labels, too, are one tensor. */
static void add_inputs(runner *r, frame *f, const plim_family_call *call)
{
    uint32_t n = 0;
    for (const fam_stmt *s = r->p->inputs; s; s = s->next)
        n++;
    plim_str *names = PLIM_NEW_N(r->a, plim_str, (uint64_t)n + 1);
    uint32_t *ids = PLIM_NEW_N(r->a, uint32_t, (uint64_t)n + 1);
    if (!names || !ids) {
        runner_oom(r);
        return;
    }
    f->in_names = names;
    f->ins = ids;
    for (const fam_stmt *s = r->p->inputs; s && !is_stopped(r); s = s->next) {
        bool labels = s->what == FAM_LABELS;
        if ((labels && !call->train) || !has_elements(r, s))
            continue;
        r->n->g->keeps |= s->kept && plim_is_float(type_in(r, s));
        names[f->n_ins] = plim_str_of(s->text);
        ids[f->n_ins] =
            labels && call->tokens_are_labels && f->n_ins ? ids[0] : add_input(r, s);
        f->n_ins++;
    }
}

/* The results that the cache keeps: "cache.layers.*.keys". */
static void note_kept(runner *r, const frame *f)
{
    static const char cache[] = "cache.";
    uint32_t n = 0, *ids = NULL, cap = 0;
    for (uint32_t i = 0; i < f->n_out; i++) {
        plim_str name = f->out_names[i];
        bool is = name.n >= sizeof cache - 1 && !memcmp(name.p, cache, sizeof cache - 1);
        for (uint32_t k = 0; is && k < f->out[i].n; k++)
            if (PLIM_PUSH_ROOM(r->a, ids, n, cap))
                ids[n++] = f->out[i].ids[k];
            else
                runner_oom(r);
    }
    r->kept = (result){ids, n};
}

static void run_model(runner *r, const plim_family_call *call)
{
    const fam_block *root = block_at(r, PLIM_STR(""));
    frame f = {.n_ins = 0};
    const char *type = root ? type_of(r, root->first) : NULL;
    if (root && !type)
        refuse_place(r, PLIM_STR("/"), "no class");
    if (is_stopped(r) || !frame_open(r, &f, root))
        return;
    plim_nn_root(r->n, type);
    add_inputs(r, &f, call);
    make_module(r, PLIM_STR(""), PLIM_STR(""));
    if (is_stopped(r))
        return;
    note_passed(r, &f);
    run_statements(r, &f, root->first);
    note_kept(r, &f);
    for (uint32_t i = 0; i < f.n_out && !is_stopped(r); i++)
        for (uint32_t k = 0; k < f.out[i].n; k++)
            plim_nn_output(r->n, f.out[i].ids[k]);
}

/* ---- the family --------------------------------------------------------------------------------------------- */

/* The text itself: those of the library are compressed. */
static plim_status text_of(plim_arena *a, const plim_family *f, plim_str *text, plim_err *err)
{
    const plim_bytes packed = {.p = f->text, .n = f->n};
    char piece[4096];
    uint64_t got = 0;
    plim_gzip z;
    plim_buf b;
    *text = (plim_str){(const char *)f->text, f->n};
    if (!plim_gzip_is(packed))
        return PLIM_OK;
    plim_buf_init(&b, a);
    plim_status st = plim_gzip_open(&z, a, packed, err);
    do {
        st = st ? st : plim_gzip_read(&z, piece, sizeof piece, &got, err);
        plim_buf_add(&b, (plim_str){piece, st ? 0 : got});
    } while (!st && got);
    *text = plim_buf_str(&b);
    return st || !b.bad ? st : plim_oom(err);
}

plim_status plim_family_open(plim_arena *a, const plim_family *f, plim_str config,
                             plim_family_model **out, plim_err *err)
{
    *out = PLIM_NEW(a, plim_family_model);
    if (!*out)
        return plim_oom(err);
    plim_str text;
    plim_status st = text_of(a, f, &text, err);
    st = st ? st : plim_fam_read(*out, a, text, err);
    return st ? st : plim_fam_config(*out, config, err);
}

plim_str plim_family_unread(const plim_family_model *m) { return plim_buf_str(&m->unread); }
plim_str plim_family_attention(const plim_family_model *m) { return m->attention; }
bool plim_family_sees(const plim_family_model *m) { return m->image[0]; }

bool plim_family_fixed(const plim_family_model *m) { return m->fixed; }

const char *plim_family_input(const plim_family_model *m)
{
    return m->inputs ? m->inputs->text : "";
}

bool plim_family_reads(const plim_family_model *m)
{
    return !strcmp(plim_family_input(m), "input_ids");
}

int64_t plim_family_text(plim_family_model *m) { return asked_or(m, 0, m->seq); }
int64_t plim_family_frames(plim_family_model *m) { return asked_or(m, 0, m->frames); }

plim_str plim_family_kernels(const plim_family_model *m) { return m->kernels; }

plim_str plim_family_without(const plim_family_model *m) { return m->without; }

plim_str plim_family_library(const plim_family_model *m)
{
    size_t n = 0;
    while (n < m->made.n && m->made.p[n] != ',')
        n++;
    return (plim_str){m->made.p, n};
}

plim_str plim_family_class(const plim_family_model *m) { return m->class; }

bool plim_family_caches(const plim_family_model *m)
{
    return plim_item_has("causal seq2seq pictures grids", m->task);
}

bool plim_family_rounds(const plim_family_model *m)
{
    return m->multiple && plim_family_reads(m);
}

bool plim_family_pairs(const plim_family_model *m)
{
    return plim_str_is(m->task, "contrastive");
}

/* Whether a parameter has as many rows. */
static bool is_size(const fam_program *p, const fam_stmt *s, uint32_t name)
{
    for (; s; s = s->next) {
        bool found = s->what == FAM_IF && is_size(p, s->body, name);
        for (uint32_t i = 0; s->what == FAM_LEAF && s->param && i < s->n; i++)
            found |= plim_fam_uses(s->args[i].expr, name);
        if (found)
            return true;
    }
    return false;
}

int64_t plim_family_positions(plim_family_model *m, bool *hard)
{
    static const char *const keys[] = {"max_position_embeddings", "n_positions", "max_seq_len",
                                       "max_sequence_length",
                                       "text_config.max_position_embeddings"};
    uint32_t id;
    *hard = m->positions != NULL;
    if (m->positions)
        return plim_fam_int(&m->names, m->positions);
    for (size_t i = 0; i < PLIM_COUNT(keys); i++) {
        if (!plim_map_get(&m->names.ids, plim_str_of(keys[i]), &id) ||
            m->names.values[id - 1].kind != FAM_INT)
            continue;
        for (uint32_t b = 0; b < m->n_blocks; b++)
            *hard |= is_size(m, m->blocks[b].first, id - 1);
        return m->names.values[id - 1].i;
    }
    return INT64_MAX;
}

static runner build_model(plim_nn *n, plim_family_model *m, const plim_family_call *call)
{
    runner r = {.p = m, .x = &m->names, .n = n, .a = n->g->arena};
    set_call(m, call, n->dtype);
    name_turns(&r, 'i', r.turn);
    name_turns(&r, 'j', r.child);
    n->g->lifetimes = true;
    if (!is_stopped(&r))
        run_model(&r, call);
    is_stopped(&r);
    return r;
}

void plim_family_build(plim_nn *n, plim_family_model *m, const plim_family_call *call)
{
    build_model(n, m, call);
}

/* ---- what layers keep --------------------------------------------------------------------------------------- */

/* More tokens than a window has. */
static int64_t many_tokens(plim_family_model *m)
{
    enum { MANY = 1 << 17 };
    bool hard;
    int64_t most = plim_family_positions(m, &hard);
    return hard && most < MANY ? most : MANY;
}

/* The layer whose keys and values these are.  A window keeps all its tokens but the one that comes next. */
static bool layer_of(const plim_meta *keys, const plim_meta *values, int64_t tokens,
                     plim_kv_layers *out)
{
    if (keys->rank != 4 || values->rank != 4 || keys->dim[1] != values->dim[1] ||
        keys->dim[2] != values->dim[2] || keys->dim[2] > tokens)
        return false;
    *out = (plim_kv_layers){.layers = 1,
                            .heads = keys->dim[1],
                            .keys = keys->dim[3],
                            .values = values->dim[3],
                            .window = keys->dim[2] < tokens ? keys->dim[2] + 1 : 0};
    return true;
}

/* All layers, or none: what one of them keeps is something else.  A count of tokens, which layers with a window keep,
 * too, is nothing.  False: our memory is full. */
static bool add_layers(result kept, const plim_graph *pass, int64_t tokens, plim_graph *g)
{
    const plim_meta *keys = NULL;
    plim_kv_layers kv;
    bool all = true;
    for (uint32_t i = 0; all && i < kept.n; i++) {
        const plim_meta *x = &pass->values[kept.ids[i]].meta;
        if (!x->rank)
            continue;
        all = !keys || layer_of(keys, x, tokens, &kv);
        if (keys && all && !plim_graph_add_kv(g, &kv))
            return false;
        keys = keys ? NULL : x;
    }
    all = all && !keys;
    if (!all)
        g->kv = (plim_cache){0};
    return true;
}

plim_status plim_family_keeps(plim_family_model *m, plim_graph *g, plim_err *err)
{
    uint32_t latent;
    if (!plim_family_caches(m) ||
        plim_map_get(&m->names.ids, PLIM_STR("kv_lora_rank"), &latent)) /* engines keep less */
        return PLIM_OK;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph pass = {.arena = &a};
    plim_err why = PLIM_ERR_INIT;
    plim_nn n;
    plim_status st = plim_graph_init(&pass, &a, &why);
    const plim_family_call call = {.batch = 1, .seq = many_tokens(m), .cache = true};
    bool full = st == PLIM_ENOMEM;
    if (!st) {
        plim_nn_init(&n, &pass, &why);
        n.infer = true;
        runner r = build_model(&n, m, &call);
        full = n.st == PLIM_ENOMEM || (!n.st && !add_layers(r.kept, &pass, call.seq, g));
    }
    plim_arena_free(&a);
    return full ? plim_oom(err) : PLIM_OK; /* nobody asked for a pass of that length */
}
