/* texts.c -- see texts.h. */
#include "texts.h"

#include <stdlib.h>

#include "base/fmt.h"
#include "unit.h"

uint32_t texts_random(uint64_t *seed, uint32_t n)
{
    *seed = *seed * 6364136223846793005u + 1442695040888963407u;
    return (uint32_t)(*seed >> 33) % n;
}

plim_str texts_make(plim_arena *a, uint64_t *seed, size_t n, const char *const *words,
                    size_t n_words)
{
    enum { FEW = 6, LONGEST = 200 };
    uint32_t few[FEW], count = (uint32_t)n_words;
    bool of_few = !texts_random(seed, 3);
    char *text = PLIM_NEW_N(a, char, n + 2 * LONGEST);
    size_t at = 0;
    for (int i = 0; i < FEW; i++)
        few[i] = texts_random(seed, count);
    while (at < n) {
        const char *word =
            words[of_few ? few[texts_random(seed, FEW)] : texts_random(seed, count)];
        size_t most = texts_random(seed, 8) ? LONGEST : texts_random(seed, LONGEST);
        for (size_t i = 0; word[i] && i < most; i++) {
            text[at++] = word[i];
            if (word[i] != '\\' && !texts_random(seed, 60))
                text[at++] = " \n\t"[texts_random(seed, 3)];
        }
    }
    return (plim_str){text, at};
}

void texts_parts(plim_take *take, void *ud, plim_str text, uint64_t *seed, uint32_t most)
{
    size_t from = 0, end = 0;
    do {
        size_t more = 1 + (size_t)texts_random(seed, most);
        end += PLIM_MIN(more, text.n - end);
        char *part = malloc(end - from + 1);
        assert_non_null(part);
        memcpy(part, text.p + from, end - from);
        size_t done = take(ud, (plim_str){part, end - from}, end == text.n);
        free(part);
        CHECK("no more than there was", done <= end - from);
        CHECK("something of much", done || end - from < 65536);
        from += done;
    } while (end < text.n);
    CHECK("all", from == text.n);
}

/* ---- out-of-memory messages -------------------------------------------------------- */

enum { PREFIX = 80, WINDOW = 4096, HEAD = 200 };

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || !c; }

static size_t skip_escape(plim_str s, size_t i)
{
    size_t from = i;
    if (i == s.n || s.p[i] != '\x1b' || ++i == s.n || s.p[i] != '[')
        return i;
    for (i++; i < s.n && i - from < PREFIX && (s.p[i] < '@' || s.p[i] > '~'); i++)
        if (is_space(s.p[i]) && s.p[i] != ' ')
            return i;
    return i < s.n && i - from < PREFIX ? i + 1 : i;
}

static size_t skip_group(plim_str s, size_t i)
{
    char close = i == s.n ? 0 : s.p[i] == '[' ? ']' : s.p[i] == '(' ? ')' : 0;
    for (size_t k = i + 1; close && k < s.n && k - i < PREFIX; k++) {
        if (s.p[k] == '\n' || (close == ')' && s.p[k] == ';'))
            return i;
        if (s.p[k] == close)
            return k + 1 + (k + 1 < s.n && s.p[k + 1] == ':');
    }
    return i;
}

static size_t skip_stamp(plim_str s, size_t i)
{
    size_t end = i;
    bool stamp = false;
    for (; end < s.n && end - i < PREFIX && !is_space(s.p[end]); end++)
        stamp |= is_digit(s.p[i]) && (s.p[end] == ':' || s.p[end] == '-');
    stamp |= plim_str_is((plim_str){s.p + i, end - i}, "ERROR");
    return stamp && end - i < PREFIX ? end : i;
}

static size_t skip_prefix(plim_str s, size_t i)
{
    for (size_t before = i + 1; before != i;) {
        before = i;
        i = skip_escape(s, i);
        while (i < s.n && s.p[i] && strchr(" \t#>|*", s.p[i]))
            i++;
        i = skip_group(s, i);
        i = skip_stamp(s, i);
    }
    return i;
}

static plim_str reduce_oom(plim_arena *a, plim_str s)
{
    char *out = PLIM_NEW_N(a, char, s.n + 1);
    size_t n = 0;
    for (size_t i = skip_prefix(s, 0); i < s.n;) {
        if (s.p[i] == '\n')
            i = skip_prefix(s, i + 1);
        else if (s.p[i] == '\x1b')
            i = skip_escape(s, i);
        else if (s.p[i] == '\\' && i + 1 < s.n && s.p[i + 1] == 'n')
            i += 2;
        else if (is_space(s.p[i++]))
            continue;
        else
            out[n++] = plim_lower(s.p[i - 1]);
    }
    return (plim_str){out, n};
}

static const struct {
    const char *words;
    bool torch, holds_second; /* it is PyTorch's; "Tried to allocate" may follow it */
} begins[] = {
    {"triedtoallocate", true, false},        {"cudaoutofmemory", true, true},
    {"mpsbackendoutofmemory", true, true},   {"defaultcpuallocator", false, true},
    {"cudaerror:outofmemory", false, false}, {"outofmemoryallocating", false, false}};

static int begin_of(plim_str s, size_t at)
{
    for (int i = 0; i < (int)PLIM_COUNT(begins); i++)
        if (plim_str_starts((plim_str){s.p + at, s.n - at}, begins[i].words))
            return i;
    return -1;
}

