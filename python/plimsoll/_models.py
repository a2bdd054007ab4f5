"""_models.py -- what may stand for a model: a name, a path, bytes, a config, a module."""

from __future__ import annotations

import json
import os
import sys
from typing import Any, Mapping, Optional, Sequence

from . import _library
from ._library import Handle


class Model:
    """An open model, which may be asked as often as you like, from many threads at once.

    Every function takes one in the place of a name: a file is then read only once.
    """

    def __init__(self, model: Any, *example_inputs: Any, example_kwargs: Optional[Mapping[str, Any]] = None,
                 name: Optional[str] = None) -> None:
        """`model` is the name of a built-in model or of one in the cache of the Hugging Face hub, a path, the bytes
        of a file, a config of transformers, or an nn.Module, which is exported with the example inputs.  `name` is
        the name of what has none in messages and answers."""
        self._bytes: Optional[bytes] = None  # of a file in memory: the library reads them as long as it is open
        if isinstance(model, os.PathLike):
            model = os.path.join(os.curdir, path) if not os.path.dirname(path := os.fsdecode(model)) else path
        if isinstance(model, str):
            self._handle = Handle("plim_model_open", "plim_model_free", os.fsencode(model))
            return
        usual, data = _file_of(model, example_inputs, example_kwargs or {})
        self._bytes = data
        self._handle = Handle("plim_model_open_bytes", "plim_model_free", (name or usual).encode(), data, len(data))

    @property
    def pointer(self) -> Any:
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


def open_model(model: Any, example_inputs: Sequence[Any] = (),
               example_kwargs: Optional[Mapping[str, Any]] = None) -> Model:
    """The model itself if it is open already."""
    return model if isinstance(model, Model) else Model(model, *example_inputs, example_kwargs=example_kwargs)


def is_module(model: Any) -> bool:
    """Whether it is an nn.Module, without importing PyTorch to find out."""
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(model, torch.nn.Module)


def _file_of(model: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> "tuple[str, bytes]":
    """A name and the bytes of a file."""
    if isinstance(model, (bytes, bytearray, memoryview)):
        return "model", bytes(model)
    if is_module(model):
        from . import _export  # needs PyTorch

        data: bytes = _export.export_module(model, tuple(args), dict(kwargs))
        return f"{type(model).__name__}.pt2", data
    if hasattr(model, "to_dict"):  # a config of transformers
        return "config.json", json.dumps(model.to_dict(), default=str).encode()
    raise TypeError(f"a model is a name, a path, bytes, a config or an nn.Module, not {type(model).__name__!r}")
