/* cells.c -- makes cells: see report.h. */
#include "report/report.h"

plim_cell plim_cell_text(const char *z)
{
    return (plim_cell){.kind = PLIM_CELL_TEXT, .text = z ? z : ""};
}

plim_cell plim_cell_u64(plim_cell_kind kind, uint64_t n)
{
    return (plim_cell){.kind = kind, .n = n};
}

plim_cell plim_cell_bytes_if(bool known, uint64_t n)
{
    return plim_cell_u64(known ? PLIM_CELL_BYTES : PLIM_CELL_UNKNOWN, n);
}

plim_cell plim_cell_int(int64_t v)
{
    uint64_t n = v < 0 ? -(uint64_t)v : (uint64_t)v;
    return (plim_cell){.kind = PLIM_CELL_INT, .n = n, .negative = v < 0};
}

plim_cell plim_cell_delta(uint64_t a, uint64_t b)
{
    return (plim_cell){.kind = PLIM_CELL_DELTA, .n = a < b ? b - a : a - b, .negative = a < b};
}

plim_cell plim_cell_range(uint64_t low, uint64_t high)
{
    return (plim_cell){.kind = PLIM_CELL_RANGE, .n = low, .high = high};
}

plim_cell plim_cell_bool(bool v) { return (plim_cell){.kind = PLIM_CELL_BOOL, .n = v}; }

plim_cell plim_cell_rate(double v)
{
    return (plim_cell){.kind = v > 0 ? PLIM_CELL_REAL : PLIM_CELL_UNKNOWN, .real = v};
}

plim_cell plim_cell_digits(double v)
{
    return (plim_cell){.kind = v > 0 ? PLIM_CELL_DIGITS : PLIM_CELL_UNKNOWN, .real = v};
}

plim_cell plim_cell_shape(int rank, const int64_t *dim)
{
    plim_assert(rank >= -1 && (dim || rank <= 0)); /* -1: unknown */
    return (plim_cell){.kind = PLIM_CELL_SHAPE, .dim = dim, .rank = PLIM_MIN(rank, 8)};
}
