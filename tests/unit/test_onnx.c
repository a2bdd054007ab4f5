/* test_onnx.c -- ONNX: a small file per op family, exports against torch.export's of the same
 * models, open sizes, and malicious files. */
#include <stdio.h>
#include <stdlib.h>

#include "asked.h"
#include "import/import.h"
#include "import/onnx/onnx_wire.h"
#include "listing.h"
#include "op/op.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/onnx/"

extern const plim_importer plim_importer_onnx;

static plim_bytes map(const char *name) { return listing_map("onnx/%s.onnx", name); }

static plim_status load(plim_graph *g, plim_arena *a, plim_bytes b, const plim_binding *bind,
                        plim_err *err)
{
    plim_status st = plim_graph_init(g, a, err);
    return st ? st : plim_importer_onnx.read(g, &(plim_source){.bytes = b}, bind, err);
}

/* ======================================================================== */
/* Small files: tests/data/onnx_small.py                                     */
/* ======================================================================== */

/* Shapes are those that onnx's own inference writes into the files as outputs (the script),
 * with batch 5; parameters and targets are counted by hand. */
static const struct {
    const char *name, *shape, *targets;
    uint64_t parameters, buffers;
    uint32_t unknown;
} small[] = {
    {"small_shape_chain", "[5, 12]", "reshape", 0, 0, 0},
    {"small_range_where", "[6]", "sum.dim_IntList expand full add", 0, 0, 0},
    {"small_axes7", "[1, 1, 3, 1]", "reshape sum.dim_IntList", 0, 0, 0},
    {"small_clip_pad", "[1, 2, 5, 6]", "clamp pad", 0, 0, 0},
    {"small_conv_same", "[5, 8, 2, 2]", "conv2d pad max_pool2d", 8 * 27 + 8, 0, 0},
    {"small_conv_transpose", "[1, 6, 10, 10]", "conv_transpose2d", 4 * 6 * 9, 0, 0},
    {"small_resize", "[1, 2, 5, 7]", "upsample_bilinear2d upsample_nearest2d", 0, 0, 0},
    {"small_linear", "[5, 5]", "linear silu linear", 8 * 16 + 16 + 5 * 16, 0, 0},
    {"small_gelu", "[5, 8]", "gelu", 0, 0, 0},
    {"small_shared", "[5, 8]", "linear linear t permute t linear", 64, 0, 0},
    {"small_lstm", "[7, 2, 5, 6]", "zeros zeros lstm.input view transpose",
     2 * (24 * 4 + 24 * 6 + 48), 0, 0},
    {"small_gru", "[7, 1, 3, 6]", "zeros gru.input view transpose", 18 * 4 + 18 * 6, 0, 0},
    {"small_attention23", "[5, 10, 48]",
     "view transpose view transpose view transpose scaled_dot_product_attention transpose "
     "reshape rms_norm",
     48, 0, 0},
    {"small_attention_written", "[5, 4, 6, 8]", "permute scaled_dot_product_attention", 0, 0,
     0},
    {"small_attention_shared", "[5, 4, 6, 8]", "permute mul mul matmul add softmax matmul", 0,
     0, 0},
    {"small_group_norm", "[5, 8, 5, 5]", "reshape group_norm reshape reshape", 16 + 8, 0, 0},
    {"small_norm_train", "[5, 4, 3, 3]", "batch_norm dropout", 8, 8, 0},
    {"small_qdq", "[5, 4, 6, 6]", "to.dtype to.dtype to.dtype conv2d", 0, 108, 0},
    {"small_nbits", "[5, 6, 32]", "? add layer_norm add gelu", 64 + 32 * 3, 32 * 2 * 16, 1},
    {"small_ms_attention", "[5, 6, 6]",
     "linear split_with_sizes view transpose view transpose view transpose "
     "scaled_dot_product_attention transpose reshape transpose matmul",
     32 * 96 + 96, 0, 0},
    {"small_if", "[5, 12]", "cat", 0, 0, 0},
    {"small_loop", "[16, 5]", "cat neg cat neg cat neg", 0, 0, 0},
    {"small_function", "[4, 3]", "cat leaky_relu", 0, 0, 0},
    {"small_sequence", "[2, 8]", "split_with_sizes cat", 0, 0, 0},
    {"small_unknown", "[2, 7]", "? relu", 0, 0, 1},
    {"small_external", "[5, 8]", "linear", 8000, 0, 0},
    {"small_ir3", "[2, 3]", "linear", 27, 0, 0},
};

