"""A hidden state that is not detached: the graph goes back to the first step."""
import torch
from torch import nn


def train():
    layer = nn.Linear(256, 256).cuda()
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    hidden = torch.zeros(512, 256, device="cuda")
    for _ in range(10):
        x = torch.randn(512, 256, device="cuda")
        hidden = torch.tanh(layer(x) + hidden)
        loss = hidden.square().mean()
        optimizer.zero_grad()
        loss.backward(retain_graph=True)
        optimizer.step()


train()
# grows: 12, 524288 bytes, 1 tensors, every 1: the autograd graph of `hidden` in `train`
