/* live_forms.h -- whatever was read of the GPUs, it can be printed and exported in every form. */
#ifndef PLIM_LIVE_FORMS_H
#define PLIM_LIVE_FORMS_H

#include "live/live.h"

static int count_text(void *ud, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ud += n;
    return 0;
}

static inline void print_forms(const plim_live_view *v)
{
    static const plim_render forms[] = {PLIM_TEXT, PLIM_JSON, PLIM_CSV, PLIM_MD};
    for (size_t i = 0; i < PLIM_COUNT(forms); i++) {
        size_t printed = 0;
        plim_status st = plim_live_print(v, forms[i], NULL, count_text, &printed, NULL);
        plim_assert(!st && printed);
        (void)st;
    }
    for (int form = 0; form < PLIM_LIVE_FORM_COUNT; form++) {
        size_t printed = 0;
        plim_status st = plim_live_export(v, (plim_live_form)form, count_text, &printed, NULL);
        plim_assert(!st && printed);
        (void)st;
    }
}

#endif
