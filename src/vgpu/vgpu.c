/* vgpu.c -- a card that does not exist, opened and closed: see plimsoll_vgpu.h.
 *
 * A thin ledger over the simulated allocator.  Each request goes to it, and into
 * a tape with the line of the user's code that made it; what the report says is
 * read from that tape afterwards, so that nothing is kept twice. */
#include "settings/settings.h"
#include "vgpu/vgpu_priv.h"

/* Addresses that no machine maps: above what user space gets on x86-64 (47 or,
 * if asked for, 56 bits from the top) and arm64 (52 bits), below the byte that
 * arm64 ignores.  What reads through one stops at once. */
#define FIRST_ADDRESS (1ull << 53)

/* What each card has of them: more than any allocator reserves, and little enough that
 * PLIM_VGPU_CARDS of them stay below that byte. */
#define ADDRESSES (1ull << 49)
_Static_assert(FIRST_ADDRESS + PLIM_VGPU_CARDS * ADDRESSES < 1ull << 56, "bits 56 to 63");

/* Of our own memory, for the story and for the history; the allocator has an
 * arena for itself. */
#define STORY_LIMIT (2ull << 30)

/* Before others: CUDA's own, and then the one with the most memory, since who gets
 * on with less gets on with that. */
static bool card_is_better(const plim_gpu *a, const plim_gpu *b)
{
    return !a->cc != !b->cc ? a->cc != 0 : a->memory_bytes > b->memory_bytes;
}

/* "2xt4" in a list of several names. */
static bool list_has_machine(const char *names)
{
    plim_str card;
    for (const char *rest = strchr(names, ',') ? names : ""; *rest;) {
        plim_str name = {rest, strcspn(rest, ",")};
        if (plim_gpu_several(name, &card))
            return true;
        rest += name.n + (rest[name.n] == ',');
    }
    return false;
}

plim_status plim_vgpu_machine(const char *gpu, uint32_t *n, const char **card, plim_err *err)
{
    PLIM_REQUIRE(gpu, err);
    PLIM_REQUIRE(n, err);
    PLIM_REQUIRE(card, err);
    plim_str one = plim_str_of(gpu);
    if (list_has_machine(gpu))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'%.80s' mixes a machine with a list: '2xt4' is a machine of two "
                         "cards, 't4,a100' one run judged on either card",
                         gpu);
    uint32_t many = plim_gpu_several(one, &one);
    if (many > PLIM_VGPU_CARDS)
        return plim_fail(err, PLIM_EUSAGE, 0, "'%.80s' is %" PRIu32 " cards, the limit is %d",
                         gpu, many, PLIM_VGPU_CARDS);
    *n = PLIM_MAX(many, 1u);
    *card = one.p;
    return PLIM_OK;
}

static plim_status find_card(plim_vgpu *d, const plim_vgpu_options *o, plim_gpu *out,
                             plim_err *err)
{
    if (!o->gpu && !o->vram)
        return plim_fail(err, PLIM_EUSAGE, 0, "no card: neither a name nor a size is given");
    if (!o->gpu)
        return plim_gpu_generic(&d->arena, o->vram, out, err);
    PLIM_TRY(plim_gpu_list(&d->arena, o->gpu, &d->cards, &d->n_cards, err));
    d->other_way = PLIM_NEW_N(&d->arena, bool, d->n_cards);
    d->alone = PLIM_NEW_N(&d->arena, plim_vgpu_verdict *, d->n_cards);
    if (!d->other_way || !d->alone)
        return plim_oom(err);
    if (o->vram && d->n_cards > 1)
        return plim_fail(err, PLIM_EUSAGE, 0, "one memory size is given for %" PRIu32 " cards",
                         d->n_cards);
    *out = *d->cards[0];
    for (uint32_t i = 1; i < d->n_cards; i++)
        if (card_is_better(d->cards[i], out))
            *out = *d->cards[i];
    if (o->vram)
        plim_gpu_give(out, o->vram);
    return PLIM_OK;
}

static plim_status open_card(plim_vgpu *d, const plim_vgpu_options *o, plim_err *err)
{
    plim_gpu *gpu = &d->gpu;
    const plim_libraries lib = d->world.lib;
    PLIM_TRY(find_card(d, o, gpu, err));
    d->context_high = plim__vgpu_context(d, gpu).high;
    d->options.capacity = plim__vgpu_capacity(gpu, &lib);
    d->options.total = gpu->memory_bytes;
    plim_assert(d->options.capacity <= d->options.total);
    d->world = plim_world_on(d->torch, gpu, lib);
    const plim_gpu_limits limits = plim_gpu_limits_of(d->world.cc);
    d->card = (plim_vgpu_card){.name = plim_arena_str(&d->arena, plim_str_of(gpu->name)).p,
                               .torch = d->torch->name,
                               .cc = d->world.cc,
                               .sms = d->world.sms,
                               .threads_per_sm = d->world.threads_per_sm,
                               .total = gpu->memory_bytes,
                               .context = gpu->memory_bytes - d->options.capacity,
                               .workspace = lib.workspace,
                               .index = o->index,
                               .peers = strcmp(gpu->klass, "datacenter") == 0 ||
                                        strcmp(gpu->klass, "workstation") == 0,
                               .blocks_per_sm = limits.blocks_per_sm,
                               .shared_per_sm = limits.shared_per_sm,
                               .shared_per_block = limits.shared_per_block,
                               .l2 = limits.l2};
    return d->card.name ? PLIM_OK : plim_oom(err);
}

