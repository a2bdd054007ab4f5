"""A GPT trained as small research code does it: a fused AdamW with two groups, bf16 autocast,
micro-batches, a clipped gradient, a learning rate of our own, an evaluation between steps."""
import math

import torch
import torch.nn.functional as F
from torch import nn

VOCABULARY, WIDTH, HEADS, LAYERS, LENGTH, BATCH = 4096, 256, 4, 3, 256, 6
STEPS, MICRO = 3, 2


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before, self.after = nn.LayerNorm(WIDTH, bias=False), nn.LayerNorm(WIDTH, bias=False)
        self.qkv, self.out = (nn.Linear(WIDTH, n * WIDTH, bias=False) for n in (3, 1))
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)
        self.drop = nn.Dropout(0.1)

    def forward(self, x):
        n, t, _ = x.shape
        q, k, v = (z.view(n, t, HEADS, -1).transpose(1, 2)
                   for z in self.qkv(self.before(x)).split(WIDTH, dim=2))
        y = F.scaled_dot_product_attention(q, k, v, dropout_p=0.1 if self.training else 0,
                                           is_causal=True)
        x = x + self.drop(self.out(y.transpose(1, 2).contiguous().view(n, t, WIDTH)))
        return x + self.drop(self.down(F.gelu(self.up(self.after(x)))))


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens, self.places = nn.Embedding(VOCABULARY, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm, self.head = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.tokens.weight = self.head.weight

    def forward(self, x, y):
        h = self.tokens(x) + self.places(torch.arange(x.shape[1], device=x.device))
        for block in self.blocks:
            h = block(h)
        logits = self.head(self.norm(h))
        return logits, F.cross_entropy(logits.view(-1, VOCABULARY), y.view(-1), ignore_index=-1)


def batch(data):
    at = torch.randint(len(data) - LENGTH - 1, (BATCH,))
    x = torch.stack([data[i:i + LENGTH] for i in at])
    y = torch.stack([data[i + 1:i + 1 + LENGTH] for i in at])
    return (z.pin_memory().to("cuda", non_blocking=True) for z in (x, y))


@torch.no_grad()
def evaluate(model, data, autocast):
    model.eval()
    losses = torch.zeros(2)
    for i in range(2):
        with autocast:
            losses[i] = model(*batch(data))[1].item()
    model.train()
    return losses.mean()


def main():
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = True
    data = torch.randint(VOCABULARY, (20000,))
    model = GPT().to("cuda")
    groups = [{"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
              {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=True)
    autocast = torch.autocast("cuda", dtype=torch.bfloat16)
    scaler = torch.amp.GradScaler("cuda", enabled=False)
    x, y = batch(data)
    for step in range(STEPS):
        for group in optimizer.param_groups:
            group["lr"] = 6e-4 * (1 + math.cos(math.pi * step / STEPS)) / 2
        if step == 1:
            evaluate(model, data, autocast)
        for _ in range(MICRO):
            with autocast:
                _, loss = model(x, y)
                loss = loss / MICRO
            x, y = batch(data)
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
        print("step", step, torch.cuda.memory_allocated(), torch.cuda.max_memory_allocated(),
              torch.cuda.max_memory_reserved())


if __name__ == "__main__":
    main()
