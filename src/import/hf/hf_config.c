/* hf_config.c -- see hf.h: keys of a config.json into the fields of a configuration. */
#include "import/hf/hf.h"

#include <stdarg.h>
#include <stdio.h>

#include "base/fmt.h"
#include "base/json.h"

plim_json plim_hf_json(plim_bytes b, plim_err *err)
{
    plim_json j;
    plim_str text = {(const char *)b.p, (size_t)b.n};
    if (text.n >= 3 && !memcmp(text.p, "\xef\xbb\xbf", 3)) /* a byte order mark */
        text = (plim_str){text.p + 3, text.n - 3};
    plim_json_init(&j, text, err);
    j.lax = true;
    return j;
}

/* A string; anything else gives "". */
plim_str plim_hf_word(plim_json *j)
{
    if (plim_json_peek(j) == PLIM_JSON_STRING)
        return plim_json_str(j);
    plim_json_skip(j);
    return PLIM_STR("");
}

/* ---- keys into fields ------------------------------------------------------------- */

static bool first_name_is(const plim_hf_key *k, const char *name)
{
    size_t n = strlen(name);
    return !strncmp(k->names, name, n) && (!k->names[n] || k->names[n] == ' ');
}

static void put_number(const plim_hf_key *k, void *config, double v)
{
    char *field = (char *)config + k->at;
    switch (k->kind) {
    case PLIM_HF_SIZE:
    case PLIM_HF_GIVEN:
    case PLIM_HF_OPTION: *(int64_t *)(void *)field = (int64_t)v; break;
    case PLIM_HF_SHARE:
    case PLIM_HF_REAL: *(double *)(void *)field = v; break;
    case PLIM_HF_BOOL: *(bool *)(void *)field = v != 0; break;
    case PLIM_HF_WORD:
    case PLIM_HF_RAW: break;
    }
}

static void put_word(const plim_hf_key *k, void *config, plim_str v)
{
    if (k->kind == PLIM_HF_WORD || k->kind == PLIM_HF_RAW)
        *(plim_str *)(void *)((char *)config + k->at) = v;
}

/* The default of a key in this family. */
static void find_default(const plim_hf_key *k, const plim_hf_family *f, double *number,
                         const char **word)
{
    *number = k->number;
    *word = k->word;
    for (const plim_hf_default *d = f->defaults; d && d->name; d++)
        if (first_name_is(k, d->name)) {
            *number = d->number;
            *word = d->word;
        }
}

static void put_defaults(const plim_hf_group *g, const plim_hf_family *f, void *config)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        double number;
        const char *word;
        find_default(&g->keys[i], f, &number, &word);
        put_number(&g->keys[i], config, number);
        put_word(&g->keys[i], config, plim_str_of(word ? word : ""));
    }
}

static int64_t most_of(const plim_hf_key *k) { return k->max ? k->max : INT32_MAX; }

/* ---- values ------------------------------------------------------------------------- */

/* A group that reads an object. */
typedef struct reading {
    const plim_hf_group *g;
    const plim_hf_family *f;
    void *config;
    plim_str
        part; /* the first key that describes a part of the model and is not read; "": none */
} reading;

static const char *expected_of(plim_hf_kind kind)
{
    static const char *const names[] = {
        [PLIM_HF_SIZE] = "a whole number",  [PLIM_HF_OPTION] = "a whole number",
        [PLIM_HF_GIVEN] = "a whole number", [PLIM_HF_REAL] = "a number",
        [PLIM_HF_SHARE] = "a number",       [PLIM_HF_BOOL] = "true or false",
        [PLIM_HF_WORD] = "a string",        [PLIM_HF_RAW] = "a value"};
    return names[kind];
}

/* What an error shows of a value. */
#define SHOWN(raw) (int)PLIM_MIN((raw).n, (size_t)40), (raw).n ? (raw).p : "null"

