/* frames.c -- what the nodes of a checkpointed region save: its number in the first forward, the tensor in
 * the second.  src: torch/utils/checkpoint.py; docs/sources/training-step.md 3. */
#include "machine/machine_priv.h"

/* A node of the region would have saved a tensor: only its number is recorded. */
void plim__frame_save(plim_machine *m, m_gnode *n, uint32_t slot)
{
    plim_assert(m->frame < m->n_frames && slot < PLIM_MAX_SAVED);
    m_frame *f = &m->frames[m->frame];
    if (!n->save_index && !(n->save_index = PLIM_NEW_N(m->arena, uint32_t, PLIM_MAX_SAVED))) {
        plim_m_oom(m);
        return;
    }
    if (n->frame == PLIM_NONE) {
        n->frame = m->frame;
        f->nodes++;
        memset(n->save_index, 0xff, PLIM_MAX_SAVED * sizeof *n->save_index);
    }
    if (!PLIM_PUSH_ROOM(m->arena, f->wanted, f->n_saves, f->cap_saves)) {
        plim_m_oom(m);
        return;
    }
    f->wanted[f->n_saves] = true;
    n->save_index[slot] = f->n_saves++;
}

/* Rewritten in 2.1: since then the second forward stops after saving the last tensor that the
 * first one saved, and each recomputed tensor is released when it is unpacked; before, all of
 * the region runs, and its tensors live as long as their node.
 * src: torch/utils/checkpoint.py of 2.0.1 and 2.1.2 */
bool plim__frame_stops_early(const plim_machine *m)
{
    return m->world.torch >= PLIM_SINCE_CHECKPOINT_EARLY_STOP;
}

void plim__frame_resave(plim_machine *m, plim_t t)
{
    plim_assert(m->recomputing < m->n_frames && m->frames[m->recomputing].recomputed);
    m_frame *f = &m->frames[m->recomputing];
    bool itself = m_t(m, t)->moves && !m_t(m, t)->requires_grad; /* else x.detach() */
    if (m->n_recomputed < f->n_saves && f->wanted[m->n_recomputed])
        f->recomputed[m->n_recomputed] =
            itself ? plim_m_ref(m, t) : plim_m_alias(m, t, plim_m_meta(m, t));
    if (++m->n_recomputed >= f->n_saves && plim__frame_stops_early(m))
        m->stopped = true;
}
