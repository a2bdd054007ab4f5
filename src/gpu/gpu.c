/* gpu.c -- looking cards up: see gpu.h. */
#include "gpu/gpu.h"

#include <stdio.h>

#include "base/fmt.h"

static const plim_gpu gpus[] = {
#define GPU(name, aliases, of, vendor, klass, arch, year, gb, bytes, kind, unified, kept_low, \
            kept_usual, kept_high, bw, fp32, tf32, fp16, fp16_acc32, bf16, fp8, cc, sms,      \
            price, src)                                                                       \
    {name,    aliases,  of,         vendor,     klass,                                        \
     arch,    year,     gb,         bytes,      PLIM_GPU_##kind,                              \
     unified, kept_low, kept_usual, kept_high,  bw,                                           \
     fp32,    tf32,     fp16,       fp16_acc32, bf16,                                         \
     fp8,     cc,       sms,        price,      src},
#define MIG GPU
#include "gpu/gpus.def"
#undef MIG
#undef GPU
};

enum {
    CARDS = 0 /* and of them that are whole */
#define GPU(...) +1
#define MIG(...)
#include "gpu/gpus.def"
#undef MIG
#undef GPU
};

uint32_t plim_gpu_count(void) { return CARDS; }

const plim_gpu *plim_gpu_at(uint32_t i) { return i < PLIM_COUNT(gpus) ? &gpus[i] : NULL; }

bool plim_gpu_info_at(uint32_t i, plim_gpu_info *out)
{
    const plim_gpu *g = plim_gpu_at(i);
    if (!g || !out)
        return false;
    const plim_gpu_info info = {.size = sizeof info,
                                .name = g->name,
                                .aliases = g->aliases,
                                .vendor = g->vendor,
                                .klass = g->klass,
                                .arch = g->arch,
                                .src = g->src,
                                .year = g->year,
                                .cc = g->cc,
                                .sms = g->sms,
                                .memory_bytes = g->memory_bytes,
                                .memory_exact = g->memory_kind == PLIM_GPU_DRIVER,
                                .bandwidth_gbs = g->bandwidth_gbs,
                                .fp32_tflops = g->fp32,
                                .tf32_tflops = g->tf32,
                                .fp16_tflops = g->fp16,
                                .bf16_tflops = g->bf16,
                                .fp8_tflops = g->fp8,
                                .price_usd = g->price_usd,
                                .unified = g->unified,
                                .kept_low = g->kept_low,
                                .kept_high = g->kept_high,
                                .mig_of = g->mig_of};
    plim_copy_out(out, &info, sizeof info);
    return true;
}

/* ---- names --------------------------------------------------------------- */

enum { KEY_MAX = PLIM_NAME_MAX };

/* A name as it is compared: lower case letters and digits. */
typedef struct gpu_key {
    char s[KEY_MAX];
    size_t n;
} gpu_key;

static bool is_unit(plim_str word)
{
    return plim_str_is(word, "g") || plim_str_is(word, "gb") || plim_str_is(word, "gib");
}

/* The gigabytes that a word says: "80gb" and, with `bare`, "80"; 0: none. */
static uint64_t word_gigabytes(plim_str word, bool bare)
{
    enum { MOST = 10000 };
    uint64_t gb = 0;
    for (; word.n && *word.p >= '0' && *word.p <= '9' && gb < MOST; word.p++, word.n--)
        gb = 10 * gb + (uint64_t)(*word.p - '0');
    return is_unit(word) || (bare && !word.n) ? gb : 0;
}

/* With `gb`, a size of memory after the first word is left out of the key and goes there.
 * `bare`: at the end of the name it may be without a unit. */
