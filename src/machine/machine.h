/* machine.h -- the abstract machine that op rules run on: eager PyTorch on one CUDA device,
 * without kernels and without data.
 *
 * The machine has storages with a size and a reference count, tensors (a meta on a storage),
 * and autograd nodes that keep tensors alive.  Creating a storage writes an alloc event to the
 * tape, dropping its last reference a free event; so the order of a rule's calls *is* the
 * order of PyTorch's requests.
 *
 * Ownership: a function that returns a plim_t gives the caller one reference; plim_m_drop
 * releases it.  Arguments are borrowed.  Handle 0 is "undefined" (an absent optional tensor, a
 * gradient that is not needed); every function accepts it and ignores it.
 *
 * Errors are sticky: after the first plim_m_fail nothing more is written to the tape and every
 * new handle is 0, so rules need not check each call. */
#ifndef PLIM_MACHINE_H
#define PLIM_MACHINE_H

#include "core/rule.h"
#include "core/tape.h"
#include "machine/work.h"
#include "torch/torch.h"

typedef uint32_t plim_t;

struct plim_machine;
typedef struct plim_machine plim_machine;

/* ---- what the outside world is like (src/torch, src/gpu fill it) -------- */

/* Used where the card does not say: the values of an A100. */
enum { PLIM_USUAL_CC = 80, PLIM_USUAL_SMS = 108, PLIM_USUAL_THREADS_PER_SM = 2048 };

/* The closed libraries, and what a script asks of them: false is PyTorch's default, but for
 * `workspace`. */
typedef struct plim_libraries {
    int torch; /* the version that they came with: the one asked for, where plim_world.torch is
                  that of the nearest profile */
    bool eager;         /* modules are loaded eagerly: CUDA_MODULE_LOADING=EAGER */
    bool workspace;     /* count what they and kernels take for themselves */
    bool no_tf32;       /* torch.backends.cudnn.allow_tf32 is off */
    bool benchmark;     /* torch.backends.cudnn.benchmark is on */
    bool cublas_given;  /* CUBLAS_WORKSPACE_CONFIG is set, */
    uint64_t cublas_ws; /* to this many bytes */
} plim_libraries;

/* What a run has asked of its card: it is the same on all that answer alike. */
typedef struct plim_asked {
    int since, before; /* compute capabilities from the one on, and below the other */
    bool sms;          /* how many SMs there are */
} plim_asked;

typedef struct plim_world {
    int torch; /* 100 * major + minor; compare with PLIM_SINCE_... of torch.def */
    int cc;    /* compute capability * 10: 80, 89, 90; rules ask by plim_world_since and _is */
    bool eval; /* dropout and batch norm as after model.eval() */
    int sms, threads_per_sm; /* 0: PLIM_USUAL_... */
    /* exact: the card's; estimated: the usual ones, no card was chosen; unknown: neither are the card's */
    plim_certainty sms_are;
    plim_libraries lib;
    uint64_t cublas_ws; /* persistent (or, if temporary, per call) bytes; 0: none */
    bool cublas_ws_temporary;
    uint64_t lt_ws; /* cuBLASLt workspace; 0: shared with the above or none */
    bool lt_ws_temporary;
    plim_asked *asked; /* where questions are noted; NULL: nowhere */
} plim_world;

bool plim_world_since(const plim_world *w,
                      int cc); /* Is it of this compute capability or newer? */
bool plim_world_is(const plim_world *w, int cc);
plim_asked plim_asked_nothing(void);
/* Of a run in this world that may ask anything. */
plim_asked plim_asked_all(const plim_world *w);
/* Is what was asked in one world answered alike in another of the same PyTorch and libraries? */
bool plim_asked_alike(const plim_asked *asked, const plim_world *in, const plim_world *other);
/* Adds what another run, to which the card answered alike, has asked. */
void plim_asked_add(plim_asked *to, const plim_asked *more);

