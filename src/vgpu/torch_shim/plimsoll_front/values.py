"""What is known of the values of tensors with a CUDA build on stub libraries, where kernels do nothing.

As with a CPU build (shim/values.h, guesses.h): of small tensors that were uploaded or filled, and of what ops make of
those alone, the values are computed on the CPU.  The rest is guessed by op: a check finds nothing wrong, an index is
no end token, a mask selects --mask-fraction.
"""

import collections
import contextlib
import ctypes
import math
import threading
import weakref

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

LIMIT, LIMIT_FLOAT, TOGETHER = 4 << 20, 1 << 20, 256 << 20  # bytes of a storage, and of all
PATIENCE = 1000
aten = torch.ops.aten

SAME = {aten.equal.default, aten.allclose.default}
READS = {aten._local_scalar_dense.default, *SAME}
COPIES = {aten._to_copy.default, aten.copy_.default}
WRITES_ALL = {"copy_", "fill_", "zero_"}  # what was there before counts for nothing
LIKE = {"full_like", "zeros_like", "ones_like", "new_full", "new_zeros", "new_ones"}  # and here of the argument
NEVER = {"empty", "empty_like", "empty_strided", "new_empty", "new_empty_strided", "empty_permuted", "resize_", "set_"}
SIZED = {"repeat_interleave", "bincount", "_unique2", "unique_consecutive"}  # by values; and by masks:
MASKS = {"nonzero", "masked_select", "index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index"}

Value = collections.namedtuple("Value", "storage base sure")  # base: all of the storage, on the CPU


def place(args, dim):
    """An index along a dimension.  Of a vocabulary not one of the first, with which sequences end."""
    x = args[0]
    return 7 if x.dim() and x.shape[-1 if dim is None else dim] > 16 else 0


def found(args, dim):
    """Over all it is a check; over a dimension a mask of those that have one."""
    return dim is not None


def lowest(args, dim):
    """random_(x, from, to), randint(low, high, size)"""
    numbers = [a for a in args if isinstance(a, int)]
    return numbers[0] if len(numbers) > 1 else 0


GUESSES = {  # op: its first result that it is for, and the guess
    "all": (0, lambda args, dim: True), "any": (0, found), "isnan": (0, lambda args, dim: False),
    "isinf": (0, lambda args, dim: False), "randint": (0, lowest), "random_": (0, lowest), "argmax": (0, place), "argmin": (0, place), "multinomial": (0, place),
    "max": (1, place), "min": (1, place), "topk": (1, place), "sort": (1, place)}


def plain(t):
    return type(t) in (torch.Tensor, torch.nn.Parameter)


def small(t):
    return t.untyped_storage().nbytes() <= (LIMIT_FLOAT if t.dtype.is_floating_point else LIMIT)


def begins(t):
    """Where its storage begins; the rest of that, as unique leaves it, nobody sees."""
    return t.layout == torch.strided and t.storage_offset() == 0


def whole(t):
    """It covers all of its storage."""
    return (begins(t) and t.numel() > 0 and
            t.numel() * t.element_size() == t.untyped_storage().nbytes())


def tensors_in(values):
    for v in values:
        if isinstance(v, torch.Tensor):
            yield v
        elif isinstance(v, (list, tuple)):
            yield from tensors_in(v)


def replaced(v, f):
    if isinstance(v, torch.Tensor):
        return f(v)
    if isinstance(v, (list, tuple)):
        return [replaced(e, f) for e in v]
    if isinstance(v, torch.device):
        return torch.device("cpu")
    return v


class Op:
    """What matters of an op, from its schema."""

    def __init__(self, func):
        schema = func._schema
        self.name = schema.name.partition("::")[2]
        self.writes = [(i, a.name, a.kwarg_only) for i, a in enumerate(schema.arguments)
                       if a.alias_info is not None and a.alias_info.is_write]
        self.view = not self.writes and any(r.alias_info is not None for r in schema.returns)
        self.computes = (schema.name.startswith("aten::") and self.name not in NEVER and
                         torch.Tag.nondeterministic_seeded not in func.tags)
        dims = [i for i, a in enumerate(schema.arguments) if a.name == "dim"]
        self.dim_at = dims[0] if dims else None

    def dim(self, args, kwargs):
        if self.dim_at is not None and self.dim_at < len(args):
            d = args[self.dim_at]
        else:
            d = kwargs.get("dim")
            d = -1 if d is None and self.name in ("topk", "sort", "multinomial") else d
        return d[0] if isinstance(d, (list, tuple)) and d else d if isinstance(d, int) else None

    def written(self, args, kwargs):
        for i, name, by_name in self.writes:
            v = kwargs.get(name) if by_name or i >= len(args) else args[i]
            yield from tensors_in([v])


