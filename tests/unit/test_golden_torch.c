/* test_golden_torch.c -- what a real PyTorch's autograd saves, compared with ours.
 *
 * tests/golden/torch holds, for each net of nets.py, its torch.export archive and what PyTorch
 * did with the net on the CPU (record.py says how, README.md what the CPU does differently and
 * why).  Two things are compared:
 *
 *     shapes     each gradient has the size of its parameter or value here
 *     saved      the tensors autograd saves, node by node, and whose storage each is
 *
 * The requests on a card, and their order, are in tests/golden/cuda.
 *
 * A difference is an error unless a row of `otherwise` names the op that saved it; rows of
 * `otherwise` that no recording needs are errors too. */
#include "core/tape.h"
#include "import/import.h"
#include "machine/machine_priv.h"
#include "step/step.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>

#include "unit.h"

#define GOLDEN PLIM_SOURCE_DIR "/tests/golden/torch"
enum { FEWEST_NETS = 50 };

/* ---- what the CPU does otherwise --------------------------------------------------- */

typedef enum difference {
    CPU_SECOND,  /* a second result that the card's kernel leaves empty */
    CPU_MASK,    /* a mask of the input's dtype, not of bool */
    CPU_COPY,    /* a result with its own storage that is a view here */
    NUMBERS,     /* 0-dim int64: the generator's state on a card, or recorded as Python's */
    CARD_KERNEL, /* a kernel on the card where the CPU evaluates the formula */
} difference;

/* README.md gives the reason for each. */
static const struct exception {
    const char *op;
    difference is;
    const char *net; /* NULL: in any */
} otherwise[] = {
    {"aten.log_sigmoid.default", CPU_SECOND, NULL},
    {"aten.dropout.default", CPU_MASK, NULL},
    {"aten.channel_shuffle.default", CPU_COPY, NULL},
    {"aten.scaled_dot_product_attention.default", NUMBERS, NULL},
    {"aten.cross_entropy_loss.default", NUMBERS, NULL},
    {"aten.rms_norm.default", CARD_KERNEL, NULL},
    {"aten.embedding_bag.padding_idx", CARD_KERNEL, NULL},
    {"aten.scaled_dot_product_attention.default", CARD_KERNEL, "biased_attention"},
};

/* ---- a recording -------------------------------------------------------------------- */

enum { MAX_WORDS = 4 };

typedef struct line {
    plim_str word[MAX_WORDS];
    uint32_t n;
} line;

typedef struct net {
    const char *name;
    plim_arena a;
    plim_graph g;
    plim_bytes text, archive;
    line *lines;
    uint32_t n_lines, cap_lines;
    int64_t batch;
    bool *used; /* rows of `otherwise` */
} net;

static bool excepted(net *t, plim_str op, difference is)
{
    for (size_t i = 0; i < PLIM_COUNT(otherwise); i++) {
        const struct exception *x = &otherwise[i];
        if (x->is == is && plim_str_is(op, x->op) && (!x->net || !strcmp(x->net, t->name))) {
            t->used[i] = true;
            return true;
        }
    }
    return false;
}

static uint64_t number(plim_str s)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n && s.p[i] >= '0' && s.p[i] <= '9'; i++)
        v = v * 10 + (uint64_t)(s.p[i] - '0');
    return v;
}

static line split_line(const char *p, const char *end)
{
    line l = {.n = 0};
    while (p < end && l.n < MAX_WORDS) {
        const char *stop = p;
        while (stop < end && *stop != ' ')
            stop++;
        l.word[l.n++] = (plim_str){p, (size_t)(stop - p)};
        p = stop < end ? stop + 1 : end;
    }
    return l;
}

static void read_lines(net *t)
{
    const char *p = (const char *)t->text.p, *end = p + t->text.n;
    while (p < end) {
        const char *nl = memchr(p, '\n', (size_t)(end - p));
        nl = nl ? nl : end;
        CHECK(t->name, PLIM_PUSH_ROOM(&t->a, t->lines, t->n_lines, t->cap_lines));
        t->lines[t->n_lines++] = split_line(p, nl);
        p = nl < end ? nl + 1 : end;
    }
}

