/* test_settings.c -- settings by name: what each kind of value accepts and how it is stored,
 * the rows of settings.def, JSON in and out, and repeating a recorded estimate. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "asked.h"
#include "base/fmt.h"
#include "job/job.h"

#define DATA PLIM_SOURCE_DIR "/tests/data/"

static uint64_t seed = 0x9e3779b97f4a7c15u;
static uint32_t dice(uint32_t n)
{
    seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
    return (uint32_t)((seed >> 32) % n);
}
#define PICK(table) (table)[dice(PLIM_COUNT(table))]

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

/* ---- one value --------------------------------------------------------------------- */

static void test_accepted(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *kept;
    } rows[] = {
        {"clip", "true", "true"},
        {"clip", "1", "true"},
        {"clip", "yes", "true"},
        {"clip", "on", "true"},
        {"clip", "false", "false"},
        {"clip", "0", "false"},
        {"clip", "no", "false"},
        {"clip", "off", "false"},
        {"batch", "32", "32"},
        {"batch", "0032", "32"},
        {"batch", "1", "1"},
        {"batch", "4294967296", "4294967296"},
        {"steps", "1000", "1000"},
        {"vram", "24GiB", "25769803776"},
        {"vram", "24g", "25769803776"},
        {"vram", "1MiB", "1048576"},
        {"vram", "500MB", "500000000"},
        {"vram", "25769803776", "25769803776"},
        {"fraction", "0.25", "0.25"},
        {"fraction", "0.250", "0.25"},
        {"fraction", "1", "1"},
        {"fraction", "1e-3", "0.001"},
        {"mode", "infer", "infer"},
        {"loss", "cross_entropy", "cross_entropy"},
        {"loss", "model", "model"},
        {"dtype", "bf16", "bf16"},
        {"dtype", "bfloat16", "bf16"},
        {"dtype", "torch.float16", "fp16"},
        {"dtype", "half", "fp16"},
        {"dtype", "Float32", "fp32"},
        {"dtype", "double", "fp64"},
        {"autocast", "BF16", "bf16"},
        {"loss", "cross-entropy", "cross_entropy"},
        {"mode", "Train", "train"},
        {"optimizer", "adamw,impl=fused", "adamw,impl=fused"},
        {"optimizer", "no such optimizer", "no such optimizer"}, /* parsed where it is used */
        {"alloc_conf", "", ""},
        {"input", "32,3,224,224", "32,3,224,224"},
        {"dim", "s0=128;frames=16", "s0=128;frames=16"},
    };
    plim_settings *s = asked_settings(NULL);
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        asked_set(s, rows[i].key, rows[i].value);
        CHECK_STR(rows[i].value, plim_settings_get(s, rows[i].key), rows[i].kept);
        asked_set(s, rows[i].key, rows[i].kept); /* the normal form is stable */
        CHECK_STR(rows[i].value, plim_settings_get(s, rows[i].key), rows[i].kept);
        asked_set(s, rows[i].key, NULL);
        CHECK(rows[i].key, !plim_settings_get(s, rows[i].key));
    }
    plim_settings_free(s);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *key, *value, *msg;
    } rows[] = {
        {"clip", "", "'clip': expected true or false, got ''"},
        {"clip", "True", "'clip': expected true or false, got 'True'"},
        {"batch", "", "'batch': expected an integer, got ''"},
        {"batch", "-", "'batch': expected an integer, got '-'"},
        {"batch", "+3", "'batch': expected an integer, got '+3'"},
        {"batch", "3.0", "'batch': expected an integer, got '3.0'"},
        {"batch", "1e3", "'batch': expected an integer, got '1e3'"},
        {"batch", " 3", "'batch': expected an integer, got ' 3'"},
        {"batch", "many", "'batch': expected an integer, got 'many'"},
        {"batch", "0", "'batch': 0 is not in 1..4294967296"},
        {"batch", "-1", "'batch': -1 is not in 1..4294967296"},
        {"batch", "4294967297", "'batch': 4294967297 is not in 1..4294967296"},
        {"seq", "9223372036854775808", "'seq': 9223372036854775808 is not in 1..4294967296"},
        {"steps", "1001", "'steps': 1001 is not in 1..1000"},
        {"accumulate", "0", "'accumulate': 0 is not in 1..1000"},
        {"vram", "24", "'vram': 24 B is less than 1.00 MiB: add a unit, as in 24GiB"},
        {"vram", "1023KiB",
         "'vram': 1023.00 KiB is less than 1.00 MiB: add a unit, as in 24GiB"},
        {"fraction", "0", "'fraction': expected a number above 0 and up to 1, got '0'"},
        {"fraction", "-0.5", "'fraction': expected a number above 0 and up to 1, got '-0.5'"},
        {"fraction", "1.01", "'fraction': expected a number above 0 and up to 1, got '1.01'"},
        {"fraction", "nan", "'fraction': expected a number above 0 and up to 1, got 'nan'"},
        {"fraction", "0,5", "'fraction': expected a number above 0 and up to 1, got '0,5'"},
        {"mode", "", "'mode': unknown value '' (expected one of train, infer)"},
        {"mode", "trains", "'mode': unknown value 'trains' (expected one of train, infer)"},
        {"autocast", "float64",
         "'autocast': unknown value 'float64' (expected one of none, fp16, bf16)"},
        {"dtype", "fp8",
         "'dtype': unknown value 'fp8' (expected one of fp32, fp16, bf16, fp64)"},
        {"mode", "train infer",
         "'mode': unknown value 'train infer' (expected one of train, infer)"},
        {"--loss", "nothing",
         "'--loss': unknown value 'nothing' (expected one of cross_entropy, mse, mse_fp32, bce, sum, "
         "model, linear_cross_entropy, liger)"},
        {"zero-grad", "zero",
         "'zero-grad': unknown value 'zero' (expected one of none, zeros)"},
        {"optimizer", "", "'optimizer': the value is empty"},
        {"gpu", "", "'gpu': the value is empty"},
        {"input", "", "'input': the value is empty"},
        {"btach", "32", "unknown setting 'btach'; did you mean 'batch'?"},
        {"zero_grads", "none", "unknown setting 'zero_grads'; did you mean 'zero_grad'?"},
        {"temperature", "1", "unknown setting 'temperature'"},
        {"", "1", "unknown setting ''"},
        {"-batch", "1", "unknown setting '-batch'; did you mean 'batch'?"},
        {"batch ", "1", "unknown setting 'batch '; did you mean 'batch'?"},
        {"Batch", "1", "unknown setting 'Batch'; did you mean 'batch'?"},
    };
    plim_settings *s = asked_settings("batch=7 clip=true vram=2MiB fraction=0.5 mode=infer");
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        CHECK(rows[i].msg,
              plim_settings_set(s, rows[i].key, rows[i].value, &err) == PLIM_EUSAGE);
        assert_int_equal(err.code, PLIM_EUSAGE);
        CHECK_STR(rows[i].key, err.msg, rows[i].msg);
        CHECK("err may be NULL",
              plim_settings_set(s, rows[i].key, rows[i].value, NULL) == PLIM_EUSAGE);
    }
    /* the old value is kept */
    CHECK_STR("batch", plim_settings_get(s, "batch"), "7");
    CHECK_STR("clip", plim_settings_get(s, "clip"), "true");
    CHECK_STR("vram", plim_settings_get(s, "vram"), "2097152");
    CHECK_STR("fraction", plim_settings_get(s, "fraction"), "0.5");
    CHECK_STR("mode", plim_settings_get(s, "mode"), "infer");
    plim_settings_free(s);
}

