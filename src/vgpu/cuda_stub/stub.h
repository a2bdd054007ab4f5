/* stub.h -- CUDA libraries that do nothing but count: what all of them share.
 *
 * Each library is a list of exported names (names/NAME.txt) and, for the few that
 * need more than a word in that list, a C file (NAME.c).  To add a function, write it
 * there with the library's macro: it takes the place of the one made from the list.
 *
 * The process has one card and one ledger of its memory, in core.c.  They are the
 * state of a pretend driver: unlike the rest of Plimsoll they are global. */
#ifndef PLIM_STUB_H
#define PLIM_STUB_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "plimsoll_vgpu.h"

#define PLIM_STUB_API __attribute__((visibility("default")))

/* An exported function: its prototype and the head of its definition. */
#define PLIM_STUB(type, name, ...)                                                            \
    PLIM_STUB_API type name(__VA_ARGS__);                                                     \
    type name(__VA_ARGS__)

/* ---- the card --------------------------------------------------------------- */

typedef struct plim_stub_card {
    char name[128];
    int cc, major, minor; /* compute capability: 86, 8, 6 */
    int clusters;         /* 1: blocks can be launched in clusters */
    int sms, threads_per_sm, blocks_per_sm;
    int shared_per_sm, shared_per_block; /* bytes; per block: the most it can opt in to */
    int l2;
    uint64_t total, context;
} plim_stub_card;

/* NULL: no card was chosen (PLIMSOLL_RUN_GPU, PLIMSOLL_RUN_VRAM). */
PLIM_STUB_API const plim_stub_card *plim_stub_card_get(void);

/* By the number that both cudaDevAttr* and CU_DEVICE_ATTRIBUTE_* give it. */
PLIM_STUB_API int plim_stub_attribute(const plim_stub_card *c, int number);

/* The architecture of the kernels that would be loaded, as cc: of those that
 * PLIMSOLL_STUB_ARCHS names by now. */
PLIM_STUB_API int plim_stub_binary(const plim_stub_card *c);

/* How many blocks of so many threads and so much shared memory an SM holds.
 * Registers are not known: an upper bound. */
PLIM_STUB_API int plim_stub_occupancy(const plim_stub_card *c, int threads, size_t shared);

/* What cuDNN takes for one pass of a convolution, but for its flags, which are asked for;
 * without anybody to ask they are PyTorch's defaults. */
PLIM_STUB_API uint64_t plim_stub_convolution(const plim_vgpu_conv *conv);
PLIM_STUB_API uint64_t plim_stub_attention(void); /* the same of a graph of attention */
/* Who is told how much memory a plan of cuDNN takes, whenever one says so. */
PLIM_STUB_API void plim_stub_on_workspace(void (*tell)(uint64_t bytes));
PLIM_STUB_API void plim_stub_tell_workspace(uint64_t bytes);
enum { PLIM_STUB_BENCHMARK = 1, PLIM_STUB_NO_TF32 = 2 };
PLIM_STUB_API void plim_stub_on_convolution(unsigned (*flags)(void));

/* ---- memory ----------------------------------------------------------------- */

enum plim_stub_kind {
    PLIM_STUB_NONE,
    PLIM_STUB_DEVICE,
    PLIM_STUB_HOST,     /* pinned */
    PLIM_STUB_MANAGED,  /* in host memory: its pages stay there */
    PLIM_STUB_PHYSICAL, /* of cuMemCreate */
    PLIM_STUB_MAPPED,   /* of cuMemMap */
    PLIM_STUB_SHARED    /* of another process, which has it in its own ledger */
};

#define PLIM_STUB_PAGE (2ull << 20)

typedef struct plim_stub_range {
    uint64_t begin, bytes;
    uint64_t of;   /* MAPPED: the begin of what it maps */
    uint32_t refs; /* PHYSICAL: owners: its creator and each mapping */
    enum plim_stub_kind kind;
} plim_stub_range;

