/* judge.c -- loads a model with llama.cpp and lets it print its buffers: see llamacpp.py.
 *
 *     judge FILE CONTEXT FLASH SEQUENCES LAYERS [REGEX...]
 *
 * CONTEXT: of all sequences; FLASH: 0 or 1; LAYERS: on the card, -1: there is none; REGEX: of tensors that stay on the host.  OUTPUTS: the most
 * tokens of which logits are asked for at once, as of a draft.  EMBED: it makes embeddings.  GGML_BACKENDS
 * names the folder of ggml's backends, where they are libraries of their own. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-backend.h"
#include "llama.h"

static void print_sizes(enum ggml_log_level level, const char *text, void *ud)
{
    (void)ud;
    if (strstr(text, "buffer size") || level == GGML_LOG_LEVEL_ERROR)
        fputs(text, stdout);
}

enum { MOST = 16 };

int main(int argc, char **argv)
{
    struct llama_model_tensor_buft_override overrides[MOST + 1] = {{NULL, NULL}};
    if (argc < 6 || argc > 6 + MOST)
        return 2;
    const char *backends = getenv("GGML_BACKENDS");
    llama_log_set(print_sizes, NULL);
    llama_backend_init();
    if (backends)
        ggml_backend_load_all_from_path(backends);
    struct llama_model_params mp = llama_model_default_params();
    mp.n_gpu_layers = atoi(argv[5]) < 0 ? 0 : atoi(argv[5]);
    for (int i = 6; i < argc; i++)
        overrides[i - 6] = (struct llama_model_tensor_buft_override){
            argv[i], ggml_backend_cpu_buffer_type()};
    mp.tensor_buft_overrides = overrides;
    struct llama_model *model = llama_model_load_from_file(argv[1], mp);
    if (!model)
        return 1;
    struct llama_context_params cp = llama_context_default_params();
    cp.n_ctx = (uint32_t)atoi(argv[2]);
    cp.n_batch = 2048;
    cp.n_ubatch = 512;
    cp.n_seq_max = (uint32_t)atoi(argv[4]);
    cp.flash_attn_type =
        atoi(argv[3]) ? LLAMA_FLASH_ATTN_TYPE_ENABLED : LLAMA_FLASH_ATTN_TYPE_DISABLED;
    cp.swa_full = false; /* as llama-server has it */
    cp.embeddings = getenv("EMBED") != NULL;
    const char *outputs = getenv("OUTPUTS");
    if (outputs)
        cp.n_outputs_max = (uint32_t)atoi(outputs);
    return llama_init_from_model(model, cp) ? 0 : 1;
}
