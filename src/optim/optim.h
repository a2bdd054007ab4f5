/* optim.h -- optimizers: their state and what a step() allocates.
 *
 * An optimizer runs on the same abstract machine as the op rules, so its requests come in
 * PyTorch's order.
 * src: torch/optim/<name>.py; docs/sources/optimizers.md */
#ifndef PLIM_OPTIM_H
#define PLIM_OPTIM_H

#include "machine/machine.h"
#include "torch/torch.h"

enum { PLIM_OPTIM_MAX_STATES = 9, PLIM_OPTIM_MAX_LISTS = 6 };

typedef enum plim_optim_impl {
    PLIM_IMPL_DEFAULT,
    PLIM_IMPL_FOREACH,
    PLIM_IMPL_FORLOOP,
    PLIM_IMPL_FUSED
} plim_optim_impl;

/* Which of its parameters a step is about, of optimizers that treat matrices and all else apart. */
typedef enum plim_optim_which {
    PLIM_OPTIM_ALL,
    PLIM_OPTIM_MATRICES,
    PLIM_OPTIM_PLAIN
} plim_optim_which;

/* One parameter as an optimizer sees it; for an average, one tensor of the model. */
typedef struct plim_optim_param {
    plim_t leaf;
    plim_str name;
    bool buffer, transient; /* transient: not in the state dict */
    bool plain;             /* of PLIM_OPTIM_MATRIX: no matrix, or an end (plim_find_ends) */
    bool partial;           /* its gradient is a part of a sum over ranks (share/tensor.c) */
    plim_t state[PLIM_OPTIM_MAX_STATES]; /* owned; 0: not created yet */
    plim_t tmp[PLIM_OPTIM_MAX_LISTS];    /* within one step */
} plim_optim_param;

struct plim_optim_run;

enum {
    PLIM_OPTIM_AT_START = 1,   /* the constructor creates the state */
    PLIM_OPTIM_RUNS_MODEL = 2, /* step(closure): see plim_optim_run */
    PLIM_OPTIM_SPARSE = 4,     /* accepts sparse gradients too, */
    PLIM_OPTIM_NO_DENSE = 8,   /* and only those */
    PLIM_OPTIM_8BIT = 16,      /* bitsandbytes: a byte per element of a state, */
    PLIM_OPTIM_PAGED = 32,     /* large states in managed memory, */
    PLIM_OPTIM_NO_BF16 = 64,   /* fp32 states do not take gradients in bfloat16 */
    PLIM_OPTIM_MATRIX = 128,   /* multiplies whole matrices of parameters */
    PLIM_OPTIM_DTENSORS = 256, /* simulated on DTensors (tensor parallelism), too, */
    PLIM_OPTIM_BARE = 512,     /* if all are, without momentum, weight decay and impl=fused */
};

typedef struct plim_optim {
    const char *name;
    void (*step)(struct plim_optim_run *r);
    unsigned flags;
    const char *impls;    /* "foreach, forloop": the first is the default on CUDA */
    const char *defaults; /* "momentum=0, ..." */
    const char *since;    /* "fused=203, ...": 100 * major + minor */
    const char *doc, *src;
} plim_optim;

uint32_t plim_optim_count(void);
const plim_optim *plim_optim_at(uint32_t i);
/* Averages of the model (emas.def) are rows of the same type, run after each step.  Their
 * tensors count as optimizer state, with this role. */
#define PLIM_EMA_ROLE "ema"
uint32_t plim_ema_count(void);
const plim_optim *plim_ema_at(uint32_t i);

enum { PLIM_OPTIM_OPTIONS = 16 };

typedef struct plim_optim_spec {
    const plim_optim *optim;
    plim_optim_impl impl;
    bool in_backward; /* an optimizer per parameter, which steps once its gradient is there */
    plim_str text;    /* as given: "sgd,momentum=0.9" */
    struct {
        plim_str name;
        double value;
    } option[PLIM_OPTIM_OPTIONS]; /* all options of the row, as given or by default */
    uint32_t n_options;
} plim_optim_spec;

/* Parses "sgd,momentum=0.9,impl=foreach".  PLIM_EUSAGE names the unknown word and lists the
 * known ones.  `text` is borrowed. */
plim_status plim_optim_parse(plim_str text, plim_optim_spec *out, plim_err *err);
/* The same for "averaged,use_buffers=1"; "none" leaves out->optim NULL. */
plim_status plim_ema_parse(plim_str text, plim_optim_spec *out, plim_err *err);
/* An option's value, as given or by default. */
double plim_optim_option(const plim_optim_spec *spec, const char *name);
double plim_optim_value(const plim_optim_spec *spec, plim_str name);

/* Number of steps after which memory no longer grows. */
int plim_optim_steady_steps(const plim_optim_spec *spec);

typedef struct plim_optim_run {
    plim_machine *m;
    const plim_torch *torch;
    const plim_optim_spec *spec;
    plim_optim_param *params; /* every trainable one, in order; for an average all tensors */
    uint32_t n;
    bool starting; /* this is the constructor's call, not a step */
    plim_optim_which which;
    uint64_t taken;   /* number of steps, including this one */
    plim_t shared[2]; /* states that belong to no single parameter */
    /* for an optimizer that runs the model: zero_grad, forward, loss and backward; returns the
     * loss, owned */
    plim_t (*closure)(void *ud);
    void *ud;
    plim_arena *arena; /* for data of its own: */
    void *own;
} plim_optim_run;

void plim_optim_start(plim_optim_run *r); /* constructor */
void plim_optim_clip(plim_optim_run *r);  /* clip_grad_norm_, before a step */
void plim_optim_step(plim_optim_run *r);  /* skips parameters without a gradient */

#endif
