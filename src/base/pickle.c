/* pickle.c -- see pickle.h. */
#include "base/pickle.h"

#include <math.h>

#include "base/json.h"
#include "base/window.h"

typedef struct pickle_vm {
    plim_pickle *out;
    plim_arena *arena;
    plim_err *err;
    plim_bytes b;
    const uint8_t *p; /* those of its bytes that are there: from `from` on, n of them */
    uint64_t from, n, at;
    uint64_t base, start, op_at; /* of b in the file; in b, of the pickle and of the op */
    uint64_t there;              /* see plim_bytes_ahead */
    uint64_t most;               /* of `at` */
    plim_window window;          /* with a sink */
    plim_pickle_value *stack, *memo;
    uint32_t *marks;
    uint32_t n_stack, cap_stack, n_memo, cap_memo, n_marks, cap_marks;
    uint32_t n_puts; /* number of memo entries */
    bool plain;      /* names of code are refused */
    const plim_pickle_sink *sink;
    plim_pickle_node *unused[PLIM_PICKLE_DICT + 1]; /* by kind: what a sink is done with */
    plim_pickle_word **words;                       /* by hash; NULL: a free slot */
    uint32_t n_words, cap_words;
} pickle_vm;

/* ---- the bytes ------------------------------------------------------------------ */

static uint64_t pickle_place(const pickle_vm *vm) { return vm->base + vm->op_at; }

/* From the next one to the end of b. */
static uint64_t pickle_left(const pickle_vm *vm)
{
    plim_assert(vm->from <= vm->b.n && vm->at <= vm->b.n - vm->from);
    return vm->b.n - vm->from - vm->at;
}

/* Brings n bytes from the next one on, or all that are left; moves vm->p. */
static PLIM_COLD plim_status pickle_bring(pickle_vm *vm, uint64_t n)
{
    plim_status st = PLIM_OK;
    n = PLIM_MIN(n, pickle_left(vm));
    if (!vm->sink) {
        st = plim_bytes_ahead(vm->b, &vm->there, vm->at, n, vm->err);
        vm->n = vm->b.file ? vm->there : vm->b.n;
        return st;
    }
    while (!st && vm->n - vm->at < n) {
        st = plim_window_move(&vm->window, vm->at, vm->err);
        vm->p = (const uint8_t *)vm->window.p;
        vm->from = vm->window.base;
        vm->n = vm->window.n;
        vm->at = 0;
    }
    return st;
}

static inline plim_status pickle_ahead(pickle_vm *vm, uint64_t n)
{
    return vm->n - vm->at >= n ? PLIM_OK : pickle_bring(vm, n);
}

/* ---- the stack ------------------------------------------------------------------ */

static inline plim_status pickle_push(pickle_vm *vm, plim_pickle_value v)
{
    if (!PLIM_GROW_ROOM(vm->arena, vm->stack, vm->n_stack, vm->cap_stack))
        return plim_oom(vm->err);
    vm->stack[vm->n_stack++] = v;
    return PLIM_OK;
}

static plim_status pickle_underflow(const pickle_vm *vm)
{
    return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                     "pickle pops a value or a mark from an empty stack at byte %" PRIu64,
                     pickle_place(vm));
}

static plim_status pickle_misfit(const pickle_vm *vm, const char *what)
{
    return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                     "pickle has a value other than %s at byte %" PRIu64, what,
                     pickle_place(vm));
}

/* Number of values above the last mark: only opcodes for marks reach below it. */
static uint32_t pickle_above(const pickle_vm *vm)
{
    plim_assert(!vm->n_marks || vm->marks[vm->n_marks - 1] <= vm->n_stack);
    return vm->n_stack - (vm->n_marks ? vm->marks[vm->n_marks - 1] : 0);
}

/* Pops the last n values, in order; they stay valid until the next push.  NULL: there are
 * fewer. */
static const plim_pickle_value *pickle_pop(pickle_vm *vm, uint32_t n)
{
    if (pickle_above(vm) < n)
        return NULL;
    vm->n_stack -= n;
    return vm->stack + vm->n_stack;
}

/* Pops the values above the last mark, and the mark; NULL: there is no mark. */
static const plim_pickle_value *pickle_pop_mark(pickle_vm *vm, uint32_t *n)
{
    if (!vm->n_marks)
        return NULL;
    *n = pickle_above(vm);
    vm->n_marks--;
    vm->n_stack -= *n;
    return vm->stack + vm->n_stack;
}

/* ---- values ----------------------------------------------------------------------- */

static plim_pickle_value pickle_int(int64_t i)
{
    return (plim_pickle_value){.kind = PLIM_PICKLE_INT, .i = i};
}

/* A node that a sink is done with, if there is one with room for the items. */
static plim_pickle_node *pickle_reuse(pickle_vm *vm, plim_pickle_kind kind, uint32_t n)
{
    plim_pickle_node *node = kind <= PLIM_PICKLE_DICT ? vm->unused[kind] : NULL;
    if (!node || node->cap < n)
        return NULL;
    vm->unused[kind] = node->next;
    *node = (plim_pickle_node){.items = node->items, .cap = node->cap};
    return node;
}

