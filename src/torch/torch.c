/* torch.c -- see torch.h. */
#include "torch/torch.h"

#include <stdlib.h>

static const plim_torch torch_rows[] = {
#define PLIM_TORCH(version, name, zero, each, denom, blas, lt, bw32, doc)                     \
    {version,                                                                                 \
     name,                                                                                    \
     zero,                                                                                    \
     each,                                                                                    \
     denom,                                                                                   \
     PLIM_WS_##blas,                                                                          \
     PLIM_WS_##lt,                                                                            \
     bw32,                                                                                    \
     doc,                                                                                     \
     "c10/cuda, aten/src/ATen/cuda/CublasHandlePool.cpp, torch/optim of that release"},
#define PLIM_TORCH_SINCE(version, name, doc)
#include "torch/torch.def"
#undef PLIM_TORCH_SINCE
#undef PLIM_TORCH
};

uint32_t plim_torch_count(void) { return PLIM_COUNT(torch_rows); }
const plim_torch *plim_torch_at(uint32_t i)
{
    return i < PLIM_COUNT(torch_rows) ? &torch_rows[i] : NULL;
}
const plim_torch *plim_torch_newest(void) { return &torch_rows[PLIM_COUNT(torch_rows) - 1]; }

/* Major and minor of "2.13.1+cu128" as 213; -1 if it does not have that form. */
static int torch_version_of(plim_str s)
{
    int part[2] = {0, 0}, k = 0, digits = 0;
    for (size_t i = 0; i < s.n && k < 2; i++) {
        if (s.p[i] >= '0' && s.p[i] <= '9' && digits < 3) {
            part[k] = part[k] * 10 + (s.p[i] - '0');
            digits++;
        } else if (s.p[i] == '.' && digits) {
            k++;
            digits = 0;
        } else {
            return -1;
        }
    }
    return (k == 0 || part[1] > 99) ? -1 : part[0] * 100 + part[1];
}

plim_status plim_torch_find(plim_str version, const plim_torch **out, plim_err *err)
{
    int v = torch_version_of(version);
    for (size_t i = 0; i < PLIM_COUNT(torch_rows); i++)
        if (torch_rows[i].version == v) {
            *out = &torch_rows[i];
            return PLIM_OK;
        }
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "unknown PyTorch version '" PLIM_STR_FMT
                     "': known are 1.13 and 2.0 to %s",
                     PLIM_STR_ARG(version), plim_torch_newest()->name);
}

/* src: docs/sources/workspaces.md 1: 2 x 4096 KiB + 8 x 16 KiB; Hopper 8 x 4096 KiB; Blackwell
 * like Hopper from 2.12 on */
uint64_t plim_torch_cublas_bytes(const plim_torch *t, int cc)
{
    const uint64_t common = 2 * 4096 * 1024 + 8 * 16 * 1024, hopper = 8ull * 4096 * 1024;
    if (t->blas == PLIM_WS_OUT)
        return 0;
    return cc == 90 || (cc >= 100 && t->blackwell_32mib) ? hopper : common;
}
