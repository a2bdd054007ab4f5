#!/usr/bin/env python3
"""steps.py -- what steps took on a card, and what `plimsoll estimate` says of them.

    python3 tests/golden/time/steps.py [--program build/plimsoll] [--check] [--update] [FILE.jsonl...]

Default: h100.jsonl, of which README.md says how it was made. Prints a table, largest error first. --check fails where the
estimates are worse than LIMITS; --update writes the table into docs/time.md.
"""
import argparse
import json
import pathlib
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]
CONFIGS = HERE.parent / "gpu" / "configs"
PAGE = ROOT / "docs" / "time.md"
# Per cent: of the measured time; the range of its estimate.  The last: steps in it.
LIMITS = {"median": 6, "nine_in_ten": 12, "range": 25, "inside": 90}


def command_of(program, step):
    spec = step["spec"]
    config = CONFIGS / f"{spec['model']}.json"
    args = [program, "estimate", str(config) if config.exists() else spec["model"], "--batch", str(spec["batch"])]
    args += ["--gpu", step["card"], "--torch", step["torch"]]
    args += ["--infer"] if spec.get("infer") else ["--optimizer", spec["opt"]]
    for key in ("seq", "autocast", "dtype"):
        args += [f"--{key}", str(spec[key])] if key in spec else []
    return [*args, "--json"]


def estimate(program, step):
    done = subprocess.run(command_of(program, step), stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)["time"]


def error_of(step, time):
    return 100 * (time["usual_ms"] / step["ms"] - 1)


def how_of(spec):
    """ "8 x 1024, autocast bf16, adamw" """
    size = str(spec["batch"]) + (f" x {spec['seq']}" if "seq" in spec else "")
    numbers = f"autocast {spec['autocast']}" if "autocast" in spec else spec.get("dtype", "fp32")
    return f"{size}, {numbers}, {'inference' if spec.get('infer') else spec['opt']}"


def table_of(both):
    lines = ["| model | batch, numbers, step | measured, ms | issued in, ms | estimate, ms | range, ms | error |",
             "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for step, t in sorted(both, key=lambda x: -abs(error_of(*x))):
        lines.append(f"| {step['spec']['model']} | {how_of(step['spec'])} | {step['ms']:.1f} | {step['host_ms']:.1f} | "
                     f"{t['usual_ms']:.1f} | {t['low_ms']:.1f}-{t['high_ms']:.1f} | {error_of(step, t):+.1f} % |")
    return lines


def figures_of(both):
    """As in LIMITS. Nine in ten: the error that at most a tenth of the steps exceeds."""
    sizes = sorted(abs(error_of(*x)) for x in both)
    width = max(max(1 - t["low_ms"] / t["usual_ms"], t["high_ms"] / t["usual_ms"] - 1) for _, t in both)
    inside = sum(t["low_ms"] <= step["ms"] <= t["high_ms"] for step, t in both)
    return {"median": statistics.median(sizes), "nine_in_ten": sizes[len(sizes) - 1 - len(sizes) // 10],
            "range": 100 * width, "inside": 100 * inside / len(both)}


def worse(figures):
    for name, limit in LIMITS.items():
        bad = figures[name] < limit if name == "inside" else figures[name] > limit + 1e-9
        if bad:
            yield f"{name}: {figures[name]:.1f} %, the limit is {limit} %"


def write_table(lines):
    begin, end = "<!-- h100: begin -->", "<!-- h100: end -->"
    before, rest = PAGE.read_text(encoding="utf-8").split(begin, 1)
    PAGE.write_text(before + "\n".join([begin, *lines, end]) + rest.split(end, 1)[1], encoding="utf-8")


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--program", default="build/plimsoll")
    ap.add_argument("--check", action="store_true")
    ap.add_argument("--update", action="store_true")
    ap.add_argument("files", nargs="*", type=pathlib.Path)
    args = ap.parse_args()
    steps = [json.loads(line) for path in args.files or [HERE / "h100.jsonl"] for line in path.read_text().splitlines()]
    both = [(step, estimate(args.program, step)) for step in steps]
    figures = figures_of(both)
    lines = [*table_of(both), "", f"{len(both)} steps: median {figures['median']:.1f} %, nine in ten within "
             f"{figures['nine_in_ten']:.1f} %, {figures['inside']:.0f} % in a range of at most {figures['range']:.0f} % either way"]
    print("\n".join(lines))
    if args.update:
        write_table(lines)
    bad = list(worse(figures)) if args.check else []
    print("\n".join(bad), end="\n" if bad else "")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main())
