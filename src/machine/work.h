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
/* Is it a convolution on tensor cores, where the card has them?  Depthwise ones are not. */
bool plim_work_is_conv(plim_work_class c);

/* How the operands lie in memory. */
typedef enum plim_work_form {
    PLIM_FORM_PLAIN,
    PLIM_FORM_LAST, /* convolutions and norms of channels: channels_last */
    PLIM_FORM_ODD   /* matrices: not all rows begin at a multiple of 4 bytes */
} plim_work_form;

typedef struct plim_work {
    uint32_t where;   /* graph node, or PLIM_NONE: the loss or the optimizer */
    uint8_t phase;    /* plim_phase */
    uint8_t klass;    /* plim_work_class */
    uint8_t dtype;    /* of the products, else of the largest result */
    bool known;       /* false: an op without a rule */
    bool gradient;    /* a node of the backward pass; a forward pass may run again within it */
    bool full;        /* products in fp32: TF32 is off */
    uint8_t form;     /* plim_work_form */
    uint32_t kernels; /* how many were started, about */
    uint64_t blocks; /* of which each works through a part by itself; 0: enough for any card */
    uint64_t side;   /* the shortest of its matrices; 0: there are none */
    uint64_t macs, bytes;
    uint64_t bias; /* bytes that a pass of its own moves to add a bias or its gradient */
} plim_work;

typedef struct plim_ledger {
    plim_arena *arena;
    const plim_graph *graph; /* names the family of an op */
    uint8_t phase;           /* of the rows added next */
    plim_work *rows;
    uint32_t n, cap;
    uint32_t calls,
        nodes; /* ops, and nodes of the backward pass, that ran: views are among them */
    const char *untimed; /* what takes time besides the rows, as a reason; NULL: nothing */
} plim_ledger;

#endif
