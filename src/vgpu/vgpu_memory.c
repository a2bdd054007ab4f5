/* vgpu_memory.c -- requests and releases: the simulated allocator serves them, the
 * tape has them with the line of the user's code that made them. */
#include "vgpu/vgpu_priv.h"

/* ---- blocks ------------------------------------------------------------------- */

static plim_status take_slot(plim_vgpu *d, uint32_t *out, plim_err *err)
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

static void give_slot(plim_vgpu *d, uint32_t i)
{
    plim_assert(d->slots[i].block != PLIM_NONE);
    d->slots[i] =
        (vgpu_slot){.block = PLIM_NONE, .storage = PLIM_NONE, .next_free = d->free_slot};
    d->free_slot = i;
}

/* The request stays on the tape, dead at once, so that a replay meets it too. */
static void record_oom(plim_vgpu *d, uint32_t line, uint32_t storage, uint64_t bytes)
{
    plim__vgpu_tape_free(d, storage);
    plim_arena_reset(&d->text);
    plim_str text = plim_alloc_oom_text(d->h, &d->text);
    d->oom_text = text.p ? text.p : "CUDA out of memory.";
    plim__vgpu_attempt_failed(d, line, bytes);
}

plim_status plim__vgpu_serve(plim_vgpu *d, const plim_storage *what, uint16_t stream,
                             const plim_vgpu_tag *tag, uint32_t *out, plim_err *err)
{
    uint32_t block, i = PLIM_NONE, line = plim__vgpu_line(d, tag ? tag->line : NULL);
    uint64_t bytes = plim_storage_bytes(what, d->bound);
    plim_assert(bytes > 0);
    const char *op = tag && tag->op ? plim__vgpu_word(d, tag->op) : "";
    *out = PLIM_VGPU_NONE;
    d->line_now = line;
    d->op_now = op ? op : "";
    plim_status st = plim_alloc_malloc(d->h, bytes, stream, &block, err);
    if (!st && block != PLIM_NONE)
        st = take_slot(d, &i, err);
    if (st)
        return st;
    plim_storage settled = *what;
    if (d->bound != PLIM_BOUND_USUAL) { /* nothing is left open */
        settled.bytes = bytes;
        settled.low = settled.high = 0;
    }
    uint32_t storage = plim__vgpu_tape_alloc(d, &settled, stream, tag, line);
    if (line != PLIM_NONE && i != PLIM_NONE) {
        d->lines[line].allocations++;
        d->lines[line].requested += bytes;
    }
    if (i == PLIM_NONE) {
        record_oom(d, line, storage, bytes);
        return PLIM_OK;
    }
    d->slots[i] = (vgpu_slot){.block = block,
                              .storage = storage,
                              .line = line,
                              .bytes = bytes,
                              .op = d->op_now,
                              .next_free = PLIM_NONE};
    d->requested += bytes;
    plim__vgpu_count(d, true, line);
    *out = i;
    return PLIM_OK;
}

/* The slot of a live block; NULL: it is none. */
static vgpu_slot *find_slot(plim_vgpu *d, uint32_t block, plim_err *err)
{
    if (block < d->n_slots && d->slots[block].block != PLIM_NONE)
        return &d->slots[block];
    plim_fail(err, PLIM_EUSAGE, block, "block %" PRIu32 " is not live", block);
    return NULL;
}

plim_status plim__vgpu_take_back(plim_vgpu *d, uint32_t i, plim_err *err)
{
    const vgpu_slot *s = find_slot(d, i, err);
    if (!s)
        return PLIM_EUSAGE;
    d->line_now = s->line;
    d->op_now = s->op;
    PLIM_TRY(plim_alloc_free(d->h, s->block, err));
    plim__vgpu_tape_free(d, s->storage);
    plim_assert(d->requested >= s->bytes);
    d->requested -= s->bytes;
    give_slot(d, i);
    plim__vgpu_count(d, false, PLIM_NONE);
    return PLIM_OK;
}

/* ---- what the program asks for ------------------------------------------------ */

