#!/usr/bin/env python3
"""endings.py PROGRAM -- scripts that are ended from outside: their report is written.

Needs a Python with a CPU build of PyTorch, as check.py does; else it exits with 77.
"""

import fcntl
import os
import pathlib
import pty
import signal
import subprocess
import sys
import tempfile
import termios
import time

from problems import check, problems

PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
TORCH = ("import importlib.util as u, os, sys; s = u.find_spec('torch'); sys.exit(not s or "
         "os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', 'libtorch_cuda.so')))")

# os.write: a handler that prints may run inside a print() that has just been read here.
TRAIN = """
import os, threading, time, torch
model = torch.nn.Linear(100, 100).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    model(torch.randn(8, 100, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
"""
READY = "os.write(1, b'ready\\n')\n"
STEP = TRAIN + READY
LOOPS = {  # what the script does when it is to end
    "it trains": "while True: step()",
    "it computes": "while True: pass",
    "it sleeps": "time.sleep(1000)",
    "it waits for a lock": "threading.Event().wait()",
    "it catches errors": "while True:\n    try: step()\n    except Exception: pass",
    "it catches everything": "while True:\n    try: step()\n    except BaseException: pass",
    "another thread trains": "t = threading.Thread(target=lambda: [step() for _ in iter(int, 1)])\n"
                             "t.start()\nt.join()",
}
OWN = "import signal\nsignal.signal(signal.SIGTERM, lambda *a: print('my own', flush=True))\n"
DEAF = ("import signal\nfor n in signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT:\n"
        "    signal.signal(n, signal.SIG_IGN)\n")
# A process of its own, and one that it starts; both say who they are, in one write.
FAMILY = """
import os, subprocess, sys, time, torch
torch.ones(8, device="cuda")
os.write(1, f"pid {os.getpid()}\\n".encode())
if "child" not in sys.argv:
    child = subprocess.Popen([sys.executable, __file__, "child"])
time.sleep(1000)
"""
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


class Script:
    """One that runs at the same time as the others."""

    def __init__(self, folder, text, *options, shell=None, **streams):
        """shell: what a shell runs, in which "$@" is the script."""
        self.path = pathlib.Path(folder) / f"{len(os.listdir(folder))}.py"
        self.path.write_text(text)
        self.tmp = tempfile.mkdtemp(dir=folder)
        command = [PYTHON, str(self.path)]
        self.process = subprocess.Popen(
            [PROGRAM, "run", "--gpu", "t4", *options, "--",
             *(["sh", "-c", shell, "sh"] if shell else []), *command],
            **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, **streams}, text=True,
            start_new_session=True, env={**os.environ, "TMPDIR": self.tmp})

    def lines(self, start, count=1):
        """The rest of the first lines that start with this."""
        found = []
        for line in self.process.stdout:
            if line.startswith(start):
                found.append(line[len(start):].strip())
                if len(found) == count:
                    return found
        check("the script gets ready", False, self.process.stderr.read())
        return found

    def wait_until_ready(self):
        self.lines("ready")

    def end(self, what, code, *words, reports=1):
        try:
            out, err = self.process.communicate(timeout=60)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)  # all that it started
            out, err = self.process.communicate()
        check(what, self.process.returncode == code and all(w in out for w in words) and
              out.count("Peak\n") == reports, (self.process.returncode, out, err))
        left = [str(path) for path in pathlib.Path(self.tmp).glob("plimsoll*")]
        check(f"{what}: nothing is left behind", not left, left)
        return err


def limits(folder):
    scripts = {what: Script(folder, STEP + loop, "--limit", "3") for what, loop in LOOPS.items()}
    for what, script in scripts.items():
        err = script.end(f"--limit while {what}", 0, "stopped after 3 s (--limit)",
                         "as far as it ran")
        check(f"--limit while {what}: no error", "Traceback" not in err, err)
    Script(folder, OWN + STEP + LOOPS["it trains"], "--limit", "3").end(
        "--limit with a handler of the script's", 0, "stopped after 3 s (--limit)")


def signals(folder):
    ways = {"to plimsoll": lambda p, n: os.kill(p.pid, n),
            "to the group": lambda p, n: os.killpg(p.pid, n)}
    for name, send in ways.items():
        scripts = {number: Script(folder, STEP + LOOPS["it trains"]) for number in NUMBERS}
        for number, script in scripts.items():
            script.wait_until_ready()
            send(script.process, number)
        for number, script in scripts.items():
            script.end(f"{number.name} {name}", 128 + number, f"ended by {number.name}",
                       "as far as it ran")
    script = Script(folder, OWN + STEP + "time.sleep(1)\nprint('done')\n")
    script.wait_until_ready()
    os.kill(script.process.pid, signal.SIGTERM)
    script.end("a script with a handler of its own goes on", 0, "my own\n", "done\n",
               "It fits, as far as 1 step shows\n")


