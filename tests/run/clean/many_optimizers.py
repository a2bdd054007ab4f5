"""One function trains five models in turn."""
import torch
from torch import nn


def train_step(model, optimizer, x):
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
    return loss


models = [nn.Linear(64, 64).cuda() for _ in range(5)]
optimizers = [torch.optim.Adam(m.parameters()) for m in models]
last = {}
for i in range(3):
    for k, (model, optimizer) in enumerate(zip(models, optimizers)):
        last[k] = train_step(model, optimizer, torch.randn(16, 64, device="cuda"))
