#!/usr/bin/env python3
"""Lays plimsoll's predictions beside what collect.py measured, as a table for docs/accuracy.md.

    python3 tests/golden/gpu/compare.py [--program build/plimsoll] [FILE.jsonl...]     default: every FILE.jsonl beside it
"""
import argparse
import json
import pathlib
import subprocess

HERE = pathlib.Path(__file__).resolve().parent


def predict(program, m):
    spec = m["spec"]
    args = [program, "estimate", spec["model"], "--batch", str(spec["batch"]), "--torch", m["torch"], "--gpu", m["card"], "--json"]
    args += ["--infer"] if spec.get("infer") else ["--optimizer", spec["optimizer"]]
    for key in ("loss", "dtype"):
        args += ["--" + key, spec[key]] if key in spec else []
    return json.loads(subprocess.run(args, stdout=subprocess.PIPE, check=False).stdout)["memory"]


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/plimsoll")
    ap.add_argument("files", nargs="*", type=pathlib.Path)
    args = ap.parse_args()
    errors = {k: [] for k in ("requested", "allocated", "reserved")}
    print("| card, torch | model | batch | optimizer | " + " | ".join(f"{k}: predicted, measured, error" for k in errors) + " |")
    print("| --- | --- | ---: | --- | " + " | ".join("---:" for _ in errors) + " |")
    for path in args.files or sorted(HERE.glob("*.jsonl")):
        for m in map(json.loads, path.read_text().splitlines()):
            if m["status"] != "ok":
                continue
            p, cells = predict(args.program, m), []
            for k in errors:
                have, want = p["peak_" + k], m["peak_" + k]
                errors[k].append(abs(have - want) / want * 100)
                cells.append(f"{have:,} {want:,} {(have - want) / want * 100:+.2f} %")
            spec = m["spec"]
            how = "infer" if spec.get("infer") else spec["optimizer"] + (", " + spec["dtype"] if "dtype" in spec else "")
            print(f"| {m['card']}, {m['torch']} | {spec['model']} | {spec['batch']} | {how} | " + " | ".join(cells) + " |")
    for k, e in errors.items():
        e.sort()
        if e:
            print(f"\n{k}: {len(e)} runs, median error {e[len(e) // 2]:.2f} %, 90 % of them within {e[len(e) * 9 // 10]:.2f} %, all within {e[-1]:.2f} %")


main()
