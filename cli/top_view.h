/* top_view.h -- the terminal of `plimsoll top`: keys go to the view of the library, its cells
 * to the terminal.  Built with ncursesw; without it only plim_top_view_missing is there. */
#ifndef PLIM_TOP_VIEW_H
#define PLIM_TOP_VIEW_H

#include "opt.h"
#include <plimsoll_live.h>

/* Why there is no terminal view in this build, a sentence; NULL: there is one. */
const char *plim_top_view_missing(void);
/* Shows the view until the user quits.  `now_ms`: the present time.  Returns the exit code. */
int plim_top_view(plim_args *a, plim_live_monitor *live, int64_t (*now_ms)(void));

#endif
