/* hf_distilbert.c -- DistilBERT.
 * src: transformers 5.23 models/distilbert/modeling_distilbert.py */
#include "import/hf/hf_encoder.h"

typedef struct config {
    int64_t vocab, hidden, ffn, layers, heads, positions, chunk;
    double dropout, attention_dropout, sequence_dropout, answer_dropout;
    bool tie;
    plim_str act;
    plim_hf_labels labels;
} config;

static const double eps = 1e-12;

static uint32_t add_embeddings(plim_hf *h, const config *c, uint32_t *table)
{
    plim_nn *n = &h->n;
    uint32_t ids = plim_hf_ids(h);
    plim_nn_enter(n, "embeddings", "Embeddings");
    uint32_t where =
        plim_nn_temporary_buffer(n, "position_ids", PLIM_I64, INTS(1, c->positions));
    uint32_t x = plim_nn_embedding(n, "word_embeddings", ids, c->vocab, c->hidden, table);
    where = plim_nn_slice(n, where, 1, 0, h->seq, 1);
    where = plim_nn_embedding(n, "position_embeddings", where, c->positions, c->hidden, NULL);
    plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
    x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    x = plim_nn_layer_norm(n, "LayerNorm", x, eps);
    x = plim_nn_dropout(n, "dropout", x, c->dropout);
    plim_nn_leave(n);
    return x;
}

/* ---- a layer ------------------------------------------------------------------------ */

static uint32_t project_heads(plim_hf *h, const config *c, const char *name, uint32_t x)
{
    x = plim_nn_linear(&h->n, name, x, c->hidden, true);
    return plim_hf_split_heads(&h->n, x, c->hidden / c->heads);
}

static uint32_t add_attention(plim_hf *h, const config *c, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, "attention", "DistilBertSelfAttention");
    uint32_t q = project_heads(h, c, "q_lin", x), k = project_heads(h, c, "k_lin", x),
             v = project_heads(h, c, "v_lin", x);
    plim_nn_called(n, (uint32_t[]){q, k, v}, 3); /* variables, until it returns */
    x = plim_hf_full_attention(h, (plim_hf_attention){.q = q,
                                                      .k = k,
                                                      .v = v,
                                                      .mask = h->mask,
                                                      .dropout = c->attention_dropout,
                                                      .softmax = PLIM_HF_SOFTMAX_PLAIN});
    x = plim_nn_linear(n, "out_lin", x, c->hidden, true);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_layer(plim_hf *h, const config *c, int64_t i, uint32_t x)
{
    plim_nn *n = &h->n;
    plim_nn_enter(n, plim_nn_name(n, "layer.", i), "TransformerBlock");
    uint32_t before = x, attended = add_attention(h, c, x);
    x = plim_nn_binary(n, "aten.add.Tensor", attended, before);
    x = plim_nn_layer_norm(n, "sa_layer_norm", x, eps);
    plim_hf_end_variable(n, attended);
    plim_nn_called(n, (uint32_t[]){before, x}, 2); /* sa_output */
    plim_nn_enter(n, "ffn", "FFN");
    uint32_t y =
        plim_hf_mlp(h, (plim_hf_ffn){"lin1", "activation", "lin2"}, c->act, x, c->ffn, true);
    y = plim_nn_dropout(n, "dropout", y, c->dropout);
    plim_nn_leave(n);
    plim_nn_holds(n, y); /* ffn_output, until the norm's result replaces it */
    y = plim_nn_binary(n, "aten.add.Tensor", y, x);
    y = plim_nn_layer_norm(n, "output_layer_norm", y, eps);
    plim_nn_leave(n);
    return y;
}

