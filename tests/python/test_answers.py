"""Every answer is the program's, to the byte."""
import contextlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import typing
import unittest
import unittest.mock

import plimsoll
from plimsoll import _ask, _records, _results
from program import DATA, program
from rows import Rows

OOM = ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacity of 23.64 "
       "GiB of which 10.00 MiB is free. Of the allocated memory 22.00 GiB is allocated by PyTorch, and 1.00 GiB is "
       "reserved by PyTorch but unallocated.")

# What is asked, in Python and of the program.
@contextlib.contextmanager
def incomplete_model():
    """A config.json of which only the text model is built."""
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "config.json")
        path.write_text('{"model_type": "llava_next", "text_config": {"model_type": "llama"}, "vision_config": {}}')
        yield path


ASKED = [
    (lambda: plimsoll.estimate("resnet50", batch=32, optimizer="adamw", gpu="t4"),
     "estimate resnet50 --batch 32 --optimizer adamw --gpu t4"),
    (lambda: plimsoll.estimate("resnet18", batch=4096, gpu="t4"), "estimate resnet18 --batch 4096 --gpu t4"),
    (lambda: plimsoll.estimate("vit_b_16", batch=8, zero_grad="zeros", clip=True, budget=10 * 2**30),
     "estimate vit_b_16 --batch 8 --zero-grad zeros --clip --budget 10GiB"),
    (lambda: plimsoll.estimate("llama-3.1-8b", mode="infer", dtype="bf16", seq=512, vram="24GiB"),
     "estimate llama-3.1-8b --infer --dtype bf16 --seq 512 --vram 24GiB"),
    (lambda: plimsoll.estimate(DATA / "resnet18.pt2", dim={"s77": 8}, torch="2.4"),
     f"estimate {DATA}/resnet18.pt2 --dim s77=8 --torch 2.4"),
    (lambda: plimsoll.estimate("vgg11", input=(2, 3, 64, 64), checkpoint="segments=3"),
     "estimate vgg11 --input 2,3,64,64 --checkpoint segments=3"),
    (lambda: plimsoll.batches("resnet18", gpu="t4"), "estimate resnet18 --explain batch --gpu t4"),
    (lambda: plimsoll.segments("vgg16"), "estimate vgg16 --explain segments"),
    (lambda: plimsoll.times("resnet18", batch=8, gpu="a100"), "estimate resnet18 --batch 8 --explain time --gpu a100"),
    (lambda: plimsoll.fit("resnet18", gpu=["t4", "a100"], optimizer="adam"),
     "fit resnet18 --gpu t4,a100 --optimizer adam"),
    (lambda: plimsoll.cards("resnet18", batch=512, gpu=["t4", "rtx2060", "h100", "mi300x"]),
     "gpus --for resnet18 --batch 512 --gpu t4,rtx2060,h100,mi300x"),
    (lambda: plimsoll.serve("qwen2.5-7b", engine="vllm,max_num_seqs=64", context=4096, concurrency=8, gpu="a100", kv="fp8"),
     "serve qwen2.5-7b --engine vllm,max_num_seqs=64 --context 4096 --concurrency 8 --gpu a100 --kv fp8"),
    (lambda: plimsoll.serve_fit("qwen2.5-7b", context=4096, gpu=["t4", "a100"]),
     "fit qwen2.5-7b --serve --context 4096 --gpu t4,a100"),
    (lambda: plimsoll.layers("alexnet", batch=2), "layers alexnet --batch 2"),
    (lambda: plimsoll.info(DATA / "resnet18.pt2"), f"info {DATA}/resnet18.pt2"),
    (lambda: plimsoll.info("llama-3.1-8b"), "info llama-3.1-8b"),
    (lambda: plimsoll.compare("resnet18", "vit_b_16", gpu="t4"), "compare resnet18 vit_b_16 --gpu t4"),
    (lambda: plimsoll.compare("mlp:8,8,8"), "compare mlp:8,8,8"),
    (lambda: plimsoll.size(2, 3), "size 2x3"),
    (lambda: plimsoll.size("256x3x100x100"), "size 256x3x100x100"),
    (lambda: plimsoll.models("resnet"), "models resnet"),
    (lambda: plimsoll.gpus("4090"), "gpus 4090"),
    (lambda: plimsoll.gpus(), "gpus"),
    (lambda: plimsoll.ops("conv"), "ops conv"),
    (lambda: plimsoll.optimizers(), "optimizers"),
    (lambda: plimsoll.engines(), "engines"),
    (lambda: plimsoll.strategies("fsdp"), "strategies fsdp"),
    (lambda: plimsoll.adapters(), "adapters"),
    (lambda: plimsoll.quantizations("awq"), "quantizations awq"),
    (lambda: plimsoll.loops(), "loops"),
    (lambda: plimsoll.losses(), "losses"),
    (lambda: plimsoll.profiles(), "profiles"),
    (lambda: plimsoll.formats(), "formats"),
]

