"""A detector as it is run or trained: detectors_loop.py NAME infer|train|autocast BATCH, two steps.

NAME is that of a network of ultralytics.  In training the sum of outputs that a loss
takes stands for it, and the optimizer is AdamW.
"""
import importlib.machinery
import os
import sys
import tempfile
import types
from unittest.mock import MagicMock

import torch

sys.modules.setdefault("torchvision._meta_registrations", types.ModuleType("none"))  # its C++ ops are built for another PyTorch


def stand_in(name):
    """For a package that ultralytics imports and no network calls."""
    module = types.ModuleType(name)
    module.__spec__, module.__path__ = importlib.machinery.ModuleSpec(name, None), []
    module.__getattr__ = lambda key: MagicMock(name=key)
    sys.modules.setdefault(name, module)


def yolo(name):
    os.environ.setdefault("YOLO_CONFIG_DIR", tempfile.gettempdir())
    for package in ("cv2", "matplotlib", "matplotlib.pyplot", "polars", "requests", "scipy"):
        stand_in(package)
    from ultralytics.nn.tasks import DetectionModel
    return DetectionModel(f"{name}.yaml", verbose=False), ("boxes", "scores"), 640


def loss_of(model, outputs, x):
    out = model(x)
    return sum(out[key].sum() for key in outputs)


def main(name, mode, batch):
    model, outputs, size = yolo(name.partition(":")[2])
    model = model.to("cuda").train(mode != "infer")
    optimizer = torch.optim.AdamW(p for p in model.parameters() if p.requires_grad)
    for _ in range(2):
        x = torch.randn(int(batch), 3, size, size, device="cuda")
        if mode == "infer":
            with torch.no_grad():
                out = model(x)
            continue
        with torch.autocast("cuda", torch.bfloat16, enabled=mode == "autocast"):
            loss = loss_of(model, outputs, x)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main(*sys.argv[1:])
