"""plimsoll.top: the machines of tests/live, which do not exist."""
import json
import os
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import plimsoll
from plimsoll import _records
from program import program
from rows import Rows
import test_answers

LIVE = pathlib.Path(__file__).resolve().parent.parent / "live"
sys.path.insert(0, str(LIVE))
from machines import write_root  # noqa: E402

NVML = pathlib.Path(os.environ["PLIMSOLL_PROGRAM"]).parent / "nvml" / "nvml-550.so"


@unittest.skipUnless(NVML.exists(), "the stand-ins for libnvidia-ml were not built")
class Top(unittest.TestCase):
    def machine(self, scenario, root):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        write_root(root, pathlib.Path(folder.name))
        patch = mock.patch.dict(os.environ, PLIMSOLL_ROOT=folder.name, PLIMSOLL_NVML=str(NVML),
                                PLIMSOLL_SCENARIO=str(LIVE / "scenarios" / f"{scenario}.txt"))
        patch.start()
        self.addCleanup(patch.stop)

    def test_rows(self):
        self.machine("r550", "host")
        answer = plimsoll.top()
        said = json.loads(program("top", "--once", "--json"))
        for report in (said, answer.to_dict()):
            report.pop("time_ms", None)
        self.assertEqual(answer.to_dict(), said)
        first = answer.devices[0]
        self.assertEqual((first.name, first.memory.total), ("NVIDIA A100-SXM4-40GB", 40 << 30))
        train = first.processes[0]
        self.assertEqual((train.pid, train.user, train.memory), (4210, "alice", 11 << 30))
        self.assertEqual((train.predicted, train.difference), (6 << 30, 5 << 30))

    def test_growth(self):
        self.machine("growing", "host")
        train = plimsoll.top(ticks=2, interval=0.1).devices[0].processes[0]
        self.assertEqual(train.peak, train.memory)
        self.assertGreater(train.growth_per_s, 0)
        self.assertIsNone(plimsoll.top().devices[0].processes[0].growth_per_s)

    def test_declared(self):
        """Each member of the JSON is declared, and is what it is declared to be; each row of top.def is one."""
        rows = Rows(self)
        for scenario, root in (("r550", "host"), ("growing", "host"), ("mig", "host"), ("lost", "host"), ("container", "container")):
            with self.subTest(scenario):
                self.machine(scenario, root)
                data = plimsoll.top(ticks=2, interval=0.1).to_dict()
                test_answers.Records().members(_records.TopReport, data, scenario)
                rows.walk(data)
        self.assertEqual(rows.unseen({"top"}), [])

    def test_none(self):
        self.machine("no_gpu", "empty")
        with mock.patch.dict(os.environ, PLIMSOLL_NVML="libnvidia-none.so"):
            answer = plimsoll.top()
        self.assertEqual(answer.devices, [])
        self.assertTrue(all(look.found for look in answer.looked) and answer.looked)

    def test_refused(self):
        with self.assertRaisesRegex(plimsoll.UsageError, "'--interval'.*got '0.01'"):
            plimsoll.top(ticks=2, interval=0.01)


if __name__ == "__main__":
    unittest.main()
