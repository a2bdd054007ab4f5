"""Runs the scripts of scripts/, one after the other: each as a program of its own, on a card that the
one before has left empty.  Prints a line of JSON of each: what of the card it took, and how long."""
import contextlib
import gc
import importlib.util
import io
import json
import pathlib
import re
import runpy
import time

import torch


def left_over():
    gc.collect()
    torch._C._cuda_clearCublasWorkspaces()
    torch.cuda.empty_cache()
    return torch.cuda.memory_stats()["requested_bytes.all.current"]


def run(path):
    out, start = io.StringIO(), time.perf_counter()
    torch.cuda.reset_peak_memory_stats()
    error = None
    try:
        with contextlib.redirect_stdout(out):
            runpy.run_path(str(path), run_name="__main__")
    except Exception as e:
        error = f"{type(e).__name__}: {e}"
    peak = torch.cuda.memory_stats()["requested_bytes.all.peak"]
    return {"script": path.name, "peak": peak, "seconds": time.perf_counter() - start,
            "printed": len(out.getvalue()), "error": error, "left": left_over()}


def needs(path):
    """The packages that a script names."""
    named = re.search(r"^# needs: (.*)$", path.read_text(), re.M)
    return named[1].split() if named else []


torch.cuda.init()  # without which PyTorch has no statistics
left_over()
folder = pathlib.Path(__file__).parent / "scripts"
for path in sorted(folder.glob("*.py"), key=lambda path: (needs(path), path.name)):
    if all(map(importlib.util.find_spec, needs(path))):
        print(json.dumps(run(path)), flush=True)
