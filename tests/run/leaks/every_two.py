"""Predictions of every second step, kept."""
import torch
from torch import nn

model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
predictions = []
for step in range(10):
    loss = model(torch.randn(64, 512, device="cuda")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 2 == 0:
        with torch.no_grad():
            predictions.append(model(torch.randn(64, 512, device="cuda")))
# grows: 15, 131072 bytes, 1 tensors, every 2: `predictions` in `every_two.py`