/* In the open module. */
static uint32_t add_encoder(plim_hf *h, const config *c, uint32_t *table)
{
    plim_nn *n = &h->n;
    uint32_t x = add_embeddings(h, c, table);
    plim_hf_full_mask(h);
    plim_nn_enter(n, "transformer", "Transformer");
    for (int64_t i = 0; i < c->layers && !n->st; i++)
        x = add_layer(h, c, i, x);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_base(plim_hf *h, const config *c, uint32_t *table)
{
    plim_nn_enter(&h->n, "distilbert", "DistilBertModel");
    uint32_t x = add_encoder(h, c, table);
    plim_nn_leave(&h->n);
    return x;
}

/* ---- heads ---------------------------------------------------------------------------- */

static void masked_lm(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t table, x = add_base(h, c, &table);
    x = plim_nn_linear(n, "vocab_transform", x, c->hidden, true);
    x = plim_hf_act(h, "activation", c->act, x);
    x = plim_nn_layer_norm(n, "vocab_layer_norm", x, eps);
    x = plim_hf_tied_linear(n, "vocab_projector", x, c->vocab, c->tie ? table : PLIM_NONE,
                            PLIM_NONE);
    plim_hf_class_outputs(h, x, plim_hf_word_labels(h));
}

static void sequence_classification(plim_hf *h, const config *c)
{
    plim_nn *n = &h->n;
    uint32_t x = add_base(h, c, NULL);
    x = plim_nn_select(n, x, 1, 0);
    x = plim_nn_linear(n, "pre_classifier", x, c->hidden, true);
    x = plim_nn_unary(n, "aten.relu.default", x);
    x = plim_nn_dropout(n, "dropout", x, c->sequence_dropout);
    x = plim_nn_linear(n, "classifier", x, plim_hf_n_labels(h, &c->labels), true);
    plim_hf_sequence_outputs(h, x, &c->labels);
}

static void token_classification(plim_hf *h, const config *c)
{
    uint32_t x = add_base(h, c, NULL);
    x = plim_nn_dropout(&h->n, "dropout", x, c->dropout);
    x = plim_nn_linear(&h->n, "classifier", x, plim_hf_n_labels(h, &c->labels), true);
    plim_hf_class_outputs(h, x, PLIM_NONE);
}

static void question_answering(plim_hf *h, const config *c)
{
    uint32_t x = add_base(h, c, NULL);
    x = plim_nn_dropout(&h->n, "dropout", x, c->answer_dropout);
    x = plim_nn_linear(&h->n, "qa_outputs", x, plim_hf_n_labels(h, &c->labels), true);
    plim_hf_answer_outputs(h, x);
}

static void build_bare(plim_hf *h, const config *c)
{
    plim_nn_output(&h->n, add_encoder(h, c, NULL));
}

static const struct {
    const char *name;
    void (*build)(plim_hf *h, const config *c);
} heads[] = {
    {"ForMaskedLM", masked_lm},
    {"ForSequenceClassification", sequence_classification},
    {"ForTokenClassification", token_classification},
    {"ForQuestionAnswering", question_answering},
    {"Model", build_bare},
};

static void distilbert_build(plim_hf *h, const void *p)
{
    const config *c = p;
    plim_str head = plim_hf_class_head(h, "DistilBert");
    plim_hf_check_head_width(h, c->hidden, c->heads);
    plim_hf_refuse(h, c->chunk, "chunk_size_feed_forward");
    plim_hf_tokens(h, "input_ids", c->positions, true);
    plim_hf_root(h, "DistilBert");
    for (size_t i = 0; i < PLIM_COUNT(heads); i++)
        if (plim_str_is(head, heads[i].name))
            heads[i].build(h, c);
}

/* clang-format off */
static const plim_hf_key distilbert_keys[] = {
    HF_SIZE(vocab, "vocab_size", 30522),
    HF_SIZE(hidden, "dim hidden_size", 768),
    HF_SIZE(ffn, "hidden_dim", 3072),
    HF_LAYERS(layers, "n_layers num_hidden_layers", 6),
    HF_SIZE(heads, "n_heads num_attention_heads", 12),
    HF_SIZE(positions, "max_position_embeddings", 512),
    HF_OPTION(chunk, "chunk_size_feed_forward", 0),
    HF_SHARE(dropout, "dropout", 0.1),
    HF_SHARE(attention_dropout, "attention_dropout", 0.1),
    HF_SHARE(sequence_dropout, "seq_classif_dropout", 0.2),
    HF_SHARE(answer_dropout, "qa_dropout", 0.1),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_WORD(act, "activation", "gelu"),
    HF_LABELS(labels),
};
/* clang-format on */

static const plim_hf_family distilbert_families[] = {
    {"distilbert",
     "DistilBertForMaskedLM DistilBertForSequenceClassification "
     "DistilBertForTokenClassification DistilBertForQuestionAnswering DistilBertModel",
     NULL, NULL}};

const plim_hf_group plim_hf_distilbert = {
    .doc = "DistilBERT",
    .src = "transformers 5.23 models/distilbert",
    .families = distilbert_families,
    .n_families = PLIM_COUNT(distilbert_families),
    .keys = distilbert_keys,
    .n_keys = PLIM_COUNT(distilbert_keys),
    .size = sizeof(config),
    .build = distilbert_build,
};
