/* report_oom.c -- an out-of-memory message: its numbers, the causes, what would help. */
#include "report/report.h"

static const struct {
    const char *name;  /* in JSON, and of plim_oom_quantity_name */
    const char *title; /* in text */
    const char *doc;
} quantities[PLIM_OOM_QUANTITY_COUNT] = {
    [PLIM_OOM_TRIED] = {"tried", "tried to allocate", "a segment: the tensor, rounded up"},
    [PLIM_OOM_TOTAL] = {"total", "card", "memory of the card"},
    [PLIM_OOM_FREE] = {"free", "free", "on the card, for any process"},
    [PLIM_OOM_ALLOWED] = {"allowed", "allowed", "limit of this process"},
    [PLIM_OOM_ALLOCATED] = {"allocated", "allocated", "by PyTorch: tensors"},
    [PLIM_OOM_PRIVATE] = {"private", "in private pools", "of that: CUDA graphs"},
    [PLIM_OOM_UNALLOCATED] = {"unallocated", "unallocated",
                              "held by PyTorch, used by no tensor"},
    [PLIM_OOM_RESERVED] = {"reserved", "reserved", "allocated + unallocated"},
    [PLIM_OOM_PROCESS] = {"process", "this process", "in use on the card"},
    [PLIM_OOM_OUTSIDE] = {"outside", "outside PyTorch", "CUDA context and libraries"},
    [PLIM_OOM_ELSEWHERE] = {"elsewhere", "elsewhere", ""},
};

const char *plim_oom_quantity_name(plim_oom_quantity q)
{
    return (unsigned)q < PLIM_OOM_QUANTITY_COUNT ? quantities[q].name : "?";
}

/* ---- text ---------------------------------------------------------------- */

typedef struct number_row {
    const char *title, *doc;
    plim_oom_number number;
} number_row;

/* A derived number as the range in which the real one lies. */
static plim_cell number_cell(const plim_oom_number *n)
{
    uint64_t low = n->bytes > n->within ? n->bytes - n->within : 0;
    return n->derived ? plim_cell_range(low, n->bytes + n->within)
                      : plim_cell_u64(PLIM_CELL_BYTES, n->bytes);
}

/* clang-format off */
PLIM_GETTER(number_title, number_row, plim_cell_text(r->title))
PLIM_GETTER(number_bytes, number_row, number_cell(&r->number))
PLIM_GETTER(number_doc, number_row, plim_cell_text(r->doc))

static const plim_column number_columns[] = {
    /* name  title in            align       least drop get */
    PLIM_COLUMN("name", "",   PLIM_IN_TEXT, PLIM_LEFT,     0,  0, number_title),
    PLIM_COLUMN("",     "",   PLIM_IN_TEXT, PLIM_RIGHT,    0,  0, number_bytes),
    PLIM_COLUMN("",     "",   PLIM_IN_TEXT, PLIM_CUT_TAIL, 8,  1, number_doc),
};
/* clang-format on */

static bool is_known(const plim_oom_message *m, plim_oom_quantity q)
{
    return (uint32_t)q < m->n_numbers && m->numbers[q].bytes != UINT64_MAX;
}

/* Only PyTorch's own allocator rounds requests up; what `elsewhere` leaves out depends on
 * what is known. */
static const char *describe_quantity(const plim_oom_message *m, plim_oom_quantity q)
{
    if (q == PLIM_OOM_TRIED && m->source != PLIM_OOM_BY_TORCH)
        return "";
    if (q != PLIM_OOM_ELSEWHERE)
        return quantities[q].doc;
    if (m->source == PLIM_OOM_BY_MPS)
        return "other allocations";
    return is_known(m, PLIM_OOM_PROCESS) ? "card - free - this process"
                                         : "CUDA context, other processes";
}

static plim_rows number_rows(plim_page *p, const plim_oom_message *m)
{
    number_row *rows =
        PLIM_NEW_N(&p->arena, number_row, PLIM_OOM_QUANTITY_COUNT + (uint64_t)m->n_processes);
    uint32_t n = 0;
    p->buf.bad |= !rows;
    for (int q = 0; rows && q < PLIM_OOM_QUANTITY_COUNT; q++)
        if (is_known(m, (plim_oom_quantity)q))
            rows[n++] =
                (number_row){quantities[q].title, describe_quantity(m, (plim_oom_quantity)q),
                             m->numbers[q]};
    for (uint32_t i = 0; rows && i < m->n_processes; i++) {
        plim_str title =
            plim_arena_printf(&p->arena, "process %" PRIu64, m->processes[i]->pid);
        if (m->processes[i]->memory.bytes != UINT64_MAX && title.p)
            rows[n++] = (number_row){title.p, "in use", m->processes[i]->memory};
    }
    return (plim_rows){.columns = number_columns,
                       .n_columns = PLIM_COUNT(number_columns),
                       .items = rows,
                       .size = sizeof *rows,
                       .n = n};
}

static void write_head(plim_page *p, const plim_oom_message *m)
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
    plim_flow f = plim_flow_open(p, " ", 0);
    plim_page_paint(p, PLIM_PAINT_BOLD);
    plim_flow_printf(&f, "%s ran out of memory",
                     (unsigned)m->source < PLIM_OOM_SOURCE_COUNT ? who[m->source] : "?");
    plim_page_paint(p, PLIM_PAINT_PLAIN);
    if (m->gpu >= 0)
        plim_flow_printf(&f, "on GPU %" PRId64, m->gpu);
    if (m->torch)
        plim_flow_printf(&f, "(PyTorch %s)", m->torch);
    if (m->messages > 1)
        plim_flow_printf(&f, "in the last of %s messages", plim_fmt_count(m->messages).s);
    plim_flow_end(&f);
}

