"""The callbacks for transformers' Trainer and for Lightning, on the pretend GPU and on the CPU."""
import importlib.util
import json
import os
import pathlib
import subprocess
import sys
import unittest
import warnings
from types import SimpleNamespace

try:
    import torch
except ImportError:
    raise unittest.SkipTest("this Python has no PyTorch")

import plimsoll
from plimsoll import callbacks

HERE = pathlib.Path(__file__).resolve().parent
MIB = 1 << 20


def script(name, *command):
    """What the last line of a script says."""
    done = subprocess.run([*command, sys.executable, str(HERE / name)], stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, encoding="utf-8")
    said = [line for line in done.stderr.splitlines() if line.startswith('{"lines"')]
    if done.returncode or not said:
        raise AssertionError(done.stdout + done.stderr)
    return json.loads(said[0])


def pretended(name):
    return script(name, os.environ["PLIMSOLL_PROGRAM"], "run", "--gpu", "t4", "--")


class Trainings(unittest.TestCase):
    def check_predicted(self, said):
        self.assertIsNone(said["why"])
        if said["measured"]:
            for key in ("parameters", "buffers", "optimizer_state"):
                self.assertEqual(said["predicted"][key], said["measured"][key], key)
            for key in ("peak_allocated", "peak_reserved"):
                self.assertAlmostEqual(said["predicted"][key] / said["measured"][key], 1, delta=0.01, msg=key)

    def check(self, name, parameters):
        said = pretended(name)
        self.assertEqual(said["measured"]["parameters"], 4 * parameters)
        states = 2 * 4 * parameters  # and a count of steps each
        self.assertTrue(states <= said["measured"]["optimizer_state"] < states + 1000)
        self.assertIn("measured peak, after 2 steps", said["lines"][-1])
        self.check_predicted(said)

        said = script(name)
        self.assertIsNone(said["measured"])
        self.assertIn("nothing is measured: the model is on 'cpu'", said["lines"][-1])
        self.check_predicted(said)

    def test_wrapped_for_mixed_precision(self):
        """What accelerate puts around forward is not counted beside the setting that asked for it."""
        def prediction(net):
            said = []
            monitor = callbacks.Monitor(said.append)
            monitor.start(net)
            monitor.predict(net, (torch.zeros(8, 64),), {}, lambda: {"autocast": "bf16", "loss": "sum"})
            self.assertIsNotNone(monitor.prediction, said)
            return monitor.prediction.memory.peak_requested

        net = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(4)))
        plain = prediction(net)
        net._original_forward = net.forward

        def forward(x):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return net._original_forward(x).float()

        net.forward = forward
        self.assertEqual(prediction(net), plain)
        self.assertIs(net.forward, forward)

    def test_machine(self):
        """The release of PyTorch, and a card by the name that its driver gives."""
        def of(card, kind="cuda"):
            made = SimpleNamespace(__version__="2.11.0+cu130", cuda=SimpleNamespace(get_device_name=lambda device: card))
            return callbacks.machine_settings(made, SimpleNamespace(type=kind))

        self.assertEqual(of("NVIDIA H100 80GB HBM3"), {"torch": "2.11", "gpu": "NVIDIA H100 80GB HBM3"})
        self.assertEqual(of("NVIDIA of 2040"), {"torch": "2.11"})
        self.assertEqual(of("", kind="cpu"), {"torch": "2.11"})
        self.assertEqual(plimsoll.estimate("resnet18", **of("NVIDIA H100 80GB HBM3")).fit.gpu, "NVIDIA H100 SXM5 80GB")

    @unittest.skipUnless(importlib.util.find_spec("transformers"), "this Python has no transformers")
    def test_trainer(self):
        e, layers = 128, 2
        block = (e * 3 * e + 3 * e) + (e * e + e) + (e * 4 * e + 4 * e) + (4 * e * e + e) + 4 * e
        self.check("callbacks_trainer.py", 1000 * e + 128 * e + layers * block + 2 * e)

    @unittest.skipUnless(importlib.util.find_spec("lightning"), "this Python has no lightning")
    def test_lightning(self):
        self.check("callbacks_lightning.py", 512 * 2048 + 2048 + 2048 * 10 + 10)


