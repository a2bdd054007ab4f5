/* rules_fft.c -- Fourier transforms: what cuFFT and the code around it take besides the
 * result.  src: native/cuda/SpectralOps.cpp, native/cuda/CuFFTPlanCache.h;
 * docs/sources/workspaces.md 7 */
#include "op/rules.h"

/* Dimensions in one call of cuFFT; numbers that a block of threads transforms in its shared memory. */
enum { AT_ONCE = 3, IN_SHARED = 4096 };

typedef struct fft_dims {
    int32_t at[PLIM_MAX_RANK];
    uint32_t n;
} fft_dims;

/* Each once. */
static fft_dims read_dims(plim_call *c, int32_t rank)
{
    int64_t given[PLIM_MAX_RANK];
    uint32_t n = plim_arg_ints(c, 1, given, PLIM_MAX_RANK, 1), seen = 0;
    fft_dims d = {.n = 0};
    for (uint32_t i = 0; rank && i < n; i++) {
        int32_t at = plim_wrap_dim(c->m, given[i], rank);
        if (!(seen >> at & 1))
            d.at[d.n++] = at;
        seen |= 1u << at;
    }
    return d;
}

/* By falling strides, equal ones as they are. */
static void sort_by_stride(int32_t *at, uint32_t n, const plim_meta *x)
{
    for (uint32_t i = 1; i < n; i++)
        for (uint32_t j = i; j && x->stride[at[j]] > x->stride[at[j - 1]]; j--) {
            int32_t t = at[j];
            at[j] = at[j - 1];
            at[j - 1] = t;
        }
}

/* The dimensions that are not transformed by falling strides, then the others: how many of the
 * first. */
static uint32_t order_dims(const plim_meta *x, const fft_dims *d, int32_t *order)
{
    uint32_t n = 0;
    for (int32_t i = 0; i < x->rank; i++) {
        bool transformed = false;
        for (uint32_t j = 0; j < d->n; j++)
            transformed |= d->at[j] == i;
        if (!transformed)
            order[n++] = i;
    }
    sort_by_stride(order, n, x);
    for (uint32_t j = 0; j < d->n; j++)
        order[n + j] = d->at[j];
    return n;
}

/* Whether cuFFT can read x as it lies: the first dimensions as one, and of the others each a
 * multiple of the next. */
static bool lies_well(const plim_meta *x, const int32_t *order, uint32_t batch_dims)
{
    plim_meta p = *x;
    int64_t dim[PLIM_MAX_RANK + 1] = {1}, stride[PLIM_MAX_RANK + 1];
    int32_t rank = 1;
    for (int32_t i = 0; i < x->rank; i++) {
        p.dim[i] = x->dim[order[i]];
        p.stride[i] = x->stride[order[i]];
        if (i < (int32_t)batch_dims)
            dim[0] *= p.dim[i];
        else
            dim[rank++] = p.dim[i];
    }
    if (!plim_view_strides(&p, rank, dim, stride))
        return false;
    int64_t last = stride[rank - 1];
    bool ok = last > 0 && (dim[0] == 1 || stride[0]);
    for (int32_t i = rank - 2; ok && i > 0; i--) {
        if (dim[i] == 1)
            continue;
        ok = stride[i] > 0 && stride[i] % last == 0;
        last = stride[i];
    }
    return ok;
}

static bool has_large_factor(int64_t n)
{
    static const int64_t radix[] = {2, 3, 5, 7};
    for (size_t i = 0; i < sizeof radix / sizeof *radix; i++)
        while (n > 1 && n % radix[i] == 0)
            n /= radix[i];
    return n > 1;
}

/* The work area of a plan: as large as the complex numbers as a rule, none where shared memory is enough. */
static plim_t take_work_area(plim_machine *m, const plim_meta *in, const plim_meta *out,
                             const fft_dims *d)
{
    uint64_t bytes, most = 2;
    int64_t longest = 0;
    if (!plim_meta_bytes(plim_dtype_rows[out->dtype].is_complex ? out : in, &bytes))
        return 0;
    for (uint32_t i = 0; i < d->n; i++) {
        int64_t size = PLIM_MAX(in->dim[d->at[i]], out->dim[d->at[i]]);
        longest = PLIM_MAX(longest, size);
        if (has_large_factor(size))
            most = 8;
    }
    uint64_t usual = d->n == 1 && longest <= IN_SHARED ? 0 : bytes;
    return plim_m_scratch_range(m, 0, usual, plim_sat_mul(most, bytes));
}

