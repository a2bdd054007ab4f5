"""python -m plimsoll: the program."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import List, NoReturn, Optional

from . import _library


def program() -> str:
    """The path of the program: in the package, or beside the library in a checkout's build folder."""
    name = "plimsoll.exe" if sys.platform == "win32" else "plimsoll"
    beside = os.path.dirname(_library.path())
    for place in (os.path.join(os.path.dirname(beside), "bin", name), os.path.join(beside, name)):
        if os.path.exists(place):
            return place
    raise FileNotFoundError(f"the program was not found beside {_library.path()}: the installation is incomplete")


def main(arguments: Optional[List[str]] = None) -> NoReturn:
    """Becomes the program."""
    command = [program(), *(sys.argv[1:] if arguments is None else arguments)]
    if sys.platform == "win32":  # whose execv does not wait
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
