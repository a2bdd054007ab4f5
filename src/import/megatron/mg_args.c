/* mg_args.c -- see mg.h.  "--num-layers 12 \", "--num-layers=12" and "--num-layers: 12" say the same; the
 * value may be a variable that the file sets, as in NUM_LAYERS=12.  The last of two arguments of the
 * same name counts. */
#include "import/megatron/mg.h"

#include <stdlib.h>

#include "base/fmt.h"

typedef enum arg_kind { SIZE, COUNT, REAL, SWITCH, GIVEN, WORD, LIST } arg_kind;

static const struct row {
    arg_kind kind;
    const char *name;
    size_t at;
} rows[] = {
#define MG_ARG(KIND, field, name, def) {KIND, name, offsetof(plim_mg_args, field)},
#include "import/megatron/mg_args.def"
#undef MG_ARG
};

/* What changes the model in ways that are not simulated; `unless`: with this value it does not. */
static const struct refusal {
    const char *name, *unless;
} refusals[] = {
    {"moe-latent-size", NULL},
    {"moe-expert-capacity-factor", NULL},
    {"moe-shared-expert-overlap", "false"},
    {"moe-router-fusion", "false"},
    {"moe-permute-fusion", "false"},
    {"moe-z-loss-coeff", "0"},
    {"moe-input-jitter-eps", NULL},
    {"moe-apply-probs-on-input", "false"},
    {"moe-use-legacy-grouped-gemm", "false"},
    {"use-transformer-engine-op-fuser", "false"},
    {"mla-down-proj-fusion", "false"},
    {"mtp-num-layers", "0"},
    {"fp8-format", NULL},
    {"fp4-format", NULL},
    {"use-torch-fsdp2", "false"},
    {"fp32-residual-connection", "false"},
    {"hybrid-layer-pattern", NULL},
    {"hybrid-override-pattern", NULL},
    {"window-size", NULL},
    {"optimizer-cpu-offload", "false"},
    {"cpu-offloading-num-layers", "0"},
    {"distribute-saved-activations", "false"},
    {"use-precision-aware-optimizer", "false"},
    {"main-grads-dtype", "fp32"},
    {"muon-fp32-matmul-prec", "medium"},
    {"muon-scalar-optimizer", "adam"},
    {"experimental-attention-variant", NULL},
    {"export-kd-teacher-load", NULL},
    {"perform-rl-step", "false"},
    {"language-model-type", NULL},
    {"bert-load", NULL},
    {"no-overlap-p2p-communication", "false"},
    {"pipeline-model-parallel-layout", NULL},
};

/* ---- words ------------------------------------------------------------------------------- */

static bool is_blank(uint8_t c) { return c == ' ' || c == '\t' || c == '\r'; }
static bool ends_word(uint8_t c)
{
    static const bool ends[256] = {[' '] = true, ['\t'] = true, ['\r'] = true, ['\n'] = true,
                                   ['"'] = true, ['\''] = true, ['('] = true,  [')'] = true};
    return ends[c];
}

static size_t end_line(plim_bytes b, size_t at)
{
    const uint8_t *end = at < b.n ? memchr(b.p + at, '\n', (size_t)b.n - at) : NULL;
    return end ? (size_t)(end - b.p) : (size_t)b.n;
}

/* What separates words; of one such as ([0]*1+[1]*23), brackets are a part. */
static size_t skip_between(plim_bytes b, size_t at)
{
    while (at < b.n && b.p[at] != '\n' && ends_word(b.p[at])) {
        size_t from = at++;
        if (b.p[from] != '(')
            continue;
        while (at < b.n && b.p[at] == '(')
            at++;
        if (at < b.n && b.p[at] == '[')
            return at - PLIM_MIN(at - from, (size_t)PLIM_MG_MOST_NESTED);
    }
    return at;
}

static size_t end_pattern(plim_bytes b, size_t at)
{
    for (size_t open = 0; at < b.n; at++)
        if (b.p[at] == '(')
            open++;
        else if (b.p[at] == ')' ? !open-- : ends_word(b.p[at]))
            break;
    return at;
}

