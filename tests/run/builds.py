#!/usr/bin/env python3
"""builds.py PROGRAM -- builds of the shim that are interrupted, and built libraries that are damaged.

Needs a Python with a CPU build of PyTorch, as check.py does; else it exits with 77.  In place of the
compiler there is a script, which compiles once and keeps what it made.
"""

import hashlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time

from problems import check, problems

PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
TORCH = ("import importlib.util as u, os, sys; s = u.find_spec('torch'); sys.exit(not s or "
         "os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', 'libtorch_cuda.so')))")
SCRIPT = "import torch\nprint(torch.ones(8, device='cuda').shape)\n"
GROUP = "import torch\ntorch.distributed.init_process_group('nccl')\n" + SCRIPT
COMPILER = """#!/bin/sh
cd "${0%/*}"
for word; do
    [ "$before" != -o ] || out=$word
    case "$word" in *.cpp) kept=${word##*/}.kept;; esac
    before=$word
done
case "$(cat way)" in
hang) echo half > "$out"; sh -c 'echo $$ > started; exec sleep 1000';;
fail) echo half > "$out"; echo "error: no space" >&2; exit 1;;
slow) sleep 2; cp "$kept" "$out";;
die) echo half > "$out"; kill -9 $$;;
*) [ -e "$kept" ] || c++ "$@" -o "$PWD/$kept" || exit; cp "$kept" "$out";;
esac
"""


class Place:
    """A compiler and what is built with it."""

    def __init__(self, folder):
        self.folder = pathlib.Path(folder)
        self.cache = self.folder / "plimsoll"
        self.compiler = self.folder / "compiler"
        self.compiler.write_text(COMPILER)
        self.compiler.chmod(0o755)

    def start(self, way, text=SCRIPT, *options, stderr=subprocess.PIPE):
        (self.folder / "way").write_text(way)
        (self.folder / "started").unlink(missing_ok=True)
        return subprocess.Popen([PROGRAM, "run", "--gpu", "t4", "--quiet", *options, "--", PYTHON, "-c", text],
                                stdout=subprocess.PIPE, stderr=stderr, text=True,
                                start_new_session=True, env={**os.environ, "TERM": "xterm", "CXX": str(self.compiler),
                                                             "XDG_CACHE_HOME": str(self.folder)})

    def run(self, what, way, code, words, *more):
        process = self.start(way, *more)
        out, err = process.communicate()
        check(what, process.returncode == code and words in out + err, (process.returncode, out, err))
        return err

    def kept(self):
        return sorted(path.name for path in self.cache.glob("*") if path.name != "lock" and path.suffix != ".sha256")

    def empty(self):
        for path in self.cache.glob("*.so*"):
            path.unlink()

    def compiles(self):
        """The process of a compiler, when it runs."""
        until = time.monotonic() + 60
        while time.monotonic() < until:
            if (self.folder / "started").exists() and (self.folder / "started").read_text():
                return int((self.folder / "started").read_text())
            time.sleep(0.05)
        return 0


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def ended(pid):
    """Who is killed needs a moment to end, and its parent may have ended before."""
    until = time.monotonic() + 10
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.05)
    return not lives(pid)


def again(group, number):
    """One signal is sent, and more before what was begun is removed."""
    for _ in range(100):
        os.killpg(group, number)
        time.sleep(0.0002)


