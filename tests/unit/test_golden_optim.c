/* test_golden_optim.c -- each optimizer's requests, event by event, against those of PyTorch's
 * own (tests/golden/optim/record.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "asked.h"
#include "optim/optim.h"

enum { MAX_PARAMETERS = 4, MAX_STEPS = 7, MAX_LINE = 1 << 13 };

static const plim_world sm_80 = {.cc = 80}; /* and no workspaces */

/* The for-loops of capturable optimizers, and L-BFGS, compute single scalars on the card:
 * requests smaller than this are not modelled there. */
enum { LEAST = 64 };

static bool coarse(const char *spec)
{
    return (strstr(spec, "capturable=1") && strstr(spec, "impl=forloop")) ||
           strstr(spec, "lbfgs") == spec;
}

typedef struct bench {
    plim_arena a;
    plim_err err;
    plim_tape t;
    plim_optim_spec spec;
    plim_optim_param params[MAX_PARAMETERS];
    plim_world world;
    plim_optim_run run;
    const char *text; /* of the case; "clip": clip_grad_norm_ */
    bool clip;
} bench;

/* A closure that makes no requests. */
static plim_t closure(void *ud)
{
    (void)ud;
    return 0;
}

/* n rows of a parameter as its gradient. */
static plim_t some_rows(plim_machine *m, const plim_meta *of, int64_t n, bool coalesced)
{
    plim_t indices = plim_m_empty_contig(m, PLIM_I64, 2, (int64_t[]){1, n}),
           values = plim_m_empty_contig(m, of->dtype, 2, (int64_t[]){n, of->dim[1]});
    return plim_m_sparse(m, of, indices, values, coalesced);
}

/* "f32 30,100 100 50,20=30": leaves with gradients; = and ~ are sparse ones with that many
 * rows, with distinct indices or not. */
static void begin(bench *b, plim_world w, const char *shapes, const char *text)
{
    memset(b, 0, sizeof *b);
    b->text = text;
    b->clip = !strcmp(text, "clip");
    const plim_torch *torch = plim_torch_newest();
    for (uint32_t i = 0; i < plim_torch_count(); i++)
        if (plim_torch_at(i)->version == w.torch)
            torch = plim_torch_at(i);
    b->world = w;
    b->world.torch = torch->version;
    plim_tape_init(&b->t, &b->a);
    plim_machine *m = plim_m_new(&b->a, &b->t, &b->world, &b->err);
    if (plim_optim_parse(plim_str_of(b->clip ? "sgd" : text), &b->spec, &b->err))
        return;
    plim_dtype t = !strncmp(shapes, "bf16", 4) ? PLIM_BF16 : PLIM_F32;
    uint32_t n = 0;
    for (const char *s = strchr(shapes, ' '); s; s = strchr(s, ' '), n++) {
        int64_t dim[4];
        int32_t rank = 0;
        do
            dim[rank++] = strtoll(s + 1, (char **)&s, 10);
        while (*s == ',');
        assert_true(n < MAX_PARAMETERS);
        plim_meta meta = plim_meta_make(t, rank, dim);
        b->params[n].leaf = plim_m_leaf(m, &meta, true);
        char kind = *s;
        plim_t grad = kind == '=' || kind == '~'
                          ? some_rows(m, &meta, strtoll(s + 1, (char **)&s, 10), kind == '=')
                          : plim_m_empty(m, &meta);
        plim_m_set_grad(m, b->params[n].leaf, grad);
    }
    b->run = (plim_optim_run){.m = m,
                              .torch = torch,
                              .spec = &b->spec,
                              .params = b->params,
                              .n = n,
                              .closure = closure,
                              .arena = &b->a};
}

/* " +12000 -12000": the events of one step. */
static void step(bench *b, int k, char *out)
{
    uint32_t first = b->t.n_events;
    if (b->clip)
        plim_optim_clip(&b->run);
    else if (k == 0)
        plim_optim_start(&b->run);
    else
        plim_optim_step(&b->run);
    *out = 0;
    for (uint32_t i = first; i < b->t.n_events; i++) {
        unsigned long long bytes = b->t.storages[b->t.events[i].id].bytes;
        if (bytes >= LEAST || !coarse(b->text))
            out += sprintf(out, " %c%llu", b->t.events[i].kind == PLIM_EVENT_ALLOC ? '+' : '-',
                           bytes);
    }
}

