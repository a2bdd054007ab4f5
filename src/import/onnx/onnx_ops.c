/* onnx_ops.c -- the table of ops, onnx_ops.def, and its index by name. */
#include "import/onnx/onnx_ops.h"

static const onnx_op rows[] = {
#define ONNX_OP(name, domain, lower, target, doc)                                             \
    {name, domain, plim_onnx_##lower, target, doc},
#include "import/onnx/onnx_ops.def"
#undef ONNX_OP
};

bool plim_onnx_index_ops(onnx *f)
{
    uint32_t first;
    for (uint32_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_str name = plim_str_of(rows[i].name);
        if (!plim_map_get(&f->ops, name, &first) && !plim_map_put(f->a, &f->ops, name, i))
            return false;
    }
    return true;
}

/* Rows with the same name are adjacent. */
const onnx_op *plim_onnx_op_find(const onnx *f, plim_str domain, plim_str name)
{
    uint32_t i;
    if (!plim_map_get(&f->ops, name, &i))
        return NULL;
    for (; i < PLIM_COUNT(rows) && plim_str_is(name, rows[i].name); i++)
        if (plim_onnx_domain_is(domain, rows[i].domain))
            return &rows[i];
    return NULL;
}
