/* binding.h -- values that the user gives for the symbolic sizes of a model: batch, sequence
 * length, shapes of inputs, named dimensions.  The reader of the model decides whether the
 * model has them. */
#ifndef PLIM_BINDING_H
#define PLIM_BINDING_H

#include "core/shape.h"

/* Whether a decoder keeps the keys and values of its layers among its outputs. */
/* As attn_implementation of transformers; the default is the class's own. */
typedef enum plim_attention {
    PLIM_ATTENTION_DEFAULT,
    PLIM_ATTENTION_SDPA,
    PLIM_ATTENTION_EAGER,
    PLIM_ATTENTION_FLASH, /* flash_attention_2, of the package flash-attn */
    PLIM_ATTENTION_FLEX,  /* flex_attention, compiled */
} plim_attention;

typedef enum plim_caching {
    PLIM_CACHING_OFF,
    PLIM_CACHING_ON,
    PLIM_CACHING_CONFIG, /* as the model's configuration says */
} plim_caching;

/* What one rank of several has of a model.  Zeros: all. */
typedef struct plim_rank_part {
    /* for models that divide themselves: */
    int64_t weights;               /* parts of the weights: tensor parallelism */
    bool sequence;                 /* the tokens are divided, too */
    int64_t stages, stage, chunks; /* ranks of the pipeline, this one, stages of each */
    /* for all: */
    int64_t contexts, context; /* parts of the tokens, this one: context parallelism */
    int64_t experts;           /* ranks that share out the experts: expert parallelism */
} plim_rank_part;

/* All optional. */
typedef struct plim_binding {
    int64_t batch; /* this and seq, 0: the hint in the file */
    int64_t seq;
    bool seq_tried; /* by a search: one that is too long is PLIM_ERANGE, else PLIM_EUSAGE */
    const struct plim_input_shape {
        plim_str name; /* "": the first input */
        int32_t rank;
        int64_t dim[PLIM_MAX_RANK];
    } * inputs;
    uint32_t n_inputs;
    struct plim_images { /* --images N, WIDTHxHEIGHT, N@WIDTHxHEIGHT */
        bool given;
        bool sized;            /* their size alone: WIDTHxHEIGHT */
        bool none;             /* text alone, whatever the model takes */
        bool crowded;          /* the same: a sequence is too short for one */
        bool apart;            /* only the text model is asked for: the rest is another file */
        int64_t count;         /* of each sequence */
        int64_t width, height; /* 0: as the configuration says */
    } images;
    struct plim_audio { /* --audio 30s, or a number of samples; zeros: not given */
        double seconds;
        int64_t samples;
    } audio;
    const struct plim_dim_value { /* --dim NAME=VALUE */
        plim_str name;
        int64_t value;
    } * dims;
    uint32_t n_dims;
    /* for models that are built and not read */
    bool infer; /* build the graph of model.eval() */
    plim_attention attention;
    plim_caching caching;
    int64_t cache_room; /* tokens for which a static cache has room; 0: it grows */
    bool prompts; /* a prompt of generate(): with mask and positions, and logits of its last
                     token alone */
    int64_t
        virtual_tokens; /* that prompt tuning puts in front of each sequence, on top of seq */
    bool labels_are_inputs;    /* the tokens are passed as labels, too */
    bool positions_are_inputs; /* position_ids are passed */
    bool checkpoints;          /* its layers are checkpointed, as the model itself does it */
    bool padded;               /* an attention_mask is passed, in which some are 0 */
    bool packed;               /* position_ids are passed, which start again within a row */
    plim_rank_part part;       /* what this rank has */
    int transformers; /* the release whose classes are built: 446 for 4.46; 0: the default */
    plim_str packing; /* a quantization_config for a model that has none; "": none */
    uint32_t
        values; /* of the graph, about: a hint, as plim_graph_expect takes it; 0: not known */
} plim_binding;

/* "32,3,224,224" (the first input) or "NAME=32,10;NAME2=32,20" into bind->inputs,
 * in `a`; text NULL: none. */
plim_status plim_binding_inputs(plim_arena *a, const char *text, plim_binding *bind,
                                plim_err *err);
/* The same for "batch=8;s0=128" and bind->dims. */
plim_status plim_binding_dims(plim_arena *a, const char *text, plim_binding *bind,
                              plim_err *err);

/* "2", "1280x720" or "2@1280x720" into bind->images; text NULL: not given. */
plim_status plim_binding_images(const char *text, plim_binding *bind, plim_err *err);
/* "30s" or "480000" into bind->audio; text NULL: not given. */
plim_status plim_binding_audio(const char *text, plim_binding *bind, plim_err *err);

#endif