/* Addresses on the card are numbers that no machine maps: what reads through one
 * is stopped.  0: out of memory, of the card or (host) of this machine. */
PLIM_STUB_API uint64_t plim_stub_malloc(uint64_t bytes);
PLIM_STUB_API uint64_t plim_stub_host_malloc(uint64_t bytes);
PLIM_STUB_API uint64_t plim_stub_managed_malloc(uint64_t bytes);
PLIM_STUB_API bool plim_stub_host_register(uint64_t begin, uint64_t bytes);
PLIM_STUB_API bool plim_stub_free(uint64_t begin); /* false: nothing begins there */
PLIM_STUB_API uint64_t plim_stub_reserve(uint64_t bytes, uint64_t align); /* never full */
PLIM_STUB_API uint64_t plim_stub_physical(uint64_t bytes);
PLIM_STUB_API uint64_t plim_stub_share(uint64_t bytes);
PLIM_STUB_API bool plim_stub_map(uint64_t begin, uint64_t bytes, uint64_t physical);
PLIM_STUB_API bool plim_stub_unmap(uint64_t begin, uint64_t bytes);
PLIM_STUB_API void plim_stub_mem_info(uint64_t *free_bytes, uint64_t *total);
/* The cards of this process and their memory.  In a CPU build of PyTorch the ledger is another,
 * which is called. */
typedef void (*plim_stub_memory)(unsigned card, uint64_t *free_bytes, uint64_t *total);
PLIM_STUB_API unsigned plim_stub_cards(void);
PLIM_STUB_API void plim_stub_card_memory(unsigned card, uint64_t *free_bytes, uint64_t *total);
PLIM_STUB_API void plim_stub_on_memory(plim_stub_memory call, unsigned cards);

/* Where this process keeps what it uses of a card, in bytes, for others to see; NULL: no one
 * looks.  What it points to is of this process alone after a fork. */
PLIM_STUB_API uint64_t *plim_stub_ledger(unsigned card);
enum { PLIM_STUB_CARDS = 64 };
typedef struct plim_stub_user {
    uint32_t pid, cards;
    plim_stub_card card; /* all of them are alike */
    uint64_t used[PLIM_STUB_CARDS];
} plim_stub_user;
/* The processes that use pretend cards now.  Returns how many were written. */
PLIM_STUB_API unsigned plim_stub_users(plim_stub_user *out, unsigned max);

/* What the address lies in; kind NONE: in nothing that was asked for here. */
PLIM_STUB_API plim_stub_range plim_stub_find(uint64_t addr);

/* From the card come zeros, to it goes nothing. */
PLIM_STUB_API void plim_stub_copy(void *to, const void *from, uint64_t bytes);
/* What the next copies from the card to the host give on this thread, one number each;
 * 0 of them: zeros again. */
PLIM_STUB_API void plim_stub_answer(const uint64_t *numbers, unsigned n);
/* What the last copy of this thread to the card took there, if it went to this address, was
 * of so many bytes, and these are few. */
PLIM_STUB_API bool plim_stub_uploaded(uint64_t to, void *out, uint64_t bytes);
/* Called for each copy from the card to the host. */
PLIM_STUB_API void plim_stub_on_read(void (*call)(uint64_t bytes));

/* ---- the rest --------------------------------------------------------------- */

/* A number that stands for a stream, a descriptor, ...; never 0, never twice. */
PLIM_STUB_API void *plim_stub_handle(void);
PLIM_STUB_API int64_t plim_stub_setting(const char *name, int64_t otherwise);
/* Returns code.  With PLIMSOLL_STUB_LOG set the name is written once. */
PLIM_STUB_API int plim_stub_missing(const char *name, atomic_bool *said, int code);
/* The address of an exported function of our libcuda; NULL: it has none. */
PLIM_STUB_API void *plim_stub_driver(const char *name);

#endif
