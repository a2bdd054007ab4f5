#!/usr/bin/env python3
"""`plimsoll record` over the stub libraries: what was recorded is what the program and the driver say.

    check.py PLIMSOLL STUBS PROGRAM

PROGRAM is program.c, which finds the driver at run time; PROGRAM-linked the same linked with it, and PROGRAM-next
a library that looks for the next dlsym.  PLIMSOLL_TEST_RECORD_PAIRS: allocations of each of 8 threads (500000).
"""
import json
import os
import pathlib
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "python"))
from rows import Rows  # noqa: E402

MIB = 1 << 20
CHUNK = 1 << 16
bad = 0


def expect(what, have, want):
    global bad
    bad += have != want
    print(("ok   " if have == want else "FAIL ") + f"{what}: {have}" + ("" if have == want else f", not {want}"), flush=True)


class Bench:
    def __init__(self, plimsoll, stubs, program, folder):
        self.plimsoll, self.program, self.folder = plimsoll, program, folder
        self.environment = dict(os.environ, LD_LIBRARY_PATH=stubs, PLIMSOLL_RUN_GPU="rtx4090", TMPDIR=folder)
        self.environment.pop("LD_PRELOAD", None)
        self.file = os.path.join(folder, "file.plrec")
        self.rows = Rows(unittest.TestCase())

    def run(self, *command, **more):
        return subprocess.run(command, capture_output=True, text=True, env=dict(self.environment, **more), timeout=600)

    def record(self, *command, **more):
        """The command's own output and status, and the report."""
        ran = self.run(self.plimsoll, "record", "-o", self.file, "--", *command, **more)
        return ran, self.replay()

    def replay(self):
        out = self.run(self.plimsoll, "replay", "--json", self.file)
        report = json.loads(out.stdout)
        self.rows.walk(report)
        return report


def words(text):
    """The last "held N" and "used N" of the program."""
    return {k: float(v) for k, v in re.findall(r"^(held|used|ns) ([\d.]+)$", text, re.M)}


def held_by(report, process=0, way=None):
    return sum(p["at_end"] for p in report["parts"] if p["process"] == process and p["on_device"] and way in (None, p["way"]))


def check_figures(what, ran, report, process=0):
    """The recorder's ledger is the program's, and with the context it is the driver's own figure."""
    said, device = words(ran.stdout), report["devices"][process]
    expect(f"{what}: held at the end", device["at_end"], said["held"])
    expect(f"{what}: the parts are the whole", held_by(report, process), device["at_end"])
    expect(f"{what}: context and ledger are what the driver says", device["context"] + device["at_end"], said["used"])
    expect(f"{what}: nothing beyond that", (device["used"], device["rest"]), (said["used"], 0))
    expect(f"{what}: nothing lost or strange", (report["lost"], report["damaged"], report["strangers"]), (0, 0, 0))


def check_ways(b):
    for how in ("dlsym", "proc"):
        plain = b.run(b.program, "plain", how)
        ran, report = b.record(b.program, "plain", how)
        expect(f"{how}: output and status", (ran.stdout, ran.returncode), (plain.stdout, 7))
        check_figures(how, ran, report)
        expect(f"{how}: peak", report["devices"][0]["peak"], 80 * MIB)
        expect(f"{how}: status in the file", report["status"], 7)
        expect(f"{how}: who", {p["library"] for p in report["parts"]}, {"the program"})
    ran, report = b.record(b.program + "-linked")
    check_figures("linked", ran, report)
    expect("linked: who", {p["library"]: p["at_end"] for p in report["parts"]}, {"the program": 6 * MIB, "libworkspace.so": 8 * MIB})
    for way in ("virtual", "others"):
        ran, report = b.record(b.program, way)
        check_figures(way, ran, report)
    expect("pinned memory of the host", [(p["way"], p["at_end"]) for p in report["parts"] if not p["on_device"]],
           [("pinned host", 3 * MIB)])
    expect("ways", {p["way"]: p["at_end"] for p in report["parts"] if p["on_device"]},
           {"pool": 14 * MIB, "array": 16 * MIB, "allocated": 4 * MIB})
    for way in (("reset",), ("reset", "release"), ("dlclose",)):
        ran, report = b.record(b.program, *way)
        expect(f"{way}: status", ran.returncode, 0)
        expect(f"{way}: held", report["devices"][0]["at_end"], words(ran.stdout)["held"])


