/* test_alloc_conf.c -- PYTORCH_CUDA_ALLOC_CONF as each version reads it. */
#include "alloc/alloc_conf.h"

#include <stdio.h>

#include "unit.h"

static plim_status parse(plim_alloc_conf *c, int torch, const char *text, plim_err *err)
{
    *err = (plim_err)PLIM_ERR_INIT;
    return plim_alloc_conf_parse(c, plim_str_of(text), torch, err);
}

static plim_alloc_conf conf_of(int torch, const char *text)
{
    plim_alloc_conf c;
    plim_err err;
    plim_alloc_conf_init(&c);
    if (parse(&c, torch, text, &err))
        fail_msg("'%s': %s", text, err.msg);
    return c;
}

static void test_defaults(void **state)
{
    (void)state;
    plim_alloc_conf c = conf_of(0, "");
    assert_true(c.max_split == UINT64_MAX && c.large_segment == 20971520);
    assert_true(c.max_non_split_slack == 20971520 && !c.expandable && !c.divides);
    assert_true(c.gc <= 0 && c.fraction <= 0 && c.bypass == UINT64_MAX);
}

static void test_values(void **state)
{
    (void)state;
    plim_alloc_conf c =
        conf_of(0, " max_split_size_mb : 512 ,garbage_collection_threshold:0.8,"
                   "expandable_segments:True,max_non_split_rounding_mb:64,"
                   "per_process_memory_fraction:0.25,backend:native,"
                   "release_lock_on_cudamalloc:True,throw_on_cudamalloc_oom:False");
    assert_true(c.max_split == 536870912 && c.max_non_split_slack == 67108864);
    assert_true(c.expandable);
    assert_true(c.gc > 0.7999 && c.gc < 0.8001 && c.fraction > 0.2499 && c.fraction < 0.2501);
    assert_true(conf_of(211, "large_segment_size_mb:15").max_non_split_slack == 15728640);
    assert_true(conf_of(200, "roundup_bypass_threshold_mb:64").bypass == 67108864);
    assert_true(conf_of(0, "max_split_size_mb:17592186044415").max_split == UINT64_MAX);
    assert_true(conf_of(0, "max_split_size_mb:1099511627776").max_split == 1ull << 60);
}

/* Keys that are not named return to their defaults, except expandable_segments. */
static void test_again(void **state)
{
    (void)state;
    plim_alloc_conf c = conf_of(0, "expandable_segments:True,max_split_size_mb:64,"
                                   "roundup_power2_divisions:4");
    plim_err err;
    assert_int_equal(parse(&c, 0, "garbage_collection_threshold:0.5", &err), PLIM_OK);
    assert_true(c.expandable && c.max_split == UINT64_MAX && !c.divides);
    assert_int_equal(parse(&c, 0, "expandable_segments:False", &err), PLIM_OK);
    assert_true(!c.expandable);
    assert_int_equal(parse(&c, 0, "max_split_size_mb:64,oops:1", &err), PLIM_EUSAGE);
    assert_true(c.max_split == UINT64_MAX); /* unchanged by an error */
}

/* src: the lists of upstream's unit test, with the intervals that they name; "> overwrites" is
 * the result of 2.1 to 2.8 for the same text. */
static void test_divisions(void **state)
{
    (void)state;
    static const struct {
        const char *why, *text;
        int torch;
        uint32_t want[PLIM_DIVISIONS]; /* from 1 MiB to 32 GiB */
    } rows[] = {
        {"one for all", "8", 113, {8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8, 8}},
        {"the first key fills what is below",
         "[64:8,128:2,256:4,512:2,1024:4,>:1]",
         0,
         {8, 8, 8, 8, 8, 8, 8, 2, 4, 2, 4, 1, 1, 1, 1, 1}},
        {"gaps stay 0",
         "[128:8,256:16,512:1,2048:8,>:2]",
         0,
         {8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 8, 2, 2, 2, 2}},
        {"> overwrites the last interval before 2.9",
         "[128:8,256:16,512:1,2048:8,>:2]",
         204,
         {8, 8, 8, 8, 8, 8, 8, 8, 16, 1, 0, 2, 2, 2, 2, 2}},
        {"> alone", "[>:4]", 0, {4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4, 4}},
        {"keys beyond the table are the last",
         "[1:2,65536:4]",
         0,
         {2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 4}},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        char text[128];
        snprintf(text, sizeof text, "roundup_power2_divisions:%s,expandable_segments:True",
                 rows[i].text);
        if (rows[i].torch == 113)
            snprintf(text, sizeof text, "roundup_power2_divisions:%s", rows[i].text);
        plim_alloc_conf c = conf_of(rows[i].torch, text);
        for (uint32_t k = 0; k < PLIM_DIVISIONS; k++)
            CHECK(rows[i].why, c.division[k] == rows[i].want[k]);
    }
}

