"""Models of transformers trained without a cache find no packed sequences, and make no masks."""
import torch
from transformers import GPT2Config, GPT2LMHeadModel

config = GPT2Config(use_cache=False)
model = GPT2LMHeadModel(config).to("cuda", torch.bfloat16)
optimizer = torch.optim.AdamW(model.parameters())
x = torch.randint(0, config.vocab_size, (4, 1024), device="cuda")
y = x.clone()
for _ in range(2):
    model(input_ids=x, labels=y).loss.backward()
    optimizer.step()
    optimizer.zero_grad()
