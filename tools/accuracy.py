#!/usr/bin/env python3
"""accuracy.py -- compares predictions with published measurements, for docs/accuracy.md.

    tools/accuracy.py timm_measured_gpu_memory.csv FOLDER [PROGRAM]
                      [--carma carma_measured.csv] [--results FILE] [--table N]

FOLDER holds the models of the tables as timm_export.py wrote them. The tables of the GPUMemNet
study (model, batch_size, measured_max_gpu_memory_mib, faketensor_last_value) and of the CARMA
project (model, batch, measured_mib) are not part of this project.

What is known of the two, and used:

* GPUMemNet ran timm's own training script: SGD with momentum 0.9 and a weight decay of 2e-5,
  cudnn.benchmark on, a prefetching loader that holds about 3.25 inputs: the fp32 batch of the
  step, which is in the prediction, the next one, and its 8-bit original. 2.25 inputs are added
  to the prediction. Where memory does not grow with the batch, the run had ended out of memory
  without being noticed: that row and those after it are left out. So are models with fewer than
  1000 classes, which ran a forward pass only, and are named.
* CARMA published its scripts: Adam, or AdamW on images of 32 x 32, cudnn.benchmark off.
"""

import argparse
import collections
import csv
import json
import pathlib
import subprocess
import sys

TIMM = ["--optimizer", "sgd,momentum=0.9,weight_decay=2e-5", "--torch", "2.6", "--cudnn-benchmark"]
CARMA = ["--torch", "2.8"]
CARD = ["--gpu", "a100-40"]
CARD_MIB = 40 * 1024  # no measured value is above it
LOADER_INPUTS = 2.25  # besides the one of the step
MACHINE = (40, 1198, 1370)  # MiB, low to high, that every process of GPUMemNet's machine held besides: fitted to half of its models
CLASSES = 1000
MIB = 2**20

# high: of what is held after cuDNN's search; highest: with the search, which takes what is free
Row = collections.namedtuple("Row", "model batch low usual high highest measured fake")


def error(row, constant=0.0):
    return (row.usual + constant - row.measured) / row.measured * 100


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


def predict(program, graph, batch, options):
    """The report of `estimate` on a card without a limit, or None and what it said."""
    command = [program, "estimate", str(graph), "--batch", str(batch), "--json", *options]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (json.loads(done.stdout), "") if done.stdout else (None, done.stderr.strip())


def row_of(model, batch, report, mib, fake, inputs, machine=(0, 0, 0)):
    memory = report["memory"]
    extra = memory["inputs"] * inputs
    searched = memory["search"] or 0
    keys = memory["device_low"], memory["device"], memory["device_high"] - searched + memory["margin"]
    low, usual, high = ((n + extra) / MIB + own for n, own in zip(keys, machine))
    return Row(model, batch, low, usual, high, high + searched / MIB, mib, fake)


def classes_of(report):
    """Elements per sample of what the model returns."""
    return report["memory"]["outputs"] / 4 / report["settings"]["batch"]


def compare(options):
    """The rows of the table of timm."""
    good, left_out = measured(options.csv)
    rows, unknown, silent, small = [], collections.defaultdict(set), {}, {}
    for model, runs in good.items():
        graph = options.folder / f"{model}.pt2"
        for batch, mib, fake in runs if graph.exists() else []:
            report, said = predict(options.program, graph, batch, TIMM + CARD)
            if not report:
                silent[model] = said
                break
            if classes_of(report) < CLASSES:
                small[model] = len(runs)
                break
            rows.append(row_of(model, batch, report, mib, fake, LOADER_INPUTS, MACHINE))
            for op in report["certainty"]["unknown_ops"]:
                unknown[op].add(model)
    total = sum(len(runs) for runs in good.values())
    models = len({r.model for r in rows})
    print(f"{models} of {len(good)} models, {len(rows)} of {total} rows; {left_out} left out\n")
    print(f"fewer than {CLASSES} classes: {sum(small.values())} rows of {', '.join(small) or 'none'}")
    for model, said in silent.items():
        print(f"no answer: {model}: {said}")
    for op, of in sorted(unknown.items()):
        print(f"no rule: {op} in {len(of)} models")
    return rows


def compare_carma(options):
    rows = []
    with open(options.carma, newline="") as f:
        for row in csv.DictReader(f):
            model, batch = row["model"], int(row["batch"])
            graph = options.folder / f"carma_{model}.pt2"
            optimizer = ["--optimizer", "adamw" if model.endswith("_cifar") else "adam"]
            what = graph if graph.exists() else model
            report, said = predict(options.program, what, batch, CARMA + CARD + optimizer)
            if report:
                rows.append(row_of(model, batch, report, float(row["measured_mib"]), 0.0, 0))
            else:
                print(f"no answer: {model}: {said}")
    return rows


