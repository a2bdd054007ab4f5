/* test_zoo.c -- the built-in models against the originals: every node, name and shape as in
 * torch.export, every layer's parameters and MACs, the published totals.
 * tests/golden/zoo/record.py made the reference data. */
#include "zoo/zoo.h"

#include <stdio.h>

#include "base/fmt.h"
#include "unit.h"

#define GOLDEN(file) PLIM_SOURCE_DIR "/tests/golden/zoo/" file

enum { BATCH = 2 };

static plim_arena arena;

static void build(plim_graph *g, const char *name, const plim_binding *bind)
{
    plim_err err = PLIM_ERR_INIT;
    *g = (plim_graph){.arena = &arena};
    if (plim_zoo_build(g, plim_str_of(name), bind, &err))
        fail_msg("%s: %s", name, err.msg);
    if (plim_graph_check(g))
        fail_msg("%s: %s", name, plim_graph_check(g));
}

static uint32_t hub_count(void)
{
    uint32_t n = 0;
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++)
        n += m->config != NULL;
    return n;
}

static plim_binding with_batch(int64_t batch) { return (plim_binding){.batch = batch}; }

static uint64_t macs_of(const plim_graph *g, uint32_t first, uint32_t last)
{
    uint64_t sum = 0;
    for (uint32_t i = first; i < last; i++) {
        plim_cost c = {0};
        assert_int_equal(plim_op_cost(g, &g->nodes[i], &c), PLIM_OK);
        sum += c.macs;
    }
    return sum;
}

/* ---- a graph as record.py's lines ------------------------------------------------- */

static void put_sizes(plim_buf *b, const plim_meta *m)
{
    if (!m->rank)
        plim_buf_puts(b, "scalar");
    for (int32_t i = 0; i < m->rank; i++)
        plim_buf_printf(b, i ? "x%" PRId64 : "%" PRId64, m->dim[i]);
}

/* It only says how long a variable lives: an export has none. */
static bool is_end(const plim_node *n)
{
    return plim_str_is(n->target, "plimsoll.held.default");
}

static unsigned number_of(const plim_graph *g, uint32_t node)
{
    unsigned n = 0;
    for (uint32_t i = 0; i < node; i++)
        n += !is_end(&g->nodes[i]);
    return n;
}

static void put_ref(plim_buf *b, const plim_graph *g, uint32_t id)
{
    const plim_value *v = &g->values[id];
    if (v->kind != PLIM_VALUE_NODE) {
        plim_buf_add(b, v->name);
        return;
    }
    plim_buf_printf(b, "%%%u", number_of(g, v->node));
    const plim_node *n = &g->nodes[v->node];
    for (uint32_t i = 0; n->n_outs > 1 && i < n->n_outs; i++)
        if (n->outs[i] == id)
            plim_buf_printf(b, ".%u", (unsigned)i);
}

/* Lists of one repeated item are written as that item, both here and in record.py. */
static void put_ints(plim_buf *b, const plim_arg *a)
{
    bool same = true;
    for (uint32_t i = 1; i < a->n; i++)
        same &= a->ints[i] == a->ints[0];
    for (uint32_t i = 0; i < (same ? 1 : a->n); i++)
        plim_buf_printf(b, i ? ",%" PRId64 : "%" PRId64, a->ints[i]);
}

static void put_ids(plim_buf *b, const plim_graph *g, const plim_arg *a)
{
    bool same = true;
    for (uint32_t i = 1; i < a->n; i++)
        same &= a->ids[i] == a->ids[0];
    for (uint32_t i = 0; i < (same ? 1 : a->n); i++) {
        plim_buf_puts(b, i ? "," : "");
        put_ref(b, g, a->ids[i]);
    }
}

static void put_arg(plim_buf *b, const plim_graph *g, const plim_arg *a)
{
    switch (a->kind) {
    case PLIM_ARG_VALUE: put_ref(b, g, a->id); break;
    case PLIM_ARG_VALUES: put_ids(b, g, a); break;
    case PLIM_ARG_INT: plim_buf_printf(b, "%" PRId64, a->i); break;
    case PLIM_ARG_INTS: put_ints(b, a); break;
    case PLIM_ARG_FLOAT: plim_buf_printf(b, "%.9g", a->f); break;
    case PLIM_ARG_STR: plim_buf_add(b, a->str); break;
    case PLIM_ARG_FLOATS:
    case PLIM_ARG_NONE: fail_msg("no model has such an argument");
    }
}

static bool ignored(plim_str name)
{
    static const char *const names[] = {"cudnn_enabled", "cudnn_enable", "dtype",
                                        "layout",        "device",       "pin_memory",
                                        "memory_format", "generator",    "names"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++)
        if (plim_str_is(name, names[i]))
            return true;
    return false;
}

