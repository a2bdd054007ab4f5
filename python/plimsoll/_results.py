"""_results.py -- answers: the library's results as text, as a picture and as attributes.

An answer holds the library's result.  Its text is rendered when it is asked for, and the JSON
read once, when the first attribute is used.  Threads may share an answer.
"""

from __future__ import annotations

import ctypes
import importlib
import json
from typing import Any, Callable, ClassVar, Dict, Generic, Iterator, List, Optional, Tuple, TypeVar

from . import _library
from ._errors import Error, UsageError
from ._library import Handle, Style
from ._records import (
    BatchesReport, CardsReport, ComparisonReport, DifferenceReport, EstimateReport, FitReport,
    InfoReport, LayersReport, ModelInfo, OutOfMemoryReport, Record, ReplayReport, SegmentsReport,
    ServeFitReport, ServeReport, SizeReport, Timeline, TimesReport)

Render = Callable[[int, Any], str]
"""Takes a plim_render and a plim_style, or None; returns the text."""


def _style(given: Dict[str, Any]) -> Any:
    fields = [field[0] for field in Style._fields_[1:]]  # without the size
    for name in given.keys() - set(fields):
        raise UsageError(f"unknown style {name!r}: it is one of {', '.join(fields)}")
    values = {k: _library.encoded(v) if isinstance(v, str) else v for k, v in given.items() if v is not None}
    return ctypes.byref(Style(size=ctypes.sizeof(Style), **values))


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class Result(Record):
    """What all answers have.

    `str()` is what the program prints, and a notebook shows the same with its picture.
    """

    schema: str
    _tables: ClassVar[Dict[str, Tuple[str, ...]]] = {}  # lists of rows: where they are; the first is the main one

    def __init__(self, render: Render) -> None:
        self._render = render
        self._parsed: Optional[Dict[str, Any]] = None

    def text(self, **style: Any) -> str:
        """As the program prints it; the style is that of its options: width=120, top=3, depth=1, si=True,
        ascii=True, color=True, quiet=True, and for layers columns="type,macs", types="Conv2d", sort="macs"."""
        return self._render(_library.Render.TEXT, _style(style)).rstrip("\n")

    def json(self) -> str:
        """The report of docs/json.md as text."""
        return self._render(_library.Render.JSON, None)

    def csv(self, **style: Any) -> str:
        """The rows as CSV, with a header.  UnsupportedError: the report is not a table."""
        return self._render(_library.Render.CSV, _style(style))

    def markdown(self, **style: Any) -> str:
        """The text as Markdown, for an issue, a pull request or a README."""
        return self._render(_library.Render.MD, _style(style))

    def svg(self) -> str:
        """The picture of an estimate (memory over time) or a comparison (accuracy against MACs)."""
        return self._render(_library.Render.SVG, None)

    def to_dict(self) -> Dict[str, Any]:
        """The report of docs/json.md."""
        if self._parsed is None:
            self._parsed = json.loads(self.json())
        return self._parsed

    def to_frame(self, table: Optional[str] = None) -> Any:
        """A list of the report as a pandas.DataFrame, which needs pandas; without a name the main one."""
        try:
            pandas = importlib.import_module("pandas")
        except ImportError as e:
            raise ImportError("to_frame() needs pandas: pip install pandas") from e
        name = table or next(iter(self._tables), "")
        if name not in self._tables:
            raise UsageError(f"there is no table {name!r}: it is one of {', '.join(self._tables) or '(none)'}")
        rows: Any = self.to_dict()
        for key in self._tables[name]:
            rows = rows[key]
        return pandas.DataFrame(rows)

    def __str__(self) -> str:
        return self.text()

    __repr__ = __str__  # at a prompt one wants to read it

    def _repr_html_(self) -> str:
        return f"<pre>{_escaped(str(self))}</pre>"


class _OfModel(Result):
    model: ModelInfo
    settings: Dict[str, Any]
    """As used, with the defaults filled in; `estimate(model, **answer.settings)` asks the same again."""


