/* autocast.c -- torch.autocast: which ops cast their arguments, and the cache of
 * cast parameters.  src: docs/sources/training-step.md 5; ATen/autocast_mode.cpp. */
#include "machine/machine_priv.h"
#include "machine/moves.h"

enum { LOWER = 1, F32, WIDEST };

static int autocast_class(const char *name, int torch)
{
    static const struct {
        const char *name;
        int how, since;
    } rows[] = {
#define PLIM_AUTOCAST(how, name) {name, how, 0},
#define PLIM_AUTOCAST_SINCE(since, how, name) {name, how, PLIM_SINCE_##since},
#include "machine/autocast.def"
#undef PLIM_AUTOCAST_SINCE
#undef PLIM_AUTOCAST
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (rows[i].name[0] == name[0] && !strcmp(rows[i].name, name))
            return torch >= rows[i].since ? rows[i].how : 0;
    return 0;
}

static bool is_autocasting(const plim_machine *m) { return m->autocast != PLIM_DTYPE_COUNT; }

void plim_m_autocast(plim_machine *m, plim_dtype t)
{
    plim_assert(t == PLIM_DTYPE_COUNT || plim_is_float(t));
    m->autocast = t;
    if (t != PLIM_DTYPE_COUNT)
        return;
    for (uint32_t i = 0; i < m->n_casts; i++) { /* the outermost region ends */
        m_t(m, m->casts[i])->cast = 0;
        plim_m_drop(m, m->cast_to[i]);
    }
    m->n_casts = 0;
}

static bool autocast_applies(const plim_machine *m, plim_t t)
{
    const m_tensor *x = m_t(m, t);
    return t && !x->wrapped && plim_is_float(x->meta.dtype) && x->meta.dtype != PLIM_F64;
}

/* Only fp32 leaf parameters are cached, and only in the region's dtype. */
static bool autocast_caches(const plim_machine *m, plim_t t, plim_dtype to)
{
    const m_tensor *x = m_t(m, t);
    return to == m->autocast && x->meta.dtype == PLIM_F32 && x->requires_grad &&
           x->gnode == PLIM_NONE && !x->is_view;
}

static plim_t autocast_cast(plim_machine *m, plim_t t, plim_dtype to)
{
    plim_assert((unsigned)to < PLIM_DTYPE_COUNT);
    if (!autocast_applies(m, t) || m_t(m, t)->meta.dtype == to)
        return plim_m_ref(m, t);
    if (m_t(m, t)->cast && autocast_caches(m, t, to))
        return plim_m_ref(m, m_t(m, t)->cast);
    plim_t y = plim_at_to(m, t, to);
    if (!y || !autocast_caches(m, t, to))
        return y;
    uint32_t n = m->n_casts;
    if (n == m->cap_casts) { /* two arrays that grow together */
        uint32_t cap_to = m->cap_casts;
        if (!PLIM_PUSH_ROOM(m->arena, m->casts, n, m->cap_casts) ||
            !PLIM_PUSH_ROOM(m->arena, m->cast_to, n, cap_to)) {
            plim_m_oom(m);
            return y;
        }
    }
    m_t(m, t)->cast = y;
    m->casts[m->n_casts] = t;
    m->cast_to[m->n_casts++] = plim_m_ref(m, y);
    return y;
}

plim_t plim_m_autocast_f32(plim_machine *m, plim_t t)
{
    return is_autocasting(m) ? autocast_cast(m, t, PLIM_F32) : plim_m_ref(m, t);
}

plim_dtype plim_m_autocast_out(const plim_machine *m, plim_t t)
{
    return is_autocasting(m) && autocast_applies(m, t) ? PLIM_F32 : plim_m_meta(m, t)->dtype;
}

static void autocast_widen(plim_machine *m, plim_dtype *widest, plim_t t)
{
    plim_dtype d = m_t(m, t)->meta.dtype;
    if (autocast_applies(m, t) && (d == PLIM_F32 || *widest == PLIM_DTYPE_COUNT))
        *widest = d;
}

/* C++ evaluates the casts of one call from the last argument to the first. */
uint32_t plim__autocast_args(plim_machine *m, const plim_node *n, plim_t *value, m_cast *undo,
                             uint32_t max)
{
    int how = is_autocasting(m) ? autocast_class(n->op->name, m->world.torch) : 0;
    plim_dtype to = how == LOWER ? m->autocast : how == F32 ? PLIM_F32 : PLIM_DTYPE_COUNT;
    uint32_t done = 0, id;
    for (uint32_t i = 0; how == WIDEST && i < n->n_args; i++)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++)
            if ((id = plim_arg_value(&n->args[i], k)) != PLIM_NONE)
                autocast_widen(m, &to, value[id]);
    if (!how || to == PLIM_DTYPE_COUNT)
        return 0;
    for (uint32_t i = n->n_args; i-- > 0;)
        for (uint32_t k = 0; k < plim_arg_values(&n->args[i]); k++) {
            if ((id = plim_arg_value(&n->args[i], k)) == PLIM_NONE)
                continue;
            plim_t was = value[id];
            if (!autocast_applies(m, was) || m_t(m, was)->meta.dtype == to || done == max)
                continue;
            undo[done++] = (m_cast){id, was};
            value[id] = autocast_cast(m, was, to);
        }
    plim_assert(done <= max);
    return done;
}

void plim__autocast_undo(plim_machine *m, plim_t *value, const m_cast *undo, uint32_t n)
{
    while (n-- > 0) {
        plim_m_drop(m, value[undo[n].id]);
        value[undo[n].id] = undo[n].was;
    }
}
