/* opt.c -- see opt.h */
#include "opt.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { NAME_SIZE = 32, OPTIONS_MAX = 192 };

typedef struct plim_opt plim_opt;
struct plim_opt {
    const char *name; /* NULL: doc is a heading for the options that follow */
    const char
        *arg;      /* placeholder of the value; NULL: it takes none; "[=x]": after '=' only */
    unsigned uses; /* a command takes it if it has one of these */
    int (*take)(const plim_opt *o, plim_args *a, const char *value);
    size_t at;     /* offset of its field in plim_args */
    int64_t value; /* the value that a flag sets; the lower bound of a number */
    const char *doc;
    size_t doc_n;          /* length of its part of doc; 0: all of it */
    const char *word;      /* the value that it gives its setting if it takes none itself */
    const char *key;       /* the setting that it is a word of */
    const char *words;     /* the values of a setting, separated by spaces; NULL: any */
    const char *list;      /* the command that lists the values; NULL: none does */
    bool mine;             /* this command takes it */
    char spelt[NAME_SIZE]; /* storage for the name of a setting's option */
};

/* All options, in the order of help. */
typedef struct opt_list {
    plim_opt at[OPTIONS_MAX];
    int n;
} opt_list;

/* ---- one function per kind of value --------------------------------------- */

static void *opt_field(const plim_opt *o, plim_args *a) { return (char *)a + o->at; }

/* A setting, whose value the library checks. */
static int take_setting(const plim_opt *o, plim_args *a, const char *value)
{
    plim_err err = PLIM_ERR_INIT;
    char option[NAME_SIZE + 2];
    snprintf(option, sizeof option, "--%s", o->spelt);
    a->batch_typed |= !strcmp(o->spelt, "batch");
    a->seq_typed |= !strcmp(o->spelt, "seq");
    if (!plim_settings_add(a->settings, o->key ? o->key : option, o->word ? o->word : value,
                           &err))
        return PLIM_EXIT_DONE;
    return plim_console_error(&err);
}

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
        return plim_console_usage("'--%s': the value is empty", o->name);
    *(const char **)opt_field(o, a) = value;
    return PLIM_EXIT_DONE;
}

/* A small number: of columns, rows or steps. */
static int take_int(const plim_opt *o, plim_args *a, const char *value)
{
    enum { MOST = 1000000 };
    char *end = NULL;
    errno = 0;
    long n = strtol(value, &end, 10);
    if (end == value || *end)
        return plim_console_usage("'--%s': expected an integer, got '%s'", o->name, value);
    if (errno || n < o->value || n > MOST)
        return plim_console_usage("'--%s': %s is not in %d..%d", o->name, value, (int)o->value,
                                  MOST);
    *(int *)opt_field(o, a) = (int)n;
    return PLIM_EXIT_DONE;
}

static int take_fraction(const plim_opt *o, plim_args *a, const char *value)
{
    char *end = NULL;
    double x = strtod(value, &end);
    if (end == value || *end || !(x > 0 && x <= 1))
        return plim_console_usage("'--%s': expected a number above 0 and up to 1, got '%s'",
                                  o->name, value);
    *(double *)opt_field(o, a) = x;
    return PLIM_EXIT_DONE;
}

static int take_seconds(const plim_opt *o, plim_args *a, const char *value)
{
    char *end = NULL;
    double x = strtod(value, &end);
    if (end == value || *end || !(x >= 0.1 && x <= 86400))
        return plim_console_usage("'--%s': expected 0.1 to 86400 seconds, got '%s'", o->name,
                                  value);
    *(double *)opt_field(o, a) = x;
    return PLIM_EXIT_DONE;
}

/* A number with a unit of time: 90s, 15m, 12h, 30d. */
static int take_duration(const plim_opt *o, plim_args *a, const char *value)
{
    enum { DAYS_MOST = 36500 };
    static const struct {
        char unit;
        double seconds;
    } units[] = {{'s', 1}, {'m', 60}, {'h', 3600}, {'d', 86400}};
    char *end = NULL;
    double n = strtod(value, &end), by = 0;
    for (size_t i = 0; i < sizeof units / sizeof *units; i++)
        if (end != value && end[0] == units[i].unit && !end[1])
            by = units[i].seconds;
    if (!(n * by > 0 && n * by <= DAYS_MOST * 86400.0))
        return plim_console_usage(
            "'--%s': expected a time such as 90s, 15m, 12h or 30d, got '%s'", o->name, value);
    *(double *)opt_field(o, a) = n * by;
    return PLIM_EXIT_DONE;
}

