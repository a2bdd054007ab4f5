/* hf_audio.c -- see hf_audio.h. */
#include "import/hf/hf_audio.h"

#include "import/hf/hf_parts.h"

/* Of all models here: 'sampling_rate' of their preprocessor_config.json. */
enum { RATE = 16000, SECONDS = 10 };

/* 0: it is not said. */
static int64_t asked_samples(const plim_hf *h)
{
    const struct plim_audio *a = &h->bind->audio;
    return a->seconds > 0 ? (int64_t)(a->seconds * RATE + 0.5) : a->samples;
}

int64_t plim_hf_samples(plim_hf *h, const char *input)
{
    const struct plim_input_shape *shape = plim_hf_bound_shape(h, input, true);
    int64_t n = asked_samples(h);
    if (shape && shape->rank == 2)
        n = shape->dim[1];
    if (!n) {
        n = RATE * SECONDS;
        plim_hf_note(h, "each sample is %d s of audio, unless 'audio' says otherwise",
                     (int)SECONDS);
    }
    if (n < 1 || n > INT32_MAX)
        plim_nn_fail(&h->n, PLIM_ERANGE, "%" PRId64 " samples of audio are not in 1..%d", n,
                     (int)INT32_MAX);
    return h->n.g->sizes.audio = n;
}

void plim_hf_whole_audio(plim_hf *h, int64_t samples)
{
    const int64_t asked = asked_samples(h);
    h->n.g->sizes.audio = samples;
    if (asked > samples)
        plim_nn_fail(&h->n, PLIM_EUSAGE,
                     "audio: the encoder takes %" PRId64 " s at a time, and its class refuses "
                     "more; generate() and pipelines pass longer audio in such parts",
                     samples / RATE);
    if (asked && asked < samples)
        plim_hf_note(h, "shorter audio is padded to %" PRId64 " s", samples / RATE);
}

uint32_t plim_hf_conv1d(plim_nn *n, const char *name, uint32_t x, plim_hf_window along)
{
    plim_nn_enter(n, name, "Conv1d");
    uint32_t weight =
        plim_nn_param(n, "weight", INTS(along.channels, plim_nn_dim(n, x, 1), along.kernel));
    uint32_t bias = along.bias ? plim_nn_param(n, "bias", INTS(along.channels)) : PLIM_NONE;
    const plim_named_arg a[] = {ARG_T("input", x), ARG_T("weight", weight),
                                ARG_IS("stride", INTS(along.stride)),
                                ARG_IS("padding", INTS(along.padding)), ARG_T("bias", bias)};
    x = plim_nn_op(n, "aten.conv1d.default", a, along.bias ? 5 : 4);
    plim_nn_leave(n);
    return x;
}
