/* test_families.c -- the texts of model types: what they build, what they refuse, what is wrong in a text. */
#include "families/family.h"
#include "unit.h"

/* Two kinds of layers, one with a bias; a mask that only some are called with. */
static const char toy[] = "family toy\n"
                          "class ToyForCausalLM\n"
                          "task causal\n"
                          "input input_ids [B, S] int64\n"
                          "labels labels [B, S] int64\n"
                          "attention sdpa\n"
                          "alias width hidden_size\n"
                          "key act: 'relu' | 'tanh' = 'relu'\n"
                          "key bounds: [0.0, inf] = [0.0, inf]\n"
                          "key hidden_size: int = 8\n"
                          "key layers: int = 3\n"
                          "key biased?: list = [layers] True if i0 % 2 == 0 else False\n"
                          "key rope_parameters.rope_type: 'default' = 'default'\n"
                          "key rows: int = 4 * hidden_size\n"
                          "ignored note\n"
                          "read window\n"
                          "at =\n"
                          " type ToyForCausalLM\n"
                          " child embed\n"
                          " child layers\n"
                          "at =embed\n"
                          " type Embedding\n"
                          " param weight [rows, hidden_size] $dtype\n"
                          "at =layers\n"
                          " type ModuleList\n"
                          " list layers\n"
                          "at =layers.*\n"
                          " type Linear\n"
                          " param weight [hidden_size, hidden_size] $dtype\n"
                          " if biased[j0]\n"
                          "  param bias [hidden_size] $dtype\n"
                          "at /\n"
                          " type ToyForCausalLM\n"
                          " 0 call embed(input=%input_ids)\n"
                          " if $attention == 'eager' and not $train\n"
                          "  1 ones(size=[S, S])\n"
                          " 2 loop0 layers (~0=%0, mask=%1)\n"
                          " if $train\n"
                          "  3 embedding(weight=/embed.weight, indices=%labels)\n"
                          "  4 add.Tensor(%2, other=%3)\n"
                          " 5 sum(%4|2)\n"
                          " return 0=%5\n"
                          "at /embed\n"
                          " type Embedding\n"
                          " 0 embedding(weight=.weight, indices=%input)\n"
                          " return 0=%0\n"
                          "at /loop0\n"
                          " 0 call layers.{i0}(input=%~0, mask=%mask)\n"
                          " next %0\n"
                          "at /loop0/layers.*\n"
                          " type Linear\n"
                          " if biased[i0]\n"
                          "  0 linear(input=%input, weight=.weight, bias=.bias)\n"
                          " if not biased[i0]\n"
                          "  1 linear(input=%input, weight=.weight)\n"
                          " if act == 'tanh'\n"
                          "  2 tanh(%1|0)\n"
                          " 3 relu(%2|1|0)\n"
                          " return 0=%3\n";

/* Images, classes by their number, and a module that is called with a mask or without. */
static const char seeing[] = "family eye\n"
                             "class EyeForImageClassification\n"
                             "task image\n"
                             "input pixel_values [B, 3, $height, $width] $dtype\n"
                             "image image_size, image_size // 2 fixed\n"
                             "attention eager\n"
                             "key image_size: int = 8\n"
                             "key masked: bool = False\n"
                             "key num_labels: int = 2\n"
                             "at =\n"
                             " type Eye\n"
                             " child head\n"
                             "at =head\n"
                             " type Head\n"
                             " param weight [num_labels, $height * $width * 3] $dtype\n"
                             "at /\n"
                             " type Eye\n"
                             " 0 flatten.using_ints(%pixel_values, start_dim=1)\n"
                             " if masked\n"
                             "  1 relu(%0)\n"
                             " 2 call head(input=%0, mask=%1)\n"
                             " 3 call head(input=%0)\n"
                             " return 0=%2, 1=%3\n"
                             "at /head\n"
                             " type Head\n"
                             " if ?mask and $height > 2\n"
                             "  0 mul.Tensor(%input, other=%mask)\n"
                             " 1 linear(%0|input, weight=.weight)\n"
                             " return 0=%1\n";

