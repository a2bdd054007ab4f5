/* cache.c -- see cache.h. */
#include "core/cache.h"

/* ---- what layers keep --------------------------------------------------------------------- */

static bool is_alike(const plim_kv_layers *a, const plim_kv_layers *b)
{
    return a->heads == b->heads && a->keys == b->keys && a->values == b->values &&
           a->window == b->window && a->chunked == b->chunked && a->cross == b->cross &&
           a->copies == b->copies && a->index_keys == b->index_keys &&
           a->index_values == b->index_values && a->ratio == b->ratio &&
           a->channels == b->channels && a->kernel == b->kernel && a->state == b->state;
}

bool plim_cache_is_simple(const plim_kv_layers *k)
{
    const bool both = k->heads && (k->state || k->channels);
    return !both && !k->cross && !k->index_keys && !k->ratio;
}

static bool find_kind(plim_cache *c, plim_arena *a, const plim_kv_layers *k, uint32_t *at)
{
    for (*at = 0; *at < c->n_kinds && !is_alike(&c->kinds[*at], k);)
        ++*at;
    if (*at < c->n_kinds)
        return true;
    if (!PLIM_PUSH_ROOM(a, c->kinds, c->n_kinds, c->cap_kinds))
        return false;
    c->kinds[*at] = *k;
    c->kinds[*at].layers = 0;
    c->n_kinds++;
    return true;
}

bool plim_cache_add(plim_cache *c, plim_arena *a, const plim_kv_layers *k)
{
    uint32_t at;
    plim_assert(k->layers >= 0);
    if (!k->layers)
        return true;
    if (!find_kind(c, a, k, &at))
        return false;
    c->kinds[at].layers += k->layers;
    if (c->n_runs && c->runs[c->n_runs - 1].kind == at) {
        c->runs[c->n_runs - 1].layers += k->layers;
        return true;
    }
    if (!PLIM_PUSH_ROOM(a, c->runs, c->n_runs, c->cap_runs))
        return false;
    c->runs[c->n_runs++] = (plim_cache_run){at, k->layers};
    return true;
}

/* ---- how they are held -------------------------------------------------------------------- */

/* Bytes of a row; 0: it does not fill whole blocks, or there are too many. */
static uint64_t row_bytes(const plim_kv_type *t, uint64_t elements)
{
    plim_assert(t->elements > 0 && t->bytes > 0);
    uint64_t bytes;
    return elements % t->elements == 0 && plim_mul(elements / t->elements, t->bytes, &bytes)
               ? bytes
               : 0;
}

uint64_t plim_cache_tokens(const plim_kv_layers *k, const plim_cache_rules *r, uint64_t tokens)
{
    plim_assert(k->window >= 0 && r->step > 0);
    const uint64_t windows = plim_sat_mul((uint64_t)k->window, r->windows);
    if (k->cross)
        tokens = r->source;
    if (k->window)
        tokens = PLIM_MIN(tokens, plim_sat_add(windows, r->ahead));
    return plim_round_up(tokens, r->step);
}

/* Of the heads, which all share a latent vector, or have values of their own. */
static uint64_t own_row(const plim_kv_layers *k, const plim_cache_rules *r)
{
    plim_assert(k->heads >= 0 && k->keys >= 0 && k->values >= 0);
    const uint64_t keys = plim_sat_mul((uint64_t)k->heads, (uint64_t)k->keys);
    uint64_t values = plim_sat_mul((uint64_t)k->heads, (uint64_t)k->values);
    if (k->values)
        values = PLIM_MAX(values, r->least_values);
    return plim_sat_add(row_bytes(r->keys, keys), row_bytes(r->values, values));
}

static uint64_t index_row(const plim_kv_layers *k, const plim_cache_rules *r)
{
    plim_assert(k->index_keys >= 0 && k->index_values >= 0);
    return plim_sat_add(row_bytes(r->keys, (uint64_t)k->index_keys),
                        row_bytes(r->values, (uint64_t)k->index_values));
}

uint64_t plim_cache_row(const plim_kv_layers *k, const plim_cache_rules *r)
{
    return k->ratio ? own_row(k, r) : plim_sat_add(own_row(k, r), index_row(k, r));
}

uint64_t plim_cache_bytes(const plim_kv_layers *k, const plim_cache_rules *r, uint64_t tokens)
{
    plim_assert(k->ratio >= 0);
    const uint64_t held = plim_sat_mul(plim_cache_tokens(k, r, tokens), plim_cache_row(k, r));
    if (!k->ratio)
        return held;
    const uint64_t made =
        plim_round_up(PLIM_MAX(plim_ceil_div(tokens, (uint64_t)k->ratio), 1), r->step);
    return plim_sat_add(held,
                        plim_sat_mul(made, plim_sat_add(own_row(k, r), index_row(k, r))));
}

uint64_t plim_cache_sum(const plim_cache *c, const plim_cache_rules *r, uint64_t tokens)
{
    uint64_t sum = 0;
    for (uint32_t i = 0; i < c->n_kinds; i++) {
        const plim_kv_layers *k = &c->kinds[i];
        const uint64_t copies =
            plim_sat_mul((uint64_t)k->layers, (uint64_t)PLIM_MAX(k->copies, 1));
        sum = plim_sat_add(sum, plim_sat_mul(plim_cache_bytes(k, r, tokens), copies));
    }
    return sum;
}

uint64_t plim_cache_state(const plim_kv_layers *k, const plim_cache_rules *r)
{
    plim_assert(k->channels >= 0 && k->state >= 0);
    const uint64_t inputs =
        plim_sat_mul((uint64_t)k->channels, (uint64_t)PLIM_MAX(k->kernel - 1, 0));
    return plim_sat_mul(plim_sat_add(inputs, (uint64_t)k->state), r->state_bytes);
}
