/* fuzz_oom.c -- a log of any bytes: what is read from it holds together, is the same in two parts, and can be
 * printed. */
#include "base/fmt.h"
#include "oom/oom.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static int count(void *ud, const char *text, size_t n)
{
    (void)text;
    *(size_t *)ud += n;
    return 0;
}

static uint32_t count_messages(const uint8_t *p, size_t n, size_t cut)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_oom_reader *r = plim_oom_reader_new(&a);
    plim_oom_view view = {0};
    plim_oom_message m = {0};
    size_t done = plim_oom_take(r, (plim_str){(const char *)p, cut}, false);
    plim_oom_take(r, (plim_str){(const char *)p + done, n - done}, true);
    (void)plim_oom_parse(&a, r, &view, &m, NULL);
    plim_arena_free(&a);
    return m.messages;
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_err err = PLIM_ERR_INIT;
    plim_oom_message *m = NULL;
    size_t printed = 0;
    plim_status st = plim_oom_read((const char *)p, n, &m, &err);
    uint32_t in_parts = count_messages(p, n, n / 2);
    plim_assert(in_parts == (st ? 0 : m->messages));
    (void)in_parts;
    if (st) {
        plim_assert(st == PLIM_EFORMAT && err.msg[0] && !m);
        return 0;
    }
    plim_assert(m->messages && m->n_causes);
    for (uint32_t q = 0; q < m->n_numbers; q++)
        plim_assert(!m->numbers[q] || m->numbers[q]->bytes < 1ull << 62);
    st = plim_oom_print(m, PLIM_TEXT, NULL, count, &printed, NULL);
    if (!st)
        st = plim_oom_print(m, PLIM_JSON, NULL, count, &printed, NULL);
    plim_assert(st == PLIM_OK && printed);
    plim_oom_free(m);
    return 0;
}
