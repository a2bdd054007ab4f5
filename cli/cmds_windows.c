/* cmds_windows.c -- the commands that Windows lacks: they are listed, and say why. */
#include "cmds.h"

#define LACKS(id, operand, what, uses)                                                        \
    static int id##_lacks(plim_args *a)                                                       \
    {                                                                                         \
        (void)a;                                                                              \
        return plim_console_usage("'" #id "' does not run on Windows: use Linux, or WSL");    \
    }                                                                                         \
    const plim_cmd plim_cmd_##id = {.name = #id,                                              \
                                    .usage = operand,                                         \
                                    .doc = "not on Windows: " what,                           \
                                    .options = uses,                                          \
                                    .run = id##_lacks};

LACKS(run, "COMMAND", "run a script on a simulated GPU",
      PLIM_USE_RUN | PLIM_USE_LIVE | PLIM_USE_JSON | PLIM_USE_TEXT)
LACKS(record, "COMMAND", "record the GPU memory that a command asks for",
      PLIM_USE_COMMAND | PLIM_USE_RECORD | PLIM_USE_JSON | PLIM_USE_TEXT)
LACKS(top, "", "show the GPUs of this machine", PLIM_USE_TOP | PLIM_USE_CSV | PLIM_USE_TEXT)
