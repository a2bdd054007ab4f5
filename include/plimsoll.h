/* plimsoll.h -- predicts the GPU memory of PyTorch training and inference.
 *
 * From a model file (or the name of a built-in model) and a few settings, the
 * library computes what a PyTorch training step or an inference allocates on a
 * card: byte for byte where PyTorch's code determines it, which tensors are
 * live at the peak, and which batch size fits on which card.  It needs no GPU,
 * no framework and no weights.
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
 *   Errors.   A function that can fail returns a plim_status and takes a plim_err as its
 *             last argument.  The plim_err may be NULL; it is unchanged on success and
 *             keeps the first error.  On failure *out is unchanged.  NULL for any other
 *             pointer gives PLIM_EUSAGE unless the function says that it takes NULL.
 *             Every function may also return PLIM_ENOMEM.
 *   Units.    Sizes are bytes in uint64_t, never size_t.  Dimensions are int64_t, the
 *             fastest-varying one last.
 *   Strings.  UTF-8, NUL-terminated.  Strings in a result live as long as the result;
 *             string arguments are borrowed for the duration of the call.
 *   Owners.   What plim_x_new, _copy, _open and _run return belongs to the caller, who
 *             releases it with plim_x_free.  All plim_x_free take NULL.
 *   Threads.  There is no mutable global state.  Many threads may use the same model or
 *             result at once, and the same settings while none of them changes these.
 *             plim_estimate_run and plim_fit_run may use threads of their own, which end
 *             before they return.  The locale has no effect.
 *   Output.   The library never prints and never exits.
 *   ABI.      A result is a struct that the library allocates and the caller reads
 *             through a pointer.  It begins with its size, and its lists are arrays of
 *             pointers (e->live[i]->bytes), so that later versions can append fields to
 *             the result and to its rows.  Values of enumerators do not change.  A struct
 *             that the caller allocates also begins with its size (PLIM_STYLE_INIT).
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
/* The version of the library that is linked, which may be newer than this header, in the
 * form of PLIM_VERSION.  The string is static. */
PLIM_API const char *plim_version(void);
/* The same in the form of PLIM_VERSION_NUMBER. */
PLIM_API uint32_t plim_version_number(void);

/* ======================================================================== */
/* Errors                                                                    */
/* ======================================================================== */

/* One code for each reaction that a caller may have.  The values do not change. */
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

/* What went wrong.  This struct has its final size. */
typedef struct plim_err {
    plim_status code;
    uint64_t at;   /* byte offset into the input, or an index; 0 where neither applies */
    char msg[256]; /* one line for a person: lower case, problem first, no full stop */
} plim_err;
#define PLIM_ERR_INIT                                                                         \
    {                                                                                         \
        PLIM_OK, 0, { 0 }                                                                     \
    }

/* A static string such as "malformed file"; "unknown status" for any other number. */
PLIM_API const char *plim_status_name(plim_status st);

/* Limits the memory, in bytes, that the library takes for itself in the whole process from now
 * on.  0, the default: three quarters of what the machine, the container and the limits of the
 * process allow, and to read a file, 128 MiB and 64 times its size.  A call that would take
 * more fails with PLIM_ENOMEM. */
PLIM_API void plim_limit_memory(uint64_t bytes);

/* The memory that this limit allows for reading a file of so many bytes, for a program that
 * reads it with another library. */
PLIM_API uint64_t plim_memory_limit(uint64_t file_bytes);

/* ======================================================================== */
/* Enumerations and callbacks                                                */
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
    PLIM_PHASE_LOAD = 0, /* parameters and buffers are moved to the device, before step 0 */
    PLIM_PHASE_INPUTS = 1,
    PLIM_PHASE_ZERO_GRAD = 2,
    PLIM_PHASE_FORWARD = 3,
    PLIM_PHASE_LOSS = 4,
    PLIM_PHASE_BACKWARD = 5,
    PLIM_PHASE_OPTIMIZER = 6,
    PLIM_PHASE_COUNT = 7
} plim_phase;
/* A static string such as "forward"; "?" for any other number. */
PLIM_API const char *plim_phase_name(plim_phase p);

typedef enum plim_category {
    PLIM_CAT_PARAMETER = 0,
    PLIM_CAT_BUFFER = 1,
    PLIM_CAT_GRADIENT = 2, /* of parameters */
    PLIM_CAT_OPTIMIZER_STATE = 3,
    PLIM_CAT_INPUT = 4,      /* inputs and targets */
    PLIM_CAT_ACTIVATION = 5, /* kept for backward */
    PLIM_CAT_TEMPORARY = 6,  /* lives within a phase: unsaved results, activation gradients */
    PLIM_CAT_WORKSPACE = 7,  /* library workspaces and kernel scratch memory */
    PLIM_CAT_OUTPUT = 8,     /* model outputs and the loss */
    PLIM_CAT_COUNT = 9
} plim_category;
/* A static string such as "optimizer_state"; "?" for any other number. */
PLIM_API const char *plim_category_name(plim_category c);

/* What determines the size of an allocation. */
typedef enum plim_certainty {
    PLIM_EXACT = 0,         /* PyTorch's own code */
    PLIM_ESTIMATED = 1,     /* a library at run time; known within bounds */
    PLIM_UNKNOWN_BYTES = 2, /* an op without a rule; counted with a bound */
    PLIM_CERTAINTY_COUNT = 3
} plim_certainty;
/* A static string such as "exact"; "?" for any other number. */
PLIM_API const char *plim_certainty_name(plim_certainty c);

/* Receives a piece of output: n bytes of text, not NUL-terminated.  `ud` is the pointer
 * that the caller passed along with the function.  Returns 0 to continue; anything else
 * ends the call with PLIM_EIO. */
typedef int (*plim_put)(void *ud, const char *text, size_t n);

/* Receives the progress of a long call: `done` of `total` parts (total 0: their number is
 * not known), and what comes next ("RTX 4090").  It is called on the thread of the call.
 * Returns 0 to continue; anything else ends the call with PLIM_ECANCELED. */
typedef int (*plim_progress)(void *ud, uint32_t done, uint32_t total, const char *what);

/* ======================================================================== */
/* Models                                                                    */
/* ======================================================================== */

/* An open model: a file or a built-in model.  One handle serves any number of
 * calls, from any number of threads at once. */
typedef struct plim_model plim_model;

/* Opens a built-in model (PLIM_REG_MODELS), a file or a directory by name; the format of a
 * file is detected from its content.  The file must not change while the model is open.
 * PLIM_EIO: it cannot be read.  PLIM_EFORMAT, PLIM_EUNSUPPORTED: it is not a model that
 * plimsoll reads.  PLIM_EUSAGE: there is no such name; the message suggests similar ones. */
PLIM_API plim_status plim_model_open(const char *name, plim_model **out, plim_err *err);
/* Opens a model from the n bytes of a file in memory, which the caller keeps unchanged
 * until the model is freed.  `name` is the name used in messages and results ("net.pt2").
 * Files next to it are not available: a sharded checkpoint must be opened by its path.
 * Errors as plim_model_open. */
PLIM_API plim_status plim_model_open_bytes(const char *name, const void *bytes, uint64_t n,
                                           plim_model **out, plim_err *err);
/* Closes the model.  Takes NULL. */
PLIM_API void plim_model_free(plim_model *m);
/* The name of the model ("resnet18"), which lives as long as the model.  NULL for NULL. */
PLIM_API const char *plim_model_name(const plim_model *m);
/* The format of the model ("pt2", "built-in"), a static string.  NULL for NULL. */
PLIM_API const char *plim_model_format(const plim_model *m);
/* Whether the graph of the model can be built: PLIM_OK, or the error that an answer about it
 * would end with, whatever the settings.  PLIM_EUNSUPPORTED: plimsoll does not know a model of
 * this type, or a file of its format holds none. */
PLIM_API plim_status plim_model_check(const plim_model *m, plim_err *err);

/* ======================================================================== */
/* Settings                                                                  */
/* ======================================================================== */

/* How a model is run, as named values.  docs/settings.md lists them, plim_setting_at
 * enumerates them, and `plimsoll help estimate` shows them as options.  Every function that
 * only reads settings takes NULL, which means that nothing is set. */
typedef struct plim_settings plim_settings;

/* Empty settings. */
PLIM_API plim_status plim_settings_new(plim_settings **out, plim_err *err);
/* A copy of `from`, including its progress function; from NULL: empty settings. */
PLIM_API plim_status plim_settings_copy(const plim_settings *from, plim_settings **out,
                                        plim_err *err);
/* Releases the settings.  Takes NULL. */
PLIM_API void plim_settings_free(plim_settings *s);

/* Sets one value: ("batch", "32"), ("optimizer", "adamw,impl=fused"), ("vram", "24GiB"),
 * ("clip", "true"); value NULL removes it.  The key may be spelled like the option:
 * "--zero-grad" is "zero_grad".  PLIM_EUSAGE: there is no such setting, or the value is
 * invalid; the setting then keeps its value.  Names of optimizers, cards and the like are
 * checked by the function that uses them. */
PLIM_API plim_status plim_settings_set(plim_settings *s, const char *key, const char *value,
                                       plim_err *err);
/* As plim_settings_set, but appends to a setting that is a list ("input", "dim"). */
PLIM_API plim_status plim_settings_add(plim_settings *s, const char *key, const char *value,
                                       plim_err *err);
/* The value as text in its normal form ("24GiB" becomes "25769803776"), valid until the
 * setting is changed.  NULL: it is not set, or there is no such setting. */
PLIM_API const char *plim_settings_get(const plim_settings *s, const char *key);

/* Writes all settings as one JSON object; null stands for a setting that is not set. */
PLIM_API plim_status plim_settings_json(const plim_settings *s, plim_put put, void *ud,
                                        plim_err *err);
/* Sets the members of such an object; null removes a value.  Given a whole report in JSON,
 * it reads its member "settings", so that a report can be repeated.  `json` has n bytes.
 * PLIM_EFORMAT: it is not JSON.  PLIM_EUSAGE as plim_settings_set.  Members before the
 * invalid one are set. */
PLIM_API plim_status plim_settings_set_json(plim_settings *s, const char *json, size_t n,
                                            plim_err *err);
/* As plim_settings_set_json, from a file.  PLIM_EIO: it cannot be read. */
PLIM_API plim_status plim_settings_load(plim_settings *s, const char *path, plim_err *err);
/* Lists what an answer about `name` with these settings would open, for a program that gives
 * up access to all other files.  `name` is that of a model, as in plim_model_open, or of any
 * file.  `put` receives each path in turn: that of a file, or that of a folder, in which any
 * file may be opened, but not those of its subfolders.  A built-in model has none.  s may be
 * NULL.  Nothing is read but refs in the caches of models from the hub.  PLIM_EIO: `put`
 * failed. */
