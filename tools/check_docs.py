#!/usr/bin/env python3
"""check_docs.py -- runs the examples of the documentation and compares their output.

    tools/check_docs.py [--program build/plimsoll] [--run] [--update] FILE...

In a page (.md) the examples are the fenced blocks marked ```console; a
transcript (.txt) is one such block from its first line to its last.  Blocks
marked ```console run need PyTorch: only --run runs them, and nothing else; those marked
```console run NAME need the Python package NAME too, and are left if there is
none.  In a block

    $ plimsoll ...   is run (a shell runs the line: pipes and > work; a
                     backslash at its end continues it on the next line)
    $ echo ...       is run too: it writes a file for the next command
    $ sed ...        is run too: it changes one
    $ python ...     is run where PyTorch is
    $ anything else  is not run, and its output is not compared
    # exit N         after a command: it must exit with N (without it: 0)
    ...              alone on a line: any lines, or none
    ## text          only in a transcript: a comment, kept unchanged

and everything else is the output of the command, stdout and stderr together.
Trailing spaces and empty lines at the end of an output are ignored.

Each file runs in a new directory with the contents of tests/data:
tests/data/vgg.onnx is called vgg.onnx there.  A command may write to it.
README.md runs in an empty one: whoever reads it has no other files.
$SOURCE is the source tree.  In a page with `plimsoll top` the GPUs are those of a machine
that does not exist: tests/live/scenarios/r550.txt.

With --run the directory has examples/ and what the page shows: a ```python
block whose first line is a comment with a file name ("# train.py") is written
to that file before the blocks after it run.  `python` is
PLIMSOLL_TEST_PYTHON, or the Python that runs this file, and finds the package
plimsoll in the source tree; if it has no CPU build
of PyTorch 2.13, which the transcripts name, the exit status is 77: skipped.

--update writes the output of the commands into the file instead of comparing;
outputs that already match (including "...") are left unchanged.
Read the diff.
"""

import argparse
import functools
import os
import pathlib
import re
import subprocess
import shlex
import sys
import tempfile
from dataclasses import dataclass, field

ROOT = pathlib.Path(__file__).resolve().parent.parent
MACHINE = "machine"  # the folder that `plimsoll top` takes for /
EXIT = re.compile(r"# exit (\d+)$")
SHOWN = re.compile(r"# ([\w.-]+\.py)$")
TIMEOUT_S = 120
TIMEOUT_RUN_S = 300  # the first one builds the shim
TORCH = "2.13"
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable


@dataclass
class Item:
    """A command and its answer, or lines that are kept as they are."""
    line: int
    command: list = field(default_factory=list)  # source lines, with "$ "
    answer: list = field(default_factory=list)   # without "# exit N"
    exit: int = 0

    def is_run(self, torch):
        return bool(self.command) and self.shell().split(None, 1)[0] in (
            "plimsoll", "echo", "sed", *(["python"] if torch else []))

    def shell(self):
        return "\n".join(self.command)[2:]


def split_items(lines, first_line, comments):
    """Cuts a block into items."""
    items, i = [], 0
    while i < len(lines):
        item = Item(first_line + i)
        if lines[i].startswith("$ "):
            item.command.append(lines[i])
            while lines[i].endswith("\\") and i + 1 < len(lines):
                i += 1
                item.command.append(lines[i])
            i += 1
        while i < len(lines) and not lines[i].startswith("$ "):
            if comments and lines[i].startswith("##") and item.command:
                break
            match = EXIT.match(lines[i]) if item.command else None
            if match:
                item.exit = int(match.group(1))
            else:
                item.answer.append(lines[i])
            i += 1
        items.append(item)
    return items


def trimmed(lines):
    lines = [line.rstrip() for line in lines]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def matches(want, got):
    """Lines against lines, "..." standing for any number of them."""
    reach = {0}  # indices into got that the lines of want so far can end at
    for line in want:
        if line == "...":
            reach = set(range(min(reach), len(got) + 1)) if reach else reach
        else:
            reach = {i + 1 for i in reach if i < len(got) and got[i] == line}
    return len(got) in reach


