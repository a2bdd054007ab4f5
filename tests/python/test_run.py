"""plimsoll.run: a script on the pretend GPU, from Python."""
import contextlib
import importlib.util
import io
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
import typing
import unittest
from unittest import mock

import plimsoll
from plimsoll import _records, _run
from program import program
from rows import Rows
import test_answers

SCRIPT = """\
import sys
import torch
model = torch.nn.Linear(1024, 4096).cuda()
x = torch.zeros(int(sys.argv[1]), 1024, device="cuda")
model(x).sum().backward()
print("rows", *sys.argv[1:])
"""
# Memory runs out, and later grows from step to step.
LEAK = """\
import torch
kept = []
try:
    torch.zeros(2**36, device="cuda")
except torch.OutOfMemoryError:
    pass
model = torch.nn.Linear(256, 256).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(8):
    kept.append(model(torch.zeros(64, 256, device="cuda")))
    kept[-1].sum().backward()
    optimizer.step()
    optimizer.zero_grad()
float(model.weight.sum().item())
"""
RANKED = """\
import torch
torch.distributed.init_process_group("nccl")
torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8).cuda())
"""
WEIGHTS = 4 * (1024 * 4096 + 4096)
HAS_TORCH = importlib.util.find_spec("torch") is not None


def run(*command, **options):
    """The answer, and what was printed meanwhile."""
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        answer = plimsoll.run(*command, **options)
    return answer, said.getvalue()


class Refused(unittest.TestCase):
    def refused(self, error, text, *command, **options):
        said = io.StringIO()
        with contextlib.redirect_stdout(said), self.assertRaisesRegex(error, text):
            plimsoll.run(*command, **options)
        self.assertEqual(said.getvalue(), "")  # the exception says it

    def test_refused(self):
        self.refused(plimsoll.UsageError, "unknown gpu 't5'", "x.py", gpu="t5")
        self.refused(plimsoll.UsageError, "unknown option '--stepz'", "x.py", gpu="t4", stepz=3)
        self.refused(plimsoll.UsageError, "needs a command", gpu="t4")
        self.refused(plimsoll.FileError, "cannot run '/no/such'", "/no/such", gpu="t4")
        self.refused(plimsoll.UnsupportedError, "'true' used no PyTorch", "true", gpu="t4")
        self.refused(plimsoll.Error, "'false' ended with exit status 1", "false", gpu="t4")

    def test_no_stdout(self):
        with mock.patch("sys.stdout", None):
            self.assertEqual(_run._pass_on(["a\n", "plimsoll: b\n", "c\n", "plimsoll: d\n"], True), "plimsoll: d\n")


class Killed(unittest.TestCase):
    def test_nothing_is_left(self):
        call = "import plimsoll; plimsoll.run('sh', '-c', 'sleep 1', gpu='t4')"
        with tempfile.TemporaryDirectory() as folder, \
                subprocess.Popen([sys.executable, "-c", call], env={**os.environ, "TMPDIR": folder},
                                 stdout=subprocess.DEVNULL) as process:
            until = time.monotonic() + 20
            while not os.listdir(folder) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertTrue(os.listdir(folder))  # the run's own
            process.kill()
            while os.listdir(folder) and time.monotonic() < until:
                time.sleep(0.05)
            self.assertEqual(os.listdir(folder), [])


@unittest.skipUnless(HAS_TORCH, "no PyTorch")
class OnThePretendGpu(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name
        self.script = pathlib.Path(folder.name, "train.py")
        self.script.write_text(SCRIPT)

    def test_answer(self):
        answer, said = run("train.py", "64", gpu="t4", cwd=self.folder)
        self.assertEqual((answer.fits, answer.status, answer.end), (True, 0, "done"))
        self.assertEqual(said, "rows 64\n")
        self.assertEqual(answer.peak.parameter, WEIGHTS)
        self.assertGreater(answer.peak_requested, 2 * WEIGHTS)
        self.assertIn(("parameter", "fp32", WEIGHTS - 4 * 4096),
                      [(t.category, t.dtype, t.bytes) for line in answer.lines for t in line.tensors])
        self.assertEqual(len(answer.processes), 1)
        with self.assertRaises(plimsoll.UnsupportedError):
            answer.csv()

    def test_as_the_program(self):
        answer, _ = run(self.script, "64", gpu="t4", width=120, by="op")
        report = pathlib.Path(self.folder, "report.txt")
        options = ["--gpu", "t4", "--width", 120, "--by", "op"]
        command = ["--", sys.executable, self.script, "64"]
        self.assertEqual("rows 64\n" + str(answer) + "\n", program("run", *options, *command))
        self.assertEqual(answer.json(), program("run", "--json", "--report", report, *options, *command))
        self.assertEqual(str(answer) + "\n", report.read_text())
        program("run", "--color", "always", "--report", report, *options, *command)
        self.assertEqual(str(answer) + "\n", report.read_text())  # without the colours

    def test_out_of_memory(self):
        answer, said = run(self.script, str(2**20), gpu="t4", echo=False)
        self.assertEqual((answer.fits, answer.status, answer.end, said), (False, 1, "memory", ""))
        self.assertIn("CUDA out of memory", answer.oom_text)
        self.assertEqual(answer.oom_line, f"{self.script}:5")

    def test_declared(self):
        """Each row of run.def is a member of some answer, and each member is declared."""
        leak = pathlib.Path(self.folder, "leak.py")
        leak.write_text(LEAK)
        ranked = pathlib.Path(self.folder, "ranked.py")
        ranked.write_text(RANKED)
        answers = [run(self.script, "64", gpu=["t4", "a100"])[0], run(self.script, "64", gpu="2xt4")[0],
                   run(self.script, str(2**20), gpu="t4")[0], run(leak, gpu="t4")[0],
                   run(ranked, gpu="t4", world=2, rank="all")[0]]
        rows = Rows(self)
        for answer in answers:
            for line in answer.json().splitlines():
                rows.walk(json.loads(line))
            for report in answer.processes:
                for key, value in report.to_dict().items():
                    test_answers.Records().compare(typing.get_type_hints(_records.RunReport)[key], value, key)
        self.assertEqual(rows.unseen({"run"}), [])
        self.assertEqual([card.gpu for card in answers[0].cards], ["NVIDIA T4", "NVIDIA A100 SXM4 80GB"])
        self.assertEqual([report.device for report in answers[1].processes], [0, 1])
        self.assertEqual({report.schema for answer in answers for report in answer.processes}, {"plimsoll/run/1"})
        self.assertEqual(answers[1].json().count("\n"), 1)
        self.assertEqual(json.loads(answers[1].json())["schema"], "plimsoll/machine/1")
        self.assertEqual(sorted(report.rank for report in answers[4].processes), [0, 1])


if __name__ == "__main__":
    unittest.main()
