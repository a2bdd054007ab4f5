/* report_vgpu.c -- what a program did to a card that does not exist. */
#include "report/report_vgpu.h"
#include "report/figures.h"

#include <stdio.h>

static const char *line_name(const char *line) { return *line ? line : "(no line)"; }

PLIM_GETTER(attempt_where, plim_vgpu_attempt, plim_cell_text(line_name(r->oom_line)))

#include "answers/run.def"

/* Of one line: the fewer lines there are the more of each. */
enum { GROUPS_LEAST = 6, GROUPS_IN_ALL = 36 };

static const char *const kinds[PLIM_CAT_COUNT] = {
    [PLIM_CAT_PARAMETER] = "Parameter", [PLIM_CAT_BUFFER] = "Buffer",
    [PLIM_CAT_GRADIENT] = "Gradient",   [PLIM_CAT_OPTIMIZER_STATE] = "Optimizer state",
    [PLIM_CAT_INPUT] = "Input",         [PLIM_CAT_ACTIVATION] = "Activation",
    [PLIM_CAT_TEMPORARY] = "Temporary", [PLIM_CAT_WORKSPACE] = "Workspace",
    [PLIM_CAT_OUTPUT] = "Output",
};

/* ---- phases ---------------------------------------------------------------- */

/* Up to the first step, and from the last one on: the last that is complete, or the one in
 * which memory ran out. */
static bool phase_is_shown(const plim_vgpu_report *r, const plim_phase_row *row)
{
    int last = r->end == PLIM_VGPU_END_MEMORY ? r->phases[r->n_phases - 1].step : r->steps - 1;
    return row->step <= 0 || row->step >= last;
}

/* A phase that comes several times in a step, as with gradient accumulation, is one row: what
 * it left the last time, and the highest of its peaks. */
static void add_phase(plim_phase_row *rows, uint32_t *n, const plim_phase_row *row)
{
    plim_phase_row *of = rows;
    while (of < rows + *n && (of->step != row->step || of->phase != row->phase))
        of++;
    if (of == rows + *n)
        rows[(*n)++] = *row;
    plim_phase_row was = *of;
    *of = *row;
    of->peak_allocated = PLIM_MAX(row->peak_allocated, was.peak_allocated);
}

static plim_status print_phases(plim_page *p, const plim_vgpu_report *r, plim_err *err)
{
    uint32_t n = 0;
    bool all = true;
    plim_phase_row *rows = PLIM_NEW_N(&p->arena, plim_phase_row, r->n_phases);
    if (!rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < r->n_phases; i++)
        if (phase_is_shown(r, &r->phases[i]))
            add_phase(rows, &n, &r->phases[i]);
        else
            all = false;
    plim_rows shown = plim_phase_rows(rows, n);
    plim_page_puts(p, all ? "\nPhases\n" : "\nPhases of the first and the last step\n");
    return plim_rows_text(p, &shown, 2, err);
}

/* ---- text ------------------------------------------------------------------ */

static plim_str shape_text(plim_page *p, const plim_vgpu_tensors *t)
{
    plim_buf b;
    plim_buf_init(&b, &p->arena);
    if (!t->shape_known) {
        plim_buf_printf(&b, "%" PRIu64 " bytes", t->count ? t->bytes / t->count : 0);
        return plim_buf_str(&b);
    }
    plim_buf_puts(&b, "(");
    for (int i = 0; i < t->rank; i++)
        plim_buf_printf(&b, "%s%" PRId64, i ? ", " : "", t->dim[i]);
    plim_buf_puts(&b, t->rank == 1 ? ",)" : ")");
    return plim_buf_str(&b);
}

