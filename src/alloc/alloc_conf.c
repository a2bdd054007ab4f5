/* alloc_conf.c -- see alloc_conf.h.
 * src: c10/cuda/CUDAAllocatorConfig.cpp, c10/core/AllocatorConfig.cpp;
 * docs/sources/caching-allocator.md 4, 14; texts from 2.5 on: messages in
 * public reports, pytorch/pytorch pull request 172327 (January 2026) */
#include "alloc/alloc_conf.h"

#include "base/fmt.h"

/* ---- versions ------------------------------------------------------------ */

enum { NEWEST = 99 * 100 };

// clang-format off
static const plim_alloc_rules rules[] = {
    /* since  split div  '>'    nearest allowed private ties                text                */
    {  100,   21,   1,   false, false,  true,  false,  PLIM_TIES_ADDRESS, PLIM_OOM_PLAIN,      "no settings"},
    {  110,   21,   1,   false, false,  true,  false,  PLIM_TIES_ADDRESS, PLIM_OOM_OLD,        "max_split_size_mb, which the out-of-memory text recommends; one division for all sizes, no expandable segments"},
    {  201,   21,   2,   true,  false,  false, false,  PLIM_TIES_ADDRESS, PLIM_OOM_CAPACTY,    "expandable segments, lists of divisions, new out-of-memory text"},
    {  202,   21,   2,   true,  false,  false, false,  PLIM_TIES_ADDRESS, PLIM_OOM_EXPANDABLE, "out-of-memory text recommends expandable segments"},
    {  205,   21,   2,   true,  false,  true,  true,   PLIM_TIES_ADDRESS, PLIM_OOM_EXPANDABLE, "out-of-memory text names the memory fraction's limit, private pools can be expandable"},
    {  209,   20,   2,   false, false,  true,  true,   PLIM_TIES_ADDRESS, PLIM_OOM_ALLOC_CONF, "max_split_size_mb:20 is allowed, '>' of a list fixed"},
    {  210,   20,   2,   false, true,   true,  true,   PLIM_TIES_ADDRESS, PLIM_OOM_ALLOC_CONF, "memory fraction to the nearest byte, 1.0 means no limit"},
    {  211,   20,   2,   false, true,   true,  true,   PLIM_TIES_ADDRESS, PLIM_OOM_DOCS,       "large_segment_size_mb"},
    {  212,   20,   2,   false, true,   true,  true,   PLIM_TIES_BLOCK,   PLIM_OOM_DOCS,       "of free blocks of one size the first made is taken, not the lowest"},
    {  213,   20,   2,   false, true,   true,  true,   PLIM_TIES_SEGMENT, PLIM_OOM_DOCS,       "of free blocks of one size that of the first segment is taken"},
};
// clang-format on

const plim_alloc_rules *plim_alloc_rules_of(int torch)
{
    const plim_alloc_rules *r = &rules[0];
    for (size_t i = 0; i < PLIM_COUNT(rules); i++)
        if (rules[i].since <= (torch ? torch : NEWEST))
            r = &rules[i];
    return r;
}

/* ---- values -------------------------------------------------------------- */

typedef struct conf_reader {
    plim_alloc_conf c;
    const plim_alloc_rules *rules;
    bool slack_given;
    plim_str key, value;
    plim_err *err;
} conf_reader;

#define SHOWN(s) (int)PLIM_MIN((s).n, 40), (s).p

