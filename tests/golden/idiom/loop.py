"""The loop that most people of transformers write: two steps of it under `plimsoll run`.

    python loop.py FOLDER CACHE CHECKPOINT SEQ SEQUENCES ATTENTION    FOLDER holds a config.json; CACHE and CHECKPOINT are 0
                                                                      or 1, SEQUENCES is equal, padded or packed,
                                                                      ATTENTION usual or eager
"""
import sys

import torch
import transformers

folder, cache, checkpoint, seq = sys.argv[1], *map(int, sys.argv[2:5])
config = transformers.AutoConfig.from_pretrained(folder)
config.use_cache = bool(cache)
kind = config.architectures[0]
attention = {"attn_implementation": "eager"} if sys.argv[6] == "eager" else {}
model = getattr(transformers, kind)._from_config(config, dtype=config.dtype, **attention).cuda()
model.train()
if checkpoint:
    model.gradient_checkpointing_enable()
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
for step in range(2):
    more = {}
    if "Image" in kind:
        x = torch.randn(4, 3, config.image_size, config.image_size, dtype=config.dtype, device="cuda")
    elif kind.startswith("Whisper"):
        x = torch.randn(4, config.num_mel_bins, 2 * config.max_source_positions, dtype=config.dtype, device="cuda")
    else:
        x = torch.randint(0, config.vocab_size, (4, seq), device="cuda")
    if sys.argv[5] == "padded":
        more["attention_mask"] = torch.ones((4, seq), dtype=torch.int64, device="cuda")
        more["attention_mask"][0, seq // 2:] = 0
    if sys.argv[5] == "packed":
        more["position_ids"] = torch.empty((4, seq), dtype=torch.int64, device="cuda")
        more["position_ids"][:] = torch.arange(seq // 2).repeat(2)
    y = x  # a decoder shifts its tokens itself
    if kind.endswith("MaskedLM"):
        y = torch.randint(0, config.vocab_size, (4, seq), device="cuda")
    if kind.endswith("Classification"):
        y = torch.randint(0, config.num_labels, (4, seq) if "Token" in kind else (4,), device="cuda")
    if kind.endswith("Generation"):
        y = torch.randint(0, config.vocab_size, (4, 64), device="cuda")
    with torch.autocast("cuda", torch.bfloat16, enabled=config.dtype == torch.float32):
        loss = model(**{model.main_input_name: x}, labels=y, **more).loss
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
