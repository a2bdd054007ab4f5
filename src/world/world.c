/* world.c -- see world.h. */
#include "world/world.h"

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

/* ":NUMBER", at *at. */
static bool take_number(const char *text, size_t *at, uint64_t *out)
{
    const char *p = text + *at;
    size_t digits = *p == ':' ? strspn(p + 1, "0123456789") : 0;
    *out = 0;
    for (size_t i = 1; i <= digits; i++)
        *out = plim_sat_add(plim_sat_mul(*out, 10), (uint64_t)(p[i] - '0'));
    *at += digits + 1;
    return digits > 0;
}

/* src: torch 2.13 ATen/cuda/CublasHandlePool.cpp parseChosenWorkspaceSize */
plim_status plim_world_cublas(const char *config, plim_libraries *lib, plim_err *err)
{
    enum { KIB = 1024 };
    uint64_t total = 0, each, count;
    size_t at = 0;
    bool whole = config[0] != 0;
    while (whole && config[at]) {
        whole = take_number(config, &at, &each) && take_number(config, &at, &count);
        if (whole)
            total = plim_sat_add(total, plim_sat_mul(each, count));
    }
    if (!whole || total > UINT64_MAX / KIB)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'cublas_workspace' is :KIB:COUNT, once or several times, such as "
                         ":4096:8, not '%s'",
                         config);
    lib->cublas_given = true;
    lib->cublas_ws = total * KIB;
    return PLIM_OK;
}

plim_world plim_world_on(const plim_torch *torch, const plim_gpu *gpu, plim_libraries lib)
{
    plim_world w = {.torch = torch->version,
                    .cc = gpu && gpu->cc ? gpu->cc : PLIM_USUAL_CC,
                    .sms = gpu && gpu->sms ? gpu->sms : PLIM_USUAL_SMS,
                    .sms_are = !gpu                  ? PLIM_ESTIMATED
                               : gpu->sms && gpu->cc ? PLIM_EXACT /* NVIDIA's */
                                                     : PLIM_UNKNOWN_BYTES,
                    .lib = lib,
                    .cublas_ws_temporary = torch->blas == PLIM_WS_TEMP,
                    .lt_ws = torch->lt == PLIM_WS_NONE ? 0 : PLIM_LT_WORKSPACE_BYTES,
                    .lt_ws_temporary = torch->lt == PLIM_WS_TEMP};
    w.threads_per_sm = plim_gpu_threads_per_sm(w.cc);
    w.cublas_ws = lib.cublas_given ? lib.cublas_ws : plim_torch_cublas_bytes(torch, w.cc);
    return w;
}
