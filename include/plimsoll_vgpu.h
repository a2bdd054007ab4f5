/* plimsoll_vgpu.h -- a pretend GPU, for a front end that runs a program instead of
 * a model.
 *
 * EXPERIMENTAL.  Nothing in this header is stable: names, structs and numbers change
 * with any version, without a change of the soname.  It is for `plimsoll run`; programs that
 * want to keep working use plimsoll.h alone.
 *
 * A pretend GPU is a card that does not exist.  The front end passes on what a program
 * does with memory; the simulated allocator answers as PyTorch's would, and what
 * happened is kept as a tape, from which the report is made.
 *
 *     plim_vgpu_options o = PLIM_VGPU_OPTIONS_INIT;
 *     plim_vgpu *d = NULL;
 *     o.gpu = "rtx4090";
 *     plim_vgpu_open(&o, &d, &err);
 *     plim_vgpu_malloc(d, 20 << 20, 0, &tag, &block, &addr, &err);
 *     plim_vgpu_free(d, block, &err);
 *     plim_vgpu_report_make(d, &report, &err);
 *     plim_vgpu_report_print(report, PLIM_TEXT, NULL, put, ud, &err);
 *     plim_vgpu_report_free(report);
 *     plim_vgpu_close(d);
 *
 * Conventions, besides those of plimsoll.h.
 *  - Sizes are bytes unless a name says otherwise.
 *  - Threads: every function of a device, except plim_vgpu_close, may be called from
 *    several threads at once.  A report belongs to whoever made it.
 *  - Strings and arrays that are passed in are borrowed during the call.  Strings that
 *    are given back by a device live until plim_vgpu_close, those of a report until
 *    plim_vgpu_report_free.  A text of a report that is not known is NULL or empty.
 *  - A pointer argument that is NULL gives PLIM_EUSAGE, unless the function says what NULL
 *    means; functions that return no status do not check.  Every function with a status
 *    may return PLIM_ENOMEM.  An output is written on success only, unless the function
 *    says otherwise.
 *  - A function that fills out[max] returns how many entries there are, which may be
 *    more than max: then out has the first max.  out may be NULL where max is 0.
 */
#ifndef PLIMSOLL_VGPU_H
#define PLIMSOLL_VGPU_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct plim_vgpu plim_vgpu;

/* ======================================================================== */
/* The card                                                                  */
/* ======================================================================== */

/* Most cards of one machine. */
#define PLIM_VGPU_CARDS 64

/* Zero means "the default" in every field; a name or a size is needed. */
typedef struct plim_vgpu_options {
    const char *gpu;        /* a card by name or alias; of a list "t4,a100" the largest */
    uint64_t vram;          /* its bytes; alone: nothing else is known of the card */
    const char *torch;      /* PyTorch version; default the newest known */
    const char *alloc_conf; /* as PYTORCH_CUDA_ALLOC_CONF */
    const char *workspace;  /* "auto" (default), "off", "low", "high" */
    uint32_t index;         /* N of "cuda:N", below PLIM_VGPU_CARDS */
    const char *
        cublas_workspace; /* as CUBLAS_WORKSPACE_CONFIG; what PyTorch cannot read is ignored */
    const char *module_loading; /* as CUDA_MODULE_LOADING: "EAGER"; all else is "LAZY" */
} plim_vgpu_options;
#define PLIM_VGPU_OPTIONS_INIT                                                                \
    {                                                                                         \
        0                                                                                     \
    }

/* Reads "2xrtx4090", a machine of two cards: *n is 2 and *card "rtx4090", a part of `gpu`.
 * Other names and lists are one card and stay whole.  PLIM_EUSAGE: more than
 * PLIM_VGPU_CARDS, or a machine in a list. */
PLIM_API plim_status plim_vgpu_machine(const char *gpu, uint32_t *n, const char **card,
                                       plim_err *err);

/* Where a card's driver puts memory, for whoever keeps a ledger of the card: the addresses that
 * the simulated allocator of a device gets, too.  Of pages of 2 MiB; nothing is counted, so it
 * is never full.  Not for several threads at once. */
typedef struct plim_vgpu_places plim_vgpu_places;
#define PLIM_VGPU_PLACES (1ull << 47) /* the bytes from `first` on that it has for itself */
/* *out: the caller's, for plim_vgpu_places_close. */
PLIM_API plim_status plim_vgpu_places_open(uint64_t first, plim_vgpu_places **out,
                                           plim_err *err);
