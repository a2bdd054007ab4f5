/* double.c -- doubles from and to text, rounded as IEEE 754 requires and independent of the
 * locale: strtod and printf take their decimal point from LC_NUMERIC, which a program that
 * links the library may have set.  See fmt.h. */
#include <math.h>
#include <stdio.h>

#include "base/fmt.h"

/* ---- decimals with as many digits as it takes ------------------------------------ */

/* 0.d0 d1 d2 ... * 10^point, without trailing zeros; n 0: zero.  The midpoint of two doubles
 * has at most 767 digits; of digits that do not fit it matters only whether one is not 0. The
 * value is multiplied and divided by powers of two until the integer before the point is the
 * significand.
 * src: N. Tao, "ParseNumberF64 by Simple Decimal Conversion", 2020 */
enum { DECIMAL_DIGITS = 800, SHIFT_MAX = 60, SHIFT_DIGITS = 19 };

typedef struct decimal {
    uint32_t n;
    int32_t point;
    bool more; /* nonzero digits follow */
    uint8_t digit[DECIMAL_DIGITS + SHIFT_DIGITS];
} decimal;

static void decimal_trim(decimal *d)
{
    plim_assert(d->n <= DECIMAL_DIGITS + SHIFT_DIGITS);
    for (; d->n > DECIMAL_DIGITS; d->n--)
        d->more = d->more || d->digit[d->n - 1];
    while (d->n && !d->digit[d->n - 1])
        d->n--;
}

/* d * 2^bits, bits up to SHIFT_MAX: starts from the last digit. */
static void decimal_shift_left(decimal *d, int bits)
{
    plim_assert(bits >= 0 && bits <= SHIFT_MAX);
    uint64_t carry = 0;
    uint32_t to = d->n + SHIFT_DIGITS;
    for (uint32_t from = d->n; to; to--) {
        if (from)
            carry += (uint64_t)d->digit[--from] << bits;
        d->digit[to - 1] = (uint8_t)(carry % 10);
        carry /= 10;
    }
    uint32_t zeros = 0, n = d->n + SHIFT_DIGITS;
    while (zeros < n && !d->digit[zeros])
        zeros++;
    memmove(d->digit, d->digit + zeros, n - zeros);
    d->n = n - zeros;
    d->point += SHIFT_DIGITS - (int32_t)zeros;
    decimal_trim(d);
}

/* d / 2^bits, bits up to SHIFT_MAX: long division. */
static void decimal_shift_right(decimal *d, int bits)
{
    plim_assert(bits >= 0 && bits <= SHIFT_MAX);
    uint64_t rest = 0, mask = (1ull << bits) - 1;
    uint32_t from = 0, to = 0;
    for (; from < d->n || rest; from++) {
        rest = rest * 10 + (from < d->n ? d->digit[from] : 0);
        uint8_t digit = (uint8_t)(rest >> bits);
        rest &= mask;
        if (!to && !digit)
            d->point--;
        else if (to < DECIMAL_DIGITS)
            d->digit[to++] = digit;
        else
            d->more = d->more || digit;
    }
    d->n = to;
    decimal_trim(d);
}

/* The integer part, rounded to nearest, ties to even. */
static uint64_t decimal_round(const decimal *d)
{
    plim_assert(d->point <= SHIFT_DIGITS);
    uint64_t v = 0;
    for (uint32_t i = 0; (int32_t)i < d->point; i++)
        v = v * 10 + (i < d->n ? d->digit[i] : 0);
    uint32_t next = (uint32_t)d->point;
    if (next >= d->n || d->digit[next] < 5)
        return v;
    bool tie = d->digit[next] == 5 && next + 1 == d->n && !d->more;
    return v + (tie ? v & 1 : 1);
}

/* The largest number of bits that fit into 10^digits. */
static int bits_of(int32_t digits)
{
    return digits > 18 ? SHIFT_MAX : PLIM_MAX(digits * 3321 / 1000, 1);
}

static double decimal_double(decimal *d)
{
    enum { PRECISION = 53, LEAST = -1021, MOST = 1024 }; /* exponents of 0.5 <= x < 1 */
    int exponent = 0, bits;
    if (!d->n || d->point < -330)
        return 0;
    if (d->point > 310)
        return (double)INFINITY;
    for (; d->point > 0; exponent += bits)
        decimal_shift_right(d, bits = bits_of(d->point));
    for (; d->point < 0 || d->digit[0] < 5; exponent -= bits)
        decimal_shift_left(d, bits = bits_of(-d->point));
    bits = PRECISION - PLIM_MAX(LEAST - exponent, 0); /* fewer if it is subnormal */
    if (exponent > MOST || bits < 0)
        return exponent > MOST ? (double)INFINITY : 0;
    decimal_shift_left(d, bits);
    return ldexp((double)decimal_round(d), exponent - bits);
}

