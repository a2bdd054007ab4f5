/* machine.c -- storages, tensors and autograd nodes: see machine.h. */
#include "op/machine_priv.h"

#include <limits.h>
#include <stdio.h>

/* ---- errors ------------------------------------------------------------- */

void plim_m_fail(plim_machine *m, plim_status code, const char *fmt, ...)
{
    if (m->st)
        return;
    char buf[200];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(buf, sizeof buf, fmt, ap);
    va_end(ap);
    m->st = plim_fail(m->err, code, m->where, "%s", buf);
}

void plim_m_oom(plim_machine *m)
{
    if (!m->st)
        m->st = plim_oom(m->err);
}

bool plim_m_bad(const plim_machine *m) { return m->st != PLIM_OK; }
plim_status plim_m_status(const plim_machine *m) { return m->st; }
void plim_m_forgive(plim_machine *m) { m->st = PLIM_OK; }

static void m_oom(plim_machine *m)
{
    if (!m->st)
        m->st = plim_oom(m->err);
}

/* ---- pools -------------------------------------------------------------- */

/* What is inline is written item by item, so it needs no zeroes: a machine on
 * the stack (plim_op_infer) is cheap. */
static void machine_init(plim_machine *m, plim_arena *a, plim_tape *tape, const plim_world *w,
                         plim_err *err)
{
    memset(m, 0, offsetof(plim_machine, inline_page));
    m->arena = a;
    m->tape = tape;
    m->world = *w;
    m->err = err;
    m->first_tpage[0] = m->inline_page;
    m->tpage = m->first_tpage;
    m->tpages = m->tpages_cap = 1;
    m->storages = m->inline_storages;
    m->cap_storages = TENSOR_PAGE;
    m->n_tensors = 1; /* handle 0: undefined, a harmless fp32 scalar */
    m->inline_page[0] = (m_tensor){.storage = PLIM_NONE, .gnode = PLIM_NONE, .acc = PLIM_NONE};
    m->free_tensor = m->free_storage = m->free_gnode = PLIM_NONE;
    m->category = PLIM_CAT_TEMPORARY;
    m->autocast = PLIM_DTYPE_COUNT;
    m->frame = m->recomputing = PLIM_NONE;
}

plim_machine *plim_m_new(plim_arena *a, plim_tape *tape, const plim_world *w, plim_err *err)
{
    plim_machine *m = PLIM_NEW(a, plim_machine);
    if (m)
        machine_init(m, a, tape, w, err);
    else
        plim_oom(err);
    return m;
}

/* Pages never move, so a meta pointer stays good while its tensor lives. */
static bool page_room(plim_machine *m, void ***pages, uint32_t *n, uint32_t *cap,
                      uint64_t size)
{
    if (*n == *cap) {
        uint64_t want = PLIM_MAX((uint64_t)*cap * 2, 16);
        void **p = want <= MAX_PAGES ? PLIM_NEW_N(m->arena, void *, want) : NULL;
        if (!p)
            return false;
        if (*n)
            memcpy(p, *pages, *n * sizeof *p);
        *pages = p;
        *cap = (uint32_t)want;
    }
    void *page = plim_arena_new(m->arena, 1, size);
    if (!page)
        return false;
    (*pages)[(*n)++] = page;
    return true;
}

static plim_t tensor_new(plim_machine *m, const plim_meta *meta, uint32_t storage)
{
    plim_t t = m->free_tensor;
    if (t != PLIM_NONE) {
        m->free_tensor = m_t(m, t)->acc;
    } else {
        if (m->n_tensors == m->tpages * TENSOR_PAGE &&
            !page_room(m, (void ***)&m->tpage, &m->tpages, &m->tpages_cap,
                       sizeof(m_tensor) * TENSOR_PAGE)) {
            m_oom(m);
            return 0;
        }
        t = m->n_tensors++;
    }
    m_tensor *x = m_t(m, t);
    x->meta = *meta;
    x->storage = storage;
    x->refs = 1;
    x->gnode = x->acc = PLIM_NONE;
    x->gslot = 0;
    x->grad = x->base = x->cast = x->indices = x->values = 0;
    x->requires_grad = x->wrapped = x->is_view = false;
    if (storage != PLIM_NONE)
        m->storages[storage].refs++;
    return t;
}

/* A copy that lives as long as the tape, the same for the same. */
static const plim_meta *meta_kept(plim_machine *m, const plim_meta *meta)
{
    uint64_t h = (uint64_t)meta->dtype;
    for (int32_t i = 0; i < meta->rank; i++)
        h = (h ^ (uint64_t)meta->dim[i] ^ (uint64_t)meta->stride[i] << 20) *
            0x9e3779b97f4a7c15u;
    const plim_meta **slot = &m->metas[h >> 58];
    if (*slot && memcmp(*slot, meta, sizeof *meta) == 0)
        return *slot;
    plim_meta *copy = PLIM_NEW(m->arena, plim_meta);
    if (copy)
        *copy = *meta;
    return *slot = copy;
}

