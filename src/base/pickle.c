/* pickle.c -- see pickle.h. */
#include "base/pickle.h"

#include <math.h>

#include "base/json.h"

typedef struct pickle_vm {
    plim_pickle *out;
    plim_arena *arena;
    plim_err *err;
    plim_bytes b;
    uint64_t at, base, start,
        op_at;      /* next byte; of b in the file; of the pickle; of the op */
    uint64_t there; /* see plim_bytes_ahead */
    plim_pickle_value *stack, *memo;
    uint32_t *marks;
    uint32_t n_stack, cap_stack, n_memo, cap_memo, n_marks, cap_marks;
    uint32_t n_puts; /* number of memo entries */
    bool plain;      /* names of code are refused */
    const plim_pickle_sink *sink;
    plim_pickle_node *unused[PLIM_PICKLE_DICT + 1]; /* by kind: what a sink is done with */
} pickle_vm;

/* ---- the stack ------------------------------------------------------------------ */

static uint64_t pickle_place(const pickle_vm *vm) { return vm->base + vm->op_at; }

static plim_status pickle_push(pickle_vm *vm, plim_pickle_value v)
{
    if (!PLIM_PUSH_ROOM(vm->arena, vm->stack, vm->n_stack, vm->cap_stack))
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
                     "pickle has another value than %s at byte %" PRIu64, what,
                     pickle_place(vm));
}

