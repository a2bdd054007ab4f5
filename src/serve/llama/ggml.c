/* ggml.c -- see ggml.h. */
#include "serve/llama/ggml.h"

typedef struct tensor {
    int64_t n[PLIM_GG_DIMS];
    uint64_t stride[PLIM_GG_DIMS]; /* in bytes */
    uint32_t src[PLIM_GG_SRC], n_src;
    uint32_t view; /* the tensor that it is a view of, which is none itself; or PLIM_NONE */
    uint32_t copy; /* in the other place; or PLIM_NONE */
    uint32_t children, views;
    uint64_t offset;
    plim_gg_place place, lies; /* where it is computed, or lies outside; where it was put */
    uint32_t bytes;            /* of an element */
    uint64_t whole;            /* of all, where elements are packed; else 0 */
    bool op, shapes, replaces, input, weight, external, seen,
        allocated; /* shapes: a view, and no more */
} tensor;

/* A tensor that lives until another was computed. */
typedef struct kept {
    uint32_t tensor, until;
} kept;

struct plim_gg_graph {
    plim_arena *a;
    kept *kept;
    uint32_t n_kept, cap_kept;
    uint64_t alignment[PLIM_GG_PLACES];
    tensor *t;
    uint32_t *order, *leaves;
    uint32_t n, cap, n_order, cap_order, n_leaves, cap_leaves;
    plim_gg_place usual;
    bool bad;
};

plim_gg_graph *plim_gg_new(plim_arena *a, const uint64_t alignment[PLIM_GG_PLACES],
                           plim_gg_place usual)
{
    plim_gg_graph *g = PLIM_NEW(a, plim_gg_graph);
    if (!g)
        return NULL;
    *g = (plim_gg_graph){.a = a, .usual = usual};
    memcpy(g->alignment, alignment, sizeof g->alignment);
    return g;
}

bool plim_gg_bad(const plim_gg_graph *g) { return g->bad; }

/* ---- tensors ---------------------------------------------------------------------------------- */

static tensor *tensor_at(plim_gg_graph *g, plim_gg id)
{
    static tensor none;
    plim_assert(id < g->n || g->bad);
    return id < g->n ? &g->t[id] : &none;
}

/* A contiguous tensor. */
static plim_gg add_tensor(plim_gg_graph *g, uint32_t bytes, const int64_t n[PLIM_GG_DIMS])
{
    tensor t = {.view = PLIM_NONE, .copy = PLIM_NONE, .bytes = bytes};
    uint64_t stride = bytes;
    for (int i = 0; i < PLIM_GG_DIMS; i++) {
        t.n[i] = n[i];
        t.stride[i] = stride;
        stride = plim_sat_mul(stride, (uint64_t)n[i]);
    }
    g->bad |= !PLIM_PUSH_ROOM(g->a, g->t, g->n, g->cap);
    if (g->bad)
        return PLIM_NONE;
    g->t[g->n] = t;
    return g->n++;
}

/* From its first byte to its last, whatever its strides. */
static uint64_t bytes_of(const tensor *t)
{
    uint64_t last = t->bytes;
    if (t->whole)
        return t->whole;
    for (int i = 0; i < PLIM_GG_DIMS; i++)
        last = plim_sat_add(last, plim_sat_mul((uint64_t)t->n[i] - 1, t->stride[i]));
    return last;
}

int64_t plim_gg_dim(const plim_gg_graph *g, plim_gg t, int i)
{
    return t < g->n ? g->t[t].n[i] : 1;
}

static plim_gg add_external(plim_gg_graph *g, plim_gg_place place, uint32_t bytes, int64_t n0,
                            int64_t n1, int64_t n2)
{
    plim_gg id = add_tensor(g, bytes, (int64_t[]){n0, n1, n2, 1});
    tensor *t = tensor_at(g, id);
    t->external = true;
    t->place = place;
    return id;
}

plim_gg plim_gg_weight(plim_gg_graph *g, plim_gg_place place, int64_t n0, int64_t n1,
                       int64_t n2, uint64_t bytes)
{
    plim_gg id = add_external(g, place, 4, n0, n1, n2);
    tensor_at(g, id)->weight = true;
    tensor_at(g, id)->whole = bytes;
    return id;
}

plim_gg plim_gg_cache(plim_gg_graph *g, plim_gg_place place, uint32_t bytes, int64_t n0,
                      int64_t n1)
{
    return add_external(g, place, bytes, n0, n1, 1);
}