static void test_long_values(void **state)
{
    (void)state;
    enum { LIMIT = 1 << 16 };
    static char text[LIMIT + 2];
    plim_settings *s = asked_settings(NULL);
    plim_err err = PLIM_ERR_INIT;
    memset(text, 'x', LIMIT);
    asked_set(s, "checkpoint", text);
    assert_string_equal(plim_settings_get(s, "checkpoint"), text);
    text[LIMIT] = 'x';
    assert_int_equal(plim_settings_set(s, "checkpoint", text, &err), PLIM_EUSAGE);
    CHECK_STR("limit", err.msg,
              "'checkpoint': the value has 65537 characters, the limit is 65536");
    assert_int_equal(strlen(plim_settings_get(s, "checkpoint")), LIMIT);
    asked_set(s, "checkpoint", "blocks");
    CHECK_STR("a shorter one", plim_settings_get(s, "checkpoint"), "blocks");
    assert_int_equal(plim_settings_set(s, "batch", text, NULL), PLIM_EUSAGE);
    plim_settings_free(s);
}

static void test_keys(void **state)
{
    (void)state;
    static const char *const spelled[] = {"zero_grad", "zero-grad", "--zero-grad",
                                          "--zero_grad"};
    plim_settings *s = asked_settings(NULL);
    for (size_t i = 0; i < PLIM_COUNT(spelled); i++) {
        asked_set(s, spelled[i], "zeros");
        for (size_t k = 0; k < PLIM_COUNT(spelled); k++)
            CHECK_STR(spelled[k], plim_settings_get(s, spelled[k]), "zeros");
        asked_set(s, spelled[i], NULL);
    }
    assert_null(plim_settings_get(s, "no_such_setting"));
    assert_null(plim_settings_get(s, "batch"));
    assert_null(plim_settings_get(NULL, "batch"));
    assert_null(plim_settings_get(s, NULL));
    plim_settings_free(s);
}

