#!/usr/bin/env python3
"""speed.py -- fits the rates of src/time/rates.def to measured steps, and judges estimates.

    tools/speed.py fit      throughput_timm.csv batch_series.csv FOLDER... [--program P] [--verbose]
    tools/speed.py judge    throughput_timm.csv FOLDER... [--program P] [--results FILE]
    tools/speed.py batches  batch_series.csv FOLDER [--program P] [--results FILE] [--update]
    tools/speed.py kernels  optime_neusight_fp32.csv
    tools/speed.py knee     optime_neusight_fp32.csv
    tools/speed.py neusight steptime_neusight_models.csv FOLDER [--program P] [--results FILE] [--update]

The tables are not part of this project.

`fit` and `judge`: results of timm's own benchmark (columns model, card, mode, precision, layout, compile, torch,
batch, step_ms). The folders hold its models as timm_export.py wrote them. Used are eager AMP runs of NCHW tensors
on the cards of CARDS. Models are divided by a hash of their name: `fit` prints constants fitted to one half,
`judge` compares the program's own estimates with the other. --results writes a row a job: measured, predicted,
low and high in ms. The fit, which needs numpy and scipy, minimizes the logarithm of predicted / measured, with one
share of the peak and one of the bandwidth for each class of work, and one factor for each of the two and each card.

`fit` and `batches`: the steps at many batches that batch_series.py collects, divided by model as well. `fit` takes from
them, and from the steps above, what a kernel adds on the card, with a factor of its own for each series, as most are of
other cards; what a kernel takes on the CPU is the least time of a step for each of its kernels, by machine, then the
geometric mean of the machines. `batches` compares the smallest batch with 90 % of the most samples per second.

`kernels`: single kernels in fp32 without TF32 that sitar-lab/NeuSight measured (columns key, gpu, op, B, M, N, K, H,
latency_ms). Prints a share for each card and class, fitted to half of them by a hash of the key, what of it
rates.def has, the range that nine in ten of that half are in, and how good both are on the other half.

`knee`: the same kernels at 4 or more sizes that span a factor of 8: how many rows or batches it takes to reach 90 %
of the most per second, measured and with the constants of the program. As each was measured alone, its start on the
CPU is added.

`neusight`: whole steps of the same project (columns model, gpu, mode, seq, batch, option, e2e_ms), to which nothing
is fitted. FOLDER holds the models as neusight_export.py wrote them. Like the measured time, the estimate of a
training step has the forward and the backward pass, which adds to gradients that are there already, without the loss
and an optimizer.

--update writes the tables of docs/time.md.
"""

import argparse
import collections
import concurrent.futures
import csv
import hashlib
import json
import math
import pathlib
import re
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
GPUS = ROOT / "src" / "gpu" / "gpus.csv"
RATES = ROOT / "src" / "time" / "rates.def"
PAGE = ROOT / "docs" / "time.md"
CARDS = ("rtx3090", "rtx4090", "rtx5090")
TORCH = {"1.12": "1.13", "1.13": "1.13", "2.1.0": "2.1", "2.4.0": "2.4", "2.9.1": "2.9"}
CLASSES = ("gemm conv conv_thin conv_1x1 conv_grouped conv_depthwise attention rnn pointwise norm batch_norm batch_norm_eval "
           "reduce loss pool copy index optimizer optimizer_temporary optimizer_fused").split()
PRODUCTS = CLASSES[:8]

Job = collections.namedtuple("Job", "model card mode torch batch measured report")


def is_judged(key):
    return hashlib.sha256(key.encode()).digest()[0] % 2 == 1


