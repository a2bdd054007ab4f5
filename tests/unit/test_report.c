/* test_report.c -- the contents of the reports, and what they must never do: exceed the width,
 * print a control character, write JSON that cannot be read back. */
#include "report/report.h"

#include "asked.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- a reader of reports ------------------------------------------------- */

typedef struct text {
    char *p;
    size_t n;
} text;

static int text_put(void *ud, const char *z, size_t n)
{
    text *t = ud;
    t->p = realloc(t->p, t->n + n + 1);
    assert_non_null(t->p);
    memcpy(t->p + t->n, z, n);
    t->n += n;
    t->p[t->n] = '\0';
    return 0;
}

static void text_free(text *t)
{
    free(t->p);
    *t = (text){0};
}

/* Removes ESC [ ... m in place. */
static void text_uncolor(text *t)
{
    size_t n = 0;
    for (size_t i = 0; i < t->n; i++) {
        if (t->p[i] == '\x1b')
            while (i + 1 < t->n && t->p[i] != 'm')
                i++;
        else
            t->p[n++] = t->p[i];
    }
    t->p[n] = '\0';
    t->n = n;
}

/* Every line is within the width, plain text, and has no trailing spaces. */
static void check_page(const char *why, text *t, const plim_style *st)
{
    uint32_t width = st->width ? (uint32_t)st->width : 80;
    if (!st->color)
        CHECK(why, !memchr(t->p, '\x1b', t->n));
    else
        text_uncolor(t);
    for (size_t i = 0; i < t->n;) {
        size_t end = i;
        while (end < t->n && t->p[end] != '\n')
            end++;
        plim_str line = {t->p + i, end - i};
        for (size_t k = 0; k < line.n; k++) {
            CHECK(why, (uint8_t)line.p[k] >= 0x20 && line.p[k] != 0x7f);
            CHECK(why, !st->ascii || (uint8_t)line.p[k] < 0x80);
        }
        if (plim_text_width(line) > width)
            fail_msg("%s: %u columns of %u: %.*s", why, plim_text_width(line), width,
                     PLIM_STR_ARG(line));
        if (line.n && line.p[line.n - 1] == ' ')
            fail_msg("%s: a space at the end of: %.*s|", why, PLIM_STR_ARG(line));
        i = end + 1;
    }
}

/* The whole text is JSON, one object and a line end. */
static void check_json(const char *why, const text *t, const char *schema)
{
    plim_json j;
    plim_err err = PLIM_ERR_INIT;
    plim_str key;
    plim_json_init(&j, (plim_str){t->p, t->n}, &err);
    plim_json_object(&j);
    CHECK(why, plim_json_member(&j, &key) && plim_str_is(key, "schema"));
    CHECK(why, plim_str_is(plim_json_str(&j), schema));
    while (plim_json_member(&j, &key))
        plim_json_skip(&j);
    if (plim_json_end(&j))
        fail_msg("%s: at %llu: %s", why, (unsigned long long)err.at, err.msg);
    CHECK(why, t->n && t->p[t->n - 1] == '\n');
}

/* The value at "a.b" of an object, as written; "[2]" is an item. */
static plim_str json_at(const text *t, const char *path)
{
    plim_json j;
    plim_json_init(&j, (plim_str){t->p, t->n}, NULL);
    while (*path) {
        plim_str key, want = {path, strcspn(path, "./")};
        bool found = false;
        path += want.n + (path[want.n] != 0);
        if (want.p[0] == '[') {
            plim_json_array(&j);
            for (long k = strtol(want.p + 1, NULL, 10); (found = plim_json_item(&j)) && k; k--)
                plim_json_skip(&j);
        } else {
            plim_json_object(&j);
            while (!found && plim_json_member(&j, &key))
                if (!(found = plim_str_eq(key, want)))
                    plim_json_skip(&j);
        }
        if (!found)
            fail_msg("no '%.*s' in the JSON", PLIM_STR_ARG(want));
    }
    plim_str v = plim_json_raw(&j);
    return v.n && v.p[0] == '"' ? (plim_str){v.p + 1, v.n - 2}
                                : v; /* strings without quotes */
}

#define CHECK_AT(t, path, want)                                                               \
    do {                                                                                      \
        plim_str at_ = json_at(t, path);                                                      \
        if (!plim_str_is(at_, want))                                                          \
            fail_msg("%s: got %.*s, want %s", path, PLIM_STR_ARG(at_), want);                 \
    } while (0)

/* ---- a small estimate, its figures chosen to be done by hand ------------- */

enum { MIB = 1 << 20, MADE_ROWS = 20, MADE_BUCKETS = 300 };

/* For results of other commands, where settings do not matter. */
static const plim_settings nothing_set = {.text[PLIM_SET_margin] = {"5%", 2}};

/* An estimate and everything it points at. */
typedef struct made {
    plim_estimate e;
    plim_model_info model;
    plim_settings *settings;
    uint64_t category[PLIM_CAT_COUNT], certainty[PLIM_CERTAINTY_COUNT];
    plim_live live[MADE_ROWS];
    plim_phase_row phases[MADE_ROWS];
    plim_bucket buckets[MADE_BUCKETS];
    const plim_live *live_at[MADE_ROWS];
    const plim_phase_row *phases_at[MADE_ROWS];
    const plim_bucket *buckets_at[MADE_BUCKETS];
    const char *targets[MADE_ROWS];
} made;

#define POINT(list, rows)                                                                     \
    for (size_t i_ = 0; i_ < PLIM_COUNT(rows); i_++)                                          \
    (list)[i_] = &(rows)[i_]

/* An empty one. */
static void make_estimate(made *m)
{
    *m = (made){.settings = asked_settings(NULL)};
    m->e = (plim_estimate){.size = sizeof m->e,
                           .model = &m->model,
                           .settings = m->settings,
                           .category = m->category,
                           .n_categories = PLIM_CAT_COUNT,
                           .certainty = m->certainty,
                           .n_certainties = PLIM_CERTAINTY_COUNT,
                           .fits = PLIM_FITS_NO_CARD,
                           .live = m->live_at,
                           .phases = m->phases_at,
                           .buckets = m->buckets_at,
                           .unknown_ops = m->targets};
    POINT(m->live_at, m->live);
    POINT(m->phases_at, m->phases);
    POINT(m->buckets_at, m->buckets);
}

static void free_made(made *m) { plim_settings_free(m->settings); }

static const plim_live tiny_live[] = {
    {"fc", "out", PLIM_CAT_ACTIVATION, PLIM_F32, 2, {512, 1024}, 2 * MIB, PLIM_EXACT},
    {"fc.weight", "", PLIM_CAT_PARAMETER, PLIM_F32, 2, {256, 1024}, MIB, PLIM_EXACT},
    {"fc.weight", "grad", PLIM_CAT_GRADIENT, PLIM_F32, 2, {256, 1024}, MIB, PLIM_ESTIMATED},
};

static const plim_phase_row tiny_phases[] = {
    {-1, PLIM_PHASE_LOAD, MIB, MIB, 2 * MIB, MIB, MIB, 2 * MIB},
    {0, PLIM_PHASE_BACKWARD, 4 * MIB, 4 * MIB, 6 * MIB, 4 * MIB, 4 * MIB, 6 * MIB},
};

static const plim_bucket tiny_buckets[] = {
    {-1, PLIM_PHASE_LOAD, MIB, MIB, 2 * MIB},
    {0, PLIM_PHASE_FORWARD, MIB, MIB, 2 * MIB},
    {0, PLIM_PHASE_FORWARD, 3 * MIB, 3 * MIB, 6 * MIB},
    {0, PLIM_PHASE_BACKWARD, 4 * MIB, 4 * MIB, 6 * MIB},
};

static const char *const tiny_settings[][2] = {
    {"mode", "train"},    {"batch", "512"},     {"dtype", "fp32"},   {"checkpoint", "none"},
    {"optimizer", "sgd"}, {"loss", "mse"},      {"loop", "typical"}, {"torch", "2.15"},
    {"gpu", "Some Card"}, {"workspace", "off"}, {"alloc_conf", ""},  {"steps", "1"},
};