/* *addr 0: no addresses are left. */
PLIM_API plim_status plim_vgpu_places_take(plim_vgpu_places *p, uint64_t bytes, uint64_t *addr,
                                           plim_err *err);
PLIM_API void plim_vgpu_places_give(plim_vgpu_places *p, uint64_t addr); /* what take gave */
PLIM_API void plim_vgpu_places_close(plim_vgpu_places *p);               /* may be NULL */

/* Opens a card on which nothing is allocated.  *out: the caller's, for
 * plim_vgpu_close.  PLIM_EUSAGE names the option. */
PLIM_API plim_status plim_vgpu_open(const plim_vgpu_options *o, plim_vgpu **out,
                                    plim_err *err);

/* Closes the card, with all that is allocated on it.  NULL: nothing happens.  No other
 * thread may use the device any more. */
PLIM_API void plim_vgpu_close(plim_vgpu *d);

/* What the card would report of itself. */
typedef struct plim_vgpu_card {
    const char *name, *torch;
    int cc, sms, threads_per_sm; /* cc: compute capability * 10; an A100's where the card
                                    does not say: 80, 108, 2048 */
    uint64_t total, context;     /* bytes; context: taken before the first tensor */
    bool workspace;              /* what kernels take for themselves is counted */
    uint32_t index;              /* of the options */
    bool peers;                  /* cards of this kind read each other's memory */
    int blocks_per_sm, shared_per_sm, shared_per_block; /* bytes; per block: by opting in */
    int l2; /* bytes, of the largest card of the architecture */
} plim_vgpu_card;

PLIM_API void plim_vgpu_card_get(const plim_vgpu *d, plim_vgpu_card *out);

/* The index of the card that an address belongs to, also one inside a block: cards of
 * different indices never have the same.  PLIM_VGPU_NONE: of no card. */
PLIM_API uint32_t plim_vgpu_card_at(uint64_t addr);

/* ======================================================================== */
/* Memory                                                                    */
/* ======================================================================== */

/* What a request is for: it ends up in the tape and the report. */
typedef struct plim_vgpu_tag {
    const char *line;   /* of the user's code, "train.py:12"; NULL: not known */
    const char *op;     /* "aten::addmm"; NULL: not known */
    const char *module; /* "layers.0.attn"; NULL: that of plim_vgpu_mark */
    int dtype;          /* a plim_dtype; below 0: shape not known */
    int rank;
    const int64_t *dim;
    plim_category category;   /* PLIM_CAT_COUNT: as the phase suggests */
    plim_certainty certainty; /* of the number of bytes */
} plim_vgpu_tag;

/* In place of a block, or of an index: none. */
#define PLIM_VGPU_NONE UINT32_MAX
/* In place of a stream, for plim_vgpu_sync: all of them.  Streams are numbered by the
 * caller; 0 is the default stream. */
#define PLIM_VGPU_ALL_STREAMS UINT16_MAX

/* Allocates `bytes`, which may not be 0, on a stream.  *block: the handle that the
 * functions below take; *addr: an address at which nothing is mapped.  Out of memory on
 * the card is an answer, not an error: *block is PLIM_VGPU_NONE, *addr is 0, and
 * plim_vgpu_oom_text has PyTorch's message.  An error sets both in the same way.  tag NULL:
 * nothing is known.  PLIM_EUSAGE: 0 bytes, or PLIM_VGPU_ALL_STREAMS. */
PLIM_API plim_status plim_vgpu_malloc(plim_vgpu *d, uint64_t bytes, uint16_t stream,
                                      const plim_vgpu_tag *tag, uint32_t *block,
                                      uint64_t *addr, plim_err *err);

/* Frees a block; its handle may be given out again.  PLIM_EUSAGE: it is not live. */
PLIM_API plim_status plim_vgpu_free(plim_vgpu *d, uint32_t block, plim_err *err);

/* Tensor.record_stream: another stream uses the block too, so that, once freed, it waits
 * for that stream.  PLIM_EUSAGE: the block is not live. */
PLIM_API plim_status plim_vgpu_record_stream(plim_vgpu *d, uint32_t block, uint16_t stream,
                                             plim_err *err);