/* ---- autograd nodes ----------------------------------------------------- */

enum { PLIM_MAX_SAVED = 10, PLIM_MAX_GRADS = 8 };

struct plim_gnode;

/* A kind of autograd node.  `backward` gets the gradients of the outputs (g[i] may be 0) and
 * leaves the gradients of the inputs in dx[i] (0: none).  It owns what it puts there and only
 * borrows g.  Saved tensors are read with plim_m_saved.  It must not compute dx[i] where
 * !plim_m_wants(m, n, i). */
typedef struct plim_grad_fn {
    const char *name; /* "ConvolutionBackward0" */
    void (*backward)(plim_machine *m, struct plim_gnode *n, const plim_t *g, plim_t *dx);
} plim_grad_fn;

typedef struct plim_edge {
    uint32_t node; /* gnode id, or PLIM_NONE: this input needs no gradient */
    uint32_t slot; /* which output of that node */
} plim_edge;

typedef struct plim_gnode {
    const plim_grad_fn *fn; /* NULL: AccumulateGrad */
    uint32_t seq;           /* larger runs first; AccumulateGrad: UINT32_MAX */
    uint32_t where;         /* graph node that created it: names the events */
    uint32_t n_in, n_out;   /* differentiable inputs; outputs */
    plim_edge *next;        /* [n_in] */
    plim_meta *in_meta;     /* [n_in] size and dtype that the gradient must have */
    plim_t saved[PLIM_MAX_SAVED];
    int64_t i[12];         /* whatever the backward needs: sizes, flags */
    const plim_meta *meta; /* for the backward: the meta given to plim_m_note */
    plim_t leaf;           /* AccumulateGrad: the parameter */
    /* used by the engine only: */
    uint32_t deps, stamp;
    bool queued;   /* as a root */
    plim_t *inbox; /* [n_out] */
} plim_gnode;

/* ---- tensors ------------------------------------------------------------ */

const plim_meta *plim_m_meta(const plim_machine *m, plim_t t);
bool plim_m_requires_grad(const plim_machine *m, plim_t t);
const plim_world *plim_m_world(const plim_machine *m);
void plim_m_set_libraries(plim_machine *m, plim_libraries lib);
/* The card's number of SMs and the threads per SM. */
int plim_m_sms(plim_machine *m, int *threads_per_sm);
plim_asked plim_m_asked(const plim_machine *m); /* by all rules so far */
void plim_m_ask_anew(plim_machine *m);          /* and from here on by those that follow */

plim_t plim_m_ref(plim_machine *m, plim_t t); /* one more reference to the same tensor */
void plim_m_drop(plim_machine *m, plim_t t);

/* A new tensor on a new storage.  An empty one makes no request.  It is named after the op
 * that is running.  Strides as in meta. */
plim_t plim_m_empty(plim_machine *m, const plim_meta *meta);
plim_t plim_m_empty_contig(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim);
plim_t plim_m_empty_like(plim_machine *m, plim_t t); /* strides preserved if dense */
/* A tensor that may not be allocated at all, depending on the data.  Estimated: between
 * nothing and its full size. */
plim_t plim_m_empty_maybe(plim_machine *m, const plim_meta *meta);
/* A tensor whose number of rows depends on the data: usually that of meta, between low and
 * high. */
typedef struct plim_rows {
    uint64_t low, usual, high;
} plim_rows;
plim_t plim_m_empty_rows(plim_machine *m, const plim_meta *meta, plim_rows n);
/* Memory that a kernel or a library takes for itself: counted as workspace, and not at all
 * with workspace=off.  Given in bytes, or as the shape of a tensor. */
plim_t plim_m_scratch(plim_machine *m, uint64_t bytes);
plim_t plim_m_scratch_of(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim);
/* The same where the exact size is not known: usually `usual` bytes (perhaps none), between
 * low and high; or about `bytes`, from a formula that was never measured. */
