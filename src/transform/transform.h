/* transform.h -- changes of a model before it runs, graph to graph: frozen parameters,
 * packed weights, adapters, a fused loss. */
#ifndef PLIM_TRANSFORM_H
#define PLIM_TRANSFORM_H

#include "core/graph.h"

typedef enum plim_adapter_bias {
    PLIM_BIAS_NONE,
    PLIM_BIAS_ALL,
    PLIM_BIAS_TARGETS
} plim_adapter_bias;

enum { PLIM_ADAPTER_ITEMS = 6 };

/* A method of peft that puts something trained in the place of modules: LoRA and others, a row of
 * adapters.def each. */
typedef struct plim_adapter {
    const struct plim_adapter_method *method; /* NULL: none */
    plim_str targets; /* "q_proj+v_proj", "all-linear"; "": those of the model's family */
    plim_str saved;   /* modules that are trained whole, besides the adapters: "lm_head" */
    plim_adapter_bias bias;          /* those that are trained, besides the adapters */
    plim_str text;                   /* the method's own */
    double item[PLIM_ADAPTER_ITEMS]; /* the method's own, in the order in which it has them */
} plim_adapter;

/* Weights packed by bitsandbytes, as transformers has it do so. */
typedef enum plim_quant_kind {
    PLIM_QUANT_NONE,
    PLIM_QUANT_NF4,
    PLIM_QUANT_FP4,
    PLIM_QUANT_INT8
} plim_quant_kind;

enum { PLIM_QUANT_PARTS = 5 }; /* of a weight in 4 bits, besides itself */

typedef struct plim_quant {
    plim_quant_kind kind;
    bool twice;   /* the maxima of blocks are packed, too */
    bool prepare; /* peft's prepare_model_for_kbit_training: what is not packed is in fp32 */
    plim_dtype compute; /* of products; PLIM_DTYPE_COUNT: that of the model */
    plim_dtype
        made_as;   /* of the weights before they were packed; PLIM_DTYPE_COUNT: the graph's */
    plim_str skip; /* modules that are not packed: "lm_head+k_proj"; "": those that
                           transformers leaves out */
    int release;   /* of bitsandbytes: 4301 for 0.43.1 */
} plim_quant;

/* Releases of bitsandbytes since which something holds.  src: its nn/modules.py and autograd/_functions.py of 0.41.3, 0.42.0,
 * 0.43.0 to 0.43.2, 0.44.1, 0.45.5, 0.46.1 and 0.50 */
enum {
    PLIM_BNB_OLDEST = 4100,
    PLIM_BNB_SINCE_PACKED_AS_MADE =
        4300, /* before, weights became fp16 before they were packed */
    PLIM_BNB_SINCE_INPUTS_FREED =
        4302, /* before, each product kept its input for a gradient of the weight */
    PLIM_BNB_SINCE_TABLES_COPIED =
        4600, /* before, packed maxima of all weights share a table */
    PLIM_BNB_SINCE_PACKED_PRODUCTS =
        5000, /* kernels multiply by packed weights; not yet in 0.46.1 */
    PLIM_BNB_NEWEST = 5000,
};

/* "0.43.1" as 4301; NULL: the newest.  PLIM_EUSAGE: it is no version, or older than all that are known. */
plim_status plim_quant_release(const char *text, int *out, plim_err *err);

/* Parses "nf4,double,compute=bf16,prepare,skip=lm_head"; PLIM_EUSAGE names the item.  Texts are
 * borrowed. */
plim_status plim_quant_parse(plim_str text, plim_quant *out, plim_err *err);

/* Packs the weights of linear layers: they become buffers, and their products ops of bitsandbytes.
 * PLIM_EUSAGE: there is none. */
plim_status plim_quant_apply(plim_graph *g, const plim_quant *spec, plim_err *err);

/* Parses the name of a method and its items, "ia3,targets=k_proj+v_proj", or the path of an
 * adapter_config.json of peft; PLIM_EUSAGE names what is wrong.  Texts are borrowed, or in `a`. */
plim_status plim_adapter_parse(plim_arena *a, const char *setting, plim_adapter *out,
                               plim_err *err);
/* The items alone, of the method `name`: "r=16,alpha=32,dropout=0.05,bias=all" of lora. */
plim_status plim_adapter_parse_items(plim_str name, plim_str items, plim_adapter *out,
                                     plim_err *err);

/* What of it cannot be had with packed weights: "dora", "ia3"; NULL: nothing. */
const char *plim_adapter_unpacked(const plim_adapter *spec);

/* Parameters that are not trained: "embed_tokens,layers.0", patterns (core/region.h) of modules,
 * which stand for all below them, or of parameters; "!head" is trained after all.  A later item
 * decides.  PLIM_EUSAGE: one matches no parameter, or none is left to train. */
plim_status plim_freeze_apply(plim_graph *g, plim_str patterns, plim_err *err);

/* A loss that is computed together with the logits, which are never there as a whole. */
typedef enum plim_fused_loss {
    PLIM_FUSED_NONE,
    PLIM_FUSED_TORCH, /* torch.nn.functional.linear_cross_entropy */
    PLIM_FUSED_LIGER  /* LigerForCausalLMLoss */
} plim_fused_loss;

/* Puts one op in the place of the model's head and of its cross entropy; the logits are no output any
 * more.  PLIM_EUSAGE: the loss is not that of a linear layer. */
plim_status plim_fuse_loss(plim_graph *g, plim_fused_loss how, plim_err *err);

/* How the model runs: as in plim_step_settings. */
typedef struct plim_transform_run {
    plim_dtype dtype, autocast;
    bool infer, checkpointed;
    bool one_type; /* what is added is cast to the type of the model */
} plim_transform_run;

/* Virtual tokens that it puts in front of each sequence: the model is to be built for as many more. */
int64_t plim_adapter_tokens(const plim_adapter *spec);

/* Freezes the model and adds the adapters.
 * PLIM_EUSAGE: no module has such a name, or the model's family is not known. */
plim_status plim_adapter_apply(plim_graph *g, const plim_adapter *spec,
                               const plim_transform_run *run, plim_err *err);

#endif
