/* blocks.c -- adds blocks to a page: see blocks.h. */
#include "report/blocks.h"

/* Adds a copy of `of`.  Where memory ends, the last block stays the last; the page is bad. */
static void add_block(plim_page *p, plim_block of)
{
    plim_assert(of.kind < PLIM_BLOCK_KIND_COUNT);
    plim_block *b = PLIM_NEW(&p->arena, plim_block);
    if (!b) {
        p->buf.bad = true;
        return;
    }
    *b = of;
    b->apart = p->apart;
    p->apart = false;
    if (p->last)
        p->last->next = b;
    else
        p->first = b;
    p->last = b;
}

void plim_in_quiet(plim_page *p)
{
    plim_assert(p->buf.bad || p->last);
    if (p->last)
        p->last->quiet = p->has_quiet = true;
}

void plim_block_paint(plim_page *p, plim_paint paint)
{
    plim_assert(p->buf.bad || p->last);
    if (p->last)
        p->last->paint = paint;
}

static bool is_shown(const plim_page *p, const plim_block *b)
{
    if (b->kind >= PLIM_BLOCK_DATA || (b->if_unknown && !p->unknowns))
        return false;
    return p->style.quiet && p->has_quiet ? b->quiet : b->kind != PLIM_BLOCK_VALUE;
}

const plim_block *plim_block_shown(const plim_page *p, const plim_block *b, bool *apart)
{
    bool before =
        false; /* what is left out hands its empty line on, unless it is left out by quiet */
    for (; b && !is_shown(p, b); b = b->next)
        before = (before || b->apart) && !p->style.quiet;
    *apart = b && (before || b->apart);
    return b;
}

const plim_block *plim_block_find(const plim_block *b, plim_block_kind kind)
{
    while (b && b->kind != kind)
        b = b->next;
    return b;
}

/* ---- lines ------------------------------------------------------------------- */

void plim_line(plim_page *p, const char *gap, uint32_t indent)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_LINE, .gap = gap, .indent = indent});
}

void plim_line_whole(plim_page *p, const char *gap, uint32_t indent)
{
    plim_line(p, gap, indent);
    if (p->last)
        p->last->whole_lines = true;
}

void plim_line_lead(plim_page *p, const char *gap, const char *lead)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_LINE, .gap = gap, .lead = lead});
}

static void add_piece(plim_page *p, plim_piece of)
{
    plim_assert(p->buf.bad || !p->last || p->last->kind < PLIM_BLOCK_DATA);
    plim_piece *piece = PLIM_NEW(&p->arena, plim_piece);
    if (!piece || !p->last) {
        p->buf.bad = true;
        return;
    }
    *piece = of;
    if (p->last->last_piece)
        p->last->last_piece->next = piece;
    else
        p->last->pieces = piece;
    p->last->last_piece = piece;
}

static plim_str format_clean(plim_page *p, const char *fmt, va_list ap) PLIM_PRINTF(2, 0);
static plim_str format_clean(plim_page *p, const char *fmt, va_list ap)
{
    plim_str s = plim_arena_vprintf(&p->arena, fmt, ap);
    p->buf.bad |= !s.p;
    return s.p ? plim_page_clean(p, s.p) : PLIM_STR("");
}

/* Defines the text that the arguments after `fmt` make. */
#define FORMAT(text)                                                                          \
    va_list ap;                                                                               \
    va_start(ap, fmt);                                                                        \
    const plim_str text = format_clean(p, fmt, ap);                                           \
    va_end(ap)

void plim_say(plim_page *p, const char *fmt, ...)
{
    FORMAT(text);
    add_piece(p, (plim_piece){.text = text});
}

void plim_say_as(plim_page *p, plim_paint paint, const char *fmt, ...)
{
    FORMAT(text);
    add_piece(p, (plim_piece){.text = text, .paint = paint});
}

void plim_say_glued(plim_page *p, plim_paint paint, const char *fmt, ...)
{
    FORMAT(text);
    add_piece(p, (plim_piece){.text = text, .paint = paint, .glued = true});
}

void plim_heading(plim_page *p, plim_paint paint, const char *title)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_HEADING, .gap = " "});
    plim_say_as(p, paint, "%s", title);
}

void plim_heading_apart(plim_page *p, const char *title)
{
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_PLAIN, title);
}

void plim_paragraph(plim_page *p, plim_paint paint, const char *text, uint32_t indent)
{
    if (!text || !*text)
        return;
    add_block(p,
              (plim_block){
                  .kind = PLIM_BLOCK_PARAGRAPH, .gap = " ", .paint = paint, .indent = indent});
    plim_say(p, "%s", text);
}

void plim_paragraph_apart(plim_page *p, plim_paint paint, const char *text)
{
    if (text && *text)
        plim_apart(p);
    plim_paragraph(p, paint, text, 0);
}

void plim_code(plim_page *p, uint32_t indent, const char *fmt, ...)
{
    FORMAT(text);
    add_block(p, (plim_block){.kind = PLIM_BLOCK_CODE, .indent = indent});
    add_piece(p, (plim_piece){.text = text});
}

