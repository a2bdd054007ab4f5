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
 *         plim_model *model = NULL;
 *         plim_settings *s = NULL;
 *         plim_estimate *e = NULL;
 *         if (plim_model_open("resnet50", &model, &err) || plim_settings_new(&s, &err) ||
 *             plim_settings_set(s, "batch", "32", &err) ||
 *             plim_settings_set(s, "optimizer", "adam", &err) ||
 *             plim_estimate_run(model, s, &e, &err))
 *             fprintf(stderr, "%s\n", err.msg);
 *         else
 *             printf("%llu bytes\n", (unsigned long long)e->peak_reserved);
 *         plim_estimate_free(e);
 *         plim_settings_free(s);
 *         plim_model_free(model);
 *         return err.code ? 1 : 0;
 *     }
 *
 * Conventions
 *
 *   Errors.   A function that can fail returns a plim_status and takes a plim_err
 *             last, which may be NULL, is untouched on success and keeps the first
 *             error.  On failure nothing is returned: *out is untouched.  A pointer
 *             that must not be NULL and is gives PLIM_EUSAGE.
 *   Units.    Sizes are bytes in uint64_t, never size_t.  Shapes are int64_t with the
 *             fastest dimension last.
 *   Strings.  UTF-8, NUL-terminated.  Those of a result live as long as the result;
 *             those that are given are borrowed for the length of the call.
 *   Owners.   What plim_x_new, _open and _run return belongs to the caller and is
 *             released by plim_x_free, which takes NULL.
 *   Threads.  There is no global state that changes.  A model and a result may be read
 *             by many threads at once; settings may be read by many while none changes
 *             them.  plim_estimate_run may use two more threads of its own, which end
 *             before it returns.  The locale does not matter.
 *   Output.   The library never prints and never exits.
 *   ABI.      A result is a struct that the library makes and the caller reads through
 *             the pointer.  It begins with its size, and its lists are arrays of
 *             pointers (e->live[i]->bytes), so that later versions can add fields at
 *             the end of it and of their rows.  Values of enumerators do not change.
 *             A struct that the caller makes begins with its size too (PLIM_STYLE_INIT).
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
#define PLIM_VERSION_NUMBER 100 /* major * 10000 + minor * 100 + patch */
/* Of the library that was linked, which may be newer than this header. */
PLIM_API const char *plim_version(void);
PLIM_API uint32_t plim_version_number(void);

/* ======================================================================== */
/* Errors                                                                    */
/* ======================================================================== */

/* Few codes, each something that a caller may act on.  Values are pinned. */
#define PLIM_STATUS_MAP(X)                                                                    \
    X(OK, 0, "ok")                                                                            \
    X(EFORMAT, -1, "malformed file")                                                          \
    X(EUNSUPPORTED, -2, "not supported")                                                      \
    X(ESHAPE, -3, "shapes do not match")                                                      \
    X(ERANGE, -4, "number out of range")                                                      \
    X(ENOMEM, -5, "out of memory for plimsoll's own tables")                                  \
    X(EIO, -6, "file could not be read or written")                                           \
    X(EDRIVER, -7, "driver error")                                                            \
    X(EUSAGE, -8, "invalid argument")                                                         \
    X(ECANCELED, -9, "canceled by the caller")

typedef enum plim_status {
#define X(id, value, text) PLIM_##id = (value),
    PLIM_STATUS_MAP(X)
#undef X
} plim_status;

/* This struct is complete: it will not grow. */
typedef struct plim_err {
    plim_status code;
    uint64_t at;   /* byte offset into the input, or an index, where it makes sense */
    char msg[256]; /* lower case, problem first, no full stop */
} plim_err;
#define PLIM_ERR_INIT                                                                         \
    {                                                                                         \
        PLIM_OK, 0, { 0 }                                                                     \
    }

/* "malformed file"; "unknown status" for a number that is none. */
PLIM_API const char *plim_status_name(plim_status st);

/* ======================================================================== */
/* Words                                                                     */
/* ======================================================================== */

