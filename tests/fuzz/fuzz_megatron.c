/* fuzz_megatron.c -- arguments of Megatron-LM: what is read is a sound graph of some rank, or an error. */
#include "import/import.h"
#include "import/megatron/mg.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_megatron;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_source file = {.bytes = {.p = p, .n = n}};
    plim_arena a = {.limit = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_graph g = {.arena = &a};
    const plim_given given = {n % 4, n % 5, n % 7, n % 3};
    const char *settings = NULL;
    plim_binding bind = {
        .infer = n % 2,
        .batch = n % 3 == 0 ? 2 : 0,
        .part = {
            .weights = n % 5 == 0 ? 2 : 1, .sequence = n % 7 == 0, .stages = 1, .chunks = 1}};
    if (n % 4 == 0)
        bind.part.stages = 2, bind.part.stage = n % 8 == 0, bind.part.chunks = n % 16 ? 1 : 2;
    (void)plim_mg_names_model(file.bytes);
    if (plim_importer_megatron.settings(&file, &given, &a, &settings, &err))
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    err = (plim_err)PLIM_ERR_INIT;
    if (plim_importer_megatron.read(&g, &file, &bind, &err) == PLIM_OK)
        plim_assert(plim_graph_check(&g) == NULL);
    else
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    plim_arena_free(&a);
    return 0;
}
