/* report_vgpu.h -- the parts of a run's report, for the report of a machine of several cards. */
#ifndef PLIM_REPORT_VGPU_H
#define PLIM_REPORT_VGPU_H

#include "plimsoll_vgpu.h"
#include "report/blocks.h"

/* "2 x RTX 4090, 23.64 GiB", and the PyTorch version; of n cards. */
void plim_run_title(plim_page *p, const plim_vgpu_report *r, uint32_t n);
/* The script failed because this card was out of memory. */
bool plim_run_died(const plim_vgpu_report *r);
/* "Out of memory", "It fits": a line to which more may be said. */
void plim_run_verdict(plim_page *p, plim_vgpu_end end);
/* `lead` and the line at which that was, then PyTorch's message. */
void plim_run_memory(plim_page *p, const char *lead, const plim_vgpu_report *r);
/* How often it ran out of memory and went on: nothing for 0. */
void plim_run_recovered(plim_page *p, uint64_t num_ooms);
/* The figures that style.quiet shows; `of`: "cuda:0 ", "". */
void plim_run_values(plim_page *p, const char *of, const plim_vgpu_report *r);
/* The peak, failed attempts, what is live at the peak, the phases: of a card that was used. */
plim_status plim_run_body(plim_page *p, const plim_vgpu_report *r, plim_err *err);
void plim_run_caveats(plim_page *p, const plim_vgpu_report *r);

/* A card of a machine, with what only the table of cards shows. */
typedef struct plim_machine_card {
    plim_vgpu_report run;             /* first: the rows of JSON read it */
    const char *name, *fits;          /* "cuda:0" */
    uint64_t device_low, device_high; /* 0: not known */
} plim_machine_card;
typedef struct plim_machine {
    uint32_t
        fullest; /* the card that ran out of memory, else the one that reserved the most */
    plim_machine_card *cards;
    uint32_t n_cards;
} plim_machine;

void plim_machine_data(plim_page *p, const plim_machine *m);
plim_rows plim_machine_rows(const plim_machine *m);

#endif
