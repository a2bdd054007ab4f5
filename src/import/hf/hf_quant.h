/* hf_quant.h -- quantization_config: which weights are packed, and how. */
#ifndef PLIM_HF_QUANT_H
#define PLIM_HF_QUANT_H

#include "import/hf/hf.h"

enum { PLIM_HF_PACKED_PARTS = 5 };

/* The packed form of one weight, or of one weight of all experts. */
typedef struct plim_hf_packed {
    uint32_t part[PLIM_HF_PACKED_PARTS];
    uint32_t n;        /* 0: it is not packed */
    uint64_t elements; /* number of weights that it represents */
    uint64_t unpacked; /* bytes of the weight, dequantized to the type of x */
    int64_t out, in;   /* of a single product */
} plim_hf_packed;

/* A row of hf_quants.def. */
typedef struct plim_hf_quant_row {
    const char *name, *config, *doc, *src;
} plim_hf_quant_row;
uint32_t plim_hf_quant_count(void);
const plim_hf_quant_row *plim_hf_quant_at(uint32_t i); /* NULL past the end */
/* The quantization_config of that name in hf_quants.def; PLIM_EUSAGE lists the names. */
plim_status plim_hf_quant_find(plim_str name, plim_str *out, plim_err *err);

/* quantization_config as written: from here on Linear modules use its method. */
void plim_hf_quant_open(plim_hf *h, plim_str raw);

/* The weight NAME, [experts, out, in], of the open module; n 0: it is not packed, and the
 * caller has to create it. */
plim_hf_packed plim_hf_packed_experts(plim_hf *h, const char *name, int64_t experts,
                                      int64_t out, int64_t in);

/* The open module, a Conv1D, with its weight and bias packed; PLIM_NONE: this method does not
 * pack it, and the caller has to create it. */
uint32_t plim_hf_packed_conv1d(plim_hf *h, uint32_t x, int64_t out);

/* x times the weight: [.., in] to [.., out] */
uint32_t plim_hf_packed_product(plim_hf *h, uint32_t x, const plim_hf_packed *p,
                                uint32_t bias);

/* Whether any weight is packed. */
bool plim_hf_quant_used(const plim_hf *h);

/* Number of elements of the packed weights. */
uint64_t plim_hf_quant_weights(const plim_hf *h);

/* "6476005376 weights of 224 modules are quantized (gptq)..."; "" if none is.  {NULL, 0}:
 * no memory. */
plim_str plim_hf_quant_note(const plim_hf *h);

#endif