void plim_if_unknown(plim_page *p, const char *text)
{
    plim_paragraph(p, PLIM_PAINT_DIM, text, 0);
    if (p->last)
        p->last->if_unknown = true;
}

/* Apart from what comes before it, but as a figure. */
void plim_note(plim_page *p, plim_str note)
{
    if (!note.n)
        return;
    p->apart = !p->style.quiet;
    add_block(p, (plim_block){.kind = PLIM_BLOCK_NOTE,
                              .gap = " ",
                              .paint = p->style.quiet ? PLIM_PAINT_PLAIN : PLIM_PAINT_WARN,
                              .quiet = true});
    add_piece(p, (plim_piece){.text = note});
}

void plim_value_text(plim_page *p, const char *name, const char *value)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_VALUE, .gap = " "});
    plim_in_quiet(p);
    plim_say(p, "%s", name);
    plim_say(p, "%s", value);
}

void plim_value_u64(plim_page *p, const char *name, uint64_t n)
{
    plim_value_text(p, name, plim_page_format(p, "%" PRIu64, n));
}

/* ---- figures ------------------------------------------------------------------ */

void plim_table(plim_page *p, plim_rows rows, uint32_t indent)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_TABLE, .rows = rows, .indent = indent});
}

void plim_table_main(plim_page *p, plim_rows rows)
{
    p->apart = !p->style.quiet;
    plim_table(p, rows, 0);
    plim_in_quiet(p);
}

void plim_table_titled(plim_page *p, const char *title, plim_rows rows)
{
    uint64_t all = rows.n;
    if (!all)
        return;
    rows.n = PLIM_MIN(all, (uint64_t)p->style.top);
    plim_heading_apart(p, title);
    if (rows.n < all)
        plim_say(p, "(%" PRIu64 " of %" PRIu64 ")", rows.n, all);
    plim_table(p, rows, 2);
}

void plim_facts(plim_page *p, plim_facts_style style)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_FACTS, .facts_style = style});
}

static void add_fact(plim_page *p, plim_fact of)
{
    plim_assert(p->buf.bad || !p->last || p->last->kind == PLIM_BLOCK_FACTS ||
                p->last->kind == PLIM_BLOCK_BARS);
    plim_fact *fact = PLIM_NEW(&p->arena, plim_fact);
    if (!fact || !p->last) {
        p->buf.bad = true;
        return;
    }
    *fact = of;
    if (p->last->last_fact)
        p->last->last_fact->next = fact;
    else
        p->last->facts = fact;
    p->last->last_fact = fact;
}

void plim_fact_add(plim_page *p, const char *name, plim_str value, const char *note)
{
    add_fact(p, (plim_fact){.name = plim_page_clean(p, name),
                            .value = value,
                            .note = plim_page_clean(p, note)});
}

void plim_bars(plim_page *p, uint64_t whole)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_BARS, .whole = whole});
}

void plim_bar_add(plim_page *p, const char *name, uint64_t bytes, plim_text percent,
                  plim_paint paint)
{
    plim_assert(p->buf.bad || !p->last || bytes <= p->last->whole);
    add_fact(p, (plim_fact){.name = plim_page_clean(p, name),
                            .value = plim_page_clean(p, plim_fmt_bytes(bytes, p->style.si).s),
                            .note = plim_page_clean(p, percent.s),
                            .bytes = bytes,
                            .paint = paint});
}

void plim_chart(plim_page *p, plim_report_fn draw, const void *of)
{
    plim_assert(draw);
    add_block(p, (plim_block){.kind = PLIM_BLOCK_CHART, .draw = draw, .of = of});
}

/* ---- for programs ---------------------------------------------------------------- */

void plim_data(plim_page *p, const char *schema, const plim_column *figures, const void *of,
               const plim_rows *own, size_t n_own)
{
    plim_assert(schema && (own || !n_own));
    plim_rows *rows = PLIM_NEW_N(&p->arena, plim_rows, n_own + 1); /* an empty one ends them */
    p->buf.bad |= !rows;
    for (size_t i = 0; rows && i < n_own; i++)
        rows[i] = own[i];
    add_block(p, (plim_block){.kind = PLIM_BLOCK_DATA,
                              .schema = schema,
                              .figures = figures,
                              .of = of,
                              .own = rows});
}

void plim_list(plim_page *p, const char *schema, const char *name, plim_rows rows)
{
    plim_assert(schema && name);
    add_block(p, (plim_block){
                     .kind = PLIM_BLOCK_DATA, .schema = schema, .list = name, .rows = rows});
}

void plim_sheet(plim_page *p, plim_rows rows)
{
    add_block(p, (plim_block){.kind = PLIM_BLOCK_SHEET, .rows = rows});
}

void plim_picture(plim_page *p, plim_report_fn draw, const void *of)
{
    plim_assert(draw);
    add_block(p, (plim_block){.kind = PLIM_BLOCK_PICTURE, .draw = draw, .of = of});
}
