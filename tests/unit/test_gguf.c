/* test_gguf.c -- GGUF files: what llama.cpp's package reads in the same files, files by hand,
 * damaged files. */
#include <stdio.h>

#include "base/fmt.h"
#include "listing.h"

extern const plim_importer plim_importer_gguf;

/* src: tests/data/weights.py */
static void test_as_others_read(void **state)
{
    (void)state;
    static const listing_case T[] = {
        {"every_type.gguf", "every_type.gguf", "GGUF 3"},
        {"tiny.gguf", "tiny.gguf", "GGUF 3"},
        {"big_endian.gguf", "big_endian.gguf", "GGUF 3, big-endian"},
        {"split/tiny-00001-of-00003.gguf", "split", "GGUF 3, 3 parts"},
        {"split/tiny-00002-of-00003.gguf", "split", "GGUF 3, 3 parts"},
        {"split/tiny-00003-of-00003.gguf", "split", "GGUF 3, 3 parts"},
    };
    listing_check_all(T, PLIM_COUNT(T));
}

/* Whichever part is named: the metadata come from the first. */
static void test_facts(void **state)
{
    (void)state;
    static const char *const files[] = {"tiny.gguf", "split/tiny-00001-of-00003.gguf",
                                        "split/tiny-00003-of-00003.gguf"};
    for (size_t i = 0; i < PLIM_COUNT(files); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_inventory v;
        assert_int_equal(listing_file(&v, &a, files[i], NULL), PLIM_OK);
        CHECK_STR(files[i], listing_fact(&v, "architecture"), "llama");
        CHECK_STR(files[i], listing_fact(&v, "name"), "tiny");
        CHECK_STR(files[i], listing_fact(&v, "file_type"), "Q8_0");
        CHECK_STR(files[i], listing_fact(&v, "attention.head_count_kv"), "2");
        CHECK_STR(files[i], listing_fact(&v, "vocab_size"), "5");
        CHECK_STR("fractions are no sizes", listing_fact(&v, "rope.freq_base"), "");
        /* 2 layers, 2 heads, keys and values of 32 / 4, 2 bytes each */
        CHECK_STR(files[i], listing_fact(&v, "kv_cache_bytes_per_token"), "128 (fp16)");
        CHECK(files[i], v.n_notes == 1 && listing_noted(&v, "the output is tied"));
        plim_arena_free(&a);
    }
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    assert_int_equal(listing_file(&v, &a, "big_endian.gguf", NULL), PLIM_OK);
    assert_string_equal(listing_fact(&v, "kv_cache_bytes_per_token"), "128 (fp16)");
    assert_int_equal(v.n_notes, 0); /* it has an output.weight */
    plim_arena_free(&a);
}

/* ======================================================================== */
/* Files by hand                                                             */
/* ======================================================================== */

static void put(plim_buf *b, uint64_t x, int bytes)
{
    char c[8];
    for (int i = 0; i < bytes; i++)
        c[i] = (char)(x >> 8 * i);
    plim_buf_add(b, (plim_str){c, (size_t)bytes});
}

static void put_str(plim_buf *b, const char *s)
{
    put(b, strlen(s), 8);
    plim_buf_puts(b, s);
}

static void put_head(plim_buf *b, uint32_t version, uint64_t tensors, uint64_t kvs)
{
    plim_buf_puts(b, "GGUF");
    put(b, version, 4);
    put(b, tensors, 8);
    put(b, kvs, 8);
}

static void put_u32(plim_buf *b, const char *key, uint64_t x)
{
    put_str(b, key);
    put(b, 4, 4);
    put(b, x, 4);
}

static void put_tensor(plim_buf *b, const char *name, uint32_t rank, const uint64_t *dim,
                       uint32_t type, uint64_t offset)
{
    put_str(b, name);
    put(b, rank, 4);
    for (uint32_t i = 0; i < rank; i++)
        put(b, dim[i], 8);
    put(b, type, 4);
    put(b, offset, 8);
}

static void put_zeros(plim_buf *b, uint64_t n)
{
    while (n--)
        put(b, 0, 1);
}

static plim_bytes bytes_of(const plim_buf *b)
{
    return (plim_bytes){.p = (const uint8_t *)b->p, .n = b->n};
}

static void refused(const char *why, const plim_buf *b, plim_status code, const char *says)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v;
    plim_status st = listing_bytes(&v, &a, &plim_importer_gguf, bytes_of(b), &err);
    if (st != code)
        fail_msg("%s: %d '%s'", why, st, err.msg);
    CHECK_STR(why, err.msg, says);
    plim_arena_free(&a);
}

