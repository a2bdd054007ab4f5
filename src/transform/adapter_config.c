/* adapter_config.c -- the adapter_config.json that peft writes next to an adapter, as a text
 * of the setting "peft".  What has no effect on memory is left out, and what plimsoll does not
 * simulate is refused.
 *
 * src: peft 0.21 config.py, tuners/.../config.py */
#include <math.h>
#include <stdio.h>

#include "base/fmt.h"
#include "base/items.h"
#include "base/json.h"
#include "transform/adapter.h"

enum { NAME_BYTES = 64 };

/* Members that change neither what is trained nor what a step does with it. */
static const char without_effect[] =
    "task_type peft_type base_model_name_or_path auto_mapping revision peft_version inference_mode "
    "fan_in_fan_out megatron_config megatron_core projection_prng_key save_projection d_initial "
    "alpha_pattern qalora_group_size token_dim num_layers num_attention_heads "
    "num_transformer_submodules prompt_tuning_init prompt_tuning_init_text "
    "tokenizer_name_or_path tokenizer_kwargs encoder_num_layers encoder_dropout";
/* Of these, true and false, and a distribution. */
static const char initial[] = "init_weights init_lora_weights init_ia3_weights";

typedef struct config {
    plim_json j;
    plim_buf text;
    const plim_adapter_method *method;
} config;

static plim_str lower_case(plim_str s, char out[NAME_BYTES])
{
    size_t n = PLIM_MIN(s.n, (size_t)NAME_BYTES - 1);
    for (size_t i = 0; i < n; i++)
        out[i] = plim_lower(s.p[i]);
    return (plim_str){out, n};
}

/* Fails because the value at j, that of a key, is not what is expected: "a string". */
static void refuse_type(plim_json *j, plim_str key, const char *expected)
{
    enum { SHOWN = 40 };
    plim_json at = *j;
    plim_str raw = plim_json_raw(&at);
    if (at.bad)
        *j = at; /* no value at all */
    plim_json_fail(j, PLIM_EFORMAT, "'" PLIM_STR_FMT "' is %.*s, expected %s",
                   PLIM_STR_CUT(key), (int)PLIM_MIN(raw.n, (size_t)SHOWN), raw.n ? raw.p : "",
                   expected);
}

static bool is_string(plim_json *j, plim_str key)
{
    bool string = plim_json_peek(j) == PLIM_JSON_STRING;
    if (!string)
        refuse_type(j, key, "a string");
    return string;
}

/* "peft_type": "LOHA" */
static const plim_adapter_method *read_method(plim_json j, plim_err *err)
{
    char name[NAME_BYTES];
    plim_str key, type = PLIM_STR("");
    plim_json_object(&j);
    while (plim_json_member(&j, &key))
        if (plim_str_is(key, "peft_type"))
            type = is_string(&j, key) ? plim_json_str(&j) : type;
        else
            plim_json_skip(&j);
    if (!j.bad && !type.n)
        plim_json_fail(&j, PLIM_EFORMAT, "no 'peft_type': this is not an adapter_config.json");
    if (j.bad)
        return NULL;
    plim_err why = PLIM_ERR_INIT;
    const plim_adapter_method *m = plim_adapter_method_of(lower_case(type, name), &why);
    if (!m)
        plim_fail(err, why.code == PLIM_EUSAGE ? PLIM_EUNSUPPORTED : why.code, 0, "%s",
                  why.msg);
    return m;
}

static void refuse_value(config *c, plim_str key)
{
    plim_json_fail(&c->j, PLIM_EUNSUPPORTED,
                   "'" PLIM_STR_FMT "' of %s is not simulated with this value",
                   PLIM_STR_CUT(key), c->method->name);
}

/* A word that the setting can have among its items. */
static bool is_plain(plim_str s)
{
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] == ',' || s.p[i] == '=' || s.p[i] == '+' || s.p[i] == '\\' || s.p[i] <= ' ')
            return false;
    return s.n > 0;
}