static void make_tiny(made *m)
{
    make_estimate(m);
    for (size_t i = 0; i < PLIM_COUNT(tiny_settings); i++)
        asked_set(m->settings, tiny_settings[i][0], tiny_settings[i][1]);
    m->model = (plim_model_info){.size = sizeof m->model,
                                 .name = "tiny",
                                 .format = "pt2",
                                 .parameters = 262144,
                                 .trainable_parameters = 262144,
                                 .parameter_bytes = MIB,
                                 .batch = 512,
                                 .ops = 1};
    memcpy(m->live, tiny_live, sizeof tiny_live);
    memcpy(m->phases, tiny_phases, sizeof tiny_phases);
    memcpy(m->buckets, tiny_buckets, sizeof tiny_buckets);
    m->category[PLIM_CAT_PARAMETER] = m->category[PLIM_CAT_GRADIENT] = MIB;
    m->category[PLIM_CAT_ACTIVATION] = 2 * MIB;
    m->certainty[PLIM_EXACT] = 3 * MIB;
    m->certainty[PLIM_ESTIMATED] = MIB;
    plim_estimate *e = &m->e;
    e->gpu = "Some Card";
    e->gpu_bytes = 150 * MIB;
    e->gpu_exact = true;
    e->fits = PLIM_FITS_MAYBE;
    e->peak_live_requested = e->peak_requested = e->peak_allocated = 4 * MIB;
    e->peak_reserved = e->reserved_low = e->reserved_high = 6 * MIB;
    e->context_known = true;
    e->context_low = 100 * MIB;
    e->context_high = 200 * MIB;
    e->context = 150 * MIB;
    e->device = 156 * MIB;
    e->device_low = 106 * MIB;
    e->device_high = 206 * MIB;
    e->needed_low = 104 * MIB;
    e->needed_high = 204 * MIB;
    e->margin = 6 * MIB / 20;
    e->peak_phase = PLIM_PHASE_BACKWARD;
    e->peak_op = "fc";
    e->n_live = PLIM_COUNT(tiny_live);
    e->n_phases = PLIM_COUNT(tiny_phases);
    e->n_buckets = PLIM_COUNT(tiny_buckets);
    e->peak_bucket = 3;
    e->forward_macs = 100;
    e->flops_forward = 200;
    e->flops_backward = 400;
    e->advice = "Activations are half of it.";
    e->time = (plim_step_time){.low_ms = 33.4,
                               .usual_ms = 41.2,
                               .high_ms = 51.5,
                               .samples_per_s = 780.4,
                               .computation = 0.2,
                               .memory = 0.706,
                               .launch = 0.094};
}

static text print_estimate(const plim_estimate *e, plim_render r, const plim_style *st)
{
    text t = {0};
    plim_err err = PLIM_ERR_INIT;
    if (plim_estimate_print(e, r, st, text_put, &t, &err))
        fail_msg("%s", err.msg);
    assert_non_null(t.p);
    return t;
}

/* By hand: 60 columns leave 60 - 41 = 19 for the bars, so 2 MiB is 19 '#' and
 * 1 MiB 9.5, rounded up; the timeline has 60 - 13 = 47 columns for 4 buckets;
 * six rows of 1 MiB each. */
static void test_estimate_text(void **state)
{
    (void)state;
    static made m;
    make_tiny(&m);
    const plim_style st = {.size = sizeof(plim_style), .width = 60, .ascii = true};
    text t = print_estimate(&m.e, PLIM_TEXT, &st);
    check_page("a small estimate", &t, &st);
    CHECK_STR("a small estimate", t.p,
              "tiny | 262.14 K parameters | pt2\n"
              "train | batch 512 | fp32 | sgd | loss mse | torch 2.15\n"
              "Some Card\n"
              "\n"
              "Live at the peak: 4.00 MiB in step 0, backward at fc\n"
              "  parameter           1.00 MiB   25.0 %  ##########\n"
              "  gradient            1.00 MiB   25.0 %  ##########\n"
              "  activation          2.00 MiB   50.0 %  ###################\n"
              "  3.00 MiB exact, 1.00 MiB estimated\n"
              "\n"
              "  requested   4.00 MiB           by tensors\n"
              "  allocated   4.00 MiB           rounded up to blocks\n"
              "  reserved    6.00 MiB           from CUDA\n"
              "  device      106.00-206.00 MiB\n"
              "  needed      104.00-204.00 MiB\n"
              "  margin      307.20 KiB\n"
              "  may not fit on Some Card (150.00 MiB)\n"
              "  step time, an estimate: ~ 41 ms (33-52 ms), 780 samples/s,\n"
              "  71 % limited by memory traffic\n"
              "\n"
              "Timeline (# allocated, . reserved)\n"
              "                                             peak 4.00 MiB v\n"
              "   6.00 MiB |                        .......................\n"
              "            |\n"
              "            |                                    ###########\n"
              "            |                        #######################\n"
              "            |........................#######################\n"
              "            |###############################################\n"
              "        0 B +------------+-----------------------+----------\n"
              "             load        forward                 backward\n"
              "                         step 0\n"
              "\n"
              "Largest tensors live at the peak (3 of 3)\n"
              "  tensor          category    dtype  shape         bytes\n"
              "  fc.out          activation  fp32   512x1024   2.00 MiB\n"
              "  fc.weight       parameter   fp32   256x1024   1.00 MiB\n"
              "  fc.weight.grad  gradient    fp32   256x1024  ~1.00 MiB\n"
              "\n"
              "Activations are half of it.\n");
    text_free(&t);
    free_made(&m);
}

static void test_estimate_quiet(void **state)
{
    (void)state;
    static made m;
    make_tiny(&m);
    const plim_style st = {.size = sizeof(plim_style), .quiet = true};
    text t = print_estimate(&m.e, PLIM_TEXT, &st);
    CHECK_STR("names and bytes", t.p,
              "requested 4194304\nallocated 4194304\nreserved 6291456\n"
              "device_low 111149056\ndevice 163577856\ndevice_high 216006656\n"
              "reserved_low 6291456\nreserved_high 6291456\nmargin 314572\n"
              "needed_low 109051904\nneeded_high 213909504\nmemory 157286400\nheadroom 0\n"
              "fits maybe\n");
    text_free(&t);
    m.e.context_known = false;
    t = print_estimate(&m.e, PLIM_TEXT, &st);
    assert_non_null(strstr(t.p, "\nneeded_low unknown\nneeded_high unknown\nmemory "));
    text_free(&t);
    m.e.fits = PLIM_FITS_NO_CARD; /* nothing is needed of none */
    t = print_estimate(&m.e, PLIM_TEXT, &st);
    CHECK_STR("what nobody knows is not a number", t.p,
              "requested 4194304\nallocated 4194304\nreserved 6291456\n"
              "device_low unknown\ndevice unknown\ndevice_high unknown\n"
              "reserved_low 6291456\nreserved_high 6291456\nmargin 314572\n");
    text_free(&t);
    free_made(&m);
}

