/* mg_ends.c -- what the first and the last stage of Megatron-LM's models have: see mg_parts.h.
 *
 * src: megatron-core 0.16 models/common/embeddings, models/common/language_module, tensor_parallel */
#include "import/megatron/mg_parts.h"

/* The first and the last stage add up the gradients of the table that both have. */
static void share_table(plim_mg *b, uint32_t table)
{
    if (!b->c.untied && b->r->part.stages > 1 && table != PLIM_NONE)
        b->n.g->values[table].shared = true;
}

static uint32_t look_up(plim_mg *b, uint32_t ids)
{
    plim_nn *n = &b->n;
    return b->c.deterministic ? NN_OP(n, "aten.index.Tensor", ARG_T("self", b->table),
                                      ARG_TS("indices", &ids, 1))
                              : plim_nn_embedding_op(n, ids, b->table);
}

/* Rows of the table, which is divided among ranks. */
static uint32_t embed_part(plim_mg *b, uint32_t ids)
{
    plim_nn *n = &b->n;
    uint32_t below = NN_OP(n, "aten.lt.Scalar", ARG_T("self", ids), ARG_I("other", 0));
    uint32_t above =
        NN_OP(n, "aten.ge.Scalar", ARG_T("self", ids), ARG_I("other", b->r->vocab));
    uint32_t mask = plim_nn_binary(n, "aten.__or__.Tensor", below, above);
    ids = plim_nn_scalar(n, "aten.sub.Tensor", plim_nn_unary(n, "aten.clone.default", ids), 0);
    uint32_t x = look_up(b, ids);
    mask = plim_nn_unsqueeze(n, mask, -1);
    return NN_OP(n, "aten.masked_fill_.Scalar", ARG_T("self", x), ARG_T("mask", mask),
                 ARG_F("value", 0));
}

/* A table that every rank has whole; a second call takes the same one. */
static uint32_t look_up_whole(plim_mg *b, const char *name, uint32_t ids, int64_t rows,
                              uint32_t *table)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, name, "Embedding");
    if (*table == PLIM_NONE)
        *table = plim_nn_param(n, "weight", INTS(rows, b->c.hidden));
    uint32_t x = plim_nn_embedding_op(n, ids, *table);
    plim_nn_leave(n);
    return x;
}

/* The types' rows are [batch, tokens, features]. */
static uint32_t add_types(plim_mg *b, uint32_t x, uint32_t types)
{
    enum { TYPES = 2 };
    plim_nn *n = &b->n;
    uint32_t y = look_up_whole(b, "tokentype_embeddings", types, TYPES, &b->types);
    y = plim_nn_permute(n, y, INTS(1, 0, 2));
    plim_nn_holds(n, y);
    return plim_nn_binary(n, "aten.add.Tensor", x, y);
}

/* Rows of the words, which tensor-parallel ranks share out. */
static uint32_t look_up_words(plim_mg *b, uint32_t ids, bool scatters)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "word_embeddings", "VocabParallelEmbedding");
    if (b->table == PLIM_NONE) {
        b->table = plim_nn_param(n, "weight", INTS(b->r->vocab, b->c.hidden));
        share_table(b, b->table);
    }
    uint32_t x = b->r->part.weights > 1 ? embed_part(b, ids) : look_up(b, ids);
    if (scatters) {
        x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
        x = NN_OP(n, "plimsoll.megatron_scatter.default", ARG_T("self", x),
                  ARG_I("parts", b->r->part.weights));
    }
    plim_nn_leave(n);
    return x;
}

uint32_t plim_mg_positions(plim_mg *b, int64_t tokens)
{
    plim_nn *n = &b->n;
    uint32_t at = plim_nn_unsqueeze(n, plim_nn_arange(n, tokens), 0);
    at = plim_nn_expand(n, at, INTS(b->batch, tokens));
    plim_nn_holds(n, at);
    return at;
}

