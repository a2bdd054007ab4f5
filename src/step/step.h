/* step.h -- turns a graph and settings into a tape: load, then the usual training loop (or
 * inference) as PyTorch runs it, event by event.
 * src: docs/sources/training-step.md 1, 2; docs/sources/optimizers.md 1. */
#ifndef PLIM_STEP_H
#define PLIM_STEP_H

#include "core/graph.h"
#include "machine/machine_run.h"
#include "machine/work.h"
#include "optim/optim.h"
#include "share/share.h"
#include "step/loop.h"
#include "torch/torch.h"

typedef enum plim_loss_kind {
    PLIM_LOSS_DEFAULT, /* the model's own, else mse_fp32 for denoisers, cross_entropy for
                          logits, sum */
    PLIM_LOSS_CROSS_ENTROPY,
    PLIM_LOSS_MSE,
    PLIM_LOSS_MSE_FP32,
    PLIM_LOSS_BCE,
    PLIM_LOSS_SUM,
    PLIM_LOSS_MODEL, /* the first output is the loss, as models called with labels return it */
} plim_loss_kind;

typedef struct plim_step_settings {
    bool infer;
    bool clip;             /* clip_grad_norm_ before each optimizer step */
    bool grad_scaler;      /* torch.amp.GradScaler around the backward pass and the step */
    bool made_on_card;     /* under torch.device('cuda') */
    bool empty_cache;      /* torch.cuda.empty_cache() after each step */
    bool zero_grad_keeps;  /* zero_grad(set_to_none=False): zeros, not None */
    int accumulate;        /* forward and backward passes per step */
    const plim_loop *loop; /* NULL: the usual one for the loss */
    bool keeps_given;
    unsigned keeps; /* PLIM_KEEP_..., if given; else the loop's own */
    int steps;
    bool (*ends)(void *ud); /* of the tape; where true, the run ends with PLIM_ERANGE */
    void *ends_ud;
    bool untimed; /* nobody asks for the ledger: the work of the last step is not recorded */
    plim_dtype
        dtype; /* of parameters and floating-point inputs; PLIM_DTYPE_COUNT: as in the graph */
    plim_dtype autocast; /* dtype of torch.autocast; PLIM_F32: none */
    plim_str checkpoint; /* in the syntax of region.h; empty: none */
    plim_loss_kind loss;
    plim_optim_spec optim, ema; /* ema.optim NULL: none */
    const plim_torch *torch;
    plim_world world;
    plim_share share;
} plim_step_settings;

typedef struct plim_step_info {
    uint32_t unknown_ops;  /* nodes run without a rule, over all steps */
    plim_loss_kind loss;   /* the loss chosen for PLIM_LOSS_DEFAULT */
    const plim_loop *loop; /* the loop that ran, and what it kept */
    unsigned keeps;
    plim_ledger ledger; /* the work of the last step */
    plim_asked asked;   /* cards that answer alike give the same tape */
} plim_step_info;

/* Appends the whole run to the tape; everything lives in `a`.  PLIM_ESHAPE names the layer
 * whose shapes do not fit. */
plim_status plim_step_run(plim_arena *a, const plim_graph *g, const plim_step_settings *s,
                          plim_tape *tape, plim_step_info *info, plim_err *err);

/* model.to(device) for values[], which are parameters, buffers and constants in their order below;
 * their handles go to value[] by value id.  A dtype of PLIM_DTYPE_COUNT: as in the graph.
 * from_host: they stay there for now.  made_on_card: in that dtype, not cast to it. */
void plim_step_load(plim_machine *m, plim_arena *a, const plim_graph *g, plim_dtype dtype,
                    bool from_host, bool made_on_card, const uint32_t *values, uint32_t n,
                    plim_t *value);
/* Of a model that is made on the card: the tensors of its own that each tied parameter has until it is
 * tied.  src: transformers 5.17 modeling_utils.py post_init, tie_weights */
void plim_step_tie(plim_machine *m, const plim_graph *g, plim_dtype dtype);
/* Parameters, buffers and constants in the order of the module tree, each module's parameters
 * before its buffers: children first, as model.to() visits them (torch/nn/modules/module.py
 * _apply), or parents first, as deepcopy does. PLIM_NONE: no memory. */
uint32_t plim_step_order(plim_arena *a, const plim_graph *g, bool parents_first,
                         uint32_t **out);
/* A floating-point tensor gets the chosen dtype, as with model.half(). */
plim_meta plim_step_meta(plim_dtype dtype, const plim_meta *m);

/* For each node, the values that are released right after it: after their last use, or on
 * return from the module call that has them as an argument. */
typedef struct plim_release {
    uint32_t *first; /* [n_nodes + 1] into ids */
    uint32_t *ids;
} plim_release;
bool plim_step_release_plan(plim_arena *a, const plim_graph *g, plim_release *out);

#endif
