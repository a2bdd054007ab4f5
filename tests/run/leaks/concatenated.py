"""One tensor that becomes larger."""
import torch
from torch import nn

model = nn.Linear(512, 512).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
seen = torch.empty(0, 512, device="cuda")
for step in range(10):
    output = model(torch.randn(64, 512, device="cuda"))
    optimizer.zero_grad()
    output.mean().backward()
    optimizer.step()
    seen = torch.cat([seen, output.detach()])
# grows: 13, 131072 bytes, 0 tensors, every 1: `seen` in `concatenated.py`
