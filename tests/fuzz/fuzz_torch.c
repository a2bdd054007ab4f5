/* fuzz_torch.c -- any bytes as a checkpoint: zip, legacy, tar, an index of shards.  What is
 * listed is sound; bytes of a file are not counted twice. */
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_torch;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_bytes file = {.p = p, .n = n};
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_inventory v = {.arena = &a};
    (void)plim_importer_probe(file);
    if (plim_importer_torch.list(&v, &(plim_source){.bytes = file}, &err) == PLIM_OK) {
        plim_assert(v.format.n);
        for (uint32_t i = 0; i < v.n_items; i++) {
            const plim_item *it = &v.items[i];
            plim_assert(it->name.n && it->type.n && it->kind < PLIM_ITEM_KINDS);
            if (it->same_as == PLIM_NONE)
                continue;
            plim_assert(it->same_as < v.n_items);
            plim_assert(v.items[it->same_as].same_as == PLIM_NONE);
        }
    } else {
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    }
    plim_arena_free(&a);
    return 0;
}
