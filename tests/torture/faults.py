#!/usr/bin/env python3
"""faults.py [--every N] PROGRAM SHIM -- what the system refuses once, plimsoll survives.

Runs command lines of plimsoll with SHIM (faults.c) preloaded: once to count the calls of each function of the
system, then again for each of these calls, which fails: an allocation, a file that cannot be opened, a read
that is interrupted or breaks off, a disk that is full, a thread that cannot be started, a file that somebody
cuts short at that moment.  Each run has to

 * end by itself within 10 s, with an exit status from 0 to 4;
 * print what it prints without the failure, if its exit status is that of a success, or a call was interrupted;
 * otherwise say why, in one line;
 * leave no file behind.

A signal that a program may be sent comes before each call: one that has no effect has none, one that ends it
leaves no file behind.

--every N tries each N-th call of a function only.  Prints how many runs there were, and exit status 1 and the
command lines of those that went wrong, which can be run again as they are printed.
"""

import argparse
import collections
import errno
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"
SECONDS = 10

# A function of the system, and the errors that it gives.
ERRORS = {"malloc": ["ENOMEM"], "calloc": ["ENOMEM"], "realloc": ["ENOMEM"], "mmap": ["ENOMEM"],
          "mprotect": ["ENOMEM"], "open": ["EMFILE", "EIO"], "read": ["EINTR", "EIO"],
          "pread": ["EINTR", "EIO"], "write": ["EINTR", "ENOSPC", "EIO"], "fstat": ["EIO"],
          "fopen": ["EMFILE"], "fread": ["EIO"], "fwrite": ["ENOSPC"], "fflush": ["ENOSPC"],
          "fclose": ["EIO"], "pthread_create": ["EAGAIN"], "shrink": [None], "signal": []}
# What ends a program that does not mind it, and what does not.
FATAL, HARMLESS = signal.SIGTERM, signal.SIGWINCH

# Words that name a file of tests/data stand for a copy of it.
COMMANDS = """
estimate mlp
estimate mlp --gpu t4 --json
estimate resnet18 --svg
estimate resnet18.pt2 --gpu rtx4090
estimate onnx/gpt2.script.onnx
estimate onnx/small_external.onnx --infer
estimate llama-tiny --batch 2
info mix_214.pth
info resnet18.pt2
info vit_b_16.pt2
info tiny.gguf --json
info split/tiny-00001-of-00003.gguf
info every_type.safetensors --csv
info sharded/model.safetensors.index.json
info onnx/bert.script.onnx
info pretrain_gpt.sh
layers resnet18 --csv
layers seed_mlp.pt2
fit mlp --gpu t4
compare mlp lenet5 --csv
gpus --for mlp
tape mlp
replay ties.tape
replay snapshots/mid_run.pickle --json
replay traces/oom.json
replay run.pt.trace.json
diff snapshots/two.pickle snapshots/different.pickle
diff mlp mlp --json
oom summary.log
serve llama-tiny --gpu t4
size 3x224x224
help estimate
models
gpus
""".strip().splitlines()


