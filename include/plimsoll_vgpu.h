/* plimsoll_vgpu.h -- a pretend GPU, for a front end that runs a program instead of
 * a model.
 *
 * EXPERIMENTAL.  Nothing in this header is stable: names, structs and numbers change
 * with any version, without a change of the soname.  Programs that want to keep working
 * use plimsoll.h alone.  `plimsoll run` is what it is for.
 */
#ifndef PLIMSOLL_VGPU_H
#define PLIMSOLL_VGPU_H

#include "plimsoll.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A card that does not exist, for a front end that runs a program instead of a
 * model: it asks for memory as the program does, the simulated allocator answers,
 * and what happened is kept as a tape.  `plimsoll run` puts one under PyTorch.
 *
 * Unlike everything else here a device may be used from several threads at once. */
typedef struct plim_vgpu plim_vgpu;

/* Zero means "the default" everywhere; strings are borrowed during the call. */
typedef struct plim_vgpu_options {
    const char *gpu;        /* a card by name or alias; of a list "t4,a100" the largest */
    uint64_t vram;          /* its bytes; alone: a card of which only that is known */
    const char *torch;      /* PyTorch version; default the newest known */
    const char *alloc_conf; /* as PYTORCH_CUDA_ALLOC_CONF */
    const char *workspace;  /* "auto" (default), "off", "low", "high" */
} plim_vgpu_options;
#define PLIM_VGPU_OPTIONS_INIT                                                                \
    {                                                                                         \
        0                                                                                     \
    }

PLIM_API plim_status plim_vgpu_open(const plim_vgpu_options *o, plim_vgpu **out,
                                    plim_err *err);
PLIM_API void plim_vgpu_close(plim_vgpu *d);

/* What the card would say of itself. */
typedef struct plim_vgpu_card {
    const char *name, *torch;
    int cc, sms, threads_per_sm; /* 80, 108, 2048 where the card does not say */
    uint64_t total, context;     /* bytes; context: taken before the first tensor */
    bool workspace;              /* what kernels take inside is counted */
} plim_vgpu_card;
PLIM_API void plim_vgpu_card_get(const plim_vgpu *d, plim_vgpu_card *out);

/* ---- memory ---------------------------------------------------------------- */

/* What a request is for: names end up in the tape and the report. */
typedef struct plim_vgpu_tag {
    const char *line; /* of the user's code, "train.py:12"; NULL: not known */
    const char *op;   /* "aten::addmm"; NULL: not known */
    int dtype;        /* a plim_dtype; below 0: shape not known */
    int rank;
    const int64_t *dim;
    plim_category category;
    plim_certainty certainty;
} plim_vgpu_tag;

#define PLIM_VGPU_NONE UINT32_MAX

/* A block for `bytes`: its handle, for the calls below, and an address that
 * nothing lies behind.  Out of memory on the card is an answer, not an error:
 * the handle is PLIM_VGPU_NONE and plim_vgpu_oom_text says what PyTorch
 * would have said. */
PLIM_API plim_status plim_vgpu_malloc(plim_vgpu *d, uint64_t bytes, uint16_t stream,
                                      const plim_vgpu_tag *tag, uint32_t *block,
                                      uint64_t *addr, plim_err *err);
PLIM_API plim_status plim_vgpu_free(plim_vgpu *d, uint32_t block, plim_err *err);
PLIM_API plim_status plim_vgpu_record_stream(plim_vgpu *d, uint32_t block, uint16_t stream,
                                             plim_err *err);
/* All work of the stream, or of UINT16_MAX: all of them, has finished. */
PLIM_API plim_status plim_vgpu_sync(plim_vgpu *d, uint16_t stream, plim_err *err);
PLIM_API plim_status plim_vgpu_empty_cache(plim_vgpu *d, plim_err *err);
PLIM_API plim_status plim_vgpu_reset_peak(plim_vgpu *d, plim_err *err);
PLIM_API plim_status plim_vgpu_config(plim_vgpu *d, const char *alloc_conf, plim_err *err);
/* torch.cuda.set_per_process_memory_fraction */
PLIM_API plim_status plim_vgpu_fraction(plim_vgpu *d, double fraction, plim_err *err);
PLIM_API void plim_vgpu_mem_info(plim_vgpu *d, uint64_t *free_bytes, uint64_t *total);
/* Of the last request that failed; "" if none did. Valid until the next one. */
PLIM_API const char *plim_vgpu_oom_text(const plim_vgpu *d);

/* ---- kernels: by the rules that predictions use --------------------------- */

typedef struct plim_vgpu_tensor {
    int dtype; /* a plim_dtype; below 0: None */
    int rank;
    int64_t dim[8], stride[8];
} plim_vgpu_tensor;

