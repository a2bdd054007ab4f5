#!/usr/bin/env python3
"""Measures what PyTorch really allocates on a CUDA card, for tests/golden/gpu/compare.py. One JSON line a run.

    python3 tests/golden/gpu/collect.py [--out FILE] [--suite mlp,cnn,sweep,infer,workspace,time] [--minutes 8]

Needs a GPU, torch and torchvision. Each run is a process of its own, so its allocator is clean: a fork of this one, which has imported
PyTorch but no context yet, and takes a second. Runs that FILE has are left out, so the script can be stopped and started again. Default FILE: tests/golden/gpu/CARD-torchVERSION.jsonl. A line has the settings in
plimsoll's words, versions (of CUDA, cuDNN, the driver), card, the counters requested, allocated, reserved after each phase and their peaks within it, and
cudaMemGetInfo before and after, from which the context follows. A line of the suite workspace has what cuDNN takes in the three passes
of each of 200 convolutions, for one kind of numbers, layout and setting of benchmark. A line of the suite time has the milliseconds of
20 steps, each between two CUDA events, after 5 that are not counted; the inputs are on the card, and nothing waits between steps.
"""
import argparse
import datetime
import functools
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

MLPS = ["mlp:3,300,300,400,300,100", "mlp:1024,4096,4096,1000:relu"]
CNNS = """alexnet vgg16 vgg16_bn resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet121 squeezenet1_1 mobilenet_v2
mobilenet_v3_large googlenet inception_v3 mnasnet1_0 shufflenet_v2_x1_0 efficientnet_b0 convnext_tiny vit_b_16 swin_t""".split()


PRECISIONS = ("fp32", "tf32", "bf16")


