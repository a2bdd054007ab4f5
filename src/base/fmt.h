/* fmt.h -- numbers, sizes and tables as text, and sizes and shapes from text.
 *
 * Independent of the locale: the same bytes on every machine and in every program.  Nothing
 * here prints; text goes into a plim_buf, which lives in an arena. */
#ifndef PLIM_FMT_H
#define PLIM_FMT_H

#include "base/base.h"

/* ---- numbers: returned by value, so a call can stand in a printf --------- */

typedef struct plim_text {
    char s[32];
} plim_text;

/* 1.50 GiB (1024) or, with si, 1.61 GB (1000); below one K: 512 B. */
plim_text plim_fmt_bytes(uint64_t bytes, bool si);
/* In the unit in which `as` is shown: 0.50 GiB. */
plim_text plim_fmt_bytes_as(uint64_t bytes, uint64_t as, bool si);
plim_text plim_fmt_count(uint64_t n);  /* 25,557,032 */
plim_text plim_fmt_metric(uint64_t n); /* 25.56 M, 4.09 G, 999 */
/* "12.5 %"; "-" if `whole` is 0. */
plim_text plim_fmt_percent(uint64_t part, uint64_t whole);
/* 25557032, without a NUL, before `end`, where 20 characters have room; returns its first digit. */
char *plim_write_digits(char *end, uint64_t n);
/* "0.9", "1e-05", "inf": the shortest of 15 to 17 digits that parses back to v. */
plim_text plim_fmt_double(double v);
/* 1008.3: at most `decimals` (0..6) digits after the point, trailing zeros removed; "-" below
 * zero or above 10^12.  For rates read from tables. */
plim_text plim_fmt_fixed(double v, int decimals);
/* "0.0023", "0.32", "4.1", "41": two digits at least, down to a millionth.  For estimates. */
plim_text plim_fmt_digits(double v);

/* ---- text that grows ----------------------------------------------------- */

typedef struct plim_buf {
    plim_arena *arena;
    char *p; /* NUL after the last byte, once anything was added */
    uint64_t n;
    uint64_t cap;
    bool bad; /* the arena was full: later text is dropped */
    plim_put
        put; /* gets what has come together, piece by piece; NULL: all stays in the buffer */
    void *ud;
    bool unput; /* it failed: later text is dropped, too */
} plim_buf;

void plim_buf_init(plim_buf *b, plim_arena *a);
/* From now on text is put out in pieces, so that it takes no memory; what is left at the end is the
 * caller's to put. */
void plim_buf_put(plim_buf *b, plim_put put, void *ud);
void plim_buf_add(plim_buf *b, plim_str s);
void plim_buf_puts(plim_buf *b, const char *z);
void plim_buf_repeat(plim_buf *b, const char *z, uint64_t times);
void plim_buf_printf(plim_buf *b, const char *fmt, ...) PLIM_PRINTF(2, 3);
plim_str plim_buf_str(const plim_buf *b); /* never NULL: "" if nothing was added */

/* ---- width --------------------------------------------------------------- */

/* Columns that UTF-8 text takes on a terminal: none for a combining mark, two for a wide East
 * Asian character, one for a byte that is not valid UTF-8. */
uint32_t plim_text_width(plim_str s);

/* ---- names that are nearly right -------------------------------------------- */

enum { PLIM_NAME_MAX = 64 };

/* Finds the row with this name in an array of structs that begin with their name (const char
 * *).  NULL: PLIM_EUSAGE with "unknown WHAT 'x': known are a, b". */
const void *plim_row_find(const char *what, const char *name, const void *rows, size_t n,
                          size_t size, plim_err *err);

/* Number of letters to insert, delete or change, and of neighbours to swap, to get from a to
 * b; PLIM_NAME_MAX if one of them is longer than that. */
uint32_t plim_edit_distance(plim_str a, plim_str b);

/* ---- from text ----------------------------------------------------------- */

/* A decimal number as C and JSON write it, "inf" or "nan", correctly rounded; false unless it
 * is all of s.  Like plim_fmt_double it ignores the locale. */
bool plim_parse_double(plim_str s, double *out);

/* "24GiB", "24 gib", "24g" = 24 * 2^30; "24GB" = 24 * 10^9; "1.5M", "512", "512B".  A fraction
 * of a byte is dropped.  PLIM_EUSAGE: not a size; PLIM_ERANGE: does not fit 64 bits. */
plim_status plim_parse_size(plim_str s, uint64_t *bytes, plim_err *err);

/* "5%" = 5.  Not below 0; false: it is no percentage. */
bool plim_parse_percent(plim_str s, double *out);

/* "500x500x3", "1,3,224,224", "(32, 10)", "[3]"; "()" is a scalar.  Dimensions are 0 or more.
 * PLIM_EUSAGE: not a shape; PLIM_ERANGE: more than `max` dimensions, or one that does not fit
 * 64 bits. */
plim_status plim_parse_shape(plim_str s, int64_t *dim, int32_t max, int32_t *rank,
                             plim_err *err);
/* The one dimension of such a shape; false: it has none or several, or is not a shape. */
bool plim_parse_dim(plim_str s, int64_t *out);

/* "4.46.3": how many numbers of at most two digits it has, the others 0; 4: it goes on after a third; 0: it does not have
 * that form. */
int plim_parse_version(const char *text, int part[3]);

#endif
