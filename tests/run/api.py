"""api.py -- what a script may ask of torch.cuda, and what a pretend GPU must say."""
import copy
import io
import pickle
import tempfile

import torch
from torch.cuda import _memory_viz

cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
assert "4090" in cuda.get_device_name() and cuda.get_device_capability() == (8, 9)
assert cuda.get_device_properties(0).total_memory == cuda.mem_get_info()[1]
assert cuda.is_bf16_supported() and torch.version.cuda and torch.backends.cudnn.is_available()

# values: what follows from uploads and fills is known, the rest is guessed
x = torch.tensor([3.0, 4.0], device="cuda")
assert x.is_cuda and x[1].item() == 4.0 and x.cpu().tolist() == [3.0, 4.0]
assert torch.ones(2, device="cuda").sum().item() == 2
assert torch.rand(2, device="cuda").sum().item() == 0
assert torch.full((), 7, device="cuda").item() == 7
x.add_(1)
assert x[1].item() == 5
x.add_(torch.rand(2, device="cuda"))
assert x[1].item() == 0

# counters
before = cuda.memory_allocated()
y = torch.empty(1000, device="cuda")
assert cuda.memory_allocated() - before == 4096
cuda.reset_peak_memory_stats()
assert cuda.max_memory_allocated() == cuda.memory_allocated()

# pools: up to 1 MiB from segments of 2 MiB, above that from the other
before = cuda.memory_stats()
small, large = torch.empty(1 << 20, dtype=torch.uint8, device="cuda"), \
    torch.empty((1 << 20) + 1, dtype=torch.uint8, device="cuda")
after = cuda.memory_stats()
gained = {k: after[k] - before[k] for k in after}
assert gained["allocated_bytes.small_pool.current"] == 1 << 20
assert gained["allocated_bytes.large_pool.current"] == (1 << 20) + 512
assert gained["requested_bytes.large_pool.current"] == (1 << 20) + 1
assert gained["reserved_bytes.large_pool.current"] == 20 << 20
assert gained["segment.large_pool.allocated"] == 1 and gained["segment.small_pool.freed"] == 0
assert gained["inactive_split_bytes.large_pool.current"] == (19 << 20) - 512
for k, n in after.items():
    if k.endswith((".all.current", ".all.allocated", ".all.freed")):
        assert n == sum(after[k.replace(".all.", f".{pool}.")]
                        for pool in ("small_pool", "large_pool")), k
assert after["max_split_size"] == -1 and after["num_ooms"] == 0
assert "from small pool" in cuda.memory_summary() and "Oversize" in cuda.memory_summary()
cuda.reset_accumulated_memory_stats()
assert cuda.memory_stats()["allocation.all.allocated"] == 0
assert cuda.memory_stats()["allocation.all.current"] == after["allocation.all.current"]
del large

# snapshots, and PyTorch's own readers of them
cuda.memory._record_memory_history(max_entries=1000)
big = torch.empty(1 << 28, device="cuda")
address = big.data_ptr()
assert cuda.memory._allocation_traceback(address)[0]["filename"].endswith("api.py") \
    if hasattr(cuda.memory, "_allocation_traceback") else True
del big
cuda.empty_cache()
snapshot = cuda.memory._snapshot()
blocks = [b for s in snapshot["segments"] for b in s["blocks"]]
assert sum(s["allocated_size"] for s in snapshot["segments"]) == cuda.memory_allocated()
assert sum(s["total_size"] for s in snapshot["segments"]) == cuda.memory_reserved()
assert any("api.py" in f["filename"] for b in blocks for f in b["frames"])
assert any(b["address"] == small.data_ptr() and b["requested_size"] == 1 << 20 for b in blocks)
trace = snapshot["device_traces"][0]
assert [(t["action"], t["addr"], t["size"]) for t in trace[:4]] == [
    (action, address, 1 << 30)
    for action in ("segment_alloc", "alloc", "free_requested", "free_completed")]
assert {"segment_free"} == {t["action"] for t in trace[4:]}
assert (address, 1 << 30) in [(t["addr"], t["size"]) for t in trace[4:]]
assert trace[0]["frames"][0]["filename"].endswith("api.py") and trace[0]["stream"] == 0
assert set(snapshot["segments"][0]) == {
    "device", "address", "total_size", "allocated_size", "active_size", "requested_size",
    "stream", "segment_type", "segment_pool_id", "is_expandable", "frames", "blocks"}
told = _memory_viz.trace(snapshot)
for line in (f"a = cudaMalloc({address}, 1.0GiB)", "b = a[0:1.0GiB]", "del b", "cudaFree(a)"):
    assert line in told, told
assert "total_reserved" in _memory_viz.segsum(snapshot)
assert "<html>" in _memory_viz.trace_plot(snapshot)
assert "<html>" in _memory_viz.segment_plot(snapshot)
assert "api.py" in _memory_viz.memory(snapshot, format_flamegraph=lambda lines: lines)
with tempfile.NamedTemporaryFile() as file:
    cuda.memory._dump_snapshot(file.name)
    assert pickle.load(file)["device_traces"][0] == trace
cuda.memory._record_memory_history(enabled=None)
torch.empty(1, device="cuda")
assert cuda.memory._snapshot()["device_traces"][0] == trace

# streams, events, random state
stream, event = cuda.Stream(), cuda.Event(enable_timing=True)
with cuda.stream(stream):
    z = torch.empty(10, device="cuda")
    event.record()
