/* report_info.c -- the contents of a file. */
#include "report/report.h"

enum { INFO_DEPTH = 2 }; /* levels of modules shown by default */

/* clang-format off */
PLIM_GETTER(info_sum_name, plim_info_sum, plim_cell_text(r->depth || *r->name ? r->name : "all"))
PLIM_GETTER(info_sum_path, plim_info_sum, plim_cell_text(r->name))
PLIM_GETTER(info_sum_depth, plim_info_sum, plim_cell_int(r->depth))
PLIM_GETTER(info_sum_tensors, plim_info_sum, plim_cell_u64(PLIM_CELL_COUNT, r->tensors))
PLIM_GETTER(info_sum_elements, plim_info_sum, plim_cell_u64(PLIM_CELL_COUNT, r->elements))
PLIM_GETTER(info_sum_bytes, plim_info_sum, plim_cell_u64(PLIM_CELL_BYTES, r->bytes))

#define INFO_SUMS \
    PLIM_COLUMN("tensors",  "tensors",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, info_sum_tensors), \
    PLIM_COLUMN("elements", "elements", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, info_sum_elements), \
    PLIM_COLUMN("bytes",    "bytes",    PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, info_sum_bytes)
static const plim_column kind_columns[] = {
    PLIM_COLUMN("kind", "kind", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, info_sum_name), INFO_SUMS,
};
static const plim_column type_columns[] = {
    PLIM_COLUMN("type", "type", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, info_sum_name), INFO_SUMS,
};
static const plim_column module_columns[] = {
    PLIM_COLUMN("name",  "module", PLIM_IN_TEXT, PLIM_CUT_HEAD, 16, 0, info_sum_name),
    PLIM_COLUMN("name",  "",       PLIM_IN_DATA, PLIM_LEFT,     0,  0, info_sum_path),
    PLIM_COLUMN("depth", "",       PLIM_IN_DATA, PLIM_LEFT,     0,  0, info_sum_depth), INFO_SUMS,
};

PLIM_GETTER(info_name, plim_info_tensor, plim_cell_text(r->name))
PLIM_GETTER(info_type, plim_info_tensor, plim_cell_text(r->type))
PLIM_GETTER(info_kind, plim_info_tensor, plim_cell_text(plim_item_kind_name(r->kind)))
PLIM_GETTER(info_shape, plim_info_tensor, plim_cell_shape(r->rank, r->dim))
PLIM_GETTER(info_elements, plim_info_tensor, plim_cell_u64(PLIM_CELL_COUNT, r->elements))
PLIM_GETTER(info_bytes, plim_info_tensor, plim_cell_u64(PLIM_CELL_BYTES, r->bytes))
PLIM_GETTER(info_same_as, plim_info_tensor, r->same_as ? plim_cell_text(r->same_as) : (plim_cell){.kind = PLIM_CELL_UNKNOWN})

