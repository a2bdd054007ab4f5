/* rules_factory.c -- factory ops: one request each, no history. */
#include "op/rules.h"

#include <math.h>

#include "base/fmt.h"

static void factory_make(plim_call *c, uint32_t size_slot, plim_dtype t)
{
    int64_t dim[PLIM_MAX_RANK];
    int32_t rank = (int32_t)plim_arg_ints(c, size_slot, dim, PLIM_MAX_RANK, 1);
    plim_ret(c, plim_m_empty_contig(c->m, t, rank, dim));
}

static plim_dtype first_dtype(plim_call *c)
{
    return plim_m_meta(c->m, plim_arg_tensor(c, 0))->dtype;
}

void plim_run_factory(plim_call *c) { factory_make(c, 0, plim_arg_dtype(c, 1, PLIM_F32)); }
void plim_run_full(plim_call *c)
{
    bool f = c->n_args > 1 && c->args[1].kind == PLIM_ARG_FLOAT;
    factory_make(c, 0, plim_arg_dtype(c, 2, f ? PLIM_F32 : PLIM_I64));
}
void plim_run_new(plim_call *c) { factory_make(c, 1, plim_arg_dtype(c, 2, first_dtype(c))); }
void plim_run_new_full(plim_call *c)
{
    factory_make(c, 1, plim_arg_dtype(c, 3, first_dtype(c)));
}

/* ---- ranges: a length that the numbers give ---------------------------------------- */

static bool factory_is_float(const plim_call *c, uint32_t slot)
{
    return slot < c->n_args && c->args[slot].kind == PLIM_ARG_FLOAT;
}

/* Numbers from start up to end; floats if any argument is one.  src: RangeFactories.cu */
static void factory_arange(plim_call *c, double start, double end, double step,
                           uint32_t dtype_slot)
{
    bool f = false;
    for (uint32_t i = 0; i < dtype_slot; i++)
        f |= factory_is_float(c, i);
    double n = step > 0 || step < 0 ? ceil((end - start) / step) : -1;
    if (!(n >= 0 && n < 1e15)) {
        plim_m_fail(c->m, PLIM_ESHAPE, "arange cannot go from %s to %s in steps of %s",
                    plim_fmt_double(start).s, plim_fmt_double(end).s, plim_fmt_double(step).s);
        return;
    }
    plim_dtype t = plim_arg_dtype(c, dtype_slot, f ? PLIM_F32 : PLIM_I64);
    plim_ret(c, plim_m_empty_contig(c->m, t, 1, (int64_t[]){(int64_t)n}));
}
void plim_run_arange(plim_call *c) { factory_arange(c, 0, plim_arg_float(c, 0, 0), 1, 1); }
void plim_run_arange_start(plim_call *c)
{
    factory_arange(c, plim_arg_float(c, 0, 0), plim_arg_float(c, 1, 0), 1, 2);
}
void plim_run_arange_step(plim_call *c)
{
    factory_arange(c, plim_arg_float(c, 0, 0), plim_arg_float(c, 1, 0),
                   plim_arg_float(c, 2, 1), 3);
}

void plim_run_linspace(plim_call *c) { factory_make(c, 2, plim_arg_dtype(c, 3, PLIM_F32)); }
void plim_run_scalar_tensor(plim_call *c)
{
    plim_ret(c, plim_m_empty_contig(c->m, plim_arg_dtype(c, 1, PLIM_F32), 0, NULL));
}
void plim_run_eye(plim_call *c)
{
    int64_t n = plim_arg_int(c, 0, 0);
    plim_ret(c, plim_m_empty_contig(c->m, plim_arg_dtype(c, 2, PLIM_F32), 2,
                                    (int64_t[]){n, plim_arg_int(c, 1, n)}));
}
void plim_run_eye_square(plim_call *c)
{
    int64_t n = plim_arg_int(c, 0, 0);
    plim_ret(c,
             plim_m_empty_contig(c->m, plim_arg_dtype(c, 1, PLIM_F32), 2, (int64_t[]){n, n}));
}
void plim_run_randint(plim_call *c) { factory_make(c, 1, plim_arg_dtype(c, 2, PLIM_I64)); }
void plim_run_randint_low(plim_call *c) { factory_make(c, 2, plim_arg_dtype(c, 3, PLIM_I64)); }

/* Rows and columns of a triangle's elements.  src: TensorFactories.cpp
 * get_tril_size */
static int64_t triangle_size(int64_t rows, int64_t cols, int64_t offset)
{
    int64_t n = 0;
    for (int64_t i = 0; i < rows; i++) /* in row i: the columns up to i + offset */
        n += PLIM_MAX(PLIM_MIN(i + offset + 1, cols), 0);
    return n;
}
static void triangle_indices(plim_call *c, bool upper)
{
    int64_t rows = plim_arg_int(c, 0, 0), cols = plim_arg_int(c, 1, 0),
            offset = plim_arg_int(c, 2, 0);
    enum { MOST = 1 << 20 };
    if (rows < 0 || cols < 0 || rows > MOST || cols > MOST || offset > MOST ||
        offset < -MOST) {
        plim_m_fail(c->m, PLIM_EUNSUPPORTED,
                    "indices of a triangle of %" PRId64 " x %" PRId64 " have no rule", rows,
                    cols);
        return;
    }
    int64_t n = upper ? rows * cols - triangle_size(rows, cols, offset - 1)
                      : triangle_size(rows, cols, offset);
    plim_ret(c,
             plim_m_empty_contig(c->m, plim_arg_dtype(c, 3, PLIM_I64), 2, (int64_t[]){2, n}));
}
void plim_run_tril_indices(plim_call *c) { triangle_indices(c, false); }
void plim_run_triu_indices(plim_call *c) { triangle_indices(c, true); }

static void factory_like(plim_call *c, uint32_t dtype_slot)
{
    const plim_meta *x = plim_m_meta(c->m, plim_arg_tensor(c, 0));
    plim_meta out = plim_meta_like(x, plim_arg_dtype(c, dtype_slot, x->dtype));
    plim_ret(c, plim_m_empty(c->m, &out));
}
void plim_run_like(plim_call *c) { factory_like(c, 1); }
void plim_run_randint_like(plim_call *c) { factory_like(c, 2); }
void plim_run_randint_like_low(plim_call *c) { factory_like(c, 3); }
void plim_run_like_value(plim_call *c) { factory_like(c, 2); }
