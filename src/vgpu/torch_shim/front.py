"""front.py -- makes torch.cuda answer as a card that does not exist.

Loaded by sitecustomize.py in a Python that `plimsoll run` started.  When the
script imports torch this file

 1. builds shim.cpp against that torch (once; the result is kept) and loads it
    before torch looks for a GPU;
 2. gives torch._C the functions that a CUDA build has, written here, so that
    torch.cuda itself stays PyTorch's own code;
 3. watches modules, backward passes and optimizers, to say what memory is for;
 4. writes the report when the script ends.

Settings come in variables PLIMSOLL_RUN_*, from cli/cmd_run.c.
"""

import atexit
import collections
import ctypes
import faulthandler
import functools
import gc
import hashlib
import importlib
import importlib.util
import linecache
import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import threading
import time
import warnings
import weakref

HERE = os.path.dirname(os.path.abspath(__file__))
PERIODS = 3  # of growth, before who holds what is looked for
CUDA_VERSION, CUDNN_VERSION = "12.8", 91000  # what a wheel of these days says


# ---- numbers of the C headers: tools/abi.py compares each with PREFIX_NAME there ------


class Phase:
    c_prefix = "PLIM_PHASE_"
    LOAD, INPUTS, ZERO_GRAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = range(7)


class Category:
    c_prefix = "PLIM_CAT_"
    PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE, INPUT = range(5)
    COUNT = 9


class End:
    c_prefix = "PLIM_VGPU_END_"
    DONE, EARLY, MEMORY = range(3)


class StatKind:
    c_prefix = "PLIM_STAT_"
    POOLS, WHOLE, NUMBER = range(3)


class BlockState:
    c_prefix = "PLIM_VGPU_BLOCK_"
    FREE, ALLOCATED, PENDING, UNMAPPED = range(4)


class Vgpu:
    c_prefix = "PLIM_VGPU_"
    NONE, ALL_STREAMS = 0xffffffff, 0xffff


class Render:
    c_prefix = "PLIM_"
    TEXT, JSON = range(2)



def fail(text, code=3):
    """Ends the script with one line; 3 and 4 as in cli/console.h."""
    sys.stdout.flush()
    sys.stderr.write(f"plimsoll: {text}\n")
    sys.stderr.flush()
    os._exit(code)


# ---- libplimsoll ----------------------------------------------------------------

c_u64, c_u32, c_int, c_str, c_ptr = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int,
                                     ctypes.c_char_p, ctypes.c_void_p)


class Err(ctypes.Structure):
    c_type = "plim_err"
    _fields_ = [("code", c_int), ("at", c_u64), ("msg", ctypes.c_char * 256)]


class Options(ctypes.Structure):
    c_type = "plim_vgpu_options"
    _fields_ = [("gpu", c_str), ("vram", c_u64), ("torch", c_str), ("alloc_conf", c_str),
                ("workspace", c_str)]


class Card(ctypes.Structure):
    c_type = "plim_vgpu_card"
    _fields_ = [("name", c_str), ("torch", c_str), ("cc", c_int), ("sms", c_int),
                ("threads_per_sm", c_int), ("total", c_u64), ("context", c_u64),
                ("workspace", ctypes.c_bool)]


class Counter(ctypes.Structure):
    c_type = "plim_stat"
    _fields_ = [(name, c_u64) for name in ("current", "peak", "total_allocated", "total_freed")]

    def columns(self):
        """Under the names of torch.cuda.memory_stats."""
        return {"current": self.current, "peak": self.peak, "allocated": self.total_allocated,
                "freed": self.total_freed}


class Stat(ctypes.Structure):
    c_type = "plim_vgpu_stat"
    _fields_ = [("name", c_str), ("kind", c_int), ("all", Counter), ("small", Counter),
                ("large", Counter)]

    def value(self):
        """As torch.cuda.memory_stats_as_nested_dict has it."""
        if self.kind == StatKind.POOLS:
            return {"all": self.all.columns(), "small_pool": self.small.columns(),
                    "large_pool": self.large.columns()}
        return self.all.columns() if self.kind == StatKind.WHOLE else self.all.current


class Block(ctypes.Structure):
    c_type = "plim_vgpu_block"
    _fields_ = [("addr", c_u64), ("bytes", c_u64), ("requested", c_u64),
                ("stream", ctypes.c_uint16), ("state", ctypes.c_uint8),
                ("first", ctypes.c_bool), ("small", ctypes.c_bool),
                ("expandable", ctypes.c_bool), ("line", c_str), ("op", c_str)]


