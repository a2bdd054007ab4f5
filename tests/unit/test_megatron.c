/* test_megatron.c -- arguments of Megatron-LM: what is read of a file, and the parameters that ranks have,
 * against the published formula. */
#include <stdio.h>
#include <stdlib.h>

#include "import/import.h"
#include "import/megatron/mg.h"
#include "unit.h"

extern const plim_importer plim_importer_megatron;

static plim_status build(plim_arena *a, plim_graph *g, const char *text,
                         const plim_binding *bind, plim_err *err)
{
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = strlen(text)}};
    *g = (plim_graph){.arena = a};
    return plim_importer_megatron.read(g, &s, bind, err);
}

/* ---- texts ------------------------------------------------------------------------------ */

#define SMALL                                                                                 \
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 --vocab-size 100 "

#define MIXTURE SMALL "--num-experts 8 --disable-bias-linear --moe-ffn-hidden-size 96 "
#define BERT "pretrain_bert.py " SMALL
#define T5                                                                                    \
    "--encoder-num-layers 2 --hidden-size 64 --num-attention-heads 4 --vocab-size 100 "       \
    "--encoder-seq-length 32 --decoder-seq-length 16 "

#define LATENT                                                                                \
    SMALL "--multi-latent-attention --kv-lora-rank 24 --qk-head-dim 16 "                      \
          "--qk-pos-emb-head-dim 8 --v-head-dim 12 --disable-bias-linear "

static const struct {
    const char *why, *text;
    int64_t layers, hidden, batch;
} readable[] = {
    {"one line", SMALL "--micro-batch-size 3", 2, 64, 3},
    {"an equals sign", "--num-layers=2 --hidden-size=64 --micro-batch-size=3", 2, 64, 3},
    {"YAML", "MODEL_ARGS:\n  --num-layers: 2\n  --hidden-size: 64\n  --bf16: true\n", 2, 64,
     0},
    {"lines that go on", "python x.py \\\n  --num-layers 2 \\\n --hidden-size 64 \\\n", 2, 64,
     0},
    {"an array of a shell", "A=(\n --num-layers 2\n --hidden-size 64 # wide\n)\n", 2, 64, 0},
    {"quotes", "ARGS=\"--num-layers 2 --hidden-size '64'\"", 2, 64, 0},
    {"a variable", "export N=2\n--num-layers $N --hidden-size 64", 2, 64, 0},
    {"one in braces", "N=2\n--num-layers ${N} --hidden-size 64", 2, 64, 0},
    {"the last of two counts", SMALL "--num-layers 5", 5, 64, 0},
    {"what a comment says does not", SMALL "# --num-layers 5", 2, 64, 0},
};

static void test_texts(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(readable); i++) {
        plim_mg_args c;
        plim_err err = PLIM_ERR_INIT;
        plim_bytes b = {.p = (const uint8_t *)readable[i].text, .n = strlen(readable[i].text)};
        if (!plim_mg_names_model(b) || plim_mg_read(b, &c, &err))
            fail_msg("%s: %s", readable[i].why, err.msg);
        if (c.layers != readable[i].layers || c.hidden != readable[i].hidden ||
            c.batch != readable[i].batch)
            fail_msg("%s: %d layers of %d, batch %d", readable[i].why, (int)c.layers,
                     (int)c.hidden, (int)c.batch);
    }
}

