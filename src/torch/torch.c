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

/* The row that simulates a version, the nearest if it has none; NULL: too old, or no version. */
static const plim_torch *find_row(int v)
{
    enum { FIRST = 100 }; /* of older ones nothing has been measured */
    const plim_torch *oldest = torch_rows, *newest = plim_torch_newest();
    if (v >= FIRST && v < oldest->version)
        return oldest;
    if (v > newest->version)
        return newest;
    for (const plim_torch *t = oldest; t <= newest; t++)
        if (t->version == v)
            return t;
    return NULL;
}

plim_status plim_torch_find(const char *version, const plim_torch **out, int *asked,
                            plim_err *err)
{
    *asked = version ? torch_version_of(plim_str_of(version)) : plim_torch_newest()->version;
    *out = find_row(*asked);
    return *out ? PLIM_OK
                : plim_fail(err, PLIM_EUSAGE, 0,
                            "unknown PyTorch version '%s': known are 1.8 to 1.13 and 2.0 to "
                            "%s; 1.0 to 1.7 are simulated as 1.8",
                            version, plim_torch_newest()->name);
}

const char *plim_torch_name(plim_arena *a, int version)
{
    return plim_arena_printf(a, "%d.%d", version / 100, version % 100).p;
}

const char *plim_torch_note(plim_arena *a, const char *version)
{
    const plim_torch *row;
    int asked;
    if (plim_torch_find(version, &row, &asked, NULL) ||
        (row->version == asked && asked >= PLIM_TORCH_OPS))
        return "";
    const char *name = plim_torch_name(a, asked), *ops = plim_torch_name(a, PLIM_TORCH_OPS);
    if (!name || !ops)
        return NULL;
    if (asked > row->version)
        return plim_arena_printf(
                   a,
                   "PyTorch %s has no profile: its tensors and its allocator are "
                   "simulated as those of %s.",
                   name, row->name)
            .p;
    if (asked < row->version)
        return plim_arena_printf(
                   a,
                   "PyTorch %s has no profile: its allocator is simulated as that "
                   "of %s, its tensors as those of %s, with the CUDA context and "
                   "the cuDNN workspaces of its own time.",
                   name, row->name, ops)
            .p;
    return plim_arena_printf(a,
                             "PyTorch %s has its own allocator and CUDA context; its tensors "
                             "are simulated as those of %s.",
                             name, ops)
        .p;
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
