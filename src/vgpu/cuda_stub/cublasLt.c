/* cublasLt.c -- libcublasLt.so: one algorithm, which needs no workspace.  PyTorch
 * allocates the workspace that it offers before it asks. */
#include "stub.h"

#include <string.h>

enum { OK = 0, INVALID = 7 };

#define CUBLASLT(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

typedef struct heuristic {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
} heuristic;

PLIM_STUB(size_t, cublasLtGetVersion, void)
{
    return (size_t)plim_stub_setting("PLIMSOLL_STUB_CUBLAS_VERSION", 130200);
}

CUBLASLT(cublasLtMatmulAlgoGetHeuristic, void *handle, void *operation, void *a, void *b,
         void *c, void *d, void *preference, int asked, heuristic *out, int *n)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)preference;
    if (asked < 1)
        return INVALID;
    memset(out, 0, sizeof *out);
    out->waves = 1;
    *n = 1;
    return OK;
}

CUBLASLT(cublasLtMatmulAlgoGetIds, void *handle, int compute, int scale, int a, int b, int c,
         int d, int asked, int *ids, int *n)
{
    (void)handle, (void)compute, (void)scale, (void)a, (void)b, (void)c, (void)d;
    if (asked < 1)
        return INVALID;
    ids[0] = 0;
    *n = 1;
    return OK;
}

CUBLASLT(cublasLtMatmulAlgoCheck, void *handle, void *operation, void *a, void *b, void *c,
         void *d, const void *algorithm, heuristic *out)
{
    (void)handle, (void)operation, (void)a, (void)b, (void)c, (void)d, (void)algorithm;
    memset(out, 0, sizeof *out);
    out->waves = 1;
    return OK;
}

CUBLASLT(cublasLtMatmulAlgoConfigGetAttribute, const void *algorithm, int what, void *value,
         size_t bytes, size_t *written)
{
    (void)algorithm, (void)what;
    memset(value, 0, bytes);
    if (written)
        *written = bytes;
    return OK;
}

static const char *status_text(int code)
{
    return code ? "error of a pretend GPU" : "success";
}

PLIM_STUB(const char *, cublasLtGetStatusName, int code) { return status_text(code); }
PLIM_STUB(const char *, cublasLtGetStatusString, int code) { return status_text(code); }
