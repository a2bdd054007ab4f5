/* test_hf_weights.c -- weights next to a config.json, under the names in published files.  The
 * stored tensors are the class's own, or, where save_pretrained renames them, those of
 * tests/golden/hf/stored.txt; then a case renames, drops and adds.  Counts were compared with
 * what from_pretrained reports as missing, unexpected and mismatched for the same files. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fmt.h"
#include "import/import.h"
#include "unit.h"

#define GOLDEN PLIM_SOURCE_DIR "/tests/golden/hf/"

extern const plim_importer plim_importer_hf;

/* ---- a folder -------------------------------------------------------------------------- */

static plim_str read_whole(plim_arena *a, const char *name)
{
    char path[256];
    plim_bytes b;
    plim_err err = PLIM_ERR_INIT;
    snprintf(path, sizeof path, GOLDEN "%s", name);
    if (plim_file_read(&b, path, &err))
        fail_msg("%s", err.msg);
    plim_str s = plim_arena_str(a, (plim_str){(const char *)b.p, (size_t)b.n});
    plim_file_close(&b);
    return s;
}

/* A header and, as a hole in the file, as many bytes as it states. */
static void write_weights(const plim_inventory *w, const char *path, plim_arena *a)
{
    plim_buf b;
    uint64_t at = 0;
    plim_buf_init(&b, a);
    plim_buf_printf(&b, "{");
    for (uint32_t i = 0; i < w->n_items; i++) {
        const plim_item *it = &w->items[i];
        plim_buf_printf(&b, "%s\"" PLIM_STR_FMT "\":{\"dtype\":\"%s\",\"shape\":[",
                        i ? "," : "", PLIM_STR_ARG(it->name),
                        plim_str_is(it->type, "fp32") ? "F32" : "BF16");
        for (int32_t k = 0; k < it->rank; k++)
            plim_buf_printf(&b, "%s%" PRId64, k ? "," : "", it->dim[k]);
        plim_buf_printf(&b, "],\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}", at,
                        at + it->bytes);
        at += it->bytes;
    }
    plim_buf_printf(&b, "}");
    plim_str text = plim_buf_str(&b);
    uint8_t size[8];
    for (int i = 0; i < 8; i++)
        size[i] = (uint8_t)((uint64_t)text.n >> 8 * i);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(size, 1, 8, f) + fwrite(text.p, 1, text.n, f), 8 + text.n);
    assert_int_equal(fflush(f), 0);
    assert_int_equal(ftruncate(fileno(f), (off_t)(8 + text.n + at)), 0);
    fclose(f);
}

static plim_status list(plim_inventory *v, plim_arena *a, plim_str config, const char *path)
{
    plim_err err = PLIM_ERR_INIT;
    plim_source s = {.bytes = {.p = (const uint8_t *)config.p, .n = config.n}, .path = path};
    *v = (plim_inventory){.arena = a};
    plim_status st = plim_importer_hf.list(v, &s, &err);
    if (st && st != PLIM_ENOMEM)
        fail_msg("%s", err.msg);
    return st;
}

/* The notes on the config with those weights next to it.  Then again, with each of the last
 * allocations failing: those of the comparison. */
static void compare(plim_inventory *v, plim_arena *a, plim_str config, const plim_inventory *w)
{
    enum { LAST = 24 };
    char folder[] = "/tmp/plimsoll-XXXXXX", path[64], weights[64];
    assert_non_null(mkdtemp(folder));
    snprintf(path, sizeof path, "%s/config.json", folder);
    snprintf(weights, sizeof weights, "%s/model.safetensors", folder);
    write_weights(w, weights, a);
    uint64_t before = a->calls;
    assert_int_equal(list(v, a, config, path), PLIM_OK);
    uint64_t calls = a->calls - before;
    for (uint64_t n = calls - LAST; n <= calls; n++) {
        plim_arena small = {.fail_after = n};
        plim_inventory none;
        assert_int_equal(list(&none, &small, config, path), PLIM_ENOMEM);
        plim_arena_free(&small);
    }
    unlink(weights);
    rmdir(folder);
}

/* ---- what is stored ------------------------------------------------------------------------ */

static void add(plim_inventory *w, const char *line)
{
    plim_err err = PLIM_ERR_INIT;
    size_t n = strcspn(line, " ");
    plim_item it = {
        .name = {line, n}, .type = PLIM_STR("fp32"), .bytes = 4, .same_as = PLIM_NONE};
    for (const char *at = line + n; *at == ' ' || *at == ',';) {
        char *end;
        it.dim[it.rank] = strtoll(at + 1, &end, 10);
        it.bytes *= (uint64_t)it.dim[it.rank++];
        at = end;
    }
    assert_int_equal(plim_inventory_add(w, &it, &err), PLIM_OK);
}

