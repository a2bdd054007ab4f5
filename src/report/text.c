/* text.c -- writes blocks for a terminal: lines of at most the page's width, tables in
 * columns, colours. */
#include "report/blocks.h"

typedef struct text {
    plim_page *p;
    plim_paint painted;
} text;

static void set_paint(text *t, plim_paint paint)
{
    plim_assert((unsigned)paint < PLIM_PAINT_COUNT);
    if (t->painted != paint)
        plim_page_paint(t->p, t->painted = paint);
}

/* ---- where lines break --------------------------------------------------------- */

/* Text that begins a new line where the next piece does not fit. */
typedef struct flow {
    plim_page *page;
    const char *gap;
    uint32_t indent, column, width;
    bool led; /* the first line has begun */
} flow;

static flow flow_open(plim_page *p, const char *gap, uint32_t indent)
{
    return (flow){.page = p, .gap = gap, .indent = indent, .width = p->width};
}

/* After `lead`; further lines are indented as far. */
static flow flow_lead(plim_page *p, const char *gap, const char *lead)
{
    uint32_t width = plim_text_width(plim_str_of(lead));
    plim_page_puts(p, lead);
    return (flow){.page = p,
                  .gap = gap,
                  .indent = width,
                  .column = width,
                  .width = p->width,
                  .led = true};
}

static void flow_line(flow *f)
{
    if (f->column)
        plim_page_puts(f->page, "\n");
    plim_buf_repeat(&f->page->buf, " ", f->indent);
    f->column = f->indent;
}

