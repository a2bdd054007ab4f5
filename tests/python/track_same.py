"""A training under autocast, tracked or not."""
import sys

import torch
from torch import nn

import plimsoll


def main(tracked):
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.BatchNorm2d(32), nn.ReLU(), nn.Dropout(), nn.Flatten(),
                          nn.Linear(32 * 30 * 30, 100), nn.LayerNorm(100)).cuda()
    optimizer = torch.optim.AdamW(model.parameters())
    x = torch.randn(64, 3, 32, 32, device="cuda")
    y = torch.randint(100, (64,), device="cuda")
    if tracked:
        tracker = plimsoll.track(sys.stderr, depth=2).start()
    for _ in range(3):
        optimizer.zero_grad()
        with torch.autocast("cuda"):
            loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    if tracked:
        tracker.stop()


main(sys.argv[1] == "tracked")
