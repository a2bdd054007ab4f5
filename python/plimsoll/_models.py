"""_models.py -- what may stand for a model: a name, a path, bytes, a config, a module."""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from typing import Any, Dict, Mapping, NamedTuple, Optional, Sequence, Tuple

from . import _library
from ._errors import UnsupportedError
from ._library import Handle, encoded


class Unbuilt(NamedTuple):
    """A model that the library does not build itself; its own library does, in this Python (_door.py)."""

    config: Any
    folder: Optional[str]
    name: str
    why: str
    """What the library says."""


_exporting = threading.Lock()  # while a module is built, PyTorch's default dtype and device are others


class Model:
    """An open model, which may be asked as often as you like, from many threads at once.

    Every function takes one instead of a name: a file is then read only once.
    """

    def __init__(self, model: Any, *example_inputs: Any, example_kwargs: Optional[Mapping[str, Any]] = None,
                 batch: Optional[int] = None, name: Optional[str] = None, offline: bool = False) -> None:
        """`model` is the name of a built-in model, the id of one on the Hugging Face hub ("org/name" or
        "org/name@revision"), a path, the bytes of a file, a config of transformers or what its config.json holds, a
        name of timm or torchvision ("timm:convnext_base"), or an nn.Module, which is exported as it is called with
        the example inputs, and for this batch if its code does not allow any other.  `name` is the name of what has
        none in messages and answers.  The configuration of a model on the hub is fetched unless this machine has it,
        or `offline` or HF_HUB_OFFLINE=1 forbids it.  What the library does not build from its config, this Python
        builds and exports, if it has transformers, diffusers, timm or torchvision."""
        self.settings: Dict[str, Any] = {}
        """What the model itself says about its run: the mode of a module, its checkpoints, the batch of its inputs, the
        version of the PyTorch that made it.
        Settings that are given take precedence."""
        self._bytes = b""  # of a file in memory: the library reads them as long as it is open
        self._handle: Optional[Handle] = None
        self._unbuilt: Optional[Unbuilt] = None
        self._built: Dict[str, Model] = {}  # by the options of the export
        if isinstance(model, os.PathLike):
            path = os.fsdecode(model)
            model = path if os.path.dirname(path) else os.path.join(os.curdir, path)  # and not a built-in model
        if isinstance(model, str):
            self._unbuilt = _named(model)
            if not self._unbuilt:
                fetch(model, offline)
                self._handle = Handle("plim_model_open", "plim_model_free", encoded(model))
                self._check(model, None)
            return
        if _is_module(model):
            usual = f"{type(model).__name__}.pt2"
            self._export(model, example_inputs, example_kwargs or {}, batch)
        else:
            usual, self._bytes = _file_of(model)
        self._handle = Handle("plim_model_open_bytes", "plim_model_free", encoded(name or usual), self._bytes,
                              len(self._bytes))
        if usual == "config.json":
            self._check(name or usual, json.loads(self._bytes))

    def _export(self, module: Any, args: Sequence[Any], kwargs: Mapping[str, Any], batch: Optional[int]) -> None:
        export = importlib.import_module("._export", __package__)  # which imports PyTorch
        exported = export.export_module(module, args, kwargs, batch=batch)
        self._bytes = exported.data
        self.settings = {"mode": "train" if module.training else "infer", "torch": release(sys.modules["torch"]),
                         **exported.settings}

    def _check(self, name: str, config: Any) -> None:
        """Finds out whether the library builds the model of a config; `config`: None: it is in the file of that name."""
        if self.format != "hf":
            return
        try:
            _library.call("plim_model_check", self.pointer)
        except UnsupportedError as why:
            folder = None
            if config is None:
                door = importlib.import_module("._door", __package__)
                try:
                    config, folder = door.open_config(name)
                except door.Failure:  # an id of the hub
                    return
            self._unbuilt = Unbuilt(config, folder, name, str(why))

    def for_run(self, given: Mapping[str, Any]) -> "Model":
        """Itself; or, of a model that the library does not build, one that was exported for these settings."""
        if not self._unbuilt:
            return self
        config, folder, name, why = self._unbuilt
        door, options = importlib.import_module("._door", __package__), _options(given)
        with _exporting:
            key = repr(sorted(options.items()))
            if key not in self._built:
                try:
                    graph = door.graph_of(config, folder, **options)
                except door.Failure as failed:
                    raise UnsupportedError(f"{why}; {sys.executable} could not build it: {failed}") from failed
                self._built[key] = Model(graph, name=name)
        return self._built[key]

    @property
    def pointer(self) -> Any:
        if self._handle is None:
            return self.for_run({}).pointer
        return self._handle.pointer

    @property
    def name(self) -> str:
        """The name of the model ("resnet18")."""
        text: bytes = _library.library().plim_model_name(self.pointer)
        return text.decode("utf-8", "replace")

    @property
    def format(self) -> str:
        """The format of the model ("pt2", "built-in")."""
        text: bytes = _library.library().plim_model_format(self.pointer)
        return text.decode("utf-8", "replace")

    def __repr__(self) -> str:
        return f"<plimsoll.Model {self.name} ({self.format})>"


