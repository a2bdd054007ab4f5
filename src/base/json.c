/* json.c -- see json.h. */
#include "base/json.h"
#include "base/utf8.h"

#include <math.h>
#include <stdio.h>
#ifdef __SSE2__
#include <emmintrin.h>
#endif

/* ======================================================================== */
/* Reader                                                                    */
/* ======================================================================== */

void plim_json_init(plim_json *j, plim_str text, plim_err *err)
{
    plim_assert(text.p || !text.n);
    *j = (plim_json){.p = text.p, .n = text.n, .err = err};
}

void plim_json_fail(plim_json *j, plim_status code, const char *fmt, ...)
{
    if (j->bad)
        return;
    char what[160];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    j->bad =
        plim_fail(j->err, code, j->base + j->at, "%s at byte %" PRIu64, what, j->base + j->at);
}

PLIM_COLD static plim_str json_want(plim_json *j, const char *what)
{
    if (j->at >= j->n)
        plim_json_fail(j, PLIM_EFORMAT, "JSON ends early: expected %s", what);
    else
        plim_json_fail(j, PLIM_EFORMAT, "invalid JSON: expected %s", what);
    return (plim_str){NULL, 0};
}

/* The next byte that is not white space, or 0 at the end and after an error. */
static inline char json_next(plim_json *j)
{
    while (j->at < j->n) {
        char c = j->p[j->at];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t')
            return j->bad ? 0 : c;
        j->at++;
    }
    return 0;
}

plim_status plim_json_end(plim_json *j)
{
    json_next(j);
    if (!j->bad && j->at < j->n)
        json_want(j, "the end");
    return j->bad;
}

plim_json_kind plim_json_peek(plim_json *j)
{
    char c = json_next(j);
    switch (c) {
    case '{': return PLIM_JSON_OBJECT;
    case '[': return PLIM_JSON_ARRAY;
    case '"': return PLIM_JSON_STRING;
    case 't':
    case 'f': return PLIM_JSON_BOOL;
    case 'n': return PLIM_JSON_NULL;
    case 'N':
    case 'I': return j->lax ? PLIM_JSON_NUMBER : PLIM_JSON_BAD;
    default: return c == '-' || (c >= '0' && c <= '9') ? PLIM_JSON_NUMBER : PLIM_JSON_BAD;
    }
}

/* ---- objects and arrays --------------------------------------------------- */

static bool json_open(plim_json *j, char c, const char *what)
{
    if (json_next(j) != c) {
        json_want(j, what);
        return false;
    }
    if (j->depth >= PLIM_JSON_MAX_DEPTH) {
        plim_json_fail(j, PLIM_EFORMAT, "JSON is nested deeper than %d levels",
                       PLIM_JSON_MAX_DEPTH);
        return false;
    }
    j->at++;
    j->depth++;
    j->fresh = true;
    return true;
}

bool plim_json_object(plim_json *j) { return json_open(j, '{', "an object"); }
bool plim_json_array(plim_json *j) { return json_open(j, '[', "an array"); }

/* Moves to the next item: past the comma, or out of the object or array. */
static bool json_more(plim_json *j, char close)
{
    plim_assert(j->bad || j->depth > 0);
    char c = json_next(j);
    if (c == close) {
        j->at++;
        j->depth--;
        j->fresh = false;
        return false;
    }
    if (!j->fresh) {
        if (c != ',') {
            json_want(j, close == '}' ? "a ',' or '}'" : "a ',' or ']'");
            return false;
        }
        j->at++;
    }
    j->fresh = false;
    return !j->bad;
}

bool plim_json_item(plim_json *j) { return json_more(j, ']'); }

bool plim_json_member(plim_json *j, plim_str *key)
{
    if (!json_more(j, '}'))
        return false;
    *key = plim_json_str(j);
    if (!j->bad && json_next(j) != ':')
        json_want(j, "a ':'");
    if (j->bad)
        return false;
    j->at++;
    return true;
}

/* ---- strings -------------------------------------------------------------- */

static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    c = (char)(c | 0x20);
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* Four hex digits, or -1. */
static int32_t read_hex4(const char *p)
{
    int32_t v = 0;
    for (int i = 0; i < 4; i++) {
        int d = hex_digit(p[i]);
        if (d < 0)
            return -1;
        v = v * 16 + d;
    }
    return v;
}