PLIM_API plim_status plim_model_paths(const char *name, const plim_settings *s, plim_put put,
                                      void *ud, plim_err *err);
/* Fetches what an answer about `name` with these settings needs of the Hugging Face hub: the
 * configuration of the model, and what is said about its weights, kilobytes, into a cache of
 * this user, where plim_model_open finds it.  Does nothing if `name` is a file or a built-in model, or a cache
 * of this machine has it.  `offline`, or HF_HUB_OFFLINE in the environment: asks no hub, and
 * fails if it would have to.  s may be NULL.  Environment: HF_ENDPOINT, HF_TOKEN and the
 * others that docs/formats/hub.md lists.  No other function of this library uses the network.  PLIM_EUSAGE: there is no such model.
 * PLIM_EUNSUPPORTED, PLIM_EFORMAT: it has no configuration, or not one that can be read.
 * PLIM_EIO: the hub cannot be reached, wants to know who asks, or the cache cannot be written;
 * or libcurl, which is loaded for it, is not there. */
PLIM_API plim_status plim_model_fetch(const char *name, const plim_settings *s, bool offline,
                                      plim_err *err);
/* Makes long calls with these settings report to `progress`, with `ud` as its argument;
 * NULL: they do not report.  Does nothing if s is NULL. */
PLIM_API void plim_settings_on_progress(plim_settings *s, plim_progress progress, void *ud);

typedef enum plim_setting_kind {
    PLIM_SETTING_FLAG = 0,     /* "true" or "false" */
    PLIM_SETTING_INT = 1,      /* from least to most */
    PLIM_SETTING_SIZE = 2,     /* bytes: "24GiB" */
    PLIM_SETTING_FRACTION = 3, /* above 0 and up to 1 */
    PLIM_SETTING_WORD = 4,     /* one of words */
    PLIM_SETTING_TEXT = 5,     /* parsed by the function that uses it */
    PLIM_SETTING_LIST = 6      /* as TEXT, items separated by ';' */
} plim_setting_kind;

typedef struct plim_setting_info {
    size_t size; /* set by PLIM_SETTING_INFO_INIT */
    const char *key;
    plim_setting_kind kind;
    const char *arg;      /* placeholder of the value in help: "N"; NULL: it takes no value */
    const char *words;    /* of a WORD: its values, separated by spaces; else NULL */
    int64_t least, most;  /* bounds of an INT; least also of a SIZE */
    const char *preset;   /* the value if it is not set; NULL: it depends, see doc */
    const char *group;    /* "Training step" */
    const char *commands; /* those that take it, separated by spaces: "estimate fit" */
    const char *doc;      /* of a WORD without arg: one part per word, separated by '|' */
    const char *list;     /* the command that lists its values: "gpus"; NULL: none does */
} plim_setting_info;
#define PLIM_SETTING_INFO_INIT                                                                \
    {                                                                                         \
        sizeof(plim_setting_info), 0, PLIM_SETTING_FLAG, 0, 0, 0, 0, 0, 0, 0, 0, 0            \
    }
/* Describes setting i in *out, whose strings are static.  false: there is no setting i,
 * and *out is unchanged. */
PLIM_API bool plim_setting_at(uint32_t i, plim_setting_info *out);

/* ======================================================================== */
/* Estimate                                                                  */
/* ======================================================================== */

/* figures: model_info */
/* clang-format off */
/* The model that an answer is about. */
typedef struct plim_model_info {
    size_t size; /* of this struct */
    const char *name; /* of the file or built-in model */
    const char *format; /* of the file: "pt2", "built-in" */
    const char *producer; /* who wrote the file; "": not known */
    plim_dtype dtype; /* of its first parameter, before the setting "dtype" */
    uint64_t parameters; /* of all parameters (elements) */
    uint64_t trainable_parameters; /* of those that are trained (elements) */
    uint64_t buffers; /* of all buffers (elements) */
    uint64_t parameter_bytes; /* of the parameters in the file, before the setting "dtype" */
    uint64_t buffer_bytes; /* of the buffers in the file */
    uint32_t ops; /* of the graph (nodes) */
    uint32_t unknown_ops; /* those without a rule (nodes) */
    /* of quantized weights, which lie in buffers and are in none of the counts of
     * parameters (elements) */
    uint64_t packed_weights;
    /* the sequence length that was used, of a config.json and of models from the hub
     * (tokens) */
    int64_t seq;
    /* the longest sequence that the model was made for (tokens); 0: no limit, or not known */
    int64_t seq_max;
    /* what the file leaves out or changes, and a PyTorch version that is simulated as
     * another, in sentences; "": nothing */
    const char *note;
    int64_t batch; /* in a batch (samples); 0: the model has no batch dimension */
    double top1; /* published top-1 accuracy on ImageNet-1K (percent); 0: not known */
    /* of a model of the Hugging Face hub that is not built in: its id, its commit, and the
     * cache that has it; "": it is none */
    const char *origin;
    /* what of the model is not counted, in words, so that no verdict on it is "yes"; "": it
     * is whole */
    const char *left_out;
    /* of the libraries whose classes were assumed: "transformers 5.24, peft 0.21"; "": none
     * were */
    const char *releases;
} plim_model_info;
/* clang-format on */
/* end of figures */

/* figures: live */
/* clang-format off */
/* A storage that is live at the peak. */
typedef struct plim_live {
    const char *name; /* "layer1.0.conv1.weight", "features.0" */
    const char *role; /* "out", "grad", "exp_avg"; empty: the named tensor itself */
    /* "parameter", "gradient", "activation": the words of plim_category_name */
    plim_category category;
    plim_dtype dtype; /* of the first tensor in the storage */
    int rank; /* of the first tensor in the storage */
    int64_t dim[8];
    uint64_t bytes; /* requested */
    plim_certainty certainty; /* what determines the size: "exact", "estimated", "unknown" */
} plim_live;
/* clang-format on */
/* end of figures */

/* figures: phase_row */
/* clang-format off */
/* The counters of the allocator at the end of a phase, and their peaks within it. */
typedef struct plim_phase_row {
    /* from 0, as is that of the phase "load"; -1: PLIM_PHASE_LOAD, which precedes step 0 */
    int step;
    /* "load", "inputs", "zero_grad", "forward", "loss", "backward", "optimizer" */
    plim_phase phase;
    uint64_t requested; /* by tensors, at the end of the phase */
    uint64_t allocated; /* in blocks, at the end of the phase */
    uint64_t reserved; /* from CUDA, at the end of the phase */
    uint64_t peak_requested; /* the most within the phase */
    uint64_t peak_allocated; /* the most within the phase */
    uint64_t peak_reserved; /* the most within the phase */
} plim_phase_row;
/* clang-format on */
/* end of figures */

/* figures: bucket */
/* clang-format off */
/* A bucket of the timeline: the highest value of each counter in it. */
typedef struct plim_bucket {
    int step; /* as in a phase; -1: PLIM_PHASE_LOAD, which precedes step 0 */
    plim_phase phase; /* as in a phase */
    uint64_t requested; /* by tensors */
    uint64_t allocated; /* in blocks */
    uint64_t reserved; /* from CUDA */
} plim_bucket;
/* clang-format on */
/* end of figures */

typedef enum plim_fits {
    PLIM_FITS_INCOMPLETE = -3, /* what is counted fits, or may, but a part of the model is not
                                  counted: see left_out of the model */
    PLIM_FITS_NO_CARD = -2,    /* no card was chosen */
    PLIM_FITS_MAYBE = -1,      /* at the lower bounds only, or the context size is unknown */
    PLIM_FITS_NO = 0,          /* not even with context and workspaces at their lower bounds */
    PLIM_FITS_YES = 1          /* with context and workspaces at their upper bounds */
} plim_fits;

/* figures: change */
/* clang-format off */
/* A change of settings, and its effect, as an estimate with that change gives it. */
typedef struct plim_change {
    const char *settings; /* as options: "--checkpoint blocks --batch 16" */
    uint64_t saved_allocated; /* by which peak_allocated is lower */
    uint64_t saved_reserved; /* by which peak_reserved is lower */
    plim_fits fits; /* as in an estimate; PLIM_FITS_NO_CARD: no card was chosen */
} plim_change;
/* clang-format on */
/* end of figures */

/* figures: step_time */
/* clang-format off */
/* How long a step takes on the card, within a range; an estimate: docs/time.md. */
typedef struct plim_step_time {
    double low_ms; /* the lower end of the range; 0 if there is none: 'unknown' says why */
    double usual_ms; /* the usual time; 0 if there is none: 'unknown' says why */
    double high_ms; /* the upper end of the range; 0 if there is none: 'unknown' says why */
    /* at the usual time (samples/s); 0: not known, for example if the batch is unknown */
    double samples_per_s;
    /* at the usual time: samples_per_s times the sequence length (tokens/s); 0: not known,
     * for example if samples are not sequences */
    double tokens_per_s;
    /* of the usual time, of ops that computation limits; this and the next two sum to 1
     * (share); 0 if there is none: 'unknown' says why */
    double computation;
    /* of ops that memory traffic limits (share); 0 if there is none: 'unknown' says why */
    double memory;
    /* of ops that the launch of kernels limits (share); 0 if there is none: 'unknown' says
     * why */
    double launch;
    const char *unknown; /* why there is no figure; NULL: there is a figure */
} plim_step_time;
/* clang-format on */
/* end of figures */

/* figures: context_part rank estimate */
/* clang-format off */
/* A part of what a process takes of a card beside PyTorch's allocator. */
typedef struct plim_context_part {
    const char *name; /* "CUDA context", "cuBLAS" */
    uint64_t low; /* the lower bound */
    uint64_t usual; /* the usual size */
    uint64_t high; /* the upper bound */
    /* "measured" on such a card and version; "fitted": what other parts leave of a sum that
     * was; "assumed" */
    const char *certainty;
    const char *source; /* where that was, in words */
} plim_context_part;

/* Ranks of a job of several cards that hold the same, and what each holds. */
typedef struct plim_rank {
    const char *ranks; /* "0-2,5" */
    uint64_t count; /* how many they are (ranks) */
    uint64_t peak_requested; /* by tensors, at its highest */
    uint64_t peak_allocated; /* in blocks, at its highest */
    uint64_t peak_reserved; /* from CUDA, at its highest */
    plim_fits fits; /* as in an estimate; PLIM_FITS_NO_CARD: no card was chosen */
} plim_rank;

