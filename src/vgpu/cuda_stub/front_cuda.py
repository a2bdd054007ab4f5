"""front_cuda.py -- `plimsoll run` with a CUDA build of PyTorch (experimental).

plimsoll_front/start.py calls start() when it finds such a build.  Stub libraries, loaded before
torch, stand in for CUDA; everything above them is PyTorch's own code, its allocator
too.  That allocator's history is what happened.  When the script ends it is told to
the simulated one, request by request, so the report is the same as with a CPU build,
and both allocators are compared: they must agree to the byte.
"""

import bisect
import collections
import ctypes
import functools
import inspect
import itertools
import math
import os
import re
import sys
import sysconfig
import warnings

from plimsoll_front import HERE, patches, story
from plimsoll_front.abi import Category, Vgpu
from plimsoll_front.agreement import differences
from plimsoll_front.device import Machine, fail, text
from plimsoll_front.ending import Ending

STUBS = ("libcuda.so.1", "libcudart.so.{}", "libcublasLt.so.{}", "libcublas.so.{}",
         "libcudnn.so.9", "libnvidia-ml.so.1")
READ, FLAGS = ctypes.CFUNCTYPE(None, ctypes.c_uint64), ctypes.CFUNCTYPE(ctypes.c_uint)
TELL = ctypes.CFUNCTYPE(None, ctypes.c_uint64)
EXACT, ESTIMATED = 0, 1  # PLIM_EXACT and so on
BENCHMARK, NO_TF32 = 1, 2  # PLIM_STUB_BENCHMARK and so on
DEFAULT = 0, 0  # the pool that is not private


class Tag(ctypes.Structure):
    c_type = "plim_vgpu_tag"
    _fields_ = [("line", ctypes.c_char_p), ("op", ctypes.c_char_p),
                ("module", ctypes.c_char_p), ("dtype", ctypes.c_int), ("rank", ctypes.c_int), ("dim", ctypes.c_void_p), ("category", ctypes.c_int),
                ("certainty", ctypes.c_int)]


def cuda_major(root):
    """Of the runtime that this torch is linked with: "13"."""
    with open(os.path.join(root, "lib", "libc10_cuda.so"), "rb") as f:
        at = f.read().partition(b"libcudart.so.")[2][:4]
    return at.split(b"\0")[0].decode()


def load_stubs(run, root):
    """Libraries that are looked for by these names afterwards are ours."""
    home = os.path.dirname(run["lib"])
    for folder in (os.path.join(home, "plimsoll", "stub"), os.path.join(home, "stub")):
        if os.path.isdir(folder):
            break
    else:
        fail("the CUDA stub libraries are not installed next to libplimsoll")
    for name in STUBS:
        path = os.path.join(folder, name.format(cuda_major(root)))
        if not os.path.exists(path):
            fail(f"CUDA {cuda_major(root)} is not supported: there is no stub library '{path}'")
        ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    os.environ["TRITON_LIBCUDA_PATH"] = folder  # where Triton's launchers are linked from
    os.environ["TORCHINDUCTOR_COMPILE_THREADS"] = "1"  # its workers would look for a card of their own
    return ctypes.CDLL(os.path.join(folder, "libplimsoll_stub.so"))


class Lines:
    """The innermost line that is the user's."""

    def __init__(self, torch, packages):
        """torch: PyTorch's folder; packages: installed ones count as the user's."""
        skip = [sysconfig.get_path(k) for k in ("stdlib", "platstdlib")] + [torch, HERE]
        self.skip = tuple(p + os.sep for p in skip if p)
        self.packages = packages
        self.here = os.getcwd() + os.sep
        self.known = {}

    def of_file(self, file):
        if file not in self.known:
            self.known[file] = self.shown(file)
        return self.known[file]

    def shown(self, file):
        """As the report names the file; None: it is not the user's."""
        package = re.search("/(site|dist)-packages/", file)
        if not file or file[0] == "<" or package and not self.packages:
            return None
        for prefix in self.skip:  # the standard library's has the packages below it
            if file.startswith(prefix) and not (package and package.end() > len(prefix)):
                return None
        return file[package.end():] if package else file.removeprefix(self.here)

    def of(self, frames):
        for file, line in frames:
            name = self.of_file(file)
            if name:
                return f"{name}:{line}".encode()
        return None

    def here_now(self):
        frame = sys._getframe(1)
        while frame is not None:
            name = self.of_file(frame.f_code.co_filename)
            if name:
                return f"{name}:{frame.f_lineno}".encode()
            frame = frame.f_back
        return None


