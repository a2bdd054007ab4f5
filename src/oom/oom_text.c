/* oom_text.c -- reads the numbers of a message: see oom.h.
 *
 * The text is first reduced to what the words are recognised by: lower case, without
 * white space, terminal colours and the prefixes that loggers put before each line.
 * A message that was wrapped anywhere is then the same as one that was not.  Of the
 * reduced text no more is kept than a message may have. */
#include "base/fmt.h"
#include "base/needles.h"
#include "oom/oom.h"

enum {
    PREFIX_MAX = 80, /* longest [group], date or colour at the beginning of a line */
    WINDOW = 4096,   /* longest message, with many processes */
    ROOM = 64 << 10, /* for reduced text: a message, and much that is not searched yet */
    HEAD_MAX = 200   /* "MPS backend out of memory (...)" before "Tried to allocate" */
};

/* One message: from its opening to the next, or to the end. */
typedef struct oom_span {
    plim_oom_source source;
    bool tried; /* it begins with "Tried to allocate" */
    size_t begin;
} oom_span;

struct plim_oom_reader {
    plim_needles openings, labels;
    uint8_t kind[256];  /* of bytes, by name_kinds */
    bool in_prefix;     /* what comes may belong to the prefix of a line */
    char text[ROOM];    /* reduced */
    size_t n, searched; /* its bytes, and those of them at which no other opening begins */
    bool is_open;       /* a message, */
    oom_span open;      /* which is this */
    uint32_t messages;
    uint32_t rank; /* of the best message so far */
    plim_oom_source source;
    char best[WINDOW];
    size_t n_best;
};

/* ---- the reduced text ---------------------------------------------------- */

static bool is_digit(char c) { return c >= '0' && c <= '9'; }
static bool is_space(char c) { return c == ' ' || (c >= '\t' && c <= '\r') || !c; }

