/* gguf_cache.c -- what llama.cpp keeps of a request in each layer of a model, from the metadata of its GGUF file.
 * src: llama.cpp as in llama-cpp-python 0.3.36: src/llama-hparams.cpp, src/llama-model.cpp load_hparams, create_memory */
#include "base/fmt.h"
#include "base/items.h"
#include "import/weights/gguf_priv.h"

/* ---- architectures ------------------------------------------------------------------------ */

typedef enum keeping {
    PLIM_GGUF_TOKENS,
    PLIM_GGUF_NOTHING,  /* an encoder, */
    PLIM_GGUF_REPEATS,  /* or what reads its whole text for each token */
    PLIM_GGUF_STATES,   /* a state in all of them */
    PLIM_GGUF_BOTH,     /* both in all of them */
    PLIM_GGUF_BY_HEADS, /* a state in those without heads of keys and values */
    PLIM_GGUF_BY_WIDTH, /* the same, in layers without an MLP; those with one keep nothing */
    PLIM_GGUF_BY_INTERVAL, /* a state in those that the metadata say, or .interval */
    PLIM_GGUF_COMPRESSED,  /* windows, and keys that each stand for several tokens */
} keeping;

typedef enum windowing {
    PLIM_GGUF_NONE,
    PLIM_GGUF_ALWAYS,
    PLIM_GGUF_IF_SET,       /* to more than 0 */
    PLIM_GGUF_FIXED_IF_SET, /* the same, of .window */
    PLIM_GGUF_IF_64_LAYERS,
    PLIM_GGUF_CHUNKS,     /* of .window, unless set to 0 */
    PLIM_GGUF_IN_ALL,     /* layers, whatever the metadata say */
    PLIM_GGUF_ALL_IF_SET, /* the same, if set to more than 0 */
} windowing;

enum {
    PLIM_GGUF_LATENT = 1 << 0, /* attention.key_length_mla, .value_length_mla: no values */
    PLIM_GGUF_SHARED = 1 << 1, /* attention.shared_kv_layers: the last ones */
    PLIM_GGUF_SSM = 1 << 2,
    PLIM_GGUF_UNGROUPED = 1 << 3, /* but for ssm.group_count */
    PLIM_GGUF_WKV = 1 << 4,
    PLIM_GGUF_SHORTCONV = 1 << 5,
    PLIM_GGUF_KDA = 1 << 6,
    PLIM_GGUF_LINEAR = 1 << 7,         /* a state of the size of a head's keys, squared */
    PLIM_GGUF_INDEX = 1 << 8,          /* attention.indexer.key_length */
    PLIM_GGUF_INDEX_TYPES = 1 << 9,    /* attention.indexer.types: in those layers */
    PLIM_GGUF_INDEX_GLM = 1 << 10,     /* without them every fourth, of long contexts */
    PLIM_GGUF_INDEX_SPARSE = 1 << 11,  /* not in leading_dense_block_count layers */
    PLIM_GGUF_INDEX_IF_USED = 1 << 12, /* attention.indexer.top_k: 0, there is none */
    PLIM_GGUF_INDEX_POOLED = 1 << 13,  /* of a key, its gate, and what they are pooled to */
    PLIM_GGUF_FURTHER = 1 << 14,       /* a cache for layers that predict further tokens */
    PLIM_GGUF_LOOPS = 1 << 15,         /* num_loops: the layers run so many times */
    PLIM_GGUF_ROUTER = 1 << 16,        /* a layer of one head more */
    PLIM_GGUF_NGRAMS = 1 << 17,        /* ple.conv_kernel: in one layer */
};

typedef struct arch {
    const char *names;
    keeping keeps;
    windowing windows;
    unsigned pattern, window, interval, owners, more;
    bool first;
} arch;

static const arch archs[] = {
#define PLIM_GGUF_ARCH(...) {__VA_ARGS__},
#include "import/weights/gguf_archs.def"
#undef PLIM_GGUF_ARCH
};

/* Of an architecture that is not known every key is taken for what it usually means. */
static const arch usual = {.windows = PLIM_GGUF_IF_SET,
                           .pattern = 1,
                           .interval = 1,
                           .more = PLIM_GGUF_LATENT | PLIM_GGUF_SHARED | PLIM_GGUF_INDEX};