def interrupted(place):
    ways = [("SIGTERM to plimsoll", os.kill, signal.SIGTERM), ("SIGHUP to plimsoll", os.kill, signal.SIGHUP),
            ("SIGTERM to the group", os.killpg, signal.SIGTERM), ("SIGINT to the group", os.killpg, signal.SIGINT),
            ("SIGTERM again and again", again, signal.SIGTERM), ("SIGINT again and again", again, signal.SIGINT)]
    for what, send, number in ways:
        process = place.start("hang")
        compiler = place.compiles()
        send(process.pid, number)
        err = process.communicate(timeout=60)[1]
        check(what, process.returncode == 128 + number, (process.returncode, err))
        check(f"{what}: nothing is left", not place.kept(), place.kept())
        check(f"{what}: the compiler has ended", ended(compiler), compiler)
    process = place.start("hang")
    compiler = place.compiles()
    process.kill()
    process.communicate(timeout=60)
    place.run("after SIGKILL", "well", 0, "torch.Size([8])")
    kept = place.kept()
    check("what was left is gone", len(kept) == 1 and kept[0].endswith(".so"), kept)
    check("after SIGKILL the compiler has ended", ended(compiler), compiler)
    (place.cache / kept[0]).unlink()
    place.run("the compiler fails", "fail", 4, "cannot build the shim")
    check("it fails: nothing is left", not place.kept(), place.kept())
    place.run("the compiler is killed", "die", 4, "the compiler ended with status -9")
    check("it is killed: nothing is left", not place.kept(), place.kept())


def on_terminal(place):
    """What a terminal gets as standard error."""
    ours, theirs = os.openpty()
    process = place.start("slow", stderr=theirs)
    os.close(theirs)
    out, text = process.communicate()[0], b""
    while True:
        try:
            text += os.read(ours, 65536)
        except OSError:  # so a terminal ends
            break
    os.close(ours)
    check("on a terminal", process.returncode == 0 and "torch.Size([8])" in out, (process.returncode, out, text))
    return text.decode()


def told(place):
    """What it says while it builds."""
    place.empty()
    err = place.run("a file is told", "slow", 0, "torch.Size([8])")
    check("a file: one line at the beginning, one at the end",
          re.fullmatch(r"plimsoll: building the shim for PyTorch \S+ \(once\)\nplimsoll: built the shim in [1-9]\d* s\n", err), err)
    place.empty()
    lines = on_terminal(place).replace("\r\n", "\n").split("\n")
    check("a terminal: two lines, too", len(lines) == 3 and lines[2] == "", lines)
    states = lines[1].split("\r\x1b[K")
    check("the second is rewritten", {"plimsoll: 0 s of about a minute", "plimsoll: 1 s of about a minute"} <= set(states), states)
    check("in the end it says how long it took", re.fullmatch(r"plimsoll: built the shim in [1-9]\d* s", states[-1]), states)
    check("it is there: nothing is said", "plimsoll: " not in on_terminal(place), "")


def damaged(place):
    place.empty()
    for name, text in ("shim", SCRIPT), ("process group", GROUP):
        options = ("--world", "2", "--rank", "0") if text == GROUP else ()
        place.run(f"the {name} is built", "well", 0, f"building the {name}", text, *options)
        path, = place.cache.glob("dist-*.so" if text == GROUP else "shim-*.so")
        digest, whole = path.with_name(f"{path.name}.sha256"), path.read_bytes()
        garbage = b"no library" * 100
        for what, data in {"short": whole[:len(whole) // 2], "empty": b"", "of zeros": bytes(len(whole)),
                           "changed": whole[:5000] + b"x" * 9999 + whole[14999:],
                           "garbage": garbage, "garbage of its own": garbage}.items():
            path.write_bytes(data)
            if what == "garbage of its own":
                digest.write_text(f"{hashlib.sha256(garbage).hexdigest()}  {path.name}\n")
            place.run(f"the {name} is {what}", "well", 0, f"building the {name}", text, *options)
            check(f"the {name} was {what}: it is whole again", path.read_bytes() == whole, len(data))
        err = place.run(f"the {name} is there", "well", 0, "torch.Size([8])", text, *options)
        check("it is built once", "building" not in err, err)


if subprocess.run([PYTHON, "-c", TORCH], capture_output=True).returncode:
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for number in signal.SIGINT, signal.SIGTERM, signal.SIGHUP:  # a shell may have left some ignored
    signal.signal(number, signal.SIG_DFL)
with tempfile.TemporaryDirectory() as folder:
    interrupted(Place(folder))
    told(Place(folder))
    damaged(Place(folder))
    print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
