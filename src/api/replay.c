/* replay.c -- plim_replay_run: replays the tape or the recording in a file through an
 * allocator. */
#include "alloc/alloc_conf.h"
#include "alloc/sim.h"
#include "api/api.h"
#include "api/recorded.h"

typedef struct replay_result {
    plim_replay pub;
    plim_arena arena;
} replay_result;

/* The card that the settings describe, if any; in `out` what the report says of it. */
static plim_status read_card(const plim_settings *s, plim_arena *a, int torch,
                             plim_alloc_options *o, plim_replay *out, plim_err *err)
{
    const plim_gpu *gpu = NULL;
    plim_gpu generic;
    plim_status st = s->gpu ? plim_gpu_find(plim_str_of(s->gpu), &gpu, err) : PLIM_OK;
    if (!st && s->vram) {
        if (gpu)
            generic = *gpu;
        else
            st = plim_gpu_generic(a, s->vram, &generic, err);
        plim_gpu_give(&generic, s->vram);
        gpu = &generic;
    }
    if (st || !gpu)
        return st;
    plim_replay_card *card = PLIM_NEW(a, plim_replay_card);
    if (!card)
        return plim_oom(err);
    *card = (plim_replay_card){
        .size = sizeof *card,
        .name = gpu->name,
        .bytes = gpu->memory_bytes,
        .context = plim_gpu_context_of(gpu, torch, plim_gpu_use_of(PLIM_GPU_SCRIPT)).high};
    out->card = card;
    o->total = card->bytes;
    o->capacity = o->total > card->context ? o->total - card->context : 1; /* 0: no limit */
    return PLIM_OK;
}

static plim_status read_options(const plim_settings *s, plim_arena *a, plim_alloc_options *out,
                                plim_replay *card, plim_err *err)
{
    const plim_torch *torch;
    int asked;
    *out = (plim_alloc_options){.conf = plim_str_of(s->alloc_conf ? s->alloc_conf : ""),
                                .fraction = s->fraction};
    PLIM_TRY(plim_torch_find(s->torch, &torch, &asked, err));
    out->torch = torch->version;
    const char *note = plim_torch_note(a, s->torch), *sold = plim_gpu_sold(a, s->vram);
    if (!note || !sold)
        return plim_oom(err);
    card->note = plim_arena_printf(a, "%s%s%s", note, *note && *sold ? " " : "", sold).p;
    return card->note ? read_card(s, a, asked, out, card, err) : plim_oom(err);
}

PLIM__LIST(mark_list, plim_replay_mark)

static plim_status copy_marks(plim_arena *a, const plim_tape *t, const plim_sim *sim,
                              plim_replay *out, plim_err *err)
{
    plim_replay_mark *marks = PLIM_NEW_N(a, plim_replay_mark, sim->n_rows);
    if (!marks && sim->n_rows)
        return plim_oom(err);
    for (uint32_t i = 0; i < sim->n_rows; i++) {
        const plim_phase_row *r = &sim->rows[i];
        marks[i] = (plim_replay_mark){.step = r->step,
                                      .phase = r->phase,
                                      .op = plim__cstr(a, t->marks[i].op),
                                      .requested = r->requested,
                                      .allocated = r->allocated,
                                      .reserved = r->reserved,
                                      .peak_requested = r->peak_requested,
                                      .peak_allocated = r->peak_allocated,
                                      .peak_reserved = r->peak_reserved};
        if (!marks[i].op)
            return plim_oom(err);
    }
    out->marks = mark_list(a, marks, sim->n_rows);
    out->n_marks = sim->n_rows;
    return out->marks ? PLIM_OK : plim_oom(err);
}

static void copy_stats(const plim_alloc_stats *s, plim_replay *out)
{
    out->allocation = s->allocation;
    out->segment = s->segment;
    out->active = s->active;
    out->inactive_split = s->inactive_split;
    out->requested_bytes = s->requested_bytes;
    out->allocated_bytes = s->allocated_bytes;
    out->reserved_bytes = s->reserved_bytes;
    out->active_bytes = s->active_bytes;
    out->inactive_split_bytes = s->inactive_split_bytes;
    out->num_alloc_retries = s->num_alloc_retries;
    out->num_ooms = s->num_ooms;
    out->num_device_alloc = s->num_device_alloc;
    out->num_device_free = s->num_device_free;
}

/* What became of a tape with expandable segments. */
typedef struct expandable_run {
    bool known;  /* they were tried */
    bool serves; /* the allocation that failed without them */
    bool oom;    /* it failed, or a later one */
} expandable_run;