static gpu_key key_without(plim_str name, uint64_t *gb, bool bare)
{
    static const char *const silent[] = {"nvidia", "geforce", "tesla"};
    gpu_key k = {{0}, 0};
    size_t word = 0, before = 0; /* where the word now read, and the last, start in k.s */
    for (size_t i = 0; i <= name.n; i++) {
        char c = i < name.n ? plim_lower(name.p[i]) : ' ';
        bool part = (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
        if (part && k.n < sizeof k.s)
            k.s[k.n++] = c;
        if (part)
            continue;
        if (gb && is_unit((plim_str){k.s + word, k.n - word}))
            word = before; /* "80 GB" */
        plim_str last = {k.s + word, k.n - word};
        uint64_t size = gb && word ? word_gigabytes(last, bare && i == name.n) : 0;
        if (size) {
            *gb = size;
            k.n = word;
        }
        for (size_t w = 0; w < PLIM_COUNT(silent); w++)
            if (plim_str_is(last, silent[w]))
                k.n = word;
        before = k.n > word ? word : before;
        word = k.n;
    }
    return k;
}

static gpu_key key_of(plim_str name) { return key_without(name, NULL, false); }

static bool key_eq(const gpu_key *a, const gpu_key *b)
{
    return a->n == b->n && memcmp(a->s, b->s, a->n) == 0;
}

/* The next alias of a list "a, b"; false after the last. */
static bool next_alias(const char **list, plim_str *alias)
{
    while (**list == ',' || **list == ' ')
        ++*list;
    size_t n = strcspn(*list, ",");
    *alias = (plim_str){*list, n};
    *list += n;
    return n > 0;
}

/* How unlike two keys are; among equals the one that starts alike for longer is
 * nearer. */
static size_t key_distance(const gpu_key *a, const gpu_key *b)
{
    size_t edits = plim_edit_distance((plim_str){a->s, a->n}, (plim_str){b->s, b->n}),
           alike = 0;
    while (alike < a->n && alike < b->n && a->s[alike] == b->s[alike])
        alike++;
    return (edits + 1) * KEY_MAX - alike;
}

enum { NEAREST = 3 };

typedef struct gpu_near {
    plim_str name[NEAREST];
    size_t distance[NEAREST];
    uint32_t card[NEAREST];
    size_t n;
} gpu_near;

/* Keeps the nearest few, one name a card, in order; the first of equals stays. */
static void near_offer(gpu_near *near, plim_str name, size_t distance, uint32_t card)
{
    size_t at = 0, end = near->n;
    for (size_t i = 0; i < near->n; i++)
        if (near->card[i] == card) {
            if (near->distance[i] <= distance)
                return;
            end = i; /* its worse name makes way */
            break;
        }
    while (at < end && near->distance[at] <= distance)
        at++;
    if (at == NEAREST)
        return;
    if (end == near->n && near->n < NEAREST)
        near->n++;
    for (size_t i = PLIM_MIN(end, NEAREST - 1); i > at; i--) {
        near->name[i] = near->name[i - 1];
        near->distance[i] = near->distance[i - 1];
        near->card[i] = near->card[i - 1];
    }
    near->name[at] = name;
    near->distance[at] = distance;
    near->card[at] = card;
}

static plim_status gpu_unknown(plim_str name, const gpu_key *k, plim_err *err)
{
    gpu_near near = {.n = 0};
    for (uint32_t i = 0; i < CARDS; i++) {
        const char *list = gpus[i].aliases;
        for (plim_str alias; next_alias(&list, &alias);) {
            gpu_key other = key_of(alias);
            near_offer(&near, alias, key_distance(k, &other), i);
        }
    }
    /* A name that shares hardly a letter is not a help. */
    while (near.n && near.distance[near.n - 1] > (PLIM_MAX(2, k->n / 2) + 1) * KEY_MAX)
        near.n--;
    char list[160] = "";
    for (size_t i = 0, at = 0; i < near.n && at < sizeof list; i++)
        at += (size_t)snprintf(list + at, sizeof list - at, "%s'" PLIM_STR_FMT "'",
                               i ? ", " : ": nearest are ", PLIM_STR_ARG(near.name[i]));
    return plim_fail(err, PLIM_EUSAGE, 0, "unknown gpu '%.*s'%s", (int)PLIM_MIN(name.n, 60),
                     name.p, list);
}

/* Is this one of the card's names, apart from the size of its memory? */
static bool gpu_called(const plim_gpu *g, const gpu_key *k)
{
    const char *list = g->aliases;
    plim_str alias = plim_str_of(g->name);
    do {
        uint64_t gb = 0;
        gpu_key other = key_without(alias, &gb, false);
        if (key_eq(k, &other))
            return true;
    } while (next_alias(&list, &alias));
    return false;
}

uint32_t plim_gpu_several(plim_str name, plim_str *card)
{
    enum { DIGITS = 3 }; /* four are a card's name: 7900xt */
    uint32_t n = 0;
    size_t i = 0;
    for (; i < name.n && i < DIGITS && name.p[i] >= '0' && name.p[i] <= '9'; i++)
        n = n * 10 + (uint32_t)(name.p[i] - '0');
    if (!n || i + 1 >= name.n || name.p[i] != 'x')
        return 0;
    *card = (plim_str){name.p + i + 1, name.n - i - 1};
    return n;
}

/* A name in other words than the list's, such as "T4 16GB", "v100 32" and "Jetson Orin NX":
 * the only card of that name and memory. */
static plim_status gpu_find_loosely(plim_str name, const plim_gpu **out, plim_err *err)
{
    uint64_t gb = 0;
    char list[160] = "";
    size_t at = 0;
    gpu_key k = key_without(name, &gb, true);
    const plim_gpu *found = NULL;
    bool several = false;
    for (uint32_t i = 0; k.n && i < CARDS; i++) {
        if ((gb && gb != (uint64_t)gpus[i].marketed_gb) || !gpu_called(&gpus[i], &k))
            continue;
        several |= found != NULL;
        found = &gpus[i];
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s'%s'", at ? ", " : "",
                                   gpus[i].name);
    }
    if (several)
        return plim_fail(err, PLIM_EUSAGE, 0, "gpu '%.*s' is ambiguous: it may be one of %s",
                         (int)PLIM_MIN(name.n, 60), name.p, list);
    if (!found) {
        plim_str card;
        if (plim_gpu_several(name, &card) && !plim_gpu_find(card, out, NULL))
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "'%.*s' is a machine of several cards, which only 'run' "
                             "simulates: the answer is for one card, write '%.*s'",
                             (int)PLIM_MIN(name.n, 60), name.p, (int)PLIM_MIN(card.n, 60),
                             card.p);
        k = key_of(name);
        return gpu_unknown(name, &k, err);
    }
    *out = found;
    return PLIM_OK;
}

