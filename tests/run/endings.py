#!/usr/bin/env python3
"""endings.py PROGRAM -- scripts that are ended from outside: their report is written.

Needs a Python with a CPU build of PyTorch, as check.py does; else it exits with 77.
"""

import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

PROGRAM = os.path.abspath(sys.argv[1])
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
TORCH = ("import importlib.util as u, os, sys; s = u.find_spec('torch'); sys.exit(not s or "
         "os.path.exists(os.path.join(os.path.dirname(s.origin), 'lib', 'libtorch_cuda.so')))")

STEP = """
import threading, time, torch
model = torch.nn.Linear(100, 100).cuda()
optimizer = torch.optim.Adam(model.parameters())
def step():
    model(torch.randn(8, 100, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
print("ready", flush=True)
"""
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
NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
problems = []


def check(what, ok, more):
    if not ok:
        problems.append(what)
        print(f"not so: {what}: {str(more)[-800:]}")


class Script:
    """One that runs beside the others."""

    def __init__(self, folder, text, *options):
        self.path = pathlib.Path(folder) / f"{len(os.listdir(folder))}.py"
        self.path.write_text(text)
        self.tmp = tempfile.mkdtemp(dir=folder)
        self.process = subprocess.Popen(
            [PROGRAM, "run", "--gpu", "t4", *options, "--", PYTHON, str(self.path)],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True,
            env={**os.environ, "TMPDIR": self.tmp})

    def wait_until_ready(self):
        for line in self.process.stdout:
            if line == "ready\n":
                return
        check("the script gets ready", False, self.process.stderr.read())

    def end(self, what, code, *words):
        out, err = self.process.communicate(timeout=120)
        check(what, self.process.returncode == code and all(w in out for w in words) and
              out.count("Peak\n") == 1, (self.process.returncode, out, err))
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
        "--limit beside a handler of the script's", 0, "stopped after 3 s (--limit)")


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


if subprocess.run([PYTHON, "-c", TORCH], capture_output=True).returncode:
    print("no Python with a CPU build of PyTorch: set PLIMSOLL_TEST_PYTHON")
    sys.exit(77)
for number in NUMBERS:  # a shell may have left some ignored
    signal.signal(number, signal.SIG_DFL)
with tempfile.TemporaryDirectory() as folder:
    start = time.monotonic()
    limits(folder)
    signals(folder)
    print(f"{len(problems)} problems, {time.monotonic() - start:.0f} s")
sys.exit(len(problems) > 0)
