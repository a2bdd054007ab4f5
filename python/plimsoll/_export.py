"""_export.py -- an nn.Module as a .pt2 that holds its graph and no weights.

    exported = export_module(module, args, kwargs, batch=64)
    exported.data        bytes that the library reads as a model: the model JSON of an archive of torch.export
    exported.settings    what the module itself says about its run: {"batch": "2", "checkpoint": "layers.*"};
                         values that the caller gives take precedence
    exported.notes       sentences: what was assumed, what could not be seen
    exported.limits      the sizes that it holds for: {"batch": (2, None), "seq": (2, 4094)}

The module is traced by torch.export (non-strict, the training IR) as it is: in its own mode, on the device where its
parameters are, which may be meta.  Tracing computes with fake tensors, so neither weights nor activations take memory,
and nothing in the module changes.  What is written is what the library reads (docs/formats/pt2.md), straight from the
graph: torch.export.save would write weights, cannot write every model, and takes seconds for large ones.
"""

from __future__ import annotations

import contextlib
import gc
import io
import logging
import os
import re
import sys
import warnings
from dataclasses import dataclass
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Sequence, Set, Tuple

import torch
from torch.utils import checkpoint as torch_checkpoint

from ._errors import UnsupportedError

OLDEST = (2, 6)  # torch.export.Dim.AUTO, torch.export.ShapesCollection
INSTEAD = "`plimsoll run -- python train.py` runs the code itself on a pretend GPU"

if tuple(int(n) for n in re.findall(r"\d+", torch.__version__)[:2]) < OLDEST:
    raise UnsupportedError(f"torch {torch.__version__} cannot export an nn.Module: {OLDEST[0]}.{OLDEST[1]} or later is "
                           f"needed; {INSTEAD}")

from torch._decomp import decompositions  # noqa: E402
from torch._subclasses.fake_tensor import FakeTensor  # noqa: E402
from torch.utils import _pytree as pytree  # noqa: E402

from ._open import Limits, limits  # noqa: E402
from ._pt2 import Program  # noqa: E402


@dataclass(frozen=True)
class Exported:
    """A module as the library reads it."""

    data: bytes
    batch: Optional[int]
    """The batch size of the example inputs; None: they have none."""
    dynamic: bool
    """Whether any other batch size can be asked for."""
    settings: Mapping[str, str]
    notes: Tuple[str, ...]
    limits: Limits


def export_module(module: torch.nn.Module, args: Sequence[Any] = (), kwargs: Optional[Mapping[str, Any]] = None, *,
                  batch: Optional[int] = None, sequences: Sequence[str] = (), notes: Sequence[str] = ()) -> Exported:
    """Exports a module called as module(*args, **kwargs); `batch` is the batch size that will be asked for.

    Dimension 0 of the inputs that agree in it with the first one is the batch, which the export leaves open if the
    module's code allows it.  If it does not, the inputs are made as large as `batch`.  Left open, too, if the code
    allows it, is dimension 1 of the keyword arguments `sequences`.  `notes` are the caller's own, which come first.
    """
    with _no_collections():
        return _export(module, args, kwargs or {}, batch, sequences, list(notes))


def _export(module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any], batch: Optional[int],
            sequences: Sequence[str], notes: List[str]) -> Exported:
    module = _unwrap(module, notes)
    inputs = _Inputs.of(module, args, kwargs)
    size = inputs.batch()
    program = None
    if size is not None:
        open_at = max(size, 2)  # a batch of 1 would become a constant
        resized = inputs.resized(size, open_at)
        if sequences:
            with contextlib.suppress(Exception):  # as below; then for this length alone
                program = _trace(module, resized, open_at, sequences)
        try:
            program = program or _trace(module, resized, open_at)
        except Exception as why:  # torch.export raises whatever the traced code does
            notes.append(f"The module could not be exported for any batch size ({_first_line(why)}).")
    if program is None or not program.dynamic():
        wanted = size if size is None else batch or size
        if program is None or wanted != open_at:
            try:
                program = _trace(module, inputs.resized(size, wanted), None)
            except Exception as why:
                raise UnsupportedError(f"'{type(module).__name__}' could not be exported: {_first_line(why)}; "
                                       f"{INSTEAD}") from why
        size = wanted
    settings = {} if size is None else {"batch": str(size)}
    settings.update(program.settings)
    notes += program.notes
    return Exported(program.text(notes), size, program.dynamic(), settings, tuple(notes), program.limits)


def _first_line(why: BaseException) -> str:
    line = next((line.strip() for line in str(why).splitlines() if line.strip()), "")
    return ": ".join(filter(None, (type(why).__name__, line[:200].rstrip(". "))))