/* Text, with images or without; a configuration of two, one with rotary embeddings for each type of layers. */
static const char reading[] =
    "family both\n"
    "class BothForConditionalGeneration\n"
    "task pictures\n"
    "input input_ids [B, S] int64\n"
    "input pixel_values [B * $images, 3, $height, $width] $dtype\n"
    "input token_type_ids [B, S if $images > 0 else 0] int64\n"
    "image vision_config.image_size, vision_config.image_size\n"
    "attention sdpa\n"
    "alias text_config.width text_config.hidden_size\n"
    "key text_config.hidden_size: int = 8\n"
    "key text_config.model_type: 'words' = 'words'\n"
    "key text_config.rope_parameters.full_attention.rope_type: 'default' | 'linear' = "
    "'default'\n"
    "key vision_config.image_size: int = 4\n"
    "ignored text_config.rope_parameters.full_attention.factor\n"
    "read window\n"
    "at =\n"
    " type Both\n"
    " child embed\n"
    " child see\n"
    "at =embed\n"
    " type Embedding\n"
    " param weight [5, text_config.hidden_size] $dtype\n"
    "at =see\n"
    " type Linear\n"
    " param weight [text_config.hidden_size, 3 * vision_config.image_size * "
    "vision_config.image_size] $dtype\n"
    "at /\n"
    " type Both\n"
    " 0 call embed(input=%input_ids)\n"
    " if ?pixel_values\n"
    "  1 flatten.using_ints(%pixel_values, start_dim=1)\n"
    "  2 call see(input=%1)\n"
    "  3 unbind.int(%2) -> [B * $images]\n"
    "  4 cat(tensors=[%3[*]])\n"
    "  5 unsqueeze(%token_type_ids, dim=-1)\n"
    "  6 masked_scatter(%0, mask=%5, source=%4)\n"
    " if text_config.rope_parameters.full_attention.rope_type == 'linear'\n"
    "  7 relu(%6|0)\n"
    " return 0=%7|6|0\n"
    "at /embed\n"
    " type Embedding\n"
    " 0 embedding(weight=.weight, indices=%input)\n"
    " return 0=%0\n"
    "at /see\n"
    " type Linear\n"
    " 0 linear(input=%input, weight=.weight)\n"
    " return 0=%0\n";

/* Every third layer keeps all tokens, the others those of a window but one. */
static const char keeping[] =
    "family keeper\n"
    "class KeeperForCausalLM\n"
    "task causal\n"
    "input input_ids [B, S] int64\n"
    "attention sdpa\n"
    "key heads: int = 2\n"
    "key layers: int = 6\n"
    "key window: None | int = 16\n"
    "ignored x\n"
    "at =\n"
    " type Keeper\n"
    "at /\n"
    " type Keeper\n"
    " 0 loop0 layers ()\n"
    " return 0=%input_ids, cache.layers.*.keys=%0[*]\n"
    "at /loop0\n"
    " if i0 % 3 == 2 or window == None\n"
    "  0 zeros(size=[B, heads, S, 4], dtype=$dtype)\n"
    " if not (i0 % 3 == 2 or window == None)\n"
    "  1 zeros(size=[B, heads, min(S, window - 1), 4], dtype=$dtype)\n"
    " 2 relu(%1|0)\n"
    " 3 empty.memory_format(size=[], dtype=int64)\n"
    " if %1\n"
    "  keep %3, %1, %2\n"
    " if %0\n"
    "  keep %0, %2\n";

/* Tests of items and of the type of parameters, a loop of the code itself, a size from a fraction, and an index that leaves
 * a dimension whole. */
static const char chained[] = "family chain\n"
                              "class Chain\n"
                              "task text\n"
                              "input x [B, S] $dtype\n"
                              "key deep: bool = False\n"
                              "key part: float = 0.5\n"
                              "key must?: int\n"
                              "key wide: bool = False\n"
                              "at =\n"
                              " type Chain\n"
                              "at /\n"
                              " type Chain\n"
                              " if deep\n"
                              "  0 relu(%x)\n"
                              " if %0 and (wide or $train)\n"
                              "  1 tanh(%0)\n"
                              " if %1\n"
                              "  2 neg(%1)\n"
                              " if $dtype == 'float32'\n"
                              "  3 exp(%2|1|0|x)\n"
                              " 4 loop_add0 ceil(S, 2) (~0=%3|2|1|0|x)\n"
                              " if %4 and $dtype == 'bfloat16'\n"
                              "  5 abs(%4)\n"
                              " 6 slice.Tensor(%5|4, dim=1, start=int(S * part), end=far)\n"
                              " 7 empty.memory_format(size=[2], dtype=int64)\n"
                              " 8 index.Tensor(%6, indices=[None, %7])\n"
                              " return 0=%8\n"
                              "at /loop_add0\n"
                              " 0 add.Tensor(%~0, other=i0)\n"
                              " next %0\n";

typedef struct built {
    plim_graph g;
    plim_arena a;
    plim_err err;
    plim_status st;
    uint64_t parameters;
    uint32_t nodes;
} built;

static void build(built *b, const char *text, const char *config, const plim_family_call *call)
{
    const plim_family f = {"toy", "Toy", (const unsigned char *)text, strlen(text)};
    plim_family_model *m = NULL;
    plim_nn n;
    *b = (built){.a = PLIM_ARENA_INIT, .err = PLIM_ERR_INIT};
    b->st = plim_graph_init(&b->g, &b->a, &b->err);
    plim_nn_init(&n, &b->g, &b->err);
    if (!b->st)
        b->st = plim_family_open(&b->a, &f, plim_str_of(config), &m, &b->err);
    if (!b->st) {
        plim_family_build(&n, m, call);
        b->st = n.st;
    }
    for (uint32_t i = 0; i < b->g.n_values; i++) {
        uint64_t n_elements = 0;
        if (b->g.values[i].kind == PLIM_VALUE_PARAMETER &&
            plim_meta_numel(&b->g.values[i].meta, &n_elements))
            b->parameters += n_elements;
    }
    b->nodes = b->g.n_nodes;
    plim_arena_free(&b->a);
}

