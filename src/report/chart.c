/* chart.c -- bars and the timeline of an estimate, drawn with block characters. */
#include "report/report.h"

#include <stdio.h>

enum { CHART_STEPS = 8 }; /* block characters divide a cell into eighths */

static const char *const chart_left[] = {/* a cell filled from the left: U+258F..2588 */
                                         "",
                                         "\xe2\x96\x8f",
                                         "\xe2\x96\x8e",
                                         "\xe2\x96\x8d",
                                         "\xe2\x96\x8c",
                                         "\xe2\x96\x8b",
                                         "\xe2\x96\x8a",
                                         "\xe2\x96\x89",
                                         "\xe2\x96\x88"};
static const char *const chart_up[] = {/* a cell filled from below: U+2581..2588 */
                                       " ",
                                       "\xe2\x96\x81",
                                       "\xe2\x96\x82",
                                       "\xe2\x96\x83",
                                       "\xe2\x96\x84",
                                       "\xe2\x96\x85",
                                       "\xe2\x96\x86",
                                       "\xe2\x96\x87",
                                       "\xe2\x96\x88"};
_Static_assert(PLIM_COUNT(chart_left) == CHART_STEPS + 1, "empty to full");
_Static_assert(PLIM_COUNT(chart_up) == CHART_STEPS + 1, "empty to full");

void plim_chart_bar(plim_page *p, uint64_t part, uint64_t whole, uint32_t columns)
{
    if (p->style.ascii) {
        plim_buf_repeat(&p->buf, "#", plim_report_share(part, whole, columns));
        return;
    }
    uint32_t steps = plim_report_share(part, whole, columns * CHART_STEPS);
    plim_buf_repeat(&p->buf, chart_left[CHART_STEPS], steps / CHART_STEPS);
    plim_page_puts(p, chart_left[steps % CHART_STEPS]);
}

/* ---- timeline ------------------------------------------------------------ */

enum {
    CHART_ROWS = 6,
    CHART_LABEL = 12, /* columns left of the axis */
    CHART_MOST = 240  /* columns of the timeline */
};

typedef struct chart {
    uint32_t n;    /* number of columns */
    uint32_t peak; /* the column that shows the peak */
    uint64_t top;  /* bytes at the upper edge */
    struct {
        uint64_t allocated, reserved;
        plim_phase phase;
        int step;
    } at[CHART_MOST];
} chart;

/* Turns buckets into columns.  A column shows the highest of its buckets, so that no peak
 * is lost, and the phase of the first. */
static void chart_resample(chart *c, const plim_estimate *e, uint32_t columns)
{
    plim_assert(columns > 0 && e->n_buckets > 0);
    uint32_t n = e->n_buckets;
    *c = (chart){.n = PLIM_MIN(columns, (uint32_t)CHART_MOST)};
    uint32_t peak = PLIM_MIN(e->peak_bucket, n - 1);
    c->peak = ((peak + 1) * c->n - 1) / n; /* the last column that shows it */
    plim_assert(c->peak < c->n);
    for (uint32_t i = 0; i < c->n; i++) {
        uint32_t from = i * n / c->n, to = PLIM_MAX((i + 1) * n / c->n, from + 1);
        c->at[i].phase = e->buckets[from]->phase;
        c->at[i].step = e->buckets[from]->step;
        for (uint32_t k = from; k < to; k++) {
            const plim_bucket *b = e->buckets[k];
            c->at[i].allocated = PLIM_MAX(c->at[i].allocated, b->allocated);
            c->at[i].reserved = PLIM_MAX(c->at[i].reserved, b->reserved);
        }
        c->top = PLIM_MAX(c->top, PLIM_MAX(c->at[i].allocated, c->at[i].reserved));
    }
}

static void chart_label(plim_page *p, const char *text)
{
    plim_page_field(p, plim_str_of(text), CHART_LABEL - 1, true);
    plim_page_puts(p, " ");
}

static void chart_peak(plim_page *p, const chart *c, const plim_estimate *e)
{
    const char *mark = plim_page_glyph(p, "\xe2\x96\xbc", "v"); /* U+25BC */
    plim_text bytes = plim_fmt_bytes(e->peak_allocated, p->style.si);
    plim_str text = plim_arena_printf(&p->arena, "peak %s", bytes.s);
    uint32_t at = CHART_LABEL + 1 + c->peak, wide = (uint32_t)text.n + 1;
    bool left = at + 1 + wide > p->width;
    plim_buf_repeat(&p->buf, " ", at - (left ? wide : 0));
    plim_page_paint(p, PLIM_PAINT_BOLD);
    if (left)
        plim_buf_printf(&p->buf, "%s %s", text.p, mark);
    else
        plim_buf_printf(&p->buf, "%s %s", mark, text.p);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_puts(p, "\n");
}

/* One cell of the chart: allocated bytes as a block, the level of reserved bytes as a dot
 * above it. */
