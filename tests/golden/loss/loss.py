#!/usr/bin/env python3
"""Compares `plimsoll estimate --loss linear_cross_entropy|liger` with PyTorch's and Liger's own code (loop.py), to the byte.

    tests/golden/loss/loss.py PROGRAM                   compares; needs no PyTorch
    tests/golden/loss/loss.py PROGRAM record [NAME...]  runs the models under `plimsoll run`, and writes runs.txt; the
                                                        python in front of PATH has torch, transformers and liger-kernel

A row of runs.txt is a model, --loss, checkpoints as 0 or 1, whether the head is frozen, batch and tokens, and the peak of
requested bytes.  Two steps, AdamW.
"""
import datetime
import pathlib
import sys
from importlib.metadata import version

HERE = pathlib.Path(__file__).resolve().parent
RUNS = HERE / "runs.txt"
CARD, TORCH = "h100", "2.13"

sys.path.insert(0, str(HERE.parent / "idiom"))
import idiom  # noqa: E402  what the scripts have in common

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
    "gpt2": ("gpt2", "GPT2LMHeadModel", {"vocab_size": 50003, "n_positions": 1024, "n_embd": 256, "n_layer": 2, "n_head": 8, **BF16}),
}
LOSSES = ("linear_cross_entropy", "liger")


def cases():
    """Liger's forward is that of models like Llama."""
    rows = [(name, loss, checkpoint, 0, 4, 512) for name in MODELS for loss in LOSSES for checkpoint in (0, 1)
            if name != "gpt2" or loss != "liger"]
    rows += [(name, loss, 0, frozen, *size) for name in ("llama", "llama_fp16", "llama_fp32") for loss in LOSSES
             for frozen, size in ((1, (4, 512)), (0, (1, 7)), (0, (3, 333)))]
    return rows


def predicted(program, folder, name, loss, checkpoint, frozen, batch, tokens):
    return idiom.peak_of([program, "estimate", folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                          "--checkpoint", "blocks" if checkpoint else "none", "--cache", "off", "--loss", loss,
                          *(["--freeze", "lm_head"] if frozen else []), "--advice", "none", "--gpu", CARD,
                          "--torch", TORCH, "--json"], ("memory", "peak_requested"))


def measured(program, folder, name, *rest):
    return idiom.peak_of([program, "run", "--gpu", CARD, "--json", "--", "python", "-W", "ignore", HERE / "loop.py",
                          folder / name, *rest], ("peak_requested",))


def read_runs():
    rows = {}
    for line in RUNS.read_text().splitlines() if RUNS.exists() else []:
        if not line.startswith("#"):
            *case, peak = [int(field) if field.isdigit() else field for field in line.split()]
            rows[tuple(case)] = peak
    return rows


def write_runs(rows):
    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "liger-kernel"))
    head = [f"# recorded {datetime.date.today()} by: tests/golden/loss/loss.py PROGRAM record",
            f"# {versions}, plimsoll run --gpu {CARD}; model, --loss, checkpoints, frozen head, batch, tokens,"
            " peak of requested bytes"]
    RUNS.write_text("\n".join(head + [" ".join(map(str, (*case, rows[case]))) for case in cases() if case in rows]) + "\n")


def record(program, folder, names):
    rows = read_runs()
    for case in cases():
        if case not in rows or case[0] in names:
            rows[case] = measured(program, folder, *case)
            ours = predicted(program, folder, *case)
            print(*case, rows[case], "" if ours == rows[case] else f"DIFFERS {ours}", flush=True)
            write_runs(rows)


def compare(program, folder):
    rows, wrong = read_runs(), 0
    for case in cases():
        peak = predicted(program, folder, *case)
        if peak != rows.get(case):
            wrong += 1
            print(*case, "estimate", peak, "run", rows.get(case, "none"))
    print(f"{len(rows)} runs, {wrong} of another size")
    return 1 if wrong or len(rows) != len(cases()) else 0


if __name__ == "__main__":
    sys.exit(idiom.main(__doc__, MODELS, record, compare))
