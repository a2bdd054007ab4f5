/* json.h -- reads and writes JSON.
 *
 * The reader is a cursor over borrowed bytes: the caller, who knows what should be there,
 * pulls values one by one and skips the rest.  It allocates nothing.  The first error sticks
 * (and goes to err); from then on every call returns zero, NULL or false, so a record is
 * checked once, at its end.  A copy of a reader remembers a place to return to.
 *
 *     plim_json_object(&j);
 *     while (plim_json_member(&j, &key))
 *         if (plim_str_is(key, "rank"))
 *             rank = plim_json_i64(&j);
 *         else
 *             plim_json_skip(&j);
 *     if (j.bad)
 *         return j.bad;
 *
 * src: RFC 8259; with `lax` also the NaN, Infinity and -Infinity that Python's json.dumps
 * writes.  Skipped values are checked as strictly as values read.  Duplicate keys are returned
 * as they come; bytes above 0x7f are not checked. */
#ifndef PLIM_JSON_H
#define PLIM_JSON_H

#include "base/fmt.h"

/* ---- reader -------------------------------------------------------------- */

enum { PLIM_JSON_MAX_DEPTH = 128 };

typedef enum plim_json_kind {
    PLIM_JSON_BAD, /* an error, or no value where one is required */
    PLIM_JSON_NULL,
    PLIM_JSON_BOOL,
    PLIM_JSON_NUMBER,
    PLIM_JSON_STRING,
    PLIM_JSON_ARRAY,
    PLIM_JSON_OBJECT,
} plim_json_kind;

typedef struct plim_json {
    const char *p;
    uint64_t n, at;
    uint64_t base; /* offset of p in the file: added to offsets in errors */
    uint32_t depth;
    bool fresh; /* the innermost object or array has had no item yet */
    bool lax;
    plim_status bad;
    plim_err *err;
} plim_json;

void plim_json_init(plim_json *j, plim_str text, plim_err *err);
plim_status plim_json_end(plim_json *j); /* nothing but white space may be left */

plim_json_kind plim_json_peek(
    plim_json *j); /* the kind of the next value; moves over white space only */

/* Enters the object, then moves to each value in turn; false after the last. */
bool plim_json_object(plim_json *j);
bool plim_json_member(plim_json *j, plim_str *key); /* key as written, escapes and all */
bool plim_json_array(plim_json *j);
bool plim_json_item(plim_json *j);

void plim_json_skip(plim_json *j);
/* Skips an object, array or string that is byte for byte equal to `raw`, which was valid at
 * this depth; false: it is not equal. */
bool plim_json_again(plim_json *j, plim_str raw);

/* Reads exactly one value of the kind.  A number with a zero fraction (11008.0) counts as an
 * integer. */
int64_t plim_json_i64(plim_json *j);
uint64_t plim_json_u64(plim_json *j);
double plim_json_f64(plim_json *j); /* exact up to 15 digits and 10^22; 1e999: infinite */
bool plim_json_bool(plim_json *j);
void plim_json_null(plim_json *j);
plim_str plim_json_str(plim_json *j); /* borrowed, escapes as written */
plim_str plim_json_raw(plim_json *j); /* any value, as written */

/* Fails the reader at its position: for valid JSON with the wrong content. */
void plim_json_fail(plim_json *j, plim_status code, const char *fmt, ...) PLIM_PRINTF(3, 4);

/* A copy of a string as written, with its escapes decoded; a lone surrogate becomes U+FFFD.
 * {NULL, 0}: no memory. */
plim_str plim_json_unescape(plim_arena *a, plim_str raw);

/* Offset of the first byte that is not valid UTF-8; s.n: all of it is.  RFC 8259 requires
 * UTF-8, and some formats insist on it. */
size_t plim_json_utf8(plim_str s);

/* ---- writer -------------------------------------------------------------- */

/* The writer adds commas and colons itself:
 *
 *     plim_jw_init(&w, &buf);
 *     plim_jw_object(&w);
 *     plim_jw_key(&w, "bytes");
 *     plim_jw_u64(&w, 42);
 *     plim_jw_end(&w);
 *
 * Its output is valid UTF-8: an invalid byte becomes U+FFFD. */
enum { PLIM_JW_MAX_DEPTH = 64 };

typedef struct plim_jw {
    plim_buf *out;
    uint64_t arrays; /* bit d: level d is an array */
    uint32_t depth;
    bool comma; /* needed before the next value or key */
} plim_jw;

void plim_jw_init(plim_jw *w, plim_buf *out);
void plim_jw_object(plim_jw *w);
void plim_jw_array(plim_jw *w);
void plim_jw_end(plim_jw *w); /* of the innermost object or array */
void plim_jw_key(plim_jw *w, const char *name);
void plim_jw_str(plim_jw *w, plim_str s);
void plim_jw_cstr(plim_jw *w, const char *z); /* NULL: null */
void plim_jw_u64(plim_jw *w, uint64_t v);
void plim_jw_i64(plim_jw *w, int64_t v);
void plim_jw_f64(plim_jw *w,
                 double v); /* shortest text that parses back; NaN and infinities: null */
void plim_jw_bool(plim_jw *w, bool v);
void plim_jw_null(plim_jw *w);

#endif
