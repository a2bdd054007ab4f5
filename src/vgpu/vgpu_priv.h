/* vgpu_priv.h -- the pretend GPU's insides, for the files of src/vgpu only.
 *
 * In this order, each calls only what stands before it:
 *
 *     vgpu_tape.c      what is written down: words, lines, shapes, the tape, counters
 *     vgpu_memory.c    requests and releases, served by the simulated allocator
 *     vgpu_kernel.c    what kernels request, by the machines that op rules run on
 *     vgpu_history.c   what the allocator holds and has done: stats, blocks, traces
 *     vgpu_growth.c    memory that grows from step to step, and who holds it
 *     vgpu_verdict.c   the same run on other cards
 *     vgpu_report.c    what was live at the peak, and whose
 *     vgpu.c           opening and closing
 *
 * Public functions take the lock; what is declared here is called with it held. */
#ifndef PLIM_VGPU_PRIV_H
#define PLIM_VGPU_PRIV_H

#include <pthread.h>

#include "alloc/sim.h"
#include "gpu/gpu.h"
#include "machine/machine.h"
#include "plimsoll_vgpu.h"
#include "torch/torch.h"
#include "world/world.h"

typedef struct vgpu_slot { /* what a handle stands for */
    uint32_t block;        /* the allocator's; PLIM_NONE: the handle is free */
    uint32_t storage;      /* on the tape; PLIM_NONE: it was not written down */
    uint32_t line;
    uint32_t next_free;
    uint64_t bytes;
    const char *op;
} vgpu_slot;

typedef struct line_row {
    const char *text, *source, *holder;
    uint64_t allocations, requested;
    bool bounded; /* what holds its tensors stops to grow */
} line_row;

/* From the start, or from a request that failed, to the next that fails, or to the end. */
typedef struct vgpu_attempt {
    uint64_t peak_requested, peak_allocated, peak_reserved;
    uint32_t peak_event, peak_line;
    plim_mark peak_at;
    uint32_t first_row;              /* of its phases */
    const char *oom_text, *oom_line; /* of the request that failed; NULL: none did */
    uint64_t oom_bytes;              /* requested */
} vgpu_attempt;

typedef struct vgpu_origin { /* of a storage: who allocated it */
    uint32_t line;
    const char *module, *op;
} vgpu_origin;

typedef struct vgpu_growth { /* of a line, after every so many steps */
    uint32_t line, every;
    uint64_t bytes, tensors; /* tensors 0: as many as before, but larger */
} vgpu_growth;

typedef struct vgpu_growths {
    vgpu_growth *rows; /* fastest first */
    uint32_t n;
    uint32_t steps; /* whose ends were compared with the one before; 0: too few */
    bool sure;      /* enough of them to tell: else the rows are what may grow */
} vgpu_growths;

struct plim_vgpu {
    pthread_mutex_t lock;
    plim_arena arena;   /* of the allocator, the slots and this struct */
    plim_arena story;   /* the tape, words, rows */
    plim_arena kernels; /* the machines below */
    plim_arena text;    /* of the last out-of-memory text */
    plim_arena history; /* the allocator's actions */
    plim_arena scratch; /* of one call */

    plim_vgpu_card card;
    plim_gpu gpu;
    uint64_t context_high; /* of that card */
    int rank, world_size;  /* of the processes that train together */
    uint64_t nccl_low, nccl_high;
    const plim_torch *torch;
    plim_world world;           /* what kernels see of it */
    plim_alloc_options options; /* of h; others are like it but for the card */
    plim_bound bound;
    plim_alloc *h;
    const plim_gpu **cards; /* as they were named; NULL: none was */
    uint32_t n_cards;
    bool *other_way;           /* of each: the run would have gone another way there */
    plim_vgpu_verdict **alone; /* of each: how it went there by itself; NULL: not known */

    uint64_t *published; /* plim_vgpu_publish */

    vgpu_slot *slots;
    uint32_t n_slots, cap_slots, free_slot;

    plim_tape tape;
    bool truncated;
    vgpu_origin *origin; /* of each storage */
    uint32_t n_origins, cap_origins;
    plim_mark at; /* becomes a mark when something happens */
    bool at_new;
    int32_t warm; /* the step in which the last optimizer took its first */

    plim_map words, lines_by_text, metas_by_key, caveats_by_key;
    const char **word;
    uint32_t n_words, cap_words;
    line_row *lines;
    uint32_t n_lines, cap_lines;
    plim_meta **metas;
    uint32_t n_metas, cap_metas;
    plim_vgpu_caveat *caveats;
    uint32_t n_caveats, cap_caveats;
    plim_phase_row *rows;
    uint32_t n_rows, cap_rows;

