/* test_hf_encoders.c -- parts of encoders and encoder-decoder models that the exports in
 * test_hf.c do not cover: heads, inputs, refusals, broken files. */
#include "base/fmt.h"
#include "import/hf/hf.h"
#include "unit.h"

extern const plim_importer plim_importer_hf;

static plim_status build(plim_arena *a, plim_graph *g, const char *text, size_t n,
                         const plim_binding *bind, plim_err *err)
{
    plim_source s = {.bytes = {.p = (const uint8_t *)text, .n = n}};
    *g = (plim_graph){.arena = a};
    return plim_importer_hf.read(g, &s, bind, err);
}

/* ---- small ones ---------------------------------------------------------------------- */

#define BERT                                                                                  \
    "\"model_type\":\"bert\",\"vocab_size\":32,\"hidden_size\":8,\"intermediate_size\":16,"   \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"max_position_embeddings\":16"
#define DISTILBERT                                                                            \
    "\"model_type\":\"distilbert\",\"vocab_size\":32,\"dim\":8,\"hidden_dim\":16,"            \
    "\"n_layers\":1,\"n_heads\":2,\"max_position_embeddings\":16"
#define VIT                                                                                   \
    "\"model_type\":\"vit\",\"hidden_size\":8,\"intermediate_size\":16,"                      \
    "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"image_size\":[8,12],"                \
    "\"patch_size\":4"
#define SWIN                                                                                  \
    "\"model_type\":\"swin\",\"embed_dim\":8,\"depths\":[2,1],\"num_heads\":[2,4],"           \
    "\"window_size\":2,\"image_size\":12,\"patch_size\":2"
#define CLIP                                                                                  \
    "\"model_type\":\"clip\",\"projection_dim\":4,\"text_config\":{\"vocab_size\":32,"        \
    "\"hidden_size\":8,\"intermediate_size\":16,\"num_hidden_layers\":1,"                     \
    "\"num_attention_heads\":2,\"max_position_embeddings\":16},\"vision_config\":{"           \
    "\"hidden_size\":8,\"intermediate_size\":16,\"num_hidden_layers\":1,"                     \
    "\"num_attention_heads\":2,\"image_size\":8,\"patch_size\":4}"
#define T5                                                                                    \
    "\"model_type\":\"t5\",\"vocab_size\":32,\"d_model\":8,\"d_kv\":4,\"d_ff\":16,"           \
    "\"num_layers\":1,\"num_heads\":2"
#define HALVES                                                                                \
    "\"vocab_size\":32,\"d_model\":8,\"encoder_layers\":1,\"decoder_layers\":1,"              \
    "\"encoder_attention_heads\":2,\"decoder_attention_heads\":2,\"encoder_ffn_dim\":16,"     \
    "\"decoder_ffn_dim\":16"
#define BART "\"model_type\":\"bart\",\"max_position_embeddings\":16," HALVES
#define WHISPER                                                                               \
    "\"model_type\":\"whisper\",\"num_mel_bins\":4,\"max_source_positions\":8,"               \
    "\"max_target_positions\":16," HALVES
#define CLASS(name) ",\"architectures\":[\"" name "\"]"

/* ---- what comes out ------------------------------------------------------------------- */

/* Sizes of the outputs, "[] [5, 3]", worked out by hand; batch 5, 4 tokens. */
static const struct {
    const char *why, *text, *train, *infer;
} heads[] = {
    {"BERT, masked", "{" BERT "}", "[] [5, 4, 32]", "[5, 4, 32]"},
    {"two classes unless told", "{" BERT CLASS("BertForSequenceClassification") "}",
     "[] [5, 2]", "[5, 2]"},
    {"classes by name",
     "{" BERT CLASS("BertForSequenceClassification") ",\"id2label\":{\"0\":\"a\",\"1\":\"b\","
                                                     "\"2\":\"c\"}}",
     "[] [5, 3]", "[5, 3]"},
    {"one class is a number",
     "{" BERT CLASS("BertForSequenceClassification") ",\"num_labels\":1}", "[] [5, 1]",
     "[5, 1]"},
    {"each token", "{" BERT CLASS("BertForTokenClassification") ",\"num_labels\":7}",
     "[] [5, 4, 7]", "[5, 4, 7]"},
    {"from where to where", "{" BERT CLASS("BertForQuestionAnswering") "}", "[] [5, 4] [5, 4]",
     "[5, 4] [5, 4]"},
    {"the encoder alone", "{" BERT CLASS("BertModel") "}", "[5, 4, 8] [5, 8]",
     "[5, 4, 8] [5, 8]"},
    {"DistilBERT has no pooler", "{" DISTILBERT CLASS("DistilBertModel") "}", "[5, 4, 8]",
     "[5, 4, 8]"},
    {"ViT", "{" VIT ",\"num_labels\":3}", "[] [5, 3]", "[5, 3]"},
    {"six patches and one more", "{" VIT CLASS("ViTModel") "}", "[5, 7, 8] [5, 8]",
     "[5, 7, 8] [5, 8]"},
    {"Swin: 6 by 6, then 3 by 3", "{" SWIN CLASS("SwinModel") "}", "[5, 9, 16] [5, 16]",
     "[5, 9, 16] [5, 16]"},
    {"CLIP: each of a batch with each", "{" CLIP "}",
     "[] [5, 5] [5, 5] [5, 4] [5, 4] [5, 4, 8] [5, 4] [5, 5, 8] [5, 4]",
     "[5, 5] [5, 5] [5, 4] [5, 4] [5, 4, 8] [5, 4] [5, 5, 8] [5, 4]"},
    {"T5", "{" T5 "}", "[] [5, 4, 32] [5, 4, 8]", "[5, 4, 32] [5, 4, 8]"},
    {"BART", "{" BART "}", "[] [5, 4, 32] [5, 4, 8]", "[5, 4, 32] [5, 4, 8]"},
    {"Whisper hears 8 frames", "{" WHISPER "}", "[] [5, 4, 32] [5, 8, 8]",
     "[5, 4, 32] [5, 8, 8]"},
};

