/* cublas.c -- libcublas.so: what is asked of it besides work. */
#include "stub.h"

enum { OK = 0, INVALID = 7 };

#define CUBLAS(name, ...) PLIM_STUB(int, name, __VA_ARGS__)

CUBLAS(cublasGetVersion_v2, void *handle, int *version)
{
    (void)handle;
    *version = (int)plim_stub_setting("PLIMSOLL_STUB_CUBLAS_VERSION", 130200);
    return OK;
}

CUBLAS(cublasGetProperty, int what, int *value)
{
    static const int version[] = {13, 2, 0};
    if (what < 0 || what > 2)
        return INVALID;
    *value = version[what];
    return OK;
}

CUBLAS(cublasGetStream_v2, void *handle, void **stream)
{
    (void)handle;
    *stream = 0;
    return OK;
}

static const char *status_text(int code)
{
    return code ? "error of a pretend GPU" : "success";
}

PLIM_STUB(const char *, cublasGetStatusName, int code) { return status_text(code); }
PLIM_STUB(const char *, cublasGetStatusString, int code) { return status_text(code); }