static plim_str trim_blanks(plim_str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (plim_str){s.p + 1, s.n - 1};
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* Splits *s at the first `c`: returns the text before it, *s becomes the text after it. */
static plim_str cut_at(plim_str *s, char c)
{
    const char *end = s->n ? memchr(s->p, c, s->n) : NULL;
    plim_str head = {s->p, end ? (size_t)(end - s->p) : s->n};
    *s = end ? (plim_str){end + 1, s->n - head.n - 1} : (plim_str){s->p + s->n, 0};
    return trim_blanks(head);
}

static bool parse_digits(plim_str s, uint64_t *out)
{
    uint64_t v = 0;
    for (size_t i = 0; i < s.n; i++)
        if (s.p[i] < '0' || s.p[i] > '9' || !plim_mul(v, 10, &v) ||
            !plim_add(v, (uint64_t)(s.p[i] - '0'), &v))
            return false;
    *out = v;
    return s.n > 0;
}

static plim_status fail_value(plim_str key, plim_str value, const char *want, plim_err *err)
{
    return plim_fail(err, PLIM_EUSAGE, 0, "allocator setting '%.*s' is '%.*s', not %s",
                     SHOWN(key), SHOWN(value), want);
}

static plim_status bad_value(conf_reader *r, const char *want)
{
    return fail_value(r->key, r->value, want, r->err);
}

#define MOST_MIB (1ull << 40) /* 1 EiB, the limit of PyTorch's own sizes */

plim_status plim_alloc_conf_mib(plim_str key, plim_str value, uint64_t least, uint64_t *out,
                                plim_err *err)
{
    uint64_t v = 0;
    if (!parse_digits(value, &v))
        return fail_value(key, value, "a number of MiB", err);
    if (v < least)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "allocator setting '%.*s' is %" PRIu64
                         ", below the minimum of %" PRIu64,
                         SHOWN(key), v, least);
    if (v > MOST_MIB)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "allocator setting '%.*s' is %" PRIu64 ", over the limit of %" PRIu64,
                         SHOWN(key), v, (uint64_t)MOST_MIB);
    *out = v * PLIM_MIB;
    return PLIM_OK;
}

static plim_status read_mib(conf_reader *r, uint64_t least, uint64_t *out)
{
    return plim_alloc_conf_mib(r->key, r->value, least, out, r->err);
}

plim_status plim_alloc_conf_bool(plim_str key, plim_str value, bool *out, plim_err *err)
{
    if (!plim_str_is(value, "True") && !plim_str_is(value, "False"))
        return fail_value(key, value, "True or False", err);
    *out = value.p[0] == 'T';
    return PLIM_OK;
}

plim_status plim_alloc_conf_share(plim_str key, plim_str value, double *out, plim_err *err)
{
    if (!plim_parse_double(value, out) || !(*out > 0 && *out <= 1))
        return fail_value(key, value, "above 0 and at most 1", err);
    return PLIM_OK;
}

static plim_status read_bool(conf_reader *r, bool *out)
{
    return plim_alloc_conf_bool(r->key, r->value, out, r->err);
}

/* ---- keys ---------------------------------------------------------------- */

static plim_status key_max_split(conf_reader *r)
{
    uint64_t least = PLIM_MAX((uint64_t)r->rules->min_split_mb, r->c.large_segment / PLIM_MIB);
    uint64_t v = 0;
    if (parse_digits(r->value, &v) && v > MOST_MIB) { /* PyTorch too: as large as can be */
        r->c.max_split = UINT64_MAX;
        return PLIM_OK;
    }
    return read_mib(r, r->rules->since < 211 ? r->rules->min_split_mb : least,
                    &r->c.max_split);
}

static plim_status key_non_split(conf_reader *r)
{
    r->slack_given = true;
    return read_mib(r, r->c.large_segment / PLIM_MIB, &r->c.max_non_split_slack);
}

static plim_status key_large_segment(conf_reader *r)
{
    return read_mib(r, 11, &r->c.large_segment);
}

static plim_status key_bypass(conf_reader *r) { return read_mib(r, 1, &r->c.bypass); }

static plim_status key_gc(conf_reader *r)
{
    if (!plim_parse_double(r->value, &r->c.gc) || !(r->c.gc > 0 && r->c.gc < 1))
        return bad_value(r, "between 0 and 1");
    return PLIM_OK;
}

static plim_status key_fraction(conf_reader *r)
{
    return plim_alloc_conf_share(r->key, r->value, &r->c.fraction, r->err);
}

static plim_status key_expandable(conf_reader *r) { return read_bool(r, &r->c.expandable); }

static bool power_of_two(uint64_t v) { return v && !(v & (v - 1)); }