static const plim_family_call training = {.batch = 2, .seq = 5, .train = true},
                              asking = {.batch = 2, .seq = 5},
                              eager = {.batch = 2, .seq = 5, .eager = true};

static void test_builds(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        const plim_family_call *call;
        uint64_t parameters;
        uint32_t nodes;
    } rows[] = {
        {"{}", &asking, 32 * 8 + 3 * 64 + 2 * 8, 1 + 3 * 2 + 1},
        {"{}", &training, 32 * 8 + 3 * 64 + 2 * 8, 1 + 3 * 2 + 3},
        {"{}", &eager, 32 * 8 + 3 * 64 + 2 * 8, 1 + 1 + 3 * 2 + 1},
        {"{\"width\": 4}", &asking, 16 * 4 + 3 * 16 + 2 * 4, 8},
        {"{\"layers\": 5, \"act\": \"tanh\"}", &asking, 32 * 8 + 5 * 64 + 3 * 8,
         1 + 5 * 3 + 1},
        {"{\"biased\": [false, false, false]}", &asking, 32 * 8 + 3 * 64, 8},
        {"{\"biased\": null, \"note\": \"x\"}", &asking, 32 * 8 + 3 * 64 + 2 * 8, 8},
        {"{\"rope_scaling\": null, \"rows\": 10}", &asking, 10 * 8 + 3 * 64 + 2 * 8, 8},
        {"{\"layers\": 0}", &asking, 32 * 8, 2},
        {"{\"bounds\": [0.0, Infinity]}", &asking, 32 * 8 + 3 * 64 + 2 * 8, 8},
        {"{\"bounds\": [0, {\"__float__\": \"Infinity\"}]}", &asking, 32 * 8 + 3 * 64 + 2 * 8,
         8},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        build(&b, toy, rows[i].config, rows[i].call);
        CHECK(rows[i].config, b.st == PLIM_OK);
        CHECK(rows[i].config, b.parameters == rows[i].parameters);
        CHECK(rows[i].config, b.nodes == rows[i].nodes);
    }
}

static void test_refuses(void **state)
{
    (void)state;
    static const struct {
        const char *config, *why;
    } rows[] = {
        {"{\"act\": \"gelu\"}", "'act' has a value that is not known"},
        {"{\"bounds\": [0.0, 2.0]}", "'bounds' has a value that is not known"},
        {"{\"bounds\": [0.0, {\"__float__\": \"-Infinity\"}]}", "'bounds' has a value"},
        {"{\"bounds\": [0.0, {\"float\": \"Infinity\"}]}", "'bounds' has a value"},
        {"{\"hidden_size\": null}", "'hidden_size' has a value"},
        {"{\"hidden_size\": \"8\"}", "'hidden_size' has a value"},
        {"{\"hidden_size\": -1}", "would have a size of -"},
        {"{\"window\": 4}", "key 'window' is not known"},
        {"{\"rope_parameters\": {\"factor\": 2}}",
         "key 'rope_parameters.factor' is not known"},
        {"{\"rope_scaling\": {\"type\": \"yarn\"}}",
         "'rope_parameters.rope_type' has a value"},
        {"{\"biased\": [true]}", "has no item 1"},
        {"{\"layers\": 5000}", "5000"},
        {"{\"layers\": 3", ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        build(&b, toy, rows[i].config, &asking);
        CHECK(rows[i].config, b.st == PLIM_EUNSUPPORTED || b.st == PLIM_EFORMAT);
        CHECK(b.err.msg, strstr(b.err.msg, rows[i].why));
    }
}

static void test_images(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t image[2];
        bool fixed;
        uint64_t parameters;
        uint32_t nodes; /* 0: refused */
    } rows[] = {
        {"{}", {0, 0}, false, 2 * 8 * 4 * 3, 3},
        {"{\"masked\": true}", {0, 0}, false, 2 * 8 * 4 * 3, 5},
        {"{\"image_size\": 10}", {0, 0}, true, 2 * 10 * 5 * 3, 3},
        {"{}", {6, 7}, false, 2 * 6 * 7 * 3, 3},
        {"{\"masked\": true}", {2, 7}, false, 2 * 2 * 7 * 3, 4},
        {"{}", {8, 4}, true, 2 * 8 * 4 * 3, 3},
        {"{}", {8, 8}, true, 0, 0},
        {"{\"id2label\": {\"0\": \"cat\", \"1\": \"dog\", \"2\": \"cow\"}}",
         {0, 0},
         false,
         3 * 8 * 4 * 3,
         3},
        {"{\"num_labels\": 5, \"id2label\": {\"0\": \"cat\"}}",
         {0, 0},
         false,
         5 * 8 * 4 * 3,
         3},
        {"{\"id2label\": null}", {0, 0}, false, 2 * 8 * 4 * 3, 3},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char text[sizeof seeing];
        built b;
        const plim_family_call call = {.batch = 2,
                                       .image = {rows[i].image[0], rows[i].image[1]}};
        memcpy(text, seeing, sizeof seeing);
        if (!rows[i].fixed)
            memset(strstr(text, "fixed"), ' ', sizeof "fixed" - 1);
        build(&b, text, rows[i].config, &call);
        CHECK(rows[i].config, (b.st == PLIM_OK) == (rows[i].nodes > 0));
        if (b.st)
            CHECK(b.err.msg, strstr(b.err.msg, "images of 8 x 8"));
        else
            CHECK(rows[i].config, b.parameters == rows[i].parameters);
        if (!b.st)
            CHECK(rows[i].config, b.nodes == rows[i].nodes);
    }
}

