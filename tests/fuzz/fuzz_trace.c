/* fuzz_trace.c -- any bytes as a trace of torch.profiler: what is read is whole, is followed,
 * and is told as a tape that is sound. */
#include "alloc/sim.h"
#include "trace/recording.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void check_recording(const plim_recording *r)
{
    plim_assert(r->n_events && r->n_actions >= r->n_events && r->n_processes);
    plim_assert(!r->counters || r->n_counters == r->n_actions);
    plim_assert(r->n_rest <= r->n_before && r->rest_bytes <= r->before_bytes);
    for (uint32_t i = 0; i < r->n_actions; i++)
        plim_assert(r->actions[i].stack < r->n_stacks && r->actions[i].bytes);
    for (uint32_t i = 0; i < r->n_stacks; i++)
        plim_assert(r->stacks[i].label == PLIM_NONE || r->stacks[i].label < r->n_frames);
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 64u << 20};
    plim_recording r;
    plim_follow f;
    plim_tape t;
    plim_sim s;
    uint32_t *stacks;
    plim_alloc_options o = {.capacity = 64u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_tape_init(&t, &a);
    if (!plim_format_trace.detect((plim_bytes){.p = p, .n = n})) {
    } else if (plim_recording_read(&r, &a, (plim_bytes){.p = p, .n = n}, &err)) {
        plim_assert(err.code != PLIM_OK && err.msg[0]);
    } else {
        plim_assert(err.code == PLIM_OK);
        check_recording(&r);
        (void)plim_recording_follow(&r, n % 2 ? 0 : 201, &f, NULL);
        if (plim_recording_tape(&r, n % 2, &t, &stacks, NULL) == PLIM_OK) {
            plim_assert(plim_tape_check(&t) == NULL);
            (void)plim_sim_run(&a, &t, &o, PLIM_SIM_LIVE, &s, NULL);
        }
    }
    plim_arena_free(&a);
    return 0;
}
