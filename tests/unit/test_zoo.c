/* test_zoo.c -- the built-in models against the originals: every node, name and
 * shape as torch.export shows them, every layer's parameters and MACs, the
 * published totals.  tests/golden/zoo/record.py made what is compared with. */
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

static void put_ref(plim_buf *b, const plim_graph *g, uint32_t id)
{
    const plim_value *v = &g->values[id];
    if (v->kind != PLIM_VALUE_NODE) {
        plim_buf_add(b, v->name);
        return;
    }
    plim_buf_printf(b, "%%%u", (unsigned)v->node);
    const plim_node *n = &g->nodes[v->node];
    for (uint32_t i = 0; n->n_outs > 1 && i < n->n_outs; i++)
        if (n->outs[i] == id)
            plim_buf_printf(b, ".%u", (unsigned)i);
}

/* Lists of one repeated item are written as that item, here as in record.py. */
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
    static const char *const names[] = {"cudnn_enabled", "cudnn_enable",  "dtype",
                                        "layout",        "device",        "pin_memory",
                                        "memory_format", "generator",     "names"};
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
    plim_buf_add(b, n->target);
    plim_buf_puts(b, " ");
    plim_buf_add(b, path.n ? path : PLIM_STR("-"));
    plim_buf_puts(b, " ");
    put_types(b, g, n->scope);
    for (uint32_t i = 0; i < n->n_args; i++) {
        plim_str name = slot_name(n->op->schema, i);
        if (n->args[i].kind == PLIM_ARG_NONE || ignored(name))
            continue;
        if (n->inplace && plim_str_is(name, "input")) /* dropout's, but dropout_'s self */
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

/* A line of the record: 16 bits of each node's hash, or the node's text. */
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
    for (uint32_t i = 0; i < g.n_nodes; i++) {
        plim_buf one;
        plim_buf_init(&one, &arena);
        put_node(&one, &g, &g.nodes[i]);
        nodes[i] = plim_buf_str(&one);
        plim_buf_add(&whole, nodes[i]);
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
        if (nodes && (!more || line[0] == 'm')) { /* the model before is complete */
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
    CHECK("every model and some sizes more", models >= plim_zoo_count());
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_nodes),
    };
    return cmocka_run_group_tests_name("zoo", tests, NULL, NULL);
}
