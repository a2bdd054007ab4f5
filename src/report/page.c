/* page.c -- the buffer that a report is written to: see report.h. */
#include "base/utf8.h"
#include "report/report.h"

void plim_page_open(plim_page *p, const plim_style *st)
{
    enum { WIDTH = 80, TOP = 10 }; /* the defaults that plim_style documents */
    *p = (plim_page){.arena = PLIM_ARENA_INIT};
    plim_budget_begin(&p->budget, PLIM_BUDGET_FREE);
    p->style.size = sizeof p->style;
    if (st)
        plim_copy_out(&p->style, st, PLIM_MIN(st->size, sizeof *st));
    int width = p->style.width > 0 ? p->style.width : WIDTH;
    p->width = (uint32_t)PLIM_MIN(PLIM_MAX(width, PLIM_PAGE_LEAST), PLIM_PAGE_MOST);
    p->rows = PLIM_MAX(p->style.top, 0);
    if (!p->rows)
        p->style.top = TOP;
    plim_buf_init(&p->buf, &p->arena);
}

plim_status plim_page_send(plim_page *p, plim_status st, plim_put put, void *ud, plim_err *err)
{
    if (!st && p->buf.bad)
        st = plim_oom(err);
    plim_str text = plim_buf_str(&p->buf);
    st = plim_budget_end(&p->budget, st, err);
    if (!st && p->buf.unput)
        st = plim_unput(err);
    if (!st)
        st = plim_put_out(put, ud, text, err);
    plim_arena_free(&p->arena);
    return st;
}

void plim_page_paint(plim_page *p, uint32_t paint)
{
    plim_assert(paint < PLIM_PAINT_COUNT);
    static const char *const codes[PLIM_PAINT_COUNT] = {
        [PLIM_PAINT_PLAIN] = "0",
        [PLIM_PAINT_BOLD] = "1",
        [PLIM_PAINT_DIM] = "2",
        [PLIM_PAINT_GOOD] = "1;32",
        [PLIM_PAINT_WARN] = "1;33",
        [PLIM_PAINT_BAD] = "1;31",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_PARAMETER] = "38;5;39",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_BUFFER] = "38;5;67",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_GRADIENT] = "38;5;208",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_OPTIMIZER_STATE] = "38;5;135",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_INPUT] = "38;5;109",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_ACTIVATION] = "38;5;72",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_TEMPORARY] = "38;5;179",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_WORKSPACE] = "38;5;245",
        [PLIM_PAINT_CATEGORY + PLIM_CAT_OUTPUT] = "38;5;174",
        [PLIM_PAINT_PHASE + PLIM_PHASE_LOAD] = "38;5;39",
        [PLIM_PAINT_PHASE + PLIM_PHASE_INPUTS] = "38;5;109",
        [PLIM_PAINT_PHASE + PLIM_PHASE_ZERO_GRAD] = "38;5;67",
        [PLIM_PAINT_PHASE + PLIM_PHASE_FORWARD] = "38;5;72",
        [PLIM_PAINT_PHASE + PLIM_PHASE_LOSS] = "38;5;174",
        [PLIM_PAINT_PHASE + PLIM_PHASE_BACKWARD] = "38;5;208",
        [PLIM_PAINT_PHASE + PLIM_PHASE_OPTIMIZER] = "38;5;135",
    };
    if (p->style.color && paint < PLIM_PAINT_COUNT)
        plim_buf_printf(&p->buf, paint ? "\x1b[0;%sm" : "\x1b[%sm", codes[paint]);
}

/* ---- text from model files ----------------------------------------------- */

plim_str plim_page_clean(plim_page *p, const char *z)
{
    plim_str in = plim_str_of(z);
    char *out = plim_arena_new(&p->arena, in.n + 1, 1);
    if (!out) {
        p->buf.bad = true;
        return PLIM_STR("");
    }
    if (in.n)
        memcpy(out, in.p, in.n);
    return (plim_str){out, plim_utf8_clean(out, in.n)};
}

const char *plim_page_format(plim_page *p, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    plim_str s = plim_arena_vprintf(&p->arena, fmt, ap);
    va_end(ap);
    p->buf.bad |= !s.p;
    return s.p ? s.p : "";
}

/* The length in bytes of the character at i of clean text. */
static size_t page_char(plim_str s, size_t i)
{
    size_t n = 1;
    while (i + n < s.n && ((uint8_t)s.p[i + n] & 0xc0) == 0x80)
        n++;
    return n;
}

