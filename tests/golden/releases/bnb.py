#!/usr/bin/env python3
"""Compares `plimsoll estimate --bitsandbytes 0.41 --transformers 4.38` with training of adapters on packed weights (bnb_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of bnb-0.41.txt is a model, checkpoints as 0 or 1, batch, tokens and the text of --quant, and the peak of requested bytes.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path[:0] = [str(HERE.parent), str(HERE)]
import releases  # noqa: E402  the models
import runs  # noqa: E402  what such scripts have in common

NAMES = ("llama_bf16", "qwen2_bf16")


def cases():
    return [(name, checkpoint, 8, 200, quant) for name in NAMES for quant in ("nf4", "nf4,double") for checkpoint in (0, 1)]


def predicted(program, folder, name, checkpoint, batch, tokens, quant):
    return runs.estimate(program, folder / name, "--transformers", "4.38", "--bitsandbytes", "0.41", "--quant", f"{quant},compute=bf16",
                         "--lora", "r=16,targets=q_proj+v_proj", "--batch", batch, "--seq", tokens, "--optimizer", "adamw",
                         "--checkpoint", "blocks" if checkpoint else "none")


def measured(program, folder, name, checkpoint, batch, tokens, quant):
    return runs.run(program, HERE / "bnb_loop.py", folder / name, checkpoint, batch, tokens, *quant.split(",")[1:])


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "bnb-0.41.txt", {name: releases.MODELS[name] for name in NAMES}, cases(), predicted, measured,
                       "model, checkpoints, batch, tokens, text of --quant, peak of requested bytes",
                       packages=("peft", "bitsandbytes")).main(__doc__))
