/* import.h -- model files: what is in them, and the graph if there is one.  One file per
 * format, each ending with its descriptor; importers.c holds the only list.
 *
 * A reader gets the file as bytes, copies what it keeps into the arena of what it fills and never
 * touches the weights.  Any input ends in PLIM_OK or in an error that names
 * the offset or the layer; never in a crash. */
#ifndef PLIM_IMPORT_H
#define PLIM_IMPORT_H

#include "core/binding.h"
#include "core/graph.h"
#include "import/inventory.h"

/* The input of a reader. */
typedef struct plim_source {
    plim_bytes bytes;
    const char *path; /* to find files next to it (shards, a configuration); NULL: none */
    bool in_memory;   /* the bytes belong to the caller, and there are no files next to them */
    bool part;        /* one of several parts: leave notes about the whole to the caller */
    bool cut;         /* only the beginning of the file is here, which says what it holds */
    bool names;       /* of an index whose files are not here, a list of names is enough */
} plim_source;

/* Settings that the caller chose, on which others depend; 0: not given. */
typedef struct plim_given {
    int64_t dp, tp, pp, batch;
} plim_given;

/* Bytes of a file that a probe sees; its result if all that the importer has to offer is to say what is wrong. */
enum { PLIM_PROBED = 64 << 10, PLIM_UNSURE = 10 };

typedef struct plim_importer {
    const char *name;
    const char *doc;
    const char *src;
    const char *gives; /* "graph, parameters, training" */
    /* Confidence 0..100; no allocation.  Gets the first PLIM_PROBED bytes, or with `asks` the file. */
    int (*probe)(plim_bytes b);
    bool asks; /* for the bytes that it reads, by plim_bytes_need; else all are there */

    /* Reads the model as ops.  NULL: files of this format hold no graph, and `without` says
     * what to do instead (PLIM_EUNSUPPORTED). */
    plim_status (*read)(plim_graph *g, const plim_source *s, const plim_binding *bind,
                        plim_err *err);
    bool built;   /* built with the op rules: need not be checked against them */
    bool divides; /* builds what one rank of tp, cp and pp has */
    /* What the file says about the run: "tp=2;optimizer=adamw", for settings that are not given, in
     * `a`.  NULL: files of this format say nothing. */
    plim_status (*settings)(const plim_source *s, const plim_given *given, plim_arena *a,
                            const char **out, plim_err *err);
    const char *without; /* "it holds weights, no model: give the folder with config.json" */

    /* Lists what the file holds.  NULL: what its graph says. */
    plim_status (*list)(plim_inventory *v, const plim_source *s, plim_err *err);
} plim_importer;

uint32_t plim_importer_count(void);
const plim_importer *plim_importer_at(uint32_t i);
const plim_importer *plim_importer_probe(plim_bytes b);         /* NULL: not recognised */
int plim_importer_score(const plim_importer *im, plim_bytes b); /* of its probe */
/* The same for a file that is not all in memory: brings what the importer does not ask for. */
plim_status plim_importer_for(plim_bytes b, const plim_importer **out, plim_err *err);

/* ---- files next to the one that was opened ----------------------------------- */

/* Opens the file `name` in the folder of s->path: for shards and the like.  Its bytes have to be asked
 * for (plim_bytes_need).  The name comes from an untrusted file: PLIM_EFORMAT if it is more than a name
 * ("../x", "/x", "a/b", with a NUL).  PLIM_EIO: there is no such file. */
plim_status plim_source_beside(const plim_source *s, plim_str name, plim_arena *a,
                               plim_source *out, plim_err *err);
/* The same, of a folder in it: "unet/config.json", a name of our own. */
plim_status plim_source_under(const plim_source *s, plim_str path, plim_arena *a,
                              plim_source *out, plim_err *err);
const char *plim_part_at(uint32_t i);   /* folders of a pipeline: "unet"; NULL at the end */
void plim_source_close(plim_source *s); /* harmless on {0} */

#endif
