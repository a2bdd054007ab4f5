/* budget.c -- how much memory the process holds for us, and how much work on one input may: see base.h. */
#include <stdatomic.h>

#include "base/os.h"

enum { TIMES_INPUT = 64 };
#define INPUT_FLOOR (128ull << 20)
#define LITTLE (64ull << 20) /* may be had without asking the system what there is */

static _Atomic uint64_t held, given, usual;
static _Thread_local plim_budget *budget; /* the innermost */

/* What the system has is asked for once, as it may have to ask others. */
static uint64_t memory_limit(void)
{
    uint64_t limit = atomic_load(&given);
    if (!limit && !(limit = atomic_load(&usual))) {
        limit = PLIM_MAX(plim_os_memory() / 4 * 3, LITTLE);
        atomic_store(&usual, limit);
    }
    return limit;
}

uint64_t plim_memory_fail_in;

uint64_t plim_memory_held(void) { return atomic_load(&held); }

void plim_limit_memory(uint64_t bytes) { atomic_store(&given, bytes); }

/* In proportion to the input, where no limit was given. */
static uint64_t input_limit(uint64_t input)
{
    bool limited = input != PLIM_BUDGET_FREE && !atomic_load(&given);
    return limited ? plim_sat_add(plim_sat_mul(input, TIMES_INPUT), INPUT_FLOOR) : UINT64_MAX;
}

uint64_t plim_memory_limit(uint64_t file_bytes)
{
    return PLIM_MIN(input_limit(file_bytes), memory_limit());
}

static bool process_has(uint64_t bytes)
{
    uint64_t now = plim_sat_add(atomic_fetch_add(&held, bytes), bytes);
    bool little = now <= LITTLE && !atomic_load(&given);
    if (little || (now < UINT64_MAX && now <= memory_limit()))
        return true;
    plim_assert(atomic_load(&held) >= bytes);
    atomic_fetch_sub(&held, bytes);
    return false;
}

bool plim_memory_take(uint64_t bytes)
{
    for (plim_budget *b = budget; b; b = b->outer) {
        plim_assert(b->held <= b->limit);
        if (bytes > b->limit - b->held) {
            b->over = true;
            return false;
        }
    }
    if (!process_has(bytes))
        return false;
    for (plim_budget *b = budget; b; b = b->outer)
        b->held += bytes;
    return true;
}

void plim_memory_give(uint64_t bytes)
{
    plim_assert(atomic_load(&held) >= bytes);
    atomic_fetch_sub(&held, bytes);
    /* of what was taken before it began, a budget knows nothing */
    for (plim_budget *b = budget; b; b = b->outer)
        b->held = plim_sat_sub(b->held, bytes);
}

/* ---- work on one input ------------------------------------------------------ */

void plim_budget_begin(plim_budget *b, uint64_t input)
{
    *b = (plim_budget){.outer = budget, .input = input, .limit = input_limit(input)};
    budget = b;
}

void plim_budget_join(plim_budget *both, const plim_budget *a, const plim_budget *b)
{
    uint64_t of_a = a->input == PLIM_BUDGET_FREE ? a->held : a->input;
    uint64_t of_b = b->input == PLIM_BUDGET_FREE ? b->held : b->input;
    plim_budget_begin(both, PLIM_MIN(plim_sat_add(of_a, of_b), PLIM_BUDGET_FREE - 1));
    both->two = true;
    both->limit = plim_sat_add(both->limit, INPUT_FLOOR);
    both->held = a->held + b->held;
}

void plim_budget_failed(void)
{
    if (budget && !budget->over)
        budget->failed = true;
}

plim_status plim_budget_end(plim_budget *b, plim_status st, plim_err *err)
{
    plim_assert(budget == b);
    budget = b->outer;
    if (b->failed && b->outer)
        b->outer->failed = true;
    if (!b->over && !b->failed)
        return st;
    plim_err_clear(err);
    if (b->over && b->two)
        return plim_fail(err, PLIM_ENOMEM, 0,
                         "comparing these two takes more than %" PRIu64
                         " MiB of memory, the limit for their size (--memory-limit sets "
                         "another)",
                         b->limit >> 20);
    if (b->over)
        return plim_fail(
            err, PLIM_ENOMEM, 0,
            "reading this file of %" PRIu64 " bytes takes more than %" PRIu64
            " MiB of memory, the limit for its size (--memory-limit sets another)",
            b->input, b->limit >> 20);
    return plim_fail(err, PLIM_ENOMEM, 0,
                     "out of memory for plimsoll's own tables, which may take %" PRIu64
                     " MiB (--memory-limit)",
                     memory_limit() >> 20);
}