/* The lines after "= NAME"; false: there are none. */
static bool add_stored(plim_inventory *w, plim_str all, const char *name)
{
    char head[64];
    snprintf(head, sizeof head, "\n= %s\n", name);
    const char *at = strstr(all.p, head);
    if (!at)
        return false;
    for (at += strlen(head); *at && *at != '='; at += strcspn(at, "\n") + 1)
        add(w, at);
    return true;
}

/* The tensors of the class: tied ones once, no buffers. */
static void add_class(plim_inventory *w, plim_arena *a, plim_str config)
{
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v;
    assert_int_equal(list(&v, a, config, NULL), PLIM_OK);
    for (uint32_t i = 0; i < v.n_items; i++)
        if (v.items[i].kind == PLIM_ITEM_PARAMETER && v.items[i].same_as == PLIM_NONE)
            assert_int_equal(plim_inventory_add(w, &v.items[i], &err), PLIM_OK);
}

static plim_str replaced(plim_arena *a, plim_str in, const char *from, const char *to)
{
    plim_buf b;
    size_t n = strlen(from);
    plim_buf_init(&b, a);
    for (size_t i = 0; i < in.n;) {
        bool here = in.n - i >= n && !memcmp(in.p + i, from, n);
        plim_buf_printf(&b, "%.*s", here ? (int)strlen(to) : 1, here ? to : in.p + i);
        i += here ? n : 1;
    }
    return plim_buf_str(&b);
}

static plim_item *called(plim_inventory *w, plim_str name)
{
    for (uint32_t i = 0; i < w->n_items; i++)
        if (plim_str_eq(w->items[i].name, name))
            return &w->items[i];
    fail_msg("no '" PLIM_STR_FMT "'", PLIM_STR_ARG(name));
    return NULL;
}

/* "replace A B" in all names, "drop NAME", "add NAME 2,3", "shape NAME 2,3", "half NAME" */
static void edit(plim_inventory *w, plim_arena *a, const char *e)
{
    const char *what = strchr(e, ' ') + 1, *rest = what + strcspn(what, " ");
    plim_str name = {what, (size_t)(rest - what)};
    if (e[0] == 'r') {
        plim_str from = plim_arena_str(a, name);
        for (uint32_t i = 0; i < w->n_items; i++)
            w->items[i].name = replaced(a, w->items[i].name, from.p, rest + 1);
    } else if (e[0] == 'd' || e[0] == 's') {
        *called(w, name) = w->items[--w->n_items];
    } else if (e[0] == 'h') {
        plim_item *it = called(w, name);
        it->type = PLIM_STR("bf16");
        it->bytes /= 2;
    }
    if (e[0] == 'a' || e[0] == 's')
        add(w, what);
}

/* ---- cases ------------------------------------------------------------------------------------ */

typedef struct name_case {
    const char *config;    /* NAME.json */
    const char *from, *to; /* replaced in its text; NULL: unchanged */
    bool new_names;        /* stored under the class's own names */
    const char *edits[8];
    const char *notes[3];
} name_case;

#define MISSING "parameters missing from 'model.safetensors': "
#define MORE "unexpected tensors in 'model.safetensors': "
#define SHAPE "parameters with a different shape in 'model.safetensors': "
#define TYPE "parameters with a different type in 'model.safetensors': "
#define FIRST ", the first is "
#define EXPERT_0 "model.layers.0.block_sparse_moe.experts."
#define GAMMA                                                                                 \
    "replace LayerNorm.weight LayerNorm.gamma", "replace LayerNorm.bias LayerNorm.beta"

