"""%%plimsoll: a cell on the pretend GPU, after the cells above it."""
import contextlib
import importlib.util
import io
import pathlib
import sys
import tempfile
import unittest

import plimsoll
from plimsoll import notebook
from program import program

ABOVE = ["%matplotlib inline\nimport torch\n",
         "!pip list\nmodel = torch.nn.Linear(1024, 4096)  # 16 MiB\n",
         "%%bash\necho no Python\n",
         "%%time\nwidth = model.in_features\n"]
CELL = ("x = torch.zeros(256, width, device='cuda')\n"
        "model.cuda()(x).sum().backward()\n"
        "print('memory', torch.cuda.max_memory_allocated() > 2**25)\n")
HAS_TORCH = importlib.util.find_spec("torch") is not None


class Plain(unittest.TestCase):
    def test_lines_stay_where_they_are(self):
        for cell, python in (("x = 1\n%timeit x\ny = 2\n", "x = 1\npass\ny = 2\n"), ("if x:\n    !ls\n", "if x:\n    pass\n"),
                             ("%%bash\nls\n", ""), ("%%time\nx = 1\n", "\nx = 1\n"), ("%%plimsoll --gpu t4\nx()\n", ""),
                             ("x = 7 \\\n  % 4\n", "x = 7 \\\n  % 4\n"), ("torch.nn.Linear?\nx = 1", "pass\nx = 1")):
            self.assertEqual(notebook.plain(cell), python)


@unittest.skipUnless(HAS_TORCH, "no PyTorch")
class OnThePretendGpu(unittest.TestCase):
    def test_cell(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = notebook.run_cell("--gpu t4 --quiet", ABOVE, CELL)
        self.assertEqual(status, 0, said.getvalue())
        self.assertIn("memory True\n", said.getvalue())
        # as one script
        with tempfile.TemporaryDirectory() as folder:
            script = pathlib.Path(folder, "train.py")
            script.write_text("\n".join(map(notebook.plain, [*ABOVE, CELL])))
            self.assertEqual(said.getvalue(), program("run", "--gpu", "t4", "--quiet", "--", sys.executable, script))
        peak = int(next(line for line in said.getvalue().splitlines() if line.startswith("peak_requested ")).split()[1])
        weights, x, y = 4 * (1024 * 4096 + 4096), 4 * 256 * 1024, 4 * 256 * 4096
        self.assertGreater(peak, 2 * weights + x + y)  # the weights, their gradients, x, and the gradient of the sum

    def test_lines_are_named(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            notebook.run_cell("--gpu t4", ABOVE, CELL)
        self.assertIn("cell_5.py:2", said.getvalue())

    def test_error(self):
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            status = notebook.run_cell("--gpu t5", [], CELL)
        self.assertEqual((status, said.getvalue().startswith("plimsoll: ")), (2, True))


@unittest.skipUnless(importlib.util.find_spec("IPython"), "no IPython")
class InIPython(unittest.TestCase):
    def test_magic(self):
        from IPython.core.interactiveshell import InteractiveShell
        shell, ran = InteractiveShell.instance(), []
        original, notebook.run_cell = notebook.run_cell, lambda *what: ran.append(what)
        try:
            for cell in ("a = 1", "%load_ext plimsoll", "b = 2", "1 / 0", "%%plimsoll --gpu t4\nc = 3", "d = 4",
                         "%%plimsoll --gpu a100 --steps 2\ne = 5"):
                with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
                    shell.run_cell(cell, store_history=True)
        finally:
            notebook.run_cell = original
            InteractiveShell.clear_instance()
        (one, above, cell), (other, later, _) = ran
        self.assertEqual((one, cell.strip(), other), ("--gpu t4", "c = 3", "--gpu a100 --steps 2"))
        self.assertEqual([x for x in map(notebook.plain, above) if x not in ("", "pass")], ["a = 1", "b = 2"])
        self.assertEqual([x for x in map(notebook.plain, later) if x not in ("", "pass")], ["a = 1", "b = 2", "d = 4"])

    def test_answers_are_shown(self):
        from IPython.core.formatters import DisplayFormatter
        data, _ = DisplayFormatter().format(plimsoll.estimate("alexnet"))
        self.assertIn("<svg", data["text/html"])
        self.assertIn("text/plain", data)


if __name__ == "__main__":
    unittest.main()
