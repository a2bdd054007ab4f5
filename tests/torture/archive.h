/* archive.h -- zip archives and gzip files of mutants: what is in them, and the same written
 * again, with sizes and checksums that are right. */
#ifndef TORTURE_ARCHIVE_H
#define TORTURE_ARCHIVE_H

#include "tree.h"

typedef struct archive_member {
    tree_span name, data;
} archive_member;

typedef struct archive {
    archive_member *member;
    uint32_t n;
} archive;

/* false: it is not an archive that can be taken apart. */
bool archive_read(tree_arena *a, tree_span file, archive *out);
/* Members are stored, not packed. */
void archive_write(const archive *z, tree_buf *out);

bool gzip_read(tree_arena *a, tree_span file, tree_span *out);
void gzip_write(tree_span data, tree_buf *out);

#endif