/* Brackets separate words, unless up to eight are before a list. */
static void test_words(void **state)
{
    (void)state;
    static const struct {
        const char *text, *word;
    } rows[] = {
        {"([0]*1+[1]*23)", "([0]*1+[1]*23)"},
        {"[0,1]", "[0,1]"},
        {"((2", "2"},
        {"( ([1])", "([1])"},
        {"(((((((([1]))))))))", "(((((((([1]))))))))"},
        {"((((((((([1])))))))))", "(((((((([1]))))))))"},
        {"(()(([1]*2)", "(([1]*2)"},
        {"\"2\"", "2"},
        {"(\n[1]", ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char text[100];
        plim_mg_args c;
        snprintf(text, sizeof text, "--moe-layer-freq %s", rows[i].text);
        plim_bytes b = {.p = (const uint8_t *)text, .n = strlen(text)};
        plim_status st = plim_mg_read(b, &c, NULL);
        CHECK(rows[i].text, st == (*rows[i].word ? PLIM_OK : PLIM_EFORMAT));
        CHECK(rows[i].text, st || plim_str_is(c.layer_freq, rows[i].word));
    }
}

/* Files of 8 MB that are read in a time in proportion to that: else it would be days. */
static void test_large(void **state)
{
    (void)state;
    static const struct {
        const char *piece, *end;
        plim_status st;
    } rows[] = {
        {"--hidden-size $A\n", "A=64\n", PLIM_OK},
        {"--hidden-size ${A}\n", "\n export A=64\n", PLIM_OK},
        {"B=${A}\n", "--hidden-size $B\nA=64", PLIM_EFORMAT},
        {"--a ", "", PLIM_OK},
        {"(", "", PLIM_OK},
        {"[", "", PLIM_OK},
        {"([", "", PLIM_OK},
        {"\n", "", PLIM_OK},
        {"#\n", "", PLIM_OK},
        {"--cp-comm-type (((((((( p2p ", "", PLIM_OK},
        {"pretrain_", "bert.py", PLIM_OK},
    };
    const size_t n = 8u << 20;
    char *text = malloc(n + 100);
    assert_non_null(text);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_mg_args c;
        size_t at = (size_t)sprintf(text, "%s\n", SMALL);
        for (size_t k = strlen(rows[i].piece); at + k < n; at += k)
            memcpy(text + at, rows[i].piece, k);
        at += (size_t)sprintf(text + at, "%s", rows[i].end);
        plim_status st = plim_mg_read((plim_bytes){.p = (uint8_t *)text, .n = at}, &c, NULL);
        CHECK(rows[i].piece, st == rows[i].st && (st || c.hidden == 64));
        CHECK(rows[i].piece,
              c.model == (*rows[i].piece == 'p' ? &plim_mg_bert : &plim_mg_gpt));
    }
    free(text);
}

