/* fuzz_settings.c -- settings from JSON: any bytes end in settings or an error, and what is
 * written of the settings reads back as the same. */
#include <stdlib.h>

#include "base/fmt.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int put_buf(void *ud, const char *text, size_t n)
{
    plim_buf_add(ud, (plim_str){text, n});
    return 0;
}

static void write_settings(const plim_settings *s, plim_buf *out, plim_arena *a)
{
    plim_buf_init(out, a);
    if (plim_settings_json(s, put_buf, out, NULL))
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim_arena a = PLIM_ARENA_INIT;
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = NULL, *again = NULL;
    plim_buf first, second;
    if (plim_settings_new(&s, NULL) || plim_settings_new(&again, NULL))
        abort();
    plim_status st = plim_settings_set_json(s, size ? (const char *)data : "", size, &err);
    if (st != err.code || (st && !err.msg[0]))
        abort();
    write_settings(s, &first, &a);
    plim_str text = plim_buf_str(&first);
    if (plim_settings_set_json(again, text.p, text.n, NULL))
        abort();
    write_settings(again, &second, &a);
    if (!plim_str_eq(text, plim_buf_str(&second)))
        abort();
    plim_settings_free(s);
    plim_settings_free(again);
    plim_arena_free(&a);
    return 0;
}
