/* fuzz_log.c -- any text as a log: figures are sizes of memory, those of a part of the lines are not larger
 * than those of all, and all is the same in two parts. */
#include <stdlib.h>

#include "trace/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* A text that ends in its middle, or goes on. */
static void read_parts(plim_log *out, const uint8_t *p, size_t n, size_t cut)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_log_reader *r = plim_log_reader_new(&a, out);
    size_t done = plim_log_take(r, (plim_str){(const char *)p, cut}, cut == n);
    if (cut < n)
        plim_log_take(r, (plim_str){(const char *)p + done, n - done}, true);
    plim_arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_log all, half, parts;
    size_t cut = n / 2;
    read_parts(&all, p, n, n);
    read_parts(&parts, p, n, cut);
    while (cut < n && p[cut] != '\n')
        cut++;
    read_parts(&half, p, cut, cut);
    if (parts.source != all.source || parts.lines != all.lines)
        abort();
    if ((all.source != NULL) != (all.lines != 0) || half.lines > all.lines)
        abort();
    for (int q = 0; q < PLIM_LOG_QUANTITIES; q++) {
        const plim_log_figure a = all.figure[q], h = half.figure[q];
        if (parts.figure[q].known != a.known || parts.figure[q].bytes != a.bytes)
            abort();
        if (a.bytes >= UINT64_C(1) << 60 || h.bytes > a.bytes || (h.known && !a.known))
            abort();
    }
    return 0;
}
