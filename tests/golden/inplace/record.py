#!/usr/bin/env python3
"""record.py -- how many tensors of its size an activation keeps for backward, in place and not.

Writes inplace.txt: name, kept, kept in place; the storages that autograd saves in y = act(x), y * y, where x is the
result of an op that saves nothing. So the least is 1, y itself. Run with torch 2.13.0 (CPU).
"""
import pathlib

import torch
import torch.nn.functional as F

N = 1000
ACTIVATIONS = {
    "relu": F.relu, "leaky_relu": F.leaky_relu, "elu": F.elu, "selu": F.selu, "celu": F.celu,
    "threshold": lambda x, inplace: F.threshold(x, 0.1, 0.0, inplace), "silu": F.silu, "mish": F.mish,
    "relu6": F.relu6, "hardtanh": F.hardtanh, "hardswish": F.hardswish, "hardsigmoid": F.hardsigmoid,
}


def kept(activation, inplace):
    saved = {}  # holds what it names, so that no address is used twice

    def pack(t):
        if t.numel() == N:
            saved[t.untyped_storage().data_ptr()] = t
        return t

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        y = activation(torch.ones(N, requires_grad=True) + 1, inplace=inplace)
        y * y
    return len(saved)


lines = [f"# torch {torch.__version__.split('+')[0]}, by record.py: activation, kept, kept in place"]
lines += [f"{name} {kept(f, False)} {kept(f, True)}" for name, f in ACTIVATIONS.items()]
(pathlib.Path(__file__).parent / "inplace.txt").write_text("\n".join(lines) + "\n")
