"""The answers of plimsoll.estimate are the program's, to the byte."""
import json
import os
import subprocess
import unittest

import plimsoll

PROGRAM = os.environ["PLIMSOLL_PROGRAM"]


def program(*args):
    done = subprocess.run([PROGRAM, *args], stdout=subprocess.PIPE, encoding="utf-8",
                          env={**os.environ, "COLUMNS": "80"})
    return done.stdout


class Estimate(unittest.TestCase):
    def test_figures(self):
        answer = plimsoll.estimate("resnet50", batch=32)
        # README.md: what a program in C prints
        self.assertEqual(answer.memory.peak_allocated, 2914581504)

    def test_text(self):
        answer = plimsoll.estimate("resnet50", batch=32, optimizer="adamw", gpu="t4")
        said = program("estimate", "resnet50", "--batch", "32", "--optimizer", "adamw", "--gpu", "t4")
        self.assertEqual(str(answer) + "\n", said)

    def test_data(self):
        answer = plimsoll.estimate("vit_b_16", batch=8, gpu="t4", zero_grad="zeros", clip=True)
        said = program("estimate", "vit_b_16", "--batch", "8", "--gpu", "t4", "--zero-grad", "zeros", "--clip",
                       "--json")
        self.assertEqual(answer.to_dict(), json.loads(said))
        self.assertIs(answer.fits, True)


if __name__ == "__main__":
    unittest.main()
