/* hf.h -- Hugging Face: builds, from a config.json, the model that transformers builds.
 *
 * The graph is written module by module after modeling_*.py, as its classes run in eager mode
 * with their default attention: names of parameters are those of the class, and ops are those
 * of an export.
 *
 *     hf_releases.c  releases of transformers, whose rules are in releases.def
 *     hf_config.c    keys of the file into a configuration; sizes of inputs
 *     hf_names.c     names of stored weights, as from_pretrained understands them
 *     hf_quant.c     packed weights
 *     hf_parts.c     shared by many models: norms, rotary tables, masks, attention, loss
 *     hf_encoder.c, hf_moe.c    shared by encoders, and mixtures of experts
 *     hf_NAME.c      a group of model types, ending with its descriptor
 *     hf_families.c  the only list of them
 *     hf_weights.c   the weights next to the file
 *     hf.c           the importer
 *
 * Each calls only those above it.
 *
 * How a file becomes a graph, {"model_type": "llama", "num_hidden_layers": 2, ..}:
 * plim_hf_find returns the row of "llama" and its group, in hf_llama.c.  plim_hf_read_model
 * fills the group's `config` struct: first with the defaults of the class and of the row,
 * then, key by key, from the file; the group's table of plim_hf_key says which key goes to
 * which field.  The group's build() then calls plim_nn_* and plim_hf_* for each module in the
 * order of the class's forward(), and each of these adds its parameters, its scope and the
 * nodes of its forward() to the graph.
 *
 * The class that is built is the one with a head that the group names, called with labels in
 * training, without in inference, no padding; use_cache as the binding says. */
#ifndef PLIM_HF_H
#define PLIM_HF_H

#include "base/items.h"
#include "base/json.h"
#include "import/hf/hf_releases.h"
#include "import/import.h"
#include "nn/nn.h"

/* Fails because plimsoll itself is out of memory. */
static inline void plim_hf_oom(plim_nn *n) { n->st = n->st ? n->st : plim_oom(n->err); }

/* ---- keys --------------------------------------------------------------------- */

/* A value of another type is an error.  Null is 0, false or "" where that is the default, or the key may be
 * null; else an error, as in transformers. */
typedef enum plim_hf_kind {
    PLIM_HF_SIZE,   /* int64_t, 1..max */
    PLIM_HF_OPTION, /* int64_t, 0..max */
    PLIM_HF_GIVEN,  /* int64_t, 1..max if it is given; null, or absent: 0 */
    PLIM_HF_REAL,   /* double, -1e9..1e9 */
    PLIM_HF_SHARE,  /* double, 0..1 */
    PLIM_HF_BOOL,   /* bool */
    PLIM_HF_WORD,   /* plim_str */
    PLIM_HF_RAW,    /* plim_str: the value as written, of any type */
} plim_hf_kind;

/* A key of config.json and the field that it fills. */
typedef struct plim_hf_key {
    const char *names; /* "n_embd hidden_size": aliases follow; "a.b": b in object a */
    plim_hf_kind kind;
    size_t at;        /* offset of the field in the group's configuration */
    double number;    /* the class's default */
    const char *word; /* the same for words; NULL: "" */
    int64_t max;      /* for a size; 0: 2^31-1 */
    bool null;        /* null has a meaning, which is not the default */
} plim_hf_key;

/* A configuration is read leniently: a byte order mark, NaN, comments. */
plim_json plim_hf_json(plim_bytes b, plim_err *err);
/* The string at j; anything else is skipped and gives "". */
plim_str plim_hf_word(plim_json *j);
/* Fails because the value at j, that of a key, is not what is expected: "a string". */
void plim_hf_expected(plim_json *j, plim_str key, const char *what);

enum { PLIM_HF_MAX_LAYERS = 1024 };

/* Rows of such a table; each group names its configuration `config`. */
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
#define HF_OPTION_OR_NULL(field, names, def)                                                  \
    {                                                                                         \
        HF_ROW(field, names, OPTION), .number = def, .null = true                             \
    }
#define HF_GIVEN_OR_NULL(field, names)                                                        \
    {                                                                                         \
        HF_ROW(field, names, GIVEN), .null = true                                             \
    }
#define HF_REAL_OR_NULL(field, names, def)                                                    \
    {                                                                                         \
        HF_ROW(field, names, REAL), .number = def, .null = true                               \
    }
#define HF_GIVEN(field, names)                                                                \
    {                                                                                         \
        HF_ROW(field, names, GIVEN)                                                           \
    }
#define HF_SHARE(field, names, def)                                                           \
    {                                                                                         \
        HF_ROW(field, names, SHARE), .number = def                                            \
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

/* A default that a single model type of a group has. */
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
    plim_str
        unread; /* the first key of a part of the model that the group does not read; "": none */
    plim_str architecture;       /* the class named in the file, or "" */
    struct plim_hf_quant *quant; /* hf_quant.c; NULL: weights are not packed */
    int64_t batch, seq, seq_max; /* once plim_hf_tokens was called; seq_max 0: no limit */
    int version;                 /* of transformers: 517 for 5.17 */
    int64_t contexts;            /* ranks with seq tokens each; 1: all are here */
    uint32_t positions;          /* once plim_hf_positions was */
    uint32_t ids;                /* once plim_hf_ids was */
    uint32_t padding;            /* the attention_mask, if g->padding */
    uint32_t mask;               /* that plim_hf_causal_mask made last, or PLIM_NONE */
    uint32_t unused;  /* or PLIM_NONE: a mask that layers are called with, but do not use */
    uint32_t hidden;  /* once plim_hf_lm_head was: what it was called with */
    bool eager;       /* eager attention */
    bool flash;       /* flash-attn's, unless `eager` */
    bool caching;     /* use_cache */
    plim_str note;    /* what was assumed, for the user; see plim_hf_note */
    uint32_t *cached; /* what past_key_values holds */
    uint32_t n_cached, cap_cached;
} plim_hf;