/* Length of the character or escape at s, which has n > 0; 0: not allowed in a string. */
static inline uint64_t letter_len(const char *s, uint64_t n)
{
    if (*s != '\\')
        return (uint8_t)*s >= 0x20;
    switch (n > 1 ? s[1] : 0) {
    case '"':
    case '\\':
    case '/':
    case 'b':
    case 'f':
    case 'n':
    case 'r':
    case 't': return 2;
    case 'u': return n >= 6 && read_hex4(s + 2) >= 0 ? 6 : 0;
    default: return 0;
    }
}

/* Moves over plain characters in whole steps: stops less than a step before the end, or at the
 * first that is '"', '\\' or below 0x20 (or, harmlessly, above 0x7f; or, with another byte
 * order, at some character before it). */
#ifdef __SSE2__
static inline const char *json_plain_run(const char *s, const char *end)
{
    const __m128i quote = _mm_set1_epi8('"'), slash = _mm_set1_epi8('\\');
    const __m128i control = _mm_set1_epi8(0x1f);
    for (; end - s >= 16; s += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)s);
        __m128i low = _mm_cmpeq_epi8(_mm_min_epu8(v, control), v);
        __m128i marks = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, slash));
        int bits = _mm_movemask_epi8(_mm_or_si128(low, marks));
        if (bits)
            return s + __builtin_ctz((unsigned)bits);
    }
    return s;
}
#else
/* src: "determine if a word has a byte less than n", Bit Twiddling Hacks: the lowest of the
 * bytes that it marks is correct */
static inline const char *json_plain_run(const char *s, const char *end)
{
    const uint64_t ones = ~0ull / 255, high = ones * 128;
    uint64_t w;
    for (; end - s >= 8; s += 8) {
        memcpy(&w, s, sizeof w);
        uint64_t quote = w ^ (ones * '"'), slash = w ^ (ones * '\\');
        uint64_t marks = ((w - ones * 0x20) | (quote - ones) | (slash - ones) | w) & high;
#if defined(__GNUC__) && __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        if (marks)
            return s + __builtin_ctzll(marks) / 8;
#else
        if (marks)
            return s;
#endif
    }
    return s;
}
#endif

plim_str plim_json_str(plim_json *j)
{
    if (json_next(j) != '"')
        return json_want(j, "a string");
    const char *start = j->p + j->at + 1, *end = j->p + j->n, *s = start;
    for (uint64_t len;; s += len) {
        s = json_plain_run(s, end);
        if (s < end && *s == '"') {
            j->at = (uint64_t)(s - j->p) + 1;
            return (plim_str){start, (size_t)(s - start)};
        }
        len = s < end ? letter_len(s, (uint64_t)(end - s)) : 0;
        if (!len)
            break;
    }
    j->at = (uint64_t)(s - j->p);
    return json_want(j, s < end ? "a valid escape" : "the end of a string");
}

static char *utf8_put(char *o, uint32_t c)
{
    plim_assert(c <= 0x10ffff);
    if (c < 0x80) {
        *o++ = (char)c;
        return o;
    }
    if (c < 0x800) {
        *o++ = (char)(0xc0 | (c >> 6));
    } else {
        if (c < 0x10000) {
            *o++ = (char)(0xe0 | (c >> 12));
        } else {
            *o++ = (char)(0xf0 | (c >> 18));
            *o++ = (char)(0x80 | ((c >> 12) & 63));
        }
        *o++ = (char)(0x80 | ((c >> 6) & 63));
    }
    *o++ = (char)(0x80 | (c & 63));
    return o;
}

/* Decodes \uXXXX at s[0] == 'u', and the second half of a surrogate pair; *len is set to the
 * bytes consumed. */
static uint32_t unescape_u(const char *s, size_t n, size_t *len)
{
    plim_assert(n >= 5 && s[0] == 'u');
    uint32_t hi = (uint32_t)read_hex4(s + 1);
    *len = 5;
    if (hi < 0xd800 || hi > 0xdfff)
        return hi;
    if (hi < 0xdc00 && n >= 11 && s[5] == '\\' && s[6] == 'u') {
        uint32_t lo = (uint32_t)read_hex4(s + 7);
        if (lo >= 0xdc00 && lo <= 0xdfff) {
            *len = 11;
            return 0x10000 + ((hi - 0xd800) << 10) + (lo - 0xdc00);
        }
    }
    return 0xfffd;
}

