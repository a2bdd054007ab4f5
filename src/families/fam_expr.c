/* fam_expr.c -- see fam_priv.h.  The grammar is a part of Python's. */
#include <math.h>
#include <stdarg.h>

#include "families/fam_priv.h"

typedef enum op {
    X_VALUE,
    X_NAME,
    X_ADD,
    X_SUB,
    X_MUL,
    X_DIV,
    X_RATIO,
    X_MOD,
    X_CEIL,
    X_MAX,
    X_MIN,
    X_NEG,
    X_LEN,
    X_ITEM,
    X_EQ,
    X_GT,
    X_LT,
    X_IN,
    X_AND,
    X_OR,
    X_NOT,
    X_INT,
    X_FLOOR2,
    X_INDEX,
    X_WINDOWS,
    X_IF
} op;

struct fam_expr {
    op op;
    uint32_t name;
    fam_value value;
    const fam_expr *a, *b, *c;
};

void plim_fam_fail(fam_names *x, uint64_t line, const char *fmt, ...)
{
    va_list ap;
    if (x->st)
        return;
    va_start(ap, fmt);
    plim_str text = plim_arena_vprintf(x->arena, fmt, ap);
    va_end(ap);
    if (!text.p)
        x->st = plim_oom(x->err);
    else if (line)
        x->st = plim_fail(x->err, PLIM_EFORMAT, line, "line %" PRIu64 " of the family: %s",
                          line, text.p);
    else
        x->st = plim_fail(x->err, PLIM_EUNSUPPORTED, 0, "%s", text.p);
}

uint32_t plim_fam_name(fam_names *x, plim_str name)
{
    uint32_t *at = plim_map_at(x->arena, &x->ids, name);
    if (at && *at)
        return *at - 1;
    if (!at || !PLIM_PUSH_ROOM(x->arena, x->values, x->n, x->cap)) {
        plim_fam_oom(x);
        return 0;
    }
    x->values[x->n++] = (fam_value){.kind = FAM_NONE};
    *at = x->n;
    if (name.n && name.p[0] == '?') {
        if (!PLIM_PUSH_ROOM(x->arena, x->passed, x->n_passed, x->cap_passed))
            plim_fam_oom(x);
        else
            x->passed[x->n_passed++] = (fam_passed){{name.p + 1, name.n - 1}, x->n - 1};
    }
    return *at - 1;
}

/* ---- reading --------------------------------------------------------------------------------- */

static const fam_expr *make_expr(fam_names *x, fam_expr e)
{
    fam_expr *out = PLIM_NEW(x->arena, fam_expr);
    if (!out) {
        plim_fam_oom(x);
        return NULL;
    }
    *out = e;
    return out;
}

static bool word_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           c == '_' || c == '.' || c == '$' || c == '?';
}

static const fam_expr *read_number(fam_names *x, fam_line *l)
{
    const char *from = l->p;
    fam_value v = {.kind = FAM_INT};
    while (l->p < l->end &&
           ((*l->p >= '0' && *l->p <= '9') || *l->p == '.' || *l->p == 'e' ||
            ((*l->p == '-' || *l->p == '+') && l->p > from && l->p[-1] == 'e'))) {
        if (*l->p == '.' || *l->p == 'e')
            v.kind = FAM_FLOAT;
        l->p++;
    }
    plim_json j;
    plim_json_init(&j, (plim_str){from, (size_t)(l->p - from)}, NULL);
    if (v.kind == FAM_FLOAT)
        v.f = plim_json_f64(&j);
    else
        v.i = plim_json_i64(&j);
    if (j.bad)
        plim_fam_fail(x, l->at, "'%.*s' is no number", (int)(l->p - from), from);
    return make_expr(x, (fam_expr){.op = X_VALUE, .value = v});
}

static const fam_expr *read_sum(fam_names *x, fam_line *l, int depth);
static const fam_expr *read_choice(fam_names *x, fam_line *l, int depth);

static const fam_expr *read_call(fam_names *x, fam_line *l, op o, int n, int depth)
{
    const fam_expr *args[3] = {read_sum(x, l, depth)};
    for (int i = 1; i < n; i++) {
        if (!plim_fam_take(l, ","))
            plim_fam_fail(x, l->at, "',' expected at '%.*s'", (int)PLIM_MIN(l->end - l->p, 20),
                          l->p);
        args[i] = read_sum(x, l, depth);
    }
    fam_expr e = {.op = o, .a = args[0], .b = args[1], .c = args[2]};
    if (!plim_fam_take(l, ")"))
        plim_fam_fail(x, l->at, "')' expected at '%.*s'", (int)PLIM_MIN(l->end - l->p, 20),
                      l->p);
    return make_expr(x, e);
}

