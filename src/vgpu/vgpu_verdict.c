/* vgpu_verdict.c -- how the run would have gone on other cards, by its tape. */
#include "fit/verdict.h"
#include "vgpu/vgpu_priv.h"

static plim_gpu_use use_of(const plim_libraries *lib)
{
    plim_gpu_use use = plim_gpu_use_of(PLIM_GPU_SCRIPT);
    use.eager = lib->eager;
    return use;
}

uint64_t plim__vgpu_capacity(const plim_gpu *gpu, const plim_libraries *lib)
{
    return plim_fit_room(gpu, plim_gpu_context_of(gpu, lib->torch, use_of(lib)).high);
}

plim_gpu_context plim__vgpu_context(const plim_vgpu *d, const plim_gpu *gpu)
{
    plim_gpu_use use = use_of(&d->world.lib);
    plim_gpu_use_callers(&use, d->tape.callers);
    if (d->nccl_high) /* at least one communicator was made */
        use.count[PLIM_GPU_COMMUNICATORS] = (plim_gpu_counted){1, 1, 1};
    return plim_gpu_context_of(gpu ? gpu : &d->gpu, d->world.lib.torch, use);
}

const char *plim__vgpu_copy(plim_arena *a, const char *z, bool *ok)
{
    const char *own = plim_arena_str(a, plim_str_of(z ? z : "")).p;
    *ok &= own != NULL;
    return own;
}

/* The tape as it would be with a cuBLAS workspace of another size.  What else
 * kernels take depends on the card too, by little; that stays as it is. */
static bool tape_on(const plim_vgpu *d, const plim_gpu *gpu, plim_arena *a, plim_tape *out)
{
    uint64_t was = d->world.cublas_ws;
    uint64_t is = plim_world_on(d->torch, gpu, d->world.lib).cublas_ws;
    *out = d->tape;
    if (was == is || !out->n_storages)
        return true;
    out->storages = PLIM_NEW_N(a, plim_storage, out->n_storages);
    for (uint32_t i = 0; out->storages && i < out->n_storages; i++) {
        plim_storage *s = &out->storages[i];
        *s = d->tape.storages[i];
        if (s->category == PLIM_CAT_WORKSPACE && s->bytes == was)
            s->bytes = is;
    }
    return out->storages != NULL;
}

/* The rule of estimate and fit, for the tape on this card. */
static plim_status judge_tape(const plim_vgpu *d, const plim_gpu *gpu, const plim_tape *t,
                              bool needed, plim_arena *a, plim_verdict *out, plim_err *err)
{
    plim_job job = {.gpu = gpu,
                    .script = true,
                    .alloc = d->options,
                    .step = {.torch = d->torch, .world.lib = d->world.lib}};
    return plim_verdict_of(&job, t, 0, needed, a, out, err);
}

/* As the rule says of a tape that is whole; of a beginning only that it runs out of memory. */
static plim_vgpu_fits tape_fits(plim_fits fits, bool whole)
{
    if (fits == PLIM_FITS_NO)
        return PLIM_VGPU_FITS_NO;
    if (!whole)
        return PLIM_VGPU_FITS_UNKNOWN;
    return fits == PLIM_FITS_YES ? PLIM_VGPU_FITS_YES : PLIM_VGPU_FITS_MAYBE;
}

static plim_status replay_on(plim_vgpu *d, const plim_gpu *gpu, plim_arena *a,
                             plim_vgpu_verdict *v, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_alloc_options o = d->options;
    plim_verdict verdict;
    plim_tape t;
    plim_sim sim = {0};
    bool ok = tape_on(d, gpu, &scratch, &t);
    o.total = gpu->memory_bytes;
    o.capacity = plim__vgpu_capacity(gpu, &d->world.lib);
    plim_status st =
        ok ? plim_sim_run(&scratch, &t, &o, PLIM_SIM_STOP_AT_OOM, &sim, err) : plim_oom(err);
    if (!st)
        st = judge_tape(d, gpu, &t, false, &scratch, &verdict, err);
    if (!st) {
        v->fits = tape_fits(verdict.fits, !d->truncated && d->end != PLIM_VGPU_END_MEMORY &&
                                              d->end != PLIM_VGPU_END_ERROR);
        v->peaks_known = true;
        v->peak_allocated = sim.peak_allocated;
        v->peak_reserved = sim.peak_reserved;
        if (sim.oom) {
            uint32_t line = d->origin[d->tape.events[sim.oom_event].id].line;
            v->oom_line = plim__vgpu_copy(a, plim__vgpu_line_text(d, line), &ok);
            v->oom_text = plim__vgpu_copy(a, sim.oom_text.p, &ok);
        }
    }
    plim_arena_free(&scratch);
    return st ? st : ok ? PLIM_OK : plim_oom(err);
}

/* On the card that it ran on, with the upper bound of the context, it went as it went: a
 * script that ran out of memory may have more room than that. */
static plim_status judge_run(plim_vgpu *d, plim_vgpu_report *r, plim_vgpu_verdict *v,
                             plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_verdict verdict;
    bool died = d->end == PLIM_VGPU_END_MEMORY || r->failed,
         whole = !d->n_failed && !d->truncated;
    plim_status st = judge_tape(d, &d->gpu, &d->tape, whole, &scratch, &verdict, err);
    if (!st) {
        if (died)
            v->fits = verdict.fits == PLIM_FITS_NO ? PLIM_VGPU_FITS_NO : PLIM_VGPU_FITS_MAYBE;
        else if (d->end == PLIM_VGPU_END_ERROR)
            v->fits = PLIM_VGPU_FITS_UNKNOWN;
        else
            v->fits = d->context_high ? PLIM_VGPU_FITS_YES : PLIM_VGPU_FITS_MAYBE;
        r->needed_low = verdict.needed_low;
        r->needed_high = verdict.needed_high;
    }
    plim_arena_free(&scratch);
    return st;
}

