/* timeline.c -- the picture of an estimate: its memory from event to event. */
#include "report/svg.h"

#include <stdio.h>

enum {
    TIMELINE_WIDTH = 900,
    TIMELINE_HEIGHT = 330,
    TIMELINE_LEFT = 90, /* margins of the plot */
    TIMELINE_RIGHT = 20,
    TIMELINE_TOP = 56,
    TIMELINE_BOTTOM = 44,
    TIMELINE_LETTER = 12,
    TIMELINE_TICKS = 4, /* at least as many, and fewer than twice */
    TIMELINE_PLOT_BOTTOM = TIMELINE_HEIGHT - TIMELINE_BOTTOM,
    TIMELINE_PLOT_RIGHT = TIMELINE_WIDTH - TIMELINE_RIGHT
};

#define TIMELINE_INK "#222222"
#define TIMELINE_GREY "#dddddd"
#define TIMELINE_RESERVED "#c9dff0" /* lighter than that of allocated, plim_svg_color(0) */

static double height_of(uint64_t bytes, uint64_t top)
{
    return TIMELINE_PLOT_BOTTOM -
           (double)bytes / (double)top * (TIMELINE_PLOT_BOTTOM - TIMELINE_TOP);
}

/* Where bucket i begins. */
static double bucket_x(const plim_estimate *e, uint32_t i)
{
    return TIMELINE_LEFT +
           (double)(TIMELINE_PLOT_RIGHT - TIMELINE_LEFT) * (double)i / e->n_buckets;
}

static void draw_levels(plim_page *p, uint64_t top)
{
    uint64_t step = 1;
    while (step <= top / 2 / TIMELINE_TICKS)
        step *= 2;
    for (uint64_t at = 0; at <= top; at += step) {
        double y = height_of(at, top);
        plim_svg_line(p, TIMELINE_LEFT, y, TIMELINE_PLOT_RIGHT, y, TIMELINE_GREY);
        plim_svg_text(p, TIMELINE_LEFT - 8, y + 4, TIMELINE_LETTER, PLIM_SVG_END,
                      plim_page_bytes(p, at).s);
    }
}

/* The area of allocated or (`reserved`) reserved bytes. */
static plim_status draw_counter(plim_page *p, const plim_estimate *e, bool reserved,
                                uint64_t top, const char *color, plim_err *err)
{
    double *y = PLIM_NEW_N(&p->arena, double, e->n_buckets);
    if (!y)
        return plim_oom(err);
    for (uint32_t i = 0; i < e->n_buckets; i++)
        y[i] = height_of(reserved ? e->buckets[i]->reserved : e->buckets[i]->allocated, top);
    plim_svg_steps(p, TIMELINE_LEFT, TIMELINE_PLOT_RIGHT, y, e->n_buckets,
                   TIMELINE_PLOT_BOTTOM, color);
    return PLIM_OK;
}

/* The names of the phases or (`steps`) the steps below the plot, between their ticks. */
static void draw_names(plim_page *p, const plim_estimate *e, bool steps)
{
    const double letter = plim_svg_text_width("n", TIMELINE_LETTER);
    double y = TIMELINE_PLOT_BOTTOM + (steps ? 34 : 17);
    for (uint32_t i = 0, to; i < e->n_buckets; i = to) {
        const plim_bucket *b = e->buckets[i];
        char step[24] = "";
        for (to = i + 1; to < e->n_buckets && e->buckets[to]->step == b->step &&
                         (steps || e->buckets[to]->phase == b->phase);)
            to++;
        double x1 = bucket_x(e, i), x2 = bucket_x(e, to);
        uint32_t columns = (uint32_t)((x2 - x1) / letter);
        if (steps && b->step >= 0)
            snprintf(step, sizeof step, "step %d", b->step);
        const char *name = steps ? step : plim_chart_phase_name(b->phase, columns);
        if (*name && strlen(name) < columns)
            plim_svg_text(p, (x1 + x2) / 2, y, TIMELINE_LETTER, PLIM_SVG_MIDDLE, name);
        if (i)
            plim_svg_line(p, x1, TIMELINE_PLOT_BOTTOM, x1, y + (steps ? 4 : -10),
                          TIMELINE_INK);
    }
}

static void draw_peak(plim_page *p, const plim_estimate *e, uint64_t top)
{
    uint32_t at = PLIM_MIN(e->peak_bucket, e->n_buckets - 1);
    double x = (bucket_x(e, at) + bucket_x(e, at + 1)) / 2,
           y = height_of(e->peak_allocated, top);
    plim_str text = plim_arena_printf(&p->arena, "peak %s",
                                      plim_fmt_bytes(e->peak_allocated, p->style.si).s);
    bool left = x > (TIMELINE_LEFT + TIMELINE_PLOT_RIGHT) / 2.0;
    plim_svg_line(p, x, TIMELINE_TOP - 12, x, y, TIMELINE_INK);
    plim_svg_text(p, x + (left ? -5 : 5), TIMELINE_TOP - 6, TIMELINE_LETTER,
                  left ? PLIM_SVG_END : PLIM_SVG_START, text.p ? text.p : "peak");
}

plim_status plim_timeline_svg(plim_page *p, const void *estimate, plim_err *err)
{
    const plim_estimate *e = estimate;
    uint64_t top = 0;
    for (uint32_t i = 0; i < e->n_buckets; i++)
        top = PLIM_MAX(top, PLIM_MAX(e->buckets[i]->allocated, e->buckets[i]->reserved));
    if (!top)
        return plim_fail(err, PLIM_EUSAGE, 0, "'%s' allocates nothing: there is no picture",
                         e->model->name);
    p->scale = top;
    plim_str title = plim_arena_printf(&p->arena, "%s: memory over time", e->model->name);
    plim_svg_open(p, TIMELINE_WIDTH, TIMELINE_HEIGHT, title.p ? title.p : "");
    plim_svg_text(p, TIMELINE_LEFT, 24, TIMELINE_LETTER + 4, PLIM_SVG_START,
                  title.p ? title.p : "");
    plim_svg_text(p, TIMELINE_PLOT_RIGHT, 24, TIMELINE_LETTER, PLIM_SVG_END,
                  "dark: allocated; light: reserved");
    draw_levels(p, top);
    plim_status st = draw_counter(p, e, true, top, TIMELINE_RESERVED, err);
    if (!st)
        st = draw_counter(p, e, false, top, plim_svg_color(0), err);
    draw_names(p, e, false);
    draw_names(p, e, true);
    draw_peak(p, e, top);
    plim_svg_line(p, TIMELINE_LEFT, TIMELINE_PLOT_BOTTOM, TIMELINE_PLOT_RIGHT,
                  TIMELINE_PLOT_BOTTOM, TIMELINE_INK);
    plim_svg_close(p);
    return st;
}
