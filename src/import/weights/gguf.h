/* gguf.h -- what other rooms ask of a GGUF file, besides its inventory. */
#ifndef PLIM_GGUF_H
#define PLIM_GGUF_H

#include "core/cache.h"
#include "import/import.h"

typedef struct gguf plim_gguf;

/* The metadata of a file, in `a`; the bytes are borrowed. */
plim_status plim_gguf_open(plim_bytes b, plim_arena *a, const plim_gguf **out, plim_err *err);
plim_str plim_gguf_arch(const plim_gguf *f); /* "llama"; "": not given */
/* Value i (for a single value any) of "block_count", which stands for "llama.block_count"; false:
 * it is not there, or no number of 0 and more. */
bool plim_gguf_model_number(const plim_gguf *f, const char *key, uint64_t i, uint64_t *out);

/* The largest of its first n values; 0: there is none.  Those above INT32_MAX are no sizes. */
uint64_t plim_gguf_model_most(const plim_gguf *f, const char *key, uint64_t n);

/* What llama.cpp keeps of a request, and how sure that is. */
typedef struct plim_gguf_cache {
    plim_cache cache; /* no kinds: the file has no layers */
    plim_kv_layers
        most; /* that any of the layers may keep, if `doubt` says that they are not known */
    uint64_t
        widest_values; /* elements of each token in the layer that has the most, even if it keeps none */
    bool known;        /* gguf_archs.def has the architecture */
    bool nothing;      /* is kept: texts are read at once, */
    bool encodes;      /* by an encoder */
    bool apart;        /* each sequence has cells of its own, even if others share theirs */
    const char *doubt; /* why it is not exact: "'x.head_rank' is not known"; NULL: it is */
} plim_gguf_cache;
/* In `a`.  PLIM_EFORMAT, PLIM_EUNSUPPORTED, PLIM_ERANGE: the metadata do not say. */
plim_status plim_gguf_cache_read(const plim_gguf *f, plim_arena *a, plim_gguf_cache *out,
                                 plim_err *err);

/* Whether a layer of that architecture has a window, if the metadata have one and do not say which layers do. */
bool plim_gguf_arch_window(plim_str arch, uint64_t layer);

/* The blocks of a type of tensors ("Q4_K"); false: it is not known. */
bool plim_ggml_type_find(plim_str name, uint32_t *elements, uint32_t *bytes);

#endif
