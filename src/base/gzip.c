/* gzip.c -- see gzip.h. */
#include "base/gzip.h"

#include <zlib.h>

/* Traces inflate to 10 to 30 times their size; deflate allows 1032. */
enum { MOST_TIMES = 200 };
enum { PIECE = 64 << 10 };
#define ALWAYS_ALLOWED (16ull << 20)

bool plim_gzip_is(plim_bytes file)
{
    return file.n >= 2 && file.p[0] == 0x1f && file.p[1] == 0x8b;
}

static voidpf gzip_alloc(voidpf arena, uInt n, uInt size)
{
    return plim_arena_new(arena, n, size);
}
static void gzip_free(voidpf arena, voidpf p) { (void)arena, (void)p; }

plim_status plim_gzip_open(plim_gzip *g, plim_arena *a, plim_bytes file, plim_err *err)
{
    z_stream *s = PLIM_NEW(a, z_stream);
    *g = (plim_gzip){.file = file,
                     .stream = s,
                     .limit = plim_sat_add(plim_sat_mul(file.n, MOST_TIMES), ALWAYS_ALLOWED)};
    if (file.file)
        g->piece = PLIM_NEW_N(a, uint8_t, PIECE);
    if (!s || (file.file && !g->piece))
        return plim_oom(err);
    s->zalloc = gzip_alloc;
    s->zfree = gzip_free;
    s->opaque = a;
    return inflateInit2(s, MAX_WBITS + 16) == Z_OK ? PLIM_OK : plim_oom(err);
}

static uint64_t bytes_taken(const plim_gzip *g)
{
    const z_stream *s = g->stream;
    plim_assert(s->avail_in <= g->next);
    return g->next - s->avail_in;
}

static plim_status give_bytes(plim_gzip *g, plim_err *err)
{
    plim_assert(g->next <= g->file.n);
    const uint64_t most = g->piece ? PIECE : 1u << 30; /* zlib uses 32-bit counts */
    uint64_t n = PLIM_MIN(g->file.n - g->next, most);
    z_stream *s = g->stream;
    const uint8_t *p = g->piece ? g->piece : g->file.p + g->next;
    plim_status st = g->piece ? plim_bytes_copy(g->file, g->next, n, g->piece, err) : PLIM_OK;
    s->next_in = (z_const Bytef *)(uintptr_t)p; /* read only, though not always const */
    s->avail_in = (uInt)n;
    g->next += n;
    return st;
}

/* One step of zlib; *over: nothing more will come. */
static plim_status inflate_step(plim_gzip *g, bool *over, plim_err *err)
{
    z_stream *s = g->stream;
    PLIM_TRY(s->avail_in ? PLIM_OK : give_bytes(g, err));
    int rc = inflate(s, Z_NO_FLUSH);
    if (rc == Z_STREAM_END) { /* another member may follow */
        *over = bytes_taken(g) == g->file.n;
        return *over || inflateReset(s) == Z_OK ? PLIM_OK : plim_oom(err);
    }
    *over = g->cut = rc == Z_BUF_ERROR && bytes_taken(g) == g->file.n;
    if (rc == Z_OK || *over)
        return PLIM_OK;
    if (rc == Z_MEM_ERROR)
        return plim_oom(err);
    return plim_fail(err, PLIM_EFORMAT, bytes_taken(g),
                     "gzip data is damaged at byte %" PRIu64 ": %s", bytes_taken(g),
                     s->msg ? s->msg : "it cannot be inflated");
}

plim_status plim_gzip_read(plim_gzip *g, char *out, uint64_t n, uint64_t *got, plim_err *err)
{
    z_stream *s = g->stream;
    uInt room = (uInt)PLIM_MIN(n, (uint64_t)1 << 30);
    bool over = g->cut;
    plim_status st = PLIM_OK;
    s->next_out = (Bytef *)out;
    s->avail_out = room;
    while (s->avail_out && !over && !st)
        st = inflate_step(g, &over, err);
    *got = room - s->avail_out;
    plim_assert(*got <= n);
    g->given += *got;
    if (!st && g->given > g->limit)
        st = plim_fail(err, PLIM_EUNSUPPORTED, bytes_taken(g),
                       "gzip data of %" PRIu64 " bytes inflates to more than %" PRIu64,
                       g->file.n, g->limit);
    return st;
}
