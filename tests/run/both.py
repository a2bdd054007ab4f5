"""Runs one call on the CPU and on the card, and says where they differ."""

import re
import typing

import torch
import torch.nn.functional as F
from torch import nn

DTYPES = {"f": torch.float32, "h": torch.float16, "bf": torch.bfloat16, "d": torch.float64,
          "l": torch.int64, "i": torch.int32, "u": torch.uint8, "b": torch.bool,
          "c": torch.complex64}


def names(device):
    """What a call may use: z(2, 3) is a tensor of zeros, l(2) one of int64, and so on."""
    def zeros(dtype):
        return lambda *size, **more: torch.zeros(size, dtype=dtype, device=device, **more)
    out = {name: zeros(dtype) for name, dtype in DTYPES.items()}
    return out | {"torch": torch, "F": F, "nn": nn, "z": out["f"], "dev": device,
                  "w": lambda *size: zeros(torch.float32)(*size).requires_grad_(),
                  "on": lambda module: module.to(device)}


class Refused(typing.NamedTuple):
    error: str
    words: str


def outcome(call, device):
    """What the call returned, or how it was refused."""
    try:
        return eval(call, names(device))
    except Exception as e:
        return Refused(type(e).__name__, words(str(e)))


def words(text):
    """The message without what a device alone decides: its name, that of its kernel, the C++
    stack."""
    text = text.split("\nException raised from")[0].strip()
    text = re.sub(r'^"\w+" not implemented for', '"KERNEL" not implemented for', text)
    text = re.sub(r"torch\.cuda\.(\w+Tensor)", r"torch.\1", text)
    return re.sub(r"(?<![a-z])(cuda:0|cuda|cpu|CUDA|CPU)(?![a-z])", "DEVICE", text)


def describe(value):
    """Shape, strides, dtype of each tensor in a result; anything else as it is."""
    if isinstance(value, torch.Tensor):
        if value.layout != torch.strided:
            return tuple(value.shape), str(value.layout), str(value.dtype)
        return tuple(value.shape), value.stride(), str(value.dtype)
    if isinstance(value, Refused):
        return value
    if isinstance(value, (list, tuple)):
        return [describe(v) for v in value]
    return type(value).__name__
