/* regex.c -- see regex.h.  An expression becomes steps of a machine that is in several states at once, as K. Thompson
 * (1968) and R. Cox ("Regular Expression Matching: the Virtual Machine Approach") describe it. */
#include "base/regex.h"

#include <string.h>

enum { CHAR, ANY, SET, SPLIT, JUMP, START, END, DONE };

typedef struct parser {
    plim_regex *r;
    plim_str text;
    size_t at;
    const char *bad; /* what is not understood; NULL: nothing */
    int depth;
} parser;

enum { DEEPEST = 64 };

/* ---- steps ------------------------------------------------------------------------------ */

static void add_step(parser *p, uint8_t op, uint8_t c, int next, int other)
{
    plim_regex *r = p->r;
    plim_assert(r->n <= PLIM_REGEX_STATES);
    if (r->n == PLIM_REGEX_STATES) {
        p->bad = "it is too long";
        return;
    }
    r->step[r->n++] = (struct plim_regex_step){
        .op = op, .c = c, .next = (int16_t)next, .other = (int16_t)other};
}

/* Before the steps from `from` on, which only refer to one another. */
static void insert_step(parser *p, uint16_t from, uint8_t op, int next, int other)
{
    plim_regex *r = p->r;
    plim_assert(from <= r->n);
    add_step(p, op, 0, next, other);
    if (p->bad)
        return;
    struct plim_regex_step last = r->step[r->n - 1];
    memmove(&r->step[from + 1], &r->step[from], (size_t)(r->n - 1 - from) * sizeof last);
    r->step[from] = last;
}

/* ---- classes ------------------------------------------------------------------------------- */

static uint8_t *add_set(parser *p)
{
    if (p->r->n_sets == PLIM_REGEX_CLASSES) {
        p->bad = "it has too many classes";
        return p->r->set[0];
    }
    return memset(p->r->set[p->r->n_sets++], 0, sizeof *p->r->set);
}

static void set_byte(uint8_t *set, unsigned c) { set[c / 8] |= (uint8_t)(1u << c % 8); }

static void set_range(uint8_t *set, unsigned first, unsigned last)
{
    plim_assert(first < 256 && last < 256);
    for (unsigned c = first; c <= last; c++)
        set_byte(set, c);
}

static void invert_set(uint8_t *set)
{
    for (size_t i = 0; i < sizeof(((plim_regex *)NULL)->set[0]); i++)
        set[i] = (uint8_t)~set[i];
}

/* \d, \w and \s into the set. */
static bool set_named(uint8_t *set, char name)
{
    switch (name) {
    case 'd': set_range(set, '0', '9'); return true;
    case 'w':
        set_range(set, '0', '9');
        set_range(set, 'a', 'z');
        set_range(set, 'A', 'Z');
        set_byte(set, '_');
        return true;
    case 's':
        set_range(set, '\t', '\r');
        set_byte(set, ' ');
        return true;
    default: return false;
    }
}

static int peek_char(const parser *p)
{
    return p->at < p->text.n ? (unsigned char)p->text.p[p->at] : -1;
}

static bool take_char(parser *p, char c)
{
    if (peek_char(p) != c)
        return false;
    p->at++;
    return true;
}

/* "a-z0-9]", after its bracket. */
static void read_class(parser *p)
{
    bool inverted = take_char(p, '^'), first = true;
    uint8_t *set = add_set(p), which = (uint8_t)(p->r->n_sets - 1);
    for (; !p->bad && (first || peek_char(p) != ']'); first = false) {
        int c = peek_char(p);
        if (c < 0) {
            p->bad = "a class has no end";
            return;
        }
        p->at++;
        if (c == '\\' && p->at < p->text.n) {
            c = (unsigned char)p->text.p[p->at++];
            if (set_named(set, (char)c))
                continue;
        }
        int last = c;
        if (peek_char(p) == '-' && p->at + 1 < p->text.n && p->text.p[p->at + 1] != ']') {
            last = (unsigned char)p->text.p[p->at + 1];
            p->at += 2;
        }
        set_range(set, (unsigned)c, (unsigned)last);
    }
    p->at++;
    if (inverted)
        invert_set(set);
    add_step(p, SET, which, 1, 0);
}

/* After a backslash. */
static void read_escape(parser *p)
{
    int c = peek_char(p);
    p->at++;
    if (c < 0 || c == 'b' || c == 'B' || (c >= '0' && c <= '9')) {
        p->bad = "that after its backslash is not supported";
        return;
    }
    bool inverted = c == 'D' || c == 'W' || c == 'S';
    char name = (char)(inverted ? c + ('a' - 'A') : c);
    uint8_t *set = add_set(p);
    if (!set_named(set, name)) {
        p->r->n_sets--;
        add_step(p, CHAR, (uint8_t)c, 1, 0);
        return;
    }
    if (inverted)
        invert_set(set);
    add_step(p, SET, (uint8_t)(p->r->n_sets - 1), 1, 0);
}

/* ---- expressions -------------------------------------------------------------------------------- */

static void read_alternatives(parser *p);

static void read_group(parser *p)
{
    if (take_char(p, '?') && !take_char(p, ':')) {
        p->bad = "of groups that begin with '?' only (?: is supported";
        return;
    }
    if (++p->depth > DEEPEST)
        p->bad = "its groups are too deep";
    else
        read_alternatives(p);
    p->depth--;
    if (!p->bad && !take_char(p, ')'))
        p->bad = "a group has no end";
}

