"""trace.py -- one run of a module on the meta device, as a tree of module calls.

    call = trace(module, kwargs)

What is recorded is what an export of the same module shows: the ops above autograd (aten.linear, not its parts), with
the sizes of this run.  Nothing is symbolic, so nothing has to be guarded, and a run takes tens of milliseconds.  Also
recorded is when Python's last reference to each tensor goes: an eager run frees its memory then, not at its last use.
"""

from __future__ import annotations

import contextlib
import gc
import inspect
import operator
import sys
import weakref
from dataclasses import dataclass, field
from typing import Any, Dict, Iterator, List, Optional, Tuple, Union

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._functorch.autograd_function import custom_function_call
from torch._ops import _set_mode_pre_dispatch, unset_mode_pre_dispatch
from torch.fx.experimental.proxy_tensor import ProxyTorchDispatchMode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode


@dataclass
class Value:
    """A tensor: its number, and where it came from."""

    id: int
    shape: Tuple[int, ...]
    dtype: torch.dtype
    leaf: Optional[str] = None
    """The path of the parameter or buffer that it is."""
    storage: Optional["Storage"] = None
    grad: bool = False
    """Whether a gradient may flow through it."""


@dataclass
class Storage:
    """The memory of tensors: how many of them Python still refers to, and the last op that used one."""

    tensors: int = 0
    last: int = -1
    ids: List[int] = field(default_factory=list)
    """Of its values, in the order in which they appeared."""
    gone: List["Value"] = field(default_factory=list)
    """Those whose tensors Python no longer refers to."""


@dataclass(frozen=True)
class Typed:
    """A dtype that the code took from a tensor: x.to(y.dtype)."""

    dtype: torch.dtype
    source: "Value"


@dataclass
class Op:
    target: str
    args: Dict[str, Any]
    """By the names of the schema, without those that have their default; tensors are Values."""
    outs: List[Value]
    new: Tuple[bool, ...] = (True,)
    """Which of them did not exist before: x.to(y) may be x itself, and x.add_(y) is."""


@dataclass
class Held:
    """Here Python's last reference to a tensor goes, later than its last use."""

    value: Value
    itself: bool = False
    """One of several tensors of the same memory that a module returned; else any name of the memory is meant."""


@dataclass
class Call:
    """A call of a module."""

    path: str
    type: str
    ins: Dict[str, Value] = field(default_factory=dict)
    """The tensors that it was called with, by the names of forward's parameters."""
    items: List[Union[Op, "Call", Held]] = field(default_factory=list)
    outs: List[Tuple[str, Value]] = field(default_factory=list)
    """What it returned, by its name or number there."""


def _indexed(x: torch.Tensor, index: Any) -> torch.Tensor:
    """x[index], with a slice that takes all of a size, too: whether it does is no other way through the code."""
    parts = index if isinstance(index, tuple) else (index,)
    sizes = [p for p in parts if type(p) in (int, slice)]
    if len(sizes) + sum(p is None or p is ... for p in parts) < len(parts) or \
            any(type(n) not in (int, type(None)) for p in sizes if type(p) is slice for n in (p.start, p.stop, p.step)):
        return torch.Tensor.__getitem__(x, index)
    out, dim = x, 0
    for p in parts:
        if p is ...:
            dim += x.dim() - len(sizes)
        elif type(p) is int:
            out = torch.select(out, dim, p)
        elif p is None:
            out, dim = torch.unsqueeze(out, dim), dim + 1
        else:
            if p != slice(None):
                end = sys.maxsize if p.stop is None else p.stop
                out = torch.ops.aten.slice.Tensor(out, dim, p.start or 0, end, p.step or 1)
            dim += 1
    return out if out is not x else torch.Tensor.__getitem__(x, index)


def _positions(index: Any, recorder: "_Recorder") -> Any:
    """An index with what PyTorch makes of a mask: the positions where it is true, of which there are as many.  Recorded is the mask."""
    out: List[Any] = []
    for part in index if isinstance(index, tuple) else (index,):
        if recorder.masked and torch.is_tensor(part) and part.is_meta and part.dtype == torch.bool:
            with _quiet(recorder):
                for _ in range(part.dim()):
                    out.append(torch.empty(recorder.masked, dtype=torch.int64, device="meta"))
                    out[-1]._mask = part
        else:
            out.append(part)
    return tuple(out) if isinstance(index, tuple) or len(out) > 1 else out[0]


