"""denoisers.py -- what diffusion runs at every step, by the class of diffusers: "diffusers:FluxTransformer2DModel".

A class takes its keys as arguments, and each has inputs of its own: those that its pipeline and the training scripts of
diffusers give it.
"""

from __future__ import annotations

import importlib.metadata
import inspect
from typing import Any, Callable, Dict, Optional, Sequence, Tuple

Shape = Tuple[str, ...]
Inputs = Dict[str, Tuple[Shape, str]]
More = Callable[[Dict[str, Any]], Dict[str, Any]]  # of a run's features

TIME = (("B",), "float32")
PATCHES = {"$patches": "$height // 16 * ($width // 16)"}  # of latents, which are 8 times smaller than the image
LATENTS = (("B", "in_channels", "$height // 8", "$width // 8"), "$dtype")


PIXELS = {f"$pixels{k}": f"$height // {n} * ($width // {n})" for k, n in enumerate((8, 16, 32, 64))}


def text(width: str) -> Inputs:
    """What the text encoder made of it."""
    return {"encoder_hidden_states": (("B", "S", width), "$dtype")}


def decoded(model: Any, z: Any) -> Any:
    return model.decode(z).sample


def encoded(model: Any, sample: Any) -> Any:
    return model.encode(sample).latent_dist.sample()


class Row:
    def __init__(self, inputs: Inputs, seq: int = 0, image: str = "1024", frames: int = 0, more: Optional[More] = None,
                 moved: Sequence[str] = (), left: Sequence[str] = (), start: Optional[Dict[str, Any]] = None, named: Optional[Dict[str, str]] = None,
                 multiple: int = 16, call: Optional[Callable[..., Any]] = None, **keys: Any) -> None:
        """seq, image, frames: tokens of text, height and width, frames of a video, unless the user says otherwise; more: what it is
        called with that is no tensor; moved: the only keys that may have other values, if not all; left: those that may not; start: what runs begin with;
        named: sizes that its code works with; multiple: of what height and width are; call: what runs, if not the class's forward; keys: where the class's own defaults are
        of no model."""
        self.inputs, self.seq, self.image, self.frames, self.more = inputs, seq, image, frames, more
        self.moved, self.left, self.start, self.named, self.multiple, self.keys = moved, set(left), start or {}, named or {}, multiple, keys
        self.call = call


SDXL = {"added_cond_kwargs.text_embeds": (("B", "projection_class_embeddings_input_dim - 6 * addition_time_embed_dim"), "$dtype"),
        "added_cond_kwargs.time_ids": (("B", "6"), "$dtype")}
POOLED = {"pooled_projections": (("B", "pooled_projection_dim"), "$dtype")}


def unet(more: Inputs, **keys: Any) -> Row:
    return Row({"sample": LATENTS, "timestep": (("B",), "int64"), **text("cross_attention_dim"), **more}, 77, "sample_size * 8",
               moved=("in_channels", "out_channels", "cross_attention_dim", "sample_size", "dropout",
                      "transformer_layers_per_block"),  # others make another network
               named=PIXELS, multiple=64, **keys)


def autoencoder(inputs: Inputs, call: Callable[..., Any]) -> Row:
    return Row(inputs, call=call, named={"$pixels0": PIXELS["$pixels0"]}, multiple=8,
               moved=("in_channels", "out_channels", "latent_channels", "use_quant_conv", "use_post_quant_conv", "sample_size", "scaling_factor",
                      "shift_factor", "latents_mean", "latents_std", "force_upcast"),
               down_block_types=("DownEncoderBlock2D",) * 4, up_block_types=("UpDecoderBlock2D",) * 4,
               block_out_channels=(128, 256, 512, 512), layers_per_block=2)


