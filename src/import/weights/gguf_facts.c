/* gguf_facts.c -- what a GGUF file's metadata says about the model: sizes, and what is kept of its tokens. */
#include "base/fmt.h"
#include "import/weights/gguf_priv.h"

enum { GGUF_MAX_LAYERS = 65536 };

/* ---- as text ---------------------------------------------------------------------------- */

/* Keys outside the architecture that matter to memory or identify the model; those about the
 * tokenizer, licences and sources do not. */
static const char *const general_keys[] = {
    "general.architecture", "general.type",         "general.name",
    "general.size_label",   "general.quantized_by", "adapter.type",
};

/* "32", "true", "0 (3 times), 8, 0 (3 times), 8": runs of equal values are merged.  Fractions
 * are not sizes: {NULL, 0}. */
static plim_str value_text(const gguf *f, const gguf_kv *kv, plim_arena *a, plim_err *err)
{
    enum { RUNS = 16 };
    uint64_t x, y, n, runs = 0, end = kv->n > GGUF_MAX_LAYERS ? 0 : kv->n;
    plim_buf b;
    plim_buf_init(&b, a);
    for (uint64_t i = 0; i < end; i += n, runs++) {
        if (!plim_gguf_number(f, kv, i, &x))
            return (plim_str){NULL, 0};
        if (runs == RUNS) {
            plim_buf_puts(&b, ", ...");
            break;
        }
        n = 1;
        while (i + n < end && plim_gguf_number(f, kv, i + n, &y) && y == x)
            n++;
        plim_buf_puts(&b, runs ? ", " : "");
        if (kv->type == GGUF_BOOL)
            plim_buf_puts(&b, x ? "true" : "false");
        else
            plim_buf_printf(&b, "%" PRIu64, x);
        if (n > 1)
            plim_buf_printf(&b, " (%" PRIu64 " times)", n);
    }
    if (b.bad)
        plim_oom(err);
    return b.n ? plim_buf_str(&b) : (plim_str){NULL, 0};
}

static bool is_wanted(const gguf *f, plim_str key)
{
    for (size_t i = 0; i < PLIM_COUNT(general_keys); i++)
        if (plim_str_is(key, general_keys[i]))
            return true;
    return plim_gguf_own_key(f, key).n > 0;
}

/* Without "general." or "llama.", the prefix of all of them. */
static plim_str short_key(plim_str key)
{
    const char *dot = memchr(key.p, '.', key.n);
    size_t n = dot ? (size_t)(dot + 1 - key.p) : 0;
    return (plim_str){key.p + n, key.n - n};
}

static plim_status value_fact(const gguf *f, const gguf_kv *kv, plim_inventory *v,
                              plim_err *err)
{
    plim_err why = PLIM_ERR_INIT;
    plim_str text, key = plim_arena_str(v->arena, short_key(kv->key));
    if (!key.p)
        return plim_oom(err);
    if (!plim_gguf_string(f, kv, &text))
        text = value_text(f, kv, v->arena, &why);
    if (why.code)
        return plim_oom(err);
    return text.p ? plim_inventory_fact(v, err, key.p, PLIM_STR_FMT, PLIM_STR_ARG(text))
                  : PLIM_OK;
}

static plim_status file_type_fact(const gguf *f, plim_inventory *v, plim_err *err)
{
    static const char *const names[] = {
#define PLIM_GGML_TYPE(id, name, block, bytes)
#define PLIM_GGML_FILE(id, name) [id] = name,
#include "import/weights/ggml_types.def"
#undef PLIM_GGML_TYPE
#undef PLIM_GGML_FILE
    };
    uint64_t id;
    if (!plim_gguf_number(f, plim_gguf_find(f, "general.file_type"), 0, &id))
        return PLIM_OK;
    if (id < PLIM_COUNT(names) && names[id])
        return plim_inventory_fact(v, err, "file_type", "%s", names[id]);
    return plim_inventory_fact(v, err, "file_type", "%" PRIu64 " (unknown)", id);
}

/* If the metadata have no vocabulary size, they list the tokens: counts those. */
static plim_status vocabulary_fact(const gguf *f, plim_inventory *v, plim_err *err)
{
    const gguf_kv *tokens = plim_gguf_find(f, "tokenizer.ggml.tokens");
    if (plim_gguf_of_model(f, "vocab_size") || !tokens || !tokens->array)
        return PLIM_OK;
    return plim_inventory_fact(v, err, "vocab_size", "%" PRIu64, tokens->n);
}

/* ---- layers ------------------------------------------------------------------------------ */

/* The layer of a tensor "blk.3.attn_q.weight"; false: it has none. */
static bool layer_of(plim_str name, uint64_t *out)
{
    static const char prefix[] = "blk.";
    size_t i = sizeof prefix - 1;
    *out = 0;
    if (!plim_str_starts(name, prefix))
        return false;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9'; i++)
        *out = plim_sat_add(plim_sat_mul(*out, 10), (uint64_t)(name.p[i] - '0'));
    return i > sizeof prefix - 1 && i < name.n && name.p[i] == '.';
}

/* A layer may be of nothing but its input.  src: llama.cpp src/models/deci.cpp */
static bool is_empty_layer(const gguf *f, uint64_t layer)
{
    uint64_t heads, width;
    return plim_gguf_number(f, plim_gguf_of_model(f, "attention.head_count"), layer, &heads) &&
           plim_gguf_number(f, plim_gguf_of_model(f, "feed_forward_length"), layer, &width) &&
           !heads && !width;
}