static const char *chart_cell(const plim_page *p, const chart *c, uint32_t i, uint32_t row)
{
    plim_assert(row < CHART_ROWS && i < c->n);
    uint32_t full = CHART_ROWS * CHART_STEPS, floor = row * CHART_STEPS;
    uint32_t used = plim_report_share(c->at[i].allocated, c->top, full);
    uint32_t held = plim_report_share(c->at[i].reserved, c->top, full);
    if (used > floor) {
        uint32_t part = PLIM_MIN(used - floor, CHART_STEPS);
        if (p->style.ascii)
            return part >= CHART_STEPS / 2 || row == 0 ? "#" : " ";
        return chart_up[part];
    }
    bool edge = held > floor && held <= floor + CHART_STEPS;
    return edge ? plim_page_glyph(p, "\xc2\xb7", ".") : " ";
}

static void chart_row(plim_page *p, const chart *c, uint32_t row)
{
    const char *edge =
        row + 1 == CHART_ROWS ? "\xe2\x94\xa4" : "\xe2\x94\x82"; /* U+2524, 2502 */
    uint32_t painted = PLIM_PAINT_PLAIN;
    chart_label(p, row + 1 == CHART_ROWS ? plim_fmt_bytes(c->top, p->style.si).s : "");
    plim_page_puts(p, plim_page_glyph(p, edge, "|"));
    uint32_t last = c->n; /* lines do not end in spaces */
    while (last && *chart_cell(p, c, last - 1, row) == ' ')
        last--;
    for (uint32_t i = 0; i < last; i++) {
        uint32_t paint = PLIM_PAINT_PHASE + (uint32_t)c->at[i].phase;
        if (paint != painted)
            plim_page_paint(p, painted = paint);
        plim_page_puts(p, chart_cell(p, c, i, row));
    }
    if (painted)
        plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_puts(p, "\n");
}

/* ---- the axis and the names below it ------------------------------------- */

static bool chart_same_phase(const chart *c, uint32_t a, uint32_t b)
{
    return c->at[a].phase == c->at[b].phase && c->at[a].step == c->at[b].step;
}
static bool chart_same_step(const chart *c, uint32_t a, uint32_t b)
{
    return c->at[a].step == c->at[b].step;
}

static void chart_axis(plim_page *p, const chart *c)
{
    chart_label(p, "0 B");
    plim_page_puts(p, plim_page_glyph(p, "\xe2\x94\x94", "+"));
    for (uint32_t i = 0; i < c->n; i++) {
        bool tick = i && !chart_same_phase(c, i - 1, i);
        plim_page_puts(p, tick ? plim_page_glyph(p, "\xe2\x94\xb4", "+")
                               : plim_page_glyph(p, "\xe2\x94\x80", "-"));
    }
    plim_page_puts(p, "\n");
}

const char *plim_chart_phase_name(plim_phase phase, uint32_t columns)
{
    plim_assert((unsigned)phase < PLIM_PHASE_COUNT);
    static const char *const brief[PLIM_PHASE_COUNT] = {
        [PLIM_PHASE_LOAD] = "load",    [PLIM_PHASE_INPUTS] = "in",
        [PLIM_PHASE_ZERO_GRAD] = "zg", [PLIM_PHASE_FORWARD] = "fwd",
        [PLIM_PHASE_LOSS] = "loss",    [PLIM_PHASE_BACKWARD] = "bwd",
        [PLIM_PHASE_OPTIMIZER] = "opt"};
    const char *whole = plim_phase_name(phase);
    if (strlen(whole) < columns)
        return whole;
    return strlen(brief[phase]) < columns ? brief[phase] : "";
}

/* Prints names below the columns of each phase or (`steps`) each step. */
static void chart_names(plim_page *p, const chart *c, bool steps)
{
    bool (*same)(const chart *, uint32_t, uint32_t) =
        steps ? chart_same_step : chart_same_phase;
    uint64_t owed = CHART_LABEL + 1; /* spaces, printed only if text follows */
    for (uint32_t i = 0, to; i < c->n; i = to) {
        char step[24] = "";
        for (to = i + 1; to < c->n && same(c, i, to);)
            to++;
        if (steps && c->at[i].step >= 0)
            snprintf(step, sizeof step, "step %d", c->at[i].step);
        const char *name = steps ? strlen(step) < to - i ? step : ""
                                 : plim_chart_phase_name(c->at[i].phase, to - i);
        uint32_t n = (uint32_t)strlen(name);
        if (n) {
            plim_buf_repeat(&p->buf, " ", owed);
            plim_page_puts(p, name);
            owed = 0;
        }
        owed += to - i - n;
    }
    plim_page_puts(p, "\n");
}

void plim_chart_timeline(plim_page *p, const plim_estimate *e)
{
    chart c;
    if (!e->n_buckets)
        return;
    chart_resample(&c, e, p->width - CHART_LABEL - 1);
    if (!c.top)
        return;
    chart_peak(p, &c, e);
    for (uint32_t row = CHART_ROWS; row-- > 0;)
        chart_row(p, &c, row);
    chart_axis(p, &c);
    plim_page_paint(p, PLIM_PAINT_DIM);
    chart_names(p, &c, false);
    chart_names(p, &c, true);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
}