def _mask_of(x: Any) -> Any:
    """What a tensor of positions was made of, or what it is."""
    return getattr(x, "_mask", x) if torch.is_tensor(x) else x


class _Reads(TorchFunctionMode):
    """Notes whose dtype the code asks for, and in which call of a function."""

    def __init__(self, recorder: "_Recorder") -> None:
        super().__init__()
        self.recorder = recorder
        # the frame (by its number: to keep it would keep its variables) and its code, the module call that runs, tensor
        self.log: List[Tuple[Tuple[int, Any], Call, Value]] = []

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func == _DTYPE and args[0].is_meta and self.recorder.stack:
            value = self.recorder.values.get(id(args[0]))
            if value is not None:
                self.log.append((_frame(sys._getframe(1)), self.recorder.stack[-1], value[1]))
                if len(self.log) > 400:
                    del self.log[:200]
        if func in (torch.Tensor.__getitem__, torch.Tensor.__setitem__) and args[0].is_meta and self.recorder.stack:
            args = (args[0], _positions(args[1], self.recorder), *args[2:])
        if func == torch.Tensor.__getitem__ and args[0].is_meta and self.recorder.stack:
            return _indexed(*args)
        if func is custom_function_call:  # within torch.vmap: it asks for the mode by its class
            above = unset_mode_pre_dispatch(torch._C._TorchDispatchModeKey.PROXY)
            try:
                with _Below(self.recorder):
                    return func(*args, **(kwargs or {}))
            finally:
                _set_mode_pre_dispatch(above)
        return func(*args, **(kwargs or {}))

    def source(self, dtype: torch.dtype) -> Optional[Value]:
        """The tensor whose dtype was asked last: by a function that runs, the innermost first, or else by any."""
        frames = []
        frame = sys._getframe(1)
        while frame is not None and len(frames) < 40:
            frames.append(_frame(frame))
            frame = frame.f_back
        here = self.recorder.stack
        reads = [(where, call, value) for where, call, value in reversed(self.log) if value.dtype == dtype]
        for at in frames:
            for where, call, value in reads:
                if where == at and call is here[-1]:
                    return value
        return next((value for _, call, value in reads if any(call is c for c in here)), None)


def _frame(frame: Any) -> Tuple[int, Any]:
    return id(frame), frame.f_code


_DTYPE = torch.Tensor.dtype.__get__


def _returned(call: "Call", storage: Storage) -> List[Value]:
    """Tensors of this memory that a module returned to a call: a block may return two slices of one tensor."""
    ids = {value.id for value in storage.gone}
    for item in reversed(call.items) if len(ids) > 1 else ():
        found = [value for _, value in item.outs if value.id in ids] if isinstance(item, Call) else []
        if len(found) > 1:
            return found
    return []


