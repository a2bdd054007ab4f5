/* engine.c -- loss.backward(): PyTorch's autograd engine, event for event.
 * src: torch/csrc/autograd/{engine,input_buffer}.cpp, functions/accumulate_grad.h
 * and docs/sources/training-step.md 2. */
#include <stdlib.h>

#include "machine/machine_priv.h"
#include "machine/machine_run.h"
#include "machine/moves.h"

typedef struct ready_queue { /* a heap: the largest sequence number runs first */
    uint32_t *ids;
    uint32_t n, cap;
} ready_queue;

static bool queue_push(plim_machine *m, ready_queue *q, uint32_t id)
{
    if (!PLIM_PUSH_ROOM(m->arena, q->ids, q->n, q->cap))
        return false;
    uint32_t i = q->n++;
    while (i && m_n(m, q->ids[(i - 1) / 2])->pub.seq < m_n(m, id)->pub.seq) {
        q->ids[i] = q->ids[(i - 1) / 2];
        i = (i - 1) / 2;
    }
    q->ids[i] = id;
    return true;
}

static uint32_t queue_pop(plim_machine *m, ready_queue *q)
{
    plim_assert(q->n > 0);
    uint32_t top = q->ids[0], last = q->ids[--q->n], i = 0;
    for (;;) {
        uint32_t k = 2 * i + 1;
        if (k >= q->n)
            break;
        if (k + 1 < q->n && m_n(m, q->ids[k + 1])->pub.seq > m_n(m, q->ids[k])->pub.seq)
            k++;
        if (m_n(m, q->ids[k])->pub.seq <= m_n(m, last)->pub.seq)
            break;
        q->ids[i] = q->ids[k];
        i = k;
    }
    q->ids[i] = last;
    return top;
}

/* State of a node in an enclosing backward pass: saved here and restored at the end. */
typedef struct visited_node {
    uint32_t id, deps, stamp;
    plim_t *inbox;
} visited_node;

/* Adds a node to this pass and saves its state from an enclosing pass. */
static bool visit_node(plim_machine *m, uint32_t id, uint32_t stamp, visited_node **seen,
                       uint32_t *n, uint32_t *cap)
{
    plim_gnode *g = &m_n(m, id)->pub;
    if (g->stamp == stamp)
        return true;
    if (!PLIM_PUSH_ROOM(m->arena, *seen, *n, *cap))
        return false;
    (*seen)[(*n)++] = (visited_node){id, g->deps, g->stamp, g->inbox};
    g->stamp = stamp;
    g->deps = 0;
    g->queued = false;
    g->inbox = PLIM_NEW_N(m->arena, plim_t, g->n_out);
    return g->inbox != NULL;
}

/* Counts, for every node reachable from the roots, how many consumers will send it a gradient,
 * and creates its inbox. */
static bool count_dependencies(plim_machine *m, const plim_edge *root, uint32_t n_roots,
                               uint32_t stamp, visited_node **seen, uint32_t *n)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < n_roots; i++)
        if (root[i].node != PLIM_NONE && !visit_node(m, root[i].node, stamp, seen, n, &cap))
            return false;
    for (uint32_t k = 0; k < *n; k++) {
        plim_gnode *g = &m_n(m, (*seen)[k].id)->pub;
        for (uint32_t i = 0; i < g->n_in; i++) {
            if (g->next[i].node == PLIM_NONE)
                continue;
            if (!visit_node(m, g->next[i].node, stamp, seen, n, &cap))
                return false;
            m_n(m, g->next[i].node)->pub.deps++;
        }
    }
    return true;
}

/* Whether no other tensor shares its storage. */
static bool owns_storage(const plim_machine *m, plim_t t)
{
    uint32_t s = m_t(m, t)->storage;
    return s != PLIM_NONE && m_s(m, s)->refs == 1;
}

/* src: input_buffer.cpp can_accumulate_inplace: nobody else may hold the older gradient or its
 * storage.  A view also holds its base, hence the storage twice; that is so for a weight
 * shared by two linear layers, whose gradients are transposed views. */
static bool can_add_inplace(const plim_machine *m, plim_t t)
{
    const m_tensor *x = m_t(m, t);
    return m->world.torch >= PLIM_SINCE_GRAD_ADDED_IN_PLACE && x->refs == 1 && !x->is_view &&
           owns_storage(m, t) && plim_is_dense(&x->meta);
}

