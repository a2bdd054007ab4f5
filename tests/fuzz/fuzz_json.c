/* fuzz_json.c -- the JSON reader by itself; what it takes, the writer can say
 * again. */
#include "base/json.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* Reads any value by what it is and writes it. */
static void copy(plim_json *j, plim_jw *w, plim_arena *a)
{
    plim_str key;
    switch (plim_json_peek(j)) {
    case PLIM_JSON_OBJECT:
        plim_json_object(j);
        plim_jw_object(w);
        while (plim_json_member(j, &key)) {
            plim_str name = plim_json_unescape(a, key);
            plim_jw_key(w, name.p ? name.p : "");
            copy(j, w, a);
        }
        plim_jw_end(w);
        break;
    case PLIM_JSON_ARRAY:
        plim_json_array(j);
        plim_jw_array(w);
        while (plim_json_item(j))
            copy(j, w, a);
        plim_jw_end(w);
        break;
    case PLIM_JSON_STRING: plim_jw_str(w, plim_json_unescape(a, plim_json_str(j))); break;
    case PLIM_JSON_NUMBER: plim_jw_f64(w, plim_json_f64(j)); break;
    case PLIM_JSON_BOOL: plim_jw_bool(w, plim_json_bool(j)); break;
    default: plim_json_null(j); plim_jw_null(w);
    }
}

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_arena a = {.limit = 16u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_json j, read, again;
    plim_buf out;
    plim_jw w;
    plim_buf_init(&out, &a);
    plim_jw_init(&w, &out);
    plim_json_init(&j, (plim_str){(const char *)p, n}, &err);
    j.lax = n % 2;
    read = j;
    plim_json_skip(&j);
    uint64_t end = j.at;
    bool good = plim_json_end(&j) == PLIM_OK;
    plim_assert(good == (err.code == PLIM_OK));

    /* integers of anything */
    plim_json i = read;
    i.err = NULL;
    (void)plim_json_i64(&i);
    i = read;
    i.err = NULL;
    (void)plim_json_u64(&i);

    for (size_t k = 0, depth = 0; k < n; k++) { /* the writer goes less deep */
        depth += p[k] == '{' || p[k] == '[';
        if (depth >= PLIM_JW_MAX_DEPTH)
            good = false;
    }
    if (good) {
        copy(&read, &w, &a);
        if (read.bad != PLIM_OK || read.at != end)
            abort();
        plim_json_init(&again, plim_buf_str(&out), &err);
        plim_json_skip(&again);
        plim_assert(out.bad || plim_json_end(&again) == PLIM_OK);
    }
    plim_arena_free(&a);
    return 0;
}
