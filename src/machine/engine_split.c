/* engine_split.c -- a backward pass in two parts: of a stage's input, and later of its parameters.
 *
 * The first runs only what leads to the input.  Where the way to a parameter leaves it, at an
 * intermediate node, it keeps the gradients that come in there; the second starts from these.  All
 * saved tensors live until then.
 * src: torch 2.13 torch/distributed/pipelining/_backward.py */
#include "machine/machine_priv.h"

/* A node where ways to the input and to parameters part. */
typedef struct intermediate {
    uint32_t node, group;
    uint32_t n;   /* of its outputs */
    plim_t *grad; /* by output, owned; NULL: it has not run */
} intermediate;

/* Parameters that have intermediates in common. */
typedef struct param_group {
    uint32_t *at, n_at, cap_at; /* intermediates */
    plim_t *param;              /* borrowed */
    uint32_t n, cap;
} param_group;

typedef struct plim_split {
    intermediate *at;
    uint32_t n_at, cap_at;
    param_group *groups;
    uint32_t n_groups, cap_groups;
    /* of the second part: what it is about */
    const param_group *now;
    plim_t *reached; /* by parameter, owned */
} plim_split;

/* The graph that the root leads to, backwards. */
typedef struct upside {
    uint32_t *node, n;      /* what a node leads to comes before it */
    uint32_t *first, *from; /* those that lead to the i-th: from[first[i] .. first[i + 1]) */
    bool *leads;            /* to the input */
    uint32_t *place;        /* among the intermediates; PLIM_NONE: it is none */
    uint32_t *queue;        /* nodes on the way up, each once */
    uint32_t *seen;         /* by node: the last search that came by */
} upside;

/* ---- the first part ----------------------------------------------------------------------- */

/* Numbers the nodes by their places in the list. */
static bool list_upside(plim_machine *m, plim_edge root, upside *u)
{
    u->n = plim__list_nodes(m, &root, 1, &u->node);
    if (u->n == PLIM_NONE)
        return false;
    u->first = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)u->n + 2);
    u->leads = PLIM_NEW_N(m->arena, bool, (uint64_t)u->n + 1);
    u->place = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)u->n + 1);
    u->queue = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)u->n + 1);
    u->seen = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)u->n + 1);
    if (!u->first || !u->leads || !u->place || !u->queue || !u->seen)
        return false;
    uint64_t edges = 0;
    for (uint32_t i = 0; i < u->n; i++) {
        m_n(m, u->node[i])->needed = i;
        u->place[i] = PLIM_NONE;
        edges += m_n(m, u->node[i])->pub.n_in;
    }
    return (u->from = PLIM_NEW_N(m->arena, uint32_t, edges + 1)) != NULL;
}

static void turn_edges(plim_machine *m, upside *u)
{
    for (int fill = 0; fill < 2; fill++) {
        for (uint32_t i = 0; i < u->n; i++) {
            const plim_gnode *g = &m_n(m, u->node[i])->pub;
            for (uint32_t k = 0; k < g->n_in; k++) {
                if (g->next[k].node == PLIM_NONE)
                    continue;
                uint32_t to = m_n(m, g->next[k].node)->needed;
                if (fill)
                    u->from[u->first[to]++] = i;
                else
                    u->first[to + 1]++;
            }
        }
        for (uint32_t i = 0; !fill && i < u->n; i++) /* counts into places */
            u->first[i + 1] += u->first[i];
    }
    for (uint32_t i = u->n; i > 0; i--) /* which filling has moved on by one */
        u->first[i] = u->first[i - 1];
    u->first[0] = 0;
}

static void find_leads(plim_machine *m, upside *u, uint32_t input)
{
    for (uint32_t i = 0; i < u->n; i++) {
        const plim_gnode *g = &m_n(m, u->node[i])->pub;
        u->leads[i] = u->node[i] == input;
        for (uint32_t k = 0; k < g->n_in; k++)
            if (g->next[k].node != PLIM_NONE)
                u->leads[i] |= u->leads[m_n(m, g->next[k].node)->needed];
    }
}

