/* fuzz_tape.c -- a tape of any bytes: what parses is sound, is written and read
 * back as the same text, and runs through every allocator without harm. */
#include "alloc/sim.h"
#include "base/fmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int put(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static void write_and_read(plim_arena *a, const plim_tape *t)
{
    plim_buf once, twice;
    plim_tape u;
    plim_buf_init(&once, a);
    plim_buf_init(&twice, a);
    plim_tape_init(&u, a);
    if (plim_tape_write(t, put, &once, NULL))
        return;
    plim_str text = plim_buf_str(&once);
    plim_status st =
        plim_tape_parse(&u, (plim_bytes){.p = (const uint8_t *)text.p, .n = text.n}, NULL);
    if (st == PLIM_OK && !plim_tape_write(&u, put, &twice, NULL))
        plim_assert(once.bad || twice.bad || plim_str_eq(text, plim_buf_str(&twice)));
    plim_assert(st == PLIM_OK || st == PLIM_ENOMEM || once.bad);
    plim_tape_write_json(t, put, &twice, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 32u << 20};
    plim_tape t;
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(&t, &a);
    plim_status st = plim_tape_parse(&t, (plim_bytes){.p = p, .n = n}, &err);
    if (st) {
        plim_assert(err.code == st && err.msg[0] && err.at <= n);
    } else {
        plim_assert(plim_tape_check(&t) == NULL);
        write_and_read(&a, &t);
        for (uint32_t i = 0; i < plim_allocator_count(); i++) {
            plim_alloc_options o = {.allocator = plim_allocator_at(i),
                                    .torch = n % 2 ? 0 : 204,
                                    .capacity = n % 3 ? 0 : 64u << 20};
            plim_sim s = {0};
            st = plim_sim_run(&a, &t, &o, PLIM_SIM_ALL, &s, NULL);
            plim_assert(st || s.peak_requested <= s.peak_allocated);
            plim_assert(st || s.peak_allocated <= s.peak_reserved);
        }
    }
    plim_arena_free(&a);
    return 0;
}
