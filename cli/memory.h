/* memory.h -- memory of the program: blocks that are given back all at once.  The program sees
 * no arena of the library's; memory.c is its one file that asks for memory itself. */
#ifndef PLIM_MEMORY_H
#define PLIM_MEMORY_H

#include <stdbool.h>
#include <stddef.h>

typedef struct plim_memory {
    struct plim_memory_block *blocks;
    size_t held, most; /* bytes; most 0: no limit but what there is */
} plim_memory;

/* Zeros; NULL: there is no memory. */
void *plim_memory_new(plim_memory *m, size_t bytes);
/* A copy; NULL: there is no memory. */
char *plim_memory_text(plim_memory *m, const char *text);
/* Room for at least `n` items in *list, which has room for *cap; false: there is no memory. */
bool plim_memory_grow(plim_memory *m, void **list, size_t *cap, size_t n, size_t item_bytes);
void plim_memory_free(plim_memory *m);

#endif