plim_str plim_json_unescape(plim_arena *a, plim_str raw)
{
    if (!raw.n || !memchr(raw.p, '\\', raw.n))
        return plim_arena_str(a, raw);
    /* never longer: \uXXXX is 6 bytes for at most 3, a pair 12 for 4 */
    char *out = PLIM_NEW_N(a, char, (uint64_t)raw.n + 1), *o = out;
    if (!out)
        return (plim_str){NULL, 0};
    for (size_t i = 0; i < raw.n; i++) {
        if (raw.p[i] != '\\' || i + 1 >= raw.n) {
            *o++ = raw.p[i];
            continue;
        }
        static const char from[] = "bfnrt", to[] = "\b\f\n\r\t";
        const char *e = raw.p + ++i, *k = strchr(from, *e);
        size_t len = 1;
        if (*e == 'u' && letter_len(e - 1, raw.n - i + 1))
            o = utf8_put(o, unescape_u(e, raw.n - i, &len));
        else
            *o++ = k && *k ? to[k - from] : *e;
        i += len - 1;
    }
    plim_assert((size_t)(o - out) <= raw.n);
    return (plim_str){out, (size_t)(o - out)};
}

/* ---- numbers and words ------------------------------------------------------ */

static bool json_word(plim_json *j, const char *word)
{
    size_t n = strlen(word);
    if (j->n - j->at < n || memcmp(j->p + j->at, word, n) != 0)
        return false;
    j->at += n;
    return true;
}

static uint64_t json_digits(plim_json *j)
{
    uint64_t from = j->at;
    while (j->at < j->n && j->p[j->at] >= '0' && j->p[j->at] <= '9')
        j->at++;
    return j->at - from;
}

typedef struct json_number {
    plim_str text;
    bool integer; /* has neither point nor exponent */
} json_number;

/* Moves over a number and checks it against the grammar. */
static bool json_scan_number(plim_json *j, json_number *out)
{
    char c = json_next(j);
    uint64_t start = j->at;
    if (c != '-' && !(c >= '0' && c <= '9')) {
        if (!(j->lax && c && (json_word(j, "NaN") || json_word(j, "Infinity")))) {
            json_want(j, "a number");
            return false;
        }
        *out = (json_number){{j->p + start, (size_t)(j->at - start)}, false};
        return true;
    }
    out->integer = true;
    if (c == '-')
        j->at++;
    if (j->lax && json_word(j, "Infinity")) {
        *out = (json_number){{j->p + start, (size_t)(j->at - start)}, false};
        return true;
    }
    bool zero = j->at < j->n && j->p[j->at] == '0';
    uint64_t digits = json_digits(j);
    if (!digits || (zero && digits > 1))
        json_want(j, zero ? "a number without leading zeros" : "a digit");
    if (j->at < j->n && j->p[j->at] == '.') {
        out->integer = false;
        j->at++;
        if (!json_digits(j))
            json_want(j, "a digit");
    }
    if (j->at < j->n && (j->p[j->at] == 'e' || j->p[j->at] == 'E')) {
        out->integer = false;
        j->at++;
        if (j->at < j->n && (j->p[j->at] == '+' || j->p[j->at] == '-'))
            j->at++;
        if (!json_digits(j))
            json_want(j, "a digit");
    }
    out->text = (plim_str){j->p + start, (size_t)(j->at - start)};
    return !j->bad;
}

/* Sign and magnitude of an integer; false: not an integer, or beyond 64 bits. */
static bool number_int(json_number n, bool *minus, uint64_t *v)
{
    plim_assert(n.text.n > 0);
    *minus = n.text.p[0] == '-';
    *v = 0;
    if (!n.integer) {
        double d = 0;
        plim_parse_double(n.text, &d);
        d = fabs(d);
        if (!(d <= 9007199254740992.0) || floor(d) < d) /* 2^53 */
            return false;
        *v = (uint64_t)d;
        return true;
    }
    for (size_t i = *minus; i < n.text.n; i++)
        if (!plim_mul(*v, 10, v) || !plim_add(*v, (uint64_t)(n.text.p[i] - '0'), v))
            return false;
    return true;
}

int64_t plim_json_i64(plim_json *j)
{
    json_number n;
    bool minus;
    uint64_t v;
    if (!json_scan_number(j, &n))
        return 0;
    if (!number_int(n, &minus, &v) || v > (uint64_t)INT64_MAX + minus) {
        plim_json_fail(j, PLIM_ERANGE, "'%.*s' is not a 64-bit integer",
                       (int)PLIM_MIN(n.text.n, 40), n.text.p);
        return 0;
    }
    return minus ? (int64_t)(0 - v) : (int64_t)v;
}

