"""Python functions of torch that a CPU build refuses, as a CUDA build has them."""

import ctypes
import functools
import importlib
import inspect
import sys

from .abi import Storage, c_str


def no_compile(story):
    def compile(model=None, **kwargs):
        """torch.compile, which has no GPU to compile for."""
        importlib.import_module("torch._dynamo")  # as PyTorch's own does
        line = story.shim.plimsoll_shim_line()

        def ignored():
            story.device.call("note", line, b"torch.compile was ignored: the code ran in eager mode")

        def wrap(model):
            if not inspect.isfunction(model):
                ignored()
                return model

            @functools.wraps(model)
            def run(*args, **kwargs):  # packages decorate functions that are never called
                ignored()
                return model(*args, **kwargs)
            return run
        return wrap if model is None else wrap(model)
    return compile


def thread_start(shim, start):
    """Thread.start: DataParallel's threads, say, may have no line of the user's."""
    @functools.wraps(start)
    def begin(self):
        line, run = shim.plimsoll_shim_line(), self.run

        def inherit():
            del self.run  # else it would keep itself
            shim.plimsoll_shim_inherit(line)
            run()
        if line:
            self.run = inherit
        start(self)
    return begin


def storage_to(torch, to):
    """UntypedStorage.to, which in a CPU build cannot make storages elsewhere."""
    @functools.wraps(to)
    def run(self, *, device, non_blocking=False):
        there = torch.device(device)
        if there.type != "cuda" or (self.device.type == "cuda" and
                                    there.index in (None, self.device.index)):
            return to(self, device=device, non_blocking=non_blocking)
        whole = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        return whole.to(there).untyped_storage()
    return run


def storage_clone(torch, clone):
    """UntypedStorage.clone, for the same reason: deepcopy of a buffer asks for one."""
    @functools.wraps(clone)
    def run(self):
        if self.device.type != "cuda":
            return clone(self)
        whole = torch.empty(0, dtype=torch.uint8, device=self.device).set_(self)
        return whole.clone().untyped_storage()
    return run


def storage_cuda(self, device=None, non_blocking=False):
    return self.to(device="cuda" if device is None else f"cuda:{device}"
                   if isinstance(device, int) else device)


def storage_resize(torch, shim_path, resize):
    """UntypedStorage.resize_: a CPU build has only the part for the CPU."""
    shim = ctypes.PyDLL(shim_path)  # keeps Python's lock: it looks for the line
    shim.plimsoll_shim_resize.argtypes = [Storage, ctypes.c_size_t]
    shim.plimsoll_shim_resize.restype = c_str

    @functools.wraps(resize)
    def run(self, size):
        if self.device.type != "cuda":
            return resize(self, size)
        full = shim.plimsoll_shim_resize(self, size)
        if full:
            raise torch.OutOfMemoryError(full.decode())
        return self
    return run


def no_nccl():
    """On the stub libraries, where NCCL is missing."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not hasattr(distributed, "init_process_group"):
        return
    begin = distributed.init_process_group

    @functools.wraps(begin)
    def run(backend=None, *args, **kwargs):
        if "nccl" in str(backend).lower():
            raise RuntimeError("plimsoll: NCCL is not simulated with a CUDA build of PyTorch: use "
                               "an environment with a CPU build")
        return begin(backend, *args, **kwargs)
    distributed.init_process_group = distributed.distributed_c10d.init_process_group = run
