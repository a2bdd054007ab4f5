"""pytest.py -- a plugin of pytest: tests that fail when a step outgrows its memory, without a GPU.

    @pytest.mark.gpu_memory("8GiB", gpu="t4")
    def test_step():
        train_one_step()                # on "cuda"

A pretend GPU needs a process of its own, so a marked test is not run here, nor its fixtures: a
second pytest runs it, alone, under `plimsoll run --gpu t4 --json`.  What comes back is how the
test ended there, in a file that this plugin writes in that process, and the report of the run.
The budget is compared with the memory that PyTorch's allocator reserved at most, as by `plimsoll
estimate --budget`: the CUDA context is not counted.

A baseline, `__plimsoll__/test_x.json` next to test_x.py, holds what each line had live at the
peak when it was recorded, by --plimsoll-update.  A test that fails names the lines that grew.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from typing import Any, Dict, Iterator, List, Mapping, NamedTuple, Optional, Tuple

import pytest

from ._place import program

MARK = "gpu_memory"
SCHEMA = "plimsoll/pytest/1"
_INSIDE = "PLIMSOLL_PYTEST_OUTCOME"  # in the second process: the file for how the test ended
_UNITS = {"": 1, "B": 1, **{letter + "iB": 1024 ** n for n, letter in enumerate("KMGT", 1)},
          **{letter + "B": 1000 ** n for n, letter in enumerate("KMGT", 1)}, "kB": 1000}
_MOST_LINES = 5


def bytes_of(size: "int | str") -> int:
    """A size as the program takes it, 8GiB (2^30 bytes) or 8GB (10^9), in bytes."""
    match = re.fullmatch(r"\s*([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)\s*", str(size))
    if not match or match.group(2) not in _UNITS:
        raise pytest.UsageError(f"{MARK}: {size!r} is not a size: write a number and B, KiB, MiB, GiB, TiB, or KB, MB, "
                                "GB, TB")
    return int(float(match.group(1)) * _UNITS[match.group(2)])


def shown(size: int) -> str:
    for letter, power in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if abs(size) >= 1 << power:
            return f"{size / (1 << power):.2f} {letter}"
    return f"{size} B"


class OverBudget(Exception):
    """A test took more memory than it may."""


class Failed(Exception):
    """A test failed in the second process, as it says there, or that process did."""


class Mark(NamedTuple):
    """What @pytest.mark.gpu_memory says."""

    budget: Optional[int]
    options: Dict[str, str]
    """Of `plimsoll run`, without their dashes."""

    @classmethod
    def of(cls, item: pytest.Item) -> Optional["Mark"]:
        mark = item.get_closest_marker(MARK)
        if mark is None:
            return None
        if len(mark.args) > 1 or not {"gpu", "vram"} & set(mark.kwargs):
            raise pytest.UsageError(f"{item.nodeid}: write @pytest.mark.{MARK}('8GiB', gpu='t4'): a budget, or none, "
                                    "and a card or its memory (vram='16GiB')")
        options = {key.replace("_", "-"): str(value) for key, value in mark.kwargs.items()}
        return cls(bytes_of(mark.args[0]) if mark.args else None, options)


# -- what a run took


class Measured(NamedTuple):
    """The report of a run (plimsoll/run/1), as far as it is compared."""

    card: str
    torch: str
    reserved: int
    allocated: int
    where: str
    categories: Dict[str, int]
    lines: Dict[str, int]
    """By file and source text, which stay when lines are moved: bytes live at the peak."""
    numbers: Dict[str, str]
    """Where these are: "test_x.py:12"."""

    @classmethod
    def of(cls, report: Mapping[str, Any], folder: pathlib.Path) -> "Measured":
        """`folder` is that of the test, from which files are named."""
        peak = report["peak"]
        lines: Dict[str, int] = {}
        numbers: Dict[str, str] = {}
        for row in report["lines"]:
            file, _, number = row["line"].rpartition(":")
            file = os.path.relpath(file, folder) if file else row["line"]
            key = f"{file}: {row['source']}" if row["source"] else row["line"]
            if row["live_at_peak"]:
                lines[key] = lines.get(key, 0) + row["live_at_peak"]
                numbers.setdefault(key, f"{file}:{number}" if number else file)
        file, _, number = peak["line"].rpartition(":")
        where = f"in step {peak['step']}, {peak['phase']}" if peak["step"] >= 0 and peak["phase"] != "load" else \
            "before the first step"
        if file:
            where += f", {os.path.relpath(file, folder)}:{number}"
        return cls(report["card"]["name"], report["torch"], report["peak_reserved"], report["peak_allocated"], where,
                   {k: v for k, v in peak.items() if isinstance(v, int) and k != "step" and v}, lines, numbers)

    def row(self, key: str, size: str) -> str:
        return f"  {size:>12}  {self.numbers[key]}  {key.partition(': ')[2]}"

    def text(self) -> List[str]:
        parts = sorted(self.categories.items(), key=lambda item: -item[1])
        return [f"{self.card}, PyTorch {self.torch}",
                f"peak: reserved {shown(self.reserved)}, allocated {shown(self.allocated)}, {self.where}",
                "live at the peak: " + ", ".join(f"{k.replace('_', ' ')} {shown(v)}" for k, v in parts),
                *(self.row(key, shown(n)) for key, n in _largest(self.lines))]

    def growth(self, before: Mapping[str, Any], name: str) -> List[str]:
        grown = {key: n - before["lines"].get(key, 0) for key, n in self.lines.items()}
        grown = {key: n for key, n in grown.items() if n > 0}
        same = (before["card"], before["torch"]) == (self.card, self.torch)
        made = "" if same else f", recorded on {before['card']} with PyTorch {before['torch']}"
        rows = [self.row(key, "+" + shown(n)) for key, n in _largest(grown)]
        if len(grown) > len(rows):
            rows.append(f"  and {len(grown) - len(rows)} lines more")
        reserved = self.reserved - before["peak_reserved"]
        return [f"grown since the baseline ({name}{made}): reserved {'+' * (reserved >= 0)}{shown(reserved)}",
                *(rows or ["  no line: what they had live at the peak is as it was"])]

    def to_dict(self) -> Dict[str, Any]:
        return {"card": self.card, "torch": self.torch, "peak_reserved": self.reserved,
                "peak_allocated": self.allocated, "lines": dict(sorted(self.lines.items()))}


def _largest(lines: Mapping[str, int]) -> List[Tuple[str, int]]:
    return sorted(lines.items(), key=lambda item: (-item[1], item[0]))[:_MOST_LINES]


# -- baselines


class Baseline:
    """What was recorded of the tests of a file."""

    def __init__(self, test: pathlib.Path) -> None:
        self.path = test.parent / "__plimsoll__" / (test.stem + ".json")
        self.name = f"{self.path.parent.name}/{self.path.name}"

    def read(self) -> Dict[str, Any]:
        if not self.path.exists():
            return {}
        try:
            data = json.loads(self.path.read_text(encoding="utf-8"))
            if data["schema"] != SCHEMA:
                raise KeyError(data["schema"])
            tests: Dict[str, Any] = data["tests"]
            return tests
        except (ValueError, KeyError, TypeError) as e:
            raise pytest.UsageError(f"{self.path}: not a baseline of {SCHEMA} ({e}): delete it, and record it with "
                                    "--plimsoll-update")

    def record(self, test: str, measured: Measured) -> None:
        tests = {**self.read(), test: measured.to_dict()}
        self.path.parent.mkdir(exist_ok=True)
        text = json.dumps({"schema": SCHEMA, "tests": dict(sorted(tests.items()))}, indent=1, ensure_ascii=False)
        self.path.write_text(text + "\n", encoding="utf-8")


# -- the first process


class MemoryItem(pytest.Item):
    """Stands for a marked test, and runs it in a second process."""

    function: pytest.Item
    mark: Mark

    @classmethod
    def of(cls, item: pytest.Item, mark: Mark) -> "MemoryItem":
        made: MemoryItem = cls.from_parent(item.parent, name=item.name, nodeid=item.nodeid)
        made.function, made.mark = item, mark
        made.own_markers = item.own_markers
        made.keywords.update(item.keywords)
        made.extra_keyword_matches.update(item.extra_keyword_matches)
        made.obj = getattr(item, "obj", None)  # whose globals the conditions of skipif see
        return made

    obj: Any

    def reportinfo(self) -> Any:
        return self.function.reportinfo()

    def command(self) -> List[str]:
        """Not with the options of a pytest.ini, which may ask for more processes, or for coverage."""
        options = [word for key, value in self.mark.options.items() for word in (f"--{key}", value)]
        _, separator, rest = self.nodeid.partition("::")
        config = self.config
        name = f"{self.path}{separator}{rest}"
        found = ["-c", str(config.inipath)] if config.inipath else []
        return [program(), "run", *options, "--json", "--", sys.executable, "-m", "pytest", name, "-p", "plimsoll.pytest",
                *found, "--rootdir", str(config.rootpath), "-o", "addopts=", "-p", "no:cacheprovider", "-q",
                "--import-mode", config.getoption("importmode"), "--no-header", "--no-summary",
                "--runxfail"]  # the first process has these marks too

    def runtest(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            outcome = os.path.join(folder, "outcome")
            unset = ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_CURRENT_TEST", "COV_CORE_SOURCE")
            environment = {k: v for k, v in os.environ.items() if k not in unset}
            done = subprocess.run(self.command(), stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                  stderr=subprocess.PIPE, encoding="utf-8", errors="replace",
                                  env={**environment, _INSIDE: outcome}, cwd=self.config.invocation_params.dir)
            ended: Dict[str, Any] = {}
            if os.path.exists(outcome):
                ended = json.loads(pathlib.Path(outcome).read_text(encoding="utf-8"))
        for name, text in ended.get("sections", ()):
            self.add_report_section("call", name, text)
        if ended.get("outcome") == "skipped":
            pytest.skip(ended["text"])
        measured = max((self.measured(r) for r in _reports(done.stdout)), key=lambda m: m.reserved, default=None)
        if ended.get("outcome") == "failed":
            raise Failed("\n".join([ended["text"].rstrip(), *(["", *measured.text()] if measured else ())]))
        if not ended:
            raise Failed(f"the test did not end under plimsoll run (exit status {done.returncode}):\n" +
                         (done.stderr or done.stdout).rstrip())
        if measured is None or not measured.reserved:
            raise Failed("the test passed, but took no memory of the GPU: there is nothing to measure")
        self.compare(measured)

    def measured(self, report: Mapping[str, Any]) -> Measured:
        """Its lines are named from where the run was started, or by whole paths."""
        start = self.config.invocation_params.dir
        lines = [{**row, "line": _whole(row["line"], start)} for row in report["lines"]]
        peak = {**report["peak"], "line": _whole(report["peak"]["line"] or "", start)}
        return Measured.of({**report, "lines": lines, "peak": peak}, self.path.parent)

    def compare(self, measured: Measured) -> None:
        budget, baseline = self.mark.budget, Baseline(self.path)
        test = self.nodeid.partition("::")[2]
        if budget is not None and measured.reserved > budget:
            before = baseline.read().get(test)
            over = f"{shown(measured.reserved)} is {shown(measured.reserved - budget)} over the budget of {shown(budget)}"
            grown = measured.growth(before, baseline.name) if before else \
                [f"no baseline in {baseline.name}: --plimsoll-update records one when the test passes"]
            raise OverBudget("\n".join([over, "", *measured.text(), "", *grown]))
        self.user_properties += [("plimsoll_peak_reserved", measured.reserved),
                                 ("plimsoll_peak_allocated", measured.allocated)]
        if self.config.getoption("plimsoll_update"):
            baseline.record(test, measured)

    def repr_failure(self, excinfo: Any, style: Any = None) -> Any:
        if isinstance(excinfo.value, (OverBudget, Failed)):
            return str(excinfo.value)
        return super().repr_failure(excinfo, style)


def _whole(line: str, start: pathlib.Path) -> str:
    file, colon, number = line.rpartition(":")
    return f"{start / file}:{number}" if colon else line


def _reports(text: str) -> List[Dict[str, Any]]:
    """One for each card of each process."""
    reports: List[Dict[str, Any]] = []
    for line in text.splitlines():
        if line.startswith('{"schema":"plimsoll/'):
            report = json.loads(line)
            reports += report["cards"] if report["schema"].startswith("plimsoll/machine/") else [report]
    return reports


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("plimsoll", "GPU memory, without a GPU")
    group.addoption("--plimsoll-update", action="store_true", dest="plimsoll_update",
                    help=f"record the memory of tests marked {MARK} that pass, in __plimsoll__ next to them")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", f"{MARK}(budget, gpu='t4'): run the test on a pretend GPU, and fail it if it "
                                       "reserves more than the budget; other options of 'plimsoll run' by name")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: List[pytest.Item]) -> None:
    if _INSIDE in os.environ:
        return
    for i, item in enumerate(items):
        mark = Mark.of(item)
        if mark is not None:
            items[i] = MemoryItem.of(item, mark)


# -- the second process


class Gauge:
    """What the fixture `gpu_memory` gives: the memory of the current GPU, in bytes."""

    def __init__(self) -> None:
        import torch

        if not torch.cuda.is_available():
            raise RuntimeError(f"the fixture {MARK} needs a GPU: mark the test with @pytest.mark.{MARK}(gpu='t4'), and "
                               "it runs on a pretended one")
        self._cuda: Any = torch.cuda

    @property
    def allocated(self) -> int:
        return int(self._cuda.memory_allocated())

    @property
    def peak(self) -> int:
        """The most that was allocated, since the test or the block began."""
        return int(self._cuda.max_memory_allocated())

    @contextmanager
    def within(self, budget: "int | str") -> Iterator[None]:
        """Fails the test if what the block allocates, with what was there before, exceeds the budget."""
        limit = bytes_of(budget)
        self._cuda.reset_peak_memory_stats()
        yield
        if self.peak > limit:
            from ._track import summary

            pytest.fail(f"{shown(self.peak)} allocated at most, {shown(self.peak - limit)} over the budget of "
                        f"{shown(limit)}\n\n{summary()}", pytrace=False)


@pytest.fixture
def gpu_memory() -> Gauge:
    """The memory of the current GPU, real or pretended, and budgets for parts of a test."""
    gauge = Gauge()
    gauge._cuda.reset_peak_memory_stats()
    return gauge


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Says how the test ended: by its first phase that did not pass, or its last."""
    path = os.environ.get(_INSIDE)
    if path is None or os.path.exists(path) or (report.passed and report.when != "teardown"):
        return
    text = report.longreprtext
    if report.skipped and isinstance(report.longrepr, tuple):
        text = str(report.longrepr[2]).partition("Skipped: ")[2] or str(report.longrepr[2])
    with open(path, "w", encoding="utf-8") as f:
        json.dump({"outcome": report.outcome, "text": text, "sections": report.sections}, f)