/* clang-format off */
static const name_case cases[] = {
    /* the model's prefix, which older files lack */
    {.config = "gpt2", .edits = {"replace transformer. "}},
    {.config = "bloom", .edits = {"replace transformer. "}},
    {.config = "llama", .edits = {"replace model. "}},
    {.config = "mamba", .edits = {"replace backbone. "}},
    {.config = "deepseek_v2", .edits = {"replace model. "}},
    {.config = "vit_hf", .edits = {"replace vit. "}},
    {.config = "bert", .from = "BertForMaskedLM", .to = "BertModel",
     .edits = {"drop cls.predictions.bias", "add bert.pooler.dense.weight 256,256",
               "add bert.pooler.dense.bias 256"},
     .notes = {MORE "4" FIRST "'cls.predictions.transform.LayerNorm.bias'"}},
    {.config = "vit_hf", .from = "ViTForImageClassification", .to = "ViTModel",
     .edits = {"drop vit.layernorm.bias"},
     .notes = {MISSING "3" FIRST "'layernorm.bias'", MORE "2" FIRST "'classifier.bias'"}},

    /* a tied tensor under another of its names */
    {.config = "t5", .edits = {"replace shared.weight encoder.embed_tokens.weight"}},
    {.config = "t5", .edits = {"shape shared.weight 8192,8",
                               "replace shared.weight decoder.embed_tokens.weight"},
     .notes = {SHAPE "1" FIRST "'shared.weight'"}},
    {.config = "gpt2", .edits = {"replace transformer.wte.weight lm_head.weight"}},

    /* older names */
    {.config = "bert", .edits = {GAMMA, "add cls.seq_relationship.weight 2,256",
                                 "add cls.seq_relationship.bias 2",
                                 "add bert.embeddings.position_ids 1,512"},
     .notes = {MORE "2" FIRST "'cls.seq_relationship.weight'"}},
    {.config = "electra", .edits = {GAMMA, "replace electra. "}},
    {.config = "clip", .edits = {"replace text_model. text_model.text_model.",
                                 "replace vision_model. vision_model.vision_model."}},
    {.config = "gpt_neox", .new_names = true},
    {.config = "vit_hf", .new_names = true},
    {.config = "swin", .new_names = true},
    {.config = "swin", .edits = {"shape swin.encoder.layers.0.blocks.1.attention.self.key.bias 7"},
     .notes = {SHAPE "1" FIRST "'swin.encoder.layers.0.blocks.1.attention.k_proj.bias'"}},

    /* tensors that are not noted */
    {.config = "gpt2", .edits = {"add transformer.h.0.attn.bias 1,1,512,512",
                                 "add transformer.h.0.attn.masked_bias 1"},
     .notes = {MORE "1" FIRST "'transformer.h.0.attn.masked_bias'"}},
    {.config = "gpt_neox", .edits = {"add gpt_neox.layers.0.attention.bias 1,1,512,512",
                                     "add gpt_neox.layers.0.attention.masked_bias 1",
                                     "add gpt_neox.layers.0.attention.rotary_emb.inv_freq 4"}},
    {.config = "llama", .edits = {"add model.layers.0.self_attn.rotary_emb.inv_freq 16",
                                  "half model.norm.weight"},
     .notes = {TYPE "1" FIRST "'model.norm.weight'"}},
    {.config = "t5",
     .edits = {"add decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight 32,8"}},
    {.config = "deepseek_v3", .edits = {"add model.layers.61.enorm.weight 256"}},
    {.config = "deepseek_v2", .edits = {"add model.layers.61.enorm.weight 256"},
     .notes = {MORE "1" FIRST "'model.layers.61.enorm.weight'"}},

    /* experts */
    {.config = "mixtral", .new_names = true},
    {.config = "qwen3_moe", .new_names = true},
    {.config = "mixtral", .edits = {"replace .block_sparse_moe. .mlp."}},
    {.config = "mixtral", .edits = {"drop " EXPERT_0 "2.w3.weight"},
     .notes = {MISSING "1" FIRST "'" EXPERT_0 "2.w3.weight'"}},
    {.config = "mixtral", .edits = {"drop " EXPERT_0 "0.w1.weight", "drop " EXPERT_0 "3.w3.weight",
                                    "drop " EXPERT_0 "3.w1.weight"},
     .notes = {MISSING "3" FIRST "'" EXPERT_0 "0.w1.weight'"}},
    {.config = "mixtral", .edits = {"drop " EXPERT_0 "0.w2.weight", "drop " EXPERT_0 "1.w2.weight",
                                    "drop " EXPERT_0 "2.w2.weight", "drop " EXPERT_0 "3.w2.weight"},
     .notes = {MISSING "1" FIRST "'model.layers.0.mlp.experts.down_proj'"}},
    {.config = "mixtral", .edits = {"shape " EXPERT_0 "1.w2.weight 512,256",
                                    "half " EXPERT_0 "1.w1.weight"},
     .notes = {SHAPE "1" FIRST "'" EXPERT_0 "1.w2.weight'",
               TYPE "1" FIRST "'" EXPERT_0 "1.w1.weight'"}},
    {.config = "mixtral", .edits = {"shape " EXPERT_0 "1.w2.weight 256", "add " EXPERT_0 "4.w1.weight 2",
                                    "add " EXPERT_0 "01.w1.weight 512,256",
                                    "add " EXPERT_0 "x.w1.weight 512,256",
                                    "add " EXPERT_0 "4294967296.w1.weight 512,256",
                                    "add model.layers.0.mlp.experts.0.w1.weight 512,256",
                                    "add model.layers.9.mlp.experts.0.w1.weight 512,256"},
     .notes = {MORE "6" FIRST "'" EXPERT_0 "01.w1.weight'",
               SHAPE "1" FIRST "'" EXPERT_0 "1.w2.weight'"}},
    {.config = "mixtral", .edits = {"add model.layers.0.mlp.experts.down_proj 4,256,512"},
     .notes = {MORE "4" FIRST "'" EXPERT_0 "0.w2.weight'"}},
    {.config = "deepseek_v2", .edits = {"drop model.layers.1.mlp.experts.3.down_proj.weight",
                                        "shape model.layers.1.mlp.experts.2.up_proj.weight 256,128"},
     .notes = {MISSING "1" FIRST "'model.layers.1.mlp.experts.3.down_proj.weight'",
               SHAPE "1" FIRST "'model.layers.1.mlp.experts.2.up_proj.weight'"}},

    /* the text model of a multimodal one */
    {.config = "llama", .from = "{\n  \"arch", .to = "{\"model_type\":\"llava_next\",\"text_config\":{\"arch",
     .edits = {"replace model. language_model.model.", "replace lm_head. language_model.lm_head.",
               "add vision_tower.weight 2"},
     .notes = {MORE "1" FIRST "'vision_tower.weight'"}},
    {.config = "llama", .from = "{\n  \"arch", .to = "{\"model_type\":\"llava_next\",\"text_config\":{\"arch",
     .edits = {"replace model. model.language_model."}},
};
/* clang-format on */

