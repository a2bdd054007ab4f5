/* zero3.h -- stage 3 of DeepSpeed's ZeRO: what zero3_fetch.c and ds_zero3.c share.
 *
 * Every parameter is divided among the ranks.  A module's own parameters are gathered before it runs,
 * forward and backward, and released after it; small ones persist until the step.  The first pass
 * records which modules run; from the second one on, parameters of the next modules are gathered in
 * advance, and those that are needed again soon are not released. */
#ifndef PLIM_SHARE_ZERO3_H
#define PLIM_SHARE_ZERO3_H

#include "share/strategy.h"

enum { ZERO3_DEFAULT_STREAM, ZERO3_GATHER_STREAM, ZERO3_REDUCE_STREAM };

typedef enum zero3_status { ZERO3_AWAY, ZERO3_IN_FLIGHT, ZERO3_HERE } zero3_status;

typedef struct zero3_param {
    uint32_t value;
    uint64_t numel, each; /* of the parameter; of a rank's part of it, padded */
    bool trained, persists;
    zero3_status status;
    uint32_t flight;       /* the last one that it was in */
    uint32_t at_in_flight; /* place in the list of what is in flight, or PLIM_NONE */
    uint32_t held;         /* by modules whose recomputation reads it */
    int64_t fetched;       /* the last step of the trace for which it was fetched, or left */
    bool chosen;           /* to be gathered next */
    plim_t part;           /* owned; what is trained lies in one tensor instead */
    uint32_t *in, n_in, cap_in; /* the modules that own it */
} zero3_param;

/* Parameters that are gathered together, in one tensor until all of them are claimed. */
typedef struct zero3_flight {
    plim_t flat;
    plim_t *part; /* came from the host; that of a single one stays until it has arrived */
    uint32_t *p, n, unclaimed;
    bool arrived;
} zero3_flight;

/* A module, which may run several times. */
typedef struct zero3_module {
    uint32_t *p, n, cap;    /* its own parameters, in the order of the model */
    bool active;            /* its parameters must stay */
    bool in_backward;       /* fetched, not released yet */
    uint32_t *held, n_held; /* what its recomputation read */
} zero3_module;

typedef enum zero3_tracing { ZERO3_INVALID, ZERO3_RECORDING, ZERO3_COMPLETE } zero3_tracing;

typedef struct zero3_traced {
    uint32_t p;
    int64_t step;
} zero3_traced;

/* Which parameters are here. */
typedef struct zero3_fetcher {
    plim_dtype dtype;
    bool overlaps;  /* with a stream to gather on */
    bool on_host;   /* the parts are: they come to the card to be gathered */
    zero3_param *p; /* in the order of the model */
    uint32_t n;
    zero3_module *modules; /* by unit; the last is the model */
    uint32_t *identity;    /* by unit: the first unit that is the same module */
    zero3_flight *flights;
    uint32_t n_flights, cap_flights;
    uint32_t *in_flight, n_in_flight;
    uint32_t *list;                      /* scratch, of n */
    uint32_t *backward, n_backward;      /* modules in_backward, as they were fetched */
    double prefetch, most_live, reuse;   /* in elements */
    double live;                         /* elements gathered in this pass */
    int64_t step;                        /* modules fetched so far in this pass */
    zero3_tracing tracing;               /* and what it has found: */
    uint32_t *order, n_order, cap_order; /* modules */
    zero3_traced *queue;                 /* parameters */
    uint32_t n_queue, cap_queue, next;
} zero3_fetcher;

static inline uint64_t plim_zero3_padded(const plim_shared *x, const zero3_param *p)
{
    return plim_sat_mul(p->each, (uint64_t)plim_share_parts(x));
}

/* A tensor into which these parameters are gathered: owned. */
plim_t plim_zero3_room(plim_shared *x, const zero3_fetcher *z, const uint32_t *list,
                       uint32_t n);
/* The part of a parameter, which has come from the host: owned; 0: it is on the card. */
plim_t plim_zero3_part(plim_shared *x, const zero3_fetcher *z, uint32_t k);

/* The leaf lies on t's storage, whose reference this takes. */
static inline void plim_zero3_put(plim_shared *x, const zero3_param *p, plim_t t)
{
    plim_m_set_data(x->m, x->value[p->value], t);
    plim_m_drop(x->m, t);
}

/* Into the order of the model. */
void plim_zero3_sort(uint32_t *places, uint32_t n);
bool plim_zero3_owns(const zero3_module *m, uint32_t k);
/* Modules begin and end. */
void plim_zero3_forward(plim_shared *x, zero3_fetcher *z, uint32_t unit);
void plim_zero3_forward_end(plim_shared *x, zero3_fetcher *z, uint32_t unit);
void plim_zero3_backward(plim_shared *x, zero3_fetcher *z, uint32_t unit);
void plim_zero3_backward_end(plim_shared *x, zero3_fetcher *z, uint32_t unit);
/* After backward: what it has left, modules whose inputs need no gradient. */
void plim_zero3_returned(plim_shared *x, zero3_fetcher *z);
/* All parameters go. */
void plim_zero3_release_all(plim_shared *x, zero3_fetcher *z);

#endif
