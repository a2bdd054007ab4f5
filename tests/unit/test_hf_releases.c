/* test_hf_releases.c -- releases of transformers as numbers, and what follows from them. */
#include "import/hf/hf_releases.h"

#include "unit.h"

static void test_parse(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        int release; /* -1: refused */
    } rows[] = {
        {"none is asked for", NULL, 0},
        {"the oldest", "4.38", 438},
        {"a patch of it", "4.38.2", 438},
        {"one digit", "5.0", 500},
        {"the newest", "5.24", 524},
        {"newer than all", "9.1", 901},
        {"older than all", "4.37", -1},
        {"no minor number", "5", -1},
        {"an empty minor number", "5.", -1},
        {"a word", "latest", -1},
        {"a release candidate", "5.1rc1", -1},
        {"too many digits", "4.460", -1},
        {"nothing", "", -1},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        int release = -1;
        const plim_status st = plim_hf_release_parse(rows[i].text, &release, &err);
        CHECK(rows[i].why, (st ? -1 : release) == rows[i].release);
    }
}

static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *why, *type;
        int release;
        plim_hf_change rule;
        bool follows;
    } rows[] = {
        {"GPT-2 had no sdpa", "gpt2", 441, PLIM_HF_SDPA, false},
        {"GPT-2 has it", "gpt2", 442, PLIM_HF_SDPA, true},
        {"Llama always had it", "llama", 438, PLIM_HF_SDPA, true},
        {"BERT has attention of its own in 4.51", "bert", 451, PLIM_HF_FUNCTIONS, false},
        {"Llama has not", "llama", 451, PLIM_HF_FUNCTIONS, true},
        {"Mistral computed its own loss in 4.46", "mistral", 446, PLIM_HF_LOSS, false},
        {"Llama did not", "llama", 446, PLIM_HF_LOSS, true},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        CHECK(rows[i].why,
              plim_hf_release_follows(rows[i].release, rows[i].rule,
                                      plim_str_of(rows[i].type)) == rows[i].follows);
}

static void test_compared(void **state)
{
    (void)state;
    CHECK("Qwen2 of 4.46 was", plim_hf_release_compared(446, PLIM_STR("qwen2")));
    CHECK("Qwen2 of 4.47 was not", !plim_hf_release_compared(447, PLIM_STR("qwen2")));
    CHECK("Whisper of 4.46 was not", !plim_hf_release_compared(446, PLIM_STR("whisper")));
    CHECK("all of 5.24 were", plim_hf_release_compared(524, PLIM_STR("whisper")));
    CHECK("T5 of older ones is known", plim_hf_release_known(PLIM_STR("t5")));
    CHECK("Whisper of older ones is not", !plim_hf_release_known(PLIM_STR("whisper")));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_parse),
        cmocka_unit_test(test_rules),
        cmocka_unit_test(test_compared),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