static bool join_group(plim_machine *m, plim_split *s, upside *u, uint32_t i, uint32_t *group)
{
    if (u->place[i] == PLIM_NONE) {
        if (*group == PLIM_NONE &&
            !PLIM_PUSH_ROOM(m->arena, s->groups, s->n_groups, s->cap_groups))
            return false;
        if (*group == PLIM_NONE)
            s->groups[ *group = s->n_groups++] = (param_group){.n = 0};
        param_group *g = &s->groups[*group];
        if (!PLIM_PUSH_ROOM(m->arena, s->at, s->n_at, s->cap_at) ||
            !PLIM_PUSH_ROOM(m->arena, g->at, g->n_at, g->cap_at))
            return false;
        g->at[g->n_at++] = u->place[i] = s->n_at;
        s->at[s->n_at++] = (intermediate){.node = u->node[i], .group = *group};
        m_n(m, u->node[i])->refs++;
    }
    *group = s->at[u->place[i]].group;
    return true;
}

/* Where the way from a parameter up meets one to the input. */
static bool group_param(plim_machine *m, plim_split *s, upside *u, plim_t param,
                        uint32_t search)
{
    uint32_t acc = m_t(m, param)->acc, n = 0, group = PLIM_NONE;
    if (acc == PLIM_NONE || m_n(m, acc)->needed >= u->n || u->node[m_n(m, acc)->needed] != acc)
        return true;
    u->queue[n++] = m_n(m, acc)->needed;
    for (uint32_t k = 0; k < n; k++)
        for (uint32_t e = u->first[u->queue[k]]; e < u->first[u->queue[k] + 1]; e++) {
            uint32_t i = u->from[e];
            if (u->leads[i] && !join_group(m, s, u, i, &group))
                return false;
            if (!u->leads[i] && u->seen[i] != search)
                u->queue[n++] = i;
            u->seen[i] = search;
        }
    if (group == PLIM_NONE)
        return true;
    param_group *g = &s->groups[group];
    if (!PLIM_PUSH_ROOM(m->arena, g->param, g->n, g->cap))
        return false;
    g->param[g->n++] = param;
    return true;
}

static bool find_groups(plim_machine *m, plim_split *s, plim_edge root, plim_t input,
                        const plim_t *params, uint32_t n)
{
    upside u = {.n = 0};
    if (!list_upside(m, root, &u))
        return false;
    turn_edges(m, &u);
    find_leads(m, &u, m_t(m, input)->acc);
    for (uint32_t i = 0; i < n; i++)
        if (!group_param(m, s, &u, params[i], i + 1))
            return false;
    for (uint32_t i = 0; i < s->n_at; i++)
        s->at[i].n = m_n(m, s->at[i].node)->pub.n_out;
    for (uint32_t i = 0; i < u.n; i++) /* a pass's number again */
        m_n(m, u.node[i])->needed = 0;
    return true;
}

static intermediate *find_intermediate(plim_split *s, uint32_t node)
{
    uint32_t i = 0;
    while (i < s->n_at && s->at[i].node != node)
        i++;
    return i < s->n_at ? &s->at[i] : NULL;
}

static void keep_gradients(plim_machine *m, void *ud, uint32_t node)
{
    intermediate *at = find_intermediate(ud, node);
    if (!at)
        return;
    if (!(at->grad = PLIM_NEW_N(m->arena, plim_t, (uint64_t)at->n + 1))) {
        plim_m_oom(m);
        return;
    }
    for (uint32_t i = 0; i < at->n; i++)
        at->grad[i] = plim_m_ref(m, m_n(m, node)->pub.inbox[i]);
}

static void give_gradient(plim_machine *m, void *ud, plim_t leaf, plim_t g)
{
    (void)ud;
    plim_m_set_grad(m, leaf, g);
}

plim_split *plim_m_backward_input(plim_machine *m, plim_t root, plim_t grad, plim_t input,
                                  const plim_t *params, uint32_t n, plim_m_visit visit,
                                  void *ud)
{
    plim_split *s = m->st ? NULL : PLIM_NEW(m->arena, plim_split);
    const plim_edge from = {m_t(m, root)->gnode, m_t(m, root)->gslot};
    if (!s || !find_groups(m, s, from, input, params, n)) {
        plim_m_oom(m);
        return NULL;
    }
    const m_pass pass = {.partial = true,
                         .keeps = true,
                         .before = keep_gradients,
                         .reached = give_gradient,
                         .ud = s};
    plim_m_place(m, PLIM_NONE, PLIM_STR("loss"), "grad", PLIM_CAT_TEMPORARY);
    plim_t first = grad ? plim_m_ref(m, grad) : plim_m_empty_like(m, root);
    m->autograd_thread = true;
    if (!plim__run_pass(m, &from, &first, 1, &m_t(m, input)->acc, 1, &pass, visit, ud))
        plim_m_oom(m);
    m->autograd_thread = false;
    plim_m_drop(m, first);
    return m->st ? NULL : s;
}

