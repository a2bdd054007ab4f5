/* world.h -- what kernels know of the card and the PyTorch version that they run on. */
#ifndef PLIM_WORLD_H
#define PLIM_WORLD_H

#include "core/tape.h"
#include "gpu/gpu.h"
#include "op/machine.h"
#include "torch/torch.h"

/* What the setting "workspace" means: whether what libraries and kernels take for
 * themselves is counted, and which of its bounds an estimate stands for. */
typedef struct plim_workspace {
    bool counted;
    plim_bound bound;
} plim_workspace;

/* By the number of its word in settings.def; 0: not given. */
plim_workspace plim_workspace_of(int word);

/* gpu NULL, and what the card does not say: as on an A100. */
plim_world plim_world_on(const plim_torch *torch, const plim_gpu *gpu, bool workspace);

#endif
