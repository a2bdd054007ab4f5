/* onnx_wire.h -- protobuf's wire format, walked in place: no copy, no table of messages. Bytes
 * fields are skipped, so weights are never touched.
 *
 * Strict: a varint of more than 10 bytes, a length beyond the message, a group, a field of
 * another wire type than expected and messages nested deeper than ONNX_MAX_DEPTH are errors
 * that name the offset.
 * src: https://protobuf.dev/programming-guides/encoding/ */
#ifndef PLIM_ONNX_WIRE_H
#define PLIM_ONNX_WIRE_H

#include "base/base.h"

enum { ONNX_MAX_DEPTH = 64 };

/* A message, or the rest of it. */
typedef struct onnx_wire {
    plim_bytes file;         /* the whole of it */
    uint64_t at, end, there; /* the last: see plim_bytes_ahead */
    int depth;
    plim_err *err;
    plim_status bad; /* sticky: after an error there is no next field */
} onnx_wire;

enum { ONNX_VARINT = 0, ONNX_FIXED64 = 1, ONNX_BYTES = 2, ONNX_FIXED32 = 5 };

typedef struct onnx_field {
    uint32_t number, type;
    uint64_t at;         /* offset of the field */
    uint64_t bits;       /* its value, unless it is bytes */
    uint64_t from, size; /* of bytes */
} onnx_field;

onnx_wire plim_onnx_wire(plim_bytes file, plim_err *err);
/* The next field; false at the end, and on an error. */
bool plim_onnx_next(onnx_wire *w, onnx_field *f);
plim_status plim_onnx_fail(onnx_wire *w, plim_status code, uint64_t at, const char *fmt, ...)
    PLIM_PRINTF(4, 5);

/* Reads a field as the expected type; another wire type gives an empty result and w is bad. */
plim_str plim_onnx_str(onnx_wire *w, const onnx_field *f);
int64_t plim_onnx_int(onnx_wire *w, const onnx_field *f);
double plim_onnx_float(onnx_wire *w, const onnx_field *f);      /* of 32 bits */
onnx_wire plim_onnx_message(onnx_wire *w, const onnx_field *f); /* else w is bad */

/* Repeated numbers come one per field or packed into one: returns the next of them.  `part` is
 * {0} when the field is first seen. */
bool plim_onnx_next_int(onnx_wire *w, const onnx_field *f, onnx_wire *part, int64_t *out);
bool plim_onnx_next_bits(onnx_wire *w, const onnx_field *f, onnx_wire *part, uint32_t size,
                         uint64_t *out); /* fixed numbers of 4 or 8 bytes */
double plim_onnx_f32(uint64_t bits);
double plim_onnx_f64(uint64_t bits);

#endif
