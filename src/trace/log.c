/* log.c -- see log.h.
 *
 * The text is first reduced to what the rows are written in: lower case, and one space for several
 * blanks. */
#include "trace/log.h"

#include "base/fmt.h"
#include "base/needles.h"

enum {
    REACH = 1 << 10,  /* bytes of a figure, from its words to its number: the table has 80 */
    CELLS_MOST = 256, /* of cells that are skipped: the table has a few dozen */
    ROOM = 64 << 10   /* for reduced text */
};

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

/* ---- figures, in reduced text ----------------------------------------------- */

static bool is_letter(char c) { return c >= 'a' && c <= 'z'; }

/* The end of the words that begin at `at`; 0: others stand there. */
static size_t skip_words(plim_str text, size_t at, const char *words)
{
    size_t n = strlen(words);
    return n <= text.n - at && text.p[at] == *words && !memcmp(text.p + at, words, n) ? at + n
                                                                                      : 0;
}

static size_t skip_blank(plim_str text, size_t at)
{
    return at + (at < text.n && text.p[at] == ' ');
}

/* The place after the `n`-th '|' of the line from here; text.n: there are not so many. */
static size_t skip_cells(plim_str text, size_t at, int n)
{
    size_t end = PLIM_MIN(text.n, at + CELLS_MOST);
    for (; n > 0 && at < end && text.p[at] != '\n'; at++)
        n -= text.p[at] == '|';
    return n > 0 ? text.n : at;
}

