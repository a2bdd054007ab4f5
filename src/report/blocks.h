/* blocks.h -- what a report consists of, whatever it is written as.  Private to the room.
 *
 * A report adds blocks to its page, in order: lines, paragraphs, tables, figures.  It knows no
 * rendering.  A rendering (renderings.def) writes the blocks that it has a form for, and knows
 * no report: text and Markdown those for people, JSON the data, CSV the sheet, SVG the
 * picture.
 *
 * What is added lasts as long as the page.  Where memory ends, the page is bad, and is not
 * sent; no function here fails. */
#ifndef PLIM_BLOCKS_H
#define PLIM_BLOCKS_H

#include "report/report.h"

typedef enum plim_block_kind {
    /* for people */
    PLIM_BLOCK_HEADING,   /* pieces; of the blocks that follow */
    PLIM_BLOCK_LINE,      /* pieces with a gap between them, more lines if they are too long */
    PLIM_BLOCK_PARAGRAPH, /* one piece, whose words are broken into lines */
    PLIM_BLOCK_CODE,      /* one piece: a line as it is, to paste or drawn with characters */
    PLIM_BLOCK_TABLE,     /* rows, with columns that are in text */
    PLIM_BLOCK_FACTS,     /* names with values */
    PLIM_BLOCK_BARS,      /* names with shares */
    PLIM_BLOCK_CHART,     /* drawn with characters */
    PLIM_BLOCK_NOTE,      /* what is left out of the answer: no rendering is without it */
    PLIM_BLOCK_VALUE,     /* two pieces: a name and a value; with style.quiet only */
    /* for programs */
    PLIM_BLOCK_DATA,    /* figures: JSON; several are an array */
    PLIM_BLOCK_SHEET,   /* rows, with columns that are data: CSV */
    PLIM_BLOCK_PICTURE, /* SVG */
    PLIM_BLOCK_KIND_COUNT
} plim_block_kind;

typedef struct plim_piece {
    plim_str text; /* clean */
    plim_paint paint;
    bool glued; /* no gap before it */
    struct plim_piece *next;
} plim_piece;

/* Facts: value and note.  Bars: value, and its part of the whole. */
typedef struct plim_fact {
    plim_str name, value, note; /* clean */
    uint64_t bytes;             /* of a bar */
    plim_paint paint;           /* of a bar */
    struct plim_fact *next;
} plim_fact;

/* How text lays out facts. */
typedef struct plim_facts_style {
    uint32_t indent;
    uint32_t name;  /* columns; 0: those of the longest, and a gap of two */
    uint32_t value; /* columns, with the value at the right; 0: at the left */
    bool bold;      /* the value is, and the note dim */
} plim_facts_style;

typedef struct plim_block {
    plim_block_kind kind;
    bool apart;       /* an empty line comes before it */
    bool quiet;       /* with style.quiet, too */
    bool if_unknown;  /* only if a cell before it is "-" */
    bool whole_lines; /* a line that is not broken: programs look for it */
    plim_paint paint;
    uint32_t indent;
    const char *gap, *lead; /* of a line; lead: the first line begins with it, NULL: indent */
    plim_piece *pieces, *last_piece;
    plim_fact *facts, *last_fact;
    plim_facts_style facts_style;
    uint64_t whole;             /* of bars */
    plim_rows rows;             /* a table or sheet */
    const plim_column *figures; /* data: the members of the object `of` */
    const char *schema, *list; /* list: the name of the one list, which is `rows`; else NULL */
    const plim_rows *own;
    plim_report_fn draw; /* a chart or picture of the object `of` */
    const void *of;
    struct plim_block *next;
} plim_block;

/* The first block from `b` on that a rendering for people shows; NULL: there is none.  *apart:
 * an empty line comes before it. */
const plim_block *plim_block_shown(const plim_page *p, const plim_block *b, bool *apart);
/* The first block of a kind from `b` on; NULL: there is none. */
const plim_block *plim_block_find(const plim_block *b, plim_block_kind kind);

/* ---- the block that was added last ------------------------------------------ */

