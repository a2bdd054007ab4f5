"""What people run: releases_loop.py CONFIG ATTENTION KIND BATCH TOKENS, of any release of transformers since 4.38.

KIND is train, checkpoints: two steps of AdamW; infer: two forward passes.
"""
import json
import pathlib
import sys

import torch
import transformers


def build(path, attention):
    config = transformers.AutoConfig.from_pretrained(path)
    cls = getattr(transformers, config.architectures[0])
    given = {} if attention == "default" else {"attn_implementation": attention}
    dtype = getattr(torch, json.loads((pathlib.Path(path) / "config.json").read_text())["torch_dtype"])
    try:
        model = cls._from_config(config, torch_dtype=dtype, **given)
    except TypeError:  # newer ones call it dtype
        model = cls._from_config(config, dtype=dtype, **given)
    for parameter in model.parameters():  # as loading does with those that a class makes in fp32
        parameter.data = parameter.data.to(dtype)
    return config, model.to("cuda")


def train(config, model, checkpoints, batch, tokens):
    model.train()
    if checkpoints:
        model.gradient_checkpointing_enable({"use_reentrant": False})
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids = torch.randint(8, config.vocab_size, (batch, tokens), device="cuda")
        labels = ids.clone() if config.is_encoder_decoder else ids
        loss = model(input_ids=ids, labels=labels).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


def infer(config, model, batch, tokens):
    model.eval()
    with torch.no_grad():
        for _ in range(2):
            ids = torch.randint(8, config.vocab_size, (batch, tokens), device="cuda")
            given = {"decoder_input_ids": ids.clone()} if config.is_encoder_decoder else {}
            out = model(input_ids=ids, **given)
    return out


def main(path, attention, kind, batch, tokens):
    config, model = build(path, attention)
    if kind == "infer":
        infer(config, model, int(batch), int(tokens))
    else:
        train(config, model, kind == "checkpoints", int(batch), int(tokens))


if __name__ == "__main__":
    main(*sys.argv[1:])