/* Reads "57438.81", "12,345" or "13.79 GiB" at *at. */
static bool read_number(plim_str text, size_t *at, int unit, plim_log_figure *out)
{
    uint64_t digits = 0, scale = 1;
    size_t i = *at;
    bool point = false, any = false;
    for (; i < text.n; i++) {
        char c = text.p[i];
        if (c == '.' && !point && i + 1 < text.n && is_digit(text.p[i + 1])) {
            point = true;
        } else if (is_digit(c)) {
            any = true;
            if (scale > UINT64_C(1000000)) /* what follows is below a byte of a TiB */
                continue;
            digits = plim_sat_add(plim_sat_mul(digits, 10), (uint64_t)(c - '0'));
            scale *= point ? 10 : 1;
        } else if (c != ',' || !any || point || i + 1 == text.n || !is_digit(text.p[i + 1])) {
            break;
        }
    }
    if (!any)
        return false;
    size_t behind = skip_blank(text, i);
    for (size_t u = 0; u < PLIM_COUNT(units); u++) {
        size_t end = skip_words(text, behind, units[u].name);
        if (!end || (end < text.n && is_letter(text.p[end])))
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
    return out->bytes < UINT64_C(1) << 60; /* more cannot be memory */
}

/* Between words and their number. */
static bool is_between(char c)
{
    return c == ' ' || c == ':' || c == '=' || c == '|' || c == '\'' || c == '"' || c == '(' ||
           c == ')';
}

/* The figure of a row whose words end at `at`. */
static bool read_row(plim_str text, size_t at, const log_row *row, plim_log_figure *out)
{
    at = skip_cells(text, at, row->cells);
    while (at < text.n && is_between(text.p[at]))
        at++;
    if (!read_number(text, &at, row->unit, out))
        return false;
    at = skip_blank(text, at);
    return !*row->end || (at < text.n && text.p[at] == *row->end);
}

/* ---- the whole text -------------------------------------------------------- */

struct plim_log_reader {
    plim_needles words; /* of the rows */
    plim_log *out;
    char text[ROOM];    /* reduced */
    size_t n, searched; /* its bytes, and those of them at which no other figure begins */
    bool is_counted;    /* the line of the place below */
    size_t counted;
};

/* A block of bytes becomes as many if no blanks in it, or in it and after it, stand together. */
enum { BLOCK = 32 };
static bool has_gap(const char *p)
{
    uint8_t gap = 0;
    for (int i = 0; i < BLOCK; i++)
        gap |= (uint8_t)((int)is_blank(p[i]) & (int)is_blank(p[i + 1]));
    return gap;
}

static char reduce_char(char c) { return c == '\t' ? ' ' : plim_lower(c); }

static void reduce_block(plim_log_reader *r, const char *p)
{
    char *to = r->text + r->n;
    for (int i = 0; i < BLOCK; i++)
        to[i] = reduce_char(p[i]);
    r->n += BLOCK;
}

static void reduce_bytes(plim_log_reader *r, plim_str s)
{
    size_t n = r->n;
    char before = n ? r->text[n - 1] : 0;
    for (size_t i = 0; i < s.n; i++) {
        char c = reduce_char(s.p[i]);
        r->text[n] = c;
        n += !(c == ' ' && before == ' ');
        before = c;
    }
    r->n = n;
}

/* As much as there is room for; returns how many bytes of the text that is. */
static size_t reduce_text(plim_log_reader *r, plim_str s)
{
    size_t i = 0;
    while (i < s.n && r->n < ROOM) {
        size_t n = PLIM_MIN(PLIM_MIN(s.n - i, ROOM - r->n), (size_t)BLOCK);
        bool after_blank = r->n && r->text[r->n - 1] == ' ' && is_blank(s.p[i]);
        if (n == BLOCK && s.n - i > BLOCK && !after_blank && !has_gap(s.p + i))
            reduce_block(r, s.p + i);
        else
            reduce_bytes(r, (plim_str){s.p + i, n});
        i += n;
    }
    plim_assert(r->n <= ROOM && i <= s.n);
    return i;
}

/* A figure begins at `at`: counts its line if none before did. */
static void count_line(plim_log_reader *r, size_t at)
{
    plim_assert(!r->is_counted || r->counted <= at);
    r->out->lines +=
        !r->is_counted || memchr(r->text + r->counted, '\n', at - r->counted) != NULL;
    r->is_counted = true;
    r->counted = at;
}

/* Whether what begins at `at` is the end of a longer word. */
static bool ends_word(plim_str text, size_t at)
{
    return at && is_letter(text.p[at]) && is_letter(text.p[at - 1]);
}

static void take_figure(plim_log_reader *r, size_t at, const log_row *row)
{
    plim_assert(row->quantity < PLIM_COUNT(r->out->figure));
    plim_log_figure f = {0}, *to = &r->out->figure[row->quantity];
    plim_str text = {r->text, PLIM_MIN(r->n, at + REACH)};
    if (ends_word(text, at) || !read_row(text, at + strlen(row->words), row, &f))
        return;
    count_line(r, at);
    if (!r->out->source)
        r->out->source = row->source;
    if (!to->known || f.bytes > to->bytes)
        *to = f;
}

/* But for the byte before what is searched next, all of that is needed no more. */
static void drop_text(plim_log_reader *r)
{
    size_t gone = r->searched ? r->searched - 1 : 0;
    if (r->is_counted && r->counted < gone) {
        r->is_counted = !memchr(r->text + r->counted, '\n', gone - r->counted);
        r->counted = gone;
    }
    memmove(r->text, r->text + gone, r->n - gone);
    r->n -= gone;
    r->searched -= gone;
    r->counted -= PLIM_MIN(gone, r->counted);
}

static void search_text(plim_log_reader *r, bool last)
{
    plim_str s = {r->text, r->n};
    size_t end = last ? s.n : s.n - PLIM_MIN(s.n, (size_t)REACH - 1);
    for (plim_needle m = PLIM_NEEDLE_FROM(r->searched);
         plim_needles_next(&r->words, s, &m) && m.at < end;)
        take_figure(r, m.at, &rows[m.word]);
    r->searched = PLIM_MAX(r->searched, end);
    drop_text(r);
}

plim_log_reader *plim_log_reader_new(plim_arena *a, plim_log *out)
{
    plim_log_reader *r = PLIM_NEW(a, plim_log_reader);
    *out = (plim_log){0};
    if (!r)
        return NULL;
    plim_needles_init(&r->words, &rows[0].words, sizeof rows[0], PLIM_COUNT(rows));
    r->out = out;
    return r;
}

size_t plim_log_take(void *reader, plim_str text, bool last)
{
    plim_log_reader *r = reader;
    size_t done = 0;
    do {
        done += reduce_text(r, (plim_str){text.p + done, text.n - done});
        search_text(r, last && done == text.n);
    } while (done < text.n);
    return done;
}

/* ---- which files are logs --------------------------------------------------- */

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