static void read_head(net *t)
{
    for (uint32_t i = 0; i < t->n_lines && t->lines[i].n >= 2; i++)
        if (plim_str_is(t->lines[i].word[0], "batch"))
            t->batch = (int64_t)number(t->lines[i].word[1]);
}

static void net_open(net *t, const char *name, bool *used)
{
    char path[512];
    plim_err err = PLIM_ERR_INIT;
    *t = (net){.name = name, .a = PLIM_ARENA_INIT, .used = used};
    snprintf(path, sizeof path, GOLDEN "/%s.txt", name);
    CHECK(path, plim_file_read(&t->text, path, &err) == PLIM_OK);
    read_lines(t);
    read_head(t);
    snprintf(path, sizeof path, GOLDEN "/%s.pt2", name);
    CHECK(path, plim_file_read(&t->archive, path, &err) == PLIM_OK);
    const plim_importer *im = plim_importer_probe(t->archive);
    CHECK(path, im != NULL);
    plim_binding bind = {.batch = t->batch};
    CHECK(path, plim_graph_init(&t->g, &t->a, &err) == PLIM_OK);
    if (im->read(&t->g, &(plim_source){.bytes = t->archive}, &bind, &err))
        fail_msg("%s: %s", name, err.msg);
    for (uint32_t i = 0; i < t->g.n_nodes; i++)
        if (!t->g.nodes[i].op)
            fail_msg("%s: no rule for '" PLIM_STR_FMT "'", name,
                     PLIM_STR_ARG(t->g.nodes[i].target));
}

static void net_close(net *t)
{
    plim_file_close(&t->text);
    plim_file_close(&t->archive);
    plim_arena_free(&t->a);
}

static plim_world plain_world(void)
{
    return (plim_world){.torch = plim_torch_newest()->version, .cc = 80};
}

/* ---- shapes ---------------------------------------------------------------------------- */

static uint32_t value_named(const net *t, plim_str name)
{
    for (uint32_t i = 0; i < t->g.n_values; i++)
        if (plim_str_eq(t->g.values[i].name, name))
            return i;
    return PLIM_NONE;
}

static int check_shapes(net *t)
{
    int bad = 0;
    for (uint32_t i = 0; i < t->n_lines; i++) {
        const line *l = &t->lines[i];
        uint64_t bytes = 0;
        if (!plim_str_is(l->word[0], "grad"))
            continue;
        uint32_t v = value_named(t, l->word[1]);
        if (v != PLIM_NONE)
            plim_meta_bytes(&t->g.values[v].meta, &bytes);
        if (number(l->word[2]) && bytes != number(l->word[2])) {
            print_error("%s: gradient of '" PLIM_STR_FMT "' has " PLIM_STR_FMT
                        " bytes, here %" PRIu64 "\n",
                        t->name, PLIM_STR_ARG(l->word[1]), PLIM_STR_ARG(l->word[2]), bytes);
            bad++;
        }
    }
    return bad;
}

/* ---- saved ------------------------------------------------------------------------------- */

/* Runs the forward as step.c does, but releases nothing. */
typedef struct drive {
    net *t;
    plim_machine *m;
    plim_tape tape;
    plim_t *value;
    plim_str *owner; /* by tape storage: the name of the first value on it */
} drive;

static void drive_own(drive *d, plim_t t, plim_str name, bool anew)
{
    uint32_t s = m_t(d->m, t)->storage;
    if (t && s != PLIM_NONE && (anew || !d->owner[d->m->storages[s].tape].n))
        d->owner[d->m->storages[s].tape] = name;
}

