/* import.h -- model files: what is in them, and the graph where there is one.
 * One file a format, each ending in its descriptor; importers.c holds the only
 * list.
 *
 * Readers get the whole file as bytes (mapped), copy what they keep into the
 * arena of what they fill and never touch the weights.  Any input ends in
 * PLIM_OK or in an error that names the offset or the layer; never in a crash. */
#ifndef PLIM_IMPORT_H
#define PLIM_IMPORT_H

#include "core/binding.h"
#include "core/graph.h"
#include "import/inventory.h"

/* What a reader is given. */
typedef struct plim_source {
    plim_bytes bytes;
    const char *path; /* as it was opened, for the files beside it (shards, a
                         configuration); NULL: nothing is beside it */
    bool in_memory;   /* the bytes are the caller's, and nothing is beside them */
    bool part;        /* one of several that make up a whole: what is true of that only is left
                  to who reads them all */
} plim_source;

typedef struct plim_importer {
    const char *name;
    const char *doc;
    const char *src;
    const char *gives;          /* "graph, parameters, training" */
    int (*probe)(plim_bytes b); /* 0..100 from the first bytes; no allocation */

    /* The model as ops.  NULL: files of this format hold none, and `without` says what
     * to do instead (PLIM_EUNSUPPORTED). */
    plim_status (*read)(plim_graph *g, const plim_source *s, const plim_binding *bind,
                        plim_err *err);
    bool built;          /* written by the op rules, so that these need not be tried on it */
    const char *without; /* "it holds weights, no model: give the folder with config.json" */

    /* What the file holds.  NULL: what its graph says. */
    plim_status (*list)(plim_inventory *v, const plim_source *s, plim_err *err);
} plim_importer;

uint32_t plim_importer_count(void);
const plim_importer *plim_importer_at(uint32_t i);
const plim_importer *plim_importer_probe(plim_bytes b); /* NULL: no format is sure */

/* ---- files beside the one that was opened ------------------------------------ */

/* Maps the file `name` in the folder of s->path: for shards and the like.  The
 * name comes from an untrusted file: PLIM_EFORMAT if it is more than
 * a name ("../x", "/x", "a/b", with a NUL).  PLIM_EIO: it is not there. */
plim_status plim_source_beside(const plim_source *s, plim_str name, plim_arena *a,
                               plim_source *out, plim_err *err);
void plim_source_close(plim_source *s); /* harmless on {0} */

#endif
