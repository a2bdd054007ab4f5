#!/usr/bin/env python3
"""Compares plimsoll's predictions with what collect.py measured, as a table for docs/accuracy.md.

    python3 tests/golden/gpu/compare.py [--program build/plimsoll] [--check] [--pretend PRETEND.jsonl] [FILE.jsonl...]

Default: every FILE.jsonl next to it. --check prints where a prediction is worse than EXACT and WITHIN say, and fails then. The workspaces of cuDNN, the times of steps and the contexts have tables of their own. Those of a workspace need
PRETEND.jsonl, what `plimsoll run --gpu CARD -- python3 collect.py --suite workspace --out PRETEND.jsonl` wrote: the same convolutions
with the workspaces of the rule.
"""
import argparse
import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
EXACT = ("mlp:", "vit_b_16", "swin_t", "convnext_tiny")  # requested bytes are equal: cuDNN takes nothing in them; so are those of every config
WHOLLY = ("mlp:", "swin_t")  # of those, what is allocated and reserved in training, too
# Per cent, nine in ten of the runs of any card: of built-in models, and of transformers' configs, in which cuDNN takes little.
WITHIN = {"model": {"requested": 0.2, "allocated": 0.3, "reserved": 1.7}, "config": {"requested": 0.0, "allocated": 0.02, "reserved": 0.05}}
# Per cent, all runs of built-in models on the card whose convolutions are measured (src/op/cudnn_h100.def), without a search.
MEASURED = ("NVIDIA H100 80GB HBM3", {"requested": 0.001, "reserved": 0.5})
OTHERS = {"workspace", "steps", "context"}  # whose runs measure something else than peaks
LARGEST = 0.97  # of the largest batch that ran: at least that is said to fit, and no more than ran
DEVICE = 24  # MiB that the usual size of what is outside the allocator may be off, and of all that a process holds
HELD = {"model": 0.8, "config": 1.0}  # of the runs, at least so many hold what is predicted, within DEVICE


def ask(program, command, m, *more):
    spec = m["spec"]
    model = str(HERE / "configs" / f"{spec['config']}.json") if "config" in spec else spec["model"]
    args = [program, command, model, "--torch", m["torch"], "--gpu", m["card"], "--json", *more]
    args += ["--infer"] if spec.get("infer") else ["--optimizer", spec["optimizer"]]
    for key in ("loss", "dtype", "seq", "input", "autocast", "checkpoint", "lora", "cudnn-tf32", "attention", "made"):
        args += ["--" + key, str(spec[key])] if key in spec else []
    args += ["--cudnn-benchmark"] if spec.get("benchmark") else []
    return json.loads(subprocess.run(args, stdout=subprocess.PIPE, check=False).stdout)


def predict(program, m):
    return ask(program, "estimate", m, "--batch", str(m["spec"]["batch"]))["memory"]


def predict_largest(program, m):
    """The largest batch within a fraction of the card's memory."""
    return ask(program, "fit", m, "--steps", "3", "--alloc-conf", f"per_process_memory_fraction:{m['fraction']}")["cards"][0]["batch"]


MIB = 2**20


def held(m):
    """What the process held at the end, by NVML or by cudaMemGetInfo, and what was reserved then; None: not measured."""
    if "process_end" in m:
        return m["process_end"], m["reserved_end"]
    return (m["total"] - m["free_after"], m["reserved_after"]) if m.get("reserved_after") is not None else None