plim_gg plim_gg_input(plim_gg_graph *g, uint32_t bytes, int64_t n0, int64_t n1, int64_t n2,
                      int64_t n3)
{
    plim_gg id = add_tensor(g, bytes, (int64_t[]){n0, n1, n2, n3});
    tensor *t = tensor_at(g, id);
    t->input = true;
    t->place = PLIM_GG_HOST;
    return id;
}

/* ---- views -------------------------------------------------------------------------------------- */

static plim_gg add_view(plim_gg_graph *g, plim_gg of, const int64_t n[PLIM_GG_DIMS],
                        const uint64_t stride[PLIM_GG_DIMS])
{
    plim_gg id = add_tensor(g, tensor_at(g, of)->bytes, n);
    tensor *t = tensor_at(g, id), *whole = tensor_at(g, of);
    memcpy(t->stride, stride, sizeof t->stride);
    t->view = whole->view == PLIM_NONE ? of : whole->view;
    t->src[t->n_src++] = of;
    t->place = whole->place;
    t->op = t->shapes = true;
    return id;
}

static plim_gg add_shaped(plim_gg_graph *g, plim_gg of, const int64_t n[PLIM_GG_DIMS])
{
    uint64_t stride[PLIM_GG_DIMS] = {tensor_at(g, of)->stride[0]};
    for (int i = 1; i < PLIM_GG_DIMS; i++)
        stride[i] = plim_sat_mul(stride[i - 1], (uint64_t)n[i - 1]);
    return add_view(g, of, n, stride);
}

plim_gg plim_gg_reshape(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int64_t n2)
{
    return add_shaped(g, t, (int64_t[]){n0, n1, n2, 1});
}

plim_gg plim_gg_view(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int64_t n2,
                     int64_t n3)
{
    return add_shaped(g, t, (int64_t[]){n0, n1, n2, n3});
}

plim_gg plim_gg_permute(plim_gg_graph *g, plim_gg t, int a0, int a1, int a2, int a3)
{
    const int to[PLIM_GG_DIMS] = {a0, a1, a2, a3};
    int64_t n[PLIM_GG_DIMS];
    uint64_t stride[PLIM_GG_DIMS];
    for (int i = 0; i < PLIM_GG_DIMS; i++) {
        n[to[i]] = tensor_at(g, t)->n[i];
        stride[to[i]] = tensor_at(g, t)->stride[i];
    }
    return add_view(g, t, n, stride);
}

plim_gg plim_gg_part(plim_gg_graph *g, plim_gg t, int64_t n0, int64_t n1, int d1, int64_t n2,
                     int d2)
{
    const tensor *whole = tensor_at(g, t);
    const int64_t n[PLIM_GG_DIMS] = {n0, n1, n2, 1};
    uint64_t last = plim_sat_mul(whole->stride[d2], (uint64_t)n2);
    const uint64_t stride[PLIM_GG_DIMS] = {whole->stride[0], whole->stride[d1],
                                           whole->stride[d2], last};
    return add_view(g, t, n, stride);
}

/* ---- operations ----------------------------------------------------------------------------------- */

static plim_gg add_op(plim_gg_graph *g, uint32_t bytes, const int64_t n[PLIM_GG_DIMS],
                      const plim_gg *src, uint32_t n_src)
{
    plim_gg id = add_tensor(g, bytes, n);
    tensor *t = tensor_at(g, id);
    for (uint32_t i = 0; i < n_src; i++)
        if (src[i] != PLIM_NONE)
            t->src[t->n_src++] = src[i];
    t->place = g->usual;
    t->op = true;
    return id;
}

plim_gg plim_gg_op(plim_gg_graph *g, uint32_t bytes, int64_t n0, int64_t n1, int64_t n2,
                   int64_t n3, const plim_gg *src, uint32_t n_src)
{
    return add_op(g, bytes, (int64_t[]){n0, n1, n2, n3}, src, n_src);
}

plim_gg plim_gg_mul_mat(plim_gg_graph *g, plim_gg weight, plim_gg x)
{
    return plim_gg_op(g, 4, plim_gg_dim(g, weight, 1), plim_gg_dim(g, x, 1),
                      plim_gg_dim(g, x, 2), plim_gg_dim(g, x, 3), (plim_gg[]){weight, x}, 2);
}

plim_gg plim_gg_mul_mat_id(plim_gg_graph *g, plim_gg weights, plim_gg x, plim_gg ids)
{
    return plim_gg_op(g, 4, plim_gg_dim(g, weights, 1), plim_gg_dim(g, ids, 0),
                      plim_gg_dim(g, x, 2), 1, (plim_gg[]){weights, x, ids}, 3);
}

