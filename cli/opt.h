/* opt.h -- the options of all commands: one table for parsing, for help, and
 * for the manual page's test.
 *
 * --name VALUE and --name=VALUE are the same; options and operands may be
 * mixed; after -- everything is an operand; of an option that is given twice
 * the last one counts (--input adds up).  The operands of `run` are a command:
 * from its first word on nothing is an option of ours. */
#ifndef PLIM_OPT_H
#define PLIM_OPT_H

#include "console.h"

/* What a command uses of the settings and styles; an option names its user. */
enum {
    PLIM_USE_BATCH = 1 << 0,   /* how many samples */
    PLIM_USE_FORWARD = 1 << 1, /* what shapes a forward pass */
    PLIM_USE_STEP = 1 << 2,    /* what else a training step needs */
    PLIM_USE_CARD = 1 << 3,    /* which one */
    PLIM_USE_MEMORY = 1 << 4,  /* a card's size */
    PLIM_USE_POOL = 1 << 5,    /* PyTorch's allocator */
    PLIM_USE_REPLAY = 1 << 6,  /* what only replay has */
    PLIM_USE_EXPLAIN = 1 << 7, /* likewise, estimate */
    PLIM_USE_TEXT = 1 << 8,    /* how text looks */
    PLIM_USE_JSON = 1 << 9,
    PLIM_USE_CSV = 1 << 10,
    PLIM_USE_LIVE = 1 << 11,   /* the table of what is live */
    PLIM_USE_LAYERS = 1 << 12, /* the table of layers */
    PLIM_USE_HELP = 1 << 13,   /* every command */
    PLIM_USE_RUN = 1 << 14,    /* a command of its own follows: run */
    PLIM_USE_SIZES = 1 << 15,  /* what the sizes of inputs are */
    PLIM_USE_DEPTH = 1 << 16,  /* a tree of modules */
};

/* A command line, read. */
typedef struct plim_args {
    plim_settings settings;
    plim_style style;
    plim_replay_options replay;
    plim_render render;
    plim_color color;
    const char *explain;
    const char *scalar, *save; /* run */
    double mask_fraction;
    int limit;
    char **command;      /* NULL-terminated; NULL: none */
    const char *operand; /* NULL: none */
    bool help;
    plim_console console;
    char input[4096]; /* every --input, joined with ';' */
    char dims[1024];  /* every --dim, likewise */
} plim_args;

/* `usage` is the operand as help shows it: "MODEL" must be there, "[FILTER]"
 * may, "" must not.  PLIM_EXIT_DONE, or PLIM_EXIT_USAGE when it has said why. */
int plim_opt_parse(plim_args *a, const char *command, const char *usage, unsigned uses,
                   int argc, char **argv);

/* The options that a command with these uses takes, under their headings. */
void plim_opt_help(plim_console *c, unsigned uses);

/* `text` in lines of at most 80 columns, from column `indent` on; the first
 * line begins at column `at`. */
void plim_opt_wrap(plim_console *c, const char *text, size_t indent, size_t at);

/* Typed by mistake for `name`?  The number of letters to change, add or drop,
 * or 0 if that is too many to ask "did you mean". */
int plim_opt_near(const char *typed, const char *name);

#endif
