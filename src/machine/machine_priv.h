/* machine_priv.h -- the machine's own tables, and the functions that its files call in one
 * another. */
#ifndef PLIM_MACHINE_PRIV_H
#define PLIM_MACHINE_PRIV_H

#include "machine/machine_run.h"
#include "machine/work.h"

enum { TENSOR_PAGE = 64, GNODE_PAGE = 64, MAX_PAGES = 1 << 16 };
enum { HANDLES = TENSOR_PAGE * MAX_PAGES };

typedef struct m_tensor {
    plim_meta meta;
    uint32_t storage; /* PLIM_NONE: empty, or on the CPU */
    uint32_t refs;
    uint32_t gnode, gslot;  /* grad_fn; PLIM_NONE: a leaf */
    uint32_t acc;           /* leaf: its AccumulateGrad node; or next free tensor */
    plim_t grad;            /* leaf: .grad */
    plim_t base;            /* the tensor that this is a view of for autograd; 0: none */
    plim_t cast;            /* a parameter's cast in the current autocast region; not owned */
    plim_t indices, values; /* of a sparse tensor, owned; 0: dense */
    bool requires_grad, wrapped, is_view, coalesced;
    bool unheard;        /* leaf: no parameter: a wrapper does not hear of its gradient */
    bool moves;          /* leaf: its data has become another tensor's */
    uint32_t generation; /* see m_index */
} m_tensor;

typedef struct m_storage {
    uint32_t refs; /* tensors on it */
    uint32_t tape; /* its storage on the tape */
} m_storage;

/* A node lives as long as tensors or other nodes point to it, like PyTorch's shared_ptr; its
 * saved tensors go with it. */
typedef struct m_gnode {
    plim_gnode pub;
    uint32_t index; /* in the pages */
    uint32_t refs, next_free;
    uint32_t edge_cap;    /* capacity of the arrays behind pub, for reuse */
    uint32_t view_op;     /* CopySlices: the node of the op that wrote into the view */
    uint32_t frame;       /* the checkpoint it belongs to, or PLIM_NONE */
    uint32_t *save_index; /* [PLIM_MAX_SAVED] number of each save in it, or PLIM_NONE */
    plim_t held;          /* until it is freed */
    bool reentrant;       /* it is the checkpoint's own node */
    bool released;        /* backward has run: its saved tensors were dropped */
    uint32_t needed;      /* number of the last pass that was to reach something beyond it */
    uint32_t generation;
} m_gnode;

/* One region of a checkpoint while its nodes live. */
typedef struct m_frame {
    uint32_t region;
    uint32_t nodes; /* not yet released */
    bool *wanted;   /* of each tensor that its forward would have saved: its node lives */
    uint32_t n_saves, cap_saves;
    plim_t *input; /* held for the second forward; owned */
    uint32_t n_inputs, cap_inputs;
    plim_t *recomputed; /* tensors it saved, until a node takes them; NULL: not run yet */
    plim_dtype autocast;
} m_frame;

/* What the op that is running has done so far: see work.h. */
typedef struct m_work {
    uint64_t written, macs; /* bytes of new tensors */
    uint64_t largest;       /* elements of one of them */
    uint64_t blocks, side, bias;
    uint32_t kernels;
    uint8_t klass, dtype; /* dtype: of its products, else of the largest */
    uint8_t form;         /* plim_work_form */
    bool product, blocked, full;
} m_work;

/* A backward pass that differs from the usual one. */
typedef struct m_pass {
    bool partial; /* only nodes that lead to a needed leaf run, and for its sake */
    bool keeps;   /* the graph: it can run again */
    void (*before)(plim_machine *m, void *ud,
                   uint32_t node); /* with its inbox filled; NULL: none */
    void (*reached)(plim_machine *m, void *ud, plim_t leaf, plim_t g); /* partial: takes g */
    void *ud;
} m_pass;

struct plim_machine {
    plim_arena *arena;
    plim_tape *tape; /* NULL: shapes only */
    plim_world world;
    plim_asked asked;
    plim_status st;
    plim_err *err;