/* JSON of our own or, with a value, of another program. */
static int take_json_form(const plim_opt *o, plim_args *a, const char *value)
{
    a->render = PLIM_JSON;
    if (value && strcmp(value, "gpustat") != 0)
        return plim_console_usage("'--%s': unknown value '%s' (expected gpustat, or none)",
                                  o->name, value);
    a->json_form = value;
    return PLIM_EXIT_DONE;
}

/* Settings from a file, or from stdin if it is "-"; options that follow override them. */
static int take_settings(const plim_opt *o, plim_args *a, const char *value)
{
    plim_err err = PLIM_ERR_INIT;
    (void)o;
    if (!plim_settings_load(a->settings, strcmp(value, "-") ? value : "/dev/stdin", &err))
        return PLIM_EXIT_DONE;
    return plim_console_error(&err);
}

/* Of all of the process. */
static int take_memory(const plim_opt *o, plim_args *a, const char *value)
{
    uint64_t bytes = 0;
    plim_err err = PLIM_ERR_INIT;
    (void)a;
    if (plim_size_parse(value, &bytes, &err))
        return plim_console_usage("'--%s': %s", o->name, err.msg);
    if (bytes < 1u << 20)
        return plim_console_usage("'--%s': %s is less than 1 MiB", o->name, value);
    plim_limit_memory(bytes);
    return PLIM_EXIT_DONE;
}

/* One of the words of the argument, "0|1|nan". */
static int take_word(const plim_opt *o, plim_args *a, const char *value)
{
    for (const char *word = o->arg; *word;) {
        size_t n = strcspn(word, "|");
        if (strlen(value) == n && !memcmp(value, word, n))
            return take_text(o, a, value);
        word += n + (word[n] == '|');
    }
    return plim_console_usage("'--%s': unknown value '%s' (expected one of %s)", o->name,
                              value, o->arg);
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
    return plim_console_usage("'--%s': unknown value '%s' (expected one of %s)", o->name,
                              value, o->arg);
}

/* ---- the table ------------------------------------------------------------ */

enum {
    TEXT = PLIM_USE_TEXT,
    RUN = PLIM_USE_RUN,
};

#define STYLE(field) offsetof(plim_args, style.field)

#define OPT(name_, arg_, uses_, take_, at_, value_, doc_)                                     \
    {.name = (name_),                                                                         \
     .arg = (arg_),                                                                           \
     .uses = (uses_),                                                                         \
     .take = (take_),                                                                         \
     .at = (at_),                                                                             \
     .value = (value_),                                                                       \
     .doc = doc_},