plim_t plim_m_scratch_range(plim_machine *m, uint64_t low, uint64_t usual, uint64_t high);
plim_t plim_m_scratch_about(plim_machine *m, uint64_t bytes);
/* The same where the size follows from the number of multiprocessors, and is as certain. */
plim_t plim_m_scratch_by_sms(plim_machine *m, uint64_t bytes);
/* A tensor that a library makes at its first use, for this key and meta, and keeps forever: borrowed. */
plim_t plim_m_kept(plim_machine *m, plim_str key, const plim_meta *meta);
/* Holds t, as an attribute of that name of some Python object does, until another one takes its place. */
void plim_m_set_attribute(plim_machine *m, plim_str name, plim_t t);
/* Holds t for work that is put off, until plim_m_catch_up; how many tensors are held so. */
void plim_m_defer(plim_machine *m, plim_t t);
uint32_t plim_m_deferred(const plim_machine *m);
void plim_m_catch_up(plim_machine *m);
/* cuDNN tries its plans, unless it has for this key in this thread: for a moment, it may take
 * all memory that is free; then PyTorch empties the cache. */
void plim_m_search(plim_machine *m, plim_str key);

/* Another tensor on the same storage (no request, no autograd). */
plim_t plim_m_alias(plim_machine *m, plim_t t, const plim_meta *meta);
/* A tensor whose storage is not counted by this machine. */
plim_t plim_m_outside(plim_machine *m, const plim_meta *meta);
/* t's storage on the tape, or PLIM_NONE. */
uint32_t plim_m_tape_storage(const plim_machine *m, plim_t t);

/* A Python number wrapped as a 0-dim CPU tensor: no bytes, promotes weakly. */
plim_t plim_m_wrapped(plim_machine *m, bool is_float);
bool plim_m_is_wrapped(const plim_machine *m, plim_t t);

/* A sparse tensor (COO) of meta's size.  Its indices are [1, n], its values [n, ...]; it takes
 * both references.  Coalesced: no index occurs twice.  The accessors return borrowed parts, 0
 * for a dense tensor. */
plim_t plim_m_sparse(plim_machine *m, const plim_meta *meta, plim_t indices, plim_t values,
                     bool coalesced);
plim_t plim_m_indices(const plim_machine *m, plim_t t);
plim_t plim_m_values(const plim_machine *m, plim_t t);
bool plim_m_coalesced(const plim_machine *m, plim_t t);
plim_t plim_m_sparse_copy(plim_machine *m, plim_t t);
/* A copy with n rows, whichever they are. */
plim_t plim_m_sparse_like(plim_machine *m, plim_t t, int64_t n);

/* ---- recording ---------------------------------------------------------- */

/* An autograd node over these inputs, or NULL if none is recorded (grad mode off, or no input
 * requires grad).  Valid until the next call of this function.  `inputs` are the
 * differentiable inputs, in the order in which their gradients are delivered. */
plim_gnode *plim_m_node(plim_machine *m, const plim_grad_fn *fn, uint32_t n,
                        const plim_t *inputs);
/* n may be NULL in all of these. */
void plim_m_save(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t);
/* Keeps t for as long as the node exists: backward does not release it, a checkpoint does not see it.
 * Such is an attribute of the context of an autograd function. */
void plim_m_hold(plim_machine *m, plim_gnode *n, plim_t t);
void plim_m_note(plim_machine *m, plim_gnode *n, const plim_meta *meta); /* n->meta: a copy */
void plim_m_output(plim_machine *m, plim_gnode *n, uint32_t slot,
                   plim_t t); /* t.grad_fn = n */
/* t is a view of `of` for autograd: writing into it changes the history of both. */
void plim_m_view_of(plim_machine *m, plim_t t, plim_t of);
/* In-place: t (already aliased by the caller) becomes output 0 of n. */
void plim_m_rebase(plim_machine *m, plim_gnode *n, plim_t t);
bool plim_m_wants(const plim_machine *m, const plim_gnode *n, uint32_t input);
void plim_m_wanted(const plim_machine *m, const plim_gnode *n, bool *out, uint32_t count);
plim_t plim_m_saved(const plim_machine *m, const plim_gnode *n, uint32_t slot); /* borrowed */
bool plim_m_would_record(const plim_machine *m, uint32_t n, const plim_t *inputs);