static void test_errors(void **state)
{
    (void)state;
    static const struct {
        int torch;
        const char *text;
        plim_status code;
        const char *msg;
    } rows[] = {
        {0, "foo:1", PLIM_EUSAGE, "unknown allocator setting 'foo'"},
        {0, "max_split_size_mb", PLIM_EUSAGE,
         "allocator settings 'max_split_size_mb' are not key:value,key:value"},
        {0, "max_split_size_mb:,", PLIM_EUSAGE,
         "allocator settings 'max_split_size_mb:,' are not key:value,key:value"},
        {0, "max_split_size_mb:big", PLIM_EUSAGE,
         "allocator setting 'max_split_size_mb' is 'big', not a number of MiB"},
        {208, "max_split_size_mb:20", PLIM_EUSAGE,
         "allocator setting 'max_split_size_mb' is 20, below the minimum of 21"},
        {209, "max_split_size_mb:19", PLIM_EUSAGE,
         "allocator setting 'max_split_size_mb' is 19, below the minimum of 20"},
        {0, "large_segment_size_mb:32,max_split_size_mb:31", PLIM_EUSAGE,
         "allocator setting 'max_split_size_mb' is 31, below the minimum of 32"},
        {0, "large_segment_size_mb:10", PLIM_EUSAGE,
         "allocator setting 'large_segment_size_mb' is 10, below the minimum of 11"},
        {0, "large_segment_size_mb:17592186044415", PLIM_EUSAGE,
         "allocator setting 'large_segment_size_mb' is 17592186044415, over the limit of "
         "1099511627776"},
        {0, "max_non_split_rounding_mb:19", PLIM_EUSAGE,
         "allocator setting 'max_non_split_rounding_mb' is 19, below the minimum of 20"},
        {205, "max_non_split_rounding_mb:32", PLIM_EUSAGE,
         "allocator setting 'max_non_split_rounding_mb' came with PyTorch 2.6; this is 2.5"},
        {200, "expandable_segments:True", PLIM_EUSAGE,
         "allocator setting 'expandable_segments' came with PyTorch 2.1; this is 2.0"},
        {201, "roundup_bypass_threshold_mb:64", PLIM_EUSAGE,
         "allocator setting 'roundup_bypass_threshold_mb' was removed after PyTorch 2.0; this is 2.1"},
        {109, "max_split_size_mb:64", PLIM_EUSAGE,
         "allocator setting 'max_split_size_mb' came with PyTorch 1.10; this is 1.9"},
        {111, "garbage_collection_threshold:0.5", PLIM_EUSAGE,
         "allocator setting 'garbage_collection_threshold' came with PyTorch 1.12; this is 1.11"},
        {111, "roundup_power2_divisions:8", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' came with PyTorch 1.12; this is 1.11"},
        {0, "expandable_segments:true", PLIM_EUSAGE,
         "allocator setting 'expandable_segments' is 'true', not True or False"},
        {0, "garbage_collection_threshold:1.0", PLIM_EUSAGE,
         "allocator setting 'garbage_collection_threshold' is '1.0', not between 0 and 1"},
        {0, "garbage_collection_threshold:0.5.1", PLIM_EUSAGE,
         "allocator setting 'garbage_collection_threshold' is '0.5.1', not between 0 and 1"},
        {0, "per_process_memory_fraction:2", PLIM_EUSAGE,
         "allocator setting 'per_process_memory_fraction' is '2', not above 0 and at most 1"},
        {0, "roundup_power2_divisions:3", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' is '3', not a power of two"},
        {200, "roundup_power2_divisions:[64:8]", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' is '[64:8]', not a power of two"},
        {0, "roundup_power2_divisions:[64:8", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' is '[64:8', not a list that ends in "
         "']'"},
        {0, "roundup_power2_divisions:[60:8]", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' is '[60:8]', not a list like "
         "[256:1,512:2,>:4] of powers of two"},
        {0, "roundup_power2_divisions:[64:8]x", PLIM_EUSAGE,
         "allocator setting 'roundup_power2_divisions' is '[64:8]', not followed by a comma"},
        {0, "backend:jemalloc", PLIM_EUSAGE,
         "allocator setting 'backend' is 'jemalloc', not native or cudaMallocAsync"},
        {0, "throw_on_cudamalloc_oom:True", PLIM_EUNSUPPORTED,
         "allocator setting 'throw_on_cudamalloc_oom' is not simulated"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_alloc_conf c;
        plim_err err;
        plim_alloc_conf_init(&c);
        plim_status st = parse(&c, rows[i].torch, rows[i].text, &err);
        CHECK(rows[i].text, st == rows[i].code);
        CHECK_STR(rows[i].text, err.msg, rows[i].msg);
    }
}

/* The rows of the version table in order, each with its wording. */
static void test_rules(void **state)
{
    (void)state;
    int since = 0;
    for (int torch = 100; torch < 300; torch++) {
        const plim_alloc_rules *r = plim_alloc_rules_of(torch);
        assert_true(r->since >= since && r->since <= torch && r->doc[0]);
        since = r->since;
    }
    assert_ptr_equal(plim_alloc_rules_of(0), plim_alloc_rules_of(215));
    assert_true(plim_alloc_rules_of(208)->min_split_mb == 21);
    assert_true(plim_alloc_rules_of(209)->min_split_mb == 20);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_defaults), cmocka_unit_test(test_values),
        cmocka_unit_test(test_again),    cmocka_unit_test(test_divisions),
        cmocka_unit_test(test_errors),   cmocka_unit_test(test_rules),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