SNAPSHOTS = DATA.parent / "golden" / "snapshots"
TRACES = DATA.parent / "golden" / "traces"


class Answers(unittest.TestCase):
    def test_asked(self):
        for ask, command in ASKED:
            with self.subTest(command):
                answer = ask()
                self.assertEqual(str(answer) + "\n", program(*command.split()))
                self.assertEqual(answer.to_dict(), json.loads(program(*command.split(), "--json")))
                self.assertEqual(answer.text(width=60, ascii=True) + "\n",
                                 program(*command.split(), "--width", 60, "--ascii"))

    def test_tables(self):
        for ask, command in ASKED:
            if command.split()[0] not in ("estimate", "info"):
                with self.subTest(command):
                    self.assertEqual(ask().csv(), program(*command.split(), "--csv"))
        with self.assertRaisesRegex(plimsoll.UnsupportedError, "estimate"):
            plimsoll.estimate("alexnet").csv()

    def test_styles(self):
        layers = plimsoll.layers("alexnet")
        self.assertEqual(layers.text(depth=1, si=True) + "\n", program("layers", "alexnet", "--depth", 1, "--si"))
        self.assertEqual(layers.text(sort="macs", top=3, columns="type,macs") + "\n",
                         program("layers", "alexnet", "--sort", "macs", "--top", 3, "--columns", "type,macs"))
        self.assertEqual(layers.csv(types="Conv2d"), program("layers", "alexnet", "--types", "Conv2d", "--csv"))
        with self.assertRaisesRegex(plimsoll.UsageError, "unknown style 'wide'"):
            layers.text(wide=3)

    def test_figures(self):
        answer = plimsoll.estimate("resnet50", batch=32)
        # README.md: what the program in C prints
        self.assertEqual(answer.memory.peak_allocated, 2914581504)
        live = answer.peak.live[0]
        self.assertEqual((live.name, live.role, live.shape, live.bytes),
                         ("conv1", "out", (32, 64, 112, 112), 4 * 32 * 64 * 112 * 112))
        self.assertEqual(plimsoll.layers("alexnet").total.macs, answer_macs("alexnet"))

    def test_fits(self):
        said = {gpu: plimsoll.estimate("resnet50", batch=batch, gpu=gpu).fits
                for gpu, batch in (("t4", 32), ("a100", 4096), (None, 1))}
        self.assertEqual(said, {"t4": True, "a100": False, None: None})
        # in the row of fit, one more than the batch that fits does not certainly fit
        row = plimsoll.fit("resnet50", gpu="t4").cards[0]
        self.assertIs(plimsoll.estimate("resnet50", batch=row.batch, gpu="t4").fits, True)
        more = plimsoll.estimate("resnet50", batch=row.batch + 1, gpu="t4")
        self.assertEqual((more.fits, more.fit.fits), (None, "maybe"))

    def test_incomplete(self):
        """Of a model that also sees only the text model is built: never a yes."""
        with incomplete_model() as path:
            answer = plimsoll.estimate(path, mode="infer", dtype="bf16", seq=64, gpu="h100")
            row = plimsoll.fit(path, mode="infer", dtype="bf16", seq=64, gpu="h100").cards[0]
        self.assertEqual((answer.fits, answer.fit.fits), (None, "incomplete"))
        self.assertIn("only the text model", answer.model.left_out)
        self.assertIn("incomplete: " + answer.model.left_out, answer.model.note)
        self.assertEqual((row.verdict, row.at_most, row.headroom), ("incomplete", True, None))
        served = plimsoll.serve("gemma-3-4b", gpu="h100", context=1024)
        self.assertEqual((served.fits, served.longest_context.sure), ("incomplete", 0))
        self.assertEqual(plimsoll.fit("resnet18", gpu="t4").cards[0].verdict, "yes")

    def test_asked_again(self):
        first = plimsoll.estimate("vit_b_16", batch=8, optimizer="sgd,momentum=0.9", gpu="t4", clip=True,
                                  input=(8, 3, 224, 224), autocast="bf16", alloc_conf="max_split_size_mb:64")
        again = plimsoll.estimate("vit_b_16", **first.settings)
        self.assertEqual(again, first)
        self.assertNotEqual(plimsoll.estimate("vit_b_16"), first)

    def test_compared_estimates(self):
        one, two = (plimsoll.estimate("resnet18", batch=n) for n in (1, 64))
        rows = plimsoll.compare(one, two).models
        self.assertEqual([r.peak_allocated for r in rows], [x.memory.peak_allocated for x in (one, two)])

    def test_oom(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "log.txt")
            path.write_text("step 3\n" + OOM + "\n")
            said, data = program("oom", path), json.loads(program("oom", path, "--json"))
            for message in (path, OOM, RuntimeError(OOM)):
                answer = plimsoll.oom(message)
                self.assertEqual(str(answer) + "\n", said)
                self.assertEqual(answer.to_dict(), data)
        self.assertEqual(answer.numbers.tried.bytes, 20 * 2**20)
        self.assertIsNone(answer.numbers.private)

    def test_tape(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.tape")
            tape = plimsoll.tape("resnet18", batch=2)
            tape.save(path)
            self.assertEqual(path.read_text(), program("tape", "resnet18", "--batch", 2))
            self.assertEqual(tape.events(), [json.loads(x) for x in
                                             program("tape", "resnet18", "--batch", 2, "--json").splitlines()])
            for vram in (None, "100MiB"):
                said = json.loads(program("replay", path, *(["--vram", vram] if vram else []), "--json"))
                for subject in (path, str(path), tape):
                    self.assertEqual(plimsoll.replay(subject, vram=vram).to_dict(), said)
        events, live, peak = tape.events(), 0, 0
        sizes = {e["id"]: e["bytes"] for e in events if e["event"] == "alloc"}
        for e in events:
            live += sizes[e["id"]] * {"alloc": 1, "free": -1}.get(e["event"], 0) if "id" in e else 0
            peak = max(peak, live)
        self.assertEqual(plimsoll.replay(tape).stats.requested_bytes.peak, peak)

    def test_diff(self):
        small, tape = dict(batch=8, optimizer="adamw", torch="2.13"), plimsoll.tape("mlp", batch=16)
        options = [x for k, v in small.items() for x in (f"--{k}", v)]
        for name, events, causes in (("train-2.13", 0, []), ("train-kept-2.13", 1, ["kept"])):
            path = SNAPSHOTS / f"{name}.pickle"
            said = json.loads(program("diff", "mlp", path, *options, "--json"))
            for model in ("mlp", plimsoll.Model("mlp")):
                answer = plimsoll.diff(model, path, **small)
                self.assertEqual(answer.to_dict(), said)
            self.assertEqual(answer.events.only_a, events)
            self.assertEqual([c.cause for c in answer.causes], causes)
            self.assertEqual(answer.differs, bool(causes))
        self.assertFalse(plimsoll.diff(tape, "mlp", batch=16).differs)
        self.assertTrue(plimsoll.diff(tape, "mlp", batch=8).differs)
        self.assertFalse(plimsoll.diff(tape, "mlp", batch=8, within="10%").differs)
        self.assertFalse(plimsoll.diff(tape, tape).differs)
        for text in ("5 %x", "-1%", "nan%", "some"):
            with self.assertRaisesRegex(plimsoll.UsageError, "'within'"):
                plimsoll.diff(tape, tape, within=text)

    def test_frames(self):
        try:
            import pandas  # noqa: F401
        except ImportError:
            with self.assertRaisesRegex(ImportError, "needs pandas"):
                plimsoll.layers("alexnet").to_frame()
            return
        frame = plimsoll.layers("alexnet").to_frame()
        leaves = frame[frame.leaf & (frame.type != "Input")]
        self.assertEqual(int(leaves.params.sum()), 61100840)
        answer = plimsoll.estimate("alexnet")
        self.assertEqual(len(answer.to_frame("timeline")), len(answer.timeline.buckets))
        with self.assertRaisesRegex(plimsoll.UsageError, "live, phases, timeline, changes"):
            answer.to_frame("lives")

    def test_notebook(self):
        for answer in (plimsoll.estimate("alexnet"), plimsoll.size(3), plimsoll.compare("mlp:8,8,8")):
            shown = answer._repr_html_()
            self.assertIn(str(answer).split("\n", 1)[0].replace("<", "&lt;"), shown)
            self.assertEqual(shown.count("<pre>"), shown.count("</pre>"))
        shown = plimsoll.estimate("alexnet")._repr_html_()
        self.assertEqual((shown.count("<svg"), "Timeline (" in shown), (1, False))
        self.assertEqual(plimsoll.compare("alexnet")._repr_html_().count("<svg"), 1)


def answer_macs(model):
    return plimsoll.estimate(model).flops.forward_macs


class Import(unittest.TestCase):
    def test_loads_nothing(self):
        """`import plimsoll` leaves ctypes, json and PyTorch to whoever uses a name of it."""
        code = ("import sys; before = set(sys.modules); import plimsoll; "
                "print(*sorted({m.split('.')[0] for m in set(sys.modules) - before} - set(sys.stdlib_module_names)))"
                "; print('ctypes' in set(sys.modules) - before, len(plimsoll.__all__) > 30)")
        if sys.version_info < (3, 10):
            self.skipTest("no sys.stdlib_module_names")
        said = subprocess.run([sys.executable, "-c", code], stdout=subprocess.PIPE, encoding="utf-8", check=True).stdout
        self.assertEqual(said, "plimsoll\nFalse True\n")

    def test_names(self):
        for name in plimsoll.__all__:
            self.assertIsNotNone(getattr(plimsoll, name))
            self.assertIn(name, dir(plimsoll))
        self.assertEqual(plimsoll.__version__, program("--version").split()[-1])
        with self.assertRaises(AttributeError):
            plimsoll.guess


class Records(unittest.TestCase):
    """What the classes declare is what the JSON has."""

    SOMETIMES = {"seq", "seq_max", "note", "left_out", "packed_weights", "origin", "large", "small",
                 "requested_bytes", "releases"}  # docs/json.md

    def compare(self, hint, value, where):
        args = typing.get_args(hint)
        if hint is typing.Any:
            return
        if value is None:
            self.assertIn(type(None), args, where)
        elif typing.get_origin(hint) is typing.Union:
            self.compare(args[0], value, where)
        elif typing.get_origin(hint) is list:
            self.assertIsInstance(value, list, where)
            for x in value:
                self.compare(args[0], x, where + "[]")
        elif typing.get_origin(hint) is tuple:
            self.assertIsInstance(value, list, where)
        elif typing.get_origin(hint) is dict:
            self.assertIsInstance(value, dict, where)
            for key, x in value.items():
                self.compare(args[1], x, f"{where}[{key}]")
        elif isinstance(hint, type) and issubclass(hint, _records.Record):
            self.members(hint, value, where)
        else:
            wanted = (int, float) if hint is float else hint
            self.assertIsInstance(value, wanted, where)

    def members(self, cls, data, where):
        hints = {k: v for k, v in typing.get_type_hints(cls).items() if not k.startswith("_")}
        names = {"class" if k == "class_" else k for k in hints}
        self.assertLessEqual(set(data), names, where)
        self.assertLessEqual(names - set(data), self.SOMETIMES, where)
        for key, value in data.items():
            self.compare(hints["class_" if key == "class" else key], value, f"{where}.{key}")

    def test_declared(self):
        answers = [ask() for ask, _ in ASKED]
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "step.tape")
            plimsoll.tape("resnet18").save(path)
            answers += [plimsoll.oom(OOM), plimsoll.replay(path, gpu="t4"), plimsoll.replay(path, vram="100MiB"),
                        *(plimsoll.replay(SNAPSHOTS / f"{n}.pickle") for n in ("native-2.12", "oom-2.13")),
                        *(plimsoll.replay(TRACES / f"{n}.json") for n in ("cuda", "oom", "cpu")),
                        *(plimsoll.diff("mlp", SNAPSHOTS / f"{n}.pickle", batch=8) for n in ("train-2.13", "native-2.12"))]
        for answer in answers:
            name = type(answer).__name__
            if isinstance(answer, _results.Listing):
                for x in answer:
                    self.members(type(x), x.to_dict(), name)
            else:
                self.members(type(answer), answer.to_dict(), name)

    def test_every_figure(self):
        """The members of each answer are the rows of src/answers, in their order, and each row is in some answer."""
        rows = Rows(self)
        for ask, _ in ASKED:
            rows.walk(ask().to_dict())
        rows.walk(plimsoll.diff("mlp", SNAPSHOTS / "train-2.13.pickle", batch=8).to_dict())
        rows.walk(plimsoll.diff("mlp", "mlp", batch=8).to_dict())
        rows.walk(plimsoll.compare("resnet18", torch="2.99").to_dict())
        rows.walk(plimsoll.estimate("gpt2", seq=64, dp=2, strategy="fsdp2", rank="all", gpu="t4").to_dict())
        with incomplete_model() as path:
            rows.walk(plimsoll.estimate(path, seq=8, mode="infer").to_dict())
        rows.walk(plimsoll.estimate("gpt2", seq=64, quant="nf4", lora="r=8").to_dict())
        rows.walk(plimsoll.replay(plimsoll.tape("mlp", batch=8), vram="1MiB", torch="2.99").to_dict())
        for path in SNAPSHOTS / "oom-2.13.pickle", TRACES / "cuda.json", TRACES / "cpu.json":
            rows.walk(plimsoll.replay(path).to_dict())
        with tempfile.TemporaryDirectory() as cache:  # of the hub
            folder = pathlib.Path(cache, "models--acme--llama/snapshots/main")
            folder.mkdir(parents=True)
            shutil.copy(DATA / "llama-tiny/config.json", folder)
            with unittest.mock.patch.dict(os.environ, {"HF_HUB_CACHE": cache}):
                rows.walk(plimsoll.estimate("acme/llama").to_dict())
        rows.walk(plimsoll.oom(OOM + " Process 4210 has 6.20 GiB memory in use.").to_dict())
        rows.walk_lists()
        elsewhere = {"run", "record", "top", "history"}  # test_run.py, test_top.py, tests/record, tests/live
        self.assertEqual(rows.unseen(rows.files - elsewhere), [])

    def test_attributes(self):
        gpu = plimsoll.gpus("rtx4090")[0]
        self.assertEqual(gpu.class_, gpu.to_dict()["class"])
        self.assertIn("class_", dir(gpu))
        with self.assertRaises(AttributeError):
            gpu.colour


if __name__ == "__main__":
    unittest.main()
