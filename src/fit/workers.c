/* workers.c -- the rows of a list of cards, searched for by some threads: see fit.h.
 *
 * No row depends on another, so that several threads may search for them.  Cards of one size of
 * memory are left to one of them, and those of almost the same: their runs tell of each other, and may be the
 * same. */
#include <stdatomic.h>

#include "base/os.h"
#include "base/task.h"
#include "fit/fit.h"

/* A thread of its own is worth a few cards; each takes the memory of some runs. */
enum { CARDS_EACH = 8, MOST_WORKERS = 4 };

typedef struct card_list {
    const plim_gpu *const *cards;
    plim_fit_row *rows;
    uint32_t n;
    uint32_t *first; /* by size of memory, the smallest first: the first card of it */
    uint32_t n_sizes;
    uint32_t wide;
    _Atomic uint32_t taken; /* sizes that a worker has taken */
    _Atomic uint32_t done;  /* rows */
    _Atomic uint32_t stop;  /* rows from here on are not asked for: one before has failed */
} card_list;

typedef struct card_worker {
    card_list *list;
    plim_job job;  /* a copy */
    uint32_t self; /* 0: its thread is the caller's, and reports the progress */
    plim_arena arena;
    plim_step_info info;
    uint32_t failed; /* the card at which it did */
    plim_status st;
    plim_err err;
    plim_task task;
} card_worker;

static bool is_left(const card_list *l, uint32_t card, uint32_t of_size)
{
    return l->cards[card]->memory_bytes == l->cards[of_size]->memory_bytes &&
           !l->rows[card].gpu;
}

static plim_status search_card(card_worker *w, plim_fit_search *s, uint32_t i)
{
    card_list *l = w->list;
    uint32_t done = 1;
    if (!w->self)
        PLIM_TRY(plim_job_progress(&w->job, atomic_load(&l->done), l->n, l->cards[i]->name,
                                   &w->err));
    PLIM_TRY(plim_fit_card(s, l->cards[i], &l->rows[i], &w->err));
    plim_assert(l->rows[i].gpu);
    for (uint32_t k = i + 1; k < l->n; k++)
        if (is_left(l, k, i))
            done += plim_fit_same(s, l->cards[k], &l->rows[i], &l->rows[k]);
    atomic_fetch_add(&l->done, done);
    return PLIM_OK;
}

static void stop_at(card_list *l, uint32_t card)
{
    uint32_t was = atomic_load(&l->stop);
    while (card < was && !atomic_compare_exchange_weak(&l->stop, &was, card))
        ;
}

/* The cards of the size that this one is the first of.  If some fail, the error is that of the first in the
 * list, as if all were asked for in its order: those before it are, still. */
static void search_size(card_worker *w, plim_fit_search *s, uint32_t first)
{
    card_list *l = w->list;
    for (uint32_t i = first; i < atomic_load(&l->stop); i++) {
        plim_status st = is_left(l, i, first) ? search_card(w, s, i) : PLIM_OK;
        if (st) {
            w->st = st;
            w->failed = i;
            stop_at(l, st == PLIM_ECANCELED ? 0 : i);
        }
    }
}

/* How many sizes a worker takes at once, which follow one another: half of its share of those that are left,
 * so that all are done at about the same time. */
static uint32_t share_of(const card_list *l, uint32_t left)
{
    return PLIM_MAX(left / (2 * l->wide), left > 0);
}

/* From *at up to the end that it returns. */
static uint32_t take_sizes(card_list *l, uint32_t *at)
{
    uint32_t n;
    *at = atomic_load(&l->taken);
    do
        n = share_of(l, l->n_sizes - *at);
    while (!atomic_compare_exchange_weak(&l->taken, at, *at + n));
    return *at + n;
}

static void search_cards(void *worker)
{
    card_worker *w = worker;
    card_list *l = w->list;
    plim_fit_search *s = plim_fit_search_new(&w->arena, &w->job);
    if (!s) {
        w->st = plim_oom(&w->err);
        stop_at(l, 0);
        return;
    }
    uint32_t own = share_of(l, l->n_sizes), k = w->self * own, end = k + own;
    do /* the first are its own: the caller's thread hears that it is to stop, however busy it is */
        for (; k < end; k++)
            search_size(w, s, l->first[k]);
    while ((end = take_sizes(l, &k)) > k);
    w->info = *plim_fit_search_info(s);
    plim_fit_search_free(s);
}

static void list_sizes(card_list *l)
{
    for (uint32_t i = 0; i < l->n; i++) {
        const uint64_t bytes = l->cards[i]->memory_bytes;
        uint32_t k = l->n_sizes;
        while (k && l->cards[l->first[k - 1]]->memory_bytes > bytes)
            k--;
        if (k && l->cards[l->first[k - 1]]->memory_bytes == bytes)
            continue;
        memmove(&l->first[k + 1], &l->first[k], (l->n_sizes++ - k) * sizeof *l->first);
        l->first[k] = i;
    }
}

static plim_status run_workers(const plim_job *job, card_list *l, card_worker *workers,
                               plim_step_info *info, plim_err *err)
{
    plim_assert(l->wide > 0 && l->wide <= MOST_WORKERS);
    const card_worker *failed = NULL;
    for (uint32_t k = l->wide; k-- > 0;) {
        workers[k] = (card_worker){.list = l, .job = *job, .self = k, .err = PLIM_ERR_INIT};
        plim_task_start(&workers[k].task, search_cards, &workers[k], k != 0);
    }
    for (uint32_t k = 0; k < l->wide; k++) {
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
    l.first = PLIM_NEW_N(job->scratch, uint32_t, (uint64_t)n + 1);
    *info = (plim_step_info){0};
    if (!l.first)
        return plim_oom(err);
    list_sizes(&l);
    l.wide = PLIM_MIN(plim_os_processors(), MOST_WORKERS);
    l.wide = PLIM_MAX(PLIM_MIN(l.wide, l.n_sizes / CARDS_EACH), 1);
    l.taken = l.wide * share_of(&l, l.n_sizes);
    card_worker *workers = PLIM_NEW_N(job->scratch, card_worker, l.wide);
    return workers ? run_workers(job, &l, workers, info, err) : plim_oom(err);
}
