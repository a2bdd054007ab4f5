/* log.c -- see log.h. */
#include "trace/log.h"

#include "base/fmt.h"

typedef struct log_row {
    const char *source;
    plim_log_quantity quantity;
    const char *words;
    int cells, unit;
    const char *end, *src;
} log_row;

static const log_row rows[] = {
#define PLIM_LOG(source, quantity, words, cells, unit, end, src)                              \
    {source, PLIM_LOG_##quantity, words, cells, unit, end, src},
#include "trace/log.def"
#undef PLIM_LOG
};

/* Longest first where one begins as another.  Frameworks mean powers of 1024 by GB, too. */
static const struct {
    const char *name;
    int shift;
} units[] = {{"bytes", 0}, {"kib", 10}, {"mib", 20}, {"gib", 30}, {"tib", 40}, {"pib", 50},
             {"kb", 10},   {"mb", 20},  {"gb", 30},  {"tb", 40},  {"b", 0}};

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_blank(char c) { return c == ' ' || c == '\t'; }

static bool is_letter(char c) { return plim_lower(c) >= 'a' && plim_lower(c) <= 'z'; }

/* The end of the words that begin at `at`; 0: others stand there. */
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

enum { CELLS_MOST = 256 }; /* bytes of those that are skipped: the table has a few dozen */

/* The place after the `n`-th '|' from here; line.n: there are not so many. */
static size_t skip_cells(plim_str line, size_t at, int n)
{
    size_t end = PLIM_MIN(line.n, at + CELLS_MOST);
    for (; n > 0 && at < end; at++)
        n -= line.p[at] == '|';
    return n > 0 ? line.n : at;
}

/* Reads "57438.81", "12,345" or "13.79 GiB" at *at. */
static bool read_number(plim_str line, size_t *at, int unit, plim_log_figure *out)
{
    uint64_t digits = 0, scale = 1;
    size_t i = *at;
    bool point = false, any = false;
    for (; i < line.n; i++) {
        char c = line.p[i];
        if (c == '.' && !point && i + 1 < line.n && is_digit(line.p[i + 1])) {
            point = true;
        } else if (is_digit(c)) {
            any = true;
            if (scale > UINT64_C(1000000)) /* what follows is below a byte of a TiB */
                continue;
            digits = plim_sat_add(plim_sat_mul(digits, 10), (uint64_t)(c - '0'));
            scale *= point ? 10 : 1;
        } else if (c != ',' || !any || point || i + 1 == line.n || !is_digit(line.p[i + 1])) {
            break;
        }
    }
    if (!any)
        return false;
    size_t behind = skip_blanks(line, i);
    for (size_t u = 0; u < PLIM_COUNT(units); u++) {
        size_t end = skip_words(line, behind, units[u].name);
        if (!end || (end < line.n && is_letter(line.p[end])))
            continue;
        unit = units[u].shift;
        i = end;
        break;
    }
    if (point && !unit)
        return false; /* in which unit? */
    *at = i;
    uint64_t one = UINT64_C(1) << unit, whole = plim_sat_mul(digits / scale, one),
             rest = (uint64_t)((double)(digits % scale) * (double)one / (double)scale);
    *out = (plim_log_figure){true, plim_sat_add(whole, rest), unit ? one / scale + 1 : 0};
    return out->bytes < UINT64_C(1) << 60; /* more is no memory */
}

/* The figure of a row whose words end at `at`. */
static bool read_row(plim_str line, size_t at, const log_row *row, plim_log_figure *out)
{
    at = skip_cells(line, at, row->cells);
    while (at < line.n && (is_blank(line.p[at]) || strchr(":=|'\"()", line.p[at])) &&
           line.p[at])
        at++;
    if (!read_number(line, &at, row->unit, out))
        return false;
    at = skip_blanks(line, at);
    return !*row->end || (at < line.n && line.p[at] == *row->end);
}

/* Whether the words that begin here would be the end of a longer one, or of a longer gap. */
static bool inside_word(plim_str line, size_t at)
{
    return at && ((is_letter(line.p[at]) && is_letter(line.p[at - 1])) ||
                  (is_blank(line.p[at]) && is_blank(line.p[at - 1])));
}

static bool read_line(plim_log *out, plim_str line)
{
    bool any = false;
    for (size_t i = 0; i < line.n; i++)
        for (size_t k = 0; k < PLIM_COUNT(rows) && !inside_word(line, i); k++) {
            plim_log_figure f = {0}, *to = &out->figure[rows[k].quantity];
            size_t end = skip_words(line, i, rows[k].words);
            if (!end || !read_row(line, end, &rows[k], &f))
                continue;
            any = true;
            if (!out->source)
                out->source = rows[k].source;
            if (!to->known || f.bytes > to->bytes)
                *to = f;
        }
    return any;
}

bool plim_log_detect(plim_bytes file)
{
    plim_str head = {(const char *)file.p, (size_t)PLIM_MIN(file.n, (uint64_t)65536)};
    size_t at = 0;
    if (!head.n || memchr(head.p, 0, head.n) || plim_str_starts(head, "plimsoll-tape"))
        return false;
    if (*head.p != '[')
        return *head.p != '{';
    do /* "[rank0]: ..." and not a list of JSON */
        at++;
    while (at < head.n && (is_blank(head.p[at]) || head.p[at] == '\r' || head.p[at] == '\n'));
    return at < head.n && head.p[at] != '{' && head.p[at] != ']';
}

void plim_log_read(plim_log *out, plim_bytes file)
{
    plim_str text = {(const char *)file.p, (size_t)file.n};
    *out = (plim_log){0};
    for (size_t begin = 0, end; begin < text.n; begin = end + 1) {
        const char *nl = memchr(text.p + begin, '\n', text.n - begin);
        end = nl ? (size_t)(nl - text.p) : text.n;
        out->lines += read_line(out, (plim_str){text.p + begin, end - begin});
    }
}
