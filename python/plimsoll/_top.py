"""_top.py -- plimsoll.top: the GPUs of this machine, as they are now.

The program reads them, in a process of its own: a driver's library stays out of this one.
"""

from __future__ import annotations

import json
import subprocess
from typing import Optional

from ._errors import of_program
from ._place import program
from ._records import TopReport


def top(ticks: int = 1, interval: Optional[float] = None) -> TopReport:
    """The GPUs of this machine, how full they are, and the processes that have their memory.

    With several `ticks`, readings `interval` seconds apart, `peak` and `growth_per_s` are over them.
    Without a GPU `devices` is empty, and `looked` says where one was looked for.
    """
    words = [program(), "top", "--once", "--json", "--ticks", str(ticks)]
    if interval is not None:
        words += ["--interval", str(interval)]
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                          check=False)
    if not done.stdout:
        raise of_program(done.returncode, done.stderr, f"'plimsoll top' ended with exit status {done.returncode}")
    return TopReport(json.loads(done.stdout))
