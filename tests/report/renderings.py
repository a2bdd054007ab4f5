#!/usr/bin/env python3
"""Renders reports of every kind in every format, and compares what the formats say.

    renderings.py PLIMSOLL [DATA]

 * What Markdown says stands in the text, too, and its tables and fences are whole.
 * What is left out of an answer is in every format, with --quiet, too.
 * Names from files cannot become markup.
 * No line of text is wider than the page, and the first is not empty.
"""
import csv
import io
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

PROGRAM = pathlib.Path(sys.argv[1]).resolve()
DATA = pathlib.Path(sys.argv[2] if len(sys.argv) > 2 else pathlib.Path(__file__).parent.parent / "data")
NOTED = "estimate gpt2 --dp 4 --strategy fsdp2".split()
problems = []


def check(good, what):
    if not good:
        problems.append(what)


def ask(words, *options):
    return subprocess.run([PROGRAM, *words, *options], capture_output=True, text=True, encoding="utf-8")


def plain(markdown):
    """A cell or a line as a reader sees it."""
    text = re.sub(r"\*\*|&nbsp;", lambda m: " " if m[0] == "&nbsp;" else "", markdown)
    return re.sub(r"\\(.)", r"\1", text).strip()


def cells(row):
    return [plain(cell) for cell in re.split(r"(?<!\\)\|", row)[1:-1]]


def squeeze(text):
    return re.sub(r"\s+", " ", text)


def read_markdown(text, name):
    """The cells of its tables and its other lines, outside fences."""
    said, columns, fenced = [], 0, False
    for line in text.splitlines():
        if line == "```":
            fenced = not fenced
        elif fenced:
            continue
        elif line.startswith("|"):
            row = cells(line)
            check(columns in (0, len(row)), f"{name}: a row of {len(row)} cells in a table of {columns}: {line}")
            columns = len(row)
            if not re.fullmatch(r"[|: -]+", line):
                said += row
            continue
        else:
            check(not re.search(r"(?<!\\)[<>`]", re.sub(r"^> ", "", line)), f"{name}: markup: {line}")
            said.append(plain(re.sub(r"^### |^> \*\*Note:\*\* |\\$", "", line)))
        columns = 0
    check(not fenced, f"{name}: a fence is open")
    return [s for s in said if s]


def check_markdown(words):
    name = " ".join(str(word) for word in words)
    text, markdown = ask(words, "--width", "1000"), ask(words, "--md")
    check(text.returncode == markdown.returncode, f"{name}: exit codes {text.returncode}, {markdown.returncode}")
    whole = squeeze(text.stdout)
    said = read_markdown(markdown.stdout, name)
    check(said, f"{name}: Markdown is empty: {markdown.stderr}")
    for one in said:
        check(squeeze(one) in whole, f"{name}: not in the text: {one!r}")


def check_note():
    note = json.loads(ask(NOTED, "--json").stdout)["model"]["note"]
    check(note.startswith("Not compared"), f"note: {note}")
    for options in [], ["--md"], ["--quiet"], ["--quiet", "--md"]:
        out = squeeze(ask(NOTED, "--width", "1000", *options).stdout.replace("\\", ""))
        check(note in out, f"{options}: the note is missing: {out[-300:]}")
    rows = list(csv.DictReader(io.StringIO(ask(["fit", *NOTED[1:], "--gpu", "t4"], "--csv").stdout)))
    check(rows and all(row["note"] for row in rows), "fit --csv has no note")


def check_names(folder):
    """A file whose name is markup."""
    path = folder / "a|b*c*<img src=x> `d` _e_ [f](g).onnx"
    shutil.copy(next(iter(sorted(DATA.glob("**/*.onnx")))), path)
    for command in ["info"], ["estimate"], ["layers"]:
        check_markdown([*command, path])


def check_begin(words):
    for options in [], ["--quiet"], ["--quiet", "--md"]:
        text = ask(words, *options).stdout
        check(not text.startswith("\n"), f"{' '.join(map(str, words))} {options}: begins with an empty line")


def check_width(words):
    for width in WIDTHS:
        lines = ask(words, "--width", str(width)).stdout.splitlines()
        wide = [line for line in lines if len(line) > width]
        check(lines, f"{' '.join(map(str, words))} --width {width}: no text")
        check(not wide, f"{' '.join(map(str, words))} --width {width}: {len(wide)} wider lines, such as {wide[:1]}")


WIDTHS = 40, 47, 54, 61, 80, 100

COMMANDS = """
estimate resnet50 --gpu t4
estimate gpt2 --dp 4 --strategy fsdp2
estimate lenet5 --explain time --gpu t4
estimate lenet5 --explain batch
estimate lenet5 --explain segments
layers alexnet
layers lenet5 alexnet
info resnet50
compare alexnet vgg16 --gpu t4
diff resnet50 resnet34
fit lenet5 --gpu t4,a100
fit --serve gpt2 --gpu t4,a100
gpus --for lenet5
serve gpt2 --gpu t4
gpus
ops
engines
models nosuch
size 256x3x100x100
size 2147483647x2147483647
"""

# As wide as tables get: all cards, long names, numbers that no card has.
WIDE = """
fit resnet50
fit resnet50 --vram 4000TiB
fit gpt2 --find seq --gpu t4,gh200-141g
fit --serve llama-3.1-8b --gpu t4,a100,h100
compare efficientnet_b0 mobilenet_v3_small --batch 100000000 --gpu t4
estimate resnet50 --batch 1000000000 --vram 1GiB
estimate lenet5 --explain batch --batch 1000000000 --gpu t4
estimate gpt2 --dp 512 --strategy fsdp2 --rank all
layers resnet18 --batch 1000000000
diff resnet50 resnet34 --batch 1000000
serve llama-3.1-8b --context 100000 --concurrency 100000 --gpu t4
models
losses
optimizers
"""

FILES = "snapshots/shared.pickle", "traces/gap.json"
MESSAGE = """torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 23.64 GiB of which
1.13 GiB is free. Process 4242 has 22.50 GiB memory in use. Of the allocated memory 17.28 GiB is allocated by PyTorch, and 4.72 GiB
is reserved by PyTorch but unallocated."""


def main():
    for line in COMMANDS.strip().split("\n"):
        check_markdown(line.split())
        check_begin(line.split())
        check_width(line.split())
    for line in WIDE.strip().split("\n"):
        check_width(line.split())
    for name in FILES:
        check_markdown(["replay", DATA / name])
        check_width(["replay", DATA / name])
    check_note()
    with tempfile.TemporaryDirectory() as folder:
        check_names(pathlib.Path(folder))
        message = pathlib.Path(folder, "message.txt")
        message.write_text(MESSAGE.replace("\n", " "), encoding="utf-8")
        check_markdown(["oom", message])
        check_width(["oom", message])
    print("\n".join(problems) or "what Markdown says, the text says, as wide as the page; notes are in every format")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
