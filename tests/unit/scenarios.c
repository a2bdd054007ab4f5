/* scenarios.c -- see scenarios.h. */
#include "scenarios.h"

#include <stdio.h>
#include <string.h>

#define DATA PLIM_SOURCE_DIR "/tests/data/"

/* Printing to here takes memory, which is the test's and does not count. */
static int put_text(void *ud, const char *text, size_t n)
{
    uint64_t left = plim_memory_fail_in;
    if (left) /* only then there are no other threads */
        plim_memory_fail_in = 0;
    plim_buf_add(ud, (plim_str){text, n});
    if (left)
        plim_memory_fail_in = left;
    return 0;
}

/* Runs one function of the library for a result, prints that in two ways and frees it. */
#define ASK(fn, T)                                                                            \
    static void ask_##fn(const plim_model *m, const plim_settings *s, answer *a)              \
    {                                                                                         \
        T *r = NULL;                                                                          \
        a->st = plim_##fn##_run(m, s, &r, &a->err);                                           \
        if (!a->st)                                                                           \
            a->st = plim_##fn##_print(r, PLIM_TEXT, NULL, put_text, &a->text, &a->err);       \
        if (!a->st)                                                                           \
            a->st = plim_##fn##_print(r, PLIM_JSON, NULL, put_text, &a->text, &a->err);       \
        plim_##fn##_free(r);                                                                  \
    }
ASK(estimate, plim_estimate)
ASK(layers, plim_layers)
ASK(info, plim_info)
ASK(fit, plim_fit)
ASK(batches, plim_batches)
ASK(segments, plim_segments)
ASK(times, plim_times)
ASK(cards, plim_cards)
ASK(serve, plim_serve)
ASK(serve_fit, plim_serve_fit)

static void ask_tape(const plim_model *m, const plim_settings *s, answer *a)
{
    a->st = plim_tape_print(m, s, true, put_text, &a->text, &a->err);
}

const scenario scenarios[] = {
    {"mlp", "", ask_estimate, NULL},
    {"mlp", "optimizer=adamw gpu=t4 batch=8", ask_estimate, NULL},
    {"mlp", "dp=2 strategy=fsdp2", ask_estimate, NULL},
    {"mlp", "autocast=bf16 accumulate=2", ask_estimate, NULL},
    {"mlp", "checkpoint=segments=2", ask_estimate, NULL},
    {"mlp", "gpu=t4", ask_times, NULL},
    {"mlp", "", ask_layers, NULL},
    {"mlp", "gpu=t4", ask_fit, NULL},
    {"mlp", "", ask_batches, NULL},
    {"mlp", "", ask_segments, NULL},
    {"mlp", "", ask_cards, NULL},
    {"mlp", "", ask_tape, NULL},
    {"relu.pt2", "", ask_estimate, NULL},
    {"seed_mlp.pt2", "", ask_info, NULL},
    {"small_tied.pt2", "", ask_tape, NULL},
    {"version_attend.pt2", "", ask_estimate, NULL},
    {"version_layer.pt2", "", ask_estimate, NULL},
    {"version_rms.pt2", "", ask_estimate, NULL},
    {"version_linear4d.pt2", "", ask_estimate, NULL},
    {"onnx/small_shape_chain.onnx", "infer", ask_tape, NULL},
    {"onnx/small_attention_written.onnx", "infer", ask_tape, NULL},
    {"onnx/small_loop.onnx", "", ask_info, NULL},
    {"onnx/small_function.onnx", "", ask_info, NULL},
    {"onnx/small_if.onnx", "infer", ask_estimate, NULL},
    {"onnx/small_lstm.onnx", "", ask_estimate, NULL},
    {"onnx/small_gru.onnx", "infer", ask_estimate, NULL},
    {"onnx/small_external.onnx", "", ask_info, NULL},
    {"onnx/small_qdq.onnx", "infer", ask_estimate, NULL},
    {"onnx/gpt2.script.onnx", "", ask_tape, NULL},
    {"onnx/cnn.script.onnx", "", ask_layers, NULL},
    {"llama-tiny", "", ask_estimate, NULL},
    {"llama-tiny", "lora=r=2 batch=2", ask_estimate, NULL},
    {"llama-tiny", "concurrency=2", ask_serve, NULL},
    {"llama-tiny", "draft=gpt2 gpu=t4", ask_serve, NULL},
    {"llama-tiny", "gpu=t4", ask_serve_fit, NULL},
    {"tiny.gguf", "", ask_info, NULL},
    {"split/tiny-00001-of-00003.gguf", "", ask_info, NULL},
    {"every_type.safetensors", "", ask_info, NULL},
    {"sharded/model.safetensors.index.json", "", ask_info, NULL},
    {"mix_214.pth", "", ask_info, NULL},
    {"pretrain_gpt.sh", "", ask_info, NULL},
    {"pretrain_moe.sh", "dp=4 gpu=h100", ask_estimate, NULL},
    {"ties.tape", "", NULL, NULL},
    {"snapshots/mid_run.pickle", "", NULL, NULL},
    {"traces/oom.json", "", NULL, NULL},
    {"snapshots/two.pickle", "", NULL, "snapshots/different.pickle"},
};
const size_t n_scenarios = PLIM_COUNT(scenarios);

