/* workspace.c -- a library that takes memory through a CUDA runtime that is a library too. */
#include <stddef.h>

int cudaMalloc(void **out, size_t bytes);
__attribute__((visibility("default"))) int take_workspace(size_t bytes);

int take_workspace(size_t bytes)
{
    void *at;
    return cudaMalloc(&at, bytes);
}
