/* hf.h -- Hugging Face: a config.json becomes the model that transformers builds of it.
 *
 * The graph is written module by module in the words of modeling_*.py, as its classes
 * run in eager mode with their default attention: so names of parameters are those of
 * the class, and the ops are those of an export.
 *
 *     hf_config.c    keys of the file into a configuration; sizes of inputs
 *     hf_names.c     names of stored weights, as from_pretrained understands them
 *     hf_quant.c     weights that are packed
 *     hf_parts.c     what many models share: norms, rotary tables, masks, attention, loss
 *     hf_encoder.c, hf_moe.c    what encoders share, and mixtures of experts
 *     hf_NAME.c      a group of model types, ending in its descriptor
 *     hf_families.c  the only list of them
 *     hf_weights.c   the weights beside the file
 *     hf.c           the importer
 *
 * Each calls only those above it.
 *
 * How a file becomes a graph, {"model_type": "llama", "num_hidden_layers": 2, ..}:
 * plim_hf_find gives the row of "llama" and its group, in hf_llama.c.  plim_hf_read_model
 * fills the group's `config` struct: first with the defaults of the class and of the row,
 * then, key by key, from the file; the group's table of plim_hf_key says which key goes to
 * which field.  The group's build() then calls plim_nn_* and plim_hf_* for each module in
 * the order of the class's forward(), and each of these adds its parameters, its scope and
 * the nodes of its forward() to the graph.
 *
 * What is built: the class with a head that the group names, called with labels in
 * training, without in inference, no padding, use_cache=False. */
#ifndef PLIM_HF_H
#define PLIM_HF_H

#include "base/json.h"
#include "import/import.h"
#include "nn/nn.h"

/* Fails for want of plimsoll's own memory. */
static inline void plim_hf_oom(plim_nn *n) { n->st = n->st ? n->st : plim_oom(n->err); }

/* ---- keys --------------------------------------------------------------------- */

typedef enum plim_hf_kind {
    PLIM_HF_SIZE,   /* int64_t, 1..max */
    PLIM_HF_OPTION, /* int64_t, 0..max; 0: null, or absent where that is the default */
    PLIM_HF_REAL,   /* double; null: 0 */
    PLIM_HF_BOOL,   /* bool; null: false */
    PLIM_HF_WORD,   /* plim_str; null: "" */
    PLIM_HF_RAW,    /* plim_str: the value as written; null: "" */
} plim_hf_kind;

/* A key of config.json and the field that it fills. */
typedef struct plim_hf_key {
    const char *names; /* the class's own, then aliases: "n_embd hidden_size"; "a.b" is
                          key b of the object a */
    plim_hf_kind kind;
    size_t at;        /* offset of the field in the group's configuration */
    double number;    /* the class's default */
    const char *word; /* likewise, of words; NULL: "" */
    int64_t max;      /* of a size; 0: 2^31-1 */
} plim_hf_key;

/* A configuration is read leniently: a byte order mark, NaN, comments. */
plim_json plim_hf_json(plim_bytes b, plim_err *err);
/* The string at j; anything else is skipped and gives "". */
plim_str plim_hf_word(plim_json *j);

/* One of the names in "n_embd hidden_size"? */
bool plim_hf_names_have(const char *names, plim_str word);

enum { PLIM_HF_MAX_LAYERS = 1024 };

/* Rows of such a table; each group calls its configuration `config`. */
#define HF_ROW(field, names_, kind_)                                                          \
    .names = names_, .kind = PLIM_HF_##kind_, .at = offsetof(config, field)
#define HF_SIZE(field, names, def)                                                            \
    {                                                                                         \
        HF_ROW(field, names, SIZE), .number = def                                             \
    }
#define HF_LAYERS(field, names, def)                                                          \
    {                                                                                         \
        HF_ROW(field, names, SIZE), .number = def, .max = PLIM_HF_MAX_LAYERS                  \
    }
#define HF_OPTION(field, names, def)                                                          \
    {                                                                                         \
        HF_ROW(field, names, OPTION), .number = def                                           \
    }
#define HF_REAL(field, names, def)                                                            \
    {                                                                                         \
        HF_ROW(field, names, REAL), .number = def                                             \
    }
#define HF_BOOL(field, names, def)                                                            \
    {                                                                                         \
        HF_ROW(field, names, BOOL), .number = def                                             \
    }
#define HF_WORD(field, names, def)                                                            \
    {                                                                                         \
        HF_ROW(field, names, WORD), .word = def                                               \
    }
