/* hf_bert.c -- BERT and models with its layers: RoBERTa and ELECTRA.
 * src: transformers 5.23 models/{bert,roberta,electra}/ */
#include "import/hf/hf_encoder.h"

typedef struct config {
    int64_t vocab, embedding, hidden, ffn, layers, heads, positions, types, pad, chunk;
    double eps, dropout, attention_dropout;
    bool tie, decoder, cross;
    plim_str act, classifier_dropout;
    plim_hf_labels labels;
} config;

typedef struct bert bert;

/* Peculiarities of a model type. */
typedef struct row {
    const char *prefix, *base; /* of its classes; the encoder's name in a class with a head */
    bool counted;              /* positions are computed from the tokens, skipping padding */
    bool pooler;               /* the bare encoder has one */
    bool pooled_head;          /* sequences are classified from its output */
    const char *head_act;      /* else by a head with this activation; NULL: torch.tanh */
    uint32_t (*masked_lm)(const bert *b, uint32_t x, uint32_t table);
} row;

struct bert {
    plim_hf *h;
    plim_nn *n;
    const config *c;
    const row *r;
};

static void enter_module(const bert *b, const char *name, const char *type)
{
    plim_nn_enter(b->n, name, plim_nn_join(b->n, b->r->prefix, type));
}

/* ---- embeddings ------------------------------------------------------------------- */

/* create_position_ids_from_input_ids */
static uint32_t count_positions(const bert *b, uint32_t ids)
{
    plim_nn *n = b->n;
    uint32_t mask = NN_OP(n, "aten.ne.Scalar", ARG_T("self", ids), ARG_I("other", b->c->pad));
    mask = plim_nn_to(n, mask, PLIM_I32);
    uint32_t p = NN_OP(n, "aten.cumsum.default", ARG_T("self", mask), ARG_I("dim", 1));
    p = plim_nn_to_like(n, p, mask);
    p = plim_nn_scalar(n, "aten.add.Tensor", p, 0);
    p = plim_nn_binary(n, "aten.mul.Tensor", p, mask);
    p = plim_nn_to(n, p, PLIM_I64);
    return plim_nn_scalar(n, "aten.add.Tensor", p, (double)b->c->pad);
}

static uint32_t add_embeddings(const bert *b, uint32_t ids, uint32_t *table)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    int64_t width = c->embedding ? c->embedding : c->hidden;
    plim_ints all = INTS(1, c->positions);
    enter_module(b, "embeddings", "Embeddings");
    plim_nn_order(n, b->r->counted ? "word_embeddings token_type_embeddings LayerNorm *"
                                   : "word_embeddings position_embeddings *");
    uint32_t where = plim_nn_temporary_buffer(n, "position_ids", PLIM_I64, all);
    uint32_t type = plim_nn_temporary_buffer(n, "token_type_ids", PLIM_I64, all);
    where =
        b->r->counted ? count_positions(b, ids) : plim_nn_slice(n, where, 1, 0, b->h->seq, 1);
    if (b->h->version < PLIM_HF_SINCE_GATHERED_TYPES) {
        type = plim_nn_slice(n, type, 1, 0, b->h->seq, 1);
    } else {
        type = plim_nn_expand(n, type, INTS(plim_nn_dim(n, where, 0), -1));
        type = NN_OP(n, "aten.gather.default", ARG_T("self", type), ARG_I("dim", 1),
                     ARG_T("index", where));
    }
    type = plim_nn_expand(n, type, INTS(b->h->batch, b->h->seq));
    uint32_t x = plim_nn_embedding(n, "word_embeddings", ids, c->vocab, width, table);
    type = plim_nn_embedding(n, "token_type_embeddings", type, c->types, width, NULL);
    uint32_t words = x;
    x = plim_nn_binary(n, "aten.add.Tensor", x, type);
    where = plim_nn_embedding(n, "position_embeddings", where, c->positions, width, NULL);
    plim_nn_called(n, (uint32_t[]){words, type, where}, 3); /* until it returns */
    x = plim_nn_binary(n,
                       b->h->version < PLIM_HF_SINCE_GATHERED_TYPES ? "aten.add_.Tensor"
                                                                    : "aten.add.Tensor",
                       x, where);
    x = plim_nn_layer_norm(n, "LayerNorm", x, c->eps);
    x = plim_nn_dropout(n, "dropout", x, c->dropout);
    plim_nn_leave(n);
    return x;
}

/* ---- a layer ------------------------------------------------------------------------- */

