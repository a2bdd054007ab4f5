/* words.c -- values as words, in all renderings. */
#include "report/report.h"

const char *plim_report_fits(plim_fits fits)
{
    switch (fits) {
    case PLIM_FITS_YES: return "yes";
    case PLIM_FITS_NO: return "no";
    case PLIM_FITS_MAYBE: return "maybe";
    case PLIM_FITS_INCOMPLETE: return "incomplete";
    case PLIM_FITS_NO_CARD: break;
    }
    return NULL;
}

const char *plim_run_fits(plim_vgpu_fits fits)
{
    switch (fits) {
    case PLIM_VGPU_FITS_YES: return "yes";
    case PLIM_VGPU_FITS_NO: return "no";
    case PLIM_VGPU_FITS_MAYBE: return "maybe";
    case PLIM_VGPU_FITS_UNKNOWN: break;
    }
    return NULL;
}

const char *plim_run_end(plim_vgpu_end end)
{
    static const char *const words[PLIM_VGPU_END_COUNT] = {"done", "early", "memory", "error"};
    return (unsigned)end < PLIM_VGPU_END_COUNT ? words[end] : "?";
}

const char *plim_run_by(plim_vgpu_by by)
{
    static const char *const words[PLIM_VGPU_BY_COUNT] = {"line", "module", "op"};
    return (unsigned)by < PLIM_VGPU_BY_COUNT ? words[by] : "?";
}

/* Leaves out the words that the names of most cards begin with. */
const char *plim_report_card(const char *gpu)
{
    static const char *const words[] = {"NVIDIA ", "GeForce "};
    for (size_t i = 0; i < PLIM_COUNT(words); i++)
        if (gpu && strncmp(gpu, words[i], strlen(words[i])) == 0)
            gpu += strlen(words[i]);
    return gpu;
}

static const char *const sources[PLIM_OOM_SOURCE_COUNT] = {
    [PLIM_OOM_BY_TORCH] = "torch",   [PLIM_OOM_BY_ASYNC] = "torch_async",
    [PLIM_OOM_BY_MPS] = "torch_mps", [PLIM_OOM_BY_CUDA] = "cuda",
    [PLIM_OOM_BY_CUBLAS] = "cublas", [PLIM_OOM_BY_CUDNN] = "cudnn",
    [PLIM_OOM_BY_JAX] = "jax",       [PLIM_OOM_BY_TENSORFLOW] = "tensorflow",
    [PLIM_OOM_BY_HOST] = "host",     [PLIM_OOM_BY_LLAMA_CPP] = "llama.cpp",
    [PLIM_OOM_BY_VLLM] = "vllm",     [PLIM_OOM_BY_CUPY] = "cupy",
};

const char *plim_oom_source_name(plim_oom_source s)
{
    return (unsigned)s < PLIM_OOM_SOURCE_COUNT ? sources[s] : "?";
}

const char *plim_report_gain(plim_inplace_gain gain)
{
    static const char *const names[PLIM_GAIN_COUNT] = {
        [PLIM_GAIN_MOMENT] = "moment", [PLIM_GAIN_NONE] = "none", [PLIM_GAIN_LESS] = "less"};
    return (unsigned)gain < PLIM_GAIN_COUNT ? names[gain] : "?";
}
