/* opt.c -- see opt.h */
#include "opt.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct plim_opt plim_opt;
struct plim_opt {
    const char *name; /* NULL: a heading for those below, in doc */
    const char *arg;  /* NULL: takes none */
    unsigned uses;    /* of these, at least one */
    int (*take)(const plim_opt *o, plim_args *a, const char *value);
    size_t at;     /* where in plim_args */
    int64_t value; /* what a flag sets; the least of a number */
    const char *doc;
};

/* ---- one function a kind of value ----------------------------------------- */

static void *opt_field(const plim_opt *o, plim_args *a) { return (char *)a + o->at; }

static int take_bool(const plim_opt *o, plim_args *a, const char *value)
{
    (void)value;
    *(bool *)opt_field(o, a) = o->value != 0;
    return PLIM_EXIT_DONE;
}

static int take_render(const plim_opt *o, plim_args *a, const char *value)
{
    (void)value;
    a->render = (plim_render)o->value;
    return PLIM_EXIT_DONE;
}

static int take_text(const plim_opt *o, plim_args *a, const char *value)
{
    if (!*value)
        return plim_console_usage("'--%s' is empty", o->name);
    *(const char **)opt_field(o, a) = value;
    return PLIM_EXIT_DONE;
}

/* Like take_text, but nothing is also a value. */
static int take_any_text(const plim_opt *o, plim_args *a, const char *value)
{
    *(const char **)opt_field(o, a) = value;
    return PLIM_EXIT_DONE;
}

static int take_int64(const plim_opt *o, plim_args *a, const char *value)
{
    char *end = NULL;
    errno = 0;
    long long n = strtoll(value, &end, 10);
    if (end == value || *end)
        return plim_console_usage("'--%s' is '%s', which is no whole number", o->name, value);
    if (errno || n < o->value)
        return plim_console_usage("'--%s' is %s, the least is %lld, the most %lld", o->name,
                                  value, (long long)o->value, (long long)INT64_MAX);
    *(int64_t *)opt_field(o, a) = n;
    return PLIM_EXIT_DONE;
}

/* Small numbers: columns, rows, steps. */
static int take_int(const plim_opt *o, plim_args *a, const char *value)
{
    enum { MOST = 1000000 };
    char *end = NULL;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (end == value || *end)
        return plim_console_usage("'--%s' is '%s', which is no whole number", o->name, value);
    if (errno || n < o->value || n > MOST)
        return plim_console_usage("'--%s' is %s, the least is %d, the most %d", o->name, value,
                                  (int)o->value, MOST);
    *(int *)opt_field(o, a) = (int)n;
    return PLIM_EXIT_DONE;
}

static int take_size(const plim_opt *o, plim_args *a, const char *value)
{
    plim_err err = PLIM_ERR_INIT;
    uint64_t bytes = 0;
    if (plim_size_parse(value, &bytes, &err))
        return plim_console_usage("'--%s': %s", o->name, err.msg);
    if (!bytes)
        return plim_console_usage("'--%s' is 0 bytes, the least is 1", o->name);
    *(uint64_t *)opt_field(o, a) = bytes;
    return PLIM_EXIT_DONE;
}

static int take_fraction(const plim_opt *o, plim_args *a, const char *value)
{
    char *end = NULL;
    double x = strtod(value, &end);
    if (end == value || *end || !(x > 0 && x <= 1))
        return plim_console_usage("'--%s' is '%s', which is no number above 0 and up to 1",
                                  o->name, value);
    *(double *)opt_field(o, a) = x;
    return PLIM_EXIT_DONE;
}

/* Adds up: the values of an option that may be given several times. */
static int take_more(const plim_opt *o, char *list, size_t size, const char *value)
{
    size_t have = strlen(list), more = strlen(value);
    if (!more)
        return plim_console_usage("'--%s' is empty", o->name);
    if (have + 1 + more >= size)
        return plim_console_usage("'--%s' adds up to %zu characters, the limit is %zu",
                                  o->name, have + 1 + more, size - 1);
    if (have)
        list[have++] = ';';
    memcpy(list + have, value, more + 1);
    return PLIM_EXIT_DONE;
}