/* The next word of a line, without quotes; "" at its end. */
static plim_str next_word(plim_bytes b, size_t *at)
{
    size_t from = skip_between(b, *at), end = from;
    if (from < b.n && (b.p[from] == '[' || b.p[from] == '('))
        end = end_pattern(b, from);
    else
        while (end < b.n && !ends_word(b.p[end]))
            end++;
    plim_str w = {(const char *)b.p + from, end - from};
    bool comment = w.n && w.p[0] == '#';
    *at = comment ? end_line(b, end) : end;
    return comment || plim_str_is(w, "\\") ? PLIM_STR("") : w;
}

static bool starts_argument(plim_str w) { return w.n > 2 && w.p[0] == '-' && w.p[1] == '-'; }

typedef struct argument {
    plim_str name, value; /* value "": a switch */
    plim_str rest;        /* of the file, from the value on */
    size_t at;
} argument;

/* Splits "--name=value" and "--name:"; a value is the word that follows on the line. */
static argument read_argument(plim_bytes b, plim_str w, size_t *at)
{
    argument a = {.name = {w.p + 2, w.n - 2}, .value = PLIM_STR(""), .at = *at - w.n};
    a.rest = (plim_str){(const char *)b.p + *at, (size_t)b.n - *at};
    const char *equals = memchr(a.name.p, '=', a.name.n);
    if (equals) {
        size_t n = (size_t)(equals - a.name.p);
        a.value = (plim_str){equals + 1, a.name.n - n - 1};
        a.name.n = n;
        if (!a.value.n) /* a quote follows */
            a.value = next_word(b, at);
        if (a.value.n) /* which is in the text */
            a.rest = (plim_str){a.value.p, a.rest.n + (size_t)(a.rest.p - a.value.p)};
        return a;
    }
    if (a.name.p[a.name.n - 1] == ':')
        a.name.n--;
    size_t next = *at;
    plim_str value = next_word(b, &next);
    if (value.n && !starts_argument(value)) {
        a.value = value;
        *at = next;
    }
    return a;
}

static bool next_argument(plim_bytes b, size_t *at, argument *out)
{
    while (*at < b.n) {
        plim_str w = next_word(b, at);
        if (starts_argument(w)) {
            *out = read_argument(b, w, at);
            return true;
        }
        if (!w.n && *at < b.n) /* the end of a line, or of what is read of it */
            ++*at;
    }
    return false;
}

/* ---- values -------------------------------------------------------------------------------- */

/* While a file is read. */
typedef struct reading {
    plim_arena arena;
    plim_bytes b;
    plim_map
        names; /* of arguments, to their place in the rows and, behind these, in the refusals */
    plim_map wanted;  /* names of variables, to the place of a value + 1 */
    plim_str *values; /* {NULL, 0}: the file does not set it */
    uint32_t n_values, cap;
} reading;

/* "$NAME", "${NAME}" */
static bool is_variable(plim_str value) { return value.n > 1 && value.p[0] == '$'; }
static plim_str variable_of(plim_str value)
{
    bool braced = value.n > 3 && value.p[1] == '{' && value.p[value.n - 1] == '}';
    return braced ? (plim_str){value.p + 2, value.n - 3}
                  : (plim_str){value.p + 1, value.n - 1};
}

static bool want_variable(reading *r, plim_str name)
{
    uint32_t *at = plim_map_at(&r->arena, &r->wanted, name);
    if (!at || (!*at && !PLIM_PUSH_ROOM(&r->arena, r->values, r->n_values, r->cap)))
        return false;
    if (!*at) {
        r->values[r->n_values++] = (plim_str){NULL, 0};
        *at = r->n_values;
    }
    return true;
}

/* The value of NAME=value, or of "NAME: value", at the beginning of a line, if it is wanted: the first counts. */
static void read_variable(reading *r, size_t at)
{
    static const plim_str lead = {"export ", 7};
    plim_bytes b = r->b;
    uint32_t k;
    while (at < b.n && is_blank(b.p[at]))
        at++;
    if (b.n - at > lead.n && !memcmp(b.p + at, lead.p, lead.n))
        at += lead.n;
    size_t end = at;
    while (end < b.n && b.p[end] != '=' && b.p[end] != ':' && !ends_word(b.p[end]))
        end++;
    plim_str name = {(const char *)b.p + at, end - at};
    if (end == b.n || ends_word(b.p[end]) || !plim_map_get(&r->wanted, name, &k) ||
        r->values[k - 1].p)
        return;
    end++;
    r->values[k - 1] = next_word(b, &end);
}

