#!/usr/bin/env python3
"""Compares `plimsoll serve --engine sglang` with what SGLang said when it started (sglang.txt).

    tests/golden/serve/logs.py PROGRAM

The pool of tokens lies between its bounds, and within 5 % of its usual size.
"""
import json
import pathlib
import re
import subprocess
import sys

NEAR = 0.05


def cases():
    text = (pathlib.Path(__file__).parent / "sglang.txt").read_text(encoding="utf-8")
    return [[field.strip() for field in line.split("|")] for line in text.splitlines() if line[:1] not in "#"]


def ask(program, command):
    out = subprocess.run([program, "serve", *command.split(), "--json"], capture_output=True, text=True, check=False)
    return json.loads(out.stdout)


def check(answer, tokens, gib, off):
    pool = next(p for p in answer["parts"] if p["part"] == "KV cache")
    low, usual, high = (pool[bound] / 2 ** 30 for bound in ("low", "usual", "high"))
    if not low - float(off) <= float(gib) <= high + float(off) or abs(usual - float(gib)) > NEAR * float(gib):
        return f"{low:.2f}-{high:.2f} GiB, usually {usual:.2f}, not {gib}"
    said = re.search(r"max_total_num_tokens=(\d+) to (\d+)", answer["says"][0])
    if tokens != "-" and not int(said[1]) <= int(tokens) <= int(said[2]):
        return f"{said[0]}, not {tokens}"
    return None


def main():
    bad = [f"{command}: {problem}" for command, *said in cases()
           if (problem := check(ask(sys.argv[1], command), *said))]
    print("\n".join(bad) or f"{len(cases())} pools as SGLang said")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
