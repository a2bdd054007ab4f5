"""The plugin of pytest: tests with a budget, run as a user would, in a folder of their own."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

try:
    import pytest
    import torch
except ImportError as e:
    raise unittest.SkipTest(f"this Python has no {e.name}")

from plimsoll.pytest import Baseline, bytes_of, shown

NET = """
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(1024, 1024)

    def forward(self, x):
        return self.first(x)
"""
TEST = """
import os
import pytest
import torch
from net import Net

@pytest.fixture
def made():
    return torch.zeros(1000, device="cuda")

@pytest.mark.gpu_memory("100MiB", gpu="t4")
def test_step():
    model = Net().cuda()
    x = torch.randn(1024, 1024, device="cuda")
    model(x).sum().backward()

@pytest.mark.gpu_memory("100MiB", gpu="t4")
@pytest.mark.parametrize("mib", [1, 4])
def test_part(mib, made, gpu_memory):
    print("what the test printed")
    assert gpu_memory.allocated == 4096
    with gpu_memory.within("2MiB"):
        torch.zeros(mib << 20, dtype=torch.uint8, device="cuda")

class TestClass:
    @pytest.mark.gpu_memory(gpu="t4")
    def test_skipped(self):
        pytest.skip("for a reason")

    @pytest.mark.gpu_memory(gpu="t4")
    @pytest.mark.skipif("os.sep")
    def test_skipped_here(self):
        raise SystemExit("not run")

    @pytest.mark.gpu_memory("1MiB", gpu="t4")
    @pytest.mark.xfail
    def test_expected(self, made):
        pass

@pytest.mark.gpu_memory(gpu="t4")
def test_nothing():
    pass

@pytest.mark.gpu_memory(gpu="t5")
def test_card():
    pass

@pytest.mark.gpu_memory(gpu="t4")
def test_too_large():
    torch.empty(1 << 40, device="cuda")

def test_plain():
    assert "PLIMSOLL_RUN_LIB" not in os.environ
"""


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()
        (self.folder / "net.py").write_text(NET)
        (self.folder / "test_it.py").write_text(TEST)
        self.baseline = self.folder / "__plimsoll__" / "test_it.json"

    def run_tests(self, *args):
        """What pytest prints, and for each test what the XML says: None, or the element's name."""
        done = subprocess.run([sys.executable, "-m", "pytest", "-p", "plimsoll.pytest", "-p", "no:cacheprovider",
                               "--junit-xml=result.xml", *args], cwd=self.folder, encoding="utf-8",
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        cases = xml.etree.ElementTree.parse(self.folder / "result.xml").iter("testcase")
        return done.stdout, {case.get("name"): next((x.tag for x in case if x.tag != "properties"), None)
                             for case in cases}


class Gate(Folder):
    def test_outcomes(self):
        text, ended = self.run_tests()
        self.assertEqual(ended, {
            "test_step": None, "test_part[1]": None, "test_part[4]": "failure", "test_skipped": "skipped",
            "test_skipped_here": "skipped", "test_expected": "skipped", "test_nothing": "failure",
            "test_card": "failure", "test_too_large": "failure", "test_plain": None}, text)
        for said in ("2.00 MiB over the budget of 2.00 MiB", "took no memory of the GPU", "unknown gpu 't5'",
                     "CUDA out of memory", "what the test printed", 'torch.empty(1 << 40, device="cuda")'):
            self.assertIn(said, text)
        self.assertFalse(self.baseline.exists())

    def test_grown(self):
        """A model that grew fails, with the line that grew it."""
        self.run_tests("-k", "test_step", "--plimsoll-update")
        recorded = json.loads(self.baseline.read_text())["tests"]["test_step"]
        # the result of the layer is a tensor of 4 MiB that nobody keeps; its parameters, the input and gradients stay
        self.assertEqual(recorded["lines"]["test_it.py: model = Net().cuda()"], 4 * (1024 * 1024 + 1024))
        self.assertEqual(recorded["lines"]['test_it.py: x = torch.randn(1024, 1024, device="cuda")'], 4 << 20)

        # the same lines, elsewhere: no growth
        (self.folder / "net.py").write_text("# moved\n\n" + NET)
        text, ended = self.run_tests("-k", "test_step")
        self.assertEqual(ended, {"test_step": None}, text)

        # wider, 16 times: 64 MiB of weights, and of gradients; a test that fails is not recorded
        (self.folder / "net.py").write_text(NET.replace("1024)", "16384)"))
        text, ended = self.run_tests("-k", "test_step", "--plimsoll-update")
        self.assertEqual(ended, {"test_step": "failure"}, text)
        self.assertEqual(json.loads(self.baseline.read_text())["tests"]["test_step"], recorded)
        self.assertIn("over the budget of 100.00 MiB", text)
        self.assertRegex(text, r"grown since the baseline \(__plimsoll__/test_it.json\): reserved \+")
        grown = text.partition("grown since")[2]
        weights = shown(4 * (16384 - 1024) * (1024 + 1))
        self.assertRegex(grown, rf"\+{weights}  test_it.py:13  model = Net\(\)\.cuda\(\)")
        self.assertRegex(grown, r"\+\S+ MiB  net.py:10  return self.first\(x\)")
        self.assertNotIn("x = torch.randn", grown.partition("---")[0])


class Words(unittest.TestCase):
    def test_sizes(self):
        for text, size in (("8GiB", 8 << 30), ("1.5 MiB", 3 << 19), ("8GB", 8 * 10 ** 9), ("100", 100), (7, 7)):
            self.assertEqual(bytes_of(text), size)
        for text in ("8 gigs", "", "-1GiB", "GiB"):
            with self.assertRaises(pytest.UsageError):
                bytes_of(text)

    def test_bad_baseline(self):
        with tempfile.TemporaryDirectory() as folder:
            baseline = Baseline(pathlib.Path(folder) / "test_x.py")
            self.assertEqual(baseline.read(), {})
            baseline.path.parent.mkdir()
            for text in ("{", "[]", '{"schema": "other"}', "{}"):
                baseline.path.write_text(text)
                with self.assertRaises(pytest.UsageError):
                    baseline.read()


if __name__ == "__main__":
    unittest.main()