    m_tensor **tpage;
    uint32_t n_tensors, tpages, tpages_cap, free_tensor;
    m_storage *storages;
    uint32_t n_storages, cap_storages, free_storage;
    m_gnode **npage;
    uint32_t n_gnodes, npages, npages_cap, free_gnode;
    uint32_t *dying; /* work list: gnodes whose reference count reached 0 */
    uint32_t n_dying, cap_dying;

    uint32_t seq;   /* next sequence number */
    uint32_t stamp; /* number of backward passes so far */
    uint32_t where; /* graph node now running */
    plim_str name;  /* the layer of that node: names new storages */
    const char *role;
    uint16_t stream;
    uint8_t category;
    bool grad_mode, autograd_thread;
    m_frame *frames; /* the checkpoints of this run */
    uint32_t n_frames, cap_frames;
    uint32_t frame;        /* whose forward is running, or PLIM_NONE */
    uint32_t recomputing;  /* whose second forward is running, or PLIM_NONE */
    uint32_t n_recomputed; /* tensors that the second forward has saved so far */
    bool stopped;          /* the second forward has saved all that is needed */
    plim_m_recompute recompute;
    plim_m_recompute_backward recompute_backward;
    void *recompute_ud;
    void (*on_grad)(void *ud, plim_t leaf); /* NULL: none */
    void *on_grad_ud;
    plim_dtype autocast;     /* PLIM_DTYPE_COUNT: no region */
    plim_t *casts, *cast_to; /* the parameters that have been cast, and their casts: owned */
    uint32_t n_casts, cap_casts;
    plim_t blas_ws[2], lt_ws[2]; /* persistent workspaces: main thread, autograd thread */
    struct m_kept {
        plim_str key;
        plim_t t;
    } * kept, *attribute; /* plim_m_kept, plim_m_set_attribute */
    uint32_t n_kept, cap_kept, n_attributes, cap_attributes;
    plim_t *deferred; /* plim_m_defer */
    uint32_t n_deferred, cap_deferred;
    plim_map searched[2]; /* keys of plim_m_search */
    uint32_t n_unknown;
    const m_pass *pass;        /* NULL: the usual one */
    const plim_m_watch *watch; /* NULL: nobody listens */
    plim_ledger *ledger;       /* NULL: work is not recorded */
    m_work work;
    const plim_meta *metas[64]; /* of storages, by hash: most share a few shapes */

    m_tensor *first_tpage[1];
    m_tensor inline_page[TENSOR_PAGE];
    m_storage inline_storages[TENSOR_PAGE];
};

/* The handle of a tensor or a node is its index in the pages.  With PLIM_DEBUG its upper bits
 * hold a generation, the number of times the slot was freed, so that a stale handle is caught
 * when it is used. */
#ifdef PLIM_DEBUG
static inline uint32_t m_index(uint32_t handle) { return handle & (HANDLES - 1); }
static inline uint32_t m_handle(uint32_t index, uint32_t generation)
{
    return index | generation * HANDLES; /* the generation wraps */
}
#else
static inline uint32_t m_index(uint32_t handle) { return handle; }
static inline uint32_t m_handle(uint32_t index, uint32_t generation)
{
    (void)generation;
    return index;
}
#endif

/* By index, whether the slot is in use or not. */
static inline m_tensor *m_tensor_at(const plim_machine *m, uint32_t i)
{
    plim_assert(i < m->n_tensors);
    return &m->tpage[i / TENSOR_PAGE][i % TENSOR_PAGE];
}
static inline m_gnode *m_gnode_at(const plim_machine *m, uint32_t i)
{
    plim_assert(i < m->n_gnodes);
    return &m->npage[i / GNODE_PAGE][i % GNODE_PAGE];
}

