#!/usr/bin/env python3
"""version.py -- writes version_*.pt2 for docs/versions.md: nets of an op or two whose memory is
not the same in every version of PyTorch, small enough to be counted by hand.

Made with torch 2.15 on the meta device; stack traces, which name files of the machine, are left out.
"""

import torch
import torch.nn.functional as F
from torch import nn


class Net(nn.Module):
    def __init__(self, run, **parameters):
        super().__init__()
        for name, size in parameters.items():
            setattr(self, name, nn.Parameter(torch.zeros(size)))
        self.run = run

    def forward(self, *inputs):
        return self.run(self, *inputs)


def means(s, x):  # what is summed up is kept by nobody else
    return (x * s.a).mean(1) + (x * s.b).mean(1) + (x * s.c).mean(1)


def twice(s, x):  # h is used twice: its gradients are added
    h = x * s.a
    return (h * 2.0).sum() + (h * 3.0).sum()


def attend(s, x, mask=None):
    h = x * s.a
    return F.scaled_dot_product_attention(h, h, h, mask)


def nets():
    heads = torch.zeros(2, 8, 128, 64)
    return {
        "means": (Net(means, a=4096, b=4096, c=4096), [torch.zeros(1024, 4096)]),
        "twice": (Net(twice, a=4096), [torch.zeros(1024, 4096)]),
        "rms": (Net(lambda s, x: F.rms_norm(x * s.a, (768,), s.w), a=768, w=768), [torch.zeros(1024, 768)]),
        "layer": (Net(lambda s, x: F.layer_norm(x * s.a, (32,), s.w, s.b), a=32, w=32, b=32), [torch.zeros(100000, 32)]),
        "attend": (Net(attend, a=64), [heads]),
        "attend_mask": (Net(attend, a=64), [heads, torch.zeros(2, 8, 128, 128, dtype=torch.bool)]),
        "attend_math": (Net(attend, a=64), [heads.view(16, 128, 64)]),  # of rank 3: without a kernel of its own
        "resize": (Net(lambda s, x: F.interpolate(F.linear(x, s.w), scale_factor=2.0), w=(32, 32)), [torch.zeros(8, 64, 32, 32)]),
        "linear4d": (Net(lambda s, x: F.linear(x * s.a, s.w, s.b), a=256, w=(256, 256), b=256), [torch.zeros(8, 4, 32, 256)]),
    }


with torch.device("meta"):
    for name, (net, inputs) in nets().items():
        program = torch.export.export(net, tuple(inputs))
        for node in program.graph.nodes:
            node.meta.pop("stack_trace", None)
        torch.export.save(program, f"version_{name}.pt2")