static void test_versions(void **state)
{
    (void)state;
    static const struct {
        uint32_t version;
        plim_status code;
        const char *says;
    } T[] = {
        {2, PLIM_OK, ""},
        {3, PLIM_OK, ""},
        {1, PLIM_EUNSUPPORTED,
         "GGUF version 1 is not supported: convert the model again with a current llama.cpp"},
        {0, PLIM_EUNSUPPORTED, "GGUF version 0 is not supported, the newest known is 3"},
        {4, PLIM_EUNSUPPORTED, "GGUF version 4 is not supported, the newest known is 3"},
        {0x04000000, PLIM_EUNSUPPORTED,
         "GGUF version 4 is not supported, the newest known is 3"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        plim_buf_init(&b, &a);
        put_head(&b, T[i].version, 0, 0);
        refused("version", &b, T[i].code, T[i].says);
        plim_arena_free(&a);
    }
}

/* One tensor in a file of 64 bytes of data.  The list begins at 24; a name of one letter is
 * followed by rank, dims, type, offset. */
static void test_tensors(void **state)
{
    (void)state;
    static const struct {
        const char *why, *name;
        uint32_t rank;
        uint64_t dim[5];
        uint32_t type;
        uint64_t offset;
        plim_status code;
        const char *says;
    } T[] = {
        {"a scalar", "x", 0, {0}, 0, 0, PLIM_OK, ""},
        {"four dimensions", "x", 4, {2, 2, 2, 2}, 0, 0, PLIM_OK, ""},
        {"nothing", "x", 2, {32, 0}, 2, 0, PLIM_OK, ""},
        {"a row of two blocks", "x", 1, {64}, 2, 0, PLIM_OK, ""},
        {"five dimensions",
         "x",
         5,
         {1, 1, 1, 1, 1},
         0,
         0,
         PLIM_EFORMAT,
         "'x' has 5 dimensions, the limit is 4"},
        {"2^32 - 1 dimensions",
         "x",
         UINT32_MAX,
         {0},
         0,
         0,
         PLIM_EFORMAT,
         "'x' has 4294967295 dimensions, the limit is 4"},
        {"half a block",
         "x",
         2,
         {48, 2},
         2,
         0,
         PLIM_EFORMAT,
         "'x' has rows of 48 elements, not a multiple of the 32 in a block of Q4_0"},
        {"a scalar is not a block",
         "x",
         0,
         {0},
         12,
         0,
         PLIM_EFORMAT,
         "'x' has rows of 1 elements, not a multiple of the 256 in a block of Q4_K"},
        {"dropped",
         "x",
         1,
         {32},
         31,
         0,
         PLIM_EUNSUPPORTED,
         "type Q4_0_4_4 of 'x' was removed from llama.cpp: convert the model again"},
        {"dropped long ago",
         "x",
         1,
         {32},
         4,
         0,
         PLIM_EUNSUPPORTED,
         "type Q4_2 of 'x' was removed from llama.cpp: convert the model again"},
        {"not known",
         "x",
         1,
         {32},
         43,
         0,
         PLIM_EUNSUPPORTED,
         "type 43 of 'x' is unknown, the highest known is 42"},
        {"2^63 columns", "x", 1, {1ull << 63}, 0, 0, PLIM_ERANGE, "size of 'x' overflows"},
        {"2^64 elements",
         "x",
         2,
         {1ull << 32, 1ull << 32},
         24,
         0,
         PLIM_ERANGE,
         "size of 'x' overflows"},
        {"2^65 bytes",
         "x",
         2,
         {1ull << 32, 1ull << 31},
         0,
         0,
         PLIM_ERANGE,
         "size of 'x' overflows"},
        {"2^63 bytes",
         "x",
         2,
         {1ull << 31, 1ull << 32},
         24,
         0,
         PLIM_EFORMAT,
         "the tensors end at byte 9223372036854775904, the file has 160: it is truncated"},
        {"not at the beginning",
         "x",
         1,
         {1},
         0,
         32,
         PLIM_EFORMAT,
         "'x' begins at byte 32 of the data, expected 0"},
        {"truncated",
         "x",
         1,
         {17},
         0,
         0,
         PLIM_EFORMAT,
         "the tensors end at byte 132, the file has 128: it is truncated"},
        {"65 letters",
         "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
         0,
         {0},
         0,
         0,
         PLIM_EFORMAT,
         "a tensor's name of 65 bytes, the limit is 64"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        plim_buf_init(&b, &a);
        put_head(&b, 3, 1, 0);
        put_tensor(&b, T[i].name, T[i].rank > 5 ? 0 : T[i].rank, T[i].dim, T[i].type,
                   T[i].offset);
        if (T[i].rank > 5)
            memcpy(b.p + 24 + 9, &T[i].rank, 4);
        put_zeros(&b, 32 - b.n % 32 + 64);
        if (b.n % 32)
            put_zeros(&b, 32 - b.n % 32);
        refused(T[i].why, &b, T[i].code, T[i].says);
        plim_arena_free(&a);
    }
}

/* The second of two tensors begins where the first ends, rounded up. */
static void test_alignment(void **state)
{
    (void)state;
    static const struct {
        const char *why;
        uint64_t alignment; /* 0: not given, so 32 */
        uint64_t second;
        plim_status code;
        const char *says;
    } T[] = {
        {"as usual", 0, 32, PLIM_OK, ""},
        {"unaligned", 0, 4, PLIM_EFORMAT, "'y' begins at byte 4 of the data, expected 32"},
        {"a hole", 0, 64, PLIM_EFORMAT, "'y' begins at byte 64 of the data, expected 32"},
        {"64", 64, 64, PLIM_OK, ""},
        {"8", 8, 8, PLIM_OK, ""},
        {"1", 1, 4, PLIM_OK, ""},
        {"48", 48, 48, PLIM_EFORMAT, "general.alignment is not a power of two: 48"},
        {"none", UINT64_MAX, 0, PLIM_EFORMAT, "general.alignment is not a power of two: 0"},
        {"beyond the file", 1u << 30, 1u << 30, PLIM_EFORMAT,
         "the tensors end at byte 2147483652, the file has 240: it is truncated"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        static const uint64_t one = 1;
        plim_buf_init(&b, &a);
        put_head(&b, 3, 2, T[i].alignment ? 1 : 0);
        if (T[i].alignment) /* here 0 is written for UINT64_MAX */
            put_u32(&b, "general.alignment", T[i].alignment + !(T[i].alignment + 1));
        put_tensor(&b, "x", 1, &one, 0, 0);
        put_tensor(&b, "y", 1, &one, 0, T[i].second);
        while (b.n < 240)
            put(&b, 0, 1);
        refused(T[i].why, &b, T[i].code, T[i].says);
        plim_arena_free(&a);
    }
}

/* Lengths and counts beyond the end of the file. */
static void test_bounds(void **state)
{
    (void)state;
    plim_arena a = PLIM_ARENA_INIT;
    plim_buf b;
    plim_buf_init(&b, &a);
    refused("nothing", &b, PLIM_EFORMAT,
            "GGUF of 4 bytes at byte 0, the file has 0: it is truncated");

    plim_buf_puts(&b, "GGUF");
    refused("four bytes", &b, PLIM_EFORMAT,
            "the version of 4 bytes at byte 4, the file has 4: it is truncated");

    plim_buf_init(&b, &a);
    put_head(&b, 3, UINT64_MAX, 0);
    refused(
        "2^64 - 1 tensors", &b, PLIM_EUNSUPPORTED,
        "18446744073709551615 tensors and 0 metadata keys, the limits are 1048576 and 65536");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 65537);
    refused("too many metadata", &b, PLIM_EUNSUPPORTED,
            "0 tensors and 65537 metadata keys, the limits are 1048576 and 65536");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put(&b, UINT64_MAX, 8);
    refused(
        "a key of 2^64 - 1 bytes", &b, PLIM_EFORMAT,
        "a key of 18446744073709551615 bytes at byte 32, the file has 32: it is truncated");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put_str(&b, "");
    put(&b, 7, 4);
    put(&b, 0, 1);
    refused("a key of no bytes", &b, PLIM_EFORMAT,
            "a metadata key without a name before byte 36");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put_str(&b, "k");
    put(&b, 13, 4);
    put(&b, 0, 8);
    refused("a new type", &b, PLIM_EFORMAT,
            "metadata key 'k' has type 13, the highest known is 12");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put_str(&b, "k");
    put(&b, 8, 4);
    put(&b, 100, 8);
    refused("a string too long", &b, PLIM_EFORMAT,
            "a string of 100 bytes at byte 45, the file has 45: it is truncated");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put_str(&b, "k");
    put(&b, 9, 4);
    put(&b, 10, 4);
    put(&b, UINT64_MAX / 8 + 2, 8); /* times 8 overflows to 8 */
    put(&b, 0, 8);
    refused(
        "an array that overflows", &b, PLIM_EFORMAT,
        "an array of 18446744073709551615 bytes at byte 49, the file has 57: it is truncated");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 1);
    put_str(&b, "k");
    for (int i = 0; i < 6; i++) {
        put(&b, 9, 4);
        if (i)
            put(&b, 1, 8);
    }
    put(&b, 0, 4);
    put(&b, 0, 8);
    refused("arrays in arrays", &b, PLIM_EUNSUPPORTED,
            "metadata key 'k' has arrays nested deeper than 4");

    plim_buf_init(&b, &a);
    put_head(&b, 3, 0, 2);
    put_u32(&b, "k", 1);
    put_u32(&b, "k", 2);
    refused("a key twice", &b, PLIM_EFORMAT, "metadata key 'k' appears twice");

    static const uint64_t one = 1;
    plim_buf_init(&b, &a);
    put_head(&b, 3, 2, 0);
    put_tensor(&b, "x", 1, &one, 0, 0);
    put_tensor(&b, "x", 1, &one, 0, 32);
    put_zeros(&b, 128);
    refused("a name twice", &b, PLIM_EFORMAT, "tensor 'x' appears twice");
    plim_arena_free(&a);
}

/* Every type: the size of 512 elements.  src: the sizes per 256 of the table in
 * gguf-py/gguf/constants.py, GGML_QUANT_SIZES, times 512 over the block; from ggml-common.h
 * only 9, where the former has 40 bytes for block_q8_1 (32 of 8 bits, two fp16), and 42, which
 * is newer: block_q2_0, 64 of 2 bits and an fp16 */
static void test_types(void **state)
{
    (void)state;
    static const struct {
        uint32_t type;
        uint64_t bytes;
    } T[] = {
        {0, 2048},  {1, 1024}, {2, 288},   {3, 320},   {6, 352},   {7, 384},   {8, 544},
        {9, 576},   {10, 168}, {11, 220},  {12, 288},  {13, 352},  {14, 420},  {15, 584},
        {16, 132},  {17, 148}, {18, 196},  {19, 100},  {20, 288},  {21, 220},  {22, 164},
        {23, 272},  {24, 512}, {25, 1024}, {26, 2048}, {27, 4096}, {28, 4096}, {29, 112},
        {30, 1024}, {34, 108}, {35, 132},  {39, 272},  {40, 288},  {41, 72},   {42, 144},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        static const uint64_t dim = 512;
        plim_arena a = PLIM_ARENA_INIT;
        plim_inventory v;
        plim_buf b;
        plim_buf_init(&b, &a);
        put_head(&b, 3, 1, 0);
        put_tensor(&b, "x", 1, &dim, T[i].type, 0);
        put_zeros(&b, 4096 + 64);
        assert_int_equal(listing_bytes(&v, &a, &plim_importer_gguf, bytes_of(&b), NULL),
                         PLIM_OK);
        assert_int_equal(v.items[0].bytes, T[i].bytes);
        assert_int_equal(v.items[0].elements, 512);
        plim_arena_free(&a);
    }
}

/* ---- the cache ----------------------------------------------------------------------- */

typedef struct meta {
    const char *key;
    uint64_t value;      /* of a list: its length */
    const uint8_t *list; /* of bytes */
} meta;

/* The beginning of a file of that architecture with this metadata, and so many tensors. */
static void put_metadata(plim_buf *b, const char *arch, uint64_t tensors, const meta *m,
                         size_t n)
{
    size_t used = 0;
    while (used < n && m[used].key)
        used++;
    put_head(b, 3, tensors, used + 1);
    put_str(b, "general.architecture");
    put(b, 8, 4);
    put_str(b, arch);
    for (size_t i = 0; i < used; i++) {
        plim_str key = plim_arena_printf(b->arena, "%s.%s", arch, m[i].key);
        if (!m[i].list) {
            put_u32(b, key.p, m[i].value);
            continue;
        }
        put_str(b, key.p);
        put(b, 9, 4);
        put(b, 0, 4);
        put(b, m[i].value, 8);
        for (uint64_t k = 0; k < m[i].value; k++)
            put(b, m[i].list[k], 1);
    }
}

static void put_model(plim_buf *b, const char *arch, const meta *m, size_t n)
{
    put_metadata(b, arch, 0, m, n);
}

#define HEADS "attention.head_count"
#define KV_HEADS "attention.head_count_kv"
#define KEYS "attention.key_length"
#define VALUES "attention.value_length"

/* src: published figures, docs/sources/language-models.md 1: bytes per token in 16 bits of
 * Llama-2-7B, Llama-3-8B, Llama-3-70B, Falcon-7B, Qwen3-30B-A3B, Gemma-2-9B, gpt-oss-20b,
 * DeepSeek-V3 with its latent cache and expanded; the rest by hand */
static void test_cache(void **state)
{
    (void)state;
    static const uint8_t mixed[] = {0, 2, 0, 4}, falses[] = {1, 1, 0, 1},
                         ones[] = {1, 1, 1, 1}, none[4] = {0}, sparse[] = {0, 0, 0, 2};
    static const struct {
        const char *why, *arch, *bytes, *states, *note;
        meta m[16];
    } T[] = {
        {"Llama-2-7B",
         "llama",
         "524288 (fp16)",
         "",
         NULL,
         {{"block_count", 32, 0}, {"embedding_length", 4096, 0}, {HEADS, 32, 0}}},
        {"Llama-3-8B",
         "llama",
         "131072 (fp16)",
         "",
         NULL,
         {{"block_count", 32, 0},
          {"embedding_length", 4096, 0},
          {HEADS, 32, 0},
          {KV_HEADS, 8, 0}}},
        {"Llama-3-70B",
         "llama",
         "327680 (fp16)",
         "",
         NULL,
         {{"block_count", 80, 0},
          {"embedding_length", 8192, 0},
          {HEADS, 64, 0},
          {KV_HEADS, 8, 0}}},
        {"Falcon-7B",
         "falcon",
         "8192 (fp16)",
         "",
         NULL,
         {{"block_count", 32, 0},
          {"embedding_length", 4544, 0},
          {HEADS, 71, 0},
          {KV_HEADS, 1, 0}}},
        {"Qwen3-30B-A3B",
         "qwen3moe",
         "98304 (fp16)",
         "",
         NULL,
         {{"block_count", 48, 0},
          {"embedding_length", 2048, 0},
          {HEADS, 32, 0},
          {KV_HEADS, 4, 0},
          {KEYS, 128, 0},
          {VALUES, 128, 0}}},
        {"Gemma-2-9B",
         "gemma2",
         "344064 (fp16)",
         "",
         "172032 of the 344064 bytes of KV cache per token are in sliding-window layers, which keep only "
         "the last 4096 tokens",
         {{"block_count", 42, 0},
          {"embedding_length", 3584, 0},
          {HEADS, 16, 0},
          {KV_HEADS, 8, 0},
          {KEYS, 256, 0},
          {VALUES, 256, 0},
          {"attention.sliding_window", 4096, 0}}},
        {"DeepSeek-V3, latent",
         "deepseek2",
         "70272 (fp16)",
         "",
         NULL,
         {{"block_count", 61, 0},
          {"embedding_length", 7168, 0},
          {HEADS, 128, 0},
          {KV_HEADS, 1, 0},
          {KEYS, 576, 0},
          {VALUES, 512, 0},
          {"attention.key_length_mla", 192, 0},
          {"attention.value_length_mla", 128, 0}}},
        {"DeepSeek-V3, expanded",
         "deepseek2",
         "4997120 (fp16)",
         "",
         NULL,
         {{"block_count", 61, 0},
          {"embedding_length", 7168, 0},
          {HEADS, 128, 0},
          {KV_HEADS, 128, 0},
          {KEYS, 192, 0},
          {VALUES, 128, 0}}},
        {"a layer each: 6 heads of 8 and 8",
         "llama",
         "192 (fp16)",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 4, mixed}}},
        {"every second layer: 2 of 4, 2 heads of 8 and 8",
         "qwen35",
         "128 (fp16)",
         "11264 (fp32)", /* 2 layers: 3 inputs of 64 + 2 * 2 * 16, and 64 * 16 */
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"full_attention_interval", 2, 0},
          {"ssm.conv_kernel", 4, 0},
          {"ssm.inner_size", 64, 0},
          {"ssm.state_size", 16, 0},
          {"ssm.group_count", 2, 0}}},
        {"the last one predicts ahead",
         "glm4moe",
         "192 (fp16)",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"nextn_predict_layers", 1, 0}}},
        {"two share",
         "gemma4",
         "128 (fp16)",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"attention.sliding_window_pattern", 4, none},
          {"attention.sliding_window", 5, 0},
          {"attention.shared_kv_layers", 2, 0}}},
        /* three of 2 heads, 4 and 2; one of 2 heads, 8 and 8 */
        {"sliding layers of their own length",
         "gemma3",
         "136 (fp16)",
         "",
         "72 of the 136 bytes of KV cache per token are in sliding-window layers, which keep only "
         "the last 5 tokens",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"attention.sliding_window_pattern", 4, falses},
          {"attention.sliding_window", 5, 0},
          {"attention.key_length_swa", 4, 0},
          {"attention.value_length_swa", 2, 0}}},
        {"all slide",
         "gemma3",
         "256 (fp16)",
         "",
         "256 of the 256 bytes",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"attention.sliding_window_pattern", 4, ones},
          {"attention.sliding_window", 5, 0}}},
        {"no attention at all",
         "mamba",
         "0 (fp16)",
         "19456 (fp32)", /* 4 layers: 3 inputs of 64, and 64 * 16 */
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 0, 0},
          {"ssm.conv_kernel", 4, 0},
          {"ssm.inner_size", 64, 0},
          {"ssm.group_count", 2, 0},
          {"ssm.state_size", 16, 0}}},
        {"a recurrence without its sizes",
         "mamba",
         "",
         "",
         "no layer has a state, as those of architecture 'mamba' have",
         {{"block_count", 4, 0}, {"embedding_length", 32, 0}, {"ssm.state_size", 16, 0}}},
        {"it only encodes",
         "bert",
         "",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {"attention.causal", 0, 0}}},
        {"encoder and decoder",
         "t5",
         "512 (fp16)",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {"decoder_block_count", 4, 0}}},
        {"heads not said",
         "llama",
         "",
         "",
         "the metadata do not give the number of heads",
         {{"block_count", 4, 0}, {"embedding_length", 32, 0}}},
        {"lengths not said",
         "llama",
         "",
         "",
         "do not give the length of keys and values (layer 0)",
         {{"block_count", 4, 0}, {HEADS, 4, 0}}},
        {"a list too short",
         "llama",
         "",
         "",
         "'llama.attention.head_count_kv' has no value for layer 4",
         {{"block_count", 5, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 4, mixed}}},
        {"4 billion layers",
         "llama",
         "",
         "",
         "the model has 4294967295 layers, the limit is 4096",
         {{"block_count", UINT32_MAX, 0}, {"embedding_length", 32, 0}, {HEADS, 4, 0}}},
        /* llama.cpp pull request 22673: 2560 MiB for 131,072 tokens, 62 MiB of states */
        {"Qwen3.6-35B-A3B",
         "qwen35moe",
         "20480 (fp16)",
         "65863680 (fp32)",
         NULL,
         {{"block_count", 40, 0},
          {"embedding_length", 2048, 0},
          {HEADS, 16, 0},
          {KV_HEADS, 2, 0},
          {KEYS, 256, 0},
          {VALUES, 256, 0},
          {"full_attention_interval", 4, 0},
          {"ssm.conv_kernel", 4, 0},
          {"ssm.inner_size", 4096, 0},
          {"ssm.state_size", 128, 0},
          {"ssm.time_step_rank", 32, 0},
          {"ssm.group_count", 16, 0}}},
        {"GLM-4.7-Flash, latent",
         "deepseek2",
         "54144 (fp16)",
         "",
         NULL,
         {{"block_count", 47, 0},
          {"embedding_length", 2048, 0},
          {HEADS, 20, 0},
          {KV_HEADS, 1, 0},
          {KEYS, 576, 0},
          {VALUES, 512, 0},
          {"attention.key_length_mla", 256, 0},
          {"attention.value_length_mla", 256, 0},
          {"attention.kv_lora_rank", 512, 0}}},
        {"states where there are no heads: 1 of 4, 2 heads of 8 and 8; 2 inputs of 32",
         "lfm2",
         "64 (fp16)",
         "768 (fp32)",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 4, sparse},
          {"shortconv.l_cache", 3, 0}}},
        {"a key of another architecture, which llama.cpp does not read",
         "llama",
         "512 (fp16)",
         "",
         NULL,
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {"full_attention_interval", 2, 0},
          {"attention.sliding_window", 5, 0},
          {"ssm.state_size", 16, 0}}},
        {"a key that nobody knows",
         "llama",
         "512 (fp16)",
         "",
         "the size of the KV cache is not exact: 'llama.global_head_count' is not known",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {"global_head_count", 2, 0}}},
        {"keys that nobody knows, some of which matter",
         "llama",
         "512 (fp16)",
         "",
         "'llama.a.window', 'llama.b.rank', 'llama.c_state', 'llama.expert.d' and 2 more are not known",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {"scale_of_x", 1, 0},
          {"a.window", 1, 0},
          {"b.rank", 1, 0},
          {"c_state", 1, 0},
          {"expert.d", 1, 0},
          {"block.e", 1, 0},
          {"f_interval", 1, 0}}},
        {"an architecture that nobody knows: its keys mean what they usually do",
         "newcomer",
         "128 (fp16)",
         "",
         "the size of the KV cache is not exact: 'newcomer' is not known",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"full_attention_interval", 2, 0}}},
        {"one that has another recurrence",
         "newcomer",
         "128 (fp16)",
         "4608 (fp32)", /* 2 layers: 2 inputs of 32, and 32 * 16 */
         "the size of the KV cache is not exact: 'newcomer' is not known",
         {{"block_count", 4, 0},
          {"embedding_length", 32, 0},
          {HEADS, 4, 0},
          {KV_HEADS, 2, 0},
          {"wkv.head_size", 16, 0},
          {"full_attention_interval", 2, 0}}},
        {"more than can be counted",
         "rwkv7",
         "",
         "",
         "the size of the KV cache is not known: the size of what layer 0 keeps overflows",
         {{"block_count", 4, 0},
          {"embedding_length", INT32_MAX, 0},
          {"wkv.head_size", INT32_MAX, 0}}},
        {"windows of unknown size",
         "gpt-oss",
         "512 (fp16)",
         "",
         "the size of the windows is not given",
         {{"block_count", 4, 0}, {"embedding_length", 32, 0}, {HEADS, 4, 0}}},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        plim_arena a = PLIM_ARENA_INIT;
        plim_inventory v;
        plim_buf b;
        plim_buf_init(&b, &a);
        put_model(&b, T[i].arch, T[i].m, PLIM_COUNT(T[i].m));
        assert_int_equal(listing_bytes(&v, &a, &plim_importer_gguf, bytes_of(&b), NULL),
                         PLIM_OK);
        CHECK_STR(T[i].why, listing_fact(&v, "kv_cache_bytes_per_token"), T[i].bytes);
        CHECK_STR(T[i].why, listing_fact(&v, "state_bytes_per_sequence"), T[i].states);
        CHECK(T[i].why, v.n_notes == (T[i].note ? 1 : 0));
        CHECK(T[i].why, !T[i].note || listing_noted(&v, T[i].note));
        plim_arena_free(&a);
    }
}

