/* fmt.c -- text from numbers and numbers from text: see fmt.h. */
#include "base/fmt.h"

#include "base/utf8.h"

#include <math.h>
#include <stdio.h>

/* ---- numbers ------------------------------------------------------------- */

/* n in units of step^k with two decimals, rounded half up: "1.50 G".  The unit is the largest
 * that `as` reaches; for n itself, after rounding, so 1023.999 MiB is 1.00 GiB. */
static plim_text fmt_scaled(uint64_t n, uint64_t as, uint64_t step, const char *const *units,
                            int n_units)
{
    plim_assert(step > 1 && n_units > 0);
    plim_text t;
    uint64_t unit = 1;
    int k = 0;
    while (k + 1 < n_units && as / unit >= step) {
        unit *= step;
        k++;
    }
    if (k == 0) {
        snprintf(t.s, sizeof t.s, "%" PRIu64 "%s%s", n, *units[0] ? " " : "", units[0]);
        return t;
    }
    uint64_t whole = n / unit, rest = n % unit, scale = unit;
    if (scale > UINT64_MAX / 200) { /* rest * 100 must fit */
        rest /= step;
        scale /= step;
    }
    uint64_t cents = (rest * 100 + scale / 2) / scale;
    if (cents == 100) {
        whole++;
        cents = 0;
    }
    if (whole == step && as == n && k + 1 < n_units) {
        whole = 1;
        k++;
    }
    snprintf(t.s, sizeof t.s, "%" PRIu64 ".%02" PRIu64 " %s", whole, cents, units[k]);
    return t;
}

