/* machine.c -- tensors, storages and the machine's settings: see machine.h. */
#include "machine/machine_priv.h"

/* ---- pools -------------------------------------------------------------- */

/* The inline parts are initialised item by item and need not be zeroed, so a machine on the
 * stack (plim_op_infer) is cheap. */
void plim__machine_init(plim_machine *m, plim_arena *a, plim_tape *tape, const plim_world *w,
                        plim_err *err)
{
    plim_assert(a && w);
    memset(m, 0, offsetof(plim_machine, inline_page));
    m->arena = a;
    m->tape = tape;
    m->asked = plim_asked_nothing();
    m->world = *w;
    m->world.asked = &m->asked;
    m->err = err;
    m->first_tpage[0] = m->inline_page;
    m->tpage = m->first_tpage;
    m->tpages = m->tpages_cap = 1;
    m->storages = m->inline_storages;
    m->cap_storages = TENSOR_PAGE;
    m->n_tensors = 1; /* handle 0: undefined, a harmless fp32 scalar */
    m->inline_page[0] = (m_tensor){.storage = PLIM_NONE, .gnode = PLIM_NONE, .acc = PLIM_NONE};
    m->free_tensor = m->free_storage = m->free_gnode = PLIM_NONE;
    m->category = PLIM_CAT_TEMPORARY;
    m->autocast = PLIM_DTYPE_COUNT;
    m->frame = m->recomputing = PLIM_NONE;
}

plim_machine *plim_m_new(plim_arena *a, plim_tape *tape, const plim_world *w, plim_err *err)
{
    plim_machine *m = PLIM_NEW(a, plim_machine);
    if (m)
        plim__machine_init(m, a, tape, w, err);
    else
        plim_oom(err);
    return m;
}

bool plim__page_room(plim_machine *m, void ***pages, uint32_t *n, uint32_t *cap, uint64_t size)
{
    plim_assert(*n <= *cap);
    if (*n == *cap) {
        uint64_t want = PLIM_MAX((uint64_t)*cap * 2, 16);
        void **p = want <= MAX_PAGES ? PLIM_NEW_N(m->arena, void *, want) : NULL;
        if (!p)
            return false;
        if (*n)
            memcpy(p, *pages, *n * sizeof *p);
        *pages = p;
        *cap = (uint32_t)want;
    }
    void *page = plim_arena_new(m->arena, 1, size);
    if (!page)
        return false;
    (*pages)[(*n)++] = page;
    return true;
}

/* No memory has room for more, and rules may multiply a size by a small number.  Even the sizes of a
 * tensor without elements, all but the zeros, do not multiply to more. */
static bool meta_fits(plim_machine *m, const plim_meta *meta)
{
    plim_assert(meta->rank >= 0 && meta->rank <= PLIM_MAX_RANK);
    const uint64_t most = (uint64_t)1 << 56;
    uint64_t n = 1;
    bool fits = true;
    for (int32_t i = 0; i < meta->rank; i++) {
        uint64_t d = (uint64_t)meta->dim[i];
        fits = fits && d <= most && plim_mul(n, PLIM_MAX(d, 1), &n) && n <= most;
        fits = fits && (uint64_t)meta->stride[i] <= most;
    }
    if (!fits) {
        char buf[128];
        plim_m_fail(m, PLIM_ERANGE, "a tensor of %s elements is over the limit of 2^56",
                    plim_meta_str(meta, buf, sizeof buf));
    }
    return fits;
}

