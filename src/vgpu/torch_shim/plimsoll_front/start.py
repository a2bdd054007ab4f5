"""Puts the parts together when the script imports torch."""

import ctypes
import faulthandler
import importlib.util
import os
import runpy
import sys
import sysconfig
import threading
import warnings

from . import HERE, dynamo, patches
from .abi import Storage, c_int, c_ptr, c_str, c_u64
from .alone import Command
from .build import load_library, torch_version
from .device import Machine, fail, hold_streams
from .ending import Ending
from .files import leave_mark
from .lifeline import Lifeline
from .nvidia import Nvtx, load_nvml
from .packages import HOOKS
from .story import Story
from .torch_c import CUDA_VERSION, give_torch_c
from .world import World, local_rank


class Run:
    def __init__(self, run):
        self.run = run
        self.device = self.shim = self.story = None

    def before_torch(self, spec):
        self.run["lifeline"].hold()
        root = os.path.dirname(spec.origin)
        version = torch_version(root)
        cuda = os.path.exists(os.path.join(root, "lib", "libtorch_cuda.so"))
        oldest = (2, 4) if cuda else (2, 6)
        if tuple(int(x) for x in version.split("+")[0].split(".")[:2]) < oldest:
            fail(f"PyTorch {version} is too old: 'plimsoll run' needs "
                 f"{oldest[0]}.{oldest[1]} or newer")
        if cuda:
            return runpy.run_path(os.path.join(HERE, "front_cuda.py"))["start"](self, spec, version)
        self.device = Machine(self.run, version)
        self.shim = load_library(self.run, root, version, mode=ctypes.RTLD_GLOBAL)
        self.shim.plimsoll_shim_line.restype = c_str
        self.shim.plimsoll_shim_label.argtypes = [Storage, c_int, c_str]
        self.shim.plimsoll_shim_sequence.restype = c_u64
        self.shim.plimsoll_shim_stream.restype = ctypes.c_int64
        self.shim.plimsoll_shim_set_stream.argtypes = [c_int, ctypes.c_int64]
        number = version.split("+")[0].split(".")
        ours = importlib.util.find_spec("plimsoll")  # what plimsoll.track() does for a line is that line's
        skip = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), HERE,
                root + os.sep, *(ours.submodule_search_locations or () if ours else ())]
        cards = self.device.cards
        self.shim.plimsoll_shim_open(
            (c_ptr * len(cards))(*[card.handle for card in cards]), len(cards), int(number[0]) * 100 + int(number[1]),
            ctypes.c_double(float(self.run["scalar"] or -1)),  # below 0: guessed by op
            ctypes.c_double(self.run["mask_fraction"]),
            self.run["routing"] == "worst", *(max(int(os.environ.get(name) or least), least)
                                              for name, least in (("RANK", 0), ("WORLD_SIZE", 1))),
            "\n".join(p for p in skip if p).encode(), self.run["lines"] == "all",
            os.getcwd().encode())
        self.device.seen = self.shim.plimsoll_shim_device_count

    def before_cuda(self, spec):
        self.pretend = give_torch_c(self.device, self.shim)
        sys.modules["torch._C"]._nvtx = Nvtx()
        load_nvml(self.run, self.device)

    def after_torch(self, torch):
        torch.version.cuda = CUDA_VERSION
        torch.cuda._queued_calls.clear()  # checks that count the cards: the script is to be first
        torch.cuda._lazy_init()
        torch.cuda._initialized = self.pretend.used = False  # as far as scripts and libraries can tell, until they use it
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        self.story = Story(self.run, self.device, self.shim)
        self.story.before_report.append(self.shim.plimsoll_shim_tell_guesses)
        self.story.follow(torch)
        torch.compile = patches.no_compile(self.story)
        World(self.run, self.story, self.shim).follow(torch)
        if not faulthandler.is_enabled():
            faulthandler.enable(2)  # says who read the card's memory, which is not there
        storage = torch.UntypedStorage
        storage.to = patches.storage_to(torch, storage.to)
        storage.resize_ = patches.storage_resize(torch, self.shim._name, storage.resize_)
        storage.clone = patches.storage_clone(torch, storage.clone)
        storage.cuda = patches.storage_cuda
        threading.Thread.start = patches.thread_start(self.shim, threading.Thread.start)
        ending = Ending(self.story, self.shim)
        ending.watch(self.run["limit"])

        def begin_anew():
            self.shim.plimsoll_shim_begin_anew()
            ending.begin_anew()
        self.pretend.begin_anew = begin_anew


class Loader:
    """A module's own loader, with something done before and after it."""

    def __init__(self, loader, before, after):
        self.loader, self.before, self.after = loader, before, after

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        if self.before:
            self.before(module.__spec__)
        self.loader.exec_module(module)
        if self.after:
            self.after(module)

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder:
    """Finds some modules as Python does, and gives them loaders that do more."""

    def __init__(self, run):
        self.run = run

    def hooks(self, name):
        """What is done before and after that module is loaded; None: nothing."""
        if name in HOOKS and self.run.shim:  # a CPU build
            return HOOKS[name].before, HOOKS[name].after
        return {"torch": (self.run.before_torch, self.run.after_torch),
                "torch.cuda": (self.run.before_cuda, None),
                "torch._compile": (None, dynamo.keep_functions),
                "torch.optim.optimizer": (None, dynamo.keep_steps)}.get(name)

    def find_spec(self, name, path=None, target=None):
        hooks = self.hooks(name)
        if not hooks:
            return None
        spec = None
        for finder in [f for f in sys.meta_path if f is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        if spec is not None and spec.loader is not None and spec.origin is not None:
            spec.loader = Loader(spec.loader, *hooks)
        elif name == "torch":
            leave_mark(self.run.run, "no-torch")  # the script may do without it
        return spec


def settings():
    words = ("gpu", "alloc_conf", "workspace", "scalar", "save", "report", "lib",
             "lines", "by", "routing", "render")
    numbers = ("vram", "cards", "alone", "steps", "limit", "si", "color", "ascii", "width",
               "top", "quiet")
    run = {k: os.environ.get("PLIMSOLL_RUN_" + k.upper()) for k in words}
    run.update((k, int(os.environ.get("PLIMSOLL_RUN_" + k.upper()) or 0)) for k in numbers)
    run["mask_fraction"] = float(os.environ.get("PLIMSOLL_RUN_MASK_FRACTION") or 1)
    run["cards"] = run["cards"] or 1
    run["command"] = Command()
    run["lifeline"] = Lifeline(os.environ.get("PLIMSOLL_RUN_LIFELINE"))
    run["folder"] = os.path.dirname(run["lifeline"].path)  # "report" is one in it where the script runs again
    return run


def start():
    hold_streams()
    local_rank()
    run = settings()
    leave_mark(run, "python")
    sys.meta_path.insert(0, Finder(Run(run)))
