"""The square of each loss is added up with its graph, after the backward pass."""
import torch
from torch import nn

model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
total = 0
for step in range(10):
    loss = model(torch.randn(64, 512, device="cuda")).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total = total + loss * loss
# grows: 9, 512 bytes, 1 tensors, every 1: the autograd graph of `total` in `undetached.py`
