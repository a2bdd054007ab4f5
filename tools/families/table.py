#!/usr/bin/env python3
"""Writes the table of families into docs/models.md, or checks it: table.py [--update]"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from typing import Dict, List

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "families"
sys.path.insert(0, str(GOLDEN))
from steps import CLASSES  # noqa: E402

PAGE = ROOT / "docs" / "models.md"
BEGIN, END = "<!-- families -->\n", "<!-- end of families -->\n"


def steps() -> Dict[str, int]:
    """Recorded training steps by class; golden.steps holds that they are equal to the byte."""
    out: Dict[str, int] = {}
    for line in (GOLDEN / "steps.txt").read_text().splitlines():
        if not line.startswith("#"):
            _, name, _ = CLASSES[line.split()[0].rsplit("_", 1)[0]]
            out[name] = out.get(name, 0) + 1
    return out


def row(path: pathlib.Path, runs: Dict[str, int]) -> str:
    head = dict(re.findall(r"^(family|class|task|made) (.*)$", path.read_text(), flags=re.M))
    proof = json.loads((GOLDEN / f"{path.stem}.json").read_text())
    version = head["made"].split(",")[0]
    return f"| `{head['family']}` | `{head['class']}` | {head['task']} | {version} | {proof['equal']} | {runs.get(head['class'], 0)} |"


def table() -> str:
    runs = steps()
    rows: List[str] = sorted(row(p, runs) for p in (ROOT / "src" / "families").glob("*.fam"))
    return "\n".join(["| model type | class | called as | learnt from | graphs equal | steps equal |",
                      "| --- | --- | --- | --- | --- | --- |", *rows]) + "\n"


def main(words: List[str]) -> int:
    page = PAGE.read_text()
    begin, end = page.index(BEGIN) + len(BEGIN), page.index(END)
    now = page[:begin] + table() + page[end:]
    if words == ["--update"]:
        PAGE.write_text(now)
    elif now != page:
        print(f"{PAGE.relative_to(ROOT)}: the table of families is not that of tools/families/table.py --update")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
