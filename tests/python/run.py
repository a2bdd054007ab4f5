#!/usr/bin/env python3
"""run.py -- runs tests of the Python package from the source tree.

    tests/python/run.py BUILD [NAME...]

NAME is the name of a file here without "test_" (none: all of them).  The Python that runs them is
PLIMSOLL_TEST_PYTHON, or the one that runs this file; what needs PyTorch or another package is
skipped with a reason if that Python has none.  Exit 77: all was skipped.

The tests find the package and the library by PYTHONPATH and PLIMSOLL_LIBRARY, and the program as
PLIMSOLL_PROGRAM.
"""
import os
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
PYTHON = os.environ.get("PLIMSOLL_TEST_PYTHON") or sys.executable
LIBRARY = "libplimsoll.dylib" if sys.platform == "darwin" else "libplimsoll.so"


def restart(build):
    """Runs this file again where the package can be imported."""
    places = [str(HERE.parent.parent / "python"), str(HERE), os.environ.get("PYTHONPATH")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, places)),
                   "PYTHONDONTWRITEBYTECODE": "1", "PYTHONIOENCODING": "utf-8",
                   "PLIMSOLL_LIBRARY": str(build / LIBRARY), "PLIMSOLL_PROGRAM": str(build / "plimsoll")}
    sys.stdout.flush()
    os.execve(PYTHON, [PYTHON, *sys.argv], environment)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    if os.environ.get("PLIMSOLL_PROGRAM") != str(build / "plimsoll"):
        restart(build)
    names = sys.argv[2:] or sorted(p.stem[len("test_"):] for p in HERE.glob("test_*.py"))
    tests = unittest.TestSuite()
    for name in names:
        try:
            tests.addTest(unittest.defaultTestLoader.loadTestsFromName(f"test_{name}"))
        except unittest.SkipTest as e:  # what the whole file needs is missing
            print(f"{name}: skipped: {e}")
    result = unittest.TextTestRunner(verbosity=2).run(tests)
    if not result.wasSuccessful():
        return 1
    return 77 if len(result.skipped) == result.testsRun else 0


if __name__ == "__main__":
    sys.exit(main())