static const struct {
    const char *why, *text;
    plim_status st;
    const char *says;
} refused[] = {
    {"no number", SMALL "--num-layers x", PLIM_EFORMAT, "--num-layers needs a number"},
    {"brackets of nothing", SMALL "--num-layers []", PLIM_EFORMAT,
     "--num-layers needs a number"},
    {"too large a number", SMALL "--num-layers 99999999999", PLIM_EFORMAT, "2147483647"},
    {"a variable that nobody sets", SMALL "--num-layers $N", PLIM_EFORMAT, "$N"},
    {"a variable of a variable", "N=$M\n" SMALL "--num-layers $N", PLIM_EFORMAT, "$"},
    {"no value at all", SMALL "--num-layers", PLIM_EFORMAT, "--num-layers needs a number"},
    {"a share above 1", SMALL "--hidden-dropout 1.5", PLIM_EFORMAT, "from 0 to 1"},
    {"0 heads", SMALL "--num-attention-heads 0", PLIM_EFORMAT,
     "--num-attention-heads needs a number from 1"},
    {"a batch of 0", SMALL "--micro-batch-size 0", PLIM_EFORMAT,
     "--micro-batch-size needs a number from 1 to 2147483647, not '0'"},
    {"a negative batch", SMALL "--micro-batch-size -1", PLIM_EFORMAT, "not '-1'"},
    {"a batch beyond 64 bits", SMALL "--micro-batch-size 99999999999999999999", PLIM_EFORMAT,
     "not '99999999999999999999'"},
    {"no global batch", SMALL "--global-batch-size 0", PLIM_EFORMAT, "not '0'"},
    {"0 cards of a kind", SMALL "--tensor-model-parallel-size 0", PLIM_EFORMAT, "not '0'"},
    {"0 stages", SMALL "--pipeline-model-parallel-size 0", PLIM_EFORMAT, "not '0'"},
    {"0 parts of tokens", SMALL "--context-parallel-size 0", PLIM_EFORMAT, "not '0'"},
    {"0 experts a card", SMALL "--expert-model-parallel-size 0", PLIM_EFORMAT, "not '0'"},
    {"0 layers a chunk", SMALL "--num-layers-per-virtual-pipeline-stage 0", PLIM_EFORMAT,
     "not '0'"},
    {"more heads than features", SMALL "--num-attention-heads 128", PLIM_EFORMAT,
     "number of heads, 128"},
    {"too many layers", SMALL "--num-layers 5000", PLIM_ERANGE, "the limit is 1024"},
    {"two types", SMALL "--fp16 --bf16", PLIM_EFORMAT, "exclude each other"},
    {"experts with biases", SMALL "--num-experts 8", PLIM_EUNSUPPORTED,
     "--disable-bias-linear"},
    {"more routes than experts", SMALL "--num-experts 2 --moe-router-topk 3", PLIM_EFORMAT,
     "--moe-router-topk is 3 of 2 experts"},
    {"too many experts", SMALL "--num-experts 5000", PLIM_ERANGE, "the limit is 512"},
    {"shared experts at the same time as others",
     MIXTURE "--moe-shared-expert-intermediate-size 64 --moe-shared-expert-overlap",
     PLIM_EUNSUPPORTED, "--moe-shared-expert-overlap is not simulated"},
    {"scores that are not known", MIXTURE "--moe-router-score-function tanh",
     PLIM_EUNSUPPORTED, "--moe-router-score-function tanh"},
    {"groups of 3 experts", MIXTURE "--moe-router-group-topk 1 --moe-router-num-groups 3",
     PLIM_EFORMAT, "1 of 3 groups of experts do not give 2 of 8 experts"},
    {"more groups than there are",
     MIXTURE "--moe-router-group-topk 4 --moe-router-num-groups 2", PLIM_EFORMAT,
     "4 of 2 groups"},
    {"a bias of softmax", MIXTURE "--moe-router-enable-expert-bias", PLIM_EFORMAT,
     "needs --moe-router-score-function sigmoid"},
    {"a pattern of other layers", MIXTURE "--moe-layer-freq [0,1,1]", PLIM_EFORMAT,
     "--moe-layer-freq needs a number, or a list of 2 layers"},
    {"a dispatcher that is not known",
     SMALL "--num-experts 8 --moe-token-dispatcher-type flex", PLIM_EUNSUPPORTED,
     "--moe-token-dispatcher-type flex"},
    {"a norm that is not known", SMALL "--normalization L1", PLIM_EUNSUPPORTED,
     "--normalization L1"},
    {"heads in groups of different size", SMALL "--group-query-attention --num-query-groups 3",
     PLIM_EFORMAT, "not a multiple"},
    {"more tokens than positions", SMALL "--max-position-embeddings 16", PLIM_EUSAGE,
     "longer than"},
    {"an odd number of features with positions", LATENT "--qk-pos-emb-head-dim 7",
     PLIM_EFORMAT, "--qk-pos-emb-head-dim 7 is odd"},
    {"a vector of 0 features", LATENT "--kv-lora-rank 0", PLIM_ERANGE,
     "--kv-lora-rank is 0, the limits are 1 and 65536"},
    {"heads too wide", LATENT "--v-head-dim 65537", PLIM_ERANGE, "--v-head-dim is 65537"},
    {"groups of latent heads", LATENT "--group-query-attention --num-query-groups 2",
     PLIM_EFORMAT, "no groups of heads"},
    {"positions that no kernel turns",
     LATENT "--rope-type rope --position-embedding-type rope", PLIM_EFORMAT,
     "needs --no-rope-fusion"},
    {"another type of positions", LATENT "--rope-type alibi", PLIM_EUNSUPPORTED,
     "--rope-type alibi"},
    {"latent vectors of BERT", "pretrain_bert.py " LATENT, PLIM_EUNSUPPORTED,
     "--multi-latent-attention is simulated for GPT only"},
    {"a spec of GPT", SMALL "--spec local", PLIM_EUNSUPPORTED, "--spec is not simulated"},
    {"another spec of BERT", BERT "--spec mine", PLIM_EUNSUPPORTED, "but 'local'"},
    {"experts of BERT", BERT "--num-experts 8 --disable-bias-linear", PLIM_EUNSUPPORTED,
     "--num-experts is simulated for GPT only"},
    {"experts of T5", T5 "--num-experts 8 --disable-bias-linear", PLIM_EUNSUPPORTED,
     "--num-experts is not simulated for T5"},
    {"groups of heads of T5", T5 "--group-query-attention --num-query-groups 2",
     PLIM_EUNSUPPORTED, "--group-query-attention is not simulated for T5"},
    {"rotary positions of T5", T5 "--position-embedding-type rope", PLIM_EUNSUPPORTED,
     "--position-embedding-type is not simulated for T5"},
    {"T5 with nothing to decode",
     "pretrain_t5.py --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32",
     PLIM_EUNSUPPORTED, "without --decoder-seq-length"},
    {"more decoded tokens than positions", T5 "--decoder-seq-length 64", PLIM_EUSAGE,
     "--decoder-seq-length 64 is more than"},
    {"decoded scores beyond any memory",
     T5 "--max-position-embeddings 2147483647 --micro-batch-size 2147483647 "
        "--decoder-seq-length 2147483647",
     PLIM_ERANGE, "too large"},
    {"scores beyond any memory",
     SMALL
     "--micro-batch-size 2147483647 --seq-length 2147483647 --position-embedding-type none",
     PLIM_ERANGE, "too large"},
};

