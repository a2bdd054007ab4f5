"""segments.py NET [FILE] -- with FILE: exports the net there.  Else: two steps for each number
of segments of checkpoint_sequential, "SEGMENTS PEAK" of requested bytes each."""
import sys

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint_sequential


def mlp():
    layers = [m for _ in range(100) for m in (nn.Linear(64, 64), nn.ReLU())]
    return nn.Sequential(*layers), torch.zeros(4096, 64), nn.MSELoss(), torch.zeros(4096, 64)


def vgg():
    def block(a, b):
        return [nn.Conv2d(a, b, 3, padding=1), nn.BatchNorm2d(b), nn.ReLU()]
    layers = block(3, 16) + block(16, 16) + [nn.MaxPool2d(2)] + block(16, 32) + block(32, 32) + \
        [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10)]
    return nn.Sequential(*layers), torch.zeros(16, 3, 32, 32), nn.CrossEntropyLoss(), \
        torch.zeros(16, dtype=torch.long)


NETS = {"mlp": (mlp, (1, 2, 5, 10, 14, 20, 50, 100, 200)), "vgg": (vgg, (1, 2, 3, 5, 8, 16))}


def train(make, segments):
    model, x, criterion, target = make()
    model.cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    out = loss = None
    for _ in range(2):
        x, target = x.cuda(), target.cuda()
        optimizer.zero_grad()
        out = checkpoint_sequential(model, segments, x, use_reentrant=False)
        loss = criterion(out, target)
        loss.backward()
        optimizer.step()


def main(net, path=None):
    make, numbers = NETS[net]
    if path:
        model, x, _, _ = make()
        torch.export.save(torch.export.export(model, (x,)), path)
        return
    for segments in numbers:
        torch.cuda.reset_peak_memory_stats()
        train(make, segments)
        print(segments, torch.cuda.memory_stats()["requested_bytes.all.peak"])


if __name__ == "__main__":
    main(*sys.argv[1:])
