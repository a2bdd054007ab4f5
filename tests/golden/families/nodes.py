#!/usr/bin/env python3
"""Builds each family at the configurations of CLASS.json and compares parameters and nodes with what transformers had there.

    nodes.py FAMILY_NODES       the program of tests/families

tools/families/learn.py recorded them: `made` says with which versions, `equal` how many configurations that nobody chose were equal
then, line for line; of two of them `crc32` is that of the lines.
"""
import json
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[2]

sys.path.insert(0, str(ROOT / "tools" / "families"))
import lines  # noqa: E402


def main(program):
    wrong = tried = 0
    for path in sorted(HERE.glob("*.json")):
        for run in json.loads(path.read_text())["runs"]:
            built, why = lines.built(program, ROOT / "src" / "families" / f"{path.stem}.fam", run["config"], run["how"])
            tried += 1
            if why or (len(built), lines.crc32(built)) != (run["lines"], run["crc32"]):
                wrong += 1
                print(path.stem, why or f"{len(built)} lines, not {run['lines']}, or others", run["how"])
    print(f"{tried} graphs, {wrong} are not what transformers has")
    return 1 if wrong or not tried else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
