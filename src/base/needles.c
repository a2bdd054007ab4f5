/* needles.c -- see needles.h. */
#include "base/needles.h"

enum { PART = 3 }; /* bytes */

static uint32_t place_of(const char *p)
{
    uint32_t three =
        (uint32_t)(uint8_t)p[0] | (uint32_t)(uint8_t)p[1] << 8 | (uint32_t)(uint8_t)p[2] << 16;
    return three * UINT32_C(0x9e3779b1) >> (32 - PLIM_NEEDLES_BITS);
}

static void add_part(plim_needles *s, uint32_t word, uint32_t at)
{
    plim_assert(at + PART <= s->word[word].n);
    uint16_t *first = &s->first[place_of(s->word[word].p + at)];
    s->part[s->n_parts++] = (plim_needles_part){*first, (uint8_t)word, (uint8_t)at};
    *first = (uint16_t)s->n_parts;
}

void plim_needles_init(plim_needles *s, const char *const *words, size_t apart, uint32_t n)
{
    size_t shortest = SIZE_MAX;
    plim_assert(n && n <= PLIM_NEEDLES_MOST);
    memset(s, 0, sizeof *s);
    s->n = n;
    for (uint32_t i = 0; i < n; i++) {
        const void *row = (const char *)words + i * apart;
        s->word[i] = plim_str_of(*(const char *const *)row);
        shortest = PLIM_MIN(shortest, s->word[i].n);
        s->longest = PLIM_MAX(s->longest, s->word[i].n);
    }
    plim_assert(shortest >= PART);
    s->step = (uint32_t)PLIM_MIN(shortest - PART + 1, (size_t)PLIM_NEEDLES_STEP_MOST);
    /* what was added last is found first: the word that begins earliest, and of these the first */
    for (uint32_t at = 0; at < s->step; at++)
        for (uint32_t i = n; i-- > 0;)
            add_part(s, i, at);
}

/* The first word, after `from`, that has a part at `at`. */
static bool match_parts(const plim_needles *s, plim_str text, size_t at, plim_needle from,
                        plim_needle *out)
{
    const plim_needles_part *p;
    for (uint32_t i = s->first[place_of(text.p + at)]; i; i = p->next) {
        p = &s->part[i - 1];
        plim_str word = s->word[p->word];
        size_t begin = at - p->at;
        plim_assert(p->word < s->n);
        if ((begin == from.at && p->word < from.word + 1) || word.n > text.n - begin ||
            memcmp(text.p + begin, word.p, word.n) != 0)
            continue;
        *out = (plim_needle){begin, p->word};
        return true;
    }
    return false;
}

bool plim_needles_next(const plim_needles *s, plim_str text, plim_needle *m)
{
    if (text.n < PART || m->at > text.n - PART)
        return false;
    for (size_t at = m->at + s->step - 1; at <= text.n - PART; at += s->step)
        if (s->first[place_of(text.p + at)] && match_parts(s, text, at, *m, m))
            return true;
    return false;
}
