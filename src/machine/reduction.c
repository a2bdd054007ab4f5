/* reduction.c -- see reduction.h.
 *
 * Results that are too few to fill the card are each computed by several blocks of threads, which
 * need a buffer and semaphores.  An input of more bytes than 32 bits can address is reduced in
 * parts, whose results need a place of their own if the result's type cannot hold them.
 * src: aten/src/ATen/native/cuda/Reduce.cuh (1.13 to 2.14), ATen/TensorIterator.cpp; docs/sources/workspaces.md 5 */
#include "machine/reduction.h"

/* ---- axes ------------------------------------------------------------------------ */

/* Strides of the input and the result in bytes; of the result 0 if the dim is reduced. */
typedef struct axis {
    int64_t size, in, out;
} axis;

typedef struct reduction {
    plim_machine *m;
    uint64_t element, bytes; /* of the input, a partial result */
    uint32_t parts_left;
} reduction;

/* The dims of one part, the fastest first, those that are reduced before the others. */
typedef struct part {
    axis axis[PLIM_MAX_RANK];
    int32_t n, reduced;
} part;

/* src: TensorIteratorBase::reorder_dimensions; 0: it does not say */
static int compare_axes(const axis *a, const axis *b)
{
    if (!a->out != !b->out)
        return b->out ? -1 : 1;
    if (a->out != b->out)
        return a->out < b->out ? -1 : 1;
    if (a->out && a->size > b->size)
        return 1;
    if (!a->in || !b->in)
        return 0;
    return a->in < b->in ? -1 : a->in > b->in || a->size > b->size;
}

static void sort_axes(part *p)
{
    for (int32_t i = 1; i < p->n; i++)
        for (int32_t low = i - 1, high = i; low >= 0; low--) {
            const int order = compare_axes(&p->axis[low], &p->axis[high]);
            if (order < 0)
                break;
            if (!order)
                continue;
            const axis moved = p->axis[low];
            p->axis[low] = p->axis[high];
            p->axis[high] = moved;
            high = low;
        }
}

static void join_axes(part *p)
{
    int32_t n = 0;
    for (int32_t i = 0; i < p->n; i++) {
        const axis next = p->axis[i];
        axis *last = n ? &p->axis[n - 1] : NULL;
        if (last && last->size == 1)
            *last = next;
        else if (!last ||
                 (next.size != 1 && (plim_dim_mul(last->size, last->in) != next.in ||
                                     plim_dim_mul(last->size, last->out) != next.out)))
            p->axis[n++] = next;
        else
            last->size *= next.size;
    }
    p->n = n;
}

/* result: the bytes of one, of the widest if there are several */
static part make_part(const plim_meta *x, uint32_t mask, int64_t element, int64_t result)
{
    plim_assert(element > 0 && result > 0);
    part p = {.n = x->rank};
    int64_t out = result;
    for (int32_t i = 0; i < x->rank; i++) {
        const int32_t dim = x->rank - 1 - i;
        const bool kept = !(mask >> dim & 1);
        p.axis[i] = (axis){.size = x->dim[dim],
                           .in = plim_dim_mul(x->stride[dim], element),
                           .out = kept ? out : 0};
        out = kept ? plim_dim_mul(out, x->dim[dim]) : out;
    }
    sort_axes(&p);
    join_axes(&p);
    while (p.reduced < p.n && !p.axis[p.reduced].out)
        p.reduced++;
    return p;
}

static uint64_t count_elements(const part *p, int32_t first, int32_t end)
{
    plim_assert(first >= 0 && first <= end && end <= p->n);
    uint64_t n = 1;
    for (int32_t i = first; i < end; i++)
        n *= (uint64_t)p->axis[i].size;
    return n;
}

/* ---- one part ------------------------------------------------------------------------ */

static uint64_t pow2_below(uint64_t v, uint64_t cap)
{
    uint64_t p = 1;
    while (p * 2 <= v && p * 2 <= cap)
        p *= 2;
    plim_assert(p <= PLIM_MAX(v, 1));
    return p;
}

/* Results that a thread computes at once where the fastest dim is kept. */
static uint64_t output_vector(const reduction *r, const part *p)
{
    uint64_t vector = 4;
    for (int32_t i = 0; i < p->n; i++) {
        const uint64_t n =
            i == p->reduced ? (uint64_t)p->axis[i].size : (uint64_t)p->axis[i].in / r->element;
        while (n % vector)
            vector /= 2;
    }
    return vector;
}

/* That a thread reads several inputs at once is left out: it matters to fewer inputs than need a
 * buffer.  src: setReduceConfig, ReduceConfig::set_block_dimension */