typedef enum plim_dtype {
    PLIM_F32 = 0,
    PLIM_F16 = 1,
    PLIM_BF16 = 2,
    PLIM_F64 = 3,
    PLIM_I64 = 4,
    PLIM_I32 = 5,
    PLIM_I16 = 6,
    PLIM_I8 = 7,
    PLIM_U8 = 8,
    PLIM_BOOL = 9,
    PLIM_U16 = 10,
    PLIM_U32 = 11,
    PLIM_U64 = 12,
    PLIM_C32 = 13,
    PLIM_C64 = 14,
    PLIM_C128 = 15,
    PLIM_F8E4M3FN = 16,
    PLIM_F8E5M2 = 17,
    PLIM_F8E4M3FNUZ = 18,
    PLIM_F8E5M2FNUZ = 19,
    PLIM_F8E8M0FNU = 20,
    PLIM_F4E2M1X2 = 21,
    PLIM_QINT8 = 22,
    PLIM_QUINT8 = 23,
    PLIM_QINT32 = 24,
    PLIM_QUINT4X2 = 25,
    PLIM_QUINT2X4 = 26,
    PLIM_DTYPE_COUNT = 27
} plim_dtype;

typedef enum plim_phase {
    PLIM_PHASE_LOAD = 0, /* parameters and buffers go to the device; before step 0 */
    PLIM_PHASE_INPUTS = 1,
    PLIM_PHASE_ZERO_GRAD = 2,
    PLIM_PHASE_FORWARD = 3,
    PLIM_PHASE_LOSS = 4,
    PLIM_PHASE_BACKWARD = 5,
    PLIM_PHASE_OPTIMIZER = 6,
    PLIM_PHASE_COUNT = 7
} plim_phase;
PLIM_API const char *plim_phase_name(plim_phase p); /* "forward" */

typedef enum plim_category {
    PLIM_CAT_PARAMETER = 0,
    PLIM_CAT_BUFFER = 1,
    PLIM_CAT_GRADIENT = 2, /* of parameters */
    PLIM_CAT_OPTIMIZER_STATE = 3,
    PLIM_CAT_INPUT = 4,      /* inputs and targets */
    PLIM_CAT_ACTIVATION = 5, /* kept for backward */
    PLIM_CAT_TEMPORARY =
        6, /* lives within a phase: results nobody keeps, activation gradients */
    PLIM_CAT_WORKSPACE = 7, /* library workspaces and kernel scratch */
    PLIM_CAT_OUTPUT = 8,    /* model outputs and the loss */
    PLIM_CAT_COUNT = 9
} plim_category;
PLIM_API const char *plim_category_name(plim_category c); /* "optimizer_state" */

/* How sure a byte is. */
typedef enum plim_certainty {
    PLIM_EXACT = 0,
    PLIM_ESTIMATED = 1,     /* a library decides at run time; bounded */
    PLIM_UNKNOWN_BYTES = 2, /* an op without a rule; bounded */
    PLIM_CERTAINTY_COUNT = 3
} plim_certainty;
PLIM_API const char *plim_certainty_name(plim_certainty c); /* "exact" */

/* Where text goes, piece by piece; ud is the caller's.  0: go on.  Anything else
 * ends the call with PLIM_EIO. */
typedef int (*plim_put)(void *ud, const char *text, size_t n);

/* How far a long call is: done of total, and what is next ("RTX 4090").  0: go on.
 * Anything else ends the call with PLIM_ECANCELED.  Called from the thread of the call. */
typedef int (*plim_progress)(void *ud, uint32_t done, uint32_t total, const char *what);

/* ======================================================================== */
/* Models                                                                    */
/* ======================================================================== */

/* A model that was opened: a file that is mapped, or a built-in one.  One handle serves
 * any number of questions, from any number of threads at once. */
typedef struct plim_model plim_model;

/* `name` is a built-in name (PLIM_REG_MODELS), a file or a folder; the format is found
 * from the content.  A file must not change while the model is open.  PLIM_EIO: it cannot
 * be read; PLIM_EFORMAT, PLIM_EUNSUPPORTED: it is nothing that plimsoll reads;
 * PLIM_EUSAGE: there is no such name, and the message has those that are near. */
PLIM_API plim_status plim_model_open(const char *name, plim_model **out, plim_err *err);
/* The bytes of a file, which stay the caller's and must live as long as the model.
 * `name` is what messages and results call it: "net.pt2".  There are no files beside it:
 * of a checkpoint in shards give the index as a file. */
