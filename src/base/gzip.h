/* gzip.h -- a gzip file, inflated piece by piece.
 *
 * Members follow one another as their concatenation, and the checksum of each is checked.  How
 * much may come out is limited in proportion to the file, so that a small file cannot cost
 * much time.
 * src: RFC 1952 */
#ifndef PLIM_GZIP_H
#define PLIM_GZIP_H

#include "base/base.h"

typedef struct plim_gzip {
    plim_bytes file;
    uint64_t next;         /* byte of the file that zlib has not got yet */
    uint64_t given, limit; /* bytes that came out; that may */
    void *stream;          /* of zlib */
    uint8_t *piece;        /* of the file; NULL: all of it is in memory */
    bool cut;              /* the file ends within a member */
} plim_gzip;

bool plim_gzip_is(plim_bytes file);
plim_status plim_gzip_open(plim_gzip *g, plim_arena *a, plim_bytes file, plim_err *err);

/* The next bytes, at most n; *got is 0 at the end, and only there. */
plim_status plim_gzip_read(plim_gzip *g, char *out, uint64_t n, uint64_t *got, plim_err *err);

#endif