/* All work of a stream, or of PLIM_VGPU_ALL_STREAMS, has finished. */
PLIM_API plim_status plim_vgpu_sync(plim_vgpu *d, uint16_t stream, plim_err *err);

/* A private pool of PyTorch (a CUDA graph, a MemPool), which has a stream number of its own:
 * while it is held, none of its memory goes back to the card.  PLIM_EUSAGE:
 * PLIM_VGPU_ALL_STREAMS. */
PLIM_API plim_status plim_vgpu_hold(plim_vgpu *d, uint16_t stream, bool held, plim_err *err);

/* torch.cuda.empty_cache: segments without an allocated block go back to the card. */
PLIM_API plim_status plim_vgpu_empty_cache(plim_vgpu *d, plim_err *err);

/* torch.cuda.reset_peak_memory_stats: of plim_vgpu_stats; the report keeps its own. */
PLIM_API plim_status plim_vgpu_reset_peak(plim_vgpu *d, plim_err *err);

/* Changes the allocator's settings, as PYTORCH_CUDA_ALLOC_CONF gives them, from here on.
 * PLIM_EUSAGE names the setting. */
PLIM_API plim_status plim_vgpu_config(plim_vgpu *d, const char *alloc_conf, plim_err *err);

/* torch.cuda.set_per_process_memory_fraction.  PLIM_EUSAGE: it is not in 0..1. */
PLIM_API plim_status plim_vgpu_fraction(plim_vgpu *d, double fraction, plim_err *err);

/* torch.cuda.mem_get_info: bytes that are not reserved, without the context; all. */
PLIM_API void plim_vgpu_mem_info(plim_vgpu *d, uint64_t *free_bytes, uint64_t *total);

/* From now on *used is what is in use on the card, the context included, as of the last
 * request.  It must outlive the device; NULL ends this. */
PLIM_API void plim_vgpu_publish(plim_vgpu *d, uint64_t *used);

/* PyTorch's message for the last request that failed, on whatever thread; "" if none
 * did.  Copies at most size - 1 bytes and a NUL to `out`, which may be NULL where size
 * is 0, and returns the length of the whole message: below 1024. */
PLIM_API size_t plim_vgpu_oom_text(plim_vgpu *d, char *out, size_t size);

/* ======================================================================== */
/* Kernels: what they take, by the rules that predictions use                */
/* ======================================================================== */

typedef struct plim_vgpu_tensor {
    int dtype; /* a plim_dtype; below 0: None */
    int rank;  /* up to 8 */
    int64_t dim[8], stride[8];
} plim_vgpu_tensor;

/* What an argument is, and which field of plim_vgpu_arg has it. */
typedef enum plim_vgpu_kind {
    PLIM_VGPU_NOTHING = 0, /* None, or what no kernel asks for */
    PLIM_VGPU_TENSOR = 1,  /* .tensors[0] */
    PLIM_VGPU_TENSORS = 2, /* .tensors[n] */
    PLIM_VGPU_INT = 3,     /* .ints[0]: also bool; a data type as a plim_dtype */
    PLIM_VGPU_INTS = 4,    /* .ints[n] */
    PLIM_VGPU_FLOAT = 5    /* .number */
} plim_vgpu_kind;

typedef struct plim_vgpu_arg {
    const char *name; /* in the op's schema */
    plim_vgpu_kind kind;
    uint32_t n; /* of tensors or ints; PLIM_VGPU_TENSOR: 1 */
    const plim_vgpu_tensor *tensors;
    const int64_t *ints;
    double number;
} plim_vgpu_arg;

typedef struct plim_vgpu_kernel_call {
    const plim_vgpu_arg *args; /* NULL where n_args is 0 */
    uint32_t n_args;
    uint16_t stream;
    bool autograd_thread;     /* it has a cuBLAS workspace of its own */
    bool cudnn_benchmark;     /* torch.backends.cudnn.benchmark is on */
    bool cudnn_no_tf32;       /* torch.backends.cudnn.allow_tf32 is off */
    const plim_vgpu_tag *tag; /* of all that the kernel takes; NULL: nothing is known */
} plim_vgpu_kernel_call;