/* `row` says what it is; the name is the op now running. */
static uint32_t storage_new(plim_machine *m, const plim_meta *meta, plim_storage row)
{
    uint32_t s = m->free_storage;
    if (s != PLIM_NONE) {
        m->free_storage = m->storages[s].tape;
    } else {
        if (!PLIM_PUSH_ROOM(m->arena, m->storages, m->n_storages, m->cap_storages)) {
            m_oom(m);
            return PLIM_NONE;
        }
        s = m->n_storages++;
    }
    m->storages[s] = (m_storage){.refs = 0, .tape = PLIM_NONE};
    if (m->tape) {
        row.name = m->name;
        row.role = m->role;
        row.meta = meta_kept(m, meta);
        m->storages[s].tape = plim_tape_alloc(m->tape, &row);
        if (m->storages[s].tape == PLIM_NONE || !row.meta)
            m_oom(m);
    }
    return s;
}

static void storage_unref(plim_machine *m, uint32_t s)
{
    if (s == PLIM_NONE || --m->storages[s].refs)
        return;
    if (m->tape && !m->st && !plim_tape_free_storage(m->tape, m->storages[s].tape))
        m_oom(m);
    m->storages[s].tape = m->free_storage;
    m->free_storage = s;
}

/* ---- tensors ------------------------------------------------------------ */

const plim_meta *plim_m_meta(const plim_machine *m, plim_t t) { return &m_t(m, t)->meta; }
bool plim_m_requires_grad(const plim_machine *m, plim_t t) { return m_t(m, t)->requires_grad; }
const plim_world *plim_m_world(const plim_machine *m) { return &m->world; }

int plim_m_sms(plim_machine *m, int *threads_per_sm)
{
    m->sms_matter = true;
    if (threads_per_sm)
        *threads_per_sm =
            m->world.threads_per_sm ? m->world.threads_per_sm : PLIM_USUAL_THREADS_PER_SM;
    return m->world.sms ? m->world.sms : PLIM_USUAL_SMS;
}
bool plim_m_sms_matter(const plim_machine *m) { return m->sms_matter; }
bool plim_m_is_wrapped(const plim_machine *m, plim_t t) { return m_t(m, t)->wrapped; }

plim_t plim_m_ref(plim_machine *m, plim_t t)
{
    if (t)
        m_t(m, t)->refs++;
    return t;
}

void plim_m_drop(plim_machine *m, plim_t t)
{
    if (!t)
        return;
    m_tensor *x = m_t(m, t);
    plim_assert(x->refs > 0);
    if (--x->refs)
        return;
    uint32_t gnode = x->gnode, storage = x->storage;
    plim_t grad = x->grad, base = x->base, values = x->values, indices = x->indices;
    x->acc = m->free_tensor;
    x->gnode = x->storage = PLIM_NONE;
    m->free_tensor = t;
    /* PyTorch: the TensorImpl's autograd meta goes first, then its storage */
    plim__gnode_unref(m, gnode);
    plim_m_drop(m, grad);
    storage_unref(m, storage);
    plim_m_drop(m, base); /* no view itself, nor are the parts sparse: one level deep */
    plim_m_drop(m, values);
    plim_m_drop(m, indices);
}

static plim_t fresh(plim_machine *m, const plim_meta *meta, plim_storage row)
{
    if (m->st)
        return 0;
    if (!plim_meta_bytes(meta, &row.bytes)) {
        char buf[128];
        plim_m_fail(m, PLIM_ERANGE, "a tensor of %s elements overflows 64 bits",
                    plim_meta_str(meta, buf, sizeof buf));
        return 0;
    }
    uint32_t s = PLIM_NONE;
    if ((row.bytes || row.high) && !m->stopped) {
        s = storage_new(m, meta, row);
        if (s == PLIM_NONE)
            return 0;
    }
    return tensor_new(m, meta, s);
}

plim_t plim_m_empty(plim_machine *m, const plim_meta *meta)
{
    return fresh(m, meta, (plim_storage){.category = m->category});
}

plim_t plim_m_empty_contig(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_meta meta = plim_meta_make(t, rank, dim);
    return plim_m_empty(m, &meta);
}

plim_t plim_m_empty_like(plim_machine *m, plim_t t)
{
    plim_meta meta = plim_meta_like(plim_m_meta(m, t), plim_m_meta(m, t)->dtype);
    return plim_m_empty(m, &meta);
}

plim_t plim_m_empty_maybe(plim_machine *m, const plim_meta *meta)
{
    uint64_t bytes = 0;
    plim_meta_bytes(meta, &bytes); /* or else fresh() says so */
    return fresh(
        m, meta,
        (plim_storage){.high = bytes, .category = m->category, .certainty = PLIM_ESTIMATED});
}

