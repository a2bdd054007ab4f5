/* adapter_parse.c -- the settings "peft" and "lora": see transform.h. */
#include "base/items.h"
#include "transform/adapter.h"

static plim_status parse_bias(plim_str word, plim_adapter *out, plim_err *err)
{
    const char *name = out->method->name;
    size_t n = strlen(name);
    bool targets = word.n > n && memcmp(word.p, name, n) == 0 &&
                   plim_str_is((plim_str){word.p + n, word.n - n}, "_only");
    if (!targets && !plim_str_is(word, "none") && !plim_str_is(word, "all"))
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "%s: 'bias' is none, all or %s_only, not '" PLIM_STR_FMT "'", name,
                         name, PLIM_STR_CUT(word));
    out->bias =
        targets ? PLIM_BIAS_TARGETS : (*word.p == 'a' ? PLIM_BIAS_ALL : PLIM_BIAS_NONE);
    return PLIM_OK;
}

static plim_status parse_word(const plim_adapter_method *m, const plim_adapter_item *item,
                              plim_str value, double *out, plim_err *err)
{
    plim_str words = plim_str_of(item->words), word;
    for (int i = 0; plim_item_word(&words, ' ', &word); i++)
        if (plim_str_eq(word, value)) {
            *out = i;
            return PLIM_OK;
        }
    return plim_fail(err, PLIM_EUSAGE, 0, "%s: '%s' is one of %s, not '" PLIM_STR_FMT "'",
                     m->name, item->key, item->words, PLIM_STR_CUT(value));
}

static plim_status parse_item(const plim_adapter_method *m, const plim_adapter_item *item,
                              plim_str value, double *out, plim_err *err)
{
    double v = 1; /* of a name alone: "rslora" */
    bool whole = item->number != PLIM_ADAPTER_REAL;
    if (item->words)
        return parse_word(m, item, value, out, err);
    bool given =
        value.n ? plim_item_number(value, &v) : item->number == PLIM_ADAPTER_FLAG && !value.p;
    if (!given || !plim_adapter_allows(item, v))
        return plim_fail(
            err, PLIM_EUSAGE, 0,
            "%s: '%s' must be a %snumber from %.9g to %.9g, not '" PLIM_STR_FMT "'", m->name,
            item->key, whole ? "whole " : "", item->least, item->most, PLIM_STR_CUT(value));
    *out = v;
    return PLIM_OK;
}

/* One that all methods with targets have, or the method's own. */
static bool take_text(plim_adapter *out, plim_str key, plim_str value)
{
    const plim_adapter_method *m = out->method;
    plim_str *text = !m->whole && plim_str_is(key, "targets") ? &out->targets
                     : !m->whole && plim_str_is(key, "save")  ? &out->saved
                     : m->text && plim_str_is(key, m->text)   ? &out->text
                                                              : NULL;
    if (text && value.n)
        *text = value;
    return text && value.n;
}

static const plim_adapter_item *find_item(const plim_adapter_method *m, plim_str key)
{
    for (size_t i = 0; i < PLIM_ADAPTER_ITEMS && m->item[i].key; i++)
        if (plim_str_is(key, m->item[i].key))
            return &m->item[i];
    return NULL;
}

static plim_status refuse_item(const plim_adapter_method *m, plim_str key, plim_err *err)
{
    char names[PLIM_ADAPTER_NAMES] = "";
    if (!m->whole)
        plim_adapter_list_name(names, "targets, save");
    for (size_t i = 0; i < PLIM_ADAPTER_ITEMS && m->item[i].key; i++)
        plim_adapter_list_name(names, m->item[i].key);
    if (m->bias)
        plim_adapter_list_name(names, "bias");
    if (m->text)
        plim_adapter_list_name(names, m->text);
    return plim_fail(err, PLIM_EUSAGE, 0, "%s has no item '" PLIM_STR_FMT "': it has %s",
                     m->name, PLIM_STR_CUT(key), names);
}

plim_status plim_adapter_parse_items(plim_str name, plim_str items, plim_adapter *out,
                                     plim_err *err)
{
    plim_str key, value;
    const plim_adapter_method *m = plim_adapter_method_of(name, err);
    if (!m)
        return PLIM_EUSAGE;
    *out = (plim_adapter){
        .method = m, .targets = PLIM_STR(""), .saved = PLIM_STR(""), .text = PLIM_STR("")};
    for (size_t i = 0; i < PLIM_ADAPTER_ITEMS; i++)
        out->item[i] = m->item[i].preset;
    while (plim_item_next(&items, &key, &value)) {
        plim_status st = PLIM_OK;
        const plim_adapter_item *item = find_item(m, key);
        if (take_text(out, key, value))
            continue;
        if (m->bias && plim_str_is(key, "bias"))
            st = parse_bias(value, out, err);
        else if (item)
            st = parse_item(m, item, value, &out->item[item - m->item], err);
        else
            st = refuse_item(m, key, err);
        if (st)
            return st;
    }
    return PLIM_OK;
}

plim_status plim_adapter_parse(plim_arena *a, const char *setting, plim_adapter *out,
                               plim_err *err)
{
    plim_str name = PLIM_STR(""), text = plim_str_of(setting);
    plim_status st = PLIM_OK;
    if (plim_str_ends(text, PLIM_STR(".json")))
        st = plim_adapter_read_config(a, setting, &text, err);
    if (st)
        return st;
    plim_item_word(&text, ',', &name);
    return plim_adapter_parse_items(name, text, out, err);
}

const char *plim_adapter_unpacked(const plim_adapter *spec)
{
    return spec->method->unpacked ? spec->method->unpacked(spec) : spec->method->name;
}

int64_t plim_adapter_tokens(const plim_adapter *spec)
{
    bool prompt = spec->method && spec->method->whole;
    return prompt ? (int64_t)spec->item[PLIM_PROMPT_TOKENS] : 0;
}