DENOISERS = {
    "AutoencoderKL.decode": autoencoder({"z": (("B", "latent_channels", "$height // 8", "$width // 8"), "$dtype")}, decoded),
    "AutoencoderKL.encode": autoencoder({"sample": (("B", "in_channels", "$height", "$width"), "$dtype")}, encoded),
    "FluxTransformer2DModel": Row(
        {"hidden_states": (("B", "$patches", "in_channels"), "$dtype"), **text("joint_attention_dim"), **POOLED, "timestep": TIME,
         "img_ids": (("$patches", "3"), "$dtype"), "txt_ids": (("S", "3"), "$dtype"),
         "guidance": (("B if guidance_embeds else 0",), "float32")}, 512, named=PATCHES),
    "Flux2Transformer2DModel": Row(
        {"hidden_states": (("B", "$patches", "in_channels"), "$dtype"), **text("joint_attention_dim"), "timestep": TIME,
         "img_ids": (("B", "$patches", "4"), "$dtype"), "txt_ids": (("B", "S", "4"), "$dtype"),
         "guidance": (("B if guidance_embeds else 0",), "float32")}, 512, named=PATCHES),
    "SD3Transformer2DModel": Row(
        {"hidden_states": LATENTS, **text("joint_attention_dim"), **POOLED, "timestep": TIME}, 333, "sample_size * 8",
        named={**PATCHES, "$inner": "num_attention_heads * attention_head_dim", "$rows": "$height // 16", "$columns": "$width // 16",
               "$top": "(pos_embed_max_size - $rows) // 2", "$left": "(pos_embed_max_size - $columns) // 2"}, left=("patch_size",),
        num_layers=24, num_attention_heads=24, caption_projection_dim=1536, pooled_projection_dim=2048, pos_embed_max_size=192),
    "WanTransformer3DModel": Row(
        {"hidden_states": (("B", "in_channels", "$latents", "$height // 8", "$width // 8"), "$dtype"),
         "timestep": TIME, **text("text_dim")}, 512, "480", 81,
        left=("patch_size", "freq_dim", "image_dim", "added_kv_proj_dim", "pos_embed_seq_len"), named={"$latents": "($frames - 1) // 4 + 1", "$patches": "$latents * ($height // 16) * ($width // 16)"}),
    "QwenImageTransformer2DModel": Row(
        {"hidden_states": (("B", "$patches", "in_channels"), "$dtype"), **text("joint_attention_dim"), "timestep": TIME}, 512,
        named={**PATCHES, "$farthest": "max($height // 16 // 2, $width // 16 // 2)"}, more=lambda row: {"img_shapes": [[(1, row["$height"] // 16, row["$width"] // 16)]] * row["B"]}),
    "UNet2DConditionModel.sd15": unet({}, sample_size=64, cross_attention_dim=768),
    "UNet2DConditionModel.sd21": unet({}, sample_size=96, cross_attention_dim=1024, attention_head_dim=(5, 10, 20, 20), use_linear_projection=True),
    "UNet2DConditionModel.sdxl": unet(
        SDXL, sample_size=128, cross_attention_dim=2048, attention_head_dim=(5, 10, 20), use_linear_projection=True,
        down_block_types=("DownBlock2D", "CrossAttnDownBlock2D", "CrossAttnDownBlock2D"),
        up_block_types=("CrossAttnUpBlock2D", "CrossAttnUpBlock2D", "UpBlock2D"), block_out_channels=(320, 640, 1280),
        transformer_layers_per_block=(1, 2, 10), start={"transformer_layers_per_block": (1, 2, 3)}, addition_embed_type="text_time", addition_time_embed_dim=256,
        projection_class_embeddings_input_dim=2816),
}


class Denoiser:
    """Takes the place of a class: makes a model of a configuration."""

    library = "diffusers"

    def __init__(self, kind: str) -> None:
        import diffusers
        self.name = kind.partition(":")[2]
        self.cls = getattr(diffusers, self.name.partition(".")[0])
        row = DENOISERS[self.name]
        arguments = inspect.signature(self.cls.__init__).parameters
        self.keys = {k: p.default for k, p in arguments.items() if k != "self"}
        self.keys.update(row.keys)
        self.inputs, self.seq, self.image, self.frames, self.more = row.inputs, row.seq, row.image, row.frames, row.more
        self.needed = set(row.keys)  # their defaults are not those of the class
        self.start, self.named, self.multiple, self.left = row.start, row.named, row.multiple, (set(self.keys) - set(row.moved or self.keys)) | row.left
        self.annotations = {k: "list | tuple" if isinstance(v, tuple) else type(v).__name__ if v is not None else "int | None"
                            for k, v in self.keys.items()}
        if row.call:
            self.cls = type(self.cls.__name__, (self.cls,), {"forward": row.call, "__module__": self.cls.__module__})
        self.__name__, self.__module__, self.forward = self.cls.__name__, self.cls.__module__, self.cls.forward
        self.version = f"diffusers {importlib.metadata.version('diffusers')}"

    @property
    def file(self) -> str:
        return f"diffusers.{self.name}"

    def __call__(self, config: Any) -> Any:
        return self.cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in ((k, getattr(config, k)) for k in self.keys)})
