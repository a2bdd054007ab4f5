/* test_locale.c -- a program that links the library may have set its locale: what the library
 * reads and writes stays the same if the decimal point is a comma. */
#define _GNU_SOURCE

#include <locale.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "asked.h"
#include "base/fmt.h"
#include "op/op.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static void write_estimate(plim_buf *b, const char *model, const char *words)
{
    plim_err err = PLIM_ERR_INIT;
    plim_style style = PLIM_STYLE_INIT;
    plim_estimate *e = NULL;
    plim_settings *s = asked_settings(words);
    plim_model *m = asked_model(model);
    if (plim_estimate_run(m, s, &e, &err) ||
        plim_estimate_print(e, PLIM_TEXT, &style, put_buf, b, &err) ||
        plim_estimate_print(e, PLIM_JSON, &style, put_buf, b, &err))
        fail_msg("%s: %s", model, err.msg);
    plim_estimate_free(e);
    if (plim_tape_print(m, s, false, put_buf, b, &err) ||
        plim_tape_print(m, s, true, put_buf, b, &err))
        fail_msg("%s: %s", model, err.msg);
    plim_model_free(m);
    plim_settings_free(s);
}

static void write_replay(plim_buf *b, const char *tape)
{
    plim_err err = PLIM_ERR_INIT;
    plim_style style = PLIM_STYLE_INIT;
    plim_settings *s = asked_settings(
        "gpu=rtx4090 fraction=0.25 alloc_conf=garbage_collection_threshold:0.8");
    plim_replay *r = NULL;
    char path[] = "/tmp/plimsoll-locale-XXXXXX";
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, tape, strlen(tape)) == (ssize_t)strlen(tape));
    close(fd);
    if (plim_replay_run(path, s, &r, &err) ||
        plim_replay_print(r, PLIM_TEXT, &style, put_buf, b, &err) ||
        plim_replay_print(r, PLIM_JSON, &style, put_buf, b, &err))
        fail_msg("%s", err.msg);
    plim_replay_free(r);
    plim_settings_free(s);
    unlink(path);
}

static void write_errors(plim_buf *b)
{
    static const char *const words[] = {"optimizer=sgd,momentum=0,9",
                                        "optimizer=lbfgs,history_size=0.5", "fraction=0,5"};
    for (size_t i = 0; i < PLIM_COUNT(words); i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_estimate *e = NULL;
        assert_int_not_equal(asked_try("lenet", words[i], &e, &err), PLIM_OK);
        plim_buf_printf(b, "%s\n", err.msg);
    }
}

/* The defaults of an op's arguments, in millionths. */
static void write_defaults(plim_buf *b)
{
    plim_err err = PLIM_ERR_INIT;
    bool inplace;
    uint32_t n;
    const plim_arg *args;
    const plim_op *op = plim_op_find(PLIM_STR("hardshrink"), PLIM_STR(""), &inplace);
    assert_non_null(op);
    assert_int_equal(plim_op_bind(b->arena, op, NULL, 0, &args, &n, &err), PLIM_OK);
    for (uint32_t i = 0; i < n; i++)
        plim_buf_printf(b, "%d %" PRId64 "\n", (int)args[i].kind, (int64_t)(args[i].f * 1e6));
}

/* Everything that reads or writes a number with a decimal point. */
static void write_all(plim_buf *b)
{
    plim_err err = PLIM_ERR_INIT;
    plim_style style = PLIM_STYLE_INIT;
    write_estimate(
        b, "alexnet", /* a dropout of 0.5 by default */
        "batch=8 optimizer=sgd,momentum=0.9 alloc_conf=garbage_collection_threshold:0.8 gpu=rtx4090");
    write_estimate(b, DATA "version_attend.pt2", "optimizer=adamw,lr=1e-3 torch=2.3");
    write_estimate(b, DATA "llama-tiny", /* a rms_norm_eps of 1e-05 */
                   "seq=16 ema=averaged");
    write_replay(b, "plimsoll-tape 1\n! fraction 0.333333333\n+ 1 5000000 parameter w\n"
                    "! config per_process_memory_fraction:0.5\n- 1\n");
    write_errors(b);
    write_defaults(b);
    for (int r = 0; r < PLIM_REG_COUNT; r++) {
        plim_registry_print((plim_registry)r, NULL, PLIM_TEXT, &style, put_buf, b, &err);
        plim_registry_print((plim_registry)r, NULL, PLIM_JSON, &style, put_buf, b, &err);
    }
}

/* Sets the German locale, which is created in `folder` if the machine has none. */
static bool set_german(const char *folder)
{
    static const char name[] = "de_DE.UTF-8";
    char make[256];
    if (!setlocale(LC_ALL, name)) {
        snprintf(make, sizeof make, "localedef -i de_DE -f UTF-8 %s/%s >/dev/null 2>&1",
                 folder, name);
        if (system(make) || setenv("LOCPATH", folder, 1) || !setlocale(LC_ALL, name))
            return false;
    }
    return localeconv()->decimal_point[0] == ',';
}

static void test_german(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf before, after;
    char folder[] = "/tmp/plimsoll-locale-XXXXXX", clean[64];
    plim_buf_init(&before, &a);
    plim_buf_init(&after, &a);
    write_all(&before);
    assert_non_null(mkdtemp(folder));
    bool german = set_german(folder);
    if (german)
        write_all(&after);
    setlocale(LC_ALL, "C");
    snprintf(clean, sizeof clean, "rm -rf %s", folder);
    assert_int_equal(system(clean), 0);
    if (german) {
        uint64_t same = 0;
        while (same < before.n && same < after.n && before.p[same] == after.p[same])
            same++;
        uint64_t from = same - PLIM_MIN(same, 60);
        if (same < before.n || same < after.n)
            fail_msg("\"%.80s\" became \"%.80s\"", before.p + from, after.p + from);
    }
    plim_arena_free(&a);
    if (!german)
        skip();
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_german)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