/* Removes events smaller than LEAST. */
static void large_only(char *line)
{
    char copy[MAX_LINE], *out = line;
    snprintf(copy, sizeof copy, "%s", line);
    *out = 0;
    for (char *w = strtok(copy, " "); w; w = strtok(NULL, " "))
        if (atoll(w + 1) >= LEAST)
            out += sprintf(out, " %s", w);
}

static FILE *recording(const char *name)
{
    char path[256];
    snprintf(path, sizeof path, "%s/tests/golden/optim/%s", PLIM_SOURCE_DIR, name);
    FILE *f = fopen(path, "r");
    assert_non_null(f);
    return f;
}

/* Whether that version lacks the option of the case. */
static bool not_there(const char *line) { return strstr(line, "unexpected keyword argument"); }

static void compare_events(const char *file, plim_world world, int fewest)
{
    static char line[MAX_LINE], ours[MAX_LINE];
    char shapes[128] = "", name[128] = "";
    int cases = 0, wrong = 0;
    bench b = {.a = PLIM_ARENA_INIT};
    FILE *f = recording(file);
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "torch ", 6)) {
            world.torch = 100 * atoi(line + 6) + atoi(strchr(line, '.') + 1);
        } else if (!strncmp(line, "loop ", 5)) {
            *name = 0; /* test_loops */
        } else if (!strncmp(line, "shapes ", 7)) {
            snprintf(shapes, sizeof shapes, "%.100s", line + 7);
        } else if (!strncmp(line, "case ", 5)) {
            snprintf(name, sizeof name, "%.100s", line + 5);
            begin(&b, world, shapes, name);
            cases++;
        } else if (!strncmp(line, "step ", 5) && *name && b.run.m) {
            char *theirs = strchr(line, ':') + 1;
            step(&b, atoi(line + 5), ours);
            if (coarse(name))
                large_only(theirs);
            if (strcmp(ours, theirs) != 0 && !plim_m_bad(b.run.m)) {
                print_message("%s, step %d\n  torch%s\n  ours %s\n", name, atoi(line + 5),
                              theirs, ours);
                wrong++;
            }
        } else if (*name && (!strncmp(line, "error", 5) || !strcmp(line, "end"))) {
            bool refused = !b.run.m || plim_m_bad(b.run.m);
            if (refused != (*line == 'e' && line[1] == 'r') && !not_there(line)) {
                print_message("%s: %s here, %s\n", name, b.err.msg, line);
                wrong++;
            }
            plim_arena_free(&b.a);
        }
    }
    fclose(f);
    CHECK(file, cases >= fewest);
    assert_int_equal(wrong, 0);
}

static void test_events(void **state)
{
    (void)state;
    compare_events("events.txt", sm_80, 200);
    compare_events("events-2.4.txt", sm_80, 150);
    compare_events("events-2.9.txt", sm_80, 8);
    /* LAMB and LARS take norms, whose kernel has a buffer */
    compare_events("events-bnb.txt", (plim_world){.cc = 80, .lib.workspace = true}, 100);
}

/* What coalesce() allocates on any card, as the first part of clipping.  The recording has no
 * rows left; requests made before their number is known are the same. */
static void test_coalesce(void **state)
{
    (void)state;
    static char line[MAX_LINE], ours[MAX_LINE];
    int cases = 0;
    FILE *f = recording("events.txt");
    while (fgets(line, sizeof line, f)) {
        int cc, n, at;
        char shapes[64];
        bench b = {.a = PLIM_ARENA_INIT};
        if (sscanf(line, "coalesce %d %d:%n", &cc, &n, &at) < 2)
            continue;
        snprintf(shapes, sizeof shapes, "f32 5,1~%d", n);
        begin(&b, (plim_world){.cc = cc, .lib.workspace = true}, shapes, "clip");
        step(&b, 1, ours);
        line[strcspn(line, "\n")] = 0;
        for (int i = 0; i < 3 && n > 1; i++) /* three arrays are freed at the end */
            *strrchr(line, ' ') = 0;
        CHECK(line, !strncmp(ours, line + at, strlen(line + at)));
        cases++;
        plim_arena_free(&b.a);
    }
    fclose(f);
    CHECK("some cases", cases >= 40);
}