class _Recorder(ProxyTorchDispatchMode):
    """Only a mode of three classes is accepted above autograd; this one takes the place of the tracer of make_fx."""

    __enter__ = TorchDispatchMode.__enter__
    __exit__ = TorchDispatchMode.__exit__

    def __init__(self) -> None:
        TorchDispatchMode.__init__(self, _dispatch_key=torch._C.DispatchKey.PreDispatch)
        self._mode_key = torch._C._TorchDispatchModeKey.PROXY
        self.values: Dict[int, Tuple[Any, Value]] = {}
        self.storages: Dict[int, Storage] = {}
        self.stack: List[Call] = []
        self.ops = 0
        self.count = 0
        self.quiet = 0
        self.masked = 0
        """How often masks that are indices are true; 0: that is not known."""
        self.length = 0
        """Of the text; 0: there is none."""
        self.without: Dict[Tuple[int, int], Value] = {}
        """by the number of a value and the call that runs: the same without its gradient"""

    def value_of(self, tensor: torch.Tensor) -> Value:
        found = self.values.get(id(tensor))
        if found is not None and found[0]() is tensor:
            return found[1]
        value = self.add(tensor)
        if self.stack:  # it comes from elsewhere: torch.tensor([1.0]), a copy of the host's
            value.storage.last = self.ops
            source = self.reads.source(tensor.dtype) if tensor.is_floating_point() else None
            dtype = Typed(tensor.dtype, source) if source is not None else tensor.dtype
            self.stack[-1].items.append(Op("aten.empty.memory_format", {"size": list(tensor.shape), "dtype": dtype},
                                           [value]))
            self.ops += 1
        return value

    def detached(self, value: Value) -> Value:
        """What code under torch.no_grad() takes a value for."""
        key = (value.id, id(self.stack[-1]))
        known = self.without.get(key)
        if known is None:
            known = self.without[key] = Value(self.count, value.shape, value.dtype, None, value.storage)
            value.storage.ids.append(known.id)
            self.count += 1
            self.stack[-1].items.append(Op("aten.detach.default", {"self": value}, [known]))
            self.ops += 1
        return known

    def add(self, tensor: torch.Tensor, leaf: Optional[str] = None) -> Value:
        where = tensor.untyped_storage()._cdata
        storage = self.storages.get(where)
        if storage is None or not storage.tensors:
            storage = self.storages[where] = Storage()
        storage.tensors += 1
        value = Value(self.count, tuple(tensor.shape), tensor.dtype, leaf, storage)
        storage.ids.append(value.id)
        self.count += 1
        key = id(tensor)

        def gone(ref: Any) -> None:
            if self.values.get(key, (None,))[0] is ref:
                del self.values[key]
            storage.tensors -= 1
            storage.gone.append(value)
            if not storage.tensors and 0 <= storage.last < self.ops - 1 and self.stack:
                returned = _returned(self.stack[-1], storage)
                self.stack[-1].items += [Held(v, True) for v in returned] if len(returned) > 1 else [Held(value)]

        self.values[key] = (weakref.ref(tensor, gone), value)
        return value

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.quiet or not self.stack:
            return func(*args, **kwargs)
        tensors = [_mask_of(t) for t in pytree.tree_leaves((args, kwargs)) if torch.is_tensor(t)]
        if any(map(torch._C._functorch.is_functorch_wrapped_tensor, tensors)):
            with _Below(self):  # torch.vmap: what is called on the tensors themselves
                return func(*args, **kwargs)
        if func in _MADE or tensors and not any(t.is_meta for t in tensors):
            out = func(*args, **kwargs)  # of the host, or what torch.tensor() does
            for copied in pytree.tree_leaves(out) if tensors and not tensors[0].is_meta else ():
                if torch.is_tensor(copied) and copied.is_meta:
                    self.value_of(copied)
            return out
        with _quiet(self):
            used = [self.value_of(t) for t in tensors]
            given = self._named(func, args, kwargs)
            out = _run(func, args, kwargs)
            if not any(t.is_meta for t in pytree.tree_leaves(out) if torch.is_tensor(t)):
                return out
        flows = torch.is_grad_enabled() and any(value.grad for value in used)
        for value in used:
            value.storage.last = self.ops
        outs = [t for t in pytree.tree_leaves(out) if torch.is_tensor(t)]
        if outs and not (func is _MOVED and outs[0] is tensors[0]):
            results, new = [], []
            for tensor in outs:
                found = self.values.get(id(tensor))
                known = found is not None and found[0]() is tensor
                value = found[1] if known else self.add(tensor)
                value.storage.last = self.ops
                value.grad = value.grad or flows and tensor.is_floating_point()
                results.append(value)
                new.append(not known)
                self.count_positions(func, args, tensor)
            self.stack[-1].items.append(Op(CALLED.get(str(func), str(func)), given, results, tuple(new)))
            self.ops += 1
        return out

    def count_positions(self, func: Any, args: Any, out: torch.Tensor) -> None:
        """Of how many positions there are code asks whether they are more than a model was made for."""
        known = getattr(args[0], "_number", None) if args else None
        if func is torch.ops.aten.max.default and not out.is_floating_point() and self.length:
            out._number = self.length - 1  # type: ignore[attr-defined]
        elif known is not None and func in _COUNTED and not torch.is_tensor(args[1]):
            out._number = _COUNTED[func](known, args[1])  # type: ignore[attr-defined]

    def _named(self, func: Any, args: Any, kwargs: Any) -> Dict[str, Any]:
        def plain(x: Any) -> Any:
            x = _mask_of(x)
            if isinstance(x, torch.dtype):
                source = self.reads.source(x) if x.is_floating_point else None
                return Typed(x, source) if source is not None else x
            if torch.is_tensor(x):
                value = self.value_of(x)
                return value if not value.grad or torch.is_grad_enabled() else self.detached(value)
            if isinstance(x, (list, tuple)):
                return [plain(y) for i, y in enumerate(x) if not (i and hasattr(y, "_mask") and _mask_of(x[i - 1]) is y._mask)]
            return x

        given = dict(kwargs)
        defaults = {}
        for i, arg in enumerate(func._schema.arguments):
            if arg.has_default_value():
                defaults[arg.name] = arg.default_value
            if i < len(args):
                given[arg.name] = args[i]
        if func is torch.ops.aten.expand.default:  # -1: as it is
            have = [1] * (len(given["size"]) - given["self"].dim()) + list(given["self"].shape)
            given["size"] = [h if n == -1 else n for n, h in zip(given["size"], have)]
        names = [arg.name for arg in func._schema.arguments]
        if isinstance(given.get("indices"), (list, tuple)) and any(hasattr(t, "_mask") for t in given["indices"]):
            given["true"] = self.masked
            names.append("true")
        whole = {name for name, value in defaults.items()
                 if value is not None and (str(func) in WHOLE or isinstance(value, float))}
        given = {**{name: defaults[name] for name in whole}, **given}
        return {name: plain(given[name]) for name in names if name in given and
                (torch.is_tensor(given[name]) or name not in defaults or name in whole and given[name] is not None or
                 _differs(given[name], defaults[name]))}


