/* fuzz_hf.c -- a config.json into a model.  What is accepted is sound. */
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_hf;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_source file = {.bytes = {p, n}};
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_binding bind = {.batch = n % 3 == 0 ? 5 : 0, .seq = n % 5 == 0 ? 7 : 0};
    plim_graph g = {.arena = &a};
    plim_inventory v = {.arena = &a};
    bind.infer = n % 2;
    (void)plim_importer_probe(file.bytes);
    if (plim_importer_hf.read(&g, &file, &bind, &err) == PLIM_OK)
        plim_assert(plim_graph_check(&g) == NULL);
    else
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    (void)plim_importer_hf.list(&v, &file, NULL);
    plim_arena_free(&a);
    return 0;
}
