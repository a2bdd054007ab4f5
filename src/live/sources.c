/* sources.c -- the sources of devices, in the order in which they are asked.  A device that
 * two of them know is the first one's. */
#include "live/live.h"

#define SOURCES(X)                                                                            \
    X(nvml)                                                                                   \
    X(drm)

#define X(name) extern const plim_live_source plim_source_##name;
SOURCES(X)
#undef X

const plim_live_source *plim_live_source_at(uint32_t i)
{
#define X(name) &plim_source_##name,
    static const plim_live_source *const sources[] = { SOURCES(X) };
#undef X
    return i < PLIM_COUNT(sources) ? sources[i] : NULL;
}