/* name, argument, uses, kind, field, value of a flag or lower bound of a number, doc */
/* clang-format off */
static const plim_opt opt_table[] = {
{.doc = "Running a script"},
OPT("steps", "N", RUN, take_int, offsetof(plim_args, run_steps), 1,
 "end the script after N optimizer steps (default: run to its end)")
OPT("limit", "SECONDS", RUN, take_int, offsetof(plim_args, limit), 1,
 "end the script after this time")
OPT("scalar", "0|1|nan", RUN, take_word, offsetof(plim_args, scalar), 0,
 "value that the script gets when it reads what is not known, as in loss.item() (default: by op)")
OPT("mask-fraction", "X", RUN, take_fraction, offsetof(plim_args, mask_fraction), 0,
 "fraction of elements that a mask on the card selects (default: 1, the worst case)")
OPT("routing", "balanced|worst", RUN, take_word, offsetof(plim_args, routing), 0,
 "experts that routers choose: each equally often (default), or those of this rank only")
OPT("world", "N", RUN, take_int, offsetof(plim_args, world), 1,
 "run as part of a job of N processes, each with a card of its own")
OPT("rank", "R|all", RUN, take_text, offsetof(plim_args, rank), 0,
 "which of the N processes: a rank from 0, a list as in 0,3,7, or all")
OPT("by", "line|module|op", RUN, take_word, offsetof(plim_args, by), 0,
 "what the report groups by (default: line)")
OPT("lines", "own|all", RUN, take_word, offsetof(plim_args, lines), 0,
 "lines that the report names: your own (default), or all but PyTorch's and Python's")
OPT("report", "FILE", RUN, take_text, offsetof(plim_args, report), 0,
 "write the report to a file, too, as text without colours")
OPT("save", "FILE", RUN, take_text, offsetof(plim_args, save), 0,
 "write the tape, with source lines of the script, for 'plimsoll replay'")

{.doc = "Recording"},
OPT("output", "FILE", PLIM_USE_RECORD, take_text, offsetof(plim_args, output), 0,
 "keep the recording in this file, for 'plimsoll replay'; also -o FILE")

{.doc = "Watching"},
OPT("once", NULL, PLIM_USE_TOP, take_bool, offsetof(plim_args, once), 1,
 "print a table once and end (default where the output is not a terminal)")
OPT("interval", "SECONDS", PLIM_USE_TOP, take_seconds, offsetof(plim_args, interval), 0,
 "time from one reading to the next (default: 1; with --prometheus 15)")
OPT("ticks", "N", PLIM_USE_TOP, take_int, offsetof(plim_args, ticks), 1,
 "readings before a table or JSON is printed (default: 1); growth and CPU use need 2")
OPT("prometheus", "FILE", PLIM_USE_TOP, take_text, offsetof(plim_args, prometheus), 0,
 "write metrics to a file after each reading, or once with --once; it is replaced as a whole")
OPT("log", "FILE", PLIM_USE_TOP, take_text, offsetof(plim_args, log), 0,
 "add each reading to a SQLite database, for --history, until stopped")
OPT("keep", "TIME", PLIM_USE_TOP, take_duration, offsetof(plim_args, keep), 0,
 "with --log: drop readings older than this, as in 30d or 12h (default: none)")
OPT("history", "FILE", PLIM_USE_TOP, take_text, offsetof(plim_args, history), 0,
 "show what the readings in a file of --log say, instead of those of now")
OPT("since", "TIME", PLIM_USE_TOP, take_duration, offsetof(plim_args, since), 0,
 "with --history: only this long before its last reading, as in 90s, 15m, 12h or 30d")
OPT("device", "GPU", PLIM_USE_TOP, take_text, offsetof(plim_args, device), 0,
 "with --history: only this GPU, by its number or UUID")
OPT("pid", "N", PLIM_USE_TOP, take_int, offsetof(plim_args, pid), 1,
 "with --history: only this process")
OPT("user", "NAME", PLIM_USE_TOP, take_text, offsetof(plim_args, user), 0,
 "with --history: only the processes of this user")

{.doc = "Settings"},
OPT("settings", "FILE", PLIM_USE_SETTINGS, take_settings, 0, 0,
 "settings as a JSON object, or the JSON of an earlier answer, whose settings are used again; "
 "options that follow override them")

{.doc = "Models that a Python builds"},
OPT("python", "PATH", PLIM_USE_PYTHON, take_text, offsetof(plim_args, python), 0,
 "Python that builds and exports a model which plimsoll does not know, with transformers, diffusers, timm or torchvision "
 "(default: PLIMSOLL_PYTHON, that of VIRTUAL_ENV, python3), or none")
OPT("component", "PART", PLIM_USE_PYTHON, take_text, offsetof(plim_args, component), 0,
 "part of a pipeline of diffusers that is counted, such as vae or text_encoder (default: the one that removes the noise)")
OPT("trust-remote-code", NULL, PLIM_USE_PYTHON, take_bool, offsetof(plim_args, trust), 1,
 "let that Python run the code that comes with a model (auto_map)")

{.doc = "Output"},
OPT("serve", NULL, PLIM_USE_FIT, take_bool, offsetof(plim_args, serve), 1,
 "instead of a batch, find the largest format of weights, the longest context and the most requests that each card serves")
OPT("for", "MODEL", PLIM_USE_FOR, take_text, offsetof(plim_args, for_model), 0,
 "list the cards on which a run of this model fits, or may, the fastest first")
OPT("explain", "batch|segments|time", PLIM_USE_EXPLAIN, take_word, offsetof(plim_args, explain), 0,
 "instead of the estimate, show: batch (how memory grows with the batch), segments "
 "(the peak for each number of checkpointed segments), time (the ops that take the time of "
 "a step)")
{.take = take_render}, /* one for each rendering */
OPT("json", "[=gpustat]", PLIM_USE_TOP, take_json_form, 0, 0,
 "print JSON, sizes in bytes; with =gpustat what 'gpustat --json' prints")
OPT("si", NULL, TEXT, take_bool, STYLE(si), 1,
 "use GB, MB, KB (1000) instead of GiB, MiB, KiB (1024)")
OPT("top", "N", PLIM_USE_LIVE, take_int, STYLE(top), 1,
 "number of live tensors to show at the peak (default: 10)")
OPT("top", "N", PLIM_USE_DIFF, take_int, STYLE(top), 1,
 "number of modules and tensors to show, those that differ most (default: 10)")
OPT("depth", "N", PLIM_USE_LAYERS | PLIM_USE_DEPTH, take_int, STYLE(depth), 1,
 "deepest level of modules to show (default: all; 2 in 'info')")
OPT("top", "N", PLIM_USE_LAYERS, take_int, STYLE(top), 1,
 "number of rows to show, from the first (default: all)")
OPT("tensors", NULL, PLIM_USE_DEPTH, take_bool, STYLE(tensors), 1,
 "list the tensors instead of the modules")
OPT("top", "N", PLIM_USE_DEPTH, take_int, STYLE(top), 1,
 "number of tensors to list, the largest (default: all, in the order of the file)")
OPT("sort", "COLUMN", PLIM_USE_LAYERS, take_text, STYLE(sort), 0,
 "list the layers that contain no others, by this column, such as params or macs; the greatest "
 "first")
OPT("sort", "throughput|headroom|price|batch", PLIM_USE_CARDS, take_text, STYLE(sort), 0,
 "order of the cards: samples/s; memory that is left; launch price for each sample/s, the lowest first; in 'fit', the largest batch")
OPT("columns", "LIST", PLIM_USE_LAYERS, take_text, STYLE(columns), 0,
 "columns to show, such as type,shape,params,macs")
OPT("types", "LIST", PLIM_USE_LAYERS, take_text, STYLE(types), 0,
 "show only rows of these types, such as Input,Conv2d,Linear, and the sum of their values")
OPT("quiet", NULL, TEXT, take_bool, STYLE(quiet), 1,
 "print only the figures")
OPT("ascii", NULL, TEXT, take_bool, STYLE(ascii), 1,
 "use no box drawing and no block characters (default on a terminal that is not UTF-8)")
OPT("color", "auto|always|never", TEXT, take_color, 0, 0,
 "use colour; auto (default): only on a terminal, unless NO_COLOR is set")
OPT("width", "N", TEXT, take_int, STYLE(width), 40,
 "width of the output in columns (default: that of the terminal, else COLUMNS, else 80)")
OPT("man", NULL, PLIM_USE_MAN, take_bool, offsetof(plim_args, manual), 1,
 "print the manual page, in the language of mdoc; without COMMAND, the list of commands in it")
OPT("memory-limit", "SIZE", PLIM_USE_SETTINGS | PLIM_USE_TOP, take_memory, 0, 0,
 "memory that plimsoll may take for itself (default: 3/4 of the machine's; to read a file, 128 MiB and 64 times its size)")
OPT("offline", NULL, PLIM_USE_HUB, take_bool, offsetof(plim_args, offline), 1,
 "fetch nothing: of models on the Hugging Face hub take only those that this machine has (also HF_HUB_OFFLINE=1)")
OPT("sandbox", "auto|always|never", PLIM_USE_SANDBOX, take_word, offsetof(plim_args, sandbox), 0,
 "give up access to all but the files that are read: as far as the system can (auto, default), always (or refuse) or never")
OPT("help", NULL, PLIM_USE_HELP, take_bool, offsetof(plim_args, help), 1,
 "show this help")
};
/* clang-format on */