void plim_hf_expected(plim_json *j, plim_str key, const char *what)
{
    plim_json at = *j;
    plim_str raw = plim_json_raw(&at);
    if (at.bad)
        *j = at; /* no value at all */
    plim_json_fail(j, PLIM_EFORMAT, "'" PLIM_STR_FMT "' is %.*s, expected %s",
                   PLIM_STR_CUT(key), SHOWN(raw), what);
}

bool plim_hf_whole(plim_json *j, int64_t *out)
{
    plim_json copy = *j;
    copy.err = NULL;
    bool whole = plim_json_peek(&copy) == PLIM_JSON_NUMBER;
    *out = whole ? plim_json_i64(&copy) : 0;
    plim_json_skip(j);
    return whole && !copy.bad;
}

static void read_whole(plim_json *j, const reading *r, const plim_hf_key *k, plim_str name)
{
    plim_json at = *j;
    int64_t v, least = k->kind != PLIM_HF_OPTION, most = most_of(k);
    if (!plim_hf_whole(j, &v)) {
        *j = at;
        plim_hf_expected(j, name, expected_of(k->kind));
    } else if ((v < least || v > most) && !r->g->loose) {
        plim_json_fail(j, PLIM_ERANGE,
                       "'" PLIM_STR_FMT "' is %" PRId64 ", not in %" PRId64 "..%" PRId64,
                       PLIM_STR_CUT(name), v, least, most);
    }
    if (!j->bad)
        put_number(k, r->config, (double)v);
}

/* A configuration may say NaN and Infinity. */
static void read_real(plim_json *j, const reading *r, const plim_hf_key *k, plim_str name)
{
    const double least = k->kind == PLIM_HF_SHARE ? 0 : -1e9,
                 most = k->kind == PLIM_HF_SHARE ? 1 : 1e9, v = plim_json_f64(j);
    if (v >= least && v <= most)
        put_number(k, r->config, v);
    else
        plim_json_fail(j, PLIM_ERANGE, "'" PLIM_STR_FMT "' is %s, not in %s..%s",
                       PLIM_STR_CUT(name), plim_fmt_double(v).s, plim_fmt_double(least).s,
                       plim_fmt_double(most).s);
}

/* Whether a value of that type suits; of a number only that it is one. */
static bool suits_kind(plim_hf_kind kind, plim_json_kind value)
{
    switch (kind) {
    case PLIM_HF_SIZE:
    case PLIM_HF_OPTION:
    case PLIM_HF_GIVEN:
    case PLIM_HF_REAL:
    case PLIM_HF_SHARE: return value == PLIM_JSON_NUMBER;
    case PLIM_HF_BOOL: return value == PLIM_JSON_BOOL;
    case PLIM_HF_WORD: return value == PLIM_JSON_STRING;
    case PLIM_HF_RAW: break;
    }
    return value != PLIM_JSON_BAD;
}

/* Null in the place of a value. */
static void read_null(plim_json *j, const reading *r, const plim_hf_key *k, plim_str name)
{
    double number;
    const char *word;
    find_default(k, r->f, &number, &word);
    bool nothing = number == 0 && (!word || !*word);
    if (!nothing && !k->null && !r->g->loose && k->kind != PLIM_HF_RAW) {
        plim_hf_expected(j, name, expected_of(k->kind));
        return;
    }
    plim_json_null(j);
    put_number(k, r->config, 0);
    put_word(k, r->config, PLIM_STR(""));
}

static void read_value(plim_json *j, const reading *r, const plim_hf_key *k, plim_str name)
{
    const plim_json_kind kind = plim_json_peek(j);
    if (kind == PLIM_JSON_NULL) {
        read_null(j, r, k, name);
    } else if (!suits_kind(k->kind, kind)) {
        plim_hf_expected(j, name, expected_of(k->kind));
    } else if (kind == PLIM_JSON_BOOL && k->kind == PLIM_HF_BOOL) {
        put_number(k, r->config, plim_json_bool(j));
    } else if (k->kind == PLIM_HF_WORD) {
        put_word(k, r->config, plim_json_str(j));
    } else if (k->kind == PLIM_HF_RAW) {
        put_word(k, r->config, plim_json_raw(j));
    } else if (k->kind == PLIM_HF_REAL || k->kind == PLIM_HF_SHARE) {
        read_real(j, r, k, name);
    } else {
        read_whole(j, r, k, name);
    }
}