/* "accumulate=2,clip=1,ema=averaged,use_buffers=1": the last one includes the rest */
static void run_loop(const char *text, bench *b)
{
    const char *passes = strstr(text, "accumulate="), *net = strstr(text, "net="),
               *lbfgs = strstr(text, "lbfgs="), *ema = strstr(text, "ema=");
    char model[160] = "mlp:10,20,5:relu", optimizer[64] = "adam", words[256];
    int batch = 4;
    plim_graph g;
    if (lbfgs)
        snprintf(optimizer, sizeof optimizer, "lbfgs,max_iter=%d,strong_wolfe=%d",
                 atoi(lbfgs + strlen("lbfgs=")), strstr(text, "strong_wolfe") != NULL);
    if (net) {
        net += strlen("net=");
        batch = strstr(text, "vit") || strstr(text, "lstm") ? 2 : 4;
        snprintf(model, sizeof model, PLIM_SOURCE_DIR "/tests/golden/torch/%.*s.pt2",
                 (int)strcspn(net, ","), net);
    }
    snprintf(words, sizeof words,
             "batch=%d workspace=off steps=3 accumulate=%d clip=%s optimizer=%s ema=%s%s",
             batch, passes ? atoi(passes + strlen("accumulate=")) : 1,
             strstr(text, "clip") ? "true" : "false", optimizer,
             ema ? ema + strlen("ema=") : "none",
             strstr(text, "zeros") ? " zero_grad=zeros" : "");
    memset(b, 0, sizeof *b);
    asked_tape(model, words, &b->a, &g, &b->t, NULL);
}

static void loop_step(const bench *b, int step, char *out)
{
    uint32_t mark = 0;
    *out = 0;
    for (uint32_t i = 0; i < b->t.n_events; i++) {
        const plim_event *e = &b->t.events[i];
        while (mark + 1 < b->t.n_marks && b->t.marks[mark + 1].first <= i)
            mark++;
        if (b->t.marks[mark].step == step)
            out += sprintf(out, " %c%llu", e->kind == PLIM_EVENT_ALLOC ? '+' : '-',
                           (unsigned long long)b->t.storages[e->id].bytes);
    }
}

/* Kept gradients, accumulation, clipping and averages, within the whole loop. */
static void test_loops(void **state)
{
    (void)state;
    static char line[MAX_LINE], ours[MAX_LINE];
    char name[128] = "";
    int loops = 0, wrong = 0;
    bench b = {.a = PLIM_ARENA_INIT};
    FILE *f = recording("events.txt");
    while (fgets(line, sizeof line, f)) {
        line[strcspn(line, "\n")] = 0;
        if (!strncmp(line, "loop ", 5)) {
            plim_arena_free(&b.a);
            snprintf(name, sizeof name, "%.100s", line + 5);
            run_loop(name, &b);
            loops++;
        } else if (!strncmp(line, "shapes ", 7)) {
            plim_arena_free(&b.a);
            b.t.n_events = 0;
        } else if (!strncmp(line, "step ", 5) && b.t.n_events) {
            int k = atoi(line + 5);
            loop_step(&b, k ? k - 1 : -1, ours);
            if (strstr(name, "lbfgs")) {
                large_only(ours);
                large_only(strchr(line, ':') + 1);
            }
            if (strcmp(ours, strchr(line, ':') + 1) != 0) {
                print_message("%s, step %d\n  torch%s\n  ours %s\n", name, k,
                              strchr(line, ':') + 1, ours);
                wrong++;
            }
        }
    }
    fclose(f);
    CHECK("some loops", loops >= 20);
    assert_int_equal(wrong, 0);
}

/* Not recorded: the states of docs/sources/optimizers.md 3 and 4, by hand. */
static void test_quantized(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *shapes;
        const char *step;
    } cases[] = {
        /* two maps; one byte per element, one scale per 256 */
        {"bnb_adam8bit", "f32 64,100 100", " +1024 +1024 +6400 +6400 +100 +100 +400 +400"},
        {"bnb_lion8bit", "f32 64,100 100", " +1024 +6400 +100 +400"},
        {"bnb_adamw8bit", "bf16 50,80", " +16000 +16000"}, /* too few: fp32 */
        {"bnb_paged_adamw8bit", "bf16 250,400 64,100",     /* of the first, scales alone */
         " +1024 +1024 +1564 +1564 +6400 +6400 +100 +100"},
        {"torchao_adamw8bit", "bf16 64,100 64,128 100",
         " +6400 +100 +1024 +6400 +100 +1024 +8192 +128 +1024 +8192 +128 +1024 +200 +200"},
        {"torchao_adamw4bit", "f32 64,128", " +4096 +256 +64 +4096 +256 +64"},
        {"torchao_adamwfp8", "f32 64,128 65,100", " +8192 +128 +8192 +128 +26000 +26000"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        bench b;
        char ours[512];
        begin(&b, sm_80, cases[i].shapes, cases[i].spec);
        step(&b, 1, ours);
        assert_string_equal(ours, cases[i].step);
        step(&b, 2, ours);
        assert_string_equal(ours, "");
        plim_arena_free(&b.a);
    }
}

