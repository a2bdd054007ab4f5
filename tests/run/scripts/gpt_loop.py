"""A GPT as nanoGPT trains it: autocast, gradient accumulation, clipping, fused AdamW."""
# peak: 281850236
import torch
from torch import nn
from torch.nn import functional as F

batch, length, width, heads, vocabulary = 8, 256, 256, 8, 5000


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.ln2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))

    def forward(self, x):
        q, k, v = (h.view(batch, length, heads, -1).transpose(1, 2)
                   for h in self.qkv(self.ln1(x)).split(width, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.ln2(x))


model = nn.Sequential(nn.Embedding(vocabulary, width), *[Block() for _ in range(4)],
                      nn.LayerNorm(width), nn.Linear(width, vocabulary, bias=False)).cuda()
model[0].weight = model[-1].weight
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
for step in range(2):
    for micro in range(2):
        tokens = torch.randint(vocabulary, (batch, length + 1)).cuda()
        with torch.autocast("cuda", torch.bfloat16):
            logits = model(tokens[:, :-1])
            loss = F.cross_entropy(logits.view(-1, vocabulary), tokens[:, 1:].reshape(-1)) / 2
        loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: loss {loss.item() * 2:.4f}")
