"""A trainer class that keeps the loss of the last step, with callbacks."""
import collections
import time

import torch
from torch import nn
from torch.utils.data import DataLoader, RandomSampler, TensorDataset


class Trainer:
    def __init__(self, model, data):
        self.model, self.data = model.cuda(), data
        self.callbacks = collections.defaultdict(list)
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)

    def run(self, steps):
        loader = DataLoader(self.data, batch_size=16, pin_memory=True,
                            sampler=RandomSampler(self.data, replacement=True, num_samples=1000))
        batches, self.step = iter(loader), 0
        while self.step < steps:
            try:
                batch = next(batches)
            except StopIteration:
                batches = iter(loader)
                batch = next(batches)
            x, y = [t.to("cuda") for t in batch]
            logits = self.model(x)
            self.loss = nn.functional.cross_entropy(logits, y)
            self.model.zero_grad(set_to_none=True)
            self.loss.backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
            self.optimizer.step()
            for callback in self.callbacks["batch"]:
                callback(self)
            self.step += 1
            self.time = time.time()


trainer = Trainer(nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 8)),
                  TensorDataset(torch.randn(64, 32), torch.zeros(64, dtype=torch.long)))
trainer.callbacks["batch"].append(lambda t: t.step % 5 or print(t.step, t.loss.item()))
trainer.run(10)
