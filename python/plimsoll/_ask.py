"""_ask.py -- the commands of the program as functions.

Each takes the settings of its command as keyword arguments (plimsoll.settings lists them): a
number, a word, True or False, a shape as a tuple, a list of cards, and None for what is not set.
"""

from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, Dict, List, Mapping, Optional, Sequence, Union

from . import _library, _results
from ._errors import UsageError
from ._library import HANDLE, Handle, collect, encoded
from ._models import Model, fetch, open_model
from ._records import Entry, FormatEntry, Gpu, ModelEntry, OpEntry, OptionEntry, QuantizationEntry
from ._settings import Progress, Setting, Settings, all_settings

Cards = Union[str, Sequence[str], None]
Inputs = Optional[Mapping[str, Any]]


def _printer(stem: str, handle: Handle) -> _results.Render:
    return lambda how, style: collect(f"plim_{stem}_print", handle.pointer, how, style)


def _run(stem: str, command: str, model: Any, args: Sequence[Any], kwargs: Inputs, progress: Optional[Progress],
         given: Dict[str, Any]) -> Handle:
    """Calls plim_STEM_run with settings that the command takes."""
    opened = open_model(model, args, kwargs, given.get("batch"))
    if isinstance(given.get("draft"), str):
        fetch(given["draft"])
    if command not in ("info", "serve"):  # which ask the file what it says
        opened = opened.for_run(given)
    return _settings(command, opened, given).run(stem, opened.pointer, progress)


def _settings(command: str, model: Model, given: Dict[str, Any]) -> Settings:
    """What is given, and what the model says about its run where nothing is given."""
    taken = {s.key for s in settings(command)}
    own = {key: value for key, value in model.settings.items() if key in taken and given.get(key) is None}
    return Settings(command, {**given, **own})


def _ask(stem: str, command: str, model: Any, args: Sequence[Any], kwargs: Inputs, progress: Optional[Progress],
         given: Dict[str, Any]) -> _results.Render:
    """The same; returns what renders the result."""
    return _printer(stem, _run(stem, command, model, args, kwargs, progress, given))


def settings(command: Optional[str] = None) -> List[Setting]:
    """The settings, or those that a function takes: what each may be, and what it means."""
    return [s for s in all_settings().values() if command is None or command in s.commands]


# ---- models ---------------------------------------------------------------------------


def estimate(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Any = None,
             gpu: Optional[str] = None, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
             **settings: Any) -> _results.Estimate:
    """Predicts the memory of a training step or, with mode="infer", of an inference.

    `model` is the name of a built-in model, the id of one on the Hugging Face hub, whose
    configuration is fetched unless this machine has it (docs/formats/hub.md), a path, the bytes of a
    file, a config of transformers, a Model that is open already, or an nn.Module, which is exported as it is called with the example inputs: its mode (train or eval),
    its checkpoints, their batch and the version of PyTorch are then those of the run, where nothing
    else is given.
    `optimizer` is as in "sgd,momentum=0.9", or an optimizer of torch.optim as it was made; `gpu`
    is a name or an alias such as "t4".

    `progress`, here and below, is called during a long call with the number of parts that are
    done, of how many (0: not known), and what comes next; an exception in it ends the call.
    """
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    handle = _run("estimate", "estimate", model, example_inputs, example_kwargs, progress, given)
    return _results.Estimate(_printer("estimate", handle), handle)


def batches(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Any = None,
            gpu: Optional[str] = None, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
            **settings: Any) -> _results.Batches:
    """Shows how memory grows with the batch: `estimate --explain batch`."""
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    return _results.Batches(_ask("batches", "estimate", model, example_inputs, example_kwargs, progress, given))


def segments(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Any = None,
             gpu: Optional[str] = None, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
             **settings: Any) -> _results.Segments:
    """Shows the peak for each number of checkpointed segments of a Sequential: `estimate --explain segments`."""
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    return _results.Segments(_ask("segments", "estimate", model, example_inputs, example_kwargs, progress, given))


def times(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Any = None,
          gpu: Optional[str] = None, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
          **settings: Any) -> _results.Times:
    """Lists what takes the time of a step on a card: `estimate --explain time`."""
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    return _results.Times(_ask("times", "estimate", model, example_inputs, example_kwargs, progress, given))


def fit(model: Any, *example_inputs: Any, optimizer: Any = None, gpu: Cards = None,
        example_kwargs: Inputs = None, progress: Optional[Progress] = None, **settings: Any) -> _results.Fit:
    """Finds the largest batch for each card: those of `gpu` ("t4,a100" or ["t4", "a100"]), or all."""
    given = {"optimizer": optimizer, "gpu": gpu, **settings}
    return _results.Fit(_ask("fit", "fit", model, example_inputs, example_kwargs, progress, given))