static void test_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g;
        plim_err err = PLIM_ERR_INIT;
        plim_status st = build(&a, &g, refused[i].text, NULL, &err);
        if (st != refused[i].st || !strstr(err.msg, refused[i].says))
            fail_msg("%s: %d, %s", refused[i].why, (int)st, err.msg);
        plim_arena_free(&a);
    }
}

/* ---- parameters ---------------------------------------------------------------------------- */

static uint64_t count_parameters(const char *text, plim_rank_part part)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_err err = PLIM_ERR_INIT;
    const plim_binding bind = {.part = part};
    uint64_t sum = 0, n;
    if (build(&a, &g, text, &bind, &err))
        fail_msg("%s", err.msg);
    assert_null(plim_graph_check(&g));
    for (uint32_t i = 0; i < g.n_values; i++)
        if (g.values[i].kind == PLIM_VALUE_PARAMETER && plim_meta_numel(&g.values[i].meta, &n))
            sum += n;
    plim_arena_free(&a);
    return sum;
}

/* l layers of h features: 12 h^2 + 13 h each, the vocabulary, padded, the positions, the last norm.
 * src: arXiv 2104.04473, 2 */
static uint64_t formula(uint64_t l, uint64_t h, uint64_t v, uint64_t s)
{
    return l * (12 * h * h + 13 * h) + (v + s) * h + 2 * h;
}

static void test_formula(void **state)
{
    (void)state;
    enum { SHARED = 128 * 64 };
    const char *text = SMALL;
    assert_int_equal(count_parameters(text, (plim_rank_part){0}), formula(2, 64, 128, 32));
    assert_int_equal(
        count_parameters("--num-layers 96 --hidden-size 12288 --num-attention-heads 96 "
                         "--seq-length 2048 --vocab-size 51200",
                         (plim_rank_part){0}),
        formula(96, 12288, 51200, 2048));
    /* the first and the last stage have the table both */
    uint64_t first = count_parameters(text, (plim_rank_part){.stages = 2, .stage = 0}),
             last = count_parameters(text, (plim_rank_part){.stages = 2, .stage = 1});
    assert_int_equal(first + last, formula(2, 64, 128, 32) + SHARED);
    /* of what is divided, two ranks have half each; the rest both: norms, biases of rows, positions */
    uint64_t half = count_parameters(text, (plim_rank_part){.weights = 2}),
             both = 2 * (4 * 64 + 2 * 64) + 2 * 64 + 32 * 64;
    assert_int_equal(2 * half - both, formula(2, 64, 256, 32)); /* padded to twice 128 */
    /* as many layers as stages, two on each rank */
    const char *four = SMALL "--num-layers 4";
    uint64_t sum = 0;
    for (int64_t at = 0; at < 2; at++)
        sum += count_parameters(four, (plim_rank_part){.stages = 2, .stage = at, .chunks = 2});
    assert_int_equal(sum, formula(4, 64, 128, 32) + SHARED);
}

/* ---- multi-latent attention ------------------------------------------------------------------ */

/* Of each of two layers: what makes the vectors, which every rank has whole, what makes heads of them, and
 * the output; the MLP, two norms.  q: the rank of queries, 0: none. */
static uint64_t latent_parameters(uint64_t q, uint64_t parts)
{
    enum { H = 64, HEADS = 4, KV = 24, QK = 16, ROPE = 8, V = 12 };
    uint64_t query = q ? H * q + q * HEADS * (QK + ROPE) / parts
                       : (uint64_t)H * HEADS * (QK + ROPE) / parts,
             key = H * (KV + ROPE) + KV * HEADS * (QK + V) / parts,
             rest = (HEADS * V * H + 8 * H * H) / parts + 4 * H;
    return 2 * (query + key + rest) + 128 * H + 32 * H + 2 * H;
}