static const fam_expr *read_list(fam_names *x, fam_line *l, int depth)
{
    fam_value items[64], v = {.kind = FAM_LIST};
    while (!x->st && !plim_fam_take(l, "]")) {
        const fam_expr *e = read_sum(x, l, depth);
        if (v.n == PLIM_COUNT(items) || !e) {
            plim_fam_fail(x, l->at, "a list is too long");
            break;
        }
        items[v.n++] = plim_fam_eval(x, e);
        plim_fam_take(l, ",");
    }
    fam_value *kept = PLIM_NEW_N(x->arena, fam_value, (uint64_t)v.n + 1);
    if (!kept)
        plim_fam_oom(x);
    else
        memcpy(kept, items, v.n * sizeof *items);
    v.items = kept;
    return make_expr(x, (fam_expr){.op = X_VALUE, .value = v});
}

static const fam_expr *read_name(fam_names *x, fam_line *l, int depth)
{
    static const struct {
        const char *word;
        fam_value value;
    } words[] = {{"True", {.kind = FAM_BOOL, .i = 1}},
                 {"False", {.kind = FAM_BOOL}},
                 {"None", {.kind = FAM_NONE}},
                 {"inf", {.kind = FAM_FLOAT, .f = (double)INFINITY}}};
    static const struct {
        const char *word;
        op op;
        int args;
    } calls[] = {{"ceil", X_CEIL, 2},   {"max", X_MAX, 2},        {"min", X_MIN, 2},
                 {"len", X_LEN, 1},     {"int", X_INT, 1},        {"floor2", X_FLOOR2, 1},
                 {"index", X_INDEX, 2}, {"windows", X_WINDOWS, 3}};
    const char *from = l->p;
    while (l->p < l->end && word_char(*l->p))
        l->p++;
    plim_str s = {from, (size_t)(l->p - from)};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (plim_str_is(s, words[i].word))
            return make_expr(x, (fam_expr){.op = X_VALUE, .value = words[i].value});
    for (size_t i = 0; i < PLIM_COUNT(calls); i++)
        if (plim_str_is(s, calls[i].word) && plim_fam_take(l, "("))
            return read_call(x, l, calls[i].op, calls[i].args, depth);
    const fam_expr *e = make_expr(x, (fam_expr){.op = X_NAME, .name = plim_fam_name(x, s)});
    if (l->p < l->end && *l->p == '[') {
        l->p++;
        e = make_expr(x, (fam_expr){.op = X_ITEM, .a = e, .b = read_sum(x, l, depth)});
        if (!plim_fam_take(l, "]"))
            plim_fam_fail(x, l->at, "']' expected");
    }
    return e;
}

static const fam_expr *read_atom(fam_names *x, fam_line *l, int depth)
{
    plim_fam_space(l);
    if (x->st || depth > 20 || l->p >= l->end) {
        plim_fam_fail(x, l->at, "an expression ends too early or is too deep");
        return NULL;
    }
    if (plim_fam_take(l, "-"))
        return make_expr(x, (fam_expr){.op = X_NEG, .a = read_atom(x, l, depth + 1)});
    if (plim_fam_take(l, "(")) {
        const fam_expr *e = read_choice(x, l, depth + 1);
        if (!plim_fam_take(l, ")"))
            plim_fam_fail(x, l->at, "')' expected");
        return e;
    }
    if (plim_fam_take(l, "["))
        return read_list(x, l, depth + 1);
    if (*l->p == '\'') {
        const char *from = ++l->p;
        while (l->p < l->end && *l->p != '\'')
            l->p++;
        fam_value v = {.kind = FAM_WORD, .s = {from, (size_t)(l->p - from)}};
        l->p += l->p < l->end;
        return make_expr(x, (fam_expr){.op = X_VALUE, .value = v});
    }
    if (*l->p >= '0' && *l->p <= '9')
        return read_number(x, l);
    if (word_char(*l->p))
        return read_name(x, l, depth + 1);
    plim_fam_fail(x, l->at, "'%.*s' is no expression", (int)PLIM_MIN(l->end - l->p, 20), l->p);
    return NULL;
}

