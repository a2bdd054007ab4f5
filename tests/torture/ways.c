/* ways.c -- see ways.h.  Each result is printed in each form; what cannot be printed says so with
 * PLIM_EUNSUPPORTED or PLIM_EUSAGE. */
#include "ways.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "contract.h"
#include "plimsoll_live.h"

const char *torture_way_name(torture_way w)
{
    static const char *const names[] = {
#define X(id, name) name,
        TORTURE_WAYS(X)
#undef X
    };
    return w < WAY_COUNT ? names[w] : "?";
}

/* ---- output ------------------------------------------------------------------------ */

enum { MOST_OUTPUT = 4 << 20 };

typedef struct sink {
    char *p;
    size_t n, cap;
    uint32_t calls;
    bool full;
} sink;

static int put_sink(void *ud, const char *text, size_t n)
{
    sink *s = ud;
    s->calls++;
    if (s->n + n > MOST_OUTPUT) {
        s->full = true;
        return 1;
    }
    if (s->n + n > s->cap) {
        s->cap = (s->n + n) * 2;
        s->p = realloc(s->p, s->cap);
        if (!s->p)
            abort();
    }
    if (n)
        memcpy(s->p + s->n, text, n);
    s->n += n;
    return 0;
}

typedef struct session {
    const torture_case *c;
    const torture_watch *watch;
    torture_random r;
    plim_settings *settings;
    bool read; /* something came of it */
} session;

static void check_status(session *s, const char *what, plim_status st, const plim_err *err)
{
    const char *how = contract_error(st, err);
    s->watch->end(what);
    if (how)
        s->watch->broken(what, how, err->msg);
}

static void check_output(session *s, const char *what, plim_status st, const plim_err *err,
                         sink *out, const char *(*check)(const char *, size_t))
{
    if (st == PLIM_EIO && out->full)
        st = PLIM_OK;
    else
        check_status(s, what, st, err);
    const char *how =
        st && out->n && check != contract_json_lines ? "gives output though it fails" : NULL;
    if (!st && !out->full && out->n)
        how = check(out->p, out->n);
    if (how)
        s->watch->broken(what, how, "");
    free(out->p);
}

static const plim_style plain = PLIM_STYLE_INIT;

/* Of the four forms; the pictures have no checker but that they are text. */
#define PRINT_ALL(s, name, result)                                                            \
    do {                                                                                      \
        static const char *const forms[] = {#name " as text", #name " as JSON",               \
                                            #name " as CSV", #name " as a picture"};          \
        static const char *(*const checks[])(const char *, size_t) = {                        \
            contract_text, contract_json, contract_csv, contract_text};                       \
        for (int form = 0; form < 4; form++) {                                                \
            plim_err shown_err = PLIM_ERR_INIT;                                               \
            sink out = {NULL, 0, 0, 0, false};                                                \
            plim_style style = plain;                                                         \
            style.ascii = torture_once_in(&(s)->r, 3);                                        \
            style.width = torture_once_in(&(s)->r, 4) ? (int)torture_below(&(s)->r, 200) : 0; \
            (s)->watch->begin(forms[form]);                                                   \
            plim_status shown = plim_##name##_print((result), (plim_render)form, &style,      \
                                                    put_sink, &out, &shown_err);              \
            check_output((s), forms[form], shown, &shown_err, &out, checks[form]);            \
        }                                                                                     \
    } while (0)