/* The end of the terminal sequence that begins at i, or i if none does. */
static size_t skip_escape(plim_str s, size_t i)
{
    size_t most = PLIM_MIN(s.n, i + PREFIX_MAX);
    if (s.p[i] != '\x1b')
        return i;
    if (++i == s.n || s.p[i] != '[')
        return i;
    for (i++; i < most && (s.p[i] < '@' || s.p[i] > '~'); i++)
        if (is_space(s.p[i]) && s.p[i] != ' ')
            return i; /* cut off */
    return i < most ? i + 1 : i;
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

static const char *const levels[] = {"ERROR", "WARNING", "INFO", "DEBUG", "CRITICAL"};

/* The end of a word at i that is a date, a time or a level of a logger; else i. */
static size_t skip_stamp(plim_str s, size_t i)
{
    bool stamp = false, dated = is_digit(s.p[i]);
    size_t end = i, most = PLIM_MIN(s.n, i + PREFIX_MAX);
    for (; end < most && !is_space(s.p[end]); end++)
        stamp |= dated && (s.p[end] == ':' || s.p[end] == '-');
    for (size_t k = 0; k < PLIM_COUNT(levels); k++)
        stamp |= plim_str_is((plim_str){s.p + i, end - i}, levels[k]);
    return stamp && end < i + PREFIX_MAX ? end : i;
}

/* Kinds of bytes. */
enum {
    KEPT = 1,       /* in the reduced text */
    LOOKED_AT = 2,  /* with what follows it */
    MARK = 4,       /* before a line that is quoted, or in a table */
    MAY_PREFIX = 8, /* a part of a prefix may begin so */
};

static bool is_any(const char *of, char c) { return c && strchr(of, c); }

static void name_kinds(uint8_t kind[256])
{
    for (int i = 0; i < 256; i++) {
        char c = (char)i;
        bool looked_at = is_any("\n\x1b\\", c), mark = is_any(" \t#>|*", c),
             prefix = mark || is_digit(c) || is_any("\x1b[(", c);
        for (size_t k = 0; k < PLIM_COUNT(levels); k++)
            prefix |= c == levels[k][0];
        int kinds = looked_at ? LOOKED_AT : is_space(c) ? 0 : KEPT;
        kind[i] = (uint8_t)(kinds | (mark ? MARK : 0) | (prefix ? MAY_PREFIX : 0));
    }
}

static int kind_of(const plim_oom_reader *r, char c) { return r->kind[(uint8_t)c]; }

/* The end of the next part of a line's prefix, which begins at i; i: there is none. */
static size_t skip_part(const plim_oom_reader *r, plim_str s, size_t i)
{
    size_t end = i;
    while (end < s.n && kind_of(r, s.p[end]) & MARK)
        end++;
    if (end == i)
        end = skip_escape(s, i);
    if (end == i)
        end = skip_group(s, i);
    return end > i ? end : skip_stamp(s, i);
}

/* Up to a byte that is looked at, or the end of the room. */
static size_t reduce_plain(plim_oom_reader *r, plim_str s, size_t i)
{
    size_t most = PLIM_MIN(s.n, i + (ROOM - r->n)), n = r->n;
    for (; i < most; i++) {
        int kind = kind_of(r, s.p[i]);
        if (kind & LOOKED_AT)
            break;
        r->text[n] = plim_lower(s.p[i]);
        n += kind & KEPT;
    }
    r->n = n;
    return i;
}

static size_t reduce_looked_at(plim_oom_reader *r, plim_str s, size_t i)
{
    if (s.p[i] == '\x1b')
        return skip_escape(s, i);
    if (s.p[i] == '\n')
        r->in_prefix = true;
    else if (i + 1 < s.n && s.p[i + 1] == 'n')
        return i + 2; /* a line end in a string that was printed as source */
    else
        r->text[r->n++] = s.p[i];
    return i + 1;
}

/* As much as there is room for, and as does not depend on what follows the text, unless it is the last. */
static size_t reduce_text(plim_oom_reader *r, plim_str s, bool last)
{
    size_t i = 0;
    while (i < s.n && r->n < ROOM) {
        int kind = kind_of(r, s.p[i]) & (r->in_prefix ? MAY_PREFIX : LOOKED_AT);
        if (kind && !last && s.n - i < PREFIX_MAX + 2)
            break;
        if (kind == LOOKED_AT) {
            i = reduce_looked_at(r, s, i);
            continue;
        }
        size_t end = kind ? skip_part(r, s, i) : i;
        r->in_prefix = end > i;
        i = r->in_prefix ? end : reduce_plain(r, s, i);
    }
    return i;
}

/* ---- where messages begin ------------------------------------------------ */

typedef struct oom_opening {
    const char *words; /* reduced */
    plim_oom_source source;
} oom_opening;

static const char tried_words[] = "triedtoallocate",
                  malloc_words[] = "cudamallocfailed:outofmemory";

/* src: docs/sources/caching-allocator.md 13; the others from public reports */
static const oom_opening openings[] = {
    {"mpsbackendoutofmemory", PLIM_OOM_BY_MPS},
    {"defaultcpuallocator", PLIM_OOM_BY_HOST},
    {"allocationondevice", PLIM_OOM_BY_ASYNC},
    {tried_words, PLIM_OOM_BY_TORCH},
    {"cudaoutofmemory", PLIM_OOM_BY_TORCH},
    {"hipoutofmemory", PLIM_OOM_BY_TORCH},
    {"xpuoutofmemory", PLIM_OOM_BY_TORCH},
    {"npuoutofmemory", PLIM_OOM_BY_TORCH},
    {"musaoutofmemory", PLIM_OOM_BY_TORCH},
    {"cudaerror:outofmemory", PLIM_OOM_BY_CUDA},
    {"cudaruntimeerror(2):outofmemory", PLIM_OOM_BY_CUDA},
    {"cudaerrormemoryallocation", PLIM_OOM_BY_CUDA},
    {"cuda_error_out_of_memory", PLIM_OOM_BY_CUDA},
    {"cudaruntime(outofmemory)", PLIM_OOM_BY_CUDA}, /* TensorRT */
    {"cudafailure'outofmemory'", PLIM_OOM_BY_CUDA}, /* NCCL */
    {"cudafailure2'outofmemory'", PLIM_OOM_BY_CUDA},
    {"cublas_status_alloc_failed", PLIM_OOM_BY_CUBLAS},
    {"cublas_status_not_initialized", PLIM_OOM_BY_CUBLAS},
    {"cudnn_status_alloc_failed", PLIM_OOM_BY_CUDNN},
    {"cudnn_status_not_initialized", PLIM_OOM_BY_CUDNN},
    {"outofmemorywhiletryingtoallocate", PLIM_OOM_BY_JAX},
    {"resource_exhausted:outofmemoryallocating", PLIM_OOM_BY_JAX},
    {"failedtoallocaterequestfor", PLIM_OOM_BY_JAX},
    {"ranoutofmemoryinmemoryspace", PLIM_OOM_BY_JAX}, /* of a TPU */
    {"oomwhenallocatingtensor", PLIM_OOM_BY_TENSORFLOW},
    {"ranoutofmemorytryingtoallocate", PLIM_OOM_BY_TENSORFLOW},
    {"alloc_buffer:allocating", PLIM_OOM_BY_LLAMA_CPP},
    {malloc_words, PLIM_OOM_BY_LLAMA_CPP},
    {"ggml_vulkan:devicememoryallocation", PLIM_OOM_BY_LLAMA_CPP},
    {"noavailablememoryforthecacheblocks", PLIM_OOM_BY_VLLM},
    {"toserveatleastonerequestwith", PLIM_OOM_BY_VLLM},
    {"onstartupislessthandesiredgpumemoryutilization", PLIM_OOM_BY_VLLM},
    {"outofmemoryallocating", PLIM_OOM_BY_CUPY},
};

static bool text_has(plim_str s, size_t at, const char *words)
{
    size_t n = strlen(words);
    return at <= s.n && n <= s.n - at && !memcmp(s.p + at, words, n);
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

/* digits[.digits] and a unit's power of two, as bytes; unknown if it is not a size of memory.
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

/* The words next to each number.  src: docs/sources/caching-allocator.md 13, and public
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
    {PLIM_OOM_TRIED, true, "failedtoallocaterequestfor"},
    {PLIM_OOM_TRIED, true, "alloc_buffer:allocating"},
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

static void read_numbers(const plim_oom_reader *r, plim_str s,
                         plim_oom_number number[PLIM_OOM_QUANTITY_COUNT])
{
    for (size_t q = 0; q < PLIM_OOM_QUANTITY_COUNT; q++)
        number[q] = no_number();
    for (plim_needle m = PLIM_NEEDLE_FROM(0); plim_needles_next(&r->labels, s, &m);) {
        plim_oom_number *n = &number[labels[m.word].quantity];
        if (!plim_oom_known(n))
            *n = labels[m.word].after ? number_after(s, m.at + strlen(labels[m.word].words))
                                      : number_before(s, m.at);
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
        plim_oom_number *memory = PLIM_NEW(a, plim_oom_number);
        if (!p || !memory || !PLIM_PUSH_ROOM(a, list, n, cap))
            return plim_oom(err);
        *memory = number_after(s, end + strlen("has"));
        *p = (plim_oom_process){pid, plim_oom_known(memory) ? memory : NULL};
        list[n++] = p;
    }
    out->processes = list;
    out->n_processes = n;
    return PLIM_OK;
}

/* The index in "(GPU 0;", "GPU 0 has a total", "on device 0 would" or "on device 0: cudaMalloc". */
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
                 text_has(s, end, "would") || text_has(s, end, ":cudamalloc")))
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