static void test_lists(void **state)
{
    (void)state;
    plim_settings *s = asked_settings(NULL);
    plim_err err = PLIM_ERR_INIT;
    assert_int_equal(plim_settings_add(s, "--dim", "s0=1", &err), PLIM_OK);
    CHECK_STR("the first", plim_settings_get(s, "dim"), "s0=1");
    assert_int_equal(plim_settings_add(s, "dim", "s1=2", &err), PLIM_OK);
    assert_int_equal(plim_settings_add(s, "dim", "s2=3;s3=4", &err), PLIM_OK);
    CHECK_STR("all", plim_settings_get(s, "dim"), "s0=1;s1=2;s2=3;s3=4");
    assert_int_equal(plim_settings_add(s, "dim", "", &err), PLIM_EUSAGE);
    CHECK_STR("an empty item", err.msg, "'dim': the value is empty");
    CHECK_STR("nothing is added", plim_settings_get(s, "dim"), "s0=1;s1=2;s2=3;s3=4");
    asked_set(s, "dim", "only=1");
    CHECK_STR("set anew", plim_settings_get(s, "dim"), "only=1");
    assert_int_equal(plim_settings_add(s, "dim", NULL, NULL), PLIM_OK);
    assert_null(plim_settings_get(s, "dim"));
    assert_int_equal(plim_settings_add(s, "batch", "3", NULL), PLIM_OK);
    assert_int_equal(plim_settings_add(s, "batch", "4", NULL), PLIM_OK);
    CHECK_STR("no list: set", plim_settings_get(s, "batch"), "4");
    plim_settings_free(s);
}

/* ---- the rows ---------------------------------------------------------------------- */

static bool is_word_of(const char *list, plim_str word)
{
    for (size_t n; *list; list += n + strspn(list + n, " ")) {
        n = strcspn(list, " ");
        if (plim_str_eq(word, (plim_str){list, n}))
            return true;
    }
    return false;
}

static uint32_t count_of(const char *text, char c)
{
    uint32_t n = 1;
    for (; *text; text++)
        n += *text == c;
    return n;
}

/* Whether a list of what plimsoll knows describes the word. */
static bool is_listed(const char *list, const char *word)
{
    plim_entry e = PLIM_ENTRY_INIT;
    plim_registry r = !strcmp(list, "loops") ? PLIM_REG_LOOPS : PLIM_REG_LOSSES;
    for (uint32_t i = 0; plim_registry_at(r, i, &e); i++)
        if (!strcmp(e.name, word))
            return true;
    return false;
}

/* Each word is documented: by its name, by a list, or (where words are options) by a part of its own. */
static void check_words(const plim_setting_info *row)
{
    char word[32];
    if (!row->arg) {
        assert_int_equal(count_of(row->doc, '|'), count_of(row->words, ' '));
        return;
    }
    for (const char *w = row->words; *w; w += strlen(word), w += *w == ' ') {
        snprintf(word, sizeof word, "%.*s", (int)strcspn(w, " "), w);
        if (row->list ? !is_listed(row->list, word) : !strstr(row->doc, word))
            fail_msg("%s: '%s' is not in '%s'", row->key, word, row->doc);
    }
}

