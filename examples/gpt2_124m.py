"""GPT-2 124M in plain PyTorch: AdamW, gradient clipping, bf16 autocast."""
import argparse

import torch
from torch import nn
from torch.nn import functional as F

args = argparse.ArgumentParser()
args.add_argument("--batch", type=int, default=8)
args.add_argument("--length", type=int, default=1024)
args.add_argument("--steps", type=int, default=2)
args.add_argument("--fp32", action="store_true", help="no autocast")
args = args.parse_args()

VOCABULARY, WIDTH, HEADS, LAYERS = 50257, 768, 12, 12


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x):
        b, t, _ = x.shape
        q, k, v = (h.view(b, t, HEADS, -1).transpose(1, 2) for h in self.qkv(x).split(WIDTH, 2))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).reshape(b, t, WIDTH))


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.ln1, self.attention = nn.LayerNorm(WIDTH), Attention()
        self.ln2 = nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x):
        x = x + self.attention(self.ln1(x))
        return x + self.down(F.gelu(self.up(self.ln2(x))))


class GPT2(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(VOCABULARY, WIDTH)
        self.places = nn.Embedding(args.length, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        x = self.tokens(ids) + self.places(torch.arange(ids.shape[1], device=ids.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


model = GPT2().cuda()
optimizer = torch.optim.AdamW(model.parameters(), lr=6e-4, betas=(0.9, 0.95))
for step in range(args.steps):
    data = torch.randint(VOCABULARY, (args.batch, args.length + 1)).cuda()
    with torch.autocast("cuda", dtype=torch.bfloat16, enabled=not args.fp32):
        loss = model(data[:, :-1], data[:, 1:])
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    print(f"step {step}: loss {loss.item():.2f}, {torch.cuda.max_memory_allocated() >> 20} MiB")
