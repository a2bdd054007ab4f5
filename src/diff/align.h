/* align.h -- which requests of one tape are which of another.
 *
 * The requests of a tape are a sequence: sizes that are allocated and freed.  Two sequences are
 * aligned as `diff` aligns the lines of two files: as few requests as possible remain without a
 * partner.  The work is bounded, so that of two long sequences with little in common a good
 * alignment is found rather than the best. */
#ifndef PLIM_ALIGN_H
#define PLIM_ALIGN_H

#include "core/tape.h"

typedef struct plim_request {
    uint64_t bytes, low,
        high;                /* low and high: bounds of a size that is not exact, else bytes */
    uint64_t name;           /* a hash of the storage's name and role; 0: it has none */
    uint32_t event, storage; /* indices of the tape */
    bool frees;
} plim_request;

/* The allocations and frees of a tape, in order; those of 0 bytes, which no allocator serves,
 * are left out. */
typedef struct plim_requests {
    plim_request *at;
    uint32_t n;
} plim_requests;
plim_status plim_requests_of(plim_requests *out, const plim_tape *t, plim_arena *a,
                             plim_err *err);

/* When two requests, both allocations or both frees, may be the same one. */
typedef struct plim_likeness {
    bool name; /* the names are equal */
    bool size; /* the sizes are equal; one that is not exact equals each within its bounds */
    uint64_t times, per; /* with `size`: or those of the second are times / per of the first;
                            times 0: not so */
} plim_likeness;
bool plim_request_alike(const plim_request *a, const plim_request *b,
                        const plim_likeness *how);

/* partner[i] is the request of b that request i of a is; PLIM_NONE: none.  Partners ascend; those
 * that are given stay, and partners are found for the requests between them. */
plim_status plim_align(const plim_requests *a, const plim_requests *b,
                       const plim_likeness *how, uint32_t *partner, plim_err *err);

#endif