class Trace(ctypes.Structure):
    c_type = "plim_vgpu_trace"
    _fields_ = [("action", c_str), ("addr", c_u64), ("bytes", c_u64), ("number", c_u64),
                ("stream", ctypes.c_uint16), ("line", c_str), ("op", c_str)]


class Growing(ctypes.Structure):
    c_type = "plim_vgpu_growing"
    _fields_ = [("addr", c_u64), ("line", c_u32)]


class Style(ctypes.Structure):
    c_type = "plim_style"
    _fields_ = [("size", ctypes.c_size_t), ("si", ctypes.c_bool), ("color", ctypes.c_bool),
                ("ascii", ctypes.c_bool), ("width", c_int), ("top", c_int), ("depth", c_int),
                ("quiet", ctypes.c_bool), ("columns", c_str), ("types", c_str),
                ("sort", c_str), ("tensors", ctypes.c_bool)]


PUT = ctypes.CFUNCTYPE(c_int, c_ptr, c_ptr, ctypes.c_size_t)


def text(z):
    return z.encode() if z is not None else None


class Device:
    """The C functions of a plim_vgpu, as methods."""

    def __init__(self, run, torch_version):
        self.lib = ctypes.CDLL(run["lib"], mode=ctypes.RTLD_GLOBAL)
        self.handle = c_ptr()
        self.lib.plim_vgpu_oom_text.argtypes = [c_ptr, c_ptr, ctypes.c_size_t]
        self.lib.plim_vgpu_oom_text.restype = ctypes.c_size_t
        self.lib.plim_vgpu_history.argtypes = [c_ptr, c_u64, ctypes.c_bool]
        self.fraction = 1.0
        self.alloc_conf = run["alloc_conf"] or ""
        self.note = ""
        options = Options(text(run["gpu"]), run["vram"], text(torch_version),
                          text(run["alloc_conf"]), text(run["workspace"]))
        err = Err()
        st = self.lib.plim_vgpu_open(ctypes.byref(options), ctypes.byref(self.handle),
                                        ctypes.byref(err))
        if st and b"PyTorch version" in err.msg:  # newer than we know: as the newest
            options.torch, err = None, Err()
            st = self.lib.plim_vgpu_open(ctypes.byref(options), ctypes.byref(self.handle),
                                            ctypes.byref(err))
        if st:
            fail(err.msg.decode(), 2)
        self.card = Card()
        self.lib.plim_vgpu_card_get(self.handle, ctypes.byref(self.card))
        if options.torch is None:
            self.note = (f"PyTorch {torch_version} is newer than any known version: simulated as "
                         f"{self.card.torch.decode()}")

    def call(self, name, *args):
        err = Err()
        if getattr(self.lib, "plim_vgpu_" + name)(self.handle, *args, ctypes.byref(err)):
            raise RuntimeError(err.msg.decode())

    def failed(self):
        return self.lib.plim_vgpu_oom_text(self.handle, None, 0) > 0

    def mem_info(self):
        free, total = c_u64(), c_u64()
        self.lib.plim_vgpu_mem_info(self.handle, ctypes.byref(free), ctypes.byref(total))
        return free.value, total.value

    def rows(self, name, kind):
        """What plim_vgpu_NAME lists; there may be more of it a moment later."""
        count = getattr(self.lib, "plim_vgpu_" + name)
        rows = (kind * (count(self.handle, None, 0) + 64))()
        return rows[:min(count(self.handle, rows, len(rows)), len(rows))]

    def stats(self):
        return self.rows("stats", Stat)

    def report(self, run):
        pieces = []
        put = PUT(lambda _, p, n: pieces.append(ctypes.string_at(p, n)) or 0)
        report, err = c_ptr(), Err()
        style = Style(ctypes.sizeof(Style), **{
            k: run[k] for k in ("si", "color", "ascii", "width", "top", "quiet")})
        st = self.lib.plim_vgpu_report_make(self.handle, ctypes.byref(report),
                                               ctypes.byref(err))
        if not st:
            st = self.lib.plim_vgpu_report_print(report,
                                                 Render.JSON if run["json"] else Render.TEXT,
                                                    ctypes.byref(style), put, None,
                                                    ctypes.byref(err))
            self.lib.plim_vgpu_report_free(report)
        return f"plimsoll: {err.msg.decode()}\n".encode() if st else b"".join(pieces)


# ---- the shim: built once for a torch, then loaded ---------------------------------