static const char *outputs_of(plim_arena *a, const char *text, bool infer)
{
    const plim_binding bind = {.batch = 5, .seq = 4, .infer = infer};
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_buf b;
    char size[96];
    plim_buf_init(&b, a);
    if (build(a, &g, text, strlen(text), &bind, &err))
        fail_msg("%s: %s", text, err.msg);
    assert_null(plim_graph_check(&g));
    for (uint32_t i = 0; i < g.n_outputs; i++) {
        const plim_meta *m = &g.values[g.outputs[i]].meta;
        plim_buf_printf(&b, i ? " %s" : "%s", plim_meta_str(m, size, sizeof size));
    }
    return plim_buf_str(&b).p;
}

static void test_heads(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(heads); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        CHECK_STR(heads[i].why, outputs_of(&a, heads[i].text, false), heads[i].train);
        CHECK_STR(heads[i].why, outputs_of(&a, heads[i].text, true), heads[i].infer);
        plim_arena_free(&a);
    }
}

/* ---- what is refused ---------------------------------------------------------------------- */

static const struct {
    const char *why, *text, *message;
} refused[] = {
    {"a head of another kind", "{" BERT CLASS("BertForMultipleChoice") "}",
     "class 'BertForMultipleChoice' is not supported: for this model type plimsoll "
     "builds BertForMaskedLM BertForSequenceClassification BertForTokenClassification "
     "BertForQuestionAnswering BertModel"},
    {"heads", "{" BERT ",\"num_attention_heads\":3}",
     "3 heads do not divide a hidden size of 8"},
    {"a decoder", "{" BERT ",\"is_decoder\":true}",
     "'is_decoder' is set: this variant is not supported"},
    {"answers", "{" BERT CLASS("BertForQuestionAnswering") ",\"num_labels\":3}",
     "question answering has 2 labels, not 3"},
    {"no labels", "{" BERT CLASS("BertForSequenceClassification") ",\"id2label\":{}}",
     "'id2label' has no label"},
    {"positions past the padding",
     "{" BERT ",\"max_position_embeddings\":6,\"model_type\":\"roberta\"}",
     "a sequence of 5 tokens is longer than the position table of 4"},
    {"patches", "{" VIT ",\"patch_size\":16}",
     "a patch of 16 does not fit an image of 8 x 12"},
    {"patches with two sides", "{" VIT ",\"patch_size\":[2,4]}",
     "patches of 2 x 4 are not square"},
    {"a picture of nothing", "{" VIT ",\"image_size\":0}",
     "'image_size' is 0, not in 1..2147483647"},
    {"a picture in words", "{" VIT ",\"image_size\":\"big\"}",
     "'image_size' is \"big\", expected a whole number, or a list of two"},
    {"stages", "{" SWIN ",\"depths\":[2,2,2]}", "'depths' has 3 items, 'num_heads' has 2"},
    {"too many stages", "{" SWIN ",\"depths\":[1,1,1,1,1,1,1,1,1]}",
     "'depths' has more than 8 items"},
    {"too many blocks", "{" SWIN ",\"depths\":[1000,1000]}",
     "'depths' sums to more than 1024"},
    {"windows", "{" SWIN ",\"window_size\":4}",
     "stage 1 has a grid of 3 x 3, smaller than its windows of 4"},
    {"too large together", "{" T5 ",\"vocab_size\":2147483647,\"d_model\":2147483646}",
     "size of 'shared.weight' overflows"},
    {"fp16 is clamped", "{" T5 ",\"dtype\":\"float16\"}",
     "'dtype float16' is set: this variant is not supported"},
    {"dropped layers", "{" BART ",\"encoder_layerdrop\":0.1}",
     "'encoder_layerdrop' is set: this variant is not supported"},
};