/* Near which step growth fills a card on which the last step still fits; 0: none, or a
 * step that no program reaches. */
static int64_t growth_step(const plim_vgpu *d, const plim_vgpu_report *r, uint64_t capacity)
{
    enum { MOST_STEPS = 1000000 };
    uint64_t peak = 0;
    for (uint32_t i = 0; i < d->n_rows; i++)
        if (d->rows[i].step >= r->steps - 1)
            peak = PLIM_MAX(peak, d->rows[i].peak_allocated);
    if (!r->growth_bytes || peak > capacity)
        return 0;
    uint64_t more = (capacity - peak) / r->growth_bytes;
    return more < MOST_STEPS ? r->steps + (int64_t)more : 0;
}

/* ---- cards where the run would have gone another way --------------------------- */

uint32_t plim_vgpu_other_cards(plim_vgpu *d, const char **out, uint32_t max)
{
    uint32_t n = 0;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->n_cards; i++) {
        if (!d->other_way[i])
            continue;
        if (n < max)
            out[n] = d->cards[i]->name;
        n++;
    }
    pthread_mutex_unlock(&d->lock);
    return n;
}

static plim_vgpu_verdict *copy_verdict(plim_arena *a, const plim_vgpu_verdict *from)
{
    bool ok = true;
    plim_vgpu_verdict *v = PLIM_NEW(a, plim_vgpu_verdict);
    if (!v)
        return NULL;
    *v = *from;
    v->gpu = plim__vgpu_copy(a, from->gpu, &ok);
    if (from->oom_line)
        v->oom_line = plim__vgpu_copy(a, from->oom_line, &ok);
    if (from->oom_text)
        v->oom_text = plim__vgpu_copy(a, from->oom_text, &ok);
    return ok ? v : NULL;
}

plim_status plim_vgpu_alone(plim_vgpu *d, const plim_vgpu_verdict *verdict, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(verdict, err);
    PLIM_REQUIRE(verdict->gpu, err);
    plim_status st = PLIM_OK;
    bool known = false;
    pthread_mutex_lock(&d->lock);
    for (uint32_t i = 0; i < d->n_cards && !st; i++) {
        if (!d->other_way[i] || strcmp(d->cards[i]->name, verdict->gpu) != 0)
            continue;
        known = true;
        d->alone[i] = copy_verdict(&d->story, verdict);
        st = d->alone[i] ? PLIM_OK : plim_oom(err);
    }
    pthread_mutex_unlock(&d->lock);
    return st || known ? st
                       : plim_fail(err, PLIM_EUSAGE, 0,
                                   "'%.80s' is not one of the other cards", verdict->gpu);
}

/* The card's row without the tape's figures, which are wrong there. */
static plim_status judge_alone(const plim_vgpu *d, uint32_t i, plim_arena *a,
                               plim_vgpu_verdict *v, plim_err *err)
{
    const plim_vgpu_verdict nothing = {.gpu = d->cards[i]->name,
                                       .gpu_bytes = d->cards[i]->memory_bytes,
                                       .fits = PLIM_VGPU_FITS_UNKNOWN};
    const plim_vgpu_verdict *own = copy_verdict(a, d->alone[i] ? d->alone[i] : &nothing);
    if (!own)
        return plim_oom(err);
    *v = *own;
    return PLIM_OK;
}

/* ---- all cards ------------------------------------------------------------------- */

plim_status plim__vgpu_verdicts(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r,
                                plim_err *err)
{
    uint32_t n = PLIM_MAX(d->n_cards, 1u);
    plim_vgpu_verdict *rows = PLIM_NEW_N(a, plim_vgpu_verdict, n);
    plim_status st = rows ? PLIM_OK : plim_oom(err);
    bool own = false, ok = true;
    for (uint32_t i = 0; i < n && !st; i++) {
        const plim_gpu *gpu = d->cards ? d->cards[i] : NULL;
        plim_vgpu_verdict *v = &rows[i];
        const plim_gpu_context context = plim__vgpu_context(d, gpu);
        uint64_t low = context.low, high = context.high;
        bool this_one = !own && (n == 1 || (gpu && !strcmp(gpu->name, d->card.name)));
        if (this_one || !gpu) {
            own = true;
            *v = (plim_vgpu_verdict){.gpu = r->card.name,
                                     .gpu_bytes = d->card.total,
                                     .peaks_known = true,
                                     .peak_allocated = r->peak_allocated,
                                     .peak_reserved = r->peak_reserved,
                                     .oom_line = r->oom_line,
                                     .oom_text = r->oom_text};
            st = judge_run(d, r, v, err);
        } else if (d->other_way[i]) {
            st = judge_alone(d, i, a, v, err);
            continue;
        } else {
            v->gpu = plim__vgpu_copy(a, gpu->name, &ok);
            v->gpu_bytes = gpu->memory_bytes;
            st = replay_on(d, gpu, a, v, err);
        }
        v->growth_step =
            v->fits == PLIM_VGPU_FITS_YES || v->fits == PLIM_VGPU_FITS_MAYBE
                ? growth_step(d, r,
                              this_one || !gpu ? d->options.capacity
                                               : plim__vgpu_capacity(gpu, &d->world.lib))
                : 0;
        v->device_low = high ? v->peak_reserved + low + d->nccl_low : 0;
        v->device_high = high ? v->peak_reserved + high + d->nccl_high : 0;
        if (high && d->inside.searched)
            v->device_high = PLIM_MAX(v->device_high, v->gpu_bytes);
    }
    r->cards = rows;
    r->n_cards = n;
    return st ? st : ok ? PLIM_OK : plim_oom(err);
}
