/* vgpu_tape.c -- what a pretend GPU writes down: words, lines, shapes, the tape. */
#include "vgpu/vgpu_priv.h"

#include <errno.h>
#include <stdio.h>

/* ---- words -------------------------------------------------------------------- */

const char *plim__vgpu_word(plim_vgpu *d, const char *z)
{
    return plim__vgpu_word_of(d, plim_str_of(z ? z : ""));
}

const char *plim__vgpu_word_of(plim_vgpu *d, plim_str key)
{
    uint32_t i;
    if (plim_map_get(&d->words, key, &i))
        return d->word[i];
    key = plim_arena_str(&d->story, key);
    if (!key.p || !PLIM_PUSH_ROOM(&d->story, d->word, d->n_words, d->cap_words) ||
        !plim_map_put(&d->story, &d->words, key, d->n_words))
        return NULL;
    d->word[d->n_words] = key.p;
    return d->word[d->n_words++];
}

uint32_t plim__vgpu_line(plim_vgpu *d, const char *z)
{
    uint32_t i;
    if (plim_map_get(&d->lines_by_text, plim_str_of(z ? z : ""), &i))
        return i;
    const char *text = plim__vgpu_word(d, z);
    if (!text || !PLIM_PUSH_ROOM(&d->story, d->lines, d->n_lines, d->cap_lines) ||
        !plim_map_put(&d->story, &d->lines_by_text, plim_str_of(text), d->n_lines))
        return PLIM_NONE;
    d->lines[d->n_lines] = (line_row){.text = text, .source = "", .holder = ""};
    return d->n_lines++;
}

const char *plim__vgpu_line_text(const plim_vgpu *d, uint32_t line)
{
    plim_assert(line == PLIM_NONE || line < d->n_lines);
    return line == PLIM_NONE ? "" : d->lines[line].text;
}

const plim_meta *plim__vgpu_meta(plim_vgpu *d, const plim_vgpu_tag *tag)
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

/* ---- the tape ----------------------------------------------------------------- */

/* The mark that waits comes first.  false: the tape has ended. */
static bool tape_begin(plim_vgpu *d)
{
    if (!d->truncated && d->at_new) {
        d->truncated =
            !plim_tape_mark(&d->tape, d->at.step, (plim_phase)d->at.phase, d->at.op);
        d->at_new = d->truncated;
    }
    return !d->truncated;
}

void plim__vgpu_tape_event(plim_vgpu *d, plim_event e)
{
    if (tape_begin(d) && !plim_tape_event(&d->tape, e))
        d->truncated = true;
}

