/* gg_file.c -- see gg_file.h.
 * src: llama.cpp gguf-py/gguf/tensor_mapping.py, convert_hf_to_gguf.py, src/llama-quant.cpp */
#include "serve/llama/gg_file.h"

#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "import/weights/gguf.h"

/* ---- architectures ----------------------------------------------------------------------------- */

enum {
    PLIM_GG_NORM_WEIGHTS = 1,
    PLIM_GG_SCALED = 2,
    PLIM_GG_SOFTCAP = 4,
    PLIM_GG_QUERY_SCALE = 8,
    PLIM_GG_RESIDUAL_FIRST = 16,
    PLIM_GG_GUESS = 32, /* the graph is one like it */
};

static const struct arch {
    const char *name, *types;
    unsigned more;
} archs[] = {
#define PLIM_GG_ARCH(name, types, more) {name, types, more},
#include "serve/llama/gg_archs.def"
#undef PLIM_GG_ARCH
};

static const struct arch *find_arch(plim_str name)
{
    for (size_t i = 0; i < PLIM_COUNT(archs); i++)
        if (plim_str_is(name, archs[i].name))
            return &archs[i];
    return NULL;
}

/* ---- types --------------------------------------------------------------------------------------- */

typedef enum where { ALL, GROUPED, ENDS, EIGHTH, SIXTEENTH, FIRST4, FIRST2 } where;

static const struct mixture {
    const char *name, *type, *values;
    where values_in;
    const char *values_else, *down;
    where down_in;
    const char *output, *fused, *experts, *doc;
} mixtures[] = {
#define PLIM_GG_MIX(...) {__VA_ARGS__},
#include "serve/llama/gg_mixtures.def"
#undef PLIM_GG_MIX
};

bool plim_gg_mixture_at(uint32_t i, const char **name, const char **doc)
{
    if (i >= PLIM_COUNT(mixtures))
        return false;
    *name = mixtures[i].name;
    *doc = mixtures[i].doc;
    return true;
}

uint32_t plim_gg_mixture_count(void) { return PLIM_COUNT(mixtures); }

static bool is_there(where w, const plim_gg_model *m, int64_t i)
{
    int64_t n = m->layers;
    switch (w) {
    case ALL: return true;
    case GROUPED: return m->heads >= 4 * m->kv_heads;
    case ENDS: return i < n / 8 || i >= 7 * n / 8 || (i - n / 8) % 3 == 2;
    case EIGHTH: return i < n / 8;
    case SIXTEENTH: return i < n / 16;
    case FIRST4: return i < 4;
    case FIRST2: return i < 2;
    }
    return false;
}

/* The type of attn_v.weight, which is small where heads share it. */
static const char *type_of_values(const struct mixture *x, const plim_gg_model *m, int64_t i)
{
    const char *type = is_there(x->values_in, m, i) ? x->values : x->values_else;
    bool is_70b = m->layers == 80 && m->heads != m->kv_heads;
    if (is_70b && (!strcmp(type, "Q3_K") || !strcmp(type, "Q4_K")))
        return "Q5_K";
    return type;
}