const scenario families[] = {
    {"lenet5", "", ask_estimate, NULL},
    {"swin_t", "", ask_estimate, NULL},
    {"vit_b_16", "infer", ask_estimate, NULL},
    {"unet", "", ask_estimate, NULL},
    {"shufflenet_v2_x0_5", "", ask_layers, NULL},
    {"tinyllama-1.1b", "tp=2 sequence_parallel=1", ask_estimate, NULL},
    {"tinyllama-1.1b", "pp=2 microbatches=4 schedule=zero_bubble", ask_estimate, NULL},
    {"smollm2-135m", "cp=2 dp=2 strategy=ddp", ask_estimate, NULL},
    {"smollm2-135m", "quant=nf4 lora=r=8", ask_estimate, NULL},
    {"smollm2-135m", "quant=int8 infer", ask_estimate, NULL},
    {"smollm2-135m", "lora=r=8,dora freeze=model.layers.0.**", ask_estimate, NULL},
    {"smollm2-135m", "sequences=packed checkpoint=blocks optimizer=bnb_lion8bit", ask_estimate,
     NULL},
    {"smollm2-135m", "dp=2 strategy=ds_zero3", ask_estimate, NULL},
    {"qwen3-0.6b", "loss=liger", ask_estimate, NULL},
    {"qwen1.5-moe-a2.7b", "ep=2 dp=2 strategy=fsdp2", ask_estimate, NULL},
    {"mixtral-8x7b", "", ask_info, NULL},
    {"gpt-oss-20b", "infer", ask_estimate, NULL},
    {"deepseek-v2-lite", "infer", ask_estimate, NULL},
    {"gemma-3-270m", "", ask_estimate, NULL},
    {"phi-2", "infer", ask_tape, NULL},
    {"distilgpt2", "", ask_estimate, NULL},
    {"gpt-j-6b", "infer", ask_estimate, NULL},
    {"pythia-70m", "", ask_estimate, NULL},
    {"opt-125m", "", ask_estimate, NULL},
    {"bloom-560m", "infer", ask_estimate, NULL},
    {"falcon-7b", "infer", ask_estimate, NULL},
    {"mamba-130m", "", ask_estimate, NULL},
    {"bert-base-uncased", "", ask_estimate, NULL},
    {"distilbert-base", "", ask_estimate, NULL},
    {"electra-small", "", ask_estimate, NULL},
    {"t5-small", "", ask_estimate, NULL},
    {"bart-base", "", ask_estimate, NULL},
    {"whisper-tiny", "", ask_estimate, NULL},
    {"vit-base-patch16-224", "", ask_estimate, NULL},
    {"swin-tiny", "", ask_estimate, NULL},
    {"clip-vit-b-32", "", ask_estimate, NULL},
};
const size_t n_families = PLIM_COUNT(families);

static void place(char *out, size_t n, const char *name)
{
    snprintf(out, n, DATA "%s", name);
    if (!plim_file_exists(out)) /* it is built in */
        snprintf(out, n, "%s", name);
}

static void set_all(plim_settings *s, const char *text, answer *a)
{
    char word[64];
    while (*text && !a->st) {
        size_t n = strcspn(text, " ");
        snprintf(word, sizeof word, "%.*s", (int)n, text);
        char *value = strchr(word, '=');
        if (value)
            *value++ = 0;
        if (!strcmp(word, "infer"))
            a->st = plim_settings_set(s, "mode", "infer", &a->err);
        else
            a->st = plim_settings_set(s, word, value, &a->err);
        text += n + (text[n] == ' ');
    }
}

static void ask_replay(const char *path, const plim_settings *s, answer *a)
{
    plim_replay *r = NULL;
    a->st = plim_replay_run(path, s, &r, &a->err);
    if (!a->st)
        a->st = plim_replay_print(r, PLIM_TEXT, NULL, put_text, &a->text, &a->err);
    plim_replay_free(r);
}

static void ask_diff(const char *path, const char *other, const plim_settings *s, answer *a)
{
    plim_diff *d = NULL;
    a->st = plim_diff_run(path, NULL, other, NULL, s, &d, &a->err);
    if (!a->st)
        a->st = plim_diff_print(d, PLIM_TEXT, NULL, put_text, &a->text, &a->err);
    plim_diff_free(d);
}

static void ask_model(const char *path, const scenario *c, const plim_settings *s, answer *a)
{
    plim_model *m = NULL;
    a->st = plim_model_open(path, &m, &a->err);
    if (!a->st)
        c->ask(m, s, a);
    plim_model_free(m);
}

void ask_scenario(const scenario *c, uint64_t n, answer *a)
{
    char path[512], other[512];
    plim_settings *s = NULL;
    *a = (answer){.err = PLIM_ERR_INIT};
    plim_buf_init(&a->text, &a->arena);
    place(path, sizeof path, c->model);
    place(other, sizeof other, c->other ? c->other : "");
    if (n)
        plim_memory_fail_in = n;
    a->st = plim_settings_new(&s, &a->err);
    if (!a->st)
        set_all(s, c->settings, a);
    if (a->st)
        ;
    else if (c->other)
        ask_diff(path, other, s, a);
    else if (!c->ask)
        ask_replay(path, s, a);
    else
        ask_model(path, c, s, a);
    plim_settings_free(s);
}
