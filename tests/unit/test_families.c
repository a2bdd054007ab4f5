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
    const plim_family f = {"toy", (const unsigned char *)text, strlen(text)};
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

/* The texts of the library: each builds its class as it is by default, of ops that have a rule. */
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
        assert_int_equal(plim_family_open(&a, f, PLIM_STR("{}"), &m, &err), PLIM_OK);
        plim_family_build(&n, m, &training);
        CHECK(err.msg, n.st == PLIM_OK);
        for (uint32_t k = 0; k < g.n_nodes; k++)
            CHECK(f->model_type, g.nodes[k].op != NULL);
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_builds),
        cmocka_unit_test(test_refuses),
        cmocka_unit_test(test_broken_texts),
        cmocka_unit_test(test_library),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