class Threads(threading.local):
    there, again = False, None  # it looks; because of this module

    def __init__(self):
        super().__init__()
        self.modules = []  # that run


class Values(TorchDispatchMode):
    @classmethod
    def is_infra_mode(cls):
        return True  # compiled code goes on as if it were not there

    def __init__(self, stub, fraction, note):
        """note(text): a remark on the script's line, which it returns."""
        super().__init__()
        self.stub, self.fraction, self.note = stub, fraction, note
        self.ops, self.known, self.bytes, self.most = {}, {}, 0, 4096
        self.reading = False  # of something that is known
        self.masks = False  # were used as indices
        self.patience, self.line = 0, None
        self.threads, self.readers = Threads(), weakref.WeakSet()
        self.library = torch.library.Library("aten", "IMPL")
        self.library.impl("linear", self.linear, "AutogradCUDA")

    # -- where it looks

    @contextlib.contextmanager
    def away(self):
        """While autograd runs, whose formulas are others where there is a mode: but what was indexed by masks is
        indexed again."""
        there = self.threads.there
        if there and not self.masks and torch._C._len_torch_dispatch_stack() == 1:  # not under a mode of the script's
            self.leave()
        try:
            yield
        finally:
            if there:
                self.look()

    def look(self):
        if not self.threads.there:
            self.threads.there = True
            self.__enter__()

    def leave(self):
        if self.threads.there:
            self.threads.there = False
            self.__exit__(None, None, None)

    def linear(self, *args):
        """PyTorch's own: the bias of an input that is not contiguous is added in place, but not where there is a mode.
        src: aten/src/ATen/native/Linear.cpp, isTensorSubclassLike"""
        func, given = aten.linear.default, list(tensors_in(args))
        if not self.threads.there or torch._C._len_torch_dispatch_stack() > 1 or not all(map(plain, given)):
            return func.decompose(*args)
        self.leave()
        try:
            result = func.decompose(*args)
            with torch.no_grad():
                self.settle(func, self.op_of(func), args, {}, given, result)
        finally:
            self.look()
        return result

    def enter_module(self, module):
        """Where a checkpoint runs one again that has read values, it is to read the same."""
        thread = self.threads
        thread.modules.append(module)
        if module in self.readers and not thread.there and not torch._C._len_torch_dispatch_stack():
            thread.again = module
            self.look()

    def leave_module(self, module):
        thread = self.threads
        while thread.modules and thread.modules.pop() is not module:  # those that an exception left
            pass
        if thread.again is module:
            thread.again = None
            self.leave()

    def has_read(self):
        self.readers.update(self.threads.modules[-1:])

    # -- what is known

    def recorded(self, t):
        return self.known.get(t.untyped_storage()._cdata)

    def forget(self, t):
        if t.layout == torch.strided:
            old = self.known.pop(t.untyped_storage()._cdata, None)
            self.bytes -= old.base.nbytes if old else 0

    def record(self, t, base, sure):
        storage = t.untyped_storage()
        self.forget(t)
        self.known[storage._cdata] = Value(StorageWeakRef(storage), base, sure)
        self.bytes += base.nbytes
        if len(self.known) > self.most or self.bytes > TOGETHER:
            self.sweep()

    def sweep(self):
        """Leaves out what is gone; all, if that is not enough."""
        self.known = {k: v for k, v in self.known.items() if not v.storage.expired()}
        self.bytes = sum(v.base.nbytes for v in self.known.values())
        if self.bytes > TOGETHER // 2:
            self.known, self.bytes = {}, 0
        self.most = max(4096, 2 * len(self.known))

    def guess(self, t):
        """Of a tensor of which nothing is known; None: nothing comes of it."""
        if t.dtype == torch.bool:
            n = t.untyped_storage().nbytes()
            if n == 1 or self.fraction in (0, 1):
                return torch.tensor(n > 1 and self.fraction == 1).expand(t.shape)
            i = torch.arange(t.numel(), dtype=torch.float64)
            k = math.ceil(self.fraction * t.numel()) / max(t.numel(), 1)
            return (((i + 1) * k).floor() > (i * k).floor()).reshape(t.shape)
        if not t.dtype.is_floating_point and not t.dtype.is_complex:
            return torch.zeros((), dtype=t.dtype).expand(t.shape)
        return None

    def on_host(self, t):
        """Its values on the CPU, for reading, and whether they are sure."""
        v = self.recorded(t) if t.layout == torch.strided else None
        if v is None or v.base.dtype != t.dtype:
            return self.guess(t), False
        return v.base.as_strided(t.shape, t.stride(), t.storage_offset()), v.sure

    # -- an op

    def op_of(self, func):
        return self.ops.get(func) or self.ops.setdefault(func, Op(func))

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        op = self.op_of(func)
        if op.view:
            if op.name == "lift_fresh":
                self.take_upload(args[0])
            return func(*args, **kwargs)
        given = list(tensors_in(args)) + list(tensors_in(kwargs.values()))
        if not all(map(plain, given)):
            return func(*args, **kwargs)  # its own ops come here again
        cards = [t for t in given if t.is_cuda]
        if not cards and not str(kwargs.get("device", "")).startswith("cuda"):
            return func(*args, **kwargs)
        if cards and (func in READS or func in COPIES):
            to = args[0] if func == aten.copy_.default else kwargs.get("device")
            if func in READS or str(getattr(to, "device", to)) == "cpu":
                return self.read(func, args, kwargs, cards)
        if op.name in MASKS or op.name in SIZED:
            result = self.selected(func, op, args, kwargs)
        else:
            result = func(*args, **kwargs)
        self.settle(func, op, args, kwargs, given, result)
        return result

    def take_upload(self, t):
        """torch.tensor() copies to the card where no mode looks."""
        if not t.is_cuda or not whole(t) or self.recorded(t):
            return
        base = torch.empty(t.numel(), dtype=t.dtype)
        if self.stub.plim_stub_uploaded(t.data_ptr(), base.data_ptr(), base.nbytes):
            self.record(t, base, True)

    def read(self, func, args, kwargs, cards):
        """The host reads from the card."""
        self.has_read()
        values = [self.on_host(t) for t in cards]
        self.reading = all(v is not None and sure for v, sure in values)
        try:
            result = func(*args, **kwargs)
        finally:
            known, self.reading = self.reading, False
        if func in SAME:
            a, b, *rest = args
            if known:
                return func(*(self.on_host(t)[0] if t.is_cuda else t for t in (a, b)), *rest, **kwargs)
            return a.shape == b.shape and a.dtype == b.dtype or func == aten.allclose.default
        value = values[-1][0]
        if value is None:
            return result
        if func == aten._local_scalar_dense.default:
            value = value.reshape(-1)[0].item()
            return not value if isinstance(value, bool) and not known and self.patience_ends() else value
        with torch.no_grad():
            result.copy_(value)
        return result

    def patience_ends(self):
        """Loops that wait for luck end: a check that a line asks again and again goes the other way at last."""
        line = self.note(None)
        self.patience = self.patience + 1 if line == self.line else 1
        self.line = line
        if self.patience <= PATIENCE:
            return False
        self.patience = 0
        self.note(b"a check went one way 1000 times in a row: it goes the other way")
        return True

    def selected(self, func, op, args, kwargs):
        """An op whose result has a size that it reads from the card."""
        self.has_read()
        if op.name in SIZED:
            answers = self.sizes(op.name, args[0]) if args[0].is_cuda and kwargs.get("output_size") is None else []
        else:
            masks = ([args[0]] if op.name == "nonzero" else [args[1]] if op.name == "masked_select" else
                     [t for t in tensors_in([args[1]]) if t.dtype in (torch.bool, torch.uint8)])
            answers = [self.count(t) for t in masks if t.is_cuda]
            self.masks = self.masks or bool(answers) and op.name != "nonzero"
        self.stub.plim_stub_answer((ctypes.c_uint64 * len(answers))(*answers), len(answers))
        try:
            return func(*args, **kwargs)
        finally:
            self.stub.plim_stub_answer(None, 0)

    def sizes(self, name, t):
        """What it reads, in its order.  src: Unique.cu, SummaryOps.cu, Repeat.cu"""
        value, sure = self.on_host(t)
        if not t.numel():
            return []
        if name.startswith(("_unique", "unique")):
            if not sure:
                self.note(f"unique selects {self.fraction:g} of what it could".encode())
                return [max(math.ceil(self.fraction * t.numel()), 1)]
            return [len(torch.unique(value) if name == "_unique2" else torch.unique_consecutive(value))]
        if name == "bincount":
            return [int(value.max())] if t.dtype == torch.uint8 else [int(value.min()), int(value.max())]
        if not sure:
            self.note(b"repeat_interleave is assumed to repeat each element once")
        return [int(value.sum()) if sure else t.numel(), 1]  # and that none is negative

    def count(self, mask):
        value, sure = self.on_host(mask)
        if not sure:
            self.note(f"a mask on the card selects {self.fraction:g} of what it could".encode())
        if value is None or (not sure and mask.dtype != torch.bool):
            return math.ceil(self.fraction * mask.numel())
        if not sure and whole(mask) and small(mask) and self.recorded(mask) is None:
            self.keep(mask, value, False)  # what it was taken for once, it is
        return int(value.count_nonzero())

    # -- its results

    def settle(self, func, op, args, kwargs, given, result):
        written = list(op.written(args, kwargs))
        results = list(tensors_in([result]))
        made = {i: t for i, t in enumerate(results) if t.is_cuda and t.numel() and not any(t is w for w in written)}
        if not made and not any(t.is_cuda for t in written):
            return
        try:
            if self.computed(func, op, args, kwargs, given, written, made):
                return
        except Exception:
            pass  # of what was only guessed: an index out of range
        for t in [*written, *made.values()]:
            self.forget(t)
        first, guess = GUESSES.get(op.name, (0, None))
        for t in results[first:] if guess else ():
            if t.is_cuda and not t.dtype.is_floating_point and whole(t) and small(t):
                self.keep(t, torch.full(t.shape, guess(args, op.dim(args, kwargs)), dtype=t.dtype), False)

    def keep(self, t, value, sure):
        base = torch.empty(t.untyped_storage().nbytes() // t.element_size(), dtype=t.dtype)
        base.as_strided(t.shape, t.stride(), 0).copy_(value)
        self.record(t, base, sure)

    def computed(self, func, op, args, kwargs, given, written, made):
        """Runs the op on the CPU, if all that it needs is known or guessed.  False: it is not."""
        if not op.computes or not all(t.is_cuda for t in written) or not all(small(t) for t in written + given) or \
                not all(begins(t) and small(t) for t in made.values()):
            return False
        sure, bases, floats = True, {}, any(t.dtype.is_floating_point for t in [*made.values(), *written])
        for t in given:
            if not t.is_cuda or op.name in LIKE:
                continue
            v = self.recorded(t)
            is_written = any(t is w for w in written)
            if is_written and op.name in WRITES_ALL and whole(t):
                v = Value(None, torch.empty(t.numel(), dtype=t.dtype), True)
            if v is None or v.base.dtype != t.dtype:
                if is_written or op.name in GUESSES or self.guess(t) is None:
                    return False
                sure = False
            else:
                sure = sure and v.sure
                bases[t.untyped_storage()._cdata] = v.base.clone() if is_written else v.base
        if not sure and floats:
            return False

        def host(t):
            if not t.is_cuda:
                return t
            if op.name in LIKE:
                return torch.empty_strided(t.shape, t.stride(), dtype=t.dtype)
            base = bases.get(t.untyped_storage()._cdata)
            return self.guess(t) if base is None else base.as_strided(t.shape, t.stride(), t.storage_offset())
        out = func(*replaced(args, host), **{k: replaced(v, host) for k, v in kwargs.items() if k != "pin_memory"})
        results = list(tensors_in([out]))
        if any(results[i].shape != t.shape for i, t in made.items()):
            return False
        for t in written:
            self.record(t, bases[t.untyped_storage()._cdata], sure)
        for i, t in made.items():
            self.keep(t, results[i], sure)
        return True
