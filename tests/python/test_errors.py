"""An error has the message, the code and the place that the program and the library give."""
import os
import pickle
import signal
import threading
import unittest

import plimsoll
from plimsoll import _errors, _library
from program import DATA, program


class Errors(unittest.TestCase):
    # What raises it, the class and its Python relative, and what the program is asked for the same message.
    RAISED = [
        (lambda: plimsoll.estimate(DATA / "README.md"), plimsoll.FormatError, ValueError,
         f"estimate {DATA}/README.md", 3),
        (lambda: plimsoll.estimate(DATA / "tiny.gguf"), plimsoll.UnsupportedError, NotImplementedError,
         f"estimate {DATA}/tiny.gguf", 3),
        (lambda: plimsoll.estimate("alexnet", input=(1, 3, 8, 8)), plimsoll.ShapeError, ValueError,
         "estimate alexnet --input 1,3,8,8", 3),
        (lambda: plimsoll.size("9223372036854775808"), plimsoll.RangeError, OverflowError,
         "size 9223372036854775808", 3),
        (lambda: plimsoll.estimate("./nowhere.pt2"), plimsoll.MissingFileError, FileNotFoundError,
         "estimate ./nowhere.pt2", 4),
        (lambda: plimsoll.replay("/nowhere.tape"), plimsoll.FileError, OSError, "replay /nowhere.tape", 4),
        (lambda: plimsoll.estimate("resnet51"), plimsoll.UsageError, ValueError, "estimate resnet51", 2),
        (lambda: plimsoll.oom(DATA / "README.md"), plimsoll.FormatError, ValueError, f"oom {DATA}/README.md", 3),
    ]

    def test_same_as_the_program(self):
        for ask, cls, relative, command, code in self.RAISED:
            with self.subTest(command):
                with self.assertRaises(cls) as caught:
                    ask()
                error = caught.exception
                self.assertIsInstance(error, relative)
                self.assertIsInstance(error, plimsoll.Error)
                self.assertEqual(f"plimsoll: {error}\n", program(*command.split(), code=code))
                self.assertEqual(error.code, cls.code)

    def test_every_status(self):
        """Each status of the library has a class, and the other way round."""
        names = {n: _library.library().plim_status_name(n).decode() for n in range(-1, -20, -1)}
        known = {n for n, name in names.items() if name != "unknown status"}
        classes = {_errors.error_of(n, "text", 7) for n in known}
        self.assertEqual({type(e).code for e in classes}, known)
        self.assertTrue(all(str(e) == "text" and e.place == 7 for e in classes))
        self.assertIs(type(_errors.error_of(-99, "text", 0)), plimsoll.Error)

    def test_place(self):
        """The byte of a file at which reading ended."""
        data = bytearray((DATA / "tiny.gguf").read_bytes())
        with self.assertRaises(plimsoll.FormatError) as caught:
            plimsoll.info(bytes(data[:100]))
        self.assertLessEqual(0, caught.exception.place)
        self.assertLessEqual(caught.exception.place, 100)

    def test_travels(self):
        """Between processes, as a pool of workers does."""
        with self.assertRaises(plimsoll.MissingFileError) as caught:
            plimsoll.estimate("./nowhere.pt2")
        again = pickle.loads(pickle.dumps(caught.exception))
        self.assertEqual((type(again), str(again), again.code, again.place),
                         (type(caught.exception), str(caught.exception), caught.exception.code, 0))

    def test_null_characters(self):
        """C would end the text there, and answer another question."""
        for ask in (lambda: plimsoll.estimate("resnet18\0x"), lambda: plimsoll.estimate("resnet18", optimizer="sgd\0x"),
                    lambda: plimsoll.gpus("t4\0x"), lambda: plimsoll.size("3\0x"), lambda: plimsoll.replay("x\0y"),
                    lambda: plimsoll.layers("lenet5").text(columns="type\0")):
            with self.assertRaisesRegex(plimsoll.UsageError, "null character"):
                ask()

    def test_odd_names(self):
        with self.assertRaisesRegex(plimsoll.MissingFileError, "nowhere"):
            plimsoll.Model(os.fsdecode(b"./nowhere\xff.pt2"))

    def test_type(self):
        with self.assertRaisesRegex(TypeError, "not 'int'"):
            plimsoll.estimate(3)


class Progress(unittest.TestCase):
    def test_reported(self):
        seen = []
        plimsoll.fit("alexnet", gpu="t4,a100", progress=lambda *what: seen.append(what))
        self.assertIn("T4", seen[0][2])
        self.assertTrue(all(total == 2 for _, total, _ in seen))

    def test_exception_ends_the_call(self):
        def stop(*_):
            raise LookupError("enough")
        with self.assertRaisesRegex(LookupError, "enough"):
            plimsoll.fit("alexnet", progress=stop)

    def test_interrupt(self):
        """Ctrl-C ends a long call, and leaves the handler as it was."""
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            self.skipTest("Ctrl-C is ignored here")

        def press(done, *_):
            if done >= 3:
                os.kill(os.getpid(), signal.SIGINT)
        with self.assertRaises(KeyboardInterrupt):
            plimsoll.fit("resnet18", progress=press)
        self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)


class Threads(unittest.TestCase):
    def test_shared(self):
        """A model, and an answer, serve many threads at once."""
        model, alone = plimsoll.Model("resnet50"), plimsoll.estimate("resnet50", batch=4)
        shared, failed = plimsoll.estimate("resnet50", batch=4), []

        def work(batch):
            try:
                for n in (batch, batch + 8):
                    own = plimsoll.estimate(model, batch=n)
                    assert own.model.name == "resnet50" and own.settings["batch"] == n
                    expected[n].append(own.memory.peak_allocated)
                assert str(shared) == str(alone) and shared.memory.peak_allocated == alone.memory.peak_allocated
            except BaseException as e:  # which a thread would only print
                failed.append(e)
        expected = {n: [] for n in range(1, 17)}
        threads = [threading.Thread(target=work, args=(n % 8 + 1,)) for n in range(24)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
        for n, peaks in expected.items():
            self.assertEqual(set(peaks), {plimsoll.estimate("resnet50", batch=n).memory.peak_allocated})
            self.assertEqual(len(peaks), 3)


if __name__ == "__main__":
    unittest.main()
