#!/usr/bin/env python3
"""house.py -- figures of the source tree: how long functions are, how full rooms, how much is written by hand.

    tools/house.py [BUILD] [--at COMMIT]     with a build, circles of files, too (tools/check_symbols.py)

Lines are those of code: not empty, and no comment.
"""
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
FUNCTION = re.compile(r"^(?!struct|enum|union|typedef|#)[A-Za-z_][^;={}]*\)\s*\{\n(.*?)^\}", re.M | re.S)
MARKED = re.compile(r"(?:/\*|<!--|#) figures: .*?end of figures", re.S)  # what tools/figures.py writes


def blank_comments(text):
    return re.sub(r"/\*.*?\*/", lambda m: re.sub(r"[^\n]", " ", m.group()), text, flags=re.S)


def count_lines(text):
    return sum(1 for line in text.splitlines() if line.strip())


def read(root, pattern):
    return {path: path.read_text(encoding="utf-8") for path in sorted(root.glob(pattern))}


def functions(texts):
    return sorted(count_lines(m.group()) for text in texts for m in FUNCTION.finditer(blank_comments(text)))


def share(numbers, part):
    return numbers[min(len(numbers) - 1, int(len(numbers) * part))]


def figures(root):
    sources = {**read(root, "src/**/*.c"), **read(root, "src/**/*.h"), **read(root, "cli/*.[ch]")}
    lengths = functions(text for path, text in sources.items() if path.suffix == ".c")
    yield "functions", f"{len(lengths)}: median {statistics.median(lengths):.0f}, p90 {share(lengths, .9)}, " \
                       f"p99 {share(lengths, .99)}, longest {lengths[-1]} lines"
    code = sum(count_lines(blank_comments(text)) for text in sources.values())
    asserts = sum(len(re.findall(r"\b(?:plim_assert|assert|static_assert|_Static_assert)\(", text)) for text in sources.values())
    yield "code", f"{code} lines of C in {len(sources)} files"
    yield "asserts", f"{asserts}, {1000 * asserts / code:.1f} in 1,000 lines"
    folders = {}
    for path in sources:
        folders.setdefault(path.parent, []).append(path)
    largest = sorted(folders.items(), key=lambda item: -len(item[1]))[:5]
    yield "files in a folder", ", ".join(f"{folder.relative_to(root)} {len(files)}" for folder, files in largest)
    by_hand = {"src/report": "".join(text for path, text in sources.items() if path.parent.name == "report"),
               "src/answers": "".join(read(root, "src/answers/*.def").values()),
               "src/live": "".join(read(root, "src/live/*_print.c").values())}
    for name in "include/plimsoll.h", "include/plimsoll_vgpu.h", "include/plimsoll_live.h", "python/plimsoll/_records.py", "python/plimsoll/_results.py", "docs/json.md":
        by_hand[name] = (root / name).read_text(encoding="utf-8")
    lines = {name: count_lines(blank_comments(MARKED.sub("", text))) for name, text in by_hand.items()}
    yield "written by hand", f"{sum(lines.values())} lines: " + ", ".join(f"{name} {n}" for name, n in lines.items())
    reports = by_hand["src/report"] + by_hand["src/live"]
    yield "getters", f"{len(re.findall(r'^PLIM_GETTER', reports, re.M))}, and " \
                     f"{len(re.findall(r'PLIM_IN_(?:TEXT|DATA|BOTH)', reports))} columns in reports"


def circles(build):
    done = subprocess.run([sys.executable, str(ROOT / "tools/check_symbols.py"), build], stdout=subprocess.PIPE, text=True)
    return sum("circle" in line for line in done.stdout.splitlines())


def main():
    arguments = sys.argv[1:]
    commit = arguments.pop(arguments.index("--at") + 1) if "--at" in arguments else None
    build = [each for each in arguments if not each.startswith("--")]
    with tempfile.TemporaryDirectory() as folder:
        root = ROOT
        if commit:
            root = pathlib.Path(folder)
            tree = subprocess.run(["git", "-C", str(ROOT), "archive", commit], stdout=subprocess.PIPE, check=True).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=tree, check=True)
        for name, value in figures(root):
            print(f"{name:18} {value}")
    if build:
        print(f"{'circles':18} {circles(build[0])}")


if __name__ == "__main__":
    main()