_COUNTED = {torch.ops.aten.add.Tensor: operator.add, torch.ops.aten.gt.Scalar: operator.gt, torch.ops.aten.lt.Scalar: operator.lt}


class _Below(TorchDispatchMode):
    """Records what torch.vmap makes of an op."""

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return self.recorder.__torch_dispatch__(func, types, args, kwargs)


# What has its default is recorded, too, in arguments that are fractions, and in all of these: what differs between two
# runs is then a value, not an argument.
WHOLE = {"aten.scaled_dot_product_attention.default", "aten.dropout.default"}
CALLED = {"aten._is_all_true.default": "aten.all.default"}  # what does nothing but call another
_MOVED = torch.ops.aten.to.dtype_layout  # x.to(device): there is one device
_MADE = (torch.ops.aten.lift_fresh.default, torch.ops.aten.detach_.default)


def _differs(a: Any, b: Any) -> bool:
    a = list(a) if isinstance(a, (list, tuple)) else a
    b = list(b) if isinstance(b, (list, tuple)) else b
    if any(torch.is_tensor(x) for x in (a if isinstance(a, list) else [a])) or \
            isinstance(a, (int, float)) and not isinstance(a, bool):
        return True
    return type(a) is not type(b) or a != b


def _run(func: Any, args: Any, kwargs: Any) -> Any:
    """What an op gives on the meta device; ops of the same shapes are run once.  What was computed on the host is there, too."""
    args, kwargs = pytree.tree_map_only(torch.Tensor, _moved, (args, kwargs))
    key = (func, _key(args), _key(kwargs))
    known = _results.get(key)
    if known:
        outs = [torch.empty_strided(size, stride, dtype=dtype, device="meta") for size, stride, dtype in known]
        return outs[0] if len(func._schema.returns) == 1 else tuple(outs)
    with torch._C._DisablePythonDispatcher():
        out = _first(func, args, kwargs)
    if known is None:
        _results[key] = _described(out, pytree.tree_leaves((args, kwargs)))
    return out


def _moved(tensor: torch.Tensor) -> torch.Tensor:
    return torch.empty_like(tensor, device="meta") if not tensor.is_meta and tensor.dim() else tensor


