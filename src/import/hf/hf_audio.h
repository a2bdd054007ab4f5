/* hf_audio.h -- the sound that a model is called with. */
#ifndef PLIM_HF_AUDIO_H
#define PLIM_HF_AUDIO_H

#include "import/hf/hf.h"

/* Samples of each sequence, of an input [batch, samples] of that name: as bind->audio or the input's shape says. */
int64_t plim_hf_samples(plim_hf *h, const char *input);
/* Of a model that takes so many samples at a time, and pads what is shorter: an error if bind->audio says more. */
void plim_hf_whole_audio(plim_hf *h, int64_t samples);

/* A Conv1d module, along time. */
typedef struct plim_hf_window {
    int64_t channels; /* of the result */
    int64_t kernel, stride, padding;
    bool bias;
} plim_hf_window;
uint32_t plim_hf_conv1d(plim_nn *n, const char *name, uint32_t x, plim_hf_window along);

#endif
