"""What a CUDA build has in torch._C for torch.nn.parallel.comm: one process, several cards.

Copies are real copies between pretend cards, so memory is taken where PyTorch takes it.
NCCL, which PyTorch uses for broadcasts and sums between cards, moves nothing here; what it
holds on the cards for itself is not counted, and the report says so.
"""

import collections
import contextlib

from .abi import Category


# src: c10/core/ScalarType.h, their order
DTYPES = ("uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64", "complex32",
          "complex64", "complex128", "bool", "bfloat16")


def rank_of(dtype):
    name = str(dtype).rpartition(".")[2]
    return DTYPES.index(name) if name in DTYPES else len(DTYPES)


def chunks_of(tensors, limit):
    """Tensors of one type, of at least so many bytes together; the rest by type.
    src: torch/csrc/utils/tensor_flatten.cpp take_tensors"""
    out, groups, sizes = [], collections.defaultdict(list), collections.Counter()
    for tensor in tensors:
        kind = tensor.layout, tensor.dtype
        parts = (tensor._indices(), tensor._values()) if tensor.is_sparse else (tensor,)
        size = sum(t.numel() * t.element_size() for t in parts)
        groups[kind].append(tensor)
        sizes[kind] += size
        if sizes[kind] >= limit:
            out.append(groups.pop(kind))
            del sizes[kind]
    return out + [groups[kind] for kind in sorted(
        groups, key=lambda kind: (str(kind[0]), rank_of(kind[1]))) if sizes[kind]]


def in_order_of(tensors, order):
    """Chunks put tensors of one type together; this puts them back."""
    queues = collections.defaultdict(collections.deque)
    for tensor in tensors:
        queues[tensor.layout, tensor.dtype].append(tensor)
    return [queues[tensor.layout, tensor.dtype].popleft() for tensor in order]


