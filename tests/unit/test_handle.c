/* test_handle.c -- the guarantees of plimsoll.h to programs that link it: handles used for
 * many calls and by many threads, missing arguments, callers that stop, sizes of structs. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "asked.h"
#include "base/fmt.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

/* An estimate as JSON, or the error; the caller frees it. */
static char *answer(const plim_model *m, const plim_settings *s)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_estimate *e = NULL;
    plim_buf b;
    plim_buf_init(&b, &a);
    if (plim_estimate_run(m, s, &e, &err) ||
        plim_estimate_print(e, PLIM_JSON, NULL, put_buf, &b, &err))
        plim_buf_puts(&b, err.msg);
    char *text = strdup(plim_buf_str(&b).p);
    plim_estimate_free(e);
    plim_arena_free(&a);
    return text;
}

static void check_answer(const char *why, const plim_model *m, const plim_settings *s,
                         const char *want)
{
    char *got = answer(m, s);
    if (strcmp(got, want) != 0)
        fail_msg("%s: %.200s\nand not %.200s", why, got, want);
    free(got);
}

/* ---- handles ------------------------------------------------------------------------- */

static void test_bytes(void **state)
{
    (void)state;
    static const char *const files[] = {
        "resnet18.pt2", "seed_mlp.pt2", "onnx/cnn.script.onnx",
        "mix_214.pth",  "tiny.gguf",    "every_type.safetensors"};
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        char path[512];
        const char *base = strrchr(files[i], '/');
        snprintf(path, sizeof path, DATA "%s", files[i]);
        plim_arena a = PLIM_ARENA_INIT;
        plim_bytes b = {0};
        plim_err err = PLIM_ERR_INIT;
        plim_model *file = asked_model(path), *memory = NULL;
        assert_int_equal(plim_file_read(&b, path, &err), PLIM_OK);
        if (plim_model_open_bytes(base ? base + 1 : files[i], b.p, b.n, &memory, &err))
            fail_msg("%s: %s", files[i], err.msg);
        CHECK_STR(files[i], plim_model_name(memory), plim_model_name(file));
        CHECK_STR(files[i], plim_model_format(memory), plim_model_format(file));
        plim_buf info[2];
        const plim_model *const models[] = {file, memory};
        for (int k = 0; k < 2; k++) {
            plim_info *in = NULL;
            plim_buf_init(&info[k], &a);
            assert_int_equal(plim_info_run(models[k], NULL, &in, &err), PLIM_OK);
            assert_int_equal(plim_info_print(in, PLIM_JSON, NULL, put_buf, &info[k], &err),
                             PLIM_OK);
            plim_info_free(in);
        }
        CHECK_STR(files[i], plim_buf_str(&info[1]).p, plim_buf_str(&info[0]).p);
        char *want = answer(file, NULL);
        if (want[0] == '{') /* a file of weights has no estimate; the error names it */
            check_answer(files[i], memory, NULL, want);
        free(want);
        plim_model_free(file);
        plim_model_free(memory);
        plim_file_close(&b);
        plim_arena_free(&a);
    }
}

static void test_open_refused(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    assert_int_equal(plim_model_open_bytes("junk.bin", "no such file", 12, &m, &err),
                     PLIM_EFORMAT);
    CHECK("it has the name", strstr(err.msg, "junk.bin"));
    assert_int_equal(plim_model_open_bytes("empty", NULL, 0, &m, NULL), PLIM_EFORMAT);
    assert_int_equal(plim_model_open_bytes("empty", "", 0, &m, NULL), PLIM_EFORMAT);
    assert_int_equal(plim_model_open("resnet51", &m, NULL), PLIM_EUSAGE);
    assert_int_equal(plim_model_open("./no/such/file.pt2", &m, NULL), PLIM_EIO);
    assert_null(m);
    m = asked_model("lenet");
    CHECK_STR("format", plim_model_format(m), "built-in");
    CHECK_STR("name", plim_model_name(m), "lenet");
    plim_model_free(m);
}

