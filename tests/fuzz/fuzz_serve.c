/* fuzz_serve.c -- a GGUF file as llama.cpp would hold it: any bytes end in an answer whose parts are
 * in order, or in an error. */
#include <stdlib.h>

#include "plimsoll.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int drop_text(void *ud, const char *text, size_t n)
{
    (void)ud, (void)text, (void)n;
    return 0;
}

static void check_parts(const plim_serve *s)
{
    uint64_t device = 0;
    for (uint32_t i = 0; i < s->n_parts; i++) {
        if (s->parts[i]->low > s->parts[i]->usual || s->parts[i]->usual > s->parts[i]->high)
            abort();
        if (s->parts[i]->place == PLIM_ON_CARD)
            device += s->parts[i]->usual;
    }
    if (s->device < UINT64_MAX / 2 && device != s->device)
        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    plim_err err = PLIM_ERR_INIT;
    plim_settings *s = NULL;
    plim_model *m = NULL;
    plim_serve *answer = NULL;
    if (plim_settings_new(&s, NULL) ||
        plim_settings_set(s, "engine", "llama.cpp,n_gpu_layers=1", NULL) ||
        plim_settings_set(s, "context", "300", NULL))
        abort();
    if (!plim_model_open_bytes("fuzz.gguf", data, size, &m, &err) &&
        !plim_serve_run(m, s, &answer, &err)) {
        check_parts(answer);
        if (plim_serve_print(answer, PLIM_JSON, NULL, drop_text, NULL, NULL))
            abort();
    } else if (!err.msg[0]) {
        abort();
    }
    plim_serve_free(answer);
    plim_model_free(m);
    plim_settings_free(s);
    return 0;
}
