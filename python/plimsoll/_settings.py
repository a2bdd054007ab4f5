"""_settings.py -- keyword arguments as the library's settings.

Which settings there are, what they mean and which command takes them is asked of the library
(plim_setting_at); nothing of it is written down here.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, Iterator, Mapping, NamedTuple, Optional, Tuple

from . import _library
from ._errors import UsageError
from ._library import Handle, SettingInfo

_KINDS = ("flag", "int", "size", "fraction", "word", "text", "list")  # plim_setting_kind


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


def _shown(value: Any) -> str:
    """A value as the library reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, (tuple, list)):
        return ",".join(map(_shown, value))
    return str(value)


def _items(setting: Setting, value: Any) -> Iterator[str]:
    """The items of a list: a shape, a name with a value, or several of them."""
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield f"{name}={_shown(one)}"
    elif isinstance(value, (tuple, list)) and not all(isinstance(x, int) for x in value):
        for one in value:
            yield _shown(one)
    else:
        yield _shown(value)


class Settings:
    """The settings of one call."""

    def __init__(self, command: str, given: Mapping[str, Any]) -> None:
        self.handle = Handle("plim_settings_new", "plim_settings_free")
        for key, value in given.items():
            if value is not None:
                self._set(command, key, value)

    def _set(self, command: str, key: str, value: Any) -> None:
        setting = all_settings().get(key)
        if setting and command not in setting.commands:
            raise UsageError(f"'{command}' has no setting '{key}'")
        if setting and setting.kind == "list":
            for item in _items(setting, value):
                _library.call("plim_settings_add", self.handle.pointer, key.encode(), item.encode())
        else:  # the library says what is wrong with a key that it does not know
            _library.call("plim_settings_set", self.handle.pointer, key.encode(), _shown(value).encode())
