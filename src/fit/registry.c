/* registry.c -- the lists of what plimsoll knows, for front ends. */
#include "alloc/alloc.h"
#include "gpu/gpu.h"
#include "import/foreign.h"
#include "import/import.h"
#include "op/op.h"
#include "optim/optim.h"
#include "torch/torch.h"
#include "zoo/zoo.h"

/* A list: its number of rows, and a function that copies row i to an entry. */
typedef struct list {
    uint32_t (*count)(void);
    void (*at)(uint32_t i, plim_entry *out);
} list;

static void op_entry(uint32_t i, plim_entry *out)
{
    const plim_op *o = plim_op_at(i);
    *out = (plim_entry){sizeof *out, o->name, o->family, o->doc, o->src, 0, ""};
}

static void model_entry(uint32_t i, plim_entry *out)
{
    const char *family;
    const plim_zoo_model *m = plim_zoo_at(i, &family);
    *out = (plim_entry){
        sizeof *out, m->name, family, m->doc, m->src, m->parameters, m->alias ? m->alias : ""};
}

static void optim_entry(uint32_t i, plim_entry *out)
{
    const plim_optim *o = plim_optim_at(i);
    *out = (plim_entry){sizeof *out, o->name, o->defaults, o->doc, o->src, 0, ""};
}

static void torch_entry(uint32_t i, plim_entry *out)
{
    const plim_torch *t = plim_torch_at(i);
    *out = (plim_entry){sizeof *out, t->name, "", t->doc, t->src, 0, ""};
}

/* The formats that can be read, then those that are only recognised. */
static uint32_t format_count(void) { return plim_importer_count() + plim_foreign_count(); }
static void format_entry(uint32_t i, plim_entry *out)
{
    const plim_importer *f = plim_importer_at(i);
    if (f) {
        *out = (plim_entry){sizeof *out, f->name, f->gives, f->doc, f->src, 0, ""};
        return;
    }
    const plim_foreign *o = plim_foreign_at(i - plim_importer_count());
    *out = (plim_entry){sizeof *out, o->name, "not read", o->doc, o->src, 0, ""};
}

static void gpu_entry(uint32_t i, plim_entry *out)
{
    const plim_gpu *g = plim_gpu_at(i);
    *out =
        (plim_entry){sizeof *out, g->name, g->vendor, g->aliases, g->src, g->memory_bytes, ""};
}

static void allocator_entry(uint32_t i, plim_entry *out)
{
    const plim_allocator *a = plim_allocator_at(i);
    *out = (plim_entry){sizeof *out, a->name, "", a->doc, a->src, 0, ""};
}

static uint32_t dtype_count(void) { return PLIM_DTYPE_COUNT; }
static void dtype_entry(uint32_t i, plim_entry *out)
{
    const plim_dtype_row *d = &plim_dtype_rows[i];
    *out = (plim_entry){sizeof *out, d->name, d->torch, d->doc, d->src, d->bits, ""};
}

static const list lists[PLIM_REG_COUNT] = {
    [PLIM_REG_MODELS] = {plim_zoo_count, model_entry},
    [PLIM_REG_OPS] = {plim_op_count, op_entry},
    [PLIM_REG_OPTIMIZERS] = {plim_optim_count, optim_entry},
    [PLIM_REG_PROFILES] = {plim_torch_count, torch_entry},
    [PLIM_REG_FORMATS] = {format_count, format_entry},
    [PLIM_REG_GPUS] = {plim_gpu_count, gpu_entry},
    [PLIM_REG_DTYPES] = {dtype_count, dtype_entry},
    [PLIM_REG_ALLOCATORS] = {plim_allocator_count, allocator_entry},
};

uint32_t plim_registry_count(plim_registry r)
{
    return (unsigned)r < PLIM_REG_COUNT ? lists[r].count() : 0;
}

bool plim_registry_at(plim_registry r, uint32_t i, plim_entry *out)
{
    plim_entry row;
    if (!out || i >= plim_registry_count(r))
        return false;
    lists[r].at(i, &row);
    plim_copy_out(out, &row, sizeof row);
    return true;
}
