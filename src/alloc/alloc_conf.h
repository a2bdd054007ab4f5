/* alloc_conf.h -- PYTORCH_CUDA_ALLOC_CONF, and how each PyTorch version interprets it. */
#ifndef PLIM_ALLOC_CONF_H
#define PLIM_ALLOC_CONF_H

#include "base/base.h"

#define PLIM_MIB (1ull << 20)

/* The wording of an out-of-memory error, by version. */
typedef enum plim_oom_style {
    PLIM_OOM_PLAIN,      /* as the next, without advice */
    PLIM_OOM_OLD,        /* ... (GPU 0; 4.00 GiB total capacity; ... */
    PLIM_OOM_CAPACTY,    /* the new wording, with a well-known misspelling */
    PLIM_OOM_EXPANDABLE, /* recommends expandable segments */
    PLIM_OOM_ALLOC_CONF, /* ... by the variable's new name */
    PLIM_OOM_DOCS,       /* ... by the old one, with another address */
} plim_oom_style;

/* Which of several free blocks of the best size is taken: the lowest, the one that was made
 * first, or the lowest of the segment that was made first. */
typedef enum plim_ties { PLIM_TIES_ADDRESS, PLIM_TIES_BLOCK, PLIM_TIES_SEGMENT } plim_ties;

/* How a version's caching allocator differs from the newest: each row holds from its version
 * until the next row. */
typedef struct plim_alloc_rules {
    int since;               /* 100 * major + minor */
    uint32_t min_split_mb;   /* the smallest max_split_size_mb */
    uint32_t min_division;   /* smallest roundup_power2_divisions that has an effect */
    bool gt_overwrites;      /* '>' in a list overwrites the last named interval too */
    bool fraction_nearest;   /* the limit is rounded to nearest; 1.0 means no limit */
    bool says_allowed;       /* the error names the memory fraction's limit */
    bool private_expandable; /* private pools use expandable segments too */
    plim_ties ties;
    plim_oom_style oom;
    const char *doc;
} plim_alloc_rules;

const plim_alloc_rules *plim_alloc_rules_of(int torch); /* 0: the newest */

enum { PLIM_DIVISIONS = 16 };

typedef struct plim_alloc_conf {
    uint64_t max_split;                /* UINT64_MAX: no limit */
    uint64_t max_non_split_slack;      /* max_non_split_rounding_mb, in bytes */
    uint64_t large_segment;            /* bytes */
    uint64_t bypass;                   /* roundup_bypass_threshold_mb; UINT64_MAX: none */
    uint32_t division[PLIM_DIVISIONS]; /* for sizes below 2 MiB, 4 MiB, ... */
    uint32_t min_division;             /* smallest division that has an effect */
    bool divides;                      /* some division has an effect */
    bool expandable;
    double gc;           /* garbage_collection_threshold; 0: off */
    double fraction;     /* per_process_memory_fraction; 0: not given */
    const char *backend; /* "native", "cudaMallocAsync"; NULL: not given */
} plim_alloc_conf;

/* The defaults, before the first parse. */
void plim_alloc_conf_init(plim_alloc_conf *c);

/* Reads "key:value,key:value" into *c.  As in PyTorch, every key but expandable_segments is
 * reset to its default first.  PLIM_EUSAGE: a key that the version does not know, a value out
 * of range; PLIM_EUNSUPPORTED: known to PyTorch but not simulated.  On an error *c is
 * unchanged. */
plim_status plim_alloc_conf_parse(plim_alloc_conf *c, plim_str text, int torch, plim_err *err);

/* ---- for allocators with settings of their own, in the same form -------------- */

/* Takes the first "key:value" from *text, which must not be empty. */
plim_status plim_alloc_conf_pair(plim_str *text, plim_str *key, plim_str *value,
                                 plim_err *err);
/* The value as True or False; a share above 0 and at most 1; MiB, in bytes. */
plim_status plim_alloc_conf_bool(plim_str key, plim_str value, bool *out, plim_err *err);
plim_status plim_alloc_conf_share(plim_str key, plim_str value, double *out, plim_err *err);
plim_status plim_alloc_conf_mib(plim_str key, plim_str value, uint64_t least, uint64_t *out,
                                plim_err *err);

#endif