plim_t plim_m_empty_rows(plim_machine *m, const plim_meta *meta, plim_rows n)
{
    plim_meta whole = *meta;
    plim_storage row = {.category = m->category, .certainty = PLIM_ESTIMATED};
    if (n.low == n.high)
        return plim_m_empty(m, meta);
    whole.dim[0] = (int64_t)n.low;
    plim_meta_bytes(&whole, &row.low);
    whole.dim[0] = (int64_t)n.high;
    if (!plim_meta_bytes(&whole, &row.high))
        return plim_m_empty(m, &whole); /* which fails */
    return fresh(m, meta, row);
}

static plim_t scratch(plim_machine *m, uint64_t low, uint64_t usual, uint64_t high,
                      plim_certainty certainty)
{
    if (!m->world.workspace || !PLIM_MAX(usual, high) ||
        PLIM_MAX(usual, high) > (uint64_t)1 << 60)
        return 0;
    plim_meta meta = plim_meta_make(PLIM_U8, 1, (int64_t[]){(int64_t)usual});
    return fresh(m, &meta,
                 (plim_storage){.low = low,
                                .high = high,
                                .category = PLIM_CAT_WORKSPACE,
                                .certainty = (uint8_t)certainty});
}

plim_t plim_m_scratch(plim_machine *m, uint64_t bytes)
{
    return scratch(m, 0, bytes, 0, PLIM_EXACT);
}

plim_t plim_m_scratch_of(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_meta meta = plim_meta_make(t, rank, dim);
    return m->world.workspace ? fresh(m, &meta, (plim_storage){.category = PLIM_CAT_WORKSPACE})
                              : 0;
}

plim_t plim_m_scratch_range(plim_machine *m, uint64_t low, uint64_t usual, uint64_t high)
{
    return scratch(m, low, usual, high, PLIM_ESTIMATED);
}

plim_t plim_m_scratch_about(plim_machine *m, uint64_t bytes)
{
    return plim_m_scratch_range(m, 0, bytes, bytes > UINT64_MAX / 2 ? bytes : 2 * bytes);
}

plim_t plim_m_alias(plim_machine *m, plim_t t, const plim_meta *meta)
{
    if (m->st)
        return 0;
    plim_t a = tensor_new(m, meta, m_t(m, t)->storage);
    if (a) {
        m_t(m, a)->is_view = true;
        m_t(m, a)->wrapped = m_t(m, t)->wrapped;
    }
    return a;
}

plim_t plim_m_outside(plim_machine *m, const plim_meta *meta)
{
    return m->st ? 0 : tensor_new(m, meta, PLIM_NONE);
}

plim_t plim_m_sparse(plim_machine *m, const plim_meta *meta, plim_t indices, plim_t values,
                     bool coalesced)
{
    plim_t t = m->st ? 0 : tensor_new(m, meta, PLIM_NONE);
    if (t) {
        m_tensor *x = m_t(m, t);
        x->indices = indices;
        x->values = values;
        x->coalesced = coalesced || plim_m_meta(m, values)->dim[0] < 2;
    }
    return t;
}

plim_t plim_m_indices(const plim_machine *m, plim_t t) { return m_t(m, t)->indices; }
plim_t plim_m_values(const plim_machine *m, plim_t t) { return m_t(m, t)->values; }
bool plim_m_coalesced(const plim_machine *m, plim_t t) { return m_t(m, t)->coalesced; }

plim_t plim_m_sparse_copy(plim_machine *m, plim_t t)
{
    const m_tensor *x = m_t(m, t);
    plim_t values = plim_m_empty_like(m, x->values),
           indices = plim_m_empty_like(m, x->indices);
    return plim_m_sparse(m, &x->meta, indices, values, x->coalesced);
}

plim_t plim_m_sparse_like(plim_machine *m, plim_t t, int64_t n)
{
    const m_tensor *x = m_t(m, t);
    plim_meta i = *plim_m_meta(m, x->indices), v = *plim_m_meta(m, x->values);
    i.dim[1] = v.dim[0] = n;
    plim_meta_contiguous(&i);
    plim_meta_contiguous(&v);
    plim_t indices = plim_m_empty(m, &i), values = plim_m_empty(m, &v);
    return plim_m_sparse(m, &x->meta, indices, values, false);
}

uint32_t plim_m_tape_storage(const plim_machine *m, plim_t t)
{
    uint32_t s = m_t(m, t)->storage;
    return s == PLIM_NONE ? PLIM_NONE : m->storages[s].tape;
}

plim_t plim_m_wrapped(plim_machine *m, bool is_float)
{
    plim_meta meta = plim_meta_make(is_float ? PLIM_F64 : PLIM_I64, 0, NULL);
    plim_t t = plim_m_outside(m, &meta);
    if (t)
        m_t(m, t)->wrapped = true;
    return t;
}

/* The tape's row for t's storage; NULL where it has none. */
static plim_storage *tape_row(const plim_machine *m, plim_t t)
{
    uint32_t s = m->tape ? plim_m_tape_storage(m, t) : PLIM_NONE;
    return s == PLIM_NONE ? NULL : &m->tape->storages[s];
}