static uint32_t log2_of(uint64_t v)
{
    uint32_t n = 0;
    while (v >>= 1)
        n++;
    return n;
}

static void fill_divisions(uint32_t *division, uint32_t from, uint32_t to, uint64_t v)
{
    for (uint32_t i = from; i < to; i++)
        division[i] = (uint32_t)v;
}

/* One "KEY:VALUE" of a list, KEY in MiB or ">"; *last is the interval of the item before, or
 * PLIM_DIVISIONS. */
static plim_status read_interval(conf_reader *r, plim_str item, uint32_t *last)
{
    uint64_t v = 0, mb = 0;
    plim_str key = cut_at(&item, ':');
    if (!parse_digits(trim_blanks(item), &v) || (v && !power_of_two(v)) || v > 1u << 30)
        return bad_value(r, "a list like [256:1,512:2,>:4] of powers of two");
    if (plim_str_is(key, ">")) {
        uint32_t from = *last == PLIM_DIVISIONS ? 0 : *last + !r->rules->gt_overwrites;
        fill_divisions(r->c.division, from, PLIM_DIVISIONS, v);
        return PLIM_OK;
    }
    if (!parse_digits(key, &mb) || !power_of_two(mb))
        return bad_value(r, "a list like [256:1,512:2,>:4] of powers of two");
    uint32_t i = PLIM_MIN(log2_of(mb), PLIM_DIVISIONS - 1);
    fill_divisions(r->c.division, *last == PLIM_DIVISIONS ? 0 : i, i + 1, v);
    *last = i;
    return PLIM_OK;
}

static plim_status key_divisions(conf_reader *r)
{
    plim_str list = r->value;
    uint64_t v = 0;
    uint32_t last = PLIM_DIVISIONS;
    plim_status st = PLIM_OK;
    if (list.n && list.p[0] == '[' && r->rules->since >= 201) {
        if (list.p[list.n - 1] != ']')
            return bad_value(r, "a list that ends in ']'");
        list = (plim_str){list.p + 1, list.n - 2};
        while (!st && list.n)
            st = read_interval(r, cut_at(&list, ','), &last);
        return st;
    }
    if (!parse_digits(list, &v) || !power_of_two(v) || v > 1u << 30)
        return bad_value(r, "a power of two");
    fill_divisions(r->c.division, 0, PLIM_DIVISIONS, v);
    return PLIM_OK;
}

static plim_status key_backend(conf_reader *r)
{
    static const char *const backends[] = {"native", "cudaMallocAsync"};
    for (size_t i = 0; i < PLIM_COUNT(backends); i++)
        if (plim_str_is(r->value, backends[i])) {
            r->c.backend = backends[i];
            return PLIM_OK;
        }
    return bad_value(r, "native or cudaMallocAsync");
}

static plim_status key_refused(conf_reader *r)
{
    bool on = false;
    plim_status st = read_bool(r, &on);
    return st || !on ? st
                     : plim_fail(r->err, PLIM_EUNSUPPORTED, 0,
                                 "allocator setting '%.*s' is not simulated", SHOWN(r->key));
}

/* About pinned memory, locks or graph capture: without effect on device memory. */
static plim_status key_ignored(conf_reader *r)
{
    return r->value.n ? PLIM_OK : bad_value(r, "empty");
}

// clang-format off
static const struct {
    const char *key;
    int since, until;
    plim_status (*read)(conf_reader *r);
} keys[] = {
    {"max_split_size_mb",                 110, NEWEST, key_max_split},
    {"garbage_collection_threshold",      112, NEWEST, key_gc},
    {"roundup_power2_divisions",          112, NEWEST, key_divisions},
    {"roundup_bypass_threshold_mb",       113, 200,    key_bypass},
    {"backend",                           200, NEWEST, key_backend},
    {"expandable_segments",               201, NEWEST, key_expandable},
    {"max_non_split_rounding_mb",         206, NEWEST, key_non_split},
    {"per_process_memory_fraction",       210, NEWEST, key_fraction},
    {"large_segment_size_mb",             211, NEWEST, key_large_segment},
    {"throw_on_cudamalloc_oom",           211, NEWEST, key_refused},
    {"release_lock_on_cudamalloc",        201, NEWEST, key_ignored},
    {"pinned_use_cuda_host_register",     201, NEWEST, key_ignored},
    {"pinned_num_register_threads",       201, NEWEST, key_ignored},
    {"pinned_use_background_threads",     201, NEWEST, key_ignored},
    {"pinned_reserve_segment_size_mb",    201, NEWEST, key_ignored},
    {"graph_capture_record_stream_reuse", 201, NEWEST, key_ignored},
};
// clang-format on