static const arch *find_arch(plim_str name)
{
    for (size_t i = 0; i < PLIM_COUNT(archs); i++)
        if (plim_item_has(archs[i].names, name))
            return &archs[i];
    return NULL;
}

/* Whether a layer is not one of every so many, which have no window. */
static bool is_between(const arch *a, uint64_t every, uint64_t layer)
{
    return !every || layer % every != (a->first ? 0 : every - 1);
}

bool plim_gguf_arch_window(plim_str name, uint64_t layer)
{
    const arch *a = find_arch(name);
    return a && a->windows != PLIM_GGUF_NONE && is_between(a, a->pattern, layer);
}

/* ---- numbers ------------------------------------------------------------------------------ */

enum { CACHE_LAYERS = 4096 }; /* LLAMA_MAX_LAYERS is 512 */

typedef struct reader {
    const gguf *f;
    plim_map ids; /* of the keys of the architecture, without its name */
    const arch *arch;
    keeping keeps;
    unsigned more;
    uint64_t all, layers; /* with those that predict further tokens, and without */
    uint64_t given;       /* layers in the metadata, of which there may be further copies */
    uint64_t hidden, heads;
    uint64_t keys[2], values[2]; /* of a head, in layers without a window and with one */
    uint64_t window;             /* 0: no layer has one */
    uint64_t owners;             /* layers with a cache of their own, the first ones */
    uint64_t index;              /* elements of each token by which it is found */
    bool latent;
    plim_kv_layers state; /* of a layer that has one */
} reader;

/* A file has many keys, and they are asked for in each layer. */
static plim_status map_keys(reader *r, plim_arena *a, plim_err *err)
{
    for (uint32_t i = 0; i < r->f->n_kvs; i++) {
        const plim_str own = plim_gguf_own_key(r->f, r->f->kvs[i].key);
        if (own.n && !plim_map_put(a, &r->ids, own, i))
            return plim_oom(err);
    }
    return PLIM_OK;
}

static const gguf_kv *find_key(const reader *r, const char *key)
{
    uint32_t at;
    return plim_map_get(&r->ids, plim_str_of(key), &at) ? &r->f->kvs[at] : NULL;
}

static uint64_t number_at(const reader *r, const char *key, uint64_t layer, uint64_t otherwise)
{
    uint64_t x;
    return plim_gguf_number(r->f, find_key(r, key), layer, &x) && x <= INT32_MAX ? x
                                                                                 : otherwise;
}

static uint64_t number_of(const reader *r, const char *key, uint64_t otherwise)
{
    return number_at(r, key, 0, otherwise);
}

static bool has_flag(const reader *r, unsigned flag) { return r->more & flag; }

static bool is_given(const reader *r, const char *key) { return find_key(r, key) != NULL; }

static bool is_list(const reader *r, const char *key)
{
    const gguf_kv *kv = find_key(r, key);
    return kv && kv->array;
}

static uint64_t count_heads(const reader *r, uint64_t layer)
{
    layer %= PLIM_MAX(r->given, 1);
    return number_at(r, "attention.head_count_kv", layer,
                     number_at(r, "attention.head_count", layer, 0));
}

/* ---- sizes that all layers have in common -------------------------------------------------- */

/* src: load_hparams; without heads in the first layer there are no lengths but those of windows */
static void read_lengths(reader *r)
{
    r->heads = number_of(r, "attention.head_count", 0);
    const uint64_t usual_length = r->heads ? r->hidden / r->heads : 0;
    if (r->heads) {
        r->keys[0] = number_of(r, "attention.key_length", usual_length);
        r->values[0] = number_of(r, "attention.value_length", usual_length);
    }
    r->keys[1] = number_of(r, "attention.key_length_swa", r->keys[0]);
    r->values[1] = number_of(r, "attention.value_length_swa", r->values[0]);
    r->latent = has_flag(r, PLIM_GGUF_LATENT) && number_of(r, "attention.key_length_mla", 0) &&
                number_of(r, "attention.value_length_mla", 0);
}

