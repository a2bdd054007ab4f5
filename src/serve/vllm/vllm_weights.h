/* vllm_weights.h -- what vLLM holds of the weights, by the kernel that experts in MXFP4 get.
 */
#ifndef PLIM_SERVE_VLLM_WEIGHTS_H
#define PLIM_SERVE_VLLM_WEIGHTS_H

#include "serve/serve.h"

/* How experts in MXFP4 are held: as the file does, or filled up for a kernel. */
typedef enum plim_vllm_kernel {
    PLIM_IN_FILE,
    PLIM_IN_MARLIN,
    PLIM_IN_TRITON,
    PLIM_IN_FLASHINFER,
    PLIM_IN_COUNT
} plim_vllm_kernel;

/* Bytes. */
typedef struct plim_vllm_sizes {
    uint64_t weights[PLIM_IN_COUNT]; /* all are the same without experts in MXFP4 */
    uint64_t position;               /* of tables of positions, for each */
    uint64_t widest;                 /* as plim_question_widest says */
} plim_vllm_sizes;

/* *out is a plim_vllm_sizes. */
plim_serve_measure plim_vllm_measure;

#endif
