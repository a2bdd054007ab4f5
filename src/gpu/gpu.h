/* gpu.h -- the cards, as data: gpus.def, one row per card.
 *
 * A card is what a framework sees as one device: half of a dual-chip card, one memory option
 * of a laptop chip.  A number of 0 means unknown; it is never a measurement. */
#ifndef PLIM_GPU_H
#define PLIM_GPU_H

#include "core/tape.h"

typedef enum plim_gpu_memory {
    PLIM_GPU_MARKETED, /* estimated from the size sold */
    PLIM_GPU_PRINTED,  /* from an out-of-memory message, which rounds to 0.01 GiB */
    PLIM_GPU_DRIVER,   /* the byte count reported by a driver */
    PLIM_GPU_GIVEN     /* given by the user: --vram */
} plim_gpu_memory;

typedef struct plim_gpu {
    const char *name;    /* "NVIDIA GeForce RTX 4090" */
    const char *aliases; /* "rtx4090, 4090"; the first is the short name */
    const char *mig_of;  /* of a MIG instance the short name of the whole card; else "" */
    const char *vendor;  /* "NVIDIA", "AMD", "Intel", "Apple"; "": generic */
    const char *klass;   /* "consumer", "workstation", "datacenter", "jetson", "soc" */
    const char *arch;    /* "Ada"; "" unknown */
    int year;
    double marketed_gb;
    uint64_t memory_bytes; /* total reported to a process, including the context */
    plim_gpu_memory memory_kind;
    bool unified; /* it is that of the CPU, too, */
    uint64_t kept_low, kept_usual,
        kept_high;           /* and the system keeps so much of it; 0: not known */
    double bandwidth_gbs;    /* 10^9 bytes per second */
    double fp32, tf32, fp16; /* dense TFLOPS */
    double fp16_acc32;       /* fp16 accumulated in fp32, as PyTorch multiplies */
    double bf16, fp8;
    int cc; /* compute capability * 10: 89; not NVIDIA: 0 */
    int sms;
    int price_usd; /* of the launch */
    const char *src;
} plim_gpu;

/* The memory is what a driver reports or the user gave, not estimated or rounded. */
static inline bool plim_gpu_exact(const plim_gpu *g)
{
    return g->memory_kind == PLIM_GPU_DRIVER || g->memory_kind == PLIM_GPU_GIVEN;
}

uint32_t plim_gpu_count(void);           /* of whole cards */
const plim_gpu *plim_gpu_at(uint32_t i); /* then come MIG instances; NULL past the last */

/* Finds a card by name or alias; case, spaces, dashes and the words NVIDIA, GeForce and Tesla
 * are ignored.  The memory of the card may be added ("T4 16GB", "v100 32"), or left out where
 * only one card has the name.  After a colon follows the profile of a MIG instance
 * ("a100:3g.40gb").  PLIM_EUSAGE names the nearest, or those meant. */
plim_status plim_gpu_find(plim_str name, const plim_gpu **out, plim_err *err);

/* Is it the card with this short name, the first of its aliases?  Exactly as gpus.csv writes it. */
bool plim_gpu_is(const plim_gpu *gpu, const char *short_name);

/* The 2 of "2xt4", a machine of several cards of one kind, whose name goes to *card; 0: not
 * such a name, *card stays as it is. */
uint32_t plim_gpu_several(plim_str name, plim_str *card);

/* "rtx4090,a100", or "all", without MIG instances: the cards of that list, in an array in `a`. */
plim_status plim_gpu_list(plim_arena *a, const char *names, const plim_gpu ***out, uint32_t *n,
                          plim_err *err);

/* The card with so much memory, which is free: the system keeps none of it. */
static inline void plim_gpu_give(plim_gpu *g, uint64_t bytes)
{
    g->memory_bytes = bytes;
    g->kept_low = g->kept_usual = g->kept_high = 0;
}

/* Of a size in GB as cards of that size are sold: a sentence that such a card has GiB; "": nobody sells one.
 * NULL: our memory is full. */
const char *plim_gpu_sold(plim_arena *a, uint64_t bytes);

/* A card known only by its memory size. */
plim_status plim_gpu_generic(plim_arena *a, uint64_t bytes, plim_gpu *out, plim_err *err);