static int64_t rows_of(const plim_machine *m, plim_t sparse)
{
    plim_assert(m->st || plim_m_values(m, sparse));
    return plim_m_meta(m, plim_m_values(m, sparse))->dim[0];
}

/* a + b as a new tensor: dense if one of them is, else the rows of both concatenated.
 * src: cuda/SparseCUDATensorMath.cu */
static plim_t grad_sum(plim_machine *m, plim_t a, plim_t b)
{
    if (!plim_m_values(m, a))
        return plim_m_empty_like(m, a);
    if (!plim_m_values(m, b))
        return plim_m_empty_like(m, b);
    return plim_m_sparse_like(m, a, rows_of(m, a) + rows_of(m, b));
}

/* A gradient is read twice and written once where it is added to an earlier one. */
static void record_sum(plim_machine *m, plim_t g)
{
    if (m->ledger)
        plim_m_work_bytes(m, PLIM_WORK_pointwise, 1, plim_sat_mul(plim__work_bytes(m, g), 3));
    m->work = (m_work){0};
}

/* Adds g to an input slot.  Returns what the caller has to drop: nothing if g was stored, g if
 * it was added to an earlier gradient.
 * src: input_buffer.cpp accumulate */
static plim_t inbox_add(plim_machine *m, plim_t *slot, plim_t g)
{
    if (!*slot) {
        *slot = g;
        return 0;
    }
    if (plim_m_values(m, *slot) && !plim_m_values(m, g) && can_add_inplace(m, g)) {
        plim_m_drop(m, *slot);
        *slot = g;
        return 0;
    }
    if (plim_m_values(m, *slot) || !can_add_inplace(m, *slot)) {
        plim_t sum = grad_sum(m, *slot, g);
        plim_m_drop(m, *slot);
        *slot = sum;
    }
    record_sum(m, g);
    return g;
}

/* utils::obeys_layout_contract: the gradient of a dense parameter must have the parameter's
 * strides, any other must be contiguous. */
static bool layout_ok(const plim_meta *g, const plim_meta *p)
{
    if (!plim_is_dense(p))
        return plim_is_contiguous(g);
    if (!plim_same_size(g, p))
        return false;
    for (int32_t i = 0; i < g->rank; i++)
        if (g->dim[i] != 1 && g->stride[i] != p->stride[i])
            return false;
    return true;
}

/* From here on t's storage is the gradient of leaf. */
static void call_gradient(plim_machine *m, plim_t t, plim_t leaf)
{
    plim_storage *row = plim__tape_row(m, t), *of = plim__tape_row(m, leaf);
    plim_m_set_category(m, t, PLIM_CAT_GRADIENT);
    if (row && of)
        row->name = of->name;
}

/* Whether g itself may become the parameter's gradient.  A sparse one is a view of the
 * gradient that came into the embedding, and of its indices. */
static bool can_steal(const plim_machine *m, plim_t g, const plim_meta *p)
{
    plim_t values = plim_m_values(m, g);
    return m_t(m, g)->refs == 1 && (values ? plim_is_contiguous(plim_m_meta(m, values))
                                           : layout_ok(&m_t(m, g)->meta, p));
}

/* g is owned, and so is the result. */
static plim_t cloned_grad(plim_machine *m, plim_t g, const plim_meta *p)
{
    plim_meta meta = plim_meta_like(p, p->dtype);
    plim_t copy = plim_m_values(m, g) ? plim_m_sparse_copy(m, g) : plim_m_empty(m, &meta);
    plim_m_drop(m, g);
    return copy;
}

/* AccumulateGrad: steals the gradient if nobody else refers to it, else clones it into the
 * parameter's layout.  A dense gradient that exists is added to in place; a sparse one is
 * replaced by a new tensor. */