bool plim_gpu_is(const plim_gpu *gpu, const char *short_name)
{
    size_t n = strcspn(gpu->aliases, ",");
    return strlen(short_name) == n && !memcmp(short_name, gpu->aliases, n);
}

/* The profile in an alias "a100:3g.40gb". */
static plim_str profile_of(const plim_gpu *mig)
{
    return plim_str_of(strchr(mig->aliases, ':') + 1);
}

/* "3g.40gb" of "3g.40gb+me", whose engines for media take no memory. */
static gpu_key profile_key(plim_str profile)
{
    plim_str plain = {profile.p, 0};
    while (plain.n < profile.n && profile.p[plain.n] != '+')
        plain.n++;
    return key_of(plain);
}

/* "a100:3g.40gb": the instance of that profile. */
static plim_status find_instance(plim_str card, plim_str profile, const plim_gpu **out,
                                 plim_err *err)
{
    const plim_gpu *whole = gpus;
    const gpu_key k = profile_key(profile);
    char list[160] = "";
    size_t at = 0;
    PLIM_TRY(plim_gpu_find(card, &whole, err));
    for (uint32_t i = CARDS; i < PLIM_COUNT(gpus); i++) {
        if (!plim_gpu_is(whole, gpus[i].mig_of))
            continue;
        const gpu_key own = key_of(profile_of(&gpus[i]));
        if (key_eq(&k, &own)) {
            *out = &gpus[i];
            return PLIM_OK;
        }
        if (at < sizeof list)
            at += (size_t)snprintf(list + at, sizeof list - at, "%s" PLIM_STR_FMT,
                                   at ? ", " : "", PLIM_STR_ARG(profile_of(&gpus[i])));
    }
    return at ? plim_fail(err, PLIM_EUSAGE, 0, "gpu '%s' has no MIG profile '%.*s': it has %s",
                          whole->name, (int)PLIM_MIN(profile.n, 40), profile.p, list)
              : plim_fail(err, PLIM_EUSAGE, 0, "gpu '%s' has no MIG profiles", whole->name);
}

plim_status plim_gpu_find(plim_str name, const plim_gpu **out, plim_err *err)
{
    gpu_key k = key_of(name);
    const char *colon = name.n ? memchr(name.p, ':', name.n) : NULL;
    for (uint32_t i = colon ? CARDS : 0; k.n && i < PLIM_COUNT(gpus); i++) {
        const char *list = gpus[i].aliases;
        plim_str alias = plim_str_of(gpus[i].name);
        do {
            gpu_key other = key_of(alias);
            if (key_eq(&k, &other)) {
                *out = &gpus[i];
                return PLIM_OK;
            }
        } while (next_alias(&list, &alias));
    }
    const size_t n = colon ? (size_t)(colon - name.p) : 0;
    return colon ? find_instance((plim_str){name.p, n}, (plim_str){colon + 1, name.n - n - 1},
                                 out, err)
                 : gpu_find_loosely(name, out, err);
}

