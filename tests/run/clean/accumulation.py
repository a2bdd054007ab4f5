import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.BatchNorm2d(16), nn.ReLU(),
                      nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
accumulation, running = 4, 0.0
optimizer.zero_grad()
for i in range(40):
    x, y = torch.randn(8, 3, 32, 32, device="cuda"), torch.zeros(8, dtype=torch.long, device="cuda")
    loss = nn.functional.cross_entropy(model(x), y) / accumulation
    loss.backward()
    running += loss.item()
    if (i + 1) % accumulation == 0:
        optimizer.step()
        optimizer.zero_grad()
