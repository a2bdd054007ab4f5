#!/usr/bin/env python3
"""Compares `plimsoll tape --strategy ds_zero2|ds_zero3` with the examples of DeepSpeed's own estimators of model states.

    tests/golden/share/estimator.py PROGRAM          compares
    tests/golden/share/estimator.py PROGRAM print    prints a row for each figure: published, from the command

The estimators count, of each parameter of a rank's part, 2 bytes of bf16, 4 of master weights, 8 of Adam's moments and 4 of the
gradient in fp32, and of the largest layer the gathered parameter and its gradient, 2 bytes each.  The tape has all of these tensors
by name.  A step takes more: buckets, what is gathered in advance, the part's gradients in bf16, activations.
src: deepspeed.readthedocs.io/en/latest/memory.html (t5-3b on 8 GPUs); DeepSpeed 0.19 runtime/zero/stage3.py and stage_1_and_2.py,
estimate_zero2_model_states_mem_needs, whose result for stage 2 is not the one that the page prints, 15.93 GB
"""
import subprocess
import sys

ZERO3 = "ds_zero3,stage3_prefetch_bucket_size=0"
STATES, LARGEST = "part", "largest layer"
GIB, MIB = 2**30, 2**20
EXAMPLES = [  # model, GPUs, strategy, what is counted, published, unit, digits
    ("t5-3b", 8, ZERO3, (STATES, LARGEST), 6.09, GIB, 2),
    ("t5-3b", 8, f"{ZERO3},offload_optimizer=1", (STATES, LARGEST), 0.78, GIB, 2),
    ("t5-3b", 8, f"{ZERO3},offload_optimizer=1,offload_param=1", (STATES, LARGEST), 0.12, GIB, 2),
    ("t5-large", 4, ZERO3, (STATES, LARGEST), 3291, MIB, 0),
    ("t5-large", 4, f"{ZERO3},offload_optimizer=1", (STATES, LARGEST), 477, MIB, 0),
    ("t5-large", 4, f"{ZERO3},offload_optimizer=1,offload_param=1", (STATES, LARGEST), 125, MIB, 0),
    ("t5-3b", 8, "ds_zero2", (STATES,), 11.28, GIB, 2),
]


def read_tape(program, model, ranks, strategy):
    """Name and bytes of all tensors, in order."""
    command = [program, "tape", model, "--dtype", "bf16", "--batch", "1", "--seq", "8", "--optimizer", "adam", "--torch", "2.13",
               "--workspace", "off", "--dp", str(ranks), "--strategy", strategy]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    lines = [line.split() for line in run.stdout.splitlines() if line.startswith("+ ")]
    return [(fields[4], int(fields[2])) for fields in lines if len(fields) > 4]


def count_states(tape):
    """Of the flat tensors; master weights are made twice, gradients are cast to fp32 last."""
    last = dict(tape)
    fp32 = [last[name] for name in ("master%20weights", "master%20weights.exp_avg", "master%20weights.exp_avg_sq", "gradients") if name in last]
    return last.get("flat%20parameters", 0) + (sum(fp32) if "master%20weights" in last else 0)


def count_stage_2(tape):
    """The same, and the part's gradients in bf16."""
    return count_states(tape) + dict(tape)["gradients"] // 2


def count_largest(tape):
    gathered = max(size for name, size in tape if name.endswith(".gathered"))
    return gathered + max(size for name, size in tape if name.endswith(".weight.grad"))


def main(program, *how):
    wrong = 0
    for model, ranks, strategy, counted, published, unit, digits in EXAMPLES:
        tape = read_tape(program, model, ranks, strategy)
        ours = count_stage_2(tape) if strategy == "ds_zero2" else count_states(tape)
        ours = (ours + (count_largest(tape) if LARGEST in counted else 0)) / unit
        near = abs(ours - published) < 10**-digits  # which DeepSpeed rounds or cuts
        wrong += not near
        if how or not near:
            print(model, ranks, strategy, published, f"{ours:.{digits + 2}f}", "" if near else "DIFFERS")
    print(f"{len(EXAMPLES)} figures, {wrong} of another size")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
