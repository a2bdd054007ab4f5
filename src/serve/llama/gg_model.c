/* gg_model.c -- see gg_model.h.
 * src: llama.cpp as in llama-cpp-python 0.3.36: src/llama-graph.cpp build_*, src/models/ */
#include "serve/llama/gg_model.h"

#include <stdio.h>

enum { F16 = 2, F32 = 4, I32 = 4, I64 = 8 };

typedef struct inputs {
    plim_gg pos, out_ids;
    plim_gg k_rows[2], v_rows[2], mask[2]; /* of caches without and with a window */
} inputs;

typedef struct builder {
    plim_gg_graph *g;
    const plim_gg_model *m;
    const plim_gg_context *c;
    plim_gg_place place; /* of the weights that come next */
    int64_t layer;       /* theirs; -1: none */
    inputs in;
} builder;

/* A weight of the layer, or of none, as the file has it. */
static plim_gg add_weight(const builder *b, const char *name, int64_t n0, int64_t n1,
                          int64_t n2)
{
    const plim_gg_model *m = b->m;
    plim_gg_place place = b->place, other;
    if (b->c->card && b->c->moved(b->c->moved_ud, b->layer, name, &other))
        place = other;
    return plim_gg_weight(b->g, place, n0, n1, n2, m->weight_bytes(m->file, b->layer, name));
}

/* With a weight and, if there is one, a bias: "attn_q.weight", "attn_q.bias". */
static plim_gg add_linear(const builder *b, const char *name, plim_gg x, int64_t out,
                          bool bias)
{
    char full[64];
    snprintf(full, sizeof full, "%s.weight", name);
    x = plim_gg_mul_mat(b->g, add_weight(b, full, plim_gg_dim(b->g, x, 0), out, 1), x);
    snprintf(full, sizeof full, "%s.bias", name);
    return bias ? plim_gg_map(b->g, x, add_weight(b, full, out, 1, 1)) : x;
}

static plim_gg add_norm(const builder *b, plim_gg x)
{
    int64_t n = plim_gg_dim(b->g, x, 0);
    /* ggml_rms_norm works in place, ggml_norm does not */
    x = b->m->layer_norm ? plim_gg_make(b->g, x, PLIM_NONE) : plim_gg_map(b->g, x, PLIM_NONE);
    x = plim_gg_map(b->g, x, add_weight(b, "norm", n, 1, 1));
    return b->m->layer_norm ? plim_gg_map(b->g, x, add_weight(b, "bias", n, 1, 1)) : x;
}

/* ---- inputs ------------------------------------------------------------------------------------- */

static plim_gg add_embedding(builder *b)
{
    const plim_gg_model *m = b->m;
    int64_t tokens = b->c->tokens;
    plim_gg table = plim_gg_weight(b->g, PLIM_GG_HOST, m->hidden, m->vocab, 1, 0);
    plim_gg ids = plim_gg_input(b->g, I32, tokens, 1, 1, 1);
    plim_gg given = plim_gg_input(b->g, F32, m->hidden, tokens, 1, 1);
    plim_gg x = plim_gg_get_rows(b->g, table, ids);
    plim_gg_expand(b->g, x); /* a batch has tokens or embeddings */
    plim_gg_expand(b->g, given);
    return x;
}

static void add_cache_inputs(builder *b, int kind, int64_t cells)
{
    const plim_gg_model *m = b->m;
    const plim_gg_context *c = b->c;
    int64_t rows = c->flash ? 1 : m->kv_heads * m->head_v;
    b->in.k_rows[kind] = plim_gg_input(b->g, I64, c->tokens, 1, 1, 1);
    b->in.v_rows[kind] = plim_gg_input(b->g, I64, c->tokens * rows, 1, 1, 1);
    b->in.mask[kind] = plim_gg_input(b->g, c->flash ? F16 : F32, cells, c->tokens / c->streams,
                                     1, c->streams);
}

/* ---- attention ------------------------------------------------------------------------------------ */

