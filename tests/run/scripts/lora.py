"""LoRA by hand: frozen weights in half precision, two thin matrices for each."""
# peak: 376356872
import torch
from torch import nn
from torch.nn import functional as F


class Lora(nn.Module):
    def __init__(self, size, out, rank=8):
        super().__init__()
        self.base = nn.Linear(size, out, bias=False, dtype=torch.bfloat16).requires_grad_(False)
        self.a, self.b = nn.Parameter(torch.randn(rank, size) / rank), nn.Parameter(torch.zeros(out, rank))

    def forward(self, x):
        return self.base(x) + F.linear(F.linear(x, self.a.to(x.dtype)), self.b.to(x.dtype))


model = nn.Sequential(*[m for _ in range(6) for m in (Lora(1024, 4096), nn.SiLU(), Lora(4096, 1024))]).cuda()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=1e-4)
for step in range(3):
    x = torch.randn(16, 128, 1024, device="cuda", dtype=torch.bfloat16)
    loss = model(x).float().square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print(f"{sum(p.numel() for p in trained)} of {sum(p.numel() for p in model.parameters())} are trained")
