/* work.h -- what the kernels of a step compute and move, recorded while the machine runs it:
 * one row for each op, forward and backward, that starts a kernel.
 *
 * The bytes are those of the operands and results, and of temporaries, which are written and
 * read again.  They are read from the tensors on the machine, so casts of autocast, copies of
 * an op and the second forward pass of a checkpoint are in the ledger like anything else. */
#ifndef PLIM_WORK_H
#define PLIM_WORK_H

#include "core/graph.h"

typedef enum plim_work_class {
#define WORK(id, doc) PLIM_WORK_##id,
#include "machine/work.def"
#undef WORK
    PLIM_WORK_CLASSES
} plim_work_class;
const char *plim_work_name(plim_work_class c); /* "conv_1x1" */

typedef struct plim_work {
    uint32_t where;   /* graph node, or PLIM_NONE: the loss or the optimizer */
    uint8_t phase;    /* plim_phase */
    uint8_t klass;    /* plim_work_class */
    uint8_t dtype;    /* of the products; else of no meaning */
    bool known;       /* false: an op without a rule */
    uint32_t kernels; /* how many were started, about */
    uint64_t macs, bytes;
} plim_work;

typedef struct plim_ledger {
    plim_arena *arena;
    const plim_graph *graph; /* names the family of an op */
    uint8_t phase;           /* of the rows added next */
    plim_work *rows;
    uint32_t n, cap;
    const char *untimed; /* what takes time besides the rows, as a reason; NULL: nothing */
} plim_ledger;

#endif
