"""Training under autocast to fp16 with a GradScaler: loop.py CONFIG TOKENS OPTIMIZER CLIP, three steps.

OPTIMIZER is the text of plimsoll's --optimizer; with CLIP 1, gradients are unscaled and clipped before the step.
"""
import sys

import torch
import transformers

folder, tokens, optimizer, clip = sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4])
config = transformers.AutoConfig.from_pretrained(folder)
config.use_cache = False
model = getattr(transformers, config.architectures[0])._from_config(config, dtype=config.dtype).cuda()
model.train()
name, _, impl = optimizer.partition(",impl=")
kind = {"adamw": torch.optim.AdamW, "sgd": torch.optim.SGD, "adagrad": torch.optim.Adagrad}[name]
optimizer = kind(model.parameters(), lr=1e-4, **({"foreach": False} if impl == "forloop" else {impl: True} if impl else {}))
scaler = torch.amp.GradScaler("cuda")
for step in range(3):
    x = torch.randint(0, config.vocab_size, (4, tokens), device="cuda")
    with torch.autocast("cuda", torch.float16):
        loss = model(input_ids=x, labels=x).loss
    scaler.scale(loss).backward()
    if clip:
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad()
