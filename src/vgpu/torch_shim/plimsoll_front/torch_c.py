"""What a CUDA build has in torch._C."""

import ctypes
import os
import sys
import time

from .abi import Block, BlockState, Trace, Vgpu
from .comm import give_comm
from .device import text
from .snapshot import allocator_settings, frames, max_split_size, segments, trace_entry

CUDA_VERSION, CUDNN_VERSION, NCCL_VERSION = "12.8", 91000, (2, 27, 5)  # of a current wheel


class Properties:
    """torch.cuda.get_device_properties()"""

    def __init__(self, card):
        index = card.index
        self.name = card.name.decode()
        self.major, self.minor = divmod(card.cc, 10)
        self.total_memory = card.total
        self.multi_processor_count = card.sms
        self.max_threads_per_multi_processor = card.threads_per_sm
        self.regs_per_multiprocessor = 65536
        self.warp_size = 32
        self.is_integrated = self.is_multi_gpu_board = 0
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = card.shared_per_block
        self.shared_memory_per_multiprocessor = card.shared_per_sm
        self.L2_cache_size = card.l2
        self.gcnArchName = self.name
        self.uuid = f"00000000-0000-0000-0000-{index:012}"
        self.pci_bus_id, self.pci_device_id, self.pci_domain_id = index + 1, 0, 0
        self.clock_rate = self.memory_clock_rate = self.memory_bus_width = 0

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, "
                f"minor={self.minor}, total_memory={self.total_memory >> 20}MB, "
                f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
                f"L2_cache_size={self.L2_cache_size >> 20}MB)")


class Event:
    """Over as soon as it is recorded; times are those of the Python program.  Who waits for it
    knows that its stream has come as far: what that stream still used can be freed."""

    sync = staticmethod(lambda device, stream: None)

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        self = super().__new__(cls)
        self.when, self.stream = None, (0, 0)
        return self

    device, cuda_event = None, 0

    def record(self, stream=None):
        self.when = time.perf_counter()
        self.stream = getattr(stream, "device_index", 0), getattr(stream, "stream_id", 0)

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        if self.when is not None:
            self.sync(*self.stream)

    def elapsed_time(self, other):
        if self.when is None or other.when is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        return (other.when - self.when) * 1000

    def ipc_handle(self):
        raise RuntimeError("plimsoll: a pretend GPU cannot be shared between processes")


class Graph:
    def __new__(cls, *args, **kwargs):
        raise NotImplementedError("plimsoll: CUDA graphs are not simulated")


class Cudart:
    """torch.cuda.cudart()"""

    class cudaError(int):
        success = 0

    def __init__(self, device):
        self.device = device

    def cudaMemGetInfo(self, index=0):
        return self.device.cards[index].mem_info()

    def cudaGetErrorString(self, code):
        return "no error" if not code else "unknown error"

    def __getattr__(self, name):
        if not name.startswith("cuda"):
            raise AttributeError(name)
        return lambda *args, **kwargs: 0  # profiler, host registration: nothing to do


class Cudnn:
    """torch._C._cudnn"""

    is_cuda = True

    class RNNMode:
        rnn_relu, rnn_tanh, lstm, gru = range(4)

    getVersionInt = staticmethod(lambda: CUDNN_VERSION)
    getRuntimeVersion = getCompileVersion = staticmethod(lambda: (9, 10, 0))


