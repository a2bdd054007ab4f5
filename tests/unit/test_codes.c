/* test_codes.c -- every function of plimsoll.h returns the code that it sets in the error: calls with
 * absurd settings, with broken files, and with a caller that stops. */
#include <stdio.h>

#include "asked.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* What a call returned, and what it said. */
static void same_code(const char *call, const char *with, plim_status st, const plim_err *err)
{
    if (st != err->code || (st != PLIM_OK) != (err->msg[0] != '\0'))
        fail_msg("%s with %s: returns %d, the error is %d \"%s\"", call, with, (int)st,
                 (int)err->code, err->msg);
}

static void refused(const char *call, const char *with, plim_status st, const plim_err *err)
{
    same_code(call, with, st, err);
    CHECK(with, st != PLIM_OK);
}

/* Evaluates a call that may set `err`. */
#define SAME(with, call)                                                                      \
    do {                                                                                      \
        plim_err err = PLIM_ERR_INIT;                                                         \
        plim_status st_ = (call);                                                             \
        same_code(#call, (with), st_, &err);                                                  \
    } while (0)
#define REFUSED(with, call)                                                                   \
    do {                                                                                      \
        plim_err err = PLIM_ERR_INIT;                                                         \
        plim_status st_ = (call);                                                             \
        refused(#call, (with), st_, &err);                                                    \
    } while (0)

static int stop_writing(void *ud, const char *text, size_t n)
{
    (void)ud, (void)text, (void)n;
    return 1;
}

static int drop_text(void *ud, const char *text, size_t n)
{
    (void)ud, (void)text, (void)n;
    return 0;
}

/* ---- settings ------------------------------------------------------------------------- */

static const char *const absurd[] = {
    "",    "x",    "-1",  "0",     "1e999", "nan",   "99999999999999999999",   "GiB", "12QiB",
    "1.5", "true", "a=b", "a,b;c", "/",     "1TiB1", "18446744073709551616GiB"};

static void test_settings(void **state)
{
    (void)state;
    char json[256], many[20000];
    plim_setting_info row = {.size = sizeof row};
    plim_settings *s = asked_settings(NULL);
    memset(many, 'x', sizeof many - 1);
    many[sizeof many - 1] = '\0';
    for (uint32_t i = 0; plim_setting_at(i, &row); i++) {
        for (size_t k = 0; k < PLIM_COUNT(absurd); k++) {
            SAME(row.key, plim_settings_set(s, row.key, absurd[k], &err));
            SAME(row.key, plim_settings_add(s, row.key, absurd[k], &err));
            snprintf(json, sizeof json, "{\"%s\":\"%s\"}", row.key, absurd[k]);
            SAME(json, plim_settings_set_json(s, json, strlen(json), &err));
        }
        SAME(row.key, plim_settings_set(s, row.key, many, &err));
        SAME(row.key, plim_settings_add(s, row.key, many, &err));
    }
    static const char *const broken[] = {"",
                                         "{",
                                         "[]",
                                         "{\"batch\":[1]}",
                                         "{\"batch\":1e9e9}",
                                         "{\"nothing\":1}",
                                         "{\"batch\":\"\\u0000\"}"};
    for (size_t i = 0; i < PLIM_COUNT(broken); i++)
        REFUSED(broken[i], plim_settings_set_json(s, broken[i], strlen(broken[i]), &err));
    REFUSED("no setting", plim_settings_set(s, "nothing", "1", &err));
    REFUSED("no file", plim_settings_load(s, DATA "nothing.json", &err));
    REFUSED("a folder", plim_settings_load(s, DATA, &err));
    REFUSED("no settings", plim_settings_load(s, DATA "run.pickle", &err));
    REFUSED("a caller that stops", plim_settings_json(s, stop_writing, NULL, &err));
    plim_settings_free(s);
}

/* ---- models --------------------------------------------------------------------------- */

/* Runs one question; frees its answer. */
#define ASK(name, T)                                                                          \
    static plim_status ask_##name(const plim_model *m, const plim_settings *s, plim_err *err) \
    {                                                                                         \
        T *r = NULL;                                                                          \
        plim_status st = plim_##name##_run(m, s, &r, err);                                    \
        plim_##name##_free(r);                                                                \
        return st;                                                                            \
    }
ASK(estimate, plim_estimate)
ASK(times, plim_times)
ASK(info, plim_info)
ASK(layers, plim_layers)
ASK(batches, plim_batches)
ASK(segments, plim_segments)
ASK(fit, plim_fit)
ASK(cards, plim_cards)
ASK(serve, plim_serve)
ASK(serve_fit, plim_serve_fit)

static plim_status ask_tape(const plim_model *m, const plim_settings *s, plim_err *err)
{
    return plim_tape_print(m, s, false, drop_text, NULL, err);
}

static plim_status ask_diff(const plim_model *m, const plim_settings *s, plim_err *err)
{
    plim_diff *d = NULL;
    plim_status st = plim_diff_run("a", m, DATA "ties.tape", NULL, s, &d, err);
    plim_diff_free(d);
    return st;
}

static const struct {
    const char *name;
    plim_status (*ask)(const plim_model *m, const plim_settings *s, plim_err *err);
} asks[] = {
    {"estimate", ask_estimate}, {"times", ask_times},         {"info", ask_info},
    {"layers", ask_layers},     {"batches", ask_batches},     {"segments", ask_segments},
    {"fit", ask_fit},           {"cards", ask_cards},         {"serve", ask_serve},
    {"tape", ask_tape},         {"serve_fit", ask_serve_fit}, {"diff", ask_diff}};

/* Models that are asked, most of them in vain, and settings that no model takes. */
static void test_models(void **state)
{
    (void)state;
    static const char *const models[] = {"lenet", DATA "small_static.pt2",
                                         DATA "gguf/unknown.gguf", DATA "llama-tiny",
                                         DATA "torchfile/evil.pth"};
    static const char *const words[] = {"gpu=nothing",
                                        "engine=nothing",
                                        "alloc_conf=nothing:1",
                                        "batch=4294967296",
                                        "seq=4294967296",
                                        "input=1,2,3",
                                        "dim=nothing=3",
                                        "draft=nothing.gguf",
                                        "weights=nothing",
                                        "adapter=nothing",
                                        "tp=3",
                                        "pp=7",
                                        "checkpoint=nothing",
                                        "optimizer=nothing",
                                        "torch=9.9",
                                        "kv=nothing",
                                        "context=1099511627776",
                                        "engine=vllm,gpu_memory_utilization=7"};
    for (size_t i = 0; i < PLIM_COUNT(models); i++) {
        plim_model *m = asked_model(models[i]);
        for (size_t k = 0; k <= PLIM_COUNT(words); k++) {
            plim_settings *s = asked_settings("gpu=t4"); /* one card: it is asked often */
            const char *text = k ? words[k - 1] : "mode=infer", *cut = strchr(text, '=');
            char key[32], with[200];
            snprintf(key, sizeof key, "%.*s", (int)(cut - text), text);
            plim_status set = plim_settings_set(s, key, cut + 1, NULL);
            for (size_t q = 0; q < PLIM_COUNT(asks) && !set; q++) {
                plim_err err = PLIM_ERR_INIT;
                snprintf(with, sizeof with, "%s, %s", models[i], text);
                same_code(asks[q].name, with, asks[q].ask(m, s, &err), &err);
            }
            plim_settings_free(s);
        }
        plim_model_free(m);
    }
}

static void test_opening(void **state)
{
    (void)state;
    static const char *const names[] = {"",
                                        "nothing",

                                        "./nothing.pt2",
                                        DATA,
                                        DATA "run.pickle",
                                        DATA "README.md",
                                        DATA "summary.log",
                                        DATA "pointer.safetensors",
                                        "org/nothing",
                                        DATA "nothing/config.json"};
    plim_model *m = NULL;
    for (size_t i = 0; i < PLIM_COUNT(names); i++)
        REFUSED(names[i], plim_model_open(names[i], &m, &err));
    static const char *const bytes[] = {"", "PK\3\4", "GGUF", "\x80\x09N.", "{\"a\" b}", "c"};
    for (size_t i = 0; i < PLIM_COUNT(bytes); i++) {
        SAME(bytes[i], plim_model_open_bytes("x", bytes[i], strlen(bytes[i]), &m, &err));
        plim_model_free(m);
        m = NULL;
    }
}

/* ---- files ---------------------------------------------------------------------------- */

static plim_status replay(const char *path, const plim_settings *s, plim_err *err)
{
    plim_replay *r = NULL;
    plim_status st = plim_replay_run(path, s, &r, err);
    plim_replay_free(r);
    return st;
}

static plim_status diff(const char *a, const char *b, const plim_settings *s, plim_err *err)
{
    plim_diff *d = NULL;
    plim_status st = plim_diff_run(a, NULL, b, NULL, s, &d, err);
    plim_diff_free(d);
    return st;
}

static void test_files(void **state)
{
    (void)state;
    static const char *const files[] = {DATA "nothing",
                                        DATA,
                                        DATA "relu.pt2",
                                        DATA "llama-tiny/config.json",
                                        DATA "README.md",
                                        DATA "snapshots/code.pickle",
                                        DATA "snapshots/other.pickle",
                                        DATA "traces/other.json",
                                        DATA "torchfile/evil_0.pkl"};
    plim_settings *s = asked_settings(NULL);
    plim_oom_message *message = NULL;
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        REFUSED(files[i], replay(files[i], s, &err));
        REFUSED(files[i], plim_oom_load(files[i], &message, &err));
        SAME(files[i], diff(files[i], DATA "ties.tape", s, &err));
        SAME(files[i], diff(DATA "ties.tape", files[i], s, &err));
    }
    REFUSED("no message", plim_oom_read("nothing", 7, &message, &err));
    asked_set(s, "alloc_conf", "nothing:1");
    REFUSED("alloc_conf", replay(DATA "ties.tape", s, &err));
    asked_set(s, "alloc_conf", NULL);
    asked_set(s, "gpu", "nothing");
    REFUSED("gpu", replay(DATA "ties.tape", s, &err));
    plim_settings_free(s);
}

/* ---- helpers, and callers that stop ----------------------------------------------------- */

static void test_helpers(void **state)
{
    (void)state;
    uint64_t bytes;
    int rank;
    int64_t dim[PLIM_MAX_RANK] = {-1, 0};
    for (size_t i = 0; i < PLIM_COUNT(absurd); i++) {
        SAME(absurd[i], plim_size_parse(absurd[i], &bytes, &err));
        SAME(absurd[i], plim_shape_parse(absurd[i], dim, PLIM_MAX_RANK, &rank, &err));
        SAME(absurd[i], plim_size_print(absurd[i], PLIM_TEXT, NULL, drop_text, NULL, &err));
    }
    REFUSED("no room", plim_shape_parse("1,2,3", dim, 2, &rank, &err));
    REFUSED("no dtype", plim_tensor_bytes((plim_dtype)999, 1, dim, &bytes, &err));
    REFUSED("no rank", plim_tensor_bytes(PLIM_F32, -1, dim, &bytes, &err));
    for (int i = 0; i < PLIM_MAX_RANK; i++)
        dim[i] = INT64_MAX;
    REFUSED("too large", plim_tensor_bytes(PLIM_F32, PLIM_MAX_RANK, dim, &bytes, &err));
    SAME("no registry", plim_registry_print((plim_registry)999, NULL, PLIM_TEXT, NULL,
                                            drop_text, NULL, &err));
}

/* Asks, and stops the answer while it is written, in each form. */
#define STOP(name, model)                                                                     \
    do {                                                                                      \
        plim_##name *r = NULL;                                                                \
        plim_model *m_ = asked_model(model);                                                  \
        assert_int_equal(plim_##name##_run(m_, s, &r, NULL), PLIM_OK);                        \
        for (int how = -1; how < 8; how++)                                                    \
            REFUSED(#name, plim_##name##_print(r, (plim_render)how, NULL, stop_writing, NULL, \
                                               &err));                                        \
        REFUSED(#name, plim_##name##_print(r, PLIM_JSON, NULL, stop_writing, NULL, &err));    \
        plim_##name##_free(r);                                                                \
        plim_model_free(m_);                                                                  \
    } while (0)

static void test_reports(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("gpu=t4");
    STOP(estimate, "lenet");
    STOP(times, "lenet");
    STOP(info, "lenet");
    STOP(layers, "lenet");
    STOP(batches, "lenet");
    STOP(segments, "lenet");
    STOP(fit, "lenet");
    STOP(cards, "lenet");
    STOP(serve, DATA "llama-tiny");
    STOP(serve_fit, DATA "llama-tiny");
    plim_settings_free(s);
}

static void test_stopping(void **state)
{
    (void)state;
    plim_model *m = asked_model("lenet");
    plim_settings *s = asked_settings("gpu=t4");
    plim_estimate *e = asked_estimate("lenet", "gpu=t4");
    const plim_estimate *const list[] = {e};
    REFUSED("a caller that stops",
            plim_compare_print(list, 1, PLIM_TEXT, NULL, stop_writing, NULL, &err));
    plim_replay *r = NULL;
    assert_int_equal(plim_replay_run(DATA "ties.tape", NULL, &r, NULL), PLIM_OK);
    REFUSED("a replay", plim_replay_print(r, PLIM_TEXT, NULL, stop_writing, NULL, &err));
    REFUSED("a replay", plim_replay_print(r, PLIM_JSON, NULL, stop_writing, NULL, &err));
    plim_replay_free(r);
    plim_diff *d = NULL;
    assert_int_equal(
        plim_diff_run(DATA "ties.tape", NULL, DATA "ties.tape", NULL, NULL, &d, NULL),
        PLIM_OK);
    REFUSED("a diff", plim_diff_print(d, PLIM_TEXT, NULL, stop_writing, NULL, &err));
    REFUSED("a diff", plim_diff_print(d, PLIM_JSON, NULL, stop_writing, NULL, &err));
    plim_diff_free(d);
    static const char text[] = "CUDA out of memory. Tried to allocate 20.00 MiB.";
    plim_oom_message *o = NULL;
    assert_int_equal(plim_oom_read(text, sizeof text - 1, &o, NULL), PLIM_OK);
    REFUSED("a message", plim_oom_print(o, PLIM_TEXT, NULL, stop_writing, NULL, &err));
    REFUSED("a message", plim_oom_print(o, PLIM_JSON, NULL, stop_writing, NULL, &err));
    plim_oom_free(o);
    for (int how = -1; how < 8; how++)
        REFUSED("a caller that stops",
                plim_estimate_print(e, (plim_render)how, NULL, stop_writing, NULL, &err));
    REFUSED("a caller that stops",
            plim_estimate_print(e, PLIM_JSON, NULL, stop_writing, NULL, &err));
    REFUSED("a caller that stops", plim_tape_print(m, s, true, stop_writing, NULL, &err));
    REFUSED("a caller that stops",
            plim_size_print("2x3", PLIM_TEXT, NULL, stop_writing, NULL, &err));
    REFUSED("a caller that stops", plim_registry_print(PLIM_REG_OPS, NULL, PLIM_TEXT, NULL,
                                                       stop_writing, NULL, &err));
    plim_estimate_free(e);
    plim_settings_free(s);
    plim_model_free(m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_settings), cmocka_unit_test(test_models),
        cmocka_unit_test(test_opening),  cmocka_unit_test(test_files),
        cmocka_unit_test(test_helpers),  cmocka_unit_test(test_stopping),
        cmocka_unit_test(test_reports),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