def check_graphs(b):
    """Memory nodes of CUDA graphs: what the driver says that they hold, and to whom their addresses belong."""
    for how in ("dlsym", "proc"):
        ran, report = b.record(b.program, "graphs", how)
        expect(f"graphs, {how}: status", ran.returncode, 0)
        check_figures(f"graphs, {how}", ran, report)
        expect(f"graphs, {how}: ways", {p["way"]: (p["at_peak"], p["at_end"], p["calls"]) for p in report["parts"]},
               {"graph": (20 * MIB, 6 * MIB, 2), "allocated": (2 * MIB, 2 * MIB, 1)})
        used = [int(n) for n in re.findall(r"used (\d+)", ran.stdout)]
        expect(f"graphs, {how}: the stub's own figures", [n - used[0] for n in used], [0, 20 * MIB, 6 * MIB])


def check_shared(b):
    """Memory of another process is listed apart, and not held."""
    for how in (("dlsym",), ("proc",)):
        ran, report = b.record(b.program, "shared", *how)
        expect(f"shared, {how}: status", ran.returncode, 0)
        check_figures(f"shared, {how}", ran, report)
        expect(f"shared, {how}: apart", [(p["way"], p["at_end"], p["calls"]) for p in report["parts"] if not p["on_device"]],
               [("shared", 38 * MIB, 2)])
    ran, report = b.record(b.program, "shared", "proc", "end")
    check_figures("shared and given back", ran, report)
    expect("shared and given back: apart", [(p["way"], p["at_peak"], p["at_end"]) for p in report["parts"] if not p["on_device"]],
           [("shared", 38 * MIB, 0)])
    text = b.run(b.plimsoll, "replay", b.file).stdout
    expect("shared: in the report", re.findall(r"the program +shared +2 +38.00 MiB +0 B", text) != [], True)


def check_failure(b):
    ran, report = b.record(b.program, "oom")
    check_figures("oom", ran, report)
    oom = report["oom"]
    free = report["devices"][0]["total"] - words(ran.stdout)["used"]
    expect("oom", (oom["failures"], oom["requested"], oom["free"], oom["held"]), (1, 1 << 40, free, 128 * MIB))
    expect("oom: replay says no", b.run(b.plimsoll, "replay", b.file).returncode, 1)


def check_processes(b):
    ran, report = b.record(b.program, "fork")
    expect("fork: output", ran.stdout.count("held"), 2)
    expect("fork: processes", len(report["processes"]), 3)
    parent = report["processes"][0]
    expect("fork: parents", [p["parent"] for p in report["processes"][1:]], [parent["pid"]] * 2)
    expect("fork: held", sorted(d["at_end"] for d in report["devices"]), [8 * MIB, 16 * MIB, 32 * MIB])
    expect("fork: the one that was executed", report["processes"][2]["command"], "program plain proc")


def check_endings(b):
    for how, number in (("abort", signal.SIGABRT), (str(int(signal.SIGKILL)), signal.SIGKILL)):
        ran, report = b.record(b.program, "abort", how)
        expect(f"{how}: status", ran.returncode, 128 + number)
        expect(f"{how}: held", report["devices"][0]["at_end"], 16 * MIB)
        expect(f"{how}: not exited", report["processes"][0]["exited"], False)
    ran, report = b.record(b.program, "daemon")
    check_figures("daemon", ran, report)
    # What a signal does to the program it does under the recorder too, which then still reports.
    command = "kill -TERM $$"
    expect("a signal", b.run("sh", "-c", f"{b.plimsoll} record -- sh -c '{command}'").returncode, 128 + 15)
    # Ends of the recorder itself: what was written is there.
    ran = b.run("sh", "-c", f"{b.plimsoll} record -o {b.file} -- {b.program} abort 9; kill -9 $$")
    expect("held after both were killed", b.replay()["devices"][0]["at_end"], 16 * MIB)


