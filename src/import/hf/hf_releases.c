/* hf_releases.c -- see hf_releases.h. */
#include "import/hf/hf_releases.h"

#include "base/fmt.h"
#include "base/items.h"

static const struct {
    int release;
    const char *types;
} releases[] = {
#define HF_COMPARED(release, types) {release, types},
#define HF_TYPES(rule, release, types)
#define HF_SINCE(release, name, doc)
#include "import/hf/releases.def"
#undef HF_SINCE
#undef HF_TYPES
#undef HF_COMPARED
};

static const struct {
    plim_hf_change rule;
    int release;
    const char *types;
} rules[] = {
#define HF_COMPARED(release, types)
#define HF_TYPES(rule, release, types) {PLIM_HF_##rule, release, types},
#define HF_SINCE(release, name, doc)
#include "import/hf/releases.def"
#undef HF_SINCE
#undef HF_TYPES
#undef HF_COMPARED
};

/* Major and minor of "4.46.3" as 446; -1 if it does not have that form. */
static int read_release(const char *text)
{
    int part[3], n = plim_parse_version(text, part);
    return n == 2 || n == 3 ? 100 * part[0] + part[1] : -1;
}

plim_status plim_hf_release_parse(const char *text, int *out, plim_err *err)
{
    *out = text ? read_release(text) : 0;
    if (!text || *out >= PLIM_HF_OLDEST)
        return PLIM_OK;
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "'transformers' is '%s': known are the releases %d.%d to %d.%d", text,
                     PLIM_HF_OLDEST / 100, PLIM_HF_OLDEST % 100, PLIM_HF_NEWEST / 100,
                     PLIM_HF_NEWEST % 100);
}

plim_str plim_hf_release_name(plim_arena *a, int release)
{
    return plim_arena_printf(a, "%d.%d", release / 100, release % 100);
}

static bool names_type(const char *types, plim_str model_type)
{
    return !strcmp(types, "*") || plim_item_has(types, model_type);
}

bool plim_hf_release_compared(int release, plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(releases); i++)
        if (releases[i].release == release)
            return names_type(releases[i].types, model_type);
    return false;
}

bool plim_hf_release_known(plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(releases); i++)
        if (releases[i].release < PLIM_HF_OLDEST_FILE &&
            names_type(releases[i].types, model_type))
            return true;
    return false;
}

bool plim_hf_release_follows(int release, plim_hf_change rule, plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(rules); i++)
        if (rules[i].rule == rule && names_type(rules[i].types, model_type))
            return release >= rules[i].release;
    return true;
}
