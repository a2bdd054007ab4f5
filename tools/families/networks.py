"""networks.py -- networks of other libraries, by name: "timm:resnet50", "torchvision:regnet_y_400mf".

A name says all but three things, which are the keys of such a family: how many classes it tells apart, how many channels its
images have, and their size.
"""

from __future__ import annotations

import functools
import importlib.metadata
import inspect
import sys
import types
from typing import Any, Dict, Union

import torch
from transformers import PreTrainedConfig

import detectors
from denoisers import Denoiser

# torchvision's C++ ops are built for another PyTorch; its models do not need them.
sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("none"))


def _timm(name: str, eager: bool = False, **keys: Any) -> Any:
    import timm
    from timm.layers import set_fused_attn
    set_fused_attn(not eager)
    return timm.create_model(name, **keys)


def _timm_keys(name: str, made: Any) -> Dict[str, Any]:
    channels, size, _ = made.default_cfg["input_size"]
    pool = getattr(made, "global_pool", None) or getattr(getattr(made, "head", None), "global_pool", None)
    pool = pool if isinstance(pool, str) else getattr(pool, "pool_type", None)
    return {"num_classes": made.num_classes, "in_chans": channels, "img_size": size, **({"global_pool": pool} if pool else {})}


def _torchvision(name: str, eager: bool = False, **keys: Any) -> Any:
    from torchvision.models import get_model
    return get_model(name, weights=None, **{"image_size" if k == "img_size" else k: v for k, v in keys.items()})


def _torchvision_keys(name: str, made: Any) -> Dict[str, int]:
    from torchvision.models import get_model_weights
    return {"num_classes": 1000, "in_chans": 3, "img_size": get_model_weights(name).DEFAULT.transforms().crop_size[0]}


def _ultralytics(name: str, eager: bool = False, **keys: Any) -> Any:
    return detectors.make(name, **keys)


MAKE = {"timm": (_timm, _timm_keys), "torchvision": (_torchvision, _torchvision_keys), "ultralytics": (_ultralytics, detectors.keys)}
GIVEN = {"timm": {"num_classes", "in_chans"}, "torchvision": {"num_classes"}, "ultralytics": {"num_classes", "in_chans"}}


def is_network(kind: str) -> bool:
    """Whether it is of another library than transformers."""
    return kind.partition(":")[0] in (*MAKE, Denoiser.library)


class Network:
    """Takes the place of a class: makes a model of a configuration."""

    def __init__(self, kind: str) -> None:
        self.library, _, self.name = kind.partition(":")
        self.make, keys = MAKE[self.library]
        with torch.device("meta"):
            made = self.make(self.name)
        self.keys = keys(self.name, made)
        self.parameters = sum(p.numel() for p in made.parameters())
        self.__name__, self.__module__, self.forward = type(made).__name__, type(made).__module__, type(made).forward
        known = set(inspect.signature(type(made).__init__).parameters)
        self.taken = {k for k in self.keys if {k, k.replace("img", "image")} & known or k in GIVEN[self.library]}
        self.annotations = {k: type(v).__name__ for k, v in self.keys.items()}
        self.version = f"{self.library} {importlib.metadata.version(self.library)}"
        vars(self).update(detectors.more(made) if self.library == "ultralytics" else {})

    @property
    def file(self) -> str:
        return f"{self.library}.{self.name}"

    def __call__(self, config: Any) -> Any:
        return self.make(self.name, config._attn_implementation == "eager", **{k: getattr(config, k) for k in self.taken})


@functools.lru_cache(None)
def network(kind: str) -> Union[Network, Denoiser]:
    return (Denoiser if kind.startswith(Denoiser.library) else Network)(kind)


@functools.lru_cache(None)
def configuration(kind: str) -> Any:
    """The class of such a configuration."""
    of = network(kind)
    return type("NetworkConfig", (PreTrainedConfig,), {"__annotations__": of.annotations, "__module__": __name__,
                                                       "model_type": kind, **of.keys})
