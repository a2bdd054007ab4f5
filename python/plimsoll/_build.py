"""_build.py -- a module from what its library's configuration says of it, and what it is called with.

    built = build(Asked({"model_type": "qwen3_next", ...}, seq=4096))
    built.module         on the meta device: no weights, no memory
    built.inputs         {"input_ids": ..., "labels": ...}, which are on the meta device, too

The module is what transformers, diffusers, timm or torchvision makes of the configuration; the inputs are those of a
plain training step, or of one forward pass.  What is assumed is in the notes.  What cannot be built is a Refusal, whose
text says why: an input is never made up of which neither the configuration nor the library says the shape.

Code that comes with a model (auto_map) is run only if the caller trusts it.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import sys
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Tuple, Union

import torch

from ._door import library_of

Shape = Tuple[int, ...]

SEQUENCES = ("input_ids", "labels", "decoder_input_ids")
"""Inputs whose dimension 1 is the sequence."""


class Refusal(Exception):
    """Why there is no module, as the end of a sentence."""


@dataclass(frozen=True)
class Asked:
    """A model, and the run that it is wanted for."""

    config: Union[str, Mapping[str, Any]]
    """What a config.json or model_index.json holds, or a name such as "timm:convnext_base"."""
    folder: Optional[str] = None
    """Where the file lies, for those next to it."""
    train: bool = True
    batch: int = 1
    seq: Optional[int] = None
    inputs: Mapping[str, Shape] = field(default_factory=dict)
    """Shapes that the caller chose; "": of the main input."""
    attention: Optional[str] = None
    cache: bool = True
    """Whether a decoder keeps keys and values, if its configuration says so."""
    component: Optional[str] = None
    """The part of a pipeline; None: the denoiser."""
    trust: bool = False


@dataclass
class Built:
    module: torch.nn.Module
    inputs: Dict[str, Any]
    library: str
    """The one that made it."""
    notes: List[str] = field(default_factory=list)
    plain: Optional[Dict[str, Any]] = None
    """The inputs without what the module's own loss takes; None: it takes nothing else."""
    seq: Optional[int] = None
    """The length of a sequence that is not asked for."""
    loss: Optional[str] = None
    """The setting, where the module has no loss of its own."""
    left_out: str = ""
    """What of it is not counted, as a clause; no verdict is then a yes."""


def build(asked: Asked) -> Built:
    builder = _builder_of(asked.config)
    with torch.device("meta"):
        built = builder(replace(asked, batch=max(asked.batch, 2)))  # a size of 1 would be a constant
    built.module.to("meta")  # torch.Tensor(n) does not heed the context
    built.module.train(asked.train)
    return built


def source_of(built: Built) -> str:
    """Who made it: "transformers 5.24.0"."""
    return f"{built.library} {getattr(sys.modules[built.library], '__version__', '')}".strip()


def head_of(built: Built, exported: Any, asked: Asked) -> Dict[str, str]:
    """What the library reads of the model besides its graph; first the settings of a run that names none."""
    settings = dict(exported.settings)
    settings["batch"] = str(_usual(1, exported.batch or 1, exported.limits.get("batch")))
    if built.seq:
        traced = next((t.shape[1] for n, t in built.inputs.items() if n in SEQUENCES), built.seq)
        settings["seq"] = str(_usual(built.seq, traced, exported.limits.get("seq")))
    if asked.inputs:  # which say both
        settings = {k: v for k, v in settings.items() if k not in ("batch", "seq")}
    if built.loss and asked.train:
        settings["loss"] = built.loss
    settings["torch"] = ".".join(torch.__version__.split(".")[:2])
    config = getattr(built.module, "config", None)
    return {"plimsoll_settings": ";".join(f"{key}={value}" for key, value in settings.items()),
            "plimsoll_source": source_of(built),
            "plimsoll_left_out": built.left_out,
            "plimsoll_attention": str(getattr(config, "_attn_implementation", None) or ""),
            "plimsoll_model_type": str(getattr(config, "model_type", None) or "")}


def _usual(size: int, traced: int, limits: Any) -> int:
    """The size of a run that names none, if the export holds for it."""
    least, most = limits or (1, None)
    return size if (least <= 2 or size >= least) and (most is None or size <= most) else traced


def _builder_of(config: Union[str, Mapping[str, Any]]) -> Callable[[Asked], Built]:
    library = library_of(config)
    return _NAMED[library] if isinstance(config, str) else {"diffusers": _diffusers, "transformers": _transformers}[library]


