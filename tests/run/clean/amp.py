import torch
from torch import nn
from torch.amp import GradScaler, autocast

model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Dropout(0.1), nn.Linear(512, 10)).cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=1e-2, total_steps=20)
scaler = GradScaler("cuda")
for epoch in range(2):
    for i in range(6):
        data = torch.randn(64, 256).cuda(non_blocking=True)
        target = torch.randint(0, 10, (64,)).cuda(non_blocking=True)
        with autocast("cuda", dtype=torch.float16):
            loss = nn.functional.cross_entropy(model(data), target)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        scheduler.step()
