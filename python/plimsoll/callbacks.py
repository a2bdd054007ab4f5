"""callbacks.py -- for transformers' Trainer and for Lightning: predicted before the first step, measured after it.

    Trainer(..., callbacks=[plimsoll.callbacks.TrainerMemory()])
    lightning.Trainer(..., callbacks=[plimsoll.callbacks.LightningMemory()])

When the model is called for the first time, it is exported with the arguments of that call and
estimated with the settings of the trainer; if it needs more than is free, that is said before the
memory runs out.  After the second step, the first that begins with optimizer state, the peak is
compared with it by category.  What cannot be predicted is said to be unknown, and why.

The classes are made when they are first used: each needs its own framework, and neither the other.
"""

from __future__ import annotations

import functools
import warnings
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Callable, Dict, Iterator, List, Mapping, Optional, Set, Tuple

if TYPE_CHECKING:
    TrainerMemory: Any
    LightningMemory: Any

__all__ = ["LightningMemory", "MemoryWarning", "TrainerMemory"]

STEPS = 2  # after which the peak is measured: as many as an estimate simulates
_CATEGORIES = ("parameters", "buffers", "optimizer_state")  # what stays from step to step


class MemoryWarning(UserWarning):
    """A training will need more memory than is free, or may."""


class Unknown(Exception):
    """Why something cannot be predicted."""


def _shown(size: float) -> str:
    return f"{size / 2**30:.2f} GiB" if abs(size) >= 2**30 else f"{size / 2**20:.1f} MiB"


# -- the settings of an estimate


def plain_optimizer(optimizer: Any) -> Any:
    """The optimizer of torch.optim, all of whose parameters are as it was made for."""
    optimizer = getattr(optimizer, "optimizer", optimizer)  # accelerate's and Lightning's wrappers
    for group in optimizer.param_groups:
        for key in ("momentum", "amsgrad", "centered", "foreach", "fused"):
            if group.get(key) != optimizer.defaults.get(key):
                raise Unknown(f"the optimizer's parameter groups differ in '{key}'")
    return optimizer


def trainer_settings(args: Any) -> Dict[str, Any]:
    """The settings of transformers' TrainingArguments."""
    for name, what in (("torch_compile", "torch.compile"), ("deepspeed", "DeepSpeed"), ("fsdp", "FSDP"),
                       ("label_smoothing_factor", "label smoothing"), ("neftune_noise_alpha", "NEFTune")):
        if getattr(args, name, None):
            raise Unknown(f"{what} is not part of an estimate")
    if args.world_size > 1 or args.n_gpu > 1:
        raise Unknown("more than one GPU")
    autocast = "bf16" if args.bf16 else "fp16" if args.fp16 else None
    return {"loop": "trainer", "loss": "model", "autocast": autocast, "accumulate": args.gradient_accumulation_steps,
            "clip": True if args.max_grad_norm else None, "grad_scaler": True if autocast == "fp16" else None}


def lightning_settings(trainer: Any) -> Dict[str, Any]:
    """The settings of a lightning.Trainer."""
    kinds = {"32-true": None, "bf16-mixed": "bf16", "16-mixed": "fp16"}
    if str(trainer.precision) not in kinds:
        raise Unknown(f"precision {trainer.precision}")
    if trainer.world_size > 1:
        raise Unknown("more than one GPU")
    if len(trainer.optimizers) != 1:
        raise Unknown(f"{len(trainer.optimizers)} optimizers")
    autocast = kinds[str(trainer.precision)]
    return {"loss": "model", "autocast": autocast, "accumulate": trainer.accumulate_grad_batches,
            "clip": True if trainer.gradient_clip_val else None, "grad_scaler": True if autocast == "fp16" else None}


def machine_settings(torch: Any, device: Any) -> Dict[str, Any]:
    """The version of PyTorch, and the card that the model is on, if the library knows it."""
    from ._ask import gpus
    from ._models import release

    settings = {"torch": release(torch)}
    if device.type == "cuda" and gpus(torch.cuda.get_device_name(device)):
        settings["gpu"] = torch.cuda.get_device_name(device)
    return settings


# -- predicted, and measured


@contextmanager
def _own_forward(module: Any) -> Iterator[None]:
    """Without what accelerate puts around forward for mixed precision, autocast and a cast of the outputs: the settings
    say that it is on, and in an export its casts would be counted a second time.
    src: accelerate 1.15 accelerator.py prepare_model"""
    own = getattr(module, "_original_forward", None)
    wrapped = vars(module).get("forward")
    if own is None or wrapped is None:
        yield
        return
    module.forward = own
    try:
        yield
    finally:
        module.forward = wrapped