static void project_heads(const builder *b, plim_gg x, plim_gg out[3])
{
    const plim_gg_model *m = b->m;
    const int64_t tokens = plim_gg_dim(b->g, x, 1);
    const int64_t heads[3] = {m->heads, m->kv_heads, m->kv_heads};
    const int64_t size[3] = {m->head_k, m->head_k, m->head_v};
    static const char *const name[3] = {"attn_q", "attn_k", "attn_v"};
    plim_gg all = PLIM_NONE;
    if (m->fused_qkv) {
        int64_t n = m->heads * m->head_k + m->kv_heads * (m->head_k + m->head_v);
        all = add_linear(b, "attn_qkv", x, n, m->qkv_bias);
    }
    for (int i = 0; i < 3; i++)
        if (m->fused_qkv)
            out[i] = plim_gg_part(b->g, all, size[i], heads[i], 0, tokens, 1);
        else
            out[i] = add_linear(b, name[i], x, heads[i] * size[i], m->qkv_bias);
    for (int i = 0; i < 3 && !m->fused_qkv; i++)
        out[i] = plim_gg_reshape(b->g, out[i], size[i], heads[i], tokens);
}

static plim_gg rotate_heads(const builder *b, plim_gg x)
{
    return b->m->positions ? x : plim_gg_map(b->g, x, b->in.pos);
}

/* Scores of all cells, or the fused kernel. */
static plim_gg attend_cells(const builder *b, plim_gg q, plim_gg k, plim_gg v, int kind)
{
    plim_gg_graph *g = b->g;
    const plim_gg_model *m = b->m;
    int64_t heads = m->heads, tokens = b->c->tokens / b->c->streams, streams = b->c->streams;
    q = plim_gg_view(g, q, m->head_k, heads, tokens, streams);
    q = plim_gg_permute(g, q, 0, 2, 1, 3);
    k = plim_gg_permute(g, k, 0, 2, 1, 3);
    if (b->c->flash) {
        v = plim_gg_permute(g, v, 0, 2, 1, 3);
        plim_gg x = plim_gg_op(g, F32, m->head_v, heads, tokens, streams,
                               (plim_gg[]){q, k, v, b->in.mask[kind]}, 4);
        return plim_gg_reshape(g, x, m->head_v * heads, tokens * streams, 1);
    }
    v = plim_gg_permute(g, v, 0, 2, 1, 3);
    plim_gg scores = plim_gg_mul_mat(g, k, q);
    for (int i = 0; m->softcap && i < 3; i++) /* scale, tanh, scale */
        scores = plim_gg_map(g, scores, PLIM_NONE);
    scores = plim_gg_map(g, scores, b->in.mask[kind]);
    plim_gg x = plim_gg_mul_mat(g, v, scores);
    x = plim_gg_permute(g, x, 0, 2, 1, 3);
    return plim_gg_op(g, F32, m->head_v * heads, tokens * streams, 1, 1, &x, 1);
}

/* Without a cache: the keys and values of the batch.  src: llama-graph.cpp build_attn_mha */
static plim_gg attend_batch(const builder *b, const plim_gg qkv[3])
{
    plim_gg_graph *g = b->g;
    const plim_gg_model *m = b->m;
    const int64_t tokens = b->c->tokens;
    plim_gg k = qkv[1], v = qkv[2];
    if (b->c->flash) {
        k = plim_gg_op(g, F16, m->head_k, m->kv_heads, tokens, 1, &k, 1);
        v = plim_gg_op(g, F16, m->head_v, m->kv_heads, tokens, 1, &v, 1);
    } else {
        v = plim_gg_op(g, F32, tokens, m->kv_heads, m->head_v, 1, &v, 1);
    }
    plim_gg x = attend_cells(b, qkv[0], k, v, 0);
    plim_gg_expand(g, x);
    return add_linear(b, "attn_output", x, m->hidden, m->out_bias);
}

