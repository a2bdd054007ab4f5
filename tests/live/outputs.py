#!/usr/bin/env python3
"""outputs.py PROGRAM LIBRARIES -- where `plimsoll top --prometheus` and `--log` write, and where they do not.

What lies next to the file that the user names may be somebody else's: a link to a file of this user, who may be
root.  With two users where this one is root.
"""

import fcntl
import os
import pathlib
import shutil
import signal
import sqlite3
import stat
import subprocess
import sys
import tempfile
import threading
import time

from machines import write_root

HERE = pathlib.Path(__file__).resolve().parent
NOBODY = 65534
OURS = "what is in here stays\n"
bad = 0


def expect(what, have, want=True):
    global bad
    if have != want:
        bad += 1
        print(f"FAIL {what}: {str(have)[:300]}, not {str(want)[:300]}")


class Top:
    def __init__(self, program, libraries, folder):
        self.folder = pathlib.Path(folder)
        # another user may not get to where they were built
        self.program = shutil.copy(program, self.folder / "plimsoll")
        libraries = shutil.copytree(libraries, self.folder / "libraries")
        scenario = shutil.copy(HERE / "scenarios/r550.txt", self.folder)
        machine = self.folder / "machine"
        write_root("host", machine)
        self.place = self.folder / "place"
        self.place.mkdir()
        self.env = dict(os.environ, PLIMSOLL_SCENARIO=str(scenario), LC_ALL="C",
                        PLIMSOLL_NVML=f"{libraries}/nvml-550.so", PLIMSOLL_ROOT=str(machine))

    def start(self, *options, before="", **more):
        """before: what a shell does that then becomes the program, and has its number."""
        return subprocess.Popen(["sh", "-c", f'{before}\nexec "$@"', "sh", self.program, "top", *options], env=self.env,
                                cwd=self.place, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **more)

    def run(self, *options, **more):
        process = self.start(*options, **more)
        out, err = process.communicate(timeout=60)
        return process.returncode, out, err

    def write(self, name="gpu.prom", **more):
        return self.run("--once", "--prometheus", name, **more)

    def names(self):
        return sorted(os.listdir(self.place))

    def clear(self):
        for name in self.names():
            os.unlink(self.place / name)


def is_whole(text):
    return text.startswith("# ") and text.endswith("# EOF\n")


def check_links(top, victim):
    """A link that somebody has put where the program is about to write."""
    for name in ("gpu.prom.$$", "gpu.prom", "gpu.prom.new", "gpu.prom.tmp"):
        code, _, err = top.write(before=f"ln -s {victim} {name}")
        expect(f"{name}: status", (code, err), (0, ""))
        expect(f"{name}: what it leads to", victim.read_text(), OURS)
        expect(f"{name}: the metrics", is_whole((top.place / "gpu.prom").read_text()))
        expect(f"{name}: the file is none", (top.place / "gpu.prom").is_symlink(), False)
        top.clear()
    code, _, _ = top.write(before=f"ln {victim} gpu.prom.$$")
    expect("a hard link", (code, victim.read_text()), (0, OURS))
    top.clear()


def check_users(top, victim):
    if os.geteuid():
        print("     with one user: two need root")
        return
    os.chmod(top.folder, 0o755)
    for mode in (0o777, 0o1777):
        os.chmod(top.place, mode)
        planted = f'python3 -c "import os; os.setuid({NOBODY}); os.symlink(\'{victim}\', \'gpu.prom.$$\')"'
        code, _, err = top.write(before=planted)
        expect(f"another user's link in a folder of mode {mode:o}", (code, err, victim.read_text()), (0, "", OURS))
        expect("the metrics", is_whole((top.place / "gpu.prom").read_text()))
        top.clear()
    # In a folder like /tmp that user cannot be kept from writing, either.
    (top.place / "gpu.prom").write_text("root's\n")
    process = top.start("--once", "--prometheus", "gpu.prom", preexec_fn=lambda: os.setuid(NOBODY))
    _, err = process.communicate(timeout=60)
    expect("root's file in a sticky folder", ((top.place / "gpu.prom").read_text(), process.returncode), ("root's\n", 4))
    expect("it says so", err, "plimsoll: cannot write 'gpu.prom': Operation not permitted\n")
    expect("it leaves nothing", top.names(), ["gpu.prom"])
    top.clear()
    os.chmod(top.place, 0o755)


def check_mode(top):
    for mask, mode in ((0o022, 0o644), (0o027, 0o640)):
        top.write(before=f"umask {mask:o}")
        expect(f"the mode with umask {mask:o}", oct(stat.S_IMODE((top.place / "gpu.prom").stat().st_mode)), oct(mode))
        top.clear()


