"""Three steps in which each parameter has an optimizer of its own, which steps in backward.

    in_backward.py OPTIMIZER KEYWORDS

src: PyTorch's tutorial "How to save memory by fusing the optimizer step into the backward pass".
"""
import json
import sys

import torch
from torch import nn

name, keywords = sys.argv[1:]
model = nn.Sequential(nn.Linear(1000, 2000), nn.ReLU(), nn.Linear(2000, 500)).cuda()
own = {p: getattr(torch.optim, name)([p], **json.loads(keywords)) for p in model.parameters()}


def step(p):
    own[p].step()
    own[p].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step)
for _ in range(3):
    x, y = torch.zeros(4, 1000).cuda(), torch.zeros(4, dtype=torch.long).cuda()
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