/* ---- all options ---------------------------------------------------------- */

/* Is `word` one of `words`, which spaces separate? */
static bool opt_listed(const char *words, const char *word)
{
    size_t n = strlen(word);
    for (const char *at = words; at; at = strchr(at, ' ') ? strchr(at, ' ') + 1 : NULL)
        if (strcspn(at, " ") == n && !memcmp(at, word, n))
            return true;
    return false;
}

static plim_opt *opt_push(opt_list *l, plim_opt o)
{
    if (l->n == OPTIONS_MAX)
        abort(); /* an option would be missing without a word */
    l->at[l->n] = o;
    return &l->at[l->n++];
}

/* Names the option after a setting or a word: zero_grad is --zero-grad. */
static void opt_spell(plim_opt *o, const char *key, size_t n)
{
    if (!o)
        return;
    snprintf(o->spelt, sizeof o->spelt, "%.*s", (int)n, key);
    for (char *c = o->spelt; *c; c++)
        *c = *c == '_' ? '-' : *c;
    o->name = o->spelt;
}

/* Adds the option of a setting, or one for each word if the words are options themselves
 * (--train, --infer). */
static void opt_add_setting(opt_list *l, const plim_setting_info *s, bool mine)
{
    const plim_opt one = {.take = take_setting,
                          .arg = s->arg,
                          .doc = s->doc,
                          .mine = mine,
                          .words = s->words,
                          .list = s->list};
    if (s->kind == PLIM_SETTING_FLAG || s->arg) {
        plim_opt *o = opt_push(l, one);
        opt_spell(o, s->key, strlen(s->key));
        if (o && s->kind == PLIM_SETTING_FLAG)
            o->word = "true";
        return;
    }
    const char *doc = s->doc;
    for (const char *word = s->words; word && *word;) {
        size_t n = strcspn(word, " ");
        plim_opt *o = opt_push(l, one);
        opt_spell(o, word, n);
        if (o) {
            o->word = o->spelt;
            o->key = s->key;
            o->doc = doc;
            o->doc_n = strcspn(doc, "|");
        }
        doc += strcspn(doc, "|");
        doc += *doc == '|';
        word += n + (word[n] == ' ');
    }
}