def run(item, program, directory, torch):
    env = {
        "PATH": f"{program.parent}:{os.environ.get('PATH', '/usr/bin:/bin')}",
        "HOME": str(directory), "LC_ALL": "C", "TERM": "dumb", "COLUMNS": "80", "NO_COLOR": "1",
        "HF_HUB_OFFLINE": "1",  # the answer does not depend on the network
        "PLIMSOLL_PYTHON": "none",  # whatever libraries the Python of this machine has
        "SOURCE": str(ROOT),  # for what compares the program with a file of the tree
    }
    if (directory / MACHINE).exists():
        env["PLIMSOLL_ROOT"] = str(directory / MACHINE)
        env["PLIMSOLL_NVML"] = str(program.parent / "nvml" / "nvml-550.so")
        env["PLIMSOLL_SCENARIO"] = str(ROOT / "tests" / "live" / "scenarios" / "r550.txt")
    if torch:
        env["PATH"] = f"{directory / 'bin'}:{env['PATH']}"
        env["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH")]))
        env["PLIMSOLL_LIBRARY"] = str(program.parent / "libplimsoll.so")
        env["XDG_CACHE_HOME"] = (os.environ.get("XDG_CACHE_HOME") or
                                 os.path.expanduser("~/.cache"))  # where the shim is kept
    # The sanitizers' own settings are part of a build, not of an example.
    env.update({k: v for k, v in os.environ.items() if k.endswith("SAN_OPTIONS")})
    done = subprocess.run(["/bin/sh", "-c", item.shell()], cwd=directory, env=env,
                          stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT,
                          timeout=TIMEOUT_RUN_S if torch else TIMEOUT_S, check=False)
    return trimmed(done.stdout.decode("utf-8", "replace").split("\n")), done.returncode


def show(path, item, got, code):
    print(f"{path}:{item.line}: {item.command[0]}")
    if code != item.exit:
        print(f"    exit {code}, expected {item.exit}")
    want = trimmed(item.answer)
    if not matches(want, got):
        print("    expected:")
        for line in want:
            print(f"    | {line}")
        print("    printed:")
        for line in got:
            print(f"    | {line}")


def check_block(path, lines, first_line, program, directory, update, torch):
    """Returns (number of failures, the block's lines as they should be)."""
    failed, out = 0, []
    for item in split_items(lines, first_line, path.suffix == ".txt"):
        answer = list(item.answer)
        code = item.exit
        if item.is_run(torch):
            got, code = run(item, program, directory, torch)
            same = matches(trimmed(answer), got)
            if not same or code != item.exit:
                if update:
                    if not same:
                        tail = answer[len(trimmed(answer)):]
                        answer = got + tail
                else:
                    failed += 1
                    show(path, item, got, code)
                    code = item.exit
        out += item.command
        kept = len(trimmed(answer))
        out += answer[:kept]
        if code:
            out.append(f"# exit {code}")
        out += answer[kept:]
    return failed, out


def blocks(path, lines):
    """Yields (kind, first, end) of each block, the last two as indices into lines."""
    if path.suffix == ".txt":
        yield "console", 0, len(lines)
        return
    kind, start, fence = "", 0, None
    for i, line in enumerate(lines):
        match = re.match(r"(`{3,}|~{3,})\s*(.*)", line)
        if fence is None and match:
            fence, kind, start = match.group(1), match.group(2).strip(), i + 1
        elif fence is not None and line.startswith(fence) and not line[len(fence):].strip("`~ "):
            yield kind, start, i
            fence = None


def prepare(path, directory, torch):
    """Puts into the directory what the page's examples find there."""
    if torch:
        (directory / "examples").symlink_to(ROOT / "examples")
        python = directory / "bin" / "python"  # not a link: a venv is found by its program's place
        python.parent.mkdir()
        python.write_text(f'#!/bin/sh\nexec {shlex.quote(PYTHON)} "$@"\n', encoding="utf-8")
        python.chmod(0o755)
    elif path.name != "README.md":
        for entry in (ROOT / "tests" / "data").iterdir():
            (directory / entry.name).symlink_to(entry)
    if "$ plimsoll top" in path.read_text(encoding="utf-8"):
        sys.path.insert(0, str(ROOT / "tests" / "live"))
        from machines import write_root
        write_root("host", directory / MACHINE)


@functools.lru_cache(maxsize=None)
def has_package(name):
    return subprocess.run([PYTHON, "-c", f"import {name}"], stderr=subprocess.DEVNULL).returncode == 0


def is_for(words, torch):
    """Whether a block that is marked with these words is run."""
    if not torch:
        return words == ["console"]
    return words[:2] == ["console", "run"] and all(map(has_package, words[2:]))


def check_file(path, program, update, torch=False):
    lines = path.read_text(encoding="utf-8").split("\n")
    if lines and not lines[-1]:
        lines.pop()
    failed, out, at = 0, [], 0
    with tempfile.TemporaryDirectory() as tmp:
        directory = pathlib.Path(tmp)
        prepare(path, directory, torch)
        for kind, first, end in blocks(path, lines):
            shown = SHOWN.match(lines[first]) if kind == "python" and first < end else None
            if shown and torch:
                (directory / shown.group(1)).write_text("\n".join(lines[first:end]) + "\n",
                                                        encoding="utf-8")
            if not is_for(kind.split(), torch):
                continue
            n, block = check_block(path, lines[first:end], first + 1, program, directory, update,
                                   torch)
            failed += n
            out += lines[at:first] + block
            at = end
    out += lines[at:]
    if update and out != lines:
        path.write_text("\n".join(out) + "\n", encoding="utf-8")
        print(f"updated {path}")
    return failed


