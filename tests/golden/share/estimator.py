#!/usr/bin/env python3
"""Compares `plimsoll tape --strategy ds_zero2|ds_zero3|megatron` with what DeepSpeed's estimators and Megatron-LM print of model states.

    tests/golden/share/estimator.py PROGRAM          compares
    tests/golden/share/estimator.py PROGRAM print    prints a row for each figure: published, from the command

The estimators count, of each parameter of a rank's part, 2 bytes of bf16, 4 of master weights, 8 of Adam's moments and 4 of the
gradient in fp32, and of the largest layer the gathered parameter and its gradient, 2 bytes each.  The tape has all of these tensors
by name.  A step takes more: buckets, what is gathered in advance, the part's gradients in bf16, activations.
Megatron-LM prints, when training starts, "Theoretical memory footprints: weight and optimizer=26699.47 MB": 18 bytes for each parameter of
GPT-2 XL, whose vocabulary is padded to 50,304, without biases and embeddings of positions, as the Falcon written here has it; and
57438.81 MB for Llama 3 8B with the distributed optimizer on 8 cards, 6 + 12 / 8 bytes, with a bias for each norm, which Llama lacks.
They are what is left after a step.
src: deepspeed.readthedocs.io/en/latest/memory.html (t5-3b on 8 GPUs); DeepSpeed 0.19 runtime/zero/stage3.py and stage_1_and_2.py,
estimate_zero2_model_states_mem_needs, whose result for stage 2 is not the one that the page prints, 15.93 GB
"""
import json
import pathlib
import subprocess
import sys
import tempfile

ZERO3 = "ds_zero3,stage3_prefetch_bucket_size=0"
GIB, MIB = 2**30, 2**20
EXAMPLES = [  # model, GPUs, strategy, published, unit, digits
    ("t5-3b", 8, ZERO3, 6.09, GIB, 2),
    ("t5-3b", 8, f"{ZERO3},offload_optimizer=1", 0.78, GIB, 2),
    ("t5-3b", 8, f"{ZERO3},offload_optimizer=1,offload_param=1", 0.12, GIB, 2),
    ("t5-large", 4, ZERO3, 3291, MIB, 0),
    ("t5-large", 4, f"{ZERO3},offload_optimizer=1", 477, MIB, 0),
    ("t5-large", 4, f"{ZERO3},offload_optimizer=1,offload_param=1", 125, MIB, 0),
    ("t5-3b", 8, "ds_zero2", 11.28, GIB, 2),
]
GPT2_XL = {"model_type": "falcon", "architectures": ["FalconForCausalLM"], "hidden_size": 1600, "num_hidden_layers": 48, "num_attention_heads": 25,
           "vocab_size": 50304, "multi_query": False, "parallel_attn": False, "bias": False, "alibi": False}
LLAMA_3_NORMS = 65 * 4096  # elements of biases that Megatron-LM counts
MEGATRON = [  # model, cards, strategy, MiB, bytes that the model lacks
    (GPT2_XL, 2, "megatron", 26699.47, 0),
    ("llama-3-8b", 8, "megatron,use_distributed_optimizer=1", 57438.81, LLAMA_3_NORMS * 7.5),
]


def print_tape(program, model, ranks, strategy):
    command = [program, "tape", model, "--dtype", "bf16", "--batch", "1", "--seq", "8", "--optimizer", "adam", "--torch", "2.13",
               "--workspace", "off", "--dp", str(ranks), "--strategy", strategy]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return [line.split() for line in run.stdout.splitlines()]


def read_tape(program, model, ranks, strategy):
    """Name and bytes of all tensors, in order."""
    lines = [fields for fields in print_tape(program, model, ranks, strategy) if fields[0] == "+"]
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


def count_left(tape):
    """What lives when the tape ends, of the state."""
    live = {}
    for fields in tape:
        if fields[0] == "+" and fields[3] in ("parameter", "gradient", "optimizer_state"):
            live[fields[1]] = int(fields[2])
        elif fields[0] == "-":
            live.pop(fields[1], None)
    return sum(live.values())


def compare_megatron(program, how):
    wrong = 0
    for model, cards, strategy, published, lacks in MEGATRON:
        with tempfile.TemporaryDirectory() as folder:
            if isinstance(model, dict):
                (pathlib.Path(folder) / "config.json").write_text(json.dumps(model))
                model = folder
            ours = (count_left(print_tape(program, model, cards, strategy)) + lacks) / MIB
        near = abs(ours - published) < 0.01
        wrong += not near
        if how or not near:
            print("Megatron-LM", cards, strategy, published, f"{ours:.3f}", "" if near else "DIFFERS")
    return wrong


def main(program, *how):
    wrong = compare_megatron(program, how)
    for model, ranks, strategy, published, unit, digits in EXAMPLES:
        tape = read_tape(program, model, ranks, strategy)
        ours = (count_stage_2(tape) if strategy == "ds_zero2" else count_states(tape) + count_largest(tape)) / unit
        near = abs(ours - published) < 10**-digits  # which DeepSpeed rounds or cuts
        wrong += not near
        if how or not near:
            print(model, ranks, strategy, published, f"{ours:.{digits + 2}f}", "" if near else "DIFFERS")
    print(f"{len(EXAMPLES) + len(MEGATRON)} figures, {wrong} of another size")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]) if len(sys.argv) > 1 else __doc__)