/* ---- from text --------------------------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }

static bool same_word(plim_str s, const char *lower)
{
    size_t i = 0;
    for (; i < s.n && lower[i]; i++)
        if ((s.p[i] | 0x20) != lower[i])
            return false;
    return i == s.n && !lower[i];
}

/* The digits of "12.5" as a decimal, without leading zeros. */
static void decimal_read(decimal *d, plim_str digits, int32_t exponent)
{
    bool point = false;
    d->n = 0;
    d->point = exponent;
    d->more = false;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] == '.') {
            point = true;
            continue;
        }
        uint8_t v = (uint8_t)(digits.p[i] - '0');
        bool kept = d->n || v;
        if (kept && d->n < DECIMAL_DIGITS)
            d->digit[d->n++] = v;
        else
            d->more = d->more || v;
        d->point = PLIM_MIN(d->point + (kept && !point) - (!kept && point), 1 << 30);
        d->point = PLIM_MAX(d->point, -(1 << 30));
    }
    decimal_trim(d);
}

/* m * 10^e if both are exact doubles, so that only one rounding occurs.
 * src: W. D. Clinger, "How to Read Floating Point Numbers Accurately", PLDI 1990 */
static bool scale_exact(uint64_t m, int64_t e, double *out)
{
    static const double ten[] = {1e0,  1e1,  1e2,  1e3,  1e4,  1e5,  1e6,  1e7,
                                 1e8,  1e9,  1e10, 1e11, 1e12, 1e13, 1e14, 1e15,
                                 1e16, 1e17, 1e18, 1e19, 1e20, 1e21, 1e22};
    if (m >> 53 || e < -22 || e > 22)
        return false;
    *out = e < 0 ? (double)m / ten[-e] : (double)m * ten[e];
    return true;
}

/* The value of "e+10"; "" is 0; false: not an exponent. */
static bool read_exponent(plim_str s, int32_t *out)
{
    int32_t v = 0;
    size_t i = s.n > 1 && (s.p[1] == '+' || s.p[1] == '-') ? 2 : 1;
    if (s.n && ((s.p[0] | 0x20) != 'e' || i == s.n))
        return false;
    for (; i < s.n; i++) {
        if (!is_digit(s.p[i]))
            return false;
        v = PLIM_MIN(v * 10 + (s.p[i] - '0'), 1 << 24);
    }
    *out = s.n > 1 && s.p[1] == '-' ? -v : v;
    return true;
}

static bool read_magnitude(plim_str s, double *out)
{
    uint64_t m = 0;
    size_t i = 0, point = SIZE_MAX;
    int32_t exponent;
    int64_t after = 0;
    bool fits = true;
    for (; i < s.n && (is_digit(s.p[i]) || (s.p[i] == '.' && point == SIZE_MAX)); i++) {
        if (s.p[i] == '.') {
            point = i;
            continue;
        }
        fits = fits && m < UINT64_MAX / 10 - 1;
        m = fits ? m * 10 + (uint64_t)(s.p[i] - '0') : m;
        after -= fits && point != SIZE_MAX;
    }
    if (i == (point != SIZE_MAX) || !read_exponent((plim_str){s.p + i, s.n - i}, &exponent))
        return false;
    if (!fits || !scale_exact(m, exponent + after, out)) {
        decimal d;
        decimal_read(&d, (plim_str){s.p, i}, exponent);
        *out = decimal_double(&d);
    }
    return true;
}

bool plim_parse_double(plim_str s, double *out)
{
    bool minus = s.n && s.p[0] == '-';
    double v;
    if (minus || (s.n && s.p[0] == '+'))
        s = (plim_str){s.p + 1, s.n - 1};
    if (same_word(s, "inf") || same_word(s, "infinity"))
        v = (double)INFINITY;
    else if (same_word(s, "nan"))
        v = (double)NAN;
    else if (!read_magnitude(s, &v))
        return false;
    *out = minus ? -v : v;
    return true;
}

/* ---- as text ------------------------------------------------------------------------ */

plim_text plim_fmt_double(double v)
{
    plim_text t;
    double back = 0;
    for (int digits = 15; digits <= 17; digits++) {
        size_t n = 0;
        char s[40];
        snprintf(s, sizeof s, "%.*g", digits, v);
        for (size_t i = 0; s[i]; i++) /* a locale's point may be several bytes */
            if (is_digit(s[i]) || strchr("+-einfa", s[i]))
                t.s[n++] = s[i];
            else if (n && t.s[n - 1] != '.')
                t.s[n++] = '.';
        plim_assert(n < sizeof t.s);
        t.s[n] = '\0';
        plim_parse_double((plim_str){t.s, n}, &back);
        if (!(back < v || back > v))
            break;
    }
    return t;
}
