/* asked.c -- what the rules ask of the card, and so the cards on which a run is the same: see machine.h. */
#include "machine/machine.h"

#include <limits.h>

bool plim_world_since(const plim_world *w, int cc)
{
    bool since = w->cc >= cc;
    if (w->asked && since)
        w->asked->since = PLIM_MAX(w->asked->since, cc);
    else if (w->asked)
        w->asked->before = PLIM_MIN(w->asked->before, cc);
    plim_assert(!w->asked || (w->asked->since <= w->cc && w->cc < w->asked->before));
    return since;
}

bool plim_world_is(const plim_world *w, int cc)
{
    return plim_world_since(w, cc) && !plim_world_since(w, cc + 1);
}

plim_asked plim_asked_nothing(void) { return (plim_asked){.before = INT_MAX}; }

plim_asked plim_asked_all(const plim_world *w)
{
    return (plim_asked){.since = w->cc, .before = w->cc + 1, .sms = true};
}

bool plim_asked_alike(const plim_asked *asked, const plim_world *in, const plim_world *other)
{
    bool as_many = in->sms == other->sms && in->threads_per_sm == other->threads_per_sm &&
                   in->sms_are == other->sms_are;
    return other->cc >= asked->since && other->cc < asked->before &&
           in->cublas_ws == other->cublas_ws && (as_many || !asked->sms);
}

void plim_asked_add(plim_asked *to, const plim_asked *more)
{
    to->since = PLIM_MAX(to->since, more->since);
    to->before = PLIM_MIN(to->before, more->before);
    to->sms |= more->sms;
}
