#!/usr/bin/env python3
"""Compares `plimsoll estimate --autocast fp16 --grad-scaler` with PyTorch's own GradScaler (loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of runs.txt is a model, tokens of a sequence, the optimizer, whether gradients are clipped, and the peak of requested
bytes.  Batch 4, three steps.  With few tokens, the peak is in the optimizer's step.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SIZES = {"vocab_size": 2003, "dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**SIZES, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 2,
                                            "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}),
    "gpt2": ("gpt2", "GPT2LMHeadModel", {**SIZES, "n_positions": 1024, "n_embd": 512, "n_layer": 2, "n_head": 8}),
}
OPTIMIZERS = ["adamw", "adamw,impl=forloop", "adamw,impl=fused", "sgd", "sgd,impl=fused", "adagrad", "adagrad,impl=fused"]


def cases():
    return [(name, tokens, optimizer, clip) for name in MODELS for tokens in (16, 512) for optimizer in OPTIMIZERS for clip in (0, 1)]


def predicted(program, folder, name, tokens, optimizer, clip):
    return runs.estimate(program, folder / name, "--batch", 4, "--seq", tokens, "--optimizer", optimizer, "--cache", "off", "--steps", 3,
                         "--autocast", "fp16", "--grad-scaler", *(["--clip"] if clip else []))


def measured(program, folder, name, tokens, optimizer, clip):
    return runs.run(program, HERE / "loop.py", folder / name, tokens, optimizer, clip)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "runs.txt", MODELS, cases(), predicted, measured,
                       "model, tokens, optimizer, clipped, peak of requested bytes").main(__doc__))
