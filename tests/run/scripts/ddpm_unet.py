"""A U-Net that learns to remove noise, with an average of its weights, then DDPM sampling."""
# peak: 29088544
import copy

import torch
from torch import nn
from torch.nn import functional as F

steps = 20
beta = torch.linspace(1e-4, 0.02, steps).cuda()
alpha = torch.cumprod(1 - beta, 0)
block = lambda a, b: nn.Sequential(nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(8, b), nn.SiLU())


class UNet(nn.Module):
    def __init__(self, c=32):
        super().__init__()
        self.time, self.start = nn.Embedding(steps, c), block(3, c)
        self.down, self.middle, self.up = block(c, 2 * c), block(2 * c, 2 * c), block(3 * c, c)
        self.end = nn.Conv2d(c, 3, 1)

    def forward(self, x, t):
        x = self.start(x) + self.time(t)[:, :, None, None]
        y = self.middle(self.down(F.avg_pool2d(x, 2)))
        return self.end(self.up(torch.cat([x, F.interpolate(y, scale_factor=2)], 1)))


model = UNet().cuda()
average = copy.deepcopy(model).requires_grad_(False)
optimizer = torch.optim.Adam(model.parameters())
for step in range(3):
    x, t = torch.randn(16, 3, 32, 32).cuda(), torch.randint(steps, (16,), device="cuda")
    noise, a = torch.randn_like(x), alpha[t].view(-1, 1, 1, 1)
    loss = F.mse_loss(model(a.sqrt() * x + (1 - a).sqrt() * noise, t), noise)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        for p, q in zip(average.parameters(), model.parameters()):
            p.lerp_(q, 0.01)
with torch.no_grad():
    x = torch.randn(8, 3, 32, 32, device="cuda")
    for i in reversed(range(steps)):
        t = torch.full((8,), i, device="cuda")
        x = (x - beta[i] / (1 - alpha[i]).sqrt() * average(x, t)) / (1 - beta[i]).sqrt()
        if i:
            x += beta[i].sqrt() * torch.randn_like(x)
print(tuple(x.cpu().shape))