def _first(func: Any, args: Any, kwargs: Any) -> Any:
    """The device knows grouped products of bf16 alone."""
    if func._schema.name == "aten::_grouped_mm" and args[0].dtype != torch.bfloat16:
        half = [a.to(torch.bfloat16) if torch.is_tensor(a) and a.is_floating_point() else a for a in args]
        return func(*half, **kwargs).to(args[0].dtype)
    return func(*args, **kwargs)


_results: Dict[Any, Tuple[Any, ...]] = {}


def _key(x: Any) -> Any:
    if torch.is_tensor(x):
        return (x.shape, x.stride(), x.dtype, x.device.type)
    if isinstance(x, (list, tuple)):
        return tuple(_key(y) for y in x)
    if isinstance(x, dict):
        return tuple((k, _key(v)) for k, v in x.items())
    return (type(x), x)


def _described(out: Any, args: Any) -> Tuple[Any, ...]:
    """Of results that are tensors with a storage of their own; empty: they are not."""
    outs = out if isinstance(out, tuple) else (out,)
    if not all(torch.is_tensor(t) and t.is_meta and t.storage_offset() == 0 for t in outs):
        return ()
    own = {t.untyped_storage()._cdata for t in outs}
    if len(own) < len(outs) or own & {t.untyped_storage()._cdata for t in args if torch.is_tensor(t)}:
        return ()
    if any(t.dim() == 0 for t in args if torch.is_tensor(t)):  # which may be numbers, by which nothing is promoted
        return ()
    return tuple((t.size(), t.stride(), t.dtype) for t in outs)


@contextlib.contextmanager
def _quiet(recorder: _Recorder) -> Iterator[None]:
    """Ops that an op itself calls are not recorded."""
    recorder.quiet += 1
    try:
        yield
    finally:
        recorder.quiet -= 1


@contextlib.contextmanager
def _answers() -> Iterator[None]:
    """What code asks of values: everything is true, there is no padding."""
    def give(name: str, answer: Any) -> Any:
        old = getattr(torch.Tensor, name)

        def asked(tensor: Any, *args: Any) -> Any:
            return answer(tensor) if tensor.is_meta else old(tensor, *args)

        setattr(torch.Tensor, name, asked)
        return name

    names = [give("__bool__", lambda t: bool(getattr(t, "_number", True))), give("item", lambda t: 1.0 if t.is_floating_point() else t.dtype == torch.bool or 1),
             give("__float__", lambda t: 1.0)]
    try:
        yield
    finally:
        for name in names:
            delattr(torch.Tensor, name)


@contextlib.contextmanager
def _remembered(module: torch.nn.Module) -> Iterator[Dict[Any, Any]]:
    """Functions that remember their results do so for one run, to whose end they hold them."""
    held: Dict[Any, Any] = {}
    patched = []

    def once(function: Any) -> Any:
        def call(*args: Any, **kwargs: Any) -> Any:
            key = (function, args, tuple(sorted(kwargs.items())))
            if key not in held:
                held[key] = function.__wrapped__(*args, **kwargs)
            return held[key]
        return call

    for code in {sys.modules[type(inner).__module__] for inner in module.modules()}:
        for name, value in list(vars(code).items()):
            if hasattr(value, "__wrapped__") and any(hasattr(f, "cache_clear") for f in (value, *_closed_over(value))):
                setattr(code, name, once(value))
                patched.append((code, name, value))
    try:
        yield held
    finally:
        for code, name, value in patched:
            setattr(code, name, value)


def _closed_over(function: Any) -> List[Any]:
    return [cell.cell_contents for cell in getattr(function, "__closure__", None) or ()]


