/* freeze.c -- parameters that are not trained: see transform.h. */
#include "base/items.h"
#include "core/region.h"
#include "transform/transform.h"

/* Whether the pattern is that of the parameter, or of a module that it is in. */
static bool names_parameter(plim_str name, plim_str like)
{
    for (size_t i = 1; i < name.n; i++)
        if (name.p[i] == '.' && plim_path_like((plim_str){name.p, i}, like))
            return true;
    return plim_path_like(name, like);
}

static bool is_parameter(const plim_value *v)
{
    return v->kind == PLIM_VALUE_PARAMETER && plim_is_float(v->meta.dtype);
}

plim_status plim_freeze_apply(plim_graph *g, plim_str patterns, plim_err *err)
{
    plim_str rest = patterns, item;
    bool left = false;
    while (plim_item_word(&rest, ',', &item)) {
        bool trains = item.n && *item.p == '!', any = false;
        plim_str like = {item.p + trains, item.n - trains};
        for (uint32_t i = 0; i < g->n_values; i++) {
            plim_value *v = &g->values[i];
            if (!is_parameter(v) || !names_parameter(v->name, like))
                continue;
            v->requires_grad = trains;
            any = true;
        }
        if (!any)
            return plim_fail(err, PLIM_EUSAGE, 0,
                             "freeze: no parameter or module is named '" PLIM_STR_FMT "'",
                             PLIM_STR_CUT(like));
    }
    for (uint32_t i = 0; i < g->n_values && !left; i++)
        left = is_parameter(&g->values[i]) && g->values[i].requires_grad;
    return left ? PLIM_OK
                : plim_fail(err, PLIM_EUSAGE, 0,
                            "freeze '" PLIM_STR_FMT "' leaves no parameter to train",
                            PLIM_STR_CUT(patterns));
}
