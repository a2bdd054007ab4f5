/* texts.h -- random texts of a few words, handed over in random parts; and what was read from texts before it
 * was done fast: each byte is compared with each word. */
#ifndef PLIM_TEST_TEXTS_H
#define PLIM_TEST_TEXTS_H

#include "base/base.h"
#include "trace/log.h"

/* The same numbers from the same seed, below n. */
uint32_t texts_random(uint64_t *seed, uint32_t n);

/* A text of about n bytes, of pieces of the words; in a third of the texts, of a few of the words. */
plim_str texts_make(plim_arena *a, uint64_t *seed, size_t n, const char *const *words,
                    size_t n_words);

/* Hands the text over in parts of 1 to `most` bytes, each at an address of its own. */
void texts_parts(plim_take *take, void *ud, plim_str text, uint64_t *seed, uint32_t most);

/* Out-of-memory messages that begin with the words that texts of test_oom.c are of: how many, and the
 * reduced text of the last of the best. */
typedef struct texts_oom {
    uint32_t messages;
    plim_str best;
} texts_oom;
texts_oom texts_slow_oom(plim_arena *a, plim_str text);

plim_log texts_slow_log(plim_str text);

#endif
