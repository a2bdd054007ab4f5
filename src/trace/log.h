/* log.h -- what the logs of training programs say about GPU memory: the table of
 * torch.cuda.memory_summary, lines of Megatron-LM, DeepSpeed and others; the rows are in log.def.
 *
 * A log is any text: what no row knows is ignored, and what it does not say is unknown. */
#ifndef PLIM_LOG_H
#define PLIM_LOG_H

#include "base/base.h"

typedef enum plim_log_quantity {
    PLIM_LOG_REQUESTED, /* peaks of PyTorch's allocator */
    PLIM_LOG_ALLOCATED,
    PLIM_LOG_RESERVED,
    PLIM_LOG_DEVICE, /* what is in use on the card */
    PLIM_LOG_QUANTITIES
} plim_log_quantity;

/* A number as it is printed: one unit of its last digit may be missing or too much, as some
 * round and some cut off. */
typedef struct plim_log_figure {
    bool known;
    uint64_t bytes, within;
} plim_log_figure;

typedef struct plim_log {
    plim_log_figure figure[PLIM_LOG_QUANTITIES]; /* the largest that the log has */
    const char *source; /* who printed the first of them, "Megatron-LM"; NULL: there is none */
    uint64_t lines;     /* with a figure */
} plim_log;

/* Whether this is text, and neither JSON nor a tape. */
bool plim_log_detect(plim_bytes file);
/* Reads a text in parts, of any size, into *out; without a figure, out->source is NULL.  _new: in `a`; NULL:
 * no memory.  _take is a plim_take. */
typedef struct plim_log_reader plim_log_reader;
plim_log_reader *plim_log_reader_new(plim_arena *a, plim_log *out);
size_t plim_log_take(void *reader, plim_str text, bool last);

#endif
