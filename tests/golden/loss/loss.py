#!/usr/bin/env python3
"""Compares `plimsoll estimate --loss linear_cross_entropy|liger` with PyTorch's and Liger's own code (loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model, --loss, checkpoints as 0 or 1, whether the head is frozen, batch and tokens, and the peak of
requested bytes.  Two steps, AdamW.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SIZES = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 2,
         "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}
LARGE = {**SIZES, "vocab_size": 50003, "hidden_size": 256}  # the peak is at the loss
BF16, FP16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float16"}, {"dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**LARGE, **BF16}),
    "llama_fp16": ("llama", "LlamaForCausalLM", {**LARGE, **FP16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**LARGE, **FP32}),
    "llama_tied": ("llama", "LlamaForCausalLM", {**LARGE, **BF16, "tie_word_embeddings": True}),
    "llama_few": ("llama", "LlamaForCausalLM", {**SIZES, **BF16, "vocab_size": 100}),  # fewer classes than features
    "mistral": ("mistral", "MistralForCausalLM", {**SIZES, **BF16}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**LARGE, **BF16}),
    "phi": ("phi", "PhiForCausalLM", {**LARGE, **BF16}),  # its head has a bias
    "phi_fp32": ("phi", "PhiForCausalLM", {**LARGE, **FP32}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"vocab_size": 50003, "n_positions": 1024, "n_embd": 256, "n_layer": 2, "n_head": 8, **BF16}),
}
LOSSES = ("linear_cross_entropy", "liger")


def cases():
    """Liger's forward is that of models like Llama."""
    rows = [(name, loss, checkpoint, 0, 4, 512) for name in MODELS for loss in LOSSES for checkpoint in (0, 1)
            if loss != "liger" or name not in ("gpt2", "phi", "phi_fp32")]
    rows += [(name, loss, 0, frozen, *size) for name in ("llama", "llama_fp16", "llama_fp32") for loss in LOSSES
             for frozen, size in ((1, (4, 512)), (0, (1, 7)), (0, (3, 333)))]
    rows += [("phi", "linear_cross_entropy", 0, 1, 4, 512)]
    return rows


def predicted(program, folder, name, loss, checkpoint, frozen, batch, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none", "--cache", "off", "--loss", loss,
                         *(["--freeze", "lm_head"] if frozen else []))


def measured(program, folder, name, *rest):
    return runs.run(program, HERE / "loop.py", folder / name, *rest)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", MODELS, cases(), predicted, measured,
                       "model, --loss, checkpoints, frozen head, batch, tokens, peak of requested bytes",
                       packages=("liger-kernel",)).main(__doc__))