def cards(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Optional[str] = None,
          gpu: Cards = None, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
          **settings: Any) -> _results.Cards:
    """Judges the same run on each card, those of `gpu` or all: does it fit, and how fast is it: `gpus --for`."""
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    return _results.Cards(_ask("cards", "gpus", model, example_inputs, example_kwargs, progress, given))


def serve(model: Any, *, engine: Optional[str] = None, context: Optional[int] = None,
          concurrency: Optional[int] = None, gpu: Optional[str] = None, progress: Optional[Progress] = None,
          **settings: Any) -> _results.Serve:
    """Predicts what an inference engine ("vllm,max_num_seqs=64") holds of a model for that many requests of
    `context` tokens, and what the card leaves room for."""
    given = {"engine": engine, "context": context, "concurrency": concurrency, "gpu": gpu, **settings}
    return _results.Serve(_ask("serve", "serve", model, (), None, progress, given))


def serve_fit(model: Any, *, engine: Optional[str] = None, context: Optional[int] = None,
              concurrency: Optional[int] = None, gpu: Cards = None, progress: Optional[Progress] = None,
              **settings: Any) -> _results.ServeFit:
    """Finds what each card serves, those of `gpu` or all: the largest format of the weights, the longest context and the
    most requests: `fit --serve`."""
    given = {"engine": engine, "context": context, "concurrency": concurrency, "gpu": gpu, **settings}
    return _results.ServeFit(_ask("serve_fit", "serve", model, (), None, progress, given))


def layers(model: Any, *example_inputs: Any, batch: Optional[int] = None, example_kwargs: Inputs = None,
           progress: Optional[Progress] = None, **settings: Any) -> _results.Layers:
    """Lists each layer with the shape, size and cost of its forward pass."""
    given = {"batch": batch, **settings}
    return _results.Layers(_ask("layers", "layers", model, example_inputs, example_kwargs, progress, given))


def info(model: Any, *example_inputs: Any, example_kwargs: Inputs = None, progress: Optional[Progress] = None,
         **settings: Any) -> _results.Info:
    """Lists the contents of a model file, without reading its weights."""
    return _results.Info(_ask("info", "info", model, example_inputs, example_kwargs, progress, settings))


def compare(*models: Any, batch: Optional[int] = None, optimizer: Any = None, gpu: Optional[str] = None,
            progress: Optional[Progress] = None, **settings: Any) -> _results.Comparison:
    """Shows size, cost, memory and accuracy of models side by side.

    An Estimate may stand for a model: it is compared as it is, whatever its settings.
    """
    if not models:
        raise UsageError("'compare' needs a model")
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}

    def estimated(m: Any) -> Handle:
        if isinstance(m, _results.Estimate):
            return m.handle
        opened = open_model(m, batch=batch).for_run(given)
        s = _settings("compare", opened, given)
        s.set("advice", "none")  # which it does not show
        return s.run("estimate", opened.pointer, progress)

    handles = [estimated(m) for m in models]

    def render(how: int, style: Any) -> str:
        pointers = (HANDLE * len(handles))(*(h.pointer for h in handles))
        return collect("plim_compare_print", pointers, len(pointers), how, style)

    return _results.Comparison(render)


def tape(model: Any, *example_inputs: Any, batch: Optional[int] = None, optimizer: Any = None,
         gpu: Optional[str] = None, example_kwargs: Inputs = None, **settings: Any) -> _results.Tape:
    """The allocations and frees of a run, in order."""
    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, **settings}
    m = open_model(model, example_inputs, example_kwargs, batch).for_run(given)
    s = _settings("tape", m, given)
    return _results.Tape(lambda as_json: collect("plim_tape_print", m.pointer, s.handle.pointer, as_json))


# ---- files and messages ------------------------------------------------------------------


def replay(tape: Union[str, "os.PathLike[str]", _results.Tape], *, gpu: Optional[str] = None,
           progress: Optional[Progress] = None, **settings: Any) -> _results.Replay:
    """Replays a tape, a memory snapshot of PyTorch or a trace of its profiler, from a file, or a tape as plimsoll.tape
    returns it, through a simulated allocator."""
    import tempfile  # which takes longer to import than all of plimsoll

    s = Settings("replay", {"gpu": gpu, **settings})
    if not isinstance(tape, _results.Tape):
        return _results.Replay(_printer("replay", s.run("replay", encoded(os.fspath(tape)), progress)))
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "step.tape")
        tape.save(path)
        return _results.Replay(_printer("replay", s.run("replay", encoded(path), progress)))


