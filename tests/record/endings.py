#!/usr/bin/env python3
"""endings.py PLIMSOLL STUBS -- how `plimsoll record` and its command end: as with `plimsoll run`.

Arguments as in check.py.
"""

import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

MIB = 1 << 20
PLIMSOLL, STUBS = (os.path.abspath(x) for x in sys.argv[1:3])
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
# Allocates 16 MiB, says so, and does what it is told.
HOLDS = f"""
import ctypes, os, signal, sys, time
def hold(mib):
    address = ctypes.c_uint64()
    assert not driver.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(mib << 20))
driver, context = ctypes.CDLL("{STUBS}/libcuda.so.1"), ctypes.c_void_p()
driver.cuInit(0), driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0), driver.cuCtxSetCurrent(context)
hold(16)
def ready():
    os.write(1, f"ready {{os.getpid()}}\\n".encode())
"""
SLEEPS = HOLDS + "ready()\ntime.sleep(100)\n"
DEAF = HOLDS + "[signal.signal(n, signal.SIG_IGN) for n in (1, 2, 3, 15)]\nready()\ntime.sleep(100)\n"
OWN = HOLDS + "signal.signal(15, lambda *a: (os.write(1, b'my own\\n'), sys.exit(5)))\nready()\ntime.sleep(100)\n"
bad = 0


def expect(what, have, want):
    global bad
    bad += have != want
    print(("ok   " if have == want else "FAIL ") + f"{what}: {str(have)[-600:]}" + ("" if have == want else f", not {want}"), flush=True)


def environment(folder):
    env = dict(os.environ, LD_LIBRARY_PATH=STUBS, PLIMSOLL_RUN_GPU="rtx4090", TMPDIR=str(folder))
    env.pop("LD_PRELOAD", None)
    return env


class Recorded:
    def __init__(self, folder, script, *options, shell=None, **more):
        """shell: what a shell does, in which "$@" is the script."""
        words = [sys.executable, "-c", script]
        self.process = subprocess.Popen(
            [PLIMSOLL, "record", *options, "--", *(["sh", "-c", shell, "sh"] if shell else []), *words], env=environment(folder),
            text=True, start_new_session=True, **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **more})

    def ready(self):
        """The number of the process that holds memory."""
        return int(self.process.stdout.readline().split()[1])

    def end(self):
        out, err = self.process.communicate(timeout=60)
        return self.process.returncode, out, err


