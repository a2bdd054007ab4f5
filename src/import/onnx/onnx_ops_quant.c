/* onnx_ops_quant.c -- ONNX ops on quantised numbers.  PyTorch runs them as casts between
 * integers and floats; for products of integers there is no rule, only the size is known. */
#include "import/onnx/onnx_ops.h"

static plim_dtype dtype_or(const plim_meta *m, plim_dtype def) { return m ? m->dtype : def; }

void plim_onnx_quantize(onnx_call *c)
{
    uint32_t x;
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "output_dtype", 0));
    plim_dtype to = t && t->known ? t->dtype : dtype_or(plim_onnx_in_meta(c, 2), PLIM_U8);
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0, plim_onnx_to(c, x, to));
}

void plim_onnx_dequantize(onnx_call *c)
{
    uint32_t x;
    const onnx_type *t = plim_onnx_type((uint64_t)plim_onnx_attr_int(c, "output_dtype", 0));
    plim_dtype to = t && t->known ? t->dtype : dtype_or(plim_onnx_in_meta(c, 1), PLIM_F32);
    if (plim_onnx_need(c, 1, &x))
        plim_onnx_out(c, 0, plim_onnx_to(c, x, to));
}

void plim_onnx_dynamic_quantize(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    if (!x)
        return;
    plim_meta m = *x, scale = {.dtype = x->dtype}, zero = {.dtype = PLIM_U8};
    m.dtype = PLIM_U8;
    plim_onnx_out_opaque(c, 0, &m);
    plim_onnx_out_opaque(c, 1, &scale);
    plim_onnx_out_opaque(c, 2, &zero);
}

void plim_onnx_conv_integer(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 1);
    plim_meta m;
    if (!x || !w || !plim_onnx_conv_dims(c, x, w, &m))
        return;
    m.dtype = PLIM_I32;
    plim_onnx_out_opaque(c, 0, &m);
}

/* Each operand is followed by its scale and zero point; the result's come last. */
void plim_onnx_qlinear_conv(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0), *w = plim_onnx_in_meta(c, 3);
    plim_meta m;
    if (!x || !w || !plim_onnx_conv_dims(c, x, w, &m))
        return;
    m.dtype = dtype_or(plim_onnx_in_meta(c, 7), x->dtype);
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_matmul_integer(onnx_call *c)
{
    const plim_meta *a = plim_onnx_in_meta(c, 0), *b = plim_onnx_in_meta(c, 1);
    plim_meta m;
    if (!a || !b || !plim_onnx_matmul_dims(a, b, &m))
        return;
    m.dtype = PLIM_I32;
    plim_onnx_out_opaque(c, 0, &m);
}

void plim_onnx_qlinear_matmul(onnx_call *c)
{
    const plim_meta *a = plim_onnx_in_meta(c, 0), *b = plim_onnx_in_meta(c, 3);
    plim_meta m;
    if (!a || !b || !plim_onnx_matmul_dims(a, b, &m))
        return;
    m.dtype = dtype_or(plim_onnx_in_meta(c, 7), a->dtype);
    plim_onnx_out_opaque(c, 0, &m);
}

/* com.microsoft MatMulNBits: a K by N weight with a few bits per number */
void plim_onnx_matmul_nbits(onnx_call *c)
{
    const plim_meta *x = plim_onnx_in_meta(c, 0);
    int64_t k = plim_onnx_attr_int(c, "K", 0), n = plim_onnx_attr_int(c, "N", 0);
    if (!x || !x->rank || x->dim[x->rank - 1] != k || n < 1)
        return;
    plim_meta m = *x;
    m.dim[m.rank - 1] = n;
    plim_onnx_out_opaque(c, 0, &m);
}
