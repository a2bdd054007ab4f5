"""The package as a wheel installs it: everything comes from its own _dist, wherever it lies."""
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

import plimsoll
from program import program

SOURCE = pathlib.Path(plimsoll.__file__).parent
BUILD = pathlib.Path(os.environ["PLIMSOLL_PROGRAM"]).parent


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        if not shutil.which("cmake"):
            raise unittest.SkipTest("no cmake")
        cls.folder = tempfile.TemporaryDirectory()
        cls.site = pathlib.Path(cls.folder.name).resolve() / "a site"
        shutil.copytree(SOURCE, cls.site / "plimsoll", ignore=shutil.ignore_patterns("__pycache__"))
        subprocess.run(["cmake", "--install", BUILD, "--prefix", cls.site / "plimsoll" / "_dist"], check=True,
                       stdout=subprocess.DEVNULL)

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def python(self, *args, **more):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("PLIMSOLL_")}
        return subprocess.run([sys.executable, *args], encoding="utf-8", stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                              env={**environment, "PYTHONPATH": str(self.site), "COLUMNS": "80", **more})

    def test_program(self):
        done = self.python("-m", "plimsoll", "estimate", "resnet50")
        self.assertEqual((done.stdout, done.returncode), (program("estimate", "resnet50"), 0))
        self.assertEqual(self.python("-m", "plimsoll", "estimate", "resnet50", "--gpu", "t5").returncode, 2)

    def test_library(self):
        done = self.python("-c", "import plimsoll; print(plimsoll.estimate('resnet50', batch=32))\n"
                           "from plimsoll import _library; print(_library.path())")
        *text, path, _ = done.stdout.split("\n")
        self.assertEqual("\n".join(text) + "\n", program("estimate", "resnet50", "--batch", 32), done.stderr)
        self.assertTrue(pathlib.Path(path).samefile(next(self.site.glob("plimsoll/_dist/lib*/**/libplimsoll.so"))))

    def test_incomplete(self):
        done = self.python("-c", "import plimsoll; plimsoll.size(3)", PLIMSOLL_LIBRARY="/nowhere/libplimsoll.so")
        self.assertIn("ImportError: libplimsoll was not found", done.stderr)

    def test_run_is_complete(self):
        """What `plimsoll run` takes along is found: what it says next is about the command."""
        done = self.python("-m", "plimsoll", "run", "--gpu", "t4", "--", "/nowhere/python")
        self.assertIn("cannot run '/nowhere/python'", done.stderr)


class Places(unittest.TestCase):
    """Of the program, by that of the library."""

    def found(self, library, *programs):
        """By its name in a folder that has these."""
        with tempfile.TemporaryDirectory() as folder:
            for name in (library, *programs):
                path = pathlib.Path(folder, name)
                path.parent.mkdir(parents=True, exist_ok=True)
                path.mkdir() if name.endswith("/") else path.touch()
            done = subprocess.run([sys.executable, "-c", "from plimsoll._place import program; print(program())"],
                                  env={**os.environ, "PLIMSOLL_LIBRARY": os.path.join(folder, library)},
                                  encoding="utf-8", stdout=subprocess.PIPE, check=True)
            return os.path.relpath(done.stdout.strip(), os.path.realpath(folder))

    def test_beside(self):
        """Above a build folder lies what is not its own, another user's in /tmp."""
        self.assertEqual(self.found("build/libplimsoll.so", "build/plimsoll", "bin/plimsoll"), "build/plimsoll")

    def test_installed(self):
        self.assertEqual(self.found("lib/libplimsoll.so", "lib/plimsoll/", "bin/plimsoll"), "bin/plimsoll")


if __name__ == "__main__":
    unittest.main()