/* Which commands have a rendering. */
static unsigned rendering_uses(const plim_rendering_info *r)
{
    switch (r->render) {
    case PLIM_TEXT: return 0; /* where no other is chosen */
    case PLIM_JSON: return PLIM_USE_JSON;
    case PLIM_CSV: return PLIM_USE_CSV;
    case PLIM_SVG: return PLIM_USE_SVG;
    default: return r->with_text ? TEXT : 0;
    }
}

static void opt_add_renderings(opt_list *l, unsigned uses)
{
    plim_rendering_info r = PLIM_RENDERING_INFO_INIT;
    for (uint32_t i = 0; plim_rendering_at(i, &r); i++)
        opt_push(l, (plim_opt){.name = r.key,
                               .doc = r.doc,
                               .take = take_render,
                               .value = (int)r.render,
                               .mine = (rendering_uses(&r) & uses) != 0});
}

/* Lists the settings, group by group, then the program's own options. */
static void opt_list_all(opt_list *l, const char *command, unsigned uses)
{
    plim_setting_info s = PLIM_SETTING_INFO_INIT;
    const char *group = "";
    l->n = 0;
    for (uint32_t i = 0; plim_setting_at(i, &s); i++) {
        if (strcmp(group, s.group) != 0)
            opt_push(l, (plim_opt){.doc = s.group});
        group = s.group;
        opt_add_setting(l, &s, opt_listed(s.commands, command));
    }
    for (size_t i = 0; i < sizeof opt_table / sizeof *opt_table; i++) {
        if (!opt_table[i].doc) {
            opt_add_renderings(l, uses);
            continue;
        }
        plim_opt *o = opt_push(l, opt_table[i]);
        if (o)
            o->mine = (o->uses & uses) != 0;
    }
}

/* Options of different commands may share a name: prefers the one that this command
 * takes. */
static const plim_opt *opt_find(const opt_list *l, const char *name, size_t n)
{
    const plim_opt *other = NULL;
    for (int i = 0; i < l->n; i++) {
        const plim_opt *o = &l->at[i];
        if (!o->name || strncmp(o->name, name, n) != 0 || o->name[n])
            continue;
        if (o->mine)
            return o;
        other = o;
    }
    return other;
}

/* ---- unknown options ------------------------------------------------------ */

int plim_opt_near(const char *typed, const char *name)
{
    /* a name so short must differ in one letter only */
    enum { WORD_MAX = 32, SHORT_NAME = 4 };
    size_t n = strlen(typed), m = strlen(name);
    if (n >= WORD_MAX || m >= WORD_MAX)
        return 0;
    int row[WORD_MAX]; /* row[j]: edits from the letters of typed so far to j of name */
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
    return row[m] <= (m <= SHORT_NAME ? 1 : 2) ? row[m] : 0;
}

/* Options of other programs and of training scripts, and what they are called here. */
typedef struct opt_hint {
    const char *typed;   /* names separated by spaces, with '-' for '_' */
    const char *command; /* only for this one; NULL: for all */
    const char *option;  /* which the command must take; NULL: none */
    const char *says;
} opt_hint;

