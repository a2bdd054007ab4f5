/* onnx_val.c -- see onnx_priv.h: values by name, and the numbers of small tensors. */
#include "import/onnx/onnx_fields.h"
#include "import/onnx/onnx_priv.h"

#include <math.h>

/* ---- names --------------------------------------------------------------------------- */

uint32_t plim_onnx_add_val(onnx *f, const onnx_val *v)
{
    if (!PLIM_PUSH_ROOM(f->a, f->vals, f->n_vals, f->cap_vals))
        return PLIM_NONE;
    f->vals[f->n_vals] = *v;
    return f->n_vals++;
}

bool plim_onnx_find(const onnx_env *env, plim_str name, uint32_t *val)
{
    for (; env; env = env->up)
        if (plim_map_get(&env->vals, name, val))
            return true;
    return false;
}

plim_status plim_onnx_bind_name(onnx *f, onnx_env *env, plim_str name, uint32_t val)
{
    return plim_map_put(f->a, &env->vals, name, val) ? PLIM_OK : plim_oom(f->err);
}

uint32_t plim_onnx_stored_val(onnx *f, const onnx_tensor *t, plim_str name, bool constant)
{
    const onnx_type *type = plim_onnx_type(t->type);
    onnx_val v = ONNX_VAL(.kind = type->known ? ONNX_TENSOR : ONNX_UNKNOWN, .name = name,
                          .constant = constant,
                          .meta = plim_meta_make(type->dtype, t->rank, t->dim), .from = t);
    return plim_onnx_add_val(f, &v);
}

plim_status plim_onnx_count_run(onnx *f, uint64_t n, uint64_t at)
{
    if (n > ONNX_MAX_NODES - f->n_run)
        return plim_fail(f->err, PLIM_EUNSUPPORTED, at,
                         "more than %d nodes after functions are inlined and loops unrolled",
                         ONNX_MAX_NODES);
    f->n_run += (uint32_t)n;
    return PLIM_OK;
}

plim_status plim_onnx_enter(onnx *f, onnx_env *env)
{
    if (env->up && plim_onnx_count_run(f, env->graph->n_inits, 0))
        return PLIM_EUNSUPPORTED;
    for (uint32_t i = 0; i < env->graph->n_inits; i++) {
        const onnx_tensor *t = &env->graph->inits[i];
        uint32_t val = plim_onnx_stored_val(f, t, t->name, false);
        if (val == PLIM_NONE || !plim_map_put(f->a, &env->vals, t->name, val))
            return plim_oom(f->err);
    }
    return PLIM_OK;
}

/* ---- numbers ------------------------------------------------------------------------ */

onnx_data *plim_onnx_new_data(onnx *f, bool is_float, uint64_t n)
{
    onnx_data *d = n <= ONNX_MAX_DATA ? PLIM_NEW(f->a, onnx_data) : NULL;
    if (!d)
        return NULL;
    d->is_float = is_float;
    d->n = (uint32_t)n;
    if (is_float)
        d->f = PLIM_NEW_N(f->a, double, n + 1);
    else
        d->i = PLIM_NEW_N(f->a, int64_t, n + 1);
    return d->f || d->i ? d : NULL;
}

static double half_to_double(uint64_t b)
{
    int e = (int)(b >> 10 & 31), m = (int)(b & 1023);
    double v = e == 31 ? (m ? NAN : INFINITY) : e ? ldexp(1024 + m, e - 25) : ldexp(m, -24);
    return b >> 15 & 1 ? -v : v;
}

/* The lowest `width` bits, sign-extended. */
static int64_t signed_of(uint64_t bits, int width)
{
    uint64_t sign = 1ull << (width - 1);
    bits &= 2 * sign - 1;
    return (int64_t)(bits ^ sign) - (int64_t)sign;
}

static bool store_number(onnx_data *d, uint32_t *k, const onnx_type *t, uint64_t bits)
{
    if (*k >= d->n)
        return false;
    uint32_t at = (*k)++;
    switch (t->dtype) {
    case PLIM_F32: d->f[at] = plim_onnx_f32(bits); return true;
    case PLIM_F64: d->f[at] = plim_onnx_f64(bits); return true;
    case PLIM_F16: d->f[at] = half_to_double(bits); return true;
    case PLIM_BF16: d->f[at] = plim_onnx_f32(bits << 16); return true;
    case PLIM_I8: d->i[at] = signed_of(bits, 8); return true;
    case PLIM_I16: d->i[at] = signed_of(bits, 16); return true;
    case PLIM_I32: d->i[at] = signed_of(bits, 32); return true;
    case PLIM_BOOL: d->i[at] = (bits & 0xff) != 0; return true;
    case PLIM_U8: d->i[at] = (uint8_t)bits; return true;
    case PLIM_U16: d->i[at] = (uint16_t)bits; return true;
    case PLIM_U32: d->i[at] = (uint32_t)bits; return true;
    default: d->i[at] = (int64_t)bits; return true;
    }
}

static bool read_raw(onnx_data *d, uint32_t *k, const onnx_type *t, const uint8_t *p,
                     uint64_t n)
{
    uint32_t size = t->bits / 8;
    for (uint64_t at = 0; at + size <= n; at += size) {
        uint64_t bits = 0;
        for (uint32_t i = 0; i < size; i++)
            bits |= (uint64_t)p[at + i] << (8 * i);
        if (!store_number(d, k, t, bits))
            return false;
    }
    return n % size == 0;
}

const onnx_data *plim_onnx_read_data(onnx *f, const onnx_tensor *t)
{
    const onnx_type *type = plim_onnx_type(t->type);
    onnx_wire w = t->body;
    onnx_field e;
    uint32_t k = 0;
    bool ok = type->known && type->bits >= 8 && type->bits <= 64 && type->dtype != PLIM_C64 &&
              (!plim_is_float(type->dtype) || type->bits >= 16) && !t->external && !t->sparse;
    onnx_data *d = ok ? plim_onnx_new_data(f, plim_is_float(type->dtype), t->numel) : NULL;
    w.err = NULL;
    while (d && ok && plim_onnx_next(&w, &e)) {
        onnx_wire part = {0};
        int64_t v;
        uint64_t bits;
        if (e.number == TENSOR_RAW_DATA)
            ok = e.type == ONNX_BYTES && !plim_bytes_need(w.file, e.from, e.size, NULL) &&
                 read_raw(d, &k, type, w.file.p + e.from, e.size);
        else if (e.number == TENSOR_INT32_DATA || e.number == TENSOR_INT64_DATA ||
                 e.number == TENSOR_UINT64_DATA)
            while (ok && plim_onnx_next_int(&w, &e, &part, &v))
                ok = store_number(d, &k, type, (uint64_t)v);
        else if (e.number == TENSOR_FLOAT_DATA || e.number == TENSOR_DOUBLE_DATA)
            while (ok && plim_onnx_next_bits(&w, &e, &part,
                                             e.number == TENSOR_FLOAT_DATA ? 4 : 8, &bits))
                ok = store_number(d, &k, type, bits);
    }
    return d && ok && !w.bad && k == d->n ? d : NULL;
}

const onnx_data *plim_onnx_data(onnx *f, uint32_t val)
{
    onnx_val *v = &f->vals[val];
    if (!v->read && !v->data && v->from && v->from->numel <= ONNX_MAX_DATA) {
        v->data = plim_onnx_read_data(f, v->from);
        v->read = true;
    }
    v->used |= v->data != NULL;
    return v->data;
}