/* A value with a copy of these items.  Absent: no memory. */
static plim_pickle_value pickle_make(pickle_vm *vm, plim_pickle_kind kind, uint32_t n,
                                     const plim_pickle_value *items)
{
    plim_assert(items || !n);
    plim_pickle_node *node = vm->sink ? pickle_reuse(vm, kind, n) : NULL;
    if (!node) {
        node = PLIM_NEW(vm->arena, plim_pickle_node);
        if (!node || (n && !(node->items = PLIM_NEW_N(vm->arena, plim_pickle_value, n))))
            return (plim_pickle_value){0};
        node->cap = n;
    }
    if (n)
        memcpy(node->items, items, n * sizeof *items);
    node->n = n;
    node->pairs = kind == PLIM_PICKLE_DICT;
    return (plim_pickle_value){.kind = kind, .node = node};
}

static plim_status pickle_push_made(pickle_vm *vm, plim_pickle_kind kind, uint32_t n,
                                    const plim_pickle_value *items)
{
    plim_pickle_value v = pickle_make(vm, kind, n, items);
    return v.kind ? pickle_push(vm, v) : plim_oom(vm->err);
}

/* Nothing but its memo entry refers to the node: the entry gets the meaning, the node is free
 * for the next value of this kind. */
static void pickle_forget(pickle_vm *vm, plim_pickle_value v, int64_t meaning)
{
    plim_assert(v.node && v.kind <= PLIM_PICKLE_DICT);
    plim_pickle_node *node = v.node;
    if (node->memo && vm->memo[node->memo - 1].kind >= PLIM_PICKLE_LIST &&
        vm->memo[node->memo - 1].node == node)
        vm->memo[node->memo - 1] =
            (plim_pickle_value){.kind = PLIM_PICKLE_TAKEN, .i = meaning};
    node->next = vm->unused[v.kind];
    vm->unused[v.kind] = node;
}

static bool pickle_is_spent(plim_pickle_value v)
{
    return (v.kind == PLIM_PICKLE_LIST || v.kind == PLIM_PICKLE_TUPLE) && v.node->spent &&
           !v.node->shared;
}

/* Shows a dict to the sink. */
static plim_status pickle_offer(pickle_vm *vm, plim_pickle_value list, plim_pickle_value *v)
{
    plim_pickle_value dict = *v;
    plim_status st = vm->sink->take(vm->sink->ud, list.node, v, vm->err);
    if (st || v->kind == PLIM_PICKLE_DICT || dict.node->shared)
        return st;
    for (uint32_t i = 1; i < dict.node->n; i += 2)
        if (pickle_is_spent(dict.node->items[i]))
            pickle_forget(vm, dict.node->items[i], dict.node->items[i].node->meaning);
    pickle_forget(vm, dict, v->kind == PLIM_PICKLE_TAKEN ? v->i : 0);
    return PLIM_OK;
}

static plim_status pickle_room(pickle_vm *vm, plim_pickle_node *to, uint32_t n)
{
    plim_assert(to->n <= to->cap);
    while (to->cap - to->n < n)
        if (!plim_arena_grow_to(vm->arena, (void **)&to->items, to->n, &to->cap,
                                sizeof *to->items))
            return plim_oom(vm->err);
    return PLIM_OK;
}

/* Appends items to a list, and shows dicts to the sink before. */
static plim_status pickle_append(pickle_vm *vm, plim_pickle_value list, uint32_t n,
                                 const plim_pickle_value *items)
{
    plim_pickle_node *to = list.node;
    for (uint32_t i = 0; i < n; i++) {
        plim_pickle_value v = items[i];
        plim_status st = v.kind == PLIM_PICKLE_DICT ? pickle_offer(vm, list, &v) : PLIM_OK;
        if (!st && v.kind && to->n == to->cap)
            st = pickle_room(vm, to, 1);
        if (st)
            return st;
        if (v.kind)
            to->items[to->n++] = v;
    }
    return PLIM_OK;
}

/* Adds items to a list, a set, a dict, or the result of a call. */
static plim_status pickle_extend(pickle_vm *vm, plim_pickle_value to, uint32_t n,
                                 const plim_pickle_value *items, bool pairs)
{
    bool fits = pairs ? to.kind == PLIM_PICKLE_DICT
                      : to.kind == PLIM_PICKLE_LIST || to.kind == PLIM_PICKLE_SET;
    if (to.kind == PLIM_PICKLE_CALL) {
        fits = !to.node->n || to.node->pairs == pairs;
        to.node->pairs = pairs;
    }
    if (!fits || (pairs && n % 2))
        return pickle_misfit(vm, pairs ? "a dict and pairs for it" : "a list");
    if (vm->sink && to.kind == PLIM_PICKLE_LIST)
        return pickle_append(vm, to, n, items);
    plim_status st = pickle_room(vm, to.node, n);
    if (st || !n)
        return st;
    memcpy(to.node->items + to.node->n, items, n * sizeof *items);
    to.node->n += n;
    return PLIM_OK;
}

static plim_status pickle_make_global(pickle_vm *vm, plim_pickle_value module,
                                      plim_pickle_value name, plim_pickle_value *out)
{
    plim_pickle_value names[2] = {module, name};
    plim_pickle *p = vm->out;
    if (module.kind != PLIM_PICKLE_STR || name.kind != PLIM_PICKLE_STR)
        return pickle_misfit(vm, "the names of a module and of something in it");
    *out = pickle_make(vm, PLIM_PICKLE_GLOBAL, 2, names);
    if (!out->kind || !PLIM_PUSH_ROOM(vm->arena, p->globals, p->n_globals, p->cap_globals))
        return plim_oom(vm->err);
    p->globals[p->n_globals++] = *out;
    return PLIM_OK;
}

