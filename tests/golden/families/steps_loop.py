"""A training loop as its users write it: steps_loop.py CONFIG ATTENTION CHECKPOINTS BATCH TOKENS, two steps of AdamW."""
import inspect
import sys

import torch
import transformers


FIRST = 8  # tokens below it are of images


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
        ids = torch.randint(FIRST, config.get_text_config().vocab_size, (int(batch), int(tokens)), device="cuda")
        images = {}
        if hasattr(config, "vision_config"):  # one in each sequence
            size, patch = (n if isinstance(n, int) else n[0] for n in (config.vision_config.image_size, config.vision_config.patch_size))
            takes = getattr(config, "mm_tokens_per_image", int((size // patch * getattr(config, "downsample_ratio", 1)) ** 2))
            ids[:, :takes] = config.image_token_id
            images = {"pixel_values": torch.rand(int(batch), 3, size, size, device="cuda", dtype=config.dtype)}
            if "token_type_ids" in inspect.signature(model.forward).parameters:
                images["token_type_ids"] = torch.where(ids == config.image_token_id, 1, 0)
        loss = model(input_ids=ids, labels=ids, **images).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
