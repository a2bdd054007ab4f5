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

/* A list: its number of rows, and a function that fills in row i, whose texts are "". */
typedef struct list {
    uint32_t (*count)(void);
    void (*at)(uint32_t i, plim_entry *out);
} list;

static void set_facts(plim_entry *out, const char *name, const char *doc, const char *src)
{
    out->name = name;
    out->doc = doc;
    out->src = src;
}

static void op_entry(uint32_t i, plim_entry *out)
{
    const plim_op *o = plim_op_at(i);
    set_facts(out, o->name, o->doc, o->src);
    out->group = o->family;
}

static void model_entry(uint32_t i, plim_entry *out)
{
    const plim_zoo_model *m = plim_zoo_at(i, &out->group);
    set_facts(out, m->name, m->doc, m->src);
    out->parameters = m->parameters;
    out->kind = plim_zoo_kind(m);
    out->year = (uint64_t)m->year;
    out->context = plim_zoo_context(m);
    out->also = m->alias ? m->alias : "";
}

static void optim_entry(uint32_t i, plim_entry *out)
{
    const plim_optim *o = plim_optim_at(i);
    set_facts(out, o->name, o->doc, o->src);
    out->options = o->defaults;
}

static void torch_entry(uint32_t i, plim_entry *out)
{
    const plim_torch *t = plim_torch_at(i);
    set_facts(out, t->name, t->doc, t->src);
}

/* The formats that can be read, then those that are only recognised. */
static uint32_t format_count(void) { return plim_importer_count() + plim_foreign_count(); }
static void format_entry(uint32_t i, plim_entry *out)
{
    const plim_importer *f = plim_importer_at(i);
    const plim_foreign *o = f ? NULL : plim_foreign_at(i - plim_importer_count());
    if (f)
        set_facts(out, f->name, f->doc, f->src);
    else
        set_facts(out, o->name, o->doc, o->src);
    out->gives = f ? f->gives : "not read";
}

static void gpu_entry(uint32_t i, plim_entry *out)
{
    const plim_gpu *g = plim_gpu_at(i);
    set_facts(out, g->name, g->aliases, g->src);
}

static void allocator_entry(uint32_t i, plim_entry *out)
{
    const plim_allocator *a = plim_allocator_at(i);
    set_facts(out, a->name, a->doc, a->src);
}

static uint32_t dtype_count(void) { return PLIM_DTYPE_COUNT; }
static void dtype_entry(uint32_t i, plim_entry *out)
{
    const plim_dtype_row *d = &plim_dtype_rows[i];
    set_facts(out, d->name, d->doc, d->src);
    out->also = d->torch;
    out->bits = d->bits;
}

static void engine_entry(uint32_t i, plim_entry *out)
{
    const plim_engine *e = plim_engine_at(i);
    set_facts(out, e->name, e->doc, e->src);
    out->options = e->options;
}

static void strategy_entry(uint32_t i, plim_entry *out)
{
    const plim_strategy_row *s = plim_strategy_at(i);
    set_facts(out, s->name, s->doc, s->src);
    out->options = s->options;
}

static void adapter_entry(uint32_t i, plim_entry *out)
{
    const plim_adapter_method *m = plim_adapter_at(i);
    set_facts(out, m->name, m->doc, m->src);
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
    if (q) {
        bool packs = !plim_quant_parse(plim_str_of(q->name), &parsed, NULL);
        set_facts(out, q->name, q->doc, q->src);
        out->setting = packs ? "weights, quant" : "weights";
    } else if (plim_gg_mixture_at(i - plim_hf_quant_count(), &out->name, &out->doc)) {
        out->setting = "weights (llama.cpp)";
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

static uint32_t loop_count(void) { return PLIM_COUNT(loops); }
static void loop_entry(uint32_t i, plim_entry *out)
{
    set_facts(out, loops[i].name, loops[i].doc, loops[i].src);
}
static uint32_t loss_count(void) { return PLIM_COUNT(losses); }
static void loss_entry(uint32_t i, plim_entry *out)
{
    set_facts(out, losses[i].name, losses[i].doc, losses[i].src);
}

/* ---- the lists -------------------------------------------------------------------------- */

static const list lists[PLIM_REG_COUNT] = {
#define PLIM_LIST(ID, name, object, count, entry) [PLIM_REG_##ID] = {count, entry},
#include "registry/registries.def"
#undef PLIM_LIST
};

uint32_t plim_registry_count(plim_registry r)
{
    return (unsigned)r < PLIM_REG_COUNT ? lists[r].count() : 0;
}

bool plim_registry_at(plim_registry r, uint32_t i, plim_entry *out)
{
    plim_entry row = {.size = sizeof row,
                      .group = "",
                      .also = "",
                      .kind = "",
                      .gives = "",
                      .options = "",
                      .setting = ""};
    if (!out || i >= plim_registry_count(r))
        return false;
    lists[r].at(i, &row);
    plim_copy_out(out, &row, sizeof row);
    return true;
}