/* ---- autocast ----------------------------------------------------------- */

/* Everything from here on runs as under torch.autocast(dtype).  PLIM_DTYPE_COUNT ends the
 * region and drops the cached casts of parameters. */
void plim_m_autocast(plim_machine *m, plim_dtype t);
/* t in fp32 under autocast, else t; owned.  For ops called by other ops: the arguments of a
 * graph node are cast before its rule runs (autocast.def). */
plim_t plim_m_autocast_f32(plim_machine *m, plim_t t);
/* The dtype of a softmax or a sum of t if the caller requests none. */
plim_dtype plim_m_autocast_out(const plim_machine *m, plim_t t);

/* ---- checkpointing ------------------------------------------------------ */

/* A region is a part of the graph whose nodes keep no saved tensors.  It holds its input
 * tensors and is run a second time by `recompute` when the first of its nodes runs backward.
 * In the reentrant variant `recompute_backward` runs all of it backward: it gets the gradients
 * of the region's outputs and leaves those of its inputs. */
typedef void (*plim_m_recompute)(void *ud, uint32_t region, const plim_t *input, uint32_t n);
typedef void (*plim_m_recompute_backward)(void *ud, uint32_t region, const plim_t *input,
                                          uint32_t n, const plim_t *g, plim_t *dx);
void plim_m_on_recompute(plim_machine *m, plim_m_recompute recompute,
                         plim_m_recompute_backward recompute_backward, void *ud);
void plim_m_region_begin(plim_machine *m, uint32_t region);
void plim_m_region_input(plim_machine *m, plim_t t);
void plim_m_region_end(plim_machine *m);
/* Between begin and end, after a forward without gradients: a single autograd node produces
 * all of out[]. */
void plim_m_region_reentrant(plim_machine *m, const plim_t *out, uint32_t n_out);
/* True once the second forward has saved all that is needed: the rest of it is skipped. */
bool plim_m_stopped(const plim_machine *m);

/* ---- wrappers of the model (src/share) -------------------------------------- */

/* Frees the memory of t's storage, and allocates it again, in t's size: all tensors on it stay.
 * src: UntypedStorage.resize_ */
void plim_m_storage_free(plim_machine *m, plim_t t);
void plim_m_storage_alloc(plim_machine *m, plim_t t);

/* leaf.data = t: the leaf, and what autograd has saved of it, lies on t's storage; on none if t is 0. */
void plim_m_set_data(plim_machine *m, plim_t leaf, plim_t t);

/* t.record_stream(stream): its memory is not used again before that stream has come to where t is freed. */
void plim_m_record_stream(plim_machine *m, plim_t t, uint16_t stream);

/* stream.synchronize(); PLIM_ALL_STREAMS: torch.cuda.synchronize() */
void plim_m_synchronize(plim_machine *m, uint16_t stream);

/* torch.cuda.empty_cache() */
void plim_m_empty_cache(plim_machine *m);

/* The stream on which storages are made from here on: 0 is the default stream. */
void plim_m_set_stream(plim_machine *m, uint16_t stream);

/* What a wrapper hears of the backward pass. */
typedef struct plim_m_watch {
    void (*gradient)(void *ud, plim_t leaf); /* its gradient was accumulated */
    void (*passed)(void *ud, uint32_t mark); /* gradients have come as far as this mark */
    void (*finished)(void *ud);              /* the end of loss.backward() */
    void *ud;
} plim_m_watch;
void plim_m_set_watch(plim_machine *m, const plim_m_watch *watch); /* borrowed */
/* Puts one autograd node on those of t[] that require a gradient: they are replaced by tensors on the
 * same storages. */