static const opt_hint opt_hints[] = {
    {"batch-size batchsize bs b micro-batch-size train-batch-size per-device-train-batch-size",
     NULL, "batch", "use '--batch N'"},
    {"amp mixed-precision autocast-dtype", NULL, "autocast",
     "use '--autocast fp16' or '--autocast bf16'"},
    {"fp16 half float16 bf16 bfloat16 precision torch-dtype type", "serve", "dtype",
     "use '--dtype TYPE'"},
    {"fp16 half float16", NULL, "dtype",
     "use '--dtype fp16' for parameters of that type, '--autocast fp16' for mixed precision"},
    {"bf16 bfloat16", NULL, "dtype",
     "use '--dtype bf16' for parameters of that type, '--autocast bf16' for mixed precision"},
    {"fp32 float32 float", NULL, "dtype", "use '--dtype fp32'"},
    {"precision torch-dtype type", NULL, "dtype",
     "use '--dtype TYPE' for the parameters, '--autocast TYPE' for mixed precision"},
    {"int8 int4 4bit 8bit load-in-4bit load-in-8bit quantize quantization qlora nf4 fp4", NULL,
     "quant", "use '--quant nf4' or '--quant int8'"},
    {"momentum nesterov", NULL, "optimizer", "use '--optimizer sgd,momentum=0.9'"},
    {"weight-decay wd", NULL, "optimizer",
     "it belongs to the optimizer, as in '--optimizer sgd,weight_decay=0.01'"},
    {"optim opt adam adamw sgd", NULL, "optimizer", "use '--optimizer NAME'"},
    {"lr learning-rate beta1 beta2 betas eps epochs num-epochs num-train-epochs workers "
     "num-workers seed",
     NULL, "settings", "memory on the card does not depend on it"},
    {"gpu-memory gpu-mem gpu-ram memory mem ram", NULL, "vram", "use '--vram 24GiB'"},
    {"max-memory", NULL, "budget", "use '--budget 10GiB'"},
    {"card device gpu-name gpu-type", NULL, "gpu", "use '--gpu CARD'"},
    {"gpus num-gpus n-gpus ngpus", "run", "gpu", "use '--gpu 2xCARD' for two cards"},
    {"world-size nproc-per-node", "run", "world", "use '--world N'"},
    {"gpus num-gpus n-gpus ngpus world-size nproc-per-node data-parallel ddp", NULL, "dp",
     "use '--dp N' for N cards that train on a batch each"},
    {"fsdp fsdp2 fully-shard", NULL, "dp", "use '--dp N --strategy fsdp2'"},
    {"fsdp1", NULL, "dp", "use '--dp N --strategy fsdp1'"},
    {"zero1", NULL, "dp",
     "use '--dp N --strategy zero1' for PyTorch's, ds_zero1 for DeepSpeed's"},
    {"zero2", NULL, "dp", "use '--dp N --strategy ds_zero2'"},
    {"zero3", NULL, "dp", "use '--dp N --strategy ds_zero3'"},
    {"deepspeed zero zero-stage zero-optimization", NULL, "dp",
     "use '--dp N --strategy ds_zero3', or ds_zero1 or ds_zero2 for another stage"},
    {"tensor-parallel tensor-parallel-size tensor-model-parallel-size tp-size", NULL, "tp",
     "use '--tp N'"},
    {"pipeline-parallel pipeline-parallel-size pipeline-model-parallel-size pp-size", NULL,
     "pp", "use '--pp N'"},
    {"context-parallel context-parallel-size cp-size", NULL, "cp", "use '--cp N'"},
    {"expert-parallel expert-parallel-size expert-model-parallel-size ep-size", NULL, "ep",
     "use '--dp N --strategy fsdp2 --ep M'"},
    {"freeze-layers frozen", NULL, "freeze", "use '--freeze PATTERN'"},
    {"lora-r lora-rank", NULL, "lora", "use '--lora r=16'"},
    {"seq-len seq-length seqlen sequence-length max-seq-len max-seq-length max-length context "
     "context-length ctx",
     NULL, "seq", "use '--seq N'"},
    {"model m name", NULL, "input", "write the model as an argument, without an option"},
    {"accum grad-accum gradient-accumulation gradient-accumulation-steps accumulation-steps",
     NULL, "accumulate", "use '--accumulate N'"},
    {"gradient-checkpointing activation-checkpointing checkpointing grad-checkpointing", NULL,
     "checkpoint", "use '--checkpoint blocks'"},
    {"clip-grad grad-clip clip-grad-norm max-grad-norm gradient-clipping", NULL, "clip",
     "use '--clip'"},
    {"inference eval no-grad forward", NULL, "infer", "use '--infer'"},
    {"training backward", NULL, "train", "use '--train'"},
    {"shape input-shape input-size image-size img-size resolution", NULL, "input",
     "use '--input SHAPE', such as 32,3,224,224"},
    {"pytorch torch-version pytorch-version", NULL, "torch", "use '--torch VERSION'"},
    {"max-split-size-mb expandable-segments", NULL, "alloc-conf",
     "use '--alloc-conf', which takes what PYTORCH_CUDA_ALLOC_CONF does"},
    {"output format", NULL, "json", "use '--json', and '> FILE' for a file"},
    {"compile", NULL, "dtype",
     "torch.compile is not simulated: memory is that of eager PyTorch"},
};