def _is_builtin(name: str) -> bool:
    rows = importlib.import_module("._ask", __package__).models(name)
    return any(row.name == name for row in rows)


def _named(text: str) -> Optional[Unbuilt]:
    """A model that a library has by name."""
    if text.startswith(("timm:", "torchvision:")) and not os.path.exists(text) and not _is_builtin(text):
        return Unbuilt(text, None, text, f"'{text}' names a model of {text.partition(':')[0]}")
    if os.path.isfile(os.path.join(text, "model_index.json")) and not os.path.exists(os.path.join(text, "config.json")):
        config, folder = importlib.import_module("._door", __package__).open_config(text)
        return Unbuilt(config, folder, os.path.join(text, "model_index.json"), f"'{text}' is a pipeline of diffusers")
    return None


def _options(given: Mapping[str, Any]) -> Dict[str, Any]:
    """How a model is exported for a run with these settings."""
    door, items = importlib.import_module("._door", __package__), importlib.import_module("._settings", __package__).items
    checkpoint = given.get("checkpoint") not in (None, "none")
    cache = "off" if checkpoint else given.get("cache") or ("off" if given.get("loop") == "trainer" else "on")
    return {"train": given.get("mode") != "infer", "batch": given.get("batch"), "seq": given.get("seq"),
            "inputs": door.shapes(list(items(given["input"]))) if given.get("input") is not None else {},
            "attention": given.get("attention"), "cache": cache != "off"}


def open_model(model: Any, example_inputs: Sequence[Any] = (), example_kwargs: Optional[Mapping[str, Any]] = None,
               batch: Optional[int] = None) -> Model:
    """The model itself if it is open already."""
    if isinstance(model, Model):
        return model
    return Model(model, *example_inputs, example_kwargs=example_kwargs, batch=batch)


def fetch(model: str, offline: bool = False) -> None:
    """Has the library fetch the configuration of a model of the hub, unless this machine has it or it is no such model."""
    _library.call("plim_model_fetch", encoded(model), None, offline)


def release(torch: Any) -> str:
    """The version of PyTorch as the setting `torch` has it: "2.13" of 2.13.0+cu130."""
    return ".".join(torch.__version__.split(".")[:2])


def _is_module(model: Any) -> bool:
    """Whether it is an nn.Module, without importing PyTorch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _file_of(model: Any) -> Tuple[str, bytes]:
    """A name, and the bytes of a file."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if hasattr(model, "to_dict"):  # a config of transformers
        model = model.to_dict()
    if isinstance(model, Mapping):
        return "config.json", json.dumps(model, default=str).encode()
    raise TypeError(f"a model is a name, a path, bytes, a config or an nn.Module, not {type(model).__name__!r}")
