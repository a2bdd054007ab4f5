/* rows.c -- renders a list of rows as text and CSV: see report.h. */
#include "report/report.h"

#include <stdio.h>
#include <stdlib.h>

/* ---- choice of columns --------------------------------------------------- */

static const plim_column *rows_find(const plim_rows *r, plim_str name, uint8_t in)
{
    for (size_t i = 0; i < r->n_columns; i++)
        if ((plim_column_in(&r->columns[i]) & in) && plim_str_is(name, r->columns[i].name))
            return &r->columns[i];
    return NULL;
}

static plim_status rows_no_column(const plim_rows *r, plim_str name, uint8_t in, uint64_t at,
                                  plim_err *err)
{
    enum { SHOWN = 40 }; /* characters of an unknown name */
    char all[160];
    size_t n = 0;
    for (size_t i = 0; i < r->n_columns; i++) {
        const plim_column *c = &r->columns[i];
        size_t len = strlen(c->name);
        if (!(plim_column_in(c) & in) || len + 2 > sizeof all - n)
            continue;
        if (n)
            all[n++] = ',';
        memcpy(all + n, c->name, len);
        n += len;
    }
    return plim_fail(err, PLIM_EUSAGE, at, "unknown column '%.*s' (expected some of %.*s)",
                     (int)PLIM_MIN(name.n, SHOWN), name.p, (int)n, all);
}

/* Is the name in a list such as "type,shape"?  NULL is an empty one. */
static bool is_listed(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (const char *z = list; z; z = strchr(z, ',') ? strchr(z, ',') + 1 : NULL)
        if (strcspn(z, ",") == n && !memcmp(z, name, n))
            return true;
    return false;
}

/* Is the column shown where none is named? */
static bool is_default(const plim_rows *r, const plim_column *c, uint8_t in)
{
    return (plim_column_in(c) & in) &&
           (in == PLIM_IN_DATA ||
            (c->drop != PLIM_ON_REQUEST && !is_listed(r->hidden, c->name)));
}

plim_status plim_rows_pick(const plim_rows *r, uint8_t in, plim_pick *pick, plim_err *err)
{
    plim_assert(r->n_columns <= PLIM_COLUMNS_MAX);
    pick->n = 0;
    if (!r->only || !*r->only) {
        for (size_t i = 0; i < r->n_columns; i++) {
            const plim_column *c = &r->columns[i];
            if (is_default(r, c, in))
                pick->column[pick->n++] = c;
        }
        return PLIM_OK;
    }
    for (const char *z = r->only; *z;) {
        plim_str name = {z, strcspn(z, ",")};
        const plim_column *c = rows_find(r, name, in);
        uint64_t at = (uint64_t)(z - r->only);
        if (!c)
            return rows_no_column(r, name, in, at, err);
        if (pick->n == PLIM_COLUMNS_MAX)
            return plim_fail(err, PLIM_EUSAGE, at, "too many columns, the limit is %d",
                             PLIM_COLUMNS_MAX);
        pick->column[pick->n++] = c;
        z += name.n + (z[name.n] == ',');
    }
    return PLIM_OK;
}

/* ---- order --------------------------------------------------------------- */

typedef struct rows_key {
    plim_cell cell;
    uint64_t at; /* its row */
} rows_key;

/* What is unknown comes last, in either order. */
static int compare_cells(const plim_cell *x, const plim_cell *y)
{
    if (x->kind == PLIM_CELL_UNKNOWN || y->kind == PLIM_CELL_UNKNOWN)
        return (x->kind == PLIM_CELL_UNKNOWN) - (y->kind == PLIM_CELL_UNKNOWN);
    if (x->kind == PLIM_CELL_TEXT)
        return strcmp(x->text, y->text);
    if (x->real < y->real || x->real > y->real)
        return x->real < y->real ? 1 : -1;
    return (x->n < y->n) - (x->n > y->n);
}

static int compare_keys(const void *a, const void *b)
{
    const rows_key *x = a, *y = b;
    int by = compare_cells(&x->cell, &y->cell);
    return by ? by : (x->at > y->at) - (x->at < y->at);
}

static plim_status sort_rows(plim_page *p, plim_rows *r, const char *column, bool least_first,
                             plim_err *err)
{
    plim_str name = plim_str_of(column);
    const plim_column *c = rows_find(r, name, PLIM_IN_DATA);
    if (!c)
        return rows_no_column(r, name, PLIM_IN_DATA, 0, err);
    size_t size = r->size ? r->size : sizeof(void *);
    rows_key *keys = PLIM_NEW_N(&p->arena, rows_key, r->n);
    char *items = plim_arena_new(&p->arena, r->n, size);
    if (!keys || !items)
        return plim_oom(err);
    for (uint64_t i = 0; i < r->n; i++) {
        keys[i] = (rows_key){plim_column_cell(c, plim_rows_at(r, i)), i};
        if (least_first) /* numbers only */
            keys[i].cell.real = -keys[i].cell.real;
        if (keys[i].cell.kind == PLIM_CELL_SHAPE)
            return plim_fail(err, PLIM_EUSAGE, 0, "cannot sort by '%s'", column);
    }
    if (r->n)
        qsort(keys, (size_t)r->n, sizeof *keys, compare_keys);
    for (uint64_t i = 0; i < r->n; i++)
        memcpy(items + i * size, (const char *)r->items + keys[i].at * size, size);
    r->items = items;
    return PLIM_OK;
}

