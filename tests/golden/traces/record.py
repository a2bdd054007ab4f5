#!/usr/bin/env python3
"""record.py -- writes the traces of this folder: what torch.profiler recorded.

    record.py PLIMSOLL PYTHON       PYTHON has a CUDA build of PyTorch

Each trace is the profiler's, with profile_memory=True, of a CUDA build of PyTorch on plimsoll's
stub CUDA libraries: its caching allocator is PyTorch's compiled code, only cudaMalloc and the
driver are replaced.  peaks.txt has what torch.cuda.memory_stats() says then.  Of the
functions of Python those of this script and of torch.nn are kept, and nothing else is changed,
but that the JSON is written again without spaces; steps.pt.trace.json.gz is as it was written.

Made with torch 2.13.0+cu130 on 2026-11-23.
"""
import glob
import json
import os
import pathlib
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
CASES = {  # name: (function, device, card, whether Python functions are recorded)
    "cpu": ("train", "cpu", None, False),
    "cuda": ("train", "cuda", "4GiB", True),
    "random": ("random_requests", "cuda", "4GiB", False),
    "expandable": ("train", "cuda", "4GiB", False),
    "oom": ("fragment", "cuda", "1500MiB", True),
    "steps": ("train", "cuda", "4GiB", False),
}


def make_work(device):
    import torch

    def block(size):
        return torch.empty(size, dtype=torch.uint8, device=device)

    def forward(net, x):
        return net(x).sum()

    def train(steps=1, done=lambda: None):
        net = torch.nn.Sequential(torch.nn.Linear(1000, 2000), torch.nn.ReLU(), torch.nn.Linear(2000, 10)).to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
        for _ in range(steps):
            x = torch.ones(512, 1000, device=device)
            with torch.profiler.record_function("my_forward"):
                loss = forward(net, x)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            done()
        return net, optimizer

    def fragment():
        held = []
        try:
            while True:
                held.append(block(60 * MIB))
        except torch.OutOfMemoryError:
            return held[::2]

    def random_requests():
        import random
        draw = random.Random(7)
        held = []
        for i in range(100):
            if draw.random() < 0.6:
                held.append(block(draw.randrange(1, draw.choice([4096, MIB, 12 * MIB, 64 * MIB]))))
            elif held:
                del held[draw.randrange(len(held))]
            if i == 60:
                del held[::2]
                torch.cuda.empty_cache()
        return held

    return {"train": train, "fragment": fragment, "random_requests": random_requests}


def keep_event(e):
    return e.get("cat") != "python_function" or e["name"].startswith(("record.py(", "nn.Module: "))


def run_case(name, folder):
    import torch
    from torch.profiler import ProfilerActivity, profile, schedule, tensorboard_trace_handler
    work, device, _, stack = CASES[name]
    call = make_work(device)[work]
    path = os.path.join(folder, name + ".json")
    if name == "steps":  # as most people record: some steps of a run that has begun
        with profile(activities=[ProfilerActivity.CPU], profile_memory=True, schedule=schedule(wait=1, warmup=1, active=1),
                     on_trace_ready=tensorboard_trace_handler(folder, "steps", use_gzip=True)) as p:
            call(3, p.step)
        os.replace(glob.glob(os.path.join(folder, "steps.*.gz"))[0], HERE / "steps.pt.trace.json.gz")
        return
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True, with_stack=stack) as p:
        kept = call()
    p.export_chrome_trace(path)
    with open(path, encoding="utf-8") as f:
        trace = json.load(f)
    trace["traceEvents"] = [e for e in trace["traceEvents"] if keep_event(e)]
    with open(HERE / (name + ".json"), "w", encoding="utf-8") as f:
        lines = ",\n".join(json.dumps(e, separators=(",", ":")) for e in trace.pop("traceEvents"))
        f.write(json.dumps(trace)[:-1] + ', "traceEvents": [\n' + lines + "\n]}\n")
    if device == "cuda":
        stats = torch.cuda.memory_stats()
        with open(HERE / "peaks.txt", "a", encoding="utf-8") as f:
            f.write(f"{name} {stats['allocated_bytes.all.peak']} {stats['reserved_bytes.all.peak']} "
                    f"{stats['allocated_bytes.all.current']} {stats['reserved_bytes.all.current']}\n")
    del kept


def main():
    if len(sys.argv) == 4:
        return run_case(sys.argv[1], sys.argv[3])
    program, python = sys.argv[1:]
    with open(HERE / "peaks.txt", "w", encoding="utf-8") as f:
        f.write("# torch.cuda.memory_stats(): name, peak allocated, peak reserved, allocated and reserved at the end\n")
    with tempfile.TemporaryDirectory() as folder:
        for name, (_, device, card, _) in CASES.items():
            conf = "expandable_segments:True" if name == "expandable" else ""
            run = [program, "run", "--vram", card, "--"] if device == "cuda" else []
            subprocess.run([*run, python, __file__, name, "in", folder], check=False, stdout=subprocess.DEVNULL,
                           env=dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf))


if __name__ == "__main__":
    main()
