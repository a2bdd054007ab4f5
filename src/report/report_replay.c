/* report_replay.c -- the statistics of a replay, in the style of torch.cuda.memory_summary. */
#include "report/blocks.h"
#include "report/figures.h"

/* A statistic as the table in text has it: a plim_stat to its figures. */
typedef struct stat_row {
    plim_stat of;
    const char *name, *title;
    plim_cell_kind kind;
} stat_row;

/* clang-format off */
PLIM_GETTER(stat_what, stat_row, plim_cell_text(r->title))
PLIM_GETTER(stat_current, stat_row, plim_cell_u64(r->kind, r->of.current))
PLIM_GETTER(stat_peak, stat_row, plim_cell_u64(r->kind, r->of.peak))
PLIM_GETTER(stat_allocated, stat_row, plim_cell_u64(r->kind, r->of.allocated))
PLIM_GETTER(stat_freed, stat_row, plim_cell_u64(r->kind, r->of.freed))
PLIM_GETTER(live_where, plim_live_stack, plim_cell_text(r->where ? r->where : "(not recorded)"))
/* clang-format on */

#include "answers/replay.def"

enum { STAT_ROWS = PLIM_COUNT(plim_replay_stats_figures) - 1 };

/* The statistics that are known, in `rows`. */
static plim_rows stat_rows(const plim_replay *r, stat_row rows[STAT_ROWS])
{
    plim_rows all = PLIM_FIGURE_ROWS(stat, rows, 0);
    all.size = sizeof *rows;
    for (const plim_column *c = plim_replay_stats_figures; c->name; c++)
        if (plim_column_there(c, r))
            rows[all.n++] = (stat_row){
                *(const plim_stat *)((const char *)r + c->at - 1), c->name, c->title,
                strcmp(c->unit, "bytes") ? PLIM_CELL_COUNT : PLIM_CELL_BYTES};
    return all;
}

/* ---- blocks -------------------------------------------------------------- */

/* Keeps the n marks with the highest peaks, of equal ones the first, in the order of the tape. */
static plim_status keep_highest(plim_page *p, plim_rows *marks, uint64_t n, plim_err *err)
{
    plim_rows by_peak = *marks;
    const plim_replay_mark *const *all = marks->items;
    const plim_replay_mark **kept = PLIM_NEW_N(&p->arena, const plim_replay_mark *, n);
    plim_status st = plim_rows_sort(p, &by_peak, "peak_allocated", err);
    if (st || !kept)
        return st ? st : plim_oom(err);
    const plim_replay_mark *last = plim_rows_at(&by_peak, n - 1);
    uint64_t lowest = last->peak_allocated, equal = n, k = 0;
    for (uint64_t i = 0; i < marks->n; i++)
        equal -= all[i]->peak_allocated > lowest;
    for (uint64_t i = 0; i < marks->n && k < n; i++)
        if (all[i]->peak_allocated > lowest ||
            (all[i]->peak_allocated == lowest && equal && equal--))
            kept[k++] = all[i];
    marks->items = kept;
    marks->n = n;
    return PLIM_OK;
}

static plim_status replay_marks(plim_page *p, const plim_replay *r, plim_err *err)
{
    plim_rows marks = PLIM_FIGURE_ROWS(replay_mark, r->marks, r->n_marks);
    uint64_t top = (uint64_t)p->style.top;
    if (marks.n < 2)
        return PLIM_OK;
    if (marks.n > top) {
        PLIM_TRY(keep_highest(p, &marks, top, err));
        plim_heading_apart(p, "Marks with the highest peaks");
        plim_say(p, "(%" PRIu64 " of %" PRIu32 ")", marks.n, r->n_marks);
    } else {
        plim_heading_apart(p, "Marks");
    }
    plim_table(p, marks, 2);
    return PLIM_OK;
}

static void replay_counts(plim_page *p, const plim_replay *r)
{
    const struct {
        const char *name;
        uint64_t n;
    } counts[] = {{"device allocations", r->num_device_alloc},
                  {"device frees", r->num_device_free},
                  {"retries", r->num_alloc_retries},
                  {"out of memory", r->num_ooms}};
    plim_apart(p);
    plim_line(p, plim_dot(p), 0);
    for (size_t i = 0; i < PLIM_COUNT(counts); i++)
        plim_say(p, "%s %s", counts[i].name, plim_fmt_count(counts[i].n).s);
}