static void test_latent(void **state)
{
    (void)state;
    static const char *const fused = LATENT "--position-embedding-type rope --bf16 ";
    assert_int_equal(count_parameters(LATENT, (plim_rank_part){0}), latent_parameters(0, 1));
    assert_int_equal(count_parameters(LATENT "--q-lora-rank 20", (plim_rank_part){0}),
                     latent_parameters(20, 1));
    assert_int_equal(
        count_parameters(LATENT "--q-lora-rank 20", (plim_rank_part){.weights = 2}),
        latent_parameters(20, 2));
    assert_int_equal(count_parameters(LATENT "--q-lora-rank 20 --qk-layernorm", /* norms */
                                      (plim_rank_part){0}),
                     latent_parameters(20, 1) + 2 * 2 * (20 + 24));
    assert_int_equal(count_parameters(fused, (plim_rank_part){0}),
                     latent_parameters(0, 1) - 32 * 64);
}

/* The fused kernel makes keys with positions, and values, of what comes together. */
static void test_fused_positions(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_err err = PLIM_ERR_INIT;
    uint32_t found = 0;
    assert_int_equal(build(&a, &g, LATENT "--position-embedding-type rope --bf16", NULL, &err),
                     PLIM_OK);
    for (uint32_t i = 0; i < g.n_nodes; i++) {
        if (!plim_str_is(g.nodes[i].target, "plimsoll.megatron_mla_rope.default"))
            continue;
        const plim_meta *key = &g.values[g.nodes[i].outs[0]].meta,
                        *value = &g.values[g.nodes[i].outs[1]].meta;
        assert_int_equal(key->dim[0], 32);
        assert_int_equal(key->dim[2], 4);
        assert_int_equal(key->dim[3], 16 + 8);
        assert_int_equal(value->dim[3], 12);
        found++;
    }
    assert_int_equal(found, 2); /* in each layer */
    plim_arena_free(&a);
}

/* ---- BERT and T5 ---------------------------------------------------------------------------- */

/* Of BERT, h features in addition to formula(): two types, the LM head's layer, norm and bias, the pooler, two classes. */
static void test_bert(void **state)
{
    (void)state;
    enum { H = 64, LM_HEAD = H * H + H + 2 * H + 128, PAIRS = 2 * H + H * H + H + 2 * H + 2 };
    const uint64_t gpt = formula(2, H, 128, 32);
    assert_int_equal(count_parameters(BERT, (plim_rank_part){0}), gpt + LM_HEAD + PAIRS);
    assert_int_equal(count_parameters(BERT "--spec local", (plim_rank_part){0}),
                     gpt + LM_HEAD + PAIRS);
    assert_int_equal(count_parameters(BERT "--bert-no-binary-head", (plim_rank_part){0}),
                     gpt + LM_HEAD);
    uint64_t sum = count_parameters(BERT, (plim_rank_part){.stages = 2, .stage = 0}) +
                   count_parameters(BERT, (plim_rank_part){.stages = 2, .stage = 1});
    assert_int_equal(sum, gpt + LM_HEAD + PAIRS + 128 * H);
}

/* Of T5, besides an encoder and a decoder: cross attention with its norm, a second last norm, a bias of the head. */
static void test_t5(void **state)
{
    (void)state;
    enum { H = 64, CROSS = 4 * H * H + 4 * H + 2 * H };
    assert_int_equal(count_parameters(T5, (plim_rank_part){0}),
                     formula(4, H, 128, 32) + 2 * CROSS + 2 * H + 128);
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_err err = PLIM_ERR_INIT;
    const plim_binding staged = {.part = {.stages = 2}}, divided = {.part = {.contexts = 2}};
    assert_int_equal(build(&a, &g, T5, &staged, &err), PLIM_EUSAGE);
    assert_non_null(strstr(err.msg, "T5Model of Megatron-LM has no pipelines"));
    err = (plim_err)PLIM_ERR_INIT;
    assert_int_equal(build(&a, &g, T5, &divided, &err), PLIM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "context parallelism of T5Model"));
    plim_arena_free(&a);
}

/* Without --vocab-size, that of the tokenizer. */
static void test_vocabularies(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        uint64_t padded;
    } rows[] = {
        {"", 50304},
        {"--tokenizer-type BertWordPieceCase", 29056},
        {"--tokenizer-type BertWordPieceCase --vocab-extra-ids 100", 29184},
        {"--tokenizer-type BertWordPieceLowerCase", 30592},
        {"--vocab-size 1000 --vocab-extra-ids 100", 1024},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char text[256];
        snprintf(text, sizeof text,
                 "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 32 %s",
                 rows[i].text);
        assert_int_equal(count_parameters(text, (plim_rank_part){0}),
                         formula(2, 64, rows[i].padded, 32));
    }
}

/* ---- experts ---------------------------------------------------------------------------------- */

