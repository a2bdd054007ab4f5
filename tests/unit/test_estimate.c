/* test_estimate.c -- plim_estimate_run: known figures, and properties that hold for any model
 * and settings. */
#include <stdio.h>
#include <string.h>

#include "asked.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

static const plim_phase_row *phase(const plim_estimate *e, int step, plim_phase p)
{
    for (uint32_t i = 0; i < e->n_phases; i++)
        if (e->phases[i]->step == step && e->phases[i]->phase == p)
            return e->phases[i];
    fail_msg("step %d has no phase '%s'", step, plim_phase_name(p));
    return NULL;
}

/* src: measured on a GTX 1050 for the documents that this project starts from: torch 1.13,
 * memory_allocated() after each stage. */
static void test_seed(void **state)
{
    (void)state;
    static const char *const models[] = {DATA "seed_mlp.pt2", "mlp:3,300,300,400,300,100"};
    for (size_t i = 0; i < PLIM_COUNT(models); i++) {
        plim_estimate *e = asked_estimate(
            models[i], "batch=10 loss=mse optimizer=sgd torch=1.13 workspace=off");
        assert_int_equal(phase(e, -1, PLIM_PHASE_LOAD)->allocated, 1452544);
        assert_int_equal(phase(e, -1, PLIM_PHASE_LOAD)->requested, 1449200);
        assert_int_equal(phase(e, 0, PLIM_PHASE_INPUTS)->allocated, 1457152);
        assert_int_equal(phase(e, 0, PLIM_PHASE_FORWARD)->allocated, 1514496);
        plim_estimate_free(e);
    }
}

/* A checkpointed layer keeps the position ids, 1 x 128 of 8 bytes, because they were an
 * argument.  src: dry run, tests/golden/differential/results.txt */
static void test_arguments_kept(void **state)
{
    (void)state;
    plim_estimate *e =
        asked_estimate(PLIM_SOURCE_DIR "/tests/golden/differential/llama.pt2",
                       "loop=typical optimizer=sgd checkpoint=blocks torch=2.13 gpu=h100");
    assert_int_equal(e->peak_requested, 376522888);
    plim_estimate_free(e);
}

/* Patterns may be given one by one, and none of them is left out. */
static void test_several_patterns(void **state)
{
    (void)state;
    static const char *const how[] = {"layer*.*", "layer1.*,layer2.*,layer3.*,layer4.*",
                                      "layer2.*,layer3.*,layer4.*"};
    uint64_t peak[PLIM_COUNT(how)];
    for (size_t i = 0; i < PLIM_COUNT(how); i++) {
        char words[80];
        (void)snprintf(words, sizeof words, "batch=32 checkpoint=%s", how[i]);
        plim_estimate *e = asked_estimate("resnet18", words);
        peak[i] = e->peak_requested;
        plim_estimate_free(e);
    }
    assert_int_equal(peak[0], peak[1]);
    assert_true(peak[1] < peak[2]);
}

/* ---- an export and its built-in twin --------------------------------------------- */

static void test_twins(void **state)
{
    (void)state;
    static const struct {
        const char *file, *name;
        uint64_t parameters;
    } twins[] = {
        {DATA "seed_mlp.pt2", "mlp:3,300,300,400,300,100", 362300},
        {DATA "mlp4096.pt2", "mlp:1024,4096,4096,1000:relu", 25076712},
        {DATA "resnet18.pt2", "resnet18", 11689512},
        {DATA "alexnet.pt2", "alexnet", 61100840},
        {DATA "mobilenet_v2.pt2", "mobilenet_v2", 3504872},
        {DATA "vgg16.pt2", "vgg16", 138357544},
        {DATA "vit_b_16.pt2", "vit_b_16", 86567656},
    };
    static const char *const settings[] = {
        "batch=4 optimizer=sgd,momentum=0.9",
        "batch=32 optimizer=adam workspace=off",
        "batch=7 optimizer=adamw,impl=fused torch=2.3 gpu=h100",
        "batch=5 loss=sum loop=tight torch=1.13",
        "batch=3 dtype=bf16 optimizer=rmsprop",
        "batch=9 mode=infer",
    };
    for (size_t i = 0; i < PLIM_COUNT(twins); i++)
        for (size_t k = 0; k < PLIM_COUNT(settings); k++) {
            plim_estimate *a = asked_estimate(twins[i].file, settings[k]);
            plim_estimate *b = asked_estimate(twins[i].name, settings[k]);
            assert_int_equal(a->model->parameters, twins[i].parameters);
            assert_int_equal(b->model->parameters, twins[i].parameters);
            assert_int_equal(a->model->buffers, b->model->buffers);
            assert_int_equal(a->model->unknown_ops, 0);
            if (a->peak_requested != b->peak_requested ||
                a->peak_reserved != b->peak_reserved || a->forward_macs != b->forward_macs)
                fail_msg("%s with settings %zu: %llu and %llu requested", twins[i].name, k,
                         (unsigned long long)a->peak_requested,
                         (unsigned long long)b->peak_requested);
            plim_estimate_free(a);
            plim_estimate_free(b);
        }
}

