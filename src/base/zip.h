/* zip.h -- members of a zip archive in memory.
 *
 * The central directory is authoritative.  A local header must agree with it in name and
 * method; otherwise it only says where the data starts (in streamed archives, such as torch
 * writes, its sizes are zero).  Every offset and length is checked against the file.  Not
 * read: encryption, several disks, bytes put before the first member, methods other than
 * stored and deflated.
 * src: APPNOTE.TXT 6.3.10, PKWARE */
#ifndef PLIM_ZIP_H
#define PLIM_ZIP_H

#include "base/task.h"

typedef struct plim_zip_entry {
    plim_str name;         /* borrowed from the file, not checked for ".." */
    uint64_t header;       /* offset of the local header */
    uint64_t packed, size; /* bytes in the file; bytes of the member */
    uint32_t crc;
    uint16_t flags, method;
} plim_zip_entry;

typedef struct plim_zip {
    plim_bytes file;
    uint64_t at, end; /* the central directory; members come before it */
} plim_zip;

bool plim_zip_is(plim_bytes file); /* whether it begins like an archive */

/* Finds the directory and checks all of it; allocates nothing. */
plim_status plim_zip_open(plim_zip *z, plim_bytes file, plim_err *err);

/* Members in the directory's order: *cursor starts at 0; false after the last. */
bool plim_zip_next(const plim_zip *z, uint64_t *cursor, plim_zip_entry *out);

/* The member of this name, or of this name in a folder ("model/data.pkl" is "data.pkl"): the
 * least deeply nested one, and of equals the first. */
bool plim_zip_find(const plim_zip *z, const char *name, plim_zip_entry *out);

/* The bytes of a member: a slice of the file if stored, in `a` if deflated.  Its
 * checksum is checked.  PLIM_EUNSUPPORTED if it has more than `limit` bytes. */
plim_status plim_zip_read(const plim_zip *z, const plim_zip_entry *e, plim_arena *a,
                          uint64_t limit, plim_bytes *out, plim_err *err);

/* The same for a member that is used while its checksum is computed, on another thread if it
 * is long.  What was read is valid only if plim_zip_check, called once after plim_zip_begin,
 * succeeds. */
typedef struct plim_zip_member {
    plim_bytes bytes;
    const plim_zip_entry *entry; /* must not move */
    uint32_t crc;
    plim_task task;
} plim_zip_member;

plim_status plim_zip_begin(const plim_zip *z, const plim_zip_entry *e, plim_arena *a,
                           uint64_t limit, plim_zip_member *m, plim_err *err);
plim_status plim_zip_check(plim_zip_member *m, plim_err *err);

#endif
