"""machines.py -- the files of a machine that does not exist: /proc, /sys, /etc."""

import pathlib
import re

ROOTS = pathlib.Path(__file__).resolve().parent / "roots"


def write_root(name, folder):
    """Writes roots/NAME.txt as files: one after each '== PATH'; '\\0' stands for a NUL."""
    text = (ROOTS / f"{name}.txt").read_text(encoding="utf-8")
    for part in re.split(r"^== ", text, flags=re.M)[1:]:
        path, _, body = part.partition("\n")
        path = folder / path
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body.replace("\\0\n", "\0").replace("\\0", "\0").encode())
