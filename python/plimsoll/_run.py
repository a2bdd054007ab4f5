"""_run.py -- plimsoll.run: a command on the pretend GPU.

A process that has imported PyTorch already cannot be given a card, so that the command runs in one
of its own, as `plimsoll run` starts it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from typing import IO, Any, Dict, Iterator, List, Optional, Sequence, Union

from . import _library
from ._place import program
from ._errors import SAYS, Error, UnsupportedError, UsageError, of_program
from ._records import RunReport
from ._results import Result
from ._settings import shown

Word = Union[str, "os.PathLike[str]"]



class Run(Result, RunReport):
    """A command that ran on the pretend GPU.

    Its attributes are those of the process whose rank is the worst, or that came first, and of the
    fullest of its cards; `processes` has the report of each process and card.
    """

    _tables = {"lines": ("lines",), "phases": ("phases",), "cards": ("cards",)}

    def __init__(self, status: int, reports: str, text: str) -> None:
        self.status = status
        """The exit status of the command."""
        self._reports, self._shown = reports, text
        super().__init__(self._rendered)

    def _rendered(self, how: int, style: Any) -> str:
        if how == _library.Render.TEXT and style is None:
            return self._shown
        if how == _library.Render.JSON:
            return self._reports
        raise UnsupportedError("the report of a run is text or JSON; its style is that of the call: run(..., width=120)")

    def text(self, **style: Any) -> str:
        """As the program prints it, in the style that was given to run()."""
        return self._rendered(_library.Render.TEXT, style or None).rstrip("\n")

    def _objects(self) -> Iterator[Dict[str, Any]]:
        for line in self._reports.splitlines():
            report = json.loads(line)
            if report["schema"] == "plimsoll/machine/1":
                first = report["fullest"]
                for card in sorted(report["cards"], key=lambda card: bool(card["device"] != first)):
                    yield {"schema": "plimsoll/run/1", **card}
            else:
                yield report

    def to_dict(self) -> Dict[str, Any]:
        """The report of the worst process, and of the fullest of its cards."""
        if self._parsed is None:
            self._parsed = next(self._objects())
        return self._parsed

    @property
    def processes(self) -> List[RunReport]:
        return [RunReport(x) for x in self._objects()]

    @property
    def fits(self) -> Optional[bool]:
        """Whether it fits on the card it ran on.  None: it is not certain."""
        return {"yes": True, "no": False}.get(self.to_dict()["cards"][0]["fits"] or "")


def _options(given: Dict[str, Any]) -> List[str]:
    words: List[str] = []
    for key, value in given.items():
        if value is None or value is False:
            continue
        option = "--" + key.replace("_", "-")
        words += [option] if value is True else [option, shown(value)]
    return words


def _pass_on(stream: IO[str], echo: bool) -> str:
    """Prints what the command prints; returns the last line if it is plimsoll's own, which may be an error."""
    held = ""
    for line in stream:
        if echo:
            print(held, end="")  # nowhere, if there is no stdout
        held = line if line.startswith(SAYS) else ""
        if echo and not held:
            print(line, end="")
    return held


def run(*command: Word, gpu: Union[str, Sequence[str], None] = None, echo: bool = True,
        cwd: Optional[Word] = None, **options: Any) -> Run:
    """Runs a PyTorch script, unmodified, on a simulated GPU: run("train.py", "--epochs", "1", gpu="t4").

    `command` is the script and its arguments, for this Python, or any other command, in the folder
    `cwd`.  The options are those of `plimsoll run`: steps=3, limit=60, by="module", world=8,
    rank="all", ...; of several cards in `gpu` the largest is the one it runs on.  What the command
    prints is written to sys.stdout, unless `echo` is false.

    A command that fails, out of memory or otherwise, is not an error if it has used PyTorch: `status` is
    its exit status, and `end` says why it ended.
    """
    words = [os.fspath(word) for word in command]
    if not words:
        raise UsageError("'run' needs a command")
    if words[0].endswith(".py"):
        words.insert(0, sys.executable)
    # files without a name: nothing is left behind if this process is killed
    with tempfile.TemporaryFile("w+", encoding="utf-8") as reports, \
            tempfile.TemporaryFile("w+", encoding="utf-8") as text:
        call = [program(), "run", "--json", "--report", f"/dev/fd/{text.fileno()}",
                *_options({"gpu": gpu, **options}), "--", *words]
        with subprocess.Popen(call, stdout=reports, stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                              cwd=cwd, env={**os.environ, "PYTHONIOENCODING": "utf-8"},
                              pass_fds=[text.fileno()] if os.name == "posix" else []) as process:
            assert process.stderr is not None
            try:
                said = _pass_on(process.stderr, echo)
            except KeyboardInterrupt:
                process.terminate()
                raise
        reports.seek(0)
        found = reports.read()
        if not found:
            raise _error(process.returncode, words[0], said)
        if echo:
            print(said, end="")
        text.seek(0)
        return Run(process.returncode, found, text.read())


def _error(status: int, name: str, said: str) -> Error:
    return of_program(status, said, f"'{name}' ended with exit status {status} before it used PyTorch")
