/* serve.h -- what an inference engine holds of a model, and how many requests that leaves room
 * for.
 *
 * This is the frame.  It asks an engine a *question*: a model, a card, how many requests of
 * how many tokens.  The engine's *answer* is a list of *rows*: so many bytes on the card or
 * the host, known or between two bounds.  The frame judges them, and searches for the longest
 * context and the most requests by asking again.  It knows no engine and reads no option of
 * one; an engine is a row of engines.def and a file in a wing of its own, and no wing includes
 * another. */
#ifndef PLIM_SERVE_H
#define PLIM_SERVE_H

#include "job/job.h"

/* ---- the question ----------------------------------------------------------------------- */

typedef struct plim_engine plim_engine;

/* The part of a value that a card has: n of `of` equal ones. */
typedef struct plim_serve_fraction {
    uint64_t n, of;
} plim_serve_fraction;

/* What a stage of a pipeline has: the same values (those of other stages are {0, 1})
 * and what its own layers keep of a token. */
typedef struct plim_serve_stage {
    const plim_graph *g;
    const plim_serve_fraction *part;
    const void *measured;
} plim_serve_stage;

typedef struct plim_serve_question {
    plim_job *job; /* with its card, if there is one */
    plim_arena *arena;
    const plim_engine *engine;
    plim_str options;                /* of the engine, as given */
    plim_str weights;                /* format: "Q4_K_M"; "": the types of the model */
    const plim_graph *g;             /* of one token; NULL: the file holds weights only, */
    const plim_inventory *held;      /* which are these; NULL: it has a graph */
    uint64_t cards;                  /* that divide the weights; 1: one has all */
    bool by_expert;                  /* each has whole experts */
    const plim_serve_fraction *part; /* by value of the graph; NULL: all is on one card */
    const void *measured;            /* by the engine; known where `part` is */
    const plim_serve_stage *stages;
    uint64_t n_stages, stage; /* this is one of them: g, part and measured are its own */
    uint64_t context;         /* tokens of a request, generated ones included */
    uint64_t concurrency;
    uint64_t most_context; /* that the model was made for; 0: not known */
    const plim_kv_type *keys, *values;
    bool guesses;                            /* it is a draft, */
    const struct plim_serve_question *draft; /* as this is: a smaller model; NULL: none */
} plim_serve_question;

/* An option of the engine as text, as given or else as its row presets it. */
plim_str plim_question_option(const plim_serve_question *q, const char *name);
/* The same as a number between those bounds; PLIM_EUSAGE names the option. */
plim_status plim_question_number(const plim_serve_question *q, const char *name, double least,
                                 double most, double *out, plim_err *err);
/* Nothing of the model is left out, nor of its draft. */
bool plim_question_whole(const plim_serve_question *q);
/* The type in which the model computes. */
plim_dtype plim_question_dtype(const plim_serve_question *q);
/* How layers hold what they keep, as far as the question says: each token by itself, states in the
 * type in which the model computes. */
plim_cache_rules plim_question_rules(const plim_serve_question *q);
/* Bytes of keys and values for each token in all of these layers. */
uint64_t plim_question_kv(const plim_serve_question *q, const plim_kv_layers *kv);
/* Of the layers that keep all tokens. */
uint64_t plim_question_token(const plim_serve_question *q);
/* Bytes of a value of the graph on one card; of a parameter in the type to which --dtype casts
 * it. */
uint64_t plim_question_bytes(const plim_serve_question *q, const plim_value *v);
/* q->draft, asked about as many requests of as many tokens, on the same card. */
plim_serve_question plim_question_draft(const plim_serve_question *q);

/* ---- what a card has of a model --------------------------------------------------------- */

/* Whether a value is a parameter, or what one is packed into; and takes memory, as it is not
 * tied to another. */
bool plim_serve_is_weight(const plim_value *v);
bool plim_serve_has_weight(const plim_value *v);
/* Elements that a table of positions has for each position, which is made of that value, such
 * as the frequencies of rotary embeddings; 0: none is. */
uint64_t plim_serve_positions(const plim_value *v);
/* Bytes of the experts in MXFP4 that a value holds, if a kernel fills up their hidden states
 * and their widths to those multiples, `inputs`: only the 4-bit values along what a product
 * sums.  0: it holds no such experts, or none on this card. */
typedef struct plim_serve_filling {
    int64_t hidden, width;
    bool inputs;
} plim_serve_filling;
uint64_t plim_question_filled(const plim_serve_question *q, const plim_value *v,
                              const plim_serve_filling *f);
/* The most that an op of a layer works on for one token, and the hidden states besides it:
 * bytes. */
plim_status plim_question_widest(const plim_serve_question *q, uint64_t *out, plim_err *err);

/* Measures what does not depend on the requests, for one stage; *out lives in q->arena. */
typedef plim_status plim_serve_measure(const plim_serve_question *q, const void **out,
                                       plim_err *err);
/* Divides the graph, and what it keeps of a token, among q->cards cards of q->n_stages stages
 * by the rows of divide.def, and measures each stage.  The words of the vocabulary are filled
 * up, on one card, too.  by_expert: each card has whole experts.  PLIM_EUSAGE,
 * PLIM_EUNSUPPORTED: the model cannot be divided so, or it is not known how. */
plim_status plim_question_divide(plim_serve_question *q, plim_graph *g, bool by_expert,
                                 plim_serve_measure *measure, plim_err *err);

/* The first step of it: cards. */
plim_status plim_divide_cards(plim_serve_question *q, plim_graph *g, plim_err *err);
/* The same question about one stage. */
plim_serve_question plim_question_at(const plim_serve_question *q, uint64_t stage);

/* ---- the answer ------------------------------------------------------------------------- */