plim_gg plim_gg_get_rows(plim_gg_graph *g, plim_gg t, plim_gg rows)
{
    plim_gg id =
        plim_gg_op(g, 4, plim_gg_dim(g, t, 0), plim_gg_dim(g, rows, 0),
                   plim_gg_dim(g, rows, 1), plim_gg_dim(g, rows, 2), (plim_gg[]){t, rows}, 2);
    if (tensor_at(g, t)->external)
        tensor_at(g, id)->place = tensor_at(g, t)->place;
    return id;
}

plim_gg plim_gg_make(plim_gg_graph *g, plim_gg x, plim_gg by)
{
    int64_t n[PLIM_GG_DIMS];
    memcpy(n, tensor_at(g, x)->n, sizeof n);
    return add_op(g, 4, n, (plim_gg[]){x, by}, 2);
}

plim_gg plim_gg_map(plim_gg_graph *g, plim_gg x, plim_gg by)
{
    plim_gg id = plim_gg_make(g, x, by);
    tensor_at(g, id)->replaces = true;
    return id;
}

static void keep_tensor(plim_gg_graph *g, plim_gg t, plim_gg until)
{
    for (uint32_t i = 0; i < g->n_kept; i++)
        if (g->kept[i].tensor == t && g->kept[i].until == until)
            return;
    g->bad |= !PLIM_PUSH_ROOM(g->a, g->kept, g->n_kept, g->cap_kept);
    if (!g->bad)
        g->kept[g->n_kept++] = (kept){t, until};
}

void plim_gg_keep(plim_gg_graph *g, const plim_gg *t, uint32_t n, bool sources, plim_gg until)
{
    if (g->usual == PLIM_GG_HOST)
        return;
    for (uint32_t i = 0; i < n && !g->bad; i++) {
        keep_tensor(g, t[i], until);
        for (uint32_t k = 0; sources && !g->bad && k < tensor_at(g, t[i])->n_src; k++)
            keep_tensor(g, tensor_at(g, t[i])->src[k], until);
    }
}

void plim_gg_move(plim_gg_graph *g, plim_gg t, plim_gg_place place)
{
    tensor_at(g, t)->place = place;
}

plim_gg plim_gg_set_rows(plim_gg_graph *g, plim_gg into, plim_gg t, plim_gg rows)
{
    plim_gg id = add_view(g, into, tensor_at(g, into)->n, tensor_at(g, into)->stride);
    tensor *v = tensor_at(g, id);
    v->src[0] = t;
    v->src[1] = rows;
    v->src[2] = into;
    v->n_src = 3;
    v->shapes = false;
    return id;
}

/* ---- the order: depth first, sources from left to right ---------------------------------------------- */

static void append_id(plim_gg_graph *g, uint32_t **list, uint32_t *n, uint32_t *cap,
                      uint32_t id)
{
    g->bad |= !PLIM_PUSH_ROOM(g->a, *list, *n, *cap);
    if (!g->bad)
        (*list)[(*n)++] = id;
}

/* No deeper than what one expand adds: a layer. */
void plim_gg_expand(plim_gg_graph *g, plim_gg id)
{
    tensor *t = tensor_at(g, id);
    if (g->bad || t->seen)
        return;
    t->seen = true;
    for (uint32_t i = 0; i < t->n_src; i++)
        plim_gg_expand(g, t->src[i]);
    t = tensor_at(g, id);
    if (t->op)
        append_id(g, &g->order, &g->n_order, &g->cap_order, id);
    else
        append_id(g, &g->leaves, &g->n_leaves, &g->cap_leaves, id);
}

/* ---- buffers: free blocks by address, best fit -------------------------------------------------------- */

typedef struct block {
    uint64_t offset, size;
} block;

typedef struct buffer {
    block *free;
    uint32_t n, cap;
    uint64_t alignment, most;
} buffer;

typedef struct layout {
    plim_gg_graph *g;
    plim_arena *a;
    buffer buffers[PLIM_GG_PLACES];
    bool bad;
} layout;

static uint64_t align_up(const buffer *b, uint64_t n)
{
    return plim_sat_add(n, b->alignment - 1) / b->alignment * b->alignment;
}

static void remove_block(buffer *b, uint32_t i)
{
    memmove(&b->free[i], &b->free[i + 1], (--b->n - i) * sizeof *b->free);
}

static void insert_block(layout *l, buffer *b, uint64_t offset, uint64_t size)
{
    uint32_t at = 0;
    l->bad |= !PLIM_PUSH_ROOM(l->a, b->free, b->n, b->cap);
    if (l->bad)
        return;
    while (at < b->n && b->free[at].offset < offset)
        at++;
    memmove(&b->free[at + 1], &b->free[at], (b->n++ - at) * sizeof *b->free);
    b->free[at] = (block){offset, size};
}