/* The memory of a training step or an inference. */
typedef struct plim_estimate {
    size_t size; /* of this struct */

    /* -- memory: by category, the bytes live at the peak of allocated bytes; then each
     * peak, and what it takes on the card -- */
    uint64_t peak_live_requested; /* what is live at the peak of allocated bytes */
    /* what autograd saved: activations that are live when the first backward pass begins; 0
     * for inference */
    uint64_t saved_activations;
    uint64_t peak_requested; /* by tensors; the three peaks are not at the same moment */
    uint64_t peak_allocated; /* in blocks, as torch.cuda.max_memory_allocated() */
    uint64_t peak_reserved; /* from CUDA */
    /* peak_reserved with what is estimated, mostly workspaces, at its lower bounds */
    uint64_t reserved_low;
    uint64_t reserved_high; /* peak_reserved with what is estimated at its upper bounds */
    /* of the CUDA context, with code and handles of libraries: the lower bound; only if
     * context_known */
    uint64_t context_low;
    uint64_t context; /* of the CUDA context: the usual size; only if context_known */
    uint64_t context_high; /* of the CUDA context: the upper bound; only if context_known */
    /* what the three above are sums of; a card of which only the sum is known has one part;
     * none: not known */
    const plim_context_part *const *context_parts;
    uint32_t n_context_parts;
    uint64_t device_low; /* reserved_low + context_low; only if context_known */
    uint64_t device; /* peak_reserved + context; only if context_known */
    /* reserved_high + context_high, with search; only if context_known */
    uint64_t device_high;
    /* what the setting "margin" is of reserved_high: for what the simulated steps do not
     * show, in no other figure */
    uint64_t margin;
    bool margin_kept; /* the run fits surely with that much less, too */
    /* what cuDNN's search of plans adds to device_high: with the setting "cudnn_benchmark"
     * it may take all that is free for a moment, but never fails for that, so that needed
     * is without it; 0: no search; 0: there is such a search, and no card was chosen */
    uint64_t search;
    uint64_t ema; /* the part of optimizer_state that is the average of the model */
    /* the smallest capacity of a card on which the run does not fail, context included: the
     * lower bound; 0: no card was chosen; only if context_known */
    uint64_t needed_low;
    /* the upper bound of that capacity; 0: no card was chosen; only if context_known */
    uint64_t needed_high;
    /* what the card, or a memory fraction of it, has beyond needed_high; 0: no card was
     * chosen, or the run may not fit; only if context_known */
    uint64_t headroom;
    const uint64_t *category; /* the bytes of peak_live_requested, indexed by plim_category */
    uint32_t n_categories; /* PLIM_CAT_COUNT of the library */
    bool context_known; /* the size of the CUDA context is known */
    bool searched; /* there is a search of cuDNN's */
    /* the allocator is a model, whose range is that of what is reserved */
    bool reserved_modelled;
    /* streams use what was made on others: the range is from at once to where the host
     * waits for them */
    bool reserved_waits;

    /* -- peak: what is live at the peak of allocated bytes -- */
    int peak_step; /* as in a phase; -1: PLIM_PHASE_LOAD, which precedes step 0 */
    plim_phase peak_phase; /* as in a phase */
    const char *peak_op; /* the layer that runs */
    const plim_live *const *live; /* all storages, the largest first */
    uint32_t n_live;

    /* -- certainty: the bytes live at the peak by what determines them; they sum to
     * peak_live_requested -- */
    const char *const *unknown_ops; /* names of the ops without a rule, each once */
    uint32_t n_unknown_ops;
    /* the bytes of peak_live_requested, indexed by plim_certainty */
    const uint64_t *certainty;
    uint32_t n_certainties; /* PLIM_CERTAINTY_COUNT of the library */

    /* -- flops: the computation of a step -- */
    uint64_t flops_forward; /* of the forward pass (FLOPs) */
    uint64_t flops_backward; /* of the backward pass (FLOPs) */
    uint64_t forward_macs; /* multiply-accumulates of the forward pass (MACs) */

    /* -- fit: whether it fits on the card -- */
    const char *gpu; /* the card's full name; NULL: none was chosen */
    uint64_t gpu_bytes; /* memory of the card; 0: none was chosen */
    /* "yes"; "no"; "maybe": the capacity is between needed_low and needed_high, or the size
     * of the CUDA context is not known; "incomplete": what is counted fits, or may, but a
     * part of the model is not counted; PLIM_FITS_NO_CARD: no card was chosen */
    plim_fits fits;
    bool oom; /* memory runs out even at the lower bounds */
    const char *oom_text; /* the error message that PyTorch prints; only if oom */
    /* gpu_bytes is what a driver reports or the caller gave, else estimated from the
     * marketed size */
    bool gpu_exact;

    /* -- budget: the setting "budget", and whether it is kept -- */
    uint64_t budget_bytes; /* the setting; 0: not set */
    bool over_budget; /* reserved_high exceeds budget_bytes */

    /* -- timeline: memory over time, in buckets with equal numbers of events -- */
    uint32_t peak_bucket; /* of the bucket with the peak (index) */
    const plim_bucket *const *buckets; /* up to 240, over all steps */
    uint32_t n_buckets;

    /* -- the rest, in no group -- */
    const plim_model_info *model; /* the model */
    /* as used, with the defaults filled in; the same answer follows from them again */
    const plim_settings *settings;
    /* in order: "load", then those of each step, as far as they run */
    const plim_phase_row *const *phases;
    uint32_t n_phases;
    plim_step_time time; /* how long a step takes on the card */
    const char *assumed; /* the training loop that was assumed, in words; NULL: an inference */
    const char *advice; /* what dominates the peak, and which changes would lower it */
    /* simulated changes that lower the peak by 1 % or more: those that fit first, then
     * those that save most */
    const plim_change *const *changes;
    uint32_t n_changes;
    /* with the setting rank=all: all ranks, the worst first, which is what the rest is
     * about */
    const plim_rank *const *ranks;
    uint32_t n_ranks;
} plim_estimate;
/* clang-format on */
/* end of figures */

/* Predicts the memory of a run.  PLIM_EFORMAT, PLIM_ESHAPE, PLIM_ERANGE,
 * PLIM_EUNSUPPORTED: the message names the file and the offset or layer.  PLIM_EUSAGE: it
 * names the setting. */