static int take_input(const plim_opt *o, plim_args *a, const char *value)
{
    a->settings.input = a->input;
    return take_more(o, a->input, sizeof a->input, value);
}

static int take_dim(const plim_opt *o, plim_args *a, const char *value)
{
    a->settings.dims = a->dims;
    return take_more(o, a->dims, sizeof a->dims, value);
}

static int take_scalar(const plim_opt *o, plim_args *a, const char *value)
{
    static const char *const words[] = {"0", "1", "nan"};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcmp(value, words[i])) {
            a->scalar = words[i];
            return PLIM_EXIT_DONE;
        }
    }
    return plim_console_usage("'--%s' is '%s', which is not one of %s", o->name, value,
                              o->arg);
}

static int take_color(const plim_opt *o, plim_args *a, const char *value)
{
    static const struct {
        const char *name;
        plim_color color;
    } words[] = {
        {"auto", PLIM_COLOR_AUTO}, {"always", PLIM_COLOR_ALWAYS}, {"never", PLIM_COLOR_NEVER}};
    for (size_t i = 0; i < sizeof words / sizeof *words; i++) {
        if (!strcmp(value, words[i].name)) {
            a->color = words[i].color;
            return PLIM_EXIT_DONE;
        }
    }
    return plim_console_usage("'--%s' is '%s', which is not one of %s", o->name, value,
                              o->arg);
}

/* ---- the table ------------------------------------------------------------ */

enum {
    FORWARD = PLIM_USE_FORWARD,
    SIZES = PLIM_USE_FORWARD | PLIM_USE_SIZES,
    STEP = PLIM_USE_STEP,
    CARD = PLIM_USE_CARD,
    POOL = PLIM_USE_POOL,
    REPLAY = PLIM_USE_REPLAY,
    TEXT = PLIM_USE_TEXT,
    RUN = PLIM_USE_RUN,
};

#define SETTING(field) offsetof(plim_args, settings.field)
#define STYLE(field) offsetof(plim_args, style.field)

