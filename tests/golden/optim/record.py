#!/usr/bin/env python3
"""Records what the constructor and three steps of each optimizer ask for, for tests/unit/test_golden_optim.c.

    python3 tests/golden/optim/record.py                 (writes events.txt beside it)

Needs torch (any build; it runs on the CPU) and g++ for tracer.cpp, which writes down what the CPU allocator is asked for. Three parameters of different sizes have
gradients from the start. Requests below 64 bytes (step counters, learning rates: CPU tensors unless fused) are left out.

    torch VERSION
    case OPTIMIZER,OPTIONS       as plimsoll's --optimizer
    step N                       0: the constructor
    + BYTES | - BYTES
"""
import ctypes
import pathlib
import subprocess
import sys
import tempfile

import torch

HERE = pathlib.Path(__file__).resolve().parent


def build_tracer():
    root = pathlib.Path(torch.__file__).parent
    out = pathlib.Path(tempfile.mkdtemp()) / "tracer.so"
    subprocess.run(["g++", "-std=c++20", "-O1", "-fPIC", "-shared", HERE / "tracer.cpp", "-o", out, f"-I{root}/include",
                    f"-I{root}/include/torch/csrc/api/include", f"-L{root}/lib", "-ltorch_cpu", "-lc10"], check=True)
    lib = ctypes.CDLL(str(out))
    lib.tr_text.restype = ctypes.c_char_p
    return lib


tracer = build_tracer()
SIZES = [(30, 100), (100,), (77, 50)]
VARIANTS = {
    "sgd": (torch.optim.SGD, ["", "momentum=0.9", "weight_decay=0.1", "momentum=0.9,weight_decay=0.1", "momentum=0.9,nesterov=1",
                              "momentum=0.9,nesterov=1,weight_decay=0.1", "maximize=1", "momentum=0.9,maximize=1"]),
    "adam": (torch.optim.Adam, ["", "weight_decay=0.1", "amsgrad=1", "maximize=1", "amsgrad=1,weight_decay=0.1"]),
    "adamw": (torch.optim.AdamW, ["", "amsgrad=1", "maximize=1"]),
    "rmsprop": (torch.optim.RMSprop, ["", "momentum=0.9", "centered=1", "weight_decay=0.1", "momentum=0.9,centered=1,weight_decay=0.1"]),
    "adagrad": (torch.optim.Adagrad, ["", "weight_decay=0.1", "maximize=1"]),
}
FUSED = {"sgd", "adam", "adamw"}
FLAGS = {"nesterov", "amsgrad", "maximize", "centered"}


def options(text):
    out = {}
    for part in filter(None, text.split(",")):
        key, value = part.split("=")
        out[key] = bool(int(value)) if key in FLAGS else float(value)
    return out


def events():
    born = {}
    for line in tracer.tr_text().decode().splitlines():
        kind, _, rest = line.partition(" ")
        if kind == "M":
            yield rest
        elif kind == "A":
            ident, size = rest.split()
            if int(size) >= 64:
                born[ident] = size
                yield f"+ {size}"
        elif kind == "F" and rest in born:
            yield f"- {born.pop(rest)}"


def record(name, cls, text, impl):
    torch.manual_seed(0)
    params = [torch.nn.Parameter(torch.rand(s)) for s in SIZES]
    for p in params:
        p.grad = torch.rand_like(p)
    tracer.tr_clear()
    tracer.tr_on(1)
    tracer.tr_say(b"M step 0")
    opt = cls(params, lr=1e-3, **options(text), **impl[1])
    for k in range(1, 4):
        tracer.tr_say(f"M step {k}".encode())
        opt.step()
    tracer.tr_say(b"M end")
    tracer.tr_on(0)
    print("case " + ",".join(filter(None, [name, text, f"impl={impl[0]}"])))
    print("\n".join(events()))


sys.stdout = open(HERE / "events.txt", "w")
torch.set_num_threads(1)
tracer.tr_setup()
print(f"# recorded by record.py\ntorch {torch.__version__}")
for name, (cls, variants) in VARIANTS.items():
    impls = [("foreach", {"foreach": True}), ("forloop", {"foreach": False})]
    if name in FUSED:
        impls.append(("fused", {"fused": True}))
    for text in variants:
        for impl in impls:
            record(name, cls, text, impl)
