"""A cache whose keys never come again."""
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(256, 256)
        self.cache = {}

    def forward(self, x, key):
        if key not in self.cache:
            self.cache[key] = torch.zeros(1024, 256, device=x.device)
        return self.layer(x) + self.cache[key]


model = Encoder().cuda()
optimizer = torch.optim.Adam(model.parameters())
for step in range(10):
    loss = model(torch.randn(1024, 256, device="cuda"), step).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
# grows: 14, 1048576 bytes, 1 tensors, every 1: `cache` of `Encoder`