/* The k-th name of "input, weight, bias=None". */
static plim_str slot_name(const char *schema, uint32_t k)
{
    for (; k; k--)
        schema = strchr(schema, ',') + 2;
    return (plim_str){schema, strcspn(schema, ",=")};
}

static void put_types(plim_buf *b, const plim_graph *g, uint32_t scope)
{
    if (scope) {
        put_types(b, g, g->scopes[scope].parent);
        plim_buf_puts(b, "/");
    }
    plim_buf_add(b, g->scopes[scope].type);
}

static void put_node(plim_buf *b, const plim_graph *g, const plim_node *n)
{
    plim_str path = g->scopes[n->scope].path;
    /* torch.empty(size, dtype=x.dtype): an export has the type that x had as a constant */
    bool like = plim_str_is(n->target, "aten.new_empty.default");
    plim_buf_add(b, like ? PLIM_STR("aten.empty.memory_format") : n->target);
    plim_buf_puts(b, " ");
    plim_buf_add(b, path.n ? path : PLIM_STR("-"));
    plim_buf_puts(b, " ");
    put_types(b, g, n->scope);
    for (uint32_t i = 0; i < n->n_args; i++) {
        plim_str name = slot_name(n->op->schema, i);
        if (n->args[i].kind == PLIM_ARG_NONE || ignored(name) || (like && i == 0))
            continue;
        if (n->inplace && plim_str_is(name, "input")) /* of dropout; dropout_ calls it self */
            name = PLIM_STR("self");
        plim_buf_puts(b, " ");
        plim_buf_add(b, name);
        plim_buf_puts(b, "=");
        put_arg(b, g, &n->args[i]);
    }
    plim_buf_puts(b, " ->");
    for (uint32_t i = 0; i < n->n_outs; i++) {
        plim_buf_puts(b, " ");
        put_sizes(b, &g->values[n->outs[i]].meta);
    }
}

static uint32_t put_state(plim_buf *b, const plim_graph *g, plim_value_kind kind)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind != kind)
            continue;
        plim_buf_puts(b, kind == PLIM_VALUE_PARAMETER ? "parameter " : "buffer ");
        plim_buf_add(b, v->name);
        plim_buf_puts(b, " ");
        put_sizes(b, &v->meta);
        plim_buf_puts(b, "\n");
        n++;
    }
    return n;
}

static uint64_t fnv1a(plim_str s)
{
    uint64_t h = 0xcbf29ce484222325;
    for (size_t i = 0; i < s.n; i++)
        h = (h ^ (uint8_t)s.p[i]) * 0x100000001b3;
    return h;
}

/* ---- nodes.txt -------------------------------------------------------------------- */

typedef struct recorded {
    char name[64], shape[64];
    unsigned nodes, state;
    uint64_t hash;
} recorded;

static plim_binding bind_shape(struct plim_input_shape *in, const char *text)
{
    plim_str shape = plim_str_of(text);
    assert_int_equal(plim_parse_shape(shape, in->dim, PLIM_MAX_RANK, &in->rank, NULL),
                     PLIM_OK);
    in->name = PLIM_STR("x");
    return (plim_binding){.inputs = in, .n_inputs = 1};
}

/* A line of the recording: 16 bits of each node's hash, or the node's text. */
static void compare_line(const char *line, const recorded *r, const plim_str *nodes,
                         uint32_t *hashed, uint32_t *spelled)
{
    if (line[0] == 'n') {
        plim_str got = nodes[(*spelled)++];
        if (!plim_str_is(got, line + 2))
            fail_msg("%s: node %u is\n  " PLIM_STR_FMT "\nnot\n  %s", r->name,
                     (unsigned)*spelled - 1, PLIM_STR_ARG(got), line + 2);
        return;
    }
    for (const char *p = line + 2; *p; p += 4, (*hashed)++) {
        unsigned want = 0;
        assert_int_equal(sscanf(p, "%4x", &want), 1);
        if (*hashed >= r->nodes || want != (fnv1a(nodes[*hashed]) & 0xffff))
            fail_msg("%s (%s): node %u differs, ours: " PLIM_STR_FMT, r->name, r->shape,
                     (unsigned)*hashed, PLIM_STR_ARG(nodes[*hashed]));
    }
}