static void reduce_part(const reduction *r, const part *p)
{
    enum { LEAST = 16, MOST = 256 }; /* values for each thread */
    enum { WARP = 32, THREADS = 512, COMPLEX_128 = 16 };
    const uint64_t inputs = count_elements(p, 0, p->reduced),
                   outputs = count_elements(p, p->reduced, p->n);
    const bool fast = p->reduced == p->n || p->axis[0].in < p->axis[p->reduced].in;
    const bool dense = !fast && p->axis[p->reduced].in == (int64_t)r->element;
    const uint64_t vector = dense ? output_vector(r, p) : 1,
                   width_of = fast ? inputs : outputs / vector,
                   height_of = fast ? outputs : inputs;
    plim_assert(vector > 0);
    const uint64_t most = (r->element == COMPLEX_128 ? THREADS / 2 : THREADS) / vector;
    uint64_t width = PLIM_MIN(pow2_below(width_of, most), WARP);
    const uint64_t height = PLIM_MIN(pow2_below(height_of, most), most / width);
    width = PLIM_MIN(pow2_below(width_of, most), most / height);
    uint64_t step_in = fast ? width : 1;
    const uint64_t step_out = fast ? 1 : width;
    if (plim_ceil_div(inputs, step_in) < PLIM_MIN(height * LEAST, MOST))
        return;
    step_in *= height;
    const uint64_t values = plim_ceil_div(inputs, step_in),
                   grid = plim_ceil_div(outputs / vector, step_out);
    if (values < MOST)
        return;
    int threads = 0;
    const uint64_t sms = (uint64_t)plim_m_sms(r->m, &threads),
                   target = sms * ((uint64_t)threads / (width * height));
    if (grid > target)
        return;
    const uint64_t blocks =
        PLIM_MAX(PLIM_MIN(plim_ceil_div(target, grid), plim_ceil_div(values, LEAST)),
                 plim_ceil_div(values, MOST));
    if (blocks < 2)
        return;
    const uint64_t buffer = r->bytes * outputs * blocks * (fast ? 1 : width * vector);
    plim_t b = plim_m_scratch_by_sms(r->m, buffer), s = plim_m_scratch_by_sms(r->m, 4 * grid);
    plim_m_drop(r->m, s);
    plim_m_drop(r->m, b);
}

/* ---- all parts ----------------------------------------------------------------------- */

/* Bytes from the first to the last. */
static uint64_t measure_span(int64_t size, int64_t stride)
{
    return plim_sat_mul((uint64_t)(size - 1), (uint64_t)stride);
}

/* src: TensorIteratorBase::can_use_32bit_indexing */
static bool fits_32bit(const part *p)
{
    uint64_t in = 1, out = 1;
    for (int32_t i = 0; i < p->n; i++) {
        in = plim_sat_add(in, measure_span(p->axis[i].size, p->axis[i].in));
        out = plim_sat_add(out, measure_span(p->axis[i].size, p->axis[i].out));
    }
    return count_elements(p, 0, p->n) <= INT32_MAX && in <= INT32_MAX && out <= INT32_MAX;
}

/* src: TensorIteratorBase::get_dim_to_split */
static int32_t find_longest(const part *p)
{
    int32_t longest = p->n - 1;
    uint64_t most = 0;
    for (int32_t i = p->n - 1; i >= 0; i--) {
        const axis *a = &p->axis[i];
        const uint64_t extent = measure_span(a->size, PLIM_MAX(a->in, a->out));
        longest = extent > most ? i : longest;
        most = PLIM_MAX(most, extent);
    }
    return longest;
}

/* Halves the longest dim until it fits.  src: SplitUntil32Bit */
static void reduce_parts(reduction *r, part p)
{
    while (r->parts_left && !fits_32bit(&p)) {
        part first = p;
        const int32_t split = find_longest(&p);
        /* many elements that share their bytes: PyTorch fails */
        if (p.axis[split].size < 2)
            return;
        first.axis[split].size /= 2;
        p.axis[split].size -= first.axis[split].size;
        reduce_parts(r, first);
    }
    if (!r->parts_left)
        return;
    r->parts_left--;
    reduce_part(r, &p);
}

static uint64_t partial_bytes(plim_partial partial, uint64_t element)
{
    switch (partial) {
    case PLIM_PARTIAL_SUM: return PLIM_MAX(element, 4);
    case PLIM_PARTIAL_EXTREME: return element;
    case PLIM_PARTIAL_FLAG: return 1;
    case PLIM_PARTIAL_PLACE: return 16;
    case PLIM_PARTIAL_PAIR: return 2 * element;
    case PLIM_PARTIAL_MOMENTS: return element == 8 ? 32 : 16;
    }
    return 0;
}

void plim_m_reduce(plim_machine *m, const plim_meta *x, uint32_t mask, plim_partial partial,
                   plim_dtype out)
{
    const plim_dtype_row *t = &plim_dtype_rows[x->dtype];
    uint64_t n = 0;
    if (!plim_m_world(m)->lib.workspace || plim_m_bad(m) || !plim_meta_numel(x, &n) || !n ||
        t->bits < 8)
        return;
    const uint64_t element = t->bits / 8, result = plim_dtype_bytes(out),
                   widest = partial == PLIM_PARTIAL_PLACE ? sizeof(int64_t) : result;
    reduction r = {.m = m,
                   .element = element,
                   .bytes = partial_bytes(partial, element),
                   .parts_left = 1 << 12 /* no card has memory for more */};
    const part whole = make_part(x, mask, (int64_t)element, (int64_t)widest);
    const bool number = partial <= PLIM_PARTIAL_FLAG;
    plim_t kept = 0;
    if (!fits_32bit(&whole) && r.bytes > result &&
        (!number || plim_m_world(m)->torch >= PLIM_SINCE_REDUCE_KEEPS_FP32))
        kept = plim_m_scratch(
            m, plim_sat_mul(r.bytes, count_elements(&whole, whole.reduced, whole.n)));
    reduce_parts(&r, whole);
    plim_m_drop(m, kept);
}

void plim_reduce_scratch(plim_machine *m, const plim_meta *x, uint32_t mask)
{
    plim_m_reduce(m, x, mask, PLIM_PARTIAL_SUM, x->dtype);
}

void plim_reduce_pair_scratch(plim_machine *m, const plim_meta *x)
{
    plim_m_reduce(m, x, (1u << x->rank) - 1, PLIM_PARTIAL_PAIR, x->dtype);
}