/* ---- what must hold for any ---------------------------------------------------------- */

static void check_sums(const char *why, const plim_estimate *e)
{
    uint64_t category = 0, certainty = 0, live = 0, peak = 0;
    assert_int_equal(e->n_categories, PLIM_CAT_COUNT);
    assert_int_equal(e->n_certainties, PLIM_CERTAINTY_COUNT);
    for (int i = 0; i < PLIM_CAT_COUNT; i++)
        category += e->category[i];
    for (int i = 0; i < PLIM_CERTAINTY_COUNT; i++)
        certainty += e->certainty[i];
    for (uint32_t i = 0; i < e->n_live; i++) {
        live += e->live[i]->bytes;
        CHECK(why, !i || e->live[i - 1]->bytes >= e->live[i]->bytes);
    }
    for (uint32_t i = 0; i < e->n_phases; i++) {
        const plim_phase_row *r = e->phases[i];
        peak = PLIM_MAX(peak, r->peak_allocated);
        CHECK(why, r->peak_requested >= r->requested && r->peak_allocated >= r->allocated);
        CHECK(why, r->requested <= r->allocated && r->allocated <= r->reserved);
    }
    CHECK(why,
          category == e->peak_live_requested && certainty == category && live == category);
    CHECK(why, e->peak_live_requested <= e->peak_requested);
    CHECK(why, peak == e->peak_allocated);
    CHECK(why,
          e->peak_requested <= e->peak_allocated && e->peak_allocated <= e->peak_reserved);
    CHECK(why, e->reserved_low <= e->peak_reserved && e->peak_reserved <= e->reserved_high);
    CHECK(why, e->device_low <= e->device_high);
    CHECK(why, e->peak_bucket < e->n_buckets &&
                   e->buckets[e->peak_bucket]->allocated == e->peak_allocated);
    CHECK(why, e->advice && *e->advice);
}

static void test_sums(void **state)
{
    (void)state;
    plim_entry m = PLIM_ENTRY_INIT, last = {.group = ""};
    static const char *const optimizers[] = {"sgd", "adam", "rmsprop", "adagrad", "adamw"};
    for (uint32_t i = 0; plim_registry_at(PLIM_REG_MODELS, i, &m); i++) {
        bool hub = strchr(m.doc, '/'), again = !strcmp(m.group, last.group);
        char words[64];
        last = m;
        if (hub && again) /* one model per family of those */
            continue;
        snprintf(words, sizeof words, "batch=2 optimizer=%s",
                 optimizers[i % PLIM_COUNT(optimizers)]);
        const char *name = strcmp(m.name, "mlp") ? m.name : "mlp:7,8,9";
        plim_estimate *e = asked_estimate(name, words);
        check_sums(name, e);
        /* the order of the phases: load, then five per step */
        assert_int_equal(e->n_phases, 1 + 2 * 5);
        plim_estimate_free(e);
        e = asked_estimate(name, "batch=3 mode=infer gpu=rtx4090");
        check_sums(name, e);
        assert_int_equal(e->category[PLIM_CAT_GRADIENT], 0);
        assert_int_equal(e->category[PLIM_CAT_OPTIMIZER_STATE], 0);
        plim_estimate_free(e);
    }
}

