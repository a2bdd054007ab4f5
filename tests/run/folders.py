#!/usr/bin/env python3
"""folders.py PROGRAM -- the folder of a run in TMPDIR: it goes with the run, or with the next one.

Without PyTorch: the commands are shells, and a Python that loads the stub of CUDA's driver.  What needs another user,
another container or a full disk needs root.
"""

import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

from copies import copy_program
from problems import check, problems

BUILT = os.path.abspath(sys.argv[1])
FILES = "share", "stub", "libplimsoll.so", "libplimsoll_record.so"
NOBODY = 65534
ROOT = not os.geteuid()
WAYS = {"run": ["run", "--gpu", "t4"], "record": ["record"]}
HOLDS = """
import ctypes, os, sys
driver = ctypes.CDLL(os.path.join(sys.argv[1], "libcuda.so.1"))
context, address = ctypes.c_void_p(), ctypes.c_uint64()
assert not driver.cuInit(0) and not driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0)
assert not driver.cuCtxSetCurrent(context) and not driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(1 << 20))
print("held", *sorted(x for x in os.listdir(os.environ["PLIMSOLL_STUB_LEDGER"]) if x.endswith(".ledger")), flush=True)
"""


def start(tmp, way, *command, prefix=(), **more):
    return subprocess.Popen([*prefix, PROGRAM, *WAYS[way], "--", *command], env={**os.environ, "TMPDIR": str(tmp)},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)


def run(tmp, way="run", *command, **more):
    process = start(tmp, way, *(command or ["true"]), **more)
    out, err = process.communicate(timeout=60)
    return process.returncode, out, err


def names(tmp):
    return sorted(os.listdir(tmp))


def begin(tmp, way, **more):
    """One that waits, and its folder."""
    before = set(names(tmp))
    process = start(tmp, way, "sh", "-c", "echo ready; exec sleep 100", **more)
    process.stdout.readline()
    folder, = set(names(tmp)) - before
    return process, pathlib.Path(tmp, folder)


def kill(process):
    process.kill()
    process.communicate()


def end(process):
    process.terminate()
    process.communicate(timeout=60)


def sweeps(tmp):
    for way in WAYS:
        run(tmp, way)
        check(f"{way}: its own", names(tmp) == [], names(tmp))
        killed, folder = begin(tmp, way)
        (folder / "deep/er").mkdir(parents=True)
        (folder / "deep/er/file").write_text("x")
        outside = pathlib.Path(tmp, "outside")
        outside.mkdir()
        (outside / "file").write_text("x")
        os.symlink(outside, folder / "link")
        os.symlink(outside, folder / "deep/link")
        kill(killed)
        check(f"{way}: SIGKILL leaves it", folder.exists())
        for other in WAYS:
            live, lives = begin(tmp, other)
            check(f"{other}: removes that of a killed {way}", names(tmp) == sorted(["outside", lives.name]), names(tmp))
            check("what a link in it leads to stays", names(outside) == ["file"])
            run(tmp, way)
            check(f"{way}: leaves that of a {other} that runs", lives.exists())
            end(live)
        shutil.rmtree(outside)
        check(f"{way}: nothing is left", names(tmp) == [], names(tmp))


def leaves(tmp):
    """Folders that only look like ours."""
    killed, folder = begin(tmp, "run")
    kill(killed)
    lifeline = folder.name + ".lifeline"
    elsewhere = pathlib.Path(tmp, "elsewhere")
    shutil.copytree(folder, elsewhere)
    (pathlib.Path(tmp) / "plimsoll-before").mkdir(mode=0o700)  # six letters
    (pathlib.Path(tmp) / "plimsoll-before/notes").write_text("mine")
    shutil.copytree(folder, pathlib.Path(tmp) / "plimsoll-backup")
    os.chmod(pathlib.Path(tmp) / "plimsoll-backup", 0o700)
    (pathlib.Path(tmp) / "plimsoll-nested").mkdir(mode=0o700)
    (pathlib.Path(tmp) / "plimsoll-nested/plimsoll-nested.lifeline").mkdir()
    (pathlib.Path(tmp) / "plimsoll-public").mkdir()
    os.chmod(pathlib.Path(tmp) / "plimsoll-public", 0o755)
    (pathlib.Path(tmp) / "plimsoll-public/plimsoll-public.lifeline").touch()
    (pathlib.Path(tmp) / "plimsoll-notes").mkdir(mode=0o700)
    (pathlib.Path(tmp) / "plimsoll-abcdef").touch()
    (pathlib.Path(tmp) / "plimsoll-linked").mkdir(mode=0o700)
    (pathlib.Path(tmp) / "plimsoll-linked/plimsoll-linked.lifeline").symlink_to(elsewhere / lifeline)
    folder.rename(pathlib.Path(tmp, "aside"))
    os.symlink("aside", folder)  # a link in its place
    before = names(tmp)
    run(tmp)
    check("what is not ours stays", names(tmp) == before, set(before) ^ set(names(tmp)))
    check("with what is in it", names(pathlib.Path(tmp, "aside")) == [lifeline])
    folder.unlink()
    pathlib.Path(tmp, "aside").rename(folder)
    run(tmp)
    check("ours goes", not folder.exists())
    for name in names(tmp):
        path = pathlib.Path(tmp, name)
        shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()