typedef struct plim_vgpu_result {
    plim_vgpu_tensor tensor;
    uint32_t block; /* its own, for the caller to free; PLIM_VGPU_NONE: see below */
    uint64_t addr, bytes;
    uint32_t shares;   /* the storage of this earlier result; PLIM_VGPU_NONE: of none */
    uint32_t argument; /* it is this one of the tensors given, counted through all args;
                          PLIM_VGPU_NONE: it is new */
} plim_vgpu_result;

/* The name of the i-th kernel, "addmm" or "sum.dim_IntList"; NULL past the last.
 * *makes: it makes the op's results; else it is only what the op takes for itself once
 * its results are there. */
PLIM_API const char *plim_vgpu_kernel_name(uint32_t i, bool *makes);

/* Takes what the kernel's host code takes, in its order, and gives back what it gives
 * back.  out[max]: the results, *n_out of them; out may be NULL where max is 0.  *oom:
 * the card is full, nothing that the kernel took is held, and there are no results;
 * plim_vgpu_oom_text has PyTorch's message.  On an error *n_out is 0, *oom false.
 * PLIM_EUSAGE: no such kernel, or an argument without its value; PLIM_ERANGE: a rank or
 * a data type, or more results than max; PLIM_ESHAPE: shapes that the op refuses. */
PLIM_API plim_status plim_vgpu_kernel(plim_vgpu *d, const char *name,
                                      const plim_vgpu_kernel_call *call, plim_vgpu_result *out,
                                      uint32_t max, uint32_t *n_out, bool *oom, plim_err *err);

/* One pass of a convolution y = w * x, as cuDNN is asked for it. */
typedef enum plim_vgpu_conv_pass {
    PLIM_VGPU_CONV_FORWARD = 0,
    PLIM_VGPU_CONV_GRAD_INPUT = 1,
    PLIM_VGPU_CONV_GRAD_WEIGHT = 2
} plim_vgpu_conv_pass;

typedef struct plim_vgpu_conv {
    plim_vgpu_conv_pass pass;
    plim_vgpu_tensor x, w, y; /* w[1] is of one group */
    bool benchmark, no_tf32;  /* as in plim_vgpu_kernel_call */
} plim_vgpu_conv;

/* The workspace that cuDNN takes for it, in bytes, as the kernels above take it: an estimate.
 * 0: none, or not a convolution. */
PLIM_API uint64_t plim_vgpu_conv_workspace(const plim_vgpu *d, const plim_vgpu_conv *conv);

/* The workspace that cuDNN takes for a graph of attention, forward or backward, besides the
 * tensors of its algorithm, which the caller makes; in bytes, 0 without workspaces. */
PLIM_API uint64_t plim_vgpu_attention_workspace(const plim_vgpu *d);

/* The kernels of scaled_dot_product_attention. */
typedef enum plim_vgpu_sdpa {
    PLIM_VGPU_SDPA_MATH = 0,
    PLIM_VGPU_SDPA_FLASH = 1,
    PLIM_VGPU_SDPA_EFFICIENT = 2, /* memory-efficient */
    PLIM_VGPU_SDPA_CUDNN = 3
} plim_vgpu_sdpa;

typedef struct plim_vgpu_attention_call {
    bool mask, mask_grad, causal, gqa, dropout; /* mask_grad: the mask requires a gradient */
    bool mask_strided;                          /* the stride of its last dim is not 1 */
    unsigned without; /* bit 1u << plim_vgpu_sdpa: the user has switched that kernel off */
} plim_vgpu_attention_call;

/* Which kernel attention takes on this card.  Of several cards in the options, those that
 * would take another one are plim_vgpu_other_cards from then on.  Tensors without a rank or
 * data type that exists: PLIM_VGPU_SDPA_MATH. */
PLIM_API plim_vgpu_sdpa plim_vgpu_attention(plim_vgpu *d, const plim_vgpu_tensor *q,
                                            const plim_vgpu_tensor *k,
                                            const plim_vgpu_tensor *v,
                                            const plim_vgpu_attention_call *call);

/* ======================================================================== */
/* What the allocator holds and has done                                     */
/* ======================================================================== */

typedef enum plim_stat_kind {
    PLIM_STAT_POOLS = 0, /* small and large are its two parts: "allocation" */
    PLIM_STAT_WHOLE = 1, /* all only: "oversize_segments" */
    PLIM_STAT_NUMBER = 2 /* all.current only: "num_ooms" */
} plim_stat_kind;

