/* adapter_targets.c -- what peft adapts by default, by type of model. */
#include "transform/adapter.h"

static const struct {
    const char *method, *model_type, *targets;
} family_rows[] = {
#define TARGETS(method, model_type, targets) {method, model_type, targets},
#include "transform/adapter_targets.def"
#undef TARGETS
};

plim_str plim_adapter_family(const char *method, plim_str model_type)
{
    for (size_t i = 0; i < PLIM_COUNT(family_rows); i++)
        if (strcmp(family_rows[i].method, method) == 0 &&
            plim_str_is(model_type, family_rows[i].model_type))
            return plim_str_of(family_rows[i].targets);
    return PLIM_STR("");
}
