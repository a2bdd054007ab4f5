/* mlp.c -- "mlp:3,300,300,400,300,100": Linear layers with these sizes; "mlp:...:relu": with
 * ReLU between them.  A Sequential of torch.nn. */
#include "zoo/zoo.h"

typedef struct mlp_row {
    uint32_t n; /* sizes */
    bool relu;
    const int64_t *sizes;
} mlp_row;

enum { MAX_SIZE = INT32_MAX };

/* Takes a decimal number from the front of s; 0: there is none, or it is too large. */
static int64_t mlp_number(plim_str *s)
{
    int64_t v = 0;
    while (s->n && *s->p >= '0' && *s->p <= '9' && v <= MAX_SIZE) {
        v = v * 10 + (*s->p - '0');
        s->p++;
        s->n--;
    }
    return v <= MAX_SIZE ? v : 0;
}

static const void *mlp_parse(plim_nn *n, plim_str arg, int64_t *features)
{
    plim_str rest = arg;
    mlp_row *row = PLIM_NEW(n->g->arena, mlp_row);
    int64_t *sizes = PLIM_NEW_N(n->g->arena, int64_t, arg.n / 2 + 1);
    if (!row || !sizes) {
        n->st = plim_oom(n->err);
        return NULL;
    }
    for (;;) {
        int64_t v = mlp_number(&rest);
        if (!v) {
            plim_nn_fail(n, PLIM_EUSAGE,
                         "layer sizes are numbers of 1..%d with commas between, as in "
                         "'mlp:3,300,100'",
                         (int)MAX_SIZE);
            return NULL;
        }
        sizes[row->n++] = v;
        if (!rest.n || *rest.p != ',')
            break;
        rest.p++;
        rest.n--;
    }
    row->relu = plim_str_is(rest, ":relu");
    if ((rest.n && !row->relu) || row->n < 2)
        plim_nn_fail(n, PLIM_EUSAGE,
                     "after 'mlp:' come two or more layer sizes, then nothing or ':relu'");
    row->sizes = sizes;
    *features = sizes[0];
    return row;
}

static void mlp_build(plim_nn *n, const void *row, uint32_t x)
{
    const mlp_row *r = row;
    plim_nn_root(n, "Sequential");
    for (uint32_t i = 1; i < r->n; i++) {
        x = plim_nn_linear(n, NULL, x, r->sizes[i], true);
        if (r->relu && i + 1 < r->n)
            x = plim_nn_act(n, NULL, x, PLIM_RELU);
    }
    plim_nn_output(n, x);
}

static const plim_zoo_model mlp_models[] = {
    {.name = "mlp",
     .doc = "linear layers: mlp:3,300,300,400,300,100 or, with ReLU, mlp:784,512,10:relu",
     .src = "torch.nn Sequential of Linear",
     .input = {3},
     .build = mlp_build,
     .row = &(const mlp_row){6, false, (const int64_t[]){3, 300, 300, 400, 300, 100}},
     .parse = mlp_parse},
};
PLIM_ZOO_FAMILY(mlp, "mlp");
