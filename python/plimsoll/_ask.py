"""_ask.py -- the commands of the program as functions."""

from __future__ import annotations

from typing import Any, Mapping, Optional

from ._library import Handle
from ._models import open_model
from ._results import Estimate
from ._settings import Settings


def estimate(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Optional[str] = None,
             gpu: Optional[str] = None, example_kwargs: Optional[Mapping[str, Any]] = None,
             **settings: Any) -> Estimate:
    """The memory of a training step, or with mode="infer" of an inference."""
    m = open_model(model, example_inputs, example_kwargs)
    s = Settings("estimate", {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings})
    return Estimate(Handle("plim_estimate_run", "plim_estimate_free", m.pointer, s.handle.pointer))