/* "conv2d relu ?": the ops' rows, ? if there is none. */
static void list_targets(const plim_graph *g, char *out, size_t n)
{
    size_t at = 0;
    out[0] = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        at += (size_t)snprintf(out + at, n - at, "%s%s", i ? " " : "",
                               g->nodes[i].op ? g->nodes[i].op->name : "?");
}

static void test_small(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(small); i++) {
        const char *why = small[i].name;
        plim_bytes b = map(why);
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        plim_graph_counts n;
        char text[800];
        plim_status st = load(&g, &a, b, &(plim_binding){.batch = 5}, &err);
        if (st == PLIM_EUNSUPPORTED) { /* a fixed batch */
            plim_arena_free(&a);
            err = (plim_err)PLIM_ERR_INIT;
            st = load(&g, &a, b, NULL, &err);
        }
        if (st)
            fail_msg("%s: %s", why, err.msg);
        CHECK(why, plim_importer_probe(b) == &plim_importer_onnx);
        CHECK_STR(why, plim_meta_str(&g.values[g.outputs[0]].meta, text, sizeof text),
                  small[i].shape);
        list_targets(&g, text, sizeof text);
        CHECK_STR(why, text, small[i].targets);
        CHECK(why, plim_graph_count(&g, &n, &err) == PLIM_OK);
        CHECK(why, n.parameters == small[i].parameters && n.buffers == small[i].buffers);
        CHECK_STR(why, g.about.producer.p, "onnx_small");
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

/* Scopes from names, weights under the names of the model, shared ones only once. */
static void test_scopes(void **state)
{
    (void)state;
    static const struct {
        const char *file, *path, *type;
    } T[] = {{"vit.script", "layers.0.attention.q", "Linear"},
             {"vit.dynamo", "layers.0.attention.q", "Linear"},
             {"vit.dynamo", "", "Vit"},
             {"cnn.script", "layers.1.down.0", "Conv2d"},
             {"cnn.plain", "layers.1.down.0", "Conv2d"}};
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_bytes b = map(T[i].file);
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        uint32_t k = 0;
        if (load(&g, &a, b, NULL, &err))
            fail_msg("%s", err.msg);
        while (k < g.n_scopes && !plim_str_is(g.scopes[k].path, T[i].path))
            k++;
        CHECK(T[i].file, k < g.n_scopes);
        CHECK_STR(T[i].file, g.scopes[k].type.p, T[i].type);
        for (k = 0; k < g.n_scopes; k++) /* the model's own ops are not modules */
            CHECK(T[i].file, !plim_str_is(g.scopes[k].path, "Add"));
        plim_arena_free(&a);
        plim_file_close(&b);
    }
}

/* ======================================================================== */
/* Exports: tests/data/onnx_models.py                                        */
/* ======================================================================== */

/* Bytes of peak_requested above (or below) those of the .pt2 of the same model, batch 16,
 * adam; docs/formats/onnx.md gives the reasons. */
static const struct {
    const char *name, *kind;
    int64_t train, infer;
    const char *why;
} exports[] = {
    {"cnn", "script", -80, -80, "ten counters num_batches_tracked are not in the file"},
    {"cnn", "plain", -5708, -76, "the same; and batch norms use their running statistics"},
    {"vit", "script", 0, 0, ""},
    {"vit", "dynamo", 0, 0, ""},
    {"bert", "script", 0, 0, ""},
    {"bert", "dynamo", 0, 512, "positions are a constant of the file"},
    {"gpt2", "script", 0, 0, ""},
    {"gpt2", "dynamo", 49152, 16896, "the causal mask is a constant of the file"},
    {"unet", "script", 0, 0, ""},
    {"unet", "dynamo", 0, 0, ""},
};

