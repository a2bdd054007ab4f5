#!/usr/bin/env python3
"""snapshot.py -- how long `plimsoll replay` takes for a large memory snapshot, and its memory.

    bench/snapshot.py build/plimsoll [MiB]

Writes snapshots of about 100 MiB (as _dump_snapshot would: C pickler, default protocol, stacks
of 24 frames), one whose stacks share their frames, as PyTorch's do, and one in which each frame
is written out, as in files that were changed afterwards.  Replays each three times, and prints
the median time and the highest memory next to the size of the file.  If torch can be imported,
its own _memory_viz.py reads the first for comparison.
"""
import importlib.util
import multiprocessing
import os
import pathlib
import pickle
import random
import subprocess
import sys
import tempfile
import time

DEPTH = 24
FRAMES = [{"name": f"function_{i}", "filename": f"/home/user/project/module_{i % 40}.py", "line": i}
          for i in range(3000)]
STACKS = 4000  # a program that trains comes back to the same lines


def copy_frames(stack):
    """Frames that are no other stack's, nor are the names of their files."""
    return [{"name": f["name"], "filename": f["filename"][:1] + f["filename"][1:], "line": f["line"]} for f in stack]


def make_snapshot(mib, shared):
    """Each request has a segment of its own, so the addresses are those that PyTorch takes."""
    draw = random.Random(18)
    trace, live, address = [], [], 0x7f0000000000
    stacks = [draw.sample(FRAMES, DEPTH) for _ in range(STACKS)]
    free = {}

    def add(action, addr, size):
        trace.append({"action": action, "addr": addr, "size": size, "stream": 0,
                      "time_us": 1760000000000000 + len(trace), "compile_context": "N/A",
                      "user_metadata": "", "pool_id": tuple([0, 0]),
                      "frames": (list if shared else copy_frames)(draw.choice(stacks))})
    count = int(mib * 2**20 / (212 if shared else 1700))  # about this many bytes for an action
    while len(trace) < count:
        if live and draw.random() < 0.48:
            addr, size = live.pop(draw.randrange(len(live)))
            add("free_requested", addr, size)
            add("free_completed", addr, size)
            free.setdefault(size, []).append(addr)
            free[size].sort(reverse=True)
            continue
        size = draw.randrange(5, 40) * 2**21
        if not free.get(size):
            free[size] = [address]
            add("segment_alloc", address, size)
            address += size
        add("alloc", free[size].pop(), size)
        live.append((trace[-1]["addr"], size))
    held = dict(live)
    segments = [{"device": 0, "address": e["addr"], "total_size": e["size"], "stream": 0, "segment_type": "large",
                 "segment_pool_id": (0, 0), "is_expandable": False, "frames": [],
                 "blocks": [{"address": e["addr"], "size": e["size"], "requested_size": e["size"], "frames": [],
                             "state": "active_allocated" if e["addr"] in held else "inactive"}]}
                for e in trace if e["action"] == "segment_alloc"]
    return {"segments": segments, "device_traces": [trace],
            "allocator_settings": {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:20"}}


def measure(command):
    """Seconds, those of the processor, and the highest resident memory of a command."""
    begin = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status):
        sys.exit(f"{command[0]} ended with {os.waitstatus_to_exitcode(status)}")
    return time.monotonic() - begin, usage.ru_utime + usage.ru_stime, usage.ru_maxrss * 1024


def report(name, command, size, runs):
    done = sorted(measure(command) for _ in range(runs))
    seconds, busy, memory = done[len(done) // 2]
    print(f"{name:32} {seconds:6.2f} s, {busy:.2f} s of the processor ({size / busy / 1e6:.0f} MB/s); "
          f"{memory / 2**20:.0f} MiB, {memory / size:.2f} times the file", flush=True)


def write_snapshot(path, mib, shared):
    with open(path, "wb") as f:
        pickle.dump(make_snapshot(mib, shared), f)


def make_file(write, path, *how):
    """In a process of its own: what starts from a large one counts as large."""
    writer = multiprocessing.get_context("spawn").Process(target=write, args=(path, *how))
    writer.start()
    writer.join()
    return os.path.getsize(path)


def bench(program, mib):
    found = importlib.util.find_spec("torch")
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "snapshot.pickle")
        for shared in True, False:
            size = make_file(write_snapshot, path, mib, shared)
            print(f"snapshot, {size / 2**20:.0f} MiB, {'shared frames' if shared else 'each frame written out'}")
            report("plimsoll replay", [program, "replay", path, "--quiet"], size, 3)
            if found and shared:
                viz = pathlib.Path(found.origin).parent / "cuda" / "_memory_viz.py"
                report("_memory_viz.py", [sys.executable, str(viz), "trace_plot", path, "-o", os.devnull], size, 1)


if __name__ == "__main__":
    bench(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 100)