static plim_status list_push(plim_arena *a, const plim_gpu *gpu, const plim_gpu ***list,
                             uint32_t *n, uint32_t *cap, plim_err *err)
{
    if (!PLIM_PUSH_ROOM(a, *list, *n, *cap))
        return plim_oom(err);
    (*list)[(*n)++] = gpu;
    return PLIM_OK;
}

plim_status plim_gpu_list(plim_arena *a, const char *names, const plim_gpu ***out, uint32_t *n,
                          plim_err *err)
{
    const plim_gpu **list = NULL, *gpu = NULL;
    uint32_t count = 0, cap = 0;
    plim_status st = PLIM_OK;
    bool all = !strcmp(names, "all");
    for (uint32_t i = 0; all && i < plim_gpu_count() && !st; i++)
        st = list_push(a, plim_gpu_at(i), &list, &count, &cap, err);
    for (const char *rest = names; !all && !st;) {
        plim_str name = {rest, strcspn(rest, ",")};
        rest += name.n;
        if (!name.n)
            return plim_fail(err, PLIM_EUSAGE, 0, "an empty name in the list of cards '%s'",
                             names);
        st = plim_gpu_find(name, &gpu, err);
        if (!st)
            st = list_push(a, gpu, &list, &count, &cap, err);
        if (!*rest++)
            break;
    }
    *out = list;
    *n = count;
    return st;
}

/* How good an example of cards of its size it is: NVIDIA's, and of those whose memory is known best. */
static int rank_example(const plim_gpu *g)
{
    return !strcmp(g->vendor, "NVIDIA") ? 1 + (int)g->memory_kind : 0;
}

const char *plim_gpu_sold(plim_arena *a, uint64_t bytes)
{
    const uint64_t giga = 1000000000, gb = bytes / giga;
    const plim_gpu *such = NULL;
    for (uint32_t i = 0; gb && bytes % giga == 0 && i < CARDS; i++)
        if (gb == (uint64_t)gpus[i].marketed_gb &&
            (!such || rank_example(&gpus[i]) > rank_example(such)))
            such = &gpus[i];
    if (!such)
        return "";
    const plim_str alias = {such->aliases, strcspn(such->aliases, ",")};
    return plim_arena_printf(a,
                             "%" PRIu64 " GB is %s: a card that is sold with %" PRIu64
                             " GB has %" PRIu64 " GiB, less what its driver keeps. Name the "
                             "card, as in --gpu " PLIM_STR_FMT ", or write %" PRIu64 "GiB.",
                             gb, plim_fmt_bytes(bytes, false).s, gb, gb, PLIM_STR_ARG(alias),
                             gb)
        .p;
}

plim_status plim_gpu_generic(plim_arena *a, uint64_t bytes, plim_gpu *out, plim_err *err)
{
    plim_str name = plim_arena_printf(a, "a card of %s", plim_fmt_bytes(bytes, false).s);
    if (!name.p)
        return plim_oom(err);
    *out = (plim_gpu){
        .name = name.p,
        .aliases = "",
        .mig_of = "",
        .vendor = "",
        .klass = "",
        .arch = "",
        .memory_bytes = bytes,
        .memory_kind = PLIM_GPU_GIVEN,
        .src = "--vram",
    };
    return PLIM_OK;
}

/* ---- what follows from the generation ------------------------------------ */

plim_gpu_limits plim_gpu_limits_of(int cc)
{
    enum { K = 1 << 10, M = 1 << 20 };
    static const plim_gpu_limits rows[] = {
        {60, 32, 64 * K, 48 * K, 4 * M},      {61, 32, 96 * K, 48 * K, 3 * M},
        {70, 32, 96 * K, 96 * K, 6 * M},      {75, 16, 64 * K, 64 * K, 6 * M},
        {80, 32, 164 * K, 163 * K, 40 * M},   {86, 16, 100 * K, 99 * K, 6 * M},
        {87, 16, 164 * K, 163 * K, 4 * M},    {89, 24, 100 * K, 99 * K, 72 * M},
        {90, 32, 228 * K, 227 * K, 50 * M},   {100, 32, 228 * K, 227 * K, 126 * M},
        {103, 32, 228 * K, 227 * K, 126 * M}, {120, 24, 100 * K, 99 * K, 96 * M},
    };
    plim_gpu_limits found = rows[0];
    for (size_t i = 0; i < PLIM_COUNT(rows) && rows[i].cc <= cc; i++)
        found = rows[i];
    return found;
}