static void test_parts(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        int64_t images;
        uint64_t parameters;
        uint32_t nodes; /* 0: refused, as */
        const char *why;
    } rows[] = {
        {"{}", 0, 8 * (5 + 48), 1, NULL},
        {"{}", 1, 8 * (5 + 48), 7, NULL},
        {"{}", 3, 8 * (5 + 48), 7, NULL},
        {"{\"text_config\": {\"width\": 4, \"model_type\": \"words\", \"use_cache\": true}}",
         1, 4 * (5 + 48), 7, NULL},
        {"{\"vision_config\": {\"image_size\": 2}}", 1, 8 * (5 + 12), 7, NULL},
        {"{\"text_config\": {\"rope_scaling\": {\"type\": \"linear\", \"factor\": 8.0}, "
         "\"rope_theta\": 1e6}}",
         1, 8 * (5 + 48), 8, NULL},
        {"{\"text_config\": {\"rope_scaling\": {\"type\": \"linear\", \"mscale\": 1.0}}}", 1,
         8 * (5 + 48), 8, NULL},
        {"{\"text_config\": {\"rope_scaling\": {\"rope_type\": \"yarn\"}}}", 0, 0, 0,
         "'text_config.rope_parameters.full_attention.rope_type' has a value"},
        {"{\"text_config\": {\"window\": 3}}", 0, 0, 0,
         "key 'text_config.window' is not known"},
        {"{\"text_config\": {\"model_type\": \"others\"}}", 0, 0, 0,
         "'text_config.model_type' has a value"},
        {"{\"text_config\": {\"note\": 1}}", 1, 8 * (5 + 48), 7, NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        const plim_family_call call = {.batch = 2, .seq = 5, .images = rows[i].images};
        build(&b, reading, rows[i].config, &call);
        CHECK(rows[i].config, (b.st == PLIM_OK) == !rows[i].why);
        if (rows[i].why)
            CHECK(b.err.msg, strstr(b.err.msg, rows[i].why));
        else
            CHECK(rows[i].config, b.parameters == rows[i].parameters);
        if (!rows[i].why)
            CHECK(rows[i].config, b.nodes == rows[i].nodes);
    }
}

static void test_keeps(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t kinds, runs;
        int64_t window; /* of the first layer */
        uint64_t elements;
    } rows[] = {
        {"{}", 2, 4, 16, 6 * 2 * 8},
        {"{\"window\": null, \"heads\": 3}", 1, 1, 0, 6 * 3 * 8},
        {"{\"layers\": 2, \"window\": 9}", 1, 1, 9, 2 * 2 * 8},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_family f = {"keeper", "KeeperForCausalLM", (const unsigned char *)keeping,
                               sizeof keeping - 1};
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g = {.arena = &a};
        plim_err err = PLIM_ERR_INIT;
        plim_family_model *m;
        assert_int_equal(plim_graph_init(&g, &a, &err), PLIM_OK);
        assert_int_equal(plim_family_open(&a, &f, plim_str_of(rows[i].config), &m, &err),
                         PLIM_OK);
        CHECK(err.msg, plim_family_keeps(m, &g, &err) == PLIM_OK);
        CHECK(rows[i].config, g.kv.n_kinds == rows[i].kinds);
        CHECK(rows[i].config, g.kv.n_runs == rows[i].runs);
        CHECK(rows[i].config, g.kv.kinds[0].window == rows[i].window);
        CHECK(rows[i].config, g.kv.elements == rows[i].elements);
        plim_arena_free(&a);
    }
}

/* Images as patches of any number: the parts of a list, each in its turn, layers by their place in a list, a
 * configuration whose keys older files have themselves. */
