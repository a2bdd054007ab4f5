#!/usr/bin/env python3
"""Compares `plimsoll estimate` with the memory that peft's method comparison measured.

    tools/peft_table.py PROGRAM TABLE PEFT [run]

TABLE has a row for each result file of method_comparison of peft, with tabs and a line of names; PEFT is a clone of it, with the
history.  They report the maximum of reserved bytes over a training: of a language model on sequences of different lengths, four at
a time and cut at 768 tokens, for which a batch is asked in which the longest has as many; and of a model of images.  Asked are the
rows whose method plimsoll simulates; with "run", peft's own code of the others runs under `plimsoll run` (peft_run.py,
peft_image_run.py), half a minute to three each: `python` needs a CPU build of torch, transformers, diffusers and what peft needs.
Its code is that of the commit that the result file names, as methods change between releases.
"""
import contextlib
import csv
import io
import json
import os
import pathlib
import re
import subprocess
import sys
import tarfile
import tempfile
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
IMAGES = "black-forest-labs/FLUX.2-klein-base-4B"
LIMIT = 400  # seconds of a run
MODEL, CARD, BATCH, TOKENS = "meta-llama/Llama-3.2-3B", "l40s", 4, 768


def experiment(checkout, row):
    """That of "method_comparison/TASK/results/METHOD--NAME.json"."""
    path = pathlib.PurePath(row["file"])
    method, _, name = path.stem.partition("--")
    return pathlib.Path(checkout) / path.parent.parent / "experiments" / method / name


def options_of(folder):
    """What to ask for, or why it is not asked."""
    training, adapter = folder / "training_params.json", folder / "adapter_config.json"
    if training.exists() and json.loads(training.read_text()).get("optimizer_type", "AdamW") != "AdamW":
        return None, "another optimizer"
    return (["--peft", str(adapter)] if adapter.exists() else []), ""


def reserved(program, options):
    """Of the step, or why it cannot be said."""
    command = [program, "estimate", "llama-3.2-3b", "--dtype", "bf16", "--batch", str(BATCH), "--seq", str(TOKENS),
               "--optimizer", "adamw", "--gpu", CARD, "--torch", "2.13", "--advice", "none", "--json", *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if not run.returncode:
        return json.loads(run.stdout)["memory"]["peak_reserved"], ""
    if "unknown method" in run.stderr or "is not simulated" in run.stderr:
        return None, "a method that is not simulated"
    sys.exit(run.stderr)


@contextlib.contextmanager
def code_that_ran(checkout, row):
    """The folder of peft's package in the commit of a result file."""
    result = json.loads((pathlib.Path(checkout) / row["file"]).read_text())
    commit = result["meta_info"]["package_info"]["peft-commit-hash"]
    archive = subprocess.run(["git", "-C", checkout, "archive", commit, "src/peft"], capture_output=True, check=True).stdout
    with tempfile.TemporaryDirectory() as folder, tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
        yield pathlib.Path(folder) / "src"


def reserved_in_run(program, model, folder, package):
    """Of a few steps of peft's own code, or why they end early."""
    script = [HERE / "peft_image_run.py", folder] if model == IMAGES else [HERE / "peft_run.py", folder, str(TOKENS)]
    try:
        run = subprocess.run([program, "run", "--gpu", CARD, "--", "python", "-W", "ignore", *script], capture_output=True,
                             text=True, timeout=LIMIT, env={**os.environ, "PYTHONPATH": str(package)})
    except subprocess.TimeoutExpired:
        return None, f"a script that takes longer than {LIMIT} s"
    found = re.search(r"^max_reserved (\d+)$", run.stderr, re.M)
    return (int(found[1]), "") if found and not run.returncode else (None, "a script that fails")


def main(program, table, checkout, *way):
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left_out, errors = Counter(), []
    for row in rows:
        folder = experiment(checkout, row)
        options, why = options_of(folder) if row["model"] == MODEL else (None, "another model")
        predicted, why = reserved(program, options) if options is not None else (None, why)
        by_run = predicted is None and way == ("run",)
        if by_run:
            with code_that_ran(checkout, row) as package:
                predicted, why = reserved_in_run(program, row["model"], folder, package)
        if predicted is None:
            left_out[why] += 1
            continue
        measured = int(row["max_reserved_bytes"])
        errors.append(predicted / measured - 1)
        print(f"| {folder.parent.name}, {folder.name.removeprefix('llama-3.2-3B-').removeprefix('flux2-klein-')} | {'run' if by_run else 'estimate'} | {measured / 1e9:.2f} | {predicted / 1e9:.2f} |"
              f" {100 * errors[-1]:+.1f} % |", flush=True)
    sizes = sorted(map(abs, errors))
    print(f"{len(errors)} of {len(rows)} rows: median {100 * sizes[len(sizes) // 2]:.1f} %,"
          f" nine in ten within {100 * sizes[-(-9 * len(sizes) // 10) - 1]:.1f} %, worst {100 * sizes[-1]:.1f} %,"
          f" {sum(e < 0 for e in errors)} too low; left out: {dict(left_out)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
