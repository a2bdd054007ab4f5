import copy

import torch
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

model = nn.Sequential(nn.Linear(128, 128), nn.GELU(), nn.Linear(128, 4)).cuda()
optimizer = torch.optim.AdamW(model.parameters())
ema, teacher = None, copy.deepcopy(model).eval()
for step in range(12):
    x = torch.randn(32, 128, device="cuda")
    with torch.no_grad():
        wanted = teacher(x)
    loss = nn.functional.mse_loss(model(x), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step == 4:
        ema = AveragedModel(model, multi_avg_fn=get_ema_multi_avg_fn(0.99))
    elif ema is not None:
        ema.update_parameters(model)
    with torch.no_grad():
        for a, b in zip(teacher.parameters(), model.parameters()):
            a.mul_(0.9).add_(b, alpha=0.1)
