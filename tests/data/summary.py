"""summary.log: what torch.cuda.memory_summary prints after two steps of the built-in model mlp.

    plimsoll run --gpu t4 -- python summary.py > summary.log          # torch 2.13.0+cpu
"""
import torch
from torch import nn

sizes = [3, 300, 300, 400, 300, 100]
model = nn.Sequential(*[nn.Linear(a, b) for a, b in zip(sizes, sizes[1:])]).cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(2):
    x = torch.randn(8, 3, device="cuda")
    y = torch.randint(100, (8,), device="cuda")
    optimizer.zero_grad()
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    loss.backward()
    optimizer.step()
    print(f"step {step} done")
print(torch.cuda.memory_summary(abbreviated=True))