void plim_m_mark(plim_machine *m, uint32_t mark, plim_t *t, uint32_t n);

/* ---- work ----------------------------------------------------------------- */

/* Records the work of what runs next in this ledger; NULL: no longer. */
void plim_m_record(plim_machine *m, plim_ledger *ledger);
/* A kernel that multiplies operands of this type is about to run. */
void plim_m_product(plim_machine *m, plim_work_class klass, uint64_t macs, plim_dtype t);
/* So is one of this class in which each of so many blocks works through a part by itself; 0: as many as any card
 * holds. */
void plim_m_blocks(plim_machine *m, plim_work_class klass, uint64_t blocks);
/* What is known of it besides: how its operands lie; the shortest side of its matrices; that TF32 is off; how much a
 * pass of its own moves for a bias. */
void plim_m_form(plim_machine *m, plim_work_form form);
void plim_m_side(plim_machine *m, uint64_t side);
void plim_m_full(plim_machine *m);
void plim_m_bias(plim_machine *m, uint64_t bytes);
/* Rows for what no op did: tensors made since the last op; so many bytes moved. */
void plim_m_work_rest(plim_machine *m, plim_work_class klass);
void plim_m_work_bytes(plim_machine *m, plim_work_class klass, uint32_t kernels,
                       uint64_t bytes);

/* ---- errors ------------------------------------------------------------- */

void plim_m_fail(plim_machine *m, plim_status code, const char *fmt, ...) PLIM_PRINTF(3, 4);
void plim_m_oom(plim_machine *m); /* our own memory, not the modelled GPU */
bool plim_m_bad(const plim_machine *m);
/* After a kernel failed: the next call starts without an error. */
void plim_m_clear_error(plim_machine *m);

/* ---- driving it (src/step) ---------------------------------------------- */

/* A machine in an arena of the caller.  tape NULL: shapes only, no events. */
plim_machine *plim_m_new(plim_arena *a, plim_tape *tape, const plim_world *w, plim_err *err);
plim_status plim_m_status(const plim_machine *m);
bool plim_m_shapes_only(const plim_machine *m); /* before autocast, and on no card */
/* Sets the name, role and category of the storages created next. */
void plim_m_place(plim_machine *m, uint32_t where, plim_str name, const char *role,
                  plim_category c);
bool plim_m_grad_mode(const plim_machine *m);
void plim_m_set_grad_mode(plim_machine *m, bool on);
/* A leaf (parameter, buffer, input); writes its alloc event now. */
plim_t plim_m_leaf(plim_machine *m, const plim_meta *meta, bool requires_grad);
/* Makes a view a leaf of its own, such as a parameter that lies in a larger buffer. Returns
 * t. */
plim_t plim_m_as_leaf(plim_machine *m, plim_t t, bool requires_grad);
/* The same for a tensor that is not a parameter: wrappers do not hear of its gradient. */
plim_t plim_m_as_input(plim_machine *m, plim_t t);
plim_t plim_m_grad(const plim_machine *m, plim_t leaf); /* its .grad, borrowed; 0: None */
void plim_m_set_grad(plim_machine *m, plim_t leaf, plim_t grad); /* takes the reference */
void plim_m_clear_sparse(plim_machine *m, plim_t leaf); /* its .grad.zero_(), if sparse */
void plim_m_set_category(plim_machine *m, plim_t t, plim_category c);
/* t.detach(), which requires grad if t does, as an input does: owned. */
plim_t plim_m_detached(plim_machine *m, plim_t t);
/* A kernel of this library is about to run: on this thread, which needs a handle of it. */
void plim_m_calls(plim_machine *m, plim_cuda_library library);
/* A gemm on cuBLAS (lt: on cuBLASLt) is about to run: allocates its workspace as the settings
 * say. */
void plim_m_gemm(plim_machine *m, bool lt);

#endif
