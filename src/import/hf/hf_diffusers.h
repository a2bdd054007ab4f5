/* hf_diffusers.h -- models of diffusers: which folders a pipeline has, and what of a class runs. */
#ifndef PLIM_HF_DIFFUSERS_H
#define PLIM_HF_DIFFUSERS_H

#include "import/import.h"

/* The parts of pipelines, in the order of a run.
 * src: diffusers 0.42.1, pipelines: model_cpu_offload_seq */
#define PLIM_PIPELINE_PARTS(X)                                                                \
    X("safety_checker", ENCODES)                                                              \
    X("image_encoder", ENCODES)                                                               \
    X("text_encoder", ENCODES)                                                                \
    X("text_encoder_2", ENCODES)                                                              \
    X("text_encoder_3", ENCODES)                                                              \
    X("transformer", DENOISES)                                                                \
    X("unet", DENOISES)                                                                       \
    X("transformer_2", DENOISES)                                                              \
    X("vae", DECODES)

/* The configuration of AutoencoderKL as one of "AutoencoderKL.decode".  {NULL, 0}: our memory is full. */
plim_str plim_diffusers_method(plim_arena *a, plim_bytes b, const char *method);

#endif