def print_workspaces(measured, pretend):
    """By pass: how many are as the rule says, above it, below it, and the bytes of all."""
    ruled = {json.dumps(m["spec"], sort_keys=True): m["rows"] for m in pretend}
    print("\n| card, torch, cuDNN | numbers, layout | benchmark | pass | equal | more | less | measured, MiB | the rule, MiB |")
    print("| --- | --- | --- | --- | ---: | ---: | ---: | ---: | ---: |")
    for m in measured:
        spec = m["spec"]
        rule = {tuple(r["shape"]): r for r in ruled.get(json.dumps(spec, sort_keys=True), [])}
        both = [(r, rule[tuple(r["shape"])]) for r in m["rows"] if "error" not in r and tuple(r["shape"]) in rule]
        layout = "channels_last" if spec["channels_last"] else "NCHW"
        for name in ("forward", "grad_input", "grad_weight") if both else ():
            pairs = [(seen[name][1], says[name][1]) for seen, says in both if "error" not in says]
            share = [sum(s == r for s, r in pairs), sum(s > r for s, r in pairs), sum(s < r for s, r in pairs)]
            print(f"| {m['card']}, {m['torch']}, {m['cudnn']} | {spec['workspace']}, {layout} | {'on' if spec['benchmark'] else 'off'} |",
                  f"{name} |", " | ".join(map(str, share)), f"| {sum(s for s, _ in pairs) / MIB:.1f} | {sum(r for _, r in pairs) / MIB:.1f} |")


def predict_time(program, m):
    spec = m["spec"]
    args = [program, "estimate", spec["model"], "--batch", str(spec["batch"]), "--torch", m["torch"], "--gpu", m["card"]]
    args += ["--explain", "time", "--json"]
    args += ["--infer"] if spec.get("infer") else ["--optimizer", spec["optimizer"]]
    args += ["--autocast", spec["autocast"]] if "autocast" in spec else []
    return json.loads(subprocess.run(args, stdout=subprocess.PIPE, check=True).stdout)["time"]


def knee(rates):
    """The smallest batch with 90 % of the most samples per second; rates: by batch."""
    return min(batch for batch, rate in rates.items() if rate >= 0.9 * max(rates.values()))


def print_times(program, measured):
    """Steps, and for each series of batches where throughput stops growing."""
    print("\n| card, torch | model | batch | step | autocast | measured, ms | estimate, ms | range, ms | error |")
    print("| --- | --- | ---: | --- | --- | ---: | ---: | ---: | ---: |")
    series = {}
    for m in measured:
        spec, t, real = m["spec"], predict_time(program, m), m["ms_median"]
        how, cast = "infer" if spec.get("infer") else spec["optimizer"], spec.get("autocast", "none")
        known = t["usual_ms"] is not None and real > 0  # events of the pretend GPU measure nothing
        says = f"{t['usual_ms']:.2f} | {t['low_ms']:.2f}-{t['high_ms']:.2f} | {100 * (t['usual_ms'] / real - 1):+.1f} %" if known else "unknown | | "
        print(f"| {m['card']}, {m['torch']} | {spec['model']} | {spec['batch']} | {how} | {cast} | {real:.2f} | {says} |")
        if known:
            both = series.setdefault((m["card"], m["torch"], spec["model"], how, cast), ({}, {}))
            both[0][spec["batch"]], both[1][spec["batch"]] = spec["batch"] / real, spec["batch"] / t["usual_ms"]
    print("\n| card, torch | model | step | autocast | batches | measured: 90 % of the most from | estimate |")
    print("| --- | --- | --- | --- | --- | ---: | ---: |")
    for (card, torch, model, how, cast), (real, ours) in series.items():
        if len(real) >= 4:
            print(f"| {card}, {torch} | {model} | {how} | {cast} | {min(real)}-{max(real)} | {knee(real)} | {knee(ours)} |")


