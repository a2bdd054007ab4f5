/* memory.c -- see memory.h */
#include "memory.h"

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

typedef struct plim_memory_block {
    struct plim_memory_block *next;
    max_align_t bytes[]; /* aligned for anything */
} plim_memory_block;

void *plim_memory_new(plim_memory *m, size_t bytes)
{
    size_t most = m->most ? m->most : SIZE_MAX;
    if (bytes > SIZE_MAX - sizeof(plim_memory_block) || m->held > most ||
        sizeof(plim_memory_block) + bytes > most - m->held)
        return NULL;
    plim_memory_block *b = calloc(1, sizeof *b + bytes);
    if (!b)
        return NULL;
    m->held += sizeof *b + bytes;
    b->next = m->blocks;
    m->blocks = b;
    return b->bytes;
}

char *plim_memory_text(plim_memory *m, const char *text)
{
    size_t n = strlen(text) + 1;
    char *copy = plim_memory_new(m, n);
    return copy ? memcpy(copy, text, n) : NULL;
}

/* Doubled, so that what is left behind is less than the list. */
bool plim_memory_grow(plim_memory *m, void **list, size_t *cap, size_t n, size_t item_bytes)
{
    if (n <= *cap)
        return true;
    size_t room = n > *cap * 2 ? n : *cap * 2;
    void *more = room <= SIZE_MAX / item_bytes ? plim_memory_new(m, room * item_bytes) : NULL;
    if (!more)
        return false;
    if (*cap)
        memcpy(more, *list, *cap * item_bytes);
    *list = more;
    *cap = room;
    return true;
}

void plim_memory_free(plim_memory *m)
{
    while (m->blocks) {
        plim_memory_block *b = m->blocks;
        m->blocks = b->next;
        free(b);
    }
    m->held = 0;
}
