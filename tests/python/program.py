"""What the tests share: the program, whose answers the package has to give too."""
import os
import pathlib
import subprocess

DATA = pathlib.Path(__file__).resolve().parent.parent / "data"


def program(*args, code=0):
    """What the program prints; it has to exit with `code`, or 1, which says no."""
    done = subprocess.run([os.environ["PLIMSOLL_PROGRAM"], *map(str, args)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8", env={**os.environ, "COLUMNS": "80"})
    if done.returncode not in (code, 1):
        raise AssertionError(f"{args}: exit {done.returncode}: {done.stderr}")
    return done.stdout if code == 0 else done.stderr
