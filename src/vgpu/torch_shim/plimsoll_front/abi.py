"""Numbers and structs of plimsoll.h and plimsoll_vgpu.h.

tools/abi.py compares each number with PREFIX_NAME of its class, and each struct with the
C struct that its c_type names.
"""

import ctypes


class Phase:
    c_prefix = "PLIM_PHASE_"
    LOAD, INPUTS, ZERO_GRAD, FORWARD, LOSS, BACKWARD, OPTIMIZER = range(7)


class Category:
    c_prefix = "PLIM_CAT_"
    PARAMETER, BUFFER, GRADIENT, OPTIMIZER_STATE, INPUT = range(5)
    WORKSPACE, COUNT = 7, 9


class End:
    c_prefix = "PLIM_VGPU_END_"
    DONE, EARLY, MEMORY, ERROR = range(4)


class By:
    c_prefix = "PLIM_VGPU_BY_"
    LINE, MODULE, OP = range(3)


class StatKind:
    c_prefix = "PLIM_STAT_"
    POOLS, WHOLE, NUMBER = range(3)


class BlockState:
    c_prefix = "PLIM_VGPU_BLOCK_"
    FREE, ALLOCATED, PENDING, UNMAPPED = range(4)


class Fits:
    c_prefix = "PLIM_VGPU_FITS_"
    UNKNOWN, NO, YES, MAYBE = range(-1, 3)


class Vgpu:
    c_prefix = "PLIM_VGPU_"
    NONE, ALL_STREAMS = 0xffffffff, 0xffff


class Render:
    c_prefix = "PLIM_"
    TEXT, JSON, CSV, SVG, MD = range(5)


c_u64, c_u32, c_int, c_str, c_ptr = (ctypes.c_uint64, ctypes.c_uint32, ctypes.c_int,
                                     ctypes.c_char_p, ctypes.c_void_p)


class Storage:
    """An argument: the C++ object of a torch.UntypedStorage."""

    @classmethod
    def from_param(cls, storage):
        return c_ptr(storage._cdata)


class Err(ctypes.Structure):
    c_type = "plim_err"
    _fields_ = [("code", c_int), ("at", c_u64), ("msg", ctypes.c_char * 256)]


class Options(ctypes.Structure):
    c_type = "plim_vgpu_options"
    _fields_ = [("gpu", c_str), ("vram", c_u64), ("torch", c_str), ("alloc_conf", c_str),
                ("workspace", c_str), ("index", c_u32), ("cublas_workspace", c_str),
                ("module_loading", c_str)]


class Card(ctypes.Structure):
    c_type = "plim_vgpu_card"
    _fields_ = [("name", c_str), ("torch", c_str), ("cc", c_int), ("sms", c_int),
                ("threads_per_sm", c_int), ("total", c_u64), ("context", c_u64),
                ("workspace", ctypes.c_bool), ("index", c_u32), ("peers", ctypes.c_bool),
                ("blocks_per_sm", c_int), ("shared_per_sm", c_int), ("shared_per_block", c_int),
                ("l2", c_int)]


class Counter(ctypes.Structure):
    c_type = "plim_stat"
    _fields_ = [(name, c_u64) for name in ("current", "peak", "allocated", "freed")]

    def columns(self):
        """Under the names of torch.cuda.memory_stats."""
        return {name: getattr(self, name) for name, _ in self._fields_}


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


class Verdict(ctypes.Structure):
    c_type = "plim_vgpu_verdict"
    _fields_ = [("gpu", c_str), ("gpu_bytes", c_u64), ("fits", c_int),
                ("peak_allocated", c_u64), ("peak_reserved", c_u64), ("device_low", c_u64),
                ("device_high", c_u64), ("oom_line", c_str), ("oom_text", c_str),
                ("growth_step", ctypes.c_int64), ("peaks_known", ctypes.c_bool)]


class Style(ctypes.Structure):
    c_type = "plim_style"
    _fields_ = [("size", ctypes.c_size_t), ("si", ctypes.c_bool), ("color", ctypes.c_bool),
                ("ascii", ctypes.c_bool), ("width", c_int), ("top", c_int), ("depth", c_int),
                ("quiet", ctypes.c_bool), ("columns", c_str), ("types", c_str),
                ("sort", c_str), ("tensors", ctypes.c_bool)]


PUT = ctypes.CFUNCTYPE(c_int, c_ptr, c_ptr, ctypes.c_size_t)