static void add_item(config *c, const char *key, plim_str value)
{
    plim_buf_printf(&c->text, ",%s=" PLIM_STR_FMT, key, PLIM_STR_ARG(value));
}

/* ["q_proj", "v_proj"], or a word: a regular expression is not read. */
static void read_names(config *c, plim_str key, const char *item)
{
    static const char expected[] = "a list of names, or 'all-linear'";
    const plim_json_kind kind = plim_json_peek(&c->j);
    uint32_t count = 0;
    if (kind != PLIM_JSON_ARRAY && kind != PLIM_JSON_STRING) {
        refuse_type(&c->j, key, expected);
        return;
    }
    const plim_json whole = c->j;
    if (kind == PLIM_JSON_STRING) {
        plim_str word = plim_json_str(&c->j);
        if (!c->j.bad && !plim_str_is(word, "all-linear"))
            plim_json_fail(&c->j, PLIM_EUNSUPPORTED,
                           "'" PLIM_STR_FMT
                           "' must be a list of names or 'all-linear', not a regular "
                           "expression",
                           PLIM_STR_CUT(key));
        if (!c->j.bad)
            add_item(c, item, word);
        return;
    }
    plim_json_array(&c->j);
    while (plim_json_item(&c->j)) {
        if (plim_json_peek(&c->j) != PLIM_JSON_STRING) {
            c->j = whole;
            refuse_type(&c->j, key, expected);
            return;
        }
        plim_str name = plim_json_str(&c->j);
        if (!c->j.bad && !is_plain(name))
            refuse_value(c, key);
        if (count++)
            plim_buf_printf(&c->text, "+" PLIM_STR_FMT, PLIM_STR_ARG(name));
        else
            add_item(c, item, name);
    }
    if (!count && !strcmp(item, "targets")) { /* peft finds nothing to adapt */
        c->j = whole;
        refuse_type(&c->j, key, expected);
    }
}

static const plim_adapter_item *find_item(const plim_adapter_method *m, plim_str key)
{
    for (size_t i = 0; i < PLIM_ADAPTER_ITEMS && m->item[i].key; i++)
        if (plim_str_is(key, m->item[i].config ? m->item[i].config : m->item[i].key))
            return &m->item[i];
    return NULL;
}

/* A string without its quotes, or any other value as written. */
static plim_str read_value(plim_json *j)
{
    return plim_json_peek(j) == PLIM_JSON_STRING ? plim_json_str(j) : plim_json_raw(j);
}

/* The number of an item.  Null is 0 where that is the default. */
static void read_number(config *c, plim_str key, const plim_adapter_item *item)
{
    const plim_json_kind kind = plim_json_peek(&c->j);
    const plim_json at = c->j;
    char expected[96];
    if (kind == PLIM_JSON_NULL && item->preset == 0) {
        plim_json_null(&c->j);
        return;
    }
    double v = kind == PLIM_JSON_NUMBER ? plim_json_f64(&c->j) : NAN;
    if (plim_adapter_allows(item, v)) {
        plim_buf_printf(&c->text, ",%s=%s", item->key, plim_fmt_double(v).s);
        return;
    }
    c->j = at;
    snprintf(expected, sizeof expected, "a %snumber in %.9g..%.9g",
             item->number == PLIM_ADAPTER_WHOLE ? "whole " : "", item->least, item->most);
    refuse_type(&c->j, key, expected);
}

static void read_flag(config *c, plim_str key, const char *item)
{
    if (plim_json_peek(&c->j) != PLIM_JSON_BOOL)
        refuse_type(&c->j, key, "true or false");
    else
        add_item(c, item, plim_json_bool(&c->j) ? PLIM_STR("1") : PLIM_STR("0"));
}

/* "MiSS_only", one of these words in lower case. */
static void read_word(config *c, plim_str key, const char *item, const char *words)
{
    char lower[NAME_BYTES], expected[2 * NAME_BYTES];
    const plim_json at = c->j;
    plim_str value = is_string(&c->j, key) ? plim_json_str(&c->j) : PLIM_STR("");
    if (c->j.bad)
        return;
    value = lower_case(value, lower);
    if (plim_item_has(words, value)) {
        add_item(c, item, value);
        return;
    }
    c->j = at;
    snprintf(expected, sizeof expected, "one of: %s", words);
    refuse_type(&c->j, key, expected);
}

