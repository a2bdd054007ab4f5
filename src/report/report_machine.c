/* report_machine.c -- what a program did to several cards of one machine: which is the
 * fullest, then each card's own report. */
#include "report/report_vgpu.h"

/* What is printed. */
typedef struct reports {
    const plim_vgpu_report *const *r;
    uint32_t n;
} reports;

static bool is_fuller(const plim_vgpu_report *a, const plim_vgpu_report *b)
{
    return a->peak_reserved != b->peak_reserved ? a->peak_reserved > b->peak_reserved
                                                : a->peak_allocated > b->peak_allocated;
}

static const plim_vgpu_report *find_fullest(const reports *of)
{
    const plim_vgpu_report *fullest = of->r[0];
    for (uint32_t i = 0; i < of->n; i++) {
        if (plim_run_died(of->r[i]))
            return of->r[i];
        if (is_fuller(of->r[i], fullest))
            fullest = of->r[i];
    }
    return fullest;
}

static const char *card_fits(const plim_vgpu_report *r)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {"yes", "so far", "no", "unknown"};
    plim_vgpu_end end = plim_run_died(r) ? PLIM_VGPU_END_MEMORY : r->end;
    return r->storages ? words[end] : "unused";
}

static plim_status make_machine(plim_page *p, const reports *of, plim_machine *m,
                                plim_err *err)
{
    *m = (plim_machine){.fullest = find_fullest(of)->card.index,
                        .cards = PLIM_NEW_N(&p->arena, plim_machine_card, of->n),
                        .n_cards = of->n};
    for (uint32_t i = 0; m->cards && i < of->n; i++) {
        const plim_vgpu_report *r = of->r[i];
        plim_machine_card *card = &m->cards[i];
        *card = (plim_machine_card){
            .run = *r,
            .name = plim_arena_printf(&p->arena, "cuda:%" PRIu32, r->card.index).p,
            .fits = card_fits(r)};
        card->run.numbered = true;
        if (!r->context_known || !r->storages)
            continue;
        card->device_low = r->peak_reserved + r->context_low;
        card->device_high = r->peak_reserved + r->context_high;
    }
    return m->cards ? PLIM_OK : plim_oom(err);
}

/* ---- blocks ------------------------------------------------------------------ */

/* "It fits: cuda:1 is the fullest, with 5.49 GiB of 23.64 GiB reserved" */
static void add_verdict(plim_page *p, const reports *m)
{
    const plim_vgpu_report *full = find_fullest(m);
    bool died = plim_run_died(full);
    uint64_t num_ooms = 0;
    for (uint32_t i = 0; i < m->n; i++)
        num_ooms += m->r[i]->num_ooms;
    plim_run_verdict(p, died ? PLIM_VGPU_END_MEMORY : full->end);
    if (!died && full->end != PLIM_VGPU_END_ERROR)
        plim_run_recovered(p, num_ooms);
    plim_say_glued(p, PLIM_PAINT_PLAIN,
                   ": cuda:%" PRIu32 " is the fullest, with %s of %s reserved",
                   full->card.index, plim_fmt_bytes(full->peak_reserved, p->style.si).s,
                   plim_fmt_bytes(full->card.total, p->style.si).s);
    for (uint32_t i = 0; i < m->n; i++)
        if (plim_run_died(m->r[i]))
            plim_run_memory(p,
                            plim_page_format(p, "cuda:%" PRIu32 " ran out of memory at",
                                             m->r[i]->card.index),
                            m->r[i]);
}

static plim_status add_bodies(plim_page *p, const reports *m, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < m->n && !st; i++) {
        if (!m->r[i]->peak_requested)
            continue;
        plim_apart(p);
        plim_heading(p, PLIM_PAINT_BOLD,
                     plim_page_format(p, "cuda:%" PRIu32, m->r[i]->card.index));
        st = plim_run_body(p, m->r[i], err);
    }
    return st;
}

static plim_status machine_build(plim_page *p, const void *subject, plim_err *err)
{
    const reports *m = subject;
    plim_machine *machine = PLIM_NEW(&p->arena, plim_machine);
    uint64_t used = 0;
    PLIM_TRY(machine ? make_machine(p, m, machine, err) : plim_oom(err));
    for (uint32_t i = 0; i < m->n; i++) {
        used += m->r[i]->storages;
        plim_run_values(p, plim_page_format(p, "cuda:%" PRIu32 " ", m->r[i]->card.index),
                        m->r[i]);
    }
    plim_run_title(p, m->r[0], m->n);
    if (used) {
        add_verdict(p, m);
        plim_apart(p);
        plim_table(p, plim_machine_rows(machine), 2);
    } else {
        plim_paragraph(p, PLIM_PAINT_PLAIN, "The script used no card", 0);
    }
    plim_status st = add_bodies(p, m, err);
    for (uint32_t i = 0; i < m->n && !st; i++)
        plim_run_caveats(p, m->r[i]);
    plim_machine_data(p, machine);
    return st;
}

plim_status plim_vgpu_machine_print(const plim_vgpu_report *const *r, uint32_t n,
                                    plim_render how, const plim_style *st, plim_put put,
                                    void *ud, plim_err *err)
{
    static const plim_report report = {.name = "run", .build = machine_build};
    PLIM_REQUIRE(r, err);
    if (!n)
        return plim_fail(err, PLIM_EUSAGE, 0, "a machine without a card");
    const reports all = {r, n};
    return n == 1 ? plim_vgpu_report_print(r[0], how, st, put, ud, err)
                  : plim_report_print(&report, &all, how, st, put, ud, err);
}