/* ---- layers --------------------------------------------------------------------------- */

/* By the rules of llama.cpp's load_tensors: the layers of the tensors are those of block_count. */
static void test_layers(void **state)
{
    (void)state;
    static const uint8_t holes[] = {4, 0, 4};
    static const struct {
        const char *why, *says;
        const char *tensors[5];
        meta m[4];
    } T[] = {
        {"all are there", "", {"blk.0.x", "blk.1.x", "y"}, {{"block_count", 2, 0}}},
        {"too few",
         "'m.block_count' is 32, the number of layers with tensors is 2",
         {"blk.0.x", "blk.1.x"},
         {{"block_count", 32, 0}}},
        {"too many",
         "'m.block_count' is 1, the number of layers with tensors is 3",
         {"blk.0.x", "blk.1.x", "blk.2.x"},
         {{"block_count", 1, 0}}},
        {"none is to be there",
         "'m.block_count' is 0, the number of layers with tensors is 1",
         {"blk.0.x"},
         {{"block_count", 0, 0}}},
        {"one of a billion",
         "'m.block_count' is 2000000000, but 'blk.0' has no tensors",
         {"blk.1000000000.x"},
         {{"block_count", 2000000000, 0}}},
        {"a number that is none",
         "'m.block_count' is 4, the number of layers with tensors is 18446744073709551615",
         {"blk.99999999999999999999.x"},
         {{"block_count", 4, 0}}},
        {"a hole",
         "'m.block_count' is 3, but 'blk.1' has no tensors",
         {"blk.0.x", "blk.2.x"},
         {{"block_count", 3, 0}}},
        {"a layer of nothing",
         "",
         {"blk.0.x", "blk.2.x"},
         {{"block_count", 3, 0}, {HEADS, 3, holes}, {"feed_forward_length", 3, holes}}},
        {"what predicts further is there",
         "",
         {"blk.0.x", "blk.1.x", "blk.2.x"},
         {{"block_count", 3, 0}, {"nextn_predict_layers", 1, 0}}},
        {"what predicts further is left out",
         "",
         {"blk.0.x", "blk.1.x"},
         {{"block_count", 3, 0}, {"nextn_predict_layers", 1, 0}}},
        {"one more is left out",
         "'m.block_count' is 3, the number of layers with tensors is 1",
         {"blk.0.x"},
         {{"block_count", 3, 0}, {"nextn_predict_layers", 1, 0}}},
        {"only what predicts further",
         "",
         {"blk.2.x"},
         {{"block_count", 3, 0}, {"nextn_predict_layers", 1, 0}}},
        {"only a vocabulary", "", {"y"}, {{"block_count", 3, 0}}},
        {"a list",
         "'m.block_count' is not a whole number",
         {"blk.0.x"},
         {{"block_count", 3, holes}}},
        {"layers not counted", "", {"blk.0.x", "blk.7.x"}, {{HEADS, 4, 0}}},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        static const uint64_t dim = 8;
        plim_arena a = PLIM_ARENA_INIT;
        plim_buf b;
        uint32_t n = 0;
        while (n < PLIM_COUNT(T[i].tensors) && T[i].tensors[n])
            n++;
        plim_buf_init(&b, &a);
        put_metadata(&b, "m", n, T[i].m, PLIM_COUNT(T[i].m));
        for (uint32_t k = 0; k < n; k++)
            put_tensor(&b, T[i].tensors[k], 1, &dim, 0, 32 * k);
        put_zeros(&b, 32 + 32 * n);
        refused(T[i].why, &b, T[i].says[0] ? PLIM_EFORMAT : PLIM_OK, T[i].says);
        plim_arena_free(&a);
    }
}

