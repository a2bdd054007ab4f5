"""A backward hook that keeps the gradients that it sees."""
import torch
from torch import nn


def main():
    seen = []
    model = nn.Sequential(nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).cuda()
    model[2].register_full_backward_hook(lambda module, inputs, outputs: seen.append(inputs[0]))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(8):
        optimizer.zero_grad()
        model(torch.randn(128, 256, device="cuda")).mean().backward()
        optimizer.step()


main()
# grows: 13, 131072 bytes, 1 tensors, every 1: `seen` in `main`