void plim__set_category(plim_machine *m, plim_t t, plim_category c)
{
    plim_storage *row = tape_row(m, t);
    if (row)
        row->category = (uint8_t)c;
}

void plim__rename(plim_machine *m, plim_t t, plim_t leaf)
{
    plim_storage *row = tape_row(m, t), *of = tape_row(m, leaf);
    if (row && of)
        row->name = of->name;
}

void plim_m_set_category(plim_machine *m, plim_t t, plim_category c)
{
    plim__set_category(m, t, c);
}

/* ---- autograd nodes ----------------------------------------------------- */

static uint32_t gnode_new(plim_machine *m, uint32_t n_in)
{
    uint32_t id = m->free_gnode;
    if (id != PLIM_NONE) {
        m->free_gnode = m_n(m, id)->next_free;
    } else {
        if (m->n_gnodes == m->npages * GNODE_PAGE &&
            !page_room(m, (void ***)&m->npage, &m->npages, &m->npages_cap,
                       sizeof(m_gnode) * GNODE_PAGE))
            return m_oom(m), PLIM_NONE;
        id = m->n_gnodes++;
    }
    m_gnode *n = m_n(m, id);
    if (n->edge_cap < n_in) {
        n->pub.next = PLIM_NEW_N(m->arena, plim_edge, n_in);
        n->pub.in_meta = PLIM_NEW_N(m->arena, plim_meta, n_in);
        n->edge_cap = n_in;
        if (!n->pub.next || !n->pub.in_meta) {
            n->edge_cap = 0;
            return m_oom(m), PLIM_NONE;
        }
    }
    plim_edge *next = n->pub.next;
    plim_meta *in_meta = n->pub.in_meta;
    n->pub = (plim_gnode){
        .next = next, .in_meta = in_meta, .where = m->where, .n_in = n_in, .n_out = 1};
    n->refs = 0;
    n->inner = n->frame = PLIM_NONE;
    n->released = n->reentrant = false;
    return id;
}

void plim__gnode_drop_saved(plim_machine *m, m_gnode *n)
{
    for (uint32_t i = 0; i < PLIM_MAX_SAVED; i++) {
        plim_t t = n->pub.saved[i];
        n->pub.saved[i] = 0;
        plim_m_drop(m, t);
    }
}

void plim__gnode_release(plim_machine *m, m_gnode *n)
{
    uint32_t inner = n->inner, frame = n->frame;
    n->released = true;
    plim__gnode_drop_saved(m, n);
    n->inner = n->frame = PLIM_NONE;
    plim__frame_unref(m, frame);
    plim__gnode_unref(m, inner);
}

/* Chains are as long as the model is deep, so no recursion along them. */
void plim__gnode_unref(plim_machine *m, uint32_t id)
{
    if (id == PLIM_NONE || --m_n(m, id)->refs)
        return;
    if (!PLIM_PUSH_ROOM(m->arena, m->dying, m->n_dying, m->cap_dying)) {
        m_oom(m);
        return;
    }
    m->dying[m->n_dying++] = id;
    if (m->n_dying > 1)
        return; /* the loop below, further up the stack, will come to it */
    for (uint32_t k = 0; k < m->n_dying; k++) {
        id = m->dying[k];
        m_gnode *n = m_n(m, id);
        plim__gnode_release(m, n);
        for (uint32_t i = 0; i < n->pub.n_in; i++)
            plim__gnode_unref(m, n->pub.next[i].node);
        n->next_free = m->free_gnode;
        m->free_gnode = id;
    }
    m->n_dying = 0;
}

/* The node that adds into a leaf's .grad.  It lives with the leaf. */
static uint32_t accumulate_node(plim_machine *m, plim_t leaf)
{
    m_tensor *x = m_t(m, leaf);
    if (x->acc != PLIM_NONE)
        return x->acc;
    uint32_t id = gnode_new(m, 0);
    if (id == PLIM_NONE)
        return id;
    m_gnode *n = m_n(m, id);
    n->pub.fn = NULL;
    n->pub.seq = UINT32_MAX;
    n->pub.leaf = leaf;
    n->refs = 1;
    return x->acc = id;
}

bool plim_m_would_record(const plim_machine *m, uint32_t n, const plim_t *inputs)
{
    for (uint32_t i = 0; m->grad_mode && i < n; i++)
        if (m_t(m, inputs[i])->requires_grad)
            return true;
    return false;
}