/* Lists as facts: runs of equal values are merged, long lists are cut. */
static void test_lists(void **state)
{
    (void)state;
    static const uint8_t runs[] = {0, 0, 0, 8, 0, 0, 0, 8};
    static const uint8_t many[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17};
    static const meta m[] = {{"runs", 8, runs}, {"many", 17, many}, {"none", 0, runs}};
    plim_arena a = PLIM_ARENA_INIT;
    plim_inventory v;
    plim_buf b;
    plim_buf_init(&b, &a);
    put_model(&b, "m", m, PLIM_COUNT(m));
    assert_int_equal(listing_bytes(&v, &a, &plim_importer_gguf, bytes_of(&b), NULL), PLIM_OK);
    assert_string_equal(listing_fact(&v, "runs"), "0 (3 times), 8, 0 (3 times), 8");
    assert_string_equal(listing_fact(&v, "many"),
                        "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, ...");
    assert_string_equal(listing_fact(&v, "none"), "");
    plim_arena_free(&a);
}

/* ======================================================================== */
/* Parts                                                                     */
/* ======================================================================== */

static void test_parts(void **state)
{
    (void)state;
    static const struct {
        const char *why, *path;
        uint64_t no, count, tensors;
        plim_status code;
        const char *says;
    } T[] = {
        {"another name", "split/other.gguf", 0, 3, 9, PLIM_EFORMAT,
         "the name of part 1 of 3 does not end in '-00001-of-00003.gguf': the other "
         "parts cannot be found"},
        {"the number of another", "split/tiny-00001-of-00003.gguf", 1, 3, 9, PLIM_EFORMAT,
         "the name of part 2 of 3 does not end in '-00002-of-00003.gguf': the other "
         "parts cannot be found"},
        {"no path at all", NULL, 0, 3, 9, PLIM_EFORMAT,
         "the name of part 1 of 3 does not end in '-00001-of-00003.gguf': the other "
         "parts cannot be found"},
        {"past the end", "split/tiny-00004-of-00003.gguf", 3, 3, 9, PLIM_EFORMAT,
         "the name of part 4 of 3 does not end in '-00004-of-00003.gguf': the other "
         "parts cannot be found"},
        {"the name is all there is", "-00001-of-00003.gguf", 0, 3, 9, PLIM_EFORMAT,
         "the name of part 1 of 3 does not end in '-00001-of-00003.gguf': the other "
         "parts cannot be found"},
        {"others are not there", "split/gone-00001-of-00003.gguf", 0, 3, 9, PLIM_EIO,
         "part 'gone-00001-of-00003.gguf': cannot open '"},
        {"too few tensors", "split/tiny-00001-of-00003.gguf", 0, 3, 10, PLIM_EFORMAT,
         "the parts hold 9 tensors, split.tensors.count is 10"},
    };
    for (size_t i = 0; i < PLIM_COUNT(T); i++) {
        char path[1024];
        plim_arena a = PLIM_ARENA_INIT;
        plim_err err = PLIM_ERR_INIT;
        plim_inventory v = {.arena = &a};
        plim_buf b;
        plim_buf_init(&b, &a);
        put_head(&b, 3, 0, 3);
        put_u32(&b, "split.no", T[i].no);
        put_u32(&b, "split.count", T[i].count);
        put_u32(&b, "split.tensors.count", T[i].tensors);
        snprintf(path, sizeof path, LISTING_DATA "%s", T[i].path ? T[i].path : "");
        plim_source s = {.bytes = bytes_of(&b), .path = T[i].path ? path : NULL};
        plim_status st = plim_importer_gguf.list(&v, &s, &err);
        if (st != T[i].code || strncmp(err.msg, T[i].says, strlen(T[i].says)) != 0)
            fail_msg("%s: %d '%s'", T[i].why, st, err.msg);
        plim_arena_free(&a);
    }
}

static void test_damage(void **state)
{
    (void)state;
    listing_survive(&plim_importer_gguf, "tiny.gguf");
    listing_survive(&plim_importer_gguf, "big_endian.gguf");
    listing_starve("tiny.gguf");
    listing_starve("split/tiny-00002-of-00003.gguf");
    assert_null(plim_importer_gguf.read);
    assert_non_null(strstr(plim_importer_gguf.without, "config.json"));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_as_others_read), cmocka_unit_test(test_facts),
        cmocka_unit_test(test_layers),         cmocka_unit_test(test_versions),
        cmocka_unit_test(test_tensors),        cmocka_unit_test(test_alignment),
        cmocka_unit_test(test_bounds),         cmocka_unit_test(test_types),
        cmocka_unit_test(test_cache),          cmocka_unit_test(test_lists),
        cmocka_unit_test(test_parts),          cmocka_unit_test(test_damage),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
