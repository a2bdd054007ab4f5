/* symexpr.c -- see symexpr.h. */
#include "import/symexpr.h"

enum { SYMEXPR_MAX_DEPTH = 64 };

/* ---- exact fractions -------------------------------------------------------- */

typedef struct frac {
    int64_t n, d; /* d > 0, no common factor */
} frac;

static int64_t find_gcd(int64_t a, int64_t b)
{
    while (b) {
        int64_t t = a % b;
        a = b;
        b = t;
    }
    return a < 0 ? -a : a;
}

static bool frac_make(int64_t n, int64_t d, frac *out)
{
    if (d == 0 || n == INT64_MIN || d == INT64_MIN)
        return false;
    int64_t g = find_gcd(n, d) * (d < 0 ? -1 : 1);
    *out = (frac){n / g, d / g};
    plim_assert(out->d > 0);
    return true;
}

static bool mul_i64(int64_t a, int64_t b, int64_t *out)
{
    return !__builtin_mul_overflow(a, b, out);
}

static bool frac_mul(frac a, frac b, frac *out)
{
    frac x, y; /* reduced crosswise, so that only a result that does not fit overflows */
    int64_t n, d;
    return frac_make(a.n, b.d, &x) && frac_make(b.n, a.d, &y) && mul_i64(x.n, y.n, &n) &&
           mul_i64(x.d, y.d, &d) && frac_make(n, d, out);
}

static bool frac_div(frac a, frac b, frac *out)
{
    frac inverse;
    return frac_make(b.d, b.n, &inverse) && frac_mul(a, inverse, out);
}

static bool frac_add(frac a, frac b, frac *out)
{
    int64_t x, y, n, d;
    return mul_i64(a.n, b.d, &x) && mul_i64(b.n, a.d, &y) &&
           !__builtin_add_overflow(x, y, &n) && mul_i64(a.d, b.d, &d) && frac_make(n, d, out);
}

static bool frac_sub(frac a, frac b, frac *out)
{
    b.n = -b.n; /* never INT64_MIN */
    return frac_add(a, b, out);
}

static int64_t floor_of(frac a) { return a.n / a.d - (a.n % a.d < 0); }
static int64_t ceil_of(frac a) { return a.n / a.d + (a.n % a.d > 0); }

static bool frac_floor(frac a, frac b, frac *out)
{
    (void)b;
    return frac_make(floor_of(a), 1, out);
}
static bool frac_ceil(frac a, frac b, frac *out)
{
    (void)b;
    return frac_make(ceil_of(a), 1, out);
}
static bool frac_trunc(frac a, frac b, frac *out)
{
    (void)b;
    return frac_make(a.n / a.d, 1, out);
}
static bool frac_same(frac a, frac b, frac *out)
{
    (void)b;
    *out = a;
    return true;
}
static bool frac_floordiv(frac a, frac b, frac *out)
{
    return frac_div(a, b, out) && frac_floor(*out, b, out);
}
static bool frac_mod(frac a, frac b, frac *out) /* as in Python: the sign of b */
{
    frac q;
    return frac_floordiv(a, b, &q) && frac_mul(q, b, &q) && frac_sub(a, q, out);
}
static bool frac_less(frac a, frac b)
{
    frac c;
    return frac_sub(a, b, &c) && c.n < 0;
}
static bool frac_min(frac a, frac b, frac *out)
{
    return *out = frac_less(b, a) ? b : a, true;
}
static bool frac_max(frac a, frac b, frac *out)
{
    return *out = frac_less(a, b) ? b : a, true;
}

static bool frac_pow(frac a, frac b, frac *out)
{
    frac r = {1, 1};
    if (b.d != 1 || b.n > 1024 || b.n < -1024)
        return false;
    for (int64_t e = b.n < 0 ? -b.n : b.n; e > 0; e--)
        if (!frac_mul(r, a, &r))
            return false;
    return b.n < 0 ? frac_div((frac){1, 1}, r, out) : frac_same(r, b, out);
}

/* ---- functions --------------------------------------------------------------- */

