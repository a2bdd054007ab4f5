/* vgpu.c -- a card that does not exist: plim_vgpu_* of plimsoll_vgpu.h.
 *
 * A thin ledger over the simulated allocator.  Each request goes to it, and into
 * a tape with the line of the user's code that made it; what the report says is
 * read from that tape afterwards, so that nothing is kept twice. */
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "alloc/sim.h"
#include "base/fmt.h"
#include "gpu/gpu.h"
#include "op/kernel.h"
#include "op/rules.h"
#include "plimsoll_vgpu.h"
#include "settings/settings.h"
#include "step/world.h"
#include "torch/torch.h"

/* Addresses that no machine maps: above what user space gets on x86-64 (47 or,
 * if asked for, 56 bits from the top) and arm64 (52 bits), below the byte that
 * arm64 ignores.  What reads through one stops at once. */
#define FIRST_ADDRESS (1ull << 53)

/* Of our own memory, for the story and for the history; the allocator has an
 * arena for itself. */
#define STORY_LIMIT (2ull << 30)

typedef struct slot { /* what a handle stands for */
    uint32_t block;   /* the allocator's */
    uint32_t storage; /* on the tape; PLIM_NONE: it was not written down */
    uint32_t line;
    uint32_t next_free;
    uint64_t bytes;
    const char *op;
} slot;

typedef struct line_row {
    const char *text, *source;
    uint64_t allocations, requested;
} line_row;

struct plim_vgpu {
    pthread_mutex_t lock;
    plim_arena arena;   /* of the allocator, the slots and this struct */
    plim_arena story;   /* the tape, words, rows */
    plim_arena kernels; /* the machines below */
    plim_arena text;    /* of the last out-of-memory text */
    plim_arena history; /* the allocator's actions */
    plim_arena scratch; /* of one call */

    plim_vgpu_card card;
    uint64_t context_low, context_high;
    const plim_torch *torch;
    plim_world world;           /* what kernels see of it */
    plim_alloc_options options; /* of h; others are like it but for the card */
    plim_bound bound;
    plim_alloc *h;
    const plim_gpu **cards; /* as they were named; NULL: none was */
    uint32_t n_cards;
    bool *other_way; /* of each: the run would have gone another way there */

    slot *slots;
    uint32_t n_slots, cap_slots, free_slot;

    plim_tape tape;
    bool truncated;
    uint32_t *storage_line; /* of each storage */
    uint32_t n_storage_line, cap_storage_line;
    plim_mark at; /* becomes a mark when something happens */
    bool at_new;

    plim_map words, lines_by_text, metas_by_key, caveats_by_key;
    const char **word;
    uint32_t n_words, cap_words;
    line_row *lines;
    uint32_t n_lines, cap_lines;
    plim_meta **metas;
    uint32_t n_metas, cap_metas;
    plim_vgpu_caveat *caveats;
    uint32_t n_caveats, cap_caveats;
    plim_phase_row *rows;
    uint32_t n_rows, cap_rows;

    uint64_t requested; /* live */
    uint64_t peak_requested, peak_allocated, peak_reserved;
    uint32_t peak_event, peak_line;
    plim_mark peak_at;

    uint32_t ooms;
    const char *oom_text; /* the last */
    const char *first_oom_text, *first_oom_line;
    plim_vgpu_end end;

    plim_alloc_stats zero[3]; /* all, small, large: what counts as nothing went in and out */
    plim_vgpu_trace *traces;  /* a ring of max_traces once it is full */
    uint32_t n_traces, cap_traces, max_traces, asked_traces;
    uint64_t traced;
    uint32_t line_now; /* whose request or block the allocator has in hand */
    const char *op_now;

    plim_machine *kernel[2]; /* main thread, autograd thread: what kernels take inside */
    plim_tape inside;        /* their events, until they are served */
    plim_err kernel_err;
};

/* ---- opening ------------------------------------------------------------------- */

/* Before others: CUDA's own, and then the one with the most memory, since who gets
 * on with less gets on with that. */
static bool better_card(const plim_gpu *a, const plim_gpu *b)
{
    return !a->cc != !b->cc ? a->cc != 0 : a->memory_bytes > b->memory_bytes;
}

static plim_status find_card(plim_vgpu *d, const plim_vgpu_options *o, plim_gpu *out,
                             plim_err *err)
{
    if (!o->gpu && !o->vram)
        return plim_fail(err, PLIM_EUSAGE, 0, "no card: neither a name nor a size is given");
    if (!o->gpu)
        return plim_gpu_generic(&d->arena, o->vram, out, err);
    plim_status st = plim_gpu_list(&d->arena, o->gpu, &d->cards, &d->n_cards, err);
    if (st)
        return st;
    d->other_way = PLIM_NEW_N(&d->arena, bool, d->n_cards);
    if (!d->other_way)
        return plim_oom(err);
    if (o->vram && d->n_cards > 1)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "one size of memory is given for %" PRIu32 " cards", d->n_cards);
    *out = *d->cards[0];
    for (uint32_t i = 1; i < d->n_cards; i++)
        if (better_card(d->cards[i], out))
            *out = *d->cards[i];
    if (o->vram)
        out->memory_bytes = o->vram;
    return PLIM_OK;
}

/* As fit counts: the upper context.  A card smaller than that has nothing. */
static uint64_t capacity_of(const plim_gpu *gpu, const plim_torch *torch)
{
    uint64_t low, high;
    plim_gpu_context(gpu, torch->version, &low, &high);
    return gpu->memory_bytes > high ? gpu->memory_bytes - high : 1;
}

static plim_status open_card(plim_vgpu *d, const plim_vgpu_options *o, bool workspace,
                             plim_err *err)
{
    plim_gpu gpu = {0};
    plim_status st = find_card(d, o, &gpu, err);
    if (st)
        return st;
    plim_gpu_context(&gpu, d->torch->version, &d->context_low, &d->context_high);
    d->options.capacity = capacity_of(&gpu, d->torch);
    d->options.total = gpu.memory_bytes;
    d->world = plim_world_on(d->torch, &gpu, workspace);
    d->card = (plim_vgpu_card){.name = plim_arena_str(&d->arena, plim_str_of(gpu.name)).p,
                               .torch = d->torch->name,
                               .cc = d->world.cc,
                               .sms = d->world.sms,
                               .threads_per_sm = d->world.threads_per_sm,
                               .total = gpu.memory_bytes,
                               .context = gpu.memory_bytes - d->options.capacity,
                               .workspace = workspace};
    return d->card.name ? PLIM_OK : plim_oom(err);
}

/* The worlds of the two threads are one; their workspaces are not. */
static plim_status open_kernels(plim_vgpu *d, plim_err *err)
{
    plim_tape_init(&d->inside, &d->kernels);
    for (int i = 0; i < 2; i++)
        if (!(d->kernel[i] = plim_m_new(&d->kernels, &d->inside, &d->world, &d->kernel_err)))
            return plim_oom(err);
    return PLIM_OK;
}

