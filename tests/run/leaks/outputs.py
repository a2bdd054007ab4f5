"""The outputs of an evaluation without no_grad: each has its graph."""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.Adam(model.parameters())
outputs = []


def evaluate(x):
    model.eval()
    outputs.append(model(x))
    model.train()


for step in range(10):
    x = torch.randn(128, 256, device="cuda")
    optimizer.zero_grad()
    model(x).mean().backward()
    optimizer.step()
    evaluate(x)
# grows: 12, 267264 bytes, 2 tensors, every 1: `outputs` in `outputs.py`
