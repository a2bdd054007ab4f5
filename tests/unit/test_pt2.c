/* test_pt2.c -- torch.export archives: files written by torch against torch's figures for the
 * same models, programs written by hand, and broken files. */
#include <stdio.h>

#include "base/fmt.h"
#include "base/json.h"
#include "base/zip.h"
#include "import/import.h"
#include "import/symexpr.h"
#include "listing.h"
#include "machine/machine_run.h"
#include "op/op.h"
#include "unit.h"

static plim_bytes map(const char *name) { return listing_map("%s.pt2", name); }

static plim_status load(plim_graph *g, plim_arena *a, plim_bytes b, const plim_binding *bind,
                        plim_err *err)
{
    plim_status st = plim_graph_init(g, a, err);
    const plim_importer *im = plim_importer_probe(b);
    return st   ? st
           : im ? im->read(g, &(plim_source){.bytes = b}, bind, err)
                : plim_fail(err, PLIM_EFORMAT, 0, "no known format");
}

static plim_bytes text_bytes(const char *z)
{
    return (plim_bytes){.p = (const uint8_t *)z, .n = strlen(z)};
}

static uint32_t value_named(const plim_graph *g, const char *name)
{
    for (uint32_t i = 0; i < g->n_values; i++)
        if (plim_str_is(g->values[i].name, name))
            return i;
    return PLIM_NONE;
}

static void check_shape(const char *why, const plim_graph *g, uint32_t id, const char *want)
{
    char dims[200];
    CHECK_STR(why, plim_meta_str(&g->values[id].meta, dims, sizeof dims), want);
}

/* ======================================================================== */
/* Files written by torch */
/* ======================================================================== */

/* src: sum(p.numel() for p in model.parameters()), the same for buffers, of the models
 * themselves; nodes: the graph module's calls except those that return no tensor */
static const struct {
    const char *name, *input, *output; /* shapes after the batch dimension */
    uint64_t parameters, buffers, buffer_bytes;
    uint32_t nodes;
    int64_t hint;
} samples[] = {
    {"seed_mlp", "3", "100", 362300, 0, 0, 5, 10},
    {"mlp4096", "1024", "1000", 25076712, 0, 0, 5, 256},
    {"alexnet", "3, 224, 224", "1000", 61100840, 0, 0, 22, 2},
    {"vgg16", "3, 224, 224", "1000", 138357544, 0, 0, 40, 2},
    {"resnet18", "3, 224, 224", "1000", 11689512, 9620, 38560, 89, 2},
    {"mobilenet_v2", "3, 224, 224", "1000", 3504872, 34164, 136864, 205, 2},
    {"vit_b_16", "3, 224, 224", "1000", 86567656, 0, 0, 430, 2},
};

/* Ops for which an export cannot know CUDA's strides: it was made on the CPU or the meta
 * device, whose attention writes its output in the order of its shape. */
static bool device_decides(plim_str target)
{
    return plim_str_starts(target, "aten.scaled_dot_product_attention");
}

/* The rule of each node, run on the shapes in the file, must give the shapes in the file. */
static void check_rules(const char *name, plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        plim_meta told[16];
        plim_err err = PLIM_ERR_INIT;
        if (!n->op)
            fail_msg("%s: no rule for '%s'", name, n->target.p);
        assert_true(n->n_outs <= PLIM_COUNT(told));
        for (uint32_t k = 0; k < n->n_outs; k++)
            told[k] = g->values[n->outs[k]].meta;
        if (plim_op_infer(g, n, &err))
            fail_msg("%s: '%s': %s", name, n->target.p, err.msg);
        for (uint32_t k = 0; k < n->n_outs; k++) {
            plim_meta *m = &g->values[n->outs[k]].meta;
            bool same = m->dtype == told[k].dtype && plim_same_size(m, &told[k]);
            for (int32_t d = 0; same && d < m->rank && !device_decides(n->target); d++)
                same = m->dim[d] == 1 || m->stride[d] == told[k].stride[d];
            if (!same)
                fail_msg("%s: output %u of '%s' differs", name, (unsigned)k, n->target.p);
            *m = told[k];
        }
    }
}

static void test_samples(void **state)
{
    (void)state;
    static const int64_t batches[] = {0, 1, 7, 64};
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_bytes b = map(samples[i].name);
        for (size_t k = 0; k < PLIM_COUNT(batches); k++) {
            const char *why = samples[i].name;
            plim_arena a = PLIM_ARENA_INIT;
            plim_err err = PLIM_ERR_INIT;
            plim_binding bind = {.batch = batches[k]};
            plim_graph g;
            plim_graph_counts c;
            char want[64];
            int64_t batch = batches[k] ? batches[k] : samples[i].hint;
            if (load(&g, &a, b, &bind, &err))
                fail_msg("%s: %s", why, err.msg);
            CHECK(why, plim_graph_check(&g) == NULL);
            CHECK(why, plim_graph_count(&g, &c, &err) == PLIM_OK);
            CHECK(why, c.parameters == samples[i].parameters && c.trainable == c.parameters);
            CHECK(why, c.parameter_bytes == 4 * c.parameters);
            CHECK(why, c.buffers == samples[i].buffers);
            CHECK(why, c.buffer_bytes == samples[i].buffer_bytes);
            CHECK(why, g.n_nodes == samples[i].nodes);
            CHECK(why, g.sizes.batch == batch && !g.sizes.batch_fixed);
            CHECK(why, g.n_inputs == 1 && g.n_outputs == 1);
            CHECK(why, g.values[g.inputs[0]].kind == PLIM_VALUE_INPUT);
            snprintf(want, sizeof want, "[%d, %s]", (int)batch, samples[i].input);
            check_shape(why, &g, g.inputs[0], want);
            snprintf(want, sizeof want, "[%d, %s]", (int)batch, samples[i].output);
            check_shape(why, &g, g.outputs[0], want);
            CHECK_STR(why, g.about.format.p, "pt2");
            CHECK_STR(why, g.about.producer.p, "torch 2.14.1");
            check_rules(why, &g);
            plim_arena_free(&a);
        }
        plim_file_close(&b);
    }
}

/* The model JSON on its own: the archive without the places of its weights. */
static plim_bytes model_json(plim_bytes b, plim_arena *a)
{
    plim_zip z;
    plim_zip_entry e;
    plim_bytes json = {0};
    assert_int_equal(plim_zip_open(&z, b, NULL), PLIM_OK);
    assert_true(plim_zip_find(&z, "models/model.json", &e));
    assert_int_equal(plim_zip_read(&z, &e, a, UINT64_MAX, &json, NULL), PLIM_OK);
    return json;
}

