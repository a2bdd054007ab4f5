/* fuzz_snapshot.c -- any bytes as a recording: what is read is followed, and told as a tape
 * that is sound. */
#include "alloc/sim.h"
#include "trace/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void use_recording(plim_arena *a, const plim_recording *r, bool as_recorded)
{
    plim_tape t;
    plim_sim s;
    uint32_t *stacks;
    plim_alloc_options o = {.capacity = as_recorded ? 0 : 64u << 20};
    plim_tape_init(&t, a);
    if (plim_recording_tape(r, as_recorded, &t, &stacks, NULL))
        return;
    plim_assert(plim_tape_check(&t) == NULL);
    for (uint32_t i = 0; i < t.n_storages; i++)
        plim_assert(stacks[i] < r->n_stacks);
    (void)plim_sim_run(a, &t, &o, PLIM_SIM_LIVE, &s, NULL);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 64u << 20};
    plim_recording r;
    plim_follow f;
    plim_err err = PLIM_ERR_INIT;
    if (plim_recording_read(&r, &a, (plim_bytes){.p = p, .n = n}, &err)) {
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    } else if (!r.given) {
        (void)plim_recording_follow(&r, n % 2 ? 0 : 201, &f, NULL);
        use_recording(&a, &r, true);
        use_recording(&a, &r, false);
    }
    plim_arena_free(&a);
    return 0;
}
