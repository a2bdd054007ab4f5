/* oom_text.c -- reads the numbers of a message: see oom.h.
 *
 * The text is first reduced to what the words are recognised by: lower case, without
 * white space, terminal colours and the prefixes that loggers put before each line.
 * A message that was wrapped anywhere is then the same as one that was not. */
#include "base/fmt.h"
#include "oom/oom.h"

enum {
    PREFIX_MAX = 80,   /* longest [group] at the beginning of a line */
    WINDOW = 4096,     /* longest message, with many processes */
    MPS_HEAD_MAX = 200 /* "MPS backend out of memory (...)" before "Tried to allocate" */
};

/* ---- the reduced text ---------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || !c; }

/* The end of the terminal sequence that begins at i, or i if none does. */
static size_t skip_escape(plim_str s, size_t i)
{
    if (s.p[i] != '\x1b')
        return i;
    if (++i == s.n || s.p[i] != '[')
        return i;
    for (i++; i < s.n && (s.p[i] < '@' || s.p[i] > '~'); i++)
        if (is_space(s.p[i]) && s.p[i] != ' ')
            return i; /* cut off */
    return i < s.n ? i + 1 : i;
}

/* The end of a group in brackets that begins at i and is part of a prefix; else i. */
static size_t skip_group(plim_str s, size_t i)
{
    char close = s.p[i] == '[' ? ']' : s.p[i] == '(' ? ')' : 0;
    for (size_t k = i + 1; close && k < s.n && k - i < PREFIX_MAX; k++) {
        if (s.p[k] == '\n' || (close == ')' && s.p[k] == ';'))
            return i; /* "(GPU 0; 11.76 GiB total capacity; ..." belongs to the message */
        if (s.p[k] == close) /* "[rank0]: " */
            return k + 1 + (k + 1 < s.n && s.p[k + 1] == ':');
    }
    return i;
}

/* The end of a word at i that is a date, a time or a level of a logger; else i. */
static size_t skip_stamp(plim_str s, size_t i)
{
    static const char *const levels[] = {"ERROR", "WARNING", "INFO", "DEBUG", "CRITICAL"};
    size_t end = i;
    bool stamp = false;
    for (; end < s.n && !is_space(s.p[end]); end++)
        stamp |= is_digit(s.p[i]) && (s.p[end] == ':' || s.p[end] == '-');
    for (size_t k = 0; k < PLIM_COUNT(levels); k++)
        stamp |= plim_str_is((plim_str){s.p + i, end - i}, levels[k]);
    return stamp ? end : i;
}

static size_t skip_prefix(plim_str s, size_t i)
{
    for (size_t before = i + 1; i < s.n && before != i;) {
        before = i;
        i = skip_escape(s, i);
        while (i < s.n && strchr(" \t#>|*", s.p[i]) && s.p[i])
            i++;
        if (i < s.n)
            i = skip_group(s, i);
        if (i < s.n)
            i = skip_stamp(s, i);
    }
    return i;
}

/* The reduced text in `a`; {NULL, 0}: no memory. */
static plim_str reduce_text(plim_arena *a, plim_str s)
{
    char *out = PLIM_NEW_N(a, char, (uint64_t)s.n + 1);
    size_t n = 0;
    for (size_t i = out ? skip_prefix(s, 0) : s.n; i < s.n;) {
        char c = s.p[i];
        if (c == '\n') {
            i = skip_prefix(s, i + 1);
        } else if (c == '\x1b') {
            i = skip_escape(s, i);
        } else if (c == '\\' && i + 1 < s.n && s.p[i + 1] == 'n') {
            i += 2; /* a line end in a string that was printed as source */
        } else {
            if (!is_space(c))
                out[n++] = plim_lower(c);
            i++;
        }
    }
    return (plim_str){out, n};
}

/* ---- where messages begin ------------------------------------------------ */

typedef struct oom_opening {
    const char *words; /* reduced */
    plim_oom_source source;
} oom_opening;

static const char tried_words[] = "triedtoallocate";