/* Is `typed` one of the words?  '_' counts as '-'. */
static bool opt_is_word(const char *words, const char *typed)
{
    for (; *words; words += strspn(words, " ")) {
        size_t n = strcspn(words, " "), i = 0;
        while (i < n && words[i] == (typed[i] == '_' ? '-' : typed[i]))
            i++;
        if (i == n && !typed[n])
            return true;
        words += n;
    }
    return false;
}

/* NULL: none that helps with this command. */
static const opt_hint *opt_find_hint(const opt_list *l, const char *command, const char *typed)
{
    for (size_t i = 0; i < sizeof opt_hints / sizeof *opt_hints; i++) {
        const opt_hint *h = &opt_hints[i];
        const plim_opt *o = h->option ? opt_find(l, h->option, strlen(h->option)) : NULL;
        if ((!h->command || !strcmp(h->command, command)) && (!h->option || (o && o->mine)) &&
            opt_is_word(h->typed, typed))
            return h;
    }
    return NULL;
}

/* `dashes`: those before the name, as they were typed. */
static int opt_unknown(const opt_list *l, const char *command, const char *dashes,
                       const char *name, size_t n)
{
    const char *near = NULL;
    char typed[64];
    snprintf(typed, sizeof typed, "%.*s", (int)(n < sizeof typed ? n : sizeof typed - 1),
             name);
    const opt_hint *hint = opt_find_hint(l, command, typed);
    if (hint && hint->command)
        return plim_console_usage("'%s' has no option '%s%s': %s", command, dashes, typed,
                                  hint->says);
    if (hint)
        return plim_console_usage("unknown option '%s%s': %s", dashes, typed, hint->says);
    if (!dashes[1])
        return plim_console_usage("unknown option '-%s' (see 'plimsoll help %s')", typed,
                                  command);
    if (opt_find(l, name, n))
        return plim_console_usage("'%s' has no option '--%s' (see 'plimsoll help %s')",
                                  command, typed, command);
    for (int i = 0; i < l->n; i++) {
        const plim_opt *o = &l->at[i];
        int distance = o->name && o->mine ? plim_opt_near(typed, o->name) : 0;
        if (distance && (!near || distance < plim_opt_near(typed, near)))
            near = o->name;
    }
    if (near)
        return plim_console_usage("unknown option '--%s'; did you mean '--%s'?", typed, near);
    return plim_console_usage("unknown option '--%s' (see 'plimsoll help %s')", typed,
                              command);
}

/* ---- reading a command line ----------------------------------------------- */

/* Reads argv[*i], which begins with "--", and advances *i over a value that follows it. */
static int opt_take(plim_args *a, const opt_list *l, const char *command, int argc,
                    char **argv, int *i)
{
    const char *name = argv[*i] + 2;
    size_t n = strcspn(name, "=");
    const char *value = name[n] ? name + n + 1 : NULL;
    const plim_opt *o = opt_find(l, name, n);
    if (!o || !o->mine)
        return opt_unknown(l, command, "--", name, n);
    if (!o->arg && value)
        return plim_console_usage("'--%s' takes no value, not '%s'", o->name, value);
    if (o->arg && *o->arg != '[' && !value) {
        if (*i + 1 >= argc || !strncmp(argv[*i + 1], "--", 2))
            return plim_console_usage("'--%s' needs a value: --%s %s", o->name, o->name,
                                      o->arg);
        value = argv[++*i];
    }
    return o->take(o, a, value);
}

/* The most operands that a command takes; -1: any number. */
static int opt_operands(const char *usage)
{
    int n = 0;
    if (strstr(usage, "..."))
        return -1;
    for (; *usage; n++) {
        usage += strcspn(usage, " ");
        usage += strspn(usage, " ");
    }
    return n;
}

/* Collects the operands at the front of argv, which has been read up to there. */
static int opt_operand(plim_args *a, const char *command, const char *usage, char **argv,
                       char *word)
{
    if (!*usage)
        return plim_console_usage("'%s' takes no argument, not '%s'", command, word);
    if (a->n_operands == opt_operands(usage))
        return a->n_operands == 1
                   ? plim_console_usage("'%s' takes one argument, not '%s' and '%s'", command,
                                        a->operand, word)
                   : plim_console_usage("'%s' takes %d arguments, not also '%s'", command,
                                        a->n_operands, word);
    a->operands = argv;
    a->operands[a->n_operands++] = word;
    a->operand = a->operands[0];
    return PLIM_EXIT_DONE;
}