class Estimate(Result, EstimateReport):
    """The memory of a training step or an inference."""

    _tables = {"live": ("peak", "live"), "phases": ("phases",), "timeline": ("timeline", "buckets"),
               "changes": ("changes",), "ranks": ("ranks",)}

    def __init__(self, render: Render, handle: Handle) -> None:
        super().__init__(render)
        self.handle = handle  # which a comparison asks for

    @property
    def fits(self) -> Optional[bool]:
        """Whether it fits on the card.  None: it is not certain (`fit.fits` is "maybe"), a part of the model is not
        counted ("incomplete"), or no card was chosen."""
        word: Optional[str] = self.to_dict()["fit"]["fits"]
        return {"yes": True, "no": False}.get(word or "")

    def _repr_html_(self) -> str:
        """The text, with the picture where the text draws the timeline with characters."""
        parts: List[str] = []
        for paragraph in str(self).split("\n\n"):
            if paragraph.startswith("Timeline ("):
                parts.append(f'<div style="max-width: 900px">{self.svg()}</div>')
            else:
                parts.append(f"<pre>{_escaped(paragraph)}</pre>")
        return "\n".join(parts)


class Layers(Result, LayersReport):
    """Each layer with the shape, size and cost of its forward pass."""

    _tables = {"layers": ("layers",), "activations": ("activations",)}


class Fit(Result, FitReport):
    """The largest batch for each card."""

    _tables = {"cards": ("cards",)}


class Cards(Result, CardsReport):
    """The same run on each card, the fastest first."""

    _tables = {"cards": ("cards",)}


class Serve(Result, ServeReport):
    """What an inference engine holds of a model, and how much context and how many requests that leaves room for."""

    _tables = {"parts": ("parts",)}


class ServeFit(Result, ServeFitReport):
    """What each card serves of a model."""

    _tables = {"cards": ("cards",)}


class Batches(Result, BatchesReport):
    """How memory grows with the batch: `fixed` bytes and `per_sample` bytes."""

    _tables = {"batches": ("batches",)}


class Segments(Result, SegmentsReport):
    """The peak of a step for each number of checkpointed segments; `best` is the number with the lowest."""

    _tables = {"segments": ("segments",)}


class Times(Result, TimesReport):
    """What takes the time of a step, the longest first."""

    _tables = {"ops": ("ops",)}


class Info(Result, InfoReport):
    """The contents of a model file."""

    _tables = {"tensors": ("tensors",), "modules": ("modules",), "types": ("types",), "holds": ("holds",)}


class Comparison(Result, ComparisonReport):
    """Several models side by side."""

    _tables = {"models": ("models",)}

    def _repr_html_(self) -> str:
        try:
            return f'{super()._repr_html_()}\n<div style="max-width: 900px">{self.svg()}</div>'
        except Error:  # no accuracy is known, which the picture needs
            return super()._repr_html_()


class Replay(Result, ReplayReport):
    """A tape or a recording, replayed through an allocator."""

    _tables = {"marks": ("marks",)}


class Difference(Result, DifferenceReport):
    """Two runs side by side."""

    _tables = {"tensors": ("tensors",), "modules": ("modules",), "categories": ("categories",),
               "figures": ("figures",)}


class OutOfMemory(Result, OutOfMemoryReport):
    """An out-of-memory message, explained."""


class Size(Result, SizeReport):
    """The size of a tensor in every data type."""

    _tables = {"dtypes": ("dtypes",)}


Row = TypeVar("Row", bound=Record)


class Listing(Result, Generic[Row]):
    """What plimsoll knows of a kind: a sequence of rows."""

    def __init__(self, render: Render, name: str, row: Callable[[Dict[str, Any]], Row]) -> None:
        super().__init__(render)
        self._name, self._row = name, row
        self._tables = {name: (name,)}  # type: ignore[misc]  # each list has a name of its own

    @property
    def rows(self) -> List[Row]:
        return [self._row(x) for x in self.to_dict()[self._name]]

    def __iter__(self) -> Iterator[Row]:
        return iter(self.rows)

    def __len__(self) -> int:
        return len(self.to_dict()[self._name])

    def __getitem__(self, i: int) -> Row:
        return self._row(self.to_dict()[self._name][i])


class Tape:
    """The allocations and frees of a run, in order: `str()` is the text that `plimsoll replay` reads."""

    def __init__(self, print_as: Callable[[bool], str]) -> None:
        self._print_as = print_as
        self._text = print_as(False)

    def __str__(self) -> str:
        return self._text.rstrip("\n")

    def __repr__(self) -> str:
        return f"<plimsoll.Tape of {len(self._text)} bytes>"

    def events(self) -> List[Dict[str, Any]]:
        """One dict for each event."""
        return [json.loads(line) for line in self._print_as(True).splitlines()]

    def save(self, path: Any) -> None:
        """Writes the text to a file."""
        with open(path, "w", encoding="utf-8") as f:
            f.write(self._text)
