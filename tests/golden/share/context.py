#!/usr/bin/env python3
"""Compares `plimsoll estimate --cp` with ranks of jobs that run torch's own ring attention (context_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of context_runs.txt is a model, --strategy, --cp, --dp, the rank, checkpoints as 0 or 1, batch and tokens, and the peak of requested
bytes.  Two steps, AdamW.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

WIDE = {"vocab_size": 2003, "max_position_embeddings": 4096, "hidden_size": 512, "num_hidden_layers": 3,
        "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 704}
BF16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**WIDE, **BF16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**WIDE, **FP32, "num_key_value_heads": 8}),
    "mistral": ("mistral", "MistralForCausalLM", {**WIDE, **BF16, "sliding_window": None}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**WIDE, **BF16}),
    "qwen3": ("qwen3", "Qwen3ForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "gemma": ("gemma", "GemmaForCausalLM", {**WIDE, **BF16, "head_dim": 64}),
    "phi": ("phi", "PhiForCausalLM", {**WIDE, **BF16}),
}
LONG, SHORT = (1, 2048), (2, 256)
STRATEGIES = ("fsdp2", "ddp", "fsdp2,param=bf16,reduce=fp32", "zero1", "fsdp1")


def cases():
    """Ranks first, middle and last."""
    rows = [(name, "fsdp2", cp, 1, rank, checkpoint, *size) for name in ("llama", "llama_fp32") for checkpoint in (0, 1)
            for size in (LONG, SHORT) for cp, rank in ((2, 0), (2, 1), (4, 0), (4, 2), (4, 3))]
    rows += [(name, "fsdp2", 4, 1, rank, checkpoint, *LONG) for name in ("mistral", "qwen2", "qwen3", "gemma", "phi")
             for checkpoint, rank in ((0, 1), (1, 3))]
    rows += [("llama", strategy, 2, 2, rank, checkpoint, *LONG) for strategy in STRATEGIES for checkpoint in (0, 1)
             for rank in (0, 1, 3)]
    return rows


def predicted(program, folder, name, strategy, cp, dp, rank, checkpoint, batch, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none", "--cp", cp, "--dp", dp, "--strategy", strategy,
                         "--rank", rank)


def measured(program, folder, name, strategy, cp, dp, rank, *rest):
    return runs.run(program, HERE / "context_loop.py", folder / name, strategy, cp, dp, *rest,
                    options=("--world", cp * dp, "--rank", rank))


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "context_runs.txt", MODELS, cases(), predicted, measured,
                       "model, strategy, cp, dp, rank, checkpoints, batch, tokens, peak of requested bytes",
                       packages=("accelerate",)).main(__doc__))