static uint64_t peak_of(const char *name, const char *tail, bool infer, plim_estimate **e)
{
    char path[1024];
    snprintf(path, sizeof path, DATA "%s.%s", name, tail);
    *e = asked_estimate(path, infer ? "batch=16 optimizer=adam mode=infer"
                                    : "batch=16 optimizer=adam mode=train");
    return (*e)->peak_requested;
}

static void test_exports(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(exports); i++)
        for (int infer = 0; infer < 2; infer++) {
            char tail[40];
            plim_estimate *e, *p;
            snprintf(tail, sizeof tail, "%s.onnx", exports[i].kind);
            int64_t pt2 = (int64_t)peak_of(exports[i].name, "pt2", infer, &p);
            int64_t diff = (int64_t)peak_of(exports[i].name, tail, infer, &e) - pt2;
            int64_t want = infer ? exports[i].infer : exports[i].train;
            if (diff != want)
                fail_msg("%s.%s: %lld bytes apart, not %lld", exports[i].name, tail,
                         (long long)diff, (long long)want);
            CHECK(tail, llabs(diff) * 50 < pt2); /* 2 % */
            CHECK(tail, (diff != 0) <= (exports[i].why[0] != 0));
            CHECK(tail, e->model->unknown_ops == 0);
            plim_estimate_free(e);
            plim_estimate_free(p);
        }
}

/* By default the newer exporter folds batch norms into convolutions, even for training: 20 %
 * less, with a note. */
static void test_folded(void **state)
{
    (void)state;
    plim_estimate *e, *p;
    uint64_t pt2 = peak_of("cnn", "pt2", false, &p);
    CHECK("less", peak_of("cnn", "dynamo.onnx", false, &e) < pt2 * 9 / 10);
    CHECK_STR(
        "folded", e->model->note,
        "The file was exported for inference, with batch norms folded into convolutions: "
        "a training step of the original model takes more than one of this graph.");
    CHECK_STR("a .pt2 has nothing to say", p->model->note, "");
    plim_estimate_free(e);
    plim_estimate_free(p);
    (void)peak_of("cnn", "plain.onnx", true, &e);
    CHECK_STR("eval", e->model->note,
              "The file was exported for inference: batch norms use their stored statistics "
              "and dropouts are removed, unlike in a training step of the original model.");
    plim_estimate_free(e);
}

/* A part about which nothing is known is left out, with a note; its inputs are not kept
 * alive. */
static void test_beside(void **state)
{
    (void)state;
    plim_estimate *e;
    uint64_t end[2] = {0, 0};
    (void)peak_of("small_beside", "onnx", false, &e);
    CHECK_STR(
        "a note", e->model->note,
        "incomplete: the output sizes of node 'a' (Mystery), and of all that is computed "
        "from them, are unknown and not counted; what 2 ops without a rule, the first "
        "'own.Mystery', take besides their inputs and results is not counted");
    CHECK("both are named", e->model->unknown_ops == 2);
    for (uint32_t i = 0; i < e->n_phases; i++)
        if (e->phases[i]->phase == PLIM_PHASE_OPTIMIZER && e->phases[i]->step >= 0)
            end[e->phases[i]->step] = e->phases[i]->requested;
    CHECK("each step ends as the one before", end[0] == end[1] && end[0]);
    plim_estimate_free(e);
}

/* ======================================================================== */
/* Sizes that are left open                                                  */
/* ======================================================================== */

static void expect(const char *why, plim_bytes b, const plim_binding *bind, plim_status code,
                   const char *says)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_status st = load(&g, &a, b, bind, &err);
    if (st != code)
        fail_msg("%s: status %d: %s", why, st, err.msg);
    CHECK_STR(why, err.msg, says);
    plim_arena_free(&a);
}