/* The best fit among all free blocks but the last, which has no end. */
static uint64_t take_block(buffer *b, uint64_t size)
{
    uint32_t best = b->n - 1;
    size = align_up(b, size);
    for (uint32_t i = 0; i + 1 < b->n; i++)
        if (b->free[i].size >= size &&
            (best == b->n - 1 || b->free[i].size <= b->free[best].size))
            best = i;
    uint64_t at = b->free[best].offset;
    b->free[best].offset += size;
    b->free[best].size -= size;
    if (!b->free[best].size)
        remove_block(b, best);
    b->most = PLIM_MAX(b->most, at + size);
    return at;
}

static void give_block(layout *l, buffer *b, uint64_t offset, uint64_t size)
{
    size = align_up(b, size);
    for (uint32_t i = 0; i < b->n; i++) {
        block *f = &b->free[i];
        if (f->offset + f->size == offset) {
            f->size += size;
            if (i + 1 < b->n && f->offset + f->size == b->free[i + 1].offset) {
                f->size += b->free[i + 1].size;
                remove_block(b, i + 1);
            }
            return;
        }
        if (offset + size == f->offset) {
            f->offset = offset;
            f->size += size;
            if (i > 0 && b->free[i - 1].offset + b->free[i - 1].size == offset) {
                b->free[i - 1].size += f->size;
                remove_block(b, i);
            }
            return;
        }
    }
    insert_block(l, b, offset, size);
}

/* ---- tensors in buffers ---------------------------------------------------------------------------------- */

/* What node t reads: the copy, if that lies where t runs. */
static uint32_t source_of(const plim_gg_graph *g, const tensor *t, uint32_t i)
{
    const tensor *s = &g->t[t->src[i]];
    return s->place != t->place && s->copy != PLIM_NONE ? s->copy : t->src[i];
}

static bool same_layout(const tensor *x, const tensor *y)
{
    return !memcmp(x->n, y->n, sizeof x->n) && !memcmp(x->stride, y->stride, sizeof x->stride);
}

/* Puts t where an operand lies that dies with it, and frees what that had more.  Operands that are
 * views do not count as allocated, so nothing replaces them. */
static bool try_replace(layout *l, tensor *t)
{
    for (uint32_t i = 0; i < t->n_src; i++) {
        tensor *parent = &l->g->t[source_of(l->g, t, i)];
        if (!parent->allocated || !same_layout(t, parent) || parent->children != 1 ||
            parent->views)
            continue;
        buffer *b = &l->buffers[parent->lies];
        t->lies = parent->lies;
        t->offset = parent->offset;
        parent->allocated = false;
        uint64_t had = align_up(b, bytes_of(parent)), needs = align_up(b, bytes_of(t));
        if (had > needs)
            give_block(l, b, parent->offset + needs, had - needs);
        return true;
    }
    return false;
}

static void place_tensor(layout *l, tensor *t, plim_gg_place place)
{
    if (t->external || t->allocated || t->view != PLIM_NONE)
        return;
    t->allocated = true;
    if (t->replaces && try_replace(l, t))
        return;
    t->lies = place;
    t->offset = take_block(&l->buffers[place], bytes_of(t));
}

static void free_tensor(layout *l, tensor *t)
{
    give_block(l, &l->buffers[t->lies], t->offset, bytes_of(t));
    t->allocated = false;
}

/* A source that was read once more. */
static void drop_source(layout *l, tensor *parent)
{
    parent->children--;
    if (parent->children || parent->views)
        return;
    if (parent->view == PLIM_NONE) {
        if (parent->allocated)
            free_tensor(l, parent);
        return;
    }
    tensor *whole = &l->g->t[parent->view];
    whole->views--;
    if (!whole->views && !whole->children && whole->allocated)
        free_tensor(l, whole);
}

/* The graph is cut into parts that run in one place; a part begins with copies of what it reads of
 * the other place. */
typedef struct part {
    uint32_t first;            /* in the order */
    uint32_t copies, n_copies; /* in the list of those */
} part;

typedef struct parts {
    part *part;
    uint32_t *copied; /* tensors that are copied */
    uint32_t n, cap, n_copied, cap_copied;
} parts;

static bool is_foreign(const plim_gg_graph *g, const tensor *t, uint32_t i)
{
    return g->t[t->src[i]].place != t->place;
}

/* Weights of the other place begin a new part, so that the memory of the last ones is free again. */
static bool reads_weight(const plim_gg_graph *g, const tensor *t)
{
    for (uint32_t i = 0; i < t->n_src; i++)
        if (is_foreign(g, t, i) && g->t[t->src[i]].weight)
            return true;
    return false;
}

