/* import.h -- model files into graphs.  One file a format, each ending in its
 * descriptor; importers.c holds the only list.
 *
 * Readers get the whole file as bytes (mapped), copy what they keep into
 * graph->arena and never touch the weights.  Any input ends in PLIM_OK or in
 * an error that names the offset or the layer; never in a crash. */
#ifndef PLIM_IMPORT_H
#define PLIM_IMPORT_H

#include "core/graph.h"

/* What the user fixes of a model whose sizes are symbols.  All optional. */
typedef struct plim_binding {
    int64_t batch; /* 0: the file's own hint */
    int64_t seq;   /* 0: likewise */
    const struct plim_input_shape {
        plim_str name; /* "": the first input */
        int32_t rank;
        int64_t dim[PLIM_MAX_RANK];
    } * inputs;
    uint32_t n_inputs;
    bool infer; /* built-in models: the graph of model.eval() */
} plim_binding;

typedef struct plim_importer {
    const char *name;
    const char *doc;
    const char *src;
    const char *gives;          /* "graph, parameters, training" */
    int (*probe)(plim_bytes b); /* 0..100 from the first bytes; no allocation */
    plim_status (*read)(plim_graph *g, plim_bytes b, const plim_binding *bind, plim_err *err);
} plim_importer;

uint32_t plim_importer_count(void);
const plim_importer *plim_importer_at(uint32_t i);
const plim_importer *plim_importer_probe(plim_bytes b); /* NULL: no format is sure */

#endif
