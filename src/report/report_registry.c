/* report_registry.c -- reports of the lists of what plimsoll knows. */
#include "report/report.h"

/* ---- entries ------------------------------------------------------------- */

/* clang-format off */
PLIM_GETTER(entry_name, plim_entry, plim_cell_text(r->name))
PLIM_GETTER(entry_group, plim_entry, plim_cell_text(r->group))
PLIM_GETTER(entry_params, plim_entry, plim_cell_known(PLIM_CELL_COUNT, r->number))
PLIM_GETTER(entry_bits, plim_entry, plim_cell_known(PLIM_CELL_COUNT, r->number))
PLIM_GETTER(entry_doc, plim_entry, plim_cell_text(r->doc))
PLIM_GETTER(entry_also, plim_entry, plim_cell_text(r->also))
PLIM_GETTER(entry_src, plim_entry, plim_cell_text(r->src))

#define ENTRY_NAME PLIM_COLUMN("name", "name", PLIM_IN_BOTH, PLIM_CUT_TAIL, 24, 0, entry_name)
#define ENTRY_DOC PLIM_COLUMN("doc", "description", PLIM_IN_BOTH, PLIM_CUT_TAIL, 24, 0, entry_doc)
#define ENTRY_SRC PLIM_COLUMN("src", "source", PLIM_IN_BOTH, PLIM_CUT_TAIL, 16, 2, entry_src)