/* What the CUDA runtime reports of an architecture: its limits are those of the compute
 * capability.  l2 is that of the largest card of the architecture: an upper bound. */
typedef struct plim_gpu_limits {
    int cc;
    int blocks_per_sm, shared_per_sm, shared_per_block; /* bytes; per block: by opting in */
    int l2;                                             /* bytes */
} plim_gpu_limits;

/* Those of the newest architecture that is not newer than cc; below all: the oldest's.
 * src: CUDA C++ Programming Guide 12.9, technical specifications per compute capability; l2:
 * NVIDIA's architecture white papers. */
plim_gpu_limits plim_gpu_limits_of(int cc);

/* Threads that an SM can hold; 0 if cc is unknown.
 * src: CUDA C++ Programming Guide 12.9, technical specifications per compute capability,
 * "maximum number of resident threads per SM". */
int plim_gpu_threads_per_sm(int cc);

/* How a size of contexts.def is known. */
typedef enum plim_gpu_known {
    PLIM_GPU_MEASURED, /* on such a card and version */
    PLIM_GPU_FITTED,   /* what other parts leave of a sum that was measured */
    PLIM_GPU_ASSUMED
} plim_gpu_known;
const char *plim_gpu_known_name(plim_gpu_known known); /* "measured" */

typedef struct plim_gpu_part {
    const char *name; /* "cuBLAS" */
    uint64_t low, usual, high;
    plim_gpu_known known;
    const char *src;
} plim_gpu_part;

/* The part that the system keeps of unified memory. */
#define PLIM_GPU_SYSTEM "the system"

/* Memory that a process has beside PyTorch's allocator, in bytes, and the parts whose sum it is: rows of
 * contexts.def.  No part: unknown. */
enum { PLIM_GPU_PARTS = 16 };
typedef struct plim_gpu_context {
    uint64_t low, usual, high;
    plim_gpu_part part[PLIM_GPU_PARTS];
    uint32_t n_parts;
} plim_gpu_context;

/* Whose context it is. */
typedef enum plim_gpu_program {
    PLIM_GPU_ANY,    /* of any program: an engine that serves */
    PLIM_GPU_SCRIPT, /* what PyTorch can run */
    PLIM_GPU_LOOP,   /* training steps and inferences of a model, which take kernels alike */
} plim_gpu_program;

/* What has parts of a context, beside the threads that call a plim_cuda_library. */
enum {
    PLIM_GPU_PROCESS = PLIM_CUDA_LIBRARIES,
    PLIM_GPU_COMMUNICATORS,
    PLIM_GPU_GRAPHS,
    PLIM_GPU_HOLDERS
};

typedef struct plim_gpu_counted {
    uint32_t low, usual, high;
} plim_gpu_counted;

enum { PLIM_GPU_LAZY_SINCE = 113 }; /* PyTorch's version: before, modules are loaded eagerly */

typedef struct plim_gpu_use {
    plim_gpu_program program;
    bool eager;                               /* CUDA_MODULE_LOADING=EAGER */
    plim_gpu_counted count[PLIM_GPU_HOLDERS]; /* that of PLIM_GPU_PROCESS is 1 */
} plim_gpu_use;

/* Of a program of which nothing else is known. */
plim_gpu_use plim_gpu_use_of(plim_gpu_program program);
/* The threads that call each library, as a tape has them: of a script, those that are known to. */
void plim_gpu_use_callers(plim_gpu_use *use, const uint8_t callers[PLIM_CUDA_LIBRARIES]);

/* gpu NULL: any NVIDIA card.  torch as in plim_world (113, 206, 215).  Unknown: not an NVIDIA
 * card. */
plim_gpu_context plim_gpu_context_of(const plim_gpu *gpu, int torch_version, plim_gpu_use use);
/* Adds a part; to what is unknown, nothing. */
void plim_gpu_context_add(plim_gpu_context *c, plim_gpu_part part);
/* Have both cards the same parts, whatever a program does? */
bool plim_gpu_context_alike(const plim_gpu *a, const plim_gpu *b, int torch_version,
                            bool eager);

#endif