/* Of l layers: attention, norms, the router, and e experts of two weights each. */
static uint64_t mixture(uint64_t e, uint64_t ffn, uint64_t h)
{
    return 2 * (4 * h * h + 4 * h + 8 * h + e * 2 * h * ffn) + (128 + 32) * h + 2 * h;
}

static void test_experts(void **state)
{
    (void)state;
    static const char *const texts[] = {MIXTURE, MIXTURE "--moe-grouped-gemm",
                                        MIXTURE "--moe-token-dispatcher-type alltoall"};
    for (size_t i = 0; i < PLIM_COUNT(texts); i++) {
        assert_int_equal(count_parameters(texts[i], (plim_rank_part){0}), mixture(8, 96, 64));
        assert_int_equal(count_parameters(texts[i], (plim_rank_part){.experts = 4}),
                         mixture(2, 96, 64));
    }
    /* the features of each expert are divided as the other weights are, unless told */
    uint64_t half = count_parameters(MIXTURE, (plim_rank_part){.weights = 2, .experts = 2}),
             whole = count_parameters(MIXTURE "--expert-tensor-parallel-size 1",
                                      (plim_rank_part){.weights = 2, .experts = 2});
    assert_int_equal(whole - half, 2 * 4 * 2 * 64 * 48);
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_err err = PLIM_ERR_INIT;
    const plim_binding bind = {.part = {.experts = 3}};
    assert_int_equal(build(&a, &g, MIXTURE, &bind, &err), PLIM_EUSAGE);
    assert_non_null(strstr(err.msg, "3 cards do not divide the 8 experts"));
    plim_arena_free(&a);
}

/* Besides the experts: an MLP that all tokens go through, and its gate; a bias of the router is not a parameter. */
static void test_shared(void **state)
{
    (void)state;
    const uint64_t plain = mixture(8, 96, 64), shared = 2 * 2 * 64 * 48;
    static const char *const given = MIXTURE "--moe-shared-expert-intermediate-size 48 ";
    assert_int_equal(count_parameters(given, (plim_rank_part){0}), plain + shared);
    assert_int_equal(count_parameters(MIXTURE "--moe-shared-expert-intermediate-size 48 "
                                              "--moe-shared-expert-gate",
                                      (plim_rank_part){0}),
                     plain + shared + 2 * 64);
    assert_int_equal(count_parameters(MIXTURE "--moe-router-score-function sigmoid "
                                              "--moe-router-enable-expert-bias",
                                      (plim_rank_part){0}),
                     plain);
}

/* A dense layer has an MLP of --ffn-hidden-size in the place of the router and the experts. */
static uint64_t one_dense(void)
{
    return mixture(8, 96, 64) - (8 * 64 + 8 * 2 * 64 * 96) + 8 * 64 * 64;
}

/* The published number of DeepSeek-V2-Lite. */
static void test_deepseek(void **state)
{
    (void)state;
    assert_int_equal(
        count_parameters(
            "--num-layers 27 --hidden-size 2048 --ffn-hidden-size 10944 "
            "--num-attention-heads 16 --multi-latent-attention --kv-lora-rank 512 "
            "--position-embedding-type rope --normalization RMSNorm --swiglu --bf16 "
            "--disable-bias-linear --qk-layernorm --num-experts 64 --moe-router-topk 6 "
            "--moe-ffn-hidden-size 1408 --moe-layer-freq ([0]*1+[1]*26) "
            "--moe-shared-expert-intermediate-size 2816 --seq-length 128 --vocab-size 102400 "
            "--untie-embeddings-and-output-weights",
            (plim_rank_part){0}),
        15706484224);
}

static const struct {
    const char *text, *layers; /* NULL: refused */
} patterns[] = {
    {"1", "1111"},
    {"2", "1010"},
    {"9", "1000"},
    {"[0,1,1,1]", "0111"},
    {"[0]*1+[1]*3", "0111"},
    {"([0]*1+[1]*3)", "0111"},
    {"([1]*1+[0]*1)*2", "1010"},
    {"[0]*0+[1]*4", "1111"},
    {"(([1]+[0])*1)*2", "1010"},
    {"0", NULL},
    {"", NULL},
    {"[1]*3", NULL},
    {"[1]*5", NULL},
    {"[2]*4", NULL},
    {"[1]*4]", NULL},
    {"[1", NULL},
    {"([1]*4", NULL},
    {"[1]*-4", NULL},
    {"((((((((((((([1]*4", NULL},
    {"[1]*99999999999999999999", NULL},
    {"2x", NULL},
};