static const char *const questions[] = {
    "",
    "batch=4",
    "batch=4 optimizer=adam",
    "batch=9 mode=infer gpu=rtx4090",
    "batch=3 dtype=bf16 optimizer=adamw,impl=fused workspace=off",
    "batch=2 checkpoint=segments=2 loop=tight torch=2.1",
    "batch=64 vram=64MiB",
    "batch=2 optimizer=adma",
    "batch=5 accumulate=2 clip=true ema=averaged",
};

static const char *const models[] = {"resnet18", DATA "resnet18.pt2", "mlp:8,16,4",
                                     DATA "onnx/cnn.script.onnx", DATA "llama-tiny"};

/* Earlier calls with the same handle and settings do not matter. */
static void test_many_questions(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(models); i++) {
        plim_model *one = asked_model(models[i]);
        for (int twice = 0; twice < 2; twice++)
            for (size_t k = 0; k < PLIM_COUNT(questions); k++) {
                plim_model *own = asked_model(models[i]);
                plim_settings *s = asked_settings(questions[k]);
                char *want = answer(own, s);
                check_answer(questions[k], one, s, want);
                free(want);
                plim_settings_free(s);
                plim_model_free(own);
            }
        plim_model_free(one);
    }
}

/* A result outlives the model and the settings that it was made from. */
static void test_results_live(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_model *m = asked_model(DATA "resnet18.pt2");
    plim_settings *s = asked_settings("batch=4 optimizer=adam gpu=rtx4090");
    char *want = answer(m, s);
    plim_estimate *e = NULL;
    plim_buf b;
    plim_buf_init(&b, &a);
    assert_int_equal(plim_estimate_run(m, s, &e, NULL), PLIM_OK);
    plim_model_free(m);
    plim_settings_free(s);
    assert_int_equal(plim_estimate_print(e, PLIM_JSON, NULL, put_buf, &b, NULL), PLIM_OK);
    assert_string_equal(plim_buf_str(&b).p, want);
    plim_estimate_free(e);
    plim_arena_free(&a);
    free(want);
}

/* ---- threads ---------------------------------------------------------------------------- */

enum { THREADS = 8 };

typedef struct worker {
    const plim_model *model;
    const plim_settings *settings;
    char *got;
} worker;

static void *run_worker(void *of)
{
    worker *w = of;
    w->got = answer(w->model, w->settings);
    return NULL;
}

static void test_threads(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(models); i++) {
        plim_model *m = asked_model(models[i]);
        pthread_t thread[THREADS];
        worker w[THREADS];
        for (int k = 0; k < THREADS; k++)
            w[k] = (worker){.model = m, .settings = asked_settings(questions[k])};
        for (int k = 0; k < THREADS; k++)
            assert_int_equal(pthread_create(&thread[k], NULL, run_worker, &w[k]), 0);
        for (int k = 0; k < THREADS; k++)
            pthread_join(thread[k], NULL);
        for (int k = 0; k < THREADS; k++) {
            check_answer(questions[k], m, w[k].settings, w[k].got);
            plim_settings_free((plim_settings *)(uintptr_t)w[k].settings);
            free(w[k].got);
        }
        plim_model_free(m);
    }
}

/* Settings that nobody changes may be read by several threads. */
static void test_threads_share_settings(void **state)
{
    (void)state;
    plim_model *m = asked_model("resnet18");
    plim_settings *s = asked_settings("batch=6 optimizer=adam gpu=a100");
    pthread_t thread[THREADS];
    worker w[THREADS];
    for (int k = 0; k < THREADS; k++) {
        w[k] = (worker){.model = m, .settings = s};
        assert_int_equal(pthread_create(&thread[k], NULL, run_worker, &w[k]), 0);
    }
    for (int k = 0; k < THREADS; k++) {
        pthread_join(thread[k], NULL);
        check_answer("shared", m, s, w[k].got);
        free(w[k].got);
    }
    plim_settings_free(s);
    plim_model_free(m);
}

/* ---- what is missing ----------------------------------------------------------------------- */