typedef struct plim_serve_answer {
    plim_arena *arena;
    plim_serve_row *rows;
    const char **says; /* lines that the engine prints when it starts */
    uint32_t n_rows, cap_rows, n_says, cap_says;
    uint64_t token_bytes;   /* of a token, in the layers that keep all of them; 0: none does */
    uint64_t request_bytes; /* of all that a request of `context` tokens keeps */
    /* a pool that takes what is left holds so many requests, between two bounds; else 0 */
    bool pool;
    double requests_low, requests, requests_high;
    bool context_unknown; /* the CUDA context of the card is not among the rows */
} plim_serve_answer;

/* Adds a row; its texts live as long as the answer. */
plim_status plim_answer_add(plim_serve_answer *out, plim_serve_row row, plim_err *err);
/* Adds the CUDA context, if there is a card. */
plim_status plim_answer_context(const plim_serve_question *q, plim_serve_answer *out,
                                plim_err *err);
/* Adds a line. */
plim_status plim_answer_say(plim_serve_answer *out, plim_err *err, const char *fmt, ...)
    PLIM_PRINTF(3, 4);
/* The sum of the rows in that place. */
plim_serve_row plim_answer_total(const plim_serve_answer *out, plim_serve_place place);
/* Whether the card holds all requests, by the sum and the pool, with everything at its lower
 * (0), usual (1) or upper (2) bound; and what that comes to. */
bool plim_answer_holds(const plim_serve_question *q, const plim_serve_answer *out, int bound);
plim_fits plim_answer_fits(const plim_serve_question *q, const plim_serve_answer *out);

/* ---- engines ---------------------------------------------------------------------------- */

enum {
    PLIM_ENGINE_FILES = 1,  /* it serves GGUF files, and has quantizations of its own */
    PLIM_ENGINE_HALVES = 2, /* it casts models in fp32, unless told to keep them */
    PLIM_ENGINE_PARTS = 4,  /* it divides the model among cards */
    PLIM_ENGINE_APART =
        8, /* it holds a draft apart, as any model; else answer() looks for it */
};

/* What the file of an engine has. */
typedef struct plim_engine_code {
    /* Once for each model that has a graph: what of it does not depend on the requests,
     * usually plim_question_divide.  NULL: nothing */
    plim_status (*prepare)(plim_serve_question *q, plim_graph *g, plim_err *err);
    /* Adds all rows but the CUDA context, which the frame does.  Asked again for other
     * numbers: it depends on nothing but the question. */
    plim_status (*answer)(const plim_serve_question *q, plim_serve_answer *out, plim_err *err);
    /* A sentence about what of the answer is not exact; "": all is, as without a note. */
    plim_status (*note)(const plim_serve_question *q, const char **out, plim_err *err);
    /* The format in which the engine gets weights that are published as `packed`; NULL: in the
     * model's type.  Without it, as they are published. */
    const char *(*published)(const char *packed);
} plim_engine_code;

struct plim_engine {
    const char *name;
    const char *options; /* "gpu_memory_utilization=0.92,enforce_eager=0": names and presets */
    const char
        *kv; /* "auto fp8": the types that --kv may name, the first unless told; auto: that
                       in which the model computes */
    const char *formats; /* "own w8a8": of weights, the largest first */
    unsigned flags;
    /* what a draft has apart from the model for which it guesses: settings and options; NULL:
     * the engine is simulated without drafts */
    const char *apart;
    const char *doc, *src;
    const plim_engine_code *code;
};
#define PLIM_ENGINE(id, name, options, kv, formats, flags, apart, doc, src)                   \
    extern const plim_engine_code plim_engine_##id;
#include "serve/engines.def"
#undef PLIM_ENGINE

const plim_engine *plim_engine_at(uint32_t i); /* NULL past the end */
uint32_t plim_engine_count(void);
/* PLIM_EUSAGE, NULL: there is none of that name. */
const plim_engine *plim_engine_find(plim_str name, plim_err *err);
/* The one that serves what nobody chose an engine for: the first that serves files of weights,
 * or the first that serves models with a graph. */
const plim_engine *plim_engine_usual(bool file);

/* Reads the settings engine, context, concurrency, weights and kv of the job, whose card the
 * caller has chosen, into *out and builds the graph of the model, all in `a`.  guesses: the
 * model is a draft, which may have fewer positions than a request has tokens. */
plim_status plim_question_open(plim_serve_question *out, plim_job *job, plim_arena *a,
                               bool guesses, plim_err *err);
/* Sets q->draft, of a model that lives as long as q->arena is used.  Errors say "draft: ". */
plim_status plim_question_open_draft(plim_serve_question *q, const plim_model *m,
                                     plim_err *err);
/* The same model with its weights in another format; "own": that of the model. */
plim_status plim_question_format(const plim_serve_question *q, plim_str format, plim_arena *a,
                                 plim_serve_question *out, plim_err *err);
/* What the engine has to say about the model besides its answer; "": nothing. */
plim_status plim_engine_note(const plim_serve_question *q, const char **out, plim_err *err);
/* Asks the engine. */
plim_status plim_engine_ask(const plim_serve_question *q, plim_arena *a,
                            plim_serve_answer *out, plim_err *err);
/* The greatest context (PLIM_MOST_CONTEXT) or number of requests at which the card holds all,
 * the other as in *q, with everything at its upper bound (`sure`) or usual size; 0: none.
 * *limited: the model or the search allows no more. */
typedef enum plim_serve_axis { PLIM_MOST_CONTEXT, PLIM_MOST_REQUESTS } plim_serve_axis;
plim_status plim_engine_most(const plim_serve_question *q, plim_serve_axis axis, bool sure,
                             uint64_t *out, bool *limited, plim_err *err);

#endif