static plim_str *spell(const recorded *r, uint64_t *hash, unsigned *state)
{
    struct plim_input_shape in;
    plim_binding bind = bind_shape(&in, r->shape);
    plim_graph g;
    plim_buf whole;
    build(&g, r->name, &bind);
    plim_buf_init(&whole, &arena);
    plim_str *nodes = PLIM_NEW_N(&arena, plim_str, PLIM_MAX(g.n_nodes, r->nodes));
    for (uint32_t i = 0, k = 0; i < g.n_nodes; i++) {
        plim_buf one;
        if (is_end(&g.nodes[i]))
            continue;
        plim_buf_init(&one, &arena);
        put_node(&one, &g, &g.nodes[i]);
        nodes[k] = plim_buf_str(&one);
        plim_buf_add(&whole, nodes[k++]);
        plim_buf_puts(&whole, "\n");
    }
    plim_buf_puts(&whole, "out");
    for (uint32_t i = 0; i < g.n_outputs; i++) {
        plim_buf_puts(&whole, " ");
        put_ref(&whole, &g, g.outputs[i]);
    }
    plim_buf_puts(&whole, "\n");
    *state = put_state(&whole, &g, PLIM_VALUE_PARAMETER);
    *state += put_state(&whole, &g, PLIM_VALUE_BUFFER);
    *hash = fnv1a(plim_buf_str(&whole));
    return nodes;
}

static void test_nodes(void **state)
{
    (void)state;
    FILE *f = fopen(GOLDEN("nodes.txt"), "r");
    char line[4096];
    recorded r = {0};
    plim_str *nodes = NULL;
    uint32_t hashed = 0, spelled = 0, models = 0;
    uint64_t hash = 0;
    unsigned n_state = 0;
    assert_non_null(f);
    for (bool more = true; more;) {
        more = fgets(line, sizeof line, f) != NULL;
        line[strcspn(line, "\n")] = 0;
        if (nodes && (!more || line[0] == 'm')) { /* the previous model is complete */
            CHECK(r.name, hashed == r.nodes && n_state == r.state && hash == r.hash);
            CHECK(r.name, spelled == 0 || spelled == r.nodes);
            plim_arena_free(&arena);
        }
        if (!more || line[0] == '#')
            continue;
        if (line[0] == 'm') {
            assert_int_equal(sscanf(line, "model %63s %63s nodes %u state %u hash %" SCNx64,
                                    r.name, r.shape, &r.nodes, &r.state, &r.hash),
                             5);
            nodes = spell(&r, &hash, &n_state);
            hashed = spelled = 0;
            models++;
        } else {
            compare_line(line, &r, nodes, &hashed, &spelled);
        }
    }
    fclose(f);
    CHECK("every model and some sizes more", models + hub_count() >= plim_zoo_count());
}

/* ---- layers.txt: leaf by leaf --------------------------------------------------------- */

static uint64_t own_parameters(const plim_graph *g, plim_str path)
{
    uint64_t sum = 0, n;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind == PLIM_VALUE_PARAMETER && v->name.n > path.n + 1 &&
            memcmp(v->name.p, path.p, path.n) == 0 && v->name.p[path.n] == '.' &&
            plim_meta_numel(&v->meta, &n))
            sum += n;
    }
    return sum;
}

static void test_layers(void **state)
{
    (void)state;
    FILE *f = fopen(GOLDEN("layers.txt"), "r");
    char line[512];
    plim_graph g = {0};
    uint32_t at = 0, rows = 0; /* node after the leaf that was read last */
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char first[64], second[64], shape[64];
        uint64_t params, macs;
        line[strcspn(line, "\n")] = 0;
        if (sscanf(line, "model %63s", second) == 1) {
            CHECK("all nodes but flatten and add belong to leaves", !g.n_nodes || at > 0);
            plim_arena_free(&arena);
            plim_binding one = with_batch(1);
            build(&g, second, &one);
            at = 0;
            continue;
        }
        if (sscanf(line, "%63s %63s %63s %" SCNu64 " %" SCNu64, first, second, shape, &params,
                   &macs) != 5)
            continue;
        while (at < g.n_nodes && !plim_str_is(g.scopes[g.nodes[at].scope].path, first))
            at++;
        CHECK(line, at < g.n_nodes);
        uint32_t scope = g.nodes[at].scope, begin = at;
        while (at < g.n_nodes && g.nodes[at].scope == scope)
            at++;
        plim_buf got;
        plim_meta out = g.values[g.nodes[at - 1].outs[0]].meta;
        memmove(out.dim, out.dim + 1, sizeof out.dim - sizeof out.dim[0]);
        out.rank--;
        plim_buf_init(&got, &arena);
        put_sizes(&got, &out);
        CHECK_STR(line, plim_buf_str(&got).p, shape);
        CHECK(line, plim_str_is(g.scopes[scope].type, second));
        CHECK(line, own_parameters(&g, g.scopes[scope].path) == params);
        CHECK(line, macs_of(&g, begin, at) == macs);
        rows++;
    }
    fclose(f);
    plim_arena_free(&arena);
    assert_int_equal(rows, 21 + 39 + 158 + 141);
}

/* ---- torchvision.txt: totals ------------------------------------------------------------ */

/* torchvision counted in eval mode: without inception_v3's auxiliary head. */
static uint64_t eval_macs(const plim_graph *g)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        if (!plim_str_starts(g->scopes[g->nodes[i].scope].path, "AuxLogits"))
            sum += macs_of(g, i, i + 1);
    return sum;
}

