import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

blocks = nn.ModuleList(nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
                       for _ in range(3)).cuda()
head = nn.Linear(64, 10).cuda()
optimizer = torch.optim.AdamW([*blocks.parameters(), *head.parameters()], foreach=False)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 10)
meter = {"loss": torch.zeros((), device="cuda"), "n": 0}
for step in range(10):
    x = torch.randn(8, 16, 64, device="cuda")
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    main, extra = head(x).square().mean(), sum(p.abs().sum() for p in head.parameters())
    loss = main + 1e-4 * extra
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    scheduler.step()
    meter["loss"] += loss.detach()
    meter["n"] += 1
