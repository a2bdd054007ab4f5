/* items.c -- see items.h. */
#include "base/items.h"

#include <stdio.h>

#include "base/fmt.h"

static plim_str item_trim(plim_str s)
{
    while (s.n && *s.p == ' ')
        s.p++, s.n--;
    while (s.n && s.p[s.n - 1] == ' ')
        s.n--;
    return s;
}

bool plim_item_word(plim_str *rest, char mark, plim_str *word)
{
    if (!rest->n)
        return false;
    const char *end = memchr(rest->p, mark, rest->n);
    size_t n = end ? (size_t)(end - rest->p) : rest->n, skip = PLIM_MIN(n + 1, rest->n);
    *word = item_trim((plim_str){rest->p, n});
    plim_assert(n <= rest->n);
    *rest = (plim_str){rest->p + skip, rest->n - skip};
    return true;
}

bool plim_item_next(plim_str *rest, plim_str *key, plim_str *value)
{
    plim_str item;
    if (!plim_item_word(rest, ',', &item))
        return false;
    const char *eq = memchr(item.p, '=', item.n);
    size_t n = eq ? (size_t)(eq - item.p) : item.n;
    *key = item_trim((plim_str){item.p, n});
    *value = eq ? item_trim((plim_str){eq + 1, item.n - n - 1}) : (plim_str){NULL, 0};
    return true;
}

plim_str plim_item_find(plim_str items, plim_str name)
{
    plim_str key, value;
    while (plim_item_next(&items, &key, &value))
        if (plim_str_eq(key, name))
            return value.p ? value : PLIM_STR("");
    return (plim_str){NULL, 0};
}

plim_status plim_item_unknown(const char *what, const char *name, plim_str key,
                              const char *items, plim_err *err)
{
    plim_str rest = plim_str_of(items), one, value;
    char known[sizeof err->msg] = "";
    size_t used = 0;
    while (used < sizeof known && plim_item_next(&rest, &one, &value))
        used += (size_t)snprintf(known + used, sizeof known - used, "%s" PLIM_STR_FMT,
                                 used ? ", " : "", PLIM_STR_ARG(one));
    return plim_fail(err, PLIM_EUSAGE, 0,
                     "%s '%s' has no option '" PLIM_STR_FMT "': it has %s", what, name,
                     PLIM_STR_CUT(key), known);
}

bool plim_item_has(const char *words, plim_str word)
{
    plim_str rest = plim_str_of(words), one;
    while (plim_item_word(&rest, ' ', &one))
        if (plim_str_eq(one, word))
            return true;
    return false;
}

bool plim_item_number(plim_str s, double *out)
{
    if (plim_str_is(s, "True") || plim_str_is(s, "true") || plim_str_is(s, "False") ||
        plim_str_is(s, "false")) {
        *out = s.p[0] == 'T' || s.p[0] == 't';
        return true;
    }
    return plim_parse_double(s, out);
}
