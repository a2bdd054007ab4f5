"""_results.py -- answers: what the library returned, as text and as attributes.

An answer holds the library's result.  Its text is rendered when it is asked for; its data are
read from the library's JSON once, when an attribute is first used.
"""

from __future__ import annotations

import ctypes
import json
import keyword
from typing import TYPE_CHECKING, Any, Dict, Optional

from . import _library
from ._library import Handle, Style


class Record:
    """An object of the JSON: its members are attributes ("class" is class_)."""

    def __init__(self, data: Dict[str, Any]) -> None:
        for key, value in data.items():
            setattr(self, key + "_" * keyword.iskeyword(key), _record_of(value))

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{k}={v!r}' for k, v in vars(self).items())})"


def _record_of(value: Any) -> Any:
    if isinstance(value, dict):
        return Record(value)
    return [_record_of(x) for x in value] if isinstance(value, list) else value


class Result:
    """What all answers have."""

    _print = ""  # the function that renders it

    def __init__(self, handle: Handle) -> None:
        self._handle = handle
        self._dict: Optional[Dict[str, Any]] = None

    def _render(self, how: int, style: Optional[Style] = None) -> str:
        st = None if style is None else ctypes.byref(style)
        return _library.collect(self._print, self._handle.pointer, how, st)

    def text(self, **style: Any) -> str:
        """As the program prints it; `style` has the fields of plim_style: width, top, depth, si, ascii, color, ..."""
        texts = {k: v.encode() if isinstance(v, str) else v for k, v in style.items()}
        return self._render(_library.TEXT, Style(size=ctypes.sizeof(Style), **texts))

    def to_dict(self) -> Dict[str, Any]:
        """The JSON of docs/json.md."""
        if self._dict is None:
            self._dict = json.loads(self._render(_library.JSON))
        return self._dict

    def __str__(self) -> str:
        return self.text().rstrip("\n")

    if not TYPE_CHECKING:
        def __getattr__(self, name: str) -> Any:
            if name.startswith("_") or name not in self.to_dict():
                raise AttributeError(f"{type(self).__name__!r} has no attribute {name!r}")
            value = _record_of(self.to_dict()[name])
            setattr(self, name, value)
            return value


class Estimate(Result):
    """The memory of a run: plimsoll/estimate/1."""

    _print = "plim_estimate_print"
    memory: Any
    fit: Any

    @property
    def fits(self) -> Optional[bool]:
        """Whether it fits on the card; None: it may or may not, or no card was chosen (`fit.fits` says which)."""
        return {"yes": True, "no": False}.get(self.to_dict()["fit"]["fits"])