class Runner:
    def __init__(self, program, shim, every):
        self.program, self.shim, self.every = program, shim, every
        self.runs, self.statuses, self.wrong = 0, collections.Counter(), []

    def run(self, line, fault=None, count=None):
        """(exit status, stdout, stderr, files left behind), on copies of what the line names."""
        with tempfile.TemporaryDirectory() as folder:
            words = [self.copied(word, folder) for word in line.split()]
            temporary = pathlib.Path(folder, "tmp")
            temporary.mkdir()
            env = dict(os.environ, LD_PRELOAD=str(self.shim), TMPDIR=str(temporary), COLUMNS="80",
                       HOME=folder, LC_ALL="C.UTF-8")
            if fault:
                env["FAULTS"] = fault
            if fault and fault.startswith("shrink:"):  # somebody else cuts it short, who is not in the sandbox
                words += ["--sandbox", "never"]
            if count:
                env["FAULTS_COUNT"] = count
            try:
                done = subprocess.run([self.program, *words], env=env, cwd=temporary, capture_output=True,
                                      timeout=SECONDS, check=False)
            except subprocess.TimeoutExpired:
                return None, b"", b"", []
            left = sorted(os.listdir(temporary))
            return done.returncode, done.stdout.replace(folder.encode(), b""), done.stderr, left

    @staticmethod
    def copied(word, folder):
        """Files next to it may belong to it: the folder of tests/data that it lies in is copied, unless that is tests/data."""
        path = DATA / word
        if not path.exists() or not path.relative_to(DATA).parts:
            return word
        top = word.split("/")[0]
        target = pathlib.Path(folder, top)
        if top == "onnx":
            target.mkdir(exist_ok=True)
            for file in path.parent.glob(path.stem + "*"):
                shutil.copy(file, target)
        elif not target.exists():
            (shutil.copytree if (DATA / top).is_dir() else shutil.copy)(DATA / top, target)
        for file in target.rglob("*") if target.is_dir() else [target]:
            file.chmod(0o600 if file.is_file() else 0o700)
        return str(pathlib.Path(folder, word))

    def calls(self, line):
        """What is printed without failures, and how often each function is called."""
        with tempfile.NamedTemporaryFile("r") as file:
            status, out, err, left = self.run(line, count=file.name)
            if status not in range(5) or left:
                sys.exit(f"faults.py: plimsoll {line}: {status}, {err.decode()} {left}")
            calls = {name: int(n) for name, n in (row.split() for row in file)}
            if not any(calls.values()):
                sys.exit(f"faults.py: {self.shim} is not loaded")
            return (status, out), calls

    def try_all(self, line):
        whole, calls = self.calls(line)
        calls["shrink"] = calls["pread"]
        for name, n in calls.items():
            for at in range(1, n + 1, self.every if n > self.every else 1):
                for error in ERRORS[name]:
                    fault = f"{name}:{at}" + (f":{getattr(errno, error)}" if error else "")
                    self.check(line, fault, whole)
                if name == "signal":
                    self.check(line, f"signal:{at}:{HARMLESS:d}", whole)
                    self.check(line, f"signal:{at}:{FATAL:d}", (-FATAL, b""))

    def check(self, line, fault, whole):
        status, out, err, left = self.run(line, fault)
        self.runs += 1
        self.statuses[status] += 1
        lines = err.decode("utf-8", "replace").splitlines()
        told = fault.startswith("signal:")
        if status is None:
            why = f"it still ran after {SECONDS} s"
        elif told and (status != whole[0] or out != whole[1] and status >= 0):
            why = f"it ended with status {status}, and not with {whole[0]} and what it prints"
        elif not 0 <= status <= 4 and not told:
            why = f"it ended with status {status}"
        elif left:
            why = f"it left {left} behind"
        elif fault.split(":")[2:] == [str(errno.EINTR)] and (status, out) != whole:
            why = "it did not go on after an interruption"
        elif status in (0, 1) and (status, out) != whole:
            why = "it printed something else than without the failure"
        elif status > 1 and len(lines) != 1:
            why = f"it said: {lines}"
        else:
            return
        self.wrong.append(f"FAULTS={fault} LD_PRELOAD={self.shim} {self.program} {line}: {why}")


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--every", type=int, default=1)
    options.add_argument("--only", default="")
    options.add_argument("program")
    options.add_argument("shim")
    args = options.parse_args()
    runner = Runner(os.path.abspath(args.program), os.path.abspath(args.shim), args.every)
    for line in COMMANDS:
        if args.only in line:
            runner.try_all(line)
    statuses = ", ".join(f"{n} ended with {status}" for status, n in sorted(runner.statuses.items(), key=str))
    print(f"{len(COMMANDS)} command lines, {runner.runs} calls that failed or were interrupted: {statuses}")
    print(*runner.wrong[:50], sep="\n", end="\n" if runner.wrong else "")
    return 1 if runner.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