/* By handle. */
static inline m_tensor *m_t(const plim_machine *m, plim_t t)
{
    m_tensor *x = m_tensor_at(m, m_index(t));
    plim_assert(m_handle(m_index(t), x->generation) == t);
    return x;
}
static inline m_gnode *m_n(const plim_machine *m, uint32_t n)
{
    m_gnode *g = m_gnode_at(m, m_index(n));
    plim_assert(m_handle(m_index(n), g->generation) == n);
    return g;
}
static inline m_storage *m_s(const plim_machine *m, uint32_t s)
{
    plim_assert(s < m->n_storages);
    return &m->storages[s];
}

/* ---- machine.c ------------------------------------------------------------ */

void plim__machine_init(plim_machine *m, plim_arena *a, plim_tape *tape, const plim_world *w,
                        plim_err *err);
/* Makes room for one more record.  Pages never move, so pointers into them stay valid. */
bool plim__page_room(plim_machine *m, void ***pages, uint32_t *n, uint32_t *cap,
                     uint64_t size);
plim_t plim__tensor_new(plim_machine *m, const plim_meta *meta, uint32_t storage);
/* A tensor on a new storage; `row` is the storage's row on the tape. */
plim_t plim__tensor_fresh(plim_machine *m, const plim_meta *meta, plim_storage row);
/* A copy that lives as long as the tape; equal metas share one copy. */
const plim_meta *plim__meta_kept(plim_machine *m, const plim_meta *meta);
/* Gives storage s, which has no memory, what the row says; its name is that of the op that is
 * running. */
void plim__storage_alloc(plim_machine *m, uint32_t s, const plim_meta *meta, plim_storage row);
void plim__tell_tape(plim_machine *m, plim_event e);
/* The tape's row for t's storage, or NULL. */
plim_storage *plim__tape_row(const plim_machine *m, plim_t t);

/* ---- lifetimes.c ---------------------------------------------------------- */

void plim__storage_unref(plim_machine *m, uint32_t s);
void plim__gnode_unref(plim_machine *m, uint32_t id);
void plim__gnode_release(plim_machine *m, m_gnode *n); /* drops its saved tensors */
void plim__gnode_drop_saved(plim_machine *m, m_gnode *n);
void plim__frame_unref(plim_machine *m, uint32_t frame);

/* ---- engine.c ------------------------------------------------------------- */

/* A pass from these edges on, with a gradient each, borrowed; `needed` are leaves, for a partial
 * one.  False: our memory is full. */
bool plim__run_pass(plim_machine *m, const plim_edge *root, const plim_t *g, uint32_t n,
                    const uint32_t *needed, uint32_t n_needed, const m_pass *pass,
                    plim_m_visit visit, void *ud);
/* The nodes that such a pass would visit, each once, those that run last first: their number, in the
 * arena; PLIM_NONE: our memory is full. */
uint32_t plim__list_nodes(plim_machine *m, const plim_edge *root, uint32_t n, uint32_t **out);

/* ---- autocast.c ----------------------------------------------------------- */

/* Autocast replaces arguments of one op by casts: this is an argument it replaced. */
typedef struct m_cast {
    uint32_t id;
    plim_t was;
} m_cast;
uint32_t plim__autocast_args(plim_machine *m, const plim_node *n, plim_t *value, m_cast *undo,
                             uint32_t max);
void plim__autocast_undo(plim_machine *m, plim_t *value, const m_cast *undo, uint32_t n);

/* ---- work.c --------------------------------------------------------------- */

uint64_t plim__work_bytes(
    const plim_machine *m,
    plim_t
        t); /* The op that ran, NULL without a rule, has read and made so many bytes; in place: changed
 * `out` bytes. */
void plim__work_wrote(plim_machine *m, const plim_meta *meta, uint64_t bytes);
void plim__work_end(plim_machine *m, const plim_op *op, uint64_t read, uint64_t out,
                    bool inplace, bool gradient);

/* ---- frames.c ------------------------------------------------------------- */

void plim__frame_save(plim_machine *m, m_gnode *n, uint32_t slot);
bool plim__frame_stops_early(const plim_machine *m);
void plim__frame_resave(plim_machine *m, plim_t t);

/* ---- checkpoint.c --------------------------------------------------------- */

void plim__frame_unpack(plim_machine *m, m_gnode *n);

#endif