static void test_binding(void **state)
{
    (void)state;
    static const struct plim_dim_value s0 = {{"s0", 2}, 3}, no = {{"zz", 2}, 3};
    static const struct plim_input_shape a = {{"a", 1}, 3, {2, 5, 4}},
                                         b = {{"b", 1}, 3, {2, 10, 4}},
                                         odd = {{"b", 1}, 3, {2, 9, 4}},
                                         flat = {{"a", 1}, 2, {2, 5}},
                                         wide = {{"b", 1}, 3, {2, 10, 5}};
    static const struct {
        const char *why;
        plim_binding bind;
        plim_status code;
        const char *says; /* the output's shape, or the error */
    } T[] = {
        {"a symbol by name", {.dims = &s0, .n_dims = 1}, PLIM_OK, "[1, 9, 4]"},
        {"the batch, too", {.batch = 7, .dims = &s0, .n_dims = 1}, PLIM_OK, "[7, 9, 4]"},
        {"by the sequence", {.seq = 6}, PLIM_OK, "[1, 18, 4]"},
        {"by a shape", {.inputs = &a, .n_inputs = 1}, PLIM_OK, "[2, 15, 4]"},
        {"solved from 2*s0", {.inputs = &b, .n_inputs = 1}, PLIM_OK, "[2, 15, 4]"},
        {"nobody says s0",
         {.batch = 7},
         PLIM_EUSAGE,
         "dimension 's0' of input 'a' is open: give it with --dim 's0=128'"},
        {"no such symbol",
         {.dims = &no, .n_dims = 1},
         PLIM_EUSAGE,
         "the model has no dimension 'zz'; it has 'n'"},
        {"not twice anything",
         {.inputs = &odd, .n_inputs = 1},
         PLIM_ESHAPE,
         "dimension 1 of input 'b': no value of 's0' makes '2*s0' equal to 9"},
        {"another rank",
         {.inputs = &flat, .n_inputs = 1},
         PLIM_ESHAPE,
         "input 'a' has 3 dimensions, not 2"},
        {"a fixed one",
         {.inputs = &wide, .n_inputs = 1},
         PLIM_EUNSUPPORTED,
         "dimension 2 of input 'b' is fixed at 4, not 5: export again with it dynamic"},
    };
    plim_bytes file = map("small_dims");
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena arena = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g;
        char shape[100];
        if (T[i].code) {
            expect(T[i].why, file, &T[i].bind, T[i].code, T[i].says);
            continue;
        }
        if (load(&g, &arena, file, &T[i].bind, &err))
            fail_msg("%s: %s", T[i].why, err.msg);
        CHECK_STR(T[i].why, plim_meta_str(&g.values[g.outputs[0]].meta, shape, sizeof shape),
                  T[i].says);
        plim_arena_free(&arena);
    }
    plim_file_close(&file);
    file = map("small_conv_transpose");
    expect("a fixed batch", file, &(plim_binding){.batch = 4}, PLIM_EUNSUPPORTED,
           "batch is fixed at 1 in this export: export again with dynamic_axes={'x': {0: "
           "'batch'}}");
    plim_file_close(&file);
    file = map("small_lost");
    expect("nothing is known", file, NULL, PLIM_EUNSUPPORTED,
           "no output has a known shape: the file does not give the output shapes of node "
           "'a' (Mystery)");
    plim_file_close(&file);
}

/* ======================================================================== */
/* What a file holds                                                         */
/* ======================================================================== */

static plim_inventory list(plim_arena *a, plim_bytes b)
{
    plim_inventory v = {.arena = a};
    plim_err err = PLIM_ERR_INIT;
    if (plim_importer_onnx.list(&v, &(plim_source){.bytes = b}, &err))
        fail_msg("%s", err.msg);
    return v;
}