/* Number of pairs that the tape holds of L-BFGS's history: all but the first are estimated. */
static int remembered(const bench *b)
{
    int n = 0;
    for (uint32_t i = 0; i < b->t.n_events; i++) {
        const plim_storage *s = &b->t.storages[b->t.events[i].id];
        bool alloc = b->t.events[i].kind == PLIM_EVENT_ALLOC;
        if (!s->role || strcmp(s->role, "old_dirs") != 0)
            continue;
        if (alloc && n)
            CHECK("it may not come to be",
                  s->certainty == PLIM_ESTIMATED && s->low == 0 && s->high == s->bytes);
        n += alloc ? 1 : -1;
    }
    return n;
}

/* With actual data, on a CPU: "held lbfgs,max_iter=4: 3 7 11", the pairs after each step. */
static void test_held(void **state)
{
    (void)state;
    static char line[MAX_LINE], ours[MAX_LINE];
    int cases = 0;
    FILE *f = recording("events.txt");
    while (fgets(line, sizeof line, f)) {
        bench b;
        char *at = strchr(line, ':');
        if (strncmp(line, "held ", 5) != 0 || !at)
            continue;
        *at++ = 0;
        begin(&b, sm_80, "f32 40", line + 5);
        for (int k = 1; at && *at == ' '; k++) {
            long theirs = strtol(at, &at, 10);
            step(&b, k, ours);
            if (remembered(&b) != theirs)
                fail_msg("%s, step %d: torch has %ld pairs, we %d", line + 5, k, theirs,
                         remembered(&b));
        }
        plim_arena_free(&b.a);
        cases++;
    }
    fclose(f);
    CHECK("some cases", cases >= 4);
}

static void test_refusals(void **state)
{
    (void)state;
    static const struct {
        const char *spec, *message;
    } cases[] = {
        {"sparse_adam,impl=foreach", "optimizer 'sparse_adam' has no impl 'foreach'"},
        {"muon,impl=foreach", "optimizer 'muon' has no impl 'foreach': it has forloop"},
        {"rmsprop,impl=fused", "has no impl 'fused': it has foreach, forloop"},
        {"rprop,weight_decay=1", "has no option 'weight_decay'"},
    };
    static const struct {
        const char *spec, *message;
    } emas[] = {
        {"", "unknown ema '': known are none, averaged, lerp, timm_v2, diffusers"},
        {"swa", "unknown ema 'swa': known are none, averaged"},
        {"averaged,impl=fused", "ema 'averaged' has no impl 'fused': it has foreach, forloop"},
        {"lerp,use_buffers=1", "ema 'lerp' has no option 'use_buffers': it has decay=0.999, "},
        {"lerp,buffers=all", "ema option 'buffers' is not a number: 'all'"},
    };
    for (size_t i = 0; i < sizeof emas / sizeof *emas; i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_optim_spec spec;
        assert_int_equal(plim_ema_parse(plim_str_of(emas[i].spec), &spec, &err), PLIM_EUSAGE);
        assert_non_null(strstr(err.msg, emas[i].message));
    }
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        plim_err err = PLIM_ERR_INIT;
        plim_optim_spec spec;
        assert_int_not_equal(plim_optim_parse(plim_str_of(cases[i].spec), &spec, &err),
                             PLIM_OK);
        assert_non_null(strstr(err.msg, cases[i].message));
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_events), cmocka_unit_test(test_coalesce),
        cmocka_unit_test(test_loops),  cmocka_unit_test(test_quantized),
        cmocka_unit_test(test_held),   cmocka_unit_test(test_refusals)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