int plim_gpu_threads_per_sm(int cc)
{
    if (cc <= 0)
        return 0;
    if (cc == 75)
        return 1024;
    return (cc > 80 && cc < 90) || cc >= 110 ? 1536 : 2048;
}

/* ---- contexts ------------------------------------------------------------------------ */

/* The ids of contexts.def in its order. */
enum {
#define PLIM_CONTEXT_PART(id, name, by, doc) PART_##id,
#define PLIM_CONTEXT(part, per, cc_from, cc_to, torch_from, torch_to, of, loading, low,       \
                     usual, high, certainty, doc)
#include "gpu/contexts.def"
#undef PLIM_CONTEXT
#undef PLIM_CONTEXT_PART
    PARTS
};

enum {
    HAS_PROCESS = PLIM_GPU_PROCESS,
    HAS_CUBLAS = PLIM_CUBLAS,
    HAS_CUDNN = PLIM_CUDNN,
    HAS_CUFFT = PLIM_CUFFT,
    HAS_CUSOLVER = PLIM_CUSOLVER,
    HAS_COMMUNICATORS = PLIM_GPU_COMMUNICATORS,
    HAS_GRAPHS = PLIM_GPU_GRAPHS
};

static const struct {
    const char *name;
    int by;
} context_parts[] = {
#define PLIM_CONTEXT_PART(id, name, by, doc) {name, HAS_##by},
#define PLIM_CONTEXT(part, per, cc_from, cc_to, torch_from, torch_to, of, loading, low,       \
                     usual, high, certainty, doc)
#include "gpu/contexts.def"
#undef PLIM_CONTEXT
#undef PLIM_CONTEXT_PART
};

enum { PER_ONCE, PER_EACH };
enum { LOADING_LAZY = 1, LOADING_EAGER = 2, LOADING_EITHER = 3 };

typedef struct context_row {
    int part, per;
    int cc_from, cc_to, torch_from, torch_to; /* inclusive */
    plim_gpu_program of;
    int loading;
    double low, usual, high; /* MiB */
    plim_gpu_known known;
    const char *doc;
} context_row;

static const context_row context_rows[] = {
#define PLIM_CONTEXT_PART(id, name, by, doc)
#define PLIM_CONTEXT(part, per, cc_from, cc_to, torch_from, torch_to, of, loading, low,       \
                     usual, high, certainty, doc)                                             \
    {PART_##part, PER_##per, cc_from,       cc_to,                                            \
     torch_from,  torch_to,  PLIM_GPU_##of, LOADING_##loading,                                \
     low,         usual,     high,          PLIM_GPU_##certainty,                             \
     doc},
#include "gpu/contexts.def"
#undef PLIM_CONTEXT
#undef PLIM_CONTEXT_PART
};

_Static_assert((int)PARTS < (int)PLIM_GPU_PARTS, "one more has room: what is added");

const char *plim_gpu_known_name(plim_gpu_known known)
{
    static const char *const names[] = {"measured", "fitted", "assumed"};
    return (unsigned)known < PLIM_COUNT(names) ? names[known] : "?";
}

plim_gpu_use plim_gpu_use_of(plim_gpu_program program)
{
    plim_gpu_use use = {.program = program};
    if (program != PLIM_GPU_SCRIPT)
        return use;
    use.count[PLIM_CUBLAS] = use.count[PLIM_CUDNN] = (plim_gpu_counted){0, 2, 3};
    use.count[PLIM_CUFFT] = use.count[PLIM_CUSOLVER] = (plim_gpu_counted){0, 0, 1};
    use.count[PLIM_GPU_GRAPHS] = (plim_gpu_counted){0, 0, 1};
    return use;
}

void plim_gpu_use_callers(plim_gpu_use *use, const uint8_t callers[PLIM_CUDA_LIBRARIES])
{
    const bool script = use->program == PLIM_GPU_SCRIPT;
    bool any = false;
    for (int i = 0; i < PLIM_CUDA_LIBRARIES; i++)
        any |= callers[i] != 0;
    for (int i = 0; i < PLIM_CUDA_LIBRARIES && (any || !script); i++) {
        const uint32_t n = (callers[i] & 1u) + (callers[i] >> 1 & 1u);
        use->count[i] = (plim_gpu_counted){n, n, script ? PLIM_MAX(n, use->count[i].high) : n};
    }
}

