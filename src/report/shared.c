/* shared.c -- the figures of structs that several answers have: shared.def. */
#define PLIM_FIGURES_STORAGE
#include "report/figures.h"

#include "answers/shared.def"