static void accumulate_into(plim_machine *m, plim_t leaf, plim_t g, bool steal)
{
    plim_assert(g);
    m_tensor *p = m_t(m, leaf);
    if (p->grad && plim_m_values(m, p->grad)) {
        plim_t sum = grad_sum(m, p->grad, g);
        plim_m_drop(m, p->grad);
        plim_m_drop(m, g);
        p->grad = sum;
    } else if (p->grad) {
        record_sum(m, g);
        plim_m_drop(m, g);
        return;
    } else {
        p->grad = steal ? g : cloned_grad(m, g, &p->meta);
    }
    plim_t values = plim_m_values(m, p->grad), indices = plim_m_indices(m, p->grad);
    call_gradient(m, values ? values : p->grad, leaf);
    if (owns_storage(m, indices)) /* else the batch's */
        call_gradient(m, indices, leaf);
}

/* The node holds what came in until its hook has returned. */
static void accumulate_grad(plim_machine *m, plim_t leaf, plim_t g)
{
    bool steal = can_steal(m, g, &m_t(m, leaf)->meta);
    plim_t held = m->on_grad ? plim_m_ref(m, g) : 0;
    accumulate_into(m, leaf, g, steal);
    if (m->on_grad)
        m->on_grad(m->on_grad_ud, leaf);
    plim_m_drop(m, held);
}

/* validate_outputs: a gradient is brought to the size and dtype of its input. */
static plim_t validate_grad(plim_machine *m, plim_t g, const plim_meta *want)
{
    if (!g)
        return 0;
    if (!plim_same_size(plim_m_meta(m, g), want)) {
        plim_t r = plim_at_sum_to(m, g, want);
        plim_m_drop(m, g);
        g = r;
    }
    const plim_meta *have = plim_m_meta(m, g);
    if (have->dtype != want->dtype && plim_is_float(want->dtype)) {
        plim_meta cast = plim_meta_like(have, want->dtype);
        plim_t r = plim_m_empty(m, &cast);
        plim_m_drop(m, g);
        g = r;
    }
    return g;
}

static uint64_t read_by_node(const plim_machine *m, const plim_gnode *g)
{
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < g->n_out; i++)
        bytes = plim_sat_add(bytes, plim__work_bytes(m, g->inbox[i]));
    for (uint32_t i = 0; i < PLIM_MAX_SAVED; i++)
        bytes = plim_sat_add(bytes, plim__work_bytes(m, g->saved[i]));
    return bytes;
}

static void record_backward(plim_machine *m, const plim_gnode *g, uint64_t read,
                            const plim_t *dx)
{
    plim_assert(m->ledger);
    const plim_node *n = g->where == PLIM_NONE ? NULL : &m->ledger->graph->nodes[g->where];
    uint64_t out = 0;
    for (uint32_t i = 0; i < g->n_in; i++)
        out = plim_sat_add(out, plim__work_bytes(m, dx[i]));
    static const plim_op loss = {.family = "loss"};
    plim__work_end(m, n ? n->op : &loss, read, out, false, true);
}

static void drop_inbox(plim_machine *m, plim_gnode *g)
{
    for (uint32_t i = 0; i < g->n_out; i++) {
        plim_m_drop(m, g->inbox[i]);
        g->inbox[i] = 0;
    }
}

static void run_node(plim_machine *m, m_gnode *n, plim_t *dx)
{
    plim_gnode *g = &n->pub;
    plim_assert(g->fn && g->inbox);
    bool any = false;
    for (uint32_t i = 0; i < g->n_out; i++) {
        any |= g->inbox[i] != 0;
        if (plim_m_values(m, g->inbox[i]))
            plim_m_fail(m, PLIM_EUNSUPPORTED,
                        "a sparse gradient reaches '%s': it has a rule at a parameter only",
                        g->fn->name);
    }
    if (any) {
        plim__frame_unpack(m, n);
        uint64_t read = m->ledger ? read_by_node(m, g) : 0;
        m->work = (m_work){0};
        g->fn->backward(m, g, g->inbox, dx);
        if (n->frame != PLIM_NONE && !n->reentrant &&
            plim__frame_stops_early(m)) /* for this call */
            plim__gnode_drop_saved(m, n);
        for (uint32_t i = 0; i < g->n_in; i++)
            dx[i] = validate_grad(m, dx[i], &g->in_meta[i]);
        if (m->ledger)
            record_backward(m, g, read, dx);
    }
    drop_inbox(m, g);
    if (!m->pass || !m->pass->keeps)
        plim__gnode_release(m, n);
}