static plim_status pickle_push_global(pickle_vm *vm, plim_pickle_value module,
                                      plim_pickle_value name)
{
    plim_pickle_value v = {0};
    PLIM_TRY(pickle_make_global(vm, module, name, &v));
    return pickle_push(vm, v);
}

static plim_status pickle_push_call(pickle_vm *vm, plim_pickle_value fn,
                                    plim_pickle_value args, plim_pickle_value state)
{
    if (args.kind != PLIM_PICKLE_TUPLE)
        return pickle_misfit(vm, "a tuple of arguments");
    plim_pickle_value v = pickle_make(vm, PLIM_PICKLE_CALL, 0, NULL);
    plim_pickle_call *call = PLIM_NEW(vm->arena, plim_pickle_call);
    if (!v.kind || !call)
        return plim_oom(vm->err);
    *call = (plim_pickle_call){fn, args, state};
    v.node->call = call;
    return pickle_push(vm, v);
}

/* ---- texts ------------------------------------------------------------------------ */

static bool words_grow(pickle_vm *vm)
{
    uint64_t cap = vm->cap_words ? (uint64_t)vm->cap_words * 2 : 256;
    plim_pickle_word **fresh =
        cap <= 1u << 31 ? PLIM_NEW_N(vm->arena, plim_pickle_word *, cap) : NULL;
    if (!fresh)
        return false;
    for (uint32_t i = 0; i < vm->cap_words; i++) {
        uint64_t k = vm->words[i] ? vm->words[i]->hash & (cap - 1) : 0;
        while (vm->words[i] && fresh[k])
            k = (k + 1) & (cap - 1);
        if (vm->words[i])
            fresh[k] = vm->words[i];
    }
    plim_assert(vm->n_words < cap);
    vm->words = fresh;
    vm->cap_words = (uint32_t)cap;
    return true;
}

/* The one word for this text, which the window forgets; NULL: no memory. */
static plim_pickle_word *pickle_word(pickle_vm *vm, plim_str s)
{
    uint32_t hash = (uint32_t)plim_str_hash(s);
    if (vm->n_words * 2ull >= vm->cap_words && !words_grow(vm))
        return NULL;
    plim_pickle_word **at = &vm->words[hash & (vm->cap_words - 1)];
    while (*at &&
           ((*at)->hash != hash || (*at)->n != s.n || memcmp((*at)->text, s.p, s.n) != 0))
        if (++at == vm->words + vm->cap_words)
            at = vm->words;
    if (*at)
        return *at;
    plim_pickle_word *w = plim_arena_new(vm->arena, sizeof *w + s.n + 1, 1);
    if (!w)
        return NULL;
    w->n = (uint32_t)s.n;
    w->hash = hash;
    memcpy(w->text, s.p, s.n);
    vm->n_words++;
    return *at = w;
}

static inline plim_status pickle_push_text(pickle_vm *vm, plim_pickle_value v,
                                           plim_pickle_kind kind)
{
    v.kind = kind;
    if (vm->sink) {
        const plim_pickle_word *w = pickle_word(vm, (plim_str){v.p, v.n});
        if (!w)
            return plim_oom(vm->err);
        v.p = w->text;
    }
    return pickle_push(vm, v);
}

/* ---- opcodes ---------------------------------------------------------------------- */

typedef struct pickle_arg {
    uint64_t u; /* I4 is sign-extended */
    plim_pickle_value s, s2;
} pickle_arg;

/* Each `op_`: `how` is specific to the opcode, from the list below. */

static plim_status op_nothing(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)vm, (void)arg, (void)how;
    return PLIM_OK;
}

static plim_status op_proto(pickle_vm *vm, const pickle_arg *arg, int how)
{
    if (arg->u <= (uint64_t)how)
        return PLIM_OK;
    return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                     "unsupported pickle protocol %" PRIu64 ": known are 0 to %d", arg->u,
                     how);
}

static plim_status op_refused(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                     "pickle uses %s at byte %" PRIu64,
                     how ? "out-of-band buffers" : "the extension registry", pickle_place(vm));
}

static plim_status op_constant(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    if (how == 2)
        return pickle_push(vm, (plim_pickle_value){.kind = PLIM_PICKLE_NONE});
    return pickle_push(vm, (plim_pickle_value){.kind = PLIM_PICKLE_BOOL, .i = how});
}

static inline plim_status op_int(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    return pickle_push(vm, pickle_int((int64_t)arg->u));
}

static plim_status op_float(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    plim_pickle_value v = {.kind = PLIM_PICKLE_FLOAT};
    memcpy(&v.f, &arg->u, sizeof v.f);
    return pickle_push(vm, v);
}

static inline plim_status op_text(pickle_vm *vm, const pickle_arg *arg, int how)
{
    return pickle_push_text(vm, arg->s, (plim_pickle_kind)how);
}

/* 'a' or "a" of protocol 0, in the form of repr(). */
static plim_status op_quoted(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    plim_pickle_value v = arg->s;
    if (v.n < 2 || (v.p[0] != '\'' && v.p[0] != '"') || v.p[v.n - 1] != v.p[0])
        return pickle_misfit(vm, "a string in quotes");
    v.p++;
    v.n -= 2;
    return pickle_push_text(vm, v, PLIM_PICKLE_STR);
}