static void read_window(reader *r)
{
    static const char key[] = "attention.sliding_window";
    const uint64_t set = number_of(r, key, 0);
    switch (r->arch->windows) {
    case PLIM_GGUF_NONE: return;
    case PLIM_GGUF_IF_SET:
    case PLIM_GGUF_ALL_IF_SET: r->window = set; return;
    case PLIM_GGUF_FIXED_IF_SET: r->window = set ? r->arch->window : 0; return;
    case PLIM_GGUF_CHUNKS: r->window = is_given(r, key) && !set ? 0 : r->arch->window; return;
    case PLIM_GGUF_IF_64_LAYERS:
        if (r->layers != 64)
            return;
        /* fall through */
    case PLIM_GGUF_ALWAYS:
    case PLIM_GGUF_IN_ALL: r->window = set ? set : r->arch->window; return;
    }
}

static void set_state(reader *r, uint64_t channels, uint64_t kernel, uint64_t state)
{
    r->state.channels = (int64_t)PLIM_MIN(channels, INT64_MAX / 4);
    r->state.kernel = (int64_t)kernel;
    r->state.state = (int64_t)PLIM_MIN(state, INT64_MAX / 4);
}

/* src: llama-hparams.cpp n_embd_r, n_embd_s */
static void read_state(reader *r)
{
    enum { SHIFTS = 2, TAPS = 4 };
    const uint64_t kernel = number_of(r, "ssm.conv_kernel", 0);
    if (has_flag(r, PLIM_GGUF_WKV)) {
        set_state(r, r->hidden, number_of(r, "token_shift_count", SHIFTS) + 1,
                  r->hidden * number_of(r, "wkv.head_size", 0));
    } else if (has_flag(r, PLIM_GGUF_SHORTCONV)) {
        set_state(r, r->hidden, number_of(r, "shortconv.l_cache", 0), 0);
    } else if (has_flag(r, PLIM_GGUF_KDA)) {
        const uint64_t size = number_of(r, "kda.head_dim", 0), inner = r->heads * size;
        set_state(r, 3 * inner, kernel ? kernel : TAPS, plim_sat_mul(inner, size));
    } else if (has_flag(r, PLIM_GGUF_LINEAR)) {
        set_state(r, 0, 0, plim_sat_mul(r->keys[0] * r->keys[0], r->heads));
    } else if (has_flag(r, PLIM_GGUF_SSM)) {
        const uint64_t inner = number_of(r, "ssm.inner_size", 0),
                       size = number_of(r, "ssm.state_size", 0),
                       groups = has_flag(r, PLIM_GGUF_UNGROUPED)
                                    ? 0
                                    : number_of(r, "ssm.group_count", 0);
        set_state(r, plim_sat_add(inner, plim_sat_mul(2 * groups, size)), kernel,
                  size * inner);
    }
}

/* Elements that the metadata give a layer of each sequence; 0: none. */
static bool has_state(const reader *r)
{
    return r->state.state || (r->state.channels && r->state.kernel > 1);
}

static void read_index(reader *r)
{
    enum { POOLED = 3 };
    if (!has_flag(r, PLIM_GGUF_INDEX) && r->keeps != PLIM_GGUF_COMPRESSED)
        return;
    r->index = number_of(r, "attention.indexer.key_length", 0);
    if (has_flag(r, PLIM_GGUF_INDEX_POOLED))
        r->index *= POOLED;
    if (has_flag(r, PLIM_GGUF_INDEX_IF_USED) && !number_of(r, "attention.indexer.top_k", 0))
        r->index = 0;
}

/* The states for which an architecture that is not known has keys. */
static unsigned guess_state(const reader *r)
{
    return is_given(r, "wkv.head_size")       ? PLIM_GGUF_WKV
           : is_given(r, "shortconv.l_cache") ? PLIM_GGUF_SHORTCONV
           : is_given(r, "kda.head_dim")      ? PLIM_GGUF_KDA
                                              : PLIM_GGUF_SSM;
}

