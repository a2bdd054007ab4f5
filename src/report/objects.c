/* objects.c -- structs of the library as JSON, by their figures: see report.h. */
#include "report/report.h"

static const void *field_at(const void *of, uint16_t at) { return (const char *)of + at - 1; }

static bool is_end(const plim_column *c) { return !c->name && !c->title; }

const void *plim_rows_at(const plim_rows *r, uint64_t i)
{
    if (!r->size)
        return ((const void *const *)r->items)[i];
    return (const char *)r->items + i * r->size;
}

/* An object, by all of its figures or the first n of them. */
static void write_object(plim_jw *w, const plim_column *figures, size_t n, const void *of,
                         const plim_rows *own);

static void write_list(plim_jw *w, const plim_column *c, const void *of, const plim_rows *own)
{
    uint32_t n = *(const uint32_t *)field_at(of, c->also_at);
    plim_rows rows = {.columns = c->of, .n_columns = SIZE_MAX, .size = c->size, .n = n};
    rows.items = *(const void *const *)field_at(of, c->at);
    for (; own && own->columns; own++)
        if (own->columns == c->of)
            rows = *own;
    plim_jw_array(w);
    for (uint64_t i = 0; i < rows.n; i++)
        write_object(w, rows.columns, rows.n_columns, plim_rows_at(&rows, i), NULL);
    plim_jw_end(w);
}

static void write_texts(plim_jw *w, const plim_column *c, const void *of)
{
    const char *const *texts = *(const char *const *const *)field_at(of, c->at);
    uint32_t n = *(const uint32_t *)field_at(of, c->also_at);
    plim_jw_array(w);
    for (uint32_t i = 0; i < n; i++)
        plim_jw_cstr(w, texts[i]);
    plim_jw_end(w);
}

static void write_series(plim_jw *w, const plim_column *c, const void *of)
{
    const uint64_t *bytes = field_at(of, c->at);
    plim_jw_array(w);
    for (uint16_t i = 0; i < c->index; i++)
        if (bytes[i] == UINT64_MAX)
            plim_jw_null(w);
        else
            plim_jw_u64(w, bytes[i]);
    plim_jw_end(w);
}

static void write_pairs(plim_jw *w, const plim_column *c, const void *of)
{
    const plim_info_pair *const *pairs =
        *(const plim_info_pair *const *const *)field_at(of, c->at);
    uint32_t n = *(const uint32_t *)field_at(of, c->also_at);
    plim_jw_object(w);
    for (uint32_t i = 0; i < n; i++) {
        plim_jw_key(w, pairs[i]->key);
        plim_jw_cstr(w, pairs[i]->value);
    }
    plim_jw_end(w);
}

static void write_settings(plim_jw *w, const plim_column *c, const void *of)
{
    const plim_settings *s = *(const plim_settings *const *)field_at(of, c->at);
    if (s)
        plim_settings_write(w, s, c->command);
    else
        plim_jw_null(w);
}

static void write_ref(plim_jw *w, const plim_column *c, const void *of, const plim_rows *own)
{
    const void *at = *(const void *const *)field_at(of, c->at);
    if (c->index)
        at = ((const void *const *)at)[c->index - 1];
    if (at)
        write_object(w, c->of, SIZE_MAX, at, own);
    else
        plim_jw_null(w);
}

static void write_figure(plim_jw *w, const plim_column *c, const void *of,
                         const plim_rows *own)
{
    if (!plim_column_known(c, of)) {
        plim_jw_null(w);
        return;
    }
    switch (c->kind) {
    case PLIM_KIND_TEXTS: write_texts(w, c, of); break;
    case PLIM_KIND_SERIES: write_series(w, c, of); break;
    case PLIM_KIND_PAIRS: write_pairs(w, c, of); break;
    case PLIM_KIND_ROWS: write_list(w, c, of, own); break;
    case PLIM_KIND_PART: write_object(w, c->of, SIZE_MAX, field_at(of, c->at), own); break;
    case PLIM_KIND_REF: write_ref(w, c, of, own); break;
    case PLIM_KIND_SETTINGS: write_settings(w, c, of); break;
    default: {
        plim_cell cell = plim_column_cell(c, of);
        plim_cell_json(w, &cell);
    }
    }
}

bool plim_column_there(const plim_column *c, const void *of)
{
    if (!(plim_column_in(c) & PLIM_IN_DATA))
        return false;
    if (c->when && !*(const bool *)field_at(of, c->when))
        return false;
    if (!c->only)
        return true;
    if (c->kind == PLIM_KIND_REF)
        return *(const void *const *)field_at(of, c->only);
    plim_cell cell = plim_column_cell(&(plim_column){.kind = c->kind, .at = c->only}, of);
    return cell.kind == PLIM_CELL_TEXT ? *cell.text != '\0' : cell.n > 0;
}

static void write_members(plim_jw *w, const plim_column *figures, size_t n, const void *of,
                          const plim_rows *own)
{
    for (size_t i = 0; i < n && !is_end(&figures[i]); i++) {
        if (!plim_column_there(&figures[i], of))
            continue;
        plim_jw_key(w, figures[i].name);
        write_figure(w, &figures[i], of, own);
    }
}

static void write_object(plim_jw *w, const plim_column *figures, size_t n, const void *of,
                         const plim_rows *own)
{
    plim_jw_object(w);
    write_members(w, figures, n, of, own);
    plim_jw_end(w);
}

void plim_figures_json(plim_jw *w, const plim_column *figures, const void *of,
                       const plim_rows *own)
{
    write_members(w, figures, SIZE_MAX, of, own);
}

void plim_rows_json(plim_jw *w, const char *key, const plim_rows *r)
{
    plim_jw_key(w, key);
    plim_jw_array(w);
    for (uint64_t i = 0; i < r->n; i++)
        write_object(w, r->columns, r->n_columns, plim_rows_at(r, i), NULL);
    plim_jw_end(w);
}
