"""notebook.py -- %load_ext plimsoll, and then %%plimsoll --gpu t4: a cell on the pretend GPU.

The cell runs in a fresh process, as `plimsoll run` runs a script, after the cells that ran before
it: this Python has its torch already, and no card could be pretended to it.  The line takes the
options of `plimsoll run`.  Lines are reported as cell_3.py:2, line 2 of the third cell.

The cells before it are those that ended without an error, each once: one that ran again counts
with its last text.  Lines for IPython itself (%matplotlib, !pip) are left out, and so are whole
cells for another magic, but not those of %%time and %%capture.
"""

from __future__ import annotations

import ast
import os
import re
import shlex
import subprocess
import sys
import tempfile
from typing import Any, Dict, List, Sequence

from ._place import program

_MAIN = """\
import linecache
import os
import sys
sys.path[0] = os.getcwd()
for i, cell in enumerate({cells!r}, 1):
    linecache.cache[f"cell_{{i}}.py"] = len(cell), None, cell.splitlines(keepends=True), f"cell_{{i}}.py"
    exec(compile(cell, f"cell_{{i}}.py", "exec"), globals())
"""
_LINE_MAGIC = re.compile(r"^(\s*)([%!].*|[\w.]+\?{1,2})$", re.M)
_CELL_MAGIC = re.compile(r"\s*%%(\w*)[^\n]*\n?")
_TRANSPARENT = ("time", "capture")  # magics whose cell is Python that counts


def plain(cell: str) -> str:
    """The Python of a cell, with as many lines; "": none."""
    magic = _CELL_MAGIC.match(cell)
    if magic:
        if magic.group(1) not in _TRANSPARENT:
            return ""
        cell = "\n" * magic.group().count("\n") + cell[magic.end():]
    try:
        ast.parse(cell)
        return cell
    except SyntaxError:
        return _LINE_MAGIC.sub(r"\1pass", cell)


def run_cell(line: str, before: Sequence[str], cell: str) -> int:
    """Runs a cell after others on the pretend GPU, with the options of a line; prints what it prints, then the
    report.  Returns the exit status of `plimsoll run`."""
    cells = [*map(plain, before), plain(cell)]
    with tempfile.TemporaryDirectory(prefix="plimsoll-") as folder:
        main = os.path.join(folder, "notebook.py")
        with open(main, "w", encoding="utf-8") as f:
            f.write(_MAIN.format(cells=cells))
        command = [program(), "run", *shlex.split(line), "--", sys.executable, main]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, encoding="utf-8",
                              errors="replace", env={**os.environ, "PYTHONIOENCODING": "utf-8"}) as process:
            assert process.stdout is not None
            try:
                for text in process.stdout:  # a notebook's sys.stdout is not a file
                    sys.stdout.write(text)
            except KeyboardInterrupt:
                process.terminate()
                raise
        return process.returncode


class Cells:
    """The cells of a session that ran without an error."""

    def __init__(self, shell: Any) -> None:
        history: Sequence[str] = shell.user_ns.get("In", [])
        self._cells: Dict[Any, str] = dict(enumerate(history[1:-1]))  # without the one that loads us

    def ran(self, result: Any) -> None:
        """IPython's event post_run_cell."""
        info = result.info
        if result.success and info is not None and info.raw_cell and info.store_history:
            self._cells[getattr(info, "cell_id", None) or len(self._cells)] = info.raw_cell

    def texts(self) -> List[str]:
        return list(self._cells.values())


def load(shell: Any) -> None:
    """%load_ext plimsoll"""
    cells = Cells(shell)

    def magic(line: str, cell: str) -> None:
        run_cell(line, cells.texts(), cell)

    shell.events.register("post_run_cell", cells.ran)
    shell.register_magic_function(magic, magic_kind="cell", magic_name="plimsoll")