static void test_rows(void **state)
{
    (void)state;
    static const char commands[] =
        "estimate layers compare fit tape info replay diff run gpus serve";
    plim_setting_info row = PLIM_SETTING_INFO_INIT;
    plim_settings *s = asked_settings(NULL);
    uint32_t i = 0;
    for (; plim_setting_at(i, &row); i++) {
        const plim_setting_row *r = &plim_setting_rows[i];
        CHECK(row.key, row.size == sizeof row && *row.key && *row.doc && *row.group);
        CHECK(row.key, *row.commands && !strchr(row.key, '-'));
        CHECK(row.key, (row.kind == PLIM_SETTING_WORD) == (row.words != NULL));
        CHECK(row.key, row.kind != PLIM_SETTING_FLAG || !row.arg);
        CHECK(row.key,
              row.kind == PLIM_SETTING_FLAG || row.kind == PLIM_SETTING_WORD || row.arg);
        CHECK(row.key,
              row.kind != PLIM_SETTING_INT || (row.least >= 1 && row.most > row.least));
        CHECK(row.key, row.kind != PLIM_SETTING_SIZE || row.least > 0);
        if (row.words)
            check_words(&row);
        for (const char *c = row.commands; *c; c += strcspn(c, " "), c += *c == ' ') {
            plim_str command = {c, strcspn(c, " ")};
            CHECK(row.key, is_word_of(commands, command));
        }
        const char *const values[] = {row.preset, r->hidden};
        for (size_t k = 0; k < PLIM_COUNT(values); k++) {
            if (!values[k])
                continue;
            asked_set(s, row.key, values[k]);
            CHECK_STR(row.key, plim_settings_get(s, row.key), values[k]);
        }
        CHECK(row.key, !r->hidden || r->header);
        for (uint32_t k = 0; k < i; k++)
            CHECK(row.key, strcmp(plim_setting_rows[k].key, row.key) != 0);
    }
    assert_int_equal(i, PLIM_SETTING_COUNT);
    assert_false(plim_setting_at(i, &row));
    assert_false(plim_setting_at(UINT32_MAX, &row));
    plim_settings_free(s);
}

static void check_number(plim_setting_id id, int n, const char *word)
{
    plim_str got = plim_setting_word(id, n);
    if (!plim_str_is(got, word))
        fail_msg("%s: word %d is '" PLIM_STR_FMT "', not '%s'", plim_setting_rows[id].key, n,
                 PLIM_STR_ARG(got), word);
}

/* What C takes as a number is that word. */
static void test_enumerators(void **state)
{
    (void)state;
    check_number(PLIM_SET_loss, PLIM_LOSS_CROSS_ENTROPY, "cross_entropy");
    check_number(PLIM_SET_loss, PLIM_LOSS_MSE, "mse");
    check_number(PLIM_SET_loss, PLIM_LOSS_BCE, "bce");
    check_number(PLIM_SET_loss, PLIM_LOSS_SUM, "sum");
    check_number(PLIM_SET_loss, PLIM_LOSS_MODEL, "model");
    check_number(PLIM_SET_loss, PLIM_LOSS_MODEL + PLIM_FUSED_TORCH, "linear_cross_entropy");
    check_number(PLIM_SET_loss, PLIM_LOSS_MODEL + PLIM_FUSED_LIGER, "liger");
    assert_null(plim_setting_word(PLIM_SET_loss, PLIM_LOSS_MODEL + PLIM_FUSED_LIGER + 1).p);
    assert_null(plim_setting_word(PLIM_SET_loss, PLIM_LOSS_DEFAULT).p);
    check_number(PLIM_SET_mode, 1, "train");
    check_number(PLIM_SET_mode, 2, "infer");
    check_number(PLIM_SET_zero_grad, 1, "none");
    check_number(PLIM_SET_zero_grad, 2, "zeros");
    check_number(PLIM_SET_workspace, 1, "auto");
    check_number(PLIM_SET_workspace, 2, "off");
    check_number(PLIM_SET_workspace, 3, "low");
    check_number(PLIM_SET_workspace, 4, "high");
    assert_null(plim_setting_word(PLIM_SET_workspace, 5).p);
    assert_null(plim_setting_word(PLIM_SET_batch, 1).p);
}

/* What C looks up by name exists. */
static void test_names(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_dtype t;
    const plim_loop *loop;
    plim_str w;
    for (int n = 1; (w = plim_setting_word(PLIM_SET_dtype, n)).p; n++)
        assert_true(plim_dtype_find(w, &t));
    for (int n = 2; (w = plim_setting_word(PLIM_SET_autocast, n)).p; n++)
        assert_true(plim_dtype_find(w, &t));
    check_number(PLIM_SET_autocast, 1, "none");
    for (int n = 1; (w = plim_setting_word(PLIM_SET_loop, n)).p; n++)
        assert_int_equal(plim_loop_find(plim_arena_str(&a, w).p, &loop, NULL), PLIM_OK);
    plim_arena_free(&a);
}