plim_gnode *plim_m_node(plim_machine *m, const plim_grad_fn *fn, uint32_t n,
                        const plim_t *inputs)
{
    if (m->st || !plim_m_would_record(m, n, inputs))
        return NULL;
    uint32_t id = gnode_new(m, n);
    if (id == PLIM_NONE)
        return NULL;
    m_gnode *g = m_n(m, id);
    g->pub.fn = fn;
    g->pub.seq = m->seq++;
    for (uint32_t i = 0; i < n; i++) {
        m_tensor *x = m_t(m, inputs[i]);
        plim_edge e = {PLIM_NONE, 0};
        if (x->requires_grad)
            e = x->gnode != PLIM_NONE ? (plim_edge){x->gnode, x->gslot}
                                      : (plim_edge){accumulate_node(m, inputs[i]), 0};
        if (e.node != PLIM_NONE)
            m_n(m, e.node)->refs++;
        g->pub.next[i] = e;
        g->pub.in_meta[i] = x->meta;
    }
    return &g->pub;
}

/* The id of a node: its place in its page. */
static uint32_t gnode_id(const plim_machine *m, const plim_gnode *n)
{
    const m_gnode *g = (const m_gnode *)n; /* pub is the first member */
    for (uint32_t p = m->npages; p-- > 0;)
        if (g >= m->npage[p] && g < m->npage[p] + GNODE_PAGE)
            return p * GNODE_PAGE + (uint32_t)(g - m->npage[p]);
    return PLIM_NONE;
}

/* A saved variable is another tensor on the same storage, so that saving does
 * not count as a user of the tensor object itself. */
void plim_m_save(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t)
{
    if (!n || !t || m->st)
        return;
    plim_assert(slot < PLIM_MAX_SAVED && !n->saved[slot]);
    if (m->frame != PLIM_NONE) {
        plim__frame_save(m, (m_gnode *)n, slot);
        return;
    }
    if (m->recomputing != PLIM_NONE)
        plim__frame_saved_again(m, t);
    plim_t s = tensor_new(m, plim_m_meta(m, t), m_t(m, t)->storage);
    if (!s)
        return;
    m_t(m, s)->wrapped = m_t(m, t)->wrapped;
    n->saved[slot] = s;
    plim_storage *row = tape_row(m, t);
    if (row && row->category == PLIM_CAT_TEMPORARY)
        row->category = PLIM_CAT_ACTIVATION;
}

void plim_m_note(plim_machine *m, plim_gnode *n, const plim_meta *meta)
{
    if (n && !m->st && !(n->meta = meta_kept(m, meta)))
        m_oom(m);
}

static void attach(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t)
{
    m_tensor *x = m_t(m, t);
    uint32_t old = x->gnode, id = gnode_id(m, n);
    x->gnode = id;
    x->gslot = slot;
    x->requires_grad = true;
    if (slot >= n->n_out)
        n->n_out = slot + 1;
    m_n(m, id)->refs++;
    plim__gnode_unref(m, old); /* in-place: the old maker is now an edge of n */
}

void plim_m_output(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t)
{
    if (n && t && !m->st)
        attach(m, n, slot, t);
}

/* ---- writing into a view -------------------------------------------------- */

void plim_m_view_of(plim_machine *m, plim_t t, plim_t of)
{
    if (!m->grad_mode || m->st || !t || !of || m_t(m, t)->base)
        return;
    plim_t base = m_t(m, of)->base;
    m_t(m, t)->base = plim_m_ref(m, base ? base : of);
}

/* The gradient of the whole base: a copy of g, in which the written part is
 * replaced by what the op makes of a copy of that part.
 * src: torch/csrc/autograd/functions/tensor.cpp CopySlices::apply */
static void copy_slices_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_gnode *op = &m_n(m, ((m_gnode *)n)->inner)->pub;
    plim_meta base = plim_meta_like(&n->in_meta[0], plim_m_meta(m, g[0])->dtype);
    plim_t whole = plim_m_empty(m, &base);
    plim_t part = plim_m_empty(m, n->meta);
    op->fn->backward(m, op, &part, dx);
    plim_m_drop(m, part);
    plim_m_drop(m, dx[0]);
    dx[0] = whole;
}
static const plim_grad_fn copy_slices_fn = {"CopySlices", copy_slices_backward};

/* The view's own gradient: its place in zeros of the base's size. */
static void as_strided_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta base = plim_meta_like(&n->in_meta[0], plim_m_meta(m, g[0])->dtype);
    dx[0] = plim_m_empty(m, &base);
}
static const plim_grad_fn as_strided_fn = {"AsStridedBackward0", as_strided_backward};

/* The op that wrote into view t becomes part of the history of its base, and t
 * a strided view of that.  src: variable.cpp rebase_history, grad_fn */
