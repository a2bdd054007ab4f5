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
    {"stat",      "",         PLIM_IN_TEXT, PLIM_CUT_TAIL, 16, 0, stat_title},
    {"current",   "current",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, stat_current},
    {"peak",      "peak",     PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, stat_peak},
    {"allocated", "total",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, stat_total},
    {"freed",     "freed",    PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, stat_freed},
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
    {"step",           "step",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  3, mark_step},
    {"phase",          "phase",     PLIM_IN_BOTH, PLIM_LEFT,     0,  0, mark_phase},
    {"op",             "op",        PLIM_IN_BOTH, PLIM_CUT_HEAD, 16, 0, mark_op},
    {"requested",      "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_requested},
    {"allocated",      "allocated", PLIM_IN_BOTH, PLIM_RIGHT,    0,  1, mark_allocated},
    {"reserved",       "reserved",  PLIM_IN_BOTH, PLIM_RIGHT,    0,  2, mark_reserved},
    {"peak_requested", "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_peak_requested},
    {"peak_allocated", "peak",      PLIM_IN_BOTH, PLIM_RIGHT,    0,  0, mark_peak_allocated},
    {"peak_reserved",  "",          PLIM_IN_DATA, PLIM_LEFT,     0,  0, mark_peak_reserved},
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

static void replay_quiet(plim_page *p, const stat_row *rows)
{
    for (size_t i = 0; i < STAT_ROWS; i++)
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

static plim_status replay_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_replay *r = subject;
    stat_row rows[STAT_ROWS];
    fill_stats(rows, r);
    if (p->style.quiet) {
        replay_quiet(p, rows);
        return PLIM_OK;
    }
    const plim_rows stats = stat_rows(rows, STAT_ROWS);
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
    for (size_t i = 0; i < STAT_ROWS; i++) {
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

plim_status plim_replay_json(const plim_replay *r, plim_put put, void *ud, plim_err *err)
{
    return plim_replay_print(r, PLIM_JSON, NULL, put, ud, err);
}
