/* mg_args.c -- see mg.h.  "--num-layers 12 \", "--num-layers=12" and "--num-layers: 12" say the same; the
 * value may be a variable that the file sets, as in NUM_LAYERS=12.  The last of two arguments of the
 * same name counts. */
#include "import/megatron/mg.h"

#include <stdlib.h>

#include "base/fmt.h"

typedef enum arg_kind { SIZE, REAL, SWITCH, GIVEN, WORD, LIST } arg_kind;

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
    return is_blank(c) || c == '\n' || c == '"' || c == '\'' || c == '(' || c == ')';
}

/* Of a word such as ([0]*1+[1]*23), brackets are a part. */
static bool starts_pattern(plim_bytes b, size_t at)
{
    for (int i = 0; i < PLIM_MG_MOST_NESTED && at < b.n && b.p[at] == '('; i++)
        at++;
    return at < b.n && b.p[at] == '[';
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
    while (*at < b.n && b.p[*at] != '\n' && ends_word(b.p[*at]) && !starts_pattern(b, *at))
        ++*at;
    size_t from = *at;
    if (starts_pattern(b, from))
        *at = end_pattern(b, from);
    else
        while (*at < b.n && !ends_word(b.p[*at]))
            ++*at;
    plim_str w = {(const char *)b.p + from, *at - from};
    if (w.n && w.p[0] == '#') { /* a comment */
        while (*at < b.n && b.p[*at] != '\n')
            ++*at;
        return PLIM_STR("");
    }
    return plim_str_is(w, "\\") ? PLIM_STR("") : w;
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

/* The value of NAME=value, or of "NAME: value", at the beginning of a line; "" if there is none. */
static plim_str find_variable(plim_bytes b, plim_str name)
{
    for (size_t line = 0, at; line < b.n; line = at + 1) {
        at = line;
        while (at < b.n && is_blank(b.p[at]))
            at++;
        static const plim_str lead = {"export ", 7};
        if (b.n - at > lead.n && !memcmp(b.p + at, lead.p, lead.n))
            at += lead.n;
        if (b.n - at > name.n && !memcmp(b.p + at, name.p, name.n) &&
            (b.p[at + name.n] == '=' || b.p[at + name.n] == ':')) {
            at += name.n + 1;
            return next_word(b, &at);
        }
        while (at < b.n && b.p[at] != '\n')
            at++;
    }
    return PLIM_STR("");
}

/* "$NAME", "${NAME}" */
static plim_str variable_of(plim_str value)
{
    bool braced = value.n > 3 && value.p[1] == '{' && value.p[value.n - 1] == '}';
    return braced ? (plim_str){value.p + 2, value.n - 3}
                  : (plim_str){value.p + 1, value.n - 1};
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
    int32_t n;
    int64_t value;
    bool zero = plim_str_is(a->value, "0");
    if (!zero &&
        (!a->value.n || plim_parse_shape(a->value, &value, 1, &n, NULL) || value > INT32_MAX))
        return bad_value(a, "a number up to 2147483647", err);
    *out = zero ? 0 : value;
    return PLIM_OK;
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

static plim_status check_refusals(const argument *a, plim_err *err)
{
    for (size_t i = 0; i < PLIM_COUNT(refusals); i++)
        if (plim_str_is(a->name, refusals[i].name) &&
            !(refusals[i].unless && plim_str_is(a->value, refusals[i].unless)))
            return plim_fail(err, PLIM_EUNSUPPORTED, a->at, "--%s is not simulated",
                             refusals[i].name);
    return PLIM_OK;
}

/* ---- the file --------------------------------------------------------------------------------- */

static plim_status take_argument(plim_bytes b, argument *a, plim_mg_args *out, plim_err *err)
{
    plim_status st = check_refusals(a, err);
    for (size_t i = 0; i < PLIM_COUNT(rows) && !st; i++) {
        if (!plim_str_is(a->name, rows[i].name))
            continue;
        if (rows[i].kind != GIVEN && a->value.n > 1 && a->value.p[0] == '$') {
            plim_str found = find_variable(b, variable_of(a->value));
            if (!found.n || found.p[0] == '$')
                return bad_value(a, "a value, or a variable that the file sets", err);
            a->value = found;
        }
        return set_field(&rows[i], a, out, err);
    }
    return st;
}

plim_status plim_mg_read(plim_bytes b, plim_mg_args *out, plim_err *err)
{
    *out = (plim_mg_args){
#define MG_ARG(KIND, field, name, def) .field = def,
#include "import/megatron/mg_args.def"
#undef MG_ARG
    };
    argument a;
    plim_status st = PLIM_OK;
    for (size_t at = 0; !st && next_argument(b, &at, &a);)
        st = take_argument(b, &a, out, err);
    out->model = plim_mg_named(b);
    if (!out->model) /* only T5's script takes the layers of an encoder */
        out->model = out->encoder_layers ? &plim_mg_t5 : &plim_mg_gpt;
    out->cublas = find_variable(b, PLIM_STR("CUBLAS_WORKSPACE_CONFIG"));
    out->no_atomics =
        plim_str_is(find_variable(b, PLIM_STR("NVTE_ALLOW_NONDETERMINISTIC_ALGO")), "0");
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