typedef enum plim_vgpu_kind {
    PLIM_VGPU_NOTHING, /* None, or what no kernel asks for */
    PLIM_VGPU_TENSOR,  /* .tensors[0] */
    PLIM_VGPU_TENSORS, /* .tensors[n] */
    PLIM_VGPU_INT,     /* .ints[0]: also bool; a data type as a plim_dtype */
    PLIM_VGPU_INTS,    /* .ints[n] */
    PLIM_VGPU_FLOAT    /* .number */
} plim_vgpu_kind;

typedef struct plim_vgpu_arg {
    const char *name; /* in the op's schema */
    plim_vgpu_kind kind;
    uint32_t n;
    const plim_vgpu_tensor *tensors;
    const int64_t *ints;
    double number;
} plim_vgpu_arg;

typedef struct plim_vgpu_kernel_call {
    const plim_vgpu_arg *args;
    uint32_t n_args;
    uint16_t stream;
    bool autograd_thread; /* it has a cuBLAS workspace of its own */
    const plim_vgpu_tag *tag;
} plim_vgpu_kernel_call;

typedef struct plim_vgpu_result {
    plim_vgpu_tensor tensor;
    uint32_t block; /* its own, now the caller's; PLIM_VGPU_NONE: see below */
    uint64_t addr, bytes;
    uint32_t shares;   /* the storage of this earlier result */
    uint32_t argument; /* it is this one of the tensors given, counted through all args */
} plim_vgpu_result;

/* The kernels there are: "addmm", "sum.dim_IntList"; NULL past the last.  *makes:
 * it makes the op's results; else it is what the op takes once they are there. */
PLIM_API const char *plim_vgpu_kernel_name(uint32_t i, bool *makes);

/* Takes what the kernel's host code takes, in its order, and gives back what it
 * gives back.  *oom: the card is full, and nothing is held. */
PLIM_API plim_status plim_vgpu_kernel(plim_vgpu *d, const char *name,
                                      const plim_vgpu_kernel_call *call, plim_vgpu_result *out,
                                      uint32_t max, uint32_t *n_out, bool *oom, plim_err *err);
typedef struct plim_vgpu_attention_call {
    bool mask, mask_grad, causal, gqa, dropout; /* mask_grad: it wants a gradient */
    unsigned without; /* what the user has switched off: bit 1 flash, 2 memory-efficient,
                         3 cuDNN */
} plim_vgpu_attention_call;
/* Which kernel attention takes on this card: 0 math, 1 flash, 2 memory-efficient,
 * 3 cuDNN. */
PLIM_API int plim_vgpu_attention(plim_vgpu *d, const plim_vgpu_tensor *q,
                                 const plim_vgpu_tensor *k, const plim_vgpu_tensor *v,
                                 const plim_vgpu_attention_call *call);

/* Counters under the names of torch.cuda.memory_stats ("allocated_bytes").
 * Returns how many there are. */
typedef enum plim_stat_kind {
    PLIM_STAT_POOLS, /* small and large are its two parts: "allocation" */
    PLIM_STAT_WHOLE, /* "oversize_segments" */
    PLIM_STAT_NUMBER /* all.current alone: "num_ooms" */
} plim_stat_kind;
typedef struct plim_vgpu_stat {
    const char *name;
    plim_stat_kind kind;
    plim_stat all, small, large;
} plim_vgpu_stat;
PLIM_API uint32_t plim_vgpu_stats(plim_vgpu *d, plim_vgpu_stat *out, uint32_t max);
/* torch.cuda.reset_accumulated_memory_stats: what went in and out, from here on. */
PLIM_API void plim_vgpu_reset_accumulated(plim_vgpu *d);

/* What lies where: the pieces of the segments in the order of their addresses. */
typedef struct plim_vgpu_block {
    uint64_t addr, bytes, requested;
    uint16_t stream;
    uint8_t state; /* 0 free, 1 allocated, 2 freed but another stream may use it, 3 unmapped */
    bool first, small, expandable;
    const char *line, *op; /* of who asked for it; "" if free */
} plim_vgpu_block;
PLIM_API uint32_t plim_vgpu_blocks(plim_vgpu *d, plim_vgpu_block *out, uint32_t max);

/* torch.cuda.memory._record_memory_history: keeps the last `entries` actions of
 * the allocator from here on; 0: no more of them. */
PLIM_API void plim_vgpu_history(plim_vgpu *d, uint64_t entries, bool clear);
typedef struct plim_vgpu_trace {
    const char *action; /* "alloc", "segment_alloc" */
    uint64_t addr;      /* "oom": what the device has free */
    uint64_t bytes;
    uint64_t number; /* of the action, from 0: there is no clock */
    uint16_t stream;
    const char *line, *op; /* of who asked for the block; "": not known */
} plim_vgpu_trace;
/* The oldest first; returns how many there are. */
PLIM_API uint32_t plim_vgpu_traces(plim_vgpu *d, plim_vgpu_trace *out, uint32_t max);