/* Its meta fits. */
static plim_t tensor_make(plim_machine *m, const plim_meta *meta, uint32_t storage)
{
    plim_t t = m->free_tensor;
    if (t != PLIM_NONE) {
        plim_assert(!m_tensor_at(m, t)->refs);
        m->free_tensor = m_tensor_at(m, t)->acc;
    } else {
        if (m->n_tensors == m->tpages * TENSOR_PAGE &&
            !plim__page_room(m, (void ***)&m->tpage, &m->tpages, &m->tpages_cap,
                             sizeof(m_tensor) * TENSOR_PAGE)) {
            plim_m_oom(m);
            return 0;
        }
        t = m->n_tensors++;
        m_tensor_at(m, t)->generation = 0;
    }
    m_tensor *x = m_tensor_at(m, t);
    plim_assert(t);
    x->meta = *meta;
    x->storage = storage;
    x->refs = 1;
    x->gnode = x->acc = PLIM_NONE;
    x->gslot = 0;
    x->grad = x->base = x->cast = x->indices = x->values = 0;
    x->requires_grad = x->wrapped = x->is_view = x->moves = false;
    if (storage != PLIM_NONE)
        m_s(m, storage)->refs++;
    return m_handle(t, x->generation);
}

plim_t plim__tensor_new(plim_machine *m, const plim_meta *meta, uint32_t storage)
{
    return meta_fits(m, meta) ? tensor_make(m, meta, storage) : 0;
}

const plim_meta *plim__meta_kept(plim_machine *m, const plim_meta *meta)
{
    uint64_t h = (uint64_t)meta->dtype;
    for (int32_t i = 0; i < meta->rank; i++)
        h = (h ^ (uint64_t)meta->dim[i] ^ (uint64_t)meta->stride[i] << 20) *
            0x9e3779b97f4a7c15u;
    const plim_meta **slot = &m->metas[h >> 58];
    if (*slot && memcmp(*slot, meta, sizeof *meta) == 0)
        return *slot;
    plim_meta *copy = PLIM_NEW(m->arena, plim_meta);
    if (copy)
        *copy = *meta;
    return *slot = copy;
}

void plim__storage_alloc(plim_machine *m, uint32_t s, const plim_meta *meta, plim_storage row)
{
    plim_assert(m->tape && m_s(m, s)->tape == PLIM_NONE);
    row.name = m->name;
    row.role = m->role;
    row.meta = plim__meta_kept(m, meta);
    m_s(m, s)->tape = plim_tape_alloc(m->tape, &row);
    if (m_s(m, s)->tape == PLIM_NONE || !row.meta)
        plim_m_oom(m);
    else
        m->tape->events[m->tape->n_events - 1].stream = m->stream;
    if (!m->st && m->tape->ends && m->tape->ends(m->tape->ends_ud))
        m->st = plim_fail(m->err, PLIM_ERANGE, 0, "nobody asks for the rest of the run");
}

/* `row` gives its category. */
static uint32_t storage_new(plim_machine *m, const plim_meta *meta, plim_storage row)
{
    uint32_t s = m->free_storage;
    if (s != PLIM_NONE) {
        plim_assert(!m_s(m, s)->refs);
        m->free_storage = m_s(m, s)->tape;
    } else {
        if (!PLIM_PUSH_ROOM(m->arena, m->storages, m->n_storages, m->cap_storages)) {
            plim_m_oom(m);
            return PLIM_NONE;
        }
        s = m->n_storages++;
    }
    m->storages[s] = (m_storage){.refs = 0, .tape = PLIM_NONE};
    if (m->tape)
        plim__storage_alloc(m, s, meta, row);
    return s;
}

/* ---- tensors ------------------------------------------------------------ */

/* Once the machine has failed, rules go on with tensors that could not be made.  They count dimensions
 * from both ends, and add some. */
const plim_meta *plim_m_meta(const plim_machine *m, plim_t t)
{
    static const plim_meta failed = {
        .dtype = PLIM_F32, .rank = 4, .dim = {1, 1, 1, 1}, .stride = {1, 1, 1, 1}};
    return !t && m->st ? &failed : &m_t(m, t)->meta;
}

bool plim_m_requires_grad(const plim_machine *m, plim_t t) { return m_t(m, t)->requires_grad; }
const plim_world *plim_m_world(const plim_machine *m) { return &m->world; }
void plim_m_set_libraries(plim_machine *m, plim_libraries lib) { m->world.lib = lib; }

