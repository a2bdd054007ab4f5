"""A reference script's epoch: smoothed values, warm-up by a scheduler, an average of the model."""
import collections

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel


class Smoothed:
    def __init__(self, window=20):
        self.values = collections.deque(maxlen=window)
        self.total, self.count = 0.0, 0

    def update(self, value, n=1):
        self.values.append(value)
        self.total += value * n
        self.count += n


class Average(AveragedModel):
    def __init__(self, model, decay):
        super().__init__(model, avg_fn=lambda old, new, n: decay * old + (1 - decay) * new,
                         use_buffers=True)


def accuracy(output, target, top=(1, 5)):
    with torch.inference_mode():
        correct = output.topk(max(top), 1, True, True)[1].t().eq(target[None])
        return [correct[:k].flatten().sum(dtype=torch.float32) * (100 / len(target)) for k in top]


def train_one_epoch(model, criterion, optimizer, epoch, average, scheduler):
    model.train()
    meters = collections.defaultdict(Smoothed)
    for i in range(6):
        image, target = torch.randn(8, 3, 16, 16).to("cuda"), torch.randint(10, (8,)).to("cuda")
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if i % 2 == 0:
            average.update_parameters(model)
            if epoch < 1:
                average.n_averaged.fill_(0)
        scheduler.step()
        first, fifth = accuracy(output, target)
        meters["loss"].update(loss.item())
        meters["acc1"].update(first.item(), 8)
        meters["acc5"].update(fifth.item(), 8)


model = nn.Sequential(nn.Conv2d(3, 16, 3), nn.BatchNorm2d(16), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
                      nn.Flatten(), nn.Linear(16, 10)).to("cuda")
criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
average = Average(model, 0.99)
warm_up = torch.optim.lr_scheduler.LinearLR(optimizer, 0.01, total_iters=3)
later = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
scheduler = torch.optim.lr_scheduler.SequentialLR(optimizer, [warm_up, later], milestones=[3])
for epoch in range(2):
    train_one_epoch(model, criterion, optimizer, epoch, average, scheduler)
    with torch.inference_mode():
        average(torch.randn(8, 3, 16, 16).to("cuda"))