/* What replaces a type whose blocks a row does not fill. */
static const char *type_instead(const char *type)
{
    static const char *const rows[][2] = {{"Q2_K", "IQ4_NL"},   {"Q3_K", "IQ4_NL"},
                                          {"IQ4_XS", "IQ4_NL"}, {"Q4_K", "Q5_0"},
                                          {"Q5_K", "Q5_1"},     {"Q6_K", "Q8_0"}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (!strcmp(type, rows[i][0]))
            return rows[i][1];
    return "fp16";
}

static bool is_quantized(const struct mixture *x)
{
    return x->type[0] == 'Q' || x->type[0] == 'I';
}

static const char *type_of(const struct mixture *x, const plim_gg_model *m,
                           const plim_gg_tensor *t, bool tied)
{
    plim_str n = t->name;
    bool small = t->n[1] * t->n[2] == 1 || plim_str_is(n, "position_embd.weight") ||
                 plim_str_is(n, "ffn_gate_inp.weight") ||
                 !plim_str_ends(n, PLIM_STR(".weight"));
    bool eight = m->experts == 8 && is_quantized(x);
    if (small)
        return "fp32";
    if (x->experts && t->n[2] > 1)
        return x->experts;
    if (!is_quantized(x))
        return x->type;
    if (plim_str_is(n, "output.weight") || (tied && plim_str_is(n, "token_embd.weight")))
        return !strcmp(x->type, "Q8_0") ? "Q8_0" : "Q6_K";
    if (plim_str_is(n, "attn_v.weight"))
        return eight ? "Q8_0" : type_of_values(x, m, t->layer);
    if (plim_str_is(n, "attn_k.weight") && eight)
        return "Q8_0";
    if (plim_str_starts(n, "ffn_down"))
        return is_there(x->down_in, m, t->layer) ? x->down : x->type;
    if (plim_str_is(n, "attn_output.weight"))
        return eight && plim_item_has("Q2_K Q3_K_S Q3_K_M Q4_K_S Q4_K_M IQ4_NL IQ4_XS",
                                      plim_str_of(x->name))
                   ? "Q5_K"
                   : x->output;
    if (plim_str_is(n, "attn_qkv.weight"))
        return x->fused;
    return x->type;
}

static plim_status set_bytes(plim_gg_tensor *t, const char *type, plim_err *err)
{
    uint32_t block = 1, bytes = 0;
    bool found = plim_ggml_type_find(plim_str_of(type), &block, &bytes);
    while (found && t->n[0] % block)
        found = plim_ggml_type_find(plim_str_of(type = type_instead(type)), &block, &bytes);
    plim_assert(found); /* rows of gg_mixtures.def */
    t->block = block;
    if (!plim_mul(t->elements / block, bytes, &t->bytes))
        return plim_fail(err, PLIM_ERANGE, 0, "size of '" PLIM_STR_FMT "' overflows",
                         PLIM_STR_CUT(t->name));
    return PLIM_OK;
}

/* ---- tensors ----------------------------------------------------------------------------------------- */

static plim_status add_tensor(const plim_serve_question *q, plim_gg_file *f, plim_gg_tensor t,
                              plim_err *err)
{
    if (!PLIM_PUSH_ROOM(q->arena, f->tensors, f->n_tensors, f->cap_tensors))
        return plim_oom(err);
    f->tensors[f->n_tensors++] = t;
    return PLIM_OK;
}

static const plim_gg_tensor *find_tensor(const plim_gg_file *f, const char *name)
{
    for (uint32_t i = 0; i < f->n_tensors; i++)
        if (plim_str_is(f->tensors[i].name, name))
            return &f->tensors[i];
    return NULL;
}

/* Splits "blk.12.attn_q.weight", or the same with another prefix, into layer and name. */
static bool split_name(plim_str name, const char *prefix, int64_t *layer, plim_str *rest)
{
    size_t n = strlen(prefix), i = n;
    *layer = 0;
    if (!plim_str_starts(name, prefix))
        return false;
    for (; i < name.n && name.p[i] >= '0' && name.p[i] <= '9' && *layer < INT32_MAX; i++)
        *layer = *layer * 10 + (name.p[i] - '0');
    if (i == n || i + 1 >= name.n || name.p[i] != '.')
        return false;
    *rest = (plim_str){name.p + i + 1, name.n - i - 1};
    return true;
}

static void set_shape(plim_gg_tensor *t, int32_t rank, const int64_t *dim)
{
    t->elements = 1;
    for (int32_t i = 0; i < 3; i++) {
        t->n[i] = i < rank ? dim[rank - 1 - i] : 1;
        t->elements = plim_sat_mul(t->elements, (uint64_t)t->n[i]);
    }
}

static plim_status read_held(const plim_serve_question *q, plim_gg_file *f, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < q->held->n_items && !st; i++) {
        const plim_item *it = &q->held->items[i];
        plim_gg_tensor t = {.name = it->name, .layer = -1, .block = 1};
        uint32_t bytes;
        plim_ggml_type_find(it->type, &t.block, &bytes);
        set_shape(&t, PLIM_MIN(it->rank, 3), it->dim);
        t.elements = it->elements;
        t.bytes = it->bytes;
        if (!split_name(it->name, "blk.", &t.layer, &t.name))
            t.layer = -1;
        st = add_tensor(q, f, t, err);
    }
    return st;
}