/* One call of cuFFT.  Sets the strides of out. */
static void run_plan(plim_machine *m, const plim_meta *in, plim_meta *out, const fft_dims *d)
{
    int32_t order[PLIM_MAX_RANK] = {0};
    int64_t stride = 1;
    uint32_t batch_dims = order_dims(in, d, order);
    plim_m_calls(m, PLIM_CUFFT);
    plim_t copy = lies_well(in, order, batch_dims)
                      ? 0
                      : plim_m_empty_contig(m, in->dtype, in->rank, in->dim);
    plim_m_drop(m, take_work_area(m, in, out, d));
    plim_m_drop(m, copy);
    for (int32_t i = out->rank; i-- > 0;) {
        out->stride[order[i]] = stride;
        stride = plim_dim_mul(stride, PLIM_MAX(out->dim[order[i]], 1));
    }
}

/* Complex numbers to complex numbers in place of *x, up to three dimensions at a time; with a
 * second buffer of the sizes `full` from the second call on, or from the first on. */
static void run_complex(plim_machine *m, plim_meta *x, fft_dims d, const plim_meta *full,
                        bool second)
{
    plim_t buffer = second ? plim_m_empty_contig(m, x->dtype, full->rank, full->dim) : 0;
    while (d.n) {
        fft_dims now = {.n = PLIM_MIN(d.n, AT_ONCE)};
        plim_meta out = *x;
        sort_by_stride(d.at, d.n, x);
        d.n -= now.n;
        for (uint32_t i = 0; i < now.n; i++)
            now.at[i] = d.at[d.n + i];
        run_plan(m, x, &out, &now);
        if (d.n && !buffer)
            buffer = plim_m_empty_contig(m, x->dtype, full->rank, full->dim);
        *x = out;
    }
    plim_m_drop(m, buffer);
}

/* Whether real numbers are transformed in all dimensions by one call. */
static bool takes_one_call(const fft_dims *d)
{
    return d->n <= AT_ONCE && !(d->n >= 2 && d->at[0] == 0 && d->at[1] == 1);
}

static fft_dims last_of(const fft_dims *d)
{
    return (fft_dims){.at = {d->at[d->n - 1]}, .n = 1};
}

void plim_kernel_fft_c2c(plim_call *c)
{
    plim_meta x = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    const plim_meta full = x;
    run_complex(c->m, &x, read_dims(c, x.rank), &full, false);
}

void plim_kernel_fft_r2c(plim_call *c)
{
    const plim_meta x = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    fft_dims d = read_dims(c, x.rank);
    if (!d.n)
        return;
    const fft_dims last = last_of(&d);
    plim_meta full = plim_meta_make(plim_complex_of(x.dtype), x.rank, x.dim);
    plim_meta half = full; /* of a real signal the rest follows */
    half.dim[last.at[0]] = half.dim[last.at[0]] / 2 + 1;
    if (plim_arg_int(c, 2, 1))
        full = half;
    if (takes_one_call(&d)) {
        run_plan(c->m, &x, &full, &d);
        return;
    }
    run_plan(c->m, &x, d.n == 1 ? &full : &half, &last);
    d.n--;
    run_complex(c->m, &half, d, &full, d.n > 0);
}

void plim_kernel_fft_c2r(plim_call *c)
{
    plim_meta x = *plim_m_meta(c->m, plim_arg_tensor(c, 0));
    fft_dims d = read_dims(c, x.rank);
    if (!d.n)
        return;
    fft_dims last = last_of(&d);
    plim_meta out = plim_meta_make(plim_complex_part(x.dtype), x.rank, x.dim);
    out.dim[last.at[0]] = plim_arg_int(c, 2, out.dim[last.at[0]]);
    /* cuFFT may write over its input */
    plim_t copy = plim_m_empty_contig(c->m, x.dtype, x.rank, x.dim);
    plim_meta mine = plim_meta_make(x.dtype, x.rank, x.dim);
    if (takes_one_call(&d)) {
        run_plan(c->m, &mine, &out, &d);
    } else {
        d.n--;
        run_complex(c->m, &x, d, &mine, false);
        run_plan(c->m, &x, &out, &last);
    }
    plim_m_drop(c->m, copy);
}
