/* ranks.h -- `run --world N --rank R`: the processes of a job, one a rank. */
#ifndef PLIM_RANKS_H
#define PLIM_RANKS_H

#include "opt.h"
#include "processes.h"

enum { PLIM_RANKS_MOST = PLIM_PROCESSES_MOST };

typedef struct plim_ranks {
    int world;                 /* 0: the command is started once, as it is */
    int rank[PLIM_RANKS_MOST]; /* n of them, ascending */
    int n;
    bool all; /* every rank runs: they find one another */
    int port; /* at which, if they do */
} plim_ranks;

/* Reads --world and --rank.  Returns PLIM_EXIT_USAGE after printing what is wrong. */
int plim_ranks_read(const plim_args *a, plim_ranks *out);

/* Sets the variables that torchrun would set for a rank, in this process, on nodes of `cards`
 * cards each. */
void plim_ranks_environment(const plim_ranks *r, int rank, int cards);

/* What a process said of its run. */
typedef struct plim_rank_row {
    int rank, fits; /* fits: -1 unknown, 0 no, 1 yes */
    unsigned long long allocated, reserved;
} plim_rank_row;

/* Which comes first: what does not fit, then what allocates most. */
int plim_ranks_worse(const plim_rank_row *a, const plim_rank_row *b);

/* Prints a table with a line for each row, as text or Markdown. */
void plim_ranks_table(plim_console *c, const plim_style *st, plim_render render,
                      const plim_rank_row *rows, int n);

#endif
