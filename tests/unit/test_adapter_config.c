/* test_adapter_config.c -- values of a wrong type in an adapter_config.json: for each method and each key of
 * its own, an error that names the key. */
#include <stdio.h>

#include "transform/adapter.h"
#include "unit.h"

static const char *const methods[] = {"lora", "ia3",  "loha", "lokr",          "vera",
                                      "miss", "hira", "road", "prompt_tuning", "p_tuning"};

static void refuse(const char *method, const char *key, const char *value)
{
    char json[256];
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_str text;
    snprintf(json, sizeof json, "{\"peft_type\":\"%s\",\"%s\":%s}", method, key, value);
    plim_status st = plim_adapter_convert(&a, plim_str_of(json), &text, &err);
    if (!st || st != err.code || !strstr(err.msg, key))
        fail_msg("%s: %d \"%s\"", json, (int)st, err.msg);
    CHECK(json, st == PLIM_EFORMAT || st == PLIM_EUNSUPPORTED);
    plim_arena_free(&a);
}

static void accept(const char *method, const char *key, const char *value)
{
    char json[256];
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_str text;
    snprintf(json, sizeof json, "{\"peft_type\":\"%s\",\"%s\":%s}", method, key, value);
    if (plim_adapter_convert(&a, plim_str_of(json), &text, &err))
        fail_msg("%s: \"%s\"", json, err.msg);
    plim_arena_free(&a);
}

static void try_item(const char *method, const plim_adapter_item *item)
{
    static const char *const never[] = {"\"x\"", "\"4\"", "[]", "[4]",
                                        "{}",    "1e30",  "-7", "99999999999999999999"};
    const char *key = item->config ? item->config : item->key;
    for (size_t i = 0; i < PLIM_COUNT(never); i++)
        refuse(method, key, never[i]);
    if (!item->words && item->number != PLIM_ADAPTER_FLAG)
        refuse(method, key, "true");
    if (item->number == PLIM_ADAPTER_FLAG) {
        refuse(method, key, "1");
        accept(method, key, "null");
    }
    if (item->number == PLIM_ADAPTER_WHOLE)
        refuse(method, key, "2.5");
    if (!item->words && item->preset != 0)
        refuse(method, key, "null");
}

static void test_items(void **state)
{
    (void)state;
    static const char *const lists[] = {"5",    "true",       "{}",  "[5]",
                                        "[[]]", "\"q_proj\"", "1e30"};
    for (size_t i = 0; i < PLIM_COUNT(methods); i++) {
        const plim_adapter_method *m = plim_adapter_method_of(plim_str_of(methods[i]), NULL);
        assert_non_null(m);
        for (size_t k = 0; k < PLIM_ADAPTER_ITEMS && m->item[k].key; k++)
            try_item(methods[i], &m->item[k]);
        for (size_t k = 0; k < PLIM_COUNT(lists); k++) {
            refuse(methods[i], "target_modules", lists[k]);
            refuse(methods[i], "modules_to_save", lists[k]);
        }
        refuse(methods[i], "target_modules", "[]");
        accept(methods[i], "target_modules", "null");
        accept(methods[i], "modules_to_save", "[]");
        if (m->bias) {
            refuse(methods[i], "bias", "\"some\"");
            refuse(methods[i], "bias", "5");
            refuse(methods[i], "bias", "null");
        }
        refuse(methods[i], "layers_to_transform", "0"); /* the first one, not none */
        accept(methods[i], "layers_to_transform", "null");
    }
    static const char *const types[] = {"5", "null", "[]", "{}", "true"};
    for (size_t i = 0; i < PLIM_COUNT(types); i++) {
        char json[64];
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_str text;
        snprintf(json, sizeof json, "{\"peft_type\":%s}", types[i]);
        CHECK(json, plim_adapter_convert(&a, plim_str_of(json), &text, &err) == PLIM_EFORMAT);
        CHECK(json, strstr(err.msg, "'peft_type' is ") != NULL);
        plim_arena_free(&a);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_items)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