static plim_status op_long(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    plim_pickle_value v = arg->s;
    uint64_t u = v.n && v.p[v.n - 1] < 0 ? UINT64_MAX : 0; /* the sign */
    if (v.n > sizeof u)
        return pickle_push_text(vm, v, PLIM_PICKLE_LONG);
    for (uint32_t i = v.n; i-- > 0;)
        u = u << 8 | (uint8_t)v.p[i];
    return pickle_push(vm, pickle_int((int64_t)u));
}

/* "12", "12L", "00" and "01" (which are False and True). */
static plim_status op_digits(pickle_vm *vm, const pickle_arg *arg, int how)
{
    plim_pickle_value v = arg->s;
    plim_err none = PLIM_ERR_INIT;
    plim_json j;
    if (how && v.n && v.p[v.n - 1] == 'L')
        v.n--;
    if (!how && v.n == 2 && v.p[0] == '0' && (v.p[1] == '0' || v.p[1] == '1'))
        return op_constant(vm, arg, v.p[1] - '0');
    plim_json_init(&j, (plim_str){v.p, v.n}, &none);
    int64_t i = plim_json_i64(&j);
    if (!plim_json_end(&j))
        return pickle_push(vm, pickle_int(i));
    if (none.code != PLIM_ERANGE)
        return pickle_misfit(vm, "digits");
    return pickle_push_text(vm, v, PLIM_PICKLE_LONG);
}

static plim_status op_decimal(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    static const struct {
        const char *name;
        double f;
    } rest[] = {{"inf", INFINITY}, {"-inf", -INFINITY}, {"nan", NAN}, {"-nan", NAN}};
    plim_str s = plim_pickle_text(arg->s);
    plim_json j;
    plim_json_init(&j, s, NULL);
    plim_pickle_value v = {.kind = PLIM_PICKLE_FLOAT, .f = plim_json_f64(&j)};
    if (!plim_json_end(&j))
        return pickle_push(vm, v);
    for (size_t i = 0; i < PLIM_COUNT(rest); i++)
        if (plim_str_is(s, rest[i].name)) {
            v.f = rest[i].f;
            return pickle_push(vm, v);
        }
    return pickle_misfit(vm, "a number");
}

static inline plim_status op_mark(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg, (void)how;
    if (!PLIM_GROW_ROOM(vm->arena, vm->marks, vm->n_marks, vm->cap_marks))
        return plim_oom(vm->err);
    vm->marks[vm->n_marks++] = vm->n_stack;
    return PLIM_OK;
}

static plim_status op_pop(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    uint32_t n = 0;
    bool mark = how || (vm->n_marks && !pickle_above(vm));
    return (mark ? pickle_pop_mark(vm, &n) : pickle_pop(vm, 1)) ? PLIM_OK
                                                                : pickle_underflow(vm);
}

static void pickle_share(plim_pickle_value v)
{
    if (plim_pickle_has_node(v))
        v.node->shared = true;
}

static plim_status op_dup(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg, (void)how;
    if (!pickle_above(vm))
        return pickle_underflow(vm);
    pickle_share(vm->stack[vm->n_stack - 1]);
    return pickle_push(vm, vm->stack[vm->n_stack - 1]);
}

static plim_status op_tuple(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    const plim_pickle_value *v = pickle_pop(vm, (uint32_t)how);
    return v ? pickle_push_made(vm, PLIM_PICKLE_TUPLE, (uint32_t)how, v)
             : pickle_underflow(vm);
}

static inline plim_status op_empty(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    return pickle_push_made(vm, (plim_pickle_kind)how, 0, NULL);
}

/* Builds a container from the values above the mark. */
static plim_status op_gather(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    uint32_t n = 0;
    const plim_pickle_value *v = pickle_pop_mark(vm, &n);
    if (v && how == PLIM_PICKLE_DICT && n % 2)
        return pickle_misfit(vm, "a dict and pairs for it");
    return v ? pickle_push_made(vm, (plim_pickle_kind)how, n, v) : pickle_underflow(vm);
}

/* Adds the last one or two values to the one below. */
static plim_status op_put_in(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    const plim_pickle_value *v = pickle_pop(vm, (uint32_t)how);
    return v && pickle_above(vm) ? pickle_extend(vm, v[-1], (uint32_t)how, v, how == 2)
                                 : pickle_underflow(vm);
}

/* Adds all values above the mark to the one below it. */
static inline plim_status op_put_all(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    uint32_t n = 0;
    const plim_pickle_value *v = pickle_pop_mark(vm, &n);
    return v && pickle_above(vm) ? pickle_extend(vm, v[-1], n, v, how == 2)
                                 : pickle_underflow(vm);
}

static inline plim_status op_put(pickle_vm *vm, const pickle_arg *arg, int how)
{
    uint64_t id = how ? vm->n_puts : arg->u;
    if (!pickle_above(vm))
        return pickle_underflow(vm);
    /* writers count from 0 or 1, so an entry with this number needs at least as many
     * opcodes */
    if (id > vm->from + vm->at - vm->start)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "pickle has memo entry %" PRIu64 " after only %" PRIu64 " bytes", id,
                         vm->from + vm->at - vm->start);
    while (vm->n_memo <= id) {
        if (!PLIM_GROW_ROOM(vm->arena, vm->memo, vm->n_memo, vm->cap_memo))
            return plim_oom(vm->err);
        vm->memo[vm->n_memo++] = (plim_pickle_value){0};
    }
    vm->n_puts += vm->memo[id].kind == PLIM_PICKLE_ABSENT;
    plim_pickle_value v = vm->memo[id] = vm->stack[vm->n_stack - 1];
    if (plim_pickle_has_node(v) && v.node->memo)
        v.node->shared = true;
    else if (plim_pickle_has_node(v))
        v.node->memo = (uint32_t)id + 1;
    return PLIM_OK;
}

