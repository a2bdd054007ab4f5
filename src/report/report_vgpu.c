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

static plim_status add_phases(plim_page *p, const plim_vgpu_report *r, plim_err *err)
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
    plim_heading_apart(p, all ? "Phases" : "Phases of the first and the last step");
    plim_table(p, plim_phase_rows(rows, n), 2);
    return PLIM_OK;
}

/* ---- blocks ---------------------------------------------------------------- */

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
static void add_groups(plim_page *p, const plim_vgpu_line *line, uint32_t most)
{
    uint64_t rest = 0;
    for (uint32_t i = 0; i < line->n_tensors; i++) {
        const plim_vgpu_tensors *t = &line->tensors[i];
        if (i >= most) {
            rest += t->bytes;
            continue;
        }
        plim_str shape = shape_text(p, t);
        plim_code(p, 4, "+ | %" PRIu32 " * Size:" PLIM_STR_FMT " | %s | %s%s%s%s%s", t->count,
                  PLIM_STR_ARG(shape), plim_page_bytes(p, t->bytes).s, kinds[t->category],
                  t->certainty == PLIM_EXACT ? "" : ", ",
                  t->certainty == PLIM_EXACT ? "" : plim_certainty_name(t->certainty),
                  t->shape_known ? " | " : "",
                  t->shape_known ? plim_dtype_name(t->dtype) : "");
    }
    if (line->n_tensors > most)
        plim_code(p, 4, "+ | %" PRIu32 " more | %s", line->n_tensors - most,
                  plim_page_bytes(p, rest).s);
}

/* Of what belongs to no line, module or op. */
static const char *const no_group[PLIM_VGPU_BY_COUNT] = {
    [PLIM_VGPU_BY_LINE] = "(no line)",
    [PLIM_VGPU_BY_MODULE] = "(outside modules)",
    [PLIM_VGPU_BY_OP] = "empty",
};

static void add_line(plim_page *p, const plim_vgpu_line *line, plim_vgpu_by by)
{
    plim_line_whole(p, "  ", 2);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s", *line->line ? line->line : no_group[by]);
    plim_say(p, "%s", plim_page_bytes(p, line->live_at_peak).s);
    if (line->requested > line->live_at_peak)
        plim_say_glued(p, PLIM_PAINT_PLAIN, " of %s in %s allocations",
                       plim_page_bytes(p, line->requested).s,
                       plim_fmt_count(line->allocations).s);
    if (!line->source || !*line->source)
        return;
    plim_code(p, 4, "%s", line->source);
    plim_block_paint(p, PLIM_PAINT_DIM);
}

static void add_lines(plim_page *p, const plim_vgpu_report *r)
{
    uint32_t n = 0, shown = 0, more = 0;
    uint64_t rest = 0;
    while (n < r->n_lines && r->lines[n].live_at_peak)
        n++;
    shown = PLIM_MIN(n, (uint32_t)p->style.top);
    plim_heading_apart(p, "Live at the peak, by");
    plim_say(p, "%s", plim_run_by(r->by));
    for (uint32_t i = 0; i < shown; i++) {
        add_line(p, &r->lines[i], r->by);
        add_groups(p, &r->lines[i], PLIM_MAX(GROUPS_LEAST, GROUPS_IN_ALL / shown));
    }
    for (uint32_t i = shown; i < n; i++, more++)
        rest += r->lines[i].live_at_peak;
    if (!more)
        return;
    plim_line_whole(p, "  ", 2);
    plim_say(p, "and %" PRIu32 " more %s%s", more, plim_run_by(r->by), more == 1 ? "" : "s");
    plim_say(p, "%s", plim_page_bytes(p, rest).s);
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
static void say_outlook(plim_page *p, const plim_vgpu_report *r)
{
    bool grows = growth_fills_card(r), done = r->end == PLIM_VGPU_END_DONE;
    if (done && grows)
        plim_say_glued(p, PLIM_PAINT_PLAIN, " for the %d steps that ran", r->steps);
    else if (done && r->steps && !r->growth_sure)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", as far as %d step%s show%s", r->steps,
                       plural_s((uint64_t)r->steps), r->steps == 1 ? "s" : "");
    if (grows)
        plim_say_glued(p, PLIM_PAINT_PLAIN,
                       r->growth_sure ? ", but memory grows" : ", but memory may grow");
}

bool plim_run_died(const plim_vgpu_report *r)
{
    return r->end == PLIM_VGPU_END_MEMORY || r->failed;
}

void plim_run_verdict(plim_page *p, plim_vgpu_end end)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {
        "It fits", "It fits, as far as it ran", "Out of memory", "No verdict"};
    plim_line_whole(p, " ", 0);
    plim_say_as(p, end == PLIM_VGPU_END_MEMORY ? PLIM_PAINT_BAD : PLIM_PAINT_GOOD, "%s",
                words[end]);
}

void plim_run_memory(plim_page *p, const char *lead, const plim_vgpu_report *r)
{
    plim_line_whole(p, " ", 0);
    plim_say_as(p, PLIM_PAINT_BAD, "%s %s", lead, line_name(r->oom_line));
    if (r->end != PLIM_VGPU_END_MEMORY)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", which the script caught before it ended");
    plim_paragraph(p, PLIM_PAINT_PLAIN, r->oom_text, 2);
}