/* Replays the tape with expandable segments, unless they are on or do not exist. */
static plim_status try_expandable(plim_arena *a, const plim_tape *t,
                                  const plim_alloc_options *o, uint32_t oom_event,
                                  expandable_run *out, plim_err *err)
{
    plim_alloc_options expandable = *o;
    plim_alloc_conf conf;
    plim_sim sim;
    if (o->torch < 201 || o->allocator != plim_allocator_at(0))
        return PLIM_OK;
    plim_alloc_conf_init(&conf);
    plim_status st = plim_alloc_conf_parse(&conf, o->conf, o->torch, err);
    if (st || conf.expandable)
        return st;
    expandable.conf = plim_arena_printf(a, PLIM_STR_FMT "%sexpandable_segments:True",
                                        PLIM_STR_ARG(o->conf), o->conf.n ? "," : "");
    if (!expandable.conf.p)
        return plim_oom(err);
    PLIM_TRY(plim_sim_run(a, t, &expandable, PLIM_SIM_STOP_AT_OOM, &sim, err));
    *out = (expandable_run){true, !sim.oom || sim.oom_event > oom_event, sim.oom};
    return PLIM_OK;
}

/* A recording replayed on the device that it ran out of memory on: whether expandable segments
 * would have served the request that failed. */
static plim_status explain_recorded(plim_arena *a, const plim_recording *r,
                                    const plim_alloc_options *o, plim_recorded *out,
                                    plim_err *err)
{
    plim_alloc_options then = *o;
    plim_tape t;
    plim_sim sim;
    uint32_t *stacks;
    expandable_run e = {0};
    if (!out->oom->device_known)
        return PLIM_OK;
    then.capacity = then.total = out->oom->reserved + out->oom->device;
    plim_tape_init(&t, a);
    plim_status st = plim_recording_tape(r, false, &t, &stacks, err);
    if (st || !then.capacity || then.capacity >> 60) /* no device has 1 EiB */
        return st;
    st = plim_sim_run(a, &t, &then, PLIM_SIM_STOP_AT_OOM, &sim, err);
    if (st || !sim.oom)
        return st;
    st = try_expandable(a, &t, &then, sim.oom_event, &e, err);
    plim_failed_request *oom = PLIM_NEW(a, plim_failed_request);
    if (st || !oom)
        return st ? st : plim_oom(err);
    *oom = *out->oom;
    oom->expandable_known = e.known;
    oom->expandable_serves = e.serves;
    out->oom = oom;
    return PLIM_OK;
}

/* What was free when memory ran out, and whether it was fragmented. */
static plim_status explain_oom(plim_arena *a, const plim_tape *t, const plim_alloc_options *o,
                               const plim_sim *sim, plim_replay *out, plim_err *err)
{
    const plim_event *event = &t->events[sim->oom_event];
    plim_free_at_failure *f = PLIM_NEW(a, plim_free_at_failure);
    expandable_run e = {0};
    PLIM_TRY(f ? try_expandable(a, t, o, sim->oom_event, &e, err) : plim_oom(err));
    *f = (plim_free_at_failure){
        .size = sizeof *f,
        .requested = plim_storage_bytes(&t->storages[event->id], PLIM_BOUND_USUAL),
        .device = sim->oom_device_free,
        .small = sim->oom_free[0],
        .large = sim->oom_free[1],
        .expandable_known = e.known,
        .expandable_serves = e.serves,
        .expandable_oom = e.oom};
    out->oom_text = sim->oom_text.p;
    out->oom_event = sim->oom_event;
    out->oom_free = f;
    return PLIM_OK;
}

/* The allocator that was asked for by name, else the one that the settings of PyTorch choose:
 * those that are given, else those that were recorded.  Recorded settings hold for the recorded
 * allocator only. */
static plim_status choose_allocator(const plim_settings *s, plim_str recorded, plim_arena *a,
                                    plim_alloc_options *o, plim_replay *out, plim_err *err)
{
    const plim_allocator *was;
    plim_str conf = s->alloc_conf || s->allocator ? o->conf : recorded;
    PLIM_TRY(plim_allocator_of_conf(recorded, o->torch, &was, err));
    PLIM_TRY(s->allocator ? plim_allocator_find(plim_str_of(s->allocator), &o->allocator, err)
                          : plim_allocator_of_conf(conf, o->torch, &o->allocator, err));
    if (!s->alloc_conf && o->allocator == was)
        o->conf = recorded;
    if (!o->allocator->model)
        return PLIM_OK;
    out->note =
        plim_arena_printf(a, "%s%s%s", out->note, *out->note ? " " : "", o->allocator->model)
            .p;
    return out->note ? PLIM_OK : plim_oom(err);
}

/* Whether a setting asks for something else than what was recorded. */
static bool changes_run(const plim_settings *s)
{
    return s->allocator || s->alloc_conf || s->gpu || s->vram || s->fraction > 0;
}

/* The tape of a recording, as it was recorded or to be served otherwise, and what else the
 * recording says. */