/* The cards with this much memory, a few of them. */
static void write_cards(plim_page *p, const plim_oom_message *m)
{
    enum { CARDS_SHOWN = 4 };
    plim_flow f = plim_flow_open(p, " ", 0);
    if (!m->n_cards)
        return;
    plim_flow_printf(&f, "Cards with this memory:");
    for (uint32_t i = 0; i < m->n_cards && i < CARDS_SHOWN; i++)
        plim_flow_printf(&f, "%s%s", plim_report_card(m->cards[i]),
                         i + 1 < m->n_cards ? "," : "");
    if (m->n_cards > CARDS_SHOWN)
        plim_flow_printf(&f, "and %" PRIu32 " more", m->n_cards - CARDS_SHOWN);
    plim_flow_end(&f);
}

static void write_quiet(plim_page *p, const plim_oom_message *m)
{
    for (int q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        if (is_known(m, (plim_oom_quantity)q))
            plim_buf_printf(&p->buf, "%s %" PRIu64 "\n", quantities[q].name,
                            m->numbers[q].bytes);
}

static plim_status oom_text(plim_page *p, const void *subject, plim_err *err)
{
    const plim_oom_message *m = subject;
    if (p->style.quiet) {
        write_quiet(p, m);
        return PLIM_OK;
    }
    const plim_rows rows = number_rows(p, m);
    write_head(p, m);
    if (rows.n) {
        plim_status st = plim_rows_text(p, &rows, 2, err);
        if (st)
            return st;
        plim_page_puts(p, m->n_cards ? "\n" : "");
        write_cards(p, m);
    }
    plim_page_puts(p, m->n_causes ? "\nCause\n" : "");
    for (uint32_t i = 0; i < m->n_causes; i++)
        plim_page_wrap(p, m->causes[i], 2);
    plim_page_puts(p, m->n_remedies ? "\nWhat helps\n" : "");
    for (uint32_t i = 0; i < m->n_remedies; i++) {
        plim_page_wrap(p, m->remedies[i]->text, 2);
        if (m->remedies[i]->command)
            plim_page_wrap(p, m->remedies[i]->command, 6);
    }
    return PLIM_OK;
}

/* ---- JSON ---------------------------------------------------------------- */

static void number_json(plim_jw *w, const plim_oom_number *n)
{
    if (n->bytes == UINT64_MAX) {
        plim_jw_null(w);
        return;
    }
    plim_jw_object(w);
    plim_jw_key(w, "bytes");
    plim_jw_u64(w, n->bytes);
    plim_jw_key(w, "within");
    plim_jw_u64(w, n->within);
    plim_jw_key(w, "derived");
    plim_jw_bool(w, n->derived);
    plim_jw_end(w);
}

static void list_json(plim_jw *w, const char *key, const char *const *list, uint32_t n)
{
    plim_jw_key(w, key);
    plim_jw_array(w);
    for (uint32_t i = 0; i < n; i++)
        plim_jw_cstr(w, list[i]);
    plim_jw_end(w);
}

static plim_status oom_json(plim_page *p, const void *subject, plim_err *err)
{
    (void)err;
    const plim_oom_message *m = subject;
    plim_jw w;
    plim_report_json_open(&w, p, "plimsoll/oom/1", NULL);
    plim_jw_key(&w, "source");
    plim_jw_cstr(&w, plim_oom_source_name(m->source));
    plim_jw_key(&w, "messages");
    plim_jw_u64(&w, m->messages);
    plim_jw_key(&w, "gpu");
    if (m->gpu >= 0)
        plim_jw_i64(&w, m->gpu);
    else
        plim_jw_null(&w);
    plim_jw_key(&w, "torch");
    plim_jw_cstr(&w, m->torch);
    plim_jw_key(&w, "numbers");
    plim_jw_object(&w);
    for (uint32_t q = 0; q < m->n_numbers; q++) {
        plim_jw_key(&w, plim_oom_quantity_name((plim_oom_quantity)q));
        number_json(&w, &m->numbers[q]);
    }
    plim_jw_end(&w);
    plim_jw_key(&w, "processes");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < m->n_processes; i++) {
        plim_jw_object(&w);
        plim_jw_key(&w, "pid");
        plim_jw_u64(&w, m->processes[i]->pid);
        plim_jw_key(&w, "memory");
        number_json(&w, &m->processes[i]->memory);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    list_json(&w, "cards", m->cards, m->n_cards);
    list_json(&w, "causes", m->causes, m->n_causes);
    plim_jw_key(&w, "remedies");
    plim_jw_array(&w);
    for (uint32_t i = 0; i < m->n_remedies; i++) {
        plim_jw_object(&w);
        plim_jw_key(&w, "text");
        plim_jw_cstr(&w, m->remedies[i]->text);
        plim_jw_key(&w, "command");
        plim_jw_cstr(&w, m->remedies[i]->command);
        plim_jw_end(&w);
    }
    plim_jw_end(&w);
    plim_report_json_close(&w);
    return PLIM_OK;
}

plim_status plim_oom_print(const plim_oom_message *m, plim_render how, const plim_style *st,
                           plim_put put, void *ud, plim_err *err)
{
    static const plim_report report = {.name = "oom", .text = oom_text, .json = oom_json};
    return plim_report_print(&report, m, how, st, put, ud, err);
}
