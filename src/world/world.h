/* world.h -- what kernels know about the card and the PyTorch version they run on. */
#ifndef PLIM_WORLD_H
#define PLIM_WORLD_H

#include "core/tape.h"
#include "gpu/gpu.h"
#include "machine/machine.h"
#include "torch/torch.h"

/* The setting "workspace": whether memory that libraries and kernels take for themselves is
 * counted, and which bound is used where its size is only estimated. */
typedef struct plim_workspace {
    bool counted;
    plim_bound bound;
} plim_workspace;

/* By the index of its word in settings.def; 0: not given. */
plim_workspace plim_workspace_of(int word);

/* Reads CUBLAS_WORKSPACE_CONFIG: ":4096:2:16:8", in KiB.  PLIM_EUSAGE: it is not of that form. */
plim_status plim_world_cublas(const char *config, plim_libraries *lib, plim_err *err);

/* gpu NULL, or a value that the card does not give: as on an A100. */
plim_world plim_world_on(const plim_torch *torch, const plim_gpu *gpu, plim_libraries lib);

#endif