uint64_t plim_json_u64(plim_json *j)
{
    json_number n;
    bool minus;
    uint64_t v;
    if (!json_scan_number(j, &n))
        return 0;
    if (!number_int(n, &minus, &v) || (minus && v)) {
        plim_json_fail(j, PLIM_ERANGE, "'%.*s' is not an unsigned 64-bit integer",
                       (int)PLIM_MIN(n.text.n, 40), n.text.p);
        return 0;
    }
    return v;
}

double plim_json_f64(plim_json *j)
{
    json_number n;
    double v = 0;
    if (json_scan_number(j, &n))
        plim_parse_double(n.text, &v);
    return v;
}

bool plim_json_bool(plim_json *j)
{
    char c = json_next(j);
    if (c == 't' && json_word(j, "true"))
        return true;
    if (!(c == 'f' && json_word(j, "false")))
        json_want(j, "true or false");
    return false;
}

void plim_json_null(plim_json *j)
{
    if (!(json_next(j) == 'n' && json_word(j, "null")))
        json_want(j, "null");
}

/* ---- any value -------------------------------------------------------------- */

static void json_skip_scalar(plim_json *j)
{
    json_number n;
    switch (plim_json_peek(j)) {
    case PLIM_JSON_NULL: plim_json_null(j); break;
    case PLIM_JSON_BOOL: plim_json_bool(j); break;
    case PLIM_JSON_NUMBER: json_scan_number(j, &n); break;
    default: json_want(j, "a value"); break;
    }
}

static void json_skip_slowly(plim_json *j)
{
    uint64_t arrays[PLIM_JSON_MAX_DEPTH / 64 + 1] = {0}; /* bit d: level d is an array */
    uint32_t base = j->depth;
    plim_str key;
    do {
        char c = json_next(j);
        if (c == '"') {
            plim_json_str(j);
        } else if (c == '{') {
            plim_json_object(j);
            arrays[j->depth / 64] &= ~(1ull << j->depth % 64);
        } else if (c == '[') {
            plim_json_array(j);
            arrays[j->depth / 64] |= 1ull << j->depth % 64;
        } else {
            json_skip_scalar(j);
        }
        while (!j->bad && j->depth > base &&
               !(arrays[j->depth / 64] >> j->depth % 64 & 1 ? plim_json_item(j)
                                                            : plim_json_member(j, &key)))
            ;
    } while (!j->bad && j->depth > base);
}

/* ---- values that are skipped, fast ----
 *
 * Most of a large file is skipped.  These move over what is valid, with all they need in registers, and
 * return NULL where the reader above has to look: at an error, at the end of the text, at what is deep. */

static inline const char *pass_space(const char *s, const char *end)
{
    if (s<end && * s> ' ')
        return s;
#ifdef __SSE2__
    for (; end - s >= 16; s += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(const void *)s);
        __m128i white = _mm_or_si128(_mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8(' ')),
                                                  _mm_cmpeq_epi8(v, _mm_set1_epi8('\n'))),
                                     _mm_or_si128(_mm_cmpeq_epi8(v, _mm_set1_epi8('\r')),
                                                  _mm_cmpeq_epi8(v, _mm_set1_epi8('\t'))));
        unsigned bits = (unsigned)_mm_movemask_epi8(white) ^ 0xffffu;
        if (bits)
            return s + __builtin_ctz(bits);
    }
#endif
    while (s < end && (*s == ' ' || *s == '\n' || *s == '\r' || *s == '\t'))
        s++;
    return s;
}

/* From the quote on. */
static inline const char *pass_string(const char *s, const char *end)
{
    for (s++;;) {
        s = json_plain_run(s, end);
        if (s == end)
            return NULL;
        if (*s == '"')
            return s + 1;
        uint64_t len = letter_len(s, (uint64_t)(end - s));
        if (!len)
            return NULL;
        s += len;
    }
}

static inline const char *pass_digits(const char *s, const char *end)
{
    const char *from = s;
    while (s < end && *s >= '0' && *s <= '9')
        s++;
    return s > from ? s : NULL;
}

