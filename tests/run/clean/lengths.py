"""Sequences become longer from step to step, and so does what each step leaves."""
import torch
from torch import nn

cell, head = nn.GRUCell(32, 32).cuda(), nn.Linear(32, 8).cuda()
optimizer = torch.optim.Adam([*cell.parameters(), *head.parameters()])
for length in range(2, 14):
    hidden, outputs = torch.zeros(4, 32, device="cuda"), []
    for t in range(length):
        hidden = cell(torch.randn(4, 32, device="cuda"), hidden)
        outputs.append(head(hidden))
    loss = torch.stack(outputs).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