#define HF_RAW(field, names)                                                                  \
    {                                                                                         \
        HF_ROW(field, names, RAW)                                                             \
    }

/* A default that one model type of a group has for itself. */
typedef struct plim_hf_default {
    const char *name; /* the first of the key's names; NULL: the end */
    double number;
    const char *word;
} plim_hf_default;

#define HF_IS(key, value)                                                                     \
    {                                                                                         \
        .name = key, .number = value                                                          \
    }
#define HF_SAYS(key, value)                                                                   \
    {                                                                                         \
        .name = key, .word = value                                                            \
    }
#define HF_DEFAULTS(sym, ...)                                                                 \
    static const plim_hf_default sym[] = {__VA_ARGS__, {.name = NULL}}

/* ---- model types ----------------------------------------------------------------- */

typedef struct plim_hf {
    plim_nn n;
    const struct plim_hf_family *family;
    const plim_binding *bind;
    plim_str architecture;       /* the class that the file names, or "" */
    struct plim_hf_quant *quant; /* hf_quant.c; NULL: weights are as the class has them */
    int64_t batch, seq;          /* once plim_hf_tokens was called */
    uint32_t positions;          /* once plim_hf_positions was */
} plim_hf;

typedef struct plim_hf_family {
    const char *model_type;
    const char *classes;             /* what is built, and what else comes to the same:
                            "LlamaForCausalLM"; other heads are refused */
    const plim_hf_default *defaults; /* ended by a NULL name; NULL: none */
    const void *row;                 /* what sets it apart in its group */
} plim_hf_family;

typedef struct plim_hf_group {
    const char *doc, *src;
    const plim_hf_family *families;
    const plim_hf_key *keys;
    size_t n_families, n_keys;
    size_t size; /* of the configuration */
    /* Writes the model and ends in plim_nn_output.  `config` is the group's own type. */
    void (*build)(plim_hf *h, const void *config);
} plim_hf_group;

const plim_hf_group *plim_hf_group_at(uint32_t i); /* NULL: past the end */
/* NULL: not known. */
const plim_hf_family *plim_hf_find(plim_str model_type, const plim_hf_group **group);
/* "LlamaForCausalLM" without a model_type: the family that builds that class, or NULL. */
const plim_hf_family *plim_hf_find_class(plim_str class, const plim_hf_group **group);
plim_str plim_hf_known_types(plim_arena *a); /* "llama, mistral, ..."; {NULL, 0}: no memory */

/* The keys of the file into the configuration of h->family's group, its sizes checked. */
void plim_hf_read_model(plim_hf *h, plim_str text, const plim_hf_group *g, void *config);
/* Room in the graph for what the layers will be; their number was checked. */
void plim_hf_expect_layers(plim_hf *h, const plim_hf_group *g, const void *config);

/* ---- for the groups ---------------------------------------------------------------- */

/* The keys of an object of the file into a configuration, which gets their defaults first. */
void plim_hf_read(plim_hf *h, plim_str raw, const plim_hf_group *keys, void *config);

/* Sizes of [batch, seq] inputs into h->batch and h->seq: what the user binds, or batch 1
 * and min(positions, PLIM_HF_SEQ) tokens.  `hard`: more positions than `positions` do not
 * exist (a table of them).  `name`: of the first input. */
enum { PLIM_HF_SEQ = 1024 };
void plim_hf_tokens(plim_hf *h, const char *name, int64_t positions, bool hard);

/* For each layer: is that item of a raw array of words `word`?  NULL: there is no array. */
const bool *plim_hf_layers_called(plim_hf *h, plim_str raw, const char *word, int64_t layers);
/* For each layer: is its number in a raw array of numbers? */
const bool *plim_hf_layers_in(plim_hf *h, plim_str raw, int64_t layers);

/* Fails unless heads * dim is a size and kv_heads divide heads. */
void plim_hf_check_heads(plim_hf *h, int64_t heads, int64_t kv_heads, int64_t dim);

/* PLIM_EUNSUPPORTED if the file sets a key that is not built. */
void plim_hf_refuse(plim_hf *h, bool set, const char *key);

/* ---- hf_weights.c ----------------------------------------------------------------- */

/* Weights in the same folder, under a usual name: notes where they and the items
 * listed, those of a class of `model_type`, do not agree; if nothing is listed, they are. */
plim_status plim_hf_weights(plim_inventory *v, plim_str model_type, const plim_source *s,
                            plim_err *err);

#endif
