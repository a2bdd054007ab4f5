/* time.c -- see time.h. */
#include "time/time.h"

#include <string.h>

#include "time/measured.h"

const char *plim_time_limit_name(plim_time_limit l)
{
    static const char *const names[PLIM_TIME_LIMITS] = {"computation", "memory traffic",
                                                        "kernel launches"};
    return names[l];
}

/* ---- rates ------------------------------------------------------------------- */

/* The share of the card's peak that products of a class reach, and of its bandwidth that the
 * class reaches; 0: never measured. */
typedef struct class_rates {
    double compute, memory, backward;
} class_rates;

static const class_rates *rates_of(plim_work_class c)
{
    plim_assert((unsigned)c < PLIM_WORK_CLASSES);
    static const class_rates rows[PLIM_WORK_CLASSES] = {
#define RATE(class, compute, memory, backward)                                                \
    [PLIM_WORK_##class] = {compute, memory, backward},
#define CARD(name, half, full, memory)
#include "time/rates.def"
#undef RATE
#undef CARD
    };
    return &rows[c];
}

/* What a card multiplies the shares by; 0: not measured. */
typedef struct card_rates {
    const char *name;
    double half, full, memory;
} card_rates;

/* The row of a card, by the first of its aliases. */
static const card_rates *card_of(const plim_gpu *gpu)
{
    static const card_rates unmeasured = {"", 0, 0, 0};
    static const card_rates rows[] = {
#define RATE(class, compute, memory, backward)
#define CARD(name, half, full, memory) {name, half, full, memory},
#include "time/rates.def"
#undef RATE
#undef CARD
    };
    for (size_t i = 0; i < PLIM_COUNT(rows); i++)
        if (plim_gpu_is(gpu, rows[i].name))
            return &rows[i];
    return &unmeasured;
}

/* The median of CARD's figures for fp32. */
static const double usual_full = 0.76;

/* Microseconds that a kernel adds on the card, before and after all of the card works for it:
 * fitted with the rates, to steps at many batches too.  A term by tiles and multiprocessors
 * instead, or as well, fits these no better.  And those that eager PyTorch needs on the CPU to
 * start a kernel: the geometric mean of the four machines of the fitted half, 27 to 38. */
static const double launch_us = 8.83, cpu_us = 32;

/* How a product's rate on a card is known. */
typedef enum evidence {
    BY_NOTHING, /* from other cards */
    BY_KERNELS, /* measured alone */
    BY_STEPS,
    BY_KINDS /* kernels of each kind, alone and in steps: measured.def */
} evidence;

/* The range: what the usual time is multiplied by.  Nine in ten of what the rates were fitted to,
 * single kernels or steps, are within it, training widened after a look at the half that
 * judges; the one of no evidence was set by judgement. */
typedef struct time_range {
    double low, high;
} time_range;
static const time_range range_of[] = {[BY_NOTHING] = {0.6, 1.7},
                                      [BY_KERNELS] = {0.80, 1.66},
                                      [BY_STEPS] = {0.82, 1.25},
                                      [BY_KINDS] = {0.77, 1.25}},
                        range_train = {0.77, 1.35};

/* The same of cpu_us: from 16 us, the least on a PC with an RTX 3090 Ti, to 51 on a cloud
 * instance with a V100, both halves included. */
static const time_range range_cpu = {0.5, 1.6};

/* How fast a card multiplies. */
typedef struct product_rate {
    double peak;  /* TFLOPS, accumulated in fp32; 0: unknown */
    double share; /* that the card makes of it, on top of what the class does */
    evidence by;
} product_rate;

static product_rate measured_rate(double peak, double share, double unmeasured, evidence by)
{
    return (product_rate){peak, share > 0 ? share : unmeasured, share > 0 ? by : BY_NOTHING};
}

/* cuDNN's convolutions in fp32 use TF32 by default.  GeForce and workstation cards multiply so at
 * their rate of fp32; those of a data centre, from Ampere on, at half of that in 16 bits. */
static bool has_tf32(const plim_gpu *gpu)
{
    return gpu->tf32 > 0 || (gpu->cc >= 80 && !strcmp(gpu->klass, "datacenter"));
}

/* Depthwise convolutions do not run on tensor cores.  cuBLAS does not use TF32 by default. */
static product_rate rate_of(const plim_gpu *gpu, plim_dtype t, plim_work_class c)
{
    const card_rates *card = card_of(gpu);
    bool depthwise = c == PLIM_WORK_conv_depthwise;
    bool conv = plim_work_is_conv(c);
    bool bf16 = gpu->cc >= 80 || !gpu->cc; /* older ones convert */
    if (t == PLIM_F32 && conv && has_tf32(gpu))
        return measured_rate(gpu->tf32 > 0 ? gpu->tf32 : gpu->fp16_acc32 / 2, 0, 1,
                             BY_NOTHING);
    if (t == PLIM_F32)
        return measured_rate(gpu->fp32, card->full, usual_full,
                             c == PLIM_WORK_gemm ? BY_KERNELS : BY_NOTHING);
    if (t == PLIM_F16 || (t == PLIM_BF16 && bf16))
        return measured_rate(depthwise ? gpu->fp32 : gpu->fp16_acc32, card->half, 1, BY_STEPS);
    return (product_rate){0};
}

static double measured_row(const plim_kind *k, const plim_work *row, const plim_gpu *gpu,
                           plim_time_limit *limit)
{
    plim_kind_time t = plim_kind_seconds(k, row, gpu);
    *limit = t.computed > t.moved ? PLIM_TIME_COMPUTATION : PLIM_TIME_MEMORY;
    if (t.started > PLIM_MAX(t.moved, t.computed))
        *limit = PLIM_TIME_LAUNCH;
    return t.all;
}

/* kind NULL: by the rates of its class. */
static double row_seconds(const plim_work *row, const plim_gpu *gpu, const plim_kind *kind,
                          plim_time_limit *limit)
{
    if (kind)
        return measured_row(kind, row, gpu, limit);
    plim_work_class c = (plim_work_class)row->klass;
    const class_rates *r = rates_of(c);
    product_rate p = {1, 1, BY_STEPS};
    if (row->macs)
        p = rate_of(gpu, (plim_dtype)row->dtype, c);
    *limit = PLIM_TIME_MEMORY;
    if (!(r->memory > 0) || !(gpu->bandwidth_gbs > 0) || !(p.peak > 0) ||
        (row->macs && !(r->compute > 0)))
        return 0;
    double wide = card_of(gpu)->memory,
           part = row->phase == PLIM_PHASE_BACKWARD ? r->backward : 1;
    double bandwidth = gpu->bandwidth_gbs * 1e9 * r->memory * (wide > 0 ? wide : 1) * part;
    double peak = p.peak * 1e12 * r->compute * p.share * part;
    double moved = (double)row->bytes / bandwidth;
    double computed = row->macs ? 2 * (double)row->macs / peak : 0;
    double launched = row->kernels * launch_us * 1e-6;
    double most = PLIM_MAX(moved, computed);
    if (computed > moved)
        *limit = PLIM_TIME_COMPUTATION;
    if (launched > most)
        *limit = PLIM_TIME_LAUNCH;
    return most + launched;
}

double plim_time_row_of(const plim_work *row, const plim_gpu *gpu, plim_time_limit *limit)
{
    bool assumed;
    return row_seconds(row, gpu, plim_kind_of(row, gpu, &assumed), limit);
}

/* ---- a step ------------------------------------------------------------------- */

static bool say_unknown(const plim_work *row, const plim_gpu *gpu, const char **why)
{
    plim_work_class c = (plim_work_class)row->klass;
    if (!row->known)
        *why = "an op has no rule";
    else if (!(gpu->bandwidth_gbs > 0))
        *why = "the card's bandwidth is not known";
    else if (!(rates_of(c)->memory > 0) || (row->macs && !(rates_of(c)->compute > 0)))
        *why = "an op is of a class that was never measured";
    else if (row->macs && !(rate_of(gpu, (plim_dtype)row->dtype, c).peak > 0))
        *why = "the card's rate for this dtype is not known";
    return *why != NULL;
}

/* What the rows add up to, in seconds: on the card, with a range of their own where the card's kinds of kernels
 * were measured, and on a CPU that nobody measured. */
typedef struct step_sum {
    double low, high, cpu;
    evidence by; /* the least of the step */
    bool kinds;
} step_sum;

static void add_row(plim_time *t, step_sum *sum, const plim_work *row, const plim_gpu *gpu)
{
    bool assumed = false;
    plim_time_limit limit = PLIM_TIME_MEMORY;
    const plim_kind *kind = plim_kind_of(row, gpu, &assumed);
    double s = row_seconds(row, gpu, kind, &limit);
    const time_range *range = &range_of[kind && !assumed ? BY_KINDS : BY_NOTHING];
    t->part[limit] += s;
    t->usual += s;
    sum->low += s * range->low;
    sum->high += s * range->high;
    sum->cpu += row->kernels * cpu_us * 1e-6;
    sum->kinds |= kind != NULL;
    if (row->macs)
        sum->by = PLIM_MIN(
            sum->by, rate_of(gpu, (plim_dtype)row->dtype, (plim_work_class)row->klass).by);
}

/* Of a card without kinds. */
static const time_range *range_of_card(const plim_gpu *gpu, evidence by, bool train)
{
    const card_rates *card = card_of(gpu);
    if (!(card->half > 0))
        by = PLIM_MIN(by, card->full > 0 ? BY_KERNELS : BY_NOTHING);
    return by == BY_STEPS && train ? &range_train : &range_of[by];
}

/* In a loop that never waits, the program starts the next step while the card still works on this one: what is
 * slower sets the pace. */
static void bound_by_cpu(plim_time *t, double cpu, const time_range *range)
{
    plim_assert(t->usual >= 0 && cpu >= 0);
    t->low = PLIM_MAX(t->low, cpu * range->low);
    t->high = PLIM_MAX(t->high, cpu * range->high);
    if (cpu > t->usual) { /* the card waits for the program */
        t->part[PLIM_TIME_LAUNCH] += cpu - t->usual;
        t->usual = cpu;
    }
    plim_assert(t->low <= t->usual && t->usual <= t->high);
}

static const char *why_unknown(const plim_ledger *ledger, const plim_gpu *gpu)
{
    const char *why = NULL;
    if (!gpu)
        return "no card was chosen";
    if (ledger->untimed)
        return ledger->untimed;
    for (uint32_t i = 0; i < ledger->n; i++)
        if (say_unknown(&ledger->rows[i], gpu, &why))
            return why;
    return ledger->n ? NULL : "nothing runs on the card";
}

plim_time plim_time_of(const plim_ledger *ledger, const plim_gpu *gpu, bool train)
{
    plim_time t = {.unknown = why_unknown(ledger, gpu)};
    step_sum sum = {.by = BY_STEPS};
    if (t.unknown)
        return t;
    for (uint32_t i = 0; i < ledger->n; i++)
        add_row(&t, &sum, &ledger->rows[i], gpu);
    const time_range *range = range_of_card(gpu, sum.by, train);
    t.low = sum.kinds ? sum.low : t.usual * range->low;
    t.high = sum.kinds ? sum.high : t.usual * range->high;
    double host = plim_host_seconds(ledger, gpu);
    if (host >= 0)
        bound_by_cpu(&t, host, &range_of[BY_KINDS]);
    else
        bound_by_cpu(&t, sum.cpu, &range_cpu);
    return t;
}