static uint32_t rank_oom(plim_str span, int begin)
{
    plim_oom_message *m = NULL;
    uint32_t known = 0;
    CHECK("a message", plim_oom_read(span.p, span.n, &m, NULL) == PLIM_OK);
    for (uint32_t q = 0; q < m->n_numbers; q++)
        known += m->numbers[q] && !m->numbers[q]->derived;
    plim_oom_free(m);
    return !begins[begin].torch ? 0 : known > 1 ? 2 : 1;
}

texts_oom texts_slow_oom(plim_arena *a, plim_str text)
{
    plim_str s = reduce_oom(a, text);
    texts_oom out = {0};
    uint32_t best = 0;
    int open = -1;
    for (size_t at = 0, from = 0; at <= s.n; at++) {
        int k = at < s.n ? begin_of(s, at) : -1;
        if (at < s.n &&
            (k < 0 || (!k && open > 0 && begins[open].holds_second && at - from < HEAD)))
            continue;
        plim_str span = {s.p + from, PLIM_MIN(at - from, (size_t)WINDOW)};
        uint32_t rank = open < 0 ? 0 : rank_oom(span, open);
        if (open >= 0 && rank >= best) {
            best = rank;
            out.best = span;
        }
        if (at == s.n)
            break;
        out.messages++;
        open = k;
        from = at;
        at += strlen(begins[k].words) - 1;
    }
    return out;
}

/* ---- logs ----------------------------------------------------------------------------- */

typedef struct row {
    const char *source, *words;
    int quantity, cells, unit;
    const char *end;
} row;

static const row rows[] = {
#define PLIM_LOG(source, quantity, words, cells, unit, end, src)                              \
    {source, words, PLIM_LOG_##quantity, cells, unit, end},
#include "trace/log.def"
#undef PLIM_LOG
};

static const struct {
    const char *name;
    int shift;
} units[] = {{"bytes", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"pib", 50},
             {"kb", 10},   {"mb", 20},  {"gb", 30},  {"tb", 40},  {"b", 0}};

static bool is_blank(char c) { return c == ' ' || c == '\t'; }
static bool is_letter(char c) { return plim_lower(c) >= 'a' && plim_lower(c) <= 'z'; }

static size_t skip_words(plim_str line, size_t at, const char *words)
{
    for (; *words; words++) {
        if (at == line.n ||
            (*words == ' ' ? !is_blank(line.p[at]) : plim_lower(line.p[at]) != *words))
            return 0;
        at++;
        while (*words == ' ' && at < line.n && is_blank(line.p[at]))
            at++;
    }
    return at;
}

static size_t skip_blanks(plim_str line, size_t at)
{
    while (at < line.n && is_blank(line.p[at]))
        at++;
    return at;
}

static bool read_number(plim_str line, size_t *at, int unit, plim_log_figure *out)
{
    uint64_t digits = 0, scale = 1;
    size_t i = *at;
    bool point = false, any = false;
    for (; i < line.n; i++) {
        char c = line.p[i];
        bool more = i + 1 < line.n && is_digit(line.p[i + 1]);
        if (c == '.' && !point && more) {
            point = true;
        } else if (is_digit(c)) {
            any = true;
            if (scale > 1000000)
                continue;
            digits = plim_sat_add(plim_sat_mul(digits, 10), (uint64_t)(c - '0'));
            scale *= point ? 10 : 1;
        } else if (c != ',' || !any || point || !more) {
            break;
        }
    }
    for (size_t u = 0; u < PLIM_COUNT(units); u++) {
        size_t end = skip_words(line, skip_blanks(line, i), units[u].name);
        if (!end || (end < line.n && is_letter(line.p[end])))
            continue;
        unit = units[u].shift;
        i = end;
        break;
    }
    if (!any || (point && !unit))
        return false;
    *at = i;
    uint64_t one = UINT64_C(1) << unit;
    *out = (plim_log_figure){
        true,
        plim_sat_add(plim_sat_mul(digits / scale, one),
                     (uint64_t)((double)(digits % scale) * (double)one / (double)scale)),
        unit ? one / scale + 1 : 0};
    return out->bytes < UINT64_C(1) << 60;
}

static bool read_row(plim_str line, size_t at, const row *r, plim_log_figure *out)
{
    for (int n = r->cells; n > 0 && at < line.n; at++)
        n -= line.p[at] == '|';
    while (at < line.n && line.p[at] && strchr(" \t:=|'\"()", line.p[at]))
        at++;
    if (!read_number(line, &at, r->unit, out))
        return false;
    at = skip_blanks(line, at);
    return !*r->end || (at < line.n && line.p[at] == *r->end);
}

static bool read_line(plim_log *out, plim_str line)
{
    bool any = false;
    for (size_t i = 0; i < line.n; i++)
        for (size_t k = 0; k < PLIM_COUNT(rows); k++) {
            plim_log_figure f = {0}, *to = &out->figure[rows[k].quantity];
            size_t end = skip_words(line, i, rows[k].words);
            if (!end || (i && is_letter(line.p[i]) && is_letter(line.p[i - 1])) ||
                !read_row(line, end, &rows[k], &f))
                continue;
            any = true;
            if (!out->source)
                out->source = rows[k].source;
            if (!to->known || f.bytes > to->bytes)
                *to = f;
        }
    return any;
}

plim_log texts_slow_log(plim_str text)
{
    plim_log out = {0};
    for (size_t begin = 0, end; begin < text.n; begin = end + 1) {
        const char *nl = memchr(text.p + begin, '\n', text.n - begin);
        end = nl ? (size_t)(nl - text.p) : text.n;
        out.lines += read_line(&out, (plim_str){text.p + begin, end - begin});
    }
    return out;
}