def read_json(path: str) -> Dict[str, Any]:
    try:
        with open(path, encoding="utf-8") as file:
            found = json.load(file)
    except (OSError, ValueError) as why:
        raise Refusal(f"'{path}' cannot be read: {why}") from None
    if not isinstance(found, dict):
        raise Refusal(f"'{path}' is no object of JSON")
    return found


def _beside(asked: Asked, *path: str) -> Dict[str, Any]:
    """What a file of the folder says; nothing if it is not there."""
    whole = os.path.join(asked.folder, *path) if asked.folder else ""
    return read_json(whole) if whole and os.path.isfile(whole) else {}


def _floats(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    return torch.zeros(*shape, dtype=dtype)


def _words(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape, dtype=torch.long)


def _dtype_of(module: torch.nn.Module) -> torch.dtype:
    return next((p.dtype for p in module.parameters() if p.is_floating_point()), torch.float32)


# ---- transformers: the class ------------------------------------------------------------------------------

# What a config without "architectures" becomes: the first of these that knows its type.
_TASKS = ("IMAGE_TEXT_TO_TEXT", "SEQ_TO_SEQ_CAUSAL_LM", "SPEECH_SEQ_2_SEQ", "MASKED_LM", "CAUSAL_LM", "CTC",
          "IMAGE_CLASSIFICATION", "OBJECT_DETECTION", "UNIVERSAL_SEGMENTATION", "SEMANTIC_SEGMENTATION",
          "VIDEO_CLASSIFICATION", "AUDIO_CLASSIFICATION")


def _transformers(asked: Asked) -> Built:
    assert not isinstance(asked.config, str)
    if asked.config.get("quantization_config"):
        raise Refusal("its weights are packed ('quantization_config'), which an export does not show: without that "
                      "key it is built in the type of 'dtype'")
    config, remote = _config_of(asked)
    notes: List[str] = []
    old = torch.get_default_dtype()
    dtype = getattr(config, "dtype", None) or torch.float32
    dtype = getattr(torch, dtype.replace("torch.", ""), None) if isinstance(dtype, str) else dtype
    if not isinstance(dtype, torch.dtype) or not dtype.is_floating_point:
        raise Refusal(f"dtype '{config.dtype}' is not a type of parameters")
    if getattr(config, "is_encoder_decoder", False) and getattr(config, "decoder_start_token_id", None) is None:
        config.decoder_start_token_id = 0  # of the file for generation; a value, and not a size
    config.use_cache = bool(getattr(config, "use_cache", True)) and asked.cache
    _run_all_layers(config, asked, notes)
    chosen = {"attn_implementation": asked.attention} if asked.attention else {}
    try:
        torch.set_default_dtype(dtype)
        module = _remote_module(asked, config, chosen) if remote else \
            _class_of(asked, config, notes)._from_config(config, **chosen)
    finally:
        torch.set_default_dtype(old)
    module.to(dtype)
    calls = _Calls(asked, module, notes)
    inputs, plain = calls.all()
    return Built(module, inputs, "transformers", notes, plain, calls.default_tokens() if calls.has_sequence() else None,
                 left_out=calls.left_out)


def _run_all_layers(config: Any, asked: Asked, notes: List[str]) -> None:
    """LayerDrop leaves layers out by chance, and an export has no chance: it would leave out all of them."""
    for name in ("layerdrop", "encoder_layerdrop", "decoder_layerdrop"):
        if asked.train and getattr(config, name, None):
            setattr(config, name, 0.0)
            notes.append(f"All layers are counted, though '{name}' leaves some out by chance.")


def _config_of(asked: Asked) -> Tuple[Any, bool]:
    """The config, and whether its class comes with the model."""
    import transformers

    given = dict(asked.config) if not isinstance(asked.config, str) else {}
    kind, named = given.get("model_type"), (given.get("architectures") or [None])[0]
    known = kind in transformers.CONFIG_MAPPING
    if known and (named is None or hasattr(getattr(transformers, str(named), None), "_from_config")):
        return transformers.CONFIG_MAPPING[kind].from_dict(given), False
    what = f"class '{named}'" if known else f"model_type '{kind}'"
    if not given.get("auto_map"):
        raise Refusal(f"transformers does not know {what}" if kind else "the config has no 'model_type'")
    if not asked.trust:
        raise Refusal(f"{what} comes with code of its own, which is run only with --trust-remote-code")
    if not asked.folder:
        raise Refusal("code that comes with a model is read from its folder: name that")
    return transformers.AutoConfig.from_pretrained(asked.folder, trust_remote_code=True), True


def _remote_module(asked: Asked, config: Any, chosen: Dict[str, Any]) -> torch.nn.Module:
    import transformers

    named = [name for name in (getattr(config, "auto_map", None) or {}) if name.startswith("AutoModel")]
    best = next((name for name in ("AutoModelForCausalLM", "AutoModelForSeq2SeqLM", "AutoModelForMaskedLM")
                 if name in named), named[0] if named else None)
    if best is None:
        raise Refusal("its 'auto_map' names no class of a model")
    module: torch.nn.Module = getattr(transformers, best).from_config(config, trust_remote_code=True, **chosen)
    return module


def _class_of(asked: Asked, config: Any, notes: List[str]) -> Any:
    import transformers
    from transformers.models.auto import modeling_auto

    assert not isinstance(asked.config, str)
    named = asked.config.get("architectures")
    if named:
        return getattr(transformers, str(named[0]))
    for task in (*(f"MODEL_FOR_{task}" for task in _TASKS), "MODEL"):
        names = getattr(modeling_auto, f"{task}_MAPPING_NAMES", {}).get(config.model_type)
        name = names[0] if isinstance(names, (tuple, list)) else names
        if name and hasattr(transformers, name):
            notes.append(f"Built as {name}: the config names no other class.")
            return getattr(transformers, name)
    raise Refusal(f"transformers has no model for model_type '{config.model_type}'")


# ---- transformers: the inputs -----------------------------------------------------------------------------

# Inputs of which a model takes all that it has: one for each kind of data.
_DATA = ("input_ids", "pixel_values", "input_features", "input_values", "pixel_values_videos")
# What says where images and sounds are, in values and not in shapes.
_VALUED = ("image_grid_thw", "video_grid_thw", "pixel_position_ids", "tgt_sizes",
           "spatial_shapes")
_FRAMES = 16  # of a video
_TOKENS = 1024  # as for a config.json that plimsoll reads itself


class _Calls:
    """What a module of transformers is called with."""

    def __init__(self, asked: Asked, module: Any, notes: List[str]) -> None:
        self.asked, self.module, self.config, self.notes = asked, module, module.config, notes
        self.left_out = ""  # a clause
        self.takes = inspect.signature(module.forward).parameters
        self.main = module.main_input_name if isinstance(module.main_input_name, str) else module.main_input_name[0]
        self.dtype = _dtype_of(module)
        self.processor = _beside(asked, "preprocessor_config.json")

    def all(self) -> Tuple[Dict[str, Any], Optional[Dict[str, Any]]]:
        """The inputs, and if a loss takes some of them, those without it."""
        data = self.data()
        self.complete(data)
        loss = self.loss(data) if self.asked.train else {}
        if self.encodes() and "decoder_input_ids" in self.takes and "labels" not in loss:
            data["decoder_input_ids"] = _words(self.asked.batch, self.target())
        return {**data, **loss}, data if loss else None

    def data(self) -> Dict[str, Any]:
        own = type(self.module).__dict__.get("dummy_inputs")
        names = [n for n in _DATA if n in self.takes]
        if "pixel_values_videos" in names and self.main != "pixel_values_videos":
            names.remove("pixel_values_videos")
        if self.main not in _DATA and own is not None and not names:
            return {k: v for k, v in self.module.dummy_inputs.items() if torch.is_tensor(v)}
        valued = [n for n in _VALUED if n in self.takes]
        if valued and len(names) > 1:
            raise Refusal(f"{type(self.module).__name__} takes '{valued[0]}', whose values decide its sizes: an export has none")
        return {name: getattr(self, name)() for name in names}

    def complete(self, data: Mapping[str, Any]) -> None:
        """Refuses a module of which an input is not known."""
        missing = [n for n, p in self.takes.items() if p.default is p.empty and n not in data and
                   p.kind is p.POSITIONAL_OR_KEYWORD]
        if self.main not in data and not data:
            missing.insert(0, self.main)
        if missing:
            raise Refusal(f"the shape of '{missing[0]}', which {type(self.module).__name__} takes, is not known: export it "
                          "as it is called (plimsoll.estimate(module, inputs))")

    # ---- sizes

    def found(self, *names: str) -> Any:
        """The first of these keys that the config has, or a config in it."""
        inner = [getattr(self.config, n, None) for n in getattr(self.config, "sub_configs", None) or ()]
        for config in (self.config, *filter(None, inner)):
            for name in names:
                value = getattr(config, name, None)
                if value is not None and not callable(value):
                    return value
        return None

    def encodes(self) -> bool:
        return bool(getattr(self.config, "is_encoder_decoder", False))

    def given(self, name: str) -> Optional[Shape]:
        shapes = self.asked.inputs
        return shapes.get(name) or (shapes.get("") if name == self.main else None)

    def has_sequence(self) -> bool:
        return "input_ids" in self.takes or "labels" in self.takes and self.encodes()

    def tokens(self) -> int:
        chosen = self.given("input_ids")
        text = getattr(getattr(self.config, "text_config", None), "max_position_embeddings", None)
        if chosen:
            return chosen[-1]
        if isinstance(text, int) and 0 < text < (self.asked.seq or 0) and not self.encodes():
            return text  # CLIP's text is short, whatever is asked for
        return self.asked.seq or self.default_tokens()

    def default_tokens(self) -> int:
        most = self.found("max_position_embeddings", "n_positions", "max_source_positions")
        most = most if isinstance(most, int) and most > 0 else _TOKENS
        if "roberta" in str(self.config.model_type) and most in (514, 8194):
            most -= 2  # positions begin behind that of the padding
        target = getattr(self.config, "max_target_positions", None)
        if "input_ids" not in self.takes and isinstance(target, int):
            most = target
        return min(_TOKENS, int(most))

    def target(self) -> int:
        """Tokens of a decoder behind an encoder."""
        return self.tokens()

    def image(self) -> Tuple[int, int]:
        for size in (self.processor.get("crop_size"), self.processor.get("size"), self.found("image_size", "img_size")):
            if isinstance(size, Mapping):
                size = [size.get("height", size.get("shortest_edge")), size.get("width", size.get("shortest_edge"))]
            size = [size, size] if isinstance(size, int) else size
            if isinstance(size, (list, tuple)) and len(size) == 2 and all(isinstance(n, int) and n > 0 for n in size):
                return int(size[0]), int(size[1])
        self.notes.append("Images of 224x224 are assumed: neither the config nor a preprocessor_config.json says a size.")
        return 224, 224

    # ---- one input each

    def input_ids(self) -> Any:
        return _words(*(self.given("input_ids") or (self.asked.batch, self.tokens())))

    def pixel_values(self) -> Any:
        channels = self.found("num_channels", "in_channels", "in_chans") or 3
        return _floats(self.given("pixel_values") or (self.asked.batch, channels, *self.image()), self.dtype)

    def pixel_values_videos(self) -> Any:
        channels, frames = self.found("num_channels", "in_channels", "in_chans") or 3, \
            self.found("num_frames", "frames_per_clip") or _FRAMES
        return _floats(self.given("pixel_values_videos") or (self.asked.batch, frames, channels, *self.image()), self.dtype)

    def input_features(self) -> Any:
        """Spectrograms: mels x frames, as Whisper takes them, or frames x features."""
        shape = self.given("input_features")
        mels = self.found("num_mel_bins", "feature_size", "input_feat_per_channel", "feature_projection_input_dim")
        positions = self.found("max_source_positions")
        if shape is None and self.found("num_mel_bins") and positions:
            shape = (self.asked.batch, mels, 2 * positions)
        if shape is None and mels:
            shape = (self.asked.batch, self.asked.seq or _TOKENS, mels)
        if shape is None:
            raise Refusal("the shape of 'input_features' is not known: give it with --input")
        return _floats(shape, self.dtype)

    def input_values(self) -> Any:
        """Sound as it is, or a spectrogram of a fixed length."""
        shape, mels, frames = self.given("input_values"), self.found("num_mel_bins"), self.found("max_length")
        if shape is None and mels and isinstance(frames, int) and hasattr(self.config, "patch_size"):
            shape = (self.asked.batch, frames, mels)
        if shape is None:
            rate = self.processor.get("sampling_rate") or 16000
            shape = (self.asked.batch, self.asked.seq or 10 * rate)
            if not self.asked.seq:
                self.notes.append(f"10 seconds of sound at {rate} Hz are assumed.")
            if getattr(self.config, "audio_channels", None):
                shape = (shape[0], self.config.audio_channels, shape[1])
        return _floats(shape, self.dtype)

    # ---- what its loss takes

    def loss(self, data: Mapping[str, Any]) -> Dict[str, Any]:
        name, batch = type(self.module).__name__, self.asked.batch
        if "start_positions" in self.takes:
            return {"start_positions": _words(batch), "end_positions": _words(batch)}
        if "labels" not in self.takes:
            return {"return_loss": True} if "return_loss" in self.takes else {}
        tokens = data.get("input_ids")
        if any(word in name for word in ("ForSequenceClassification", "ForImageClassification", "ForVideoClassification",
                                         "ForAudioClassification", "ForMultipleChoice", "ForNextSentence")):
            return {"labels": _words(batch)}
        if any(word in name for word in ("Detection", "Segmentation", "ForCTC", "DepthEstimation", "ForPreTraining",
                                         "Keypoint", "ForXVector", "ForRNNT", "ForTDT")):
            self.left_out = f"the own loss of {name}, whose memory depends on the labels, is not counted"
            return {}
        if self.encodes() and "decoder_input_ids" in self.takes:
            return {"labels": _words(batch, self.target())}
        return {"labels": torch.zeros_like(tokens)} if tokens is not None and tokens.dim() == 2 else {}


# ---- timm and torchvision -----------------------------------------------------------------------------------


def _name_of(asked: Asked) -> str:
    return str(asked.config).partition(":")[2]


def _pictures(asked: Asked, size: Sequence[int]) -> torch.Tensor:
    given = next(iter(asked.inputs.values()), None)
    return torch.zeros(*(given or (asked.batch, *size)))


def _timm(asked: Asked) -> Built:
    timm = importlib.import_module("timm")
    name = _name_of(asked)
    if not timm.is_model(name.partition(".")[0]):
        near = timm.list_models(f"*{name.split('_')[0]}*")[:3]
        raise Refusal(f"timm has no model '{name}'" + (f"; it has {', '.join(near)}" if near else ""))
    module = timm.create_model(name, pretrained=False)
    size = getattr(module, "pretrained_cfg", {}).get("input_size") or (3, 224, 224)
    return Built(module, {"x": _pictures(asked, size)}, "timm")


def _torchvision(asked: Asked) -> Built:
    models = importlib.import_module("torchvision.models")
    name = _name_of(asked)
    if name not in models.list_models():
        near = [n for n in models.list_models() if n.startswith(name[:3])][:3]
        raise Refusal(f"torchvision has no model '{name}'" + (f"; it has {', '.join(near)}" if near else ""))
    kind = models.get_model_builder(name).__module__
    if ".detection." in kind or ".optical_flow" in kind:
        raise Refusal(f"'{name}' takes lists or pairs of pictures, which an export does not show")
    module = models.get_model(name, weights=None, **({"weights_backbone": None} if ".segmentation." in kind else {}))
    crop = getattr(models.get_model_weights(name).DEFAULT.transforms(), "crop_size", None) or [224]
    size = [crop[0], crop[-1]]
    size = [3, _FRAMES, *size] if ".video." in kind else [3, *size]
    first = next(iter(inspect.signature(module.forward).parameters))
    return Built(module, {first: _pictures(asked, size)}, "torchvision")


_NAMED: Dict[str, Callable[[Asked], Built]] = {"timm": _timm, "torchvision": _torchvision}


# ---- diffusers ------------------------------------------------------------------------------------------------

_DENOISERS = ("unet", "transformer", "prior", "decoder")


def _diffusers(asked: Asked) -> Built:
    """A part of a pipeline; of a model_index.json that which removes the noise."""
    assert not isinstance(asked.config, str)
    parts = {k: v for k, v in asked.config.items() if isinstance(v, (list, tuple)) and len(v) == 2 and v[0]}
    if not parts:
        return _part(asked, dict(asked.config))
    part = asked.component or next((n for n in _DENOISERS if n in parts), None)
    if part not in parts:
        raise Refusal(f"the pipeline has no part '{part}': it has {', '.join(parts)}")
    inner = _beside(asked, part, "config.json")
    if not inner:
        raise Refusal(f"'{part}/config.json' is not in the folder")
    within = Asked(inner, os.path.join(asked.folder or "", part), asked.train, asked.batch, asked.seq, asked.inputs,
                   asked.attention, asked.cache, None, asked.trust)
    built = _transformers(within) if parts[part][0] == "transformers" else _part(within, inner)
    others = ", ".join(n for n, v in parts.items() if n != part and v[0] in ("diffusers", "transformers") and
                       not any(w in v[1] for w in ("Scheduler", "Tokenizer", "Processor", "Extractor")))
    counted = f"only '{part}' of {asked.config['_class_name']} is counted" + (f", without {others}" if others else "")
    if asked.component or not others:  # what was asked for
        built.notes.append(counted[0].upper() + counted[1:] + ".")
    else:
        built.left_out = counted
    return built


def _part(asked: Asked, config: Dict[str, Any]) -> Built:
    diffusers = importlib.import_module("diffusers")
    name = str(config.get("_class_name"))
    kind = getattr(diffusers, name, None)
    if kind is None or not issubclass(kind, torch.nn.Module):
        raise Refusal(f"diffusers has no model '{name}'")
    module = kind.from_config({k: v for k, v in config.items() if k != "quantization_config"})
    make = next((make for prefix, make in _LATENTS.items() if name.startswith(prefix)), None)
    if make is None:
        raise Refusal(f"the inputs of {name} are not known: export it as it is called (plimsoll.estimate(module, inputs))")
    return Built(module, make(asked, module.config), "diffusers", loss="mse")


def _unet_inputs(asked: Asked, config: Any) -> Dict[str, Any]:
    batch, side = asked.batch, config.sample_size or 64
    high, wide = side if isinstance(side, (tuple, list)) else (side, side)
    inputs = {"sample": torch.zeros(*(asked.inputs.get("") or asked.inputs.get("sample") or
                                      (batch, config.in_channels, high, wide))),
              "timestep": torch.zeros(batch),
              "encoder_hidden_states": torch.zeros(batch, asked.seq or 77, _largest(config.cross_attention_dim))}
    if config.addition_embed_type == "text_time":
        width = config.projection_class_embeddings_input_dim - 6 * config.addition_time_embed_dim
        inputs["added_cond_kwargs"] = {"text_embeds": torch.zeros(batch, width), "time_ids": torch.zeros(batch, 6)}
    elif config.addition_embed_type or config.class_embed_type or config.encoder_hid_dim_type:
        raise Refusal("what is added to the embedding of its time steps is not known")
    return inputs


def _largest(value: Any) -> int:
    return int(max(value) if isinstance(value, (tuple, list)) else value)


def _sd3_inputs(asked: Asked, config: Any) -> Dict[str, Any]:
    batch, side = asked.batch, config.sample_size
    return {"hidden_states": torch.zeros(*(asked.inputs.get("") or (batch, config.in_channels, side, side))),
            "encoder_hidden_states": torch.zeros(batch, asked.seq or 333, config.joint_attention_dim),
            "pooled_projections": torch.zeros(batch, config.pooled_projection_dim), "timestep": torch.zeros(batch)}


def _flux_inputs(asked: Asked, config: Any) -> Dict[str, Any]:
    batch, text = asked.batch, asked.seq or 512
    patches = (asked.inputs.get("") or (batch, 64 * 64))[1]  # 1024x1024: 16 pixels a patch
    inputs = {"hidden_states": torch.zeros(batch, patches, config.in_channels),
              "encoder_hidden_states": torch.zeros(batch, text, config.joint_attention_dim),
              "pooled_projections": torch.zeros(batch, config.pooled_projection_dim), "timestep": torch.zeros(batch),
              "img_ids": torch.zeros(patches, 3), "txt_ids": torch.zeros(text, 3)}
    return {**inputs, "guidance": torch.zeros(batch)} if config.guidance_embeds else inputs


def _wan_inputs(asked: Asked, config: Any) -> Dict[str, Any]:
    batch = asked.batch
    return {"hidden_states": torch.zeros(*(asked.inputs.get("") or (batch, config.in_channels, 21, 60, 104))),
            "timestep": torch.zeros(batch), "encoder_hidden_states": torch.zeros(batch, asked.seq or 512, config.text_dim)}


def _vae_inputs(asked: Asked, config: Any) -> Dict[str, Any]:
    side = config.sample_size or 512
    return {"sample": torch.zeros(*(asked.inputs.get("") or (asked.batch, config.in_channels, side, side)))}


_LATENTS: Dict[str, Callable[[Asked, Any], Dict[str, Any]]] = {
    "UNet2DConditionModel": _unet_inputs, "SD3Transformer2DModel": _sd3_inputs, "FluxTransformer2DModel": _flux_inputs,
    "WanTransformer3DModel": _wan_inputs, "AutoencoderKL": _vae_inputs}