static const plim_column tensor_columns[] = {
    PLIM_COLUMN("name",     "tensor", PLIM_IN_BOTH, PLIM_CUT_HEAD, 16, 0, info_name),
    PLIM_COLUMN("kind",     "kind", PLIM_IN_BOTH, PLIM_LEFT, 0, 1, info_kind),
    PLIM_COLUMN("type",     "type", PLIM_IN_BOTH, PLIM_LEFT, 0, 0, info_type),
    PLIM_COLUMN("shape",    "shape", PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 0, info_shape),
    PLIM_COLUMN("elements", "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, info_elements),
    PLIM_COLUMN("bytes",    "bytes", PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, info_bytes),
    PLIM_COLUMN("same_as",  "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, info_same_as),
};
static const plim_column input_columns[] = {
    PLIM_COLUMN("name",  "input", PLIM_IN_BOTH, PLIM_CUT_HEAD, 12, 0, info_name),
    PLIM_COLUMN("type",  "type",  PLIM_IN_BOTH, PLIM_LEFT,     0,  0, info_type),
    PLIM_COLUMN("shape", "shape", PLIM_IN_BOTH, PLIM_CUT_TAIL, 12, 0, info_shape),
};

PLIM_GETTER(info_dim_name, plim_info_dim, plim_cell_text(r->name))
PLIM_GETTER(info_dim_value, plim_info_dim, r->value ? plim_cell_int(r->value) : (plim_cell){.kind = PLIM_CELL_UNKNOWN})
static const plim_column dim_columns[] = {
    PLIM_COLUMN("name",  "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, info_dim_name),
    PLIM_COLUMN("value", "", PLIM_IN_DATA, PLIM_LEFT, 0, 0, info_dim_value),
};
/* clang-format on */

/* ---- the rows shown in text ------------------------------------------------- */

/* The kinds with tensors, and always the parameters. */
static plim_rows info_kinds(plim_page *p, const plim_info *i)
{
    const plim_info_sum **rows = PLIM_NEW_N(&p->arena, const plim_info_sum *, i->n_held);
    uint64_t n = 0;
    p->buf.bad |= !rows;
    for (uint32_t k = 0; rows && k < i->n_held; k++)
        if (i->held[k]->tensors || k == PLIM_ITEM_PARAMETER)
            rows[n++] = i->held[k];
    return PLIM_ROWS_OF(kind_columns, rows, n);
}

/* The modules down to the depth of the style, without the row of the whole model. */
static plim_rows info_modules(plim_page *p, const plim_info *i)
{
    const plim_info_sum **rows = PLIM_NEW_N(&p->arena, const plim_info_sum *, i->n_modules);
    int depth = p->style.depth > 0 ? p->style.depth : INFO_DEPTH;
    uint64_t n = 0;
    p->buf.bad |= !rows;
    for (uint32_t k = 0; rows && k < i->n_modules; k++)
        if (i->modules[k]->depth && i->modules[k]->depth <= depth)
            rows[n++] = i->modules[k];
    return PLIM_ROWS_OF(module_columns, rows, n);
}

/* The tensors of the file, in its order, or the largest of them. */
static plim_status info_tensors(plim_page *p, const plim_info *i, plim_rows *out,
                                plim_err *err)
{
    *out = PLIM_ROWS_OF(tensor_columns, i->tensors, i->n_tensors);
    if (!p->rows)
        return PLIM_OK;
    plim_status st = plim_rows_sort(p, out, "bytes", err);
    out->n = PLIM_MIN(out->n, (uint64_t)p->rows);
    return st;
}

/* ---- text -------------------------------------------------------------------- */

static void info_head(plim_page *p, const plim_info *i)
{
    plim_flow f = plim_flow_open(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), 0);
    plim_page_paint(p, PLIM_PAINT_BOLD);
    plim_flow_add(&f, plim_page_clean(p, i->name));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_flow_printf(&f, "%s", *i->format ? i->format : i->reader ? i->reader : "built-in");
    if (*i->producer)
        plim_flow_printf(&f, "%s", i->producer);
    if (i->file_bytes)
        plim_flow_printf(&f, "%s", plim_fmt_bytes(i->file_bytes, p->style.si).s);
    plim_flow_end(&f);
}

static void info_facts(plim_page *p, const plim_info *i)
{
    uint32_t wide = 0;
    for (uint32_t k = 0; k < i->n_facts; k++)
        wide = PLIM_MAX(wide, (uint32_t)strlen(i->facts[k]->key));
    wide = PLIM_MIN(wide, p->width / 2);
    if (i->n_facts)
        plim_page_puts(p, "\n");
    for (uint32_t k = 0; k < i->n_facts; k++) {
        plim_page_field(p, plim_page_clean(p, i->facts[k]->key), wide, false);
        plim_page_puts(p, "  ");
        plim_str value = plim_page_clean(p, i->facts[k]->value);
        value = plim_page_cut(p, value, p->width - wide - 2, false);
        plim_buf_add(&p->buf, value);
        plim_page_puts(p, "\n");
    }
}

static plim_status info_table(plim_page *p, const plim_rows *r, plim_err *err)
{
    if (!r->n)
        return PLIM_OK;
    plim_page_puts(p, "\n");
    return plim_rows_text(p, r, 0, err);
}

/* "symbolic sizes (--dim NAME=N): batch (2), s0 (required)" */
static void info_dims(plim_page *p, const plim_info *i)
{
    const char *before = "symbolic sizes (--dim NAME=N): ";
    if (!i->n_dims)
        return;
    plim_page_puts(p, "\n");
    plim_flow f = plim_flow_open(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_dims; k++, before = "")
        if (i->dims[k]->value)
            plim_flow_printf(&f, "%s%s (%" PRId64 ")", before, i->dims[k]->name,
                             i->dims[k]->value);
        else
            plim_flow_printf(&f, "%s%s (required)", before, i->dims[k]->name);
    plim_flow_end(&f);
}

static void info_notes(plim_page *p, const plim_info *i)
{
    const char *before = "ops without a rule: ";
    if (i->n_unknown_targets || i->n_notes)
        plim_page_puts(p, "\n");
    plim_flow f = plim_flow_open(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_unknown_targets; k++, before = "")
        plim_flow_printf(&f, "%s%s", before, i->unknown_targets[k]);
    if (i->n_unknown_targets)
        plim_flow_end(&f);
    for (uint32_t k = 0; k < i->n_notes; k++)
        plim_page_wrap(p, i->notes[k], 2);
}

static plim_status info_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_info *i = subject;
    plim_rows kinds = info_kinds(p, i), modules = info_modules(p, i),
              types = PLIM_ROWS_OF(type_columns, i->types, i->n_types),
              inputs = PLIM_ROWS_OF(input_columns, i->inputs, i->n_inputs);
    if (!p->style.quiet) {
        info_head(p, i);
        info_facts(p, i);
    }
    plim_status st =
        p->style.quiet ? plim_rows_text(p, &kinds, 0, err) : info_table(p, &kinds, err);
    if (st || p->style.quiet)
        return st;
    if (p->style.tensors) {
        plim_rows tensors;
        st = info_tensors(p, i, &tensors, err);
        return st ? st : info_table(p, &tensors, err);
    }
    if (i->n_types > 1 || i->held[PLIM_ITEM_PARAMETER]->tensors)
        st = info_table(p, &types, err);
    if (!st)
        st = info_table(p, &modules, err);
    if (!st)
        st = info_table(p, &inputs, err);
    info_dims(p, i);
    info_notes(p, i);
    return st;
}

/* ---- data -------------------------------------------------------------------- */

static void info_json_list(plim_jw *w, const char *key, const char *const *list, uint32_t n)
{
    plim_jw_key(w, key);
    plim_jw_array(w);
    for (uint32_t k = 0; k < n; k++)
        plim_jw_cstr(w, list[k]);
    plim_jw_end(w);
}

static plim_status info_json(plim_page *p, const void *subject, plim_err *err)
{
    const plim_info *i = subject;
    plim_rows kinds = info_kinds(p, i);
    plim_rows types = PLIM_ROWS_OF(type_columns, i->types, i->n_types),
              modules = PLIM_ROWS_OF(module_columns, i->modules, i->n_modules), tensors,
              inputs = PLIM_ROWS_OF(input_columns, i->inputs, i->n_inputs),
              dims = PLIM_ROWS_OF(dim_columns, i->dims, i->n_dims);
    plim_jw w;
    plim_status st = info_tensors(p, i, &tensors, err);
    if (st)
        return st;
    plim_report_json_open(&w, p, "plimsoll/info/1", NULL);
    const struct {
        const char *key, *text;
    } texts[] = {{"name", i->name},
                 {"reader", i->reader},
                 {"format", i->format},
                 {"producer", *i->producer ? i->producer : NULL}};
    for (size_t k = 0; k < PLIM_COUNT(texts); k++) {
        plim_jw_key(&w, texts[k].key);
        plim_jw_cstr(&w, texts[k].text);
    }
    plim_jw_key(&w, "file_bytes");
    plim_jw_u64(&w, i->file_bytes);
    plim_jw_key(&w, "graph");
    plim_jw_bool(&w, i->graph);
    plim_jw_key(&w, "ops");
    plim_jw_u64(&w, i->ops);
    info_json_list(&w, "unknown_ops", i->unknown_targets, i->n_unknown_targets);
    plim_jw_key(&w, "facts");
    plim_jw_object(&w);
    for (uint32_t k = 0; k < i->n_facts; k++) {
        plim_jw_key(&w, i->facts[k]->key);
        plim_jw_cstr(&w, i->facts[k]->value);
    }
    plim_jw_end(&w);
    plim_rows_json(&w, "holds", &kinds);
    plim_rows_json(&w, "types", &types);
    plim_rows_json(&w, "modules", &modules);
    plim_rows_json(&w, "inputs", &inputs);
    plim_rows_json(&w, "open_sizes", &dims);
    info_json_list(&w, "notes", i->notes, i->n_notes);
    plim_rows_json(&w, "tensors", &tensors);
    plim_report_json_close(&w);
    return PLIM_OK;
}

static plim_status info_csv(plim_page *p, const void *subject, plim_err *err)
{
    const plim_info *i = subject;
    plim_rows tensors;
    plim_status st = info_tensors(p, i, &tensors, err);
    return st ? st : plim_rows_csv(p, &tensors, err);
}

plim_status plim_info_print(const plim_info *i, plim_render r, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "info", .text = info_text, .json = info_json, .csv = info_csv};
    return plim_report_print(&report, i, r, st, put, ud, err);
}

plim_status plim_info_json(const plim_info *i, plim_put put, void *ud, plim_err *err)
{
    return plim_info_print(i, PLIM_JSON, NULL, put, ud, err);
}
