"""_settings.py -- keyword arguments as the library's settings.

Which settings there are, what they mean and which command takes them is asked of the library
(plim_setting_at); nothing of it is written down here.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import signal
import threading
from typing import Any, Callable, Dict, List, Iterator, Mapping, NamedTuple, Optional, Tuple

from . import _library
from ._errors import CanceledError, UsageError
from ._library import PROGRESS, Handle, SettingInfo, SettingKind, encoded

Progress = Callable[[int, int, str], object]
"""Is told how many parts of a long call are done, of how many (0: not known), and what comes next."""

_KINDS = {number: name.lower() for name, number in vars(SettingKind).items() if name.isupper()}


class Setting(NamedTuple):
    """A setting: what its value may be, and what it means."""

    key: str
    kind: str
    """flag, int, size, fraction, word, text, or list"""
    words: Tuple[str, ...]
    """The values of a word."""
    least: int
    most: int
    """The bounds of an int; `least` also that of a size."""
    preset: Optional[str]
    """The value if it is not set; None: it depends, as `doc` says."""
    group: str
    commands: Tuple[str, ...]
    """The functions that take it."""
    doc: str


def _text(value: Optional[bytes]) -> str:
    return value.decode() if value else ""


def _rows() -> Iterator[Setting]:
    row, i = SettingInfo(size=ctypes.sizeof(SettingInfo)), 0
    while _library.library().plim_setting_at(i, ctypes.byref(row)):
        yield Setting(_text(row.key), _KINDS[row.kind], tuple(_text(row.words).split()), row.least, row.most,
                      None if row.preset is None else _text(row.preset), _text(row.group),
                      tuple(_text(row.commands).split()), _text(row.doc))
        i += 1


@functools.lru_cache(maxsize=None)
def all_settings() -> Dict[str, Setting]:
    return {row.key: row for row in _rows()}


@functools.lru_cache(maxsize=None)
def _dtypes() -> Dict[str, str]:
    """The library's names of PyTorch's data types."""
    size = json.loads(_library.collect("plim_size_print", b"1", _library.Render.JSON, None))
    return {row["torch"]: row["dtype"] for row in size["dtypes"]}


@functools.lru_cache(maxsize=None)
def _optimizers() -> Dict[str, str]:
    """The library's names of optimizers: "sparseadam" is sparse_adam."""
    known = json.loads(_library.collect("plim_registry_print", _library.Registry.OPTIMIZERS, None,
                                        _library.Render.JSON, None))
    return {row["name"].replace("_", ""): row["name"] for row in known["optimizers"]}


def _optimizer(value: Any) -> str:
    """An optimizer of torch.optim, as it was made: "adamw,weight_decay=0.1,impl=fused"."""
    import inspect

    kind = type(value)
    if not f"{kind.__module__}.".startswith("torch.optim."):
        raise UsageError(f"'{kind.__name__}' is not of torch.optim: name one of plimsoll.optimizers()")
    options = {k: v for k, v in value.defaults.items() if k in inspect.signature(kind).parameters}
    how = {"fused": options.pop("fused", None), "foreach": options.pop("foreach", None)}
    impl = next((name for name, chosen in how.items() if chosen), "forloop" if how["foreach"] is False else None)
    if not options.get("differentiable"):  # the library does not know it
        options.pop("differentiable", None)
    words = [_optimizers().get(kind.__name__.lower(), kind.__name__)]
    words += [f"{k}={v:d}" if isinstance(v, int) else f"{k}={v!r}" for k, v in options.items()
              if isinstance(v, (int, float))]
    return ",".join(words + [f"impl={impl}"] * bool(impl))


def shown(value: Any) -> str:
    """A value as the library reads it."""
    if hasattr(value, "param_groups"):
        return _optimizer(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if type(value).__module__ == "torch" and type(value).__name__ == "dtype":
        return _dtypes().get(str(value), str(value))
    if isinstance(value, (tuple, list)):
        return ",".join(map(shown, value))
    return str(value)


def items(value: Any) -> Iterator[str]:
    """The items of a list: a shape, a name with a value, or several of them."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield f"{name}={shown(one)}"
    elif isinstance(value, (tuple, list)) and not all(hasattr(x, "__index__") for x in value):
        for one in value:
            yield shown(one)
    else:
        yield shown(value)


class Settings:
    """The settings of one call."""

    def __init__(self, command: str, given: Mapping[str, Any]) -> None:
        self.handle = Handle("plim_settings_new", "plim_settings_free")
        for key, value in given.items():
            setting = all_settings().get(key)
            if setting and command not in setting.commands:
                raise UsageError(f"'{command}' has no setting '{key}'")
            if value is not None:
                self.set(key, value)

    def set(self, key: str, value: Any) -> None:
        setting = all_settings().get(key)
        if setting and setting.kind == "list":
            for item in items(value):
                _library.call("plim_settings_add", self.handle.pointer, encoded(key), encoded(item))
        else:  # the library says what is wrong with a key that it does not know
            _library.call("plim_settings_set", self.handle.pointer, encoded(key), encoded(shown(value)))

    def run(self, stem: str, subject: Any, progress: Optional[Progress]) -> Handle:
        """The result of plim_STEM_run with these settings, of one subject or a tuple of them.  An exception of `progress`, or Ctrl-C, ends the call."""
        raised: List[BaseException] = []  # no exception can pass through C

        def report(_: Any, done: int, total: int, what: bytes) -> int:
            try:
                if progress and not raised:
                    progress(done, total, what.decode("utf-8", "replace"))
            except BaseException as e:
                raised.append(e)
            return len(raised)

        callback, on_progress = PROGRESS(report), _library.library().plim_settings_on_progress
        on_progress(self.handle.pointer, callback, None)
        with _interrupts(raised):
            try:
                subjects = subject if isinstance(subject, tuple) else (subject,)
                return Handle(f"plim_{stem}_run", f"plim_{stem}_free", *subjects, self.handle.pointer)
            except CanceledError:
                raise raised[0] from None
            finally:
                on_progress(self.handle.pointer, PROGRESS(0), None)


@contextlib.contextmanager
def _interrupts(raised: List[BaseException]) -> Iterator[None]:
    """Notes a Ctrl-C in `raised` and raises it at the end: Python would drop it where C calls Python."""
    ours = (threading.current_thread() is threading.main_thread() and
            signal.getsignal(signal.SIGINT) is signal.default_int_handler)
    if not ours:
        yield
        return
    signal.signal(signal.SIGINT, lambda *_: raised.append(KeyboardInterrupt()))
    try:
        yield
        if raised:
            raise raised[0]
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
