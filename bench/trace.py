#!/usr/bin/env python3
"""trace.py -- how long `plimsoll replay` takes for a large trace of torch.profiler, and its memory.

    bench/trace.py build/plimsoll [MiB]

Writes a trace of about 100 MiB (in the layout of Kineto: ops and Python functions that enclose
one another, one event in eight about memory), replays it plain and in gzip three times each, and
prints the median time and the highest memory next to the size of the plain file.  PyTorch has no
tool that reads the memory of a trace, so Python's json.load is measured as well.
"""
import gzip
import json
import os
import pathlib
import random
import shutil
import sys
import tempfile

from snapshot import make_file, report

MODULES = [f"module_{i % 40}.py({i}): function_{i}" for i in range(2000)]
OPS = [f"aten::op_{i}" for i in range(150)]
SPAN = """  {
    "ph": "X", "cat": "%s", "name": "%s", "pid": 4711, "tid": %d,
    "ts": %.3f, "dur": %.3f,
    "args": {
      %s"Ev Idx": %d
    }
  }"""
MEMORY = """  {
    "ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]",
    "pid": 4711, "tid": %d,
    "ts": %.3f,
    "args": {
      "Total Reserved": %d,"Total Allocated": %d,"Bytes": %d,"Device Id": 0,"Device Type": 1,"Addr": %d,"Ev Idx": %d
    }
  }"""
SHAPES = ('"External id": 1,"Record function id": 0,"Concrete Inputs": ["", "", "[1, 1]"],"Input type": '
          '["float", "float", "ScalarList"],"Input Strides": [[4096, 1], [4096, 1], []],"Input Dims": '
          '[[64, 4096], [64, 4096], []],')


def write_trace(path, mib):
    """Each request has a segment of its own, of 20 MiB and more."""
    draw = random.Random(18)
    live, free, now, index, address = [], {}, 4369318097726.105, 0, 0x7f0000000000
    allocated = reserved = 0
    with open(path, "w", encoding="ascii") as f:
        f.write('{\n  "schemaVersion": 1,\n  "displayTimeUnit": "ms",\n  "traceEvents": [\n')
        while f.tell() < mib * 2**20:
            thread = 1 + index // 7 % 3
            for depth in range(3):
                f.write(SPAN % ("python_function", draw.choice(MODULES), thread, now + depth, 100 - 2 * depth,
                                '"Python parent id": 1,"Python id": 2,', index) + ",\n")
            for depth in range(3, 7):
                f.write(SPAN % ("cpu_op", draw.choice(OPS), thread, now + depth, 100 - 2 * depth, SHAPES, index) + ",\n")
            if live and draw.random() < 0.5:
                size, addr = live.pop(draw.randrange(len(live)))
                free.setdefault(size, []).append(addr)
                free[size].sort(reverse=True)
                size = -size
            else:
                size = draw.randrange(10, 40) * 2**21
                if not free.get(size):
                    free[size] = [address]
                    address += size
                    reserved += size
                addr = free[size].pop()
                live.append((size, addr))
            allocated += size
            f.write(MEMORY % (thread, now + 50, reserved, allocated, size, addr, index) + ",\n")
            now += 100
            index += 1
        f.write('  {"ph": "M", "name": "process_name", "pid": 4711, "args": {"name": "python"}}\n  ]\n}\n')
    with open(path, "rb") as f, gzip.open(path + ".gz", "wb", 6) as g:
        shutil.copyfileobj(f, g)


def bench(program, mib):
    with tempfile.TemporaryDirectory() as folder:
        path = str(pathlib.Path(folder) / "bench.pt.trace.json")
        size = make_file(write_trace, path, mib)
        print(f"trace, {size / 2**20:.0f} MiB, {os.path.getsize(path + '.gz') / 2**20:.0f} MiB in gzip")
        report("plimsoll replay", [program, "replay", path, "--quiet"], size, 3)
        report("plimsoll replay, gzip", [program, "replay", path + ".gz", "--quiet"], size, 3)
        report("json.load", [sys.executable, "-c", f"import json; json.load(open({json.dumps(path)}))"], size, 1)


if __name__ == "__main__":
    bench(sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 100)
