#!/usr/bin/env python3
"""Measures what PyTorch really allocates on a CUDA card, for tests/golden/gpu/compare.py. One JSON line a run.

    python3 tests/golden/gpu/collect.py [--out FILE] [--suite mlp,cnn,sweep,infer] [--minutes 8]

Needs a GPU, torch and torchvision. Each run is a process of its own, so its allocator is clean; runs that FILE has are left out, so
the script can be stopped and started again. Default FILE: tests/golden/gpu/CARD-torchVERSION.jsonl. A line has the settings in
plimsoll's words, versions, card, the counters requested, allocated, reserved after each phase and their peaks within it, and
cudaMemGetInfo before and after, from which the context follows.
"""
import argparse
import datetime
import json
import pathlib
import re
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent

MLPS = ["mlp:3,300,300,400,300,100", "mlp:1024,4096,4096,1000:relu"]
CNNS = """alexnet vgg16 vgg16_bn resnet18 resnet50 wide_resnet50_2 resnext50_32x4d densenet121 squeezenet1_1 mobilenet_v2
mobilenet_v3_large googlenet inception_v3 mnasnet1_0 shufflenet_v2_x1_0 efficientnet_b0 convnext_tiny vit_b_16 swin_t""".split()


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


def one(spec):
    import torch
    from torch import nn

    free, total = torch.cuda.mem_get_info()
    line = dict(spec=spec, date=str(datetime.date.today()), torch=torch.__version__, card=torch.cuda.get_device_name(0),
                capability=list(torch.cuda.get_device_capability(0)), total=total, free_before=free, phases=[])
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
    line.update({"peak_" + k: v for k, v in peaks.items()}, free_after=torch.cuda.mem_get_info()[0])
    print(json.dumps(line))


# ---- all runs --------------------------------------------------------------------------------------------------------------


def default_out():
    import torch

    card = re.sub(r"[^a-z0-9]+", "-", torch.cuda.get_device_name(0).lower()).strip("-")
    return HERE / f"{card}-torch{torch.__version__.split('+')[0]}.jsonl"


def main():
    ap = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    ap.add_argument("--out", type=pathlib.Path)
    ap.add_argument("--suite", default="mlp,cnn,bf16,sweep,infer")
    ap.add_argument("--minutes", type=float, default=8)
    ap.add_argument("--one", help=argparse.SUPPRESS)
    args = ap.parse_args()
    if args.one:
        return one(json.loads(args.one))
    out = args.out or default_out()
    done = [json.loads(line)["spec"] for line in out.read_text().splitlines()] if out.exists() else []
    end = time.time() + 60 * args.minutes
    for spec in [s for name in args.suite.split(",") for s in suites()[name] if s not in done]:
        if time.time() > end:
            print("out of time: run it again for the rest")
            return 1
        run = subprocess.run([sys.executable, __file__, "--one", json.dumps(spec)], stdout=subprocess.PIPE, check=False)
        lines = [x for x in run.stdout.decode().splitlines() if x.startswith("{")]
        line = lines[-1] if lines else json.dumps(dict(spec=spec, status="error", error=f"exit {run.returncode}"))
        with open(out, "a") as f:
            f.write(line + "\n")
        r = json.loads(line)
        print(spec["model"], spec["batch"], spec["optimizer"], r["status"], r.get("peak_allocated"), r.get("peak_reserved"), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