static void rebase_view(plim_machine *m, plim_gnode *n, plim_t t)
{
    plim_t base = m_t(m, t)->base;
    uint32_t op = gnode_id(m, n), n_in = n->n_in, id = gnode_new(m, n_in);
    if (id == PLIM_NONE)
        return;
    m_gnode *slices = m_n(m, id);
    m_tensor *b = m_t(m, base);
    slices->pub.fn = &copy_slices_fn;
    slices->pub.seq = m->seq++;
    plim_meta part = plim_meta_like(plim_m_meta(m, t), plim_m_meta(m, t)->dtype);
    plim_m_note(m, &slices->pub, &part);
    slices->inner = op;
    m_n(m, op)->refs++;
    for (uint32_t i = 0; i < n_in; i++) {
        plim_edge e = n->next[i];
        if (!i && b->requires_grad)
            e = b->gnode != PLIM_NONE ? (plim_edge){b->gnode, b->gslot}
                                      : (plim_edge){accumulate_node(m, base), 0};
        else if (!i)
            e.node = PLIM_NONE;
        if (e.node != PLIM_NONE)
            m_n(m, e.node)->refs++;
        slices->pub.next[i] = e;
        slices->pub.in_meta[i] = i ? n->in_meta[i] : b->meta;
    }
    attach(m, &slices->pub, 0, base);
    plim_gnode *strided = plim_m_node(m, &as_strided_fn, 1, &base);
    if (strided)
        attach(m, strided, 0, t);
}

void plim_m_rebase(plim_machine *m, plim_gnode *n, plim_t t)
{
    if (!n || !t || m->st)
        return;
    if (m_t(m, t)->base)
        rebase_view(m, n, t);
    else
        attach(m, n, 0, t);
}

bool plim_m_wants(const plim_machine *m, const plim_gnode *n, uint32_t input)
{
    (void)m;
    return input < n->n_in && n->next[input].node != PLIM_NONE;
}

void plim_m_wanted(const plim_machine *m, const plim_gnode *n, bool *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = plim_m_wants(m, n, i);
}

plim_t plim_m_saved(const plim_machine *m, const plim_gnode *n, uint32_t slot)
{
    (void)m;
    return n->saved[slot];
}

/* ---- driving ------------------------------------------------------------ */

void plim_m_place(plim_machine *m, uint32_t where, plim_str name, const char *role,
                  plim_category c)
{
    m->where = where;
    m->name = name;
    m->role = role;
    m->category = (uint8_t)c;
}

void plim_m_set_grad_mode(plim_machine *m, bool on) { m->grad_mode = on; }

plim_t plim_m_leaf(plim_machine *m, const plim_meta *meta, bool requires_grad)
{
    plim_t t = plim_m_empty(m, meta);
    m_t(m, t)->requires_grad = t && requires_grad;
    return t;
}

plim_t plim_m_as_leaf(plim_machine *m, plim_t t, bool requires_grad)
{
    m_t(m, t)->requires_grad = t && requires_grad;
    m_t(m, t)->is_view = false;
    return t;
}

plim_t plim_m_detached(plim_machine *m, plim_t t)
{
    plim_t d = plim_m_alias(m, t, plim_m_meta(m, t));
    return plim_m_as_leaf(m, d, m_t(m, t)->requires_grad);
}

plim_t plim_m_grad(const plim_machine *m, plim_t leaf) { return m_t(m, leaf)->grad; }

void plim_m_set_grad(plim_machine *m, plim_t leaf, plim_t grad)
{
    plim_t old = m_t(m, leaf)->grad;
    m_t(m, leaf)->grad = grad;
    plim_m_drop(m, old);
}

void plim_m_clear_sparse(plim_machine *m, plim_t leaf)
{
    plim_t g = m_t(m, leaf)->grad;
    if (plim_m_values(m, g))
        plim_m_set_grad(m, leaf, plim_m_sparse_like(m, g, 0));
}

uint32_t plim_m_unknown_ops(const plim_machine *m) { return m->n_unknown; }

/* src: facts/caching-allocator.md 19.1-19.3.  Handles are per thread; the
 * first cuBLAS call of a thread allocates its workspace. */
static void workspace_take(plim_machine *m, plim_t *held, uint64_t bytes, bool temporary)
{
    plim_str name = m->name;
    const char *role = m->role;
    if (!bytes || (!temporary && *held))
        return;
    m->name = PLIM_STR("cublas");
    m->role = m->autograd_thread ? "workspace of the autograd thread" : "workspace";
    plim_t t = plim_m_scratch(m, bytes);
    if (temporary)
        plim_m_drop(m, t);
    else
        *held = t;
    m->name = name;
    m->role = role;
}

void plim_m_gemm(plim_machine *m, bool lt)
{
    const plim_world *w = &m->world;
    int thread = m->autograd_thread;
    if (!w->workspace || m->st || m->stopped)
        return;
    if (!lt || !w->lt_ws_temporary || !w->cublas_ws_temporary)
        workspace_take(m, &m->blas_ws[thread], w->cublas_ws, w->cublas_ws_temporary);
    if (lt)
        workspace_take(m, &m->lt_ws[thread], w->lt_ws, w->lt_ws_temporary);
}

/* ---- running a graph node ----------------------------------------------- */

static void unknown_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    (void)g;
    for (uint32_t i = 0; i < n->n_in; i++)
        if (plim_m_wants(m, n, i))
            dx[i] = plim_m_empty(m, &n->in_meta[i]);
}
static const plim_grad_fn unknown_fn = {"UnknownBackward", unknown_backward};

