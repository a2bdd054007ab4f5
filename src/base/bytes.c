/* bytes.c -- bytes that are asked for in order: base.h, "files". */
#include "base/base.h"

plim_status plim_bytes_ahead(plim_bytes b, uint64_t *there, uint64_t at, uint64_t n,
                             plim_err *err)
{
    enum { AFTER_A_HOLE = 4 << 10, GOING_ON = 256 << 10 };
    if (!b.file || (at <= *there && n <= *there - at))
        return PLIM_OK;
    uint64_t more = *there && at <= *there ? GOING_ON : AFTER_A_HOLE;
    n = PLIM_MAX(n, PLIM_MIN(more, b.n - at));
    plim_status st = plim_bytes_need(b, at, n, err);
    if (!st)
        *there = at + n;
    return st;
}
