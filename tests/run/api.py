"""api.py -- what a script may ask of torch.cuda, and what a pretend GPU must say."""
import io

import torch

cuda = torch.cuda
assert cuda.is_available() and cuda.device_count() == 1 and cuda.current_device() == 0
assert "4090" in cuda.get_device_name() and cuda.get_device_capability() == (8, 9)
assert cuda.get_device_properties(0).total_memory == cuda.mem_get_info()[1]
assert cuda.is_bf16_supported() and torch.version.cuda and torch.backends.cudnn.is_available()

# values: what was uploaded or filled is known, the rest is 0
x = torch.tensor([3.0, 4.0], device="cuda")
assert x.is_cuda and x[1].item() == 4.0 and x.cpu().tolist() == [3.0, 4.0]
assert torch.ones(2, device="cuda").sum().item() == 0
assert torch.full((), 7, device="cuda").item() == 7
x.add_(1)
assert x[1].item() == 0

# counters
before = cuda.memory_allocated()
y = torch.empty(1000, device="cuda")
assert cuda.memory_allocated() - before == 4096
assert cuda.memory_stats()["requested_bytes.all.current"] > 0
assert "allocated" in cuda.memory_summary().lower()
cuda.reset_peak_memory_stats()
assert cuda.max_memory_allocated() == cuda.memory_allocated()
segments = cuda.memory._snapshot()["segments"]
assert sum(s["allocated_size"] for s in segments) == cuda.memory_allocated()
assert any("api.py" in f["filename"] for s in segments for b in s["blocks"] for f in b["frames"])
cuda.memory._record_memory_history()

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
assert torch.zeros(4, 5, device="cuda").relu().nonzero().shape == (20, 2)
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

# a limit of its own
cuda.set_per_process_memory_fraction(0.01)
try:
    torch.empty(1 << 30, device="cuda")
    raise SystemExit("the limit was not kept")
except torch.OutOfMemoryError as e:
    assert "CUDA out of memory. Tried to allocate 4.00 GiB" in str(e), e
print("fine")
