/* mutate.h -- changes files where their format has a meaning: a member of JSON, a field of a
 * protobuf message, an opcode of a pickle, a file in a zip archive, a word of a line.  A reader
 * gets past its checks of the outermost form that way, and meets what is wrong further in.
 *
 * A mutant follows from its seed and a number alone, so that two words are enough to make it
 * again.  Other seeds lend pieces; they have to be the same ones, too. */
#ifndef TORTURE_MUTATE_H
#define TORTURE_MUTATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How a seed is taken apart. */
#define TORTURE_FORMATS(X)                                                                    \
    X(BYTES, "bytes")                                                                         \
    X(TEXT, "text")                                                                           \
    X(JSON, "json")                                                                           \
    X(SAFETENSORS, "safetensors")                                                             \
    X(PROTOBUF, "protobuf")                                                                   \
    X(PICKLE, "pickle")                                                                       \
    X(GGUF, "gguf")                                                                           \
    X(RECORDING, "recording")                                                                 \
    X(ZIP, "zip")                                                                             \
    X(GZIP, "gzip")

typedef enum torture_format {
#define X(id, name) TORTURE_##id,
    TORTURE_FORMATS(X)
#undef X
        TORTURE_FORMAT_COUNT
} torture_format;

const char *torture_format_name(torture_format f);
/* As it looks; a text that is none of the others is TEXT. */
torture_format torture_format_of(const uint8_t *p, size_t n);

typedef struct torture_bytes {
    uint8_t *p;
    size_t n;
} torture_bytes;

typedef struct torture_seed {
    const char *path;
    torture_bytes bytes;
    torture_format format;
} torture_seed;

/* Random numbers that follow from a start: the same ones on every machine. */
typedef struct torture_random {
    uint64_t state;
} torture_random;
uint64_t torture_next(torture_random *r);
uint32_t torture_below(torture_random *r, uint32_t n); /* 0 .. n - 1; n > 0 */
bool torture_once_in(torture_random *r, uint32_t n);
uint64_t torture_hash(const uint8_t *p, size_t n);

/* What corpora have in short, in full: a recording with only the beginnings of chunks
 * there.  For free(). */
torture_bytes torture_complete(torture_format f, torture_bytes seed);
/* Mutant `number` of a seed, for free(); `others` are those that lend pieces. */
torture_bytes torture_mutate(const torture_seed *seed, uint64_t number,
                             const torture_seed *others, size_t n_others);
/* The same mutant with at least `more` bytes in a place where its format allows them; NULL:
 * nowhere.  For free(). */
torture_bytes torture_pad(const torture_seed *seed, torture_bytes mutant, size_t more);

#endif