def check_full(b):
    """Where the file may not grow, events are counted as lost, and the program does not notice."""
    ran = b.run("bash", "-c", f"ulimit -f 300; {b.plimsoll} record -o {b.file} -- {b.program} threads 2 5000")
    report = b.replay()
    expect("full: status", (ran.returncode, words(ran.stdout)["held"]), (0, 0))
    expect("full: some are lost, and none are forgotten", (report["lost"] > 0, 20000 <= report["events"] + report["lost"] <= 20010), (True, True))
    expect("full: says so", "could not be written" in ran.stderr, True)


def check_threads(b):
    pairs = int(os.environ.get("PLIMSOLL_TEST_RECORD_PAIRS", 500000))
    bare = words(b.run(b.program, "threads", "8", str(pairs)).stdout)["ns"]
    ran, report = b.record(b.program, "threads", "8", str(pairs))
    check_figures("threads", ran, report)
    expect("threads: allocations", sum(p["calls"] for p in report["parts"]), 8 * pairs)
    expect("threads: events of each kind but two", report["events"] - 16 * pairs < 10, True)
    expect("threads: at most all of them at once", report["devices"][0]["peak"] <= 72 * MIB, True)
    cost = words(ran.stdout)["ns"] - bare
    for _ in range(2):  # the least of three: others may compute on the machine
        if cost >= 1000:
            bare = words(b.run(b.program, "threads", "8", str(pairs)).stdout)["ns"]
            cost = min(cost, words(b.record(b.program, "threads", "8", str(pairs))[0].stdout)["ns"] - bare)
    print(f"     {cost:.0f} ns of a processor's time for each event")
    expect("threads: less than 1 us an event", cost < 1000, True)


def check_python(b):
    """The line of Python, whether its lock is held or not, in the versions whose frames can be read."""
    script = str(pathlib.Path(__file__).parent / "frames.py")
    versions = [sys.executable] + os.environ.get("PLIMSOLL_TEST_PYTHONS", "").split()
    for python in versions:
        version = b.run(python, "-c", "import sys; print(*sys.version_info[:2])").stdout.split()
        for lock in ("held", "released"):
            ran, report = b.record(python, script, lock)
            lines = {line["where"]: line["at_end"] for line in report["lines"]}
            known = {"frames.py:14": 1006 * MIB, "frames.py:19": 2 * MIB}
            readable = lock == "held" or (3, 11) <= tuple(map(int, version)) <= (3, 13)
            expect(f"Python {'.'.join(version)}, lock {lock}", (ran.returncode, lines), (0, known if readable else {}))


def check_next(b):
    """RTLD_NEXT is the next after the library that asks."""
    ran = b.run(b.plimsoll, "record", "--", b.program, "nothing", LD_PRELOAD=b.program + "-next")
    expect("RTLD_NEXT", (ran.stdout, ran.returncode), ("next\nnothing\n", 5))


def check_command(b):
    ran = b.run(b.plimsoll, "record", "--", b.program, "nothing", "words with spaces")
    expect("nothing", (ran.stdout, ran.returncode), ("words with spaces\n", 5))
    expect("nothing: says so", "asked nothing of CUDA's driver" in ran.stderr, True)
    ran = b.run(b.plimsoll, "record", "--", "no-such-program")
    expect("no program", (ran.returncode, ran.stderr), (4, "plimsoll: cannot run 'no-such-program': No such file or directory\n"))
    expect("no command", b.run(b.plimsoll, "record").returncode, 2)
    other = os.path.join(b.folder, "other")
    pathlib.Path(other).write_text("text\n")
    ran = b.run(b.plimsoll, "record", "-o", other, "--", "true")
    expect("a file of another kind", (ran.returncode, pathlib.Path(other).read_text()), (4, "text\n"))
    ran = b.run(b.plimsoll, "record", "-o", os.path.join(b.folder, "no", "file"), "--", "true")
    expect("no folder", ran.returncode, 4)
    ran = b.run(b.plimsoll, "record", "--json", "--", b.program, "plain")
    expect("--json: the report alone", json.loads(ran.stdout)["schema"], "plimsoll/record/1")
    ran = b.run(b.plimsoll, "record", "--quiet", "--", b.program, "plain")
    expect("--quiet", re.sub(r"process\d+", "process", ran.stderr).splitlines(),
           [f"process.gpu0.{k} {v}" for k, v in (("context", 988807168), ("peak", 80 * MIB), ("at_end", 16 * MIB), ("used", 1005584384))])
    expect("no file is left", sorted(os.listdir(b.folder)), ["file.plrec", "other"])
    home = os.path.join(b.folder, "home", "bin")
    os.makedirs(home)
    shutil.copy(b.plimsoll, home)
    ran = b.run(os.path.join(home, "plimsoll"), "record", "--", "true")
    expect("not installed", (ran.returncode, "libplimsoll_record.so" in ran.stderr), (4, True))


