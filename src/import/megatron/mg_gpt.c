/* mg_gpt.c -- Megatron-LM's GPTModel: see mg_parts.h.
 *
 * src: megatron-core 0.16 models/gpt; Megatron-LM d98e8a64 pretrain_gpt.py */
#include "import/megatron/mg_parts.h"

typedef struct batch {
    uint32_t tokens, labels, counts, mask, positions;
} batch;

/* Stages between the first and the last have no batch. */
static batch add_batch(plim_mg *b, plim_mg_place at)
{
    plim_nn *n = &b->n;
    batch in = {PLIM_NONE, PLIM_NONE, PLIM_NONE, PLIM_NONE, PLIM_NONE};
    plim_ints size = INTS(b->batch, b->seq);
    if (at.first)
        in.tokens = plim_nn_input(n, "tokens", PLIM_I64, size);
    if (at.last && !n->infer) {
        in.labels = plim_nn_input(n, "labels", PLIM_I64, size);
        in.counts = plim_nn_input(n, "loss_mask", PLIM_F32, size);
    }
    if ((at.first || at.last) && !b->c.no_mask)
        in.mask =
            plim_nn_input(n, "attention_mask", PLIM_BOOL,
                          INTS(b->batch, 1, b->seq, plim_dim_mul(b->seq, b->r->contexts)));
    if (at.first)
        in.positions = plim_nn_input(n, "position_ids", PLIM_I64, size);
    return in;
}

/* Its layers are numbered from 0. */
static uint32_t add_stage(plim_mg *b, plim_mg_place at, uint32_t *received)
{
    batch in = add_batch(b, at);
    uint32_t x = at.first ? plim_mg_embedding(b, in.tokens, in.positions, PLIM_NONE)
                          : (*received = plim_mg_received(b));
    plim_mg_frequencies(b);
    x = plim_mg_block(b, "decoder", at.layers, at.last, x,
                      (plim_mg_mask){false, PLIM_NONE, in.mask}, NULL);
    if (!at.last)
        return x;
    x = plim_mg_head(b, x, at.first, false);
    return b->n.infer ? x : plim_mg_loss(b, x, in.labels, in.counts);
}

static plim_status complete_args(plim_mg_args *c, plim_err *err)
{
    return c->spec.n ? plim_fail(err, PLIM_EUNSUPPORTED, 0, "--spec is not simulated for GPT")
                     : PLIM_OK;
}

const plim_mg_model plim_mg_gpt = {
    .script = "pretrain_gpt.py",
    .type = "GPTModel",
    .name = "megatron_gpt",
    .blocks = {"decoder"},
    .tokenizer = "GPT2BPETokenizer",
    .contexts = true,
    .stages = true,
    .complete = complete_args,
    .add_stage = add_stage,
};