typedef struct plim_vgpu_stat {
    const char *name;
    plim_stat_kind kind;
    plim_stat all, small, large;
} plim_vgpu_stat;

/* The counters of torch.cuda.memory_stats under its names ("allocated_bytes"); their
 * number is always the same. */
PLIM_API uint32_t plim_vgpu_stats(plim_vgpu *d, plim_vgpu_stat *out, uint32_t max);

/* torch.cuda.reset_accumulated_memory_stats: totals begin at 0 again. */
PLIM_API void plim_vgpu_reset_accumulated(plim_vgpu *d);

typedef enum plim_vgpu_block_state {
    PLIM_VGPU_BLOCK_FREE = 0,
    PLIM_VGPU_BLOCK_ALLOCATED = 1,
    PLIM_VGPU_BLOCK_PENDING = 2, /* freed, but another stream may still use it */
    PLIM_VGPU_BLOCK_UNMAPPED = 3 /* of an expandable segment, without memory behind it */
} plim_vgpu_block_state;

typedef struct plim_vgpu_block {
    uint64_t addr, bytes, requested;
    uint16_t stream;
    uint8_t state;          /* a plim_vgpu_block_state */
    bool first;             /* of its segment */
    bool small, expandable; /* its segment: of the small pool; expandable */
    const char *line, *op;  /* of who asked for it; "" if free */
} plim_vgpu_block;

/* torch.cuda.memory_snapshot: the blocks of all segments, by address.  0 also where
 * there is no memory for the answer. */
PLIM_API uint32_t plim_vgpu_blocks(plim_vgpu *d, plim_vgpu_block *out, uint32_t max);

/* torch.cuda.memory._record_memory_history: from here on keeps the last `entries`
 * actions of the allocator; 0: no more are recorded.  clear: forgets those that are
 * kept, as another number of entries does. */
PLIM_API void plim_vgpu_history(plim_vgpu *d, uint64_t entries, bool clear);

typedef struct plim_vgpu_trace {
    const char *action; /* in PyTorch's words: "alloc", "segment_alloc" */
    uint64_t addr;      /* "oom": the bytes that the device has free */
    uint64_t bytes;
    uint64_t number; /* of the action, from 0: there is no clock */
    uint16_t stream;
    const char *line, *op; /* of who asked for the block; "": not known */
} plim_vgpu_trace;

/* The actions that are kept, the oldest first. */
PLIM_API uint32_t plim_vgpu_traces(plim_vgpu *d, plim_vgpu_trace *out, uint32_t max);

/* ======================================================================== */
/* What the program says of itself                                           */
/* ======================================================================== */

/* From here on, on all threads, this phase of this step runs.  step -1: before the first;
 * op: the layer, "features.0"; NULL: none.  PLIM_EUSAGE: no such phase or step. */
PLIM_API plim_status plim_vgpu_mark(plim_vgpu *d, int step, plim_phase phase, const char *op,
                                    plim_err *err);

/* Says later what a block turned out to be: its category and, unless name is NULL or
 * empty, its name.  PLIM_EUSAGE: the block is not live, or no such category. */
PLIM_API plim_status plim_vgpu_label(plim_vgpu *d, uint32_t block, plim_category category,
                                     const char *name, plim_err *err);

/* This process is `rank` of `world` that train together; 0 of 1 if nobody says.
 * PLIM_EUSAGE: the rank is not in 0..world-1. */
PLIM_API plim_status plim_vgpu_place(plim_vgpu *d, int rank, int world, plim_err *err);

/* What NCCL is estimated to have taken from the driver so far, outside the allocator.
 * PLIM_EUSAGE: low is above high. */
PLIM_API plim_status plim_vgpu_nccl(plim_vgpu *d, uint64_t low, uint64_t high, plim_err *err);

/* A remark for the report: "loss.item() read 0", on a line of the user's code or, NULL,
 * on none.  The same remark is kept once and counted. */
PLIM_API plim_status plim_vgpu_note(plim_vgpu *d, const char *line, const char *what,
                                    plim_err *err);

/* The lines that tags have named so far, in the order in which they were first named. */
PLIM_API uint32_t plim_vgpu_lines(plim_vgpu *d, const char **out, uint32_t max);