/* Folded from the left over all arguments. */
static const struct {
    const char *name;
    bool (*fold)(frac, frac, frac *);
    int least, most;
} functions[] = {
    {"Add", frac_add, 1, 1 << 20},
    {"Mul", frac_mul, 1, 1 << 20},
    {"Min", frac_min, 1, 1 << 20},
    {"Max", frac_max, 1, 1 << 20},
    {"Pow", frac_pow, 2, 2},
    {"PowByNatural", frac_pow, 2, 2},
    {"Rational", frac_div, 2, 2},
    {"FloorDiv", frac_floordiv, 2, 2},
    {"CleanDiv", frac_floordiv, 2, 2},
    {"IntTrueDiv", frac_div, 2, 2},
    {"FloatTrueDiv", frac_div, 2, 2},
    {"Mod", frac_mod, 2, 2},
    {"PythonMod", frac_mod, 2, 2},
    {"floor", frac_floor, 1, 1},
    {"FloorToInt", frac_floor, 1, 1},
    {"ceiling", frac_ceil, 1, 1},
    {"CeilToInt", frac_ceil, 1, 1},
    {"TruncToInt", frac_trunc, 1, 1},
    {"TruncToFloat", frac_trunc, 1, 1},
    {"ToFloat", frac_same, 1, 1},
    {"Identity", frac_same, 1, 1},
    {"Integer", frac_same, 1, 1},
};

/* ---- parser ------------------------------------------------------------------ */

typedef struct symexpr {
    const plim_symbols *syms;
    plim_str text;
    size_t at;
    int depth;
    plim_str *missing;
    plim_status bad;
    plim_err *err;
} symexpr;

static bool parse_sum(symexpr *x, frac *out);

static bool sym_fail(symexpr *x, plim_status code, const char *what)
{
    if (!x->bad)
        x->bad = plim_fail(x->err, code, x->at, "%s in the size '%.*s'", what,
                           (int)PLIM_MIN(x->text.n, 120), x->text.p);
    return false;
}

static char sym_next(symexpr *x)
{
    while (x->at < x->text.n && x->text.p[x->at] == ' ')
        x->at++;
    return x->at < x->text.n ? x->text.p[x->at] : 0;
}

static bool sym_take(symexpr *x, const char *token)
{
    sym_next(x);
    size_t n = strlen(token);
    if (x->text.n - x->at < n || memcmp(x->text.p + x->at, token, n) != 0)
        return false;
    x->at += n;
    return true;
}