class Log:
    """Stands in for the device and the shim while the script runs: keeps what
    plimsoll_front.story says, with its place among the requests."""

    def __init__(self, device, torch_c, lines):
        self.device, self.c, self.lines = device, torch_c, lines
        self.pid, self.rows, self.at, self.before = os.getpid(), [], 0, 0
        self.begun = False  # the card is used
        self.seen = []  # of private pools, with its place: see Pools

    def place(self):
        """How many requests and releases there were."""
        if not self.begun:
            return 0
        stats = self.c._cuda_memoryStats(0)["allocation"]["all"]
        self.at = max(self.at, self.before + stats["allocated"] + stats["freed"])
        return self.at

    def begin_again(self):
        """PyTorch is about to count from 0."""
        self.before = self.place()

    def add(self, what, *args):
        self.rows.append((self.place(), what, args))

    def call(self, what, *args):
        if what == "mark":
            self.add("line", self.lines.here_now())
        self.add(what, *args)

    def plimsoll_shim_label(self, storage, category, name):
        self.add("label", storage.data_ptr(), category, name)

    def plimsoll_shim_module(self, path):
        pass  # the mark says it

    def plimsoll_shim_line(self):
        return self.lines.here_now() or b""


class Pools:
    """Which pool each entry of a history is of, where it does not say, as before PyTorch 2.12: what it is in was seen
    in a snapshot."""

    def __init__(self, seen):
        """seen: place, and the segments of private pools there: (begin, end, pool); in order."""
        self.seen, self.segments, self.begins = collections.deque(seen), {}, []

    def look(self, place):
        while self.seen and self.seen[0][0] <= place:
            for begin, end, pool in self.seen.popleft()[1]:
                for at in range(bisect.bisect_left(self.begins, begin), bisect.bisect_left(self.begins, end)):
                    self.segments[self.begins[at]]["pool_id"] = pool

    def fill(self, trace):
        place, inside = 0, []
        for entry in trace:
            self.look(place)
            action, address = entry["action"], entry.get("addr")
            place += action in ("alloc", "free_requested")
            if action in ("segment_alloc", "segment_map"):
                bisect.insort(self.begins, address)
                self.segments[address] = entry
            elif action == "alloc":
                inside.append((entry, self.segments[self.begins[bisect.bisect_right(self.begins, address) - 1]]))
            elif action in ("segment_free", "segment_unmap") and address in self.segments:
                inside.append((entry, self.segments.pop(address)))
                self.begins.remove(address)
        self.look(math.inf)
        for entry, segment in inside:
            entry["pool_id"] = segment.get("pool_id", DEFAULT)


