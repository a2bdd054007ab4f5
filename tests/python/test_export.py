"""An nn.Module is estimated as the same training loop runs on the pretend GPU."""
import concurrent.futures
import json
import os
import subprocess
import sys
import tempfile
import unittest
import warnings

import plimsoll
from program import program

try:
    import torch
    import nets
    from plimsoll._export import export_module
except ImportError:
    torch = None

CARD = "h100"
FIGURES = ("peak_requested", "peak_allocated", "peak_reserved")


def run_of(name):
    """The figures of two steps on the pretend GPU; values that are asked for are true, as in an export."""
    command = [os.environ["PLIMSOLL_PROGRAM"], "run", "--gpu", CARD, "--scalar", "1", "--json", "--",
               sys.executable, "-W", "ignore", nets.__file__, name]
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8")
    if done.returncode:
        raise AssertionError(done.stderr)
    report = json.loads(done.stdout)
    return [report[k] for k in FIGURES]


def cpu_build():
    return torch is not None and not torch.version.cuda


@unittest.skipUnless(cpu_build(), "needs a CPU build of PyTorch")
class Runs(unittest.TestCase):
    def test_bytes(self):
        """Exported with a batch of 1 or 2, asked for the batch of the run."""
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            for i, (name, ran) in enumerate(zip(nets.NETS, pool.map(run_of, nets.NETS))):
                with self.subTest(name):
                    module, args, kwargs = nets.NETS[name](1 + i % 2)
                    told = plimsoll.estimate(module.train(), *args, example_kwargs=kwargs, batch=nets.BATCH, gpu=CARD,
                                             optimizer="adamw", loop="typical").to_dict()
                    self.assertEqual([told["memory"][k] for k in FIGURES], ran)
                    self.assertEqual(told["certainty"]["unknown_ops"], [])


class Fixed(torch.nn.Linear if torch else object):
    """Works with a batch of 4 or fewer."""

    def forward(self, x):
        return super().forward(x if len(x) < 5 else x.view(5, -1))


class Sized(torch.nn.Linear if torch else object):
    """Its sizes depend on data."""

    def forward(self, x):
        return super().forward(x[: int((x > 0).sum())])


class Odd(torch.nn.Linear if torch else object):
    """Returns what torch.export does not know."""

    class Answer:
        def __init__(self, scores):
            self.scores, self.name = scores, "odd"

    def forward(self, x):
        return self.Answer(super().forward(x))