def lives(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def dies(pid):
    until = time.monotonic() + 20
    while lives(pid) and time.monotonic() < until:
        time.sleep(0.02)
    return not lives(pid)


def check_signals(folder):
    """Each ends the command, and the report is printed."""
    for to in ("plimsoll", "the group"):
        started = {number: Recorded(folder, SLEEPS) for number in NUMBERS}
        for number, one in started.items():
            one.ready()
            os.kill(one.process.pid, number) if to == "plimsoll" else os.killpg(one.process.pid, number)
        for number, one in started.items():
            code, _, err = one.end()
            expect(f"{number.name} to {to}", (code, "Recorded: " in err and "16.00 MiB" in err), (128 + number, True))
    expect("nothing is left", os.listdir(folder), [])


def check_insistence(folder):
    """Commands that do not end for it; all at once, for each takes 8 s."""
    deaf = {number: Recorded(folder, DEAF) for number in NUMBERS}
    own = Recorded(folder, OWN)
    file = os.path.join(folder, "kept.plrec")
    kept = Recorded(folder, DEAF, "-o", file)
    for number, one in {**deaf, signal.SIGTERM + 100: own, signal.SIGTERM + 200: kept}.items():
        one.ready()
        one.process.send_signal(number % 100)
    code, out, _ = own.end()
    expect("a handler of its own", (code, out), (5, "my own\n"))
    for number, one in deaf.items():
        code, _, err = one.end()
        expect(f"{number.name}, ignored", (code, f"did not end within 8 s of signal {int(number)}: it was killed" in err,
                                           "16.00 MiB" in err), (128 + number, True, True))
    kept.end()
    told = json.loads(subprocess.run([PLIMSOLL, "replay", "--json", file], capture_output=True, text=True).stdout)
    expect("the recording is whole", (told["status"], told["devices"][0]["at_end"]), (128 + signal.SIGTERM, 16 * MIB))
    os.unlink(file)
    expect("nothing is left", os.listdir(folder), [])


def check_killed(folder):
    """When `record` itself is killed: the command ends, what it has started goes on, and the file can be read."""
    file = os.path.join(folder, "killed.plrec")
    one = Recorded(folder, SLEEPS, "-o", file)
    pid = one.ready()
    one.process.kill()
    expect("SIGKILL ends the command", dies(pid), True)
    told = json.loads(subprocess.run([PLIMSOLL, "replay", "--json", file], capture_output=True, text=True).stdout)
    expect("its recording", told["devices"][0]["at_end"], 16 * MIB)
    os.unlink(file)
    one = Recorded(folder, SLEEPS, shell='"$@"; true')
    pid = one.ready()
    one.process.kill()
    one.process.wait()
    time.sleep(0.3)
    expect("what the command had started goes on", lives(pid), True)
    os.kill(pid, signal.SIGKILL)
    one.process.communicate(timeout=60)
    expect("the folder stays", len(os.listdir(folder)), 1)
    subprocess.run([PLIMSOLL, "record", "--", "true"], env=environment(folder), capture_output=True, check=True)
    expect("until the next", os.listdir(folder), [])


def check_descendants(folder):
    """What the command leaves behind is not waited for."""
    began = time.monotonic()
    one = Recorded(folder, "", shell="sleep 20 >/dev/null 2>&1 & exit 3")
    expect("a daemon", (one.end()[0], time.monotonic() - began < 10), (3, True))


def check_two(folder):
    """A file that is being written is not replaced, and one that is replaced is a new one: whoever has it mapped goes on."""
    file = os.path.join(folder, "two.plrec")
    grows = HOLDS + "ready()\nsys.stdin.read()\nfor i in range(3000): hold(1)\n"  # by several chunks
    first = Recorded(folder, grows, "-o", file, stdin=subprocess.PIPE)
    first.ready()
    ran = subprocess.run([PLIMSOLL, "record", "-o", file, "--", "true"], env=environment(folder), capture_output=True, text=True)
    expect("a second on the same file", (ran.returncode, ran.stderr),
           (4, f"plimsoll: will not replace '{file}': another 'plimsoll record' is writing it\n"))
    first.process.stdin.close()
    first.process.stdin = None
    code, _, err = first.end()
    expect("the first does not notice", (code, "Recorded: " in err), (0, True))
    # A process that the first has left behind, which goes on when the file is replaced.
    left = HOLDS + "ready()\nif os.fork(): os._exit(0)\nhold(1)\nsys.stdin.readline()\nfor i in range(3000): hold(1)\nready()\n"
    first = Recorded(folder, left, "-o", file, stdin=subprocess.PIPE)
    first.ready()
    first.process.wait(60)
    ran = subprocess.run([PLIMSOLL, "record", "-o", file, "--", "true"], env=environment(folder), capture_output=True, text=True)
    expect("replaced after its end", ran.returncode, 0)
    first.process.stdin.write("go on\n")
    first.process.stdin.flush()
    expect("who has it mapped goes on", first.process.stdout.readline().startswith("ready"), True)
    told = json.loads(subprocess.run([PLIMSOLL, "replay", "--json", file], capture_output=True, text=True).stdout)
    expect("and does not write to the new one", (told["events"], told["damaged"], os.stat(file).st_size), (0, 0, 65536))
    first.process.communicate(timeout=60)
    os.unlink(file)


def check_links(folder):
    """-o follows a link of the user's own, as a shell does."""
    target, link = os.path.join(folder, "target.plrec"), os.path.join(folder, "link.plrec")
    os.symlink(target, link)
    for what in ("made", "replaced"):
        code = subprocess.run([PLIMSOLL, "record", "-o", link, "--", "true"], env=environment(folder), capture_output=True).returncode
        expect(f"through a link: {what}", (code, os.path.islink(link), os.path.islink(target), os.path.getsize(target)),
               (0, True, False, 65536))
    os.unlink(target)
    os.unlink(link)


def check_streams(folder):
    """The report is on stderr: where that is lost, so is it."""
    script = HOLDS + "os.write(1, b'out\\n')\n"
    for to, code in (("2>&-", 4), ("2>/dev/full", 4), ("2>/dev/null", 0), (">&-", 0)):
        ran = subprocess.run(["sh", "-c", f'"$@" {to}', "sh", PLIMSOLL, "record", "--", sys.executable, "-c", script],
                             env=environment(folder), capture_output=True, text=True)
        expect(to, (ran.returncode, ran.stdout, "Recorded: " in ran.stderr), (code, "" if to == ">&-" else "out\n", to == ">&-"))
    for trap in ("", 'trap "" PIPE;'):
        ran = subprocess.run(["bash", "-c", trap + ' "$@" 2>&1 >/dev/null | true; echo ${PIPESTATUS[0]}', "bash", PLIMSOLL, "record", "--",
                              sys.executable, "-c", script + "time.sleep(0.3)\n"], env=environment(folder), capture_output=True, text=True)
        expect("a reader that leaves", ran.stdout, "0\n")
    expect("nothing is left", os.listdir(folder), [])


def check_start(folder):
    for name, why in (("no-such-program", "No such file or directory"), (folder, "Permission denied"),
                      ("./none.py", "No such file or directory; write 'plimsoll record ... -- python ./none.py'")):
        ran = subprocess.run([PLIMSOLL, "record", "-o", os.path.join(folder, "f"), "--", name], env=environment(folder),
                             capture_output=True, text=True)
        expect(name, (ran.returncode, ran.stdout, ran.stderr), (4, "", f"plimsoll: cannot run '{name}': {why}\n"))
    ran = subprocess.run([PLIMSOLL, "record", "--", "sh", "-c", "exit 4"], env=environment(folder), capture_output=True, text=True)
    expect("a command of status 4", (ran.returncode, "nothing was recorded" in ran.stderr), (4, True))
    expect("nothing is left", os.listdir(folder), [])


def main():
    for number in NUMBERS:  # a shell may have left some ignored
        signal.signal(number, signal.SIG_DFL)
    for check in (check_signals, check_insistence, check_killed, check_descendants, check_two, check_links, check_streams, check_start):
        with tempfile.TemporaryDirectory() as folder:
            check(folder)
    return bad != 0


if __name__ == "__main__":
    sys.exit(main())
