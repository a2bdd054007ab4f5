#!/usr/bin/env python3
"""check_promises.py -- checks that a test holds each promise of docs/robustness.md.

    check_promises.py BUILD

A promise is a paragraph of "What is promised" that begins with a sentence in bold. Before the next promise a line says
"Held by `TEST`, `TEST`"; every test named there is one that ctest runs (`fuzz.*` stands for all that match). Prints one
line a violation; exit 1 if there is one.
"""
import fnmatch
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "robustness.md"
UNIT = ROOT / "tests" / "unit"


def tests(build):
    """The names of all tests; unit tests also where cmocka is missing and ctest has none."""
    shown = subprocess.run(["ctest", "--test-dir", build, "--show-only=json-v1"], stdout=subprocess.PIPE, check=True)
    return [t["name"] for t in json.loads(shown.stdout)["tests"]] + \
        [f"unit.{path.stem[len('test_'):]}" for path in UNIT.glob("test_*.c")]


def promises(text):
    """Each promise and the tests that hold it."""
    section = re.search(r"^## What is promised\n(.*?)^## ", text, re.M | re.S).group(1)
    for part in re.split(r"^(?=\*\*)", section, flags=re.M)[1:]:
        held = re.search(r"^Held by (.*?)(?:\n\n|\Z)", part, re.M | re.S)
        yield re.match(r"\*\*(.*?)\*\*", part, re.S).group(1), re.findall(r"`([^`]+)`", held.group(1)) if held else []


def main(build):
    known, bad = tests(build), []
    found = list(promises(PAGE.read_text(encoding="utf-8")))
    for promise, names in found:
        if not names:
            bad.append(f"'{promise}' names no test that holds it")
        bad += [f"'{promise}' is held by '{name}', which ctest does not have" for name in names
                if not fnmatch.filter(known, name)]
    if not found:
        bad.append("there is no promise")
    for line in bad:
        print(f"{PAGE.relative_to(ROOT)}: {line}")
    return bool(bad)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