static const char *note_at(const plim_inventory *v, uint32_t i)
{
    return i < v->n_notes ? v->notes[i].p : "";
}

static void try_case(const name_case *c, plim_str stored)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v, w = {.arena = &a};
    char name[64];
    snprintf(name, sizeof name, "%s.json", c->config);
    plim_str config = read_whole(&a, name);
    if (c->new_names || !add_stored(&w, stored, c->config))
        add_class(&w, &a, config);
    assert_true(w.n_items > 10);
    for (size_t i = 0; i < PLIM_COUNT(c->edits) && c->edits[i]; i++)
        edit(&w, &a, c->edits[i]);
    bool inside = c->from && c->from[0] == '{';
    if (c->from)
        config = replaced(&a, config, c->from, c->to);
    if (inside)
        config = plim_arena_printf(&a, PLIM_STR_FMT "}", PLIM_STR_ARG(config));
    compare(&v, &a, config, &w);
    for (uint32_t i = 0; i < PLIM_COUNT(c->notes); i++)
        CHECK_STR(c->edits[0] ? c->edits[0] : c->config, note_at(&v, i + inside),
                  c->notes[i] ? c->notes[i] : "");
    plim_arena_free(&a);
}

static void test_names(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_str stored = read_whole(&a, "stored.txt");
    for (size_t i = 0; i < PLIM_COUNT(cases); i++)
        try_case(&cases[i], stored);
    plim_arena_free(&a);
}

/* What save_pretrained wrote, unchanged. */
static void test_saved(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_str stored = read_whole(&a, "stored.txt");
    unsigned n = 0;
    for (const char *at = strstr(stored.p, "\n= "); at; at = strstr(at + 1, "\n= "), n++) {
        char name[64];
        snprintf(name, sizeof name, "%.*s", (int)strcspn(at + 3, "\n"), at + 3);
        try_case(&(name_case){.config = name}, stored);
    }
    assert_int_equal(n, 8);
    plim_arena_free(&a);
}

/* With as many experts as a published model, names still take linear time. */
static void test_many(void **state)
{
    (void)state;
    enum { EXPERTS = 20000 };
    static const char *const parts[] = {"gate_proj.weight 8,16", "up_proj.weight 8,16",
                                        "down_proj.weight 16,8"};
    static const char config[] =
        "{\"model_type\":\"qwen3_moe\",\"vocab_size\":32,\"hidden_size\":16,"
        "\"num_hidden_layers\":1,\"num_attention_heads\":2,\"num_key_value_heads\":2,"
        "\"head_dim\":8,\"moe_intermediate_size\":8,\"num_experts\":20000,"
        "\"num_experts_per_tok\":2}";
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v, w = {.arena = &a};
    add_class(&w, &a, PLIM_STR(config));
    edit(&w, &a, "drop model.layers.0.mlp.experts.gate_up_proj");
    edit(&w, &a, "drop model.layers.0.mlp.experts.down_proj");
    for (unsigned i = 0; i < EXPERTS - 1; i++)
        for (size_t k = 0; k < PLIM_COUNT(parts); k++)
            add(&w, plim_arena_printf(&a, "model.layers.0.mlp.experts.%u.%s", i, parts[k]).p);
    compare(&v, &a, PLIM_STR(config), &w);
    assert_int_equal(v.n_notes, 1);
    CHECK_STR("the last is missing", v.notes[0].p,
              MISSING "3" FIRST "'model.layers.0.mlp.experts.19999.gate_proj.weight'");
    plim_arena_free(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_names),
                                       cmocka_unit_test(test_saved),
                                       cmocka_unit_test(test_many)};
    return cmocka_run_group_tests_name("hf_weights", tests, NULL, NULL);
}