/* ---- copies and JSON --------------------------------------------------------------- */

/* A value that the setting can have, in `room`; NULL: not set. */
static const char *random_value(plim_setting_id id, char *room, size_t n)
{
    const plim_setting_row *row = &plim_setting_rows[id];
    plim_str word = plim_setting_word(id, 1 + (int)dice(6));
    static const char *const texts[] = {"x",
                                        "a,b=c",
                                        "with \"quotes\" and \\",
                                        "tab\tand\nline",
                                        "\x1b[31m",
                                        "\xe5\xb1\x82",
                                        "layer*.*",
                                        " spaced ",
                                        "null",
                                        "[1]",
                                        "{}",
                                        "0"};
    uint64_t any = (uint64_t)dice(UINT32_MAX) << dice(20);
    if (dice(4) == 0)
        return NULL;
    switch (row->kind) {
    case PLIM_SETTING_FLAG: return dice(2) ? "true" : "false";
    case PLIM_SETTING_INT:
        any = (uint64_t)row->least + any % (uint64_t)(row->most - row->least + 1);
        break;
    case PLIM_SETTING_SIZE: any += (uint64_t)row->least; break;
    case PLIM_SETTING_FRACTION:
        snprintf(room, n, "0.%u%u", dice(1000) + 1, dice(1000000000));
        return room;
    case PLIM_SETTING_WORD:
        snprintf(room, n, PLIM_STR_FMT, PLIM_STR_ARG(word));
        return word.p ? room : NULL;
    case PLIM_SETTING_TEXT: return PICK(texts);
    case PLIM_SETTING_LIST: snprintf(room, n, "%s;%s", PICK(texts), PICK(texts)); return room;
    }
    snprintf(room, n, "%llu", (unsigned long long)any);
    return room;
}

static plim_settings *random_settings(void)
{
    plim_settings *s = asked_settings(NULL);
    char room[128];
    for (int i = 0; i < PLIM_SETTING_COUNT; i++)
        asked_set(s, plim_setting_rows[i].key,
                  random_value((plim_setting_id)i, room, sizeof room));
    return s;
}

static plim_str json_of(plim_arena *a, const plim_settings *s)
{
    plim_buf b;
    plim_buf_init(&b, a);
    assert_int_equal(plim_settings_json(s, put_buf, &b, NULL), PLIM_OK);
    return plim_buf_str(&b);
}

static void check_same(const plim_settings *a, const plim_settings *b)
{
    plim_arena own = PLIM_ARENA_INIT;
    plim_setting_info row = PLIM_SETTING_INFO_INIT;
    for (uint32_t i = 0; plim_setting_at(i, &row); i++) {
        const char *x = plim_settings_get(a, row.key), *y = plim_settings_get(b, row.key);
        CHECK(row.key, !x == !y);
        if (x)
            CHECK_STR(row.key, y, x);
    }
    /* also the fields that JSON is written from */
    assert_true(plim_str_eq(json_of(&own, a), json_of(&own, b)));
    plim_arena_free(&own);
}

static void test_json(void **state)
{
    (void)state;
    for (int round = 0; round < 300; round++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_settings *s = random_settings(), *again = random_settings(), *copy = NULL;
        plim_str text = json_of(&a, s);
        if (plim_settings_set_json(again, text.p, text.n, &err))
            fail_msg("%s: " PLIM_STR_FMT, err.msg, PLIM_STR_ARG(text));
        check_same(s, again);
        assert_int_equal(plim_settings_copy(s, &copy, &err), PLIM_OK);
        plim_settings_free(s);
        check_same(again, copy);
        plim_settings_free(again);
        plim_settings_free(copy);
        plim_arena_free(&a);
    }
}

