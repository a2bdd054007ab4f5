#!/usr/bin/env python3
"""Compares `plimsoll estimate --pp` with all ranks of jobs that run torch's own pipelines (stage_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of stage_runs.txt is a model, --pp, --dp, --tp, --strategy, --schedule (with --stages-per-rank), --microbatches, checkpoints as 0 or 1, batch of
a micro-batch and tokens, and the peak of requested bytes of each rank.  Two steps, AdamW.
"""
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

SIZES = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 5,
         "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}
BF16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}
TEN = {**SIZES, "num_hidden_layers": 10}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**SIZES, **BF16}),
    "llama10": ("llama", "LlamaForCausalLM", {**TEN, **BF16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**SIZES, **FP32}),
    "mistral": ("mistral", "MistralForCausalLM", {**SIZES, **BF16}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**SIZES, **BF16}),
}


def cases():
    """Five layers, or ten for more stages, which the stages do not divide."""
    rows = [("llama", stages, 1, 1, "-", schedule, microbatches, checkpoint, 4, 256) for schedule in ("1f1b", "gpipe")
            for stages, microbatches in ((2, 3), (4, 4), (4, 9)) for checkpoint in (0, 1)]
    rows += [(name, 3, 1, 1, "-", "1f1b", 5, 0, *size) for name in ("llama_fp32", "mistral", "qwen2")
             for size in ((2, 128), (1, 16))]
    rows += [("llama", 2, 1, 2, "-", schedule, 4, checkpoint, 4, 256) for schedule in ("1f1b", "gpipe") for checkpoint in (0, 1)]
    for strategy in ("ddp", "ddp,view=1", "zero1", "fsdp2", "fsdp2,reshard=0", "fsdp2,reduce=fp32"):
        rows += [("llama", 2, 2, 1, strategy, schedule, 4, checkpoint, *size)
                 for schedule in (("1f1b", "gpipe") if strategy.startswith("fsdp2") else ("1f1b",))
                 for checkpoint, size in ((0, (4, 256)), (1, (4, 256)), (0, (1, 16)))]
    rows += [("llama", 4, 2, 1, strategy, "1f1b", 5, 0, 2, 128) for strategy in ("ddp", "fsdp2")]
    rows += [(name, 3, 2, 1, strategy, "1f1b", 4, 0, 2, 128) for strategy in ("ddp,bucket_mib=1", "fsdp2", "fsdp2,param=bf16")
             for name in ("llama_fp32", "qwen2")]
    rows += [("llama", 2, 2, 2, "fsdp2", "1f1b", 4, checkpoint, 4, 256) for checkpoint in (0, 1)]
    for schedule in ("interleaved,2", "looped_bfs,2"):
        rows += [("llama", 2, 1, 1, "-", schedule, microbatches, checkpoint, 4, 256) for microbatches in (2, 4, 6)
                 for checkpoint in (0, 1)]
    rows += [("llama10", 4, 1, 1, "-", "interleaved,2", 8, 0, 2, 128), ("llama10", 2, 1, 1, "-", "interleaved,3", 4, 0, 2, 128),
             ("llama10", 3, 1, 1, "-", "interleaved,2", 6, 1, 1, 16), ("llama", 2, 1, 2, "-", "interleaved,2", 4, 0, 4, 256)]
    rows += [("llama", 2, 1, 1, "-", "zero_bubble,2", microbatches, 0, *size) for microbatches in (2, 4, 6) for size in ((4, 256), (1, 16))]
    rows += [("llama10", 4, 1, 1, "-", "zero_bubble,2", 8, 0, 2, 128), ("llama10", 2, 1, 1, "-", "zero_bubble,3", 4, 0, 2, 128),
             ("llama10", 3, 1, 1, "-", "zero_bubble,2", 6, 0, 1, 16), ("llama_fp32", 2, 1, 1, "-", "zero_bubble,2", 4, 0, 2, 128),
             ("qwen2", 2, 1, 1, "-", "zero_bubble,2", 4, 0, 2, 128), ("llama", 2, 1, 2, "-", "zero_bubble,2", 4, 0, 4, 256)]
    return rows


def chosen(schedule):
    name, _, stages = schedule.partition(",")
    return ["--schedule", name, *(["--stages-per-rank", stages] if stages else [])]


def predicted(program, folder, name, stages, dp, tp, strategy, schedule, microbatches, checkpoint, batch, tokens):
    """By rank."""
    return tuple(runs.estimate(program, folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                               "--checkpoint", "blocks" if checkpoint else "none", "--pp", stages, *chosen(schedule),
                               "--microbatches", microbatches, *(["--dp", dp, "--strategy", strategy] if dp > 1 else []),
                               *(["--tp", tp] if tp > 1 else []), "--rank", rank) for rank in range(stages * dp * tp))


def measured(program, folder, name, stages, dp, tp, *rest):
    """By rank: all run, as they tell one another the sizes of what they send."""
    ranks = stages * dp * tp
    command = [program, "run", "--world", ranks, "--rank", "all", "--gpu", runs.CARD, "--json", "--", "python", "-W",
               "ignore", HERE / "stage_loop.py", folder / name, stages, dp, tp, *rest]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode or len(answers) != ranks:
        sys.exit(run.stderr)
    return tuple(answer["peak_requested"] for answer in sorted(answers, key=lambda answer: answer["rank"]))


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "stage_runs.txt", MODELS, cases(), predicted, measured,
                       "model, pp, dp, tp, strategy, schedule, microbatches, checkpoints, batch, tokens, peak of requested"
                       " bytes of each rank").main(__doc__))
