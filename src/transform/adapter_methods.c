/* adapter_methods.c -- the methods by name. */
#include <stdio.h>

#include "transform/adapter.h"

static const plim_adapter_method *const methods[] = {
#define PLIM_ADAPTER(name) &plim_adapter_##name,
#include "transform/adapters.def"
#undef PLIM_ADAPTER
};

uint32_t plim_adapter_count(void) { return PLIM_COUNT(methods); }

const plim_adapter_method *plim_adapter_at(uint32_t i)
{
    return i < PLIM_COUNT(methods) ? methods[i] : NULL;
}

void plim_adapter_list_name(char names[PLIM_ADAPTER_NAMES], const char *name)
{
    size_t n = strlen(names);
    snprintf(names + n, PLIM_ADAPTER_NAMES - n, "%s%s", n ? ", " : "", name);
}

const plim_adapter_method *plim_adapter_method_of(plim_str name, plim_err *err)
{
    char names[PLIM_ADAPTER_NAMES] = "";
    for (size_t i = 0; i < PLIM_COUNT(methods); i++) {
        if (plim_str_is(name, methods[i]->name))
            return methods[i];
        plim_adapter_list_name(names, methods[i]->name);
    }
    plim_fail(err, PLIM_EUSAGE, 0, "peft: unknown method '" PLIM_STR_FMT "': known are %s",
              PLIM_STR_CUT(name), names);
    return NULL;
}