/* ---- the second part ------------------------------------------------------------------------ */

/* Gradients that come from another intermediate of the group are in what was kept. */
static void restore_gradients(plim_machine *m, void *ud, uint32_t node)
{
    plim_split *s = ud;
    intermediate *at = s->now->n_at > 1 ? find_intermediate(s, node) : NULL;
    plim_t *inbox = m_n(m, node)->pub.inbox;
    for (uint32_t i = 0; at && at->grad && i < at->n; i++) {
        plim_m_drop(m, inbox[i]);
        inbox[i] = plim_m_ref(m, at->grad[i]);
    }
}

static void reach_param(plim_machine *m, void *ud, plim_t leaf, plim_t g)
{
    plim_split *s = ud;
    uint32_t i = 0;
    while (i < s->now->n && s->now->param[i] != leaf)
        i++;
    plim_assert(i < s->now->n && !s->reached[i]);
    (void)m;
    s->reached[i] = g;
}

/* weight.grad = g, or += g: no layout is brought about, as AccumulateGrad would. */
static void take_gradient(plim_machine *m, plim_t param, plim_t g)
{
    plim_storage *row = plim__tape_row(m, g), *of = plim__tape_row(m, param);
    if (!g || plim_m_grad(m, param))
        return;
    plim_m_set_category(m, g, PLIM_CAT_GRADIENT);
    if (row && of)
        row->name = of->name;
    plim_m_set_grad(m, param, plim_m_ref(m, g));
}

static bool run_group(plim_machine *m, plim_split *s, const param_group *g, plim_m_visit visit,
                      void *ud)
{
    uint32_t n = 0, n_edges = 0;
    for (uint32_t i = 0; i < g->n_at; i++)
        n_edges += s->at[g->at[i]].n;
    plim_edge *root = PLIM_NEW_N(m->arena, plim_edge, (uint64_t)n_edges + 1);
    plim_t *grad = PLIM_NEW_N(m->arena, plim_t, (uint64_t)n_edges + 1);
    uint32_t *needed = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)g->n + 1);
    s->reached = PLIM_NEW_N(m->arena, plim_t, (uint64_t)g->n + 1);
    if (!root || !grad || !needed || !s->reached)
        return false;
    for (uint32_t i = 0; i < g->n_at; i++) {
        const intermediate *at = &s->at[g->at[i]];
        for (uint32_t k = 0; at->grad && k < at->n; k++) {
            root[n] = (plim_edge){at->node, k};
            grad[n++] = at->grad[k];
        }
    }
    for (uint32_t i = 0; i < g->n; i++)
        needed[i] = m_t(m, g->param[i])->acc;
    const m_pass pass = {
        .partial = true, .before = restore_gradients, .reached = reach_param, .ud = s};
    s->now = g;
    return plim__run_pass(m, root, grad, n, needed, g->n, &pass, visit, ud);
}

static void end_group(plim_machine *m, plim_split *s, const param_group *g)
{
    for (uint32_t i = 0; i < g->n_at; i++) {
        intermediate *at = &s->at[g->at[i]];
        for (uint32_t k = 0; at->grad && k < at->n; k++)
            plim_m_drop(m, at->grad[k]);
        plim__gnode_unref(m, at->node);
    }
}

/* What a group reached is a variable until the next one has. */
void plim_m_backward_params(plim_machine *m, plim_split *s, plim_m_visit visit, void *ud)
{
    plim_t *before = NULL;
    uint32_t n = 0;
    m->autograd_thread = true;
    for (uint32_t k = 0; s && k < s->n_groups && !m->st; k++) {
        const param_group *g = &s->groups[k];
        if (!run_group(m, s, g, visit, ud))
            plim_m_oom(m);
        for (uint32_t i = 0; before && i < n; i++)
            plim_m_drop(m, before[i]);
        before = s->reached;
        n = g->n;
        for (uint32_t i = 0; before && i < n; i++)
            take_gradient(m, g->param[i], before[i]);
        end_group(m, s, g);
    }
    for (uint32_t i = 0; before && i < n; i++)
        plim_m_drop(m, before[i]);
    m->autograd_thread = false;
}
