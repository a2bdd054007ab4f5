/* mg_t5.c -- Megatron-LM's T5Model, which has no pipelines: see mg_parts.h.
 *
 * src: megatron-core 0.16 models/T5, datasets/t5_dataset.py; Megatron-LM d98e8a64 examples/t5/pretrain_t5.py */
#include "import/megatron/mg_parts.h"

typedef struct batch {
    uint32_t tokens, decoded, labels, counts;
    plim_mg_mask encoder, decoder, cross;
} batch;

/* What is padded of a sequence; of all pairs for local attention. */
static uint32_t add_mask(plim_mg *b, const char *name, int64_t queries, int64_t keys)
{
    uint32_t x =
        plim_nn_input(&b->n, name, PLIM_BOOL, INTS(b->batch, 1, b->te ? 1 : queries, keys));
    if (x != PLIM_NONE)
        plim_nn_holds(&b->n, x);
    return x;
}

/* Transformer Engine's causal attention needs no mask. */
static batch add_batch(plim_mg *b)
{
    int64_t seq = b->seq, decoded = b->c.decoder_seq;
    plim_ints size = INTS(b->batch, seq), size_decoded = INTS(b->batch, decoded);
    plim_mg_batch all = plim_mg_pack(b, b->batch * (2 * seq + 4 * decoded));
    batch in;
    in.tokens = plim_mg_unpack(b, &all, size);
    in.decoded = plim_mg_unpack(b, &all, size_decoded);
    in.labels = plim_mg_unpack(b, &all, size_decoded);
    in.counts = plim_nn_to(&b->n, plim_mg_unpack(b, &all, size_decoded), PLIM_F32);
    plim_nn_holds(&b->n, in.counts);
    uint32_t encoder = add_mask(b, "encoder_mask", seq, seq),
             decoder = add_mask(b, "decoder_mask", decoded, decoded),
             cross = b->te ? encoder : add_mask(b, "encoder_decoder_mask", decoded, seq);
    in.encoder = (plim_mg_mask){true, encoder, encoder};
    in.decoder = (plim_mg_mask){false, PLIM_NONE, b->te ? PLIM_NONE : decoder};
    in.cross = (plim_mg_mask){true, decoder, cross};
    return in;
}

static uint32_t add_tokens(plim_mg *b, uint32_t ids, int64_t tokens)
{
    return plim_mg_embedding(b, ids, plim_mg_positions(b, tokens), PLIM_NONE);
}

static uint32_t add_stage(plim_mg *b, plim_mg_place at, uint32_t *received)
{
    plim_nn *n = &b->n;
    batch in = add_batch(b);
    (void)received;
    uint32_t x = add_tokens(b, in.tokens, b->seq);
    x = plim_mg_block(b, "encoder", at.layers, true, x, in.encoder, NULL);
    plim_mg_context context = {x, in.cross};
    plim_nn_holds(n, x);
    x = add_tokens(b, in.decoded, b->c.decoder_seq);
    x = plim_mg_block(b, "decoder", at.layers, true, x, in.decoder, &context);
    plim_nn_enter(n, "lm_head", "T5LMHead");
    x = plim_mg_head(b, x, true, !b->c.untied);
    plim_nn_leave(n);
    return n->infer ? x : plim_mg_loss(b, x, in.labels, in.counts);
}

/* The decoder has as many layers as the encoder, whatever --decoder-num-layers says. */
static plim_status complete_args(plim_mg_args *c, plim_err *err)
{
    const struct {
        bool given;
        const char *what;
    } refused[] = {
        {c->experts > 0, "--num-experts is"},
        {c->latent, "--multi-latent-attention is"},
        {c->groups != c->heads, "--group-query-attention is"},
        {!plim_str_is(c->position, "learned_absolute"), "--position-embedding-type is"},
        {c->spec.n > 0, "--spec is"},
        {!c->decoder_seq, "a model without --decoder-seq-length is"},
    };
    c->qk_norm = false; /* the specs have none */
    for (size_t i = 0; i < PLIM_COUNT(refused); i++)
        if (refused[i].given)
            return plim_fail(err, PLIM_EUNSUPPORTED, 0, "%s not simulated for T5",
                             refused[i].what);
    return c->decoder_seq > c->positions
               ? plim_fail(err, PLIM_EUSAGE, 0,
                           "--decoder-seq-length %" PRId64 " is more than "
                           "--max-position-embeddings, %" PRId64,
                           c->decoder_seq, c->positions)
               : PLIM_OK;
}

const plim_mg_model plim_mg_t5 = {
    .script = "pretrain_t5.py",
    .type = "T5Model",
    .name = "megatron_t5",
    .blocks = {"encoder", "decoder"},
    .tokenizer = "BertWordPieceLowerCase",
    .complete = complete_args,
    .add_stage = add_stage,
};