static bool read_key(plim_json *j, const reading *r, plim_str name)
{
    for (size_t i = 0; i < r->g->n_keys; i++)
        if (plim_item_has(r->g->keys[i].names, name)) {
            read_value(j, r, &r->g->keys[i], name);
            return true;
        }
    return false;
}

/* Whether a key is read in the object of this name: "a" for "a.b". */
static bool is_outer(const plim_hf_group *g, plim_str name)
{
    for (size_t i = 0; i < g->n_keys; i++)
        for (const char *at = g->keys[i].names; *at;) {
            size_t n = strcspn(at, " ");
            if (n > name.n && at[name.n] == '.' && !memcmp(at, name.p, name.n))
                return true;
            at += n + (at[n] == ' ');
        }
    return false;
}

/* "vision_config", and not "_config" alone */
static bool ends_with(plim_str s, const char *tail)
{
    return plim_str_ends(s, plim_str_of(tail)) && !plim_str_is(s, tail);
}

/* Whether a value describes a part of the model, as "vision_config" and "mm_vision_tower" do, and not only how
 * the model is stored or used. */
static bool is_part(plim_json *j, plim_str key, plim_json_kind kind)
{
    static const char settings[] =
        "quantization_config compression_config generation_config transformers.js_config";
    plim_json in = *j;
    plim_str member;
    in.err = NULL;
    if (kind == PLIM_JSON_STRING)
        return ends_with(key, "_tower");
    if (kind != PLIM_JSON_OBJECT || plim_item_has(settings, key))
        return false;
    plim_json_object(&in);
    return (ends_with(key, "_config") || ends_with(key, "_tower")) &&
           plim_json_member(&in, &member);
}

/* The members of an object: keys "b", or "a.b" inside another object. */
static void read_members(plim_json *j, reading *r, plim_str outer)
{
    plim_str key;
    char name[96];
    plim_json_object(j);
    while (plim_json_member(j, &key)) {
        plim_str full = key;
        if (outer.n + key.n + 1 > sizeof name) {
            plim_json_skip(j);
            continue;
        }
        if (outer.n) {
            memcpy(name, outer.p, outer.n);
            name[outer.n] = '.';
            memcpy(name + outer.n + 1, key.p, key.n);
            full = (plim_str){name, outer.n + 1 + key.n};
        }
        const plim_json_kind kind = plim_json_peek(j);
        if (read_key(j, r, full))
            continue;
        if (!outer.n && !r->part.n && !is_outer(r->g, key) && is_part(j, key, kind))
            r->part = key;
        if (!outer.n && kind == PLIM_JSON_OBJECT)
            read_members(j, r, key);
        else if (!outer.n && kind != PLIM_JSON_NULL && kind != PLIM_JSON_BAD &&
                 is_outer(r->g, key))
            plim_hf_expected(j, key, "an object");
        else
            plim_json_skip(j);
    }
}

/* What of the file describes a part of the model and is not read: see reading. */
static plim_str read_config(plim_hf *h, plim_str raw, const plim_hf_group *g,
                            const plim_hf_family *f, void *config)
{
    reading r = {.g = g, .f = f, .config = config, .part = {"", 0}};
    put_defaults(g, f, config);
    plim_json j =
        plim_hf_json((plim_bytes){.p = (const uint8_t *)raw.p, .n = raw.n}, h->n.err);
    read_members(&j, &r, PLIM_STR(""));
    plim_status st = plim_json_end(&j);
    h->n.st = h->n.st ? h->n.st : st;
    return r.part;
}

void plim_hf_read(plim_hf *h, plim_str raw, const plim_hf_group *keys, void *config)
{
    static const plim_hf_family plain = {.defaults = NULL};
    read_config(h, raw, keys, &plain, config);
}

/* The value of a size or an option. */
static int64_t size_in(const void *config, const plim_hf_key *k)
{
    return *(const int64_t *)(const void *)((const char *)config + k->at);
}

