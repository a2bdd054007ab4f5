"""Two names for one tensor: deleting the first releases nothing."""
import io
import json
import linecache

import torch

import plimsoll

with plimsoll.track(io.StringIO()) as tracker:
    tensor1 = torch.randn(30, 3, 512, 512, device="cuda")
    tensor3 = tensor1
    del tensor1
    del tensor3

print(json.dumps([[linecache.getline(__file__, line.line).strip(), line.change,
                   [who for held in line.held for who in held.holders]] for line in tracker.rows[1:]]))