/* src: docs/sources/caching-allocator.md 13; the others from public reports */
static const oom_opening openings[] = {
    {"mpsbackendoutofmemory", PLIM_OOM_BY_MPS},
    {"defaultcpuallocator", PLIM_OOM_BY_HOST},
    {"allocationondevice", PLIM_OOM_BY_ASYNC},
    {tried_words, PLIM_OOM_BY_TORCH},
    {"cudaoutofmemory", PLIM_OOM_BY_TORCH},
    {"hipoutofmemory", PLIM_OOM_BY_TORCH},
    {"xpuoutofmemory", PLIM_OOM_BY_TORCH},
    {"cudaerror:outofmemory", PLIM_OOM_BY_CUDA},
    {"cudaruntimeerror(2):outofmemory", PLIM_OOM_BY_CUDA},
    {"cudaerrormemoryallocation", PLIM_OOM_BY_CUDA},
    {"cuda_error_out_of_memory", PLIM_OOM_BY_CUDA},
    {"cublas_status_alloc_failed", PLIM_OOM_BY_CUBLAS},
    {"cublas_status_not_initialized", PLIM_OOM_BY_CUBLAS},
    {"cudnn_status_alloc_failed", PLIM_OOM_BY_CUDNN},
    {"cudnn_status_not_initialized", PLIM_OOM_BY_CUDNN},
    {"outofmemorywhiletryingtoallocate", PLIM_OOM_BY_JAX},
    {"outofmemoryallocating", PLIM_OOM_BY_JAX},
    {"oomwhenallocatingtensor", PLIM_OOM_BY_TENSORFLOW},
    {"ranoutofmemorytryingtoallocate", PLIM_OOM_BY_TENSORFLOW},
};

static bool text_has(plim_str s, size_t at, const char *words)
{
    size_t n = strlen(words);
    return at <= s.n && n <= s.n - at && !memcmp(s.p + at, words, n);
}

/* The opening at this place; NULL: none. */
static const oom_opening *find_opening(plim_str s, size_t at)
{
    for (size_t k = 0; k < PLIM_COUNT(openings); k++)
        if (s.p[at] == openings[k].words[0] && text_has(s, at, openings[k].words))
            return &openings[k];
    return NULL;
}

/* One message: from its opening to the next, or to the end. */
typedef struct oom_span {
    plim_oom_source source;
    size_t begin, end;
} oom_span;

/* "Tried to allocate" may be the second half of a message that is open already. */
static bool continues_span(plim_str s, const oom_span *open, const oom_opening *o, size_t at)
{
    if (o->words != tried_words ||
        (open->source != PLIM_OOM_BY_TORCH && open->source != PLIM_OOM_BY_MPS &&
         open->source != PLIM_OOM_BY_HOST))
        return false;
    return at - open->begin < MPS_HEAD_MAX && !text_has(s, open->begin, tried_words);
}

/* ---- numbers ------------------------------------------------------------- */

static const struct {
    const char *name;
    uint32_t shift;
} units[] = {{"bytes", 0},
             {"kib", 10},
             {"mib", 20},
             {"gib", 30},
             {"tib", 40},
             /* MPS: powers of 1024 all the same */
             {"kb", 10},
             {"mb", 20},
             {"gb", 30}};

/* digits[.digits] and a unit's power of two, as bytes; unknown if it is no size of memory.
 * A process of 17179869184.00 GiB is 2^64 - 1 bytes: the driver did not tell. */
static plim_oom_number make_number(plim_str digits, uint32_t shift)
{
    plim_oom_number none = {UINT64_MAX, 0, false};
    uint64_t value = 0, scale = 1;
    bool point = false;
    for (size_t i = 0; i < digits.n; i++) {
        if (digits.p[i] == '.') {
            point = true;
            continue;
        }
        if (value > UINT64_MAX / 100 || scale > 100000)
            return none;
        value = value * 10 + (uint64_t)(digits.p[i] - '0');
        scale *= point ? 10 : 1;
    }
    uint64_t whole = value / scale, rest = value % scale, unit = 1ull << shift;
    if (!digits.n || whole >= 1ull << (60 - shift))
        return none;
    double part = (double)rest * (double)unit / (double)scale;
    return (plim_oom_number){(whole << shift) + (uint64_t)(part + 0.5),
                             shift ? unit / scale / 2 + 1 : 0, false};
}

static plim_oom_number no_number(void) { return make_number(PLIM_STR(""), 0); }

static size_t skip_digits(plim_str s, size_t at)
{
    while (at < s.n && is_digit(s.p[at]))
        at++;
    return at;
}

static size_t skip_digits_back(plim_str s, size_t at)
{
    while (at > 0 && is_digit(s.p[at - 1]))
        at--;
    return at;
}

/* The number that begins at `at`. */
static plim_oom_number number_after(plim_str s, size_t at)
{
    size_t end = skip_digits(s, at);
    if (end > at && end < s.n && s.p[end] == '.')
        end = skip_digits(s, end + 1);
    for (size_t u = 0; u < PLIM_COUNT(units); u++)
        if (text_has(s, end, units[u].name))
            return make_number((plim_str){s.p + at, end - at}, units[u].shift);
    return no_number();
}