/* Names of transformers, and those of GGUF; the first that fits. */
static const struct rename {
    const char *from, *to;
    const char *types; /* of models; NULL: all */
} names[] = {
    {"self_attn.q_proj.", "attn_q.", NULL},
    {"self_attn.k_proj.", "attn_k.", NULL},
    {"self_attn.v_proj.", "attn_v.", NULL},
    {"self_attn.o_proj.", "attn_output.", NULL},
    {"self_attn.qkv_proj.", "attn_qkv.", NULL},
    {"self_attn.q_norm.", "attn_q_norm.", NULL},
    {"self_attn.k_norm.", "attn_k_norm.", NULL},
    {"input_layernorm.", "attn_norm.", NULL},
    {"post_attention_layernorm.", "post_attention_norm.", "gemma2 gemma3_text"},
    {"post_attention_layernorm.", "ffn_norm.", NULL},
    {"pre_feedforward_layernorm.", "ffn_norm.", NULL},
    {"post_feedforward_layernorm.", "post_ffw_norm.", NULL},
    {"mlp.gate_proj.", "ffn_gate.", NULL},
    {"mlp.up_proj.", "ffn_up.", NULL},
    {"mlp.down_proj.", "ffn_down.", NULL},
    {"mlp.gate_up_proj.", "ffn_up.", NULL},
    {"mlp.gate.", "ffn_gate_inp.", NULL},
    {"mlp.router.", "ffn_gate_inp.", NULL},
    {"self_attn.sinks", "attn_sinks.weight", NULL},
    {"mlp.experts.gate_up_proj_bias", "ffn_gate_exps.bias", NULL},
    {"mlp.experts.down_proj_bias", "ffn_down_exps.bias", NULL},
    {"mlp.experts.gate_up_proj", "ffn_gate_exps.weight", NULL},
    {"mlp.experts.down_proj", "ffn_down_exps.weight", NULL},
    {"ln_1.", "attn_norm.", NULL},
    {"attn.c_attn.", "attn_qkv.", NULL},
    {"attn.c_proj.", "attn_output.", NULL},
    {"ln_2.", "ffn_norm.", NULL},
    {"mlp.c_fc.", "ffn_up.", NULL},
    {"mlp.c_proj.", "ffn_down.", NULL},
    {"model.embed_tokens.", "token_embd.", NULL},
    {"model.norm.", "output_norm.", NULL},
    {"transformer.wte.", "token_embd.", NULL},
    {"transformer.wpe.", "position_embd.", NULL},
    {"transformer.ln_f.", "output_norm.", NULL},
    {"lm_head.", "output.", NULL},
};

static bool rename_tensor(const plim_serve_question *q, plim_str from, plim_str *to)
{
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        const struct rename *r = &names[i];
        size_t n = strlen(r->from);
        if (!plim_str_starts(from, r->from) ||
            (r->types && !plim_item_has(r->types, q->g->about.model_type)))
            continue;
        *to = plim_arena_printf(q->arena, "%s%.*s", r->to, (int)(from.n - n), from.p + n);
        return true;
    }
    return false;
}

