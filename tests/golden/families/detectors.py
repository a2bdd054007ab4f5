#!/usr/bin/env python3
"""Compares `plimsoll estimate` of networks of ultralytics that are data with inference and training steps of the same
(detectors_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of detectors.txt is a network, infer, train (in fp32) or autocast (training with bf16), batch, and the peak of requested bytes.  Of training the loss is left out: the
sum of the outputs that it takes stands for it, in the run and in the prediction.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

NAMES = sorted(path.read_text().split("\n", 1)[0].split()[1] for path in (HERE.parents[2] / "src" / "families").glob("ultralytics.*.fam"))
MODES = {"infer": ["--infer"], "train": ["--optimizer", "adamw"], "autocast": ["--optimizer", "adamw", "--autocast", "bf16"]}
MIXED = ("ultralytics:yolo11n",)  # of which autocast was recorded
BATCH = 8


def cases():
    return [(name, mode, BATCH) for name in NAMES for mode in MODES if mode != "autocast" or name in MIXED]


def predicted(program, folder, name, mode, batch):
    return runs.estimate(program, name, "--batch", batch, *MODES[mode], incomplete=mode != "infer")


def measured(program, folder, *case):
    return runs.run(program, HERE / "detectors_loop.py", *case)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "detectors.txt", {}, cases(), predicted, measured,
                       "network, infer, train or autocast, batch, peak of requested bytes", packages=["ultralytics"]).main(__doc__))