static plim_status vgpu_open(plim_vgpu *d, const plim_vgpu_options *o, plim_err *err)
{
    plim_settings *s = plim_settings_in(&d->arena, NULL);
    plim_status st = s ? PLIM_OK : plim_oom(err);
    if (!st && o->workspace)
        st = plim_settings_set(s, "workspace", o->workspace, err);
    const plim_workspace workspace = plim_workspace_of(s ? s->workspace : 0);
    d->torch = plim_torch_newest();
    if (!st && o->torch)
        st = plim_torch_find(plim_str_of(o->torch), &d->torch, err);
    if (!st)
        st = open_card(d, o, workspace.counted, err);
    if (st)
        return st;
    d->bound = workspace.bound;
    d->story.limit = d->history.limit = STORY_LIMIT;
    plim_tape_init(&d->tape, &d->story);
    d->options.torch = d->torch->version;
    d->options.conf =
        plim_arena_str(&d->arena, plim_str_of(o->alloc_conf ? o->alloc_conf : ""));
    d->options.first_address = FIRST_ADDRESS;
    if (!d->options.conf.p)
        return plim_oom(err);
    st = plim_alloc_new(&d->arena, &d->options, &d->h, err);
    return st ? st : open_kernels(d, err);
}

plim_status plim_vgpu_open(const plim_vgpu_options *o, plim_vgpu **out, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_vgpu *d = PLIM_NEW(&a, plim_vgpu);
    if (!d)
        return plim_oom(err);
    d->arena = a; /* from here on the arena owns itself */
    d->free_slot = PLIM_NONE;
    d->peak_event = d->peak_line = d->line_now = PLIM_NONE;
    d->at = d->peak_at = (plim_mark){.step = -1, .phase = PLIM_PHASE_LOAD};
    d->at_new = true;
    plim_status st = vgpu_open(d, o, err);
    if (!st && pthread_mutex_init(&d->lock, NULL))
        st = plim_fail(err, PLIM_ENOMEM, 0, "no lock");
    if (!st) {
        *out = d;
        return PLIM_OK;
    }
    plim_arena_free(&d->story);
    plim_arena_free(&d->kernels);
    a = d->arena;
    plim_arena_free(&a);
    return st;
}

void plim_vgpu_close(plim_vgpu *d)
{
    if (!d)
        return;
    pthread_mutex_destroy(&d->lock);
    plim_arena_free(&d->story);
    plim_arena_free(&d->kernels);
    plim_arena_free(&d->text);
    plim_arena_free(&d->history);
    plim_arena_free(&d->scratch);
    plim_arena a = d->arena; /* it frees the struct it stands in */
    plim_arena_free(&a);
}

void plim_vgpu_card_get(const plim_vgpu *d, plim_vgpu_card *out) { *out = d->card; }

/* ---- words --------------------------------------------------------------------- */

/* Each string once.  NULL: the story is full. */
static const char *word_of(plim_vgpu *d, const char *z)
{
    uint32_t i;
    plim_str key = plim_str_of(z ? z : "");
    if (plim_map_get(&d->words, key, &i))
        return d->word[i];
    key = plim_arena_str(&d->story, key);
    if (!key.p || !PLIM_PUSH_ROOM(&d->story, d->word, d->n_words, d->cap_words) ||
        !plim_map_put(&d->story, &d->words, key, d->n_words))
        return NULL;
    d->word[d->n_words] = key.p;
    return d->word[d->n_words++];
}

static uint32_t line_of(plim_vgpu *d, const char *z)
{
    uint32_t i;
    if (plim_map_get(&d->lines_by_text, plim_str_of(z ? z : ""), &i))
        return i;
    const char *text = word_of(d, z);
    if (!text || !PLIM_PUSH_ROOM(&d->story, d->lines, d->n_lines, d->cap_lines) ||
        !plim_map_put(&d->story, &d->lines_by_text, plim_str_of(text), d->n_lines))
        return PLIM_NONE;
    d->lines[d->n_lines] = (line_row){.text = text, .source = ""};
    return d->n_lines++;
}

/* Shapes come again and again: each is kept once. NULL: not known, or no room. */
static const plim_meta *meta_of(plim_vgpu *d, const plim_vgpu_tag *tag)
{
    uint32_t i;
    if (!tag || tag->dtype < 0 || tag->dtype >= PLIM_DTYPE_COUNT || tag->rank < 0 ||
        tag->rank > PLIM_MAX_RANK)
        return NULL;
    plim_meta m = plim_meta_make((plim_dtype)tag->dtype, tag->rank, tag->dim);
    int64_t key[2 + PLIM_MAX_RANK] = {tag->dtype, tag->rank};
    if (tag->rank)
        memcpy(key + 2, tag->dim, (size_t)tag->rank * sizeof *key);
    plim_str bytes = {(const char *)key, sizeof *key * (size_t)(2 + tag->rank)};
    if (plim_map_get(&d->metas_by_key, bytes, &i))
        return d->metas[i];
    bytes = plim_arena_str(&d->story, bytes);
    plim_meta *own = PLIM_NEW(&d->story, plim_meta);
    if (!bytes.p || !own || !PLIM_PUSH_ROOM(&d->story, d->metas, d->n_metas, d->cap_metas) ||
        !plim_map_put(&d->story, &d->metas_by_key, bytes, d->n_metas))
        return NULL;
    *own = m;
    return d->metas[d->n_metas++] = own;
}

/* ---- the tape ------------------------------------------------------------------ */

static bool story_begin(plim_vgpu *d)
{
    if (!d->truncated && d->at_new) {
        d->truncated =
            !plim_tape_mark(&d->tape, d->at.step, (plim_phase)d->at.phase, d->at.op);
        d->at_new = d->truncated;
    }
    return !d->truncated;
}

static void story_event(plim_vgpu *d, plim_event e)
{
    if (story_begin(d) && !plim_tape_event(&d->tape, e))
        d->truncated = true;
}

/* What nobody has said, the phase suggests. */
static plim_category category_of(const plim_vgpu *d, const plim_vgpu_tag *tag)
{
    static const plim_category usual[PLIM_PHASE_COUNT] = {
        [PLIM_PHASE_LOAD] = PLIM_CAT_INPUT,
        [PLIM_PHASE_INPUTS] = PLIM_CAT_INPUT,
        [PLIM_PHASE_ZERO_GRAD] = PLIM_CAT_TEMPORARY,
        [PLIM_PHASE_FORWARD] = PLIM_CAT_ACTIVATION,
        [PLIM_PHASE_LOSS] = PLIM_CAT_ACTIVATION,
        [PLIM_PHASE_BACKWARD] = PLIM_CAT_TEMPORARY,
        [PLIM_PHASE_OPTIMIZER] = PLIM_CAT_TEMPORARY,
    };
    if (tag && (unsigned)tag->category < PLIM_CAT_COUNT)
        return tag->category;
    return usual[d->at.phase];
}

/* The new storage's number on the tape. */
static uint32_t story_alloc(plim_vgpu *d, const plim_storage *like, uint16_t stream,
                            const plim_vgpu_tag *tag, uint32_t line)
{
    plim_storage s = *like;
    s.name = plim_str_of(line == PLIM_NONE ? "" : d->lines[line].text);
    s.role = like->role ? like->role : tag && tag->op ? word_of(d, tag->op) : NULL;
    if (!story_begin(d) || line == PLIM_NONE ||
        !PLIM_PUSH_ROOM(&d->story, d->storage_line, d->n_storage_line, d->cap_storage_line)) {
        d->truncated = true;
        return PLIM_NONE;
    }
    uint32_t id = plim_tape_alloc(&d->tape, &s);
    if (id == PLIM_NONE) {
        d->truncated = true;
        return PLIM_NONE;
    }
    d->tape.events[d->tape.n_events - 1].stream = stream;
    d->storage_line[d->n_storage_line++] = line;
    return id;
}

/* ---- counters ------------------------------------------------------------------ */

