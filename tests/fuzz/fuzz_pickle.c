/* fuzz_pickle.c -- any bytes as a pickle; what comes out is walked. */
#include "base/pickle.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Each value is one that was made, to a depth that loops do not pass. */
static uint64_t look(plim_pickle_value v, int depth)
{
    plim_assert(v.kind > PLIM_PICKLE_ABSENT && v.kind <= PLIM_PICKLE_CALL);
    uint64_t sum = v.kind;
    if (v.kind == PLIM_PICKLE_STR || v.kind == PLIM_PICKLE_BYTES || v.kind == PLIM_PICKLE_LONG)
        for (uint32_t i = 0; i < v.n; i++)
            sum += (uint8_t)v.p[i];
    if (!plim_pickle_has_node(v) || depth > 4)
        return sum;
    plim_assert((v.kind == PLIM_PICKLE_CALL) == (v.node->call != NULL));
    plim_assert(!v.node->pairs || v.node->n % 2 == 0);
    for (uint32_t i = 0; i < v.node->n && i < 8; i++)
        sum += look(v.node->items[i], depth + 1);
    return sum + plim_pickle_get(v, "a").kind;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_pickle got;
    if (plim_pickle_read(&got, &a, (plim_bytes){.p = p, .n = n}, 0, 0, &err) == PLIM_OK) {
        plim_assert(got.end <= n);
        (void)look(got.root, 0);
        for (uint32_t i = 0; i < got.n_globals; i++)
            plim_assert(plim_pickle_count(got.globals[i]) == 2);
    } else {
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    }
    plim_assert(a.used <= 4096 + 256 * (uint64_t)n);
    plim_arena_free(&a);
    return 0;
}
