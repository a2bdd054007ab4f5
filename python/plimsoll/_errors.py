"""_errors.py -- the library's errors as exceptions: one class for each status of plimsoll.h."""

from __future__ import annotations

from typing import Dict, Type


class Status:
    c_prefix = "PLIM_"  # tools/abi.py compares the numbers with plimsoll.h
    EFORMAT, EUNSUPPORTED, ESHAPE, ERANGE, ENOMEM, EIO, EDRIVER, EUSAGE, ECANCELED = range(-1, -10, -1)


class Error(Exception):
    """What the library reports: its message, code and place.

    Each status has a class of its own, which also derives from the Python exception that a caller would
    expect: a UsageError is a ValueError, a MissingFileError is a FileNotFoundError.
    """

    code = 0

    def __init__(self, message: str, code: int = 0, place: int = 0) -> None:
        super().__init__(message)
        self.message = message
        """One line, as the program prints it after "plimsoll: "."""
        self.code = code or type(self).code
        """The number of the status in plimsoll.h, such as -8 (PLIM_EUSAGE)."""
        self.place = place
        """The byte offset into the input, or an index; 0 where neither applies."""

    def __str__(self) -> str:
        return self.message

    def __reduce__(self) -> "tuple[object, ...]":
        return type(self), (self.message, self.code, self.place)


class FormatError(Error, ValueError):
    """A malformed file."""

    code = Status.EFORMAT


class UnsupportedError(Error, NotImplementedError):
    """Something that plimsoll does not support: a format, an op, a report without that rendering."""

    code = Status.EUNSUPPORTED


class ShapeError(Error, ValueError):
    """Shapes do not match."""

    code = Status.ESHAPE


class RangeError(Error, OverflowError):
    """A number is out of range."""

    code = Status.ERANGE


class NoMemoryError(Error, MemoryError):
    """The machine does not have enough memory for plimsoll's own tables."""

    code = Status.ENOMEM


class FileError(Error, OSError):
    """A file could not be read or written."""

    code = Status.EIO


class MissingFileError(FileError, FileNotFoundError):
    """There is no such file."""


class DriverError(Error, RuntimeError):
    """A driver reported an error."""

    code = Status.EDRIVER


class UsageError(Error, ValueError):
    """An invalid argument: an unknown model, setting or card, or an invalid value."""

    code = Status.EUSAGE


class CanceledError(Error):
    """The caller's progress function ended the call."""

    code = Status.ECANCELED


_CLASSES: Dict[int, Type[Error]] = {
    c.code: c for c in (FormatError, UnsupportedError, ShapeError, RangeError, NoMemoryError, FileError, DriverError,
                        UsageError, CanceledError)}

for _class in (Error, MissingFileError, *_CLASSES.values()):
    _class.__module__ = "plimsoll"  # as tracebacks and pickles name them


def error_of(code: int, message: str, place: int) -> Error:
    """The exception for a status of the library."""
    cls = _CLASSES.get(code, Error)
    if cls is FileError and message.endswith(": No such file or directory"):
        cls = MissingFileError
    return cls(message, code, place)


# ---- of the program --------------------------------------------------------------------------

SAYS = "plimsoll: "  # before its errors
_BY_STATUS = {2: UsageError, 3: UnsupportedError, 4: FileError}


def of_program(status: int, said: str, otherwise: str) -> Error:
    """The error that the program printed before it ended with this exit status."""
    if said.startswith(SAYS):
        return _BY_STATUS.get(status, Error)(said[len(SAYS):].rstrip("\n"))
    return Error(otherwise)
