/* workers.c -- the rows of a list of cards, searched for by some threads: see fit.h.
 *
 * No row depends on another, so that several threads may search for them.  Cards of one size are
 * left to one of them: their runs tell of each other, and may be the same. */
#include <stdatomic.h>

#include "base/os.h"
#include "base/task.h"
#include "fit/fit.h"

/* A thread of its own is worth a few cards; each takes the memory of two runs. */
enum { CARDS_EACH = 8, MOST_WORKERS = 4 };

typedef struct card_list {
    const plim_gpu *const *cards;
    plim_fit_row *rows;
    uint32_t n;
    uint32_t *worker;      /* by card */
    _Atomic uint32_t stop; /* rows from here on are not asked for: one before has failed */
} card_list;

typedef struct card_worker {
    card_list *list;
    plim_job job; /* a copy */
    uint32_t self;
    plim_arena arena;
    plim_step_info info;
    uint32_t failed; /* the card at which it did */
    plim_status st;
    plim_err err;
    plim_task task;
} card_worker;

static bool is_left(const card_worker *w, uint32_t card)
{
    return w->list->worker[card] == w->self && !w->list->rows[card].gpu;
}

static plim_status search_card(card_worker *w, plim_fit_search *s, uint32_t i)
{
    card_list *l = w->list;
    plim_status st =
        w->self ? PLIM_OK : plim_job_progress(&w->job, i, l->n, l->cards[i]->name, &w->err);
    if (!st)
        st = plim_fit_card(s, l->cards[i], &l->rows[i], &w->err);
    plim_assert(st || l->rows[i].gpu);
    for (uint32_t k = i + 1; !st && k < l->n; k++)
        if (is_left(w, k))
            plim_fit_same(s, l->cards[k], &l->rows[i], &l->rows[k]);
    return st;
}

static void stop_at(card_list *l, uint32_t card)
{
    uint32_t was = atomic_load(&l->stop);
    while (card < was && !atomic_compare_exchange_weak(&l->stop, &was, card))
        ;
}

/* The first worker, whose thread is the caller's, reports the progress. */
static void search_cards(void *worker)
{
    card_worker *w = worker;
    plim_fit_search *s = plim_fit_search_new(&w->arena, &w->job);
    w->st = s ? PLIM_OK : plim_oom(&w->err);
    for (uint32_t i = 0; !w->st && i < atomic_load(&w->list->stop); i++) {
        w->failed = i;
        if (is_left(w, i))
            w->st = search_card(w, s, i);
    }
    if (w->st)
        stop_at(w->list, w->st == PLIM_ECANCELED ? 0 : w->failed);
    if (s)
        w->info = *plim_fit_search_info(s);
    plim_fit_search_free(s);
}

/* Cards of one size go to one worker; returns how many sizes there are. */
static uint32_t share_cards(const card_list *l, uint32_t wide)
{
    uint32_t sizes = 0;
    for (uint32_t i = 0, k; i < l->n; i++) {
        for (k = 0; l->cards[k]->memory_bytes != l->cards[i]->memory_bytes;)
            k++;
        l->worker[i] = k < i ? l->worker[k] : sizes++ % wide;
    }
    return sizes;
}

static plim_status run_workers(const plim_job *job, card_list *l, card_worker *workers,
                               uint32_t wide, plim_step_info *info, plim_err *err)
{
    plim_assert(wide > 0 && wide <= MOST_WORKERS);
    const card_worker *failed = NULL;
    for (uint32_t k = wide; k-- > 0;) {
        workers[k] = (card_worker){
            .list = l, .job = *job, .self = k, .failed = 0, .err = PLIM_ERR_INIT};
        plim_task_start(&workers[k].task, search_cards, &workers[k], k != 0);
    }
    for (uint32_t k = 0; k < wide; k++) {
        const card_worker *w = &workers[k];
        plim_task_wait(&workers[k].task);
        plim_arena_free(&workers[k].arena);
        if (w->st && (!failed || w->failed < failed->failed))
            failed = w;
        if (w->info.loop)
            *info = w->info;
    }
    return failed ? plim_fail(err, failed->err.code, failed->err.at, "%s", failed->err.msg)
                  : PLIM_OK;
}

plim_status plim_fit_cards(const plim_job *job, const plim_gpu *const *cards, uint32_t n,
                           plim_fit_row *rows, plim_step_info *info, plim_err *err)
{
    card_list l = {.cards = cards, .rows = rows, .n = n, .stop = n};
    l.worker = PLIM_NEW_N(job->scratch, uint32_t, (uint64_t)n + 1);
    *info = (plim_step_info){0};
    if (!l.worker)
        return plim_oom(err);
    uint32_t wide = PLIM_MIN(plim_os_processors(), MOST_WORKERS);
    wide = PLIM_MAX(PLIM_MIN(wide, share_cards(&l, 1) / CARDS_EACH), 1);
    share_cards(&l, wide);
    card_worker *workers = PLIM_NEW_N(job->scratch, card_worker, wide);
    return workers ? run_workers(job, &l, workers, wide, info, err) : plim_oom(err);
}
