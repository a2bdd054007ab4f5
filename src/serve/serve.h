/* serve.h -- what an inference engine holds of a model, and how many requests that leaves room
 * for.
 *
 * An engine is a row of engines.def and a file, which turns a model and the settings of a
 * server into parts: so many bytes on the card or the host, known or between two bounds.  The
 * frame judges them, and searches for the longest context and the most requests by asking the
 * engine again. */
#ifndef PLIM_SERVE_H
#define PLIM_SERVE_H

#include "fit/job.h"

/* ---- types of keys and values ------------------------------------------------------------- */

/* A type in which a cache holds keys and values: blocks of so many elements. */
typedef struct plim_kv_type {
    const char *name;
    uint32_t elements, bytes;
} plim_kv_type;

/* Bytes of a row of that many elements; 0: they do not fill whole blocks, or there are too
 * many. */
uint64_t plim_kv_row(const plim_kv_type *t, uint64_t elements);

/* ---- the question --------------------------------------------------------------------------- */

typedef struct plim_engine plim_engine;

/* The part of a value that a card has: n of `of` equal ones. */
typedef struct plim_serve_part {
    uint64_t n, of;
} plim_serve_part;

/* How vLLM holds experts in MXFP4: as the file does, or filled up for a kernel. */
typedef enum plim_experts_in {
    PLIM_IN_FILE,
    PLIM_IN_MARLIN,
    PLIM_IN_TRITON,
    PLIM_IN_FLASHINFER,
    PLIM_IN_COUNT
} plim_experts_in;

/* What does not depend on the requests: bytes. */
typedef struct plim_serve_sizes {
    uint64_t weights[PLIM_IN_COUNT]; /* all are the same without experts in MXFP4 */
    uint64_t position;               /* of tables of positions, for each */
    uint64_t widest; /* the most that an op of a layer works on for one token, and the hidden
                          states beside it */
} plim_serve_sizes;

/* What a stage of vLLM's pipeline has: the same values, of which those of other stages are {0, 1},
 * and what its own layers keep of a token. */
typedef struct plim_serve_stage {
    const plim_graph *g;
    const plim_serve_part *part;
    plim_serve_sizes sizes;
} plim_serve_stage;

typedef struct plim_serving {
    plim_job *job; /* with its card, if there is one */
    plim_arena *arena;
    const plim_engine *engine;
    plim_str options;            /* of the engine, as given */
    plim_str weights;            /* format: "Q4_K_M"; "": the types of the model */
    const plim_graph *g;         /* of one token; NULL: the file holds weights only, */
    const plim_inventory *held;  /* which are these; NULL: it has a graph */
    uint64_t cards;              /* that divide the weights; 1: one has all */
    bool by_expert;              /* each has whole experts */
    const plim_serve_part *part; /* by value of the graph; NULL: all is on one card */
    plim_serve_sizes sizes;      /* likewise known where `part` is */
    const plim_serve_stage *stages;
    uint64_t n_stages, stage; /* of which this is one: g and part are its own */
    uint64_t context;         /* tokens of a request, those that it generates among them */
    uint64_t concurrency;
    uint64_t most_context; /* that the model was made for; 0: not known */
    const plim_kv_type *keys, *values;
    bool guesses;                     /* it is a draft, */
    const struct plim_serving *draft; /* as this is: a smaller model; NULL: none */
} plim_serving;

/* An option of the engine as text, as given or else as its row presets it. */
plim_str plim_serving_option(const plim_serving *s, const char *name);
/* Likewise a number between those bounds; PLIM_EUSAGE names the option. */
plim_status plim_serving_number(const plim_serving *s, const char *name, double least,
                                double most, double *out, plim_err *err);
/* The type in which the model computes. */
plim_dtype plim_serving_dtype(const plim_serving *s);
/* Bytes of keys and values for each token in all of these layers. */
uint64_t plim_serving_kv(const plim_serving *s, const plim_kv_layers *kv);
/* Of the layers that keep all tokens. */
uint64_t plim_serving_token(const plim_serving *s);
/* Bytes of a value of the graph on one card; of a parameter in the type to which --dtype casts it. */
uint64_t plim_serving_bytes(const plim_serving *s, const plim_value *v);

/* What each of s->cards cards has of the values of the graph, as vLLM divides them, and of what the
 * graph keeps of a token; the words of the vocabulary are filled up.  PLIM_EUSAGE, PLIM_EUNSUPPORTED:
 * the model cannot be divided so, or it is not known how. */
plim_status plim_serving_divide(plim_serving *s, plim_graph *g, plim_err *err);
/* Then, the layers among s->n_stages stages.  Likewise. */
plim_status plim_serving_stages(plim_serving *s, const plim_graph *g, plim_err *err);
/* Of s->g and s->part. */
plim_status plim_serving_measure(const plim_serving *s, plim_serve_sizes *out, plim_err *err);
/* The same, about that stage. */
plim_serving plim_serving_at(const plim_serving *s, uint64_t stage);