/* The last is taken if the message does not say. */
static const plim_oom_device devices[] = {
    {"hipoutofmemory", "AMD", "PYTORCH_HIP_ALLOC_CONF", "rocm-smi"},
    {"xpuoutofmemory", "Intel", NULL, "xpu-smi ps"},
    {"npuoutofmemory", "Huawei", "PYTORCH_NPU_ALLOC_CONF", "npu-smi info"},
    {"musaoutofmemory", "Moore Threads", "PYTORCH_MUSA_ALLOC_CONF", "mthreads-gmi"},
    {"", "NVIDIA", "PYTORCH_CUDA_ALLOC_CONF", "nvidia-smi"},
};
static const plim_oom_device *const nvidia = &devices[PLIM_COUNT(devices) - 1];

static const plim_oom_device *read_device(plim_str s)
{
    const plim_oom_device *d = devices;
    while (!span_has(s, d->words))
        d++;
    return d;
}

/* Recognises the form of the message.  PyTorch 2.9 names the variable PYTORCH_ALLOC_CONF but
 * ignores expandable_segments in it (pytorch issue 183387); the older name always works.
 * src: docs/sources/caching-allocator.md 13 */
static void read_form(plim_str s, plim_oom_view *v, plim_oom_message *out)
{
    bool old = span_has(s, "alreadyallocated"),
         hint = span_has(s, "tosetting") || span_has(s, "trysetting");
    v->device = read_device(s);
    v->absurd = span_has(s, "morethan1eb");
    v->no_expandable = old;
    v->without_limit = span_has(s, "totalcapactyof");
    if (out->source != PLIM_OOM_BY_TORCH || v->device != nvidia)
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
static uint32_t rank_span(const plim_oom_reader *r, plim_str s)
{
    plim_oom_number number[PLIM_OOM_QUANTITY_COUNT];
    if (r->open.source > PLIM_OOM_BY_MPS)
        return 0;
    read_numbers(r, s, number);
    return count_known(number) > 1 ? 2 : 1;
}

/* The open message ends here: of the best, the last counts. */
static void close_span(plim_oom_reader *r, size_t end)
{
    if (!r->is_open)
        return;
    r->is_open = false;
    plim_str s = {r->text + r->open.begin, PLIM_MIN(end - r->open.begin, (size_t)WINDOW)};
    uint32_t rank = rank_span(r, s);
    if (rank < r->rank)
        return;
    r->rank = rank;
    r->source = r->open.source;
    r->n_best = s.n;
    memcpy(r->best, s.p, s.n);
}

/* "Tried to allocate", or "cudaMalloc failed", may be the second half of a message that is open already. */
static bool continues_span(const plim_oom_reader *r, const oom_opening *o, size_t at)
{
    const oom_span *open = &r->open;
    if (!r->is_open || at - open->begin >= HEAD_MAX)
        return false;
    if (o->words == malloc_words)
        return open->source == PLIM_OOM_BY_LLAMA_CPP;
    return o->words == tried_words && !open->tried &&
           (open->source == PLIM_OOM_BY_TORCH || open->source == PLIM_OOM_BY_MPS ||
            open->source == PLIM_OOM_BY_HOST);
}

static void open_span(plim_oom_reader *r, const oom_opening *o, size_t at)
{
    close_span(r, at);
    r->is_open = true;
    r->open = (oom_span){o->source, o->words == tried_words, at};
    r->messages += r->messages < UINT32_MAX;
}

/* What was searched and belongs to no open message is needed no more. */
static void drop_text(plim_oom_reader *r)
{
    size_t gone = r->is_open ? r->open.begin : r->searched;
    memmove(r->text, r->text + gone, r->n - gone);
    r->n -= gone;
    r->searched -= gone;
    r->open.begin = 0;
}

static void search_text(plim_oom_reader *r, bool last)
{
    plim_str s = {r->text, r->n};
    for (plim_needle m = PLIM_NEEDLE_FROM(r->searched); plim_needles_next(&r->openings, s, &m);
         m = PLIM_NEEDLE_FROM(r->searched)) {
        const oom_opening *o = &openings[m.word];
        bool continues = continues_span(r, o, m.at);
        if (!continues)
            open_span(r, o, m.at);
        r->searched = m.at + (continues ? 1 : strlen(o->words));
    }
    /* the last bytes may begin another */
    r->searched = PLIM_MAX(r->searched, r->n - PLIM_MIN(r->n, r->openings.longest - 1));
    if (last || r->searched - r->open.begin >= WINDOW)
        close_span(r, r->n);
    drop_text(r);
}

plim_oom_reader *plim_oom_reader_new(plim_arena *a)
{
    plim_oom_reader *r = PLIM_NEW(a, plim_oom_reader);
    if (!r)
        return NULL;
    plim_needles_init(&r->openings, &openings[0].words, sizeof openings[0],
                      PLIM_COUNT(openings));
    plim_needles_init(&r->labels, &labels[0].words, sizeof labels[0], PLIM_COUNT(labels));
    name_kinds(r->kind);
    r->in_prefix = true;
    return r;
}

size_t plim_oom_take(void *reader, plim_str text, bool last)
{
    plim_oom_reader *r = reader;
    size_t done = 0, more;
    do {
        more = reduce_text(r, (plim_str){text.p + done, text.n - done}, last);
        done += more;
        search_text(r, last && done == text.n);
    } while (more && done < text.n);
    return done;
}

plim_status plim_oom_parse(plim_arena *a, const plim_oom_reader *r, plim_oom_view *view,
                           plim_oom_message *out, plim_err *err)
{
    if (!r->messages)
        return plim_fail(err, PLIM_EFORMAT, 0, "no out-of-memory message in the text");
    plim_str span = {r->best, r->n_best};
    out->messages = r->messages;
    out->source = r->source;
    out->gpu = read_gpu(span);
    out->gpu_known = out->gpu >= 0;
    read_numbers(r, span, view->number);
    read_form(span, view, out);
    return read_processes(a, span, out, err);
}