static void test_bare_json(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("resnet18");
    plim_graph whole, bare;
    assert_int_equal(load(&whole, &a, b, NULL, NULL), PLIM_OK);
    assert_int_equal(load(&bare, &a, model_json(b, &a), NULL, NULL), PLIM_OK);
    assert_int_equal(whole.n_nodes, bare.n_nodes);
    assert_int_equal(whole.n_values, bare.n_values);
    for (uint32_t i = 0; i < whole.n_values; i++)
        assert_memory_equal(&whole.values[i].meta, &bare.values[i].meta, sizeof(plim_meta));
    plim_arena_free(&a);
    plim_file_close(&b);
}

static void test_scopes(void **state)
{
    (void)state;
    /* src: torchvision resnet.py, BasicBlock.forward; self.relu runs twice */
    static const char *const want[] = {
        "conv1 Conv2d 1",
        "bn1 BatchNorm2d 1",
        "bn1 BatchNorm2d 1",
        "relu ReLU 1",
        "maxpool MaxPool2d 1",
        "layer1.0.conv1 Conv2d 3",
        "layer1.0.bn1 BatchNorm2d 3",
        "layer1.0.bn1 BatchNorm2d 3",
        "layer1.0.relu ReLU 3",
        "layer1.0.conv2 Conv2d 3",
        "layer1.0.bn2 BatchNorm2d 3",
        "layer1.0.bn2 BatchNorm2d 3",
        "layer1.0 BasicBlock 2",
        "layer1.0.relu ReLU 3",
        "layer1.1.conv1 Conv2d 3",
    };
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("resnet18");
    plim_graph g;
    char got[100];
    assert_int_equal(load(&g, &a, b, NULL, NULL), PLIM_OK);
    for (size_t i = 0; i < PLIM_COUNT(want); i++) {
        const plim_scope *s = &g.scopes[g.nodes[i].scope];
        int depth = 0;
        for (const plim_scope *p = s; p->parent != PLIM_NONE; p = &g.scopes[p->parent])
            depth++;
        snprintf(got, sizeof got, "%s %s %d", s->path.p, s->type.p, depth);
        CHECK_STR("path, type and depth", got, want[i]);
    }
    assert_string_equal(g.scopes[0].type.p, "ResNet");
    CHECK("a second call is a second scope", g.nodes[8].scope != g.nodes[13].scope);
    CHECK("of the same parent",
          g.scopes[g.nodes[8].scope].parent == g.scopes[g.nodes[13].scope].parent);
    CHECK("one call is one scope", g.nodes[6].scope == g.nodes[7].scope);
    CHECK("what runs in place says so",
          g.nodes[3].inplace && g.nodes[1].inplace && !g.nodes[0].inplace);
    plim_arena_free(&a);
    plim_file_close(&b);
}

static void test_repeated_calls(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("small_shared");
    plim_graph g;
    assert_int_equal(load(&g, &a, b, NULL, NULL), PLIM_OK);
    uint32_t bodies = 0;
    for (uint32_t i = 0; i < g.n_scopes; i++)
        bodies += plim_str_is(g.scopes[i].path, "body");
    CHECK("three calls, the last two with nothing between", bodies == 3);
    CHECK("three times two layers", g.n_scopes == 1 + 3 * 3);
    plim_arena_free(&a);
    plim_file_close(&b);
}