PLIM_API plim_status plim_estimate_run(const plim_model *m, const plim_settings *s,
                                       plim_estimate **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_estimate_free(plim_estimate *e);

/* ======================================================================== */
/* Time                                                                      */
/* ======================================================================== */

/* figures: time_row times */
/* clang-format off */
/* What one op of a step does, and how long that takes on the card. */
typedef struct plim_time_row {
    const char *layer; /* "layer1.0.conv1" */
    const char *op; /* "aten.conv2d.default" */
    plim_phase phase; /* as in a phase */
    const char *work; /* the class of its kernels: "conv", "pointwise" */
    const char *dtype; /* of what it multiplies; empty: nothing */
    uint64_t macs; /* multiply-accumulates (MACs) */
    uint64_t bytes; /* moved to and from the memory of the card */
    uint32_t kernels; /* started, about */
    double ms; /* how long it takes; 0: not known */
    /* "computation", "memory traffic", "kernel launches"; empty: not known */
    const char *limit;
} plim_time_row;

/* What takes the time of a step, the longest first. */
typedef struct plim_times {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    const char *gpu; /* the card's full name; NULL: none was chosen */
    plim_step_time time; /* of the whole step */
    const plim_time_row *const *ops; /* of the last step: what takes longest first */
    uint32_t n_ops;
} plim_times;
/* clang-format on */
/* end of figures */

/* Lists what takes the time of a step.  Errors as plim_estimate_run. */
PLIM_API plim_status plim_times_run(const plim_model *m, const plim_settings *s,
                                    plim_times **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_times_free(plim_times *t);

/* ======================================================================== */
/* Contents of a file                                                        */
/* ======================================================================== */

typedef enum plim_item_kind {
    PLIM_ITEM_PARAMETER = 0, /* also a weight whose kind the file does not give */
    PLIM_ITEM_BUFFER = 1,
    PLIM_ITEM_CONSTANT = 2,
    PLIM_ITEM_OPTIMIZER_STATE = 3,
    PLIM_ITEM_OTHER = 4, /* random states and the like */
    PLIM_ITEM_KINDS = 5
} plim_item_kind;
/* A static string such as "parameters"; "unknown" for any other number. */
PLIM_API const char *plim_item_kind_name(plim_item_kind k);

/* figures: info_tensor */
/* clang-format off */
/* A tensor of the file. */
typedef struct plim_info_tensor {
    const char *name; /* in the file */
    /* "parameters", which a weight is, too, whose kind the file does not tell */
    plim_item_kind kind;
    const char *type; /* "fp32", "Q4_K" */
    int rank; /* in the file */
    int64_t dim[8];
    uint64_t elements; /* of the tensor */
    uint64_t bytes; /* on the device, if it is loaded unchanged */
    /* the tensor whose storage it shares; it is in no sum then; NULL: its own */
    const char *same_as;
} plim_info_tensor;
/* clang-format on */
/* end of figures */

/* figures: info_sum */
/* clang-format off */
/* Sums over the tensors of a kind, a type or a module that have a storage of their own. */
typedef struct plim_info_sum {
    uint64_t tensors; /* with a storage of their own */
    uint64_t elements; /* of them */
    uint64_t bytes; /* of them */
    const char *name; /* of the kind, type or module; "": the whole model */
    int depth; /* of a module; 0: the whole model (levels) */
} plim_info_sum;
/* clang-format on */
/* end of figures */

typedef struct plim_info_pair {
    const char *key, *value;
} plim_info_pair;

/* figures: info_dim info */
/* clang-format off */
/* A symbolic size of the graph. */
typedef struct plim_info_dim {
    const char *name; /* as --dim takes it */
    int64_t value; /* the size (as it is used); 0: it must be given */
} plim_info_dim;

/* The contents of a model file. */
typedef struct plim_info {
    size_t size; /* of this struct */
    const char *name; /* of the file or built-in model */
    const char *reader; /* the name of the format; NULL: a built-in model */
    const char *format; /* with its version */
    const char *producer; /* who wrote the file; NULL: the file does not say */
    uint64_t file_bytes; /* of the file that was opened; 0: a built-in model */
    bool graph; /* it has a graph; else weights only, which cannot be estimated */
    uint32_t ops; /* of the graph (nodes) */
    const char *const *unknown_ops; /* names of the ops without a rule, each once */
    uint32_t n_unknown_ops;
    const plim_info_pair *const *facts; /* metadata of the file */
    uint32_t n_facts;
    /* in C one for each plim_item_kind; in data those that the file has, and parameters */
    const plim_info_sum *const *holds;
    uint32_t n_holds;
    const plim_info_sum *const *types; /* the largest first */
    uint32_t n_types;
    const plim_info_sum *const *modules; /* parents before children */
    uint32_t n_modules;
    const plim_info_tensor *const *inputs; /* of the graph */
    uint32_t n_inputs;
    const plim_info_dim *const *open_sizes; /* of the graph */
    uint32_t n_open_sizes;
    const char *const *notes; /* sentences about what is unknown or inconsistent */
    uint32_t n_notes;
    /* in the file's order; with --tensors --top N the N largest */
    const plim_info_tensor *const *tensors;
    uint32_t n_tensors;
} plim_info;
/* clang-format on */
/* end of figures */

/* Lists the contents of a model file.  Of the settings, only those that set sizes are used
 * ("batch", "seq", "input", "dim").  Errors as plim_estimate_run, except that a file
 * without a graph is not an error. */
PLIM_API plim_status plim_info_run(const plim_model *m, const plim_settings *s,
                                   plim_info **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_info_free(plim_info *i);

/* ======================================================================== */
/* Layers                                                                    */
/* ======================================================================== */

/* figures: layer */
/* clang-format off */
/* A layer with the shape, size and cost of its forward pass, submodules included. */
typedef struct plim_layer {
    const char *name; /* "layer1.0.conv1"; empty: the model */
    const char *type; /* "Conv2d" */
    int depth; /* 0: the model (levels) */
    bool leaf; /* it called no submodule */
    bool inplace; /* it overwrites its input with its output */
    plim_dtype dtype; /* of the output */
    int rank; /* of the output; NULL: it has no output */
    int64_t dim[8];
    uint64_t params; /* of its parameters (elements) */
    uint64_t parameter_bytes; /* of its parameters */
    uint64_t weights; /* of its parameters without biases (elements) */
    uint64_t values; /* of the output (elements) */
    uint64_t bytes; /* of the output */
    uint64_t macs; /* multiply-accumulates of the forward pass (MACs) */
    uint64_t flops; /* of the forward pass (FLOPs) */
    uint64_t read; /* transferred in the forward pass */
    uint64_t written; /* transferred in the forward pass */
} plim_layer;
/* clang-format on */
/* end of figures */

/* The effect of inplace=True on the tensors that autograd saves for an activation. */
typedef enum plim_inplace_gain {
    PLIM_GAIN_MOMENT = 0, /* backward keeps as much; one tensor fewer while the op runs */
    PLIM_GAIN_NONE = 1,   /* none: a copy of the input is saved instead of the input */
    PLIM_GAIN_LESS = 2,   /* the result is saved instead of the input */
    PLIM_GAIN_COUNT = 3
} plim_inplace_gain;
/* figures: activation layers */
/* clang-format off */
/* All activations of one kind that torch.nn offers with inplace=True. */
typedef struct plim_activation {
    const char *op; /* "silu" */
    /* what training saves then: "less", the result instead of the input; "moment", the
     * same, with one tensor less while it runs; "none", a copy of the input instead of the
     * input */
    plim_inplace_gain gain;
    uint32_t count; /* of this kind (calls) */
    uint32_t inplace; /* that are in place already (calls) */
    uint64_t bytes; /* results of the others: what "less" saves at most */
} plim_activation;

/* Each layer with the shape, size and cost of its forward pass. */
typedef struct plim_layers {
    size_t size; /* of this struct */

    /* -- total: sums of the whole model -- */
    uint64_t values; /* of the outputs of the leaves that are not in place (elements) */
    uint64_t bytes; /* of the outputs of the leaves that are not in place */
    uint64_t macs; /* multiply-accumulates of the forward pass (MACs) */
    uint64_t flops; /* of the forward pass (FLOPs) */
    uint64_t read; /* transferred in the forward pass */
    uint64_t written; /* transferred in the forward pass */

    /* -- the rest, in no group -- */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    /* in call order, parents before children; in data as --depth, --types and --sort say */
    const plim_layer *const *layers;
    uint32_t n_layers;
    const plim_activation *const *activations; /* those with an in-place form, in call order */
    uint32_t n_activations;
} plim_layers;
/* clang-format on */
/* end of figures */

/* Lists each layer with the shape, size and cost of its forward pass.  Errors as
 * plim_estimate_run. */
PLIM_API plim_status plim_layers_run(const plim_model *m, const plim_settings *s,
                                     plim_layers **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_layers_free(plim_layers *l);

/* ======================================================================== */
/* Explain                                                                   */
/* ======================================================================== */

/* figures: batch_row batches */
/* clang-format off */
/* The simulated peaks of one batch. */
typedef struct plim_batch_row {
    int64_t batch; /* in the batch (samples) */
    uint64_t peak_requested; /* simulated */
    uint64_t line; /* what the line gives for peak_requested: fixed + batch * per_sample */
    uint64_t peak_allocated; /* simulated */
    uint64_t peak_reserved; /* simulated */
    /* an estimate, on the card that the settings name (samples/s); 0: not known */
    double samples_per_s;
} plim_batch_row;

/* How memory grows with the batch: the line through the two largest batches. */
typedef struct plim_batches {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    uint64_t fixed; /* of peak_requested, whatever the batch */
    uint64_t per_sample; /* of peak_requested, for each sample */
    /* batch 1, 2, 4 ... up to the setting "batch", at least 64 */
    const plim_batch_row *const *batches;
    uint32_t n_batches;
} plim_batches;
/* clang-format on */
/* end of figures */

/* Shows how memory grows with the batch.  Errors as plim_estimate_run; also
 * PLIM_EUNSUPPORTED: the file was exported with a fixed batch size.  Reports progress. */
PLIM_API plim_status plim_batches_run(const plim_model *m, const plim_settings *s,
                                      plim_batches **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_batches_free(plim_batches *b);

/* figures: segment_row segments */
/* clang-format off */
/* The peaks of a step with checkpoint_sequential in this number of segments. */
typedef struct plim_segment_row {
    uint32_t segments; /* 1: no checkpoint */
    uint32_t calls; /* of modules in each segment but the last */
    uint64_t peak_requested; /* simulated */
    uint64_t peak_allocated; /* simulated */
    uint64_t peak_reserved; /* simulated */
} plim_segment_row;

/* The peak of a step for each number of checkpointed segments. */
typedef struct plim_segments {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    uint32_t calls; /* of modules by the Sequential that is divided */
    uint32_t best; /* those of the row with the lowest peak_requested (segments) */
    /* 1 segment first; of the numbers of segments with equal calls, only the largest */
    const plim_segment_row *const *segments;
    uint32_t n_segments;
} plim_segments;
/* clang-format on */
/* end of figures */

/* Shows the peak of a step for each number of checkpointed segments.  Errors as
 * plim_estimate_run; also PLIM_EUSAGE: the model is not a Sequential.  Reports progress. */
PLIM_API plim_status plim_segments_run(const plim_model *m, const plim_settings *s,
                                       plim_segments **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_segments_free(plim_segments *s);

/* ======================================================================== */
/* Fit                                                                       */
/* ======================================================================== */

/* figures: fit_row fit */
/* clang-format off */
/* The largest batch for a card, and what it takes. */
typedef struct plim_fit_row {
    const char *gpu; /* the card's full name */
    uint64_t gpu_bytes; /* memory of the card */
    bool gpu_exact; /* a driver reported it; else it is estimated from the marketed size */
    /* the largest batch that fits with context and workspaces at their upper bounds; 0: not
     * even 1 fits (samples) */
    int64_t batch;
    /* the largest batch that leaves the setting "margin" free besides, for what the
     * simulated steps do not show; 0: none (samples); 0: the sequence length was searched
     * for, or no card and no margin was named */
    int64_t batch_margin;
    bool limited; /* the search or the model ended at this batch, not the card */
    uint64_t reserved; /* at that batch, or at batch 1 if none fits */
    /* reserved and the CUDA context at that batch, at the lower bounds; only if
     * context_known */
    uint64_t device_low;
    uint64_t device_high; /* the same at the upper bounds; only if context_known */
    uint64_t reserved_low; /* as in an estimate, at that batch */
    uint64_t reserved_high; /* the same at the upper bounds */
    uint64_t needed_low; /* as in an estimate, at that batch; only if context_known */
    uint64_t needed_high; /* the same at the upper bounds; only if context_known */
    /* the largest batch that fits with context and workspaces of the usual size: it may
     * fail; 0: none (samples); 0: the sequence length was searched for */
    int64_t batch_usual;
    /* what the card, or a memory fraction of it, has beyond needed_high; 0: not known, or
     * nothing fits */
    uint64_t headroom;
    /* the longest sequence that fits, at the batch of the settings; 0: not even one token
     * fits (tokens); 0: it was not searched for */
    int64_t seq;
    int64_t seq_margin; /* as batch_margin (tokens); 0: it was not searched for */
    bool margin_known; /* what leaves the margin was searched for */
    int64_t seq_usual; /* as batch_usual (tokens); 0: it was not searched for */
    /* at that batch, an estimate (samples/s); 0: not known, or no batch fits */
    double samples_per_s;
    int price_usd; /* of the card at its launch (US dollars); 0: not known */
    bool context_known; /* the size of the CUDA context is known */
    bool fits; /* at least 1 of what was searched for fits */
    plim_fits verdict; /* on that batch, as in an estimate; "no": nothing fits */
} plim_fit_row;

/* The largest batch, or the longest sequence, for each card. */
typedef struct plim_fit {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    /* one for each card, in the order of the setting "gpu", or of --sort */
    const plim_fit_row *const *cards;
    uint32_t n_cards;
} plim_fit;
/* clang-format on */
/* end of figures */

/* Finds the largest batch for each card or, with the setting "find" at "seq", the longest
 * sequence.  The setting that is searched for is not used.  The setting "gpu" is a list here
 * ("rtx4090,a100", "all"); without "gpu" and "vram" it is all cards.  The search is a
 * bisection over the full simulation: for the batch B of a row, B fits and B + 1 does not.
 * Errors as plim_estimate_run; also PLIM_EUNSUPPORTED: the file was exported with a fixed
 * batch size.  Reports progress, card by card. */
PLIM_API plim_status plim_fit_run(const plim_model *m, const plim_settings *s, plim_fit **out,
                                  plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_fit_free(plim_fit *f);

/* figures: card_row cards */
/* clang-format off */
/* A run on a card; the figures are those of an estimate with this card. */
typedef struct plim_card_row {
    const char *gpu; /* the card's full name */
    uint64_t gpu_bytes; /* memory of the card */
    bool gpu_exact; /* a driver reported it; else it is estimated from the marketed size */
    /* "yes"; "no"; "maybe": at the lower bounds only, or the size of the CUDA context is
     * not known; "incomplete": a part of the model is not counted */
    plim_fits fits;
    /* reserved and the CUDA context, at the lower bounds; only if context_known */
    uint64_t device_low;
    uint64_t device; /* the same at the usual sizes; only if context_known */
    uint64_t device_high; /* the same at the upper bounds; only if context_known */
    /* the smallest capacity on which the run does not fail, at the lower bounds; only if
     * context_known */
    uint64_t needed_low;
    uint64_t needed_high; /* the same at the upper bounds; only if context_known */
    /* what the card, or a memory fraction of it, has beyond needed_high; 0: not known; only
     * if context_known */
    uint64_t headroom;
    bool margin_kept; /* as in an estimate */
    int price_usd; /* of the card at its launch (US dollars); 0: not known */
    bool context_known; /* the size of the CUDA context is known */
    plim_step_time time; /* how long a step takes */
} plim_card_row;

/* The same run on each card: does it fit, and how fast is it. */
typedef struct plim_cards {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    /* one for each card, in the order of the setting "gpu"; in data in that of --sort, the
     * fastest first */
    const plim_card_row *const *cards;
    uint32_t n_cards;
} plim_cards;
/* clang-format on */
/* end of figures */

/* Judges the same run on each card: does it fit, and how fast is it.  The setting "gpu" is a
 * list, as in plim_fit_run.  Errors as plim_estimate_run.  Reports progress, card by card. */
PLIM_API plim_status plim_cards_run(const plim_model *m, const plim_settings *s,
                                    plim_cards **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_cards_free(plim_cards *c);

/* ======================================================================== */
/* Serving                                                                   */
/* ======================================================================== */

typedef enum plim_serve_place {
    PLIM_ON_CARD = 0,
    PLIM_ON_HOST = 1,
    PLIM_PLACE_COUNT = 2
} plim_serve_place;
/* A static string such as "card"; "?" for any other number. */
PLIM_API const char *plim_serve_place_name(plim_serve_place p);

/* figures: serve_row */
/* clang-format off */
/* A part of what an inference engine holds. */
typedef struct plim_serve_row {
    const char *part; /* "weights", "KV cache" */
    plim_serve_place place; /* "card" or "host" */
    /* the lower bound; the three are equal where they follow from the engine's code */
    uint64_t low;
    uint64_t usual; /* the usual size */
    uint64_t high; /* the upper bound */
    plim_certainty certainty; /* what determines the size: "exact", "estimated", "unknown" */
    const char *doc; /* what it consists of */
    bool rest; /* it takes what the other parts leave: it is largest where they are smallest */
} plim_serve_row;
/* clang-format on */
/* end of figures */

/* figures: serve_most serve */
/* clang-format off */
/* The most that a card holds. */
typedef struct plim_serve_most {
    /* with everything at its upper bound; 0: none, or a part of the model is not counted
     * (tokens, or requests) */
    uint64_t sure;
    uint64_t usual; /* with everything at its usual size; 0: none (tokens, or requests) */
    bool limited; /* the model or the search allows no more than usual, not the card */
} plim_serve_most;

/* What an inference engine holds of a model, and how much context and how many requests
 * that leaves room for. */
typedef struct plim_serve {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    const char *engine; /* "vllm" */
    const char *gpu; /* the card's full name; NULL: none was chosen */
    uint64_t gpu_bytes; /* memory of the card; 0: no card was chosen */
    const plim_serve_row *const *parts; /* what the engine holds */
    uint32_t n_parts;
    uint64_t device_low; /* sum of the parts on the card, at the lower bounds */
    uint64_t device; /* sum of the parts on the card, at the usual sizes */
    uint64_t device_high; /* sum of the parts on the card, at the upper bounds */
    uint64_t host; /* sum of the parts on the host, at the usual sizes */
    uint64_t context; /* of a request, as the settings say or by default (tokens) */
    uint64_t concurrency; /* at the same time, as the settings say or by default (requests) */
    /* of keys and values for each token, in the layers that keep all of them; 0: no layer
     * keeps all tokens */
    uint64_t token_bytes;
    /* of all that a request of that context keeps; 0 in data: nothing; 0: it is not known,
     * as the note of the model says */
    uint64_t request_bytes;
    plim_fits fits; /* as in an estimate; PLIM_FITS_NO_CARD: no card was chosen */
    /* the longest context for that many requests; NULL: no card was chosen */
    plim_serve_most longest_context;
    /* the most requests of that context; NULL: no card was chosen */
    plim_serve_most most_requests;
    const char *const *says; /* lines that the engine prints when it starts */
    uint32_t n_says;
    /* a driver reported gpu_bytes; else it is estimated from the marketed size */
    bool gpu_exact;
    /* the CUDA context of the card is among the parts: its size is known */
    bool context_known;
} plim_serve;
/* clang-format on */
/* end of figures */

/* Predicts what an inference engine holds of a model, and how much context and how many requests
 * the card leaves room for.  Errors as plim_estimate_run. */
PLIM_API plim_status plim_serve_run(const plim_model *m, const plim_settings *s,
                                    plim_serve **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_serve_free(plim_serve *s);

/* figures: serve_card serve_fit */
/* clang-format off */
/* What a card can serve. */
typedef struct plim_serve_card {
    const char *gpu; /* the card's full name */
    uint64_t gpu_bytes; /* memory of the card */
    bool gpu_exact; /* a driver reported it; else it is estimated from the marketed size */
    /* the format that the settings name; else the largest that fits at the upper bounds,
     * else one that may fit, else the smallest; "own": that of the model */
    const char *weights;
    plim_fits fits; /* as in an estimate */
    uint64_t device_low; /* sum of the parts on the card, at the lower bounds */
    uint64_t device; /* sum of the parts on the card, at the usual sizes */
    uint64_t device_high; /* sum of the parts on the card, at the upper bounds */
    plim_serve_most longest; /* context for that many requests */
    plim_serve_most requests; /* requests of that context */
    bool context_known; /* the size of the CUDA context is known */
} plim_serve_card;

/* What each card serves of a model. */
typedef struct plim_serve_fit {
    size_t size; /* of this struct */
    const plim_model_info *model; /* the model */
    const plim_settings *settings; /* as used, with the defaults filled in */
    const char *engine; /* "vllm" */
    uint64_t context; /* of a request (tokens) */
    uint64_t concurrency; /* at the same time (requests) */
    /* one for each card, in the order of the setting "gpu" */
    const plim_serve_card *const *cards;
    uint32_t n_cards;
} plim_serve_fit;
/* clang-format on */
/* end of figures */

/* Judges the same requests on each card, with the weights in the largest format that fits, where
 * the setting "weights" names none.  The setting "gpu" is a list, as in plim_fit_run.  Errors as
 * plim_estimate_run.  Reports progress, card by card. */
PLIM_API plim_status plim_serve_fit_run(const plim_model *m, const plim_settings *s,
                                        plim_serve_fit **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_serve_fit_free(plim_serve_fit *f);

/* ======================================================================== */
/* Tape and replay                                                           */
/* ======================================================================== */

/* Writes the allocations and frees of a run in order, as text or, with `json`, as one JSON
 * object per line.  Errors as plim_estimate_run; also PLIM_EIO: `put` failed. */
PLIM_API plim_status plim_tape_print(const plim_model *m, const plim_settings *s, bool json,
                                     plim_put put, void *ud, plim_err *err);

/* figures: stat free_blocks replay_mark */
/* clang-format off */
/* A statistic of an allocator, as torch.cuda.memory_stats has it. */
typedef struct plim_stat {
    uint64_t current; /* at the end (bytes or blocks) */
    uint64_t peak; /* the most at any time (bytes or blocks) */
    uint64_t allocated; /* the sum of all that was added (bytes or blocks) */
    uint64_t freed; /* the sum of all that was taken away (bytes or blocks) */
} plim_stat;

/* The free blocks of a pool of the allocator. */
typedef struct plim_free_blocks {
    uint64_t bytes; /* in all of them */
    uint64_t largest; /* in the largest */
    uint32_t blocks; /* how many they are */
} plim_free_blocks;

/* A mark of the tape, the counters of the allocator at the end of what follows it, and
 * their peaks within that. */
typedef struct plim_replay_mark {
    int step; /* -1: the phase "load", which precedes step 0 */
    plim_phase phase; /* as in a phase */
    const char *op; /* the layer that runs; empty: the tape does not say */
    uint64_t requested; /* by tensors */
    uint64_t allocated; /* in blocks */
    uint64_t reserved; /* from CUDA */
    uint64_t peak_requested; /* the most until the next mark */
    uint64_t peak_allocated; /* the most until the next mark */
    uint64_t peak_reserved; /* the most until the next mark */
} plim_replay_mark;
/* clang-format on */
/* end of figures */

/* figures: free_at_failure replay_card */
/* clang-format off */
/* What was free when the first allocation failed. */
typedef struct plim_free_at_failure {
    size_t size; /* of this struct */
    uint64_t requested; /* by that allocation */
    uint64_t device; /* free on the card, outside segments */
    plim_free_blocks large; /* in segments of the large pool */
    plim_free_blocks small; /* in segments of the small pool */
    /* with expandable_segments:True that allocation does not fail; only if expandable_known */
    bool expandable_serves;
    bool expandable_known; /* it was tried: expandable segments exist, and were not on */
    bool expandable_oom; /* with it, that allocation or a later one fails */
} plim_free_at_failure;

/* The card that limits the allocator, which gets bytes less context. */
typedef struct plim_replay_card {
    size_t size; /* of this struct */
    const char *name; /* its full name */
    uint64_t bytes; /* its memory */
    uint64_t context; /* upper bound of the CUDA context; 0: not known */
} plim_replay_card;
/* clang-format on */
/* end of figures */

/* figures: live_stack held_segment free_recorded failed_request */
/* clang-format off */
/* Blocks with the same stack that were in use at the peak of allocated memory. */
typedef struct plim_live_stack {
    size_t size; /* of this struct */
    /* the innermost frame of the user's own code, "train.py:21 forward"; NULL: not recorded */
    const char *where;
    uint32_t blocks; /* how many they are; 0: not recorded */
    uint64_t bytes; /* as requested, or of the blocks if that is not recorded */
    const char *const *frames; /* the whole stack, innermost first */
    uint32_t n_frames;
} plim_live_stack;

/* A segment of the recorded allocator at the end. */
typedef struct plim_held_segment {
    size_t size; /* of this struct */
    const char *pool; /* "small" or "large" */
    uint32_t stream; /* on which it was allocated (number) */
    bool expandable; /* it is one of expandable_segments:True */
    uint64_t bytes; /* reserved: what is mapped of it, if it is expandable */
    uint64_t allocated; /* in blocks that are in use or wait to be freed */
    /* the part of allocated that nobody requested; only if rounding_known */
    uint64_t rounding;
    uint64_t free; /* in its free blocks */
    uint32_t pieces; /* that are free (blocks) */
    uint64_t largest; /* in its largest free block */
    uint32_t blocks; /* that are in use */
    bool rounding_known; /* the requested sizes are recorded */
} plim_held_segment;

/* What the recorded allocator had free at the end, in segments. */
typedef struct plim_free_recorded {
    plim_free_blocks large; /* of the large pool */
    plim_free_blocks small; /* of the small pool */
} plim_free_recorded;

/* The first request of the recording that failed. */
typedef struct plim_failed_request {
    size_t size; /* of this struct */
    uint64_t action; /* of the action, or of the event of a trace (index) */
    const char *where; /* as in live_at_peak; NULL: not recorded */
    uint64_t requested; /* rounded by the allocator */
    uint64_t device; /* free on the card, outside segments; only if device_known */
    uint64_t reserved; /* by the allocator, as far as it is recorded */
    const plim_free_blocks *large; /* what was free in the large pool */
    const plim_free_blocks *small; /* what was free in the small pool */
    bool device_known; /* the recording says it */
    bool expandable_known; /* it was tried with expandable_segments:True */
    bool expandable_serves; /* which serves it */
} plim_failed_request;
/* clang-format on */
/* end of figures */

/* figures: trace_counters traced recorded replay */
/* clang-format off */
/* The counters of PyTorch's own allocator. */
typedef struct plim_trace_counters {
    uint64_t peak_allocated; /* at its highest */
    uint64_t peak_reserved; /* at its highest */
    uint64_t end_allocated; /* at the end */
    uint64_t end_reserved; /* at the end */
    uint64_t peak_unused; /* reserved, but in no block, when allocated was highest first */
} plim_trace_counters;

/* What only a trace of torch.profiler says. */
typedef struct plim_traced {
    size_t size; /* of this struct */
    const char *process; /* the one that is read, as its id is written */
    uint32_t processes; /* how many the trace has */
    bool host; /* the memory is the CPU's: no GPU's is recorded */
    bool requested_known; /* what was requested is known; else all sizes are those of blocks */
    uint64_t ends_at; /* where the file breaks off (byte); 0: it is whole */
    const plim_trace_counters *counters; /* PyTorch's own; NULL: they are not recorded */
    uint64_t rest_bytes; /* of before_bytes: in blocks that the trace does not name */
} plim_traced;

/* What a file says that is no tape, and whether the simulated allocator ends as the
 * recorded one did. */
typedef struct plim_recorded {
    size_t size; /* of this struct */
    const char *format; /* "snapshot", "trace" */
    /* of the allocator, events of a trace; 0: the file has only the state at the end */
    uint64_t actions;
    uint32_t device; /* the GPU that is read (index) */
    uint32_t devices; /* how many the file has (GPUs) */
    const char *alloc_conf; /* settings of the recorded allocator; empty: none, or not known */
    /* the version whose allocator the recorded one is compared with: the setting, else the
     * newest that agrees, else the newest */
    const char *torch;
    bool as_recorded; /* no setting asks for anything else than what was recorded */
    bool from_start; /* nothing was reserved before the first action */
    /* the counters are those of the recorded allocator, with what it had before; else of
     * one that began empty */
    bool counters_recorded;
    uint64_t before_blocks; /* in use before the first action; only if before_known */
    uint64_t before_bytes; /* in use before the first action, as far as known */
    uint32_t gaps; /* that contradict earlier ones: some are missing (actions) */
    /* the simulated allocator ends with the recorded segments and blocks; of a trace, has
     * the recorded counters; only if checked */
    bool agrees;
    /* whose address was compared, and is equal; of a trace, events after which the counters
     * are equal (requests) */
    uint64_t addresses;
    const char *difference; /* the first one, or why nothing was compared; NULL: it agrees */
    const plim_live_stack *const *live_at_peak; /* the most bytes first */
    uint32_t n_live_at_peak;
    const plim_held_segment *const *segments; /* at the end, the most free bytes first */
    uint32_t n_segments;
    const plim_free_recorded *free; /* at the end; NULL: not known */
    const plim_failed_request *oom; /* the first request that failed; NULL: none failed */
    const plim_traced *trace; /* what only a trace says; NULL: the file is no trace */
    bool checked; /* the simulated allocator was compared with the recorded one */
    bool before_known; /* the file names all that was in use before */
} plim_recorded;

/* A tape or a recording, replayed through an allocator. */
typedef struct plim_replay {
    size_t size; /* of this struct */

    /* -- stats: the statistics by their names in torch.cuda.memory_stats, without ".all" -- */
    plim_stat requested_bytes; /* as requested */
    plim_stat allocated_bytes; /* in blocks that are in use */
    /* in blocks that are in use, or wait for another stream to be freed */
    plim_stat active_bytes;
    plim_stat reserved_bytes; /* in segments, from CUDA */
    plim_stat inactive_split_bytes; /* free, in segments that are partly used */
    plim_stat allocation; /* that are in use (blocks) */
    plim_stat active; /* that are in use, or wait for another stream to be freed (blocks) */
    plim_stat segment; /* from CUDA (segments) */
    plim_stat inactive_split; /* that are free, in segments that are partly used (blocks) */
    bool requested_known; /* what was requested is known; else all sizes are those of blocks */

    /* -- the rest, in no group -- */
    /* what is simulated otherwise than asked for, in sentences; "": nothing */
    const char *note;
    uint64_t events; /* allocations and frees */
    uint64_t storages; /* that they are about */
    /* CUDA had no memory, and was asked again after free segments were returned to it
     * (times) */
    uint64_t num_alloc_retries;
    uint64_t num_ooms; /* that failed (allocations) */
    uint64_t num_device_alloc; /* of cudaMalloc, or what maps memory (calls) */
    uint64_t num_device_free; /* of cudaFree, or what unmaps memory (calls) */
    /* one for each mark of the tape, its lines with "@" */
    const plim_replay_mark *const *marks;
    uint32_t n_marks;
    bool oom; /* an allocation failed */
    uint64_t oom_event; /* of the event that failed first (index); only if oom */
    const char *oom_text; /* PyTorch's message for it; only if oom */
    const plim_free_at_failure *oom_free; /* what was free then; NULL: no allocation failed */
    const plim_replay_card *card; /* which limits the allocator; NULL: memory is unlimited */
    const plim_recorded *recorded; /* what the recording says; NULL: the file is a tape */
} plim_replay;
/* clang-format on */
/* end of figures */

/* Replays a file through a simulated allocator: a tape, or a memory snapshot of PyTorch or a
 * trace of its profiler, told apart by their content.  The settings "allocator",
 * "torch", "alloc_conf", "gpu" and "vram" (neither: unlimited memory), "fraction" and
 * "stop_at_oom" apply.  The allocator gets the memory of the card less the upper bound of
 * its CUDA context.  A recording is replayed as it was recorded unless "allocator",
 * "alloc_conf", "gpu", "vram" or "fraction" ask for something else.  PLIM_EIO: the file cannot
 * be read.  PLIM_EFORMAT: it has no known format; the message names the line or the byte.
 * PLIM_EUSAGE: the message names the setting. */
PLIM_API plim_status plim_replay_run(const char *path, const plim_settings *s,
                                     plim_replay **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_replay_free(plim_replay *r);

/* ======================================================================== */
/* Difference                                                                */
/* ======================================================================== */

/* figures: diff_side */
/* clang-format off */
/* One of the two sides. */
typedef struct plim_diff_side {
    size_t size; /* of this struct */
    const char *name; /* of the model or the file */
    /* "prediction", or the format of the file: "tape", "snapshot", "log" */
    const char *format;
    const char *source; /* of a log: who printed its figures, "Megatron-LM"; NULL: not a log */
    /* as used, with the defaults filled in; NULL: a recording */
    const plim_settings *settings;
    const char *gpu; /* the card's full name; NULL: not known */
    uint64_t events; /* allocations and frees; 0: a log does not say */
    uint64_t live; /* requested by what is live at the peak; 0: a log does not say */
    int peak_step; /* -1: the phase "load", which precedes step 0; only if phases_known */
    plim_phase peak_phase; /* as in a phase; only if phases_known */
    const char *peak_op; /* what runs at the peak, a layer or a line; NULL: not known */
    const plim_model_info *model; /* NULL: a recording */
    bool phases_known; /* peak_step and peak_phase are known */
} plim_diff_side;
/* clang-format on */
/* end of figures */

/* figures: diff_figure */
/* clang-format off */
/* A figure of both sides. */
typedef struct plim_diff_figure {
    size_t size; /* of this struct */
    /* the peaks "requested", "allocated", "reserved", and with a card "device" */
    const char *figure;
    uint64_t a; /* of side a; only if a_known */
    uint64_t b; /* of side b; only if b_known */
    uint64_t within; /* rounding error of a log's numbers; else 0 */
    bool a_known; /* the side says it */
    bool b_known; /* the side says it */
} plim_diff_figure;
/* clang-format on */
/* end of figures */

/* figures: diff_row */
/* clang-format off */
/* What is live at the peak of each side: of a category, of a module, or a tensor. */
typedef struct plim_diff_row {
    size_t size; /* of this struct */
    /* "layer1.0.conv1"; a line of a recording; empty: the model itself; NULL: not known */
    const char *name;
    const char *category; /* "activation", or "unknown" if neither side says */
    uint64_t a; /* requested by what is live at the peak of a */
    uint64_t b; /* requested by what is live at the peak of b */
    uint32_t a_tensors; /* live at the peak of a */
    uint32_t b_tensors; /* live at the peak of b */
} plim_diff_row;
/* clang-format on */
/* end of figures */

/* figures: diff_event */
/* clang-format off */
/* An allocation or a free. */
typedef struct plim_diff_event {
    size_t size; /* of this struct */
    uint64_t index; /* of the event on the tape (from 0) */
    bool frees; /* it is a free */
    uint64_t bytes; /* requested */
    const char *name; /* of the tensor; NULL: not known */
    const char *category; /* "activation", or "unknown" */
    const char *where; /* the layer, or the line that allocated it; NULL: not known */
    int step; /* -1: the phase "load", which precedes step 0; only if phase_known */
    plim_phase phase; /* as in a phase; only if phase_known */
    bool phase_known; /* step and phase are known */
} plim_diff_event;
/* clang-format on */
/* end of figures */

/* figures: diff_cause diff */
/* clang-format off */
/* A likely cause. */
typedef struct plim_diff_cause {
    size_t size; /* of this struct */
    const char *cause; /* "batch", "optimizer", "kept": docs/commands/diff.md */
    const char *text; /* in a sentence */
    uint64_t bytes; /* of the tensors that it explains; 0: it is not a matter of tensors */
} plim_diff_cause;

/* Two runs side by side. */
typedef struct plim_diff {
    size_t size; /* of this struct */

    /* -- events: allocations and frees -- */
    uint64_t equal; /* equal in both (events); only if events_known */
    uint64_t resized; /* differ in size (events); only if events_known */
    uint64_t only_a; /* in a only (events); only if events_known */
    uint64_t only_b; /* in b only (events); only if events_known */

    /* -- first_difference: where the two sides part -- */
    /* the first event of a that b lacks or has differently; NULL: that side has ended */
    const plim_diff_event *first_a;
    /* the first event of b that a lacks or has differently; NULL: that side has ended */
    const plim_diff_event *first_b;
    /* of a: the last event before it, in both; NULL: nothing is equal before */
    const plim_diff_event *last;

    /* -- the rest, in no group -- */
    const plim_diff_side *a; /* the first */
    const plim_diff_side *b; /* the second */
    /* what the figures may differ by, as it was set; NULL: it is not set */
    const char *within;
    /* a figure differs by more than that; if it is not set, anything does: the exit status */
    bool differs;
    const plim_diff_figure *const *figures; /* the peaks, and what the card takes */
    uint32_t n_figures;
    const plim_diff_row *const *categories; /* those that differ most come first */
    uint32_t n_categories;
    const plim_diff_row *const *modules; /* those that differ most come first */
    uint32_t n_modules;
    const plim_diff_row *const *tensors; /* those that differ most come first */
    uint32_t n_tensors;
    const plim_diff_cause *const *causes; /* that with the most bytes first */
    uint32_t n_causes;
    bool parts; /* they part somewhere */
    bool events_known; /* neither side is a log, which has figures only */
} plim_diff;
/* clang-format on */
/* end of figures */

/* Compares two runs.  Each of them is a model with the settings `s`, or what a file
 * recorded: a tape, a memory snapshot of PyTorch, or the log of a program that printed how
 * much memory it had, as its content tells.  `a` is the name of a model or
 * of a file, as in plim_model_open; if model_a is not NULL, it is that model, and `a` is what
 * it is called.  The same for b.  The setting "within" is what figures may differ by: a size,
 * or a share of that of a ("5%").  Recordings are taken as they are: the settings say nothing
 * about them.  Errors as plim_estimate_run and plim_replay_run. */
PLIM_API plim_status plim_diff_run(const char *a, const plim_model *model_a, const char *b,
                                   const plim_model *model_b, const plim_settings *s,
                                   plim_diff **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_diff_free(plim_diff *d);

/* ======================================================================== */
/* Out of memory                                                             */
/* ======================================================================== */

/* What ran out of memory, or who reported it. */
typedef enum plim_oom_source {
    PLIM_OOM_BY_TORCH = 0, /* PyTorch's caching allocator, on CUDA, ROCm, XPU, NPU or MUSA */
    PLIM_OOM_BY_ASYNC = 1, /* PyTorch with backend:cudaMallocAsync */
    PLIM_OOM_BY_MPS = 2,   /* PyTorch on an Apple GPU */
    PLIM_OOM_BY_CUDA = 3,  /* CUDA itself, outside PyTorch's allocator, as the next two */
    PLIM_OOM_BY_CUBLAS = 4,
    PLIM_OOM_BY_CUDNN = 5,
    PLIM_OOM_BY_JAX = 6,
    PLIM_OOM_BY_TENSORFLOW = 7,
    PLIM_OOM_BY_HOST = 8, /* PyTorch on the CPU: the memory of the machine, not of a card */
    PLIM_OOM_BY_LLAMA_CPP = 9,
    PLIM_OOM_BY_VLLM = 10, /* vLLM itself: no room for its cache */
    PLIM_OOM_BY_CUPY = 11,
    PLIM_OOM_SOURCE_COUNT = 12
} plim_oom_source;
/* A static string such as "torch"; "?" for any other number. */
PLIM_API const char *plim_oom_source_name(plim_oom_source s);

/* The numbers of a message, and those that follow from them. */
typedef enum plim_oom_quantity {
    PLIM_OOM_TRIED = 0,       /* what was requested from the driver: a whole segment */
    PLIM_OOM_TOTAL = 1,       /* memory of the card */
    PLIM_OOM_FREE = 2,        /* of the card, for any process */
    PLIM_OOM_ALLOWED = 3,     /* limit of this process */
    PLIM_OOM_ALLOCATED = 4,   /* in PyTorch's blocks that are in use */
    PLIM_OOM_PRIVATE = 5,     /* the part of allocated that CUDA graphs hold */
    PLIM_OOM_UNALLOCATED = 6, /* reserved by PyTorch, in no block that is in use */
    PLIM_OOM_RESERVED = 7,    /* allocated + unallocated */
    PLIM_OOM_PROCESS = 8,     /* in use by this process */
    PLIM_OOM_OUTSIDE = 9,     /* process - reserved: CUDA context and libraries */
    PLIM_OOM_ELSEWHERE = 10,  /* total - free - process, or - reserved if process is unknown */
    PLIM_OOM_QUANTITY_COUNT = 11
} plim_oom_quantity;
/* A static string such as "unallocated"; "?" for any other number. */
PLIM_API const char *plim_oom_quantity_name(plim_oom_quantity q);

/* figures: oom_number oom_process oom_remedy oom_message */
/* clang-format off */
/* A number of bytes as a message prints it, rounded to 0.01 of its unit, or what follows
 * from such numbers. */
typedef struct plim_oom_number {
    uint64_t bytes; /* the number */
    uint64_t within; /* the real number differs by no more than this */
    bool derived; /* it is a sum or difference of other numbers */
} plim_oom_number;

/* Another process that the message names. */
typedef struct plim_oom_process {
    uint64_t pid; /* of the process */
    const plim_oom_number *memory; /* in use by it; NULL: the message does not tell */
} plim_oom_process;

/* What helps. */
typedef struct plim_oom_remedy {
    const char *text; /* in a sentence */
    const char *command; /* that does it, or shows more; NULL: there is none */
} plim_oom_remedy;

/* An out-of-memory message, explained. */
typedef struct plim_oom_message {
    size_t size; /* of this struct */

    /* -- numbers: the numbers of a message, and those that follow from them -- */
    /* by plim_oom_quantity; NULL: the message does not tell */
    const plim_oom_number *const *numbers;
    uint32_t n_numbers;

    /* -- the rest, in no group -- */
    /* "torch", "torch_async", "torch_mps", "cuda", "cublas", "cudnn", "jax", "tensorflow",
     * "host", "llama.cpp", "vllm", "cupy" */
    plim_oom_source source;
    /* about memory that ran out, in the text; this is the last with numbers */
    uint32_t messages;
    int64_t gpu; /* of the card (index); only if gpu_known */
    /* PyTorch versions that print this form, "2.2 to 2.8"; NULL: not known */
    const char *torch;
    const plim_oom_process *const *processes; /* other processes that the message names */
    uint32_t n_processes;
    const char *const *cards; /* names of the cards with this much memory */
    uint32_t n_cards;
    const char *const *causes; /* sentences, the likeliest first */
    uint32_t n_causes;
    const plim_oom_remedy *const *remedies; /* what helps, in the order to try */
    uint32_t n_remedies;
    bool gpu_known; /* the message names the card */
} plim_oom_message;
/* clang-format on */
/* end of figures */

/* Reads the out-of-memory message in a text of n bytes, which may be a whole log, and
 * explains it.  Of several messages the last one with numbers counts.  PLIM_EFORMAT: there
 * is none. */
PLIM_API plim_status plim_oom_read(const char *text, size_t n, plim_oom_message **out,
                                   plim_err *err);
/* As plim_oom_read, from a file or a pipe, in parts: the size makes no difference to the memory it
 * takes.  PLIM_EIO: it cannot be read, or is a pipe of more than 16 GiB. */
PLIM_API plim_status plim_oom_load(const char *path, plim_oom_message **out, plim_err *err);
/* Releases the result.  Takes NULL. */
PLIM_API void plim_oom_free(plim_oom_message *m);

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
    PLIM_REG_ENGINES = 8,
    PLIM_REG_STRATEGIES = 9,
    PLIM_REG_ADAPTERS = 10, /* methods of peft */
    PLIM_REG_QUANTIZATIONS = 11,
    PLIM_REG_LOOPS = 12,
    PLIM_REG_LOSSES = 13,
    PLIM_REG_COUNT = 14
} plim_registry;

/* figures: entry */
/* clang-format off */
/* A row of a list; a text that the list does not have is empty. */
typedef struct plim_entry {
    size_t size; /* set by PLIM_ENTRY_INIT */
    const char *name; /* by which it is asked for */
    const char *doc; /* what it is, in a line */
    const char *src; /* the source of the facts */

    /* -- model_entry: a model by name -- */
    const char *group; /* the family of a model or an op */
    /* of all parameters (elements); 0: it depends on the name, as for "mlp:..." */
    uint64_t parameters;
    /* of a model: "text", "encoder" (of text), "seq2seq", "audio", "vision", "vision-text";
     * "" of mlp */
    const char *kind;
    /* in which the weights of a model of the hub were first published; 0: not listed */
    uint64_t year;
    /* the positions that the configuration of a model of the hub names (tokens); 0: the
     * configuration names no positions */
    uint64_t context;
    /* other names, separated by spaces; of a model from the hub its id comes first */
    const char *also;

    /* -- format_entry: a file format -- */
    const char *gives; /* what a file of the format gives */

    /* -- option_entry: an inference engine, or a way in which cards share a training job -- */
    const char *options; /* its own, with what each is unless given: "NAME=VALUE,..." */

    /* -- quantization_entry: a format of quantized weights -- */
    const char *setting; /* the settings that take it: "weights, quant" */

    /* -- dtype_entry: a data type -- */
    uint32_t bits; /* of an element */
} plim_entry;
/* clang-format on */
/* end of figures */
#define PLIM_ENTRY_INIT                                                                       \
    {                                                                                         \
        sizeof(plim_entry), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                             \
    }

/* The number of rows of a list; 0: there is no such list. */
PLIM_API uint32_t plim_registry_count(plim_registry r);
/* Copies row i to *out; its strings are static.  false: there is no row i, and *out is
 * unchanged. */
PLIM_API bool plim_registry_at(plim_registry r, uint32_t i, plim_entry *out);

/* figures: gpu_info */
/* clang-format off */
/* A card. */
typedef struct plim_gpu_info {
    size_t size; /* set by PLIM_GPU_INFO_INIT */
    const char *name; /* its full name */
    uint64_t memory_bytes; /* of the card */
    bool memory_exact; /* a driver reported it; else it is estimated from the marketed size */
    int cc; /* compute capability, 8.9; in C times ten, 89; 0: not known */
    double bandwidth_gbs; /* of its memory, in 10^9 bytes (GB/s); 0: not known */
    double fp32_tflops; /* dense (TFLOPS); 0: not known */
    double tf32_tflops; /* dense (TFLOPS); 0: not known */
    double fp16_tflops; /* dense (TFLOPS); 0: not known */
    double bf16_tflops; /* dense (TFLOPS); 0: not known */
    double fp8_tflops; /* dense (TFLOPS); 0: not known */
    const char *aliases; /* names by which it is asked for, separated by commas */
    const char *vendor; /* "NVIDIA", "AMD", "Intel", "Apple" */
    const char *arch; /* its architecture, "Ampere" */
    int year; /* of its launch; 0: not known */
    int sms; /* how many it has (multiprocessors); 0: not known */
    int price_usd; /* at its launch (US dollars); 0: not known */
    const char *src; /* the source of the facts */
    const char *klass; /* its class, "consumer" */
    bool unified; /* its memory is that of the CPU, too, and the system keeps some of it */
    /* what the system keeps of unified memory, at the least that was reported or assumed;
     * 0: its memory is not unified, or it is not known */
    uint64_t kept_low;
    /* the same at the most; 0: its memory is not unified, or it is not known */
    uint64_t kept_high;
    /* of a MIG instance the card that it is a part of, "a100"; NULL: it is a whole card */
    const char *mig_of;
} plim_gpu_info;
/* clang-format on */
/* end of figures */
#define PLIM_GPU_INFO_INIT                                                                    \
    {                                                                                         \
        sizeof(plim_gpu_info), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, \
            0                                                                                 \
    }
/* Copies all numbers of row i of PLIM_REG_GPUS to *out; its strings are static.  After its rows, which are whole
 * cards, come MIG instances.  false: there is no row i, and *out is unchanged. */
PLIM_API bool plim_gpu_info_at(uint32_t i, plim_gpu_info *out);

/* ---- helpers for front ends ------------------------------------------------ */

/* Converts "24GiB", "24g", "500MB" or "512" to bytes.  PLIM_EUSAGE: it is not a size.
 * PLIM_ERANGE: it does not fit in 64 bits. */
PLIM_API plim_status plim_size_parse(const char *text, uint64_t *bytes, plim_err *err);
/* Converts "500x500x3" or "1,3,224,224" to dim[0 .. *rank - 1]; "()" is a scalar.  `dim` has
 * room for `max` numbers and may be NULL if max is 0.  PLIM_EUSAGE: it is not a shape.
 * PLIM_ERANGE: it has more than `max` dimensions, or one that does not fit in 64 bits. */
PLIM_API plim_status plim_shape_parse(const char *text, int64_t *dim, int max, int *rank,
                                      plim_err *err);
/* The bytes of a dense tensor; dim may be NULL if rank is 0.  PLIM_EUSAGE: there is no such
 * dtype or rank.  PLIM_ERANGE: the size does not fit in 64 bits. */
PLIM_API plim_status plim_tensor_bytes(plim_dtype t, int rank, const int64_t *dim,
                                       uint64_t *bytes, plim_err *err);
/* A static string such as "fp32"; "unknown" for any other number. */
PLIM_API const char *plim_dtype_name(plim_dtype t);

/* ======================================================================== */
/* Reports                                                                   */
/* ======================================================================== */

typedef struct plim_style {
    size_t size;         /* set by PLIM_STYLE_INIT */
    bool si;             /* GB, MB, KB (1000) instead of GiB, MiB, KiB (1024) */
    bool color;          /* ANSI colours */
    bool ascii;          /* no box drawing or block characters */
    int width;           /* in columns; 0: 80 */
    int top;             /* number of live tensors or marks to show, 0: 10; of layers, or of
                            tensors in info, 0: all */
    int depth;           /* deepest level of modules to show; 0: all in layers, 2 in info */
    bool quiet;          /* only the figures */
    const char *columns; /* layers: "type,shape,params,macs"; NULL: those that fit */
    const char *types;   /* layers: only rows of these types, "Input,Conv2d"; NULL: all */
    const char *sort;    /* layers: "macs": the leaves by this column, the greatest first;
                            NULL: the tree in call order; fit and cards: "throughput",
                            "headroom", "price" (the lowest first; for each sample a second)
                            or, of fit, "batch"; NULL: in the order of the rows */
    bool tensors;        /* info: a table of the tensors instead of the modules */
} plim_style;
#define PLIM_STYLE_INIT                                                                       \
    {                                                                                         \
        sizeof(plim_style), 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0                                   \
    }

/* Of src/report/renderings.def, by tools/figures.py. */
typedef enum plim_render {
    PLIM_TEXT = 0, /* tables for a terminal, in UTF-8 or, with style.ascii, ASCII */
    PLIM_JSON = 1, /* JSON, sizes in bytes */
    PLIM_CSV = 2,  /* comma-separated values, sizes in bytes */
    PLIM_SVG = 3,  /* a picture, as SVG */
    PLIM_MD = 4    /* Markdown, for an issue, a pull request or a README */
} plim_render;

/* A rendering, as a program offers it. */
typedef struct plim_rendering_info {
    size_t size; /* set by PLIM_RENDERING_INFO_INIT */
    plim_render render;
    const char *key; /* "json", for an option --json */
    const char *doc; /* a line about it */
    bool with_text;  /* every report that has text has it */
} plim_rendering_info;
#define PLIM_RENDERING_INFO_INIT                                                              \
    {                                                                                         \
        sizeof(plim_rendering_info), PLIM_TEXT, 0, 0, 0                                       \
    }
/* The i-th rendering; false past the last. */
PLIM_API bool plim_rendering_at(uint32_t i, plim_rendering_info *out);

/* Each of these renders a result (bindings read PLIM_JSON) and passes the whole text to `put`
 * at once; on failure nothing is passed.  st NULL: the default style.  PLIM_EUNSUPPORTED: the
 * report has no such rendering.  PLIM_EUSAGE: the style names an unknown column.  PLIM_EIO:
 * `put` failed. */
/* The picture shows the timeline.  PLIM_EUSAGE: the run allocates nothing, and has none. */
PLIM_API plim_status plim_estimate_print(const plim_estimate *e, plim_render r,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
/* Several estimates side by side, one row each; the picture shows accuracy against MACs, with
 * circles by parameters.  PLIM_EUSAGE: no model has a known accuracy, which it needs. */
PLIM_API plim_status plim_compare_print(const plim_estimate *const *list, uint32_t n,
                                        plim_render r, const plim_style *st, plim_put put,
                                        void *ud, plim_err *err);
PLIM_API plim_status plim_info_print(const plim_info *i, plim_render r, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);
/* Several models one after the other; in JSON a list, in CSV one table with their names. */
PLIM_API plim_status plim_layers_print_all(const plim_layers *const *list, uint32_t n,
                                           plim_render r, const plim_style *st, plim_put put,
                                           void *ud, plim_err *err);
PLIM_API plim_status plim_layers_print(const plim_layers *l, plim_render r,
                                       const plim_style *st, plim_put put, void *ud,
                                       plim_err *err);
PLIM_API plim_status plim_segments_print(const plim_segments *s, plim_render r,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
PLIM_API plim_status plim_batches_print(const plim_batches *b, plim_render r,
                                        const plim_style *st, plim_put put, void *ud,
                                        plim_err *err);
PLIM_API plim_status plim_times_print(const plim_times *t, plim_render r, const plim_style *st,
                                      plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_cards_print(const plim_cards *c, plim_render r, const plim_style *st,
                                      plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_fit_print(const plim_fit *f, plim_render r, const plim_style *st,
                                    plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_serve_fit_print(const plim_serve_fit *f, plim_render r,
                                          const plim_style *st, plim_put put, void *ud,
                                          plim_err *err);
PLIM_API plim_status plim_serve_print(const plim_serve *s, plim_render r, const plim_style *st,
                                      plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_replay_print(const plim_replay *p, plim_render r,
                                       const plim_style *st, plim_put put, void *ud,
                                       plim_err *err);
PLIM_API plim_status plim_diff_print(const plim_diff *d, plim_render r, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);
PLIM_API plim_status plim_oom_print(const plim_oom_message *m, plim_render r,
                                    const plim_style *st, plim_put put, void *ud,
                                    plim_err *err);

/* Prints a registry.  `filter` selects the rows whose text contains it, ignoring case; of models
 * those whose text contains each of its words, also "kind=text", "year=2025..",
 * "parameters=..8B" (within a tenth) and "context=128K..", and of cards the card whose name it is
 * for the setting "gpu" ("Tesla V100-SXM2-16GB"), too.  NULL: all.  Errors as above; also
 * PLIM_EUSAGE: there is no such registry, or what a word compares with is no range. */
PLIM_API plim_status plim_registry_print(plim_registry r, const char *filter, plim_render how,
                                         const plim_style *st, plim_put put, void *ud,
                                         plim_err *err);
/* Prints the size of a tensor of this shape ("256x3x100x100") in every dtype.  Errors as
 * above and as plim_shape_parse. */
PLIM_API plim_status plim_size_print(const char *shape, plim_render how, const plim_style *st,
                                     plim_put put, void *ud, plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
