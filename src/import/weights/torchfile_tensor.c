/* torchfile_tensor.c -- storages and tensors, from the calls that would create them.
 * src: torch/_utils.py, torch/serialization.py of 2.13 */
#include "import/weights/torchfile_priv.h"

/* The dtype of each storage class; newer dtypes have no class and are given in the call.
 * src: torch/storage.py, _dtype_to_storage_type_map */
static const struct {
    const char *name;
    plim_dtype dtype;
} classes[] = {
    {"FloatStorage", PLIM_F32},         {"HalfStorage", PLIM_F16},
    {"BFloat16Storage", PLIM_BF16},     {"DoubleStorage", PLIM_F64},
    {"LongStorage", PLIM_I64},          {"IntStorage", PLIM_I32},
    {"ShortStorage", PLIM_I16},         {"CharStorage", PLIM_I8},
    {"ByteStorage", PLIM_U8},           {"UntypedStorage", PLIM_U8},
    {"BoolStorage", PLIM_BOOL},         {"ComplexFloatStorage", PLIM_C64},
    {"QInt8Storage", PLIM_QINT8},       {"ComplexDoubleStorage", PLIM_C128},
    {"QInt32Storage", PLIM_QINT32},     {"QUInt8Storage", PLIM_QUINT8},
    {"QUInt4x2Storage", PLIM_QUINT4X2}, {"QUInt2x4Storage", PLIM_QUINT2X4},
};

/* Calls that create a tensor, with the positions of their arguments (-1: it has none). */
static const struct {
    const char *name; /* of torch._utils */
    int storage, offset, size, stride, dtype;
} rebuilds[] = {
    {"_rebuild_tensor", 0, 1, 2, 3, -1},
    {"_rebuild_tensor_v2", 0, 1, 2, 3, -1},
    {"_rebuild_tensor_v3", 0, 1, 2, 3, 6},
    {"_rebuild_qtensor", 0, 1, 2, 3, -1},
    {"_rebuild_meta_tensor_no_storage", -1, -1, 1, 2, 0},
};

/* Calls that return their first argument with small changes. */
static const struct {
    const char *module, *name;
    bool parameter;
} wrappers[] = {
    {"torch._utils", "_rebuild_parameter", true},
    {"torch._utils", "_rebuild_parameter_with_state", true},
    {"torch._utils", "_rebuild_device_tensor_from_cpu_tensor", false},
    {"torch.nn.parameter", "Parameter", true},
    {"torch.nn.parameter", "Buffer", false},
};

static const char *name_of_tensor(const torchfile *f)
{
    return f->n_name ? f->name : "the tensor";
}

static plim_status fail_overflow(const torchfile *f)
{
    return plim_fail(f->err, PLIM_ERANGE, f->n_entries, "size of '%.80s' overflows",
                     name_of_tensor(f));
}

static plim_status fail_malformed(const torchfile *f)
{
    return plim_fail(f->err, PLIM_EFORMAT, f->n_entries,
                     "'%.80s' is not a tensor as torch.save writes it", name_of_tensor(f));
}

/* ---- storages ------------------------------------------------------------------------ */

static bool find_class(plim_pickle_value v, plim_dtype *out)
{
    plim_str name = plim_pickle_text(plim_pickle_at(v, 1));
    if (v.kind != PLIM_PICKLE_GLOBAL)
        return false;
    for (size_t i = 0; i < PLIM_COUNT(classes); i++)
        if (plim_str_is(name, classes[i].name)) {
            *out = classes[i].dtype;
            return true;
        }
    return false;
}

/* Checks that a storage has the stated number of bytes, and that the archive holds them. */
static plim_status check_record(const torchfile *f, const torch_storage *s)
{
    uint32_t place;
    if (!f->records)
        return PLIM_OK;
    if (!plim_map_get(f->records, s->key, &place))
        return plim_fail(f->err, PLIM_EFORMAT, f->n_entries,
                         "storage '%.*s' of '%.80s' is not in the archive",
                         (int)PLIM_MIN(s->key.n, (size_t)40), s->key.p, name_of_tensor(f));
    if (f->record_bytes[place] < s->bytes)
        return plim_fail(f->err, PLIM_EFORMAT, f->n_entries,
                         "storage '%.*s' of '%.80s' has %" PRIu64
                         " bytes in the archive, %" PRIu64 " are needed",
                         (int)PLIM_MIN(s->key.n, (size_t)40), s->key.p, name_of_tensor(f),
                         f->record_bytes[place], s->bytes);
    return PLIM_OK;
}

static plim_status add_storage(torchfile *f, torch_storage s, uint32_t *id)
{
    if (plim_map_get(&f->storage_ids, s.key, id)) {
        if (f->storages[*id].bytes == s.bytes)
            return PLIM_OK;
        return plim_fail(f->err, PLIM_EFORMAT, f->n_entries,
                         "storage '%.*s' has %" PRIu64
                         " bytes, but '%.80s' takes it for %" PRIu64,
                         (int)PLIM_MIN(s.key.n, (size_t)40), s.key.p, f->storages[*id].bytes,
                         name_of_tensor(f), s.bytes);
    }
    PLIM_TRY(check_record(f, &s));
    *id = f->n_storages;
    if (!PLIM_PUSH_ROOM(f->a, f->storages, f->n_storages, f->cap_storages) ||
        !plim_map_put(f->a, &f->storage_ids, s.key, *id))
        return plim_oom(f->err);
    f->storages[f->n_storages++] = s;
    return PLIM_OK;
}

