#!/usr/bin/env python3
"""Writes the tables of families, networks and denoisers into docs/models.md, or checks it: table.py [--update]"""

from __future__ import annotations

import json
import pathlib
import re
import sys
from collections import Counter
from typing import Dict, Iterator, List, Tuple

ROOT = pathlib.Path(__file__).resolve().parents[2]
GOLDEN = ROOT / "tests" / "golden" / "families"
sys.path.insert(0, str(GOLDEN))
import denoisers  # noqa: E402
from steps import CLASSES  # noqa: E402

PAGE = ROOT / "docs" / "models.md"


def runs(name: str) -> Iterator[str]:
    """Cases of recorded training steps; golden.steps, golden.networks and golden.denoisers hold that they are equal to the byte."""
    for line in (GOLDEN / name).read_text().splitlines():
        if not line.startswith("#"):
            yield line.split()[0]


def steps() -> Counter[Tuple[str, str]]:
    """How many of each type and class."""
    return Counter(CLASSES[case.rsplit("_", 1)[0]][:2] for case in runs("steps.txt"))


def texts(task: str = "") -> Iterator[Tuple[Dict[str, str], int]]:
    """The heads of texts, and how many graphs of each were equal.  No task: those of transformers."""
    for path in sorted((ROOT / "src" / "families").glob("*.fam")):
        head = dict(re.findall(r"^(family|class|task|made) (.*)$", path.read_text(), flags=re.M))
        if head["task"] != task if task else ":" in head["family"]:
            continue
        yield {**head, "made": head["made"].split(",")[0]}, json.loads((GOLDEN / f"{path.stem}.json").read_text())["equal"]


def families() -> Iterator[str]:
    yield "| model type | class | called as | learnt from | graphs equal | steps equal |"
    yield "| --- | --- | --- | --- | --- | --- |"
    known = steps()
    yield from sorted(f"| `{h['family']}` | `{h['class']}` | {h['task']} | {h['made']} | {equal} | {known[h['family'], h['class']]} |"
                      for h, equal in texts())


def networks() -> Iterator[str]:
    yield "| name | class | parameters | learnt from | graphs equal | steps equal |"
    yield "| --- | --- | --- | --- | --- | --- |"
    counts = {f"{library}:{name}": int(count) for library, name, count in
              re.findall(r'NETWORK\("(\w+)", "(\w+)", (\d+)', (ROOT / "src" / "zoo" / "networks.def").read_text())}
    known = Counter([*runs("networks.txt"), *runs("detectors.txt")])
    yield from sorted(f"| `{h['family']}` | `{h['class']}` | {counts[h['family']]:,} | {h['made']} | {equal} | "
                      f"{known[h['family']]} |" for h, equal in texts("network"))


def of_diffusers() -> Iterator[str]:
    yield "| class | learnt from | graphs equal | steps equal |"
    yield "| --- | --- | --- | --- |"
    known = Counter(denoisers.text_of(name) for name in runs("denoisers.txt"))
    for h, equal in texts("denoiser"):
        name = h["family"].partition(":")[2]
        yield f"| `{name}` | {h['made']} | {equal} | {known[name] or '-'} |"


def written(page: str, name: str, rows: Iterator[str]) -> str:
    begin, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->\n"
    return page[:page.index(begin) + len(begin)] + "".join(f"{row}\n" for row in rows) + page[page.index(end):]


def main(words: List[str]) -> int:
    page = PAGE.read_text()
    now = written(written(written(page, "families", families()), "networks", networks()), "denoisers", of_diffusers())
    if words == ["--update"]:
        PAGE.write_text(now)
    elif now != page:
        print(f"{PAGE.relative_to(ROOT)}: the tables of families are not those of tools/families/table.py --update")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
