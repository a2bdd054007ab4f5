/* measured.c -- see measured.h. */
#include "time/measured.h"

#include <math.h>
#include <string.h>

/* Share of the bandwidth of copies between layouts and of passes for a bias, which move large tensors once.
 * src: measured.def, copies of 512 MiB: 3011 of 3350 GB/s, less what a kernel loses at its ends */
static const double COPY_SHARE = 0.85;

enum {
    FORM_PLAIN = PLIM_FORM_PLAIN,
    FORM_LAST = PLIM_FORM_LAST,
    FORM_ODD = PLIM_FORM_ODD,
    FORM_ANY = -1,
    PASS_FORWARD = 0,
    PASS_BACKWARD = 1,
    PASS_ANY = -1,
    MEASURED = 0,
    FITTED = 0,
    ASSUMED = 1
};

static const plim_kind kinds[] = {
#define PLIM_KIND(card, class, numbers, form, pass, compute, side, memory, copies, blocks,    \
                  block_ns, start_us, certainty)                                              \
    {card,                                                                                    \
     PLIM_WORK_##class,                                                                       \
     PLIM_NUMBERS_##numbers,                                                                  \
     FORM_##form,                                                                             \
     PASS_##pass,                                                                             \
     compute,                                                                                 \
     side,                                                                                    \
     memory,                                                                                  \
     copies,                                                                                  \
     blocks,                                                                                  \
     block_ns,                                                                                \
     start_us,                                                                                \
     certainty},
#define PLIM_HOST(card, call, node, kernel, optimizer, library, certainty)
#define PLIM_LIKE(card, other)
#include "time/measured.def"
#undef PLIM_KIND
#undef PLIM_HOST
#undef PLIM_LIKE
};

/* Microseconds. */
typedef struct host_row {
    const char *card;
    double call, node, kernel, optimizer, library;
} host_row;

static const host_row hosts[] = {
#define PLIM_KIND(card, class, numbers, form, pass, compute, side, memory, copies, blocks,    \
                  block_ns, start_us, certainty)
#define PLIM_HOST(card, call, node, kernel, optimizer, library, certainty)                    \
    {card, call, node, kernel, optimizer, library},
#define PLIM_LIKE(card, other)
#include "time/measured.def"
#undef PLIM_KIND
#undef PLIM_HOST
#undef PLIM_LIKE
};

static const struct {
    const char *card, *other;
} alike[] = {
#define PLIM_KIND(card, class, numbers, form, pass, compute, side, memory, copies, blocks,    \
                  block_ns, start_us, certainty)
#define PLIM_HOST(card, call, node, kernel, optimizer, library, certainty)
#define PLIM_LIKE(card, other) {card, other},
#include "time/measured.def"
#undef PLIM_KIND
#undef PLIM_HOST
#undef PLIM_LIKE
};

/* NULL: the card was not measured. */
static const host_row *host_of(const plim_gpu *gpu)
{
    for (size_t i = 0; i < PLIM_COUNT(hosts); i++)
        if (plim_gpu_is(gpu, hosts[i].card))
            return &hosts[i];
    return NULL;
}

static bool is_half(const plim_work *row)
{
    return row->dtype == PLIM_F16 || row->dtype == PLIM_BF16;
}

/* Products of other numbers have no rate here; what multiplies nothing goes by its bytes. */
static plim_kind_numbers numbers_of(const plim_work *row)
{
    if (is_half(row))
        return PLIM_NUMBERS_HALF;
    if (row->macs && row->dtype != PLIM_F32)
        return PLIM_NUMBERS_ANY;
    return plim_work_is_conv((plim_work_class)row->klass) && !row->full ? PLIM_NUMBERS_TF32
                                                                        : PLIM_NUMBERS_FULL;
}

static bool kind_matches(const plim_kind *k, const plim_work *row, plim_kind_numbers numbers)
{
    return k->klass == (plim_work_class)row->klass &&
           (k->numbers == PLIM_NUMBERS_ANY || k->numbers == numbers) &&
           (k->form == FORM_ANY || k->form == row->form) &&
           (k->pass == PASS_ANY || (k->pass == PASS_BACKWARD) == row->gradient);
}

static const plim_kind *find_kind(const char *card, const plim_work *row)
{
    plim_kind_numbers numbers = numbers_of(row);
    if (row->macs && numbers == PLIM_NUMBERS_ANY)
        return NULL;
    for (size_t i = 0; i < PLIM_COUNT(kinds); i++)
        if (!strcmp(kinds[i].card, card) && kind_matches(&kinds[i], row, numbers))
            return &kinds[i];
    return NULL;
}

const plim_kind *plim_kind_of(const plim_work *row, const plim_gpu *gpu, bool *assumed)
{
    const host_row *h = host_of(gpu);
    const plim_kind *own = h ? find_kind(h->card, row) : NULL;
    *assumed = !h || (own && own->assumed);
    if (h)
        return own;
    for (size_t i = 0; i < PLIM_COUNT(alike); i++)
        if (plim_gpu_is(gpu, alike[i].card))
            return find_kind(alike[i].other, row);
    return NULL;
}

/* TFLOPS.  Depthwise convolutions do not run on tensor cores. */
static double peak_of(const plim_work *row, const plim_gpu *gpu)
{
    if (row->klass == PLIM_WORK_conv_depthwise)
        return gpu->fp32;
    switch (numbers_of(row)) {
    case PLIM_NUMBERS_HALF: return gpu->fp16_acc32;
    case PLIM_NUMBERS_TF32: return gpu->tf32;
    default: return gpu->fp32;
    }
}

/* What multiplies and what moves overlap in part. */
plim_kind_time plim_kind_seconds(const plim_kind *k, const plim_work *row, const plim_gpu *gpu)
{
    double bandwidth = gpu->bandwidth_gbs * 1e9, side = (double)row->side,
           blocks = (double)row->blocks, compute = k->compute, memory = k->memory;
    plim_assert(bandwidth > 0 && memory > 0);
    if (row->side && k->side > 0)
        compute *= side / (side + k->side);
    if (row->blocks && blocks < k->blocks)
        memory *= blocks / k->blocks;
    plim_kind_time t = {.moved = (double)row->bytes / (bandwidth * memory)};
    if (row->macs && compute > 0)
        t.computed = 2 * (double)row->macs / (peak_of(row, gpu) * 1e12 * compute);
    double besides =
        (k->copies * (double)row->bytes + (double)row->bias) / (bandwidth * COPY_SHARE) +
        blocks * k->block_ns * 1e-9;
    t.started = row->kernels * k->start_us * 1e-6;
    t.all = hypot(t.computed, t.moved) + besides + t.started;
    t.moved += besides;
    return t;
}

double plim_host_seconds(const plim_ledger *ledger, const plim_gpu *gpu)
{
    const host_row *h = host_of(gpu);
    if (!h)
        return -1;
    bool library = ledger->graph && ledger->graph->about.model_type.n;
    double us =
        ledger->calls * (h->call + (library ? h->library : 0)) + ledger->nodes * h->node;
    for (uint32_t i = 0; i < ledger->n; i++) {
        bool step = ledger->rows[i].phase == PLIM_PHASE_OPTIMIZER;
        us += ledger->rows[i].kernels * (step ? h->optimizer : h->kernel);
    }
    return us * 1e-6;
}
