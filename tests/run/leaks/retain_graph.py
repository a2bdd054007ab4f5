"""A penalty whose graph is retained, and which a list keeps."""
import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.layer = nn.Linear(256, 256).cuda()
        self.optimizer = torch.optim.SGD(self.layer.parameters(), lr=0.1)
        self.penalties = []

    def step(self, x):
        y = torch.sigmoid(self.layer(x))
        penalty = y.square().mean()
        self.optimizer.zero_grad()
        penalty.backward(retain_graph=True)
        self.optimizer.step()
        self.penalties.append(penalty)


trainer = Trainer()
for _ in range(8):
    trainer.step(torch.randn(256, 256, device="cuda"))
# grows: 13, 262144 bytes, 1 tensors, every 1: the autograd graph of `penalties` of `Trainer`
