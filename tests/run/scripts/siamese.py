"""Contrastive learning: two views of each picture, matched within the batch."""
# peak: 46570468
import torch
from torch import nn
from torch.nn import functional as F

encoder = nn.Sequential(
    nn.Conv2d(3, 32, 3, 2, 1), nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 64, 3, 2, 1), nn.BatchNorm2d(64),
    nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 128)).cuda()
optimizer = torch.optim.SGD(encoder.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    pictures = torch.randn(64, 3, 64, 64).cuda()
    views = torch.cat([pictures, pictures.flip(-1)])
    with torch.autocast("cuda", torch.float16):
        z = F.normalize(encoder(views), dim=1)
        likeness = z @ z.t() / 0.1
        likeness = likeness.masked_fill(torch.eye(128, dtype=torch.bool, device="cuda"), -1e4)
        partner = (torch.arange(128, device="cuda") + 64) % 128
        loss = F.cross_entropy(likeness, partner)
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
with torch.no_grad():
    found = F.normalize(encoder(views), dim=1) @ z.float().t()
    print(f"{(found.topk(2).indices[:, 1] == partner).float().mean().item():.2f} matched")
