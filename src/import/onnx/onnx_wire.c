/* onnx_wire.c -- see onnx_wire.h. */
#include "import/onnx/onnx_wire.h"

#include <stdio.h>

onnx_wire plim_onnx_wire(plim_bytes file, plim_err *err)
{
    return (onnx_wire){.file = file, .end = file.n, .err = err};
}

plim_status plim_onnx_fail(onnx_wire *w, plim_status code, uint64_t at, const char *fmt, ...)
{
    char msg[224];
    va_list ap;
    if (w->bad)
        return w->bad;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    w->at = w->end;
    return w->bad = plim_fail(w->err, code, at, "%s at byte %" PRIu64, msg, at);
}

/* Whether the next n bytes are in memory. */
static bool wire_there(onnx_wire *w, uint64_t n)
{
    plim_status st = plim_bytes_ahead(w->file, &w->there, w->at, n, w->err);
    if (st) {
        w->at = w->end;
        w->bad = w->bad ? w->bad : st;
    }
    return !st;
}

static bool wire_varint(onnx_wire *w, uint64_t *out)
{
    enum { MOST = 10 };
    uint64_t v = 0, from = w->at;
    if (!wire_there(w, PLIM_MIN((uint64_t)MOST, w->end - w->at)))
        return false;
    for (int i = 0; w->at < w->end; i++) {
        uint8_t byte = w->file.p[w->at++];
        if (i == 9 && byte > 1) {
            plim_onnx_fail(w, PLIM_EFORMAT, from, "a varint is longer than 10 bytes");
            return false;
        }
        v |= (uint64_t)(byte & 0x7f) << (7 * i);
        if (byte < 0x80) {
            *out = v;
            return true;
        }
    }
    plim_onnx_fail(w, PLIM_EFORMAT, from, "the file ends within a varint");
    return false;
}

static bool wire_fixed(onnx_wire *w, uint32_t size, uint64_t *out)
{
    uint64_t v = 0;
    if (w->end - w->at < size) {
        plim_onnx_fail(w, PLIM_EFORMAT, w->at, "a number of %u bytes, %" PRIu64 " are left",
                       (unsigned)size, w->end - w->at);
        return false;
    }
    if (!wire_there(w, size))
        return false;
    for (uint32_t i = 0; i < size; i++)
        v |= (uint64_t)w->file.p[w->at + i] << (8 * i);
    w->at += size;
    *out = v;
    return true;
}

bool plim_onnx_next(onnx_wire *w, onnx_field *f)
{
    uint64_t tag;
    if (w->bad || w->at >= w->end)
        return false;
    *f = (onnx_field){.at = w->at};
    if (!wire_varint(w, &tag))
        return false;
    f->type = (uint32_t)(tag & 7);
    if (tag >> 3 == 0 || tag >> 3 >= 1u << 29) {
        plim_onnx_fail(w, PLIM_EFORMAT, f->at, "field number %" PRIu64 " is out of range",
                       tag >> 3);
        return false;
    }
    f->number = (uint32_t)(tag >> 3);
    switch (f->type) {
    case ONNX_VARINT: return wire_varint(w, &f->bits);
    case ONNX_FIXED32: return wire_fixed(w, 4, &f->bits);
    case ONNX_FIXED64: return wire_fixed(w, 8, &f->bits);
    case ONNX_BYTES:
        if (!wire_varint(w, &f->size))
            return false;
        if (f->size <= w->end - w->at) {
            f->from = w->at;
            w->at += f->size;
            return true;
        }
        plim_onnx_fail(w, PLIM_EFORMAT, f->at,
                       "field %u takes %" PRIu64 " bytes, %" PRIu64 " are left",
                       (unsigned)f->number, f->size, w->end - w->at);
        return false;
    default:
        plim_onnx_fail(w, PLIM_EFORMAT, f->at,
                       "field %u has wire type %u, which ONNX does not use",
                       (unsigned)f->number, (unsigned)f->type);
        return false;
    }
}

static bool wire_is(onnx_wire *w, const onnx_field *f, uint32_t type)
{
    if (f->type == type)
        return true;
    plim_onnx_fail(w, PLIM_EFORMAT, f->at, "field %u has wire type %u, not %u",
                   (unsigned)f->number, (unsigned)f->type, (unsigned)type);
    return false;
}

plim_str plim_onnx_str(onnx_wire *w, const onnx_field *f)
{
    if (!wire_is(w, f, ONNX_BYTES))
        return PLIM_STR("");
    plim_status st = plim_bytes_need(w->file, f->from, f->size, w->err);
    w->bad = w->bad ? w->bad : st;
    return st ? PLIM_STR("") : (plim_str){(const char *)w->file.p + f->from, (size_t)f->size};
}

int64_t plim_onnx_int(onnx_wire *w, const onnx_field *f)
{
    return wire_is(w, f, ONNX_VARINT) ? (int64_t)f->bits : 0;
}

double plim_onnx_f32(uint64_t bits)
{
    uint32_t u = (uint32_t)bits;
    float v;
    memcpy(&v, &u, sizeof v);
    return (double)v;
}

double plim_onnx_f64(uint64_t bits)
{
    double v;
    memcpy(&v, &bits, sizeof v);
    return v;
}

double plim_onnx_float(onnx_wire *w, const onnx_field *f)
{
    return wire_is(w, f, ONNX_FIXED32) ? plim_onnx_f32(f->bits) : 0;
}

onnx_wire plim_onnx_message(onnx_wire *w, const onnx_field *f)
{
    onnx_wire sub = *w;
    if (wire_is(w, f, ONNX_BYTES) && w->depth >= ONNX_MAX_DEPTH)
        plim_onnx_fail(w, PLIM_EFORMAT, f->at, "messages are nested deeper than %d",
                       ONNX_MAX_DEPTH);
    sub.bad = w->bad;
    sub.depth++;
    sub.there = 0;
    sub.at = w->bad ? 0 : f->from;
    sub.end = w->bad ? 0 : f->from + f->size;
    return sub;
}

/* ---- repeated numbers ------------------------------------------------------ */

/* Enters a packed field; false: it holds a single value, which is taken. */
static bool wire_packed(onnx_wire *w, const onnx_field *f, onnx_wire *part, bool *first)
{
    *first = !part->file.p;
    if (*first) {
        *part = *w;
        part->there = 0;
        part->at = f->from;
        part->end = f->from + f->size;
    }
    return f->type == ONNX_BYTES;
}

bool plim_onnx_next_int(onnx_wire *w, const onnx_field *f, onnx_wire *part, int64_t *out)
{
    bool first;
    uint64_t v;
    if (!wire_packed(w, f, part, &first)) {
        *out = plim_onnx_int(w, f);
        return first && !w->bad;
    }
    if (part->at >= part->end || part->bad)
        return false;
    bool ok = wire_varint(part, &v);
    *out = ok ? (int64_t)v : 0;
    w->bad = w->bad ? w->bad : part->bad;
    return ok;
}

bool plim_onnx_next_bits(onnx_wire *w, const onnx_field *f, onnx_wire *part, uint32_t size,
                         uint64_t *out)
{
    bool first;
    if (!wire_packed(w, f, part, &first)) {
        *out = f->bits;
        return first && wire_is(w, f, size == 4 ? ONNX_FIXED32 : ONNX_FIXED64);
    }
    if (part->at >= part->end || part->bad)
        return false;
    bool ok = wire_fixed(part, size, out);
    w->bad = w->bad ? w->bad : part->bad;
    return ok;
}
