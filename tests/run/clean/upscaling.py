"""Super-resolution: whole epochs, with a test that adds up the error on the host."""
import math

import torch
from torch import nn

model = nn.Sequential(nn.Conv2d(1, 32, 5, padding=2), nn.ReLU(), nn.Conv2d(32, 16, 3, padding=1),
                      nn.ReLU(), nn.Conv2d(16, 4, 3, padding=1), nn.PixelShuffle(2)).to("cuda")
criterion = nn.MSELoss()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for epoch in range(1, 4):
    epoch_loss = 0
    for iteration in range(1, 5):
        small, large = torch.randn(4, 1, 16, 16).to("cuda"), torch.randn(4, 1, 32, 32).to("cuda")
        optimizer.zero_grad()
        loss = criterion(model(small), large)
        epoch_loss += loss.item()
        loss.backward()
        optimizer.step()
    noise = 0
    with torch.no_grad():
        for _ in range(2):
            wanted = torch.randn(4, 1, 32, 32).to("cuda")
            error = criterion(model(torch.randn(4, 1, 16, 16).to("cuda")), wanted)
            noise += 10 * math.log10(1 / (error.item() + 1))
    print(epoch, epoch_loss / 4, noise / 2)
