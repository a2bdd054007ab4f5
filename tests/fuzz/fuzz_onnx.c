/* fuzz_onnx.c -- ONNX models, whatever the probe thinks of them.  An accepted graph is
 * sound, and its rules run; what the file holds can be listed or is refused. */
#include "import/import.h"
#include "machine/machine_run.h"
#include "op/op.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

extern const plim_importer plim_importer_onnx;

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_source file = {.bytes = {.p = p, .n = n}};
    plim_arena a = {.limit = 64u << 20}, b = {.limit = 64u << 20};
    plim_inventory v = {.arena = &b};
    plim_err err = PLIM_ERR_INIT, why = PLIM_ERR_INIT;
    plim_binding bind = {.batch = n % 3 == 0 ? 5 : 0, .seq = n % 5 == 0 ? 7 : 0};
    plim_graph g;
    (void)plim_importer_probe(file.bytes);
    if (plim_graph_init(&g, &a, &err) == PLIM_OK &&
        plim_importer_onnx.read(&g, &file, &bind, &err) == PLIM_OK) {
        plim_assert(plim_graph_check(&g) == NULL);
        for (uint32_t i = 0; i < g.n_nodes; i++)
            if (g.nodes[i].op)
                (void)plim_op_infer(&g, &g.nodes[i], NULL);
    } else {
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    }
    if (plim_importer_onnx.list(&v, &file, &why))
        plim_assert(why.code != PLIM_OK && why.msg[0]);
    plim_arena_free(&a);
    plim_arena_free(&b);
    return 0;
}
