#!/usr/bin/env python3
"""monitors.py PROGRAM STUBS -- monitors next to processes that use a pretend card.

Two processes take memory through the stub libcudart; in this process, which only looks, `plimsoll
top` says of the card and of them what they took.  gpustat and nvitop, unmodified, say the same
where they are installed.  A child that was forked adds nothing; a process that was killed is gone.
"""

import importlib.util
import json
import os
import pathlib
import signal
import subprocess
import sys
import tempfile

USER = """
import ctypes, os, sys
rt = ctypes.CDLL(sys.argv[1] + "/libcudart.so.13")
for line in sys.stdin:
    bytes, _, how = line.partition(" ")
    if "fork" in how and os.fork():
        os.wait()
    else:
        at = ctypes.c_void_p()
        code = rt.cudaMalloc(ctypes.byref(at), ctypes.c_size_t(int(bytes)))
        if "fork" in how:
            os._exit(0)
    print("done", flush=True)
"""
MIB = 1 << 20


class User:
    """A process that uses the card."""

    def __init__(self, stubs, folder):
        env = dict(os.environ, PLIMSOLL_RUN_VRAM=str(24 << 30), PLIMSOLL_STUB_LEDGER=folder)
        self.process = subprocess.Popen([sys.executable, "-c", USER, stubs], env=env, text=True,
                                        stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def take(self, mib, how=""):
        self.process.stdin.write(f"{mib * MIB} {how}\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "done\n"


def look(command, env):
    done = subprocess.run(command, env=env, stdout=subprocess.PIPE, timeout=60, check=False)
    return done.stdout.decode()


def check(program, env, users, stubs):
    """What each of the users has, in MiB beyond the context, which is the same for both."""
    answer = json.loads(look([program, "top", "--json"], env))
    device, = answer["devices"]
    memory, listed = device["memory"], {p["pid"]: p["memory"] for p in device["processes"]}
    assert set(listed) == {u.process.pid for u in users}, (listed, users)
    contexts = {listed[u.process.pid] - mib * MIB for u, mib in users.items()}
    assert len(contexts) == 1 and contexts.pop() > 0, (listed, contexts)
    assert memory["used"] == sum(listed.values()) and memory["total"] == 24 << 30, memory
    assert memory["used"] + memory["free"] == memory["total"], memory
    said = ["plimsoll"]
    env = dict(env, LD_LIBRARY_PATH=stubs)
    if importlib.util.find_spec("gpustat"):
        theirs = json.loads(look([sys.executable, "-m", "gpustat", "--json"], env))["gpus"]
        ours = json.loads(look([program, "top", "--json=gpustat"], env))["gpus"]
        for gpu in theirs + ours:
            for process in gpu["processes"]:  # of the moment at which it is asked
                process["cpu_percent"] = process["cpu_memory_usage"] = 0
            gpu["processes"].sort(key=lambda p: p["pid"])
        assert theirs == ours, (theirs, ours)
        said.append("gpustat")
    if importlib.util.find_spec("nvitop"):
        code = ("import json, nvitop; d, = nvitop.Device.all(); print(json.dumps([d.memory_total(), "
                "d.memory_used(), {p: s.gpu_memory() for p, s in d.processes().items()}]))")
        total, used, processes = json.loads(look([sys.executable, "-c", code], env))
        assert total == memory["total"] and used == memory["used"], (total, used)
        assert {int(p): b for p, b in processes.items()} == listed, (processes, listed)
        said.append("nvitop")
    return said


def main():
    program, stubs = (os.path.abspath(x) for x in sys.argv[1:3])
    if not pathlib.Path(stubs, "libnvidia-ml.so.1").exists():
        return 77
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, PLIMSOLL_NVML=f"{stubs}/libnvidia-ml.so.1",
                   PLIMSOLL_STUB_LEDGER=folder)
        env.pop("PLIMSOLL_RUN_VRAM", None)
        nothing = json.loads(look([program, "top", "--json"], env))
        assert nothing["devices"] == [] and nothing["looked"][0]["found"], nothing
        one, two = User(stubs, folder), User(stubs, folder)
        try:
            one.take(512)
            two.take(1024)
            check(program, env, {one: 512, two: 1024}, stubs)
            one.take(256)
            two.take(2048, "fork")  # the child's, and it is gone
            said = check(program, env, {one: 768, two: 1024}, stubs)
            two.process.send_signal(signal.SIGKILL)
            two.process.wait()
            check(program, env, {one: 768}, stubs)
        finally:
            for user in (one, two):
                user.process.stdin.close()
                user.process.wait()
        left = os.listdir(folder)
        assert len(left) == 1, left  # that of the one that was killed
    print("the same of all processes: " + ", ".join(said))
    return 0


if __name__ == "__main__":
    sys.exit(main())