/* The contract of docs/json.md, key by key. */
static void test_estimate_json(void **state)
{
    (void)state;
    static made m;
    make_tiny(&m);
    text t = print_estimate(&m.e, PLIM_JSON, NULL);
    check_json("a small estimate", &t, "plimsoll/estimate/1");
    CHECK_AT(&t, "model.name", "tiny");
    CHECK_AT(&t, "model.parameters", "262144");
    CHECK_AT(&t, "model.parameter_bytes", "1048576");
    CHECK_AT(&t, "model.buffer_bytes", "0");
    CHECK_AT(&t, "settings.mode", "train");
    CHECK_AT(&t, "settings.batch", "512");
    CHECK_AT(&t, "settings.autocast", "null");
    CHECK_AT(&t, "settings.checkpoint", "none");
    CHECK_AT(&t, "settings.gpu", "Some Card");
    CHECK_AT(&t, "memory.parameters", "1048576");
    CHECK_AT(&t, "memory.gradients", "1048576");
    CHECK_AT(&t, "memory.activations", "2097152");
    CHECK_AT(&t, "memory.optimizer_state", "0");
    CHECK_AT(&t, "memory.inputs", "0");
    CHECK_AT(&t, "memory.workspace", "0");
    CHECK_AT(&t, "memory.buffers", "0");
    CHECK_AT(&t, "memory.peak_requested", "4194304");
    CHECK_AT(&t, "memory.peak_allocated", "4194304");
    CHECK_AT(&t, "memory.peak_reserved", "6291456");
    CHECK_AT(&t, "memory.context_low", "104857600");
    CHECK_AT(&t, "memory.context_high", "209715200");
    CHECK_AT(&t, "memory.device_low", "111149056");
    CHECK_AT(&t, "memory.device", "163577856");
    CHECK_AT(&t, "memory.device_high", "216006656");
    CHECK_AT(&t, "phases.[0].phase", "load");
    CHECK_AT(&t, "phases.[1].step", "0");
    CHECK_AT(&t, "phases.[1].phase", "backward");
    CHECK_AT(&t, "phases.[1].allocated", "4194304");
    CHECK_AT(&t, "phases.[1].reserved", "6291456");
    CHECK_AT(&t, "phases.[1].peak_allocated", "4194304");
    CHECK_AT(&t, "peak.step", "0");
    CHECK_AT(&t, "peak.phase", "backward");
    CHECK_AT(&t, "peak.op", "fc");
    CHECK_AT(&t, "peak.live.[0].name", "fc");
    CHECK_AT(&t, "peak.live.[0].role", "out");
    CHECK_AT(&t, "peak.live.[0].category", "activation");
    CHECK_AT(&t, "peak.live.[0].bytes", "2097152");
    CHECK_AT(&t, "peak.live.[0].shape", "[512,1024]");
    CHECK_AT(&t, "peak.live.[0].dtype", "fp32");
    CHECK_AT(&t, "peak.live.[2].certainty", "estimated");
    CHECK_AT(&t, "certainty.exact", "3145728");
    CHECK_AT(&t, "certainty.estimated", "1048576");
    CHECK_AT(&t, "certainty.unknown", "0");
    CHECK_AT(&t, "certainty.unknown_ops", "[]");
    CHECK_AT(&t, "flops.forward", "200");
    CHECK_AT(&t, "flops.backward", "400");
    CHECK_AT(&t, "fit.fits", "maybe");
    CHECK_AT(&t, "fit.oom_text", "null");
    CHECK_AT(&t, "timeline.peak_bucket", "3");
    CHECK_AT(&t, "timeline.buckets.[3].allocated", "4194304");
    text_free(&t);
    m.e.context_known = false;
    m.e.gpu = NULL;
    m.e.gpu_bytes = 0;
    m.e.fits = PLIM_FITS_NO_CARD;
    m.model.batch = 0;
    asked_set(m.settings, "gpu", NULL);
    asked_set(m.settings, "batch", NULL);
    asked_set(m.settings, "mode", "infer");
    assert_int_equal(plim_settings_drop_training(m.settings, NULL), PLIM_OK);
    t = print_estimate(&m.e, PLIM_JSON, NULL);
    CHECK_AT(&t, "settings.mode", "infer");
    CHECK_AT(&t, "memory.context_low", "null");
    CHECK_AT(&t, "memory.device_high", "null");
    CHECK_AT(&t, "settings.gpu", "null");
    CHECK_AT(&t, "settings.batch", "null");
    CHECK_AT(&t, "settings.optimizer", "null");
    CHECK_AT(&t, "settings.loss", "null");
    CHECK_AT(&t, "fit.gpu_bytes", "null");
    CHECK_AT(&t, "fit.fits", "null");
    text_free(&t);
    free_made(&m);
}

/* ---- layers -------------------------------------------------------------- */

/* The first rows of VGG-16 for one image, as in CS231n's table: 3*3*3*64 weights and
 * 224*224*64 values; FC1 has 512*7*7*4096 weights. */
static const plim_layer vgg_layers[] = {
    {.name = "", .type = "VGG", .rank = 2, .dim = {1, 1000}, .params = 138357544},
    {.name = "features", .type = "Sequential", .depth = 1, .rank = -1},
    {.name = "features.0",
     .type = "Conv2d",
     .depth = 2,
     .leaf = true,
     .rank = 4,
     .dim = {1, 64, 224, 224},
     .values = 3211264,
     .bytes = 12845056,
     .params = 1792,
     .parameter_bytes = 7168,
     .weights = 1728,
     .macs = 86704128},
    {.name = "features.1",
     .type = "ReLU",
     .depth = 2,
     .leaf = true,
     .rank = 4,
     .dim = {1, 64, 224, 224},
     .values = 3211264,
     .bytes = 12845056,
     .inplace = true},
    {.name = "classifier.0",
     .type = "Linear",
     .depth = 2,
     .leaf = true,
     .rank = 2,
     .dim = {1, 4096},
     .values = 4096,
     .params = 102764544,
     .weights = 102760448,
     .macs = 102760448},
};

static const plim_layer *const vgg_rows[] = {&vgg_layers[0], &vgg_layers[1], &vgg_layers[2],
                                             &vgg_layers[3], &vgg_layers[4]};
static const plim_model_info vgg_model = {
    .name = "vgg16", .format = "builtin", .parameters = 138357544};

static const plim_layers vgg = {
    .model = &vgg_model,
    .settings = &nothing_set,
    .layers = vgg_rows,
    .n_layers = 5,
    .values = 15237608,
    .bytes = 60950432,
    .macs = 15470264320,
    .flops = 30940528640,
};

static plim_status print_layers(text *t, plim_render r, const plim_style *st, plim_err *err)
{
    return plim_layers_print(&vgg, r, st, text_put, t, err);
}

static void test_layers_text(void **state)
{
    (void)state;
    const plim_style st = {.size = sizeof(plim_style),
                           .ascii = true,
                           .columns = "name,type,shape,values,weights"};
    text t = {0};
    assert_int_equal(print_layers(&t, PLIM_TEXT, &st, NULL), PLIM_OK);
    check_page("CS231n's columns", &t, &st);
    CHECK_STR("CS231n's columns", t.p,
              "vgg16 | 138.36 M parameters | builtin\n"
              "\n"
              "layer             type        output shape     values      weights\n"
              "vgg16             VGG         1x1000                0            0\n"
              "  features        Sequential  -                     0            0\n"
              "    0             Conv2d      1x64x224x224  3,211,264        1,728\n"
              "    1             ReLU        1x64x224x224  3,211,264            0\n"
              "    classifier.0  Linear      1x4096            4,096  102,760,448\n"
              "= in place: overwrites its input\n"
              "\n"
              "parameters             138,357,544  0 B\n"
              "trainable                        0\n"
              "buffers                          0  0 B\n"
              "output values           15,237,608  58.13 MiB\n"
              "MACs                       15.47 G\n"
              "FLOPs                      30.94 G\n"
              "read                           0 B\n"
              "written                        0 B\n");
    text_free(&t);
}

static void test_layers_csv(void **state)
{
    (void)state;
    const plim_style st = {
        .size = sizeof(plim_style), .depth = 1, .columns = "name,shape,params"};
    text t = {0};
    assert_int_equal(print_layers(&t, PLIM_CSV, &st, NULL), PLIM_OK);
    CHECK_STR("down to depth 1, bytes not rounded", t.p,
              "name,shape,params\n,1x1000,138357544\nfeatures,,0\n");
    text_free(&t);
    assert_int_equal(print_layers(&t, PLIM_JSON, NULL, NULL), PLIM_OK);
    check_json("layers", &t, "plimsoll/layers/1");
    CHECK_AT(&t, "layers.[2].name", "features.0");
    CHECK_AT(&t, "layers.[2].shape", "[1,64,224,224]");
    CHECK_AT(&t, "layers.[1].shape", "null");
    CHECK_AT(&t, "layers.[3].inplace", "true");
    CHECK_AT(&t, "layers.[4].weights", "102760448");
    CHECK_AT(&t, "total.values", "15237608");
    CHECK_AT(&t, "total.macs", "15470264320");
    text_free(&t);
}

static void test_layers_columns(void **state)
{
    (void)state;
    static const struct {
        const char *columns, *msg;
        uint64_t at;
    } rows[] = {
        {"name,foo",
         "unknown column 'foo' (expected some of "
         "name,type,shape,params,weights,values,bytes,macs,flops,read,written)",
         5},
        {"name,,type",
         "unknown column '' (expected some of "
         "name,type,shape,params,weights,values,bytes,macs,flops,read,written)",
         5},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_style st = {.size = sizeof(plim_style), .columns = rows[i].columns};
        plim_err err = PLIM_ERR_INIT;
        text t = {0};
        CHECK(rows[i].columns, print_layers(&t, PLIM_TEXT, &st, &err) == PLIM_EUSAGE);
        CHECK(rows[i].columns, err.at == rows[i].at && !t.p);
        CHECK_STR(rows[i].columns, err.msg, rows[i].msg);
    }
}

