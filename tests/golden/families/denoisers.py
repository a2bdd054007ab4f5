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
CLASSES = {  # library, class, keys
    "flux": ("diffusers", "FluxTransformer2DModel", {"num_layers": 2, "num_single_layers": 3, "num_attention_heads": 4,
                                                     "joint_attention_dim": 512, "guidance_embeds": True}),
    "flux2": ("diffusers", "Flux2Transformer2DModel", {"num_layers": 2, "num_single_layers": 3, "num_attention_heads": 4,
                                                       "joint_attention_dim": 512}),
    "sd3": ("diffusers", "SD3Transformer2DModel", {"num_layers": 3, "num_attention_heads": 8, "caption_projection_dim": 512,
                                                   "joint_attention_dim": 768, "pooled_projection_dim": 2048, "pos_embed_max_size": 192}),
    "wan": ("diffusers", "WanTransformer3DModel", {"num_layers": 3, "num_attention_heads": 4, "ffn_dim": 1408, "text_dim": 512}),
    "qwen_image": ("diffusers", "QwenImageTransformer2DModel", {"num_layers": 3, "num_attention_heads": 4, "joint_attention_dim": 512}),
    "sd15": ("diffusers", UNET, {"sample_size": 64, "cross_attention_dim": 768}),
    "sd21": ("diffusers", UNET, {"sample_size": 96, "cross_attention_dim": 1024, "attention_head_dim": [5, 10, 20, 20],
                                 "use_linear_projection": True}),
    "sdxl": ("diffusers", UNET, SDXL),
}


def text_of(name):
    """The text that builds it."""
    return f"{CLASSES[name][1]}.{name}" if CLASSES[name][1] == UNET else CLASSES[name][1]


KNOWN = {path.name.split(".", 1)[1][:-len(".fam")] for path in (HERE.parents[2] / "src" / "families").glob("diffusers.*.fam")}
MODELS = {name: row for name, row in CLASSES.items() if text_of(name) in KNOWN}
MODELS.pop("qwen_image", None)  # keeps 2.75 MiB of rotary tables and angles between steps, which are not counted
SETTINGS = [("fp32", 0), ("bf16", 0), ("autocast", 0), ("bf16", 1), ("autocast", 1)]
WORDS = {"fp32": ["--dtype", "fp32"], "bf16": ["--dtype", "bf16"], "autocast": ["--dtype", "fp32", "--autocast", "bf16"]}
CHECKPOINTS = {"flux": "*transformer_blocks.*", "flux2": "*transformer_blocks.*", "sd3": "transformer_blocks.*", "wan": "blocks.*",
               "qwen_image": "transformer_blocks.*"}
SIZES = {"wan": (2, "17@448x256", 48)}
USUAL = (4, "768x512", 48)


def cases():
    return [(name, *setting, *SIZES.get(name, USUAL)) for name in MODELS for setting in SETTINGS if name in CHECKPOINTS or not setting[1]]


def predicted(program, folder, name, setting, checkpoints, batch, images, tokens):
    return runs.estimate(program, folder / name, "--batch", batch, "--images", images, "--seq", tokens, *WORDS[setting],
                         "--optimizer", "adamw", "--checkpoint", CHECKPOINTS[name] if checkpoints else "none")


def measured(program, folder, name, *rest):
    return runs.run(program, HERE / "denoisers_loop.py", folder / name, *rest)


if __name__ == "__main__":
    sys.exit(runs.Runs(HERE / "denoisers.txt", MODELS, cases(), predicted, measured,
                       "model, precision, checkpoints, batch, images, tokens, peak of requested bytes", packages=["diffusers"]).main(__doc__))
