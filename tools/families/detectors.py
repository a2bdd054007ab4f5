"""detectors.py -- networks that find objects in images, of ultralytics: "ultralytics:yolo11n".

A detector is called with what it keeps of its last step, too: the centres and strides of its boxes, which it makes where images
have another size than before.  Its loss depends on what is in the images.  So the sum of what the loss takes stands for it, and
what the loss itself holds is not counted.
"""

from __future__ import annotations

import importlib.machinery
import os
import sys
import tempfile
import types
from typing import Any, Dict
from unittest.mock import MagicMock, patch

import torch

# Packages that ultralytics imports, and whose functions no network calls.
UNUSED = ("cv2", "matplotlib", "matplotlib.pyplot", "polars", "requests", "scipy")
SIDES = (8, 16, 32)  # height and width of what a box is a prediction for
LOSS = "v8DetectionLoss"


def _stand_in(name: str) -> None:
    """For a package that is not installed."""
    module = types.ModuleType(name)
    module.__spec__ = importlib.machinery.ModuleSpec(name, None)
    module.__path__ = []
    module.__getattr__ = lambda key: MagicMock(name=key)  # type: ignore[method-assign]
    sys.modules.setdefault(name, module)


def library() -> Any:
    """The module of ultralytics with its networks."""
    os.environ.setdefault("YOLO_CONFIG_DIR", os.path.join(tempfile.gettempdir(), "ultralytics"))
    for name in UNUSED:
        try:
            __import__(name)
        except ImportError:
            _stand_in(name)
    from ultralytics.nn import tasks
    return tasks


def make(name: str, num_classes: int = 80, in_chans: int = 3, **_: Any) -> Any:
    tasks = library()

    def levels(self: Any, x: Any) -> Dict[str, Any]:
        return {"feats": [torch.empty(1, 1, x.shape[2] // n, 1) for n in SIDES]}

    # A class runs itself to know its strides, and asks for their values.
    with patch.object(tasks.DetectionModel, "forward", levels), patch.object(tasks.Detect, "bias_init"):
        model = tasks.DetectionModel(f"{name}.yaml", ch=in_chans, nc=num_classes, verbose=False)
    head = model.model[-1]
    head.register_buffer("stride", vars(head).pop("stride"), persistent=False)  # it goes with the model to a device
    return called(model)


def called(model: Any) -> Any:
    """A model whose forward takes what it keeps, and gives a loss in training."""
    cls = type(model)

    def forward(self: Any, x: Any, anchors: Any = None, strides: Any = None) -> Any:
        head = self.model[-1]
        if anchors is not None:
            head.anchors, head.strides = anchors, strides
            head.shape = torch.Size((x.shape[0], width(self), x.shape[2] // SIDES[0], x.shape[3] // SIDES[0]))
        out = self.predict(x)
        return {"loss": out["boxes"].sum() + out["scores"].sum(), **out} if self.training else out

    model.__class__ = type(cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__})
    return model


def width(model: Any) -> int:
    """Channels of what the first boxes are predicted from."""
    return int(model.model[-1].cv2[0][0].conv.in_channels)


def keys(name: str, made: Any) -> Dict[str, Any]:
    return {"num_classes": made.model[-1].nc, "in_chans": 3, "img_size": 640}


def more(made: Any) -> Dict[str, Any]:
    """What it is called with, the sizes that its code works with, of what height and width are multiples."""
    boxes = " + ".join(f"$height // {n} * ($width // {n})" for n in SIDES)
    there = "0 if $train else $boxes"
    return {"inputs": {"x": (("B", "in_chans", "$height", "$width"), "$dtype"),
                       "anchors": (("2", there), "$dtype"), "strides": (("1", there), "$dtype")},
            "kept": ("anchors", "strides"), "left": ("in_chans",), "multiple": SIDES[-1], "without": LOSS,
            "named": {"$boxes": boxes, "scores": f"max({width(made)}, min(num_classes, 100))"}}