/* ---- fit, batches, replay ------------------------------------------------ */

static const plim_model_info small_model = {.name = "m", .parameters = 7};

static void test_fit(void **state)
{
    (void)state;
    static const plim_fit_row rows[] = {
        {.gpu = "NVIDIA GeForce RTX 4090",
         .gpu_bytes = 24ull << 30,
         .gpu_exact = true,
         .batch = 231,
         .reserved = 20ull << 30,
         .device_low = 21ull << 30,
         .device_high = 22ull << 30,
         .context_known = true,
         .reserved_low = 20ull << 30,
         .reserved_high = 21ull << 30,
         .needed_low = 18ull << 30,
         .needed_high = 19ull << 30,
         .headroom = 5ull << 30,
         .batch_margin = 220,
         .margin_known = true,
         .batch_usual = 260,
         .samples_per_s = 594.2,
         .price_usd = 1599,
         .fits = true,
         .verdict = PLIM_FITS_YES},
        {.gpu = "NVIDIA A2",
         .gpu_bytes = 8ull << 30,
         .reserved = 9ull << 30,
         .device_low = 10ull << 30,
         .device_high = 11ull << 30,
         .context_known = true,
         .reserved_low = 9ull << 30,
         .reserved_high = 10ull << 30,
         .needed_low = 9ull << 30,
         .needed_high = 10ull << 30,
         .margin_known = true,
         .batch_usual = 1},
        {.gpu = "Other",
         .gpu_bytes = 192ull << 30,
         .gpu_exact = true,
         .batch = 1024,
         .limited = true,
         .reserved = 9ull << 30,
         .device_low = 9ull << 30,
         .device_high = 9ull << 30,
         .reserved_low = 9ull << 30,
         .reserved_high = 9ull << 30,
         .needed_low = 9ull << 30,
         .needed_high = 9ull << 30,
         .batch_margin = 1024,
         .margin_known = true,
         .batch_usual = 1024,
         .fits = true,
         .verdict = PLIM_FITS_MAYBE},
    };
    const plim_fit_row *list[3];
    POINT(list, rows);
    const plim_fit f = {.model = &small_model,
                        .settings = &nothing_set,
                        .cards = list,
                        .n_cards = PLIM_COUNT(list)};
    const plim_style st = {.size = sizeof(plim_style), .ascii = true};
    text t = {0};
    assert_int_equal(plim_fit_print(&f, PLIM_TEXT, &st, text_put, &t, NULL), PLIM_OK);
    check_page("fit", &t, &st);
    CHECK_STR(
        "fit", t.p,
        "m | 7 parameters\n"
        "\n"
        "card          memory    batch  margin  usual           device  samples/s\n"
        "RTX 4090   24.00 GiB      231     220    260  21.00-22.00 GiB        594\n"
        "A2         ~8.00 GiB     none    none      1  10.00-11.00 GiB          -\n"
        "Other     192.00 GiB  >=1,024   1,024  1,024                -          -\n"
        "\n"
        "device: reserved by the allocator plus the CUDA context, lower to upper bound;\n"
        "the batch fits with both at their upper bounds; headroom: what the card has\n"
        "beyond the needs of the batch then\n"
        "margin: the batch that leaves 5% of what it reserves free besides, for what the\n"
        "simulated steps do not show (--margin)\n"
        "none: not even batch 1 fits; the figures are those of batch 1\n"
        "usual: the batch at the usual sizes; it may fail\n"
        ">= a lower bound: limited by the search or the model, not the card\n"
        "<= an upper bound: the CUDA context size of this card is unknown\n"
        "~ estimated from the marketed size, not reported by a driver\n"
        "- unknown\n");
    text_free(&t);
    assert_int_equal(plim_fit_print(&f, PLIM_CSV, NULL, text_put, &t, NULL), PLIM_OK);
    CHECK_STR(
        "fit as CSV", t.p,
        "gpu,gpu_bytes,gpu_exact,batch,batch_margin,limited,at_most,reserved,device_low,"
        "device_high,reserved_low,reserved_high,needed_low,needed_high,batch_usual,headroom,seq,"
        "seq_margin,seq_usual,samples_per_s,price_usd,usd_per_sample_per_s,verdict\n"
        "NVIDIA GeForce RTX 4090,25769803776,true,231,220,false,false,21474836480,22548578304,"
        "23622320128,21474836480,22548578304,19327352832,20401094656,260,"
        "5368709120,,,,594.2,1599,2.691013,yes\n"
        "NVIDIA A2,8589934592,false,0,0,false,false,9663676416,10737418240,11811160064,"
        "9663676416,10737418240,9663676416,10737418240,1,,,,,,,,no\n"
        "Other,206158430208,true,1024,1024,true,true,9663676416,,,9663676416,9663676416,,,1024,"
        ",,,,,,,maybe\n");
    text_free(&t);
    assert_int_equal(plim_fit_print(&f, PLIM_JSON, NULL, text_put, &t, NULL), PLIM_OK);
    check_json("fit", &t, "plimsoll/fit/1");
    CHECK_AT(&t, "cards.[0].gpu", "NVIDIA GeForce RTX 4090");
    CHECK_AT(&t, "cards.[1].batch", "0");
    CHECK_AT(&t, "cards.[2].device_low", "null");
    text_free(&t);
}

static void test_batches(void **state)
{
    (void)state;
    static const plim_batch_row rows[] = {{.batch = 1,
                                           .peak_requested = 5 * MIB,
                                           .line = 4 * MIB,
                                           .peak_allocated = 5 * MIB,
                                           .peak_reserved = 6 * MIB},
                                          {.batch = 2,
                                           .peak_requested = 7 * MIB,
                                           .line = 7 * MIB + 3,
                                           .peak_allocated = 7 * MIB,
                                           .peak_reserved = 8 * MIB}};
    const plim_batch_row *list[2];
    POINT(list, rows);
    const plim_batches b = {.model = &small_model,
                            .fixed = MIB,
                            .per_sample = 3 * MIB,
                            .batches = list,
                            .n_batches = PLIM_COUNT(list)};
    const plim_style st = {.size = sizeof(plim_style), .ascii = true};
    text t = {0};
    assert_int_equal(plim_batches_print(&b, PLIM_TEXT, &st, text_put, &t, NULL), PLIM_OK);
    CHECK_STR("batches", t.p,
              "m | 7 parameters\n"
              "\n"
              "peak(batch) = 1.00 MiB + batch x 3.00 MiB (within 0.1 % from batch 2 on)\n"
              "\n"
              "batch  requested      line  difference  allocated  reserved\n"
              "    1   5.00 MiB  4.00 MiB   +1.00 MiB   5.00 MiB  6.00 MiB\n"
              "    2   7.00 MiB  7.00 MiB        -3 B   7.00 MiB  8.00 MiB\n");
    text_free(&t);
    assert_int_equal(plim_batches_print(&b, PLIM_JSON, &st, text_put, &t, NULL), PLIM_OK);
    check_json("batches", &t, "plimsoll/batches/1");
    CHECK_AT(&t, "fixed", "1048576");
    CHECK_AT(&t, "per_sample", "3145728");
    CHECK_AT(&t, "batches.[1].line", "7340035");
    text_free(&t);
}

/* 89 of 100 samples per second are not 90 %, 95 are. */
static void test_knee(void **state)
{
    (void)state;
    plim_batch_row rows[] = {{1, MIB, MIB, MIB, MIB, 89},
                             {2, MIB, MIB, MIB, MIB, 95},
                             {4, MIB, MIB, MIB, MIB, 100}};
    const plim_batch_row *list[3];
    POINT(list, rows);
    const plim_batches b = {
        .model = &small_model, .batches = list, .n_batches = PLIM_COUNT(list)};
    text t = {0};
    assert_int_equal(plim_batches_print(&b, PLIM_TEXT, NULL, text_put, &t, NULL), PLIM_OK);
    CHECK("the knee", strstr(t.p, "of the highest listed from batch 2 on,"));
    text_free(&t);
    rows[1].samples_per_s = 50;
    assert_int_equal(plim_batches_print(&b, PLIM_TEXT, NULL, text_put, &t, NULL), PLIM_OK);
    CHECK("none in the table", strstr(t.p, "still grows at batch 4, the last one listed\n"));
    text_free(&t);
}