/* ---- the answer ------------------------------------------------------------------------------ */

typedef struct plim_served {
    plim_arena *arena;
    plim_serve_row *rows;
    const char **says; /* lines that the engine prints when it starts */
    uint32_t n_rows, cap_rows, n_says, cap_says;
    uint64_t token_bytes;   /* of a token, in the layers that keep all of them; 0: none does */
    uint64_t request_bytes; /* of all that a request of `context` tokens keeps */
    /* a pool that takes what is left holds so many requests, between two bounds; else 0 */
    bool pool;
    double requests_low, requests, requests_high;
    bool context_unknown; /* the CUDA context of the card is not among the parts */
} plim_served;

/* Adds a part; its texts live as long as the answer. */
plim_status plim_served_part(plim_served *out, plim_serve_row row, plim_err *err);
/* Adds the CUDA context, if there is a card. */
plim_status plim_served_context(const plim_serving *s, plim_served *out, plim_err *err);
/* Adds a line. */
plim_status plim_served_say(plim_served *out, plim_err *err, const char *fmt, ...)
    PLIM_PRINTF(3, 4);
/* The sum of the parts in that place. */
plim_serve_row plim_served_total(const plim_served *out, plim_serve_place place);
/* Whether the card holds all requests, by the sum and the pool. */
plim_fits plim_served_fits(const plim_serving *s, const plim_served *out);

/* ---- engines ----------------------------------------------------------------------------------- */

enum {
    PLIM_ENGINE_FILES = 1,  /* it serves GGUF files, and has quantizations of its own */
    PLIM_ENGINE_HALVES = 2, /* it casts models in fp32, unless told to keep them */
    PLIM_ENGINE_PARTS = 4,  /* it divides the weights as plim_serving_divide says */
    PLIM_ENGINE_APART =
        8, /* it holds a draft apart, as any model; else serve() looks for it */
};

struct plim_engine {
    const char *name;
    const char *options; /* "gpu_memory_utilization=0.92,enforce_eager=0": names and presets */
    const char
        *kv; /* "auto fp8": the types that --kv may name, the first unless told; auto: that
                       in which the model computes */
    const char *formats; /* "own w8a8": of weights, the largest first */
    unsigned flags;
    /* what a draft has apart from the model for which it guesses: settings and options; NULL: the engine
     * is simulated without drafts */
    const char *apart;
    const char *doc, *src;
    /* Adds all parts but the CUDA context, which the frame does. */
    plim_status (*serve)(const plim_serving *s, plim_served *out, plim_err *err);
};
const plim_engine *plim_engine_at(uint32_t i); /* NULL past the end */
#define PLIM_ENGINE(id, name, options, kv, formats, flags, apart, doc, src)                   \
    plim_status plim_engine_##id(const plim_serving *s, plim_served *out, plim_err *err);
#include "serve/engines.def"
#undef PLIM_ENGINE

/* Reads the settings engine, context, concurrency, weights and kv of the job, whose card the
 * caller has chosen, into *out and builds the graph of the model, all in `a`.  guesses: the model is a
 * draft, which may have fewer positions than a request has tokens. */
plim_status plim_serving_open(plim_serving *out, plim_job *job, plim_arena *a, bool guesses,
                              plim_err *err);
/* Sets s->draft, of a model that lives as long as s->arena is used.  Errors say "draft: ". */
plim_status plim_serving_open_draft(plim_serving *s, const plim_model *m, plim_err *err);
/* Of a file that s->held lists: a sentence about what of the answer is not exact; "": all is. */
plim_status plim_gg_note(const plim_serving *s, const char **out, plim_err *err);
/* s->draft, asked about as many requests of as many tokens, on the same card. */
plim_serving plim_serving_draft_of(const plim_serving *s);
/* The same model with its weights in another format; "own": that of the model. */
plim_status plim_serving_format(const plim_serving *s, plim_str format, plim_arena *a,
                                plim_serving *out, plim_err *err);
/* Asks the engine. */
plim_status plim_serve_ask(const plim_serving *s, plim_arena *a, plim_served *out,
                           plim_err *err);
/* The greatest context (PLIM_MOST_CONTEXT) or number of requests at which the card holds all,
 * the other as in *s, with everything at its upper bound (`sure`) or usual size; 0: none.
 * *limited: the model or the search allows no more. */
typedef enum plim_serve_axis { PLIM_MOST_CONTEXT, PLIM_MOST_REQUESTS } plim_serve_axis;
plim_status plim_serve_most(const plim_serving *s, plim_serve_axis axis, bool sure,
                            uint64_t *out, bool *limited, plim_err *err);

#endif