static void test_patterns(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(patterns); i++) {
        bool at[4];
        plim_err err = PLIM_ERR_INIT;
        plim_status st = plim_mg_pattern(plim_str_of(patterns[i].text), 4, at, &err);
        if ((st == PLIM_OK) != (patterns[i].layers != NULL))
            fail_msg("'%s': %d", patterns[i].text, (int)st);
        for (int k = 0; !st && k < 4; k++)
            if (at[k] != (patterns[i].layers[k] == '1'))
                fail_msg("'%s': layer %d", patterns[i].text, k);
    }
    /* brackets are a part of the word in every kind of file */
    static const char *const files[] = {
        "--moe-layer-freq ([0]*1+[1]*1)", "--moe-layer-freq: ([0]*1+[1]*1)",
        "--moe-layer-freq='([0]*1+[1]*1)'", "ARGS=(--moe-layer-freq [0,1])"};
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        char text[512];
        snprintf(text, sizeof text, "%s\n" MIXTURE, files[i]);
        assert_int_equal(count_parameters(text, (plim_rank_part){0}), one_dense());
    }
}

/* ---- recomputation ------------------------------------------------------------------------------ */

#define PARTLY "--recompute-granularity selective --recompute-modules "

static const struct {
    const char *text;
    plim_status st;
    const char *says; /* the units, or the error */
} recomputed[] = {
    {SMALL "--recompute-granularity selective", PLIM_OK,
     ";checkpoint=decoder.layers.*.self_attention.core_attention,reentrant"},
    {SMALL "--disable-bias-linear " PARTLY "mlp", PLIM_OK,
     ";checkpoint=decoder.layers.*.mlp,reentrant"},
    {MIXTURE PARTLY "\"[moe, core_attn]\" # most", PLIM_OK,
     ";checkpoint=decoder.layers.*.self_attention.core_attention,decoder.layers.*.mlp,"
     "reentrant"},
    {MIXTURE PARTLY "shared_experts --moe-shared-expert-intermediate-size 48", PLIM_OK,
     ";checkpoint=decoder.layers.*.mlp.shared_experts,reentrant"},
    {BERT "--recompute-activations", PLIM_OK,
     ";checkpoint=encoder.layers.*.self_attention.core_attention,reentrant"},
    {T5 "--recompute-activations", PLIM_OK,
     "decoder.layers.*.cross_attention.core_attention,"},
    {T5 "--recompute-granularity full --recompute-method block --recompute-num-layers 1",
     PLIM_OK, ";checkpoint=encoder.layers.0,decoder.layers.0,reentrant"},
    {SMALL PARTLY "mlp", PLIM_EUNSUPPORTED, "needs --disable-bias-linear"},
    {SMALL PARTLY "core_attn layernorm", PLIM_EUNSUPPORTED,
     "--recompute-modules layernorm is not simulated"},
    {MIXTURE PARTLY "mlp", PLIM_OK, "overlap_grad_reduce=0"}, /* there is no such module */
    {SMALL PARTLY, PLIM_EFORMAT, "--recompute-modules needs words"},
    {MIXTURE PARTLY "moe --moe-layer-freq 2", PLIM_EUNSUPPORTED, "one of mlp and moe"},
    {MIXTURE PARTLY "moe shared_experts", PLIM_EUNSUPPORTED, "moe with shared_experts"},
};

static void test_recomputed(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(recomputed); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        const char *text = recomputed[i].text, *out = NULL;
        const plim_given given = {0};
        plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = strlen(text)}};
        plim_status st = plim_importer_megatron.settings(&s, &given, &a, &out, &err);
        if (st != recomputed[i].st || !strstr(st ? err.msg : out, recomputed[i].says))
            fail_msg("%s: %d, %s", text, (int)st, st ? err.msg : out);
        plim_arena_free(&a);
    }
}

/* ---- attention to the keys of all ---------------------------------------------------------- */

