/* test_safetensors.c -- weights in one file and in several: what the package safetensors reads
 * in the same files, headers by hand, damaged files. */
#include <stdio.h>

#include "listing.h"

extern const plim_importer plim_importer_safetensors, plim_importer_index;

/* src: tests/data/weights.py */
static void test_as_others_read(void **state)
{
    (void)state;
    static const listing_case T[] = {
        {"every_type.safetensors", "every_type.safetensors", "safetensors"},
        {"gptq.safetensors", "gptq.safetensors", "safetensors"},
        {"lora/adapter_model.safetensors", "lora", "safetensors"},
        {"sharded/model.safetensors.index.json", "sharded", "safetensors, 2 shards"},
    };
    listing_check_all(T, PLIM_COUNT(T));
}

static void test_facts(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    assert_int_equal(listing_file(&v, &a, "every_type.safetensors", NULL), PLIM_OK);
    assert_int_equal(v.n_facts, 2);
    assert_string_equal(listing_fact(&v, "made by"), "weights.py");
    assert_int_equal(v.n_notes, 0);
    assert_int_equal(listing_file(&v, &a, "gptq.safetensors", NULL), PLIM_OK);
    assert_int_equal(v.n_notes, 1);
    assert_string_equal(
        v.notes[0].p,
        "weights are packed (GPTQ or AWQ, as in '*.qweight'): each element holds several "
        "parameters");
    assert_int_equal(listing_file(&v, &a, "lora/adapter_model.safetensors", NULL), PLIM_OK);
    assert_string_equal(listing_fact(&v, "r"), "2");
    assert_string_equal(listing_fact(&v, "lora_alpha"), "16");
    assert_string_equal(listing_fact(&v, "target_modules"), "q_proj, v_proj");
    assert_string_equal(listing_fact(&v, "base_model_name_or_path"),
                        "meta-llama/Llama-3.2-1B");
    assert_int_equal(v.n_notes, 0);
    /* of two shards with the same facts one is enough */
    assert_int_equal(listing_file(&v, &a, "sharded/model.safetensors.index.json", NULL),
                     PLIM_OK);
    assert_int_equal(v.n_facts, 1);
    assert_string_equal(listing_fact(&v, "format"), "pt");
    assert_int_equal(v.n_notes, 0);
    plim_arena_free(&a);
}

/* ======================================================================== */
/* Headers by hand                                                           */
/* ======================================================================== */

/* A file with this header and that many bytes of data; quotes are written as '. */
static plim_bytes file_of(plim_arena *a, const char *header, uint64_t data)
{
    uint64_t n = strlen(header);
    uint8_t *p = PLIM_NEW_N(a, uint8_t, 8 + n + data);
    for (int i = 0; i < 8; i++)
        p[i] = (uint8_t)(n >> 8 * i);
    for (uint64_t i = 0; i < n; i++)
        p[8 + i] = header[i] == '\'' ? '"' : (uint8_t)header[i];
    return (plim_bytes){.p = p, .n = 8 + n + data};
}

#define X(dtype, shape, from, to)                                                             \
    "'x':{'dtype':'" dtype "','shape':[" shape "],'data_offsets':[" #from "," #to "]}"

/* Every rule of the reference reader, src: safetensors/src/tensor.rs, validate() and
 * read_metadata().  The package, version 0.8.0, accepts and rejects the same files except for
 * three: it accepts a space before the header (which the format's description forbids), nine
 * dimensions, and a duplicate key in the metadata. */
