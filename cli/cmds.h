/* cmds.h -- the commands of the program.
 *
 * A command is a file cmd_NAME.c that ends with its descriptor, plim_cmd_NAME, and a line
 * in the list in cmds.c. */
#ifndef PLIM_CMDS_H
#define PLIM_CMDS_H

#include "opt.h"

enum { PLIM_EXAMPLES = 2 };

typedef struct plim_cmd {
    const char *name;
    const char *usage; /* its operand, in the notation of plim_opt_parse */
    const char *doc;   /* one line in the imperative, at most 58 columns for the list */
    const char *about; /* sentences that help and the manual add; NULL: none */
    const char *examples[PLIM_EXAMPLES]; /* command lines, with which help begins */
    unsigned options;                    /* PLIM_USE_... */
    int (*run)(plim_args *a);
} plim_cmd;

/* Opens the model that the operand names, calls `with`, and closes the model.  Returns the
 * exit code. */
int plim_cmd_with_model(plim_args *a, int (*with)(plim_args *a, const plim_model *m));

const plim_cmd *plim_cmd_at(size_t i);           /* NULL: past the end */
const plim_cmd *plim_cmd_find(const char *name); /* NULL: unknown, after printing an error */

/* The lists of what plimsoll knows, in the order of help: command, registry, what it does.
 * OWN: the command has a file of its own. */
#define PLIM_CMD_LISTS(LIST, OWN)                                                             \
    LIST(models, MODELS, "list the built-in models")                                          \
    OWN(gpus, GPUS)                                                                           \
    LIST(ops, OPS, "list the operators that have a rule")                                     \
    LIST(optimizers, OPTIMIZERS, "list the optimizers and the state they keep")               \
    LIST(losses, LOSSES, "list the losses of a training step")                                \
    LIST(loops, LOOPS, "list the training loops: what lives how long")                        \
    LIST(adapters, ADAPTERS, "list the methods of peft that can be trained")                  \
    LIST(strategies, STRATEGIES, "list the ways in which cards share a training job")         \
    LIST(quantizations, QUANTIZATIONS, "list the formats of quantized weights")               \
    LIST(engines, ENGINES, "list the inference engines that serve can simulate")              \
    LIST(profiles, PROFILES, "list the PyTorch versions that can be simulated")               \
    LIST(formats, FORMATS, "list the model file formats that can be read")

/* The list that a command prints, such as `gpus`; false: it prints none. */
bool plim_cmd_list(const char *name, plim_registry *out);

/* Prints the help of the program, and of one command. */
void plim_cmd_print_all(plim_console *c);
void plim_cmd_print(plim_console *c, const plim_cmd *cmd);

/* Prints the list of commands for the manual page of the program, and the page of one
 * command, in the language of mdoc(7).  cmake/manual.cmake makes the pages of them. */
void plim_manual_print_all(plim_console *c);
void plim_manual_print(plim_console *c, const plim_cmd *cmd);

#endif