# ---- the module and its inputs ----------------------------------------------------------------------


def _unwrap(module: torch.nn.Module, notes: List[str]) -> torch.nn.Module:
    """What DataParallel, DistributedDataParallel and torch.compile wrap."""
    while True:
        kind = type(module).__name__
        inner = {"OptimizedModule": "_orig_mod", "DataParallel": "module", "DistributedDataParallel": "module"}.get(kind)
        if inner is None or not isinstance(getattr(module, inner, None), torch.nn.Module):
            return module
        notes.append(f"The module in '{kind}' was exported: what '{kind}' itself takes is not counted.")
        module = getattr(module, inner)


class _Inputs(NamedTuple):
    args: Tuple[Any, ...]
    kwargs: Dict[str, Any]

    @classmethod
    def of(cls, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "_Inputs":
        """On the device of the module; of inputs on the meta device, which have no values, zeros."""
        tensors = [*module.parameters(), *module.buffers()]
        device = tensors[0].device if tensors else None

        def move(x: Any) -> Any:
            if not torch.is_tensor(x) or device is None or x.device == device:
                return x
            return torch.zeros_like(x, device=device) if x.is_meta else x.to(device)

        return cls(tuple(args), dict(kwargs)).changed(move)

    def changed(self, change: Any) -> "_Inputs":
        return _Inputs(*pytree.tree_map(change, (self.args, self.kwargs)))

    def tensors(self) -> List[torch.Tensor]:
        return [x for x in pytree.tree_leaves((self.args, self.kwargs)) if torch.is_tensor(x)]

    def batch(self) -> Optional[int]:
        """Dimension 0 of the first input that has one."""
        return next((t.shape[0] for t in self.tensors() if t.dim()), None)

    def resized(self, old: Optional[int], new: Optional[int]) -> "_Inputs":
        """With another batch: the samples repeated."""
        def resize(x: Any) -> Any:
            if not torch.is_tensor(x) or not x.dim() or x.shape[0] != old or not old or old == new:
                return x
            rows = torch.arange(new, device=x.device) % old
            return x.detach().index_select(0, rows).requires_grad_(x.requires_grad)

        return self.changed(resize)


# ---- tracing ------------------------------------------------------------------------------------------


def _trace(module: torch.nn.Module, inputs: _Inputs, batch: Optional[int], sequences: Sequence[str] = ()) -> Program:
    """`batch`: the size in dimension 0 that is left open; None: no size is."""
    shapes = None
    rows = [inputs.kwargs[name] for name in sequences if inputs.kwargs.get(name) is not None]
    if batch is not None:
        found = torch.export.ShapesCollection()
        for tensor in {id(t): t for t in inputs.tensors() if t.dim() and t.shape[0] == batch}.values():
            both = any(tensor is row for row in rows) and tensor.dim() > 1
            found[tensor] = {0: torch.export.Dim.AUTO, **({1: torch.export.Dim.AUTO} if both else {})}
        shapes = found.dynamic_shapes(module, inputs.args, inputs.kwargs)
    checkpoints, answers = _Checkpoints(), _Answers()
    notes: List[str] = []
    with _plain_tracing(), _as_eager(), _marked_blocks(module), _flat_outputs(module), checkpoints.seen(), \
            answers.given(), _autocast_missed(notes):
        traced = torch.export.export(module, inputs.args, inputs.kwargs, strict=False, dynamic_shapes=shapes)
    program = Program(traced, module)
    program.settings = checkpoints.settings(program)
    program.notes = answers.notes() + checkpoints.notes(program) + notes
    sizes = {"batch": batch} if batch is not None else {}
    if rows:
        sizes["seq"] = rows[0].shape[1]
    program.limits = limits(traced, sizes, {"batch": program.open_symbols(0), "seq": program.open_symbols(1)})
    return program


@contextlib.contextmanager
def _autocast_missed(notes: List[str]) -> Iterator[None]:
    """Notes a region of autocast that the module enters and PyTorch turns off, because its device is not there.  One
    that is on is in the export, and the library notes it."""
    begin = torch.autocast.__init__

    def begin_noted(self: Any, device_type: str, *args: Any, **kwargs: Any) -> None:
        begin(self, device_type, *args, **kwargs)
        asked = kwargs.get("enabled", args[1] if len(args) > 1 else True)
        note = f"The module enters torch.autocast('{device_type}') itself, whose casts are not counted."
        if asked and not self._enabled and note not in notes:
            notes.append(note)

    setattr(torch.autocast, "__init__", begin_noted)
    try:
        yield
    finally:
        setattr(torch.autocast, "__init__", begin)


def _mark(what: str, *values: Any) -> None:
    tensors = {id(x): x for x in pytree.tree_leaves(values) if torch.is_tensor(x)}
    torch.ops.plimsoll_export.mark(list(tensors.values()), what)


@contextlib.contextmanager
def _marked_blocks(module: torch.nn.Module) -> Iterator[None]:
    """Notes what the modules are called with that may be checkpointed (the setting `checkpoint`): a checkpoint holds
    all of it, used or not."""
    hooks = []
    outer = None
    for path, inner in module.named_modules():
        if not path[-1:].isdigit() or next(inner.children(), None) is None or \
                type(inner) in (torch.nn.Sequential, torch.nn.ModuleList) or \
                outer is not None and path.startswith(f"{outer}."):
            continue
        outer = path

        def hook(_: Any, args: Any, kwargs: Any, path: str = path) -> None:
            _mark(f"call {path}", args, kwargs)

        hooks.append(inner.register_forward_pre_hook(hook, with_kwargs=True))
    try:
        yield
    finally:
        for handle in hooks:
            handle.remove()


@contextlib.contextmanager
def _flat_outputs(module: torch.nn.Module) -> Iterator[None]:
    """Makes the module return its tensors alone, since torch.export knows few of the classes that may hold them."""
    handle = module.register_forward_hook(lambda _module, _inputs, out: tuple(_tensors_in(out, set())))
    try:
        yield
    finally:
        handle.remove()


def _tensors_in(value: Any, seen: Set[int]) -> Iterator[torch.Tensor]:
    """In the order in which the object holds them."""
    if id(value) in seen:
        return
    seen.add(id(value))
    if torch.is_tensor(value):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from _tensors_in(one, seen)
    elif isinstance(value, (tuple, list)):
        for one in value:
            yield from _tensors_in(one, seen)
    elif hasattr(value, "__dict__") and not isinstance(value, (torch.nn.Module, type)):
        yield from _tensors_in(vars(value), seen)


class _Checkpoints:
    """Sees checkpoints, which are traced as the functions that they call."""

    def __init__(self) -> None:
        self._reentrant: List[bool] = []
        self._selective = False

    @contextlib.contextmanager
    def _region(self, reentrant: bool, values: Any) -> Iterator[None]:
        number = len(self._reentrant)
        self._reentrant.append(reentrant)
        _mark(f"begin {number}", values)
        yield
        _mark(f"end {number}")

    @contextlib.contextmanager
    def seen(self) -> Iterator[None]:
        region = self._region

        def without_reentrant(_: Any, preserve: Any, context_fn: Any, *args: Any, **kwargs: Any) -> Iterator[None]:
            self._selective |= context_fn is not torch_checkpoint.noop_context_fn
            with region(False, (args, kwargs)):
                yield

        class Reentrant:
            @staticmethod
            def apply(function: Any, preserve: Any, *args: Any) -> Any:
                with region(True, args):
                    return function(*args)

        # checkpoint() calls one of these, wherever it was imported from
        with _changed(torch_checkpoint, "_checkpoint_without_reentrant_generator", without_reentrant), \
                _changed(torch_checkpoint, "CheckpointFunction", Reentrant):
            yield

    def settings(self, program: Program) -> Dict[str, str]:
        """The setting that says the same."""
        if not program.regions:
            return {}
        patterns = _patterns([region.path for region in program.regions], program.scopes())
        reentrant = all(self._reentrant[region.number] for region in program.regions)
        return {"checkpoint": ",".join(patterns + ["reentrant"] * reentrant)}

    def notes(self, program: Program) -> List[str]:
        kinds = {self._reentrant[region.number] for region in program.regions}
        notes = []
        if len(kinds) > 1:
            notes.append("Some checkpoints of the module are reentrant; all are counted as if they were not.")
        if self._selective:
            notes.append("A checkpoint of the module keeps some results (context_fn), which is not counted.")
        return notes


def _patterns(paths: List[str], scopes: Set[str]) -> List[str]:
    """Patterns that match these paths and no others: "layers.*" for all of layers.0, layers.1, ..."""
    out: List[str] = []
    chosen = set(paths)
    for path in paths:
        pattern = re.sub(r"(?<=\.)\d+(?=\.|$)|^\d+(?=\.|$)", "*", path)
        like = re.compile(re.escape(pattern).replace(r"\*", r"[^.]*"))
        one = pattern if all(s in chosen for s in scopes if like.fullmatch(s)) else path
        if one not in out:
            out.append(one)
    return out


# ---- as eager code runs ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _plain_tracing() -> Iterator[None]:
    """Without what costs time and is not used: stack traces and Python code of graphs; and without the pages that PyTorch logs and prints about an error that it also raises."""
    with contextlib.ExitStack() as stack:
        stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
        stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
        stack.callback(logging.disable, logging.root.manager.disable)
        logging.disable(logging.CRITICAL)
        with contextlib.suppress(ImportError, AttributeError):
            from torch.fx._lazy_graph_module import _use_lazy_graph_module

            stack.enter_context(_use_lazy_graph_module(True))
        stack.enter_context(_changed(torch.fx.config, "do_not_emit_stack_traces", True))
        for layer in ("one_layer_lstm", "one_layer_rnn"):
            stack.enter_context(_changed(decompositions, layer, _recurrent_layer))
        stack.enter_context(warnings.catch_warnings())
        warnings.simplefilter("ignore")
        yield


def _recurrent_layer(x: Any, state: Any, *_: Any, **__: Any) -> Tuple[Any, Any]:
    """The shapes of a layer's results, which PyTorch finds out by tracing every time step."""
    hidden = state[0] if isinstance(state, tuple) else state
    return x.new_empty((x.shape[0], *hidden.shape)), state


@contextlib.contextmanager
def _no_collections() -> Iterator[None]:
    """Tracing makes millions of objects that stay: looking for garbage among them takes a third of the time."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def _changed(owner: Any, name: str, value: Any) -> Iterator[None]:
    """An attribute with another value; one that this version does not have stays absent."""
    if not hasattr(owner, name):
        yield
        return
    old = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, old)


@contextlib.contextmanager
def _as_eager() -> Iterator[None]:
    """Code that asks whether it is traced takes another branch if it is: transformers makes attention masks that it
    leaves out otherwise.  It is told no; PyTorch itself is told yes."""
    def asked(name: str) -> Any:
        ask = getattr(torch.compiler, name)

        def answer() -> bool:
            caller = sys._getframe(1).f_globals.get("__name__", "")
            return bool(ask()) if caller == "torch" or caller.startswith("torch.") else False

        return answer

    with contextlib.ExitStack() as stack:
        for name in ("is_compiling", "is_exporting", "is_dynamo_compiling"):
            if hasattr(torch.compiler, name):
                stack.enter_context(_changed(torch.compiler, name, asked(name)))
        for module, name, says in _ELSEWHERE:
            if module in sys.modules:
                stack.enter_context(_changed(sys.modules[module], name, lambda *_, says=says: says))
        yield


# Functions outside PyTorch that find out in another way: module, function, answer.
_ELSEWHERE = (
    ("transformers.utils.import_utils", "is_fake_tensor", False),
    # only the stand-in for grouped_mm can be traced in fp32; it takes the same memory
    ("transformers.integrations.moe", "is_torchdynamo_compiling", True),
)


class _Answers:
    """What code asks of a value that only a run would know is answered with 1, as by `plimsoll run --scalar 1`: it is
    mostly whether a batch has no padding, or has some.  Whole numbers are not guessed, because sizes may depend on them."""

    def __init__(self) -> None:
        self._places: Dict[str, None] = {}

    @contextlib.contextmanager
    def given(self) -> Iterator[None]:
        def answering(ask: Any, guess: Any) -> Any:
            def answer(tensor: Any, *args: Any) -> Any:
                known = not isinstance(tensor, FakeTensor) or tensor.constant is not None
                if known or guess is not True and not (tensor.is_floating_point() or tensor.dtype == torch.bool):
                    return ask(tensor, *args)
                caller: Any = sys._getframe(1)
                while caller.f_back and str(caller.f_globals.get("__name__")).split(".")[0] == "torch":
                    caller = caller.f_back  # `x in tensor` is PyTorch's code
                self._places[f"{os.path.basename(caller.f_code.co_filename)}:{caller.f_lineno}"] = None
                return True if tensor.dtype == torch.bool else guess

            return answer

        with contextlib.ExitStack() as stack:
            for name, guess in (("__bool__", True), ("item", 1.0), ("__float__", 1.0)):
                setattr(torch.Tensor, name, answering(getattr(torch.Tensor, name), guess))
                stack.callback(delattr, torch.Tensor, name)  # they are inherited
            yield

    def notes(self) -> List[str]:
        if not self._places:
            return []
        return [f"Taken to be 1 or true, because an export has no values: {', '.join(self._places)}."]
