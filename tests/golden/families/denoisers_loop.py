"""A training loop as the scripts of diffusers write it: denoisers_loop.py CONFIG fp32|bf16|autocast CHECKPOINTS BATCH IMAGES TOKENS, two
steps of AdamW."""
import json
import pathlib
import sys

import diffusers
import torch


def inputs(model, batch, images, tokens, dtype):
    """Latents, the states of the text, and the rest; and what is like the output."""
    width, height = map(int, images.split("x"))
    keys, name = model.config, type(model).__name__

    def noise(*sizes):
        return torch.randn(*sizes, device="cuda", dtype=dtype)

    at = torch.randint(1000, (batch,), device="cuda")
    latents = noise(batch, keys.in_channels, height // 8, width // 8)
    text = {"encoder_hidden_states": noise(batch, tokens, keys.get("cross_attention_dim") or keys.get("joint_attention_dim"))}
    if name == "UNet2DConditionModel":
        more = {"added_cond_kwargs": {"text_embeds": noise(batch, 1280), "time_ids": noise(batch, 6)}} \
            if keys.addition_embed_type == "text_time" else {}
        return {"sample": latents, "timestep": at, **text, **more}
    if name == "SD3Transformer2DModel":
        return {"hidden_states": latents, "timestep": at.to(dtype), "pooled_projections": noise(batch, keys.pooled_projection_dim), **text}
    patches = (height // 16) * (width // 16)
    guidance = {"guidance": noise(batch)} if keys.guidance_embeds else {}
    return {"hidden_states": noise(batch, patches, keys.in_channels), "timestep": at.to(dtype) / 1000, **text, **guidance,
            "img_ids": noise(patches, 3), "txt_ids": noise(tokens, 3), "pooled_projections": noise(batch, keys.pooled_projection_dim)}


def main(path, setting, checkpoints, batch, images, tokens):
    keys = json.loads((pathlib.Path(path) / "config.json").read_text())
    model = getattr(diffusers, keys.pop("_class_name"))(**keys)
    dtype = torch.bfloat16 if setting == "bf16" else torch.float32
    model = model.to("cuda", dtype).train()
    if int(checkpoints):
        model.enable_gradient_checkpointing()
    optimizer = torch.optim.AdamW(model.parameters())
    for _ in range(2):
        given = inputs(model, int(batch), images, int(tokens), dtype)
        with torch.autocast("cuda", torch.bfloat16, enabled=setting == "autocast"):
            out = model(**given).sample
            target = torch.randn(out.shape, device="cuda", dtype=dtype)
            loss = torch.nn.functional.mse_loss(out.float(), target.float())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