/* ("storage", class, key, location, elements[, (key of the view, first, elements)]) */
static plim_status read_storage(torchfile *f, plim_pickle_value id, plim_dtype *dtype,
                                uint32_t *storage, uint64_t *first)
{
    plim_pickle_value key = plim_pickle_at(id, 2), location = plim_pickle_at(id, 3),
                      n = plim_pickle_at(id, 4), view = plim_pickle_at(id, 5);
    torch_storage s = {plim_pickle_text(key), plim_pickle_text(location), 0};
    *first = 0;
    if (!find_class(plim_pickle_at(id, 1), dtype) || !s.key.p || n.kind != PLIM_PICKLE_INT ||
        n.i < 0)
        return fail_malformed(f);
    if (!plim_mul((uint64_t)n.i, plim_dtype_bytes(*dtype), &s.bytes))
        return fail_overflow(f);
    if (view.kind == PLIM_PICKLE_TUPLE) {
        plim_pickle_value at = plim_pickle_at(view, 1);
        if (at.kind != PLIM_PICKLE_INT || at.i < 0)
            return fail_malformed(f);
        if (!plim_mul((uint64_t)at.i, plim_dtype_bytes(*dtype), first))
            return fail_overflow(f);
    }
    return add_storage(f, s, storage);
}

static bool is_storage_id(plim_pickle_value v)
{
    return v.kind == PLIM_PICKLE_PERSISTENT &&
           plim_str_is(plim_pickle_text(plim_pickle_at(plim_pickle_at(v, 0), 0)), "storage");
}

plim_status plim_torch_storage(torchfile *f, plim_pickle_value v, torch_tensor *t, bool *is)
{
    plim_dtype dtype;
    uint64_t first;
    *is = is_storage_id(v);
    if (!*is)
        return PLIM_OK;
    *t = (torch_tensor){.rank = 1};
    PLIM_TRY(read_storage(f, plim_pickle_at(v, 0), &dtype, &t->storage, &first));
    t->type = plim_str_of(plim_dtype_rows[dtype].name);
    t->end = t->bytes = f->storages[t->storage].bytes;
    t->dim[0] = (int64_t)(t->bytes / plim_dtype_bytes(dtype));
    return PLIM_OK;
}

/* ---- tensors -------------------------------------------------------------------------- */

typedef struct layout {
    int32_t rank;
    int64_t dim[PLIM_MAX_RANK], stride[PLIM_MAX_RANK];
    uint64_t elements, reach; /* reach: index of the last element, plus one */
} layout;

/* A tuple of non-negative numbers, or torch.Size of one. */
static plim_status read_sizes(const torchfile *f, plim_pickle_value v, int32_t *rank,
                              int64_t *out)
{
    if (v.kind == PLIM_PICKLE_CALL)
        v = plim_pickle_at(v.node->call->args, 0);
    uint32_t n = plim_pickle_count(v);
    if (v.kind != PLIM_PICKLE_TUPLE && v.kind != PLIM_PICKLE_LIST)
        return fail_malformed(f);
    if (n > PLIM_MAX_RANK)
        return plim_fail(f->err, PLIM_ERANGE, f->n_entries,
                         "'%.80s' has %" PRIu32 " dimensions, the limit is %d",
                         name_of_tensor(f), n, (int)PLIM_MAX_RANK);
    for (uint32_t i = 0; i < n; i++) {
        plim_pickle_value d = v.node->items[i];
        if (d.kind == PLIM_PICKLE_LONG)
            return fail_overflow(f);
        if (d.kind != PLIM_PICKLE_INT || d.i < 0)
            return fail_malformed(f);
        out[i] = d.i;
    }
    *rank = (int32_t)n;
    return PLIM_OK;
}

static plim_status read_layout(const torchfile *f, plim_pickle_value size,
                               plim_pickle_value stride, layout *l)
{
    int32_t strides;
    PLIM_TRY(read_sizes(f, size, &l->rank, l->dim));
    PLIM_TRY(read_sizes(f, stride, &strides, l->stride));
    if (strides != l->rank)
        return fail_malformed(f);
    l->elements = l->reach = 1;
    for (int32_t i = 0; i < l->rank; i++) {
        uint64_t step;
        if (!plim_mul(l->elements, (uint64_t)l->dim[i], &l->elements))
            return fail_overflow(f);
        if (l->dim[i] && (!plim_mul((uint64_t)l->dim[i] - 1, (uint64_t)l->stride[i], &step) ||
                          !plim_add(l->reach, step, &l->reach)))
            return fail_overflow(f);
    }
    if (!l->elements)
        l->reach = 0;
    return PLIM_OK;
}