PLIM_API plim_status plim_model_open_bytes(const char *name, const void *bytes, uint64_t n,
                                           plim_model **out, plim_err *err);
PLIM_API void plim_model_free(plim_model *m);
/* "resnet18", and the format: "pt2", "built-in".  NULL for NULL. */
PLIM_API const char *plim_model_name(const plim_model *m);
PLIM_API const char *plim_model_format(const plim_model *m);

/* ======================================================================== */
/* Settings                                                                  */
/* ======================================================================== */

/* How a model is run: values by name.  docs/settings.md has the names, and so has
 * plim_setting_at; `plimsoll help estimate` shows them as options.  Wherever settings are
 * taken NULL means that nothing is set. */
typedef struct plim_settings plim_settings;

PLIM_API plim_status plim_settings_new(plim_settings **out, plim_err *err);
/* from NULL: as _new. */
PLIM_API plim_status plim_settings_copy(const plim_settings *from, plim_settings **out,
                                        plim_err *err);
PLIM_API void plim_settings_free(plim_settings *s);

/* ("batch", "32"), ("optimizer", "adamw,impl=fused"), ("vram", "24GiB"), ("clip", "true").
 * value NULL: not set.  The key may be written as the option: "--zero-grad" is "zero_grad".
 * PLIM_EUSAGE: no such setting, or a value that it cannot have; what depends on more than the
 * value (an optimizer's name, a card) is checked by the call that uses it. */
PLIM_API plim_status plim_settings_set(plim_settings *s, const char *key, const char *value,
                                       plim_err *err);
/* As _set, but a list ("input", "dim") keeps what it has and gets one item more. */
PLIM_API plim_status plim_settings_add(plim_settings *s, const char *key, const char *value,
                                       plim_err *err);
/* As text, in its normal form ("25769803776"); NULL: not set, or no such setting.  Valid
 * until the setting is set again. */
PLIM_API const char *plim_settings_get(const plim_settings *s, const char *key);

/* All settings as one JSON object; null: not set. */
PLIM_API plim_status plim_settings_json(const plim_settings *s, plim_put put, void *ud,
                                        plim_err *err);
/* Sets what an object of that kind has; null: as value NULL.  Of a whole report in JSON
 * its "settings" are taken, so that an answer can be asked for again.  PLIM_EFORMAT: not JSON;
 * PLIM_EUSAGE as plim_settings_set.  Members before the one that is wrong are set. */
PLIM_API plim_status plim_settings_set_json(plim_settings *s, const char *json, size_t n,
                                            plim_err *err);
/* As plim_settings_set_json, from a file.  PLIM_EIO: it cannot be read. */
PLIM_API plim_status plim_settings_load(plim_settings *s, const char *path, plim_err *err);
/* Calls that take long report to `progress`; NULL: to nobody. */
PLIM_API void plim_settings_on_progress(plim_settings *s, plim_progress progress, void *ud);

typedef enum plim_setting_kind {
    PLIM_SETTING_FLAG = 0,     /* "true", "false" */
    PLIM_SETTING_INT = 1,      /* within least and most */
    PLIM_SETTING_SIZE = 2,     /* bytes: "24GiB" */
    PLIM_SETTING_FRACTION = 3, /* above 0 and up to 1 */
    PLIM_SETTING_WORD = 4,     /* one of words */
    PLIM_SETTING_TEXT = 5,     /* read by the call that uses it */
    PLIM_SETTING_LIST = 6      /* as text; items are joined by ';' */
} plim_setting_kind;

typedef struct plim_setting_info {
    size_t size; /* set by PLIM_SETTING_INFO_INIT */
    const char *key;
    plim_setting_kind kind;
    const char *arg;      /* what stands for the value in help: "N"; NULL: no value is given */
    const char *words;    /* of a word, with a space between them; else NULL */
    int64_t least, most;  /* of an integer; of a size the least */
    const char *preset;   /* the value if it is not set; NULL: it depends, as doc says */
    const char *group;    /* "Training step" */
    const char *commands; /* that take it, with a space between them: "estimate fit" */
    const char *doc;      /* of a word without arg: one part a word, with '|' between them */
} plim_setting_info;
#define PLIM_SETTING_INFO_INIT                                                                \
    {                                                                                         \
        sizeof(plim_setting_info), 0, PLIM_SETTING_FLAG, 0, 0, 0, 0, 0, 0, 0, 0               \
    }
