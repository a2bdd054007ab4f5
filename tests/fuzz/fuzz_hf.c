/* fuzz_hf.c -- a config.json into a model.  What is accepted is sound.  The same bytes as
 * the name of a tensor next to one. */
#include "import/hf/hf_names.h"
#include "import/import.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_hf;

static void try_name(plim_arena *a, plim_str name)
{
    static const char *const types[] = {"mixtral", "vit", "swin", "clip"};
    for (size_t i = 0; i < PLIM_COUNT(types); i++) {
        plim_hf_names names;
        plim_hf_place at;
        plim_map model = {0};
        if (plim_hf_names_of(&names, plim_str_of(types[i]), a, NULL) ||
            !plim_map_put(a, &model, PLIM_STR("m.experts.gate_up_proj"), 7))
            return;
        (void)plim_hf_ignores(&names, name);
        if (!plim_hf_place_of(&names, &model, name, &at))
            continue;
        plim_assert(at.tensor == 7 && (!at.rule || at.part < at.parts));
        if (at.rule) {
            plim_str same = plim_hf_name_beside(a, name, &at, at.number, at.part);
            plim_assert(!same.p || plim_str_eq(same, name));
            (void)same;
        }
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_source file = {.bytes = {.p = p, .n = n}};
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
    try_name(&a, (plim_str){(const char *)p, n});
    plim_arena_free(&a);
    return 0;
}