void plim_run_recovered(plim_page *p, uint64_t num_ooms)
{
    if (num_ooms == 1)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", after running out of memory once");
    else if (num_ooms)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", after running out of memory %s times",
                       plim_fmt_count(num_ooms).s);
}

static void add_verdict(plim_page *p, const plim_vgpu_report *r)
{
    if (plim_run_died(r)) {
        plim_run_memory(p, "Out of memory at", r);
        return;
    }
    plim_run_verdict(p, r->end);
    if (r->end == PLIM_VGPU_END_ERROR)
        return;
    say_outlook(p, r);
    plim_run_recovered(p, r->num_ooms);
    if (!r->context_known)
        plim_say_glued(p, PLIM_PAINT_PLAIN,
                       ", if its context, whose size is unknown, leaves enough room");
}

/* ---- attempts that failed ---------------------------------------------------- */

static void add_attempts(plim_page *p, const plim_vgpu_report *r)
{
    enum { ATTEMPTS_SHOWN = 8 };
    plim_rows rows = PLIM_FIGURE_LIST(vgpu_attempt, r->attempts,
                                      PLIM_MIN(r->n_attempts, (uint32_t)ATTEMPTS_SHOWN));
    if (!rows.n)
        return;
    plim_heading_apart(p, "Attempts that failed");
    plim_table(p, rows, 2);
    if (r->n_attempts > rows.n) {
        plim_line_whole(p, " ", 2);
        plim_say(p, "and %" PRIu64 " more", r->n_attempts - rows.n);
    }
}

/* "98.00 MiB a step", "98.00 MiB every 2 steps" */
static void say_rate(plim_page *p, uint64_t bytes, uint32_t every)
{
    plim_say(p, "%s", plim_fmt_bytes(bytes, p->style.si).s);
    if (every == 1)
        plim_say_glued(p, PLIM_PAINT_PLAIN, " a step");
    else
        plim_say_glued(p, PLIM_PAINT_PLAIN, " every %" PRIu32 " steps", every);
}

static void add_growing_line(plim_page *p, const plim_vgpu_growth *g)
{
    plim_line_whole(p, "  ", 2);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s", line_name(g->line));
    say_rate(p, g->bytes, g->every);
    if (g->tensors)
        plim_say_glued(p, PLIM_PAINT_PLAIN, " (%s tensor%s)", plim_fmt_count(g->tensors).s,
                       plural_s(g->tensors));
    if (*g->holder)
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", held by %s", g->holder);
}

/* "Out of memory near step 10 on T4, step 45 on A100" */
static void add_growth_end(plim_page *p, const plim_vgpu_report *r)
{
    const char *lead = "Out of memory near ";
    for (uint32_t i = 0; i < r->n_cards; i++) {
        const plim_vgpu_verdict *v = &r->cards[i];
        if (!v->growth_step)
            continue;
        if (*lead)
            plim_line_whole(p, ", ", 2);
        plim_say(p, "%sstep %" PRId64 " on %s", lead, v->growth_step,
                 plim_report_card(v->gpu));
        lead = "";
    }
    if (!*lead && !r->growth_sure)
        plim_say(p, "if it goes on");
}

static void add_growth(plim_page *p, const plim_vgpu_report *r)
{
    enum { LINES_SHOWN = 5 };
    if (!r->n_growth)
        return;
    plim_heading_apart(p, r->growth_sure ? "Memory grows by" : "Memory may grow:");
    if (r->n_growth == 1)
        say_rate(p, r->growth[0].bytes, r->growth[0].every);
    else
        say_rate(p, r->growth_bytes, 1);
    if (!r->growth_sure)
        plim_say(p, "in each of the last %" PRIu32 " steps", r->growth_steps);
    for (uint32_t i = 0; i < r->n_growth && i < LINES_SHOWN; i++)
        add_growing_line(p, &r->growth[i]);
    if (r->n_growth > LINES_SHOWN) {
        plim_line_whole(p, " ", 2);
        plim_say(p, "and %" PRIu32 " more line%s", r->n_growth - LINES_SHOWN,
                 plural_s(r->n_growth - LINES_SHOWN));
    }
    add_growth_end(p, r);
}

static void add_peak(plim_page *p, const char *name, uint64_t bytes)
{
    plim_fact_add(p, name, plim_page_range(p, bytes, bytes),
                  plim_page_format(p, "%s bytes", plim_fmt_count(bytes).s));
}

static const char *device_note(plim_page *p, const plim_vgpu_report *r)
{
    if (!r->nccl_high)
        return "with the CUDA context";
    return plim_page_format(p, "with the CUDA context and NCCL's buffers (" PLIM_STR_FMT ")",
                            PLIM_STR_ARG(plim_page_range(p, r->nccl_low, r->nccl_high)));
}

