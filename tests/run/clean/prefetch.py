import collections

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Prefetcher:
    def __init__(self, loader):
        self.loader, self.stream = iter(loader), torch.cuda.Stream()
        self.preload()

    def preload(self):
        try:
            self.batch = next(self.loader)
        except StopIteration:
            self.batch = None
            return
        with torch.cuda.stream(self.stream):
            self.batch = [t.cuda(non_blocking=True) for t in self.batch]

    def next(self):
        torch.cuda.current_stream().wait_stream(self.stream)
        batch = self.batch
        self.preload()
        return batch


model = nn.Linear(32, 4).cuda()
optimizer = torch.optim.RMSprop(model.parameters())
loader = DataLoader(TensorDataset(torch.randn(160, 32), torch.zeros(160, dtype=torch.long)), 16,
                    shuffle=True)
recent = collections.deque(maxlen=3)
for epoch in range(2):
    prefetcher = Prefetcher(loader)
    batch = prefetcher.next()
    while batch is not None:
        loss = nn.functional.cross_entropy(model(batch[0]), batch[1])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        recent.append(loss.detach())
        batch = prefetcher.next()
