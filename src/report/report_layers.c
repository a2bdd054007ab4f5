/* report_layers.c -- the layers of a model as a tree with columns. */
#include "report/report.h"

/* The models of a report. */
typedef struct layers_list {
    const plim_layers *const *of;
    uint32_t n;
} layers_list;

typedef struct layer_row {
    const plim_layer *layer;
    const char *model;
    const char *tree; /* name indented by depth, without the path of its parent */
} layer_row;

static plim_cell layer_inplace(const plim_layer *l)
{
    plim_cell c = plim_cell_u64(PLIM_CELL_BYTES, l->output_bytes);
    c.mark = l->inplace ? "=" : NULL;
    return c;
}

/* clang-format off */
PLIM_GETTER(layer_model, layer_row, plim_cell_text(r->model))
PLIM_GETTER(layer_tree, layer_row, plim_cell_text(r->tree))
PLIM_GETTER(layer_path, layer_row, plim_cell_text(r->layer->path))
PLIM_GETTER(layer_type, layer_row, plim_cell_text(r->layer->type))
PLIM_GETTER(layer_depth, layer_row, plim_cell_int(r->layer->depth))
PLIM_GETTER(layer_leaf, layer_row, plim_cell_bool(r->layer->leaf))
PLIM_GETTER(layer_in_place, layer_row, plim_cell_bool(r->layer->inplace))
PLIM_GETTER(layer_dtype, layer_row, plim_cell_text(plim_dtype_name(r->layer->dtype)))
PLIM_GETTER(layer_shape, layer_row, plim_cell_shape(r->layer->rank, r->layer->dim))
PLIM_GETTER(layer_params, layer_row, plim_cell_u64(PLIM_CELL_COUNT, r->layer->parameters))
PLIM_GETTER(layer_parameter_bytes, layer_row, plim_cell_u64(PLIM_CELL_BYTES, r->layer->parameter_bytes))
PLIM_GETTER(layer_weights, layer_row, plim_cell_u64(PLIM_CELL_COUNT, r->layer->weights))
PLIM_GETTER(layer_values, layer_row, plim_cell_u64(PLIM_CELL_COUNT, r->layer->output_elements))
PLIM_GETTER(layer_bytes, layer_row, layer_inplace(r->layer))
PLIM_GETTER(layer_macs, layer_row, plim_cell_u64(PLIM_CELL_METRIC, r->layer->macs))
PLIM_GETTER(layer_flops, layer_row, plim_cell_u64(PLIM_CELL_METRIC, r->layer->flops))
PLIM_GETTER(layer_read, layer_row, plim_cell_u64(PLIM_CELL_BYTES, r->layer->read))
PLIM_GETTER(layer_written, layer_row, plim_cell_u64(PLIM_CELL_BYTES, r->layer->written))

