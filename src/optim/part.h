/* part.h -- the pieces that optimizers' steps are made of. */
#ifndef PLIM_OPTIM_PART_H
#define PLIM_OPTIM_PART_H

#include "optim/optim.h"

/* The steps that optims.def names. */
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
void plim_optim_sparse_adam(plim_optim_run *r);
void plim_optim_sparse_adagrad(plim_optim_run *r);
void plim_optim_lbfgs(plim_optim_run *r);
int plim_optim_lbfgs_steps(const plim_optim_spec *s);
void plim_optim_bnb_two(plim_optim_run *r);
void plim_optim_bnb_one(plim_optim_run *r);
void plim_optim_torchao_8bit(plim_optim_run *r);
void plim_optim_torchao_4bit(plim_optim_run *r);
void plim_optim_torchao_fp8(plim_optim_run *r);
/* And those of emas.def. */
void plim_ema_averaged(plim_optim_run *r);
void plim_ema_lerp(plim_optim_run *r);
void plim_ema_timm_v2(plim_optim_run *r);
void plim_ema_diffusers(plim_optim_run *r);

bool plim_optim_on(const plim_optim_run *r, const char *option);
plim_optim_impl plim_optim_impl_of(const plim_optim_run *r);
/* The first parameter from *i on that has a gradient; NULL: no more. */
plim_optim_param *plim_optim_next(plim_optim_run *r, uint32_t *i);

/* Is its gradient sparse?  That gradient with each index once, owned; and .mul_(). */
bool plim_optim_sparse(const plim_optim_run *r, const plim_optim_param *p);
plim_t plim_optim_coalesced(plim_optim_run *r, const plim_optim_param *p);
void plim_optim_scale_sparse(plim_optim_run *r, const plim_optim_param *p);
/* Of any parameter? */
bool plim_optim_any_sparse(plim_optim_run *r);

/* A temporary like the parameter (its strides too), and a number on the card. */
plim_t plim_optim_like(plim_optim_run *r, const plim_optim_param *p, const char *role);
plim_t plim_optim_scalar(plim_optim_run *r, const plim_optim_param *p, const char *role);
/* Such a tensor, used and gone at once. */
void plim_optim_brief(plim_optim_run *r, const plim_optim_param *p, const char *role);

/* States are made once: like the parameter, or a number on the card. */
void plim_optim_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot, const char *role);
void plim_optim_scalar_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                             const char *role);
/* Fused and capturable keep their counts on the card. */
void plim_optim_count_state(plim_optim_run *r, plim_optim_param *p, uint32_t slot,
                            const char *role);
/* Any other shape of state. */
plim_t plim_optim_tensor_state(plim_optim_run *r, plim_str name, const char *role,
                               plim_dtype t, int32_t rank, const int64_t *dim);

/* A foreach list: one temporary a parameter, freed last first as CPython does. */
void plim_optim_list(plim_optim_run *r, int slot, const char *role);
void plim_optim_scalars(plim_optim_run *r, int slot, const char *role);
void plim_optim_list_free(plim_optim_run *r, int slot);
/* The list of grads + weight decay, or of negated ones, if either is asked for. */
bool plim_optim_grad_list(plim_optim_run *r, int slot, bool decay);

/* A Python local: the new value exists before the old one goes. */
void plim_optim_set(plim_optim_run *r, plim_t *local, plim_t value);
/* grad = grads[i], which lets the last parameter's temporary go; then grad = -grad
 * and grad = grad.add(param), as far as asked for.  Some write -grads[i] in the
 * first place: there the last one goes later. */
void plim_optim_grad(plim_optim_run *r, const plim_optim_param *p, bool negated_first,
                     bool decay, plim_t *grad);

#endif