static inline const char *pass_number(const char *s, const char *end)
{
    s += *s == '-';
    const char *from = s;
    if (!(s = pass_digits(s, end)) || (*from == '0' && s - from > 1))
        return NULL;
    if (s < end && *s == '.' && !(s = pass_digits(s + 1, end)))
        return NULL;
    if (s < end && (*s == 'e' || *s == 'E')) {
        s++;
        s += s < end && (*s == '+' || *s == '-');
        s = pass_digits(s, end);
    }
    return s && s < end ? s : NULL; /* at the end it may go on */
}

static inline const char *pass_word(const char *s, const char *end, const char *word, size_t n)
{
    return (size_t)(end - s) >= n && !memcmp(s, word, n) ? s + n : NULL;
}

static inline const char *pass_scalar(const char *s, const char *end)
{
    switch (*s) {
    case '"': return pass_string(s, end);
    case 't': return pass_word(s, end, "true", 4);
    case 'f': return pass_word(s, end, "false", 5);
    case 'n': return pass_word(s, end, "null", 4);
    default: return pass_number(s, end);
    }
}

/* To the value of the next member, whose name s points at. */
static inline const char *pass_name(const char *s, const char *end)
{
    if (s == end || *s != '"' || !(s = pass_string(s, end)))
        return NULL;
    s = pass_space(s, end);
    return s < end && *s == ':' ? pass_space(s + 1, end) : NULL;
}

static const char *pass_value(const char *s, const char *end, uint32_t most)
{
    uint64_t arrays = 0; /* bit d: level d is an array */
    for (uint32_t depth = 0;;) {
        if (s == end)
            return NULL;
        if (*s == '{' || *s == '[') { /* the levels below are those of the bits above */
            bool array = *s == '[';
            if (++depth > most)
                return NULL;
            arrays = arrays << 1 | array;
            s = pass_space(s + 1, end);
            if (s == end)
                return NULL;
            if (*s != (array ? ']' : '}')) {
                if (!array && !(s = pass_name(s, end)))
                    return NULL;
                continue;
            }
        } else if (!(s = pass_scalar(s, end))) {
            return NULL;
        } else if (!depth) {
            return s;
        } else {
            s = pass_space(s, end);
        }
        for (; s < end && *s == (arrays & 1 ? ']' : '}'); s = pass_space(s, end)) {
            s++;
            arrays >>= 1;
            if (!--depth)
                return s;
        }
        if (s == end || *s != ',')
            return NULL;
        s = pass_space(s + 1, end);
        if (!(arrays & 1) && !(s = pass_name(s, end)))
            return NULL;
    }
}

void plim_json_skip(plim_json *j)
{
    plim_assert(j->depth <= PLIM_JSON_MAX_DEPTH);
    json_next(j);
    uint32_t most = PLIM_MIN(PLIM_JSON_MAX_DEPTH - j->depth, 64);
    const char *past = j->bad ? NULL : pass_value(j->p + j->at, j->p + j->n, most);
    if (past)
        j->at = (uint64_t)(past - j->p);
    else
        json_skip_slowly(j);
}

bool plim_json_again(plim_json *j, plim_str raw)
{
    char c = json_next(j);
    if ((c != '{' && c != '[' && c != '"') || !raw.n || j->n - j->at < raw.n ||
        memcmp(j->p + j->at, raw.p, raw.n) != 0)
        return false;
    j->at += raw.n;
    return true;
}

plim_str plim_json_raw(plim_json *j)
{
    json_next(j);
    uint64_t from = j->at;
    plim_json_skip(j);
    return j->bad ? (plim_str){NULL, 0} : (plim_str){j->p + from, (size_t)(j->at - from)};
}

/* ======================================================================== */
/* Writer                                                                    */
/* ======================================================================== */

void plim_jw_init(plim_jw *w, plim_buf *out) { *w = (plim_jw){.out = out}; }

static void jw_comma(plim_jw *w)
{
    if (w->comma)
        plim_buf_puts(w->out, ",");
    w->comma = true;
}

/* In an object it comes after its key. */
static void jw_value(plim_jw *w)
{
    plim_assert(!w->comma || !w->depth || w->arrays >> (w->depth - 1) % 64 & 1);
    jw_comma(w);
}

static void jw_open(plim_jw *w, bool array)
{
    jw_value(w);
    plim_assert(w->depth < PLIM_JW_MAX_DEPTH);
    uint64_t bit = 1ull << w->depth % 64;
    w->arrays = array ? w->arrays | bit : w->arrays & ~bit;
    w->depth++;
    w->comma = false;
    plim_buf_puts(w->out, array ? "[" : "{");
}