/* The first of `n` layers without a tensor; n: all have one, or none has. */
static plim_status find_gap(const gguf *f, const plim_inventory *v, uint32_t first, uint64_t n,
                            uint64_t *out, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    const uint64_t room = PLIM_MIN(n, v->n_items - first + UINT64_C(1));
    bool *seen = PLIM_NEW_N(&scratch, bool, room + 1), any = false;
    uint64_t layer;
    if (!seen)
        return plim_oom(err);
    for (uint32_t i = first; i < v->n_items; i++)
        if (layer_of(v->items[i].name, &layer) && layer < n) {
            any = true;
            seen[PLIM_MIN(layer, room)] = true;
        }
    for (*out = 0; *out < room && (seen[*out] || is_empty_layer(f, *out));)
        ++*out;
    if (!any || *out == room)
        *out = n;
    plim_arena_free(&scratch);
    return PLIM_OK;
}

/* As llama.cpp requires it: block_count layers have tensors; those that predict further
 * tokens, the last ones, may be left out, or be all that there is.  src: llama.cpp
 * src/llama-model.cpp load_tensors, src/models/glm4-moe.cpp trunk_only, mtp_only */
plim_status plim_gguf_check_layers(const gguf *f, const plim_inventory *v, uint32_t first,
                                   plim_err *err)
{
    const gguf_kv *count = plim_gguf_of_model(f, "block_count");
    uint64_t layers = 0, layer, most = 0, further = 0, gap = 0;
    plim_str type, arch = f->arch;
    bool part = plim_gguf_string(f, plim_gguf_find(f, "general.type"), &type) &&
                !plim_str_is(type, "model"); /* an adapter */
    for (uint32_t i = first; i < v->n_items; i++)
        if (layer_of(v->items[i].name, &layer))
            most = PLIM_MAX(most, plim_sat_add(layer, 1));
    if (!count || !most || part)
        return PLIM_OK;
    if (count->array || !plim_gguf_number(f, count, 0, &layers))
        return plim_fail(err, PLIM_EFORMAT, count->at,
                         "'" PLIM_STR_FMT ".block_count' is not a whole number",
                         PLIM_STR_CUT(arch));
    if (most > layers)
        return plim_fail(err, PLIM_EFORMAT, count->at,
                         "'" PLIM_STR_FMT ".block_count' is %" PRIu64
                         ", the number of layers with tensors is %" PRIu64,
                         PLIM_STR_CUT(arch), layers, most);
    plim_gguf_number(f, plim_gguf_of_model(f, "nextn_predict_layers"), 0, &further);
    layers = plim_sat_sub(layers, further);
    plim_status st = find_gap(f, v, first, layers, &gap, err);
    if (st || gap == layers)
        return st;
    if (gap < most)
        return plim_fail(err, PLIM_EFORMAT, count->at,
                         "'" PLIM_STR_FMT ".block_count' is %" PRIu64 ", but 'blk.%" PRIu64
                         "' has no tensors",
                         PLIM_STR_CUT(arch), layers + further, gap);
    return plim_fail(err, PLIM_EFORMAT, count->at,
                     "'" PLIM_STR_FMT ".block_count' is %" PRIu64
                     ", the number of layers with tensors is %" PRIu64,
                     PLIM_STR_CUT(arch), layers + further, most);
}

/* ---- keys and values ---------------------------------------------------------------------- */

static plim_status cache_facts(const gguf *f, plim_inventory *v, plim_err *err)
{
    plim_gguf_cache c;
    plim_err why = PLIM_ERR_INIT;
    plim_status st = plim_gguf_cache_read(f, v->arena, &c, &why);
    if (st == PLIM_EFORMAT || st == PLIM_EUNSUPPORTED || st == PLIM_ERANGE)
        return plim_inventory_note(v, err, "the size of the KV cache is not known: %s",
                                   why.msg);
    if (st)
        return plim_fail(err, st, why.at, "%s", why.msg);
    if (c.nothing || !c.cache.n_kinds)
        return PLIM_OK;
    const plim_dtype states = PLIM_F32;
    st = plim_inventory_cache(v, &c.cache, PLIM_F16, &states, err);
    return st || !c.doubt ? st
                          : plim_inventory_note(
                                v, err, "the size of the KV cache is not exact: %s", c.doubt);
}

/* ---- the output --------------------------------------------------------------------------- */

static bool is_causal(const gguf *f)
{
    uint64_t x;
    return !plim_gguf_number(f, plim_gguf_of_model(f, "attention.causal"), 0, &x) || x;
}

static plim_status tied_note(const gguf *f, plim_inventory *v, uint32_t first, plim_err *err)
{
    bool embedding = false, output = false;
    for (uint32_t i = first; i < v->n_items; i++) {
        embedding |= plim_str_is(v->items[i].name, "token_embd.weight");
        output |= plim_str_is(v->items[i].name, "output.weight");
    }
    if (!embedding || output || !is_causal(f))
        return PLIM_OK;
    return plim_inventory_note(v, err,
                               "no output.weight: the output is tied to token_embd.weight");
}

plim_status plim_gguf_facts(const gguf *f, plim_inventory *v, uint32_t first, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < f->n_kvs && !st; i++)
        if (is_wanted(f, f->kvs[i].key))
            st = value_fact(f, &f->kvs[i], v, err);
    if (!st)
        st = file_type_fact(f, v, err);
    if (!st)
        st = vocabulary_fact(f, v, err);
    if (!st)
        st = cache_facts(f, v, err);
    return st ? st : tied_note(f, v, first, err);
}
