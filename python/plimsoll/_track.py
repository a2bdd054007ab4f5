"""_track.py -- which lines change the memory, and by which tensors: track(), summary().

How it is known
    lines      sys.settrace, in the frames that are followed.  Before each of their lines, what has
               changed since the event before belongs to the line that was left.
    tensors    a TorchDispatchMode sees what each op takes and returns; of a storage it keeps a weak
               reference, which ends with the storage's memory, whoever held it: a variable, or the
               autograd graph.  What was there before is found by the garbage collector, once.
    memory     on a GPU, real or pretended: the counters of PyTorch's allocator; on the CPU, which
               has none: the sum of the storages above.
    kinds      from modules and optimizers, which are known by PyTorch's own hooks.

No tensor is kept alive.  Needs PyTorch, and nothing else of this package.
"""


from __future__ import annotations

import collections
import functools
import gc
import inspect
import os
import sys
import sysconfig
import threading
import weakref
from types import CodeType, FrameType, TracebackType
from typing import (Any, Callable, Dict, Iterable, Iterator, List, NamedTuple, Optional, Set, TextIO, Tuple, Type,
                    TypeVar, Union)

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.nn.modules import module as _modules
from torch.optim import optimizer as _optimizers
from torch.utils._python_dispatch import TorchDispatchMode