static const fam_expr *read_product(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_atom(x, l, depth);
    while (!x->st) {
        op o = plim_fam_take(l, "*")    ? X_MUL
               : plim_fam_take(l, "//") ? X_DIV
               : plim_fam_take(l, "/")  ? X_RATIO
               : plim_fam_take(l, "%")  ? X_MOD
                                        : X_VALUE;
        if (o == X_VALUE)
            break;
        a = make_expr(x, (fam_expr){.op = o, .a = a, .b = read_atom(x, l, depth)});
    }
    return a;
}

static const fam_expr *read_sum(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_product(x, l, depth);
    while (!x->st) {
        op o = plim_fam_take(l, "+") ? X_ADD : plim_fam_take(l, "-") ? X_SUB : X_VALUE;
        if (o == X_VALUE)
            break;
        a = make_expr(x, (fam_expr){.op = o, .a = a, .b = read_product(x, l, depth)});
    }
    return a;
}

static const fam_expr *read_test(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_sum(x, l, depth);
    op o = plim_fam_take(l, "==")    ? X_EQ
           : plim_fam_take(l, ">")   ? X_GT
           : plim_fam_take(l, "<")   ? X_LT
           : plim_fam_take(l, "in ") ? X_IN
                                     : X_VALUE;
    return o == X_VALUE
               ? a
               : make_expr(x, (fam_expr){.op = o, .a = a, .b = read_sum(x, l, depth)});
}

static const fam_expr *read_negation(fam_names *x, fam_line *l, int depth)
{
    return plim_fam_take(l, "not ")
               ? make_expr(x, (fam_expr){.op = X_NOT, .a = read_test(x, l, depth + 1)})
               : read_test(x, l, depth);
}

static const fam_expr *read_all(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_negation(x, l, depth);
    while (!x->st && plim_fam_take(l, "and "))
        a = make_expr(x, (fam_expr){.op = X_AND, .a = a, .b = read_negation(x, l, depth)});
    return a;
}

static const fam_expr *read_any(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_all(x, l, depth);
    while (!x->st && plim_fam_take(l, "or "))
        a = make_expr(x, (fam_expr){.op = X_OR, .a = a, .b = read_all(x, l, depth)});
    return a;
}

static const fam_expr *read_choice(fam_names *x, fam_line *l, int depth)
{
    const fam_expr *a = read_any(x, l, depth);
    if (!plim_fam_take(l, "if "))
        return a;
    const fam_expr *t = read_any(x, l, depth);
    if (!plim_fam_take(l, "else "))
        plim_fam_fail(x, l->at, "'else' expected");
    return make_expr(
        x, (fam_expr){.op = X_IF, .a = t, .b = a, .c = read_choice(x, l, depth + 1)});
}

const fam_expr *plim_fam_parse(fam_names *x, fam_line *l) { return read_choice(x, l, 0); }

bool plim_fam_uses(const fam_expr *e, uint32_t name)
{
    return e && ((e->op == X_NAME && e->name == name) || plim_fam_uses(e->a, name) ||
                 plim_fam_uses(e->b, name) || plim_fam_uses(e->c, name));
}

/* ---- values ------------------------------------------------------------------------------------ */

static fam_value int_value(int64_t i) { return (fam_value){.kind = FAM_INT, .i = i}; }
static fam_value bool_value(bool b) { return (fam_value){.kind = FAM_BOOL, .i = b}; }
static bool is_int(fam_value v) { return v.kind == FAM_INT || v.kind == FAM_BOOL; }
static double real_of(fam_value v) { return v.kind == FAM_FLOAT ? v.f : (double)v.i; }

bool plim_fam_equal(fam_value a, fam_value b)
{
    if (is_int(a) && is_int(b))
        return a.i == b.i;
    if (a.kind == FAM_FLOAT || b.kind == FAM_FLOAT) {
        bool numbers =
            (is_int(a) || a.kind == FAM_FLOAT) && (is_int(b) || b.kind == FAM_FLOAT);
        return numbers && !(real_of(a) < real_of(b)) && !(real_of(a) > real_of(b));
    }
    if (a.kind != b.kind)
        return false;
    if (a.kind == FAM_WORD)
        return plim_str_eq(a.s, b.s);
    bool same = a.n == b.n;
    for (uint32_t i = 0; same && i < a.n; i++)
        same = plim_fam_equal(a.items[i], b.items[i]);
    return same;
}

