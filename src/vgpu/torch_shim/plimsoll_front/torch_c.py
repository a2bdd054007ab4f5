"""What a CUDA build has in torch._C."""

import ctypes
import os
import sys
import time

from .abi import Block, BlockState, Trace, Vgpu
from .device import text
from .snapshot import allocator_settings, frames, max_split_size, segments, trace_entry

CUDA_VERSION, CUDNN_VERSION = "12.8", 91000  # of a current wheel


class Properties:
    """torch.cuda.get_device_properties()"""

    def __init__(self, card):
        self.name = card.name.decode()
        self.major, self.minor = divmod(card.cc, 10)
        self.total_memory = card.total
        self.multi_processor_count = card.sms
        self.max_threads_per_multi_processor = card.threads_per_sm
        self.regs_per_multiprocessor = 65536
        self.warp_size = 32
        self.is_integrated = self.is_multi_gpu_board = 0
        self.shared_memory_per_block = 49152
        self.shared_memory_per_block_optin = 101376
        self.shared_memory_per_multiprocessor = 102400
        self.L2_cache_size = 50 << 20
        self.gcnArchName = self.name
        self.uuid = "00000000-0000-0000-0000-000000000000"
        self.pci_bus_id = self.pci_device_id = self.pci_domain_id = 0
        self.clock_rate = self.memory_clock_rate = self.memory_bus_width = 0

    def __repr__(self):
        return (f"_CudaDeviceProperties(name='{self.name}', major={self.major}, "
                f"minor={self.minor}, total_memory={self.total_memory >> 20}MB, "
                f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
                f"L2_cache_size={self.L2_cache_size >> 20}MB)")


class Event:
    """Over as soon as it is recorded; times are those of the Python program."""

    def __new__(cls, enable_timing=False, blocking=False, interprocess=False, external=False):
        self = super().__new__(cls)
        self.when = None
        return self

    device, cuda_event = None, 0

    def record(self, stream=None):
        self.when = time.perf_counter()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

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
        return self.device.mem_info()

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
        self.max_split_size = max_split_size(device.alloc_conf)  # stays what it was at start
        self.recording, self.skipped, self.metadata = False, (), ""

    def _cuda_init(self):
        import torch
        cuda = torch.cuda
        cuda.default_generators = (torch.Generator(),)
        cuda.has_half = True
        cuda._get_device_properties = lambda index: Properties(self.device.card)

    def _cuda_getDeviceCount(self):
        return 1

    def _cuda_getDevice(self):
        return 0

    def _cuda_setDevice(self, index):
        if index > 0:
            raise RuntimeError("CUDA error: invalid device ordinal: there is one pretend "
                               f"GPU, cuda:0, and the script asks for cuda:{index}")

    def _cuda_exchangeDevice(self, index):
        self._cuda_setDevice(index)
        return 0

    _cuda_maybeExchangeDevice = _cuda_exchangeDevice

    def _cuda_synchronize(self):
        self.device.call("sync", ctypes.c_uint16(Vgpu.ALL_STREAMS))

    def _cuda_getCurrentStream(self, index):
        return self.shim.plimsoll_shim_stream(), 0, 1

    def _cuda_getDefaultStream(self, index):
        return 0, 0, 1

    def _cuda_getCurrentRawStream(self, index):
        return self.shim.plimsoll_shim_stream()

    def _cuda_setStream(self, stream_id, device_index, device_type):
        self.shim.plimsoll_shim_set_stream(stream_id)

    def _cuda_emptyCache(self):
        self.device.call("empty_cache")

    def _cuda_memoryStats(self, index):
        out = {s.name.decode(): s.value() for s in self.device.stats()}
        out["max_split_size"] = self.max_split_size
        return out

    def _cuda_resetPeakMemoryStats(self, index):
        self.device.call("reset_peak")

    def _cuda_resetAccumulatedMemoryStats(self, index):
        self.device.lib.plim_vgpu_reset_accumulated(self.device.handle)

    def _cuda_hostMemoryStats(self):
        return {}

    def _cuda_resetPeakHostMemoryStats(self):
        pass

    _cuda_resetAccumulatedHostMemoryStats = _cuda_resetPeakHostMemoryStats

    def _cuda_setMemoryFraction(self, fraction, index):
        self.device.call("fraction", ctypes.c_double(fraction))
        self.device.fraction = fraction

    def _cuda_getMemoryFraction(self, index):
        return self.device.fraction

    def _cuda_getAllocatorBackend(self):
        return "native"

    def _accelerator_setAllocatorSettings(self, settings):
        self.device.call("config", text(settings))
        self.device.alloc_conf = settings

    _cuda_cudaCachingAllocator_set_allocator_settings = _accelerator_setAllocatorSettings

    def _cuda_memorySnapshot(self, *args):
        pool = args[0] if args else None  # and, in newer versions, whether traces are wanted
        actions = [] if pool and pool[2:] == (False,) else self.device.rows("traces", Trace)
        return {"segments": segments(self.device.rows("blocks", Block)),
                "device_traces": [[trace_entry(t, self.metadata) for t in actions
                                   if t.action.decode() not in self.skipped]],
                "allocator_settings": allocator_settings(self.device.alloc_conf),
                "external_annotations": []}

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
        self.device.lib.plim_vgpu_history(self.device.handle, entries, bool(clear))

    def _cuda_isHistoryEnabled(self):
        return self.recording

    def _cuda_allocationTraceback(self, address):
        blocks = self.device.rows("blocks", Block)
        return next((frames(b) for b in blocks
                     if b.addr == address and b.state == BlockState.ALLOCATED), None)

    def _cuda_setMemoryMetadata(self, text):
        self.metadata = text

    def _cuda_getMemoryMetadata(self):
        return self.metadata

    def _cuda_canDeviceAccessPeer(self, a, b):
        return False

    def _cuda_getArchFlags(self):
        return f"sm_{self.device.card.cc}"

    def _cuda_getCompiledVersion(self):
        return 12080

    def _cuda_isInBadFork(self):
        return os.getpid() != self.device.pid

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
        raise RuntimeError("plimsoll: NCCL is not simulated: there is one GPU and one process")


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
            if name != "_accelerator_setAllocatorSettings" or hasattr(torch_c, name):
                setattr(torch_c, name, getattr(pretend, name))
    torch_c._CudaDeviceProperties = Properties
    torch_c._CudaStreamBase = stream_class(torch_c)
    torch_c._CudaEventBase = Event
    torch_c._CUDAGraph = Graph
    torch_c._cudart = Cudart(device)
    torch_c._cudnn = Cudnn
    torch_c._has_cuda = torch_c._has_cudnn = True
