#!/usr/bin/env python3
"""Exports models in bf16 whose blocks check.py measures: attention written out, and a mask for padding.

    python3 tests/blocks/record.py

needs transformers; writes NAME.pt2 next to itself, without weights. (An export in fp32 has fp32 in its casts.)
"""
import pathlib
import sys
import tempfile

import torch
import transformers

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "tools" / "differential"))
import differential  # noqa: E402
import models  # noqa: E402

BATCH = 2


def write(name, family, mask=False, **settings):
    model, config, kwargs = models.HF[family]
    config = getattr(transformers, config)(**{**kwargs, "use_cache": False, **settings})
    module = getattr(transformers, model)(config).to(torch.bfloat16).train()
    ids = torch.ones(BATCH, models.SEQ, dtype=torch.long)
    inputs = dict(input_ids=ids, labels=ids)
    if mask:
        inputs["attention_mask"] = torch.ones(BATCH, models.SEQ, dtype=torch.long)
        inputs["attention_mask"][0, 0] = 0
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / f"{name}.pt2"
        torch.export.save(torch.export.export(module, (), inputs, strict=False), path)
        differential.without_weights(path, HERE / path.name)


write("llama_eager", "llama", attn_implementation="eager")
write("llama_padded", "llama", mask=True)
write("gpt2_eager", "gpt2", attn_implementation="eager")
write("bert_eager", "bert", attn_implementation="eager")
write("t5_eager", "t5", attn_implementation="eager")
write("t5_gated", "t5", attn_implementation="eager", feed_forward_proj="gated-gelu")