static plim_gg add_attention(const builder *b, plim_gg x, bool windowed)
{
    plim_gg_graph *g = b->g;
    const plim_gg_model *m = b->m;
    const plim_gg_context *c = b->c;
    const int kind = windowed;
    int64_t cells = windowed ? c->windowed_cells : c->cells;
    plim_gg qkv[3];
    project_heads(b, x, qkv);
    if (m->q_norm)
        qkv[0] = add_norm(b, qkv[0]);
    qkv[0] = rotate_heads(b, qkv[0]);
    if (m->q_norm)
        qkv[1] = add_norm(b, qkv[1]);
    qkv[1] = rotate_heads(b, qkv[1]);
    if (m->scaled || m->query_scale)
        qkv[0] = plim_gg_map(g, qkv[0], PLIM_NONE);
    plim_gg_expand(g,
                   qkv[0]); /* build_attn of a cache without windows, and of one with them */
    plim_gg_expand(g, qkv[m->windowed ? 1 : 2]);
    plim_gg_expand(g, qkv[m->windowed ? 2 : 1]);
    if (m->encodes)
        return attend_batch(b, qkv);
    plim_gg keys =
        plim_gg_cache(g, b->place, c->key_bytes, m->kv_heads * m->head_k, cells * c->streams);
    plim_gg values = plim_gg_cache(g, b->place, c->value_bytes, m->kv_heads * m->head_v,
                                   cells * c->streams);
    const int64_t width[] = {m->kv_heads * m->head_k, m->kv_heads * m->head_v};
    plim_gg row = plim_gg_part(g, qkv[1], width[0], c->tokens, 2, 1, 3);
    plim_gg_expand(g, plim_gg_set_rows(g, keys, row, b->in.k_rows[kind]));
    if (c->flash)
        row = plim_gg_part(g, qkv[2], width[1], c->tokens, 2, 1, 3);
    else if (m->fused_qkv) { /* a copy, apart from queries and keys, where the cache is */
        row = plim_gg_op(g, F32, width[1], c->tokens, 1, 1, &qkv[2], 1);
        plim_gg_move(g, row, b->place);
    } else
        row = plim_gg_reshape(g, qkv[2], width[1], c->tokens, 1);
    if (!c->flash)
        row = plim_gg_reshape(g, row, 1, width[1] * c->tokens, 1);
    plim_gg_expand(g, plim_gg_set_rows(g, values, row, b->in.v_rows[kind]));
    plim_gg k = plim_gg_view(g, keys, m->head_k, m->kv_heads, cells, c->streams);
    plim_gg v = c->flash ? plim_gg_view(g, values, m->head_v, m->kv_heads, cells, c->streams)
                         : plim_gg_view(g, values, cells, m->kv_heads, m->head_v, c->streams);
    x = attend_cells(b, qkv[0], k, v, kind);
    plim_gg_expand(g, x);
    return add_linear(b, "attn_output", x, m->hidden, m->out_bias);
}

/* ---- the MLP --------------------------------------------------------------------------------------- */

static plim_gg add_mlp(const builder *b, plim_gg x)
{
    const plim_gg_model *m = b->m;
    plim_gg_graph *g = b->g;
    plim_gg up = add_linear(b, "ffn_up", x, (m->fused_gate ? 2 : 1) * m->ffn, m->mlp_bias);
    if (m->fused_gate)
        x = plim_gg_op(g, F32, m->ffn, plim_gg_dim(g, up, 1), 1, 1, &up, 1);
    else if (m->gated)
        x = plim_gg_make(g, add_linear(b, "ffn_gate", x, m->ffn, m->mlp_bias), up);
    else
        x = plim_gg_map(g, up, PLIM_NONE);
    return add_linear(b, "ffn_down", x, m->hidden, m->mlp_bias);
}

/* Which experts a token goes to, and their weights: a chain that the CUDA backend runs as one
 * kernel, so that all of it lives until the next tensor, a view of x. */
static void choose_experts(const builder *b, plim_gg *x, plim_gg *chosen, plim_gg *weights)
{
    enum { MOST = 10 };
    const plim_gg_model *m = b->m;
    plim_gg_graph *g = b->g;
    plim_gg t[MOST];
    uint32_t n = 0;
    int64_t tokens = plim_gg_dim(g, *x, 1);
    plim_gg logits = add_linear(b, "ffn_gate_inp", *x, m->experts, false);
    t[n++] = plim_gg_map(g, logits, PLIM_NONE);
    t[n++] = plim_gg_reshape(g, t[0], 1, m->experts, tokens);
    t[n++] = plim_gg_op(g, I32, m->experts, tokens, 1, 1, &t[0], 1);
    t[n++] = *chosen = plim_gg_part(g, t[2], m->used, tokens, 1, 1, 2);
    plim_gg w = plim_gg_op(g, F32, 1, m->used, tokens, 1, (plim_gg[]){t[1], *chosen}, 2);
    t[n++] = w;
    if (m->norm_weights) {
        t[n++] = w = plim_gg_reshape(g, w, m->used, tokens, 1);
        plim_gg sum = t[n++] = plim_gg_op(g, F32, 1, tokens, 1, 1, &w, 1);
        t[n++] = sum = plim_gg_map(g, sum, PLIM_NONE);
        t[n++] = w = plim_gg_map(g, w, sum);
        t[n++] = w = plim_gg_reshape(g, w, 1, m->used, tokens);
    }
    *weights = w;
    plim_gg_expand(g, w);
    *x = plim_gg_reshape(g, *x, m->hidden, 1, tokens);
    plim_gg_keep(g, t, n, true, *x);
}

