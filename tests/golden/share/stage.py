#!/usr/bin/env python3
"""Compares `plimsoll estimate --pp` with all ranks of jobs that run torch's own pipelines (stage_loop.py), to the byte.

    tests/golden/share/stage.py PROGRAM                   compares; needs no PyTorch
    tests/golden/share/stage.py PROGRAM record [NAME...]  runs the jobs under `plimsoll run`, and writes stage_runs.txt;
                                                          the python in front of PATH has torch and transformers

A row of stage_runs.txt is a model, --pp, --dp, --tp, --strategy, --schedule, --microbatches, checkpoints as 0 or 1, batch of
a micro-batch and tokens, and the peak of requested bytes of each rank.  Two steps, AdamW.
"""
import datetime
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
RUNS = HERE / "stage_runs.txt"
CARD, TORCH = "h100", "2.13"

sys.path.insert(0, str(HERE.parent / "idiom"))
import idiom  # noqa: E402  what the scripts have in common

SIZES = {"vocab_size": 2003, "max_position_embeddings": 1024, "hidden_size": 512, "num_hidden_layers": 5,
         "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 1408}
BF16, FP32 = {"dtype": "bfloat16"}, {"dtype": "float32"}
MODELS = {
    "llama": ("llama", "LlamaForCausalLM", {**SIZES, **BF16}),
    "llama_fp32": ("llama", "LlamaForCausalLM", {**SIZES, **FP32}),
    "mistral": ("mistral", "MistralForCausalLM", {**SIZES, **BF16}),
    "qwen2": ("qwen2", "Qwen2ForCausalLM", {**SIZES, **BF16}),
}


def cases():
    """Five layers, which the stages do not divide."""
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
    return rows


def predicted(program, folder, rank, name, stages, dp, tp, strategy, schedule, microbatches, checkpoint, batch, tokens):
    return idiom.peak_of([program, "estimate", folder / name, "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                          "--checkpoint", "blocks" if checkpoint else "none", "--pp", stages, "--schedule", schedule,
                          "--microbatches", microbatches, *(["--dp", dp, "--strategy", strategy] if dp > 1 else []),
                          *(["--tp", tp] if tp > 1 else []), "--rank", rank,
                          "--advice", "none", "--gpu", CARD, "--torch", TORCH, "--json"], ("memory", "peak_requested"))


def measured(program, folder, name, stages, dp, tp, *rest):
    """By rank: all run, as they tell one another the sizes of what they send."""
    ranks = stages * dp * tp
    command = [program, "run", "--world", ranks, "--rank", "all", "--gpu", CARD, "--json", "--", "python", "-W",
               "ignore", HERE / "stage_loop.py", folder / name, stages, dp, tp, *rest]
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    answers = [json.loads(line) for line in run.stdout.splitlines()]
    if run.returncode or len(answers) != ranks:
        sys.exit(run.stderr)
    return [answer["peak_requested"] for answer in sorted(answers, key=lambda answer: answer["rank"])]


def read_runs():
    rows = {}
    for line in RUNS.read_text().splitlines() if RUNS.exists() else []:
        if not line.startswith("#"):
            fields = [int(field) if field.isdigit() else field for field in line.split()]
            ranks = fields[1] * fields[2] * fields[3]
            rows[tuple(fields[:-ranks])] = fields[-ranks:]
    return rows


def write_runs(rows):
    import torch
    import transformers
    head = [f"# recorded {datetime.date.today()} by: tests/golden/share/stage.py PROGRAM record",
            f"# torch {torch.__version__}, transformers {transformers.__version__}, plimsoll run --gpu {CARD}; model, pp, dp,"
            " tp, strategy, schedule, microbatches, checkpoints, batch, tokens, peak of requested bytes of each rank"]
    RUNS.write_text("\n".join(head + [" ".join(map(str, (*case, *rows[case]))) for case in cases() if case in rows]) + "\n")


def record(program, folder, names):
    rows = read_runs()
    for case in cases():
        if case not in rows or case[0] in names:
            rows[case] = measured(program, folder, *case)
            ours = [predicted(program, folder, rank, *case) for rank in range(len(rows[case]))]
            print(*case, *rows[case], "" if ours == rows[case] else f"DIFFERS {ours}", flush=True)
            write_runs(rows)


def compare(program, folder):
    rows, ranks, wrong = read_runs(), 0, 0
    for case in cases():
        for rank, peak in enumerate(rows.get(case, [])):
            ranks += 1
            ours = predicted(program, folder, rank, *case)
            if ours != peak:
                wrong += 1
                print(*case, "rank", rank, "estimate", ours, "run", peak)
    print(f"{ranks} ranks of {len(rows)} runs, {wrong} of another size")
    return 1 if wrong or len(rows) != len(cases()) else 0


if __name__ == "__main__":
    sys.exit(idiom.main(__doc__, MODELS, record, compare))
