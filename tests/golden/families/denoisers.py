#!/usr/bin/env python3
"""Compares `plimsoll estimate` of denoisers of diffusers with training steps of the same (denoisers_loop.py), to the byte.

    tests/golden/runs.py says how to call it.

A row of denoisers.txt is a model, fp32, bf16 or autocast, checkpoints as 0 or 1, batch, images as --images takes them, tokens of
text, and the peak of requested bytes.
"""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent

sys.path.insert(0, str(HERE.parent))
import runs  # noqa: E402  what such scripts have in common

UNET = "UNet2DConditionModel"
SDXL = {"sample_size": 128, "cross_attention_dim": 2048, "attention_head_dim": [5, 10, 20], "use_linear_projection": True,
        "down_block_types": ["DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"],
        "up_block_types": ["CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"], "block_out_channels": [320, 640, 1280],
        "transformer_layers_per_block": [1, 2, 10], "addition_embed_type": "text_time", "addition_time_embed_dim": 256,
        "projection_class_embeddings_input_dim": 2816}
MODELS = {  # library, class, keys; not Qwen-Image, which keeps 2.75 MiB of rotary tables that are not counted
    "flux": ("diffusers", "FluxTransformer2DModel", {"num_layers": 2, "num_single_layers": 3, "num_attention_heads": 4,
                                                     "joint_attention_dim": 512, "guidance_embeds": True}),
    "sd3": ("diffusers", "SD3Transformer2DModel", {"num_layers": 3, "num_attention_heads": 8, "caption_projection_dim": 512,
                                                   "joint_attention_dim": 768, "pooled_projection_dim": 2048, "pos_embed_max_size": 192}),
    "sd15": ("diffusers", UNET, {"sample_size": 64, "cross_attention_dim": 768}),
    "sd21": ("diffusers", UNET, {"sample_size": 96, "cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20],
                                 "use_linear_projection": True}),
    "sdxl": ("diffusers", UNET, SDXL),
}


def text_of(name):
    """The text that builds it."""
    return f"{MODELS[name][1]}.{name}" if MODELS[name][1] == UNET else MODELS[name][1]


SETTINGS = [("fp32", 0), ("bf16", 0), ("autocast", 0), ("bf16", 1), ("autocast", 1)]
WORDS = {"fp32": ["--dtype", "fp32"], "bf16": ["--dtype", "bf16"], "autocast": ["--dtype", "fp32", "--autocast", "bf16"]}
CHECKPOINTS = {"flux": "*transformer_blocks.*", "sd3": "transformer_blocks.*"}
SIZES = (4, "768x512", 48)


def cases():
    return [(name, *setting, *SIZES) for name in MODELS for setting in SETTINGS if name in CHECKPOINTS or not setting[1]]


def predicted(program, folder, name, setting, checkpoints, batch, images, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--images", images, "--seq", tokens, *WORDS[setting],
                         "--optimizer", "adamw", "--checkpoint", CHECKPOINTS[name] if checkpoints else "none")


def measured(program, folder, name, *rest):
    return runs.run(program, HERE / "denoisers_loop.py", folder / name, *rest)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "denoisers.txt", MODELS, cases(), predicted, measured,
                       "model, precision, checkpoints, batch, images, tokens, peak of requested bytes", packages=["diffusers"]).main(__doc__))