static void add_copy(plim_gg_graph *g, parts *p, uint32_t from)
{
    plim_gg copy = add_tensor(g, g->t[from].bytes, g->t[from].n);
    if (g->bad)
        return;
    memcpy(g->t[copy].stride, g->t[from].stride, sizeof g->t[copy].stride);
    g->t[copy].whole = g->t[from].whole;
    g->t[copy].place = g->t[from].place == PLIM_GG_HOST ? PLIM_GG_DEVICE : PLIM_GG_HOST;
    g->t[from].copy = copy;
    append_id(g, &p->copied, &p->n_copied, &p->cap_copied, from);
    p->part[p->n - 1].n_copies++;
}

static void cut_parts(plim_gg_graph *g, parts *p)
{
    plim_gg_place place = PLIM_GG_PLACES;
    for (uint32_t k = 0; k < g->n_order && !g->bad; k++) {
        const tensor *t = &g->t[g->order[k]];
        if (t->shapes)
            continue;
        bool again = p->n && p->part[p->n - 1].n_copies && reads_weight(g, t);
        if (t->place != place || again) {
            g->bad |= !PLIM_PUSH_ROOM(g->a, p->part, p->n, p->cap);
            if (g->bad)
                return;
            p->part[p->n++] = (part){.first = p->n ? k : 0, .copies = p->n_copied};
            place = t->place;
        }
        for (uint32_t i = 0; !g->bad && i < g->t[g->order[k]].n_src; i++) {
            uint32_t from = g->t[g->order[k]].src[i];
            if (is_foreign(g, &g->t[g->order[k]], i) && g->t[from].copy == PLIM_NONE)
                add_copy(g, p, from);
        }
    }
}

static void count_uses(plim_gg_graph *g, const parts *p)
{
    for (uint32_t k = 0; k < g->n_order; k++) {
        const tensor *t = &g->t[g->order[k]];
        if (t->view != PLIM_NONE)
            g->t[t->view].views++;
        for (uint32_t i = 0; i < t->n_src; i++)
            g->t[source_of(g, t, i)].children++;
    }
    for (uint32_t i = 0; i < p->n_copied; i++)
        g->t[p->copied[i]].children++; /* the copy reads it */
    for (uint32_t i = 0; i < g->n_kept; i++)
        g->t[g->kept[i].tensor].children++;
}

static void run_node(layout *l, uint32_t id)
{
    plim_gg_graph *g = l->g;
    tensor *t = &g->t[id];
    for (uint32_t i = 0; i < t->n_src; i++)
        place_tensor(l, &g->t[source_of(g, t, i)], t->place);
    place_tensor(l, t, t->place);
    for (uint32_t i = 0; i < t->n_src; i++)
        drop_source(l, &g->t[source_of(g, t, i)]);
    for (uint32_t i = 0; i < g->n_kept; i++)
        if (g->kept[i].until == id)
            drop_source(l, &g->t[g->kept[i].tensor]);
}

static void run_parts(layout *l, const parts *p)
{
    plim_gg_graph *g = l->g;
    for (uint32_t k = 0; k < p->n && !l->bad; k++) {
        const part *x = &p->part[k];
        uint32_t end = k + 1 < p->n ? p->part[k + 1].first : g->n_order;
        for (uint32_t i = x->copies; i < x->copies + x->n_copies; i++) {
            tensor *copy = &g->t[g->t[p->copied[i]].copy];
            drop_source(l, &g->t[p->copied[i]]);
            place_tensor(l, copy, copy->place);
        }
        for (uint32_t i = x->first; i < end && !l->bad; i++)
            run_node(l, g->order[i]);
    }
}

bool plim_gg_layout(plim_gg_graph *g, plim_arena *a, uint64_t bytes[PLIM_GG_PLACES])
{
    layout l = {.g = g, .a = a};
    parts p = {0};
    for (int i = 0; i < PLIM_GG_PLACES; i++) {
        l.buffers[i] = (buffer){.alignment = g->alignment[i]};
        insert_block(&l, &l.buffers[i], 0, UINT64_MAX / 2);
    }
    cut_parts(g, &p);
    if (g->bad || l.bad)
        return false;
    count_uses(g, &p);
    for (uint32_t i = 0; i < g->n_leaves; i++)
        place_tensor(&l, &g->t[g->leaves[i]], PLIM_GG_HOST);
    run_parts(&l, &p);
    for (int i = 0; i < PLIM_GG_PLACES; i++)
        bytes[i] = l.buffers[i].most;
    return !l.bad;
}
