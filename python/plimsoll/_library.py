"""_library.py -- the C functions of libplimsoll: finds the library, and calls it.

What a function takes and returns, and which errors it has, is said in plimsoll.h.  The library
has no global state that changes, and ctypes releases Python's lock during a call, so threads may
call it at once.
"""

from __future__ import annotations

import ctypes
import functools
from typing import Any, Dict, List, Tuple

from ._errors import UsageError, error_of
from ._place import library as path

PUT = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)
PROGRESS = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.c_uint32, ctypes.c_uint32, ctypes.c_char_p)
HANDLE = ctypes.c_void_p


class Render:
    c_prefix = "PLIM_"
    TEXT, JSON, CSV, SVG, MD = range(5)


class Registry:
    c_prefix = "PLIM_REG_"
    (MODELS, OPS, OPTIMIZERS, PROFILES, FORMATS, GPUS, DTYPES, ALLOCATORS, ENGINES, STRATEGIES, ADAPTERS, QUANTIZATIONS, LOOPS,
     LOSSES) = range(14)


class SettingKind:
    c_prefix = "PLIM_SETTING_"
    FLAG, INT, SIZE, FRACTION, WORD, TEXT, LIST = range(7)


# tools/abi.py compares the classes above and the structures below with plimsoll.h.


class Err(ctypes.Structure):
    c_type = "plim_err"
    _fields_ = [("code", ctypes.c_int), ("at", ctypes.c_uint64), ("msg", ctypes.c_char * 256)]


class Style(ctypes.Structure):
    c_type = "plim_style"
    _fields_ = [("size", ctypes.c_size_t), ("si", ctypes.c_bool), ("color", ctypes.c_bool), ("ascii", ctypes.c_bool),
                ("width", ctypes.c_int), ("top", ctypes.c_int), ("depth", ctypes.c_int), ("quiet", ctypes.c_bool),
                ("columns", ctypes.c_char_p), ("types", ctypes.c_char_p), ("sort", ctypes.c_char_p),
                ("tensors", ctypes.c_bool)]


class SettingInfo(ctypes.Structure):
    c_type = "plim_setting_info"
    _fields_ = [("size", ctypes.c_size_t), ("key", ctypes.c_char_p), ("kind", ctypes.c_int), ("arg", ctypes.c_char_p),
                ("words", ctypes.c_char_p), ("least", ctypes.c_int64), ("most", ctypes.c_int64),
                ("preset", ctypes.c_char_p), ("group", ctypes.c_char_p), ("commands", ctypes.c_char_p),
                ("doc", ctypes.c_char_p), ("list", ctypes.c_char_p)]


_OUT, _STYLE, _ERR = ctypes.POINTER(HANDLE), ctypes.POINTER(Style), ctypes.POINTER(Err)
_NAME, _COUNT, _ENUM, _STATUS = ctypes.c_char_p, ctypes.c_uint32, ctypes.c_int, ctypes.c_int
_PRINT = (_ENUM, _STYLE, PUT, ctypes.c_void_p, _ERR)

# The functions: what each returns, and what it takes.
PROTOTYPES: Dict[str, Tuple[Any, ...]] = {
    "plim_version": (ctypes.c_char_p,),
    "plim_limit_memory": (None, ctypes.c_uint64),
    "plim_size_parse": (_STATUS, _NAME, ctypes.POINTER(ctypes.c_uint64), _ERR),
    "plim_status_name": (ctypes.c_char_p, _ENUM),
    "plim_model_fetch": (_STATUS, _NAME, HANDLE, ctypes.c_bool, _ERR),
    "plim_model_open": (_STATUS, _NAME, _OUT, _ERR),
    "plim_model_open_bytes": (_STATUS, _NAME, ctypes.c_char_p, ctypes.c_uint64, _OUT, _ERR),
    "plim_model_free": (None, HANDLE),
    "plim_model_name": (ctypes.c_char_p, HANDLE),
    "plim_model_format": (ctypes.c_char_p, HANDLE),
    "plim_model_check": (_STATUS, HANDLE, _ERR),
    "plim_settings_new": (_STATUS, _OUT, _ERR),
    "plim_settings_free": (None, HANDLE),
    "plim_settings_set": (_STATUS, HANDLE, _NAME, _NAME, _ERR),
    "plim_settings_add": (_STATUS, HANDLE, _NAME, _NAME, _ERR),
    "plim_settings_on_progress": (None, HANDLE, PROGRESS, ctypes.c_void_p),
    "plim_setting_at": (ctypes.c_bool, _COUNT, ctypes.POINTER(SettingInfo)),
    "plim_replay_run": (_STATUS, _NAME, HANDLE, _OUT, _ERR),
    "plim_diff_run": (_STATUS, _NAME, HANDLE, _NAME, HANDLE, HANDLE, _OUT, _ERR),
    "plim_oom_read": (_STATUS, ctypes.c_char_p, ctypes.c_size_t, _OUT, _ERR),
    "plim_oom_load": (_STATUS, _NAME, _OUT, _ERR),
    "plim_tape_print": (_STATUS, HANDLE, HANDLE, ctypes.c_bool, PUT, ctypes.c_void_p, _ERR),
    "plim_compare_print": (_STATUS, ctypes.POINTER(HANDLE), _COUNT, *_PRINT),
    "plim_registry_print": (_STATUS, _ENUM, _NAME, *_PRINT),
    "plim_size_print": (_STATUS, _NAME, *_PRINT),
}
for _result in ("estimate", "layers", "fit", "batches", "segments", "times", "info", "cards", "serve", "serve_fit"):
    PROTOTYPES[f"plim_{_result}_run"] = (_STATUS, HANDLE, HANDLE, _OUT, _ERR)
for _result in ("estimate", "layers", "fit", "batches", "segments", "times", "info", "cards", "serve", "serve_fit", "replay", "diff", "oom"):
    PROTOTYPES[f"plim_{_result}_print"] = (_STATUS, HANDLE, *_PRINT)
    PROTOTYPES[f"plim_{_result}_free"] = (None, HANDLE)


@functools.lru_cache(maxsize=None)
def library() -> ctypes.CDLL:
    """libplimsoll, with the prototypes of its functions."""
    lib = ctypes.CDLL(path())
    for name, (result, *arguments) in PROTOTYPES.items():
        function = getattr(lib, name)
        function.restype, function.argtypes = result, arguments
    return lib


def encoded(text: str) -> bytes:
    """A string for C, which ends at the first NUL: a text with one would be another there."""
    if "\0" in text:
        raise UsageError(f"{text!r} has a null character")
    return text.encode("utf-8", "surrogateescape")  # a file may have a name that is not UTF-8


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

    def put(_: Any, text: int, n: int) -> int:
        pieces.append(ctypes.string_at(text, n))
        return 0

    call(name, *args, PUT(put), None)
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