@unittest.skipUnless(torch, "needs PyTorch")
class Exports(unittest.TestCase):
    def checkpoint(self, how, inputs=1):
        module, args, kwargs = nets.checkpointed(inputs, how)
        return export_module(module.train(), args, kwargs).settings.get("checkpoint")

    def test_checkpoints(self):
        """Named as the setting names them; what is not a module call gets a name of its own."""
        for how, want in (("each", "layers.*"), ("reentrant", "layers.*,reentrant"), ("some", "layers.1,layers.4"),
                          ("pairs", "checkpoint(0),checkpoint(1),checkpoint(2)"), ("function", "checkpoint(0)")):
            self.assertEqual(self.checkpoint(how), want)
        self.assertIsNone(export_module(*nets.pictures(1)).settings.get("checkpoint"))

    def test_setting_beats_the_module(self):
        module, args, _ = nets.checkpointed(4, "each")
        own, none = (plimsoll.estimate(module.train(), *args, **more).memory.activations
                     for more in ({}, {"checkpoint": "none"}))
        self.assertLess(own, none)

    def test_batch(self):
        exported = export_module(*nets.pictures(1))
        self.assertEqual((exported.batch, exported.dynamic, exported.settings["batch"]), (1, True, "1"))

    def test_version(self):
        """Simulated is the PyTorch that made the module, unless another is asked for."""
        module, args, kwargs = nets.pictures(1)
        model = plimsoll.Model(module, *args, example_kwargs=kwargs)
        self.assertEqual(plimsoll.estimate(model).settings["torch"], ".".join(torch.__version__.split(".")[:2]))
        self.assertEqual(plimsoll.estimate(model, torch="2.5").settings["torch"], "2.5")

    def test_fixed_batch(self):
        exported = export_module(Fixed(3, 3), (torch.zeros(2, 3),), batch=5)
        self.assertEqual((exported.batch, exported.dynamic), (5, False))
        answer = plimsoll.estimate(Fixed(3, 3).train(), torch.zeros(2, 3), batch=5)
        self.assertIn("fixed batch size of 5", " ".join(str(answer).split()))

    def test_parameters(self):
        """Tied ones count once, frozen ones do not train; buffers are not parameters."""
        module, args, kwargs = nets.text(2)
        model = plimsoll.estimate(module.train(), *args, example_kwargs=kwargs).model
        self.assertEqual(model.parameters, sum(p.numel() for p in module.parameters()))
        module, args, kwargs = nets.pictures(2, frozen=True)
        model = plimsoll.estimate(module.train(), *args).model
        self.assertEqual(model.trainable_parameters, sum(p.numel() for p in module.parameters() if p.requires_grad))
        self.assertEqual(model.buffers, sum(b.numel() for b in module.buffers()))

    def test_meta(self):
        """The same on the meta device, whichever device the inputs are on."""
        want = export_module(*nets.text(2)).data
        with torch.device("meta"):
            module, args, kwargs = nets.text(2)
        self.assertEqual(export_module(module, args, kwargs).data, want)
        self.assertEqual(export_module(module, *nets.text(2)[1:]).data, want)

    def test_mode(self):
        module, args, _ = nets.pictures(2)
        infer, train = (plimsoll.estimate(module.train(mode), *args).to_dict()["settings"]["mode"]
                        for mode in (False, True))
        self.assertEqual((infer, train), ("infer", "train"))

    def test_outputs(self):
        answer = plimsoll.estimate(Odd(3, 3).train(), torch.zeros(2, 3))
        self.assertEqual(answer.model.parameters, 12)

    def test_assumptions_are_told(self):
        module, args, kwargs = nets.nested(2)
        exported = export_module(module, args, kwargs)
        self.assertRegex(exported.notes[0], r"^Taken to be 1 or true, .*: nets.py:\d+\.$")
        with tempfile.NamedTemporaryFile(suffix=".pt2") as file:
            file.write(exported.data)
            file.flush()
            self.assertIn(exported.notes[0], " ".join(program("estimate", file.name).split()))

    def test_question_of_a_list(self):
        """`x in tensor` is a question of a value, too: whether a batch has padding."""
        class Net(torch.nn.Embedding):
            def forward(self, x):
                return super().forward(x) * (2 if 0 in x else 1)

        exported = export_module(Net(9, 4), (torch.zeros(2, 3, dtype=torch.long),))
        self.assertRegex(exported.notes[0], r"^Taken to be 1 or true, .*: test_export.py:\d+\.$")

    def test_own_autocast(self):
        """A region of autocast in the module is told of, one that is turned off is not."""
        def said(*args, **kwargs):
            class Net(torch.nn.Linear):
                def forward(self, x):
                    with torch.autocast(*args, **kwargs):
                        return super().forward(x)

            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # PyTorch's, where there is no CUDA
                return "enters torch.autocast" in str(plimsoll.estimate(Net(8, 8), torch.zeros(2, 8), loss="sum"))

        self.assertTrue(said("cpu", dtype=torch.bfloat16))
        self.assertTrue(said("cuda", dtype=torch.float16))
        self.assertFalse(said("cpu", enabled=False))
        self.assertFalse(said("cuda", torch.float16, False))

    def test_error(self):
        with self.assertRaisesRegex(plimsoll.UnsupportedError, r"^'Sized' could not be exported: .*plimsoll run -- "):
            export_module(Sized(3, 3), (torch.zeros(2, 3),))

    def test_nothing_stays(self):
        module, args, kwargs = nets.nested(2)
        before = {k: v.clone() for k, v in module.state_dict().items()}
        export_module(module, args, kwargs)
        self.assertEqual(list(before), list(module.state_dict()))
        self.assertTrue(all(torch.equal(v, before[k]) for k, v in module.state_dict().items()))
        self.assertFalse(any(m._forward_hooks or m._forward_pre_hooks for m in module.modules()))
        self.assertFalse({"__bool__", "item", "__float__"} & set(vars(torch.Tensor)))
        self.assertFalse(torch.compiler.is_compiling())


if __name__ == "__main__":
    unittest.main()
