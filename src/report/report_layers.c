/* report_layers.c -- the layers of a model as a tree with columns. */
#include "report/blocks.h"
#include "report/figures.h"

/* The models of a report. */
typedef struct layers_list {
    const plim_layers *const *of;
    uint32_t n;
} layers_list;

/* A layer as the table has it: a plim_layer to its figures. */
typedef struct layer_row {
    plim_layer of;
    const char *model;
    const char *tree; /* name indented by depth, without the path of its parent */
} layer_row;

/* The same of an activation. */
typedef struct activation_row {
    plim_activation of;
    const char *already, *says; /* "2 of 3"; the effect of inplace=True */
} activation_row;

static plim_cell cell_inplace(const plim_layer *l)
{
    plim_cell c = plim_cell_u64(PLIM_CELL_BYTES, l->bytes);
    c.mark = l->inplace ? "=" : NULL;
    return c;
}

/* clang-format off */
PLIM_GETTER(layer_model, layer_row, plim_cell_text(r->model))
PLIM_GETTER(layer_tree, layer_row, plim_cell_text(r->tree))
PLIM_GETTER(layer_bytes, plim_layer, cell_inplace(r))
PLIM_GETTER(activation_already, activation_row, plim_cell_text(r->already))
PLIM_GETTER(activation_says, activation_row, plim_cell_text(r->says))
/* clang-format on */

#include "answers/layers.def"

static plim_rows layer_table(const plim_page *p, const layer_row *rows, uint64_t n)
{
    plim_rows r = PLIM_FIGURE_ROWS(layer, rows, n);
    r.size = sizeof *rows;
    r.only = p->style.columns;
    return r;
}

/* The CSV of several models begins with their names. */
static plim_rows models_table(plim_page *p, const layer_row *rows, uint64_t n)
{
    plim_rows r = layer_table(p, rows, n);
    plim_column *columns = PLIM_NEW_N(&p->arena, plim_column, r.n_columns + 1);
    p->buf.bad |= !columns;
    if (!columns)
        return (plim_rows){0};
    columns[0] = (plim_column){.name = "model", .in = PLIM_IN_DATA, .get = layer_model};
    memcpy(columns + 1, r.columns, r.n_columns * sizeof *columns);
    r.columns = columns;
    r.n_columns++;
    return r;
}

/* ---- the tree ------------------------------------------------------------ */

enum {
    LAYER_INDENTS = 16, /* deeper levels are not indented further */
    INDENT_COLUMNS = 2, /* per level */
};

/* The path without that of the nearest row above that contains it. */
static const char *layer_short(const char *path, const char *const *above, int depth)
{
    for (int d = PLIM_MIN(depth, LAYER_INDENTS) - 1; d >= 0; d--) {
        size_t n = above[d] ? strlen(above[d]) : 0;
        if (n && strncmp(path, above[d], n) == 0 && path[n] == '.')
            return path + n + 1;
    }
    return path;
}

/* Is the type in a list such as "Input,Conv2d"?  NULL lists every type. */
static bool layer_listed(const char *list, const char *type)
{
    size_t n = strlen(type ? type : "");
    for (const char *at = list; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL)
        if (strcspn(at, ",") == n && !memcmp(at, type ? type : "", n))
            return true;
    return !list;
}

/* The rows of the types and down to the depth of the style.  With a list of types, or sorted,
 * the rows are not a tree, and names are whole paths.  Sorted, no row contains another: they
 * are the leaves, and the modules at the deepest level shown. */
static plim_rows layer_rows(plim_page *p, const plim_layers *l)
{
    const char *above[LAYER_INDENTS] = {0};
    layer_row *rows = PLIM_NEW_N(&p->arena, layer_row, l->n_layers);
    bool flat = p->style.types || p->style.sort;
    uint64_t n = 0;
    p->buf.bad |= !rows;
    for (uint32_t i = 0; rows && i < l->n_layers; i++) {
        const plim_layer *at = l->layers[i];
        const char *path = at->name ? at->name : "";
        int depth = PLIM_MAX(at->depth, 0);
        int indent = flat ? 0 : PLIM_MIN(depth, LAYER_INDENTS);
        if (p->style.depth > 0 && depth > p->style.depth)
            continue;
        if (!layer_listed(p->style.types, at->type))
            continue;
        bool deepest = at->leaf || (depth && depth == p->style.depth);
        if (p->style.sort && !p->style.types && !deepest)
            continue;
        const char *name = *path ? layer_short(path, above, depth) : l->model->name;
        rows[n].of = *at;
        rows[n].model = l->model->name;
        rows[n++].tree = plim_arena_printf(&p->arena, "%*s%s", indent * INDENT_COLUMNS, "",
                                           name ? name : "")
                             .p;
        for (int d = depth; d < LAYER_INDENTS && !flat; d++)
            above[d] = d == depth ? path : NULL;
    }
    return layer_table(p, rows, n);
}

/* ---- blocks -------------------------------------------------------------- */

static void add_total(plim_page *p, const char *name, plim_text value, const char *note)
{
    plim_fact_add(p, name, plim_page_clean(p, value.s), note);
}

/* Sums the outputs of the rows shown, except those in place. */
static void add_shown_total(plim_page *p, const plim_rows *r)
{
    const layer_row *rows = r->items;
    uint64_t values = 0, bytes = 0;
    bool fits = true;
    for (uint64_t i = 0; i < r->n; i++)
        if (!rows[i].of.inplace && rows[i].of.rank >= 0)
            fits = fits && plim_add(values, rows[i].of.values, &values) &&
                   plim_add(bytes, rows[i].of.bytes, &bytes);
    if (fits)
        add_total(p, "values shown", plim_fmt_count(values),
                  plim_fmt_bytes(bytes, p->style.si).s);
}

