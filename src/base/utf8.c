/* utf8.c -- see utf8.h. */
#include "base/utf8.h"

/* src: Unicode 15, table 3-7 "Well-Formed UTF-8 Byte Sequences" */
uint32_t plim_utf8_decode(plim_str s, size_t *len)
{
    plim_assert(s.n > 0);
    static const uint32_t least[] = {0, 0, 0x80, 0x800, 0x10000};
    const uint8_t *p = (const uint8_t *)s.p;
    *len = 1;
    if (p[0] < 0x80)
        return p[0];
    size_t n = p[0] < 0xc2 ? 0 : p[0] < 0xe0 ? 2 : p[0] < 0xf0 ? 3 : p[0] < 0xf5 ? 4 : 0;
    if (!n || n > s.n)
        return PLIM_UTF8_BAD;
    uint32_t c = p[0] & (0xffu >> (n + 1));
    for (size_t i = 1; i < n; i++) {
        if ((p[i] & 0xc0) != 0x80)
            return PLIM_UTF8_BAD;
        c = c << 6 | (p[i] & 0x3f);
    }
    if (c < least[n] || c > 0x10ffff || (c >= 0xd800 && c <= 0xdfff))
        return PLIM_UTF8_BAD;
    *len = n;
    return c;
}

/* src: Unicode 15 categories Cc, Zl, Zp and the format characters (Cf) of
 * bidirectional text and of no width. */
bool plim_utf8_shows(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } hidden[] = {{0x0000, 0x001f}, {0x007f, 0x009f},  {0x00ad, 0x00ad}, {0x061c, 0x061c},
                  {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f}, {0xfeff, 0xfeff},
                  {0xfff9, 0xfffb}, {0xe0000, 0xe007f}};
    for (size_t i = 0; i < PLIM_COUNT(hidden) && c >= hidden[i].first; i++)
        if (c <= hidden[i].last)
            return false;
    return c <= 0x10ffff;
}

size_t plim_utf8_clean(char *p, size_t n)
{
    size_t to = 0;
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c = plim_utf8_decode((plim_str){p + i, n - i}, &len);
        if (plim_utf8_shows(c)) {
            memmove(p + to, p + i, len);
            to += len;
        } else {
            p[to++] = c == '\n' || c == '\t' || c == '\r' ? ' ' : '?';
        }
    }
    plim_assert(to <= n);
    return to;
}
