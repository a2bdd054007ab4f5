/* report_info.c -- the contents of a file. */
#include "report/figures.h"

enum { INFO_DEPTH = 2 }; /* levels of modules shown by default */

PLIM_GETTER(module_name, plim_info_sum, plim_cell_text(r->depth || *r->name ? r->name : "all"))

#include "answers/info.def"

/* ---- the rows shown in text ------------------------------------------------- */

/* The kinds with tensors, and always the parameters. */
static plim_rows info_kinds(plim_page *p, const plim_info *i)
{
    const plim_info_sum **rows = PLIM_NEW_N(&p->arena, const plim_info_sum *, i->n_holds);
    uint64_t n = 0;
    p->buf.bad |= !rows;
    for (uint32_t k = 0; rows && k < i->n_holds; k++)
        if (i->holds[k]->tensors || k == PLIM_ITEM_PARAMETER)
            rows[n++] = i->holds[k];
    return PLIM_FIGURE_ROWS(info_kind, rows, n);
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
    return PLIM_FIGURE_ROWS(info_module, rows, n);
}

/* The tensors of the file, in its order, or the largest of them. */
static plim_status info_tensors(plim_page *p, const plim_info *i, plim_rows *out,
                                plim_err *err)
{
    *out = PLIM_FIGURE_ROWS(info_tensor, i->tensors, i->n_tensors);
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
    if (!i->n_open_sizes)
        return;
    plim_page_puts(p, "\n");
    plim_flow f = plim_flow_open(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_open_sizes; k++, before = "")
        if (i->open_sizes[k]->value)
            plim_flow_printf(&f, "%s%s (%" PRId64 ")", before, i->open_sizes[k]->name,
                             i->open_sizes[k]->value);
        else
            plim_flow_printf(&f, "%s%s (required)", before, i->open_sizes[k]->name);
    plim_flow_end(&f);
}

static void info_notes(plim_page *p, const plim_info *i)
{
    const char *before = "ops without a rule: ";
    if (i->n_unknown_ops || i->n_notes)
        plim_page_puts(p, "\n");
    plim_flow f = plim_flow_open(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_unknown_ops; k++, before = "")
        plim_flow_printf(&f, "%s%s", before, i->unknown_ops[k]);
    if (i->n_unknown_ops)
        plim_flow_end(&f);
    for (uint32_t k = 0; k < i->n_notes; k++)
        plim_page_wrap(p, i->notes[k], 2);
}

static plim_status info_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_info *i = subject;
    plim_rows kinds = info_kinds(p, i), modules = info_modules(p, i),
              types = PLIM_FIGURE_ROWS(info_type, i->types, i->n_types),
              inputs = PLIM_FIGURE_ROWS(info_input, i->inputs, i->n_inputs);
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
    if (i->n_types > 1 || i->holds[PLIM_ITEM_PARAMETER]->tensors)
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

static plim_status info_json(plim_page *p, const void *subject, plim_err *err)
{
    plim_rows own[3] = {info_kinds(p, subject), {0}};
    plim_status st = info_tensors(p, subject, &own[1], err);
    return st ? st : plim_report_json(p, "plimsoll/info/1", plim_info_figures, subject, own);
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