MIB = 1 << 20
_DTYPES = {torch.float32: "fp32", torch.float64: "fp64", torch.float16: "fp16", torch.bfloat16: "bf16"}
_PLAIN = (torch.Tensor, torch.nn.Parameter)
_HERE = os.path.dirname(os.path.abspath(__file__)) + os.sep
_PACKAGES = tuple(p + os.sep for p in {sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")} if p)
_OPTIMIZED = 1  # CO_OPTIMIZED: a function's frame, whose f_locals may be a copy
_F = TypeVar("_F", bound=Callable[..., Any])


class Row(NamedTuple):
    """Tensors of one shape, dtype and kind that a line made or released."""

    sign: str
    """"+" or "-"."""
    tensors: int
    shape: Tuple[int, ...]
    bytes: int
    """Of the storages of all of them."""
    kind: str
    """Parameter, Buffer, Gradient, Optimizer state or Tensor; Other: memory that is in no tensor that was
    seen, such as a workspace of cuBLAS (0 tensors)."""
    dtype: str

    def text(self, unit: str = "M") -> str:
        size = f"{_amount(self.bytes, unit)} {unit} | {self.kind}"
        if not self.tensors:
            return f"{self.sign} | {size} | in no tensor that was seen"
        shape = str(tuple(self.shape))
        return f"{self.sign} | {self.tensors} * Size:{shape:<20} | {size} | {self.dtype}"


class Held(NamedTuple):
    """A name that was deleted, or set to something else, whose tensor is still there."""

    name: str
    bytes: int
    holders: Tuple[str, ...]
    """"`tensor3` in `main`"; empty: none was found."""

    def text(self, unit: str = "M") -> str:
        who = " and ".join(self.holders) or "the autograd graph, or something that Python does not show"
        return f"= | `{self.name}` released nothing: {_amount(self.bytes, unit)} {unit} still held by {who}"


class Line(NamedTuple):
    """A line that changed the memory, each time that it did."""

    file: str
    line: int
    function: str
    allocated: int
    """Bytes, after the line."""
    change: int
    """Bytes more than before it."""
    rows: Tuple[Row, ...]
    held: Tuple[Held, ...]

    def text(self, unit: str = "M") -> str:
        place = f"{self.file}:{self.line} {self.function}" if self.line else "(lines that are not followed)"
        head = f"{place}: allocated {self.allocated / MIB:.1f} MiB ({_signed(self.change)})"
        below = [row.text(unit) for row in self.rows] + [held.text(unit) for held in self.held]
        return "\n  ".join([head, *below])


def _amount(size: int, unit: str) -> str:
    value = size / (1e6 if unit == "M" else MIB)
    return f"{value:.3f}" if value >= 1 else f"{value:.4f}"


def _signed(change: int) -> str:
    """In MiB, or in bytes where that would say 0.0."""
    return f"{change / MIB:+.1f}" if not change or abs(change) >= MIB / 20 else f"{change:+,d} B"


def dtype_word(dtype: torch.dtype) -> str:
    return _DTYPES.get(dtype) or str(dtype).replace("torch.", "")


# -- storages


class _Entry:
    """A storage that is alive, or was."""

    __slots__ = ("ref", "bytes", "shape", "dtype", "kind")

    def __init__(self, storage: torch.UntypedStorage, tensor: torch.Tensor) -> None:
        self.ref = StorageWeakRef(storage)
        self.bytes: int = storage.nbytes()
        self.shape = tuple(tensor.shape)
        self.dtype = tensor.dtype
        self.kind = "Tensor"


def _plain(tensor: torch.Tensor) -> Iterator[torch.Tensor]:
    """Itself, or the tensors that a wrapper consists of, such as the shard of a DTensor."""
    if not hasattr(tensor, "__tensor_flatten__"):
        yield tensor
        return
    for name in tensor.__tensor_flatten__()[0]:
        yield from _plain(getattr(tensor, name))


def _storage(tensor: Any, device: torch.device) -> Optional[torch.UntypedStorage]:
    """None: it is on another device, or has no storage of its own (a sparse tensor)."""
    try:
        storage: torch.UntypedStorage = tensor.untyped_storage()
    except (RuntimeError, NotImplementedError):
        return None
    return storage if storage.device == device else None


def _heap(kinds: Tuple[type, ...]) -> Iterator[Any]:
    """The objects of these classes that Python knows.  By their types: to ask them for their
    __class__ makes lazy objects load what they stand for."""
    return (x for x in gc.get_objects() if issubclass(type(x), kinds))


class _Ledger(TorchDispatchMode):
    """The storages on a device: those that are there, and what becomes of them.

    As a mode it belongs to the thread that enters it, and to the threads of its backward passes.
    """

    def __init__(self, device: torch.device) -> None:
        super().__init__()
        self.device = device
        self.alive: Dict[int, _Entry] = {}  # by the address of the StorageImpl, which a weak reference keeps unique
        self.version = 0  # changes with `alive`
        self.modules: Dict[int, "weakref.ref[torch.nn.Module]"] = {}
        self.optimizers: Dict[int, "weakref.ref[torch.optim.Optimizer]"] = {}
        self._hooks: List[Any] = []

    def look(self) -> None:
        """Finds what Python knows to be there."""
        for x in _heap((torch.Tensor, torch.nn.Module, torch.optim.Optimizer)):
            if isinstance(x, torch.Tensor):
                self.see(x)
            elif isinstance(x, torch.nn.Module):
                self.know_module(x)
            else:
                self.know_optimizer(x)

    def open(self) -> None:
        self.look()
        self._hooks = [_modules.register_module_parameter_registration_hook(self.know_module),
                       _modules.register_module_buffer_registration_hook(self.know_module),
                       _optimizers.register_optimizer_step_post_hook(self.know_optimizer)]
        self.__enter__()

    def close(self) -> None:
        self.__exit__(None, None, None)
        for hook in self._hooks:
            hook.remove()

    def know_module(self, module: torch.nn.Module, *_: Any) -> None:
        if id(module) not in self.modules or self.modules[id(module)]() is not module:
            self.modules[id(module)] = weakref.ref(module)

    def know_optimizer(self, optimizer: torch.optim.Optimizer, *_: Any) -> None:
        self.optimizers[id(optimizer)] = weakref.ref(optimizer)

    def see(self, value: Any) -> None:
        """A tensor, a list or a tuple of them; anything else is left."""
        kind = type(value)
        if kind in _PLAIN:
            if value.device == self.device:
                self.keep(value)
        elif kind is list or kind is tuple:
            for x in value:
                self.see(x)
        elif issubclass(kind, torch.Tensor):
            for part in _plain(value):
                self.keep(part)

    def keep(self, tensor: torch.Tensor) -> None:
        storage = _storage(tensor, self.device)
        if storage is None:
            return
        entry = self.alive.get(storage._cdata)
        if entry is None or entry.bytes != storage.nbytes():  # new, or resized
            entry = self.alive[storage._cdata] = _Entry(storage, tensor)
            self.version += 1
        if type(tensor) is torch.nn.Parameter:
            entry.kind = "Parameter"

    def entry(self, tensor: torch.Tensor) -> Optional[_Entry]:
        storage = _storage(tensor, self.device)
        return None if storage is None else self.alive.get(storage._cdata)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.see(args)  # what came from elsewhere: another thread, a worker of a DataLoader, NumPy
        self.see(out)
        return out

    def sweep(self) -> None:
        """Drops the storages that are gone."""
        expired = torch.UntypedStorage._expired
        gone = [key for key in list(self.alive) if expired(key)]
        for key in gone:
            del self.alive[key]
        self.version += len(gone)

    def name_kinds(self) -> None:
        """Says of the storages that are alive what they are for."""
        def name(tensor: Any, kind: str) -> None:
            for part in _plain(tensor) if isinstance(tensor, torch.Tensor) else ():
                entry = self.entry(part)
                if entry is not None:
                    entry.kind = kind

        for optimizer in _living(self.optimizers):
            for state in list(optimizer.state.values()):
                for value in list(state.values()) if isinstance(state, dict) else ():
                    name(value, "Optimizer state")
        for module in _living(self.modules):
            for b in list(module._buffers.values()):
                name(b, "Buffer")
            for p in list(module._parameters.values()):
                name(p, "Parameter")
                if p is not None and p.is_leaf:  # others warn when asked
                    name(p.grad, "Gradient")

    def total(self) -> int:
        return sum(entry.bytes for entry in list(self.alive.values()))


_T = TypeVar("_T")


def _living(refs: "Dict[int, weakref.ref[_T]]") -> Iterator[_T]:
    for key, ref in list(refs.items()):
        x = ref()
        if x is None:
            del refs[key]
        else:
            yield x


def _counters(ledger: _Ledger) -> Tuple[int, int]:
    """Bytes that are allocated, and those of them that were asked for."""
    if ledger.device.type != "cuda":
        total = ledger.total()
        return total, total
    stats = torch.cuda.memory_stats_as_nested_dict(ledger.device)
    if not stats:  # CUDA is not initialized
        return 0, 0
    return stats["allocated_bytes"]["all"]["current"], stats["requested_bytes"]["all"]["current"]


# -- who holds a tensor


def _users(path: str) -> bool:
    """Whether that file is the user's own: not Python's, an installed package's, or ours."""
    front = getattr(sys.modules.get("plimsoll_front"), "HERE", _HERE)  # of `plimsoll run`
    return f"-packages{os.sep}" not in path and not path.startswith(("<frozen ", *_PACKAGES, _HERE, front))


def _variables(frame: Optional[FrameType]) -> Dict[int, str]:
    """What the variables of the functions that run, and of the user's modules, refer to: by id."""
    names: Dict[int, str] = {}
    while frame is not None:
        if frame.f_code.co_flags & _OPTIMIZED and _users(frame.f_code.co_filename):
            for name, value in list(frame.f_locals.items()):
                names.setdefault(id(value), f"`{name}` in `{frame.f_code.co_name}`")
        frame = frame.f_back
    for module in list(sys.modules.values()):
        path = getattr(module, "__file__", None)
        if isinstance(path, str) and _users(path):
            for name, value in list(vars(module).items()):
                if not name.startswith("__"):
                    names.setdefault(id(value), f"`{name}` in `{os.path.basename(path)}`")
    return names


def _holders(entry: _Entry, device: torch.device, frame: FrameType, levels: int = 3) -> Tuple[str, ...]:
    """The variables, and attributes of objects, that keep a storage: themselves, or by what they contain."""
    def uses(tensor: torch.Tensor) -> bool:
        storage = _storage(tensor, device)
        return storage is not None and storage._cdata == entry.ref.cdata

    variables = _variables(frame)
    level: List[Any] = [t for t in _heap((torch.Tensor,)) if uses(t)]
    found: Dict[str, None] = {}
    seen: Set[int] = {id(t) for t in level}
    for _ in range(levels):
        found.update((variables[id(x)], None) for x in level if id(x) in variables)
        inner, level = level, []
        ids = {id(x) for x in inner}
        for owner in gc.get_referrers(*inner) if inner else ():
            if id(owner) in seen or owner is inner or type(owner).__name__ in ("frame", "list_iterator", "module"):
                continue
            seen.add(id(owner))
            # An object's __dict__ is not always an object of its own.
            name = next((k for k, v in list(getattr(owner, "__dict__", {}).items()) if id(v) in ids), None)
            if name and not isinstance(owner, torch.Tensor):
                found[f"`{name}` of a `{type(owner).__name__}`"] = None
            elif type(owner) in (dict, list, tuple, set, collections.deque, collections.OrderedDict,
                                 collections.defaultdict):
                level.append(owner)
    return tuple(found)


# -- lines


class _Place:
    """A frame that is followed, and its line."""

    __slots__ = ("frame", "line", "names")

    def __init__(self, frame: FrameType) -> None:
        self.frame = frame
        self.line = frame.f_lineno
        self.names: Dict[str, _Entry] = {}  # variables that are tensors, by their storages


class _Watch:
    """What a thread has while track() is used on it: one ledger for each device, one trace function."""

    def __init__(self) -> None:
        self.trackers: List["Tracker"] = []
        self.ledgers: Dict[torch.device, _Ledger] = {}
        self.former: Any = None
        self.frames: List[Tuple[FrameType, Any]] = []  # with the trace functions they had

    def add(self, tracker: "Tracker", device: torch.device) -> _Ledger:
        if not self.trackers:
            self.former = sys.gettrace()
        if device not in self.ledgers:
            ledger = _Ledger(device)
            ledger.open()
            self.ledgers[device] = ledger
        self.trackers.append(tracker)
        sys.settrace(self.on_call)
        return self.ledgers[device]

    def follow(self, frame: FrameType) -> None:
        """Follows a frame that runs already."""
        self.frames.append((frame, frame.f_trace))
        frame.f_trace = self.on_line

    def remove(self, tracker: "Tracker") -> None:
        self.trackers.remove(tracker)
        if self.trackers:
            return
        sys.settrace(self.former)
        self.former = None
        for frame, former in reversed(self.frames):
            if former is None:
                del frame.f_trace
            else:
                frame.f_trace = former
            # Until 3.12 a trace function leaves a copy of the variables in the frame.
            if sys.version_info < (3, 13) and frame.f_code.co_flags & _OPTIMIZED:
                frame.f_locals.clear()
        self.frames.clear()
        for ledger in reversed(list(self.ledgers.values())):
            ledger.close()
        self.ledgers.clear()

    def on_call(self, frame: FrameType, event: str, arg: Any) -> Any:
        if any([t._enter(frame) for t in self.trackers]):
            return self.on_line
        return None

    def on_line(self, frame: FrameType, event: str, arg: Any) -> Any:
        for tracker in list(self.trackers):
            if event == "line":
                tracker._line(frame)
            elif event == "return":
                tracker._leave(frame)
        return self.on_line


class _Local(threading.local):
    def __init__(self) -> None:
        self.watch = _Watch()


_local = _Local()


class Tracker:
    """Follows lines, from `start` to `stop`; also a context manager and a decorator.  Made by track()."""

    def __init__(self, stream: Union[TextIO, Callable[[Line], object], None], device: Optional[torch.device],
                 functions: Iterable[Callable[..., Any]], depth: int, least: int, unit: str) -> None:
        if unit not in ("M", "MiB"):
            raise ValueError(f"unit is 'M' (10^6 bytes) or 'MiB', not {unit!r}")
        self._options: Any = (stream, device, tuple(functions), depth, least, unit)
        self._stream, self._least, self._unit, self._depth = stream, least, unit, depth
        self._device = device
        self._codes: Set[CodeType] = {_code_of(f) for f in functions}
        self._stack: List[_Place] = []
        self._ledger: Optional[_Ledger] = None
        self._watch: Optional[_Watch] = None
        self._known: Set[_Entry] = set()
        self._version = -1
        self._allocated = self._requested = 0
        self._started_in: Optional[FrameType] = None
        self.rows: List[Line] = []
        """The lines that changed the memory, in their order."""

    # -- from, to

    def start(self) -> "Tracker":
        """Follows the lines of the caller, from here on."""
        self._begin(sys._getframe(1))
        return self

    def stop(self) -> "Tracker":
        self._end()
        return self

    def __enter__(self) -> "Tracker":
        self._begin(sys._getframe(1))
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        self._end()

    def __call__(self, function: _F) -> _F:
        """As a decorator: each call is tracked; `function.tracker` is the tracker of the last one."""
        if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
            raise TypeError(f"'{function.__name__}' does not run when it is called: put 'with plimsoll.track():' "
                            "around the code that runs it")
        running: Set[int] = set()  # threads in it

        @functools.wraps(function)
        def run(*args: Any, **kwargs: Any) -> Any:
            thread = threading.get_ident()
            if thread in running:  # calls itself
                return function(*args, **kwargs)
            tracker = Tracker(*self._options)
            tracker._codes.add(_code_of(function))
            setattr(run, "tracker", tracker)
            running.add(thread)
            tracker._begin(None)
            try:
                return function(*args, **kwargs)
            finally:
                tracker._end()
                running.discard(thread)

        return run  # type: ignore[return-value]

    def _begin(self, frame: Optional[FrameType]) -> None:
        if self._ledger is not None:
            raise RuntimeError("this tracker runs already")
        device = _device(self._device)
        self._watch, self.rows, self._stack = _local.watch, [], []
        self._ledger = self._watch.add(self, device)
        self._ledger.sweep()
        self._ledger.name_kinds()
        self._known, self._version = set(self._ledger.alive.values()), self._ledger.version
        self._allocated, self._requested = _counters(self._ledger)
        if not callable(self._stream):
            name = torch.cuda.get_device_name(device) if device.type == "cuda" else \
                "no statistics of an allocator: the sum of the storages that are alive"
            unit = "M = 10^6 bytes" if self._unit == "M" else "MiB = 2^20 bytes"
            self._write(f"track: {device} ({name}), allocated {self._allocated / MIB:.1f} MiB; {unit}")
        if frame is not None:
            self._push(frame)
            self._watch.follow(frame)

    def _end(self) -> None:
        if self._ledger is None or self._watch is None:
            raise RuntimeError("this tracker does not run")
        watch, self._watch = self._watch, None
        if watch is not _local.watch:
            self._watch = watch
            raise RuntimeError("a tracker stops on the thread that started it")
        try:
            self._flush()
        finally:
            watch.remove(self)
            self._ledger = None
            self._known = set()
            self._stack = []

    def _write(self, text: str) -> None:
        stream: Any = self._stream
        print(text, file=stream)  # None: to stdout, if there is one

    # -- what the trace function sees

    def _enter(self, frame: FrameType) -> bool:
        """Whether a frame that begins is followed."""
        code = frame.f_code
        if code not in self._codes:
            if not 0 < len(self._stack) <= self._depth or not _users(code.co_filename):
                return False
        self._flush()
        self._push(frame)
        return True

    def _push(self, frame: FrameType) -> None:
        place = _Place(frame)
        self._stack.append(place)
        place.names = self._names(frame)

    def _line(self, frame: FrameType) -> None:
        if self._stack and self._stack[-1].frame is frame:
            self._flush()
            self._stack[-1].line = frame.f_lineno

    def _leave(self, frame: FrameType) -> None:
        if self._stack and self._stack[-1].frame is frame:
            self._flush()
            self._stack.pop()

    def _names(self, frame: FrameType) -> Dict[str, _Entry]:
        """The variables that are tensors on the device."""
        entries = {name: self._ledger.entry(value) for name, value in list(frame.f_locals.items())
                   if issubclass(type(value), torch.Tensor)} if self._ledger else {}
        return {name: entry for name, entry in entries.items() if entry is not None}

    # -- what has changed

    def _flush(self) -> None:
        """Gives what has changed since the last time to the line that ran."""
        ledger = self._ledger
        if ledger is None:
            return
        # First: until 3.12, f_locals of a function is a copy, which has the old values until it is asked for.
        names = self._names(self._stack[-1].frame) if self._stack else {}
        ledger.sweep()
        allocated, requested = _counters(ledger)
        change, asked = allocated - self._allocated, requested - self._requested
        rows: List[Row] = []
        if ledger.version != self._version:
            ledger.name_kinds()
            alive = set(ledger.alive.values())
            rows = _rows_of(alive - self._known, self._known - alive)
            self._known = alive
        self._version, self._allocated, self._requested = ledger.version, allocated, requested
        other = asked - sum(row.bytes if row.sign == "+" else -row.bytes for row in rows)
        if other:
            rows.append(Row("+" if other > 0 else "-", 0, (), abs(other), "Other", ""))
        held = self._held(names) if self._stack else []
        sizes = [abs(change), *(row.bytes for row in rows), *(h.bytes for h in held)]
        if (rows or held or change) and max(sizes) >= self._least:
            self._tell(Line(*self._place(), allocated, change, tuple(rows), tuple(held)))

    def _held(self, names: Dict[str, _Entry]) -> List[Held]:
        """Names that no longer belong to a tensor here, which is alive."""
        ledger, place = self._ledger, self._stack[-1]
        before, place.names = place.names, names
        return [Held(name, entry.bytes, _holders(entry, ledger.device, place.frame))
                for name, entry in before.items()
                if name not in names and ledger and ledger.alive.get(entry.ref.cdata) is entry]

    def _place(self) -> Tuple[str, int, str]:
        if not self._stack:
            return "", 0, ""
        place = self._stack[-1]
        return os.path.basename(place.frame.f_code.co_filename), place.line, place.frame.f_code.co_name

    def _tell(self, line: Line) -> None:
        self.rows.append(line)
        if callable(self._stream):
            self._stream(line)
        else:
            self._write(line.text(self._unit))

    def __str__(self) -> str:
        return "\n".join(line.text(self._unit) for line in self.rows)


def _rows_of(born: Iterable[_Entry], gone: Iterable[_Entry]) -> List[Row]:
    """Tensors of a kind together; those that only took the place of others are left out."""
    counts: Dict[Tuple[Tuple[int, ...], str, torch.dtype, int], int] = collections.defaultdict(int)
    for sign, entries in ((1, born), (-1, gone)):
        for e in entries:
            counts[e.shape, e.kind, e.dtype, e.bytes] += sign
    rows = [Row("+" if n > 0 else "-", abs(n), shape, abs(n) * size, kind, dtype_word(dtype))
            for (shape, kind, dtype, size), n in counts.items() if n and size]
    return sorted(rows, key=lambda row: (row.sign, -row.bytes, row.shape))


def _code_of(function: Callable[..., Any]) -> CodeType:
    code = getattr(inspect.unwrap(function), "__code__", None)
    if not isinstance(code, CodeType):
        raise TypeError(f"{function!r} has no lines to follow")
    return code


def _device(device: Union[torch.device, str, int, None]) -> torch.device:
    """With its number, as storages have it."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    found: torch.device = torch.device(device)
    if found.type == "cuda" and found.index is None:
        found = torch.device("cuda", torch.cuda.current_device())
    if found.type not in ("cuda", "cpu"):
        raise ValueError(f"the device is a GPU ('cuda') or 'cpu', not '{found}'")
    return found


def track(stream: Union[TextIO, Callable[[Line], object], None] = None, *,
          device: Union[torch.device, str, int, None] = None, functions: Iterable[Callable[..., Any]] = (),
          depth: int = 0, least: int = 0, unit: str = "M") -> Tracker:
    """Says after each line by how much the memory has changed, and by which tensors.

        with plimsoll.track():          # the lines of this block
            ...

        @plimsoll.track()               # the lines of this function
        def step(): ...

        t = plimsoll.track().start()    # the lines of this function, from here
        ...                             # to there
        t.stop()

    stream     where the text goes (standard output), or a function that gets each Line
    device     the current GPU, or the CPU where there is none
    functions  other functions to follow, wherever they are called: [Net.forward]
    depth      how many levels of your own functions are followed below: their lines are then told apart
    least      changes of fewer bytes are left out
    unit       of the rows: "M", 10^6 bytes, or "MiB", 2^20 bytes

    `rows` of what it returns has all Lines.
    """
    return Tracker(stream, None if device is None else _device(device), functions, depth, least, unit)


# -- summary


class SizeClass(NamedTuple):
    """Requests of one of the allocator's two sizes, which have segments of their own."""

    name: str
    blocks: int
    """That are allocated."""
    allocated: int
    free: int
    """Bytes of free blocks within its segments."""
    largest_free: int


class Summary(NamedTuple):
    """The memory of a device now.  Sizes are bytes; None: the device keeps no such statistics."""

    device: str
    name: str
    total: Optional[int]
    """Of the card."""
    free: Optional[int]
    """On the card, for this process and others."""
    allocated: int
    reserved: Optional[int]
    peak_allocated: Optional[int]
    peak_reserved: Optional[int]
    retries: Optional[int]
    """How often the allocator gave its free blocks back and asked again."""
    classes: Tuple[SizeClass, ...]
    kinds: Dict[str, Tuple[int, int]]
    """Tensors and bytes: Parameter, Gradient, ...; Other: in no tensor that Python shows, such as those that
    the autograd graph saved, and workspaces."""

    @property
    def free_inside(self) -> int:
        """Bytes that are reserved and free: a request can use them if a block is large enough."""
        return sum(c.free for c in self.classes)

    @property
    def largest_free(self) -> int:
        """The largest of these blocks."""
        return max((c.largest_free for c in self.classes), default=0)

    def __str__(self) -> str:
        lines = [f"{self.name} ({self.device})" + (f", {_mib(self.total)}" if self.total is not None else "")]
        if self.reserved is None:
            lines.append(f"  allocated    {_mib(self.allocated):>12}  in tensors; the allocator keeps no statistics")
        else:
            lines += [f"  allocated    {_mib(self.allocated):>12}  peak {_mib(self.peak_allocated)}",
                      f"  reserved     {_mib(self.reserved):>12}  peak {_mib(self.peak_reserved)}",
                      f"  free inside  {_mib(self.free_inside):>12}  largest block {_mib(self.largest_free)}",
                      f"  free on card {_mib(self.free):>12}",
                      f"  retries      {self.retries:>12}",
                      "", "  requests          blocks     allocated   free inside  largest free"]
            lines += [f"  {c.name:<16}{c.blocks:>8}  {_mib(c.allocated):>12}  {_mib(c.free):>12}  "
                      f"{_mib(c.largest_free):>12}" for c in self.classes]
        lines += ["", "  kind             tensors     allocated"]
        lines += [f"  {kind:<16}{n or '':>8}  {_mib(size):>12}" for kind, (n, size) in self.kinds.items()]
        return "\n".join(lines)


def _mib(size: Optional[int]) -> str:
    return "unknown" if size is None else f"{size / MIB:,.1f} MiB" if size >= MIB / 20 or not size else f"{size:,d} B"


def _kinds(ledger: _Ledger, requested: int) -> Dict[str, Tuple[int, int]]:
    ledger.look()
    ledger.name_kinds()
    kinds: Dict[str, Tuple[int, int]] = {}
    for e in ledger.alive.values():
        n, size = kinds.get(e.kind, (0, 0))
        kinds[e.kind] = n + 1, size + e.bytes
    kinds = dict(sorted(kinds.items(), key=lambda item: -item[1][1]))
    other = requested - sum(size for _, size in kinds.values())
    if other > 0:
        kinds["Other"] = 0, other
    return kinds


def summary(device: Union[torch.device, str, int, None] = None) -> Summary:
    """What torch.cuda.memory_summary says, for reading: what is allocated, reserved and free, and for what.

    The current GPU, real or pretended, or the CPU where there is none.
    """
    ledger = _Ledger(_device(device))
    allocated, requested = _counters(ledger)
    kinds = _kinds(ledger, requested)
    if ledger.device.type != "cuda":
        return Summary("cpu", "CPU", None, None, ledger.total(), None, None, None, None, (), kinds)
    stats = torch.cuda.memory_stats(ledger.device)
    free, total = torch.cuda.mem_get_info(ledger.device)
    blocks = [(segment["segment_type"], block) for segment in torch.cuda.memory_snapshot()
              if segment["device"] == ledger.device.index for block in segment["blocks"]]
    classes = []
    for kind, name in (("small", "up to 1 MiB"), ("large", "larger")):
        gaps = [block["size"] for k, block in blocks if k == kind and block["state"] == "inactive"]
        classes.append(SizeClass(name, stats[f"allocation.{kind}_pool.current"],
                                 stats[f"allocated_bytes.{kind}_pool.current"], sum(gaps), max(gaps, default=0)))
    return Summary(str(ledger.device), torch.cuda.get_device_name(ledger.device), total, free, allocated,
                   stats["reserved_bytes.all.current"], stats["allocated_bytes.all.peak"],
                   stats["reserved_bytes.all.peak"], stats["num_alloc_retries"], tuple(classes), kinds)