/* The message without " at byte 144", which is where the file says it. */
static const char *cut_place(char *msg)
{
    char *place = strstr(msg, " at byte ");
    if (place)
        *place = '\0';
    return msg;
}

static void test_refused(void **state)
{
    (void)state;
    const plim_binding bind = {.batch = 2, .seq = 5};
    for (size_t i = 0; i < PLIM_COUNT(refused); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        if (!build(&a, &g, refused[i].text, strlen(refused[i].text), &bind, &err))
            fail_msg("%s: accepted", refused[i].why);
        CHECK_STR(refused[i].why, cut_place(err.msg), refused[i].message);
        plim_arena_free(&a);
    }
}

/* Images and audio have the sizes in the file. */
static void test_inputs(void **state)
{
    (void)state;
    static const struct {
        const char *text, *name;
        int32_t rank;
        int64_t dim[4];
        const char *message; /* NULL: accepted */
    } rows[] = {
        {"{" VIT "}", "", 4, {3, 3, 8, 12}, NULL},
        {"{" VIT "}",
         "pixel_values",
         4,
         {3, 3, 8, 8},
         "input 'pixel_values' has 12 in dimension 3, the given shape has 8"},
        {"{" VIT "}",
         "pixel_values",
         2,
         {3, 3},
         "input 'pixel_values' has 4 dimensions, the given shape has 2"},
        {"{" WHISPER "}", "input_features", 3, {1, 4, 16}, NULL},
        {"{" WHISPER "}",
         "input_features",
         3,
         {1, 4, 15},
         "input 'input_features' has 16 in dimension 2, the given shape has 15"},
        {"{" WHISPER "}",
         "labels",
         2,
         {1, 17},
         "a sequence of 17 tokens is longer than the position table of 16"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        struct plim_input_shape in = {.name = plim_str_of(rows[i].name), .rank = rows[i].rank};
        memcpy(in.dim, rows[i].dim, sizeof rows[i].dim);
        const plim_binding bind = {.inputs = &in, .n_inputs = 1};
        plim_status st = build(&a, &g, rows[i].text, strlen(rows[i].text), &bind, &err);
        if (rows[i].message)
            CHECK_STR(rows[i].name, err.msg, rows[i].message);
        else if (st)
            fail_msg("%s: %s", rows[i].name, err.msg);
        plim_arena_free(&a);
    }
}

/* ---- broken files, no memory ------------------------------------------------------------------ */

static const char *const small[] = {
    "{" BERT ",\"classifier_dropout\":0.5" CLASS("BertForSequenceClassification") "}",
    "{" DISTILBERT "}",
    "{" VIT "}",
    "{" SWIN "}",
    "{" CLIP "}",
    "{" T5 "}",
    "{" BART "}",
    "{" WHISPER "}"};

static void try_bytes(const char *text, size_t n)
{
    const plim_binding bind = {.batch = 2, .seq = 5};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_status st = build(&a, &g, text, n, &bind, &err);
    if (st)
        assert_true(err.code == st && err.msg[0]);
    else
        assert_null(plim_graph_check(&g));
    plim_arena_free(&a);
}

static void test_survives(void **state)
{
    (void)state;
    char text[512];
    for (size_t k = 0; k < PLIM_COUNT(small); k++) {
        size_t n = strlen(small[k]);
        assert_true(n < sizeof text);
        memcpy(text, small[k], n);
        for (size_t i = 0; i < n; i++) {
            try_bytes(text, i);
            text[i] = (char)(small[k][i] ^ 0xff);
            try_bytes(text, n);
            text[i] = (char)(small[k][i] ^ 1);
            try_bytes(text, n);
            text[i] = small[k][i];
        }
    }
}

static void test_no_memory(void **state)
{
    (void)state;
    for (size_t k = 0; k < PLIM_COUNT(small); k++) {
        plim_status st = PLIM_ENOMEM;
        for (uint64_t n = 1; st; n++) {
            plim_arena a = {.fail_after = n};
            plim_err err = PLIM_ERR_INIT;
            plim_graph g;
            st = build(&a, &g, small[k], strlen(small[k]), NULL, &err);
            CHECK(small[k], (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
            plim_arena_free(&a);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_heads), cmocka_unit_test(test_refused),
        cmocka_unit_test(test_inputs), cmocka_unit_test(test_survives),
        cmocka_unit_test(test_no_memory)};
    return cmocka_run_group_tests_name("hf_encoders", tests, NULL, NULL);
}