static const char gridded[] =
    "family grid\n"
    "class GridForConditionalGeneration\n"
    "task grids\n"
    "input input_ids [B, S] int64\n"
    "input pixel_values [B * $images * $patches, 3] $dtype\n"
    "kept deltas [B, 1 if $images > 0 else 0] int64\n"
    "image 4 * vision_config.patch, 4 * vision_config.patch\n"
    "multiple vision_config.patch\n"
    "size $patches = $height // vision_config.patch * ($width // vision_config.patch)\n"
    "flat text_config\n"
    "requires vision_config.patch > 1\n"
    "key text_config.width: int = 8\n"
    "key vision_config.deep: list = [1, 3]\n"
    "key vision_config.patch: int = 2\n"
    "at =\n"
    " type Grid\n"
    " param weight [text_config.width] $dtype\n"
    "at /\n"
    " type Grid\n"
    " if ?pixel_values\n"
    "  0 split_with_sizes(%pixel_values, split_sizes=[$patches], dim=0) -> [B * $images]\n"
    "  1 loop_part0 B * $images(split=%0[*])\n"
    "  2 cat(tensors=[%1[*]])\n"
    "  3 loop0 4(x=%2)\n"
    " 4 relu(.weight)\n"
    " return 0=%4\n"
    "at /loop_part0\n"
    " 0 relu(%split[i0])\n"
    " keep %0\n"
    "at /loop0\n"
    " if i0 in vision_config.deep\n"
    "  0 select.int(%x, dim=1, index=index(vision_config.deep, i0))\n"
    "  keep %0\n";

static void test_grids(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        plim_family_call call;
        uint64_t parameters;
        uint32_t nodes; /* 0: refused */
    } rows[] = {
        {"{}", {.batch = 2, .seq = 5}, 8, 1},
        {"{}", {.batch = 2, .seq = 5, .images = 1}, 8, 1 + 2 + 1 + 2 + 1},
        {"{}", {.batch = 2, .seq = 5, .images = 3}, 8, 1 + 6 + 1 + 2 + 1},
        {"{\"vision_config\": {\"deep\": [2]}}",
         {.batch = 1, .seq = 5, .images = 1},
         8,
         1 + 1 + 1 + 1 + 1},
        {"{\"width\": 6}", {.batch = 2, .seq = 5}, 6, 1},
        {"{\"text_config\": {\"width\": 7}}", {.batch = 2, .seq = 5}, 7, 1},
        {"{\"text_config\": {}, \"width\": 6}", {.batch = 2, .seq = 5}, 8, 1},
        {"{\"width\": 6, \"height\": 7}", {.batch = 2, .seq = 5}, 6, 1},
        {"{\"vision_config\": []}", {.batch = 2, .seq = 5}, 0, 0},
        {"{\"vision_config\": null}", {.batch = 2, .seq = 5}, 8, 1},
        {"{\"vision_config\": {\"patch\": 1}}", {.batch = 2, .seq = 5}, 0, 0},
        {"{\"width\": \"6\"}", {.batch = 2, .seq = 5}, 0, 0},
        {"{}", {.batch = 2000, .seq = 5, .images = 3}, 0, 0}, /* too many parts */
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        build(&b, gridded, rows[i].config, &rows[i].call);
        CHECK(rows[i].config, (b.st == PLIM_OK) == (rows[i].nodes > 0));
        CHECK(rows[i].config, b.st || b.parameters == rows[i].parameters);
        CHECK(rows[i].config, b.st || b.nodes == rows[i].nodes);
    }
}

/* Windows of an image, of which those at its edges are smaller: each is attended to by itself, but in some layers. */
static const char windowed[] =
    "family windows\n"
    "class WindowsModel\n"
    "task grids\n"
    "input pixel_values [B * $images * $patches, 3] $dtype\n"
    "image 4, 4\n"
    "size $patches = $height * $width\n"
    "size $wholes = windows($height, $width, $patches) * (B * $images)\n"
    "size $windows = windows($height, $width, side) * (B * $images)\n"
    "key deep: list = [1]\n"
    "key side: int = 3\n"
    "key turn: None | int = None\n"
    "key part: float = 1.0 if turn == None else turn / side\n"
    "at =\n"
    " type Windows\n"
    "at /\n"
    " type Windows\n"
    " 0 slice.Tensor(%pixel_values, dim=1, start=0, end=int(3 * part))\n"
    " 1 loop0 2(x=%0)\n"
    "at /loop0\n"
    " 0 split_with_sizes(%x, split_sizes=$wholes if i0 in deep else $windows, dim=0) -> [*]\n"
    " 1 loop_list0 len(($wholes if i0 in deep else $windows))(split=%0[*])\n"
    " 2 cat(tensors=[%1[*]])\n"
    " keep %2\n"
    "at /loop0/loop_list0\n"
    " 0 relu(%split[i1])\n"
    " keep %0\n";