static void replay_oom(plim_page *p, const char *what, uint64_t at, const char *text)
{
    plim_apart(p);
    plim_heading(p, PLIM_PAINT_BAD, "Out of memory at");
    plim_say_as(p, PLIM_PAINT_BAD, "%s %s", what, plim_fmt_count(at).s);
    plim_paragraph(p, PLIM_PAINT_PLAIN, text, 0);
}

static void free_line(plim_page *p, const char *pool, const plim_free_blocks *b)
{
    bool si = p->style.si;
    plim_line(p, " ", 0);
    plim_say(p, "%s pool: %s free in segments", pool, plim_fmt_bytes(b->bytes, si).s);
    if (b->blocks)
        plim_say(p, "in %s %s, the largest %s", plim_fmt_count(b->blocks).s,
                 b->blocks == 1 ? "piece" : "pieces", plim_fmt_bytes(b->largest, si).s);
}

/* What was free when the first allocation failed. */
static void replay_free_blocks(plim_page *p, const plim_free_at_failure *o)
{
    bool si = p->style.si;
    plim_apart(p);
    plim_line(p, " ", 0);
    plim_say(p, "Requested: %s;", plim_fmt_bytes(o->requested, si).s);
    plim_say(p, "free on the card: %s", plim_fmt_bytes(o->device, si).s);
    free_line(p, "Large", &o->large);
    free_line(p, "Small", &o->small);
    if (!o->expandable_known)
        return;
    plim_paragraph(p, PLIM_PAINT_PLAIN,
                   !o->expandable_serves ? "With expandable_segments:True it fails too."
                   : o->expandable_oom
                       ? "With expandable_segments:True it succeeds, and a later one fails."
                       : "With expandable_segments:True the whole tape is served.",
                   0);
}

static void replay_quiet(plim_page *p, const stat_row *rows, uint64_t n)
{
    for (uint64_t i = 0; i < n; i++) {
        plim_value_u64(p, plim_page_format(p, "%s.current", rows[i].name), rows[i].of.current);
        plim_value_u64(p, plim_page_format(p, "%s.peak", rows[i].name), rows[i].of.peak);
    }
}

/* The memory that the allocator can get. */
static void replay_card(plim_page *p, const plim_replay_card *c)
{
    bool si = p->style.si;
    plim_line(p, " ", 0);
    plim_say(p, "%s for the allocator:",
             plim_fmt_bytes(c->bytes - PLIM_MIN(c->context, c->bytes), si).s);
    plim_say(p, "%s of the card", plim_fmt_bytes(c->bytes, si).s);
    if (c->context)
        plim_say(p, "less %s for the CUDA context (upper bound)",
                 plim_fmt_bytes(c->context, si).s);
    else
        plim_say(p, "(the size of its context is unknown)");
}

/* ---- recordings ------------------------------------------------------------ */

/* What the counters of a trace say. */
static const char *say_counters(plim_page *p, const plim_traced *t)
{
    bool si = p->style.si;
    const plim_trace_counters *c = t->counters;
    if (t->host)
        return plim_page_format(p, "Recorded: at most %s allocated; at the end %s.",
                                plim_fmt_bytes(c->peak_allocated, si).s,
                                plim_fmt_bytes(c->end_allocated, si).s);
    return plim_page_format(
        p,
        "Recorded: at most %s allocated (%s more reserved then) and "
        "%s reserved; at the end %s and %s.",
        plim_fmt_bytes(c->peak_allocated, si).s, plim_fmt_bytes(c->peak_unused, si).s,
        plim_fmt_bytes(c->peak_reserved, si).s, plim_fmt_bytes(c->end_allocated, si).s,
        plim_fmt_bytes(c->end_reserved, si).s);
}

/* What is missing in a trace, and what only it has. */
static void traced_notes(plim_page *p, const plim_traced *t)
{
    if (t->ends_at)
        plim_paragraph(
            p, PLIM_PAINT_PLAIN,
            plim_page_format(p, "The trace ends early, at byte %" PRIu64 ".", t->ends_at), 0);
    if (!t->requested_known)
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       "Sizes are those of blocks; requested sizes are not recorded.", 0);
    if (t->counters)
        plim_paragraph(p, PLIM_PAINT_PLAIN, say_counters(p, t), 0);
}

