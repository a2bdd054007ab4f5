/* machine_node.c -- records autograd nodes: see machine.h. */
#include "machine/machine_priv.h"

/* ---- autograd nodes ----------------------------------------------------- */

static uint32_t gnode_new(plim_machine *m, uint32_t n_in)
{
    uint32_t id = m->free_gnode;
    if (id != PLIM_NONE) {
        plim_assert(!m_gnode_at(m, id)->refs);
        m->free_gnode = m_gnode_at(m, id)->next_free;
    } else {
        if (m->n_gnodes == m->npages * GNODE_PAGE &&
            !plim__page_room(m, (void ***)&m->npage, &m->npages, &m->npages_cap,
                             sizeof(m_gnode) * GNODE_PAGE))
            return plim_m_oom(m), PLIM_NONE;
        id = m->n_gnodes++;
        m_gnode_at(m, id)->index = id;
    }
    m_gnode *n = m_gnode_at(m, id);
    if (n->edge_cap < n_in) {
        n->pub.next = PLIM_NEW_N(m->arena, plim_edge, n_in);
        n->pub.in_meta = PLIM_NEW_N(m->arena, plim_meta, n_in);
        n->edge_cap = n_in;
        if (!n->pub.next || !n->pub.in_meta) {
            n->edge_cap = 0;
            return plim_m_oom(m), PLIM_NONE;
        }
    }
    plim_edge *next = n->pub.next;
    plim_meta *in_meta = n->pub.in_meta;
    n->pub = (plim_gnode){
        .next = next, .in_meta = in_meta, .where = m->where, .n_in = n_in, .n_out = 1};
    n->refs = 0;
    n->view_op = n->frame = PLIM_NONE;
    n->released = n->reentrant = false;
    n->held = 0;
    return m_handle(id, n->generation);
}

/* The AccumulateGrad node of a leaf: it owns the leaf, and lives as long as an edge leads to it.
 * src: torch/csrc/autograd/functions/accumulate_grad.h, variable.cpp grad_accumulator */
static uint32_t accumulate_node(plim_machine *m, plim_t leaf)
{
    plim_assert(leaf && m_t(m, leaf)->requires_grad);
    m_tensor *x = m_t(m, leaf);
    if (x->acc != PLIM_NONE)
        return x->acc;
    uint32_t id = gnode_new(m, 0);
    if (id == PLIM_NONE)
        return id;
    m_gnode *n = m_n(m, id);
    n->pub.fn = NULL;
    n->pub.seq = UINT32_MAX;
    n->pub.leaf = plim_m_ref(m, leaf);
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
    plim_assert(fn && (inputs || !n));
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

static uint32_t gnode_id(const plim_gnode *n)
{
    const m_gnode *g = (const m_gnode *)n; /* pub is the first member */
    return m_handle(g->index, g->generation);
}

static void becomes_activation(plim_machine *m, plim_t t)
{
    plim_storage *row = plim__tape_row(m, t);
    if (row && row->category == PLIM_CAT_TEMPORARY)
        row->category = PLIM_CAT_ACTIVATION;
}

/* A saved variable is another tensor on the same storage, so saving does not count as a
 * reference to the tensor object itself. */
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
        plim__frame_resave(m, t);
    plim_t s = m_t(m, t)->moves ? plim_m_ref(m, t)
                                : plim__tensor_new(m, plim_m_meta(m, t), m_t(m, t)->storage);
    if (!s)
        return;
    m_t(m, s)->wrapped = m_t(m, t)->wrapped;
    n->saved[slot] = s;
    becomes_activation(m, t);
}

void plim_m_hold(plim_machine *m, plim_gnode *n, plim_t t)
{
    if (!n || !t || m->st)
        return;
    ((m_gnode *)n)->held = plim__tensor_new(m, plim_m_meta(m, t), m_t(m, t)->storage);
    becomes_activation(m, t);
}

void plim_m_note(plim_machine *m, plim_gnode *n, const plim_meta *meta)
{
    if (n && !m->st && !(n->meta = plim__meta_kept(m, meta)))
        plim_m_oom(m);
}

