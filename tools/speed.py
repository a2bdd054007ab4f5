#!/usr/bin/env python3
"""speed.py -- fits the rates of src/time/rates.def to measured steps, and judges estimates.

    tools/speed.py fit   throughput_timm.csv FOLDER... [--program P] [--results FILE]
    tools/speed.py judge throughput_timm.csv FOLDER... [--program P] [--results FILE]

Needs numpy and scipy. The folders hold the models of the table as timm_export.py wrote them;
the table (results of timm's own benchmark; columns model, card, mode, precision, layout, compile,
torch, batch, step_ms) is not part of this project. Used are eager AMP runs of NCHW tensors on the
cards of CARDS. Models are divided by a hash of their name: `fit` prints constants fitted to one
half, `judge` compares the program's own estimates with the other. --results writes a row a job:
measured, predicted, low and high in ms.

The fit minimizes the logarithm of predicted / measured, with one share of the peak and one of
the bandwidth for each class of work, and one factor for each of the two and each card.
"""

import argparse
import collections
import concurrent.futures
import csv
import hashlib
import json
import pathlib
import statistics
import subprocess
import sys

GPUS = pathlib.Path(__file__).resolve().parent.parent / "src" / "gpu" / "gpus.csv"
CARDS = ("rtx3090", "rtx4090", "rtx5090")
TORCH = {"1.12": "1.13", "1.13": "1.13", "2.1.0": "2.1", "2.4.0": "2.4", "2.9.1": "2.9"}
CLASSES = ("gemm conv conv_1x1 conv_grouped conv_depthwise attention rnn pointwise norm reduce copy index "
           "optimizer").split()
PRODUCTS = CLASSES[:7]

Job = collections.namedtuple("Job", "model card mode torch batch measured report")


def is_judged(model):
    return hashlib.sha256(model.encode()).digest()[0] % 2 == 1


def measured(path, folders, judged):
    """(row, file) of the jobs of one half."""
    files = {f.stem: f for folder in folders for f in sorted(folder.glob("*.pt2"))}
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            if (row["card"] in CARDS and row["precision"] == "amp" and row["layout"] == "nchw"
                    and row["compile"] == "eager" and row["model"] in files
                    and is_judged(row["model"]) == judged):
                yield row, files[row["model"]]


