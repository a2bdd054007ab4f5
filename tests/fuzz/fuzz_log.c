/* fuzz_log.c -- any text as a log: figures are sizes of memory, and those of a part of the lines
 * are not larger than those of all. */
#include <stdlib.h>

#include "trace/log.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_log all, half;
    size_t cut = n / 2;
    while (cut < n && p[cut] != '\n')
        cut++;
    plim_log_read(&all, (plim_bytes){.p = p, .n = n});
    plim_log_read(&half, (plim_bytes){.p = p, .n = cut});
    if ((all.source != NULL) != (all.lines != 0) || half.lines > all.lines)
        abort();
    for (int q = 0; q < PLIM_LOG_QUANTITIES; q++) {
        const plim_log_figure a = all.figure[q], h = half.figure[q];
        if (a.bytes >= UINT64_C(1) << 60 || h.bytes > a.bytes || (h.known && !a.known))
            abort();
    }
    return 0;
}