static void test_windows(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        plim_family_call call;
        uint32_t nodes; /* 0: refused */
    } rows[] = {
        {"{}",
         {.batch = 1, .images = 1},
         1 + (1 + 4 + 1) + (1 + 1 + 1)}, /* 4 by 4: 3 + 1 twice */
        {"{}", {.batch = 2, .images = 3}, 1 + (1 + 24 + 1) + (1 + 6 + 1)},
        {"{\"side\": 4}", {.batch = 1, .images = 1}, 1 + 2 * (1 + 1 + 1)},
        {"{\"side\": 9}", {.batch = 1, .images = 1}, 1 + 2 * (1 + 1 + 1)},
        {"{}", {.batch = 1, .images = 1, .image = {7, 3}}, 1 + (1 + 3 + 1) + (1 + 1 + 1)},
        {"{\"turn\": 2}", {.batch = 1, .images = 1}, 1 + (1 + 4 + 1) + (1 + 1 + 1)},
        {"{\"side\": 0}", {.batch = 1, .images = 1}, 0},
        {"{\"side\": 0, \"turn\": 1}", {.batch = 1, .images = 1}, 0},
        {"{\"side\": 1}", {.batch = 1, .images = 1, .image = {100, 100}}, 0}, /* too many */
        {"{\"side\": 1}", {.batch = 1, .images = 1, .image = {1 << 30, 1 << 30}}, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        build(&b, windowed, rows[i].config, &rows[i].call);
        CHECK(rows[i].config, (b.st == PLIM_OK) == (rows[i].nodes > 0));
        CHECK(rows[i].config, b.st || b.nodes == rows[i].nodes);
    }
}

/* Layers of types that a file spells with letters, or by the names of older releases. */
static const char spelled[] =
    "family spelled\n"
    "class SpelledForCausalLM\n"
    "task causal\n"
    "input input_ids [B, S] int64\n"
    "key layer_types: list = [2] 'moe'\n"
    "alias pattern layer_types\n"
    "letters layer_types M=linear_attention E=moe *=full_attention\n"
    "key rope_parameters.rope_type?: 'default' | 'yarn' = 'default'\n"
    "ropes factor rope_type\n"
    "kernels fast_ssm\n"
    "at =\n"
    " type Spelled\n"
    "at /\n"
    " type Spelled\n"
    " 0 loop0 len(layer_types)(x=%input_ids)\n"
    "at /loop0\n"
    " if layer_types[i0] == 'linear_attention'\n"
    "  0 relu(%x)\n"
    " if layer_types[i0] == 'full_attention'\n"
    "  1 relu(%x)\n"
    "  2 relu(%1)\n";

static void test_letters(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        uint32_t nodes;
        bool taken;
    } rows[] = {
        {"{}", 0, true},
        {"{\"pattern\": \"MEM*\"}", 4, true},
        {"{\"pattern\": \"\"}", 0, true},
        {"{\"layer_types\": [\"mamba\", \"attention\", \"moe\"]}", 3, true},
        {"{\"layer_types\": [\"linear_attention\"]}", 1, true},
        {"{\"pattern\": \"M?\"}", 0, false},
        {"{\"pattern\": 3}", 0, false},
        {"{\"rope_scaling\": {\"interleaved\": true}}", 0, true}, /* which no code asks for */
        {"{\"rope_scaling\": {\"rope_type\": \"yarn\"}}", 0, true},
        {"{\"rope_scaling\": {\"rope_type\": \"llama3\"}}", 0, false},
    };
    const plim_family_call call = {.batch = 1, .seq = 4};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        built b;
        build(&b, spelled, rows[i].config, &call);
        CHECK(rows[i].config, (b.st == PLIM_OK) == rows[i].taken);
        CHECK(rows[i].config, b.st || b.nodes == rows[i].nodes);
    }
    const plim_family f = {"spelled", "Spelled", (const unsigned char *)spelled,
                           sizeof spelled - 1};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_family_model *m;
    assert_int_equal(plim_family_open(&a, &f, PLIM_STR("{}"), &m, &err), PLIM_OK);
    assert_true(plim_str_is(plim_family_kernels(m), "fast_ssm"));
    plim_arena_free(&a);
}

/* Sizes to which a processor resizes images. */
static void test_rounds(void **state)
{
    (void)state;
    static const struct {
        int64_t image[2], height, width;
    } rows[] = {{{0, 0}, 8, 8}, {{5, 8}, 6, 8}, {{1, 7}, 2, 8}, {{720, 1281}, 720, 1282}};
    const plim_family f = {"grid", "Grid", (const unsigned char *)gridded, sizeof gridded - 1};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_family_model *m;
    assert_int_equal(plim_family_open(&a, &f, PLIM_STR("{}"), &m, &err), PLIM_OK);
    assert_true(plim_family_rounds(m));
    assert_false(plim_family_pairs(m));
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_family_call call = {.image = {rows[i].image[0], rows[i].image[1]}};
        int64_t height = 0, width = 0;
        plim_family_image(m, &call, &height, &width);
        assert_int_equal(height, rows[i].height);
        assert_int_equal(width, rows[i].width);
    }
    plim_arena_free(&a);
}

