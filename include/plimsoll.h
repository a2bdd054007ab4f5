/* plimsoll.h -- how much GPU memory a model takes, before it takes it.
 *
 * From a model file (or the name of a built-in model) and a few settings the
 * library says what a PyTorch training step or an inference allocates on a
 * card: byte for byte where that can be known, what is live at the peak and
 * why, and which card and batch size fit.  No GPU, no framework, no weights.
 *
 * A complete program:
 *
 *     #include <plimsoll.h>
 *     #include <stdio.h>
 *
 *     int main(void)
 *     {
 *         plim_err err = PLIM_ERR_INIT;
 *         plim_settings s = PLIM_SETTINGS_INIT;
 *         plim_estimate *e = NULL;
 *         s.batch = 32;
 *         s.optimizer = "adam";
 *         if (plim_estimate_run("resnet50", &s, &e, &err))
 *             return fprintf(stderr, "%s\n", err.msg), 1;
 *         printf("%llu bytes\n", (unsigned long long)e->peak_reserved);
 *         plim_estimate_free(e);
 *     }
 *
 * Conventions.  Every function that can fail returns a plim_status and takes a
 * plim_err last, which may be NULL, is untouched on success and keeps the first
 * error.  Results are read-only structs that own their memory; the matching
 * _free takes NULL.  Sizes are bytes in uint64_t, never size_t.  The library
 * never prints, never exits, keeps no global state and can be used from many
 * threads, one result each; plim_estimate_run may use two more of its own, which
 * end before it returns.  Strings in results are UTF-8 and NUL-terminated.
 */
#ifndef PLIMSOLL_H
#define PLIMSOLL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* What the shared library exports; everything else in it is hidden. */
#ifndef PLIM_API
#if defined(__GNUC__)
#define PLIM_API __attribute__((visibility("default")))
#else
#define PLIM_API
#endif
#endif