class Replay:
    """Tells the simulated allocator what the real one was asked for."""

    def __init__(self, device, lines, workspaces):
        """workspaces: what plans of cuDNN said that they take, in bytes."""
        self.device, self.lines, self.workspaces = device, lines, workspaces
        self.blocks, self.streams, self.line = {}, {(0, DEFAULT): 0}, None
        self.failed = []

    def tell(self, row):
        _, what, args = row
        if what == "line":
            self.line = args[0]
        elif what == "reset_accumulated":
            card = self.device.cards[0]
            card.lib.plim_vgpu_reset_accumulated(card.handle)
        elif what == "label":
            address, category, name = args
            if address in self.blocks:
                self.device.call("label", ctypes.c_uint32(self.blocks[address]), category, name)
        else:
            self.device.call(what, *args)

    def malloc(self, entry, passing=False):
        """passing: it is released before the next request; such is a workspace of cuDNN."""
        line = self.lines.of((f["filename"], f["line"]) for f in entry["frames"])
        known = passing and entry["size"] in self.workspaces
        tag = Tag(line or self.line, None, None, -1, 0, None,
                  *((Category.WORKSPACE, ESTIMATED) if known else (Category.COUNT, EXACT)))  # as the phase suggests
        where = entry["stream"], entry.get("pool_id", DEFAULT)  # blocks pass neither between streams nor pools
        if where not in self.streams:
            self.streams[where] = len(self.streams)
            if where[1] != DEFAULT:
                self.hold(where, True)
        stream = self.streams[where]
        block, addr = ctypes.c_uint32(), ctypes.c_uint64()
        self.device.call("malloc", ctypes.c_uint64(entry["size"]), ctypes.c_uint16(stream),
                         ctypes.byref(tag), ctypes.byref(block), ctypes.byref(addr))
        return block.value

    def hold(self, where, held):
        self.device.call("hold", ctypes.c_uint16(self.streams[where]), ctypes.c_bool(held))

    def release(self, pool):
        """PyTorch gives memory of a private pool back only when neither a graph nor a MemPool holds
        it any more."""
        for where in self.streams:
            if where[1] == pool:
                self.hold(where, False)

    def event(self, entry, after):
        """Returns how far it moves the place. after: what comes next."""
        action = entry["action"]
        if action == "alloc":
            block = self.malloc(entry, after["action"] == "free_requested" and after["addr"] == entry["addr"])
            if block == Vgpu.NONE:
                self.failed.append(entry["size"])
            else:
                self.blocks[entry["addr"]] = block
            return 1
        if action == "oom":
            if self.malloc(entry) != Vgpu.NONE:
                self.failed.append(entry["size"])
        elif action in ("segment_free", "segment_unmap"):
            if entry.get("pool_id", DEFAULT) != DEFAULT:
                self.release(entry["pool_id"])
        elif action == "free_completed":
            block = self.blocks.pop(entry["addr"], None)
            if block is not None:
                self.device.call("free", ctypes.c_uint32(block))
        return action == "free_requested"

    def run(self, trace, rows):
        rows = sorted(rows, key=lambda row: row[0])
        told = place = 0
        for entry, after in itertools.zip_longest(trace, trace[1:], fillvalue={"action": "end"}):
            if entry["action"] in ("alloc", "oom", "free_requested"):
                while told < len(rows) and rows[told][0] <= place:
                    self.tell(rows[told])
                    told += 1
            place += self.event(entry, after)
        for row in rows[told:]:
            self.tell(row)


