"""The scenarios of tests/unit/scenarios.c, asked by eight threads, have the answers that one thread gets.

`make tsan` runs this file with the thread sanitizer, too.
"""
import pathlib
import re
import threading
import unittest

import plimsoll
from program import DATA

SCENARIOS = pathlib.Path(__file__).resolve().parent.parent / "unit" / "scenarios.c"
ROW = re.compile(r'\{"([^"]+)", "([^"]*)",\s+(?:ask_(\w+)|NULL), (?:NULL|"([^"]+)")\}')


def scenarios():
    """(function, its arguments, its keyword arguments) of each row."""
    for model, settings, ask, other in ROW.findall(SCENARIOS.read_text()):
        words = dict(word.partition("=")[::2] for word in settings.split())
        given = {key: True if key == "sequence_parallel" else value for key, value in words.items()}
        if given.pop("infer", None) is not None:
            given["mode"] = "infer"
        place = DATA / model if (DATA / model).exists() else model
        if other:
            yield plimsoll.diff, (place, DATA / other), given
        else:
            yield getattr(plimsoll, ask or "replay"), (place,), given


class Threads(unittest.TestCase):
    def test_scenarios(self):
        asked, failed = list(scenarios()), []
        self.assertGreater(len(asked), 75)
        alone = [self.answer(*q) for q in asked]

        def work(first):
            try:
                for i in range(len(asked)):
                    at = (first + i) % len(asked)
                    assert self.answer(*asked[at]) == alone[at], asked[at]
            except BaseException as e:  # which a thread would only print
                failed.append(e)
        threads = [threading.Thread(target=work, args=(i * 11,)) for i in range(8)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])

    @staticmethod
    def answer(function, args, given):
        return str(function(*args, **given))


if __name__ == "__main__":
    unittest.main()