void plim_in_quiet(plim_page *p); /* style.quiet shows it, too */
void plim_block_paint(plim_page *p, plim_paint paint);

/* ---- lines ------------------------------------------------------------------- */

/* An empty line comes before the next block. */
static inline void plim_apart(plim_page *p) { p->apart = true; }

/* Begins a line, to which pieces are added, with `gap` between them: " ", ", ", plim_dot(p). */
void plim_line(plim_page *p, const char *gap, uint32_t indent);
/* A line that may be wider than the page. */
void plim_line_whole(plim_page *p, const char *gap, uint32_t indent);
/* A line that begins with `lead`, and whose further lines are indented as far. */
void plim_line_lead(plim_page *p, const char *gap, const char *lead);
/* " \u00b7 ", or its replacement with style.ascii. */
static inline const char *plim_dot(const plim_page *p)
{
    return plim_page_glyph(p, " \xc2\xb7 ", " | ");
}
/* Pieces that are added follow the title. */
void plim_heading(plim_page *p, plim_paint paint, const char *title);
void plim_heading_apart(plim_page *p, const char *title); /* unpainted */

/* Adds to the line or heading; what it says is cleaned. */
void plim_say(plim_page *p, const char *fmt, ...) PLIM_PRINTF(2, 3);
void plim_say_as(plim_page *p, plim_paint paint, const char *fmt, ...) PLIM_PRINTF(3, 4);
/* Without a gap before it. */
void plim_say_glued(plim_page *p, plim_paint paint, const char *fmt, ...) PLIM_PRINTF(3, 4);

/* NULL or "": nothing. */
void plim_paragraph(plim_page *p, plim_paint paint, const char *text, uint32_t indent);
void plim_paragraph_apart(plim_page *p, plim_paint paint, const char *text);
void plim_code(plim_page *p, uint32_t indent, const char *fmt, ...) PLIM_PRINTF(3, 4);
/* A paragraph such as "- unknown", if a cell before it is "-". */
void plim_if_unknown(plim_page *p, const char *text);

/* What is left out; no text: nothing. */
void plim_note(plim_page *p, plim_str note);

/* ---- figures ------------------------------------------------------------------ */

void plim_table(plim_page *p, plim_rows rows, uint32_t indent);
/* The table that style.quiet shows, without the empty line that is before it otherwise. */
void plim_table_main(plim_page *p, plim_rows rows);
/* A table under a heading, of the first rows of a list that is in order: as many as --top
 * says.  Nothing without rows. */
void plim_table_titled(plim_page *p, const char *title, plim_rows rows);

/* Begins a list of facts.  Names last as long as the page. */
void plim_facts(plim_page *p, plim_facts_style style);
void plim_fact_add(plim_page *p, const char *name, plim_str value, const char *note);
/* Begins a list of bars, of which the longest is `whole`. */
void plim_bars(plim_page *p, uint64_t whole);
void plim_bar_add(plim_page *p, const char *name, uint64_t bytes, plim_text percent,
                  plim_paint paint);
/* `draw` writes characters, at the width of the page. */
void plim_chart(plim_page *p, plim_report_fn draw, const void *of);

/* Shown with style.quiet only. */
void plim_value_u64(plim_page *p, const char *name, uint64_t n);
void plim_value_text(plim_page *p, const char *name, const char *value);

/* ---- for programs ---------------------------------------------------------------- */

/* `own`: rows in place of those in the struct, as in plim_figures_json; n_own of them. */
void plim_data(plim_page *p, const char *schema, const plim_column *figures, const void *of,
               const plim_rows *own, size_t n_own);
/* An object with one list, under its name. */
void plim_list(plim_page *p, const char *schema, const char *name, plim_rows rows);
void plim_sheet(plim_page *p, plim_rows rows);
void plim_picture(plim_page *p, plim_report_fn draw, const void *of);

/* ---- the renderings ---------------------------------------------------------------- */

/* plim_render_text() and so on: each writes the blocks of the page. */
#define RENDERING(id, key, ...) plim_status plim_render_##key(plim_page *p, plim_err *err);
#include "report/renderings.def"
#undef RENDERING

#endif