#define REFUSED(call)                                                                         \
    do {                                                                                      \
        plim_err err = PLIM_ERR_INIT;                                                         \
        plim_status st_ = (call);                                                             \
        if (st_ != PLIM_EUSAGE || err.code != st_ || !strstr(err.msg, "NULL"))                \
            fail_msg("%s: %d \"%s\"", #call, st_, err.msg);                                   \
    } while (0)

static void test_null(void **state)
{
    (void)state;
    plim_model *m = asked_model("lenet"), *m2 = NULL;
    plim_settings *s = asked_settings(NULL), *s2 = NULL;
    plim_estimate *e = asked_estimate("lenet", NULL), *e2 = NULL;
    plim_info *info = NULL;
    plim_layers *layers = NULL;
    plim_batches *batches = NULL;
    plim_segments *segments = NULL;
    plim_fit *fit = NULL;
    plim_replay *replay = NULL;
    plim_diff *diff = NULL;
    plim_oom_message *message = NULL;
    uint64_t bytes;
    int64_t dim[2];
    int rank;
    REFUSED(plim_model_open(NULL, &m2, &err));
    REFUSED(plim_model_open("lenet", NULL, &err));
    REFUSED(plim_model_open_bytes(NULL, "x", 1, &m2, &err));
    REFUSED(plim_model_open_bytes("x", NULL, 1, &m2, &err));
    REFUSED(plim_model_open_bytes("x", "x", 1, NULL, &err));
    REFUSED(plim_settings_new(NULL, &err));
    REFUSED(plim_settings_copy(s, NULL, &err));
    REFUSED(plim_settings_set(NULL, "batch", "1", &err));
    REFUSED(plim_settings_set(s, NULL, "1", &err));
    REFUSED(plim_settings_add(NULL, "dim", "a=1", &err));
    REFUSED(plim_settings_add(s, NULL, "a=1", &err));
    REFUSED(plim_settings_json(NULL, put_buf, NULL, &err));
    REFUSED(plim_settings_json(s, NULL, NULL, &err));
    REFUSED(plim_settings_set_json(NULL, "{}", 2, &err));
    REFUSED(plim_settings_set_json(s, NULL, 2, &err));
    REFUSED(plim_settings_load(NULL, "x", &err));
    REFUSED(plim_settings_load(s, NULL, &err));
    REFUSED(plim_estimate_run(NULL, s, &e2, &err));
    REFUSED(plim_estimate_run(m, s, NULL, &err));
    REFUSED(plim_info_run(NULL, s, &info, &err));
    REFUSED(plim_info_run(m, s, NULL, &err));
    REFUSED(plim_layers_run(NULL, s, &layers, &err));
    REFUSED(plim_layers_run(m, s, NULL, &err));
    REFUSED(plim_batches_run(NULL, s, &batches, &err));
    REFUSED(plim_batches_run(m, s, NULL, &err));
    REFUSED(plim_segments_run(NULL, s, &segments, &err));
    REFUSED(plim_segments_run(m, s, NULL, &err));
    REFUSED(plim_fit_run(NULL, s, &fit, &err));
    REFUSED(plim_fit_run(m, s, NULL, &err));
    REFUSED(plim_tape_print(NULL, s, false, put_buf, NULL, &err));
    REFUSED(plim_tape_print(m, s, false, NULL, NULL, &err));
    REFUSED(plim_replay_run(NULL, s, &replay, &err));
    REFUSED(plim_replay_run("x", s, NULL, &err));
    REFUSED(plim_diff_run(NULL, m, "x", m, s, &diff, &err));
    REFUSED(plim_diff_run("x", m, NULL, m, s, &diff, &err));
    REFUSED(plim_diff_run("x", m, "y", m, s, NULL, &err));
    REFUSED(plim_oom_read(NULL, 0, &message, &err));
    REFUSED(plim_oom_read("x", 1, NULL, &err));
    REFUSED(plim_oom_load(NULL, &message, &err));
    REFUSED(plim_oom_load("x", NULL, &err));
    REFUSED(plim_size_parse(NULL, &bytes, &err));
    REFUSED(plim_size_parse("1", NULL, &err));
    REFUSED(plim_shape_parse(NULL, dim, 2, &rank, &err));
    REFUSED(plim_shape_parse("1", NULL, 2, &rank, &err));
    REFUSED(plim_shape_parse("1", dim, 2, NULL, &err));
    REFUSED(plim_tensor_bytes(PLIM_F32, 1, NULL, &bytes, &err));
    REFUSED(plim_tensor_bytes(PLIM_F32, 1, dim, NULL, &err));
    REFUSED(plim_estimate_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_estimate_print(e, PLIM_TEXT, NULL, NULL, NULL, &err));
    REFUSED(plim_info_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_layers_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_segments_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_batches_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_fit_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_replay_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_diff_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_oom_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_registry_print(PLIM_REG_OPS, NULL, PLIM_TEXT, NULL, NULL, NULL, &err));
    REFUSED(plim_size_print(NULL, PLIM_TEXT, NULL, put_buf, NULL, &err));
    REFUSED(plim_size_print("1", PLIM_TEXT, NULL, NULL, NULL, &err));
    assert_int_equal(plim_estimate_run(NULL, NULL, NULL, NULL), PLIM_EUSAGE);
    CHECK("nothing is given", !m2 && !s2 && !e2 && !info && !layers && !batches && !segments &&
                                  !fit && !replay && !diff && !message);
    assert_false(plim_registry_at(PLIM_REG_OPS, 0, NULL));
    assert_false(plim_gpu_info_at(0, NULL));
    assert_false(plim_setting_at(0, NULL));
    assert_null(plim_model_name(NULL));
    assert_null(plim_model_format(NULL));
    plim_model_free(NULL);
    plim_settings_free(NULL);
    plim_estimate_free(NULL);
    plim_info_free(NULL);
    plim_layers_free(NULL);
    plim_batches_free(NULL);
    plim_segments_free(NULL);
    plim_fit_free(NULL);
    plim_replay_free(NULL);
    plim_diff_free(NULL);
    plim_oom_free(NULL);
    plim_settings_on_progress(NULL, NULL, NULL);
    plim_estimate_free(e);
    plim_settings_free(s);
    plim_model_free(m);
}

/* NULL settings are the same as settings with nothing set. */
static void test_no_settings(void **state)
{
    (void)state;
    plim_model *m = asked_model("lenet");
    plim_settings *s = asked_settings(NULL), *copy = NULL;
    char *want = answer(m, s);
    check_answer("NULL", m, NULL, want);
    assert_int_equal(plim_settings_copy(NULL, &copy, NULL), PLIM_OK);
    check_answer("a copy of NULL", m, copy, want);
    free(want);
    plim_settings_free(copy);
    plim_settings_free(s);
    plim_model_free(m);
}

/* ---- callers that say stop ------------------------------------------------------------------ */

/* Accepts `left` pieces. */
static int put_until(void *ud, const char *text, size_t n)
{
    int *left = ud;
    assert_non_null(text);
    assert_true(n > 0);
    CHECK("not called again after it failed", *left >= 0);
    return (*left)-- > 0 ? 0 : 7;
}

static void test_put_fails(void **state)
{
    (void)state;
    plim_model *m = asked_model("lenet");
    plim_estimate *e = asked_estimate("lenet", NULL);
    for (int r = PLIM_TEXT; r <= PLIM_JSON; r++) {
        plim_err err = PLIM_ERR_INIT;
        int left = 0;
        assert_int_equal(plim_estimate_print(e, (plim_render)r, NULL, put_until, &left, &err),
                         PLIM_EIO);
        assert_int_equal(err.code, PLIM_EIO);
        CHECK("in one piece", left == -1 && *err.msg);
        left = 1;
        assert_int_equal(plim_estimate_print(e, (plim_render)r, NULL, put_until, &left, NULL),
                         PLIM_OK);
        assert_int_equal(left, 0);
    }
    for (int json = 0; json < 2; json++)
        for (int pieces = 0; pieces < 3; pieces++) {
            int left = pieces;
            plim_err err = PLIM_ERR_INIT;
            plim_status st = plim_tape_print(m, NULL, json, put_until, &left, &err);
            assert_int_equal(st, err.code);
            CHECK("all of it, or a failure", left == -1 ? st == PLIM_EIO : st == PLIM_OK);
            CHECK("it fails at the first", pieces || st == PLIM_EIO);
        }
    int left = 0;
    assert_int_equal(plim_settings_json(e->settings, put_until, &left, NULL), PLIM_EIO);
    left = 0;
    assert_int_equal(
        plim_registry_print(PLIM_REG_OPS, NULL, PLIM_CSV, NULL, put_until, &left, NULL),
        PLIM_EIO);
    left = 0;
    assert_int_equal(plim_size_print("3x3", PLIM_TEXT, NULL, put_until, &left, NULL),
                     PLIM_EIO);
    plim_estimate_free(e);
    plim_model_free(m);
}

typedef struct watch {
    uint32_t calls, stop, last; /* stop: at this call; 0: never */
} watch;

static int count_calls(void *ud, uint32_t done, uint32_t total, const char *what)
{
    watch *w = ud;
    CHECK("it moves on", done >= w->last && (!total || done < total));
    CHECK("it has a name", what && *what);
    w->last = done;
    return ++w->calls == w->stop;
}

static void test_progress(void **state)
{
    (void)state;
    plim_model *m = asked_model("mlp:8,16,16,16,4:relu");
    plim_settings *s = asked_settings("optimizer=adam gpu=t4,a100,rtx4090");
    plim_settings *copy = NULL;
    for (uint32_t stop = 0; stop < 3; stop++) {
        plim_err err[3] = {PLIM_ERR_INIT, PLIM_ERR_INIT, PLIM_ERR_INIT};
        watch w[3] = {{0, stop, 0}, {0, stop, 0}, {0, stop, 0}};
        plim_fit *fit = NULL;
        plim_batches *batches = NULL;
        plim_segments *segments = NULL;
        plim_status want = stop ? PLIM_ECANCELED : PLIM_OK;
        asked_set(s, "gpu", "t4,a100,rtx4090");
        plim_settings_on_progress(s, count_calls, &w[0]);
        assert_int_equal(plim_fit_run(m, s, &fit, &err[0]), want);
        asked_set(s, "gpu", NULL);
        plim_settings_on_progress(s, count_calls, &w[1]);
        assert_int_equal(plim_batches_run(m, s, &batches, &err[1]), want);
        plim_settings_on_progress(s, count_calls, &w[2]);
        assert_int_equal(plim_segments_run(m, s, &segments, &err[2]), want);
        for (int k = 0; k < 3; k++) {
            assert_int_equal(err[k].code, want);
            CHECK("it stops at once", stop ? w[k].calls == stop : w[k].calls > 2);
            CHECK("it says where", !stop || strstr(err[k].msg, "canceled at"));
        }
        CHECK("nothing is given", (fit && batches && segments) == !stop);
        assert_int_equal(stop ? 3 : w[0].calls, 3); /* cards */
        plim_fit_free(fit);
        plim_batches_free(batches);
        plim_segments_free(segments);
    }
    /* a copy reports to the same callback */
    watch w = {0, 1, 0};
    plim_fit *fit = NULL;
    plim_settings_on_progress(s, count_calls, &w);
    assert_int_equal(plim_settings_copy(s, &copy, NULL), PLIM_OK);
    assert_int_equal(plim_fit_run(m, copy, &fit, NULL), PLIM_ECANCELED);
    plim_settings_on_progress(copy, NULL, NULL);
    asked_set(copy, "gpu", "t4");
    assert_int_equal(plim_fit_run(m, copy, &fit, NULL), PLIM_OK);
    assert_int_equal(w.calls, 1);
    plim_fit_free(fit);
    plim_settings_free(copy);
    plim_settings_free(s);
    plim_model_free(m);
}

/* ---- structs and versions --------------------------------------------------------------------- */

static void test_style(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_estimate *e = asked_estimate("lenet", NULL);
    plim_err err = PLIM_ERR_INIT;
    plim_style st = PLIM_STYLE_INIT, none = {0};
    plim_buf b, c;
    plim_buf_init(&b, &a);
    plim_buf_init(&c, &a);
    assert_int_equal(plim_estimate_print(e, PLIM_TEXT, &none, put_buf, &b, &err), PLIM_EUSAGE);
    CHECK("it says how", strstr(err.msg, "PLIM_STYLE_INIT"));
    assert_int_equal(
        plim_registry_print(PLIM_REG_OPS, NULL, PLIM_TEXT, &none, put_buf, &b, NULL),
        PLIM_EUSAGE);
    assert_int_equal(plim_size_print("3x3", PLIM_TEXT, &none, put_buf, &b, NULL), PLIM_EUSAGE);
    assert_int_equal(b.n, 0);
    /* for a program built before `width` existed the rest is ignored */
    st.ascii = true;
    st.size = offsetof(plim_style, width);
    assert_int_equal(plim_estimate_print(e, PLIM_TEXT, &st, put_buf, &b, NULL), PLIM_OK);
    st.width = 60;
    assert_int_equal(plim_estimate_print(e, PLIM_TEXT, &st, put_buf, &c, NULL), PLIM_OK);
    assert_string_equal(plim_buf_str(&b).p, plim_buf_str(&c).p);
    /* the same for a program built later */
    struct {
        plim_style st;
        uint64_t later[4];
    } newer = {PLIM_STYLE_INIT, {1, 2, 3, 4}};
    newer.st.size = sizeof newer;
    newer.st.ascii = true;
    plim_buf_init(&c, &a);
    assert_int_equal(plim_estimate_print(e, PLIM_TEXT, &newer.st, put_buf, &c, NULL), PLIM_OK);
    assert_string_equal(plim_buf_str(&b).p, plim_buf_str(&c).p);
    plim_estimate_free(e);
    plim_arena_free(&a);
}

/* No more is written than the caller has room for. */
static void test_rows_of_older_programs(void **state)
{
    (void)state;
    plim_entry entry = PLIM_ENTRY_INIT, whole = PLIM_ENTRY_INIT;
    entry.bits = 77;
    entry.size = offsetof(plim_entry, bits);
    assert_true(plim_registry_at(PLIM_REG_MODELS, 0, &entry));
    assert_true(plim_registry_at(PLIM_REG_MODELS, 0, &whole));
    assert_int_equal(entry.bits, 77);
    assert_int_equal(entry.size, offsetof(plim_entry, bits));
    assert_int_equal(whole.size, sizeof whole);
    assert_string_equal(entry.src, whole.src);
    plim_gpu_info gpu = PLIM_GPU_INFO_INIT;
    gpu.fp8_tflops = -1;
    gpu.size = offsetof(plim_gpu_info, fp8_tflops);
    assert_true(plim_gpu_info_at(0, &gpu));
    assert_true(gpu.fp8_tflops < 0 && *gpu.name);
    plim_setting_info setting = PLIM_SETTING_INFO_INIT;
    setting.doc = "mine";
    setting.size = offsetof(plim_setting_info, doc);
    assert_true(plim_setting_at(0, &setting));
    assert_string_equal(setting.doc, "mine");
    assert_string_equal(setting.key, "mode");
}

static void test_sizes(void **state)
{
    (void)state;
    plim_model *m = asked_model("mlp:8,16,4:relu");
    plim_settings *s = asked_settings("gpu=t4");
    plim_estimate *e = asked_estimate_of("lenet", s);
    plim_info *info = NULL;
    plim_layers *layers = NULL;
    plim_batches *batches = NULL;
    plim_segments *segments = NULL;
    plim_fit *fit = NULL;
    assert_int_equal(plim_info_run(m, s, &info, NULL), PLIM_OK);
    assert_int_equal(plim_layers_run(m, s, &layers, NULL), PLIM_OK);
    assert_int_equal(plim_batches_run(m, s, &batches, NULL), PLIM_OK);
    assert_int_equal(plim_segments_run(m, s, &segments, NULL), PLIM_OK);
    assert_int_equal(plim_fit_run(m, s, &fit, NULL), PLIM_OK);
    assert_int_equal(e->size, sizeof *e);
    assert_int_equal(info->size, sizeof *info);
    assert_int_equal(layers->size, sizeof *layers);
    assert_int_equal(batches->size, sizeof *batches);
    assert_int_equal(segments->size, sizeof *segments);
    assert_int_equal(fit->size, sizeof *fit);
    const plim_model_info *const of[] = {e->model, layers->model, batches->model,
                                         segments->model, fit->model};
    for (size_t i = 0; i < PLIM_COUNT(of); i++)
        assert_int_equal(of[i]->size, sizeof *of[i]);
    CHECK("settings come with it", e->settings && layers->settings && fit->settings);
    CHECK_STR("with their defaults", plim_settings_get(e->settings, "optimizer"), "sgd");
    plim_estimate_free(e);
    plim_info_free(info);
    plim_layers_free(layers);
    plim_batches_free(batches);
    plim_segments_free(segments);
    plim_fit_free(fit);
    plim_settings_free(s);
    plim_model_free(m);
}

static void test_replay_size(void **state)
{
    (void)state;
    plim_err err = PLIM_ERR_INIT;
    plim_replay *r = NULL;
    char path[] = "/tmp/plimsoll-handle-XXXXXX";
    FILE *f = fdopen(mkstemp(path), "w");
    assert_non_null(f);
    fputs("plimsoll-tape 1\n+ 1 5000000 parameter w\n- 1\n", f);
    fclose(f);
    if (plim_replay_run(path, NULL, &r, &err))
        fail_msg("%s", err.msg);
    assert_int_equal(r->size, sizeof *r);
    assert_int_equal(r->requested_bytes.peak, 5000000);
    plim_replay_free(r);
    remove(path);
}

/* A result holds what it reports, not the graph and the tape that it is made from: programs keep results of
 * many models. */
static void test_results_are_small(void **state)
{
    (void)state;
    enum { MOST = 4 << 20 };
    plim_model *m = asked_model("llama-3.1-405b"); /* whose graph and tape take 26 MiB */
    plim_settings *s = asked_settings("optimizer=adamw batch=1 seq=128 advice=none");
    plim_estimate *e = NULL;
    plim_layers *l = NULL;
    plim_times *t = NULL;
    uint64_t before = plim_memory_held();
    assert_int_equal(plim_estimate_run(m, s, &e, NULL), PLIM_OK);
    CHECK("an estimate", plim_memory_held() - before < MOST);
    plim_estimate_free(e);
    CHECK("none", plim_memory_held() == before);
    assert_int_equal(plim_layers_run(m, s, &l, NULL), PLIM_OK);
    CHECK("layers", plim_memory_held() - before < MOST);
    plim_layers_free(l);
    assert_int_equal(plim_times_run(m, s, &t, NULL), PLIM_OK);
    CHECK("times", plim_memory_held() - before < MOST);
    plim_times_free(t);
    plim_settings_free(s);
    plim_model_free(m);
}

static void test_versions(void **state)
{
    (void)state;
    unsigned major, minor, patch;
    assert_int_equal(sscanf(PLIM_VERSION, "%u.%u.%u", &major, &minor, &patch), 3);
    assert_int_equal(PLIM_VERSION_NUMBER, major * 10000 + minor * 100 + patch);
    assert_string_equal(plim_version(), PLIM_VERSION);
    assert_int_equal(plim_version_number(), PLIM_VERSION_NUMBER);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bytes),
        cmocka_unit_test(test_open_refused),
        cmocka_unit_test(test_many_questions),
        cmocka_unit_test(test_results_live),
        cmocka_unit_test(test_threads),
        cmocka_unit_test(test_threads_share_settings),
        cmocka_unit_test(test_null),
        cmocka_unit_test(test_no_settings),
        cmocka_unit_test(test_put_fails),
        cmocka_unit_test(test_progress),
        cmocka_unit_test(test_style),
        cmocka_unit_test(test_rows_of_older_programs),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_replay_size),
        cmocka_unit_test(test_results_are_small),
        cmocka_unit_test(test_versions),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
