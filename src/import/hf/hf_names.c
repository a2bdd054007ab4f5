/* hf_names.c -- see hf_names.h. */
#include "import/hf/hf_names.h"

#include "import/hf/hf.h"

typedef enum rule_kind { BASE, RENAME, PART, IGNORE } rule_kind;

struct plim_hf_rule {
    rule_kind kind;
    const char *types, *from, *to;
    uint32_t part, parts;
};

#define HF_BASE(types, prefix) {BASE, types, prefix, "", 0, 0},
#define HF_RENAME(types, from, to) {RENAME, types, from, to, 0, 0},
#define HF_PART(types, from, to, i, n) {PART, types, from, to, i, n},
#define HF_IGNORE(types, part) {IGNORE, types, part, "", 0, 0},
static const plim_hf_rule all_rules[] = {
#include "import/hf/hf_names.def"
};

plim_status plim_hf_names_of(plim_hf_names *n, plim_str model_type, plim_arena *a,
                             plim_err *err)
{
    *n = (plim_hf_names){.base = PLIM_STR("")};
    n->rules = PLIM_NEW_N(a, const plim_hf_rule *, PLIM_COUNT(all_rules));
    if (!n->rules)
        return plim_oom(err);
    for (size_t i = 0; i < PLIM_COUNT(all_rules); i++) {
        const plim_hf_rule *r = &all_rules[i];
        if (*r->types && !plim_item_has(r->types, model_type))
            continue;
        if (r->kind == BASE)
            n->base = plim_str_of(r->from);
        else
            n->rules[n->n_rules++] = r;
    }
    return PLIM_OK;
}

/* ---- a name that is rewritten ------------------------------------------------------------ */

/* Longer names than any of a class are skipped: a file may have millions. */
enum { NAME_LIMIT = 512 };

typedef struct text {
    size_t n;
    char p[2 * NAME_LIMIT];
} text;

static plim_str view_text(const text *t) { return (plim_str){t->p, t->n}; }

static bool set_text(text *t, plim_str s)
{
    t->n = 0;
    if (s.n > NAME_LIMIT)
        return false;
    memcpy(t->p, s.p, s.n);
    t->n = s.n;
    return true;
}

/* A name that does not fit is not one of a class and is left as it is. */
static void replace_part(text *t, size_t at, size_t cut, plim_str with)
{
    if (with.n > sizeof t->p - (t->n - cut))
        return;
    memmove(t->p + at + with.n, t->p + at + cut, t->n - at - cut);
    memcpy(t->p + at, with.p, with.n);
    t->n = t->n - cut + with.n;
}

/* Offset of the first match of the pattern, or t->n. */
static size_t find_pattern(const text *t, const char *pattern)
{
    if (*pattern == '^')
        return plim_str_starts(view_text(t), pattern + 1) ? 0 : t->n;
    size_t n = strlen(pattern);
    const char *at = t->p, *end = t->p + t->n;
    while ((at = memchr(at, *pattern, (size_t)(end - at))) != NULL &&
           (size_t)(end - at) >= n) {
        if (memcmp(at, pattern, n) == 0)
            return (size_t)(at - t->p);
        at++;
    }
    return t->n;
}

static void rename_all(const plim_hf_names *n, text *t)
{
    for (uint32_t i = 0; i < n->n_rules; i++) {
        const plim_hf_rule *r = n->rules[i];
        size_t at = r->kind == RENAME ? find_pattern(t, r->from) : t->n;
        if (at < t->n)
            replace_part(t, at, strlen(r->from) - (*r->from == '^'), plim_str_of(r->to));
    }
}

/* ---- a tensor of the class ----------------------------------------------------------------- */

/* Looks up the name without the prefix of the model, with it, or as it is. */
static bool find_tensor(const plim_hf_names *n, const plim_map *model, text *t,
                        uint32_t *tensor)
{
    plim_str name = view_text(t);
    if (plim_str_starts(name, n->base.p) &&
        plim_map_get(model, (plim_str){name.p + n->base.n, name.n - n->base.n}, tensor))
        return true;
    if (plim_map_get(model, name, tensor))
        return true;
    replace_part(t, 0, 0, n->base);
    return plim_map_get(model, view_text(t), tensor);
}