static void test_published(void **state)
{
    (void)state;
    FILE *f = fopen(GOLDEN("torchvision.txt"), "r");
    char line[256];
    uint32_t rows = 0;
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        char name[64], gmacs[32];
        unsigned whole, milli;
        uint64_t params;
        int64_t crop;
        plim_graph g;
        plim_graph_counts c;
        if (sscanf(line, "%63s %" SCNu64 " %31s %" SCNd64, name, &params, gmacs, &crop) != 4)
            continue;
        plim_binding one = with_batch(1);
        build(&g, name, &one);
        assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
        CHECK(name, c.parameters == params && c.trainable == params);
        CHECK(name, g.values[g.inputs[0]].meta.dim[2] == crop);
        assert_int_equal(sscanf(gmacs, "%u.%u", &whole, &milli), 2);
        uint64_t got = (eval_macs(&g) + 500000) / 1000000;
        if (got != whole * 1000ull + milli)
            fail_msg("%s: %" PRIu64 " million MACs, torchvision says %s thousand", name, got,
                     gmacs);
        plim_arena_free(&arena);
        rows++;
    }
    fclose(f);
    CHECK("torchvision publishes all but lenet5, mlp, unet and those of the hub",
          rows + 3 + hub_count() == plim_zoo_count());
}

/* ---- top1.def: published accuracies ------------------------------------------------------- */

/* Each row names a model, whose default image has the side that its accuracy was measured at,
 * and has an accuracy of ImageNet. */
static void test_top1(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        int64_t side;
        uint32_t top1;
    } rows[] = {
#define TOP1(name, side, top1) {#name, side, top1},
#include "zoo/top1.def"
#undef TOP1
    };
    plim_binding one = with_batch(1);
    plim_graph g;
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        build(&g, rows[i].name, &one);
        CHECK(rows[i].name, g.about.top1 == rows[i].top1);
        CHECK(rows[i].name, rows[i].top1 > 50000 && rows[i].top1 < 90000);
        CHECK(rows[i].name, g.values[g.inputs[0]].meta.dim[2] == rows[i].side);
        plim_arena_free(&arena);
    }
    build(&g, "lenet5", &one);
    CHECK("no accuracy is published", g.about.top1 == 0);
    plim_arena_free(&arena);
}

/* ---- every model ------------------------------------------------------------------------- */

static void test_all(void **state)
{
    (void)state;
    const char *family;
    const plim_zoo_model *m;
    for (uint32_t i = 0; (m = plim_zoo_at(i, &family)); i++) {
        plim_graph one, five;
        plim_graph_counts c1, c5;
        plim_binding b1 = with_batch(1), b5 = with_batch(5);
        if (m->config)
            continue;
        CHECK(m->name, m->doc[0] && m->src[0] && family[0]);
        CHECK(m->name, plim_zoo_has(plim_str_of(m->name), false));
        CHECK(m->name, !m->alias || plim_zoo_has(plim_str_of(m->alias), false));
        build(&one, m->name, &b1);
        build(&five, m->name, &b5);
        CHECK(m->name,
              one.sizes.batch == 1 && five.sizes.batch == 5 && !one.sizes.batch_fixed);
        CHECK(m->name, plim_str_is(one.about.name, m->name));
        CHECK(m->name, plim_str_is(one.about.format, "built-in"));
        CHECK(m->name, one.n_nodes == five.n_nodes);
        for (uint32_t k = 0; k < one.n_nodes; k++)
            CHECK(m->name, one.nodes[k].op != NULL);
        assert_int_equal(plim_graph_count(&one, &c1, NULL), PLIM_OK);
        assert_int_equal(plim_graph_count(&five, &c5, NULL), PLIM_OK);
        CHECK(m->name, m->parse ? !m->parameters : c1.parameters == m->parameters);
        CHECK(m->name, c5.parameters == c1.parameters);
        CHECK(m->name, c1.parameter_bytes == 4 * c1.parameters);
        CHECK(m->name, macs_of(&five, 0, five.n_nodes) == 5 * macs_of(&one, 0, one.n_nodes));
        CHECK(m->name, five.values[five.outputs[0]].meta.dim[0] == 5);
        plim_arena_free(&arena);
    }
    CHECK("past the end", plim_zoo_at(plim_zoo_count(), NULL) == NULL);
}