/* What its keys say of its layers. */
static keeping guess_keeping(const reader *r)
{
    if (!number_of(r, "attention.causal", 1))
        return PLIM_GGUF_NOTHING;
    if (is_given(r, "attention.recurrent_layers") || is_given(r, "full_attention_interval"))
        return PLIM_GGUF_BY_INTERVAL;
    if (!number_of(r, "attention.head_count", 0) && has_state(r))
        return PLIM_GGUF_STATES;
    return is_list(r, "attention.head_count_kv") && has_state(r) ? PLIM_GGUF_BY_HEADS
                                                                 : PLIM_GGUF_TOKENS;
}

static void count_layers(reader *r)
{
    const uint64_t further = number_of(r, "nextn_predict_layers", 0),
                   loops = has_flag(r, PLIM_GGUF_LOOPS) ? number_of(r, "num_loops", 1) : 1;
    r->given = r->all;
    if (loops > 1) {
        r->given = plim_sat_sub(r->all, further);
        r->all = plim_sat_mul(r->given, loops);
    }
    r->layers = plim_sat_sub(r->all, further);
    if (!r->layers || r->keeps == PLIM_GGUF_COMPRESSED)
        r->layers = r->all;
    if (has_flag(r, PLIM_GGUF_ROUTER))
        r->all = ++r->layers;
    r->owners = r->arch->owners ? r->arch->owners : r->all;
    if (has_flag(r, PLIM_GGUF_SHARED))
        r->owners = plim_sat_sub(r->all, number_of(r, "attention.shared_kv_layers", 0));
}

/* ---- a layer ------------------------------------------------------------------------------ */

static bool has_window(const reader *r, uint64_t layer)
{
    static const char key[] = "attention.sliding_window_pattern";
    const windowing w = r->arch->windows;
    const bool all = w == PLIM_GGUF_IN_ALL || w == PLIM_GGUF_ALL_IF_SET;
    if (!r->window)
        return false;
    if (is_list(r, key) && !all)
        return number_at(r, key, layer, 0) != 0;
    return layer < r->layers &&
           (all || is_between(r->arch, number_of(r, key, r->arch->pattern), layer));
}

static bool is_recurrent(const reader *r, uint64_t layer)
{
    uint64_t said;
    const bool trunk = layer < r->layers, headless = trunk && !count_heads(r, layer);
    switch (r->keeps) {
    case PLIM_GGUF_STATES:
    case PLIM_GGUF_BOTH: return trunk;
    case PLIM_GGUF_BY_HEADS: return headless;
    case PLIM_GGUF_BY_WIDTH: return headless && !number_at(r, "feed_forward_length", layer, 0);
    case PLIM_GGUF_BY_INTERVAL:
        if (is_given(r, "attention.recurrent_layers"))
            return trunk && number_at(r, "attention.recurrent_layers", layer, 0);
        said = number_of(r, "full_attention_interval", r->arch->interval);
        return trunk && said && (layer + 1) % said != 0;
    case PLIM_GGUF_TOKENS:
    case PLIM_GGUF_NOTHING:
    case PLIM_GGUF_REPEATS:
    case PLIM_GGUF_COMPRESSED: break;
    }
    return false;
}

static bool keeps_nothing(const reader *r)
{
    return r->keeps == PLIM_GGUF_NOTHING || r->keeps == PLIM_GGUF_REPEATS;
}

static bool has_attention(const reader *r, uint64_t layer)
{
    if (r->keeps == PLIM_GGUF_STATES || keeps_nothing(r) || layer >= r->owners)
        return false;
    if (r->keeps == PLIM_GGUF_BY_WIDTH && number_at(r, "feed_forward_length", layer, 0))
        return false;
    if (layer >= r->layers && !has_flag(r, PLIM_GGUF_FURTHER) && r->keeps != PLIM_GGUF_BOTH)
        return false;
    return r->keeps == PLIM_GGUF_BOTH || !is_recurrent(r, layer);
}

/* Of GLM-5.2, whose files need not say.  src: src/models/glm-dsa.cpp */
static bool is_indexed_in_glm(const reader *r, uint64_t layer)
{
    enum { LONG = 1048576, FIRST = 2, EVERY = 4, LAYERS = 78 };
    return number_of(r, "context_length", 0) < LONG || layer < FIRST ||
           (layer < LAYERS && (layer - FIRST) % EVERY == 0);
}

