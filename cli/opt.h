/* opt.h -- the options of all commands.  Some are settings of the library, which says
 * which commands take them (plim_setting_at); the others are a table in opt.c.
 *
 * --name VALUE and --name=VALUE are equivalent; options and operands may be
 * mixed; everything after -- is an operand; if an option is given twice, the
 * last one counts, except for --input and --dim, which accumulate.  The operand
 * of `run` and `record` is a command: everything from its first word on belongs to it. */
#ifndef PLIM_OPT_H
#define PLIM_OPT_H

#include "console.h"

/* Which of the program's own options a command takes. */
enum {
    PLIM_USE_EXPLAIN = 1 << 0, /* estimate */
    PLIM_USE_TEXT = 1 << 1,    /* the style of text output */
    PLIM_USE_JSON = 1 << 2,
    PLIM_USE_CSV = 1 << 3,
    PLIM_USE_LIVE = 1 << 4,     /* the table of live tensors */
    PLIM_USE_LAYERS = 1 << 5,   /* the table of layers */
    PLIM_USE_HELP = 1 << 6,     /* every command */
    PLIM_USE_RUN = 1 << 7,      /* run */
    PLIM_USE_DEPTH = 1 << 8,    /* a tree of modules */
    PLIM_USE_SETTINGS = 1 << 9, /* settings from a file */
    PLIM_USE_SVG = 1 << 10,
    PLIM_USE_CARDS = 1 << 11,   /* a table of cards for a model */
    PLIM_USE_FOR = 1 << 12,     /* gpus */
    PLIM_USE_MAN = 1 << 13,     /* help */
    PLIM_USE_TOP = 1 << 14,     /* top */
    PLIM_USE_COMMAND = 1 << 15, /* the operand is a command with its own options */
    PLIM_USE_RECORD = 1 << 16,  /* record */
    PLIM_USE_DIFF = 1 << 17,    /* tables of what differs */
    PLIM_USE_FIT = 1 << 18,     /* fit */
    PLIM_USE_SANDBOX =
        1 << 19, /* reads files that it is given, and prints; all else is given up */
    PLIM_USE_HUB = 1 << 20,    /* its operands are models, which may be on a hub */
    PLIM_USE_PYTHON = 1 << 21, /* a model may be built by a Python */
};

/* A parsed command line. */
typedef struct plim_args {
    plim_settings *settings;
    plim_style style;
    plim_render render;
    plim_color color;
    const char *explain;
    const char *scalar, *report, *save, *rank, *lines, *by,
        *routing;                       /* of `run`, as are the next two lines */
    const char *for_model;              /* of `gpus` */
    const char *sandbox;                /* "auto", "always", "never"; NULL: auto */
    bool offline;                       /* nothing is fetched from a hub */
    const char *python, *component;     /* of what a Python builds; NULL: not given */
    bool trust;                         /* it may run code that comes with the model */
    const char *output;                 /* of `record` */
    const char *json_form, *prometheus; /* of `top`, as are the next six lines */
    const char *log, *history, *device, *user;
    double keep, since; /* seconds; 0: not given */
    int pid;            /* 0: not given */
    bool once;
    int ticks;       /* 0: not given */
    double interval; /* seconds; 0: not given */
    double mask_fraction;
    int limit, run_steps, world; /* world 0: not given */
    char **command;              /* NULL-terminated; NULL: none */
    const char *operand;         /* the first; NULL: none */
    char **operands;             /* all, if the command takes several */
    int n_operands;
    bool help, manual;
    bool serve;                  /* of `fit` */
    bool batch_typed, seq_typed; /* --batch, --seq, and not in a file of settings */
    plim_console console;
} plim_args;

/* The value of a setting as text; NULL if it was not given. */
static inline const char *plim_args_get(const plim_args *a, const char *key)
{
    return plim_settings_get(a->settings, key);
}

/* Reads the command line after the command's name.  `usage` is the operand as help shows
 * it: "MODEL" is required, "A B" are two, "[FILTER]" is optional, "MODEL..." is one or more, ""
 * is none.
 * Returns PLIM_EXIT_DONE, or PLIM_EXIT_USAGE after printing an error. */
int plim_opt_parse(plim_args *a, const char *command, const char *usage, unsigned uses,
                   int argc, char **argv);

/* An option as help, the manual and the shells show it. */
typedef struct plim_opt_info {
    const char *heading; /* of its group */
    const char *name;
    const char *arg; /* placeholder of the value; NULL: it takes none */
    const char *doc; /* doc_n characters */
    size_t doc_n;
    const char *words; /* its values, separated by ' ' or '|'; NULL: see list */
    const char *list;  /* the command that lists its values; NULL: any value */
} plim_opt_info;

/* Option i of those that a command takes, in the order of help.  Returns false past the end; strings
 * in *out last until the next call. */
bool plim_opt_at(const char *command, unsigned uses, int i, plim_opt_info *out);

/* Prints the options that a command takes, under their headings. */
void plim_opt_help(plim_console *c, const char *command, unsigned uses);

/* Prints `text` in lines of at most 80 columns, each indented to column `indent`; the
 * first line continues one that has already reached column `at`. */
void plim_opt_wrap(plim_console *c, const char *text, size_t indent, size_t at);

/* Is `typed` a misspelling of `name`?  Returns the number of letters to change, insert or
 * delete, or 0 if there are too many for a suggestion. */
int plim_opt_near(const char *typed, const char *name);

#endif
