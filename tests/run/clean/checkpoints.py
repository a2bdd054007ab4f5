import io

import torch
from torch import nn

model = nn.Linear(256, 256).cuda()
optimizer = torch.optim.Adam(model.parameters())
saved, history, outputs = [], [], []
for step in range(10):
    output = model(torch.randn(64, 256, device="cuda"))
    loss = output.square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    history.append(loss.item())
    outputs.append(output.detach().cpu())
    saved.append({k: v.cpu() for k, v in model.state_dict().items()})
    torch.save(optimizer.state_dict(), io.BytesIO())
