/* measured.h -- cards on which single kernels were measured, and the CPU beside them: the rows of
 * measured.def.  time.c adds them up. */
#ifndef PLIM_MEASURED_H
#define PLIM_MEASURED_H

#include "gpu/gpu.h"
#include "machine/work.h"

typedef enum plim_kind_numbers {
    PLIM_NUMBERS_FULL,
    PLIM_NUMBERS_TF32,
    PLIM_NUMBERS_HALF,
    PLIM_NUMBERS_ANY
} plim_kind_numbers;

typedef struct plim_kind {
    const char *card;
    plim_work_class klass;
    plim_kind_numbers numbers;
    int form, pass; /* plim_work_form; whether it is of the backward pass.  Below 0: any */
    double compute, side, memory, copies, blocks, block_ns, start_us;
    bool assumed;
} plim_kind;

/* The kind of a row of work; NULL: this card was not measured, or not with such work.  *assumed: it is another card's,
 * or a guess. */
const plim_kind *plim_kind_of(const plim_work *row, const plim_gpu *gpu, bool *assumed);
/* Seconds on the card: of its products, and of all else. */
typedef struct plim_kind_time {
    double computed, moved, started, all;
} plim_kind_time;
plim_kind_time plim_kind_seconds(const plim_kind *k, const plim_work *row,
                                 const plim_gpu *gpu);

/* Seconds of the CPU for a whole step; below 0: this card's was not measured. */
double plim_host_seconds(const plim_ledger *ledger, const plim_gpu *gpu);

#endif