/* A denoiser: sizes with names, height and width in steps, its own numbers of tokens and frames, one list. */
static const char maker[] = "family maker\n"
                            "class Maker\n"
                            "task denoiser\n"
                            "input x [B, $patches, wide] $dtype\n"
                            "input text [B, S] $dtype\n"
                            "image 64, 64\n"
                            "multiple 16\n"
                            "seq 7\n"
                            "frames 9\n"
                            "size $latents = ($frames - 1) // 4 + 1\n"
                            "size $patches = $latents * ($height // 16) * ($width // 16)\n"
                            "key wide: int = 4\n"
                            "key blocks: [1, 2]\n"
                            "at =\n"
                            " type Maker\n"
                            " param weight [wide] $dtype\n"
                            "at /\n"
                            " type Maker\n"
                            " 0 relu(%x)\n"
                            " if $dtype == 'float16'\n"
                            "  1 clip(%0, min=-1, max=1)\n"
                            " return 0=%1|0\n";

static void test_denoiser(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        plim_family_call call;
        int64_t patches, tokens; /* 0: refused */
        const char *why;
    } rows[] = {
        {"{\"blocks\": [1, 2]}", {.batch = 2}, 3 * 4 * 4, 7, NULL},
        {"{\"blocks\": [1, 2]}", {.batch = 2, .seq = 5, .frames = 1}, 4 * 4, 5, NULL},
        {"{\"blocks\": [1, 2]}", {.batch = 2, .image = {32, 48}}, 3 * 2 * 3, 7, NULL},
        {"{\"blocks\": [1, 2]}", {.batch = 2, .image = {40, 48}}, 0, 0, "multiples of 16"},
        {"{\"blocks\": [1, 3]}", {.batch = 2}, 0, 0, "it was learnt with [1, 2]"},
        {"{}", {.batch = 2}, 0, 0, "'blocks' is missing"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_family f = {"maker", "Maker", (const unsigned char *)maker,
                               sizeof maker - 1};
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g = {.arena = &a};
        plim_err err = PLIM_ERR_INIT;
        plim_family_model *m;
        plim_nn n;
        assert_int_equal(plim_graph_init(&g, &a, &err), PLIM_OK);
        plim_nn_init(&n, &g, &err);
        plim_status st = plim_family_open(&a, &f, plim_str_of(rows[i].config), &m, &err);
        if (!st) {
            plim_family_build(&n, m, &rows[i].call);
            st = n.st;
        }
        CHECK(err.msg, !st == (rows[i].patches > 0));
        CHECK(err.msg, !st || strstr(err.msg, rows[i].why));
        if (!st) {
            CHECK(rows[i].config, g.values[g.inputs[0]].meta.dim[1] == rows[i].patches);
            CHECK(rows[i].config, g.values[g.inputs[1]].meta.dim[1] == rows[i].tokens);
            CHECK(rows[i].config, g.n_nodes == 1 && plim_family_text(m) == 7);
        }
        plim_arena_free(&a);
    }
}

/* Two of them in one graph: names have the part's in front, and only one is trained. */
static void test_append(void **state)
{
    (void)state;
    const plim_family f = {"maker", "Maker", (const unsigned char *)maker, sizeof maker - 1};
    static const plim_append how[] = {
        {.name = {"first", 5}, .runs = true},
        {.name = {"second", 6}, .runs = true, .trained = true, .returns = true},
        {.name = {"third", 5}}};
    const plim_family_call call = {.batch = 2};
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph whole = {.arena = &a};
    plim_err err = PLIM_ERR_INIT;
    assert_int_equal(plim_graph_init(&whole, &a, &err), PLIM_OK);
    for (size_t i = 0; i < PLIM_COUNT(how); i++) {
        plim_graph g = {.arena = &a};
        plim_family_model *m;
        plim_nn n;
        assert_int_equal(plim_graph_init(&g, &a, &err), PLIM_OK);
        plim_nn_init(&n, &g, &err);
        assert_int_equal(plim_family_open(&a, &f, PLIM_STR("{\"blocks\": [1, 2]}"), &m, &err),
                         PLIM_OK);
        plim_family_build(&n, m, &call);
        assert_int_equal(n.st, PLIM_OK);
        assert_true(plim_graph_append(&whole, &g, &how[i]));
    }
    const char *why = plim_graph_check(&whole);
    CHECK(why ? why : "", !why);
    assert_int_equal(whole.n_inputs, 4);
    assert_int_equal(whole.n_outputs, 1);
    assert_int_equal(whole.n_nodes, 2);
    uint32_t parameters = 0, trained = 0;
    for (uint32_t i = 0; i < whole.n_values; i++) {
        parameters += whole.values[i].kind == PLIM_VALUE_PARAMETER;
        trained +=
            whole.values[i].kind == PLIM_VALUE_PARAMETER && whole.values[i].requires_grad;
    }
    assert_int_equal(parameters, 3);
    assert_int_equal(trained, 1);
    const plim_node *last = &whole.nodes[1];
    CHECK("its scope", plim_str_is(whole.scopes[last->scope].path, "second"));
    CHECK("its input", plim_node_value(last, 0) == whole.inputs[2]);
    CHECK("its output", whole.outputs[0] == last->outs[0]);
    plim_arena_free(&a);
}

