#!/usr/bin/env python3
"""record.py -- writes snapshots of what PyTorch's own allocator did.

    record.py PLIMSOLL PYTHON FOLDER [CASE...]     PYTHON has a CUDA build of PyTorch

FOLDER/CASE-VERSION.pickle is torch.cuda.memory._snapshot() of a CUDA build of PyTorch on plimsoll's
stub CUDA libraries: its caching allocator is PyTorch's compiled code, only cudaMalloc and the driver
are replaced.  Of each stack the two innermost frames are kept, of a training step those of this
file, with the file's name only.
compare.py replays all that a folder has.

Those in this folder were made on 2026-11-23 with torch 2.4.1+cu121, 2.5.1+cu124, 2.6.0+cu124,
2.7.1+cu126, 2.8.0+cu128, 2.9.1+cu128, 2.10.0+cu128, 2.11.0+cu130, 2.12.0+cu130, 2.13.0+cu130,
2.14.1+cu130 and 2.15.0+cu132 from PyPI, with Python 3.11.  Of all cases of all these versions they
are a choice: each case but the networks, and each version, is there at least once.
"""
import os
import pathlib
import pickle
import random
import subprocess
import sys

MIB = 1 << 20
EXPANDABLE = "expandable_segments:True"
CASES = {  # name: (function, card, settings, protocol of the pickle)
    "native": ("steps", "4GiB", "", 4),
    "expandable": ("steps", "4GiB", EXPANDABLE, 5),
    "rounded": ("steps", "4GiB", "max_split_size_mb:32,roundup_power2_divisions:4", 2),
    "oom": ("fragment", "1500MiB", "", 3),
    "oom-expandable": ("fragment", "1500MiB", EXPANDABLE, 3),
    "streams": ("streams", "4GiB", "", 4),
    "streams-expandable": ("streams", "4GiB", EXPANDABLE, 4),
    "graphs": ("graphs", "4GiB", "", 4),
    "graphs-expandable": ("graphs", "4GiB", EXPANDABLE, 4),
    "mempool": ("mempool", "4GiB", "", 4),
    "random": ("random_requests", "3GiB", "", 5),
    "random-expandable": ("random_requests", "3GiB", EXPANDABLE, 5),
    "train": ("train", "4GiB", "", 4),
    "train-kept": ("train_kept", "4GiB", "", 4),
    "network": ("network", "4GiB", "", 5),
}


def block(size):
    import torch
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def steps(torch):
    weights = [block(n) for n in (512, 3 * MIB, 11 * MIB + 5, 700_001)]
    for step in range(3):
        kept = [block((1 + i) * 900_001 + step) for i in range(8)]
        while kept:
            grad = block(2 * MIB + len(kept))
            kept.pop()
            del grad
        if step == 1:
            torch.cuda.empty_cache()
    return weights


def fragment(torch):
    held = []
    try:
        while True:
            held.append(block(6 * MIB))
    except torch.OutOfMemoryError:
        pass
    del held[::2]
    try:
        block(40 * MIB)
    except torch.OutOfMemoryError:
        return held
    raise AssertionError("the request must fail")


def streams(torch):
    """Blocks of one stream that another uses, by record_stream, and that pass from one to another."""
    here, side, third = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    kept = []
    for i in range(4):
        with torch.cuda.stream(side):
            x = block(3 * MIB + i)
            small = block(700 + i)
        y = block(2 * MIB + i)
        x.record_stream(here)
        x.record_stream(third)
        y.record_stream(side)
        here.wait_stream(side)
        with torch.cuda.stream(third):
            third.wait_event(here.record_event())
            z = x.to(torch.int16)
        del x, small
        kept.append(block(1000 + i))
        z.record_stream(here)
        if i % 2:
            kept.append(z)
        del y, z
    torch.cuda.synchronize()
    kept.append(block(5))
    return kept


def graphs(torch):
    """Two graphs that share a pool, with a stream that joins, and one with a pool of its own that is dropped."""
    side = torch.cuda.Stream()
    kept, shared = [block(3 * MIB), block(100)], None
    for i in range(2):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=shared):
            x = block(5 * MIB + i)
            y = block(600_000)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                z = block(2 * MIB)
                y.record_stream(side)
            torch.cuda.current_stream().wait_stream(side)
            del y
            w = block(40 + i)
            del z
        shared = graph.pool()
        kept += [graph, x, w]
        kept.append(block(1000 + i))
        graph.replay()
        torch.cuda.empty_cache()
    dropped = torch.cuda.CUDAGraph()
    with torch.cuda.graph(dropped):
        x = block(30 * MIB)
    dropped.replay()
    del x
    kept += [block(1 * MIB), block(30 * MIB)]
    dropped.reset()
    torch.cuda.empty_cache()
    kept.append(block(31 * MIB))
    return kept