def print_contexts(program, measured):
    """What was neither free nor reserved at the end, by card and versions."""
    seen = {}
    for m in measured:
        if held(m):
            key = (m["card"], m["torch"], m["cuda"], m["cudnn"], m["driver"], bool(m["spec"].get("benchmark")))
            seen.setdefault(key, []).append(held(m)[0] - held(m)[1])
    print("\n| card | torch | CUDA | cuDNN | driver | benchmark | context measured, MiB | context expected, MiB |")
    print("| --- | --- | --- | --- | --- | --- | ---: | ---: |")
    for (card, torch, cuda, cudnn, driver, search), sizes in seen.items():
        command = [program, "estimate", "alexnet", "--torch", torch, "--gpu", card, "--json"] + ["--cudnn-benchmark"] * search
        memory = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)["memory"]
        print(f"| {card} | {torch} | {cuda} | {cudnn} | {driver or 'unknown'} | {'on' if search else 'off'} |",
              f"{min(sizes) / MIB:.0f}-{max(sizes) / MIB:.0f} |",
              f"{memory['context_low'] / MIB:.0f}-{memory['context_high'] / MIB:.0f} |")


def print_stages(measured):
    """What a process held outside the allocator, after each stage of the suite context."""
    print("\n| card, torch | CUDA_MODULE_LOADING | after | by NVML, MiB | by cudaMemGetInfo, MiB |\n| --- | --- | --- | ---: | ---: |")
    for m in measured:
        for stage, held, used in m["rows"]:
            print(f"| {m['card']}, {m['torch']} | {m['spec']['context']} | {stage} |",
                  f"{'unknown' if held is None else f'{held / MIB:.1f}'} | {used / MIB:.1f} |")


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def check(args):
    """What is worse than was promised."""
    ended = [m for path in args.files or sorted(HERE.glob("*.jsonl")) for m in read_lines(path)
             if m["status"] == "ok" and not OTHERS & set(m["spec"])]
    runs, searches = [m for m in ended if "largest" not in m], [m for m in ended if "largest" in m]
    bad, errors = [], {(kind, k): [] for kind, limits in WITHIN.items() for k in limits}
    holds = {kind: [] for kind in HELD}
    for m in runs:
        p, name, kind = predict(args.program, m), f"{m['card']}, {json.dumps(m['spec'])}", "config" if "config" in m["spec"] else "model"
        for k in WITHIN[kind]:
            errors[kind, k].append(abs(p["peak_" + k] - m["peak_" + k]) / m["peak_" + k] * 100)
        if (kind == "config" or m["spec"]["model"].startswith(EXACT)) and p["peak_requested"] != m["peak_requested"]:
            bad.append(f"{name}: {p['peak_requested']} bytes are predicted, {m['peak_requested']} were requested")
        bad += [f"{name}: {p[k]} bytes are predicted of {k}, {m[k]} were" for k in ("peak_allocated", "peak_reserved")
                if m["spec"].get("model", "").startswith(WHOLLY) and not m["spec"].get("infer") and p[k] != m[k]]
        if m["card"] == MEASURED[0] and kind == "model" and not m["spec"].get("benchmark"):
            bad += [f"{name}: {k} is {errors[kind, k][-1]:.3f} % off, the limit is {limit} %"
                    for k, limit in MEASURED[1].items() if errors[kind, k][-1] > limit]
        if not held(m):
            continue
        all_of_it, reserved = held(m)
        outside = all_of_it - reserved
        if not p["context_low"] <= outside <= p["context_high"] or abs(outside - p["context"]) > DEVICE * MIB:
            bad.append(f"{name}: {p['context_low']} to {p['context_high']} bytes are predicted outside the allocator, {outside} were")
        if sum(part["usual"] for part in p["context_parts"]) != p["context"]:
            bad.append(f"{name}: the parts of the context are not {p['context']} bytes")
        holds[kind].append(abs(p["device"] - all_of_it) <= DEVICE * MIB)
        if p["peak_reserved"] == reserved and not (holds[kind][-1] and p["device_low"] <= all_of_it <= p["device_high"]):
            bad.append(f"{name}: {p['device_low']} to {p['device_high']} bytes are predicted on the device, {all_of_it} were")
    for m in searches:
        batch = predict_largest(args.program, m)
        if not LARGEST * m["largest"] <= batch <= m["largest"]:
            bad.append(f"{m['card']}, {json.dumps(m['spec'])}: batch {batch} is said to fit, {m['largest']} was the largest that ran")
    bad += [f"{kind}, {k}: an error of {sorted(e)[len(e) * 9 // 10]:.3f} %, the limit is {WITHIN[kind][k]} %"
            for (kind, k), e in errors.items() if not e or sorted(e)[len(e) * 9 // 10] > WITHIN[kind][k]]
    bad += [f"{kind}: {sum(near)} of {len(near)} runs held what was predicted within {DEVICE} MiB, it should be {HELD[kind]:.0%}"
            for kind, near in holds.items() if sum(near) < HELD[kind] * len(near)]
    print("\n".join(bad or [f"{len(runs)} runs, {len(searches)} searches"]))
    return bool(bad)


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/plimsoll")
    ap.add_argument("--pretend", type=pathlib.Path)
    ap.add_argument("files", nargs="*", type=pathlib.Path)
    ap.add_argument("--check", action="store_true")
    args = ap.parse_args()
    if args.check:
        return check(args)
    errors = {k: [] for k in ("requested", "allocated", "reserved")}
    devices = []
    print("| card, torch | model | batch | optimizer | " + " | ".join(f"{k}: predicted, measured, error" for k in errors) + " | device |")
    print("| --- | --- | ---: | --- | " + " | ".join("---:" for _ in errors) + " | ---: |")
    all_of_them = [m for path in args.files or sorted(HERE.glob("*.jsonl")) for m in read_lines(path)]
    ended = [m for m in all_of_them if m["status"] == "ok"]
    for m in ended:
        if "largest" in m or OTHERS & set(m["spec"]):
            continue
        p, cells = predict(args.program, m), []
        for k in errors:
            have, want = p["peak_" + k], m["peak_" + k]
            errors[k].append(abs(have - want) / want * 100)
            cells.append(f"{have:,} {want:,} {(have - want) / want * 100:+.2f} %")
        spec = m["spec"]
        if held(m):
            devices.append((p["device"] - held(m)[0], p["device_low"] <= held(m)[0] <= p["device_high"]))
        cells.append(f"{p['device'] / MIB:,.0f} {held(m)[0] / MIB:,.0f} MiB" if held(m) else "")
        how = ", ".join(["infer" if spec.get("infer") else spec["optimizer"],
                         *(f"{k} {spec[k]}" for k in ("dtype", "autocast", "checkpoint", "lora", "attention") if k in spec)])
        print(f"| {m['card']}, {m['torch']} | {spec.get('model') or spec['config']} | {spec['batch']} | {how} | " + " | ".join(cells) + " |")
    for k, e in errors.items():
        e.sort()
        if e:
            print(f"\n{k}: {len(e)} runs, median error {e[len(e) // 2]:.2f} %, 90 % of them within {e[len(e) * 9 // 10]:.2f} %, all within {e[-1]:.2f} %")
    if devices:
        print(f"\ndevice: {sum(abs(off) <= DEVICE * MIB for off, _ in devices)} of {len(devices)} runs within {DEVICE} MiB,",
              f"{sum(inside for _, inside in devices)} in the range")
    print("\n| card, torch | model | fraction | batch that fits: predicted | largest that ran |\n| --- | --- | ---: | ---: | ---: |")
    for m in ended:
        if "largest" in m:
            print(f"| {m['card']}, {m['torch']} | {m['spec'].get('model') or m['spec']['config']} | {m['fraction']:.4f} | {predict_largest(args.program, m)} | {m['largest']} |")
    print_workspaces([m for m in ended if "workspace" in m["spec"]], read_lines(args.pretend) if args.pretend else [])
    print_times(args.program, [m for m in ended if "steps" in m["spec"]])
    print_contexts(args.program, ended)
    print_stages([m for m in ended if "context" in m["spec"]])
    return 0


sys.exit(main())
