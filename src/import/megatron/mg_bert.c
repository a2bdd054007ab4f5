/* mg_bert.c -- Megatron-LM's BertModel: see mg_parts.h.
 *
 * Every stage has the whole batch.
 * src: megatron-core 0.16 models/bert; Megatron-LM d98e8a64 examples/bert/pretrain_bert.py */
#include "import/megatron/mg_parts.h"

typedef struct batch {
    uint32_t tokens, types, labels, order, counts, mask;
} batch;

/* bert_extended_attention_mask */
static uint32_t extend_mask(plim_mg *b, uint32_t padding)
{
    plim_nn *n = &b->n;
    uint32_t x = plim_nn_unsqueeze(n, padding, 1);
    if (!b->te)
        x = plim_nn_binary(n, "aten.mul.Tensor", x, plim_nn_unsqueeze(n, padding, 2));
    x = plim_nn_unsqueeze(n, x, 1);
    x = NN_OP(n, "aten.lt.Scalar", ARG_T("self", x), ARG_F("other", 0.5));
    plim_nn_holds(n, x);
    return x;
}

static batch add_batch(plim_mg *b)
{
    plim_ints size = INTS(b->batch, b->seq);
    plim_mg_batch all = plim_mg_pack(b, 5 * b->batch * b->seq + b->batch);
    batch in;
    in.tokens = plim_mg_unpack(b, &all, size);
    in.types = plim_mg_unpack(b, &all, size);
    in.labels = plim_mg_unpack(b, &all, size);
    in.order = plim_mg_unpack(b, &all, INTS(b->batch));
    in.counts = plim_nn_to(&b->n, plim_mg_unpack(b, &all, size), PLIM_F32);
    plim_nn_holds(&b->n, in.counts);
    in.mask = extend_mask(b, plim_mg_unpack(b, &all, size));
    return in;
}

static uint32_t add_embedding(plim_mg *b, const batch *in)
{
    return plim_mg_embedding(b, in->tokens, plim_mg_positions(b, b->seq),
                             b->c.no_pairs ? PLIM_NONE : in->types);
}

/* The first token of each sequence. */
static uint32_t add_pooler(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "pooler", "Pooler");
    if (b->divided)
        x = NN_OP(n, "plimsoll.megatron_gather.default", ARG_T("self", x),
                  ARG_I("parts", b->r->part.weights));
    x = plim_nn_linear(n, "dense", plim_nn_select(n, x, 0, 0), b->c.hidden, true);
    x = plim_nn_unary(n, "aten.tanh.default", x);
    plim_nn_leave(n);
    return x;
}

static uint32_t add_lm_head(plim_mg *b, uint32_t x)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "lm_head", "BertLMHead");
    x = plim_nn_linear(n, "dense", x, b->c.hidden, true);
    x = plim_nn_unary(n, "aten.gelu.default", x);
    x = plim_mg_norm(b, "layer_norm", x);
    plim_nn_leave(n);
    return x;
}

/* Whether one sentence follows the other. */
static uint32_t add_order_loss(plim_mg *b, uint32_t logits, uint32_t order)
{
    plim_nn *n = &b->n;
    logits = plim_nn_to(n, plim_nn_view(n, logits, INTS(-1, 2)), PLIM_F32);
    return NN_OP(n, "aten.cross_entropy_loss.default", ARG_T("self", logits),
                 ARG_T("target", plim_nn_view(n, order, INTS(-1))), ARG_I("ignore_index", -1));
}

static uint32_t add_heads(plim_mg *b, uint32_t x, bool has_table, const batch *in)
{
    plim_nn *n = &b->n;
    bool pairs = !b->c.no_pairs;
    uint32_t pooled = pairs ? add_pooler(b, x) : PLIM_NONE, order = PLIM_NONE;
    x = plim_mg_head(b, add_lm_head(b, x), has_table, true);
    if (pairs)
        order = plim_nn_linear(n, "binary_head", pooled, 2, true);
    if (n->infer)
        return x;
    x = plim_mg_loss(b, x, in->labels, in->counts);
    x = plim_nn_binary(n, "aten.div.Tensor", x,
                       plim_nn_unary(n, "aten.sum.default", in->counts));
    return pairs ? plim_nn_binary(n, "aten.add.Tensor", x, add_order_loss(b, order, in->order))
                 : x;
}

static uint32_t add_stage(plim_mg *b, plim_mg_place at, uint32_t *received)
{
    batch in = add_batch(b);
    plim_nn_order(&b->n, "embedding encoder lm_head output_layer binary_head pooler");
    uint32_t x = at.first ? add_embedding(b, &in) : (*received = plim_mg_received(b));
    plim_mg_frequencies(b);
    x = plim_mg_block(b, "encoder", at.layers, at.last, x,
                      (plim_mg_mask){true, in.mask, in.mask}, NULL);
    return at.last ? add_heads(b, x, at.first, &in) : x;
}

/* What the modules are is said by --spec, not by --transformer-impl. */
static plim_status complete_args(plim_mg_args *c, plim_err *err)
{
    bool local = plim_str_is(c->spec, "local");
    c->impl = local ? PLIM_STR("local") : PLIM_STR("transformer_engine");
    c->qk_norm = false; /* the specs have none */
    if (c->spec.n && !local)
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "--spec is not simulated, but 'local'");
    return c->experts || c->latent
               ? plim_fail(err, PLIM_EUNSUPPORTED, 0, "--%s is simulated for GPT only",
                           c->latent ? "multi-latent-attention" : "num-experts")
               : PLIM_OK;
}

const plim_mg_model plim_mg_bert = {
    .script = "pretrain_bert.py",
    .type = "BertModel",
    .name = "megatron_bert",
    .blocks = {"encoder"},
    .tokenizer = "BertWordPieceLowerCase",
    .stages = true,
    .complete = complete_args,
    .add_stage = add_stage,
};
