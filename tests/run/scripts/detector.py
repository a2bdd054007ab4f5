"""A detector in the manner of YOLO, with non-maximum suppression written by hand."""
# peak: 14738192
import torch
from torch import nn
from torch.nn import functional as F

block = lambda a, b: [nn.Conv2d(a, b, 3, 2, 1, bias=False), nn.BatchNorm2d(b), nn.SiLU()]
model = nn.Sequential(*block(3, 16), *block(16, 32), *block(32, 64), *block(64, 128),
                      nn.Conv2d(128, 5 + 20, 1)).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.937, nesterov=True)


def overlap(a, b):
    inner = (torch.min(a[:, None, 2:], b[None, :, 2:]) - torch.max(a[:, None, :2], b[None, :, :2])).clamp(min=0)
    inner, area = inner.prod(2), lambda x: (x[:, 2:] - x[:, :2]).prod(1)
    return inner / (area(a)[:, None] + area(b) - inner)


def suppress(boxes, scores, most=0.5):
    keep, order = [], scores.argsort(descending=True)
    while order.numel():
        keep.append(order[0].item())
        order = order[1:][overlap(boxes[order[:1]], boxes[order[1:]])[0] <= most]
    return keep


for step in range(2):
    pictures, wanted = torch.randn(8, 3, 128, 128).cuda(), torch.zeros(8, 25, 8, 8).cuda()
    cells = torch.randint(8, (8, 3, 2))
    for i in range(8):
        wanted[i, 4, cells[i, :, 0], cells[i, :, 1]] = 1
    found = model(pictures)
    there = wanted[:, 4] > 0
    loss = F.binary_cross_entropy_with_logits(found[:, 4], wanted[:, 4]) + F.mse_loss(
        found[:, :4].permute(0, 2, 3, 1)[there], wanted[:, :4].permute(0, 2, 3, 1)[there])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
with torch.no_grad():
    found = model.eval()(pictures[:1])[0].flatten(1).t()
    centre, size = found[:, :2], found[:, 2:4].exp()
    kept = suppress(torch.cat([centre - size / 2, centre + size / 2], 1), found[:, 4].sigmoid())
print(f"{len(kept)} of {len(found)} boxes")
