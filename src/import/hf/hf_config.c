/* hf_config.c -- see hf.h: keys of a config.json into the fields of a configuration. */
#include "import/hf/hf.h"

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

bool plim_hf_names_have(const char *names, plim_str word)
{
    for (size_t len; *names; names += len + (names[len] == ' ')) {
        len = strcspn(names, " ");
        if (plim_str_eq(word, (plim_str){names, len}))
            return true;
    }
    return false;
}

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

static void put_defaults(const plim_hf_group *g, const plim_hf_family *f, void *config)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        const plim_hf_key *k = &g->keys[i];
        double number = k->number;
        const char *word = k->word;
        for (const plim_hf_default *d = f->defaults; d && d->name; d++)
            if (first_name_is(k, d->name)) {
                number = d->number;
                word = d->word;
            }
        put_number(k, config, number);
        put_word(k, config, plim_str_of(word ? word : ""));
    }
}

static int name_length(const plim_hf_key *k) { return (int)strcspn(k->names, " "); }

static int64_t most_of(const plim_hf_key *k) { return k->max ? k->max : INT32_MAX; }

/* Nobody means the default who writes 0. */
static int64_t read_given(plim_json *j, const plim_hf_key *k)
{
    int64_t v = plim_json_i64(j);
    if (v < 1)
        plim_json_fail(j, PLIM_ERANGE, "'%.*s' is %" PRId64 ", not in 1..%" PRId64,
                       name_length(k), k->names, v, most_of(k));
    return v;
}

/* A configuration may say NaN and Infinity. */
static double read_between(plim_json *j, const plim_hf_key *k, double least, double most)
{
    double v = plim_json_f64(j);
    if (v >= least && v <= most)
        return v;
    plim_json_fail(j, PLIM_ERANGE, "'%.*s' is %s, not in %s..%s", name_length(k), k->names,
                   plim_fmt_double(v).s, plim_fmt_double(least).s, plim_fmt_double(most).s);
    return 0;
}

/* The value at j, which is not null. */
static void read_value(plim_json *j, const plim_hf_key *k, void *config)
{
    char *field = (char *)config + k->at;
    switch (k->kind) {
    case PLIM_HF_SIZE:
    case PLIM_HF_OPTION: *(int64_t *)(void *)field = plim_json_i64(j); break;
    case PLIM_HF_GIVEN: *(int64_t *)(void *)field = read_given(j, k); break;
    case PLIM_HF_REAL: *(double *)(void *)field = read_between(j, k, -1e9, 1e9); break;
    case PLIM_HF_SHARE: *(double *)(void *)field = read_between(j, k, 0, 1); break;
    case PLIM_HF_BOOL: *(bool *)(void *)field = plim_json_bool(j); break;
    case PLIM_HF_WORD: *(plim_str *)(void *)field = plim_json_str(j); break;
    case PLIM_HF_RAW: *(plim_str *)(void *)field = plim_json_raw(j); break;
    }
}

static bool read_key(plim_json *j, const plim_hf_group *g, plim_str name, void *config)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        const plim_hf_key *k = &g->keys[i];
        if (!plim_hf_names_have(k->names, name))
            continue;
        if (plim_json_peek(j) == PLIM_JSON_NULL) {
            plim_json_null(j);
            put_number(k, config, 0);
            put_word(k, config, PLIM_STR(""));
        } else {
            read_value(j, k, config);
        }
        return true;
    }
    return false;
}

/* The members of an object: keys "b", or "a.b" inside another object. */
static void read_members(plim_json *j, const plim_hf_group *g, plim_str outer, void *config)
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
        if (read_key(j, g, full, config))
            continue;
        if (!outer.n && plim_json_peek(j) == PLIM_JSON_OBJECT)
            read_members(j, g, key, config);
        else
            plim_json_skip(j);
    }
}

static void read_config(plim_hf *h, plim_str raw, const plim_hf_group *g,
                        const plim_hf_family *f, void *config)
{
    put_defaults(g, f, config);
    plim_json j =
        plim_hf_json((plim_bytes){.p = (const uint8_t *)raw.p, .n = raw.n}, h->n.err);
    read_members(&j, g, PLIM_STR(""), config);
    plim_status st = plim_json_end(&j);
    h->n.st = h->n.st ? h->n.st : st;
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

static void check_sizes(plim_hf *h, const plim_hf_group *g, const void *config)
{
    for (size_t i = 0; i < g->n_keys; i++) {
        const plim_hf_key *k = &g->keys[i];
        if (k->kind != PLIM_HF_SIZE && k->kind != PLIM_HF_OPTION && k->kind != PLIM_HF_GIVEN)
            continue;
        int64_t v = size_in(config, k), min = k->kind == PLIM_HF_SIZE, max = most_of(k);
        if (v < min || v > max)
            plim_nn_fail(&h->n, PLIM_ERANGE,
                         "'%.*s' is %" PRId64 ", not in %" PRId64 "..%" PRId64, name_length(k),
                         k->names, v, min, max);
    }
}

void plim_hf_read_model(plim_hf *h, plim_str text, const plim_hf_group *g, void *config)
{
    read_config(h, text, g, h->family, config);
    if (!h->n.st)
        check_sizes(h, g, config);
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
    h->n.g->contexts = h->contexts;
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
    h->n.g->virtual_tokens = b->virtual_tokens;
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

/* One flag per layer, and a reader inside the array; NULL: no array, or no memory. */
static bool *layer_flags(plim_hf *h, plim_str raw, int64_t layers, plim_json *j)
{
    plim_json_init(j, raw, NULL); /* it was read before, so there are no errors */
    j->lax = true;
    if (h->n.st || !raw.n || plim_json_peek(j) != PLIM_JSON_ARRAY)
        return NULL;
    plim_json_array(j);
    bool *flags = PLIM_NEW_N(h->n.g->arena, bool, layers);
    if (!flags)
        plim_hf_oom(&h->n);
    return flags;
}

const bool *plim_hf_layers_called(plim_hf *h, plim_str raw, const char *word, int64_t layers)
{
    plim_json j;
    bool *flags = layer_flags(h, raw, layers, &j);
    for (int64_t i = 0; flags && i < layers && plim_json_item(&j); i++)
        flags[i] = plim_str_is(plim_hf_word(&j), word);
    return flags;
}

const bool *plim_hf_layers_in(plim_hf *h, plim_str raw, int64_t layers)
{
    plim_json j;
    bool *flags = layer_flags(h, raw, layers, &j);
    while (flags && plim_json_item(&j)) {
        bool number = plim_json_peek(&j) == PLIM_JSON_NUMBER;
        double i = number ? plim_json_f64(&j) : -1;
        if (!number)
            plim_json_skip(&j);
        else if (i >= 0 && i < (double)layers)
            flags[(int64_t)i] = true;
    }
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
