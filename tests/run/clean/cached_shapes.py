"""Masks by length are built when a length first comes, positions once."""
import functools

import torch
from torch import nn


@functools.lru_cache(maxsize=None)
def mask(length):
    return torch.ones(length, length, dtype=torch.bool, device="cuda").tril()


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(64, 192)

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        return nn.functional.scaled_dot_product_attention(q, k, v, attn_mask=mask(x.shape[1]))


model = Attention().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for step, length in enumerate([16, 32, 24, 40, 16, 16, 32, 40, 24, 32, 16, 40]):
    loss = model(torch.randn(2, length, 64, device="cuda")).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
