"""The door of last resort: a model that the library does not know is built and exported by a Python that has its own."""
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

import plimsoll
from plimsoll import _door

try:
    import torch
    from plimsoll._export import export_module
except ImportError:
    torch = None
try:
    import transformers
except ImportError:
    transformers = None

# As much of transformers as the door needs: one language model, of a type that nobody else has.
FAKE = '''
import os, sys, time
print("a library may print")
with open(os.environ["FAKE_SAID"], "a") as file:
    file.write("imported\\n")
__version__ = "9.9.9"
import torch

class ToyConfig:
    is_encoder_decoder, max_position_embeddings = False, 64
    def __init__(self, **keys):
        self.dtype, self.text_config = "float32", None
        self.__dict__.update(keys)
    @classmethod
    def from_dict(cls, keys):
        if "says" in keys:
            raise ValueError(keys["says"] + "\\nand much more")
        if "signal" in keys:
            os.kill(os.getpid(), keys["signal"])
        time.sleep(keys.get("seconds", 0))
        return cls(**keys)
    def to_dict(self):
        return dict(self.__dict__)

class ToyForCausalLM(torch.nn.Module):
    main_input_name = "input_ids"
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.embed = torch.nn.Embedding(100, config.hidden_size)
        self.head = torch.nn.Linear(config.hidden_size, 100, bias=False)
    @classmethod
    def _from_config(cls, config, **how):
        return cls(config)
    def forward(self, input_ids, labels=None):
        x = self.embed(input_ids)
        if not self.training or torch.rand([]) >= getattr(self.config, "layerdrop", 0):
            x = x.relu()
        if input_ids.shape[1] > self.config.window:
            x = x * 2
        logits = self.head(x)
        loss = None if labels is None else torch.nn.functional.cross_entropy(logits.flatten(0, 1), labels.flatten())
        return {"loss": loss, "logits": logits} if loss is not None else {"logits": logits}

class ToyForCTC(ToyForCausalLM):
    """Its loss depends on what the labels are."""

CONFIG_MAPPING = {"toylm": ToyConfig}
AutoConfig = None
'''
AUTO = 'MODEL_FOR_CAUSAL_LM_MAPPING_NAMES = {"toylm": "ToyForCausalLM"}\n'
CONFIG = {"model_type": "toylm", "architectures": ["ToyForCausalLM"], "hidden_size": 48, "window": 32}


class Door(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp())
        self.addCleanup(shutil.rmtree, self.folder)
        (self.folder / "lib" / "transformers" / "models" / "auto").mkdir(parents=True)
        (self.folder / "lib" / "transformers-9.9.9.dist-info").mkdir()
        (self.folder / "lib" / "transformers" / "__init__.py").write_text(FAKE)
        (self.folder / "lib" / "transformers" / "models" / "__init__.py").touch()
        (self.folder / "lib" / "transformers" / "models" / "auto" / "__init__.py").touch()
        (self.folder / "lib" / "transformers" / "models" / "auto" / "modeling_auto.py").write_text(AUTO)
        self.said = self.folder / "said"
        self.entries = self.folder / "cache" / "plimsoll" / "exports"

    def config(self, **keys):
        path = self.folder / "toy" / "config.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps({**CONFIG, **keys}))
        return path

    def ask(self, *words, python=sys.executable, **environ):
        """(exit status, stdout, stderr)"""
        env = {k: v for k, v in os.environ.items() if not k.startswith("PLIMSOLL_PYTHON") and k != "VIRTUAL_ENV"}
        env.update(XDG_CACHE_HOME=str(self.folder / "cache"), FAKE_SAID=str(self.said), COLUMNS="500",
                   PYTHONPATH=str(self.folder / "lib"), **environ)
        done = subprocess.run([os.environ["PLIMSOLL_PROGRAM"], *map(str, words), *(["--python", python] if python else [])],
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, encoding="utf-8",
                              env=env)
        return done.returncode, done.stdout, done.stderr

    def answer(self, *words, **more):
        status, out, err = self.ask("estimate", *words, "--json", "--advice", "none", **more)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def refused(self, *words, **more):
        status, out, err = self.ask("estimate", *words, **more)
        self.assertEqual((status, out), (3, ""), err)
        return err

    def exports(self):
        return len(self.said.read_text().splitlines()) if self.said.exists() else 0