static plim_str trim_end(plim_str s) /* lines do not end in spaces */
{
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

/* Before a piece of so many columns: a gap, or a new line. */
static void flow_room(flow *f, uint32_t wide)
{
    uint32_t gap = plim_text_width(plim_str_of(f->gap));
    if (f->led) {
        f->led = false;
    } else if (f->column > f->indent && f->column + gap + wide <= f->width) {
        plim_page_puts(f->page, f->gap);
        f->column += gap;
    } else {
        flow_line(f);
    }
}

/* What of a text stands in the rest of a line: whole words, or as much as fits of one that no
 * line holds. */
static plim_str first_words(const flow *f, plim_str s)
{
    plim_assert(f->column <= f->width);
    plim_str fits = plim_page_fit(s, f->width - f->column);
    size_t n = fits.n;
    if (n == s.n || s.p[n] == ' ')
        return fits;
    while (n && s.p[n - 1] != ' ')
        n--;
    return n || f->column > f->indent ? (plim_str){s.p, n} : fits;
}

static void flow_put(flow *f, plim_str s)
{
    uint32_t wide = plim_text_width(s);
    while (f->column + wide > f->width) {
        plim_str part = first_words(f, s);
        plim_buf_add(&f->page->buf, trim_end(part));
        for (s = (plim_str){s.p + part.n, s.n - part.n}; s.n && *s.p == ' ';)
            s = (plim_str){s.p + 1, s.n - 1};
        wide = plim_text_width(s);
        f->column += 1; /* the line is not empty */
        flow_line(f);
    }
    plim_buf_add(&f->page->buf, s);
    f->column += wide;
}

static void flow_end(flow *f)
{
    if (f->column)
        plim_page_puts(f->page, "\n");
}

/* ---- lines ------------------------------------------------------------------- */

/* Pieces that are glued together stay in one line. */
static const plim_piece *end_of_group(const plim_piece *piece, uint32_t *wide)
{
    plim_assert(piece);
    *wide = 0;
    do {
        *wide += plim_text_width(piece->text);
        piece = piece->next;
    } while (piece && piece->glued);
    return piece;
}

static plim_paint piece_paint(const plim_block *b, const plim_piece *piece)
{
    return piece->paint ? piece->paint : b->paint;
}

static void write_line(text *t, const plim_block *b)
{
    flow f = b->lead ? flow_lead(t->p, b->gap, b->lead) : flow_open(t->p, b->gap, b->indent);
    f.width = b->whole_lines ? UINT32_MAX : f.width;
    for (const plim_piece *piece = b->pieces, *end; piece; piece = end) {
        uint32_t wide;
        end = end_of_group(piece, &wide);
        if (!wide)
            continue;
        set_paint(t, piece_paint(b, piece));
        flow_room(&f, wide);
        for (; piece != end; piece = piece->next) {
            set_paint(t, piece_paint(b, piece));
            flow_put(&f, piece->text);
        }
    }
    set_paint(t, b->paint);
    flow_end(&f);
}

static void write_code(text *t, const plim_block *b)
{
    plim_assert(b->pieces);
    uint32_t room = t->p->width - PLIM_MIN(t->p->width, b->indent);
    plim_buf_repeat(&t->p->buf, " ", b->indent);
    plim_buf_add(&t->p->buf, plim_page_cut(t->p, b->pieces->text, room, false));
    plim_page_puts(t->p, "\n");
}

static void write_words(flow *f, plim_str s)
{
    for (size_t i = 0; i < s.n;) {
        size_t from = i;
        while (i < s.n && s.p[i] != ' ')
            i++;
        const plim_str word = {s.p + from, i - from};
        if (word.n) {
            flow_room(f, plim_text_width(word));
            flow_put(f, word);
        }
        while (i < s.n && s.p[i] == ' ')
            i++;
    }
}

static void write_indented(text *t, plim_str words, uint32_t indent)
{
    flow f = flow_open(t->p, " ", indent);
    write_words(&f, words);
    flow_end(&f);
}

static void write_paragraph(text *t, const plim_block *b)
{
    plim_assert(b->pieces);
    write_indented(t, b->pieces->text, b->indent);
}

/* A figure for programs: "note TEXT". */
static void write_note(text *t, const plim_block *b)
{
    plim_assert(b->pieces);
    if (t->p->style.quiet)
        plim_buf_printf(&t->p->buf, "note " PLIM_STR_FMT "\n", PLIM_STR_ARG(b->pieces->text));
    else
        write_paragraph(t, b);
}

/* ---- figures ------------------------------------------------------------------ */

/* The columns of the names and of the values: those of the style, unless narrower ones make
 * room for a note. */
static void measure_facts(const text *t, const plim_block *b, uint32_t *name, uint32_t *value)
{
    const plim_facts_style *s = &b->facts_style;
    *name = *value = 0;
    for (const plim_fact *f = b->facts; f; f = f->next) {
        *name = PLIM_MAX(*name, plim_text_width(f->name));
        *value = PLIM_MAX(*value, plim_text_width(f->value));
    }
    *name = PLIM_MIN(*name, t->p->width / 2) + 2;
    const uint32_t least = s->indent + *name + *value + 2,
                   styled = s->indent + s->name + PLIM_MAX(s->value, *value) + 2;
    bool narrow = false;
    for (const plim_fact *f = b->facts; f && s->value; f = f->next) {
        const uint32_t note = plim_text_width(f->note);
        narrow |= styled + note > t->p->width && least + note <= t->p->width;
    }
    *name = s->name && !narrow ? s->name : *name;
    *value = s->value && !narrow ? s->value : *value;
}

static void write_fact(text *t, const plim_block *b, const plim_fact *f, uint32_t name,
                       uint32_t value)
{
    plim_assert(name >= 2);
    const plim_facts_style *s = &b->facts_style;
    const uint32_t before = s->indent + name, width = t->p->width;
    const bool room = before + value + 2 + plim_text_width(f->note) <= width;
    plim_buf_repeat(&t->p->buf, " ", s->indent);
    plim_page_field(t->p, f->name, name - 2, false);
    plim_page_puts(t->p, "  ");
    set_paint(t, s->bold ? PLIM_PAINT_BOLD : PLIM_PAINT_PLAIN);
    if (s->value)
        plim_page_field(t->p, f->value, PLIM_MAX(value, plim_text_width(f->value)), true);
    else if (room && f->note.n)
        plim_page_field(t->p, f->value, value, false);
    else
        plim_buf_add(&t->p->buf,
                     plim_page_cut(t->p, f->value, width - PLIM_MIN(width, before), false));
    if (f->note.n && room) {
        set_paint(t, s->bold ? PLIM_PAINT_DIM : PLIM_PAINT_PLAIN);
        plim_page_puts(t->p, "  ");
        plim_buf_add(&t->p->buf, f->note);
    }
    set_paint(t, b->paint);
    plim_page_puts(t->p, "\n");
    if (f->note.n && !room && s->value) /* below the value */
        write_indented(t, f->note, before);
}

static void write_facts(text *t, const plim_block *b)
{
    uint32_t name, value;
    measure_facts(t, b, &name, &value);
    for (const plim_fact *f = b->facts; f; f = f->next)
        write_fact(t, b, f, name, value);
}

static void write_bars(text *t, const plim_block *b)
{
    enum { NAME = 17, BYTES = 11, PERCENT = 9, BEFORE = 2 + NAME + BYTES + PERCENT + 2 };
    plim_page *p = t->p;
    for (const plim_fact *f = b->facts; f; f = f->next) {
        plim_page_puts(p, "  ");
        plim_page_field(p, f->name, NAME, false);
        plim_page_field(p, f->value, BYTES, true);
        plim_page_field(p, f->note, PERCENT, true);
        if (p->width > BEFORE) {
            plim_page_puts(p, "  ");
            set_paint(t, f->paint);
            plim_chart_bar(p, f->bytes, b->whole, p->width - BEFORE);
            set_paint(t, b->paint);
        }
        plim_page_puts(p, "\n");
    }
}

/* ---- the page ------------------------------------------------------------------ */

static plim_status write_block(text *t, const plim_block *b, plim_err *err)
{
    switch (b->kind) {
    case PLIM_BLOCK_PARAGRAPH: write_paragraph(t, b); break;
    case PLIM_BLOCK_CODE: write_code(t, b); break;
    case PLIM_BLOCK_NOTE: write_note(t, b); break;
    case PLIM_BLOCK_TABLE: return plim_rows_text(t->p, &b->rows, b->indent, err);
    case PLIM_BLOCK_FACTS: write_facts(t, b); break;
    case PLIM_BLOCK_BARS: write_bars(t, b); break;
    case PLIM_BLOCK_CHART: return b->draw(t->p, b->of, err);
    default: write_line(t, b); break;
    }
    return PLIM_OK;
}

plim_status plim_render_text(plim_page *p, plim_err *err)
{
    text t = {.p = p};
    plim_status st = PLIM_OK;
    bool apart;
    for (const plim_block *b = p->first; (b = plim_block_shown(p, b, &apart)) && !st;
         b = b->next) {
        if (t.painted != b->paint)
            set_paint(&t, PLIM_PAINT_PLAIN);
        plim_page_puts(p, apart && p->buf.n ? "\n" : "");
        set_paint(&t, b->paint);
        st = write_block(&t, b, err);
    }
    set_paint(&t, PLIM_PAINT_PLAIN);
    return st;
}
