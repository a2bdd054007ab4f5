/* torchfile_optim.c -- optimizers in checkpoints: state_dict() of torch.optim and compatible
 * libraries, {"state": {0: {"exp_avg": tensor, ..}}, "param_groups": [{"lr": ..}]}. */
#include "import/weights/torchfile_priv.h"

#include <stdio.h>

/* Recognised by the keys of a parameter group and of a parameter's state: the first row that
 * matches.  A name followed by '!' must also be true.
 * src: the defaults and states in torch/optim of 2.13; bitsandbytes/optim/optimizer.py,
 * init_state; transformers/optimization.py; apex/optimizers/fused_adam.py */
static const struct {
    const char *name;
    const char *group[3], *state[2];
} optims[] = {
    {"bitsandbytes, 8 bit", {"betas"}, {"state1", "qmap1"}},
    {"bitsandbytes", {"betas"}, {"state1"}},
    {"ASGD", {"lambd", "t0"}, {0}},
    {"Adadelta", {"rho", "eps"}, {0}},
    {"Adafactor", {"beta2_decay"}, {0}},
    {"Adafactor (transformers)", {"scale_parameter", "relative_step"}, {0}},
    {"Adagrad", {"initial_accumulator_value", "lr_decay"}, {0}},
    {"NAdam", {"momentum_decay", "betas"}, {0}},
    {"Muon", {"ns_steps", "momentum"}, {0}},
    {"Rprop", {"etas", "step_sizes"}, {0}},
    {"RMSprop", {"alpha", "centered"}, {0}},
    {"LBFGS", {"history_size", "max_iter"}, {0}},
    {"SGD", {"dampening", "nesterov"}, {0}},
    {"AdamW", {"betas", "amsgrad", "decoupled_weight_decay!"}, {0}},
    {"Adam", {"betas", "amsgrad", "decoupled_weight_decay"}, {0}},
    {"Adam or AdamW", {"betas", "amsgrad"}, {0}},
    {"RAdam", {"betas", "decoupled_weight_decay"}, {0}},
    {"Adamax", {"betas"}, {"exp_inf"}},
    {"FusedAdam (Apex, DeepSpeed)", {"betas", "bias_correction"}, {"exp_avg", "exp_avg_sq"}},
    {"AdamW (transformers)", {"betas", "correct_bias"}, {0}},
    {"an Adam", {"betas"}, {"exp_avg", "exp_avg_sq"}},
    {"Lion", {"betas"}, {"exp_avg"}},
};

enum { OPTIONS_MAX = 64 }; /* of a parameter group */

bool plim_torch_is_optimizer(plim_pickle_value v)
{
    plim_pickle_value groups = plim_pickle_get(v, "param_groups");
    return groups.kind == PLIM_PICKLE_LIST &&
           plim_torch_pairs(plim_pickle_at(groups, 0)) <= OPTIONS_MAX &&
           plim_torch_is_dict(plim_pickle_get(v, "state"));
}

/* ---- which one ------------------------------------------------------------------------- */

static bool has_key(plim_pickle_value dict, const char *key)
{
    char name[64];
    size_t n = strlen(key);
    bool must = n && key[n - 1] == '!';
    snprintf(name, sizeof name, "%.*s", (int)(n - must), key);
    plim_pickle_value v = plim_pickle_get(dict, name);
    return v.kind && (!must || (v.kind == PLIM_PICKLE_BOOL && v.i));
}

static bool fits_row(size_t row, plim_pickle_value group, plim_pickle_value state)
{
    for (size_t i = 0; i < PLIM_COUNT(optims[row].group) && optims[row].group[i]; i++)
        if (!has_key(group, optims[row].group[i]))
            return false;
    for (size_t i = 0; i < PLIM_COUNT(optims[row].state) && optims[row].state[i]; i++)
        if (!has_key(state, optims[row].state[i]))
            return false;
    return true;
}

static const char *guess_name(plim_pickle_value group, plim_pickle_value state)
{
    for (size_t i = 0; i < PLIM_COUNT(optims); i++)
        if (fits_row(i, group, state))
            return optims[i].name;
    return "an optimizer";
}

/* ---- what it was told -------------------------------------------------------------------- */

/* "lr 0.001", "betas 0.9 0.999"; skips what is None, False, or not a number. */
static bool put_option(plim_buf *out, plim_pickle_value key, plim_pickle_value v)
{
    plim_str name = plim_pickle_text(key);
    if (!name.n || name.n > 40 || (v.kind == PLIM_PICKLE_BOOL && !v.i))
        return false;
    if (v.kind == PLIM_PICKLE_TUPLE) {
        if (!v.node->n || v.node->n > 4)
            return false;
        for (uint32_t i = 0; i < v.node->n; i++)
            if (v.node->items[i].kind != PLIM_PICKLE_FLOAT &&
                v.node->items[i].kind != PLIM_PICKLE_INT)
                return false;
        plim_buf_printf(out, ", " PLIM_STR_FMT, PLIM_STR_ARG(name));
        for (uint32_t i = 0; i < v.node->n; i++) {
            plim_buf_puts(out, " ");
            plim_torch_put_scalar(out, v.node->items[i]);
        }
        return true;
    }
    if (v.kind != PLIM_PICKLE_FLOAT && v.kind != PLIM_PICKLE_INT && v.kind != PLIM_PICKLE_BOOL)
        return false;
    plim_buf_printf(out, ", " PLIM_STR_FMT, PLIM_STR_ARG(name));
    if (v.kind != PLIM_PICKLE_BOOL) {
        plim_buf_puts(out, " ");
        plim_torch_put_scalar(out, v);
    }
    return true;
}

/* "AdamW, lr 0.001, betas 0.9 0.999; 2 groups, 62 parameters": options of the first group */
plim_status plim_torch_say_optimizer(torchfile *f, plim_pickle_value groups,
                                     plim_pickle_value state)
{
    enum { SHOWN = 16 };
    plim_buf text;
    plim_pickle_value key, first = plim_pickle_at(groups, 0), none;
    uint64_t parameters = 0;
    plim_buf_init(&text, f->a);
    plim_buf_puts(&text, guess_name(first, plim_torch_pair(state, 0, &none)));
    for (uint32_t i = 0, n = 0; i < plim_torch_pairs(first) && n < SHOWN; i++) {
        plim_pickle_value v = plim_torch_pair(first, i, &key);
        n += put_option(&text, key, v);
    }
    uint32_t n = plim_pickle_count(groups);
    for (uint32_t i = 0; i < n; i++) {
        plim_pickle_value group = groups.node->items[i];
        f->steps += 1 + plim_pickle_count(group);
        parameters += plim_pickle_count(plim_pickle_get(group, "params"));
    }
    plim_buf_printf(&text, "; %" PRIu32 " group%s, %" PRIu64 " parameter%s", n,
                    n == 1 ? "" : "s", parameters, parameters == 1 ? "" : "s");
    if (text.bad)
        return plim_oom(f->err);
    return plim_inventory_fact(f->v, f->err, f->n_name ? f->name : "optimizer", PLIM_STR_FMT,
                               PLIM_STR_ARG(plim_buf_str(&text)));
}

/* "step" is a tensor in host memory, except for two implementations that read it on the card.
 * src: torch/optim/optimizer.py, _process_value_according_to_param_policy */
bool plim_torch_step_on_card(plim_pickle_value groups)
{
    for (uint32_t i = 0; i < plim_pickle_count(groups); i++)
        if (has_key(groups.node->items[i], "capturable!") ||
            has_key(groups.node->items[i], "fused!"))
            return true;
    return false;
}