def predict(program, row, graph):
    batch = int(float(row["batch"]))
    command = [program, "estimate", str(graph), "--input", f"{batch}x3x{row['img']}x{row['img']}",
               "--gpu", row["card"], "--autocast", "fp16", "--torch", TORCH[row["torch"]], "--explain", "time", "--json"]
    command += ["--infer"] if row["mode"] == "infer" else ["--optimizer", "sgd,momentum=0.9"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if not done.stdout:
        print(f"{row['model']}: {done.stderr.strip()[-150:]}", file=sys.stderr)
        return None  # most often measured at another image size
    report = json.loads(done.stdout)
    ops = report["ops"]
    report["ops"] = None
    if abs(report["model"]["parameters"] / 1e6 / float(row["params_M"]) - 1) > 0.01:
        return None  # measured in another form: with its branches merged
    if any(o["op"].startswith("aten.group_norm") for o in ops):
        return None  # measured with timm's fast norms, which are not AMP's
    return Job(row["model"], row["card"], row["mode"], row["torch"], batch,
               float(row["step_ms"]), (report, compact(ops)))


def compact(ops):
    """Columns: class, 2 MACs, bytes, kernels, whether the products are in fp32."""
    return [(CLASSES.index(o["work"]), 2.0 * o["macs"], float(o["bytes"]), o["kernels"],
             o["dtype"] == "fp32" or o["work"] == "conv_depthwise", o["phase"] == "backward")
            for o in ops]


def all_jobs(options, judged):
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        made = pool.map(lambda x: predict(options.program, *x),
                        measured(options.table, options.folders, judged))
        return [job for job in made if job]


def summary(errors):
    size = sorted(abs(e) for e in errors)
    if not size:
        return "no jobs"
    return (f"{len(size):4d} jobs  median {statistics.median(size):5.1f} %  p90 "
            f"{size[int(0.9 * (len(size) - 1))]:5.1f} %  worst {size[-1]:6.1f} %  "
            f"bias {statistics.median(errors):+5.1f} %")


def print_by_card(rows):
    """rows: (job, error in %, whether within the range or None)."""
    groups = collections.defaultdict(list)
    for row in rows:
        job = row[0]
        groups[job.mode, "all", ""].append(row)
        groups[job.mode, job.card, job.torch].append(row)
    for (mode, card, torch), group in sorted(groups.items()):
        inside = [r[2] for r in group if r[2] is not None]
        covered = f"  in the range {100 * sum(inside) / len(inside):.0f} %" if inside else ""
        print(f"{mode:5} {card:8} {torch:6} {summary([r[1] for r in group])}{covered}")


# ---- fit -----------------------------------------------------------------------


def fit(options):
    import numpy as np
    import scipy.optimize
    with open(GPUS, newline="", encoding="utf-8") as f:
        cards = {row["aliases"].split(", ")[0]: row for row in csv.DictReader(f)}
    jobs = all_jobs(options, judged=False)
    if not jobs:
        sys.exit("no jobs")
    parts = [np.array(job.report[1]) for job in jobs]
    count = np.concatenate([np.full(len(p), i) for i, p in enumerate(parts)])
    table = np.concatenate(parts)
    klass, flops, moved, kernels = (table[:, 0].astype(int), table[:, 1], table[:, 2], table[:, 3])
    card_of = [list(CARDS).index(job.card) for job in jobs]
    card = np.array(card_of)[count]
    peak16 = np.array([float(cards[c]["fp16_acc32"]) * 1e12 for c in CARDS])
    peak32 = np.array([float(cards[c]["fp32"]) * 1e12 for c in CARDS])
    wide = np.array([float(cards[c]["bandwidth_gbs"]) * 1e9 for c in CARDS])
    t_flops = flops / np.where(table[:, 4] > 0, peak32[card], peak16[card])
    t_moved = moved / wide[card]
    real = np.array([job.measured / 1e3 for job in jobs])
    back = table[:, 5]
    n, p, c = len(CLASSES), len(PRODUCTS), len(CARDS)
    cuts = np.cumsum([p, n, n, c - 1, c - 1])

    def unpack(x):
        compute, memory, backward, card_c, card_m, launch = np.split(x, cuts)
        return (np.append(compute, np.zeros(n - p)), memory, backward, np.append(0, card_c),
                np.append(0, card_m), launch[0])

    def times(x):
        compute, memory, backward, card_c, card_m, launch = unpack(x)
        slower = back * backward[klass]
        each = np.maximum(t_flops * np.exp(-compute[klass] - card_c[card] - slower),
                          t_moved * np.exp(-memory[klass] - card_m[card] - slower))
        return np.bincount(count, each + kernels * np.exp(launch), len(jobs))

    start = np.concatenate([np.full(p, np.log(0.6)), np.full(n, np.log(0.7)),
                            np.zeros(n + 2 * c - 2), [np.log(3e-6)]])
    centre = start.copy()

    def residuals(x):
        pull = (x - centre) * 0.3  # a class that few jobs have stays near the start
        return np.concatenate([np.log(times(x) / real), pull])

    low = np.concatenate([np.full(p + n, np.log(0.02)), np.full(n + 2 * c - 2, -1.5), [np.log(1e-7)]])
    high = np.concatenate([np.full(p, np.log(1.0)), np.full(n, np.log(1.3)),
                           np.full(n + 2 * c - 2, 1.0), [np.log(8e-6)]])
    best = scipy.optimize.least_squares(residuals, start, bounds=(low, high), loss="soft_l1",
                                        f_scale=0.1)
    compute, memory, backward, card_c, card_m, launch = unpack(best.x)
    for i, name in enumerate(CLASSES):
        share = f"{np.exp(compute[i]):.3f}" if i < p else "0"
        print(f"RATE({name}, {share}, {np.exp(memory[i]):.3f}, {np.exp(backward[i]):.3f})")
    for i, name in enumerate(CARDS):
        print(f"CARD(\"{name}\", {np.exp(card_c[i]):.3f}, 0, {np.exp(card_m[i]):.3f})")
    print(f"launch_us = {np.exp(launch) * 1e6:.2f}")
    errors = (times(best.x) / real - 1) * 100
    for mode in ("infer", "train"):
        low, high = np.quantile([100 / (100 + e) for job, e in zip(jobs, errors)
                                 if job.mode == mode], (0.05, 0.95))
        print(f"range {mode}: {low:.2f} to {high:.2f}")
    print_by_card([(job, e, None) for job, e in zip(jobs, errors)])
    if options.verbose:
        for job, e in sorted(zip(jobs, errors), key=lambda x: -abs(x[1]))[:40]:
            print(f"{job.model:40} {job.card} {job.mode} {job.torch} {job.batch} {e:+.0f} %")


# ---- judge ---------------------------------------------------------------------


def judge(options):
    rows = []
    for job in all_jobs(options, judged=True):
        t = job.report[0]["time"]
        if t["usual_ms"] is None:
            print(f"{job.model}: {t['unknown']}", file=sys.stderr)
            continue
        rows.append((job, (t["usual_ms"] / job.measured - 1) * 100,
                     t["low_ms"] <= job.measured <= t["high_ms"], t))
    print_by_card(rows)
    if options.results:
        with open(options.results, "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow("model card mode torch batch measured_ms usual_ms low_ms high_ms".split())
            for job, _, _, t in rows:
                out.writerow([job.model, job.card, job.mode, job.torch, job.batch, job.measured]
                             + [f"{t[k]:.2f}" for k in ("usual_ms", "low_ms", "high_ms")])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("fit", "judge"))
    parser.add_argument("table")
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    parser.add_argument("--program", default="build/plimsoll")
    parser.add_argument("--results")
    parser.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    (fit if options.what == "fit" else judge)(options)


if __name__ == "__main__":
    main()