static bool sym_want(symexpr *x, const char *token)
{
    return sym_take(x, token) || sym_fail(x, PLIM_EFORMAT, "syntax error");
}

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_word(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

static plim_str sym_word(symexpr *x)
{
    sym_next(x);
    size_t from = x->at;
    while (x->at < x->text.n && is_word(x->text.p[x->at]))
        x->at++;
    return (plim_str){x->text.p + from, x->at - from};
}

static bool parse_number(symexpr *x, frac *out)
{
    int64_t n = 0, d = 1;
    bool point = false;
    for (char c; (c = sym_next(x)) == '.' || is_digit(c); x->at++) {
        if (c == '.' && point)
            return sym_fail(x, PLIM_EFORMAT, "syntax error");
        if (c == '.')
            point = true;
        else if (point && c == '0' && n == 0)
            continue;
        else if (!mul_i64(n, 10, &n) || __builtin_add_overflow(n, c - '0', &n) ||
                 (point && !mul_i64(d, 10, &d)))
            return sym_fail(x, PLIM_ERANGE, "a number that overflows 64 bits");
    }
    return frac_make(n, d, out) || sym_fail(x, PLIM_ERANGE, "a number that overflows 64 bits");
}

/* 'text', returned without its quotes. */
static bool parse_quoted(symexpr *x, plim_str *out)
{
    if (!sym_want(x, "'"))
        return false;
    size_t from = x->at;
    while (x->at < x->text.n && x->text.p[x->at] != '\'')
        x->at++;
    *out = (plim_str){x->text.p + from, x->at - from};
    return sym_want(x, "'");
}

/* ", positive=True, integer=True)" */
static bool skip_assumptions(symexpr *x)
{
    while (sym_take(x, ","))
        if (!sym_word(x).n || !sym_want(x, "=") || !sym_word(x).n)
            return sym_fail(x, PLIM_EFORMAT, "syntax error");
    return sym_want(x, ")");
}

static bool look_up(symexpr *x, plim_str name, frac *out)
{
    uint32_t i;
    if (plim_map_get(&x->syms->ids, name, &i) && x->syms->rows[i].bound)
        return frac_make(x->syms->rows[i].value, 1, out) ||
               sym_fail(x, PLIM_ERANGE, "a number that overflows 64 bits");
    if (!x->bad)
        *x->missing = name;
    return sym_fail(x, PLIM_ESHAPE, "unbound symbol");
}

static bool parse_call(symexpr *x, plim_str name, frac *out)
{
    if (plim_str_is(name, "Symbol") || plim_str_is(name, "Float")) {
        plim_str inner;
        if (!parse_quoted(x, &inner) || !skip_assumptions(x))
            return false;
        if (plim_str_is(name, "Symbol"))
            return look_up(x, inner, out);
        symexpr number = *x;
        number.text = inner;
        number.at = 0;
        bool ok = parse_number(&number, out) && !sym_next(&number);
        return ok || sym_fail(x, PLIM_EUNSUPPORTED, "an unsupported number");
    }
    size_t f = 0;
    while (f < PLIM_COUNT(functions) && !plim_str_is(name, functions[f].name))
        f++;
    if (f == PLIM_COUNT(functions))
        return sym_fail(x, PLIM_EUNSUPPORTED, "an unknown function");
    int n = 0;
    frac arg;
    do {
        if (!parse_sum(x, n ? &arg : out))
            return false;
        if (n++ && !functions[f].fold(*out, arg, out))
            return sym_fail(x, PLIM_ERANGE, "division by zero or overflow of 64 bits");
    } while (sym_take(x, ","));
    if (n < functions[f].least || n > functions[f].most)
        return sym_fail(x, PLIM_EFORMAT, "a function with the wrong number of arguments");
    if (functions[f].most == 1 && !functions[f].fold(*out, *out, out))
        return sym_fail(x, PLIM_ERANGE, "a number that overflows 64 bits");
    return sym_want(x, ")");
}

static bool parse_atom(symexpr *x, frac *out)
{
    char c = sym_next(x);
    if (is_digit(c))
        return parse_number(x, out);
    if (sym_take(x, "("))
        return parse_sum(x, out) && sym_want(x, ")");
    plim_str word = sym_word(x);
    if (!word.n)
        return sym_fail(x, PLIM_EFORMAT, "syntax error");
    return sym_take(x, "(") ? parse_call(x, word, out) : look_up(x, word, out);
}

/* Signs bind weaker than a power: -2**2 is -4. */
static bool parse_power(symexpr *x, frac *out)
{
    frac e = {0, 1};
    *out = e;
    if (x->depth >= SYMEXPR_MAX_DEPTH)
        return sym_fail(x, PLIM_EFORMAT, "too many nested parentheses");
    x->depth++;
    bool minus = sym_take(x, "-"), ok;
    if (minus) {
        ok = parse_power(x, out);
        out->n = -out->n;
    } else {
        ok = parse_atom(x, out);
        if (ok && sym_take(x, "**"))
            ok = parse_power(x, &e) && (frac_pow(*out, e, out) ||
                                        sym_fail(x, PLIM_ERANGE, "an exponent out of range"));
    }
    x->depth--;
    return ok;
}

typedef struct operator_row {
    const char *token;
    bool (*apply)(frac, frac, frac *);
} operator_row;

/* One level of left-associative operators. */
static bool parse_chain(symexpr *x, const operator_row *ops, size_t n,
                        bool (*inner)(symexpr *, frac *), frac *out)
{
    if (!inner(x, out))
        return false;
    for (;;) {
        size_t i = 0;
        while (i < n && !sym_take(x, ops[i].token))
            i++;
        if (i == n)
            return true;
        frac b;
        if (!inner(x, &b))
            return false;
        if (!ops[i].apply(*out, b, out))
            return sym_fail(x, PLIM_ERANGE, "division by zero or overflow of 64 bits");
    }
}

static bool parse_product(symexpr *x, frac *out)
{
    static const operator_row ops[] = {
        {"*", frac_mul}, {"//", frac_floordiv}, {"/", frac_div}, {"%", frac_mod}};
    return parse_chain(x, ops, PLIM_COUNT(ops), parse_power, out);
}

static bool parse_sum(symexpr *x, frac *out)
{
    static const operator_row ops[] = {{"+", frac_add}, {"-", frac_sub}};
    if (x->depth >= SYMEXPR_MAX_DEPTH)
        return sym_fail(x, PLIM_EFORMAT, "too many nested parentheses");
    x->depth++;
    bool ok = parse_chain(x, ops, PLIM_COUNT(ops), parse_product, out);
    x->depth--;
    return ok;
}

/* ---- the outside --------------------------------------------------------------- */

plim_symbol *plim_symbol_get(plim_symbols *s, plim_str name)
{
    uint32_t i;
    if (plim_map_get(&s->ids, name, &i))
        return &s->rows[i];
    if (!PLIM_PUSH_ROOM(s->arena, s->rows, s->n, s->cap) ||
        !plim_map_put(s->arena, &s->ids, name, s->n))
        return NULL;
    s->rows[s->n] = (plim_symbol){.name = name};
    return &s->rows[s->n++];
}

plim_status plim_symexpr_eval(const plim_symbols *s, plim_str text, int64_t *out,
                              plim_str *missing, plim_err *err)
{
    *missing = (plim_str){NULL, 0};
    symexpr x = {.syms = s, .text = text, .missing = missing, .err = err};
    if (!text.p)
        x.text = PLIM_STR("");
    frac v = {0, 1};
    if (parse_sum(&x, &v) && sym_next(&x))
        sym_fail(&x, PLIM_EFORMAT, "syntax error");
    if (!x.bad && v.d != 1)
        sym_fail(&x, PLIM_ESHAPE, "a fraction");
    if (!x.bad)
        *out = v.n;
    return x.bad;
}

plim_status plim_symexpr_solve(plim_symbols *s, plim_str text, int64_t value,
                               plim_str *missing, plim_err *err)
{
    int64_t at0, at1, got, a, left;
    plim_str name, other;
    plim_status st = plim_symexpr_eval(s, text, &got, &name, NULL);
    *missing = (plim_str){NULL, 0};
    if (!st && got != value)
        return plim_fail(err, PLIM_ESHAPE, 0, "'%.*s' is %" PRId64 ", not %" PRId64,
                         (int)PLIM_MIN(text.n, 120), text.p, got, value);
    if (!name.n) /* bound, or malformed */
        return st ? plim_symexpr_eval(s, text, &got, &other, err) : PLIM_OK;
    plim_symbol *sym = plim_symbol_get(s, name);
    if (!sym)
        return plim_oom(err);
    sym->bound = true;
    sym->value = 0;
    bool ok = !plim_symexpr_eval(s, text, &at0, &other, NULL);
    sym->value = 1;
    ok = ok && !plim_symexpr_eval(s, text, &at1, &other, NULL) &&
         !__builtin_sub_overflow(at1, at0, &a) && a != 0 && a != -1 &&
         !__builtin_sub_overflow(value, at0, &left);
    sym->value = ok ? left / a : 0;
    ok = ok && !plim_symexpr_eval(s, text, &got, &other, NULL) && got == value;
    if (ok)
        return PLIM_OK;
    sym->bound = false;
    *missing = other;
    return plim_fail(err, PLIM_ESHAPE, 0,
                     "no value of '" PLIM_STR_FMT "' makes '%.*s' equal to %" PRId64,
                     PLIM_STR_ARG(name), (int)PLIM_MIN(text.n, 120), text.p, value);
}

bool plim_symexpr_is_symbol(plim_str text, plim_str *name)
{
    plim_symbols none = {0};
    int64_t v;
    if (plim_symexpr_eval(&none, text, &v, name, NULL) != PLIM_ESHAPE || !name->n)
        return false;
    bool srepr = plim_str_starts(text, "Symbol(") && text.p[text.n - 1] == ')';
    for (size_t i = srepr ? sizeof "Symbol(" - 1 : 0; i < text.n; i++)
        if (srepr ? text.p[i] == '(' : !is_word(text.p[i]))
            return false;
    return true;
}
