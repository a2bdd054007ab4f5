/* world.c -- see world.h. */
#include "step/world.h"

plim_workspace plim_workspace_of(int word)
{
    static const plim_workspace rows[] = {
        {true, PLIM_BOUND_USUAL},  /* not given */
        {true, PLIM_BOUND_USUAL},  /* auto */
        {false, PLIM_BOUND_USUAL}, /* off */
        {true, PLIM_BOUND_LOW},    /* low */
        {true, PLIM_BOUND_HIGH},   /* high */
    };
    return rows[word];
}

plim_world plim_world_on(const plim_torch *torch, const plim_gpu *gpu, plim_libraries lib)
{
    plim_world w = {.torch = torch->version,
                    .cc = gpu && gpu->cc ? gpu->cc : PLIM_USUAL_CC,
                    .sms = gpu && gpu->sms ? gpu->sms : PLIM_USUAL_SMS,
                    .lib = lib,
                    .cublas_ws_temporary = torch->blas == PLIM_WS_TEMP,
                    .lt_ws = torch->lt == PLIM_WS_NONE ? 0 : PLIM_LT_WORKSPACE_BYTES,
                    .lt_ws_temporary = torch->lt == PLIM_WS_TEMP};
    w.threads_per_sm = plim_gpu_threads_per_sm(w.cc);
    w.cublas_ws = plim_torch_cublas_bytes(torch, w.cc);
    return w;
}