void plim_hf_read_model(plim_hf *h, plim_str text, const plim_hf_group *g, void *config)
{
    h->unread = read_config(h, text, g, h->family, config);
}

void plim_hf_leave_unread(plim_hf *h)
{
    if (h->n.st || !h->unread.n)
        return;
    plim_str says = plim_arena_printf(
        h->n.g->arena,
        "'" PLIM_STR_FMT
        "' of the file is not read: the part of the model that it describes is left out",
        PLIM_STR_CUT(h->unread));
    if (!says.p || !plim_graph_leave_out(h->n.g, says))
        h->n.st = plim_oom(h->n.err);
}

void plim_hf_expect_layers(plim_hf *h, const plim_hf_group *g, const void *config)
{
    enum { A_LAYER = 64 }; /* expected number of values per layer */
    uint32_t layers = 1;
    for (size_t i = 0; i < g->n_keys; i++)
        if (g->keys[i].max == PLIM_HF_MAX_LAYERS)
            layers += (uint32_t)size_in(config, &g->keys[i]);
    plim_graph_expect(h->n.g, layers * A_LAYER);
}

/* ---- for the groups ------------------------------------------------------------------ */

#define MAX_TOKENS ((int64_t)1 << 40)

/* Each rank has two parts: src: torch 2.13 _context_parallel/_load_balancer.py
 * _HeadTailLoadBalancer */
static void divide_tokens(plim_hf *h)
{
    h->contexts = PLIM_MAX(h->bind->part.contexts, 1);
    if (h->contexts == 1)
        return;
    if (h->seq % (2 * h->contexts))
        plim_nn_fail(&h->n, PLIM_EUSAGE,
                     "cp: %" PRId64 " cards have two parts of a sequence each, but %" PRId64
                     " tokens are not a multiple of %" PRId64,
                     h->contexts, h->seq, 2 * h->contexts);
    h->seq /= h->contexts;
    h->n.g->part.contexts = h->contexts;
}

void plim_hf_tokens(plim_hf *h, const char *name, int64_t positions, bool hard)
{
    const plim_binding *b = h->bind;
    h->batch = b->batch ? b->batch : 1;
    h->seq = b->seq ? b->seq : PLIM_MIN(positions, PLIM_HF_SEQ);
    h->seq_max = positions < INT32_MAX ? positions : 0;
    for (uint32_t i = 0; i < b->n_inputs; i++) {
        const struct plim_input_shape *in = &b->inputs[i];
        if (in->name.n && !plim_str_is(in->name, name))
            continue;
        if (in->rank != 2) {
            plim_nn_fail(&h->n, PLIM_EUSAGE,
                         "input '%s' has 2 dimensions (batch, tokens), the given shape has %d",
                         name, (int)in->rank);
            return;
        }
        h->batch = in->dim[0];
        h->seq = in->dim[1];
    }
    if (h->seq <= INT32_MAX)
        h->seq += b->virtual_tokens;
    h->n.g->sizes.virtual_tokens = b->virtual_tokens;
    if (h->batch < 1 || h->batch > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "batch %" PRId64 " is not in 1..%d", h->batch,
                     (int)INT32_MAX);
    if (h->seq < 1 || h->seq > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "a sequence of %" PRId64 " tokens is not in 1..%d",
                     h->seq, (int)INT32_MAX);
    if (!h->n.st && h->batch > MAX_TOKENS / h->seq)
        plim_nn_fail(&h->n, PLIM_ERANGE,
                     "%" PRId64 " sequences of %" PRId64 " tokens exceed the limit of %" PRId64
                     " tokens",
                     h->batch, h->seq, MAX_TOKENS);
    if (hard && h->seq > positions)
        plim_nn_fail(&h->n, b->seq_tried ? PLIM_ERANGE : PLIM_EUSAGE,
                     "a sequence of %" PRId64
                     " tokens is longer than the position table of %" PRId64,
                     h->seq, positions);
    divide_tokens(h);
}

