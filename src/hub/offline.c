/* offline.c -- plim_hub_fetch where there are no sockets, or no loading of libraries: on Windows and in
 * the browser. */
#include "hub/hub.h"

plim_status plim_hub_fetch(const plim_hub_id *id, const plim_hub_watch *watch, plim_err *err)
{
    (void)watch;
    return plim_hub_missing(id, "this build of plimsoll has no network", err);
}