static plim_status read_pair(conf_reader *r, int torch)
{
    for (size_t i = 0; i < PLIM_COUNT(keys); i++) {
        if (!plim_str_is(r->key, keys[i].key))
            continue;
        if (torch >= keys[i].since && torch <= keys[i].until)
            return keys[i].read(r);
        int known = torch < keys[i].since ? keys[i].since : keys[i].until;
        return plim_fail(r->err, PLIM_EUSAGE, 0,
                         "allocator setting '%s' %s PyTorch %d.%d; this is %d.%d", keys[i].key,
                         torch < keys[i].since ? "came with" : "was removed after",
                         known / 100, known % 100, torch / 100, torch % 100);
    }
    return plim_fail(r->err, PLIM_EUSAGE, 0, "unknown allocator setting '%.*s'",
                     SHOWN(r->key));
}

/* The end of a value that begins at *text: a list in brackets, or what comes before a comma. */
static plim_status take_value(plim_str key, plim_str *text, plim_str *value, plim_err *err)
{
    const char *bracket = text->n ? memchr(text->p, '[', text->n) : NULL;
    const char *comma = text->n ? memchr(text->p, ',', text->n) : NULL;
    if (!bracket || (comma && comma < bracket)) {
        *value = cut_at(text, ',');
        return PLIM_OK;
    }
    const char *end = memchr(text->p, ']', text->n);
    size_t n = end ? (size_t)(end - text->p) + 1 : text->n;
    *value = trim_blanks((plim_str){text->p, n});
    *text = (plim_str){text->p + n, text->n - n};
    return cut_at(text, ',').n ? fail_value(key, *value, "followed by a comma", err) : PLIM_OK;
}

plim_status plim_alloc_conf_pair(plim_str *text, plim_str *key, plim_str *value, plim_err *err)
{
    plim_str whole = *text;
    *key = cut_at(text, ':');
    PLIM_TRY(take_value(*key, text, value, err));
    if (!key->n || !value->n)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "allocator settings '%.*s' are not key:value,key:value",
                         SHOWN(whole));
    return PLIM_OK;
}

void plim_alloc_conf_init(plim_alloc_conf *c)
{
    *c = (plim_alloc_conf){.max_split = UINT64_MAX,
                           .max_non_split_slack = 20 * PLIM_MIB,
                           .large_segment = 20 * PLIM_MIB,
                           .bypass = UINT64_MAX};
}

plim_status plim_alloc_conf_parse(plim_alloc_conf *c, plim_str text, int torch, plim_err *err)
{
    conf_reader r = {.rules = plim_alloc_rules_of(torch), .err = err};
    plim_status st = PLIM_OK;
    plim_alloc_conf_init(&r.c);
    r.c.expandable = c->expandable;
    text = trim_blanks(text);
    while (!st && text.n) {
        st = plim_alloc_conf_pair(&text, &r.key, &r.value, err);
        if (!st)
            st = read_pair(&r, torch ? torch : NEWEST);
    }
    if (st)
        return st;
    if (!r.slack_given)
        r.c.max_non_split_slack = r.c.large_segment;
    r.c.min_division = r.rules->min_division;
    for (uint32_t i = 0; i < PLIM_DIVISIONS; i++)
        r.c.divides |= r.c.division[i] >= r.rules->min_division;
    *c = r.c;
    return PLIM_OK;
}
