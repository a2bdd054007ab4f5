/* fsdp2.h -- the groups of parameters of FSDP2, one for each unit, as all that PyTorch builds on
 * them has them: how a rank's part is gathered before a unit runs, and its gradients are reduced
 * after it.  Who wraps a model says how the parameters of each unit are divided. */
#ifndef PLIM_SHARE_FSDP2_H
#define PLIM_SHARE_FSDP2_H

#include "share/strategy.h"

/* How the parameters of a unit are divided.  Ranks that have the same part add up its gradients. */
typedef struct plim_fsdp2_mesh {
    int64_t parts, part; /* of each parameter, by rows; this rank's */
    bool experts;        /* that are shared out: each part is of other ones */
    bool divides;        /* gradients by a factor that was set: set_gradient_divide_factor */
    bool reshards;       /* after forward, not only after backward */
} plim_fsdp2_mesh;

/* The rows of a part: the first has the most, the last may have none. */
int64_t plim_fsdp2_rows(int64_t rows, int64_t parts, int64_t part);

/* setup.wrap: PyTorch's `call` of each repeated block, and of the model.  The strategy has the
 * options param, reduce and no_sync. */
void plim_fsdp2_wrap(plim_shared *x, const char *call,
                     plim_fsdp2_mesh (*mesh)(const plim_shared *x, uint32_t unit));

/* forward.begin, .end, .again */
void plim_fsdp2_forward(plim_shared *x, uint32_t unit);
void plim_fsdp2_forward_end(plim_shared *x, uint32_t unit);
bool plim_fsdp2_again(const plim_shared *x, uint32_t unit);
/* backward.begin, .end, .finish, .reduce */
void plim_fsdp2_backward(plim_shared *x, uint32_t unit);
void plim_fsdp2_backward_end(plim_shared *x, uint32_t unit);
void plim_fsdp2_finish(plim_shared *x);
void plim_fsdp2_reduce(plim_shared *x);

/* All of them, in a strategy's initializer. */
#define PLIM_FSDP2_HOOKS                                                                      \
    .forward = {.begin = plim_fsdp2_forward,                                                  \
                .end = plim_fsdp2_forward_end,                                                \
                .again = plim_fsdp2_again},                                                   \
    .backward = {.begin = plim_fsdp2_backward,                                                \
                 .end = plim_fsdp2_backward_end,                                              \
                 .finish = plim_fsdp2_finish,                                                 \
                 .reduce = plim_fsdp2_reduce}

#endif