cuda.current_stream().wait_stream(stream)
z.record_stream(cuda.current_stream())
cuda.synchronize()
cuda.manual_seed_all(1)
cuda.set_rng_state(cuda.get_rng_state())

# sizes that depend on values
assert torch.rand(4, 5, device="cuda").relu().nonzero().shape == (20, 2)
assert torch.rand(8, device="cuda")[torch.rand(8, device="cuda") > 0.5].shape == (8,)

# resizing, out=, in place, views, promotion
a, b = torch.ones(3, device="cuda"), torch.empty(0, device="cuda")
torch.add(a, 1, out=b)
assert b.shape == (3,) and b.untyped_storage().nbytes() == 12
assert (a * 2).dtype == torch.float32 and (a.half() * 2.0).dtype == torch.float16
assert a.view(3, 1).data_ptr() == a.data_ptr() and a.add_(1) is a
assert a.unfold(0, 2, 1).data_ptr() == a.data_ptr()
try:
    a + torch.ones(3)
    raise SystemExit("two devices were not noticed")
except RuntimeError as e:
    assert "same device" in str(e), e

c = torch.zeros(2, 2, dtype=torch.complex64, device="cuda")
assert torch.view_as_real(c).shape == (2, 2, 2)
assert torch.view_as_real(c).data_ptr() == c.data_ptr()

# checkpoints
file = io.BytesIO()
torch.save(torch.nn.Linear(2, 2).cuda().state_dict(), file)
file.seek(0)
assert torch.load(file)["weight"].is_cuda

# copies: of a buffer, its storage
before = cuda.memory_stats()["requested_bytes.all.current"]
norm = torch.nn.BatchNorm1d(100).cuda()
copied = copy.deepcopy(norm)
assert copied.running_mean.is_cuda and copied.running_mean.data_ptr() != norm.running_mean.data_ptr()
assert copied.running_var.tolist() == [1.0] * 100
assert cuda.memory_stats()["requested_bytes.all.current"] - before == 2 * (4 * 400 + 8)

# modules whose arguments are no tensors
packed = torch.nn.utils.rnn.pack_padded_sequence(torch.randn(5, 3, 8, device="cuda"), [5, 3, 2])
assert torch.nn.LSTM(8, 16).cuda()(packed)[0].data.shape == (10, 16)

# mixed precision
model = torch.nn.Linear(8, 8).cuda()
optimizer = torch.optim.AdamW(model.parameters(), fused=True)
scaler = torch.amp.GradScaler("cuda")
for _ in range(2):
    with torch.autocast("cuda", dtype=torch.float16):
        out = model(torch.randn(4, 8, device="cuda"))
    assert out.dtype == torch.float16
    scaler.scale(out.float().sum()).backward()
    scaler.step(optimizer)
    scaler.update()
assert len(optimizer.state) == 2, "a step was left out"
assert scaler.get_scale() == 65536

# the same allocator by another name, from 2.9 on
memory = getattr(getattr(torch, "accelerator", None), "memory", None)
if memory:
    torch.empty(60 << 20, dtype=torch.uint8, device="cuda")  # released at once
    cached = cuda.memory_reserved()
    assert memory.max_memory_allocated() == cuda.max_memory_allocated() > memory.memory_allocated()
    memory.reset_peak_memory_stats()
    assert memory.max_memory_allocated() == cuda.memory_allocated()
    memory.empty_cache()
    assert memory.memory_reserved() == cuda.memory_reserved() < cached
    assert memory.get_memory_info() == cuda.mem_get_info()

# random numbers of the card
state = cuda.get_rng_state()
assert state.shape == (16,) and state.dtype == torch.uint8, state
torch.manual_seed(7)
assert cuda.initial_seed() == 7
cuda.set_rng_state(state)
assert torch.equal(cuda.get_rng_state(), state)
other = torch.Generator("cuda").manual_seed(3)
assert other.device.type == "cuda" and other.initial_seed() == 3
assert torch.rand(4, device="cuda", generator=other).is_cuda

# a storage gives its memory back, and takes it again
whole = torch.empty(1 << 20, device="cuda")
before = cuda.memory_allocated()
whole.untyped_storage().resize_(0)
assert cuda.memory_allocated() == before - (4 << 20)
whole.untyped_storage().resize_(4 << 20)
assert cuda.memory_allocated() == before
try:
    whole.untyped_storage().resize_(1 << 50)
    raise SystemExit("a storage of 1 PiB was given")
except torch.OutOfMemoryError as e:
    assert "CUDA out of memory. Tried to allocate 1048576.00 GiB" in str(e), e

# what another stream still uses is free once somebody has waited for that stream
side = cuda.Stream()
used = torch.empty(1 << 20, device="cuda")
used.record_stream(side)
del used
held = cuda.memory_stats()["active_bytes.all.current"] - cuda.memory_allocated()
assert held == 4 << 20, held
event = cuda.Event()
event.record(side)
event.synchronize()
torch.empty(1, device="cuda")
assert cuda.memory_stats()["active_bytes.all.current"] == cuda.memory_allocated()

# a limit of its own
cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(1 << 30, device="cuda")
    raise SystemExit("the limit was not kept")
except torch.OutOfMemoryError as e:
    assert "CUDA out of memory. Tried to allocate 4.00 GiB" in str(e), e
print("fine")