static bool has_index(const reader *r, uint64_t layer)
{
    static const char key[] = "attention.indexer.types";
    if (!r->index || (layer >= r->layers && !has_flag(r, PLIM_GGUF_FURTHER)))
        return false;
    if (has_flag(r, PLIM_GGUF_INDEX_SPARSE))
        return layer >= number_of(r, "leading_dense_block_count", 0);
    if (has_flag(r, PLIM_GGUF_INDEX_TYPES) && is_given(r, key))
        return number_at(r, key, layer, 0) != 0;
    return !has_flag(r, PLIM_GGUF_INDEX_GLM) || is_indexed_in_glm(r, layer);
}

/* Keys that each stand for several tokens, and what they are made of.
 * src: llama-kv-cache-dsv4.cpp */
static void add_compressed(const reader *r, uint64_t layer, plim_kv_layers *k)
{
    enum { FINE = 4, COARSE = 128, SIDES = 2 /* a value and its score */ };
    const int64_t keys = (int64_t)r->keys[1], index = (int64_t)r->index;
    const uint64_t ratio = number_at(r, "attention.compress_ratios", layer, 0);
    k->values = 0;
    if (ratio == FINE) {
        k->index_keys = index;
        k->state = SIDES * (2 * FINE) * 2 * (keys + index);
    } else if (ratio == COARSE)
        k->state = SIDES * COARSE * keys;
    else
        return;
    k->ratio = (int64_t)ratio;
}

static void add_tokens(const reader *r, uint64_t layer, plim_kv_layers *k)
{
    const bool windowed = has_window(r, layer),
               router = has_flag(r, PLIM_GGUF_ROUTER) && layer + 1 == r->all;
    k->heads = router ? 1 : (int64_t)count_heads(r, layer);
    k->keys = (int64_t)r->keys[windowed];
    k->values = r->latent ? 0 : (int64_t)r->values[windowed];
    k->window = windowed ? (int64_t)r->window : 0;
    k->chunked = windowed && r->arch->windows == PLIM_GGUF_CHUNKS;
    if (r->keeps == PLIM_GGUF_COMPRESSED)
        add_compressed(r, layer, k);
    else if (has_index(r, layer)) {
        k->index_keys = (int64_t)r->index;
        k->index_values =
            r->latent || r->keeps != PLIM_GGUF_TOKENS ? 0 : (int64_t)r->values[windowed];
    }
}

/* Whether it has the history of the embeddings of n-grams, too. */
static int64_t ngram_history(const reader *r, uint64_t layer)
{
    if (!has_flag(r, PLIM_GGUF_NGRAMS) || !is_given(r, "ple.layers") ||
        number_of(r, "ple.layers", UINT64_MAX) != layer)
        return 0;
    const uint64_t taps = plim_sat_sub(number_of(r, "ple.conv_kernel", 0), 1),
                   rows = plim_sat_mul(taps, number_of(r, "ple.ngram_size", 0));
    return (int64_t)PLIM_MIN(
        plim_sat_mul(rows, number_of(r, "hyper_connection.count", 0) * r->hidden), INT32_MAX);
}

static plim_kv_layers read_layer(const reader *r, uint64_t layer)
{
    plim_kv_layers k = {.layers = 1};
    if (is_recurrent(r, layer)) {
        k = r->state;
        k.layers = 1;
        k.state += ngram_history(r, layer);
    }
    if (has_attention(r, layer))
        add_tokens(r, layer, &k);
    return k;
}

/* Whether some of its layers have a state, as those of its architecture do. */
static bool may_recur(const reader *r)
{
    return r->keeps != PLIM_GGUF_TOKENS && r->keeps != PLIM_GGUF_COMPRESSED &&
           !keeps_nothing(r);
}

/* ---- what is not known -------------------------------------------------------------------- */

/* Keys of the metadata that llama.cpp knows and whose names sound like memory.
 * src: llama.cpp src/llama-arch.cpp LLM_KV_NAMES */
