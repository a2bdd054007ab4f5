"""_library.py -- the C functions of libplimsoll: finds the library, and calls it.

What a function takes and returns, and which errors it has, is said in plimsoll.h.  The library
has no global state that changes, and ctypes releases Python's lock during a call, so threads may
call it at once.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
from typing import Any, Iterator, List, Sequence

from ._errors import error_of

TEXT, JSON, CSV, SVG = range(4)  # plim_render

PUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p)
HANDLE = ctypes.c_void_p


class Err(ctypes.Structure):
    """plim_err"""

    _fields_ = [("code", ctypes.c_int), ("at", ctypes.c_uint64), ("msg", ctypes.c_char * 256)]


class Style(ctypes.Structure):
    """plim_style"""

    _fields_ = [("size", ctypes.c_size_t), ("si", ctypes.c_bool), ("color", ctypes.c_bool), ("ascii", ctypes.c_bool),
                ("width", ctypes.c_int), ("top", ctypes.c_int), ("depth", ctypes.c_int), ("quiet", ctypes.c_bool),
                ("columns", ctypes.c_char_p), ("types", ctypes.c_char_p), ("sort", ctypes.c_char_p),
                ("tensors", ctypes.c_bool)]


class SettingInfo(ctypes.Structure):
    """plim_setting_info"""

    _fields_ = [("size", ctypes.c_size_t), ("key", ctypes.c_char_p), ("kind", ctypes.c_int), ("arg", ctypes.c_char_p),
                ("words", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64),
                ("preset", ctypes.c_char_p), ("group", ctypes.c_char_p), ("commands", ctypes.c_char_p),
                ("doc", ctypes.c_char_p)]


_OUT, _STYLE, _ERR = ctypes.POINTER(HANDLE), ctypes.POINTER(Style), ctypes.POINTER(Err)
_NAME, _COUNT, _ENUM = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int
_PRINT = (_ENUM, _STYLE, PUT, ctypes.c_void_p, _ERR)

# The functions that can fail, with what they take; the last argument is always the error.
_FALLIBLE = {
    "plim_model_open": (_NAME, _OUT, _ERR),
    "plim_model_open_bytes": (_NAME, ctypes.c_char_p, ctypes.c_uint64, _OUT, _ERR),
    "plim_settings_new": (_OUT, _ERR),
    "plim_settings_set": (HANDLE, _NAME, _NAME, _ERR),
    "plim_settings_add": (HANDLE, _NAME, _NAME, _ERR),
    "plim_estimate_run": (HANDLE, HANDLE, _OUT, _ERR),
    "plim_estimate_print": (HANDLE, *_PRINT),
}
# The others, with what they return.
_OTHERS = {
    "plim_version": (ctypes.c_char_p,),
    "plim_model_free": (None, HANDLE),
    "plim_model_name": (ctypes.c_char_p, HANDLE),
    "plim_model_format": (ctypes.c_char_p, HANDLE),
    "plim_settings_free": (None, HANDLE),
    "plim_settings_get": (ctypes.c_char_p, HANDLE, _NAME),
    "plim_settings_on_progress": (None, HANDLE, PROGRESS, ctypes.c_void_p),
    "plim_setting_at": (ctypes.c_bool, _COUNT, ctypes.POINTER(SettingInfo)),
    "plim_estimate_free": (None, HANDLE),
}


def _file_names() -> Sequence[str]:
    if sys.platform == "win32":
        return ("libplimsoll.dll", "plimsoll.dll")
    return ("libplimsoll.dylib",) if sys.platform == "darwin" else ("libplimsoll.so",)


def _places() -> Iterator[str]:
    """Where the library may be: what the environment says, the package's own, a checkout's build."""
    here = os.path.dirname(os.path.abspath(__file__))
    if os.environ.get("PLIMSOLL_LIBRARY"):
        yield os.environ["PLIMSOLL_LIBRARY"]
        return
    checkout = os.path.dirname(os.path.dirname(here))
    for folder in (("_dist", "lib"), ("_dist", "bin"), (checkout, "build")):
        for name in _file_names():
            yield os.path.join(here, *folder, name)


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libplimsoll, with the prototypes of its functions."""
    places = list(_places())
    path = next(filter(os.path.exists, places), None)
    if path is None:
        raise ImportError("libplimsoll was not found: it is neither in the package nor in the build folder of a "
                          "checkout ('make' builds it there); $PLIMSOLL_LIBRARY may name it")
    lib = ctypes.CDLL(path)
    for name, takes in _FALLIBLE.items():
        getattr(lib, name).argtypes = takes
    for name, (result, *arguments) in _OTHERS.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def call(name: str, *args: Any) -> None:
    """Calls a function that can fail; raises what it reports."""
    lib, err = library(), Err()
    status = getattr(lib, name)(*args, ctypes.byref(err))
    if status:
        message = err.msg.decode("utf-8", "replace")
        raise error_of(status, message or name, err.at)


def collect(name: str, *args: Any) -> str:
    """Calls a function that passes text to a plim_put; returns the text."""
    pieces: List[bytes] = []

    @PUT
    def put(_: Any, text: int, n: int) -> int:
        pieces.append(ctypes.string_at(text, n))
        return 0

    call(name, *args, put, None)
    return b"".join(pieces).decode("utf-8", "replace")


class Handle:
    """Something of the library's that has to be released: a model, settings, a result."""

    def __init__(self, make: str, free: str, *args: Any) -> None:
        self._free = getattr(library(), free)
        self.pointer = HANDLE()
        call(make, *args, ctypes.byref(self.pointer))

    def __del__(self) -> None:
        if getattr(self, "pointer", None):
            self._free(self.pointer)


def version() -> str:
    text: bytes = library().plim_version()
    return text.decode()