def check_streams(top):
    """What is not a file is written to where it is."""
    os.chmod(top.place, 0o777)
    # never as root, who could replace what is in /dev
    other = {"preexec_fn": lambda: os.setuid(NOBODY)} if not os.geteuid() else {}
    for name in ("/dev/stdout", "/dev/fd/1", "/proc/self/fd/1"):
        code, out, err = top.write(name, before='"$@" | cat; exit', **other)
        expect(f"{name}: a pipe", (code, is_whole(out), err), (0, True, ""))
        code, _, _ = top.write(name, before="exec >out", **other)
        expect(f"{name}: a file", (code, is_whole((top.place / "out").read_text())), (0, True))
        top.clear()
    expect("/dev/null", top.write("/dev/null", **other)[::2], (0, ""))
    expect("/dev/full", top.write("/dev/full", **other)[::2],
           (4, "plimsoll: cannot write '/dev/full': No space left on device\n"))
    os.chmod(top.place, 0o755)
    os.mkfifo(top.place / "pipe")
    got = []
    reader = threading.Thread(target=lambda: got.append((top.place / "pipe").read_text()), daemon=True)
    reader.start()
    code, _, _ = top.write("pipe")
    reader.join(10)
    expect("a FIFO", (code, [is_whole(text) for text in got], stat.S_ISFIFO((top.place / "pipe").stat().st_mode)),
           (0, [True], True))
    top.clear()
    (top.place / "folder").mkdir()
    expect("a folder", top.write("folder")[::2], (4, "plimsoll: cannot write 'folder': Is a directory\n"))
    expect("no folder", top.write("no/file")[::2], (4, "plimsoll: cannot write 'no/file': No such file or directory\n"))
    (top.place / "folder").rmdir()


def check_left_over(top):
    """What killed ones have left goes with the next; what is not theirs stays."""
    names = [f"gpu.prom{x}" for x in (".plimsoll-backup", ".backup", ".plimsoll-0123456g", ".plimsoll-0123456789", ".4711")]
    for name in [*names, "gpu.prom.plimsoll-00000001", "gpu.prom.plimsoll-0000000f"]:
        (top.place / name).write_text("x")
    os.symlink(names[0], top.place / "gpu.prom.plimsoll-0000000a")
    with open(top.place / "gpu.prom.plimsoll-00000002", "w") as written:
        fcntl.flock(written, fcntl.LOCK_EX)  # one that another program is writing
        code, _, err = top.write()
        expect("next to left-overs", (code, err), (0, ""))
        expect("what stays", top.names(), sorted([*names, "gpu.prom", "gpu.prom.plimsoll-00000002", "gpu.prom.plimsoll-0000000a"]))
    top.clear()


def check_writers(top):
    """Two write to one file: who reads it sees one of them, whole.  A signal ends each after its reading."""
    writers = [top.start("--prometheus", "gpu.prom", "--interval", "0.1") for _ in range(2)]
    path, until, seen, parts = top.place / "gpu.prom", time.monotonic() + 3, 0, 0
    while time.monotonic() < until:
        text = path.read_text() if path.exists() else ""
        seen, parts = seen + bool(text), parts + (bool(text) and not is_whole(text))
    for writer, number in zip(writers, (signal.SIGTERM, signal.SIGINT)):
        writer.send_signal(number)
        expect(f"ended by signal {number}", (writer.communicate(timeout=60), writer.returncode), (("", ""), 0))
    expect("read", (seen > 0, parts), (True, 0))
    expect("nothing is left next to it", top.names(), ["gpu.prom"])
    top.clear()
    ignores = top.start("--prometheus", "gpu.prom", "--interval", "0.1", before="trap '' HUP")
    while not path.exists():
        time.sleep(0.05)
    ignores.send_signal(signal.SIGHUP)
    time.sleep(0.3)
    expect("under nohup it goes on", ignores.poll(), None)
    ignores.terminate()
    ignores.communicate(timeout=60)
    top.clear()


def check_log(top, victim):
    """SQLite's own files next to a log."""
    if "built without SQLite" in top.run("--log", "a.db", "--ticks", "1", "--interval", "0.1")[2]:
        print("     without SQLite")
        return
    for name in ("a.db-wal", "a.db-shm", "a.db-journal"):
        os.path.exists(top.place / name) and os.unlink(top.place / name)
        top.run("--log", "a.db", "--ticks", "1", "--interval", "0.1", before=f"ln -s {victim} {name}")
        expect(f"{name}: what it leads to", victim.read_text(), OURS)
        os.unlink(top.place / name)
    code, _, _ = top.run("--log", "link.db", "--ticks", "2", "--interval", "0.1", before="ln -s a.db link.db")
    rows = sqlite3.connect(top.place / "a.db").execute("SELECT count(*) FROM sessions").fetchone()
    expect("a link of the user's own to a log is followed", (code, rows[0] > 0), (0, True))
    code, _, err = top.run("--log", "other.db", "--ticks", "1", "--interval", "0.1", before=f"ln -s {victim} other.db")
    expect("a link to what is not a log", (code, victim.read_text()), (3, OURS))
    top.clear()


def main():
    program, libraries = (os.path.abspath(x) for x in sys.argv[1:3])
    with tempfile.TemporaryDirectory() as folder:
        top, victim = Top(program, libraries, folder), pathlib.Path(folder, "victim")
        victim.write_text(OURS)
        check_links(top, victim)
        check_users(top, victim)
        check_mode(top)
        check_streams(top)
        check_left_over(top)
        check_writers(top)
        check_log(top, victim)
    print(f"{bad} problems")
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
