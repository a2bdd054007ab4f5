#!/usr/bin/env python3
"""Records what PyTorch says of sizes and strides: random tensors, one question a
line, into shapes.txt.  Run: python3 tests/golden/shape/record.py  (any torch; no GPU)

    like DIMS STRIDES            -> strides of empty_like, contiguous?, channels last?
    view DIMS STRIDES NEWDIMS    -> strides of the view, or "copy"
    broadcast A B                -> size, or "clash"
    binary DIMS STRIDES DIMS STRIDES -> strides of the sum
    promote A B                  -> dtype of two tensors of rank 1
"""
import pathlib
import random
import sys

import torch

random.seed(7)
sys.stdout = open(pathlib.Path(__file__).with_name("shapes.txt"), "w")


def s(xs):
    return ",".join(map(str, xs)) if len(xs) else "-"


def tensor():
    rank = random.randint(0, 5)
    dims = [random.choice([1, 1, 2, 3, 4, 6]) for _ in range(rank)]
    t = torch.empty(dims)
    for _ in range(random.randint(0, 2)):
        kind = random.randint(0, 4)
        if kind == 0 and t.dim() > 1:
            t = t.permute(random.sample(range(t.dim()), t.dim()))
        elif kind == 1 and t.dim() > 0:
            d = random.randrange(t.dim())
            n = t.size(d)
            t = t.narrow(d, 0, max(1, n - 1))
        elif kind == 2 and t.dim() == 4:
            t = t.to(memory_format=torch.channels_last)
        elif kind == 3:
            t = t.unsqueeze(0).expand([random.choice([1, 3])] + list(t.shape))
        elif kind == 4 and t.dim() > 0 and t.size(-1) > 1:
            t = t[..., ::2]
    return t


def factors(n, rank):
    dims = [1] * rank
    for p in (2, 2, 2, 2, 2, 2, 3, 3, 3, 3, 5):
        if n % p == 0 and rank:
            n //= p
            dims[random.randrange(rank)] *= p
    if rank:
        dims[-1] *= n
    return dims


print(f"# recorded by record.py with torch {torch.__version__}")
for _ in range(400):
    t = tensor()
    e = torch.empty_like(t)
    cl = t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)
    print("like", s(t.shape), s(t.stride()), "->", s(e.stride()), int(t.is_contiguous()), int(cl))
for _ in range(600):
    t = tensor()
    new = factors(t.numel(), random.randint(1, 5))
    if torch.Size(new).numel() != t.numel():
        continue
    try:
        out = s(t.view(new).stride())
    except RuntimeError:
        out = "copy"
    print("view", s(t.shape), s(t.stride()), s(new), "->", out)
for _ in range(200):
    a = [random.choice([1, 1, 2, 3]) for _ in range(random.randint(0, 4))]
    b = [random.choice([1, 1, 2, 3]) for _ in range(random.randint(0, 4))]
    try:
        out = s(torch.broadcast_shapes(a, b))
    except RuntimeError:
        out = "clash"
    print("broadcast", s(a), s(b), "->", out)
for _ in range(500):
    a = tensor()
    b = tensor() if random.random() < 0.2 else torch.empty([d if random.random() < 0.7 else 1 for d in a.shape])
    if b.dim() > 1 and random.random() < 0.5:
        perm = random.sample(range(b.dim()), b.dim())
        b = b.permute(perm).contiguous().permute([perm.index(i) for i in range(b.dim())])
    b = b[(0,) * random.randint(0, min(2, b.dim()))] if random.random() < 0.3 else b
    try:
        out = s((a + b).stride())
    except RuntimeError:
        continue
    print("binary", s(a.shape), s(a.stride()), s(b.shape), s(b.stride()), "->", out)
names = ["float32", "float16", "bfloat16", "float64", "int64", "int32", "int16", "int8", "uint8", "bool",
         "complex64", "complex128"]
for a in names:
    for b in names:
        print("promote", a, b, "->", str(torch.promote_types(getattr(torch, a), getattr(torch, b)))[6:])