static inline plim_status op_get(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    if (arg->u >= vm->n_memo || vm->memo[arg->u].kind == PLIM_PICKLE_ABSENT)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "pickle has no memo entry %" PRIu64 " at byte %" PRIu64, arg->u,
                         pickle_place(vm));
    pickle_share(vm->memo[arg->u]);
    return pickle_push(vm, vm->memo[arg->u]);
}

static bool pickle_decimal(plim_str s, uint64_t *out)
{
    *out = 0;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9' || !plim_mul(*out, 10, out) ||
            !plim_add(*out, (uint64_t)(s.p[i] - '0'), out))
            return false;
    return s.n > 0;
}

/* PUT and GET of protocol 0: the number is text. */
static plim_status op_memo_text(pickle_vm *vm, const pickle_arg *arg, int how)
{
    pickle_arg number = {0};
    if (!pickle_decimal(plim_pickle_text(arg->s), &number.u))
        return pickle_misfit(vm, "digits");
    return how ? op_get(vm, &number, 0) : op_put(vm, &number, 0);
}

static plim_status op_global(pickle_vm *vm, const pickle_arg *arg, int how)
{
    if (!how)
        return pickle_push_global(vm, arg->s, arg->s2);
    const plim_pickle_value *v = pickle_pop(vm, 2);
    return v ? pickle_push_global(vm, v[0], v[1]) : pickle_underflow(vm);
}

static plim_status op_persistent(pickle_vm *vm, const pickle_arg *arg, int how)
{
    const plim_pickle_value *v = how ? pickle_pop(vm, 1) : &arg->s;
    plim_pickle *p = vm->out;
    if (!v)
        return pickle_underflow(vm);
    plim_pickle_value id = pickle_make(vm, PLIM_PICKLE_PERSISTENT, 1, v);
    if (!id.kind ||
        !PLIM_PUSH_ROOM(vm->arena, p->persistents, p->n_persistents, p->cap_persistents))
        return plim_oom(vm->err);
    p->persistents[p->n_persistents++] = id;
    return pickle_push(vm, id);
}

/* fn, args -> call; with how == 3 also keywords, kept as if they were its state. */
static plim_status op_call(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    const plim_pickle_value *v = pickle_pop(vm, (uint32_t)how);
    return v ? pickle_push_call(vm, v[0], v[1], how == 3 ? v[2] : (plim_pickle_value){0})
             : pickle_underflow(vm);
}

/* Protocol 0: the arguments are above a mark, and (OBJ) the class comes before them. */
static plim_status op_instance(pickle_vm *vm, const pickle_arg *arg, int how)
{
    uint32_t n = 0;
    const plim_pickle_value *v = pickle_pop_mark(vm, &n);
    if (!v || n < (uint32_t)how)
        return pickle_underflow(vm);
    plim_pickle_value fn = {0},
                      args = pickle_make(vm, PLIM_PICKLE_TUPLE, n - (uint32_t)how, v + how);
    plim_status st = args.kind ? PLIM_OK : plim_oom(vm->err);
    if (how)
        fn = *v;
    else if (!st)
        st = pickle_make_global(vm, arg->s, arg->s2, &fn);
    return st ? st : pickle_push_call(vm, fn, args, (plim_pickle_value){0});
}

static plim_status op_build(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg, (void)how;
    const plim_pickle_value *v = pickle_pop(vm, 1);
    if (!v || !pickle_above(vm))
        return pickle_underflow(vm);
    if (v[-1].kind != PLIM_PICKLE_CALL)
        return pickle_misfit(vm, "an object to give its state to");
    v[-1].node->call->state = *v;
    return PLIM_OK;
}

/* Every opcode: its byte, its name, the form of its operands, what it does, `how`, and whether it names code
 * or makes Python run some. */