/* The number that ends before `at`.  A point before its digits ends a sentence. */
static plim_oom_number number_before(plim_str s, size_t at)
{
    for (size_t u = 0; u < PLIM_COUNT(units); u++) {
        size_t n = strlen(units[u].name), end = at - n;
        if (n > at || !text_has(s, end, units[u].name))
            continue;
        size_t begin = skip_digits_back(s, end);
        if (begin < end && begin > 1 && s.p[begin - 1] == '.' && is_digit(s.p[begin - 2]))
            begin = skip_digits_back(s, begin - 1);
        return make_number((plim_str){s.p + begin, end - begin}, units[u].shift);
    }
    return no_number();
}

/* The words beside each number.  src: docs/sources/caching-allocator.md 13, and public
 * reports of messages of all versions */
static const struct {
    plim_oom_quantity quantity;
    bool after; /* the number comes after the words */
    const char *words;
} labels[] = {
    {PLIM_OOM_TRIED, true, tried_words},
    {PLIM_OOM_TRIED, true, "requested:"},
    {PLIM_OOM_TRIED, true, "tryingtoallocate"},
    {PLIM_OOM_TRIED, true, "outofmemoryallocating"},
    {PLIM_OOM_TOTAL, false, "totalcapacity"},
    {PLIM_OOM_TOTAL, true, "totalcapacityof"},
    {PLIM_OOM_TOTAL, true, "totalcapactyof"}, /* 2.1 */
    {PLIM_OOM_TOTAL, true, "devicelimit:"},
    {PLIM_OOM_ALLOCATED, false, "alreadyallocated"},
    {PLIM_OOM_ALLOCATED, false, "isallocatedbypytorch"},
    {PLIM_OOM_ALLOCATED, true, "currentlyallocated:"},
    {PLIM_OOM_ALLOCATED, true, "mpsallocated:"},
    {PLIM_OOM_PRIVATE, false, "allocatedinprivatepools"},
    {PLIM_OOM_FREE, false, "free;"},
    {PLIM_OOM_FREE, false, "isfree"},
    {PLIM_OOM_FREE, true, "free(accordingtocuda):"},
    {PLIM_OOM_ALLOWED, false, "allowed;"},
    {PLIM_OOM_ALLOWED, true, "memoryfraction):"},
    {PLIM_OOM_ALLOWED, true, "maxallowed:"},
    {PLIM_OOM_RESERVED, false, "reservedintotalbypytorch"},
    {PLIM_OOM_UNALLOCATED, false, "cached)"}, /* to 1.3: the unused part */
    {PLIM_OOM_UNALLOCATED, false, "isreservedbypytorchbutunallocated"},
    {PLIM_OOM_PROCESS, true, "thisprocesshas"},
    {PLIM_OOM_ELSEWHERE, true, "otherallocations:"},
};