static const char known_keys[] =
    "adapters.lora_rank attention.decay_lora_rank attention.gate_lora_rank attention.head_count "
    "attention.head_count_kv attention.iclr_lora_rank attention.indexer.block_size "
    "attention.indexer.head_count attention.indexer.local_blocks attention.kv_lora_rank "
    "attention.kv_lora_rank_swa attention.output_lora_rank attention.q_lora_rank "
    "attention.sliding_window attention.sliding_window_pattern "
    "attention.value_residual_mix_lora_rank attn_res.block_size block_count block_size "
    "convnext.block_count decoder_block_count expert_chunk_feed_forward_length expert_count "
    "expert_feed_forward_length expert_gating_func expert_group_count expert_group_scale "
    "expert_group_used_count expert_latent_length expert_shared_count "
    "expert_shared_feed_forward_length expert_used_count expert_weights_norm "
    "expert_weights_scale experts_per_group full_attention_interval hyper_connection.low_rank "
    "kda.head_dim leading_dense_block_count ple.head_offsets ple.head_vocab_sizes "
    "ple.heads_per_ngram posnet.block_count selector_rank ssm.state_size ssm.time_step_rank "
    "wkv.head_size";

static bool sounds_like_memory(plim_str key)
{
    static const char *const words[] = {"head", "interval", "window", "state",
                                        "rank", "expert",   "block"};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (plim_str_has(key, words[i]))
            return true;
    return false;
}

/* "'x.a' and 'x.b' are not known", with the first few; "": all are. */
static plim_str name_unknown(const gguf *f, plim_arena *a)
{
    enum { NAMED = 4 };
    uint32_t n = 0;
    plim_buf b;
    plim_buf_init(&b, a);
    for (uint32_t i = 0; i < f->n_kvs; i++) {
        plim_str key = f->kvs[i].key, own = plim_gguf_own_key(f, key);
        if (!own.n || !sounds_like_memory(own) || plim_item_has(known_keys, own) ||
            n++ >= NAMED)
            continue;
        plim_buf_printf(&b, "%s'" PLIM_STR_FMT "'", n > 1 ? ", " : "", PLIM_STR_CUT(key));
    }
    if (n > NAMED)
        plim_buf_printf(&b, " and %" PRIu32 " more", n - NAMED);
    if (n)
        plim_buf_puts(&b, n > 1 ? " are not known" : " is not known");
    return b.bad ? (plim_str){NULL, 0} : n ? plim_buf_str(&b) : PLIM_STR("");
}

/* Why the answer is not exact; NULL: it is. */
static plim_status find_doubt(const reader *r, plim_arena *a, plim_gguf_cache *out,
                              plim_err *err)
{
    plim_str why = PLIM_STR("");
    if (!out->known)
        why =
            plim_arena_printf(a, "'" PLIM_STR_FMT "' is not known", PLIM_STR_CUT(r->f->arch));
    else if (keeps_nothing(r))
        return PLIM_OK;
    else if (!r->window &&
             (r->arch->windows == PLIM_GGUF_ALWAYS || r->arch->windows == PLIM_GGUF_IN_ALL))
        why = PLIM_STR("the size of the windows is not given");
    plim_str keys = name_unknown(r->f, a);
    if (keys.p && keys.n)
        why = why.n ? plim_arena_printf(a, PLIM_STR_FMT ", " PLIM_STR_FMT, PLIM_STR_ARG(why),
                                        PLIM_STR_ARG(keys))
                    : keys;
    if (!why.p || !keys.p)
        return plim_oom(err);
    out->doubt = why.n ? why.p : NULL;
    return PLIM_OK;
}

/* ---- all layers --------------------------------------------------------------------------- */

/* Lists that say less than there are layers. */
static plim_status check_lists(const reader *r, plim_err *err)
{
    static const char *const keys[] = {"attention.head_count", "attention.head_count_kv",
                                       "feed_forward_length", "attention.recurrent_layers",
                                       "attention.compress_ratios"};
    for (size_t i = 0; i < PLIM_COUNT(keys); i++) {
        const gguf_kv *kv = find_key(r, keys[i]);
        if (kv && kv->array && kv->n && kv->n < r->given)
            return plim_fail(err, PLIM_EFORMAT, kv->at,
                             "'" PLIM_STR_FMT ".%s' has no value for layer %" PRIu64,
                             PLIM_STR_CUT(r->f->arch), keys[i], r->given - 1);
    }
    return PLIM_OK;
}

