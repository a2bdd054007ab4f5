/* cards.c -- plim_cards_run: the same run on many cards. */
#include "api/api.h"
#include "fit/verdict.h"

typedef struct cards_result {
    plim_cards pub;
    plim_arena arena;
} cards_result;

PLIM__LIST(card_list, plim_card_row)

/* The run on the job's card. */
typedef struct card_run {
    plim_job *job;
    const plim_graph *g;
    plim_step_info info;
    plim_verdict verdict;
} card_run;

static void describe_card(const card_run *run, plim_card_row *row)
{
    const plim_gpu *gpu = run->job->gpu;
    const plim_verdict *v = &run->verdict;
    *row = (plim_card_row){.gpu = gpu->name,
                           .gpu_bytes = gpu->memory_bytes,
                           .gpu_exact = plim_gpu_exact(gpu),
                           .context_known = v->context.high > 0,
                           .fits = v->fits,
                           .device_low = v->device_low,
                           .device = plim_sat_add(v->reserved, v->context.usual),
                           .device_high = v->device_high,
                           .needed_low = v->needed_low,
                           .needed_high = v->needed_high,
                           .headroom = v->headroom,
                           .margin_kept = v->margin_kept,
                           .time = plim__step_time(run->job, run->g, &run->info.ledger),
                           .price_usd = gpu->price_usd};
}

static plim_status run_on_card(card_run *run, const plim_gpu *gpu, plim_arena *scratch,
                               plim_err *err)
{
    plim_tape t;
    plim_arena_reset(scratch);
    plim_job_use_card(run->job, gpu);
    PLIM_TRY(plim_job_tape(run->job, run->g, scratch, &t, &run->info, err));
    return plim_verdict_of(run->job, &t, 0, true, scratch, &run->verdict, err);
}

static plim_status cards_fill(plim_job *job, plim_arena *a, void *pub, plim_err *err)
{
    plim_cards *out = pub;
    plim_graph g;
    card_run run = {.job = job, .g = &g};
    const plim_gpu **cards = NULL;
    plim_arena scratch = PLIM_ARENA_INIT;
    out->size = sizeof *out;
    out->settings = job->settings;
    plim_status st = plim__list_cards(job, a, &cards, &out->n_cards, err);
    if (!st)
        st = plim_job_graph(job, 0, job->scratch, &g, err);
    if (!st)
        st = plim_job_note(job, &g, err);
    if (!st)
        st = plim__model_info(a, &g, &out->model, err);
    plim_card_row *rows = PLIM_NEW_N(a, plim_card_row, out->n_cards);
    if (!st && !rows)
        st = plim_oom(err);
    for (uint32_t i = 0; !st && i < out->n_cards; i++) {
        if (rows[i].gpu)
            continue;
        st = plim_job_progress(job, i, out->n_cards, cards[i]->name, err);
        if (!st)
            st = run_on_card(&run, cards[i], &scratch, err);
        for (uint32_t k = i; !st && k < out->n_cards; k++)
            if (!rows[k].gpu && plim_fit_alike(job, cards[k], &run.info.asked)) {
                plim_job_use_card(job, cards[k]);
                describe_card(&run, &rows[k]);
            }
    }
    if (!st)
        st = plim_job_resolve(job, &g, run.info.loop ? &run.info : NULL, err);
    plim_arena_free(&scratch);
    if (!st && !(out->cards = card_list(a, rows, out->n_cards)))
        st = plim_oom(err);
    return st;
}

plim_status plim_cards_run(const plim_model *m, const plim_settings *s, plim_cards **out,
                           plim_err *err)
{
    plim_status st;
    PLIM_REQUIRE(m, err);
    PLIM_REQUIRE(out, err);
    void *r = plim__result_of(sizeof(cards_result), offsetof(cards_result, arena), m, s,
                              cards_fill, &st, err);
    if (r)
        *out = r;
    return st;
}

void plim_cards_free(plim_cards *c) { plim__result_free(c, offsetof(cards_result, arena)); }