/* In the layout of gpu_mem_track. */
static void print_groups(plim_page *p, const plim_vgpu_line *line, uint32_t most)
{
    uint64_t rest = 0;
    for (uint32_t i = 0; i < line->n_tensors; i++) {
        const plim_vgpu_tensors *t = &line->tensors[i];
        if (i >= most) {
            rest += t->bytes;
            continue;
        }
        plim_str shape = shape_text(p, t);
        plim_buf_printf(&p->buf, "    + | %" PRIu32 " * Size:" PLIM_STR_FMT " | %s | %s%s%s\n",
                        t->count, PLIM_STR_ARG(shape), plim_page_bytes(p, t->bytes).s,
                        kinds[t->category], t->shape_known ? " | " : "",
                        t->shape_known ? plim_dtype_name(t->dtype) : "");
    }
    if (line->n_tensors > most)
        plim_buf_printf(&p->buf, "    + | %" PRIu32 " more | %s\n", line->n_tensors - most,
                        plim_page_bytes(p, rest).s);
}

/* Of what belongs to no line, module or op. */
static const char *const no_group[PLIM_VGPU_BY_COUNT] = {
    [PLIM_VGPU_BY_LINE] = "(no line)",
    [PLIM_VGPU_BY_MODULE] = "(outside modules)",
    [PLIM_VGPU_BY_OP] = "empty",
};

static void print_line(plim_page *p, const plim_vgpu_line *line, plim_vgpu_by by)
{
    plim_str source = plim_page_clean(p, line->source);
    plim_page_puts(p, "  ");
    plim_page_paint(p, PLIM_PAINT_BOLD);
    plim_buf_add(&p->buf, plim_page_clean(p, *line->line ? line->line : no_group[by]));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_buf_printf(&p->buf, "  %s", plim_page_bytes(p, line->live_at_peak).s);
    if (line->requested > line->live_at_peak)
        plim_buf_printf(&p->buf, " of %s in %s allocations",
                        plim_page_bytes(p, line->requested).s,
                        plim_fmt_count(line->allocations).s);
    plim_page_puts(p, "\n");
    if (!source.n)
        return;
    plim_page_paint(p, PLIM_PAINT_DIM);
    plim_page_puts(p, "    ");
    plim_buf_add(&p->buf, plim_page_cut(p, source, p->width - 4, false));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_puts(p, "\n");
}

static void print_lines(plim_page *p, const plim_vgpu_report *r)
{
    uint32_t n = 0, shown = 0, more = 0;
    uint64_t rest = 0;
    while (n < r->n_lines && r->lines[n].live_at_peak)
        n++;
    shown = PLIM_MIN(n, (uint32_t)p->style.top);
    plim_buf_printf(&p->buf, "\nLive at the peak, by %s\n", plim_run_by(r->by));
    for (uint32_t i = 0; i < shown; i++) {
        print_line(p, &r->lines[i], r->by);
        print_groups(p, &r->lines[i], PLIM_MAX(GROUPS_LEAST, GROUPS_IN_ALL / shown));
    }
    for (uint32_t i = shown; i < n; i++, more++)
        rest += r->lines[i].live_at_peak;
    if (more)
        plim_buf_printf(&p->buf, "  and %" PRIu32 " more %s%s  %s\n", more, plim_run_by(r->by),
                        more == 1 ? "" : "s", plim_page_bytes(p, rest).s);
}

static bool growth_fills_card(const plim_vgpu_report *r)
{
    for (uint32_t i = 0; i < r->n_cards; i++)
        if (r->cards[i].growth_step)
            return true;
    return false;
}

static const char *plural_s(uint64_t n) { return n == 1 ? "" : "s"; }

/* What the steps that ran say of those that would follow. */
static void print_outlook(plim_page *p, const plim_vgpu_report *r)
{
    bool grows = growth_fills_card(r), done = r->end == PLIM_VGPU_END_DONE;
    if (done && grows)
        plim_buf_printf(&p->buf, " for the %d steps that ran", r->steps);
    else if (done && r->steps && !r->growth_sure)
        plim_buf_printf(&p->buf, ", as far as %d step%s show%s", r->steps,
                        plural_s((uint64_t)r->steps), r->steps == 1 ? "s" : "");
    if (grows)
        plim_page_puts(p, r->growth_sure ? ", but memory grows" : ", but memory may grow");
}