static void test_replay(void **state)
{
    (void)state;
    enum { N = 12 };
    plim_replay_mark marks[N];
    const plim_replay_mark *list[N];
    POINT(list, marks);
    for (int i = 0; i < N; i++) { /* the peak in the middle */
        uint64_t n = (uint64_t)PLIM_MIN(i, N - i) * 1024;
        const char *op = i == 6 ? "highest" : i == 5 ? "before" : "other";
        marks[i] = (plim_replay_mark){0, PLIM_PHASE_FORWARD, op, n, n, n, n, n, n};
    }
    const plim_replay r = {.events = 1234,
                           .storages = 5,
                           .requested_known = true,
                           .allocation = {1, 2, 3, 4},
                           .allocated_bytes = {512, 1024, 2048, 1536},
                           .reserved_bytes = {2 * MIB, 4 * MIB, 4 * MIB, 2 * MIB},
                           .num_ooms = 1,
                           .marks = list,
                           .n_marks = N,
                           .oom = true,
                           .oom_event = 1000,
                           .oom_text = "CUDA out of memory. Tried to allocate 1.00 GiB."};
    const plim_style st = {.size = sizeof(plim_style), .ascii = true, .top = 2};
    text t = {0};
    assert_int_equal(plim_replay_print(&r, PLIM_TEXT, &st, text_put, &t, NULL), PLIM_OK);
    check_page("replay", &t, &st);
    CHECK_STR("replay", t.p,
              "1,234 events, 5 storages\n"
              "\n"
              "                        current      peak     total     freed\n"
              "requested                   0 B       0 B       0 B       0 B\n"
              "allocated                 512 B  1.00 KiB  2.00 KiB  1.50 KiB\n"
              "active                      0 B       0 B       0 B       0 B\n"
              "reserved               2.00 MiB  4.00 MiB  4.00 MiB  2.00 MiB\n"
              "inactive split              0 B       0 B       0 B       0 B\n"
              "allocations                   1         2         3         4\n"
              "active blocks                 0         0         0         0\n"
              "segments                      0         0         0         0\n"
              "inactive split blocks         0         0         0         0\n"
              "\n"
              "device allocations 0 | device frees 0 | retries 0 | out of memory 1\n"
              "\n"
              "Marks with the highest peaks (2 of 12)\n"
              "  step  phase    op       allocated  reserved      peak\n"
              "     0  forward  before    5.00 KiB  5.00 KiB  5.00 KiB\n"
              "     0  forward  highest   6.00 KiB  6.00 KiB  6.00 KiB\n"
              "\n"
              "Out of memory at event 1,000\n"
              "CUDA out of memory. Tried to allocate 1.00 GiB.\n");
    text_free(&t);
    assert_int_equal(plim_replay_print(&r, PLIM_JSON, &st, text_put, &t, NULL), PLIM_OK);
    check_json("replay", &t, "plimsoll/replay/1");
    CHECK_AT(&t, "stats.allocated_bytes",
             "{\"current\":512,\"peak\":1024,\"allocated\":2048,\"freed\":1536}");
    CHECK_AT(&t, "stats.reserved_bytes.peak", "4194304");
    CHECK_AT(&t, "marks.[11].op", "other"); /* all of them, whatever `top` is */
    CHECK_AT(&t, "oom_event", "1000");
    text_free(&t);
}

/* ---- size and the registries --------------------------------------------- */