plim_category plim__vgpu_category(const plim_vgpu *d, const plim_vgpu_tag *tag)
{
    plim_assert(d->at.phase < PLIM_PHASE_COUNT);
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

uint32_t plim__vgpu_tape_alloc(plim_vgpu *d, const plim_storage *like, uint16_t stream,
                               const plim_vgpu_tag *tag, uint32_t line)
{
    plim_storage s = *like;
    s.name = plim_str_of(plim__vgpu_line_text(d, line));
    s.role = like->role ? like->role : tag && tag->op ? plim__vgpu_word(d, tag->op) : NULL;
    if (!tape_begin(d) || line == PLIM_NONE ||
        !PLIM_PUSH_ROOM(&d->story, d->origin, d->n_origins, d->cap_origins)) {
        d->truncated = true;
        return PLIM_NONE;
    }
    uint32_t id = plim_tape_alloc(&d->tape, &s);
    if (id == PLIM_NONE) {
        d->truncated = true;
        return PLIM_NONE;
    }
    d->tape.events[d->tape.n_events - 1].stream = stream;
    plim_assert(id == d->n_origins);
    const char *module = tag && tag->module ? plim__vgpu_word(d, tag->module) : d->at.op.p;
    d->origin[d->n_origins++] = (vgpu_origin){
        .line = line, .module = module ? module : "", .op = s.role ? s.role : ""};
    return id;
}

void plim__vgpu_tape_free(plim_vgpu *d, uint32_t storage)
{
    if (storage != PLIM_NONE && tape_begin(d) && !plim_tape_free_storage(&d->tape, storage))
        d->truncated = true;
}

void plim__vgpu_tape_config(plim_vgpu *d, const char *alloc_conf)
{
    const char *own = plim__vgpu_word(d, alloc_conf);
    if (!own || !tape_begin(d) || !plim_tape_config(&d->tape, plim_str_of(own)))
        d->truncated = true;
}

/* ---- counters ----------------------------------------------------------------- */

/* The row of the phase that is under way; NULL: no room. */
static plim_phase_row *phase_row(plim_vgpu *d)
{
    plim_phase_row *last = d->n_rows ? &d->rows[d->n_rows - 1] : NULL;
    if (last && d->n_rows > d->now.first_row && last->step == d->at.step &&
        last->phase == (plim_phase)d->at.phase)
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

void plim__vgpu_count(plim_vgpu *d, bool request, uint32_t line)
{
    plim_alloc_stats s;
    plim_alloc_get_stats(d->h, &s);
    plim_phase_row *row = phase_row(d);
    uint64_t allocated = s.allocated_bytes.current, reserved = s.reserved_bytes.current;
    if (d->published)
        *d->published = d->card.total - d->options.capacity + reserved;
    if (row) {
        row->requested = d->requested;
        row->allocated = allocated;
        row->reserved = reserved;
        row->peak_requested = PLIM_MAX(row->peak_requested, d->requested);
        row->peak_allocated = PLIM_MAX(row->peak_allocated, allocated);
        row->peak_reserved = PLIM_MAX(row->peak_reserved, reserved);
    }
    vgpu_attempt *now = &d->now;
    if (!request)
        return; /* a release makes no peak: what a failed attempt left is not the next one's */
    now->peak_requested = PLIM_MAX(now->peak_requested, d->requested);
    now->peak_reserved = PLIM_MAX(now->peak_reserved, reserved);
    if (allocated > now->peak_allocated) {
        now->peak_allocated = allocated;
        now->peak_line = line;
        now->peak_at = d->at;
        if (!d->truncated)
            now->peak_event = d->tape.n_events - 1;
    }
}

void plim__vgpu_attempt_failed(plim_vgpu *d, uint32_t line, uint64_t bytes)
{
    plim_assert(d->oom_text);
    vgpu_attempt *failed = &d->now;
    failed->oom_text = plim__vgpu_word(d, d->oom_text);
    failed->oom_line = plim__vgpu_line_text(d, line);
    failed->oom_bytes = bytes;
    bool tried = failed->peak_allocated || !d->n_failed; /* else it only fails again */
    if (tried && PLIM_PUSH_ROOM(&d->story, d->failed, d->n_failed, d->cap_failed))
        d->failed[d->n_failed++] = *failed;
    *failed = (vgpu_attempt){.peak_event = PLIM_NONE,
                             .peak_line = PLIM_NONE,
                             .peak_at = d->at,
                             .first_row = d->n_rows};
}

const vgpu_attempt *plim__vgpu_attempt(const plim_vgpu *d)
{
    bool failed = d->end == PLIM_VGPU_END_MEMORY || !d->now.peak_allocated;
    return failed && d->n_failed ? &d->failed[d->n_failed - 1] : &d->now;
}

/* ---- what the program says ---------------------------------------------------- */

plim_status plim_vgpu_mark(plim_vgpu *d, int step, plim_phase phase, const char *op,
                           plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if ((unsigned)phase >= PLIM_PHASE_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown phase %d", (int)phase);
    if (step < -1)
        return plim_fail(err, PLIM_EUSAGE, 0, "step %d is below -1", step);
    pthread_mutex_lock(&d->lock);
    const char *own = plim__vgpu_word(d, op);
    d->at =
        (plim_mark){.step = step, .phase = (uint8_t)phase, .op = plim_str_of(own ? own : "")};
    d->at_new = true;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

static plim_status note_line(plim_vgpu *d, const char *line, const char *what, plim_err *err)
{
    uint32_t i;
    const char *l = plim__vgpu_word(d, line), *w = plim__vgpu_word(d, what);
    plim_str key = l && w ? plim_arena_printf(&d->story, "%s\n%s", l, w) : (plim_str){NULL, 0};
    if (!key.p)
        return plim_oom(err);
    if (plim_map_get(&d->caveats_by_key, key, &i)) {
        d->caveats[i].count++;
        return PLIM_OK;
    }
    if (!PLIM_PUSH_ROOM(&d->story, d->caveats, d->n_caveats, d->cap_caveats) ||
        !plim_map_put(&d->story, &d->caveats_by_key, key, d->n_caveats))
        return plim_oom(err);
    d->caveats[d->n_caveats++] = (plim_vgpu_caveat){.line = l, .what = w, .count = 1};
    return PLIM_OK;
}

plim_status plim_vgpu_note(plim_vgpu *d, const char *line, const char *what, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(what, err);
    pthread_mutex_lock(&d->lock);
    plim_status st = note_line(d, line, what, err);
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

plim_status plim__vgpu_line_word(plim_vgpu *d, uint32_t line, const char *text,
                                 const char **own, plim_err *err)
{
    if (line >= d->n_lines)
        return plim_fail(err, PLIM_EUSAGE, line, "line %" PRIu32 " is not below %" PRIu32,
                         line, d->n_lines);
    *own = plim__vgpu_word(d, text);
    return *own ? PLIM_OK : plim_oom(err);
}

plim_status plim_vgpu_source(plim_vgpu *d, uint32_t line, const char *text, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    pthread_mutex_lock(&d->lock);
    const char *own = NULL;
    plim_status st = plim__vgpu_line_word(d, line, text, &own, err);
    if (!st)
        d->lines[line].source = own;
    pthread_mutex_unlock(&d->lock);
    return st;
}

plim_status plim_vgpu_ended(plim_vgpu *d, plim_vgpu_end how, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if ((unsigned)how >= PLIM_VGPU_END_COUNT)
        return plim_fail(err, PLIM_EUSAGE, 0, "unknown end %d", (int)how);
    pthread_mutex_lock(&d->lock);
    d->end = how == PLIM_VGPU_END_MEMORY && !d->n_failed ? PLIM_VGPU_END_EARLY : how;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

/* ---- saving ------------------------------------------------------------------- */

static int write_piece(void *ud, const char *text, size_t n)
{
    return fwrite(text, 1, n, ud) != n;
}

plim_status plim_vgpu_save(plim_vgpu *d, const char *path, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    PLIM_REQUIRE(path, err);
    FILE *f = fopen(path, "w");
    if (!f)
        return plim_fail(err, PLIM_EIO, 0, "cannot write '%s': %s", path, strerror(errno));
    pthread_mutex_lock(&d->lock);
    plim_status st = plim_tape_write(&d->tape, write_piece, f, err);
    pthread_mutex_unlock(&d->lock);
    bool bad = ferror(f) != 0;
    bad |= fclose(f) != 0;
    if (st == PLIM_EIO)
        plim_err_prefix(err, "'%s': ", path);
    if (!st && bad)
        st = plim_fail(err, PLIM_EIO, 0, "cannot write '%s': %s", path, strerror(errno));
    return st;
}
