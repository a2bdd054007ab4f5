/* lifetimes.c -- what goes once nothing refers to it.  Tensors hold storages and autograd nodes, nodes hold
 * tensors, other nodes and the frames of checkpoints, and frames hold tensors. */
#include "machine/machine_priv.h"

/* ---- frames of checkpoints ----------------------------------------------- */

static void frame_free(plim_machine *m, m_frame *f)
{
    plim_assert(!f->nodes);
    for (uint32_t i = 0; f->recomputed && i < f->n_saves; i++)
        plim_m_drop(m, f->recomputed[i]);
    for (uint32_t i = 0; i < f->n_inputs; i++)
        plim_m_drop(m, f->input[i]);
    f->recomputed = NULL;
    f->n_inputs = f->n_saves = 0;
}

void plim__frame_unref(plim_machine *m, uint32_t frame)
{
    if (frame == PLIM_NONE)
        return;
    plim_assert(frame < m->n_frames && m->frames[frame].nodes > 0);
    if (!--m->frames[frame].nodes)
        frame_free(m, &m->frames[frame]);
}

/* A node goes that no gradient has reached: what it would have saved is not kept.
 * src: torch/utils/checkpoint.py, frame.weak_holders */
static void frame_forget(plim_machine *m, const m_gnode *n)
{
    plim_assert(n->frame < m->n_frames);
    m_frame *f = &m->frames[n->frame];
    for (uint32_t i = 0; i < PLIM_MAX_SAVED && !f->recomputed && !n->reentrant; i++)
        if (n->save_index[i] != PLIM_NONE)
            f->wanted[n->save_index[i]] = false;
}

/* ---- autograd nodes ----------------------------------------------------- */

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
    uint32_t view_op = n->view_op, frame = n->frame;
    n->released = true;
    if (frame != PLIM_NONE)
        frame_forget(m, n);
    plim__gnode_drop_saved(m, n);
    n->view_op = n->frame = PLIM_NONE;
    plim__frame_unref(m, frame);
    plim__gnode_unref(m, view_op);
}

/* Chains are as long as the model is deep, so they are not released recursively. */
void plim__gnode_unref(plim_machine *m, uint32_t id)
{
    if (id == PLIM_NONE)
        return;
    plim_assert(m_n(m, id)->refs > 0);
    if (--m_n(m, id)->refs)
        return;
    if (!PLIM_PUSH_ROOM(m->arena, m->dying, m->n_dying, m->cap_dying)) {
        plim_m_oom(m);
        return;
    }
    m->dying[m->n_dying++] = id;
    if (m->n_dying > 1)
        return; /* the loop below, in an outer call, will handle it */
    for (uint32_t k = 0; k < m->n_dying; k++) {
        id = m->dying[k];
        m_gnode *n = m_n(m, id);
        plim_assert(!n->refs);
        plim__gnode_release(m, n);
        plim_m_drop(m, n->held);
        for (uint32_t i = 0; i < n->pub.n_in; i++)
            plim__gnode_unref(m, n->pub.next[i].node);
        if (n->pub.leaf) {
            m_t(m, n->pub.leaf)->acc = PLIM_NONE;
            plim_m_drop(m, n->pub.leaf);
        }
        n->next_free = m->free_gnode;
        n->generation++;
        m->free_gnode = m_index(id);
    }
    m->n_dying = 0;
}

/* ---- storages and tensors ------------------------------------------------ */

void plim__storage_unref(plim_machine *m, uint32_t s)
{
    if (s == PLIM_NONE)
        return;
    m_storage *x = m_s(m, s);
    plim_assert(x->refs > 0);
    if (--x->refs)
        return;
    if (m->tape && !m->st && x->tape != PLIM_NONE && !plim_tape_free_storage(m->tape, x->tape))
        plim_m_oom(m);
    x->tape = m->free_storage;
    m->free_storage = s;
}

plim_t plim_m_ref(plim_machine *m, plim_t t)
{
    plim_assert(!t || m_t(m, t)->refs > 0);
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
    x->generation++;
    m->free_tensor = m_index(t);
    /* PyTorch releases the TensorImpl's autograd meta first, then its storage */
    plim__gnode_unref(m, gnode);
    plim_m_drop(m, grad);
    plim__storage_unref(m, storage);
    plim_m_drop(m, base); /* it is not a view, nor are the parts sparse: one level deep */
    plim_m_drop(m, values);
    plim_m_drop(m, indices);
}