/* The text of one of these lines, by its index; NULL: "".  PLIM_EUSAGE: no such line. */
PLIM_API plim_status plim_vgpu_source(plim_vgpu *d, uint32_t line, const char *text,
                                      plim_err *err);

/* An optimizer is taking its first step: gradients and state that appear until it ends are not
 * growth.  Steps after the first eight count in any case. */
PLIM_API plim_status plim_vgpu_first_step(plim_vgpu *d, plim_err *err);

/* A live block of a line whose memory grows from step to step, or may. */
typedef struct plim_vgpu_growing {
    uint64_t addr;
    uint32_t line; /* an index as in plim_vgpu_lines */
} plim_vgpu_growing;

/* These blocks so far, the oldest first; none before three steps are complete, nor
 * where there is no memory for the answer. */
PLIM_API uint32_t plim_vgpu_growing_blocks(plim_vgpu *d, plim_vgpu_growing *out, uint32_t max);

/* Says what keeps the tensors of a line: "`losses` in `main`"; NULL: "".  PLIM_EUSAGE: no
 * such line. */
PLIM_API plim_status plim_vgpu_holder(plim_vgpu *d, uint32_t line, const char *text,
                                      plim_err *err);

/* Says that what keeps the tensors of a line holds only so many, and there is room for these:
 * the line does not grow.  PLIM_EUSAGE: no such line. */
PLIM_API plim_status plim_vgpu_bounded(plim_vgpu *d, uint32_t line, plim_err *err);

/* How the program ended. */
typedef enum plim_vgpu_end {
    PLIM_VGPU_END_DONE = 0,
    PLIM_VGPU_END_EARLY = 1,  /* it was stopped: what came before counts */
    PLIM_VGPU_END_MEMORY = 2, /* the card ran out of memory */
    PLIM_VGPU_END_ERROR = 3,  /* another error: nothing is known of what would have come */
    PLIM_VGPU_END_COUNT = 4
} plim_vgpu_end;

/* Says how the program is about to end; PLIM_VGPU_END_DONE if nobody does.
 * PLIM_VGPU_END_MEMORY without a request that failed counts as PLIM_VGPU_END_EARLY. */
PLIM_API plim_status plim_vgpu_ended(plim_vgpu *d, plim_vgpu_end how, plim_err *err);

/* Writes the tape so far to a file, as `plimsoll replay` reads it; storages have the
 * names of their lines.  PLIM_EIO: it cannot be written. */
PLIM_API plim_status plim_vgpu_save(plim_vgpu *d, const char *path, plim_err *err);

/* ======================================================================== */
/* The report                                                                */
/* ======================================================================== */

/* What a report groups by. */
typedef enum plim_vgpu_by {
    PLIM_VGPU_BY_LINE = 0,
    PLIM_VGPU_BY_MODULE = 1, /* that ran, or that a parameter or its gradient belongs to */
    PLIM_VGPU_BY_OP = 2,
    PLIM_VGPU_BY_COUNT = 3
} plim_vgpu_by;

typedef enum plim_vgpu_fits {
    PLIM_VGPU_FITS_UNKNOWN = -1, /* the tape is only a beginning, or that card would have
                                    chosen other kernels */
    PLIM_VGPU_FITS_NO = 0,       /* these three as in plim_fits */
    PLIM_VGPU_FITS_YES = 1,
    PLIM_VGPU_FITS_MAYBE = 2
} plim_vgpu_fits;

/* Peaks, phases and what is live are those of the attempt that ended well: from the last
 * request that failed to the end.  If none did end well, of the last one. */

/* figures: vgpu_tensors vgpu_line vgpu_growth vgpu_verdict vgpu_attempt vgpu_caveat vgpu_report */
/* clang-format off */
/* Tensors of a line that are live at the peak, of one category, certainty and shape. */
typedef struct plim_vgpu_tensors {
    uint32_t count; /* how many they are (tensors) */
    plim_category category; /* "parameter", "gradient", "activation" */
    /* what determines their sizes: "exact", "estimated", "unknown" */
    plim_certainty certainty;
    plim_dtype dtype; /* of each; only if shape_known */
    int rank; /* of each; only if shape_known */
    int64_t dim[8];
    uint64_t bytes; /* requested by all of them */
    bool shape_known; /* they are tensors of one dtype and shape, else memory of one size */
} plim_vgpu_tensors;