def torch_version(root):
    spec = importlib.util.spec_from_file_location("_torch_version",
                                                  os.path.join(root, "version.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return str(module.__version__)


def has_new_abi(lib):
    """Wheels up to 2.6 have C++ strings of before C++11: here, in Error(SourceLocation, string)."""
    with open(os.path.join(lib, "libc10.so"), "rb") as f:
        return b"_ZN3c105ErrorC1ENS_14SourceLocationESs" not in f.read()


def compiler():
    for name in (os.environ.get("CXX"), "c++", "g++", "clang++"):
        if name and shutil.which(name):
            return name
    fail("no C++ compiler was found: 'plimsoll run' builds a small library for your PyTorch once; "
         "install g++ or clang++, or set CXX", 4)


def build_command(run, root, version, out):
    lib, include = os.path.join(root, "lib"), os.path.join(root, "include")
    number = tuple(int(x) for x in version.split("+")[0].split(".")[:2])
    home = os.path.dirname(run["lib"])
    return [compiler(), "-std=c++20" if number >= (2, 9) else "-std=c++17", "-O1", "-fPIC",
            "-shared", "-w", "-fvisibility=hidden",
            f"-D_GLIBCXX_USE_CXX11_ABI={int(has_new_abi(lib))}", f"-I{run['include']}",
            f"-I{include}", f"-I{include}/torch/csrc/api/include",
            os.path.join(HERE, "shim.cpp"), "-o", out, run["lib"], f"-L{lib}", "-ltorch_cpu",
            "-lc10", f"-Wl,-rpath,{lib}", f"-Wl,-rpath,{home}"]


def shim_path(run, root, version):
    """Where the shim for this torch lies; it is built if it is not there."""
    key = hashlib.sha256(repr(build_command(run, root, version, "")).encode())
    for name in (os.path.join(HERE, "shim.cpp"), os.path.join(run["include"], "plimsoll.h"),
                 os.path.join(run["include"], "plimsoll_vgpu.h")):
        with open(name, "rb") as f:
            key.update(f.read())
    cache = os.path.join(os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache"),
                         "plimsoll")
    path = os.path.join(cache, f"shim-{version}-{key.hexdigest()[:12]}.so")
    if os.path.exists(path):
        return path
    try:
        os.makedirs(cache, exist_ok=True)
        fd, made = tempfile.mkstemp(suffix=".so", dir=cache)
    except OSError as e:
        fail(f"cannot write the shim for PyTorch {version} to '{cache}': {e.strerror}", 4)
    os.close(fd)
    sys.stderr.write(f"plimsoll: building the shim for PyTorch {version} (once)\n")
    done = subprocess.run(build_command(run, root, version, made), capture_output=True, text=True,
                          env={k: v for k, v in os.environ.items() if k != "PLIMSOLL_RUN_LIB"})
    if done.returncode:
        os.unlink(made)
        errors = [line for line in done.stderr.splitlines() if "error" in line][:5]
        fail(f"cannot build the shim for PyTorch {version}:\n" +
             "\n".join(errors or done.stderr.splitlines()[-5:]), 4)
    os.replace(made, path)
    return path


# ---- snapshots, in PyTorch's own format ------------------------------------------------


def frames(row):
    """The one frame that is known; its function is the op."""
    file, _, line = row.line.decode().rpartition(":")
    return [{"filename": file, "line": int(line), "name": row.op.decode()}] if file else []


def segments(blocks):
    out, states = [], ("inactive", "active_allocated", "active_pending_free")
    gap = False  # what is not mapped divides an expandable segment
    for b in blocks:
        if b.state == BlockState.UNMAPPED:
            gap = True
            continue
        if b.first or gap:
            out.append({
                "device": 0, "address": b.addr, "total_size": 0, "allocated_size": 0,
                "active_size": 0, "requested_size": 0, "stream": b.stream,
                "segment_type": "small" if b.small else "large", "segment_pool_id": (0, 0),
                "is_expandable": b.expandable, "frames": [], "blocks": []})
        gap = False
        s = out[-1]
        s["total_size"] += b.bytes
        s["allocated_size"] += b.bytes if b.state == BlockState.ALLOCATED else 0
        s["active_size"] += b.bytes if b.state != BlockState.FREE else 0
        s["requested_size"] += b.requested
        s["blocks"].append({"address": b.addr, "size": b.bytes, "requested_size": b.requested,
                            "state": states[b.state], "frames": frames(b)})
    return out


def trace_entry(t, metadata):
    action = t.action.decode()
    return {"action": action, "device_free" if action == "oom" else "addr": t.addr,
            "size": t.bytes, "stream": t.stream, "time_us": t.number, "compile_context": "N/A",
            "user_metadata": metadata, "pool_id": (0, 0), "frames": frames(t)}


def setting(conf, key, default):
    words = dict(pair.split(":", 1) for pair in conf.replace(" ", "").split(",") if ":" in pair)
    return words.get(key, default)


def max_split_size(conf):
    mib = setting(conf, "max_split_size_mb", "")
    return int(mib) << 20 if mib.isdigit() else -1


def allocator_settings(conf):
    return {"PYTORCH_CUDA_ALLOC_CONF": conf, "max_split_size": max_split_size(conf),
            "garbage_collection_threshold": float(
                setting(conf, "garbage_collection_threshold", "0")),
            "expandable_segments": setting(conf, "expandable_segments", "") == "True",
            "pinned_num_register_threads": 1, "release_lock_on_cudamalloc": False,
            "pinned_use_cuda_host_register": False,
            "roundup_power2_divisions": {str(1 << i): 0 for i in range(16)}}


# ---- what a CUDA build has in torch._C ------------------------------------------------


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


# ---- who holds what ------------------------------------------------------------------------


class Holders:
    """Says what keeps tensors alive: "`losses` in `main`".

    From a tensor it asks the garbage collector who refers to it, and who to that, until it
    comes to a variable of a function that runs, to one of a module of the user's, or to an
    attribute.  A best effort, within bounds."""

    MOST_TENSORS, MOST_OBJECTS, MOST_NODES, SECONDS = 8, 2000, 20000, 10.0

    def __init__(self, torch):
        self.torch = torch
        self.until = time.monotonic() + self.SECONDS
        self.tensors = [t for t in gc.get_objects()
                        if issubclass(type(t), torch.Tensor) and self.address(t)]
        self.own = {id(self.__dict__), id(self.tensors)}
        self.by_graph = None  # what graph_holder said
        self.variables = {}  # id of an object: "`losses` in `main`"
        self.find_variables()

    def address(self, tensor):
        try:
            return tensor.untyped_storage().data_ptr() if tensor.is_cuda else 0
        except (RuntimeError, NotImplementedError):
            return 0  # a tensor without a storage of its own

    def users(self, path):
        skip = [sysconfig.get_path(k) for k in ("stdlib", "platstdlib")] + [HERE]
        return bool(path) and not path.startswith(tuple(p + os.sep for p in skip if p)) \
            and "-packages" + os.sep not in path and path[0] != "<"

    def find_variables(self):
        for frame in sys._current_frames().values():
            while frame is not None:
                if self.users(frame.f_code.co_filename):
                    self.find_locals(frame)
                frame = frame.f_back
        for name, module in list(sys.modules.items()):
            if self.users(getattr(module, "__file__", None)):
                where = os.path.basename(module.__file__)
                self.take_names(vars(module), where)

    def find_locals(self, frame):
        if not frame.f_code.co_flags & 1:  # of a module: its variables are found there
            return
        names = frame.f_locals
        self.take_names(names, frame.f_code.co_name)
        if isinstance(names, dict):
            names.clear()  # a copy, which would keep the tensors

    def take_names(self, names, where):
        for name, value in list(names.items()):
            if not name.startswith("__") and not isinstance(value, type(sys)):
                self.variables.setdefault(id(value), f"`{name}` in `{where}`")

    def attribute(self, owner, value, below):
        """Of an instance or a class: the value is its attribute, or its dictionary, in which
        `below` is one."""
        kind = owner if isinstance(owner, type) else type(owner)
        names = getattr(owner, "__dict__", None)
        if names is None or kind.__module__ == "builtins":
            return None
        for name, other in list(names.items()):
            if other is value or names is value and other is below:
                return f"`{name}` of `{kind.__name__}`"
        return None

    def holder(self, tensor):
        """Breadth first: what is nearest says most.  Each look at the heap takes long, so
        there is one a level."""
        level, seen, below = [tensor], {id(tensor)}, {}
        while level and len(seen) < self.MOST_OBJECTS and time.monotonic() < self.until:
            for value in level:
                if id(value) in self.variables:
                    return self.variables[id(value)]
            mine = {id(value): value for value in level}
            ours = {id(o) for o in (level, seen, below, mine)} | self.own
            above = []
            for owner in gc.get_referrers(*level):
                if id(owner) in seen or id(owner) in ours \
                        or type(owner).__name__ in ("frame", "list_iterator", "module"):
                    continue
                seen.add(id(owner))
                value = next((mine[id(o)] for o in gc.get_referents(owner) if id(o) in mine), None)
                name = self.attribute(owner, value, below.get(id(value)))
                if name:
                    return name
                below[id(owner)] = value
                above.append(owner)
            level = above
        return None

    def graph(self, tensor, before):
        """The size of the graph behind a tensor, if it goes back that far; else 0."""
        nodes, seen, old = [tensor.grad_fn], {tensor.grad_fn}, False
        while nodes and len(seen) < self.MOST_NODES and time.monotonic() < self.until:
            node = nodes.pop()
            number = node._sequence_nr() if hasattr(node, "_sequence_nr") else before
            old = old or number < before
            for after, _ in node.next_functions:
                if after is not None and after not in seen:
                    seen.add(after)
                    nodes.append(after)
        return len(seen) if old else 0

    def graph_holder(self, before):
        """The tensor with the smallest graph that goes back that far: others have it too."""
        sizes = []
        for tensor in self.tensors:
            if tensor.grad_fn is not None:
                size = self.graph(tensor, before)
                if size:
                    sizes.append((size, len(sizes), tensor))
        for _, _, tensor in sorted(sizes, key=lambda row: row[:2])[:self.MOST_TENSORS]:
            name = self.holder(tensor)
            if name:
                return f"the autograd graph of {name}"
        return None

    def of(self, addresses, before):
        """What holds most of the tensors at these addresses, the oldest first.  The newest may have a variable
        of its own, while a graph has the others."""
        names = collections.Counter()
        age = {address: i for i, address in enumerate(addresses)}
        held = sorted((t for t in self.tensors if self.address(t) in age),
                      key=lambda t: age[self.address(t)])
        middle = max(0, (len(held) - self.MOST_TENSORS) // 2)  # of the loop, not before it
        for tensor in held[middle:middle + self.MOST_TENSORS]:
            names[self.holder(tensor)] += 1
        del names[None]
        name, count = names.most_common(1)[0] if names else (None, 0)
        if count < min(PERIODS, len(addresses)):
            if self.by_graph is None:
                self.by_graph = self.graph_holder(before) or ""
            name = self.by_graph or name
        return name


# ---- what happens in the script -----------------------------------------------------------


class Story:
    """Follows the training step, and names tensors for what they are."""

    def __init__(self, run, device, shim):
        self.run, self.device, self.shim = run, device, shim
        self.folder = os.getcwd()
        self.step, self.phase, self.op = -1, Phase.LOAD, ""
        self.depth, self.applying, self.stack = 0, 0, []
        self.names = {}  # id of a module: its path
        self.roots = weakref.WeakSet()
        self.parameter_names = {}  # id of a parameter: its name
        self.parameters = {}  # id: weak reference
        self.optimizers = weakref.WeakSet()
        self.sequences = []  # at the end of each step, the next node's number
        self.named = set()  # lines whose holder is known
        self.done, self.why, self.end = False, "", End.DONE
        self.main = threading.get_ident()

    # -- marks

    def mark(self, phase=None, op=""):
        if self.done or os.getpid() != self.device.pid:
            return
        if phase is not None:
            self.phase = phase
            if phase != Phase.LOAD and self.step < 0:
                self.step = 0
        if (self.step, self.phase, op) != self.op:
            self.op = (self.step, self.phase, op)
            self.device.call("mark", self.step, self.phase, op.encode())

    # -- names

    def label(self, tensor, category, name=""):
        try:
            if tensor.is_cuda and not tensor.is_sparse:
                self.shim.plimsoll_shim_label(tensor.untyped_storage().data_ptr(), category,
                                              name.encode())
        except (RuntimeError, NotImplementedError):
            pass  # a tensor without a storage of its own

    def label_parameter(self, p):
        self.parameters[id(p)] = weakref.ref(p)
        name = self.parameter_names.get(id(p), "")
        self.label(p.data, Category.PARAMETER, name)
        if p.grad is not None:
            self.label(p.grad, Category.GRADIENT, name + ".grad" if name else "")

    def label_module(self, module):
        for name, p in module.named_parameters():
            self.parameter_names.setdefault(id(p), name)
            self.label_parameter(p)
        for name, b in module.named_buffers():
            self.label(b, Category.BUFFER, name)

    def label_gradients(self):
        for key, ref in list(self.parameters.items()):
            p = ref()
            if p is None:
                self.parameters.pop(key, None)
            elif p.grad is not None:
                name = self.parameter_names.get(key, "")
                self.label(p.grad, Category.GRADIENT, name + ".grad" if name else "")

    def label_optimizer(self, optimizer):
        for group in optimizer.param_groups:
            for p in group["params"]:
                self.label_parameter(p)
        for p, state in optimizer.state.items():
            if isinstance(state, dict):
                name = self.parameter_names.get(id(p), "")
                for key, value in state.items():
                    if isinstance(value, self.torch.Tensor):
                        self.label(value, Category.OPTIMIZER_STATE,
                                   f"{name}.{key}" if name else str(key))

    def sweep(self):
        self.label_gradients()
        for optimizer in list(self.optimizers):
            self.label_optimizer(optimizer)

    # -- modules

    def enter_module(self, module, args):
        if self.done or threading.get_ident() != self.main or self.phase == Phase.BACKWARD:
            return
        self.depth += 1
        if self.depth == 1:
            if module not in self.roots:
                self.roots.add(module)
                self.names.update((id(m), n) for n, m in module.named_modules())
                self.label_module(module)
            for a in args if isinstance(args, tuple) else ():
                if isinstance(a, self.torch.Tensor) and a.is_cuda and not a.requires_grad \
                        and self.phase != Phase.LOSS:
                    self.label(a, Category.INPUT)
            loss = "loss" in type(module).__module__.rsplit(".", 1)[-1]
            self.phase = Phase.LOSS if loss else Phase.FORWARD
            self.step = max(self.step, 0)
        self.stack.append(self.names.get(id(module), ""))
        self.mark(op=self.stack[-1])

    def leave_module(self, module, args, result):
        if not self.depth or threading.get_ident() != self.main or self.phase == Phase.BACKWARD:
            return
        self.depth -= 1
        if self.stack:
            self.stack.pop()
        if self.depth == 0:
            self.mark(Phase.LOSS)
        else:
            self.mark(op=self.stack[-1] if self.stack else "")

    # -- backward, optimizer

    def backward(self, f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            if self.phase == Phase.BACKWARD or self.done:
                return f(*args, **kwargs)
            self.depth, self.stack = 0, []  # an exception may have left a module open
            self.mark(Phase.BACKWARD)
            try:
                return f(*args, **kwargs)
            finally:
                self.label_gradients()
                self.phase = Phase.LOSS
        return run

    def zero_grad(self, f):
        @functools.wraps(f)
        def run(*args, **kwargs):
            before = self.phase
            self.mark(Phase.ZERO_GRAD)
            try:
                return f(*args, **kwargs)
            finally:
                self.mark(Phase.INPUTS if before in (Phase.LOAD, Phase.ZERO_GRAD) else before)
        return run

    def before_step(self, optimizer, args, kwargs):
        self.optimizers.add(optimizer)
        self.label_optimizer(optimizer)
        self.mark(Phase.OPTIMIZER)

    def after_step(self, optimizer, args, kwargs):
        self.label_optimizer(optimizer)
        self.step += 1
        self.mark(Phase.INPUTS)
        last = self.run["steps"] and self.step >= self.run["steps"]
        self.watch_growth(last)
        if last:
            raise SystemExit(0)

    # -- growth

    def watch_growth(self, last):
        """Finds out who holds what grows while its variables are there."""
        if self.done or os.getpid() != self.device.pid \
                or not hasattr(self.shim, "plimsoll_shim_sequence"):
            return
        self.sequences.append(self.shim.plimsoll_shim_sequence())
        if last or self.step in (5, 8) or self.step & (self.step - 1) == 0:
            self.name_growth()

    def name_growth(self):
        lines = collections.defaultdict(list)
        for row in self.device.rows("growing_blocks", Growing):
            if row.line not in self.named:
                lines[row.line].append(row.addr)
        if not lines:
            return
        try:
            holders = Holders(self.torch)
            before = self.sequences[-PERIODS]
            for line, addresses in lines.items():
                name = holders.of(addresses, before)
                if name:
                    self.named.add(line)
                    self.device.call("holder", c_u32(line), name.encode())
        except Exception:
            pass  # a name is a help: the script goes on without it

    def apply(self, f):
        @functools.wraps(f)
        def run(module, *args, **kwargs):
            self.applying += 1
            try:
                return f(module, *args, **kwargs)
            finally:
                self.applying -= 1
                if not self.applying and not self.done:
                    self.label_module(module)
        return run

    def follow(self, torch):
        self.torch = torch
        module = importlib.import_module("torch.nn.modules.module")
        optim = importlib.import_module("torch.optim.optimizer")
        module.register_module_forward_pre_hook(self.enter_module)
        module.register_module_forward_hook(self.leave_module, always_call=True)
        torch.nn.Module._apply = self.apply(torch.nn.Module._apply)
        torch.nn.Module.zero_grad = self.zero_grad(torch.nn.Module.zero_grad)
        torch.optim.Optimizer.zero_grad = self.zero_grad(torch.optim.Optimizer.zero_grad)
        torch.Tensor.backward = self.backward(torch.Tensor.backward)
        torch.autograd.backward = self.backward(torch.autograd.backward)
        torch.autograd.grad = self.backward(torch.autograd.grad)
        optim.register_optimizer_step_pre_hook(self.before_step)
        optim.register_optimizer_step_post_hook(self.after_step)

    # -- the end

    def finish(self, why=""):
        if self.done or os.getpid() != self.device.pid:
            return
        if not os.path.isdir(self.run["report"]):
            return  # whoever wanted to hear of it is gone
        self.sweep()
        self.done = True
        self.device.call("ended", End.EARLY if why else self.end)
        for note in filter(None, (self.device.note, why or self.why)):
            self.device.call("note", b"", note.encode())
        self.save()
        self.quote()
        used = any(s.name == b"allocation" and s.all.total_allocated for s in self.device.stats())
        used = used or self.device.failed()
        path = os.path.join(self.run["report"], f"{os.getpid()}{'+' if used else '-'}")
        with open(path + ".new", "wb") as f:
            f.write(self.device.report(self.run))
        os.replace(path + ".new", path)
        self.shim.plimsoll_shim_close()
        # The engine's thread may still hold the last graph; if the interpreter were gone
        # when it drops Python's objects in there, the process would abort.
        time.sleep(0.03)

    def save(self):
        """To the file, or, if another process of this run has it, beside it."""
        path = self.run["save"]
        if not path:
            return
        try:
            os.close(os.open(os.path.join(self.run["report"], ".saved"), os.O_CREAT | os.O_EXCL))
        except FileExistsError:
            path = f"{path}.{os.getpid()}"
        try:
            self.device.call("save", text(path))
        except RuntimeError as e:
            sys.stderr.write(f"plimsoll: {e}\n")

    def quote(self):
        """Puts what stands there beside each line."""
        for i, line in enumerate(self.device.rows("lines", c_str)):
            file, _, number = line.decode(errors="replace").rpartition(":")
            code = linecache.getline(os.path.join(self.folder, file), int(number)) if file else ""
            if code:
                self.device.call("source", c_u32(i), code.strip().encode())

    def watch_errors(self):
        before = sys.excepthook

        def hook(kind, error, trace):
            if any("OutOfMemoryError" in type(e).__name__ for e in causes(error)):
                self.end = End.MEMORY
            else:
                self.end = End.EARLY
                self.why = f"the script ended with {kind.__name__}: the report covers what ran before"
            before(kind, error, trace)
        sys.excepthook = hook

    def watch_exit(self):
        """os._exit leaves out what atexit would do."""
        leave = os._exit

        def exit_now(status):
            self.finish()
            leave(status)
        os._exit = exit_now

    def limit(self, seconds):
        def stop():
            self.finish(f"stopped after {seconds} s (--limit)")
            sys.stdout.flush()
            os._exit(0)  # from this thread nothing else ends the script
        timer = threading.Timer(seconds, stop)
        timer.daemon = True
        timer.start()


def causes(error):
    """An error, and those that it came of."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


# ---- putting it together -------------------------------------------------------------------


def no_compile(story):
    def compile(model=None, **kwargs):
        """torch.compile, which has no GPU to compile for."""
        line = story.shim.plimsoll_shim_line()
        story.device.call("note", line, b"torch.compile was ignored: the code ran in eager mode")
        return model if model is not None else lambda m: m
    return compile


def storage_to(torch, to):
    """UntypedStorage.to, which in a CPU build cannot make storages elsewhere."""
    @functools.wraps(to)
    def run(self, *, device, non_blocking=False):
        if torch.device(device).type != "cuda" or self.device.type == "cuda":
            return to(self, device=device, non_blocking=non_blocking)
        host = torch.empty(0, dtype=torch.uint8).set_(self)
        return host.to(device).untyped_storage()
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


def no_nccl():
    """init_process_group would say that NCCL was not built in."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not hasattr(distributed, "init_process_group"):
        return
    begin = distributed.init_process_group

    @functools.wraps(begin)
    def run(backend=None, *args, **kwargs):
        if "nccl" in str(backend).lower():
            raise RuntimeError("plimsoll: NCCL is not simulated: there is one GPU and one process")
        return begin(backend, *args, **kwargs)
    distributed.init_process_group = distributed.distributed_c10d.init_process_group = run


class Run:
    def __init__(self, run):
        self.run = run
        self.device = self.shim = self.story = None

    def before_torch(self, spec):
        root = os.path.dirname(spec.origin)
        version = torch_version(root)
        cuda = os.path.exists(os.path.join(root, "lib", "libtorch_cuda.so"))
        oldest = (2, 4) if cuda else (2, 6)
        if tuple(int(x) for x in version.split("+")[0].split(".")[:2]) < oldest:
            fail(f"PyTorch {version} is too old: 'plimsoll run' needs "
                 f"{oldest[0]}.{oldest[1]} or newer")
        if cuda:
            return runpy.run_path(os.path.join(HERE, "front_cuda.py"))["start"](self, spec, version)
        path = shim_path(self.run, root, version)
        self.device = Device(self.run, version)
        self.device.pid = os.getpid()
        try:
            self.shim = ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
        except OSError as e:
            fail(f"cannot load '{path}': {e}", 4)
        self.shim.plimsoll_shim_line.restype = c_str
        self.shim.plimsoll_shim_label.argtypes = [c_u64, c_int, c_str]
        self.shim.plimsoll_shim_sequence.restype = c_u64
        self.shim.plimsoll_shim_stream.restype = ctypes.c_int64
        self.shim.plimsoll_shim_set_stream.argtypes = [ctypes.c_int64]
        number = version.split("+")[0].split(".")
        skip = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib"), HERE]
        self.shim.plimsoll_shim_open(
            self.device.handle, int(number[0]) * 100 + int(number[1]),
            ctypes.c_double(float(self.run["scalar"])),
            ctypes.c_double(self.run["mask_fraction"]),
            "\n".join(p for p in skip if p).encode(), os.getcwd().encode())

    def before_cuda(self):
        give_torch_c(self.device, self.shim)

    def after_torch(self, torch):
        torch.version.cuda = CUDA_VERSION
        torch.cuda._lazy_init()
        warnings.filterwarnings("ignore", message=".*pin_memory.*")
        self.story = Story(self.run, self.device, self.shim)
        self.story.follow(torch)
        torch.compile = no_compile(self.story)
        no_nccl()
        if not faulthandler.is_enabled():
            faulthandler.enable()  # says who read the card's memory, which is not there
        storage = torch.UntypedStorage
        storage.to = storage_to(torch, storage.to)
        storage.clone = storage_clone(torch, storage.clone)
        storage.cuda = lambda self, device=None, non_blocking=False: self.to(device="cuda")
        self.story.watch_errors()
        self.story.watch_exit()
        atexit.register(self.story.finish)
        if self.run["limit"]:
            self.story.limit(self.run["limit"])


class Loader:
    """A module's own loader, with something done before and after it."""

    def __init__(self, loader, before, after=None):
        self.loader, self.before, self.after = loader, before, after

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.before()
        self.loader.exec_module(module)
        if self.after:
            self.after(module)

    def __getattr__(self, name):
        return getattr(self.loader, name)


class Finder:
    def __init__(self, run):
        self.run = run

    def find_spec(self, name, path=None, target=None):
        if name not in ("torch", "torch.cuda"):
            return None
        spec = None
        for finder in [f for f in sys.meta_path if f is not self]:
            spec = finder.find_spec(name, path, target)
            if spec is not None:
                break
        if spec is None or spec.loader is None or spec.origin is None:
            if name == "torch":
                fail("this Python has no PyTorch: install it, a CPU build is enough "
                     "('pip install torch')")
            return spec
        if name == "torch":
            spec.loader = Loader(spec.loader, lambda: self.run.before_torch(spec),
                                 self.run.after_torch)
        else:
            spec.loader = Loader(spec.loader, self.run.before_cuda)
        return spec


def settings():
    words = ("gpu", "alloc_conf", "workspace", "scalar", "save", "report", "lib")
    numbers = ("vram", "steps", "limit", "json", "si", "color", "ascii", "width", "top", "quiet")
    run = {k: os.environ.get("PLIMSOLL_RUN_" + k.upper()) for k in words}
    run.update((k, int(os.environ.get("PLIMSOLL_RUN_" + k.upper()) or 0)) for k in numbers)
    run["mask_fraction"] = float(os.environ.get("PLIMSOLL_RUN_MASK_FRACTION") or 1)
    run["scalar"] = run["scalar"] or "0"
    run["include"] = HERE  # the headers lie beside this file
    return run


def start():
    sys.meta_path.insert(0, Finder(Run(settings())))