def others(tmp):
    """Another user's, and that of a run in another container."""
    if not ROOT:
        return print("not root: no second user, no container")
    os.chmod(tmp, 0o1777)
    as_nobody = {"preexec_fn": lambda: os.setuid(NOBODY)}
    killed, folder = begin(tmp, "run", **as_nobody)
    kill(killed)
    run(tmp)
    check("root leaves another user's", folder.exists())
    run(tmp, **as_nobody)
    check("that user removes it", not folder.exists())
    killed, folder = begin(tmp, "run")
    kill(killed)
    code, _, err = run(tmp, **as_nobody)
    check("another user leaves root's, and runs", folder.exists() and code == 3, err)
    run(tmp)
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    if subprocess.run([*apart, "true"], capture_output=True).returncode:
        return print("no namespaces of process numbers")
    live, folder = begin(tmp, "run")
    run(tmp, prefix=apart)
    check("one in another container leaves it", folder.exists())
    end(live)
    inner, folder = begin(tmp, "run", prefix=apart)
    run(tmp)
    check("and one there is left", folder.exists())
    kill(inner)  # unshare, with which its children end
    until = time.monotonic() + 20
    while folder.exists() and time.monotonic() < until:
        run(tmp)
    check("until it is killed", not folder.exists())


@contextlib.contextmanager
def little_disk(folder):
    """A file system of 64 KiB."""
    at = tempfile.mkdtemp(dir=folder)
    if not ROOT or subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", at], capture_output=True).returncode:
        print("no root, or no mounts: no full disk")
        yield None
        return
    try:
        yield at
    finally:
        subprocess.run(["umount", "-l", at], check=True)


def full(folder):
    holds = pathlib.Path(folder, "holds.py")
    holds.write_text(HOLDS)
    command = [sys.executable, str(holds), STUBS]
    code, out, err = run(folder, "run", *command)
    check("with room there is a ledger", out.startswith("held ") and out.count(".ledger") == 1, (code, out, err))
    few = 'ulimit -f 0; exec "$@"'
    code, out, err = run(folder, "run", *command, prefix=["bash", "-c", few, "bash"])
    check("where no file may grow, the script goes on", (code, out) == (3, "held\n"), (code, out, err))
    with little_disk(folder) as disk:
        if not disk:
            return
        with contextlib.suppress(OSError), open(os.path.join(disk, "fill"), "wb", buffering=0) as f:
            while True:
                f.write(bytes(4096))
        code, out, err = run(disk, "run", *command)
        check("on a full disk, too", (code, out) == (3, "held\n"), (code, out, err))
        check("nothing is left there", names(disk) == ["fill"], names(disk))
        code, out, err = run(disk, "record", "true")
        check("nothing can be recorded there", code == 4 and "No space left on device" in err, (code, err))
        check("nor is it left", names(disk) == ["fill"], names(disk))


def planted(folder):
    """A ledger is a new file."""
    place, victim = pathlib.Path(tempfile.mkdtemp(dir=folder)), pathlib.Path(folder, "victim")
    victim.write_text("what is in here stays\n")
    holds = pathlib.Path(folder, "holds.py")
    holds.write_text(HOLDS)
    for what in (f"ln -s {victim}", f"ln {victim}", f"cp {victim}", "mkfifo"):
        shell = f'cd {place} && {what} $$.ledger && exec "$@"'
        process = subprocess.run([PROGRAM, *WAYS["run"], "--", "sh", "-c", shell, "sh", sys.executable, holds, STUBS], timeout=60,
                                 env={**os.environ, "PLIMSOLL_STUB_LEDGER": str(place)}, capture_output=True, text=True)
        check(f"{what}, where the ledger is to be", process.stdout.count(".ledger") == 1 and
              victim.read_text() == "what is in here stays\n", (process.stdout, process.stderr, victim.read_bytes()[:80]))
        check("the ledger goes", names(place) == [], names(place))


def faults(folder):
    for number, words in ((signal.SIGSEGV, "it may have accessed GPU memory"), (signal.SIGBUS, "a file that it has mapped")):
        code, _, err = run(folder, "run", "sh", "-c", f"kill -{int(number)} $$")
        check(f"{number.name}", code == 128 + number and f"'sh' was ended by signal {int(number)}: {words}" in err, (code, err))
        check("only the one guesses at the card", ("GPU memory" in err) == (number == signal.SIGSEGV), err)
        code, _, err = run(folder, "record", "sh", "-c", f"kill -{int(number)} $$")
        check(f"{number.name}, recorded", code == 128 + number and "GPU memory" not in err, (code, err))


def relative(folder):
    os.chdir(folder)
    os.mkdir("place")
    for way in WAYS:
        code, out, err = run("place", way, "sh", "-c", "cd /; ls $PLIMSOLL_RUN_REPORT $PLIMSOLL_RECORD; true")
        check(f"{way}: TMPDIR from here", "No such file" not in err and names("place") == [], (out, err))
    code, _, err = run("no-such-folder")
    check("TMPDIR that is not there", code == 4 and "cannot create a folder in 'no-such-folder': No such file" in err, (code, err))


for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
    signal.signal(number, signal.SIG_DFL)
with tempfile.TemporaryDirectory() as apart:
    os.chmod(apart, 0o755)
    PROGRAM = copy_program(BUILT, pathlib.Path(apart, "built"), *FILES)
    STUBS = PROGRAM.parent / "stub"
    for test in sweeps, leaves, others, full, planted, faults, relative:
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o755)
            test(folder)
            os.chdir("/")
print(f"{len(problems)} problems")
sys.exit(len(problems) > 0)
