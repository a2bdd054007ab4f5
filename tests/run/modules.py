"""Two blocks, whose memory by module is known."""
import torch
from torch import nn


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


model = nn.Sequential(Block(1024), Block(1024)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(3):
    model(torch.randn(4096, 1024, device="cuda")).sum().backward()
    optimizer.step()
    optimizer.zero_grad()