static void test_same_input_same_answer(void **state)
{
    (void)state;
    plim_estimate *a = asked_estimate("resnet18", "batch=8 optimizer=adam");
    plim_estimate *b = asked_estimate("resnet18", "batch=8 optimizer=adam");
    assert_int_equal(a->n_live, b->n_live);
    for (uint32_t i = 0; i < a->n_live; i++) {
        assert_string_equal(a->live[i]->name, b->live[i]->name);
        assert_int_equal(a->live[i]->bytes, b->live[i]->bytes);
    }
    assert_int_equal(a->n_buckets, b->n_buckets);
    for (uint32_t i = 0; i < a->n_buckets; i++)
        assert_memory_equal(a->buckets[i], b->buckets[i], sizeof *a->buckets[i]);
    plim_estimate_free(a);
    plim_estimate_free(b);
}

/* ---- cards ------------------------------------------------------------------------------ */

static void test_out_of_memory(void **state)
{
    (void)state;
    plim_estimate *e = asked_estimate("resnet50", "batch=512 gpu=rtx3060");
    assert_int_equal(e->fits, PLIM_FITS_NO);
    CHECK("it says what PyTorch would", e->oom && strstr(e->oom_text, "CUDA out of memory"));
    CHECK("the figures are those without bound", e->peak_reserved > e->gpu_bytes);
    plim_estimate_free(e);
    e = asked_estimate("resnet50", "batch=1 gpu=rtx3060");
    assert_int_equal(e->fits, PLIM_FITS_YES);
    CHECK("no text", !e->oom && !e->oom_text);
    plim_estimate_free(e);
}

/* An estimate lies between its bounds, and each bound can be requested. */
static void test_workspaces(void **state)
{
    (void)state;
    static const char *const names[] = {"off", "low", "auto", "high"};
    uint64_t requested[4], reserved[4], estimated[4];
    plim_estimate *e = NULL;
    for (int i = 0; i < 4; i++) {
        char words[64];
        snprintf(words, sizeof words, "batch=16 workspace=%s gpu=a100", names[i]);
        e = asked_estimate("resnet18", words);
        requested[i] = e->peak_requested;
        reserved[i] = e->peak_reserved;
        estimated[i] = e->certainty[PLIM_ESTIMATED];
        if (i == 2) {
            CHECK("auto has bounds", e->reserved_low < e->reserved_high);
            CHECK("low is within", e->reserved_low <= reserved[1]);
        } else {
            CHECK("nothing is left open", e->reserved_low == e->reserved_high);
        }
        plim_estimate_free(e);
        CHECK("more and more", !i || requested[i - 1] <= requested[i]);
    }
    CHECK("off has nothing estimated", estimated[0] == 0);
    CHECK("high has the most", requested[3] > requested[1] && reserved[3] > reserved[0]);
}