static plim_status read_parameter(const plim_serve_question *q, plim_gg_file *f,
                                  const plim_value *v, plim_err *err)
{
    plim_gg_tensor t = {.layer = -1};
    plim_str rest = v->name;
    if (!split_name(v->name, "model.layers.", &t.layer, &rest) &&
        !split_name(v->name, "transformer.h.", &t.layer, &rest))
        t.layer = -1;
    if (!rename_tensor(q, rest, &t.name))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "what '" PLIM_STR_FMT "' is called in a GGUF file is not known",
                         PLIM_STR_CUT(v->name));
    if (!t.name.p)
        return plim_oom(err);
    set_shape(&t, v->meta.rank, v->meta.dim);
    bool conv1d =
        plim_str_is(q->g->about.model_type, "gpt2") && v->meta.rank == 2 && t.layer >= 0;
    bool experts = plim_str_is(q->g->about.model_type, "gpt_oss") && v->meta.rank == 3;
    if (conv1d || experts) { /* x @ weight: transposed */
        int64_t n = t.n[0];
        t.n[0] = t.n[1];
        t.n[1] = n;
    }
    if (!plim_str_is(t.name, "ffn_gate_exps.weight"))
        return add_tensor(q, f, t, err);
    t.n[1] /= 2; /* two tensors in the file */
    t.elements /= 2;
    plim_status st = add_tensor(q, f, t, err);
    t.name = PLIM_STR("ffn_up_exps.weight");
    return st ? st : add_tensor(q, f, t, err);
}

static plim_status read_graph(const plim_serve_question *q, plim_gg_file *f, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (size_t i = 0; i < PLIM_COUNT(archs); i++)
        if (plim_item_has(archs[i].types, q->g->about.model_type))
            f->arch = plim_str_of(archs[i].name);
    if (!f->arch.n)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0,
                         "how llama.cpp holds a model of type '" PLIM_STR_FMT
                         "' is not known: give its GGUF file",
                         PLIM_STR_CUT(q->g->about.model_type));
    for (uint32_t i = 0; i < q->g->n_values && !st; i++) {
        const plim_value *v = &q->g->values[i];
        if (v->kind == PLIM_VALUE_PARAMETER && v->tied_to == PLIM_NONE)
            st = read_parameter(q, f, v, err);
    }
    return st;
}

/* ---- the model ----------------------------------------------------------------------------------------- */

static void count_layers(plim_gg_file *f)
{
    for (uint32_t i = 0; i < f->n_tensors; i++)
        f->model.layers = PLIM_MAX(f->model.layers, f->tensors[i].layer + 1);
}

/* Number of elements that a matrix of a layer makes; 0: there is none. */
static int64_t rows_of(const plim_gg_file *f, const char *name)
{
    const plim_gg_tensor *t = find_tensor(f, name);
    return t ? t->n[1] : 0;
}

static uint64_t weight_bytes(const void *file, int64_t layer, const char *name)
{
    const plim_gg_file *f = file;
    for (uint32_t i = 0; i < f->n_tensors; i++)
        if (f->tensors[i].layer == layer && plim_str_is(f->tensors[i].name, name))
            return f->tensors[i].bytes;
    return 0;
}