def self_test():
    """The checker checked: it must see a difference, and only a difference."""
    table = [
        (["a", "b"], ["a", "b"], True), (["a"], ["a", "b"], False), (["a", "b"], ["a"], False),
        ([], [], True), (["..."], [], True), (["...", "b"], ["a", "a", "b"], True),
        (["a", "...", "c"], ["a", "c"], True), (["a", "...", "c"], ["a", "c", "d"], False),
        (["...", "b", "..."], ["b", "x", "b"], True), (["...", "z"], ["a", "b"], False),
    ]
    for want, got, expected in table:
        assert matches(want, got) == expected, (want, got)
    with tempfile.TemporaryDirectory() as tmp:
        program = pathlib.Path(tmp) / "plimsoll"
        program.write_text("#!/bin/sh\necho \"$@\"\n[ \"$1\" != no ] || exit 3\n", encoding="utf-8")
        program.chmod(0o755)
        page = pathlib.Path(tmp) / "page.md"
        good = ("text\n```c\n$ plimsoll not run\n```\n```console\n$ make\nmore\n$ plimsoll a  b\na b\n\n"
                "$ plimsoll no\n...\n# exit 3\n```\n")
        page.write_text(good, encoding="utf-8")
        assert check_file(page, program, False) == 0
        bad = good.replace("a b\n", "a c\n").replace("# exit 3\n", "")
        page.write_text("```console\n$ plimsoll $(ls -d tiny.gguf)\ntiny.gguf\n```\n", encoding="utf-8")
        assert check_file(page, program, False) == 0
        readme = page.with_name("README.md")
        readme.write_text("```console\n$ echo a > b\n$ plimsoll $(ls)\nb\n```\n", encoding="utf-8")
        assert check_file(readme, program, False) == 0
        page.write_text("```python\n# a.py\nx = 1\n```\n```console run\n$ plimsoll $(cat a.py)\n"
                        "# a.py x = 1\n```\n```console\n$ plimsoll $(ls a.py || echo b)\n...\nb\n```\n",
                        encoding="utf-8")
        assert check_file(page, program, False, True) == 0
        assert check_file(page, program, False) == 0
        page.write_text(bad, encoding="utf-8")
        with open(os.devnull, "w", encoding="utf-8") as null:
            stdout, sys.stdout = sys.stdout, null
            try:
                assert check_file(page, program, False) == 2
                check_file(page, program, True)
            finally:
                sys.stdout = stdout
        assert page.read_text(encoding="utf-8") == good, page.read_text(encoding="utf-8")


def has_torch():
    """Whether the Python has the PyTorch of the transcripts, as a CPU build."""
    code = ("import importlib.metadata as m, importlib.util as u, os, sys; s = u.find_spec('torch')\n"
            f"sys.exit(not s or not m.version('torch').startswith('{TORCH}.') or os.path.exists("
            "os.path.join(os.path.dirname(s.origin), 'lib', 'libtorch_cuda.so')))")
    return subprocess.run([PYTHON, "-c", code], capture_output=True, check=False).returncode == 0


def build_shim(program):
    """Else the first transcript says that it is built."""
    subprocess.run([program, "run", "--vram", "1GiB", "--quiet", "--", PYTHON, "-c",
                    "import torch"], capture_output=True, check=False)


def main():
    parser = argparse.ArgumentParser(description="runs the examples and compares")
    parser.add_argument("--program", default=str(ROOT / "build" / "plimsoll"))
    parser.add_argument("--run", action="store_true")
    parser.add_argument("--update", action="store_true")
    parser.add_argument("--self-test", action="store_true")
    parser.add_argument("files", nargs="*")
    args = parser.parse_args()
    if args.self_test:
        self_test()
        return 0
    program = pathlib.Path(args.program).resolve()
    if not program.is_file():
        print(f"there is no program at '{args.program}': run make first", file=sys.stderr)
        return 2
    if args.run and not has_torch():
        print(f"no Python with a CPU build of PyTorch {TORCH}: set PLIMSOLL_TEST_PYTHON")
        return 77
    if args.run:
        build_shim(program)
    files = [pathlib.Path(f) for f in args.files]
    if not files:
        files = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")),
                 *sorted((ROOT / "tests" / "cli").glob("*.txt"))]
    failed = sum(check_file(f, program, args.update, args.run) for f in files)
    if failed:
        print(f"{failed} examples differ (tools/check_docs.py --update FILE rewrites them)")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
