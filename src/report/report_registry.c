/* report_registry.c -- reports of the lists of what plimsoll knows. */
#include "gpu/gpu.h"
#include "report/blocks.h"
#include "report/figures.h"

#include "answers/registry.def"

/* ---- the lists ----------------------------------------------------------- */

static const struct registry_list {
    const char *name, *schema;
    plim_rows rows; /* without any */
} registry_lists[PLIM_REG_COUNT] = {
#define PLIM_LIST(ID, name, object, count, entry)                                             \
    [PLIM_REG_##ID] = {#name,                                                                 \
                       "plimsoll/" #name "/1",                                                \
                       {.columns = plim_##object##_figures,                                   \
                        .n_columns = PLIM_COUNT(plim_##object##_figures) - 1}},
#include "registry/registries.def"
#undef PLIM_LIST
};

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
    const char *const texts[] = {e->name,  e->group,   e->doc,    e->also,
                                 e->gives, e->options, e->setting};
    return registry_matches(texts, PLIM_COUNT(texts), filter);
}

/* "mig", "a100:" or "3g.20gb": the many instances are listed for who asks for them. */
static bool asks_for_mig(const char *filter)
{
    return filter && (registry_has(filter, "mig") || strpbrk(filter, ":."));
}

/* `called`: the card that the filter is a name of, as a driver gives it ("Tesla V100-SXM2-16GB");
 * NULL: of none. */
static bool gpu_matches(const plim_gpu_info *g, const char *filter, const plim_gpu *called)
{
    const char *const texts[] = {g->name, g->aliases, g->vendor, g->klass, g->arch};
    return registry_matches(texts, PLIM_COUNT(texts), filter) ||
           (called && !strcmp(g->name, called->name));
}

/* What no row of a list has a value for is not in text: networks for images have no context. */
static const char *hidden_columns(const plim_rows *r, bool cards)
{
    uint64_t kept = 0, year = 0, context = 0;
    for (uint64_t i = 0; i < r->n; i++) {
        const void *row = plim_rows_at(r, i);
        kept |= cards ? ((const plim_gpu_info *)row)->kept_high : 0;
        year |= cards ? 0 : ((const plim_entry *)row)->year;
        context |= cards ? 0 : ((const plim_entry *)row)->context;
    }
    if (cards)
        return kept ? NULL : "kept";
    return year ? context ? NULL : "context" : context ? "year" : "year,context";
}

/* The rows that match the filter, copied to the page. */
static plim_rows registry_rows(plim_page *p, const registry_ask *ask)
{
    bool cards = ask->reg == PLIM_REG_GPUS;
    uint64_t size = cards ? sizeof(plim_gpu_info) : sizeof(plim_entry), n = 0;
    uint32_t count = plim_registry_count(ask->reg);
    while (cards && asks_for_mig(ask->filter) && plim_gpu_at(count))
        count++; /* with the instances, which come last */
    char *items = plim_arena_new(&p->arena, count, size);
    plim_entry e = PLIM_ENTRY_INIT;
    plim_gpu_info g = PLIM_GPU_INFO_INIT;
    const plim_gpu *called = NULL;
    p->buf.bad |= !items;
    if (cards && ask->filter)
        plim_gpu_find(plim_str_of(ask->filter), &called, NULL);
    for (uint32_t i = 0; items && i < count; i++)
        if (cards ? plim_gpu_info_at(i, &g) && gpu_matches(&g, ask->filter, called)
                  : plim_registry_at(ask->reg, i, &e) && entry_matches(&e, ask->filter))
            memcpy(items + n++ * size, cards ? (void *)&g : (void *)&e, (size_t)size);
    plim_rows rows = registry_lists[ask->reg].rows;
    rows.items = items;
    rows.size = (size_t)size;
    rows.n = n;
    rows.hidden = hidden_columns(&rows, cards);
    return rows;
}

/* Names, for scripts and completion. */
static void add_names(plim_page *p, const plim_rows *r)
{
    p->has_quiet = true;
    for (uint64_t i = 0; i < r->n; i++)
        plim_value_text(p, plim_column_cell(&r->columns[0], plim_rows_at(r, i)).text, "");
}

static void add_rows(plim_page *p, const registry_ask *ask, const plim_rows *r)
{
    if (!r->n && ask->filter) {
        plim_line(p, " ", 0);
        plim_say(p, "none of the %" PRIu32 " %s matches", plim_registry_count(ask->reg),
                 registry_lists[ask->reg].name);
        plim_say(p, "'%s'", ask->filter);
        return;
    }
    plim_table(p, *r, 0);
    if (ask->reg == PLIM_REG_GPUS)
        plim_paragraph_apart(
            p, PLIM_PAINT_DIM,
            plim_page_format(
                p,
                "~ estimated from the marketed size, not reported by a driver; fp16, bf16: "
                "dense TFLOPS; cc: compute capability%s",
                r->hidden ? ""
                          : "; system keeps: of memory that the CPU has, too, as users report "
                            "it or assumed"));
    plim_if_unknown(p, ask->reg == PLIM_REG_MODELS ? "- none, or not listed" : "- unknown");
}

static plim_status registry_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const registry_ask *ask = subject;
    const struct registry_list *list = &registry_lists[ask->reg];
    plim_rows r = registry_rows(p, ask);
    add_names(p, &r);
    add_rows(p, ask, &r);
    plim_list(p, list->schema, list->name, r);
    plim_sheet(p, r);
    return PLIM_OK;
}

plim_status plim_registry_print(plim_registry reg, const char *filter, plim_render how,
                                const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "registry", .build = registry_build};
    const registry_ask ask = {reg, filter};
    if ((size_t)reg >= PLIM_REG_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "registry %d is not in 0..%d", (int)reg,
                         PLIM_REG_COUNT - 1);
    return plim_report_print(&report, &ask, how, st, put, ud, err);
}