static void test_size(void **state)
{
    (void)state;
    static const struct {
        const char *shape;
        bool si;
        const char *want;
    } rows[] = {
        {"500x500x3", true, "3 MB = 2.86 MiB = 3,000,000 bytes as fp32\n"},
        {"500x500x3", false, "2.86 MiB = 3 MB = 3,000,000 bytes as fp32\n"},
        {"256x3x100x100", true, "30.72 MB = 29.3 MiB = 30,720,000 bytes as fp32\n"},
        {"2x3x1024x1024", true, "25.17 MB = 24 MiB = 25,165,824 bytes as fp32\n"},
        {"2x3x1024x1024", false, "24 MiB = 25.17 MB = 25,165,824 bytes as fp32\n"},
        {"()", false, "4 B = 4 B = 4 bytes as fp32\n"},
        {"0x7", false, "0 B = 0 B = 0 bytes as fp32\n"},
        {"100", true, "400 B = 400 B = 400 bytes as fp32\n"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_style st = {.size = sizeof(plim_style), .si = rows[i].si, .quiet = true};
        text t = {0};
        CHECK(rows[i].shape,
              !plim_size_print(rows[i].shape, PLIM_TEXT, &st, text_put, &t, NULL));
        CHECK_STR(rows[i].shape, strchr(t.p, '\n') + 1, rows[i].want);
        text_free(&t);
    }
    text t = {0};
    assert_int_equal(plim_size_print("3x3", PLIM_JSON, NULL, text_put, &t, NULL), PLIM_OK);
    check_json("size", &t, "plimsoll/size/1");
    CHECK_AT(&t, "elements", "9");
    CHECK_AT(&t, "dtypes.[0].bytes", "36");
    CHECK_AT(&t, "dtypes.[1].bytes", "18");
    text_free(&t);
    assert_int_equal(plim_size_print("3x3", PLIM_CSV, NULL, text_put, &t, NULL), PLIM_OK);
    CHECK("4-bit elements share bytes: 9 / 2 rounded up",
          strstr(t.p, "\nquint4x2,torch.quint4x2,4,5\n"));
    text_free(&t);
    assert_int_equal(
        plim_size_print("4611686018427387904", PLIM_TEXT, NULL, text_put, &t, NULL), PLIM_OK);
    CHECK("2^62 doubles are 2^65 bytes: not said", strstr(t.p, "- 2^64 bytes or more\n"));
    text_free(&t);
    plim_err err = PLIM_ERR_INIT;
    CHECK("no shape",
          plim_size_print("3xfoo", PLIM_TEXT, NULL, text_put, &t, &err) == PLIM_EUSAGE);
    CHECK("2^63 elements", plim_size_print("4611686018427387904x2", PLIM_TEXT, NULL, text_put,
                                           &t, NULL) == PLIM_ERANGE);
    assert_null(t.p);
}

static uint32_t count_lines(const text *t)
{
    uint32_t n = 0;
    for (size_t i = 0; i < t->n; i++)
        n += t->p[i] == '\n';
    return n;
}

static void test_registries(void **state)
{
    (void)state;
    static const char *const schemas[PLIM_REG_COUNT] = {
        [PLIM_REG_MODELS] = "plimsoll/models/1",
        [PLIM_REG_OPS] = "plimsoll/ops/1",
        [PLIM_REG_OPTIMIZERS] = "plimsoll/optimizers/1",
        [PLIM_REG_PROFILES] = "plimsoll/profiles/1",
        [PLIM_REG_FORMATS] = "plimsoll/formats/1",
        [PLIM_REG_GPUS] = "plimsoll/gpus/1",
        [PLIM_REG_DTYPES] = "plimsoll/dtypes/1",
        [PLIM_REG_ALLOCATORS] = "plimsoll/allocators/1",
        [PLIM_REG_ENGINES] = "plimsoll/engines/1",
        [PLIM_REG_STRATEGIES] = "plimsoll/strategies/1",
        [PLIM_REG_ADAPTERS] = "plimsoll/adapters/1",
        [PLIM_REG_QUANTIZATIONS] = "plimsoll/quantizations/1",
        [PLIM_REG_LOOPS] = "plimsoll/loops/1",
        [PLIM_REG_LOSSES] = "plimsoll/losses/1"};
    for (int reg = 0; reg < PLIM_REG_COUNT; reg++) {
        plim_registry which = (plim_registry)reg;
        text t = {0};
        for (int width = 60; width <= 200; width += 20) {
            const plim_style st = {.size = sizeof(plim_style), .width = width};
            CHECK(schemas[reg],
                  !plim_registry_print(which, NULL, PLIM_TEXT, &st, text_put, &t, NULL));
            check_page(schemas[reg], &t, &st);
            text_free(&t);
        }
        CHECK(schemas[reg],
              !plim_registry_print(which, NULL, PLIM_JSON, NULL, text_put, &t, NULL));
        check_json(schemas[reg], &t, schemas[reg]);
        text_free(&t);
        CHECK(schemas[reg],
              !plim_registry_print(which, NULL, PLIM_CSV, NULL, text_put, &t, NULL));
        CHECK("a row each and the header", count_lines(&t) == plim_registry_count(which) + 1);
        text_free(&t);
    }
}

static void test_registry_filter(void **state)
{
    (void)state;
    text t = {0}, u = {0};
    const plim_style quiet = {.size = sizeof(plim_style), .quiet = true};
    plim_registry_print(PLIM_REG_DTYPES, "no such thing", PLIM_CSV, NULL, text_put, &t, NULL);
    CHECK_STR("none: the header only", t.p, "name,bits,doc,src\n");
    text_free(&t);
    plim_registry_print(PLIM_REG_DTYPES, "BRAIN Float", PLIM_TEXT, &quiet, text_put, &t, NULL);
    CHECK_STR("upper and lower case are the same", t.p, "bf16\n");
    text_free(&t);
    plim_registry_print(PLIM_REG_GPUS, "RtX4090", PLIM_CSV, NULL, text_put, &t, NULL);
    CHECK("by alias", strstr(t.p, "\nNVIDIA GeForce RTX 4090,"));
    CHECK("not the others", !strstr(t.p, "A100"));
    text_free(&t);
    plim_registry_print(PLIM_REG_GPUS, "", PLIM_CSV, NULL, text_put, &t, NULL);
    plim_registry_print(PLIM_REG_GPUS, NULL, PLIM_CSV, NULL, text_put, &u, NULL);
    CHECK_STR("an empty filter is none", t.p, u.p);
    text_free(&t);
    text_free(&u);
    plim_registry_print(PLIM_REG_GPUS, "\x1b[2J", PLIM_TEXT, NULL, text_put, &t, NULL);
    CHECK("the filter is shown without its control characters",
          strstr(t.p, "matches '?[2J'\n") && !strchr(t.p, '\x1b'));
    text_free(&t);
    plim_registry_print(PLIM_REG_GPUS, "\x1b[2J", PLIM_JSON, NULL, text_put, &t, NULL);
    CHECK_STR("nothing matches", t.p, "{\"schema\":\"plimsoll/gpus/1\",\"gpus\":[]}\n");
    text_free(&t);
}

/* ---- whatever is in the structs ------------------------------------------ */

static uint64_t next_random(uint64_t *s) /* xorshift64* */
{
    *s ^= *s >> 12;
    *s ^= *s << 25;
    *s ^= *s >> 27;
    return *s * 2685821657736338717ull;
}

/* Small, large and extreme values equally often. */
static uint64_t random_bytes(uint64_t *s)
{
    uint64_t n = next_random(s);
    return next_random(s) % 16 == 0 ? UINT64_MAX : n >> next_random(s) % 64;
}

static const char *random_name(uint64_t *s)
{
    static const char long_name[] =
        "encoder.layers.0.attention.self.query.weight.and.so.on.and.so.on.and.so.on.and.so.on."
        "without.end.encoder.layers.0.attention.self.query.weight.and.so.on.and.so.on.forever";
    static const char *const names[] = {
        "",
        "fc",
        "layer4.0.conv2.weight",
        "a, \"quoted\" name",
        "\x1b[31mred\x1b[0m",
        "bell\a\b\r\n\ttab",
        "\xff\xfe\x80 no UTF-8",
        "\xe5\xb1\x82.\xe5\x8d\xb7\xe7\xa7\xaf.\xe6\x9d\x83\xe9\x87\x8d", /* wide */
        "e\xcc\x81"
        "e\xcc\x81"
        "e\xcc\x81", /* combining */
        "\xe2\x80\xae"
        "gnp.exe \xc2\x9b"
        "1m \xed\xa0\x80 \xf4\x90\x80\x80",
        long_name,
        NULL,
    };
    return names[next_random(s) % PLIM_COUNT(names)];
}

static plim_live random_live(uint64_t *s)
{
    plim_live l = {random_name(s),
                   random_name(s),
                   (plim_category)(next_random(s) % PLIM_CAT_COUNT),
                   (plim_dtype)(next_random(s) % PLIM_DTYPE_COUNT),
                   (int)(next_random(s) % 9),
                   {0},
                   random_bytes(s),
                   (plim_certainty)(next_random(s) % PLIM_CERTAINTY_COUNT)};
    for (int i = 0; i < 8; i++)
        l.dim[i] = (int64_t)random_bytes(s);
    return l;
}

static plim_phase_row random_row(uint64_t *s)
{
    return (plim_phase_row){(int)(next_random(s) % 4) - 1,
                            (plim_phase)(next_random(s) % PLIM_PHASE_COUNT),
                            random_bytes(s),
                            random_bytes(s),
                            random_bytes(s),
                            random_bytes(s),
                            random_bytes(s),
                            random_bytes(s)};
}

static plim_replay_mark random_mark(uint64_t *s)
{
    const plim_phase_row r = random_row(s);
    return (plim_replay_mark){r.step,           r.phase,          random_name(s),
                              r.requested,      r.allocated,      r.reserved,
                              r.peak_requested, r.peak_allocated, r.peak_reserved};
}

static plim_model_info random_model(uint64_t *s)
{
    return (plim_model_info){.name = random_name(s),
                             .format = random_name(s),
                             .producer = random_name(s),
                             .parameters = random_bytes(s),
                             .trainable_parameters = random_bytes(s),
                             .buffers = random_bytes(s),
                             .parameter_bytes = random_bytes(s),
                             .buffer_bytes = random_bytes(s),
                             .batch = (int64_t)(random_bytes(s) >> 1)};
}

/* Anything that a caller may set; a setting that is not checked may be any text. */
static void set_random(uint64_t *s, plim_settings *to)
{
    plim_setting_info row = PLIM_SETTING_INFO_INIT;
    for (uint32_t i = 0; plim_setting_at(i, &row); i++) {
        const char *given = random_name(s);
        char value[32];
        uint64_t n = random_bytes(s), within = (uint64_t)row.least;
        if (row.kind == PLIM_SETTING_INT)
            within += n % (uint64_t)(row.most - row.least);
        else if (row.kind == PLIM_SETTING_SIZE)
            within = PLIM_MAX(within, n);
        plim_str word = plim_setting_word((plim_setting_id)i, (int)(n % 6));
        if (row.kind == PLIM_SETTING_WORD)
            snprintf(value, sizeof value, PLIM_STR_FMT, PLIM_STR_ARG(word));
        else if (row.kind == PLIM_SETTING_FLAG)
            snprintf(value, sizeof value, "%s", n % 2 ? "true" : "false");
        else
            snprintf(value, sizeof value, "%" PRIu64, within);
        bool free_text = row.kind == PLIM_SETTING_TEXT || row.kind == PLIM_SETTING_LIST;
        if (row.kind == PLIM_SETTING_FRACTION)
            snprintf(value, sizeof value, "0.5");
        given = free_text ? given : value;
        asked_set(to, row.key, given && *given ? given : NULL);
    }
}

static void make_random(uint64_t *s, made *m)
{
    make_estimate(m);
    plim_estimate *e = &m->e;
    const char **const strings[] = {&e->gpu, &e->peak_op, &e->oom_text, &e->advice};
    uint64_t *const numbers[] = {
        &e->peak_live_requested, &e->peak_requested, &e->peak_allocated, &e->peak_reserved,
        &e->reserved_low,        &e->reserved_high,  &e->context_low,    &e->context_high,
        &e->device_low,          &e->device_high,    &e->gpu_bytes,      &e->forward_macs,
        &e->flops_forward,       &e->flops_backward};
    m->model = random_model(s);
    set_random(s, m->settings);
    for (size_t i = 0; i < PLIM_COUNT(strings); i++)
        *strings[i] = random_name(s);
    for (size_t i = 0; i < PLIM_COUNT(numbers); i++)
        *numbers[i] = random_bytes(s);
    for (int i = 0; i < PLIM_CAT_COUNT; i++)
        m->category[i] = random_bytes(s);
    for (int i = 0; i < PLIM_CERTAINTY_COUNT; i++)
        m->certainty[i] = random_bytes(s);
    for (int i = 0; i < MADE_ROWS; i++) {
        m->live[i] = random_live(s);
        m->phases[i] = random_row(s);
        m->targets[i] = random_name(s);
    }
    e->context_known = next_random(s) % 2;
    e->oom = next_random(s) % 2;
    e->fits = (plim_fits)((int)(next_random(s) % 4) - 2);
    e->peak_step = (int)(next_random(s) % 4) - 1;
    e->peak_phase = (plim_phase)(next_random(s) % PLIM_PHASE_COUNT);
    e->n_live = (uint32_t)(next_random(s) % (MADE_ROWS + 1));
    e->n_phases = (uint32_t)(next_random(s) % (MADE_ROWS + 1));
    e->n_unknown_ops = (uint32_t)(next_random(s) % (MADE_ROWS + 1));
    e->n_buckets = (uint32_t)(next_random(s) % (MADE_BUCKETS + 1));
    e->peak_bucket = e->n_buckets ? (uint32_t)(next_random(s) % e->n_buckets) : 0;
    for (uint32_t i = 0; i < e->n_buckets; i++)
        m->buckets[i] =
            (plim_bucket){(int)i / 80, (plim_phase)(i * PLIM_PHASE_COUNT / e->n_buckets),
                          random_bytes(s), random_bytes(s), random_bytes(s)};
}

/* Colour, width and rows vary; ASCII is tested separately: names keep their own letters. */
static plim_style random_style(uint64_t *s)
{
    return (plim_style){.size = sizeof(plim_style),
                        .si = next_random(s) % 2,
                        .color = next_random(s) % 2,
                        .width = 60 + (int)(next_random(s) % 140),
                        .top = (int)(next_random(s) % 30)};
}

enum { ROUNDS = 400 };

static void test_random_estimates(void **state)
{
    (void)state;
    uint64_t s = 42;
    for (int i = 0; i < ROUNDS; i++) {
        static made m;
        make_random(&s, &m);
        const plim_style st = random_style(&s);
        text t = print_estimate(&m.e, PLIM_TEXT, &st);
        check_page("a random estimate", &t, &st);
        text_free(&t);
        t = print_estimate(&m.e, PLIM_JSON, &st);
        check_json("a random estimate", &t, "plimsoll/estimate/1");
        text_free(&t);
        free_made(&m);
    }
}

static void random_layer(uint64_t *s, plim_layer *l)
{
    uint64_t *const numbers[] = {&l->values,          &l->bytes,   &l->params,
                                 &l->parameter_bytes, &l->weights, &l->macs,
                                 &l->flops,           &l->read,    &l->written};
    *l = (plim_layer){.name = random_name(s),
                      .type = random_name(s),
                      .depth = (int)(next_random(s) % 40),
                      .rank = (int)(next_random(s) % 10) - 1,
                      .inplace = next_random(s) % 2};
    for (size_t k = 0; k < PLIM_COUNT(numbers); k++)
        *numbers[k] = random_bytes(s);
    for (int k = 0; k < 8; k++)
        l->dim[k] = (int64_t)random_bytes(s);
}

static void test_random_tables(void **state)
{
    (void)state;
    enum { N = 12 };
    uint64_t s = 7, of_settings = 8;
    for (int i = 0; i < ROUNDS; i++) {
        plim_layer layer[N];
        plim_fit_row card[N];
        plim_batch_row batch[N];
        plim_replay_mark mark[N];
        const plim_layer *layer_at[N];
        const plim_fit_row *card_at[N];
        const plim_batch_row *batch_at[N];
        const plim_replay_mark *mark_at[N];
        POINT(layer_at, layer);
        POINT(card_at, card);
        POINT(batch_at, batch);
        POINT(mark_at, mark);
        for (int k = 0; k < N; k++) {
            random_layer(&s, &layer[k]);
            card[k] = (plim_fit_row){.gpu = random_name(&s),
                                     .gpu_bytes = random_bytes(&s),
                                     .gpu_exact = next_random(&s) % 2,
                                     .batch = (int64_t)(random_bytes(&s) >> 1),
                                     .limited = next_random(&s) % 2,
                                     .reserved = random_bytes(&s),
                                     .device_low = random_bytes(&s),
                                     .device_high = random_bytes(&s),
                                     .context_known = next_random(&s) % 2};
            card[k].reserved_low = card[k].needed_low = card[k].device_low;
            card[k].reserved_high = card[k].needed_high = card[k].device_high;
            batch[k] = (plim_batch_row){(int64_t)(random_bytes(&s) >> 1),
                                        random_bytes(&s),
                                        random_bytes(&s),
                                        random_bytes(&s),
                                        random_bytes(&s),
                                        0};
            mark[k] = random_mark(&s);
        }
        const plim_model_info model[] = {random_model(&s), random_model(&s), random_model(&s)};
        plim_settings *set = asked_settings(NULL);
        set_random(&of_settings, set);
        const plim_layers layers = {
            .model = &model[0], .settings = set, .layers = layer_at, .n_layers = N};
        const plim_fit fit = {
            .model = &model[1], .settings = set, .cards = card_at, .n_cards = N};
        const plim_batches batches = {.model = &model[2],
                                      .fixed = random_bytes(&s),
                                      .per_sample = random_bytes(&s),
                                      .batches = batch_at,
                                      .n_batches = N};
        plim_replay replay = {.marks = mark_at, .n_marks = N, .oom = true};
        replay.events = random_bytes(&s);
        replay.allocation = (plim_stat){random_bytes(&s), random_bytes(&s), random_bytes(&s),
                                        random_bytes(&s)};
        replay.num_ooms = random_bytes(&s);
        replay.oom_text = random_name(&s);
        replay.oom_event = random_bytes(&s);
        const plim_style st = random_style(&s);
        text t = {0};
#define ALL(kind)                                                                             \
    assert_int_equal(plim_##kind##_print(&kind, PLIM_TEXT, &st, text_put, &t, NULL),          \
                     PLIM_OK);                                                                \
    check_page(#kind, &t, &st);                                                               \
    text_free(&t);                                                                            \
    assert_int_equal(plim_##kind##_print(&kind, PLIM_JSON, &st, text_put, &t, NULL),          \
                     PLIM_OK);                                                                \
    check_json(#kind, &t, "plimsoll/" #kind "/1");                                            \
    text_free(&t);
        ALL(layers)
        ALL(fit)
        ALL(batches)
        ALL(replay)
#undef ALL
        plim_settings_free(set);
    }
}

static void test_nothing_in_them(void **state)
{
    (void)state;
    static const plim_model_info model;
    static const plim_layers layers = {.model = &model, .settings = &nothing_set};
    static const plim_fit fit = {.model = &model, .settings = &nothing_set};
    static const plim_batches batches = {.model = &model};
    static const plim_replay replay;
    static made m;
    make_estimate(&m);
    for (int how = PLIM_TEXT; how <= PLIM_JSON; how++) {
        plim_render r = (plim_render)how;
        const plim_style st = {.size = sizeof(plim_style), .width = 60};
        text t = {0};
        assert_int_equal(plim_estimate_print(&m.e, r, &st, text_put, &t, NULL), PLIM_OK);
        assert_int_equal(plim_layers_print(&layers, r, &st, text_put, &t, NULL), PLIM_OK);
        assert_int_equal(plim_fit_print(&fit, r, &st, text_put, &t, NULL), PLIM_OK);
        assert_int_equal(plim_batches_print(&batches, r, &st, text_put, &t, NULL), PLIM_OK);
        assert_int_equal(plim_replay_print(&replay, r, &st, text_put, &t, NULL), PLIM_OK);
        text_free(&t);
    }
    free_made(&m);
}

/* Text survives JSON unchanged, and CSV quotes what must be quoted. */
static void test_strange_names(void **state)
{
    (void)state;
    const char *const name = "a\x1b[31m\t\"q\", \xe5\xb1\x82\\\x7f";
    const plim_layer row = {.name = name, .type = "x", .rank = -1}, *const list[] = {&row};
    const plim_layers l = {
        .model = &small_model, .settings = &nothing_set, .layers = list, .n_layers = 1};
    plim_arena a = PLIM_ARENA_INIT;
    text t = {0};
    assert_int_equal(plim_layers_print(&l, PLIM_JSON, NULL, text_put, &t, NULL), PLIM_OK);
    plim_str got = plim_json_unescape(&a, json_at(&t, "layers.[0].name"));
    CHECK("read back", plim_str_is(got, name));
    text_free(&t);
    const plim_style st = {.size = sizeof(plim_style), .columns = "name,type"};
    assert_int_equal(plim_layers_print(&l, PLIM_CSV, &st, text_put, &t, NULL), PLIM_OK);
    CHECK_STR("quoted, shown without control characters", t.p,
              "name,type\n\"a?[31m \"\"q\"\", \xe5\xb1\x82\\?\",x\n");
    text_free(&t);
    plim_arena_free(&a);
}

/* A spreadsheet runs what begins like a formula. */
static void test_csv_formulas(void **state)
{
    (void)state;
    static const struct {
        const char *why, *name, *want;
    } rows[] = {
        {"a formula", "=1+1", "'=1+1"},
        {"plus", "+1", "'+1"},
        {"minus", "-1+cmd|' /C calc'!A0", "'-1+cmd|' /C calc'!A0"},
        {"at", "@SUM(A1)", "'@SUM(A1)"},
        {"after a tab", "\t=1", "' =1"},
        {"after a line end", "\r\n=1", "'  =1"},
        {"in quotes", "=A1,\"B\"", "\"'=A1,\"\"B\"\"\""},
        {"wide",
         "\xef\xbc\x9d"
         "1",
         "'\xef\xbc\x9d"
         "1"},
        {"within text it is none", "a=-1", "a=-1"},
        {"a bar alone is none", " a", " a"},
        {"nothing", "", ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_layer row = {.name = rows[i].name, .type = "x", .rank = -1};
        const plim_layer *const list[] = {&row};
        const plim_layers l = {
            .model = &small_model, .settings = &nothing_set, .layers = list, .n_layers = 1};
        const plim_style st = {.size = sizeof(plim_style), .columns = "type,name"};
        char want[64];
        text t = {0};
        assert_int_equal(plim_layers_print(&l, PLIM_CSV, &st, text_put, &t, NULL), PLIM_OK);
        snprintf(want, sizeof want, "type,name\nx,%s\n", rows[i].want);
        CHECK_STR(rows[i].why, t.p, want);
        text_free(&t);
    }
}

static void test_clean(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text, *want;
    } rows[] = {
        {"letters stay", "conv1.\xc3\xa9\xe5\xb1\x82\xf0\x9f\x9a\xa2",
         "conv1.\xc3\xa9\xe5\xb1\x82\xf0\x9f\x9a\xa2"},
        {"line ends and tabs are spaces", "a\nb\tc\rd", "a b c d"},
        {"an escape", "\x1b[2J", "?[2J"},
        {"a control of Latin 1",
         "\xc2\x9b"
         "2J",
         "?2J"},
        {"right to left",
         "\xe2\x80\xae"
         "gnp",
         "?gnp"},
        {"no width",
         "a\xe2\x80\x8b"
         "b",
         "a?b"},
        {"overlong: two bytes for A", "\xc1\x81", "??"},
        {"overlong: three bytes for U+00E9", "\xe0\x83\xa9", "???"},
        {"a surrogate", "\xed\xa0\x80", "???"},
        {"beyond Unicode", "\xf4\x90\x80\x80", "????"},
        {"cut short", "\xe5\xb1", "??"},
        {"nothing", NULL, ""},
    };
    plim_page p;
    plim_page_open(&p, NULL);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        CHECK(rows[i].why, plim_str_is(plim_page_clean(&p, rows[i].text), rows[i].want));
    CHECK("cut at the end",
          plim_str_is(plim_page_cut(&p, PLIM_STR("abcdef"), 4, false), "abc\xe2\x80\xa6"));
    CHECK("cut at the beginning",
          plim_str_is(plim_page_cut(&p, PLIM_STR("abcdef"), 4, true), "\xe2\x80\xa6"
                                                                      "def"));
    CHECK("a wide letter is not halved",
          plim_str_is(plim_page_cut(&p, PLIM_STR("\xe5\xb1\x82\xe5\xb1\x82"), 2, false),
                      "\xe2\x80\xa6"));
    CHECK("units are named once",
          plim_str_is(plim_page_range(&p, 3u << 30, 2u << 30), "2.00-3.00 GiB"));
    CHECK("unless they differ",
          plim_str_is(plim_page_range(&p, 3u << 20, 2u << 30), "3.00 MiB - 2.00 GiB"));
    CHECK("one figure", plim_str_is(plim_page_range(&p, 5, 5), "5 B"));
    assert_int_equal(plim_page_send(&p, PLIM_OK, NULL, NULL, NULL), PLIM_OK);
}

/* The marker is above the column where the timeline is highest: with nothing reserved only the
 * peak reaches the top row. */
static void test_timeline_peak(void **state)
{
    (void)state;
    uint64_t s = 99;
    for (int i = 0; i < ROUNDS; i++) {
        static made m;
        make_estimate(&m);
        m.e.n_buckets = 1 + (uint32_t)(next_random(&s) % MADE_BUCKETS);
        m.e.peak_bucket = (uint32_t)(next_random(&s) % m.e.n_buckets);
        for (uint32_t k = 0; k < m.e.n_buckets; k++)
            m.buckets[k].allocated = k == m.e.peak_bucket ? 600 : 1 + next_random(&s) % 400;
        const plim_style st = {.size = sizeof(plim_style),
                               .width = 60 + (int)(next_random(&s) % 140),
                               .ascii = true};
        text t = print_estimate(&m.e, PLIM_TEXT, &st);
        const char *mark = strchr(strstr(t.p, "Timeline"), '\n') + 1;
        const char *top = strchr(mark, '\n') + 1;
        const char *v = memchr(mark, 'v', (size_t)(top - mark));
        assert_non_null(v);
        CHECK("the top row reaches the mark", strchr(top, '\n') - top > v - mark);
        CHECK("the peak is under the mark", top[v - mark] == '#');
        text_free(&t);
        free_made(&m);
    }
}

/* Compared with the definition, in floating point. */
static void test_share(void **state)
{
    (void)state;
    uint64_t s = 5;
    for (int i = 0; i < 100000; i++) {
        uint64_t whole = random_bytes(&s), part = random_bytes(&s);
        uint32_t steps = 1 + (uint32_t)(next_random(&s) % 8000);
        uint32_t n = plim_report_share(part, whole, steps);
        long double exact =
            whole ? (long double)part / (long double)whole * (long double)steps : 0;
        if (!part)
            CHECK("nothing is nothing", n == 0);
        else if (part >= whole)
            CHECK("all, and no more", n == steps);
        else
            CHECK("rounded, but never to nothing",
                  n >= 1 && n <= steps && ((long double)n - exact <= 0.51L || n == 1) &&
                      exact - (long double)n <= 0.51L);
    }
}

static void test_renderings(void **state)
{
    (void)state;
    static made m;
    static const plim_replay r;
    text t = {0};
    plim_err err = PLIM_ERR_INIT;
    make_tiny(&m);
    assert_int_equal(plim_estimate_print(&m.e, PLIM_CSV, NULL, text_put, &t, &err),
                     PLIM_EUNSUPPORTED);
    CHECK_STR("no table", err.msg, "'estimate' has no CSV rendering");
    assert_int_equal(plim_replay_print(&r, PLIM_CSV, NULL, text_put, &t, NULL),
                     PLIM_EUNSUPPORTED);
    assert_int_equal(plim_replay_print(&r, (plim_render)9, NULL, text_put, &t, NULL),
                     PLIM_EUSAGE);
    assert_int_equal(
        plim_registry_print((plim_registry)99, NULL, PLIM_TEXT, NULL, text_put, &t, NULL),
        PLIM_EUSAGE);
    assert_int_equal(plim_fit_print(NULL, PLIM_TEXT, NULL, text_put, &t, NULL), PLIM_EUSAGE);
    assert_null(t.p);
    free_made(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_estimate_text),    cmocka_unit_test(test_estimate_quiet),
        cmocka_unit_test(test_estimate_json),    cmocka_unit_test(test_layers_text),
        cmocka_unit_test(test_layers_csv),       cmocka_unit_test(test_csv_formulas),
        cmocka_unit_test(test_layers_columns),   cmocka_unit_test(test_fit),
        cmocka_unit_test(test_batches),          cmocka_unit_test(test_knee),
        cmocka_unit_test(test_replay),           cmocka_unit_test(test_size),
        cmocka_unit_test(test_registries),       cmocka_unit_test(test_registry_filter),
        cmocka_unit_test(test_random_estimates), cmocka_unit_test(test_random_tables),
        cmocka_unit_test(test_nothing_in_them),  cmocka_unit_test(test_strange_names),
        cmocka_unit_test(test_timeline_peak),    cmocka_unit_test(test_share),
        cmocka_unit_test(test_renderings),       cmocka_unit_test(test_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