/* What the list says of a model, against the graph. */
static void check_facts(const plim_graph *g, const plim_zoo_model *m)
{
    bool text = false, sees = g->sizes.takes_images && !g->denoises;
    int64_t context = (int64_t)plim_zoo_context(m);
    for (uint32_t i = 0; i < g->n_scopes; i++) {
        const char *type = plim_arena_str(&arena, g->scopes[i].type).p;
        text |= strstr(type, "ForCausalLM") != NULL || strstr(type, "LMHeadModel") != NULL;
    }
    if (text != !strcmp(plim_zoo_kind(m), "text") ||
        g->denoises != !strcmp(plim_zoo_kind(m), "diffusion") ||
        (sees && strcmp(plim_zoo_kind(m), "vision-text")))
        fail_msg("%s: its kind is '%s'", m->name, plim_zoo_kind(m));
    CHECK(m->name, m->library || m->year >= 2018); /* a network has weights of several years */
    /* RoBERTa's first two rows are for padding; a class that is data may leave the key unread */
    if (context && g->sizes.seq_max && g->sizes.seq_max != context &&
        g->sizes.seq_max != context - 2)
        fail_msg("%s: context %" PRId64 ", the graph allows %" PRId64, m->name, context,
                 g->sizes.seq_max);
}

/* Models of the hub: each builds, from known ops, with as many parameters as its row
 * states. */
static void test_hub(void **state)
{
    (void)state;
    const plim_zoo_model *m;
    const char *family;
    for (uint32_t i = 0; (m = plim_zoo_at(i, &family)); i++) {
        plim_graph g;
        plim_graph_counts c;
        if (!m->config)
            continue;
        const plim_binding few = {.batch = 1,
                                  .seq = strcmp(plim_zoo_kind(m), "vision") ? 4 : 0};
        build(&g, m->name, &few);
        assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
        if (c.parameters != m->parameters)
            fail_msg("%s: %" PRIu64 " parameters, its row has %" PRIu64, m->name, c.parameters,
                     m->parameters);
        for (uint32_t k = 0; k < g.n_nodes; k++)
            CHECK(m->name, g.nodes[k].op != NULL);
        CHECK(m->name, g.sizes.batch == 1 && !g.sizes.batch_fixed);
        CHECK(m->name,
              plim_str_is(g.about.name, m->name) && plim_str_is(g.about.format, "built-in"));
        CHECK(m->name, !strcmp(family, m->library ? m->library : m->model_type) &&
                           plim_str_is(g.about.producer, m->src));
        bool page = !strncmp(m->src, "huggingface.co/", strlen("huggingface.co/"));
        CHECK(m->name,
              page || (m->library && !strncmp(m->src, m->library, strlen(m->library))));
        CHECK(m->name,
              !page || (!strncmp(m->alias, m->doc, strlen(m->doc)) && strchr(m->doc, '/')));
        check_facts(&g, m);
        plim_arena_free(&arena);
    }
    CHECK("a network", !strcmp(plim_zoo_kind(plim_zoo_at(0, NULL)), "vision"));
    CHECK("those that people ask for", hub_count() > 180);
}

/* ---- names -------------------------------------------------------------------------------- */

typedef struct known_name {
    char s[96]; /* in lower case */
    const char *model;
} known_name;

static void put_name(known_name *list, size_t *n, const plim_zoo_model *m, plim_str s)
{
    enum { ROOM = 2048 };
    known_name *k = &list[*n];
    assert_true(*n < ROOM && s.n < sizeof k->s);
    for (size_t i = 0; i < s.n; i++)
        k->s[i] = (char)(s.p[i] | (s.p[i] >= 'A' && s.p[i] <= 'Z' ? 32 : 0));
    k->s[s.n] = 0;
    k->model = m->name;
    for (size_t i = 0; i < *n; i++)
        if (!strcmp(list[i].s, k->s) && list[i].model != k->model)
            fail_msg("'%s' is '%s' and '%s'", k->s, list[i].model, k->model);
    CHECK(k->s, plim_zoo_has(s, false));
    ++*n;
}

/* No name, alias or last part of an id refers to two models. */
static void test_names_are_unique(void **state)
{
    (void)state;
    static known_name list[2048];
    const plim_zoo_model *m;
    size_t n = 0;
    for (uint32_t i = 0; (m = plim_zoo_at(i, NULL)); i++) {
        put_name(list, &n, m, plim_str_of(m->name));
        for (const char *p = m->alias ? m->alias : ""; *p; p += strspn(p, " ")) {
            plim_str s = {p, strcspn(p, " ")};
            const char *slash = memchr(p, '/', s.n);
            put_name(list, &n, m, s);
            p += s.n;
            if (slash)
                put_name(list, &n, m, (plim_str){slash + 1, (size_t)(p - slash) - 1});
        }
    }
}

