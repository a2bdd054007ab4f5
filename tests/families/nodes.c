/* nodes.c -- prints the parameters and nodes of a family's model, a line each: target, types and shapes of its results.
 * tools/families/prove.py compares them with a run of transformers.
 *
 *     nodes FAMILY.fam CONFIG.json DTYPE BATCH SEQ [train] [eager] [cache] [HEIGHTxWIDTH] [images=N] */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "families/family.h"

static void print_value(const plim_value *v)
{
    printf(" %s[", plim_dtype_rows[v->meta.dtype].torch + sizeof "torch." - 1);
    for (int32_t i = 0; i < v->meta.rank; i++)
        printf("%s%lld", i ? "," : "", (long long)v->meta.dim[i]);
    printf("]");
}

static void print_graph(const plim_graph *g)
{
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind != PLIM_VALUE_PARAMETER || v->tied_to != PLIM_NONE)
            continue;
        printf("param %.*s", (int)v->name.n, v->name.p);
        print_value(v);
        printf("\n");
    }
    for (uint32_t i = 0; i < g->n_nodes; i++) {
        const plim_node *n = &g->nodes[i];
        printf("%.*s", (int)n->target.n, n->target.p);
        for (uint32_t k = 0; k < n->n_outs; k++)
            print_value(&g->values[n->outs[k]]);
        printf("%s\n", n->op ? "" : " (no rule)");
    }
}

static plim_str read_all(plim_arena *a, const char *path)
{
    enum { MOST = 1 << 22 };
    char *p = plim_arena_new(a, MOST, 1);
    FILE *f = p ? fopen(path, "rb") : NULL;
    plim_str s = {p, f ? fread(p, 1, MOST, f) : 0};
    if (f)
        fclose(f);
    return s;
}

static plim_family_call call_of(int argc, char **argv)
{
    plim_family_call call = {.batch = atoll(argv[4]), .seq = atoll(argv[5])};
    for (int i = 6; i < argc; i++) {
        call.train |= !strcmp(argv[i], "train");
        call.eager |= !strcmp(argv[i], "eager");
        call.cache |= !strcmp(argv[i], "cache");
        if (!strncmp(argv[i], "images=", 7))
            call.images = atoll(argv[i] + 7);
        else if (!strncmp(argv[i], "frames=", 7))
            call.frames = atoll(argv[i] + 7);
        else if (strchr(argv[i], 'x')) {
            call.image[0] = atoll(argv[i]);
            call.image[1] = atoll(strchr(argv[i], 'x') + 1);
        }
    }
    return call;
}

int main(int argc, char **argv)
{
    plim_err err = PLIM_ERR_INIT;
    plim_arena a = PLIM_ARENA_INIT;
    plim_graph g = {.arena = &a};
    plim_family_model *m = NULL;
    plim_nn n;
    if (argc < 6) {
        fprintf(stderr,
                "usage: %s FAMILY.fam CONFIG.json DTYPE BATCH SEQ [train] [eager] [cache] "
                "[HEIGHTxWIDTH] [images=N] [frames=N]\n",
                argv[0]);
        return 2;
    }
    plim_str text = read_all(&a, argv[1]);
    const plim_family family = {"", "", (const unsigned char *)text.p, text.n};
    plim_family_call call = call_of(argc, argv);
    plim_status st = plim_graph_init(&g, &a, &err);
    plim_nn_init(&n, &g, &err);
    n.infer = !call.train;
    if (!plim_dtype_find(plim_str_of(argv[3]), &n.dtype))
        return 2;
    if (!st)
        st = plim_family_open(&a, &family, read_all(&a, argv[2]), &m, &err);
    if (!st) {
        plim_family_build(&n, m, &call);
        st = n.st;
    }
    if (st)
        fprintf(stderr, "%s\n", err.msg);
    else
        print_graph(&g);
    plim_arena_free(&a);
    return st ? 1 : 0;
}
