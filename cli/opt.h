/* opt.h -- the options of all commands: those that are settings of the library, which
 * say themselves which commands take them (plim_setting_at), and the program's own, a
 * table in opt.c.
 *
 * --name VALUE and --name=VALUE are the same; options and operands may be
 * mixed; after -- everything is an operand; of an option that is given twice
 * the last one counts (--input and --dim add up).  The operands of `run` are a
 * command: from its first word on nothing is an option of ours. */
#ifndef PLIM_OPT_H
#define PLIM_OPT_H

#include "console.h"

/* Which of the program's own options a command takes. */
enum {
    PLIM_USE_EXPLAIN = 1 << 0, /* estimate */
    PLIM_USE_TEXT = 1 << 1,    /* how text looks */
    PLIM_USE_JSON = 1 << 2,
    PLIM_USE_CSV = 1 << 3,
    PLIM_USE_LIVE = 1 << 4,     /* the table of what is live */
    PLIM_USE_LAYERS = 1 << 5,   /* the table of layers */
    PLIM_USE_HELP = 1 << 6,     /* every command */
    PLIM_USE_RUN = 1 << 7,      /* a command of its own follows: run */
    PLIM_USE_DEPTH = 1 << 8,    /* a tree of modules */
    PLIM_USE_SETTINGS = 1 << 9, /* settings from a file */
};

/* A command line, read. */
typedef struct plim_args {
    plim_settings *settings;
    plim_style style;
    plim_render render;
    plim_color color;
    const char *explain;
    const char *scalar, *save; /* run */
    double mask_fraction;
    int limit, run_steps;
    char **command;      /* NULL-terminated; NULL: none */
    const char *operand; /* NULL: none */
    bool help;
    plim_console console;
} plim_args;

/* Of the settings, as text; NULL: not given. */
static inline const char *plim_args_get(const plim_args *a, const char *key)
{
    return plim_settings_get(a->settings, key);
}

/* `usage` is the operand as help shows it: "MODEL" must be there, "[FILTER]"
 * may, "" must not.  PLIM_EXIT_DONE, or PLIM_EXIT_USAGE when it has said why. */
int plim_opt_parse(plim_args *a, const char *command, const char *usage, unsigned uses,
                   int argc, char **argv);

/* PLIM_EXIT_USAGE, said, if --gpu and --vram are both given. */
int plim_args_one_card(const plim_args *a);

/* The options that a command takes, under their headings. */
void plim_opt_help(plim_console *c, const char *command, unsigned uses);

/* `text` in lines of at most 80 columns, from column `indent` on; the first
 * line begins at column `at`. */
void plim_opt_wrap(plim_console *c, const char *text, size_t indent, size_t at);

/* Typed by mistake for `name`?  The number of letters to change, add or drop,
 * or 0 if that is too many to ask "did you mean". */
int plim_opt_near(const char *typed, const char *name);

#endif