/* ---- refusals ------------------------------------------------------------------------------ */

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *model, *words;
        plim_status st;
        const char *says;
    } rows[] = {
        {"resnet51", NULL, PLIM_EUSAGE, "resnet50"},
        {"./no/such/file.pt2", NULL, PLIM_EIO, "no/such/file.pt2"},
        {"resnet18", "batch=-1", PLIM_EUSAGE, "'batch': -1 is not in 1..4294967296"},
        {"resnet18", "optimizer=adma", PLIM_EUSAGE, "adma"},
        {"resnet18", "optimizer=sgd,momentun=1", PLIM_EUSAGE, "momentun"},
        {"resnet18", "loss=l3", PLIM_EUSAGE, "cross_entropy"},
        {"resnet18", "torch=0.4", PLIM_EUSAGE, "0.4"},
        {"resnet18", "gpu=rtx9999", PLIM_EUSAGE, "rtx9999"},
        {"resnet18", "dtype=int8", PLIM_EUSAGE, "int8"},
        {"resnet18", "workspace=some", PLIM_EUSAGE, "some"},
        {"resnet18", "alloc_conf=max_splitsize_mb:20", PLIM_EUSAGE, "max_splitsize_mb"},
        {"resnet18", "autocast=fp64", PLIM_EUSAGE, "autocast"},
        {"resnet18", "checkpoint=every=2", PLIM_EUSAGE, "checkpoint"},
        {"resnet18", "checkpoint=segments=999", PLIM_EUSAGE, "1..11"},
        {"resnet18", "checkpoint=segments=[]", PLIM_EUSAGE, "segments '[]' is not in 1..11"},
        {"vgg16", "checkpoint=blocks", PLIM_EUSAGE, "blocks"},
        {"resnet18", "checkpoint=layer1.0,nowhere", PLIM_EUSAGE,
         "'nowhere' matches no module"},
        {"resnet18", "checkpoint=layer1.0,reentrant loss=model", PLIM_ESHAPE, ""},
        {"resnet18", "input=1,3,x,9", PLIM_EUSAGE, "input"},
        {"resnet18", "input=1,3", PLIM_EUSAGE, "4 dimensions"},
        {"vgg16", "input=1,3,8,8", PLIM_ESHAPE, ""},
        {"resnet18", "input=2000000000,3,2000000000,2000000000", PLIM_ERANGE, ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_estimate *e = NULL;
        plim_status st = asked_try(rows[i].model, rows[i].words, &e, &err);
        if (st != rows[i].st || st != err.code || !strstr(err.msg, rows[i].says) || e)
            fail_msg("row %zu: %d \"%s\"", i, st, err.msg);
        CHECK("err may be NULL", asked_try(rows[i].model, rows[i].words, &e, NULL) == st);
    }
}

/* err may be NULL, too, where what fails within is not an error: vgg16 has no repeated blocks. */
static void test_no_err(void **state)
{
    (void)state;
    static const char *const strategies[] = {"ddp", "fsdp1", "fsdp2", "zero1", "ds_zero3"};
    for (size_t i = 0; i < PLIM_COUNT(strategies); i++) {
        char words[64];
        plim_estimate *e = NULL;
        (void)snprintf(words, sizeof words, "dp=2 optimizer=adam strategy=%s", strategies[i]);
        CHECK(strategies[i], asked_try("vgg16", words, &e, NULL) == PLIM_OK);
        plim_estimate_free(e);
    }
}

/* ---- activations in place: what `layers` says, and what PyTorch keeps ------------ */

static plim_inplace_gain gain_of(const plim_layers *l, const char *op)
{
    const char *row = !strcmp(op, "relu6") ? "hardtanh" : op; /* its name in an export */
    for (uint32_t i = 0; i < l->n_activations; i++)
        if (!strcmp(l->activations[i]->op, row))
            return l->activations[i]->gain;
    fail_msg("no activation '%s'", op);
    return PLIM_GAIN_COUNT;
}

static void test_inplace(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_layers *l = NULL;
    plim_model *m = asked_model(PLIM_SOURCE_DIR "/tests/golden/torch/activations.pt2");
    char line[128], op[32];
    int kept, kept_inplace, rows = 0;
    if (plim_layers_run(m, NULL, &l, &err))
        fail_msg("%s", err.msg);
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/inplace/inplace.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (sscanf(line, "%31s %d %d", op, &kept, &kept_inplace) != 3)
            continue;
        plim_inplace_gain want = kept_inplace < kept ? PLIM_GAIN_LESS
                                 : kept == 1         ? PLIM_GAIN_MOMENT
                                                     : PLIM_GAIN_NONE;
        CHECK(op, gain_of(l, op) == want);
        rows++;
    }
    fclose(f);
    assert_int_equal(rows, 12);
    assert_int_equal(l->n_activations, 11); /* relu6 and hardtanh count as one */
    plim_layers_free(l);
    plim_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_seed),
        cmocka_unit_test(test_arguments_kept),
        cmocka_unit_test(test_several_patterns),
        cmocka_unit_test(test_twins),
        cmocka_unit_test(test_sums),
        cmocka_unit_test(test_same_input_same_answer),
        cmocka_unit_test(test_workspaces),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_refusals),
        cmocka_unit_test(test_no_err),
        cmocka_unit_test(test_inplace),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
