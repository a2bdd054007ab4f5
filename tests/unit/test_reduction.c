/* test_reduction.c -- what reductions take on a card besides their results, as PyTorch's CUDA code
 * requested it: tests/golden/cuda/reductions*.txt. */
#include "machine/reduction.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "unit.h"

static const struct {
    const char *name;
    int sms, threads;
} cards[] = {{"a100-40g", 108, 2048}, {"h100-80g", 132, 2048}, {"rtx4090", 128, 1536}};

static const struct {
    const char *name;
    plim_partial partial;
    uint32_t results;
    bool fixed; /* the result's type is `out`, else that of the input */
    plim_dtype out;
} ops[] = {
    {"sum", PLIM_PARTIAL_SUM, 1, false, PLIM_F32},
    {"mean", PLIM_PARTIAL_SUM, 1, false, PLIM_F32},
    {"norm", PLIM_PARTIAL_SUM, 1, false, PLIM_F32},
    {"prod", PLIM_PARTIAL_SUM, 1, false, PLIM_F32},
    {"amax", PLIM_PARTIAL_EXTREME, 1, false, PLIM_F32},
    {"amin", PLIM_PARTIAL_EXTREME, 1, false, PLIM_F32},
    {"max", PLIM_PARTIAL_PLACE, 2, false, PLIM_F32},
    {"min", PLIM_PARTIAL_PLACE, 2, false, PLIM_F32},
    {"argmax", PLIM_PARTIAL_PLACE, 1, true, PLIM_I64},
    {"any", PLIM_PARTIAL_FLAG, 1, true, PLIM_BOOL},
    {"all", PLIM_PARTIAL_FLAG, 1, true, PLIM_BOOL},
    {"aminmax", PLIM_PARTIAL_PAIR, 2, false, PLIM_F32},
    {"var", PLIM_PARTIAL_MOMENTS, 1, false, PLIM_F32},
    {"std_mean", PLIM_PARTIAL_MOMENTS, 2, false, PLIM_F32},
};

static size_t find_op(const char *name)
{
    for (size_t i = 0; i < PLIM_COUNT(ops); i++)
        if (!strcmp(ops[i].name, name))
            return i;
    fail_msg("'%s' is not a reduction", name);
    return 0;
}

/* Of a list like "0,2": its numbers. */
static int32_t read_list(const char *text, int64_t *out)
{
    int32_t n = 0;
    for (char *end; n < PLIM_MAX_RANK; text = end + 1) {
        out[n++] = strtoll(text, &end, 10);
        if (*end != ',')
            break;
    }
    return n;
}

static void swap_last(int64_t *v, int32_t n)
{
    int64_t last = v[n - 1];
    v[n - 1] = v[n - 2];
    v[n - 2] = last;
}

/* "f32[8,64]T", a transpose, or "f32[..]L", channels last, as record.py writes it. */
static plim_meta read_spec(const char *spec)
{
    static const struct {
        const char *name;
        plim_dtype type;
    } types[] = {{"f32[", PLIM_F32}, {"bf16[", PLIM_BF16}, {"f16[", PLIM_F16},
                 {"f64[", PLIM_F64}, {"u8[", PLIM_U8},     {"bool[", PLIM_BOOL}};
    const char *layout = strchr(spec, ']') + 1;
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = read_list(strchr(spec, '[') + 1, dim);
    for (size_t i = 0; i < PLIM_COUNT(types); i++) {
        if (strncmp(spec, types[i].name, strlen(types[i].name)) != 0)
            continue;
        plim_meta x = plim_meta_make(types[i].type, rank, dim);
        if (*layout == 'L')
            plim_meta_channels_last(&x);
        if (*layout == 'T') {
            swap_last(dim, rank);
            x = plim_meta_make(types[i].type, rank, dim);
            swap_last(x.dim, rank);
            swap_last(x.stride, rank);
        }
        return x;
    }
    fail_msg("'%s' is not a tensor", spec);
    return (plim_meta){0};
}

/* Requests and releases after those of the results, as record.py writes them. */
static void simulate_case(int torch, size_t card, size_t op, const plim_meta *x, uint32_t mask,
                          char *out, size_t size)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_tape t;
    plim_world world = {.torch = torch,
                        .cc = 80,
                        .sms = cards[card].sms,
                        .threads_per_sm = cards[card].threads,
                        .lib = {.workspace = true}};
    plim_tape_init(&t, &a);
    plim_machine *m = plim_m_new(&a, &t, &world, &err);
    assert_non_null(m);
    plim_m_reduce(m, x, mask, ops[op].partial, ops[op].fixed ? ops[op].out : x->dtype);
    assert_false(plim_m_bad(m));
    size_t n = 0;
    uint32_t number[16], requests = 0;
    assert_true(t.n_storages < PLIM_COUNT(number));
    *out = '\0';
    for (uint32_t i = 0; i < t.n_events; i++) {
        const plim_event *e = &t.events[i];
        const plim_storage *s = &t.storages[e->id];
        const bool request = e->kind == PLIM_EVENT_ALLOC;
        assert_int_equal(s->certainty, PLIM_EXACT);
        if (request)
            number[e->id] = ++requests + ops[op].results;
        n += (size_t)snprintf(out + n, size - n, "%s%c%llu", n ? " " : "", request ? '+' : '-',
                              (unsigned long long)(request ? s->bytes : number[e->id]));
        assert_true(n < size);
    }
    plim_arena_free(&a);
}

static const char *after_results(const char *events, uint32_t results)
{
    for (uint32_t i = 0; i < results && events; i++)
        events = strchr(events + 1, ' ');
    return events ? events + 1 : "";
}

static int check_file(const char *file)
{
    char path[256], line[1024], name[32], dims[32], spec[128], phase[16], where[64],
        all[64] = "";
    int major = 0, minor = 0, rows = 0;
    (void)snprintf(path, sizeof path, PLIM_SOURCE_DIR "/tests/golden/cuda/%s", file);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = '\0';
        (void)sscanf(line, "# torch %d.%d%*[^,], cards %63[^\n]", &major, &minor, all);
        if (sscanf(line, "= %31s %31s %127s", name, dims, spec) == 3 ||
            sscanf(line, "%15s %63[^:]", phase, where) != 2 || strcmp(phase, "forward") != 0)
            continue;
        const size_t op = find_op(name);
        const plim_meta x = read_spec(spec);
        int64_t reduced[PLIM_MAX_RANK];
        uint32_t mask = 0;
        for (int32_t i = read_list(dims, reduced); i-- > 0;)
            mask |= 1u << reduced[i];
        const char *want = after_results(strchr(line, ':') + 2, ops[op].results);
        for (size_t card = 0; card < PLIM_COUNT(cards); card++) {
            char have[512];
            if (!strstr(strcmp(where, "all") ? where : all, cards[card].name))
                continue;
            simulate_case(100 * major + minor, card, op, &x, mask, have, sizeof have);
            if (strcmp(want, have) != 0)
                fail_msg("%s: %s %s %s on %s: PyTorch '%s', here '%s'", file, name, dims, spec,
                         cards[card].name, want, have);
            rows++;
        }
    }
    fclose(f);
    return rows;
}

static void test_recorded(void **state)
{
    (void)state;
    assert_int_equal(check_file("reductions.txt"), 3 * 320);
    assert_int_equal(check_file("reductions-2.4.txt"), 320);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_recorded)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
