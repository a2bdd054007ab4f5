/* together.c -- see together.h. */
#include "job/together.h"

#include "base/fmt.h"
#include "job/job_priv.h"

/* ---- traits ----------------------------------------------------------------------------- */

typedef struct asked {
    const plim_job *job;
    const plim_settings *set;
    const plim_step_settings *step;
    const plim_share *share;
    bool shared;        /* there is a strategy: */
    unsigned by, optim; /* flags of the rows of strategy and optimizer */
    const plim_graph *graph;
} asked;

#define PLIM_TRAIT(trait, name, is)                                                           \
    static bool has_##trait(const asked *q) { return is; }
#include "job/traits.def"
#undef PLIM_TRAIT

typedef enum trait {
#define PLIM_TRAIT(trait, name, is) TRAIT_##trait,
#include "job/traits.def"
#undef PLIM_TRAIT
} trait;

static const struct {
    const char *name;
    bool (*has)(const asked *q);
} traits[] = {
#define PLIM_TRAIT(trait, name, is) {name, has_##trait},
#include "job/traits.def"
#undef PLIM_TRAIT
};

/* ---- rows ------------------------------------------------------------------------------- */

static const struct row {
    plim_together_when when;
    trait a, b;
    bool b_is_there; /* with which a job is refused */
    const char *why;
} rows[] = {
#define PLIM_APART(when, a, b, why) {PLIM_TOGETHER_##when, TRAIT_##a, TRAIT_##b, true, why},
#define PLIM_NEEDS(when, a, b, why) {PLIM_TOGETHER_##when, TRAIT_##a, TRAIT_##b, false, why},
#define PLIM_BELOW(a, b, why)
#include "job/together.def"
#undef PLIM_APART
#undef PLIM_NEEDS
#undef PLIM_BELOW
};

/* ---- sentences -------------------------------------------------------------------------- */

/* Adds a name to "ddp, zero1 or fsdp2", in which so many follow. */
static void add_name(plim_buf *b, const char *name, uint32_t follow)
{
    plim_buf_printf(b, "%s%s", name, follow > 1 ? ", " : follow == 1 ? " or " : "");
}

/* Strategies with this flag, those first that come from the usual one on. */
static void list_strategies(plim_buf *b, unsigned flag, unsigned usual)
{
    uint32_t n = plim_strategy_count(), left = 0, from = 0;
    for (uint32_t i = 0; i < n; i++)
        left += (plim_strategy_at(i)->flags & flag) != 0;
    while (!(plim_strategy_at(from)->flags & usual))
        from++;
    plim_assert(from < n);
    for (uint32_t i = from; left; i++)
        if (plim_strategy_at(i % n)->flags & flag)
            add_name(b, plim_strategy_at(i % n)->name, --left);
}

/* Optimizers with this flag, the last one first: adamw before sgd. */
static void list_optimizers(plim_buf *b, unsigned flag)
{
    uint32_t left = 0;
    for (uint32_t i = 0; i < plim_optim_count(); i++)
        left += (plim_optim_at(i)->flags & flag) != 0;
    for (uint32_t i = plim_optim_count(); i-- > 0;)
        if (plim_optim_at(i)->flags & flag)
            add_name(b, plim_optim_at(i)->name, --left);
}

static bool write_list(plim_buf *b, plim_str word)
{
    static const struct {
        const char *word;
        unsigned flag, usual;
    } lists[] = {
        {"strategies with tp", PLIM_WITH_TP, PLIM_USUAL},
        {"strategies with pp", PLIM_WITH_PP, PLIM_USUAL},
        {"strategies with cp", PLIM_WITH_CP, PLIM_USUAL_CP},
        {"strategies with ep", PLIM_WITH_EP, PLIM_USUAL},
        {"strategies with scaler", PLIM_WITH_SCALER, PLIM_USUAL},
        {"strategies with ema", PLIM_WITH_EMA, PLIM_USUAL},
        {"strategies with prompt", PLIM_WITH_PROMPT, PLIM_USUAL},
        {"strategies alone", PLIM_ALONE, PLIM_USUAL},
    };
    for (size_t i = 0; i < PLIM_COUNT(lists); i++)
        if (plim_str_is(word, lists[i].word)) {
            list_strategies(b, lists[i].flag, lists[i].usual);
            return true;
        }
    if (!plim_str_is(word, "optimizers with tp"))
        return false;
    list_optimizers(b, PLIM_OPTIM_DTENSORS);
    return true;
}

/* What {word} stands for. */
static void write_word(plim_buf *b, plim_str word, const plim_job *job)
{
    const plim_step_settings *step = &job->step;
    if (write_list(b, word))
        return;
    if (plim_str_is(word, "accumulate"))
        plim_buf_printf(b, "%d", step->accumulate);
    else if (plim_str_is(word, "optimizer"))
        plim_buf_puts(b, step->optim.optim->name);
    else if (plim_str_is(word, "ema"))
        plim_buf_puts(b, step->ema.optim->name);
    else if (plim_str_is(word, "strategy"))
        plim_buf_puts(b, step->share.strategy.name);
    else if (plim_str_is(word, "strategy given"))
        plim_buf_puts(b, job->settings->strategy);
    else {
        plim_assert(plim_str_is(word, "unpacked"));
        plim_buf_puts(b, plim_adapter_unpacked(&job->adapter));
    }
}

/* What comes before the mark, or all. */
static plim_str take_until(plim_str *rest, char mark)
{
    const char *end = rest->n ? memchr(rest->p, mark, rest->n) : NULL;
    plim_str head = {rest->p, end ? (size_t)(end - rest->p) : rest->n};
    size_t n = head.n + (end != NULL);
    *rest = (plim_str){rest->p + n, rest->n - n};
    return head;
}

static void write_sentence(plim_buf *b, const char *text, const plim_job *job)
{
    plim_str rest = plim_str_of(text);
    while (rest.n) {
        plim_buf_add(b, take_until(&rest, '{'));
        if (rest.n)
            write_word(b, take_until(&rest, '}'), job);
    }
}

static plim_status refuse_job(const plim_job *job, const struct row *row, plim_err *err)
{
    plim_buf b;
    plim_assert(row->why || (traits[row->a].name && traits[row->b].name));
    plim_buf_init(&b, job->arena);
    write_sentence(&b, row->why ? row->why : "with ", job);
    if (!row->why) {
        write_sentence(&b, traits[row->a].name, job);
        plim_buf_puts(&b, ", ");
        write_sentence(&b, traits[row->b].name, job);
        plim_buf_puts(&b, " is not simulated");
    }
    plim_str s = plim_buf_str(&b);
    return b.bad ? plim_oom(err)
                 : plim_fail(err, PLIM_EUSAGE, 0, PLIM_STR_FMT, PLIM_STR_ARG(s));
}

plim_status plim_together_check(const plim_job *job, plim_together_when when,
                                const plim_graph *g, plim_err *err)
{
    const plim_strategy_spec *by = &job->step.share.strategy;
    plim_assert(g || (when != PLIM_TOGETHER_GRAPH && when != PLIM_TOGETHER_DIVISION));
    const asked q = {.job = job,
                     .set = job->settings,
                     .step = &job->step,
                     .share = &job->step.share,
                     .shared = by->strategy != NULL,
                     .by = by->flags,
                     .optim = job->step.optim.optim ? job->step.optim.optim->flags : 0,
                     .graph = g};
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (rows[i].when == when && traits[rows[i].a].has(&q) &&
            traits[rows[i].b].has(&q) == rows[i].b_is_there)
            return refuse_job(job, &rows[i], err);
    return PLIM_OK;
}
