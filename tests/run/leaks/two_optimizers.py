"""Two optimizers step in turn; only one of the losses is kept."""
import torch
from torch import nn

one, other = nn.Linear(128, 128).cuda(), nn.Linear(128, 1).cuda()
step_one = torch.optim.Adam(one.parameters())
step_other = torch.optim.Adam(other.parameters())
history = []
for i in range(8):
    x = torch.randn(32, 128, device="cuda")
    loss = other(one(x).detach()).mean()
    step_other.zero_grad()
    loss.backward()
    step_other.step()
    loss = other(one(x)).mean()
    step_one.zero_grad()
    loss.backward()
    step_one.step()
    history.append(loss.detach())
# grows: 15, 512 bytes, 1 tensors, every 2: `history` in `two_optimizers.py`