static const plim_column layer_columns[] = {
    /* name             title         in            align          least drop             get */
    PLIM_COLUMN("model",           "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_model),
    PLIM_COLUMN("name",            "layer",        PLIM_IN_TEXT, PLIM_CUT_HEAD, 12, 0,               layer_tree),
    PLIM_COLUMN("name",            "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_path),
    PLIM_COLUMN("type",            "type",         PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 1,               layer_type),
    PLIM_COLUMN("depth",           "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_depth),
    PLIM_COLUMN("leaf",            "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_leaf),
    PLIM_COLUMN("inplace",         "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_in_place),
    PLIM_COLUMN("dtype",           "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_dtype),
    PLIM_COLUMN("shape",           "output shape", PLIM_IN_BOTH, PLIM_CUT_TAIL, 14, 0,               layer_shape),
    PLIM_COLUMN("params",          "parameters",   PLIM_IN_BOTH, PLIM_RIGHT,    0,  0,               layer_params),
    PLIM_COLUMN("parameter_bytes", "",             PLIM_IN_DATA, PLIM_LEFT,     0,  0,               layer_parameter_bytes),
    PLIM_COLUMN("weights",         "weights",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  PLIM_ON_REQUEST, layer_weights),
    PLIM_COLUMN("values",          "values",       PLIM_IN_BOTH, PLIM_RIGHT,    0,  PLIM_ON_REQUEST, layer_values),
    PLIM_COLUMN("bytes",           "output",       PLIM_IN_BOTH, PLIM_RIGHT,    0,  2,               layer_bytes),
    PLIM_COLUMN("macs",            "MACs",         PLIM_IN_BOTH, PLIM_RIGHT,    0,  0,               layer_macs),
    PLIM_COLUMN("flops",           "FLOPs",        PLIM_IN_BOTH, PLIM_RIGHT,    0,  PLIM_ON_REQUEST, layer_flops),
    PLIM_COLUMN("read",            "read",         PLIM_IN_BOTH, PLIM_RIGHT,    0,  3,               layer_read),
    PLIM_COLUMN("written",         "written",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  4,               layer_written),
};
/* clang-format on */

/* Only the CSV of several models has the first column. */
static plim_rows layer_table(const plim_page *p, const layer_row *rows, uint64_t n,
                             bool models)
{
    return (plim_rows){.columns = layer_columns + !models,
                       .n_columns = PLIM_COUNT(layer_columns) - !models,
                       .items = rows,
                       .size = sizeof *rows,
                       .n = n,
                       .only = p->style.columns};
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
    layer_row *rows = PLIM_NEW_N(&p->arena, layer_row, l->n);
    bool flat = p->style.types || p->style.sort;
    uint64_t n = 0;
    p->buf.bad |= !rows;
    for (uint32_t i = 0; rows && i < l->n; i++) {
        const plim_layer *at = l->rows[i];
        const char *path = at->path ? at->path : "";
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
        rows[n].layer = at;
        rows[n].model = l->model->name;
        rows[n++].tree = plim_arena_printf(&p->arena, "%*s%s", indent * INDENT_COLUMNS, "",
                                           name ? name : "")
                             .p;
        for (int d = depth; d < LAYER_INDENTS && !flat; d++)
            above[d] = d == depth ? path : NULL;
    }
    return layer_table(p, rows, n, false);
}

/* ---- renderings ---------------------------------------------------------- */

static void print_total(plim_page *p, const char *name, plim_text value, const char *note)
{
    enum { NAME = 18, VALUE = 16 }; /* columns */
    plim_page_field(p, plim_str_of(name), NAME, false);
    plim_page_field(p, plim_str_of(value.s), VALUE, true);
    if (*note)
        plim_buf_printf(&p->buf, "  %s", note);
    plim_page_puts(p, "\n");
}

/* Sums the outputs of the rows shown, except those in place. */
static void print_shown_total(plim_page *p, const plim_rows *r)
{
    const layer_row *rows = r->items;
    uint64_t values = 0, bytes = 0;
    bool fits = true;
    for (uint64_t i = 0; i < r->n; i++)
        if (!rows[i].layer->inplace && rows[i].layer->rank >= 0)
            fits = fits && plim_add(values, rows[i].layer->output_elements, &values) &&
                   plim_add(bytes, rows[i].layer->output_bytes, &bytes);
    if (fits)
        print_total(p, "values shown", plim_fmt_count(values),
                    plim_fmt_bytes(bytes, p->style.si).s);
}

static void print_totals(plim_page *p, const plim_layers *l, const plim_rows *r)
{
    bool si = p->style.si;
    const plim_model_info *m = l->model;
    plim_page_puts(p, "\n");
    print_total(p, "parameters", plim_fmt_count(m->parameters),
                plim_fmt_bytes(m->parameter_bytes, si).s);
    print_total(p, "trainable", plim_fmt_count(m->trainable_parameters), "");
    print_total(p, "buffers", plim_fmt_count(m->buffers),
                plim_fmt_bytes(m->buffer_bytes, si).s);
    if (p->style.types)
        print_shown_total(p, r);
    print_total(p, "output values", plim_fmt_count(l->output_elements),
                plim_fmt_bytes(l->output_bytes, si).s);
    print_total(p, "MACs", plim_fmt_metric(l->macs), "");
    print_total(p, "FLOPs", plim_fmt_metric(l->flops), "");
    print_total(p, "read", plim_fmt_bytes(l->read, si), "");
    print_total(p, "written", plim_fmt_bytes(l->written, si), "");
}

/* ---- activations in place ------------------------------------------------ */

typedef struct activation_row {
    const plim_activation *of;
    const char *already, *says; /* "2 of 3"; the effect of inplace=True */
} activation_row;

static const struct {
    const char *name, *says;
} gains[PLIM_GAIN_COUNT] = {
    [PLIM_GAIN_MOMENT] = {"moment",
                          "saves no less for backward; one tensor less during the op"},
    [PLIM_GAIN_NONE] = {"none", "no gain: saves a copy of the input"},
    [PLIM_GAIN_LESS] = {"less", "saves the result instead of the input"},
};

/* clang-format off */
PLIM_GETTER(activation_op, activation_row, plim_cell_text(r->of->op))
PLIM_GETTER(activation_already, activation_row, plim_cell_text(r->already))
PLIM_GETTER(activation_says, activation_row, plim_cell_text(r->says))
PLIM_GETTER(activation_gain, activation_row, plim_cell_text(gains[r->of->gain].name))
PLIM_GETTER(activation_count, activation_row, plim_cell_u64(PLIM_CELL_COUNT, r->of->count))
PLIM_GETTER(activation_inplace, activation_row, plim_cell_u64(PLIM_CELL_COUNT, r->of->inplace))
PLIM_GETTER(activation_bytes, activation_row, plim_cell_u64(PLIM_CELL_BYTES, r->of->bytes))

static const plim_column activation_columns[] = {
    /* name     title         in            align          least drop get */
    PLIM_COLUMN("op",      "activation", PLIM_IN_BOTH, PLIM_LEFT,     0,    0,   activation_op),
    PLIM_COLUMN("already", "in place",   PLIM_IN_TEXT, PLIM_LEFT,     0,    0,   activation_already),
    PLIM_COLUMN("says",    "inplace=True in training", PLIM_IN_TEXT, PLIM_CUT_TAIL, 12, 1, activation_says),
    PLIM_COLUMN("gain",    "",           PLIM_IN_DATA, PLIM_LEFT,     0,    0,   activation_gain),
    PLIM_COLUMN("count",   "",           PLIM_IN_DATA, PLIM_LEFT,     0,    0,   activation_count),
    PLIM_COLUMN("inplace", "",           PLIM_IN_DATA, PLIM_LEFT,     0,    0,   activation_inplace),
    PLIM_COLUMN("bytes",   "",           PLIM_IN_DATA, PLIM_LEFT,     0,    0,   activation_bytes),
};
/* clang-format on */

static plim_rows activation_rows(plim_page *p, const plim_layers *l)
{
    activation_row *rows = PLIM_NEW_N(&p->arena, activation_row, l->n_activations);
    p->buf.bad |= !rows;
    for (uint32_t i = 0; rows && i < l->n_activations; i++) {
        const plim_activation *of = l->activations[i];
        const char *says = gains[of->gain].says;
        if (of->gain == PLIM_GAIN_LESS && of->bytes)
            says = plim_arena_printf(&p->arena, "%s: up to %s less", says,
                                     plim_fmt_bytes(of->bytes, p->style.si).s)
                       .p;
        rows[i] = (activation_row){
            of,
            plim_arena_printf(&p->arena, "%" PRIu32 " of %" PRIu32, of->inplace, of->count).p,
            says};
    }
    return (plim_rows){.columns = activation_columns,
                       .n_columns = PLIM_COUNT(activation_columns),
                       .items = rows,
                       .size = sizeof *rows,
                       .n = rows ? l->n_activations : 0};
}

static plim_status layers_activations(plim_page *p, const plim_layers *l, plim_err *err)
{
    plim_rows r = activation_rows(p, l);
    if (!r.n)
        return PLIM_OK;
    plim_page_puts(p, "\n");
    return plim_rows_text(p, &r, 0, err);
}

static bool has_inplace_rows(const plim_rows *r)
{
    const layer_row *rows = r->items;
    for (uint64_t i = 0; i < r->n; i++)
        if (rows[i].layer->inplace)
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

static plim_status print_layers(plim_page *p, const plim_layers *l, bool named, plim_err *err)
{
    plim_rows r = layer_rows(p, l);
    plim_status st = arrange_layers(p, &r, err);
    if (!st && (named || !p->style.quiet))
        plim_report_model_line(p, l->model);
    if (!st && !p->style.quiet) {
        plim_page_puts(p, "\n");
        st = plim_rows_text(p, &r, 0, err);
        if (!st && has_inplace_rows(&r))
            plim_page_puts(p, "= in place: overwrites its input\n");
    }
    if (!st)
        print_totals(p, l, &r);
    if (!st && !p->style.quiet)
        st = layers_activations(p, l, err);
    return st;
}

static plim_status layers_text(plim_page *p, const void *subject, plim_err *err)
{
    const layers_list *list = subject;
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < list->n && !st; i++) {
        plim_page_puts(p, i ? "\n" : "");
        st = print_layers(p, list->of[i], list->n > 1, err);
    }
    return st;
}

/* The rows of all models in one table. */
static plim_status layers_csv(plim_page *p, const void *subject, plim_err *err)
{
    const layers_list *list = subject;
    uint64_t most = 0, n = 0;
    for (uint32_t i = 0; i < list->n; i++)
        most += list->of[i]->n;
    layer_row *rows = PLIM_NEW_N(&p->arena, layer_row, most);
    if (!rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < list->n; i++) {
        plim_rows r = layer_rows(p, list->of[i]);
        plim_status st = arrange_layers(p, &r, err);
        if (st)
            return st;
        if (r.n)
            memcpy(rows + n, r.items, (size_t)(r.n * sizeof *rows));
        n += r.n;
    }
    plim_rows all = layer_table(p, rows, n, list->n > 1);
    return plim_rows_csv(p, &all, err);
}

static plim_status write_layers(plim_page *p, plim_jw *w, const plim_layers *l, plim_err *err)
{
    const struct {
        const char *key;
        uint64_t n;
    } totals[] = {{"values", l->output_elements},
                  {"bytes", l->output_bytes},
                  {"macs", l->macs},
                  {"flops", l->flops},
                  {"read", l->read},
                  {"written", l->written}};
    plim_rows r = layer_rows(p, l);
    plim_status st = arrange_layers(p, &r, err);
    if (st)
        return st;
    plim_report_json_begin(w, "plimsoll/layers/1", l->model);
    plim_jw_key(w, "settings");
    plim_settings_write(w, l->settings, "layers");
    plim_rows_json(w, "layers", &r);
    plim_rows activations = activation_rows(p, l);
    plim_rows_json(w, "activations", &activations);
    plim_jw_key(w, "total");
    plim_jw_object(w);
    for (size_t i = 0; i < PLIM_COUNT(totals); i++) {
        plim_jw_key(w, totals[i].key);
        plim_jw_u64(w, totals[i].n);
    }
    plim_jw_end(w);
    plim_jw_end(w);
    return PLIM_OK;
}

static plim_status layers_json(plim_page *p, const void *subject, plim_err *err)
{
    const layers_list *list = subject;
    plim_status st = PLIM_OK;
    plim_jw w;
    plim_jw_init(&w, &p->buf);
    if (list->n > 1)
        plim_jw_array(&w);
    for (uint32_t i = 0; i < list->n && !st; i++)
        st = write_layers(p, &w, list->of[i], err);
    if (list->n > 1)
        plim_jw_end(&w);
    plim_page_puts(p, "\n");
    return st;
}

plim_status plim_layers_print_all(const plim_layers *const *list, uint32_t n, plim_render r,
                                  const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "layers", .text = layers_text, .json = layers_json, .csv = layers_csv};
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

plim_status plim_layers_json(const plim_layers *l, plim_put put, void *ud, plim_err *err)
{
    return plim_layers_print(l, PLIM_JSON, NULL, put, ud, err);
}