static plim_phase_row *row_now(plim_vgpu *d)
{
    plim_phase_row *last = d->n_rows ? &d->rows[d->n_rows - 1] : NULL;
    if (last && last->step == d->at.step && last->phase == (plim_phase)d->at.phase)
        return last;
    plim_phase_row row = {.step = d->at.step, .phase = (plim_phase)d->at.phase};
    if (last) {
        row.requested = row.peak_requested = last->requested;
        row.allocated = row.peak_allocated = last->allocated;
        row.reserved = row.peak_reserved = last->reserved;
    }
    if (!PLIM_PUSH_ROOM(&d->story, d->rows, d->n_rows, d->cap_rows) || !d->rows)
        return NULL;
    d->rows[d->n_rows] = row;
    return &d->rows[d->n_rows++];
}

static void count(plim_vgpu *d, uint32_t line)
{
    plim_alloc_stats s;
    plim_alloc_get_stats(d->h, &s);
    plim_phase_row *row = row_now(d);
    uint64_t allocated = s.allocated_bytes.current, reserved = s.reserved_bytes.current;
    if (row) {
        row->requested = d->requested;
        row->allocated = allocated;
        row->reserved = reserved;
        row->peak_requested = PLIM_MAX(row->peak_requested, d->requested);
        row->peak_allocated = PLIM_MAX(row->peak_allocated, allocated);
        row->peak_reserved = PLIM_MAX(row->peak_reserved, reserved);
    }
    d->peak_requested = PLIM_MAX(d->peak_requested, d->requested);
    d->peak_reserved = PLIM_MAX(d->peak_reserved, reserved);
    if (allocated > d->peak_allocated) {
        d->peak_allocated = allocated;
        d->peak_line = line;
        d->peak_at = d->at;
        if (!d->truncated)
            d->peak_event = d->tape.n_events - 1;
    }
}

/* ---- memory -------------------------------------------------------------------- */

static plim_status slot_take(plim_vgpu *d, uint32_t *out, plim_err *err)
{
    if (d->free_slot != PLIM_NONE) {
        *out = d->free_slot;
        d->free_slot = d->slots[*out].next_free;
        return PLIM_OK;
    }
    if (!PLIM_PUSH_ROOM(&d->arena, d->slots, d->n_slots, d->cap_slots))
        return plim_oom(err);
    *out = d->n_slots++;
    return PLIM_OK;
}

static void slot_give(plim_vgpu *d, uint32_t i)
{
    d->slots[i] = (slot){.block = PLIM_NONE, .storage = PLIM_NONE, .next_free = d->free_slot};
    d->free_slot = i;
}

/* The request stays on the tape, dead at once, so that a replay meets it too. */
static void note_oom(plim_vgpu *d, uint32_t line, uint32_t storage)
{
    if (storage != PLIM_NONE && !plim_tape_free_storage(&d->tape, storage))
        d->truncated = true;
    plim_arena_reset(&d->text);
    plim_str text = plim_alloc_oom_text(d->h, &d->text);
    d->oom_text = text.p ? text.p : "CUDA out of memory.";
    if (!d->ooms++) {
        d->first_oom_text = word_of(d, d->oom_text);
        d->first_oom_line = line == PLIM_NONE ? "" : d->lines[line].text;
    }
}

static plim_status serve(plim_vgpu *d, const plim_storage *what, uint16_t stream,
                         const plim_vgpu_tag *tag, uint32_t *out, plim_err *err)
{
    uint32_t block, i = PLIM_NONE, line = line_of(d, tag ? tag->line : NULL);
    uint64_t bytes = plim_storage_bytes(what, d->bound);
    const char *op = tag && tag->op ? word_of(d, tag->op) : "";
    *out = PLIM_VGPU_NONE;
    d->line_now = line;
    d->op_now = op ? op : "";
    plim_status st = plim_alloc_malloc(d->h, bytes, stream, &block, err);
    if (!st && block != PLIM_NONE)
        st = slot_take(d, &i, err);
    if (st)
        return st;
    plim_storage settled = *what;
    if (d->bound != PLIM_BOUND_USUAL) { /* nothing is left open */
        settled.bytes = bytes;
        settled.low = settled.high = 0;
    }
    uint32_t storage = story_alloc(d, &settled, stream, tag, line);
    if (line != PLIM_NONE && i != PLIM_NONE) {
        d->lines[line].allocations++;
        d->lines[line].requested += bytes;
    }
    if (i == PLIM_NONE) {
        note_oom(d, line, storage);
        return PLIM_OK;
    }
    d->slots[i] = (slot){.block = block,
                         .storage = storage,
                         .line = line,
                         .bytes = bytes,
                         .op = d->op_now,
                         .next_free = PLIM_NONE};
    d->requested += bytes;
    count(d, line);
    *out = i;
    return PLIM_OK;
}

static plim_status take_back(plim_vgpu *d, uint32_t i, plim_err *err)
{
    if (i >= d->n_slots || d->slots[i].block == PLIM_NONE)
        return plim_fail(err, PLIM_EUSAGE, i, "block %" PRIu32 " is not live", i);
    slot s = d->slots[i];
    d->line_now = s.line;
    d->op_now = s.op;
    plim_status st = plim_alloc_free(d->h, s.block, err);
    if (st)
        return st;
    if (s.storage != PLIM_NONE && story_begin(d) &&
        !plim_tape_free_storage(&d->tape, s.storage))
        d->truncated = true;
    d->requested -= s.bytes;
    slot_give(d, i);
    count(d, PLIM_NONE);
    return PLIM_OK;
}