/* Which biases are trained. */
static void read_bias(config *c, plim_str key)
{
    char words[2 * NAME_BYTES];
    snprintf(words, sizeof words, "none all %s_only", c->method->name);
    read_word(c, key, "bias", words);
}

/* Of an item of the setting, which is `key` in the file. */
static void read_item(config *c, plim_str key, const plim_adapter_item *item)
{
    if (item->words)
        read_word(c, key, item->key, item->words);
    else if (item->number == PLIM_ADAPTER_FLAG)
        read_flag(c, key, item->key);
    else
        read_number(c, key, item);
}

/* Of a member that is no item: one that asks for nothing, or for what is simulated anyway. */
static void check_value(config *c, plim_str key)
{
    static const char nothing[] = "null false 0 0.0 {} [] none";
    plim_json_kind kind = plim_json_peek(&c->j);
    plim_str value = read_value(&c->j);
    if (plim_str_is(key, "layers_to_transform") && kind == PLIM_JSON_NUMBER)
        refuse_value(c, key); /* 0 is the first one */
    bool usual = kind == PLIM_JSON_BOOL || plim_str_is(value, "gaussian");
    if (c->j.bad || !value.n || plim_item_has(nothing, value) ||
        (usual && plim_item_has(initial, key)) ||
        (plim_str_is(key, "encoder_reparameterization_type") && plim_str_is(value, "MLP")))
        return;
    refuse_value(c, key);
}

static void read_member(config *c, plim_str key)
{
    const plim_adapter_method *m = c->method;
    const plim_adapter_item *item = find_item(m, key);
    plim_json_kind kind = plim_json_peek(&c->j);
    bool null = kind == PLIM_JSON_NULL &&
                (!item || item->words || item->number == PLIM_ADAPTER_FLAG) &&
                !(m->bias && plim_str_is(key, "bias"));
    const char *names = plim_str_is(key, "target_modules")                   ? "targets"
                        : plim_str_is(key, "modules_to_save")                ? "save"
                        : plim_str_is(key, "feedforward_modules") && m->text ? m->text
                                                                             : NULL;
    /* true is what a word has by default */
    if (null || plim_item_has(without_effect, key) ||
        (item && item->words && kind == PLIM_JSON_BOOL))
        plim_json_skip(&c->j);
    else if (names)
        read_names(c, key, names);
    else if (item)
        read_item(c, key, item);
    else if (m->bias && plim_str_is(key, "bias"))
        read_bias(c, key);
    else
        check_value(c, key);
}

plim_status plim_adapter_convert(plim_arena *a, plim_str bytes, plim_str *text, plim_err *err)
{
    plim_str key;
    plim_err local = PLIM_ERR_INIT; /* err may be NULL */
    config c = {.method = NULL};
    plim_buf_init(&c.text, a);
    plim_json_init(&c.j, bytes, &local);
    c.method = read_method(c.j, &local);
    plim_status st = local.code;
    if (c.method) {
        plim_buf_puts(&c.text, c.method->name);
        plim_json_object(&c.j);
        while (plim_json_member(&c.j, &key))
            read_member(&c, key);
        st = plim_json_end(&c.j);
    }
    if (!st && c.text.bad)
        st = plim_oom(&local);
    *text = plim_buf_str(&c.text);
    if (st && err)
        *err = local;
    return st;
}

plim_status plim_adapter_read_config(plim_arena *a, const char *path, plim_str *text,
                                     plim_err *err)
{
    plim_bytes file = {0};
    PLIM_TRY(plim_file_read(&file, path, err));
    plim_status st =
        plim_adapter_convert(a, (plim_str){(const char *)file.p, (size_t)file.n}, text, err);
    if (st)
        plim_err_prefix(err, "%s: ", path);
    plim_file_close(&file);
    return st;
}