/* Linear, dropout, and a norm of the sum with the block's input. */
static uint32_t add_output(const bert *b, const char *type, uint32_t x, uint32_t before)
{
    plim_nn *n = b->n;
    enter_module(b, "output", type);
    x = plim_nn_linear(n, "dense", x, b->c->hidden, true);
    uint32_t hidden = plim_nn_dropout(n, "dropout", x, b->c->dropout);
    plim_nn_called(n, &hidden, 1); /* until LayerNorm's result replaces it */
    x = plim_nn_binary(n, "aten.add.Tensor", hidden, before);
    x = plim_nn_layer_norm(n, "LayerNorm", x, b->c->eps);
    plim_nn_leave(n);
    return x;
}

static uint32_t project_heads(const bert *b, const char *name, uint32_t x)
{
    x = plim_nn_linear(b->n, name, x, b->c->hidden, true);
    return plim_hf_split_heads(b->n, x, b->c->hidden / b->c->heads);
}

static uint32_t add_attention(const bert *b, uint32_t x)
{
    plim_nn *n = b->n;
    enter_module(b, "attention", "Attention");
    enter_module(b, "self", "SelfAttention");
    uint32_t q = project_heads(b, "query", x), k = project_heads(b, "key", x),
             v = project_heads(b, "value", x);
    plim_nn_called(n, (uint32_t[]){q, k, v}, 3); /* variables, until it returns */
    uint32_t y =
        plim_hf_full_attention(b->h, (plim_hf_attention){.q = q,
                                                         .k = k,
                                                         .v = v,
                                                         .mask = b->h->mask,
                                                         .dropout = b->c->attention_dropout,
                                                         .softmax = PLIM_HF_SOFTMAX_PLAIN,
                                                         .keeps_scores = true,
                                                         .through = 1});
    plim_nn_leave(n);
    y = add_output(b, "SelfOutput", y, x);
    plim_nn_leave(n);
    return y;
}

static uint32_t add_layer(const bert *b, int64_t i, uint32_t x)
{
    plim_nn *n = b->n;
    enter_module(b, plim_nn_name(n, "layer.", i), "Layer");
    plim_nn_called(n, &x, 1);
    x = add_attention(b, x);
    plim_nn_holds(n, x); /* attention_output */
    enter_module(b, "intermediate", "Intermediate");
    uint32_t y = plim_nn_linear(n, "dense", x, b->c->ffn, true);
    y = plim_hf_act(b->h, "intermediate_act_fn", b->c->act, y);
    plim_nn_leave(n);
    y = add_output(b, "Output", y, x);
    plim_nn_leave(n);
    return y;
}

/* ---- the encoder, in the module that is open -------------------------------------------- */

static uint32_t add_encoder(const bert *b, uint32_t *table)
{
    plim_nn *n = b->n;
    uint32_t x = add_embeddings(b, plim_hf_ids(b->h), table);
    if (b->c->embedding && b->c->embedding != b->c->hidden)
        x = plim_nn_linear(n, "embeddings_project", x, b->c->hidden, true);
    plim_hf_full_mask(b->h);
    enter_module(b, "encoder", "Encoder");
    for (int64_t i = 0; i < b->c->layers && !n->st; i++)
        x = add_layer(b, i, x);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_pooler(const bert *b, uint32_t x)
{
    enter_module(b, "pooler", "Pooler");
    x = plim_nn_select(b->n, x, 1, 0);
    x = plim_nn_linear(b->n, "dense", x, b->c->hidden, true);
    x = plim_nn_act(b->n, "activation", x, PLIM_TANH);
    plim_nn_leave(b->n);
    return x;
}

/* The encoder in a class with a head. */
static uint32_t add_base(const bert *b, bool pooled, uint32_t *table)
{
    enter_module(b, b->r->base, "Model");
    uint32_t x = add_encoder(b, table);
    uint32_t y = pooled ? add_pooler(b, x) : x;
    plim_nn_leave(b->n);
    plim_nn_holds(b->n, x); /* the head's variables: outputs, and what it takes of them */
    plim_nn_holds(b->n, y);
    return y;
}

/* ---- heads --------------------------------------------------------------------------------- */

static double classifier_dropout(const bert *b)
{
    return plim_hf_share_or(b->h, "classifier_dropout", b->c->classifier_dropout,
                            b->c->dropout);
}

static uint32_t bert_masked_lm(const bert *b, uint32_t x, uint32_t table)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    enter_module(b, "cls", "OnlyMLMHead");
    enter_module(b, "predictions", "LMPredictionHead");
    uint32_t bias = plim_nn_param(n, "bias", INTS(c->vocab));
    enter_module(b, "transform", "PredictionHeadTransform");
    x = plim_nn_linear(n, "dense", x, c->hidden, true);
    x = plim_hf_act(b->h, "transform_act_fn", c->act, x);
    x = plim_nn_layer_norm(n, "LayerNorm", x, c->eps);
    plim_nn_leave(n);
    x = plim_hf_tied_linear(n, "decoder", x, c->vocab, table, c->tie ? bias : PLIM_NONE);
    plim_nn_leave(n);
    plim_nn_leave(n);
    return x;
}