static void test_list(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = map("small_external");
    plim_inventory v = list(&a, b);
    CHECK("one weight", v.n_items == 1 && v.items[0].kind == PLIM_ITEM_PARAMETER);
    CHECK("its size without its data", v.items[0].bytes == 32000);
    CHECK_STR("format", v.format.p, "ONNX, IR 8");
    CHECK_STR("a path that leaves the folder is only a note", v.notes[0].p,
              "the external data of 'w' is in '../../etc/passwd', outside the model's folder; "
              "it was not opened");
    CHECK("a batch is 1 unless told", v.n_dims == 1 && v.dims[0].value == 1);
    plim_file_close(&b);

    b = map("small_norm_train");
    v = list(&a, b);
    static const plim_item_kind kinds[] = {PLIM_ITEM_PARAMETER, PLIM_ITEM_PARAMETER,
                                           PLIM_ITEM_BUFFER,    PLIM_ITEM_BUFFER,
                                           PLIM_ITEM_CONSTANT,  PLIM_ITEM_CONSTANT};
    CHECK("six tensors", v.n_items == 6);
    for (uint32_t i = 0; i < 6; i++)
        CHECK(v.items[i].name.p, v.items[i].kind == kinds[i]);
    plim_file_close(&b);

    b = map("small_dims");
    v = list(&a, b);
    CHECK("names and expressions", v.n_dims == 3 && v.dims[1].value == 0);
    CHECK_STR("as in the file", v.dims[2].name.p, "2*s0");
    plim_file_close(&b);
    plim_arena_free(&a);
}

/* ======================================================================== */
/* Malicious files */
/* ======================================================================== */

/* A protobuf, built from its innermost messages outwards. */
typedef struct pb {
    uint8_t p[1 << 16];
    size_t n;
} pb;

static void pb_byte(pb *b, unsigned v) { b->p[b->n++] = (uint8_t)v; }

static void pb_varint(pb *b, uint64_t v)
{
    for (; v > 127; v >>= 7)
        pb_byte(b, (unsigned)(v & 127) | 128);
    pb_byte(b, (unsigned)v);
}

static void pb_int(pb *b, unsigned field, uint64_t v)
{
    pb_varint(b, field << 3 | ONNX_VARINT);
    pb_varint(b, v);
}

static void pb_bytes(pb *b, unsigned field, const void *p, size_t n)
{
    pb_varint(b, field << 3 | ONNX_BYTES);
    pb_varint(b, n);
    memcpy(b->p + b->n, p, n);
    b->n += n;
}

static void pb_str(pb *b, unsigned field, const char *z) { pb_bytes(b, field, z, strlen(z)); }
static void pb_msg(pb *b, unsigned field, const pb *m) { pb_bytes(b, field, m->p, m->n); }

/* "Add a b -> y" */
static void pb_node(pb *g, const char *op, const char *in0, const char *in1, const char *out,
                    const char *domain)
{
    pb n = {.n = 0};
    pb_str(&n, 1, in0);
    if (in1)
        pb_str(&n, 1, in1);
    pb_str(&n, 2, out);
    pb_str(&n, 4, op);
    if (domain)
        pb_str(&n, 7, domain);
    pb_msg(g, 1, &n);
}

static void pb_info(pb *g, unsigned field, const char *name, const uint64_t *dim, size_t n)
{
    pb v = {.n = 0}, type = {.n = 0}, tensor = {.n = 0}, shape = {.n = 0};
    for (size_t i = 0; i < n; i++) {
        pb d = {.n = 0};
        pb_int(&d, 1, dim[i]);
        pb_msg(&shape, 1, &d);
    }
    pb_int(&tensor, 1, 1);
    pb_msg(&tensor, 2, &shape);
    pb_msg(&type, 1, &tensor);
    pb_str(&v, 1, name);
    pb_msg(&v, 2, &type);
    pb_msg(g, field, &v);
}

static void pb_model(pb *out, const pb *graph, int64_t opset, const pb *function)
{
    pb set = {.n = 0};
    out->n = 0;
    pb_int(&set, 2, (uint64_t)opset);
    pb_int(out, 1, 8);
    pb_msg(out, 7, graph);
    pb_msg(out, 8, &set);
    if (function)
        pb_msg(out, 25, function);
}

static void refuse(const char *why, const pb *m, plim_status code, const char *says)
{
    plim_binding none = {0};
    expect(why, (plim_bytes){.p = m->p, .n = m->n}, &none, code, says);
}

