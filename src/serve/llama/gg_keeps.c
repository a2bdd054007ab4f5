/* gg_keeps.c -- see gg_keeps.h.
 * src: llama.cpp as in llama-cpp-python 0.3.36: src/llama-hparams.cpp, src/llama-model.cpp create_memory,
 * src/llama-memory-recurrent.cpp */
#include "serve/llama/gg_keeps.h"

static uint64_t number_of(const plim_gguf *g, const char *key, uint64_t layer,
                          uint64_t otherwise)
{
    uint64_t x;
    return plim_gguf_model_number(g, key, layer, &x) && x <= INT32_MAX ? x : otherwise;
}

/* src: llama-hparams.cpp n_embd_r, n_embd_s; both are in fp32 */
uint64_t plim_gg_state(const plim_gguf *g, bool grouped)
{
    const uint64_t hidden = number_of(g, "embedding_length", 0, 0),
                   taps = number_of(g, "shortconv.l_cache", 0, 0),
                   kernel = number_of(g, "ssm.conv_kernel", 0, 0),
                   inner = number_of(g, "ssm.inner_size", 0, 0),
                   state = number_of(g, "ssm.state_size", 0, 0),
                   groups = grouped ? number_of(g, "ssm.group_count", 0, 0) : 0;
    if (taps)
        return plim_sat_mul(4 * hidden, taps - 1);
    const uint64_t rows = plim_sat_add(inner, plim_sat_mul(2 * groups, state));
    const uint64_t conv = plim_sat_mul(kernel ? kernel - 1 : 0, rows);
    return plim_sat_mul(4, plim_sat_add(conv, plim_sat_mul(state, inner)));
}

/* Whether a layer has a state in place of keys and values. */
static bool is_recurrent(const plim_gguf *g, plim_gg_keeping how, uint64_t layer,
                         uint64_t kv_heads)
{
    enum { INTERVAL = 4 };
    uint64_t said;
    switch (how) {
    case PLIM_GG_KEEPS_STATES: return true;
    case PLIM_GG_KEEPS_BY_HEADS:
    case PLIM_GG_KEEPS_BY_WIDTH: return !kv_heads;
    case PLIM_GG_KEEPS_BY_INTERVAL:
        if (plim_gguf_model_number(g, "attention.recurrent_layers", layer, &said))
            return said != 0;
        said = number_of(g, "full_attention_interval", 0, INTERVAL);
        return said && (layer + 1) % said != 0;
    case PLIM_GG_KEEPS_TOKENS:
    case PLIM_GG_KEEPS_NOTHING:
    case PLIM_GG_KEEPS_BOTH: break;
    }
    return false;
}

static plim_gg_kept keep_in_layer(const plim_gguf *g, plim_gg_keeping how, uint64_t state,
                                  uint64_t layer)
{
    const uint64_t heads = number_of(g, "attention.head_count", layer, 0),
                   kv_heads = number_of(g, "attention.head_count_kv", layer, heads);
    const bool bare =
        how == PLIM_GG_KEEPS_NOTHING ||
        (how == PLIM_GG_KEEPS_BY_WIDTH && number_of(g, "feed_forward_length", layer, 0));
    const bool recurrent = is_recurrent(g, how, layer, kv_heads);
    if (bare)
        return (plim_gg_kept){0};
    return (plim_gg_kept){.kv_heads = recurrent ? 0 : (int64_t)kv_heads,
                          .windowed = how == PLIM_GG_KEEPS_BY_HEADS &&
                                      number_of(g, "attention.sliding_window", 0, 0),
                          .state = recurrent || how == PLIM_GG_KEEPS_BOTH ? state : 0};
}

/* Lists that say less than there are layers. */
static plim_status check_lists(const plim_gguf *g, int64_t layers, plim_err *err)
{
    static const char *const keys[] = {"attention.head_count", "attention.head_count_kv",
                                       "feed_forward_length", "attention.recurrent_layers"};
    uint64_t x;
    for (size_t i = 0; i < PLIM_COUNT(keys) && layers; i++)
        if (plim_gguf_model_number(g, keys[i], 0, &x) &&
            !plim_gguf_model_number(g, keys[i], (uint64_t)layers - 1, &x))
            return plim_fail(err, PLIM_EFORMAT, 0,
                             "'" PLIM_STR_FMT ".%s' has no value for layer %" PRId64,
                             PLIM_STR_CUT(plim_gguf_arch(g)), keys[i], layers - 1);
    return PLIM_OK;
}

plim_status plim_gg_kept_of(const plim_gguf *g, plim_gg_keeping how, uint64_t state,
                            int64_t layers, plim_arena *a, plim_gg_kept **out, plim_err *err)
{
    bool missing = how != PLIM_GG_KEEPS_TOKENS && how != PLIM_GG_KEEPS_NOTHING && layers;
    plim_status st = check_lists(g, layers, err);
    *out = st ? NULL : PLIM_NEW_N(a, plim_gg_kept, layers + 1);
    if (!*out)
        return st ? st : plim_oom(err);
    for (int64_t i = 0; i < layers; i++) {
        (*out)[i] = keep_in_layer(g, how, state, (uint64_t)i);
        missing &= !(*out)[i].state;
    }
    return missing ? plim_fail(err, PLIM_EUNSUPPORTED, 0,
                               "no layer has a state, as those of architecture '" PLIM_STR_FMT
                               "' have",
                               PLIM_STR_CUT(plim_gguf_arch(g)))
                   : PLIM_OK;
}