def mempool(torch):
    pool = torch.cuda.MemPool()
    kept = [pool, block(3 * MIB)]
    for i in range(3):
        with torch.cuda.use_mem_pool(pool):
            x = block(4 * MIB + i)
            kept.append(block(512 + i))
        y = block(4 * MIB + i)
        del x
        kept.append(y)
        torch.cuda.empty_cache()
    return kept


def random_requests(torch):
    draw = random.Random(7)
    streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
    held = []
    for _ in range(150):
        if draw.random() < 0.55:
            size = draw.randrange(1, draw.choice([4096, MIB, 12 * MIB, 128 * MIB]))
            try:
                with torch.cuda.stream(draw.choice(streams)):
                    held.append(block(size))
                if draw.random() < 0.2:
                    held[-1].record_stream(draw.choice(streams))
            except torch.OutOfMemoryError:
                del held[::2]
        elif held:
            del held[draw.randrange(len(held))]
        if draw.random() < 0.01:
            torch.cuda.empty_cache()
    return held


def train(torch, history=None):
    """Two steps of the built-in model mlp, batch 8, AdamW; `history` keeps the outputs."""
    linear = torch.nn.Linear
    model = torch.nn.Sequential(linear(3, 300), linear(300, 300), linear(300, 400), linear(400, 300),
                                linear(300, 100)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(2):
        new_x, new_y = torch.zeros(8, 3).cuda(), torch.zeros(8, dtype=torch.int64).cuda()
        x = new_x
        y = new_y
        del new_x, new_y
        optimizer.zero_grad()
        out = model(x)
        loss = torch.nn.functional.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        if history is not None:
            history.append(out)
    return model, optimizer, x, y, out, loss, history


def train_kept(torch):
    return train(torch, [])


def network(torch):
    """Steps of a small network with attention, as PyTorch's own code requests its memory."""
    layer = torch.nn.TransformerEncoderLayer(256, 4, 1024, dropout=0.1, batch_first=True, device="cuda")
    head = torch.nn.Linear(256, 1000, device="cuda")
    weights = [*layer.parameters(), *head.parameters()]
    optimizer = torch.optim.AdamW(weights, lr=1e-3)
    target = torch.zeros(8 * 100, dtype=torch.long, device="cuda")
    for step in range(3):
        x = torch.zeros(8, 100, 256, device="cuda")
        loss = torch.nn.functional.cross_entropy(head(layer(x)).view(-1, 1000), target)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(weights, 1.0)
        optimizer.step()
        optimizer.zero_grad()
    return weights, optimizer


def strip(frames, work):
    if work.startswith("train"):
        frames[:] = [f for f in frames if os.path.basename(f["filename"]) == "record.py"]
    del frames[2:]
    for f in frames:
        f["filename"] = os.path.basename(f["filename"])


def run_case(name, folder):
    import torch
    work, _, _, protocol = CASES[name]
    if work == "mempool" and not hasattr(torch.cuda, "MemPool"):
        return
    torch.cuda.memory._record_memory_history()
    kept = globals()[work](torch)
    snapshot = torch.cuda.memory._snapshot()
    for e in snapshot["device_traces"][0] + snapshot["segments"]:
        strip(e.get("frames", []), work)
    for segment in snapshot["segments"]:
        for b in segment["blocks"]:
            strip(b["frames"], work)
    version = ".".join(torch.__version__.split(".")[:2])
    with open(pathlib.Path(folder) / f"{name}-{version}.pickle", "wb") as f:
        pickle.dump(snapshot, f, protocol)
    del kept


def main():
    if sys.argv[1] == "run":
        return run_case(*sys.argv[2:])
    program, python, folder, *names = sys.argv[1:]
    for name in names or CASES:
        _, card, conf, _ = CASES[name]
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
        done = subprocess.run([program, "run", "--vram", card, "--", python, __file__, "run", name, folder], check=False,
                              env=env, capture_output=True, text=True)
        if done.returncode:
            print(f"{name}: exit status {done.returncode}: {done.stderr.strip().splitlines()[-1:]}")


if __name__ == "__main__":
    main()