plim_status plim_rows_sort(plim_page *p, plim_rows *r, const char *column, plim_err *err)
{
    return sort_rows(p, r, column, false, err);
}

plim_status plim_rows_order(plim_page *p, plim_rows *r, const plim_order *orders, size_t n,
                            const char *word, plim_err *err)
{
    char all[80];
    size_t at = 0;
    for (size_t i = 0; word && i < n; i++) {
        if (!strcmp(word, orders[i].word)) {
            r->only = orders[i].only;
            return sort_rows(p, r, orders[i].column, orders[i].least_first, err);
        }
        at += (size_t)snprintf(all + at, sizeof all - at, "%s%s", at ? ", " : "",
                               orders[i].word);
    }
    return word ? plim_fail(err, PLIM_EUSAGE, 0, "cannot sort by '%.40s' (expected one of %s)",
                            word, all)
                : PLIM_OK;
}

/* ---- text ---------------------------------------------------------------- */

typedef struct rows_grid {
    plim_str *cells; /* the titles, then the cells row by row */
    uint32_t width[PLIM_COLUMNS_MAX];
} rows_grid;

static bool rows_fill(plim_page *p, const plim_rows *r, const plim_pick *pick, bool tight,
                      rows_grid *g)
{
    uint64_t cells;
    if (!plim_mul(r->n + 1, pick->n, &cells) ||
        !(g->cells = PLIM_NEW_N(&p->arena, plim_str, cells)))
        return false;
    for (size_t k = 0; k < pick->n; k++) {
        g->cells[k] = plim_str_of(pick->column[k]->title);
        g->width[k] = plim_text_width(g->cells[k]);
        for (uint64_t i = 0; i < r->n; i++) {
            plim_cell c = plim_column_cell(pick->column[k], plim_rows_at(r, i));
            plim_str s = plim_cell_show(p, &c, tight);
            g->cells[(i + 1) * pick->n + k] = s;
            g->width[k] = PLIM_MAX(g->width[k], plim_text_width(s));
        }
    }
    return true;
}

/* Text stands to the left, numbers to the right, where nothing else is said. */
plim_align plim_column_align(const plim_column *c)
{
    bool word = c->kind >= PLIM_KIND_CATEGORY && c->kind <= PLIM_KIND_SHAPE;
    bool left = word || c->kind == PLIM_KIND_TEXT || c->kind == PLIM_KIND_READ_TEXT ||
                c->kind == PLIM_KIND_CARD;
    return c->align ? (plim_align)c->align : left ? PLIM_LEFT : PLIM_RIGHT;
}
static bool column_shrinks(const plim_column *c) { return c->align >= PLIM_CUT_TAIL; }
/* `brief`: where nothing else is left to do, names are cut to their first letters. */
static uint32_t column_least(const plim_column *c, uint32_t width, bool brief)
{
    enum { BRIEF = 8 };
    uint32_t title = plim_text_width(plim_str_of(c->title)),
             least = brief ? BRIEF : PLIM_MAX(c->least, title);
    return column_shrinks(c) ? PLIM_MIN(width, least) : width;
}

/* Is `a` narrowed before `b`?  Of equally important columns, the wider one is. */
static bool column_yields(const plim_column *a, uint32_t width_a, const plim_column *b,
                          uint32_t width_b)
{
    return a->drop != b->drop ? a->drop > b->drop : width_a > width_b;
}

/* Narrows columns until all that are not hidden fit in `room`; false if they do not. */
static bool rows_squeeze(const plim_pick *pick, const bool *hidden, uint32_t room, bool brief,
                         uint32_t *width)
{
    uint32_t total = 0, least = 0;
    for (size_t k = 0; k < pick->n; k++) {
        if (hidden[k])
            continue;
        uint32_t gap = total ? 2 : 0;
        total += width[k] + gap;
        least += column_least(pick->column[k], width[k], brief) + gap;
    }
    bool fits = least <= room;
    while (total > room && total > least) {
        size_t first = pick->n;
        for (size_t k = 0; k < pick->n; k++)
            if (!hidden[k] && width[k] > column_least(pick->column[k], width[k], brief) &&
                (first == pick->n ||
                 column_yields(pick->column[k], width[k], pick->column[first], width[first])))
                first = k;
        plim_assert(first < pick->n);
        width[first]--;
        total--;
    }
    return fits;
}