/* What has come in at a leaf. */
static void run_leaf(plim_machine *m, plim_gnode *g)
{
    plim_assert(!g->fn && g->leaf);
    plim_t came = g->inbox[0];
    g->inbox[0] = 0;
    if (came && m->pass && m->pass->partial) {
        m->pass->reached(m, m->pass->ud, g->leaf, came);
        return;
    }
    if (came)
        accumulate_grad(m, g->leaf, came);
    if (came && m->watch && m->watch->gradient && !m_t(m, g->leaf)->unheard)
        m->watch->gradient(m->watch->ud, g->leaf);
}

/* Runs the ready nodes and everything that becomes ready through them. */
static void run_all(plim_machine *m, ready_queue *q, plim_m_visit visit, void *ud)
{
    while (q->n && !m->st) {
        plim_t dx[PLIM_OP_OUTS];
        uint32_t id = queue_pop(m, q);
        m_gnode *n = m_n(m, id);
        plim_gnode *g = &n->pub;
        m->where = g->where;
        if (m->pass && m->pass->partial && n->needed != m->stamp) {
            drop_inbox(m, g);
            continue;
        }
        if (!g->fn) {
            run_leaf(m, g);
            continue;
        }
        if (m->pass && m->pass->before)
            m->pass->before(m, m->pass->ud, id);
        visit(ud, g->where, g->fn->name);
        plim_assert(!n->released); /* a graph runs only once: the loop builds a new one */
        if (g->n_in > PLIM_OP_OUTS) {
            plim_m_fail(m, PLIM_EUNSUPPORTED, "'%s' has %u inputs, the limit is %d",
                        g->fn->name, (unsigned)g->n_in, PLIM_OP_OUTS);
            break;
        }
        memset(dx, 0, PLIM_MAX(g->n_in, PLIM_MAX_GRADS) * sizeof *dx);
        run_node(m, n, dx);
        for (uint32_t i = 0; i < g->n_in; i++) {
            plim_edge e = g->next[i];
            if (e.node == PLIM_NONE)
                continue;
            plim_gnode *to = &m_n(m, e.node)->pub;
            plim_assert(to->deps > 0 && e.slot < to->n_out);
            if (dx[i])
                dx[i] = inbox_add(m, &to->inbox[e.slot], dx[i]);
            if (--to->deps == 0 && !queue_push(m, q, e.node))
                plim_m_oom(m);
        }
        for (uint32_t i = 0; i < g->n_in; i++) /* a node's results are released together */
            plim_m_drop(m, dx[i]);
    }
}

static int compare_runs(const void *a, const void *b)
{
    const uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* Nodes by the reverse of the order in which they run: what a node leads to comes before it. */
static uint64_t *sort_nodes(plim_machine *m, const visited_node *seen, uint32_t n)
{
    uint64_t *key = PLIM_NEW_N(m->arena, uint64_t, (uint64_t)n + 1);
    for (uint32_t i = 0; key && i < n; i++) {
        const plim_gnode *g = &m_n(m, seen[i].id)->pub;
        key[i] = g->fn ? (uint64_t)(g->seq + 1) << 32 | i : i;
    }
    if (key)
        qsort(key, n, sizeof *key, compare_runs);
    return key;
}

/* Marks the nodes that lead to a needed leaf. */
static bool mark_needed(plim_machine *m, const visited_node *seen, uint32_t n,
                        const uint32_t *needed, uint32_t n_needed)
{
    uint64_t *key = sort_nodes(m, seen, n);
    for (uint32_t i = 0; i < n_needed; i++)
        m_n(m, needed[i])->needed = m->stamp;
    for (uint32_t i = 0; key && i < n; i++) {
        m_gnode *g = m_n(m, seen[(uint32_t)key[i]].id);
        for (uint32_t k = 0; k < g->pub.n_in; k++)
            if (g->pub.next[k].node != PLIM_NONE &&
                m_n(m, g->pub.next[k].node)->needed == m->stamp)
                g->needed = m->stamp;
    }
    return key != NULL;
}

static void restore_nodes(plim_machine *m, const visited_node *seen, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        plim_gnode *node = &m_n(m, seen[i].id)->pub;
        node->deps = seen[i].deps;
        node->stamp = seen[i].stamp;
        node->inbox = seen[i].inbox;
    }
}