/* RoBERTa's first token has the row after that of padding. */
static void test_positions(void **state)
{
    (void)state;
    static const char text[] = "family roberta\n"
                               "class RobertaModel\n"
                               "task text\n"
                               "input input_ids [B, S] int64\n"
                               "key max_position_embeddings: int = 512\n"
                               "positions max_position_embeddings - 2\n";
    const plim_family f = {"roberta", "RobertaModel", (const unsigned char *)text,
                           sizeof text - 1};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_family_model *m;
    bool hard = false;
    assert_int_equal(
        plim_family_open(&a, &f, PLIM_STR("{\"max_position_embeddings\": 514}"), &m, &err),
        PLIM_OK);
    assert_int_equal(plim_family_positions(m, &hard), 512);
    assert_true(hard);
    plim_arena_free(&a);
}

static void test_tests_of_items(void **state)
{
    (void)state;
    static const struct {
        const char *config;
        bool train;
        uint32_t nodes;
    } rows[] = {
        {"{\"must\": 1}", false, 3 + 1 + 3},
        {"{\"must\": 1, \"deep\": true}", false, 1 + 3 + 1 + 3},
        {"{\"must\": 1, \"deep\": true}", true, 3 + 3 + 1 + 3},
        {"{\"must\": 1, \"deep\": true, \"wide\": true}", false, 3 + 3 + 1 + 3},
        {"{\"must\": 1, \"wide\": true}", true, 3 + 1 + 3},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_family_call call = {.batch = 2, .seq = 5, .train = rows[i].train};
        built b;
        build(&b, chained, rows[i].config, &call);
        CHECK(b.err.msg, b.st == PLIM_OK);
        CHECK(rows[i].config, b.nodes == rows[i].nodes);
    }
    static const char *const without[] = {"{}", "{\"must\": null}"};
    for (size_t i = 0; i < PLIM_COUNT(without); i++) {
        built b;
        build(&b, chained, without[i], &training);
        CHECK(b.err.msg, b.st == PLIM_EUNSUPPORTED && strstr(b.err.msg, "'must' is missing"));
    }
}

/* A text cut anywhere, or with a character changed, gives an error or a graph. */
static void test_broken_texts(void **state)
{
    (void)state;
    for (size_t n = 0; n < sizeof toy; n += 3) {
        char text[sizeof toy];
        built b;
        memcpy(text, toy, sizeof toy);
        text[n] = '\0';
        build(&b, text, "{}", &training);
        memcpy(text, toy, sizeof toy);
        text[n] = text[n] == '%' ? '[' : '%';
        build(&b, text, "{}", &training);
        CHECK("a broken text", b.st == PLIM_OK || b.err.msg[0]);
    }
}

/* The texts of the library: each builds its class as it is by default, of ops that have a rule, or names a key that the
 * file must have. */
static void test_library(void **state)
{
    (void)state;
    assert_true(plim_family_count() > 0);
    for (uint32_t i = 0; i < plim_family_count(); i++) {
        const plim_family *f = plim_family_at(i);
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g = {.arena = &a};
        plim_err err = PLIM_ERR_INIT;
        plim_family_model *m;
        plim_nn n;
        assert_int_equal(plim_graph_init(&g, &a, &err), PLIM_OK);
        plim_nn_init(&n, &g, &err);
        plim_status st = plim_family_open(&a, f, PLIM_STR("{}"), &m, &err);
        CHECK(err.msg, !st || (st == PLIM_EUNSUPPORTED && strstr(err.msg, "is missing")));
        if (!st)
            plim_family_build(&n, m, &training);
        CHECK(err.msg, st || n.st == PLIM_OK);
        for (uint32_t k = 0; k < g.n_nodes; k++)
            CHECK(f->model_type, g.nodes[k].op != NULL);
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds),    cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_images),    cmocka_unit_test(test_parts),
        cmocka_unit_test(test_keeps),     cmocka_unit_test(test_tests_of_items),
        cmocka_unit_test(test_denoiser),  cmocka_unit_test(test_append),
        cmocka_unit_test(test_positions), cmocka_unit_test(test_broken_texts),
        cmocka_unit_test(test_library),   cmocka_unit_test(test_grids),
        cmocka_unit_test(test_rounds),    cmocka_unit_test(test_windows),
        cmocka_unit_test(test_letters),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
