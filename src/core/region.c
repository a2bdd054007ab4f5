/* region.c -- see region.h. */
#include "core/region.h"

#include "base/fmt.h"

/* ---- stretches --------------------------------------------------------------------- */

typedef struct span { /* the nodes of one module call */
    uint32_t first, last;
} span;

/* For every scope the span of its nodes, including its callees; empty: first > last. */
static span *scope_spans(plim_arena *a, const plim_graph *g)
{
    span *s = PLIM_NEW_N(a, span, g->n_scopes);
    for (uint32_t i = 0; s && i < g->n_scopes; i++)
        s[i] = (span){UINT32_MAX, 0};
    for (uint32_t i = 0; s && i < g->n_nodes; i++)
        for (uint32_t k = g->nodes[i].scope; k != PLIM_NONE; k = g->scopes[k].parent) {
            s[k].first = PLIM_MIN(s[k].first, i);
            s[k].last = i + 1;
        }
    return s;
}

static bool add_region(plim_arena *a, plim_regions *out, uint32_t *cap, uint32_t first,
                       uint32_t last, uint32_t scope)
{
    if (first >= last)
        return true;
    if (!PLIM_PUSH_ROOM(a, out->r, out->n, *cap))
        return false;
    out->r[out->n++] = (plim_region){.first = first, .last = last, .scope = scope};
    return true;
}

/* ---- by path ------------------------------------------------------------------------- */

bool plim_path_like(plim_str path, plim_str like)
{
    size_t i = 0, k = 0, star = SIZE_MAX, from = 0;
    bool deep = false;
    while (i < path.n) {
        if (k < like.n && like.p[k] == '*') {
            deep = k + 1 < like.n && like.p[k + 1] == '*';
            k += deep ? 2 : 1;
            star = k;
            from = i;
        } else if (k < like.n && like.p[k] == path.p[i]) {
            i++, k++;
        } else if (star != SIZE_MAX && (deep || path.p[from] != '.')) {
            i = ++from;
            k = star;
        } else {
            return false;
        }
    }
    while (k < like.n && like.p[k] == '*')
        k++;
    return k == like.n;
}

static plim_status matches_none(plim_str how, plim_err *err)
{
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "checkpoint '" PLIM_STR_FMT "' matches no module of this model: write "
                     "segments=N or a pattern such as 'layers.*'",
                     PLIM_STR_ARG(how));
}

/* Chooses the scopes that match one of the patterns, "layers.*,head"; PLIM_EUSAGE: a pattern
 * matches none. */
static plim_status choose_paths(const plim_graph *g, plim_str patterns, bool *chosen,
                                plim_err *err)
{
    while (patterns.n) {
        const char *comma = memchr(patterns.p, ',', patterns.n);
        plim_str like = {patterns.p, comma ? (size_t)(comma - patterns.p) : patterns.n};
        size_t skip = like.n + (comma != NULL);
        bool any = false;
        for (uint32_t i = 0; i < g->n_scopes; i++)
            if (plim_path_like(g->scopes[i].path, like))
                chosen[i] = any = true;
        if (!any)
            return matches_none(like, err);
        patterns = (plim_str){patterns.p + skip, patterns.n - skip};
    }
    return PLIM_OK;
}

/* The outermost of the chosen scopes, in execution order. */
static bool add_chosen(plim_arena *a, const plim_graph *g, const span *spans,
                       const bool *chosen, plim_regions *out)
{
    uint32_t cap = 0;
    for (uint32_t i = 0; i < g->n_nodes;) {
        uint32_t top = PLIM_NONE;
        for (uint32_t k = g->nodes[i].scope; k != PLIM_NONE; k = g->scopes[k].parent)
            if (chosen[k])
                top = k; /* the last on the way up is the outermost */
        plim_assert(top == PLIM_NONE || spans[top].last > i);
        if (top != PLIM_NONE && !add_region(a, out, &cap, i, spans[top].last, top))
            return false;
        i = top == PLIM_NONE ? i + 1 : spans[top].last;
    }
    return true;
}