def diff(a: Any, b: Any, *, batch: Optional[int] = None, optimizer: Any = None, gpu: Optional[str] = None,
         within: Union[str, int, None] = None, progress: Optional[Progress] = None,
         **settings: Any) -> _results.Difference:
    """Compares two runs: each a model, which runs with the settings, or what was recorded, a tape or a
    memory snapshot of PyTorch, from a file, or a tape as plimsoll.tape returns it.

    `within` is what the peaks may differ by: a size, or a share of that of `a` such as "5%".
    """
    import tempfile  # as in replay

    given = {"batch": batch, "optimizer": optimizer, "gpu": gpu, "within": within, **settings}
    with tempfile.TemporaryDirectory() as folder:
        models: List[Model] = []

        def subject(side: Any, name: str) -> Sequence[Any]:
            if isinstance(side, _results.Tape):
                path = os.path.join(folder, name)
                side.save(path)
                return encoded(path), None
            if isinstance(side, str):
                fetch(side)
            if isinstance(side, (str, os.PathLike)):
                return encoded(os.fspath(side)), None
            models.append(open_model(side, batch=batch).for_run(given))
            return encoded(models[-1].name), models[-1].pointer

        sides = (*subject(a, "a.tape"), *subject(b, "b.tape"))
        s = _settings("diff", models[0], given) if models else Settings("diff", given)
        return _results.Difference(_printer("diff", s.run("diff", sides, progress)))


def oom(message: Union[str, BaseException, "os.PathLike[str]"]) -> _results.OutOfMemory:
    """Explains the out-of-memory message in a text (a whole log if need be), an exception or a file."""
    if isinstance(message, os.PathLike):
        handle = Handle("plim_oom_load", "plim_oom_free", encoded(os.fspath(message)))
    else:
        text = str(message).encode("utf-8", "replace")
        handle = Handle("plim_oom_read", "plim_oom_free", text, len(text))
    return _results.OutOfMemory(_printer("oom", handle))


def size(*shape: Union[int, str, Sequence[int]]) -> _results.Size:
    """The size of a tensor in every data type: size("256x3x100x100"), size(256, 3, 100, 100)."""
    only = shape[0] if len(shape) == 1 else shape
    dims = only if isinstance(only, str) else ",".join(map(str, [only] if isinstance(only, int) else only)) or "()"
    render: _results.Render = lambda how, style: collect("plim_size_print", encoded(dims), how, style)
    answer = _results.Size(render)
    answer.to_dict()  # it says now, and not later, what is wrong with the shape
    return answer


def limit_memory(size: Union[int, str, None]) -> None:
    """Limits the memory that plimsoll takes for itself in this process: "2GiB", or bytes.  None is the default: three
    quarters of the machine's and, to read a file, 128 MiB and 64 times its size."""
    limit = ctypes.c_uint64(0)
    if size is not None:
        _library.call("plim_size_parse", encoded(str(size)), ctypes.byref(limit))
    _library.library().plim_limit_memory(limit)


# ---- what plimsoll knows ---------------------------------------------------------------------


def _listing(name: str, row: Callable[[Dict[str, Any]], _results.Row], filter: Optional[str]) -> _results.Listing[_results.Row]:
    registry, text = getattr(_library.Registry, name.upper()), None if filter is None else encoded(filter)
    return _results.Listing(lambda how, style: collect("plim_registry_print", registry, text, how, style), name, row)


def models(filter: Optional[str] = None) -> _results.Listing[ModelEntry]:
    """The built-in models, or those whose row contains the text."""
    return _listing("models", ModelEntry, filter)


def gpus(filter: Optional[str] = None) -> _results.Listing[Gpu]:
    """The known cards, and the source of each number."""
    return _listing("gpus", Gpu, filter)


def ops(filter: Optional[str] = None) -> _results.Listing[OpEntry]:
    """The operators that have a rule."""
    return _listing("ops", OpEntry, filter)


def optimizers(filter: Optional[str] = None) -> _results.Listing[Entry]:
    """The optimizers, and the state that they keep."""
    return _listing("optimizers", Entry, filter)


def profiles(filter: Optional[str] = None) -> _results.Listing[Entry]:
    """The PyTorch versions that can be simulated."""
    return _listing("profiles", Entry, filter)


def formats(filter: Optional[str] = None) -> _results.Listing[FormatEntry]:
    """The model file formats that can be read."""
    return _listing("formats", FormatEntry, filter)


def engines(filter: Optional[str] = None) -> _results.Listing[OptionEntry]:
    """The inference engines that serve() simulates, and their own options."""
    return _listing("engines", OptionEntry, filter)


def strategies(filter: Optional[str] = None) -> _results.Listing[OptionEntry]:
    """The ways in which cards share a training job, and their own options."""
    return _listing("strategies", OptionEntry, filter)


def adapters(filter: Optional[str] = None) -> _results.Listing[Entry]:
    """The methods of peft that can be trained."""
    return _listing("adapters", Entry, filter)


def quantizations(filter: Optional[str] = None) -> _results.Listing[QuantizationEntry]:
    """The formats of quantized weights, and the settings that take them."""
    return _listing("quantizations", QuantizationEntry, filter)


def loops(filter: Optional[str] = None) -> _results.Listing[Entry]:
    """The training loops, which say what lives how long."""
    return _listing("loops", Entry, filter)


def losses(filter: Optional[str] = None) -> _results.Listing[Entry]:
    """The losses of a training step."""
    return _listing("losses", Entry, filter)
