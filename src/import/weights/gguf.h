/* gguf.h -- what other rooms ask of a GGUF file, besides its inventory. */
#ifndef PLIM_GGUF_H
#define PLIM_GGUF_H

#include "import/import.h"

typedef struct gguf plim_gguf;

/* The metadata of a file, in `a`; the bytes are borrowed. */
plim_status plim_gguf_open(plim_bytes b, plim_arena *a, const plim_gguf **out, plim_err *err);
plim_str plim_gguf_arch(const plim_gguf *f); /* "llama"; "": not given */
/* Value i (for a single value any) of "block_count", which stands for "llama.block_count"; false:
 * it is not there, or no number of 0 and more. */
bool plim_gguf_model_number(const plim_gguf *f, const char *key, uint64_t i, uint64_t *out);

/* The blocks of a type of tensors ("Q4_K"); false: it is not known. */
bool plim_ggml_type_find(plim_str name, uint32_t *elements, uint32_t *bytes);

#endif
