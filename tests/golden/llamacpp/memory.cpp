// memory.cpp -- what llama.cpp makes for keys, values and states of a model whose header is given: see llamacpp.py.
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "ggml-backend.h"
#include "llama-cparams.h"
#include "llama-memory-hybrid-iswa.h"
#include "llama-memory-hybrid.h"
#include "llama-model-loader.h"
#include "llama-model.h"

static size_t sum(const std::map<ggml_backend_buffer_type_t, size_t> & parts) {
    size_t bytes = 0;
    for (const auto & part : parts) {
        bytes += part.second;
    }
    return bytes;
}

static size_t states(llama_memory_i * m) {
    if (auto * recurrent = dynamic_cast<llama_memory_recurrent *>(m)) {
        return sum(recurrent->memory_breakdown());
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid *>(m)) {
        return sum(hybrid->get_mem_recr()->memory_breakdown());
    }
    if (auto * hybrid = dynamic_cast<llama_memory_hybrid_iswa *>(m)) {
        return sum(hybrid->get_mem_recr()->memory_breakdown());
    }
    return 0;
}

static void measure(const char * path, int context, int sequences, int flash, int unified) {
    std::vector<std::string> splits;
    llama_model_params params = llama_model_default_params();
    llama_model_loader ml(nullptr, nullptr, nullptr, path, splits, nullptr, params.load_mode, false, true, false, nullptr, nullptr);
    llama_model * model = llama_model_create(ml, params);
    model->hparams.vocab_only = false;
    model->hparams.no_alloc   = true;
    model->load_hparams(ml);
    llama_cparams c{};
    c.n_seq_max  = sequences;
    c.n_ctx_seq  = (context + 255) / 256 * 256;
    c.n_ctx      = c.n_ctx_seq * sequences;
    c.kv_unified = unified;
    if (unified) {
        c.n_ctx_seq = c.n_ctx = (context * sequences + 255) / 256 * 256;
    }
    c.n_batch    = 2048;
    c.n_ubatch   = 512;
    c.flash_attn = flash;
    llama_memory_params mp = {GGML_TYPE_F16, GGML_TYPE_F16, false, LLAMA_CONTEXT_TYPE_DEFAULT, nullptr};
    llama_memory_i * memory = model->create_memory(mp, c);
    const size_t all = memory ? sum(memory->memory_breakdown()) : 0, state = memory ? states(memory) : 0;
    printf("%s %zu %zu\n", path, all - state, state);
    fflush(stdout);
}

int main(int argc, char ** argv) {
    if (argc < 6) {
        return 2;
    }
    if (!getenv("LOUD")) {
        llama_log_set([](ggml_log_level, const char *, void *) {}, nullptr);
    }
    for (int i = 5; i < argc; i++) {  // in a child each: what llama.cpp asserts may not hold
        if (fork() == 0) {
            if (!getenv("LOUD")) {
                freopen("/dev/null", "w", stderr);
            }
            try {
                measure(argv[i], atoi(argv[1]), atoi(argv[2]), atoi(argv[3]), atoi(argv[4]));
            } catch (const std::exception & e) {
                printf("%s refused %s\n", argv[i], e.what());
                fflush(stdout);
            }
            _exit(0);
        }
        int status;
        wait(&status);
        if (status) {
            printf("%s refused (assert)\n", argv[i]);
            fflush(stdout);
        }
    }
    return 0;
}