@contextmanager
def _as_before(torch: Any) -> Iterator[None]:
    """A prediction leaves no trace: neither in the random numbers, nor in what autocast has cached."""
    with torch.random.fork_rng(devices=[]), torch.autocast("cuda", enabled=False), torch.autocast("cpu", enabled=False):
        yield


def _held(model: Any, optimizer: Any, device: Any) -> Dict[str, int]:
    """Bytes of the storages that stay from step to step, by category."""
    optimizer = getattr(optimizer, "optimizer", optimizer)
    seen: Set[int] = set()

    def total(tensors: Any) -> int:
        size = 0
        for tensor in tensors:
            if not hasattr(tensor, "untyped_storage") or tensor.device.type != device.type:
                continue
            storage = tensor.untyped_storage()
            if storage._cdata not in seen:
                seen.add(storage._cdata)
                size += storage.nbytes()
        return size

    states = [v for state in optimizer.state.values() for v in state.values()] if optimizer is not None else []
    return {"parameters": total(model.parameters()), "buffers": total(model.buffers()),
            "optimizer_state": total(states)}


class Monitor:
    """What both callbacks do; `say` gets the lines, print if there is none."""

    def __init__(self, say: Optional[Callable[[str], object]] = None) -> None:
        self.say: Callable[[str], object] = say or print
        self.prediction: Any = None
        """The Estimate; None: unknown."""
        self.why: Optional[str] = None
        """Why it is unknown."""
        self.measured: Optional[Dict[str, int]] = None
        """Bytes: peak_allocated, peak_reserved, and by category; None: not measured, or not yet."""
        self._steps = 0
        self._hook: Any = None

    def start(self, model: Any) -> None:
        """A training begins, on the device of the model."""
        import torch

        self._torch: Any = torch
        self._device = next((p.device for p in model.parameters()), torch.device("cpu"))
        self._steps, self.prediction, self.why, self.measured = 0, None, None, None

    def wait(self, model: Any, settings: Callable[[], Dict[str, Any]]) -> None:
        """Predicts when the model is called for the first time."""
        self.start(model)

        def hook(called: Any, args: Any, kwargs: Any) -> None:
            self.release()
            self.predict(called, args, kwargs, settings)

        self._hook = model.register_forward_pre_hook(hook, with_kwargs=True)

    def release(self) -> None:
        if self._hook is not None:
            self._hook.remove()
            self._hook = None

    def predict(self, module: Any, args: Tuple[Any, ...], kwargs: Mapping[str, Any],
                settings: Callable[[], Dict[str, Any]]) -> None:
        from ._ask import estimate

        if self._device.type == "cuda":
            self._torch.cuda.reset_peak_memory_stats(self._device)
        machine = machine_settings(self._torch, self._device)
        try:
            with _as_before(self._torch), _own_forward(module), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                self.prediction = estimate(module, *args, example_kwargs=dict(kwargs), **machine, **settings())
        except Exception as e:  # the training goes on, whatever an export runs into
            lines = str(e).strip().splitlines()
            self.why = (lines[0] if lines else "") or type(e).__name__
            self.say(f"plimsoll: predicted peak: unknown ({self.why})")
            return
        memory = self.prediction.memory
        self.say(f"plimsoll: predicted peak: {_shown(memory.peak_allocated)} allocated, "
                 f"{_shown(memory.peak_reserved)} reserved ({machine.get('gpu', 'on no particular card')})")
        if self._device.type == "cuda":
            self.warn(memory)

    def warn(self, memory: Any) -> None:
        """Before the memory runs out: what is free for PyTorch is free on the card, or reserved already."""
        cuda = self._torch.cuda
        free = cuda.mem_get_info(self._device)[0] + cuda.memory_reserved(self._device)
        if memory.reserved_low <= free < memory.peak_reserved:
            sure = "may run"
        elif free < memory.reserved_low:
            sure = "will run"
        else:
            return
        text = (f"the training {sure} out of memory: PyTorch is predicted to reserve {_shown(memory.peak_reserved)} "
                f"(at least {_shown(memory.reserved_low)}), and {_shown(free)} are free for it")
        self.say("plimsoll: " + text)
        warnings.warn(text, MemoryWarning, stacklevel=2)

    def step(self, model: Any, optimizer: Any) -> None:
        """An optimizer step has ended."""
        self._steps += 1
        if self._steps == STEPS:
            self.measure(model, optimizer)

    def end(self, model: Any, optimizer: Any) -> None:
        """The training has ended, maybe before the peak was measured."""
        self.release()
        if 0 < self._steps < STEPS:
            self.measure(model, optimizer)

    def measure(self, model: Any, optimizer: Any) -> None:
        count = f"after {self._steps} step" + "s" * (self._steps != 1)
        if self._device.type != "cuda":
            self.say(f"plimsoll: {count}: nothing is measured: the model is on '{self._device}', whose allocator keeps "
                     "no statistics")
            return
        cuda = self._torch.cuda
        self.measured = {"peak_allocated": cuda.max_memory_allocated(self._device),
                         "peak_reserved": cuda.max_memory_reserved(self._device),
                         **_held(model, optimizer, self._device)}
        self.say("\n".join([f"plimsoll: measured peak, {count}", *self.table()]))

    def table(self) -> List[str]:
        measured = dict(self.measured or {})
        measured["the rest"] = measured["peak_allocated"] - sum(measured[k] for k in _CATEGORIES)
        expected: Dict[str, int] = {}
        if self.prediction is not None:
            memory = self.prediction.memory
            expected = {key: getattr(memory, key) for key in ("peak_allocated", "peak_reserved", *_CATEGORIES)}
            expected["the rest"] = expected["peak_allocated"] - sum(expected[k] for k in _CATEGORIES)
        rows = [("", "predicted", "measured", "difference")]
        for key in (*_CATEGORIES, "the rest", "peak_allocated", "peak_reserved"):
            was = expected.get(key)
            rows.append((key.replace("_", " "), "unknown" if was is None else _shown(was), _shown(measured[key]),
                         "" if was is None else _signed(measured[key] - was)))
        return [f"  {a:<16}{b:>12}{c:>12}{d:>13}".rstrip() for a, b, c, d in rows]