/* The i-th setting; false: past the end. */
PLIM_API bool plim_setting_at(uint32_t i, plim_setting_info *out);

/* ======================================================================== */
/* Estimate                                                                  */
/* ======================================================================== */

typedef struct plim_model_info {
    size_t size;                                        /* of this struct */
    const char *name, *format, *producer;               /* producer "": not known */
    uint64_t parameters, trainable_parameters, buffers; /* elements */
    uint64_t parameter_bytes, buffer_bytes;             /* as in the file: before the dtype */
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

typedef enum plim_fits {
    PLIM_FITS_NO_CARD = -2, /* no card was chosen */
    PLIM_FITS_MAYBE = -1,   /* between its lower and its upper bound */
    PLIM_FITS_NO = 0,
    PLIM_FITS_YES = 1 /* with context and workspaces at their upper bounds */
} plim_fits;

typedef struct plim_estimate {
    size_t size; /* of this struct */
    const plim_model_info *model;
    const plim_settings *settings; /* as they were used: with their defaults */
    const char *gpu;               /* the card's full name; NULL: none was chosen */

    /* at the peak of allocated bytes, by plim_category and by plim_certainty: requested
     * bytes; each sums to peak_live_requested */
    const uint64_t *category;
    uint32_t n_categories;
    const uint64_t *certainty;
    uint32_t n_certainties;
    uint64_t peak_live_requested;
    uint64_t ema_bytes; /* what of the optimizer's state is the average of the model */

    uint64_t peak_requested, peak_allocated, peak_reserved; /* each its own maximum */
    /* with library workspaces at their lower and upper bounds */
    uint64_t reserved_low, reserved_high;
    bool context_known; /* false: the card's context size has no source */
    uint64_t context_low, context_high;
    uint64_t device_low, device_high; /* reserved + context */
    uint64_t gpu_bytes;               /* capacity; 0: no card chosen */
    plim_fits fits;

    int peak_step;
    plim_phase peak_phase;
    const char *peak_op;          /* layer at the peak */
    const plim_live *const *live; /* at the peak, largest first */
    uint32_t n_live;
    const plim_phase_row *const *phases;
    uint32_t n_phases;
    const plim_bucket *const *timeline;
    uint32_t n_buckets, peak_bucket;

    const char *const *unknown_targets; /* distinct ops without a rule */
    uint32_t n_unknown_targets;
    uint64_t forward_macs, forward_flops, backward_flops;

    bool oom;             /* the simulated card ran out of memory */
    const char *oom_text; /* what PyTorch would have said; NULL if not */
    const char *advice;   /* one plain sentence: what dominates, what would help most */
} plim_estimate;

/* How much memory a run takes.  PLIM_EFORMAT, PLIM_ESHAPE, PLIM_ERANGE,
 * PLIM_EUNSUPPORTED name the file and the offset or layer; PLIM_EUSAGE the setting. */
PLIM_API plim_status plim_estimate_run(const plim_model *m, const plim_settings *s,
                                       plim_estimate **out, plim_err *err);
PLIM_API void plim_estimate_free(plim_estimate *e);

/* ======================================================================== */
/* What a file holds                                                         */
/* ======================================================================== */

typedef enum plim_item_kind {
    PLIM_ITEM_PARAMETER = 0, /* also a weight of which the file does not say what it is */
    PLIM_ITEM_BUFFER = 1,
    PLIM_ITEM_CONSTANT = 2,
    PLIM_ITEM_OPTIMIZER_STATE = 3,
    PLIM_ITEM_OTHER = 4, /* random states and the like */
    PLIM_ITEM_KINDS = 5
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
    const char *name; /* of the module, "" for all; of the type; of the kind */
    int depth;        /* modules: 0 is all */
    uint64_t tensors, elements, bytes;
} plim_info_sum;

typedef struct plim_info_pair {
    const char *key, *value;
} plim_info_pair;

typedef struct plim_info_dim {
    const char *name;
    int64_t value; /* 0: must be given ("dim") */
} plim_info_dim;

typedef struct plim_info {
    size_t size;                          /* of this struct */
    const char *name, *format, *producer; /* "": not known */
    const char *reader;                   /* name of the format; NULL: built in */
    uint64_t file_bytes;                  /* of the file that was opened; 0: built in */
    const plim_info_sum *const *held;     /* by plim_item_kind */
    uint32_t n_held;
    const plim_info_sum *const *types, *const *modules; /* largest first; parents before
                                                           children */
    uint32_t n_types, n_modules;
    const plim_info_tensor *const *tensors; /* in the file's order */
    uint32_t n_tensors;
    const plim_info_pair *const *facts; /* what the file says of itself */
    uint32_t n_facts;
    const plim_info_tensor *const *inputs; /* of the graph */
    uint32_t n_inputs;
    const plim_info_dim *const *dims; /* sizes that are left open */
    uint32_t n_dims;
    bool graph;                         /* it can be estimated */
    uint32_t ops;                       /* nodes of the graph */
    const char *const *unknown_targets; /* ops without a rule */
    uint32_t n_unknown_targets;
    const char *const *notes; /* sentences: what is not known, what does not agree */
    uint32_t n_notes;
} plim_info;

/* What a model's file holds.  Of `s` only what binds sizes counts.  Errors as
 * plim_estimate_run, but a file without a graph is none. */
PLIM_API plim_status plim_info_run(const plim_model *m, const plim_settings *s,
                                   plim_info **out, plim_err *err);
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
    PLIM_GAIN_MOMENT = 0, /* nothing, but one tensor less while it runs */
    PLIM_GAIN_NONE = 1,   /* nothing: a copy of the input is kept instead of the input */
    PLIM_GAIN_LESS = 2,   /* the result is kept instead of the input */
    PLIM_GAIN_COUNT = 3
} plim_inplace_gain;
typedef struct plim_activation {
    const char *op; /* "silu" */
    plim_inplace_gain gain;
    uint32_t count, inplace; /* all of them; those that are in place already */
    uint64_t bytes; /* results of those that are not: what PLIM_GAIN_LESS can save at most */
} plim_activation;