bool plim_run_died(const plim_vgpu_report *r)
{
    return r->end == PLIM_VGPU_END_MEMORY || r->failed;
}

void plim_run_memory(plim_page *p, const char *lead, const plim_vgpu_report *r)
{
    plim_page_paint(p, PLIM_PAINT_BAD);
    plim_page_puts(p, lead);
    plim_buf_add(&p->buf, plim_page_clean(p, line_name(r->oom_line)));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (r->end != PLIM_VGPU_END_MEMORY)
        plim_page_puts(p, ", which the script caught before it ended");
    plim_page_puts(p, "\n");
    plim_page_wrap(p, r->oom_text, 2);
}

void plim_run_recovered(plim_page *p, uint64_t num_ooms)
{
    if (num_ooms == 1)
        plim_page_puts(p, ", after running out of memory once");
    else if (num_ooms)
        plim_buf_printf(&p->buf, ", after running out of memory %s times",
                        plim_fmt_count(num_ooms).s);
}

static void print_verdict(plim_page *p, const plim_vgpu_report *r)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {
        "It fits", "It fits, as far as it ran", "Out of memory", "No verdict"};
    if (plim_run_died(r)) {
        plim_run_memory(p, "Out of memory at ", r);
        return;
    }
    plim_page_paint(p, PLIM_PAINT_GOOD);
    plim_page_puts(p, words[r->end]);
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (r->end != PLIM_VGPU_END_ERROR) {
        print_outlook(p, r);
        plim_run_recovered(p, r->num_ooms);
        if (!r->context_known)
            plim_page_puts(p, ", if its context, whose size is unknown, leaves the room");
    }
    plim_page_puts(p, "\n");
}

/* ---- attempts that failed ---------------------------------------------------- */

static plim_status print_attempts(plim_page *p, const plim_vgpu_report *r, plim_err *err)
{
    enum { ATTEMPTS_SHOWN = 8 };
    plim_rows rows = PLIM_FIGURE_LIST(vgpu_attempt, r->attempts,
                                      PLIM_MIN(r->n_attempts, (uint32_t)ATTEMPTS_SHOWN));
    if (!rows.n)
        return PLIM_OK;
    plim_page_puts(p, "\nAttempts that failed\n");
    plim_status st = plim_rows_text(p, &rows, 2, err);
    if (r->n_attempts > rows.n)
        plim_buf_printf(&p->buf, "  and %" PRIu64 " more\n", r->n_attempts - rows.n);
    return st;
}

/* "98.00 MiB a step", "98.00 MiB every 2 steps" */
static void print_rate(plim_page *p, uint64_t bytes, uint32_t every)
{
    plim_page_puts(p, plim_fmt_bytes(bytes, p->style.si).s);
    if (every == 1)
        plim_page_puts(p, " a step");
    else
        plim_buf_printf(&p->buf, " every %" PRIu32 " steps", every);
}

static void print_growing_line(plim_page *p, const plim_vgpu_growth *g)
{
    plim_page_puts(p, "  ");
    plim_page_paint(p, PLIM_PAINT_BOLD);
    plim_buf_add(&p->buf, plim_page_clean(p, line_name(g->line)));
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    plim_page_puts(p, "  ");
    print_rate(p, g->bytes, g->every);
    if (g->tensors)
        plim_buf_printf(&p->buf, " (%s tensor%s)", plim_fmt_count(g->tensors).s,
                        plural_s(g->tensors));
    if (*g->holder)
        plim_buf_printf(&p->buf, ", held by " PLIM_STR_FMT,
                        PLIM_STR_ARG(plim_page_clean(p, g->holder)));
    plim_page_puts(p, "\n");
}

