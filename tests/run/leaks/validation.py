"""A sum of validation losses that was not detached: every graph stays."""
import torch
from torch import nn

model = nn.Sequential(nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
criterion = nn.CrossEntropyLoss()
x = torch.randn(256, 512, device="cuda")
y = torch.zeros(256, dtype=torch.long, device="cuda")
total = 0
for step in range(10):
    optimizer.zero_grad()
    criterion(model(x), y).backward()
    optimizer.step()
    total += criterion(model(x), y)
# grows: 15, 535040 bytes, 3 tensors, every 1: the autograd graph of `total` in `validation.py`