typedef struct plim_layers {
    size_t size; /* of this struct */
    const plim_model_info *model;
    const plim_settings *settings; /* as they were used: with their defaults */
    const plim_layer *const *rows; /* in call order, parents before children */
    uint32_t n;
    uint64_t output_elements, output_bytes; /* leaves, one sample's worth if batch is 1 */
    uint64_t macs, flops, read, written;
    const plim_activation *const *activations; /* that have an in-place form, in call order */
    uint32_t n_activations;
} plim_layers;

/* What each layer holds and costs in a forward pass.  Errors as plim_estimate_run. */
PLIM_API plim_status plim_layers_run(const plim_model *m, const plim_settings *s,
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
    size_t size; /* of this struct */
    const plim_model_info *model;
    uint64_t fixed, per_sample;        /* of peak_requested */
    const plim_batch_row *const *rows; /* batch 1, 2, 4 ... up to the one asked for (64 at
                                          least) */
    uint32_t n;
} plim_batches;

/* How memory grows with the batch.  Errors as plim_estimate_run; PLIM_EUNSUPPORTED also:
 * the file holds one batch size only.  Reports progress. */
PLIM_API plim_status plim_batches_run(const plim_model *m, const plim_settings *s,
                                      plim_batches **out, plim_err *err);
PLIM_API void plim_batches_free(plim_batches *b);

/* checkpoint_sequential: the peak of a step for each number of segments. */
typedef struct plim_segment_row {
    uint32_t segments, calls; /* module calls in each, the last one apart */
    uint64_t peak_requested, peak_allocated, peak_reserved;
} plim_segment_row;

typedef struct plim_segments {
    size_t size; /* of this struct */
    const plim_model_info *model;
    uint32_t calls;                      /* of the Sequential that is cut */
    uint32_t best;                       /* the row with the lowest peak_requested */
    const plim_segment_row *const *rows; /* 1 segment (no checkpoint) first; of all numbers of
                                            segments with as many calls in each the largest */
    uint32_t n;
} plim_segments;

