#!/usr/bin/env python3
"""Compares `plimsoll estimate --attention flash` with runs of transformers (attention_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

The runs have transformers' code and, in place of the package flash-attn, stub: that makes the tensors of the package's functions, as
its sources do, and computes nothing.  So what is compared is all but the kernels.  A row of the file is a model, what is run, how the
tokens lie, batch and tokens, and the peak of requested bytes.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

PLAIN = {"vocab_size": 403, "hidden_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8, "intermediate_size": 704,
         "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "max_position_embeddings": 1024}
SHARED = {**PLAIN, "num_key_value_heads": 4}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", SHARED),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**SHARED, "dtype": "float32"}),
}
CASES = [("llama", "train", "equal", 8, 200), ("llama", "train", "packed", 1, 200), ("llama", "train", "padded", 4, 200),
         ("llama_fp32", "train", "autocast", 4, 200), ("llama", "checkpoints", "equal", 4, 200), ("llama", "infer", "equal", 4, 200)]


def predicted(program, folder, name, kind, how, batch, tokens):
    words = ["--infer"] if kind == "infer" else ["--optimizer", "adamw", "--checkpoint", "blocks" if kind == "checkpoints" else "none"]
    words += {"equal": [], "autocast": ["--autocast", "bf16"]}.get(how, ["--sequences", how])
    return runs.estimate(program, folder / name, "--attention", "flash", "--batch", batch, "--seq", tokens, *words)


def measured(program, folder, name, kind, how, batch, tokens):
    options = ("--mask-fraction", 2 / tokens) if how == "packed" else ()  # of the positions, those at which a sequence begins
    return runs.run(program, HERE / "attention_loop.py", folder / name, kind, batch, tokens, how, options=options)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "attention.txt", MODELS, CASES, predicted, measured,
                       "model, what is run, how tokens lie, batch, tokens, peak of requested bytes").main(__doc__))