int plim_opt_parse(plim_args *a, const char *command, const char *usage, unsigned uses,
                   int argc, char **argv)
{
    static opt_list list;
    static char output[] = "--output";
    bool options = true;
    opt_list_all(&list, command, uses | PLIM_USE_HELP);
    for (int i = 0; i < argc; i++) {
        int code = PLIM_EXIT_DONE;
        if (options && uses & PLIM_USE_RECORD && !strcmp(argv[i], "-o"))
            argv[i] = output;
        if (options && !strcmp(argv[i], "--"))
            options = false;
        else if (options && !strcmp(argv[i], "-h"))
            a->help = true;
        else if (options && !strncmp(argv[i], "--", 2))
            code = opt_take(a, &list, command, argc, argv, &i);
        else if (options && argv[i][0] == '-' && argv[i][1])
            code = opt_unknown(&list, command, "-", argv[i] + 1, strcspn(argv[i] + 1, "="));
        else if (uses & PLIM_USE_COMMAND) {
            a->operand = argv[i];
            a->command = argv + i; /* argv ends with NULL */
            break;
        } else
            code = opt_operand(a, command, usage, argv, argv[i]);
        if (code)
            return code;
    }
    if (!a->help && opt_operands(usage) > 1 && a->n_operands < opt_operands(usage))
        return plim_console_usage("'%s' needs %d arguments: %s (see 'plimsoll help %s')",
                                  command, opt_operands(usage), usage, command);
    if (!a->help && !a->operand && *usage && *usage != '[')
        return plim_console_usage("'%s' needs a %.*s (see 'plimsoll help %s')", command,
                                  (int)strcspn(usage, ". "), usage, command);
    plim_console_style(&a->style, a->color);
    return PLIM_EXIT_DONE;
}

/* ---- help ----------------------------------------------------------------- */

static void opt_wrap(plim_console *c, const char *text, size_t n, size_t indent, size_t at)
{
    enum { COLUMNS = 80 };
    for (const char *end = text + n; text < end;) {
        size_t word = strcspn(text, " ");
        word = word < (size_t)(end - text) ? word : (size_t)(end - text);
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

void plim_opt_wrap(plim_console *c, const char *text, size_t indent, size_t at)
{
    opt_wrap(c, text, strlen(text), indent, at);
}

/* The values that an option of the program's own names in its argument, "auto|never". */
static const char *opt_words(const plim_opt *o)
{
    return o->take == take_word || o->take == take_color ? o->arg : o->words;
}

bool plim_opt_at(const char *command, unsigned uses, int i, plim_opt_info *out)
{
    static opt_list list;
    const char *heading = NULL;
    opt_list_all(&list, command, uses | PLIM_USE_HELP);
    for (const plim_opt *o = list.at; o < list.at + list.n; o++) {
        if (!o->name)
            heading = o->doc;
        if (!o->name || !o->mine || i--)
            continue;
        *out = (plim_opt_info){.heading = heading,
                               .name = o->name,
                               .arg = o->arg,
                               .doc = o->doc,
                               .doc_n = o->doc_n ? o->doc_n : strlen(o->doc),
                               .words = opt_words(o),
                               .list = o->list};
        return true;
    }
    return false;
}

void plim_opt_help(plim_console *c, const char *command, unsigned uses)
{
    enum { DOC_COLUMN = 26 }; /* where descriptions begin */
    const char *heading = NULL;
    plim_opt_info o;
    for (int i = 0; plim_opt_at(command, uses, i, &o); i++) {
        char left[64];
        if (heading != o.heading) {
            plim_console_puts(c, "\n");
            plim_console_puts(c, o.heading);
            plim_console_puts(c, ":\n");
        }
        heading = o.heading;
        int n = snprintf(left, sizeof left, "  --%s%s%s", o.name,
                         o.arg && *o.arg != '[' ? " " : "", o.arg ? o.arg : "");
        plim_console_puts(c, left);
        if (n > DOC_COLUMN - 2) {
            plim_console_puts(c, "\n");
            n = 0;
        }
        opt_wrap(c, o.doc, o.doc_n, DOC_COLUMN, (size_t)n);
    }
}
