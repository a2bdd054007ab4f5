#!/usr/bin/env python3
"""`plimsoll record` over programs that were built for CUDA, on the stub libraries.

    frameworks.py PLIMSOLL STUBS torch|llama

torch: what PyTorch's allocator has is what was recorded.  PLIMSOLL_TEST_CUDA_PYTHON names a Python with a CUDA build.
llama: the CUDA backend of llama.cpp, as tests/cuda_stub/llama.py runs it; PLIMSOLL_TEST_LLAMA as there.
Each is skipped (77) without.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SCRIPT = """
import torch
net = torch.nn.Sequential(torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)).cuda()
opt = torch.optim.AdamW(net.parameters())
for step in range(3):
    opt.zero_grad()
    net(torch.randn(64, 1024, device="cuda")).square().mean().backward()
    opt.step()
big = torch.empty(300 << 20, dtype=torch.uint8, device="cuda")
pinned = torch.empty(1 << 20, dtype=torch.uint8, pin_memory=True)
del big
{more}
free, total = torch.cuda.mem_get_info()
print("figures", torch.cuda.memory_reserved(), torch.cuda.max_memory_reserved(), total - free)
"""
OOM = """
try:
    torch.empty(1 << 40, dtype=torch.uint8, device="cuda")
except torch.OutOfMemoryError:
    print("oom")
"""
CASES = (("native", "", ""), ("emptied", "torch.cuda.empty_cache()", ""), ("oom", OOM, ""),
         ("expandable", "torch.cuda.empty_cache()", "expandable_segments:True"))


def expect(what, have, want):
    good = have == want
    print(("ok   " if good else "FAIL ") + f"{what}: {have}" + ("" if good else f", not {want}"), flush=True)
    return not good


def read(plimsoll, file):
    return json.loads(subprocess.run([plimsoll, "replay", "--json", file], capture_output=True, text=True).stdout)


def check_torch(plimsoll, _):
    bad, python = 0, os.environ["PLIMSOLL_TEST_CUDA_PYTHON"]
    version = subprocess.run([python, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True).stdout.strip()
    with tempfile.TemporaryDirectory() as folder:
        for name, more, conf in CASES:
            script, file = os.path.join(folder, "train.py"), os.path.join(folder, "file.plrec")
            with open(script, "w", encoding="utf-8") as f:
                f.write(SCRIPT.format(more=more))
            command = [plimsoll, "record", "-o", file, "--", plimsoll, "run", "--gpu", "a100-40g", "--",
                       python, script]
            ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf))
            report, figures = read(plimsoll, file), re.search(r"^figures (\d+) (\d+) (\d+)$", ran.stdout, re.M)
            if ran.returncode or not figures:
                print(f"FAIL {name}: {ran.stdout}{ran.stderr}")
                return 1
            device, parts = report["devices"][0], [p for p in report["parts"] if p["on_device"]]
            reserved, peak, used = map(int, figures.groups())
            bad += expect(f"{name}: reserved, at the end and at the peak", (device["at_end"], device["peak"]), (reserved, peak))
            bad += expect(f"{name}: in use", (device["context"] + device["at_end"], device["used"]), (used, used))
            bad += expect(f"{name}: by", {(p["library"], p["way"]) for p in parts}, {("libc10_cuda.so", "mapped" if conf else "allocated")})
            bad += expect(f"{name}: out of memory", bool(report["oom"]), name == "oom")
            bad += expect(f"{name}: the run is as without", "simulated one agrees" in ran.stdout, True)
            if version in ("3.11", "3.12", "3.13"):  # whose frames can be read
                bad += expect(f"{name}: lines", any(line["where"] == "train.py:9" for line in report["lines"]), True)
    return bad


def check_llama(plimsoll, stubs):
    script = pathlib.Path(__file__).resolve().parents[1] / "cuda_stub" / "llama.py"
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "file.plrec")
        ran = subprocess.run([plimsoll, "record", "-o", file, "--", sys.executable, str(script), stubs], capture_output=True, text=True)
        report = read(plimsoll, file)
    device = report["devices"][0]
    bad = expect("its own checks", ran.returncode, 0)
    bad += expect("held: a buffer of 3 GiB and a little", 3 << 30 < device["peak"] < (3 << 30) + (2 << 20), True)
    bad += expect("held at the end", (device["at_end"], device["used"] - device["context"]), (0, 0))
    bad += expect("by", {p["library"] for p in report["parts"] if p["on_device"]}, {"libggml-cuda.so"})
    bad += expect("allocations that failed", report["oom"]["failures"], 1)
    return bad


CHECKS = {"torch": (check_torch, "PLIMSOLL_TEST_CUDA_PYTHON"), "llama": (check_llama, "PLIMSOLL_TEST_LLAMA")}

if __name__ == "__main__":
    check, variable = CHECKS[sys.argv[3]]
    if not os.environ.get(variable):
        print(f"skipped: {variable} is not set")
        sys.exit(77)
    sys.exit(1 if check(*sys.argv[1:3]) else 0)