/* name, argument, users, kind, where, flag's value or number's least, doc */
/* clang-format off */
static const plim_opt opt_table[] = {
{.doc = "What is run"},
{"train", NULL, FORWARD, take_bool, SETTING(infer), 0,
 "a training step (the default)"},
{"infer", NULL, FORWARD, take_bool, SETTING(infer), 1,
 "one forward pass without gradients"},
{"batch", "N", PLIM_USE_BATCH, take_int64, SETTING(batch), 1,
 "samples in a batch; default: the file's own, 1 for built-in models"},
{"seq", "N", SIZES, take_int64, SETTING(seq), 1,
 "sequence length; default: the file's own"},
{"input", "SHAPE|NAME=SHAPE", SIZES, take_input, 0, 0,
 "shape of an input, as 32,3,224,224; once for each input"},
{"dim", "NAME=N", SIZES, take_dim, 0, 0,
 "a size that the file leaves open, by its name ('plimsoll info'); once for each"},
{"dtype", "TYPE", FORWARD, take_text, SETTING(dtype), 0,
 "type of parameters and inputs: fp32 (default), fp16, bf16, fp64"},
{"autocast", "TYPE", FORWARD, take_text, SETTING(autocast), 0,
 "torch.autocast: fp16, bf16; parameters stay as they are"},
{"torch", "VERSION", FORWARD | POOL, take_text, SETTING(torch), 0,
 "the PyTorch that is simulated ('plimsoll profiles'); default: the newest"},

{.doc = "The training step"},
{"optimizer", "NAME[,KEY=VALUE...]", STEP, take_text, SETTING(optimizer), 0,
 "sgd (default), sgd,momentum=0.9, adamw,impl=fused ... ('plimsoll optimizers')"},
{"loss", "NAME", STEP, take_text, SETTING(loss), 0,
 "cross_entropy, mse, bce, sum, model: the model returns its loss first; default: "
 "by the model's output"},
{"checkpoint", "HOW", STEP, take_text, SETTING(checkpoint), 0,
 "activation checkpointing: none (default); blocks; a pattern of module paths, as "
 "'layer*.*'; segments=N; with ',reentrant' as PyTorch's older way"},
{"loop", "HOW", STEP, take_text, SETTING(loop), 0,
 "typical (default): outputs and loss live until the next step rebinds them; "
 "tight: they are deleted at once; trainer: as the Trainer of transformers does it"},
{"keep", "LIST", STEP, take_text, SETTING(keep), 0,
 "what lives until the next step rebinds it: of outputs, loss, inputs, or none; "
 "default: by the loop"},
{"accumulate", "N", STEP, take_int, SETTING(accumulate), 1,
 "forward and backward passes for one optimizer step (1)"},
{"clip", NULL, STEP, take_bool, SETTING(clip), 1,
 "clip_grad_norm_ before the optimizer's step"},
{"zero-grad", "HOW", STEP, take_text, SETTING(zero_grad), 0,
 "what zero_grad leaves of gradients: none, zeros; default: as in that PyTorch"},
{"ema", "NAME[,KEY=VALUE...]", STEP, take_text, SETTING(ema), 0,
 "an average of the model, kept beside it: none (default), averaged (AveragedModel), "
 "lerp, timm_v2, diffusers"},
{"steps", "N", STEP, take_int, SETTING(steps), 1,
 "iterations simulated (2: the first has no optimizer state yet; lbfgs: until its "
 "history is full)"},
{"workspace", "HOW", STEP | RUN, take_text, SETTING(workspace), 0,
 "workspaces of libraries: auto (default), off, or at their bounds: low, high"},

{.doc = "The card"},
{"gpu", "CARD", CARD, take_text, SETTING(gpu), 0,
 "a card by name or alias ('plimsoll gpus'); fit and run take a list, as t4,a100, or all"},
{"vram", "SIZE", PLIM_USE_MEMORY, take_size, SETTING(vram), 0,
 "a card of which only the memory is known, as 24GiB"},
{"alloc-conf", "TEXT", POOL | RUN, take_any_text, SETTING(alloc_conf), 0,
 "settings of the allocator, as in PYTORCH_CUDA_ALLOC_CONF"},

{.doc = "Replay"},
{"allocator", "NAME", REPLAY, take_text, offsetof(plim_args, replay.allocator), 0,
 "which allocator serves the tape: caching (default), none"},
{"fraction", "X", REPLAY, take_fraction, offsetof(plim_args, replay.fraction), 0,
 "as torch.cuda.set_per_process_memory_fraction(X)"},
{"stop-at-oom", NULL, REPLAY, take_bool, offsetof(plim_args, replay.stop_at_oom), 1,
 "end at the first allocation that fails, instead of leaving it out"},

{.doc = "Running a script"},
{"steps", "N", RUN, take_int, SETTING(steps), 1,
 "end the script after N optimizer steps; default: let it run"},
{"limit", "SECONDS", RUN, take_int, offsetof(plim_args, limit), 1,
 "end the script after so long"},
{"scalar", "0|1|nan", RUN, take_scalar, 0, 0,
 "what a value read from the card is, as in loss.item(): 0 (default)"},
{"mask-fraction", "X", RUN, take_fraction, offsetof(plim_args, mask_fraction), 0,
 "how much of what it could a mask on the card selects: 1 (default, the worst case)"},
{"save", "FILE", RUN, take_text, offsetof(plim_args, save), 0,
 "write the tape, with lines, for 'plimsoll replay'"},

{.doc = "Output"},
{"explain", "WHAT", PLIM_USE_EXPLAIN, take_text, offsetof(plim_args, explain), 0,
 "instead of the estimate, why: batch (memory = fixed + batch x per sample), "
 "segments (the peak for each number of checkpoints)"},
{"json", NULL, PLIM_USE_JSON, take_render, 0, PLIM_JSON,
 "JSON, sizes in bytes"},
{"csv", NULL, PLIM_USE_CSV, take_render, 0, PLIM_CSV,
 "comma-separated values, sizes in bytes"},
{"si", NULL, TEXT, take_bool, STYLE(si), 1,
 "GB, MB, KB (1000) instead of GiB, MiB, KiB (1024)"},
{"top", "N", PLIM_USE_LIVE, take_int, STYLE(top), 1,
 "rows of what is live at the peak (10)"},
{"depth", "N", PLIM_USE_LAYERS | PLIM_USE_DEPTH, take_int, STYLE(depth), 1,
 "deepest level of modules shown; default: all"},
{"columns", "LIST", PLIM_USE_LAYERS, take_text, STYLE(columns), 0,
 "columns of the table, as type,shape,params,macs"},
{"types", "LIST", PLIM_USE_LAYERS, take_text, STYLE(types), 0,
 "rows of these types only, as Input,Conv2d,Linear, and their sum"},
{"quiet", NULL, TEXT, take_bool, STYLE(quiet), 1,
 "the figures only"},
{"ascii", NULL, TEXT, take_bool, STYLE(ascii), 1,
 "no box drawing, no blocks; default on a terminal that is not UTF-8"},
{"color", "auto|always|never", TEXT, take_color, 0, 0,
 "colours; auto (default): on a terminal, unless NO_COLOR is set"},
{"width", "N", TEXT, take_int, STYLE(width), 40,
 "columns of the output; default: the terminal's, else COLUMNS, else 80"},
{"help", NULL, PLIM_USE_HELP, take_bool, offsetof(plim_args, help), 1,
 "this list"},
};
/* clang-format on */
enum { OPT_COUNT = sizeof opt_table / sizeof *opt_table };