static void test_json_forms(void **state)
{
    (void)state;
    static const struct {
        const char *json, *key, *kept; /* kept NULL: not set */
    } good[] = {
        {"{}", "batch", NULL},
        {"{\"batch\":32}", "batch", "32"},
        {"{\"batch\":\"32\"}", "batch", "32"},
        {" {\n\"batch\" : 32 } \n", "batch", "32"},
        {"{\"batch\":3,\"batch\":null}", "batch", NULL},
        {"{\"clip\":true}", "clip", "true"},
        {"{\"--zero-grad\":\"zeros\"}", "zero_grad", "zeros"},
        {"{\"vram\":\"24GiB\"}", "vram", "25769803776"},
        {"{\"fraction\":5e-1}", "fraction", "0.5"},
        {"{\"\\u0062atch\":1}", "batch", "1"},
        {"{\"optimizer\":\"\\u0061dam\"}", "optimizer", "adam"},
        {"{\"schema\":\"x/1\",\"model\":{\"batch\":9},\"settings\":{\"batch\":4},\"z\":[1]}",
         "batch", "4"},
    };
    for (size_t i = 0; i < PLIM_COUNT(good); i++) {
        plim_settings *s = asked_settings(NULL);
        plim_err err = PLIM_ERR_INIT;
        if (plim_settings_set_json(s, good[i].json, strlen(good[i].json), &err))
            fail_msg("%s: %s", good[i].json, err.msg);
        const char *kept = plim_settings_get(s, good[i].key);
        CHECK(good[i].json, !kept == !good[i].kept);
        if (kept)
            CHECK_STR(good[i].json, kept, good[i].kept);
        plim_settings_free(s);
    }
    static const struct {
        const char *json;
        plim_status st;
        const char *says;
    } bad[] = {
        {"", PLIM_EFORMAT, ""},
        {"[]", PLIM_EFORMAT, ""},
        {"3", PLIM_EFORMAT, ""},
        {"{\"batch\":1", PLIM_EFORMAT, ""},
        {"{\"batch\":1} x", PLIM_EFORMAT, ""},
        {"{\"batch\":1}{}", PLIM_EFORMAT, ""},
        {"{\"settings\":{\"batch\":1}", PLIM_EFORMAT, ""},
        {"{\"settings\":{\"batch\":1},\"z\":}", PLIM_EFORMAT, ""},
        {"{\"batch\":0x10}", PLIM_EFORMAT, ""},
        {"{\"batch\":tru}", PLIM_EFORMAT, ""},
        {"{\"batch\":[1]}", PLIM_EUSAGE, "setting 'batch' is not a single value"},
        {"{\"batch\":{}}", PLIM_EUSAGE, "setting 'batch' is not a single value"},
        {"{\"batch\":0}", PLIM_EUSAGE, "'batch': 0 is not in 1..4294967296"},
        {"{\"batch\":true}", PLIM_EUSAGE, "'batch': expected an integer, got 'true'"},
        {"{\"torch\":\"2.1\\u0000\"}", PLIM_EUSAGE, "setting 'torch' has a NUL character"},
        {"{\"bacht\":1}", PLIM_EUSAGE, "unknown setting 'bacht'; did you mean 'batch'?"},
        {"{\"bacht\":null}", PLIM_EUSAGE, "unknown setting 'bacht'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(bad); i++) {
        plim_settings *s = asked_settings("batch=7");
        plim_err err = PLIM_ERR_INIT;
        plim_status st = plim_settings_set_json(s, bad[i].json, strlen(bad[i].json), &err);
        if (st != bad[i].st || err.code != st || !*err.msg || !strstr(err.msg, bad[i].says))
            fail_msg("%s: %d \"%s\"", bad[i].json, st, err.msg);
        CHECK_STR(bad[i].json, plim_settings_get(s, "batch"), "7");
        plim_settings_free(s);
    }
}

static void test_load(void **state)
{
    (void)state;
    char path[] = "/tmp/plimsoll-settings-XXXXXX";
    plim_settings *s = asked_settings(NULL);
    plim_err err = PLIM_ERR_INIT;
    int fd = mkstemp(path);
    assert_true(fd >= 0 && write(fd, "{\"batch\":5}", 11) == 11);
    assert_int_equal(plim_settings_load(s, path, &err), PLIM_OK);
    CHECK_STR("batch", plim_settings_get(s, "batch"), "5");
    assert_int_equal(ftruncate(fd, 5), 0);
    assert_int_equal(plim_settings_load(s, path, &err), PLIM_EFORMAT);
    CHECK("it names the file", strstr(err.msg, path));
    assert_int_equal(ftruncate(fd, 0), 0);
    assert_int_equal(plim_settings_load(s, path, NULL), PLIM_EFORMAT);
    close(fd);
    unlink(path);
    assert_int_equal(plim_settings_load(s, path, NULL), PLIM_EIO);
    plim_settings_free(s);
}

/* Presets apply to what is not given; inference drops training settings. */
static void test_presets(void **state)
{
    (void)state;
    plim_settings *s = asked_settings("optimizer=adam");
    assert_int_equal(plim_settings_preset(s, NULL), PLIM_OK);
    for (int i = 0; i < PLIM_SETTING_COUNT; i++) {
        const plim_setting_row *r = &plim_setting_rows[i];
        const char *got = plim_settings_get(s, r->key);
        const char *want = i == PLIM_SET_optimizer ? "adam" : r->preset;
        CHECK(r->key, !got == !want);
        if (got)
            CHECK_STR(r->key, got, want);
    }
    assert_int_equal(plim_settings_drop_training(s, NULL), PLIM_OK);
    for (int i = 0; i < PLIM_SETTING_COUNT; i++)
        if (plim_setting_rows[i].training)
            assert_null(plim_settings_get(s, plim_setting_rows[i].key));
    CHECK_STR("not of training", plim_settings_get(s, "workspace"), "auto");
    plim_settings_free(s);
}

/* ---- an answer, asked for again ------------------------------------------------------ */

/* The dtype is named if all values have it, and the setting has a word for it. */
static void test_other_dtype(void **state)
{
    (void)state;
    static const struct {
        plim_dtype first, second;
        const char *kept;
    } rows[] = {{PLIM_F32, PLIM_F32, "fp32"},     {PLIM_BF16, PLIM_BF16, "bf16"},
                {PLIM_BF16, PLIM_F32, NULL},      {PLIM_C64, PLIM_F64, "fp64"},
                {PLIM_F8E5M2, PLIM_F8E5M2, NULL}, {PLIM_I8, PLIM_I8, "fp32"}};
    plim_model *m = asked_model("lenet5");
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_value v = {.name = PLIM_STR("w"), .kind = PLIM_VALUE_PARAMETER};
        plim_graph g;
        plim_job job;
        v.meta = plim_meta_make(rows[i].first, 1, (const int64_t[]){4});
        v.node = v.tied_to = PLIM_NONE;
        assert_int_equal(plim_graph_init(&g, &a, NULL), PLIM_OK);
        plim_graph_add_value(&g, &v);
        v.meta = plim_meta_make(rows[i].second, 1, (const int64_t[]){4});
        plim_graph_add_value(&g, &v);
        assert_int_equal(plim_job_open(&job, &a, m, NULL, NULL), PLIM_OK);
        assert_int_equal(plim_job_resolve(&job, &g, NULL, NULL), PLIM_OK);
        const char *kept = plim_settings_get(job.settings, "dtype");
        CHECK(plim_dtype_name(rows[i].first), !kept == !rows[i].kept);
        if (kept)
            CHECK_STR("dtype", kept, rows[i].kept);
        plim_arena_free(&a);
    }
    plim_model_free(m);
}

