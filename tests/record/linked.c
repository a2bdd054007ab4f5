/* linked.c -- a program that is linked with CUDA's driver, as ggml is, and a library. */
#include <stdint.h>
#include <stdio.h>

int cuInit(unsigned flags);
int cuDevicePrimaryCtxRetain(void **out, int device);
int cuCtxPushCurrent_v2(void *context);
int cuMemAlloc_v2(uint64_t *addr, size_t bytes);
int cuMemFree_v2(uint64_t addr);
int cuMemGetInfo_v2(size_t *free_bytes, size_t *total);

int take_workspace(size_t bytes);

int main(void)
{
    void *context;
    uint64_t one, two;
    size_t free_bytes, total;
    if (cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxPushCurrent_v2(context) ||
        cuMemAlloc_v2(&one, 4 << 20) || cuMemAlloc_v2(&two, 6 << 20) || cuMemFree_v2(one) ||
        take_workspace(8 << 20) || cuMemGetInfo_v2(&free_bytes, &total))
        return 1;
    printf("held %d\nused %zu\n", 14 << 20, total - free_bytes);
    return 0;
}
