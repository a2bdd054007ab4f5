"""plimsoll.track() and summary(): on the CPU here, on the pretend GPU in a child process."""
import gc
import io
import json
import os
import pathlib
import subprocess
import sys
import threading
import unittest
import weakref
from unittest import mock

try:
    import torch
    import plimsoll
except ImportError as e:
    raise unittest.SkipTest(f"this Python has no PyTorch: {e}")

HERE = pathlib.Path(__file__).resolve().parent
PROGRAM = os.environ["PLIMSOLL_PROGRAM"]
MIB = 1 << 20


def quiet(**options):
    return plimsoll.track(io.StringIO(), device="cpu", **options)


def make(n):
    a = torch.empty(n)
    b = torch.empty(n)
    return b


class Lines(unittest.TestCase):
    def test_block(self):
        with quiet() as t:
            first = sys._getframe().f_lineno + 1
            a = torch.empty(1000)
            b = torch.empty(10, dtype=torch.float16)
            c = a[:500]  # the same storage
        self.assertEqual([(r.line, r.change) for r in t.rows], [(first, 4000), (first + 1, 20)])
        self.assertEqual([r.allocated - t.rows[0].allocated for r in t.rows], [0, 20])
        self.assertEqual(t.rows[0].file, "test_track.py")
        self.assertEqual(t.rows[1].rows, ((("+", 1, (10,), 20, "Tensor", "fp16")),))

    def test_no_stdout(self):
        with mock.patch("sys.stdout", None):
            with plimsoll.track(device="cpu"):
                torch.empty(10)

    def test_replaced(self):
        a = torch.empty(100)
        b = torch.empty(10, 10)
        with quiet() as t:
            a = torch.empty(100)  # takes the place of one of the same kind
            b = torch.empty(100)  # and of another shape
        self.assertEqual([(r.change, [x.sign for x in r.rows]) for r in t.rows], [(0, ["+", "-"])])

    def test_two_calls(self):
        t = quiet().start()
        a = torch.empty(50)
        t.stop()
        b = torch.empty(60)
        self.assertEqual([r.change for r in t.rows], [200])
        with self.assertRaises(RuntimeError):
            t.stop()
        t.start()
        with self.assertRaises(RuntimeError):
            t.start()
        t.stop()

    def test_decorator(self):
        @quiet()
        def f(n):
            a = torch.empty(n)
            return f(n - 1) if n > 9 else a

        f(10)
        self.assertEqual([(r.function, r.change) for r in f.tracker.rows[:2]], [("f", 40), ("f", 36)])
        with self.assertRaises(TypeError):
            quiet()(lambda: (yield))

    def test_depth(self):
        with quiet() as t:
            make(100)
        self.assertEqual(t.rows, [])  # all that it made is gone when the line ends
        with quiet(depth=1) as t:
            c = make(100)
        self.assertEqual([(r.function, r.change) for r in t.rows],
                         [("make", 400), ("make", 400), ("test_depth", -400)])

    def test_functions(self):
        def outer():
            return make(10)
        with quiet(functions=[make]) as t:
            c = outer()
        self.assertEqual([r.function for r in t.rows], ["make", "make", "test_functions"])

    def test_least(self):
        with quiet(least=1000) as t:
            a = torch.empty(10)
            b = torch.empty(1000)
        self.assertEqual([r.change for r in t.rows], [4000])

    def test_function_for_lines(self):
        lines = []
        with plimsoll.track(lines.append, device="cpu") as t:
            a = torch.empty(10)
        self.assertEqual(lines, t.rows)

    def test_kinds(self):
        x = torch.randn(2, 3)
        with quiet() as t:
            net = torch.nn.Sequential(torch.nn.Linear(3, 5), torch.nn.BatchNorm1d(5))
            optimizer = torch.optim.AdamW(net.parameters())
            loss = net(x).sum()
            loss.backward()
            optimizer.step()
        kinds = [{row.kind: row.bytes for row in line.rows if row.sign == "+"} for line in t.rows]
        sizes = [[row.bytes for row in line.rows if row.kind == "Parameter"] for line in t.rows]
        parameters = 4 * (15 + 5 + 5 + 5)
        self.assertEqual(sum(sizes[0]), parameters)
        self.assertEqual(sum(r.bytes for r in t.rows[0].rows if r.kind == "Buffer"), 4 * 10 + 8)
        # the graph's tensors are no variables of ours
        self.assertEqual({row.kind for row in t.rows[1].rows}, {"Tensor"})
        self.assertGreater(t.rows[1].change, 4 * 2 * 5)
        self.assertEqual(sum(r.bytes for r in t.rows[2].rows if r.kind == "Gradient"), parameters)
        self.assertTrue(any(r.sign == "-" for r in t.rows[2].rows))  # what the graph had saved
        self.assertEqual(sum(r.bytes for r in t.rows[3].rows if r.kind == "Optimizer state"), 2 * parameters + 16)

    def test_text(self):
        out = io.StringIO()
        with plimsoll.track(out, device="cpu"):
            a = torch.empty(7, 512, 512, 3, 3)
        line = out.getvalue().split("\n")
        self.assertIn("no statistics", line[0])
        self.assertRegex(line[1], r"^test_track.py:\d+ test_text: allocated \d+\.\d MiB \(\+63\.0\)$")
        self.assertEqual(line[2], "  + | 1 * Size:(7, 512, 512, 3, 3)  | 66.060 M | Tensor | fp32")
        with self.assertRaises(ValueError):
            plimsoll.track(unit="GB")


