/* gguf_priv.h -- shared by the files that read GGUF; each calls only those above it:
 *
 *     gguf_meta.c   bytes and metadata
 *     gguf_cache.c  what is kept of a request
 *     gguf_facts.c  what the metadata says about the model
 *     gguf.c        tensors, models in several files, the importer
 *
 * A file is walked once, front to back, up to the data of its tensors. */
#ifndef PLIM_GGUF_PRIV_H
#define PLIM_GGUF_PRIV_H

#include "import/import.h"
#include "import/weights/gguf.h"

/* src: gguf.h enum gguf_type */
typedef enum gguf_type {
    GGUF_U8,
    GGUF_I8,
    GGUF_U16,
    GGUF_I16,
    GGUF_U32,
    GGUF_I32,
    GGUF_F32,
    GGUF_BOOL,
    GGUF_STRING,
    GGUF_ARRAY,
    GGUF_U64,
    GGUF_I64,
    GGUF_F64,
    GGUF_TYPES
} gguf_type;

typedef struct gguf_kv {
    plim_str key; /* borrowed from the file */
    gguf_type type;
    bool array;     /* an array of `type` */
    uint64_t at, n; /* offset of the (first) value; how many */
} gguf_kv;

typedef struct gguf {
    plim_bytes b;
    uint64_t at, limit; /* limit: end of what may be read */
    uint64_t there;     /* see plim_bytes_ahead */
    bool big;           /* big-endian */
    plim_status bad;    /* the first error; after it all reads return 0 */
    plim_err *err;
    uint32_t version;
    uint64_t n_tensors;
    plim_str arch; /* "llama"; "": not given */
    gguf_kv *kvs;
    uint32_t n_kvs, cap_kvs;
} gguf;

/* ---- gguf_meta.c -------------------------------------------------------------------- */

/* Opens b and reads its metadata; the tensors come next. */
plim_status plim_gguf_read_metadata(gguf *f, plim_bytes b, plim_arena *a, plim_err *err);

/* The next bytes of the file, part of `what` ("a tensor", for the message if it is cut
 * off). */
uint64_t plim_gguf_read_uint(gguf *f, uint32_t width, const char *what);
uint32_t plim_gguf_read_u32(gguf *f, const char *what);
plim_str plim_gguf_read_str(gguf *f, const char *what);

/* NULL: not there.  The second form takes "block_count" for "llama.block_count". */
const gguf_kv *plim_gguf_find(const gguf *f, const char *key);
const gguf_kv *plim_gguf_of_model(const gguf *f, const char *key);

/* Of a key "llama.block_count" what follows the architecture's name; "": it is none of its. */
plim_str plim_gguf_own_key(const gguf *f, plim_str key);

/* Value i as a number; for a single value any i.  false: there is none, it is not an integer,
 * or it is negative. */
bool plim_gguf_number(const gguf *f, const gguf_kv *kv, uint64_t i, uint64_t *out);
/* A single string. */
bool plim_gguf_string(const gguf *f, const gguf_kv *kv, plim_str *out);

/* ---- gguf_facts.c -------------------------------------------------------------------- */

/* Called once all tensors, the items from `first` on, are known.  _check_layers: PLIM_EFORMAT if their
 * layers are not those that the metadata give. */
plim_status plim_gguf_check_layers(const gguf *f, const plim_inventory *v, uint32_t first,
                                   plim_err *err);
plim_status plim_gguf_facts(const gguf *f, plim_inventory *v, uint32_t first, plim_err *err);

#endif
