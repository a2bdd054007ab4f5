#!/usr/bin/env python3
"""Compares `plimsoll estimate` with the memory that peft's method comparison measured.

    tools/peft_table.py PROGRAM TABLE EXPERIMENTS [run]

TABLE has a row for each result file of method_comparison/MetaMathQA of peft, with tabs and a line of names; EXPERIMENTS is the
folder of that name beside the results, with the adapter_config.json of each.  They report the maximum of reserved bytes over a
training on sequences of different lengths, four at a time and cut at 768 tokens: what is asked for is a batch in which the
longest has as many.  Asked are the rows whose method plimsoll simulates; with "run", peft's own code of the others runs under
`plimsoll run` (peft_run.py), a minute each: `python` needs a CPU build of torch, transformers and peft.
"""
import csv
import json
import pathlib
import subprocess
import sys
from collections import Counter

HERE = pathlib.Path(__file__).resolve().parent
MODEL, CARD, BATCH, TOKENS = "meta-llama/Llama-3.2-3B", "l40s", 4, 768


def experiment(folder, row):
    """That of "method_comparison/MetaMathQA/results/METHOD--NAME.json"."""
    method, _, name = pathlib.PurePath(row["file"]).stem.partition("--")
    return pathlib.Path(folder) / method / name


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
    if "knows no method" in run.stderr or "is not simulated" in run.stderr:
        return None, "a method that is not simulated"
    sys.exit(run.stderr)


def reserved_in_run(program, folder):
    """Of two steps of peft's own code, or why they end early."""
    run = subprocess.run([program, "run", "--gpu", CARD, "--json", "--", "python", "-W", "ignore", HERE / "peft_run.py", folder, str(TOKENS)],
                         capture_output=True, text=True)
    try:
        return json.loads(run.stdout)["peak_reserved"] if not run.returncode else None, "a script that fails"
    except json.JSONDecodeError:
        return None, "a script that fails"


def main(program, table, experiments, *way):
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left_out, errors = Counter(), []
    for row in rows:
        if row["model"] != MODEL:
            left_out["another model"] += 1
            continue
        folder = experiment(experiments, row)
        options, why = options_of(folder)
        predicted, why = reserved(program, options) if options is not None else (None, why)
        by_run = predicted is None and way == ("run",)
        if by_run:
            predicted, why = reserved_in_run(program, folder)
        if predicted is None:
            left_out[why] += 1
            continue
        measured = int(row["max_reserved_bytes"])
        errors.append(predicted / measured - 1)
        print(f"| {folder.parent.name}, {folder.name.removeprefix('llama-3.2-3B-')} | {'run' if by_run else 'estimate'} | {measured / 1e9:.2f} | {predicted / 1e9:.2f} |"
              f" {100 * errors[-1]:+.1f} % |", flush=True)
    sizes = sorted(map(abs, errors))
    print(f"{len(errors)} of {len(rows)} rows: median {100 * sizes[len(sizes) // 2]:.1f} %,"
          f" nine in ten within {100 * sizes[-(-9 * len(sizes) // 10) - 1]:.1f} %, worst {100 * sizes[-1]:.1f} %,"
          f" {sum(e < 0 for e in errors)} too low; left out: {dict(left_out)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