/* ---- blocks ---------------------------------------------------------------------------- */

/* Up to the last point, and with it. */
static size_t parent_length(plim_str path)
{
    while (path.n && path.p[path.n - 1] != '.')
        path.n--;
    return path.n;
}

/* Without the number at its end. */
static size_t stem_length(plim_str path)
{
    while (path.n && path.p[path.n - 1] >= '0' && path.p[path.n - 1] <= '9')
        path.n--;
    return path.n;
}

/* Whether its name is a number, or ends in one beside others that do, as in a list: "layers.3", "denselayer3"; but not
 * "wav2vec2". */
static bool is_numbered(const plim_graph *g, uint32_t scope)
{
    const plim_str path = g->scopes[scope].path;
    const size_t within = parent_length(path), stem = stem_length(path);
    bool beside = stem == within;
    for (uint32_t i = 0; i < g->n_scopes && stem < path.n && !beside; i++) {
        const plim_str other = g->scopes[i].path;
        beside = stem_length(other) < other.n && parent_length(other) == within &&
                 !memcmp(other.p, path.p, within) && !plim_str_eq(other, path);
    }
    return stem < path.n && beside;
}

static bool is_container(plim_str type)
{
    return plim_str_is(type, "Sequential") || plim_str_is(type, "ModuleList");
}

/* The numbered modules that contain others; add_chosen takes the outermost. */
static void choose_blocks(const plim_graph *g, bool *chosen)
{
    for (uint32_t i = 0; i < g->n_scopes; i++) {
        uint32_t parent = g->scopes[i].parent;
        if (parent != PLIM_NONE && !chosen[parent] && !is_container(g->scopes[parent].type) &&
            is_numbered(g, parent))
            chosen[parent] = true;
    }
}

/* ---- segments ----------------------------------------------------------------------------- */

/* The calls that `scope` makes, in order, as spans of nodes. */
static uint32_t child_spans(const plim_graph *g, const span *spans, uint32_t scope, span *out)
{
    uint32_t n = 0;
    for (uint32_t i = spans[scope].first; i < spans[scope].last;) {
        uint32_t child = g->nodes[i].scope;
        while (child != PLIM_NONE && child != scope && g->scopes[child].parent != scope)
            child = g->scopes[child].parent;
        uint32_t last = child == PLIM_NONE || child == scope ? i + 1 : spans[child].last;
        out[n++] = (span){i, last};
        i = last;
    }
    return n;
}

/* The Sequential with the most calls, or the model itself if it is one. */
static uint32_t sequential_of(const plim_graph *g, const span *spans, span *calls)
{
    uint32_t best = 0, most = 0;
    for (uint32_t i = 0; i < g->n_scopes; i++) {
        bool fits = !i || plim_str_is(g->scopes[i].type, "Sequential");
        uint32_t n =
            fits && spans[i].first < spans[i].last ? child_spans(g, spans, i, calls) : 0;
        if (n > most) {
            most = n;
            best = i;
        }
    }
    return best;
}

plim_status plim_regions_calls(plim_arena *a, const plim_graph *g, uint32_t *n, plim_err *err)
{
    span *spans = scope_spans(a, g), *calls = PLIM_NEW_N(a, span, (uint64_t)g->n_nodes + 1);
    if (!spans || !calls)
        return plim_oom(err);
    *n = child_spans(g, spans, sequential_of(g, spans, calls), calls);
    return *n ? PLIM_OK
              : plim_fail(err, PLIM_ESHAPE, 0, "the model has no calls to cut into segments");
}

/* src: checkpoint.py checkpoint_sequential: len // segments calls each, the rest in the last,
 * which runs without checkpointing */
