/* fuzz_text.c -- what a user types: sizes, shapes, card names, widths of text. */
#include "base/fmt.h"
#include "gpu/gpu.h"

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
    plim_str s = {(const char *)p, n};
    plim_arena a = {.limit = 1u << 20};
    plim_err err = PLIM_ERR_INIT;
    uint64_t bytes = 0;
    int64_t dim[4];
    int32_t rank = -1;
    const plim_gpu *gpu = NULL;

    if (plim_parse_size(s, &bytes, NULL) == PLIM_OK)
        plim_fmt_bytes(bytes, n % 2);
    if (plim_parse_shape(s, dim, 4, &rank, NULL) == PLIM_OK)
        for (int32_t i = 0; i < rank; i++)
            plim_assert(dim[i] >= 0);
    if (plim_gpu_find(s, &gpu, &err) == PLIM_OK)
        plim_assert(gpu && gpu->memory_bytes);
    else
        plim_assert(err.code == PLIM_EUSAGE && err.msg[0]);

    plim_buf out;
    plim_buf_init(&out, &a);
    plim_buf_add(&out, s);
    plim_assert(out.bad || plim_text_width(plim_buf_str(&out)) <= 2 * s.n);
    plim_arena_free(&a);
    return 0;
}
