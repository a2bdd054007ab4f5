#!/usr/bin/env python3
"""files.py PROGRAM -- the files of --save and --report, and reports for which there is no room.

Needs a Python with a CPU build of PyTorch, as check.py does; else it exits with 77.
"""

import contextlib
import os
import pathlib
import subprocess
import sys
import tempfile

from problems import check, problems

PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
TORCH = ("import importlib.util as u, os, sys; s = u.find_spec('torch'); sys.exit(not s or "
         "os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', 'libtorch_cuda.so')))")
OURS = "what is in here stays\n"
SCRIPT = "import torch\nfor i in range(torch.cuda.device_count()): x = torch.ones(8, device=f'cuda:{i}')\nprint('done')\n"


def run(folder, *options, shell='exec "$@"', tmp=None, **more):
    """shell: what the command is, in which "$@" is the script."""
    pathlib.Path(folder, "script.py").write_text(SCRIPT)
    ran = subprocess.run([PROGRAM, "run", *options, "--", "sh", "-c", shell, "sh", PYTHON, "script.py"], cwd=folder, text=True,
                         capture_output=True, timeout=300, env={**os.environ, "TMPDIR": tmp or str(folder)}, **more)
    return ran.returncode, ran.stdout, ran.stderr


def is_tape(path):
    return path.is_file() and path.read_text().startswith("plimsoll")


def derived(folder):
    """Tapes whose names the user has not chosen are new files."""
    victim, tape = pathlib.Path(folder, "victim"), pathlib.Path(folder, "tape")
    victim.write_text(OURS)
    for what in ("ln -s victim", "ln victim"):
        code, _, err = run(folder, "--gpu", "2xt4", "--save", "tape", shell=f'{what} tape.cuda1; exec "$@"')
        card = pathlib.Path(folder, "tape.cuda1")
        check(f"{what}: the second card's", (code, victim.read_text()) == (0, OURS) and is_tape(card) and not card.is_symlink(), err)
        card.unlink()
        code, _, err = run(folder, "--gpu", "t4", "--save", "tape", shell=f'"$@"; {what} tape.$$; exec "$@"')
        found = list(pathlib.Path(folder).glob("tape.[0-9]*"))
        check(f"{what}: the second process's", (code, victim.read_text()) == (0, OURS) and len(found) == 1 and
              is_tape(found[0]) and not found[0].is_symlink(), (found, err))
        found[0].unlink()
    check("the first one's", is_tape(tape))
    code, _, err = run(folder, "--gpu", "2xt4", "--save", "tape", shell='mkdir tape.cuda1; exec "$@"')
    check("a folder", code == 4 and "/tape.cuda1': Is a directory\n" in err, (code, err))


def named(folder):
    """Those that the user names are written to as a shell does it."""
    for option in ("--save", "--report"):
        os.symlink("target", os.path.join(folder, "link"))
        code, _, err = run(folder, "--gpu", "t4", option, "link")
        check(f"{option}: a link", code == 0 and os.path.islink(os.path.join(folder, "link")) and
              pathlib.Path(folder, "target").stat().st_size > 0, err)
        os.unlink(os.path.join(folder, "link"))
        os.unlink(os.path.join(folder, "target"))
        read, write = os.pipe()
        code, _, err = run(folder, "--gpu", "t4", option, f"/dev/fd/{write}", pass_fds=[write])
        os.close(write)
        with open(read, encoding="utf-8") as f:
            check(f"{option}: /dev/fd/N", code == 0 and f.read() != "", err)
        code, out, err = run(folder, "--gpu", "t4", option, "/dev/stdout")
        check(f"{option}: /dev/stdout", code == 0 and ("plimsoll-tape" in out or out.count("Peak\n") == 2), (out, err))
        code, _, err = run(folder, "--gpu", "t4", option, "/dev/full")
        check(f"{option}: /dev/full", (code, "plimsoll: cannot write '/dev/full': No space left on device\n" in err) == (4, True),
              (code, err))


def full(folder):
    """No room for the report: the script ends as it would, and the answer is not that there was nothing to report."""
    at = tempfile.mkdtemp(dir=folder)
    if os.geteuid() or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", at], capture_output=True).returncode:
        return print("no root, or no mounts: no full disk")
    try:
        with contextlib.suppress(OSError), open(os.path.join(at, "fill"), "wb", buffering=0) as f:
            while True:
                f.write(bytes(4096))
        code, out, err = run(folder, "--gpu", "t4", tmp=at)
        check("a full TMPDIR", code == 4 and out == "done\n" and "plimsoll: cannot write the report to '" in err and
              "No space left on device" in err and "nothing to report" not in err, (code, out, err))
        check("nothing is left there", os.listdir(at) == ["fill"], os.listdir(at))
    finally:
        subprocess.run(["umount", "-l", at], check=True)


if subprocess.run([PYTHON, "-c", TORCH], capture_output=True).returncode:
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for test in derived, named, full:
    with tempfile.TemporaryDirectory() as folder:
        test(folder)
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