static const context_row *find_context(int part, int cc, int torch_version, plim_gpu_use use)
{
    const int loading =
        use.eager || torch_version < PLIM_GPU_LAZY_SINCE ? LOADING_EAGER : LOADING_LAZY;
    for (size_t i = 0; i < PLIM_COUNT(context_rows); i++) {
        const context_row *r = &context_rows[i];
        if (r->part == part && cc >= r->cc_from && cc <= r->cc_to &&
            torch_version >= r->torch_from && torch_version <= r->torch_to &&
            r->of <= use.program && (r->loading & loading))
            return r;
    }
    return NULL;
}

static uint64_t size_of_part(double mib, int per, uint32_t n)
{
    return (uint64_t)(mib * 1024 * 1024) * (per == PER_EACH ? n : PLIM_MIN(n, 1u));
}

void plim_gpu_context_add(plim_gpu_context *c, plim_gpu_part part)
{
    plim_assert(c->n_parts < PLIM_GPU_PARTS);
    plim_assert(part.low <= part.usual && part.usual <= part.high);
    c->part[c->n_parts++] = part;
    c->low += part.low;
    c->usual += part.usual;
    c->high += part.high;
}

/* Memory that the CPU has, too, is never all a process's. */
static void add_system(const plim_gpu *gpu, plim_gpu_context *c)
{
    if (gpu && gpu->kept_high && c->n_parts)
        plim_gpu_context_add(
            c,
            (plim_gpu_part){.name = PLIM_GPU_SYSTEM,
                            .low = gpu->kept_low,
                            .usual = gpu->kept_usual,
                            .high = gpu->kept_high,
                            .known = PLIM_GPU_ASSUMED,
                            .src = "what the system keeps of memory that it shares, as users "
                                   "of such machines report it"});
}

/* Those of NCCL are beside what was measured as one. */
static bool is_within_whole(int part) { return part != PART_NCCL && part != PART_NCCL_CODE; }

plim_gpu_context plim_gpu_context_of(const plim_gpu *gpu, int torch_version, plim_gpu_use use)
{
    plim_gpu_context c = {.n_parts = 0};
    const int cc = gpu ? gpu->cc : 0;
    /* A vendor that is named and is not NVIDIA has no CUDA context. */
    if (gpu && *gpu->vendor && strcmp(gpu->vendor, "NVIDIA") != 0)
        return c;
    use.count[PLIM_GPU_PROCESS] = (plim_gpu_counted){1, 1, 1};
    const bool apart = find_context(PART_CONTEXT, cc, torch_version, use) != NULL;
    for (int part = 0; part < PARTS; part++) {
        const context_row *r = find_context(part, cc, torch_version, use);
        const plim_gpu_counted n = use.count[context_parts[part].by];
        if (!r || !n.high || (is_within_whole(part) && apart == (part == PART_WHOLE)))
            continue;
        plim_gpu_context_add(&c,
                             (plim_gpu_part){.name = context_parts[part].name,
                                             .low = size_of_part(r->low, r->per, n.low),
                                             .usual = size_of_part(r->usual, r->per, n.usual),
                                             .high = size_of_part(r->high, r->per, n.high),
                                             .known = r->known,
                                             .src = r->doc});
    }
    add_system(gpu, &c);
    return c;
}

bool plim_gpu_context_alike(const plim_gpu *a, const plim_gpu *b, int torch_version,
                            bool eager)
{
    plim_gpu_use use = {.program = PLIM_GPU_LOOP, .eager = eager};
    for (int i = 0; i < PLIM_GPU_HOLDERS; i++)
        use.count[i] = (plim_gpu_counted){1, 1, 1};
    const plim_gpu_context x = plim_gpu_context_of(a, torch_version, use),
                           y = plim_gpu_context_of(b, torch_version, use);
    bool alike = x.n_parts == y.n_parts;
    for (uint32_t i = 0; alike && i < x.n_parts; i++)
        alike = x.part[i].low == y.part[i].low && x.part[i].usual == y.part[i].usual &&
                x.part[i].high == y.part[i].high;
    return alike;
}