void plim__tell_tape(plim_machine *m, plim_event e)
{
    if (m->tape && !m->st && !plim_tape_event(m->tape, e))
        plim_m_oom(m);
}

void plim_m_empty_cache(plim_machine *m)
{
    plim__tell_tape(m, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
}

void plim_m_search(plim_machine *m, plim_str key)
{
    plim_map *known = &m->searched[m->autograd_thread];
    uint32_t yes;
    if (!m->tape || m->st || plim_map_get(known, key, &yes))
        return;
    m->tape->searched = true;
    plim_str copy = plim_arena_str(m->arena, key);
    if (!copy.p || !plim_map_put(m->arena, known, copy, true))
        plim_m_oom(m);
    plim_m_empty_cache(m);
}

int plim_m_sms(plim_machine *m, int *threads_per_sm)
{
    plim_assert(m->world.sms >= 0 && m->world.threads_per_sm >= 0);
    m->asked.sms = true;
    if (threads_per_sm)
        *threads_per_sm =
            m->world.threads_per_sm ? m->world.threads_per_sm : PLIM_USUAL_THREADS_PER_SM;
    return m->world.sms ? m->world.sms : PLIM_USUAL_SMS;
}
plim_asked plim_m_asked(const plim_machine *m) { return m->asked; }
void plim_m_ask_anew(plim_machine *m) { m->asked = plim_asked_nothing(); }
bool plim_m_is_wrapped(const plim_machine *m, plim_t t) { return m_t(m, t)->wrapped; }

plim_t plim__tensor_fresh(plim_machine *m, const plim_meta *meta, plim_storage row)
{
    if (m->st)
        return 0;
    if (!meta_fits(m, meta) || !plim_meta_bytes(meta, &row.bytes))
        return 0;
    uint32_t s = PLIM_NONE;
    if (m->ledger && row.category != PLIM_CAT_WORKSPACE && row.bytes && !m->stopped) {
        plim__work_wrote(m, meta, row.bytes);
    }
    if ((row.bytes || row.high) && !m->stopped) {
        s = storage_new(m, meta, row);
        if (s == PLIM_NONE)
            return 0;
    }
    return tensor_make(m, meta, s);
}

plim_t plim_m_empty(plim_machine *m, const plim_meta *meta)
{
    return plim__tensor_fresh(m, meta, (plim_storage){.category = m->category});
}

plim_t plim_m_empty_contig(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_meta meta = plim_meta_make(t, rank, dim);
    return plim_m_empty(m, &meta);
}

plim_t plim_m_empty_like(plim_machine *m, plim_t t)
{
    plim_meta meta = plim_meta_like(plim_m_meta(m, t), plim_m_meta(m, t)->dtype);
    return plim_m_empty(m, &meta);
}

plim_t plim_m_empty_maybe(plim_machine *m, const plim_meta *meta)
{
    uint64_t bytes = 0;
    plim_meta_bytes(meta, &bytes); /* on overflow plim__tensor_fresh() fails */
    return plim__tensor_fresh(
        m, meta,
        (plim_storage){.high = bytes, .category = m->category, .certainty = PLIM_ESTIMATED});
}

plim_t plim_m_empty_rows(plim_machine *m, const plim_meta *meta, plim_rows n)
{
    plim_assert(n.low <= n.usual && n.usual <= n.high);
    plim_meta whole = *meta;
    plim_storage row = {.category = m->category, .certainty = PLIM_ESTIMATED};
    if (n.low == n.high)
        return plim_m_empty(m, meta);
    whole.dim[0] = (int64_t)n.low;
    plim_meta_bytes(&whole, &row.low);
    whole.dim[0] = (int64_t)n.high;
    if (!plim_meta_bytes(&whole, &row.high))
        return plim_m_empty(m, &whole); /* reports the overflow */
    return plim__tensor_fresh(m, meta, row);
}

static plim_t scratch_new(plim_machine *m, uint64_t low, uint64_t usual, uint64_t high,
                          plim_certainty certainty)
{
    plim_assert(!high || (low <= usual && usual <= high));
    if (!m->world.lib.workspace || !PLIM_MAX(usual, high) ||
        PLIM_MAX(usual, high) > (uint64_t)1 << 60)
        return 0;
    plim_meta meta = plim_meta_make(PLIM_U8, 1, (int64_t[]){(int64_t)usual});
    return plim__tensor_fresh(m, &meta,
                              (plim_storage){.low = low,
                                             .high = high,
                                             .category = PLIM_CAT_WORKSPACE,
                                             .certainty = (uint8_t)certainty});
}

plim_t plim_m_scratch(plim_machine *m, uint64_t bytes)
{
    return scratch_new(m, 0, bytes, 0, PLIM_EXACT);
}

plim_t plim_m_scratch_of(plim_machine *m, plim_dtype t, int32_t rank, const int64_t *dim)
{
    plim_meta meta = plim_meta_make(t, rank, dim);
    return m->world.lib.workspace
               ? plim__tensor_fresh(m, &meta, (plim_storage){.category = PLIM_CAT_WORKSPACE})
               : 0;
}

plim_t plim_m_scratch_range(plim_machine *m, uint64_t low, uint64_t usual, uint64_t high)
{
    return scratch_new(m, low, usual, high, PLIM_ESTIMATED);
}

plim_t plim_m_scratch_about(plim_machine *m, uint64_t bytes)
{
    return plim_m_scratch_range(m, 0, bytes, bytes > UINT64_MAX / 2 ? bytes : 2 * bytes);
}

plim_t plim_m_scratch_by_sms(plim_machine *m, uint64_t bytes)
{
    return m->world.sms_are == PLIM_UNKNOWN_BYTES
               ? plim_m_scratch_about(m, bytes)
               : scratch_new(m, 0, bytes, 0, m->world.sms_are);
}

plim_t plim_m_kept(plim_machine *m, plim_str key, const plim_meta *meta)
{
    for (uint32_t i = 0; i < m->n_kept; i++) {
        const plim_meta *have = plim_m_meta(m, m->kept[i].t);
        if (plim_str_eq(m->kept[i].key, key) && have->dtype == meta->dtype &&
            plim_same_size(have, meta))
            return m->kept[i].t;
    }
    if (!m->world.lib.workspace || m->st || m->stopped)
        return 0;
    if (!PLIM_PUSH_ROOM(m->arena, m->kept, m->n_kept, m->cap_kept)) {
        plim_m_oom(m);
        return 0;
    }
    struct m_kept *row = &m->kept[m->n_kept];
    plim_str name = m->name;
    const char *role = m->role;
    m->name = key;
    m->role = NULL;
    *row = (struct m_kept){key, plim_m_scratch_of(m, meta->dtype, meta->rank, meta->dim)};
    m->n_kept += row->t != 0;
    m->name = name;
    m->role = role;
    return row->t;
}

void plim_m_set_attribute(plim_machine *m, plim_str name, plim_t t)
{
    uint32_t i = 0;
    while (i < m->n_attributes && !plim_str_eq(m->attribute[i].key, name))
        i++;
    if (m->st || m->stopped)
        return;
    if (i == m->n_attributes) {
        if (!PLIM_PUSH_ROOM(m->arena, m->attribute, m->n_attributes, m->cap_attributes)) {
            plim_m_oom(m);
            return;
        }
        m->attribute[m->n_attributes++] = (struct m_kept){name, 0};
    }
    plim_t old = m->attribute[i].t;
    m->attribute[i].t = plim_m_ref(m, t);
    plim_m_drop(m, old);
}

void plim_m_defer(plim_machine *m, plim_t t)
{
    if (m->st || m->stopped)
        return;
    if (!PLIM_PUSH_ROOM(m->arena, m->deferred, m->n_deferred, m->cap_deferred)) {
        plim_m_oom(m);
        return;
    }
    m->deferred[m->n_deferred++] = plim_m_ref(m, t);
}

uint32_t plim_m_deferred(const plim_machine *m) { return m->n_deferred; }

void plim_m_catch_up(plim_machine *m)
{
    while (m->n_deferred)
        plim_m_drop(m, m->deferred[--m->n_deferred]);
}

plim_t plim_m_alias(plim_machine *m, plim_t t, const plim_meta *meta)
{
    if (m->st)
        return 0;
    plim_t a = plim__tensor_new(m, meta, m_t(m, t)->storage);
    if (a) {
        m_t(m, a)->is_view = true;
        m_t(m, a)->wrapped = m_t(m, t)->wrapped;
    }
    return a;
}

plim_t plim_m_outside(plim_machine *m, const plim_meta *meta)
{
    return m->st ? 0 : plim__tensor_new(m, meta, PLIM_NONE);
}

plim_t plim_m_sparse(plim_machine *m, const plim_meta *meta, plim_t indices, plim_t values,
                     bool coalesced)
{
    plim_t t = m->st ? 0 : plim__tensor_new(m, meta, PLIM_NONE);
    if (t) {
        m_tensor *x = m_t(m, t);
        plim_assert(indices && values);
        x->indices = indices;
        x->values = values;
        x->coalesced = coalesced || plim_m_meta(m, values)->dim[0] < 2;
    }
    return t;
}

plim_t plim_m_indices(const plim_machine *m, plim_t t) { return m_t(m, t)->indices; }
plim_t plim_m_values(const plim_machine *m, plim_t t) { return m_t(m, t)->values; }
bool plim_m_coalesced(const plim_machine *m, plim_t t) { return m_t(m, t)->coalesced; }

plim_t plim_m_sparse_copy(plim_machine *m, plim_t t)
{
    plim_assert(m->st || m_t(m, t)->values);
    const m_tensor *x = m_t(m, t);
    plim_t values = plim_m_empty_like(m, x->values),
           indices = plim_m_empty_like(m, x->indices);
    return plim_m_sparse(m, &x->meta, indices, values, x->coalesced);
}

plim_t plim_m_sparse_like(plim_machine *m, plim_t t, int64_t n)
{
    plim_assert(n >= 0 && (m->st || m_t(m, t)->values));
    const m_tensor *x = m_t(m, t);
    plim_meta i = *plim_m_meta(m, x->indices), v = *plim_m_meta(m, x->values);
    i.dim[1] = v.dim[0] = n;
    plim_meta_contiguous(&i);
    plim_meta_contiguous(&v);
    plim_t indices = plim_m_empty(m, &i), values = plim_m_empty(m, &v);
    return plim_m_sparse(m, &x->meta, indices, values, false);
}

uint32_t plim_m_tape_storage(const plim_machine *m, plim_t t)
{
    uint32_t s = m_t(m, t)->storage;
    return s == PLIM_NONE ? PLIM_NONE : m_s(m, s)->tape;
}

plim_t plim_m_wrapped(plim_machine *m, bool is_float)
{
    plim_meta meta = plim_meta_make(is_float ? PLIM_F64 : PLIM_I64, 0, NULL);
    plim_t t = plim_m_outside(m, &meta);
    if (t)
        m_t(m, t)->wrapped = true;
    return t;
}

plim_storage *plim__tape_row(const plim_machine *m, plim_t t)
{
    uint32_t s = m->tape ? plim_m_tape_storage(m, t) : PLIM_NONE;
    return s == PLIM_NONE ? NULL : &m->tape->storages[s];
}

void plim_m_set_category(plim_machine *m, plim_t t, plim_category c)
{
    plim_assert(c < PLIM_CAT_COUNT);
    plim_storage *row = plim__tape_row(m, t);
    if (row)
        row->category = (uint8_t)c;
}

/* ---- leaves, gradients, workspaces ------------------------------------- */

void plim_m_place(plim_machine *m, uint32_t where, plim_str name, const char *role,
                  plim_category c)
{
    plim_assert(c < PLIM_CAT_COUNT);
    m->where = where;
    m->name = name;
    m->role = role;
    m->category = (uint8_t)c;
}

bool plim_m_grad_mode(const plim_machine *m) { return m->grad_mode; }
void plim_m_set_grad_mode(plim_machine *m, bool on) { m->grad_mode = on; }

plim_t plim_m_leaf(plim_machine *m, const plim_meta *meta, bool requires_grad)
{
    plim_t t = plim_m_empty(m, meta);
    m_t(m, t)->requires_grad = t && requires_grad;
    return t;
}

plim_t plim_m_as_leaf(plim_machine *m, plim_t t, bool requires_grad)
{
    m_t(m, t)->requires_grad = t && requires_grad;
    m_t(m, t)->is_view = false;
    return t;
}

void plim_m_set_data(plim_machine *m, plim_t leaf, plim_t t)
{
    if (m->st)
        return;
    plim_assert(leaf);
    m_tensor *x = m_t(m, leaf);
    uint32_t old = x->storage;
    x->moves = true;
    x->storage = t ? m_t(m, t)->storage : PLIM_NONE;
    if (x->storage != PLIM_NONE)
        m_s(m, x->storage)->refs++;
    plim__storage_unref(m, old);
}

plim_t plim_m_detached(plim_machine *m, plim_t t)
{
    plim_t d = plim_m_alias(m, t, plim_m_meta(m, t));
    m_t(m, d)->unheard = d != 0;
    return plim_m_as_leaf(m, d, m_t(m, t)->requires_grad);
}

plim_t plim_m_as_input(plim_machine *m, plim_t t)
{
    m_t(m, t)->unheard = t != 0;
    return plim_m_as_leaf(m, t, true);
}

plim_t plim_m_grad(const plim_machine *m, plim_t leaf) { return m_t(m, leaf)->grad; }

void plim_m_set_grad(plim_machine *m, plim_t leaf, plim_t grad)
{
    plim_t old = m_t(m, leaf)->grad;
    m_t(m, leaf)->grad = grad;
    plim_m_drop(m, old);
}

void plim_m_clear_sparse(plim_machine *m, plim_t leaf)
{
    plim_t g = m_t(m, leaf)->grad;
    if (plim_m_values(m, g))
        plim_m_set_grad(m, leaf, plim_m_sparse_like(m, g, 0));
}

/* src: docs/sources/workspaces.md 1 to 3.  Handles are per thread; the first cuBLAS call of a
 * thread allocates its workspace. */
static void workspace_take(plim_machine *m, plim_t *held, uint64_t bytes, bool temporary)
{
    plim_str name = m->name;
    const char *role = m->role;
    if (!bytes || (!temporary && *held))
        return;
    m->name = PLIM_STR("cublas");
    m->role = m->autograd_thread ? "workspace of the autograd thread" : "workspace";
    plim_t t = plim_m_scratch(m, bytes);
    if (temporary)
        plim_m_drop(m, t);
    else
        *held = t;
    m->name = name;
    m->role = role;
}

void plim_m_calls(plim_machine *m, plim_cuda_library library)
{
    if (m->tape)
        m->tape->callers[library] |= (uint8_t)(m->autograd_thread ? 2 : 1);
}

void plim_m_gemm(plim_machine *m, bool lt)
{
    const plim_world *w = &m->world;
    int thread = m->autograd_thread;
    plim_m_calls(m, PLIM_CUBLAS);
    if (!w->lib.workspace || m->st || m->stopped)
        return;
    if (!lt || !w->lt_ws_temporary || !w->cublas_ws_temporary)
        workspace_take(m, &m->blas_ws[thread], w->cublas_ws, w->cublas_ws_temporary);
    if (lt)
        workspace_take(m, &m->lt_ws[thread], w->lt_ws, w->lt_ws_temporary);
}
