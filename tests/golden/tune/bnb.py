"""Quantized models of bitsandbytes' own code on the pretend GPU, for loop.py.

A CPU build of PyTorch has no library of CUDA kernels, but all that bitsandbytes allocates it allocates in Python
(backends/cuda/ops.py): that code runs as it is, and kernels that only write to its tensors do nothing.
"""
import contextlib
import types

import bitsandbytes
import torch
import transformers
from bitsandbytes import functional
from bitsandbytes.backends.cuda import ops
from transformers.integrations.bitsandbytes import replace_with_bnb_linear
from transformers.pytorch_utils import Conv1D
from transformers.quantizers.base import get_keys_to_not_convert

DTYPES = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


class NoKernels:
    def __getattr__(self, name):
        return lambda *args, **kwargs: 0


def without_kernels():
    functional.lib = ops.lib = NoKernels()
    ops._get_raw_stream = lambda index: 0
    ops._cuda_device_of = lambda t: contextlib.nullcontext()
    ops.CUBLAS_Context = types.SimpleNamespace(get_instance=lambda: types.SimpleNamespace(get_context=lambda device: 0))


def config_of(text):
    """Of a text of --quant: "nf4,double,compute=fp32"."""
    kind, *items = text.split(",")
    if kind == "int8":
        return transformers.BitsAndBytesConfig(load_in_8bit=True)
    compute = [DTYPES[item.split("=")[1]] for item in items if item.startswith("compute=")]
    return transformers.BitsAndBytesConfig(
        load_in_4bit=True, bnb_4bit_quant_type=kind, bnb_4bit_use_double_quant="double" in items,
        bnb_4bit_compute_dtype=compute[0] if compute else torch.bfloat16)


def quantized(model, text):
    """What from_pretrained makes of the model on the CPU, on the card."""
    without_kernels()
    config = config_of(text)
    weights = {name: module for name, module in model.named_modules() if isinstance(module, (torch.nn.Linear, Conv1D))}
    model = replace_with_bnb_linear(model, get_keys_to_not_convert(model), config)
    for name, module in model.named_modules():
        old = weights.get(name)
        if isinstance(module, (bitsandbytes.nn.Linear4bit, bitsandbytes.nn.Linear8bitLt)):
            weight = old.weight.data.t().contiguous() if isinstance(old, Conv1D) else old.weight.data
            packed = module.weight
            module.weight = type(packed)(weight, requires_grad=False, **{
                key: packed.__dict__[key] for key in ("quant_type", "compress_statistics", "quant_storage", "has_fp16_weights")
                if key in packed.__dict__})
            module.bias = old.bias
            if module.bias is not None:
                module.bias.requires_grad_(False)
            if isinstance(module, bitsandbytes.nn.Linear4bit):
                module.weight.module = module
    model.is_quantized = True
    model.is_loaded_in_4bit, model.is_loaded_in_8bit = config.load_in_4bit, config.load_in_8bit
    return model.to("cuda")
