/* facts.h -- what the runs that a search has made tell of other cards.
 *

 * What a program requests at one size may depend on the architecture of the card and on the number of its
 * SMs, where a rule asked for them, but not on its memory.  So a run tells of other rooms, too: it fails in any that has
 * less than what is live at once, and where the size of the device did not matter, it is the same in any
 * that has what it reserved. */
#ifndef PLIM_FACTS_H
#define PLIM_FACTS_H

#include "alloc/sim.h"
#include "base/idmap.h"
#include "machine/machine.h"

typedef struct plim_fact_bound {
    uint64_t needs;  /* less is too little */
    uint64_t enough; /* enough is as good as any more; 0: not known */
} plim_fact_bound;

typedef struct plim_fact {
    int64_t size;
    plim_world world;
    plim_fact_bound usual, high; /* by the sizes of what is estimated */
    bool refused;                /* the model does not take this size */
    plim_asked asked;
    uint32_t older; /* the one before of the same size, + 1; 0: none */
} plim_fact;

typedef struct plim_facts {
    plim_arena *arena;
    plim_id_map last; /* by size: the newest, + 1 */
    plim_fact *list;
    uint32_t n, cap;
} plim_facts;

/* May be asked of a run at this size in this world; NULL: nothing is known.  Valid until the next
 * fact. */
plim_fact *plim_facts_find(const plim_facts *f, const plim_world *world, int64_t size);
plim_fact *plim_facts_add(plim_facts *f, const plim_fact *fact); /* NULL: out of memory */

#endif
