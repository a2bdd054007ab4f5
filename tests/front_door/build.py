#!/usr/bin/env python3
"""build.py BUILD -- what `make` builds, and what tools/build.sh shows of it.

In place of cmake there is a script, which says what ninja and make say. Of a BUILD that ninja has made it is asked, further,
which files belong to which target.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/run"))
from problems import check, problems  # noqa: E402

BUILD = pathlib.Path(sys.argv[1])
CMAKE = """#!/bin/sh
echo "cmake $*" >"${0%/*}/asked"
. "${0%/*}/says"
"""
NINJA = """
echo '[0/2] Re-checking globbed directories...'
i=0
while [ $i -lt 200 ]; do i=$((i + 1)); echo "[$i/200] Building C object x.c.o"; done
"""
MAKE = """
echo '[  1%] Building C object x.c.o'
echo '[ 50%] Building C object y.c.o'
echo '[100%] Linking C executable x'
echo '-- Configuring done'
"""
WARNING = """
echo '[7/9] Building C object x.c.o'
printf '%s\\n' '../x.c:1:2: warning: a \\ and   spaces' '    1 |   %s' >&2
printf 'no newline'
exit 3
"""
def build(folder, says, terminal=False, **environ):
    """(exit status, output)"""
    (folder / "says").write_text(says)
    ours, theirs = os.openpty() if terminal else os.pipe()
    with subprocess.Popen([ROOT / "tools/build.sh", "some folder", "-j2", "--target", "all", "checks"], stdout=theirs, stderr=theirs,
                          env={**os.environ, "TERM": "xterm", "PATH": f"{folder}:{os.environ['PATH']}", **environ}) as process:
        os.close(theirs)
        text = b""
        try:
            while more := os.read(ours, 65536):
                text += more
        except OSError:  # the end of a terminal
            pass
    os.close(ours)
    return process.returncode, text.decode().replace("\r\n", "\n")


def progress(folder):
    status, text = build(folder, NINJA)
    check("ninja: a line a quarter", (status, text) == (0, "".join(f"[{n}/200] building\n" for n in (50, 100, 150, 200))), text)
    asked = (folder / "asked").read_text()
    check("the arguments are cmake's", asked == "cmake --build some folder -j2 --target all checks\n", asked)
    status, text = build(folder, MAKE)
    check("make: the same", (status, text) == (0, "[50/100] building\n[100/100] building\n"), text)
    status, text = build(folder, NINJA, terminal=True)
    states = text.split("\r\x1b[K")
    check("a terminal: one line", status == 0 and "\n" not in text and states[0] == states[-1] == "", text)
    check("it is rewritten", states[2:202] == [f"[{n:3}/200] building" for n in range(1, 201)], states[:9])
    check("a terminal that cannot: lines", build(folder, MAKE, True, TERM="dumb")[1].count("\n") == 2)
    told = "../x.c:1:2: warning: a \\ and   spaces\n    1 |   %s\nno newline\n"
    for terminal in False, True:
        status, text = build(folder, WARNING, terminal)
        check("a warning is shown in full, on lines of its own", re.split(r"\[.*?building\n?", text)[-1].replace("\r\x1b[K", "") == told, text)
        check("the status is that of the build", status == 3, status)


def members(target):
    """The sources of a target."""
    out = subprocess.run(["ninja", "-C", BUILD, "-t", "commands", target], capture_output=True, text=True, check=True).stdout
    return {os.path.relpath(BUILD / x, ROOT) for x in re.findall(r" -c (\S+\.c)\b", out)}


def targets():
    rest = re.compile(r"(tests|bench)/")
    for target in "all", "plimsoll":
        sources = members(target)
        check(f"'{target}' has the program, and no tests", "cli/main.c" in sources and not any(map(rest.match, sources)),
              sorted(filter(rest.match, sources)))
    sources = members("checks")
    for pattern in "tests/unit/test_*.c", "tests/fuzz/fuzz_*.c", "bench/bench_*.c":
        missing = {str(x.relative_to(ROOT)) for x in ROOT.glob(pattern)} - sources - {"tests/fuzz/fuzz_history.c"}
        check(f"'checks' has {pattern}", not missing, missing)


with tempfile.TemporaryDirectory() as name:
    fake = pathlib.Path(name) / "cmake"
    fake.write_text(CMAKE)
    fake.chmod(0o755)
    progress(pathlib.Path(name))
if (BUILD / "build.ninja").exists() and shutil.which("ninja"):
    targets()
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