static void test_case(void **state)
{
    (void)state;
    static const char *const same[] = {"ResNet50", "MLP:3,4", "meta-llama/llama-3.1-8b",
                                       "LLAMA-3.1-8B-INSTRUCT"};
    static const char *const none[] = {"", "/", "llama/Llama-3.1-8B", "meta-llama/", "gpt2:3"};
    for (size_t i = 0; i < PLIM_COUNT(same); i++)
        CHECK(same[i], plim_zoo_has(plim_str_of(same[i]), false));
    for (size_t i = 0; i < PLIM_COUNT(none); i++)
        CHECK(none[i], !plim_zoo_has(plim_str_of(none[i]), true));
}

/* Names in other words than the list's. */
static void test_loosely(void **state)
{
    (void)state;
    static const struct {
        const char *asked, *name; /* NULL: no model, or not one only */
    } rows[] = {
        {"resnet-50", "resnet50"},
        {"resnet_50", "resnet50"},
        {"ResNet 50", "resnet50"},
        {"resnet50 ", "resnet50"},
        {"Llama 3 8B", "llama-3-8b"},
        {"llama3.1-8b", "llama-3.1-8b"},
        {"Llama-3-1-8B", "llama-3.1-8b"},
        {"Mistral 7B", "mistral-7b"},
        {"bert base", "bert-base-uncased"},
        {"vit b 16", "vit_b_16"},
        {"gpt 2", "gpt2"},
        {"llama318b", NULL}, /* digits that were apart stay apart */
        {"./resnet-50", NULL},
        {"resnet", NULL},
        {"gpt 2:3", NULL},
        {"---", NULL},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_graph g;
        CHECK(rows[i].asked, !plim_zoo_has(plim_str_of(rows[i].asked), false));
        CHECK(rows[i].asked,
              plim_zoo_has(plim_str_of(rows[i].asked), true) == (rows[i].name != NULL));
        if (!rows[i].name)
            continue;
        build(&g, rows[i].asked, NULL);
        CHECK(rows[i].asked, plim_str_is(g.about.name, rows[i].name));
        plim_arena_free(&arena);
    }
}

