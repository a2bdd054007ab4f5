/* onnx_ops.h -- shared by the families of ONNX ops.  A function of onnx_ops.def returns its
 * results with plim_onnx_out; a result that it leaves out is taken from the file, or is
 * unknown.  It does not check shapes that the rules of src/op check. */
#ifndef PLIM_ONNX_OPS_H
#define PLIM_ONNX_OPS_H

#include "import/onnx/onnx_priv.h"

#define NN (&c->f->nn)

#define ONNX_OP(name, domain, lower, target, doc) void plim_onnx_##lower(onnx_call *c);
#include "import/onnx/onnx_ops.def"
#undef ONNX_OP

uint32_t plim_onnx_to(onnx_call *c, uint32_t x, plim_dtype t); /* x.to(t) */

uint32_t plim_onnx_pad_dims(onnx_call *c, uint32_t x, const int64_t *before,
                            const int64_t *after, plim_str mode); /* F.pad(x, ...) */

/* Sizes of results that no rule of ours computes. */
bool plim_onnx_matmul_dims(const plim_meta *a, const plim_meta *b, plim_meta *out);
bool plim_onnx_conv_dims(const onnx_call *c, const plim_meta *x, const plim_meta *w,
                         plim_meta *out);

#endif