def figures(rows, constant=0.0):
    """In per cent: median, 90th percentile and worst absolute error, too low, in the range."""
    off = sorted(abs(error(r, constant)) for r in rows)
    low = sum(error(r, constant) < 0 for r in rows)
    inside = sum(r.low <= r.measured <= r.high for r in rows)
    share = 100 / len(off)
    return off[len(off) // 2], off[len(off) * 9 // 10], off[-1], low * share, inside * share


def best_constant(rows):
    """The MiB that, added to every answer, make the median error smallest."""
    return min(range(-1024, 4097, 8), key=lambda c: figures(rows, c)[0])


def halves(rows):
    """Split by model, every second name: a model is in one of them only."""
    known = set(sorted({r.model for r in rows})[::2])
    return [r for r in rows if r.model in known], [r for r in rows if r.model not in known]


def growth(rows):
    """What is added from the first to the last batch of each model: free of any constant."""
    of = collections.defaultdict(list)
    for r in rows:
        of[r.model].append(r)
    out = []
    for model, mine in of.items():
        if len(mine) > 2:
            first, last = mine[0], mine[-1]
            more, seen = last.usual - first.usual, last.measured - first.measured
            out.append(Row(model, last.batch - first.batch, more, more, more, more, seen, 0.0))
    return out


def line(name, some, constant=0.0, ranges=True):
    median, ninth, worst, low, inside = figures(some, constant)
    print(f"| {name} | {len(some)} | {median:.1f} % | {ninth:.1f} % |", end=" ")
    print(f"{worst:.1f} % | {low:.1f} % |" + (f" {inside:.1f} % |" if ranges else " |"))


def head():
    print("| | rows | median | 90th percentile | worst | too low | in the range |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")


def summary(rows):
    """Prints the summary; the best constant of those rows that can have fitted."""
    fit = [r for r in rows if r.low <= CARD_MIB]
    fitted, judged = halves(fit)
    head()
    line("as predicted, all rows", rows)
    line("as predicted, rows that can fit in 40 GiB", fit)
    line("every second model, as predicted", judged)
    found = best_constant(fitted)
    line(f"every second model, constant from the others: {found:+d} MiB", judged, found, False)
    line("growth from the smallest to the largest batch", growth(fit), 0.0, False)
    if any(r.fake for r in rows):
        fake = [r._replace(usual=r.fake) for r in rows]
        line("FakeTensor, all rows", fake, 0.0, False)
        constant = best_constant(fake)
        line(f"FakeTensor with one best constant, {constant:+d} MiB", fake, constant, False)
    for name, some in (("all", fit), ("judged", judged)):
        held = 100 * sum(r.measured > r.high for r in some) / len(some)
        search = 100 * sum(r.measured > r.highest for r in some) / len(some)
        print(f"\nrows that held more than the high end, {name}: {held:.1f} %;", end=" ")
        print(f"with what the search may take: {search:.1f} %")
    return found


def table(rows, number):
    """As many models as asked for at batch 32, evenly from all in the order of their names."""
    some = [r for r in rows if r.batch == 32]
    print("\n| model, batch 32 | predicted, MiB | usual | measured, MiB | error |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for r in some[:: max(1, -(-len(some) // number))]:
        print(f"| {r.model} | {r.low:.0f}-{r.high:.0f} | {r.usual:.0f} | {r.measured:.0f} |", end=" ")
        print(f"{error(r):+.1f} % |")


def misses(rows, beyond=20.0):
    """Prints the rows that are further off than so many per cent."""
    far = collections.defaultdict(list)
    for r in rows:
        if abs(error(r)) > beyond:
            far[r.model].append(f"{r.batch}: {error(r):+.0f} %")
    number = sum(len(said) for said in far.values())
    print(f"\nErrors above {beyond:.0f} %: {number} rows, {len(far)} models")
    print("; ".join(f"{model} ({', '.join(said)})" for model, said in far.items()))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("csv")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("program", nargs="?", default="build/plimsoll")
    parser.add_argument("--carma", help="the table of CARMA")
    parser.add_argument("--results", help="a file for all rows")
    parser.add_argument("--table", type=int, default=40, help="models in the printed table")
    options = parser.parse_args()
    rows = compare(options)
    if not rows:
        sys.exit("no answer to compare")
    summary(rows)
    table(rows, options.table)
    misses(rows)
    carma = compare_carma(options) if options.carma else []
    if carma:
        print("\nCARMA")
        summary(carma)
    if options.results:
        with open(options.results, "w") as f:
            print("model\tbatch\tlow_mib\tusual_mib\thigh_mib\tmeasured_mib\terror_percent", file=f)
            for r in rows + carma:
                figures_of = (r.low, r.usual, r.high, r.measured, error(r))
                print(r.model, r.batch, *(f"{x:.1f}" for x in figures_of), sep="\t", file=f)


main()
