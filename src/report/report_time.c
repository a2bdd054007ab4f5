/* report_time.c -- the time of a step: one line of an estimate, and the list of what takes it. */
#include "report/blocks.h"
#include "report/figures.h"

/* "41 ms (34-51 ms)", all in the unit of the greatest. */
static void say_range(plim_page *p, const plim_step_time *t)
{
    double unit = t->high_ms >= 1000 ? 1000 : 1;
    const char *name = unit > 1 ? "s" : "ms";
    plim_say(p, "%s %s %s", plim_page_glyph(p, "\xe2\x89\x88", "~"),
             plim_fmt_digits(t->usual_ms / unit).s, name);
    plim_say(p, "(%s-%s %s),", plim_fmt_digits(t->low_ms / unit).s,
             plim_fmt_digits(t->high_ms / unit).s, name);
}

/* What limits most of the time. */
static const char *name_limit(const plim_step_time *t, double *share)
{
    *share = PLIM_MAX(t->memory, PLIM_MAX(t->computation, t->launch));
    return *share <= t->memory        ? "memory traffic"
           : *share <= t->computation ? "computation"
                                      : "kernel launches";
}

void plim_report_step_time(plim_page *p, const plim_step_time *t, uint32_t indent)
{
    double share;
    plim_line(p, " ", indent);
    if (t->unknown) {
        plim_say(p, "step time unknown: %s", t->unknown);
        return;
    }
    const char *limit = name_limit(t, &share);
    plim_say(p, "step time, an estimate:");
    say_range(p, t);
    if (t->samples_per_s > 0)
        plim_say(p, "%s samples/s,", plim_fmt_digits(t->samples_per_s).s);
    plim_say(p, "%u %% limited by %s", (unsigned)(share * 100 + 0.5), limit);
}

/* ---- the list -------------------------------------------------------------- */

static plim_cell macs_cell(uint64_t macs)
{
    return macs ? plim_cell_u64(PLIM_CELL_METRIC, macs) : plim_cell_text("");
}

/* clang-format off */
PLIM_GETTER(macs_shown, plim_time_row, macs_cell(r->macs))
/* clang-format on */

#include "answers/times.def"

static plim_status times_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_times *t = subject;
    plim_rows r = PLIM_FIGURE_ROWS(time_row, t->ops, t->n_ops);
    plim_sheet(p, r);
    r.n = PLIM_MIN(r.n, (uint64_t)PLIM_MAX(p->style.top, 1));
    plim_report_model_line(p, t->model);
    plim_apart(p);
    if (t->gpu)
        plim_report_step_time(p, &t->time, 0);
    else
        plim_paragraph(
            p, PLIM_PAINT_PLAIN,
            "Times need a card (--gpu). Without one, ops are listed by memory traffic.", 0);
    if (!r.n || !(t->ops[0]->ms > 0)) /* no row has a time */
        r.hidden = "ms,limit";
    plim_apart(p);
    plim_table(p, r, 0);
    if (r.n < t->n_ops) {
        plim_line(p, " ", 0);
        plim_say(p, "... and %" PRIu64 " more (--top)", t->n_ops - r.n);
    }
    plim_data(p, "plimsoll/time/1", plim_times_figures, t, NULL, 0);
    return PLIM_OK;
}

PLIM_ONE_MODEL(times_model, plim_times)

plim_status plim_times_print(const plim_times *t, plim_render r, const plim_style *st,
                             plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "time", .model = times_model, .build = times_build};
    return plim_report_print(&report, t, r, st, put, ud, err);
}
