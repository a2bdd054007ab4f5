#!/usr/bin/env python3
"""check_library.py -- the programs of docs/library.md and README.md compile, run and print what the page says.

    tools/check_library.py BUILD [--update]

The C program is compiled as C11 by gcc and clang and as C++ by g++, as many of them as there are, with warnings as
errors; the Python one loads libplimsoll.so. The program of the README is built by the command next to it, in a folder
like the source tree. --update writes what they print into the page. Exit 77: no compiler.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs/library.md"
COMPILERS = [["gcc", "-std=c11"], ["clang", "-std=c11"], ["g++", "-x", "c++", "-std=c++11"]]


def block(text, language):
    """The first block of a language, and the text block that follows it."""
    m = re.search(rf"```{language}\n(.*?)```.*?```text\n(.*?)```", text, re.S)
    return m.group(1), m.span(2)


def run(command, **more):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **more).stdout


def check_readme(build):
    """The README's program, compiled as the README says."""
    page = (ROOT / "README.md").read_text(encoding="utf-8")
    program, commands, said = re.search(r"```c\n(.*?)```\n\n```sh\n(.*?)```.*?```text\n(.*?)```", page, re.S).groups()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder, "ask.c").write_text(program)
        pathlib.Path(folder, "include").symlink_to(ROOT / "include")
        pathlib.Path(folder, "build").symlink_to(build)
        got = run(["/bin/sh", "-ec", commands], cwd=folder)
    if got != said:
        print(f"README.md: its program prints\n{got}the page says\n{said}")
    return got != said


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    text = PAGE.read_text(encoding="utf-8")
    python, python_span = block(text, "python")
    c, c_span = block(text, "c")
    compilers = [x for x in COMPILERS if shutil.which(x[0])]
    if not compilers:
        return 77
    printed = {}
    with tempfile.TemporaryDirectory() as folder:
        source = pathlib.Path(folder, "ask.c")
        source.write_text(c)
        for compiler in compilers:
            program = os.path.join(folder, "ask")
            run([*compiler, "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", str(source), "-o", program,
                 f"-L{build}", "-lplimsoll", f"-Wl,-rpath,{build}"])
            printed[compiler[0]] = run([program, str(ROOT / "tests/data/mlp4096.pt2")])
        pathlib.Path(folder, "ask.py").write_text(python)
        printed["python"] = run([sys.executable, os.path.join(folder, "ask.py"), str(build / "libplimsoll.so")])
    spans = {name: python_span if name == "python" else c_span for name in printed}
    if "--update" in sys.argv:
        for name in ("python", compilers[0][0]):  # from the end of the page
            a, b = spans[name]
            text = text[:a] + printed[name] + text[b:]
        PAGE.write_text(text, encoding="utf-8")
        return 0
    bad = check_readme(build)
    for name, got in printed.items():
        said = text[spans[name][0]:spans[name][1]]
        if got != said:
            print(f"{PAGE.relative_to(ROOT)}, {name}: it prints\n{got}the page says\n{said}")
            bad = 1
    return bad


if __name__ == "__main__":
    sys.exit(main())
