/* measures.c -- what a machine says of itself: growth, durations, temperatures.  In data they are
 * whole numbers. */
#include "report/report.h"

#include <math.h>
#include <time.h>

/* ---- as a cell --------------------------------------------------------------- */

static plim_cell cell_measured(plim_kind kind, int64_t v)
{
    plim_cell c = plim_cell_int(v);
    c.measure = (int)kind;
    return c;
}

plim_cell plim_cell_measure(plim_kind kind, double v)
{
    const double most = 1e18; /* which an int64_t holds */
    if (!isfinite(v))
        return (plim_cell){.kind = PLIM_CELL_UNKNOWN};
    plim_cell c = cell_measured(kind, (int64_t)PLIM_MIN(PLIM_MAX(v, -most), most));
    c.real = v;
    return c;
}

static plim_cell cell_number(plim_kind kind, uint64_t n)
{
    if (n == UINT64_MAX)
        return (plim_cell){.kind = PLIM_CELL_UNKNOWN};
    if (kind == PLIM_KIND_READ_BYTES || kind == PLIM_KIND_READ_COUNT)
        return plim_cell_u64(kind == PLIM_KIND_READ_BYTES ? PLIM_CELL_BYTES : PLIM_CELL_COUNT,
                             n);
    return cell_measured(kind, (int64_t)n);
}

plim_cell plim_cell_read(plim_kind kind, const void *field)
{
    const char *text;
    switch (kind) {
    case PLIM_KIND_READ_TEXT:
        text = *(const char *const *)field;
        return text ? plim_cell_text(text) : (plim_cell){.kind = PLIM_CELL_UNKNOWN};
    case PLIM_KIND_TIME: return cell_measured(kind, *(const int64_t *)field);
    case PLIM_KIND_GROWTH:
    case PLIM_KIND_DURATION: return plim_cell_measure(kind, *(const double *)field);
    case PLIM_KIND_ROUNDED:
        return plim_cell_measure(PLIM_KIND_NONE, round(*(const double *)field));
    default: return cell_number(kind, *(const uint64_t *)field);
    }
}

/* ---- as text ----------------------------------------------------------------- */

/* "45 s", "12 min", "3 h". */
static plim_str say_duration(plim_page *p, double s)
{
    enum { MINUTE = 60, HOUR = 3600, DAY = 86400, LONG = 30 };
    return s >= LONG * (double)DAY ? PLIM_STR("> 30 d")
           : s < 2 * MINUTE        ? plim_arena_printf(&p->arena, "%.0f s", s)
           : s < 2 * HOUR          ? plim_arena_printf(&p->arena, "%.0f min", s / MINUTE)
           : s < 2 * DAY           ? plim_arena_printf(&p->arena, "%.0f h", s / HOUR)
                                   : plim_arena_printf(&p->arena, "%.0f d", s / DAY);
}

/* "+1.00 MiB/s" */
static plim_str say_growth(plim_page *p, double v)
{
    uint64_t size = (uint64_t)PLIM_MIN(fabs(v), 1e18);
    return plim_arena_printf(&p->arena, "%s%s/s", v < 0 ? "-" : "+",
                             plim_fmt_bytes(size, p->style.si).s);
}

plim_str plim_page_time(plim_page *p, int64_t ms)
{
    char text[64];
    time_t seconds = (time_t)(ms / 1000);
    struct tm t;
    if (!localtime_r(&seconds, &t) || !strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &t))
        return PLIM_STR("-");
    return plim_arena_str(&p->arena, plim_str_of(text));
}

static plim_str say_measure(plim_page *p, const plim_cell *c)
{
    const char *degree = plim_page_glyph(p, "\xc2\xb0", "");
    switch (c->measure) {
    case PLIM_KIND_PERCENT: return plim_arena_printf(&p->arena, "%" PRIu64 " %%", c->n);
    case PLIM_KIND_CELSIUS:
        return plim_arena_printf(&p->arena, "%" PRIu64 " %sC", c->n, degree);
    case PLIM_KIND_MILLIWATTS:
        return plim_arena_printf(&p->arena, "%" PRIu64 " W", (c->n + 500) / 1000);
    case PLIM_KIND_GROWTH: return say_growth(p, c->real);
    case PLIM_KIND_DURATION: return say_duration(p, c->real);
    case PLIM_KIND_TIME: return plim_page_time(p, (int64_t)(c->negative ? -c->n : c->n));
    default: return plim_arena_printf(&p->arena, "%" PRIu64, c->n); /* no separators */
    }
}

plim_str plim_cell_show_measure(plim_page *p, const plim_cell *c)
{
    plim_str s = say_measure(p, c);
    p->buf.bad |= !s.p;
    return s.p ? s : PLIM_STR("");
}
