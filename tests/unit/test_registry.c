/* test_registry.c -- every row of every list has a description and a source; ops bind their
 * arguments as in native_functions.yaml. */
#include <stdio.h>
#include <string.h>

#include "import/hf/hf_quant.h"
#include "machine/machine.h"
#include "op/op.h"
#include "optim/optim.h"
#include "serve/serve.h"
#include "settings/settings.h"
#include "step/loop.h"
#include "step/step.h"
#include "torch/torch.h"
#include "transform/adapter.h"
#include "transform/transform.h"
#include "unit.h"

static void test_rows(void **state)
{
    (void)state;
    for (int r = 0; r < PLIM_REG_COUNT; r++) {
        plim_entry a = PLIM_ENTRY_INIT, b = PLIM_ENTRY_INIT;
        uint32_t n = plim_registry_count((plim_registry)r);
        CHECK("a list is not empty", n > 0);
        for (uint32_t i = 0; i < n; i++) {
            assert_true(plim_registry_at((plim_registry)r, i, &a));
            CHECK(a.name, *a.name && *a.doc && *a.src);
            CHECK(a.name, a.group && a.also && a.gives && a.options && a.setting);
            for (uint32_t k = 0; k < i; k++) {
                plim_registry_at((plim_registry)r, k, &b);
                CHECK(a.name, strcmp(a.name, b.name) != 0);
            }
        }
        CHECK("past the end", !plim_registry_at((plim_registry)r, n, &a));
    }
}

/* What a list names can be asked for by that name. */
static bool can_ask(plim_registry r, const plim_entry *e, plim_err *err)
{
    plim_str text = plim_str_of(e->name);
    plim_strategy_spec strategy;
    const plim_loop *loop;
    plim_str config;
    switch ((int)r) {
    case PLIM_REG_ENGINES: return plim_engine_find(text, err) != NULL;
    case PLIM_REG_STRATEGIES: return !plim_strategy_parse(text, &strategy, err);
    case PLIM_REG_ADAPTERS: return plim_adapter_method_of(text, err) != NULL;
    case PLIM_REG_LOOPS: return !plim_loop_find(e->name, &loop, err);
    case PLIM_REG_QUANTIZATIONS:
        return strstr(e->setting, "llama.cpp") || /* tests/cli/lists.txt asks for these */
               !plim_hf_quant_find(text, &config, err);
    }
    return true;
}

static void test_asked(void **state)
{
    (void)state;
    plim_entry e = PLIM_ENTRY_INIT;
    for (int r = 0; r < PLIM_REG_COUNT; r++)
        for (uint32_t i = 0; plim_registry_at((plim_registry)r, i, &e); i++) {
            plim_err err = PLIM_ERR_INIT;
            if (!can_ask((plim_registry)r, &e, &err))
                fail_msg("'%s' of list %d: %s", e.name, r, err.msg);
        }
}

/* The words of a setting are the rows of the list that describes them. */
static void test_words(void **state)
{
    (void)state;
    static const struct {
        plim_registry list;
        plim_setting_id setting;
    } rows[] = {{PLIM_REG_LOOPS, PLIM_SET_loop}, {PLIM_REG_LOSSES, PLIM_SET_loss}};
    plim_entry e = PLIM_ENTRY_INIT;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        uint32_t n = 0;
        for (; plim_registry_at(rows[i].list, n, &e); n++)
            CHECK(e.name, plim_str_is(plim_setting_word(rows[i].setting, (int)n + 1), e.name));
        assert_null(plim_setting_word(rows[i].setting, (int)n + 1).p);
    }
    CHECK("in the order of plim_loss_kind",
          plim_registry_at(PLIM_REG_LOSSES, PLIM_LOSS_BCE - 1, &e) && !strcmp(e.name, "bce"));
    CHECK("fused ones follow the model's own",
          plim_registry_at(PLIM_REG_LOSSES, PLIM_LOSS_MODEL - 1, &e) &&
              !strcmp(e.name, "model") &&
              plim_registry_at(PLIM_REG_LOSSES, PLIM_LOSS_MODEL - 1 + PLIM_FUSED_LIGER, &e) &&
              !strcmp(e.name, "liger"));
}

