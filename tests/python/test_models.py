"""What may stand for a model."""
import http.server
import importlib.util
import json
import os
import pathlib
import tempfile
import threading
import unittest
import unittest.mock

import plimsoll
from program import DATA

try:
    import torch
except ImportError:
    torch = None


class Config:
    """As a config of transformers: it has to_dict."""

    def __init__(self, **values):
        self.values = values

    def to_dict(self):
        return self.values


LLAMA = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 512, "vocab_size": 1000, "architectures": ["LlamaForCausalLM"]}


class Models(unittest.TestCase):
    def test_one_file_in_every_way(self):
        path = DATA / "resnet18.pt2"
        model = plimsoll.Model(path)
        self.assertEqual((model.name, model.format), ("resnet18", "pt2"))
        want = plimsoll.estimate(str(path), batch=4).memory
        for way in (path, path.read_bytes(), bytearray(path.read_bytes()), memoryview(path.read_bytes()), model):
            self.assertEqual(plimsoll.estimate(way, batch=4).memory, want)
        self.assertEqual(plimsoll.Model(path.read_bytes(), name="net.pt2").name, "net")

    def test_path_is_not_a_name(self):
        self.assertEqual(plimsoll.Model("resnet18").format, "built-in")
        with self.assertRaises(FileNotFoundError):
            plimsoll.Model(pathlib.Path("resnet18"))

    def test_bytes_live_as_long_as_the_model(self):
        model = plimsoll.Model(bytes((DATA / "resnet18.pt2").read_bytes()))
        junk = [bytes(240_000) for _ in range(50)]
        self.assertEqual(plimsoll.estimate(model).model.parameters, 11689512)
        del junk

    def test_config(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, "config.json")
            path.write_text(json.dumps(LLAMA))
            want = plimsoll.estimate(path, seq=64)
        got = plimsoll.estimate(Config(**LLAMA), seq=64)
        self.assertEqual(got.memory, want.memory)
        self.assertEqual(got.model.parameters, want.model.parameters)

    def test_hub(self):
        """An id whose config.json lies in the cache of huggingface_hub."""
        with tempfile.TemporaryDirectory() as home:
            repo = pathlib.Path(home, "hub/models--some--llama")
            (repo / "snapshots/abc").mkdir(parents=True)
            (repo / "refs").mkdir()
            (repo / "refs/main").write_text("abc")
            (repo / "snapshots/abc/config.json").write_text(json.dumps(LLAMA))
            before = os.environ.get("HF_HOME")
            os.environ["HF_HOME"] = home
            try:
                got = plimsoll.estimate("some/llama", seq=64)
            finally:
                os.environ.pop("HF_HOME")
                if before is not None:
                    os.environ["HF_HOME"] = before
        self.assertEqual(got.memory, plimsoll.estimate(Config(**LLAMA), seq=64).memory)

    def test_fetched(self):
        """An id that only the hub has, which is a server on the loopback here."""
        class Hub(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                body = json.dumps(LLAMA).encode() if self.path == "/some/llama/resolve/main/config.json" else b""
                self.send_response(200 if body else 404)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.HTTPServer(("127.0.0.1", 0), Hub)
        threading.Thread(target=server.serve_forever, args=[0.01], daemon=True).start()
        with tempfile.TemporaryDirectory() as home:
            env = {"HOME": home, "XDG_CACHE_HOME": "", "HF_HOME": "", "HF_HUB_CACHE": "", "HF_HUB_OFFLINE": "",
                   "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}", "no_proxy": "127.0.0.1"}
            with unittest.mock.patch.dict(os.environ, env):
                try:
                    got = plimsoll.estimate("some/llama", seq=64)
                except plimsoll.FileError as e:
                    server.shutdown()
                    self.assertIn("needs libcurl", str(e))
                    self.skipTest("no libcurl")
                with self.assertRaisesRegex(plimsoll.UsageError, "no such repository"):
                    plimsoll.estimate("some/other")
                server.shutdown()
                server.server_close()
                self.assertEqual(plimsoll.Model("some/llama", offline=True).name, "llama")
                with self.assertRaisesRegex(plimsoll.UsageError, "offline"):
                    plimsoll.Model("some/third", offline=True)
                with self.assertRaisesRegex(plimsoll.FileError, "cannot be reached"):
                    plimsoll.serve("gpt2", draft="some/third", context=64)
        self.assertEqual(got.memory, plimsoll.estimate(Config(**LLAMA), seq=64).memory)
        self.assertIn("some/llama@main, fetched from http://127.0.0.1", got.model.origin)

    def test_transformers_config(self):
        try:
            from transformers import LlamaConfig
        except ImportError:
            self.skipTest("no transformers")
        config = LlamaConfig(**{k: v for k, v in LLAMA.items() if k != "model_type"}, dtype=torch.bfloat16)
        got = plimsoll.estimate(config, seq=64)
        self.assertEqual(got.memory, plimsoll.estimate(Config(**LLAMA, dtype="bfloat16"), seq=64).memory)
        self.assertEqual(got.model.parameters * 2, got.model.parameter_bytes)

    @unittest.skipIf(importlib.util.find_spec("plimsoll._export") is None or torch is None, "no PyTorch")
    def test_module(self):
        """A module is exported with its own mode; what is given takes precedence."""
        module = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
        x = torch.randn(8, 64)
        trained = plimsoll.estimate(module, x, optimizer="adamw")
        self.assertEqual((trained.settings["mode"], trained.settings["batch"]), ("train", 8))
        named = plimsoll.estimate("mlp:64,256,10:relu", batch=8, optimizer="adamw", torch=trained.settings["torch"])
        self.assertEqual(trained.memory.peak_requested, named.memory.peak_requested)
        self.assertEqual(plimsoll.estimate(module, x, batch=32).settings["batch"], 32)
        self.assertEqual(plimsoll.estimate(module.eval(), x).settings["mode"], "infer")
        self.assertEqual(plimsoll.estimate(module, x, mode="train").settings["mode"], "train")
        self.assertEqual(plimsoll.layers(module, x).model.parameters, 64 * 256 + 256 + 256 * 10 + 10)


if __name__ == "__main__":
    unittest.main()
