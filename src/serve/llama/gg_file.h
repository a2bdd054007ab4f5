/* gg_file.h -- a model as a GGUF file holds it: read from one, or made of a graph as
 * convert_hf_to_gguf.py names its tensors and llama-quantize chooses their types. */
#ifndef PLIM_SERVE_GG_FILE_H
#define PLIM_SERVE_GG_FILE_H

#include "import/weights/gguf.h"
#include "serve/llama/gg_model.h"
#include "serve/serve.h"

typedef struct plim_gg_tensor {
    plim_str name; /* "ffn_down.weight", without "blk.0." */
    int64_t layer; /* -1: of none */
    int64_t n[3];  /* the fastest-varying first */
    uint64_t elements, bytes;
    uint32_t block; /* elements that a quantized type packs together; 1: the type is not one */
} plim_gg_tensor;

typedef struct plim_gg_file {
    plim_gg_tensor *tensors;
    uint32_t n_tensors, cap_tensors;
    plim_str arch;
    plim_gg_model model;
    plim_gguf_cache kept; /* of a request, in each layer */
    int64_t all_layers;   /* with those that predict further tokens, which are not loaded */
    int64_t embedding;    /* elements of one that an encoder makes */
    bool listed;          /* the architecture is known, */
    bool known;           /* and its graph is built: else it is a guess */
    bool sound;           /* a graph can be built at all */
} plim_gg_file;

/* Of what is served, with the mixture of types `format` ("": of the graph's own type), in
 * s->arena. */
plim_status plim_gg_file_open(const plim_serve_question *s, plim_str format, plim_gg_file *out,
                              plim_err *err);

/* The mixtures of gg_mixtures.def, with what each is; false: past the end. */
#define PLIM_GG_MIXTURES_SRC "llama.cpp src/llama-quant.cpp llama_tensor_get_type_impl"
uint32_t plim_gg_mixture_count(void);
bool plim_gg_mixture_at(uint32_t i, const char **name, const char **doc);

/* Of a file that q->held lists: a sentence about what of the answer is not exact; "": all is. */
plim_status plim_gg_note(const plim_serve_question *q, const char **out, plim_err *err);

#endif