class Cuda:
    """What start.Run does for a CPU build, for a CUDA build."""

    def __init__(self, run, version, root):
        self.run = run
        self.lines = Lines(root, run["lines"] == "all")
        if run["cards"] > 1:
            fail("a machine of several cards needs a CPU build of PyTorch: the stub libraries "
                 "of a CUDA build are one card")
        self.device = Machine(run, version)

    def after_torch(self, torch):
        number = torch._C._cudnn.getCompileVersion()
        os.environ["PLIMSOLL_STUB_CUDNN_VERSION"] = str(
            number[0] * 10000 + number[1] * 100 + number[2])
        self.torch = torch
        self.log = Log(self.device, torch._C, self.lines)
        self.begin_later(torch)
        self.follow_allocator(torch._C)
        self.follow_pools(torch)
        self.follow_values()
        self.story = Story(self)
        self.story.follow(torch)
        patches.no_nccl()
        warnings.filterwarnings("ignore", message=".*global hooks on modules.*")  # ours, which compiled code does not see
        self.ending = Ending(self.story, Closed())
        self.ending.watch(self.run["limit"])

    def begin_later(self, torch):
        """The allocator's history begins when the script first uses the card, as its context does."""
        begin, record = torch._C._cuda_init, torch.cuda.memory._record_memory_history

        def begin_now():
            os.environ["PLIMSOLL_STUB_ARCHS"] = ",".join(
                name.partition("_")[2] for name in torch._C._cuda_getArchFlags().split()
                if name.startswith("sm_"))  # to ask counts as use
            begin()  # refuses where the card was used before a fork
            if os.getpid() != self.log.pid:
                self.ending.begin_anew()
            if not self.log.begun:
                # Not of releases: some happen while an exception passes, which is lost when Python is looked at.
                record(context="alloc", max_entries=sys.maxsize, stacks="python")
                self.log.begun = True
        torch._C._cuda_init = begin_now
        # The script may ask for a history too: it has this one.
        torch.cuda.memory._record_memory_history = lambda *args, **kwargs: None

    def follow_allocator(self, c):
        """What is asked of the allocator besides memory."""
        def wrap(name, what, *kinds):
            inner = getattr(c, name, None)
            if inner is None:  # of another version of PyTorch
                return

            def outer(*args):
                self.log.add(what, *[kind(a) for kind, a in zip(kinds, args)])
                if what == "reset_accumulated":
                    self.log.begin_again()
                return inner(*args)
            setattr(c, name, outer)
        wrap("_cuda_emptyCache", "empty_cache")
        wrap("_accelerator_emptyCache", "empty_cache")
        wrap("_cuda_resetPeakMemoryStats", "reset_peak")
        wrap("_accelerator_resetPeakStats", "reset_peak")
        wrap("_cuda_resetAccumulatedMemoryStats", "reset_accumulated")
        wrap("_accelerator_resetAccumulatedStats", "reset_accumulated")
        wrap("_cuda_setMemoryFraction", "fraction", ctypes.c_double)
        wrap("_accelerator_setAllocatorSettings", "config", text)
        wrap("_cuda_cudaCachingAllocator_set_allocator_settings", "config", text)

    def follow_pools(self, torch):
        """When a graph or a MemPool has all that it asks for, a snapshot says which segments it has."""
        quick = {"include_traces": False} if "include_traces" in inspect.signature(
            torch.cuda.memory_snapshot).parameters else {}

        def look_after(f):
            @functools.wraps(f)
            def run(*args, **kwargs):
                result = f(*args, **kwargs)
                self.log.seen.append((self.log.place(), [
                    (s["address"], s["address"] + s["total_size"], tuple(s["segment_pool_id"]))
                    for s in torch.cuda.memory_snapshot(**quick) if tuple(s["segment_pool_id"]) != DEFAULT]))
                return result
            return run
        torch.cuda.CUDAGraph.capture_end = look_after(torch.cuda.CUDAGraph.capture_end)
        for module in torch._C, torch.cuda.memory:
            for name in "_cuda_endAllocateToPool", "_cuda_endAllocateCurrentStreamToPool":
                if hasattr(module, name):
                    setattr(module, name, look_after(getattr(module, name)))

    def watch_reads(self, stub):
        def read(size):
            if not (self.values and self.values.reading):
                self.note(b"a value read from the card is a guess")
        self.read = READ(read)  # kept: C holds it
        stub.plim_stub_on_read(self.read)

    def note(self, text):
        """On the script's line, which it returns."""
        line = self.lines.here_now()
        if text and line and self.story and not self.story.done:
            self.log.add("note", line, text)
        return line

    values = None

    def follow_values(self):
        from plimsoll_front.values import Values  # which needs torch
        self.stub.plim_stub_answer.argtypes = [ctypes.POINTER(ctypes.c_uint64), ctypes.c_uint]
        self.stub.plim_stub_uploaded.argtypes = [ctypes.c_uint64, ctypes.c_void_p, ctypes.c_uint64]
        self.stub.plim_stub_uploaded.restype = ctypes.c_bool
        self.values = Values(self.stub, self.run["mask_fraction"], self.note)
        self.values.look()

    def tell_settings(self, stub):
        """What cuDNN's choice depends on besides the convolution."""
        def flags():
            cudnn = self.torch.backends.cudnn
            try:
                tf32 = cudnn.allow_tf32
            except RuntimeError:  # set in two ways that contradict each other
                tf32 = True
            return cudnn.benchmark * BENCHMARK | (not tf32) * NO_TF32
        self.flags = FLAGS(flags)
        stub.plim_stub_on_convolution(self.flags)
        self.workspaces = set()
        self.tell_workspace = TELL(self.workspaces.add)  # kept: C holds it
        stub.plim_stub_on_workspace(self.tell_workspace)

    story = None