static void describe_tensors(plim_gg_file *f)
{
    plim_gg_model *m = &f->model;
    const plim_gg_tensor *embed = find_tensor(f, "token_embd.weight");
    const plim_gg_tensor *experts = find_tensor(f, "ffn_up_exps.weight");
    count_layers(f);
    m->hidden = embed ? embed->n[0] : 0;
    m->vocab = embed ? embed->n[1] : 0;
    m->fused_qkv = find_tensor(f, "attn_qkv.weight") != NULL;
    m->qkv_bias = find_tensor(f, "attn_q.bias") || find_tensor(f, "attn_qkv.bias");
    m->out_bias = find_tensor(f, "attn_output.bias") != NULL;
    m->q_norm = find_tensor(f, "attn_q_norm.weight") != NULL;
    m->post_norms = find_tensor(f, "post_ffw_norm.weight") != NULL;
    m->gated = find_tensor(f, "ffn_gate.weight") != NULL;
    m->mlp_bias = find_tensor(f, "ffn_down.bias") != NULL;
    m->layer_norm =
        find_tensor(f, "output_norm.bias") || find_tensor(f, "attn_output_norm.bias");
    m->tied = !find_tensor(f, "output.weight");
    m->weight_bytes = weight_bytes;
    m->file = f;
    m->positions = find_tensor(f, "position_embd.weight") != NULL;
    m->experts = experts ? experts->n[2] : 0;
    m->ffn = experts ? experts->n[1] : rows_of(f, "ffn_up.weight");
    const plim_gg_tensor *down = find_tensor(f, "ffn_down.weight");
    m->fused_gate = !m->gated && !experts && down && m->ffn == 2 * down->n[0];
    m->ffn = m->fused_gate ? down->n[0] : m->ffn;
}

/* Experts of each token: the k of topk. */
static int64_t count_chosen(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0;
             plim_str_is(g->nodes[i].target, "aten.topk.default") && k < g->nodes[i].n_args;
             k++)
            if (g->nodes[i].args[k].kind == PLIM_ARG_INT)
                return g->nodes[i].args[k].i;
    return 0;
}

static void describe_graph(const plim_serve_question *q, plim_gg_file *f)
{
    plim_gg_model *m = &f->model;
    const plim_kv_layers *kv = &q->g->kv.kinds[0];
    m->kv_heads = kv->heads;
    m->head_k = kv->keys;
    m->head_v = kv->values ? kv->values : kv->keys;
    int64_t width = kv->keys ? kv->keys : 1;
    int64_t rows = rows_of(f, "attn_q.weight");
    m->heads =
        m->fused_qkv
            ? (rows_of(f, "attn_qkv.weight") - kv->heads * (kv->keys + kv->values)) / width
            : rows / width;
    for (uint32_t i = 0; i < q->g->kv.n_kinds; i++)
        m->window = PLIM_MAX(m->window, q->g->kv.kinds[i].window);
    m->used = count_chosen(q->g);
    f->all_layers = m->layers;
}

/* As block_count says, which the reader has compared with the tensors. */
static void describe_layers(const plim_gguf *g, plim_gg_file *f)
{
    uint64_t all = 0, further = 0;
    plim_gguf_model_number(g, "nextn_predict_layers", 0, &further);
    plim_gguf_model_number(g, "block_count", 0, &all);
    f->all_layers = (int64_t)all;
    f->model.layers = (int64_t)plim_sat_sub(all, further);
}

static void describe_heads(const plim_gguf *g, plim_gg_file *f)
{
    plim_gg_model *m = &f->model;
    const struct {
        const char *key;
        int64_t *to;
    } numbers[] = {
        {"attention.head_count", &m->heads},      {"attention.head_count_kv", &m->kv_heads},
        {"attention.key_length", &m->head_k},     {"attention.value_length", &m->head_v},
        {"attention.sliding_window", &m->window}, {"expert_used_count", &m->used},
        {"embedding_length_out", &f->embedding}};
    for (size_t i = 0; i < PLIM_COUNT(numbers); i++)
        *numbers[i].to = (int64_t)plim_gguf_model_most(g, numbers[i].key, (uint64_t)m->layers);
    m->kv_heads = m->kv_heads ? m->kv_heads : m->heads;
    m->head_k = m->head_k ? m->head_k : m->heads ? m->hidden / m->heads : 0;
    m->head_v = m->head_v ? m->head_v : m->heads ? m->hidden / m->heads : 0;
    f->embedding = f->embedding ? f->embedding : m->hidden;
}