/* ---- the story ------------------------------------------------------------- */

/* From here on this happens. */
PLIM_API plim_status plim_vgpu_mark(plim_vgpu *d, int step, plim_phase phase, const char *op,
                                    plim_err *err);
/* Says later what a block turned out to be; name NULL: only the category. */
PLIM_API plim_status plim_vgpu_label(plim_vgpu *d, uint32_t block, plim_category category,
                                     const char *name, plim_err *err);
/* Something on this line that the report must mention: "loss.item() read 0". */
PLIM_API plim_status plim_vgpu_note(plim_vgpu *d, const char *line, const char *what,
                                    plim_err *err);
/* The lines that have been named so far; returns how many there are.  And what
 * stands on one of them. */
PLIM_API uint32_t plim_vgpu_lines(plim_vgpu *d, const char **out, uint32_t max);
PLIM_API plim_status plim_vgpu_source(plim_vgpu *d, uint32_t line, const char *text,
                                      plim_err *err);
/* How the program is about to end; DONE if nobody says. */
typedef enum plim_vgpu_end {
    PLIM_VGPU_END_DONE,
    PLIM_VGPU_END_EARLY,  /* an error, or somebody stopped it: what came before counts */
    PLIM_VGPU_END_MEMORY, /* the card's ran out */
    PLIM_VGPU_END_COUNT
} plim_vgpu_end;
PLIM_API plim_status plim_vgpu_ended(plim_vgpu *d, plim_vgpu_end how, plim_err *err);
/* The tape so far, as `plimsoll replay` reads it; names hold the lines. */
PLIM_API plim_status plim_vgpu_save(plim_vgpu *d, const char *path, plim_err *err);

typedef struct plim_vgpu_tensors { /* of one line, live at the peak, of one shape */
    uint32_t line, count;          /* line: index into lines */
    plim_category category;
    int dtype, rank; /* dtype below 0: shape not known */
    int64_t dim[8];
    uint64_t bytes; /* requested, all of them */
} plim_vgpu_tensors;

typedef struct plim_vgpu_line {
    const char *line, *source;       /* source: what stands there; "" if not known */
    uint64_t allocations, requested; /* over the whole run */
    uint64_t live;                   /* requested bytes that are live at the peak */
} plim_vgpu_line;

typedef struct plim_vgpu_caveat {
    const char *line, *what;
    uint64_t count;
} plim_vgpu_caveat;

/* How the run would go on a card: on the one that it ran on as it did, on the
 * others as its tape says, up to the first request that fails. */
typedef struct plim_vgpu_verdict {
    const char *gpu;
    uint64_t gpu_bytes;
    int fits; /* 1 yes, 0 no, -1 not known: the tape is only a beginning, or that card
                 would have chosen other kernels */
    uint64_t peak_allocated, peak_reserved;
    uint64_t device_low, device_high; /* with the context; 0 and 0: not known */
    const char *oom_line, *oom_text;  /* NULL: none */
} plim_vgpu_verdict;

typedef struct plim_vgpu_report {
    plim_vgpu_card card;
    uint64_t context_low, context_high;
    bool context_known;
    uint64_t peak_requested, peak_allocated, peak_reserved; /* each its own maximum */
    uint64_t events, storages;
    bool truncated; /* no memory of our own for more events: the tape is a beginning */
    int peak_step;
    plim_phase peak_phase;
    const char *peak_op, *peak_line;
    uint64_t category[PLIM_CAT_COUNT]; /* requested, live at the peak */
    const plim_phase_row *phases;
    uint32_t n_phases;
    const plim_vgpu_line *lines; /* by live, largest first */
    uint32_t n_lines;
    const plim_vgpu_tensors *tensors; /* likewise by line, then by bytes */
    uint32_t n_tensors;
    const plim_vgpu_caveat *caveats;
    uint32_t n_caveats;
    uint64_t num_ooms, num_alloc_retries;
    plim_vgpu_end end;
    const char *oom_text, *oom_line; /* of the first; NULL: none */
    const plim_vgpu_verdict *cards;  /* as --gpu names them */
    uint32_t n_cards;
} plim_vgpu_report;

PLIM_API plim_status plim_vgpu_report_make(plim_vgpu *d, plim_vgpu_report **out,
                                           plim_err *err);
PLIM_API void plim_vgpu_report_free(plim_vgpu_report *r);
PLIM_API plim_status plim_vgpu_report_print(const plim_vgpu_report *r, plim_render how,
                                            const plim_style *st, plim_put put, void *ud,
                                            plim_err *err);

#ifdef __cplusplus
}
#endif
#endif
