/* fuzz_driver.c -- any bytes as a recording of CUDA's driver: what is read adds up, and is told
 * as a tape that is sound.
 *
 * The head and the space between chunks say nothing, so inputs are short: pieces of a header
 * and nine slots, which become a chunk each.  One that begins as the file does is a file. */
#include "trace/driver.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

enum { CHUNKS = 12, PIECE = 640 };
static uint8_t file[(CHUNKS + 1) * PLIM_DRIVER_CHUNK];

static plim_bytes make_file(const uint8_t *p, size_t n)
{
    plim_driver_head h = {.version = PLIM_DRIVER_VERSION, .chunk = PLIM_DRIVER_CHUNK};
    memcpy(h.magic, PLIM_DRIVER_MAGIC, sizeof h.magic);
    memcpy(file, &h, sizeof h);
    size_t i = 0;
    for (; i < CHUNKS && i * PIECE < n; i++) {
        uint8_t *to = file + (i + 1) * PLIM_DRIVER_CHUNK;
        memset(to, 0, PIECE);
        memcpy(to, p + i * PIECE, PLIM_MIN(n - i * PIECE, (size_t)PIECE));
    }
    return (plim_bytes){.p = file, .n = (i + 1) * PLIM_DRIVER_CHUNK};
}

static void use_log(plim_arena *a, const plim_driver_log *log)
{
    plim_driver_held held;
    plim_tape t;
    plim_err err = PLIM_ERR_INIT;
    if (!plim_driver_hold(log, a, &held, &err)) {
        for (uint32_t i = 0; i < held.n_uses; i++)
            plim_assert(held.uses[i].peak >= held.uses[i].held);
        for (uint32_t i = 0; i < held.n_holders; i++)
            plim_assert(held.holders[i].owner < log->n_texts);
    }
    plim_tape_init(&t, a);
    if (plim_driver_tape(log, &t, &err))
        return;
    a->fail_after = 0; /* to check needs memory too */
    plim_assert(plim_tape_check(&t) == NULL);
}

static void read_file(plim_bytes bytes, uint64_t fail_after)
{
    plim_arena a = {.limit = 64u << 20, .fail_after = fail_after};
    plim_driver_log log;
    plim_err err = PLIM_ERR_INIT;
    if (plim_driver_read(&log, &a, bytes, &err))
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    else
        use_log(&a, &log);
    plim_arena_free(&a);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_bytes bytes = {.p = p, .n = n};
    if (!plim_driver_detect(bytes))
        bytes = make_file(p, n);
    read_file(bytes, 0);
    read_file(bytes, 1 + n % 32); /* memory runs out at some point */
    return 0;
}