@contextlib.contextmanager
def _seen(module: torch.nn.Module, recorder: _Recorder) -> Iterator[None]:
    """Hooks on every module, which enter and leave its call."""
    handles = []
    for path, inner in module.named_modules(remove_duplicate=True):
        names = list(inspect.signature(inner.forward).parameters)

        def enter(mod: Any, args: Any, kwargs: Any, path: str = path, names: Any = names) -> None:
            ins: Dict[str, Value] = {}
            for name, arg in [*zip(names + ["args"] * len(args), args), *kwargs.items()]:
                for key, leaf in _tensors(name, arg):
                    ins.setdefault(key, recorder.value_of(leaf))
            call = Call(path, type(mod).__name__, ins)
            if recorder.stack:
                recorder.stack[-1].items.append(call)
            recorder.stack.append(call)

        def leave(mod: Any, args: Any, kwargs: Any, out: Any) -> None:
            call = recorder.stack[-1]
            seen: Dict[int, Tuple[str, Value]] = {}
            for name, leaf in _tensors("", out):
                value = recorder.value_of(leaf)
                seen.setdefault(value.id, (name or "0", value))
            call.outs = list(seen.values())
            if len(recorder.stack) > 1:
                recorder.stack.pop()

        handles.append(inner.register_forward_pre_hook(enter, with_kwargs=True, prepend=True))
        handles.append(inner.register_forward_hook(leave, with_kwargs=True))
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()


def _tensors(name: str, value: Any, depth: int = 0) -> Iterator[Tuple[str, torch.Tensor]]:
    if torch.is_tensor(value):
        if value.is_meta:
            yield name, value
    elif isinstance(value, dict):
        for key, one in value.items():
            yield from _tensors(f"{name}.{key}" if name else str(key), one, depth + 1)
    elif isinstance(value, (tuple, list)):
        for i, one in enumerate(value):
            yield from _tensors(f"{name}.{i}" if name else str(i), one, depth + 1)
    elif depth < 6 and hasattr(value, "__dict__") and not isinstance(value, (torch.nn.Module, type)) and \
            not callable(value):
        for key, one in vars(value).items():
            yield from _tensors(f"{name}.{key}" if name else key, one, depth + 1)


def trace(module: torch.nn.Module, kwargs: Dict[str, Any], masked: int = 0) -> Call:
    """The call of the model, with all that it calls.  masked: how often masks that are indices are true."""
    trained = {id(leaf) for leaf in module.parameters() if leaf.requires_grad}
    module.requires_grad_(False)
    recorder = _Recorder()
    recorder.masked = masked
    recorder.length = kwargs["input_ids"].shape[1] if "input_ids" in kwargs else 0
    recorder.reads = _Reads(recorder)
    gc.disable()
    try:
        for path, leaf in [*module.named_parameters(), *module.named_buffers()]:
            recorder.add(leaf, leaf=path).grad = id(leaf) in trained
        for _, tensor in _tensors("", kwargs):
            recorder.add(tensor)
        with _answers(), _remembered(module) as held, _seen(module, recorder), recorder.reads, \
                enable_python_dispatcher(), recorder:
            out = module(**kwargs)
            held.clear()
            root = recorder.stack[0]
            recorder.stack.clear()
            del out
        return root
    finally:
        gc.enable()


def show(call: Call, indent: int = 0) -> Iterator[str]:
    pad = "  " * indent
    yield f"{pad}{call.path or '(model)'} {call.type}({', '.join(f'{k}=%{v.id}' for k, v in call.ins.items())})"
    for item in call.items:
        if isinstance(item, Call):
            yield from show(item, indent + 1)
        elif isinstance(item, Held):
            yield f"{pad}  held %{item.value.id}"
        else:
            def word(x: Any) -> str:
                if isinstance(x, Value):
                    return x.leaf or (f"%{x.id}")
                return "[" + ", ".join(map(word, x)) + "]" if isinstance(x, list) else str(x)
            args = ", ".join(f"{k}={word(v)}" for k, v in item.args.items())
            yield f"{pad}  {', '.join(f'%{v.id}{list(v.shape)}' for v in item.outs)} = {item.target}({args})"
    yield f"{pad}  -> {', '.join(f'{n}=%{v.id}' for n, v in call.outs)}"


if __name__ == "__main__":
    from transformers import AutoModelForCausalLM, CONFIG_MAPPING

    config = CONFIG_MAPPING[sys.argv[1]](num_hidden_layers=2)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
        ids = torch.zeros(3, 64, dtype=torch.long)
    model.train()
    print("\n".join(show(trace(model, {"input_ids": ids, "labels": ids.clone()}))))
