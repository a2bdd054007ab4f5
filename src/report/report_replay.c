/* report_replay.c -- the statistics of a replay, in the style of torch.cuda.memory_summary. */
#include "report/report.h"

#include <stdlib.h>

typedef struct stat_row {
    const char *name; /* in torch.cuda.memory_stats, without ".all" */
    const char *title;
    plim_cell_kind kind;
    const plim_stat *stat;
} stat_row;

typedef struct mark_row {
    const plim_phase_row *at;
    const char *op;
    uint32_t index;
} mark_row;

/* clang-format off */
PLIM_GETTER(stat_title, stat_row, plim_cell_text(r->title))
PLIM_GETTER(stat_current, stat_row, plim_cell_u64(r->kind, r->stat->current))
PLIM_GETTER(stat_peak, stat_row, plim_cell_u64(r->kind, r->stat->peak))
PLIM_GETTER(stat_total, stat_row, plim_cell_u64(r->kind, r->stat->total_allocated))
PLIM_GETTER(stat_freed, stat_row, plim_cell_u64(r->kind, r->stat->total_freed))

static const plim_column stat_columns[] = {
    /* name      title        in            align       least drop get */
    PLIM_COLUMN("stat",      "",         PLIM_IN_TEXT, PLIM_CUT_TAIL, 16, 0, stat_title),
    PLIM_COLUMN("current",   "current",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, stat_current),
    PLIM_COLUMN("peak",      "peak",     PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, stat_peak),
    PLIM_COLUMN("allocated", "total",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, stat_total),
    PLIM_COLUMN("freed",     "freed",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, stat_freed),
};

PLIM_GETTER(mark_step, mark_row, plim_cell_int(r->at->step))
PLIM_GETTER(mark_phase, mark_row, plim_cell_text(plim_phase_name(r->at->phase)))
PLIM_GETTER(mark_op, mark_row, plim_cell_text(r->op))
PLIM_GETTER(mark_requested, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->requested))
PLIM_GETTER(mark_allocated, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->allocated))
PLIM_GETTER(mark_reserved, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->reserved))
PLIM_GETTER(mark_peak_requested, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->peak_requested))
PLIM_GETTER(mark_peak_allocated, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->peak_allocated))
PLIM_GETTER(mark_peak_reserved, mark_row, plim_cell_u64(PLIM_CELL_BYTES, r->at->peak_reserved))

