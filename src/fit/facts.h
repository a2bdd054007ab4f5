/* facts.h -- what the runs of a search say about other cards.
 *
 * What a program requests at one size may depend on the architecture of the card and on the number of its
 * SMs, where a rule asked for them, but not on its memory.  So a run tells of other rooms, too: it fails in
 * any that has less than what is live at once, and its simulation is the same in any in which the allocator
 * would be given and refused the same (plim_sim.alike). */
#ifndef PLIM_FACTS_H
#define PLIM_FACTS_H

#include "alloc/sim.h"
#include "base/idmap.h"
#include "machine/machine.h"

/* At this size, and in any of these rooms, the run fits, or it does not. */
typedef struct plim_fact {
    int64_t size;
    unsigned what; /* the size of what is estimated: 0 or PLIM_SIM_HIGH */
    plim_rooms rooms;
    bool fits;
    bool refused; /* the model does not take this size */
    plim_world world;
    plim_asked asked; /* it holds on cards that answer alike */
    uint32_t older;   /* the one before of the same size, + 1; 0: none */
} plim_fact;

typedef struct plim_facts {
    plim_arena *arena;
    plim_id_map last; /* by size: the newest, + 1 */
    plim_fact *list;
    uint32_t n, cap;
} plim_facts;

/* NULL: nothing is known.  Valid until the next fact. */
const plim_fact *plim_facts_find(const plim_facts *f, const plim_world *world, int64_t size,
                                 unsigned what, uint64_t room);
/* The one that says what is live at once, of runs that were made up to there; NULL: there was none. */
const plim_fact *plim_facts_live(const plim_facts *f, const plim_world *world, int64_t size,
                                 unsigned what);
bool plim_facts_add(plim_facts *f, const plim_fact *fact); /* false: out of memory */

#endif