class Held(unittest.TestCase):
    def test_two_names(self):
        with quiet() as t:
            tensor1 = torch.empty(1000)
            tensor3 = tensor1
            del tensor1
            del tensor3
        made, deleted, released = t.rows
        self.assertEqual((deleted.change, [tuple(h) for h in deleted.held]),
                         (0, [("tensor1", 4000, ("`tensor3` in `test_two_names`",))]))
        self.assertEqual((released.change, released.held), (-4000, ()))

    def test_list_and_attribute(self):
        class Keeper:
            pass
        keeper, kept = Keeper(), []
        with quiet() as t:
            a = torch.empty(1000)
            keeper.x = a
            kept.append([a.view(10, 100)])
            a = None
        self.assertEqual(set(t.rows[-1].held[0].holders),
                         {"`x` of a `Keeper`", "`kept` in `test_list_and_attribute`"})

    def test_graph(self):
        w = torch.randn(100, requires_grad=True)
        with quiet() as t:
            a = torch.randn(100)
            y = (a * w).sum()
            del a
        self.assertEqual([h.name for h in t.rows[-1].held], ["a"])
        self.assertIn("autograd graph", str(t))


class Manners(unittest.TestCase):
    """It leaves everything as it was."""

    def test_exception(self):
        with self.assertRaises(ZeroDivisionError):
            with quiet() as t:
                a = torch.empty(100)
                1 / 0
        self.assertIsNone(sys.gettrace())
        self.assertEqual([r.change for r in t.rows], [400])
        self.assertEqual(torch.utils._python_dispatch._len_torch_dispatch_stack(), 0)

    def test_exception_below(self):
        def fails():
            a = torch.empty(100)
            raise KeyError

        with quiet(depth=3) as t:
            try:
                fails()
            except KeyError:
                pass
            b = torch.empty(50)
        self.assertEqual([(r.function, r.change) for r in t.rows if r.change > 0],
                         [("fails", 400), ("test_exception_below", 200)])

    def test_keeps_nothing(self):
        def f():
            with quiet():
                a = torch.empty(100)
            gone = weakref.ref(a)
            a = None
            return gone()

        def g():
            with quiet():
                a = torch.empty(100)
                gone = weakref.ref(a)
                a = torch.empty(200)
                found = gone()
            return found

        self.assertIsNone(f())
        self.assertIsNone(g())

    def test_nested(self):
        with quiet() as outer:
            a = torch.empty(100)
            with quiet() as inner:
                b = torch.empty(200)
            c = torch.empty(300)
        self.assertEqual([r.change for r in inner.rows], [800])
        self.assertEqual([r.change for r in outer.rows], [400, 800, 1200])
        self.assertIsNone(sys.gettrace())

    def test_not_nested(self):
        first, second = quiet().start(), quiet().start()
        a = torch.empty(100)
        first.stop()
        b = torch.empty(200)
        second.stop()
        self.assertEqual([r.change for r in first.rows], [400])
        self.assertEqual([r.change for r in second.rows if r.change], [400, 800])

    def test_former_trace_function(self):
        events = []

        def former(frame, event, arg):
            events.append(event)
            return former

        before = sys.gettrace()
        sys.settrace(former)
        try:
            with quiet():
                a = torch.empty(100)
            restored = sys.gettrace()
            del events[:]
            make(10)
        finally:
            sys.settrace(before)
        self.assertIs(restored, former)
        self.assertEqual(events[0], "call")

    def test_threads(self):
        trackers = {}

        def work(n):
            with quiet() as t:
                a = torch.empty(n)
                b = torch.empty(n)
            trackers[n] = t

        threads = [threading.Thread(target=work, args=[n]) for n in (100, 200, 300)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        for n, t in trackers.items():
            self.assertEqual([r.change for r in t.rows][:2], [4 * n, 4 * n])

    def test_other_thread_stops(self):
        t, errors = quiet().start(), []

        def stop():
            try:
                t.stop()
            except RuntimeError as e:
                errors.append(str(e))

        thread = threading.Thread(target=stop)
        thread.start()
        thread.join()
        t.stop()
        self.assertEqual(errors, ["a tracker stops on the thread that started it"])


class Summaries(unittest.TestCase):
    def test_cpu(self):
        gc.collect()
        before = plimsoll.summary("cpu")
        net = torch.nn.Linear(100, 100)
        after = plimsoll.summary("cpu")
        n, size = before.kinds.get("Parameter", (0, 0))
        self.assertEqual(after.kinds["Parameter"], (n + 2, size + 4 * 10100))
        self.assertEqual(after.allocated - before.allocated, 4 * 10100)
        self.assertIsNone(after.reserved)
        self.assertIn("no statistics", str(after))


def pretended(script):
    """What a script prints on a pretend T4."""
    done = subprocess.run([PROGRAM, "run", "--gpu", "t4", "--", sys.executable, str(HERE / script)],
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    if done.returncode:
        raise AssertionError(done.stdout + done.stderr)
    return json.loads(done.stdout.partition("\n")[0])


class PretendGpu(unittest.TestCase):
    def test_seed(self):
        """gpu_mem_track's example: its rows, as it prints them, and its totals."""
        seen = pretended("track_vgg19.py")
        # src: github.com/Oldpan/Pytorch-Memory-Utils, the listing with M = 10^6 bytes, cut to six characters
        self.assertEqual([[n, shape, str(size / 1e6)[:6]] for n, shape, size, kind in seen["rows"][0]], [
            [7, [512, 512, 3, 3], "66.060"], [3, [256, 256, 3, 3], "7.0778"], [1, [512, 256, 3, 3], "4.7185"],
            [1, [256, 128, 3, 3], "1.1796"], [1, [128, 128, 3, 3], "0.5898"], [1, [128, 64, 3, 3], "0.2949"],
            [1, [64, 64, 3, 3], "0.1474"], [8, [512], "0.0163"], [1, [64, 3, 3, 3], "0.0069"], [4, [256], "0.0040"],
            [2, [128], "0.0010"], [2, [64], "0.0005"]])
        self.assertEqual({kind for *_, kind in seen["rows"][0]}, {"Parameter"})
        self.assertEqual([[n, shape, str(size / 1e6)[:6]] for rows in seen["rows"][1:] for n, shape, size, _ in rows], [
            [1, [30, 3, 512, 512], "94.371"], [1, [40, 3, 512, 512], "125.82"], [1, [60, 3, 512, 512], "188.74"],
            [1, [120, 3, 512, 512], "377.48"], [1, [80, 3, 512, 512], "251.65"],
            [-1, [120, 3, 512, 512], "377.48"], [-1, [40, 3, 512, 512], "125.82"]])
        # its "Total Tensor Used Memory", in MiB
        self.assertEqual(seen["totals"], ["76.4", "466.4", "1066.4", "586.4"])

    def test_del(self):
        self.assertEqual(pretended("track_del.py"), [
            ["del tensor1", 0, ["`tensor3` in `track_del.py`"]], ["del tensor3", -30 * 3 * 512 * 512 * 4, []]])

    def test_summary(self):
        torch_says, ours = pretended("track_summary.py")
        self.assertEqual(ours, torch_says)

    def test_same_memory(self):
        """Tracked or not, a training takes the same memory."""
        self.assertEqual(self.same("plain"), self.same("tracked"))

    def same(self, word):
        done = subprocess.run([PROGRAM, "run", "--gpu", "t4", "--json", "--", sys.executable,
                               str(HERE / "track_same.py"), word],
                              stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, encoding="utf-8", check=True)
        report = json.loads(done.stdout)
        return {key: report[key] for key in ("peak_requested", "peak_allocated", "peak_reserved", "peak", "lines")}


if __name__ == "__main__":
    unittest.main()