def insistence(folder):
    """Those that do not end by themselves."""
    ways = {"to plimsoll": os.kill, "to the group": os.killpg}
    scripts = {(number, way): Script(folder, DEAF + STEP + LOOPS["it sleeps"])
               for number in NUMBERS for way in ways}
    handles = Script(folder, OWN + STEP + LOOPS["it trains"])
    ranks = Script(folder, DEAF + "import os, time, torch\n"
                   "torch.distributed.init_process_group('nccl')\n"
                   "torch.ones(8, device='cuda')\nos.write(1, b'ready\\n')\ntime.sleep(1000)\n",
                   "--world", "2", "--rank", "all")
    family = Script(folder, FAMILY)
    shell = Script(folder, STEP + LOOPS["it sleeps"], shell='"$@"; echo done')
    other = Script(folder, "", shell='trap "" TERM; echo ready; while :; do sleep 1; done')
    for (number, way), script in scripts.items():
        script.wait_until_ready()
        ways[way](script.process.pid, number)
    for script in handles, shell, other:
        script.wait_until_ready()
        script.process.terminate()
    ranks.lines("ready", 2)
    ranks.process.terminate()
    members = family.lines("pid ", 2)
    family.process.terminate()
    for (number, way), script in scripts.items():
        script.end(f"{number.name} {way}, ignored", 128 + number, f"ended by {number.name}")
    handles.end("a handler that does not end it", 143, "my own\n", "ended by SIGTERM")
    ranks.end("ranks that ignore it", 143, "ended by SIGTERM", "Ranks\n", reports=2)
    family.end("a script and its child", 143, "ended by SIGTERM", reports=2)
    check("both have ended", not any(map(lives, members)), members)
    for pid in filter(lives, members):
        os.kill(int(pid), signal.SIGKILL)
    shell.end("a shell that ends before the script", 143, "ended by SIGTERM")
    err = other.end("a command that is not a script", 143, reports=0)
    check("it was killed", "'sh' did not end within 8 s of signal 15: it was killed" in err, err)


def lives(pid):
    """Zombies, for which nobody waits here, do not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2][0] != "Z"
    except OSError:
        return False


def killed(folder):
    """When `plimsoll run` is killed."""
    for what, options in {"it": {}, "its shell": {"shell": '"$@"; echo done'}}.items():
        script = Script(folder, DEAF + FAMILY, **options)
        pids = script.lines("pid ", 2)
        script.process.kill()
        until = time.monotonic() + 30
        while any(map(lives, pids)) and time.monotonic() < until:
            time.sleep(0.05)
        check(f"SIGKILL ends {what}, the script and its child", not any(map(lives, pids)), pids)
        for pid in filter(lives, pids):
            os.kill(int(pid), signal.SIGKILL)


def keys(folder):
    """Ctrl-C at a terminal, with an interactive Python."""
    keyboard, terminal = pty.openpty()
    # Ready inside of what catches it: the key may come before the next line.
    script = Script(folder, TRAIN + f"try:\n    {READY}    time.sleep(1000)\n"
                    "except KeyboardInterrupt: print('caught', flush=True)\n"
                    "time.sleep(9)\nprint('done')\n", stdin=terminal,
                    preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0))
    script.wait_until_ready()
    os.write(keyboard, b"\x03")
    script.end("Ctrl-C is the script's own affair", 0, "caught\n", "done\n")
    os.close(keyboard)
    os.close(terminal)


def reader(folder):
    """Who reads the report leaves, as `head` does, before its end."""
    script = Script(folder, "import torch\nkeep = []\n" +
                    "keep += [torch.ones(8, device='cuda')]\n" * 400, "--top", "400")
    script.process.stdout.close()
    script.process.stdout = None
    script.process.stderr.read()
    check("a reader that leaves is not an error", script.process.wait(60) == 0, script.process.returncode)
    left = [str(path) for path in pathlib.Path(script.tmp).glob("plimsoll*")]
    check("a reader that leaves: nothing is left behind", not left, left)


if subprocess.run([PYTHON, "-c", TORCH], capture_output=True).returncode:
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for number in NUMBERS:  # a shell may have left some ignored
    signal.signal(number, signal.SIG_DFL)
with tempfile.TemporaryDirectory() as folder:
    start = time.monotonic()
    limits(folder)
    signals(folder)
    insistence(folder)
    killed(folder)
    keys(folder)
    reader(folder)
    print(f"{len(problems)} problems, {time.monotonic() - start:.0f} s")
sys.exit(len(problems) > 0)
