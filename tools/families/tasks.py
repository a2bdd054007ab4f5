"""tasks.py -- what a class is called with: a row a kind of model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Dict, Tuple

Shape = Tuple[str, ...]  # of features and keys


@dataclass(frozen=True)
class Task:
    name: str
    mapping: str
    """Of transformers.models.auto.modeling_auto."""
    inputs: Dict[str, Tuple[Shape, str]]
    """name: (sizes, dtype); $dtype is the model's."""
    labels: Dict[str, Tuple[Shape, str]]
    """Of training, besides."""
    caches: bool = False


TOKENS = {"input_ids": (("B", "S"), "int64")}

TASKS = [
    Task("causal", "MODEL_FOR_CAUSAL_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}, caches=True),
    Task("masked", "MODEL_FOR_MASKED_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}),
    Task("seq2seq", "MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING", TOKENS, {"labels": (("B", "S"), "int64")}, caches=True),
    Task("image", "MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING",
         {"pixel_values": (("B", "num_channels", "$height", "$width"), "$dtype")}, {"labels": (("B",), "int64")}),
]


def class_of(task: Task, kind: str) -> Any:
    """None: there is none."""
    from transformers import CONFIG_MAPPING
    from transformers.models.auto import modeling_auto
    found = getattr(modeling_auto, task.mapping).get(CONFIG_MAPPING[kind], None)
    return found[0] if isinstance(found, (tuple, list)) else found