static plim_status add_segments(plim_arena *a, const plim_graph *g, const span *spans,
                                plim_str number, plim_regions *out, plim_err *err)
{
    int64_t segments;
    uint32_t cap = 0;
    span *calls = PLIM_NEW_N(a, span, (uint64_t)g->n_nodes + 1);
    if (!calls)
        return plim_oom(err);
    uint32_t n = child_spans(g, spans, sequential_of(g, spans, calls), calls);
    if (!plim_parse_dim(number, &segments) || segments < 1 || segments > n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "segments '" PLIM_STR_FMT "' is not in 1..%u, the number of calls",
                         PLIM_STR_ARG(number), (unsigned)n);
    uint32_t each = n / (uint32_t)segments;
    plim_assert(each > 0 && each * (uint32_t)segments <= n);
    for (uint32_t i = 0; i + 1 < (uint32_t)segments; i++)
        if (!add_region(a, out, &cap, calls[i * each].first, calls[(i + 1) * each - 1].last,
                        PLIM_NONE))
            return plim_oom(err);
    return PLIM_OK;
}

/* ---- what goes in and out ------------------------------------------------------------------ */

typedef struct edges {
    plim_arena *a;
    const plim_graph *g;
    uint32_t
        *last_use; /* by value: one past the last node that uses it; PLIM_NONE: an output */
    bool *seen;    /* values that are among inputs or outputs of the region */
    plim_region *r;
    uint32_t cap_in, cap_out;
} edges;

static bool edges_init(edges *e, plim_arena *a, const plim_graph *g)
{
    *e = (edges){.a = a,
                 .g = g,
                 .last_use = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_values + 1),
                 .seen = PLIM_NEW_N(a, bool, (uint64_t)g->n_values + 1)};
    if (!e->last_use || !e->seen)
        return false;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (uint32_t k = 0; k < g->nodes[i].n_args; k++)
            for (uint32_t j = 0; j < plim_arg_values(&g->nodes[i].args[k]); j++) {
                uint32_t v = plim_arg_value(&g->nodes[i].args[k], j);
                if (v != PLIM_NONE)
                    e->last_use[v] = i + 1;
            }
    for (uint32_t i = 0; i < g->n_outputs; i++)
        e->last_use[g->outputs[i]] = PLIM_NONE;
    return true;
}

static bool made_before(const plim_graph *g, uint32_t v, uint32_t node)
{
    plim_value_kind kind = g->values[v].kind;
    return kind == PLIM_VALUE_INPUT || (kind == PLIM_VALUE_NODE && g->values[v].node < node);
}

static bool made_within(const edges *e, uint32_t v)
{
    uint32_t maker = e->g->values[v].node;
    return maker != PLIM_NONE && maker >= e->r->first && maker < e->r->last;
}

static bool edge_in(edges *e, uint32_t v)
{
    if (v == PLIM_NONE || e->seen[v] || !made_before(e->g, v, e->r->first))
        return true;
    if (!PLIM_PUSH_ROOM(e->a, e->r->input, e->r->n_inputs, e->cap_in))
        return false;
    e->r->input[e->r->n_inputs++] = v;
    return e->seen[v] = true;
}

static bool edge_out(edges *e, uint32_t v)
{
    if (v == PLIM_NONE || e->seen[v] || !made_within(e, v))
        return true;
    if (!PLIM_PUSH_ROOM(e->a, e->r->output, e->r->n_outputs, e->cap_out))
        return false;
    e->r->output[e->r->n_outputs++] = v;
    return e->seen[v] = true;
}

/* The number of values that are made in it and used outside. */
static uint32_t count_outputs(const edges *e)
{
    uint32_t n = 0;
    for (uint32_t i = e->r->first; i < e->r->last; i++)
        for (uint32_t k = 0; k < e->g->nodes[i].n_outs; k++)
            n += e->last_use[e->g->nodes[i].outs[k]] > e->r->last;
    return n;
}