static uint32_t roberta_masked_lm(const bert *b, uint32_t x, uint32_t table)
{
    const config *c = b->c;
    plim_nn *n = b->n;
    enter_module(b, "lm_head", "LMHead");
    uint32_t bias = plim_nn_param(n, "bias", INTS(c->vocab));
    x = plim_nn_linear(n, "dense", x, c->hidden, true);
    x = plim_nn_unary(n, "aten.gelu.default", x);
    x = plim_nn_layer_norm(n, "layer_norm", x, c->eps);
    x = plim_hf_tied_linear(n, "decoder", x, c->vocab, table, c->tie ? bias : PLIM_NONE);
    plim_nn_leave(n);
    return x;
}

static uint32_t electra_masked_lm(const bert *b, uint32_t x, uint32_t table)
{
    plim_nn *n = b->n;
    enter_module(b, "generator_predictions", "GeneratorPredictions");
    plim_nn_order(n, "LayerNorm dense");
    x = plim_nn_linear(n, "dense", x, b->c->embedding, true);
    x = plim_hf_act(b->h, "activation", PLIM_STR("gelu"), x);
    x = plim_nn_layer_norm(n, "LayerNorm", x, b->c->eps);
    plim_nn_leave(n);
    return plim_hf_tied_linear(n, "generator_lm_head", x, b->c->vocab, table, PLIM_NONE);
}

static void masked_lm(const bert *b)
{
    uint32_t table, x = add_base(b, false, &table);
    x = b->r->masked_lm(b, x, b->c->tie ? table : PLIM_NONE);
    plim_hf_class_outputs(b->h, x, plim_hf_word_labels(b->h));
}

static uint32_t classification_head(const bert *b, uint32_t x, int64_t labels)
{
    plim_nn *n = b->n;
    double p = classifier_dropout(b);
    enter_module(b, "classifier", "ClassificationHead");
    x = plim_nn_select(n, x, 1, 0);
    x = plim_nn_dropout(n, "dropout", x, p);
    x = plim_nn_linear(n, "dense", x, b->c->hidden, true);
    x = b->r->head_act ? plim_hf_act(b->h, "activation", plim_str_of(b->r->head_act), x)
                       : plim_nn_unary(n, "aten.tanh.default", x);
    x = plim_nn_dropout(n, "dropout", x, p);
    x = plim_nn_linear(n, "out_proj", x, labels, true);
    plim_nn_leave(n);
    return x;
}

static void sequence_classification(const bert *b)
{
    int64_t labels = plim_hf_n_labels(b->h, &b->c->labels);
    uint32_t x = add_base(b, b->r->pooled_head, NULL);
    if (b->r->pooled_head) {
        x = plim_nn_dropout(b->n, "dropout", x, classifier_dropout(b));
        x = plim_nn_linear(b->n, "classifier", x, labels, true);
    } else {
        x = classification_head(b, x, labels);
    }
    plim_hf_sequence_outputs(b->h, x, &b->c->labels);
}

static void token_classification(const bert *b)
{
    uint32_t x = add_base(b, false, NULL);
    x = plim_nn_dropout(b->n, "dropout", x, classifier_dropout(b));
    x = plim_nn_linear(b->n, "classifier", x, plim_hf_n_labels(b->h, &b->c->labels), true);
    plim_hf_class_outputs(b->h, x, PLIM_NONE);
}

static void question_answering(const bert *b)
{
    uint32_t x = add_base(b, false, NULL);
    x = plim_nn_linear(b->n, "qa_outputs", x, plim_hf_n_labels(b->h, &b->c->labels), true);
    plim_hf_answer_outputs(b->h, x);
}

/* ELECTRA's: predicts whether a token was replaced. */
static void pre_training(const bert *b)
{
    plim_nn *n = b->n;
    uint32_t x = add_base(b, false, NULL);
    enter_module(b, "discriminator_predictions", "DiscriminatorPredictions");
    x = plim_nn_linear(n, "dense", x, b->c->hidden, true);
    x = plim_hf_act(b->h, "activation", b->c->act, x);
    x = plim_nn_linear(n, "dense_prediction", x, 1, true);
    x = NN_OP(n, "aten.squeeze.dim", ARG_T("self", x), ARG_I("dim", -1));
    plim_nn_leave(n);
    if (!n->infer) {
        uint32_t labels = plim_nn_input(n, "labels", PLIM_I64, INTS(b->h->batch, b->h->seq));
        uint32_t y = plim_nn_view(n, x, INTS(-1, b->h->seq));
        labels = plim_nn_to(n, labels, PLIM_F32);
        plim_nn_output(n, NN_OP(n, "aten.binary_cross_entropy_with_logits.default",
                                ARG_T("self", y), ARG_T("target", labels)));
    }
    plim_nn_output(n, x);
}