static plim_gg add_experts(const builder *b, plim_gg x)
{
    enum { MOST = 256 };
    const plim_gg_model *m = b->m;
    plim_gg_graph *g = b->g;
    int64_t tokens = plim_gg_dim(g, x, 1);
    plim_gg chosen, w, part[MOST] = {PLIM_NONE};
    choose_experts(b, &x, &chosen, &w);
    plim_gg up = add_weight(b, "ffn_up_exps.weight", m->hidden, m->ffn, m->experts);
    plim_gg gate = add_weight(b, "ffn_gate_exps.weight", m->hidden, m->ffn, m->experts);
    plim_gg down = add_weight(b, "ffn_down_exps.weight", m->ffn, m->hidden, m->experts);
    plim_gg y = plim_gg_mul_mat_id(g, up, x, chosen);
    y = plim_gg_make(g, plim_gg_mul_mat_id(g, gate, x, chosen), y);
    plim_gg experts = plim_gg_mul_mat_id(g, down, y, chosen);
    y = plim_gg_map(g, experts, w);
    plim_gg_expand(g, y);
    for (int64_t i = 0; i < m->used && i < MOST; i++) {
        part[i] = plim_gg_part(g, y, m->hidden, tokens, 2, 1, 3);
        plim_gg_expand(g, part[i]);
    }
    plim_gg sum = part[0];
    for (int64_t i = 1; i < m->used && i < MOST; i++) {
        sum = plim_gg_map(g, sum, part[i]);
        plim_gg_expand(g, sum);
    }
    if (m->used == 1)
        return plim_gg_make(g, sum, PLIM_NONE);
    plim_gg_keep(g, (plim_gg[]){experts, w}, 2, false, sum);
    return sum;
}

/* ---- the model --------------------------------------------------------------------------------------- */

static plim_gg add_layer(const builder *b, int64_t i, plim_gg x)
{
    const plim_gg_model *m = b->m;
    plim_gg_graph *g = b->g;
    plim_gg y = add_attention(b, add_norm(b, x), m->windowed && m->windowed[i]);
    if (i == m->layers - 1) {
        y = plim_gg_get_rows(g, y, b->in.out_ids);
        x = plim_gg_get_rows(g, x, b->in.out_ids);
    }
    if (m->post_norms)
        y = add_norm(b, y);
    x = plim_gg_map(g, y, x);
    y = add_norm(b, x);
    y = m->experts ? add_experts(b, y) : add_mlp(b, y);
    if (m->post_norms)
        y = add_norm(b, y);
    return m->residual_first ? plim_gg_map(g, x, y) : plim_gg_map(g, y, x);
}

plim_gg_graph *plim_gg_build(plim_arena *a, const plim_gg_model *m, const plim_gg_context *c)
{
    enum { DEVICE_ALIGNMENT = 128, HOST_ALIGNMENT = 32 };
    const uint64_t alignment[] = {DEVICE_ALIGNMENT, HOST_ALIGNMENT};
    const plim_gg_place usual = c->card ? PLIM_GG_DEVICE : PLIM_GG_HOST;
    builder b = {.g = plim_gg_new(a, alignment, usual), .m = m, .c = c};
    if (!b.g)
        return NULL;
    plim_gg x = add_embedding(&b);
    if (m->scaled)
        x = plim_gg_map(b.g, x, PLIM_NONE);
    b.in.pos = plim_gg_input(b.g, I32, c->tokens, 1, 1, 1);
    add_cache_inputs(&b, false, c->cells);
    if (m->windowed)
        add_cache_inputs(&b, true, c->windowed_cells);
    b.in.out_ids = plim_gg_input(b.g, I32, c->outputs, 1, 1, 1);
    if (m->positions) {
        plim_gg table = plim_gg_weight(b.g, PLIM_GG_HOST, m->hidden, 1, 1, 0);
        x = plim_gg_map(b.g, plim_gg_get_rows(b.g, table, b.in.pos), x);
    }
    for (int64_t i = 0; i < m->layers; i++) {
        b.place = i < c->first ? PLIM_GG_HOST : usual;
        b.layer = i;
        x = add_layer(&b, i, x);
    }
    b.place = c->output_there ? usual : PLIM_GG_HOST;
    b.layer = -1;
    x = add_norm(&b, x);
    if (!m->encodes)
        x = add_linear(&b, m->tied ? "token_embd" : "output", x, m->vocab, false);
    for (int i = 0; m->final_softcap && i < 3; i++)
        x = plim_gg_map(b.g, x, PLIM_NONE);
    plim_gg_expand(b.g, x);
    return plim_gg_bad(b.g) ? NULL : b.g;
}
