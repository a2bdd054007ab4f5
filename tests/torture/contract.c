/* contract.c -- see contract.h. */
#include "contract.h"

#include <string.h>

/* The length of the character at p; 0: it is none.  src: RFC 3629, section 4 */
static size_t measure_char(const unsigned char *p, size_t n)
{
    unsigned c = p[0];
    size_t m = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
    if (!m || m > n)
        return 0;
    for (size_t i = 1; i < m; i++)
        if ((p[i] & 0xc0) != 0x80)
            return 0;
    bool bad = (c == 0xe0 && p[1] < 0xa0) || (c == 0xed && p[1] > 0x9f) ||
               (c == 0xf0 && p[1] < 0x90) || (c == 0xf4 && p[1] > 0x8f);
    return bad ? 0 : m;
}

const char *contract_utf8(const char *p, size_t n)
{
    for (size_t i = 0, m; i < n; i += m)
        if (!(m = measure_char((const unsigned char *)p + i, n - i)))
            return "is not UTF-8";
    return NULL;
}

const char *contract_text(const char *p, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char c = (unsigned char)p[i];
        if ((c < 0x20 && c != '\n') || c == 0x7f)
            return "has control characters";
        if (c == 0xc2 && i + 1 < n && (unsigned char)p[i + 1] < 0xa0)
            return "has control characters of two bytes";
    }
    return contract_utf8(p, n);
}

/* ---- JSON ------------------------------------------------------------------------ */

typedef struct json_text {
    const char *p, *end;
    int depth;
} json_text;

static void skip_blank(json_text *j)
{
    while (j->p < j->end && *j->p && strchr(" \t\r\n", *j->p))
        j->p++;
}

static bool take_char(json_text *j, char c)
{
    if (j->p == j->end || *j->p != c)
        return false;
    j->p++;
    return true;
}

static bool take_word(json_text *j, const char *word)
{
    size_t n = strlen(word);
    if ((size_t)(j->end - j->p) < n || memcmp(j->p, word, n) != 0)
        return false;
    j->p += n;
    return true;
}

static bool take_digits(json_text *j)
{
    const char *from = j->p;
    while (j->p < j->end && *j->p >= '0' && *j->p <= '9')
        j->p++;
    return j->p > from;
}

static bool check_number(json_text *j)
{
    (void)take_char(j, '-');
    if (!take_char(j, '0') && !take_digits(j))
        return false;
    if (take_char(j, '.') && !take_digits(j))
        return false;
    if (!take_char(j, 'e') && !take_char(j, 'E'))
        return true;
    if (!take_char(j, '+'))
        (void)take_char(j, '-');
    return take_digits(j);
}

static bool check_string(json_text *j)
{
    if (!take_char(j, '"'))
        return false;
    while (j->p < j->end && *j->p != '"') {
        unsigned char c = (unsigned char)*j->p++;
        if (c < 0x20)
            return false;
        if (c != '\\')
            continue;
        if (j->p == j->end || !*j->p || !strchr("\"\\/bfnrtu", *j->p))
            return false;
        if (*j->p++ == 'u')
            for (int i = 0; i < 4; i++, j->p++)
                if (j->p == j->end || !*j->p || !strchr("0123456789abcdefABCDEF", *j->p))
                    return false;
    }
    return take_char(j, '"');
}

static bool check_value(json_text *j);

static bool check_list(json_text *j, char close)
{
    skip_blank(j);
    if (take_char(j, close))
        return true;
    do {
        skip_blank(j);
        if (close == '}') {
            if (!check_string(j))
                return false;
            skip_blank(j);
            if (!take_char(j, ':'))
                return false;
        }
        if (!check_value(j))
            return false;
        skip_blank(j);
    } while (take_char(j, ','));
    return take_char(j, close);
}

static bool check_value(json_text *j)
{
    bool good;
    skip_blank(j);
    if (j->p == j->end || ++j->depth > 200)
        return false;
    if (take_char(j, '{'))
        good = check_list(j, '}');
    else if (take_char(j, '['))
        good = check_list(j, ']');
    else if (*j->p == '"')
        good = check_string(j);
    else
        good = take_word(j, "null") || take_word(j, "true") || take_word(j, "false") ||
               check_number(j);
    j->depth--;
    return good;
}

const char *contract_json(const char *p, size_t n)
{
    json_text j = {p, p + n, 0};
    if (!check_value(&j))
        return "is not JSON";
    skip_blank(&j);
    return j.p < j.end ? "has something after its JSON" : contract_utf8(p, n);
}

const char *contract_json_lines(const char *p, size_t n)
{
    const char *bad = NULL;
    while (n && !bad) {
        const char *end = memchr(p, '\n', n);
        size_t line = end ? (size_t)(end - p) : n;
        bad = contract_json(p, line);
        line += end != NULL;
        p += line;
        n -= line;
    }
    return bad;
}

/* ---- CSV ------------------------------------------------------------------------- */

const char *contract_csv(const char *p, size_t n)
{
    size_t fields = 1, first = 0;
    for (size_t i = 0; i < n;) {
        if (p[i] == '"') {
            for (i++; i < n; i++)
                if (p[i] == '"' && (i + 1 == n || p[++i] != '"'))
                    break;
            if (i >= n || !p[i] || !strchr(",\r\n", p[i]))
                return "has a quoted field that does not end";
        } else {
            while (i < n && !(p[i] && strchr(",\r\n", p[i])))
                if (p[i++] == '"')
                    return "has a quote within a field";
            if (i == n)
                return "has a line without an end";
        }
        if (p[i] == ',') {
            fields++;
            i++;
            continue;
        }
        i += p[i] == '\r';
        if (i >= n || p[i] != '\n')
            return "has a carriage return within a line";
        i++;
        if (first && fields != first)
            return "has lines of several lengths";
        first = fields;
        fields = 1;
    }
    return contract_utf8(p, n);
}

/* ---- errors ------------------------------------------------------------------------ */

const char *contract_error(plim_status st, const plim_err *err)
{
    const char *end = memchr(err->msg, 0, sizeof err->msg);
    if (strcmp(plim_status_name(st), "unknown status") == 0)
        return "is not a status of the list";
    if (err->code != st)
        return "is not the code of the error";
    if (!end)
        return "has a message without an end";
    if (!st)
        return err->msg[0] ? "is success with a message" : NULL;
    if (st == PLIM_EDRIVER || st == PLIM_ECANCELED)
        return "is a status that nothing here has a reason for";
    if (!err->msg[0])
        return "has no message";
    if (strchr(err->msg, '\n'))
        return "has a message of several lines";
    return contract_text(err->msg, (size_t)(end - err->msg));
}
