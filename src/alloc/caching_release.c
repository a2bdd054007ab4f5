/* caching_release.c -- what is released to the device, and in which order: see caching.h.
 * src: docs/sources/caching-allocator.md 8 */
#include "alloc/caching.h"

bool plim__release_oversize(caching *c, const request *r)
{
    uint64_t split = c->base.conf.max_split, want = PLIM_MAX(r->size, split), got = 0;
    const plim_fs *set = c->streams[r->stream].free[r->pool];
    if (split == UINT64_MAX || c->streams[r->stream].held)
        return false;
    uint32_t b = plim_fs_fit(c->nodes, set, want), prev;
    if (b != PLIM_NONE && is_whole_segment(&c->blocks[b])) {
        plim__cuda_free(c, b);
        return true;
    }
    b = b != PLIM_NONE ? plim_fs_prev(c->nodes, set, b)
                       : plim_fs_before(c->nodes, set, &(plim_fs_at){.key = UINT64_MAX});
    for (; b != PLIM_NONE && got < want && c->blocks[b].size >= split; b = prev) {
        prev = plim_fs_prev(c->nodes, set, b);
        if (is_whole_segment(&c->blocks[b])) {
            got += c->blocks[b].size;
            plim__cuda_free(c, b);
        }
    }
    return got >= want;
}

/* The first free block of a set for which is_big() holds. */
static uint32_t first_big(const caching *c, uint32_t number, uint32_t pool)
{
    return plim_fs_fit(c->nodes, c->streams[number].free[pool], big_size(pool));
}

/* Every big free block of a pool for which `pick` is true, in set order.  Blocks that `act`
 * puts back are smaller, so they are not visited again. */
static void each_big(caching *c, uint32_t pool, bool (*pick)(const block *b),
                     void (*act)(caching *c, uint32_t b))
{
    for (uint32_t s = 0; s < c->n_streams && c->n_big[pool]; s++) {
        uint32_t b = c->streams[s].held ? PLIM_NONE : first_big(c, s, pool);
        while (b != PLIM_NONE && !c->base.full) {
            plim_fs_at at = plim_fs_place(c->nodes, b);
            if (pick(&c->blocks[b]))
                act(c, b);
            b = plim_fs_after(c->nodes, c->streams[s].free[pool], at);
        }
    }
}

static bool is_expandable(const block *b) { return b->virt != PLIM_NONE; }

void plim__release_cached(caching *c)
{
    static const uint32_t pools[] = {LARGE, SMALL};
    for (uint32_t s = 0; s < c->n_streams && c->n_queued; s++)
        c->streams[s].done = c->streams[s].queued;
    plim__process_events(c);
    c->base.stats.num_sync_all_streams++;
    for (size_t i = 0; i < PLIM_COUNT(pools); i++) {
        each_big(c, pools[i], is_whole_segment, plim__cuda_free);
        if (c->n_virts)
            each_big(c, pools[i], is_expandable, plim__unmap_block);
    }
}

/* Releases blocks of at least average age, repeatedly until enough is freed.  Expandable ones
 * count towards the average but are kept, as in PyTorch. */
void plim__collect_garbage(caching *c)
{
    const plim_device *d = &c->base.device;
    uint64_t floor = (uint64_t)(c->base.conf.gc * (double)d->limit);
    uint64_t total_age = 0, count = 0, target = d->used - PLIM_MIN(floor, d->used), got = 0;
    if (d->used <= floor)
        return;
    for (uint32_t s = 0; s < c->n_streams && c->n_big[LARGE]; s++) {
        const plim_fs *set = c->streams[s].free[LARGE];
        if (c->streams[s].held)
            continue;
        for (uint32_t b = first_big(c, s, LARGE); b != PLIM_NONE;
             b = plim_fs_next(c->nodes, set, b))
            if (!is_split(&c->blocks[b])) {
                total_age += c->requests[LARGE] - c->blocks[b].born;
                count++;
            }
    }
    for (bool freed = true; freed && got < target && count;) {
        double average = (double)total_age / (double)count;
        freed = false;
        for (uint32_t s = 0; s < c->n_streams; s++) {
            const plim_fs *set = c->streams[s].free[LARGE];
            uint32_t next;
            if (c->streams[s].held)
                continue;
            for (uint32_t b = first_big(c, s, LARGE); b != PLIM_NONE; b = next) {
                uint32_t age = c->requests[LARGE] - c->blocks[b].born;
                next = plim_fs_next(c->nodes, set, b);
                if (!is_whole_segment(&c->blocks[b]) || (double)age < average)
                    continue;
                freed = true;
                got += c->blocks[b].size;
                plim_assert(age <= total_age);
                total_age -= age;
                count--;
                plim__cuda_free(c, b);
            }
        }
    }
}

bool plim__give_back(plim_alloc *h, uint64_t addr, uint64_t bytes, uint16_t number)
{
    caching *c = (caching *)h;
    for (uint32_t pool = 0; pool < POOLS && number < c->n_streams; pool++) {
        const plim_fs *set = c->streams[number].free[pool];
        for (uint32_t b = plim_fs_fit(c->nodes, set, bytes);
             b != PLIM_NONE && c->blocks[b].size == bytes; b = plim_fs_next(c->nodes, set, b))
            if (c->nodes[b].addr == addr && is_whole_segment(&c->blocks[b])) {
                plim__cuda_free(c, b);
                return true;
            }
    }
    return false;
}