static const plim_column mark_columns[] = {
    /* name            title        in            align       least drop get */
    PLIM_COLUMN("step",           "step",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, mark_step),
    PLIM_COLUMN("phase",          "phase",     PLIM_IN_BOTH, PLIM_LEFT,     0,  0, mark_phase),
    PLIM_COLUMN("op",             "op",        PLIM_IN_BOTH, PLIM_CUT_HEAD, 16, 0, mark_op),
    PLIM_COLUMN("requested",      "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_requested),
    PLIM_COLUMN("allocated",      "allocated", PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, mark_allocated),
    PLIM_COLUMN("reserved",       "reserved",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, mark_reserved),
    PLIM_COLUMN("peak_requested", "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_peak_requested),
    PLIM_COLUMN("peak_allocated", "peak",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, mark_peak_allocated),
    PLIM_COLUMN("peak_reserved",  "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_peak_reserved),
};

PLIM_GETTER(live_where, plim_live_stack, plim_cell_text(*r->where ? r->where : "(not recorded)"))
PLIM_GETTER(live_blocks, plim_live_stack,
            r->blocks ? plim_cell_u64(PLIM_CELL_COUNT, r->blocks) : (plim_cell){0})
PLIM_GETTER(live_bytes, plim_live_stack, plim_cell_u64(PLIM_CELL_BYTES, r->bytes))

static const plim_column live_columns[] = {
    /* name    title     in            align       least drop get */
    PLIM_COLUMN("where",  "where",  PLIM_IN_BOTH, PLIM_CUT_HEAD, 16, 0, live_where),
    PLIM_COLUMN("blocks", "blocks", PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, live_blocks),
    PLIM_COLUMN("bytes",  "bytes",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, live_bytes),
};

PLIM_GETTER(held_pool, plim_held_segment, plim_cell_text(r->small ? "small" : "large"))
PLIM_GETTER(held_stream, plim_held_segment, plim_cell_u64(PLIM_CELL_COUNT, r->stream))
PLIM_GETTER(held_expandable, plim_held_segment, plim_cell_bool(r->expandable))
PLIM_GETTER(held_bytes, plim_held_segment, plim_cell_u64(PLIM_CELL_BYTES, r->bytes))
PLIM_GETTER(held_used, plim_held_segment, plim_cell_u64(PLIM_CELL_BYTES, r->allocated))
PLIM_GETTER(held_rounding, plim_held_segment,
            r->rounding_known ? plim_cell_u64(PLIM_CELL_BYTES, r->rounding) : (plim_cell){0})
PLIM_GETTER(held_free, plim_held_segment, plim_cell_u64(PLIM_CELL_BYTES, r->free))
PLIM_GETTER(held_pieces, plim_held_segment, plim_cell_u64(PLIM_CELL_COUNT, r->pieces))
PLIM_GETTER(held_largest, plim_held_segment, plim_cell_u64(PLIM_CELL_BYTES, r->largest))

static const plim_column held_columns[] = {
    /* name        title       in            align       least drop get */
    PLIM_COLUMN("pool",       "pool",     PLIM_IN_BOTH, PLIM_LEFT,  0, 0, held_pool),
    PLIM_COLUMN("stream",     "stream",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 4, held_stream),
    PLIM_COLUMN("expandable", "",         PLIM_IN_DATA, PLIM_LEFT,  0, 0, held_expandable),
    PLIM_COLUMN("bytes",      "segment",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, held_bytes),
    PLIM_COLUMN("allocated",  "in use",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 1, held_used),
    PLIM_COLUMN("rounding",   "rounding", PLIM_IN_BOTH, PLIM_RIGHT, 0, 3, held_rounding),
    PLIM_COLUMN("free",       "free",     PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, held_free),
    PLIM_COLUMN("pieces",     "pieces",   PLIM_IN_BOTH, PLIM_RIGHT, 0, 2, held_pieces),
    PLIM_COLUMN("largest",    "largest",  PLIM_IN_BOTH, PLIM_RIGHT, 0, 0, held_largest),
};
/* clang-format on */

enum { STAT_ROWS = 9 };

static void fill_stats(stat_row row[STAT_ROWS], const plim_replay *r)
{
    /* clang-format off */
    const stat_row rows[STAT_ROWS] = {
        {"requested_bytes",      "requested",             PLIM_CELL_BYTES, &r->requested_bytes},
        {"allocated_bytes",      "allocated",             PLIM_CELL_BYTES, &r->allocated_bytes},
        {"active_bytes",         "active",                PLIM_CELL_BYTES, &r->active_bytes},
        {"reserved_bytes",       "reserved",              PLIM_CELL_BYTES, &r->reserved_bytes},
        {"inactive_split_bytes", "inactive split",        PLIM_CELL_BYTES, &r->inactive_split_bytes},
        {"allocation",           "allocations",           PLIM_CELL_COUNT, &r->allocation},
        {"active",               "active blocks",         PLIM_CELL_COUNT, &r->active},
        {"segment",              "segments",              PLIM_CELL_COUNT, &r->segment},
        {"inactive_split",       "inactive split blocks", PLIM_CELL_COUNT, &r->inactive_split},
    };
    /* clang-format on */
    memcpy(row, rows, sizeof rows);
}

static plim_rows stat_rows(const stat_row *rows, uint32_t n)
{
    return (plim_rows){.columns = stat_columns,
                       .n_columns = PLIM_COUNT(stat_columns),
                       .items = rows,
                       .size = sizeof *rows,
                       .n = n};
}

static plim_rows mark_rows(plim_page *p, const plim_replay *r)
{
    mark_row *rows = PLIM_NEW_N(&p->arena, mark_row, r->n_rows);
    p->buf.bad |= !rows;
    for (uint32_t i = 0; rows && i < r->n_rows; i++)
        rows[i] = (mark_row){r->rows[i], r->row_ops ? r->row_ops[i] : "", i};
    return (plim_rows){.columns = mark_columns,
                       .n_columns = PLIM_COUNT(mark_columns),
                       .items = rows,
                       .size = sizeof *rows,
                       .n = rows ? r->n_rows : 0};
}

/* ---- text ---------------------------------------------------------------- */

static int compare_peaks(const void *a, const void *b)
{
    const mark_row *x = a, *y = b;
    if (x->at->peak_allocated != y->at->peak_allocated)
        return x->at->peak_allocated > y->at->peak_allocated ? -1 : 1;
    return x->index < y->index ? -1 : 1;
}

static int compare_indices(const void *a, const void *b)
{
    const mark_row *x = a, *y = b;
    return x->index < y->index ? -1 : 1;
}

/* Prints the marks with the highest peaks, in the order of the tape. */
static plim_status replay_marks(plim_page *p, const plim_replay *r, plim_err *err)
{
    plim_rows rows = mark_rows(p, r);
    uint64_t all = rows.n;
    if (all < 2)
        return PLIM_OK;
    mark_row *items = (mark_row *)(uintptr_t)rows.items;
    if (all > (uint64_t)p->style.top) {
        qsort(items, (size_t)all, sizeof *items, compare_peaks);
        rows.n = (uint64_t)p->style.top;
        qsort(items, (size_t)rows.n, sizeof *items, compare_indices);
        plim_buf_printf(&p->buf,
                        "\nMarks with the highest peaks (%" PRIu64 " of %" PRIu64 ")\n",
                        rows.n, all);
    } else {
        plim_page_puts(p, "\nMarks\n");
    }
    return plim_rows_text(p, &rows, 2, err);
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
    plim_flow f = plim_flow_open(p, plim_page_glyph(p, " \xc2\xb7 ", " | "), 0);
    plim_page_puts(p, "\n");
    for (size_t i = 0; i < PLIM_COUNT(counts); i++)
        plim_flow_printf(&f, "%s %s", counts[i].name, plim_fmt_count(counts[i].n).s);
    plim_flow_end(&f);
}

static void replay_oom(plim_page *p, const plim_replay *r)
{
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_BAD);
    plim_buf_printf(&p->buf, "Out of memory at event %s\n", plim_fmt_count(r->oom_event).s);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_wrap(p, r->oom_text, 0);
}

static void free_line(plim_page *p, const char *pool, const plim_free_blocks *b)
{
    bool si = p->style.si;
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_flow_printf(&f, "%s pool: %s free in segments", pool, plim_fmt_bytes(b->bytes, si).s);
    if (b->blocks)
        plim_flow_printf(&f, "in %s %s, the largest %s", plim_fmt_count(b->blocks).s,
                         b->blocks == 1 ? "piece" : "pieces",
                         plim_fmt_bytes(b->largest, si).s);
    plim_flow_end(&f);
}

/* What was free when the first allocation failed. */
static void replay_free_blocks(plim_page *p, const plim_replay *r)
{
    bool si = p->style.si;
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_page_puts(p, "\n");
    plim_flow_printf(&f, "Requested: %s;", plim_fmt_bytes(r->oom_requested, si).s);
    plim_flow_printf(&f, "free on the card: %s", plim_fmt_bytes(r->oom_device_free, si).s);
    plim_flow_end(&f);
    free_line(p, "Large", r->large_free);
    free_line(p, "Small", r->small_free);
    if (!r->expandable_known)
        return;
    plim_page_wrap(p,
                   !r->expandable_served ? "With expandable_segments:True it fails too."
                   : r->expandable_oom
                       ? "With expandable_segments:True it succeeds, and a later one fails."
                       : "With expandable_segments:True the whole tape is served.",
                   0);
}

/* The first row is about what was requested, which a trace may not say. */
static size_t first_known(const plim_replay *r)
{
    const plim_traced *t = r->recorded ? r->recorded->trace : NULL;
    return t && !t->requested_known ? 1 : 0;
}

static void replay_quiet(plim_page *p, const stat_row *rows, size_t first)
{
    for (size_t i = first; i < STAT_ROWS; i++)
        plim_buf_printf(&p->buf, "%s.current %" PRIu64 "\n%s.peak %" PRIu64 "\n", rows[i].name,
                        rows[i].stat->current, rows[i].name, rows[i].stat->peak);
}

/* The memory that the allocator can get. */
static void replay_card(plim_page *p, const plim_replay *r)
{
    bool si = p->style.si;
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_flow_printf(&f, "%s for the allocator:",
                     plim_fmt_bytes(r->gpu_bytes - PLIM_MIN(r->context, r->gpu_bytes), si).s);
    plim_flow_printf(&f, "%s of the card", plim_fmt_bytes(r->gpu_bytes, si).s);
    if (r->context)
        plim_flow_printf(&f, "less %s for the CUDA context (upper bound)",
                         plim_fmt_bytes(r->context, si).s);
    else
        plim_flow_printf(&f, "(the size of its context is unknown)");
    plim_flow_end(&f);
}

/* ---- recordings ------------------------------------------------------------ */

/* What is missing in a trace, and what only it has. */
static void traced_notes(plim_page *p, const plim_traced *t)
{
    bool si = p->style.si;
    plim_str text;
    if (t->ends_at)
        plim_buf_printf(&p->buf, "The trace ends early, at byte %" PRIu64 ".\n", t->ends_at);
    if (!t->requested_known)
        plim_page_wrap(p,
                       "Sizes are those of the allocator's blocks: what was requested is not "
                       "recorded.",
                       0);
    if (!t->counted)
        return;
    if (t->host)
        text = plim_arena_printf(&p->arena, "Recorded: at most %s allocated; at the end %s.",
                                 plim_fmt_bytes(t->peak_allocated, si).s,
                                 plim_fmt_bytes(t->end_allocated, si).s);
    else
        text = plim_arena_printf(
            &p->arena,
            "Recorded: at most %s allocated (%s more reserved then) and "
            "%s reserved; at the end %s and %s.",
            plim_fmt_bytes(t->peak_allocated, si).s, plim_fmt_bytes(t->peak_unused, si).s,
            plim_fmt_bytes(t->peak_reserved, si).s, plim_fmt_bytes(t->end_allocated, si).s,
            plim_fmt_bytes(t->end_reserved, si).s);
    if (text.p)
        plim_page_wrap(p, text.p, 0);
    p->buf.bad |= !text.p;
}

/* The file, and how much of the program it covers. */
static void recorded_head(plim_page *p, const plim_recorded *r)
{
    plim_flow f = plim_flow_open(p, " ", 0);
    bool si = p->style.si;
    plim_flow_printf(&f, "%s:", r->format);
    plim_flow_printf(&f, "%s %s%s", plim_fmt_count(r->actions).s,
                     r->trace ? "event" : "action", r->actions == 1 ? "" : "s");
    if (r->trace && r->trace->host)
        plim_flow_printf(&f, "of the CPU's memory (none of a GPU's)");
    if (r->n_devices > 1)
        plim_flow_printf(&f, "of GPU %" PRIu32 ", the busiest of %" PRIu32, r->device,
                         r->n_devices);
    if (r->trace && r->trace->n_processes > 1)
        plim_flow_printf(&f, "in process %s, the busiest of %" PRIu32, r->trace->process,
                         r->trace->n_processes);
    if (r->from_start)
        plim_flow_printf(&f, "from the start of the program on");
    else if (!r->actions)
        plim_flow_printf(&f, "(only the state at the end is recorded)");
    else if (r->trace && r->trace->rest_bytes)
        plim_flow_printf(&f, "from a moment on when %s was in use",
                         plim_fmt_bytes(r->before_bytes, si).s);
    else if (r->before_blocks)
        plim_flow_printf(&f, "from a moment on when %s %s (%s) in use",
                         plim_fmt_count(r->before_blocks).s,
                         r->before_blocks == 1 ? "block was" : "blocks were",
                         plim_fmt_bytes(r->before_bytes, si).s);
    plim_flow_end(&f);
    if (r->gaps)
        plim_buf_printf(&p->buf, "%s actions contradict earlier ones: some are missing\n",
                        plim_fmt_count(r->gaps).s);
    if (*r->alloc_conf) {
        plim_page_puts(p,
                       r->trace ? "Settings that the counters show: " : "Recorded settings: ");
        plim_buf_add(&p->buf, plim_page_clean(p, r->alloc_conf));
        plim_page_puts(p, "\n");
    }
    if (r->trace)
        traced_notes(p, r->trace);
    if (!r->as_recorded)
        plim_page_wrap(p, "Replayed with other settings than were recorded.", 0);
    else if (!r->from_start && !(r->trace && r->trace->host))
        plim_page_wrap(p,
                       r->trace && r->trace->rest_bytes
                           ? "Reserved memory, splits and numbers of blocks in the table are "
                             "those of an allocator that began empty; the recorded one may "
                             "hold more."
                           : "Reserved memory and splits in the table are those of an "
                             "allocator that began empty; the recorded one may hold more.",
                       0);
}

/* Whether the simulated allocator did what the recorded one did. */
static plim_status recorded_verdict(plim_page *p, const plim_recorded *r, plim_err *err)
{
    const char *what = !r->trace           ? "requests with equal addresses"
                       : r->addresses == 1 ? "event with equal counters"
                                           : "events with equal counters";
    plim_str text =
        r->agrees && r->trace
            ? plim_arena_printf(&p->arena,
                                "The simulated allocator agrees with the recorded one: bytes "
                                "allocated and reserved after each event (%s).",
                                plim_fmt_count(r->addresses).s)
        : r->agrees
            ? plim_arena_printf(&p->arena,
                                "The simulated allocator agrees with the recorded one: "
                                "the address of each block (%s), and all segments and "
                                "blocks at the end.",
                                plim_fmt_count(r->addresses).s)
        : r->checked
            ? plim_arena_printf(&p->arena,
                                "The simulated allocator differs from the recorded one after "
                                "%s %s: %s.",
                                plim_fmt_count(r->addresses).s, what, r->difference)
            : plim_arena_printf(&p->arena, "Not compared with the simulated allocator: %s.",
                                r->difference);
    if (!text.p)
        return plim_oom(err);
    plim_page_puts(p, "\n");
    plim_page_paint(p, r->agrees    ? PLIM_PAINT_GOOD
                       : r->checked ? PLIM_PAINT_BAD
                                    : PLIM_PAINT_DIM);
    plim_page_wrap(p, text.p, 0);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    return PLIM_OK;
}

/* Memory that is reserved but in no tensor, at the end. */
static plim_status recorded_fragments(plim_page *p, const plim_recorded *r, plim_err *err)
{
    uint64_t rounding = 0, allocated = 0;
    bool known = true, si = p->style.si;
    if (!r->small_free || !r->n_segments)
        return PLIM_OK;
    for (uint32_t i = 0; i < r->n_segments; i++) {
        rounding += r->segments[i]->rounding;
        allocated += r->segments[i]->allocated;
        known &= r->segments[i]->rounding_known;
    }
    plim_page_puts(p, "\nFragmentation at the end\n");
    if (known)
        plim_buf_printf(&p->buf, "Rounding: %s of the %s in blocks\n",
                        plim_fmt_bytes(rounding, si).s, plim_fmt_bytes(allocated, si).s);
    free_line(p, "Large", r->large_free);
    free_line(p, "Small", r->small_free);
    return plim_report_table(p, "Segments with the most free memory",
                             PLIM_ROWS_OF(held_columns, r->segments, r->n_segments), err);
}

static uint64_t oom_free_bytes(const plim_recorded *r)
{
    return r->oom_large_free->bytes + r->oom_small_free->bytes;
}

/* The out-of-memory in words. */
static plim_status recorded_oom(plim_page *p, const plim_replay *r, plim_err *err)
{
    const plim_recorded *o = r->recorded;
    bool si = p->style.si;
    plim_buf b;
    if (!o->oom)
        return PLIM_OK;
    plim_buf_init(&b, &p->arena);
    plim_buf_printf(&b, "The request for %s%s%s failed",
                    plim_fmt_bytes(o->oom_requested, si).s, *o->oom_where ? " at " : "",
                    o->oom_where);
    if (o->oom_device_free != UINT64_MAX)
        plim_buf_printf(&b, ": the card had %s free",
                        plim_fmt_bytes(o->oom_device_free, si).s);
    else if (o->trace && o->trace->counted)
        plim_buf_printf(&b, ": PyTorch had reserved %s, and could get no more",
                        plim_fmt_bytes(o->oom_reserved, si).s);
    if (o->oom_large_free && oom_free_bytes(o)) {
        const plim_free_blocks *l = o->oom_large_free, *s = o->oom_small_free;
        uint32_t n = l->blocks + s->blocks;
        plim_buf_printf(&b, ", and of the %s that PyTorch had reserved, %s were free in %s %s",
                        plim_fmt_bytes(o->oom_reserved, si).s,
                        plim_fmt_bytes(oom_free_bytes(o), si).s, plim_fmt_count(n).s,
                        n == 1 ? "piece" : "pieces");
        plim_buf_printf(&b, ", the largest %s",
                        plim_fmt_bytes(PLIM_MAX(l->largest, s->largest), si).s);
    }
    plim_buf_puts(&b, ".");
    if (o->oom_large_free && o->oom_large_free->bytes >= o->oom_requested)
        plim_buf_puts(&b, " There was enough free memory, but not in one piece: "
                          "it was fragmented.");
    if (r->expandable_known)
        plim_buf_puts(&b, r->expandable_served
                              ? " With expandable_segments:True it is served."
                              : " With expandable_segments:True it fails too.");
    if (b.bad)
        return plim_oom(err);
    plim_page_puts(p, "\n");
    plim_page_paint(p, PLIM_PAINT_BAD);
    plim_buf_printf(&p->buf, "Out of memory at %s %s\n", o->trace ? "event" : "action",
                    plim_fmt_count(o->oom_action).s);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_buf_add(&b, (plim_str){"", 1}); /* ends the text */
    if (b.bad)
        return plim_oom(err);
    plim_page_wrap(p, plim_buf_str(&b).p, 0);
    return PLIM_OK;
}

static plim_status recorded_text(plim_page *p, const plim_replay *r, plim_err *err)
{
    const plim_recorded *rec = r->recorded;
    plim_status st = recorded_verdict(p, rec, err);
    if (!st)
        st = plim_report_table(p, "In use at the peak",
                               PLIM_ROWS_OF(live_columns, rec->live, rec->n_live), err);
    if (st || !rec->as_recorded) /* the rest is about what happened */
        return st;
    st = recorded_fragments(p, rec, err);
    return st ? st : recorded_oom(p, r, err);
}

static plim_status replay_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_replay *r = subject;
    stat_row rows[STAT_ROWS];
    fill_stats(rows, r);
    if (p->style.quiet) {
        replay_quiet(p, rows, first_known(r));
        return PLIM_OK;
    }
    const size_t first = first_known(r);
    const plim_rows stats = stat_rows(rows + first, (uint32_t)(STAT_ROWS - first));
    if (r->recorded)
        recorded_head(p, r->recorded);
    else
        plim_buf_printf(&p->buf, "%s events, %s storages\n", plim_fmt_count(r->events).s,
                        plim_fmt_count(r->storages).s);
    if (r->gpu_bytes)
        replay_card(p, r);
    plim_page_puts(p, "\n");
    plim_status st = plim_rows_text(p, &stats, 0, err);
    if (st)
        return st;
    replay_counts(p, r);
    if ((st = replay_marks(p, r, err)))
        return st;
    if (r->recorded && (st = recorded_text(p, r, err)))
        return st;
    if (r->oom)
        replay_oom(p, r);
    if (r->oom && r->small_free && r->large_free)
        replay_free_blocks(p, r);
    plim_report_paragraph(p, PLIM_PAINT_WARN, r->note);
    return PLIM_OK;
}

/* ---- JSON ---------------------------------------------------------------- */

static void u64_json(plim_jw *w, const char *key, uint64_t n)
{
    plim_jw_key(w, key);
    plim_jw_u64(w, n);
}

static void null_json(plim_jw *w, const char *key)
{
    plim_jw_key(w, key);
    plim_jw_null(w);
}

static void pool_json(plim_jw *w, const char *key, const plim_free_blocks *b)
{
    plim_jw_key(w, key);
    plim_jw_object(w);
    u64_json(w, "bytes", b->bytes);
    u64_json(w, "largest", b->largest);
    u64_json(w, "blocks", b->blocks);
    plim_jw_end(w);
}

static void free_json(plim_jw *w, const plim_replay *r)
{
    plim_jw_object(w);
    u64_json(w, "requested", r->oom_requested);
    u64_json(w, "device", r->oom_device_free);
    pool_json(w, "large", r->large_free);
    pool_json(w, "small", r->small_free);
    plim_jw_key(w, "expandable_serves");
    if (r->expandable_known)
        plim_jw_bool(w, r->expandable_served);
    else
        plim_jw_null(w);
    plim_jw_end(w);
}

static void card_json(plim_jw *w, const plim_replay *r)
{
    plim_jw_object(w);
    plim_jw_key(w, "name");
    plim_jw_cstr(w, r->gpu);
    u64_json(w, "bytes", r->gpu_bytes);
    u64_json(w, "context", r->context);
    plim_jw_end(w);
}

/* What was in use at the peak, each with its stack. */
static void live_json(plim_jw *w, const plim_recorded *r)
{
    plim_jw_key(w, "live_at_peak");
    plim_jw_array(w);
    for (uint32_t i = 0; i < r->n_live; i++) {
        plim_jw_object(w);
        plim_jw_key(w, "where");
        plim_jw_cstr(w, *r->live[i]->where ? r->live[i]->where : NULL);
        if (r->live[i]->blocks)
            u64_json(w, "blocks", r->live[i]->blocks);
        else
            null_json(w, "blocks");
        u64_json(w, "bytes", r->live[i]->bytes);
        plim_jw_key(w, "frames");
        plim_jw_array(w);
        for (uint32_t k = 0; k < r->live[i]->n_frames; k++)
            plim_jw_cstr(w, r->live[i]->frames[k]);
        plim_jw_end(w);
        plim_jw_end(w);
    }
    plim_jw_end(w);
}

static void recorded_oom_json(plim_jw *w, const plim_recorded *r)
{
    plim_jw_key(w, "oom");
    if (!r->oom) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    u64_json(w, "action", r->oom_action);
    plim_jw_key(w, "where");
    plim_jw_cstr(w, *r->oom_where ? r->oom_where : NULL);
    u64_json(w, "requested", r->oom_requested);
    if (r->oom_device_free != UINT64_MAX)
        u64_json(w, "device", r->oom_device_free);
    else
        null_json(w, "device");
    u64_json(w, "reserved", r->oom_reserved);
    if (r->oom_large_free) {
        pool_json(w, "large", r->oom_large_free);
        pool_json(w, "small", r->oom_small_free);
    }
    plim_jw_end(w);
}

static void traced_json(plim_jw *w, const plim_traced *t)
{
    plim_jw_object(w);
    plim_jw_key(w, "process");
    plim_jw_cstr(w, t->process);
    u64_json(w, "processes", t->n_processes);
    plim_jw_key(w, "host");
    plim_jw_bool(w, t->host);
    plim_jw_key(w, "requested_known");
    plim_jw_bool(w, t->requested_known);
    if (t->ends_at)
        u64_json(w, "ends_at", t->ends_at);
    else
        null_json(w, "ends_at");
    plim_jw_key(w, "counters");
    if (t->counted) {
        plim_jw_object(w);
        u64_json(w, "peak_allocated", t->peak_allocated);
        u64_json(w, "peak_reserved", t->peak_reserved);
        u64_json(w, "end_allocated", t->end_allocated);
        u64_json(w, "end_reserved", t->end_reserved);
        u64_json(w, "peak_unused", t->peak_unused);
        plim_jw_end(w);
    } else {
        plim_jw_null(w);
    }
    plim_jw_end(w);
}

static void recorded_json(plim_jw *w, const plim_recorded *r)
{
    const plim_rows segments = PLIM_ROWS_OF(held_columns, r->segments, r->n_segments);
    plim_jw_object(w);
    plim_jw_key(w, "format");
    plim_jw_cstr(w, r->format);
    u64_json(w, "actions", r->actions);
    u64_json(w, "device", r->device);
    u64_json(w, "devices", r->n_devices);
    plim_jw_key(w, "alloc_conf");
    plim_jw_cstr(w, r->alloc_conf);
    plim_jw_key(w, "as_recorded");
    plim_jw_bool(w, r->as_recorded);
    plim_jw_key(w, "from_start");
    plim_jw_bool(w, r->from_start);
    if (r->trace && r->trace->rest_bytes)
        null_json(w, "before_blocks");
    else
        u64_json(w, "before_blocks", r->before_blocks);
    u64_json(w, "before_bytes", r->before_bytes);
    u64_json(w, "gaps", r->gaps);
    plim_jw_key(w, "agrees");
    if (r->checked)
        plim_jw_bool(w, r->agrees);
    else
        plim_jw_null(w);
    u64_json(w, "addresses", r->addresses);
    plim_jw_key(w, "difference");
    plim_jw_cstr(w, r->difference);
    live_json(w, r);
    plim_rows_json(w, "segments", &segments);
    plim_jw_key(w, "free");
    if (r->small_free) {
        plim_jw_object(w);
        pool_json(w, "large", r->large_free);
        pool_json(w, "small", r->small_free);
        plim_jw_end(w);
    } else {
        plim_jw_null(w);
    }
    recorded_oom_json(w, r);
    plim_jw_key(w, "trace");
    if (r->trace)
        traced_json(w, r->trace);
    else
        plim_jw_null(w);
    plim_jw_end(w);
}

static plim_status replay_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_replay *r = subject;
    const struct {
        const char *key;
        uint64_t n;
    } counts[] = {{"events", r->events},
                  {"storages", r->storages},
                  {"num_alloc_retries", r->num_alloc_retries},
                  {"num_ooms", r->num_ooms},
                  {"num_device_alloc", r->num_device_alloc},
                  {"num_device_free", r->num_device_free}};
    stat_row rows[STAT_ROWS];
    plim_jw w;
    plim_rows marks = mark_rows(p, r);
    fill_stats(rows, r);
    plim_report_json_open(&w, p, "plimsoll/replay/1", NULL);
    if (r->note && *r->note) {
        plim_jw_key(&w, "note");
        plim_jw_cstr(&w, r->note);
    }
    for (size_t i = 0; i < PLIM_COUNT(counts); i++) {
        plim_jw_key(&w, counts[i].key);
        plim_jw_u64(&w, counts[i].n);
    }
    plim_jw_key(&w, "stats");
    plim_jw_object(&w);
    for (size_t i = first_known(r); i < STAT_ROWS; i++) {
        const plim_rows one = stat_rows(&rows[i], 1);
        plim_jw_key(&w, rows[i].name);
        plim_rows_json_item(&w, &one, 0);
    }
    plim_jw_end(&w);
    plim_rows_json(&w, "marks", &marks);
    plim_jw_key(&w, "oom");
    plim_jw_bool(&w, r->oom);
    plim_jw_key(&w, "oom_event");
    if (r->oom)
        plim_jw_u64(&w, r->oom_event);
    else
        plim_jw_null(&w);
    plim_jw_key(&w, "oom_text");
    plim_jw_cstr(&w, r->oom ? r->oom_text : NULL);
    plim_jw_key(&w, "oom_free");
    if (r->oom && r->small_free && r->large_free)
        free_json(&w, r);
    else
        plim_jw_null(&w);
    plim_jw_key(&w, "card");
    if (r->gpu_bytes)
        card_json(&w, r);
    else
        plim_jw_null(&w);
    plim_jw_key(&w, "recorded");
    if (r->recorded)
        recorded_json(&w, r->recorded);
    else
        plim_jw_null(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

plim_status plim_replay_print(const plim_replay *r, plim_render how, const plim_style *st,
                              plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {
        .name = "replay", .text = replay_text, .json = replay_json};
    return plim_report_print(&report, r, how, st, put, ud, err);
}
