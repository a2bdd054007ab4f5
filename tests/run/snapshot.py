"""Trains on two streams, empties the cache, and dumps a snapshot of it all: snapshot.py FILE."""
import sys

import torch

torch.cuda.memory._record_memory_history()
net = torch.nn.Sequential(torch.nn.Linear(300, 700), torch.nn.ReLU(), torch.nn.Linear(700, 10)).cuda()
optimizer = torch.optim.Adam(net.parameters())
side = torch.cuda.Stream()
for _ in range(2):
    optimizer.zero_grad()
    with torch.cuda.stream(side):
        x = torch.empty(5 << 20, dtype=torch.uint8, device="cuda")
    net(torch.randn(64, 300, device="cuda")).sum().backward()
    optimizer.step()
    x.record_stream(torch.cuda.current_stream())
    del x
    torch.cuda.empty_cache()
torch.cuda.memory._dump_snapshot(sys.argv[1])
