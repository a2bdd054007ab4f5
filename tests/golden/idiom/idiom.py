#!/usr/bin/env python3
"""Compares `plimsoll estimate` with runs of loop.py, `loss = model(input_ids=x, labels=x).loss`, to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model of the table below, use_cache and checkpoints as 0 or 1, and the peak of requested bytes.
Batch 4, two steps, AdamW, bf16, or fp32 under autocast.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SMALL = {"vocab_size": 8000, "max_position_embeddings": 1024}
WIDE = {**SMALL, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}
LLAMA = {**WIDE, "num_key_value_heads": 4, "intermediate_size": 1408}
GPT = {"vocab_size": 8000, "n_positions": 1024, "n_embd": 512, "n_layer": 4, "n_head": 8}
WINDOW = {"sliding_window": 128}  # shorter than the sequence

MODELS = {  # model type, class, sizes
    "llama": ("llama", "LlamaForCausalLM", LLAMA),
    "mistral": ("mistral", "MistralForCausalLM", LLAMA),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", LLAMA),
    "gemma2": ("gemma2", "Gemma2ForCausalLM", {**LLAMA, "head_dim": 64}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 64}),
    "mixtral": ("mixtral", "MixtralForCausalLM", {**LLAMA, "num_local_experts": 4}),
    "gpt_neox": ("gpt_neox", "GPTNeoXForCausalLM", {**WIDE, "intermediate_size": 2048}),
    "opt": ("opt", "OPTForCausalLM",
            {**WIDE, "max_position_embeddings": 2048, "ffn_dim": 2048, "word_embed_proj_dim": 512}),
    "phi": ("phi", "PhiForCausalLM", LLAMA),
    "gpt2": ("gpt2", "GPT2LMHeadModel", GPT),
    # more, with and without the cache
    "gpt2_124m": ("gpt2", "GPT2LMHeadModel", {}),
    "mistral_window": ("mistral", "MistralForCausalLM", {**LLAMA, **WINDOW}),
    "gemma3_text": ("gemma3_text", "Gemma3ForCausalLM", {**LLAMA, **WINDOW, "head_dim": 64}),
    "phi3": ("phi3", "Phi3ForCausalLM", {**LLAMA, "pad_token_id": 0}),
    "falcon": ("falcon", "FalconForCausalLM",
               {"vocab_size": 8000, "hidden_size": 512, "num_hidden_layers": 4, "num_attention_heads": 8}),
    "bloom": ("bloom", "BloomForCausalLM", {"vocab_size": 8000, "hidden_size": 512, "n_layer": 4, "n_head": 8}),
    "qwen2_moe": ("qwen2_moe", "Qwen2MoeForCausalLM",
                  {**LLAMA, "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 256,
                   "shared_expert_intermediate_size": 512}),
    # in fp32, under autocast to bf16
    "llama_autocast": ("llama", "LlamaForCausalLM", {**LLAMA, "dtype": "float32"}),
    "mistral_autocast": ("mistral", "MistralForCausalLM", {**LLAMA, **WINDOW, "dtype": "float32"}),
    "qwen3_autocast": ("qwen3", "Qwen3ForCausalLM", {**LLAMA, "head_dim": 64, "dtype": "float32"}),
    "gpt2_autocast": ("gpt2", "GPT2LMHeadModel", {**GPT, "dtype": "float32"}),
}
UNEVEN = ["llama", "mistral_window", "qwen2", "qwen3", "gemma2", "gemma3_text", "mixtral", "gpt_neox", "phi", "phi3", "gpt2",
          "llama_autocast", "gpt2_autocast"]  # also with such sequences: NAME_padded, NAME_packed
MODELS |= {f"{name}_padded": MODELS[name] for name in [*UNEVEN, "opt", "falcon", "bloom"]}
MODELS |= {f"{name}_packed": MODELS[name] for name in UNEVEN}
BERT = {**WIDE, "intermediate_size": 2048}
ENCODERS = {
    "bert": ("bert", "BertForMaskedLM", BERT),
    "roberta": ("roberta", "RobertaForSequenceClassification", {**BERT, "pad_token_id": 1}),
    "electra": ("electra", "ElectraForTokenClassification", {**BERT, "embedding_size": 128}),
    "distilbert": ("distilbert", "DistilBertForSequenceClassification",
                   {"vocab_size": 8000, "max_position_embeddings": 1024, "dim": 512, "n_layers": 4, "n_heads": 8, "hidden_dim": 2048}),
}
MODELS |= ENCODERS | {f"{name}_padded": model for name, model in ENCODERS.items()}
T5 = {"vocab_size": 8000, "d_model": 512, "d_kv": 64, "d_ff": 2048, "num_layers": 4, "num_heads": 8, "decoder_start_token_id": 0}
BART = {"d_model": 512, **{f"{half}_{key}": size for half in ("encoder", "decoder")
                           for key, size in (("layers", 4), ("attention_heads", 8), ("ffn_dim", 2048))}}
PAIRS = {  # labels of 64 tokens
    "t5": ("t5", "T5ForConditionalGeneration", T5),
    "bart": ("bart", "BartForConditionalGeneration", {**SMALL, **BART}),
    "whisper": ("whisper", "WhisperForConditionalGeneration", {"vocab_size": 8000, **BART, "max_source_positions": 512, "pad_token_id": 0,
                                                               "decoder_start_token_id": 1, "bos_token_id": 1, "eos_token_id": 2}),
}
PLAIN = {  # which transformers runs by eager attention alone
    "bloom": MODELS["bloom"],
}
OTHERS = {
    "falcon": MODELS["falcon"],
    "falcon_new": ("falcon", "FalconForCausalLM", {**MODELS["falcon"][2], "new_decoder_architecture": True, "num_kv_heads": 2}),
    "swin": ("swin", "SwinForImageClassification", {"image_size": 64, "embed_dim": 48, "depths": [2, 2], "num_heads": [3, 6], "window_size": 4}),
}
MODELS |= PAIRS
MODELS |= {f"{name}_eager": model for name, model in (PAIRS | PLAIN | OTHERS).items()}
LONG = {"gpt2_124m": 1024}  # other sequences have 512 tokens
ALL = list(MODELS)[:10]  # also with checkpoints


def keeps_tokens(name):
    model = MODELS[name][1]
    return MODELS[name] not in ENCODERS.values() and not model.startswith("Swin") and model != "BartForConditionalGeneration"


def cases():
    return [(name, cache, checkpoint) for name in MODELS for cache in ((0, 1) if keeps_tokens(name) else (0,))
            for checkpoint in ((0, 1) if name in ALL or name.endswith(("_autocast", "_padded", "_packed", "_eager")) and name != "swin_eager" or name in PAIRS else (0,))]


def sequences(name):
    return name.rpartition("_")[2] if name.endswith(("_padded", "_packed")) else "equal"


def sizes(name):
    model = MODELS[name][1]
    if "Image" in model:
        return []
    seq = 64 if model.startswith("Whisper") else LONG.get(name, 512)
    labels = {"MaskedLM": 512, "Generation": 64}
    return ["--seq", seq, *(word for end, n in labels.items() if model.endswith(end) for word in ("--input", f"labels=4,{n}"))]


def predicted(program, folder, name, cache, checkpoint):
    return runs.estimate(program, folder / name, "--batch", 4, *sizes(name), "--optimizer", "adamw",
                         *(["--attention", "eager"] if name.endswith("_eager") else []),
                         *(["--cache", "on" if cache else "off"] if keeps_tokens(name) else []), "--checkpoint", "blocks" if checkpoint else "none",
                         *(["--autocast", "bf16"] if "_autocast" in name else []),
                         "--sequences", sequences(name))


def measured(program, folder, name, cache, checkpoint):
    return runs.run(program, HERE / "loop.py", folder / name, cache, checkpoint, LONG.get(name, 512),
                    sequences(name), "eager" if name.endswith("_eager") else "usual")


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", MODELS, cases(), predicted, measured,
                       "model, use_cache, checkpoints, peak of requested bytes").main(__doc__))