/* clang-format off */
#define PICKLE_OPS(X) \
    X(0x80, PROTO, U1, op_proto, 5, false)                                                    \
    X(0x95, FRAME, U8, op_nothing, 0, false)                                                  \
    X('.', STOP, NOTHING, op_nothing, 0, false)                                               \
                                                                                              \
    X('N', NONE, NOTHING, op_constant, 2, false)                                              \
    X(0x88, NEWTRUE, NOTHING, op_constant, 1, false)                                          \
    X(0x89, NEWFALSE, NOTHING, op_constant, 0, false)                                         \
    X('I', INT, LINE, op_digits, 0, false)                                                    \
    X('L', LONG, LINE, op_digits, 1, false)                                                   \
    X('J', BININT, I4, op_int, 0, false)                                                      \
    X('K', BININT1, U1, op_int, 0, false)                                                     \
    X('M', BININT2, U2, op_int, 0, false)                                                     \
    X(0x8a, LONG1, BYTES1, op_long, 0, false)                                                 \
    X(0x8b, LONG4, BYTES4, op_long, 0, false)                                                 \
    X('F', FLOAT, LINE, op_decimal, 0, false)                                                 \
    X('G', BINFLOAT, F8, op_float, 0, false)                                                  \
                                                                                              \
    X('S', STRING, LINE, op_quoted, 0, false)                                                 \
    X('T', BINSTRING, BYTES4, op_text, PLIM_PICKLE_STR, false)                                \
    X('U', SHORT_BINSTRING, BYTES1, op_text, PLIM_PICKLE_STR, false)                          \
    X('V', UNICODE, LINE, op_text, PLIM_PICKLE_STR, false)                                    \
    X('X', BINUNICODE, BYTES4, op_text, PLIM_PICKLE_STR, false)                               \
    X(0x8c, SHORT_BINUNICODE, BYTES1, op_text, PLIM_PICKLE_STR, false)                        \
    X(0x8d, BINUNICODE8, BYTES8, op_text, PLIM_PICKLE_STR, false)                             \
    X('B', BINBYTES, BYTES4, op_text, PLIM_PICKLE_BYTES, false)                               \
    X('C', SHORT_BINBYTES, BYTES1, op_text, PLIM_PICKLE_BYTES, false)                         \
    X(0x8e, BINBYTES8, BYTES8, op_text, PLIM_PICKLE_BYTES, false)                             \
    X(0x96, BYTEARRAY8, BYTES8, op_text, PLIM_PICKLE_BYTES, false)                            \
    X(0x97, NEXT_BUFFER, NOTHING, op_refused, 1, false)                                       \
    X(0x98, READONLY_BUFFER, NOTHING, op_refused, 1, false)                                   \
                                                                                              \
    X('(', MARK, NOTHING, op_mark, 0, false)                                                  \
    X('0', POP, NOTHING, op_pop, 0, false)                                                    \
    X('1', POP_MARK, NOTHING, op_pop, 1, false)                                               \
    X('2', DUP, NOTHING, op_dup, 0, false)                                                    \
    X('p', PUT, LINE, op_memo_text, 0, false)                                                 \
    X('q', BINPUT, U1, op_put, 0, false)                                                      \
    X('r', LONG_BINPUT, U4, op_put, 0, false)                                                 \
    X(0x94, MEMOIZE, NOTHING, op_put, 1, false)                                               \
    X('g', GET, LINE, op_memo_text, 1, false)                                                 \
    X('h', BINGET, U1, op_get, 0, false)                                                      \
    X('j', LONG_BINGET, U4, op_get, 0, false)                                                 \
                                                                                              \
    X(')', EMPTY_TUPLE, NOTHING, op_tuple, 0, false)                                          \
    X(0x85, TUPLE1, NOTHING, op_tuple, 1, false)                                              \
    X(0x86, TUPLE2, NOTHING, op_tuple, 2, false)                                              \
    X(0x87, TUPLE3, NOTHING, op_tuple, 3, false)                                              \
    X('t', TUPLE, NOTHING, op_gather, PLIM_PICKLE_TUPLE, false)                               \
    X(']', EMPTY_LIST, NOTHING, op_empty, PLIM_PICKLE_LIST, false)                            \
    X('l', LIST, NOTHING, op_gather, PLIM_PICKLE_LIST, false)                                 \
    X('}', EMPTY_DICT, NOTHING, op_empty, PLIM_PICKLE_DICT, false)                            \
    X('d', DICT, NOTHING, op_gather, PLIM_PICKLE_DICT, false)                                 \
    X(0x8f, EMPTY_SET, NOTHING, op_empty, PLIM_PICKLE_SET, false)                             \
    X(0x91, FROZENSET, NOTHING, op_gather, PLIM_PICKLE_SET, false)                            \
    X('a', APPEND, NOTHING, op_put_in, 1, false)                                              \
    X('e', APPENDS, NOTHING, op_put_all, 1, false)                                            \
    X('s', SETITEM, NOTHING, op_put_in, 2, false)                                             \
    X('u', SETITEMS, NOTHING, op_put_all, 2, false)                                           \
    X(0x90, ADDITEMS, NOTHING, op_put_all, 1, false)                                          \
                                                                                              \
    X('c', GLOBAL, LINES, op_global, 0, true)                                                 \
    X(0x93, STACK_GLOBAL, NOTHING, op_global, 1, true)                                        \
    X(0x82, EXT1, U1, op_refused, 0, false)                                                   \
    X(0x83, EXT2, U2, op_refused, 0, false)                                                   \
    X(0x84, EXT4, I4, op_refused, 0, false)                                                   \
    X('P', PERSID, LINE, op_persistent, 0, true)                                              \
    X('Q', BINPERSID, NOTHING, op_persistent, 1, true)                                        \
    X('R', REDUCE, NOTHING, op_call, 2, true)                                                 \
    X(0x81, NEWOBJ, NOTHING, op_call, 2, true)                                                \
    X(0x92, NEWOBJ_EX, NOTHING, op_call, 3, true)                                             \
    X('i', INST, LINES, op_instance, 0, true)                                                 \
    X('o', OBJ, NOTHING, op_instance, 1, true)                                                \
    X('b', BUILD, NOTHING, op_build, 0, true)
/* clang-format on */

/* ---- reading -------------------------------------------------------------------------- */