def _signed(size: int) -> str:
    return "0" if not size else ("+" if size > 0 else "-") + _shown(abs(size)) if abs(size) >= 52429 else f"{size:+,d} B"


# -- the callbacks


@functools.lru_cache(maxsize=None)
def _trainer_memory() -> Any:
    from transformers import TrainerCallback

    class TrainerMemory(TrainerCallback):
        """For transformers.Trainer; `monitor` has what was predicted and measured."""

        def __init__(self, say: Optional[Callable[[str], object]] = None) -> None:
            self.monitor = Monitor(say)

        def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            def settings() -> Dict[str, Any]:
                return {"optimizer": plain_optimizer(kwargs["optimizer"]), **trainer_settings(args)}

            self.monitor.wait(kwargs["model"], settings)

        def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.monitor.step(kwargs["model"], kwargs["optimizer"])

        def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            self.monitor.end(kwargs["model"], kwargs["optimizer"])

    return TrainerMemory


def _training_step(module: Any) -> Any:
    """A LightningModule as a module whose forward is its training step, without what that logs."""
    import torch

    class TrainingStep(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self, batch: Any) -> Any:
            quiet = {name: lambda *a, **k: None for name in ("log", "log_dict")}
            vars(module).update(quiet)
            try:
                out = module.training_step(batch, 0)
            finally:
                for name in quiet:
                    del vars(module)[name]
            return out["loss"] if isinstance(out, dict) else out

    return TrainingStep()


@functools.lru_cache(maxsize=None)
def _lightning_memory() -> Any:
    try:
        from lightning.pytorch import Callback
    except ImportError:
        from pytorch_lightning import Callback

    class LightningMemory(Callback):
        """For lightning.Trainer; `monitor` has what was predicted and measured."""

        def __init__(self, say: Optional[Callable[[str], object]] = None) -> None:
            self.monitor = Monitor(say)
            self._waiting, self._before = False, 0

        def on_train_batch_start(self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int) -> None:
            if self._waiting:
                self._waiting = False
                self.monitor.start(pl_module)
                self.monitor.predict(_training_step(pl_module), (batch,), {}, lambda: {
                    "optimizer": plain_optimizer(trainer.optimizers[0]), **lightning_settings(trainer)})

        def on_train_start(self, trainer: Any, pl_module: Any) -> None:
            self._waiting = True
            self._before = trainer.global_step

        def on_train_batch_end(self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
            if trainer.global_step > self._before:  # else gradients were accumulated
                self._before = trainer.global_step
                self.monitor.step(pl_module, trainer.optimizers[0] if trainer.optimizers else None)

        def on_train_end(self, trainer: Any, pl_module: Any) -> None:
            self.monitor.end(pl_module, trainer.optimizers[0] if trainer.optimizers else None)

    return LightningMemory


_MAKERS = {"TrainerMemory": _trainer_memory, "LightningMemory": _lightning_memory}


def __getattr__(name: str) -> Any:
    if name in _MAKERS:
        return _MAKERS[name]()
    raise AttributeError(f"module 'plimsoll.callbacks' has no attribute {name!r}")