/* Errors as plim_estimate_run; PLIM_EUSAGE also: the model is no Sequential.  Reports
 * progress. */
PLIM_API plim_status plim_segments_run(const plim_model *m, const plim_settings *s,
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
    size_t size; /* of this struct */
    const plim_model_info *model;
    const plim_settings *settings; /* as they were used: with their defaults */
    const plim_fit_row *const *rows;
    uint32_t n;
} plim_fit;

/* The largest batch for each card: the setting "gpu" is a list here ("rtx4090,a100", "all");
 * neither "gpu" nor "vram": all cards.  Found by bisection over the exact simulation, so
 * that for the batch B of a row B fits and B + 1 does not.  The setting "batch" is not used.
 * Errors as plim_estimate_run; PLIM_EUNSUPPORTED also: the file holds one batch size only.
 * Reports progress, card by card. */
PLIM_API plim_status plim_fit_run(const plim_model *m, const plim_settings *s, plim_fit **out,
                                  plim_err *err);
PLIM_API void plim_fit_free(plim_fit *f);

/* ======================================================================== */
/* Tape and replay                                                           */
/* ======================================================================== */

/* The events of the run as text (json: one object a line).  Errors as
 * plim_estimate_run. */
PLIM_API plim_status plim_tape_print(const plim_model *m, const plim_settings *s, bool json,
                                     plim_put put, void *ud, plim_err *err);

/* This struct is complete: it will not grow.
 * src: torch.cuda.memory_stats, in its names */
typedef struct plim_stat {
    uint64_t current, peak, total_allocated, total_freed;
} plim_stat;

typedef struct plim_replay {
    size_t size; /* of this struct */
    uint64_t events, storages;
    plim_stat allocation, segment, active; /* counts */
    plim_stat requested_bytes, allocated_bytes, reserved_bytes, active_bytes,
        inactive_split_bytes;
    plim_stat inactive_split;
    uint64_t num_alloc_retries, num_ooms, num_device_alloc, num_device_free;
    const plim_phase_row *const *rows; /* one a mark */
    const char *const *row_ops;        /* the op of each */
    uint32_t n_rows;
    bool oom;
    const char *oom_text; /* of the first one; NULL: none */
    uint64_t oom_event;   /* likewise; 0: none */
} plim_replay;

/* A tape in text through an allocator, as the settings "allocator", "torch", "alloc_conf",
 * "gpu" or "vram" (the capacity; neither: unlimited), "fraction" and "stop_at_oom" say.
 * PLIM_EIO: the file cannot be read; PLIM_EFORMAT: it is no tape, and the message has the
 * line; PLIM_EUSAGE: the setting. */
PLIM_API plim_status plim_replay_run(const char *path, const plim_settings *s,
                                     plim_replay **out, plim_err *err);
PLIM_API void plim_replay_free(plim_replay *r);

/* ======================================================================== */
/* What plimsoll knows                                                       */
/* ======================================================================== */

typedef enum plim_registry {
    PLIM_REG_MODELS = 0,
    PLIM_REG_OPS = 1,
    PLIM_REG_OPTIMIZERS = 2,
    PLIM_REG_PROFILES = 3,
    PLIM_REG_FORMATS = 4,
    PLIM_REG_GPUS = 5,
    PLIM_REG_DTYPES = 6,
    PLIM_REG_ALLOCATORS = 7,
    PLIM_REG_COUNT = 8
} plim_registry;

typedef struct plim_entry {
    size_t size; /* set by PLIM_ENTRY_INIT */
    const char *name;
    const char *group; /* family of a model or op, vendor of a card; "" if none */
    const char *doc;   /* one line */
    const char *src;   /* where the fact comes from */
    uint64_t number;   /* models: parameters; cards: bytes; dtypes: bits; else 0 */
    const char *also;  /* models: other names, separated by spaces; "" if none */
} plim_entry;
#define PLIM_ENTRY_INIT                                                                       \
    {                                                                                         \
        sizeof(plim_entry), 0, 0, 0, 0, 0, 0                                                  \
    }

