#!/usr/bin/env python3
"""`plimsoll record` over a CUDA build of PyTorch on the stub libraries: what its allocator has is what was recorded.

    torch_check.py PLIMSOLL

PLIMSOLL_TEST_CUDA_PYTHON names a Python with one; without it the test is skipped (77).
"""
import json
import os
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


def main(plimsoll):
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, more, conf in CASES:
            script, file = os.path.join(folder, "train.py"), os.path.join(folder, "file.plrec")
            with open(script, "w", encoding="utf-8") as f:
                f.write(SCRIPT.format(more=more))
            command = [plimsoll, "record", "-o", file, "--", plimsoll, "run", "--gpu", "a100-40g", "--",
                       os.environ["PLIMSOLL_TEST_CUDA_PYTHON"], script]
            ran = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf))
            out = subprocess.run([plimsoll, "replay", "--json", file], capture_output=True, text=True).stdout
            report, figures = json.loads(out), re.search(r"^figures (\d+) (\d+) (\d+)$", ran.stdout, re.M)
            if ran.returncode or not figures:
                print(f"FAIL {name}: {ran.stdout}{ran.stderr}")
                return 1
            device = report["devices"][0]
            parts = {p["library"] for p in report["parts"] if p["on_device"]}
            have = (device["at_end"], device["peak"], device["used"], device["context"] + device["at_end"], parts,
                    {p["way"] for p in report["parts"] if p["on_device"]}, "simulated one agrees" in ran.stdout)
            reserved, peak, used = map(int, figures.groups())
            want = (reserved, peak, used, used, {"libc10_cuda.so"}, {"mapped" if conf else "allocated"}, True)
            good = have == want and bool(report["oom"]) == (name == "oom")
            bad += not good
            print(("ok   " if good else "FAIL ") + f"{name}: {have}" + ("" if good else f", not {want}"), flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    if not os.environ.get("PLIMSOLL_TEST_CUDA_PYTHON"):
        print("skipped: PLIMSOLL_TEST_CUDA_PYTHON names no Python with a CUDA build of PyTorch")
        sys.exit(77)
    sys.exit(main(sys.argv[1]))