def cards_of_table():
    """The rows of gpus.csv by their first alias."""
    with open(GPUS, newline="", encoding="utf-8") as f:
        return {row["aliases"].split(", ")[0]: row for row in csv.DictReader(f)}


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
    return (f"{len(size):4d} jobs: median {statistics.median(size):5.1f} %, p90 "
            f"{size[int(0.9 * (len(size) - 1))]:5.1f} %, worst {size[-1]:6.1f} %, "
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
        covered = f", in the range {100 * sum(inside) / len(inside):.0f} %" if inside else ""
        print(f"{mode:5} {card:8} {torch:6} {summary([r[1] for r in group])}{covered}")


# ---- fit -----------------------------------------------------------------------


def fit(options):
    import numpy as np
    import scipy.optimize
    cards = cards_of_table()
    jobs, series = all_jobs(options, judged=False), series_of(options, options.series, options.folders, judged=False)
    if not jobs or not series:
        sys.exit("no jobs")
    hosts = cpu_of(series)
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
    cuts = np.cumsum([p, n, n, c - 1, c - 1, 1])
    steps = np.array([(i, s.ms, s.computed, s.kernels, hosts[one.host] * s.kernels)
                      for i, one in enumerate(series) for s in one.steps]).T

    def unpack(x):
        compute, memory, backward, card_c, card_m, launch, factors = np.split(x, cuts)
        return (np.append(compute, np.zeros(n - p)), memory, backward, np.append(0, card_c),
                np.append(0, card_m), launch[0], factors)

    def times(x):
        compute, memory, backward, card_c, card_m, launch, _ = unpack(x)
        slower = back * backward[klass]
        each = np.maximum(t_flops * np.exp(-compute[klass] - card_c[card] - slower),
                          t_moved * np.exp(-memory[klass] - card_m[card] - slower))
        return np.bincount(count, each + kernels * np.exp(launch), len(jobs))

    def series_times(x):
        launch, factors = unpack(x)[-2:]
        which, _, computed, kernels, cpu = steps
        return np.maximum(computed * np.exp(factors[which.astype(int)]) + kernels * np.exp(launch) * 1e3, cpu)

    free = len(series)
    start = np.concatenate([np.full(p, np.log(0.6)), np.full(n, np.log(0.7)),
                            np.zeros(n + 2 * c - 2), [np.log(3e-6)], np.zeros(free)])
    centre = start.copy()

    def residuals(x):
        pull = (x - centre)[:-1 - free] * 0.3  # a class that few jobs have stays near the start
        return np.concatenate([np.log(times(x) / real), np.log(series_times(x) / steps[1]), pull])

    low = np.concatenate([np.full(p + n, np.log(0.02)), np.full(n + 2 * c - 2, -1.5), [np.log(1e-7)], np.full(free, -2)])
    high = np.concatenate([np.full(p, np.log(1.0)), np.full(n, np.log(1.3)),
                           np.full(n + 2 * c - 2, 1.0), [np.log(3e-5)], np.full(free, 2)])
    best = scipy.optimize.least_squares(residuals, start, bounds=(low, high), loss="soft_l1",
                                        f_scale=0.1)
    compute, memory, backward, card_c, card_m, launch, _ = unpack(best.x)
    for i, name in enumerate(CLASSES):
        share = f"{np.exp(compute[i]):.3f}" if i < p else "0"
        print(f"RATE({name}, {share}, {np.exp(memory[i]):.3f}, {np.exp(backward[i]):.3f})")
    for i, name in enumerate(CARDS):
        print(f"CARD(\"{name}\", {np.exp(card_c[i]):.3f}, 0, {np.exp(card_m[i]):.3f})")
    print(f"launch_us = {np.exp(launch) * 1e6:.2f}")
    print(f"cpu_us = {1e3 * statistics.geometric_mean(hosts.values()):.0f}: "
          + ", ".join(f"{host} {1e3 * ms:.1f}" for host, ms in hosts.items()))
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


# ---- steps at many batches -------------------------------------------------------


# Milliseconds: measured, and computed on the card without what its kernels add; and the report's own time.
Step = collections.namedtuple("Step", "batch ms computed kernels time")
Series = collections.namedtuple("Series", "model host card mode precision size steps")


def series_of(options, table, folders, judged):
    launch = constant(r"launch_us = ([\d.]+)") / 1e3
    files = {f.name: str(f) for folder in folders for f in folder.glob("*.pt2")}

    def step_of(row):
        command = [options.program, "estimate", files.get(row["graph"], row["graph"]), "--input",
                   f"{row['batch']}x{row['size']}", "--gpu", row["card"], "--explain", "time", "--json"]
        command += ["--autocast", "fp16"] if row["precision"] == "amp" else []
        command += ["--infer"] if row["mode"] == "infer" else ["--optimizer", "sgd", "--zero-grad", "zeros"]
        report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        ops = [o for o in report["ops"] if o["phase"] in ("forward", "backward")]
        kernels = sum(o["kernels"] for o in ops)
        return Step(int(row["batch"]), float(row["ms"]), sum(o["ms"] for o in ops) - kernels * launch, kernels,
                    report["time"])

    with open(table, newline="", encoding="utf-8") as f:
        rows = [row for row in csv.DictReader(f) if judged is None or is_judged(row["model"]) == judged]
    found = collections.defaultdict(list)
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        for row, step in zip(rows, pool.map(step_of, rows)):
            found[tuple(row[name] for name in Series._fields[:-1])].append(step)
    return [Series(*key, steps) for key, steps in found.items()]


def cpu_of(series):
    """The least milliseconds for each kernel of a step, by host."""
    least = {}
    for one in series:
        least[one.host] = min([least.get(one.host, math.inf), *(s.ms / s.kernels for s in one.steps)])
    return least


def batches(options):
    launch, cpu = (constant(rf"{name} = ([\d.]+)") / 1e3 for name in ("launch_us", "cpu_us"))
    lines = ["| model | card | step | precision | sample | half | measured | estimate |",
             "| --- | --- | --- | --- | --- | --- | ---: | ---: |"]
    off, inferences = collections.defaultdict(list), collections.defaultdict(list)
    for one in series_of(options, options.table, [options.folder], judged=None):
        times = {s.batch: max(cpu * s.kernels, s.computed + launch * s.kernels) for s in one.steps}
        real, ours = knee_of({s.batch: s.batch / s.ms for s in one.steps}), knee_of({b: b / ms for b, ms in times.items()})
        half = "judged" if is_judged(one.model) else "fitted"
        off[half].append(ours / real)
        if one.mode == "infer":  # others have no optimizer, which the report's time includes
            inferences[half] += [s for s in one.steps if s.time["usual_ms"] is not None]
        step = "inference" if one.mode == "infer" else "forward and backward"
        lines.append(f"| {one.model} | {one.card} | {step} | {one.precision} | {one.size} | {half} | {real} | {ours} |")
    lines.append("")
    for half, ratios in sorted(off.items()):
        near = sum(0.5 <= r <= 2 for r in ratios)
        steps = inferences[half]
        inside = sum(s.time["low_ms"] <= s.ms <= s.time["high_ms"] for s in steps)
        lines.append(f"* {half}: {len(ratios)} series, {near} within one doubling, {ratios.count(1)} the same, "
                     f"{sum(r < 0.5 for r in ratios)} too small, {sum(r > 2 for r in ratios)} too large. Time of the "
                     f"{len(steps)} inferences: "
                     + " ".join(summary([100 * (s.time["usual_ms"] / s.ms - 1) for s in steps]).split(": ")[1].split())
                     + f", in the range {100 * inside / len(steps):.0f} %")
    print("\n".join(lines))
    if options.update:
        write_between(PAGE, "batches", lines)


# ---- single kernels --------------------------------------------------------------


NEUSIGHT = {"Tesla P4": "p4", "Tesla P100-PCIE-16GB": "p100-pcie", "Tesla V100-PCIE-32GB": "v100-pcie-32g",
            "Tesla T4": "t4", "NVIDIA A100-PCIE-40GB": "a100-pcie", "NVIDIA A100 80GB PCIe": "a100-pcie-80g",
            "NVIDIA L4": "l4", "NVIDIA H100 80GB HBM3": "h100"}
KERNELS = {"linear": "gemm", "bmm": "gemm", "ln": "norm", "softmax": "reduce"}  # all others: pointwise
TWO_OPERANDS = ("add", "mul", "pow", "div")

# What grows with a batch, and what names the kernels that differ in it alone; milliseconds, the last two at the
# rates of the card.
Kernel = collections.namedtuple("Kernel", "key card klass size series ms computed moved")


def constant(pattern):
    """A number of the sources."""
    text = RATES.read_text() + (RATES.parent / "time.c").read_text()
    return float(re.search(pattern, text).group(1))


def kernels_of(path):
    cards = cards_of_table()
    with open(path, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            card, op, batch = NEUSIGHT[row["gpu"]], row["op"], int(row["B"])
            flops, size, series = 0, batch, (op, row["H"])
            if op in ("linear", "bmm"):
                m, n, k = (int(row[x]) for x in "MNK")
                flops = 2 * batch * m * n * k
                elements = batch * m * (n + k) + n * k * (batch if op == "bmm" else 1)
                size, series = (batch, (op, m, n, k)) if op == "bmm" else (batch * m, (op, n, k))
            else:
                elements = batch * int(row["H"]) * (3 if op in TWO_OPERANDS else 2)
            yield Kernel(row["key"], card, KERNELS.get(op, "pointwise"), size, series, float(row["latency_ms"]),
                         flops / float(cards[card]["fp32"]) / 1e9,
                         4 * elements / float(cards[card]["bandwidth_gbs"]) / 1e6)


def kernels(options):
    memory = {c: constant(rf"RATE\({c}, [\d.]+, ([\d.]+)") for c in ("gemm", "pointwise")}
    launch = constant(r"launch_us = ([\d.]+)") / 1e3
    halves = collections.defaultdict(lambda: ([], []))
    for k in kernels_of(options.table):
        if max(k.computed, k.moved) >= 1:
            halves[k.card, k.klass][is_judged(k.key)].append(k)
    ratios = ([], [])
    for card in NEUSIGHT.values():
        wide = 1.0  # what the card multiplies the shares of the bandwidth by

        def errors(some, klass, share):
            """Logarithms of predicted / measured."""
            product = klass == "gemm"
            moves = memory["gemm"] * wide if product else share
            return [math.log((max(k.computed / share if product else 0, k.moved / moves) + launch) / k.ms) for k in some]

        for klass in ("pointwise", "norm", "reduce", "gemm"):
            fitted, others = halves[card, klass]
            if not fitted:
                continue
            share = min((x / 1000 for x in range(200, 1001)), key=lambda x: sum(map(abs, errors(fitted, klass, x))))
            off = [100 * statistics.median(abs(math.exp(e) - 1) for e in errors(half, klass, share))
                   for half in (fitted, others)]
            says = f"{card:14} {klass:9} share {share:.3f}; median error of {len(fitted)} kernels {off[0]:.1f} %, of "
            says += f"{len(others)} others {off[1]:.1f} %"
            if klass == "pointwise":
                wide = share / memory[klass]
                says += f"; CARD memory {wide:.3f}"
            if klass == "gemm":
                says += f"; CARD full {share:.3f}"
            print(says)
            if klass in ("pointwise", "gemm"):
                for half, seen in zip((fitted, others), ratios):
                    seen.extend(math.exp(-e) for e in errors(half, klass, share))
    low, *_, high = statistics.quantiles(ratios[0], n=20)
    inside = sum(low <= r <= high for r in ratios[1]) / len(ratios[1])
    print(f"range of pointwise and gemm: {low:.2f} to {high:.2f}, has {100 * inside:.1f} % of the others")


def knee_of(rates):
    """The smallest size with 90 % of the most; rates: by size."""
    most = max(rates.values())
    return min(size for size, rate in rates.items() if rate >= 0.9 * most)


def knee(options):
    launch, cpu = (constant(rf"{name} = ([\d.]+)") / 1e3 for name in ("launch_us", "cpu_us"))
    card_of = {name: (float(full), float(wide) or 1) for name, full, wide in
               re.findall(r'CARD\("([^"]+)", [\d.]+, ([\d.]+), ([\d.]+)\)', RATES.read_text())}
    memory = {k: constant(rf"RATE\({k}, [\d.]+, ([\d.]+)") for k in ("gemm", "pointwise", "norm", "reduce")}
    series = collections.defaultdict(list)
    for k in kernels_of(options.table):
        series[k.klass, k.card, k.series].append(k)
    found = collections.defaultdict(collections.Counter)
    for (klass, card, _), some in series.items():
        full, wide = card_of[card]
        sizes = [k.size for k in some]
        real = knee_of({k.size: k.size / k.ms for k in some})
        ours = knee_of({k.size: k.size / (cpu + launch + max(k.computed / full, k.moved / memory[klass] / wide))
                        for k in some})
        if len(set(sizes)) < 4 or max(sizes) < 8 * min(sizes) or real == max(sizes):
            continue
        says = ("none" if real == ours == min(sizes) else "within" if real <= 2 * ours and ours <= 2 * real
                else "small" if ours < real else "large")
        found[klass][says] += 1
    for klass, n in sorted(found.items()):
        print(f"{klass:9} {n['none']} series without a knee, {n.total() - n['none']} with one: {n['within']} within a "
              f"doubling, {n['small']} too small, {n['large']} too large")


# ---- whole steps of NeuSight ------------------------------------------------------


def neusight_jobs(options):
    """(row, card, milliseconds of the program, lowest, highest) of eager steps on one card."""
    named = {name.replace(" ", "_"): card for name, card in NEUSIGHT.items()}
    with open(options.table, newline="", encoding="utf-8") as f:
        for row in csv.DictReader(f):
            card = named.get(row["gpu"])
            if not card or row["option"]:
                continue
            graph = options.folder / f"{row['model']}-{row['mode']}-{row['seq']}-{row['batch']}.pt2"
            if not graph.exists():
                print(f"{graph.stem} on {card}: not exported", file=sys.stderr)
                continue
            command = [options.program, "estimate", str(graph), "--gpu", card, "--torch", "2.1", "--explain", "time",
                       "--json"]
            command += ["--infer"] if row["mode"] == "inf" else ["--optimizer", "sgd", "--zero-grad", "zeros"]
            report = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
            step = report["time"]
            ms = sum(o["ms"] for o in report["ops"] if o["phase"] in ("forward", "backward"))
            yield row, card, ms, ms * step["low_ms"] / step["usual_ms"], ms * step["high_ms"] / step["usual_ms"]


def neusight(options):
    jobs = []
    lines = ["| model | card | step | batch | measured, ms | estimate, ms | range, ms | error |",
             "| --- | --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for row, card, ms, low, high in sorted(neusight_jobs(options), key=lambda j: (j[0]["mode"], j[1])):
        real = float(row["e2e_ms"])
        error = 100 * (ms / real - 1)
        jobs.append((error, low <= real <= high, [row["model"], card, row["mode"], row["seq"], row["batch"], real,
                                                  f"{ms:.2f}", f"{low:.2f}", f"{high:.2f}"]))
        step = "inference" if row["mode"] == "inf" else "forward and backward"
        lines.append(f"| {row['model']} | {card} | {step} | {row['batch']} | {real:.0f} | {ms:.0f} | "
                     f"{low:.0f}-{high:.0f} | {error:+.1f} % |")
    if not jobs:
        sys.exit("no jobs")
    inside = sum(j[1] for j in jobs)
    lines += ["", " ".join(summary([j[0] for j in jobs]).split()) + f", in the range {inside}"]
    print("\n".join(lines))
    if options.results:
        with open(options.results, "w", newline="", encoding="utf-8") as f:
            out = csv.writer(f, lineterminator="\n")
            out.writerow("model card mode seq batch measured_ms usual_ms low_ms high_ms".split())
            out.writerows(j[2] for j in jobs)
    if options.update:
        write_between(PAGE, "neusight", lines)


def write_between(page, name, lines):
    begin, end = f"<!-- {name}: begin -->", f"<!-- {name}: end -->"
    before, rest = page.read_text(encoding="utf-8").split(begin, 1)
    text = before + "\n".join([begin, *lines, end]) + rest.split(end, 1)[1]
    page.write_text(text, encoding="utf-8")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="what", required=True)
    for run, folders in ((fit, "+"), (judge, "+"), (batches, 1), (kernels, None), (knee, None), (neusight, 1)):
        one = commands.add_parser(run.__name__)
        one.set_defaults(run=run)
        one.add_argument("table")
        if run is fit:
            one.add_argument("series")
        if folders == "+":
            one.add_argument("folders", nargs="+", type=pathlib.Path)
        if folders == 1:
            one.add_argument("folder", type=pathlib.Path)
            one.add_argument("--update", action="store_true")
        if folders:
            one.add_argument("--program", default="build/plimsoll")
            one.add_argument("--results")
            one.add_argument("--verbose", action="store_true")
    options = parser.parse_args()
    options.run(options)


if __name__ == "__main__":
    main()