static void drive_leaves(drive *d)
{
    const plim_graph *g = &d->t->g;
    for (uint32_t i = 0; i < g->n_values; i++) {
        const plim_value *v = &g->values[i];
        if (v->kind == PLIM_VALUE_NODE)
            continue;
        bool wants = v->kind == PLIM_VALUE_PARAMETER && v->requires_grad;
        plim_m_place(d->m, PLIM_NONE, v->name, NULL, PLIM_CAT_INPUT);
        if (v->tied_to == PLIM_NONE)
            d->value[i] = plim_m_leaf(d->m, &v->meta, wants);
        drive_own(d, d->value[i], v->name, false);
    }
    for (uint32_t i = 0; i < g->n_values; i++)
        if (g->values[i].tied_to != PLIM_NONE)
            d->value[i] = d->value[g->values[i].tied_to];
}

static int by_text(const void *a, const void *b)
{
    const plim_str *x = a, *y = b;
    size_t n = PLIM_MIN(x->n, y->n);
    int c = n ? memcmp(x->p, y->p, n) : 0;
    return c ? c : (x->n > y->n) - (x->n < y->n);
}

/* "conv1.weight 864, ..." sorted */
static plim_str sorted_list(net *t, plim_str *item, uint32_t n)
{
    plim_str all = PLIM_STR("");
    if (n)
        qsort(item, n, sizeof *item, by_text);
    for (uint32_t i = 0; i < n; i++)
        all = plim_arena_printf(&t->a, PLIM_STR_FMT "%s" PLIM_STR_FMT, PLIM_STR_ARG(all),
                                i ? ", " : "", PLIM_STR_ARG(item[i]));
    return all;
}

enum { MAX_SAVED_OF_NODE = 128, FLOAT_BYTES = 4, NUMBER_BYTES = 8 };

static plim_str saved_here(drive *d, uint32_t node, plim_str target)
{
    plim_str item[MAX_SAVED_OF_NODE];
    uint32_t n = 0;
    for (uint32_t id = 0; id < d->m->n_gnodes; id++) {
        const m_gnode *gn = m_gnode_at(d->m, id);
        if (!gn->refs || !gn->pub.fn || gn->pub.where != node)
            continue;
        for (uint32_t k = 0; k < PLIM_MAX_SAVED && n < MAX_SAVED_OF_NODE; k++) {
            plim_t s = gn->pub.saved[k];
            uint32_t storage = s ? m_t(d->m, s)->storage : PLIM_NONE;
            if (storage == PLIM_NONE)
                continue;
            uint32_t at = d->m->storages[storage].tape;
            plim_str who = d->owner[at].n ? d->owner[at] : PLIM_STR("-");
            if (!d->owner[at].n && d->tape.storages[at].bytes == NUMBER_BYTES &&
                excepted(d->t, target, NUMBERS))
                continue;
            item[n++] = plim_arena_printf(&d->t->a, PLIM_STR_FMT " %" PRIu64,
                                          PLIM_STR_ARG(who), d->tape.storages[at].bytes);
        }
    }
    return sorted_list(d->t, item, n);
}

/* The name of a storage: that of the parameter that others are tied to. */
static plim_str untied(const net *t, plim_str name)
{
    uint32_t v = value_named(t, name);
    bool tied = v != PLIM_NONE && t->g.values[v].tied_to != PLIM_NONE;
    return tied ? t->g.values[t->g.values[v].tied_to].name : name;
}

static plim_str saved_there(net *t, plim_str node, plim_str target)
{
    plim_str item[MAX_SAVED_OF_NODE];
    uint32_t n = 0;
    for (uint32_t i = 0; i < t->n_lines && n < MAX_SAVED_OF_NODE; i++) {
        const line *l = &t->lines[i];
        if (!plim_str_is(l->word[0], "saved") || !plim_str_eq(l->word[1], node))
            continue;
        uint64_t bytes = number(l->word[3]);
        plim_str owner = untied(t, l->word[2]);
        bool own = plim_str_is(l->word[2], "-"); /* not shared with anything */
        if (own && excepted(t, target, CPU_MASK))
            bytes /= FLOAT_BYTES;
        if (!bytes || plim_str_is(l->word[2], "number") ||
            (own && excepted(t, target, CPU_SECOND)))
            continue;
        item[n++] =
            plim_arena_printf(&t->a, PLIM_STR_FMT " %" PRIu64, PLIM_STR_ARG(owner), bytes);
    }
    return sorted_list(t, item, n);
}