static const plim_column plain_columns[] = {ENTRY_NAME, ENTRY_DOC, ENTRY_SRC};
static const plim_column op_columns[] = {
    ENTRY_NAME,
    PLIM_COLUMN("group", "family", PLIM_IN_BOTH, PLIM_LEFT, 0, 3, entry_group),
    ENTRY_DOC, ENTRY_SRC,
};
static const plim_column format_columns[] = {
    ENTRY_NAME,
    PLIM_COLUMN("gives", "contents", PLIM_IN_BOTH, PLIM_LEFT, 0, 1, entry_group),
    ENTRY_DOC, ENTRY_SRC,
};
static const plim_column model_columns[] = {
    ENTRY_NAME,
    PLIM_COLUMN("group", "family", PLIM_IN_BOTH, PLIM_LEFT, 0, 3, entry_group),
    PLIM_COLUMN("parameters", "parameters", PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, entry_params),
    PLIM_COLUMN("doc", "description or Hugging Face id", PLIM_IN_BOTH, PLIM_CUT_TAIL, 32, 0, entry_doc),
    PLIM_COLUMN("src", "source", PLIM_IN_BOTH, PLIM_CUT_TAIL, 16, 4, entry_src),
    PLIM_COLUMN("also", "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, entry_also),
};
static const plim_column option_columns[] = {
    ENTRY_NAME, ENTRY_DOC, ENTRY_SRC,
    PLIM_COLUMN("options", "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, entry_group),
};
static const plim_column quantization_columns[] = {
    ENTRY_NAME,
    PLIM_COLUMN("setting", "setting", PLIM_IN_BOTH, PLIM_LEFT, 0, 1, entry_group),
    ENTRY_DOC, ENTRY_SRC,
};
static const plim_column dtype_columns[] = {
    ENTRY_NAME,
    PLIM_COLUMN("bits", "bits", PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, entry_bits),
    ENTRY_DOC, ENTRY_SRC,
};
/* clang-format on */

/* ---- cards --------------------------------------------------------------- */

static plim_cell card_year(const plim_gpu_info *g)
{
    return g->year > 0 ? plim_cell_int(g->year) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
}

static plim_cell card_cc(const plim_gpu_info *g)
{
    return plim_cell_known(PLIM_CELL_TENTHS, g->cc > 0 ? (uint64_t)g->cc : 0);
}

/* clang-format off */
PLIM_GETTER(gpu_name, plim_gpu_info, plim_cell_text(r->name))
PLIM_GETTER(gpu_card, plim_gpu_info, plim_cell_text(plim_report_card(r->name)))
PLIM_GETTER(gpu_memory, plim_gpu_info, plim_cell_card(r->memory_bytes, r->memory_exact))
PLIM_GETTER(gpu_exact, plim_gpu_info, plim_cell_bool(r->memory_exact))
PLIM_GETTER(gpu_cc, plim_gpu_info, card_cc(r))
PLIM_GETTER(gpu_bandwidth, plim_gpu_info, plim_cell_rate(r->bandwidth_gbs))
PLIM_GETTER(gpu_fp32, plim_gpu_info, plim_cell_rate(r->fp32))
PLIM_GETTER(gpu_tf32, plim_gpu_info, plim_cell_rate(r->tf32))
PLIM_GETTER(gpu_fp16, plim_gpu_info, plim_cell_rate(r->fp16))
PLIM_GETTER(gpu_bf16, plim_gpu_info, plim_cell_rate(r->bf16))
PLIM_GETTER(gpu_fp8, plim_gpu_info, plim_cell_rate(r->fp8))
PLIM_GETTER(gpu_aliases, plim_gpu_info, plim_cell_text(r->aliases))
PLIM_GETTER(gpu_vendor, plim_gpu_info, plim_cell_text(r->vendor))
PLIM_GETTER(gpu_class, plim_gpu_info, plim_cell_text(r->klass))
PLIM_GETTER(gpu_arch, plim_gpu_info, plim_cell_text(r->arch))
PLIM_GETTER(gpu_year, plim_gpu_info, card_year(r))
PLIM_GETTER(gpu_sms, plim_gpu_info, plim_cell_known(PLIM_CELL_COUNT, r->sms > 0 ? (uint64_t)r->sms : 0))
PLIM_GETTER(gpu_price, plim_gpu_info, plim_cell_known(PLIM_CELL_COUNT, r->price_usd > 0 ? (uint64_t)r->price_usd : 0))
PLIM_GETTER(gpu_src, plim_gpu_info, plim_cell_text(r->src))

static const plim_column gpu_columns[] = {
    /* name          title      in            align       least drop get */
    PLIM_COLUMN("name",         "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, gpu_name),
    PLIM_COLUMN("card",         "card",    PLIM_IN_TEXT, PLIM_CUT_TAIL, 30, 0, gpu_card),
    PLIM_COLUMN("memory_bytes", "memory",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, gpu_memory),
    PLIM_COLUMN("memory_exact", "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, gpu_exact),
    PLIM_COLUMN("cc",           "cc",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, gpu_cc),
    PLIM_COLUMN("bandwidth_gbs", "GB/s",   PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, gpu_bandwidth),
    PLIM_COLUMN("fp32_tflops",  "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_fp32),
    PLIM_COLUMN("tf32_tflops",  "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_tf32),
    PLIM_COLUMN("fp16_tflops",  "fp16",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  4, gpu_fp16),
    PLIM_COLUMN("bf16_tflops",  "bf16",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  5, gpu_bf16),
    PLIM_COLUMN("fp8_tflops",   "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_fp8),
    PLIM_COLUMN("aliases",      "aliases", PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 1, gpu_aliases),
    PLIM_COLUMN("vendor",       "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, gpu_vendor),
    PLIM_COLUMN("class",        "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, gpu_class),
    PLIM_COLUMN("arch",         "arch",    PLIM_IN_BOTH, PLIM_LEFT,     0,  8, gpu_arch),
    PLIM_COLUMN("year",         "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_year),
    PLIM_COLUMN("sms",          "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_sms),
    PLIM_COLUMN("price_usd",    "",        PLIM_IN_DATA, PLIM_RIGHT,    0,  0, gpu_price),
    PLIM_COLUMN("src",          "",        PLIM_IN_DATA, PLIM_LEFT,     0,  0, gpu_src),
};

/* ---- the lists ----------------------------------------------------------- */

#define COLUMNS(c) c, PLIM_COUNT(c)
static const struct registry_list {
    const char *name, *schema;
    const plim_column *columns;
    size_t n_columns;
} registry_lists[PLIM_REG_COUNT] = {
#define PLIM_LIST(ID, name, columns, count, entry)                                            \
    [PLIM_REG_##ID] = {#name, "plimsoll/" #name "/1", COLUMNS(columns##_columns)},
#include "registry/registries.def"
#undef PLIM_LIST
};
#undef COLUMNS
/* clang-format on */

typedef struct registry_ask {
    plim_registry reg;
    const char *filter;
} registry_ask;

/* Does `text` contain `part`, ignoring case? */
static bool registry_has(const char *text, const char *part)
{
    for (; text && *text; text++) {
        size_t i = 0;
        while (part[i] && plim_lower(text[i]) == plim_lower(part[i]))
            i++;
        if (!part[i])
            return true;
    }
    return !*part;
}

static bool registry_matches(const char *const *texts, size_t n, const char *filter)
{
    bool any = !filter;
    for (size_t i = 0; i < n && !any; i++)
        any = registry_has(texts[i], filter);
    return any;
}

static bool entry_matches(const plim_entry *e, const char *filter)
{
    const char *const texts[] = {e->name, e->group, e->doc, e->also};
    return registry_matches(texts, PLIM_COUNT(texts), filter);
}

static bool gpu_matches(const plim_gpu_info *g, const char *filter)
{
    const char *const texts[] = {g->name, g->aliases, g->vendor, g->klass, g->arch};
    return registry_matches(texts, PLIM_COUNT(texts), filter);
}

/* The rows that match the filter, copied to the page. */
static plim_rows registry_rows(plim_page *p, const registry_ask *ask)
{
    const struct registry_list *list = &registry_lists[ask->reg];
    bool cards = ask->reg == PLIM_REG_GPUS;
    uint64_t size = cards ? sizeof(plim_gpu_info) : sizeof(plim_entry), n = 0;
    uint32_t count = plim_registry_count(ask->reg);
    char *items = plim_arena_new(&p->arena, count, size);
    plim_entry e = PLIM_ENTRY_INIT;
    plim_gpu_info g = PLIM_GPU_INFO_INIT;
    p->buf.bad |= !items;
    for (uint32_t i = 0; items && i < count; i++)
        if (cards ? plim_gpu_info_at(i, &g) && gpu_matches(&g, ask->filter)
                  : plim_registry_at(ask->reg, i, &e) && entry_matches(&e, ask->filter))
            memcpy(items + n++ * size, cards ? (void *)&g : (void *)&e, (size_t)size);
    return (plim_rows){.columns = list->columns,
                       .n_columns = list->n_columns,
                       .items = items,
                       .size = (size_t)size,
                       .n = n};
}

static void gpu_notes(plim_page *p)
{
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_DIM);
    plim_page_wrap(p,
                   "~ estimated from the marketed size, not reported by a driver; fp16, bf16: "
                   "dense TFLOPS; cc: compute capability",
                   0);
    plim_page_wrap(p, p->unknowns ? "- unknown" : "", 0);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}

static plim_status registry_text(plim_page *p, const void *subject, plim_err *err)
{
    const registry_ask *ask = subject;
    plim_rows r = registry_rows(p, ask);
    if (p->style.quiet) { /* names, for scripts and completion */
        for (uint64_t i = 0; i < r.n; i++) {
            plim_cell c = r.columns[0].get((const char *)r.items + i * r.size);
            plim_buf_add(&p->buf, plim_page_clean(p, c.text));
            plim_page_puts(p, "\n");
        }
        return PLIM_OK;
    }
    if (!r.n && ask->filter) {
        plim_flow f = plim_flow_open(p, " ", 0);
        plim_flow_printf(&f, "none of the %" PRIu32 " %s matches",
                         plim_registry_count(ask->reg), registry_lists[ask->reg].name);
        plim_flow_printf(&f, "'%s'", ask->filter);
        plim_flow_end(&f);
        return PLIM_OK;
    }
    plim_status st = plim_rows_text(p, &r, 0, err);
    if (!st && ask->reg == PLIM_REG_GPUS)
        gpu_notes(p);
    else if (!st)
        plim_report_unknowns(p);
    return st;
}

static plim_status registry_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const registry_ask *ask = subject;
    plim_rows r = registry_rows(p, ask);
    plim_jw w;
    plim_report_json_open(&w, p, registry_lists[ask->reg].schema, NULL);
    plim_rows_json(&w, registry_lists[ask->reg].name, &r);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status registry_csv(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows r = registry_rows(p, subject);
    return plim_rows_csv(p, &r, err);
}

plim_status plim_registry_print(plim_registry reg, const char *filter, plim_render how,
                                const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "registry", .text = registry_text, .json = registry_json, .csv = registry_csv};
    const registry_ask ask = {reg, filter};
    if ((size_t)reg >= PLIM_REG_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "registry %d is not in 0..%d", (int)reg,
                         PLIM_REG_COUNT - 1);
    return plim_report_print(&report, &ask, how, st, put, ud, err);
}
