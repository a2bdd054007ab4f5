/* checkpoint.c -- activation checkpointing: regions whose saved tensors are dropped and
 * recomputed in the backward pass.
 * src: torch/utils/checkpoint.py; docs/sources/training-step.md 3. */
#include "machine/machine_priv.h"

void plim_m_on_recompute(plim_machine *m, plim_m_recompute recompute,
                         plim_m_recompute_backward recompute_backward, void *ud)
{
    m->recompute = recompute;
    m->recompute_backward = recompute_backward;
    m->recompute_ud = ud;
}

/* ---- forward ------------------------------------------------------------------- */

void plim_m_region_begin(plim_machine *m, uint32_t region)
{
    plim_assert(m->frame == PLIM_NONE); /* regions do not nest */
    if (!PLIM_PUSH_ROOM(m->arena, m->frames, m->n_frames, m->cap_frames)) {
        plim_m_oom(m);
        return;
    }
    m->frame = m->n_frames++;
    m->frames[m->frame] = (m_frame){.region = region, .nodes = 1, .autocast = m->autocast};
}

void plim_m_region_input(plim_machine *m, plim_t t)
{
    if (m->frame == PLIM_NONE)
        return;
    m_frame *f = &m->frames[m->frame];
    if (!PLIM_PUSH_ROOM(m->arena, f->input, f->n_inputs, f->cap_inputs))
        plim_m_oom(m);
    else
        f->input[f->n_inputs++] = plim_m_ref(m, t);
}

void plim_m_region_end(plim_machine *m)
{
    uint32_t f = m->frame;
    m->frame = PLIM_NONE;
    plim__frame_unref(m, f);
}

/* ---- the second forward ----------------------------------------------------------- */

static void frame_recompute(plim_machine *m, uint32_t frame)
{
    m_frame *f = &m->frames[frame];
    plim_assert(m->recomputing == PLIM_NONE);
    plim_assert(m->recompute && !f->recomputed);
    if (!(f->recomputed = PLIM_NEW_N(m->arena, plim_t, (uint64_t)f->n_saves + 1))) {
        plim_m_oom(m);
        return;
    }
    bool mode = m->grad_mode;
    uint32_t where = m->where;
    m->grad_mode = true;
    m->recomputing = frame;
    m->n_recomputed = 0;
    if (f->autocast != PLIM_DTYPE_COUNT)
        plim_m_autocast(m, f->autocast);
    m->recompute(m->recompute_ud, f->region, f->input, f->n_inputs);
    plim_m_autocast(m, PLIM_DTYPE_COUNT); /* a region of its own, with its own casts */
    m->stopped = false;
    m->recomputing = PLIM_NONE;
    m->grad_mode = mode;
    m->where = where;
}

bool plim_m_stopped(const plim_machine *m) { return m->stopped; }

/* Before a node runs: its saved tensors are recomputed, and the node then owns them. */
void plim__frame_unpack(plim_machine *m, m_gnode *n)
{
    if (n->view_op != PLIM_NONE)
        plim__frame_unpack(m, m_n(m, n->view_op));
    if (n->frame == PLIM_NONE || n->reentrant)
        return;
    if (!m->frames[n->frame].recomputed)
        frame_recompute(m, n->frame);
    plim_assert(n->frame < m->n_frames && n->save_index);
    m_frame *f = &m->frames[n->frame];
    for (uint32_t i = 0; i < PLIM_MAX_SAVED && f->recomputed; i++)
        if (n->save_index[i] != PLIM_NONE) {
            n->pub.saved[i] = f->recomputed[n->save_index[i]];
            f->recomputed[n->save_index[i]] = 0;
        }
}

/* ---- reentrant ---------------------------------------------------------------------- */

/* The forward of a reentrant region ran without recording; when its gradients arrive, this
 * node runs it again with recording, and then backward. */
static void checkpoint_backward(plim_machine *m, plim_gnode *n, const plim_t *g, plim_t *dx)
{
    plim_assert(((m_gnode *)n)->reentrant && m->recompute_backward);
    uint32_t frame = ((m_gnode *)n)->frame;
    m_frame *f = &m->frames[frame];
    bool mode = m->grad_mode;
    m->grad_mode = true;
    if (f->autocast != PLIM_DTYPE_COUNT)
        plim_m_autocast(m, f->autocast);
    m->recompute_backward(m->recompute_ud, f->region, f->input, f->n_inputs, g, dx);
    m->grad_mode = mode;
}
static const plim_grad_fn checkpoint_fn = {"CheckpointFunctionBackward", checkpoint_backward};

void plim_m_region_reentrant(plim_machine *m, const plim_t *out, uint32_t n_out)
{
    plim_assert(m->frame < m->n_frames);
    m_frame *f = &m->frames[m->frame];
    plim_gnode *n = plim_m_node(m, &checkpoint_fn, f->n_inputs, f->input);
    if (!n) {
        plim_m_fail(m, PLIM_EUNSUPPORTED,
                    "a reentrant checkpoint trains nothing: none of its inputs requires "
                    "a gradient");
        return;
    }
    m_gnode *g = (m_gnode *)n;
    g->frame = m->frame;
    g->reentrant = true;
    f->nodes++;
    for (uint32_t i = 0; i < n_out; i++)
        if (plim_is_float(plim_m_meta(m, out[i])->dtype))
            plim_m_output(m, n, i, out[i]);
}