static void test_contexts(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t parts, seq;
        plim_status st;
        const char *says;
    } rows[] = {
        {SMALL "--bf16", 2, 16, PLIM_OK, ""},
        {SMALL "--bf16", 8, 4, PLIM_OK, ""},
        {SMALL "--bf16", 3, 0, PLIM_EUSAGE, "a multiple of 6 tokens, not of 32"},
        {SMALL, 2, 0, PLIM_EUNSUPPORTED, "in bf16 or fp16"},
        {SMALL "--bf16 --transformer-impl local", 2, 0, PLIM_EUNSUPPORTED, "FlashAttention"},
        {SMALL "--bf16 --attention-backend unfused", 2, 0, PLIM_EUNSUPPORTED,
         "FlashAttention"},
        {SMALL "--bf16 --cp-comm-type a2a", 2, 16, PLIM_OK, ""},
        {SMALL "--bf16 --cp-comm-type a2a", 8, 0, PLIM_EUSAGE,
         "8 cards do not divide both the 4"},
        {SMALL "--bf16 --cp-comm-type all_gather", 2, 0, PLIM_EUNSUPPORTED,
         "p2p, a2a or a2a+p2p"},
        {SMALL "--bf16 --cp-comm-type p2p p2p", 2, 16, PLIM_OK, ""},
        {SMALL "--bf16 --cp-comm-type p2p a2a", 2, 0, PLIM_EUNSUPPORTED, "in all layers"},
        {SMALL "--bf16 --cp-comm-type a2a+p2p", 4, 0, PLIM_EUSAGE, "whose product is 4"},
        {SMALL "--bf16 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2 2", 8,
         0, PLIM_EUSAGE, "needs two"},
        {SMALL "--bf16 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 2 2", 4, 8,
         PLIM_OK, ""},
        {SMALL "--bf16 --cp-comm-type a2a+p2p --hierarchical-context-parallel-sizes 4 x", 4, 0,
         PLIM_EUSAGE, "whose product is 4"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g;
        plim_err err = PLIM_ERR_INIT;
        const plim_binding bind = {.part = {.contexts = rows[i].parts}};
        plim_status st = build(&a, &g, rows[i].text, &bind, &err);
        if (st != rows[i].st || (st && !strstr(err.msg, rows[i].says)))
            fail_msg("%s: %d, %s", rows[i].text, (int)st, err.msg);
        if (!st) {
            assert_int_equal(g.values[g.inputs[0]].meta.dim[1], rows[i].seq);
            assert_int_equal(g.sizes.seq, 32); /* of all ranks */
        }
        plim_arena_free(&a);
    }
}

/* Of the ranks of a sequence, those that follow one another exchange heads; the groups of them are a ring. */
static void test_exchange(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t place, parts, part, ways;
    } rows[] = {
        {SMALL "--bf16", 3, 4, 3, 1},
        {SMALL "--bf16 --cp-comm-type a2a", 3, 1, 0, 4},
        {SMALL "--bf16 --cp-comm-type a2a+p2p "
               "--hierarchical-context-parallel-sizes 2 2",
         1, 2, 0, 2},
        {SMALL "--bf16 --hierarchical-context-parallel-sizes [2, 2] "
               "--cp-comm-type=a2a+p2p",
         2, 2, 1, 2},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g;
        plim_err err = PLIM_ERR_INIT;
        const plim_binding bind = {.part = {.contexts = 4, .context = rows[i].place}};
        if (build(&a, &g, rows[i].text, &bind, &err))
            fail_msg("%s: %s", rows[i].text, err.msg);
        uint32_t found = 0;
        for (uint32_t k = 0; k < g.n_nodes; k++) {
            const plim_node *n = &g.nodes[k];
            if (!plim_str_is(n->target, "plimsoll.megatron_attention.default"))
                continue;
            enum { PARTS = 6, PART, WAYS, ARGS };
            assert_int_equal(n->n_args, ARGS);
            assert_int_equal(n->args[PARTS].i, rows[i].parts);
            assert_int_equal(n->args[PART].i, rows[i].part);
            assert_int_equal(n->args[WAYS].i, rows[i].ways);
            found++;
        }
        assert_int_equal(found, 2); /* layers */
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_texts),
                                       cmocka_unit_test(test_words),
                                       cmocka_unit_test(test_large),
                                       cmocka_unit_test(test_refused),
                                       cmocka_unit_test(test_formula),
                                       cmocka_unit_test(test_contexts),
                                       cmocka_unit_test(test_exchange),
                                       cmocka_unit_test(test_experts),
                                       cmocka_unit_test(test_bert),
                                       cmocka_unit_test(test_latent),
                                       cmocka_unit_test(test_fused_positions),
                                       cmocka_unit_test(test_shared),
                                       cmocka_unit_test(test_recomputed),
                                       cmocka_unit_test(test_deepseek),
                                       cmocka_unit_test(test_patterns),
                                       cmocka_unit_test(test_t5),
                                       cmocka_unit_test(test_vocabularies)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