/* The span of its storage: whole bytes, also for types of less than one byte. */
static plim_status find_span(const torchfile *f, const layout *l, uint32_t bits,
                             uint64_t first, int64_t offset, torch_tensor *t)
{
    uint64_t begin, end;
    if (offset < 0)
        return fail_malformed(f);
    if (!plim_mul((uint64_t)offset, bits, &begin) ||
        !plim_add((uint64_t)offset, l->reach, &end) || !plim_mul(end, bits, &end) ||
        !plim_add(begin / 8, first, &t->begin) ||
        !plim_add(end / 8 + (end % 8 != 0), first, &t->end))
        return fail_overflow(f);
    const torch_storage *s = &f->storages[t->storage];
    if (l->reach && t->end > s->bytes)
        return plim_fail(f->err, PLIM_EFORMAT, f->n_entries,
                         "'%.80s' reaches to byte %" PRIu64 " of a storage of %" PRIu64,
                         name_of_tensor(f), t->end, s->bytes);
    if (!l->reach)
        t->end = t->begin;
    return PLIM_OK;
}

static plim_status read_dtype(const torchfile *f, plim_pickle_value v, plim_dtype *out)
{
    plim_str name = plim_pickle_text(plim_pickle_at(v, 1));
    if (v.kind != PLIM_PICKLE_GLOBAL || !name.p)
        return fail_malformed(f);
    if (!plim_dtype_find(name, out))
        return plim_fail(f->err, PLIM_EUNSUPPORTED, f->n_entries,
                         "'%.80s' has the unknown type '%.*s'", name_of_tensor(f),
                         (int)PLIM_MIN(name.n, (size_t)40), name.p);
    return PLIM_OK;
}

static plim_status read_tensor(torchfile *f, plim_pickle_value args, size_t row,
                               torch_tensor *t)
{
    layout l = {.rank = 0};
    plim_dtype dtype = PLIM_U8;
    uint64_t first = 0;
    plim_status st = read_layout(f, plim_pickle_at(args, (uint32_t)rebuilds[row].size),
                                 plim_pickle_at(args, (uint32_t)rebuilds[row].stride), &l);
    t->storage = PLIM_NONE;
    if (!st && rebuilds[row].storage >= 0) {
        plim_pickle_value s = plim_pickle_at(args, (uint32_t)rebuilds[row].storage);
        if (!is_storage_id(s))
            return fail_malformed(f);
        st = read_storage(f, plim_pickle_at(s, 0), &dtype, &t->storage, &first);
    }
    if (!st && rebuilds[row].dtype >= 0)
        st = read_dtype(f, plim_pickle_at(args, (uint32_t)rebuilds[row].dtype), &dtype);
    if (st)
        return st;
    uint32_t bits = plim_dtype_rows[dtype].bits;
    if (!plim_mul(l.elements, bits, &t->bytes))
        return fail_overflow(f);
    t->bytes = t->bytes / 8 + (t->bytes % 8 != 0);
    t->type = plim_str_of(plim_dtype_rows[dtype].name);
    t->rank = l.rank;
    memcpy(t->dim, l.dim, sizeof t->dim);
    if (t->storage == PLIM_NONE)
        return PLIM_OK;
    plim_pickle_value offset = plim_pickle_at(args, (uint32_t)rebuilds[row].offset);
    return offset.kind == PLIM_PICKLE_INT ? find_span(f, &l, bits, first, offset.i, t)
                                          : fail_malformed(f);
}

/* Unwraps the calls around the one that creates a tensor. */
static bool unwrap_call(plim_pickle_value *fn, plim_pickle_value *args, bool *parameter)
{
    plim_pickle_value inner = {0};
    if (plim_pickle_is_global(*fn, "torch._tensor", "_rebuild_from_type_v2")) {
        *fn = plim_pickle_at(*args, 0); /* (fn, class, args, state) */
        *args = plim_pickle_at(*args, 2);
        return true;
    }
    for (size_t i = 0; i < PLIM_COUNT(wrappers); i++)
        if (plim_pickle_is_global(*fn, wrappers[i].module, wrappers[i].name)) {
            inner = plim_pickle_at(*args, 0);
            *parameter |= wrappers[i].parameter;
        }
    if (inner.kind != PLIM_PICKLE_CALL)
        return false;
    *fn = inner.node->call->fn;
    *args = inner.node->call->args;
    return true;
}

plim_status plim_torch_tensor(torchfile *f, plim_pickle_value v, torch_tensor *t, bool *is)
{
    *is = false;
    if (v.kind != PLIM_PICKLE_CALL)
        return PLIM_OK;
    plim_pickle_value fn = v.node->call->fn, args = v.node->call->args;
    *t = (torch_tensor){.parameter = false};
    for (int depth = 0; depth < 8 && unwrap_call(&fn, &args, &t->parameter); depth++)
        ;
    for (size_t i = 0; i < PLIM_COUNT(rebuilds); i++)
        if (plim_pickle_is_global(fn, "torch._utils", rebuilds[i].name)) {
            *is = true;
            return read_tensor(f, args, i, t);
        }
    return PLIM_OK;
}
