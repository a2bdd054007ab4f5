/* recording.c -- what readers put into a recording: actions; frames and stacks, each kept
 * once. */
#include "trace/recording.h"
#include "base/fmt.h"

bool plim_recording_add(plim_recording *r, const plim_action *a)
{
    if (!PLIM_GROW_ROOM(r->arena, r->actions, r->n_actions, r->cap_actions))
        return false;
    r->actions[r->n_actions++] = *a;
    return true;
}

/* ---- names ------------------------------------------------------------------ */

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

static size_t find_last_part(plim_str path)
{
    size_t i = path.n;
    while (i && path.p[i - 1] != '/' && path.p[i - 1] != '\\')
        i--;
    return i;
}

uint32_t plim_recording_name(plim_recording *r, plim_str text)
{
    uint32_t id = PLIM_NONE;
    if (plim_map_get(&r->name_map, text, &id))
        return id;
    plim_str kept = plim_arena_str(r->arena, text);
    if (!kept.p || !PLIM_GROW_ROOM(r->arena, r->names, r->n_names, r->cap_names) ||
        !plim_map_put(r->arena, &r->name_map, kept, r->n_names))
        return PLIM_NONE;
    plim_code_name *n = &r->names[r->n_names];
    *n = (plim_code_name){.text = kept, .last = (uint32_t)find_last_part(kept)};
    n->python = is_python(kept);
    n->library = n->python && is_library(kept);
    return r->n_names++;
}

/* ---- frames ----------------------------------------------------------------- */

static uint64_t hash_numbers(uint64_t h, const uint32_t *numbers, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++) {
        h = (h ^ numbers[i]) * 0x9e3779b97f4a7c15ull;
        h ^= h >> 29;
    }
    return h;
}

uint32_t plim_recording_frame(plim_recording *r, uint32_t file, int64_t line, uint32_t name)
{
    uint64_t hash = hash_numbers((uint64_t)line, (uint32_t[]){file, name}, 2);
    if (file == PLIM_NONE || name == PLIM_NONE)
        return PLIM_NONE;
    for (;; hash++) { /* another frame may have this number: take the next one */
        plim_id_slot *slot = plim_id_at(r->arena, &r->frame_map, hash);
        if (!slot)
            return PLIM_NONE;
        if (!slot->live) {
            slot->live = true;
            slot->value = r->n_frames;
            break;
        }
        const plim_frame *f = &r->frames[slot->value];
        if (f->file == file && f->line == line && f->name == name)
            return slot->value;
    }
    if (!PLIM_GROW_ROOM(r->arena, r->frames, r->n_frames, r->cap_frames))
        return PLIM_NONE;
    r->frames[r->n_frames] = (plim_frame){.file = file, .name = name, .line = line};
    return r->n_frames++;
}

/* For C++ only the name, if its file is not known. */
plim_str plim_recording_frame_text(const plim_recording *r, uint32_t frame)
{
    plim_frame *f = &r->frames[frame];
    const plim_code_name *in = &r->names[f->file];
    plim_str file = {in->text.p + in->last, in->text.n - in->last};
    plim_str name = r->names[f->name].text;
    name.n = PLIM_MIN(name.n, (size_t)PLIM_FRAME_NAME_MOST);
    file.n = PLIM_MIN(file.n, (size_t)PLIM_FRAME_NAME_MOST);
    if (!f->text.p)
        f->text = !file.n || plim_str_is(file, "??")
                      ? plim_arena_str(r->arena, name)
                      : plim_arena_printf(r->arena, PLIM_STR_FMT ":%" PRId64 " " PLIM_STR_FMT,
                                          PLIM_STR_ARG(file), f->line, PLIM_STR_ARG(name));
    return f->text;
}

/* ---- stacks ----------------------------------------------------------------- */

static const plim_code_name *file_of(const plim_recording *r, uint32_t frame)
{
    return &r->names[r->frames[frame].file];
}

/* The frame that says most: the innermost line of the user's own Python, else of any, else
 * the innermost frame. */
static uint32_t choose_label(const plim_recording *r, const uint32_t *frames, uint32_t n)
{
    for (int library = 0; library < 2; library++)
        for (uint32_t i = 0; i < n; i++)
            if (file_of(r, frames[i])->python && file_of(r, frames[i])->library <= library)
                return frames[i];
    return n ? frames[0] : PLIM_NONE;
}

uint32_t plim_recording_stack_of(plim_recording *r, const uint32_t *frames, uint32_t n)
{
    if (!r->n_stacks) { /* stack 0: not recorded */
        if (!PLIM_GROW_ROOM(r->arena, r->stacks, r->n_stacks, r->cap_stacks))
            return PLIM_NONE;
        r->stacks[r->n_stacks++] = (plim_stack){.label = PLIM_NONE};
    }
    n = PLIM_MIN(n, (uint32_t)PLIM_STACK_MOST);
    if (!n)
        return 0;
    uint64_t hash = hash_numbers(n + 1, frames, n);
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
    if (!PLIM_GROW_ROOM(r->arena, r->stacks, r->n_stacks, r->cap_stacks))
        return PLIM_NONE;
    for (uint32_t i = 0; i < n; i++) {
        if (!PLIM_GROW_ROOM(r->arena, r->frame_ids, r->n_frame_ids, r->cap_frame_ids))
            return PLIM_NONE;
        r->frame_ids[r->n_frame_ids++] = frames[i];
    }
    r->stacks[r->n_stacks] = s;
    return r->n_stacks++;
}