/* "": the file does not set it. */
static plim_str value_of(const reading *r, plim_str name)
{
    uint32_t k;
    return plim_map_get(&r->wanted, name, &k) && r->values[k - 1].p ? r->values[k - 1]
                                                                    : PLIM_STR("");
}

/* Up to the next argument, a comment or the end of the line. */
bool plim_mg_next_item(plim_str *list, plim_str *item)
{
    static const char between[] = " \t\r\"'[],()", ends[] = " \t\r\"'[],()\n";
    while (list->n && memchr(between, *list->p, sizeof between - 1)) {
        list->p++;
        list->n--;
    }
    size_t n = 0;
    while (n < list->n && !memchr(ends, list->p[n], sizeof ends - 1))
        n++;
    *item = (plim_str){list->p, n};
    *list = (plim_str){list->p + n, list->n - n};
    return n && !starts_argument(*item) && *item->p != '#' && !plim_str_is(*item, "\\");
}

static plim_status bad_value(const argument *a, const char *wants, plim_err *err)
{
    return plim_fail(err, PLIM_EFORMAT, a->at,
                     "--" PLIM_STR_FMT " needs %s, not '" PLIM_STR_FMT "'",
                     PLIM_STR_CUT(a->name), wants, PLIM_STR_CUT(a->value));
}

static plim_status set_size(const argument *a, int64_t *out, plim_err *err)
{
    return plim_parse_dim(a->value, out) && *out <= INT32_MAX
               ? PLIM_OK
               : bad_value(a, "a number up to 2147483647", err);
}

static plim_status set_count(const argument *a, int64_t *out, plim_err *err)
{
    return plim_parse_dim(a->value, out) && *out >= 1 && *out <= INT32_MAX
               ? PLIM_OK
               : bad_value(a, "a number from 1 to 2147483647", err);
}

static plim_status set_real(const argument *a, double *out, plim_err *err)
{
    char text[32], *end;
    if (!a->value.n || a->value.n >= sizeof text)
        return bad_value(a, "a number from 0 to 1", err);
    memcpy(text, a->value.p, a->value.n);
    text[a->value.n] = 0;
    *out = strtod(text, &end);
    return *end || !(*out >= 0 && *out <= 1) ? bad_value(a, "a number from 0 to 1", err)
                                             : PLIM_OK;
}

static plim_status set_list(const argument *a, plim_str *out, plim_err *err)
{
    plim_str rest = a->rest, item;
    *out = rest;
    return plim_mg_next_item(&rest, &item) ? PLIM_OK : bad_value(a, "words", err);
}

static plim_status set_field(const struct row *r, const argument *a, plim_mg_args *out,
                             plim_err *err)
{
    void *field = (char *)out + r->at;
    switch (r->kind) {
    case SIZE: return set_size(a, field, err);
    case COUNT: return set_count(a, field, err);
    case REAL: return set_real(a, field, err);
    case SWITCH: *(bool *)field = !plim_str_is(a->value, "false"); return PLIM_OK;
    case GIVEN: *(bool *)field = true; return PLIM_OK;
    case LIST: return set_list(a, field, err);
    case WORD:
        *(plim_str *)field = a->value;
        return a->value.n ? PLIM_OK : bad_value(a, "a word", err);
    }
    return PLIM_OK;
}

static plim_status check_refusal(const struct refusal *f, const argument *a, plim_err *err)
{
    return f->unless && plim_str_is(a->value, f->unless)
               ? PLIM_OK
               : plim_fail(err, PLIM_EUNSUPPORTED, a->at, "--%s is not simulated", f->name);
}

/* ---- the file --------------------------------------------------------------------------------- */

