"""tasks.py -- what a class is called with: a row a kind of model."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field
from typing import Any, Dict, List, Tuple

import networks
from expr import value_of

Shape = Tuple[str, ...]  # of features and keys


@dataclass(frozen=True)
class Task:
    name: str
    mapping: str
    """Of transformers.models.auto.modeling_auto."""
    inputs: Dict[str, Tuple[Shape, str]]
    """name: (sizes, dtype); $dtype is the model's."""
    labels: Dict[str, Tuple[Shape, str]]
    """Of training, besides."""
    caches: bool = False
    losses: Tuple[str, ...] = ()
    """Arguments that ask for the loss, where no labels do."""
    named: Dict[str, str] = field(default_factory=dict)
    """Sizes with a name: of images, tokens."""
    values: Dict[str, Shape] = field(default_factory=dict)
    """Inputs whose values code reads, on the host: each of their rows."""
    kept: Dict[str, Tuple[Shape, str]] = field(default_factory=dict)
    """What a model keeps of a step, until the next."""
    masked: str = "0"
    """How many tokens are of images."""
    unit: str = ""
    """Of what height and width of images are multiples."""

    def has(self, size: str) -> bool:
        return self.name == "denoiser" and size in ("S", "$height") or \
            any(size in dim for shape, _ in self.inputs.values() for dim in (*shape, *self.named.values()))

    def taken(self, cls: Any, train: bool) -> Dict[str, Tuple[Shape, str]]:
        """The inputs that a class has."""
        if hasattr(cls, "inputs"):  # a denoiser has its own
            return dict(cls.inputs)
        every = {**self.inputs, **(self.labels if train else {})}
        return {name: row for name, row in every.items() if name in inspect.signature(cls.forward).parameters}


TOKENS = {"input_ids": (("B", "S"), "int64")}
PICTURES = {  # of all sequences, one after the other
    **TOKENS, "pixel_values": (("B * $images", "vision_config.num_channels", "$height", "$width"), "$dtype"),
    "token_type_ids": (("B", "S if $images > 0 else 0"), "int64")}
GRID = ("1", "$height // vision_config.patch_size", "$width // vision_config.patch_size")
GRIDS = {  # images of any size, as patches of all of them
    **TOKENS, "pixel_values": (("B * $images * $patches", "vision_config.in_channels * vision_config.temporal_patch_size * "
                                "vision_config.patch_size * vision_config.patch_size"), "$dtype"),
    "image_grid_thw": (("B * $images", "3"), "int64"), "mm_token_type_ids": (("B", "S if $images > 0 else 0"), "int64")}
PAIRS = {**TOKENS, "pixel_values": (("B", "vision_config.num_channels", "$height", "$width"), "$dtype")}
NETWORK = {"x": (("B", "in_chans", "$height", "$width"), "$dtype")}
PIXELS = {"pixel_values": (("B", "num_channels", "$height", "$width"), "$dtype")}