static void read_atom(parser *p)
{
    int c = peek_char(p);
    p->at++;
    switch (c) {
    case '(': read_group(p); return;
    case '[': read_class(p); return;
    case '\\': read_escape(p); return;
    case '.': add_step(p, ANY, 0, 1, 0); return;
    case '^': add_step(p, START, 0, 1, 0); return;
    case '$': add_step(p, END, 0, 1, 0); return;
    case '*':
    case '+':
    case '?': p->bad = "nothing is repeated"; return;
    case '{': p->bad = "numbers of repetitions are not supported"; return;
    default: add_step(p, CHAR, (uint8_t)c, 1, 0);
    }
}

/* Of the steps from `from` on. */
static void read_repetition(parser *p, uint16_t from)
{
    int n = p->r->n - from;
    if (take_char(p, '*')) {
        insert_step(p, from, SPLIT, 1, n + 2);
        add_step(p, JUMP, 0, -(n + 1), 0);
    } else if (take_char(p, '+'))
        add_step(p, SPLIT, 0, -n, 1);
    else if (take_char(p, '?'))
        insert_step(p, from, SPLIT, 1, n + 1);
    else if (peek_char(p) == '{')
        p->bad = "numbers of repetitions are not supported";
    else
        return;
    take_char(p, '?'); /* as few as possible: it finds the same */
}

static void read_sequence(parser *p)
{
    while (!p->bad && peek_char(p) >= 0 && peek_char(p) != '|' && peek_char(p) != ')') {
        uint16_t from = p->r->n;
        read_atom(p);
        if (!p->bad)
            read_repetition(p, from);
    }
}

static void read_alternatives(parser *p)
{
    uint16_t from = p->r->n;
    read_sequence(p);
    if (p->bad || !take_char(p, '|'))
        return;
    insert_step(p, from, SPLIT, 1, p->r->n - from + 2);
    uint16_t jump = p->r->n;
    add_step(p, JUMP, 0, 0, 0);
    if (p->bad)
        return;
    if (++p->depth > DEEPEST)
        p->bad = "it has too many alternatives";
    else
        read_alternatives(p);
    p->depth--;
    if (!p->bad)
        p->r->step[jump].next = (int16_t)(p->r->n - jump);
}

plim_status plim_regex_compile(plim_regex *out, plim_str text, plim_err *err)
{
    parser p = {.r = out, .text = text};
    out->n = out->n_sets = 0;
    read_alternatives(&p);
    if (!p.bad && p.at < text.n)
        p.bad = "a group has no beginning";
    if (!p.bad)
        add_step(&p, DONE, 0, 0, 0);
    return p.bad ? plim_fail(err, PLIM_EUSAGE, 0,
                             "the regular expression '" PLIM_STR_FMT
                             "' is not understood at character %zu: %s",
                             PLIM_STR_CUT(text), PLIM_MIN(p.at, text.n), p.bad)
                 : PLIM_OK;
}

/* ---- finding ---------------------------------------------------------------------------------------- */

typedef struct states {
    uint16_t list[PLIM_REGEX_STATES];
    size_t n;
    bool in[PLIM_REGEX_STATES];
} states;

static void push_state(states *s, uint16_t *stack, size_t *depth, int at)
{
    if (s->in[at])
        return;
    s->in[at] = true;
    stack[(*depth)++] = (uint16_t)at;
}

/* The state, and those that need no character.  true: the expression has been found. */
static bool add_state(const plim_regex *r, states *s, int at, bool first, bool last)
{
    uint16_t stack[PLIM_REGEX_STATES]; /* each is put here once */
    size_t depth = 0;
    push_state(s, stack, &depth, at);
    while (depth) {
        uint16_t i = stack[--depth];
        const struct plim_regex_step *step = &r->step[i];
        switch (step->op) {
        case DONE: return true;
        case SPLIT:
            push_state(s, stack, &depth, i + step->other);
            push_state(s, stack, &depth, i + step->next);
            break;
        case JUMP: push_state(s, stack, &depth, i + step->next); break;
        case START:
        case END:
            if (step->op == START ? first : last)
                push_state(s, stack, &depth, i + step->next);
            break;
        default: s->list[s->n++] = i;
        }
    }
    return false;
}

static bool takes_byte(const plim_regex *r, const struct plim_regex_step *step, uint8_t c)
{
    switch (step->op) {
    case CHAR: return step->c == c;
    case ANY: return c != '\n';
    case SET: return r->set[step->c][c / 8] >> c % 8 & 1;
    default: return false;
    }
}

bool plim_regex_finds(const plim_regex *r, plim_str text)
{
    states now = {.n = 0}, then;
    for (size_t i = 0;; i++) {
        if (add_state(r, &now, 0, i == 0, i == text.n))
            return true;
        if (i == text.n)
            return false;
        then = (states){.n = 0};
        for (size_t k = 0; k < now.n; k++) {
            const struct plim_regex_step *step = &r->step[now.list[k]];
            if (takes_byte(r, step, (uint8_t)text.p[i]) &&
                add_state(r, &then, now.list[k] + step->next, false, i + 1 == text.n))
                return true;
        }
        now = then;
    }
}