static void add_totals(plim_page *p, const plim_layers *l, const plim_rows *r)
{
    bool si = p->style.si;
    const plim_model_info *m = l->model;
    plim_apart(p);
    plim_facts(p, (plim_facts_style){.name = 18, .value = 16});
    plim_in_quiet(p);
    add_total(p, "parameters", plim_fmt_count(m->parameters),
              plim_fmt_bytes(m->parameter_bytes, si).s);
    add_total(p, "trainable", plim_fmt_count(m->trainable_parameters), "");
    add_total(p, "buffers", plim_fmt_count(m->buffers), plim_fmt_bytes(m->buffer_bytes, si).s);
    if (p->style.types)
        add_shown_total(p, r);
    add_total(p, "output values", plim_fmt_count(l->values), plim_fmt_bytes(l->bytes, si).s);
    add_total(p, "MACs", plim_fmt_metric(l->macs), "");
    add_total(p, "FLOPs", plim_fmt_metric(l->flops), "");
    add_total(p, "read", plim_fmt_bytes(l->read, si), "");
    add_total(p, "written", plim_fmt_bytes(l->written, si), "");
}

/* ---- activations in place ------------------------------------------------ */

static const char *const gains[PLIM_GAIN_COUNT] = {
    [PLIM_GAIN_MOMENT] = "saves as much for backward; one tensor fewer during the op",
    [PLIM_GAIN_NONE] = "no gain: saves a copy of the input",
    [PLIM_GAIN_LESS] = "saves the result instead of the input",
};

static plim_rows activation_rows(plim_page *p, const plim_layers *l)
{
    activation_row *rows = PLIM_NEW_N(&p->arena, activation_row, l->n_activations);
    p->buf.bad |= !rows;
    for (uint32_t i = 0; rows && i < l->n_activations; i++) {
        const plim_activation *of = l->activations[i];
        const char *says = gains[of->gain];
        if (of->gain == PLIM_GAIN_LESS && of->bytes)
            says = plim_arena_printf(&p->arena, "%s: up to %s less", says,
                                     plim_fmt_bytes(of->bytes, p->style.si).s)
                       .p;
        rows[i] = (activation_row){
            *of,
            plim_arena_printf(&p->arena, "%" PRIu32 " of %" PRIu32, of->inplace, of->count).p,
            says};
    }
    plim_rows r = PLIM_FIGURE_ROWS(activation, rows, rows ? l->n_activations : 0);
    r.size = sizeof *rows;
    return r;
}

static bool has_inplace_rows(const plim_rows *r)
{
    const layer_row *rows = r->items;
    for (uint64_t i = 0; i < r->n; i++)
        if (rows[i].of.inplace)
            return true;
    return false;
}

/* Sorts the rows and cuts them to the number that the style asks for. */
static plim_status arrange_layers(plim_page *p, plim_rows *r, plim_err *err)
{
    plim_status st = PLIM_OK;
    if (!r->n && p->style.types)
        return plim_fail(err, PLIM_EUSAGE, 0, "no layer has one of the types '%s'",
                         p->style.types);
    if (p->style.sort)
        st = plim_rows_sort(p, r, p->style.sort, err);
    if (p->rows)
        r->n = PLIM_MIN(r->n, (uint64_t)p->rows);
    return st;
}

/* `named`: among others; `rows` are those of the model. */
static void add_layers(plim_page *p, const plim_layers *l, plim_rows rows, bool named)
{
    plim_report_model_line(p, l->model);
    if (named)
        plim_in_quiet(p);
    plim_apart(p);
    plim_table(p, rows, 0);
    if (has_inplace_rows(&rows))
        plim_paragraph(p, PLIM_PAINT_PLAIN, "= in place: overwrites its input", 0);
    add_totals(p, l, &rows);
    if (l->n_activations) {
        plim_apart(p);
        plim_table(p, activation_rows(p, l), 0);
    }
    plim_data(p, "plimsoll/layers/1", plim_layers_figures, l, &rows, 1);
}

/* The rows of all models in one table. */
static plim_status layers_build(plim_page *p, const void *subject, plim_err *err)
{
    const layers_list *list = subject;
    uint64_t most = 0, n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        most += list->of[i]->n_layers;
    layer_row *all = PLIM_NEW_N(&p->arena, layer_row, most);
    if (!all)
        return plim_oom(err);
    for (uint32_t i = 0; i < list->n; i++) {
        plim_rows rows = layer_rows(p, list->of[i]);
        if (!rows.items)
            return plim_oom(err);
        PLIM_TRY(arrange_layers(p, &rows, err));
        if (rows.n)
            memcpy(all + n, rows.items, (size_t)(rows.n * sizeof *all));
        n += rows.n;
        p->apart = i > 0;
        add_layers(p, list->of[i], rows, list->n > 1);
    }
    plim_sheet(p, list->n > 1 ? models_table(p, all, n) : layer_table(p, all, n));
    return PLIM_OK;
}

static const plim_model_info *layers_model(const void *subject, uint32_t i)
{
    const layers_list *all = subject;
    return i < all->n ? all->of[i]->model : NULL;
}

plim_status plim_layers_print_all(const plim_layers *const *list, uint32_t n, plim_render r,
                                  const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "layers", .model = layers_model, .build = layers_build};
    const layers_list all = {list, n};
    bool whole = list && n;
    for (uint32_t i = 0; i < n && whole; i++)
        whole = list[i] != NULL;
    return plim_report_print(&report, whole ? &all : NULL, r, st, put, ud, err);
}

plim_status plim_layers_print(const plim_layers *l, plim_render r, const plim_style *st,
                              plim_put put, void *ud, plim_err *err)
{
    return plim_layers_print_all(&l, 1, r, st, put, ud, err);
}
