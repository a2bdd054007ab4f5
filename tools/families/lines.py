"""lines.py -- what C builds of a family, a line for each parameter and op; needs no PyTorch."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
import zlib
from typing import Any, Dict, List, Tuple

# Ops that do the same, with the dtype as an argument or from a tensor.
SAME = {"aten.to.dtype": "cast", "aten.to.dtype_layout": "cast", "aten.to.device": "cast", "aten._to_copy.default": "cast",
        "aten.type_as.default": "cast", "aten.zeros.default": "zeros", "aten.new_zeros.default": "zeros",
        "aten.ones.default": "ones", "aten.new_ones.default": "ones", "aten.empty.memory_format": "empty",
        "aten.new_empty.default": "empty", "aten.full.default": "full", "aten.new_full.default": "full"}


def built(program: str, text: str, keys: Dict[str, Any], how: Dict[str, Any]) -> Tuple[List[str], str]:
    """What C builds, and why it does not."""
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "config.json")
        with open(path, "w") as f:
            json.dump(keys, f)
        words = [program, text, path, how["$dtype"], str(how["B"]), str(how["S"])] + \
            [w for w in ("train", "cache") if how["$" + w]] + ["eager"] * (how["$attention"] == "eager")
        words += [f"{how.get('$height', 0)}x{how.get('$width', 0)}"] if {'$height', '$width'} & set(how) else []
        words += [f"images={how['$images']}"] if "$images" in how else []
        words += [f"frames={how['$frames']}"] if "$frames" in how else []
        done = subprocess.run(words, capture_output=True, text=True)
    lines = []
    for line in done.stdout.splitlines():
        first, _, rest = line.partition(" ")
        if first != "plimsoll.held.default":  # a variable that ends is no op
            lines.append(f"{SAME.get(first, first)} {rest}".rstrip())
    return lines, done.stderr.strip() or (f"exit {done.returncode}" if done.returncode else "")


def crc32(lines: List[str]) -> int:
    return zlib.crc32("\n".join(lines).encode())