/* "a.experts.12.w1.weight" ends in ".experts.*.w1.weight": number 12, and *before is 1, the
 * length of the text before the match. */
static bool match_part(const plim_hf_rule *r, plim_str name, size_t *before, uint32_t *number)
{
    const char *star = strchr(r->from, '*');
    plim_str lead = {r->from, (size_t)(star - r->from)}, tail = plim_str_of(star + 1);
    if (!plim_str_ends(name, tail))
        return false;
    size_t end = name.n - tail.n, at = end;
    while (at && end - at < 9 && name.p[at - 1] >= '0' && name.p[at - 1] <= '9')
        at--;
    if (at == end || (name.p[at] == '0' && end - at > 1) ||
        !plim_str_ends((plim_str){name.p, at}, lead))
        return false;
    *before = at - lead.n;
    *number = 0;
    for (; at < end; at++)
        *number = *number * 10 + (uint32_t)(name.p[at] - '0');
    return true;
}

static bool part_of(const plim_hf_names *n, const plim_map *model, plim_str stored,
                    plim_hf_place *out)
{
    text t;
    size_t before;
    for (uint32_t i = 0; i < n->n_rules; i++) {
        const plim_hf_rule *r = n->rules[i];
        if (r->kind != PART || !match_part(r, stored, &before, &out->number))
            continue;
        if (!set_text(&t, (plim_str){stored.p, before}))
            return false;
        replace_part(&t, t.n, 0, plim_str_of(r->to));
        rename_all(n, &t);
        out->rule = r;
        out->part = r->part;
        out->parts = r->parts;
        return find_tensor(n, model, &t, &out->tensor);
    }
    return false;
}

bool plim_hf_place_of(const plim_hf_names *n, const plim_map *model, plim_str stored,
                      plim_hf_place *out)
{
    text t;
    if (part_of(n, model, stored, out))
        return true;
    *out = (plim_hf_place){.rule = NULL};
    if (!set_text(&t, stored))
        return false;
    rename_all(n, &t);
    return find_tensor(n, model, &t, &out->tensor) ||
           (set_text(&t, stored) && find_tensor(n, model, &t, &out->tensor));
}

plim_str plim_hf_name_beside(plim_arena *a, plim_str stored, const plim_hf_place *there,
                             uint64_t number, uint64_t part)
{
    const plim_hf_rule *r = there->rule - there->part + part;
    const char *star = strchr(there->rule->from, '*');
    size_t before = 0;
    uint32_t own;
    (void)match_part(there->rule, stored, &before, &own);
    return plim_arena_printf(a, PLIM_STR_FMT "%.*s%" PRIu64 "%s", (int)before, stored.p,
                             (int)(star - there->rule->from), there->rule->from, number,
                             strchr(r->from, '*') + 1);
}

/* Rules are about names of tensors: a module's name with a dot after it is the prefix of some.
 * src: transformers quantizer_finegrained_fp8.py _normalize_modules_to_not_convert */
plim_str plim_hf_renamed(const plim_hf_names *n, plim_str module, plim_arena *a)
{
    text t;
    if (!set_text(&t, module))
        return module;
    replace_part(&t, t.n, 0, PLIM_STR("."));
    rename_all(n, &t);
    t.n -= plim_str_ends(view_text(&t), PLIM_STR("."));
    return plim_arena_str(a, view_text(&t));
}

bool plim_hf_ignores(const plim_hf_names *n, plim_str stored)
{
    text t;
    if (!set_text(&t, stored))
        return false;
    rename_all(n, &t);
    for (uint32_t i = 0; i < n->n_rules; i++)
        if (n->rules[i]->kind == IGNORE && find_pattern(&t, n->rules[i]->from) < t.n)
            return true;
    return false;
}
