/* report_vgpu.h -- the parts of a run's report, for the report of a machine of several cards. */
#ifndef PLIM_REPORT_VGPU_H
#define PLIM_REPORT_VGPU_H

#include "plimsoll_vgpu.h"
#include "report/report.h"

/* "RTX 4090, 23.64 GiB", and the PyTorch version. */
void plim_run_title(plim_page *p, const plim_vgpu_report *r);
/* The peak, what is live then, the phases: of a card that was used. */
plim_status plim_run_body(plim_page *p, const plim_vgpu_report *r, plim_err *err);
void plim_run_caveats(plim_page *p, const plim_vgpu_report *r);

/* The members of the report's object. */
void plim_run_json(plim_jw *w, const plim_vgpu_report *r);

#endif