/* Two rows may share a name if no command uses both. */
static const plim_opt *opt_find(const char *name, size_t n, unsigned uses)
{
    const plim_opt *other = NULL;
    for (int i = 0; i < OPT_COUNT; i++) {
        const plim_opt *o = &opt_table[i];
        if (!o->name || strncmp(o->name, name, n) != 0 || o->name[n])
            continue;
        if (o->uses & uses)
            return o;
        other = o;
    }
    return other;
}

/* ---- mistakes ------------------------------------------------------------- */

int plim_opt_near(const char *typed, const char *name)
{
    enum { LONG = 32 };
    size_t n = strlen(typed), m = strlen(name);
    if (n >= LONG || m >= LONG)
        return 0;
    int row[LONG]; /* row[j]: from the letters of typed so far to j letters of name */
    for (size_t j = 0; j <= m; j++)
        row[j] = (int)j;
    for (size_t i = 1; i <= n; i++) {
        int diagonal = row[0];
        row[0] = (int)i;
        for (size_t j = 1; j <= m; j++) {
            int change = diagonal + (typed[i - 1] != name[j - 1]);
            int add = row[j - 1] + 1, drop = row[j] + 1;
            diagonal = row[j];
            row[j] = add < drop ? add : drop;
            row[j] = change < row[j] ? change : row[j];
        }
    }
    return row[m] <= (m <= 4 ? 1 : 2) ? row[m] : 0;
}

static int opt_unknown(const char *command, unsigned uses, const char *name, size_t n)
{
    const char *near = NULL;
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(n < sizeof typed ? n : sizeof typed - 1),
             name);
    if (opt_find(name, n, uses))
        return plim_console_usage("'%s' has no option '--%s' (see 'plimsoll help %s')",
                                  command, typed, command);
    for (int i = 0; i < OPT_COUNT; i++) {
        const plim_opt *o = &opt_table[i];
        int distance = o->name && o->uses & uses ? plim_opt_near(typed, o->name) : 0;
        if (distance && (!near || distance < plim_opt_near(typed, near)))
            near = o->name;
    }
    if (near)
        return plim_console_usage("unknown option '--%s'; did you mean '--%s'?", typed, near);
    return plim_console_usage("unknown option '--%s' (see 'plimsoll help %s')", typed,
                              command);
}

