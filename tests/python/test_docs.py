"""The Python sessions of the documentation print what the pages say.

A block marked ```pycon is a session; all of a page's are one, and run in a folder with the contents of tests/data
(README.md: in an empty one).  "..." stands for any text.  A block marked ```pycon torch needs PyTorch.  With
PLIMSOLL_UPDATE=1 what is printed is written into the pages: read the diff.
"""
import contextlib
import doctest
import importlib.util
import io
import os
import pathlib
import re
import tempfile
import unittest

from program import DATA

ROOT = DATA.parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```pycon( torch)?\n(.*?)^```$", re.S | re.M)
UPDATE = os.environ.get("PLIMSOLL_UPDATE") == "1"
TORCH = importlib.util.find_spec("torch") is not None


class Session(doctest.DocTestRunner):
    """Runs examples; `got` is what each of those printed that did not print what it should."""

    def __init__(self):
        super().__init__(verbose=False, optionflags=doctest.ELLIPSIS)
        self.got = {}

    def report_failure(self, out, test, example, got):
        self.got[example] = got
        super().report_failure(out, test, example, got)

    def report_unexpected_exception(self, out, test, example, exc_info):
        self.got[example] = "".join(doctest._exception_traceback(exc_info))
        super().report_unexpected_exception(out, test, example, exc_info)


def examples(lines):
    """The inputs of a session, each with what it prints up to the next one: doctest's own parser stops at an empty
    line."""
    i = 0
    while i < len(lines):
        first, source = i, []
        while i < len(lines) and lines[i].startswith(">>> " if not source else "... "):
            source.append(lines[i][4:])
            i += 1
        assert source, f"not an input: {lines[i]}"
        start = i
        while i < len(lines) and not lines[i].startswith(">>> "):
            i += 1
        want = "".join(lines[start:i])
        error = doctest.DocTestParser._EXCEPTION_RE.match(want)
        yield doctest.Example("".join(source), want, error.group("msg") if error else None, first)


def run_block(text, names, where, line):
    """What the block should be, and what is wrong with it."""
    session, said = Session(), io.StringIO()
    test = doctest.DocTest(list(examples(text.splitlines(keepends=True))), {}, where, where, line, text)
    test.globs = names  # and not a copy: the next block goes on with it
    session.run(test, out=said.write, clear_globs=False)
    lines = text.splitlines(keepends=True)
    for example, got in reversed(list(session.got.items())):
        first = example.lineno + example.source.count("\n")
        lines[first:first + example.want.count("\n")] = [got]
    return "".join(lines), said.getvalue()


class Pages(unittest.TestCase):
    def check(self, page):
        text, names, where = page.read_text(encoding="utf-8"), {}, str(page.relative_to(ROOT))
        with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as back:
            for entry in DATA.iterdir() if page.name != "README.md" else ():
                pathlib.Path(folder, entry.name).symlink_to(entry)
            back.callback(os.chdir, os.getcwd())
            os.chdir(folder)
            for block in BLOCK.finditer(text):
                if block.group(1) and not TORCH:
                    continue
                line = text.count("\n", 0, block.start(2))
                should, wrong = run_block(block.group(2), names, where, line)
                if wrong and UPDATE:
                    new = page.read_text(encoding="utf-8").replace(block.group(2), should, 1)
                    page.write_text(new, encoding="utf-8")
                elif wrong:
                    self.fail(wrong)

    def test_pages(self):
        sessions = 0
        for page in PAGES:
            if BLOCK.search(page.read_text(encoding="utf-8")):
                sessions += 1
                with self.subTest(page.name):
                    self.check(page)
        self.assertGreaterEqual(sessions, 2)

    def test_sees_a_difference(self):
        good = ">>> x = 3\n>>> print(x)\n3\n>>> 1 / 0\nTraceback (most recent call last):\n    ...\nZeroDivisionError: division by zero\n"
        self.assertEqual(run_block(good, {}, "good", 0), (good, ""))
        should, wrong = run_block(good.replace("\n3\n", "\n4\n"), {}, "bad", 0)
        self.assertIn("Expected:\n    4\nGot:\n    3\n", wrong)
        self.assertEqual(should, good)


if __name__ == "__main__":
    unittest.main()
