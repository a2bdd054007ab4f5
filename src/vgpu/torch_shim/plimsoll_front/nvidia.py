"""NVIDIA's libraries besides CUDA: NVML, which says how a card is, and NVTX, which marks ranges."""

import ctypes
import itertools
import os
import threading

from .abi import c_u64

MEMORY = ctypes.CFUNCTYPE(None, ctypes.c_uint, ctypes.POINTER(c_u64), ctypes.POINTER(c_u64))
kept = []  # what the libraries call must not be collected


def load_nvml(run, device):
    """The stub libnvidia-ml, so that pynvml finds a library of that name in the process.  Its
    memory is this device's; where the stubs are not installed there is no NVML."""
    home = os.path.dirname(run["lib"])
    for folder in (os.path.join(home, "plimsoll", "stub"), os.path.join(home, "stub")):
        path = os.path.join(folder, "libnvidia-ml.so.1")
        if os.path.exists(path):
            break
    else:
        return
    stub = ctypes.CDLL(os.path.join(folder, "libplimsoll_stub.so"))
    kept.append(ctypes.CDLL(path))

    cards = getattr(device, "cards", [device])

    @MEMORY
    def memory(index, free, total):
        free[0], total[0] = cards[index].mem_info()
    kept.append(memory)
    stub.plim_stub_on_memory(memory, len(cards))
    # Other processes, such as a monitor, read what is used from a file.
    stub.plim_stub_ledger.restype = ctypes.c_void_p
    for index, card in enumerate(cards):
        card.lib.plim_vgpu_publish(card.handle, ctypes.c_void_p(stub.plim_stub_ledger(index)))


class Nvtx:
    """torch._C._nvtx: ranges nest, and nobody looks at them."""

    def __init__(self):
        self.mine, self.numbers = threading.local(), itertools.count(1)

    def rangePushA(self, message):
        depth = getattr(self.mine, "depth", 0)
        self.mine.depth = depth + 1
        return depth

    def rangePop(self):
        depth = getattr(self.mine, "depth", 0) - 1
        self.mine.depth = max(depth, 0)
        return depth

    def rangeStartA(self, message):
        return next(self.numbers)

    def deviceRangeStart(self, message, stream):
        return next(self.numbers)

    def rangeEnd(self, number):
        pass

    deviceRangeEnd = rangeEnd

    def markA(self, message):
        pass