/* The usual engine is the first that serves what is given. */
static void test_engines(void **state)
{
    (void)state;
    CHECK("of a graph", !(plim_engine_usual(false)->flags & PLIM_ENGINE_FILES));
    CHECK("of a file", plim_engine_usual(true)->flags & PLIM_ENGINE_FILES);
    assert_null(plim_engine_at(plim_engine_count()));
    for (uint32_t i = 0; i < plim_engine_count(); i++) {
        const plim_engine *e = plim_engine_at(i);
        CHECK(e->name, e->code->answer && *e->options && *e->kv && *e->formats);
        CHECK(e->name, !(e->flags & PLIM_ENGINE_PARTS) || e->code->prepare);
    }
}

static void test_ema_rows(void **state)
{
    (void)state;
    assert_null(plim_ema_at(plim_ema_count()));
    for (uint32_t i = 0; i < plim_ema_count(); i++) {
        const plim_optim *o = plim_ema_at(i);
        plim_optim_spec s;
        CHECK(o->name, o->step && o->flags && *o->impls && *o->defaults && *o->doc && *o->src);
        CHECK(o->name, !plim_ema_parse(plim_str_of(o->name), &s, NULL) && s.optim == o);
    }
}

static void test_op_rows(void **state)
{
    (void)state;
    for (uint32_t i = 0; i < plim_op_count(); i++) {
        const plim_op *o = plim_op_at(i);
        bool inplace = false;
        CHECK(o->name, o->run && o->cost && *o->schema && *o->family);
        /* a row with an overload is found by that, any other by its base name */
        const char *dot = strchr(o->name, '.');
        plim_str base = {o->name, dot ? (size_t)(dot - o->name) : strlen(o->name)};
        plim_str overload = plim_str_of(dot ? dot + 1 : "default");
        CHECK(o->name, plim_op_find(base, overload, &inplace) == o);
        CHECK(o->name, inplace == (base.p[base.n - 1] == '_' && base.p[0] != '_'));
    }
    bool inplace = false;
    CHECK("relu_ is relu in place",
          plim_op_find(PLIM_STR("relu_"), PLIM_STR("default"), &inplace) ==
                  plim_op_find(PLIM_STR("relu"), PLIM_STR("default"), &inplace) ||
              inplace);
    CHECK("no rule", !plim_op_find(PLIM_STR("frobnicate"), PLIM_STR("default"), &inplace));
    static const char nul[48] = "conv2d", also[48] = "Tensor";
    CHECK("a name that goes on after a NUL",
          !plim_op_find((plim_str){nul, 40}, PLIM_STR("default"), &inplace) &&
              !plim_op_find(PLIM_STR("add"), (plim_str){also, 40}, &inplace));
}

static void test_binding(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    bool inplace;
    const plim_op *conv = plim_op_find(PLIM_STR("conv2d"), PLIM_STR("default"), &inplace);
    const plim_arg *args = NULL;
    uint32_t n = 0;
    plim_named_arg given[] = {
        {PLIM_STR("weight"), {.kind = PLIM_ARG_VALUE, .id = 4}},
        {PLIM_STR("input"), {.kind = PLIM_ARG_VALUE, .id = 3}},
        {PLIM_STR("groups"), {.kind = PLIM_ARG_INT, .i = 2}},
    };
    assert_int_equal(plim_op_bind(&a, conv, given, 3, &args, &n, NULL), PLIM_OK);
    assert_int_equal(n, 7);
    CHECK("in the schema's order", args[0].id == 3 && args[1].id == 4);
    CHECK("no bias", args[2].kind == PLIM_ARG_NONE);
    CHECK("stride by default", args[3].kind == PLIM_ARG_INT && args[3].i == 1);
    CHECK("groups as given", args[6].i == 2);
    plim_named_arg wrong = {PLIM_STR("colour"), {.kind = PLIM_ARG_INT, .i = 1}};
    plim_err err = PLIM_ERR_INIT;
    assert_int_equal(plim_op_bind(&a, conv, &wrong, 1, &args, &n, &err), PLIM_EUNSUPPORTED);
    CHECK("it names the argument", strstr(err.msg, "colour"));
    plim_arena_free(&a);
}