static PLIM_COLD plim_status pickle_cut(const pickle_vm *vm, const char *op, uint64_t want)
{
    return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                     "pickle is truncated: %s at byte %" PRIu64 " needs %" PRIu64
                     " bytes, %" PRIu64 " are left",
                     op, pickle_place(vm), want, pickle_left(vm));
}

/* Little-endian. */
static inline plim_status pickle_number(pickle_vm *vm, const char *op, uint32_t n, uint64_t *u)
{
    if (vm->n - vm->at < n) { /* an opcode's first bytes have been asked for */
        plim_status st = pickle_bring(vm, n);
        if (st || vm->n - vm->at < n)
            return st ? st : pickle_cut(vm, op, n);
    }
    const uint8_t *p = vm->p + vm->at;
    *u = 0;
    for (uint32_t i = n; i-- > 0;)
        *u = *u << 8 | p[i];
    vm->at += n;
    return PLIM_OK;
}

static inline plim_status pickle_bytes(pickle_vm *vm, const char *op, uint32_t length,
                                       plim_pickle_value *out)
{
    uint64_t n = 0;
    plim_status st = pickle_number(vm, op, length, &n);
    if (st || n > pickle_left(vm))
        return st ? st : pickle_cut(vm, op, n);
    if (n > PLIM_PICKLE_MAX_BYTES)
        return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                         "pickle has a string of %" PRIu64 " bytes, the limit is %" PRIu64, n,
                         (uint64_t)PLIM_PICKLE_MAX_BYTES);
    if ((st = pickle_ahead(vm, n)) != PLIM_OK)
        return st;
    *out = (plim_pickle_value){
        .kind = PLIM_PICKLE_STR, .n = (uint32_t)n, .p = (const char *)vm->p + vm->at};
    vm->at += n;
    return PLIM_OK;
}

/* The length of the line that begins `skip` bytes after the next one, with its end. */
static plim_status pickle_line_end(pickle_vm *vm, const char *op, uint64_t skip,
                                   uint64_t *length)
{
    uint64_t room = PLIM_MIN(pickle_left(vm) - skip, PLIM_PICKLE_MAX_BYTES), part = 256;
    const uint8_t *end = NULL;
    *length = 0;
    for (uint64_t seen = 0; seen < room && !end; part *= 4) { /* lines are short, mostly */
        part = PLIM_MIN(part, room - seen);
        PLIM_TRY(pickle_ahead(vm, skip + seen + part));
        const uint8_t *p = vm->p + vm->at + skip + seen;
        end = memchr(p, '\n', (size_t)part);
        *length += end ? (uint64_t)(end - p) + 1 : part;
        seen += part;
    }
    return end ? PLIM_OK
               : plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                           "pickle is truncated: %s at byte %" PRIu64 " has no end of line",
                           op, pickle_place(vm));
}

static void pickle_take_line(pickle_vm *vm, uint64_t length, plim_pickle_value *out)
{
    const char *p = (const char *)vm->p + vm->at;
    uint64_t n = length - 1;
    vm->at += length;
    n -= n && p[n - 1] == '\r';
    *out = (plim_pickle_value){.kind = PLIM_PICKLE_STR, .n = (uint32_t)n, .p = p};
}

/* ---- the forms of operands -------------------------------------------------------------- */

static inline plim_status read_NOTHING(pickle_vm *vm, const char *op, pickle_arg *arg)
{
    (void)vm, (void)op, (void)arg;
    return PLIM_OK;
}

#define READ_NUMBER(form, n)                                                                  \
    static inline plim_status read_##form(pickle_vm *vm, const char *op, pickle_arg *arg)     \
    {                                                                                         \
        return pickle_number(vm, op, n, &arg->u);                                             \
    }
READ_NUMBER(U1, 1)
READ_NUMBER(U2, 2)
READ_NUMBER(U4, 4)
READ_NUMBER(U8, 8)

static inline plim_status read_I4(pickle_vm *vm, const char *op, pickle_arg *arg)
{
    plim_status st = pickle_number(vm, op, 4, &arg->u);
    arg->u = (uint64_t)(int64_t)(int32_t)(uint32_t)arg->u;
    return st;
}

/* Big-endian. */
static plim_status read_F8(pickle_vm *vm, const char *op, pickle_arg *arg)
{
    plim_status st = pickle_number(vm, op, 8, &arg->u);
    for (uint64_t u = arg->u, i = 0; i < 8; i++, u >>= 8)
        arg->u = arg->u << 8 | (u & 0xff);
    return st;
}

/* A length of that many bytes, then the data. */
#define READ_BYTES(form, n)                                                                   \
    static inline plim_status read_##form(pickle_vm *vm, const char *op, pickle_arg *arg)     \
    {                                                                                         \
        return pickle_bytes(vm, op, n, &arg->s);                                              \
    }
READ_BYTES(BYTES1, 1)
READ_BYTES(BYTES4, 4)
READ_BYTES(BYTES8, 8)

static plim_status read_LINE(pickle_vm *vm, const char *op, pickle_arg *arg)
{
    uint64_t length;
    plim_status st = pickle_line_end(vm, op, 0, &length);
    if (!st)
        pickle_take_line(vm, length, &arg->s);
    return st;
}

/* Two of them. */
static plim_status read_LINES(pickle_vm *vm, const char *op, pickle_arg *arg)
{
    uint64_t first, second;
    PLIM_TRY(pickle_line_end(vm, op, 0, &first));
    PLIM_TRY(pickle_line_end(vm, op, first, &second));
    pickle_take_line(vm, first, &arg->s);
    pickle_take_line(vm, second, &arg->s2);
    return PLIM_OK;
}

