/* scenarios.h -- questions to all readers and reports of plimsoll.h, each with an answer as text: for tests
 * that ask them while memory is missing, and from several threads. */
#ifndef PLIM_SCENARIOS_H
#define PLIM_SCENARIOS_H

#include "base/fmt.h"

typedef struct answer {
    plim_arena arena; /* of the text, whose memory does not fail */
    plim_buf text;
    plim_status st;
    plim_err err;
} answer;

typedef void ask_fn(const plim_model *m, const plim_settings *s, answer *a);

typedef struct scenario {
    const char *model;    /* of tests/data, or built in */
    const char *settings; /* "batch=2 gpu=t4" */
    ask_fn *ask;          /* NULL: a replay of the file */
    const char *other;    /* for a diff with this file */
} scenario;

/* Small models and files of every format, and every report. */
extern const scenario scenarios[];
extern const size_t n_scenarios;
/* Every family of models, and every kind of sharing and packing. */
extern const scenario families[];
extern const size_t n_families;

/* The scenario from its beginning; its n-th allocation fails, 0: none.  The caller frees the
 * answer's arena. */
void ask_scenario(const scenario *c, uint64_t n, answer *a);

#endif
