"""A small perceptron with its own prints of what is allocated."""
import argparse

import torch
from torch import nn

args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=10)
args.add_argument("--steps", type=int, default=2)
args = args.parse_args()

model = nn.Sequential(
    nn.Linear(3, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(), nn.Linear(300, 400), nn.ReLU(),
    nn.Linear(400, 300), nn.ReLU(), nn.Linear(300, 100)).cuda()
print("model", torch.cuda.memory_allocated())
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
data = torch.randn(args.batch, 3)
target = torch.randn(args.batch, 100)

for step in range(args.steps):
    x, y = data.cuda(), target.cuda()
    optimizer.zero_grad()
    before = torch.cuda.memory_allocated()
    output = model(x)
    print("forward", torch.cuda.memory_allocated() - before)
    loss = nn.functional.mse_loss(output, y)
    loss.backward()
    optimizer.step()
print("peak", torch.cuda.max_memory_allocated(), "reserved", torch.cuda.memory_reserved())