/* An op without a rule: fresh outputs, saves its inputs and outputs, its
 * backward makes a gradient for each input.  An upper bound for most ops. */
static void run_unknown(plim_machine *m, const plim_graph *g, const plim_node *n,
                        plim_t *value)
{
    plim_t in[PLIM_MAX_GRADS];
    uint32_t n_in = 0;
    m->n_unknown++;
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *a = &n->args[i];
        for (uint32_t k = 0; k < plim_arg_values(a) && n_in < PLIM_MAX_GRADS; k++) {
            uint32_t id = plim_arg_value(a, k);
            if (id != PLIM_NONE && value[id])
                in[n_in++] = value[id];
        }
    }
    plim_t out[4];
    bool wanted = false;
    uint32_t n_out = PLIM_MIN(n->n_outs, PLIM_COUNT(out));
    for (uint32_t i = 0; i < n->n_outs; i++) {
        plim_t t =
            fresh(m, &g->values[n->outs[i]].meta,
                  (plim_storage){.category = m->category, .certainty = PLIM_UNKNOWN_BYTES});
        value[n->outs[i]] = t;
        if (i < n_out)
            out[i] = t;
        wanted |= i < n_out && plim_is_float(g->values[n->outs[i]].meta.dtype);
    }
    /* nobody would ever let go of what a node has saved that leads to no gradient */
    plim_gnode *node = wanted ? plim_m_node(m, &unknown_fn, n_in, in) : NULL;
    for (uint32_t i = 0; node && i < n_in && i < 6; i++)
        plim_m_save(m, node, i, in[i]);
    for (uint32_t i = 0; node && i < n_out; i++) {
        plim_m_save(m, node, 6 + i, out[i]);
        if (plim_is_float(plim_m_meta(m, out[i])->dtype))
            plim_m_output(m, node, i, out[i]);
    }
}

void plim_m_run(plim_machine *m, const plim_graph *g, uint32_t node, plim_t *value)
{
    const plim_node *n = &g->nodes[node];
    plim_t out[64];
    m_cast undo[16];
    if (m->st)
        return;
    if (!n->op || n->n_outs > PLIM_COUNT(out)) {
        run_unknown(m, g, n, value);
        return;
    }
    memset(out, 0, n->n_outs * sizeof out[0]);
    plim_call c = {.m = m,
                   .node = n,
                   .args = n->args,
                   .n_args = n->n_args,
                   .value = value,
                   .out = out,
                   .n_out = n->n_outs,
                   .inplace = n->inplace};
    uint32_t casts = plim__autocast_args(m, n, value, undo, PLIM_COUNT(undo));
    n->op->run(&c);
    plim__autocast_undo(m, value, undo, casts);
    for (uint32_t i = 0; i < n->n_outs; i++)
        value[n->outs[i]] = out[i];
    if (m->st && m->err)
        plim_err_prefix(m->err, "'" PLIM_STR_FMT "' (" PLIM_STR_FMT "): ",
                        PLIM_STR_ARG(g->scopes[n->scope].path), PLIM_STR_ARG(n->target));
}

/* The tensors of one node, renumbered: a rule sees handles by value id. */
typedef struct few {
    plim_t *handle;
    uint32_t *ids, n_ids, n_handles;
    plim_arg args[32];
    plim_t some_handles[64];
    uint32_t some_ids[64];
} few;

/* Room for all of them: here, or in the machine's arena. */
static bool few_init(plim_machine *m, const plim_node *n, few *f)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n->n_args; i++)
        total += plim_arg_values(&n->args[i]);
    bool fits = total <= PLIM_COUNT(f->some_ids);
    f->ids = fits ? f->some_ids : PLIM_NEW_N(m->arena, uint32_t, total);
    f->handle = fits ? f->some_handles : PLIM_NEW_N(m->arena, plim_t, total);
    f->n_ids = f->n_handles = 0;
    return f->ids && f->handle;
}

static void renumber(plim_machine *m, const plim_graph *g, const plim_node *n, few *f)
{
    for (uint32_t i = 0; i < n->n_args; i++) {
        const plim_arg *from = &n->args[i];
        bool list = from->kind == PLIM_ARG_VALUES;
        uint32_t k = plim_arg_values(from), first = f->n_ids;
        f->args[i] = *from;
        for (uint32_t j = 0; j < k; j++) {
            uint32_t id = plim_arg_value(from, j);
            f->ids[f->n_ids++] = id == PLIM_NONE ? PLIM_NONE : f->n_handles;
            if (id != PLIM_NONE)
                f->handle[f->n_handles++] = plim_m_empty(m, &g->values[id].meta);
        }
        if (list)
            f->args[i].ids = &f->ids[first];
        else if (k)
            f->args[i].id = f->ids[first];
    }
}

