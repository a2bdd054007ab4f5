/* fuzz_zip.c -- every member of an archive. */
#include "base/zip.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_bytes file = {.p = p, .n = n}, got;
    plim_arena a = {.limit = 16u << 20};
    plim_err err = PLIM_ERR_INIT;
    plim_zip z;
    plim_zip_entry e;
    (void)plim_zip_is(file);
    if (plim_zip_open(&z, file, &err) == PLIM_OK) {
        for (uint64_t cursor = 0; plim_zip_next(&z, &cursor, &e);)
            if (plim_zip_read(&z, &e, &a, 1u << 20, &got, NULL) == PLIM_OK) {
                plim_assert(got.n == e.size);
                for (uint64_t i = 0; i < got.n; i += 61)
                    plim_assert(got.p[i] <= 0xff); /* touched */
            }
        (void)plim_zip_find(&z, "data.pkl", &e);
    } else {
        plim_assert(err.msg[0]);
    }
    plim_arena_free(&a);
    return 0;
}
