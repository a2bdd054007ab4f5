/* md.c -- writes blocks as Markdown, with the tables of GitHub.
 * src: GitHub Flavored Markdown Spec 0.29, sections 2.4 (escapes), 4.10 (tables), 6.12 (hard
 * line breaks) */
#include "report/blocks.h"

static bool is_letter(char c)
{
    return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

/* Is the character at i within a word?  "_" is no emphasis there. */
static bool is_within(plim_str s, size_t i)
{
    return i && i + 1 < s.n && is_letter(s.p[i - 1]) && is_letter(s.p[i + 1]);
}

/* The character that makes the beginning of a line a heading, or an item of a list, as in "- ", "1. "; else the
 * length. */
static size_t find_marker(plim_str s)
{
    size_t i = 0;
    while (i < s.n && s.p[i] >= '0' && s.p[i] <= '9')
        i++;
    bool marks = i < s.n && strchr(i ? ".)" : "-+#", s.p[i]);
    return marks && (i + 1 == s.n || s.p[i + 1] == ' ') ? i : s.n;
}

/* Names of files and models come from elsewhere: what Markdown or HTML would read is escaped. */
static void put_text(plim_page *p, plim_str s, bool starts_line)
{
    const size_t marker = starts_line ? find_marker(s) : s.n;
    for (size_t i = 0; i < s.n; i++) {
        bool mark = strchr("\\`*[]<>|~&", s.p[i]) || (s.p[i] == '_' && !is_within(s, i));
        plim_buf_repeat(&p->buf, "\\", mark || i == marker);
        plim_buf_add(&p->buf, (plim_str){s.p + i, 1});
    }
}

static bool is_strong(plim_paint paint)
{
    return paint == PLIM_PAINT_BOLD || paint == PLIM_PAINT_GOOD || paint == PLIM_PAINT_WARN ||
           paint == PLIM_PAINT_BAD;
}

/* ---- lines ------------------------------------------------------------------- */

/* Emphasis ends before a gap, and begins after it. */
static void put_pieces(plim_page *p, const plim_block *b)
{
    bool strong = false, plain = b->kind == PLIM_BLOCK_HEADING, first = true;
    for (const plim_piece *piece = b->pieces; piece; piece = piece->next) {
        bool next = !plain && is_strong(piece->paint);
        if (!piece->text.n)
            continue;
        plim_page_puts(p, strong && !next ? "**" : "");
        plim_page_puts(p, first || piece->glued ? "" : b->gap);
        plim_page_puts(p, next && !strong ? "**" : "");
        put_text(p, piece->text, first);
        strong = next;
        first = false;
    }
    plim_page_puts(p, strong ? "**" : "");
}

static plim_str trim_blanks(plim_str s)
{
    while (s.n && *s.p == ' ')
        s = (plim_str){s.p + 1, s.n - 1};
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

static void put_line(plim_page *p, const plim_block *b)
{
    plim_str lead = trim_blanks(plim_str_of(b->lead ? b->lead : ""));
    plim_page_puts(p, b->kind == PLIM_BLOCK_HEADING ? "### "
                      : b->kind == PLIM_BLOCK_NOTE  ? "> **Note:** "
                                                    : "");
    if (lead.n) {
        put_text(p, lead, true);
        plim_page_puts(p, " ");
    }
    put_pieces(p, b);
}

/* ---- tables ------------------------------------------------------------------ */

/* A cell, whose blanks at the beginning are a tree's. */
static void put_cell(plim_page *p, plim_str s)
{
    plim_page_puts(p, " ");
    for (; s.n && *s.p == ' '; s = (plim_str){s.p + 1, s.n - 1})
        plim_page_puts(p, "&nbsp;");
    put_text(p, s, false);
    plim_page_puts(p, " |");
}

static plim_status put_table(plim_page *p, const plim_rows *r, plim_err *err)
{
    plim_pick pick;
    PLIM_TRY(plim_rows_pick(r, PLIM_IN_TEXT, &pick, err));
    plim_page_puts(p, "|");
    for (size_t k = 0; k < pick.n; k++)
        put_cell(p, plim_str_of(pick.column[k]->title));
    plim_page_puts(p, "\n|");
    for (size_t k = 0; k < pick.n; k++)
        plim_page_puts(p,
                       plim_column_align(pick.column[k]) == PLIM_RIGHT ? " ---: |" : " --- |");
    plim_page_puts(p, "\n");
    for (uint64_t i = 0; i < r->n; i++) {
        plim_page_puts(p, "|");
        for (size_t k = 0; k < pick.n; k++) {
            plim_cell c = plim_column_cell(pick.column[k], plim_rows_at(r, i));
            put_cell(p, plim_cell_show(p, &c, false));
        }
        plim_page_puts(p, "\n");
    }
    return PLIM_OK;
}

/* Facts and bars: a table without titles. */
static void put_facts(plim_page *p, const plim_block *b)
{
    bool notes = false;
    for (const plim_fact *f = b->facts; f; f = f->next)
        notes |= f->note.n > 0;
    bool right = b->kind == PLIM_BLOCK_BARS || b->facts_style.value;
    plim_page_puts(p, notes ? "| | | |\n" : "| | |\n");
    plim_page_puts(p, right ? "| --- | ---: |" : "| --- | --- |");
    plim_page_puts(p, !notes ? "\n" : b->kind == PLIM_BLOCK_BARS ? " ---: |\n" : " --- |\n");
    for (const plim_fact *f = b->facts; f; f = f->next) {
        plim_page_puts(p, "|");
        put_cell(p, f->name);
        put_cell(p, f->value);
        if (notes)
            put_cell(p, f->note);
        plim_page_puts(p, "\n");
    }
}

/* ---- the page ------------------------------------------------------------------ */

/* Blocks of a group that follow one another stand together: lines are one paragraph. */
typedef enum md_group { ALONE, LINES, FENCED } md_group;

static md_group group_of(const plim_block *b)
{
    switch (b->kind) {
    case PLIM_BLOCK_LINE:
    case PLIM_BLOCK_PARAGRAPH:
    case PLIM_BLOCK_VALUE: return LINES;
    case PLIM_BLOCK_CODE:
    case PLIM_BLOCK_CHART: return FENCED;
    default: return ALONE;
    }
}

static const char *const ends[] = {[ALONE] = "", [LINES] = "\n", [FENCED] = "```\n"};
_Static_assert(PLIM_COUNT(ends) == FENCED + 1, "an end for each group");

static plim_status put_block(plim_page *p, const plim_block *b, plim_err *err)
{
    switch (b->kind) {
    case PLIM_BLOCK_CODE: /* with its indent, no line of it ends the fence */
        plim_buf_repeat(&p->buf, " ", b->indent);
        plim_buf_add(&p->buf, b->pieces->text);
        plim_page_puts(p, "\n");
        break;
    case PLIM_BLOCK_TABLE: return put_table(p, &b->rows, err);
    case PLIM_BLOCK_FACTS:
    case PLIM_BLOCK_BARS: put_facts(p, b); break;
    case PLIM_BLOCK_CHART: return b->draw(p, b->of, err);
    default: put_line(p, b); plim_page_puts(p, group_of(b) == LINES ? "" : "\n");
    }
    return PLIM_OK;
}

plim_status plim_render_md(plim_page *p, plim_err *err)
{
    const plim_block *before = NULL;
    plim_status st = PLIM_OK;
    bool apart;
    p->style.color = false;
    for (const plim_block *b = p->first; (b = plim_block_shown(p, b, &apart)) && !st;
         b = b->next) {
        md_group group = group_of(b), was = before ? group_of(before) : ALONE;
        if (group == was && group != ALONE && !apart) {
            plim_page_puts(p, group == LINES ? "\\\n" : "");
        } else {
            plim_page_puts(p, ends[was]);
            plim_page_puts(p, before ? "\n" : "");
            plim_page_puts(p, group == FENCED ? "```\n" : "");
        }
        st = put_block(p, b, err);
        before = b;
    }
    plim_page_puts(p, before ? ends[group_of(before)] : "");
    return st;
}
