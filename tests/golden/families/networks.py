#!/usr/bin/env python3
"""Compares `plimsoll estimate` of networks of timm and torchvision that are data with training steps of the same (networks_loop.py),
to the byte.

    tests/golden/runs.py says how to call it.

A row of networks.txt is a network, fp32 or autocast, checkpoints as 0 or 1, batch, and the peak of requested bytes.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

NAMES = sorted(path.read_text().split("\n", 1)[0].split()[1] for path in (HERE.parents[2] / "src" / "families").glob("t*.*.fam"))
SETTINGS = [("fp32", 0), ("autocast", 0)]
CHECKPOINTS = {  # what set_grad_checkpointing() of timm runs again
    "timm:convnext_base": "stages.*.blocks.*", "timm:convnextv2_base": "stages.*.blocks.*", "timm:eva02_large_patch14_448": "blocks.*",
    "timm:vit_base_patch16_224": "blocks.*"}
AUTOCAST = {"fp32": [], "autocast": ["--autocast", "bf16"]}
BATCH = 8


def cases():
    return [(name, *setting, BATCH) for name in NAMES for setting in SETTINGS + [("autocast", 1)] * (name in CHECKPOINTS)]


def predicted(program, folder, name, dtype, checkpoints, batch):
    return runs.estimate(program, name, "--batch", batch, *AUTOCAST[dtype], "--optimizer", "adamw", "--checkpoint",
                         CHECKPOINTS[name] if checkpoints else "none")


def measured(program, folder, *case):
    return runs.run(program, HERE / "networks_loop.py", *case)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "networks.txt", {}, cases(), predicted, measured,
                       "network, fp32 or autocast, checkpoints, batch, peak of requested bytes", packages=["timm", "torchvision"]).main(__doc__))
