"""The example of gpu_mem_track: VGG-19's features, then tensors that come and go."""
import io
import json

import torch
from torch import nn

import plimsoll


def features():
    layers, channels = [], 3
    for c in [64, 64, 0, 128, 128, 0, 256, 256, 256, 256, 0, 512, 512, 512, 512, 0, 512, 512, 512, 512, 0]:
        layers += [nn.Conv2d(channels, c, 3, padding=1), nn.ReLU(inplace=True)] if c else [nn.MaxPool2d(2)]
        channels = c or channels
    return nn.Sequential(*layers)


points = []
with plimsoll.track(io.StringIO()) as tracker:
    cnn = features().cuda().eval()
    points.append(len(tracker.rows))
    dummy_tensor_1 = torch.randn(30, 3, 512, 512).float().cuda()
    dummy_tensor_2 = torch.randn(40, 3, 512, 512).float().cuda()
    dummy_tensor_3 = torch.randn(60, 3, 512, 512).float().cuda()
    points.append(len(tracker.rows))
    dummy_tensor_4 = torch.randn(120, 3, 512, 512).float().cuda()
    dummy_tensor_5 = torch.randn(80, 3, 512, 512).float().cuda()
    points.append(len(tracker.rows))
    dummy_tensor_4 = dummy_tensor_4.cpu()
    dummy_tensor_2 = dummy_tensor_2.cpu()

lines = tracker.rows
last = [lines[n - 1] for n in (*points, len(lines))]
print(json.dumps({
    "rows": [[[row.tensors if row.sign == "+" else -row.tensors, row.shape, row.bytes, row.kind] for row in line.rows]
             for line in lines],
    "totals": [f"{line.allocated / 2**20:.1f}" for line in last]}))