/* Number of values above the last mark: only opcodes for marks reach below it. */
static uint32_t pickle_above(const pickle_vm *vm)
{
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

/* Likewise pops the values above the last mark, and the mark; NULL: there is no mark. */
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

/* Shows a value to the sink before it is appended to a list. */
static plim_status pickle_offer(pickle_vm *vm, plim_pickle_value list, plim_pickle_value *v)
{
    plim_pickle_value dict = *v;
    if (dict.kind != PLIM_PICKLE_DICT || list.kind != PLIM_PICKLE_LIST)
        return PLIM_OK;
    plim_status st = vm->sink->take(vm->sink->ud, list.node, v, vm->err);
    if (st || v->kind == PLIM_PICKLE_DICT || dict.node->shared)
        return st;
    for (uint32_t i = 1; i < dict.node->n; i += 2)
        if (pickle_is_spent(dict.node->items[i]))
            pickle_forget(vm, dict.node->items[i], dict.node->items[i].node->meaning);
    pickle_forget(vm, dict, v->kind == PLIM_PICKLE_TAKEN ? v->i : 0);
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
    for (uint32_t i = 0; i < n; i++) {
        plim_pickle_value v = items[i];
        plim_status st = vm->sink ? pickle_offer(vm, to, &v) : PLIM_OK;
        if (st)
            return st;
        if (v.kind == PLIM_PICKLE_ABSENT)
            continue;
        if (!PLIM_PUSH_ROOM(vm->arena, to.node->items, to.node->n, to.node->cap))
            return plim_oom(vm->err);
        to.node->items[to.node->n++] = v;
    }
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
    plim_status st = pickle_make_global(vm, module, name, &v);
    return st ? st : pickle_push(vm, v);
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

/* ---- opcodes ---------------------------------------------------------------------- */

typedef enum pickle_form { /* the operands of an opcode */
                           FORM_NOTHING,
                           FORM_U1,
                           FORM_U2,
                           FORM_I4,
                           FORM_U4,
                           FORM_U8,
                           FORM_F8,     /* big-endian */
                           FORM_LINE,   /* up to a newline */
                           FORM_LINES,  /* two of them */
                           FORM_BYTES1, /* a length of that many bytes, then the data */
                           FORM_BYTES4,
                           FORM_BYTES8,
} pickle_form;

typedef struct pickle_arg {
    uint64_t u; /* I4 is sign-extended */
    plim_pickle_value s, s2;
} pickle_arg;

/* `how` is specific to the opcode, from the table below. */
typedef plim_status pickle_run(pickle_vm *vm, const pickle_arg *arg, int how);

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

static plim_status op_int(pickle_vm *vm, const pickle_arg *arg, int how)
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

static plim_status op_text(pickle_vm *vm, const pickle_arg *arg, int how)
{
    plim_pickle_value v = arg->s;
    v.kind = (plim_pickle_kind)how;
    return pickle_push(vm, v);
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
    return pickle_push(vm, v);
}

static plim_status op_long(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)how;
    plim_pickle_value v = arg->s;
    uint64_t u = v.n && v.p[v.n - 1] < 0 ? UINT64_MAX : 0; /* the sign */
    v.kind = PLIM_PICKLE_LONG;
    if (v.n > sizeof u)
        return pickle_push(vm, v);
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
    v.kind = PLIM_PICKLE_LONG;
    return pickle_push(vm, v);
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

static plim_status op_mark(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg, (void)how;
    if (!PLIM_PUSH_ROOM(vm->arena, vm->marks, vm->n_marks, vm->cap_marks))
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

static plim_status op_empty(pickle_vm *vm, const pickle_arg *arg, int how)
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

/* Likewise for all values above the mark. */
static plim_status op_put_all(pickle_vm *vm, const pickle_arg *arg, int how)
{
    (void)arg;
    uint32_t n = 0;
    const plim_pickle_value *v = pickle_pop_mark(vm, &n);
    return v && pickle_above(vm) ? pickle_extend(vm, v[-1], n, v, how == 2)
                                 : pickle_underflow(vm);
}

static plim_status op_put(pickle_vm *vm, const pickle_arg *arg, int how)
{
    uint64_t id = how ? vm->n_puts : arg->u;
    if (!pickle_above(vm))
        return pickle_underflow(vm);
    /* writers count from 0 or 1, so an entry with this number needs at least as many
     * opcodes */
    if (id > vm->at - vm->start)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "pickle has memo entry %" PRIu64 " after only %" PRIu64 " bytes", id,
                         vm->at - vm->start);
    while (vm->n_memo <= id) {
        if (!PLIM_PUSH_ROOM(vm->arena, vm->memo, vm->n_memo, vm->cap_memo))
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

static plim_status op_get(pickle_vm *vm, const pickle_arg *arg, int how)
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

#define OP_STOP '.'

typedef struct pickle_op {
    const char *name; /* NULL: no such opcode */
    pickle_form form;
    pickle_run *run;
    int how;
} pickle_op;

/* By the opcode's byte. */
/* clang-format off */
static const pickle_op pickle_ops[256] = {
    [0x80] = {"PROTO", FORM_U1, op_proto, 5},
    [0x95] = {"FRAME", FORM_U8, op_nothing, 0},
    ['.']  = {"STOP", FORM_NOTHING, op_nothing, 0},

    ['N']  = {"NONE", FORM_NOTHING, op_constant, 2},
    [0x88] = {"NEWTRUE", FORM_NOTHING, op_constant, 1},
    [0x89] = {"NEWFALSE", FORM_NOTHING, op_constant, 0},
    ['I']  = {"INT", FORM_LINE, op_digits, 0},
    ['L']  = {"LONG", FORM_LINE, op_digits, 1},
    ['J']  = {"BININT", FORM_I4, op_int, 0},
    ['K']  = {"BININT1", FORM_U1, op_int, 0},
    ['M']  = {"BININT2", FORM_U2, op_int, 0},
    [0x8a] = {"LONG1", FORM_BYTES1, op_long, 0},
    [0x8b] = {"LONG4", FORM_BYTES4, op_long, 0},
    ['F']  = {"FLOAT", FORM_LINE, op_decimal, 0},
    ['G']  = {"BINFLOAT", FORM_F8, op_float, 0},

    ['S']  = {"STRING", FORM_LINE, op_quoted, 0},
    ['T']  = {"BINSTRING", FORM_BYTES4, op_text, PLIM_PICKLE_STR},
    ['U']  = {"SHORT_BINSTRING", FORM_BYTES1, op_text, PLIM_PICKLE_STR},
    ['V']  = {"UNICODE", FORM_LINE, op_text, PLIM_PICKLE_STR},
    ['X']  = {"BINUNICODE", FORM_BYTES4, op_text, PLIM_PICKLE_STR},
    [0x8c] = {"SHORT_BINUNICODE", FORM_BYTES1, op_text, PLIM_PICKLE_STR},
    [0x8d] = {"BINUNICODE8", FORM_BYTES8, op_text, PLIM_PICKLE_STR},
    ['B']  = {"BINBYTES", FORM_BYTES4, op_text, PLIM_PICKLE_BYTES},
    ['C']  = {"SHORT_BINBYTES", FORM_BYTES1, op_text, PLIM_PICKLE_BYTES},
    [0x8e] = {"BINBYTES8", FORM_BYTES8, op_text, PLIM_PICKLE_BYTES},
    [0x96] = {"BYTEARRAY8", FORM_BYTES8, op_text, PLIM_PICKLE_BYTES},
    [0x97] = {"NEXT_BUFFER", FORM_NOTHING, op_refused, 1},
    [0x98] = {"READONLY_BUFFER", FORM_NOTHING, op_refused, 1},

    ['(']  = {"MARK", FORM_NOTHING, op_mark, 0},
    ['0']  = {"POP", FORM_NOTHING, op_pop, 0},
    ['1']  = {"POP_MARK", FORM_NOTHING, op_pop, 1},
    ['2']  = {"DUP", FORM_NOTHING, op_dup, 0},
    ['p']  = {"PUT", FORM_LINE, op_memo_text, 0},
    ['q']  = {"BINPUT", FORM_U1, op_put, 0},
    ['r']  = {"LONG_BINPUT", FORM_U4, op_put, 0},
    [0x94] = {"MEMOIZE", FORM_NOTHING, op_put, 1},
    ['g']  = {"GET", FORM_LINE, op_memo_text, 1},
    ['h']  = {"BINGET", FORM_U1, op_get, 0},
    ['j']  = {"LONG_BINGET", FORM_U4, op_get, 0},

    [')']  = {"EMPTY_TUPLE", FORM_NOTHING, op_tuple, 0},
    [0x85] = {"TUPLE1", FORM_NOTHING, op_tuple, 1},
    [0x86] = {"TUPLE2", FORM_NOTHING, op_tuple, 2},
    [0x87] = {"TUPLE3", FORM_NOTHING, op_tuple, 3},
    ['t']  = {"TUPLE", FORM_NOTHING, op_gather, PLIM_PICKLE_TUPLE},
    [']']  = {"EMPTY_LIST", FORM_NOTHING, op_empty, PLIM_PICKLE_LIST},
    ['l']  = {"LIST", FORM_NOTHING, op_gather, PLIM_PICKLE_LIST},
    ['}']  = {"EMPTY_DICT", FORM_NOTHING, op_empty, PLIM_PICKLE_DICT},
    ['d']  = {"DICT", FORM_NOTHING, op_gather, PLIM_PICKLE_DICT},
    [0x8f] = {"EMPTY_SET", FORM_NOTHING, op_empty, PLIM_PICKLE_SET},
    [0x91] = {"FROZENSET", FORM_NOTHING, op_gather, PLIM_PICKLE_SET},
    ['a']  = {"APPEND", FORM_NOTHING, op_put_in, 1},
    ['e']  = {"APPENDS", FORM_NOTHING, op_put_all, 1},
    ['s']  = {"SETITEM", FORM_NOTHING, op_put_in, 2},
    ['u']  = {"SETITEMS", FORM_NOTHING, op_put_all, 2},
    [0x90] = {"ADDITEMS", FORM_NOTHING, op_put_all, 1},

    ['c']  = {"GLOBAL", FORM_LINES, op_global, 0},
    [0x93] = {"STACK_GLOBAL", FORM_NOTHING, op_global, 1},
    [0x82] = {"EXT1", FORM_U1, op_refused, 0},
    [0x83] = {"EXT2", FORM_U2, op_refused, 0},
    [0x84] = {"EXT4", FORM_I4, op_refused, 0},
    ['P']  = {"PERSID", FORM_LINE, op_persistent, 0},
    ['Q']  = {"BINPERSID", FORM_NOTHING, op_persistent, 1},
    ['R']  = {"REDUCE", FORM_NOTHING, op_call, 2},
    [0x81] = {"NEWOBJ", FORM_NOTHING, op_call, 2},
    [0x92] = {"NEWOBJ_EX", FORM_NOTHING, op_call, 3},
    ['i']  = {"INST", FORM_LINES, op_instance, 0},
    ['o']  = {"OBJ", FORM_NOTHING, op_instance, 1},
    ['b']  = {"BUILD", FORM_NOTHING, op_build, 0},
};
/* clang-format on */

/* Opcodes that name code, or make Python run some. */
/* clang-format off */
static const bool names_code[256] = {
    ['c'] = true, [0x93] = true, ['P'] = true, ['Q'] = true, ['R'] = true,
    [0x81] = true, [0x92] = true, ['i'] = true, ['o'] = true, ['b'] = true,
};
/* clang-format on */

/* ---- reading -------------------------------------------------------------------------- */

static plim_status pickle_cut(const pickle_vm *vm, const pickle_op *op, uint64_t want)
{
    return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                     "pickle is truncated: %s at byte %" PRIu64 " needs %" PRIu64
                     " bytes, %" PRIu64 " are left",
                     op->name, pickle_place(vm), want, vm->b.n - vm->at);
}

static plim_status pickle_ahead(pickle_vm *vm, uint64_t n)
{
    return plim_bytes_ahead(vm->b, &vm->there, vm->at, n, vm->err);
}

static plim_status pickle_number(pickle_vm *vm, const pickle_op *op, uint32_t n, uint64_t *u)
{
    if (vm->b.n - vm->at < n)
        return pickle_cut(vm, op, n);
    plim_status st = pickle_ahead(vm, n);
    if (st)
        return st;
    *u = 0;
    for (uint32_t i = n; i-- > 0;)
        *u = *u << 8 | vm->b.p[vm->at + i];
    vm->at += n;
    return PLIM_OK;
}

static plim_status pickle_bytes(pickle_vm *vm, const pickle_op *op, uint32_t length,
                                plim_pickle_value *out)
{
    uint64_t n = 0;
    plim_status st = pickle_number(vm, op, length, &n);
    if (st || n > vm->b.n - vm->at)
        return st ? st : pickle_cut(vm, op, n);
    if (n > PLIM_PICKLE_MAX_BYTES)
        return plim_fail(vm->err, PLIM_EUNSUPPORTED, pickle_place(vm),
                         "pickle has a string of %" PRIu64 " bytes, the limit is %" PRIu64, n,
                         (uint64_t)PLIM_PICKLE_MAX_BYTES);
    if ((st = pickle_ahead(vm, n)) != PLIM_OK)
        return st;
    *out = (plim_pickle_value){
        .kind = PLIM_PICKLE_STR, .n = (uint32_t)n, .p = (const char *)vm->b.p + vm->at};
    vm->at += n;
    return PLIM_OK;
}

static plim_status pickle_line(pickle_vm *vm, const pickle_op *op, plim_pickle_value *out)
{
    uint64_t room = PLIM_MIN(vm->b.n - vm->at, PLIM_PICKLE_MAX_BYTES), part = 256;
    const uint8_t *p = vm->b.p + vm->at, *end = NULL;
    for (uint64_t seen = 0; seen < room && !end; part *= 4) { /* lines are short, mostly */
        part = PLIM_MIN(part, room - seen);
        plim_status st = pickle_ahead(vm, seen + part);
        if (st)
            return st;
        end = memchr(p + seen, '\n', (size_t)part);
        seen += part;
    }
    if (!end)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "pickle is truncated: %s at byte %" PRIu64 " has no end of line",
                         op->name, pickle_place(vm));
    uint64_t n = (uint64_t)(end - p);
    vm->at += n + 1;
    n -= n && end[-1] == '\r';
    *out =
        (plim_pickle_value){.kind = PLIM_PICKLE_STR, .n = (uint32_t)n, .p = (const char *)p};
    return PLIM_OK;
}

static plim_status pickle_argument(pickle_vm *vm, const pickle_op *op, pickle_arg *arg)
{
    plim_status st = PLIM_OK;
    switch (op->form) {
    case FORM_NOTHING: break;
    case FORM_U1: return pickle_number(vm, op, 1, &arg->u);
    case FORM_U2: return pickle_number(vm, op, 2, &arg->u);
    case FORM_U4: return pickle_number(vm, op, 4, &arg->u);
    case FORM_U8: return pickle_number(vm, op, 8, &arg->u);
    case FORM_I4:
        st = pickle_number(vm, op, 4, &arg->u);
        arg->u = (uint64_t)(int64_t)(int32_t)(uint32_t)arg->u;
        break;
    case FORM_F8:
        st = pickle_number(vm, op, 8, &arg->u);
        for (uint64_t u = arg->u, i = 0; i < 8; i++, u >>= 8)
            arg->u = arg->u << 8 | (u & 0xff);
        break;
    case FORM_LINE: return pickle_line(vm, op, &arg->s);
    case FORM_LINES:
        st = pickle_line(vm, op, &arg->s);
        return st ? st : pickle_line(vm, op, &arg->s2);
    case FORM_BYTES1: return pickle_bytes(vm, op, 1, &arg->s);
    case FORM_BYTES4: return pickle_bytes(vm, op, 4, &arg->s);
    case FORM_BYTES8: return pickle_bytes(vm, op, 8, &arg->s);
    }
    return st;
}

/* A pickle of plain data names no code. */
static plim_status pickle_refuse(const pickle_vm *vm, const pickle_op *op,
                                 const pickle_arg *arg)
{
    plim_str module = plim_pickle_text(arg->s), name = plim_pickle_text(arg->s2);
    if (op->run == op_global && op->how && vm->n_stack > 1) {
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
                     op->name, pickle_place(vm));
}

static plim_status pickle_step(pickle_vm *vm, bool *stop)
{
    if (vm->at == vm->b.n)
        return plim_fail(vm->err, PLIM_EFORMAT, vm->base + vm->at,
                         "pickle is truncated: no STOP before its end at byte %" PRIu64,
                         vm->base + vm->at);
    if (vm->at - vm->start > PLIM_PICKLE_MAX_BYTES)
        return plim_fail(vm->err, PLIM_EUNSUPPORTED, vm->base + vm->at,
                         "pickle is over the limit of %" PRIu64 " bytes",
                         (uint64_t)PLIM_PICKLE_MAX_BYTES);
    plim_status st = pickle_ahead(vm, 1);
    if (st)
        return st;
    vm->op_at = vm->at++;
    const pickle_op *op = &pickle_ops[vm->b.p[vm->op_at]];
    pickle_arg arg = {0};
    if (!op->name)
        return plim_fail(vm->err, PLIM_EFORMAT, pickle_place(vm),
                         "unknown pickle opcode 0x%02x at byte %" PRIu64,
                         (unsigned)vm->b.p[vm->op_at], pickle_place(vm));
    *stop = vm->b.p[vm->op_at] == OP_STOP;
    st = pickle_argument(vm, op, &arg);
    if (!st && vm->plain && names_code[vm->b.p[vm->op_at]])
        return pickle_refuse(vm, op, &arg);
    return st ? st : op->run(vm, &arg, op->how);
}

static plim_status pickle_read_all(pickle_vm *vm)
{
    plim_status st = PLIM_OK;
    *vm->out = (plim_pickle){.end = vm->at};
    if (!PLIM_PUSH_ROOM(vm->arena, vm->stack, vm->n_stack, vm->cap_stack))
        return plim_oom(vm->err);
    for (bool stop = false; !st && !stop;)
        st = pickle_step(vm, &stop);
    if (st)
        return st;
    if (!pickle_above(vm))
        return pickle_underflow(vm);
    vm->out->root = vm->stack[vm->n_stack - 1];
    vm->out->end = vm->at;
    return PLIM_OK;
}

plim_status plim_pickle_read(plim_pickle *p, plim_arena *a, plim_bytes b, uint64_t at,
                             uint64_t base, plim_err *err)
{
    pickle_vm vm = {
        .out = p, .arena = a, .err = err, .b = b, .at = at, .base = base, .start = at};
    return pickle_read_all(&vm);
}

plim_status plim_pickle_read_plain(plim_pickle *p, plim_arena *a, plim_bytes b,
                                   const plim_pickle_sink *sink, plim_err *err)
{
    pickle_vm vm = {.out = p, .arena = a, .err = err, .b = b, .plain = true, .sink = sink};
    return pickle_read_all(&vm);
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
