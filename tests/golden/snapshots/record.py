#!/usr/bin/env python3
"""record.py -- writes the snapshots of this folder: what PyTorch's own allocator did.

    record.py PLIMSOLL PYTHON [NAME...]     PYTHON has a CUDA build of PyTorch

Each snapshot is torch.cuda.memory._snapshot() of a CUDA build of PyTorch on plimsoll's stub
CUDA libraries: its caching allocator is PyTorch's compiled code, only cudaMalloc and the driver
are replaced.  Of each stack the two innermost frames are kept, of a training step those of this
file, with the file's name only.

Made with torch 2.13.0+cu130 on 2026-11-22; train and train_kept on 2026-11-23.
"""
import os
import pathlib
import pickle
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20
CASES = {  # name: (function, card, settings, protocol of the pickle)
    "native": ("steps", "4GiB", "", 4),
    "expandable": ("steps", "4GiB", "expandable_segments:True", 5),
    "rounded": ("steps", "4GiB", "max_split_size_mb:32,roundup_power2_divisions:4", 2),
    "oom": ("fragment", "1500MiB", "", 3),
    "streams": ("streams", "4GiB", "", 4),
    "random": ("random_requests", "3GiB", "", 5),
    "train": ("train", "4GiB", "", 4),
    "train_kept": ("train_kept", "4GiB", "", 4),
}


def run_case(name):
    import torch

    def block(size):
        return torch.empty(size, dtype=torch.uint8, device="cuda")

    def steps():
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

    def fragment():
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

    def streams():
        side = torch.cuda.Stream()
        kept = []
        for i in range(4):
            with torch.cuda.stream(side):
                x = block(3 * MIB + i)
            y = block(2 * MIB + i)
            x.record_stream(torch.cuda.current_stream())
            y.record_stream(side)
            kept.append(block(1000 + i))
            del x, y
        return kept

    def random_requests():
        import random
        draw = random.Random(7)
        streams = [torch.cuda.current_stream(), torch.cuda.Stream()]
        held = []
        for i in range(400):
            if draw.random() < 0.55:
                size = draw.randrange(1, draw.choice([4096, MIB, 12 * MIB, 128 * MIB]))
                try:
                    with torch.cuda.stream(draw.choice(streams)):
                        held.append(block(size))
                except torch.OutOfMemoryError:
                    del held[::2]
            elif held:
                del held[draw.randrange(len(held))]
        return held

    def train(history=None):
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

    def train_kept():
        return train([])

    def strip(frames):
        if work.startswith("train"):
            frames[:] = [f for f in frames if os.path.basename(f["filename"]) == "record.py"]
        del frames[2:]
        for f in frames:
            f["filename"] = os.path.basename(f["filename"])

    work, _, _, protocol = CASES[name]
    kept = locals()[work]()
    snapshot = torch.cuda.memory._snapshot()
    for e in snapshot["device_traces"][0] + snapshot["segments"]:
        strip(e.get("frames", []))
    for segment in snapshot["segments"]:
        for b in segment["blocks"]:
            strip(b["frames"])
    with open(HERE / f"{name}.pickle", "wb") as f:
        pickle.dump(snapshot, f, protocol)
    del kept


def main():
    if len(sys.argv) == 2:
        return run_case(sys.argv[1])
    program, python, *names = sys.argv[1:]
    for name in names or CASES:
        _, card, conf, _ = CASES[name]
        env = dict(os.environ, PYTORCH_CUDA_ALLOC_CONF=conf)
        subprocess.run([program, "run", "--vram", card, "--", python, __file__, name], check=False, env=env,
                       stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
