#!/usr/bin/env python3
"""small.py -- writes small_*.pt2, exports of a few ops each, for what the large
samples do not have.

Made with torch 2.15 on the CPU; stack traces, which name files of the machine,
are left out.
"""

import torch
from torch import nn


class Tied(nn.Module):
    """Input and output embedding share one weight."""

    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(11, 4)
        self.head = nn.Linear(4, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        return self.head(self.embed(ids))


class NoGrad(nn.Module):
    """A part without gradients, and sizes that are computed."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 6)
        self.register_buffer("scale", torch.ones(6), persistent=False)

    def forward(self, x):
        y = self.linear(x)
        with torch.no_grad():
            z = torch.relu(y * self.scale)
        b = x.shape[0] * 2
        return (y + z).reshape(b, 3), y.chunk(2, dim=-1)[1]


class Shared(nn.Module):
    """One module called three times, twice in a row."""

    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, 4), nn.Tanh())

    def forward(self, x):
        return self.body(self.body(self.body(x) + 1))


class Factors(nn.Module):
    """Users and items, as recommenders are trained: large tables with sparse gradients."""

    def __init__(self):
        super().__init__()
        self.user = nn.Embedding(1_000_000, 64, sparse=True)
        self.item = nn.Embedding(200_000, 64, sparse=True)

    def forward(self, user, item):
        return (self.user(user) * self.item(item)).sum(-1)


def save(name, model, args, dynamic, device="cpu"):
    with torch.device(device):
        model, args = model().train(), args()
    program = torch.export.export(model, args, dynamic_shapes=dynamic)
    for module in program.graph_module.modules():
        if isinstance(module, torch.fx.GraphModule):
            for node in module.graph.nodes:
                node.meta.pop("stack_trace", None)
    torch.export.save(program, name + ".pt2")


batch = torch.export.Dim("batch", max=1024)
seq = torch.export.Dim("seq", min=4, max=512)
ids = lambda: (torch.zeros(3, 5, dtype=torch.int64),)
x = lambda: (torch.zeros(3, 4),)

some = lambda: (torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64))
many = torch.export.Dim("batch", max=1 << 20)

save("small_sparse", Factors, some, ({0: many}, {0: many}), "meta")
save("small_tied", Tied, ids, ({0: batch, 1: seq},))
save("small_tied_meta", Tied, ids, ({0: batch, 1: seq},), "meta")
save("small_nograd", NoGrad, x, ({0: batch},))
save("small_shared", Shared, x, ({0: batch},))
save("small_static", Shared, x, None)
