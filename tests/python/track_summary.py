"""plimsoll.summary() compared with what PyTorch's own functions say."""
import json

import torch

import plimsoll

a = [torch.empty(n << 20, dtype=torch.uint8, device="cuda") for n in (30, 50, 8, 40)]
small = torch.empty(1000, device="cuda")
del a[1]
s = plimsoll.summary()
free, total = torch.cuda.mem_get_info()
MIB = 1 << 20
assert "largest block" in str(s)
print(json.dumps([
    [torch.cuda.memory_allocated(), torch.cuda.memory_reserved(), torch.cuda.max_memory_allocated(),
     torch.cuda.max_memory_reserved(), free, total,
     torch.cuda.memory_reserved() - torch.cuda.memory_allocated(),  # nothing waits for another stream
     50 * MIB, 3, 1, {"Tensor": [4, 78 * MIB + 4000]}],
    [s.allocated, s.reserved, s.peak_allocated, s.peak_reserved, s.free, s.total, s.free_inside, s.largest_free,
     s.classes[1].blocks, s.classes[0].blocks, s.kinds]]))
