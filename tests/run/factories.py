"""Every op that makes a tensor out of nothing, under two default dtypes: dtype, shape and strides
are the CPU's.  The list is the dispatcher's: each op with arguments dtype, layout, device; and,
below it, what Python has on top."""

import json
import sys

import both
import torch
from torch import nn

TYPES = ("dtype", "layout", "device", "pin_memory")

# What an argument without a default gets, if not what its type does.
VALUES = {
    "stride": [3, 1], "n": 4, "m": 3, "end": 5, "start": 1, "high": 7, "low": 1,
    "fill_value": 2.5, "window_length": 6, "physical_layout": [0, 1], "std": 1.0,
}
# They make no strided tensor, move one that is there, or read a file.
LEFT_OUT = ("_sparse", "sparse_", "_empty_affine", "_empty_per", "empty_quantized", "_nested",
            "_efficientzerotensor", "_to_copy", "to.", "from_file", "_cudnn_init_dropout_state")


def ops():
    """(name, schema) of each factory op of the dispatcher."""
    for schema in torch._C._jit_get_all_schemas():
        names = [a.name for a in schema.arguments]
        if schema.name.startswith("aten::") and all(t in names for t in TYPES):
            name = schema.name[6:] + ("." + schema.overload_name if schema.overload_name else "")
            if not name.startswith(LEFT_OUT):
                yield name, schema


def value(argument, device):
    kind = str(argument.type)
    if argument.name in ("start", "end", "high") and kind == "Tensor":
        return torch.tensor(3, device="cpu" if argument.name == "high" else device)
    if kind == "Tensor":
        return torch.zeros(2, 3, device=device)
    if argument.name in VALUES:
        return VALUES[argument.name]
    return {"Optional[Generator]": None, "int": 3, "float": 0.5, "number": 2, "List[int]": [2, 3], "bool": True}[kind]


def call(name, schema, device):
    base, _, overload = name.partition(".")
    op = getattr(getattr(torch.ops.aten, base), overload or "default")
    args, named = [], {}
    for a in schema.arguments:
        if a.name == "device":
            named["device"] = device
        elif a.name in TYPES or a.has_default_value():
            continue
        elif a.kwarg_only:
            named[a.name] = value(a, device)
        else:
            args.append(value(a, device))
    return op(*args, **named)


PYTHON = {
    "a literal": lambda d: torch.tensor([1.0, 2.0], device=d),
    "an integer literal": lambda d: torch.tensor([1, 2], device=d),
    "a complex literal": lambda d: torch.tensor([1j], device=d),
    "a boolean literal": lambda d: torch.tensor([True], device=d),
    "as_tensor": lambda d: torch.as_tensor([[1.5]], device=d),
    "Tensor.new_tensor": lambda d: torch.zeros(1, device=d).new_tensor([1.5]),
    "asarray": lambda d: torch.asarray([1.5], device=d),
    "empty in channels_last": lambda d: torch.empty(
        2, 3, 4, 5, device=d, memory_format=torch.channels_last),
    "empty_permuted": lambda d: torch.empty_permuted((2, 3, 4), (2, 0, 1), device=d),
    "arange of floats": lambda d: torch.arange(0.0, 1.0, 0.25, device=d),
    "full of an integer": lambda d: torch.full((2,), 1, device=d),
    "full of a boolean": lambda d: torch.full((2,), True, device=d),
    "full of a complex number": lambda d: torch.full((2,), 1j, device=d),
    "normal of numbers": lambda d: torch.normal(0.0, 1.0, (2, 3), device=d),
    "linspace between tensors": lambda d: torch.linspace(
        torch.zeros((), device=d), torch.ones((), device=d), 4, device=d),
    "integers divided": lambda d: torch.arange(4, device=d) / 2,
    "the mean of a number": lambda d: torch.arange(4, device=d) * 0.5,
    "sqrt of integers": lambda d: torch.arange(4, device=d).sqrt(),
    "Linear": lambda d: nn.Linear(3, 4, device=d).weight.detach(),
    "Conv2d": lambda d: nn.Conv2d(3, 4, 3, device=d).weight.detach(),
    "LayerNorm": lambda d: nn.LayerNorm(4, device=d).weight.detach(),
    "BatchNorm2d": lambda d: nn.BatchNorm2d(4, device=d).running_var,
    "Embedding": lambda d: nn.Embedding(4, 3, device=d).weight.detach(),
    "LSTM": lambda d: nn.LSTM(3, 4, device=d).weight_hh_l0.detach(),
    "MultiheadAttention": lambda d: nn.MultiheadAttention(4, 2, device=d).in_proj_weight.detach(),
    "the output of a Linear": lambda d: nn.Linear(3, 4, device=d)(torch.randn(2, 3, device=d)),
    "one_hot": lambda d: nn.functional.one_hot(torch.zeros(3, dtype=torch.int64, device=d), 5),
    "the state of Adam": lambda d: adam_state(d),
    "under `with torch.device`": lambda d: within(d, lambda: torch.ones(2)),
    "a module under `with torch.device`": lambda d: within(
        d, lambda: nn.Linear(3, 4).weight.detach()),
    "dropout": lambda d: nn.functional.dropout(torch.ones(2, 3, device=d)),
    "Generator": lambda d: torch.rand(3, device=d, generator=torch.Generator(d)),
}


def within(device, make):
    with torch.device(device):
        return make()


def adam_state(device):
    model = nn.Linear(3, 4, device=device)
    optimizer = torch.optim.Adam(model.parameters(), fused=False)
    model(torch.randn(2, 3, device=device)).sum().backward()
    optimizer.step()
    return [v for v in optimizer.state[model.weight].values() if v.dim()]


def compare():
    differ, made, unknown = [], 0, []
    cases = {name: lambda d, name=name, schema=schema: call(name, schema, d)
             for name, schema in ops()}
    for default in (torch.float32, torch.bfloat16, torch.float64):
        torch.set_default_dtype(default)
        for name, make in (cases | PYTHON).items():
            try:
                want = both.describe(make("cpu"))
            except Exception as e:
                unknown.append((name, str(e).splitlines()[0]))
                continue
            try:
                got = both.describe(make("cuda"))
            except Exception as e:
                got = f"{type(e).__name__}: {e}"
            made += 1
            if got != want:
                differ.append((str(default), name, want, got))
    return {"ops": len(cases), "made": made, "differ": differ, "unknown": unknown}


print(json.dumps(compare()), file=sys.stdout)