/* The file, and how much of the program it covers. */
static void recorded_line(plim_page *p, const plim_recorded *r)
{
    bool si = p->style.si;
    plim_line(p, " ", 0);
    plim_say(p, "%s:", r->format);
    plim_say(p, "%s %s%s", plim_fmt_count(r->actions).s, r->trace ? "event" : "action",
             r->actions == 1 ? "" : "s");
    if (r->trace && r->trace->host)
        plim_say(p, "of the CPU's memory (none of a GPU's)");
    if (r->devices > 1)
        plim_say(p, "of GPU %" PRIu32 ", the busiest of %" PRIu32, r->device, r->devices);
    if (r->trace && r->trace->processes > 1)
        plim_say(p, "in process %s, the busiest of %" PRIu32, r->trace->process,
                 r->trace->processes);
    if (r->from_start)
        plim_say(p, "from the start of the program");
    else if (!r->actions)
        plim_say(p, "(only the state at the end is recorded)");
    else if (!r->before_known)
        plim_say(p, "from a point where %s was in use", plim_fmt_bytes(r->before_bytes, si).s);
    else if (r->before_blocks)
        plim_say(p, "from a point where %s %s (%s) in use", plim_fmt_count(r->before_blocks).s,
                 r->before_blocks == 1 ? "block was" : "blocks were",
                 plim_fmt_bytes(r->before_bytes, si).s);
}

static void recorded_head(plim_page *p, const plim_recorded *r)
{
    recorded_line(p, r);
    if (r->gaps)
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       plim_page_format(p,
                                        "%s actions contradict earlier ones: some are missing",
                                        plim_fmt_count(r->gaps).s),
                       0);
    if (*r->alloc_conf) {
        plim_line(p, " ", 0);
        plim_say(p, r->trace ? "Settings that the counters show:" : "Recorded settings:");
        plim_say(p, "%s", r->alloc_conf);
    }
    if (r->trace)
        traced_notes(p, r->trace);
    if (!r->as_recorded)
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       "Replayed with settings other than the recorded ones.", 0);
    else if (!r->from_start && !r->counters_recorded && !(r->trace && r->trace->host))
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       !r->before_known
                           ? "Reserved memory, splits and numbers of blocks in the table are "
                             "those of an allocator that began empty; the recorded one may "
                             "hold more."
                           : "Reserved memory and splits in the table are those of an "
                             "allocator that began empty; the recorded one may hold more.",
                       0);
}

/* Whether the simulated allocator did what the recorded one did. */
static const char *say_verdict(plim_page *p, const plim_recorded *r)
{
    const char *what = !r->trace           ? "requests with equal addresses"
                       : r->addresses == 1 ? "event with equal counters"
                                           : "events with equal counters";
    const plim_text n = plim_fmt_count(r->addresses);
    if (r->agrees && r->trace)
        return plim_page_format(
            p,
            "The simulated allocator (PyTorch %s) agrees with the recorded one: bytes "
            "allocated and reserved after each event (%s).",
            r->torch, n.s);
    if (r->agrees)
        return plim_page_format(
            p,
            "The simulated allocator (PyTorch %s) agrees with the recorded one: "
            "the address of each block (%s), and all segments and "
            "blocks at the end.",
            r->torch, n.s);
    if (r->checked)
        return plim_page_format(
            p,
            "The simulated allocator (PyTorch %s) differs from the recorded one after "
            "%s %s: %s.",
            r->torch, n.s, what, r->difference);
    return plim_page_format(p, "Not compared with the simulated allocator: %s.",
                            r->difference);
}

/* Memory that is reserved but in no tensor, at the end. */
static void recorded_fragments(plim_page *p, const plim_recorded *r)
{
    uint64_t rounding = 0, allocated = 0;
    bool known = true, si = p->style.si;
    if (!r->free || !r->n_segments)
        return;
    for (uint32_t i = 0; i < r->n_segments; i++) {
        rounding += r->segments[i]->rounding;
        allocated += r->segments[i]->allocated;
        known &= r->segments[i]->rounding_known;
    }
    plim_heading_apart(p, "Fragmentation at the end");
    if (known) {
        plim_line(p, " ", 0);
        plim_say(p, "Rounding: %s of the %s in blocks", plim_fmt_bytes(rounding, si).s,
                 plim_fmt_bytes(allocated, si).s);
    }
    free_line(p, "Large", &r->free->large);
    free_line(p, "Small", &r->free->small);
    plim_table_titled(p, "Segments with the most free memory",
                      PLIM_FIGURE_ROWS(held_segment, r->segments, r->n_segments));
}

