#!/usr/bin/env python3
"""torchfile.py -- what a checkpoint holds: plimsoll and torch.load compared, time and memory.

    python bench/torchfile.py build/plimsoll [GIB]       (needs torch and GNU time; writes GIB, 1
                                                         unless told)

Each row is a whole process, as a user waits for it: the median of 5, the best, and the largest
resident memory that one of them had (by GNU time, since what Python starts begins with Python's).
The file is a checkpoint of a transformer with Adam; its bytes are in the page cache.  A second
one of 40 GB has holes instead of bytes.
"""

import os
import pathlib
import platform
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
import zlib

import torch

LOAD = "import torch; torch.load({path!r}, weights_only=True{more})"


def checkpoint(path, gib):
    """Layers of 12 tensors, and two states for each of them."""
    layers = max(1, int(gib * 2**30 / 3 / 4 / (12 * 1024**2)))
    shapes = [(1024, 1024)] * 4 + [(4096, 1024), (1024, 4096)] + [(1024,)] * 6
    model = {f"layers.{i}.{k}": torch.empty(s) for i in range(layers) for k, s in enumerate(shapes)}
    state = {i: {"step": torch.tensor(1.0), "exp_avg": torch.empty_like(t), "exp_avg_sq": torch.empty_like(t)}
             for i, t in enumerate(model.values())}
    groups = [{"lr": 1e-3, "betas": (0.9, 0.999), "params": list(state)}]
    torch.save({"model": model, "optimizer": {"state": state, "param_groups": groups}}, path)


def sparse(path, gb):
    """One tensor of so many GB: the archive of a hole (ZIP64), its checksum not computed."""
    numel = gb * 10**9 // 4
    pickle = (b"\x80\x02}X\1\0\0\0wctorch._utils\n_rebuild_tensor_v2\n((X\7\0\0\0storagectorch\nFloatStorage\n"
              b"X\1\0\0\0" b"0X\3\0\0\0cpu\x8a\x05" + numel.to_bytes(5, "little") + b"tQK\0\x8a\x05"
              + numel.to_bytes(5, "little") + b"\x85K\1\x85\x89}tRs.")
    entries = []
    with open(path, "wb") as f:
        for name, data, size in ((b"big/data.pkl", pickle, len(pickle)), (b"big/version", b"3\n", 2),
                                 (b"big/byteorder", b"little", 6), (b"big/data/0", b"", numel * 4)):
            entries.append((name, f.tell(), size, zlib.crc32(data)))
            extra = struct.pack("<HHQQ", 1, 16, size, size)
            f.write(struct.pack("<IHHHIIIIHH", 0x04034b50, 45, 0, 0, 0, zlib.crc32(data), 0xffffffff,
                                0xffffffff, len(name), len(extra)) + name + extra + data)
            f.seek(size - len(data), os.SEEK_CUR)
        start = f.tell()
        for name, at, size, crc in entries:
            extra = struct.pack("<HHQQQ", 1, 24, size, size, at)
            f.write(struct.pack("<IHHHHIIIIHHHHHII", 0x02014b50, 45, 45, 0, 0, 0, crc, 0xffffffff, 0xffffffff,
                                len(name), len(extra), 0, 0, 0, 0, 0xffffffff) + name + extra)
        end = f.tell()
        f.write(struct.pack("<IQHHIIQQQQ", 0x06064b50, 44, 45, 45, 0, 0, 4, 4, end - start, start))
        f.write(struct.pack("<IIQI", 0x07064b50, 0, end, 1))
        f.write(struct.pack("<IHHHHIIH", 0x06054b50, 0, 0, 4, 4, end - start, 0xffffffff, 0))


def measure(what, command):
    times, most = [], 0
    with tempfile.NamedTemporaryFile("r") as kib:
        for _ in range(5):
            start = time.perf_counter()
            done = subprocess.run(["/usr/bin/time", "-q", "-f", "%M", "-o", kib.name, *command],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            times.append(time.perf_counter() - start)
            if done.returncode:
                print(f"{what:<36} {done.stderr.strip().splitlines()[-1][:80]}")
                return
            kib.seek(0)
            most = max(most, int(kib.read()))
    print(f"{what:<36} {statistics.median(times) * 1000:>10.2f} ms median {min(times) * 1000:>10.2f} ms best "
          f"{most / 1024:>8.1f} MiB resident", flush=True)


def main():
    program, gib = sys.argv[1], float(sys.argv[2]) if len(sys.argv) > 2 else 1.0
    model = next((line.split(":")[1].strip() for line in open("/proc/cpuinfo") if "model name" in line), "")
    print(f"{model}, {os.cpu_count()} cores; Python {platform.python_version()}, torch {torch.__version__}")
    with tempfile.TemporaryDirectory() as folder:
        big, hole = (str(pathlib.Path(folder) / n) for n in ("big.pt", "hole.pt"))
        checkpoint(big, gib)
        sparse(hole, 40)
        with zipfile.ZipFile(big) as z:
            print(f"checkpoint: {os.path.getsize(big)} bytes, "
                  f"{sum('/data/' in n for n in z.namelist())} storages")
        python = sys.executable
        measure("plimsoll info", [program, "info", big])
        measure("plimsoll info, 40 GB", [program, "info", hole])
        measure("import torch", [python, "-c", "import torch"])
        measure("torch.load", [python, "-c", LOAD.format(path=big, more="")])
        measure("torch.load, mmap=True", [python, "-c", LOAD.format(path=big, more=", mmap=True")])
        measure("torch.load, map_location='meta'",
                [python, "-c", LOAD.format(path=big, more=", map_location='meta'")])


if __name__ == "__main__":
    main()