#ifdef __cplusplus
extern "C" {
#endif

#define PLIM_VERSION "0.1.0"
PLIM_API const char *plim_version(void); /* of the library that was linked */

/* ======================================================================== */
/* Errors                                                                    */
/* ======================================================================== */

/* Few codes, each something that a caller may act on.  Values are pinned. */
#define PLIM_STATUS_MAP(X)                                                                    \
    X(OK, 0, "ok")                                                                            \
    X(EFORMAT, -1, "the file is not what it should be")                                       \
    X(EUNSUPPORTED, -2, "understood, but not handled")                                        \
    X(ESHAPE, -3, "shapes do not fit together")                                               \
    X(ERANGE, -4, "a number is out of its range")                                             \
    X(ENOMEM, -5, "no memory for plimsoll itself")                                            \
    X(EIO, -6, "a file could not be read or written")                                         \
    X(EDRIVER, -7, "a driver said no")                                                        \
    X(EUSAGE, -8, "the call asks for something that does not exist")

typedef enum plim_status {
#define X(id, value, text) PLIM_##id = (value),
    PLIM_STATUS_MAP(X)
#undef X
} plim_status;

typedef struct plim_err {
    plim_status code;
    uint64_t at;   /* byte offset into the input, or an index, where it makes sense */
    char msg[256]; /* lower case, problem first, no full stop */
} plim_err;
#define PLIM_ERR_INIT                                                                         \
    {                                                                                         \
        PLIM_OK, 0, { 0 }                                                                     \
    }

PLIM_API const char *plim_status_name(plim_status st);

/* ======================================================================== */
/* Words                                                                     */
/* ======================================================================== */

typedef enum plim_dtype {
    PLIM_F32,
    PLIM_F16,
    PLIM_BF16,
    PLIM_F64,
    PLIM_I64,
    PLIM_I32,
    PLIM_I16,
    PLIM_I8,
    PLIM_U8,
    PLIM_BOOL,
    PLIM_U16,
    PLIM_U32,
    PLIM_U64,
    PLIM_C32,
    PLIM_C64,
    PLIM_C128,
    PLIM_F8E4M3FN,
    PLIM_F8E5M2,
    PLIM_F8E4M3FNUZ,
    PLIM_F8E5M2FNUZ,
    PLIM_F8E8M0FNU,
    PLIM_F4E2M1X2,
    PLIM_QINT8,
    PLIM_QUINT8,
    PLIM_QINT32,
    PLIM_QUINT4X2,
    PLIM_QUINT2X4,
    PLIM_DTYPE_COUNT
} plim_dtype;

typedef enum plim_phase {
    PLIM_PHASE_LOAD, /* parameters and buffers go to the device; before step 0 */
    PLIM_PHASE_INPUTS,
    PLIM_PHASE_ZERO_GRAD,
    PLIM_PHASE_FORWARD,
    PLIM_PHASE_LOSS,
    PLIM_PHASE_BACKWARD,
    PLIM_PHASE_OPTIMIZER,
    PLIM_PHASE_COUNT
} plim_phase;
PLIM_API const char *plim_phase_name(plim_phase p); /* "forward" */

typedef enum plim_category {
    PLIM_CAT_PARAMETER,
    PLIM_CAT_BUFFER,
    PLIM_CAT_GRADIENT, /* of parameters */
    PLIM_CAT_OPTIMIZER_STATE,
    PLIM_CAT_INPUT,      /* inputs and targets */
    PLIM_CAT_ACTIVATION, /* kept for backward */
    PLIM_CAT_TEMPORARY,  /* lives within a phase: results nobody keeps, activation gradients */
    PLIM_CAT_WORKSPACE,  /* library workspaces and kernel scratch */
    PLIM_CAT_OUTPUT,     /* model outputs and the loss */
    PLIM_CAT_COUNT
} plim_category;
PLIM_API const char *plim_category_name(plim_category c); /* "optimizer_state" */

/* How sure a byte is. */
typedef enum plim_certainty {
    PLIM_EXACT,
    PLIM_ESTIMATED,     /* a library decides at run time; bounded */
    PLIM_UNKNOWN_BYTES, /* an op without a rule; bounded */
    PLIM_CERTAINTY_COUNT
} plim_certainty;
PLIM_API const char *plim_certainty_name(plim_certainty c); /* "exact" */

/* Where text goes, piece by piece. */
typedef void (*plim_put)(void *ud, const char *text, size_t n);

/* ======================================================================== */
/* Settings                                                                  */
/* ======================================================================== */

/* How a model is run.  Zero means "the default" in every field; strings are
 * borrowed for the length of a call. */
typedef struct plim_settings {
    int64_t batch;     /* 0: the file's own, 1 for built-in models */
    int64_t seq;       /* sequence length; 0: the file's own */
    const char *input; /* "32,3,224,224" or "NAME=32,10;NAME2=..." */
    const char *dims;  /* sizes that the file leaves open, by name: "s0=128;frames=16" */
    bool infer;        /* a forward under no_grad instead of a training step */
    const char *dtype; /* of parameters and inputs: "fp32" (default), "fp16", "bf16", "fp64" */
    const char *optimizer; /* "sgd" (default), "sgd,momentum=0.9", "adamw,impl=fused" */
    const char
        *loss; /* "cross_entropy", "mse", "bce", "sum", "model"; default by the output */
    const char *loop;       /* "typical" (default): out and loss live until rebound; "tight";
                               "trainer": as transformers' Trainer */
    const char *keep;       /* "outputs,loss,inputs" or "none": what lives until it is rebound;
                         default by the loop */
    int steps;              /* simulated iterations; default 2, lbfgs: to fill its history */
    const char *torch;      /* PyTorch version; default the newest known */
    const char *gpu;        /* "rtx4090"; default: none, workspaces as on sm_80 */
    uint64_t vram;          /* a card that is not in the table: its bytes */
    const char *workspace;  /* "auto" (default), "off", "low", "high": see docs/accuracy.md */
    const char *alloc_conf; /* as PYTORCH_CUDA_ALLOC_CONF */
    const char *autocast;   /* NULL: none; "fp16", "bf16" */
    const char *checkpoint; /* NULL or "none"; "blocks", "layer*.*", "segments=4", each with
                               ",reentrant" */
    bool clip;              /* clip_grad_norm_ before each optimizer step */
    int accumulate;         /* forward and backward passes for one of them; default 1 */
    const char *zero_grad;  /* "none", "zeros": what zero_grad leaves; default by version */
    const char *ema; /* NULL or "none"; "averaged", "lerp", "timm_v2", "diffusers": an average
                        of the model, as "averaged,use_buffers=1" */
} plim_settings;
#define PLIM_SETTINGS_INIT                                                                    \
    {                                                                                         \
        0                                                                                     \
    }

/* ======================================================================== */
/* Estimate                                                                  */
/* ======================================================================== */

typedef struct plim_model_info {
    const char *name, *format, *producer;
    uint64_t parameters, trainable_parameters, buffers; /* elements */
    uint64_t parameter_bytes, buffer_bytes;             /* as in the file: before --dtype */
    int64_t batch;                                      /* 0: the model has none */
    uint32_t ops, unknown_ops;                          /* graph nodes; those without a rule */
    const char *note; /* what the file leaves out or changes; "" if nothing */
} plim_model_info;

/* A storage that is live at the peak. */
typedef struct plim_live {
    const char *name; /* "layer1.0.conv1.weight", "features.0" */
    const char *role; /* "out", "grad", "exp_avg"; "" for the thing itself */
    plim_category category;
    plim_certainty certainty;
    uint64_t bytes;   /* requested */
    plim_dtype dtype; /* of the first tensor on it */
    int rank;
    int64_t dim[8];
} plim_live;

/* Counters as they stand when a phase ends; its own peak. */
typedef struct plim_phase_row {
    int step; /* -1 for load */
    plim_phase phase;
    uint64_t requested, allocated, reserved;
    uint64_t peak_requested, peak_allocated, peak_reserved; /* within the phase */
} plim_phase_row;

/* A bucket of the timeline: the highest counters in it. */
typedef struct plim_bucket {
    uint64_t requested, allocated, reserved;
    plim_phase phase;
    int step;
} plim_bucket;
enum { PLIM_BUCKETS = 240 };

typedef struct plim_estimate {
    plim_model_info model;

    /* settings after defaults, for the report */
    const char *mode; /* "train" or "infer" */
    const char *dtype, *autocast, *optimizer, *checkpoint, *loss, *loop, *torch, *workspace,
        *alloc_conf;
    const char *zero_grad, *ema, *keep; /* ema, keep: "none" if there is none */
    const char *gpu;                    /* NULL: none chosen */
    int steps, accumulate;
    bool clip;

    /* at the peak of allocated bytes, by category (block sizes are not in it:
     * requested bytes); sums to peak_live_requested */
    uint64_t category[PLIM_CAT_COUNT];
    uint64_t certainty[PLIM_CERTAINTY_COUNT];
    uint64_t peak_live_requested;
    uint64_t ema_bytes; /* what of the optimizer's state is the average of the model */

    uint64_t peak_requested, peak_allocated, peak_reserved; /* each its own maximum */
    /* with library workspaces at their lower and upper bounds */
    uint64_t reserved_low, reserved_high;
    bool context_known; /* false: the card's context size has no source */
    uint64_t context_low, context_high;
    uint64_t device_low, device_high; /* reserved + context */
    uint64_t gpu_bytes;               /* capacity; 0: no card chosen */
    int fits; /* 1 yes, 0 no, -1 between low and high, -2 no card chosen */

    int peak_step;
    plim_phase peak_phase;
    const char *peak_op;   /* layer at the peak */
    const plim_live *live; /* at the peak, largest first */
    uint32_t n_live;
    const plim_phase_row *phases;
    uint32_t n_phases;
    plim_bucket timeline[PLIM_BUCKETS];
    uint32_t n_buckets, peak_bucket;

    const char *const *unknown_targets; /* distinct ops without a rule */
    uint32_t n_unknown_targets;
    uint64_t forward_macs, forward_flops, backward_flops;

    bool oom;             /* the simulated card ran out of memory */
    const char *oom_text; /* what PyTorch would have said; NULL if not */
    const char *advice;   /* one plain sentence: what dominates, what would help most */
} plim_estimate;

/* `model` is a built-in name (plim_registry PLIM_REG_MODELS) or a file's path.
 * PLIM_EFORMAT, PLIM_ESHAPE, PLIM_ERANGE, PLIM_EUNSUPPORTED name the file and
 * the offset or layer; PLIM_EUSAGE the setting.  *out is untouched on error. */
PLIM_API plim_status plim_estimate_run(const char *model, const plim_settings *s,
                                       plim_estimate **out, plim_err *err);
PLIM_API void plim_estimate_free(plim_estimate *e);

/* ======================================================================== */
/* What a file holds                                                         */
/* ======================================================================== */

typedef enum plim_item_kind {
    PLIM_ITEM_PARAMETER, /* also a weight of which the file does not say what it is */
    PLIM_ITEM_BUFFER,
    PLIM_ITEM_CONSTANT,
    PLIM_ITEM_OPTIMIZER_STATE,
    PLIM_ITEM_OTHER, /* random states and the like */
    PLIM_ITEM_KINDS
} plim_item_kind;
PLIM_API const char *plim_item_kind_name(plim_item_kind k); /* "parameters" */

typedef struct plim_info_tensor {
    const char *name, *type; /* "fp32", "Q4_K" */
    plim_item_kind kind;
    int rank;
    int64_t dim[8];           /* the fastest last */
    uint64_t elements, bytes; /* bytes: on the device if it is loaded as it is */
    const char *same_as;      /* the tensor that its bytes are counted with; NULL: itself */
} plim_info_tensor;

/* Sums over the tensors that are counted for themselves. */
typedef struct plim_info_sum {
    const char *name; /* of the module, "" for all; of the type */
    int depth;        /* modules: 0 is all */
    uint64_t tensors, elements, bytes;
} plim_info_sum;

typedef struct plim_info_pair {
    const char *key, *value;
} plim_info_pair;

typedef struct plim_info_dim {
    const char *name;
    int64_t value; /* 0: must be told (--dim) */
} plim_info_dim;

typedef struct plim_info {
    const char *name, *format, *producer; /* "": not known */
    const char *reader;                   /* name of the format; NULL: built in */
    uint64_t file_bytes;                  /* of the file that was opened; 0: built in */
    plim_info_sum held[PLIM_ITEM_KINDS];  /* by kind */
    const plim_info_sum *types, *modules; /* largest first; parents before children */
    uint32_t n_types, n_modules;
    const plim_info_tensor *tensors; /* in the file's order */
    uint32_t n_tensors;
    const plim_info_pair *facts; /* what the file says of itself */
    uint32_t n_facts;
    const plim_info_tensor *inputs; /* of the graph */
    uint32_t n_inputs;
    const plim_info_dim *dims; /* sizes that are left open */
    uint32_t n_dims;
    bool graph;                         /* it can be estimated */
    uint32_t ops;                       /* nodes of the graph */
    const char *const *unknown_targets; /* ops without a rule */
    uint32_t n_unknown_targets;
    const char *const *notes; /* sentences: what is not known, what does not agree */
    uint32_t n_notes;
} plim_info;

/* Of `s` only what binds sizes counts.  Errors as plim_estimate_run, but a file
 * without a graph is none. */
PLIM_API plim_status plim_info_run(const char *model, const plim_settings *s, plim_info **out,
                                   plim_err *err);
PLIM_API void plim_info_free(plim_info *i);

/* ======================================================================== */
/* Layers                                                                    */
/* ======================================================================== */

typedef struct plim_layer {
    const char *path; /* "layer1.0.conv1"; "" is the model */
    const char *type; /* "Conv2d" */
    int depth;        /* 0: the model */
    bool leaf;        /* no submodule of it was called */
    plim_dtype dtype; /* of the output */
    int rank;         /* of the output; -1: it has none */
    int64_t dim[8];
    uint64_t output_elements;
    uint64_t output_bytes;
    uint64_t parameters, parameter_bytes; /* its own and its submodules' */
    uint64_t weights;                     /* parameters without biases */
    uint64_t macs, flops, read, written;  /* forward, submodules included */
    bool inplace;                         /* its result is its input, overwritten */
} plim_layer;

/* The activations of one kind, and what inplace=True does to what training keeps. */
typedef enum plim_inplace_gain {
    PLIM_GAIN_MOMENT, /* nothing, but one tensor less while it runs */
    PLIM_GAIN_NONE,   /* nothing: a copy of the input is kept instead of the input */
    PLIM_GAIN_LESS,   /* the result is kept instead of the input */
    PLIM_GAIN_COUNT
} plim_inplace_gain;
typedef struct plim_activation {
    const char *op; /* "silu" */
    plim_inplace_gain gain;
    uint32_t count, inplace; /* all of them; those that are in place already */
    uint64_t bytes; /* results of those that are not: what PLIM_GAIN_LESS can save at most */
} plim_activation;

typedef struct plim_layers {
    plim_model_info model;
    const plim_layer *rows; /* in call order, parents before children */
    uint32_t n;
    uint64_t output_elements, output_bytes; /* leaves, one sample's worth if batch is 1 */
    uint64_t macs, flops, read, written;
    const plim_activation *activations; /* that have an in-place form, in call order */
    uint32_t n_activations;
} plim_layers;

PLIM_API plim_status plim_layers_run(const char *model, const plim_settings *s,
                                     plim_layers **out, plim_err *err);
PLIM_API void plim_layers_free(plim_layers *l);

/* ======================================================================== */
/* Explain                                                                   */
/* ======================================================================== */

/* peak(batch) = fixed + batch * per_sample, through the two largest batches,
 * beside what the simulation says for each. */
typedef struct plim_batch_row {
    int64_t batch;
    uint64_t peak_requested, peak_allocated, peak_reserved; /* simulated */
    uint64_t line; /* the straight line, for peak_requested */
} plim_batch_row;

typedef struct plim_batches {
    plim_model_info model;
    uint64_t fixed, per_sample; /* of peak_requested */
    const plim_batch_row *rows; /* batch 1, 2, 4 ... up to the one asked for (64 at least) */
    uint32_t n;
} plim_batches;

PLIM_API plim_status plim_batches_run(const char *model, const plim_settings *s,
                                      plim_batches **out, plim_err *err);
PLIM_API void plim_batches_free(plim_batches *b);

/* checkpoint_sequential: the peak of a step for each number of segments. */
typedef struct plim_segment_row {
    uint32_t segments, calls; /* module calls in each, the last one apart */
    uint64_t peak_requested, peak_allocated, peak_reserved;
} plim_segment_row;

typedef struct plim_segments {
    plim_model_info model;
    uint32_t calls;               /* of the Sequential that is cut */
    uint32_t best;                /* the row with the lowest peak_requested */
    const plim_segment_row *rows; /* 1 segment (no checkpoint) first; of all numbers of
                                     segments with as many calls in each the largest */
    uint32_t n;
} plim_segments;

PLIM_API plim_status plim_segments_run(const char *model, const plim_settings *s,
                                       plim_segments **out, plim_err *err);
PLIM_API void plim_segments_free(plim_segments *s);

/* ======================================================================== */
/* Fit                                                                       */
/* ======================================================================== */

typedef struct plim_fit_row {
    const char *gpu; /* full name */
    uint64_t gpu_bytes;
    bool gpu_exact; /* capacity as a driver reported it, not from the box */
    /* the largest that surely fits, with context and workspaces at their upper
     * bounds; 0: none.  Where the context is not known: it may be less, never more */
    int64_t batch;
    bool limited;      /* the search stopped at its own limit, not at the card's */
    uint64_t reserved; /* at that batch; at batch 1 if none fits */
    uint64_t device_low, device_high;
    bool context_known;
} plim_fit_row;

typedef struct plim_fit {
    plim_model_info model;
    const plim_fit_row *rows;
    uint32_t n;
} plim_fit;

/* The largest batch for each card: `gpus` is "rtx4090,a100" or "all"; NULL with
 * s->vram set.  Found by bisection over the exact simulation, so that for the
 * batch B of a row B fits and B + 1 does not.  Settings' own batch is not used.
 * PLIM_EUNSUPPORTED: the file holds one batch size only. */
PLIM_API plim_status plim_fit_run(const char *model, const plim_settings *s, const char *gpus,
                                  plim_fit **out, plim_err *err);
PLIM_API void plim_fit_free(plim_fit *f);

/* Does the estimate fit the card?  The rule that fit uses: simulated on a card
 * of gpu_bytes less the upper context, no out-of-memory. */

/* ======================================================================== */
/* Tape and replay                                                           */
/* ======================================================================== */

/* The events of the run as text (json: one object a line). */
PLIM_API plim_status plim_tape_print(const char *model, const plim_settings *s, bool json,
                                     plim_put put, void *ud, plim_err *err);

typedef struct plim_replay_options {
    const char *allocator; /* "caching" (default) */
    const char *alloc_conf;
    const char *torch;
    const char *gpu;   /* capacity of a card, or */
    uint64_t capacity; /* bytes; 0: unlimited */
    double fraction;   /* set_per_process_memory_fraction; 0: not set */
    bool stop_at_oom;
} plim_replay_options;
#define PLIM_REPLAY_OPTIONS_INIT                                                              \
    {                                                                                         \
        0                                                                                     \
    }

/* src: torch.cuda.memory_stats, in its names */
typedef struct plim_stat {
    uint64_t current, peak, total_allocated, total_freed;
} plim_stat;

typedef struct plim_replay {
    uint64_t events, storages;
    plim_stat allocation, segment, active; /* counts */
    plim_stat requested_bytes, allocated_bytes, reserved_bytes, active_bytes,
        inactive_split_bytes;
    plim_stat inactive_split;
    uint64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free;
    const plim_phase_row *rows; /* one a mark */
    const char *const *row_ops; /* the op of each */
    uint32_t n_rows;
    bool oom;
    const char *oom_text; /* of the first one */
    uint64_t oom_event;
} plim_replay;

/* `path` is a tape in text. */
PLIM_API plim_status plim_replay_run(const char *path, const plim_replay_options *o,
                                     plim_replay **out, plim_err *err);
PLIM_API void plim_replay_free(plim_replay *r);

/* ======================================================================== */
/* What plimsoll knows                                                       */
/* ======================================================================== */

typedef enum plim_registry {
    PLIM_REG_MODELS,
    PLIM_REG_OPS,
    PLIM_REG_OPTIMIZERS,
    PLIM_REG_PROFILES,
    PLIM_REG_FORMATS,
    PLIM_REG_GPUS,
    PLIM_REG_DTYPES,
    PLIM_REG_ALLOCATORS,
    PLIM_REG_COUNT
} plim_registry;

typedef struct plim_entry {
    const char *name;
    const char *group; /* family of a model or op, vendor of a card; "" if none */
    const char *doc;   /* one line */
    const char *src;   /* where the fact comes from */
    uint64_t number;   /* models: parameters; cards: bytes; dtypes: bits; else 0 */
} plim_entry;

PLIM_API uint32_t plim_registry_count(plim_registry r);
PLIM_API bool plim_registry_at(plim_registry r, uint32_t i,
                               plim_entry *out); /* false: past the end */

typedef struct plim_gpu_info {
    const char *name, *aliases, *vendor, *klass, *arch, *src;
    int year, cc, sms; /* cc: compute capability * 10; 0: unknown */
    uint64_t memory_bytes;
    bool memory_exact;
    double bandwidth_gbs, fp32, tf32, fp16, bf16, fp8; /* TFLOPS dense; 0: unknown */
} plim_gpu_info;
PLIM_API bool plim_gpu_info_at(uint32_t i, plim_gpu_info *out);

/* ---- small helpers that front ends share ---------------------------------- */

/* "24GiB", "24g", "500MB", "512" to bytes. */
PLIM_API plim_status plim_size_parse(const char *text, uint64_t *bytes, plim_err *err);
/* "500x500x3", "1,3,224,224": dims into dim[max]. */
PLIM_API plim_status plim_shape_parse(const char *text, int64_t *dim, int max, int *rank,
                                      plim_err *err);
/* Bytes of a dense tensor; PLIM_ERANGE if they do not fit. */
PLIM_API plim_status plim_tensor_bytes(plim_dtype t, int rank, const int64_t *dim,
                                       uint64_t *bytes, plim_err *err);
PLIM_API const char *plim_dtype_name(plim_dtype t); /* "fp32" */

/* ======================================================================== */
/* Reports                                                                   */
/* ======================================================================== */

typedef struct plim_style {
    bool si;             /* GB, MB, KB (1000) instead of GiB, MiB, KiB */
    bool color;          /* ANSI colours */
    bool ascii;          /* no box drawing or block characters */
    int width;           /* columns; 0: 80 */
    int top;             /* rows of the live table; 0: 10 */
    int depth;           /* layers: deepest level shown; 0: all */
    bool quiet;          /* the figures only */
    const char *columns; /* layers: "type,shape,params,macs"; NULL: the usual */
    const char *types;   /* layers: rows of these types only, "Input,Conv2d"; NULL: all */
} plim_style;
#define PLIM_STYLE_INIT                                                                       \
    {                                                                                         \
        0                                                                                     \
    }

typedef enum plim_render { PLIM_TEXT, PLIM_JSON, PLIM_CSV } plim_render;

/* PLIM_EUNSUPPORTED: this report has no such rendering. */
PLIM_API plim_status plim_estimate_print(const plim_estimate *e, plim_render r,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
PLIM_API plim_status plim_info_print(const plim_info *i, plim_render r, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_layers_print(const plim_layers *l, plim_render r,
                                       const plim_style *st, plim_put put, void *ud,
                                       plim_err *err);
PLIM_API plim_status plim_segments_print(const plim_segments *s, plim_render r,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
PLIM_API plim_status plim_batches_print(const plim_batches *b, plim_render r,
                                        const plim_style *st, plim_put put, void *ud,
                                        plim_err *err);
PLIM_API plim_status plim_fit_print(const plim_fit *f, plim_render r, const plim_style *st,
                                    plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_replay_print(const plim_replay *p, plim_render r,
                                       const plim_style *st, plim_put put, void *ud,
                                       plim_err *err);
/* One of the lists of what plimsoll knows; `filter` is a substring or NULL. */
PLIM_API plim_status plim_registry_print(plim_registry r, const char *filter, plim_render how,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
/* A shape in every dtype. */
PLIM_API plim_status plim_size_print(const char *shape, plim_render how, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
