"""PyTorch's MNIST example: training, then a test with the number of correct answers."""
# peak: 168226116
import torch
from torch import nn
from torch.nn import functional as F

model = nn.Sequential(
    nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2),
    nn.Dropout(0.25), nn.Flatten(), nn.Linear(9216, 128), nn.ReLU(), nn.Dropout(0.5),
    nn.Linear(128, 10), nn.LogSoftmax(dim=1)).cuda()
optimizer = torch.optim.Adadelta(model.parameters(), lr=1.0)
scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.7)
for epoch in range(2):
    model.train()
    for _ in range(2):
        data, target = torch.randn(64, 1, 28, 28).cuda(), torch.randint(10, (64,)).cuda()
        optimizer.zero_grad()
        loss = F.nll_loss(model(data), target)
        loss.backward()
        optimizer.step()
    model.eval()
    correct = 0
    with torch.no_grad():
        for _ in range(2):
            data, target = torch.randn(500, 1, 28, 28).cuda(), torch.randint(10, (500,)).cuda()
            correct += model(data).argmax(dim=1).eq(target).sum().item()
    scheduler.step()
    print(f"epoch {epoch}: {correct} of 1000")