uint32_t plim_mg_embedding(plim_mg *b, uint32_t ids, uint32_t at, uint32_t types)
{
    plim_nn *n = &b->n;
    bool learned = plim_str_is(b->c.position, "learned_absolute"),
         scatters = b->divided && !learned && types == PLIM_NONE;
    plim_nn_enter(n, "embedding", "LanguageModelEmbedding");
    uint32_t x = look_up_words(b, ids, scatters);
    if (learned) {
        uint32_t where =
            look_up_whole(b, "position_embeddings", at, b->c.positions, &b->positions);
        plim_nn_called(n, (uint32_t[]){x, where}, 2); /* variables, until it returns */
        x = plim_nn_binary(n, "aten.add.Tensor", x, where);
    }
    if (!scatters)
        x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
    if (types != PLIM_NONE)
        x = add_types(b, x, types);
    if (b->divided && !scatters)
        x = plim_nn_unary(n, "aten.clone.default",
                          NN_OP(n, "plimsoll.megatron_split.default", ARG_T("self", x),
                                ARG_I("parts", b->r->part.weights)));
    if (b->c.hidden_dropout > 0)
        x = plim_nn_dropout_op(n, x, b->c.hidden_dropout);
    plim_nn_leave(n);
    return x;
}

/* Where the embedding is on another stage, a tied head has a copy of its table. */
uint32_t plim_mg_head(plim_mg *b, uint32_t x, bool has_table, bool biased)
{
    plim_nn *n = &b->n;
    plim_nn_enter(n, "output_layer", "ColumnParallelLinear");
    uint32_t w = b->c.untied || !has_table
                     ? plim_nn_param(n, "weight", INTS(b->r->vocab, b->c.hidden))
                     : b->table,
             bias = biased ? plim_nn_param(n, "bias", INTS(b->r->vocab)) : PLIM_NONE;
    share_table(b, w);
    /* micro-batches whose gradient of the weight is computed after all others */
    int64_t most = b->c.deferral_limit ? b->c.deferral_limit : INT32_MAX;
    x = plim_mg_linear(b, x, w, bias, b->divided, false,
                       b->c.defers && b->r->part.stages > 1 ? most : 0);
    plim_nn_leave(n);
    return x;
}

uint32_t plim_mg_loss(plim_mg *b, uint32_t logits, uint32_t labels, uint32_t counts)
{
    plim_nn *n = &b->n;
    labels = plim_nn_contiguous(n, plim_nn_transpose(n, labels, 0, 1));
    uint32_t x = NN_OP(n, "plimsoll.megatron_loss.default", ARG_T("self", logits),
                       ARG_T("target", labels), ARG_I("fused", b->c.fused_loss));
    x = plim_nn_contiguous(n, plim_nn_transpose(n, x, 0, 1));
    x = plim_nn_binary(n, "aten.mul.Tensor", plim_nn_view(n, x, INTS(-1)),
                       plim_nn_view(n, counts, INTS(-1)));
    return plim_nn_unary(n, "aten.sum.default", x);
}

/* ---- what a stage has of a batch, and of the stage before it ------------------------------------ */

uint32_t plim_mg_received(plim_mg *b)
{
    int64_t seq = b->seq / (b->divided ? b->r->part.weights : 1);
    uint32_t x =
        plim_nn_input(&b->n, "received", b->n.dtype, INTS(seq, b->batch, b->c.hidden));
    if (x != PLIM_NONE)
        b->n.g->values[x].received = true;
    return x;
}

void plim_mg_frequencies(plim_mg *b)
{
    plim_nn *n = &b->n;
    int64_t size = PLIM_MAX((int64_t)((double)b->c.channels * b->c.rotary_percent), 2);
    b->freqs = PLIM_NONE;
    if (!plim_str_is(b->c.position, "rope") || b->c.latent)
        return;
    plim_nn_temporary_buffer(n, "rotary_pos_emb.inv_freq", PLIM_F32, INTS(size / 2));
    b->freqs =
        plim_nn_temporary_buffer(n, "rotary_pos_emb", PLIM_F32, INTS(b->seq, 1, 1, size));
}

/* src: tensor_parallel/data.py broadcast_data */
plim_mg_batch plim_mg_pack(plim_mg *b, int64_t numbers)
{
    return (plim_mg_batch){plim_nn_input(&b->n, "batch", PLIM_I64, INTS(numbers)), 0};
}

uint32_t plim_mg_unpack(plim_mg *b, plim_mg_batch *in, plim_ints size)
{
    int64_t from = in->at, numbers = 1;
    for (uint32_t i = 0; i < size.n; i++)
        numbers *= size.p[i];
    in->at += numbers;
    return plim_nn_view(&b->n, plim_nn_slice(&b->n, in->all, 0, from, in->at, 1), size);
}
