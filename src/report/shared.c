/* shared.c -- the figures of structs that several answers have: shared.def. */
#define PLIM_FIGURES_STORAGE
#include "report/figures.h"

static plim_cell cell_step(int step)
{
    return step < 0 ? plim_cell_text("") : plim_cell_int(step);
}
PLIM_GETTER(phase_step_shown, plim_phase_row, cell_step(r->step))

#include "answers/shared.def"

plim_rows plim_phase_rows(const plim_phase_row *rows, uint32_t n)
{
    return PLIM_FIGURE_LIST(phase_row, rows, n);
}