static plim_status open_parts(plim_vgpu *d, const plim_vgpu_options *o, plim_err *err)
{
    plim_settings *s = plim_settings_in(&d->arena, NULL);
    plim_status st = s ? PLIM_OK : plim_oom(err);
    if (!st && o->index >= PLIM_VGPU_CARDS)
        st = plim_fail(err, PLIM_EUSAGE, 0, "card %" PRIu32 " of a machine, the limit is %d",
                       o->index, PLIM_VGPU_CARDS - 1);
    if (!st && o->workspace)
        st = plim_settings_set(s, "workspace", o->workspace, err);
    const plim_workspace workspace = plim_workspace_of(s ? s->workspace : 0);
    d->world.lib.workspace = workspace.counted;
    d->world.lib.eager = o->module_loading && !strcmp(o->module_loading, "EAGER");
    if (!st && o->cublas_workspace)
        plim_world_cublas(o->cublas_workspace, &d->world.lib, NULL);
    if (!st)
        st = plim_torch_find(o->torch, &d->torch, &d->world.lib.torch, err);
    if (!st)
        st = open_card(d, o, err);
    if (st)
        return st;
    d->bound = workspace.bound;
    d->story.limit = d->history.limit = STORY_LIMIT;
    plim_tape_init(&d->tape, &d->story);
    d->options.allocator = plim_allocator_at(0);
    d->options.torch = d->torch->version;
    d->options.conf =
        plim_arena_str(&d->arena, plim_str_of(o->alloc_conf ? o->alloc_conf : ""));
    d->options.device = o->index;
    d->options.first_address = FIRST_ADDRESS + o->index * ADDRESSES;
    if (!d->options.conf.p)
        return plim_oom(err);
    PLIM_TRY(plim_alloc_new(&d->arena, &d->options, &d->h, err));
    return plim__vgpu_open_kernels(d, err);
}

plim_status plim_vgpu_open(const plim_vgpu_options *o, plim_vgpu **out, plim_err *err)
{
    PLIM_REQUIRE(o, err);
    PLIM_REQUIRE(out, err);
    plim_arena a = PLIM_ARENA_INIT;
    plim_vgpu *d = PLIM_NEW(&a, plim_vgpu);
    if (!d)
        return plim_oom(err);
    d->arena = a; /* from here on the arena owns itself */
    d->free_slot = PLIM_NONE;
    d->world_size = 1;
    d->now.peak_event = d->now.peak_line = d->line_now = PLIM_NONE;
    d->at = d->now.peak_at = (plim_mark){.step = -1, .phase = PLIM_PHASE_LOAD};
    d->at_new = true;
    plim_status st = open_parts(d, o, err);
    if (!st && pthread_mutex_init(&d->lock, NULL))
        st = plim_oom(err);
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

plim_status plim_vgpu_place(plim_vgpu *d, int rank, int world, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if (rank < 0 || rank >= world)
        return plim_fail(err, PLIM_EUSAGE, 0, "rank %d is not in 0..%d", rank, world - 1);
    pthread_mutex_lock(&d->lock);
    d->rank = rank;
    d->world_size = world;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

plim_status plim_vgpu_nccl(plim_vgpu *d, uint64_t low, uint64_t high, plim_err *err)
{
    PLIM_REQUIRE(d, err);
    if (low > high)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "NCCL: %" PRIu64 " bytes at least are above %" PRIu64 " at most", low,
                         high);
    pthread_mutex_lock(&d->lock);
    d->nccl_low = low;
    d->nccl_high = high;
    pthread_mutex_unlock(&d->lock);
    return PLIM_OK;
}

void plim_vgpu_card_get(const plim_vgpu *d, plim_vgpu_card *out) { *out = d->card; }

uint32_t plim_vgpu_card_at(uint64_t addr)
{
    uint64_t index =
        (addr - FIRST_ADDRESS) / ADDRESSES; /* below it: wraps, so past the last */
    return index < PLIM_VGPU_CARDS ? (uint32_t)index : PLIM_VGPU_NONE;
}