/* A line of the script, or a module or an op, and what it allocated. */
typedef struct plim_vgpu_line {
    const char *line; /* "train.py:23"; NULL: not known, or outside modules */
    const char *source; /* the text of the line; NULL: not known, or no line */
    uint64_t allocations; /* over the whole run */
    uint64_t requested; /* over the whole run */
    uint64_t live_at_peak; /* requested */
    const plim_vgpu_tensors *tensors; /* live at the peak, the largest first */
    uint32_t n_tensors;
} plim_vgpu_line;

/* A line of which more is live after every few steps. */
typedef struct plim_vgpu_growth {
    const char *line; /* "train.py:19"; NULL: not known */
    const char *source; /* the text of the line; NULL: not known */
    const char *holder; /* what keeps the tensors: "`losses` in `main`"; NULL: not known */
    uint64_t bytes; /* allocated, that are added every so many steps */
    uint64_t tensors; /* how many more; 0: as many, but larger */
    uint32_t every; /* after so many (steps) */
} plim_vgpu_growth;

/* How the run goes on a card: on its own as it did, on others as its tape says, up to the
 * first failure. */
typedef struct plim_vgpu_verdict {
    const char *gpu; /* the card's full name */
    uint64_t gpu_bytes; /* memory of the card */
    /* "yes", "no", "maybe", as in an estimate; PLIM_VGPU_FITS_UNKNOWN: the tape is only a
     * beginning, or that card takes other kernels */
    plim_vgpu_fits fits;
    uint64_t peak_allocated; /* in blocks, at its highest; only if peaks_known */
    uint64_t peak_reserved; /* from CUDA, at its highest; only if peaks_known */
    uint64_t device_low; /* reserved, context and NCCL, at the lower bounds; 0: not known */
    uint64_t device_high; /* the same at the upper bounds; 0: not known */
    /* of the request that fails first; empty: not known; NULL: none failed */
    const char *oom_line;
    const char *oom_text; /* what PyTorch says of that request; NULL: none failed */
    /* near which growth fills the card; 0: it does not, or only after a million steps */
    int64_t growth_step;
    /* the tape is what this card would do, or the script ran there by itself */
    bool peaks_known;
} plim_vgpu_verdict;

/* What ran until a request failed, after which the script went on. */
typedef struct plim_vgpu_attempt {
    const char *oom_line; /* of that request; empty: not known */
    uint64_t oom_bytes; /* by that request */
    uint64_t peak_requested; /* by tensors, at its highest */
    uint64_t peak_allocated; /* in blocks, at its highest */
    uint64_t peak_reserved; /* from CUDA, at its highest */
} plim_vgpu_attempt;

/* A remark, and how often it was made. */
typedef struct plim_vgpu_caveat {
    const char *line; /* "train.py:42"; empty: it is about no line */
    const char *what; /* "item() is a guess: 0 (--scalar)" */
    uint64_t count; /* how often (times) */
} plim_vgpu_caveat;