static fam_value calculate_value(fam_names *x, op o, fam_value a, fam_value b)
{
    int64_t r = 0, by = PLIM_MAX(b.i, 1); /* positive, as is checked */
    bool fits = true;
    if (a.kind == FAM_FLOAT || b.kind == FAM_FLOAT) {
        double p = real_of(a), q = real_of(b);
        return (fam_value){.kind = FAM_FLOAT,
                           .f = o == X_MUL   ? p * q
                                : o == X_ADD ? p + q
                                             : p - q};
    }
    if (!is_int(a) || !is_int(b) || ((o == X_DIV || o == X_MOD || o == X_CEIL) && b.i <= 0)) {
        plim_fam_fail(x, 0, "a size of the family cannot be computed from this configuration");
        return int_value(0);
    }
    switch (o) {
    case X_ADD: fits = !__builtin_add_overflow(a.i, b.i, &r); break;
    case X_SUB: fits = !__builtin_sub_overflow(a.i, b.i, &r); break;
    case X_MUL: fits = !__builtin_mul_overflow(a.i, b.i, &r); break;
    case X_MAX: r = PLIM_MAX(a.i, b.i); break;
    case X_MIN: r = PLIM_MIN(a.i, b.i); break;
    case X_DIV: r = a.i / by - (a.i % by < 0); break;
    case X_MOD: r = a.i % by + (a.i % by < 0 ? by : 0); break;
    default: r = a.i / by + (a.i % by > 0); break;
    }
    if (!fits)
        plim_fam_fail(x, 0, "a size of the family overflows");
    return int_value(r);
}

static fam_value ratio_of(fam_names *x, fam_value a, fam_value b)
{
    bool fits = (is_int(a) || a.kind == FAM_FLOAT) && is_int(b) && b.i > 0;
    if (!fits)
        plim_fam_fail(x, 0, "a size of the family cannot be computed from this configuration");
    return fits ? (fam_value){.kind = FAM_FLOAT, .f = real_of(a) / (double)b.i} : int_value(0);
}

static fam_value item_of(fam_names *x, fam_value list, fam_value at)
{
    int64_t i = is_int(at) ? at.i + (at.i < 0 ? (int64_t)list.n : 0) : -1;
    if (list.kind != FAM_LIST || i < 0 || i >= (int64_t)list.n) {
        plim_fam_fail(x, 0, "a list of the configuration has no item %" PRId64, i);
        return int_value(0);
    }
    return list.items[i];
}

static bool list_has(fam_value list, fam_value v)
{
    bool found = false;
    for (uint32_t i = 0; list.kind == FAM_LIST && i < list.n; i++)
        found |= plim_fam_equal(list.items[i], v);
    return found;
}

static bool is_number(fam_value v)
{
    return is_int(v) || v.kind == FAM_FLOAT || v.kind == FAM_NONE; /* which is like 0 */
}

static bool is_more(fam_value a, fam_value b)
{
    return is_number(a) && is_number(b) && real_of(a) > real_of(b);
}

/* int(v) of a float */
static fam_value whole_of(fam_names *x, fam_value v)
{
    if (v.kind == FAM_FLOAT && v.f > -9e15 && v.f < 9e15)
        return int_value((int64_t)v.f);
    if (!is_int(v))
        plim_fam_fail(x, 0, "a size of the family cannot be computed from this configuration");
    return int_value(v.i);
}

/* The largest power of two that is no larger. */
static fam_value floor2_of(fam_names *x, fam_value v)
{
    int64_t p = 1;
    if (!is_int(v) || v.i < 1)
        plim_fam_fail(x, 0, "a size of the family cannot be computed from this configuration");
    while (p <= v.i / 2)
        p *= 2;
    return int_value(p);
}

/* Where it is in a list. */
static fam_value index_of(fam_names *x, fam_value list, fam_value v)
{
    uint32_t i = 0;
    while (list.kind == FAM_LIST && i < list.n && !plim_fam_equal(list.items[i], v))
        i++;
    if (list.kind != FAM_LIST || i == list.n)
        plim_fam_fail(x, 0, "a list of the family has no such item for this configuration");
    return int_value(i);
}