/* The inputs are the values its nodes use, and those the call was given besides. */
static bool find_edges(edges *e, plim_region *r)
{
    const plim_graph *g = e->g;
    bool ok = true;
    e->r = r;
    e->cap_in = e->cap_out = 0;
    uint32_t outputs = count_outputs(e);
    for (uint32_t i = r->first; ok && i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        if (i >= r->last && r->n_outputs == outputs)
            break;
        for (uint32_t k = 0; ok && k < n->n_args; k++) {
            const plim_arg *arg = &n->args[k];
            for (uint32_t j = 0; ok && j < plim_arg_values(arg); j++) {
                uint32_t v = plim_arg_value(arg, j);
                ok = i < r->last ? edge_in(e, v) : edge_out(e, v);
            }
        }
    }
    const plim_scope *call = r->scope == PLIM_NONE ? NULL : &g->scopes[r->scope];
    for (uint32_t i = 0; ok && call && i < call->n_args; i++)
        ok = edge_in(e, call->args[i]);
    for (uint32_t i = 0; ok && i < g->n_outputs; i++)
        ok = edge_out(e, g->outputs[i]);
    for (uint32_t i = 0; i < r->n_inputs; i++)
        e->seen[r->input[i]] = false;
    for (uint32_t i = 0; i < r->n_outputs; i++)
        e->seen[r->output[i]] = false;
    return ok;
}

/* The inputs and outputs of all of them. */
static plim_status find_all_edges(plim_arena *a, const plim_graph *g, plim_regions *out,
                                  plim_err *err)
{
    edges e;
    bool ok = edges_init(&e, a, g);
    for (uint32_t i = 0; ok && i < out->n; i++)
        ok = find_edges(&e, &out->r[i]);
    return ok ? PLIM_OK : plim_oom(err);
}

plim_status plim_regions_modules(plim_arena *a, const plim_graph *g, plim_regions *out,
                                 plim_err *err)
{
    uint32_t cap = 0;
    *out = (plim_regions){0};
    span *spans = scope_spans(a, g);
    uint32_t *begin = PLIM_NEW_N(a, uint32_t, (uint64_t)g->n_scopes + 1);
    if (!spans || !begin)
        return plim_oom(err);
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        uint32_t n = 0; /* calls that begin here, innermost first */
        for (uint32_t k = g->nodes[i].scope; k && k != PLIM_NONE; k = g->scopes[k].parent)
            if (spans[k].first == i)
                begin[n++] = k;
        while (n-- > 0)
            if (!add_region(a, out, &cap, i, spans[begin[n]].last, begin[n]))
                return plim_oom(err);
    }
    return find_all_edges(a, g, out, err);
}

plim_status plim_regions_find(plim_arena *a, const plim_graph *g, plim_str how,
                              plim_regions *out, plim_err *err)
{
    *out = (plim_regions){0};
    if (!how.n || plim_str_is(how, "none"))
        return PLIM_OK;
    plim_str suffix = PLIM_STR(",reentrant");
    if (how.n > suffix.n && !memcmp(how.p + how.n - suffix.n, suffix.p, suffix.n)) {
        out->reentrant = true;
        how.n -= suffix.n;
    }
    span *spans = scope_spans(a, g);
    bool *chosen = PLIM_NEW_N(a, bool, (uint64_t)g->n_scopes + 1);
    if (!spans || !chosen)
        return plim_oom(err);
    plim_str segments = PLIM_STR("segments=");
    if (how.n > segments.n && !memcmp(how.p, segments.p, segments.n)) {
        plim_str number = {how.p + segments.n, how.n - segments.n};
        PLIM_TRY(add_segments(a, g, spans, number, out, err));
    } else {
        plim_status st = PLIM_OK;
        if (plim_str_is(how, "blocks"))
            choose_blocks(g, chosen);
        else
            st = choose_paths(g, how, chosen, err);
        if (st)
            return st;
        if (!add_chosen(a, g, spans, chosen, out))
            return plim_oom(err);
        if (!out->n)
            return matches_none(how, err);
    }
    return find_all_edges(a, g, out, err);
}