static void test_hostile(void **state)
{
    (void)state;
    static const uint64_t two[] = {2, 3}, huge[] = {1ull << 62, 8};
    static pb m, g, t, f;

    g.n = 0;
    pb_info(&g, 11, "x", two, 2);
    pb_node(&g, "Add", "x", "b", "a", NULL);
    pb_node(&g, "Relu", "a", NULL, "b", NULL);
    pb_info(&g, 12, "b", two, 2);
    pb_model(&m, &g, 18, NULL);
    refuse("a cycle", &m, PLIM_EFORMAT,
           "node 'a' (Add): no node before it produces its input 'b'");

    t.n = g.n = 0;
    pb_str(&t, 3, "n");
    pb_str(&t, 4, "Constant");
    pb_msg(&g, 1, &t);
    pb_model(&m, &g, 18, NULL);
    refuse("a node for nothing", &m, PLIM_EFORMAT, "node 'n' (Constant): it has no output");

    g.n = 0;
    pb_info(&g, 11, "x", two, 2);
    pb_node(&g, "Relu", "x", NULL, "y", NULL);
    pb_node(&g, "Neg", "x", NULL, "y", NULL);
    pb_info(&g, 12, "y", two, 2);
    pb_model(&m, &g, 18, NULL);
    refuse("one output twice", &m, PLIM_EFORMAT,
           "node 'y' (Neg): its output 'y' is produced a second time");
    pb_model(&m, &g, 6, NULL);
    refuse("too old", &m, PLIM_EUNSUPPORTED,
           "operator set 6 is older than 7: convert it with onnx.version_converter");

    t.n = g.n = 0;
    pb_int(&t, 1, 1ull << 63);
    pb_int(&t, 2, 1);
    pb_str(&t, 8, "w");
    pb_msg(&g, 5, &t);
    pb_model(&m, &g, 18, NULL);
    refuse("2^63 elements", &m, PLIM_EFORMAT,
           "dim 0 of tensor 'w' is -9223372036854775808 at byte 6");
    t.n = g.n = 0;
    pb_int(&t, 1, 1ull << 62);
    pb_int(&t, 1, 2);
    pb_int(&t, 2, 1);
    pb_str(&t, 8, "w");
    pb_msg(&g, 5, &t);
    pb_model(&m, &g, 18, NULL);
    refuse("2^63 elements, in two dims", &m, PLIM_ERANGE,
           "size of tensor 'w' overflows at byte 6");
    g.n = 0;
    pb_info(&g, 11, "x", huge, 2);
    pb_node(&g, "Relu", "x", NULL, "y", NULL);
    pb_info(&g, 12, "y", NULL, 0);
    pb_model(&m, &g, 18, NULL);
    refuse("an input of 2^65 elements", &m, PLIM_ERANGE, "size of input 'x' overflows");

    m.n = 0;
    pb_byte(&m, 8);
    for (int i = 0; i < 10; i++)
        pb_byte(&m, 0xff);
    pb_byte(&m, 1);
    refuse("a varint of 11 bytes", &m, PLIM_EFORMAT,
           "a varint is longer than 10 bytes at byte 1");
    m.n = 0;
    pb_byte(&m, 7 << 3 | 3);
    refuse("a group", &m, PLIM_EFORMAT,
           "field 7 has wire type 3, which ONNX does not use at byte 0");
    m.n = 0;
    pb_varint(&m, 7 << 3 | ONNX_BYTES);
    pb_varint(&m, 1ull << 40);
    refuse("a length beyond the file", &m, PLIM_EFORMAT,
           "field 7 takes 1099511627776 bytes, 0 are left at byte 0");
    m.n = 0;
    pb_int(&m, 1, 8);
    refuse("no graph", &m, PLIM_EFORMAT, "an ONNX model without a graph");

    g.n = f.n = 0;
    pb_info(&g, 11, "x", two, 2);
    pb_node(&g, "F", "x", NULL, "y", "own");
    pb_info(&g, 12, "y", two, 2);
    pb_str(&f, 1, "F");
    pb_str(&f, 4, "a");
    pb_str(&f, 5, "b");
    t.n = 0;
    pb_str(&t, 1, "a");
    pb_str(&t, 2, "b");
    pb_str(&t, 4, "F");
    pb_str(&t, 7, "own");
    pb_msg(&f, 7, &t);
    pb_str(&f, 10, "own");
    pb_model(&m, &g, 18, &f);
    refuse("a function of itself", &m, PLIM_EFORMAT,
           "node 'y' (F): node 'b' (F): the function calls itself, directly or indirectly");
}

