/* bytes.c -- bytes of a file in order, asked for or handed over: base.h, "files". */
#include "base/os.h"

plim_status plim_bytes_ahead(plim_bytes b, uint64_t *there, uint64_t at, uint64_t n,
                             plim_err *err)
{
    enum { AFTER_A_HOLE = 4 << 10, GOING_ON = 256 << 10 };
    if (!b.file || (at <= *there && n <= *there - at))
        return PLIM_OK;
    plim_assert(at <= b.n && n <= b.n - at);
    uint64_t more = *there && at <= *there ? GOING_ON : AFTER_A_HOLE;
    n = PLIM_MAX(n, PLIM_MIN(more, b.n - at));
    plim_status st = plim_bytes_need(b, at, n, err);
    if (!st)
        *there = at + n;
    return st;
}

/* ---- a text, in parts ------------------------------------------------------- */

/* A regular file has as many bytes as it had when it was opened, or more; what is none may go on forever. */
static plim_status check_total(const plim_os_file *f, uint64_t total, bool last, plim_err *err)
{
    const uint64_t most = UINT64_C(1) << 34;
    if (f->n == UINT64_MAX)
        return total <= most ? PLIM_OK
                             : plim_fail(err, PLIM_EIO, total,
                                         "'%s' is not a regular file and is over the limit of "
                                         "%" PRIu64 " bytes",
                                         f->path, most);
    return !last || total >= f->n
               ? PLIM_OK
               : plim_fail(err, PLIM_EIO, total,
                           "'%s' had %" PRIu64 " bytes and was truncated while it was read: "
                           "there is nothing at byte %" PRIu64,
                           f->path, f->n, total);
}

enum { PART = 256 << 10 }; /* and what it becomes stay in the second cache */

static plim_status take_parts(const plim_os_file *f, char *part, plim_take *take, void *ud,
                              plim_err *err)
{
    uint64_t total = 0;
    size_t held = 0, got = 1;
    while (got) {
        plim_assert(held < PART);
        plim_status st = plim_os_read(f, part + held, PART - held, &got, err);
        total += got;
        if (!st)
            st = check_total(f, total, !got, err);
        if (st)
            return st;
        held += got;
        size_t done = take(ud, (plim_str){part, held}, !got);
        plim_assert(done <= held && held - done < PART);
        held -= done;
        memmove(part, part + done, held);
    }
    return PLIM_OK;
}

plim_status plim_file_each(const char *path, plim_take *take, void *ud, plim_err *err)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_os_file f;
    PLIM_TRY(plim_os_open(&f, path, err));
    char *part = PLIM_NEW_N(&a, char, PART);
    plim_status st = part ? take_parts(&f, part, take, ud, err) : plim_oom(err);
    plim_os_close(&f);
    plim_arena_free(&a);
    return st;
}
