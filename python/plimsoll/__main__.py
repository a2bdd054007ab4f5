"""python -m plimsoll: the program."""

from __future__ import annotations

import os
import sys

from ._place import TYPE_CHECKING, program

if TYPE_CHECKING:
    from typing import NoReturn, Optional


def main(arguments: Optional[list[str]] = None) -> NoReturn:
    """Becomes the program."""
    command = [program(), *(sys.argv[1:] if arguments is None else arguments)]
    if sys.platform == "win32":  # whose execv does not wait
        import subprocess
        sys.exit(subprocess.run(command).returncode)
    os.execv(command[0], command)


if __name__ == "__main__":
    main()