TASKS = [
    Task("causal", "MODEL_FOR_CAUSAL_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}, caches=True),
    Task("masked", "MODEL_FOR_MASKED_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}),
    Task("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}, caches=True),
    Task("text", "MODEL_MAPPING", TOKENS, {}),
    Task("classes", "MODEL_FOR_SEQUENCE_CLASSIFICATION_MAPPING", TOKENS, {"labels": (("B",), "int64")}),
    Task("encoder", "MODEL_FOR_TEXT_ENCODING_MAPPING", TOKENS, {}),
    Task("projection", "", TOKENS, {}),  # an encoder with one vector for all of its text
    Task("image", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING", PIXELS, {"labels": (("B",), "int64")}),
    Task("vision", "MODEL_MAPPING", PIXELS, {}),
    Task("pictures", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", PICTURES, {"labels": (("B", "S"), "int64")}, caches=True),
    Task("grids", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING", GRIDS, {"labels": (("B", "S"), "int64")}, caches=True,
         named={"$patches": f"({GRID[1]}) * ({GRID[2]})",
                "$each": "$patches // (vision_config.spatial_merge_size * vision_config.spatial_merge_size)",
                "$tokens": "$images * $each"},
         kept={"rope_deltas": (("B", "1 if $images > 0 else 0"), "int64")}, values={"image_grid_thw": GRID}, masked="B * $tokens",
         unit="vision_config.patch_size * vision_config.spatial_merge_size"),
    Task("contrastive", "MODEL_FOR_ZERO_SHOT_IMAGE_CLASSIFICATION_MAPPING", PAIRS, {}, losses=("return_loss",)),
    Task("network", "", NETWORK, {}),
    Task("denoiser", "", {}, {}),  # each class has inputs of its own: denoisers.py
]

# Classes that no mapping of transformers has.
OTHERS = {("projection", "clip_text_model"): "CLIPTextModelWithProjection"}

# Keys without which a class cannot be made, where its configuration leaves them open.
NEEDED: Dict[str, Dict[str, Any]] = {
    "dots1": {"n_routed_experts": 32, "n_shared_experts": 2, "num_experts_per_tok": 6},
    "esm": {"vocab_size": 33, "mask_token_id": 32, "pad_token_id": 1},
    "hunyuan_v1_dense": {"head_dim": 128},
    "hunyuan_v1_moe": {"head_dim": 128},
    "nemotron": {"num_key_value_heads": 48},
}


def hybrid(given: Dict[str, Any]) -> List[str]:
    """Of layers of both types."""
    return ["full_attention" if i % 3 == 1 else "linear_attention" for i in range(given.get("num_hidden_layers", 32))]


# Types whose layers are as many as a list of their types has items.
LISTED = {"nemotron_h"}

# Words of files whose letters stand for the items of a list of keys.
LETTERS: Dict[str, Dict[str, Tuple[str, Dict[str, str]]]] = {
    "nemotron_h": {"hybrid_override_pattern": ("layers_block_type", {"M": "linear_attention", "E": "moe", "*": "full_attention", "-": "mlp"})}}

# What models of a type have, where their default is of no model: runs begin with these.
START: Dict[str, Dict[str, Any]] = {
    "t5": {"feed_forward_proj": "gated-gelu"},
    "umt5": {"feed_forward_proj": "gated-gelu"},
    "deberta-v2": {"relative_attention": True, "position_buckets": 256, "norm_rel_ebd": "layer_norm", "share_att_key": True,
                   "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    "deberta": {"relative_attention": True, "pos_att_type": ["p2c", "c2p"], "position_biased_input": False},
    "granitemoehybrid": {"layer_types": hybrid, "num_local_experts": 8, "num_experts_per_tok": 2},
    "qwen3_vl": {"vision_config.deepstack_visual_indexes": [0, 1, 2], "vision_config.out_hidden_size": 4096},
    "qwen3_vl_moe": {"vision_config.deepstack_visual_indexes": [0, 1, 2], "vision_config.out_hidden_size": 2048},
    "gemma3": {"vision_config.image_size": 896, "vision_config.patch_size": 14},
}

# Keys that are left as they are by default: how a network pools, as its weights say; the loss that balances experts stacks what
# each layer of experts returned; of the tokens of an image Gemma 3 takes the root; a layer counted from the
# end is -2 in all models of a class, or -1; patches that are moved about.
LEFT = {"global_pool", "output_router_logits", "mm_tokens_per_image", "vision_feature_layer", "pos_embed_shift", "pos_embed_jitter"}

# Types with so many keys that only their sizes and what layers are were tried; their switches are as by default, except these.
FOCUSED = {"qwen3_next", "qwen3_5", "qwen3_5_text", "qwen3_5_moe", "qwen3_5_moe_text", "qwen3_vl", "qwen3_vl_moe", "glm4v", "glm4v_moe", "qwen2_5_vl",
           "deberta-v2", "nemotron_h", "granitemoehybrid"}
SWITCHED = {"tie_word_embeddings", "rope_type"}

# Sizes that a class takes without a word although it needs one to be a multiple of the other.
MULTIPLES = {"n_routed_experts": "n_group", "num_experts": "n_group"}

# Where a type was learnt, as a test of its keys: of configurations beyond, which no model has, code does something else.
DEEP = "len(vision_config.deepstack_visual_indexes) == 3 and " \
    "vision_config.depth - 1 > vision_config.deepstack_visual_indexes[2] and text_config.num_hidden_layers > 3"
BOTH = "'full_attention' in layer_types and 'linear_attention' in layer_types"
HYBRID = BOTH + " and head_dim % 2 == 0 and int(head_dim * rope_parameters.partial_rotary_factor) % 2 == 0 and linear_conv_kernel_dim > 1 and " \
    "num_attention_heads > num_key_value_heads"
REQUIRED = {"qwen2_5_vl": "vision_config.spatial_merge_size > 1", "qwen3_vl": DEEP, "qwen3_vl_moe": DEEP,
            "nemotron_h": BOTH.replace("layer_types", "layers_block_type"), "granitemoehybrid": BOTH, "qwen3_next": HYBRID, "qwen3_5_text": HYBRID, "qwen3_5_moe_text": HYBRID}

# Sizes with a name of some types: lists of how many patches are attended to together, of all images one after the other.
SIDE = "vision_config.window_size // vision_config.spatial_merge_size // vision_config.patch_size * vision_config.spatial_merge_size"
WINDOWS = {"$wholes": f"windows({GRID[1]}, {GRID[2]}, $patches) * (B * $images)",
           "$windows": f"windows({GRID[1]}, {GRID[2]}, {SIDE}) * (B * $images)"}
NAMED: Dict[str, Dict[str, str]] = {"qwen2_5_vl": WINDOWS}

# How many layers runs have, where a key counts them.
FEW_LAYERS = 4
LAYERS = {"qwen3_vl": 6, "qwen3_vl_moe": 6}  # those that deepstack takes, too

# Values of keys that their annotation does not tell.
SECTIONS = [[24, 20, 20], [16, 24, 24], [20, 20, 24]]  # halves of a head's width: of time, height, width
DISENTANGLED = [["p2c", "c2p"], ["c2p", "p2c"], ["c2p"], ["p2c"], []]
TRIED: Dict[str, Dict[str, List[Any]]] = {
    "diffusers:SD3Transformer2DModel": {"qk_norm": ["rms_norm"]},
    "qwen2_vl": {"text_config.rope_parameters.rope_type": ["mrope"], "text_config.rope_parameters.mrope_section": SECTIONS,
                 "vision_config.model_type": ["qwen2_vl"]},
    "qwen2_5_vl": {"text_config.rope_parameters.rope_type": ["mrope"], "text_config.rope_parameters.mrope_section": SECTIONS,
                   "vision_config.model_type": ["qwen2_5_vl"]},
    "qwen3_vl": {"text_config.rope_parameters.mrope_section": SECTIONS, "vision_config.model_type": ["qwen3_vl"]},
    "qwen3_vl_moe": {"text_config.rope_parameters.mrope_section": SECTIONS, "vision_config.model_type": ["qwen3_vl_moe"]},
    "qwen3_5": {"vision_config.model_type": ["qwen3_5"]},
    "qwen3_5_moe": {"vision_config.model_type": ["qwen3_5_moe"]},
    "t5": {"feed_forward_proj": ["gated-gelu", "relu"]},
    "umt5": {"feed_forward_proj": ["gated-gelu", "relu"]},
    "deberta-v2": {"pos_att_type": DISENTANGLED, "norm_rel_ebd": ["none", "layer_norm"]},
    "deberta": {"pos_att_type": DISENTANGLED},
    "granitemoehybrid": {"position_embedding_type": ["nope"]},
}

# Types of rotary embeddings of some classes, each with its parameters.
DYNAMIC = {"rope_type": "dynamic", "factor": 1.0, "alpha": 1000.0, "beta_fast": 32, "beta_slow": 1, "mscale": 1.0, "mscale_all_dim": 1.0}
ROPES_OF: Dict[str, List[Dict[str, Any]]] = {"hunyuan_v1_dense": [DYNAMIC], "hunyuan_v1_moe": [DYNAMIC]}

# Types whose images are squares of the configuration's size, into which the processor cuts larger ones; their code takes
# others, some of them.
FIXED = {"internvl"}

IN_UNITS = 16  # height and width of images that are multiples of something
IMAGE = 224  # height and width, unless the configuration has image_size


def image_key(row: Dict[str, Any]) -> str:
    """The key that says it, if there is one."""
    return next((key for key in ("image_size", "img_size", "vision_config.image_size") if key in row), "")


def image(cls: Any, row: Dict[str, Any]) -> Dict[str, int]:
    """The sizes of images that a configuration is for."""
    size = value_of(cls.image, row) if hasattr(cls, "image") else row.get(image_key(row), IMAGE)
    both = list(size) if isinstance(size, (list, tuple)) else [size, size]
    if any(n % getattr(cls, "multiple", 1) for n in both):
        raise ValueError(f"{size} is no multiple of {cls.multiple}")
    return {"$height": both[0], "$width": both[-1]}


def class_of(task: Task, kind: str) -> Any:
    """None: there is none."""
    if networks.is_network(kind):
        return networks.network(kind)
    import transformers
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto
    if not task.mapping:
        return getattr(transformers, OTHERS[task.name, kind])
    found = getattr(modeling_auto, task.mapping).get(CONFIG_MAPPING[kind], None)
    return found[0] if isinstance(found, (tuple, list)) else found


def config_of(kind: str) -> Any:
    """The class of a type's configurations."""
    from transformers import CONFIG_MAPPING
    return networks.configuration(kind) if networks.is_network(kind) else CONFIG_MAPPING[kind]