/* What one process did with one card. */
typedef struct plim_vgpu_report {
    /* -- card: the card, and the bounds of its CUDA context -- */
    plim_vgpu_card card; /* what it ran on */
    uint64_t context_low; /* of the CUDA context; 0: not known */
    uint64_t context_high; /* of the CUDA context; 0: not known */
    bool cudnn_search; /* cuDNN tried its plans: for a moment it may take all that is free */
    bool context_known; /* the size of the CUDA context is known */

    /* -- peak: where the most was allocated, and the bytes of each category that were live
     * then -- */
    int peak_step; /* as in a phase; -1: PLIM_PHASE_LOAD, which precedes step 0 */
    plim_phase peak_phase; /* as in a phase */
    const char *peak_op; /* the layer that ran; empty: not known */
    const char *peak_line; /* of the request; empty: not known */
    const uint64_t *category; /* the bytes live at the peak, indexed by plim_category */

    /* -- the rest, in no group -- */
    int rank; /* of a process that is one of several */
    int world; /* that train together (processes) */
    /* of NCCL's buffers, outside the allocator; an estimate: the lower bound */
    uint64_t nccl_low;
    uint64_t nccl_high; /* the upper bound */
    uint64_t peak_requested; /* by tensors; each peak is its own maximum */
    uint64_t peak_allocated; /* in blocks, as torch.cuda.max_memory_allocated() */
    uint64_t peak_reserved; /* from CUDA */
    uint64_t events; /* on the tape */
    uint64_t storages; /* on the tape; 0: the script did not use the card */
    uint64_t num_ooms; /* that failed (requests) */
    /* that were served only after cached memory was freed (requests) */
    uint64_t num_alloc_retries;
    int steps; /* that are complete */
    /* the smallest capacity of a card on which the run does not fail, context included: the
     * lower bound; 0: memory ran out, or it is not known */
    uint64_t needed_low;
    uint64_t needed_high; /* the upper bound of that capacity; 0: likewise */
    /* the run was too long to store: what was live at the peak is of its first part */
    bool truncated;
    plim_vgpu_by by; /* what lines are: "line", "module", "op" */
    const plim_vgpu_line *lines; /* by what is live at the peak, the largest first */
    uint32_t n_lines;
    const plim_vgpu_growth *growth; /* lines whose memory grows, the fastest first */
    uint32_t n_growth;
    uint32_t growth_steps; /* over which growth was looked for; 0: too few have run */
    bool growth_sure; /* these steps tell; else the lines are those that may grow */
    const plim_phase_row *phases; /* as they came, the first "load" */
    uint32_t n_phases;
    const plim_vgpu_verdict *cards; /* those that were named; at least the one it ran on */
    uint32_t n_cards;
    /* those that failed before what is told here, in order */
    const plim_vgpu_attempt *attempts;
    uint32_t n_attempts;
    const plim_vgpu_caveat *caveats; /* what the figures do not say */
    uint32_t n_caveats;
    /* "done"; "memory": the card ran out of memory; "error": another exception; "early": it
     * was stopped */
    plim_vgpu_end end;
    /* of the request that ended the script, or else of the first that failed; empty: not
     * known; NULL: none failed */
    const char *oom_line;
    const char *oom_text; /* what PyTorch says of that request; NULL: none failed */
    uint64_t growth_bytes; /* of all growing lines, a step */
    bool failed; /* what is told here is an attempt that failed: none ended well */
    bool ranked; /* it is one of several processes that train together */
    bool numbered; /* it is one of several cards, as plim_vgpu_machine_print prints it */
} plim_vgpu_report;
/* clang-format on */
/* end of figures */

/* The cards of the options that would have chosen other kernels, by name: the tape says
 * nothing about them.  Returns their number. */
PLIM_API uint32_t plim_vgpu_other_cards(plim_vgpu *d, const char **out, uint32_t max);

/* How a run by itself went on one of them: reports give this as its verdict, and without it
 * PLIM_VGPU_FITS_UNKNOWN.  Copied.  PLIM_EUSAGE: verdict->gpu is none of them. */
PLIM_API plim_status plim_vgpu_alone(plim_vgpu *d, const plim_vgpu_verdict *verdict,
                                     plim_err *err);

/* What reports made from now on group by; PLIM_VGPU_BY_LINE if nobody says.  PLIM_EUSAGE: there
 * is no such number. */
PLIM_API plim_status plim_vgpu_group(plim_vgpu *d, plim_vgpu_by by, plim_err *err);

/* The report on what has happened so far, for plim_vgpu_report_free; it outlives the
 * device. */
PLIM_API plim_status plim_vgpu_report_make(plim_vgpu *d, plim_vgpu_report **out,
                                           plim_err *err);

/* NULL: nothing happens. */
PLIM_API void plim_vgpu_report_free(plim_vgpu_report *r);

/* Prints a report through put(ud, text, n), piece by piece.  st NULL: the default style.
 * PLIM_EUNSUPPORTED: PLIM_CSV, which a run does not have. */
PLIM_API plim_status plim_vgpu_report_print(const plim_vgpu_report *r, plim_render how,
                                            const plim_style *st, plim_put put, void *ud,
                                            plim_err *err);

/* Prints the reports of n cards of one machine, and names the fullest first; of one card,
 * exactly what plim_vgpu_report_print prints.  The first card has the remarks. */
PLIM_API plim_status plim_vgpu_machine_print(const plim_vgpu_report *const *r, uint32_t n,
                                             plim_render how, const plim_style *st,
                                             plim_put put, void *ud, plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
