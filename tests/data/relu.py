#!/usr/bin/env python3
"""relu.py -- writes relu.pt2 and relu_inplace.pt2, which docs/cases.md compares.

Made with torch 2.13.0 on the meta device, so without weights; stack traces,
which name files of the machine, are left out.
"""

import torch
from torch import nn


def net(inplace):
    return nn.Sequential(nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(inplace),
                         nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(inplace),
                         nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10))


for name, inplace in (("relu", False), ("relu_inplace", True)):
    with torch.device("meta"):
        model, x = net(inplace).train(), torch.empty(2, 3, 64, 64)
    program = torch.export.export(model, (x,), dynamic_shapes=({0: torch.export.Dim("batch")},))
    for node in program.graph.nodes:
        node.meta.pop("stack_trace", None)
    torch.export.save(program, name + ".pt2")
