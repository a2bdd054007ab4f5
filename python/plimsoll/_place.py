"""_place.py -- where the library and the program are.

The command `plimsoll` starts a Python only to find the program, so this imports next to nothing.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as in typing, which takes longer to import than all else here
if TYPE_CHECKING:
    from typing import Iterator, Sequence


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


def library() -> str:
    """The path of the library."""
    found = next(filter(os.path.exists, _places()), None)
    if found is None:
        raise ImportError("libplimsoll was not found: it is neither in the package nor in the build folder of a "
                          "checkout ('make' builds it there); $PLIMSOLL_LIBRARY may name it")
    return os.path.abspath(found)


def program() -> str:
    """The path of the program: next to the library in a checkout's build folder, or in the package.

    The library's folder comes first: above a build folder, as in /tmp/bin, the program may be another user's.
    """
    name = "plimsoll.exe" if sys.platform == "win32" else "plimsoll"
    folder = os.path.dirname(library())
    for place in (os.path.join(folder, name), os.path.join(os.path.dirname(folder), "bin", name)):
        if os.path.isfile(place):
            return place
    raise FileNotFoundError(f"the program was not found next to {library()}: the installation is incomplete")