/* ---- reading a command line ----------------------------------------------- */

/* argv[*i] begins with "--"; moves *i over a value that stands apart. */
static int opt_take(plim_args *a, const char *command, unsigned uses, int argc, char **argv,
                    int *i)
{
    const char *name = argv[*i] + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    const plim_opt *o = opt_find(name, n, uses);
    if (!o || !(o->uses & uses))
        return opt_unknown(command, uses, name, n);
    if (!o->arg && value)
        return plim_console_usage("'--%s' takes no value, not '%s'", o->name, value);
    if (o->arg && !value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return plim_console_usage("'--%s' needs a value: --%s %s", o->name, o->name,
                                      o->arg);
        value = argv[++*i];
    }
    return o->take(o, a, value);
}

static int opt_operand(plim_args *a, const char *command, const char *usage, const char *word)
{
    if (!*usage)
        return plim_console_usage("'%s' takes no argument, not '%s'", command, word);
    if (a->operand)
        return plim_console_usage("'%s' takes one argument, not '%s' and '%s'", command,
                                  a->operand, word);
    a->operand = word;
    return PLIM_EXIT_DONE;
}

int plim_opt_parse(plim_args *a, const char *command, const char *usage, unsigned uses,
                   int argc, char **argv)
{
    bool options = true;
    uses |= PLIM_USE_HELP;
    for (int i = 0; i < argc; i++) {
        int code = PLIM_EXIT_DONE;
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else if (options && !strcmp(argv[i], "-h"))
            a->help = true;
        else if (options && !strncmp(argv[i], "--", 2))
            code = opt_take(a, command, uses, argc, argv, &i);
        else if (options && argv[i][0] == '-' && argv[i][1])
            code = plim_console_usage("unknown option '%s' (see 'plimsoll help %s')", argv[i],
                                      command);
        else if (uses & PLIM_USE_RUN) {
            a->operand = argv[i];
            a->command = argv + i; /* to the end: argv ends in NULL */
            break;
        } else
            code = opt_operand(a, command, usage, argv[i]);
        if (code)
            return code;
    }
    if (!a->help && !a->operand && *usage && *usage != '[')
        return plim_console_usage("'%s' needs a %s (see 'plimsoll help %s')", command, usage,
                                  command);
    plim_console_style(&a->style, a->color);
    return PLIM_EXIT_DONE;
}

/* ---- help ----------------------------------------------------------------- */

void plim_opt_wrap(plim_console *c, const char *text, size_t indent, size_t at)
{
    enum { COLUMNS = 80 };
    while (*text) {
        size_t word = strcspn(text, " ");
        if (at > indent && at + 1 + word > COLUMNS) {
            plim_console_puts(c, "\n");
            at = 0;
        } else if (at > indent) {
            plim_console_puts(c, " ");
            at++;
        }
        for (; at < indent; at++)
            plim_console_puts(c, " ");
        plim_console_put(c, text, word);
        at += word;
        text += word;
        text += strspn(text, " ");
    }
    plim_console_puts(c, "\n");
}

void plim_opt_help(plim_console *c, unsigned uses)
{
    enum { DOC = 26 }; /* the column where docs begin */
    const plim_opt *heading = NULL;
    uses |= PLIM_USE_HELP;
    for (int i = 0; i < OPT_COUNT; i++) {
        const plim_opt *o = &opt_table[i];
        char left[64];
        if (!o->name)
            heading = o;
        if (!o->name || !(o->uses & uses))
            continue;
        if (heading) {
            plim_console_puts(c, "\n");
            plim_console_puts(c, heading->doc);
            plim_console_puts(c, ":\n");
            heading = NULL;
        }
        int n = snprintf(left, sizeof left, "  --%s%s%s", o->name, o->arg ? " " : "",
                         o->arg ? o->arg : "");
        plim_console_puts(c, left);
        if (n > DOC - 2) {
            plim_console_puts(c, "\n");
            n = 0;
        }
        plim_opt_wrap(c, o->doc, DOC, (size_t)n);
    }
}