static plim_status tell_recording(const plim_recording *r, const plim_settings *s, int torch,
                                  const plim_follow *f, plim_tape *t, uint32_t **stacks,
                                  plim_recorded **recorded, plim_err *err)
{
    plim_recorded *rec = PLIM_NEW(r->arena, plim_recorded);
    if (!rec)
        return plim_oom(err);
    *recorded = rec;
    PLIM_TRY(plim__recorded_fill(r, torch, f, rec, err));
    rec->as_recorded = !changes_run(s);
    rec->counters_recorded &= rec->as_recorded;
    return plim_recording_tape(r, rec->as_recorded, t, stacks, err);
}

/* The recorded settings, if all of them are known. */
static plim_str recorded_conf(const plim_recording *r, const plim_alloc_options *o)
{
    bool known = !r->given && plim_recording_conf_known(r, o->torch, NULL);
    return known ? r->conf : PLIM_STR("");
}

static plim_status replay_fill(const char *path, plim_bytes file, const plim_settings *s,
                               plim_arena *a, plim_replay *out, plim_err *err)
{
    plim_alloc_options options;
    plim_recording r;
    plim_recorded *rec = NULL;
    plim_follow follow;
    uint32_t *stacks = NULL;
    plim_sim sim;
    plim_status st = read_options(s, a, &options, out, err);
    if (!st && (st = plim_recording_read(&r, a, file, err)))
        plim_err_prefix(err, "'%s': ", path);
    if (!st && !r.given)
        st = plim_recording_guess_conf(&r, options.torch, err);
    if (!st && !r.given)
        st = s->torch ? plim_recording_follow(&r, options.torch, &follow, err)
                      : plim_recording_guess_torch(&r, &options.torch, &follow, err);
    if (!st)
        st = choose_allocator(s, recorded_conf(&r, &options), a, &options, out, err);
    if (!st && r.host && !s->allocator) /* the CPU's memory is not cached */
        st = plim_allocator_find(PLIM_STR("none"), &options.allocator, err);
    if (!st && !r.given)
        st = tell_recording(&r, s, options.torch, &follow, &r.tape, &stacks, &rec, err);
    if (!st)
        st = plim_sim_run(a, &r.tape, &options,
                          PLIM_SIM_ROWS | PLIM_SIM_FREE | (rec ? PLIM_SIM_LIVE : 0u) |
                              (s->stop_at_oom ? PLIM_SIM_STOP_AT_OOM : 0u),
                          &sim, err);
    if (!st)
        st = copy_marks(a, &r.tape, &sim, out, err);
    if (!st && rec)
        st = plim__recorded_live(&r, &r.tape, stacks, &sim, rec, err);
    if (!st && rec && rec->oom && rec->as_recorded)
        st = explain_recorded(a, &r, &options, rec, err);
    if (st)
        return st;
    out->size = sizeof *out;
    copy_stats(rec && rec->counters_recorded ? &follow.stats : &sim.stats, out);
    out->events = sim.n_events;
    out->storages = r.tape.n_storages;
    out->requested_known = !r.blocks_only;
    out->oom = sim.oom;
    out->recorded = rec;
    return sim.oom ? explain_oom(a, &r.tape, &options, &sim, out, err) : PLIM_OK;
}

/* All that is made of the file counts. */
static plim_status replay_within(const char *path, plim_bytes file, const plim_settings *s,
                                 plim_arena *a, plim_replay *out, plim_err *err)
{
    plim_budget budget;
    plim_budget_begin(&budget, file.n);
    plim_status st = plim_budget_end(&budget, replay_fill(path, file, s, a, out, err), err);
    if (budget.over)
        plim_err_prefix(err, "'%s': ", path);
    return st;
}

plim_status plim_replay_run(const char *path, const plim_settings *s, plim_replay **out,
                            plim_err *err)
{
    PLIM_REQUIRE(path, err);
    PLIM_REQUIRE(out, err);
    plim_budget budget;
    plim_budget_begin(&budget, PLIM_BUDGET_FREE);
    replay_result *r = plim__result_new(sizeof *r, offsetof(replay_result, arena));
    plim_bytes file = {0};
    if (r && !s)
        s = plim_settings_in(&r->arena, NULL);
    plim_status st = r && s ? plim_file_open(&file, path, false, err) : plim_oom(err);
    if (!st)
        st = replay_within(path, file, s, &r->arena, &r->pub, err);
    plim_file_close(&file);
    st = plim_budget_end(&budget, st, err);
    if (st)
        plim__result_free(r, offsetof(replay_result, arena));
    else
        *out = &r->pub;
    return st;
}

void plim_replay_free(plim_replay *r) { plim__result_free(r, offsetof(replay_result, arena)); }