/* Whether what a layer keeps can be counted, however many tokens there are. */
static plim_status check_size(const plim_kv_layers *k, uint64_t layer, plim_err *err)
{
    const uint64_t most = UINT64_C(1) << 48,
                   lengths = plim_sat_add((uint64_t)k->keys, (uint64_t)k->values),
                   inputs = plim_sat_mul((uint64_t)k->channels, (uint64_t)k->kernel);
    return plim_sat_mul((uint64_t)k->heads, lengths) < most &&
                   plim_sat_add(inputs, (uint64_t)k->state) < most
               ? PLIM_OK
               : plim_fail(err, PLIM_ERANGE, 0,
                           "the size of what layer %" PRIu64 " keeps overflows", layer);
}

/* Any layer may keep as much, where that is not known. */
static void add_most(const reader *r, const plim_kv_layers *k, plim_kv_layers *most)
{
    most->heads = PLIM_MAX(most->heads, k->heads);
    most->keys = (int64_t)PLIM_MAX(r->keys[0], r->keys[1]);
    most->values = r->latent ? 0 : (int64_t)PLIM_MAX(r->values[0], r->values[1]);
    most->index_keys = PLIM_MAX(most->index_keys, k->index_keys);
    most->index_values = PLIM_MAX(most->index_values, k->index_values);
}

static plim_status add_layers(const reader *r, plim_arena *a, plim_gguf_cache *out,
                              plim_err *err)
{
    if (!is_given(r, "attention.head_count") && r->keeps != PLIM_GGUF_STATES &&
        !keeps_nothing(r))
        return plim_fail(err, PLIM_EFORMAT, 0, "the metadata do not give the number of heads");
    out->most = r->state;
    for (uint64_t i = 0; i < r->all; i++) {
        const plim_kv_layers k = read_layer(r, i);
        const uint64_t heads = count_heads(r, i);
        if ((k.heads && !k.keys) ||
            (k.heads && !k.values && !r->latent && r->keeps != PLIM_GGUF_COMPRESSED))
            return plim_fail(err, PLIM_EFORMAT, 0,
                             "the metadata do not give the length of keys and values (layer "
                             "%" PRIu64 ")",
                             i);
        PLIM_TRY(check_size(&k, i, err));
        add_most(r, &k, &out->most);
        out->widest_values = PLIM_MAX(out->widest_values, r->values[has_window(r, i)] * heads);
        if (!plim_cache_add(&out->cache, a, &k))
            return plim_oom(err);
    }
    return PLIM_OK;
}

plim_status plim_gguf_cache_read(const gguf *f, plim_arena *a, plim_gguf_cache *out,
                                 plim_err *err)
{
    const arch *found = find_arch(f->arch);
    reader r = {.f = f, .arch = found ? found : &usual};
    *out = (plim_gguf_cache){.known = found != NULL};
    PLIM_TRY(map_keys(&r, a, err));
    if (!plim_gguf_number(f, find_key(&r, "block_count"), 0, &r.all))
        return PLIM_OK;
    r.keeps = r.arch->keeps;
    r.more = r.arch->more | (found ? 0 : guess_state(&r));
    r.hidden = number_of(&r, "embedding_length", 0);
    read_lengths(&r);
    read_state(&r);
    if (!found)
        r.keeps = guess_keeping(&r);
    count_layers(&r);
    read_window(&r);
    read_index(&r);
    if (r.all > CACHE_LAYERS)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "the model has %" PRIu64 " layers, the limit is %d", r.all,
                         CACHE_LAYERS);
    out->nothing = keeps_nothing(&r);
    out->encodes = r.keeps == PLIM_GGUF_NOTHING;
    out->apart = r.keeps == PLIM_GGUF_COMPRESSED;
    PLIM_TRY(check_lists(&r, err));
    PLIM_TRY(find_doubt(&r, a, out, err));
    PLIM_TRY(add_layers(&r, a, out, err));
    if (found && may_recur(&r) && !has_state(&r))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "no layer has a state, as those of architecture '" PLIM_STR_FMT
                         "' have",
                         PLIM_STR_CUT(f->arch));
    return PLIM_OK;
}