void plim_hf_not(plim_hf *h, const char *key, plim_str raw, const char *expected)
{
    plim_nn_fail(&h->n, PLIM_EFORMAT, "'%s' is %.*s, expected %s", key, SHOWN(raw), expected);
}

/* One flag per layer, and a reader inside the array; NULL: no value, no array, or no memory. */
static bool *layer_flags(plim_hf *h, const char *key, plim_str raw, const char *expected,
                         int64_t layers, plim_json *j)
{
    plim_json_init(j, raw, NULL); /* it was read before, so there are no errors */
    j->lax = true;
    if (h->n.st || !raw.n)
        return NULL;
    if (plim_json_peek(j) != PLIM_JSON_ARRAY) {
        plim_hf_not(h, key, raw, expected);
        return NULL;
    }
    plim_json_array(j);
    bool *flags = PLIM_NEW_N(h->n.g->arena, bool, layers);
    if (!flags)
        plim_hf_oom(&h->n);
    return flags;
}

const bool *plim_hf_layers_called(plim_hf *h, const char *key, plim_str raw, const char *word,
                                  const char *words, int64_t layers)
{
    plim_json j;
    int64_t i = 0;
    bool *flags = layer_flags(h, key, raw, "a list with a word for each layer", layers, &j);
    for (; flags && !h->n.st && plim_json_item(&j); i++) {
        plim_json at = j;
        plim_str raw_item = plim_json_raw(&at), is = plim_hf_word(&j);
        if (!plim_str_is(is, word) && !plim_item_has(words, is))
            plim_nn_fail(&h->n, PLIM_EUNSUPPORTED,
                         "'%s' has %.*s for layer %" PRId64 ", expected %s or one of: %s", key,
                         SHOWN(raw_item), i, word, words);
        else if (i < layers)
            flags[i] = plim_str_is(is, word);
    }
    if (flags && i != layers)
        plim_nn_fail(&h->n, PLIM_ERANGE,
                     "'%s' has %" PRId64 " items, the number of layers is %" PRId64, key, i,
                     layers);
    return flags;
}

const bool *plim_hf_layers_in(plim_hf *h, const char *key, plim_str raw, int64_t layers)
{
    static const char expected[] = "a list of whole numbers";
    plim_json j;
    int64_t i;
    bool *flags = layer_flags(h, key, raw, expected, layers, &j);
    while (flags && plim_json_item(&j))
        if (!plim_hf_whole(&j, &i))
            plim_hf_not(h, key, raw, expected);
        else if (i >= 0 && i < layers)
            flags[i] = true;
    return flags;
}

void plim_hf_check_heads(plim_hf *h, int64_t heads, int64_t kv_heads, int64_t dim)
{
    if (heads % kv_heads)
        plim_nn_fail(&h->n, PLIM_ESHAPE,
                     "%" PRId64 " heads are not a multiple of %" PRId64 " key-value heads",
                     heads, kv_heads);
    if (dim < 1 || dim > INT32_MAX / heads)
        plim_nn_fail(&h->n, PLIM_ERANGE, "a head size of %" PRId64 " is not in 1..%" PRId64,
                     dim, INT32_MAX / heads);
}

void plim_hf_cache(plim_hf *h, plim_kv_layers kv)
{
    if (kv.layers && !plim_graph_add_kv(h->n.g, &kv))
        plim_hf_oom(&h->n);
}

void plim_hf_cache_heads(plim_hf *h, int64_t layers, int64_t kv_heads, int64_t head_dim)
{
    plim_hf_cache(
        h, (plim_kv_layers){
               .layers = layers, .heads = kv_heads, .keys = head_dim, .values = head_dim});
}

void plim_hf_refuse(plim_hf *h, bool set, const char *key)
{
    if (set)
        plim_nn_fail(&h->n, PLIM_EUNSUPPORTED, "'%s' is set: this variant is not supported",
                     key);
}

void plim_hf_note(plim_hf *h, const char *fmt, ...)
{
    char text[160];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    h->note = plim_arena_append(h->n.g->arena, h->note, "; ", "%s", text);
    if (!h->note.p)
        plim_hf_oom(&h->n);
}
