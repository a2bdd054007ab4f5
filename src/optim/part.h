/* part.h -- building blocks of optimizer steps. */
#ifndef PLIM_OPTIM_PART_H
#define PLIM_OPTIM_PART_H

#include "optim/optim.h"

/* The steps named in optims.def. */
void plim_optim_sgd(plim_optim_run *r);
void plim_optim_adam(plim_optim_run *r);
void plim_optim_adamw(plim_optim_run *r);
void plim_optim_rmsprop(plim_optim_run *r);
void plim_optim_adagrad(plim_optim_run *r);
void plim_optim_adadelta(plim_optim_run *r);
void plim_optim_adamax(plim_optim_run *r);
void plim_optim_nadam(plim_optim_run *r);
void plim_optim_radam(plim_optim_run *r);
void plim_optim_asgd(plim_optim_run *r);
void plim_optim_rprop(plim_optim_run *r);
void plim_optim_adafactor(plim_optim_run *r);
void plim_optim_muon(plim_optim_run *r);
void plim_optim_muon_adamw(plim_optim_run *r);
void plim_optim_emerging_muon(plim_optim_run *r);
void plim_optim_sparse_adam(plim_optim_run *r);
void plim_optim_sparse_adagrad(plim_optim_run *r);
void plim_optim_lbfgs(plim_optim_run *r);
int plim_optim_lbfgs_steps(const plim_optim_spec *s);
void plim_optim_bnb_two(plim_optim_run *r);
void plim_optim_bnb_one(plim_optim_run *r);
void plim_optim_bnb_momentum(plim_optim_run *r);
void plim_optim_bnb_ademamix(plim_optim_run *r);
void plim_optim_torchao_8bit(plim_optim_run *r);
void plim_optim_torchao_4bit(plim_optim_run *r);
void plim_optim_torchao_fp8(plim_optim_run *r);
/* And those named in emas.def. */
void plim_ema_averaged(plim_optim_run *r);
void plim_ema_lerp(plim_optim_run *r);
void plim_ema_timm_v2(plim_optim_run *r);
void plim_ema_diffusers(plim_optim_run *r);

bool plim_optim_on(const plim_optim_run *r, const char *option);
plim_optim_impl plim_optim_impl_of(const plim_optim_run *r);
/* The first parameter from *i on that has a gradient and that the step is about, or NULL. */
plim_optim_param *plim_optim_next(plim_optim_run *r, uint32_t *i);

/* Whether its gradient is sparse; that gradient coalesced, owned; its in-place .mul_(). */
bool plim_optim_sparse(const plim_optim_run *r, const plim_optim_param *p);
plim_t plim_optim_coalesced(plim_optim_run *r, const plim_optim_param *p);
void plim_optim_scale_sparse(plim_optim_run *r, const plim_optim_param *p);
/* Whether any parameter has a sparse gradient. */
bool plim_optim_any_sparse(plim_optim_run *r);

/* A temporary like the parameter (same strides), and a scalar on the card. */
plim_t plim_optim_like(plim_optim_run *r, const plim_optim_param *p, const char *role);
plim_t plim_optim_scalar(plim_optim_run *r, const plim_optim_param *p, const char *role);
/* Such a temporary, freed at once. */
void plim_optim_brief(plim_optim_run *r, const plim_optim_param *p, const char *role);

/* The sums of divided gradients, as a kernel reads them, freed at once.
 * src: torch 2.13 torch/distributed/tensor/_dispatch.py redistribute_local_args */
void plim_optim_brief_sums(plim_optim_run *r);

/* Create a state on its first use: like the parameter, or a scalar on the card. */
void plim_optim_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot, const char *role);
void plim_optim_scalar_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                             const char *role);
/* The step count: on the card for fused and capturable optimizers only. */
void plim_optim_count_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                            const char *role);
/* A state of any other shape. */
plim_t plim_optim_tensor_state(plim_optim_run *r, plim_str name, const char *role,
                               plim_dtype t, int32_t rank, const int64_t *dim);

/* A foreach list: one temporary per parameter, freed last first as CPython does. */
void plim_optim_list(plim_optim_run *r, int slot, const char *role);
void plim_optim_scalars(plim_optim_run *r, int slot, const char *role);
void plim_optim_list_free(plim_optim_run *r, int slot);
/* The list of grads + weight decay, or of negated grads, if either is requested. */
bool plim_optim_grad_list(plim_optim_run *r, int slot, bool decay);

/* Assigns to a Python local: the new value exists before the old one is released. */
void plim_optim_set(plim_optim_run *r, plim_t *local, plim_t value);
/* grad = grads[i], which releases the last parameter's temporary; then grad = -grad and grad =
 * grad.add(param), as far as requested.  Some optimizers start with -grads[i]: there the last
 * temporary is released later. */
void plim_optim_grad(plim_optim_run *r, const plim_optim_param *p, bool negated_first,
                     bool decay, plim_t *grad);

#endif
