/* report_oom.c -- an out-of-memory message: its numbers, the causes, what would help. */
#include "report/blocks.h"
#include "report/figures.h"

/* A number as the table in text has it: a plim_oom_number to its figures. */
typedef struct number_row {
    plim_oom_number of;
    const char *name, *doc;
} number_row;

/* A derived number as the range in which the real one lies. */
static plim_cell number_cell(const plim_oom_number *n)
{
    uint64_t low = n->bytes > n->within ? n->bytes - n->within : 0;
    return n->derived ? plim_cell_range(low, n->bytes + n->within)
                      : plim_cell_u64(PLIM_CELL_BYTES, n->bytes);
}

/* clang-format off */
PLIM_GETTER(number_name, number_row, plim_cell_text(r->name))
PLIM_GETTER(number_bytes, number_row, number_cell(&r->of))
PLIM_GETTER(number_doc, number_row, plim_cell_text(r->doc))
/* clang-format on */

#include "answers/oom.def"

_Static_assert(PLIM_COUNT(plim_oom_numbers_figures) == PLIM_OOM_QUANTITY_COUNT + 1,
               "a row for each quantity, in their order");

const char *plim_oom_quantity_name(plim_oom_quantity q)
{
    return (unsigned)q < PLIM_OOM_QUANTITY_COUNT ? plim_oom_numbers_figures[q].name : "?";
}

/* ---- blocks -------------------------------------------------------------- */

/* NULL: the message does not tell. */
static const plim_oom_number *number_of(const plim_oom_message *m, plim_oom_quantity q)
{
    return (uint32_t)q < m->n_numbers ? m->numbers[q] : NULL;
}

/* Only PyTorch's own allocator rounds requests up; what `elsewhere` leaves out depends on
 * what is known. */
static const char *describe_quantity(const plim_oom_message *m, plim_oom_quantity q)
{
    if (q == PLIM_OOM_TRIED && m->source != PLIM_OOM_BY_TORCH)
        return "";
    if (q != PLIM_OOM_ELSEWHERE)
        return plim_oom_numbers_figures[q].doc;
    if (m->source == PLIM_OOM_BY_MPS)
        return "other allocations";
    return number_of(m, PLIM_OOM_PROCESS) ? "card - free - this process"
                                          : "CUDA context, other processes";
}

static plim_rows number_rows(plim_page *p, const plim_oom_message *m)
{
    number_row *rows =
        PLIM_NEW_N(&p->arena, number_row, PLIM_OOM_QUANTITY_COUNT + (uint64_t)m->n_processes);
    plim_rows all = PLIM_FIGURE_ROWS(oom_number, rows, 0);
    all.size = sizeof *rows;
    p->buf.bad |= !rows;
    for (int i = 0; rows && i < PLIM_OOM_QUANTITY_COUNT; i++) {
        plim_oom_quantity q = (plim_oom_quantity)i;
        if (number_of(m, q))
            rows[all.n++] = (number_row){*number_of(m, q), plim_oom_numbers_figures[q].title,
                                         describe_quantity(m, q)};
    }
    for (uint32_t i = 0; rows && i < m->n_processes; i++) {
        const plim_oom_process *of = m->processes[i];
        plim_str name = plim_arena_printf(&p->arena, "process %" PRIu64, of->pid);
        if (of->memory && name.p)
            rows[all.n++] = (number_row){*of->memory, name.p, "in use"};
    }
    return all;
}

static void add_head(plim_page *p, const plim_oom_message *m)
{
    static const char *const who[PLIM_OOM_SOURCE_COUNT] = {"PyTorch's allocator",
                                                           "PyTorch with cudaMallocAsync",
                                                           "PyTorch on an Apple GPU",
                                                           "CUDA",
                                                           "cuBLAS",
                                                           "cuDNN",
                                                           "JAX",
                                                           "TensorFlow",
                                                           "PyTorch on the CPU",
                                                           "llama.cpp",
                                                           "vLLM",
                                                           "CuPy"};
    plim_line(p, " ", 0);
    plim_say_as(p, PLIM_PAINT_BOLD, "%s ran out of memory",
                (unsigned)m->source < PLIM_OOM_SOURCE_COUNT ? who[m->source] : "?");
    if (m->gpu_known)
        plim_say(p, "on GPU %" PRId64, m->gpu);
    if (m->torch)
        plim_say(p, "(PyTorch %s)", m->torch);
    if (m->messages > 1)
        plim_say(p, "in the last of %s messages", plim_fmt_count(m->messages).s);
}

/* The cards with this much memory, a few of them. */
static void add_cards(plim_page *p, const plim_oom_message *m)
{
    enum { CARDS_SHOWN = 4 };
    if (!m->n_cards)
        return;
    plim_apart(p);
    plim_line(p, " ", 0);
    plim_say(p, "Cards with this memory:");
    for (uint32_t i = 0; i < m->n_cards && i < CARDS_SHOWN; i++)
        plim_say(p, "%s%s", plim_report_card(m->cards[i]), i + 1 < m->n_cards ? "," : "");
    if (m->n_cards > CARDS_SHOWN)
        plim_say(p, "and %" PRIu32 " more", m->n_cards - CARDS_SHOWN);
}

static void add_values(plim_page *p, const plim_oom_message *m)
{
    p->has_quiet = true;
    for (int q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        if (number_of(m, (plim_oom_quantity)q))
            plim_value_u64(p, plim_oom_numbers_figures[q].name, m->numbers[q]->bytes);
}

static void add_help(plim_page *p, const plim_oom_message *m)
{
    if (m->n_causes)
        plim_heading_apart(p, "Cause");
    for (uint32_t i = 0; i < m->n_causes; i++)
        plim_paragraph(p, PLIM_PAINT_PLAIN, m->causes[i], 2);
    if (m->n_remedies)
        plim_heading_apart(p, "What helps");
    for (uint32_t i = 0; i < m->n_remedies; i++) {
        plim_paragraph(p, PLIM_PAINT_PLAIN, m->remedies[i]->text, 2);
        plim_paragraph(p, PLIM_PAINT_PLAIN, m->remedies[i]->command, 6);
    }
}

static plim_status oom_build(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_oom_message *m = subject;
    const plim_rows rows = number_rows(p, m);
    add_values(p, m);
    add_head(p, m);
    if (rows.n) {
        plim_table(p, rows, 2);
        add_cards(p, m);
    }
    add_help(p, m);
    plim_data(p, "plimsoll/oom/1", plim_oom_message_figures, m, NULL, 0);
    return PLIM_OK;
}

plim_status plim_oom_print(const plim_oom_message *m, plim_render how, const plim_style *st,
                           plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "oom", .build = oom_build};
    return plim_report_print(&report, m, how, st, put, ud, err);
}
