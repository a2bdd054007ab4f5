/* torch.h -- PyTorch versions as data: see torch.def. */
#ifndef PLIM_TORCH_H
#define PLIM_TORCH_H

#include "base/base.h"

typedef enum plim_ws_life {
    PLIM_WS_OUT,
    PLIM_WS_KEPT,
    PLIM_WS_TEMP,
    PLIM_WS_NONE
} plim_ws_life;

typedef struct plim_torch {
    int version;      /* 100 * major + minor */
    const char *name; /* "2.13" */
    bool zero_grad_to_none, foreach_default;
    int adam_lists;
    plim_ws_life blas, lt;
    bool blackwell_32mib;
    const char *doc, *src;
} plim_torch;

/* The version since which something holds: rules test torch >= PLIM_SINCE_... */
enum plim_since {
#define PLIM_TORCH(version, name, zero, each, denom, blas, lt, bw32, doc)
#define PLIM_TORCH_SINCE(version, name, doc) PLIM_SINCE_##name = version,
#include "torch/torch.def"
#undef PLIM_TORCH_SINCE
#undef PLIM_TORCH
};

/* The oldest version of which it is known what ops and autograd do. */
enum { PLIM_TORCH_OPS = 113 };

uint32_t plim_torch_count(void);
const plim_torch *plim_torch_at(uint32_t i);
const plim_torch *plim_torch_newest(void);
/* "2.13", "2.13.0", "2.13.1+cu128": the row of that release, or else, from 1.0 on, the nearest;
 * NULL: the newest.  `asked`: the version itself, as in plim_torch.version, for the tables that
 * go further back.  PLIM_EUSAGE lists the known ones. */
plim_status plim_torch_find(const char *version, const plim_torch **out, int *asked,
                            plim_err *err);
/* That this version is simulated as another, in part or wholly, in a sentence in `a`; "": it is not.  NULL: out of
 * memory. */
const char *plim_torch_note(plim_arena *a, const char *version);
/* "2.13" for 213, in `a`. */
const char *plim_torch_name(plim_arena *a, int version);

/* Bytes of one cuBLAS workspace on a card of this capability (cc * 10). */
uint64_t plim_torch_cublas_bytes(const plim_torch *t, int cc);
#define PLIM_LT_WORKSPACE_BYTES 1048576u /* src: CUBLASLT_WORKSPACE_SIZE default, 1024 KiB */

#endif
