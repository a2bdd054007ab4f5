"""The loop that most people of transformers write: two steps of it under `plimsoll run`.

    python loop.py FOLDER CACHE CHECKPOINT SEQ    FOLDER holds a config.json; CACHE and CHECKPOINT are 0 or 1
"""
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

folder, cache, checkpoint, seq = sys.argv[1], *map(int, sys.argv[2:5])
config = AutoConfig.from_pretrained(folder)
config.use_cache = bool(cache)
model = AutoModelForCausalLM.from_config(config, dtype=config.dtype).cuda()
model.train()
if checkpoint:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2):
    x = torch.randint(0, config.vocab_size, (4, seq), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=config.dtype == torch.float32):
        loss = model(input_ids=x, labels=x).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