static void set_grad_fn(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t)
{
    plim_assert(t && !((const m_gnode *)n)->released);
    m_tensor *x = m_t(m, t);
    uint32_t old = x->gnode, id = gnode_id(n);
    x->gnode = id;
    x->gslot = slot;
    x->requires_grad = true;
    if (slot >= n->n_out)
        n->n_out = slot + 1;
    m_n(m, id)->refs++;
    plim__gnode_unref(m, old); /* in-place: the old grad_fn is now an edge of n */
}

void plim_m_output(plim_machine *m, plim_gnode *n, uint32_t slot, plim_t t)
{
    if (n && t && !m->st)
        set_grad_fn(m, n, slot, t);
}

/* ---- writing into a view -------------------------------------------------- */

void plim_m_view_of(plim_machine *m, plim_t t, plim_t of)
{
    if (!m->grad_mode || m->st || !t || !of || m_t(m, t)->base)
        return;
    plim_t base = m_t(m, of)->base;
    m_t(m, t)->base = plim_m_ref(m, base ? base : of);
}

/* The gradient of the whole base: a copy of g, in which the written part is replaced by the
 * result of the op's backward on a copy of that part.
 * src: torch/csrc/autograd/functions/tensor.cpp CopySlices::apply */
static void copy_slices_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_assert(((m_gnode *)n)->view_op != PLIM_NONE);
    plim_gnode *op = &m_n(m, ((m_gnode *)n)->view_op)->pub;
    plim_meta base = plim_meta_like(&n->in_meta[0], plim_m_meta(m, g[0])->dtype);
    plim_t whole = plim_m_empty(m, &base);
    plim_t part = plim_m_empty(m, n->meta);
    op->fn->backward(m, op, &part, dx);
    plim_m_drop(m, part);
    plim_m_drop(m, dx[0]);
    dx[0] = whole;
}
static const plim_grad_fn copy_slices_fn = {"CopySlices", copy_slices_backward};

/* The gradient of a view for its base: zeros of the base's size, with g in the view's
 * place. */
static void as_strided_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_meta base = plim_meta_like(&n->in_meta[0], plim_m_meta(m, g[0])->dtype);
    dx[0] = plim_m_empty(m, &base);
}
static const plim_grad_fn as_strided_fn = {"AsStridedBackward0", as_strided_backward};

/* The op that wrote into view t becomes part of the history of its base, and t becomes a
 * strided view of the base.  src: variable.cpp rebase_history, grad_fn */
static void rebase_view(plim_machine *m, plim_gnode *n, plim_t t)
{
    plim_t base = m_t(m, t)->base;
    plim_assert(base && n->n_in > 0);
    uint32_t op = gnode_id(n), n_in = n->n_in, id = gnode_new(m, n_in);
    if (id == PLIM_NONE)
        return;
    m_gnode *slices = m_n(m, id);
    m_tensor *b = m_t(m, base);
    slices->pub.fn = &copy_slices_fn;
    slices->pub.seq = m->seq++;
    plim_meta part = plim_meta_like(plim_m_meta(m, t), plim_m_meta(m, t)->dtype);
    plim_m_note(m, &slices->pub, &part);
    slices->view_op = op;
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
    set_grad_fn(m, &slices->pub, 0, base);
    plim_gnode *strided = plim_m_node(m, &as_strided_fn, 1, &base);
    if (strided)
        set_grad_fn(m, strided, 0, t);
}

void plim_m_rebase(plim_machine *m, plim_gnode *n, plim_t t)
{
    if (!n || !t || m->st)
        return;
    if (m_t(m, t)->base)
        rebase_view(m, n, t);
    else
        set_grad_fn(m, n, 0, t);
}

/* In a partial pass: and it leads to what the pass is to reach. */
bool plim_m_wants(const plim_machine *m, const plim_gnode *n, uint32_t input)
{
    if (input >= n->n_in || n->next[input].node == PLIM_NONE)
        return false;
    return !m->pass || !m->pass->partial || m_n(m, n->next[input].node)->needed == m->stamp;
}

void plim_m_wanted(const plim_machine *m, const plim_gnode *n, bool *out, uint32_t count)
{
    for (uint32_t i = 0; i < count; i++)
        out[i] = plim_m_wants(m, n, i);
}

plim_t plim_m_saved(const plim_machine *m, const plim_gnode *n, uint32_t slot)
{
    (void)m;
    plim_assert(slot < PLIM_MAX_SAVED && !((const m_gnode *)n)->released);
    return n->saved[slot];
}