uint32_t plim__list_nodes(plim_machine *m, const plim_edge *root, uint32_t n, uint32_t **out)
{
    visited_node *seen = NULL;
    uint32_t n_seen = 0;
    if (!count_dependencies(m, root, n, ++m->stamp, &seen, &n_seen))
        return PLIM_NONE;
    uint64_t *key = sort_nodes(m, seen, n_seen);
    *out = PLIM_NEW_N(m->arena, uint32_t, (uint64_t)n_seen + 1);
    for (uint32_t i = 0; key && *out && i < n_seen; i++)
        (*out)[i] = seen[(uint32_t)key[i]].id;
    restore_nodes(m, seen, n_seen);
    return key && *out ? n_seen : PLIM_NONE;
}

static void start_pass(plim_machine *m, const plim_edge *root, const plim_t *g, uint32_t n,
                       ready_queue *q)
{
    for (uint32_t i = 0; i < n; i++) {
        if (root[i].node == PLIM_NONE || !g[i])
            continue;
        plim_gnode *node = &m_n(m, root[i].node)->pub;
        plim_assert(root[i].slot < node->n_out);
        plim_m_drop(m, inbox_add(m, &node->inbox[root[i].slot], plim_m_ref(m, g[i])));
        if (!node->deps && !node->queued) {
            node->queued = true;
            if (!queue_push(m, q, root[i].node))
                plim_m_oom(m);
        }
    }
}

bool plim__run_pass(plim_machine *m, const plim_edge *root, const plim_t *g, uint32_t n,
                    const uint32_t *needed, uint32_t n_needed, const m_pass *pass,
                    plim_m_visit visit, void *ud)
{
    plim_assert(!pass || !pass->partial || pass->reached);
    ready_queue q = {NULL, 0, 0};
    visited_node *seen = NULL;
    uint32_t n_seen = 0;
    const m_pass *outer = m->pass;
    if (!count_dependencies(m, root, n, ++m->stamp, &seen, &n_seen) ||
        (pass && pass->partial && !mark_needed(m, seen, n_seen, needed, n_needed)))
        return false;
    m->pass = pass;
    start_pass(m, root, g, n, &q);
    run_all(m, &q, visit, ud);
    m->pass = outer;
    restore_nodes(m, seen, n_seen);
    return true;
}

void plim_m_backward_from(plim_machine *m, const plim_t *root, const plim_t *g, uint32_t n,
                          plim_m_visit visit, void *ud)
{
    if (m->st)
        return;
    plim_edge *from = PLIM_NEW_N(m->arena, plim_edge, (uint64_t)n + 1);
    for (uint32_t i = 0; from && i < n; i++)
        from[i] = (plim_edge){m_t(m, root[i])->gnode, m_t(m, root[i])->gslot};
    if (!from || !plim__run_pass(m, from, g, n, NULL, 0, NULL, visit, ud))
        plim_m_oom(m);
}

void plim_m_on_grad(plim_machine *m, void (*call)(void *ud, plim_t leaf), void *ud)
{
    m->on_grad = call;
    m->on_grad_ud = ud;
}

void plim_m_backward(plim_machine *m, plim_t root, plim_t grad, plim_m_visit visit, void *ud)
{
    if (m->st)
        return;
    if (m_t(m, root)->gnode == PLIM_NONE) {
        plim_m_fail(m, PLIM_ESHAPE, "the loss does not depend on any parameter");
        return;
    }
    bool mode = m->grad_mode;
    plim_assert(!m->autograd_thread);
    m->grad_mode = false;
    plim_m_place(m, PLIM_NONE, PLIM_STR("loss"), "grad", PLIM_CAT_TEMPORARY);
    /* ones, held by Python until backward returns */
    plim_t first = grad ? plim_m_ref(m, grad) : plim_m_empty_like(m, root);
    m->autograd_thread = true;
    plim_m_backward_from(m, &root, &first, 1, visit, ud);
    if (m->watch && m->watch->finished)
        m->watch->finished(m->watch->ud);
    m->autograd_thread = false;
    plim_m_drop(m, first);
    m->grad_mode = mode;
}
