/* test_golden_optim.c -- each optimizer's requests, event by event, against what
 * PyTorch's own asked for (tests/golden/optim/record.py). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "optim/optim.h"
#include "unit.h"

enum { STEPS = 3, PARAMETERS = 3, LEAST = 64, MAX_TEXT = 1 << 16 };

/* What our optimizer does, in the file's own words. */
static void run(const char *spec_text, char *out)
{
    static const int64_t sizes[PARAMETERS][2] = {{30, 100}, {100, 1}, {77, 50}};
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_tape t;
    plim_optim_spec spec;
    plim_optim_param params[PARAMETERS];
    plim_world w = {.torch = plim_torch_newest()->version, .cc = 80};
    plim_tape_init(&t, &a);
    plim_machine *m = plim_m_new(&a, &t, &w, &err);
    if (plim_optim_parse(plim_str_of(spec_text), &spec, &err))
        fail_msg("%s: %s", spec_text, err.msg);
    memset(params, 0, sizeof params);
    for (int i = 0; i < PARAMETERS; i++) {
        plim_meta meta = plim_meta_make(PLIM_F32, sizes[i][1] > 1 ? 2 : 1, sizes[i]);
        params[i].leaf = plim_m_leaf(m, &meta, true);
        plim_m_set_grad(m, params[i].leaf, plim_m_empty(m, &meta));
    }
    plim_optim_run r = {m, plim_torch_newest(), &spec, params, PARAMETERS, false};
    *out = 0;
    for (int k = 0; k <= STEPS; k++) {
        uint32_t first = t.n_events;
        out += sprintf(out, "step %d\n", k);
        if (k == 0)
            plim_optim_start(&r);
        else
            plim_optim_step(&r);
        for (uint32_t i = first; i < t.n_events; i++) {
            unsigned long long bytes = t.storages[t.events[i].id].bytes;
            if (bytes >= LEAST)
                out += sprintf(out, "%c %llu\n",
                               t.events[i].kind == PLIM_EVENT_ALLOC ? '+' : '-', bytes);
        }
    }
    assert_int_equal(plim_m_status(m), PLIM_OK);
    plim_arena_free(&a);
}

static void test_events(void **state)
{
    (void)state;
    static char ours[MAX_TEXT], theirs[MAX_TEXT];
    char line[128], name[128] = "";
    int cases = 0, wrong = 0;
    FILE *f = fopen(PLIM_SOURCE_DIR "/tests/golden/optim/events.txt", "r");
    assert_non_null(f);
    while (fgets(line, sizeof line, f)) {
        if (!strncmp(line, "case ", 5)) {
            line[strcspn(line, "\n")] = 0;
            strcpy(name, line + 5);
            *theirs = 0;
        } else if (!strcmp(line, "end\n")) {
            run(name, ours);
            cases++;
            if (strcmp(ours, theirs) != 0) {
                print_message("%s\n--- torch\n%s--- ours\n%s", name, theirs, ours);
                wrong++;
            }
        } else if (*name) {
            strcat(theirs, line);
        }
    }
    fclose(f);
    CHECK("many cases", cases >= 60);
    assert_int_equal(wrong, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_events)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