/* The out-of-memory in words. */
static void recorded_oom(plim_page *p, const plim_recorded *r)
{
    const plim_failed_request *o = r->oom;
    bool si = p->style.si;
    plim_buf b;
    if (!o)
        return;
    const plim_free_blocks *l = o->large, *s = o->small;
    plim_buf_init(&b, &p->arena);
    plim_buf_printf(&b, "The request for %s%s%s failed", plim_fmt_bytes(o->requested, si).s,
                    o->where ? " at " : "", o->where ? o->where : "");
    if (o->device_known)
        plim_buf_printf(&b, ": the card had %s free", plim_fmt_bytes(o->device, si).s);
    else if (r->trace && r->trace->counters)
        plim_buf_printf(&b, ": PyTorch had reserved %s, and could get no more",
                        plim_fmt_bytes(o->reserved, si).s);
    if (l && s && l->bytes + s->bytes) {
        uint32_t n = l->blocks + s->blocks;
        plim_buf_printf(&b, ", and of the %s that PyTorch had reserved, %s were free in %s %s",
                        plim_fmt_bytes(o->reserved, si).s,
                        plim_fmt_bytes(l->bytes + s->bytes, si).s, plim_fmt_count(n).s,
                        n == 1 ? "piece" : "pieces");
        plim_buf_printf(&b, ", the largest %s",
                        plim_fmt_bytes(PLIM_MAX(l->largest, s->largest), si).s);
    }
    plim_buf_puts(&b, ".");
    if (l && l->bytes >= o->requested)
        plim_buf_puts(&b, " There was enough free memory, but not in one piece: "
                          "it was fragmented.");
    if (o->expandable_known)
        plim_buf_puts(&b, o->expandable_serves
                              ? " With expandable_segments:True it is served."
                              : " With expandable_segments:True it fails too.");
    p->buf.bad |= b.bad;
    replay_oom(p, r->trace ? "event" : "action", o->action,
               plim_page_format(p, PLIM_STR_FMT, PLIM_STR_ARG(plim_buf_str(&b))));
}

static void recorded_rest(plim_page *p, const plim_recorded *r)
{
    plim_paragraph_apart(p,
                         r->agrees    ? PLIM_PAINT_GOOD
                         : r->checked ? PLIM_PAINT_BAD
                                      : PLIM_PAINT_DIM,
                         say_verdict(p, r));
    plim_table_titled(p, "In use at the peak",
                      PLIM_FIGURE_ROWS(live_stack, r->live_at_peak, r->n_live_at_peak));
    if (!r->as_recorded) /* the rest is about what happened */
        return;
    recorded_fragments(p, r);
    recorded_oom(p, r);
}

static void replay_stats(plim_page *p, const plim_replay *r)
{
    stat_row *rows = PLIM_NEW_N(&p->arena, stat_row, STAT_ROWS);
    p->buf.bad |= !rows;
    if (!rows)
        return;
    const plim_rows stats = stat_rows(r, rows);
    replay_quiet(p, rows, stats.n);
    plim_apart(p);
    plim_table(p, stats, 0);
}

static plim_status replay_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_replay *r = subject;
    if (r->recorded) {
        recorded_head(p, r->recorded);
    } else {
        plim_line(p, " ", 0);
        plim_say(p, "%s events, %s storages", plim_fmt_count(r->events).s,
                 plim_fmt_count(r->storages).s);
    }
    if (r->card)
        replay_card(p, r->card);
    replay_stats(p, r);
    replay_counts(p, r);
    PLIM_TRY(replay_marks(p, r, err));
    if (r->recorded)
        recorded_rest(p, r->recorded);
    if (r->oom)
        replay_oom(p, "event", r->oom_event, r->oom_text);
    if (r->oom && r->oom_free)
        replay_free_blocks(p, r->oom_free);
    plim_paragraph_apart(p, PLIM_PAINT_WARN, r->note);
    plim_data(p, "plimsoll/replay/1", plim_replay_figures, r, NULL, 0);
    return PLIM_OK;
}

plim_status plim_replay_print(const plim_replay *r, plim_render how, const plim_style *st,
                              plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "replay", .build = replay_build};
    return plim_report_print(&report, r, how, st, put, ud, err);
}
