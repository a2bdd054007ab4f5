"""A list of scalar losses that stay on the card."""
import torch
from torch import nn


def main():
    model = nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(10):
        loss = model(torch.randn(64, 512, device="cuda")).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())


main()
# grows: 11, 512 bytes, 1 tensors, every 1: `losses` in `main`