static void read_numbers(plim_str s, plim_oom_number number[PLIM_OOM_QUANTITY_COUNT])
{
    for (size_t q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        number[q] = no_number();
    for (size_t at = 0; at < s.n; at++)
        for (size_t k = 0; k < PLIM_COUNT(labels); k++) {
            plim_oom_number *n = &number[labels[k].quantity];
            if (s.p[at] != labels[k].words[0] || plim_oom_known(n) ||
                !text_has(s, at, labels[k].words))
                continue;
            *n = labels[k].after ? number_after(s, at + strlen(labels[k].words))
                                 : number_before(s, at);
        }
}

/* The digits at `at` as a number, and where they end; false: there are none, or too many. */
static bool read_digits(plim_str s, size_t at, size_t *end, uint64_t *value)
{
    for (*value = 0, *end = at; *end < s.n && is_digit(s.p[*end]) && *end - at < 18; ++*end)
        *value = *value * 10 + (uint64_t)(s.p[*end] - '0');
    return *end > at && (*end == s.n || !is_digit(s.p[*end]));
}

/* "Process 1234 has 1.20 GiB memory in use." */
static plim_status read_processes(plim_arena *a, plim_str s, plim_oom_message *out,
                                  plim_err *err)
{
    static const char word[] = "process";
    const plim_oom_process **list = NULL;
    uint32_t n = 0, cap = 0;
    for (size_t at = 0; at < s.n; at++) {
        size_t end;
        uint64_t pid;
        if (!text_has(s, at, word) || !read_digits(s, at + strlen(word), &end, &pid) ||
            !text_has(s, end, "has"))
            continue;
        plim_oom_process *p = PLIM_NEW(a, plim_oom_process);
        if (!p || !PLIM_PUSH_ROOM(a, list, n, cap))
            return plim_oom(err);
        *p = (plim_oom_process){pid, number_after(s, end + strlen("has"))};
        list[n++] = p;
    }
    out->processes = list;
    out->n_processes = n;
    return PLIM_OK;
}

/* The index in "(GPU 0;" or "GPU 0 has a total" or "on device 0 would". */
static int64_t read_gpu(plim_str s)
{
    static const char *const words[] = {"gpu", "ondevice"};
    for (size_t at = 0; at < s.n; at++)
        for (size_t k = 0; k < PLIM_COUNT(words); k++) {
            size_t end;
            uint64_t index;
            if (text_has(s, at, words[k]) &&
                read_digits(s, at + strlen(words[k]), &end, &index) && index < 1024 &&
                (text_has(s, end, ";") || text_has(s, end, "hasatotal") ||
                 text_has(s, end, "would")))
                return (int64_t)index;
        }
    return -1;
}

/* ---- which version ------------------------------------------------------- */

static bool span_has(plim_str s, const char *words)
{
    for (size_t at = 0; at < s.n; at++)
        if (text_has(s, at, words))
            return true;
    return false;
}

/* Recognises the form of the message.  PyTorch 2.9 names the variable PYTORCH_ALLOC_CONF but
 * ignores expandable_segments in it (pytorch issue 183387); the older name always works.
 * src: docs/sources/caching-allocator.md 13 */
static void read_form(plim_str s, plim_oom_view *v, plim_oom_message *out)
{
    bool old = span_has(s, "alreadyallocated"),
         hint = span_has(s, "tosetting") || span_has(s, "trysetting");
    bool cuda = !span_has(s, "hipoutofmemory");
    v->variable = cuda ? "PYTORCH_CUDA_ALLOC_CONF" : "PYTORCH_HIP_ALLOC_CONF";
    v->absurd = span_has(s, "morethan1eb");
    v->no_expandable = old;
    v->without_limit = span_has(s, "totalcapactyof");
    if (out->source != PLIM_OOM_BY_TORCH || !cuda)
        return;
    if (old)
        out->torch = span_has(s, "cached)")                    ? "1.0 to 1.3"
                     : hint                                    ? "1.10 to 2.0"
                     : span_has(s, "reservedintotalbypytorch") ? "1.4 to 2.0"
                                                               : NULL;
    else if (v->without_limit)
        out->torch = "2.1";
    else if (span_has(s, "pytorch_alloc_conf=expandable"))
        out->torch = "2.9 or 2.10";
    else if (span_has(s, "docs.pytorch.org"))
        out->torch = "2.11 or later";
    else if (span_has(s, "environment-variables"))
        out->torch = "2.2 to 2.8";
    else if (plim_oom_known(&v->number[PLIM_OOM_UNALLOCATED]))
        out->torch = "2.2 or later";
    v->without_limit |= out->torch && !strcmp(out->torch, "2.2 to 2.8");
    v->expandable_on = span_has(s, "virtualaddressspace");
}

/* ---- all of it ----------------------------------------------------------- */

static uint32_t count_known(const plim_oom_number *number)
{
    uint32_t n = 0;
    for (int q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        n += plim_oom_known(&number[q]);
    return n;
}

/* PyTorch's allocator tells more than the others; a message that was cut off tells less
 * than a whole one. */
static uint32_t rank_span(plim_str s, const oom_span *span)
{
    plim_oom_number number[PLIM_OOM_QUANTITY_COUNT];
    if (span->source > PLIM_OOM_BY_MPS)
        return 0;
    read_numbers((plim_str){s.p + span->begin, PLIM_MIN(span->end - span->begin, WINDOW)},
                 number);
    return count_known(number) > 1 ? 2 : 1;
}

plim_status plim_oom_parse(plim_arena *a, plim_str text, plim_oom_view *view,
                           plim_oom_message *out, plim_err *err)
{
    plim_str s = reduce_text(a, text);
    oom_span open = {PLIM_OOM_SOURCE_COUNT, 0, 0}, best = open;
    uint32_t best_rank = 0;
    if (!s.p)
        return plim_oom(err);
    for (size_t at = 0; at <= s.n; at++) {
        const oom_opening *o = at < s.n ? find_opening(s, at) : NULL;
        if ((!o && at < s.n) || (o && out->messages && continues_span(s, &open, o, at)))
            continue;
        open.end = at;
        uint32_t rank = out->messages ? rank_span(s, &open) : 0;
        if (out->messages && rank >= best_rank) {
            best = open;
            best_rank = rank;
        }
        if (!o)
            break;
        open = (oom_span){o->source, at, at};
        out->messages += out->messages < UINT32_MAX;
        at += strlen(o->words) - 1;
    }
    if (!out->messages)
        return plim_fail(err, PLIM_EFORMAT, 0, "no out-of-memory message in the text");
    plim_str span = {s.p + best.begin, PLIM_MIN(best.end - best.begin, WINDOW)};
    out->source = best.source;
    out->gpu = read_gpu(span);
    read_numbers(span, view->number);
    read_form(span, view, out);
    out->numbers = view->number;
    out->n_numbers = PLIM_OOM_QUANTITY_COUNT;
    return read_processes(a, span, out, err);
}
