/* recording.c -- what readers put into a recording: actions; frames and stacks, each kept
 * once. */
#include "trace/recording.h"
#include "base/fmt.h"

bool plim_recording_add(plim_recording *r, const plim_action *a)
{
    if (!PLIM_PUSH_ROOM(r->arena, r->actions, r->n_actions, r->cap_actions))
        return false;
    r->actions[r->n_actions++] = *a;
    return true;
}

/* ---- frames ----------------------------------------------------------------- */

static bool is_python(plim_str file)
{
    return plim_str_ends(file, PLIM_STR(".py")) || plim_str_starts(file, "<ipython") ||
           plim_str_starts(file, "/tmp/ipykernel");
}

static bool is_library(plim_str file)
{
    static const char *const parts[] = {"/site-packages/", "/dist-packages/", "/lib/python",
                                        "torch/_",         "torch/nn/",       "<frozen"};
    for (size_t i = 0; i < PLIM_COUNT(parts); i++)
        if (plim_str_has(file, parts[i]))
            return true;
    return plim_str_starts(file, "torch/"); /* as the profiler writes it */
}

static plim_str last_part(plim_str path)
{
    for (size_t i = path.n; i-- > 0;)
        if (path.p[i] == '/' || path.p[i] == '\\')
            return (plim_str){path.p + i + 1, path.n - i - 1};
    return path;
}

/* "train.py:21 forward"; for C++ only the name, if its file is not known. */
static plim_str frame_text(plim_arena *a, plim_str file, int64_t line, plim_str name)
{
    enum { LONGEST = 400 }; /* names in C++ have thousands of characters */
    name.n = PLIM_MIN(name.n, (size_t)LONGEST);
    file = last_part(file);
    file.n = PLIM_MIN(file.n, (size_t)LONGEST);
    if (!file.n || plim_str_is(file, "??"))
        return plim_arena_str(a, name);
    return plim_arena_printf(a, PLIM_STR_FMT ":%" PRId64 " " PLIM_STR_FMT, PLIM_STR_ARG(file),
                             line, PLIM_STR_ARG(name));
}

uint32_t plim_recording_frame(plim_recording *r, plim_str file, int64_t line, plim_str name)
{
    plim_arena scratch = PLIM_ARENA_INIT;
    plim_str key = plim_arena_printf(&scratch, PLIM_STR_FMT "\n%" PRId64 "\n" PLIM_STR_FMT,
                                     PLIM_STR_ARG(file), line, PLIM_STR_ARG(name));
    uint32_t id = PLIM_NONE;
    if (key.p && plim_map_get(&r->frame_map, key, &id)) {
        plim_arena_free(&scratch);
        return id;
    }
    plim_str kept = key.p ? plim_arena_str(r->arena, key) : key;
    plim_arena_free(&scratch);
    plim_frame f = {.text = frame_text(r->arena, file, line, name), .python = is_python(file)};
    f.library = f.python && is_library(file);
    if (!kept.p || !f.text.p ||
        !PLIM_PUSH_ROOM(r->arena, r->frames, r->n_frames, r->cap_frames) ||
        !plim_map_put(r->arena, &r->frame_map, kept, r->n_frames))
        return PLIM_NONE;
    r->frames[r->n_frames] = f;
    return r->n_frames++;
}

/* ---- stacks ----------------------------------------------------------------- */

/* The frame that says most: the innermost line of the user's own Python, else of any, else
 * the innermost frame. */
static uint32_t choose_label(const plim_recording *r, const uint32_t *frames, uint32_t n)
{
    for (int library = 0; library < 2; library++)
        for (uint32_t i = 0; i < n; i++)
            if (r->frames[frames[i]].python && r->frames[frames[i]].library <= (library != 0))
                return frames[i];
    return n ? frames[0] : PLIM_NONE;
}

static uint64_t hash_stack(const uint32_t *frames, uint32_t n)
{
    uint64_t h = n + 1;
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ frames[i]) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

uint32_t plim_recording_stack_of(plim_recording *r, const uint32_t *frames, uint32_t n)
{
    if (!r->n_stacks) { /* stack 0: not recorded */
        if (!PLIM_PUSH_ROOM(r->arena, r->stacks, r->n_stacks, r->cap_stacks))
            return PLIM_NONE;
        r->stacks[r->n_stacks++] = (plim_stack){.label = PLIM_NONE};
    }
    n = PLIM_MIN(n, (uint32_t)PLIM_STACK_MOST);
    if (!n)
        return 0;
    uint64_t hash = hash_stack(frames, n);
    for (;; hash++) { /* another stack may have this number: take the next one */
        plim_id_slot *slot = plim_id_at(r->arena, &r->stack_map, hash);
        if (!slot)
            return PLIM_NONE;
        if (!slot->live) {
            slot->live = true;
            slot->value = r->n_stacks;
            break;
        }
        const plim_stack *s = &r->stacks[slot->value];
        if (s->n == n && memcmp(r->frame_ids + s->first, frames, n * sizeof *frames) == 0)
            return slot->value;
    }
    plim_stack s = {.first = r->n_frame_ids, .n = n, .label = choose_label(r, frames, n)};
    if (!PLIM_PUSH_ROOM(r->arena, r->stacks, r->n_stacks, r->cap_stacks))
        return PLIM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (!PLIM_PUSH_ROOM(r->arena, r->frame_ids, r->n_frame_ids, r->cap_frame_ids))
            return PLIM_NONE;
        r->frame_ids[r->n_frame_ids++] = frames[i];
    }
    r->stacks[r->n_stacks] = s;
    return r->n_stacks++;
}