static plim_status describe_metadata(const plim_serve_question *q, plim_gg_file *f,
                                     plim_err *err)
{
    const plim_gguf *g;
    PLIM_TRY(plim_gguf_open(q->job->model->source.bytes, q->arena, &g, err));
    f->arch = plim_gguf_arch(g);
    PLIM_TRY(plim_gguf_cache_read(g, q->arena, &f->kept, err));
    describe_layers(g, f);
    describe_heads(g, f);
    f->model.encodes = f->kept.encodes;
    f->listed = f->kept.known;
    return PLIM_OK;
}

/* What the layers of a graph keep once it is a file, with the windows that llama.cpp gives them. */
static plim_status describe_cache(const plim_serve_question *q, plim_gg_file *f, plim_err *err)
{
    const plim_gg_model *m = &f->model;
    f->listed = true;
    f->kept.widest_values = plim_sat_mul((uint64_t)m->kv_heads, (uint64_t)m->head_v);
    for (int64_t i = 0; i < m->layers; i++) {
        const bool windowed = plim_gguf_arch_window(f->arch, (uint64_t)i);
        const plim_kv_layers k = {.layers = 1,
                                  .heads = m->kv_heads,
                                  .keys = m->head_k,
                                  .values = m->head_v,
                                  .window = windowed ? m->window : 0};
        if (!plim_cache_add(&f->kept.cache, q->arena, &k))
            return plim_oom(err);
    }
    return PLIM_OK;
}

/* Which layers have a window, and whether all have the same heads: the graph is for those. */
static plim_status describe_windows(const plim_serve_question *q, plim_gg_file *f,
                                    plim_err *err)
{
    plim_gg_model *m = &f->model;
    bool *windowed = PLIM_NEW_N(q->arena, bool, m->layers + 1), any = false;
    const plim_cache *c = &f->kept.cache;
    int64_t layer = 0;
    if (!windowed)
        return plim_oom(err);
    for (uint32_t i = 0; i < c->n_runs; i++) {
        const plim_kv_layers *k = &c->kinds[c->runs[i].kind];
        f->known &= k->heads == m->kv_heads && k->keys == m->head_k && k->values == m->head_v;
        any |= k->window > 0;
        for (int64_t n = 0; n < c->runs[i].layers && layer < m->layers; n++)
            windowed[layer++] = k->window > 0;
    }
    m->windowed = any ? windowed : NULL;
    return PLIM_OK;
}

/* Sets what an architecture has besides its tensors. */
static plim_status describe_arch(const plim_serve_question *q, plim_gg_file *f, plim_err *err)
{
    plim_gg_model *m = &f->model;
    const struct arch *arch = find_arch(f->arch);
    const unsigned more = arch ? arch->more : PLIM_GG_GUESS;
    m->scaled = more & PLIM_GG_SCALED;
    m->softcap = m->final_softcap = more & PLIM_GG_SOFTCAP;
    m->query_scale = more & PLIM_GG_QUERY_SCALE;
    m->residual_first = more & PLIM_GG_RESIDUAL_FIRST;
    m->norm_weights = more & PLIM_GG_NORM_WEIGHTS;
    f->known = !(more & PLIM_GG_GUESS);
    return describe_windows(q, f, err);
}

/* Whether a graph can be built, in bounded time. */
static bool is_sound(const plim_gg_file *f)
{
    const plim_gg_model *m = &f->model;
    const int64_t sizes[] = {m->layers,   m->hidden, m->vocab,  m->heads,
                             m->kv_heads, m->head_k, m->head_v, m->ffn};
    enum { LAYERS = 1024, IN_LAYER = 64 };
    bool sound = m->layers <= LAYERS && f->n_tensors <= (m->layers + 1) * IN_LAYER &&
                 (!m->experts || m->used > 0) && m->used <= 256;
    for (size_t i = 0; i < PLIM_COUNT(sizes); i++)
        sound &= sizes[i] > 0 && sizes[i] <= INT32_MAX;
    return sound && m->heads <= INT32_MAX / m->head_k && m->heads <= INT32_MAX / m->head_v &&
           m->kv_heads <= m->heads && m->ffn <= INT32_MAX / 2;
}