class Settings(unittest.TestCase):
    def test_optimizers(self):
        p, q = ([torch.nn.Parameter(torch.zeros(2))] for _ in range(2))
        adam = torch.optim.AdamW([{"params": p}, {"params": q, "lr": 1, "weight_decay": 0.5}], foreach=True)
        self.assertIs(callbacks.plain_optimizer(adam), adam)
        self.assertIs(callbacks.plain_optimizer(SimpleNamespace(optimizer=adam)), adam)
        self.assertIn("adamw", plimsoll.estimate("resnet18", optimizer=adam).to_dict()["settings"]["optimizer"])
        with self.assertRaises(callbacks.Unknown):
            callbacks.plain_optimizer(torch.optim.SGD([{"params": p}, {"params": q, "momentum": 0.9}]))

    def test_trainer(self):
        plain = dict(world_size=1, n_gpu=1, bf16=False, fp16=False, gradient_accumulation_steps=4, max_grad_norm=1.0)
        self.assertEqual(callbacks.trainer_settings(SimpleNamespace(**plain)), {
            "loop": "trainer", "loss": "model", "autocast": None, "accumulate": 4, "clip": True, "grad_scaler": None})
        self.assertTrue(callbacks.trainer_settings(SimpleNamespace(**{**plain, "fp16": True}))["grad_scaler"])
        for change in ({"world_size": 2}, {"torch_compile": True}, {"deepspeed": "x"}, {"label_smoothing_factor": 0.1}):
            with self.assertRaises(callbacks.Unknown):
                callbacks.trainer_settings(SimpleNamespace(**{**plain, **change}))

    def test_lightning(self):
        plain = dict(precision="bf16-mixed", world_size=1, optimizers=[1], accumulate_grad_batches=1,
                     gradient_clip_val=None)
        self.assertEqual(callbacks.lightning_settings(SimpleNamespace(**plain)), {
            "loss": "model", "autocast": "bf16", "accumulate": 1, "clip": None, "grad_scaler": None})
        self.assertTrue(callbacks.lightning_settings(SimpleNamespace(**{**plain, "precision": "16-mixed"}))["grad_scaler"])
        for change in ({"precision": "bf16-true"}, {"world_size": 2}, {"optimizers": [1, 2]}):
            with self.assertRaises(callbacks.Unknown):
                callbacks.lightning_settings(SimpleNamespace(**{**plain, **change}))


class Unknown(unittest.TestCase):
    def test_no_number(self):
        """What is not part of an estimate has no prediction, and the training goes on."""
        def settings():
            raise callbacks.Unknown("more than one GPU")

        lines = []
        monitor = callbacks.Monitor(lines.append)
        net = torch.nn.Linear(3, 4)
        monitor.wait(net, settings)
        self.assertEqual(net(torch.zeros(2, 3)).shape, (2, 4))
        self.assertIsNone(monitor.prediction)
        self.assertEqual(lines, ["plimsoll: predicted peak: unknown (more than one GPU)"])
        net(torch.zeros(2, 3))
        self.assertEqual(len(lines), 1)  # asked once


class Warnings(unittest.TestCase):
    def warned(self, free, reserved):
        """What is said if a training that is predicted to reserve 90 to 100 MiB meets this much memory."""
        lines = []
        monitor = callbacks.Monitor(lines.append)
        monitor._device = torch.device("cuda", 0)
        monitor._torch = SimpleNamespace(cuda=SimpleNamespace(
            mem_get_info=lambda device: (free * MIB, 1000 * MIB), memory_reserved=lambda device: reserved * MIB))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            monitor.warn(SimpleNamespace(peak_reserved=100 * MIB, reserved_low=90 * MIB))
        self.assertEqual(len(caught), len(lines))
        self.assertTrue(all(issubclass(w.category, callbacks.MemoryWarning) for w in caught))
        return lines[0].split(" out of")[0] if lines else None

    def test_all(self):
        for free, reserved, said in ((100, 0, None), (60, 40, None), (99, 0, "may run"), (50, 40, "may run"),
                                     (89, 0, "will run"), (0, 20, "will run")):
            warned = self.warned(free, reserved)
            self.assertEqual(warned, said and f"plimsoll: the training {said}", (free, reserved))


if __name__ == "__main__":
    unittest.main()