static void test_rules(void **state)
{
    (void)state;
    static const struct {
        const char *why, *header;
        uint64_t data;
        plim_status code;
        const char *says;
    } T[] = {
        {"no tensors", "{}", 0, PLIM_OK, ""},
        {"spaces behind", "{}   ", 0, PLIM_OK, ""},
        {"one", "{" X("F32", "2,3", 0, 24) "}", 24, PLIM_OK, ""},
        {"a field that is not known",
         "{'x':{'dtype':'U8','new':[{}],'shape':[1],"
         "'data_offsets':[0,1]}}",
         1, PLIM_OK, ""},
        {"escapes in a name", "{'a\\u0062':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}",
         1, PLIM_OK, ""},
        {"no metadata", "{'__metadata__':null}", 0, PLIM_OK, ""},
        {"in any order",
         "{'a':{'dtype':'U8','shape':[2],'data_offsets':[1,3]},"
         "'b':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}",
         3, PLIM_OK, ""},
        {"empty tensors are nowhere",
         "{'a':{'dtype':'U8','shape':[0],'data_offsets':[1,1]},"
         "'b':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}",
         1, PLIM_OK, ""},
        {"whole bytes of half bytes", "{" X("F4", "3,2", 0, 3) "}", 3, PLIM_OK, ""},
        {"halves", "{" X("F4", "3", 0, 2) "}", 2, PLIM_EFORMAT,
         "'x' has 12 bits, not a whole number of bytes at byte 60"},
        {"no header", "", 9, PLIM_EFORMAT, "the header does not begin with '{'"},
        {"spaces before", " {}", 0, PLIM_EFORMAT, "the header does not begin with '{'"},
        {"text behind", "{}x", 0, PLIM_EFORMAT, "invalid JSON: expected the end at byte 10"},
        {"a list", "{'x':[]}", 0, PLIM_EFORMAT, "invalid JSON: expected an object at byte 13"},
        {"no type", "{'x':{'shape':[1],'data_offsets':[0,4]}}", 4, PLIM_EFORMAT,
         "'x' has no 'dtype' at byte 47"},
        {"no shape", "{'x':{'dtype':'F32','data_offsets':[0,4]}}", 4, PLIM_EFORMAT,
         "'x' has no 'shape' at byte 49"},
        {"no place", "{'x':{'dtype':'F32','shape':[1]}}", 4, PLIM_EFORMAT,
         "'x' has no 'data_offsets' at byte 40"},
        {"two types", "{'x':{'dtype':'F32','dtype':'F16','shape':[1],'data_offsets':[0,4]}}",
         4, PLIM_EFORMAT, "duplicate 'dtype' of 'x' at byte 36"},
        {"a new type", "{" X("F128", "1", 0, 16) "}", 16, PLIM_EUNSUPPORTED,
         "type 'F128' of 'x' is unknown at byte 28"},
        {"less than nothing", "{" X("F32", "-1", 0, 4) "}", 4, PLIM_ERANGE, "at byte"},
        {"one offset", "{'x':{'dtype':'F32','shape':[1],'data_offsets':[0]}}", 4, PLIM_EFORMAT,
         "data_offsets has 1 numbers, expected 2 at byte 58"},
        {"three offsets", "{'x':{'dtype':'F32','shape':[1],'data_offsets':[0,4,4]}}", 4,
         PLIM_EFORMAT, "data_offsets has 3 numbers, expected 2 at byte 62"},
        {"too few bytes", "{" X("F32", "2", 0, 4) "}", 4, PLIM_EFORMAT,
         "'x' is 8 bytes by its shape, data_offsets are 0 to 4 at byte 61"},
        {"backwards", "{" X("U8", "0", 1, 0) "}", 1, PLIM_EFORMAT,
         "'x' is 0 bytes by its shape, data_offsets are 1 to 0 at byte 60"},
        {"2^63 elements", "{" X("F32", "9223372036854775808", 0, 4) "}", 4, PLIM_ERANGE,
         "size of 'x' overflows at byte 56"},
        {"2^64 elements", "{" X("U8", "4294967296,4294967296", 0, 0) "}", 0, PLIM_ERANGE,
         "size of 'x' overflows at byte 80"},
        {"2^61 elements of 8 bytes", "{" X("I64", "2305843009213693952", 0, 0) "}", 0,
         PLIM_ERANGE, "size of 'x' overflows at byte 79"},
        {"nine dimensions", "{" X("U8", "1,1,1,1,1,1,1,1,1", 0, 1) "}", 1, PLIM_EUNSUPPORTED,
         "'x' has more than 8 dimensions at byte 53"},
        {"a hole in front", "{" X("U8", "1", 1, 2) "}", 2, PLIM_EFORMAT,
         "'x' begins at byte 1 of the data, the tensor before it ends at 0"},
        {"overlap",
         "{'a':{'dtype':'U8','shape':[2],'data_offsets':[0,2]},"
         "'b':{'dtype':'U8','shape':[2],'data_offsets':[1,3]}}",
         3, PLIM_EFORMAT, "'b' begins at byte 1 of the data, the tensor before it ends at 2"},
        {"truncated", "{" X("U8", "9", 0, 9) "}", 8, PLIM_EFORMAT,
         "the data should be 9 bytes, the file has 8: it is truncated"},
        {"too long", "{" X("U8", "9", 0, 9) "}", 12, PLIM_EFORMAT,
         "the tensors are 9 bytes, the data 12"},
        {"a name twice", "{" X("U8", "1", 0, 1) "," X("U8", "1", 1, 2) "}", 2, PLIM_EFORMAT,
         "tensor 'x' appears twice"},
        {"written in two ways",
         "{" X("U8", "1", 0, 1) ",'\\u0078':{'dtype':'U8','shape':[1],"
                                "'data_offsets':[1,2]}}",
         2, PLIM_EFORMAT, "tensor 'x' appears twice"},
        {"metadata twice", "{'__metadata__':{},'__metadata__':{}}", 0, PLIM_EFORMAT,
         "tensor '__metadata__' appears twice"},
        {"a key twice", "{'__metadata__':{'k':'1','k':'2'}}", 0, PLIM_EFORMAT,
         "metadata key 'k' appears twice"},
        {"metadata are strings", "{'__metadata__':{'k':1}}", 0, PLIM_EFORMAT,
         "invalid JSON: expected a string at byte 29"},
        {"no UTF-8", "{'\xff':{'dtype':'U8','shape':[1],'data_offsets':[0,1]}}", 1,
         PLIM_EFORMAT, "the header is not valid UTF-8 at byte 10"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        plim_status st = listing_bytes(&v, &a, &plim_importer_safetensors,
                                       file_of(&a, T[i].header, T[i].data), &err);
        if (st != T[i].code || !strstr(err.msg, T[i].says))
            fail_msg("%s: %d '%s'", T[i].why, st, err.msg);
        plim_arena_free(&a);
    }
}

/* The eight bytes before the header. */
static void test_header_size(void **state)
{
    (void)state;
    static const struct {
        uint8_t size[8];
        uint64_t file;
        plim_status code;
        const char *says;
    } T[] = {
        {{0}, 7, PLIM_EFORMAT, "a header of 0 bytes in a file of 7"},
        {{2}, 9, PLIM_EFORMAT, "a header of 2 bytes in a file of 9"},
        {{255, 255, 255, 255, 255, 255, 255, 255},
         10,
         PLIM_EUNSUPPORTED,
         "a header of 18446744073709551615 bytes, the limit is 100000000"},
        {{0, 0, 0, 0, 0, 0, 0, 128},
         10,
         PLIM_EUNSUPPORTED,
         "a header of 9223372036854775808 bytes, the limit is 100000000"},
        {{1, 225, 245, 5},
         10,
         PLIM_EUNSUPPORTED,
         "a header of 100000001 bytes, the limit is 100000000"},
        {{0, 225, 245, 5}, 10, PLIM_EFORMAT, "a header of 100000000 bytes in a file of 10"},
        {{2}, 10, PLIM_OK, ""},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        uint8_t file[10] = {0, 0, 0, 0, 0, 0, 0, 0, '{', '}'};
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v;
        memcpy(file, T[i].size, 8);
        plim_status st = listing_bytes(&v, &a, &plim_importer_safetensors,
                                       (plim_bytes){.p = file, .n = T[i].file}, &err);
        assert_int_equal(st, T[i].code);
        CHECK_STR("size", err.msg, T[i].says);
        plim_arena_free(&a);
    }
}

static void test_deep(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v;
    char header[400] = "{'x':{'y':";
    memset(header + strlen(header), '[', 300);
    assert_int_equal(
        listing_bytes(&v, &a, &plim_importer_safetensors, file_of(&a, header, 0), &err),
        PLIM_EFORMAT);
    assert_string_equal(err.msg, "JSON is nested deeper than 128 levels at byte 144");
    plim_arena_free(&a);
}

/* What the names of weights reveal, one row per packing format; with another type they are
 * just names. */
static void test_packed(void **state)
{
    (void)state;
    static const struct {
        const char *header, *method;
    } T[] = {
        {"{'p.qweight':{'dtype':'I32','shape':[1],'data_offsets':[0,4]}}", "GPTQ or AWQ"},
        {"{'p.qweight':{'dtype':'F32','shape':[1],'data_offsets':[0,4]}}", NULL},
        {"{'p.weight_packed':{'dtype':'I32','shape':[1],'data_offsets':[0,4]}}",
         "compressed-tensors"},
        {"{'p.weight_packed':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}",
         "compressed-tensors"},
        {"{'p.weight.quant_state.bitsandbytes__nf4':{'dtype':'U8','shape':[4],"
         "'data_offsets':[0,4]}}",
         "bitsandbytes NF4"},
        {"{'p.weight.quant_state.bitsandbytes__fp4':{'dtype':'U8','shape':[4],"
         "'data_offsets':[0,4]}}",
         "bitsandbytes FP4"},
        {"{'mlp.experts.down_proj_blocks':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}",
         "MXFP4"},
        {"{'p.W_q':{'dtype':'U8','shape':[4],'data_offsets':[0,4]}}", "HQQ"},
        {"{'p.W_q':{'dtype':'I32','shape':[1],'data_offsets':[0,4]}}", "HQQ"},
        {"{'p.weight':{'dtype':'I32','shape':[1],'data_offsets':[0,4]}}", NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_inventory v;
        assert_int_equal(listing_bytes(&v, &a, &plim_importer_safetensors,
                                       file_of(&a, T[i].header, 4), NULL),
                         PLIM_OK);
        CHECK(T[i].header, v.n_notes == (T[i].method ? 1 : 0));
        CHECK(T[i].header, !T[i].method || listing_noted(&v, T[i].method));
        plim_arena_free(&a);
    }
}

/* ======================================================================== */
/* Several files                                                             */
/* ======================================================================== */

#define SHARD1 "model-00001-of-00002.safetensors"
#define SHARD2 "model-00002-of-00002.safetensors"
#define HAS1 "\"embed.weight\":\"" SHARD1 "\",\"up.weight\":\"" SHARD1 "\""
#define HAS2 "\"down.weight\":\"" SHARD2 "\",\"norm.weight\":\"" SHARD2 "\""

static void test_indexes(void **state)
{
    (void)state;
    static const struct {
        const char *why, *index;
        plim_status code;
        const char *says; /* the error, or a note; "": none */
    } T[] = {
        {"as it should be", "{\"weight_map\":{" HAS1 "," HAS2 "}}", PLIM_OK, ""},
        {"the size is right",
         "{\"metadata\":{\"total_size\":360},\"weight_map\":{" HAS1 "," HAS2 "}}", PLIM_OK,
         ""},
        {"the size is wrong",
         "{\"metadata\":{\"total_size\":7},\"weight_map\":{" HAS1 "," HAS2 "}}", PLIM_OK,
         "the index says 7 bytes, the shards hold 360"},
        {"a tensor too many", "{\"weight_map\":{\"embed.weight\":\"" SHARD1 "\"}}", PLIM_OK,
         "'" SHARD1
         "' holds 1 tensor that the index does not name: 'up.weight'; they are counted"},
        {"a tensor too few",
         "{\"weight_map\":{" HAS1 ",\"a\":\"" SHARD1 "\",\"b\":\"" SHARD1 "\"}}", PLIM_EFORMAT,
         "'" SHARD1 "' lacks 2 tensors that the index places there: 'a', ..."},
        {"in the other file", "{\"weight_map\":{\"embed.weight\":\"" SHARD2 "\"}}",
         PLIM_EFORMAT,
         "'" SHARD2 "' lacks 1 tensor that the index places there: 'embed.weight'"},
        {"a file that is not there", "{\"weight_map\":{" HAS1 ",\"x\":\"gone.safetensors\"}}",
         PLIM_EIO, "shard 'gone.safetensors' with 'x': cannot open"},
        {"out of the folder", "{\"weight_map\":{\"x\":\"../gptq.safetensors\"}}", PLIM_EFORMAT,
         "shard '../gptq.safetensors' with 'x': '../gptq.safetensors' is not the "
         "name of a file in the same folder"},
        {"anywhere", "{\"weight_map\":{\"x\":\"/etc/passwd\"}}", PLIM_EFORMAT,
         "'/etc/passwd' is not the name of a file in the same folder"},
        {"itself", "{\"weight_map\":{\"x\":\"model.safetensors.index.json\"}}", PLIM_EFORMAT,
         "index is not a format of weights"},
        {"no file", "{\"weight_map\":{\"x\":\"\"}}", PLIM_EFORMAT,
         "'' is not the name of a file in the same folder"},
        {"a name twice", "{\"weight_map\":{\"x\":\"a\",\"x\":\"b\"}}", PLIM_EFORMAT,
         "tensor 'x' appears twice"},
        {"empty", "{\"weight_map\":{}}", PLIM_EFORMAT,
         "an index without a 'weight_map' that names a file at byte 17"},
        {"no text", "{\"weight_map\":{\"x\":1}}", PLIM_EFORMAT,
         "expected a string at byte 19"},
        {"truncated", "{\"weight_map\":{" HAS1, PLIM_EFORMAT, "JSON ends early"},
    };
    const char *path = LISTING_DATA "sharded/model.safetensors.index.json";
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v = {.arena = &a};
        plim_bytes b = {.p = (const uint8_t *)T[i].index, .n = strlen(T[i].index)};
        CHECK(T[i].why, plim_importer_probe(b) == &plim_importer_index);
        plim_status st =
            plim_importer_index.list(&v, &(plim_source){.bytes = b, .path = path}, &err);
        if (st != T[i].code || (st && !strstr(err.msg, T[i].says)))
            fail_msg("%s: %d '%s'", T[i].why, st, err.msg);
        if (!st)
            CHECK(T[i].why, T[i].says[0] ? listing_noted(&v, T[i].says) : !v.n_notes);
        plim_arena_free(&a);
    }
}

static void test_lone_adapter(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_bytes b = {0};
    plim_inventory v;
    assert_int_equal(plim_file_read(&b, LISTING_DATA "lora/adapter_model.safetensors", NULL),
                     PLIM_OK);
    assert_int_equal(listing_bytes(&v, &a, &plim_importer_safetensors, b, NULL), PLIM_OK);
    assert_true(listing_noted(
        &v, "an adapter (LoRA) without a readable adapter_config.json: 'adapter_config.json' "
            "was not found"));
    plim_file_close(&b);
    plim_arena_free(&a);
}

static void test_damage(void **state)
{
    (void)state;
    listing_survive(&plim_importer_safetensors, "every_type.safetensors");
    listing_survive(&plim_importer_safetensors, "lora/adapter_model.safetensors");
    listing_survive(&plim_importer_index, "sharded/model.safetensors.index.json");
    listing_starve("every_type.safetensors");
    listing_starve("lora/adapter_model.safetensors");
    listing_starve("sharded/model.safetensors.index.json");
}

/* A format without a graph says what to do instead. */
static void test_no_graph(void **state)
{
    (void)state;
    assert_null(plim_importer_safetensors.read);
    assert_non_null(strstr(plim_importer_safetensors.without, "config.json"));
    assert_null(plim_importer_index.read);
    assert_non_null(strstr(plim_importer_index.without, "config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_others_read), cmocka_unit_test(test_facts),
        cmocka_unit_test(test_rules),          cmocka_unit_test(test_header_size),
        cmocka_unit_test(test_deep),           cmocka_unit_test(test_packed),
        cmocka_unit_test(test_indexes),        cmocka_unit_test(test_lone_adapter),
        cmocka_unit_test(test_damage),         cmocka_unit_test(test_no_graph),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
