/* mg_pattern.c -- which layers have experts: a number N, every Nth from the first on, or an expression
 * of Python's lists, ([0]*1+[1]*23).  See mg.h.
 *
 * src: Megatron-LM d98e8a64 megatron/training/arguments.py moe_freq_type */
#include "base/fmt.h"
#include "import/megatron/mg.h"

typedef struct pattern {
    plim_str rest; /* of the text */
    bool *out;
    int64_t n, most; /* written so far, and at most */
    bool bad;
} pattern;

static bool take_char(pattern *p, char c)
{
    if (!p->rest.n || *p->rest.p != c)
        return false;
    p->rest.p++;
    p->rest.n--;
    return true;
}

static int64_t take_number(pattern *p)
{
    int64_t n = 0;
    p->bad |= !p->rest.n || *p->rest.p < '0' || *p->rest.p > '9';
    while (p->rest.n && *p->rest.p >= '0' && *p->rest.p <= '9') {
        n = PLIM_MIN(n * 10 + *p->rest.p - '0', (int64_t)PLIM_MG_MOST_LAYERS + 1);
        take_char(p, *p->rest.p);
    }
    return n;
}

static void put_layer(pattern *p, int64_t is)
{
    p->bad |= is > 1 || p->n >= p->most;
    if (!p->bad)
        p->out[p->n++] = is == 1;
}

/* [1] or [0,1,1] */
static void read_list(pattern *p)
{
    do
        put_layer(p, take_number(p));
    while (!p->bad && take_char(p, ','));
    p->bad |= !take_char(p, ']');
}

/* What was written since `from`, so many times. */
static void repeat_layers(pattern *p, int64_t from, int64_t times)
{
    int64_t size = p->n - from;
    if (!times)
        p->n = from;
    for (int64_t i = 0; i < (times - 1) * size && !p->bad; i++)
        put_layer(p, p->out[from + i]);
}

static void read_sum(pattern *p, int nested)
{
    do {
        int64_t from = p->n;
        bool listed = take_char(p, '[');
        if (listed)
            read_list(p);
        else if (take_char(p, '(') && nested < PLIM_MG_MOST_NESTED) {
            read_sum(p, nested + 1); /* NOLINT(misc-no-recursion): PLIM_MG_MOST_NESTED */
            p->bad |= !take_char(p, ')');
        } else
            p->bad = true;
        while (!p->bad && take_char(p, '*'))
            repeat_layers(p, from, take_number(p));
    } while (!p->bad && take_char(p, '+'));
}

plim_status plim_mg_pattern(plim_str text, int64_t layers, bool *has_experts, plim_err *err)
{
    pattern p = {.rest = text, .out = has_experts, .most = layers};
    if (text.n && *text.p >= '0' && *text.p <= '9') {
        int64_t each = take_number(&p);
        p.bad |= p.rest.n || !each;
        for (int64_t i = 0; i < layers && !p.bad; i++)
            put_layer(&p, i % each == 0);
    } else
        read_sum(&p, 0);
    return !p.bad && !p.rest.n && p.n == layers
               ? PLIM_OK
               : plim_fail(err, PLIM_EFORMAT, 0,
                           "--moe-layer-freq needs a number, or a list of %" PRId64
                           " layers such as ([0]*1+[1]*23), not '" PLIM_STR_FMT "'",
                           layers, PLIM_STR_CUT(text));
}
