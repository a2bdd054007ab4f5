/* fuzz_peft.c -- an adapter_config.json of any bytes: what is read from it is a text that the setting "peft" takes,
 * or is refused in a sentence. */
#include "transform/adapter.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 16u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_adapter spec;
    plim_str text, name;
    plim_status st = plim_adapter_convert(&a, (plim_str){(const char *)p, n}, &text, &err);
    plim_assert(st == err.code);
    if (st) {
        plim_assert(err.msg[0]);
    } else {
        plim_assert(text.n && memchr(text.p, '\n', text.n) == NULL);
        const char *comma = memchr(text.p, ',', text.n);
        name = (plim_str){text.p, comma ? (size_t)(comma - text.p) : text.n};
        plim_str items = {text.p + name.n + (comma != NULL),
                          text.n - name.n - (comma != NULL)};
        st =
            plim_adapter_parse_items(name, items, &spec, &err); /* a number may be too large */
        plim_assert(st == PLIM_OK || st == PLIM_EUSAGE);
        plim_assert(st || spec.method != NULL);
    }
    plim_arena_free(&a);
    return 0;
}
