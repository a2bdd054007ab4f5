/* registry.c -- the lists of what plimsoll knows, for front ends: see registries.def. */
#include "alloc/alloc.h"
#include "gpu/gpu.h"
#include "import/foreign.h"
#include "import/hf/hf_quant.h"
#include "import/import.h"
#include "op/op.h"
#include "optim/optim.h"
#include "serve/llama/gg_file.h"
#include "serve/serve.h"
#include "share/share.h"
#include "torch/torch.h"
#include "transform/adapter.h"
#include "transform/transform.h"
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

static void engine_entry(uint32_t i, plim_entry *out)
{
    const plim_engine *e = plim_engine_at(i);
    *out = (plim_entry){sizeof *out, e->name, e->options, e->doc, e->src, 0, ""};
}

static void strategy_entry(uint32_t i, plim_entry *out)
{
    const plim_strategy_row *s = plim_strategy_at(i);
    *out = (plim_entry){sizeof *out, s->name, s->options, s->doc, s->src, 0, ""};
}

static void adapter_entry(uint32_t i, plim_entry *out)
{
    const plim_adapter_method *m = plim_adapter_at(i);
    *out = (plim_entry){sizeof *out, m->name, "", m->doc, m->src, 0, ""};
}

/* Those that have a name, then the mixtures of llama.cpp.  "quant" packs what it is given as
 * some of the first do. */
static uint32_t quantization_count(void)
{
    return plim_hf_quant_count() + plim_gg_mixture_count();
}

static void quantization_entry(uint32_t i, plim_entry *out)
{
    const plim_hf_quant_row *q = plim_hf_quant_at(i);
    plim_quant parsed;
    *out = (plim_entry){.size = sizeof *out, .also = ""};
    if (q) {
        bool packs = !plim_quant_parse(plim_str_of(q->name), &parsed, NULL);
        out->name = q->name;
        out->group = packs ? "weights, quant" : "weights";
        out->doc = q->doc;
        out->src = q->src;
    } else if (plim_gg_mixture_at(i - plim_hf_quant_count(), &out->name, &out->doc)) {
        out->group = "weights (llama.cpp)";
        out->src = PLIM_GG_MIXTURES_SRC;
    }
}

/* ---- words of settings ----------------------------------------------------------------- */

typedef struct word {
    const char *name, *doc, *src;
} word;

static const word loops[] = {
#define PLIM_LOOP(name, doc, src) {#name, doc, src},
#include "settings/loops.def"
#undef PLIM_LOOP
};

static const word losses[] = {
#define PLIM_LOSS(name, doc, src) {#name, doc, src},
#include "settings/losses.def"
#undef PLIM_LOSS
};

static void copy_word(const word *w, plim_entry *out)
{
    *out = (plim_entry){sizeof *out, w->name, "", w->doc, w->src, 0, ""};
}

static uint32_t loop_count(void) { return PLIM_COUNT(loops); }
static void loop_entry(uint32_t i, plim_entry *out) { copy_word(&loops[i], out); }
static uint32_t loss_count(void) { return PLIM_COUNT(losses); }
static void loss_entry(uint32_t i, plim_entry *out) { copy_word(&losses[i], out); }

/* ---- the lists -------------------------------------------------------------------------- */

static const list lists[PLIM_REG_COUNT] = {
#define PLIM_LIST(ID, name, columns, count, entry) [PLIM_REG_##ID] = {count, entry},
#include "registry/registries.def"
#undef PLIM_LIST
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
