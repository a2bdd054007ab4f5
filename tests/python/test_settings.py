"""Every setting of the library is a keyword argument, and what is not is refused as the program refuses it."""
import functools
import random
import unittest

import plimsoll
from program import DATA, program

FUNCTIONS = ("estimate", "layers", "fit", "info", "compare", "replay", "diff", "tape", "serve")


@functools.lru_cache(maxsize=None)
def step():
    return plimsoll.tape("resnet18")


class Number:
    """As an integer of numpy: no int."""

    def __init__(self, value):
        self.value = value

    def __index__(self):
        return self.value

    def __str__(self):
        return str(self.value)


def values(setting, chance):
    """Values of a setting, as one would write them in Python."""
    if setting.kind == "flag":
        return [True, False]
    if setting.kind == "int":
        return [max(1, setting.least), 2]
    if setting.kind == "word":
        return list(setting.words)
    if setting.kind == "fraction":
        return [1, 0.5, chance.uniform(0.01, 1)]
    return {"vram": ["24GiB", 24 * 2**30], "margin": ["0%", "2.5%"], "cublas_workspace": [":4096:8"], "budget": ["100GiB", 2**40], "input": [(1, 3, 224, 224)], "dim": [], "images": [], "audio": [], "quant": [],
            "checkpoint": ["none", "blocks"], "lora": ["r=4,targets=fc"], "peft": ["ia3,targets=fc"], "freeze": ["layer1,layer2.*"], "optimizer": ["sgd", "adamw"],
            "keep": ["none", "inputs"], "ema": ["none", "lerp"], "torch": ["2.4", 2.13], "gpu": ["t4", "a100"],
            "alloc_conf": ["max_split_size_mb:64"], "allocator": ["caching", "none"], "within": ["5%", "64MiB", 2**20],
            "strategy": ["ddp,view=1", "fsdp2"], "rank": ["0", 1],
            "engine": ["vllm", "vllm,enforce_eager", "llama.cpp"], "kv": ["auto", "fp8"],
            "weights": ["w8a8"], "draft": ["gpt2"], "transformers": ["5.24"], "bitsandbytes": []}[setting.key]


def asked(function, **settings):
    """Asks with the settings; the answer's own settings."""
    if settings.keys() & {"strategy", "rank"}:  # of a job of several cards
        settings = {**settings, "dp": 2}
    if function == "replay":
        return plimsoll.replay(step(), **settings)
    if function == "diff":
        return plimsoll.diff("resnet18", step(), **settings)
    if function == "tape":
        return str(plimsoll.tape("resnet18", **settings))
    if function == "fit":  # of one card, which is enough, and of a small model
        settings = settings if settings.get("gpu") or settings.get("vram") else {"gpu": "t4", **settings}
    return getattr(plimsoll, function)("gpt2" if function == "serve" else "resnet18", **settings)


