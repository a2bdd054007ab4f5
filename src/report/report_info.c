/* report_info.c -- the contents of a file. */
#include "report/blocks.h"
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

/* ---- blocks ------------------------------------------------------------------ */

static void info_head(plim_page *p, const plim_info *i)
{
    plim_line(p, plim_dot(p), 0);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s", i->name);
    plim_say(p, "%s", *i->format ? i->format : i->reader ? i->reader : "built-in");
    if (*i->producer)
        plim_say(p, "%s", i->producer);
    if (i->file_bytes)
        plim_say(p, "%s", plim_fmt_bytes(i->file_bytes, p->style.si).s);
}

static void info_facts(plim_page *p, const plim_info *i)
{
    if (!i->n_facts)
        return;
    plim_apart(p);
    plim_facts(p, (plim_facts_style){0});
    for (uint32_t k = 0; k < i->n_facts; k++)
        plim_fact_add(p, i->facts[k]->key, plim_page_clean(p, i->facts[k]->value), "");
}

static void info_table(plim_page *p, plim_rows rows)
{
    if (!rows.n)
        return;
    plim_apart(p);
    plim_table(p, rows, 0);
}

/* "symbolic sizes (--dim NAME=N): batch (2), s0 (required)" */
static void info_dims(plim_page *p, const plim_info *i)
{
    const char *before = "symbolic sizes (--dim NAME=N): ";
    if (!i->n_open_sizes)
        return;
    plim_apart(p);
    plim_line(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_open_sizes; k++, before = "")
        if (i->open_sizes[k]->value)
            plim_say(p, "%s%s (%" PRId64 ")", before, i->open_sizes[k]->name,
                     i->open_sizes[k]->value);
        else
            plim_say(p, "%s%s (required)", before, i->open_sizes[k]->name);
}

static void info_notes(plim_page *p, const plim_info *i)
{
    const char *before = "ops without a rule: ";
    if (i->n_unknown_ops || i->n_notes)
        plim_apart(p);
    if (i->n_unknown_ops)
        plim_line(p, ", ", 2);
    for (uint32_t k = 0; k < i->n_unknown_ops; k++, before = "")
        plim_say(p, "%s%s", before, i->unknown_ops[k]);
    for (uint32_t k = 0; k < i->n_notes; k++)
        plim_paragraph(p, PLIM_PAINT_PLAIN, i->notes[k], 2);
}

static void info_tables(plim_page *p, const plim_info *i, plim_rows tensors)
{
    if (p->style.tensors) {
        info_table(p, tensors);
        return;
    }
    if (i->n_types > 1 || i->holds[PLIM_ITEM_PARAMETER]->tensors)
        info_table(p, PLIM_FIGURE_ROWS(info_type, i->types, i->n_types));
    info_table(p, info_modules(p, i));
    info_table(p, PLIM_FIGURE_ROWS(info_input, i->inputs, i->n_inputs));
    info_dims(p, i);
    info_notes(p, i);
}

static plim_status info_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_info *i = subject;
    plim_rows own[2] = {info_kinds(p, i)};
    PLIM_TRY(info_tensors(p, i, &own[1], err));
    info_head(p, i);
    info_facts(p, i);
    plim_table_main(p, own[0]);
    info_tables(p, i, own[1]);
    plim_data(p, "plimsoll/info/1", plim_info_figures, i, own, PLIM_COUNT(own));
    plim_sheet(p, own[1]);
    return PLIM_OK;
}

plim_status plim_info_print(const plim_info *i, plim_render r, const plim_style *st,
                            plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "info", .build = info_build};
    return plim_report_print(&report, i, r, st, put, ud, err);
}
