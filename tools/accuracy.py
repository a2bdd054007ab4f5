#!/usr/bin/env python3
"""accuracy.py -- compares predictions with published measurements, for docs/accuracy.md.

    tools/accuracy.py timm_measured_gpu_memory.csv FOLDER [PROGRAM]
                      [--assume OPTIONS] [--results FILE] [--table N]

FOLDER holds the models of the table as timm_export.py wrote them. The table of the GPUMemNet
study (model, batch_size, measured_max_gpu_memory_mib, faketensor_last_value) is not part of
this project. Where memory does not grow with the batch, the run had ended out of memory without
being noticed: that row and those after it are left out.
"""

import argparse
import collections
import csv
import json
import pathlib
import shlex
import subprocess
import sys

ASSUMED = "--optimizer adam --torch 2.1 --gpu a100"
CARD_MIB = 40 * 1024  # no measured value is above it
MIB = 2**20

Row = collections.namedtuple("Row", "model batch low high measured fake")


def middle(row):
    return (row.low + row.high) / 2


def error(row, constant=0.0):
    return (middle(row) + constant - row.measured) / row.measured * 100


def measured(path):
    """{model: [(batch, MiB, FakeTensor)]} of runs that went on; how many rows are of others."""
    runs, left_out = collections.defaultdict(list), 0
    with open(path, newline="") as f:
        for row in csv.DictReader(f):
            mib, fake = float(row["measured_max_gpu_memory_mib"]), row["faketensor_last_value"]
            runs[row["model"]].append((int(row["batch_size"]), mib, float(fake or 0)))
    good = {}
    for model, all_of_it in sorted(runs.items()):
        good[model] = kept = []
        for run in sorted(all_of_it):
            if kept and run[1] <= kept[-1][1]:
                break
            kept.append(run)
        left_out += len(all_of_it) - len(kept)
    return good, left_out


def predict(options, graph, batch):
    """The report of `estimate`, or None and what it said."""
    command = [options.program, "estimate", str(graph), "--batch", str(batch), "--json"]
    command += shlex.split(options.assume)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (json.loads(done.stdout), "") if done.stdout else (None, done.stderr.strip())


def compare(options):
    good, left_out = measured(options.csv)
    rows, unknown, silent = [], collections.defaultdict(set), {}
    for model, runs in good.items():
        graph = options.folder / f"{model}.pt2"
        for batch, mib, fake in runs if graph.exists() else []:
            report, said = predict(options, graph, batch)
            if not report:
                silent[model] = said
                break
            memory = report["memory"]
            low, high = memory["device_low"] / MIB, memory["device_high"] / MIB
            rows.append(Row(model, batch, low, high, mib, fake))
            for op in report["certainty"]["unknown_ops"]:
                unknown[op].add(model)
    total = sum(len(runs) for runs in good.values())
    models = len({r.model for r in rows})
    print(f"{models} of {len(good)} models, {len(rows)} of {total} rows; {left_out} left out\n")
    for model, said in silent.items():
        print(f"no answer: {model}: {said}")
    for op, of in sorted(unknown.items()):
        print(f"no rule: {op} in {len(of)} models")
    return rows


def figures(rows, constant=0.0):
    """In per cent: median, 90th percentile and worst absolute error, too low, in the range."""
    off = sorted(abs(error(r, constant)) for r in rows)
    low = sum(error(r, constant) < 0 for r in rows)
    inside = sum(r.low + constant <= r.measured <= r.high + constant for r in rows)
    share = 100 / len(off)
    return off[len(off) // 2], off[len(off) * 9 // 10], off[-1], low * share, inside * share


def best_constant(rows):
    """The MiB that, added to every answer, make the median error smallest."""
    return min(range(-1024, 4097, 8), key=lambda c: figures(rows, c)[0])


def growth(rows):
    """What is added from the first to the last batch of each model: free of any constant."""
    of = collections.defaultdict(list)
    for r in rows:
        of[r.model].append(r)
    out = []
    for model, mine in of.items():
        if len(mine) > 2:
            first, last = mine[0], mine[-1]
            more = middle(last) - middle(first)
            measured_more = last.measured - first.measured
            out.append(Row(model, last.batch - first.batch, more, more, measured_more, 0.0))
    return out


def summary(rows):
    """Prints the summary; the best constant of those rows that can have fitted."""

    def line(name, some, constant=0.0, ranges=True):
        median, ninth, worst, low, inside = figures(some, constant)
        print(f"| {name} | {len(some)} | {median:.1f} % | {ninth:.1f} % |", end=" ")
        print(f"{worst:.1f} % | {low:.1f} % |" + (f" {inside:.1f} % |" if ranges else " |"))

    print("| | rows | median | 90th percentile | worst | too low | in the range |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    constant = best_constant(rows)
    line("as predicted", rows)
    line(f"with one best constant, {constant:+d} MiB", rows, constant)
    fit = [r for r in rows if r.low <= CARD_MIB]
    constant = best_constant(fit)
    line("as predicted, rows that can fit in 40 GiB", fit)
    line(f"the same with one best constant, {constant:+d} MiB", fit, constant)
    known = set(sorted({r.model for r in fit})[::2])
    found = best_constant([r for r in fit if r.model in known])
    others = [r for r in fit if r.model not in known]
    line(f"every second model, constant from the others: {found:+d} MiB", others, found)
    line("growth from the smallest to the largest batch", growth(fit), 0.0, False)
    fake = [r._replace(low=r.fake, high=r.fake) for r in rows]
    found = best_constant(fake)
    line("FakeTensor, all rows", fake, 0.0, False)
    line(f"FakeTensor with one best constant, {found:+d} MiB", fake, found, False)
    return constant


def table(rows, number, constant):
    """As many models as asked for at batch 32, evenly from all in the order of their names."""
    some = [r for r in rows if r.batch == 32]
    print("\n| model, batch 32 | predicted, MiB | measured, MiB | error | with the constant |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for r in some[:: max(1, -(-len(some) // number))]:
        print(f"| {r.model} | {r.low:.0f}-{r.high:.0f} | {r.measured:.0f} |", end=" ")
        print(f"{error(r):+.1f} % | {error(r, constant):+.1f} % |")


def misses(rows, constant, beyond=20.0):
    """Prints the rows that stay further off with the constant than so many per cent."""
    far = collections.defaultdict(list)
    for r in rows:
        if abs(error(r, constant)) > beyond:
            far[r.model].append(f"{r.batch}: {error(r, constant):+.0f} %")
    number = sum(len(said) for said in far.values())
    print(f"\nErrors above {beyond:.0f} % with the constant: {number} rows,", end=" ")
    print(f"{len(far)} models")
    print("; ".join(f"{model} ({', '.join(said)})" for model, said in far.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program", nargs="?", default="build/plimsoll")
    parser.add_argument("--assume", default=ASSUMED, help=f"options of it (default: {ASSUMED})")
    parser.add_argument("--results", help="a file for all rows")
    parser.add_argument("--table", type=int, default=40, help="models in the printed table")
    options = parser.parse_args()
    rows = compare(options)
    if not rows:
        sys.exit("no answer to compare")
    constant = summary(rows)
    table(rows, options.table, constant)
    misses(rows, constant)
    if options.results:
        with open(options.results, "w") as f:
            print("model\tbatch\tlow_mib\thigh_mib\tmeasured_mib\terror_percent", file=f)
            for r in rows:
                figures_of = (r.low, r.high, r.measured, error(r))
                print(r.model, r.batch, *(f"{x:.1f}" for x in figures_of), sep="\t", file=f)


main()