class Pretend:
    """The functions themselves, under the names that they get in torch._C."""

    def __init__(self, device, shim, torch_c):
        self.device, self.shim, self.c = device, shim, torch_c
        self.cards = device.cards
        self.alloc_conf = self.cards[0].alloc_conf
        self.max_split_size = max_split_size(self.alloc_conf)  # stays what it was at start
        self.recording, self.skipped, self.metadata = False, (), ""
        self.used = False  # by the script, so that a fork cannot
        self.begin_anew = None  # set by start.py

    def _cuda_init(self):
        import torch
        if os.getpid() != self.device.pid:
            self.begin_anew()
        self.used = True
        cuda = torch.cuda
        if not cuda.default_generators:  # asked again when the script begins to use the card
            cuda.default_generators = tuple(torch.Generator(f"cuda:{i}")
                                            for i in range(len(self.cards)))
        cuda.has_half = True
        cuda._get_device_properties = lambda index: Properties(self.cards[index].card)

    def _cuda_getDeviceCount(self):
        self.used = True  # to PyTorch this counts as use
        return self.shim.plimsoll_shim_device_count()

    def _cuda_getDevice(self):
        return self.shim.plimsoll_shim_device()

    def _cuda_setDevice(self, index):
        count = self.shim.plimsoll_shim_device_count()
        if index >= count:
            there = "is one pretend GPU, cuda:0" if count == 1 else f"are {count} pretend GPUs"
            raise RuntimeError(f"CUDA error: invalid device ordinal: there {there}, and the "
                               f"script asks for cuda:{index}")
        if index >= 0:
            self.shim.plimsoll_shim_set_device(index)

    def _cuda_exchangeDevice(self, index):
        before = self._cuda_getDevice()
        self._cuda_setDevice(index)
        return before if index >= 0 else -1

    _cuda_maybeExchangeDevice = _cuda_exchangeDevice

    def _cuda_synchronize(self):
        self.cards[self._cuda_getDevice()].call("sync", ctypes.c_uint16(Vgpu.ALL_STREAMS))

    def _cuda_getCurrentStream(self, index):
        return self.shim.plimsoll_shim_stream(index), index, 1

    def _cuda_getDefaultStream(self, index):
        return 0, index, 1

    def _cuda_getCurrentRawStream(self, index):
        return self.shim.plimsoll_shim_stream(index)

    def _cuda_setStream(self, stream_id, device_index, device_type):
        self._cuda_setDevice(device_index)
        self.shim.plimsoll_shim_set_stream(device_index, stream_id)

    def _cuda_emptyCache(self):
        self.device.call("empty_cache")

    def _cuda_memoryStats(self, index):
        out = {s.name.decode(): s.value() for s in self.cards[index].stats()}
        out["max_split_size"] = self.max_split_size
        return out

    def _cuda_resetPeakMemoryStats(self, index):
        self.cards[index].call("reset_peak")

    def _cuda_resetAccumulatedMemoryStats(self, index):
        self.device.lib.plim_vgpu_reset_accumulated(self.cards[index].handle)

    _accelerator_emptyCache = _cuda_emptyCache
    _accelerator_getDeviceStats = _cuda_memoryStats
    _accelerator_resetPeakStats = _cuda_resetPeakMemoryStats
    _accelerator_resetAccumulatedStats = _cuda_resetAccumulatedMemoryStats

    def _accelerator_getMemoryInfo(self, index):
        return self.cards[index].mem_info()

    def _accelerator_isAllocatorInitialized(self):
        return True

    def _cuda_hostMemoryStats(self):
        return {}

    def _cuda_resetPeakHostMemoryStats(self):
        pass

    _cuda_resetAccumulatedHostMemoryStats = _cuda_resetPeakHostMemoryStats

    def _cuda_setMemoryFraction(self, fraction, index):
        self.cards[index].call("fraction", ctypes.c_double(fraction))
        self.cards[index].fraction = fraction

    def _cuda_getMemoryFraction(self, index):
        return self.cards[index].fraction

    def _cuda_getAllocatorBackend(self):
        return "native"

    def _accelerator_setAllocatorSettings(self, settings):
        self.device.call("config", text(settings))
        self.alloc_conf = settings

    _cuda_cudaCachingAllocator_set_allocator_settings = _accelerator_setAllocatorSettings

    def _cuda_memorySnapshot(self, *args):
        pool = args[0] if args else None  # and, in newer versions, whether traces are wanted
        traces = not (pool and pool[2:] == (False,))
        return {"segments": [s for card in self.cards
                             for s in segments(card.rows("blocks", Block), card.index)],
                "device_traces": [self.trace(card) if traces else [] for card in self.cards],
                "allocator_settings": allocator_settings(self.alloc_conf),
                "external_annotations": []}

    def trace(self, card):
        return [trace_entry(t, self.metadata) for t in card.rows("traces", Trace)
                if t.action.decode() not in self.skipped]

    def _cuda_record_memory_history(self, enabled, context="all", stacks="all",
                                    max_entries=sys.maxsize, clear_history=False, *rest):
        self.record(0 if enabled is None else 1 if enabled == "state" else max_entries,
                    clear_history, rest)

    def _cuda_record_memory_history_legacy(self, enabled, record_context=True, max_entries=1,
                                           record_trace_context=False, cpp=False,
                                           clear_history=False, *rest):
        self.record(max_entries if enabled else 0, clear_history, rest)

    def record(self, entries, clear, rest):
        self.recording = bool(entries)
        self.skipped = rest[2] if len(rest) > 2 else ()
        for card in self.cards:
            self.device.lib.plim_vgpu_history(card.handle, entries, bool(clear))

    def _cuda_isHistoryEnabled(self):
        return self.recording

    def _cuda_allocationTraceback(self, address):
        return next((frames(b) for card in self.cards for b in card.rows("blocks", Block)
                     if b.addr == address and b.state == BlockState.ALLOCATED), None)

    def _cuda_setMemoryMetadata(self, text):
        self.metadata = text

    def _cuda_getMemoryMetadata(self):
        return self.metadata

    def _cuda_canDeviceAccessPeer(self, a, b):
        return a != b and self.cards[a].card.peers

    def _cuda_getArchFlags(self):
        return f"sm_{self.cards[0].card.cc}"

    def _cuda_getCompiledVersion(self):
        return 12080

    def _cuda_isInBadFork(self):
        return self.used and os.getpid() != self.device.pid

    def _cuda_isCurrentStreamCapturing(self):
        return False

    def _graph_pool_handle(self):
        return 0, 0

    def _cuda_ipc_collect(self):
        pass

    _cuda_clearCublasWorkspaces = _cuda_sleep = _cuda_lock_mutex = _cuda_unlock_mutex = \
        lambda self, *args: None

    def _cuda_set_sync_debug_mode(self, level):
        pass

    def _cuda_get_sync_debug_mode(self):
        return 0

    def _cuda_getCurrentBlasHandle(self):
        return 0

    def _cuda_get_cudnn_benchmark_limit(self):
        return 10

    def _cuda_set_cudnn_benchmark_limit(self, n):
        pass

    def _nccl_version(self):
        major, minor, patch = NCCL_VERSION
        return major << 32 | minor << 16 | patch

    def _nccl_version_suffix(self):
        return b""


