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
static bool has_part(const char *text, plim_str part)
{
    for (; text && *text; text++) {
        size_t i = 0;
        while (i < part.n && plim_lower(text[i]) == plim_lower(part.p[i]))
            i++;
        if (i == part.n)
            return true;
    }
    return !part.n;
}

static bool registry_has(const char *text, const char *part)
{
    return has_part(text, plim_str_of(part));
}

static bool registry_matches(const char *const *texts, size_t n, const char *filter)
{
    bool any = !filter;
    for (size_t i = 0; i < n && !any; i++)
        any = registry_has(texts[i], filter);
    return any;
}

/* ---- what is asked of an entry ------------------------------------------------------------ */

/* Figures of a model that a word of the filter may bound: "year=2025..", "parameters=..8B". */
static const struct bound {
    const char *key;
    size_t at;
    uint64_t kilo;
    uint64_t slack; /* a model of 8.03 G is one of 8B: so many percent either way */
} bounds[] = {{"year", offsetof(plim_entry, year), 1000, 0},
              {"parameters", offsetof(plim_entry, parameters), 1000, 10},
              {"context", offsetof(plim_entry, context), 1024, 0}};

/* The next word of a filter; empty: none is left. */
static plim_str next_word(const char **filter)
{
    const char *p = *filter + strspn(*filter, " ");
    plim_str word = {p, strcspn(p, " ")};
    *filter = p + word.n;
    return word;
}

/* "KEY=VALUE": the bound of that key, and the value; NULL: a word like any other. */
static const struct bound *find_bound(plim_str word, plim_str *value)
{
    for (size_t i = 0; i < PLIM_COUNT(bounds); i++) {
        size_t n = strlen(bounds[i].key);
        if (word.n <= n || word.p[n] != '=' || memcmp(word.p, bounds[i].key, n) != 0)
            continue;
        *value = (plim_str){word.p + n + 1, word.n - n - 1};
        return &bounds[i];
    }
    return NULL;
}

/* "8B", "1.5B", "128K" */
static bool read_amount(plim_str s, uint64_t kilo, uint64_t *out)
{
    static const char suffixes[] = "kmbt";
    enum { MOST = 15 }; /* digits that a double holds */
    uint64_t n = 0, parts = 1, scale = 1;
    size_t i = 0, digits = 0;
    bool point = false;
    for (; i < s.n && ((s.p[i] >= '0' && s.p[i] <= '9') || (s.p[i] == '.' && !point)); i++) {
        if (s.p[i] == '.') {
            point = true;
            continue;
        }
        if (++digits > MOST)
            return false;
        n = n * 10 + (uint64_t)(s.p[i] - '0');
        parts *= point ? 10 : 1;
    }
    if (i + 1 == s.n) {
        char c = (char)plim_lower(s.p[i]);
        const char *suffix = strchr(suffixes, c == 'g' ? 'b' : c);
        for (const char *p = suffixes; suffix && p <= suffix; p++)
            scale *= kilo;
        i += suffix != NULL;
    }
    double v = (double)n / (double)parts * (double)scale;
    *out = v < 1e18 ? (uint64_t)(v + 0.5) : 0;
    return digits && i == s.n && v < 1e18;
}

/* "2025", "2024..", "..8B", "1B..8B" */
static bool read_bounds(const struct bound *b, plim_str s, uint64_t *least, uint64_t *most)
{
    size_t dots = 0;
    while (dots + 1 < s.n && (s.p[dots] != '.' || s.p[dots + 1] != '.'))
        dots++;
    bool range = dots + 1 < s.n;
    plim_str from = {s.p, range ? dots : s.n};
    plim_str to = range ? (plim_str){s.p + dots + 2, s.n - dots - 2} : from;
    *least = 0;
    *most = UINT64_MAX;
    if ((!from.n && !to.n) || (from.n && !read_amount(from, b->kilo, least)) ||
        (to.n && !read_amount(to, b->kilo, most)))
        return false;
    *least -= *least / 100 * b->slack;
    *most += to.n ? *most / 100 * b->slack : 0;
    return true;
}

static bool text_matches(const plim_entry *e, plim_str part)
{
    const char *const texts[] = {e->name,  e->group,   e->doc,    e->also,
                                 e->gives, e->options, e->setting};
    bool any = false;
    for (size_t i = 0; i < PLIM_COUNT(texts) && !any; i++)
        any = has_part(texts[i], part);
    return any;
}

static bool word_matches(const plim_entry *e, plim_str word)
{
    plim_str value;
    const struct bound *b = find_bound(word, &value);
    uint64_t least, most;
    if (b && read_bounds(b, value, &least, &most)) {
        uint64_t n = *(const uint64_t *)((const char *)e + b->at);
        return n && n >= least && n <= most;
    }
    return plim_str_starts(word, "kind=")
               ? plim_str_is((plim_str){word.p + 5, word.n - 5}, e->kind)
               : text_matches(e, word);
}

/* Of models every word of the filter has to match; other entries contain the filter as it is. */
static bool entry_matches(plim_registry reg, const plim_entry *e, const char *filter)
{
    if (reg != PLIM_REG_MODELS)
        return text_matches(e, plim_str_of(filter ? filter : ""));
    bool all = true;
    plim_str word;
    while (filter && all && (word = next_word(&filter)).n)
        all = word_matches(e, word);
    return all;
}

static plim_status check_filter(plim_registry reg, const char *filter, plim_err *err)
{
    plim_str word, value;
    uint64_t least, most;
    while (filter && reg == PLIM_REG_MODELS && (word = next_word(&filter)).n) {
        const struct bound *b = find_bound(word, &value);
        if (b && !read_bounds(b, value, &least, &most))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "'" PLIM_STR_FMT
                             "' is no range: write a number, or one or two with '..'",
                             (int)PLIM_MIN(word.n, (size_t)60), word.p);
    }
    return PLIM_OK;
}

/* ---- the rows ------------------------------------------------------------------------------ */

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
                  : plim_registry_at(ask->reg, i, &e) &&
                        entry_matches(ask->reg, &e, ask->filter))
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
    PLIM_TRY(check_filter(reg, filter, err));
    return plim_report_print(&report, &ask, how, st, put, ud, err);
}
