"""A training loop as its users write it: steps_loop.py CONFIG ATTENTION CHECKPOINTS BATCH TOKENS, two steps of AdamW."""
import inspect
import sys

import torch
import transformers


FIRST = 8  # tokens below it are of images
IN_UNITS = 16  # height and width of an image, in what a token of it stands for


def side(size):
    """Of a square, which some give as height and width."""
    return size if isinstance(size, int) else size[0]


def pixels(config, batch):
    size = side(config.image_size)
    return torch.rand(batch, 3, size, size, device="cuda", dtype=config.dtype)


def inputs(model, config, batch, tokens):
    takes = inspect.signature(model.forward).parameters
    if "input_ids" not in takes:
        return {"pixel_values": pixels(config, batch), "labels": torch.randint(config.num_labels, (batch,), device="cuda")}
    ids = torch.randint(FIRST, config.get_text_config().vocab_size, (batch, tokens), device="cuda")
    if "return_loss" in takes:  # of pairs of a text and an image
        return {"input_ids": ids, "pixel_values": pixels(config.vision_config, batch), "return_loss": True}
    if "image_grid_thw" in takes:  # one in each sequence, of any size
        vision = config.vision_config
        rows = IN_UNITS * vision.spatial_merge_size
        ids[:, :IN_UNITS ** 2] = config.image_token_id
        patch = vision.in_channels * vision.temporal_patch_size * vision.patch_size ** 2
        return {"input_ids": ids, "labels": ids, "mm_token_type_ids": torch.where(ids == config.image_token_id, 1, 0),
                "pixel_values": torch.rand(batch * rows ** 2, patch, device="cuda", dtype=config.dtype),
                "image_grid_thw": torch.tensor([[1, rows, rows]] * batch, device="cuda")}
    images = {}
    if hasattr(config, "vision_config"):  # one in each sequence
        rows = side(config.vision_config.image_size) // side(config.vision_config.patch_size)
        count = getattr(config, "mm_tokens_per_image", int((rows * getattr(config, "downsample_ratio", 1)) ** 2))
        ids[:, :count] = config.image_token_id
        images = {"pixel_values": pixels(config.vision_config, batch)}
        if "token_type_ids" in takes:
            images["token_type_ids"] = torch.where(ids == config.image_token_id, 1, 0)
    return {"input_ids": ids, "labels": ids, **images}


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
        given = inputs(model, config, int(batch), int(tokens))
        loss = model(**given).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