plim_status plim_vgpu_malloc(plim_vgpu *d, uint64_t bytes, uint16_t stream,
                             const plim_vgpu_tag *tag, uint32_t *block, uint64_t *addr,
                             plim_err *err)
{
    *block = PLIM_VGPU_NONE;
    *addr = 0;
    if (!bytes)
        return plim_fail(err, PLIM_EUSAGE, 0, "a request of 0 bytes");
    if (stream == PLIM_ALL_STREAMS)
        return plim_fail(err, PLIM_EUSAGE, 0, "stream %u is over the limit of %u", stream,
                         PLIM_ALL_STREAMS - 1u);
    pthread_mutex_lock(&d->lock);
    plim_storage s = {.bytes = bytes,
                      .meta = meta_of(d, tag),
                      .category = (uint8_t)category_of(d, tag),
                      .certainty = (uint8_t)(tag ? tag->certainty : PLIM_EXACT)};
    plim_status st = serve(d, &s, stream, tag, block, err);
    if (!st && *block != PLIM_VGPU_NONE)
        *addr = plim_alloc_address(d->h, d->slots[*block].block);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_free(plim_vgpu *d, uint32_t block, plim_err *err)
{
    pthread_mutex_lock(&d->lock);
    plim_status st = take_back(d, block, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_record_stream(plim_vgpu *d, uint32_t block, uint16_t stream,
                                    plim_err *err)
{
    plim_status st = PLIM_OK;
    pthread_mutex_lock(&d->lock);
    if (block >= d->n_slots || d->slots[block].block == PLIM_NONE)
        st = plim_fail(err, PLIM_EUSAGE, block, "block %" PRIu32 " is not live", block);
    if (!st)
        st = plim_alloc_record_stream(d->h, d->slots[block].block, stream, err);
    if (!st && d->slots[block].storage != PLIM_NONE)
        story_event(d, (plim_event){.id = d->slots[block].storage,
                                    .stream = stream,
                                    .kind = PLIM_EVENT_RECORD_STREAM});
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_sync(plim_vgpu *d, uint16_t stream, plim_err *err)
{
    (void)err;
    pthread_mutex_lock(&d->lock);
    plim_alloc_stream_done(d->h, stream);
    story_event(d, (plim_event){.stream = stream, .kind = PLIM_EVENT_STREAM_DONE});
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_empty_cache(plim_vgpu *d, plim_err *err)
{
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_empty_cache(d->h, err);
    story_event(d, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
    count(d, PLIM_NONE);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_reset_peak(plim_vgpu *d, plim_err *err)
{
    (void)err;
    pthread_mutex_lock(&d->lock);
    plim_alloc_reset_peak(d->h);
    story_event(d, (plim_event){.kind = PLIM_EVENT_RESET_PEAK});
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_config(plim_vgpu *d, const char *alloc_conf, plim_err *err)
{
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_config(d->h, plim_str_of(alloc_conf), err);
    const char *own = st ? NULL : word_of(d, alloc_conf);
    if (!st && (!own || !story_begin(d) || !plim_tape_config(&d->tape, plim_str_of(own))))
        d->truncated = true;
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_fraction(plim_vgpu *d, double fraction, plim_err *err)
{
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_set_fraction(d->h, fraction, err);
    if (!st) {
        double parts = fraction * PLIM_FRACTION_ONE + 0.5;
        story_event(d, (plim_event){.id = parts < 1 ? 1 : (uint32_t)parts,
                                    .kind = PLIM_EVENT_FRACTION});
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

void plim_vgpu_mem_info(plim_vgpu *d, uint64_t *free_bytes, uint64_t *total)
{
    plim_alloc_stats s;
    pthread_mutex_lock(&d->lock);
    plim_alloc_get_stats(d->h, &s);
    *free_bytes = d->options.capacity - s.reserved_bytes.current;
    *total = d->card.total;
    pthread_mutex_unlock(&d->lock);
}

const char *plim_vgpu_oom_text(const plim_vgpu *d) { return d->oom_text ? d->oom_text : ""; }

/* ---- kernels --------------------------------------------------------------------- */

/* One call: arguments as the machine wants them, then what it made. */
typedef struct kernel_call {
    plim_machine *m;
    plim_named_arg *args;
    plim_t *value, *out;
    uint32_t n_values, n_out;
    uint32_t *block; /* of each storage on d->inside */
} kernel_call;

static bool kernel_meta(const plim_vgpu_tensor *t, plim_meta *out)
{
    if (t->rank < 0 || t->rank > PLIM_MAX_RANK || (unsigned)t->dtype >= PLIM_DTYPE_COUNT)
        return false;
    *out = plim_meta_make((plim_dtype)t->dtype, t->rank, t->dim);
    for (int i = 0; i < t->rank; i++)
        out->stride[i] = t->stride[i];
    return true;
}

/* ids[i]: the value that stands for tensor i; PLIM_NONE: None */
static plim_status kernel_tensors(kernel_call *k, const plim_vgpu_arg *a, uint32_t *ids,
                                  plim_err *err)
{
    for (uint32_t i = 0; i < a->n; i++) {
        plim_meta meta;
        ids[i] = PLIM_NONE;
        k->value[k->n_values] = 0;
        if (a->tensors[i].dtype < 0) {
            k->n_values++; /* so that the caller's count and ours agree */
            continue;
        }
        if (!kernel_meta(&a->tensors[i], &meta))
            return plim_fail(err, PLIM_ERANGE, 0,
                             "argument '%s': rank %d is over %d, or %d is "
                             "no data type",
                             a->name, a->tensors[i].rank, PLIM_MAX_RANK, a->tensors[i].dtype);
        ids[i] = k->n_values;
        k->value[k->n_values++] = plim_m_outside(k->m, &meta);
    }
    return PLIM_OK;
}

static plim_status kernel_args(plim_vgpu *d, kernel_call *k, const plim_vgpu_arg *args,
                               uint32_t n, plim_err *err)
{
    uint64_t total = 0;
    for (uint32_t i = 0; i < n; i++)
        total += args[i].kind == PLIM_VGPU_TENSOR || args[i].kind == PLIM_VGPU_TENSORS
                     ? args[i].n
                     : 0;
    k->n_out = (uint32_t)PLIM_MIN(total + PLIM_KERNEL_OUTS, 1u << 24);
    k->args = PLIM_NEW_N(&d->scratch, plim_named_arg, (uint64_t)n + 1);
    k->value = PLIM_NEW_N(&d->scratch, plim_t, total + 1);
    k->out = PLIM_NEW_N(&d->scratch, plim_t, k->n_out);
    uint32_t *ids = PLIM_NEW_N(&d->scratch, uint32_t, total + 1);
    if (!k->args || !k->value || !k->out || !ids)
        return plim_oom(err);
    for (uint32_t i = 0; i < n; i++) {
        const plim_vgpu_arg *from = &args[i];
        plim_arg a = {.kind = PLIM_ARG_NONE, .n = from->n};
        uint32_t *first = ids + k->n_values;
        plim_status st = PLIM_OK;
        switch (from->kind) {
        case PLIM_VGPU_NOTHING: break;
        case PLIM_VGPU_TENSOR:
        case PLIM_VGPU_TENSORS:
            st = kernel_tensors(k, from, first, err);
            a.kind = PLIM_ARG_VALUES;
            a.ids = first;
            if (!st && from->kind == PLIM_VGPU_TENSOR) {
                a.kind = *first == PLIM_NONE ? PLIM_ARG_NONE : PLIM_ARG_VALUE;
                a.id = *first;
            }
            break;
        case PLIM_VGPU_INT:
            a.kind = PLIM_ARG_INT;
            a.i = from->ints[0];
            break;
        case PLIM_VGPU_INTS:
            a.kind = PLIM_ARG_INTS;
            a.ints = from->ints;
            break;
        case PLIM_VGPU_FLOAT:
            a.kind = PLIM_ARG_FLOAT;
            a.f = from->number;
            break;
        }
        if (st)
            return st;
        k->args[i] = (plim_named_arg){plim_str_of(from->name), a};
    }
    return PLIM_OK;
}

/* Serves the first n events that a kernel has written. */
static plim_status kernel_serve(plim_vgpu *d, kernel_call *k, uint32_t n, uint16_t stream,
                                const plim_vgpu_tag *tag, bool *oom, plim_err *err)
{
    plim_status st = PLIM_OK;
    for (uint32_t i = 0; i < d->inside.n_storages; i++)
        k->block[i] = PLIM_VGPU_NONE;
    for (uint32_t i = 0; i < n && !st && !*oom; i++) {
        plim_event e = d->inside.events[i];
        if (e.kind == PLIM_EVENT_FREE) {
            if (k->block[e.id] != PLIM_VGPU_NONE)
                st = take_back(d, k->block[e.id], err);
            k->block[e.id] = PLIM_VGPU_NONE;
        } else if (e.kind == PLIM_EVENT_ALLOC) {
            plim_storage s = d->inside.storages[e.id];
            if (!plim_storage_bytes(&s, d->bound))
                continue;
            if (s.category != PLIM_CAT_WORKSPACE)
                s.category = (uint8_t)category_of(d, tag);
            st = serve(d, &s, stream, tag, &k->block[e.id], err);
            *oom = !st && k->block[e.id] == PLIM_VGPU_NONE;
        }
    }
    /* what was served before the card was full goes back */
    for (uint32_t i = 0; *oom && i < d->inside.n_storages; i++)
        if (k->block[i] != PLIM_VGPU_NONE)
            take_back(d, k->block[i], NULL);
    return st;
}

static void kernel_result(plim_vgpu *d, const kernel_call *k, uint32_t i, plim_vgpu_result *r)
{
    const plim_t t = k->out[i];
    const plim_meta *x = plim_m_meta(k->m, t);
    uint32_t s = plim_m_tape_storage(k->m, t);
    *r = (plim_vgpu_result){.tensor = {.dtype = -1},
                            .block = PLIM_VGPU_NONE,
                            .shares = PLIM_VGPU_NONE,
                            .argument = PLIM_VGPU_NONE};
    if (!t)
        return;
    r->tensor.dtype = (int)x->dtype;
    r->tensor.rank = x->rank;
    for (int32_t j = 0; j < x->rank; j++) {
        r->tensor.dim[j] = x->dim[j];
        r->tensor.stride[j] = x->stride[j];
    }
    for (uint32_t j = 0; j < k->n_values; j++)
        if (k->value[j] == t)
            r->argument = j;
    for (uint32_t j = i; s != PLIM_NONE && j-- > 0;)
        if (k->out[j] && plim_m_tape_storage(k->m, k->out[j]) == s)
            r->shares = j;
    if (s == PLIM_NONE || r->shares != PLIM_VGPU_NONE || k->block[s] == PLIM_VGPU_NONE)
        return;
    r->block = k->block[s];
    r->bytes = d->slots[r->block].bytes;
    r->addr = plim_alloc_address(d->h, d->slots[r->block].block);
}

/* The machine forgets the results: their blocks are the caller's.  What it keeps
 * for itself (workspaces) is never freed, so old numbers are not met again. */
static void kernel_end(plim_vgpu *d, kernel_call *k)
{
    for (uint32_t i = 0; i < k->n_out; i++)
        plim_m_drop(k->m, k->out[i]);
    for (uint32_t i = 0; i < k->n_values; i++)
        plim_m_drop(k->m, k->value[i]);
    plim_m_forgive(k->m);
    d->inside.n_events = d->inside.n_storages = d->inside.n_marks = 0;
}

static plim_status kernel_run(plim_vgpu *d, kernel_call *k, const plim_kernel *kernel,
                              const plim_vgpu_kernel_call *call, plim_vgpu_result *out,
                              uint32_t max, uint32_t *n_out, bool *oom, plim_err *err)
{
    plim_status st = kernel_args(d, k, call->args, call->n_args, err);
    if (!st)
        st = plim_kernel_call(k->m, &d->scratch, kernel, k->args, call->n_args, k->value,
                              k->out, &k->n_out, &d->kernel_err);
    if (st && st == plim_m_status(k->m) && err)
        *err = d->kernel_err;
    if (!st && k->n_out > max)
        st = plim_fail(err, PLIM_ERANGE, 0,
                       "'%s' has %u results, over the %u that there is "
                       "room for",
                       kernel->name, (unsigned)k->n_out, (unsigned)max);
    if (!st &&
        !(k->block = PLIM_NEW_N(&d->scratch, uint32_t, (uint64_t)d->inside.n_storages + 1)))
        st = plim_oom(err);
    if (!st)
        st = kernel_serve(d, k, d->inside.n_events, call->stream, call->tag, oom, err);
    *n_out = st || *oom ? 0 : k->n_out;
    for (uint32_t i = 0; i < *n_out; i++)
        kernel_result(d, k, i, &out[i]);
    return st;
}

plim_status plim_vgpu_kernel(plim_vgpu *d, const char *name, const plim_vgpu_kernel_call *call,
                             plim_vgpu_result *out, uint32_t max, uint32_t *n_out, bool *oom,
                             plim_err *err)
{
    const plim_kernel *kernel = plim_kernel_find(plim_str_of(name));
    *n_out = 0;
    *oom = false;
    if (!kernel)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown kernel '%s'", name);
    pthread_mutex_lock(&d->lock);
    plim_arena_reset(&d->scratch);
    kernel_call k = {.m = d->kernel[call->autograd_thread]};
    plim_status st = kernel_run(d, &k, kernel, call, out, max, n_out, oom, err);
    kernel_end(d, &k);
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* Where another card would decide otherwise, the tape says nothing about it. */
static void compare_attention(plim_vgpu *d, const plim_meta *q, const plim_meta *k,
                              const plim_meta *v, const plim_sdpa_call *call, plim_sdpa here)
{
    for (uint32_t i = 0; i < d->n_cards; i++) {
        const plim_world w = plim_world_on(d->torch, d->cards[i], d->world.workspace);
        if (d->other_way[i] || plim_sdpa_choice(&w, q, k, v, call) == here)
            continue;
        char what[160];
        snprintf(what, sizeof what,
                 "attention takes another kernel on '%s' than here: run that card alone",
                 d->cards[i]->name);
        d->other_way[i] = true;
        plim_vgpu_note(d, "", what, NULL);
    }
}

int plim_vgpu_attention(plim_vgpu *d, const plim_vgpu_tensor *q, const plim_vgpu_tensor *k,
                        const plim_vgpu_tensor *v, const plim_vgpu_attention_call *call)
{
    plim_meta qm, km, vm;
    if (!kernel_meta(q, &qm) || !kernel_meta(k, &km) || !kernel_meta(v, &vm))
        return PLIM_SDPA_MATH;
    const plim_sdpa_call c = {.mask = call->mask,
                              .mask_grad = call->mask_grad,
                              .causal = call->causal,
                              .gqa = call->gqa,
                              .dropout = call->dropout,
                              .without = call->without};
    plim_sdpa choice = plim_sdpa_choice(&d->world, &qm, &km, &vm, &c);
    if (d->n_cards > 1)
        compare_attention(d, &qm, &km, &vm, &c, choice);
    return (int)choice;
}

const char *plim_vgpu_kernel_name(uint32_t i, bool *makes)
{
    const plim_kernel *k = plim_kernel_at(i);
    *makes = k && k->makes;
    return k ? k->name : NULL;
}

/* ---- looking inside -------------------------------------------------------------- */

static const struct {
    const char *name;
    plim_stat_kind kind;
    size_t at;
} stat_rows[] = {
#define ROW(field, kind)                                                                      \
    {                                                                                         \
#field, kind, offsetof(plim_alloc_stats, field)                                       \
    }
    ROW(allocation, PLIM_STAT_POOLS),
    ROW(segment, PLIM_STAT_POOLS),
    ROW(active, PLIM_STAT_POOLS),
    ROW(inactive_split, PLIM_STAT_POOLS),
    ROW(allocated_bytes, PLIM_STAT_POOLS),
    ROW(reserved_bytes, PLIM_STAT_POOLS),
    ROW(active_bytes, PLIM_STAT_POOLS),
    ROW(inactive_split_bytes, PLIM_STAT_POOLS),
    ROW(requested_bytes, PLIM_STAT_POOLS),
    ROW(oversize_allocations, PLIM_STAT_WHOLE),
    ROW(oversize_segments, PLIM_STAT_WHOLE),
    ROW(num_alloc_retries, PLIM_STAT_NUMBER),
    ROW(num_ooms, PLIM_STAT_NUMBER),
    ROW(num_sync_all_streams, PLIM_STAT_NUMBER),
    ROW(num_device_alloc, PLIM_STAT_NUMBER),
    ROW(num_device_free, PLIM_STAT_NUMBER),
#undef ROW
};

static void get_stats(const plim_vgpu *d, plim_alloc_stats out[3])
{
    plim_alloc_get_stats(d->h, &out[0]);
    plim_alloc_get_pool_stats(d->h, true, &out[1]);
    plim_alloc_get_pool_stats(d->h, false, &out[2]);
}

static plim_stat stat_since(const plim_alloc_stats *now, const plim_alloc_stats *zero,
                            size_t at, plim_stat_kind kind)
{
    const void *n = (const char *)now + at, *z = (const char *)zero + at;
    if (kind == PLIM_STAT_NUMBER)
        return (plim_stat){.current = *(const uint64_t *)n - *(const uint64_t *)z};
    plim_stat s = *(const plim_stat *)n;
    s.total_allocated -= ((const plim_stat *)z)->total_allocated;
    s.total_freed -= ((const plim_stat *)z)->total_freed;
    return s;
}

uint32_t plim_vgpu_stats(plim_vgpu *d, plim_vgpu_stat *out, uint32_t max)
{
    plim_alloc_stats s[3];
    pthread_mutex_lock(&d->lock);
    get_stats(d, s);
    for (uint32_t i = 0; i < PLIM_COUNT(stat_rows) && i < max; i++) {
        size_t at = stat_rows[i].at;
        plim_stat_kind kind = stat_rows[i].kind;
        out[i] = (plim_vgpu_stat){.name = stat_rows[i].name, .kind = kind};
        out[i].all = stat_since(&s[0], &d->zero[0], at, kind);
        if (kind == PLIM_STAT_POOLS) {
            out[i].small = stat_since(&s[1], &d->zero[1], at, kind);
            out[i].large = stat_since(&s[2], &d->zero[2], at, kind);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return PLIM_COUNT(stat_rows);
}

void plim_vgpu_reset_accumulated(plim_vgpu *d)
{
    pthread_mutex_lock(&d->lock);
    get_stats(d, d->zero);
    pthread_mutex_unlock(&d->lock);
}

uint32_t plim_vgpu_blocks(plim_vgpu *d, plim_vgpu_block *out, uint32_t max)
{
    plim_arena a = PLIM_ARENA_INIT;
    pthread_mutex_lock(&d->lock);
    uint32_t n = plim_alloc_blocks(d->h, NULL, 0), highest = 0;
    plim_alloc_block *b = PLIM_NEW_N(&a, plim_alloc_block, n);
    if (b && max)
        plim_alloc_blocks(d->h, b, n);
    for (uint32_t i = 0; i < d->n_slots; i++)
        if (d->slots[i].block != PLIM_NONE)
            highest = PLIM_MAX(highest, d->slots[i].block);
    uint32_t *owner = PLIM_NEW_N(&a, uint32_t, (uint64_t)highest + 1);
    for (uint32_t i = 0; owner && i < d->n_slots; i++)
        if (d->slots[i].block != PLIM_NONE)
            owner[d->slots[i].block] = i + 1;
    for (uint32_t i = 0; b && owner && i < n && i < max; i++) {
        bool live = b[i].state == PLIM_BLOCK_ALLOCATED && b[i].block <= highest;
        const slot *s = live && owner[b[i].block] ? &d->slots[owner[b[i].block] - 1] : NULL;
        out[i] =
            (plim_vgpu_block){.addr = b[i].addr,
                              .bytes = b[i].bytes,
                              .requested = b[i].requested,
                              .stream = b[i].stream,
                              .state = b[i].state,
                              .first = b[i].first,
                              .small = b[i].small,
                              .expandable = b[i].expandable,
                              .line = s && s->line != PLIM_NONE ? d->lines[s->line].text : "",
                              .op = s ? s->op : ""};
    }
    pthread_mutex_unlock(&d->lock);
    plim_arena_free(&a);
    return b && owner ? n : 0;
}

/* ---- history ---------------------------------------------------------------------- */

/* In PyTorch's words. */
static const char *const action_names[] = {
    [PLIM_TRACE_ALLOC] = "alloc",
    [PLIM_TRACE_FREE_REQUESTED] = "free_requested",
    [PLIM_TRACE_FREE_COMPLETED] = "free_completed",
    [PLIM_TRACE_SEGMENT_ALLOC] = "segment_alloc",
    [PLIM_TRACE_SEGMENT_FREE] = "segment_free",
    [PLIM_TRACE_SEGMENT_MAP] = "segment_map",
    [PLIM_TRACE_SEGMENT_UNMAP] = "segment_unmap",
    [PLIM_TRACE_OOM] = "oom",
};

/* The allocator did something; the lock is held by whoever made it do so.  Action
 * k lies at k modulo the number that are kept. */
static void watch(void *ud, plim_trace_action action, uint64_t addr, uint64_t bytes,
                  uint16_t stream)
{
    plim_vgpu *d = ud;
    bool room = d->n_traces < d->max_traces &&
                PLIM_PUSH_ROOM(&d->history, d->traces, d->n_traces, d->cap_traces);
    if (room)
        d->n_traces++;
    else
        d->max_traces = d->n_traces;
    if (d->n_traces)
        d->traces[d->traced % d->n_traces] = (plim_vgpu_trace){
            .action = action_names[action],
            .addr = addr,
            .bytes = bytes,
            .number = d->traced,
            .stream = stream,
            .line = d->line_now == PLIM_NONE ? "" : d->lines[d->line_now].text,
            .op = d->op_now ? d->op_now : ""};
    d->traced++;
}

void plim_vgpu_history(plim_vgpu *d, uint64_t entries, bool clear)
{
    uint32_t max = (uint32_t)PLIM_MIN(entries, UINT32_MAX);
    pthread_mutex_lock(&d->lock);
    if (clear || (max && max != d->asked_traces)) {
        plim_arena_reset(&d->history);
        d->traces = NULL;
        d->n_traces = d->cap_traces = 0;
        d->traced = 0;
        d->max_traces = d->asked_traces = max;
    }
    plim_alloc_set_watch(d->h, max ? watch : NULL, d);
    pthread_mutex_unlock(&d->lock);
}

uint32_t plim_vgpu_traces(plim_vgpu *d, plim_vgpu_trace *out, uint32_t max)
{
    pthread_mutex_lock(&d->lock);
    uint32_t n = d->n_traces;
    for (uint32_t i = 0; i < n && i < max; i++)
        out[i] = d->traces[(d->traced - n + i) % n];
    pthread_mutex_unlock(&d->lock);
    return n;
}

/* ---- the story ------------------------------------------------------------------- */

plim_status plim_vgpu_mark(plim_vgpu *d, int step, plim_phase phase, const char *op,
                           plim_err *err)
{
    if ((unsigned)phase >= PLIM_PHASE_COUNT || step < -1)
        return plim_fail(err, PLIM_EUSAGE, 0, "no such phase, or step %d is below -1", step);
    pthread_mutex_lock(&d->lock);
    const char *own = word_of(d, op);
    d->at =
        (plim_mark){.step = step, .phase = (uint8_t)phase, .op = plim_str_of(own ? own : "")};
    d->at_new = true;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_label(plim_vgpu *d, uint32_t block, plim_category category,
                            const char *name, plim_err *err)
{
    plim_status st = PLIM_OK;
    pthread_mutex_lock(&d->lock);
    if (block >= d->n_slots || d->slots[block].block == PLIM_NONE ||
        (unsigned)category >= PLIM_CAT_COUNT)
        st = plim_fail(err, PLIM_EUSAGE, block, "block %" PRIu32 " is not live", block);
    if (!st && d->slots[block].storage != PLIM_NONE) {
        plim_storage *s = &d->tape.storages[d->slots[block].storage];
        const char *own = name && *name ? word_of(d, name) : NULL;
        s->category = (uint8_t)category;
        if (own)
            s->role = own;
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_note(plim_vgpu *d, const char *line, const char *what, plim_err *err)
{
    uint32_t i;
    plim_status st = PLIM_OK;
    pthread_mutex_lock(&d->lock);
    const char *l = word_of(d, line), *w = word_of(d, what);
    plim_str key = l && w ? plim_arena_printf(&d->story, "%s\n%s", l, w) : (plim_str){NULL, 0};
    if (!key.p)
        st = plim_oom(err);
    else if (plim_map_get(&d->caveats_by_key, key, &i))
        d->caveats[i].count++;
    else if (!PLIM_PUSH_ROOM(&d->story, d->caveats, d->n_caveats, d->cap_caveats) ||
             !plim_map_put(&d->story, &d->caveats_by_key, key, d->n_caveats))
        st = plim_oom(err);
    else
        d->caveats[d->n_caveats++] = (plim_vgpu_caveat){.line = l, .what = w, .count = 1};
    pthread_mutex_unlock(&d->lock);
    return st;
}

uint32_t plim_vgpu_lines(plim_vgpu *d, const char **out, uint32_t max)
{
    pthread_mutex_lock(&d->lock);
    uint32_t n = d->n_lines;
    for (uint32_t i = 0; i < n && i < max; i++)
        out[i] = d->lines[i].text;
    pthread_mutex_unlock(&d->lock);
    return n;
}

plim_status plim_vgpu_source(plim_vgpu *d, uint32_t line, const char *text, plim_err *err)
{
    plim_status st = PLIM_OK;
    pthread_mutex_lock(&d->lock);
    const char *own = line < d->n_lines ? word_of(d, text) : NULL;
    if (own)
        d->lines[line].source = own;
    else
        st = line < d->n_lines ? plim_oom(err)
                               : plim_fail(err, PLIM_EUSAGE, line,
                                           "line %" PRIu32 " of %" PRIu32, line, d->n_lines);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_ended(plim_vgpu *d, plim_vgpu_end how, plim_err *err)
{
    if ((unsigned)how >= PLIM_VGPU_END_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "no such end: %d", (int)how);
    pthread_mutex_lock(&d->lock);
    d->end = how == PLIM_VGPU_END_MEMORY && !d->ooms ? PLIM_VGPU_END_EARLY : how;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

static int put_file(void *ud, const char *text, size_t n)
{
    return fwrite(text, 1, n, ud) != n;
}

plim_status plim_vgpu_save(plim_vgpu *d, const char *path, plim_err *err)
{
    FILE *f = fopen(path, "w");
    if (!f)
        return plim_fail(err, PLIM_EIO, 0, "cannot write '%s': %s", path, strerror(errno));
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_tape_write(&d->tape, put_file, f, err);
    pthread_mutex_unlock(&d->lock);
    bool bad = ferror(f) != 0;
    bad |= fclose(f) != 0;
    if (!st && bad)
        st = plim_fail(err, PLIM_EIO, 0, "cannot write '%s': %s", path, strerror(errno));
    return st;
}

/* ---- the report ------------------------------------------------------------------ */

typedef struct report_result {
    plim_vgpu_report pub;
    plim_arena arena;
} report_result;

typedef struct live_row {
    const plim_storage *s;
    uint32_t line;
    uint64_t bytes;
} live_row;

static int compare_u64(uint64_t a, uint64_t b) { return (a > b) - (a < b); }

static int compare_dims(const plim_meta *a, const plim_meta *b)
{
    if (!a || !b)
        return (a != NULL) - (b != NULL);
    int c = (int)a->dtype - (int)b->dtype;
    c = c ? c : a->rank - b->rank;
    for (int32_t i = 0; !c && i < a->rank; i++)
        c = compare_u64((uint64_t)a->dim[i], (uint64_t)b->dim[i]);
    return c;
}

/* Of one line, of one kind, of one shape: one group. */
static int compare_group(const void *x, const void *y)
{
    const live_row *a = x, *b = y;
    int c = compare_u64(a->line, b->line);
    c = c ? c : (int)a->s->category - (int)b->s->category;
    c = c ? c : compare_dims(a->s->meta, b->s->meta);
    return c || a->s->meta ? c : compare_u64(a->bytes, b->bytes);
}

static int compare_live(const void *x, const void *y)
{
    const plim_vgpu_line *a = x, *b = y;
    int c = compare_u64(b->live, a->live);
    return c ? c : strcmp(a->line, b->line);
}

static int compare_tensors(const void *x, const void *y)
{
    const plim_vgpu_tensors *a = x, *b = y;
    int c = compare_u64(a->line, b->line);
    return c ? c : compare_u64(b->bytes, a->bytes);
}

/* NULL: no memory. */
static live_row *find_live(const plim_vgpu *d, plim_arena *a, uint32_t *n)
{
    uint32_t *live;
    if (plim_sim_live_after(a, &d->tape, d->peak_event, &live, n, NULL))
        return NULL;
    live_row *rows = PLIM_NEW_N(a, live_row, *n);
    for (uint32_t i = 0; rows && i < *n; i++) {
        const plim_storage *s = &d->tape.storages[live[i]];
        rows[i] = (live_row){.s = s,
                             .line = d->storage_line[live[i]],
                             .bytes = plim_storage_bytes(s, d->bound)};
    }
    if (rows)
        qsort(rows, *n, sizeof *rows, compare_group);
    return rows;
}

static void group_live(const live_row *rows, uint32_t n, plim_vgpu_report *r,
                       plim_vgpu_tensors *t, plim_vgpu_line *lines)
{
    for (uint32_t i = 0; i < n; i++) {
        const plim_meta *m = rows[i].s->meta;
        r->category[rows[i].s->category] += rows[i].bytes;
        lines[rows[i].line].live += rows[i].bytes;
        if (!i || compare_group(&rows[i - 1], &rows[i])) {
            plim_vgpu_tensors *fresh = &t[r->n_tensors++];
            *fresh = (plim_vgpu_tensors){.line = rows[i].line,
                                         .category = (plim_category)rows[i].s->category,
                                         .dtype = m ? (int)m->dtype : -1,
                                         .rank = m ? m->rank : -1};
            if (m)
                memcpy(fresh->dim, m->dim, sizeof m->dim);
        }
        t[r->n_tensors - 1].count++;
        t[r->n_tensors - 1].bytes += rows[i].bytes;
    }
}

/* Lines by what they hold; the groups follow their lines. */
static bool order_lines(plim_arena *a, plim_vgpu_report *r, plim_vgpu_line *lines,
                        plim_vgpu_tensors *t)
{
    uint32_t *place = PLIM_NEW_N(a, uint32_t, (uint64_t)r->n_lines + 1);
    plim_map by_text = {0};
    if (!place)
        return false;
    for (uint32_t i = 0; i < r->n_lines; i++)
        if (!plim_map_put(a, &by_text, plim_str_of(lines[i].line), i))
            return false;
    qsort(lines, r->n_lines, sizeof *lines, compare_live);
    for (uint32_t i = 0; i < r->n_lines; i++) {
        uint32_t old = 0;
        plim_map_get(&by_text, plim_str_of(lines[i].line), &old);
        place[old] = i;
    }
    for (uint32_t i = 0; i < r->n_tensors; i++)
        t[i].line = place[t[i].line];
    qsort(t, r->n_tensors, sizeof *t, compare_tensors);
    return true;
}

static const char *copy_text(plim_arena *a, const char *z, bool *ok)
{
    const char *own = plim_arena_str(a, plim_str_of(z ? z : "")).p;
    *ok &= own != NULL;
    return own;
}

static bool report_lists(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r)
{
    uint32_t n = 0;
    bool ok = true;
    live_row *live = find_live(d, a, &n);
    plim_vgpu_tensors *t = PLIM_NEW_N(a, plim_vgpu_tensors, (uint64_t)n + 1);
    plim_vgpu_line *lines = PLIM_NEW_N(a, plim_vgpu_line, (uint64_t)d->n_lines + 1);
    plim_phase_row *rows = PLIM_NEW_N(a, plim_phase_row, (uint64_t)d->n_rows + 1);
    plim_vgpu_caveat *caveats = PLIM_NEW_N(a, plim_vgpu_caveat, (uint64_t)d->n_caveats + 1);
    if (!live || !t || !lines || !rows || !caveats)
        return false;
    for (uint32_t i = 0; i < d->n_lines; i++)
        lines[i] = (plim_vgpu_line){.line = copy_text(a, d->lines[i].text, &ok),
                                    .source = copy_text(a, d->lines[i].source, &ok),
                                    .allocations = d->lines[i].allocations,
                                    .requested = d->lines[i].requested};
    for (uint32_t i = 0; i < d->n_caveats; i++)
        caveats[i] = (plim_vgpu_caveat){.line = copy_text(a, d->caveats[i].line, &ok),
                                        .what = copy_text(a, d->caveats[i].what, &ok),
                                        .count = d->caveats[i].count};
    if (d->n_rows)
        memcpy(rows, d->rows, d->n_rows * sizeof *rows);
    r->n_lines = d->n_lines;
    group_live(live, n, r, t, lines);
    r->lines = lines;
    r->tensors = t;
    r->phases = rows;
    r->n_phases = d->n_rows;
    r->caveats = caveats;
    r->n_caveats = d->n_caveats;
    return ok && order_lines(a, r, lines, t);
}

/* ---- other cards ----------------------------------------------------------------- */

/* The tape as it would be with a cuBLAS workspace of another size.  What else
 * kernels take depends on the card too, by little; that stays as it is. */
static bool tape_for(const plim_vgpu *d, const plim_gpu *gpu, plim_arena *a, plim_tape *out)
{
    uint64_t was = d->world.cublas_ws;
    uint64_t is = plim_world_on(d->torch, gpu, d->world.workspace).cublas_ws;
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

static plim_status try_card(plim_vgpu *d, const plim_gpu *gpu, plim_arena *a,
                            plim_vgpu_verdict *v, plim_err *err)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_alloc_options o = d->options;
    plim_tape t;
    plim_sim sim = {0};
    bool ok = tape_for(d, gpu, &scratch, &t);
    o.total = gpu->memory_bytes;
    o.capacity = capacity_of(gpu, d->torch);
    plim_status st =
        ok ? plim_sim_run(&scratch, &t, &o, PLIM_SIM_STOP_AT_OOM, &sim, err) : plim_oom(err);
    if (!st) {
        v->fits = sim.oom ? 0 : d->truncated || d->end == PLIM_VGPU_END_MEMORY ? -1 : 1;
        v->peak_allocated = sim.peak_allocated;
        v->peak_reserved = sim.peak_reserved;
        if (sim.oom) {
            uint32_t line = d->storage_line[d->tape.events[sim.oom_event].id];
            v->oom_line = copy_text(a, d->lines[line].text, &ok);
            v->oom_text = copy_text(a, sim.oom_text.p, &ok);
        }
    }
    plim_arena_free(&scratch);
    return st ? st : ok ? PLIM_OK : plim_oom(err);
}

static plim_status report_cards(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r,
                                plim_err *err)
{
    uint32_t n = PLIM_MAX(d->n_cards, 1u);
    plim_vgpu_verdict *rows = PLIM_NEW_N(a, plim_vgpu_verdict, n);
    plim_status st = rows ? PLIM_OK : plim_oom(err);
    bool own = false, ok = true;
    for (uint32_t i = 0; i < n && !st; i++) {
        const plim_gpu *gpu = d->cards ? d->cards[i] : NULL;
        plim_vgpu_verdict *v = &rows[i];
        uint64_t low = d->context_low, high = d->context_high;
        bool this_one = !own && (n == 1 || (gpu && !strcmp(gpu->name, d->card.name)));
        if (this_one || !gpu) {
            own = true;
            *v = (plim_vgpu_verdict){.gpu = r->card.name,
                                     .gpu_bytes = d->card.total,
                                     .fits = d->end != PLIM_VGPU_END_MEMORY,
                                     .peak_allocated = r->peak_allocated,
                                     .peak_reserved = r->peak_reserved,
                                     .oom_line = r->oom_line,
                                     .oom_text = r->oom_text};
        } else {
            v->gpu = copy_text(a, gpu->name, &ok);
            v->gpu_bytes = gpu->memory_bytes;
            plim_gpu_context(gpu, d->torch->version, &low, &high);
            st = try_card(d, gpu, a, v, err);
            v->fits = d->other_way[i] ? -1 : v->fits;
        }
        v->device_low = high ? v->peak_reserved + low : 0;
        v->device_high = high ? v->peak_reserved + high : 0;
    }
    r->cards = rows;
    r->n_cards = n;
    return st ? st : ok ? PLIM_OK : plim_oom(err);
}

static bool report_fill(plim_vgpu *d, plim_arena *a, plim_vgpu_report *r)
{
    plim_alloc_stats s;
    bool ok = true;
    plim_alloc_get_stats(d->h, &s);
    *r = (plim_vgpu_report){.card = d->card,
                            .context_low = d->context_low,
                            .context_high = d->context_high,
                            .context_known = d->context_high > 0,
                            .peak_requested = d->peak_requested,
                            .peak_allocated = d->peak_allocated,
                            .peak_reserved = d->peak_reserved,
                            .events = d->tape.n_events,
                            .storages = d->tape.n_storages,
                            .truncated = d->truncated,
                            .peak_step = d->peak_at.step,
                            .peak_phase = (plim_phase)d->peak_at.phase,
                            .num_ooms = s.num_ooms,
                            .num_alloc_retries = s.num_alloc_retries};
    r->card.name = copy_text(a, d->card.name, &ok);
    r->peak_op = copy_text(a, d->peak_at.op.p, &ok);
    r->peak_line =
        copy_text(a, d->peak_line == PLIM_NONE ? "" : d->lines[d->peak_line].text, &ok);
    r->end = d->end;
    if (d->ooms) {
        r->oom_text = copy_text(a, d->first_oom_text, &ok);
        r->oom_line = copy_text(a, d->first_oom_line, &ok);
    }
    return report_lists(d, a, r) && ok;
}

plim_status plim_vgpu_report_make(plim_vgpu *d, plim_vgpu_report **out, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    report_result *r = PLIM_NEW(&a, report_result);
    if (!r)
        return plim_oom(err);
    r->arena = a;
    pthread_mutex_lock(&d->lock);
    plim_status st = report_fill(d, &r->arena, &r->pub) ? PLIM_OK : plim_oom(err);
    if (!st)
        st = report_cards(d, &r->arena, &r->pub, err);
    pthread_mutex_unlock(&d->lock);
    if (st)
        plim_vgpu_report_free(&r->pub);
    else
        *out = &r->pub;
    return st;
}

void plim_vgpu_report_free(plim_vgpu_report *r)
{
    if (!r)
        return;
    plim_arena a = ((report_result *)(void *)r)->arena; /* it frees the struct it stands in */
    plim_arena_free(&a);
}
