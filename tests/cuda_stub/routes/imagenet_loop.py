"""A ResNet-18 trained as PyTorch's ImageNet example does it: SGD with momentum, a learning rate
in steps, meters and accuracies read each step, a validation, a checkpoint of it all."""
import io

import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

CLASSES, SIDE, BATCH, STEPS = 100, 96, 16, 3


class Block(nn.Module):
    def __init__(self, inside, outside, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(inside, outside, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(outside)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = nn.Conv2d(outside, outside, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outside)
        self.shortcut = None
        if stride != 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False),
                                          nn.BatchNorm2d(outside))

    def forward(self, x):
        same = x if self.shortcut is None else self.shortcut(x)
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        out += same
        return self.relu(out)


def resnet18():
    layers = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
              nn.MaxPool2d(3, 2, 1)]
    inside = 64
    for outside, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Block(inside, outside, stride), Block(outside, outside, 1)]
        inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, CLASSES))


class Images(Dataset):
    def __len__(self):
        return BATCH * STEPS

    def __getitem__(self, i):
        return torch.randn(3, SIDE, SIDE), i % CLASSES


def accuracy(output, target, top=(1, 5)):
    with torch.no_grad():
        _, predicted = output.topk(max(top), 1, True, True)
        correct = predicted.t().eq(target.view(1, -1).expand(max(top), -1))
        return [correct[:k].reshape(-1).float().sum(0, keepdim=True).mul_(100.0 / len(target))
                for k in top]


def validate(loader, model, criterion):
    model.eval()
    with torch.no_grad():
        for images, target in loader:
            images, target = images.cuda(non_blocking=True), target.cuda(non_blocking=True)
            output = model(images)
            criterion(output, target).item()
            [a[0].item() for a in accuracy(output, target)]


def main():
    torch.manual_seed(0)
    model = resnet18().to("cuda")
    criterion = nn.CrossEntropyLoss().to("cuda")
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, step_size=30, gamma=0.1)
    loader = DataLoader(Images(), BATCH, pin_memory=True)
    model.train()
    for step, (images, target) in enumerate(loader):
        images = images.to("cuda", non_blocking=True)
        target = target.to("cuda", non_blocking=True)
        output = model(images)
        loss = criterion(output, target)
        [a[0].item() for a in accuracy(output, target)] + [loss.item()]
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print("step", step, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
              torch.cuda.max_memory_reserved())
    validate(loader, model, criterion)
    schedule.step()
    file = io.BytesIO()
    torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
    torch.load(io.BytesIO(file.getvalue()), map_location="cuda:0")


if __name__ == "__main__":
    main()