typedef struct draw {
    const char *key, *values[8]; /* NULL: not set, or the end */
} draw;

static const draw draws[] = {
    {"mode", {NULL, "infer", "train"}},
    {"batch", {"1", "4", "7", "16", NULL}},
    {"seq", {NULL, NULL, "16", "24"}},
    {"dtype", {NULL, "bf16", "fp16", "fp64"}},
    {"autocast", {NULL, NULL, "bf16", "fp16", "none"}},
    {"optimizer",
     {NULL, "sgd,momentum=0.9", "adam", "adamw,impl=fused", "adam,lr=0.001", "lbfgs",
      "rmsprop"}},
    {"checkpoint", {NULL, NULL, "blocks", "segments=2", "layer1.0,reentrant"}},
    {"loss", {NULL, NULL, "sum", "mse", "model"}},
    {"loop", {NULL, "tight", "trainer"}},
    {"keep", {NULL, NULL, "none", "outputs,loss", "inputs"}},
    {"accumulate", {NULL, "2", "3"}},
    {"clip", {NULL, "true", "false"}},
    {"ema", {NULL, "averaged", "lerp", "averaged,use_buffers=1"}},
    {"zero_grad", {NULL, "zeros", "none"}},
    {"steps", {NULL, NULL, "3"}},
    {"empty_cache", {NULL, "true", "false"}},
    {"torch", {NULL, "1.13", "2.1", "2.6", "2.14"}},
    {"gpu", {NULL, "rtx4090", "t4", "a100", "h100"}},
    {"vram", {NULL, NULL, NULL, "24GiB", "300000000"}},
    {"workspace", {NULL, "off", "low", "high", "auto"}},
    {"alloc_conf", {NULL, NULL, "max_split_size_mb:128", "expandable_segments:True"}},
};

