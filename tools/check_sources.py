#!/usr/bin/env python3
"""check_sources.py -- a stranger can open what the tree cites.

    check_sources.py [--program PLIMSOLL]

 * a document of ours that is named (docs/..., another folder of the tree, NAME.md)
   exists, and so do the links of our pages;
 * a section of docs/sources that is cited ("docs/sources/cards.md 2") exists;
 * nothing cites a document by the name of "facts": those were notes outside the tree;
 * every row of every list that the program prints has a source, and says what it is.

Prints one line a violation; exit 1 if there is one.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
FOLDERS = ("bench", "cli", "cmake", "docs", "examples", "include", "src", "tests", "tools")
TEXT = {".c", ".h", ".def", ".cpp", ".py", ".sh", ".md", ".txt", ".cmake", ".csv"}
RECORDED = re.compile(r"tests/(golden|data|fuzz)/.*(?<!\.md)(?<!\.py)$")  # data, not prose
LISTS = ("ops", "optimizers", "profiles", "models", "formats", "gpus", "engines", "strategies", "adapters", "quantizations",
         "loops", "losses")

PAGE = re.compile(r"[\w./:<>*{}$+-]*\.md\b")
SECTION = re.compile(r"(?:docs/sources/)?([\w-]+\.md) (\d+)((?:(?:, | and | to )\d+(?![\w.]))*)")
LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")
FACTS = re.compile(r"\bfacts?[ :(/]+[\w-]*\.md\b|\bfacts \d+(\.\d+)?\b")


def sources():
    for path in sorted([*ROOT.glob("*.md"), *(p for f in FOLDERS for p in (ROOT / f).rglob("*"))]):
        name = path.relative_to(ROOT).as_posix()
        if path.is_file() and path.suffix in TEXT and not RECORDED.fullmatch(name) \
                and path != pathlib.Path(__file__).resolve():
            yield name, path


def section_numbers(page):
    return {int(n) for n in re.findall(r"^## (\d+)\.", page.read_text(encoding="utf-8"), re.M)}


def check_text(name, path, pages, sections):
    text = path.read_text(encoding="utf-8")
    at = lambda m: f"{name}:{text.count(chr(10), 0, m.start()) + 1}"
    for m in PAGE.finditer(text):
        page = m.group()
        if "://" in page or "NAME" in page or re.search(r"[<>*{}$]|^\.md$", page):
            continue
        if path.suffix == ".py" and text[m.start() - 1:m.start()] == text[m.end():m.end() + 1] == '"':
            continue  # a file that the script makes or opens
        first = page.split("/")[0]
        exists = (ROOT / page).is_file() or (path.parent / page).is_file()
        if "/" not in page:
            exists = exists or page in pages
        elif first not in FOLDERS and not first.startswith("."):
            exists = True  # somebody else's
        if not exists:
            yield f"{at(m)}: there is no '{page}'"
    for m in SECTION.finditer(text):
        cited = [int(m[2]), *map(int, re.findall(r"\d+", m[3]))]
        missing = [n for n in cited if m[1] in sections and n not in sections[m[1]]]
        if missing:
            yield f"{at(m)}: docs/sources/{m[1]} has no section {missing[0]}"
    for m in FACTS.finditer(text):
        yield f"{at(m)}: '{m.group()}' is not in the tree: cite docs/sources, or where it was read"
    if path.suffix == ".md":
        for m in LINK.finditer(text):
            if "://" not in m[1] and "NAME" not in m[1] and not (path.parent / m[1]).exists():
                yield f"{at(m)}: the link to '{m[1]}' leads nowhere"


def check_lists(program):
    for name in LISTS:
        run = subprocess.run([program, name, "--json"], check=True, capture_output=True, text=True)
        for row in json.loads(run.stdout)[name]:
            for field in ("src", "doc"):
                if not row.get(field, field == "doc"):  # cards are their own description
                    yield f"plimsoll {name}: '{row['name']}' has no {field}"


def main():
    program = sys.argv[2] if sys.argv[1:2] == ["--program"] and len(sys.argv) == 3 else None
    if sys.argv[1:] and not program:
        sys.exit(__doc__)
    files = list(sources())
    pages = {pathlib.PurePath(name).name for name, _ in files}
    sections = {p.name: section_numbers(p) for p in (ROOT / "docs" / "sources").glob("*.md")
                if p.name != "README.md"}
    problems = [line for name, path in files for line in check_text(name, path, pages, sections)]
    if program:
        problems += check_lists(program)
    for problem in problems:
        print(problem)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
