/* test_shape.c -- sizes and strides against PyTorch's for the same tensors
 * (tests/golden/shape/record.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/shape.h"
#include "unit.h"

static int32_t numbers(const char *s, int64_t *out)
{
    int32_t n = 0;
    if (!strcmp(s, "-"))
        return 0;
    for (char *end; n < PLIM_MAX_RANK; s = end + 1) {
        out[n++] = strtoll(s, &end, 10);
        if (*end != ',')
            break;
    }
    return n;
}

static plim_meta tensor(const char *dims, const char *strides)
{
    plim_meta m = {.dtype = PLIM_F32};
    m.rank = numbers(dims, m.dim);
    if (strides)
        assert_int_equal(numbers(strides, m.stride), m.rank);
    else
        plim_meta_contiguous(&m);
    return m;
}

static bool same(const int64_t *a, const int64_t *b, int32_t n)
{
    return n == 0 || memcmp(a, b, (size_t)n * sizeof *a) == 0;
}

static bool check_like(char **w)
{
    plim_meta m = tensor(w[1], w[2]), like = plim_meta_like(&m, PLIM_F32);
    int64_t want[PLIM_MAX_RANK];
    int32_t n = numbers(w[4], want);
    return n == like.rank && same(like.stride, want, n) &&
           plim_is_contiguous(&m) == (*w[5] == '1') &&
           plim_is_channels_last(&m) == (*w[6] == '1');
}

static bool check_view(char **w)
{
    plim_meta m = tensor(w[1], w[2]);
    int64_t dim[PLIM_MAX_RANK], stride[PLIM_MAX_RANK], want[PLIM_MAX_RANK];
    int32_t n = numbers(w[3], dim);
    bool ok = plim_view_strides(&m, n, dim, stride);
    if (!strcmp(w[5], "copy"))
        return !ok;
    return ok && numbers(w[5], want) == n && same(stride, want, n);
}

static bool check_broadcast(char **w)
{
    plim_meta a = tensor(w[1], NULL), b = tensor(w[2], NULL), out = {.dtype = PLIM_F32};
    int64_t want[PLIM_MAX_RANK];
    bool ok = plim_broadcast(&a, &b, &out);
    if (!strcmp(w[4], "clash"))
        return !ok;
    return ok && numbers(w[4], want) == out.rank && same(out.dim, want, out.rank);
}

static bool check_binary(char **w)
{
    plim_meta a = tensor(w[1], w[2]), b = tensor(w[3], w[4]), out = {.dtype = PLIM_F32};
    int64_t want[PLIM_MAX_RANK];
    if (!plim_elementwise(&a, &b, &out) || numbers(w[6], want) != out.rank)
        return false;
    for (int32_t i = 0; i < out.rank; i++) /* the stride of a dim of size 1 does not matter */
        if (out.dim[i] > 1 && out.stride[i] != want[i])
            return false;
    return true;
}

static bool check_promote(char **w)
{
    plim_dtype a, b, want;
    return plim_dtype_find(plim_str_of(w[1]), &a) && plim_dtype_find(plim_str_of(w[2]), &b) &&
           plim_dtype_find(plim_str_of(w[4]), &want) && plim_promote(a, b) == want;
}

static void test_recorded(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        bool (*check)(char **word);
        int words, least;
    } kinds[] = {{"like", check_like, 7, 300},
                 {"view", check_view, 6, 400},
                 {"broadcast", check_broadcast, 5, 200},
                 {"binary", check_binary, 7, 300},
                 {"promote", check_promote, 5, 144}};
    int seen[PLIM_COUNT(kinds)] = {0}, number = 0;
    char line[256], copy[256];
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/shape/shapes.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char *word[8];
        int n = 0;
        number++;
        if (line[0] == '#')
            continue;
        strcpy(copy, line);
        for (char *w = strtok(line, " \n"); w && n < 8; w = strtok(NULL, " \n"))
            word[n++] = w;
        for (size_t k = 0; k < PLIM_COUNT(kinds); k++) {
            if (strcmp(word[0], kinds[k].name) != 0)
                continue;
            assert_int_equal(n, kinds[k].words);
            if (!kinds[k].check(word))
                fail_msg("line %d: %s", number, copy);
            seen[k]++;
        }
    }
    fclose(f);
    for (size_t k = 0; k < PLIM_COUNT(kinds); k++)
        CHECK(kinds[k].name, seen[k] >= kinds[k].least);
}

static void test_limits(void **state)
{
    (void)state;
    uint64_t n = 7;
    plim_meta m = plim_meta_make(PLIM_F32, 2, (int64_t[]){1ll << 40, 1ll << 40});
    CHECK("2^80 elements are too many", !plim_meta_numel(&m, &n) && !plim_meta_bytes(&m, &n));
    CHECK("nothing was written", n == 7);
    m = plim_meta_make(PLIM_F32, 2, (int64_t[]){1ll << 40, 0});
    CHECK("none of them are none", plim_meta_numel(&m, &n) && n == 0);
    m = plim_meta_make(PLIM_F32, 1, (int64_t[]){-1});
    CHECK("a negative size is not a size", !plim_meta_numel(&m, &n));
    m = plim_meta_make(PLIM_QUINT4X2, 1, (int64_t[]){5});
    CHECK("packed types round up to bytes", plim_meta_bytes(&m, &n) && n == 3);
    int64_t dim[] = {4, -1};
    m = plim_meta_make(PLIM_F32, 2, (int64_t[]){6, 6});
    CHECK("-1 is what is left", plim_infer_size(&m, 2, dim) && dim[1] == 9);
    int64_t odd[] = {5, -1}, two[] = {-1, -1};
    CHECK("5 does not divide 36", !plim_infer_size(&m, 2, odd));
    CHECK("two unknowns", !plim_infer_size(&m, 2, two));
}

static void test_dtypes(void **state)
{
    (void)state;
    /* src: docs.pytorch.org, torch.dtype: sizes in bits */
    static const struct {
        const char *name;
        uint32_t bits;
    } rows[] = {{"float32", 32},      {"torch.float16", 16}, {"bfloat16", 16},
                {"fp64", 64},         {"int64", 64},         {"int32", 32},
                {"int16", 16},        {"int8", 8},           {"uint8", 8},
                {"bool", 8},          {"uint16", 16},        {"uint32", 32},
                {"uint64", 64},       {"complex64", 64},     {"complex128", 128},
                {"float8_e4m3fn", 8}, {"float8_e5m2", 8}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_dtype t;
        CHECK(rows[i].name, plim_dtype_find(plim_str_of(rows[i].name), &t));
        assert_int_equal(plim_dtype_rows[t].bits, rows[i].bits);
    }
    plim_dtype t;
    CHECK("unknown names stay unknown", !plim_dtype_find(PLIM_STR("float31"), &t));
    for (int i = 0; i < PLIM_DTYPE_COUNT; i++)
        CHECK("each has a doc and a source",
              *plim_dtype_rows[i].doc && *plim_dtype_rows[i].src);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_recorded),
        cmocka_unit_test(test_limits),
        cmocka_unit_test(test_dtypes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