/* If in If in If: the messages are nested, and so is the reader. */
static void test_deep(void **state)
{
    (void)state;
    static pb g, n, a, m;
    g.n = 0;
    for (int i = 0; i < 40; i++) {
        a.n = n.n = 0;
        pb_str(&a, 1, "then_branch");
        pb_msg(&a, 6, &g);
        pb_str(&n, 1, "c");
        pb_str(&n, 2, "y");
        pb_str(&n, 4, "If");
        pb_msg(&n, 5, &a);
        g.n = 0;
        pb_msg(&g, 1, &n);
    }
    pb_model(&m, &g, 18, NULL);
    /* read level by level, when the condition needs them: here it does not */
    refuse("40 graphs in each other", &m, PLIM_EFORMAT,
           "node 'y' (If): no node before it produces its input 'c'");

    static pb init;
    uint8_t yes = 1;
    init.n = 0;
    pb_int(&init, 2, 9);
    pb_bytes(&init, 9, &yes, 1);
    pb_str(&init, 8, "c");
    pb_msg(&g, 5, &init);
    pb_model(&m, &g, 18, NULL);
    plim_arena arena = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_graph graph;
    assert_int_equal(load(&graph, &arena, (plim_bytes){.p = m.p, .n = m.n}, NULL, &err),
                     PLIM_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "node 'y' (If): "));
    plim_arena_free(&arena);
}

/* ======================================================================== */
/* Damage                                                                    */
/* ======================================================================== */

static void survive(plim_bytes b)
{
    plim_arena a = {.limit = 64u << 20};
    plim_inventory v = {.arena = &a};
    plim_err err = PLIM_ERR_INIT;
    plim_graph g;
    plim_status st = load(&g, &a, b, NULL, &err);
    assert_int_equal(st, err.code);
    if (st)
        assert_true(err.msg[0] != 0);
    else
        assert_null(plim_graph_check(&g));
    (void)plim_importer_onnx.list(&v, &(plim_source){.bytes = b}, NULL);
    (void)plim_importer_probe(b);
    plim_arena_free(&a);
}

static void test_damage(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(small); i++) {
        plim_bytes b = map(small[i].name);
        uint8_t *p = malloc((size_t)b.n);
        memcpy(p, b.p, (size_t)b.n);
        for (uint64_t n = 0; n < b.n; n++)
            survive((plim_bytes){.p = p, .n = n});
        for (uint64_t n = 0; n < b.n; n++) {
            p[n] ^= (uint8_t)(1u << n % 8);
            survive((plim_bytes){.p = p, .n = b.n});
            p[n] = 0xff;
            survive((plim_bytes){.p = p, .n = b.n});
            p[n] = b.p[n];
        }
        free(p);
        plim_file_close(&b);
    }
}

/* Each allocation fails once. */
static void test_no_memory(void **state)
{
    (void)state;
    static const char *const files[] = {"small_loop", "small_function", "small_group_norm",
                                        "small_lstm", "small_nbits"};
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        plim_bytes b = map(files[i]);
        plim_status st = PLIM_ENOMEM;
        for (uint64_t n = 1; st; n++) {
            plim_arena a = {.fail_after = n};
            plim_err err = PLIM_ERR_INIT;
            plim_graph g;
            st = load(&g, &a, b, NULL, &err);
            if (st && st != PLIM_ENOMEM)
                fail_msg("%s, allocation %d: %s", files[i], (int)n, err.msg);
            plim_arena_free(&a);
        }
        plim_file_close(&b);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_small),     cmocka_unit_test(test_scopes),
        cmocka_unit_test(test_exports),   cmocka_unit_test(test_folded),
        cmocka_unit_test(test_beside),    cmocka_unit_test(test_binding),
        cmocka_unit_test(test_list),      cmocka_unit_test(test_hostile),
        cmocka_unit_test(test_deep),      cmocka_unit_test(test_damage),
        cmocka_unit_test(test_no_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
