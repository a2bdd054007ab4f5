#!/usr/bin/env python3
"""Compares `plimsoll estimate` with the memory that peft's method comparison measured.

    tools/peft_table.py PROGRAM TABLE

TABLE has a row for each result file of method_comparison/MetaMathQA of peft, with tabs and a line of names.  They report the
maximum of reserved bytes over a training on sequences of different lengths, four at a time and cut at 768 tokens: what is
asked for is a batch in which the longest has as many.  Asked are the rows whose method plimsoll simulates.
"""
import csv
import json
import re
import subprocess
import sys
from collections import Counter

MODEL, CARD, BATCH, TOKENS = "meta-llama/Llama-3.2-3B", "l40s", 4, 768


def options_of(row):
    """What to ask for, or why the row is not asked."""
    if row["model"] != MODEL:
        return None, "another model"
    if row["peft_type"] not in ("None", "", "LORA"):
        return None, "a method that is not simulated"
    if row["optimizer"] != "AdamW":
        return None, "another optimizer"
    if row["peft_type"] != "LORA":
        return [], ""
    targets = "+".join(sorted(re.findall(r"\w+", row["targets"])))
    dora = ",dora=1" if row["dora"] == "True" else ""
    return ["--lora", f"r={row['r']},targets={targets}{dora}"], ""


def reserved(program, options):
    command = [program, "estimate", "llama-3.2-3b", "--dtype", "bf16", "--batch", str(BATCH), "--seq", str(TOKENS),
               "--optimizer", "adamw", "--gpu", CARD, "--torch", "2.13", "--advice", "none", "--json", *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode:
        sys.exit(run.stderr)
    return json.loads(run.stdout)["memory"]["peak_reserved"]


def main(program, table):
    with open(table, newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    left_out, errors = Counter(), []
    for row in rows:
        options, why = options_of(row)
        if options is None:
            left_out[why] += 1
            continue
        measured, predicted = int(row["max_reserved_bytes"]), reserved(program, options)
        errors.append(predicted / measured - 1)
        print(f"| {' '.join(options) or 'full fine-tuning'} | {measured / 1e9:.2f} | {predicted / 1e9:.2f} |"
              f" {100 * errors[-1]:+.1f} % |")
    sizes = sorted(map(abs, errors))
    print(f"{len(errors)} of {len(rows)} rows: median {100 * sizes[len(sizes) // 2]:.1f} %, worst {100 * sizes[-1]:.1f} %,"
          f" {sum(e < 0 for e in errors)} too low; left out: {dict(left_out)}")


if __name__ == "__main__":
    main(*sys.argv[1:])