def check_damage(b):
    """A file that was cut short or changed is used as far as it is sound."""
    b.record(b.program, "threads", "2", "2000")
    whole = pathlib.Path(b.file).read_bytes()
    events = b.replay()["events"]

    def read(data):
        pathlib.Path(b.file).write_bytes(data)
        return b.run(b.plimsoll, "replay", "--json", b.file)

    last = None
    for n in (len(whole) - 1, len(whole) - CHUNK, 3 * CHUNK + 1000, CHUNK, CHUNK - 1, 64, 8):
        ran = read(whole[:n])
        expect(f"cut to {n}", ran.returncode, 0 if n >= CHUNK else 3)
        if not ran.returncode:
            now = json.loads(ran.stdout)["events"]
            expect(f"cut to {n}: fewer events", now <= (events if last is None else last), True)
            last = now
    ran = read(whole[:CHUNK] + b"\xff" * 64 + whole[CHUNK + 64:])
    expect("a chunk that is none", (ran.returncode, json.loads(ran.stdout)["damaged"]), (0, 1))
    at = CHUNK + 64
    kind = at + struct.calcsize("<QQQQIIII")
    ran = read(whole[:kind] + b"\xff\xff" + whole[kind + 2:])
    expect("an event of no kind", (ran.returncode, json.loads(ran.stdout)["damaged"]), (0, 1))
    ran = read(whole[:8] + b"\x09" + whole[9:])
    expect("another version", (ran.returncode, "version 9" in ran.stderr), (3, True))


def check_chunks(b):
    """A thread dates a release and is held up; it writes it into a chunk that another thread has left
    with later events, when a third has got the same address."""
    b.record(b.program, "plain")
    whole = pathlib.Path(b.file).read_bytes()
    magic, _, process = struct.unpack_from("<IIQ", whole, CHUNK)
    alloc, free, far, near = 2, 5, 7 << 20, 3 << 20  # PLIM_DRIVER_KINDS; addresses

    def chunk(*events):
        slots = b"".join(struct.pack("<QQQQIIIIHhiQ", time, at, MIB * (kind == alloc), 0, thread, 0, 0, 0, kind, 0, 0, 2**64 - 1)
                         for thread, time, kind, at in events)
        return (struct.pack("<IIQI", magic, len(slots), process, 1).ljust(64, b"\0") + slots).ljust(CHUNK, b"\0")

    pathlib.Path(b.file).write_bytes(whole[:CHUNK]
                                     + chunk((3, 50, alloc, far), (3, 60, free, far), (1, 20, free, near))
                                     + chunk((1, 10, alloc, near), (2, 30, alloc, near)))
    report = b.replay()
    expect("a chunk of two threads", [report[k] for k in ("events", "strangers", "damaged")], [5, 0, 0])
    expect("a chunk of two threads: at most", report["devices"][0]["peak"], 2 * MIB)
    expect("a chunk of two threads: at the end", report["devices"][0]["at_end"], MIB)


def main(plimsoll, stubs, program):
    with tempfile.TemporaryDirectory() as folder:
        b = Bench(os.path.abspath(plimsoll), stubs, program, folder)
        for check in (check_ways, check_graphs, check_shared, check_failure, check_processes, check_endings, check_full, check_threads, check_python, check_next, check_damage, check_chunks):
            check(b)
        check_command(b)
        expect("figures that no report had", b.rows.unseen({"record"}), [])
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