/* A version without a profile is the nearest one's, keeps its number, and is remarked. */
static void test_other_profiles(void)
{
    static const struct {
        const char *asked;
        int version;
        const char *row, *as; /* what the note says; "": there is none */
    } rows[] = {
        {"1.0", 100, "1.8", "1.0 has no profile"},
        {"1.7.1", 107, "1.8", "as that of 1.8, its tensors as those of 1.13, with the"},
        {"1.8", 108, "1.8", "its own allocator and CUDA context"},
        {"1.10.2+cu113", 110, "1.10", "are simulated as those of 1.13"},
        {"1.12", 112, "1.12", "are simulated as those of 1.13"},
        {"1.13", 113, "1.13", ""},
        {"2.15.0", 215, "2.15", ""},
        {"2.16.0a0+git", 216, "2.15", "those of 2.15."},
        {"99.1", 9901, "2.15", "99.1 has no profile"}};
    plim_arena a = PLIM_ARENA_INIT;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_torch *t = NULL;
        int asked = 0;
        assert_int_equal(plim_torch_find(rows[i].asked, &t, &asked, NULL), PLIM_OK);
        assert_string_equal(t->name, rows[i].row);
        assert_int_equal(asked, rows[i].version);
        const char *note = plim_torch_note(&a, rows[i].asked);
        CHECK(rows[i].asked, strstr(note, rows[i].as) && !*rows[i].as == !*note);
    }
    assert_string_equal(plim_torch_note(&a, NULL), "");
    plim_arena_free(&a);
}

static void test_profiles(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *row;
    } rows[] = {
        {"2.13", "2.13"}, {"2.13.1+cu128", "2.13"}, {"1.13.1", "1.13"}, {"2.0", "2.0"}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        const plim_torch *t = NULL;
        int asked = 0;
        assert_int_equal(plim_torch_find(rows[i].asked, &t, &asked, NULL), PLIM_OK);
        assert_string_equal(t->name, rows[i].row);
    }
    static const char *const bad[] = {"", "2", "two", "0.4", "1.14", "2.999", "2..3"};
    for (size_t i = 0; i < PLIM_COUNT(bad); i++) {
        const plim_torch *t = NULL;
        int asked = 0;
        assert_int_equal(plim_torch_find(bad[i], &t, &asked, NULL), PLIM_EUSAGE);
    }
    test_other_profiles();
    /* src: CUDA docs and PyTorch, 8519680 and 33554432 bytes */
    const plim_torch *t = plim_torch_newest();
    int asked = 0;
    assert_int_equal(plim_torch_cublas_bytes(t, 80), 8519680);
    assert_int_equal(plim_torch_cublas_bytes(t, 90), 33554432);
    assert_int_equal(plim_torch_cublas_bytes(t, 100), 33554432);
    plim_torch_find("2.8", &t, &asked, NULL);
    assert_int_equal(plim_torch_cublas_bytes(t, 100), 8519680);
    plim_torch_find("1.13", &t, &asked, NULL);
    assert_int_equal(plim_torch_cublas_bytes(t, 80), 0);
}

static void test_optimizer_options(void **state)
{
    (void)state;
    plim_optim_spec s;
    plim_err err = PLIM_ERR_INIT;
    assert_int_equal(plim_optim_parse(PLIM_STR("sgd,momentum=0.9,impl=forloop"), &s, &err), 0);
    CHECK("momentum", plim_optim_option(&s, "momentum") > 0.89);
    CHECK("impl", s.impl == PLIM_IMPL_FORLOOP);
    CHECK("by default", plim_optim_option(&s, "lr") > 0);
    static const char *const bad[] = {"",
                                      "sdg",

                                      "sgd,momentum",
                                      "sgd,momentum=",
                                      "sgd,momentum=x",
                                      "sgd,impl=quick",
                                      "adam,momentum=1"};
    for (size_t i = 0; i < PLIM_COUNT(bad); i++) {
        err = (plim_err)PLIM_ERR_INIT;
        if (plim_optim_parse(plim_str_of(bad[i]), &s, &err) != PLIM_EUSAGE || !err.msg[0])
            fail_msg("'%s' was taken", bad[i]);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_rows),
        cmocka_unit_test(test_ema_rows),
        cmocka_unit_test(test_asked),
        cmocka_unit_test(test_words),
        cmocka_unit_test(test_engines),
        cmocka_unit_test(test_op_rows),
        cmocka_unit_test(test_binding),
        cmocka_unit_test(test_profiles),
        cmocka_unit_test(test_optimizer_options),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