static const struct {
    const char *name, *more; /* more: further settings, which are not random */
} fed[] = {
    {"resnet18", NULL},
    {"resnet18", "input=3,3,64,64"},
    {"mlp:8,16,4:relu", NULL},
    {"squeezenet1_1", NULL},
    {DATA "resnet18.pt2", NULL},
    {DATA "seed_mlp.pt2", NULL},
    {DATA "small_static.pt2", ""}, /* of one batch size */
    {DATA "small_tied.pt2", NULL},
    {DATA "version_attend.pt2", ""},
    {DATA "onnx/cnn.script.onnx", NULL},
    {DATA "onnx/bert.script.onnx", NULL},
    {DATA "onnx/small_dims.onnx", "dim=s0=3;2*s0=6;n=2"},
    /* bf16 with buffers in fp32: a dtype setting would change the model */
    {DATA "llama-tiny", NULL},
    {DATA "llama-tiny", "dtype=bf16"},
    {DATA "llama-tiny", "dtype=fp32 input=2,12"},
};

static plim_settings *draw_settings(const char *more)
{
    plim_settings *s = asked_settings(more);
    for (size_t i = 0; i < PLIM_COUNT(draws); i++) {
        uint32_t n = PLIM_COUNT(draws[i].values);
        while (!draws[i].values[n - 1])
            n--;
        bool size = !strcmp(draws[i].key, "batch") || !strcmp(draws[i].key, "seq");
        bool sized = more && (!*more || strchr(more, ',') || strstr(more, "dim="));
        if (!plim_settings_get(s, draws[i].key) && !(size && sized))
            asked_set(s, draws[i].key, draws[i].values[dice(n)]);
    }
    return s;
}

static plim_str estimate_json(plim_arena *a, const plim_model *m, const plim_settings *s,
                              plim_err *err)
{
    plim_estimate *e = NULL;
    plim_buf b;
    plim_buf_init(&b, a);
    if (plim_estimate_run(m, s, &e, err))
        return (plim_str){NULL, 0};
    assert_int_equal(plim_estimate_print(e, PLIM_JSON, NULL, put_buf, &b, err), PLIM_OK);
    plim_estimate_free(e);
    return plim_buf_str(&b);
}

static bool feed_back(const plim_model *m, const plim_settings *s)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_settings *again = asked_settings(NULL);
    plim_str first = estimate_json(&a, m, s, &err);
    if (first.p) {
        plim_str asked = json_of(&a, s), second = {NULL, 0};
        if (!plim_settings_set_json(again, first.p, first.n, &err))
            second = estimate_json(&a, m, again, &err);
        if (!second.p)
            fail_msg("%s: %s: %s", plim_model_name(m), err.msg, asked.p);
        size_t same = 0;
        while (same < first.n && same < second.n && first.p[same] == second.p[same])
            same++;
        size_t from = same - PLIM_MIN(same, 60);
        if (same < first.n || same < second.n)
            fail_msg("%s: \"%.120s\" became \"%.120s\": %s", plim_model_name(m),
                     first.p + from, second.p + from, asked.p);
    }
    plim_settings_free(again);
    plim_arena_free(&a);
    return first.p;
}

static void test_fed_back(void **state)
{
    (void)state;
    for (size_t i = 0; i < PLIM_COUNT(fed); i++) {
        plim_model *m = asked_model(fed[i].name);
        int answered = 0;
        for (int round = 0; round < 24; round++) {
            plim_settings *s = draw_settings(fed[i].more);
            answered += feed_back(m, s);
            plim_settings_free(s);
        }
        if (answered < 2)
            fail_msg("%s: %d answers", fed[i].name, answered);
        plim_model_free(m);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_accepted),    cmocka_unit_test(test_refused),
        cmocka_unit_test(test_long_values), cmocka_unit_test(test_keys),
        cmocka_unit_test(test_lists),       cmocka_unit_test(test_rows),
        cmocka_unit_test(test_enumerators), cmocka_unit_test(test_names),
        cmocka_unit_test(test_json),        cmocka_unit_test(test_json_forms),
        cmocka_unit_test(test_load),        cmocka_unit_test(test_presets),
        cmocka_unit_test(test_other_dtype), cmocka_unit_test(test_fed_back),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
