/* cmds.h -- what a command is, and the one list of them.
 *
 * A command is a file cmd_NAME.c that ends in its descriptor, plim_cmd_NAME, and a line
 * of the list in cmds.c. */
#ifndef PLIM_CMDS_H
#define PLIM_CMDS_H

#include "opt.h"

typedef struct plim_cmd {
    const char *name;
    const char *usage; /* its operand, as plim_opt_parse wants it */
    const char *doc;   /* one line */
    unsigned options;  /* PLIM_USE_... */
    int (*run)(plim_args *a);
} plim_cmd;

/* Opens the command's operand, does it, and closes; the exit code. */
int plim_cmd_with_model(plim_args *a, int (*with)(plim_args *a, const plim_model *m));

const plim_cmd *plim_cmd_at(size_t i);           /* NULL: past the end */
const plim_cmd *plim_cmd_find(const char *name); /* NULL: unknown, and stderr says so */

/* `plimsoll help`, and for one command. */
void plim_cmd_print_all(plim_console *c);
void plim_cmd_print(plim_console *c, const plim_cmd *cmd);

#endif