class Comm:
    """src: torch/csrc/cuda/comm.cpp and python_comm.cpp"""

    def __init__(self, device, shim):
        self.device, self.shim, self.noted = device, shim, False

    def label(self, made, sources):
        """Copies of parameters are parameters, copies of other leaves are buffers."""
        import torch
        owned = all(isinstance(t, torch.nn.Parameter) for t in sources)
        self.shim.plimsoll_shim_label(
            made.untyped_storage(),
            Category.PARAMETER if owned else Category.BUFFER, b"replica")

    def note_nccl(self, devices):
        if len(devices) > 1 and not self.noted:
            self.noted = True
            self.device.call("note", b"", b"what NCCL takes for itself on each card, for copies to "
                             b"all of them and sums, is not counted")

    # -- broadcast

    def _broadcast(self, tensor, devices):
        import torch
        out = []
        self.note_nccl(devices)
        for device in devices:
            if device < 0:
                raise RuntimeError(f"Expected non-negative device index, but got {device}")
            same = device == tensor.get_device()
            out.append(tensor if same else torch.empty(
                tensor.shape, dtype=tensor.dtype, device=f"cuda:{device}"))
        self._broadcast_out(tensor, [t for t in out if t is not tensor])
        return out

    def _broadcast_out(self, tensor, out):
        for t in out:
            if t.shape != tensor.shape:
                raise RuntimeError(
                    "Expected all output CUDA tensors to have the same shape as the source tensor "
                    f"{list(tensor.shape)}, but output tensor has shape {list(t.shape)}")
            t.copy_(tensor, non_blocking=True)
        return out

    def _broadcast_coalesced(self, tensors, devices, buffer_size):
        if any(t.get_device() != devices[0] for t in tensors):
            raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
        out = [list(tensors)] + [[] for _ in devices[1:]]
        for chunk in chunks_of(tensors, buffer_size):
            for copies, made in zip(out[1:], self.broadcast_chunk(chunk, devices)):
                copies += made
        return [in_order_of(copies, tensors) for copies in out]

    def broadcast_chunk(self, chunk, devices):
        """For each device but the first, its copies: views of one buffer."""
        import torch
        from torch._utils import (_flatten_dense_tensors, _flatten_sparse_tensors,
                                  _unflatten_dense_tensors, _unflatten_sparse_tensors)
        if chunk[0].is_sparse:
            flats = zip(*(self._broadcast(f, devices) for f in _flatten_sparse_tensors(chunk)))
            return [_unflatten_sparse_tensors(flat, chunk) for flat in list(flats)[1:]]
        with torch.cuda.device(devices[0]):
            flats = self._broadcast(_flatten_dense_tensors(chunk), devices)
        for flat in flats[1:]:
            self.label(flat, chunk)
        return [[t.data for t in _unflatten_dense_tensors(flat, chunk)] for flat in flats[1:]]

    # -- scatter and gather

    @contextlib.contextmanager
    def on(self, stream):
        """The thread's stream, on its device, until the end of the block."""
        import torch
        if stream is None:
            yield
            return
        index, before = stream.device.index, torch.cuda.current_stream(stream.device)
        with torch.cuda.device(index):
            self.shim.plimsoll_shim_set_stream(index, stream.stream_id)
            try:
                yield
            finally:
                self.shim.plimsoll_shim_set_stream(index, before.stream_id)

    def _scatter(self, tensor, devices, chunk_sizes, dim, streams):
        if not devices:
            raise RuntimeError("Expected at least one device to scatter to")
        if chunk_sizes is not None and len(chunk_sizes) != len(devices):
            raise RuntimeError(f"Expected devices and chunk_sizes to be of same length, but got "
                               f"len(devices) = {len(devices)} and len(chunk_sizes) = "
                               f"{len(chunk_sizes)}")
        chunks = list(tensor.chunk(len(devices), dim) if chunk_sizes is None
                      else tensor.split_with_sizes(list(chunk_sizes), dim))
        for i, chunk in enumerate(chunks):
            if devices[i] != tensor.get_device():
                with self.on(streams[i] if streams and i < len(streams) else None):
                    chunks[i] = chunk.to(f"cuda:{devices[i]}", non_blocking=True)
        return chunks

    def _scatter_out(self, tensor, out, dim, streams):
        chunks = tensor.split_with_sizes([t.size(dim) for t in out], dim)
        for i, (t, chunk) in enumerate(zip(out, chunks)):
            with self.on(streams[i] if streams and i < len(streams) else None):
                t.copy_(chunk, non_blocking=True)
        return out

    def _gather(self, tensors, dim, destination):
        import torch
        if not tensors:
            raise RuntimeError("Expected at least one tensor to gather from")
        first = tensors[0]
        dim %= max(first.dim(), 1)
        size = list(first.shape)
        for i, t in enumerate(tensors):
            size[dim] = t.size(dim)
            if not t.is_cuda:
                raise RuntimeError("Expected all input tensors to be CUDA tensors, but tensor at "
                                   f"index {i} has device {t.device}")
            if list(t.shape) != size:
                raise RuntimeError(f"Expected tensor at index {i} to have the same size in every "
                                   f"dimension but {dim}: {list(t.shape)} and {size}")
        size[dim] = sum(t.size(dim) for t in tensors)
        last = all(t.dim() == 4 and t.is_contiguous(memory_format=torch.channels_last)
                   and not t.is_contiguous() for t in tensors)
        where = "cpu" if destination == -1 else \
            "cuda" if destination is None else f"cuda:{destination}"
        return self._gather_out(tensors, torch.empty(
            size, dtype=first.dtype, device=where,
            memory_format=torch.channels_last if last else torch.contiguous_format), dim)

    def _gather_out(self, tensors, out, dim):
        for part, t in zip(out.split_with_sizes([t.size(dim) for t in tensors], dim), tensors):
            part.copy_(t, non_blocking=out.is_cuda)
        return out

    # -- NCCL, as torch.cuda.nccl calls it

    def written(self, tensors):
        for t in tensors:
            t.mul_(1)  # what was known of its values is not any more

    def _nccl_all_reduce(self, inputs, outputs, *rest):
        self.note_nccl(inputs)
        self.written(outputs)

    _nccl_all_gather = _nccl_reduce_scatter = _nccl_all_reduce

    def _nccl_reduce(self, inputs, output, *rest):
        self._nccl_all_reduce(inputs, [output])

    def _nccl_broadcast(self, inputs, root, *rest):
        self.note_nccl(inputs)
        self._broadcast_out(inputs[root], [t for i, t in enumerate(inputs) if i != root])


def give_comm(device, shim, torch_c):
    comm = Comm(device, shim)
    for name in dir(Comm):
        if name[0] == "_" != name[1]:
            setattr(torch_c, name, getattr(comm, name))