typedef struct plim_hf_family {
    const char *model_type;
    const char *classes;             /* the class that is built, then equivalent ones */
    const plim_hf_default *defaults; /* ended by a NULL name; NULL: none */
    const void *row;                 /* specific to the family, in a type of the group's own */
} plim_hf_family;

typedef struct plim_hf_group {
    const char *doc, *src;
    const plim_hf_family *families;
    const plim_hf_key *keys;
    size_t n_families, n_keys;
    size_t size; /* of the configuration */
    bool loose;  /* its keys may be null, and builders check the bounds of sizes */
    bool caches; /* build() takes h->caching into account */
    bool newest; /* known as the newest release has it, only */
    bool
        encodes; /* an encoder reads the tokens first: virtual tokens are for decoders alone */
    /* Writes the model and ends with plim_nn_output.  `config` is of the group's own type. */
    void (*build)(plim_hf *h, const void *config);
} plim_hf_group;

const plim_hf_group *plim_hf_group_at(uint32_t i); /* NULL: past the end */
/* NULL: not known. */
const plim_hf_family *plim_hf_find(plim_str model_type, const plim_hf_group **group);

/* The type that the text model of a type is built as: hf_texts.def; "": it has no row. */
plim_str plim_hf_text_type(plim_str model_type);
/* "LlamaForCausalLM" without a model_type: the family that builds that class, or NULL. */
const plim_hf_family *plim_hf_find_class(plim_str class, const plim_hf_group **group);
plim_str plim_hf_known_types(plim_arena *a); /* "llama, mistral, ..."; {NULL, 0}: no memory */

/* Reads the keys of the file into the configuration of h->family's group and checks its
 * sizes. */
void plim_hf_read_model(plim_hf *h, plim_str text, const plim_hf_group *g, void *config);
/* Says in the graph that h->unread is left out. */
void plim_hf_leave_unread(plim_hf *h);
/* Reserves room in the graph for the layers; their number has been checked. */
void plim_hf_expect_layers(plim_hf *h, const plim_hf_group *g, const void *config);

/* ---- for the groups ---------------------------------------------------------------- */

/* Reads the keys of an object of the file into a configuration, which first gets their
 * defaults. */
void plim_hf_read(plim_hf *h, plim_str raw, const plim_hf_group *keys, void *config);

/* Sets h->batch and h->seq, the sizes of [batch, seq] inputs: as the user binds them, or batch
 * 1 and min(positions, PLIM_HF_SEQ) tokens.  `hard`: there cannot be more than `positions`
 * positions (they are rows of a table).  `name`: of the first input. */
enum { PLIM_HF_SEQ = 1024 };
void plim_hf_tokens(plim_hf *h, const char *name, int64_t positions, bool hard);

/* Moves past a value: true and the number, if it is a whole one. */
bool plim_hf_whole(plim_json *j, int64_t *out);
/* Fails because the raw value of a key is not what is expected: "a list of words". */
void plim_hf_not(plim_hf *h, const char *key, plim_str raw, const char *expected);

/* For each layer: whether that item of `key`, a raw array with a word for each, is `word`; others must be in
 * `words`.  NULL: no array. */
const bool *plim_hf_layers_called(plim_hf *h, const char *key, plim_str raw, const char *word,
                                  const char *words, int64_t layers);
/* For each layer: whether its number is in `key`, a raw array of numbers. */
const bool *plim_hf_layers_in(plim_hf *h, const char *key, plim_str raw, int64_t layers);

/* Fails unless heads * dim is a valid size and kv_heads divides heads. */
void plim_hf_check_heads(plim_hf *h, int64_t heads, int64_t kv_heads, int64_t dim);

/* What generation keeps in these layers; 0 layers: nothing. */
void plim_hf_cache(plim_hf *h, plim_kv_layers kv);
/* The same for all layers with the usual attention: kv_heads heads of that size. */
void plim_hf_cache_heads(plim_hf *h, int64_t layers, int64_t kv_heads, int64_t head_dim);

/* Adds to what the answer says that was assumed. */
void plim_hf_note(plim_hf *h, const char *fmt, ...) PLIM_PRINTF(2, 3);

/* PLIM_EUNSUPPORTED if the file sets a key that is not supported. */
void plim_hf_refuse(plim_hf *h, bool set, const char *key);

/* ---- hf_weights.c ----------------------------------------------------------------- */

/* Compares weights in the same folder, under a usual name, with the listed items, which are
 * those of a class of `model_type`, and adds notes about differences; if nothing is listed,
 * lists the weights. */
plim_status plim_hf_weights(plim_inventory *v, plim_str model_type, const plim_source *s,
                            plim_err *err);

#endif