plim_status plim_op_infer(plim_graph *g, const plim_node *n, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT; /* used only if the inline page overflows */
    plim_machine m;
    few f;
    plim_t out[64] = {0};
    if (!n->op || n->n_outs > PLIM_COUNT(out) || n->n_args > PLIM_COUNT(f.args))
        return plim_fail(err, PLIM_EUNSUPPORTED, 0, "op '" PLIM_STR_FMT "' has no rule",
                         PLIM_STR_ARG(n->target));
    machine_init(&m, &scratch, NULL, &(plim_world){.torch = INT_MAX, .cc = 80}, err);
    if (few_init(&m, n, &f))
        renumber(&m, g, n, &f);
    else
        m_oom(&m);
    plim_call c = {.m = &m,
                   .node = n,
                   .args = f.args,
                   .n_args = n->n_args,
                   .value = f.handle,
                   .out = out,
                   .n_out = n->n_outs,
                   .inplace = n->inplace};
    if (!m.st)
        n->op->run(&c);
    if (m.st)
        plim_err_prefix(err, "'" PLIM_STR_FMT "' (" PLIM_STR_FMT "): ",
                        PLIM_STR_ARG(g->scopes[n->scope].path), PLIM_STR_ARG(n->target));
    for (uint32_t i = 0; !m.st && i < n->n_outs; i++)
        g->values[n->outs[i]].meta = *plim_m_meta(&m, out[i]);
    plim_arena_free(&scratch);
    return m.st;
}

/* ---- arguments ---------------------------------------------------------- */

static const plim_arg *arg_at(const plim_call *c, uint32_t slot)
{
    static const plim_arg none = {.kind = PLIM_ARG_NONE};
    return slot < c->n_args ? &c->args[slot] : &none;
}

bool plim_arg_given(const plim_call *c, uint32_t slot)
{
    return arg_at(c, slot)->kind != PLIM_ARG_NONE;
}

plim_t plim_arg_tensor(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_VALUE ? c->value[a->id] : 0;
}

uint32_t plim_arg_tensors(const plim_call *c, uint32_t slot, plim_t *out, uint32_t max)
{
    const plim_arg *a = arg_at(c, slot);
    if (a->kind == PLIM_ARG_VALUE && max) {
        out[0] = c->value[a->id];
        return 1;
    }
    if (a->kind != PLIM_ARG_VALUES)
        return 0;
    if (a->n > max) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "a list of %u tensors is over the limit of %u",
                    (unsigned)a->n, (unsigned)max);
        return 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        out[i] = a->ids[i] == PLIM_NONE ? 0 : c->value[a->ids[i]];
    return a->n;
}

uint32_t plim_arg_count(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_VALUES || a->kind == PLIM_ARG_INTS ? a->n : 0;
}

plim_t plim_arg_nth(const plim_call *c, uint32_t slot, uint32_t i)
{
    const plim_arg *a = arg_at(c, slot);
    bool there = a->kind == PLIM_ARG_VALUES && i < a->n && a->ids[i] != PLIM_NONE;
    return there ? c->value[a->ids[i]] : 0;
}

void plim_arg_mask(const plim_call *c, uint32_t slot, bool *out, uint32_t n)
{
    const plim_arg *a = arg_at(c, slot);
    bool given = a->kind == PLIM_ARG_INTS;
    for (uint32_t i = 0; i < n; i++)
        out[i] = given ? i < a->n && a->ints[i] : true;
}

int64_t plim_arg_int(const plim_call *c, uint32_t slot, int64_t def)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_INT ? a->i : a->kind == PLIM_ARG_FLOAT ? (int64_t)a->f : def;
}

double plim_arg_float(const plim_call *c, uint32_t slot, double def)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_FLOAT ? a->f : a->kind == PLIM_ARG_INT ? (double)a->i : def;
}

uint32_t plim_arg_ints(const plim_call *c, uint32_t slot, int64_t *out, uint32_t max,
                       uint32_t want)
{
    const plim_arg *a = arg_at(c, slot);
    if (a->kind == PLIM_ARG_INT || (a->kind == PLIM_ARG_INTS && a->n == 1 && want > 1)) {
        int64_t v = a->kind == PLIM_ARG_INT ? a->i : a->ints[0];
        uint32_t n = PLIM_MIN(PLIM_MAX(want, 1), max);
        for (uint32_t i = 0; i < n; i++)
            out[i] = v;
        return n;
    }
    if (a->kind != PLIM_ARG_INTS)
        return 0;
    if (a->n > max) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED, "a list of %u integers is over the limit of %u",
                    (unsigned)a->n, (unsigned)max);
        return 0;
    }
    for (uint32_t i = 0; i < a->n; i++)
        out[i] = a->ints[i];
    return a->n;
}

plim_str plim_arg_string(const plim_call *c, uint32_t slot)
{
    const plim_arg *a = arg_at(c, slot);
    return a->kind == PLIM_ARG_STR ? a->str : (plim_str){NULL, 0};
}