/* "Out of memory near step 10 on T4, step 45 on A100" */
static void print_growth_end(plim_page *p, const plim_vgpu_report *r)
{
    uint32_t shown = 0;
    for (uint32_t i = 0; i < r->n_cards; i++) {
        const plim_vgpu_verdict *v = &r->cards[i];
        if (v->growth_step)
            plim_buf_printf(&p->buf, "%s step %" PRId64 " on %s",
                            shown++ ? "," : "  Out of memory near", v->growth_step,
                            plim_report_card(v->gpu));
    }
    if (shown)
        plim_page_puts(p, r->growth_sure ? "\n" : ", if it goes on\n");
}

static void print_growth(plim_page *p, const plim_vgpu_report *r)
{
    enum { LINES_SHOWN = 5 };
    if (!r->n_growth)
        return;
    plim_page_puts(p, r->growth_sure ? "\nMemory grows by " : "\nMemory may grow: ");
    if (r->n_growth == 1)
        print_rate(p, r->growth[0].bytes, r->growth[0].every);
    else
        print_rate(p, r->growth_bytes, 1);
    if (!r->growth_sure)
        plim_buf_printf(&p->buf, " in each of the last %" PRIu32 " steps", r->growth_steps);
    plim_page_puts(p, "\n");
    for (uint32_t i = 0; i < r->n_growth && i < LINES_SHOWN; i++)
        print_growing_line(p, &r->growth[i]);
    if (r->n_growth > LINES_SHOWN)
        plim_buf_printf(&p->buf, "  and %" PRIu32 " more line%s\n", r->n_growth - LINES_SHOWN,
                        plural_s(r->n_growth - LINES_SHOWN));
    print_growth_end(p, r);
}

static void print_figures(plim_page *p, const plim_vgpu_report *r)
{
    const struct {
        const char *name;
        uint64_t bytes;
    } rows[] = {{"requested", r->peak_requested},
                {"allocated", r->peak_allocated},
                {"reserved", r->peak_reserved}};
    plim_page_puts(p, "\nPeak\n");
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        plim_buf_printf(&p->buf, "  %-10s %12s  %s bytes\n", rows[i].name,
                        plim_page_bytes(p, rows[i].bytes).s, plim_fmt_count(rows[i].bytes).s);
    if (r->context_known) {
        plim_str range = plim_page_range(p, r->peak_reserved + r->context_low + r->nccl_low,
                                         r->peak_reserved + r->context_high + r->nccl_high);
        plim_buf_printf(&p->buf, "  %-10s %12.*s  with the CUDA context", "device",
                        PLIM_STR_ARG(range));
        if (r->nccl_high) {
            range = plim_page_range(p, r->nccl_low, r->nccl_high);
            plim_buf_printf(&p->buf, " and NCCL's buffers (" PLIM_STR_FMT ")",
                            PLIM_STR_ARG(range));
        }
        plim_page_puts(p, "\n");
    }
    if (r->context_known && r->cudnn_search)
        plim_buf_printf(&p->buf,
                        "  %-10s %12s  without cuDNN's search, which may briefly take all "
                        "that is free\n",
                        "", "");
    if (r->context_known && r->needed_low) {
        plim_str range = plim_page_range(p, r->needed_low, r->needed_high);
        plim_buf_printf(&p->buf, "  %-10s %12.*s  the smallest card it fits on\n", "needed",
                        PLIM_STR_ARG(range));
    }
    plim_page_puts(p, "  in ");
    if (r->peak_step >= 0)
        plim_buf_printf(&p->buf, "step %d, ", r->peak_step);
    plim_page_puts(p, plim_phase_name(r->peak_phase));
    if (*r->peak_op)
        plim_buf_printf(&p->buf, " (" PLIM_STR_FMT ")",
                        PLIM_STR_ARG(plim_page_clean(p, r->peak_op)));
    plim_buf_printf(&p->buf, ", %s\n", line_name(r->peak_line));
}