/* Hides the least important column; false if all that are left must stay. */
static bool rows_drop(const plim_pick *pick, bool *hidden)
{
    size_t worst = pick->n;
    for (size_t k = 0; k < pick->n; k++)
        if (!hidden[k] && pick->column[k]->drop &&
            (worst == pick->n || pick->column[k]->drop > pick->column[worst]->drop))
            worst = k;
    if (worst == pick->n)
        return false;
    hidden[worst] = true;
    return true;
}

/* Fits the table to the page: narrows columns, then hides them, except those that were
 * named; false if it is still too wide. */
static bool rows_layout(const plim_rows *r, const plim_pick *pick, uint32_t room, rows_grid *g,
                        bool *hidden)
{
    uint32_t want[PLIM_COLUMNS_MAX];
    memset(hidden, 0, PLIM_COLUMNS_MAX * sizeof *hidden);
    for (size_t k = 0; k < pick->n; k++) /* a cell is never wider than the page */
        want[k] = column_shrinks(pick->column[k]) ? PLIM_MIN(g->width[k], room) : g->width[k];
    for (;;) {
        memcpy(g->width, want, sizeof want);
        if (rows_squeeze(pick, hidden, room, false, g->width))
            return true;
        if ((r->only && *r->only) || !rows_drop(pick, hidden))
            return false;
    }
}

static void rows_line(plim_page *p, const plim_pick *pick, const rows_grid *g,
                      const bool *hidden, const plim_str *cells, uint32_t indent)
{
    plim_assert(pick->n <= PLIM_COLUMNS_MAX);
    uint64_t owed = indent; /* spaces, printed only if text follows */
    for (size_t k = 0; k < pick->n; k++) {
        if (hidden[k])
            continue;
        const plim_column *c = pick->column[k];
        plim_str s = column_shrinks(c)
                         ? plim_page_cut(p, cells[k], g->width[k], c->align == PLIM_CUT_HEAD)
                         : cells[k];
        uint64_t pad = g->width[k] - PLIM_MIN(g->width[k], plim_text_width(s));
        if (plim_column_align(c) == PLIM_RIGHT)
            owed += pad;
        if (s.n) {
            plim_buf_repeat(&p->buf, " ", owed);
            plim_buf_add(&p->buf, s);
            owed = 0;
        }
        owed += (plim_column_align(c) == PLIM_RIGHT ? 0 : pad) + 2;
    }
    plim_page_puts(p, "\n");
}

plim_status plim_rows_text(plim_page *p, const plim_rows *r, uint32_t indent, plim_err *err)
{
    plim_assert(indent < p->width);
    plim_pick pick;
    rows_grid g = {0};
    bool hidden[PLIM_COLUMNS_MAX];
    PLIM_TRY(plim_rows_pick(r, PLIM_IN_TEXT, &pick, err));
    if (!rows_fill(p, r, &pick, false, &g))
        return plim_oom(err);
    const uint32_t room = p->width - indent;
    if (!rows_layout(r, &pick, room, &g, hidden)) {
        if (!rows_fill(p, r, &pick, true, &g))
            return plim_oom(err);
        if (!rows_layout(r, &pick, room, &g, hidden))
            rows_squeeze(&pick, hidden, room, true, g.width);
    }
    plim_page_paint(p, PLIM_PAINT_DIM);
    rows_line(p, &pick, &g, hidden, g.cells, indent);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    for (uint64_t i = 0; i < r->n; i++)
        rows_line(p, &pick, &g, hidden, g.cells + (i + 1) * pick.n, indent);
    return PLIM_OK;
}

/* ---- the rest ------------------------------------------------------------ */

plim_status plim_rows_csv(plim_page *p, const plim_rows *r, plim_err *err)
{
    plim_pick pick;
    PLIM_TRY(plim_rows_pick(r, PLIM_IN_DATA, &pick, err));
    for (size_t k = 0; k < pick.n; k++)
        plim_buf_printf(&p->buf, "%s%s", k ? "," : "", pick.column[k]->name);
    const plim_cell note = plim_cell_text(p->note.p);
    plim_page_puts(p, p->note.n ? ",note\n" : "\n");
    for (uint64_t i = 0; i < r->n; i++) {
        for (size_t k = 0; k < pick.n; k++) {
            plim_cell c = plim_column_cell(pick.column[k], plim_rows_at(r, i));
            plim_page_puts(p, k ? "," : "");
            plim_cell_csv(p, &c);
        }
        if (p->note.n) {
            plim_page_puts(p, ",");
            plim_cell_csv(p, &note);
        }
        plim_page_puts(p, "\n");
    }
    return PLIM_OK;
}