def stream_class(torch_c):
    class CudaStreamBase(torch_c.Stream):
        def __new__(cls, priority=0, stream_id=None, device_index=0, device_type=1, **kwargs):
            if stream_id is None:
                return torch_c.Stream.__new__(cls, device="cuda")
            return torch_c.Stream.__new__(cls, stream_id=stream_id, device_index=device_index,
                                          device_type=device_type)

        @property
        def cuda_stream(self):
            return self.stream_id

        @staticmethod
        def priority_range():
            return 0, -1

    return CudaStreamBase


def give_torch_c(device, shim):
    torch_c = sys.modules["torch._C"]
    pretend = Pretend(device, shim, torch_c)
    for name in dir(Pretend):
        if name.startswith(("_cuda_", "_graph", "_nccl", "_accelerator")):
            if not name.startswith("_accelerator") or hasattr(torch_c, name):
                setattr(torch_c, name, getattr(pretend, name))
    torch_c._CudaDeviceProperties = Properties
    torch_c._CudaStreamBase = stream_class(torch_c)
    Event.sync = staticmethod(
        lambda index, stream: device.cards[index].call("sync", ctypes.c_uint16(stream)))
    torch_c._CudaEventBase = Event
    torch_c._CUDAGraph = Graph
    torch_c._cudart = Cudart(device)
    torch_c._cudnn = Cudnn
    torch_c._has_cuda = torch_c._has_cudnn = True
    give_comm(device, shim, torch_c)
    return pretend