/* ---- the machine -------------------------------------------------------------------------- */

/* A pickle of plain data names no code. */
static PLIM_COLD plim_status pickle_refuse(const pickle_vm *vm, const char *op,
                                           const pickle_arg *arg)
{
    plim_str module = plim_pickle_text(arg->s), name = plim_pickle_text(arg->s2);
    if (!strcmp(op, "STACK_GLOBAL") && vm->n_stack > 1) {
        module = plim_pickle_text(vm->stack[vm->n_stack - 2]);
        name = plim_pickle_text(vm->stack[vm->n_stack - 1]);
    }
    if (module.p && name.p)
        return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                         "pickle names code, '" PLIM_STR_FMT "." PLIM_STR_FMT
                         "' at byte %" PRIu64 ": here only plain data is read",
                         PLIM_STR_CUT(module), PLIM_STR_CUT(name), pickle_place(vm));
    return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                     "pickle asks for code to be run: %s at byte %" PRIu64
                     ": here only plain data is read",
                     op, pickle_place(vm));
}

/* Whether an opcode can be read that begins at the next byte. */
static PLIM_COLD plim_status pickle_more(pickle_vm *vm)
{
    vm->op_at = vm->from + vm->at;
    if (vm->op_at == vm->b.n)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "pickle is truncated: no STOP before its end at byte %" PRIu64,
                         pickle_place(vm));
    if (vm->at > vm->most)
        return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                         "pickle is over the limit of %" PRIu64 " bytes",
                         (uint64_t)PLIM_PICKLE_MAX_BYTES);
    return pickle_bring(vm, 1);
}

#define OP_STOP '.'

static PLIM_COLD plim_status pickle_unknown(const pickle_vm *vm, uint8_t code)
{
    return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                     "unknown pickle opcode 0x%02x at byte %" PRIu64, (unsigned)code,
                     pickle_place(vm));
}

static plim_status pickle_read_all(pickle_vm *vm)
{
    plim_status st = PLIM_OK;
    uint8_t code = 0;
    *vm->out = (plim_pickle){.end = vm->at};
    if (!PLIM_GROW_ROOM(vm->arena, vm->stack, vm->n_stack, vm->cap_stack))
        return plim_oom(vm->err);
    while (!st && code != OP_STOP) {
        if ((vm->at >= vm->n || vm->at > vm->most) && (st = pickle_more(vm)))
            break;
        vm->op_at = vm->from + vm->at;
        code = vm->p[vm->at++];
        switch (code) {
#define RUN(code, name, form, run, how, names_code)                                           \
    case code: {                                                                              \
        pickle_arg arg = {0};                                                                 \
        st = read_##form(vm, #name, &arg);                                                    \
        if (!st && (names_code) && vm->plain)                                                 \
            st = pickle_refuse(vm, #name, &arg);                                              \
        else if (!st)                                                                         \
            st = run(vm, &arg, how);                                                          \
    } break;
            PICKLE_OPS(RUN)
#undef RUN
        default: st = pickle_unknown(vm, code); break;
        }
    }
    if (st)
        return st;
    if (!pickle_above(vm))
        return pickle_underflow(vm);
    vm->out->root = vm->stack[vm->n_stack - 1];
    vm->out->end = vm->from + vm->at;
    return PLIM_OK;
}

plim_status plim_pickle_read(plim_pickle *p, plim_arena *a, plim_bytes b, uint64_t at,
                             uint64_t base, plim_err *err)
{
    pickle_vm vm = {.out = p,
                    .arena = a,
                    .err = err,
                    .b = b,
                    .p = b.p,
                    .n = at, /* it asks for more */
                    .at = at,
                    .base = base,
                    .start = at,
                    .most = at + PLIM_PICKLE_MAX_BYTES};
    return pickle_read_all(&vm);
}

plim_status plim_pickle_read_plain(plim_pickle *p, plim_arena *a, plim_bytes b,
                                   const plim_pickle_sink *sink, plim_err *err)
{
    pickle_vm vm = {.out = p,
                    .arena = a,
                    .err = err,
                    .b = b,
                    .most = UINT64_MAX,
                    .plain = true,
                    .sink = sink};
    plim_status st = plim_window_open(&vm.window, a, b, err);
    vm.p = (const uint8_t *)vm.window.p;
    vm.n = vm.window.n;
    return st ? st : pickle_read_all(&vm);
}

/* ---- looking at values ------------------------------------------------------------------ */

plim_pickle_value plim_pickle_get(plim_pickle_value dict, const char *key)
{
    if (plim_pickle_has_node(dict) && dict.node->pairs)
        for (uint32_t i = dict.node->n / 2; i-- > 0;) /* the last one wins, as in Python */
            if (plim_str_is(plim_pickle_text(dict.node->items[2 * i]), key) &&
                dict.node->items[2 * i].kind == PLIM_PICKLE_STR)
                return dict.node->items[2 * i + 1];
    return (plim_pickle_value){0};
}

bool plim_pickle_is_global(plim_pickle_value v, const char *module, const char *name)
{
    return v.kind == PLIM_PICKLE_GLOBAL &&
           plim_str_is(plim_pickle_text(v.node->items[0]), module) &&
           plim_str_is(plim_pickle_text(v.node->items[1]), name);
}