static int check_saved(net *t)
{
    int bad = 0;
    plim_err err = PLIM_ERR_INIT;
    plim_world w = plain_world();
    drive d = {.t = t};
    plim_tape_init(&d.tape, &t->a);
    d.m = plim_m_new(&t->a, &d.tape, &w, &err);
    d.value = PLIM_NEW_N(&t->a, plim_t, t->g.n_values);
    d.owner = PLIM_NEW_N(&t->a, plim_str, 1 << 16);
    plim_m_set_grad_mode(d.m, true);
    drive_leaves(&d);
    for (uint32_t i = 0; i < t->g.n_nodes; i++) {
        const plim_node *n = &t->g.nodes[i];
        plim_m_place(d.m, i, n->target, "out", PLIM_CAT_TEMPORARY);
        plim_m_run(d.m, &t->g, i, d.value);
        if (plim_m_bad(d.m))
            fail_msg("%s: %s", t->name, err.msg);
        for (uint32_t k = 0; k < n->n_outs; k++)
            drive_own(&d, d.value[n->outs[k]], t->g.values[n->outs[k]].name,
                      excepted(t, n->target, CPU_COPY));
        plim_str node = t->g.values[n->outs[0]].name, here = saved_here(&d, i, n->target),
                 there = saved_there(t, node, n->target);
        if (!plim_str_eq(here, there) && !excepted(t, n->target, CARD_KERNEL)) {
            print_error("%s: saved by '" PLIM_STR_FMT "' (" PLIM_STR_FMT
                        "):\n  torch " PLIM_STR_FMT "\n  here  " PLIM_STR_FMT "\n",
                        t->name, PLIM_STR_ARG(node), PLIM_STR_ARG(n->target),
                        PLIM_STR_ARG(there), PLIM_STR_ARG(here));
            bad++;
        }
    }
    return bad;
}

/* ---- the tests --------------------------------------------------------------------------------- */

static int is_recording(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && !strcmp(e->d_name + n - 4, ".txt");
}

/* Runs `check` for every recording, by name. */
static void over_nets(bool *used, int (*check)(net *))
{
    struct dirent **file = NULL;
    int n = scandir(GOLDEN, &file, is_recording, alphasort), bad = 0;
    CHECK("the recordings are there", n >= FEWEST_NETS);
    for (int i = 0; i < n; i++) {
        net t;
        file[i]->d_name[strlen(file[i]->d_name) - 4] = 0;
        net_open(&t, file[i]->d_name, used);
        bad += check(&t);
        net_close(&t);
        free(file[i]);
    }
    free(file);
    CHECK("as PyTorch does it", bad == 0);
}

static void test_shapes(void **state) { over_nets(*state, check_shapes); }
static void test_saved(void **state) { over_nets(*state, check_saved); }

/* Runs last: an exception that nothing needs would hide the next mistake. */
static void test_exceptions_needed(void **state)
{
    const bool *used = *state;
    int idle = 0;
    for (size_t i = 0; i < PLIM_COUNT(otherwise); i++)
        if (!used[i]) {
            print_error("no recording needs the exception for '%s' (row %zu)\n",
                        otherwise[i].op, i);
            idle++;
        }
    CHECK("each exception is needed", idle == 0);
}

int main(void)
{
    bool used[PLIM_COUNT(otherwise)] = {0};
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_prestate(test_shapes, used),
        cmocka_unit_test_prestate(test_saved, used),
        cmocka_unit_test_prestate(test_exceptions_needed, used),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