class Settings(unittest.TestCase):
    def test_every_one(self):
        """Each function takes each setting that the library gives to its command, with each of its values."""
        chance, taken = random.Random(17), 0
        for function in FUNCTIONS:
            for setting in plimsoll.settings(function):
                for value in values(setting, chance):
                    with self.subTest(function=function, **{setting.key: value}):
                        try:
                            asked(function, **{setting.key: value})
                        except plimsoll.Error as e:  # a value may not suit ResNet-18, but each is read
                            self.assertNotRegex(str(e), f"setting|^'{setting.key}': ")
                        taken += 1
        self.assertGreater(taken, 200)

    def test_others_are_refused(self):
        for function in FUNCTIONS:
            own = {s.key for s in plimsoll.settings(function)}
            for setting in plimsoll.settings():
                if setting.key not in own and function in FUNCTIONS:
                    with self.assertRaisesRegex(plimsoll.UsageError, f"'{function}' has no setting '{setting.key}'"):
                        asked(function, **{setting.key: 1})
        with self.assertRaisesRegex(plimsoll.UsageError, "unknown setting 'optimiser'; did you mean 'optimizer'?"):
            plimsoll.estimate("resnet18", optimiser="adam")

    def test_both_say_the_same(self):
        for key, value, words in (("batch", 0, "--batch 0"), ("dtype", "int3", "--dtype int3"),
                                  ("gpu", "t5", "--gpu t5"), ("optimizer", "adan", "--optimizer adan"),
                                  ("vram", "24Gi", "--vram 24Gi")):
            with self.assertRaises(plimsoll.UsageError) as caught:
                plimsoll.estimate("resnet18", **{key: value})
            said = program("estimate", "resnet18", *words.split(), code=2)
            self.assertEqual(f"plimsoll: {caught.exception}\n".replace(f"'{key}'", f"'--{key}'"),
                             said.replace(f"'{key}'", f"'--{key}'"))

    def test_python_values(self):
        one = plimsoll.estimate("vgg11", input=(2, 3, 64, 64), clip=True, vram=24 * 2**30, budget="1TiB", seq=None)
        two = plimsoll.estimate("vgg11", input="2,3,64,64", clip="true", vram="24GiB", budget=2**40)
        self.assertEqual(one, two)
        self.assertEqual((one.settings["input"], one.settings["clip"]), ("2,3,64,64", True))
        self.assertEqual(plimsoll.estimate("vgg11", input=[Number(n) for n in (2, 3, 64, 64)], batch=Number(2)).memory,
                         plimsoll.estimate("vgg11", input=(2, 3, 64, 64)).memory)
        file = DATA / "resnet18.pt2"
        self.assertEqual(plimsoll.estimate(file, dim={"s77": 8}), plimsoll.estimate(file, dim=["s77=8"]))
        self.assertEqual(plimsoll.fit("alexnet", gpu=["t4", "v100"]), plimsoll.fit("alexnet", gpu="t4,v100"))
        self.assertEqual(plimsoll.size((2, 3)), plimsoll.size("2x3"))
        self.assertEqual(plimsoll.size().elements, 1)

    def test_dtypes(self):
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        self.assertEqual(plimsoll.estimate("resnet18", dtype=torch.bfloat16, autocast=torch.float16),
                         plimsoll.estimate("resnet18", dtype="bf16", autocast="fp16"))
        with self.assertRaises(plimsoll.UsageError):
            plimsoll.estimate("resnet18", dtype=torch.int8)

    @staticmethod
    def memory(model, **settings):
        """Or why there is none: muon takes matrices only."""
        try:
            return plimsoll.estimate(model, **settings).memory
        except plimsoll.UnsupportedError as e:
            return str(e)

    def test_optimizers(self):
        """Each optimizer of torch.optim stands for itself."""
        try:
            import torch
        except ImportError:
            self.skipTest("no PyTorch")
        weights = [torch.nn.Parameter(torch.zeros(4, 4))]
        made = [(kind, {}) for kind in vars(torch.optim).values() if isinstance(kind, type) and
                issubclass(kind, torch.optim.Optimizer) and kind is not torch.optim.Optimizer]
        self.assertGreater(len(made), 12)
        for kind, options in [*made, (torch.optim.SGD, {"momentum": 0.9}), (torch.optim.SGD, {"lr": 1e-5}),
                              (torch.optim.AdamW, {"fused": True}), (torch.optim.Adam, {"foreach": False}),
                              (torch.optim.Adam, {"amsgrad": True}), (torch.optim.RMSprop, {"centered": True}),
                              (torch.optim.LBFGS, {"history_size": 3})]:
            name = {"SparseAdam": "sparse_adam"}.get(kind.__name__, kind.__name__.lower())
            how = "".join({"fused": ",impl=fused", "foreach": ",impl=forloop"}.get(k, f",{k}={float(v):g}")
                          for k, v in options.items())
            asked = {"optimizer": kind(weights, **options), "torch": "2.13"}
            with self.subTest(name + how):
                model = DATA / "small_sparse.pt2" if name == "sparse_adam" else "mlp:64,64"
                self.assertEqual(self.memory(model, **asked), self.memory(model, optimizer=name + how, torch="2.13"))
        with self.assertRaisesRegex(plimsoll.UsageError, "'Mine' is not of torch.optim"):
            plimsoll.estimate("alexnet", optimizer=type("Mine", (torch.optim.SGD,), {})(weights))

    def test_described(self):
        batch = next(s for s in plimsoll.settings() if s.key == "batch")
        self.assertEqual((batch.kind, batch.least, batch.commands), ("int", 1, ("estimate", "layers", "fit", "tape", "diff", "info",
                                                                               "compare", "gpus")))
        self.assertLess({s.key for s in plimsoll.settings("info")}, {s.key for s in plimsoll.settings()})


if __name__ == "__main__":
    unittest.main()