@unittest.skipUnless(torch, "needs PyTorch")
class Answers(Door):
    def test_answer(self):
        """By the module, with its loss; whose it is, is said."""
        told = self.answer(self.config(), "--batch", 3, "--seq", 16)
        self.assertEqual(told["model"]["parameters"], 2 * 100 * 48)
        self.assertEqual((told["model"]["name"], told["settings"]["seq"], told["settings"]["loss"]), ("toy", 16, "model"))
        self.assertRegex(told["model"]["producer"], r"^transformers 9\.9\.9, torch \d")
        self.assertEqual(told["certainty"]["unknown_ops"], [])
        text = self.ask("estimate", self.config().parent)[1]
        self.assertIn(f"Exported by transformers 9.9.9 with torch {torch.__version__.partition('+')[0]} in {sys.executable}.",
                      text)
        self.assertIn("batch 1 · seq 64 ", text)  # all that the model allows

    def test_incomplete(self):
        """A loss that depends on labels is left out, and no verdict on the rest is a yes."""
        told = self.answer(self.config(), "--gpu", "h100")
        self.assertEqual((told["model"].get("left_out", ""), told["fit"]["fits"]), ("", "yes"))
        status, text = self.ask("estimate", self.config(architectures=["ToyForCTC"]).parent, "--gpu", "h100")[:2]
        self.assertEqual(status, 1)
        self.assertIn("incomplete for NVIDIA H100", text)
        self.assertIn("the own loss of ToyForCTC", " ".join(text.split()).replace("The own", "the own"))

    def test_kept(self):
        """Exported once for all sizes it holds for, and again for what decides it."""
        for times, *words in ((1, "--batch", 2), (1, "--batch", 5, "--seq", 7), (1, "--optimizer", "adamw"),
                              (2, "--seq", 33),  # past the window: another graph
                              (2, "--seq", 64), (3, "--infer"), (3, "--infer", "--batch", 9)):
            self.answer(self.config(), "--seq", 8, *words)
            self.assertEqual(self.exports(), times, words)
        self.answer(self.config(hidden_size=64), "--seq", 8)
        self.assertEqual(self.exports(), 4)
        (self.folder / "lib" / "transformers-9.9.9.dist-info").rename(self.folder / "lib" / "transformers-9.9.10.dist-info")
        self.answer(self.config(), "--seq", 8)
        self.assertEqual(self.exports(), 5)

    def test_default_is_not_what_was_asked_before(self):
        self.answer(self.config(window=1000), "--seq", 8)
        self.assertEqual(self.answer(self.config(window=1000))["settings"]["seq"], 64)
        self.answer(self.config(), "--seq", 8)
        self.assertEqual(self.answer(self.config())["settings"]["seq"], 64)  # not in the range of the first export

    def test_broken_cache(self):
        """What is cut short is made again; a folder that others write to is not used."""
        want = self.answer(self.config())
        entry, = self.entries.iterdir()
        entry.write_bytes(entry.read_bytes()[:1000])
        self.assertEqual(self.answer(self.config()), want)
        self.assertEqual(self.exports(), 2)
        self.entries.chmod(0o777)
        for times in (3, 4):
            self.assertEqual(self.answer(self.config()), want)
            self.assertEqual(self.exports(), times)

    def test_cache_has_an_end(self):
        self.entries.mkdir(parents=True)
        self.entries.chmod(0o700)
        self.entries.parent.chmod(0o700)
        old, new = self.entries / "old", self.entries / "new"
        for i, path in enumerate((old, new)):
            with open(path, "wb") as file:
                file.truncate(_door.ROOM // 2)
            os.utime(path, (i + 1, i + 1))
        self.answer(self.config())
        self.assertEqual((old.exists(), new.exists(), len(list(self.entries.iterdir()))), (False, True, 2))

    def test_layers_that_are_left_out(self):
        """By chance, in a run; all of them are counted."""
        want = self.answer(self.config())
        told = self.answer(self.config(layerdrop=0.5))
        self.assertEqual(told["memory"], want["memory"])
        self.assertIn("All layers are counted, though 'layerdrop' leaves some out by chance.",
                      self.ask("estimate", self.config(layerdrop=0.5))[1])

    def test_fit(self):
        """The batch is left open."""
        status, out, err = self.ask("fit", self.config(window=1000), "--gpu", "t4", "--json")
        self.assertEqual(status, 0, err)
        self.assertGreater(json.loads(out)["cards"][0]["batch"], 1000)

    def test_in_python(self):
        """plimsoll.estimate(config) builds it in the same way."""
        code = ("import plimsoll, sys, json; config = json.load(open(sys.argv[1])); from transformers import ToyConfig\n"
                "for model in (config, sys.argv[1], ToyConfig(**config)):\n"
                "    told = plimsoll.estimate(model, batch=3, seq=16, mode='infer')\n"
                "    print(told.memory.peak_requested, told.model.producer)")
        env = {**os.environ, "XDG_CACHE_HOME": str(self.folder / "cache"), "FAKE_SAID": str(self.said),
               "PYTHONPATH": os.pathsep.join([str(self.folder / "lib"), os.environ["PYTHONPATH"]])}
        done = subprocess.run([sys.executable, "-c", code, str(self.config())], stdout=subprocess.PIPE, env=env,
                              encoding="utf-8", check=True)
        want = self.answer(self.config(), "--batch", 3, "--seq", 16, "--infer")
        line = f"{want['memory']['peak_requested']} {want['model']['producer']}"
        self.assertEqual(done.stdout.splitlines(), ["a library may print"] + [line] * 3)


class Refusals(Door):
    @unittest.skipUnless(torch, "needs PyTorch")
    def test_error(self):
        """The first line of an error of the library, and the command that shows all of it."""
        err = self.refused(self.config(says="no such key"))
        self.assertRegex(err, r"^plimsoll: '.*config.json': model_type 'toylm' is not supported \(.*\); "
                              rf"{re.escape(sys.executable)} could not build it: ValueError: no such key\n"
                              r"plimsoll: to see all of it: ")
        command = err.splitlines()[1].partition(": to see all of it: ")[2]
        env = {**os.environ, "FAKE_SAID": str(self.said), "PYTHONPATH": str(self.folder / "lib")}
        done = subprocess.run(command, shell=True, stderr=subprocess.PIPE, encoding="utf-8", env=env)
        self.assertEqual(done.returncode, 1)
        self.assertIn("and much more", done.stderr)

    @unittest.skipUnless(torch, "needs PyTorch")
    def test_end(self):
        self.assertIn(" was ended by signal 9\n", self.refused(self.config(signal=9)))
        began = time.monotonic()
        err = self.refused(self.config(seconds=100), PLIMSOLL_PYTHON_LIMIT="2")
        self.assertIn("did not finish its export in 2 s (PLIMSOLL_PYTHON_LIMIT)\n", err)
        self.assertLess(time.monotonic() - began, 50)

    @unittest.skipUnless(torch, "needs PyTorch")
    def test_own_code(self):
        """Is not run unless it is trusted."""
        path = self.config(model_type="own", auto_map={"AutoConfig": "own.Own"})
        (path.parent / "own.py").write_text("raise SystemExit('it was run')")
        self.assertIn("model_type 'own' comes with code of its own, which is run only with --trust-remote-code",
                      self.refused(path))

    @unittest.skipUnless(torch, "needs PyTorch")
    def test_unknown(self):
        self.assertIn("could not build it: transformers does not know model_type 'nobodys'\n",
                      self.refused(self.config(model_type="nobodys")))
        self.assertIn("could not build it: transformers does not know class 'ToyForNobody'\n",
                      self.refused(self.config(architectures=["ToyForNobody"])))
        self.assertIn("could not build it: class 'ToyForNobody' comes with code of its own",
                      self.refused(self.config(architectures=["ToyForNobody"], auto_map={"AutoModel": "own.ToyForNobody"})))
        self.assertIn("could not build it: its weights are packed ('quantization_config')",
                      self.refused(self.config(quantization_config={"quant_method": "fp8"})))

    def test_no_library(self):
        shutil.rmtree(self.folder / "lib" / "transformers")
        if transformers is None:
            self.assertRegex(self.refused(self.config()), r"could not build it: it has no .*transformers \('.* -m pip install ")
        self.assertRegex(self.refused("timm:nobodys_net"), r"'timm:nobodys_net' names a model of timm; .* (timm|torch)")

    def test_no_python(self):
        """None is asked, none is there, and one that cannot be run."""
        self.assertIn("; a Python may build it, which '--sandbox always' does not start\n",
                      self.refused(self.config(), "--sandbox", "always"))
        for words, environ in (((), {"PLIMSOLL_PYTHON": "none"}), (("--python", "none"), {}),
                               ((), {"PATH": str(self.folder)})):
            err = self.refused(self.config(), *words, python=None, **environ)
            self.assertRegex(err, r"'toylm' is not supported \(.*\); a Python with transformers may build it: "
                                  r"'pip install torch transformers', or --python PYTHON\n")
        self.assertIn("a Python with timm may build it: 'pip install torch timm',",
                      self.refused("timm:nobodys_net", python=None, PLIMSOLL_PYTHON="none"))
        self.assertIn("; /nowhere/python cannot be run: No such file or directory\n",
                      self.refused(self.config(), python="/nowhere/python"))
        self.assertEqual(self.exports(), 0)

    def test_what_is_wrong_with_a_file(self):
        """Is no reason to start a Python."""
        path = self.config()
        path.write_text('{"model_type": "toylm", ')
        self.assertNotIn("python", self.refused(path))
        path.write_text(json.dumps({"model_type": "gpt2", "n_embd": "many"}))
        self.assertNotIn("python", self.refused(path))
        path.write_text(json.dumps({"model_type": "gpt2", "n_layer": 1}))
        self.assertEqual(self.answer(path)["model"]["format"], "Hugging Face config")
        self.assertEqual(self.exports(), 0)


class Window(torch.nn.Module if torch else object):
    """Another graph behind a window, or for each rest of a division."""

    def __init__(self, window=0, chunk=0):
        super().__init__()
        self.embed, self.window, self.chunk = torch.nn.Embedding(9, 4), window, chunk

    def forward(self, ids):
        x = self.embed(ids)
        if self.window and ids.shape[1] > self.window:
            x = x * 2
        if self.chunk and ids.shape[1] % self.chunk == 0:
            x = x + 1
        return x


@unittest.skipUnless(torch, "needs PyTorch")
class Limits(unittest.TestCase):
    def limits(self, seq, batch=2, sequences=("ids",), **how):
        ids = torch.zeros(batch, seq, dtype=torch.long)
        return export_module(Window(**how), (), {"ids": ids}, sequences=sequences).limits

    def test_limits(self):
        for want, seq, how in (((2, None), 16, {}), ((2, 100), 16, {"window": 100}), ((101, None), 200, {"window": 100}),
                               ((16, 16), 16, {"chunk": 8}), ((17, 17), 17, {"chunk": 8})):
            self.assertEqual(self.limits(seq, **how), {"batch": (2, None), "seq": want}, (seq, how))

    def test_fixed(self):
        self.assertEqual(self.limits(16, sequences=()), {"batch": (2, None)})

    def test_refused_beyond(self):
        """The library refuses a length for which the graph is another."""
        ids = torch.zeros(2, 16, dtype=torch.long)
        data = export_module(Window(window=100), (), {"ids": ids}, sequences=["ids"]).data
        plimsoll.estimate(data, mode="infer", seq=100)
        with self.assertRaisesRegex(plimsoll.Error, "is 101, outside the range"):
            plimsoll.estimate(data, mode="infer", seq=101)


def module_of(kind, name, **keys):
    """What the door builds, for a batch of 2 and a sequence of 20."""
    from plimsoll import _build

    config = {**transformers.CONFIG_MAPPING[kind](**keys).to_dict(), "architectures": [name]}
    return _build.build(_build.Asked(config, batch=2, seq=20))


@unittest.skipUnless(transformers and torch, "needs transformers and PyTorch")
class Inputs(unittest.TestCase):
    def test_shapes(self):
        small, pictures = {"num_hidden_layers": 1}, (2, 3, 224, 224)
        for kind, name, keys, want in (
                ("gpt2", "GPT2LMHeadModel", {"n_layer": 1}, {"input_ids": (2, 20), "labels": (2, 20)}),
                ("bert", "BertForSequenceClassification", small, {"input_ids": (2, 20), "labels": (2,)}),
                ("bert", "BertForQuestionAnswering", small,
                 {"input_ids": (2, 20), "start_positions": (2,), "end_positions": (2,)}),
                ("bert", "BertModel", small, {"input_ids": (2, 20)}),
                ("t5", "T5ForConditionalGeneration", {"num_layers": 1}, {"input_ids": (2, 20), "labels": (2, 20)}),
                ("whisper", "WhisperForConditionalGeneration", {"encoder_layers": 1, "decoder_layers": 1},
                 {"input_features": (2, 80, 3000), "labels": (2, 20)}),
                ("wav2vec2", "Wav2Vec2ForSequenceClassification", small, {"input_values": (2, 20), "labels": (2,)}),
                ("vit", "ViTForImageClassification", small, {"pixel_values": pictures, "labels": (2,)}),
                ("vit", "ViTModel", {"image_size": 96, **small}, {"pixel_values": (2, 3, 96, 96)}),
                ("detr", "DetrForObjectDetection", {}, {"pixel_values": pictures}),
                ("clip", "CLIPModel", {}, {"input_ids": (2, 20), "pixel_values": pictures, "return_loss": True})):
            with self.subTest(name):
                try:
                    built = module_of(kind, name, **keys)
                except ImportError as missing:
                    self.skipTest(str(missing))
                self.assertEqual({k: tuple(v.shape) if torch.is_tensor(v) else v for k, v in built.inputs.items()}, want)
                self.assertTrue(all(x.is_meta for x in (*built.module.parameters(), *built.module.buffers())))

    def test_refusals(self):
        from plimsoll import _build

        with self.assertRaisesRegex(_build.Refusal, "takes 'image_grid_thw', whose values decide its sizes"):
            module_of("qwen2_vl", "Qwen2VLForConditionalGeneration")
        with self.assertRaisesRegex(_build.Refusal, "the shape of '.*', which PatchTSTForPrediction takes, is not known"):
            module_of("patchtst", "PatchTSTForPrediction")


RUN = """
import json, sys, torch, transformers
config = json.load(open(sys.argv[1]))
config = transformers.CONFIG_MAPPING[config["model_type"]].from_dict(config)
model = getattr(transformers, config.architectures[0])._from_config(config).train().cuda()
optimizer = torch.optim.AdamW(model.parameters())
for _ in range(2):
    optimizer.zero_grad()
    ids, labels = (torch.zeros(3, 72, dtype=torch.long).cuda() for _ in range(2))
    out = model(input_ids=ids, labels=labels)
    out.loss.backward()
    optimizer.step()
"""


@unittest.skipUnless(transformers and torch and not torch.version.cuda, "needs transformers and a CPU build of PyTorch")
class Runs(unittest.TestCase):
    def test_bytes(self):
        """As the same training loop on the pretend GPU, with sizes that were not those of the export."""
        small = {"num_hidden_layers": 2, "hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4,
                 "num_key_value_heads": 2, "vocab_size": 500, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2}
        kinds = {"smollm3": "SmolLM3ForCausalLM", "lfm2": "Lfm2ForCausalLM"}
        env = {**os.environ, "TOKENIZERS_PARALLELISM": "false"}
        with tempfile.TemporaryDirectory() as folder:
            env["XDG_CACHE_HOME"], path = folder, os.path.join(folder, "config.json")
            for kind, name in kinds.items():
                with self.subTest(kind), open(path, "w", encoding="utf-8") as file:
                    config = transformers.CONFIG_MAPPING[kind](**small)
                    json.dump({**config.to_dict(), "architectures": [name]}, file)
                    file.flush()
                    told = [self.figures("estimate", path, "--batch", batch, "--seq", seq, "--optimizer", "adamw", "--loop",
                                         "typical", "--advice", "none", "--gpu", "h100", "--json", "--python",
                                         sys.executable, env=env)["memory"]["peak_requested"]
                            for batch, seq in ((2, 33), (3, 72))]
                    ran = self.figures("run", "--gpu", "h100", "--scalar", "1", "--json", "--", sys.executable, "-c", RUN,
                                       path, env=os.environ)["peak_requested"]
                    self.assertEqual(told[1], ran)

    def figures(self, *words, env):
        done = subprocess.run([os.environ["PLIMSOLL_PROGRAM"], *map(str, words)], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, encoding="utf-8", env=env)
        self.assertEqual(done.returncode, 0, done.stderr)
        return json.loads(done.stdout.splitlines()[-1])


if __name__ == "__main__":
    unittest.main()