static plim_status check_model(const plim_serve_question *q, plim_gg_file *f, plim_err *err)
{
    f->sound = is_sound(f);
    return f->sound || (!f->known && f->n_tensors && f->model.layers > 0)
               ? PLIM_OK
               : plim_fail(err, PLIM_EUNSUPPORTED, 0,
                           "llama.cpp is not known to build the layers of '" PLIM_STR_FMT
                           "' (architecture '" PLIM_STR_FMT "')",
                           PLIM_STR_CUT(q->job->model->name), PLIM_STR_CUT(f->arch));
}

static plim_status choose_types(const plim_serve_question *q, plim_str format, plim_gg_file *f,
                                plim_err *err)
{
    char word[64];
    plim_dtype own = plim_question_dtype(q);
    const char *usual = own == PLIM_F32 ? "F32" : own == PLIM_BF16 ? "BF16" : "F16";
    bool tied = !find_tensor(f, "output.weight");
    snprintf(word, sizeof word, PLIM_STR_FMT, (int)PLIM_MIN(format.n, sizeof word - 1),
             format.p);
    const struct mixture *x =
        plim_row_find("format of weights", format.n ? word : usual, mixtures,
                      PLIM_COUNT(mixtures), sizeof *mixtures, err);
    plim_status st = x ? PLIM_OK : PLIM_EUSAGE;
    for (uint32_t i = 0; i < f->n_tensors && !st; i++)
        st = set_bytes(&f->tensors[i], type_of(x, &f->model, &f->tensors[i], tied), err);
    return st;
}

plim_status plim_gg_file_open(const plim_serve_question *q, plim_str format, plim_gg_file *out,
                              plim_err *err)
{
    *out = (plim_gg_file){.arch = {"", 0}};
    if (q->held && format.n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "the file has types of its own: leave out 'weights'");
    plim_status st = q->held ? read_held(q, out, err) : read_graph(q, out, err);
    if (st)
        return st;
    describe_tensors(out);
    if (!q->held)
        describe_graph(q, out);
    st = q->held ? describe_metadata(q, out, err) : describe_cache(q, out, err);
    if (!st)
        st = describe_arch(q, out, err);
    if (!st)
        st = check_model(q, out, err);
    return st || q->held ? st : choose_types(q, format, out, err);
}

/* Sentences about a file, each with the name of its architecture in front. */
static const char *graph_note(const plim_gguf_cache *kept, const struct arch *arch)
{
    if (!kept->known)
        return "is not an architecture that plimsoll knows: the weights are exact, the cache is at most what "
               "the metadata allow, and the compute buffers are a guess";
    if (kept->encodes)
        return "is an encoder: llama.cpp keeps nothing of a request, which has to fit into one batch "
               "(ubatch_size); the compute buffers are estimated";
    return !arch || arch->more & PLIM_GG_GUESS
               ? "is an architecture whose graph is not known: the compute buffers are estimated"
               : NULL;
}

plim_status plim_gg_note(const plim_serve_question *q, const char **out, plim_err *err)
{
    const plim_gguf *g;
    plim_gguf_cache kept;
    plim_str text = PLIM_STR("");
    PLIM_TRY(plim_gguf_open(q->job->model->source.bytes, q->arena, &g, err));
    PLIM_TRY(plim_gguf_cache_read(g, q->arena, &kept, err));
    const plim_str name = plim_gguf_arch(g);
    const char *says = graph_note(&kept, find_arch(name));
    if (says)
        text = plim_arena_printf(q->arena, "'" PLIM_STR_FMT "' %s", PLIM_STR_CUT(name), says);
    if (text.p && kept.doubt && kept.known)
        text = plim_arena_append(q->arena, text, "; ",
                                 "the size of the cache is not exact: %s", kept.doubt);
    *out = text.p;
    return *out ? PLIM_OK : plim_oom(err);
}