/* "in step 0, backward (conv2d), train.py:12" */
static void add_moment(plim_page *p, const plim_vgpu_report *r)
{
    plim_line_whole(p, " ", 2);
    plim_say(p, "in");
    if (r->peak_step >= 0)
        plim_say(p, "step %d,", r->peak_step);
    plim_say(p, "%s", plim_phase_name(r->peak_phase));
    if (*r->peak_op)
        plim_say(p, "(%s)", r->peak_op);
    plim_say_glued(p, PLIM_PAINT_PLAIN, ", %s", line_name(r->peak_line));
}

static void add_figures(plim_page *p, const plim_vgpu_report *r)
{
    const bool known = r->context_known;
    plim_heading_apart(p, "Peak");
    plim_facts(p, (plim_facts_style){.indent = 2, .name = 11, .value = 12});
    add_peak(p, "requested", r->peak_requested);
    add_peak(p, "allocated", r->peak_allocated);
    add_peak(p, "reserved", r->peak_reserved);
    if (known)
        plim_fact_add(p, "device",
                      plim_page_range(p, r->peak_reserved + r->context_low + r->nccl_low,
                                      r->peak_reserved + r->context_high + r->nccl_high),
                      device_note(p, r));
    if (known && r->cudnn_search)
        plim_fact_add(p, "", PLIM_STR(""),
                      "without cuDNN's search, which may briefly take all that is free");
    if (known && r->needed_low)
        plim_fact_add(p, "needed", plim_page_range(p, r->needed_low, r->needed_high),
                      "the smallest memory it fits in");
    add_moment(p, r);
}

void plim_run_caveats(plim_page *p, const plim_vgpu_report *r)
{
    if (r->truncated)
        plim_paragraph(p, PLIM_PAINT_PLAIN,
                       "Not every event could be recorded: what is live at the peak is taken "
                       "from the recorded part.",
                       0);
    if (r->n_caveats)
        plim_heading_apart(p, "Remarks");
    for (uint32_t i = 0; i < r->n_caveats; i++) {
        const plim_vgpu_caveat *c = &r->caveats[i];
        plim_line_whole(p, "  ", 2);
        plim_say(p, "%s", c->line);
        plim_say(p, "%s", c->what);
        if (c->count > 1)
            plim_say_glued(p, PLIM_PAINT_PLAIN, " (%s x)", plim_fmt_count(c->count).s);
    }
}

void plim_run_title(plim_page *p, const plim_vgpu_report *r, uint32_t n)
{
    const char *name = plim_report_card(r->card.name);
    plim_line_whole(p, plim_dot(p), 0);
    plim_say(p, "%s%s", n > 1 ? plim_page_format(p, "%" PRIu32 " x ", n) : "", name);
    if (!strstr(name, "iB")) /* a generic card is called by its size */
        plim_say_glued(p, PLIM_PAINT_PLAIN, ", %s",
                       plim_fmt_bytes(r->card.total, p->style.si).s);
    plim_say(p, "PyTorch %s", r->card.torch);
    if (r->world > 1)
        plim_say(p, "rank %d of %d", r->rank, r->world);
}

void plim_run_values(plim_page *p, const char *of, const plim_vgpu_report *r)
{
    const struct {
        const char *name;
        uint64_t n;
    } rows[] = {{"peak_requested", r->peak_requested},
                {"peak_allocated", r->peak_allocated},
                {"peak_reserved", r->peak_reserved},
                {"num_ooms", r->num_ooms}};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        plim_value_u64(p, plim_page_format(p, "%s%s", of, rows[i].name), rows[i].n);
}

plim_status plim_run_body(plim_page *p, const plim_vgpu_report *r, plim_err *err)
{
    add_growth(p, r);
    p->scale = r->peak_reserved;
    add_figures(p, r);
    add_attempts(p, r);
    if (r->n_cards > 1) {
        plim_heading_apart(p, "Cards");
        plim_table(p, PLIM_FIGURE_LIST(vgpu_verdict, r->cards, r->n_cards), 2);
    }
    add_lines(p, r);
    return add_phases(p, r, err);
}

static plim_status run_build(plim_page *p, const void *subject, plim_err *err)
{
    const plim_vgpu_report *r = subject;
    plim_run_values(p, "", r);
    plim_run_title(p, r, 1);
    if (r->storages)
        add_verdict(p, r);
    else
        plim_paragraph(p, PLIM_PAINT_PLAIN, "The script did not use the card", 0);
    PLIM_TRY(r->peak_requested ? plim_run_body(p, r, err) : PLIM_OK);
    plim_run_caveats(p, r);
    plim_data(p, "plimsoll/run/1", plim_vgpu_report_figures, r, NULL, 0);
    return PLIM_OK;
}

void plim_machine_data(plim_page *p, const plim_machine *m)
{
    plim_data(p, "plimsoll/machine/1", plim_machine_figures, m, NULL, 0);
}

plim_rows plim_machine_rows(const plim_machine *m)
{
    return PLIM_FIGURE_LIST(machine_card, m->cards, m->n_cards);
}

plim_status plim_vgpu_report_print(const plim_vgpu_report *r, plim_render how,
                                   const plim_style *st, plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "run", .build = run_build};
    return plim_report_print(&report, r, how, st, put, ud, err);
}
