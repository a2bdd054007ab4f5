/* needles.h -- where any of a few words stand in a text, at the speed of memory.
 *
 * All words have at least m bytes: whoever looks at three bytes in every m - 2 sees three of
 * each word that is there, and a table says which word they may belong to.  What the text
 * consists of makes little difference. */
#ifndef PLIM_NEEDLES_H
#define PLIM_NEEDLES_H

#include "base/base.h"

enum {
    PLIM_NEEDLES_MOST = 64, /* words */
    PLIM_NEEDLES_STEP_MOST =
        8,                 /* more makes the table's answer "may be" and no search faster */
    PLIM_NEEDLES_BITS = 13 /* of the table: it fits the innermost cache */
};

/* Three bytes of a word. */
typedef struct plim_needles_part {
    uint16_t next; /* of the same place of the table, + 1; 0: none */
    uint8_t word, at;
} plim_needles_part;

typedef struct plim_needles {
    plim_str word[PLIM_NEEDLES_MOST];
    uint32_t n, n_parts, step;
    size_t longest;
    plim_needles_part part[PLIM_NEEDLES_MOST * PLIM_NEEDLES_STEP_MOST];
    uint16_t first[1 << PLIM_NEEDLES_BITS]; /* part + 1; 0: none */
} plim_needles;

/* n words, a column of a table whose rows are `apart` bytes from one another; they outlive `s`.  None has
 * fewer than three bytes. */
void plim_needles_init(plim_needles *s, const char *const *words, size_t apart, uint32_t n);

/* A word at a place.  PLIM_NEEDLE_FROM: before all words at `at`. */
typedef struct plim_needle {
    size_t at;
    uint32_t word;
} plim_needle;
#define PLIM_NEEDLE_FROM(at) ((plim_needle){(at), UINT32_MAX})

/* The next word after *m, in the order of places, and of words at one place; false: there is none. */
bool plim_needles_next(const plim_needles *s, plim_str text, plim_needle *m);

#endif
