#!/usr/bin/env python3
"""files.py BUILD [--check] -- what it takes to open large files of weights, and large recordings.

Makes the files of tools/sparse.py in a temporary folder and lists them with plimsoll and,
where they are installed, with the Python packages that these formats have (safetensors,
gguf, onnx), whole processes each, start to answer.  BENCH_PYTHON: a Python that has them.  Recordings are
those of snapshot.py and trace.py.

--check, for ctest: what is listed is what was written, and no more is resident than
weights that were never touched allow.  Exits with 77 where files cannot have holes.
"""

import json
import os
import pathlib
import re
import resource
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
PYTHON = os.environ.get("BENCH_PYTHON") or sys.executable
RUNS = 21
MOST_MIB = 12

# As their documentation says to: every tensor's name, shape and type.
PACKAGES = {
    "safetensors": "from safetensors import safe_open\n"
                   "with safe_open(sys.argv[1], 'np') as f:\n"
                   "    parts = {k: f.get_slice(k) for k in f.keys()}\n"
                   "    print([(k, p.get_shape(), p.get_dtype()) for k, p in parts.items()])\n",
    "gguf": "from gguf import GGUFReader\n"
            "print([(t.name, t.shape, t.tensor_type, t.n_bytes)\n"
            "       for t in GGUFReader(sys.argv[1]).tensors])\n",
    "onnx": "import onnx\n"
            "print([(t.name, t.dims, t.data_type)\n"
            "       for t in onnx.load(sys.argv[1]).graph.initializer])\n",
}


def files(folder):
    """(path, bytes, tensors, bytes of tensors) of each."""
    out = subprocess.run([sys.executable, ROOT / "tools" / "sparse.py", folder], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    for line in out.splitlines():
        path, *numbers = line.rsplit(" ", 3)
        yield (pathlib.Path(path), *map(int, numbers))


def measure(build, *command, runs=RUNS):
    """(best ms, ms of CPU, MiB resident) of a command.  Other jobs do not change the
    second."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    out = subprocess.run([build / "bench_estimate", str(runs), *command], check=True,
                         stdout=subprocess.PIPE, text=True).stdout
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    best, resident = re.findall(r"([\d.]+) (?:ms best|MiB)", out)
    return float(best), cpu * 1000 / runs, float(resident)


def show(what, figures):
    print("%-50s %9.2f ms best %9.2f ms CPU %7.2f MiB resident" % (what, *figures))


def bench(build, folder):
    for path, size, _, _ in files(folder):
        kind = path.suffix[1:]
        name = "%s, %.1f GB" % (path.name, size / 1e9)
        show("info " + name, measure(build, build / "plimsoll", "info", "--quiet", path))
        has = subprocess.run([PYTHON, "-c", "import " + kind], stderr=subprocess.DEVNULL)
        if has.returncode:
            print("python, %s: not installed" % kind)
            continue
        show("python, import %s" % kind,
             measure(build, PYTHON, "-c", "import sys, %s" % kind, path, runs=5))
        show("python, %s %s" % (kind, name),
             measure(build, PYTHON, "-c", "import sys\n" + PACKAGES[kind], path, runs=5))


def bench_recordings(build):
    import snapshot
    import trace  # pylint: disable=import-error
    for recording in snapshot, trace:
        recording.bench(str(build / "plimsoll"), 100)


def check(build, folder):
    bad = 0
    for path, size, tensors, weights in files(folder):
        if path.stat().st_blocks * 512 > size // 100:
            print("no holes in files here")
            return 77
        out = subprocess.run([build / "plimsoll", "info", "--json", path], check=True,
                             stdout=subprocess.PIPE, text=True).stdout
        held = json.loads(out)
        got = (len(held["tensors"]), sum(t["bytes"] for t in held["tensors"]))
        resident = measure(build, build / "plimsoll", "info", path, runs=3)[-1]
        print("%s: %d tensors, %d bytes, %.2f MiB resident" % (path.name, *got, resident))
        if got != (tensors, weights) or resident > MOST_MIB:
            print("not so: %d tensors, %d bytes, %d MiB at most" % (tensors, weights, MOST_MIB))
            bad = 1
    return bad


def main():
    if len(sys.argv) < 2:
        sys.exit(__doc__)
    build = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as folder:
        if "--check" in sys.argv:
            return check(build, folder)
        bench(build, folder)
    bench_recordings(build)
    return 0


if __name__ == "__main__":
    sys.exit(main())