    uint64_t requested;        /* live */
    vgpu_attempt *failed, now; /* attempts; now: the one under way */
    uint32_t n_failed, cap_failed;

    const char *oom_text; /* the last */
    plim_vgpu_end end;
    plim_vgpu_by by;

    plim_alloc_stats zero[3]; /* all, small, large: what counts as nothing went in and out */
    plim_vgpu_trace *traces;  /* a ring of max_traces once it is full */
    uint32_t n_traces, cap_traces, max_traces, asked_traces;
    uint64_t traced;
    uint32_t line_now; /* whose request or block the allocator has in hand */
    const char *op_now;

    plim_machine *kernel[2]; /* main thread, autograd thread: what kernels take inside */
    plim_tape inside;        /* their events, until they are served */
    plim_err kernel_err;
};

/* ---- vgpu_tape.c ------------------------------------------------------------- */

/* Each string once; NULL, as an argument: "", as the answer: the story is full. */
const char *plim__vgpu_word(plim_vgpu *d, const char *z);
const char *plim__vgpu_word_of(plim_vgpu *d, plim_str key);
/* A word to be noted with a line that there is.  PLIM_EUSAGE: there is no such line. */
plim_status plim__vgpu_line_word(plim_vgpu *d, uint32_t line, const char *text,
                                 const char **own, plim_err *err);
/* The number of a line, and its text; PLIM_NONE: no room, "". */
uint32_t plim__vgpu_line(plim_vgpu *d, const char *z);
const char *plim__vgpu_line_text(const plim_vgpu *d, uint32_t line);
/* Each shape once; NULL: not known, or no room. */
const plim_meta *plim__vgpu_meta(plim_vgpu *d, const plim_vgpu_tag *tag);
/* What nobody has said, the phase suggests. */
plim_category plim__vgpu_category(const plim_vgpu *d, const plim_vgpu_tag *tag);

/* What happened goes onto the tape, or makes it truncated.  A storage's number
 * there; PLIM_NONE: it was not written down, which the other two accept. */
uint32_t plim__vgpu_tape_alloc(plim_vgpu *d, const plim_storage *like, uint16_t stream,
                               const plim_vgpu_tag *tag, uint32_t line);
void plim__vgpu_tape_free(plim_vgpu *d, uint32_t storage);
void plim__vgpu_tape_event(plim_vgpu *d, plim_event e);
void plim__vgpu_tape_config(plim_vgpu *d, const char *alloc_conf);

/* Takes the allocator's counters down, after a request, whose peak is this line's, or after a
 * release. */
void plim__vgpu_count(plim_vgpu *d, bool request, uint32_t line);
/* The attempt under way has failed, and another one begins. */
void plim__vgpu_attempt_failed(plim_vgpu *d, uint32_t line, uint64_t bytes);
/* The attempt to report: the one that ended well, or the last. */
const vgpu_attempt *plim__vgpu_attempt(const plim_vgpu *d);

/* ---- vgpu_memory.c ----------------------------------------------------------- */

/* *out: the block; PLIM_VGPU_NONE: the card is out of memory. */
plim_status plim__vgpu_serve(plim_vgpu *d, const plim_storage *what, uint16_t stream,
                             const plim_vgpu_tag *tag, uint32_t *out, plim_err *err);
plim_status plim__vgpu_take_back(plim_vgpu *d, uint32_t block, plim_err *err);
/* As torch.cuda.empty_cache(); the lock is held. */
plim_status plim__vgpu_empty_cache(plim_vgpu *d, plim_err *err);

/* ---- vgpu_kernel.c ----------------------------------------------------------- */

plim_status plim__vgpu_open_kernels(plim_vgpu *d, plim_err *err);

/* ---- vgpu_growth.c ----------------------------------------------------------- */

/* The lines whose memory grows, or may, in `a`. */
plim_status plim__vgpu_growth(plim_vgpu *d, plim_arena *a, vgpu_growths *out, plim_err *err);

/* ---- vgpu_verdict.c ---------------------------------------------------------- */

/* What the allocator gets of a card, as fit counts: less the upper context.  A card
 * smaller than that has nothing. */
uint64_t plim__vgpu_capacity(const plim_gpu *gpu, const plim_libraries *lib);
/* The context of the script, by what has run; gpu NULL: on its own card. */
plim_gpu_context plim__vgpu_context(const plim_vgpu *d, const plim_gpu *gpu);
/* A copy in `a`, of NULL too; no memory clears *ok. */
const char *plim__vgpu_copy(plim_arena *a, const char *z, bool *ok);
/* r->cards, once the rest of the report is there. */
plim_status plim__vgpu_verdicts(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r,
                                plim_err *err);

#endif