static void test_ties(void **state)
{
    (void)state;
    /* with weights: by their place in the archive; without: by how they are used */
    static const char *const names[] = {"small_tied", "small_tied_meta"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_bytes b = map(names[i]);
        plim_binding bind = {.batch = 8, .seq = 6};
        plim_graph g;
        plim_graph_counts c;
        assert_int_equal(load(&g, &a, b, &bind, NULL), PLIM_OK);
        assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
        uint32_t in = value_named(&g, "embed.weight"), out = value_named(&g, "head.weight");
        CHECK(names[i], in != PLIM_NONE && out != PLIM_NONE);
        CHECK(names[i], g.values[in].tied_to == out && g.values[out].tied_to == PLIM_NONE);
        CHECK(names[i], c.parameters == 44);
        check_shape(names[i], &g, g.inputs[0], "[8, 6]");
        check_shape(names[i], &g, g.outputs[0], "[8, 6, 11]");
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

static void test_no_grad(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("small_nograd");
    plim_binding bind = {.batch = 10};
    plim_graph g;
    assert_int_equal(load(&g, &a, b, &bind, NULL), PLIM_OK);
    static const char *const want[] = {"linear.default",  "detach.default", "detach.default",
                                       "mul.Tensor",      "relu.default",   "add.Tensor",
                                       "reshape.default", "chunk.default"};
    assert_int_equal(g.n_nodes, PLIM_COUNT(want));
    for (size_t i = 0; i < PLIM_COUNT(want); i++)
        CHECK_STR("the subgraph stands in its place, its inputs detached",
                  g.nodes[i].target.p + strlen("aten."), want[i]);
    check_shape("batch * 2 is computed", &g, g.outputs[0], "[20, 3]");
    check_shape("the second of two chunks", &g, g.outputs[1], "[10, 3]");
    CHECK("both chunks are made", g.nodes[7].n_outs == 2);
    uint32_t scale = value_named(&g, "scale");
    CHECK("a buffer outside of the state dict",
          g.values[scale].kind == PLIM_VALUE_BUFFER && !g.values[scale].persistent);
    /* reshape's size argument: [2 * batch, 3], from a symbol and a number */
    const plim_arg *size = &g.nodes[6].args[1];
    assert_true(size->kind == PLIM_ARG_INTS && size->n == 2 && size->ints[0] == 20 &&
                size->ints[1] == 3);
    plim_arena_free(&a);
    plim_file_close(&b);
}

/* ======================================================================== */
/* Binding                                                                   */
/* ======================================================================== */

static void expect(const char *why, plim_bytes b, const plim_binding *bind, plim_status code,
                   const char *text)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_status st = load(&g, &a, b, bind, &err);
    if (st != code || (st && !strstr(err.msg, text)))
        fail_msg("%s: got %d \"%s\", want %d \"%s\"", why, st, err.msg, code, text);
    plim_arena_free(&a);
}

static void test_binding(void **state)
{
    (void)state;
    static const struct plim_input_shape small = {{NULL, 0}, 2, {9, 4}},
                                         deep = {{NULL, 0}, 3, {9}},
                                         wide = {{NULL, 0}, 2, {9, 5}},
                                         other = {{"y", 1}, 2, {9, 4}};
    const struct {
        const char *why, *file;
        plim_binding bind;
        plim_status code;
        const char *text;
    } T[] = {
        {"batch 1", "small_tied", {.batch = 1}, PLIM_OK, ""},
        {"the largest batch", "small_tied", {.batch = 1024}, PLIM_OK, ""},
        {"one more",
         "small_tied",
         {.batch = 1025},
         PLIM_ERANGE,
         "is 1025, outside the range 0..1024 that the model was exported for"},
        {"seq below its bound",
         "small_tied",
         {.seq = 3},
         PLIM_ERANGE,
         "is 3, outside the range 4..512"},
        {"no second dimension to bind",
         "small_shared",
         {.seq = 5},
         PLIM_EUNSUPPORTED,
         "seq is fixed at 4 in this export: export again with "
         "dynamic_shapes={'x': {1: torch.export.Dim('seq')}}"},
        {"the batch that it has", "small_static", {.batch = 3}, PLIM_OK, ""},
        {"another batch",
         "small_static",
         {.batch = 4},
         PLIM_EUNSUPPORTED,
         "batch is fixed at 3 in this export: export again with "
         "dynamic_shapes={'x': {0: torch.export.Dim('batch')}}"},
        {"a shape", "small_shared", {.inputs = &small, .n_inputs = 1}, PLIM_OK, ""},
        {"a shape and the batch of it",
         "small_shared",
         {.batch = 9, .inputs = &small, .n_inputs = 1},
         PLIM_OK,
         ""},
        {"a shape and another batch",
         "small_shared",
         {.batch = 8, .inputs = &small, .n_inputs = 1},
         PLIM_ESHAPE,
         "is 9, not 8"},
        {"a shape of another rank",
         "small_shared",
         {.inputs = &deep, .n_inputs = 1},
         PLIM_ESHAPE,
         "input 'x' has 2 dimensions, not 3"},
        {"a fixed dimension",
         "small_shared",
         {.inputs = &wide, .n_inputs = 1},
         PLIM_EUNSUPPORTED,
         "dimension 1 of input 'x' is fixed at 4, not 5: export again"},
        {"an unknown input",
         "small_shared",
         {.inputs = &other, .n_inputs = 1},
         PLIM_EUSAGE,
         "the model has no input 'y'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_bytes b = map(T[i].file);
        expect(T[i].why, b, &T[i].bind, T[i].code, T[i].text);
        plim_file_close(&b);
    }
    plim_bytes b = map("small_static");
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    assert_int_equal(load(&g, &a, b, NULL, NULL), PLIM_OK);
    assert_true(g.sizes.batch_fixed && g.sizes.batch == 3);
    plim_arena_free(&a);
    plim_file_close(&b);
}

static void test_huge_batch(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("relu");
    plim_binding bind = {.batch = INT64_MAX / 4};
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    assert_int_equal(load(&g, &a, b, &bind, &err), PLIM_ERANGE);
    assert_true(strstr(err.msg, "too large") || strstr(err.msg, "64 bits"));
    plim_arena_free(&a);
    plim_file_close(&b);
}

/* ======================================================================== */
/* Programs written by hand                                                  */
/* ======================================================================== */

#define SIZE(n) "{\"as_int\":" #n "}"
#define S0                                                                                    \
    "{\"as_expr\":{\"expr_str\":\"Symbol('s0', integer=True)\",\"hint\":{\"as_int\":2}}}"
#define META(sizes, strides)                                                                  \
    "{\"dtype\":7,\"sizes\":[" sizes "],\"strides\":[" strides "],\"layout\":7}"
#define ROW META(S0 "," SIZE(4), SIZE(4) "," SIZE(1))
#define ARG(n, a) "{\"name\":\"" n "\",\"arg\":" a ",\"kind\":1}"
#define TENSOR(n) "{\"as_tensor\":{\"name\":\"" n "\"}}"
#define NODE(target, ins, outs)                                                               \
    "{\"target\":\"" target "\",\"inputs\":[" ins "],\"outputs\":[" outs "],\"metadata\":{}}"
#define RELU(in, out) NODE("torch.ops.aten.relu.default", ARG("self", TENSOR(in)), TENSOR(out))
#define PROGRAM(nodes, values, syms)                                                                                \
    "{\"schema_version\":{\"major\":8,\"minor\":20},\"graph_module\":{\"graph\":{\"inputs\":[" TENSOR(              \
        "x") "],\"outputs\":[" TENSOR("y") "],\"nodes\":[" nodes "],\"tensor_values\":{\"x\":" ROW                  \
        values "},\"sym_int_values\":{" syms "}},\"signature\":{\"input_specs\":[{\"user_input\":{\"arg\":" TENSOR( \
            "x") "}}],\"output_specs\":[{\"user_output\":{\"arg\":" TENSOR("y") "}}]}}}"
#define Y ",\"y\":" ROW

static void load_text(plim_graph *g, plim_arena *a, const char *text)
{
    plim_err err = PLIM_ERR_INIT;
    plim_binding bind = {.batch = 6};
    if (load(g, a, text_bytes(text), &bind, &err))
        fail_msg("%s", err.msg);
}

static void test_hand_made(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;

    load_text(&g, &a, PROGRAM(RELU("x", "y"), Y, ""));
    assert_true(g.n_nodes == 1 && g.nodes[0].op && g.nodes[0].n_args >= 1);
    check_shape("bound", &g, g.outputs[0], "[6, 4]");
    assert_string_equal(g.about.producer.p, "torch");

    /* an unknown op keeps its name, arguments and shapes */
    load_text(&g, &a,
              PROGRAM(NODE("torch.ops.mine.mix_.fast",
                           ARG("t", TENSOR("x")) "," ARG("k", "{\"as_int\":3}"), TENSOR("y")),
                      Y, ""));
    assert_null(g.nodes[0].op);
    assert_string_equal(g.nodes[0].target.p, "mine.mix_.fast");
    assert_true(g.nodes[0].inplace && g.nodes[0].n_args == 2 && g.nodes[0].args[1].i == 3);

    /* an argument unknown to its rule, or of an unknown kind */
    load_text(
        &g, &a,
        PROGRAM(NODE("torch.ops.aten.relu.default",
                     ARG("self", TENSOR("x")) "," ARG("new", "{\"as_int\":3}"), TENSOR("y")),
                Y, ""));
    assert_null(g.nodes[0].op);
    load_text(&g, &a,
              PROGRAM(NODE("torch.ops.aten.relu.default",
                           ARG("self", "{\"as_mystery\":[1,{}]}"), TENSOR("y")),
                      Y, ""));
    assert_null(g.nodes[0].op);

    /* missing arguments get the schema's defaults */
    load_text(&g, &a,
              PROGRAM(NODE("torch.ops.aten.leaky_relu.default", ARG("self", TENSOR("x")),
                           TENSOR("y")),
                      Y, ""));
    assert_true(g.nodes[0].op && g.nodes[0].n_args == 2 &&
                g.nodes[0].args[1].kind == PLIM_ARG_FLOAT);

    /* computed sizes are not nodes */
    load_text(
        &g, &a,
        PROGRAM(
            NODE(
                "torch.ops.aten.sym_size.int", ARG("self", TENSOR("x")),
                "{\"as_sym_int\":{\"as_name\":\"n\"}}") "," NODE("torch.ops.aten.view.default",
                                                                 ARG("self", TENSOR("x")) "," ARG(
                                                                     "size",
                                                                     "{\"as_sym_ints\":[{\"as_name\":\"n\"},"
                                                                     "{\"as_int\":4}]}"),
                                                                 TENSOR("y")),
            Y, "\"n\":" S0));
    assert_int_equal(g.n_nodes, 1);
    assert_true(g.nodes[0].args[1].ints[0] == 6);

    /* every kind of argument */
    load_text(
        &g, &a,
        PROGRAM(
            NODE(
                "torch.ops.x.y.z",
                ARG("a", "{\"as_none\":true}") "," ARG("b", "{\"as_bool\":true}") "," ARG("c", "{\"as_float\":\"-Infinity\"}") "," ARG("d", "{\"as_scalar_type\":13}") "," ARG("e", "{\"as_string\":\"a\\u0062\"}") "," ARG(
                    "f",
                    "{\"as_memory_format\":2}") "," ARG("g",
                                                        "{\"as_device\":{\"type\":\"cuda\",\"index\":null}}") "," ARG("h",
                                                                                                                      "{\"as_floats\":[0.5,1]"
                                                                                                                      "}") "," ARG("i",
                                                                                                                                   "{\"as_bools\":[true,false]}") "," ARG("j",
                                                                                                                                                                          "{\"as_optional_tensors\":[{\"as_tensor\":{"
                                                                                                                                                                          "\"name\":\"x\"}},{\"as_none\":[]}]}"),
                TENSOR("y")),
            Y, ""));
    const plim_arg *p = g.nodes[0].args;
    assert_true(p[0].kind == PLIM_ARG_NONE && p[1].i == 1 && p[2].f < -1e300);
    assert_true(p[3].i == PLIM_BF16 && plim_str_is(p[4].str, "ab") && p[5].i == 2);
    assert_true(plim_str_is(p[6].str, "cuda") && p[7].n == 2 && p[7].floats[0] > 0.4);
    assert_true(p[8].n == 2 && p[8].ints[0] == 1 && p[8].ints[1] == 0);
    assert_true(p[9].n == 2 && p[9].ids[0] == g.inputs[0] && p[9].ids[1] == PLIM_NONE);
    plim_arena_free(&a);
}

/* Two inputs with one symbol each, and ops with subgraphs. */
#define S1                                                                                    \
    "{\"as_expr\":{\"expr_str\":\"Symbol('s1', integer=True)\",\"hint\":{\"as_int\":2}}}"
#define S2                                                                                    \
    "{\"as_expr\":{\"expr_str\":\"Symbol('s2', integer=True)\",\"hint\":{\"as_int\":3}}}"
#define USER(n) "{\"user_input\":{\"arg\":" TENSOR(n) "}}"
#define INNER                                                                                       \
    "{\"as_graph\":{\"name\":\"sub\",\"graph\":{\"inputs\":[" TENSOR("x") "],\"outputs\":[" TENSOR( \
        "y") "],\"nodes\":[" RELU("x", "y") "],\"tensor_values\":{\"x\":" ROW ",\"y\":" ROW         \
                                            "}}}}"
static const char wrapped[] =
    "{\"graph_module\":{\"graph\":{\"inputs\":[" TENSOR("a") "," TENSOR("b") "," TENSOR("c") "],\"outputs\":[" TENSOR("q") "," TENSOR("z") "],\"nodes\":[" NODE(
        "torch.ops.higher_order.wrap_with_autocast",
        ARG("", "{\"as_string\":\"cuda\"}") "," ARG("", "{\"as_none\":true}") "," ARG(
            "",
            "{\"as_bool\":false}") "," ARG("",
                                           "{\"as_none\":true}") "," ARG("",
                                                                         INNER) "," ARG("",
                                                                                        TENSOR(
                                                                                            "a")),
        "{\"as_tensors\":[{\"name\":\"q\"}]}") "," NODE("torch.ops.higher_order.scan",
                                                        ARG("", INNER) "," ARG("",
                                                                               TENSOR("b")),
                                                        "{\"as_none\":true}," TENSOR(
                                                            "z")) "],\"tensor_values\":{\"a\":" ROW
                                                                  ",\"b\":" META(S1, SIZE(1)) ",\"c\":" META(
                                                                      S2,
                                                                      SIZE(
                                                                          1)) ",\"q\":" ROW
                                                                              ",\"z\":" META(S1, SIZE(1)) "},\"sym_int_values\":{}},\"signature\":{\"input_specs\":[" USER(
                                                                                  "a") "," USER("b") "," USER("c") ",{\"token\":{\"arg\":{\"name\":\"t\"}}},"
                                                                                                                   "{\"constant_input\":{\"name\":\"k\",\"value\":{\"as_int\":3}}},{\"user_input\":{\"arg\":{\"as_none\":true}}}],"
                                                                                                                   "\"output_specs\":[{\"buffer_mutation\":{\"arg\":{\"name\":\"a\"},\"buffer_name\":\"n\"}},"
                                                                                                                   "{\"user_output\":{\"arg\":" TENSOR(
                                                                                                                       "q") "}},{\"user_output\":{\"arg\":{\"as_none\":true}}},"
                                                                                                                            "{\"loss_output\":{\"arg\":{\"name\":\"z\"}}}]}}}";

static void test_wrapped(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    load_text(&g, &a, wrapped);
    assert_int_equal(g.n_inputs, 3);
    check_shape("the batch", &g, g.inputs[0], "[6, 4]");
    check_shape("a symbol with the same hint follows", &g, g.inputs[1], "[6]");
    check_shape("another one does not", &g, g.inputs[2], "[3]");
    assert_int_equal(g.n_nodes, 2);
    assert_string_equal(g.nodes[0].target.p, "aten.relu.default");
    CHECK("the subgraph reads the outer tensor", g.nodes[0].args[0].id == g.inputs[0]);
    assert_string_equal(g.nodes[1].target.p, "higher_order.scan");
    assert_null(g.nodes[1].op);
    CHECK("mutations are no outputs, the loss is one", g.n_outputs == 2);
    CHECK("the subgraph's output", g.outputs[0] == g.nodes[0].outs[0]);
    CHECK("None is left out", g.nodes[1].n_outs == 1 && g.outputs[1] == g.nodes[1].outs[0]);
    plim_arena_free(&a);
}

/* Flat, as torch 2.1 to 2.7 wrote it, and deflated, as another tool might. */
static void test_flat_archive(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b, nested = map("small_nograd");
    plim_err err = PLIM_ERR_INIT;
    plim_graph flat, want;
    if (plim_file_read(&b, PLIM_SOURCE_DIR "/tests/fuzz/corpus/pt2/flat", &err) ||
        load(&flat, &a, b, NULL, &err) || load(&want, &a, nested, NULL, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(flat.n_nodes, want.n_nodes);
    assert_int_equal(flat.n_values, want.n_values);
    assert_string_equal(flat.about.producer.p, "torch 2.15.0");
    assert_int_equal(flat.about.name.n, 0);
    plim_arena_free(&a);
    plim_file_close(&b);
    plim_file_close(&nested);
}

/* src: torch.export(..., preserve_module_call_signature=..) of the transformer's layers,
 * and what it prints: hidden states, cos and sin, the position ids that no node of a layer
 * uses. */
static void test_call_arguments(void **state)
{
    (void)state;
    static const char *const args[] = {"add_6", "to_2", "to_3", "unsqueeze"};
    plim_bytes b = {0};
    plim_err err = PLIM_ERR_INIT;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g;
    plim_binding none = {0};
    uint32_t found = 0;
    if (plim_file_read(&b, PLIM_SOURCE_DIR "/tests/golden/differential/llama.pt2", &err) ||
        load(&g, &a, b, &none, &err))
        fail_msg("%s", err.msg);
    for (uint32_t i = 0; i < g.n_scopes; i++) {
        const plim_scope *s = &g.scopes[i];
        if (plim_str_is(s->path, "model.layers.1.mlp"))
            CHECK("no signature was kept", !s->n_args);
        if (!plim_str_is(s->path, "model.layers.1"))
            continue;
        found++;
        assert_int_equal(s->n_args, PLIM_COUNT(args));
        for (uint32_t k = 0; k < s->n_args; k++)
            CHECK_STR("in order", g.values[s->args[k]].name.p, args[k]);
    }
    assert_int_equal(found, 1);
    plim_arena_free(&a);
    plim_file_close(&b);
}

/* As torch 2.1 wrote it.  src: torch v2.1 torch/_export/serde/schema.py */
static const char old_style[] =
    "{\"graph_module\":{\"graph\":{\"inputs\":[" TENSOR("arg0_1") "," TENSOR("arg1_1") "],\"outputs\":[" TENSOR(
        "y") "],\"nodes\":[{\"target\":\"torch.ops.aten.mul.Tensor\",\"inputs\":[{\"name\":\"self\","
             "\"arg\":" TENSOR("arg1_1") "},{\"name\":\"other\",\"arg\":" TENSOR("arg0_1") "}],\"outputs\":[" TENSOR(
                 "y") "],\"metadata\":{\"nn_module_stack\":\"L__self__,L['self'],m.Net;L__self___a,"
                      "L['self'].a,m.sub.Gate\"}}],\"tensor_values\":{\"arg0_1\":{\"meta\":{\"dtype\":\"FLOAT\",\"sizes\":[" SIZE(4) "],\"strides\":[" SIZE(
                          1) "],\"requires_grad\":true,\"layout\":7,\"storage_offset\":0}},"
                             "\"arg1_1\":{\"meta\":{\"dtype\":7,\"sizes\":[{\"as_expr\":{\"expr_str\":\"2*s0\",\"hint\":4}}," SIZE(4) "],\"strides\":[" SIZE(
                                 4) "," SIZE(1) "]}},\"y\":{\"meta\":{\"dtype\":7,\"sizes\":["
                                                "{\"as_expr\":{\"expr_str\":\"2*s0\",\"hint\":4}}," SIZE(4) "],\"strides\":[" SIZE(
                                                    4) "," SIZE(1) "]}}},\"sym_int_values\":{},\"sym_bool_values\":{}},\"signature\":{\"inputs_to_parameters\":"
                                                                   "{\"arg0_1\":\"a.gain\"},\"inputs_to_buffers\":{},\"user_inputs\":[\"arg1_1\"],\"user_outputs\":[\"y\"],"
                                                                   "\"buffers_to_mutate\":{},\"backward_signature\":null}},\"opset_version\":{\"aten\":10},"
                                                                   "\"range_constraints\":{\"s0\":{\"min_val\":2,\"max_val\":100}},\"equality_constraints\":[],"
                                                                   "\"schema_version\":1}";

static void test_old_style(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_binding bind = {.batch = 12};
    plim_graph g;
    if (load(&g, &a, text_bytes(old_style), &bind, &err))
        fail_msg("%s", err.msg);
    const plim_value *gain = &g.values[value_named(&g, "a.gain")];
    assert_true(gain->kind == PLIM_VALUE_PARAMETER && gain->requires_grad);
    check_shape("2 * s0 is 12", &g, g.outputs[0], "[12, 4]");
    assert_string_equal(g.scopes[g.nodes[0].scope].path.p, "a");
    assert_string_equal(g.scopes[g.nodes[0].scope].type.p, "Gate");
    assert_string_equal(g.scopes[0].type.p, "Net");
    plim_arena_free(&a);

    bind.batch = 11;
    expect("no symbol makes it odd", text_bytes(old_style), &bind, PLIM_ESHAPE,
           "batch: no value of 's0' makes '2*s0' equal to 11");
    bind.batch = 202;
    expect("beyond the range", text_bytes(old_style), &bind, PLIM_ERANGE,
           "size 's0' is 101, outside the range 2..100");
    bind.batch = 2;
    expect("1 runs where tracing says 2", text_bytes(old_style), &bind, PLIM_OK, "");
}

static void test_bad_programs(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        plim_status code;
        const char *says;
    } T[] = {
        {"truncated", "{\"graph_module\":{", PLIM_EFORMAT, "JSON ends early"},
        {"no graph", "{\"graph_module\":{\"signature\":{}}}", PLIM_EFORMAT, "without graph"},
        {"an empty graph", "{\"graph_module\":{\"graph\":{},\"signature\":{}}}", PLIM_EFORMAT,
         "without inputs, outputs or nodes"},
        {"an input that is nobody's", PROGRAM(RELU("q", "y"), Y, ""), PLIM_EFORMAT,
         "node 'torch.ops.aten.relu.default': tensor 'q' is used but not defined"},
        {"an output never made", PROGRAM("", Y, ""), PLIM_EFORMAT,
         "tensor 'y' is used but not defined"},
        {"made twice", PROGRAM(RELU("x", "y") "," RELU("x", "y"), Y, ""), PLIM_EFORMAT,
         "tensor 'y' is defined twice"},
        {"made of itself", PROGRAM(RELU("y", "y"), Y, ""), PLIM_EFORMAT,
         "tensor 'y' is used but not defined"},
        {"without a shape", PROGRAM(RELU("x", "y"), "", ""), PLIM_EFORMAT,
         "tensor 'y' has no shape"},
        {"without sizes", PROGRAM(RELU("x", "y"), ",\"y\":{\"dtype\":7}", ""), PLIM_EFORMAT,
         "tensor 'y' has no sizes"},
        {"two sizes, one stride",
         PROGRAM(RELU("x", "y"), ",\"y\":" META(SIZE(2) "," SIZE(3), SIZE(1)), ""),
         PLIM_EFORMAT, "tensor 'y' has 2 sizes and 1 strides"},
        {"nine dimensions",
         PROGRAM(RELU("x", "y"),
                 ",\"y\":{\"dtype\":7,\"sizes\":[" SIZE(1) "," SIZE(1) "," SIZE(1) "," SIZE(
                     1) "," SIZE(1) "," SIZE(1) "," SIZE(1) "," SIZE(1) "," SIZE(1) "]}",
                 ""),
         PLIM_EUNSUPPORTED, "more than 8 dimensions"},
        {"a negative size", PROGRAM(RELU("x", "y"), ",\"y\":" META(SIZE(-2), SIZE(1)), ""),
         PLIM_EFORMAT, "tensor 'y' has a negative size or stride"},
        {"a stride that reaches too far",
         PROGRAM(RELU("x", "y"), ",\"y\":" META(SIZE(4), SIZE(4611686018427387904)), ""),
         PLIM_ERANGE, "tensor 'y' of [4] is too large"},
        {"a huge size",
         PROGRAM(RELU("x", "y"),
                 ",\"y\":" META(SIZE(4611686018427387904) "," SIZE(9), SIZE(9) "," SIZE(1)),
                 ""),
         PLIM_ERANGE, "is too large"},
        {"a number that overflows 64 bits",
         PROGRAM(RELU("x", "y"), ",\"y\":" META(SIZE(9223372036854775808), SIZE(1)), ""),
         PLIM_ERANGE, "is not a 64-bit integer"},
        {"an unknown data type",
         PROGRAM(RELU("x", "y"), ",\"y\":{\"dtype\":99,\"sizes\":[]}", ""), PLIM_EUNSUPPORTED,
         "unknown data type"},
        {"sparse",
         PROGRAM(RELU("x", "y"), ",\"y\":{\"dtype\":7,\"sizes\":[],\"layout\":1}", ""),
         PLIM_EUNSUPPORTED, "tensor 'y' is sparse"},
        {"a size that is data-dependent",
         PROGRAM(
             RELU("x", "y"),
             ",\"y\":{\"dtype\":7,\"sizes\":[{\"as_expr\":{\"expr_str\":\"u0\",\"hint\":null}}]}",
             ""),
         PLIM_EUNSUPPORTED, "size 'u0' is data-dependent"},
        {"a broken expression",
         PROGRAM(RELU("x", "y"),
                 ",\"y\":{\"dtype\":7,\"sizes\":[{\"as_expr\":{\"expr_str\":\"Mul(s0\"}}]}",
                 ""),
         PLIM_EFORMAT, "syntax error in the size 'Mul(s0'"},
        {"division by zero",
         PROGRAM(RELU("x", "y"),
                 ",\"y\":{\"dtype\":7,\"sizes\":[{\"as_expr\":{\"expr_str\":\"s0//0\"}}]}",
                 ""),
         PLIM_ERANGE, "division by zero"},
        {"a symbol without value",
         PROGRAM(NODE("torch.ops.aten.view.default",
                      ARG("self", TENSOR("x")) "," ARG(
                          "size", "{\"as_sym_ints\":[{\"as_name\":\"n\"}]}"),
                      TENSOR("y")),
                 Y, ""),
         PLIM_EFORMAT, "symbol 'n' has no value"},
        {"a node without inputs", PROGRAM("{\"target\":\"a\",\"outputs\":[]}", Y, ""),
         PLIM_EFORMAT, "a node without target, inputs or outputs"},
    };
    plim_binding bind = {.batch = 6};
    for (size_t i = 0; i < PLIM_COUNT(T); i++)
        expect(T[i].why, text_bytes(T[i].text), &bind, T[i].code, T[i].says);
}

/* ======================================================================== */
/* Expressions                                                               */
/* ======================================================================== */

static void test_expressions(void **state)
{
    (void)state;
    /* s0 = 6, s1 = 7; src: Python and sympy on the same text */
    static const struct {
        const char *text;
        plim_status code;
        int64_t want;
    } T[] = {
        {"12", PLIM_OK, 12},
        {"s0", PLIM_OK, 6},
        {"Symbol('s0', positive=True, integer=True)", PLIM_OK, 6},
        {"Mul(Integer(64), Symbol('s1'))", PLIM_OK, 448},
        {"Mul(Integer(-1), Symbol('s1'))", PLIM_OK, -7},
        {"Pow(Symbol('s0'), Integer(2))", PLIM_OK, 36},
        {"Add(Integer(1), Symbol('s0'), Symbol('s1'))", PLIM_OK, 14},
        {"Min(Integer(5), Symbol('s0'), 9)", PLIM_OK, 5},
        {"Max(1, s0, s1)", PLIM_OK, 7},
        {"2*s0 + 3", PLIM_OK, 15},
        {"2*(s0 + 3)", PLIM_OK, 18},
        {"s0**2//5", PLIM_OK, 7},
        {"2**3**2", PLIM_OK, 512},
        {"-s0**2", PLIM_OK, -36},
        {"-s1//2", PLIM_OK, -4},
        {"s1 % 4", PLIM_OK, 3},
        {"-s1 % 4", PLIM_OK, 1},
        {"s0 - s1 - 1", PLIM_OK, -2},
        {"3*s0/2", PLIM_OK, 9},
        {"s1/2", PLIM_ESHAPE, 0},
        {"FloorDiv(s1, 2)", PLIM_OK, 3},
        {"CleanDiv(s0, 2)", PLIM_OK, 3},
        {"PythonMod(s1, 4)", PLIM_OK, 3},
        {"CeilToInt(IntTrueDiv(s1, 2))", PLIM_OK, 4},
        {"TruncToInt(IntTrueDiv(-7, 2))", PLIM_OK, -3},
        {"floor(s1/2)", PLIM_OK, 3},
        {"Mul(Rational(1, 2), Symbol('s0'))", PLIM_OK, 3},
        {"Mul(Float('0.5', precision=53), s0)", PLIM_OK, 3},
        {"Pow(Integer(2), Integer(-1))*s0", PLIM_OK, 3},
        {"FloorDiv(s0, 0)", PLIM_ERANGE, 0},
        {"9223372036854775807 + 1", PLIM_ERANGE, 0},
        {"9223372036854775807*s0", PLIM_ERANGE, 0},
        {"10**19", PLIM_ERANGE, 0},
        {"99999999999999999999", PLIM_ERANGE, 0},
        {"s0**s1**9", PLIM_ERANGE, 0},
        {"sin(s0)", PLIM_EUNSUPPORTED, 0},
        {"Eq(s0, 1)", PLIM_EUNSUPPORTED, 0},
        {"s9", PLIM_ESHAPE, 0},
        {"", PLIM_EFORMAT, 0},
        {"2 *", PLIM_EFORMAT, 0},
        {"(s0", PLIM_EFORMAT, 0},
        {"s0 s1", PLIM_EFORMAT, 0},
        {"s0)", PLIM_EFORMAT, 0},
        {"Mul()", PLIM_EFORMAT, 0},
        {"FloorDiv(1)", PLIM_EFORMAT, 0},
        {"FloorDiv(1, 2, 3)", PLIM_EFORMAT, 0},
        {"Symbol(s0)", PLIM_EFORMAT, 0},
        {"Symbol('s0", PLIM_EFORMAT, 0},
        {"1.2.3", PLIM_EFORMAT, 0},
    };
    plim_arena a = PLIM_ARENA_INIT;
    plim_symbols s = {.arena = &a};
    *plim_symbol_get(&s, PLIM_STR("s0")) =
        (plim_symbol){.name = PLIM_STR("s0"), .bound = true, .value = 6};
    *plim_symbol_get(&s, PLIM_STR("s1")) =
        (plim_symbol){.name = PLIM_STR("s1"), .bound = true, .value = 7};
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_str missing;
        plim_err err = PLIM_ERR_INIT;
        int64_t got = 0;
        plim_status st = plim_symexpr_eval(&s, plim_str_of(T[i].text), &got, &missing, &err);
        if (st != T[i].code || got != T[i].want)
            fail_msg("'%s': %d, %d \"%s\"", T[i].text, (int)got, st, err.msg);
        CHECK(T[i].text,
              err.code == st && plim_str_is(missing, "s9") == !strcmp(T[i].text, "s9"));
    }
    char deep[400];
    for (int minus = 0; minus < 2; minus++) {
        memset(deep, minus ? '-' : '(', sizeof deep);
        plim_str missing;
        int64_t got;
        CHECK("nesting has an end", plim_symexpr_eval(&s, (plim_str){deep, sizeof deep}, &got,
                                                      &missing, NULL) == PLIM_EFORMAT);
    }
    plim_arena_free(&a);
}

static void test_solve(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        int64_t value;
        plim_status code;
        int64_t want;
    } T[] = {
        {"itself", "Symbol('s0')", 5, PLIM_OK, 5},
        {"a multiple", "Mul(Integer(8), Symbol('s0'))", 64, PLIM_OK, 8},
        {"a sum", "s0 + 3", 10, PLIM_OK, 7},
        {"a fraction", "s0/2", 4, PLIM_ESHAPE, 0},
        {"no whole number", "2*s0", 7, PLIM_ESHAPE, 0},
        {"not linear", "s0**2", 9, PLIM_ESHAPE, 0},
        {"none at all", "12", 12, PLIM_OK, 0},
        {"none, and another value", "12", 13, PLIM_ESHAPE, 0},
        {"two of them", "s0*s1", 6, PLIM_ESHAPE, 0},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_symbols s = {.arena = &a};
        plim_str missing;
        CHECK(T[i].why, plim_symexpr_solve(&s, plim_str_of(T[i].text), T[i].value, &missing,
                                           NULL) == T[i].code);
        if (T[i].want)
            CHECK(T[i].why, s.n == 1 && s.rows[0].bound && s.rows[0].value == T[i].want);
        else
            CHECK(T[i].why, s.n == 0 || !s.rows[0].bound);
        plim_arena_free(&a);
    }
    plim_str name;
    assert_true(plim_symexpr_is_symbol(PLIM_STR("Symbol('s0', integer=True)"), &name));
    assert_true(plim_str_is(name, "s0"));
    assert_true(plim_symexpr_is_symbol(PLIM_STR("s77"), &name));
    assert_false(plim_symexpr_is_symbol(PLIM_STR("Symbol('s0') + Symbol('s1')"), &name));
    assert_false(plim_symexpr_is_symbol(PLIM_STR("s0+1"), &name));
    assert_false(plim_symexpr_is_symbol(PLIM_STR("7"), &name));
}

/* ======================================================================== */
/* Broken files                                                              */
/* ======================================================================== */

/* For any bytes: a sound graph, or an error with a message. */
static void survive(plim_bytes b)
{
    plim_arena a = {.limit = 256u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_status st = plim_graph_init(&g, &a, &err);
    /* bypasses the probe, which most damaged files would not pass */
    if (!st)
        st = plim_importer_at(0)->read(&g, &(plim_source){.bytes = b}, NULL, &err);
    assert_int_equal(st, err.code);
    if (st)
        assert_true(err.msg[0] && st != PLIM_ENOMEM);
    else
        assert_null(plim_graph_check(&g));
    (void)plim_importer_probe(b);
    plim_arena_free(&a);
}

static void test_cut_off(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_bytes b = map(samples[i].name), json = model_json(b, &a);
        for (uint64_t n = 0; n < b.n; n += 97)
            survive((plim_bytes){.p = b.p, .n = n});
        for (uint64_t n = 0; json.n < 50000 && n < json.n; n += 97)
            survive((plim_bytes){.p = json.p, .n = n});
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

static void test_packages(void **state)
{
    (void)state;
    static const struct {
        const char *file;
        plim_status code;
        const char *says;
    } T[] = {
        {"compiled", PLIM_EUNSUPPORTED, "a compiled package without a graph"},
        {"several", PLIM_EUNSUPPORTED, "a package of 2 models: save one model per file"},
        {"named", PLIM_OK, ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        char path[1024];
        plim_bytes b = {0};
        plim_err err = PLIM_ERR_INIT;
        snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/fuzz/corpus/pt2/%s", T[i].file);
        if (plim_file_read(&b, path, &err))
            fail_msg("%s", err.msg);
        expect(T[i].file, b, NULL, T[i].code, T[i].says);
        plim_arena a = PLIM_ARENA_INIT;
        plim_graph g;
        if (!T[i].code) {
            assert_int_equal(load(&g, &a, b, NULL, NULL), PLIM_OK);
            assert_string_equal(g.about.name.p, "encoder");
        }
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

static uint64_t next_random(uint64_t *s) /* xorshift64* */
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}

/* Bits flipped in the archive, mostly in its directory and the first headers, and in the JSON
 * on its own, which no checksum protects. */
static void test_bit_flips(void **state)
{
    (void)state;
    static const int rounds[] = {3000, 3000, 1500, 1200,
                                 800,  300,  200}; /* small files more often */
    uint64_t seed = 20260, total = 0;
    for (size_t i = 0; i < PLIM_COUNT(samples); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_bytes b = map(samples[i].name), json = model_json(b, &a);
        uint8_t *file = PLIM_NEW_N(&a, uint8_t, b.n), *text = PLIM_NEW_N(&a, uint8_t, json.n);
        memcpy(file, b.p, (size_t)b.n);
        memcpy(text, json.p, (size_t)json.n);
        for (int r = 0; r < rounds[i]; r++, total++) {
            bool in_json = r % 2;
            uint8_t *p = in_json ? text : file;
            uint64_t n = in_json ? json.n : b.n, at[4], flips = 1 + next_random(&seed) % 4;
            for (uint64_t k = 0; k < flips; k++) {
                uint64_t x = next_random(&seed), span = PLIM_MIN(n, 1200);
                at[k] = in_json || x % 4 == 0 ? (x >> 8) % n
                        : x % 4 == 1          ? (x >> 8) % span
                                              : n - 1 - (x >> 8) % span;
                p[at[k]] ^= (uint8_t)(1u << (x >> 60) % 8);
            }
            survive((plim_bytes){.p = p, .n = n});
            for (uint64_t k = 0; k < flips; k++)
                p[at[k]] = in_json ? json.p[at[k]] : b.p[at[k]];
        }
        plim_arena_free(&a);
        plim_file_close(&b);
    }
    assert_int_equal(total, 10000);
}

static void test_no_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"small_nograd", "small_tied", "small_tied_meta"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        plim_bytes b = map(names[i]);
        plim_status st = PLIM_ENOMEM;
        uint64_t n = 1;
        for (; st; n++) {
            plim_arena a = {.fail_after = n};
            plim_err err = PLIM_ERR_INIT;
            plim_graph g;
            st = load(&g, &a, b, NULL, &err);
            CHECK(names[i], (st == PLIM_OK || st == PLIM_ENOMEM) && err.code == st);
            plim_arena_free(&a);
        }
        CHECK("it takes more than a few", n > 30);
        plim_file_close(&b);
    }
}

static void test_other_archives(void **state)
{
    (void)state;
    static const uint8_t empty[] = "PK\3\4";
    assert_null(plim_importer_probe((plim_bytes){.p = empty, .n = 4}));
    assert_null(plim_importer_probe(text_bytes("{\"name\":\"llama\"}")));
    assert_null(plim_importer_probe(text_bytes("plimsoll-tape 1\n")));
    assert_null(plim_importer_probe((plim_bytes){.p = NULL}));
    /* the end record of an archive without members, after the signature of a member */
    static const uint8_t none[] = "PK\3\4PK\5\6\0\0\0\0\0\0\0\0\0\0\0\0\4\0\0\0\0\0";
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_bytes half = {.p = none, .n = 4 + 22};
    assert_int_equal(plim_graph_init(&g, &a, NULL), PLIM_OK);
    assert_int_equal(plim_importer_at(0)->read(&g, &(plim_source){.bytes = half}, NULL, &err),
                     PLIM_EFORMAT);
    assert_non_null(strstr(err.msg, "an archive without an exported program"));
    plim_arena_free(&a);
    plim_bytes b = map("seed_mlp");
    assert_string_equal(plim_importer_probe(b)->name, "pt2");
    plim_file_close(&b);
    assert_null(plim_importer_at(plim_importer_count()));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_samples),        cmocka_unit_test(test_bare_json),
        cmocka_unit_test(test_scopes),         cmocka_unit_test(test_repeated_calls),
        cmocka_unit_test(test_ties),           cmocka_unit_test(test_no_grad),
        cmocka_unit_test(test_binding),        cmocka_unit_test(test_huge_batch),
        cmocka_unit_test(test_hand_made),      cmocka_unit_test(test_wrapped),
        cmocka_unit_test(test_flat_archive),   cmocka_unit_test(test_call_arguments),
        cmocka_unit_test(test_old_style),      cmocka_unit_test(test_bad_programs),
        cmocka_unit_test(test_expressions),    cmocka_unit_test(test_solve),
        cmocka_unit_test(test_cut_off),        cmocka_unit_test(test_packages),
        cmocka_unit_test(test_bit_flips),      cmocka_unit_test(test_no_memory),
        cmocka_unit_test(test_other_archives),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