plim_text plim_fmt_bytes_as(uint64_t bytes, uint64_t as, bool si)
{
    static const char *const iec[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    static const char *const dec[] = {"B", "KB", "MB", "GB", "TB", "PB", "EB"};
    return si ? fmt_scaled(bytes, as, 1000, dec, PLIM_COUNT(dec))
              : fmt_scaled(bytes, as, 1024, iec, PLIM_COUNT(iec));
}

plim_text plim_fmt_bytes(uint64_t bytes, bool si)
{
    return plim_fmt_bytes_as(bytes, bytes, si);
}

plim_text plim_fmt_metric(uint64_t n)
{
    static const char *const units[] = {"", "K", "M", "G", "T", "P", "E"};
    return fmt_scaled(n, n, 1000, units, PLIM_COUNT(units));
}

plim_text plim_fmt_count(uint64_t n)
{
    plim_text t;
    char digits[24];
    int len = snprintf(digits, sizeof digits, "%" PRIu64, n), at = 0;
    for (int i = 0; i < len; i++) {
        if (i > 0 && (len - i) % 3 == 0)
            t.s[at++] = ',';
        t.s[at++] = digits[i];
    }
    plim_assert((size_t)at < sizeof t.s);
    t.s[at] = '\0';
    return t;
}

plim_text plim_fmt_percent(uint64_t part, uint64_t whole)
{
    plim_text t = {"-"};
    double tenths = whole ? (double)part / (double)whole * 1000 + 0.5 : 1e18;
    if (tenths < 1e15) {
        uint64_t n = (uint64_t)tenths;
        snprintf(t.s, sizeof t.s, "%" PRIu64 ".%" PRIu64 " %%", n / 10, n % 10);
    }
    return t;
}

plim_text plim_fmt_fixed(double v, int decimals)
{
    plim_assert(decimals >= 0);
    plim_text t = {"-"};
    if (!(v >= 0 && v <= 1e12))
        return t;
    uint64_t scale = 1;
    for (int i = 0; i < PLIM_MIN(decimals, 6); i++)
        scale *= 10;
    uint64_t n = (uint64_t)(v * (double)scale + 0.5);
    int len = snprintf(t.s, sizeof t.s, "%" PRIu64, n / scale);
    if (n % scale == 0)
        return t;
    t.s[len++] = '.';
    for (uint64_t rest = n % scale; rest; rest %= scale) {
        scale /= 10;
        t.s[len++] = (char)('0' + rest / scale);
    }
    plim_assert((size_t)len < sizeof t.s);
    t.s[len] = '\0';
    return t;
}

plim_text plim_fmt_digits(double v)
{
    static const double below[] = {9.95, 0.995, 0.0995, 0.00995, 0.000995, 0.0000995};
    int decimals = 0;
    while (decimals < (int)PLIM_COUNT(below) && v > 0 && v < below[decimals])
        decimals++;
    return plim_fmt_fixed(v, decimals);
}

char *plim_write_digits(char *end, uint64_t n)
{
    do
        *--end = (char)('0' + n % 10);
    while (n /= 10);
    return end;
}

/* ---- text that grows ----------------------------------------------------- */

void plim_buf_init(plim_buf *b, plim_arena *a) { *b = (plim_buf){.arena = a}; }

void plim_buf_put(plim_buf *b, plim_put put, void *ud)
{
    b->put = put;
    b->ud = ud;
}

/* Puts out a piece that is large enough. */
static void buf_flow(plim_buf *b)
{
    plim_assert(b->n < b->cap);
    enum { PIECE = 64 << 10 };
    if (!b->put || b->n < PIECE)
        return;
    b->unput |= b->put(b->ud, b->p, (size_t)b->n) != 0;
    b->n = 0;
}

/* Makes room for `more` bytes and the NUL. */
static bool buf_room(plim_buf *b, uint64_t more)
{
    uint64_t need, cap;
    if (b->unput)
        return false;
    if (b->bad || !plim_add(b->n, more, &need) || !plim_add(need, 1, &need)) {
        b->bad = true;
        return false;
    }
    if (need <= b->cap)
        return true;
    cap = PLIM_MAX(need, b->cap <= UINT64_MAX / 2 ? b->cap * 2 : need);
    cap = PLIM_MAX(cap, 256);
    char *p = plim_arena_new(b->arena, cap, 1);
    if (!p) {
        b->bad = true;
        return false;
    }
    if (b->n)
        memcpy(p, b->p, (size_t)b->n);
    b->p = p;
    b->cap = cap;
    return true;
}

void plim_buf_add(plim_buf *b, plim_str s)
{
    if (!s.n || !buf_room(b, s.n))
        return;
    memcpy(b->p + b->n, s.p, s.n);
    b->n += s.n;
    b->p[b->n] = '\0';
    buf_flow(b);
}

void plim_buf_puts(plim_buf *b, const char *z) { plim_buf_add(b, plim_str_of(z)); }

void plim_buf_repeat(plim_buf *b, const char *z, uint64_t times)
{
    for (uint64_t i = 0; i < times && !b->bad; i++)
        plim_buf_puts(b, z);
}

void plim_buf_printf(plim_buf *b, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    va_list again;
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    if (n < 0)
        b->bad = true;
    else if (buf_room(b, (uint64_t)n)) {
        vsnprintf(b->p + b->n, (size_t)n + 1, fmt, again);
        b->n += (uint64_t)n;
        buf_flow(b);
    }
    va_end(again);
    va_end(ap);
}

plim_str plim_buf_str(const plim_buf *b)
{
    return b->n ? (plim_str){b->p, (size_t)b->n} : (plim_str){"", 0};
}

/* ---- width of text ------------------------------------------------------- */

/* Only the relevant blocks, not all of Unicode's table.
 * src: Unicode 15 EastAsianWidth.txt (W and F), combining blocks. */
static const struct {
    uint32_t first, last, width;
} widths[] = {
    {0x0300, 0x036f, 0},   {0x1100, 0x115f, 2},   {0x1ab0, 0x1aff, 0},   {0x1dc0, 0x1dff, 0},
    {0x200b, 0x200f, 0},   {0x20d0, 0x20ff, 0},   {0x2e80, 0x303e, 2},   {0x3041, 0xa4cf, 2},
    {0xac00, 0xd7a3, 2},   {0xf900, 0xfaff, 2},   {0xfe00, 0xfe0f, 0},   {0xfe30, 0xfe6f, 2},
    {0xff00, 0xff60, 2},   {0xffe0, 0xffe6, 2},   {0x1f300, 0x1f64f, 2}, {0x1f680, 0x1f6ff, 2},
    {0x1f900, 0x1f9ff, 2}, {0x20000, 0x3fffd, 2},
};

uint32_t plim_text_width(plim_str s)
{
    uint32_t columns = 0;
    for (size_t i = 0, len; i < s.n; i += len) {
        uint32_t c = plim_utf8_decode((plim_str){s.p + i, s.n - i}, &len), width = 1;
        for (size_t k = 0; c >= 0x300 && k < PLIM_COUNT(widths); k++)
            if (c >= widths[k].first && c <= widths[k].last)
                width = widths[k].width;
        columns += width;
    }
    return columns;
}

/* ---- names that are nearly right -------------------------------------------- */

const void *plim_row_find(const char *what, const char *name, const void *rows, size_t n,
                          size_t size, plim_err *err)
{
    plim_assert(n > 0 && size >= sizeof(const char *));
    char list[256] = "";
    for (size_t i = 0; i < n; i++) {
        const void *row = (const char *)rows + i * size;
        const char *of = *(const char *const *)row;
        if (!strcmp(name, of))
            return row;
        size_t used = strlen(list);
        snprintf(list + used, sizeof list - used, "%s%s", i ? ", " : "", of);
    }
    plim_fail(err, PLIM_EUSAGE, 0, "unknown %s '%s': known are %s", what, name, list);
    return NULL;
}

uint32_t plim_edit_distance(plim_str a, plim_str b)
{
    /* [j]: distance from the first i, i - 1, i - 2 letters of a to j letters of b */
    uint32_t rows[3][PLIM_NAME_MAX + 1], *now = rows[0], *last = rows[1], *before = rows[2];
    if (a.n > PLIM_NAME_MAX || b.n > PLIM_NAME_MAX)
        return PLIM_NAME_MAX;
    for (uint32_t j = 0; j <= b.n; j++)
        now[j] = j;
    for (uint32_t i = 1; i <= a.n; i++) {
        uint32_t *reused = before;
        before = last;
        last = now;
        now = reused;
        now[0] = i;
        for (uint32_t j = 1; j <= b.n; j++) {
            uint32_t change = last[j - 1] + (a.p[i - 1] != b.p[j - 1]);
            now[j] = PLIM_MIN(change, PLIM_MIN(last[j], now[j - 1]) + 1);
            if (i > 1 && j > 1 && a.p[i - 1] == b.p[j - 2] && a.p[i - 2] == b.p[j - 1])
                now[j] = PLIM_MIN(now[j], before[j - 2] + 1);
        }
    }
    return now[b.n];
}

/* ---- from text ----------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static plim_str trim_blanks(plim_str s)
{
    while (s.n && (s.p[0] == ' ' || s.p[0] == '\t'))
        s = (plim_str){s.p + 1, s.n - 1};
    while (s.n && (s.p[s.n - 1] == ' ' || s.p[s.n - 1] == '\t'))
        s.n--;
    return s;
}

/* "", "b", "k", "kb", "kib" and so on; 0: no such unit. */
static uint64_t parse_unit(plim_str s)
{
    static const char prefixes[] = "kmgtpe";
    char z[4] = {0};
    if (s.n >= sizeof z)
        return 0;
    for (size_t i = 0; i < s.n; i++)
        z[i] = plim_lower(s.p[i]);
    if (s.n == 0 || strcmp(z, "b") == 0)
        return 1;
    const char *prefix = strchr(prefixes, z[0]);
    bool si = strcmp(z + 1, "b") == 0;
    if (!prefix || (z[1] && !si && strcmp(z + 1, "ib") != 0))
        return 0;
    uint64_t unit = 1;
    for (ptrdiff_t k = prefix - prefixes; k >= 0; k--)
        unit *= si ? 1000 : 1024;
    return unit;
}

bool plim_parse_percent(plim_str s, double *out)
{
    return plim_str_ends(s, PLIM_STR("%")) &&
           plim_parse_double((plim_str){s.p, s.n - 1}, out) && *out >= 0 && isfinite(*out);
}

plim_status plim_parse_size(plim_str s, uint64_t *bytes, plim_err *err)
{
    plim_str t = trim_blanks(s);
    size_t i = 0, point, end;
    uint64_t whole = 0, part = 0;
    bool fits = true;
    for (; i < t.n && is_digit(t.p[i]); i++)
        fits = fits && plim_mul(whole, 10, &whole) &&
               plim_add(whole, (uint64_t)(t.p[i] - '0'), &whole);
    point = end = i;
    if (i < t.n && t.p[i] == '.')
        for (end = i + 1; end < t.n && is_digit(t.p[end]);)
            end++;
    uint64_t unit = parse_unit(trim_blanks((plim_str){t.p + end, t.n - end}));
    bool digits = point > 0 || end > point + 1;
    if (!digits || !unit)
        return plim_fail(err, PLIM_EUSAGE, 0,
                         "'" PLIM_STR_FMT
                         "' is not a size: write a number and B, KiB, MiB, GiB, "
                         "KB, MB or GB",
                         (int)PLIM_MIN(s.n, 60), s.p);
    /* Horner's scheme from the last decimal: below `unit` at every step, so it fits. */
    for (size_t k = end; k > point + 1; k--)
        part = (part + (uint64_t)(t.p[k - 1] - '0') * unit) / 10;
    if (!fits || !plim_mul(whole, unit, &whole) || !plim_add(whole, part, &whole))
        return plim_fail(err, PLIM_ERANGE, 0,
                         "size '" PLIM_STR_FMT "' is over the limit of %" PRIu64 " bytes",
                         (int)PLIM_MIN(s.n, 60), s.p, UINT64_MAX);
    *bytes = whole;
    return PLIM_OK;
}

/* Length of a separator of dimensions at p: x X * , or the sign U+00D7. */
static size_t shape_separator(plim_str s)
{
    if (s.n && (s.p[0] == 'x' || s.p[0] == 'X' || s.p[0] == '*' || s.p[0] == ','))
        return 1;
    return s.n > 1 && memcmp(s.p, "\xc3\x97", 2) == 0 ? 2 : 0;
}

static plim_str skip_bytes(plim_str s, size_t n)
{
    return trim_blanks((plim_str){s.p + n, s.n - n});
}

plim_status plim_parse_shape(plim_str s, int64_t *dim, int32_t max, int32_t *rank,
                             plim_err *err)
{
    plim_assert(max > 0);
    plim_str t = trim_blanks(s);
    int32_t n = 0;
    int shown = (int)PLIM_MIN(s.n, 60);
    bool tuple = t.n > 1 && ((t.p[0] == '(' && t.p[t.n - 1] == ')') ||
                             (t.p[0] == '[' && t.p[t.n - 1] == ']'));
    if (tuple)
        t = trim_blanks((plim_str){t.p + 1, t.n - 2});
    bool more = !tuple || t.n > 0; /* "" is not a shape, "()" is a scalar */
    while (more) {
        uint64_t v = 0;
        size_t i = 0;
        bool fits = true;
        for (; i < t.n && is_digit(t.p[i]); i++)
            fits = fits && plim_mul(v, 10, &v) && plim_add(v, (uint64_t)(t.p[i] - '0'), &v);
        if (i == 0)
            return plim_fail(err, PLIM_EUSAGE, (uint64_t)(t.p - s.p),
                             "'%.*s' is not a shape: write 1,3,224,224 or 500x500x3", shown,
                             s.p);
        if (!fits || v > INT64_MAX)
            return plim_fail(err, PLIM_ERANGE, (uint64_t)(t.p - s.p),
                             "a dimension of '%.*s' is over the limit of %" PRId64, shown, s.p,
                             INT64_MAX);
        if (n == max)
            return plim_fail(err, PLIM_ERANGE, (uint64_t)(t.p - s.p),
                             "'%.*s' has more dimensions than the limit of %d", shown, s.p,
                             (int)max);
        dim[n++] = (int64_t)v;
        t = skip_bytes(t, i);
        size_t gap = shape_separator(t);
        if (!gap && t.n)
            return plim_fail(err, PLIM_EUSAGE, (uint64_t)(t.p - s.p),
                             "'%.*s' is not a shape: write 1,3,224,224 or 500x500x3", shown,
                             s.p);
        t = skip_bytes(t, gap);
        more = gap && !(tuple && t.n == 0); /* "(3,)" as Python writes it */
    }
    plim_assert(n <= max);
    *rank = n;
    return PLIM_OK;
}

bool plim_parse_dim(plim_str s, int64_t *out)
{
    int64_t dim = 0;
    int32_t rank = 0;
    if (plim_parse_shape(s, &dim, 1, &rank, NULL) || rank != 1)
        return false;
    *out = dim;
    return true;
}

int plim_parse_version(const char *text, int part[3])
{
    int k = 0, digits = 0;
    memset(part, 0, 3 * sizeof *part);
    for (; *text && k < 3; text++) {
        if (is_digit(*text) && digits < 2) {
            part[k] = 10 * part[k] + (*text - '0');
            digits++;
        } else if (*text == '.' && digits) {
            k++;
            digits = 0;
        } else {
            return 0;
        }
    }
    return k == 3 ? 4 : digits ? k + 1 : 0;
}
