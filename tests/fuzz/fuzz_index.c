/* fuzz_index.c -- an index of shards that do not exist. */
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_index;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_source s = {.bytes = {.p = p, .n = n}};
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v = {.arena = &a};
    (void)plim_importer_probe(s.bytes);
    if (plim_importer_index.list(&v, &s, &err))
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    for (uint32_t i = 0; i < v.n_items; i++)
        plim_assert(v.items[i].name.p && v.items[i].type.p);
    plim_arena_free(&a);
    return 0;
}
