/* adapter.h -- what the methods of adapters need of the graph that is rewritten.
 *
 * A method is a file adapter_NAME.c and a row of adapters.def.  A module that is adapted becomes peft's
 * wrapper, NAME.Linear, whose forward the method writes: it calls the module that it replaces, the
 * base_layer, and then its own. */
#ifndef PLIM_TRANSFORM_ADAPTER_H
#define PLIM_TRANSFORM_ADAPTER_H

#include "base/base.h"
#include "nn/nn.h"
#include "transform/transform.h"

enum {
    PLIM_ADAPTER_WEIGHTS = 4,
    PLIM_PROMPT_TOKENS = 0 /* the item of a method with a prompt */
};

typedef struct plim_adapting plim_adapting; /* adapter.c */

typedef enum plim_adapter_number {
    PLIM_ADAPTER_REAL,
    PLIM_ADAPTER_WHOLE,
    PLIM_ADAPTER_FLAG /* 0 or 1; its name alone is 1 */
} plim_adapter_number;

/* A number, or one of several words, whose value is its place among them. */
typedef struct plim_adapter_item {
    const char *key;
    double preset, least, most;
    const char *words; /* "plain bat mini"; NULL: a number */
    plim_adapter_number number;
    const char *config; /* its name in an adapter_config.json; NULL: the same */
} plim_adapter_item;

typedef struct plim_adapter_method {
    const char *name, *doc, *src;
    const char *targets; /* the method whose default targets it has: see adapter_targets.def */
    bool bias;           /* it has peft's item of that name */
    bool plain_linear;   /* it adapts no Conv1D */
    const char *text;    /* an item of its own that is a text; NULL: none */
    plim_adapter_item item[PLIM_ADAPTER_ITEMS];
    /* What cannot be had with packed weights; NULL: the method. */
    const char *(*unpacked)(const plim_adapter *spec);
    /* Adds what the method trains to the open module, the wrapper: once for each module. */
    void (*make)(plim_adapting *ad, uint32_t w[PLIM_ADAPTER_WEIGHTS]);
    /* Writes one call of the wrapper for x.  What it does last gives the result. */
    void (*call)(plim_adapting *ad, const uint32_t w[PLIM_ADAPTER_WEIGHTS], uint32_t x);
    /* Of a method without targets, in place of both: rewrites the whole graph. */
    void (*whole)(plim_adapting *ad);
} plim_adapter_method;

/* Whether a number is in the bounds of an item. */
static inline bool plim_adapter_allows(const plim_adapter_item *item, double v)
{
    return v >= item->least && v <= item->most &&
           (item->number == PLIM_ADAPTER_REAL || v == (double)(int64_t)v);
}

#define PLIM_ADAPTER(name) extern const plim_adapter_method plim_adapter_##name;
#include "transform/adapters.def"
#undef PLIM_ADAPTER

/* The module that is adapted.  Values: PLIM_NONE if it has none. */
typedef struct plim_adapted {
    uint32_t weight, bias;
    int64_t in, out;
    bool transposed;  /* Conv1D, whose weight is in x out */
    bool packed;      /* in 4 or 8 bits */
    plim_str path;    /* of the wrapper */
    plim_str type;    /* of the module itself: "Linear4bit" */
    plim_dtype dtype; /* of its result as the model runs */
} plim_adapted;

plim_nn *plim_adapter_nn(plim_adapting *ad);
const plim_adapter *plim_adapter_spec(const plim_adapting *ad);
const plim_adapted *plim_adapter_base(const plim_adapting *ad);

/* A parameter `name` of the child `module`, which is of that type: "lora_A.default", "Linear".  It is
 * added on the card in the dtype of the model; peft then casts it to fp32, if it is of fewer bytes. */
uint32_t plim_adapter_weight(plim_adapting *ad, const char *module, const char *type,
                             const char *name, plim_ints dim);
/* That which all modules share, of the largest that any target needs: not trained. */
uint32_t plim_adapter_shared(plim_adapting *ad, const char *module, const char *name,
                             plim_ints dim);
enum { PLIM_ADAPTER_NAMES = 256 };
/* Adds a name to "alpha, dropout". */
void plim_adapter_list_name(char names[PLIM_ADAPTER_NAMES], const char *name);
uint32_t plim_adapter_count(void);
const plim_adapter_method *plim_adapter_at(uint32_t i); /* NULL past the end */
/* The method of that name; NULL: PLIM_EUSAGE in err. */
const plim_adapter_method *plim_adapter_method_of(plim_str name, plim_err *err);
/* An adapter_config.json of peft as a text of the setting "peft", in `a`.
 * PLIM_EIO, PLIM_EFORMAT; PLIM_EUNSUPPORTED: it asks for what plimsoll does not simulate. */
plim_status plim_adapter_read_config(plim_arena *a, const char *path, plim_str *text,
                                     plim_err *err);
/* The same of the bytes of such a file. */
plim_status plim_adapter_convert(plim_arena *a, plim_str bytes, plim_str *text, plim_err *err);
/* The targets that a method has for models of that type; "": none. */
plim_str plim_adapter_family(const char *method, plim_str model_type);
/* The widest input and output of all targets. */
void plim_adapter_widest(plim_adapting *ad, int64_t *in, int64_t *out);

/* self.base_layer(x): once at most in a call. */
uint32_t plim_adapter_call_base(plim_adapting *ad, uint32_t x);
/* x.to(the dtype of w); a variable of the call, which lives to its end. */
uint32_t plim_adapter_cast(plim_adapting *ad, uint32_t x, uint32_t w);
/* x.to(the dtype that the result had). */
uint32_t plim_adapter_cast_back(plim_adapting *ad, uint32_t x);
/* The end of a forward whose result is result + F.linear(x, delta), in the dtype of x. */
void plim_adapter_add_product(plim_adapting *ad, uint32_t x, uint32_t delta, uint32_t result);
bool plim_adapter_autocast(const plim_adapting *ad);
/* The dropout of that probability as module `name`, in training. */
uint32_t plim_adapter_dropout(plim_adapting *ad, const char *name, uint32_t x, double p);
bool plim_adapter_drops(const plim_adapting *ad, double p);

/* ---- for methods that rewrite the whole graph ---- */

bool plim_adapter_embeds(const plim_node *n); /* with a table of the model */
/* Makes the node take the value `is` where it took `was`. */
void plim_adapter_replace(plim_adapting *ad, plim_node *node, uint32_t was, uint32_t is);
void plim_adapter_keep(plim_adapting *ad, const plim_node *node);
/* The call [first, last) of the module that embeds the tokens: its result, a new value. */
uint32_t plim_adapter_embed(plim_adapting *ad, const plim_node *first, const plim_node *last);

#endif
