#!/usr/bin/env python3
"""timm_export.py -- exports timm's models, without weights, for tools/accuracy.py.

    timm_export.py timm_measured_gpu_memory.csv FOLDER [--seconds N] [--each N] [NAME...]

Needs PyTorch and timm. Each model of the table (or NAME) is built on the meta device at its
own resolution, in training mode, and exported to FOLDER/NAME.pt2 with any batch size; with
batch 8 only, if the code does not support other sizes. Existing files are not exported again.
FOLDER/log.txt holds a line per model: how long it took, or why there is no file. Those that
needed little memory at their smallest batch come first, until N seconds have passed; an export
that takes longer than --each (120) seconds is abandoned.
"""

import argparse
import csv
import os
import pathlib
import signal
import sys
import time
import traceback

import timm
import torch

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "python"))
from plimsoll._export import export_module  # noqa: E402

BATCH = 8


def measured(path):
    """The models of the table, small ones first."""
    least = {}
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            mib = float(row["measured_max_gpu_memory_mib"])
            least[row["model"]] = min(mib, least.get(row["model"], mib))
    return sorted(least, key=lambda name: (least[name], name))


def make(name):
    """On the meta device, or really, where the constructor reads a value."""
    try:
        with torch.device("meta"):
            return timm.create_model(name).train(), "meta"
    except (RuntimeError, NotImplementedError):
        return timm.create_model(name).train(), "cpu"


def export(name, target):
    model, device = make(name)
    exported = export_module(model, (torch.empty(BATCH, *model.default_cfg["input_size"], device=device),))
    target.write_bytes(exported.data)
    how = "any batch" if exported.dynamic else f"batch {exported.batch} only"
    return " ".join((f"{device}, {how}", *exported.notes))


def try_one(name, target, limit):
    """In a process of its own, so that one that takes too long can be ended."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        signal.alarm(limit)
        try:
            said = "ok: " + export(name, target)
        except Exception as why:
            where = traceback.extract_tb(why.__traceback__)[-1]
            place = f"{os.path.basename(where.filename)}:{where.lineno}"
            said = f"failed: {type(why).__name__}: {str(why).strip()[:300]} ({place})"
        os.write(write, " ".join(said.split()).encode())
        os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as f:
        said = f.read().decode()
    os.waitpid(child, 0)
    return said or f"failed: more than {limit} s"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("table")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--each", type=int, default=120)
    options = parser.parse_intermixed_args()
    torch.set_num_threads(1)
    options.folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    for name in options.names or measured(options.table):
        target = options.folder / f"{name}.pt2"
        if target.exists():
            continue
        if time.monotonic() - start > options.seconds:
            break
        began = time.monotonic()
        said = try_one(name, target, options.each)
        line = f"{name} {time.monotonic() - began:.1f} s {said}"
        print(line, flush=True)
        with open(options.folder / "log.txt", "a") as f:
            print(line, file=f)


main()