plim_status plim_vgpu_malloc(plim_vgpu *d, uint64_t bytes, uint16_t stream,
                             const plim_vgpu_tag *tag, uint32_t *block, uint64_t *addr,
                             plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(block, err);
    PLIM_REQUIRE(addr, err);
    *block = PLIM_VGPU_NONE;
    *addr = 0;
    if (!bytes)
        return plim_fail(err, PLIM_EUSAGE, 0, "a request of 0 bytes");
    if (stream == PLIM_ALL_STREAMS)
        return plim_fail(err, PLIM_EUSAGE, 0, "stream %u is over the limit of %u", stream,
                         PLIM_ALL_STREAMS - 1u);
    pthread_mutex_lock(&d->lock);
    plim_storage s = {.bytes = bytes,
                      .meta = plim__vgpu_meta(d, tag),
                      .category = (uint8_t)plim__vgpu_category(d, tag),
                      .certainty = (uint8_t)(tag ? tag->certainty : PLIM_EXACT)};
    plim_status st = plim__vgpu_serve(d, &s, stream, tag, block, err);
    if (!st && *block != PLIM_VGPU_NONE)
        *addr = plim_alloc_address(d->h, d->slots[*block].block);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_free(plim_vgpu *d, uint32_t block, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    plim_status st = plim__vgpu_take_back(d, block, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_record_stream(plim_vgpu *d, uint32_t block, uint16_t stream,
                                    plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    const vgpu_slot *s = find_slot(d, block, err);
    plim_status st = s ? plim_alloc_record_stream(d->h, s->block, stream, err) : PLIM_EUSAGE;
    if (!st && s->storage != PLIM_NONE)
        plim__vgpu_tape_event(d, (plim_event){.id = s->storage,
                                              .stream = stream,
                                              .kind = PLIM_EVENT_RECORD_STREAM});
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_sync(plim_vgpu *d, uint16_t stream, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    plim_alloc_stream_done(d->h, stream);
    plim__vgpu_tape_event(d, (plim_event){.stream = stream, .kind = PLIM_EVENT_STREAM_DONE});
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_hold(plim_vgpu *d, uint16_t stream, bool held, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if (stream == PLIM_ALL_STREAMS)
        return plim_fail(err, PLIM_EUSAGE, 0, "stream %u is over the limit of %u", stream,
                         PLIM_ALL_STREAMS - 1u);
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_hold(d->h, stream, held, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim__vgpu_empty_cache(plim_vgpu *d, plim_err *err)
{
    plim_status st = plim_alloc_empty_cache(d->h, err);
    plim__vgpu_tape_event(d, (plim_event){.kind = PLIM_EVENT_EMPTY_CACHE});
    plim__vgpu_count(d, false, PLIM_NONE);
    return st;
}

plim_status plim_vgpu_empty_cache(plim_vgpu *d, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    plim_status st = plim__vgpu_empty_cache(d, err);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_reset_peak(plim_vgpu *d, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    plim_alloc_reset_peak(d->h);
    plim__vgpu_tape_event(d, (plim_event){.kind = PLIM_EVENT_RESET_PEAK});
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_config(plim_vgpu *d, const char *alloc_conf, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(alloc_conf, err);
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_config(d->h, plim_str_of(alloc_conf), err);
    if (!st)
        plim__vgpu_tape_config(d, alloc_conf);
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_fraction(plim_vgpu *d, double fraction, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_alloc_set_fraction(d->h, fraction, err);
    if (!st) {
        double parts = fraction * PLIM_FRACTION_ONE + 0.5;
        plim__vgpu_tape_event(d, (plim_event){.id = parts < 1 ? 1 : (uint32_t)parts,
                                              .kind = PLIM_EVENT_FRACTION});
    }
    pthread_mutex_unlock(&d->lock);
    return st;
}

/* "layers.0" of "layers.0.weight", and of what belongs to it: "layers.0.weight.grad". */
static const char *owner_of(plim_vgpu *d, const char *name, plim_category category)
{
    size_t n = strlen(name);
    bool itself = category == PLIM_CAT_PARAMETER || category == PLIM_CAT_BUFFER;
    for (int names = itself ? 1 : 2; names && n; names--)
        do
            n--;
        while (n && name[n] != '.');
    const char *own = plim__vgpu_word_of(d, (plim_str){name, n});
    return own ? own : "";
}

plim_status plim_vgpu_label(plim_vgpu *d, uint32_t block, plim_category category,
                            const char *name, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if ((unsigned)category >= PLIM_CAT_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown category %d", (int)category);
    pthread_mutex_lock(&d->lock);
    const vgpu_slot *s = find_slot(d, block, err);
    if (s && s->storage != PLIM_NONE) {
        plim_storage *on_tape = &d->tape.storages[s->storage];
        const char *role = name && *name ? plim__vgpu_word(d, name) : NULL;
        on_tape->category = (uint8_t)category;
        if (role) {
            on_tape->role = role;
            d->origin[s->storage].module = owner_of(d, name, category);
        }
    }
    pthread_mutex_unlock(&d->lock);
    return s ? PLIM_OK : PLIM_EUSAGE;
}

void plim_vgpu_mem_info(plim_vgpu *d, uint64_t *free_bytes, uint64_t *total)
{
    plim_alloc_stats s;
    pthread_mutex_lock(&d->lock);
    plim_alloc_get_stats(d->h, &s);
    plim_assert(s.reserved_bytes.current <= d->options.capacity);
    *free_bytes = d->options.capacity - s.reserved_bytes.current;
    *total = d->card.total;
    pthread_mutex_unlock(&d->lock);
}

void plim_vgpu_publish(plim_vgpu *d, uint64_t *used)
{
    pthread_mutex_lock(&d->lock);
    d->published = used;
    pthread_mutex_unlock(&d->lock);
}

size_t plim_vgpu_oom_text(plim_vgpu *d, char *out, size_t size)
{
    pthread_mutex_lock(&d->lock);
    plim_str text = plim_str_of(d->oom_text ? d->oom_text : "");
    if (size) {
        size_t n = PLIM_MIN(text.n, size - 1);
        memcpy(out, text.p, n);
        out[n] = '\0';
    }
    pthread_mutex_unlock(&d->lock);
    return text.n;
}