fam_value *plim_fam_items(fam_names *x, int64_t n)
{
    fam_value *items =
        n < 0 || n > FAM_MOST ? NULL : PLIM_NEW_N(x->arena, fam_value, (uint64_t)n + 1);
    if (!items && n >= 0 && n <= FAM_MOST)
        plim_fam_oom(x);
    else if (!items)
        plim_fam_fail(
            x, 0, "a list of the configuration would have %" PRId64 " items, the limit is %d",
            n, FAM_MOST);
    return items;
}

/* [8] * 3 is [8, 8, 8]. */
static fam_value repeat_list(fam_names *x, fam_value list, fam_value times)
{
    fam_value out = {.kind = FAM_LIST};
    bool fits = is_int(times) && times.i >= 0 && times.i <= FAM_MOST;
    fam_value *items = plim_fam_items(x, fits ? (int64_t)list.n * times.i : FAM_MOST + 1);
    for (int64_t i = 0; items && i < times.i * (int64_t)list.n; i++)
        items[out.n++] = list.items[i % (int64_t)list.n];
    out.items = items;
    return out;
}

/* How many patches each window of an image has, row after row: those at its edges have fewer. */
static fam_value windows_of(fam_names *x, fam_value h, fam_value w, fam_value side)
{
    fam_value out = {.kind = FAM_LIST};
    bool fits = is_int(h) && is_int(w) && is_int(side) && h.i > 0 && w.i > 0 && side.i > 0 &&
                h.i <= INT32_MAX && w.i <= INT32_MAX;
    const int64_t by = fits ? side.i : 1, rows = (h.i - 1) / by + 1,
                  columns = (w.i - 1) / by + 1;
    fam_value *items = plim_fam_items(x, fits ? rows * columns : FAM_MOST + 1);
    for (int64_t y = 0; items && y < h.i; y += by)
        for (int64_t z = 0; z < w.i; z += by)
            items[out.n++] = int_value(PLIM_MIN(by, h.i - y) * PLIM_MIN(by, w.i - z));
    out.items = items;
    return out;
}

fam_value plim_fam_eval(fam_names *x, const fam_expr *e)
{
    if (x->st || !e)
        return int_value(0);
    switch (e->op) {
    case X_VALUE: return e->value;
    case X_NAME: return x->values[e->name];
    case X_IF: return plim_fam_eval(x, plim_fam_true(x, e->a) ? e->b : e->c);
    case X_LEN: return int_value(plim_fam_eval(x, e->a).n);
    case X_AND: return bool_value(plim_fam_true(x, e->a) && plim_fam_true(x, e->b));
    case X_OR: return bool_value(plim_fam_true(x, e->a) || plim_fam_true(x, e->b));
    case X_NOT: return bool_value(!plim_fam_true(x, e->a));
    case X_INT: return whole_of(x, plim_fam_eval(x, e->a));
    case X_FLOOR2: return floor2_of(x, plim_fam_eval(x, e->a));
    case X_NEG: return calculate_value(x, X_SUB, int_value(0), plim_fam_eval(x, e->a));
    default: break;
    }
    fam_value a = plim_fam_eval(x, e->a), b = plim_fam_eval(x, e->b);
    if (e->op == X_MUL && a.kind == FAM_LIST)
        return repeat_list(x, a, b);
    switch (e->op) {
    case X_RATIO: return ratio_of(x, a, b);
    case X_ITEM: return item_of(x, a, b);
    case X_INDEX: return index_of(x, a, b);
    case X_WINDOWS: return windows_of(x, a, b, plim_fam_eval(x, e->c));
    case X_EQ: return bool_value(plim_fam_equal(a, b));
    case X_GT: return bool_value(is_more(a, b));
    case X_LT: return bool_value(is_more(b, a));
    case X_IN: return bool_value(list_has(b, a));
    default: return calculate_value(x, e->op, a, b);
    }
}

int64_t plim_fam_int(fam_names *x, const fam_expr *e)
{
    fam_value v = plim_fam_eval(x, e);
    if (!x->st && !is_int(v))
        plim_fam_fail(x, 0, "a size of the family is no integer for this configuration");
    return x->st ? 0 : v.i;
}

bool plim_fam_true(fam_names *x, const fam_expr *e)
{
    fam_value v = plim_fam_eval(x, e);
    return is_int(v) && v.i;
}