void plim_jw_object(plim_jw *w) { jw_open(w, false); }
void plim_jw_array(plim_jw *w) { jw_open(w, true); }

void plim_jw_end(plim_jw *w)
{
    plim_assert(w->depth > 0);
    w->depth--;
    w->comma = true;
    plim_buf_puts(w->out, w->arrays >> w->depth % 64 & 1 ? "]" : "}");
}

size_t plim_json_utf8(plim_str s)
{
    size_t i = 0;
    for (size_t len; i < s.n; i += len)
        if (plim_utf8_decode((plim_str){s.p + i, s.n - i}, &len) == PLIM_UTF8_BAD)
            break;
    return i;
}

/* What a terminal or a viewer of logs would obey rather than show is escaped, although JSON allows most of
 * it. */
static void jw_escape(plim_buf *out, uint32_t c)
{
    if (c == PLIM_UTF8_BAD)
        plim_buf_puts(out, "\xef\xbf\xbd");
    else if (c == '\n')
        plim_buf_puts(out, "\\n");
    else if (c == '\t')
        plim_buf_puts(out, "\\t");
    else if (c == '"' || c == '\\')
        plim_buf_printf(out, "\\%c", (char)c);
    else if (c < 0x10000)
        plim_buf_printf(out, "\\u%04x", (unsigned)c);
    else
        plim_buf_printf(out, "\\u%04x\\u%04x", (unsigned)(0xd7c0 + (c >> 10)),
                        (unsigned)(0xdc00 | (c & 0x3ff)));
}

static void jw_quoted(plim_buf *out, plim_str s)
{
    size_t from = 0, i = 0;
    plim_buf_puts(out, "\"");
    for (size_t len; i < s.n; i += len) {
        unsigned char byte = (unsigned char)s.p[i];
        len = 1;
        if (byte >= ' ' && byte < 0x7f && byte != '"' && byte != '\\') /* nearly all */
            continue;
        uint32_t c = plim_utf8_decode((plim_str){s.p + i, s.n - i}, &len);
        if (plim_utf8_shows(c) && c != '"' && c != '\\')
            continue;
        plim_buf_add(out, (plim_str){s.p + from, i - from});
        jw_escape(out, c);
        from = i + len;
    }
    if (i > from) /* the pointer of an empty name may be NULL */
        plim_buf_add(out, (plim_str){s.p + from, i - from});
    plim_buf_puts(out, "\"");
}

void plim_jw_key(plim_jw *w, const char *name)
{
    plim_assert(w->depth && !(w->arrays >> (w->depth - 1) % 64 & 1));
    jw_comma(w);
    jw_quoted(w->out, plim_str_of(name));
    plim_buf_puts(w->out, ":");
    w->comma = false;
}

void plim_jw_str(plim_jw *w, plim_str s)
{
    jw_value(w);
    jw_quoted(w->out, s);
}

void plim_jw_cstr(plim_jw *w, const char *z)
{
    if (z)
        plim_jw_str(w, plim_str_of(z));
    else
        plim_jw_null(w);
}

/* Reports of a million rows are mostly numbers; printf takes a third of their time. */
static void jw_number(plim_jw *w, bool negative, uint64_t v)
{
    char digits[21], *end = digits + sizeof digits; /* "-9223372036854775808" */
    char *from = plim_write_digits(end, v);
    if (negative)
        *--from = '-';
    jw_value(w);
    plim_buf_add(w->out, (plim_str){from, (size_t)(end - from)});
}

void plim_jw_u64(plim_jw *w, uint64_t v) { jw_number(w, false, v); }

void plim_jw_i64(plim_jw *w, int64_t v)
{
    jw_number(w, v < 0, v < 0 ? -(uint64_t)v : (uint64_t)v);
}

void plim_jw_bool(plim_jw *w, bool v)
{
    jw_value(w);
    plim_buf_puts(w->out, v ? "true" : "false");
}

void plim_jw_null(plim_jw *w)
{
    jw_value(w);
    plim_buf_puts(w->out, "null");
}

void plim_jw_f64(plim_jw *w, double v)
{
    if (!isfinite(v)) {
        plim_jw_null(w);
        return;
    }
    jw_value(w);
    plim_buf_puts(w->out, plim_fmt_double(v).s);
}