plim_str plim_page_fit(plim_str s, uint32_t columns)
{
    size_t i = 0;
    for (uint32_t used = 0; i < s.n;) {
        size_t len = page_char(s, i);
        used += plim_text_width((plim_str){s.p + i, len});
        if (used > columns)
            break;
        i += len;
    }
    return (plim_str){s.p, i};
}

/* The longest suffix of clean text that fits in `columns`. */
static plim_str page_tail(plim_str s, uint32_t columns)
{
    size_t from = s.n;
    for (uint32_t used = 0; from > 0;) {
        size_t i = from - 1;
        while (i > 0 && ((uint8_t)s.p[i] & 0xc0) == 0x80)
            i--;
        used += plim_text_width((plim_str){s.p + i, from - i});
        if (used > columns)
            break;
        from = i;
    }
    return (plim_str){s.p + from, s.n - from};
}

plim_str plim_page_cut(plim_page *p, plim_str s, uint32_t columns, bool head)
{
    if (plim_text_width(s) <= columns)
        return s;
    plim_str dots = plim_str_of(plim_page_glyph(p, "\xe2\x80\xa6", ".."));
    uint32_t wide = plim_text_width(dots);
    if (columns < wide)
        return plim_page_fit(s, columns);
    plim_str kept = head ? page_tail(s, columns - wide) : plim_page_fit(s, columns - wide);
    plim_str a = head ? dots : kept, b = head ? kept : dots;
    plim_str cut = plim_arena_printf(&p->arena, "%.*s%.*s", PLIM_STR_ARG(a), PLIM_STR_ARG(b));
    if (!cut.p)
        p->buf.bad = true;
    return cut.p ? cut : PLIM_STR("");
}

void plim_page_field(plim_page *p, plim_str s, uint32_t columns, bool right)
{
    s = plim_page_cut(p, s, columns, false);
    uint32_t pad = columns - PLIM_MIN(columns, plim_text_width(s));
    plim_buf_repeat(&p->buf, " ", right ? pad : 0);
    plim_buf_add(&p->buf, s);
    plim_buf_repeat(&p->buf, " ", right ? 0 : pad);
}

/* ---- bytes -------------------------------------------------------------------- */

/* In the unit of `scale`, unless it would be below a tenth of that. */
static plim_text bytes_beside(const plim_page *p, uint64_t bytes, uint64_t scale)
{
    plim_text scaled = plim_fmt_bytes_as(bytes, scale, p->style.si);
    return strncmp(scaled.s, "0.0", 3) != 0 ? scaled : plim_fmt_bytes(bytes, p->style.si);
}

plim_text plim_page_bytes(const plim_page *p, uint64_t bytes)
{
    return bytes_beside(p, bytes, PLIM_MAX(p->scale ? p->scale : bytes, bytes));
}

plim_str plim_page_range(plim_page *p, uint64_t one, uint64_t other)
{
    const uint64_t low = PLIM_MIN(one, other), high = PLIM_MAX(one, other);
    plim_text a = p->scale ? bytes_beside(p, low, PLIM_MAX(p->scale, high))
                           : plim_page_bytes(p, low),
              b = plim_page_bytes(p, high);
    const char *unit_a = strchr(a.s, ' '), *unit_b = strchr(b.s, ' ');
    plim_str z;
    if (strcmp(a.s, b.s) == 0)
        z = plim_arena_printf(&p->arena, "%s", a.s);
    else if (unit_a && unit_b && strcmp(unit_a, unit_b) == 0)
        z = plim_arena_printf(&p->arena, "%.*s-%s", (int)(unit_a - a.s), a.s, b.s);
    else
        z = plim_arena_printf(&p->arena, "%s - %s", a.s, b.s);
    if (!z.p)
        p->buf.bad = true;
    return z.p ? z : PLIM_STR("");
}

/* ---- shared lines -------------------------------------------------------- */

uint32_t plim_report_share(uint64_t part, uint64_t whole, uint32_t steps)
{
    enum { SHARE_BITS = 40 }; /* so that part * steps fits in 64 bits */
    while (whole >> SHARE_BITS) {
        whole >>= 1;
        part = part >> 1 | (part & 1);
    }
    if (!whole || part >= whole)
        return part ? steps : 0;
    uint64_t n = (part * steps + whole / 2) / whole;
    plim_assert(n <= steps);
    return n || !part ? (uint32_t)n : 1;
}