static void test_near(void **state)
{
    (void)state;
    static const struct {
        const char *why, *asked, *says;
    } rows[] = {
        {"one letter", "resnet51", "; did you mean 'resnet50'? (see"},
        {"two letters change places", "resent50", "'resnet50'"},
        {"only dashes differ: that one alone", "llama3-8b",
         "; did you mean 'llama-3-8b'? (see"},
        {"its beginning", "convnext", "'convnext_tiny', 'convnext_base' or 'convnext_small'"},
        {"more than a name", "qwen2.5-7b-awq", "; did you mean 'qwen2.5-7b'? (see"},
        {"another owner, or another dash", "me/Llama_3.1_8B", "'llama-3.1-8b'"},
        {"nothing near", "gpx", "no built-in model 'gpx' (see 'plimsoll models')"},
        {"nothing like it", "xyzzy", "no built-in model 'xyzzy' (see 'plimsoll models')"},
        {"nothing", "", "no built-in model '' (see 'plimsoll models')"},
        {"no letter", "---", "no built-in model '---' (see 'plimsoll models')"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        plim_err err = PLIM_ERR_INIT;
        assert_int_equal(plim_zoo_unknown(plim_str_of(rows[i].asked), &err), PLIM_EUSAGE);
        if (!strstr(err.msg, rows[i].says))
            fail_msg("%s: \"%s\"", rows[i].why, err.msg);
    }
}

/* inception_v3 trains with two heads, the main one first. */
static void test_two_heads(void **state)
{
    (void)state;
    plim_graph g;
    build(&g, "inception_v3", NULL);
    assert_int_equal(g.n_outputs, 2);
    const plim_node *main_head = &g.nodes[g.values[g.outputs[0]].node];
    const plim_node *aux = &g.nodes[g.values[g.outputs[1]].node];
    CHECK("main head", plim_str_is(g.scopes[main_head->scope].path, "fc"));
    CHECK("auxiliary head", plim_str_is(g.scopes[aux->scope].path, "AuxLogits.fc"));
    plim_arena_free(&arena);
}

/* ---- names, sizes, refusals ----------------------------------------------------------------- */

static void test_mlp(void **state)
{
    (void)state;
    plim_graph g;
    plim_graph_counts c;
    build(&g, "mlp:3,300,300,400,300,100", NULL);
    assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
    CHECK("measured on a card: 1449200 bytes", c.parameter_bytes == 1449200);
    CHECK("five layers", g.n_nodes == 5);
    CHECK("its name is what was asked for",
          plim_str_is(g.about.name, "mlp:3,300,300,400,300,100"));
    build(&g, "mlp:4,2:relu", NULL);
    CHECK("nothing to put a ReLU between", g.n_nodes == 1);
    build(&g, "mlp:4,3,2:relu", NULL);
    CHECK("one ReLU", g.n_nodes == 3 && plim_str_is(g.scopes[2].type, "ReLU"));
    plim_arena_free(&arena);
}

static void test_refused(void **state)
{
    (void)state;
    static const struct {
        const char *name, *shape;
        int64_t batch, seq;
        plim_status want;
        const char *says;
    } rows[] = {
        {"resnet5", NULL, 0, 0, PLIM_EUSAGE,
         "no built-in model 'resnet5'; did you mean 'resnet50'"},
        {"", NULL, 0, 0, PLIM_EUSAGE, "no built-in model ''"},
        {"resnet50:3", NULL, 0, 0, PLIM_EUSAGE, "no built-in model 'resnet50:3'"},
        {"mlp:", NULL, 0, 0, PLIM_EUSAGE, "layer sizes are numbers"},
        {"mlp:3", NULL, 0, 0, PLIM_EUSAGE, "two or more layer sizes"},
        {"mlp:3,", NULL, 0, 0, PLIM_EUSAGE, "layer sizes are numbers"},
        {"mlp:3,0", NULL, 0, 0, PLIM_EUSAGE, "layer sizes are numbers"},
        {"mlp:3,-4", NULL, 0, 0, PLIM_EUSAGE, "layer sizes are numbers"},
        {"mlp:3,4:tanh", NULL, 0, 0, PLIM_EUSAGE, "':relu'"},
        {"mlp:3,99999999999999999999", NULL, 0, 0, PLIM_EUSAGE, "1..2147483647"},
        {"mlp:2147483647,2147483647", NULL, 0, 0, PLIM_ERANGE, "size of '0.weight' overflows"},
        {"resnet50", NULL, 0, 128, PLIM_EUSAGE, "no sequence length"},
        {"resnet50", NULL, -1, 0, PLIM_ERANGE, "size -1 of dimension 0"},
        {"resnet50", "1,1,224,224", 0, 0, PLIM_ESHAPE,
         "takes 3 channels, the shape given has 1"},
        {"resnet50", "3,224,224", 0, 0, PLIM_EUSAGE, "has 4 dimensions, the shape given 3"},
        {"resnet50", "1,3,0,224", 0, 0, PLIM_ERANGE, "size 0 of dimension 2"},
        {"resnet50", "2147483647,3,2147483647,2147483647", 0, 0, PLIM_ERANGE, "overflow"},
        {"resnet50", "1,3,2147483647,2147483647", 0, 0, PLIM_ERANGE, "overflow"},
        {"alexnet", "1,3,20,20", 0, 0, PLIM_ESHAPE, "features."},
        {"vit_b_16", "1,3,100,100", 0, 0, PLIM_ESHAPE, "100x100"},
        {"vit_b_16", "1,3,224,240", 0, 0, PLIM_ESHAPE, "224x240"},
        {"lenet5", "1,1,30,30", 0, 0, PLIM_ESHAPE, "28x28 or 32x32"},
        {"lenet5", "1,1,4,4", 0, 0, PLIM_ESHAPE, "'lenet5'"},
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++) {
        struct plim_input_shape in;
        plim_err err = PLIM_ERR_INIT;
        plim_graph g = {.arena = &arena};
        plim_binding bind = {0};
        if (rows[i].shape) {
            bind = bind_shape(&in, rows[i].shape);
            in.name = PLIM_STR("");
        }
        bind.batch = rows[i].batch;
        bind.seq = rows[i].seq;
        plim_status st = plim_zoo_build(&g, plim_str_of(rows[i].name), &bind, &err);
        if (st != rows[i].want || !strstr(err.msg, rows[i].says))
            fail_msg("%s %s: %d \"%s\"", rows[i].name, rows[i].shape ? rows[i].shape : "", st,
                     err.msg);
        CHECK(rows[i].name, err.code == st);
        plim_arena_free(&arena);
    }
    plim_graph g = {.arena = &arena};
    struct plim_input_shape two[2];
    plim_binding bind = bind_shape(two, "1,3,224,224");
    bind.n_inputs = 2;
    CHECK("one input only",
          plim_zoo_build(&g, PLIM_STR("alexnet"), &bind, NULL) == PLIM_EUSAGE);
    bind.n_inputs = 1;
    two[0].name = PLIM_STR("y");
    CHECK("it is called x",
          plim_zoo_build(&g, PLIM_STR("alexnet"), &bind, NULL) == PLIM_EUSAGE);
    plim_arena_free(&arena);
}

static void test_sizes(void **state)
{
    (void)state;
    struct plim_input_shape in;
    plim_binding bind = bind_shape(&in, "4,3,192,256");
    plim_graph g;
    build(&g, "resnet50", &bind);
    CHECK("the shape's own batch", g.sizes.batch == 4);
    bind.batch = 7;
    build(&g, "resnet50", &bind);
    CHECK("--batch goes before the shape's", g.sizes.batch == 7);
    CHECK("logits", g.values[g.outputs[0]].meta.dim[0] == 7);
    bind = bind_shape(&in, "3,1,32,32");
    build(&g, "lenet5", &bind);
    bind = bind_shape(&in, "1,3,384,384"); /* as torchvision's own 384 weights: 86,859,496 */
    plim_graph_counts c;
    build(&g, "vit_b_16", &bind);
    assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
    CHECK("positions for 24 x 24 patches", c.parameters == 86859496);
    plim_arena_free(&arena);
}

/* The n-th allocation fails, for n = 1, 2, ... until the build goes through. */
static void test_out_of_memory(void **state)
{
    (void)state;
    static const char *const names[] = {"mlp:3,4,5:relu", "shufflenet_v2_x0_5",
                                        "whisper-tiny"};
    for (size_t i = 0; i < PLIM_COUNT(names); i++) {
        bool done = false;
        for (uint64_t n = 1; !done; n++) {
            plim_arena a = PLIM_ARENA_INIT;
            plim_err err = PLIM_ERR_INIT;
            plim_graph g = {.arena = &a};
            a.fail_after = n;
            plim_status st = plim_zoo_build(&g, plim_str_of(names[i]), NULL, &err);
            done = st == PLIM_OK;
            CHECK(err.msg, done || st == PLIM_ENOMEM);
            CHECK("all allocations were tried", !done || a.calls < n);
            plim_arena_free(&a);
        }
    }
}

/* ---- docs/models.md: a row a model, with these figures --------------------------------------- */

static void put_hub_row(plim_buf *b, const plim_zoo_model *m, const char *family)
{
    const char *other = m->alias + strlen(m->doc);
    plim_buf_printf(b, "| `%s` | %s | %s | %s |", m->name, m->doc, family,
                    plim_fmt_count(m->parameters).s);
    for (other += strspn(other, " "); *other; other += strspn(other, " ")) {
        plim_buf_puts(b, " ");
        plim_buf_add(b, (plim_str){other, strcspn(other, " ")});
        other += strcspn(other, " ");
    }
    plim_buf_puts(b, " |\n");
}

static void put_row(plim_buf *b, const plim_zoo_model *m, const char *family)
{
    plim_graph g;
    plim_graph_counts c;
    if (m->library) { /* tools/families/table.py writes the rest */
        plim_buf_printf(b, "| `%s` | `", m->name);
        return;
    }
    if (m->config) {
        put_hub_row(b, m, family);
        return;
    }
    build(&g, m->name, NULL);
    assert_int_equal(plim_graph_count(&g, &c, NULL), PLIM_OK);
    uint64_t million = (macs_of(&g, 0, g.n_nodes) + 500000) / 1000000;
    plim_buf_printf(b, "| `%s` | %s | %s | %s | %" PRIu64 ".%03u | ", m->name,
                    m->alias ? m->alias : "", family, plim_fmt_count(c.parameters).s,
                    million / 1000, (unsigned)(million % 1000));
    for (int k = 0; k < 3 && m->input[k]; k++)
        plim_buf_printf(b, k ? "x%" PRId64 : "%" PRId64, m->input[k]);
    plim_buf_printf(b, " | %s |\n", m->src);
}

static void test_documented(void **state)
{
    (void)state;
    plim_bytes page;
    plim_err err = PLIM_ERR_INIT;
    const plim_zoo_model *m;
    const char *family;
    unsigned missing = 0;
    assert_int_equal(plim_file_read(&page, PLIM_SOURCE_DIR "/docs/models.md", &err), PLIM_OK);
    plim_str text = plim_arena_str(&arena, (plim_str){(const char *)page.p, page.n});
    plim_file_close(&page);
    for (uint32_t i = 0; (m = plim_zoo_at(i, &family)); i++) {
        plim_buf row;
        plim_buf_init(&row, &arena);
        put_row(&row, m, family);
        if (!strstr(text.p, plim_buf_str(&row).p)) {
            print_message("%s", plim_buf_str(&row).p);
            missing++;
        }
    }
    plim_arena_free(&arena);
    if (missing)
        fail_msg("docs/models.md lacks these %u rows", missing);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
        cmocka_unit_test(test_layers),
        cmocka_unit_test(test_published),
        cmocka_unit_test(test_top1),
        cmocka_unit_test(test_all),
        cmocka_unit_test(test_hub),
        cmocka_unit_test(test_names_are_unique),
        cmocka_unit_test(test_case),
        cmocka_unit_test(test_near),
        cmocka_unit_test(test_loosely),
        cmocka_unit_test(test_two_heads),
        cmocka_unit_test(test_mlp),
        cmocka_unit_test(test_refused),
        cmocka_unit_test(test_sizes),
        cmocka_unit_test(test_out_of_memory),
        cmocka_unit_test(test_documented),
    };
    return cmocka_run_group_tests_name("zoo", tests, NULL, NULL);
}