def convolutions():
    """200 shapes: (batch, channels in, channels out, side, kernel, stride, groups)."""
    out = []
    for batch in (8, 64):
        for side, channels in ((112, 32), (56, 64), (28, 128), (14, 256), (7, 512)):
            for kernel, stride in ((1, 1), (1, 2), (3, 1), (3, 2), (5, 1), (7, 2)):
                for wider in (1, 2, 4):
                    out.append((batch, channels, channels * wider, side, kernel, stride, 1))
            out.append((batch, channels, channels, side, 3, 1, channels // 16))
            out.append((batch, channels, channels, side, 3, 1, channels))
    return out


def suites():
    def run(model, batch, optimizer="sgd", **more):
        return dict(model=model, batch=batch, optimizer=optimizer, **more)

    return {
        "mlp": [run(MLPS[0], 10, loss="mse")] + [run(MLPS[1], 256, o) for o in (
            "sgd", "sgd,momentum=0.9", "adam", "adamw,impl=fused", "adam,impl=forloop", "rmsprop", "adagrad")],
        "cnn": [run(m, b, o) for m in CNNS for b, o in ((32, "sgd,momentum=0.9"), (64, "adamw"))],
        "bf16": [run(m, 64, "adamw", dtype="bf16") for m in ("resnet50", "convnext_tiny", "vit_b_16", "swin_t")],
        "sweep": [run("resnet50", b, "sgd,momentum=0.9") for b in (1, 2, 4, 8, 16, 48, 96, 128, 192)],
        "infer": [run(m, 32, infer=True) for m in CNNS],
        "time": [run(m, b, o, steps=20, **more)
                 for m, b in ((MLPS[1], 256), ("resnet50", 64), ("mobilenet_v2", 64), ("vit_b_16", 64))
                 for more in ({}, {"autocast": "fp16"}, {"autocast": "bf16"})
                 for o, more in (("sgd,momentum=0.9", more), ("adamw", more), ("sgd", dict(more, infer=True)))]
        + [run(m, b, o, steps=20, autocast="fp16", **more)  # with those of 64: where throughput stops growing
           for m in ("resnet50", "vit_b_16") for o, more in (("sgd,momentum=0.9", {}), ("sgd", {"infer": True}))
           for b in (1, 2, 4, 8, 16, 32, 128, 256)],
        "workspace": [run("convolutions", 0, workspace=p, channels_last=last, benchmark=search)
                      for p in PRECISIONS for last in (False, True) for search in (False, True)],
    }


# ---- one run -----------------------------------------------------------------------------------------------------------


def build(spec):
    """The model, and what makes one sample's input and target."""
    import torch
    from torch import nn

    name = spec["model"]
    if name.startswith("mlp:"):
        sizes, _, act = name[4:].partition(":")
        dims = [int(x) for x in sizes.split(",")]
        layers = []
        for i, (a, b) in enumerate(zip(dims, dims[1:])):
            layers += [nn.Linear(a, b)] + ([nn.ReLU()] if act == "relu" and i < len(dims) - 2 else [])
        return nn.Sequential(*layers), (dims[0],), dims[-1]
    import torchvision

    more = {"aux_logits": False, "init_weights": False} if name == "googlenet" else {"init_weights": False} if name == "inception_v3" else {}
    size = 299 if name == "inception_v3" else 224
    return getattr(torchvision.models, name)(weights=None, **more), (3, size, size), 1000


def optimizer(spec, params):
    import torch

    name, *options = spec["optimizer"].split(",")
    options = dict(o.split("=") for o in options)
    impl = {"foreach": {"foreach": True}, "forloop": {"foreach": False}, "fused": {"fused": True}}.get(options.pop("impl", ""), {})
    cls = {"sgd": "SGD", "adam": "Adam", "adamw": "AdamW", "rmsprop": "RMSprop", "adagrad": "Adagrad"}[name]
    return getattr(torch.optim, cls)(params, lr=1e-3, **{k: float(v) for k, v in options.items()}, **impl)


@functools.cache
def driver():
    """Of the first card; None where nvidia-smi does not say."""
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        return subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout.decode().split()[0]
    except (OSError, subprocess.CalledProcessError, IndexError):
        return None


def begin(spec):
    import torch

    free, total = torch.cuda.mem_get_info()
    return dict(spec=spec, date=str(datetime.date.today()), torch=torch.__version__, cuda=torch.version.cuda,
                cudnn=torch.backends.cudnn.version(), driver=driver(), card=torch.cuda.get_device_name(0),
                capability=list(torch.cuda.get_device_capability(0)), total=total, free_before=free)


def end(line):
    """What is left at the end; what is neither left nor reserved is the context."""
    import torch

    line["free_after"] = torch.cuda.mem_get_info()[0]
    line["reserved_after"] = torch.cuda.memory_reserved()
    print(json.dumps(line))


def took(run):
    """What run() has at its peak besides what it returns."""
    import torch

    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    kept = run()
    torch.cuda.synchronize()
    made = torch.cuda.memory_allocated() - before
    del kept
    return torch.cuda.max_memory_allocated() - before - made


def workspaces(spec):
    """Each convolution twice: what the second takes is what was chosen, what the first takes is the search."""
    import torch

    line = begin(spec)
    half = spec["workspace"] == "bf16"
    torch.backends.cudnn.allow_tf32 = spec["workspace"] == "tf32"
    torch.backends.cudnn.benchmark = spec["benchmark"]
    layout = torch.channels_last if spec["channels_last"] else torch.contiguous_format
    line["rows"] = []
    for shape in convolutions():
        batch, cin, cout, side, kernel, stride, groups = shape

        def tensor(*sizes):
            t = torch.zeros(*sizes, dtype=torch.bfloat16 if half else torch.float32, device="cuda")
            return t.contiguous(memory_format=layout)

        pad = [kernel // 2] * 2
        common = [[stride] * 2, pad, [1, 1], False, [0, 0], groups]
        x, w = tensor(batch, cin, side, side), tensor(cout, cin // groups, kernel, kernel)
        out = (side + 2 * pad[0] - kernel) // stride + 1
        dy = tensor(batch, cout, out, out)
        passes = {
            "forward": lambda: torch.ops.aten.convolution(x, w, None, *common),
            "grad_input": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *common, [True, False, False]),
            "grad_weight": lambda: torch.ops.aten.convolution_backward(dy, x, w, None, *common, [False, True, False]),
        }
        try:
            line["rows"].append(dict(shape=shape, **{name: [took(run), took(run)] for name, run in passes.items()}))
        except torch.cuda.OutOfMemoryError as e:
            line["rows"].append(dict(shape=shape, error=str(e)))
        del x, w, dy, passes
    line["status"] = "ok"
    end(line)


def times(spec):
    """The milliseconds of spec["steps"] steps. What is timed is between two events, and the program never waits."""
    import contextlib

    import torch
    from torch import nn

    line = begin(spec)
    try:
        model, size, classes = build(spec)
        train, batch = not spec.get("infer"), spec["batch"]
        model = model.cuda().train(train)
        opt = optimizer(spec, model.parameters())
        criterion = nn.CrossEntropyLoss()
        x, y = torch.randn(batch, *size).cuda(), torch.randint(classes, (batch,)).cuda()
        half = {"fp16": torch.float16, "bf16": torch.bfloat16}.get(spec.get("autocast"))

        def step():
            cast = torch.autocast("cuda", dtype=half) if half else contextlib.nullcontext()
            if not train:
                with torch.no_grad(), cast:
                    return model(x)
            opt.zero_grad()
            with cast:
                loss = criterion(model(x), y)
            loss.backward()
            opt.step()
            return loss

        for _ in range(5):
            step()
        marks = [torch.cuda.Event(enable_timing=True) for _ in range(spec["steps"] + 1)]
        marks[0].record()
        for mark in marks[1:]:
            step()
            mark.record()
        torch.cuda.synchronize()
        line["ms"] = [a.elapsed_time(b) for a, b in zip(marks, marks[1:])]
        line["ms_median"] = statistics.median(line["ms"])
        line["status"] = "ok"
    except torch.cuda.OutOfMemoryError as e:
        line["status"], line["error"] = "oom", str(e)
    end(line)


def one(spec):
    import torch
    from torch import nn

    if "workspace" in spec:
        return workspaces(spec)
    if "steps" in spec:
        return times(spec)
    line = dict(begin(spec), phases=[])
    peaks = dict(requested=0, allocated=0, reserved=0)

    def phase(step, name):
        torch.cuda.synchronize()
        s = torch.cuda.memory_stats()
        row = dict(step=step, phase=name)
        for k in peaks:
            row[k] = s.get(f"{k}_bytes.all.current", 0)
            row["peak_" + k] = s.get(f"{k}_bytes.all.peak", 0)
            peaks[k] = max(peaks[k], row["peak_" + k])
        line["phases"].append(row)
        torch.cuda.reset_peak_memory_stats()

    try:
        train, dtype = not spec.get("infer"), {"bf16": torch.bfloat16}.get(spec.get("dtype"), torch.float32)
        model, size, classes = build(spec)
        model = model.to(dtype).cuda().train(train)
        phase(0, "load")
        opt = optimizer(spec, model.parameters()) if train else None
        mse = spec.get("loss") == "mse"
        criterion = nn.MSELoss() if mse else nn.CrossEntropyLoss()
        batch = spec["batch"]
        for step in range(2):
            x = torch.randn(batch, *size).to(dtype).cuda()
            if train:
                y = (torch.randn(batch, classes).to(dtype) if mse else torch.randint(classes, (batch,))).cuda()
            phase(step, "inputs")
            if not train:
                with torch.no_grad():
                    out = model(x)
                phase(step, "forward")
                continue
            opt.zero_grad()
            out = model(x)
            phase(step, "forward")
            loss = criterion(out[0], y) + 0.4 * criterion(out[1], y) if isinstance(out, tuple) else criterion(out, y)
            phase(step, "loss")
            loss.backward()
            phase(step, "backward")
            opt.step()
            phase(step, "optimizer")
        line["status"] = "ok"
    except torch.cuda.OutOfMemoryError as e:
        line["status"], line["error"] = "oom", str(e)
    line.update({"peak_" + k: v for k, v in peaks.items()})
    end(line)


# ---- all runs --------------------------------------------------------------------------------------------------------------


def in_fork(run, *args):
    """What run() prints, in a process that begins as this one is; and how the process ended."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        os.dup2(write, 1)
        status = 1
        try:
            run(*args)
            sys.stdout.flush()
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read) as f:
        text = f.read()
    return text, os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def in_process(spec):
    """The same in a process from the beginning, which is for a parent that has a context already: the pretend GPU's."""
    run = subprocess.run([sys.executable, __file__, "--one", json.dumps(spec)], stdout=subprocess.PIPE, check=False)
    return run.stdout.decode(), run.returncode


def default_out():
    import torch

    name, _ = in_fork(lambda: print(torch.cuda.get_device_name(0)))  # which makes a context
    card = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")
    return HERE / f"{card}-torch{torch.__version__.split('+')[0]}.jsonl"


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", type=pathlib.Path)
    ap.add_argument("--suite", default="mlp,cnn,bf16,sweep,infer,workspace,time")
    ap.add_argument("--minutes", type=float, default=8)
    ap.add_argument("--one", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.one:
        return one(json.loads(args.one))
    import torch
    import torchvision  # noqa: F401  here, not in each fork

    start = in_process if torch.cuda.is_initialized() else functools.partial(in_fork, one)
    driver()
    out = args.out or default_out()
    done = [json.loads(line)["spec"] for line in out.read_text().splitlines()] if out.exists() else []
    end = time.time() + 60 * args.minutes
    for spec in [s for name in args.suite.split(",") for s in suites()[name] if s not in done]:
        if time.time() > end:
            print("out of time: run it again for the rest")
            return 1
        text, code = start(spec)
        lines = [x for x in text.splitlines() if x.startswith("{")]
        line = lines[-1] if lines else json.dumps(dict(spec=spec, status="error", error=f"exit {code}"))
        with open(out, "a") as f:
            f.write(line + "\n")
        r = json.loads(line)
        print(spec["model"], spec["batch"], spec["optimizer"], r["status"], r.get("peak_allocated"), r.get("peak_reserved"), r.get("ms_median"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