void plim_run_caveats(plim_page *p, const plim_vgpu_report *r)
{
    if (r->truncated)
        plim_page_wrap(p,
                       "\nNot every event could be recorded: what is live at the peak is "
                       "taken from the recorded part.",
                       0);
    if (!r->n_caveats)
        return;
    plim_page_puts(p, "\nRemarks\n");
    for (uint32_t i = 0; i < r->n_caveats; i++) {
        const plim_vgpu_caveat *c = &r->caveats[i];
        plim_buf_printf(&p->buf, "  " PLIM_STR_FMT "%s" PLIM_STR_FMT,
                        PLIM_STR_ARG(plim_page_clean(p, c->line)), *c->line ? "  " : "",
                        PLIM_STR_ARG(plim_page_clean(p, c->what)));
        if (c->count > 1)
            plim_buf_printf(&p->buf, " (%s x)", plim_fmt_count(c->count).s);
        plim_page_puts(p, "\n");
    }
}

void plim_run_title(plim_page *p, const plim_vgpu_report *r)
{
    const char *name = plim_report_card(r->card.name);
    plim_buf_printf(&p->buf, "%s", name);
    if (!strstr(name, "iB")) /* a generic card is called by its size */
        plim_buf_printf(&p->buf, ", %s", plim_fmt_bytes(r->card.total, p->style.si).s);
    const char *dot = plim_page_glyph(p, "\xc2\xb7", "|");
    plim_buf_printf(&p->buf, " %s PyTorch %s", dot, r->card.torch);
    if (r->world > 1)
        plim_buf_printf(&p->buf, " %s rank %d of %d", dot, r->rank, r->world);
    plim_page_puts(p, "\n");
}

plim_status plim_run_body(plim_page *p, const plim_vgpu_report *r, plim_err *err)
{
    plim_rows cards = PLIM_FIGURE_LIST(vgpu_verdict, r->cards, r->n_cards);
    plim_status st = PLIM_OK;
    print_growth(p, r);
    p->scale = r->peak_reserved;
    print_figures(p, r);
    st = print_attempts(p, r, err);
    if (!st && r->n_cards > 1) {
        plim_page_puts(p, "\nCards\n");
        st = plim_rows_text(p, &cards, 2, err);
    }
    print_lines(p, r);
    if (!st)
        st = print_phases(p, r, err);
    return st;
}

static plim_status run_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_vgpu_report *r = subject;
    if (p->style.quiet) {
        plim_buf_printf(&p->buf,
                        "peak_requested %" PRIu64 "\npeak_allocated %" PRIu64
                        "\npeak_reserved %" PRIu64 "\nnum_ooms %" PRIu64 "\n",
                        r->peak_requested, r->peak_allocated, r->peak_reserved, r->num_ooms);
        return PLIM_OK;
    }
    plim_run_title(p, r);
    if (r->storages)
        print_verdict(p, r);
    else
        plim_page_puts(p, "The script did not use the card\n");
    plim_status st = r->peak_requested ? plim_run_body(p, r, err) : PLIM_OK;
    if (!st)
        plim_run_caveats(p, r);
    return st;
}

/* ---- JSON ------------------------------------------------------------------ */

static plim_status run_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/run/1", plim_vgpu_report_figures, subject, NULL);
}

plim_status plim_machine_json(plim_page *p, const void *machine, plim_err *err)
{
    (void)err;
    return plim_report_json(p, "plimsoll/machine/1", plim_machine_figures, machine, NULL);
}

plim_rows plim_machine_rows(const plim_machine *m)
{
    return PLIM_FIGURE_LIST(machine_card, m->cards, m->n_cards);
}

plim_status plim_vgpu_report_print(const plim_vgpu_report *r, plim_render how,
                                   const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "run", .text = run_text, .json = run_json};
    return plim_report_print(&report, r, how, st, put, ud, err);
}