static void build_bare(const bert *b)
{
    uint32_t x = add_encoder(b, NULL);
    plim_nn_output(b->n, x);
    if (b->r->pooler)
        plim_nn_output(b->n, add_pooler(b, x));
}

static const struct {
    const char *name;
    void (*build)(const bert *b);
} heads[] = {
    {"ForMaskedLM", masked_lm},
    {"ForSequenceClassification", sequence_classification},
    {"ForTokenClassification", token_classification},
    {"ForQuestionAnswering", question_answering},
    {"ForPreTraining", pre_training},
    {"Model", build_bare},
};

static void bert_build(plim_hf *h, const void *p)
{
    const config *c = p;
    bert b = {.h = h, .n = &h->n, .c = c, .r = h->family->row};
    plim_str head = plim_hf_class_head(h, b.r->prefix);
    plim_hf_check_head_width(h, c->hidden, c->heads);
    plim_hf_refuse(h, c->decoder, "is_decoder");
    plim_hf_refuse(h, c->cross, "add_cross_attention");
    plim_hf_refuse(h, c->chunk, "chunk_size_feed_forward");
    plim_hf_tokens(h, "input_ids", b.r->counted ? c->positions - c->pad - 1 : c->positions,
                   true);
    plim_hf_root(h, b.r->prefix);
    for (size_t i = 0; i < PLIM_COUNT(heads); i++)
        if (plim_str_is(head, heads[i].name))
            heads[i].build(&b);
}

/* ---- configurations --------------------------------------------------------------------------- */

/* clang-format off */
static const plim_hf_key bert_keys[] = {
    HF_SIZE(vocab, "vocab_size", 30522),
    HF_GIVEN(embedding, "embedding_size"),
    HF_SIZE(hidden, "hidden_size", 768),
    HF_SIZE(ffn, "intermediate_size", 3072),
    HF_LAYERS(layers, "num_hidden_layers", 12),
    HF_SIZE(heads, "num_attention_heads", 12),
    HF_SIZE(positions, "max_position_embeddings", 512),
    HF_SIZE(types, "type_vocab_size", 2),
    HF_OPTION(pad, "pad_token_id", 0),
    HF_OPTION(chunk, "chunk_size_feed_forward", 0),
    HF_REAL(eps, "layer_norm_eps", 1e-12),
    HF_SHARE(dropout, "hidden_dropout_prob", 0.1),
    HF_SHARE(attention_dropout, "attention_probs_dropout_prob", 0.1),
    HF_RAW(classifier_dropout, "classifier_dropout"),
    HF_BOOL(tie, "tie_word_embeddings", 1),
    HF_BOOL(decoder, "is_decoder", 0),
    HF_BOOL(cross, "add_cross_attention", 0),
    HF_WORD(act, "hidden_act", "gelu"),
    HF_LABELS(labels),
};

HF_DEFAULTS(roberta_defaults, HF_IS("vocab_size", 50265), HF_IS("pad_token_id", 1));
HF_DEFAULTS(electra_defaults, HF_IS("embedding_size", 128), HF_IS("hidden_size", 256), HF_IS("num_attention_heads", 4),
            HF_IS("intermediate_size", 1024));

#define HEADS(prefix) prefix "ForMaskedLM " prefix "ForSequenceClassification " prefix "ForTokenClassification " \
    prefix "ForQuestionAnswering " prefix "Model"
#define ROW(...) .row = &(const row){__VA_ARGS__}
static const plim_hf_family bert_families[] = {
    {"bert", HEADS("Bert"), NULL,
     ROW(.prefix = "Bert", .base = "bert", .pooler = true, .pooled_head = true, .masked_lm = bert_masked_lm)},
    {"roberta", HEADS("Roberta"), roberta_defaults,
     ROW(.prefix = "Roberta", .base = "roberta", .counted = true, .pooler = true, .masked_lm = roberta_masked_lm)},
    {"electra", HEADS("Electra") " ElectraForPreTraining", electra_defaults,
     ROW(.prefix = "Electra", .base = "electra", .head_act = "gelu", .masked_lm = electra_masked_lm)},
};
/* clang-format on */

const plim_hf_group plim_hf_bert = {
    .doc = "BERT, RoBERTa and ELECTRA",
    .src = "transformers 5.23 models/{bert,roberta,electra}",
    .families = bert_families,
    .n_families = PLIM_COUNT(bert_families),
    .keys = bert_keys,
    .n_keys = PLIM_COUNT(bert_keys),
    .size = sizeof(config),
    .build = bert_build,
};