class Story(story.Story):
    """That of plimsoll_front, told to the log; when it is over the replay is made."""

    def __init__(self, cuda):
        super().__init__(cuda.run, cuda.log, cuda.log)
        self.cuda = cuda

    def enter_module(self, module, args):
        self.cuda.values.enter_module(module)
        super().enter_module(module, args)

    def leave_module(self, module, args, result):
        self.cuda.values.leave_module(module)
        super().leave_module(module, args, result)

    def backward(self, f):
        told = super().backward(f)

        @functools.wraps(f)
        def run(*args, **kwargs):
            with self.cuda.values.away():
                return told(*args, **kwargs)
        return run

    def run_alone(self):
        """PyTorch's own code chose the kernels: which ones, on which card, nobody was told."""

    def write_report(self):
        cuda, log = self.cuda, self.device
        trace, replay = [], Replay(cuda.device, cuda.lines, cuda.workspaces)
        if log.begun:
            theirs = cuda.torch._C._cuda_memoryStats(0)
            trace = cuda.torch.cuda.memory._snapshot()["device_traces"][0]
            if trace and "pool_id" not in trace[0]:
                Pools(log.seen).fill(trace)
        replay.run(trace, log.rows)
        if log.begun:
            self.compare(theirs, replay)
        self.device = cuda.device
        super().write_report()

    def compare(self, theirs, replay):
        """PyTorch's own allocator against ours, which was asked for the same."""
        peak = {k: theirs[k]["all"]["peak"] for k in ("allocated_bytes", "reserved_bytes")}
        note = (f"PyTorch's own allocator: peak {peak['allocated_bytes']} bytes allocated, "
                f"{peak['reserved_bytes']} reserved")
        ours = {s.name.decode(): s.value() for s in self.cuda.device.cards[0].stats()}
        wrong = [f"a request for {size:,} bytes fails in only one of the two allocators"
                 for size in replay.failed]
        wrong += differences(theirs, ours)
        notes = [note + ("; the simulated one differs" if wrong else ": the simulated one agrees")]
        for note in notes + wrong[:8]:
            self.cuda.device.call("note", b"", note.encode())


class Closed:
    def plimsoll_shim_close(self):
        pass


def start(run, spec, version):
    """Takes the place of what start.Run (`run`) would do for this torch."""
    root = os.path.dirname(spec.origin)
    if run.run["alloc_conf"]:
        os.environ["PYTORCH_ALLOC_CONF"] = run.run["alloc_conf"]
    if run.run["workspace"] == "off":
        os.environ.update(CUBLAS_WORKSPACE_CONFIG=":0:0", CUBLASLT_WORKSPACE_SIZE="0")
    os.environ["PLIMSOLL_STUB_TORCH"] = version
    stub = load_stubs(run.run, root)
    cuda = Cuda(run.run, version, root)
    cuda.stub = stub
    cuda.watch_reads(stub)
    cuda.tell_settings(stub)
    run.before_cuda = None
    spec.loader.after = cuda.after_torch
