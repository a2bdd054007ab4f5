/* model.h -- what the user calls a model: a built-in name, a file, a folder or the id of a
 * model of the Hugging Face hub, which is fetched into a cache of this machine.
 * Opened once, made into a graph for as many sizes as are asked for. */
#ifndef PLIM_MODEL_H
#define PLIM_MODEL_H

#include "hub/hub.h"
#include "import/import.h"

struct plim_model {   /* plim_model of plimsoll.h */
    plim_arena arena; /* of a handle: it stands in it itself */
    plim_str text;    /* as given */
    plim_str name;    /* built-in: the text; a file: its name without folder and suffix; what
                      stands in a folder under a name that all such folders use: the
                      folder's */
    plim_str origin;  /* of a model of the hub: its commit, and which cache it is from */
    plim_str shown;   /* name, NUL-terminated, of a handle */
    const plim_importer *importer; /* NULL: built in */
    plim_source source;            /* mapped while the model is open */
};

/* What a message calls the file: the path or, as that of a cache would fill the line, the id. */
static inline const char *plim_model_subject(const plim_model *m)
{
    return m->origin.n ? m->text.p : m->source.path;
}

/* In this order: a path with a '/' that exists; a name that the zoo has, though a file may
 * be called the same; any other path; an id that a cache has (hub.h).  In a folder the
 * file is taken that says most (model.c has the list).  PLIM_EIO and PLIM_EFORMAT
 * name the file, which is closed by plim_model_close then, too.  Paths are in `a`. */
plim_status plim_model_find(plim_model *m, plim_arena *a, const char *text, plim_err *err);
/* Fetches what plim_model_find would look for in a cache in vain; `offline`: says so instead, as it does
 * where the environment forbids the network.  Whatever else the text is is left to plim_model_find. */
plim_status plim_model_fetch_text(plim_arena *a, const char *text, bool offline,
                                  const plim_hub_watch *watch, plim_err *err);
/* The bytes of a file, which is called `name`; both are borrowed. */
plim_status plim_model_of_bytes(plim_model *m, const char *name, plim_bytes bytes,
                                plim_err *err);
void plim_model_close(plim_model *m); /* harmless on {0} */

/* The graph for these sizes, in `a`.  Rules that disagree with the shapes that
 * a file gives are dropped from their nodes: such an op counts as unknown. */
plim_status plim_model_graph(const plim_model *m, const plim_binding *bind, plim_arena *a,
                             plim_graph *g, plim_err *err);

/* What it holds, in `a`.  A file without a graph, or with one that cannot be built, is no
 * error if it can be listed: *graph then says so, and a note why.  *g is the graph. */
plim_status plim_model_list(const plim_model *m, const plim_binding *bind, plim_arena *a,
                            plim_inventory *v, plim_graph *g, bool *graph, plim_err *err);

#endif
