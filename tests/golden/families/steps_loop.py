"""A training loop as its users write it: steps_loop.py CONFIG ATTENTION CHECKPOINTS BATCH TOKENS, two steps of AdamW."""
import sys

import torch
import transformers


def main(path, attention, checkpoints, batch, tokens):
    config = transformers.AutoConfig.from_pretrained(path)
    model = getattr(transformers, config.architectures[0])._from_config(
        config, attn_implementation=None if attention == "default" else attention)
    for parameter in model.parameters():  # as loading does with those that a class makes in fp32
        parameter.data = parameter.data.to(config.dtype)
    model = model.to("cuda").train()
    if int(checkpoints):
        model.gradient_checkpointing_enable()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        ids = torch.randint(0, config.get_text_config().vocab_size, (int(batch), int(tokens)), device="cuda")
        loss = model(input_ids=ids, labels=ids).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