static bool list_names(reading *r)
{
    bool ok = true;
    for (uint32_t i = 0; i < PLIM_COUNT(rows) && ok; i++)
        ok = plim_map_put(&r->arena, &r->names, plim_str_of(rows[i].name), i);
    for (uint32_t i = 0; i < PLIM_COUNT(refusals) && ok; i++)
        ok = plim_map_put(&r->arena, &r->names, plim_str_of(refusals[i].name),
                          PLIM_COUNT(rows) + i);
    return ok;
}

/* The row of an argument whose value is a variable; NULL: of others. */
static const struct row *row_of_variable(const reading *r, const argument *a)
{
    uint32_t k;
    return is_variable(a->value) && plim_map_get(&r->names, a->name, &k) &&
                   k < PLIM_COUNT(rows) && rows[k].kind != GIVEN
               ? &rows[k]
               : NULL;
}

/* Those of all arguments, at once, so that the lines are read once. */
static bool read_variables(reading *r)
{
    bool ok = want_variable(r, PLIM_STR("CUBLAS_WORKSPACE_CONFIG")) &&
              want_variable(r, PLIM_STR("NVTE_ALLOW_NONDETERMINISTIC_ALGO")),
         any = r->b.n && memchr(r->b.p, '$', (size_t)r->b.n);
    argument a;
    for (size_t at = 0; ok && any && next_argument(r->b, &at, &a);)
        if (row_of_variable(r, &a))
            ok = want_variable(r, variable_of(a.value));
    for (size_t line = 0; ok && line < r->b.n; line = end_line(r->b, line) + 1)
        read_variable(r, line);
    return ok;
}

static plim_status take_argument(const reading *r, argument *a, plim_mg_args *out,
                                 plim_err *err)
{
    uint32_t k;
    if (!plim_map_get(&r->names, a->name, &k))
        return PLIM_OK;
    if (k >= PLIM_COUNT(rows))
        return check_refusal(&refusals[k - PLIM_COUNT(rows)], a, err);
    if (row_of_variable(r, a)) {
        plim_str found = value_of(r, variable_of(a->value));
        if (!found.n || found.p[0] == '$')
            return bad_value(a, "a value, or a variable that the file sets", err);
        a->value = found;
    }
    return set_field(&rows[k], a, out, err);
}

static plim_status read_arguments(reading *r, plim_mg_args *out, plim_err *err)
{
    argument a;
    plim_status st = list_names(r) && read_variables(r) ? PLIM_OK : plim_oom(err);
    for (size_t at = 0; !st && next_argument(r->b, &at, &a);)
        st = take_argument(r, &a, out, err);
    out->cublas = value_of(r, PLIM_STR("CUBLAS_WORKSPACE_CONFIG"));
    out->no_atomics =
        plim_str_is(value_of(r, PLIM_STR("NVTE_ALLOW_NONDETERMINISTIC_ALGO")), "0");
    return st;
}

plim_status plim_mg_read(plim_bytes b, plim_mg_args *out, plim_err *err)
{
    reading r = {.b = b};
    *out = (plim_mg_args){
#define MG_ARG(KIND, field, name, def) .field = def,
#include "import/megatron/mg_args.def"
#undef MG_ARG
    };
    plim_status st = read_arguments(&r, out, err);
    plim_arena_free(&r.arena);
    out->model = plim_mg_named(b);
    if (!out->model) /* only T5's script takes the layers of an encoder */
        out->model = out->encoder_layers ? &plim_mg_t5 : &plim_mg_gpt;
    return st;
}

bool plim_mg_names_model(plim_bytes b)
{
    enum { FAR = 1 << 16 };
    bool layers = false, hidden = false;
    argument a;
    b.n = PLIM_MIN(b.n, (uint64_t)FAR);
    if (b.n && memchr(b.p, 0, (size_t)b.n))
        return false;
    for (size_t at = 0; !(layers && hidden) && next_argument(b, &at, &a);) {
        layers |=
            plim_str_is(a.name, "num-layers") || plim_str_is(a.name, "encoder-num-layers");
        hidden |= plim_str_is(a.name, "hidden-size");
    }
    return layers && hidden;
}
