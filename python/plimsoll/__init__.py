"""plimsoll -- predicts the GPU memory of PyTorch training and inference, without a GPU.

    >>> import plimsoll
    >>> answer = plimsoll.estimate("resnet50", batch=32, optimizer="adamw", gpu="rtx4090")
    >>> answer.fits
    True
    >>> print(answer)

Each command of the program is a function of the same name, and each option a keyword argument:
`--zero-grad none` is `zero_grad="none"` (plimsoll.settings() lists them).  An answer prints as
the program prints it, and has the data of docs/json.md as attributes.  Sizes are bytes.  What
fails raises a plimsoll.Error.

Names are imported when they are first used, so that `import plimsoll` costs next to nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, List

if TYPE_CHECKING:
    from ._ask import (
        adapters as adapters, batches as batches, cards as cards, compare as compare, diff as diff, engines as engines,
        estimate as estimate, fit as fit, formats as formats, gpus as gpus, info as info, layers as layers,
        limit_memory as limit_memory, loops as loops, losses as losses, models as models, oom as oom, ops as ops,
        optimizers as optimizers, profiles as profiles, quantizations as quantizations, replay as replay, segments as segments,
        serve as serve, serve_fit as serve_fit, settings as settings, size as size, strategies as strategies, tape as tape,
        times as times,
    )
    from ._errors import (
        CanceledError as CanceledError, DriverError as DriverError, Error as Error, FileError as FileError,
        FormatError as FormatError, MissingFileError as MissingFileError, NoMemoryError as NoMemoryError,
        RangeError as RangeError, ShapeError as ShapeError, UnsupportedError as UnsupportedError,
        UsageError as UsageError,
    )
    from ._models import Model as Model
    from ._results import (
        Batches as Batches, Cards as Cards, Comparison as Comparison, Difference as Difference, Estimate as Estimate,
        Fit as Fit, Info as Info, Layers as Layers, Listing as Listing, OutOfMemory as OutOfMemory, Replay as Replay,
        Result as Result, Segments as Segments, Serve as Serve, ServeFit as ServeFit, Size as Size, Tape as Tape, Times as Times,
    )
    from ._run import Run as Run, run as run
    from ._settings import Setting as Setting
    from ._top import top as top
    from ._track import Summary as Summary, Tracker as Tracker, summary as summary, track as track

    __version__: str

# The module that defines each public name.
_HOMES = {
    "_ask": "adapters batches cards compare diff engines estimate fit formats gpus info layers limit_memory loops losses models oom "
            "ops optimizers profiles quantizations replay segments serve serve_fit settings size strategies tape times",
    "_errors": "CanceledError DriverError Error FileError FormatError MissingFileError NoMemoryError "
               "RangeError ShapeError UnsupportedError UsageError",
    "_models": "Model",
    "_results": "Batches Cards Comparison Difference Estimate Fit Info Layers Listing OutOfMemory Replay Result Segments "
                "Serve ServeFit Size Tape Times",
    "_run": "Run run",
    "_settings": "Setting",
    "_top": "top",
    "_track": "Summary Tracker summary track",  # needs PyTorch
}
_HOME = {name: module for module, names in _HOMES.items() for name in names.split()}

__all__ = sorted(name for name, home in _HOME.items() if home != "_track")  # what needs no other package


def __getattr__(name: str) -> Any:
    if name == "__version__":
        value: Any = importlib.import_module("._library", __name__).version()
    elif name in _HOME:
        value = getattr(importlib.import_module("." + _HOME[name], __name__), name)
    else:
        raise AttributeError(f"module 'plimsoll' has no attribute {name!r}")
    globals()[name] = value
    return value


def load_ipython_extension(shell: Any) -> None:
    """%load_ext plimsoll: notebook.py."""
    importlib.import_module(".notebook", __name__).load(shell)


def __dir__() -> List[str]:
    return sorted({*globals(), *_HOME, "__version__"})
