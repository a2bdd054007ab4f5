/* fuzz_foreign.c -- what is recognised and not read. */
#include "import/foreign.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    const plim_foreign *f = plim_foreign_probe((plim_bytes){.p = p, .n = n});
    plim_assert(!f || f->doc[0]);
    (void)f;
    return 0;
}