/* Runs, prints, frees.  A call that fails leaves no result. */
#define RUN_ALL(s, name, ...)                                                                 \
    do {                                                                                      \
        plim_err ran_err = PLIM_ERR_INIT;                                                     \
        plim_##name *result = NULL;                                                           \
        (s)->watch->begin(#name);                                                             \
        plim_status ran = plim_##name##_run(__VA_ARGS__, &result, &ran_err);                  \
        check_status((s), #name, ran, &ran_err);                                              \
        if ((ran == PLIM_OK) != (result != NULL))                                             \
            (s)->watch->broken(#name, "has a result and an error, or neither", ran_err.msg);  \
        if (result) {                                                                         \
            (s)->read = true;                                                                 \
            PRINT_ALL(s, name, result);                                                       \
        }                                                                                     \
        plim_##name##_free(result);                                                           \
    } while (0)

/* ---- settings ------------------------------------------------------------------------ */

/* "key=value;key=value": a case has one of them. */
static const char *const plans[] = {
    "",
    "",
    "mode=infer",
    "optimizer=adam;gpu=rtx4090",
    "optimizer=adamw,impl=fused;dtype=bf16",
    "checkpoint=blocks;optimizer=adamw",
    "vram=1GiB;advice=none",
    "accumulate=2;steps=3;zero_grad=zeros",
    "autocast=fp16;optimizer=adam;gpu=t4",
    "lora=r=4;optimizer=adamw",
    "quant=nf4;lora=r=4",
    "mode=infer;quant=int8",
    "dp=2;strategy=fsdp2;optimizer=adam",
    "dp=2;strategy=ds_zero3;optimizer=adam",
    "dp=2",
    "tp=2",
    "pp=2;microbatches=2",
    "cp=2",
    "ema=averaged;clip=true",
    "torch=1.13",
    "torch=2.0;optimizer=lbfgs",
    "freeze=**;loop=tight",
    "sequences=packed",
    "loop=trainer;optimizer=adafactor",
    "loss=sum",
    "alloc_conf=expandable_segments:True;gpu=a100",
    "alloc_conf=max_split_size_mb:20,garbage_collection_threshold:0.6;vram=1GiB",
    "allocator=none",
    "allocator=bfc",
    "fraction=0.5;vram=100MiB;stop_at_oom=true",
};

static void make_settings(session *s)
{
    static const char *const batches[] = {"1", "2", "3"};
    char plan[256], *next = plan;
    if (plim_settings_new(&s->settings, NULL))
        abort();
    /* a config.json has the sequence of its model otherwise, and pictures have none */
    bool json = s->c->bytes.n && s->c->bytes.p[0] == '{';
    if (torture_once_in(&s->r, json ? 1 : 8))
        (void)plim_settings_set(s->settings, "seq", torture_once_in(&s->r, 3) ? "7" : "16",
                                NULL);
    if (torture_once_in(&s->r, 3))
        (void)plim_settings_set(s->settings, "batch", batches[torture_below(&s->r, 3)], NULL);
    if (s->c->large)
        (void)plim_settings_set(s->settings, "advice", "none", NULL);
    strcpy(plan, plans[torture_below(&s->r, sizeof plans / sizeof *plans)]);
    while (next && *next) {
        char *key = next, *value = strchr(key, '=');
        next = strchr(key, ';');
        if (next)
            *next++ = 0;
        *value++ = 0;
        (void)plim_settings_set(s->settings, key, value, NULL);
    }
}

/* ---- models --------------------------------------------------------------------------- */

static void print_tape(session *s, const plim_model *m, bool json)
{
    const char *what = json ? "tape as JSON" : "tape";
    plim_err err = PLIM_ERR_INIT;
    sink out = {NULL, 0, 0, 0, false};
    s->watch->begin(what);
    plim_status st = plim_tape_print(m, s->settings, json, put_sink, &out, &err);
    if (st == PLIM_EIO && out.full)
        s->watch->end(what);
    check_output(s, what, st, &err, &out, json ? contract_json_lines : contract_text);
}

enum { SMALL = 1000 }; /* ops that a step runs, if many variants of it are to be tried */

/* How many batches a step runs through the graph.  Settings as used have it: a file of arguments
 * may say it. */
static uint64_t count_passes(session *s, const plim_model *m)
{
    plim_settings *quick = NULL;
    plim_estimate *e = NULL;
    const char *parts = NULL;
    if (plim_settings_copy(s->settings, &quick, NULL) ||
        plim_settings_set(quick, "advice", "none", NULL))
        abort();
    s->watch->begin("estimate without advice");
    if (!plim_estimate_run(m, quick, &e, NULL))
        parts = plim_settings_get(e->settings, "microbatches");
    s->watch->end("estimate without advice");
    const uint64_t n = parts ? strtoull(parts, NULL, 10) : 1;
    plim_estimate_free(e);
    plim_settings_free(quick);
    return n;
}

/* A step takes a time in proportion to the ops it runs, and what is tried for advice a multiple. */
static void note_size(session *s, const plim_model *m)
{
    plim_info *info = NULL;
    const char *advice = plim_settings_get(s->settings, "advice");
    const bool tries = !advice || strcmp(advice, "none") != 0;
    uint32_t ops = 0;
    s->watch->begin("info");
    if (!plim_info_run(m, s->settings, &info, NULL))
        ops = info->ops;
    s->watch->end("info");
    plim_info_free(info);
    s->watch->large(ops);
    if (tries && (ops > SMALL || ops * count_passes(s, m) > SMALL))
        (void)plim_settings_set(s->settings, "advice", "none", NULL);
}

static void use_model(session *s, const plim_model *m)
{
    const plim_model *model = m;
    if (!plim_model_name(m) || !plim_model_format(m) ||
        contract_utf8(plim_model_name(m), strlen(plim_model_name(m))))
        s->watch->broken("open", "gives a model without a name or format", "");
    s->read = false; /* to be a model is not all */
    RUN_ALL(s, info, model, s->settings);
    if (!s->read)
        return;
    note_size(s, model);
    RUN_ALL(s, estimate, model, s->settings);
    if (torture_once_in(&s->r, 2))
        RUN_ALL(s, layers, model, s->settings);
    if (torture_once_in(&s->r, 2))
        print_tape(s, model, torture_once_in(&s->r, 2));
    if (torture_once_in(&s->r, 6))
        RUN_ALL(s, serve, model, s->settings);
    if (torture_once_in(&s->r, 8))
        RUN_ALL(s, times, model, s->settings);
    if (torture_once_in(&s->r, 16))
        RUN_ALL(s, diff, "a", model, "b", model, s->settings);
    if (torture_once_in(&s->r, 48))
        RUN_ALL(s, batches, model, s->settings);
    if (torture_once_in(&s->r, 48))
        RUN_ALL(s, segments, model, s->settings);
    if (torture_once_in(&s->r, 64)) {
        (void)plim_settings_set(s->settings, "gpu", "t4,a100", NULL);
        RUN_ALL(s, fit, model, s->settings);
        RUN_ALL(s, cards, model, s->settings);
        RUN_ALL(s, serve_fit, model, s->settings);
    }
}

static void read_model(session *s)
{
    const torture_case *c = s->c;
    plim_err err = PLIM_ERR_INIT;
    plim_model *m = NULL;
    plim_status st;
    s->watch->begin("open");
    if (c->path)
        st = plim_model_open(c->folder && torture_once_in(&s->r, 2) ? c->folder : c->path, &m,
                             &err);
    else
        st = plim_model_open_bytes(c->name, c->bytes.n ? (const void *)c->bytes.p : "",
                                   c->bytes.n, &m, &err);
    check_status(s, "open", st, &err);
    if ((st == PLIM_OK) != (m != NULL))
        s->watch->broken("open", "has a result and an error, or neither", err.msg);
    if (m)
        use_model(s, m);
    plim_model_free(m);
}

/* ---- recordings, logs, messages, settings --------------------------------------------------- */

static void read_driver(session *s)
{
    plim_err err = PLIM_ERR_INIT;
    plim_driver_report *r = NULL;
    s->watch->begin("driver");
    bool is = plim_driver_is(s->c->path);
    plim_status st = plim_driver_open(s->c->path, &r, &err);
    check_status(s, "driver", st, &err);
    if ((st == PLIM_OK) != (r != NULL) || (!is && r))
        s->watch->broken("driver", "has a result and an error, or neither", err.msg);
    if (r) {
        s->read = true;
        PRINT_ALL(s, driver, r);
    }
    plim_driver_free(r);
}

/* Against a run that takes next to no time: it is the other side that matters. */
static void read_log(session *s)
{
    plim_settings *infer = NULL;
    if (plim_settings_new(&infer, NULL) || plim_settings_set(infer, "mode", "infer", NULL) ||
        plim_settings_set(infer, "advice", "none", NULL))
        abort();
    RUN_ALL(s, diff, "lenet5", NULL, s->c->path, NULL, infer);
    plim_settings_free(infer);
}

static void read_recording(session *s)
{
    const char *path = s->c->path;
    RUN_ALL(s, replay, path, s->settings);
    if (s->c->bytes.n > 5 && memcmp(s->c->bytes.p, "PLREC", 5) == 0)
        read_driver(s);
    if (torture_once_in(&s->r, 4))
        RUN_ALL(s, diff, path, NULL, path, NULL, s->settings);
    else if (torture_once_in(&s->r, 3))
        read_log(s);
    else if (torture_once_in(&s->r, 20))
        RUN_ALL(s, diff, "mlp", NULL, path, NULL, s->settings);
}

static void read_message(session *s)
{
    plim_err err = PLIM_ERR_INIT;
    plim_oom_message *result = NULL;
    const torture_bytes b = s->c->bytes;
    s->watch->begin("oom");
    plim_status st = plim_oom_read(b.n ? (const char *)b.p : "", b.n, &result, &err);
    check_status(s, "oom", st, &err);
    if ((st == PLIM_OK) != (result != NULL))
        s->watch->broken("oom", "has a result and an error, or neither", err.msg);
    if (result) {
        s->read = true;
        PRINT_ALL(s, oom, result);
    }
    plim_oom_free(result);
}

static void write_settings(session *s, const plim_settings *settings)
{
    plim_err err = PLIM_ERR_INIT;
    sink out = {NULL, 0, 0, 0, false};
    s->watch->begin("settings as JSON");
    plim_status st = plim_settings_json(settings, put_sink, &out, &err);
    check_output(s, "settings as JSON", st, &err, &out, contract_json);
}

static void read_settings(session *s)
{
    plim_err err = PLIM_ERR_INIT;
    const torture_bytes b = s->c->bytes;
    s->watch->begin("settings");
    plim_status st =
        plim_settings_set_json(s->settings, b.n ? (const char *)b.p : "", b.n, &err);
    check_status(s, "settings", st, &err);
    s->read = st == PLIM_OK;
    write_settings(s, s->settings);
    /* what was set is taken, or refused in words; sizes are not those of a test any more */
    (void)plim_settings_set(s->settings, "batch", "2", NULL);
    (void)plim_settings_set(s->settings, "steps", "2", NULL);
    (void)plim_settings_set(s->settings, "accumulate", "1", NULL);
    (void)plim_settings_set(s->settings, "microbatches", NULL, NULL);
    if (torture_once_in(&s->r, 16)) {
        plim_model *m = NULL;
        if (!plim_model_open("mlp", &m, NULL))
            RUN_ALL(s, estimate, m, s->settings);
        plim_model_free(m);
    }
    s->read = st == PLIM_OK;
}

bool torture_read(const torture_case *c, const torture_watch *watch)
{
    session s = {.c = c, .watch = watch, .r = {c->number * 0x9e3779b97f4a7c15u + 1}};
    make_settings(&s);
    switch (c->way) {
    case WAY_MODEL: read_model(&s); break;
    case WAY_REPLAY: read_recording(&s); break;
    case WAY_LOG: read_log(&s); break;
    case WAY_OOM: read_message(&s); break;
    case WAY_SETTINGS: read_settings(&s); break;
    case WAY_COUNT: break;
    }
    plim_settings_free(s.settings);
    return s.read;
}
