/* items.h -- texts such as "adamw,weight_decay=0.1,amsgrad=true". */
#ifndef PLIM_ITEMS_H
#define PLIM_ITEMS_H

#include "base/base.h"

/* Takes the next comma-separated item off *rest and splits it at '='; without one, *value is
 * {NULL, 0}.  Blanks around both are left out.  false: there is none. */
bool plim_item_next(plim_str *rest, plim_str *key, plim_str *value);

/* The value of the item of this name; "" without a value; {NULL, 0}: there is none. */
plim_str plim_item_find(plim_str items, plim_str name);

/* PLIM_EUSAGE: "strategy 'ddp' has no option 'x': it has ..." the names of `items`. */
plim_status plim_item_unknown(const char *what, const char *name, plim_str key,
                              const char *items, plim_err *err);

/* The next of the words that `mark` separates, as in "q_proj+v_proj"; false: there is none. */
bool plim_item_word(plim_str *rest, char mark, plim_str *word);

/* Whether `word` is among the words of "fp16 bf16 fp8". */
bool plim_item_has(const char *words, plim_str word);

/* "0.9", "True", "false"; false if it is not a number. */
bool plim_item_number(plim_str s, double *out);

#endif