/* How many rows a list has; 0: no such list. */
PLIM_API uint32_t plim_registry_count(plim_registry r);
/* Row i; its strings are static.  false: past the end, and *out is untouched. */
PLIM_API bool plim_registry_at(plim_registry r, uint32_t i, plim_entry *out);

typedef struct plim_gpu_info {
    size_t size; /* set by PLIM_GPU_INFO_INIT */
    const char *name, *aliases, *vendor, *klass, *arch, *src;
    int year, cc, sms; /* cc: compute capability * 10; 0: unknown */
    uint64_t memory_bytes;
    bool memory_exact;
    double bandwidth_gbs, fp32, tf32, fp16, bf16, fp8; /* TFLOPS dense; 0: unknown */
} plim_gpu_info;
#define PLIM_GPU_INFO_INIT                                                                    \
    {                                                                                         \
        sizeof(plim_gpu_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0              \
    }
/* The i-th card of PLIM_REG_GPUS, with all its numbers; false: past the end. */
PLIM_API bool plim_gpu_info_at(uint32_t i, plim_gpu_info *out);

/* ---- small helpers that front ends share ---------------------------------- */

/* "24GiB", "24g", "500MB", "512" to bytes.  PLIM_EUSAGE: not a size; PLIM_ERANGE: beyond
 * 64 bits. */
PLIM_API plim_status plim_size_parse(const char *text, uint64_t *bytes, plim_err *err);
/* "500x500x3", "1,3,224,224" into dim[max], *rank of them; "()" is a scalar.  PLIM_EUSAGE:
 * not a shape; PLIM_ERANGE: more than max dimensions, or one beyond 64 bits. */
PLIM_API plim_status plim_shape_parse(const char *text, int64_t *dim, int max, int *rank,
                                      plim_err *err);
/* Bytes of a dense tensor; PLIM_ERANGE: beyond 64 bits. */
PLIM_API plim_status plim_tensor_bytes(plim_dtype t, int rank, const int64_t *dim,
                                       uint64_t *bytes, plim_err *err);
PLIM_API const char *plim_dtype_name(plim_dtype t); /* "fp32" */

/* ======================================================================== */
/* Reports                                                                   */
/* ======================================================================== */

typedef struct plim_style {
    size_t size;         /* set by PLIM_STYLE_INIT */
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
        sizeof(plim_style), 0, 0, 0, 0, 0, 0, 0, 0, 0                                         \
    }

typedef enum plim_render {
    PLIM_TEXT = 0, /* for people: UTF-8, or ASCII as the style says */
    PLIM_JSON = 1, /* sizes in bytes; docs/json.md */
    PLIM_CSV = 2   /* sizes in bytes; RFC 4180 */
} plim_render;

/* A result as a report, handed to `put` in one piece: on failure nothing is put.  st NULL:
 * the defaults.  PLIM_EUNSUPPORTED: this report has no such rendering; PLIM_EUSAGE: the
 * style names a column that is not there; PLIM_EIO: `put` said so. */
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

/* The same as JSON (docs/json.md), which is what bindings read: sizes in bytes, keys are
 * added and never renamed. */
PLIM_API plim_status plim_estimate_json(const plim_estimate *e, plim_put put, void *ud,
                                        plim_err *err);
PLIM_API plim_status plim_info_json(const plim_info *i, plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_layers_json(const plim_layers *l, plim_put put, void *ud,
                                      plim_err *err);
PLIM_API plim_status plim_segments_json(const plim_segments *s, plim_put put, void *ud,
                                        plim_err *err);
PLIM_API plim_status plim_batches_json(const plim_batches *b, plim_put put, void *ud,
                                       plim_err *err);
PLIM_API plim_status plim_fit_json(const plim_fit *f, plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_replay_json(const plim_replay *p, plim_put put, void *ud,
                                      plim_err *err);

/* One of the lists of what plimsoll knows; `filter` is a substring of its rows' names, or NULL. */
PLIM_API plim_status plim_registry_print(plim_registry r, const char *filter, plim_render how,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
/* The bytes of a shape ("256x3x100x100") in every dtype. */
PLIM_API plim_status plim_size_print(const char *shape, plim_render how, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
